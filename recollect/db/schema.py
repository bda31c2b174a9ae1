"""The schema: the migrations that a database has, and those that it lacks."""

from collections.abc import Collection
from importlib import resources

import psycopg
from psycopg.rows import dict_row

from recollect import log
from recollect.db import START_TIMEOUT, Tx, blockers, citus
from recollect.db.faults import judging
from recollect.db.server_check import check_pooler, check_server, have_vectors, permitted
from recollect.db.sessions import bound, connect
from recollect.errors import SetupError

LOG = log.get("db")
MIGRATION_LOCK = 0x5EC0_11EC
OLDER = (
    "written by an older Recollect. The next start of the service brings the schema up to date, and"
    " then the older one does not take it any more; to be able to go back, run `recollect backup`"
    " first"
)


def migrate(url: str, *, index_shards: int | None = None) -> list[str]:
    """Bring the schema up to date; returns the names of the migrations applied now.

    With `index_shards`, and where the server is a coordinator of Citus with workers, the index is
    spread over these. Several processes may call it at once. Raises SetupError on a database that
    cannot serve.
    """
    applied: list[str] = []
    with judging(), connect(psycopg.Connection, url) as session, blockers.told(session, url):
        bound(session, START_TIMEOUT)
        check_server(session)
        check_pooler(url)
        bound(session, None)  # another process may migrate for long
        session.execute("select pg_advisory_lock(%s)", (MIGRATION_LOCK,))
        citus.keep_apart(session)
        have_vectors(session)
        with permitted(session, "the list of migrations"):
            here = "select to_regclass(quote_ident(current_schema()) || '.migrations')"
            if session.execute(here).fetchone() == (None,):  # what takes no writes refuses it, too
                session.execute(
                    "create table migrations"
                    " (name text primary key, applied_at timestamptz not null default now())"
                )
        done = {row[0] for row in session.execute("select name from migrations").fetchall()}
        _refuse_newer(done)
        for name, script in scripts():
            if name in done:
                continue
            with permitted(session, name), session.transaction():
                session.execute(script)
                session.execute("insert into migrations (name) values (%s)", (name,))
            applied.append(name)
        if applied:
            LOG.info("migrated", migrations=len(applied), newest=applied[-1])
        if index_shards is not None:
            citus.spread(session, index_shards)
    return applied


def migrate_new(url: str) -> None:
    """`migrate` a database that has no schema yet. Raises SetupError on one of an older Recollect:
    only the start of a service takes the way back to that."""
    with judging(), connect(Tx, url, row_factory=dict_row) as tx:
        if lacking(tx):
            raise SetupError(f"the database was {OLDER}")
    migrate(url)


def lacking(tx: Tx) -> list[str]:
    """Names of the migrations that are yet to come to a database in use; none of a new one.

    Raises SetupError on a database of a newer Recollect.
    """
    done = _applied(tx)
    _refuse_newer(done)
    return [name for name, _ in scripts() if done and name not in done]


def _refuse_newer(done: Collection[str]) -> None:
    """Before anything is changed: what this version lacks may not fit what that one made."""
    if unknown := set(done) - {name for name, _ in scripts()}:
        raise SetupError(
            f"the database was written by a newer Recollect (it has {max(unknown)});"
            " install that version or restore a backup"
        )


def is_current(tx: Tx) -> bool:
    """Whether the database has the schema of this version."""
    return _applied(tx) >= {name for name, _ in scripts()}


def _applied(tx: Tx) -> set[str]:
    ours = "attrelid = to_regclass('migrations') and attname = 'applied_at'"
    if not tx.execute("select from pg_attribute where " + ours).fetchall():  # nor another program's
        return set()
    return {row["name"] for row in tx.execute("select name from migrations")}


def scripts() -> list[tuple[str, bytes]]:
    """All migrations in their order: name and SQL."""
    folder = resources.files("recollect.db") / "migrations"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    return [(file.name.removesuffix(".sql"), file.read_bytes()) for file in files]
