"""The room of keys: make one, which is shown once, and revoke."""

import re
from typing import Annotated

from fastapi import APIRouter, Form, Query, Request, Response
from fastapi.responses import RedirectResponse

from recollect.app import App
from recollect.console import _room
from recollect.console._room import (
    LOGIN,
    Admin,
    CurrentApp,
    CurrentKey,
    PathId,
    SignedInPage,
    Text,
    address,
    known_tags,
    near,
    page,
)
from recollect.errors import BadRequestError, NotFoundError, RequestError
from recollect.model import KeyId, Scope, Tenant
from recollect.orgs import orgs, tags
from recollect.orgs.orgs import Limit

KEYS = "/console/keys"
ROWS = 50
LONGEST_NAME = 100
MOST_REQUESTS = 1_000_000
"""per minute"""
SCOPES = {
    Scope.READ: "read: sees and searches",
    Scope.WRITE: "write: also adds, changes and deletes",
    Scope.ADMIN: "admin: also keys and settings",
}

rooms = APIRouter(route_class=SignedInPage, include_in_schema=False)


@rooms.get(KEYS)
def find(
    request: Request,
    tenant: Admin,
    app: CurrentApp,
    number: Annotated[int, Query(alias="page", ge=1, le=1_000_000)] = 1,
    revoked: Text = "",
) -> Response:
    notice = f"The key {revoked[:40]} is revoked." if revoked else None
    return _page(request, app, tenant, number=number, notice=notice)


@rooms.post(KEYS)
def create(
    request: Request,
    tenant: Admin,
    app: CurrentApp,
    name: Annotated[Text, Form()] = "",
    scope: Annotated[str, Form()] = "",
    tag: Annotated[Text, Form(alias="tags")] = "",
    expires: Annotated[Text, Form(max_length=100)] = "",
    limit: Annotated[str, Form()] = "",
) -> Response:
    """The answer is the only place that shows the key."""
    typed = {"name": name, "scope": scope, "tags": tag, "expires": expires, "limit": limit}
    try:
        if scope not in list(Scope):
            raise BadRequestError("scope: read, write or admin")
        if len(name) > LONGEST_NAME or not (name.isprintable()):
            raise BadRequestError(f"name: at most {LONGEST_NAME} printable characters")
        named = tags.check(tag.replace(",", " ").split(), "tags")
        until = _room.until(app, expires)
        requests = _number("limit", limit, MOST_REQUESTS)
    except RequestError as error:
        return _page(request, app, tenant, typed=typed, error=error)
    with app.db.begin() as tx:
        made, secret = orgs.create_key(
            tx,
            tenant.id,
            name=name.strip(),
            scope=Scope(scope),
            tags=named or None,
            expires_at=until,
            limit=None if requests is None else Limit(requests),
        )
    return page(request, "key.html", {"made": made, "secret": secret})


@rooms.get(KEYS + "/{id}/revoke")
def confirm(
    request: Request, id: PathId, tenant: Admin, key: CurrentKey, app: CurrentApp
) -> Response:
    with app.db.begin() as tx:
        found = orgs.find_key(tx, tenant.id, KeyId(id))
    return page(request, "revoke.html", {"one": found, "is_own": found.id == key.id})


@rooms.post(KEYS + "/{id}/revoke")
def revoke(id: PathId, tenant: Admin, key: CurrentKey, app: CurrentApp) -> Response:
    with app.db.begin() as tx:
        orgs.revoke_key(tx, KeyId(id), tenant.id)
    return RedirectResponse(LOGIN if id == key.id else address(KEYS, revoked=id), 303)


def _page(
    request: Request,
    app: App,
    tenant: Tenant,
    *,
    number: int = 1,
    typed: dict[str, str] | None = None,
    error: RequestError | None = None,
    notice: str | None = None,
) -> Response:
    with app.db.begin() as tx:
        found = orgs.browse_keys(tx, tenant.id, limit=ROWS, page=number)
        known = known_tags(tx, tenant)
    if not found.items and number > 1:
        raise NotFoundError("Not found", "there is no such page of keys")
    last = max(1, -(-found.total // ROWS))
    blank = {"name": "", "scope": Scope.WRITE.value, "tags": "", "expires": "", "limit": ""}
    values = {
        "found": found,
        "rows": [(one, one.state) for one in found.items],
        "scopes": SCOPES,
        "typed": typed or blank,
        "known": known,
        **_room.fault(error),
        "notice": notice,
        "last": last,
        "links": {at: address(KEYS, page=at) for at in near(number, last)},
    }
    return page(request, "keys.html", values, error.status if error else 200)


def _number(field: str, written: str, most: int) -> int | None:
    text = written.strip()
    if not text:
        return None
    if not re.fullmatch(r"[0-9]{1,9}", text) or not 1 <= int(text) <= most:
        raise BadRequestError(f"{field}: 1 to {most:,}, or nothing")
    return int(text)
