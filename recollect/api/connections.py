"""Connections: create, find, sync, configure, delete; what they saw, and their runs."""

import re
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from recollect import connectors, documents
from recollect.api.connection_schemas import (
    Authorize,
    ByTags,
    ByTagsToDelete,
    Checked,
    Configured,
    ConnectionDocument,
    ConnectionOut,
    ConnectionPatch,
    Created,
    Deleted,
    Items,
    NewConnection,
    PickedResources,
    ResourceOut,
    ResourcesOut,
    RunOut,
    SyncChanges,
    SyncWanted,
    listed,
)
from recollect.api.deps import (
    ApiRoute,
    BareId,
    CurrentApp,
    CurrentKey,
    ProviderName,
    ProviderOrId,
    Reader,
    Writer,
    effective_tags,
    refuse_slips,
    wants,
)
from recollect.api.turns import AsksOthers
from recollect.api.wire import Flag, RequestBody
from recollect.app import App
from recollect.documents import DocumentQuery
from recollect.errors import BadRequestError, NotFoundError
from recollect.ingest import intake
from recollect.model import Connection, Page, Tenant, Trigger
from recollect.sync import account_check, change_log, connect, connections, items, overlaps
from recollect.sync.change_log import What
from recollect.sync.connect import ConnectionChanges, ConnectionRequest
from recollect.sync.connections import LIMIT
from recollect.sync.sources import end

router = APIRouter(tags=["connections"], route_class=ApiRoute)
EXPIRES_IN = "1 hour"
"""`authorizations.AUTH_LINK_LIFE`, in the wire's words."""
_NOTHING_TO_PICK: dict[int | str, dict[str, Any]] = {
    501: {"description": "Nothing is picked for this provider."},
}
_UPSTREAM: dict[int | str, dict[str, Any]] = {
    502: {"description": "The provider did not answer, or refused."},
}
_OR_PLAIN: dict[int | str, dict[str, Any]] = {
    202: {
        "content": {
            "text/plain": {
                "schema": {"type": "string"},
                "example": f"Sync of 1 {connectors.example().provider} connection requested",
            }
        }
    },
}
"""With `Accept: text/plain`, which the published clients send, the answer is the message alone."""
_ARRAYS_SINCE = (3, 58)
"""From this version on the published Python client expects an array of what was deleted."""


@router.post("/v3/connections/list", summary="List connections", operation_id="listConnections")
def find(tenant: Reader, app: CurrentApp, body: ByTags | None = None) -> list[ConnectionOut]:
    """Of all providers; those that carry all of the tags, the newest first."""
    return listed(_found(app, tenant, None, body))


@router.post(
    "/v3/connections/{provider}", summary="Create a connection", operation_id="createConnection"
)
def create(
    provider: ProviderName,
    tenant: Writer,
    key: CurrentKey,
    app: CurrentApp,
    _: AsksOthers,
    body: NewConnection | None = None,
) -> Created:
    """With OAuth, `authLink` is where the user authorizes within an hour; the first sync follows.

    Others sync at once.
    """
    body = body or NewConnection()
    connector = connectors.get(provider)
    connect.check_plan(connector, key.org.plan)
    if body.redirect_url is not None:
        connect.check_redirect(app, body.redirect_url)
    asked = ConnectionRequest(
        provider=connector.provider,
        tags=effective_tags(tenant, body.container_tag, body.container_tags, default=True),
        metadata=intake.flat(app, body.metadata) or {},
        limit=body.document_limit or LIMIT,
        redirect_url=body.redirect_url,
    )
    made = connect.create(app, tenant, key.org.plan, asked)
    if connector.oauth is None:
        done = Created(id=made.id, redirects_to=body.redirect_url, auth_link=None, expires_in=None)
        return done.model_copy(update={"warnings": _warnings(app, tenant, made, body)})
    return body.warned(_link(app, tenant, made, body.redirect_url))


@router.post(
    "/v3/connections/{provider}/connection",
    summary="Find a connection",
    operation_id="getConnectionByTags",
)
def get_by_tags(
    provider: ProviderName, tenant: Reader, app: CurrentApp, body: ByTags | None = None
) -> ConnectionOut:
    """The newest of the provider that carries all of the tags."""
    body = body or ByTags()
    if body.container_tags is not None and not body.container_tags:
        raise BadRequestError("containerTags: name at least one")
    found = _found(app, tenant, _known(provider), body)
    if not found:
        raise _none(provider)
    return body.warned(ConnectionOut.of(found[0]))


@router.post(
    "/v3/connections/{provider}/documents",
    summary="Documents of connections",
    operation_id="listConnectionDocuments",
)
def find_documents(
    provider: ProviderName,
    tenant: Reader,
    app: CurrentApp,
    response: Response,
    body: ByTags | None = None,
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
) -> list[ConnectionDocument]:
    """What connections of the provider brought, the newest first, 10,000 in a page; empty when
    there are none. The header `X-Total-Count` says how many there are in all pages."""
    found = _found(app, tenant, _known(provider), body)
    wanted = [connection.id for connection in found]
    query = DocumentQuery(connections=wanted, limit=LIMIT, page=page)
    with app.db.begin() as tx:
        listed = documents.find(tx, tenant, query)
    response.headers["X-Total-Count"] = str(listed.total)
    words = app.config.status_words
    return [ConnectionDocument.of(document, words) for document in listed.items]


@router.post(
    "/v3/connections/{provider}/import",
    status_code=202,
    summary="Sync now",
    operation_id="importConnection",
    response_model=SyncWanted,
    responses=_OR_PLAIN,
)
def import_now(
    provider: ProviderName,
    tenant: Writer,
    app: CurrentApp,
    body: ByTags | None = None,
    accept: Annotated[str | None, Header()] = None,
) -> Response:
    """All connections of the provider that carry the tags. During a sync, one more follows it."""
    body = body or ByTags()
    found = _found(app, tenant, _known(provider), body)
    if not found:
        raise _none(provider)
    return _wanted(app, provider, found, accept, body.passed_over())


@router.get(
    "/v3/connections/{connectionId}", summary="Get a connection", operation_id="getConnection"
)
def get(connectionId: BareId, tenant: Reader, app: CurrentApp) -> ConnectionOut:  # wire
    return ConnectionOut.of(_connection(app, tenant, connectionId))


@router.patch(
    "/v3/connections/{connectionId}",
    summary="Change a connection",
    operation_id="updateConnection",
)
def patch(
    connectionId: BareId,  # wire
    body: ConnectionPatch,
    tenant: Writer,
    app: CurrentApp,
    _: AsksOthers,
) -> ConnectionOut:
    """Named fields change, and a sync applies them. `paused` stops schedule and pushes."""
    found = _connection(app, tenant, connectionId)
    named = None
    if body.container_tags:
        named = effective_tags(tenant, None, body.container_tags, default=False)
    # What is picked is the provider's to keep, not a pair of the caller's: it may be given up.
    own = {connect.PICKED} if connectors.get(found.provider).picks else set[str]()
    intake.flat(app, {n: v for n, v in (body.metadata or {}).items() if n not in own})
    wanted = ConnectionChanges(named, body.document_limit, body.metadata, body.paused)
    changed = connect.change(app, tenant, found, wanted)
    warnings = _warnings(app, tenant, changed, body)
    return ConnectionOut.of(changed).model_copy(update={"warnings": warnings})


@router.post(
    "/v3/connections/{connectionId}/authorize",
    summary="Authorize again",
    operation_id="authorizeConnection",
)
def authorize(
    connectionId: BareId,  # wire
    tenant: Writer,
    app: CurrentApp,
    body: Authorize | None = None,
) -> Created:
    """A new link, for a connection that was never authorized or that has lost it."""
    body = body or Authorize()
    if body.redirect_url is not None:
        connect.check_redirect(app, body.redirect_url)
    found = _connection(app, tenant, connectionId)
    return body.warned(_link(app, tenant, found, body.redirect_url))


@router.post(
    "/v3/connections/{connectionId}/sync",
    status_code=202,
    summary="Sync one now",
    operation_id="syncConnection",
    response_model=SyncWanted,
    responses=_OR_PLAIN,
)
def sync_now(
    connectionId: BareId,  # wire
    tenant: Writer,
    app: CurrentApp,
    accept: Annotated[str | None, Header()] = None,
) -> Response:
    """As `import`, of one connection."""
    found = _connection(app, tenant, connectionId)
    return _wanted(app, found.provider, [found], accept)


@router.post(
    "/v3/connections/{connectionId}/check",
    summary="Check the account",
    operation_id="checkConnection",
)
def check(
    connectionId: BareId,  # wire
    tenant: Writer,
    app: CurrentApp,
    _: AsksOthers,
) -> Checked:
    """Walks the real account, reading only, and says for each assumption whether it holds.

    Takes up to half a minute. Nothing is changed at the provider, and no document here.
    """
    found = _connection(app, tenant, connectionId)
    return Checked.of(found, account_check.look(app, found))


@router.get(
    "/v3/connections/{connectionId}/sync-runs",
    summary="List sync runs",
    operation_id="listSyncRuns",
)
def find_runs(
    connectionId: BareId,  # wire
    tenant: Reader,
    app: CurrentApp,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> list[RunOut]:
    """The latest first, with what each added, changed, removed and skipped, and why."""
    with app.db.begin() as tx:
        found = connections.get(tx, tenant, connectionId)
        return [RunOut.of(found.id, run) for run in connections.runs(tx, found.id, limit)]


@router.get(
    "/v3/connections/{connectionId}/sync-runs/{run}/changes",
    summary="List the changes of a run",
    operation_id="listSyncChanges",
)
def find_changes(
    connectionId: BareId,  # wire
    run: BareId,
    tenant: Reader,
    app: CurrentApp,
    change: What | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
) -> SyncChanges:
    """The documents that it added, changed and removed, the first made first; at most 10,000."""
    with app.db.begin() as tx:
        found = connections.get(tx, tenant, connectionId)
        of = connections.run(tx, found.id, run)
        return SyncChanges.listed(
            change_log.find(tx, tenant, found.id, of.id, what=change, limit=limit, page=page)
        )


@router.get(
    "/v3/connections/{connectionId}/items",
    summary="List the items of a connection",
    operation_id="listConnectionItems",
)
def find_items(
    connectionId: BareId,  # wire
    tenant: Reader,
    app: CurrentApp,
    id: Annotated[str | None, Query(description="Exactly this one: its id, or its URL.")] = None,
    verdict: str | None = None,
    q: Annotated[str | None, Query(description="Part of id, URL or title.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
) -> Items:
    """Everything that was listed, such as every page, with its verdict: a document, or why not."""
    with app.db.begin() as tx:
        found = connections.get(tx, tenant, connectionId)
        if id is not None:
            one = items.named(tx, found.id, id)
            return Items.listed(Page([one], 1, 1, 1), {one.verdict: 1})
        seen = items.find(tx, found.id, verdict=verdict, text=q, limit=limit, page=page)
        return Items.listed(seen, items.verdicts(tx, found.id))


@router.get(
    "/v3/connections/{connectionId}/resources",
    summary="List what can be picked",
    operation_id="listConnectionResources",
    responses=_NOTHING_TO_PICK | _UPSTREAM,
)
def resources(
    connectionId: BareId,  # wire
    tenant: Reader,
    app: CurrentApp,
    _: AsksOthers,
    page: Annotated[int, Query(ge=1, le=10_000)] = 1,
    per_page: Annotated[int, Query(ge=1, le=100)] = 30,
    parent_id: str | None = None,
) -> ResourcesOut:
    """For providers where you pick, such as repositories of GitHub."""
    found = _connection(app, tenant, connectionId)
    some, total = connect.resources(app, found, page, per_page)
    return ResourcesOut(resources=[ResourceOut.of(one) for one in some], total_count=total)


@router.post(
    "/v3/connections/{connectionId}/configure",
    summary="Pick resources",
    operation_id="configureConnection",
    responses=_NOTHING_TO_PICK,
)
def configure(
    connectionId: BareId,  # wire
    body: PickedResources,
    tenant: Writer,
    app: CurrentApp,
    _: AsksOthers,
) -> Configured:
    """They replace what was picked before; a sync follows."""
    found = _connection(app, tenant, connectionId)
    pushes = connect.pick(app, tenant, found, body.resources)
    told = "changes are looked for every few minutes"
    if pushes:
        told += f", until {connectors.get(found.provider).name} agrees to push them"
    count = len(body.resources)
    done = Configured(
        success=True,
        message=f"{count} picked; the sync has begun, and {told}",
        webhooks_registered=count if pushes else 0,
    )
    return body.warned(done)


@router.delete(
    "/v3/connections/{connection}",
    summary="Delete connections",
    operation_id="deleteConnection",
    response_model=Deleted,
)
def delete(
    connection: ProviderOrId,
    tenant: Writer,
    app: CurrentApp,
    request: Request,
    body: ByTagsToDelete | None = None,
    delete_documents: Annotated[Flag, Query(alias="deleteDocuments")] = True,
    language: Annotated[str | None, Header(alias="x-stainless-lang")] = None,
    version: Annotated[str | None, Header(alias="x-stainless-package-version")] = None,
) -> Any:
    """By id; or by provider, then all that carry the `containerTags`. What they brought goes, too.

    No request is made for them any more; tokens and webhooks are revoked. Other parameters are
    refused: a misspelt `deleteDocuments` would delete what was to stay.
    """
    refuse_slips(request, "deleteDocuments")
    body = body or ByTagsToDelete()
    if connection in connectors.all() or connection in connectors.UNBUILT:
        if not body.container_tags:
            raise BadRequestError("containerTags: name at least one")
        found = _found(app, tenant, connection, body)
        if not found:
            raise _none(connection)
    else:
        found = [_connection(app, tenant, connection)]
    app.db.write(lambda tx: end(tx, app, tenant, found, with_documents=delete_documents))
    gone = body.warned(Deleted(id=found[0].id, provider=found[0].provider))
    if app.config.python_client_arrays and _expects_array(language, version):
        return JSONResponse([gone.model_dump(by_alias=True)])
    return gone


def _wanted(
    app: App,
    provider: str,
    found: Sequence[Connection],
    accept: str | None,
    warnings: list[str] | None = None,
) -> Response:
    with app.db.begin() as tx:
        wanted = connections.want(tx, [connection.id for connection in found], Trigger.MANUAL)
    lost = len(found) - wanted
    message = f"Sync of {wanted} {provider} connection{'' if wanted == 1 else 's'} requested"
    if lost:
        message += f"; {lost} must be authorized first"
    if limited := sum(bool(connection.parked_for) for connection in found):
        message += f"; {limited} once the provider accepts requests again"
    if wants(accept, "text/plain"):
        return PlainTextResponse("\n".join([message, *(warnings or ())]), 202)
    told = SyncWanted(message=message, provider=provider, warnings=warnings)
    return JSONResponse(told.model_dump(by_alias=True), 202)


def _found(app: App, tenant: Tenant, provider: str | None, body: ByTags | None) -> list[Connection]:
    several = body.container_tags if body else None
    named = effective_tags(tenant, None, several, default=False)
    with app.db.begin() as tx:
        return connections.find(tx, tenant, provider=provider, tags=named)


def _connection(app: App, tenant: Tenant, id: str) -> Connection:
    with app.db.begin() as tx:
        return connections.get(tx, tenant, id)


def _known(provider: str) -> str:
    if provider not in connectors.all() and provider not in connectors.UNBUILT:
        raise NotFoundError("Provider not found", f"there is no provider {provider!r}")
    return provider


def _none(provider: str) -> NotFoundError:
    return NotFoundError("Connection not found", f"no {provider} connection carries these tags")


def _warnings(app: App, tenant: Tenant, found: Connection, body: RequestBody) -> list[str] | None:
    """Of fields that a request does not have, and of what comes in twice."""
    with app.db.begin() as tx:
        twice = overlaps.told(tx, tenant, found)
    return [*(body.passed_over() or ()), *twice] or None


def _link(app: App, tenant: Tenant, connection: Connection, redirect_url: str | None) -> Created:
    return Created(
        id=connection.id,
        redirects_to=redirect_url,
        auth_link=connect.link(app, tenant, connection, redirect_url),
        expires_in=EXPIRES_IN,
    )


def _expects_array(language: str | None, version: str | None) -> bool:
    match = re.match(r"([0-9]{1,9})\.([0-9]{1,9})", version or "")
    return (
        language == "python"
        and match is not None
        and (int(match[1]), int(match[2])) >= _ARRAYS_SINCE
    )
