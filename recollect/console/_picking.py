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
from recollect.console import _room
from recollect.console._connections import CONNECTIONS, about, connection_of, picked
from recollect.console._room import (
    CurrentApp,
    PathId,
    SignedInPage,
    Writer,
    page,
)
from recollect.errors import BadRequestError, RequestError
from recollect.model import Connection, Tenant
from recollect.sync import connect

PICKS = 30
"""Resources on a page, as the API has them."""
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
    picked = [_resource(one) for one in written]
    turn = form.get("page")
    if isinstance(turn, str) and turn.isascii() and turn.isdecimal():
        number = min(max(int(turn[:6]), 1), 10_000)
        return _picking(request, app, found, picked, number, None)
    if not picked:
        error = BadRequestError("Pick at least one; to end all of it, delete the connection.")
        return _picking(request, app, found, picked, 1, error)
    try:
        connect.pick(app, tenant, found, picked)
    except BadRequestError as error:
        return _picking(request, app, found, picked, 1, error)
    return RedirectResponse(f"{CONNECTIONS}/{found.id}?done=picked", 303)


def _picking(
    request: Request,
    app: App,
    found: Connection,
    picked: Sequence[Mapping[str, Any]],
    number: int,
    error: RequestError | None,
) -> Response:
    some, total = connect.resources(app, found, number, PICKS)
    ticked = {str(one.get("id")) for one in picked}
    here = {one.id for one in some}
    choices = [
        (
            one,
            one.id in ticked,
            json.dumps(
                {"id": one.id, "name": one.full_name, "defaultBranch": one.default_branch},
                ensure_ascii=False,
            ),
        )
        for one in some
    ]
    values = {
        **about(found),
        "connector": connectors.get(found.provider),
        "choices": choices,
        "elsewhere": [
            (str(one.get("name", "")), json.dumps(one, ensure_ascii=False))
            for one in picked
            if str(one.get("id")) not in here
        ],
        "number": number,
        "last": max(1, -(-total // PICKS)),
        "total": total,
        "error": _room.sentence(error) if error else None,
    }
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
