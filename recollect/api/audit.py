"""GET /v3/audit: who did what in the organisation."""

from typing import Annotated, Any, Self

from fastapi import APIRouter, Query
from pydantic import Field

from recollect.api.deps import Admin, ApiRoute, CurrentApp, CurrentKey
from recollect.api.wire import Moment, Timestamp, Wire
from recollect.orgs import audit, orgs
from recollect.orgs.audit import Record

router = APIRouter(tags=["audit"], route_class=ApiRoute)
Word = Annotated[str | None, Query(max_length=100)]


class RecordOut(Wire):
    id: int
    at: Timestamp
    actor: str = Field(description="`key:ID`, `cli`, `service`, `nobody`.")
    action: str
    object: str | None
    result: str = Field(description="`done` or `refused`.")
    address: str | None
    request: str | None = Field(description="`X-Request-Id` of the request.")
    details: dict[str, Any]

    @classmethod
    def of(cls, found: Record) -> Self:
        return cls(
            id=found.id,
            at=found.at,
            actor=found.actor,
            action=found.action,
            object=found.object,
            result=found.result,
            address=found.address,
            request=found.request,
            details=dict(found.details),
        )


class RecordList(Wire):
    records: list[RecordOut]


@router.get("/v3/audit", summary="Read the audit log", operation_id="listAudit")
def find(
    tenant: Admin,
    key: CurrentKey,
    app: CurrentApp,
    action: Annotated[
        str | None,
        Query(max_length=100, description="Whole, or its beginning with a dot at the end: `key.`"),
    ] = None,
    actor: Word = None,
    since: Annotated[Moment | None, Query(description="Not older than that.")] = None,
    before: Annotated[
        int | None, Query(ge=1, le=2**63 - 1, description="Older than this id: the next page.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> RecordList:
    """The newest first."""
    with app.db.begin() as tx:
        found = audit.find(
            tx,
            org=tenant.id,
            action=action,
            actor=actor,
            since=since,
            before=before,
            limit=limit,
            with_strangers=key.org.name == orgs.DEFAULT,
        )
    return RecordList(records=[RecordOut.of(one) for one in found])
