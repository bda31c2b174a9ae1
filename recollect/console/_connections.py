"""The rooms of connections: make one, watch it sync, see what it saw and why, end it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, cast, get_args
from urllib.parse import urlsplit

from fastapi import APIRouter, Form, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse
from starlette.datastructures import FormData

from recollect import connectors, documents
from recollect.app import App
from recollect.connectors.about import Guide
from recollect.connectors.base import Connector
from recollect.console import _guides, _room
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
from recollect.errors import BadRequestError, PermissionDeniedError, RequestError, SetupError
from recollect.model import Connection, ConnectionState, Key, Tenant, Trigger
from recollect.orgs import tags
from recollect.sync import account_check, change_log, connect, connections, items, overlaps
from recollect.sync.account_check import CheckReport
from recollect.sync.connect import ConnectionChanges, ConnectionRequest
from recollect.sync.connections import LIMIT
from recollect.sync.credentials import client_of, oauth_of
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
}
NOT_AUTHORIZED = "That did not work. Try once more."

TEST = "test"

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


# --- making one --------------------------------------------------------------------------------


@rooms.get(CONNECTIONS + "/new/{provider}")
def new_form(
    request: Request, provider: PathId, key: CurrentKey, tenant: Writer, app: CurrentApp
) -> Response:
    connector = connectors.get(provider)
    return _form(request, app, key, tenant, connector, None, {}, None)


@rooms.post(CONNECTIONS + "/new/{provider}")
async def create(
    request: Request, provider: PathId, key: CurrentKey, tenant: Writer, app: CurrentApp
) -> Response:
    async with request.form(max_files=0, max_fields=100) as form:
        return await run_in_threadpool(_create, request, app, key, tenant, provider, texts_of(form))


def _create(
    request: Request, app: App, key: Key, tenant: Tenant, provider: str, form: Mapping[str, str]
) -> Response:
    connector = connectors.get(provider)
    try:
        asked = ConnectionRequest(
            provider=provider,
            tags=_tags_of(tenant, form.get("tags", "")),
            metadata=_guides.typed(connector.guide, form),
            limit=_limit_of(form.get("limit", "")),
        )
        if form.get("action") == TEST and connector.oauth is None:
            report = account_check.try_out(app, *connect.unsaved(app, tenant, key.org.plan, asked))
            if not report.holds:
                return _form(request, app, key, tenant, connector, None, form, None, report)
        made = connect.create(app, tenant, key.org.plan, asked)
    except RequestError as error:
        return _form(request, app, key, tenant, connector, None, form, error)
    if connector.oauth is not None:
        return RedirectResponse(f"{CONNECTIONS}/{made.id}/authorize", 303)
    return RedirectResponse(f"{CONNECTIONS}/{made.id}?done=created", 303)


def _form(
    request: Request,
    app: App,
    key: Key,
    tenant: Tenant,
    connector: Connector,
    connection: Connection | None,
    form: Mapping[str, str],
    error: RequestError | None,
    report: CheckReport | None = None,
) -> Response:
    """Of a new connection, or of one that is to be changed; `report`: why a test of it failed."""
    guide = connector.guide
    own = f"{CONNECTIONS}/{connection.id}" if connection else CONNECTIONS
    blank = _guides.as_typed(guide, {}) if not form else {}
    with app.db.begin() as tx:
        known = known_tags(tx, tenant)
        obstacle = None if connection else obstacle_of(tx, app, key, connector)
    values = {
        "connector": connector,
        "guide": guide,
        "connection": connection,
        "before": _room.stamp(_stamped(connection)) if connection else None,
        "typed": {**blank, **form},
        **_fault(guide, error),
        "obstacle": obstacle,
        "failed": _failed(report) if report else {},
        "tests": connection is None and connector.oauth is None,
        "action": f"{own}/edit" if connection else f"{own}/new/{connector.provider}",
        "back": own,
        "most": LIMIT,
        "own_tags": tenant.tags,
        "default_tag": tenant.tags[0] if tenant.tags else tags.DEFAULT,
        "known": known,
        "opens": _host_of(app, connector),
        "snippets": _room.code(
            request,
            "createConnection",
            {"containerTags": ["docs"], "documentLimit": 500, "metadata": guide.example},
            path={"provider": connector.provider},
        )
        if guide.example and connection is None
        else {},
    }
    return page(request, "connect.html", values, error.status if error else 200)


def _failed(report: CheckReport) -> dict[str, list[str]]:
    """What failed, by the sentence that says why: one reason may fail several steps."""
    failed: dict[str, list[str]] = {}
    for one in report.assumptions:
        if one.holds is False:
            failed.setdefault(one.sentence, []).append(one.name)
    return failed


def _fault(guide: Guide, error: RequestError | None) -> dict[str, object]:
    """What is wrong, in the words of the form, and the id of the field that it is about."""
    told = (error.details or error.message) if error else ""
    name, colon, rest = told.partition(": ")
    for field in guide.fields:
        if colon and name == f"metadata.{field.name}":
            return {"error": _room.labelled(field.label, rest), "wrong": f"m.{field.name}"}
    return {**_room.fault(error)}


def _tags_of(tenant: Tenant, written: str) -> list[str]:
    """The tags, or the one that a write goes to; raises as `tags.asked`."""
    named = written.replace(",", " ").split()
    return tags.asked(tenant, None, named, default=True, field="tags")


def _limit_of(written: str) -> int:
    text = written.strip() or str(LIMIT)
    if not re.fullmatch(r"[0-9]{1,9}", text) or not 1 <= int(text) <= LIMIT:
        raise BadRequestError(f"limit: 1 to {LIMIT:,}")
    return int(text)


# --- authorizing -------------------------------------------------------------------------------


@rooms.get(CONNECTIONS + "/{id}/authorize")
def authorize(
    request: Request, id: PathId, key: CurrentKey, tenant: Writer, app: CurrentApp
) -> Response:
    """A page with the link; a form could not lead to another host under our policy."""
    found = connection_of(app, tenant, id)
    connector = connectors.get(found.provider)
    with app.db.begin() as tx:
        obstacle = obstacle_of(tx, app, key, connector)
    link = "" if obstacle else connect.link(app, tenant, found, _way_back(request, app))
    values = {
        "connection": found,
        "connector": connector,
        "obstacle": obstacle,
        "link": link,
        "opens": urlsplit(link).hostname,
        "own": f"{CONNECTIONS}/{found.id}",
    }
    return page(request, "authorize.html", values)


def _way_back(request: Request, app: App) -> str:
    """The console as this browser reaches it, since there is its session; else as the settings
    name it."""
    path = f"{CONNECTIONS}/back"
    seen = _room.public_url(request) + path
    try:
        connect.check_redirect(app, seen)
    except BadRequestError:
        return connect.own_url(app) + path
    return seen


@rooms.get(CONNECTIONS + "/back")
def back(
    tenant: Reader,
    app: CurrentApp,
    connection: Annotated[Text, Query(alias="connectionId")] = "",
    status: Text = "",
    error: Text = "",
) -> Response:
    """The browser returns from the provider."""
    found = connection_of(app, tenant, connection)
    own = f"{CONNECTIONS}/{found.id}"
    if status != "connected":
        return RedirectResponse(address(own, refused=error or "unknown"), 303)
    if connectors.get(found.provider).picks and connect.PICKED not in found.metadata:
        return RedirectResponse(f"{own}/pick", 303)
    return RedirectResponse(f"{own}?done=connected", 303)


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


@rooms.get(CONNECTIONS + "/{id}/edit")
def edit_form(
    request: Request, id: PathId, key: CurrentKey, tenant: Writer, app: CurrentApp
) -> Response:
    found = connection_of(app, tenant, id)
    connector = connectors.get(found.provider)
    form = _guides.as_typed(connector.guide, found.metadata)
    form |= {"tags": ", ".join(found.container_tags), "limit": str(found.document_limit)}
    return _form(request, app, key, tenant, connector, found, form, None)


@rooms.post(CONNECTIONS + "/{id}/edit")
async def edit(
    request: Request, id: PathId, key: CurrentKey, tenant: Writer, app: CurrentApp
) -> Response:
    async with request.form(max_files=0, max_fields=100) as form:
        return await run_in_threadpool(_edit, request, app, key, tenant, id, texts_of(form))


def _edit(
    request: Request, app: App, key: Key, tenant: Tenant, id: str, form: Mapping[str, str]
) -> Response:
    found = connection_of(app, tenant, id)
    try:
        _room.check_stamp(form.get("before"), _stamped(found))
        changed = _difference(tenant, found, form)
        if changed != ConnectionChanges():
            connect.change(app, tenant, found, changed)
    except RequestError as error:
        connector = connectors.get(found.provider)
        return _form(request, app, key, tenant, connector, found, form, error)
    done = "same" if changed == ConnectionChanges() else "changed"
    return RedirectResponse(f"{CONNECTIONS}/{found.id}?done={done}", 303)


def _stamped(found: Connection) -> object:
    """What the form of a change can change."""
    return [found.container_tags, found.document_limit, found.metadata]


def _difference(tenant: Tenant, found: Connection, form: Mapping[str, str]) -> ConnectionChanges:
    """Only the fields that differ: a change of tags or metadata makes the next sync list everything
    again."""
    guide = connectors.get(found.provider).guide
    named = _tags_of(tenant, form.get("tags", ""))
    limit = _limit_of(form.get("limit", ""))
    before = {n: v for n, v in found.metadata.items() if isinstance(v, (str, int, float))}
    fields = {field.name for field in guide.fields}
    told = _guides.typed(guide, form)
    same = told == _guides.typed(guide, _guides.as_typed(guide, found.metadata))
    others = {name: value for name, value in before.items() if name not in fields}
    return ConnectionChanges(
        tags=None if named == list(found.container_tags) else named,
        limit=None if limit == found.document_limit else limit,
        metadata=None if same else {**others, **told},
    )


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


def _host_of(app: App, connector: Connector) -> str | None:
    """The host whose page the user is led to."""
    return urlsplit(oauth_of(app, connector).authorize_url).hostname if connector.oauth else None


def connection_of(app: App, tenant: Tenant, id: str) -> Connection:
    with app.db.begin() as tx:
        return connections.get(tx, tenant, id)


def texts_of(form: FormData) -> dict[str, str]:
    return {name: value for name, value in form.items() if isinstance(value, str)}
