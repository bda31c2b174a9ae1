"""Deliveries of events to endpoints, which are their own queue.

They are written by triggers (migration 0011), in the transaction of the change that they
tell. A claim counts the attempt and leases the row; a process that dies between sending and
writing that down makes it due again, with the same id: at least once, and receivers know repeats
by their `webhook-id`. Order is not promised.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from psycopg.types.json import Jsonb

from recollect.db import Tx, leases, tenancy
from recollect.errors import BadRequestError, NotFoundError
from recollect.events import targets
from recollect.events.targets import WebhookTarget
from recollect.model import OrgId, Page, Tenant, storable

TEST = "webhook.test"
"""What `try_out` sends, whatever the endpoint wants."""
KEPT = timedelta(days=7)
"""How long what ended stays in the log."""
LOGGED = 20
"""attempts of a delivery that are shown"""
AT_ONCE = 4
"""deliveries to one endpoint at once, per process; one to an endpoint that fails"""
LONGEST_REST = timedelta(minutes=5)
GIVE_UP = timedelta(days=3)
"""An endpoint that took nothing for so long is disabled."""
LONGEST_SILENCE = timedelta(days=1)
"""After so long without an attempt, earlier failures say nothing of the endpoint any more."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event for one endpoint. `log`: of each attempt `at`, `status`, `reason`, `ms`."""

    id: str
    type: str
    payload: Mapping[str, Any]
    state: str
    """`pending`, `delivered`, `dead`"""
    attempts: int
    due_at: datetime | None
    """None as well while it is being sent"""
    sending_since: datetime | None
    created_at: datetime
    ended_at: datetime | None
    log: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class ClaimedDelivery:
    """A claimed delivery with what sending it takes. `attempt`, counted from 1, and `begun_at`
    fence: a replay counts from 1 again, maybe while an attempt is under way."""

    id: str
    endpoint_id: str
    org_id: OrgId
    url: str
    type: str
    payload: Mapping[str, Any]
    attempt: int
    begun_at: datetime
    secrets: Sequence[str] = field(repr=False)
    """sealed, the newest first"""


@dataclass(frozen=True, slots=True)
class Attempt:
    """How one went. `status` of the answer, None without one; `reason` None: it was taken."""

    status: int | None
    reason: str | None
    ms: float


def deliveries(
    tx: Tx, tenant: Tenant, endpoint: str, *, state: str | None, limit: int, page: int
) -> Page[Delivery]:
    """The newest first; raises NotFoundError for a foreign endpoint."""
    found = targets.get(tx, tenant, endpoint)
    given = {"id": found.id, "state": state, "limit": limit, "skipped": (page - 1) * limit}
    counted = tx.execute(
        "select count(*) as n from deliveries where endpoint_id = %(id)s"
        " and (%(state)s::text is null or state = %(state)s)",
        given,
    ).fetchone()
    assert counted is not None
    rows = tx.execute(
        "select *, due_at > now() as held from deliveries where endpoint_id = %(id)s"
        " and (%(state)s::text is null or state = %(state)s)"
        " order by created_at desc, id desc limit %(limit)s offset %(skipped)s",
        given,
    ).fetchall()
    return Page([_delivery(row) for row in rows], counted["n"], page, limit)


def mark(tx: Tx, tenant: Tenant, id: str | None = None) -> str:
    """Stands for how one is now, or all that the tenant sees: another after any change of them or
    of their latest deliveries."""
    row = tx.execute(
        "select md5(string_agg(concat_ws(' ', e.id, e.xmin, d.marks), ',' order by e.id)) as mark"
        " from endpoints e cross join lateral (select string_agg(l.mark, ' ') as marks from"
        "  (select concat_ws(' ', d.id, d.xmin) as mark from deliveries d"
        "   where d.endpoint_id = e.id order by d.created_at desc, d.id desc limit %(some)s) l) d"
        " where " + targets.REACH + " and (%(id)s::text is null or e.id = %(id)s)",
        {**tenancy.bounds(tenant), "id": id, "some": LOGGED},
    ).fetchone()
    return str(row["mark"]) if row else ""


def replay(tx: Tx, tenant: Tenant, endpoint: str, id: str) -> Delivery:
    """Send it once more, with the same id and all attempts; what is pending is due at once.

    Raises NotFoundError, and BadRequestError while the endpoint is disabled.
    """
    found = _enabled(tx, tenant, endpoint)
    row = tx.execute(
        "update deliveries set state = 'pending', due_at = now(), attempts = 0, ended_at = null"
        " where endpoint_id = %s and id = %s returning *, false as held",
        (found.id, id),
    ).fetchone()
    if row is None:
        raise NotFoundError("Delivery not found", f"no delivery {id!r}")
    tx.execute("update endpoints set rest_until = now() where id = %s", (found.id,))
    return _delivery(row)


def try_out(tx: Tx, tenant: Tenant, endpoint: str) -> Delivery:
    """Send a `webhook.test`; raises NotFoundError, BadRequestError while it is disabled."""
    found = _enabled(tx, tenant, endpoint)
    row = tx.execute(
        "insert into deliveries (id, endpoint_id, type, payload) values"
        " ('msg_' || replace(gen_random_uuid()::text, '-', ''), %(id)s, %(type)s,"
        " jsonb_build_object('type', %(type)s::text, 'timestamp', to_char(clock_timestamp()"
        "  at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"'),"
        " 'data', jsonb_build_object('endpointId', %(id)s::text))) returning *, false as held",
        {"id": found.id, "type": TEST},
    ).fetchone()
    assert row is not None
    tx.execute("update endpoints set rest_until = now() where id = %s", (found.id,))
    return _delivery(row)


def wanted(tx: Tx) -> bool:
    """Whether there is an endpoint that gets events."""
    row = tx.execute(
        "select exists (select from endpoints where disabled_at is null) as found"
    ).fetchone()
    return row is not None and row["found"]


def claim(
    tx: Tx,
    *,
    lease: timedelta,
    limit: int,
    busy: Mapping[str, int],
    slow: Collection[str] = (),
    for_slow: int = 0,
) -> list[ClaimedDelivery]:
    """Take up to `limit` deliveries that are due; `busy`: how many each endpoint has in work here.

    Organisations take turns, and so do the endpoints of one. An endpoint that fails gets a single
    try after each rest; a `slow` one is sent one at a time, and all of them no more than
    `for_slow`.
    """
    rows = tx.execute(
        "with held as (select e.id, e.org_id, b.n::int from jsonb_each_text(%(busy)s) as b (id, n)"
        "  join endpoints e on e.id = b.id"
        "), lanes as (select e.id, e.org_id, e.failures, e.id = any(%(slow)s) as slow,"
        "  coalesce((select h.n from held h where h.id = e.id), 0) as held from endpoints e"
        "  where e.disabled_at is null and e.rest_until <= now()"
        "   and exists (select from deliveries d where d.endpoint_id = e.id and d.due_at <= now())"
        "), due as materialized (select one.id, one.due_at, l.org_id, l.failures, l.slow,"
        "   l.held + row_number() over (partition by l.id order by one.due_at) as nth"
        "  from lanes l cross join lateral (select d.id, d.due_at from deliveries d"
        "   where d.endpoint_id = l.id and d.due_at <= now() order by d.due_at limit greatest(0,"
        "    case when l.failures = 0 and not l.slow then %(at_once)s else 1 end - l.held)"
        "   for update skip locked) one"
        "), turns as (select due.id, due.due_at, due.slow,"
        "   coalesce((select sum(h.n) from held h where h.org_id = due.org_id), 0) + row_number()"
        "    over (partition by due.org_id order by due.nth, due.failures, due.due_at) as turn"
        "  from due"
        "), places as (select t.id, t.turn, t.due_at, not t.slow or row_number() over"
        "   (partition by t.slow order by t.turn, t.due_at) <= %(for_slow)s as free from turns t"
        "), chosen as materialized (select p.id from places p where p.free"
        "  order by p.turn, p.due_at limit %(limit)s)"
        " update deliveries d set due_at = now() + %(lease)s, attempts = d.attempts + 1,"
        " begun_at = now() from chosen c, endpoints e where d.id = c.id and e.id = d.endpoint_id"
        " returning d.id, d.endpoint_id, e.org_id, e.url, d.type, d.payload, d.attempts,"
        " d.begun_at, e.secret," + targets.STILL_SIGN + " as old_secrets",
        {
            "lease": lease,
            "limit": limit,
            "busy": Jsonb(dict(busy)),
            "at_once": AT_ONCE,
            "slow": list(slow),
            "for_slow": for_slow,
        },
    ).fetchall()
    return [
        ClaimedDelivery(
            id=row["id"],
            endpoint_id=row["endpoint_id"],
            org_id=OrgId(row["org_id"]),
            url=row["url"],
            type=row["type"],
            payload=row["payload"],
            attempt=row["attempts"],
            begun_at=row["begun_at"],
            secrets=[row["secret"], *(old["secret"] for old in row["old_secrets"])],
        )
        for row in rows
    ]


def delivered(tx: Tx, claimed: ClaimedDelivery, attempt: Attempt) -> None:
    """The endpoint took it."""
    _lock(tx, claimed.endpoint_id)
    _ended(tx, claimed, attempt, "delivered")
    tx.execute(
        "update endpoints set failures = 0, failing_since = null, rest_until = now()"
        " where id = %s and failures > 0",
        (claimed.endpoint_id,),
    )


def has_moved(tx: Tx, claimed: ClaimedDelivery) -> bool:
    """Whether the endpoint, locked, has another address by now, of which the attempt says
    nothing."""
    _lock(tx, claimed.endpoint_id)
    row = tx.execute("select url from endpoints where id = %s", (claimed.endpoint_id,)).fetchone()
    return row is not None and row["url"] != claimed.url


def again(tx: Tx, claimed: ClaimedDelivery, attempt: Attempt, after: timedelta) -> None:
    """It is due again; the endpoint is locked."""
    tx.execute(
        "update deliveries set due_at = now() + %s, begun_at = null, log = "
        + _LOG
        + " where id = %s"
        " and state = 'pending' and attempts = %s and begun_at = %s",
        (after, *_logged(attempt), claimed.id, claimed.attempt, claimed.begun_at),
    )


def refused(tx: Tx, claimed: ClaimedDelivery, attempt: Attempt, after: timedelta | None) -> bool:
    """It did not; due again after `after`, dead without it.

    The endpoint rests a while; one that took nothing for `GIVE_UP` is disabled, which is returned.
    """
    _lock(tx, claimed.endpoint_id)
    if after is None:
        _ended(tx, claimed, attempt, "dead")
    else:
        again(tx, claimed, attempt, after)
    row = tx.execute(
        "update endpoints set failures = failures + 1,"
        " failing_since = case when failures > 0 and rest_until > now() - %s then failing_since"
        "  else now() end,"
        " rest_until = now() + "
        + leases.backoff("failures", "interval '5 seconds'", "%s")
        + " where id = %s and disabled_at is null returning failing_since < now() - %s as hopeless",
        (LONGEST_SILENCE, LONGEST_REST, claimed.endpoint_id, GIVE_UP),
    ).fetchone()
    if row is None or not row["hopeless"]:
        return False
    targets.disable(
        tx, claimed.endpoint_id, f"took nothing for {GIVE_UP.days} days: {attempt.reason}"
    )
    return True


def sweep(tx: Tx) -> int:
    """Forget what ended long ago, and secrets that sign no more. Make due what waits only since its
    time was written by a clock that was ahead."""
    tx.execute(
        "update endpoints set rest_until = now() where rest_until > now() + %s", (LONGEST_REST,)
    )
    tx.execute(
        "update endpoints set old_secrets = "
        + targets.STILL_SIGN
        + " where jsonb_array_length(old_secrets) > jsonb_array_length("
        + targets.STILL_SIGN
        + ")"
    )
    tx.execute(
        "update deliveries set due_at = now() where due_at > now()"
        " and (attempts = 0 or due_at > now() + interval '1 day')"
    )
    return tx.execute("delete from deliveries where ended_at < now() - %s", (KEPT,)).rowcount


_LOG = (
    "(select coalesce(jsonb_agg(one order by n), '[]') from jsonb_array_elements("
    "log || jsonb_build_object('at', now(), 'status', %s::int, 'reason', %s::text,"
    " 'ms', %s::float8)) with ordinality as t (one, n)"
    " where n > jsonb_array_length(log) + 1 - %s)"
)


def _logged(attempt: Attempt) -> tuple[int | None, str | None, float, int]:
    return attempt.status, storable(attempt.reason), attempt.ms, LOGGED


def _lock(tx: Tx, id: str) -> None:
    """The endpoint comes before its deliveries, as where it is deleted: two that lock them in
    different orders would wait for each other.
    """
    tx.execute("select 1 from endpoints where id = %s for no key update", (id,))


def _ended(tx: Tx, claimed: ClaimedDelivery, attempt: Attempt, state: str) -> None:
    tx.execute(
        "update deliveries set state = %s, due_at = null, ended_at = now(), log = " + _LOG + ""
        " where id = %s and state = 'pending' and attempts = %s and begun_at = %s",
        (state, *_logged(attempt), claimed.id, claimed.attempt, claimed.begun_at),
    )


def _enabled(tx: Tx, tenant: Tenant, id: str) -> WebhookTarget:
    """Locked, so that it is not deleted meanwhile."""
    _lock(tx, targets.get(tx, tenant, id).id)
    found = targets.get(tx, tenant, id)
    if found.disabled_at is not None:
        told = "the endpoint is disabled; enable it first: {disabled: false}, or"
        raise BadRequestError(f"{told} `recollect webhooks enable {found.id}`")
    return found


def _delivery(row: Mapping[str, Any]) -> Delivery:
    # Past its lease, the process that sent it has died.
    sending = row["begun_at"] if row["held"] else None
    return Delivery(
        id=row["id"],
        type=row["type"],
        payload=row["payload"],
        state=row["state"],
        attempts=row["attempts"],
        due_at=row["due_at"] if sending is None else None,
        sending_since=sending,
        created_at=row["created_at"],
        ended_at=row["ended_at"],
        log=row["log"],
    )
