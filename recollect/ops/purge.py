"""Purge: what was deleted goes from the disk, too.

PostgreSQL only marks deleted rows, and its vacuum only lets their space be used again; the bytes
stay in pages, in the statistics of its planner, in the write-ahead log. So a purge writes every
table anew with the rows that live, and then lets go of everything that was written before:

1. files of deleted documents, from the blob store;
2. tables with their indexes: small ones by `vacuum full`, which locks them for as long as it
   takes, large ones beside the service (`_beside`), which locks them for a moment;
3. the planner's statistics, which quote frequent values;
4. the queue of notices, the write-ahead log, and the server's messages, which quote statements.

Rows that a transaction older than the purge may still see would be kept; it waits for those to end.
"""

import re
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import psycopg
from psycopg import sql
from psycopg.rows import DictRow, dict_row
from psycopg.types.json import Jsonb

from recollect import documents, log
from recollect.app import App
from recollect.blobs import Blobs
from recollect.db import Database, Tx
from recollect.db.embedded import ONLY_CATALOG, superuser_url
from recollect.db.faults import judging
from recollect.errors import Transient
from recollect.loop import enduring
from recollect.model import random_id

LOG = log.get("purge")
LARGE = 64 << 20
"""Bytes from which a table is written anew beside the service, if nothing refers to it."""
SOON = 256 << 20
"""Bytes up to which a table that others refer to is written anew without being asked for: it is
locked for as long as that takes, some fifteen seconds."""
PATIENCE = timedelta(minutes=5)
"""How long transactions that are older than the purge, and locks, are waited for."""
LOCK_WAIT = timedelta(seconds=2)
"""How long a table's queue of statements is held up by waiting for its lock, before a pause."""
SWEPT = timedelta(days=1)
"""Age from which a file that no document names was an upload that was cut off."""
LOOK = timedelta(minutes=10)
"""Between two looks whether a purge is due."""
NOTICES = 80
"""That fill more than two segments (of 32 pages) of the queue of notices, a page each."""
# A message of the server about itself; errors and warnings, and what follows on lines of its own,
# may quote content.
_HARMLESS = re.compile(rb"^[^\n]{0,60}\] (?:LOG|FATAL|PANIC):  ")
_STORAGE = re.compile(r"(\d+)(?:_fsm|_vm|_init)?(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class Rewritten:
    """One table written anew; sizes in bytes with its indexes, times in seconds."""

    table: str
    before: int
    after: int
    seconds: float
    locked: float
    """how long nobody could read or write it"""


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
    """One deletion. `documents`, `chunks`, `files` are counts; `key`: of whoever asked."""

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
    rows = tx.execute(
        "select r.*, array(select encode(d.document, 'hex') from receipt_documents d"
        "  where d.receipt_id = r.id order by 1) as hashes"
        " from receipts r where r.id = %(id)s or r.id in (select receipt_id"
        "  from receipt_documents where document = sha256(convert_to(%(id)s, 'UTF8')))"
        " order by r.deleted_at",
        {"id": id},
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
        return first is not None and first["old"] and _changes(tx) > 0
    return last["old"] and last["changes"] != _changes(tx)


def purge(db: Database, store: Blobs, data_dir: Path, *, gently: bool = False) -> Purged:
    """Remove for good what was deleted before the call; the service may run meanwhile.

    `data_dir` tells whether the server is our own, whose log and settings are ours to change.
    `gently`: what would lock a table for long is left, and no receipt is complete then.
    Raises Transient when another purge runs or an old transaction does not end, Unavailable.
    """
    began = time.monotonic()
    with _session(db) as session, _keeper(db, session, data_dir) as keeper:
        left: list[str] = []
        for one in {session, keeper}:
            one.add_notice_handler(partial(_heed, left))
        _sweep(db)
        id, held = _begin(session)
        files = _remove_doomed(db, store)
        strays = _strays(db, store)
        # Of a purge that was cut off.
        _patiently(session, sql.SQL("drop schema if exists purging cascade").format(), "purging")
        _await_older(keeper)
        found = _tables(session)
        large = [one for one in found if gently and not one.movable and one.bytes > SOON]
        tables = [_rewrite(session, table) for table in found if table not in large]
        for table in large:
            session.execute(sql.SQL("vacuum {}").format(table.identifier))
            left.append(
                f"{table.name}, which is large: nobody could use it while it is written anew; run"
                " `recollect purge --now` when that is fine"
            )
        # Only now: an upload that merely looked old has its document by this time.
        files += _remove_strays(db, store, strays)
        _renew_statistics(session, keeper, left)
        server = _server(keeper, data_dir)
        abandoned = 0
        if server is not None:
            _silence(keeper)
            _scrub(server.parent / "server.log")
            _flush_notices(keeper, left)
        _renew_wal(keeper, ours=server is not None, left=left)
        if server is not None:
            abandoned = _remove_abandoned(keeper, server)
        done = Purged(
            id=id,
            seconds=round(time.monotonic() - began, 3),
            tables=tables,
            files=files,
            abandoned=abandoned,
            receipts=0 if large else held,
            left=list(dict.fromkeys(left)),
        )
        session.execute(
            "with done as (update purges set finished_at = now(), changes = %(changes)s,"
            "  report = %(report)s where id = %(id)s returning id)"
            " update receipts set purged_at = now() where purge_id = (select id from done)"
            " and purged_at is null and %(whole)s",
            {
                "id": id,
                "changes": _changes(session),
                "report": Jsonb(asdict(done)),
                "whole": not large,
            },
        )
    LOG.info(
        "purged",
        seconds=done.seconds,
        files=files,
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
        alone = _one(
            session,
            "select pg_try_advisory_lock(hashtextextended('recollect.purge', 0)) as ours",
        )
        if not alone["ours"]:
            raise Transient("another purge is under way", code="purge_running")
        yield session


@contextmanager
def _keeper(db: Database, session: Tx, data_dir: Path) -> Generator[Tx]:
    """Who may tend the server: the superuser, if it is our own. On another one, the service."""
    url = superuser_url(db.url, data_dir)
    if url is None:
        yield session
        return
    with _connected(url, ONLY_CATALOG) as keeper:
        yield keeper


@contextmanager
def _connected(url: str, more: str = "") -> Generator[Tx]:
    with (
        judging(),
        psycopg.Connection[DictRow].connect(
            url,
            autocommit=True,
            row_factory=dict_row,
            connect_timeout=10,
            application_name="recollect purge",
            options=(
                "-c timezone=UTC -c statement_timeout=0 -c maintenance_work_mem=256MB"
                f" -c lock_timeout={int(LOCK_WAIT.total_seconds() * 1000)} {more}"
            ),
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


def _remove_doomed(db: Database, store: Blobs) -> int:
    removed = 0
    while True:
        with db.begin() as tx:
            if not documents.blobs_may_go(tx):
                raise Transient("a backup copies files; purge again when it is complete")
            doomed = documents.doomed_blobs(tx)
        for key in doomed:
            store.delete(key)
        if not doomed:
            return removed
        with db.begin() as tx:
            documents.forget_blobs(tx, doomed)
        removed += len(doomed)


def _strays(db: Database, store: Blobs) -> list[str]:
    """Keys of files that are old, as clocks say, and that no document names."""
    keys, found = list(store.older_than(SWEPT)), list[str]()
    for start in range(0, len(keys), 500):
        some = keys[start : start + 500]
        with db.begin() as tx:
            known = documents.known_blobs(tx, some)
        found += [key for key in some if key not in known]
    return found


def _remove_strays(db: Database, store: Blobs, keys: Sequence[str]) -> int:
    removed = 0
    for start in range(0, len(keys), 500):
        with db.begin() as tx:
            strays = documents.disown_blobs(tx, keys[start : start + 500])
        for key in strays:
            store.delete(key)
        removed += len(strays)
    return removed


def _heed(left: list[str], notice: psycopg.errors.Diagnostic) -> None:
    """Tables that are not ours to purge come as a warning, not as an error."""
    if notice.severity_nonlocalized == "WARNING" and notice.message_primary:
        left.append(notice.message_primary)


def _await_older(session: Tx) -> None:
    """Wait until no transaction is left that began before now."""
    now = _one(session, "select pg_current_xact_id()::xid::text as xid")["xid"]
    end = time.monotonic() + PATIENCE.total_seconds()
    while True:
        older = session.execute(
            "select pid, backend_type, now() - xact_start as age from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
            " and greatest(age(backend_xmin), age(backend_xid)) > age(%s::xid)"
            " order by xact_start limit 1",
            (now,),
        ).fetchone()
        if older is None:
            return
        if time.monotonic() > end:
            raise Transient(
                f"a transaction of {older['backend_type']} {older['pid']} is open for"
                f" {older['age']} and may still read what was deleted; end it and purge again"
            )
        _PAUSE.wait(0.1)


# --- tables --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Table:
    oid: int
    schema: str
    name: str
    bytes: int
    options: str
    movable: bool
    """has a primary key, and nothing hangs on it but its own references"""

    @property
    def identifier(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.name)


def _tables(session: Tx) -> list[_Table]:
    """The service's tables, the small ones first."""
    rows = session.execute(
        "select c.oid, n.nspname as schema, c.relname as name,"
        " pg_total_relation_size(c.oid) as bytes,"
        " coalesce(format('with (%s)', array_to_string(c.reloptions, ', ')), '') as options,"
        " not c.relispartition and c.relpersistence = 'p'"
        " and exists (select from pg_constraint k where k.conrelid = c.oid and k.contype = 'p')"
        " and not exists (select from pg_constraint k where k.confrelid = c.oid)"
        " and not exists (select from pg_trigger t where t.tgrelid = c.oid and not t.tgisinternal)"
        " and not exists (select from pg_depend p where p.refobjid = c.oid"
        "  and p.classid = 'pg_rewrite'::regclass)"
        " and not exists (select from pg_depend p where p.refobjid = c.reltype"
        "  and p.classid = 'pg_proc'::regclass)"
        " and not exists (select from pg_attribute a where a.attrelid = c.oid and a.attnum > 0"
        "  and (a.attgenerated <> '' or a.attidentity <> '')) as movable"
        " from pg_class c join pg_namespace n on n.oid = c.relnamespace"
        " where c.relkind = 'r' and c.relpersistence <> 't' and n.nspname = current_schema()"
        " order by bytes, c.relname"
    )
    return [
        _Table(
            oid=row["oid"],
            schema=row["schema"],
            name=row["name"],
            bytes=row["bytes"],
            options=row["options"] if row["options"] != "with ()" else "",
            movable=row["movable"],
        )
        for row in rows.fetchall()
    ]


def _rewrite(session: Tx, table: _Table) -> Rewritten:
    began = time.monotonic()
    if table.movable and table.bytes >= LARGE:
        locked = _beside(session, table)
    else:
        locked = _patiently(
            session, sql.SQL("vacuum (full) {}").format(table.identifier), table.name
        )
    size = _one(session, "select pg_total_relation_size(%s::regclass) as bytes", (table.name,))
    return Rewritten(
        table=table.name,
        before=table.bytes,
        after=size["bytes"],
        seconds=round(time.monotonic() - began, 3),
        locked=round(locked, 3),
    )


def _patiently(session: Tx, statement: sql.Composed, name: str) -> float:
    """Run what needs a table for itself; returns the seconds that it took.

    Whoever comes after us waits behind us for those who came before: so only for a moment at a
    time.
    """
    return _insisting(lambda: session.execute(statement), name)


def _insisting(work: Callable[[], object], name: str) -> float:
    end = time.monotonic() + PATIENCE.total_seconds()
    while True:
        began = time.monotonic()
        try:
            work()
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
            if time.monotonic() > end:
                raise Transient(f"the table {name} was in use all the time; purge again") from error
            _PAUSE.wait(0.5)
        else:
            return time.monotonic() - began


_NOTE = """
create function purging.note() returns trigger language plpgsql as $$
begin
  if tg_op <> 'INSERT' then
    insert into purging.changed ({key}) values ({old});
  end if;
  if tg_op <> 'DELETE' then
    insert into purging.changed ({key}) values ({new});
  end if;
  return null;
end $$
"""


def _beside(session: Tx, table: _Table) -> float:
    """Copy a table into another one, note meanwhile what changes, and let them change places.

    Its indexes are built on the copy. Returns for how many seconds the table was locked.
    """
    columns = _key(session, table)
    fresh = sql.Identifier("purging", table.name)
    key = sql.SQL(", ").join(columns)
    foreign, definitions = _hangers_on(session, table)

    def prepare() -> None:
        with session.transaction():
            session.execute("create schema purging")
            for statement in (
                sql.SQL("create table purging.changed as select {key} from {table} with no data"),
                sql.SQL("alter table purging.changed add n bigint generated always as identity"),
                sql.SQL("create index on purging.changed (n)"),
                sql.SQL(
                    "create table {fresh} (like {table} including all excluding indexes) {options}"
                ),
                sql.SQL(_NOTE),
                sql.SQL(
                    "create trigger purging after insert or update or delete on {table}"
                    " for each row execute function purging.note()"
                ),
            ):
                session.execute(
                    statement.format(
                        key=key,
                        table=table.identifier,
                        fresh=fresh,
                        options=_verbatim(table.options),
                        old=sql.SQL(", ").join(sql.SQL("old.{}").format(one) for one in columns),
                        new=sql.SQL(", ").join(sql.SQL("new.{}").format(one) for one in columns),
                    )
                )

    def exchange() -> None:
        with session.transaction():
            # Whoever changes a document locks its row first, then its entries: so do we. Where
            # somebody does not, we give up before the server looks for deadlocks (a second after
            # they began to wait, which is once we asked for the first lock) and finds them.
            _let_wait(session, 900 // (len(foreign) + 1))
            # To drop a reference takes the other table, too, for a moment.
            for one in [*sorted({reference.refers_to for reference in foreign}), table.name]:
                session.execute(
                    sql.SQL("lock table {} in access exclusive mode").format(
                        sql.Identifier(table.schema, one)
                    )
                )
            while _catch_up(session, table, columns):
                pass
            session.execute(sql.SQL("drop table {}").format(table.identifier))
            session.execute(
                sql.SQL("alter table {} set schema {}").format(fresh, sql.Identifier(table.schema))
            )
            for reference in foreign:
                session.execute(
                    sql.SQL("alter table {} add constraint {} {} not valid").format(
                        table.identifier,
                        sql.Identifier(reference.name),
                        _verbatim(reference.definition),
                    )
                )
            session.execute("drop schema purging cascade")

    _insisting(prepare, table.name)
    session.execute(sql.SQL("insert into {} select * from {}").format(fresh, table.identifier))
    for definition in definitions:
        session.execute(definition)
    session.execute(sql.SQL("analyze {}").format(fresh))
    more = True
    while more:
        with session.transaction():
            # One snapshot: a change that it does not see is noted in a row that it does not see.
            session.execute("set transaction isolation level repeatable read")
            more = _catch_up(session, table, columns)
    locked = _insisting(exchange, table.name)
    for reference in foreign:
        session.execute(
            sql.SQL("alter table {} validate constraint {}").format(
                table.identifier, sql.Identifier(reference.name)
            )
        )
    return locked


def _catch_up(session: Tx, table: _Table, key: Sequence[sql.Identifier]) -> bool:
    """Bring the copy up to date with some of what was noted; whether there was any."""
    last = _one(
        session,
        "select max(n) as n from (select n from purging.changed order by n limit 5000) as first",
    )["n"]
    if last is None:
        return False
    parts = {
        "fresh": sql.Identifier("purging", table.name),
        "table": table.identifier,
        "key": sql.SQL(", ").join(key),
        "same": sql.SQL(" and ").join(sql.SQL("t.{0} = c.{0}").format(one) for one in key),
    }
    for statement in (
        sql.SQL("delete from {fresh} t using purging.changed c where c.n <= %(last)s and {same}"),
        sql.SQL(
            "insert into {fresh} select t.* from {table} t"
            " join (select distinct {key} from purging.changed where n <= %(last)s) c on {same}"
        ),
        sql.SQL("delete from purging.changed where n <= %(last)s"),
    ):
        session.execute(statement.format(**parts), {"last": last})
    return True


@dataclass(frozen=True, slots=True)
class _Reference:
    name: str
    definition: str
    refers_to: str


def _hangers_on(session: Tx, table: _Table) -> tuple[list[_Reference], list[sql.Composed]]:
    """References to other tables, and statements that make its keys and indexes on the copy."""
    fresh = sql.Identifier("purging", table.name)
    rows = session.execute(
        "select k.conname as name, k.contype as kind, pg_get_constraintdef(k.oid) as definition,"
        " c.relname as refers_to from pg_constraint k left join pg_class c on c.oid = k.confrelid"
        " where k.conrelid = %s and k.contype in ('p', 'u', 'f') order by k.conname",
        (table.oid,),
    ).fetchall()
    keys = [
        sql.SQL("alter table {} add constraint {} {}").format(
            fresh, sql.Identifier(row["name"]), _verbatim(row["definition"])
        )
        for row in rows
        if row["kind"] != "f"
    ]
    definitions = session.execute(
        "select pg_get_indexdef(i.indexrelid) as definition from pg_index i"
        " where i.indrelid = %s and i.indisvalid and not exists (select from pg_constraint k"
        "  where k.conindid = i.indexrelid and k.contype in ('p', 'u', 'x'))",
        (table.oid,),
    ).fetchall()
    indexes = [
        sql.Composed([_verbatim(_moved(row["definition"], table, fresh.as_string(session)))])
        for row in definitions
    ]
    references = [
        _Reference(row["name"], row["definition"], row["refers_to"])
        for row in rows
        if row["kind"] == "f"
    ]
    return references, [*keys, *indexes]


def _moved(definition: str, table: _Table, there: str) -> str:
    """`create index … on public.entries …`, on the other table."""
    before, found, after = definition.partition(f" ON {table.schema}.{table.name} ")
    if not found:
        raise Transient(f"cannot build this index on a copy: {definition}")
    return f"{before} ON {there} {after}"


def _let_wait(session: Tx, milliseconds: int) -> None:
    """How long the statements of this transaction wait for each lock."""
    session.execute("select set_config('lock_timeout', %s, true)", (f"{milliseconds}ms",))


def _key(session: Tx, table: _Table) -> list[sql.Identifier]:
    rows = session.execute(
        "select a.attname as name from pg_index i join pg_attribute a on a.attrelid = i.indrelid"
        " and a.attnum = any(i.indkey::int2[]) where i.indrelid = %s and i.indisprimary"
        " order by array_position(i.indkey::int2[], a.attnum)",
        (table.oid,),
    )
    return [sql.Identifier(row["name"]) for row in rows.fetchall()]


# --- what the server keeps elsewhere -------------------------------------------------------------


def _renew_statistics(session: Tx, keeper: Tx, left: list[str]) -> None:
    """Forget frequent values, also of columns that are empty now, which `analyze` passes over."""
    found = _one(
        session,
        "select current_setting('server_version_num')::int as version, rolsuper"
        " from pg_roles where rolname = current_user",
    )
    tables = sql.SQL(", ").join(table.identifier for table in _tables(session))

    def renew() -> None:
        with session.transaction():
            if found["version"] >= 180000:
                session.execute(
                    "select count(pg_clear_attribute_stats("
                    "schemaname, tablename, attname, inherited))"
                    " from pg_stats where schemaname = current_schema()"
                )
            elif found["rolsuper"]:
                session.execute(
                    "delete from pg_statistic s using pg_class c where c.oid = s.starelid"
                    " and c.relnamespace = current_schema()::regnamespace"
                )
            else:
                left.append("statistics of columns that are empty now: the server's superuser")
            session.execute(sql.SQL("analyze {}").format(tables))

    _insisting(renew, "pg_statistic")
    _await_older(keeper)
    _patiently(keeper, sql.SQL("vacuum (full) pg_catalog.pg_statistic").format(), "pg_statistic")


def _server(session: Tx, data_dir: Path) -> Path | None:
    """The folder of our own server's data, None if it is somebody else's."""
    ours = data_dir.absolute() / "postgres" / "data"
    try:
        shown = _one(session, "select current_setting('data_directory', true) as folder")["folder"]
    except psycopg.errors.InsufficientPrivilege:
        return None
    return ours if shown is not None and Path(shown).resolve() == ours.resolve() else None


def _silence(session: Tx) -> None:
    """Let the server's log say what went wrong, but not quote statements and values.

    And let it remove parts of the write-ahead log rather than use their files again, with what
    they hold.
    """
    for setting in (
        "log_error_verbosity = terse",
        "log_min_error_statement = panic",
        "log_parameter_max_length = 0",
        "log_parameter_max_length_on_error = 0",
        "wal_recycle = off",
    ):
        session.execute(sql.SQL("alter system set {}").format(_verbatim(setting)))
    session.execute("select pg_reload_conf()")
    _until(
        lambda: _one(session, "select current_setting('wal_recycle') as now")["now"] == "off",
        timedelta(seconds=10),
    )


def _scrub(messages: Path) -> None:
    """Keep of the server's log what cannot quote content. The server appends; so may we rewrite."""
    try:
        with messages.open("r+b") as file:
            kept = [line for line in file if _HARMLESS.match(line)]
            file.seek(0)
            file.truncate()
            file.writelines(kept)
    except FileNotFoundError:
        return


def _flush_notices(session: Tx, left: list[str]) -> None:
    """Notices name tags; their queue lets go of a segment once later ones are full and heard."""

    def segments() -> set[str]:
        rows = session.execute("select pg_ls_dir('pg_notify') as name").fetchall()
        return {row["name"] for row in rows}

    before = segments()
    session.execute(
        "select pg_notify('recollect_purge', rpad(n::text, 7900, '.'))"
        " from generate_series(1, %s) as n",
        (NOTICES,),
    )

    def gone() -> bool:
        session.execute(
            "select pg_notify('recollect_purge', rpad(n::text, 7900, '.'))"
            " from generate_series(1, 8) as n"
        )
        return not before & segments()

    if not _until(gone, timedelta(seconds=20)):
        left.append("notices that a session has not heard yet: restart the service")


def _renew_wal(session: Tx, *, ours: bool, left: list[str]) -> None:
    """Begin a new part of the write-ahead log, and let the server remove the earlier ones."""
    try:
        session.execute("checkpoint")
        parts = _wal_parts(session)
        mark = _wal_part(session)
        # Files that wait to be used again hold what they held; each is filled by being ended.
        again = max([name for name in parts if name > mark], default=mark) if ours else mark
        while _wal_part(session) <= again:
            session.execute("select pg_logical_emit_message(false, 'recollect', 'purge')")
            session.execute("select pg_switch_wal()")
            session.execute("select pg_logical_emit_message(false, 'recollect', 'purge')")
        session.execute("checkpoint")
        if ours and min(_wal_parts(session)) <= mark:
            left.append("write-ahead log that a replication slot or an archive still wants")
    except psycopg.errors.InsufficientPrivilege:
        left.append("the write-ahead log: whoever runs the database server")
    else:
        if not ours:
            left.append(
                "write-ahead log whose files are used again, archives, replicas, and the log of the"
                " database server: whoever runs it"
            )


def _wal_part(session: Tx) -> str:
    return _one(session, "select pg_walfile_name(pg_current_wal_insert_lsn()) as name")["name"]


def _wal_parts(session: Tx) -> list[str]:
    rows = session.execute("select name from pg_ls_waldir() where name ~ '^[0-9A-F]{24}$'")
    return [row["name"] for row in rows.fetchall()]


def _remove_abandoned(session: Tx, server: Path) -> int:
    """Remove files of tables that a crash left half-made: the catalogue does not know them.

    One that is younger than a transaction under way may be that one's own; so may one that only
    looks older, by a clock that was set back. So those are waited for that may have made it.
    """
    oid = _one(
        session, "select oid::text as oid from pg_database where datname = current_database()"
    )["oid"]
    folder = server / "base" / oid
    found: dict[Path, float] = {}
    for path in folder.iterdir():
        if _STORAGE.fullmatch(path.name):
            try:
                found[path] = path.stat().st_mtime
            except FileNotFoundError:
                continue
    oldest = _one(
        session,
        "select extract(epoch from coalesce(min(xact_start), now()))::float8 as at"
        " from pg_stat_activity where pid <> pg_backend_pid()",
    )["at"]
    under_way = _under_way(session)
    if not _until(lambda: not under_way & _under_way(session), PATIENCE):
        return 0
    # Asked after those ended: what they made is known or gone, and what is newer not in the list.
    rows = session.execute("select pg_relation_filenode(oid)::text as node from pg_class")
    known = {row["node"] for row in rows.fetchall()}
    removed = 0
    for path, changed in found.items():
        match = _STORAGE.fullmatch(path.name)
        if match is not None and match[1] not in known and changed < oldest - 60:
            path.unlink(missing_ok=True)
            removed += 1
    return removed


def _under_way(session: Tx) -> set[str]:
    """The transactions of this database but our own, by what each of them alone is called."""
    rows = session.execute(
        "select l.virtualtransaction as id from pg_locks l join pg_stat_activity a using (pid)"
        " where l.locktype = 'virtualxid' and l.virtualxid = l.virtualtransaction"
        " and a.datname = current_database() and l.pid <> pg_backend_pid()"
    )
    return {row["id"] for row in rows}


# --- small things --------------------------------------------------------------------------------


_PAUSE = threading.Event()


def _until(holds: Callable[[], bool], timeout: timedelta) -> bool:
    """Ask until it holds or the time is over."""
    end = time.monotonic() + timeout.total_seconds()
    while not holds():
        if time.monotonic() > end:
            return False
        _PAUSE.wait(0.05)
    return True


def _changes(session: Tx) -> int:
    """Rows that held content and were deleted, since the server began to count.

    What an edit of the text replaces is among them, as chunks; a change of mere metadata is not.
    """
    return _one(
        session,
        "select coalesce(sum(n_tup_del), 0)::bigint as n from pg_stat_user_tables"
        " where schemaname = current_schema()"
        " and relname in ('documents', 'chunks', 'entries', 'memories')",
    )["n"]


def _one(session: Tx, statement: str, parameters: object = None) -> Mapping[str, Any]:
    row = session.execute(cast("Any", statement), cast("Any", parameters)).fetchone()
    assert row is not None
    return row


def _verbatim(text: str) -> sql.SQL:
    """What the catalogue says, as SQL."""
    return sql.SQL(cast("Any", text))
