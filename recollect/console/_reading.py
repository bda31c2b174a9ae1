"""One document: its text as searchers see it, its original, and what is known of it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from markupsafe import Markup

from recollect import documents
from recollect.app import App
from recollect.blobs import get_whole
from recollect.console import (
    _original,
    _rendering,
    _room,
    _show,
)
from recollect.console._documents import DOCUMENTS
from recollect.console._room import (
    LIVE,
    CurrentApp,
    Part,
    PathId,
    Reader,
    SignedInPage,
    Text,
    address,
    near,
    page,
)
from recollect.db import Tx
from recollect.documents import figures
from recollect.errors import (
    BadRequestError,
    NotFoundError,
    Permanent,
    Unavailable,
)
from recollect.ingest import remedies
from recollect.memories import extraction_queue, reading
from recollect.model import (
    Chunk,
    Connection,
    Document,
    DocumentId,
    Page,
    Status,
    StoredBlob,
    Tenant,
)
from recollect.search import hybrid
from recollect.search.ask import Answer, ask
from recollect.sync import connections

PART = 100
"""Chunks shown at once of a document."""
SOURCE = "source"
VIEWS: Mapping[str, str] = {"": "Read", SOURCE: "Source"}
WHOLE = 50_000
"""Characters shown of a text that is not cut into passages yet."""
MEMORIES = 50
"""Shown at once of a document."""
REVISIONS = 20
"""Shown at most of a document that a connection brought."""
MEMBERS = 50
"""Files shown at once of an archive."""
DONE: Mapping[str, str] = {
    "retry": "This document was queued to be processed again.",
    "edit": "Saved. New text is searchable as soon as it is processed.",
}
OPENED: Mapping[_original.Shape, str] = {
    "pdf": "frame-src 'self'",
    "audio": "media-src 'self'",
    "video": "media-src 'self'",
}
"""What the policy of a page with such a file allows besides."""

rooms = APIRouter(route_class=SignedInPage, include_in_schema=False)


@rooms.get("/console/documents/{id}")
def show(
    request: Request,
    id: PathId,
    tenant: Reader,
    app: CurrentApp,
    q: Text = "",
    chunk: Annotated[int | None, Query(ge=0)] = None,
    start: Annotated[int | None, Query(alias="from", ge=0)] = None,
    view: str = "",
    files: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
    done: str = "",
    part: Part = "",
) -> Response:
    """The text to read, or with `view` source as searchers see it, cut into chunks; from the part
    that holds `chunk`, or else the best place for `q`, whose words are marked.

    Of an archive also its files, from page `files` on.
    """
    q, view = q.strip(), SOURCE if view == SOURCE else ""
    with app.db.begin() as tx:
        document = documents.get(tx, tenant, id, with_text=True)
        chunks = documents.chunks(tx, tenant, document.id)
        known = reading.of_document(tx, tenant, document.id)
        blob = _blob(tx, tenant, document.id)
        held = _members(tx, tenant, document, files)
        archive = _archive(tx, tenant, document)
        source = _source(tx, tenant, document)
        revisions = (
            figures.revisions(tx, source.id, document.id, REVISIONS) if source is not None else []
        )
        dreaming = extraction_queue.state(tx, document.id) if app.llm is not None else None
        versions = documents.versions(tx, tenant, document.id)
    best = _best(app, tenant, document.id, q)
    found = [passage for hit in best.hits for passage in hit.chunks]
    beside = None if blob is None else _beside(app, document, blob)
    if chunk is None and start is None and found:
        chunk = found[0].position
    at = 0 if chunk is None else min(chunk, max(len(chunks) - 1, 0))
    first = (start or 0 if chunk is None else at) // PART * PART
    own = f"{DOCUMENTS}/{document.id}"
    mark = _show.marker(document.org_id, q)
    shape = beside.shape if beside else None
    whole = _original.bare(document.text or "") if shape == "pdf" else ""
    spot = partial(_original.spot, shape, whole=whole)
    values = {
        "document": document,
        "pieces": _pieces(document, blob, chunks, first, view, mark),
        "view": view,
        "views": {
            one: (name, address(own, q=q, view=one, chunk=chunk, **{"from": start}))
            for one, name in VIEWS.items()
        },
        "remedy": _rendering.inline(remedies.of(document.failure.code))
        if document.failure
        else None,
        "total": len(chunks),
        "original": beside,
        "opened": spot(chunks[at] if chunk is not None and chunks else None),
        "spot": spot,
        "most": _original.MOST,
        "held": held,
        "held_links": {}
        if held is None
        else {
            at: address(own, q=q, view=view, files=at) + "#files"
            for at in near(files, max(1, -(-held.total // MEMBERS)))
        },
        "archive": archive,
        "connection": source,
        "revisions": revisions,
        "memories": known[:MEMORIES],
        "remembered": len(known),
        "dreaming": dreaming,
        "versions": len(versions),
        "has_model": app.llm is not None,
        "snippets": _room.code(request, "getDocument", path={"id": document.id}),
        "parts": [
            (at, min(at + PART, len(chunks)), address(own, q=q, view=view, **{"from": at}))
            for at in (
                PART * (number - 1)
                for number in near(first // PART + 1, max(1, -(-len(chunks) // PART)))
            )
        ],
        "first": first,
        "q": q,
        "chosen": chunk,
        "whole": WHOLE,
        "best": [
            (one.position, place(document.id, q, one.position, view), _show.excerpt(mark(one.text)))
            for one in found
        ],
        "notice": DONE.get(done) or next(iter(best.warnings), None),
        "own": own,
    }
    response = page(request, "_document.html" if part == LIVE else "document.html", values)
    allowed = OPENED.get(beside.shape) if beside is not None and beside.shape else None
    if allowed:
        response.headers[_room.POLICY] = f"{_room.HEADERS[_room.POLICY]}; {allowed}"
    return response


@rooms.get("/console/documents/{id}/original")
def original(id: PathId, tenant: Reader, app: CurrentApp) -> Response:
    """The file as it was uploaded, to keep: a stranger's HTML would run if it were shown here."""
    _, blob, data = _file(app, tenant, id)
    name = quote(blob.name or "file", safe="")
    headers = {
        "content-disposition": f"attachment; filename*=UTF-8''{name}",
        _room.POLICY: _original.SEALED,
    }
    return Response(data, media_type="application/octet-stream", headers=headers)


@rooms.get("/console/documents/{id}/view")
def view(request: Request, id: PathId, tenant: Reader, app: CurrentApp) -> Response:
    """The file for the browser's own viewer: a picture, a PDF, sound or film by its own bytes, and
    nothing else."""
    document, blob, data = _file(app, tenant, id)
    type = _original.media_type(_original.shape(document.kind, blob), data)
    if type is None:
        raise NotFoundError(
            "File not found", "files of this kind are not shown; download it instead"
        )
    return _original.handed_over(data, type, request.headers.get("range"))


def _file(app: App, tenant: Tenant, id: str) -> tuple[Document, StoredBlob, bytes]:
    """An uploaded file with its document; raises NotFoundError."""
    with app.db.begin() as tx:
        document = documents.get(tx, tenant, id)
        blob = documents.file(tx, tenant, document.id)
    try:
        return document, blob, get_whole(app.blobs, blob.key)
    except Permanent as error:
        raise NotFoundError("File not found", str(error)) from error


def _beside(app: App, document: Document, blob: StoredBlob) -> _original.Original:
    """What of the file stands beside the text: nothing of one that says the same, that no viewer
    opens since it could not be read, or whose store is away."""
    shape = _original.shape(document.kind, blob)
    if shape != "text":
        is_unread = document.status is Status.FAILED and document.indexed_revision is None
        return _original.Original(blob, None if is_unread and shape != "picture" else shape)
    try:
        shown = _original.shown(blob, get_whole(app.blobs, blob.key))
    except (Permanent, Unavailable):
        return _original.Original(blob, None)
    return replace(shown, shape=None) if _original.says(shown, document.text or "") else shown


def _blob(tx: Tx, tenant: Tenant, id: DocumentId) -> StoredBlob | None:
    try:
        return documents.file(tx, tenant, id)
    except NotFoundError:
        return None


def _members(tx: Tx, tenant: Tenant, document: Document, number: int) -> Page[Document] | None:
    """A page of the files that came out of it; None for what is not an archive."""
    if document.members is None:
        return None
    return figures.members(tx, tenant, document.id, limit=MEMBERS, page=number)


def _archive(tx: Tx, tenant: Tenant, document: Document) -> Document | None:
    """The archive that it came out of, if the tenant sees that."""
    if document.archive_id is None:
        return None
    try:
        return documents.get(tx, tenant, document.archive_id)
    except NotFoundError:
        return None


def _source(tx: Tx, tenant: Tenant, document: Document) -> Connection | None:
    """The connection that brought it, if the tenant sees that."""
    if document.connection_id is None:
        return None
    try:
        return connections.get(tx, tenant, document.connection_id)
    except NotFoundError:
        return None


def _pieces(
    document: Document,
    blob: StoredBlob | None,
    chunks: Sequence[Chunk],
    first: int,
    view: str,
    mark: _rendering.Marker,
) -> list[tuple[Chunk | None, Markup]]:
    """A part of the chunks as they are shown; before there are any, the accepted text."""
    if not chunks and document.text and not document.indexed_revision:
        return [(None, _rendering.prose(document.text[:WHOLE], mark))]
    shown = chunks[first : first + PART]
    if view == SOURCE:
        return [(chunk, _rendering.prose(chunk.text, mark)) for chunk in shown]
    look = _rendering.look(document, blob)
    drawn = _rendering.drawn(document.text or "", chunks, first, first + PART, look, mark)
    return list(zip(shown, drawn, strict=True))


def _best(app: App, tenant: Tenant, id: DocumentId, q: str) -> Answer:
    """The chunks of a document that answer a query; none, with the reason, where it cannot be."""
    if not q:
        return Answer([], [])
    try:
        return ask(app, tenant, hybrid.Query(q, None), inside=id)
    except BadRequestError as error:
        return Answer([], [_room.sentence(error)])


def place(id: DocumentId, q: str, position: int | None, view: str = "") -> str:
    """Where a chunk stands in its document, with the query to mark; without one, the document."""
    if position is None:
        return address(f"{DOCUMENTS}/{id}", q=q, view=view)
    return f"{address(f'{DOCUMENTS}/{id}', q=q, view=view, chunk=position)}#chunk-{position}"
