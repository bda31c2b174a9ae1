"""The link that signs a browser in once: `recollect open`."""

from collections.abc import Callable
from urllib.parse import urlsplit

import httpx

from recollect.app import App
from recollect.console._room import COOKIE
from recollect.model import Org
from recollect.orgs import orgs
from tests.console.test_console import body, browse, new_key

__all__ = ["browse"]

USED = "This link was used or is older than two minutes"


def linked(app: App, key: str) -> str:
    with app.db.begin() as tx:
        return orgs.link(tx, orgs.authenticate(tx, key).id)


def test_a_link_signs_one_browser_in_once(
    app: App, browse: Callable[..., httpx.Client], org: Org, key: str
):
    token = linked(app, key)
    first, second = browse(), browse()

    answer = first.get("/console/login", params={"once": token, "next": "/console/documents"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/documents")
    assert first.get("/console").status_code == 200
    refused = second.get("/console/login", params={"once": token})
    assert refused.status_code == 401
    assert USED in body(refused)
    assert second.get("/console").status_code == 303


def test_the_token_of_a_link_is_no_session(app: App, browse: Callable[..., httpx.Client], key: str):
    forged = browse()
    forged.cookies.set(COOKIE, linked(app, key), path="/console")
    assert forged.get("/console").status_code == 303
    # Nor is a session a link.
    http = browse(key)
    kept = http.cookies[COOKIE]
    assert browse().get("/console/login", params={"once": kept}).status_code == 401


def test_a_link_ends_with_its_time_and_with_its_key(
    app: App, browse: Callable[..., httpx.Client], org: Org, key: str
):
    old = linked(app, key)
    with app.db.begin() as tx:
        tx.execute("update sessions set expires_at = now() - interval '1 second' where once")
    assert browse().get("/console/login", params={"once": old}).status_code == 401
    made, secret = new_key(app, org)
    token = linked(app, secret)
    with app.db.begin() as tx:
        orgs.revoke_key(tx, made.id, org.id)
    assert browse().get("/console/login", params={"once": token}).status_code == 401


def test_who_is_signed_in_stays_who_they_are(
    app: App, browse: Callable[..., httpx.Client], org: Org, key: str
):
    """A link from a stranger must not make what one writes next the stranger's."""
    http = browse(key)
    _, other = new_key(app, org)
    token = linked(app, other)
    before = http.cookies.get(COOKIE)
    answer = http.get("/console/login", params={"once": token})
    assert answer.status_code == 303
    assert http.cookies.get(COOKIE) == before
    assert browse().get("/console/login", params={"once": token}).status_code == 303


def test_odd_tokens_are_refused(browse: Callable[..., httpx.Client]):
    for odd in ("", "x", "x" * 5_000, "\u00e4", "a\ud800".encode("utf-8", "replace").decode()):
        assert browse().get("/console/login", params={"once": odd}).status_code == 401


def test_the_sign_in_page_says_where_the_key_is(app: App, browse: Callable[..., httpx.Client]):
    shown = body(browse().get("/console/login"))
    assert str(app.config.data_dir / "api-key") in shown
    assert "recollect open" in shown
    # From elsewhere the name of the file, and nothing of the machine.
    elsewhere = browse().get("/console/login", headers={"x-forwarded-for": "203.0.113.9"})
    assert str(app.config.data_dir) not in elsewhere.text


def test_the_api_makes_the_link(client: httpx.Client, browse: Callable[..., httpx.Client]):
    made = client.post("/v3/session/link").json()
    assert made["expiresIn"] == 120
    assert urlsplit(made["path"]).path == "/console/login"
    assert browse().get(made["path"]).status_code == 303
