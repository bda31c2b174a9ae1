"""What happens to documents, handed to those who watch: one connection to the database and one
task per process, however many streams there are."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from weakref import WeakSet

from starlette.concurrency import run_in_threadpool

from recollect import log
from recollect.app import App
from recollect.db import Tx
from recollect.documents import BELOW
from recollect.errors import AuthenticationError, RateLimitError, Unavailable
from recollect.events.listener import Notice, watch
from recollect.model import DocumentId, Tenant

LOG = log.get("streams")
BACKLOG = 1_000
"""Notices that may wait for a slow reader."""
BEAT = timedelta(seconds=15)
"""Between two signs of life."""
LOOK = timedelta(seconds=3)
"""Between two looks at the key of a stream, which ends so long after it at most; and at a document
that someone waits for, should a notice get lost."""

STREAMS_OF_A_KEY, STREAMS = 20, 500
WAITS_OF_A_KEY, WAITS = 100, 1_000
"""Streams, and requests that wait for a document, at once: of one key, and of this process."""
FULL = timedelta(seconds=5)
"""When to ask again for a place that was not there."""

Stream = asyncio.Queue[Notice | None]


class StreamPlaces:
    """How many of a kind there may be at once, of one key and in all; for one event loop. An
    organisation has no more than are left for all others: alone, half of them."""

    def __init__(self, what: str, of_a_key: int, most: int) -> None:
        self._what, self._of_a_key, self._most = what, of_a_key, most
        self._keys = Counter[str]()
        self._orgs = Counter[str]()

    def take(self, org: str, key: str) -> "StreamPlace":
        """Raises RateLimitError when the key, or the organisation, has all of its own, Unavailable
        when all are taken."""
        if self._keys[key] >= self._of_a_key:
            told = f"Too many requests: this key has {self._of_a_key} {self._what}, the most"
            raise RateLimitError(told, FULL)
        left = self._most - self._orgs.total()
        if not left:
            raise Unavailable(f"all {self._most} {self._what} are taken", after=FULL)
        if self._orgs[org] >= left:
            told = f"Too many requests: this organisation has {self._orgs[org]} {self._what}"
            raise RateLimitError(f"{told}, and others need the {left} that are left", FULL)
        self._keys[key] += 1
        self._orgs[org] += 1
        return StreamPlace(self, org, key)

    def give_back(self, org: str, key: str) -> None:
        self._keys[key] -= 1
        self._orgs[org] -= 1
        self._keys += Counter()  # forgets who has none
        self._orgs += Counter()


class StreamPlace:
    """One of them, until it is left, which may be said twice."""

    def __init__(self, places: StreamPlaces, org: str, key: str) -> None:
        self._places, self._org, self._key = places, org, key
        self._held = True

    def leave(self) -> None:
        if self._held:
            self._held = False
            self._places.give_back(self._org, self._key)

    def __del__(self) -> None:
        self.leave()  # whoever had it was given up before it came to that


class Events:
    """Hands the notices of the database to the streams of this process."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.is_over: Callable[[], bool] = lambda: False
        """whether the process is about to end: a second later all streams do, which it waits for"""
        self.streams = StreamPlaces("streams", STREAMS_OF_A_KEY, STREAMS)
        self.waits = StreamPlaces("requests that wait", WAITS_OF_A_KEY, WAITS)
        self._streams = WeakSet[Stream]()
        """a stream whose reader was given up before it began is forgotten with it"""
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._task: asyncio.Task[None] | None = None
        self._listening = asyncio.Event()

    async def subscribe(self) -> Stream:
        """From the return on, every notice is put into the queue; None ends it."""
        stream = Stream(BACKLOG)
        self._streams.add(stream)
        await self._listen()
        return stream

    def leave(self, stream: Stream) -> None:
        self._streams.discard(stream)

    @asynccontextmanager
    async def of(self, document: DocumentId) -> AsyncGenerator[asyncio.Event]:
        """Set at each notice of the document from now on, and when notices do not arrive any more:
        so look now and then as well."""
        told = asyncio.Event()
        self._waiting.setdefault(document, set()).add(told)
        try:
            await self._listen()
            yield told
        finally:
            self._waiting[document].discard(told)
            if not self._waiting[document]:
                del self._waiting[document]

    async def _listen(self) -> None:
        if self._task is None:
            self._listening = asyncio.Event()
            self._task = asyncio.create_task(self._run(self._listening))
        await self._listening.wait()

    async def _run(self, listening: asyncio.Event) -> None:
        """While there are streams or waits; the last of them ends the connection as well."""
        try:
            async with watch(self._url) as told:
                listening.set()
                renewed = time.monotonic()
                while (self._streams or self._waiting) and not self.is_over():
                    for notice in await told.next(timedelta(seconds=1)):
                        self._hand_out(notice)
                    if time.monotonic() - renewed > BEAT.total_seconds():
                        await told.renew()
                        renewed = time.monotonic()
                if not self._streams and not self._waiting:
                    self._task = None  # who comes while the connection is closed gets a new one
        except Unavailable as error:
            LOG.warning("events interrupted", error=str(error))
        finally:
            if self._task is asyncio.current_task():
                self._task = None
                for stream in self._streams:
                    _end(stream)
                self._streams.clear()
                for told in self._waiting.values():
                    for one in told:
                        one.set()
            listening.set()

    def _hand_out(self, notice: Notice) -> None:
        for told in self._waiting.get(notice.id, ()):
            told.set()
        for stream in list(self._streams):
            try:
                stream.put_nowait(notice)
            except asyncio.QueueFull:
                self.leave(stream)
                _end(stream)


def _end(stream: Stream) -> None:
    if stream.full():
        stream.get_nowait()
    stream.put_nowait(None)


def status_for(notice: Notice, tenant: Tenant, tags: Sequence[str]) -> str | None:
    """The status of the document for the tenant, who asked for these tags; None: it is not told.
    One that has left them is `deleted`."""
    sees = _concerns(notice, tenant, tags)
    if notice.before is None:
        return notice.status if sees else None
    saw = _concerns(replace(notice, tags=notice.before), tenant, tags)
    if saw == sees:
        return None
    return notice.status if sees else "deleted"


def _concerns(notice: Notice, tenant: Tenant, tags: Sequence[str]) -> bool:
    """Whether the tenant may see it and asked for it; in doubt, it may not."""
    if notice.org_id != tenant.id:
        return False
    if notice.tags is None:
        return tenant.tags is None and not tags
    carried = notice.tags
    if tenant.tags is not None and not set(tenant.tags) & set(carried):
        return False
    return all(
        any(name.startswith(tag[:-1]) for name in carried)
        if tag.endswith(BELOW)
        else tag in carried
        for tag in tags
    )


class Heartbeat:
    """When a stream gives a sign of life, and when it looks whether what opened it still does."""

    def __init__(self, app: App, opens: Callable[[Tx], object]) -> None:
        """`opens` raises AuthenticationError once the key, or the session, is no longer valid."""
        self._app = app
        self._opens = opens
        self._looked = self._alive = time.monotonic()

    def rest(self) -> float:
        """Seconds until something is due."""
        due = min(self._looked + LOOK.total_seconds(), self._alive + BEAT.total_seconds())
        return max(0.01, due - time.monotonic())

    async def holds(self) -> bool:
        """Whether the stream may go on, as far as the last look tells, which is not older than
        `LOOK`."""
        if time.monotonic() - self._looked < LOOK.total_seconds():
            return True
        self._looked = time.monotonic()
        return await run_in_threadpool(self._look)

    def is_due(self) -> bool:
        """Whether it is time for a sign of life; then the next one is counted from now."""
        if time.monotonic() - self._alive < BEAT.total_seconds():
            return False
        self._alive = time.monotonic()
        return True

    def _look(self) -> bool:
        try:
            with self._app.db.begin() as tx:
                self._opens(tx)
        except AuthenticationError:
            return False
        except Unavailable:
            return True  # the stream ends by itself when the database stays away
        return True
