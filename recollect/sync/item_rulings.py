"""What the filter says of items, before and while a sync brings them."""

from collections.abc import Sequence
from dataclasses import dataclass

from recollect.connectors.base import (
    Change,
    Item,
)
from recollect.db import Tx
from recollect.model import ConnectionId, DocumentId, SyncClaim
from recollect.sync.item_filter import FILTERED, KEYS, UNDECIDED, Gate, Judgement
from recollect.sync.items import (
    DOCUMENT,
    WAITS_FOR_MODEL,
    SyncCounts,
    item_of,
    rows_outside,
    storable_change,
)


@dataclass(frozen=True, slots=True)
class KnownItem:
    """A thing that is a document, or that the filter keeps out."""

    item: Item
    detail: str | None
    document_id: DocumentId | None


def survey(
    tx: Tx, connection: ConnectionId, *, after: str, limit: int
) -> tuple[list[KnownItem], str | None]:
    """What a changed filter could mean something for, of up to `limit` things behind the id
    `after`; and the id to go on behind, None at the end.

    What the connection's own patterns keep out is not among them.
    """
    rows = tx.execute(
        "select * from items where connection_id = %(connection)s and id > %(after)s"
        " and (document_id is not null or verdict = %(undecided)s"
        "  or (verdict = %(filtered)s and split_part(detail, ':', 1) = any(%(keys)s)))"
        " order by id limit %(limit)s",
        {
            "connection": connection,
            "after": after,
            "undecided": UNDECIDED,
            "filtered": FILTERED,
            "keys": list(KEYS),
            "limit": limit,
        },
    ).fetchall()
    found = [KnownItem(item_of(row), row["detail"], row["document_id"]) for row in rows]
    return found, rows[-1]["id"] if len(rows) == limit else None


def undecided(tx: Tx, claim: SyncClaim, changes: Sequence[Change], gate: Gate) -> list[Item]:
    """The new things among the changes that only the model can decide: to be asked before `apply`,
    outside of the transaction."""
    found = [one for change in changes if isinstance(one := storable_change(change), Item)]
    rows = tx.execute(
        "select id from items where connection_id = %s and id = any(%s)"
        " and (document_id is not null or verdict = %s)",
        (
            claim.connection.id,
            [id for item in found for id in (item.id, item.formerly) if id is not None],
            DOCUMENT,
        ),
    ).fetchall()
    here = {row["id"] for row in rows}
    new = [item for item in found if (item.formerly or item.id) not in here]
    recall(tx, claim.connection.id, new, gate)
    return [item for item in new if gate.open(item)]


def outside(tx: Tx, claim: SyncClaim, gate: Gate, *, after: str, limit: int) -> list[Item]:
    """The same of what `reconsider` looks at next."""
    known = [item_of(row) for row in rows_outside(tx, claim, after, limit)]
    recall(tx, claim.connection.id, known, gate)
    return [item for item in known if gate.open(item)]


def count_undecided(tx: Tx, claim: SyncClaim, gate: Gate, counts: SyncCounts) -> None:
    """At the end of a sync: how many items wait for the model; then the run is partial."""
    row = tx.execute(
        "select count(*) as n from items where connection_id = %s and verdict = %s",
        (claim.connection.id, UNDECIDED),
    ).fetchone()
    assert row is not None
    counts.skipped.pop(UNDECIDED, None)
    if row["n"]:
        counts.skipped[UNDECIDED] = row["n"]
        number = "1 item waits" if row["n"] == 1 else f"{row['n']:,} items wait"
        reason = gate.trouble or "it gave no answer about them"
        counts.note(f"{number} for the model of the filter: {reason}. The next sync asks again.")
        counts.code = counts.code or WAITS_FOR_MODEL


def recall(tx: Tx, connection: ConnectionId, known: Sequence[Item], gate: Gate) -> None:
    """Tell the gate what the model said of these earlier."""
    if not gate.asks or not known:
        return
    rows = tx.execute(
        "select j.* from judgements j join unnest(%s::text[], %s::bytea[]) as asked (id, question)"
        " on j.item_id = asked.id and j.question = asked.question where j.connection_id = %s",
        ([item.id for item in known], [gate.question(item) for item in known], connection),
    )
    for row in rows:
        gate.recall(row["item_id"], row["question"], Judgement(row["keep"], row["reason"]))


def note(tx: Tx, connection: ConnectionId, known: Sequence[Item], gate: Gate) -> None:
    """Remember what the model said of these, for as long as the things are remembered."""
    said = [(item.id, gate.question(item), j) for item in known if (j := gate.judgement(item))]
    if not said:
        return
    tx.execute(
        "insert into judgements (connection_id, item_id, question, keep, reason)"
        " select i.connection_id, i.id, s.question, s.keep, s.reason"
        " from unnest(%s::text[], %s::bytea[], %s::bool[], %s::text[]) as s"
        "  (id, question, keep, reason)"
        " join items i on i.connection_id = %s and i.id = s.id on conflict do nothing",
        (
            [id for id, _, _ in said],
            [question for _, question, _ in said],
            [judgement.keep for _, _, judgement in said],
            [judgement.reason for _, _, judgement in said],
            connection,
        ),
    )
