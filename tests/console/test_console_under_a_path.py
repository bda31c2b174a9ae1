"""The console where the public address has a path: every address that a page names has it."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace

import httpx
import pytest
from selectolax.lexbor import LexborHTMLParser
from starlette.types import ASGIApp, Receive, Scope, Send

from recollect.api import create_app
from recollect.app import App
from recollect.console._room import COOKIE
from recollect.inference.llm import Llm
from recollect.model import Tenant
from recollect.worker.processing import drain
from tests.conftest import plain_client
from tests.console.test_console import FORM, add, console_site, fail, one
from tests.console.test_console_asking import ASKED, MEETING
from tests.console.test_console_connections import make
from tests.console.test_console_rooms import hook
from tests.fakes.llm import Model, Streams, running

UNDER = "/tools/recollect"
NAMING = (
    "href",
    "src",
    "action",
    "formaction",
    "data-live",
    "data-next",
    "data-once",
    "data-session",
)
_ID = re.compile(r"/(?!new\b)[\w-]{16,}")


class Proxy:
    """Forwards what is below `UNDER` and nothing else; `strips`: without that in front."""

    def __init__(self, service: ASGIApp, strips: bool) -> None:
        self._service, self._strips = service, strips

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            below, path = UNDER.encode(), scope["raw_path"]
            if path != below and not path.startswith(below + b"/"):
                await send({"type": "http.response.start", "status": 418, "headers": []})
                await send({"type": "http.response.body", "body": b"another program"})
                return
            if self._strips:
                scope["raw_path"] = path.removeprefix(below) or b"/"
        await self._service(scope, receive, send)


@contextmanager
def site_under_a_path(app: App, *, strips: bool) -> Generator[str]:
    """The address below which everything is."""
    config = app.config.model_copy(update={"public_url": f"https://example.org{UNDER}/"})
    web = create_app(replace(app, config=config))
    web.add_middleware(Proxy, strips=strips)
    with console_site(app, web) as url:
        yield url + UNDER


def furnish(app: App, tenant: Tenant) -> None:
    """Something for the pages to lead to."""
    connection = make(app, tenant)
    add(app, tenant, "A heron wades.", tags=["birds"])
    drain(app)
    fail(app, add(app, tenant, "broken", connection_id=connection.id), "unreadable_content", "bad")
    hook(app, tenant)


@pytest.mark.parametrize("strips", [False, True])
def test_every_address_of_every_page_is_below_the_path(
    app: App, tenant: Tenant, key: str, strips: bool
):
    furnish(app, tenant)
    with site_under_a_path(app, strips=strips) as site, plain_client(site, FORM) as http:
        http.base_url = site.removesuffix(UNDER)
        login = http.get(f"{UNDER}/console/documents?status=failed")
        assert login.headers["location"].startswith(f"{UNDER}/console/login?next=%2Fconsole%2F")
        done = http.post(
            f"{UNDER}/console/login",
            data={"key": key, "next": "/console/documents?status=failed"},
        )
        assert done.headers["location"] == f"{UNDER}/console/documents?status=failed"
        assert f"Path={UNDER}/console;" in done.headers["set-cookie"]

        asked = _pages(http, f"{UNDER}/console")

    rooms = {path.removeprefix(UNDER) for path in asked}
    assert {"/console/search", "/console/keys", "/console/static/console.js"} <= rooms
    assert len(rooms) > 40


def _pages(http: httpx.Client, first: str) -> set[str]:
    """The paths of all pages that can be reached, one of each kind; each must be there."""
    queue, known = [first], set[str]()
    asked = set[str]()
    while queue:
        address = queue.pop()
        answer = http.get(address)
        assert answer.status_code in (200, 204, 303), address
        asked.add(address.partition("?")[0])
        found = [answer.headers["location"]] if answer.status_code == 303 else []
        if answer.headers.get("content-type", "").startswith("text/html"):
            found += _named(answer.text)
        for target in found:
            assert target.startswith(f"{UNDER}/"), (address, target)
            kind = _ID.sub("/ID", target.partition("?")[0])
            if kind not in known:
                known.add(kind)
                queue.append(target)
    return asked


def _named(html: str) -> list[str]:
    """Addresses of this site in a page that a browser may ask for by itself or by a click."""
    page = LexborHTMLParser(html)
    values = [
        (name, element.attributes[name] or "")
        for name in NAMING
        for element in page.css(f"[{name}]")
    ]
    for name, value in values:
        # What a form sends is tested where its page is.
        assert "action" not in name or value.startswith(f"{UNDER}/"), value
    return [value for name, value in values if "action" not in name and value.startswith("/")]


def test_signing_out_takes_the_cookie_away(app: App, key: str):
    with site_under_a_path(app, strips=True) as site, plain_client(site, FORM) as http:
        http.post("/console/login", data={"key": key})
        assert http.get("/console/documents").status_code == 200

        left = http.post("/console/logout")

        assert left.headers["location"] == f"{UNDER}/console/login"
        assert COOKIE not in http.cookies
        assert http.get("/console/documents").status_code == 303


def test_what_is_told_by_and_by_is_below_the_path_too(app: App, tenant: Tenant, key: str):
    add(app, tenant, MEETING)
    drain(app)
    with running(Model(misbehave=[Streams(("On Mondays ", "at nine [1]."))])) as model:
        llm = Llm(model.url, "a-model", total=5)
        with (
            site_under_a_path(replace(app, llm=llm), strips=True) as site,
            plain_client(site, FORM) as http,
        ):
            http.post("/console/login", data={"key": key})
            told = http.post("/console/ask", data=ASKED)
        llm.close()

    assert "at nine" in told.text
    link = one(told, "#source-1 a").attributes["href"] or ""
    assert link.startswith(f"{UNDER}/console/documents/")
    assert {value.startswith(UNDER) for value in _named(told.text)} == {True}
