"""One organisation, or one key, leaves places for others, whatever it asks for."""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from recollect import console
from recollect.api import create_app, turns
from recollect.api.turns import Asking, InTurn, RequestTurns, own_turn
from recollect.app import App
from recollect.errors import RateLimitError
from recollect.model import Key, KeyId, Org, OrgId, Plan
from recollect.model import Scope as Rights


def key(org: str, name: str) -> Key:
    made = datetime(2026, 1, 1, tzinfo=UTC)
    whose = Org(OrgId(org), org, Plan.ENTERPRISE, made)
    return Key(KeyId(name), whose, name, Rights.ADMIN, None, made, None, None)


class Slow:
    """An application whose requests last until they are let go."""

    def __init__(self) -> None:
        self.at_work: list[str] = []
        self.go = asyncio.Event()
        self.changed = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        whose: Key | None = scope["state"]["key"]
        self.at_work.append(whose.org.id if whose else scope["path"])
        self.changed.set()
        await self.go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def until(self, holds: Callable[[], bool]) -> None:
        with anyio.fail_after(30):
            while not holds():
                self.changed.clear()
                await self.changed.wait()


async def ask(
    app: Any,
    whose: Key | None,
    *,
    path: str = "/v3/search",
    query: bytes = b"",
    method: str = "POST",
    kind: bytes = b"application/json",
) -> int:
    told: list[int] = []

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            told.append(message["status"])

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {
        "type": "http", "method": method, "path": path, "query_string": query,
        "headers": [(b"content-type", kind)], "state": {"key": whose},
    }  # fmt: skip
    await app(scope, receive, send)
    return told[0]


def test_an_organisation_that_asks_for_much_leaves_places():
    async def run() -> None:
        slow = Slow()
        app = InTurn(slow, RequestTurns())
        many = [asyncio.create_task(ask(app, key("much", f"k{n % 4}"))) for n in range(100)]
        await slow.until(lambda: len(slow.at_work) == turns.PER_ORG)
        other = asyncio.create_task(ask(app, key("other", "o")))
        await slow.until(lambda: "other" in slow.at_work)

        assert slow.at_work.count("much") == turns.PER_ORG
        slow.go.set()
        assert await other == 200
        assert set(await asyncio.gather(*many)) == {200}
        assert len(slow.at_work) == 101

    asyncio.run(run())


def test_one_key_leaves_places_to_the_others_of_its_organisation():
    async def run() -> None:
        slow = Slow()
        app = InTurn(slow, RequestTurns())
        many = [asyncio.create_task(ask(app, key("o", "greedy"))) for _ in range(50)]
        await slow.until(lambda: len(slow.at_work) == turns.PER_KEY)
        other = asyncio.create_task(ask(app, key("o", "modest")))
        await slow.until(lambda: len(slow.at_work) == turns.PER_KEY + 1)
        slow.go.set()

        assert await other == 200
        assert set(await asyncio.gather(*many)) == {200}

    asyncio.run(run())


def test_uploads_leave_places_to_what_else_their_key_asks_for():
    """As to a bucket that hangs."""

    async def run() -> None:
        slow = Slow()
        app = InTurn(slow, RequestTurns())
        form = b"multipart/form-data; boundary=x"
        path = "/v3/documents/file"
        many = [
            asyncio.create_task(ask(app, key("o", f"k{n % 2}"), path=path, kind=form))
            for n in range(50)
        ]
        await slow.until(lambda: len(slow.at_work) == turns.UPLOADS)
        search = asyncio.create_task(ask(app, key("o", "k1")))
        await slow.until(lambda: len(slow.at_work) == turns.UPLOADS + 1)
        slow.go.set()

        assert await search == 200
        assert set(await asyncio.gather(*many)) == {200}

    asyncio.run(run())


def test_uploads_of_one_key_leave_places_to_those_of_the_others():
    """As over a slow line, where each lasts for minutes."""

    async def run() -> None:
        slow = Slow()
        app = InTurn(slow, RequestTurns())
        form, path = b"multipart/form-data; boundary=x", "/v3/documents/file"
        many = [
            asyncio.create_task(ask(app, key("o", "slow"), path=path, kind=form)) for _ in range(50)
        ]
        await slow.until(lambda: len(slow.at_work) == turns.UPLOADS_KEY)
        other = asyncio.create_task(ask(app, key("o", "other"), path=path, kind=form))
        await slow.until(lambda: len(slow.at_work) == turns.UPLOADS_KEY + 1)
        slow.go.set()

        assert await other == 200
        assert set(await asyncio.gather(*many)) == {200}

    asyncio.run(run())


def test_files_that_are_handed_out_leave_places_to_all_others():
    async def run() -> None:
        slow = Slow()
        app = InTurn(slow, RequestTurns())

        def fetched(org: str) -> list[asyncio.Task[int]]:
            path = f"/v3/files/{org}/d"
            return [asyncio.create_task(ask(app, None, path=path, method="GET")) for _ in range(50)]

        many = fetched("o")
        await slow.until(lambda: len(slow.at_work) == turns.DOWNLOADS_ORG)
        others = fetched("p")
        await slow.until(lambda: len(slow.at_work) == turns.DOWNLOADS)
        search = asyncio.create_task(ask(app, key("o", "k")))
        await slow.until(lambda: "o" in slow.at_work)

        assert slow.at_work.count("/v3/files/o/d") == turns.DOWNLOADS_ORG
        assert slow.at_work.index("o") == turns.DOWNLOADS
        slow.go.set()
        assert await search == 200
        assert set(await asyncio.gather(*many, *others)) == {200}

    asyncio.run(run())


@pytest.mark.parametrize(
    ("path", "query"),
    [("/v3/documents/x", b"wait=60"), ("/v3/documents/events", b""), ("/mcp", b"")],
)
def test_what_waits_takes_no_place(path: str, query: bytes):
    async def run() -> None:
        slow = Slow()
        app = InTurn(slow, RequestTurns())
        many = [
            asyncio.create_task(ask(app, key("o", "k"), path=path, query=query, method="GET"))
            for _ in range(50)
        ]
        await slow.until(lambda: len(slow.at_work) == 50)
        slow.go.set()
        await asyncio.gather(*many)

    asyncio.run(run())


def test_a_request_that_is_given_up_gives_its_turn_to_the_next():
    async def run() -> None:
        slow = Slow()
        app = InTurn(slow, RequestTurns())
        many = [asyncio.create_task(ask(app, key("o", "k"))) for _ in range(turns.PER_KEY + 1)]
        await slow.until(lambda: len(slow.at_work) == turns.PER_KEY)
        many[0].cancel()
        await slow.until(lambda: len(slow.at_work) == turns.PER_KEY + 1)
        slow.go.set()
        assert set(await asyncio.gather(*many[1:])) == {200}

    asyncio.run(run())


def test_few_ask_a_provider_at_once_and_fewer_of_one_key():
    async def run() -> None:
        asking = Asking()
        async with asking.place("a", "k1"), asking.place("a", "k1"):
            with pytest.raises(RateLimitError):
                async with asking.place("a", "k1"):
                    pass
            async with asking.place("a", "k2"), asking.place("a", "k2"):
                with pytest.raises(RateLimitError):
                    async with asking.place("a", "k3"):
                        pass
                async with asking.place("b", "k"):
                    pass
        async with asking.place("a", "k1"):
            pass

    asyncio.run(run())


@pytest.mark.parametrize(
    ("path", "query", "method"),
    [
        ("/ns/a/document/x/mcp", b"", "POST"),
        ("/ns/a/document/x/events", b"", "POST"),
        ("/ns/a/search", b"wait=1", "POST"),
        ("/v3/search", b"wait=1", "POST"),
        ("/v3/documents/a/mcp", b"", "POST"),
        ("/v3/documents/a/events", b"", "POST"),
        ("/v3/documents/search", b"wait=1", "POST"),
        ("/v3/documents/x/chunks", b"wait=1", "GET"),
        ("/v3/documents/counts", b"wait=1", "GET"),
        ("/v3/documents/processing", b"wait=1", "GET"),
    ],
)
def test_no_id_and_no_query_takes_more_than_its_place(path: str, query: bytes, method: str):
    async def run() -> None:
        slow = Slow()
        app = InTurn(slow, RequestTurns())
        many = [
            asyncio.create_task(ask(app, key("o", "k"), path=path, query=query, method=method))
            for _ in range(50)
        ]
        await slow.until(lambda: len(slow.at_work) == turns.PER_KEY)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(slow.at_work) == turns.PER_KEY
        slow.go.set()
        await asyncio.gather(*many)

    asyncio.run(run())


def test_what_waits_takes_its_turn_for_what_it_does_meanwhile():
    async def run() -> None:
        slow = Slow()

        async def look(scope: Scope, receive: Receive, send: Send) -> None:
            async with own_turn(Request(scope)):
                await slow(scope, receive, send)

        app = InTurn(look, RequestTurns())
        many = [
            asyncio.create_task(
                ask(app, key("o", "k"), path="/v3/documents/x", query=b"wait=60", method=method)
            )
            for method in ["GET"] * 25 + ["PATCH"] * 25
        ]
        await slow.until(lambda: len(slow.at_work) == turns.PER_KEY)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(slow.at_work) == turns.PER_KEY
        slow.go.set()
        assert set(await asyncio.gather(*many)) == {200}

    asyncio.run(run())


def test_what_endpoints_depend_on_takes_no_thread(app: App):
    """A request has one thread, for its endpoint; the framework would take one more for each
    dependency that is no coroutine."""
    web = create_app(app)
    console.add_to(web)
    routes = [route for route in web.routes if isinstance(route, APIRoute)]
    waiting = {
        f"{one.call.__module__}.{one.call.__name__}"
        for route in routes
        for one in _below(route.dependant)
        if inspect.isfunction(one.call)
        and not inspect.iscoroutinefunction(one.call)
        and not inspect.isasyncgenfunction(one.call)
    }

    assert waiting == set()
    assert {"/v3/search", "/console/search"} <= {route.path for route in routes}


def _below(dependant: Dependant) -> Iterator[Dependant]:
    for one in dependant.dependencies:
        yield one
        yield from _below(one)
