"""Sessions for long work: no time limits, one snapshot, and files that stay meanwhile."""

import time
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from threading import Event

import psycopg
from psycopg.rows import dict_row

from recollect import documents
from recollect.db import Tx, citus
from recollect.db.faults import judged
from recollect.db.schema import MIGRATION_LOCK
from recollect.db.server_check import check_pooler
from recollect.db.sessions import connect
from recollect.errors import SetupError, Unavailable

PATIENCE = 30.0
"""Seconds to wait for another backup or a migration to end."""
_PAUSE = Event()


@contextmanager
def session(url: str) -> Generator[Tx]:
    """A connection of its own, in autocommit, which keeps its locks. Raises Unavailable when it
    fails, and SetupError for a refusal or a full disk of the server, and for a pooler that gives
    each transaction another session."""
    try:
        check_pooler(url)
        with connect(
            Tx,
            url,
            {"lock_timeout": "30s"},
            application_name="recollect-backup",
            row_factory=dict_row,
            prepare_threshold=None,
        ) as opened:
            yield opened
    except psycopg.errors.LockNotAvailable as error:
        raise SetupError("the database is in use; stop the service and try again") from error
    except (psycopg.errors.DiskFull, psycopg.errors.OutOfMemory) as error:
        raise SetupError(f"the database server gave up: {_said(error)}") from error
    except psycopg.Error as error:
        raised = judged(error)
        if isinstance(raised, Unavailable):
            raise raised from error
        raise SetupError(f"the database refuses: {_said(error)}") from error


@contextmanager
def snapshot(url: str) -> Generator[Tx]:
    """A read-only transaction that sees one moment; until the end of the block no file that a
    document named at that moment is deleted. Raises Contended at its end where a part of the index
    moved to another server meanwhile."""
    with session(url) as tx:
        _hold_files(tx)
        # So that no migration runs between the look at the tables and their locks.
        tx.execute("select pg_advisory_lock_shared(%s)", (MIGRATION_LOCK,))
        spread = citus.is_spread(tx)
        with citus.still(tx) if spread else nullcontext():
            tx.execute("begin isolation level repeatable read, read only")
            seen = citus.look(tx) if spread else None
        yield tx
        if seen is not None:
            with session(url) as fresh:
                citus.refuse_moved(seen, fresh)


def unlock_migrations(tx: Tx) -> None:
    """The tables are locked now: migrations wait for those they touch."""
    tx.execute("select pg_advisory_unlock_shared(%s)", (MIGRATION_LOCK,))


def _hold_files(tx: Tx) -> None:
    give_up = time.monotonic() + PATIENCE
    while not documents.hold_blobs(tx):
        if time.monotonic() > give_up:
            raise SetupError("another backup or export of this database is running")
        _PAUSE.wait(0.05)


def _said(error: psycopg.Error) -> str:
    """The server's message without its details, which may quote rows."""
    return error.diag.message_primary or str(error).strip().split("\n", 1)[0]
