"""Container tags on the wire, and merges of them."""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
)

from recollect.api.settings_schemas import BucketsIn
from recollect.api.wire import (
    WARNINGS,
    EntityContext,
    Pagination,
    RequestBody,
    Text,
    Timestamp,
    Wire,
    example,
)
from recollect.orgs import tags
from recollect.orgs.tags import Merge, TagDetails


class TagPatch(RequestBody):
    """Any of them; null clears."""

    model_config = example(name="Team A", entityContext="Minutes of the weekly meeting.")

    name: (
        Annotated[Text, Field(max_length=tags.TITLE_LENGTH, description="Shown to people.")] | None
    ) = None
    entity_context: EntityContext | None = None
    profile_buckets: BucketsIn | None = None

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


class TagOut(Wire):
    container_tag: str
    name: str | None = Field(description="Shown to people.")
    entity_context: str | None
    profile_buckets: list[Any] | None
    document_count: int
    created_at: Timestamp
    updated_at: Timestamp
    warnings: list[str] | None = WARNINGS

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
    warnings: list[str] | None = WARNINGS

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
