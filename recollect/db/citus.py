"""Citus: the index lies on several servers, all else on the one that coordinates them.

What differs is here and in `spread.sql`: tables that are distributed by their document, triggers
that keep one of them, functions that do something (docs/decisions/0042). Statements are the same
everywhere; where they cannot be, `index_shape()` tells how many shards there are.
"""

import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from typing import Any, LiteralString, cast

import psycopg
from psycopg.rows import dict_row, tuple_row

from recollect import log
from recollect.errors import Contended, SetupError

LOG = log.get("db")
SETTINGS = {
    "citus.propagate_set_commands": "local",
    "citus.max_cached_conns_per_worker": "4",
    "citus.enable_deadlock_prevention": "off",
}
"""Of each session: what `set local` says holds on the workers, too; connections to them are kept;
and whoever changes several shards does not wait for all others who do: that they lock documents
first, in one order, keeps them out of circles. To other servers these are words without a meaning.
"""
MADE = ("facets", "index_measured")
"""Tables that are made when the index is spread."""
DISTRIBUTED = ("facets", "entries", "chunks")
SHARED = ("counted_under", "fold_case", "written_tags")
"""Functions that the workers know, too."""
_LOCK = "hashtextextended('recollect.index', 0)"
"""as `hold_index` takes it"""
_SPREAD = "select 1 from pg_dist_partition where logicalrelid = to_regclass('entries')"


def is_spread(session: psycopg.Connection[Any]) -> bool:
    """Whether the index of this database lies on several servers."""
    return _is_citus(session) and session.execute(_SPREAD).fetchone() is not None


@contextmanager
def still(session: psycopg.Connection[Any]) -> Generator[None]:
    """Nobody is in the middle of writing to several servers; `session` has no transaction open.

    Who writes entries and other tables holds this lock with others, and Citus commits everywhere
    before it lets go.
    """
    session.execute(f"select pg_advisory_lock({_LOCK})")
    try:
        yield
    finally:
        session.execute(f"select pg_advisory_unlock({_LOCK})")


def look(tx: psycopg.Connection[Any]) -> str:
    """Have a transaction of one snapshot take it on all servers, over one connection to each.
    Returns where the shards are, for `refuse_moved`."""
    tx.execute("set local citus.max_adaptive_executor_pool_size = 1")
    tx.execute("select count(*) from facets where filepath = ''")  # no shard can be ruled out
    return _places(tx)


def refuse_moved(seen: str, session: psycopg.Connection[Any]) -> None:
    """Raises Contended where a shard moved after `look`: where it came to, a snapshot from before
    sees none of its rows."""
    if _places(session) != seen:
        raise Contended(
            "a shard of the index moved to another worker meanwhile, so not all of it was seen; try"
            " again when none moves (select citus_rebalance_status())"
        )


def _places(session: psycopg.Connection[Any]) -> str:
    row = (
        session.cursor(row_factory=tuple_row)
        .execute(
            "select coalesce(string_agg(concat_ws(':', shardid, groupid), ' '"
            "  order by shardid, groupid), '')"
            " from pg_dist_placement join pg_dist_shard using (shardid)"
            " where logicalrelid = any(%s::text[]::regclass[])",
            (list(DISTRIBUTED),),
        )
        .fetchone()
    )
    assert row is not None
    return row[0]


@dataclass(frozen=True, slots=True)
class NodeState:
    """A worker, as the coordinator reaches it."""

    name: str
    """host and port"""
    shards: int
    versions: str
    faults: Sequence[str]
    """what keeps it from serving, and what to do about it"""
    limits: Sequence[str]
    """what it cannot do, while it serves"""


def nodes(session: psycopg.Connection[Any]) -> list[NodeState]:
    """All that hold a part of the index; none where it is not spread."""
    if not is_spread(session):
        return []
    rows = session.cursor(row_factory=dict_row).execute(
        "select nodename || ':' || nodeport as name, success, result,"
        " (select count(*) from citus_shards s where (s.nodename, s.nodeport) ="
        "  (w.nodename, w.nodeport) and s.table_name = 'entries'::regclass) as shards"
        " from run_command_on_workers($$select json_build_object("
        "  'server', current_setting('server_version'),"
        "  'citus', (select extversion from pg_extension where extname = 'citus'),"
        "  'vector', (select extversion from pg_extension where extname = 'vector'),"
        "  'prepared', current_setting('max_prepared_transactions')::int,"
        "  'wal', current_setting('wal_level'))$$) w order by 1"
    )
    return [_state(row) for row in rows]


def _state(row: Mapping[str, Any]) -> NodeState:
    if not row["success"]:
        return NodeState(row["name"], row["shards"], "", [f"does not answer: {row['result']}"], [])
    told = json.loads(row["result"])
    faults, limits = list[str](), list[str]()
    if told["vector"] is None:
        faults.append("has no pgvector in this database: create extension vector")
    if not told["prepared"]:
        faults.append("cannot commit with the others: set max_prepared_transactions to 200")
    if told["wal"] != "logical":
        limits.append("its shards move only while nobody writes: set wal_level = logical")
    versions = (
        f"PostgreSQL {told['server']}, Citus {told['citus']}, pgvector {told['vector'] or 'none'}"
    )
    return NodeState(row["name"], row["shards"], versions, faults, limits)


def deleted_rows(session: psycopg.Connection[Any]) -> int:
    """Of the index, since its workers began to count."""
    row = (
        session.cursor(row_factory=tuple_row)
        .execute(
            "select coalesce(sum(result::int8), 0) from unnest(%s::text[]) as one,"
            " run_command_on_shards(one, $$select n_tup_del from pg_stat_user_tables"
            "  where relid = '%%s'::regclass$$) where success",
            (list(DISTRIBUTED),),
        )
        .fetchone()
    )
    assert row is not None
    return int(row[0])


def keep_apart(session: psycopg.Connection[Any]) -> None:
    """What this session makes, before the index is spread, is made on the coordinator alone."""
    if _is_citus(session) and not is_spread(session):
        session.execute("set citus.enable_ddl_propagation = off")


def spread(session: psycopg.Connection[Any], shards: int) -> None:
    """Have the workers hold the index, unless they do; nothing where there are none.

    Rows that are there move, which takes a while; who reads or writes them waits. Raises SetupError
    where the role may not.
    """
    if not _is_citus(session):
        return
    if is_spread(session):
        _share(session)
        return
    workers = session.execute(
        "select 1 from pg_dist_node where isactive and shouldhaveshards and groupid <> 0"
    ).fetchone()
    if workers is None:
        return
    LOG.info("spreading the index over the workers of Citus", shards=shards)
    session.execute("set citus.enable_ddl_propagation = on")
    script = (resources.files("recollect.db") / "spread.sql").read_text()
    try:
        with session.transaction():
            _share(session)
            for statement in script.replace("{shards}", str(shards)).split("--;;"):
                session.execute(cast("LiteralString", statement))
    except psycopg.errors.InsufficientPrivilege as error:
        raise SetupError(
            f"the role {session.info.user} may not spread the index over the workers of Citus"
            f" ({error.diag.message_primary}); it needs to exist on each of them, with all"
            f" privileges on the database {session.info.dbname} and its schema"
        ) from error
    LOG.info("the index is spread", shards=shards)


def _share(session: psycopg.Connection[Any]) -> None:
    """Have the workers know our functions that ask for nothing but what they are given: statements
    call them there, and what was made before the index was spread is on the coordinator alone."""
    session.execute(
        "select create_distributed_function(f.oid::regprocedure) from pg_proc f"
        " where f.proname = any(%s) and f.provolatile = 'i'"
        " and f.pronamespace = quote_ident(current_schema())::regnamespace"
        " and not exists (select from pg_dist_object o where o.classid = 'pg_proc'::regclass"
        "  and o.objid = f.oid)",
        (list(SHARED),),
    )


def _is_citus(session: psycopg.Connection[Any]) -> bool:
    found = session.execute("select 1 from pg_extension where extname = 'citus'").fetchone()
    return found is not None
