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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from recollect.db import Tx
from recollect.errors import SetupError, Unavailable
from recollect.model import Failure

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
_LOCK: Final = "hashtextextended('recollect.index', 0)"
PURGE_LOCK: Final = "hashtextextended('recollect.purge', 0)"


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
    build_failure: Failure | None = None
    """why the vector index of `other` was not built"""

    @property
    def models(self) -> Sequence[Kept]:
        """Those of which each entry shall have a vector."""
        return [one for one in (self.used, self.other) if one is not None and one.dimensions]

    @property
    def idle(self) -> Slot:
        """The slot that is not searched."""
        return "b" if self.used.slot == "a" else "a"

    def searched(self, vector: NDArray[np.float32] | None) -> Kept:
        """The model which made a query's vector, with whose column it is compared.

        A process that has not heard of a flip asks with the other model, which has all vectors,
        too. Raises Unavailable when the index has none of that model any more.
        """
        if not isinstance(vector, ModelVectors) or vector.model == self.used.name:
            return self.used
        if self.other and self.phase in ("kept", "returned") and vector.model == self.other.name:
            return self.other
        raise Unavailable(f"the index is not of {vector.model} any more; ask again")


class ModelVectors(np.ndarray[Any, np.dtype[np.float32]]):
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
    ) -> "ModelVectors":
        made = vectors.view(cls)
        made.model, made.beside = model, beside or {}
        return made

    def __array_finalize__(self, source: Any) -> None:
        self.model = getattr(source, "model", "")
        self.beside = {}

    def __getitem__(self, key: Any) -> Any:
        found: Any = super().__getitem__(key)
        if isinstance(found, ModelVectors):
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


def sought(tx: Tx, relation: Relation, vector: NDArray[np.float32] | None) -> Kept:
    """The model with whose vectors to compare a query's; they stay until this transaction ends.

    Raises Unavailable, see `Index.searched`.
    """
    # Naming the table locks it, before the row is read: so nobody empties the column meanwhile.
    look = sql.SQL("select from {} where false; select * from index_settings")
    found = tx.execute(look.format(sql.Identifier(relation)))
    return (_index(found.set_result(-1).fetchone()) or UNBOUND).searched(vector)


def made_by(vector: NDArray[np.float32] | None) -> str:
    """The name of the model that made a vector; empty for a vector that does not carry one."""
    return vector.model if isinstance(vector, ModelVectors) else ""


def hold(tx: Tx) -> Index:
    """The row as it is now, locked until this transaction ends. Call it before you write a
    vector."""
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
            " put RECOLLECT_EMBEDDER… back. "
            + (
                "For other dimensions of the same model, run `recollect reindex`"
                if index.used.name == name
                else "`recollect embedder switch` then changes the model while the service runs;"
                " `recollect reindex` does it while it stands still"
            )
        )


def reaches(index: Index, name: str) -> bool:
    """Whether a process may start whose settings name this model, though another one is searched.

    True for the second model and for the one before: the index itself keeps how its own models are
    reached.
    """
    other = None if index.other is None else index.other.name
    return index.used.choice is not None and name in (index.replaced, other)


def rebind(tx: Tx, name: str, dimensions: int) -> None:
    """Bind the index to another model. The caller deletes the vectors that it holds, in the same
    transaction."""
    for index in INDEXES.values():
        tx.execute(sql.SQL("drop index if exists {}").format(sql.Identifier(index)))
    tx.execute("delete from index_settings")
    tx.execute("delete from vector_gaps")
    adopt(tx, name, dimensions)


def build(tx: Tx, model: Kept) -> None:
    """The index over its vectors, unless it is there; for a database that nobody uses yet."""
    if model.dimensions:
        tx.execute(index_definition(model, sql.SQL("if not exists")))


def rebuild(tx: Tx) -> None:
    """Build the indexes over vectors after a restore. A model that is being built gets its index at
    the end."""
    index = read(tx)
    if index is not None:
        for model in index.models:
            if model is index.used or index.phase in ("kept", "returned"):
                build(tx, model)


def index_definition(model: Kept, how: sql.SQL) -> sql.Composed:
    return sql.SQL(
        "create index {how} {name} on entries"
        " using hnsw (({column}::halfvec({dimensions})) halfvec_cosine_ops)"
        # Of the ten nearest of a million, 128 finds 9.9 where 64 finds 9.5; each entry then takes
        # 1.8 ms to enter instead of 1.2 (docs/bench.md).
        " with (m = 16, ef_construction = 128)"
    ).format(
        how=how,
        name=sql.Identifier(INDEXES[model.slot]),
        column=model.column,
        dimensions=sql.Literal(model.dimensions),
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
        None if row["build_failure"] is None else Failure(**row["build_failure"]),
    )
