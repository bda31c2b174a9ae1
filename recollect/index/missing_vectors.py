"""Texts that have no vector of a model yet: noted, claimed in gaps, filled."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray
from pgvector import HalfVector
from psycopg import sql

from recollect import db
from recollect.db import Tx
from recollect.index.vector_index import COLUMNS, Index, ModelVectors, Relation, hold
from recollect.model import Failure, storable

SHARE = 1_000
"""texts of documents that are planned as one gap, about: so much does one worker take at a time"""


@dataclass(frozen=True, slots=True)
class Gap:
    """A worker's hold on a stretch of ids."""

    relation: Relation
    first: str
    last: str
    number: int
    noted: int
    failed: bool
    """whether something of it failed the last time"""


@dataclass(frozen=True, slots=True)
class Lacking:
    """A text that has no vector of some models."""

    id: str
    hash: bytes | None
    """of an entry"""
    text: str
    models: Sequence[str]


def split(
    index: Index, vector: NDArray[np.float32] | None
) -> tuple[HalfVector | None, HalfVector | None]:
    """The values of both slots. A vector that does not know its model is of the one in use."""
    if vector is None:
        return None, None
    made: dict[str, NDArray[np.float32]] = {index.used.name: vector}
    if isinstance(vector, ModelVectors):
        made = {vector.model: vector, **vector.beside}
    values = {one.slot: HalfVector(made[one.name]) for one in index.models if one.name in made}
    if not index.models and not isinstance(vector, ModelVectors):  # before the first start
        values["a"] = HalfVector(vector)
    return values.get("a"), values.get("b")


def lacks(index: Index, values: Sequence[HalfVector | None]) -> bool:
    """Whether a slot that shall have a vector is empty; one without any has no embedder at all."""
    return any(values[0 if one.slot == "a" else 1] is None for one in index.models)


def note(tx: Tx, relation: Relation, id: str, size: int = 1) -> None:
    """Say that vectors of this document's entries, or of this memory, are to be made."""
    tx.execute(
        "insert into vector_gaps as g (relation, first, last, size)"
        " values (%(relation)s, %(id)s, %(id)s, %(size)s)"
        " on conflict (relation, first, last) do update"
        " set size = g.size + excluded.size, noted = g.noted + 1",
        {"relation": relation, "id": id, "size": size},
    )
    db.notify(tx)


def note_memories(tx: Tx) -> None:
    """Say that vectors of all memories are to be made."""
    tx.execute(
        "insert into vector_gaps (relation, first, last, size)"
        " select 'memories', min(id), max(id), count(*) from (select id,"
        "  (row_number() over (order by id) - 1) / %(share)s as n from memories) m group by n"
        " on conflict (relation, first, last) do update set noted = vector_gaps.noted + 1",
        {"share": SHARE},
    )


def plan(tx: Tx) -> bool:
    """List all there is to embed for a change that has begun; whether that was to do."""
    row = tx.execute(
        "select 1 from index_settings where phase = 'building' and planned_at is null"
        " for no key update skip locked"
    ).fetchone()
    if row is None:
        return False
    tx.take_time()
    tx.execute(
        "insert into vector_gaps (relation, first, last, size)"
        # One more for each document: those without chunks make a long stretch, too.
        " select 'entries', min(id), max(id), sum(chunks) from (select id, chunks,"
        "  (sum(chunks + 1) over (order by id) - chunks - 1) / %(share)s as n from documents) d"
        " group by n"
        " on conflict (relation, first, last) do update set noted = vector_gaps.noted + 1",
        {"share": SHARE},
    )
    note_memories(tx)
    tx.execute(
        "update index_settings set planned_at = now(),"
        " total = (select coalesce(sum(size), 0) from vector_gaps)"
    )
    return True


def wanted(tx: Tx) -> bool:
    """Whether workers have anything to do here."""
    row = tx.execute(
        "select exists (select from index_settings where phase in ('building', 'clearing'))"
        " or exists (select from vector_gaps where due_at <= now()) as wanted"
    ).fetchone()
    return bool(row and row["wanted"])


def gaps(tx: Tx) -> int:
    """How many there are, in work or not."""
    row = tx.execute("select count(*) as n from vector_gaps").fetchone()
    return row["n"] if row else 0


def claim(tx: Tx, *, lease: timedelta) -> Gap | None:
    """The gap that waits longest is ours for that time; None when none is due."""
    row = tx.execute(
        "with due as materialized (select relation, first, last from vector_gaps"
        "  where due_at <= now() order by due_at limit 1 for update skip locked)"
        " update vector_gaps g set due_at = now() + %s, claims = g.claims + 1 from due"
        " where (g.relation, g.first, g.last) = (due.relation, due.first, due.last)"
        " returning g.relation, g.first, g.last, g.claims, g.noted,"
        "  g.error_code is not null as failed",
        (lease,),
    ).fetchone()
    if row is None:
        return None
    return Gap(
        row["relation"], row["first"], row["last"], row["claims"], row["noted"], row["failed"]
    )


def lacking(tx: Tx, gap: Gap, index: Index, limit: int) -> list[Lacking]:
    """The first texts of a gap that have no vector of some model of the index.

    After a failure, any of them: else those that a model refuses would come first for ever.
    """
    if not index.models:
        return []
    missing = sql.SQL(" or ").join(
        sql.SQL("{} is null").format(model.column) for model in index.models
    )
    named = sql.SQL(", ").join(
        sql.SQL("case when {} is null then {} end").format(model.column, sql.Literal(model.name))
        for model in index.models
    )
    columns, order = {
        "entries": (sql.SQL("document_id as id, hash, text"), sql.SQL("document_id, hash")),
        "memories": (sql.SQL("id, null::bytea as hash, content as text"), sql.SQL("id")),
    }[gap.relation]
    rows = tx.execute(
        sql.SQL(
            "select {columns}, array_remove(array[{named}], null) as models from {relation}"
            " where {key} between %(first)s and %(last)s and ({missing})"
            " order by {order} limit %(limit)s"
        ).format(
            columns=columns,
            named=named,
            relation=sql.Identifier(gap.relation),
            key=sql.Identifier("document_id" if gap.relation == "entries" else "id"),
            missing=missing,
            order=sql.SQL("random()") if gap.failed else order,
        ),
        {"first": gap.first, "last": gap.last, "limit": limit},
    )
    return [Lacking(row["id"], row["hash"], row["text"], row["models"]) for row in rows]


def fill(
    tx: Tx,
    relation: Relation,
    made: Iterable[tuple[Lacking, Mapping[str, NDArray[np.float32]]]],
) -> int:
    """Store vectors, by the names of their models; returns how many texts got any.

    What was deleted meanwhile, or is being changed, is passed over, and so is a model that the
    index does not keep any more.
    """
    index = hold(tx)
    db.fence(tx)
    rows = list(made)
    ids = sorted({one.id for one, _ in rows})
    # Documents before their entries, as everybody does: else two wait for one another.
    locked = tx.execute(
        "select id from documents where id = any(%s) order by id for share skip locked"
        if relation == "entries"
        else "select id from memories where id = any(%s) order by id for no key update skip locked",
        (ids,),
    ).fetchall()
    free = {row["id"] for row in locked}
    done = set[tuple[str, bytes | None]]()
    for model in index.models:
        values = [
            {"id": one.id, "hash": one.hash, "vector": HalfVector(vectors[model.name])}
            for one, vectors in rows
            if one.id in free and model.name in vectors
        ]
        if not values:
            continue
        statement = (
            "update entries set {column} = %(vector)s"
            " where document_id = %(id)s and hash = %(hash)s and {column} is null"
            if relation == "entries"
            else "update memories set {column} = %(vector)s where id = %(id)s and {column} is null"
        )
        tx.cursor().executemany(sql.SQL(statement).format(column=model.column), values)
        done |= {(value["id"], value["hash"]) for value in values}
    return len(done)


def advance(tx: Tx, gap: Gap, filled: int, failure: Failure | None = None) -> None:
    """Put a gap back in the queue after some of it was filled; `failure`: why not all."""
    tx.execute(
        "update vector_gaps set due_at = now(), size = greatest(size - %s, 1), error_code = %s,"
        " error_message = %s where (relation, first, last, claims) = (%s, %s, %s, %s)",
        (filled, *_told(failure), gap.relation, gap.first, gap.last, gap.number),
    )


def close(tx: Tx, gap: Gap) -> None:
    """Nothing is lacking; unless something came meanwhile, the gap goes."""
    done = tx.execute(
        "delete from vector_gaps"
        " where (relation, first, last, claims, noted) = (%s, %s, %s, %s, %s)",
        (gap.relation, gap.first, gap.last, gap.number, gap.noted),
    )
    if not done.rowcount:
        advance(tx, gap, 0)


def postpone(tx: Tx, gap: Gap, failure: Failure, after: timedelta) -> None:
    """Let a gap wait, and say why."""
    tx.execute(
        "update vector_gaps set due_at = now() + %s, error_code = %s, error_message = %s"
        " where (relation, first, last, claims) = (%s, %s, %s, %s)",
        (after, *_told(failure), gap.relation, gap.first, gap.last, gap.number),
    )


def retry(tx: Tx) -> None:
    """Have all gaps due now, those in work as well: who works on one may have asked the model in a
    way that is good no more, and is not to postpone it."""
    tx.execute("update vector_gaps set due_at = now(), claims = claims + 1 where due_at > now()")
    db.notify(tx)


def _told(failure: Failure | None) -> tuple[str | None, str | None]:
    return (failure.code, storable(failure.message)[:2000]) if failure else (None, None)


def awaited(tx: Tx, documents: Sequence[str]) -> set[str]:
    """Those of the documents in whose entries vectors may be lacking: the workers are to make
    them."""
    rows = tx.execute(
        "select id from unnest(%s::text[]) as id where exists (select from vector_gaps g"
        " where g.relation = 'entries' and id between g.first and g.last)",
        (list(documents),),
    )
    return {row["id"] for row in rows}


def mend(tx: Tx, document: str) -> None:
    """Empty the slots of its entries of what does not belong there, and have them filled."""
    index = hold(tx)
    db.fence(tx)
    dimensions = {model.slot: model.dimensions for model in index.models}
    for slot, column in COLUMNS.items():
        if slot != index.used.slot:
            tx.execute(
                sql.SQL(
                    "update entries set {column} = null where document_id = %s"
                    " and vector_dims({column}) <> %s"
                ).format(column=sql.Identifier(column)),
                (document, dimensions.get(slot, 0)),
            )
    if index.other is not None:
        note(tx, "entries", document)


def mend_memories(tx: Tx, ids: Sequence[str]) -> None:
    """The same of memories, the slot in use included."""
    index = hold(tx)
    dimensions = {model.slot: model.dimensions for model in index.models}
    locked = tx.execute(
        "select id from memories where id = any(%s) order by id for no key update", (list(ids),)
    ).fetchall()
    for slot, column in COLUMNS.items():
        tx.execute(
            sql.SQL(
                "update memories set {column} = null where id = any(%s)"
                " and vector_dims({column}) <> %s"
            ).format(column=sql.Identifier(column)),
            (list(ids), dimensions.get(slot, 0)),
        )
    for row in locked if index.models else ():
        note(tx, "memories", row["id"])


def missing(tx: Tx, index: Index) -> int:
    """Texts without a vector of the other model, counted one by one."""
    assert index.other is not None
    tx.take_time()
    row = tx.execute(
        sql.SQL(
            "select (select count(*) from entries where {column} is null)"
            " + (select count(*) from memories where {column} is null"
            "    or vector_dims({column}) <> %s) as n"
        ).format(column=index.other.column),
        (index.other.dimensions,),
    ).fetchone()
    assert row is not None
    return row["n"]


def plan_again(tx: Tx) -> None:
    """List everything once more: something lacks a vector, and no gap names it."""
    tx.execute("update index_settings set planned_at = null where phase = 'building'")
