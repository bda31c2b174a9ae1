"""What the tests of this folder share."""

import socket
from collections.abc import Generator
from http.cookies import SimpleCookie

import httpx
import pytest

from recollect.app import App
from recollect.console._room import COOKIE
from recollect.model import Tenant
from recollect.worker.processing import drain
from tests.conftest import plain_client
from tests.console.test_console import FORM, add, console_site, fail
from tests.e2e.browser import Tab, browser
from tests.e2e.shell import Starter


@pytest.fixture(scope="session")
def starter() -> Generator[Starter]:
    """Runs `recollect …`, a process each."""
    with Starter() as made:
        yield made


@pytest.fixture
def nowhere() -> Generator[str]:
    """An address at which nothing answers: its port is taken, so that nothing ever will."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture(scope="session")
def site(app: App) -> Generator[str]:
    with console_site(app) as url:
        yield url


@pytest.fixture(scope="module")
def chromium() -> Generator[Tab]:
    with browser() as tab:
        yield tab


@pytest.fixture
def tab(chromium: Tab) -> Tab:
    """A browser in which nobody is signed in."""
    chromium.open("about:blank")  # what the test before left open would go on following
    chromium.send("Network.clearBrowserCookies")
    chromium.send("Emulation.setFocusEmulationEnabled", enabled=True)
    chromium.complaints.clear()
    return chromium


@pytest.fixture
def room(tab: Tab, site: str, key: str) -> Tab:
    """Signed in with this test's key, at the overview."""
    with plain_client(site, FORM) as http:
        answer = http.post("/console/login", data={"key": key})
    tab.send("Network.setCookie", url=f"{site}/console", **cookie(answer))
    tab.open(f"{site}/console")
    assert tab.text("h1") == "Overview"
    return tab


def cookie(answer: httpx.Response) -> dict[str, str | bool]:
    """That of the session, as a browser takes it from the answer."""
    [given] = SimpleCookie(answer.headers["set-cookie"]).values()
    assert given.key == COOKIE
    return {
        "name": given.key,
        "value": given.value,
        "path": given["path"],
        "httpOnly": bool(given["httponly"]),
        "sameSite": str(given["samesite"]).capitalize(),
    }


@pytest.fixture
def furnished(app: App, tenant: Tenant) -> list[str]:
    """Paths of all pages, with something of everything on them; long words included."""
    long = "unbroken" * 40
    text = "\n\n".join(f"# Part {n}\n\n{f'A heron, number {n}. ' * 45}{long}" for n in range(4))
    done = add(app, tenant, text, custom_id=long[:255], filepath=long, metadata={long[:64]: long})
    drain(app)
    broken = add(app, tenant, "broken", title=long, tags=["x" * 100])
    fail(app, broken, "unreadable_content", f"{long} is damaged")
    waiting = add(app, tenant, "waiting", title="Waits")
    return [
        "/console",
        "/console/documents",
        "/console/documents?status=done&tag=none",
        f"/console/documents/{done.id}?q=heron&chunk=2",
        f"/console/documents/{broken.id}",
        f"/console/documents/{waiting.id}",
        "/console/documents/absent",
        "/console/add",
        f"/console/progress?id={done.id}&id={broken.id}&id={waiting.id}",
        "/console/search",
        "/console/search?q=heron",
        "/console/search?q=x&filters=%7B",
    ]
