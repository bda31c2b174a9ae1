"""Turns before the queue: no organisation, and no key, takes all places of a process.

Requests run in threads, of which a process has forty, with twenty-four connections to the database.
An organisation has some of them at most; its further requests wait for their turn without a thread.
What asks a provider or a model may last long: of that only a few go at once, and the others are
told to come again.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
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
MOST_WAITING = 500
"""Requests of an organisation that wait; further ones are told to come again."""
LONGEST = timedelta(seconds=30)
"""of a wait"""
ASKING = 12
"""Requests that ask a provider, or try a model, at once in a process."""
ASKING_ORG = 4
ASKING_KEY = 2


class Turns:
    """ASGI middleware behind the edge, which knows the key."""

    def __init__(self, inner: ASGIApp) -> None:
        self._inner = inner
        self._places: dict[str, asyncio.Semaphore] = {}
        self._known = Counter[str]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        key: Key | None = scope.get("state", {}).get("key") if scope["type"] == "http" else None
        if key is None or _lasts(scope):
            await self._inner(scope, receive, send)
            return
        try:
            async with (
                self._turn(f"key {key.id}", PER_KEY),
                self._turn(f"org {key.org.id}", PER_ORG),
            ):
                await self._inner(scope, receive, send)
        except _Full:
            error = Unavailable("too many requests of this organisation wait", after=AGAIN)
            await errors.unavailable(Request(scope), error)(scope, receive, send)

    @asynccontextmanager
    async def _turn(self, name: str, places: int) -> AsyncGenerator[None]:
        """First come, first served. Raises _Full."""
        if self._known[name] >= MOST_WAITING + places:
            raise _Full
        place = self._places.setdefault(name, asyncio.Semaphore(places))
        self._known[name] += 1
        try:
            try:
                async with asyncio.timeout(LONGEST.total_seconds()):
                    await place.acquire()
            except TimeoutError as error:
                raise _Full from error
            try:
                yield
            finally:
                place.release()
        finally:
            self._known[name] -= 1
            if not self._known[name]:
                del self._known[name], self._places[name]


AGAIN = timedelta(seconds=1)


class _Full(Exception):
    """No turn came in time."""


def _lasts(scope: Scope) -> bool:
    """What waits for something to happen holds neither a thread nor a connection meanwhile."""
    path: str = scope["path"]
    if path.removeprefix(scope.get("root_path", "")).startswith("/ns/"):
        return False  # whatever an id there ends in
    # Calls of an assistant come in once more, by themselves.
    return b"wait=" in scope["query_string"] or path.endswith(("/events", "/mcp"))


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
