"""The console: what a person sees of the service, as pages made on the server.

Each room is a function that asks the nouns and fills a template. Without JavaScript everything
works; with it, what is unfinished is refreshed, files can be dropped, and code can be copied.
"""

import dataclasses
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Form, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse
from fastapi.staticfiles import StaticFiles
from starlette.background import BackgroundTask
from starlette.datastructures import FormData, UploadFile

from recollect import documents, extract
from recollect.app import App
from recollect.console import (
    _adding,
    _audit,
    _connections,
    _filters,
    _keys,
    _live,
    _original,
    _reference,
    _room,
    _settings,
    _show,
    _webhooks,
)
from recollect.console._room import (
    COOKIE,
    HOME,
    LIVE,
    LOGIN,
    CurrentApp,
    CurrentKey,
    Part,
    PathId,
    PublicPage,
    Reader,
    SignedInPage,
    Text,
    Writer,
    address,
    inside,
    known_tags,
    near,
    page,
)
from recollect.db import Tx
from recollect.documents import figures
from recollect.documents.filters import parse as parse_filter
from recollect.errors import (
    AuthenticationError,
    BadRequestError,
    ConflictError,
    NotFoundError,
    Permanent,
    RequestError,
    Unavailable,
)
from recollect.ingest import intake
from recollect.ingest.intake import Sent
from recollect.memories import extraction_queue, memories
from recollect.model import (
    Chunk,
    Connection,
    Document,
    DocumentId,
    Hit,
    HitChunk,
    OrgId,
    Page,
    Status,
    StoredBlob,
    Tenant,
)
from recollect.orgs import orgs, tags
from recollect.search import hybrid, ranking
from recollect.search.ask import Answer, ask
from recollect.sync import connections

FAILURES = 100
"""How many of the last failures the overview groups."""
PART = 100
"""Chunks shown at once of a document."""
WHOLE = 50_000
"""Characters shown of a text that is not cut into chunks yet."""
COUNTED = 10_000
"""Documents of the last hour that are counted at most."""
MEMORIES = 50
"""Shown at once of a document."""
REVISIONS = 20
"""Shown at most of a document that a connection brought."""
MEMBERS = 50
"""Files shown at once of an archive."""
RETRIED = 1_000
"""Failed documents that one transaction queues again."""
SIZES = (25, 50, 100)
KINDS = ("text", "webpage", "pdf", "image", "audio", "video", "github_markdown", "notion_doc")
"""Types that the field offers; it takes any."""
BODY_OF_LOGIN = 4_096
"""bytes"""
LONGEST_QUERY = 10_000
"""characters"""
METADATA_ROWS = 3
OPENED: Mapping[_original.Shape, str] = {
    "pdf": "frame-src 'self'",
    "audio": "media-src 'self'",
    "video": "media-src 'self'",
}
"""What the policy of a page with such a file allows besides."""
DOCUMENTS = "/console/documents"
NOTICES = {
    "retry": "queued to be processed again",
    "delete": "deleted for good",
}

Ids = Annotated[list[Text] | None, Query(max_length=1_000)]


class Files(StaticFiles):
    """Style, script and icon; browsers ask each time whether they changed."""

    def file_response(self, *args: object, **more: object) -> Response:
        response = super().file_response(*args, **more)  # pyright: ignore[reportArgumentType]
        policy = _room.HEADERS[_room.POLICY]
        response.headers.update({"cache-control": "no-cache", _room.POLICY: policy})
        return response


static = Files(directory=Path(__file__).with_name("static"))
doors = APIRouter(route_class=PublicPage, include_in_schema=False)
rooms = APIRouter(route_class=SignedInPage, include_in_schema=False)


# --- signing in --------------------------------------------------------------------------------


@doors.get(LOGIN)
def login(request: Request, next: Text = HOME) -> Response:
    if _room.visitor(request) is not None:
        return RedirectResponse(inside(next), 303)
    return _foreseeing(request, page(request, "login.html", {"next": inside(next), "error": None}))


@doors.post(LOGIN, max_body_size=BODY_OF_LOGIN)
def sign_in(
    request: Request,
    app: CurrentApp,
    key: Annotated[str, Form()] = "",
    next: Annotated[Text, Form()] = HOME,
) -> Response:
    secret = key.strip()
    try:
        if not secret or not orgs.well_formed(secret):
            raise AuthenticationError
        with app.db.begin() as tx:
            token = orgs.sign_in(tx, orgs.authenticate(tx, secret).id)
    except AuthenticationError:
        request.app.state.guesses.wrong(request.state.address)
        with app.db.begin() as tx:
            orgs.note_wrong(tx, secret)
        error = "This key opens nothing: it is mistyped, revoked or expired."
        return page(request, "login.html", {"next": inside(next), "error": error}, 401)
    response = RedirectResponse(inside(next), 303)
    response.set_cookie(
        COOKIE,
        token,
        max_age=int(orgs.SESSION.total_seconds()),
        path=HOME,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return response


@doors.get("/console/session")
def session(request: Request) -> Response:
    """204 when signed in. A link from another site arrives without the cookie; the login page
    asks here, from our own, and goes on by itself."""
    return Response(status_code=200 if _room.visitor(request) is None else 204)


@rooms.post("/console/logout")
def sign_out(
    request: Request, app: CurrentApp, everywhere: Annotated[bool, Form()] = False
) -> Response:
    """`everywhere`: all sessions of the key end, in other browsers, too."""
    with app.db.begin() as tx:
        orgs.sign_out(tx, request.cookies[COOKIE], everywhere=everywhere)
    response = RedirectResponse(LOGIN, 303)
    response.delete_cookie(COOKIE, path=HOME, httponly=True, samesite="strict")
    return response


# --- overview ----------------------------------------------------------------------------------


@rooms.get(HOME)
@rooms.get(HOME + "/")
def overview(
    request: Request, tenant: Reader, key: CurrentKey, app: CurrentApp, part: Part = ""
) -> Response:
    with app.db.begin() as tx:
        counts, total = figures.by_status(tx, tenant)
        oldest = figures.longest_waiting(tx, tenant)
        failed = figures.failures(tx, tenant, FAILURES) if counts[Status.FAILED].number else []
        chunks = figures.chunks(tx, tenant)
        finished = figures.finished_lately(tx, tenant, COUNTED)
        stored = figures.database(tx, tenant.id) if _room.may_tend(key) else None
    values = {
        "counts": counts,
        "total": total,
        "chunks": chunks,
        "finished": finished,
        "counted": COUNTED,
        "oldest": oldest,
        "failures": _by_code(failed),
        "looked_at": FAILURES,
        "reached": figures.LOOKED_AT,
        "stored": stored,
    }
    response = page(request, "_overview.html" if part == LIVE else "overview.html", values)
    return _foreseeing(request, response)


def _foreseeing(request: Request, response: Response) -> Response:
    """The answer, and behind it what takes a second of a process once: the OpenAPI document, of
    which pages make their code. Whoever came in by this page looks at one of those next."""
    if request.app.openapi_schema is None:
        response.background = BackgroundTask(request.app.openapi)
    return response


def _by_code(failed: Sequence[Document]) -> list[tuple[str, list[Document]]]:
    """Failed documents by error code, the newest failure first in each and among all."""
    groups: dict[str, list[Document]] = {}
    for document in failed:
        if document.failure is not None:
            groups.setdefault(document.failure.code, []).append(document)
    return list(groups.items())


# --- documents ---------------------------------------------------------------------------------


@rooms.get(DOCUMENTS)
def find(
    request: Request,
    tenant: Reader,
    app: CurrentApp,
    tag: Text = "",
    status: str = "",
    kind: Annotated[Text, Query(alias="type", max_length=100)] = "",
    size: int = SIZES[0],
    number: Annotated[int, Query(alias="page", ge=1, le=1_000_000)] = 1,
    done: str = "",
    n: int = 0,
    part: Part = "",
) -> Response:
    asked = figures.TableQuery(
        tag=tag.strip(),
        status=Status(status) if status in list(Status) else None,
        kind=kind.strip(),
        limit=size if size in SIZES else SIZES[0],
        page=number,
    )
    with app.db.begin() as tx:
        found = figures.find(tx, tenant, asked)
        known = known_tags(tx, tenant)
    last = max(1, -(-found.total.number // found.limit))
    chosen = {"tag": tag, "status": status, "type": kind, "size": found.limit}
    values = {
        "found": found,
        "statuses": list(Status),
        "reached": figures.LOOKED_AT,
        "tag": tag,
        "status": status,
        "kind": kind,
        "kinds": KINDS,
        "sizes": SIZES,
        "own_tags": tenant.tags,
        "known": known,
        "notice": f"{_show.counted(n, 'document')} {NOTICES[done]}." if done in NOTICES else None,
        "last": last,
        "links": {at: address(DOCUMENTS, **chosen, page=at) for at in near(number, last)},
        "back": address(DOCUMENTS, **chosen, page=number),
        "snippets": {}
        if asked.kind  # which the API does not list by
        else _room.code(request, "listDocuments", _listing(asked)),
    }
    return page(request, "_documents.html" if part == LIVE else "documents.html", values)


def _listing(asked: figures.TableQuery) -> dict[str, object]:
    """The table as the body of `POST /v3/documents/list`."""
    body: dict[str, object] = {"limit": asked.limit, "page": asked.page}
    if asked.tag:
        body["containerTags"] = [asked.tag]
    if asked.status is not None:
        body["status"] = asked.status.value
    return body


@rooms.post("/console/documents/confirm")
def confirm(
    request: Request,
    tenant: Writer,
    app: CurrentApp,
    action: Annotated[str, Form()],
    id: Annotated[list[Text] | None, Form(max_length=1_000)] = None,
    back: Annotated[Text, Form()] = DOCUMENTS,
    after: Annotated[Text, Form()] = DOCUMENTS,
) -> Response:
    """Ask once more, naming what it is about. `failed` as action: retry all that failed."""
    if action not in (*NOTICES, "failed"):
        raise BadRequestError("action: retry, delete or failed")
    with app.db.begin() as tx:
        chosen = _those(tx, tenant, id or ())
        failed = figures.failed(tx, tenant)
    values = {
        "action": action,
        "chosen": chosen,
        "failed": failed,
        "back": inside(back, DOCUMENTS),
        "after": inside(after, DOCUMENTS),
    }
    return page(request, "confirm.html", values)


@rooms.post("/console/documents/apply")
def apply(
    tenant: Writer,
    app: CurrentApp,
    action: Annotated[str, Form()],
    id: Annotated[list[Text] | None, Form(max_length=1_000)] = None,
    after: Annotated[Text, Form()] = DOCUMENTS,
) -> Response:
    """Retry or delete; documents that are gone by now are passed over."""
    ids = id or []
    match action:
        case "retry":
            with app.db.begin() as tx:
                done = len(documents.reprocess(tx, tenant, ids=ids))
        case "failed":
            done = _retry_failed(app, tenant)
        case "delete":
            with app.db.begin() as tx:
                done = len(documents.delete_named(tx, tenant, ids)[0])
        case _:
            raise BadRequestError("action: retry, delete or failed")
    notice = {"done": "delete" if action == "delete" else "retry", "n": done}
    target = inside(after, DOCUMENTS)
    return RedirectResponse(target + ("&" if "?" in target else "?") + urlencode(notice), 303)


def _retry_failed(app: App, tenant: Tenant) -> int:
    """Queue all that failed once more, in parts; what fails again meanwhile is left."""
    done = 0
    last = None
    while True:
        with app.db.begin() as tx:
            some = figures.failed_before(tx, tenant, last, RETRIED)
            if some:
                done += len(documents.reprocess(tx, tenant, ids=[id for _, id in some]))
        if len(some) < RETRIED:
            return done
        last = some[-1]


@rooms.get("/console/documents/{id}")
def show(
    request: Request,
    id: PathId,
    tenant: Reader,
    app: CurrentApp,
    q: Text = "",
    chunk: Annotated[int | None, Query(ge=0)] = None,
    start: Annotated[int, Query(alias="from", ge=0)] = 0,
    files: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
    done: str = "",
    part: Part = "",
) -> Response:
    """The text as searchers see it, from the part that holds `chunk`; words of `q` marked.

    Of an archive also its files, from page `files` on.
    """
    q = q.strip()
    with app.db.begin() as tx:
        document = documents.get(tx, tenant, id, with_text=True)
        chunks = documents.chunks(tx, tenant, document.id)
        known = memories.of_document(tx, tenant, document.id)
        blob = _blob(tx, tenant, document.id)
        held = _members(tx, tenant, document, files)
        archive = _archive(tx, tenant, document)
        source = _source(tx, tenant, document)
        revisions = (
            figures.revisions(tx, source.id, document.id, REVISIONS) if source is not None else []
        )
        dreaming = extraction_queue.state(tx, document.id) if app.llm is not None else None
    best = _best(app, tenant, document.id, q)
    beside = None if blob is None else _beside(app, document, blob)
    at = 0 if chunk is None else min(chunk, max(len(chunks) - 1, 0))
    first = (start if chunk is None else at) // PART * PART
    own = f"{DOCUMENTS}/{document.id}"
    values = {
        "document": document,
        "pieces": _pieces(document, chunks[first : first + PART], q),
        "total": len(chunks),
        "original": beside,
        "opened": _original.spot(
            beside.shape if beside else None,
            chunks[at].place if chunk is not None and chunks else {},
        ),
        "spot": _original.spot,
        "most": _original.MOST,
        "held": held,
        "held_links": {}
        if held is None
        else {
            at: address(own, q=q, files=at) + "#files"
            for at in near(files, max(1, -(-held.total // MEMBERS)))
        },
        "archive": archive,
        "connection": source,
        "revisions": revisions,
        "memories": known[:MEMORIES],
        "remembered": len(known),
        "dreaming": dreaming,
        "has_model": app.llm is not None,
        "snippets": _room.code(request, "getDocument", path={"id": document.id}),
        "parts": [
            (at, min(at + PART, len(chunks)), address(own, q=q, **{"from": at}))
            for at in range(0, len(chunks), PART)
        ],
        "first": first,
        "q": q,
        "chosen": chunk,
        "whole": WHOLE,
        "best": [
            (hit.position, _place(document.id, q, hit.position))
            for found in best.hits
            for hit in found.chunks
        ],
        "notice": f"This document was {NOTICES['retry']}."
        if done == "retry"
        else next(iter(best.warnings), None),
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
        raise NotFoundError("File not found", "this is no file that is shown; it can be downloaded")
    return _original.handed_over(data, type, request.headers.get("range"))


def _file(app: App, tenant: Tenant, id: str) -> tuple[Document, StoredBlob, bytes]:
    """An uploaded file with its document; raises NotFoundError."""
    with app.db.begin() as tx:
        document = documents.get(tx, tenant, id)
        blob = documents.file(tx, tenant, document.id)
    try:
        return document, blob, app.blobs.get(blob.key)
    except Permanent as error:
        raise NotFoundError("File not found", str(error)) from error


def _beside(app: App, document: Document, blob: StoredBlob) -> _original.Original:
    """What of the file stands beside the text; of a store that is away, nothing."""
    shape = _original.shape(document.kind, blob)
    if shape != "text":
        return _original.Original(blob, shape)
    try:
        return _original.shown(blob, app.blobs.get(blob.key))
    except (Permanent, Unavailable):
        return _original.Original(blob, None)


def _blob(tx: Tx, tenant: Tenant, id: DocumentId) -> StoredBlob | None:
    try:
        return documents.file(tx, tenant, id)
    except NotFoundError:
        return None


def _members(tx: Tx, tenant: Tenant, document: Document, number: int) -> Page[Document] | None:
    """A page of the files that came out of it; None for what is no archive."""
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
    document: Document, chunks: Sequence[Chunk], q: str
) -> list[tuple[Chunk | None, list[_show.Piece]]]:
    """Chunks with their text in pieces; before there are any, the accepted text without borders."""
    mark = _show.marker(document.org_id, q)
    if not chunks and document.text and not document.indexed_revision:
        return [(None, mark(document.text[:WHOLE]))]
    return [(chunk, mark(chunk.text)) for chunk in chunks]


def _those(tx: Tx, tenant: Tenant, ids: Sequence[str]) -> list[Document]:
    """The documents of the ids, without those that are gone."""
    found: list[Document] = []
    for id in dict.fromkeys(ids):
        try:
            found.append(documents.get(tx, tenant, id))
        except (NotFoundError, ConflictError):
            continue
    return found


# --- adding ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FormDraft:
    """What a form holds, as it was typed."""

    content: str = ""
    tag: str = ""
    custom_id: str = ""
    rows: Sequence[tuple[str, str, str]] = ()
    """metadata as (key, type, value)"""


@rooms.get("/console/add")
def add_form(request: Request, tenant: Writer, app: CurrentApp) -> Response:
    return _form(request, app, tenant, FormDraft(), [], [])


@rooms.post("/console/add")
async def add(request: Request, tenant: Writer, app: CurrentApp) -> Response:
    # Read here because the framework's own reading would end a pasted text at 1 MB.
    limit = intake.CONTENT_LIMIT
    async with request.form(max_files=100, max_fields=500, max_part_size=limit) as form:
        return await run_in_threadpool(_add, request, app, tenant, form)


def _add(request: Request, app: App, tenant: Tenant, form: FormData) -> Response:
    """Add what the form holds, each on its own; what was refused is shown above the form."""
    names, kinds, values = (_fields(form, name) for name in ("key", "kind", "value"))
    content, tag, custom_id = ("".join(_fields(form, n)) for n in ("content", "tag", "customId"))
    draft = FormDraft(content, tag, custom_id, list(zip(names, kinds, values, strict=False)))
    files = [
        part for part in form.getlist("file") if isinstance(part, UploadFile) and part.filename
    ]
    texts = [content] if content.strip() else []
    try:
        labels = _adding.labels(tenant, tag.strip(), custom_id.strip(), draft.rows)
        if not files and not texts:
            raise BadRequestError("content: write a text, paste a URL, or choose a file")
        if labels.custom_id and len(files) + len(texts) > 1:
            raise BadRequestError("customId: names one document; add one at a time")
    except RequestError as error:
        return _form(request, app, tenant, draft, [("", error)], [])
    added: list[DocumentId] = []
    refused: list[tuple[str, RequestError]] = []
    for text in texts:
        try:
            added.append(_adding.add_text(app, tenant, labels, text).id)
            draft = replace(draft, content="")
        except RequestError as error:
            refused.append(("", error))
    for file in files:
        sent = Sent(file.file, file.filename, file.content_type)
        try:
            added.append(intake.take_file(app, tenant, labels, sent).id)
        except RequestError as error:
            refused.append((file.filename or "", error))
    if refused:
        return _form(request, app, tenant, draft, refused, added)
    return RedirectResponse(address("/console/progress", id=added), 303)


def _form(
    request: Request,
    app: App,
    tenant: Tenant,
    draft: FormDraft,
    refused: Sequence[tuple[str, RequestError]],
    added: Sequence[DocumentId],
) -> Response:
    with app.db.begin() as tx:
        known = known_tags(tx, tenant)
    blank = max(METADATA_ROWS - len(draft.rows), 0)
    values = {
        "draft": draft,
        "rows": [*draft.rows, *[("", "text", "")] * blank],
        "own_tags": tenant.tags,
        "known": known,
        "megabytes": app.config.max_file_mb,
        "kinds": extract.supported(),
        "refused": refused,
        "added": len(added),
        "progress": address("/console/progress", id=added),
        "snippets": _room.code(request, "addDocument"),
        "of_files": _room.code(request, "uploadFile"),
    }
    return page(request, "add.html", values, refused[0][1].status if refused else 200)


@rooms.get("/console/progress")
def progress(
    request: Request,
    tenant: Reader,
    app: CurrentApp,
    id: Ids = None,
    part: Part = "",
) -> Response:
    """Some documents on their way, until all are searchable or have failed."""
    with app.db.begin() as tx:
        values = {"documents": _those(tx, tenant, id or ())}
    return page(request, "_progress.html" if part == LIVE else "progress.html", values)


# --- playground --------------------------------------------------------------------------------


@rooms.get("/console/playground")
def playground(
    request: Request,
    tenant: Reader,
    app: CurrentApp,
    q: Text = "",
    tag: Text = "",
    filters: Text = "",
    limit: int = 10,
    rerank: bool = False,
) -> Response:
    """A search with all that stands behind its order, and the same search as code."""
    with app.db.begin() as tx:
        known = known_tags(tx, tenant)
    typed = {"q": q, "tag": tag, "filters": filters, "limit": limit, "rerank": rerank}
    values: dict[str, object] = {**typed, "hits": None, "error": None, "known": known}
    values["own_tags"] = tenant.tags
    values["can_rerank"] = app.reranker is not None
    if not q.strip():
        return page(request, "playground.html", values)
    try:
        if not 1 <= limit <= 100:
            raise BadRequestError("limit: 1 to 100")
        if len(q) > LONGEST_QUERY:
            raise BadRequestError(f"query: at most {LONGEST_QUERY:,} characters")
        named = _tags(tenant, tag)
        started = time.monotonic()
        query = hybrid.Query(
            text=q,
            vector=None,
            tags=named,
            filter=parse_filter(filters) if filters.strip() else None,
            limit=limit,
        )
        answer = ask(app, tenant, query, rerank=rerank)
    except RequestError as error:
        return page(request, "playground.html", {**values, "error": error}, error.status)
    body: dict[str, object] = {"q": q, "limit": limit}
    if named:
        body["containerTags"] = named
    if filters.strip():
        body["filters"] = json.loads(filters)
    if rerank:
        body["rerank"] = True
    hits = answer.hits
    values |= {
        "hits": _shown(tenant.id, hits, q),
        "widest": max(
            (
                abs(lift)
                for hit in hits
                for chunk in hit.chunks
                for lift in dataclasses.astuple(chunk.parts)
            ),
            default=0,
        )
        or 1,
        "warnings": answer.warnings,
        "weak": None if not hits or _relevant(hits) else ranking.ONLY_WEAK,
        "took": (time.monotonic() - started) * 1000,
        "most": max((chunk.lexical for hit in hits for chunk in hit.chunks), default=0),
        "snippets": _room.code(request, "searchDocuments", body),
    }
    return page(request, "playground.html", values)


def _best(app: App, tenant: Tenant, id: DocumentId, q: str) -> Answer:
    """The chunks of a document that answer a query; none, with the reason, where it cannot be."""
    if not q:
        return Answer([], [])
    try:
        return ask(app, tenant, hybrid.Query(q, None), inside=id)
    except BadRequestError as error:
        return Answer([], [error.details or error.message])


def _relevant(hits: Sequence[Hit]) -> bool:
    return any(chunk.is_relevant for hit in hits for chunk in hit.chunks)


def _tags(tenant: Tenant, tag: str) -> list[str]:
    one = tag.strip() or None
    return tags.asked(tenant, one, None, default=False, prefixes=True, field="tag")


PARTS = {
    "Words": "BM25 over the words of the whole passage",
    "Meaning": "Cosine of the vectors",
    "Window": "Words of the query within a few sentences",
    "Pairs": "Neighbouring words of the query next to each other",
}
JUDGE = "What the reranker says, as far as it goes with the order of the search"
TELLING = 0.1
"""A part that lifts or lowers a passage by less is not worth a word."""


@dataclass(frozen=True, slots=True)
class HitPassage:
    """A chunk of a hit, with its words of the query marked and the address of its place."""

    chunk: HitChunk
    pieces: Sequence[_show.Piece]
    place: str

    @property
    def parts(self) -> list[tuple[str, float, str]]:
        """What put it where it stands: name, lift, and what the name means."""
        parts = self.chunk.parts
        judge = [] if self.chunk.reranked is None else [("Reranker", parts.judge, JUDGE)]
        found = zip(
            PARTS.items(), (parts.words, parts.meaning, parts.window, parts.pairs), strict=True
        )
        return [*((name, lift, hint) for (name, hint), lift in found), *judge]

    @property
    def why(self) -> str:
        """A sentence about what lifts it most, and what lowers it."""
        ordered = sorted(self.parts, key=lambda one: one[1], reverse=True)
        up = [name.lower() for name, lift, _ in ordered if lift > TELLING]
        down = [name.lower() for name, lift, _ in reversed(ordered) if lift < -TELLING]
        said = [f"lifted by {' and '.join(up[:2])}"] if up else []
        said += [f"lowered by {' and '.join(down[:2])}"] if down else []
        told = ", ".join(said) or "no hint tells it from the other candidates"
        return f"{told[0].upper()}{told[1:]}. The order is by the sum of these:"


def _shown(org: OrgId, hits: Sequence[Hit], q: str) -> list[tuple[Hit, list[HitPassage]]]:
    mark = _show.marker(org, q)
    return [
        (
            hit,
            [
                HitPassage(chunk, mark(chunk.text), _place(hit.document.id, q, chunk.position))
                for chunk in hit.chunks
            ],
        )
        for hit in hits
    ]


@rooms.api_route("/console/{rest:path}", methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])
def nowhere(rest: str) -> Response:
    raise NotFoundError("Not found", "the console has no such page")


router = APIRouter()
router.include_router(doors)
router.include_router(_reference.router)
for _part in (_live, _connections, _filters, _webhooks, _keys, _audit, _settings):
    router.include_router(_part.rooms)
router.include_router(rooms)


def _place(id: DocumentId, q: str, position: int) -> str:
    """Where a chunk stands in its document, with the query to mark."""
    return f"{address(f'{DOCUMENTS}/{id}', q=q, chunk=position)}#chunk-{position}"


def _fields(form: FormData, name: str) -> list[str]:
    return [value for value in form.getlist(name) if isinstance(value, str)]
