"""The forms of a connection: make one, authorize it, change what it brings."""

import re
from collections.abc import Mapping
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse
from starlette.datastructures import FormData

from recollect import connectors
from recollect.app import App
from recollect.connectors.about import Guide
from recollect.connectors.base import Connector
from recollect.console import _guides, _room
from recollect.console._connections import CONNECTIONS, connection_of, obstacle_of
from recollect.console._room import (
    CurrentApp,
    CurrentKey,
    PathId,
    Reader,
    SignedInPage,
    Text,
    Writer,
    address,
    known_tags,
    page,
)
from recollect.errors import BadRequestError, RequestError
from recollect.model import Connection, ConnectionState, Key, Tenant
from recollect.orgs import tags
from recollect.sync import account_check, connect, connections
from recollect.sync.account_check import CheckReport
from recollect.sync.connect import ConnectionChanges, ConnectionRequest
from recollect.sync.connections import LIMIT
from recollect.sync.credentials import oauth_of

TEST = "test"

rooms = APIRouter(route_class=SignedInPage, include_in_schema=False)


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
        waiting = _waiting(app, tenant, key, asked) if connector.oauth is not None else None
        made = waiting or connect.create(app, tenant, key.org.plan, asked)
    except RequestError as error:
        return _form(request, app, key, tenant, connector, None, form, error)
    if connector.oauth is not None:
        return RedirectResponse(f"{CONNECTIONS}/{made.id}/authorize", 303)
    return RedirectResponse(f"{CONNECTIONS}/{made.id}?done=created", 303)


def _waiting(app: App, tenant: Tenant, key: Key, asked: ConnectionRequest) -> Connection | None:
    """A connection like it that nobody has authorized yet. People who go back from its link to the
    form, and send the form again, want that one. Raises as `connect.create`."""
    wanted, _ = connect.unsaved(app, tenant, key.org.plan, asked)
    with app.db.begin() as tx:
        found = connections.find(tx, tenant, provider=asked.provider, tags=asked.tags)
    same = (
        one
        for one in found
        if one.state is ConnectionState.PENDING
        and (one.reach, one.container_tags) == (wanted.reach, wanted.container_tags)
        and (one.metadata, one.document_limit) == (wanted.metadata, wanted.document_limit)
    )
    return next(same, None)


# --- changing one --------------------------------------------------------------------------------


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

    def judge(now: Connection) -> None:
        _room.check_stamp(form.get("before"), _stamped(now))

    try:
        judge(found)
        changed = _difference(tenant, found, form)
        if changed != ConnectionChanges():
            connect.change(app, tenant, found, changed, judge=judge)
    except RequestError as error:
        found = connection_of(app, tenant, id)
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
    connector = connectors.get(found.provider)
    guide = connector.guide
    named = _tags_of(tenant, form.get("tags", ""))
    limit = _limit_of(form.get("limit", ""))
    others = found.metadata.keys() - connect.stays(connector) - {one.name for one in guide.fields}
    told = _guides.typed(guide, form)
    same = told == _guides.typed(guide, _guides.as_typed(guide, found.metadata))
    return ConnectionChanges(
        tags=None if named == list(found.container_tags) else named,
        limit=None if limit == found.document_limit else limit,
        metadata=None if same else {**{name: found.metadata[name] for name in others}, **told},
    )


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


# --- the form ----------------------------------------------------------------------------------


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


def _host_of(app: App, connector: Connector) -> str | None:
    """The host whose page the user is led to."""
    return urlsplit(oauth_of(app, connector).authorize_url).hostname if connector.oauth else None


def texts_of(form: FormData) -> dict[str, str]:
    return {name: value for name, value in form.items() if isinstance(value, str)}
