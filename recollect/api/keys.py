"""Keys that are limited to one container tag, and assistants that keys let in."""

from datetime import timedelta

from fastapi import APIRouter, Response

from recollect import db
from recollect.api.access_schemas import AssistantList, AssistantOut, NewScopedKey, ScopedKey
from recollect.api.deps import Admin, ApiRoute, BareId, CurrentApp, effective_tags
from recollect.errors import BadRequestError
from recollect.model import KeyId, Scope
from recollect.orgs import assistants, orgs
from recollect.orgs.orgs import Limit

router = APIRouter(tags=["keys"], route_class=ApiRoute)
LONGEST_LIFE = timedelta(days=365)
ALLOWED = [
    "/v3/documents",
    "/v3/memories",
    "/v3/search",
    "/v3/test-questions",
    "/v3/test-runs",
    "/v3/container-tags",
    "/v3/connections",
    "/v3/webhooks",
    "/v4/answer",
    "/v4/conversations",
    "/v4/memories",
    "/v4/profile",
    "/v4/search",
    "/v3/session",
    "/v3/analytics",
    "/ns",
    "/namespaces",
    "/connectors",
    "/feedback",
    "/mcp",
]
"""Beginnings of the paths that such a key opens."""


@router.post("/v3/auth/scoped-key", summary="Create a scoped key", operation_id="createScopedKey")
def create(body: NewScopedKey, tenant: Admin, app: CurrentApp) -> ScopedKey:
    """A key that reads and writes one container tag. The answer is the only place that shows it."""
    [tag] = effective_tags(tenant, body.container_tag, None, default=True)
    if body.expires is not None and body.expires_in_days is not None:
        raise BadRequestError("expires: name it or expiresInDays, not both")
    with app.db.begin() as tx:
        expires_at = None
        if body.expires is not None:
            expires_at = orgs.expiry(body.expires, db.now(tx), most=LONGEST_LIFE)
        elif body.expires_in_days is not None:
            expires_at = db.now(tx) + timedelta(days=body.expires_in_days)
        key, secret = orgs.create_key(
            tx,
            tenant.id,
            name=body.name or f"scoped to {tag}",
            scope=Scope.WRITE,
            tags=[tag],
            expires_at=expires_at,
            limit=Limit(body.rate_limit_max, timedelta(milliseconds=body.rate_limit_time_window)),
        )
    return ScopedKey(
        key=secret,
        id=key.id,
        name=key.name,
        container_tag=tag,
        expires_at=key.expires_at,
        allowed_endpoints=ALLOWED,
        warnings=body.passed_over(),
    )


@router.delete(
    "/v3/auth/scoped-key/{id}",
    status_code=204,
    response_class=Response,
    summary="Revoke a scoped key",
    operation_id="deleteScopedKey",
)
def delete(id: BareId, tenant: Admin, app: CurrentApp) -> Response:
    """From now on it is not valid."""
    with app.db.begin() as tx:
        orgs.revoke_key(tx, KeyId(id), tenant.id, scoped=True)
    return Response(status_code=204)


@router.get("/v3/assistants", summary="List connected assistants", operation_id="listAssistants")
def find_assistants(tenant: Admin, app: CurrentApp) -> AssistantList:
    """Programs that a person connected at `/mcp` by OAuth, the newest first."""
    with app.db.begin() as tx:
        found = assistants.find(tx, tenant.id)
    return AssistantList(
        assistants=[
            AssistantOut(
                id=one.id,
                name=one.name,
                key_id=one.key_id,
                scope=one.scope,
                container_tags=one.tags,
                created_at=one.created_at,
                last_used_at=one.last_used_at,
            )
            for one in found
        ]
    )


@router.delete(
    "/v3/assistants/{id}",
    status_code=204,
    response_class=Response,
    summary="Revoke an assistant",
    operation_id="deleteAssistant",
)
def revoke_assistant(id: BareId, tenant: Admin, app: CurrentApp) -> Response:
    """From now on its tokens are not valid."""
    with app.db.begin() as tx:
        assistants.revoke(tx, id, tenant.id)
    return Response(status_code=204)
