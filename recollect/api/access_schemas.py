"""Keys, assistants and the end of an organisation's data on the wire."""

from typing import Annotated

from pydantic import (
    Field,
)

from recollect.api.wire import WARNINGS, RequestBody, Text, Timestamp, Wire, example


class Reset(RequestBody):
    model_config = example(confirmation="YOUR_ORG_SLUG")

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


class ResetDone(Wire):
    success: bool
    deleted_count: int = Field(description="Documents.")
    warnings: list[str] | None = WARNINGS


class ScopedKey(Wire):
    key: str = Field(description="The secret; it is not stored.")
    id: str
    name: str
    container_tag: str
    expires_at: Timestamp | None
    allowed_endpoints: list[str]
    warnings: list[str] | None = WARNINGS


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
