"""What the pages follow: a stream that says when something on a page is worth another look.

It carries no content: the page asks for its changing piece again, as its session may see it. What
happens to documents is told by the database, over the one connection that this process listens on.
Connections, runs and deliveries are looked at once a second, each once for all who watch it.
"""

import asyncio
import weakref
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from recollect import documents, log
from recollect.app import App
from recollect.console._room import COOKIE, CurrentApp, CurrentKey, Reader, SignedInPage, Text
from recollect.errors import BadRequestError, ConflictError, RecollectError
from recollect.events import outbox, targets
from recollect.events.listener import Notice
from recollect.events.streams import Events, Heartbeat, Stream, status_for
from recollect.loop import tell_bug
from recollect.model import Tenant
from recollect.orgs import orgs
from recollect.sync import connections

LOG = log.get("console")
SPACING = timedelta(seconds=1)
"""At least so long between two words to one page, however much happens."""
LOOK = timedelta(seconds=1)
KINDS = ("documents", "connections", "webhooks")
rooms = APIRouter(route_class=SignedInPage, include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Topic:
    """What a page shows: all of a kind that the tenant sees, or one of it."""

    kind: str
    """one of `KINDS`"""
    id: str | None
    tenant: Tenant


class Looks:
    """Looks at topics without events, and wakes those who watch one that has changed."""

    def __init__(self, app: App, is_over: Callable[[], bool]) -> None:
        self._app = app
        self.is_over = is_over
        self._watching: dict[Topic, set[asyncio.Event]] = {}
        self._task: asyncio.Task[None] | None = None

    def watch(self, topic: Topic) -> asyncio.Event:
        """Set whenever it has changed, from the next look on."""
        changed = asyncio.Event()
        self._watching.setdefault(topic, set()).add(changed)
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return changed

    def leave(self, topic: Topic, changed: asyncio.Event) -> None:
        watching = self._watching.get(topic, set())
        watching.discard(changed)
        if not watching:
            self._watching.pop(topic, None)

    async def _run(self) -> None:
        """While someone watches. Who comes later is told of a change once too often, at most."""
        known: dict[Topic, str] = {}
        try:
            while self._watching:
                topics = list(self._watching)
                try:
                    now = await run_in_threadpool(_states, self._app, topics)
                except RecollectError as error:
                    LOG.warning("looks interrupted", error=str(error))
                    now = {}
                except Exception as error:  # noqa: BLE001 # who watches would hear nothing any more
                    tell_bug(LOG, error)
                    now = {}
                for topic, state in now.items():
                    if known.get(topic, state) != state:
                        for changed in self._watching.get(topic, ()):
                            changed.set()
                known = {topic: known[topic] for topic in topics if topic in known} | now
                if self.is_over():
                    for watching in self._watching.values():
                        for changed in watching:
                            changed.set()
                await asyncio.sleep(LOOK.total_seconds())
        finally:
            self._task = None


def _states(app: App, topics: Iterable[Topic]) -> dict[Topic, str]:
    """What stands for how each of them is now."""
    with app.db.begin() as tx:
        return {
            topic: (connections if topic.kind == "connections" else outbox).mark(
                tx, topic.tenant, topic.id
            )
            for topic in topics
        }


@rooms.get("/console/events")
async def stream(
    request: Request,
    tenant: Reader,
    key: CurrentKey,
    app: CurrentApp,
    of: Annotated[Text, Query(max_length=300)],
) -> Response:
    """`of`: `documents`, `connections`, `webhooks`, or one of them as `documents/ID`."""
    kind, _, id = of.partition("/")
    if kind not in KINDS:
        raise BadRequestError("of: " + ", ".join(KINDS) + ", or one of them with /ID")
    reach = None if tenant.tags is None else tuple(tenant.tags)  # a topic is a key of a dict
    topic = Topic(kind, id or None, Tenant(tenant.id, reach))
    await run_in_threadpool(_check, app, topic)
    events: Events = request.app.state.events
    place = events.streams.take(key.org.id, key.id)
    session = request.cookies[COOKIE]
    heartbeat = Heartbeat(app, lambda tx: orgs.signed_in(tx, session))
    if kind == "documents":
        told = _documents(heartbeat, topic, events, await events.subscribe())
    else:
        told = _looked_at(heartbeat, topic, _looks(request, app, events))
    headers = {"x-accel-buffering": "no"}  # proxies must not collect what should arrive at once
    response = StreamingResponse(told, media_type="text/event-stream", headers=headers)
    weakref.finalize(response, place.leave)  # also of one that was never begun
    return response


def _check(app: App, topic: Topic) -> None:
    """Raises NotFoundError for one that the tenant has not."""
    if topic.id is None:
        return
    with app.db.begin() as tx:
        match topic.kind:
            case "documents":
                try:
                    documents.get(tx, topic.tenant, topic.id)
                except ConflictError:
                    return  # a customId of several: the page says so
            case "connections":
                connections.get(tx, topic.tenant, topic.id)
            case _:
                targets.get(tx, topic.tenant, topic.id)


def _looks(request: Request, app: App, events: Events) -> Looks:
    """Those of this process."""
    state = request.app.state
    if not hasattr(state, "looks"):
        state.looks = Looks(app, lambda: events.is_over())
    return state.looks


async def _documents(
    heartbeat: Heartbeat, topic: Topic, events: Events, source: Stream
) -> AsyncGenerator[str]:
    try:
        yield _HELLO
        while True:
            try:
                notice = await asyncio.wait_for(source.get(), heartbeat.rest())
            except TimeoutError:
                if not await heartbeat.holds():
                    return
                if heartbeat.is_due():
                    yield _ALIVE
                continue
            # Where there is always something new, nothing else comes to look at the session.
            if notice is None or not await heartbeat.holds():
                return
            if not _shows(topic, notice):
                continue
            yield _CHANGE
            await asyncio.sleep(SPACING.total_seconds())
            # One look at the page shows all of it.
            again = False
            while not source.empty():
                notice = source.get_nowait()
                if notice is None:
                    return
                again = again or _shows(topic, notice)
            if again:
                yield _CHANGE
                await asyncio.sleep(SPACING.total_seconds())
    finally:
        events.leave(source)


def _shows(topic: Topic, notice: Notice) -> bool:
    """Whether the notice changes what a page of the topic shows."""
    is_of_it = topic.id in (None, notice.id)
    return is_of_it and status_for(notice, topic.tenant, ()) is not None


async def _looked_at(heartbeat: Heartbeat, topic: Topic, looks: Looks) -> AsyncGenerator[str]:
    changed = looks.watch(topic)
    try:
        yield _HELLO
        while True:
            try:
                await asyncio.wait_for(changed.wait(), heartbeat.rest())
            except TimeoutError:
                if not await heartbeat.holds():
                    return
                if heartbeat.is_due():
                    yield _ALIVE
                continue
            if looks.is_over() or not await heartbeat.holds():
                return
            changed.clear()
            yield _CHANGE
    finally:
        looks.leave(topic, changed)


_HELLO = "retry: 1000\n\nevent: hello\ndata:\n\n"
_CHANGE = "event: change\ndata:\n\n"
_ALIVE = ": alive\n\n"
