"""Making, authorizing and changing connections: the rules that the API and the console share."""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from recollect import connectors, encryption
from recollect.app import App, secret_keys
from recollect.connectors import oauth
from recollect.connectors.base import Connector, Resource
from recollect.errors import (
    BadRequestError,
    Permanent,
    PermissionDeniedError,
    Reauthorize,
    RequestError,
    Transient,
)
from recollect.model import Connection, ConnectionId, ConnectionState, Plan, Tenant, random_id
from recollect.orgs import tags
from recollect.sync import authorizations, connections
from recollect.sync.connections import LIMIT, ConnectionChange, SealedConnection
from recollect.sync.credentials import client_of, oauth_of, seal_secrets
from recollect.sync.sources import open_source

PLANS_ABOVE = "requires a Scale or Enterprise plan"
PAGE = 100
"""resources that a provider is asked for at once"""
PICKED = "resources"
"""Key of the metadata under which connectors keep what was picked."""
Judge = Callable[[Connection], object]
"""Sees the stored connection, locked; raises if that is not what was to be changed."""


@dataclass(frozen=True, slots=True)
class ConnectionRequest:
    """A connection that someone wants; `tags` are checked already."""

    provider: str
    tags: Sequence[str]
    metadata: Mapping[str, Any] = field(repr=False)
    limit: int = LIMIT
    redirect_url: str | None = None
    """where the browser goes after authorizing"""


@dataclass(frozen=True, slots=True)
class ConnectionChanges:
    """What is to be changed of a connection; None leaves it."""

    tags: Sequence[str] | None = None
    limit: int | None = None
    metadata: Mapping[str, Any] | None = field(default=None, repr=False)
    paused: bool | None = None


class UpstreamError(RequestError):
    """The provider did not answer, or refused."""

    status = 502

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__(f"{name} did not answer", str(error))
        self.permanent = isinstance(error, Permanent)


class PlanError(PermissionDeniedError):
    """The plan does not include the provider."""


class NothingToPickError(RequestError):
    """There is a provider, but no choice in it."""

    status = 501
    permanent = True

    def __init__(self, name: str) -> None:
        super().__init__("Not supported", f"{name} has nothing to pick: all of it is synced")


def check_plan(connector: Connector, plan: Plan) -> None:
    """Raises PermissionDeniedError for a provider that the plan does not include."""
    if plan not in connector.plans:
        raise PlanError(f"{connector.provider} {PLANS_ABOVE}", f"plan: {plan}")


def create(app: App, tenant: Tenant, plan: Plan, asked: ConnectionRequest) -> Connection:
    """A connection that syncs at once, or waits for `link` to be followed.

    Raises BadRequestError that names the fault of the metadata, or the settings that an OAuth
    application is missing from; PermissionDeniedError for lack of a plan.
    """
    connector = connectors.get(asked.provider)
    check_plan(connector, plan)
    if asked.redirect_url is not None:
        check_redirect(app, asked.redirect_url)
    shown, secrets = _metadata(app, connector, asked.metadata)
    id = ConnectionId(random_id())
    new = SealedConnection(
        provider=connector.provider,
        tags=asked.tags,
        reach=tenant.tags,
        limit=asked.limit,
        metadata=shown,
        secrets=seal_secrets(app, id, secrets),
        pending=connector.oauth is not None,
    )
    with app.db.begin() as tx:
        if connector.oauth is not None:
            client_of(tx, app, tenant.id, connector)
        made = connections.create(tx, tenant.id, new, id)
        tags.ensure(tx, tenant.id, asked.tags)
    return made


def unsaved(
    app: App, tenant: Tenant, plan: Plan, asked: ConnectionRequest
) -> tuple[Connection, Mapping[str, Any]]:
    """What `create` would store, to be tried out first, and its secrets. Raises as `create`."""
    connector = connectors.get(asked.provider)
    check_plan(connector, plan)
    shown, secrets = _metadata(app, connector, asked.metadata)
    made = Connection(
        id=ConnectionId(random_id()),
        org_id=tenant.id,
        provider=connector.provider,
        container_tags=asked.tags,
        reach=tenant.tags,
        document_limit=asked.limit,
        metadata=shown,
        email=None,
        account=None,
        state=ConnectionState.READY,
        failure=None,
        paused=False,
        cursor=None,
        due_at=None,
        parked_until=None,
        parked_for=timedelta(),
        failures=0,
        pushes=None,
        pushed_at=None,
        expires_at=None,
        last_run=None,
        last_synced_at=None,
        created_at=datetime.now(UTC),
    )
    return made, secrets


def change(
    app: App,
    tenant: Tenant,
    found: Connection,
    changed: ConnectionChanges,
    *,
    judge: Judge | None = None,
) -> Connection:
    """Change it, and have a sync make it so. Secrets and what was picked stay unless they are
    given again, since they cannot be sent back. Raises BadRequestError, NotFoundError."""
    while True:
        with app.db.begin() as tx:
            found = connections.get(tx, tenant, found.id)
            secrets = connections.sealed(tx, found.id).secrets
        # It may ask the provider or the network, so it waits for no row.
        wanted = _wanted(app, found, changed)
        with app.db.begin() as tx:
            now = connections.get(tx, tenant, found.id, lock=True)
            if judge is not None:
                judge(now)
            held = connections.sealed(tx, found.id).secrets
            if wanted.metadata is not None and (now.metadata, held) != (found.metadata, secrets):
                continue  # another change came between: what is kept is kept of that one
            now = connections.update(tx, tenant, found.id, wanted)
            tags.ensure(tx, tenant.id, now.container_tags)
            return now


def _wanted(app: App, found: Connection, changed: ConnectionChanges) -> ConnectionChange:
    connector = connectors.get(found.provider)
    shown, sealed = None, None
    if changed.metadata is not None:
        names, known = stays(connector), _known(app, found)
        kept = {name: value for name, value in known.items() if name in names}
        shown, secrets = _metadata(app, connector, {**kept, **changed.metadata})
        if any(known.get(name) != value for name, value in secrets.items()):
            sealed = seal_secrets(app, found.id, secrets)
    return ConnectionChange(changed.tags, changed.limit, shown, sealed, changed.paused)


def stays(connector: Connector) -> AbstractSet[str]:
    """Names of the metadata that stay when a caller replaces it and leaves them out: secrets, since
    callers cannot read them, and what was picked, since callers change that by `pick`."""
    return connector.secrets | {PICKED} if connector.picks else connector.secrets


def _known(app: App, found: Connection) -> Mapping[str, Any]:
    """Its metadata with its secrets, unless their key is lost: then they are to be given again."""
    try:
        return open_source(app, found).metadata
    except Reauthorize:
        return found.metadata


# --- authorizing -------------------------------------------------------------------------------


def link(app: App, tenant: Tenant, connection: Connection, redirect_url: str | None) -> str:
    """Where the user authorizes within `authorizations.AUTH_LINK_LIFE`, as long as the tenant's key
    opens anything.

    Raises BadRequestError for a provider without authorization, or an address that a browser may
    not be sent to afterwards.
    """
    connector = connectors.get(connection.provider)
    if connector.oauth is None:
        raise BadRequestError(f"{connection.provider} needs no authorization")
    if redirect_url is not None:
        check_redirect(app, redirect_url)
    with app.db.begin() as tx:
        client = client_of(tx, app, connection.org_id, connector)
        made = oauth.begin(
            oauth_of(app, connector),
            client,
            redirect_uri=callback_url(app, connector.provider),
            scopes=connector.authorized(connection.metadata),
        )
        verifier = None
        if made.verifier is not None:
            place = (connection.id, "verifier")
            verifier = encryption.seal(secret_keys(app.config), made.verifier, place=place)
        authorizations.begin_authorization(
            tx,
            connection.id,
            state=oauth.hashed(made.state),
            verifier=verifier,
            redirect_url=redirect_url,
            by=tenant.key,
        )
    return made.url


def own_url(app: App) -> str:
    """Where browsers reach this service, as far as the settings tell; no trailing slash."""
    return (app.config.public_url or app.config.address).rstrip("/")


def callback_url(app: App, provider: str) -> str:
    """Where providers send users back; operators register it there."""
    return f"{own_url(app)}/v3/connections/auth/callback/{provider}"


def check_redirect(app: App, url: str) -> None:
    """`oauth.check_redirect`, but that our own console is among the addresses."""
    ours, given = urlsplit(own_url(app)), urlsplit(url)
    path = f"{ours.path}/console/connections/"
    plain = url.isascii() and url.isprintable() and not set(url) & set(" \\#@")
    if plain and given[:2] == ours[:2] and given.path.startswith(path) and ".." not in url:
        return
    oauth.check_redirect(url, app.config.redirect_origins)


# --- picking -----------------------------------------------------------------------------------


def resources(
    app: App, connection: Connection, page: int, per_page: int
) -> tuple[list[Resource], int]:
    """One page of what may be picked, and how many there are; asks the provider.

    Raises NothingToPickError, BadRequestError while it is not authorized, UpstreamError.
    """
    connector = _picking(connection)
    try:
        return connector.resources(open_source(app, connection), page, per_page)
    except Reauthorize as error:
        raise BadRequestError(f"authorization: {error}") from error
    except (Transient, Permanent) as error:
        raise UpstreamError(connector.name, error) from error


def pick(
    app: App,
    tenant: Tenant,
    connection: Connection,
    picked: Sequence[Mapping[str, Any]],
    *,
    judge: Judge | None = None,
) -> bool:
    """They replace what was picked before; a sync follows. Whether the provider will be asked to
    push their changes. Raises as `resources`."""
    connector = _picking(connection)
    with app.db.begin() as tx:
        now = connections.get(tx, tenant, connection.id, lock=True)
        if judge is not None:
            judge(now)
        wanted = ConnectionChange(metadata=connector.configure(now.metadata, picked))
        now = connections.update(tx, tenant, connection.id, wanted)
    if connector.push_url(app.config, "") is None:
        return False
    return bool(connector.watches(open_source(app, now)))


def select(
    app: App, tenant: Tenant, found: Connection, ids: Sequence[str], limit: int | None = None
) -> Connection:
    """Limit it to these repositories, folders or labels, in place of those before; a sync follows.

    Raises BadRequestError for an id that the provider does not know, where it has to be asked, and
    as `resources`.
    """
    connector = connectors.get(found.provider)
    if not connector.picks:
        metadata = connector.select(found.metadata, ids)
        return change(app, tenant, found, ConnectionChanges(limit=limit, metadata=metadata))
    known: dict[str, Mapping[str, Any]] = {}
    page, total = 1, 1
    while not set(ids) <= known.keys() and (page - 1) * PAGE < total:
        some, total = resources(app, found, page, PAGE)
        for one in some:
            entry = {"id": one.id, "name": one.full_name, "defaultBranch": one.default_branch}
            known |= {one.id: entry, one.full_name: entry}
        page += 1
    for id in ids:
        if id not in known:
            raise BadRequestError(f"selection: {connector.name} has no {id[:100]!r}")
    pick(app, tenant, found, [known[id] for id in ids])
    return change(app, tenant, found, ConnectionChanges(limit=limit))


def _picking(connection: Connection) -> Connector:
    connector = connectors.get(connection.provider)
    if not connector.picks:
        raise NothingToPickError(connector.name)
    if connection.state in (ConnectionState.PENDING, ConnectionState.NEEDS_AUTH):
        raise BadRequestError("authorization: the user has to authorize the connection first")
    return connector


def _metadata(
    app: App, connector: Connector, given: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is shown, and what is sealed."""
    checked = connector.check(given, app.fetcher)
    connector.admit(checked, app.config)
    secrets = {name: value for name, value in checked.items() if name in connector.secrets}
    return {n: v for n, v in checked.items() if n not in connector.secrets}, secrets
