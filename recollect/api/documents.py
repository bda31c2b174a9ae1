"""Documents: add, upload, batch, get, list, update, delete."""

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Any, Literal, TypeVar, cast

from fastapi import APIRouter, Depends, File, Form, Query, Request, Response, UploadFile
from fastapi.concurrency import run_in_threadpool
from pydantic import TypeAdapter, ValidationError
from starlette.requests import ClientDisconnect

from recollect import db, documents
from recollect.api.deps import (
    ApiRoute,
    CurrentApp,
    PathId,
    Reader,
    SentAgain,
    Writer,
    effective_tags,
)
from recollect.api.document_schemas import (
    AddDocument,
    BatchAdd,
    BatchItem,
    BatchOut,
    BulkDelete,
    BulkDeleted,
    ChunksOut,
    ContentLabels,
    DeleteError,
    DocumentList,
    DocumentOut,
    ListDocuments,
    ListedDocument,
    ProcessingDocument,
    ProcessingOut,
    Retried,
    RetryDocuments,
    StatusCounts,
    UpdateDocument,
    UploadLabels,
    VersionList,
    VersionOut,
    WrittenOut,
    public_status,
)
from recollect.api.errors import ONE_PART
from recollect.api.room import CurrentRoom, Holding, Room, with_texts
from recollect.api.turns import own_turn
from recollect.api.wire import Moment, Pagination, RequestBody
from recollect.app import App
from recollect.db import Tx
from recollect.documents import DocumentChange, DocumentQuery
from recollect.documents.filters import parse as parse_filter
from recollect.errors import BadRequestError, Issue, RequestError, by_place, in_words
from recollect.events.streams import LOOK, Events
from recollect.ingest import intake
from recollect.ingest.intake import Sent
from recollect.memories import extraction_queue, reading
from recollect.memories.extraction_queue import Dreaming
from recollect.memories.records import Memory
from recollect.model import Chunk, Content, Document, Status, Tenant
from recollect.orgs import orgs

router = APIRouter(tags=["documents"], route_class=ApiRoute)
STALE = timedelta(hours=4)
"""Unfinished documents that nothing happened to for so long are shown as stuck."""
LONGEST_WAIT = 55.0
"""Seconds that a `wait` lasts: proxies and clients often give up after 60."""
ENDED = (Status.DONE, Status.FAILED)
UPLOAD_FIELDS = {"file", *(field.alias for field in UploadLabels.model_fields.values())}
AsOf = Annotated[
    Moment | None, Query(alias="asOf", description="As it was then, if that text is kept.")
]
_TAGS = TypeAdapter(list[str])
_ALIASES = {name: field.alias or name for name, field in AddDocument.model_fields.items()}
"""Of fields that came by their Python names, which a default would else take the place of."""
LabelsT = TypeVar("LabelsT", bound=RequestBody)
_STATUSES: Mapping[str, Status] = {
    **{status.value: status for status in Status},
    "extracting": Status.PROCESSING,
    "chunking": Status.PROCESSING,
    "embedding": Status.PROCESSING,
    "indexing": Status.PROCESSING,
}


@router.post("/v3/documents", summary="Add a document", operation_id="addDocument")
def add(body: AddDocument, tenant: Writer, app: CurrentApp, retried: SentAgain) -> WrittenOut:
    """Text, a conversation, Markdown, HTML, or a URL. A known customId updates that document."""
    content = intake.content_of(app, body.content)
    labels = _beside(app, tenant, body, retried=retried)
    return _written(app, intake.take(app, tenant, labels, content), body)


@router.post("/v3/documents/batch", summary="Add many documents", operation_id="addDocuments")
def add_batch(body: BatchAdd, tenant: Writer, app: CurrentApp, retried: SentAgain) -> BatchOut:
    """Each on its own: a bad one is reported in its place and the others go on."""
    read = [_batch_item(app, tenant, body, item, retried) for item in body.documents]
    wanted = [(one.labels, one.content) for one in read if isinstance(one, _Readable)]
    taken = iter(intake.take_all(app, tenant, wanted))
    results = [one if isinstance(one, BatchItem) else _taken(app, one, next(taken)) for one in read]
    failed = sum(result.status == "error" for result in results)
    return BatchOut(
        results=results,
        success=len(results) - failed,
        failed=failed,
        warnings=body.passed_over(),
    )


async def _form_names(request: Request) -> list[str]:
    """Of what a form says twice, one would be lost, so it is refused. So are lists and objects
    that the published clients spread over several fields: without its tag, a file would stand in
    another."""
    form = await request.form()
    for name in form:
        field, bracket, _ = name.partition("[")
        if bracket and field == "file":
            raise BadRequestError(f"{name}: {ONE_PART}")
        if bracket and field in UPLOAD_FIELDS:
            raise BadRequestError(f"{name}: send lists and objects as JSON text, in {field}")
        if len(form.getlist(name)) > 1:
            raise BadRequestError(f"{name}: stands in the form twice")
    return list(form)


@router.post("/v3/documents/file", summary="Upload a file", operation_id="uploadFile")
def upload(
    tenant: Writer,
    app: CurrentApp,
    file: Annotated[UploadFile, File(description="At most 50 MB.")],
    container_tags: Annotated[
        str | None, Form(alias="containerTags", description="One, or a JSON array of them.")
    ] = None,
    container_tag: Annotated[str | None, Form(alias="containerTag", examples=["team:a"])] = None,
    custom_id: Annotated[str | None, Form(alias="customId", examples=["reports/7"])] = None,
    metadata: Annotated[
        str | None, Form(description="JSON text.", examples=['{"year": 2026}'])
    ] = None,
    filter_by_metadata: Annotated[
        str | None, Form(alias="filterByMetadata", description="JSON text.")
    ] = None,
    entity_context: Annotated[str | None, Form(alias="entityContext")] = None,
    file_type: Annotated[str | None, Form(alias="fileType")] = None,
    mime_type: Annotated[str | None, Form(alias="mimeType")] = None,
    filepath: Annotated[str | None, Form()] = None,
    document_date: Annotated[str | None, Form(alias="documentDate")] = None,
    task_type: Annotated[str | None, Form(alias="taskType")] = None,
    dreaming: Annotated[str | None, Form()] = None,
    *,
    sent_names: Annotated[list[str], Depends(_form_names)],
    retried: SentAgain,
) -> WrittenOut:
    """The kind is recognised by the bytes, then the name, then `mimeType`; `fileType` sets it."""
    labels = form_of(
        UploadLabels,
        **{name: "?" for name in sent_names if name not in UPLOAD_FIELDS},
        customId=custom_id,
        containerTag=container_tag,
        containerTags=_tag_list(container_tags),
        metadata=metadata,
        filterByMetadata=filter_by_metadata,
        entityContext=entity_context,
        filepath=filepath,
        documentDate=document_date,
        taskType=task_type,
        dreaming=dreaming,
        fileType=file_type,
        mimeType=mime_type,
    )
    sent = Sent(file.file, file.filename, labels.mime_type or file.content_type, labels.file_type)
    beside = _beside(app, tenant, labels, retried=retried)
    return _written(app, intake.take_file(app, tenant, beside, sent), labels)


@router.post(
    "/v3/documents/list",
    summary="List documents",
    operation_id="listDocuments",
    response_model=DocumentList,
)
def find(
    tenant: Reader, app: CurrentApp, room: CurrentRoom, body: ListDocuments | None = None
) -> Response:
    body = body or ListDocuments()
    query = DocumentQuery(
        tags=effective_tags(
            tenant, body.container_tag, body.container_tags, default=False, prefixes=True
        ),
        filter=None if body.filters is None else parse_filter(body.filters),
        filepath=body.filepath,
        archive=body.archive_id,
        statuses=_statuses(body.status),
        sort="updated_at" if body.sort == "updatedAt" else "created_at",
        descending=body.order == "desc",
        limit=body.limit,
        page=body.page,
    )
    warnings = body.passed_over() or []
    with Holding(room, tenant) as holding:
        page = app.db.read(lambda tx: documents.find(tx, tenant, query))
        found = page.items
        if body.include_content:
            # As GET does: programs that keep files here read them by lists, edit and write back.
            named = "includeContent"
            found = with_texts(app, tenant, found, holding, named, warnings, newest=True)
        words = app.config.status_words
        return holding.answer(
            DocumentList(
                memories=[ListedDocument.of(document, words) for document in found],
                pagination=Pagination.of(page),
                warnings=warnings or None,
            )
        )


@router.get(
    "/v3/documents/processing", summary="List documents in progress", operation_id="listProcessing"
)
def processing(
    tenant: Reader,
    app: CurrentApp,
    container_tags: Annotated[
        str | None, Query(alias="containerTags", description="Separated by commas.")
    ] = None,
    view: Annotated[
        Literal["active", "pending", "all"],
        Query(
            description="active: unfinished and touched within 4 hours; pending: all unfinished;"
            " all: also the failed, in pages."
        ),
    ] = "active",
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
    limit: Annotated[int, Query(ge=1, le=1100)] = 100,
) -> ProcessingOut:
    """Documents that are not done, the latest changed first."""
    unfinished = (Status.QUEUED, Status.PROCESSING)
    query = DocumentQuery(
        tags=effective_tags(
            tenant,
            None,
            [name for name in (container_tags or "").split(",") if name],
            default=False,
            prefixes=True,
        ),
        statuses=(*unfinished, Status.FAILED) if view == "all" else unfinished,
        touched_within=STALE if view == "active" else None,
        sort="updated_at",
        limit=limit,
        page=page,
    )
    now, found = app.db.read(lambda tx: (db.now(tx), documents.find(tx, tenant, query)))
    return ProcessingOut(
        documents=[
            ProcessingDocument.of(document, app.config.status_words, stale_before=now - STALE)
            for document in found.items
        ],
        total_count=found.total,
        pagination=Pagination.of(found) if view == "all" else None,
    )


@router.get("/v3/documents/counts", summary="Count documents", operation_id="countDocuments")
def count(tenant: Reader, app: CurrentApp) -> StatusCounts:
    """How many documents are in each status."""
    found = app.db.read(lambda tx: documents.counts(tx, tenant))
    return StatusCounts.model_validate({status.value: n for status, n in found.items()})


@router.post("/v3/documents/retry", summary="Retry documents", operation_id="retryDocuments")
def retry(body: RetryDocuments, tenant: Writer, app: CurrentApp) -> Retried:
    """The documents named by `ids`, or with `failed: true` all that failed."""
    if not body.ids and not body.failed:
        raise BadRequestError("name ids, or set failed to true")
    ids = body.ids or ()
    queued = app.db.write(lambda tx: documents.reprocess(tx, tenant, ids=ids, failed=body.failed))
    return body.warned(Retried(ids=list(queued)))


@router.delete(
    "/v3/documents/bulk", summary="Delete many documents", operation_id="deleteDocuments"
)
def delete_bulk(body: BulkDelete, tenant: Writer, app: CurrentApp) -> BulkDeleted:
    """By `ids`, or everything in any of `containerTags`. Permanent. A misspelt field is refused."""
    body.refuse_slips()
    if not body.ids and not body.container_tags and not body.filepath:
        raise BadRequestError("name ids (1 to 100), containerTags, or a filepath")
    if ids := body.ids:
        removed, refused = app.db.write(lambda tx: documents.delete_named(tx, tenant, ids))
        problems = [DeleteError(id=id, error=error.message) for id, error in refused.items()]
        done = BulkDeleted(
            success=not problems, deleted_count=len(removed), errors=problems or None
        )
        return body.warned(done)
    named = effective_tags(tenant, None, body.container_tags, default=False)
    gone = app.db.write(
        lambda tx: documents.delete_where(tx, tenant, tags=named, filepath=body.filepath)
    )
    done = BulkDeleted(success=True, deleted_count=len(gone), container_tags=named or None)
    return body.warned(done)


@router.get(
    "/v3/documents/{id}",
    summary="Get a document",
    operation_id="getDocument",
    response_model=DocumentOut,
)
async def get(
    request: Request,
    id: PathId,
    tenant: Reader,
    app: CurrentApp,
    room: CurrentRoom,
    wait: Annotated[
        float, Query(ge=0, le=60, description="Seconds to wait for `done` or `failed`.")
    ] = 0,
    as_of: AsOf = None,
) -> Response:
    """As it is now, or with `wait` once it is finished, whichever comes first; with `asOf` as it
    was then, if that text is kept."""
    if wait:
        await _end_of(request, app, tenant, id, wait)
    async with own_turn(request):
        return await run_in_threadpool(_shown, app, tenant, id, room, as_of)


async def _end_of(request: Request, app: App, tenant: Tenant, id: str, wait: float) -> None:
    """Wait until it is finished, for so many seconds at most. Raises RateLimitError, Unavailable
    where too many wait; NotFoundError, also once it is deleted.

    Between two looks this holds neither a thread nor a connection.
    """
    events: Events = request.app.state.events
    deadline = time.monotonic() + min(wait, LONGEST_WAIT)
    document = await _look(request, app, tenant, id)
    if document.status in ENDED:
        return
    place = events.waits.take(tenant.id, tenant.key or tenant.id)
    try:
        async with events.of(document.id) as told:
            while (await _look(request, app, tenant, document.id)).status not in ENDED:
                rest = deadline - time.monotonic()
                if rest <= 0:
                    return
                if await request.is_disconnected():
                    raise ClientDisconnect
                with suppress(TimeoutError):
                    await asyncio.wait_for(told.wait(), min(rest, LOOK.total_seconds()))
                told.clear()
    finally:
        place.leave()


async def _look(request: Request, app: App, tenant: Tenant, id: str) -> Document:
    """Raises AuthenticationError when the key was revoked while it waited."""

    def look(tx: Tx) -> Document:
        if tenant.key is not None:
            orgs.key(tx, tenant.key)
        return documents.get(tx, tenant, id)

    async with own_turn(request):
        return await run_in_threadpool(app.db.read, look)


def _shown(app: App, tenant: Tenant, id: str, room: Room, as_of: datetime | None) -> Response:
    with Holding(room, tenant) as holding:
        _, size = app.db.read(partial(_sized, tenant, id, as_of))
        holding.take(size)
        document, ahead, known, dreaming = app.db.read(partial(_read, app, tenant, id, as_of))
        words = app.config.status_words
        return holding.answer(DocumentOut.of(document, words, ahead, known, dreaming))


def _sized(tenant: Tenant, id: str, as_of: datetime | None, tx: Tx) -> tuple[Document, int]:
    """With the bytes of its text, at most."""
    db.look_back(tx, tenant.id, as_of)
    document = documents.get(tx, tenant, id)
    return document, documents.text_sizes(tx, tenant, [document.id]).get(document.id, 0)


@router.get(
    "/v3/documents/{id}/chunks",
    summary="Get the chunks of a document",
    operation_id="getChunks",
    response_model=ChunksOut,
)
def chunks(
    id: PathId, tenant: Reader, app: CurrentApp, room: CurrentRoom, as_of: AsOf = None
) -> Response:
    """What searches find of the document, or found then, in order."""

    def read(tx: Tx) -> list[Chunk]:
        db.look_back(tx, tenant.id, as_of)
        return documents.chunks(tx, tenant, document.id)

    with Holding(room, tenant) as holding:
        document, size = app.db.read(partial(_sized, tenant, id, as_of))
        holding.take(size)
        return holding.answer(ChunksOut.of(document, app.db.read(read)))


@router.get(
    "/v3/documents/{id}/versions",
    summary="List the versions of a document",
    operation_id="listVersions",
)
def versions(id: PathId, tenant: Reader, app: CurrentApp) -> VersionList:
    """The texts that the document has and had, as far as they are kept (setting `keepVersions`),
    the newest first. `asOf` with a `knownFrom` reads one."""
    found = app.db.read(lambda tx: documents.versions(tx, tenant, id))
    return VersionList(versions=[VersionOut.of(one) for one in found])


@router.patch("/v3/documents/{id}", summary="Update a document", operation_id="updateDocument")
def update(id: PathId, body: UpdateDocument, tenant: Writer, app: CurrentApp) -> WrittenOut:
    """New content replaces the old and is processed; metadata alone changes in place."""
    named = effective_tags(tenant, body.container_tag, body.container_tags, default=False)
    change = DocumentChange(
        content=None if body.content is None else intake.content_of(app, body.content),
        custom_id=body.custom_id,
        title=None if body.title is None else body.title.strip(),
        tags=named or None,
        filepath=body.filepath,
        metadata=intake.flat(app, body.metadata),
        group=body.filter_by_metadata,
        document_date=body.document_date,
        task_type=body.task_type,
        dreaming=body.dreaming,
    )
    return _written(app, intake.change(app, tenant, id, change, body.entity_context), body)


@router.delete(
    "/v3/documents/{id}",
    status_code=204,
    response_class=Response,
    summary="Delete a document",
    operation_id="deleteDocument",
)
def delete(id: PathId, tenant: Writer, app: CurrentApp) -> Response:
    """By id or customId. Permanent, in any state."""
    for refused in app.db.write(lambda tx: documents.delete(tx, tenant, [id])).values():
        raise refused
    return Response(status_code=204)


def _beside(app: App, tenant: Tenant, labels: ContentLabels, *, retried: bool) -> intake.Labels:
    return intake.Labels(
        tags=effective_tags(tenant, labels.container_tag, labels.container_tags, default=False),
        custom_id=labels.custom_id,
        metadata=intake.flat(app, labels.metadata),
        group=labels.filter_by_metadata,
        entity_context=labels.entity_context,
        filepath=labels.filepath,
        document_date=labels.document_date,
        task_type=labels.task_type,
        dreaming=labels.dreaming,
        retried=retried,
    )


def _read(
    app: App, tenant: Tenant, id: str, as_of: datetime | None, tx: Tx
) -> tuple[Document, int | None, list[Memory], Dreaming | None]:
    """With what waits before it, what was drawn from it, and, with a model, what is still to be; of
    an older text none of that is known."""
    if as_of is not None:
        db.look_back(tx, tenant.id, as_of)
        return documents.get(tx, tenant, id, newest=True), None, [], None
    document = documents.get(tx, tenant, id, newest=True)
    known = reading.of_document(tx, tenant, document.id)
    dreaming = extraction_queue.state(tx, document.id) if app.llm is not None else None
    return document, documents.ahead(tx, document), known, dreaming


@dataclass(frozen=True, slots=True)
class _Readable:
    """An item of a batch in which no fault was found."""

    asked: AddDocument
    labels: intake.Labels
    content: Content


def _batch_item(
    app: App, tenant: Tenant, body: BatchAdd, item: object, retried: bool
) -> _Readable | BatchItem:
    defaults = body.model_dump(by_alias=True, exclude_none=True, exclude={"documents"})
    if not isinstance(item, str | dict):
        return _refused({}, BadRequestError("an object or a string is expected"))
    given = {"content": item} if isinstance(item, str) else cast("dict[str, object]", item)
    named = {_ALIASES.get(name, name): v for name, v in given.items() if v is not None}
    if named.get("containerTag") or named.get("containerTags"):
        defaults.pop("containerTag", None)
        defaults.pop("containerTags", None)
    try:
        one = AddDocument.model_validate({**defaults, **named})
        content = intake.content_of(app, one.content)
        return _Readable(one, _beside(app, tenant, one, retried=retried), content)
    except (ValidationError, RequestError) as error:
        return _refused(named, error)


def _taken(app: App, one: _Readable, outcome: Document | RequestError) -> BatchItem:
    if isinstance(outcome, RequestError):
        return _refused(one.asked.model_dump(by_alias=True), outcome)
    written = _written(app, outcome, one.asked)
    return BatchItem(
        id=written.id, status=written.status, url=one.content.url, warnings=written.warnings
    )


def _refused(given: Mapping[str, object], error: ValidationError | RequestError) -> BatchItem:
    message, details = refusal(error)
    id, url = known_by(given, "customId")
    return BatchItem(id=id, status="error", error=message, details=details, url=url)


def known_by(given: Mapping[str, object], name: str) -> tuple[str, str | None]:
    """What tells which one of a batch it is: the id that its sender gave it, by the `name` of that
    field, and its address, as far as it has them."""
    id, content = given.get(name), given.get("content")
    is_address = isinstance(content, str) and documents.is_address(content)
    return (
        id if isinstance(id, str) else "",
        content.strip() if isinstance(content, str) and is_address else None,
    )


def refusal(error: ValidationError | RequestError) -> tuple[str, str | None]:
    """Why an item of a batch was refused: the short sentence, and the details."""
    if isinstance(error, RequestError):
        return error.message, error.details
    fault = by_place(error.errors())[0]
    return "Invalid request parameters", f"{'.'.join(map(str, fault['loc']))}: {in_words(fault)}"


def form_of(model: type[LabelsT], **fields: Any) -> LabelsT:
    """Multipart fields under the same rules as JSON; empty means absent."""
    try:
        return model.model_validate({name: v for name, v in fields.items() if v not in (None, "")})
    except ValidationError as error:
        issues = [Issue(list(fault["loc"]), in_words(fault)) for fault in by_place(error.errors())]
        first = issues[0]
        where = ".".join(map(str, first.path))
        raise BadRequestError(f"{where}: {first.message}", issues) from error


def _tag_list(given: str | None) -> list[str] | None:
    """One tag, or a JSON array of tags as text."""
    if given is None or not given.lstrip().startswith("["):
        return [given] if given else None
    try:
        return _TAGS.validate_json(given)
    except ValidationError as error:
        raise BadRequestError("containerTags: one tag, or a JSON array of tags") from error


def _statuses(given: str | None) -> list[Status]:
    if given is None:
        return []
    if given not in _STATUSES:
        raise BadRequestError(f"status: one of {', '.join(_STATUSES)}")
    return [_STATUSES[given]]


def _written(app: App, document: Document, asked: RequestBody) -> WrittenOut:
    return WrittenOut(
        id=document.id,
        status=public_status(document, app.config.status_words),
        warnings=asked.passed_over(),
    )
