"""Who did what: a record to which rows are only added (a trigger sees to that).

The nouns record what is done through them, in its transaction, so that no way in is forgotten. Who
acts is known at the edges, which say it (`act`) for all that they call.
"""

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from psycopg.types.json import Jsonb

from recollect.db import Tx
from recollect.model import KeyId, OrgId, storable

DONE, REFUSED = "done", "refused"
MOST = 60
"""Rows of the same action that strangers may cause in a minute."""


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts. `address` and `request` are those of an HTTP request."""

    name: str
    """`key:ID`, `cli`, `service`, `nobody`"""
    org_id: OrgId | None = None
    address: str | None = None
    request: str | None = None


CLI = Actor("cli")
"""The operator, at the command line of a machine of the service."""
SERVICE = Actor("service")
"""The service itself, when nobody asked."""
_ACTOR = ContextVar("actor", default=SERVICE)


def act(by: Actor) -> None:
    """Say who acts in this context (a request, a command) from now on."""
    _ACTOR.set(by)


def act_as(key: KeyId, org: OrgId) -> None:
    """Say that the request of the context was made with this key."""
    _ACTOR.set(replace(_ACTOR.get(), name=f"key:{key}", org_id=org))


@dataclass(frozen=True, slots=True)
class Record:
    id: int
    at: datetime
    org_id: OrgId | None
    actor: str
    action: str
    object: str | None
    result: str
    """`done` or `refused`"""
    address: str | None
    request: str | None
    details: Mapping[str, Any]


def record(
    tx: Tx,
    action: str,
    object: str | None = None,
    *,
    org: OrgId | None = None,
    result: str = DONE,
    **details: object,
) -> None:
    """Add a row, in the transaction of what it tells; `org`: whose it is, else the actor's.

    `object` and `details` are ids, names of settings, and counts: never content or secrets.
    """
    by = _ACTOR.get()
    tx.execute(
        "insert into audit_log (org_id, actor, action, object, result, address, request, details)"
        " values (%s, %s, %s, %s, %s, %s, %s, %s)",
        (
            org or by.org_id,
            by.name,
            action,
            storable(object),
            result,
            by.address,
            by.request,
            Jsonb(storable(details)),
        ),
    )


def is_news(tx: Tx, action: str) -> bool:
    """Whether what a stranger causes is worth a row: the first of the minute from the address of
    the context, unless there are `MOST` from others."""
    row = tx.execute(
        "select count(*) as n, coalesce(bool_or(address is not distinct from %s), false) as known"
        " from audit_log where at > now() - interval '1 minute' and action = %s",
        (_ACTOR.get().address, action),
    ).fetchone()
    return row is not None and not row["known"] and row["n"] < MOST


def find(
    tx: Tx,
    *,
    org: OrgId | None,
    action: str | None = None,
    actor: str | None = None,
    since: datetime | None = None,
    before: int | None = None,
    limit: int = 100,
    with_strangers: bool = False,
) -> list[Record]:
    """The newest first, of one organisation, or (None, the operator's) of all. `with_strangers`:
    also keys that were tried and are nobody's, which is for the default organisation to know.

    `action` is a whole one or its beginning with a dot at the end (`key.`); `before`: older than
    the row of that id, for the next page.
    """
    rows = tx.execute(
        "select * from audit_log where (%(org)s::text is null or org_id = %(org)s"
        "  or (%(strangers)s and org_id is null and action = 'sign_in.failed'))"
        " and (%(action)s::text is null or action = %(action)s"
        "  or (right(%(action)s, 1) = '.' and starts_with(action, %(action)s)))"
        " and (%(actor)s::text is null or actor = %(actor)s)"
        " and (%(since)s::timestamptz is null or at >= %(since)s)"
        " and (%(before)s::bigint is null or id < %(before)s) order by id desc limit %(limit)s",
        {
            "org": org,
            "strangers": with_strangers,
            "action": action,
            "actor": actor,
            "since": since,
            "before": before,
            "limit": limit,
        },
    )
    return [_read(row) for row in rows]


def sweep(tx: Tx, retention: timedelta) -> int:
    """Forget what is older than the retention; how many rows. Zero keeps everything."""
    if not retention:
        return 0
    tx.execute("select set_config('recollect.sweep_audit', 'on', true)")
    return tx.execute("delete from audit_log where at < now() - %s", (retention,)).rowcount


def _read(row: Mapping[str, Any]) -> Record:
    return Record(
        id=row["id"],
        at=row["at"],
        org_id=None if row["org_id"] is None else OrgId(row["org_id"]),
        actor=row["actor"],
        action=row["action"],
        object=row["object"],
        result=row["result"],
        address=row["address"],
        request=row["request"],
        details=row["details"],
    )
