"""The clock of the database, by which the queue goes, and what to do when somebody sets it."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from recollect.db import Tx
from recollect.documents._queue import LONGEST_LEASE


@dataclass(frozen=True, slots=True)
class Moment:
    """What the database's clock said, and from which transaction on rows are of later."""

    at: datetime
    transaction: str


def moment(tx: Tx) -> Moment:
    row = tx.execute(
        "select clock_timestamp() as at,"
        " pg_snapshot_xmax(pg_current_snapshot())::xid::text as transaction"
    ).fetchone()
    assert row is not None
    return Moment(row["at"], row["transaction"])


def step_along(tx: Tx, before: Moment, step: timedelta, *, lease: timedelta) -> int:
    """The database's clock stepped since `before`: let what waits do so no longer or shorter.

    Set back, it leaves all that is due further away in the future: that comes nearer by as much.
    Set ahead, it ends leases whose holders live: they get another one; what waits to be tried
    again is tried early. What was written after the step stays, and so does what another worker
    has changed that saw it, too. Returns how many rows it changed.
    """
    ahead = (
        "now() + %(lease)s from (select id from documents where status = 'processing'"
        " and due_at > %(at)s and due_at <= now() for update skip locked)"
    )
    back = (
        "greatest(now(), d.due_at + %(step)s) from (select id from documents"
        " where due_at > now() and (age(xmin) > age(%(transaction)s::xid)"
        # Or it was added since, in the last moment.
        "  or status = 'queued' and due_at = updated_at) for update skip locked)"
    )
    done = tx.execute(
        "update documents d set due_at = "
        + (ahead if step > timedelta() else back)
        + " old where d.id = old.id",
        {"step": step, "lease": lease, "at": before.at, "transaction": before.transaction},
    )
    return done.rowcount


def recall(tx: Tx, *, lease: timedelta) -> int:
    """What was queued or leased by a clock that was ahead, and has been set right while no worker
    saw it, is due as it should be. Returns how many rows it changed.
    """
    done = tx.execute(
        "update documents d set due_at = case d.status when 'queued' then now()"
        "   else now() + %(lease)s end"
        " from (select id from documents where due_at > now() and case status"
        "  when 'queued' then updated_at > now() + interval '1 minute'"
        "  else due_at > now() + %(longest)s end for update skip locked) old"
        " where d.id = old.id",
        {"lease": lease, "longest": max(10 * lease, LONGEST_LEASE)},
    )
    return done.rowcount
