"""What a database holds, read from its own catalogue, so that no list has to be kept by hand.

What belongs to extensions is left out, and so is the content of unlogged tables: a crash would
empty them, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import LiteralString, cast

from psycopg import sql

from recollect.db import Tx, citus
from recollect.ops.backup._archive import Column
from recollect.ops.backup._archive import Sequence as Counter

_OURS = (
    "{0}.relnamespace = quote_ident(current_schema())::regnamespace"
    " and not exists (select from pg_depend x"
    " where x.classid = 'pg_class'::regclass and x.objid = {0}.oid and x.deptype = 'e')"
)


@dataclass(frozen=True, slots=True)
class Shape:
    """A table and its columns, without those that are computed."""

    name: str
    columns: Sequence[Column]


def shapes(tx: Tx) -> list[Shape]:
    """All tables whose rows are worth keeping, by name; not those that `citus.spread` makes."""
    rows = tx.execute(
        sql.SQL(
            "select c.relname as name, array_agg(a.attname::text order by a.attnum) as columns,"
            " array_agg(format_type(a.atttypid, a.atttypmod) order by a.attnum) as types"
            " from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0"
            "  and not a.attisdropped and a.attgenerated = ''"
            " where c.relkind in ('r', 'p') and not c.relispartition and c.relpersistence = 'p'"
            "  and c.relname <> all(%s) and {ours} group by c.relname order by c.relname"
        ).format(ours=sql.SQL(_OURS.format("c"))),
        (list(citus.MADE),),
    ).fetchall()
    return [
        Shape(
            row["name"], [Column(*pair) for pair in zip(row["columns"], row["types"], strict=True)]
        )
        for row in rows
    ]


def lock(tx: Tx, names: Sequence[str]) -> None:
    """Against changes of the tables themselves; whoever reads or writes rows is not disturbed."""
    tables = sql.SQL(", ").join(map(sql.Identifier, names))
    tx.execute(sql.SQL("lock table {} in access share mode").format(tables))


def counters(tx: Tx) -> list[Counter]:
    """All sequences, as they stand now: they know no snapshot, and run ahead of it at most."""
    names = _named(tx, ["S"])
    found: list[Counter] = []
    for name in names:
        row = tx.execute(
            sql.SQL("select last_value, is_called from {}").format(sql.Identifier(name))
        ).fetchone()
        assert row is not None
        found.append(Counter(name, row["last_value"], row["is_called"]))
    return found


def set_counter(tx: Tx, counter: Counter) -> None:
    tx.execute(
        "select setval(quote_ident(%s)::regclass, %s, %s)",
        (counter.name, counter.last, counter.called),
    )


def tables(tx: Tx) -> list[str]:
    """Every table of the schema, unlogged ones, too."""
    return _named(tx, ["r", "p"])


def drop_all(tx: Tx) -> None:
    """Empty the schema: tables and what hangs on them, sequences, functions, types; not
    extensions."""
    rows = tx.execute(
        sql.SQL(
            "select format('drop table if exists %%I cascade', c.relname) as statement"
            " from pg_class c where c.relkind in ('r', 'p') and {ours}"
            " union all select format('drop sequence if exists %%I cascade', c.relname)"
            " from pg_class c where c.relkind = 'S' and {ours}"
            " union all select format('drop routine if exists %%s cascade', p.oid::regprocedure)"
            " from pg_proc p where p.pronamespace = quote_ident(current_schema())::regnamespace"
            "  and not exists (select from pg_depend x where x.classid = 'pg_proc'::regclass"
            "   and x.objid = p.oid and x.deptype = 'e')"
            " union all select format('drop type if exists %%s cascade', t.oid::regtype)"
            " from pg_type t where t.typnamespace = quote_ident(current_schema())::regnamespace"
            "  and t.typtype in ('e', 'd')"
            "  and not exists (select from pg_depend x where x.classid = 'pg_type'::regclass"
            "   and x.objid = t.oid and x.deptype = 'e')"
        ).format(ours=sql.SQL(_OURS.format("c"))),
        (),
    ).fetchall()
    for row in rows:
        tx.execute(cast("LiteralString", row["statement"]))  # the server quoted the names


@dataclass(frozen=True, slots=True)
class Guards:
    """What watches over single rows, put aside while many come at once."""

    indexes: Sequence[str]
    keys: Sequence[tuple[str, str, str]]
    """foreign keys: table, name, definition"""
    tables: Sequence[str]


def lay_aside(tx: Tx) -> Guards:
    """Drop indexes and foreign keys and silence triggers; `put_back` makes them from the same
    definitions. Partitioned tables keep theirs."""
    indexes = tx.execute(
        sql.SQL(
            "select i.relname as name, pg_get_indexdef(i.oid) as made from pg_index x"
            " join pg_class i on i.oid = x.indexrelid join pg_class t on t.oid = x.indrelid"
            " where {ours} and t.relkind = 'r' and not t.relispartition"
            " and not exists (select from pg_constraint k where k.conindid = i.oid)"
        ).format(ours=sql.SQL(_OURS.format("t")))
    ).fetchall()
    keys = tx.execute(
        sql.SQL(
            "select t.relname as table, k.conname as name, pg_get_constraintdef(k.oid) as made"
            " from pg_constraint k join pg_class t on t.oid = k.conrelid"
            " where {ours} and k.contype = 'f' and k.conparentid = 0"
            " and t.relkind = 'r' and not t.relispartition order by t.relname, k.conname"
        ).format(ours=sql.SQL(_OURS.format("t")))
    ).fetchall()
    every = tables(tx)
    for row in keys:
        tx.execute(
            sql.SQL("alter table {} drop constraint {}").format(
                sql.Identifier(row["table"]), sql.Identifier(row["name"])
            )
        )
    for row in indexes:
        tx.execute(sql.SQL("drop index {}").format(sql.Identifier(row["name"])))
    for name in every:
        tx.execute(sql.SQL("alter table {} disable trigger user").format(sql.Identifier(name)))
    return Guards(
        [row["made"] for row in indexes],
        [(row["table"], row["name"], row["made"]) for row in keys],
        every,
    )


def put_back(tx: Tx, guards: Guards) -> None:
    """Each index is built and each foreign key checked over all rows."""
    for made in guards.indexes:
        tx.execute(cast("LiteralString", made))  # the server wrote it
    for table, name, made in guards.keys:
        tx.execute(
            sql.SQL("alter table {} add constraint {} {}").format(
                sql.Identifier(table),
                sql.Identifier(name),
                sql.SQL(made),  # pyright: ignore[reportArgumentType] # as above
            )
        )
    for name in guards.tables:
        tx.execute(sql.SQL("alter table {} enable trigger user").format(sql.Identifier(name)))


def analyze(tx: Tx) -> None:
    """Tell the planner what there is."""
    for name in tables(tx):
        tx.execute(sql.SQL("analyze {}").format(sql.Identifier(name)))


def _named(tx: Tx, kinds: Sequence[str]) -> list[str]:
    rows = tx.execute(
        sql.SQL(
            'select c.relname as name from pg_class c where c.relkind = any(%s::"char"[])'
            " and {ours} order by c.relname"
        ).format(ours=sql.SQL(_OURS.format("c"))),
        (list(kinds),),
    ).fetchall()
    return [row["name"] for row in rows]
