"""Documents of a namespace: add, upload, get, change, delete."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal, cast

from fastapi import Depends, File, Form, Query, Request, Response, UploadFile
from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from recollect import documents
from recollect.api.deps import CurrentApp
from recollect.api.document_schemas import ContentText
from recollect.api.documents import form_of, known_by, refusal
from recollect.api.namespaces._door import (
    Closed,
    Reads,
    RestId,
    Space,
    Writes,
    closed,
    flat,
    words,
)
from recollect.api.namespaces._door import (
    router as door,
)
from recollect.api.namespaces._shapes import (
    DocumentSystem,
    Metadata,
    NsChunkOut,
    NsMemoryOut,
    NsWritten,
    Refusal,
    StatusWord,
)
from recollect.api.namespaces._words import in_words
from recollect.api.room import CurrentRoom, Holding
from recollect.api.wire import (
    CustomId,
    EntityContext,
    MetadataIn,
    Moment,
    Text,
    Wire,
    absent,
    json_text,
)
from recollect.app import App
from recollect.db import Tx
from recollect.documents import DocumentChange
from recollect.errors import BadRequestError, RequestError
from recollect.ingest import intake
from recollect.ingest.intake import Labels, Sent
from recollect.memories import extraction_queue, reading
from recollect.model import Content, Document, DocumentId, Tenant

router = door("documents")
MOST_BATCH = 600
MOST_DELETED = 100
_FORM = ("file", "metadata", "group", "supportingContext", "date", "taskType", "dreaming",
         "fileType", "mimeType")  # fmt: skip
NOTHING_NAMED = "name at least one field that is to change"


def _laid(value: object) -> object:
    """Metadata in which null takes a key away."""
    given = json_text(value)
    if not isinstance(given, dict):
        raise ValueError("must be an object")
    pairs = cast("dict[str, object]", given)
    kept = intake.metadata({name: one for name, one in pairs.items() if one is not None})
    gone = intake.metadata({name: "" for name, one in pairs.items() if one is None})
    return kept | dict.fromkeys(gone)


# --- requests ------------------------------------------------------------------------------------


class Beside(Closed):
    """What may stand beside a content."""

    supporting_context: EntityContext | None = None
    metadata: MetadataIn | None = None
    group: MetadataIn | None = Field(
        None,
        description="Keeps memories apart: those drawn from this document meet only those of"
        " documents with the same pairs. Filters see it beside the metadata.",
    )
    date: Moment | None = None


class Handling(Closed):
    task_type: Literal["memory", "superrag"] | None = None
    dreaming: Literal["dynamic", "instant"] | None = None


class BatchedDocument(Beside):
    content: ContentText
    id: CustomId | None = None


class NsNewDocument(BatchedDocument, Handling):
    model_config = closed(
        content="Ann moved to Bonn in May.", id="notes/1", metadata={"source": "chat"}
    )


class Batch(Handling):
    model_config = closed(documents=[{"content": "One.", "id": "notes/1"}, {"content": "Two."}])

    documents: list[dict[str, Any]] = Field(
        min_length=1, max_length=MOST_BATCH, description="Each as for adding one document."
    )


class Changes(Beside, Handling):
    model_config = closed(metadata={"reviewed": True})

    content: ContentText | None = None


class Deletion(Closed):
    model_config = closed(ids=["notes/1", "7msRU48jI0KqwTPC6nnlhv"])

    ids: list[Annotated[Text, Field(min_length=1, max_length=255)]] = Field(
        min_length=1, max_length=MOST_DELETED
    )


class Upload(Beside, Handling):
    """The fields of a form beside its file."""

    file_type: Literal["text", "pdf", "image", "video", "audio"] | None = None
    mime_type: Annotated[Text, Field(max_length=255, pattern=r"^[^\s/]+/[^\s/]+$")] | None = None


class PartialUpload(Upload):
    metadata: Annotated[dict[str, Any] | None, BeforeValidator(_laid)] = None


# --- answers -------------------------------------------------------------------------------------


class NsBatchItem(Wire):
    id: str
    status: StatusWord | Literal["error"]
    error: str | None = absent()
    details: str | None = absent()
    url: str | None = absent()


class NsBatchOut(Wire):
    results: list[NsBatchItem]
    count: int = Field(description="Documents that were taken.")
    failed: int


class NsDocumentOut(Wire):
    id: str
    custom_id: str | None
    title: str | None
    type: str
    url: str | None
    summary: str | None
    content: str | None = Field(description="The newest text that is known.")
    metadata: Metadata
    group: dict[str, Any] | None = absent()
    system: DocumentSystem
    chunks: list[NsChunkOut] | None = absent()
    memories: list[NsMemoryOut] | None = absent()


class DeletedOut(Wire):
    count: int
    errors: list[Refusal]


# --- endpoints -----------------------------------------------------------------------------------


@router.post("/ns/{namespace}/document", summary="Add a document", operation_id="nsAddDocument")
def add(space: Writes, body: NsNewDocument, app: CurrentApp) -> NsWritten:
    """Text, or one URL to fetch. A known `id` updates that document. The namespace is created if
    it does not exist."""
    return NsWritten.of(intake.take(app, space.inside, *_wanted(app, space, body, body)))


@router.post(
    "/ns/{namespace}/document/batch", summary="Add many documents", operation_id="nsAddDocuments"
)
def add_batch(space: Writes, body: Batch, app: CurrentApp) -> NsBatchOut:
    """Each on its own. Those that were taken come first, then the bad ones."""
    good: list[NsBatchItem] = []
    bad: list[NsBatchItem] = []
    read = [_readable(app, space, given, body) for given in body.documents]
    wanted = [one for one in read if isinstance(one, tuple)]
    taken = iter(intake.take_all(app, space.inside, wanted))
    for given, one in zip(body.documents, read, strict=True):
        outcome = next(taken) if isinstance(one, tuple) else one
        if isinstance(outcome, Document):
            written = NsWritten.of(outcome)
            good.append(NsBatchItem(id=written.id, status=written.status))
        else:
            bad.append(_refused(given, outcome))
    return NsBatchOut(results=[*good, *bad], count=len(good), failed=len(bad))


Includes = Annotated[
    Sequence[str],
    Query(description="`chunks`, `memories`; repeated, or separated by commas."),
    AfterValidator(words("chunks", "memories")),
]


@router.get(
    "/ns/{namespace}/document/{id:path}",
    summary="Get a document",
    operation_id="nsGetDocument",
    response_model=NsDocumentOut,
)
def get(
    space: Reads, id: RestId, app: CurrentApp, room: CurrentRoom, include: Includes = ()
) -> Response:
    """Its text is the newest that was accepted, also while that is still processed."""
    with Holding(room, space.inside) as holding:
        found, size = app.db.read(partial(_sized, space.inside, id))
        holding.take(size * (2 if "chunks" in include else 1))
        return holding.answer(app.db.read(partial(_whole, app, space.inside, found, include)))


def _sized(tenant: Tenant, id: str, tx: Tx) -> tuple[DocumentId, int]:
    """Its id, and the bytes of its text, at most."""
    document = documents.get(tx, tenant, id)
    return document.id, documents.text_sizes(tx, tenant, [document.id]).get(document.id, 0)


def _whole(
    app: App, tenant: Tenant, id: DocumentId, include: Sequence[str], tx: Tx
) -> NsDocumentOut:
    document = documents.get(tx, tenant, id, newest=True)
    dreaming = extraction_queue.state(tx, document.id) if app.llm is not None else None
    count = reading.counts(tx, tenant, [document.id])[document.id]
    known = reading.of_document(tx, tenant, document.id) if "memories" in include else None
    chunks = documents.chunks(tx, tenant, document.id) if "chunks" in include else None
    return NsDocumentOut(
        id=document.id,
        custom_id=document.custom_id,
        title=document.title,
        type=document.kind,
        url=document.url,
        summary=None,
        content=document.text,
        metadata=flat(document.metadata),
        group=None if document.group is None else flat(document.group),
        system=DocumentSystem.of(document, dreaming, count),
        chunks=None if chunks is None else [NsChunkOut.of(document, one) for one in chunks],
        memories=None if known is None else [NsMemoryOut.of(one) for one in known],
    )


@router.delete(
    "/ns/{namespace}/document", summary="Delete documents", operation_id="nsDeleteDocuments"
)
def delete(space: Writes, body: Deletion, app: CurrentApp) -> DeletedOut:
    """Those of the namespace, with all of their tags, for good; what is not there is named."""
    gone, refused = app.db.write(
        lambda tx: documents.delete_named(tx, space.key, body.ids, inside=space.name)
    )
    return DeletedOut(
        count=len(gone),
        errors=[Refusal(id=id, error=in_words(error.message)) for id, error in refused.items()],
    )


# --- files: before the documents, whose ids may have slashes ----------------------------------


async def _form(
    request: Request,
    metadata: Annotated[
        str | None,
        Form(description="JSON text. A PATCH merges it into what is there; null removes a key."),
    ] = None,
    group: Annotated[str | None, Form(description="JSON text.")] = None,
    supporting_context: Annotated[str | None, Form(alias="supportingContext")] = None,
    date: Annotated[str | None, Form()] = None,
    task_type: Annotated[str | None, Form(alias="taskType")] = None,
    dreaming: Annotated[str | None, Form()] = None,
    file_type: Annotated[str | None, Form(alias="fileType")] = None,
    mime_type: Annotated[str | None, Form(alias="mimeType")] = None,
) -> dict[str, str | None]:
    """A form is closed, too, and of what stands there twice one would be lost."""
    form = await request.form()
    for name in form:
        if name not in _FORM:
            raise BadRequestError(f"{name}: unknown field")
        if len(form.getlist(name)) > 1:
            raise BadRequestError(f"{name}: stands there twice")
    return {
        "metadata": metadata,
        "group": group,
        "supportingContext": supporting_context,
        "date": date,
        "taskType": task_type,
        "dreaming": dreaming,
        "fileType": file_type,
        "mimeType": mime_type,
    }


UploadForm = Annotated[dict[str, str | None], Depends(_form)]


@router.post("/ns/{namespace}/document/file", summary="Upload a file", operation_id="nsUploadFile")
def upload(
    space: Writes,
    app: CurrentApp,
    form: UploadForm,
    file: Annotated[UploadFile, File(description="At most 50 MB.")],
) -> NsWritten:
    """The kind is recognised by the bytes, then the name, then `mimeType`; `fileType` sets it."""
    labels = form_of(Upload, **form)
    beside = _beside(space, labels, labels, None)
    return NsWritten.of(intake.take_file(app, space.inside, beside, _sent(file, labels)))


@router.post(
    "/ns/{namespace}/document/file/{id:path}",
    summary="Replace by a file",
    operation_id="nsReplaceWithFile",
)
def replace_with_file(
    space: Writes,
    id: RestId,
    app: CurrentApp,
    form: UploadForm,
    file: Annotated[UploadFile, File(description="At most 50 MB.")],
) -> NsWritten:
    """The whole document again: metadata, group and date that are not sent are cleared."""
    labels = form_of(Upload, **form)
    with intake.file_of(app, space.inside, _sent(file, labels)) as content:
        change = DocumentChange(
            content=content,
            metadata=labels.metadata,
            group=labels.group,
            document_date=labels.date,
            task_type=labels.task_type,
            dreaming=labels.dreaming,
            clears=("metadata", "group", "document_date"),
        )
        return NsWritten.of(intake.change(app, space.inside, id, change, labels.supporting_context))


@router.patch(
    "/ns/{namespace}/document/file/{id:path}",
    summary="Change with a file",
    operation_id="nsUpdateFile",
)
def update_file(
    space: Writes,
    id: RestId,
    app: CurrentApp,
    form: UploadForm,
    file: Annotated[UploadFile | None, File(description="At most 50 MB.")] = None,
) -> NsWritten:
    """What is not sent stays."""
    labels = form_of(PartialUpload, **form)
    if file is None and not _names_something(labels):
        raise BadRequestError(NOTHING_NAMED)
    change = DocumentChange(
        laid=labels.metadata,
        group=labels.group,
        document_date=labels.date,
        task_type=labels.task_type,
        dreaming=labels.dreaming,
    )
    context = labels.supporting_context
    if file is None:
        return NsWritten.of(intake.change(app, space.inside, id, change, context))
    with intake.file_of(app, space.inside, _sent(file, labels)) as content:
        with_file = replace(change, content=content)
        return NsWritten.of(intake.change(app, space.inside, id, with_file, context))


@router.patch(
    "/ns/{namespace}/document/{id:path}",
    summary="Change a document",
    operation_id="nsUpdateDocument",
)
def update(space: Writes, id: RestId, app: CurrentApp, body: Changes | None = None) -> NsWritten:
    """New content replaces the old and is processed; metadata replaces all there was."""
    if body is None or (body.content is None and not _names_something(body)):
        raise BadRequestError(NOTHING_NAMED)
    change = DocumentChange(
        content=None if body.content is None else intake.content_of(app, body.content),
        metadata=body.metadata,
        group=body.group,
        document_date=body.date,
        task_type=body.task_type,
        dreaming=body.dreaming,
    )
    return NsWritten.of(intake.change(app, space.inside, id, change, body.supporting_context))


def _names_something(given: Beside) -> bool:
    """Whether there is anything to change; how it is handled alone is nothing."""
    return any(
        one is not None
        for one in (given.supporting_context, given.metadata, given.group, given.date)
    )


def _wanted(
    app: App, space: Space, one: BatchedDocument, handling: Handling
) -> tuple[Labels, Content]:
    return _beside(space, one, handling, one.id), intake.content_of(app, one.content)


def _readable(
    app: App, space: Space, given: dict[str, Any], handling: Handling
) -> tuple[Labels, Content] | ValidationError | RequestError:
    try:
        return _wanted(app, space, BatchedDocument.model_validate(given), handling)
    except (ValidationError, RequestError) as error:
        return error


def _refused(given: dict[str, Any], error: ValidationError | RequestError) -> NsBatchItem:
    message, details = refusal(error)
    id, url = known_by(given, "id")
    return NsBatchItem(
        id=id,
        status="error",
        error=in_words(message),
        details=None if details is None else in_words(details),
        url=url,
    )


def _beside(space: Space, given: Beside, handling: Handling, id: str | None) -> Labels:
    return Labels(
        tags=[space.name],
        custom_id=id,
        metadata=given.metadata,
        group=given.group,
        entity_context=given.supporting_context,
        document_date=given.date,
        task_type=handling.task_type,
        dreaming=handling.dreaming,
        retried=space.retried,
    )


def _sent(file: UploadFile, labels: Upload) -> Sent:
    mime = labels.mime_type or file.content_type
    return Sent(file.file, file.filename, mime, labels.file_type)
