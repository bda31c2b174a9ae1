"""Changing one document from a form, through the same function as PATCH."""

import hashlib
import json
from dataclasses import replace

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse

from recollect import documents
from recollect.app import App
from recollect.console import _room
from recollect.console._adding import (
    METADATA_ROWS,
    FormDraft,
    adding_page,
    drafted,
    labels,
    path,
    title,
)
from recollect.console._documents import DOCUMENTS
from recollect.console._room import CurrentApp, PathId, SignedInPage, Writer, known_tags, page
from recollect.documents import DocumentChange
from recollect.errors import BadRequestError, ConflictError, NotFoundError, RequestError
from recollect.ingest import intake
from recollect.model import Document, Tenant, storable

EDITABLE = 200_000
"""Characters of a text that a form holds."""
CHANGED = (
    "Another person changed the document after you opened the form; nothing was saved. Copy what"
    " you typed, open the form again, and make your change there."
)
GONE = (
    "The document was deleted after you opened the form. What you typed is below: add it as a new"
    " document, or leave this page."
)

rooms = APIRouter(route_class=SignedInPage, include_in_schema=False)


@rooms.get("/console/documents/{id}/edit")
def edit_form(request: Request, id: PathId, tenant: Writer, app: CurrentApp) -> Response:
    document = _newest(app, tenant, id)
    return _form(request, app, tenant, document, _as_typed(document), None)


@rooms.post("/console/documents/{id}/edit")
async def edit(request: Request, id: PathId, tenant: Writer, app: CurrentApp) -> Response:
    # Read here because the framework's own reading would end a long text at 1 MB.
    async with request.form(max_fields=3_500, max_part_size=intake.CONTENT_LIMIT) as form:
        typed = drafted(form)
        opened = storable(str(form.get("version", "")))
        return await run_in_threadpool(_edit, request, app, tenant, id, typed, opened)


def _edit(
    request: Request, app: App, tenant: Tenant, id: str, typed: FormDraft, opened: str
) -> Response:
    try:
        document = _newest(app, tenant, id)
    except NotFoundError as error:
        if not typed.content.strip():
            raise
        gone = NotFoundError(error.message, GONE)
        return adding_page(request, app, tenant, typed, [("", gone)], [])

    def judge(now: Document) -> None:
        if opened != version(now):
            raise ConflictError("Conflict", CHANGED)

    try:
        judge(document)
        change = _change(app, tenant, document, typed)
        intake.change(app, tenant, document.id, change, judge=judge)
    except RequestError as error:
        return _form(request, app, tenant, document, typed, error, opened)
    return RedirectResponse(f"{DOCUMENTS}/{document.id}?done=edit", 303)


def _change(app: App, tenant: Tenant, document: Document, typed: FormDraft) -> DocumentChange:
    """What is not as it was; raises BadRequestError and PermissionDeniedError."""
    wanted = labels(tenant, typed.tag, typed.custom_id.strip(), typed.rows)
    if not wanted.tags:
        raise BadRequestError("tag: a document has at least one")
    before = document.metadata or {}
    kept = {name: value for name, value in before.items() if not _fits(value)}
    metadata = intake.flat(app, wanted.metadata)
    metadata = {**kept, **(metadata or {})}
    filepath, named = path(typed.filepath), title(typed.title)
    content = None
    if has_text(document):
        text = typed.content.replace("\r\n", "\n")
        if text.strip() != (document.text or "").replace("\r\n", "\n").strip():
            try:
                content = intake.content_of(app, intake.text(storable(text)))
            except ValueError as error:
                raise BadRequestError(f"content: {error}") from error
    change = DocumentChange(
        content=content,
        title=named if named != typed.opened_title else None,
        custom_id=wanted.custom_id if wanted.custom_id != document.custom_id else None,
        tags=wanted.tags if list(wanted.tags) != list(document.container_tags) else None,
        filepath=filepath if filepath and filepath != document.filepath else None,
    )
    if metadata == dict(before):
        return change
    return replace(change, metadata=metadata) if metadata else replace(change, clears={"metadata"})


def has_text(document: Document) -> bool:
    """Whether its content is a text of its own that a form can hold."""
    return (
        document.text is not None
        and document.url is None
        and document.connection_id is None
        and document.archive_id is None
        and document.source not in ("upload", "memories")
        and len(document.text) <= EDITABLE
    )


def version(document: Document) -> str:
    """Changes whenever what the form shows does."""
    shown = [document.container_tags, document.custom_id, document.filepath, document.metadata]
    labels = json.dumps(shown, sort_keys=True, ensure_ascii=False, default=dict)
    return f"{document.revision}.{hashlib.sha256(labels.encode(errors='replace')).hexdigest()}"


def _newest(app: App, tenant: Tenant, id: str) -> Document:
    with app.db.begin() as tx:
        return documents.get(tx, tenant, id, newest=True)


def _as_typed(document: Document) -> FormDraft:
    return FormDraft(
        content=(document.text or "") if has_text(document) else "",
        title=document.title or "",
        opened_title=document.title or "",
        tag=", ".join(document.container_tags),
        custom_id=document.custom_id or "",
        filepath=document.filepath or "",
        rows=[
            (name, *_typed(value))
            for name, value in (document.metadata or {}).items()
            if _fits(value)
        ],
    )


def _typed(value: object) -> tuple[str, str]:
    """The type and the value as the form has them."""
    match value:
        case bool():
            return "boolean", str(value).lower()
        case int() | float():
            return "number", json.dumps(value)
        case _:
            return "text", str(value)


def _form(
    request: Request,
    app: App,
    tenant: Tenant,
    document: Document,
    typed: FormDraft,
    error: RequestError | None,
    opened: str = "",
) -> Response:
    with app.db.begin() as tx:
        known = known_tags(tx, tenant)
    values = {
        "document": document,
        "own": f"{DOCUMENTS}/{document.id}",
        "draft": typed,
        "rows": [*typed.rows, *[("", "text", "")] * max(1, METADATA_ROWS - len(typed.rows))],
        "version": opened or version(document),
        "has_text": has_text(document),
        "own_tags": tenant.tags,
        "known": known,
        **_room.fault(error),
    }
    return page(request, "edit.html", values, error.status if error else 200)


def _fits(value: object) -> bool:
    """Whether a row of the form can hold it; lists cannot be typed there, and stay as they are."""
    return isinstance(value, str | bool | int | float)
