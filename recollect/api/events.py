"""GET /v3/documents/events: what happens to documents, told as it happens.

A stream that falls behind, and every stream when the database goes away, ends: the client comes
back with `Last-Event-ID`, and is told the state of what changed meanwhile.
"""

import asyncio
import json
import re
import time
import weakref
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from recollect import db, documents
from recollect.api.deps import ApiRoute, CurrentApp, CurrentKey, Reader, effective_tags
from recollect.api.document_schemas import status_word
from recollect.api.turns import own_turn
from recollect.app import App
from recollect.documents import DocumentQuery
from recollect.events.streams import BACKLOG, Events, Heartbeat, Stream, status_for
from recollect.model import Document, Key, Tenant
from recollect.orgs import orgs

router = APIRouter(tags=["documents"], route_class=ApiRoute)
MARGIN = timedelta(minutes=2)
"""How far before the last event one who comes back is told of: a change may commit that late."""
LONGEST_GAP = timedelta(days=1)
_TOLD = (
    "retry: 1000\n\n: listening\n\nid: 1795221239876\n\nid: 1795221240123\nevent: document\n"
    'data: {"id": "4Oy2FocdV4YJngvC3JSg82", "status": "processing",'
    ' "processingStage": "embedding", "type": "text"}\n\n'
)


@router.get(
    "/v3/documents/events",
    summary="Stream events",
    operation_id="streamEvents",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "Server-sent events. `document`: {id, status, processingStage, type};"
            " status is also `deleted`. `gap`: some events may be left out, or documents are"
            " deleted; list them again.",
            "content": {"text/event-stream": {"schema": {"type": "string"}, "example": _TOLD}},
        }
    },
)
async def stream(
    request: Request,
    tenant: Reader,
    key: CurrentKey,
    app: CurrentApp,
    container_tags: Annotated[
        str | None, Query(alias="containerTags", description="Separated by commas; all of them.")
    ] = None,
    last_event_id: Annotated[str | None, Header(description="Id of the last event seen.")] = None,
) -> StreamingResponse:
    """An event for every change of status or stage, from now on or after `Last-Event-ID`."""
    names = [name for name in (container_tags or "").split(",") if name]
    tags = effective_tags(tenant, None, names, default=False, prefixes=True)
    events: Events = request.app.state.events
    # Ours are milliseconds; what is none of ours is as good as absent.
    known = re.fullmatch(r"[0-9]{1,15}", last_event_id or "")
    since = int(known[0]) if known else None
    place = events.streams.take(key.org.id, key.id)
    source = await events.subscribe()
    told = _told(request, app, events, source, key, tenant, tags, since)
    # Proxies must not collect what should arrive at once.
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    response = StreamingResponse(told, media_type="text/event-stream", headers=headers)
    weakref.finalize(response, place.leave)  # also of one that was never begun
    return response


async def _told(
    request: Request,
    app: App,
    events: Events,
    source: Stream,
    key: Key,
    tenant: Tenant,
    tags: list[str],
    since: int | None,
) -> AsyncGenerator[str]:
    try:
        yield "retry: 1000\n\n: listening\n\n"
        async with own_turn(request):
            now, missed = await run_in_threadpool(_missed, app, tenant, tags, since)
        begun = time.monotonic()
        for event in missed:
            yield event
        # Who is cut off before the first event, or long after one, knows when that was.
        yield f"id: {now}\n\n"
        heartbeat = Heartbeat(app, lambda tx: orgs.key(tx, key.id))
        words = app.config.status_words
        while True:
            notice, came = None, True
            try:
                notice = await asyncio.wait_for(source.get(), heartbeat.rest())
            except TimeoutError:
                came = False
            if (came and notice is None) or not await heartbeat.holds():
                return
            status = None if notice is None else status_for(notice, tenant, tags)
            if notice is not None and status is not None:
                yield _event(notice.id, status, notice.stage, notice.kind, notice.at, words)
            elif heartbeat.is_due():
                yield f": alive\nid: {now + int((time.monotonic() - begun) * 1000)}\n\n"
    finally:
        events.leave(source)


def _missed(app: App, tenant: Tenant, tags: list[str], since: int | None) -> tuple[int, list[str]]:
    """The database's clock in milliseconds, and the state of what changed since then, oldest
    first; behind a `gap` if that may not be all."""
    with app.db.begin() as tx:
        now = int(db.now(tx).timestamp() * 1000)
        if since is None:
            return now, []
        passed = timedelta(milliseconds=now - since)
        gap = max(passed, timedelta())
        query = DocumentQuery(
            tags=tags,
            touched_within=min(gap, LONGEST_GAP) + MARGIN,
            sort="updated_at",
            limit=BACKLOG,
        )
        page = documents.find(tx, tenant, query)
        # What left the tags that a stream is limited to is noted nowhere.
        limited = bool(tags) or tenant.tags is not None
        lost = limited or documents.deleted_within(tx, tenant.id, gap + MARGIN)
    # An id from ahead: the database's clock was set back, and we cannot tell how long ago.
    lost = lost or passed < timedelta()
    more = lost or page.total > len(page.items) or gap > LONGEST_GAP
    told = [_state(document, app.config.status_words) for document in reversed(page.items)]
    return now, ["event: gap\ndata: {}\n\n", *told] if more else told


def _state(document: Document, words: str) -> str:
    at = int(document.updated_at.timestamp() * 1000)
    return _event(document.id, document.status, document.stage, document.kind, at, words)


def _event(id: str, status: str, stage: str | None, kind: str, at: int, words: str) -> str:
    shown = status_word(status, stage, words)
    data: dict[str, Any] = {"id": id, "status": shown, "processingStage": stage, "type": kind}
    return f"id: {at}\nevent: document\ndata: {json.dumps(data)}\n\n"
