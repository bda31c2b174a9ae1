"""Documents and conversations on the wire: what comes in, and what is told of them."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, cast

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
)

from recollect import connectors
from recollect.api.wire import (
    ABSENT,
    PLACE,
    WARNINGS,
    CustomId,
    EntityContext,
    FiltersIn,
    Id,
    Label,
    MetadataIn,
    Moment,
    Pagination,
    RequestBody,
    TagsIn,
    Text,
    Timestamp,
    Wire,
    absent,
    cleaned,
    example,
)
from recollect.documents import Version
from recollect.ingest import intake
from recollect.memories.extraction_queue import Dreaming
from recollect.memories.records import Memory
from recollect.model import Changed, Chunk, Document, Stage, Status

FORMATS = ("text", "pdf", "tweet", "image", "video", "audio", "webpage")
if TYPE_CHECKING:
    DocumentType = str
else:
    DocumentType = Literal[*FORMATS, *connectors.kinds(), *connectors.UNBUILT]
ContentText = Annotated[Text, AfterValidator(intake.text)]


class BatchLabels(RequestBody):
    """What may stand beside one content or many."""

    container_tag: str | None = None
    container_tags: TagsIn | None = None
    metadata: MetadataIn | None = None
    filter_by_metadata: MetadataIn | None = Field(
        None,
        description="Keeps memories apart: those drawn from this document meet only those of"
        " documents with the same pairs. Filters see it beside the metadata.",
    )
    entity_context: EntityContext | None = None
    filepath: Label | None = None
    document_date: Moment | None = None
    task_type: Literal["memory", "superrag"] | None = None
    dreaming: Literal["dynamic", "instant"] | None = None


class ContentLabels(BatchLabels):
    """What may stand beside a content."""

    custom_id: CustomId | None = None


class UploadLabels(ContentLabels):
    """What may stand beside a file."""

    file_type: DocumentType | None = None
    mime_type: Annotated[Text, Field(max_length=255)] | None = None


class AddDocument(ContentLabels):
    model_config = example(
        content="We meet on Mondays at nine.", containerTag="team:a", customId="notes/1"
    )

    content: ContentText = Field(
        description="Text, a conversation, Markdown, HTML, or one URL to fetch.",
        examples=["Our team meets on Mondays at nine."],
    )


class UpdateDocument(ContentLabels):
    model_config = example(metadata={"reviewed": True})

    title: Annotated[Text, Field(max_length=1000), AfterValidator(intake.plain)] | None = None
    content: ContentText | None = None
    # A document has a tag: none would be taken for "leave them", which an empty list does not say.
    container_tags: Annotated[TagsIn, Field(min_length=1)] | None = None


class BatchAdd(BatchLabels):
    model_config = example(documents=[{"content": "One."}, "Two."], containerTag="team:a")

    documents: list[Any] = Field(
        min_length=1,
        max_length=600,
        description="Objects as for adding one document, or plain strings.",
    )


class ListDocuments(RequestBody):
    model_config = example(containerTags=["team:a"], limit=20, page=1)

    container_tag: str | None = None
    container_tags: TagsIn | None = None
    limit: int = Field(default=10, ge=1, le=1100)
    page: int = Field(default=1, ge=1, le=1_000_000)
    sort: Literal["createdAt", "updatedAt"] = "createdAt"
    order: Literal["asc", "desc"] = "desc"
    filters: FiltersIn = None
    filepath: Label | None = None
    archive_id: Id | None = Field(
        default=None, description="Only the files in this archive or mail."
    )
    status: str | None = None
    include_content: bool = False


class BulkDelete(RequestBody):
    model_config = example(ids=["notes/1", "notes/2"])

    # An empty list names nothing: what stands beside it would be deleted without that limit.
    ids: list[Id] | None = Field(None, min_length=1, max_length=100)
    container_tags: Annotated[TagsIn, Field(min_length=1)] | None = None
    filepath: Label | None = None


class RetryDocuments(RequestBody):
    model_config = example(failed=True)

    ids: list[Id] | None = Field(None, max_length=1000)
    failed: bool = False


def _said(value: object) -> object:
    if not isinstance(value, str | list | None):
        raise ValueError("must be text, or a list of parts")
    return cleaned(cast("object", value))


class Message(RequestBody):
    """One turn. `content` is a text, or parts of a message as language models take them."""

    model_config = ConfigDict(alias_generator=None, populate_by_name=True, extra="ignore")

    role: Literal["user", "assistant", "system", "tool"]
    content: Annotated[str | list[Any] | None, BeforeValidator(_said)] = None
    name: Annotated[Text, Field(max_length=200), AfterValidator(intake.plain)] | None = None
    tool_calls: Annotated[list[Any] | None, BeforeValidator(cleaned)] = None
    tool_call_id: Text | None = None


class Conversation(RequestBody):
    model_config = example(
        conversationId="chat/1", messages=[{"role": "user", "content": "What is a heron?"}]
    )

    conversation_id: CustomId
    messages: list[Message] = Field(min_length=1, max_length=10_000)
    container_tag: str | None = None
    container_tags: TagsIn | None = None
    metadata: MetadataIn | None = None
    entity_context: EntityContext | None = None


class WrittenOut(Wire):
    id: str
    status: str
    warnings: list[str] | None = WARNINGS


class BatchItem(Wire):
    id: str
    status: str
    error: str | None = ABSENT
    details: str | None = ABSENT
    url: str | None = ABSENT
    warnings: list[str] | None = WARNINGS


class BatchOut(Wire):
    results: list[BatchItem]
    success: int
    failed: int
    warnings: list[str] | None = WARNINGS


class ChangedOut(Wire):
    """What the last finished revision did to the index, in chunks."""

    total: int
    reused: int
    embedded: int
    removed: int

    @classmethod
    def of(cls, changed: Changed) -> Self:
        return cls(
            total=changed.chunks,
            reused=changed.reused,
            embedded=changed.embedded,
            removed=changed.removed,
        )


class ListedDocument(Wire):
    id: str
    status: str
    processing_stage: str | None
    type: str
    title: str | None
    summary: str | None
    url: str | None
    custom_id: str | None
    container_tags: list[str]
    container_tag: str | None
    metadata: dict[str, Any] | None
    connection_id: str | None
    filepath: str | None
    created_at: Timestamp
    updated_at: Timestamp
    error_code: str | None = ABSENT
    error_message: str | None = ABSENT
    content: str | None = ABSENT
    archive_id: str | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="Of a file in an archive or a mail: the document that is that.",
    )
    archive_path: str | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="Its path in there.",
    )
    members: int | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="Of an archive, or a mail with attachments: how many documents came out of it.",
    )
    warnings: list[str] = Field(
        default=[],
        exclude_if=lambda value: not value,
        description="What of it was not read, and why.",
    )

    @classmethod
    def fields(cls, document: Document, words: str) -> dict[str, Any]:
        failure = document.failure
        return {
            "id": document.id,
            "status": public_status(document, words),
            "processing_stage": document.stage,
            "type": document.kind,
            "title": document.title,
            "summary": None,
            "url": document.url,
            "custom_id": document.custom_id,
            "container_tags": document.container_tags,
            "container_tag": document.container_tags[0],
            "metadata": document.metadata,
            "connection_id": document.connection_id,
            "filepath": document.filepath,
            "created_at": document.created_at,
            "updated_at": document.updated_at,
            "error_code": failure.code if failure else None,
            "error_message": failure.message if failure else None,
            "content": document.text,
            "archive_id": document.archive_id,
            "archive_path": document.archive_path,
            "members": document.members,
            "warnings": list(document.warnings),
        }

    @classmethod
    def of(cls, document: Document, words: str) -> Self:
        return cls(**cls.fields(document, words))


class TemporalContext(RequestBody):
    """When something was said, and when what it is about happens; dates or times, as given."""

    document_date: Annotated[Text, Field(max_length=100)] | None = None
    event_date: list[Annotated[Text, Field(max_length=100)]] | None = Field(None, max_length=100)


class MemoryOut(Wire):
    id: str
    memory: str
    version: int
    parent_memory_id: str | None = Field(description="The version before.")
    root_memory_id: str | None = Field(description="The first version; null in itself.")
    is_latest: bool
    is_forgotten: bool
    is_static: bool
    is_inference: bool
    buckets: list[str] = Field(description="Keys of profile buckets.")
    source_count: int
    metadata: dict[str, Any] | None
    temporal_context: TemporalContext | None = absent()
    forget_after: Timestamp | None
    forget_reason: str | None
    created_at: Timestamp
    updated_at: Timestamp

    @classmethod
    def fields(cls, memory: Memory) -> dict[str, Any]:
        return {
            "id": memory.id,
            "memory": memory.content,
            "version": memory.version,
            "parent_memory_id": memory.parent_id,
            "root_memory_id": memory.root_id,
            "is_latest": memory.is_latest,
            "is_forgotten": memory.is_forgotten,
            "is_static": memory.is_static,
            "is_inference": memory.is_inference,
            "buckets": memory.buckets,
            "source_count": len(memory.sources),
            "metadata": memory.metadata,
            "temporal_context": memory.temporal,
            "forget_after": memory.forget_after,
            "forget_reason": memory.forget_reason,
            "created_at": memory.created_at,
            "updated_at": memory.updated_at,
        }

    @classmethod
    def of(cls, memory: Memory) -> Self:
        return cls(**cls.fields(memory))


class DocumentOut(ListedDocument):
    content: str | None = None
    source: str | None
    task_type: str
    dreaming_status: Literal["dreaming", "done"]
    latest_revision: int
    active_content_update_id: str | None
    tombstoned_at: Timestamp | None
    document_date: Timestamp | None
    raw: Any | None
    og_image: str | None
    spatial_point: None
    attempts: int
    next_attempt_at: Timestamp | None
    queued_before: int | None = Field(
        description="How many of the same container tag are processed before it, at most 10,000;"
        " null unless it waits."
    )
    timings: dict[str, float] = Field(description="Milliseconds per stage, by the last success.")
    warnings: list[str] = Field(default=[])
    chunks: ChangedOut | None = Field(description="What the last change cost, in chunks.")
    memories: list[MemoryOut] | None = absent()

    @classmethod
    def of(
        cls,
        document: Document,
        words: str,
        ahead: int | None = None,
        memories: Sequence[Memory] = (),
        dreaming: Dreaming | None = None,
    ) -> Self:
        pending = document.status in (Status.QUEUED, Status.PROCESSING)
        fields = cls.fields(document, words)
        if dreaming is not None and dreaming.failure is not None:
            fields["warnings"].append(f"Memories: {dreaming.failure.message}")
        return cls(
            **fields,
            source=document.source,
            task_type=document.task_type,
            dreaming_status="dreaming" if pending or (dreaming and dreaming.pending) else "done",
            latest_revision=document.revision,
            active_content_update_id=f"{document.id}.{document.revision}" if pending else None,
            tombstoned_at=None,
            document_date=document.document_date,
            raw=None,
            og_image=None,
            spatial_point=None,
            attempts=document.attempts,
            next_attempt_at=document.due_at if document.status is Status.QUEUED else None,
            queued_before=ahead,
            timings=dict(document.timings),
            chunks=ChangedOut.of(document.changed) if document.changed else None,
            memories=[MemoryOut.of(memory) for memory in memories] or None,
        )


class VersionOut(Wire):
    revision: int
    title: str | None
    characters: int
    chunk_count: int
    known_from: Timestamp
    known_until: Timestamp | None

    @classmethod
    def of(cls, version: Version) -> Self:
        return cls(
            revision=version.revision,
            title=version.title,
            characters=version.characters,
            chunk_count=version.chunks,
            known_from=version.known_from,
            known_until=version.known_until,
        )


class VersionList(Wire):
    versions: list[VersionOut]


class DocumentList(Wire):
    memories: list[ListedDocument]
    pagination: Pagination
    warnings: list[str] | None = WARNINGS


class DeleteError(Wire):
    id: str
    error: str


class BulkDeleted(Wire):
    success: bool
    deleted_count: int
    errors: list[DeleteError] | None = ABSENT
    container_tags: list[str] | None = ABSENT
    warnings: list[str] | None = WARNINGS


class StatusCounts(Wire):
    queued: int
    processing: int
    done: int
    failed: int


class Retried(Wire):
    ids: list[str] = Field(description="What was queued.")
    warnings: list[str] | None = WARNINGS


class ProcessingDocument(Wire):
    id: str
    status: str
    processing_stage: str | None
    type: str
    title: str | None
    summary: str | None
    custom_id: str | None
    container_tags: list[str]
    metadata: dict[str, Any] | None
    connection_id: str | None
    created_at: Timestamp
    updated_at: Timestamp
    stuck: bool = Field(description="Unfinished, and nothing happened to it for 4 hours.")
    error_code: str | None = ABSENT
    error_message: str | None = ABSENT

    @classmethod
    def of(cls, document: Document, words: str, *, stale_before: datetime) -> Self:
        unfinished = document.status in (Status.QUEUED, Status.PROCESSING)
        return cls(
            **ListedDocument.fields(document, words),
            stuck=unfinished and document.updated_at < stale_before,
        )


class ProcessingOut(Wire):
    documents: list[ProcessingDocument]
    total_count: int
    pagination: Pagination | None = ABSENT


class ChunkOut(Wire):
    id: str
    position: int
    content: str
    type: str
    metadata: dict[str, Any] | None
    created_at: Timestamp
    start: int = Field(description="Offset into the document's content, in code points.")
    end: int
    place: dict[str, Any] = PLACE


class ChunksOut(Wire):
    document_id: str
    chunks: list[ChunkOut]
    total: int

    @classmethod
    def of(cls, document: Document, chunks: Sequence[Chunk]) -> Self:
        shown = [
            ChunkOut(
                id=f"{document.id}.{chunk.position}",
                position=chunk.position,
                content=chunk.text,
                type="text",
                metadata=None,
                created_at=document.created_at,
                place=dict(chunk.place),
                start=chunk.start,
                end=chunk.end,
            )
            for chunk in chunks
        ]
        return cls(document_id=document.id, chunks=shown, total=len(shown))


class FileUrl(Wire):
    url: str


class ConversationWritten(Wire):
    id: str
    conversation_id: str
    status: str
    warnings: list[str] | None = WARNINGS


def public_status(document: Document, words: str) -> str:
    """`status` as shown: the interface's words, or with `sdk` the finer stage."""
    return status_word(document.status, document.stage, words)


def status_word(status: str, stage: str | None, words: str) -> str:
    """`public_status` of what is known without its document."""
    if words == "sdk" and status == Status.PROCESSING:
        return stage or Stage.EXTRACTING
    return status
