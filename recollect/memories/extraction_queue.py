"""The queue of documents from which memories are to be drawn (see the migration `0013_dreams`).

A claim is fenced by `claims`, as in `documents`; what comes to a document while it is held makes
it due again. It is read in passes (`0015_dream_passes`), which begin again when something came.
Attempts are only counted when they came to nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from psycopg import sql

from recollect import documents
from recollect.db import Tx
from recollect.db.leases import Leases, fenced
from recollect.model import DocumentId, Failure, OrgId, Tenant, storable

_LEASES = Leases("dreams", "d.held", id="document_id")


@dataclass(frozen=True, slots=True)
class DreamClaim:
    """A worker's hold on a document that is to be read. `number` fences."""

    document_id: DocumentId
    org_id: OrgId
    number: int
    wanted: int
    """what had come to the document by then"""
    attempts: int
    """that came to nothing, in a row"""
    place: int = -1
    """position of the chunk up to which this pass has come"""
    passes: int = 0
    """that went before and left something without an answer"""
    fruitful: bool = False
    """whether something was read in this pass"""
    failure: Failure | None = None
    """why something was not read, the last time"""


@dataclass(frozen=True, slots=True)
class Dreaming:
    """How a document stands: still to be read, and why it was not, the last time."""

    pending: bool
    failure: Failure | None


@dataclass(frozen=True, slots=True)
class Delay:
    """Documents that wait for a language model that gives no answers, and why it gives none."""

    documents: int
    """up to `COUNTED`"""
    failure: Failure


COUNTED = 10_000
RECENTLY = timedelta(minutes=10)
"""More than the model is left alone at most and takes to fail."""


@dataclass(slots=True)
class QueueTurn:
    """The organisation whose turn was last."""

    org: str = field(default="")


# As documents walks: organisations that have something due, from the turn on, in a circle.
_CLAIM = """
with recursive orgs as (
  select %(org)s::text as org_id, false as around, 0 as n
  union all
  select next.org_id, next.around, o.n + 1 from orgs o cross join lateral (
    (select d.org_id, o.around from dreams d
      where d.org_id > o.org_id and d.due_at <= now() order by d.org_id limit 1)
    union all
    (select d.org_id, true from dreams d
      where not o.around and d.due_at <= now() order by d.org_id limit 1)
    limit 1
  ) next where o.n < %(limit)s and not (next.around and next.org_id > %(org)s)
), due as materialized (
  select one.document_id, orgs.n from orgs cross join lateral (
    select d.document_id from dreams d
     where d.org_id = orgs.org_id and d.due_at <= now() order by d.due_at
     limit greatest(%(limit)s / greatest((select count(*) - 1 from orgs), 1), 1)
     for update skip locked
  ) one where orgs.n > 0 limit %(limit)s
)
update dreams d set held = true, claims = d.claims + 1, due_at = now() + %(lease)s,
  place = case when d.seen = d.wanted then d.place else -1 end,
  passes = case when d.seen = d.wanted then d.passes else 0 end,
  fruitful = d.seen = d.wanted and d.fruitful, seen = d.wanted
from due where d.document_id = due.document_id
returning d.document_id, d.org_id, d.claims, d.wanted, d.attempts, d.place, d.passes, d.fruitful,
  d.error_code, d.error_message, due.n
"""


def claim(
    tx: Tx, *, lease: timedelta, limit: int, turn: QueueTurn | None = None
) -> list[DreamClaim]:
    """Take up to `limit` documents that are due, of as many organisations as have some.

    They take turns, from `turn` on, which is passed on; of each the longest waiting come first.
    """
    turn = turn or QueueTurn()
    rows = tx.execute(_CLAIM, {"lease": lease, "limit": limit, "org": turn.org}).fetchall()
    if rows:
        turn.org = max(rows, key=lambda row: row["n"])["org_id"]
    return [
        DreamClaim(
            DocumentId(row["document_id"]),
            OrgId(row["org_id"]),
            row["claims"],
            row["wanted"],
            row["attempts"],
            row["place"],
            row["passes"],
            row["fruitful"],
            _failure(row),
        )
        for row in rows
    ]


def renew(tx: Tx, claims: Sequence[DreamClaim], *, lease: timedelta) -> None:
    """The heartbeat: renew the leases that are still ours."""
    _LEASES.renew(tx, [(one.document_id, one.number) for one in claims], lease)


def advance(tx: Tx, claim: DreamClaim, *, lease: timedelta) -> None:
    """Say that something was read, which renews the lease; raises LeaseLost.

    After the document is locked, not before: finishing a document locks in that order, too.
    """
    fenced(
        tx,
        "update dreams set due_at = now() + %s, attempts = 0, fruitful = true"
        " where document_id = %s and claims = %s and held",
        (lease, claim.document_id, claim.number),
    )


def finish(tx: Tx, claim: DreamClaim) -> None:
    """All is read, unless something came meanwhile: then it is due again. Raises LeaseLost."""
    fenced(
        tx,
        "update dreams set held = false, attempts = 0, error_code = null, error_message = null,"
        " place = -1, passes = 0, fruitful = false,"
        " due_at = case when wanted > %s then now() end"
        " where document_id = %s and claims = %s and held",
        (claim.wanted, claim.document_id, claim.number),
    )


def onward(tx: Tx, claim: DreamClaim, place: int, failure: Failure | None) -> None:
    """Behind the others, to go on after the chunk at `place`. Raises LeaseLost."""
    fenced(
        tx,
        "update dreams set held = false, place = %s, error_code = coalesce(%s, error_code),"
        " error_message = coalesce(%s, error_message), due_at = now()"
        " where document_id = %s and claims = %s and held",
        (place, *_said(failure), claim.document_id, claim.number),
    )


def next_pass(tx: Tx, claim: DreamClaim, after: timedelta, failure: Failure) -> None:
    """A pass is over that left something: another one is due after `after`.

    It counts as an attempt unless something was read in it. Raises LeaseLost.
    """
    fenced(
        tx,
        "update dreams set held = false, place = -1, passes = passes + 1, fruitful = false,"
        " attempts = case when fruitful then 0 else attempts + 1 end, error_code = %s,"
        " error_message = %s, due_at = now() + %s"
        " where document_id = %s and claims = %s and held",
        (*_said(failure), after, claim.document_id, claim.number),
    )


def again(
    tx: Tx,
    claim: DreamClaim,
    after: timedelta,
    failure: Failure | None = None,
    *,
    free: bool = False,
) -> None:
    """Put it back, due after `after`; it counts as an attempt with a failure that is not `free`.

    Raises LeaseLost.
    """
    counts = failure is not None and not free
    fenced(
        tx,
        "update dreams set held = false, attempts = attempts + %s, error_code = %s,"
        " error_message = %s, due_at = now() + %s"
        " where document_id = %s and claims = %s and held",
        (int(counts), *_said(failure), after, claim.document_id, claim.number),
    )


def give_up(tx: Tx, claim: DreamClaim, failure: Failure) -> None:
    """End it with the reason, unless something came meanwhile. Raises LeaseLost."""
    fenced(
        tx,
        "update dreams set held = false, attempts = 0, error_code = %s, error_message = %s,"
        " place = -1, passes = 0, fruitful = false,"
        " due_at = case when wanted > %s then now() end"
        " where document_id = %s and claims = %s and held",
        (*_said(failure), claim.wanted, claim.document_id, claim.number),
    )


def release(tx: Tx, claims: Sequence[DreamClaim]) -> None:
    """Give back what is not read yet: due at once, for any worker."""
    _LEASES.release(tx, [(one.document_id, one.number) for one in claims], "held = false")


def state(tx: Tx, document: DocumentId) -> Dreaming:
    """How the document stands; not pending when it never is to be read."""
    return states(tx, [document])[document]


def states(tx: Tx, documents: Sequence[DocumentId]) -> dict[DocumentId, Dreaming]:
    """As `state`, of several."""
    rows = tx.execute(
        "select document_id, due_at is not null as pending, error_code, error_message from dreams"
        " where document_id = any(%s)",
        (list(documents),),
    )
    found = {row["document_id"]: Dreaming(row["pending"], _failure(row)) for row in rows}
    return {id: found.get(id, Dreaming(False, None)) for id in documents}


def delay(tx: Tx, tenant: Tenant) -> Delay | None:
    """None while the model answers."""
    condition, parameters = documents.condition(tenant, documents.DocumentQuery())
    row = tx.execute(
        sql.SQL(
            "select count(*) as n, max(array[q.since::text, q.error_code, q.error_message])"
            # While the model answers nobody, a failure counts neither as attempt nor as pass, and
            # what had one last is put off. What had one long ago has yet to come up again.
            "  filter (where q.error_message is not null and q.attempts = 0 and q.passes = 0"
            "   and q.place < 0 and q.due_at > now() - %(recently)s) as last"
            " from (select * from dreams where org_id = %(org)s and due_at is not null"
            "  order by due_at desc limit %(most)s) q join documents d on d.id = q.document_id"
            " where {}"
        ).format(condition),
        {**parameters, "most": COUNTED, "recently": RECENTLY},
    ).fetchone()
    return Delay(row["n"], Failure(*row["last"][1:])) if row and row["last"] else None


def placed(tx: Tx, document: DocumentId, hashes: Collection[bytes]) -> set[bytes]:
    """Those of the chunk texts that the document still has."""
    rows = tx.execute(
        "select distinct hash from chunks where document_id = %s and hash = any(%s)",
        (document, list(hashes)),
    )
    return {row["hash"] for row in rows}


def _failure(row: Mapping[str, Any]) -> Failure | None:
    if row["error_message"] is None:
        return None
    return Failure(row["error_code"], row["error_message"])


def _said(failure: Failure | None) -> tuple[str | None, str | None]:
    if failure is None:
        return None, None
    return failure.code, storable(failure.message)[:2000]
