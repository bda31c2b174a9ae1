"""Whether a server, a database and a role are such that the service can live there."""

from collections.abc import Generator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from recollect.db.sessions import CONNECT_TIMEOUT, bound, line
from recollect.errors import SetupError

_MAKE = (
    "create database NAME encoding 'UTF8' locale_provider libc locale 'C.UTF-8' template template0"
)
_MOVE = (
    f"make another with: {_MAKE}; `recollect backup` and `recollect restore` move what is in this"
    " one"
)


def check_server(session: psycopg.Connection[Any]) -> None:
    """Raises SetupError for a server or a database that does not do."""
    cursor = session.cursor(row_factory=tuple_row)
    if session.info.server_version < 150000:
        raise SetupError(
            f"PostgreSQL {session.info.server_version // 10000} is too old; 15 or later is needed"
        )
    _check_encoding(session)
    _check_schema(session)
    _check_tables(session)
    row = cursor.execute(
        "select default_version, installed_version from pg_available_extensions"
        " where name = 'vector'"
    ).fetchone()
    if row is None:
        raise SetupError("the database server has no pgvector; install pgvector 0.8 or later")
    if _is_older(row[0]):
        raise SetupError(f"pgvector {row[0]} is too old; 0.8 or later is needed")
    if row[1] is not None and _is_older(row[1]):
        raise SetupError(
            f"pgvector {row[1]} is too old; 0.8 or later is needed, and the server has {row[0]}:"
            " let a superuser run, in this database: alter extension vector update"
        )
    forgets = cursor.execute(
        "select name, source, quote_ident(current_user), quote_ident(current_database())"
        " from pg_settings where name in ('fsync', 'synchronous_commit') and setting = 'off'"
    ).fetchone()
    if forgets is not None:
        name, source, role, database = forgets
        raise SetupError(
            f"the database server has {name} = off: after a crash it would have forgotten what was"
            f" acknowledged; {_undone(name, source, role, database)}"
        )


def _undone(name: str, source: str, role: str, database: str) -> str:
    """What ends a setting, which may not stand in the server's configuration."""
    match source:
        case "user":
            return f"end it with: alter role {role} reset {name}"
        case "database user":
            return f"end it with: alter role {role} in database {database} reset {name}"
        case "database":
            return f"end it with: alter database {database} reset {name}"
        case "client":
            return "take it out of the options in RECOLLECT_DATABASE_URL"
        case _:
            return f"set {name} = on"


def check_pooler(url: str, *, patience: float = CONNECT_TIMEOUT) -> None:
    """Raises SetupError where each transaction gets any session of the server. One connection would
    run what another has prepared, and answer what nobody asked; locks and notices would be lost.

    `patience`: seconds to wait for a connection.
    """
    connect = partial(psycopg.connect, url, autocommit=True, **line(url, patience))
    with closing(connect()) as one, closing(connect()) as other:
        for session in (one, other):
            bound(session, patience)
        if not are_apart(one, other):
            raise SetupError(
                "the pooler before the database gives each transaction any session of the server"
                " (transaction mode), where prepared statements, locks and notices get lost; set it"
                " to session mode (PgBouncer: pool_mode = session; Supabase: port 5432), or name"
                " the server itself (Neon: the host without -pooler)"
            )


def are_apart(one: psycopg.Connection[Any], other: psycopg.Connection[Any]) -> bool:
    """Whether each of two connections keeps a session of its own."""
    # A pooler that gives its sessions in turn, and has two, would fit the same order twice.
    pids = [_pid(session) for session in (one, other, other, one)]
    return pids[0] != pids[1] and pids == pids[::-1]


def _pid(session: psycopg.Connection[Any]) -> int:
    row = session.cursor(row_factory=tuple_row).execute("select pg_backend_pid()").fetchone()
    assert row is not None
    return row[0]


def have_vectors(session: psycopg.Connection[Any]) -> None:
    """Make the extension for vectors, unless it is there. Raises SetupError where its types are out
    of reach."""
    role, database = session.info.user, session.info.dbname
    try:
        # Citus would have the workers do so even where it is there, which its owner alone may.
        if session.execute("select from pg_extension where extname = 'vector'").fetchone() is None:
            session.execute("create extension if not exists vector")
    except psycopg.errors.InsufficientPrivilege as error:
        raise SetupError(
            f"the role {role} may not create the extension vector; let a superuser run, in the"
            f" database {database}: create extension vector"
        ) from error
    except psycopg.errors.FeatureNotSupported as error:
        raise SetupError(
            f"the server does not allow the extension vector ({error.diag.message_primary}); its"
            " provider has a list of those that are (Azure: the server parameter azure.extensions)"
        ) from error
    row = (
        session.cursor(row_factory=tuple_row)
        .execute(
            "select quote_ident(nspname) from pg_extension join pg_namespace on"
            " pg_namespace.oid = extnamespace where extname = 'vector'"
            " and to_regtype('vector') is null"
        )
        .fetchone()
    )
    if row is not None:
        raise SetupError(
            f"the extension vector is in the schema {row[0]}, where the role {role} does not look;"
            f' allow it to with: grant usage on schema {row[0]} to "{role}"; alter role "{role}" in'
            f' database "{database}" set search_path = "$user", public, {row[0]}'
        )


def _check_schema(session: psycopg.Connection[Any]) -> None:
    """Raises SetupError where the sessions look first into a schema that has no Recollect, and the
    role has one in another schema: an empty one would be made beside it. A URL that names a schema
    may make another."""
    row = (
        session.cursor(row_factory=tuple_row)
        .execute(
            "select quote_ident(current_schema()), quote_ident(nspname) from pg_class c"
            " join pg_namespace n on n.oid = c.relnamespace"
            " join pg_settings s on s.name = 'search_path' and s.source <> 'client'"
            " where c.relname = 'migrations' and pg_get_userbyid(c.relowner) = current_user"
            " and exists (select from pg_class where relnamespace = n.oid and relname = 'orgs')"
            " and not exists (select from pg_class where relname = 'migrations'"
            "  and relnamespace = quote_ident(current_schema())::regnamespace)"
            " order by 2"
        )
        .fetchone()
    )
    if row is not None:
        here, there = row
        first = "no schema that is there" if here is None else f"the schema {here} first"
        raise SetupError(
            f"the role {session.info.user} looks into {first}, and its Recollect is in the"
            f" schema {there}; end RECOLLECT_DATABASE_URL with"
            f" ?options=-csearch_path%3D{there},public (after other options with & instead of ?)"
        )


def _check_tables(session: psycopg.Connection[Any]) -> None:
    """Raises SetupError where the schema has tables and none of them is our list of migrations: it
    is another program's, and what drops or writes again all tables would take its ones, too."""
    rows = (
        session.cursor(row_factory=tuple_row)
        .execute(
            "select quote_ident(nspname), quote_ident(relname)"
            " from pg_class c join pg_namespace n on n.oid = c.relnamespace"
            " where nspname = current_schema() and relkind in ('r', 'p')"
            " and not exists (select from pg_depend where classid = 'pg_class'::regclass"
            "  and objid = c.oid and deptype = 'e')"
            " and not exists (select from pg_class m join pg_attribute on attrelid = m.oid"
            "  where m.relnamespace = n.oid and m.relname = 'migrations'"
            "  and attname = 'applied_at')"
            " order by 2 limit 5"
        )
        .fetchall()
    )
    if rows:
        raise SetupError(
            f"the schema {rows[0][0]} of the database {session.info.dbname} holds tables of another"
            f" program ({', '.join(name for _, name in rows)}); give Recollect a database of its"
            f" own: {_MAKE}"
        )


def _check_encoding(session: psycopg.Connection[Any]) -> None:
    encoding = session.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise SetupError(
            f"the database {session.info.dbname} has the encoding {encoding}, which does not keep"
            f" every text; {_MOVE}"
        )


def what_case_lacks(session: psycopg.Connection[Any]) -> str | None:
    """What is wrong, and what to do, where neither the server (from version 17 on, or with ICU) nor
    the database's locale knows which letters are the same but for case."""
    row = (
        session.cursor(row_factory=tuple_row)
        .execute(
            "select coalesce(to_jsonb(d) ->> 'datlocale', to_jsonb(d) ->> 'daticulocale',"
            " datctype) from pg_database d where datname = current_database()"
            " and (fold_case('ÄÇŁΩЖ'), fold_case('I')) <> ('äçłωж', 'i')"
        )
        .fetchone()
    )
    if row is None:
        return None
    return (
        f"the database {session.info.dbname} has the locale {row[0]}, by which not all letters are"
        " the same but for case: filters with ignoreCase, and lists that are searched by words, do"
        f" not find Ä by ä, or I by i; {_MOVE}"
    )


def _is_older(pgvector: str) -> bool:
    return tuple(int(part) for part in pgvector.split(".")[:2]) < (0, 8)


@contextmanager
def permitted(session: psycopg.Connection[Any], what: str) -> Generator[None]:
    """Raises SetupError, which says how to allow it, where the role may not make `what`."""
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        role, database = session.info.user, session.info.dbname
        raise SetupError(
            f"the role {role} may not make the tables and schemas of {what}"
            f" ({error.diag.message_primary}); the owner of the database allows it with:"
            f' grant create on schema public to "{role}";'
            f' grant create on database "{database}" to "{role}"'
        ) from error
