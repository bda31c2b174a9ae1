"""Connectors of a namespace: connections that write to its tag."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import Query, Request
from pydantic import AfterValidator, Field

from recollect import connectors as providers
from recollect import documents
from recollect.api.connection_schemas import ErrorCode, Limit, RunOut, error_code
from recollect.api.deps import BareId, CurrentApp, CurrentKey, Reader, refuse_slips
from recollect.api.namespaces._door import (
    Closed,
    Nothing,
    Number,
    PageSize,
    Reads,
    Space,
    Writes,
    closed,
    words,
)
from recollect.api.namespaces._door import (
    router as door,
)
from recollect.api.turns import AsksOthers
from recollect.api.wire import Flag, Pagination, Text, Timestamp, Wire, absent
from recollect.app import App
from recollect.db import Tx
from recollect.errors import BadRequestError, NotFoundError
from recollect.model import (
    Connection,
    ConnectionState,
    Document,
    Key,
    Page,
    Scope,
    SyncRun,
    Tenant,
)
from recollect.sync import connect, connection_queue, connections
from recollect.sync.authorizations import AUTH_LINK_LIFE
from recollect.sync.connect import ConnectionChanges, ConnectionRequest
from recollect.sync.connections import LIMIT
from recollect.sync.sources import end

router = door("connectors")
SYNCS = 10
FAILURES = 20
"""of each sync"""
if TYPE_CHECKING:
    Provider = str
else:
    Provider = Literal[*providers.all(), *providers.UNBUILT]
_SELECTED = ("folders", "labels", connect.PICKED)
"""Keys of the metadata that are shown as the selection."""


# --- requests ------------------------------------------------------------------------------------


class NewConnector(Closed):
    model_config = closed(
        provider=providers.example().provider, config=providers.example().guide.example
    )

    provider: Annotated[Text, Field(max_length=100)]
    config: dict[str, str | bool | int] | None = None
    redirect_url: Annotated[Text, Field(max_length=2_000)] | None = None
    document_limit: Limit | None = None


Ids = Annotated[list[Annotated[Text, Field(min_length=1, max_length=1_000)]], Field(max_length=500)]


class Selection(Closed):
    repos: Ids | None = None
    labels: Ids | None = None
    files: Ids | None = None
    folders: Ids | None = None

    def only(self) -> tuple[str, list[str]]:
        """What is selected; raises BadRequestError unless it is of one kind."""
        given = {
            name: ids
            for name in type(self).model_fields
            if (ids := getattr(self, name)) is not None
        }
        if len(given) != 1:
            raise BadRequestError("selection: name one of repos, labels, folders")
        return next(iter(given.items()))


class ConnectorPatch(Closed):
    model_config = closed(documentLimit=1000)

    selection: Selection | None = None
    document_limit: Limit | None = None


# --- answers -------------------------------------------------------------------------------------


class NsLink(Wire):
    url: str
    expires_at: Timestamp


class NsNewConnection(Wire):
    id: str
    authorization: NsLink | None = Field(description="Where the user agrees; null: nobody has to.")


class Capabilities(Wire):
    selectable: bool
    webhooks: bool = Field(description="Whether the provider pushes to this service.")


class RunSystem(Wire):
    status: Literal["running", "completed", "failed"]
    started_at: Timestamp
    completed_at: Timestamp | None


class LatestRun(Wire):
    error_code: ErrorCode | None
    error: str | None
    system: RunSystem

    @classmethod
    def fields(cls, run: SyncRun) -> dict[str, Any]:
        status = run.status if run.status in ("running", "failed") else "completed"
        return {
            "error_code": error_code(run.failure.code) if run.failure else None,
            "error": run.failure.message if run.failure else None,
            "system": RunSystem(
                status=status,
                started_at=run.started_at,
                completed_at=run.finished_at,
            ),
        }


class FailedItem(Wire):
    document_id: str
    title: str | None
    error_code: str
    error_message: str
    failed_at: Timestamp

    @classmethod
    def of(cls, document: Document) -> "FailedItem":
        failure = document.failure
        return cls(
            document_id=document.id,
            title=document.title,
            error_code=failure.code if failure else "",
            error_message=failure.message if failure else "",
            failed_at=document.updated_at,
        )


class Sync(LatestRun):
    id: str
    trigger: Literal["event", "cron", "manual"]
    items_processed: int
    items_failed: int
    failures: list[FailedItem]

    @classmethod
    def of(cls, connection: str, run: SyncRun, failed: Sequence[Document]) -> "Sync":
        counted = RunOut.of(connection, run)
        return cls(
            **cls.fields(run),
            id=run.id,
            trigger=counted.trigger_type,
            items_processed=counted.items_processed,
            items_failed=counted.items_failed,
            failures=[FailedItem.of(one) for one in failed],
        )


class Selected(Wire):
    id: str
    name: str


class ConnectorSystem(Wire):
    status: Literal["pending_authorization", "active"]
    created_at: Timestamp
    last_successful_sync_at: Timestamp | None


class ConnectorOut(Wire):
    id: str
    provider: str
    namespace: str | None = Field(description="The first of its container tags.")
    account: str | None
    authorization: NsLink | None = absent()
    capabilities: Capabilities
    config: dict[str, str | bool | int | float] | None
    selection: dict[str, list[Selected]] | None = Field(description="null: it syncs everything.")
    document_limit: int
    document_count: int
    latest_run: LatestRun | None
    system: ConnectorSystem
    syncs: list[Sync] | None = absent()


class ConnectorWithPicker(ConnectorOut):
    picker: None = Field(
        description="There is no page to pick on; `selection` sets what is synced."
    )


class ConnectorList(Wire):
    connectors: list[ConnectorOut]
    pagination: Pagination


class ConnectorGone(Wire):
    id: str
    deleted: Literal[True]


class SyncQueued(Wire):
    id: str
    status: Literal["queued"]


# --- endpoints -----------------------------------------------------------------------------------

ProviderQuery = Annotated[Provider | None, Query(description="Only of this provider.")]


@router.get("/connectors", summary="List all connectors", operation_id="nsListAllConnectors")
def find_all(
    tenant: Reader,
    app: CurrentApp,
    provider: ProviderQuery = None,
    page: Number = 1,
    limit: PageSize = 10,
) -> ConnectorList:
    """Of every namespace that the key may use, the newest first; pending ones are left out."""
    return _listed(app, tenant, provider, [], page, limit)


@router.get(
    "/ns/{namespace}/connectors", summary="List connectors", operation_id="nsListConnectors"
)
def find(
    space: Reads,
    app: CurrentApp,
    provider: ProviderQuery = None,
    page: Number = 1,
    limit: PageSize = 10,
) -> ConnectorList:
    """Those that write to the namespace, the newest first; pending ones are left out."""
    return _listed(app, space.key, provider, [space.name], page, limit)


@router.post(
    "/ns/{namespace}/connectors",
    status_code=201,
    summary="Create a connector",
    operation_id="nsCreateConnector",
    responses={402: {"description": "The plan does not include the provider."}},
)
def create(
    space: Writes, body: NewConnector, key: CurrentKey, app: CurrentApp, _: AsksOthers
) -> NsNewConnection:
    """With OAuth the first sync follows the user's consent at `authorization.url`; others sync at
    once."""
    connector = providers.get(body.provider)
    connect.check_plan(connector, key.org.plan)
    asked = ConnectionRequest(
        provider=connector.provider,
        tags=[space.name],
        metadata=_config(connector.provider, body.config or {}),
        limit=body.document_limit or LIMIT,
        redirect_url=body.redirect_url,
    )
    made = connect.create(app, space.key, key.org.plan, asked)
    link = None
    if connector.oauth is not None:
        link = _link(app, space.key, made, body.redirect_url)
    return NsNewConnection(id=made.id, authorization=link)


@router.get(
    "/ns/{namespace}/connectors/{id}", summary="Get a connector", operation_id="nsGetConnector"
)
def get(
    space: Reads,
    id: BareId,
    key: CurrentKey,
    app: CurrentApp,
    include: Annotated[
        Sequence[str],
        Query(description="`syncs`, `picker`; repeated, or separated by commas."),
        AfterValidator(words("syncs", "picker")),
    ] = (),
    return_url: Annotated[
        str | None,
        Query(alias="returnUrl", description="Ignored: Recollect has no picker of its own."),
    ] = None,
) -> ConnectorWithPicker | ConnectorOut:
    """While it is pending, with a link to authorize, for keys that may write."""
    with app.db.begin() as tx:
        found = _connection(tx, space, id)
        fields = _fields(app, tx, space.key, [found])[0]
        if "syncs" in include:
            fields["syncs"] = _syncs(tx, space.key, found)
        redirect_url = connections.redirect_of(tx, found.id)
    if found.state is ConnectionState.PENDING and _may_write(key):
        try:
            fields["authorization"] = _link(app, space.key, found, redirect_url)
        except BadRequestError:  # its OAuth application is not configured any more
            fields["authorization"] = None
    if "picker" in include:
        return ConnectorWithPicker(**fields, picker=None)
    return ConnectorOut(**fields)


@router.patch(
    "/ns/{namespace}/connectors/{id}",
    summary="Change a connector",
    operation_id="nsUpdateConnector",
)
def patch(
    space: Writes,
    id: BareId,
    app: CurrentApp,
    _: AsksOthers,
    body: ConnectorPatch | None = None,
) -> ConnectorOut:
    """`selection` replaces the one before; a sync applies it."""
    if body is None or (body.selection is None and body.document_limit is None):
        raise BadRequestError("name a selection or a documentLimit")
    with app.db.begin() as tx:
        found = _connection(tx, space, id)
    if body.selection is None:
        connect.change(app, space.key, found, ConnectionChanges(limit=body.document_limit))
    else:
        kind, ids = body.selection.only()
        wanted = providers.get(found.provider).selects
        if kind != wanted:
            told = f"it selects {wanted}" if wanted else "it has nothing to select"
            raise BadRequestError(f"selection: {kind}: {found.provider} has none; {told}")
        connect.select(app, space.key, found, ids, body.document_limit)
    with app.db.begin() as tx:
        found = _connection(tx, space, id)
        return ConnectorOut(**_fields(app, tx, space.key, [found])[0])


@router.delete(
    "/ns/{namespace}/connectors/{id}",
    summary="Delete a connector",
    operation_id="nsDeleteConnector",
)
def delete(
    space: Writes,
    id: BareId,
    app: CurrentApp,
    request: Request,
    body: Nothing | None = None,
    delete_documents: Annotated[Flag, Query(alias="deleteDocuments")] = True,
) -> ConnectorGone:
    """What it brought goes, too, unless `deleteDocuments` is false. Tokens and webhooks are taken
    back; one that is pending is called off."""
    refuse_slips(request, "deleteDocuments")

    def write(tx: Tx) -> Connection:
        found = _connection(tx, space, id)
        end(tx, app, space.key, [found], with_documents=delete_documents)
        return found

    return ConnectorGone(id=app.db.write(write).id, deleted=True)


@router.post(
    "/ns/{namespace}/connectors/{id}/sync",
    status_code=202,
    summary="Sync now",
    operation_id="nsSyncConnector",
)
def sync(space: Writes, id: BareId, app: CurrentApp) -> SyncQueued:
    """409 while a sync runs or waits to run."""
    with app.db.begin() as tx:
        found = _connection(tx, space, id)
        connection_queue.want_now(tx, space.key, found.id)
    return SyncQueued(id=found.id, status="queued")


# --- helpers -------------------------------------------------------------------------------------


def _config(provider: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of a new connection; raises BadRequestError that names what is wrong."""
    connector = providers.all().get(provider)
    fields = [one for one in connector.guide.fields if one.in_config] if connector else []
    for name in given:
        if name not in {one.name for one in fields}:
            raise BadRequestError(f"config.{name}: unknown field of {provider}")
    for name in sorted(one.name for one in fields if one.required):
        if given.get(name) in (None, ""):
            raise BadRequestError(f"config.{name}: is required")
    defaults = {one.name: one.config_default for one in fields if one.config_default is not None}
    return {**defaults, **given}


def _connection(tx: Tx, space: Space, id: str) -> Connection:
    """One that writes to the namespace, maybe to others as well; raises NotFoundError."""
    found = connections.get(tx, space.key, id)
    if space.name not in found.container_tags:
        raise NotFoundError("Connector not found", f"no connector {id!r} in this namespace")
    return found


def _listed(
    app: App, tenant: Tenant, provider: str | None, tags: list[str], number: int, limit: int
) -> ConnectorList:
    with app.db.begin() as tx:
        found = [
            one
            for one in connections.find(tx, tenant, provider=provider, tags=tags)
            if one.state is not ConnectionState.PENDING
        ]
        some = found[(number - 1) * limit : number * limit]
        shown = [ConnectorOut(**fields) for fields in _fields(app, tx, tenant, some)]
    return ConnectorList(
        connectors=shown, pagination=Pagination.of(Page(some, len(found), number, limit))
    )


def _fields(app: App, tx: Tx, tenant: Tenant, found: Sequence[Connection]) -> list[dict[str, Any]]:
    counts = documents.counts_of_connections(tx, tenant, [one.id for one in found])
    return [_field(app, one, counts[one.id]) for one in found]


def _field(app: App, found: Connection, count: int) -> dict[str, Any]:
    connector = providers.get(found.provider)
    chosen = connector.selection(found.metadata)
    config = {
        name: value
        for name, value in found.metadata.items()
        if isinstance(value, str | bool | int | float) and name not in _SELECTED
    }
    pending = found.state is ConnectionState.PENDING
    return {
        "id": found.id,
        "provider": found.provider,
        "namespace": next(iter(found.container_tags), None),
        "account": found.email or found.account,
        "capabilities": Capabilities(
            selectable=connector.selects is not None,
            webhooks=connector.pushes and connector.push_url(app.config, "") is not None,
        ),
        "config": config or None,
        "selection": None
        if chosen is None or connector.selects is None
        else {connector.selects: [Selected(id=id, name=name) for id, name in chosen.items()]},
        "document_limit": found.document_limit,
        "document_count": count,
        "latest_run": LatestRun(**LatestRun.fields(found.last_run)) if found.last_run else None,
        "system": ConnectorSystem(
            status="pending_authorization" if pending else "active",
            created_at=found.created_at,
            last_successful_sync_at=found.last_synced_at,
        ),
    }


def _syncs(tx: Tx, tenant: Tenant, found: Connection) -> list[Sync]:
    runs = connections.runs(tx, found.id, SYNCS)
    failed = connection_queue.failures(tx, tenant, [run.id for run in runs], most=FAILURES)
    return [Sync.of(found.id, run, failed[run.id]) for run in runs]


def _link(app: App, tenant: Tenant, found: Connection, redirect_url: str | None) -> NsLink:
    url = connect.link(app, tenant, found, redirect_url)
    return NsLink(url=url, expires_at=datetime.now(UTC) + AUTH_LINK_LIFE)


def _may_write(key: Key) -> bool:
    return key.scope is not Scope.READ
