"""Wire models: the only place that knows the JSON names.

Requests ignore unknown fields and take null for absent, as older and newer clients expect.
Answers show nullable fields as null and leave optional ones out.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from difflib import get_close_matches
from functools import cache
from itertools import chain
from typing import Annotated, Any, Literal, Self, cast, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from recollect import documents
from recollect.documents import Version
from recollect.ingest import intake
from recollect.memories.extraction_queue import Dreaming
from recollect.memories.records import Memory
from recollect.model import Changed, Chunk, Document, Hit, HitChunk, Page, Stage, Status, storable
from recollect.orgs import tags
from recollect.orgs.settings import CREDENTIAL_LENGTH, PATTERN_LENGTH, PATTERNS, PROMPT_LENGTH
from recollect.orgs.tags import Merge, TagDetails
from recollect.sync.item_filter import KEYS as FILTER_KEYS

MESSAGE_LEVELS = 32
MOST_NAMED = 10
LONGEST_NAMED = 100
"""Of the fields that a request has and should not: how many are named, and how much of a name."""


def text(value: str) -> str:
    """Text as PostgreSQL and UTF-8 can hold it: NUL and lone surrogates become U+FFFD."""
    return storable(value)


def _storable(value: object) -> object:
    """`text` before anything else looks at the value."""
    return text(value) if isinstance(value, str) else value


def _cleaned(value: object) -> object:
    """`text` at any depth of a JSON value."""
    return _cleaned_to(value, MESSAGE_LEVELS)


def _cleaned_to(value: object, levels: int) -> object:
    if levels == 0:
        raise ValueError(f"nests deeper than {MESSAGE_LEVELS} levels")
    match value:
        case str():
            return text(value)
        case list():
            elements = cast("list[object]", value)
            return [_cleaned_to(element, levels - 1) for element in elements]
        case dict():
            pairs = cast("dict[str, object]", value).items()
            return {text(key): _cleaned_to(element, levels - 1) for key, element in pairs}
        case _:
            return value


def _moment(value: object) -> object:
    """A date or a timestamp; without a zone it is UTC."""
    if isinstance(value, datetime):
        return value
    if isinstance(value, str):
        try:
            if len(value) == 10:
                found = date.fromisoformat(value)
                return datetime(found.year, found.month, found.day, tzinfo=UTC)
            moment = datetime.fromisoformat(value)
            # Years 1 to 9999, in UTC too: else it could be stored, but never be read again.
            return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        except (ValueError, OverflowError) as error:
            raise ValueError("a date YYYY-MM-DD or an ISO 8601 timestamp") from error
    raise ValueError("a date YYYY-MM-DD or an ISO 8601 timestamp")


def json_text(value: object) -> object:
    """An object, or JSON text of one (multipart fields, and filters of older clients)."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise ValueError("must be JSON") from error


def not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty")
    return value


Text = Annotated[str, BeforeValidator(_storable)]
DocumentType = Literal[
    "text",
    "pdf",
    "tweet",
    "google_doc",
    "google_slide",
    "google_sheet",
    "image",
    "video",
    "audio",
    "notion_doc",
    "webpage",
    "onedrive",
    "github_markdown",
    "granola",
]
ContentText = Annotated[Text, AfterValidator(intake.text)]
Id = Annotated[Text, Field(description="Id or customId.")]
CustomId = Annotated[str, Field(min_length=1, max_length=255), AfterValidator(intake.plain)]
Label = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(intake.plain)]
EntityContext = Annotated[Text, Field(max_length=1500)]
Moment = Annotated[
    datetime,
    BeforeValidator(_moment),
    WithJsonSchema({"type": "string", "examples": ["2026-11-20"]}),
]
AsOf = Annotated[
    Moment | None, Field(description="Search what was known then, of texts that are kept.")
]
MetadataIn = Annotated[
    dict[str, Any],
    BeforeValidator(json_text),
    AfterValidator(intake.metadata),
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": {
                "anyOf": [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]
            },
            "examples": [{"source": "wiki", "year": 2026, "public": True}],
        }
    ),
]
TagsIn = Annotated[list[str], Field(max_length=100)]
FiltersIn = Annotated[
    Any,
    WithJsonSchema(
        {
            "anyOf": [{"type": "object"}, {"type": "string"}],
            "description": "{AND: […]} or {OR: […]}, as an object or as JSON text.",
        }
    ),
]
Timestamp = Annotated[
    datetime,
    PlainSerializer(
        lambda moment: moment.astimezone(UTC).isoformat(timespec="milliseconds")[:23] + "Z",
        return_type=str,
    ),
    WithJsonSchema({"type": "string", "format": "date-time"}, mode="serialization"),
]
_ABSENT: Any = Field(default=None, exclude_if=lambda value: value is None)


def absent() -> Any:
    """A field that is left out when it is None."""
    return _ABSENT


WARNINGS: Any = Field(
    default=None,
    description="What was asked for and not done, and why.",
    exclude_if=lambda value: value is None,
)
PLACE: Any = Field(
    description="Where it stands in the original, what applies: page, sheet, row, time (seconds),"
    " message, heading (the path of headings); …End where it goes on to another.",
    examples=[{"page": 3, "heading": ["Setup", "Linux"]}],
)


class Wire(BaseModel):
    """camelCase outside, snake_case inside."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True
    )


def _kinds(annotation: object) -> Iterator[object]:
    """The types that an annotation names, those of a union one by one."""
    yield annotation
    for one in get_args(annotation):
        yield from _kinds(one)


class RequestBody(Wire):
    """What a caller sends: null in a field that has a default means the default."""

    _passed_over: tuple[str, ...] = ()

    @model_validator(mode="wrap")
    @classmethod
    def _without_nulls(cls, given: object, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(given, dict):
            return handler(given)
        known, filled = _spellings(cls)
        pairs = cast("dict[str, object]", given)
        made = handler(
            {
                name: value
                for name, value in pairs.items()
                if value is not None or name not in filled
            }
        )
        made._passed_over = tuple(name for name in pairs if name not in known)
        return made

    def passed_over(self) -> list[str] | None:
        """A sentence for each field that is none of this request, the first ten; None: none is."""
        names = [field.alias or name for name, field in type(self).model_fields.items()]
        by_lower = {name.lower(): name for name in names}
        sentences: list[str] = []
        for given in self._passed_over[:MOST_NAMED]:
            near = get_close_matches(given.lower()[:LONGEST_NAMED], by_lower, 1, cutoff=0.75)
            meant = f"; did you mean {by_lower[near[0]]}?" if near else "."
            sentences.append(f"{text(given[:LONGEST_NAMED])}: no such field, ignored{meant}")
        return sentences or None

    @field_validator("*", mode="before")
    @classmethod
    def _no_flag_for_a_number(cls, value: object, field: ValidationInfo) -> object:
        """Python takes true for 1, a caller does not."""
        if isinstance(value, bool):
            kinds = {*_kinds(cls.model_fields[field.field_name or ""].annotation)}
            if kinds & {int, float} and bool not in kinds:
                raise PydanticCustomError("number_type", "must be a number, not true or false")
        return value


@cache
def _spellings(model: type[BaseModel]) -> tuple[frozenset[str], frozenset[str]]:
    """Names of all fields, and of those in which null means the default."""
    fields = model.model_fields
    filled = [
        (name, field.alias or name)
        for name, field in fields.items()
        if not field.is_required() and field.default is not None
    ]
    known = fields.keys() | {field.alias or name for name, field in fields.items()}
    return frozenset(known), frozenset(chain.from_iterable(filled))


def example(**body: Any) -> ConfigDict:
    """Shown in the OpenAPI document."""
    return ConfigDict(json_schema_extra={"examples": [body]})


# --- requests ----------------------------------------------------------------------------------


class ContentLabels(RequestBody):
    """What may stand beside a content."""

    custom_id: CustomId | None = None
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


class BatchAdd(ContentLabels):
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
        default=None, description="Only the files that came out of this archive."
    )
    status: str | None = None
    include_content: bool = False


class BulkDelete(RequestBody):
    model_config = example(ids=["notes/1", "notes/2"])

    ids: list[Id] | None = Field(None, max_length=100)
    container_tags: TagsIn | None = None
    filepath: Label | None = None


class RetryDocuments(RequestBody):
    model_config = example(failed=True)

    ids: list[Id] | None = Field(None, max_length=1000)
    failed: bool = False


class SearchRequest(RequestBody):
    model_config = example(q="When do we meet?", containerTags=["team:a"], limit=5)

    q: Annotated[Text, Field(max_length=10_000), AfterValidator(not_blank)]
    limit: int = Field(default=10, ge=1, le=100)
    chunk_threshold: float = Field(0, ge=0, le=1, description="The least score of a passage.")
    document_threshold: float | None = Field(
        None, ge=0, le=1, description="The least score of a document, which is its best passage's."
    )
    container_tag: str | None = None
    container_tags: TagsIn | None = None
    filters: FiltersIn = None
    doc_id: Id | None = None
    include_full_docs: bool = False
    include_summary: bool = False
    only_matching_chunks: bool = True
    rerank: bool = False
    rewrite_query: bool = False
    fold_duplicates: bool = False
    as_of: AsOf = None
    categories_filter: list[str] | None = Field(None, description="Ignored.")
    filepath: Label | None = None


PatternList = Annotated[
    list[Annotated[Text, Field(min_length=1, max_length=PATTERN_LENGTH)]],
    Field(max_length=PATTERNS),
]


class FilterPatterns(RequestBody):
    url_patterns: PatternList = []
    title_patterns: PatternList = []


def _patterns(value: object) -> object:
    """The interface's object; also an array of patterns or one pattern, for url and title both."""
    match value:
        case str():
            return {"urlPatterns": [value], "titlePatterns": [value]}
        case list():
            return {"urlPatterns": cast("object", value), "titlePatterns": cast("object", value)}
        case Mapping() | FilterPatterns():
            return cast("object", value)
        case _:
            raise ValueError("an object {urlPatterns, titlePatterns}, patterns, or one pattern")


PatternsIn = Annotated[FilterPatterns, BeforeValidator(_patterns)]
Prompt = Annotated[Text, Field(max_length=PROMPT_LENGTH)]
Credential = Annotated[Text, Field(max_length=CREDENTIAL_LENGTH)]


class Bucket(RequestBody):
    """A group of profile facts."""

    key: Annotated[str, Field(pattern=tags.BUCKET_KEY)]
    description: Annotated[Text, Field(max_length=tags.BUCKET_LENGTH)] | None = None

    @field_validator("key")
    @classmethod
    def _free(cls, key: str) -> str:
        if key in tags.BUCKETS_OF_THE_SERVICE:
            raise ValueError(f"{key} is a bucket of the service itself")
        return key


class SettingsPatch(RequestBody):
    """Any of them; null clears."""

    model_config = example(
        shouldLLMFilter=False, excludeItems={"urlPatterns": ["*/drafts/*"], "titlePatterns": []}
    )

    should_llm_filter: Annotated[bool | None, Field(alias="shouldLLMFilter")] = None
    include_items: PatternsIn | None = None
    exclude_items: PatternsIn | None = None
    filter_prompt: Prompt | None = None
    workspace_prompt: Prompt | None = None
    keep_versions: int | None = Field(None, ge=0, le=documents.MOST_KEPT)
    # As wide as the published clients take it to be; nothing reads it.
    chunk_size: int | None = Field(None, ge=-(2**31), lt=2**31)
    profile_buckets: list[Bucket] | None = Field(None, max_length=50)
    notion_custom_key_enabled: bool | None = None
    notion_client_id: Credential | None = None
    notion_client_secret: Credential | None = None
    google_drive_custom_key_enabled: bool | None = None
    google_drive_client_id: Credential | None = None
    google_drive_client_secret: Credential | None = None
    onedrive_custom_key_enabled: bool | None = None
    onedrive_client_id: Credential | None = None
    onedrive_client_secret: Credential | None = None
    github_custom_key_enabled: bool | None = None
    github_client_id: Credential | None = None
    github_client_secret: Credential | None = None

    def given(self) -> dict[str, Any]:
        """What the caller named, null included, on the wire's spelling."""
        return self.model_dump(by_alias=True, exclude_unset=True, mode="json")


class FilterPreview(RequestBody):
    """A change of the filter to try out: any of its settings; null clears, absent stays."""

    model_config = example(
        excludeItems={"urlPatterns": [], "titlePatterns": ["Draft *"]}, examples=5
    )

    should_llm_filter: Annotated[bool | None, Field(alias="shouldLLMFilter")] = None
    include_items: PatternsIn | None = None
    exclude_items: PatternsIn | None = None
    filter_prompt: Prompt | None = None
    connection_id: Text | None = Field(default=None, description="Only this one; all if absent.")
    ask: bool = Field(
        default=False,
        description="Have the model judge up to 50 things that it never judged by this prompt.",
    )
    examples: int = Field(default=10, ge=0, le=100, description="Of each effect and connection.")

    def given(self) -> dict[str, Any]:
        """The settings that the caller named, null included, on the wire's spelling."""
        every = self.model_dump(by_alias=True, exclude_unset=True, mode="json")
        return {name: value for name, value in every.items() if name in FILTER_KEYS}


class TagPatch(RequestBody):
    """Any of them; null clears."""

    model_config = example(name="Team A", entityContext="Minutes of the weekly meeting.")

    name: (
        Annotated[Text, Field(max_length=tags.TITLE_LENGTH, description="Shown to people.")] | None
    ) = None
    entity_context: EntityContext | None = None
    profile_buckets: list[Bucket] | None = Field(None, max_length=50)

    def given(self) -> dict[str, Any]:
        """What the caller named, null included."""
        found = self.model_dump(exclude_unset=True)
        if "name" in found:
            found["title"] = found.pop("name")
        return found


class MergeTags(RequestBody):
    model_config = example(containerTags=["team:old"], targetContainerTag="team:a")

    container_tags: Annotated[list[str], Field(min_length=1, max_length=100)] = Field(
        description="What goes; the target may be among them."
    )
    target_container_tag: str


class Reset(RequestBody):
    model_config = example(confirmation="default")

    confirmation: str = Field(description="The `orgSlug`, so that nobody does it by mistake.")


class NewScopedKey(RequestBody):
    model_config = example(containerTag="team:a", expiresInDays=30)

    container_tag: str = Field(examples=["user_123"])
    name: Annotated[Text, Field(max_length=100)] | None = None
    expires_in_days: int | None = Field(
        None, ge=1, le=365, description="Never, if this and `expires` are absent."
    )
    expires: Annotated[str, Field(max_length=100)] | None = Field(
        None,
        description="More exactly: how long (90m, 2h, 30d) or until when (a date, an ISO time);"
        " a year at most.",
    )
    rate_limit_max: int = Field(500, ge=1, le=1_000_000, description="Requests in each window.")
    rate_limit_time_window: int = Field(
        60_000, ge=1_000, le=3_600_000, description="Length of the window in milliseconds."
    )


class Message(RequestBody):
    """One turn. `content` is a text, or parts of a message as language models take them."""

    model_config = ConfigDict(alias_generator=None, populate_by_name=True, extra="ignore")

    role: Literal["user", "assistant", "system", "tool"]
    content: Annotated[str | list[Any] | None, BeforeValidator(_cleaned)] = None
    name: Annotated[Text, Field(max_length=200), AfterValidator(intake.plain)] | None = None
    tool_calls: Annotated[list[Any] | None, BeforeValidator(_cleaned)] = None
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


# --- answers -----------------------------------------------------------------------------------


class WrittenOut(Wire):
    id: str
    status: str
    warnings: list[str] | None = WARNINGS


class BatchItem(Wire):
    id: str
    status: str
    error: str | None = _ABSENT
    details: str | None = _ABSENT
    url: str | None = _ABSENT
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
    error_code: str | None = _ABSENT
    error_message: str | None = _ABSENT
    content: str | None = _ABSENT
    archive_id: str | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="Of a file out of an archive: the document that is the archive.",
    )
    archive_path: str | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="Where it lay in the archive.",
    )
    members: int | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="Of an archive: how many documents came out of it.",
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
        }

    @classmethod
    def of(cls, document: Document, words: str) -> Self:
        return cls(**cls.fields(document, words))


class TemporalContext(Wire):
    """When something was said, and when what it tells happens; dates or times, as given."""

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
    warnings: list[str]
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
        warnings = list(document.warnings)
        if dreaming is not None and dreaming.failure is not None:
            warnings.append(f"Memories: {dreaming.failure.message}")
        return cls(
            **cls.fields(document, words),
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
            warnings=warnings,
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


class Pagination(Wire):
    current_page: int
    limit: int
    total_items: int
    total_pages: int

    @classmethod
    def of(cls, page: Page[Any]) -> Self:
        return cls(
            current_page=page.number,
            limit=page.limit,
            total_items=page.total,
            total_pages=-(-page.total // page.limit),
        )


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
    errors: list[DeleteError] | None = _ABSENT
    container_tags: list[str] | None = _ABSENT


class StatusCounts(Wire):
    queued: int
    processing: int
    done: int
    failed: int


class Retried(Wire):
    ids: list[str] = Field(description="What was queued.")


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
    error_code: str | None = _ABSENT
    error_message: str | None = _ABSENT

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
    pagination: Pagination | None = _ABSENT


class ChunkOut(Wire):
    id: str
    position: int
    content: str
    type: str
    metadata: dict[str, Any] | None
    created_at: Timestamp
    start: int = Field(description="Offset into the document's content, in characters.")
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


class TagOut(Wire):
    container_tag: str
    name: str | None = Field(description="Shown to people.")
    entity_context: str | None
    profile_buckets: list[Any] | None
    document_count: int
    created_at: Timestamp
    updated_at: Timestamp

    @classmethod
    def of(cls, details: TagDetails) -> Self:
        buckets = details.profile_buckets
        return cls(
            container_tag=details.tag.name,
            name=details.title,
            entity_context=details.tag.entity_context,
            profile_buckets=None if buckets is None else list(buckets),
            document_count=details.documents,
            created_at=details.tag.created_at,
            updated_at=details.updated_at,
        )


class TagList(Wire):
    container_tags: list[TagOut]
    pagination: Pagination


class TagDeleted(Wire):
    success: bool
    container_tag: str
    deleted_count: int = Field(description="Documents that carried only this tag.")
    connections: list[str] = Field(
        description="Ids of connections that still name the tag: their next sync makes it again."
    )


class MergeOut(Wire):
    merge_id: str
    status: Literal["queued", "processing", "completed", "failed"]
    success: bool = Field(description="Completed, and every document was moved.")
    error: str | None = Field(None, description="Why it failed; what was moved stays moved.")
    merged_count: int = Field(description="Documents moved until now.")
    target_tag: str
    source_tags: list[str]
    kept_documents: list[str] = Field(
        description="Ids of those that keep their tag: the target has another of their customId."
    )
    created_at: Timestamp
    updated_at: Timestamp

    @classmethod
    def of(cls, merge: Merge) -> Self:
        status = "processing" if merge.moved or merge.kept else "queued"
        ended = "completed" if merge.reason is None else "failed"
        return cls(
            merge_id=merge.id,
            status=ended if merge.finished_at else status,
            success=merge.finished_at is not None and ended == "completed" and not merge.kept,
            error=merge.reason,
            merged_count=merge.moved,
            target_tag=merge.target,
            source_tags=list(merge.sources),
            kept_documents=list(merge.kept),
            created_at=merge.created_at,
            updated_at=merge.updated_at,
        )


class ResetDone(Wire):
    success: bool
    deleted_count: int = Field(description="Documents.")


class ScopedKey(Wire):
    key: str = Field(description="The secret; it is kept nowhere.")
    id: str
    name: str
    container_tag: str
    expires_at: Timestamp | None
    allowed_endpoints: list[str]


class AssistantOut(Wire):
    id: str
    name: str
    key_id: str
    scope: str
    container_tags: list[str] | None
    created_at: Timestamp
    last_used_at: Timestamp | None


class AssistantList(Wire):
    assistants: list[AssistantOut] = Field(description="Those that can still ask.")


class AlsoInOut(Wire):
    document_id: str
    title: str | None
    position: int
    start: int
    end: int

    @classmethod
    def of(cls, chunk: HitChunk) -> list[Self] | None:
        return [
            cls(
                document_id=one.document.id,
                title=one.document.title,
                position=one.position,
                start=one.start,
                end=one.end,
            )
            for one in chunk.also_in
        ] or None


class HitChunkOut(Wire):
    content: str
    score: float
    is_relevant: bool
    position: int
    start: int = Field(description="Offset into the document's content, in characters.")
    end: int
    similarity: float | None = Field(description="Cosine of the vectors, without an embedder null.")
    lexical: float = Field(description="BM25 score.")
    rerank_score: float | None = Field(
        default=None,
        description="What the reranker makes of it, which counts in the order. Absent: it was not"
        " judged.",
        exclude_if=lambda value: value is None,
    )
    place: dict[str, Any] = PLACE
    also_in: list[AlsoInOut] | None = _ABSENT

    @classmethod
    def of(cls, chunk: HitChunk) -> Self:
        return cls(
            content=chunk.text,
            score=round(chunk.score, 6),
            is_relevant=chunk.is_relevant,
            position=chunk.position,
            start=chunk.start,
            end=chunk.end,
            similarity=None if chunk.similarity is None else round(chunk.similarity, 6),
            lexical=round(chunk.lexical, 6),
            rerank_score=None if chunk.reranked is None else round(chunk.reranked, 6),
            place=dict(chunk.place),
            also_in=AlsoInOut.of(chunk),
        )


class HitOut(Wire):
    document_id: str
    title: str | None
    type: str
    score: float
    chunks: list[HitChunkOut]
    metadata: dict[str, Any] | None
    created_at: Timestamp
    updated_at: Timestamp
    custom_id: str | None
    url: str | None
    filepath: str | None
    content: str | None = _ABSENT
    summary: str | None = None

    @classmethod
    def of(cls, hit: Hit) -> Self:
        document = hit.document
        return cls(
            document_id=document.id,
            title=document.title,
            type=document.kind,
            score=round(hit.score, 6),
            chunks=[HitChunkOut.of(chunk) for chunk in hit.chunks],
            metadata=None if document.metadata is None else dict(document.metadata),
            created_at=document.created_at,
            updated_at=document.updated_at,
            custom_id=document.custom_id,
            url=document.url,
            filepath=document.filepath,
            content=document.text,
        )


class SearchOut(Wire):
    results: list[HitOut]
    timing: float = Field(description="Milliseconds.")
    total: int
    warnings: list[str] | None = WARNINGS


Shown = Annotated[str | None, Field(description="Shown masked.")]
PatternsOut = Annotated[
    dict[str, list[str]] | None, Field(description="{urlPatterns, titlePatterns}, those given.")
]


class SettingsOut(Wire):
    """All of them; what nobody set is null or false."""

    should_llm_filter: Annotated[bool, Field(alias="shouldLLMFilter")]
    include_items: PatternsOut
    exclude_items: PatternsOut
    filter_prompt: str | None
    workspace_prompt: str | None
    keep_versions: int
    chunk_size: int | None
    profile_buckets: list[dict[str, Any]] | None
    notion_custom_key_enabled: bool
    notion_client_id: str | None
    notion_client_secret: Shown
    google_drive_custom_key_enabled: bool
    google_drive_client_id: str | None
    google_drive_client_secret: Shown
    onedrive_custom_key_enabled: bool
    onedrive_client_id: str | None
    onedrive_client_secret: Shown
    github_custom_key_enabled: bool
    github_client_id: str | None
    github_client_secret: Shown


class SettingsChanged(Wire):
    org_id: str
    org_slug: str
    updated: SettingsOut
    warnings: list[str] | None = WARNINGS


class FilterExample(Wire):
    effect: Literal["add", "drop", "undecided"]
    id: str
    title: str | None
    url: str | None
    before: str | None = Field(description="What was noted when it was seen last.")
    reason: str | None = Field(description="What this filter says: a pattern, the model's word.")


class FilterEffect(Wire):
    """What a filter does to the things that one connection remembers."""

    connection_id: str
    provider: str
    known: int = Field(description="Things that are documents, or that a filter kept out.")
    adds: int = Field(description="Kept out now; a sync would let them in, if there is room.")
    drops: int = Field(description="Documents that would be refused were they new. They stay.")
    undecided: int = Field(description="Only the model could say, and it has not.")
    examples: list[FilterExample]


class FilterPreviewed(Wire):
    adds: int
    drops: int
    undecided: int
    asked: int = Field(description="Things that the model was asked about for this answer.")
    connections: list[FilterEffect]
    notes: list[str] = Field(description="Sentences for people.")


class Health(Wire):
    status: Literal["ok"]


class Canary(Wire):
    """How the last document that the service gave itself to process fared."""

    ok: bool
    reason: str | None = Field(description="Why it did not come through.")
    age_seconds: int
    ms: float


class Readiness(Wire):
    status: Literal["ready", "failing"]
    reason: str | None = Field(
        default=None,
        description="Why nothing is processed.",
        exclude_if=lambda value: value is None,
    )
    warning: str | None = Field(
        default=None,
        description="What the operator should know: which layer of confinement the readers lack,"
        " which replicas do not answer.",
        exclude_if=lambda value: value is None,
    )
    canary: Canary | None = absent()


def public_status(document: Document, words: str) -> str:
    """`status` as shown: the interface's words, or with `sdk` the finer stage."""
    return status_word(document.status, document.stage, words)


def status_word(status: str, stage: str | None, words: str) -> str:
    """`public_status` of what is known without its document."""
    if words == "sdk" and status == Status.PROCESSING:
        return stage or Stage.EXTRACTING
    return status
