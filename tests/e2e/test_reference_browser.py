"""`/docs` and the console in a browser whose only network is the service."""

import pytest

from recollect.console import _room
from tests.e2e.browser import NEEDS_CHROMIUM, Tab, misfits, nameless

pytestmark = NEEDS_CHROMIUM
LOADED = "performance.getEntriesByType('resource').map((entry) => entry.name)"


@pytest.fixture
def alone(room: Tab, site: str) -> Tab:
    """Signed in; whatever is asked of another address fails and is complained of."""
    room.send("Network.enable")
    room.send("Network.setBlockedURLs", urls=["https://*", "http://*.example*", "http://*.com*"])
    return room


def test_the_reference_is_whole_without_a_network(alone: Tab, site: str):
    alone.open(f"{site}/docs")
    assert "Search documents" in alone.text()
    assert alone.js("getComputedStyle(document.body).backgroundColor") != "rgba(0, 0, 0, 0)"
    assert all(name.startswith(f"{site}/console/static/") for name in alone.js(LOADED))
    alone.js("document.querySelectorAll('details').forEach((one) => { one.open = true })")
    assert alone.js("document.querySelectorAll('#searchDocuments pre').length") >= 3
    assert nameless(alone) == []
    assert misfits(alone, f"{site}/docs", 375) == []
    assert alone.complaints == []


def test_no_page_of_ours_loads_anything_from_elsewhere(alone: Tab, site: str):
    pages = ["/docs", "/", "/health", "/v3/openapi", *(path for path, _ in _room.ROOMS)]
    for path in [*pages, "/console/nothing", "/console/login"]:
        alone.open(f"{site}{path}")
        for name in alone.js(LOADED):
            assert name.startswith(f"{site}/"), (path, name)
    assert not [text for text in alone.complaints if "404" not in text and "401" not in text]
