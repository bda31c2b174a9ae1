"""The rooms of connections: watch one sync, see what it saw and why, end it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, cast, get_args

from fastapi import APIRouter, Form, Query, Request, Response
from fastapi.responses import RedirectResponse

from recollect import connectors, documents
from recollect.app import App
from recollect.connectors.about import Guide
from recollect.connectors.base import Connector
from recollect.console import _room
from recollect.console._room import (
    LIVE,
    CurrentApp,
    CurrentKey,
    Part,
    PathId,
    Reader,
    SignedInPage,
    Text,
    Writer,
    address,
    known_tags,
    near,
    page,
)
from recollect.db import Tx
from recollect.documents import DocumentQuery
from recollect.errors import BadRequestError, PermissionDeniedError, SetupError
from recollect.model import Connection, ConnectionState, Key, Tenant, Trigger
from recollect.sync import change_log, connect, connections, items, overlaps
from recollect.sync.credentials import client_of
from recollect.sync.sources import end

CONNECTIONS = "/console/connections"
ROWS = 25
"""Connections on a page."""
RUNS = 20
CHANGES = 50
"""Documents on a page of what a run changed."""
LOOKED_AT = 20_000
"""Connections, the newest, among which the list looks for what it shows."""
NOTICES = {
    "created": "Connected. The first sync begins.",
    "connected": "Authorized.",
    "sync": "A sync is on its way.",
    "lost": "It has to be authorized first.",
    "pause": "Paused: nothing is synced on schedule or by pushes until you resume it.",
    "resume": "Resumed; a sync is on its way.",
    "changed": "Saved; a sync applies it.",
    "same": "Nothing was changed.",
    "picked": "Saved; the sync begins.",
    "ended": "The connection and its documents are deleted for good.",
    "detached": "The connection is deleted; its documents stay.",
}
REFUSALS = {
    "access_denied": "The authorization was refused at the provider.",
    "code_refused": "The provider did not accept the authorization. Try once more.",
    "provider_unavailable": "The provider does not answer. Try again in a while.",
    "provider_refused": "The provider refused. Check how the application is set up there.",
    "service_unavailable": "Recollect could not keep the authorization, because its database did"
    " not answer. Authorize it again.",
    "service_error": "Recollect could not keep the authorization; its log says why.",
    "refused": "It was authorized with another account, or with fewer rights than needed. Leave"
    " everything ticked and take the same account.",
    "refused first": "It was authorized with fewer rights than needed. Leave everything ticked.",
}
NOT_AUTHORIZED = "That did not work. Try once more."

rooms = APIRouter(route_class=SignedInPage, include_in_schema=False)


# --- all of them -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tile:
    """A provider that may be connected, or why it may not."""

    connector: Connector
    guide: Guide
    reason: str | None
    by_settings: bool
    """whether the settings of the organisation could help as well"""


@rooms.get(CONNECTIONS)
def find(
    request: Request,
    key: CurrentKey,
    tenant: Reader,
    app: CurrentApp,
    provider: Text = "",
    tag: Text = "",
    number: Annotated[int, Query(alias="page", ge=1, le=1_000_000)] = 1,
    done: str = "",
    part: Part = "",
) -> Response:
    with app.db.begin() as tx:
        found, cut = connections.browse(
            tx,
            tenant,
            provider=provider if provider in connectors.all() else None,
            tag=tag.strip() or None,
            limit=ROWS,
            page=number,
            most=LOOKED_AT,
        )
        tiles = [] if part == LIVE else _tiles(tx, app, key)
        known = known_tags(tx, tenant)
    last = max(1, -(-found.total // found.limit))
    values = {
        "found": found,
        "cut": cut,
        "reached": LOOKED_AT,
        "rows": [(one, subject_of(one), name_of(one.provider)) for one in found.items],
        "moving": any(_is_moving(one) for one in found.items),
        "tiles": tiles,
        "provider": provider,
        "providers": [(one.provider, one.name) for one in connectors.all().values()],
        "tag": tag,
        "own_tags": tenant.tags,
        "known": known,
        "notice": NOTICES.get(done),
        "last": last,
        "links": {
            at: address(CONNECTIONS, provider=provider, tag=tag, page=at)
            for at in near(number, last)
        },
    }
    return page(request, "_connections.html" if part == LIVE else "connections.html", values)


def _tiles(tx: Tx, app: App, key: Key) -> list[Tile]:
    if not _room.may_write(key):
        return []
    tiles = [
        Tile(
            connector,
            connector.guide,
            obstacle_of(tx, app, key, connector),
            connector.application is not None,
        )
        for connector in connectors.all().values()
    ]
    # What can be connected stands first.
    return sorted(tiles, key=lambda tile: tile.reason is not None)


def obstacle_of(tx: Tx, app: App, key: Key, connector: Connector) -> str | None:
    """Why nobody can connect it as things are, naming what to set."""
    try:
        connect.check_plan(connector, key.org.plan)
        if connector.oauth is not None:
            client_of(tx, app, key.org.id, connector)
        return connector.obstacle(app.config)
    except PermissionDeniedError as error:
        return f"{error.message} ({error.details})"
    except BadRequestError as error:
        told = (error.details or error.message).removeprefix(f"{connector.provider}: ")
        # The rest is for programs; people are led to the room of settings.
        return told.partition(", or ")[0]
    except SetupError as error:
        return str(error)


# --- one of them -------------------------------------------------------------------------------


@rooms.get(CONNECTIONS + "/{id}")
def show(
    request: Request,
    id: PathId,
    tenant: Reader,
    app: CurrentApp,
    done: str = "",
    refused: str = "",
    part: Part = "",
) -> Response:
    with app.db.begin() as tx:
        found = connections.get(tx, tenant, id)
        runs = connections.runs(tx, found.id, RUNS)
        seen = items.verdicts(tx, found.id)
        twice = overlaps.told(tx, tenant, found)
    connector = connectors.all().get(found.provider)
    picks = connector is not None and connector.picks
    if refused == "refused" and found.account is None:
        refused = "refused first"
    values = {
        **about(found),
        "connector": connector,
        "runs": runs,
        "twice": twice,
        "most_runs": RUNS,
        "seen": seen,
        "shown": _shown_metadata(found),
        "picked": picked(found) if picks else None,
        "notice": NOTICES.get(done),
        "refusal": REFUSALS.get(refused, NOT_AUTHORIZED) if refused else None,
    }
    return page(request, "_connection.html" if part == LIVE else "connection.html", values)


@rooms.post(CONNECTIONS + "/{id}/do")
def act(id: PathId, tenant: Writer, app: CurrentApp, action: Annotated[str, Form()]) -> Response:
    """Sync now, pause or resume."""
    with app.db.begin() as tx:
        found = connections.get(tx, tenant, id)
        match action:
            case "sync":
                wanted = connections.want(tx, [found.id], Trigger.MANUAL)
                done = "sync" if wanted else "lost"
            case "pause" | "resume":
                change = connections.ConnectionChange(paused=action == "pause")
                connections.update(tx, tenant, found.id, change)
                done = action
            case _:
                raise BadRequestError("action: sync, pause or resume")
    return RedirectResponse(f"{CONNECTIONS}/{found.id}?done={done}", 303)


# --- what a run changed -------------------------------------------------------------------------


@rooms.get(CONNECTIONS + "/{id}/runs/{run}")
def changes(
    request: Request,
    id: PathId,
    run: PathId,
    tenant: Reader,
    app: CurrentApp,
    what: Text = "",
    number: Annotated[int, Query(alias="page", ge=1, le=1_000_000)] = 1,
    part: Part = "",
) -> Response:
    """The documents that it added, changed and removed, the first made first."""
    kinds = get_args(change_log.What)
    chosen = cast("change_log.What", what) if what in kinds else None
    with app.db.begin() as tx:
        found = connections.get(tx, tenant, id)
        of = connections.run(tx, found.id, run)
        some = change_log.find(tx, tenant, found.id, of.id, what=chosen, limit=CHANGES, page=number)
    own = f"{CONNECTIONS}/{found.id}/runs/{of.id}"
    last = max(1, -(-some.total // CHANGES))
    values = {
        **about(found),
        "run": of,
        "some": some,
        "what": chosen,
        "tabs": [("", own, "All")]
        + [(kind, address(own, what=kind), kind.capitalize()) for kind in kinds],
        "most": change_log.MOST,
        "last": last,
        "links": {at: address(own, what=chosen, page=at) for at in near(number, last)},
    }
    return page(request, "_changes.html" if part == LIVE else "changes.html", values)


# --- ending ------------------------------------------------------------------------------------


@rooms.get(CONNECTIONS + "/{id}/delete")
def confirm_end(request: Request, id: PathId, tenant: Writer, app: CurrentApp) -> Response:
    with app.db.begin() as tx:
        found = connections.get(tx, tenant, id)
        query = DocumentQuery(connections=[found.id], limit=1)
        brought = documents.find(tx, Tenant(tenant.id), query).total
    connector = connectors.all().get(found.provider)
    revokes = connector is not None and connector.oauth is not None
    values = {**about(found), "brought": brought, "revokes": revokes}
    return page(request, "disconnect.html", values)


@rooms.post(CONNECTIONS + "/{id}/delete")
def finish(id: PathId, tenant: Writer, app: CurrentApp, what: Annotated[str, Form()]) -> Response:
    if what not in ("all", "connection"):
        raise BadRequestError("what: all or connection")

    def write(tx: Tx) -> None:
        found = connections.get(tx, tenant, id)
        end(tx, app, tenant, [found], with_documents=what == "all")

    app.db.write(write)
    done = "ended" if what == "all" else "detached"
    return RedirectResponse(f"{CONNECTIONS}?done={done}", 303)


# --- words -------------------------------------------------------------------------------------


def about(found: Connection) -> dict[str, object]:
    """What every page of a connection shows."""
    connector = connectors.all().get(found.provider)
    return {
        "connection": found,
        "name": name_of(found.provider),
        "subject": subject_of(found),
        "own": f"{CONNECTIONS}/{found.id}",
        "moving": _is_moving(found),
        "has_tree": connector is not None and connector.tree,
    }


def name_of(provider: str) -> str:
    """For people; a provider that this version does not know keeps its own."""
    connector = connectors.all().get(provider)
    return connector.name if connector else provider


def subject_of(found: Connection) -> str:
    """What it is of: an account, a site, a bucket."""
    connector = connectors.all().get(found.provider)
    named = connector.subject if connector else None
    return str(found.email or (named and found.metadata.get(named)) or found.account or "")


def _is_moving(found: Connection) -> bool:
    """Whether something will change soon, so that it is worth looking again."""
    if found.state is ConnectionState.SYNCING:
        return True
    due = found.due_at is not None and found.due_at <= datetime.now(UTC)
    return found.state is ConnectionState.READY and due and not found.paused


def picked(found: Connection) -> list[Mapping[str, Any]]:
    stored = found.metadata.get(connect.PICKED)
    return cast("list[Mapping[str, Any]]", stored) if isinstance(stored, list) else []


def _shown_metadata(found: Connection) -> list[tuple[str, str]]:
    """The metadata with the words of the form, where it has some."""
    connector = connectors.all().get(found.provider)
    words = {field.name: field.label for field in connector.guide.fields} if connector else {}
    return [
        (
            words.get(name, name),
            ("no", "yes")[value] if isinstance(value, bool) else str(value),
        )
        for name, value in found.metadata.items()
        if name != connect.PICKED
    ]


def connection_of(app: App, tenant: Tenant, id: str) -> Connection:
    with app.db.begin() as tx:
        return connections.get(tx, tenant, id)
