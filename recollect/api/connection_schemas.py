"""Wire models of connections."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self, cast

from pydantic import Field, model_validator

from recollect.api.document_schemas import public_status
from recollect.api.wire import (
    WARNINGS,
    MetadataIn,
    Pagination,
    RequestBody,
    TagsIn,
    Text,
    Timestamp,
    Wire,
    absent,
    example,
    text,
)
from recollect.connectors.base import Assumption, Resource
from recollect.errors import INTERNAL_ERROR
from recollect.model import Connection, Document, Page, Remembered, SyncRun
from recollect.sync.account_check import CheckReport
from recollect.sync.change_log import FeedEntry, What
from recollect.sync.connections import LIMIT

ErrorCode = Literal[
    "auth_expired", "rate_limited", "plan_required", "provider_unavailable", "internal"
]
_CODES: Mapping[str, ErrorCode] = {
    "auth_expired": "auth_expired",
    "key_lost": "auth_expired",
    "rate_limited": "rate_limited",
    "plan_required": "plan_required",
    INTERNAL_ERROR: "internal",
    "internal": "internal",  # as it was written until 2026
}
"""Our words for what is wrong at a provider (`no_access`, `http_500`) are the runs' own."""
Limit = Annotated[int, Field(ge=1, le=LIMIT)]


class NewConnection(RequestBody):
    """POST /v3/connections/{provider}"""

    model_config = example(
        containerTags=["docs"], documentLimit=500, metadata={"startUrl": "https://docs.example.org"}
    )
    redirect_url: Annotated[Text, Field(max_length=2_000)] | None = None
    container_tag: str | None = None
    container_tags: TagsIn | None = None
    document_limit: Limit | None = None
    metadata: MetadataIn | None = None


class ConnectionPatch(RequestBody):
    """PATCH /v3/connections/{connectionId}: named fields change."""

    model_config = example(documentLimit=1000, paused=False)
    container_tags: TagsIn | None = None
    document_limit: Limit | None = None
    metadata: MetadataIn | None = None
    paused: bool | None = None


class ByTags(RequestBody):
    model_config = example(containerTags=["docs"])
    container_tags: TagsIn | None = None


class ByTagsToDelete(ByTags):
    @model_validator(mode="before")
    @classmethod
    def _spares_nothing(cls, given: object) -> object:
        """Refuse `deleteDocuments` in the body: it would be ignored there, and all documents be
        deleted."""
        named = cast("dict[str, object]", given) if isinstance(given, dict) else {}
        for name, value in named.items():
            if name.lower().startswith("delete") and value is not None:
                raise ValueError(f"{text(name[:80])}: deleteDocuments belongs in the query")
        return cast("object", given)


class Authorize(RequestBody):
    model_config = example(redirectUrl="https://app.example.org/connected")
    redirect_url: Annotated[Text, Field(max_length=2_000)] | None = None


class PickedResources(RequestBody):
    model_config = example(
        resources=[{"id": 1296269, "name": "octocat/handbook", "defaultBranch": "main"}]
    )
    resources: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=1_000)]


# --- answers -------------------------------------------------------------------------------------


class Created(Wire):
    id: str
    redirects_to: str | None
    auth_link: str | None
    expires_in: str | None
    warnings: list[str] | None = WARNINGS


class LastSyncRun(Wire):
    status: Literal["running", "completed", "failed"]
    started_at: Timestamp
    completed_at: Timestamp | None = absent()
    error: str | None = absent()
    error_code: ErrorCode | None = absent()

    @classmethod
    def of(cls, run: SyncRun) -> Self:
        failed = run.status == "failed"
        return cls(
            status="failed" if failed else "running" if run.status == "running" else "completed",
            started_at=run.started_at,
            completed_at=run.finished_at,
            error=run.failure.message if run.failure else None,
            error_code=error_code(run.failure.code) if run.failure else None,
        )


class RunOut(Wire):
    id: str
    connection_id: str
    status: Literal["running", "completed", "partial", "failed"]
    trigger_type: Literal["event", "cron", "manual"]
    started_at: Timestamp
    completed_at: Timestamp | None
    items_processed: int
    items_failed: int
    added: int
    changed: int
    unchanged: int
    removed: int
    skipped: dict[str, int] = Field(description="By reason.")
    error: str | None
    error_code: str | None
    notes: list[str] = Field(description="Sentences for people.")

    @classmethod
    def of(cls, connection: str, run: SyncRun) -> Self:
        return cls(
            id=run.id,
            connection_id=connection,
            status=run.status,  # pyright: ignore[reportArgumentType] # the table's check
            trigger_type=run.trigger.value,
            started_at=run.started_at,
            completed_at=run.finished_at,
            items_processed=run.added + run.changed + run.unchanged + run.removed,
            items_failed=run.failed,
            added=run.added,
            changed=run.changed,
            unchanged=run.unchanged,
            removed=run.removed,
            skipped=dict(run.skipped),
            error=run.failure.message if run.failure else None,
            error_code=run.failure.code if run.failure else None,
            notes=list(run.notes),
        )


class SyncChange(Wire):
    document_id: str
    change: What
    at: Timestamp
    title: str | None = Field(description="As it is now; null when the document is gone.")
    url: str | None
    chunks: int | None = Field(
        description="Different texts of its chunks; null until it is processed, and if removed."
    )
    new_chunks: int | None = Field(description="Of these: that had to be indexed.")
    share: float | None = Field(description="`newChunks` of `chunks`, 0 to 1.")

    @classmethod
    def of(cls, entry: FeedEntry) -> Self:
        return cls(
            document_id=entry.document_id,
            change=entry.what,
            at=entry.at,
            title=entry.title,
            url=entry.url,
            chunks=entry.texts,
            new_chunks=entry.new_texts,
            share=None if entry.share is None else round(entry.share, 4),
        )


class SyncChanges(Wire):
    changes: list[SyncChange]
    pagination: Pagination

    @classmethod
    def listed(cls, page: Page[FeedEntry]) -> Self:
        return cls(
            changes=[SyncChange.of(entry) for entry in page.items],
            pagination=Pagination.of(page),
        )


class ConnectionOut(Wire):
    id: str
    provider: str
    created_at: Timestamp
    document_limit: int
    metadata: dict[str, Any]
    container_tags: list[str]
    email: str | None = absent()
    expires_at: Timestamp | None = absent()
    last_sync_run: LastSyncRun | None = absent()
    state: Literal["pending", "ready", "syncing", "needs_auth", "failed"]
    error: str | None = Field(description="What is wrong, and what to do.")
    error_code: str | None
    paused: bool
    last_synced_at: Timestamp | None
    next_sync_at: Timestamp | None = Field(description="null while it syncs or is paused.")
    pushes: str | None = Field(description="`on`, or `off` with the reason; null: none.")
    warnings: list[str] | None = WARNINGS

    @classmethod
    def of(cls, connection: Connection) -> Self:
        failure = connection.failure
        unplanned = connection.paused or connection.state == "syncing"
        return cls(
            id=connection.id,
            provider=connection.provider,
            created_at=connection.created_at,
            document_limit=connection.document_limit,
            metadata=dict(connection.metadata),
            container_tags=list(connection.container_tags),
            email=connection.email,
            expires_at=connection.expires_at,
            last_sync_run=LastSyncRun.of(connection.last_run) if connection.last_run else None,
            state=connection.state.value,
            error=failure.message if failure else None,
            error_code=failure.code if failure else None,
            paused=connection.paused,
            last_synced_at=connection.last_synced_at,
            next_sync_at=None if unplanned else connection.due_at,
            pushes=connection.pushes,
        )


class ConnectionDocument(Wire):
    id: str
    title: str | None
    type: str
    status: str
    url: str | None
    summary: str | None
    created_at: Timestamp
    updated_at: Timestamp
    error_code: str | None = absent()
    error_message: str | None = absent()

    @classmethod
    def of(cls, document: Document, words: str) -> Self:
        failure = document.failure
        return cls(
            id=document.id,
            title=document.title,
            type=document.kind,
            status=public_status(document, words),
            url=document.url,
            summary=None,
            created_at=document.created_at,
            updated_at=document.updated_at,
            error_code=failure.code if failure else None,
            error_message=failure.message if failure else None,
        )


class Deleted(Wire):
    id: str
    provider: str
    warnings: list[str] | None = WARNINGS


class SyncWanted(Wire):
    message: str
    provider: str
    warnings: list[str] | None = WARNINGS


class ResourceOut(Wire):
    """Snake case, as the published clients type it."""

    id: str
    name: str
    full_name: Annotated[str, Field(alias="full_name")]
    description: str | None
    private: bool
    default_branch: Annotated[str | None, Field(alias="default_branch")]
    updated_at: Annotated[Timestamp | None, Field(alias="updated_at")]

    @classmethod
    def of(cls, resource: Resource) -> Self:
        return cls(
            id=resource.id,
            name=resource.name,
            full_name=resource.full_name,
            description=resource.description,
            private=resource.private,
            default_branch=resource.default_branch,
            updated_at=_moment(resource.updated_at),
        )


class ResourcesOut(Wire):
    resources: list[ResourceOut]
    total_count: Annotated[int, Field(alias="total_count")]


class Configured(Wire):
    success: bool
    message: str
    webhooks_registered: int | None = absent()
    warnings: list[str] | None = WARNINGS


class AssumptionOut(Wire):
    name: str
    state: Literal["holds", "fails", "unknown"] = Field(
        description="`unknown`: it could not be determined, or nothing depends on it here."
    )
    sentence: str = Field(description="What was found, and what to do where it fails.")

    @classmethod
    def of(cls, assumption: Assumption) -> Self:
        state = "unknown" if assumption.holds is None else "holds" if assumption.holds else "fails"
        return cls(name=assumption.name, state=state, sentence=assumption.sentence)


class Checked(Wire):
    connection_id: str
    provider: str
    holds: bool = Field(description="Whether nothing fails.")
    assumptions: list[AssumptionOut]

    @classmethod
    def of(cls, connection: Connection, report: CheckReport) -> Self:
        return cls(
            connection_id=connection.id,
            provider=connection.provider,
            holds=report.holds,
            assumptions=[AssumptionOut.of(one) for one in report.assumptions],
        )


class ItemOut(Wire):
    id: str
    verdict: str = Field(description="`document`, or why it is not one.")
    detail: str | None
    title: str | None
    url: str | None
    document_id: str | None
    seen_at: Timestamp

    @classmethod
    def of(cls, item: Remembered) -> Self:
        return cls(
            id=item.id,
            verdict=item.verdict,
            detail=item.why,
            title=item.title,
            url=item.url,
            document_id=item.document_id,
            seen_at=item.seen_at,
        )


class Items(Wire):
    items: list[ItemOut]
    verdicts: dict[str, int] = Field(description="How many things have which verdict.")
    pagination: Pagination

    @classmethod
    def listed(cls, page: Page[Remembered], verdicts: Mapping[str, int]) -> Self:
        return cls(
            items=[ItemOut.of(item) for item in page.items],
            verdicts=dict(verdicts),
            pagination=Pagination.of(page),
        )


def _moment(told: str | None) -> datetime | None:
    """What a provider says; None for what is not a moment."""
    try:
        moment = datetime.fromisoformat(told or "")
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def error_code(code: str) -> ErrorCode:
    return _CODES.get(code, "provider_unavailable")


def listed(connections: Sequence[Connection]) -> list[ConnectionOut]:
    return [ConnectionOut.of(connection) for connection in connections]
