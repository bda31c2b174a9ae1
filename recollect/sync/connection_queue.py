"""The queue of syncs: which connection is due, who has taken it, and how its run ended."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from psycopg import sql
from psycopg.types.json import Jsonb

from recollect import db, documents
from recollect.db import Tx
from recollect.db.leases import Leases, fenced
from recollect.errors import BadRequestError, ConflictError, KeyLost, LeaseLost, Reauthorize
from recollect.model import (
    ConnectionId,
    Document,
    Failure,
    OrgId,
    Status,
    SyncClaim,
    Tenant,
    Trigger,
    random_id,
    storable,
)
from recollect.sync import change_log
from recollect.sync.connections import COLUMNS, get, read_row, want
from recollect.sync.items import Listings, SyncCounts

_LEASES = Leases("connections", "d.state = 'syncing'")
RUNS_KEPT = 200
LONGEST_SILENCE = timedelta(days=7)
"""between two syncs of a service that runs"""
AGAIN = "authorize the connection again"
_DUE = "due_at <= now() and (not paused or wanted_by = 'manual' or state = 'syncing')"


def want_now(tx: Tx, tenant: Tenant, id: str) -> None:
    """As `want` of a user, for one that nothing is going on with.

    Raises NotFoundError, ConflictError while a sync runs or waits to run, BadRequestError where it
    has to be authorized first.
    """
    found = get(tx, tenant, id, lock=True)
    row = tx.execute(
        "select state = 'syncing' or state = 'ready' and (not paused or wanted_by = 'manual')"
        " and (wanted_at is not null or due_at <= now()) as busy from connections where id = %s",
        (found.id,),
    ).fetchone()
    if row is not None and row["busy"]:
        raise ConflictError("A sync is already running", f"of connection {found.id}")
    if not want(tx, [found.id], Trigger.MANUAL):
        raise BadRequestError(f"authorization: {AGAIN}")


def failures(
    tx: Tx, tenant: Tenant, runs: Sequence[str], *, most: int
) -> dict[str, list[Document]]:
    """Documents that the runs added or changed and that could not be processed, by run: those that
    failed last."""
    borne, parameters = documents.condition(
        tenant, documents.DocumentQuery(statuses=[Status.FAILED])
    )
    rows = tx.execute(
        sql.SQL(
            "select failed.* from unnest(%(runs)s::text[]) as asked (run_id) cross join lateral"
            " (select s.run_id, {columns} from sync_changes s join documents d"
            "   on d.id = s.document_id where s.run_id = asked.run_id and {borne}"
            "  order by d.updated_at desc, d.id limit %(most)s) failed"
        ).format(columns=sql.SQL(documents.COLUMNS), borne=borne),
        {**parameters, "runs": list(runs), "most": most},
    )
    found: dict[str, list[Document]] = {run: [] for run in runs}
    for row in rows:
        found[row["run_id"]].append(documents.read(row, tenant))
    return found


def claim(
    tx: Tx,
    *,
    lease: timedelta,
    limit: int,
    turn: documents.DocumentTurn | None = None,
    besides: Collection[OrgId] = (),
) -> list[SyncClaim]:
    """Take up to `limit` connections that are due, of as many organisations as have some.

    They take turns, from `turn` on, which is passed on; of each the longest waiting come first.
    `besides`: the organisations of which none is taken.
    """
    turn = turn or documents.DocumentTurn()
    rows = tx.execute(
        "with ranked as (select id, org_id, org_id <= %(org)s as around,"
        "  row_number() over (partition by org_id order by due_at, id) as nth from connections"
        "  where " + _DUE + " and org_id <> all(%(besides)s::text[])"
        "), due as materialized (select c.id, r.nth, r.around"
        "  from ranked r join connections c on c.id = r.id where c.due_at <= now()"
        "  order by r.nth, r.around, r.org_id limit %(limit)s for update of c skip locked)"
        " update connections c set state = 'syncing', due_at = now() + %(lease)s,"
        # Days in which no sync asked the provider are not days without an answer.
        " away_since = case when c.updated_at > now() - %(silence)s then c.away_since end,"
        " claims = c.claims + 1, began_at = coalesce(c.began_at, clock_timestamp())"
        " from due where c.id = due.id returning " + COLUMNS + ", c.claims, c.began_at,"
        " c.wanted_by, c.secrets, c.tokens, due.nth, due.around",
        {
            "lease": lease,
            "limit": limit,
            "org": turn.org,
            "besides": list(besides),
            "silence": LONGEST_SILENCE,
        },
    ).fetchall()
    rows.sort(key=lambda row: (row["nth"], row["around"], row["org_id"]))
    if rows:
        turn.org = rows[-1]["org_id"]
    return [_claimed(tx, row) for row in rows]


def waits(tx: Tx) -> bool:
    """Whether a connection is due that no loop has claimed."""
    row = tx.execute("select exists (select from connections where " + _DUE + ") as waits")
    found = row.fetchone()
    return found is not None and found["waits"]


def next_due_in(tx: Tx) -> timedelta | None:
    """How long until the next connection is due; None when none ever is."""
    row = tx.execute(
        "select min(due_at) - now() as wait from connections where due_at is not null"
        " and (not paused or wanted_by = 'manual' or state = 'syncing')"
    ).fetchone()
    return row["wait"] if row else None


def recall(tx: Tx, *, lease: timedelta) -> None:
    """Make due what waits only since its time was written by a clock that was ahead."""
    tx.execute(
        "update connections set parked_until = null, updated_at = now(),"
        " due_at = case state when 'syncing' then now() + %(lease)s else now() end"
        " where due_at > now() and case state when 'syncing' then due_at > now() + %(lease)s * 10"
        "  else updated_at > now() + interval '1 minute' end",
        {"lease": lease},
    )


def renew(tx: Tx, claims: Sequence[SyncClaim], *, lease: timedelta) -> None:
    """The heartbeat: renew the leases that are still ours."""
    _LEASES.renew(tx, [(one.connection.id, one.number) for one in claims], lease)


def release(tx: Tx, claims: Sequence[SyncClaim]) -> None:
    """Give back unfinished work; it goes on at its last checkpoint when its turn comes."""
    held = [(one.connection.id, one.number) for one in claims]
    # A heartbeat that is late must not renew what is given back.
    _LEASES.release(tx, held, "claims = d.claims + 1")
    db.notify(tx)


def lock(tx: Tx, claim: SyncClaim, *, lease: timedelta) -> Listings:
    """Take the row for this transaction and renew the lease; raises LeaseLost."""
    row = tx.execute(
        "update connections set due_at = now() + %s"
        " where id = %s and claims = %s and state = 'syncing'"
        " returning listings, troubled, now() as now",
        (lease, claim.connection.id, claim.number),
    ).fetchone()
    if row is None:
        raise LeaseLost
    return Listings(
        # If the clock was set back since, what is seen from here on was seen after the beginning.
        began={b: min(datetime.fromisoformat(at), row["now"]) for b, at in row["listings"].items()},
        troubled=set(row["troubled"]),
    )


def alive(tx: Tx, claim: SyncClaim, *, lock: bool = False) -> bool:
    """Whether the claim still holds; a deleted connection does not."""
    row = tx.execute(
        "select 1 from connections where id = %s and claims = %s and state = 'syncing'"
        + (" for update" if lock else ""),
        (claim.connection.id, claim.number),
    ).fetchone()
    return row is not None


def save(
    tx: Tx,
    claim: SyncClaim,
    *,
    cursor: Mapping[str, Any] | None,
    listings: Listings,
    counts: SyncCounts,
    reached: bool,
) -> None:
    """Store a checkpoint with what was counted; the row is locked by `lock`.

    `cursor` None: what was said so far is stored, but a cut-off sync says it again. `reached`:
    something was read, so the provider is there.
    """
    tx.execute(
        "update connections set cursor = coalesce(%(cursor)s, cursor), listings = %(listings)s,"
        " troubled = %(troubled)s,"
        " away_since = case when not %(reached)s then away_since end where id = %(id)s",
        {
            "id": claim.connection.id,
            "cursor": None if cursor is None else Jsonb(storable(cursor)),
            "listings": Jsonb({b: at.isoformat() for b, at in listings.began.items()}),
            "troubled": sorted(listings.troubled),
            "reached": reached,
        },
    )
    _count(tx, claim, counts)


def forget_cursor(tx: Tx, claim: SyncClaim) -> None:
    """The provider forgot it: everything is listed again."""
    tx.execute(
        "update connections set cursor = null, listings = '{}', troubled = '{}'"
        " where id = %s and claims = %s",
        (claim.connection.id, claim.number),
    )


def finish(tx: Tx, claim: SyncClaim, counts: SyncCounts, *, again: timedelta) -> None:
    """The sync ended well, or in part; due after `again`, or at once if it was wanted meanwhile,
    but not while a document of it, fetched meanwhile, was told to wait.

    What is held back wants a second listing soon. Raises LeaseLost.
    """
    fenced(
        tx,
        "update connections set state = 'ready', attempts = 0,"
        " error_code = case when parked_until > now() then error_code end,"
        " error_message = case when parked_until > now() then error_message end,"
        " parked_until = case when parked_until > now() then parked_until end,"
        " last_synced_at = now(), began_at = null,"
        " due_at = greatest(parked_until,"
        "   case when wanted_at > began_at then now() else now() + %(again)s end),"
        " wanted_by = case when wanted_at > began_at then wanted_by end,"
        " wanted_at = case when wanted_at > began_at then wanted_at end,"
        " away_since = case when %(away)s then coalesce(away_since, now()) end, updated_at = now()"
        " where id = %(id)s and claims = %(number)s and state = 'syncing'",
        {
            "id": claim.connection.id,
            "number": claim.number,
            "again": again,
            "away": counts.away,
        },
    )
    db.notify(tx)
    status = "partial" if counts.code else "completed"
    _count(tx, claim, counts)
    _end_run(tx, claim, status, Failure(counts.code, counts.notes[0]) if counts.code else None)


def away_for(tx: Tx, claim: SyncClaim) -> timedelta:
    """How long its provider has let nothing be read, up to the sync before this one; locks the row.
    Raises LeaseLost."""
    row = tx.execute(
        "select coalesce(now() - away_since, interval '0') as away from connections"
        " where id = %s and claims = %s and state = 'syncing' for update",
        (claim.connection.id, claim.number),
    ).fetchone()
    if row is None:
        raise LeaseLost
    return row["away"]


def give_up(tx: Tx, claim: SyncClaim, failure: Failure, counts: SyncCounts) -> None:
    """The provider was away for too long: nothing is asked until a user wants a sync.

    Nothing is deleted: who is away may come back. Raises LeaseLost.
    """
    fenced(
        tx,
        "update connections set state = 'failed', error_code = %(code)s,"
        " error_message = %(message)s, attempts = attempts + 1, due_at = null, began_at = null,"
        " wanted_at = null, wanted_by = null, parked_until = null, updated_at = now()"
        " where id = %(id)s and claims = %(number)s and state = 'syncing'",
        {
            "id": claim.connection.id,
            "number": claim.number,
            "code": failure.code,
            "message": _sentence(failure),
        },
    )
    documents.postpone(tx, claim.connection.id, timedelta(days=1), failure)
    _count(tx, claim, counts)
    _end_run(tx, claim, "failed", failure)


def put_off(
    tx: Tx,
    claim: SyncClaim,
    failure: Failure,
    after: timedelta,
    counts: SyncCounts,
    *,
    parked: bool,
    away: bool,
) -> None:
    """The sync failed; it goes on from its last checkpoint after `after`, at once if it was wanted
    meanwhile and the provider is there, or later if a document, fetched meanwhile, was told so.

    `parked`: the provider wants to be left alone, so its documents wait, too. `away`: it let
    nothing be read. Raises LeaseLost.
    """
    fenced(
        tx,
        "update connections set state = 'ready', error_code = %(code)s,"
        " error_message = %(message)s, attempts = attempts + 1,"
        " due_at = greatest(parked_until, case when wanted_at > began_at and not %(parked)s"
        "   and not %(away)s then now() else now() + %(after)s end),"
        " began_at = null, wanted_at = null,"
        " parked_until = greatest(case when %(parked)s then now() + %(after)s end,"
        "   case when parked_until > now() then parked_until end),"
        " away_since = case when %(away)s then coalesce(away_since, now()) end, updated_at = now()"
        " where id = %(id)s and claims = %(number)s and state = 'syncing'",
        {
            "id": claim.connection.id,
            "number": claim.number,
            "code": failure.code,
            "message": _sentence(failure),
            "after": after,
            "parked": parked,
            "away": away,
        },
    )
    if parked:
        documents.postpone(tx, claim.connection.id, after, failure)
    _count(tx, claim, counts)
    _end_run(tx, claim, "failed", failure)


def park(tx: Tx, id: ConnectionId, failure: Failure, after: timedelta) -> None:
    """A document's fetch was told to wait: so do all of them, and the next sync."""
    tx.execute(
        "update connections set parked_until = greatest(coalesce(parked_until, now()), now() + %s),"
        " due_at = case when state = 'ready' then greatest(due_at, now() + %s) else due_at end,"
        " error_code = %s, error_message = %s where id = %s",
        (after, after, failure.code, _sentence(failure), id),
    )
    documents.postpone(tx, id, after, failure)


def lose(
    tx: Tx,
    id: ConnectionId,
    message: str,
    claim: SyncClaim | None = None,
    *,
    code: str = Reauthorize.code,
) -> None:
    """The authorization is gone: nothing happens until the user authorizes again.

    Nothing is deleted: a lost authorization is not an empty account. With a claim that does not
    hold any more, perhaps because the user authorized again meanwhile, it raises LeaseLost.
    """
    if claim is not None and not alive(tx, claim, lock=True):
        raise LeaseLost
    row = tx.execute(
        "select tokens is not null as authorized from connections where id = %s", (id,)
    ).fetchone()
    # Where a key was given instead, there is nothing to authorize: the message says what to do.
    if row is not None and row["authorized"] and AGAIN not in message:
        message = f"{message}; {AGAIN}"
    failure = Failure(code, message)
    tx.execute(
        "update connections set state = 'needs_auth', due_at = null, began_at = null,"
        " error_code = %s, error_message = %s, updated_at = now()"
        " where id = %s and state in ('ready', 'syncing')",
        (failure.code, _sentence(failure), id),
    )
    documents.postpone(tx, id, timedelta(days=1), failure)
    if claim is not None:
        _end_run(tx, claim, "failed", failure)


def regain(tx: Tx, mark: str) -> None:
    """What a lost key stopped goes on: it was sealed again with the key of that mark."""
    for row in tx.execute(
        "update connections set state = 'ready', due_at = now(), error_code = null,"
        " error_message = null, updated_at = now() where state = 'needs_auth' and error_code = %s"
        " and starts_with(coalesce(tokens, %s), %s) and starts_with(coalesce(secrets, %s), %s)"
        " returning id",
        (KeyLost.code, mark, mark, mark, mark),
    ).fetchall():
        documents.resume(tx, row["id"])
    db.notify(tx)


def next_call_in(tx: Tx, id: ConnectionId, gap: timedelta) -> timedelta:
    """How long to wait so that the calls of all processes keep `gap` between them."""
    row = tx.execute(
        # A turn more than a thousand gaps away was written by a clock that was ahead.
        "update connections set call_at = greatest(clock_timestamp(),"
        "  case when call_at < clock_timestamp() + %(gap)s * 1000 then call_at end) + %(gap)s"
        " where id = %(id)s returning call_at - %(gap)s - clock_timestamp() as wait",
        {"gap": gap, "id": id},
    ).fetchone()
    if row is None:
        raise LeaseLost
    return row["wait"]


def _claimed(tx: Tx, row: Mapping[str, Any]) -> SyncClaim:
    connection = read_row(row)
    wanted = row["wanted_by"]
    trigger = Trigger(wanted) if wanted else Trigger.CRON
    # The statement that claims may have begun before whoever held the connection ended its run.
    run = tx.execute(
        "select id, trigger, status from sync_runs where connection_id = %s"
        " order by started_at desc, id desc limit 1",
        (connection.id,),
    ).fetchone()
    if run is not None and run["status"] == "running":
        run_id, trigger = run["id"], Trigger(run["trigger"])
    else:
        run_id = random_id()
        tx.execute(
            "insert into sync_runs (id, connection_id, trigger, status)"
            " values (%s, %s, %s, 'running')",
            (run_id, connection.id, trigger),
        )
        tx.execute(
            "delete from sync_runs where id in (select id from sync_runs where connection_id = %s"
            " order by started_at desc, id desc offset %s)",
            (connection.id, RUNS_KEPT),
        )
    return SyncClaim(
        connection=connection,
        number=row["claims"],
        run_id=run_id,
        trigger=trigger,
        began_at=row["began_at"],
        secrets=row["secrets"],
        tokens=row["tokens"],
    )


def counted(tx: Tx, claim: SyncClaim) -> SyncCounts:
    """What the run counted before it was cut off."""
    row = tx.execute("select * from sync_runs where id = %s", (claim.run_id,)).fetchone()
    counts = SyncCounts()
    if row is None:
        return counts
    for name in ("added", "changed", "unchanged", "removed", "failed"):
        setattr(counts, name, row[name])
    counts.skipped.update(row["skipped"])
    counts.notes = list(row["notes"])
    counts.code = row["error_code"]
    counts.listed = change_log.kept(tx, claim.run_id)
    return counts


def _count(tx: Tx, claim: SyncClaim, counts: SyncCounts) -> None:
    tx.execute(
        "update sync_runs set added = %s, changed = %s, unchanged = %s, removed = %s, failed = %s,"
        " skipped = %s, notes = %s, error_code = %s where id = %s",
        (
            counts.added,
            counts.changed,
            counts.unchanged,
            counts.removed,
            counts.failed,
            Jsonb(dict(counts.skipped)),
            counts.notes,
            counts.code,
            claim.run_id,
        ),
    )


def _end_run(tx: Tx, claim: SyncClaim, status: str, failure: Failure | None) -> None:
    tx.execute(
        "update sync_runs set status = %s, finished_at = clock_timestamp(), error_code = %s,"
        " error_message = %s where id = %s",
        (
            status,
            failure and failure.code,
            failure and _sentence(failure),
            claim.run_id,
        ),
    )


def _sentence(failure: Failure) -> str:
    return storable(failure.message)[:2000]
