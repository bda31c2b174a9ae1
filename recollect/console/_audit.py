"""The room of the audit log: who did what, and what was refused."""

from datetime import UTC, date, datetime
from typing import Annotated, cast

from fastapi import APIRouter, Query, Request, Response

from recollect.console._room import (
    Admin,
    CurrentApp,
    SignedInPage,
    Text,
    address,
    is_house,
    key_of,
    page,
)
from recollect.db import Tx
from recollect.errors import BadRequestError, NotFoundError
from recollect.model import KeyId, OrgId
from recollect.orgs import audit, orgs
from recollect.orgs.audit import Record

AUDIT = "/console/audit"
ROWS = 100
GROUPS = {
    "documents.": "documents",
    "connection.": "connections",
    "key.": "keys",
    "settings.": "settings",
    "webhook.": "webhooks",
    "sign_in.": "signing in",
    "organisation.": "the organisation",
}
"""Beginnings of actions that are offered, with words."""

rooms = APIRouter(route_class=SignedInPage, include_in_schema=False)


@rooms.get(AUDIT)
def find(
    request: Request,
    tenant: Admin,
    app: CurrentApp,
    action: Annotated[Text, Query(max_length=100)] = "",
    actor: Annotated[Text, Query(max_length=100)] = "",
    since: Annotated[Text, Query(max_length=10)] = "",
    before: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None,
) -> Response:
    chosen = {"action": action.strip(), "actor": actor.strip(), "since": since.strip()}
    with app.db.begin() as tx:
        found = audit.find(
            tx,
            org=tenant.id,
            action=chosen["action"] or None,
            actor=chosen["actor"] or None,
            since=_day(chosen["since"]),
            before=before,
            limit=ROWS + 1,
            with_strangers=is_house(key_of(request)),
        )
        names = _names(tx, tenant.id, found)
    shown = found[:ROWS]
    values = {
        **chosen,
        "records": [(one, names.get(one.actor), _details(one)) for one in shown],
        "groups": GROUPS,
        "before": before,
        "older": address(AUDIT, **chosen, before=shown[-1].id) if len(found) > ROWS else None,
        "newest": address(AUDIT, **chosen),
    }
    return page(request, "audit.html", values)


def _day(written: str) -> datetime | None:
    if not written:
        return None
    try:
        found = date.fromisoformat(written)
    except ValueError as error:
        raise BadRequestError("since: a day as YYYY-MM-DD") from error
    return datetime(found.year, found.month, found.day, tzinfo=UTC)


def _names(tx: Tx, org: OrgId, found: list[Record]) -> dict[str, str]:
    """How people call the keys that acted."""
    names: dict[str, str] = {}
    for actor in {one.actor for one in found if one.actor.startswith("key:")}:
        try:
            names[actor] = orgs.find_key(tx, org, KeyId(actor.removeprefix("key:"))).name or ""
        except NotFoundError:
            continue
    return names


def _details(one: Record) -> str:
    """`scope admin · tags a, b · limited`; what is not so is left out."""
    return " · ".join(
        name if value is True else f"{name} {_shown(value)}"
        for name, value in one.details.items()
        if value is not False and value not in (None, "", [])
    )


def _shown(value: object) -> str:
    match value:
        case list():
            return ", ".join(map(str, cast("list[object]", value)))
        case _:
            return str(value)
