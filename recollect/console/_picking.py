"""Picking what a connection brings, of what the provider offers."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse
from starlette.datastructures import FormData

from recollect import connectors
from recollect.app import App
from recollect.connectors.base import Resource
from recollect.console import _room
from recollect.console._connections import CONNECTIONS, about, connection_of, obstacle_of, picked
from recollect.console._room import (
    CurrentApp,
    PathId,
    SignedInPage,
    Writer,
    page,
)
from recollect.errors import BadRequestError, ConflictError, RequestError
from recollect.model import Connection, Tenant
from recollect.sync import connect
from recollect.sync.connect import UpstreamError

PICKS = 100
"""Resources on a page: as many as the provider gives at once, since most people have fewer, and a
page that was turned is lost to the browser's Back."""
MOST_PICKED = 1_000
LONGEST_PICK = 2_000
"""characters"""

rooms = APIRouter(route_class=SignedInPage, include_in_schema=False)


@rooms.get(CONNECTIONS + "/{id}/pick")
def pick_form(request: Request, id: PathId, tenant: Writer, app: CurrentApp) -> Response:
    found = connection_of(app, tenant, id)
    return _picking(request, app, found, picked(found), 1, None)


@rooms.post(CONNECTIONS + "/{id}/pick")
async def pick(request: Request, id: PathId, tenant: Writer, app: CurrentApp) -> Response:
    async with request.form(max_files=0, max_fields=MOST_PICKED + 100) as form:
        return await run_in_threadpool(_pick, request, app, tenant, id, form)


def _pick(request: Request, app: App, tenant: Tenant, id: str, form: FormData) -> Response:
    """Turn to another page of what may be picked, or save. Ticks on other pages are kept."""
    found = connection_of(app, tenant, id)
    written = [one for one in form.getlist("pick") if isinstance(one, str)]
    ticked = [_resource(one) for one in written]
    before = form.get("before")
    opened = before if isinstance(before, str) else None
    turn = form.get("page")
    if isinstance(turn, str):
        return _picking(request, app, found, ticked, _number(turn), None, opened)

    def judge(now: Connection) -> None:
        _room.check_stamp(opened, picked(now))

    try:
        judge(found)
        if not ticked:
            raise BadRequestError("Pick at least one; to end all of it, delete the connection.")
        connect.pick(app, tenant, found, ticked, judge=judge)
    except (BadRequestError, ConflictError) as error:
        found = connection_of(app, tenant, id)
        return _picking(request, app, found, ticked, _number(form.get("at")), error)
    return RedirectResponse(f"{CONNECTIONS}/{found.id}?done=picked", 303)


def _number(written: object) -> int:
    """Of a page; 1 for what is not a number."""
    if not isinstance(written, str) or not (written.isascii() and written.isdecimal()):
        return 1
    return min(max(int(written[:6]), 1), 10_000)


def _picking(
    request: Request,
    app: App,
    found: Connection,
    ticked: Sequence[Mapping[str, Any]],
    number: int,
    error: RequestError | None,
    opened: str | None = None,
) -> Response:
    """Ticks stay, also where the provider does not show what there is; `opened`: the stamp of what
    was picked when the person began."""
    some: Sequence[Resource] = ()
    total, away = 0, False
    connector = connectors.get(found.provider)
    with app.db.begin() as tx:
        obstacle = obstacle_of(tx, app, _room.key_of(request), connector)
    try:
        if obstacle:
            raise BadRequestError(obstacle)
        some, total = connect.resources(app, found, number, PICKS)
    except (UpstreamError, BadRequestError) as fault:
        error, away = error or fault, True
    ids = {str(one.get("id")) for one in ticked}
    here = {one.id for one in some}
    choices = [
        (
            one,
            one.id in ids,
            json.dumps(
                {"id": one.id, "name": one.full_name, "defaultBranch": one.default_branch},
                ensure_ascii=False,
            ),
        )
        for one in some
    ]
    values = {
        **about(found),
        "choices": choices,
        "elsewhere": [
            (str(one.get("name", "")), json.dumps(one, ensure_ascii=False))
            for one in ticked
            if str(one.get("id")) not in here
        ],
        "before": opened or _room.stamp(picked(found)),
        "number": number,
        "last": max(1, -(-total // PICKS)),
        "total": total,
        "away": away,
        **_room.fault(error),
    }
    if isinstance(error, UpstreamError):
        values["error"] = f"{error.message}: {values['error']}"
    return page(request, "pick.html", values, error.status if error else 200)


def _resource(written: str) -> Mapping[str, Any]:
    """What a box of the form says; the connector checks it."""
    try:
        found: object = json.loads(written) if len(written) <= LONGEST_PICK else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise BadRequestError("pick: is not one of those shown")
    return cast("Mapping[str, Any]", found)
