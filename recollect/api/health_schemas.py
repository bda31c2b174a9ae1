"""Whether the service is up and ready, on the wire."""

from typing import Literal

from pydantic import (
    Field,
)

from recollect.api.wire import Wire, absent


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
