"""Endpoints that get events, and the log of deliveries."""

from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Query, Response
from pydantic import Field

from recollect.api.deps import ApiRoute, BareId, CurrentApp, Reader, Writer
from recollect.api.wire import (
    WARNINGS,
    Pagination,
    RequestBody,
    TagsIn,
    Text,
    Timestamp,
    Wire,
    absent,
    example,
)
from recollect.events import endpoints, outbox, targets
from recollect.events.outbox import Delivery
from recollect.events.targets import Event, WebhookTarget

router = APIRouter(tags=["webhooks"], route_class=ApiRoute)
Address = Annotated[Text, Field(min_length=1, max_length=2_000)]
Events = Annotated[list[Event], Field(min_length=1, max_length=len(targets.EVENTS))]
Description = Annotated[Text, Field(max_length=200)]


class NewEndpoint(RequestBody):
    model_config = example(
        url="https://app.example.org/hooks/recollect", events=["document.done", "document.failed"]
    )

    url: Address = Field(description="http or https, at a public address.")
    events: Events | None = Field(None, description="All of them, if absent.")
    container_tags: TagsIn | None = Field(
        None, description="Only what carries one of them (connections: nothing else but them)."
    )
    description: Description = ""
    secret: Annotated[str, Field(max_length=120)] | None = Field(
        None, description="`whsec_` and base64 of 24 to 64 bytes; made here, if absent."
    )


class EndpointPatch(RequestBody):
    model_config = example(disabled=False, rotateSecret=True)

    url: Address | None = None
    events: Events | None = None
    container_tags: TagsIn | None = Field(
        None, description="Only what carries one of them; an empty array: everything."
    )
    description: Description | None = None
    disabled: bool | None = Field(None, description="false enables it again.")
    rotate_secret: bool = Field(
        False, description="Make a new secret; for a day both sign, the new one first."
    )


class EndpointOut(Wire):
    id: str
    url: str
    description: str
    events: list[str]
    container_tags: list[str] | None = Field(description="null: everything.")
    disabled: bool
    disabled_reason: str | None
    failing_since: Timestamp | None
    failures: int = Field(description="Attempts in a row that failed.")
    created_at: Timestamp
    created_by: str | None = Field(description="Id of the key.")
    secret: str | None = absent()
    warnings: list[str] | None = WARNINGS

    @classmethod
    def of(cls, found: WebhookTarget, secret: str | None = None) -> Self:
        return cls(
            id=found.id,
            url=found.url,
            description=found.description,
            events=list(found.events),
            container_tags=None if found.tags is None else list(found.tags),
            disabled=found.disabled_at is not None,
            disabled_reason=found.disabled_reason,
            failing_since=found.failing_since,
            failures=found.failures,
            created_at=found.created_at,
            created_by=found.key_id,
            secret=secret,
        )


class EndpointList(Wire):
    endpoints: list[EndpointOut]


class AttemptOut(Wire):
    at: Timestamp
    status: int | None
    reason: str | None = Field(description="Why it was not accepted; null: it was.")
    ms: float


class DeliveryOut(Wire):
    id: str = Field(description="The `webhook-id`.")
    type: str
    state: Literal["pending", "delivered", "dead"]
    attempts: int
    next_attempt_at: Timestamp | None
    sending_since: Timestamp | None
    created_at: Timestamp
    ended_at: Timestamp | None
    log: list[AttemptOut]
    payload: dict[str, Any]

    @classmethod
    def of(cls, found: Delivery) -> Self:
        return cls(
            id=found.id,
            type=found.type,
            state=found.state,  # pyright: ignore[reportArgumentType] # the table's check
            attempts=found.attempts,
            next_attempt_at=found.due_at,
            sending_since=found.sending_since,
            created_at=found.created_at,
            ended_at=found.ended_at,
            log=[AttemptOut.model_validate(attempt) for attempt in found.log],
            payload=dict(found.payload),
        )


class DeliveryList(Wire):
    deliveries: list[DeliveryOut]
    pagination: Pagination


@router.get("/v3/webhooks", summary="List endpoints", operation_id="listWebhooks")
def find(tenant: Reader, app: CurrentApp) -> EndpointList:
    """A key that is limited to container tags sees those that get events of its tags only."""
    with app.db.begin() as tx:
        return EndpointList(endpoints=[EndpointOut.of(one) for one in targets.find(tx, tenant)])


@router.post(
    "/v3/webhooks", status_code=201, summary="Create an endpoint", operation_id="createWebhook"
)
def create(body: NewEndpoint, tenant: Writer, app: CurrentApp) -> EndpointOut:
    """The answer is the only place that shows the secret, which signs what is sent."""
    made, secret = endpoints.create(
        app,
        tenant,
        url=body.url,
        events=body.events,
        tags=body.container_tags,
        description=body.description,
        secret=body.secret,
    )
    return body.warned(EndpointOut.of(made, secret))


@router.patch("/v3/webhooks/{id}", summary="Change an endpoint", operation_id="updateWebhook")
def patch(id: BareId, body: EndpointPatch, tenant: Writer, app: CurrentApp) -> EndpointOut:
    """Named fields change. A new secret is shown in the answer, once."""
    changed, secret = endpoints.change(
        app,
        tenant,
        id,
        url=body.url,
        events=body.events,
        tags=body.container_tags,
        description=body.description,
        disabled=body.disabled,
        rotate=body.rotate_secret,
    )
    return body.warned(EndpointOut.of(changed, secret))


@router.delete(
    "/v3/webhooks/{id}",
    status_code=204,
    response_class=Response,
    summary="Delete an endpoint",
    operation_id="deleteWebhook",
)
def delete(id: BareId, tenant: Writer, app: CurrentApp) -> Response:
    """With its log; nothing more is sent."""
    with app.db.begin() as tx:
        targets.delete(tx, tenant, id)
    return Response(status_code=204)


@router.get(
    "/v3/webhooks/{id}/deliveries", summary="List deliveries", operation_id="listDeliveries"
)
def deliveries(
    id: BareId,
    tenant: Reader,
    app: CurrentApp,
    state: Literal["pending", "delivered", "dead"] | None = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
) -> DeliveryList:
    """The newest first, with each attempt's status and reason; kept for seven days."""
    with app.db.begin() as tx:
        found = outbox.deliveries(tx, tenant, id, state=state, limit=limit, page=page)
    return DeliveryList(
        deliveries=[DeliveryOut.of(one) for one in found.items], pagination=Pagination.of(found)
    )


@router.post(
    "/v3/webhooks/{id}/deliveries/{delivery}/replay",
    status_code=202,
    summary="Send again",
    operation_id="replayDelivery",
)
def replay(id: BareId, delivery: BareId, tenant: Writer, app: CurrentApp) -> DeliveryOut:
    """With the same `webhook-id`."""
    with app.db.begin() as tx:
        return DeliveryOut.of(outbox.replay(tx, tenant, id, delivery))


@router.post(
    "/v3/webhooks/{id}/test", status_code=202, summary="Send a test", operation_id="testWebhook"
)
def try_out(id: BareId, tenant: Writer, app: CurrentApp) -> DeliveryOut:
    """A `webhook.test`; the log of deliveries shows how it went."""
    with app.db.begin() as tx:
        return DeliveryOut.of(outbox.try_out(tx, tenant, id))
