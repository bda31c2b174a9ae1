"""The service's role on the bundled PostgreSQL may tend its tables, and nothing of the server."""

import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from typer.testing import CliRunner

from recollect.app import App
from recollect.cli import app as cli
from recollect.db import Database
from recollect.db.embedded import Embedded
from recollect.db.schema import migrate
from recollect.db.server_roles import SERVICE, SUPERUSER
from recollect.errors import SetupError
from recollect.model import Org
from recollect.ops.purge import purge
from tests.conftest import eventually


@pytest.fixture
def installed(short_tmp: Path, request: pytest.FixtureRequest) -> Generator[Embedded]:
    """A data folder of its own, with a running server."""
    found = Embedded(short_tmp / request.node.name[:30])
    found.ensure()
    yield found
    found.stop()


POWERS = [
    # what makes of an injected statement a program, or somebody else's file
    "copy (select 1) to program 'true'",
    "create temporary table t (line text); copy t from program 'id'",
    "create temporary table t (line text); copy t from '/etc/passwd'",
    "copy (select 1) to '/tmp/recollect-least-right'",
    "select pg_read_file('/etc/passwd')",
    "select pg_read_binary_file('global/pg_control')",
    "select pg_ls_dir('.')",
    "select pg_stat_file('postgresql.conf')",
    "select lo_import('/etc/passwd')",
    "select lo_export(lo_from_bytea(0, 'x'), '/tmp/recollect-least-right')",
    "load '/tmp/recollect-least-right.so'",
    "create function f() returns int language c as '/tmp/recollect-least-right', 'f'",
    "create function f() returns int language internal as 'pg_read_file'",
    "drop extension vector",
    # what makes it mightier, or outlives it
    f"alter role {SERVICE} superuser",
    f"alter role {SERVICE} createrole",
    f"alter role {SUPERUSER} password 'known'",
    f"set role {SUPERUSER}",
    f"set session authorization {SUPERUSER}",
    f"grant {SUPERUSER} to {SERVICE}",
    f"grant pg_execute_server_program to {SERVICE}",
    f"grant pg_read_server_files to {SERVICE}",
    "create role another login",
    "create database another",
    "drop database postgres",
    "alter database recollect owner to recollect_service",
    "alter system set archive_command = 'true'",
    "set log_statement = 'all'",
    "set session_preload_libraries = '/tmp/x'",
    "select pg_reload_conf()",
    "select rolpassword from pg_authid",
    "select * from pg_hba_file_rules",
    "delete from pg_catalog.pg_class",
    "checkpoint",
    "select pg_switch_wal()",
    "select pg_create_physical_replication_slot('stays')",
]
"""Statements that only the superuser may run."""


def refused(url: str, statement: str) -> bool:
    with psycopg.connect(url, autocommit=True) as session:
        try:
            for one in statement.split("; "):
                session.execute(one.encode())
        except psycopg.errors.InsufficientPrivilege:
            return True
        except psycopg.Error:
            return False
    return False


def test_the_service_has_no_power_over_the_server(installed: Embedded):
    migrate(installed.url)
    elsewhere = make_conninfo(installed.url, dbname="postgres")

    assert [one for one in POWERS if not refused(installed.url, one)] == []
    assert refused(elsewhere, "create extension vector")
    assert refused(elsewhere, "create table t (n int)")
    with psycopg.connect(installed.url) as session:
        row = session.execute(
            "select rolname, rolsuper, rolcreaterole, rolcreatedb, rolreplication, rolbypassrls,"
            " array(select roleid::regrole::text from pg_auth_members where member = r.oid)"
            " from pg_roles r where rolname = current_user"
        ).fetchone()
    assert row == (SERVICE, False, False, False, False, False, [])


@pytest.mark.parametrize(
    "statement",
    ["select pg_read_file('postgresql.auto.conf')", "copy (select 1) to program 'true'",
     "checkpoint", "select rolpassword from pg_authid", "select pg_ls_dir('.')"],
)  # fmt: skip
def test_the_superuser_may_what_the_service_may_not(installed: Embedded, statement: str):
    """Or the statements above would be refused for what they are."""
    assert not refused(installed.superuser_url, statement)


def owners(url: str) -> set[str]:
    """Who owns what is in the service's schema, but for what belongs to extensions."""
    with psycopg.connect(url) as session:
        rows = session.execute(
            "select distinct a.rolname from ("
            " select 'pg_class'::regclass as kind, oid, relowner as owner, relnamespace as n"
            "  from pg_class union all"
            " select 'pg_proc'::regclass, oid, proowner, pronamespace from pg_proc union all"
            " select 'pg_type'::regclass, oid, typowner, typnamespace from pg_type) as own"
            " join pg_roles a on a.oid = own.owner"
            " where n = 'public'::regnamespace and not exists (select from pg_depend d"
            "  where d.classid = own.kind and d.objid = own.oid and d.deptype = 'e'"
            "  or own.kind = 'pg_type'::regclass and d.objid = own.oid and d.deptype = 'i'"
            "   and exists (select from pg_depend e where e.objid = d.refobjid"
            "    and e.classid = 'pg_type'::regclass and e.deptype = 'e'))"
        ).fetchall()
    return {row[0] for row in rows}


def as_before(server: Embedded) -> None:
    """Turn a data folder into one of a version that had the superuser only."""
    with psycopg.connect(server.superuser_url, dbname="postgres", autocommit=True) as session:
        session.execute("drop database recollect with (force)")
        session.execute(f"drop role {SERVICE}".encode())
        session.execute("create database recollect")
    (server.folder / "service-password").unlink()
    # That version's first start: the superuser makes, and so owns, all of it.
    migrate(server.superuser_url)
    with psycopg.connect(server.superuser_url, autocommit=True) as session:
        session.execute("insert into orgs (id, name, plan) values ('o1', 'kept', 'pro')")
        # Of a purge that a crash cut off, and kinds of things that no migration makes by now.
        session.execute("create schema purging")
        session.execute("create table purging.changed (n bigint generated always as identity)")
        session.execute("create sequence alone")
        session.execute("create view watched as select 1 as n")
        session.execute("create type mood as enum ('fine')")
        session.execute("create type pair as (a int, b int)")
        session.execute("create table parted (n serial) partition by range (n)")
        session.execute("create table part partition of parted for values from (0) to (9)")


def test_a_data_folder_of_an_earlier_version_is_handed_over(installed: Embedded):
    as_before(installed)
    assert owners(installed.superuser_url) == {SUPERUSER}
    installed.stop()
    again = Embedded(installed.data_dir)

    url = again.ensure()

    try:
        assert migrate(url) == []
        assert owners(url) == {SERVICE}
        with Database(url, size=1) as db, db.begin() as tx:
            assert tx.execute("select name from orgs").fetchall() == [{"name": "kept"}]
            tx.execute("alter table documents add column probe int")
            tx.execute("drop schema purging cascade")
        # And back: that version starts on it, as long as it has not been migrated since.
        assert migrate(again.superuser_url) == []
    finally:
        again.stop()


@pytest.mark.parametrize("harm", ["", "gone"])
def test_a_lost_password_of_the_service_is_made_again(installed: Embedded, harm: str):
    file = installed.folder / "service-password"
    before = file.read_text()
    file.unlink() if harm == "gone" else file.write_text(harm)

    url = Embedded(installed.data_dir).ensure()

    assert file.read_text() not in (before, "")
    with psycopg.connect(url) as session:
        assert session.info.user == SERVICE


def test_nobody_else_reads_the_passwords(installed: Embedded):
    assert {
        (path.name, path.stat().st_mode & 0o777) for path in installed.folder.glob("*password*")
    } == {("password", 0o600), ("service-password", 0o600)}


def test_only_a_purge_connects_as_the_superuser_and_leaves(app: App, org: Org, short_tmp: Path):
    """On a server of our own; it reaches all, and what it moves stays the service's."""
    server = Embedded(short_tmp / "least-purge")
    url = server.ensure()
    try:
        migrate(url)
        with Database(url, size=2) as db:
            done = purge(db, app.blobs, server.data_dir)

            def roles() -> set[str]:
                with db.begin() as tx:
                    rows = tx.execute(
                        "select usename from pg_stat_activity where datname is not null"
                    ).fetchall()
                return {row["usename"] for row in rows}

            # A session that was closed takes a moment to end.
            eventually(lambda: roles() == {SERVICE})

        assert list(done.left) == []
        assert owners(url) == {SERVICE}
    finally:
        server.stop()


UNNAMED = """
import os, sys
from pathlib import Path
from recollect.db.embedded import Embedded
from recollect.errors import SetupError
uid = int(sys.argv[2])
os.setgroups([])
os.setresgid(uid, uid, uid)
os.setresuid(uid, uid, uid)
try:
    Embedded(Path(sys.argv[1])).ensure()
except SetupError as error:
    print(error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become a user that has no name")
def test_a_user_without_a_name_is_told_what_to_do(short_tmp: Path):
    """As containers run with a number for their user: initdb asks for the name."""
    folder = short_tmp / "unnamed"
    folder.mkdir(mode=0o700)
    os.chown(folder, 54321, 54321)

    done = subprocess.run(
        [sys.executable, "-c", UNNAMED, str(folder), "54321"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert "the user with the number 54321 has no name" in done.stdout, done.stderr
    assert "RECOLLECT_DATABASE_URL" in done.stdout
    assert [path.name for path in folder.rglob("*") if path.name in ("data", "making")] == []


TRAP = (
    "create function public.{}({}) returns {} language plpgsql volatile as"
    " $$ begin alter role recollect_service superuser; return {}; end $$"
)
TRAPS = [
    TRAP.format("format", "text, name", "text", "'select 1'"),
    TRAP.format("format", "text, text, text", "text", "'select 1'"),
    TRAP.format("has_database_privilege", "text, name, text", "boolean", "true"),
    TRAP.format("has_schema_privilege", "text, text, text", "boolean", "true"),
    TRAP.format("pg_notify", "text, text", "void", "null").replace("return null; ", ""),
    TRAP.format("same", "oid, regrole", "boolean", "true"),
    TRAP.format("same", "name, name", "boolean", "true"),
    TRAP.format("unlike", "text, text", "boolean", "true"),
    "create operator public.= (leftarg = oid, rightarg = regrole, function = public.same)",
    "create operator public.= (leftarg = name, rightarg = name, function = public.same)",
    "create operator public.!~ (leftarg = text, rightarg = text, function = public.unlike)",
]
"""What a statement could leave for the superuser to trip over: functions and operators that fit
better than the server's own."""


def test_what_the_service_leaves_behind_does_not_catch_the_superuser(app: App, short_tmp: Path):
    server = Embedded(short_tmp / "least-traps")
    url = server.ensure()
    try:
        migrate(url)
        with psycopg.connect(url, autocommit=True) as session:
            for trap in TRAPS:
                session.execute(trap.encode())
        with psycopg.connect(server.superuser_url, autocommit=True) as session:
            # Something to hand over, so that all of it is run.
            session.execute("create table left_over (n int)")

        Embedded(server.data_dir).ensure()
        with psycopg.connect(url, autocommit=True) as session:
            # Which harm the service's own session in a purge, that comes first.
            session.execute("drop function public.format(text, name)")
            session.execute("drop function public.format(text, text, text)")
        with Database(url, size=2) as db:
            purge(db, app.blobs, server.data_dir)

        with psycopg.connect(server.superuser_url, autocommit=True) as session:
            session.execute("set search_path = pg_catalog")
            row = session.execute(
                "select rolsuper from pg_roles where rolname = %s", (SERVICE,)
            ).fetchone()
        assert row == (False,)
    finally:
        server.stop()


@pytest.mark.parametrize(
    "harm",
    ["alter role current_user password 'another'",
     "alter role current_user set default_transaction_read_only = on",
     "alter role current_user set search_path = nowhere",
     "alter role current_user in database recollect set lock_timeout = 1"],
)  # fmt: skip
def test_what_a_statement_does_to_the_role_is_undone_at_the_next_start(
    installed: Embedded, harm: str
):
    """A role may change its own password and defaults, which outlive the session."""
    with psycopg.connect(installed.url, autocommit=True) as session:
        session.execute(harm.encode())

    url = Embedded(installed.data_dir).ensure()

    migrate(url)
    with psycopg.connect(url) as session:
        shown = session.execute(
            "select current_setting('default_transaction_read_only'),"
            " current_setting('search_path'), current_setting('lock_timeout')"
        ).fetchone()
    assert shown == ("off", '"$user", public', "0")


def test_what_a_role_lacks_to_begin_is_said_in_one_line(
    installed: Embedded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Since PostgreSQL 15 who does not own a database may not make tables in its schema `public`:
    the start and `doctor` ended with a traceback."""
    with psycopg.connect(installed.superuser_url, autocommit=True) as session:
        session.execute("create database bare")
        session.execute("create role tenant login password 'known'")
    bare = make_conninfo(installed.superuser_url, dbname="bare")
    url = make_conninfo(bare, user="tenant", password="known")
    with psycopg.connect(bare, autocommit=True) as session:
        session.execute("create extension vector")
    for name, value in {"DATABASE_URL": url, "DATA_DIR": str(tmp_path), "EMBEDDER": "none"}.items():
        monkeypatch.setenv(f"RECOLLECT_{name}", value)

    told = CliRunner().invoke(cli, ["doctor"])
    assert isinstance(told.exception, SystemExit)
    assert "FAIL database: the role tenant may not make" in told.output
    assert "1 of " in told.output
    with pytest.raises(SetupError) as refusal:
        migrate(url)
    with psycopg.connect(bare, autocommit=True) as session:
        for grant in str(refusal.value).partition("allows it with: ")[2].split("; "):
            session.execute(grant.encode())

    assert migrate(url)
