"""Purge: what was deleted goes from the disk, too.

PostgreSQL only marks deleted rows, and its vacuum only lets their space be used again; the bytes
stay in pages, in the statistics of its planner, in the write-ahead log. So a purge writes every
table again with the rows that live, and then lets go of everything that was written before:

1. files of deleted documents, from the blob store;
2. tables with their indexes: small ones by `vacuum full`, which locks them for as long as it
   takes, large ones beside the service (`_beside`), which locks them for a moment;
3. the planner's statistics, which quote frequent values;
4. the queue of notices, the write-ahead log, and the server's messages, which quote statements.

Rows that a transaction older than the purge may still see would be kept; it waits for those to end.
"""

import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from recollect import documents, log
from recollect.app import App
from recollect.blobs import Blobs, FileDeletion
from recollect.db import Database, Tx
from recollect.db.embedded import ONLY_CATALOG, superuser_url
from recollect.db.faults import judging
from recollect.db.sessions import connect
from recollect.errors import Transient
from recollect.loop import enduring
from recollect.model import random_id
from recollect.ops._rewrite import (
    LOCK_WAIT,
    SOON,
    Rewritten,
    await_older,
    changes,
    one_row,
    patiently,
    rewrite_table,
    tables_to_rewrite,
)
from recollect.ops._server_files import (
    flush_notices,
    remove_abandoned,
    renew_statistics,
    renew_wal,
    scrub,
    server_folder,
    silence,
)
from recollect.ops.files import delete_doomed, delete_strays

LOG = log.get("purge")
SWEPT = timedelta(days=1)
"""Age from which a file that no document names was an upload that was cut off."""
LOOK = timedelta(minutes=10)
"""Between two looks whether a purge is due."""


@dataclass(frozen=True, slots=True)
class Purged:
    """What a purge did."""

    id: str
    seconds: float
    tables: Sequence[Rewritten]
    files: int
    """of deleted documents, and of uploads that were cut off"""
    abandoned: int
    """files of the database server that a crash left behind"""
    receipts: int
    """of deletions that are complete with it"""
    left: Sequence[str]
    """what it could not reach, and who can"""


@dataclass(frozen=True, slots=True)
class Receipt:
    """One deletion. `documents`, `chunks`, `files` are counts; `key` asked for it."""

    id: str
    org: str
    key: str | None
    documents: int
    chunks: int
    files: int
    deleted_at: datetime
    purged_at: datetime | None
    sha256: Sequence[str]
    """of the ids, in hexadecimal"""


def receipts(tx: Tx, id: str) -> list[Receipt]:
    """Of a document's deletion by its id, or the receipt of that id; none if nothing was deleted.

    For the operator: it looks into all organisations.
    """
    return _receipts(
        tx,
        "where r.id = %(id)s or r.id in (select receipt_id"
        "  from receipt_documents where document = sha256(convert_to(%(id)s, 'UTF8')))"
        " order by r.deleted_at",
        {"id": id},
    )


def latest(tx: Tx, count: int) -> list[Receipt]:
    """Of the last deletions, the newest first, of all organisations."""
    return _receipts(tx, "order by r.deleted_at desc limit %(count)s", {"count": count})


def _receipts(tx: Tx, which: LiteralString, values: Mapping[str, object]) -> list[Receipt]:
    rows = tx.execute(
        "select r.*, array(select encode(d.document, 'hex') from receipt_documents d"
        "  where d.receipt_id = r.id order by 1) as hashes from receipts r " + which,
        values,
    )
    return [
        Receipt(
            id=row["id"],
            org=row["org_id"],
            key=row["key_id"],
            documents=row["documents"],
            chunks=row["chunks"],
            files=row["files"],
            deleted_at=row["deleted_at"],
            purged_at=row["purged_at"],
            sha256=row["hashes"],
        )
        for row in rows
    ]


def due(tx: Tx, interval: timedelta) -> bool:
    """Whether something was deleted or replaced, and the last purge began an interval ago."""
    # One that began later than now did so by a clock that was wrong, perhaps by years.
    last = tx.execute(
        "select started_at < now() - %(interval)s as old, changes from purges"
        " where finished_at is not null and started_at <= now() order by started_at desc limit 1",
        {"interval": interval},
    ).fetchone()
    if last is None:
        first = tx.execute(
            "select min(applied_at) < now() - %s as old from migrations", (interval,)
        ).fetchone()
        return first is not None and first["old"] and changes(tx) > 0
    return last["old"] and last["changes"] != changes(tx)


def purge(db: Database, store: Blobs, data_dir: Path, *, gently: bool = False) -> Purged:
    """Remove for good what was deleted before the call; the service may run meanwhile.

    `data_dir` says whether the server is our own, whose log and settings are ours to change.
    `gently`: what would lock a table for long is left. No receipt is complete then, nor while the
    store keeps a file of a deleted document.
    Raises Transient when another purge runs or an old transaction does not end, Unavailable.
    """
    began = time.monotonic()
    with _session(db) as session, _keeper(db, session, data_dir) as keeper:
        left: list[str] = []
        for one in {session, keeper}:
            one.add_notice_handler(partial(_heed, left))
        _sweep(db)
        documents.fold_counts(db)  # the names of tags that are gone stay in differences else
        id, held = _begin(session)
        files = _remove_doomed(db, store)
        if files.kept:
            left.append(
                "files of deleted documents that the store does not let go"
                f" ({len(files.kept)}), say because they are locked; the log says why"
            )
        strays = _strays(db, store)
        # Of a purge that was cut off.
        patiently(session, sql.SQL("drop schema if exists purging cascade").format(), "purging")
        await_older(keeper)
        found = tables_to_rewrite(session)
        if any(one.apart for one in found):
            left.append(
                "the workers of Citus, whose write-ahead logs and planner's statistics may quote"
                " what was deleted until they are written over: run `checkpoint` and `analyze` on"
                " each, and let go of archived logs"
            )
        large = [one for one in found if gently and not one.movable and one.bytes > SOON]
        tables = [rewrite_table(session, table) for table in found if table not in large]
        for table in large:
            session.execute(sql.SQL("vacuum {}").format(table.identifier))
            left.append(
                f"{table.name}, which is large and could not be used while it is rewritten: run"
                " `recollect purge --now` when that is fine"
            )
        # Only now: an upload that merely looked old has its document by this time.
        swept = delete_strays(db, store, strays)
        renew_statistics(session, keeper, left)
        server = server_folder(keeper, data_dir)
        abandoned = 0
        if server is not None:
            silence(keeper)
            scrub(server.parent / "server.log")
            flush_notices(keeper, left)
        renew_wal(keeper, ours=server is not None, left=left)
        if server is not None:
            abandoned = remove_abandoned(keeper, server)
        whole = not large and not files.kept
        done = Purged(
            id=id,
            seconds=round(time.monotonic() - began, 3),
            tables=tables,
            files=len(files.gone) + len(swept.gone),
            abandoned=abandoned,
            receipts=held if whole else 0,
            left=list(dict.fromkeys(left)),
        )
        session.execute(
            "with done as (update purges set finished_at = now(), changes = %(changes)s,"
            "  report = %(report)s where id = %(id)s returning id)"
            " update receipts set purged_at = now() where purge_id = (select id from done)"
            " and purged_at is null and %(whole)s",
            {
                "id": id,
                "changes": changes(session),
                "report": Jsonb(asdict(done)),
                "whole": whole,
            },
        )
    LOG.info(
        "purged",
        seconds=done.seconds,
        files=done.files,
        receipts=done.receipts,
        locked=max((table.locked for table in tables), default=0.0),
        left=len(done.left),
    )
    return done


class Purger:
    """Purges at the interval of the settings until `stop` is called; one of all processes does."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._stop = threading.Event()

    def stop(self) -> None:
        """Ask it to end; a purge under way is finished first. Safe in a signal handler."""
        self._stop.set()

    def run(self) -> None:
        """Until stopped; what goes wrong is logged and tried again at the next look."""
        app, interval = self._app, self._app.config.purge_interval
        while interval > timedelta() and not self._stop.is_set():
            with enduring(LOG):
                with app.db.begin() as tx:
                    wanted = due(tx, interval)
                if wanted:
                    done = purge(app.db, app.blobs, app.config.data_dir, gently=True)
                    for told in done.left:
                        LOG.warning("not purged", what=told)
            self._stop.wait(LOOK.total_seconds())


# --- the order of events -------------------------------------------------------------------------


@contextmanager
def _session(db: Database) -> Generator[Tx]:
    """A connection without transactions, the only one that purges now."""
    with _connected(db.url) as session:
        alone = one_row(
            session,
            "select pg_try_advisory_lock(hashtextextended('recollect.purge', 0)) as ours",
        )
        if not alone["ours"]:
            raise Transient("another purge is under way", code="purge_running")
        yield session
        session.execute("select pg_advisory_unlock_all()")  # the server ends a session later


@contextmanager
def _keeper(db: Database, session: Tx, data_dir: Path) -> Generator[Tx]:
    """Who may tend the server: the superuser, if it is our own. On another one, the service."""
    url = superuser_url(db.url, data_dir)
    if url is None:
        yield session
        return
    with _connected(url, options=ONLY_CATALOG) as keeper:
        yield keeper


@contextmanager
def _connected(url: str, **more: Any) -> Generator[Tx]:
    lock_timeout = str(int(LOCK_WAIT.total_seconds() * 1000))
    with (
        judging(),
        connect(
            Tx,
            url,
            {"maintenance_work_mem": "256MB", "lock_timeout": lock_timeout},
            row_factory=dict_row,
            application_name="recollect purge",
            **more,
        ) as session,
    ):
        yield session


def _begin(session: Tx) -> tuple[str, int]:
    """The purge's id, and how many deletions it will complete: those that it sees."""
    id = random_id()
    session.execute("insert into purges (id) values (%s)", (id,))
    held = session.execute("update receipts set purge_id = %s where purged_at is null", (id,))
    # The history of a year; what a purge says holds no content.
    session.execute("delete from purges where started_at < now() - interval '1 year'")
    return id, held.rowcount


def _sweep(db: Database) -> None:
    """What is gone by a large deletion has to be deleted first."""
    left = True
    while left:
        with db.begin() as tx:
            left = documents.sweep(tx) > 0


def _remove_doomed(db: Database, store: Blobs) -> FileDeletion:
    done = delete_doomed(db, store)
    if done.held:
        raise Transient("a backup copies files; purge again when it is complete")
    return done


def _strays(db: Database, store: Blobs) -> list[str]:
    """Keys of files that are old, as clocks say, and that no document names."""
    keys, found = list(store.older_than(SWEPT)), list[str]()
    for start in range(0, len(keys), 500):
        some = keys[start : start + 500]
        with db.begin() as tx:
            known = documents.known_blobs(tx, some)
        found += [key for key in some if key not in known]
    return found


def _heed(left: list[str], notice: psycopg.errors.Diagnostic) -> None:
    """Tables that are not ours to purge come as a warning, not as an error."""
    if notice.severity_nonlocalized == "WARNING" and notice.message_primary:
        left.append(notice.message_primary)
