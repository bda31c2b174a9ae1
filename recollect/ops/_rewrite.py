"""Tables written again without what was deleted from them."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import psycopg
from psycopg import sql

from recollect.db import Tx, citus
from recollect.errors import Transient

LARGE = 64 << 20
"""Bytes from which a table is written again beside the service, if nothing refers to it."""
SOON = 256 << 20
"""Bytes up to which a table that others refer to is written again without being asked for: it is
locked for as long as that takes, some fifteen seconds."""
PATIENCE = timedelta(minutes=5)
"""How long transactions that are older than the purge, and locks, are waited for."""
LOCK_WAIT = timedelta(seconds=2)
"""How long a table's queue of statements is held up by waiting for its lock, before a pause."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """One table written again; sizes in bytes with its indexes, times in seconds."""

    table: str
    before: int
    after: int
    seconds: float
    locked: float
    """how long nobody could read or write it"""


def await_older(session: Tx) -> None:
    """Wait until no transaction is left that began before now."""
    now = one_row(session, "select pg_current_xact_id()::xid::text as xid")["xid"]
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


@dataclass(frozen=True, slots=True)
class _Table:
    oid: int
    schema: str
    name: str
    bytes: int
    options: str
    movable: bool
    """has a primary key, and nothing hangs on it but its own references"""
    apart: bool
    """lies on the workers of Citus"""

    @property
    def identifier(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.name)


def tables_to_rewrite(session: Tx) -> list[_Table]:
    """The service's tables, the small ones first."""
    spread = citus.is_spread(session)
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
    found: list[_Table] = []
    for row in rows.fetchall():
        apart = spread and row["name"] in citus.DISTRIBUTED
        found.append(
            _Table(
                oid=row["oid"],
                schema=row["schema"],
                name=row["name"],
                bytes=_bytes(session, row["name"], apart) if apart else row["bytes"],
                options=row["options"] if row["options"] != "with ()" else "",
                movable=row["movable"] and not apart,
                apart=apart,
            )
        )
    return found


def _bytes(session: Tx, name: str, apart: bool) -> int:
    """With its indexes, on all servers that have some of it."""
    function = "citus_total_relation_size" if apart else "pg_total_relation_size"
    return one_row(session, f"select {function}(%s::regclass) as bytes", (name,))["bytes"]


def rewrite_table(session: Tx, table: _Table) -> Rewritten:
    began = time.monotonic()
    if table.movable and table.bytes >= LARGE:
        locked = _beside(session, table)
    else:
        locked = patiently(
            session, sql.SQL("vacuum (full) {}").format(table.identifier), table.name
        )
    return Rewritten(
        table=table.name,
        before=table.bytes,
        after=_bytes(session, table.name, table.apart),
        seconds=round(time.monotonic() - began, 3),
        locked=round(locked, 3),
    )


def patiently(session: Tx, statement: sql.Composed, name: str) -> float:
    """Run what needs a table for itself; returns the seconds that it took.

    Whoever comes after us waits behind us for those who came before: so only for a moment at a
    time.
    """
    return insisting(lambda: session.execute(statement), name)


def insisting(work: Callable[[], object], name: str) -> float:
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
                        options=verbatim(table.options),
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
                        verbatim(reference.definition),
                    )
                )
            session.execute("drop schema purging cascade")

    insisting(prepare, table.name)
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
    locked = insisting(exchange, table.name)
    for reference in foreign:
        session.execute(
            sql.SQL("alter table {} validate constraint {}").format(
                table.identifier, sql.Identifier(reference.name)
            )
        )
    return locked


def _catch_up(session: Tx, table: _Table, key: Sequence[sql.Identifier]) -> bool:
    """Bring the copy up to date with some of what was noted; whether there was any."""
    last = one_row(
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
            fresh, sql.Identifier(row["name"]), verbatim(row["definition"])
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
        sql.Composed([verbatim(_moved(row["definition"], table, fresh.as_string(session)))])
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


_PAUSE = threading.Event()


def wait_until(holds: Callable[[], bool], timeout: timedelta) -> bool:
    """Ask until it holds or the time is over."""
    end = time.monotonic() + timeout.total_seconds()
    while not holds():
        if time.monotonic() > end:
            return False
        _PAUSE.wait(0.05)
    return True


def changes(session: Tx) -> int:
    """Rows that held content and were deleted, since the server began to count.

    What an edit of the text replaces is among them, as chunks; a change of mere metadata is not.
    """
    here = one_row(
        session,
        "select coalesce(sum(n_tup_del), 0)::bigint as n from pg_stat_user_tables"
        " where schemaname = current_schema()"
        " and relname in ('documents', 'chunks', 'entries', 'memories', 'versions')",
    )["n"]
    return here + (citus.deleted_rows(session) if citus.is_spread(session) else 0)


def one_row(session: Tx, statement: str, parameters: object = None) -> Mapping[str, Any]:
    row = session.execute(cast("Any", statement), cast("Any", parameters)).fetchone()
    assert row is not None
    return row


def verbatim(text: str) -> sql.SQL:
    """What the catalogue says, as SQL."""
    return sql.SQL(cast("Any", text))
