"""Turns before the queue: no organisation, and no key, takes all places of a process.

Requests run in threads, of which a process has forty, with twenty-four connections to the database.
An organisation has some of them at most; its further requests wait for their turn without a thread.
What asks a provider or a model may last long: of that only a few go at once, and the others are
told to come again.
"""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from datetime import timedelta
from functools import partial
from typing import Annotated

from fastapi import Depends, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from recollect.api import errors
from recollect.errors import RateLimitError, Unavailable
from recollect.model import Key

PER_ORG = 16
"""Requests of an organisation at work at once."""
PER_KEY = 12
"""… and of one key."""
UPLOADS = 6
"""… and of these, uploads: a bucket that hangs holds each for half a minute."""
UPLOADS_KEY = 4
"""… and of one key, whose line may be slow."""
DOWNLOADS = 12
"""Files that a process hands out at once, to those who have their addresses."""
DOWNLOADS_ORG = 6
"""… and of these, files of one organisation: each lasts until it is read."""
MOST_WAITING = 500
"""Requests of an organisation that wait; further ones are asked to come again."""
LONGEST = timedelta(seconds=30)
"""of a wait"""
ASKING = 12
"""Requests that ask a provider, or try a model, at once in a process."""
ASKING_ORG = 4
ASKING_KEY = 2


class RequestTurns:
    """The places of a process, taken by requests at work."""

    def __init__(self) -> None:
        self._places: dict[str, asyncio.Semaphore] = {}
        self._known = Counter[str]()

    def of(self, scope: Scope, key: Key) -> AbstractAsyncContextManager[None]:
        """A turn for a request, as its kind is. Raises Unavailable when none came in time."""
        return self.upload(key) if _sends_file(scope) else self.turn(key)

    @asynccontextmanager
    async def upload(self, key: Key) -> AsyncGenerator[None]:
        """`turn`, of which uploads leave some to other requests. Raises Unavailable."""
        async with (
            self._place(f"uploads of key {key.id}", UPLOADS_KEY),
            self._place(f"uploads of org {key.org.id}", UPLOADS),
            self.turn(key),
        ):
            yield

    @asynccontextmanager
    async def download(self, org: str) -> AsyncGenerator[None]:
        """Raises Unavailable when none came in time."""
        async with (
            self._place(f"downloads of org {org}", DOWNLOADS_ORG),
            self._place("downloads", DOWNLOADS),
        ):
            yield

    @asynccontextmanager
    async def turn(self, key: Key) -> AsyncGenerator[None]:
        """Raises Unavailable when none came in time."""
        async with (
            self._place(f"key {key.id}", PER_KEY),
            self._place(f"org {key.org.id}", PER_ORG),
        ):
            yield

    @asynccontextmanager
    async def _place(self, name: str, places: int) -> AsyncGenerator[None]:
        """First come, first served."""
        if self._known[name] >= MOST_WAITING + places:
            raise _full()
        place = self._places.setdefault(name, asyncio.Semaphore(places))
        self._known[name] += 1
        try:
            try:
                async with asyncio.timeout(LONGEST.total_seconds()):
                    await place.acquire()
            except TimeoutError as error:
                raise _full() from error
            try:
                yield
            finally:
                place.release()
        finally:
            self._known[name] -= 1
            if not self._known[name]:
                del self._known[name], self._places[name]


class InTurn:
    """ASGI middleware behind the edge, which knows the key. Those of a session, whose key the
    console looks up, take their turn there."""

    def __init__(self, inner: ASGIApp, turns: RequestTurns) -> None:
        self._inner = inner
        self._turns = turns

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        key: Key | None = scope.get("state", {}).get("key") if scope["type"] == "http" else None
        place: AbstractAsyncContextManager[None] = nullcontext()
        if key is None:
            if scope["type"] == "http" and (file := _FILE.match(_path(scope))):
                place = self._turns.download(file[1])
        elif _lasts(scope):
            scope["state"]["turn"] = partial(self._turns.turn, key)
        else:
            place = self._turns.of(scope, key)
        async with AsyncExitStack() as held:
            try:
                await held.enter_async_context(place)
            except Unavailable as error:
                await errors.unavailable(Request(scope), error)(scope, receive, send)
                return
            await self._inner(scope, receive, send)


AGAIN = timedelta(seconds=1)


def _full() -> Unavailable:
    return Unavailable("too many requests of this organisation wait", after=AGAIN)


_FILE = re.compile(r"/v3/files/([^/]*)")
"""The path of a file, which names its organisation."""
_WAITABLE = re.compile(r"/v3/documents/(?!counts$|processing$)[^/]+")
"""The path of one document; what else is below /v3/documents waits for nothing."""


def _path(scope: Scope) -> str:
    return scope["path"].removeprefix(scope.get("root_path", ""))


def _sends_file(scope: Scope) -> bool:
    kind = dict(scope["headers"]).get(b"content-type", b"")
    return kind.lower().startswith(b"multipart/form-data")


def _lasts(scope: Scope) -> bool:
    """Whether the request waits for something to happen. It takes its turn only for what it does
    meanwhile (`own_turn`); calls of an assistant come in once more, by themselves."""
    path = _path(scope)
    waits = _WAITABLE.fullmatch(path) is not None and b"wait=" in scope["query_string"]
    return path in ("/v3/documents/events", "/v4/answer", "/mcp") or (
        waits and scope["method"] == "GET"
    )


def own_turn(request: Request) -> AbstractAsyncContextManager[None]:
    """For the work of an endpoint that else waits. Raises Unavailable when none came in time."""
    turn: Callable[[], AbstractAsyncContextManager[None]] | None
    turn = request.scope.get("state", {}).get("turn")
    return nullcontext() if turn is None else turn()  # it has one for all that it does


class Asking:
    """Who asks a provider or a model now."""

    def __init__(self) -> None:
        self._now = Counter[str]()

    @asynccontextmanager
    async def place(self, org: str, key: str) -> AsyncGenerator[None]:
        """Raises RateLimitError when all places are taken."""
        names = {"all": ASKING, f"org {org}": ASKING_ORG, f"key {key}": ASKING_KEY}
        if any(self._now[name] >= most for name, most in names.items()):
            raise RateLimitError("Too many requests that ask a provider or a model", AGAIN)
        self._now.update(names.keys())
        try:
            yield
        finally:
            self._now.subtract(names.keys())
            self._now += Counter()  # forgets who has none


async def asking(request: Request) -> AsyncGenerator[None]:
    """A place among those that ask others, while the request lasts. Raises RateLimitError."""
    key: Key | None = request.scope.get("state", {}).get("key")
    places: Asking = request.app.state.asking
    async with places.place(key.org.id if key else "none", key.id if key else "none"):
        yield


AsksOthers = Annotated[None, Depends(asking)]
"""For endpoints that wait for an answer from elsewhere in their thread."""
