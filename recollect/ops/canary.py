"""The canary: a tiny document of a hidden organisation that goes through the whole service.

The row says when it is due and how the last one fared; whichever worker takes the row runs it.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from recollect import documents
from recollect.db import Tx
from recollect.model import Org, OrgId, Plan, Tenant

ORG = OrgId("canary")
"""Listed nowhere, and no key can be made for it."""
TENANT = Tenant(ORG)
TAG = "canary"
AGAIN = timedelta(minutes=1)
"""After one that did not come through, the next is due sooner."""


@dataclass(frozen=True, slots=True)
class Fate:
    """How the last canary fared; `reason` says why it did not come through."""

    ran_at: datetime
    age: timedelta
    ok: bool
    reason: str | None
    ms: float


def ensure(tx: Tx) -> Org:
    """Its organisation, made where there is none."""
    row = tx.execute(
        "insert into orgs (id, name, plan, hidden) values (%s, 'recollect canary', %s, true)"
        " on conflict (id) do update set hidden = true returning name, created_at",
        (ORG, Plan.FREE),
    ).fetchone()
    assert row is not None
    return Org(ORG, row["name"], Plan.FREE, row["created_at"])


def take(tx: Tx, interval: timedelta) -> bool:
    """Whether one is due, and it is ours now. The first is due an interval after the first call."""
    ours = tx.execute("update canary set due_at = now() + %s where due_at <= now()", (interval,))
    if ours.rowcount:
        return True
    tx.execute(
        "insert into canary as c (due_at) values (now() + %s) on conflict (only_row) do update"
        " set due_at = excluded.due_at where c.due_at > excluded.due_at",
        (interval,),
    )
    return False


def settle(tx: Tx, *, ok: bool, reason: str | None, ms: float) -> None:
    tx.execute(
        "insert into canary as c (due_at, ran_at, ok, reason, ms)"
        " values (now() + %(again)s, now(), %(ok)s, %(reason)s, %(ms)s)"
        " on conflict (only_row) do update set ran_at = excluded.ran_at, ok = excluded.ok,"
        " reason = excluded.reason, ms = excluded.ms,"
        " due_at = case when excluded.ok then c.due_at else least(c.due_at, excluded.due_at) end",
        {"again": AGAIN, "ok": ok, "reason": reason, "ms": ms},
    )


def last(tx: Tx) -> Fate | None:
    """None when none ever ran."""
    row = tx.execute(
        "select *, now() - ran_at as age from canary where ran_at is not null"
    ).fetchone()
    if row is None:
        return None
    return Fate(row["ran_at"], row["age"], row["ok"], row["reason"], row["ms"])


def sweep(tx: Tx) -> None:
    """Nothing of it stays, not even of one that was cut off, or the receipts of its deletion."""
    tx.execute("select 1 from orgs where id = %s for update", (ORG,))
    documents.delete_all(tx, TENANT)
    tx.execute("delete from receipts where org_id = %s", (ORG,))
    tx.execute("delete from tags where org_id = %s", (ORG,))
