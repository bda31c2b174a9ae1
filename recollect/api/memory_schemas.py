"""Wire models of memories, the profile, and /v4/search."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field

from recollect.api.document_schemas import MemoryOut, TemporalContext
from recollect.api.search_schemas import AlsoInOut
from recollect.api.settings_schemas import Bucket
from recollect.api.wire import (
    WARNINGS,
    AsOf,
    FiltersIn,
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
    example,
)
from recollect.memories.forgetting import LEAST
from recollect.memories.reading import Evidence, Neighbour
from recollect.memories.records import Memory, Relation
from recollect.memories.telling import MEMORY_LENGTH, REASON_LENGTH
from recollect.model import Document
from recollect.orgs.tags import BUCKET_KEY

MOST_MEMORIES = 100
MOST_FORGOTTEN = 500


def _told(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty")
    return value


MemoryText = Annotated[Text, Field(min_length=1, max_length=MEMORY_LENGTH), AfterValidator(_told)]
Question = Annotated[Text, Field(max_length=10_000), AfterValidator(_told)]
Reason = Annotated[Text, Field(max_length=REASON_LENGTH)]
MemoryIdIn = Annotated[Text, Field(min_length=1, max_length=255)]
BucketKey = Annotated[str, Field(pattern=BUCKET_KEY)]
Threshold = Annotated[float, Field(ge=0, le=1)]


# --- requests ----------------------------------------------------------------------------------


class NewMemory(RequestBody):
    content: MemoryText
    is_static: bool = Field(False, description="Stays true in the long run.")
    metadata: MetadataIn | None = Field(None, description="Flat; arrays of strings are allowed.")
    buckets: Annotated[list[BucketKey], Field(max_length=50)] = Field(
        [], description="Profile buckets that it belongs to."
    )
    forget_after: Moment | None = None
    forget_reason: Reason | None = None
    temporal_context: TemporalContext | None = None


class AddMemories(RequestBody):
    model_config = example(
        containerTag="user_123",
        memories=[{"content": "Ann prefers dark mode.", "isStatic": True}],
    )

    container_tag: str
    memories: list[NewMemory] = Field(min_length=1, max_length=MOST_MEMORIES)


class _Named(RequestBody):
    """Which memory: by `id`, or by its exact `content`."""

    container_tag: str
    id: MemoryIdIn | None = None
    content: Annotated[Text, Field(min_length=1, max_length=MEMORY_LENGTH)] | None = None


class UpdateMemory(_Named):
    model_config = example(
        containerTag="user_123",
        content="Ann prefers dark mode.",
        newContent="Ann prefers light mode.",
    )

    new_content: MemoryText
    metadata: MetadataIn | None = None
    forget_after: Moment | None = Field(None, description="null clears it; absent keeps it.")
    forget_reason: Reason | None = None
    temporal_context: TemporalContext | None = None


class ForgetMemory(_Named):
    model_config = example(
        containerTag="user_123", content="Ann prefers dark mode.", reason="no longer true"
    )

    reason: Reason | None = None


class ForgetMatching(RequestBody):
    model_config = example(containerTag="user_123", query="the old office", dryRun=True)

    container_tag: str
    query: Annotated[Text, Field(min_length=1, max_length=2_000), AfterValidator(_told)] | None = (
        None
    )
    ids: Annotated[list[MemoryIdIn], Field(min_length=1, max_length=MOST_FORGOTTEN)] | None = Field(
        None, description="Exactly these, of a dry run; the query then is not asked again."
    )
    dry_run: bool = False
    threshold: Threshold = Field(
        LEAST,
        description="How likely it has to be that the query means a memory; 0.5: as likely as not.",
    )
    max_forget: int = Field(100, ge=1, le=MOST_FORGOTTEN)
    reason: Reason | None = None


class ListMemories(RequestBody):
    model_config = example(containerTags=["user_123"], limit=20)

    container_tag: str | None = None
    container_tags: TagsIn | None = Field(None, description="Memories of any of them.")
    filters: FiltersIn = None
    limit: int = Field(default=10, ge=1, le=1100)
    page: int = Field(default=1, ge=1, le=1_000_000)
    sort: Literal["createdAt", "updatedAt"] = "createdAt"
    order: Literal["asc", "desc"] = "desc"
    include_forgotten: bool = False


class ProfileRequest(RequestBody):
    model_config = example(containerTag="user_123", q="What does she drink?")

    container_tag: str
    q: Question | None = None
    threshold: Threshold = 0.6
    filters: FiltersIn = None
    include: list[Literal["static", "dynamic", "buckets"]] | None = Field(None, max_length=3)
    buckets: Annotated[list[BucketKey], Field(max_length=50)] | None = None


class BucketsRequest(RequestBody):
    model_config = example(containerTag="user_123")

    container_tag: str | None = None


class Include(RequestBody):
    documents: bool = False
    summaries: bool = False
    related_memories: bool = False
    forgotten_memories: bool = False
    chunks: bool = Field(default=False, description="The chunks that a memory was drawn from.")


class MemorySearch(RequestBody):
    model_config = example(q="What does Ann drink?", containerTag="user_123", limit=5)

    q: Question
    container_tag: str | None = None
    container_tags: TagsIn | None = None
    search_mode: Literal["memories", "hybrid", "documents"] = "memories"
    threshold: Threshold = 0.6
    limit: int = Field(default=10, ge=1, le=100)
    filters: FiltersIn = None
    filepath: Label | None = None
    rerank: bool = False
    rewrite_query: bool = False
    fold_duplicates: bool = False
    as_of: AsOf = None
    aggregate: bool = Field(
        default=False,
        description="Put memories that answer together into new ones, beside them; needs a"
        " language model.",
    )
    include: Include = Include()


# --- answers -----------------------------------------------------------------------------------


class MemoriesAdded(Wire):
    document_id: str
    memories: list[MemoryOut]
    warnings: list[str] | None = WARNINGS


class MemoryUpdated(MemoryOut):
    warnings: list[str] | None = WARNINGS


class Forgotten(Wire):
    id: str
    forgotten: bool
    warnings: list[str] | None = WARNINGS


class Candidate(Wire):
    id: str
    memory: str
    score: float


class ForgetMatchingOut(Wire):
    dry_run: bool
    count: int
    remaining: int = Field(description="How many more match: `maxForget` bounds a request.")
    forget_batch_id: str | None
    summary: str
    candidates: list[Candidate] | None = absent()
    forgotten: list[Candidate] | None = absent()
    warnings: list[str] | None = WARNINGS


class MemoryEntry(MemoryOut):
    container_tag: str
    document_ids: list[str]
    history: list[MemoryOut] = Field(description="All versions, newest first.")

    @classmethod
    def entry(cls, memory: Memory, versions: list[Memory]) -> Self:
        return cls(
            **cls.fields(memory),
            container_tag=memory.tag,
            document_ids=list(memory.sources),
            history=[MemoryOut.of(version) for version in versions],
        )


class MemoryList(Wire):
    memory_entries: list[MemoryEntry]
    pagination: Pagination
    warnings: list[str] | None = WARNINGS


class NeighbourOut(Wire):
    memory: str
    relation: str
    version: int | None = absent()
    metadata: dict[str, Any] | None
    updated_at: Timestamp

    @classmethod
    def of(cls, neighbour: Neighbour) -> Self:
        return cls(
            memory=neighbour.memory,
            relation=neighbour.relation,
            version=neighbour.distance,
            metadata=None if neighbour.metadata is None else dict(neighbour.metadata),
            updated_at=neighbour.updated_at,
        )


class Context(Wire):
    parents: list[NeighbourOut]
    children: list[NeighbourOut]
    related: list[NeighbourOut]

    @classmethod
    def of(cls, neighbours: list[Neighbour]) -> Self:
        versions = [one for one in neighbours if one.relation is Relation.UPDATES]
        return cls(
            parents=[NeighbourOut.of(one) for one in versions if (one.distance or 0) < 0],
            children=[NeighbourOut.of(one) for one in versions if (one.distance or 0) > 0],
            related=[
                NeighbourOut.of(one) for one in neighbours if one.relation is not Relation.UPDATES
            ],
        )


class SourceChunk(Wire):
    content: str
    document_id: str
    position: int
    score: float = Field(description="The `similarity` of the memory that was drawn from it.")

    @classmethod
    def of(cls, evidence: Evidence, score: float) -> Self:
        return cls(
            content=evidence.text,
            document_id=evidence.document_id,
            position=evidence.position or 0,
            score=score,
        )


class SourceDocument(Wire):
    """Title, type and metadata come with `include.documents`, the summary with its own."""

    id: str
    created_at: Timestamp
    updated_at: Timestamp
    title: str | None = absent()
    type: str | None = absent()
    metadata: dict[str, Any] | None = absent()

    @classmethod
    def of(cls, document: Document, *, whole: bool) -> Self:
        shown = document.metadata if whole else None
        return cls(
            id=document.id,
            created_at=document.created_at,
            updated_at=document.updated_at,
            title=document.title if whole else None,
            type=document.kind if whole else None,
            metadata=None if shown is None else dict(shown),
        )


class MemoryResult(Wire):
    """A memory (`memory`), or a chunk of a document (`chunk`).

    With `isAggregated`, `id` and `updatedAt` are of no memory: the date is that of the newest.
    """

    id: str
    memory: str | None = absent()
    chunk: str | None = absent()
    similarity: float
    rerank_score: float | None = Field(
        default=None,
        description="What the reranker makes of it, which counts in the order. Absent: it was not"
        " judged.",
        exclude_if=lambda value: value is None,
    )
    metadata: dict[str, Any] | None
    updated_at: Timestamp
    version: int | None = absent()
    root_memory_id: str | None = absent()
    is_forgotten: bool | None = Field(
        default=None,
        description="It was forgotten, and is here since `include.forgottenMemories` asks for it.",
        exclude_if=lambda value: value is None,
    )
    forget_reason: str | None = Field(
        default=None,
        description="Why, where a reason was given.",
        exclude_if=lambda value: value is None,
    )
    filepath: str | None = absent()
    context: Context | None = absent()
    documents: list[SourceDocument] | None = absent()
    chunks: list[SourceChunk] | None = absent()
    is_aggregated: bool | None = Field(
        default=None,
        description="The model made it of several memories for this answer; it is not stored.",
        exclude_if=lambda value: value is None,
    )
    aggregated_from: list[str] | None = Field(
        default=None,
        description="Ids of the memories that it is made of.",
        exclude_if=lambda value: value is None,
    )
    also_in: list[AlsoInOut] | None = absent()


class MemoryResults(Wire):
    results: list[MemoryResult]
    timing: float = Field(description="Milliseconds.")
    total: int
    warnings: list[str] | None = WARNINGS


class ProfileSections(Wire):
    """Only those that were asked for."""

    static: list[str] | None = absent()
    dynamic: list[str] | None = absent()
    buckets: dict[str, list[str]] | None = absent()


class ProfileOut(Wire):
    profile: ProfileSections
    search_results: MemoryResults | None = absent()
    warnings: list[str] | None = WARNINGS


class BucketsOut(Wire):
    buckets: list[Bucket]
    warnings: list[str] | None = WARNINGS
