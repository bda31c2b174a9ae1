"""Memories: finding, adding, correcting and forgetting them; and the profile of a tag."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Form, Query, Request, Response
from fastapi.responses import RedirectResponse

from recollect.app import App
from recollect.console import _room, _show
from recollect.console._reading import place
from recollect.console._room import (
    CurrentApp,
    PathId,
    Reader,
    SignedInPage,
    Text,
    Writer,
    address,
    known_tags,
    near,
    page,
)
from recollect.console._searching import FITS, REMOTE
from recollect.documents import figures
from recollect.errors import BadRequestError, RequestError
from recollect.memories import memories, reading, telling
from recollect.memories.records import Correction, Fact, MemoryQuery, MemoryTarget
from recollect.memories.telling import MEMORY_LENGTH, REASON_LENGTH
from recollect.model import Tenant
from recollect.orgs import settings, tags
from recollect.search.ask import begin

MEMORIES = "/console/memories"
ROWS = 50
FOUND = 50
LONGEST_QUERY = 10_000
"""characters"""
NOTICES = {
    "added": "Added. It can be found at once.",
    "corrected": "Corrected. The version before is kept below.",
    "same": "It says that already.",
    "forgotten": "Forgotten. Searches do not find it any more.",
}
BLANK: Mapping[str, str] = {"content": "", "tag": "", "static": "", "expires": "", "reason": ""}

rooms = APIRouter(route_class=SignedInPage, include_in_schema=False)


@rooms.get(MEMORIES)
def find(
    request: Request,
    tenant: Reader,
    app: CurrentApp,
    q: Text = "",
    tag: Text = "",
    forgotten: bool = False,
    number: Annotated[int, Query(alias="page", ge=1, le=1_000_000)] = 1,
) -> Response:
    try:
        return _list(request, app, tenant, q.strip(), tag.strip(), number, forgotten=forgotten)
    except RequestError as error:
        return _list(request, app, tenant, "", "", 1, typed={**BLANK, "tag": tag}, error=error)


@rooms.post(MEMORIES)
def add(
    request: Request,
    tenant: Writer,
    app: CurrentApp,
    content: Annotated[Text, Form()] = "",
    tag: Annotated[Text, Form()] = "",
    static: Annotated[str, Form()] = "",
    expires: Annotated[Text, Form()] = "",
    reason: Annotated[Text, Form()] = "",
) -> Response:
    typed = {"content": content, "tag": tag, "static": static, "expires": expires, "reason": reason}
    try:
        [named] = tags.asked(tenant, tag.strip() or None, None, default=True, field="tag")
        fact = Fact(
            text=_content(content),
            is_static=static == "on",
            forget_after=_room.until(app, expires),
            forget_reason=_reason(reason),
        )
    except RequestError as error:
        return _list(request, app, tenant, "", "", 1, typed=typed, error=error)
    _, [made] = telling.add(app, tenant, named, [fact])
    return RedirectResponse(f"{MEMORIES}/{made.id}?done=added", 303)


@rooms.get(MEMORIES + "/{id}")
def look(request: Request, id: PathId, tenant: Reader, app: CurrentApp, done: str = "") -> Response:
    return _page(request, app, tenant, id, notice=NOTICES.get(done))


@rooms.post(MEMORIES + "/{id}/correct")
def correct(
    request: Request,
    id: PathId,
    tenant: Writer,
    app: CurrentApp,
    content: Annotated[Text, Form()] = "",
    expires: Annotated[Text, Form()] = "",
) -> Response:
    """Adds a version. The expiry that the form showed, or an empty one, says what is to hold."""
    with app.db.begin() as tx:
        known = reading.get(tx, tenant, id)
    try:
        text = _content(content)
        sets_expiry = expires.strip() != _written(known.forget_after)
        until = _room.until(app, expires) if sets_expiry else None
        if text == known.content and not sets_expiry:
            return RedirectResponse(f"{MEMORIES}/{known.id}?done=same", 303)
        correction = Correction(text, sets_expiry=sets_expiry, forget_after=until)
        made = telling.correct(app, tenant, known.tag, MemoryTarget(known.id), correction)
    except RequestError as error:
        typed = {"content": content, "expires": expires, "reason": ""}
        return _page(request, app, tenant, id, typed=typed, error=error)
    return RedirectResponse(f"{MEMORIES}/{made.id}?done=corrected", 303)


@rooms.post(MEMORIES + "/{id}/forget")
def forget(
    request: Request,
    id: PathId,
    tenant: Writer,
    app: CurrentApp,
    reason: Annotated[Text, Form()] = "",
) -> Response:
    with app.db.begin() as tx:
        known = reading.get(tx, tenant, id)
    try:
        why = _reason(reason)
        target = MemoryTarget(known.id)
        gone = app.db.write(lambda tx: memories.forget(tx, tenant, known.tag, target, why))
    except RequestError as error:
        return _page(request, app, tenant, id, typed={"reason": reason}, error=error)
    return RedirectResponse(f"{MEMORIES}/{gone.id}?done=forgotten", 303)


@rooms.get("/console/tags/profile")
def profile(request: Request, tenant: Reader, app: CurrentApp, name: Text) -> Response:
    """What is known under a tag, as an assistant gets it."""
    with app.db.begin() as tx:
        tag = tags.get(tx, tenant, name).tag
        buckets = settings.buckets_of(tx, tenant.id, tag.name)
        known = reading.profile(tx, tenant, tag.name, None, [one["key"] for one in buckets])
    sections = [
        ("Lasting", "Facts that stay true in the long run", known.static),
        ("Current", "The others, those that changed last first", known.dynamic),
        *((one["key"], one.get("description") or "", known.buckets[one["key"]]) for one in buckets),
    ]
    values = {
        "tag": tag,
        "sections": sections,
        "snippets": _room.code(request, "getProfile", {"containerTag": tag.name}),
    }
    return page(request, "profile.html", values)


def _list(
    request: Request,
    app: App,
    tenant: Tenant,
    q: str,
    tag: str,
    number: int,
    *,
    forgotten: bool = False,
    typed: Mapping[str, str] | None = None,
    error: RequestError | None = None,
) -> Response:
    """With a query what answers it; else those that changed last. Raises RequestError."""
    named = tags.asked(tenant, tag or None, None, default=False, prefixes=True, field="tag")
    query = MemoryQuery(
        any_of=named, forgotten=forgotten, limit=FOUND if q else ROWS, page=1 if q else number
    )
    rows, total, cut = _answering(app, tenant, q, query) if q else _last_changed(app, tenant, query)
    with app.db.begin() as tx:
        known = known_tags(tx, tenant)
    last = 1 if q else max(1, -(-total // ROWS))
    chosen = {"tag": tag, "forgotten": "true" if forgotten else ""}
    values = {
        "q": q,
        "tag": tag,
        "forgotten": forgotten,
        "rows": rows,
        "total": total,
        "cut": cut,
        "number": number,
        "last": last,
        "links": {at: address(MEMORIES, **chosen, page=at) for at in near(number, last)},
        "known": known,
        "own_tags": tenant.tags,
        "typed": typed or {**BLANK, "tag": tag},
        **_room.fault(error),
        "most_characters": MEMORY_LENGTH,
        "default_tag": tenant.tags[0] if tenant.tags else tags.DEFAULT,
        "has_model": app.llm is not None,
        "snippets": _room.code(request, "listMemories", {"containerTags": named, "limit": ROWS})
        if named and not q
        else {},
    }
    return page(request, "memories.html", values, error.status if error else 200)


def _answering(
    app: App, tenant: Tenant, q: str, query: MemoryQuery
) -> tuple[list[dict[str, object]], int, bool]:
    if len(q) > LONGEST_QUERY:
        raise BadRequestError(f"query: at most {LONGEST_QUERY:,} characters")
    asked = begin(app, q, rerank=False, rewrite=False)
    with app.db.begin() as tx:
        found = asked.memories(tx, tenant, query, REMOTE)
    mark = _show.marker(tenant.id, q)
    rows: list[dict[str, object]] = [
        {"one": it.memory, "pieces": mark(it.memory.content), "is_weak": it.similarity < FITS}
        for it in found
    ]
    return rows, len(rows), False


def _last_changed(
    app: App, tenant: Tenant, query: MemoryQuery
) -> tuple[list[dict[str, object]], int, bool]:
    with app.db.begin() as tx:
        found, cut = reading.browse(tx, tenant, query, most=figures.LOOKED_AT)
    rows: list[dict[str, object]] = [
        {"one": one, "pieces": [(one.content, False)], "is_weak": False} for one in found.items
    ]
    return rows, found.total, cut


def _page(
    request: Request,
    app: App,
    tenant: Tenant,
    id: str,
    *,
    typed: Mapping[str, str] | None = None,
    error: RequestError | None = None,
    notice: str | None = None,
) -> Response:
    with app.db.begin() as tx:
        one = reading.get(tx, tenant, id)
        versions = reading.history(tx, tenant, [one.id])[one.id]
        sources = reading.sources(tx, tenant, [one.id])[one.id]
        evidence = reading.evidence(tx, tenant, [one.id])[one.id]
        beside = reading.neighbours(tx, tenant, [one.id])[one.id]
    names = {document.id: document for document in sources}
    shown = {"content": one.content, "expires": _written(one.forget_after), "reason": ""}
    values = {
        "one": one,
        "versions": versions,
        # What another key alone sees is counted, not shown.
        "evidence": [
            (names[it.document_id], it, place(it.document_id, "", it.position or 0))
            for it in evidence
            if it.document_id in names
        ],
        "elsewhere": len(set(one.sources) - names.keys()),
        "related": [it for it in beside if it.relation != "updates"],
        "typed": {**shown, **(typed or {})},
        **_room.fault(error),
        "notice": notice,
        "most_characters": MEMORY_LENGTH,
        "most_reason": REASON_LENGTH,
    }
    return page(request, "memory.html", values, error.status if error else 200)


def _content(written: str) -> str:
    text = written.replace("\r\n", "\n").strip()
    if not text:
        raise BadRequestError("content: write what to remember")
    if len(text) > MEMORY_LENGTH:
        raise BadRequestError(f"content: at most {MEMORY_LENGTH:,} characters")
    return text


def _reason(written: str) -> str | None:
    text = written.strip()
    if len(text) > REASON_LENGTH:
        raise BadRequestError(f"reason: at most {REASON_LENGTH:,} characters")
    return text or None


def _written(moment: datetime | None) -> str:
    return "" if moment is None else _show.iso(moment)
