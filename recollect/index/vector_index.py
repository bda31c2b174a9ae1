"""The models of the index: the one that searches use, and a second one while they are changed.

Entries and memories have two places for vectors, the slots a and b. `index_settings`, one row, says
whose vectors are in which, and which slot is searched. A change of the model goes

    (one model) → building → kept ⇄ returned → clearing → (one model)

`building`: vectors of the new model are made in the other slot; searches use the old one's. `kept`:
they use the new one's, and the old ones stay, for a way back. `returned`: that way was taken.
`clearing`: the slot that is not searched is to be emptied.

Whoever writes vectors asks `hold` first and fills every slot of which it has the vector; where it
has none it says so (`note`), and the workers make it. The row changes only while nobody holds it.
So in `kept` and `returned` both slots are complete but for what the gaps name.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import psycopg
from numpy.typing import NDArray
from pgvector import HalfVector
from psycopg import sql
from psycopg.rows import DictRow, dict_row
from psycopg.types.json import Jsonb

from recollect import db
from recollect.db import Database, Tx
from recollect.db.faults import judging
from recollect.errors import SetupError, Unavailable
from recollect.model import Failure, storable

Slot = Literal["a", "b"]
Relation = Literal["entries", "memories"]
Phase = Literal["building", "kept", "returned", "clearing"]
Choice: TypeAlias = Mapping[str, Any]
"""how a model is reached: `kind`, `url`, `model`, `dimensions`, `key` (sealed)"""

COLUMNS: Mapping[Slot, str] = {"a": "embedding", "b": "embedding_b"}
INDEXES: Mapping[Slot, str] = {"a": "entries_embedding", "b": "entries_embedding_b"}
MOST_DIMENSIONS = 4_000
"""that an index over halfvec takes"""
SETTLED = timedelta(seconds=5)
"""How long after a flip both models stay: longer than a process believes what it last read."""
SHARE = 1_000
"""texts of documents that are planned as one gap, about: so much does one worker take at a time"""
_LOCK: Final = "hashtextextended('recollect.index', 0)"
_PURGE: Final = "hashtextextended('recollect.purge', 0)"
_BUILD: Final = "hashtextextended('recollect.index.build', 0)"


@dataclass(frozen=True, slots=True)
class Kept:
    """A model whose vectors the index has, and where."""

    name: str
    dimensions: int
    slot: Slot
    choice: Choice | None = field(default=None, repr=False)
    """None: as the settings say, which name no other"""

    @property
    def column(self) -> sql.Identifier:
        return sql.Identifier(COLUMNS[self.slot])


@dataclass(frozen=True, slots=True)
class Index:
    """The row: `used` is searched, `other` is the second model, if there is one."""

    used: Kept
    other: Kept | None = None
    phase: Phase | None = None
    planned: bool = False
    total: int = 0
    """texts that there were to embed when it was planned"""
    replaced: str | None = None
    """the model before, which the settings may still name"""
    flipped_at: datetime | None = None

    @property
    def models(self) -> Sequence[Kept]:
        """Those of which each entry shall have a vector."""
        return [one for one in (self.used, self.other) if one is not None and one.dimensions]

    @property
    def idle(self) -> Slot:
        """The slot that is not searched."""
        return "b" if self.used.slot == "a" else "a"

    def searched(self, vector: NDArray[np.float32] | None) -> sql.Identifier:
        """The column to compare a query's vector with: that of the model which made it.

        A process that has not heard of a flip asks with the other model, which has all vectors,
        too. Raises Unavailable when the index has none of that model any more.
        """
        if not isinstance(vector, Made) or vector.model == self.used.name:
            return self.used.column
        if self.other and self.phase in ("kept", "returned") and vector.model == self.other.name:
            return self.other.column
        raise Unavailable(f"the index is not of {vector.model} any more; ask again")


class Made(np.ndarray[Any, np.dtype[np.float32]]):
    """Vectors, or one, that know the model that made them.

    `beside`: what other models made of the same texts, by name. Rows that are taken by iterating
    or by number keep both.
    """

    model: str = ""
    beside: Mapping[str, NDArray[np.float32]]

    @classmethod
    def of(
        cls,
        vectors: NDArray[np.float32],
        model: str,
        beside: Mapping[str, NDArray[np.float32]] | None = None,
    ) -> "Made":
        made = vectors.view(cls)
        made.model, made.beside = model, beside or {}
        return made

    def __array_finalize__(self, source: Any) -> None:
        self.model = getattr(source, "model", "")
        self.beside = {}

    def __getitem__(self, key: Any) -> Any:
        found: Any = super().__getitem__(key)
        if isinstance(found, Made):
            found.beside = {name: vectors[key] for name, vectors in self.beside.items()}
        return found

    def __iter__(self) -> Iterator[Any]:
        return (self[number] for number in range(len(self)))


UNBOUND = Index(Kept("none", 0, "a"))
"""before the first start"""


# --- the row -----------------------------------------------------------------------------------


def read(tx: Tx) -> Index | None:
    """As it is now; None before the first start."""
    return _index(tx.execute("select * from index_settings").fetchone())


def sought(tx: Tx, relation: Relation, vector: NDArray[np.float32] | None) -> sql.Identifier:
    """The column to compare a query's vector with; it stays until this transaction ends.

    Raises Unavailable, see `Index.searched`.
    """
    if vector is None:
        return sql.Identifier(COLUMNS["a"])
    # Naming the table locks it, before the row is read: so nobody empties the column meanwhile.
    row = tx.execute(
        sql.SQL("select i.* from index_settings i left join {} t on false").format(
            sql.Identifier(relation)
        )
    ).fetchone()
    return (_index(row) or UNBOUND).searched(vector)


def made_by(vector: NDArray[np.float32] | None) -> str:
    """The name of the model that made a vector, as far as the vector knows."""
    return vector.model if isinstance(vector, Made) else ""


def maker(tx: Tx, vector: NDArray[np.float32] | None) -> str:
    """The name of the model that made a vector; that of the index if the vector does not know."""
    if isinstance(vector, Made):
        return vector.model
    index = None if vector is None else read(tx)
    return "" if index is None else index.used.name


def hold(tx: Tx) -> Index:
    """As it is now and stays until this transaction ends; before any vector is written."""
    return _index(tx.execute("select * from hold_index()").fetchone()) or UNBOUND


def alone(tx: Tx) -> None:
    """Wait until no transaction holds the row, and let none do so until this one ends."""
    tx.execute(f"select pg_advisory_xact_lock({_LOCK})")


def adopt(tx: Tx, name: str, dimensions: int) -> None:
    """Bind the index to an embedding model, at the first start; later, check that it is the same.

    `dimensions` is 0 without an embedder. While the model is being changed, and after that, either
    will do. Raises SetupError with the command that mends it.
    """
    alone(tx)
    index = read(tx)
    if index is None:
        tx.execute(
            "insert into index_settings (embedder, dimensions) values (%s, %s)", (name, dimensions)
        )
        build(tx, Kept(name, dimensions, "a"))
    elif not reaches(index, name) and (index.used.name, index.used.dimensions) != (
        name,
        dimensions,
    ):
        raise SetupError(
            f"the index was built with the embedding model {index.used.name!r}"
            f" ({index.used.dimensions} dimensions), the settings name {name!r} ({dimensions});"
            " put RECOLLECT_EMBEDDER… back. `recollect embedder switch` then changes the model"
            " while the service runs; `recollect reindex` does it while it stands still"
        )


def reaches(index: Index, name: str) -> bool:
    """Whether a process may start whose settings name this model, though another one is searched.

    So it is with the second model, and with the one before: the index knows how to reach its own.
    """
    known = index.replaced if index.other is None else index.other.name
    return index.used.choice is not None and name == known


def rebind(tx: Tx, name: str, dimensions: int) -> None:
    """Bind the index to another model; the vectors it holds must be forgotten with it."""
    tx.execute("drop index if exists entries_embedding, entries_embedding_b")
    tx.execute("delete from index_settings")
    tx.execute("delete from vector_gaps")
    adopt(tx, name, dimensions)


def build(tx: Tx, model: Kept) -> None:
    """The index over its vectors, unless it is there; for a database that nobody uses yet."""
    if model.dimensions:
        tx.execute(_definition(model, sql.SQL("if not exists")))


def rebuild(tx: Tx) -> None:
    """The indexes over vectors, after a restore; what is being built gets its own at the end."""
    index = read(tx)
    if index is not None:
        for model in index.models:
            if model is index.used or index.phase in ("kept", "returned"):
                build(tx, model)


# --- changing the model ------------------------------------------------------------------------


def switch(tx: Tx, name: str, dimensions: int, choice: Choice, own: Choice) -> Index:
    """Begin to change to a model; if its vectors are all there, searches use them from now on.

    `own`: how the one that is used now is reached, so that all processes can reach both whatever
    their settings become. Raises SetupError when it cannot be now, and says what comes first.
    """
    alone(tx)
    index = read(tx)
    if index is None or not index.used.dimensions:
        raise SetupError(
            "the index has no vectors: stop the service, name the model in RECOLLECT_EMBEDDER…,"
            " and run `recollect reindex`"
        )
    if index.used.name == name:
        raise SetupError(
            f"searches use {name} already; another address or key of it is a matter of settings"
        )
    if not 0 < dimensions <= MOST_DIMENSIONS:
        raise SetupError(
            f"{name} has {dimensions} dimensions, the vector index takes up to"
            f" {MOST_DIMENSIONS}; ask for fewer with --dimensions"
        )
    if index.other is not None and index.other.name == name:
        if index.phase == "returned":
            _turn(tx, "kept")
        return hold(tx)
    if index.other is not None:
        raise SetupError(
            f"{index.other.name} is beside {index.used.name} still; run `recollect embedder"
            f" {'rollback' if index.phase == 'building' else 'finish'}` first"
        )
    if index.phase == "clearing":
        raise SetupError("what is left of the last change is being removed; try again in a moment")
    tx.execute(
        "update index_settings set phase = 'building', other_embedder = %s, other_dimensions = %s,"
        " other_choice = %s, choice = %s, planned_at = null, total = 0, flipped_at = null",
        (name, dimensions, Jsonb(dict(choice)), Jsonb(dict(own))),
    )
    db.notify(tx)
    return hold(tx)


def rollback(tx: Tx) -> Index:
    """Back to the model before, at once; of one that is being built, nothing stays.

    Raises SetupError when there is no way back.
    """
    alone(tx)
    index = read(tx)
    match index.phase if index else None:
        case "building":
            _clear(tx)
        case "kept":
            _turn(tx, "returned")
        case "returned":
            assert index is not None
            assert index.other is not None
            raise SetupError(
                f"searches use {index.used.name} again already; `recollect embedder switch` goes"
                f" forward to {index.other.name}, `recollect embedder finish` forgets it"
            )
        case _:
            raise SetupError("there is no model to go back to: the index has one alone")
    return hold(tx)


def finish(tx: Tx) -> Index:
    """Keep only the model that searches use. Raises SetupError when the other is not complete."""
    alone(tx)
    index = read(tx)
    if index is None or index.phase not in ("kept", "returned") or index.other is None:
        raise SetupError(
            "there is nothing to finish: "
            + (
                "the new vectors are not complete yet"
                if index is not None and index.phase == "building"
                else "the index has one model alone"
            )
        )
    row = tx.execute(
        "select flipped_at < now() - %s as settled from index_settings", (SETTLED,)
    ).fetchone()
    if row is None or not row["settled"]:
        raise SetupError(
            f"searches went over to {index.used.name} only now, and not every process may have"
            f" heard of it; try again in {SETTLED.seconds} seconds"
        )
    _clear(tx)
    return hold(tx)


def flip(tx: Tx) -> bool:
    """Let searches use the new model, if it is complete; whether they do now.

    The vector index must be there, and the texts counted (`missing`).
    """
    alone(tx)
    index = read(tx)
    if index is None or index.phase != "building" or not index.planned or gaps(tx):
        return False
    _turn(tx, "kept")
    return True


def _turn(tx: Tx, phase: Phase) -> None:
    tx.execute(
        "update index_settings set phase = %s, flipped_at = now(),"
        " slot = case slot when 'a' then 'b' else 'a' end,"
        " embedder = other_embedder, dimensions = other_dimensions, choice = other_choice,"
        " other_embedder = embedder, other_dimensions = dimensions, other_choice = choice",
        (phase,),
    )
    db.notify(tx)


def _clear(tx: Tx) -> None:
    tx.execute(
        "update index_settings set phase = 'clearing', planned_at = null, total = 0,"
        " replaced = case phase when 'building' then replaced else other_embedder end,"
        " other_embedder = null, other_dimensions = null, other_choice = null"
    )
    db.notify(tx)


def clear(tx: Tx) -> bool:
    """Empty the slot that is not searched; False when a table is in use, for now.

    A new column costs nothing, however large the table; what the old one held goes with the next
    purge. Who waits for the table's lock holds up all others: so not for long.
    """
    alone(tx)
    index = read(tx)
    # A purge copies tables column by column.
    free = tx.execute(f"select pg_try_advisory_xact_lock({_PURGE}) as free").fetchone()
    if index is None or index.phase != "clearing" or free is None or not free["free"]:
        return False
    tx.execute("set local lock_timeout = '200ms'")
    column = sql.Identifier(COLUMNS[index.idle])
    try:
        for relation in ("entries", "memories"):
            tx.execute(
                sql.SQL("alter table {} drop column {}, add column {} halfvec").format(
                    sql.Identifier(relation), column, column
                )
            )
    except psycopg.errors.LockNotAvailable as error:
        raise Unavailable(
            "the tables are in use; the old vectors are removed later", after=timedelta(seconds=1)
        ) from error
    tx.execute("update index_settings set phase = null, flipped_at = null")
    return True


# --- what has no vector yet --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gap:
    """A worker's hold on a stretch of ids."""

    relation: Relation
    first: str
    last: str
    number: int
    noted: int


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
    if isinstance(vector, Made):
        made = {vector.model: vector, **vector.beside}
    values = {one.slot: HalfVector(made[one.name]) for one in index.models if one.name in made}
    if not index.models and not isinstance(vector, Made):  # before the first start
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


def plan(tx: Tx) -> bool:
    """List all there is to embed for a change that has begun; whether that was to do."""
    row = tx.execute(
        "select 1 from index_settings where phase = 'building' and planned_at is null"
        " for no key update skip locked"
    ).fetchone()
    if row is None:
        return False
    tx.execute("set local statement_timeout = 0")
    tx.execute(
        "insert into vector_gaps (relation, first, last, size)"
        # One more for each document: those without chunks make a long stretch, too.
        " select 'entries', min(id), max(id), sum(chunks) from (select id, chunks,"
        "  (sum(chunks + 1) over (order by id) - chunks - 1) / %(share)s as n from documents) d"
        " group by n"
        " union all"
        " select 'memories', min(id), max(id), count(*) from (select id,"
        "  (row_number() over (order by id) - 1) / %(share)s as n from memories) m group by n"
        " on conflict (relation, first, last) do update set noted = vector_gaps.noted + 1",
        {"share": SHARE},
    )
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
        " returning g.relation, g.first, g.last, g.claims, g.noted",
        (lease,),
    ).fetchone()
    if row is None:
        return None
    return Gap(row["relation"], row["first"], row["last"], row["claims"], row["noted"])


def lacking(tx: Tx, gap: Gap, index: Index, limit: int) -> list[Lacking]:
    """The first texts of a gap that have no vector of some model of the index."""
    if not index.models:
        return []
    missing = sql.SQL(" or ").join(
        sql.SQL("{} is null").format(model.column) for model in index.models
    )
    named = sql.SQL(", ").join(
        sql.SQL("case when {} is null then {} end").format(model.column, sql.Literal(model.name))
        for model in index.models
    )
    columns, key = {
        "entries": (sql.SQL("document_id as id, hash, text"), sql.SQL("document_id")),
        "memories": (sql.SQL("id, null::bytea as hash, content as text"), sql.SQL("id")),
    }[gap.relation]
    rows = tx.execute(
        sql.SQL(
            "select {columns}, array_remove(array[{named}], null) as models from {relation}"
            " where {key} between %(first)s and %(last)s and ({missing})"
            " order by {key}, hash limit %(limit)s"
            if gap.relation == "entries"
            else "select {columns}, array_remove(array[{named}], null) as models from {relation}"
            " where {key} between %(first)s and %(last)s and ({missing})"
            " order by {key} limit %(limit)s"
        ).format(
            columns=columns,
            named=named,
            relation=sql.Identifier(gap.relation),
            key=key,
            missing=missing,
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


def advance(tx: Tx, gap: Gap, filled: int) -> None:
    """Put a gap back in the queue after some of it was filled."""
    tx.execute(
        "update vector_gaps set due_at = now(), size = greatest(size - %s, 1), error_code = null,"
        " error_message = null where (relation, first, last, claims) = (%s, %s, %s, %s)",
        (filled, gap.relation, gap.first, gap.last, gap.number),
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
        (
            after,
            failure.code,
            storable(failure.message)[:2000],
            gap.relation,
            gap.first,
            gap.last,
            gap.number,
        ),
    )


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


def missing(tx: Tx, index: Index) -> int:
    """Texts without a vector of the other model, counted one by one."""
    assert index.other is not None
    tx.execute("set local statement_timeout = 0")
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


# --- the vector index --------------------------------------------------------------------------


def build_beside(database: Database, index: Index) -> bool:
    """The index over the other model's vectors, while entries are read and written.

    False when another process builds it, or a purge is under way, which writes tables anew with
    the indexes that it found. Raises Unavailable.
    """
    assert index.other is not None
    with _session(database) as session:
        for lock in (_BUILD, _PURGE):
            row = session.execute(f"select pg_try_advisory_lock({lock}) as ours").fetchone()
            if row is None or not row["ours"]:
                return False
        name = INDEXES[index.other.slot]
        valid = session.execute(
            "select indisvalid as valid from pg_index where indexrelid = to_regclass(%s)", (name,)
        ).fetchone()
        if valid is not None and valid["valid"]:
            return True
        # Of one that was cut off.
        session.execute(
            sql.SQL("drop index concurrently if exists {}").format(sql.Identifier(name))
        )
        session.execute(_definition(index.other, sql.SQL("concurrently")))
        session.execute("analyze entries")
    return True


def _definition(model: Kept, how: sql.SQL) -> sql.Composed:
    return sql.SQL(
        "create index {how} {name} on entries"
        " using hnsw (({column}::halfvec({dimensions})) halfvec_cosine_ops)"
        " with (m = 16, ef_construction = 64)"
    ).format(
        how=how,
        name=sql.Identifier(INDEXES[model.slot]),
        column=model.column,
        dimensions=sql.Literal(model.dimensions),
    )


@contextmanager
def _session(database: Database) -> Generator[Tx]:
    """A connection without transactions: such an index is built in several."""
    with (
        judging("the vector index was not built"),
        psycopg.Connection[DictRow].connect(
            database.url,
            autocommit=True,
            row_factory=dict_row,
            connect_timeout=10,
            application_name="recollect index",
            options="-c statement_timeout=0 -c maintenance_work_mem=256MB",
        ) as session,
    ):
        yield session


# --- what an operator sees ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Progress:
    """How a change stands. `left` is texts without a vector of some model, about."""

    index: Index | None
    left: int
    failure: Failure | None
    """why some of them have to wait"""
    failing: int
    """gaps that do"""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a second model costs, in texts and in bytes of disk."""

    texts: int
    vectors: int
    vector_index: int
    rewritten: int
    """old versions of rows, until PostgreSQL uses their place again"""


def progress(tx: Tx) -> Progress:
    row = tx.execute(
        "select coalesce(sum(size), 0)::int as left, count(error_code)::int as failing,"
        " max(error_code) as code, max(error_message) as message from vector_gaps"
    ).fetchone()
    assert row is not None
    failure = Failure(row["code"], row["message"]) if row["failing"] else None
    return Progress(read(tx), row["left"], failure, row["failing"])


def estimate(tx: Tx, dimensions: int) -> Estimate:
    """Before a change: what vectors of so many dimensions take."""
    tx.execute("set local statement_timeout = 0")
    row = tx.execute(
        "select (select count(*) from entries) as entries,"
        " (select count(*) from memories) as memories,"
        " pg_relation_size('entries') + pg_relation_size('memories') as rows"
    ).fetchone()
    assert row is not None
    # pgvector keeps two bytes for a number; a place in its index has some 300 more, for the
    # neighbours, and none is spread over two pages.
    on_page = max(1, 8_100 // (2 * dimensions + 300))
    return Estimate(
        texts=row["entries"] + row["memories"],
        vectors=(row["entries"] + row["memories"]) * (2 * dimensions + 24),
        vector_index=-(-row["entries"] // on_page) * 8_192,
        rewritten=row["rows"],
    )


def _index(row: Mapping[str, Any] | None) -> Index | None:
    if row is None:
        return None
    used = Kept(row["embedder"], row["dimensions"], row["slot"], row["choice"])
    other = None
    if row["other_embedder"] is not None:
        other = Kept(
            row["other_embedder"],
            row["other_dimensions"],
            "b" if row["slot"] == "a" else "a",
            row["other_choice"],
        )
    return Index(
        used,
        other,
        row["phase"],
        row["planned_at"] is not None,
        row["total"],
        row["replaced"],
        row["flipped_at"],
    )
