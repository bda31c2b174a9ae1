"""Changing the model of the index while the service runs: beside, turned, back."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Final

import psycopg
from psycopg import sql
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from recollect import db
from recollect.db import Database, Tx
from recollect.db.faults import judging
from recollect.db.sessions import connect
from recollect.errors import SetupError, Unavailable, code_of
from recollect.index import missing_vectors
from recollect.index.vector_index import (
    COLUMNS,
    INDEXES,
    MOST_DIMENSIONS,
    PURGE_LOCK,
    SETTLED,
    Choice,
    Index,
    Phase,
    alone,
    hold,
    index_definition,
    read,
)
from recollect.model import Failure

_BUILD: Final = "hashtextextended('recollect.index.build', 0)"


def check(index: Index | None, name: str, dimensions: int) -> Index:
    """The index, if a change to the model may begin. Raises SetupError, which says what to do."""
    if index is None or not index.used.dimensions:
        raise SetupError(
            "the index has no vectors: stop the service, name the model in RECOLLECT_EMBEDDER…,"
            " and run `recollect reindex`"
        )
    if index.used.name == name and index.used.dimensions != dimensions:
        raise SetupError(
            f"searches use {name} already, with {index.used.dimensions} dimensions; an index cannot"
            " have one model twice: stop the service and run `recollect reindex`"
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
    return index


def switch(tx: Tx, name: str, dimensions: int, choice: Choice, own: Choice) -> Index:
    """Begin to change to a model; if its vectors are all there, searches use them from now on.

    One that is beside already is reached by `choice` from now on: its address or key is another.

    `own`: how the one that is used now is reached, so that all processes can reach both whatever
    their settings become. Raises SetupError when it cannot be now, and says what comes first.
    """
    alone(tx)
    index = check(read(tx), name, dimensions)
    if index.other is not None and index.other.name == name:
        if index.other.dimensions != dimensions:
            raise SetupError(
                f"{name} is beside {index.used.name} with {index.other.dimensions} dimensions, not"
                f" {dimensions}; ask for as many, or run `recollect embedder"
                f" {'rollback' if index.phase == 'building' else 'finish'}` first"
            )
        tx.execute("update index_settings set other_choice = %s", (Jsonb(dict(choice)),))
        missing_vectors.retry(tx)
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
        " other_choice = %s, choice = %s, planned_at = null, total = 0, flipped_at = null,"
        " build_failure = null",
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
    if index is None or index.phase != "building" or not index.planned or missing_vectors.gaps(tx):
        return False
    _turn(tx, "kept")
    return True


def _turn(tx: Tx, phase: Phase) -> None:
    tx.execute(
        "update index_settings set phase = %s, flipped_at = now(), build_failure = null,"
        " slot = case slot when 'a' then 'b' else 'a' end,"
        " embedder = other_embedder, dimensions = other_dimensions, choice = other_choice,"
        " other_embedder = embedder, other_dimensions = dimensions, other_choice = choice",
        (phase,),
    )
    db.notify(tx)


def _clear(tx: Tx) -> None:
    tx.execute(
        "update index_settings set phase = 'clearing', planned_at = null, total = 0,"
        " build_failure = null,"
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
    # A purge copies tables column by column; an index that is being built would outlive the column.
    free = tx.execute(
        f"select pg_try_advisory_xact_lock({PURGE_LOCK})"
        f" and pg_try_advisory_xact_lock({_BUILD}) as free"
    ).fetchone()
    if index is None or index.phase != "clearing" or free is None or not free["free"]:
        return False
    tx.execute("set local lock_timeout = '200ms'")
    column = sql.Identifier(COLUMNS[index.idle])
    try:
        for relation in ("entries", "memories"):
            # Stored as the migration `0037_vectors_in_line` has it.
            at_once = tx.info.server_version >= 160000
            tx.execute(
                sql.SQL(
                    "alter table {} drop column {c}, add column {c} halfvec storage main"
                    if at_once
                    else "alter table {} drop column {c}, add column {c} halfvec,"
                    " alter column {c} set storage main"
                ).format(sql.Identifier(relation), c=column)
            )
    except psycopg.errors.LockNotAvailable as error:
        raise Unavailable(
            "the tables are in use; the old vectors are removed later", after=timedelta(seconds=1)
        ) from error
    tx.execute("update index_settings set phase = null, flipped_at = null")
    return True


def build_beside(database: Database, index: Index) -> bool:
    """The index over the other model's vectors, while entries are read and written.

    False when another process builds it, when the change was given up meanwhile, or when a purge
    is under way, which writes tables again with the indexes that it found. What else keeps it from
    being built is raised as `db.faults` judges it, and told by `progress`.
    """
    try:
        return _build_beside(database, index)
    except Exception as error:
        failure = Failure(code_of(error), str(error))
        with database.begin() as tx:
            # Unless the change was given up meanwhile: nobody would forget it then.
            tx.execute(
                "update index_settings set build_failure = %s"
                " where phase = 'building' and other_embedder = %s",
                (Jsonb(asdict(failure)), index.other.name if index.other else None),
            )
        raise


def _build_beside(database: Database, index: Index) -> bool:
    assert index.other is not None
    with _session(database) as session:
        for lock in (_BUILD, PURGE_LOCK):
            row = session.execute(f"select pg_try_advisory_lock({lock}) as ours").fetchone()
            if row is None or not row["ours"]:
                return False
        now = read(session)
        if now is None or (now.phase, now.other) != (index.phase, index.other):
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
        session.execute(index_definition(index.other, sql.SQL("concurrently")))
        session.execute("analyze entries")
    return True


@contextmanager
def _session(database: Database) -> Generator[Tx]:
    """A connection without transactions: such an index is built in several."""
    with (
        judging("the vector index was not built"),
        connect(
            Tx,
            database.url,
            {"maintenance_work_mem": "256MB"},
            row_factory=dict_row,
            application_name="recollect index",
        ) as session,
    ):
        yield session
        session.execute("select pg_advisory_unlock_all()")  # the server ends a session later


@dataclass(frozen=True, slots=True)
class SwitchProgress:
    """How a change stands. `left` is texts without a vector of some model, about."""

    index: Index | None
    left: int
    failure: Failure | None
    """why some of them have to wait, or, where none does, why there is no vector index yet"""
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


def progress(tx: Tx) -> SwitchProgress:
    row = tx.execute(
        "select coalesce(sum(size), 0)::int as left, count(error_code)::int as failing,"
        " max(error_code) as code, max(error_message) as message from vector_gaps"
    ).fetchone()
    assert row is not None
    index = read(tx)
    failure = None if index is None else index.build_failure
    if row["failing"]:
        failure = Failure(row["code"], row["message"])
    return SwitchProgress(index, row["left"], failure, row["failing"])


def estimate(tx: Tx, dimensions: int) -> Estimate:
    """Before a change: what vectors of so many dimensions take."""
    tx.take_time()
    row = tx.execute(
        "select (select count(*) from entries) as entries,"
        " (select count(*) from memories) as memories,"
        " index_bytes() + pg_relation_size('memories') as rows"
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
