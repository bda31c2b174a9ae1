"""A PostgreSQL that others set up: what it says of sessions, and what a start says of it."""

import asyncio
import os
import re
import shutil
import socketserver
import subprocess
import threading
import uuid
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import cycle
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import tuple_row
from typer.testing import CliRunner

from recollect import documents
from recollect.cli import app as cli
from recollect.db import Database, blockers
from recollect.db.embedded import Embedded
from recollect.db.faults import judged
from recollect.db.replicas import Replicated
from recollect.db.schema import is_current, migrate
from recollect.db.server_check import are_apart
from recollect.db.sessions import check_url, connect
from recollect.documents import NewDocument
from recollect.errors import READ_ONLY, DatabaseAway, SetupError, Unavailable
from recollect.events.listener import Notice, watch
from recollect.model import DocumentId, Plan, Tenant
from recollect.ops.backup._catalogue import shapes
from recollect.ops.backup._session import snapshot
from recollect.orgs import orgs
from tests.conftest import capture_logs, eventually, free_port

pytestmark = pytest.mark.one_server
ROLE = "A.stranger"
"""a name that has to be quoted"""


def by_superuser(url: str, statement: LiteralString, *names: str) -> None:
    with psycopg.connect(url, autocommit=True) as session:
        session.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


@pytest.fixture
def theirs(server: Embedded | None, postgres_url: str) -> Generator[Callable[[LiteralString], str]]:
    """Makes an empty database of a role without rights on the server; returns the role's URL."""
    if server is None:
        pytest.skip("needs the superuser of a server of ours")
    made: list[str] = []

    def make(more: LiteralString = "") -> str:
        name = f"test_{uuid.uuid4().hex[:12]}"
        by_superuser(
            postgres_url, "create database {} owner {} template template0 " + more, name, ROLE
        )
        made.append(name)
        return make_conninfo(postgres_url, dbname=name, user=ROLE, password="stranger")

    by_superuser(postgres_url, "create role {} login password 'stranger'", ROLE)
    yield make
    for name in made:
        by_superuser(postgres_url, "drop database {} with (force)", name)
    by_superuser(postgres_url, "drop role {}", ROLE)


def of_superuser(postgres_url: str, url: str) -> str:
    return make_conninfo(postgres_url, dbname=str(conninfo_to_dict(url)["dbname"]))


def test_a_role_that_may_not_make_the_extension_is_told_who_may(
    theirs: Callable[[LiteralString], str], postgres_url: str
):
    url = theirs("")
    with pytest.raises(SetupError, match=r"superuser run, in the database .*: create extension"):
        migrate(url)
    by_superuser(of_superuser(postgres_url, url), "create extension vector")
    assert migrate(url)


def test_a_provider_that_does_not_list_the_extension_is_named_as_who_allows_it(
    theirs: Callable[[LiteralString], str], postgres_url: str
):
    """As Azure has it. The start and `doctor` ended with a traceback."""
    url = theirs("")
    admin = of_superuser(postgres_url, url)
    by_superuser(
        admin,
        "create function refuse() returns event_trigger language plpgsql as $$ begin"
        " raise exception 'extension \"vector\" is not allow-listed' using errcode = '0A000';"
        " end $$",
    )
    by_superuser(
        admin,
        "create event trigger refuse on ddl_command_start when tag in ('CREATE EXTENSION')"
        " execute function refuse()",
    )
    with pytest.raises(SetupError, match=r'vector" is not allow-listed\); its provider'):
        migrate(url)


def test_an_extension_in_a_schema_of_its_own(
    theirs: Callable[[LiteralString], str], postgres_url: str
):
    """As some providers have it."""
    url = theirs("")
    admin = of_superuser(postgres_url, url)
    by_superuser(admin, "create schema extensions")
    by_superuser(admin, "create extension vector schema extensions")
    with pytest.raises(SetupError, match="in the schema extensions, where the role") as refused:
        migrate(url)
    by_superuser(admin, "grant usage on schema extensions to {}", ROLE)
    told = str(refused.value).rpartition("; ")[2]
    with psycopg.connect(admin, autocommit=True) as session:
        session.execute(told.encode())
    assert migrate(url)
    with Database(url, size=1) as database, database.begin() as tx:
        assert orgs.create(tx, "acme", Plan.FREE).name == "acme"


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_an_encoding_that_does_not_keep_every_text_is_refused(
    theirs: Callable[[LiteralString], str], encoding: LiteralString
):
    url = theirs("encoding " + encoding + " lc_collate 'C' lc_ctype 'C'")
    with pytest.raises(SetupError, match=f"has the encoding {encoding}"):
        migrate(url)


OF_OTHERS: list[LiteralString] = [
    "create table users (id int)",
    "create table documents (id int)",
    "create table migrations (id int, migration text, batch int)",
    "create table migrations (id int, name text, run_on timestamptz)",
]


@pytest.mark.parametrize("table", OF_OTHERS)
def test_a_database_of_another_program_is_refused_and_left_as_it_is(
    theirs: Callable[[LiteralString], str],
    postgres_url: str,
    table: LiteralString,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    """Ours came beside its tables, where `restore --replace` would have dropped them; or the start
    and `doctor` ended with a traceback and left a table behind."""
    url = theirs("")
    by_superuser(of_superuser(postgres_url, url), "create extension vector")
    by_superuser(url, table)
    given = {"DATABASE_URL": url, "DATA_DIR": str(tmp_path), "EMBEDDER": "none"}
    for name, value in given.items():
        monkeypatch.setenv(f"RECOLLECT_{name}", value)
    told = CliRunner().invoke(cli, ["doctor"])
    assert isinstance(told.exception, SystemExit)
    assert "FAIL database: the schema public of the database" in told.output
    with pytest.raises(
        SetupError, match=r"tables of another program \((users|documents|migr\w+)\);"
    ):
        migrate(url)
    with Database(url, size=1) as database, database.begin() as tx:
        assert not is_current(tx)
        assert len(tx.execute("select from pg_tables where schemaname = 'public'").fetchall()) == 1
        tx.execute("create schema ours")
    assert migrate(make_conninfo(url, options="-c search_path=ours,public"))


@pytest.mark.parametrize("name", ["mine", "Mine"])
def test_a_schema_that_the_url_names_is_that_of_all_sessions(
    theirs: Callable[[LiteralString], str], postgres_url: str, name: str
):
    url = theirs("")
    by_superuser(of_superuser(postgres_url, url), "create extension vector")
    by_superuser(url, "create schema {}", name)
    url = make_conninfo(url, options=f'-c search_path="{name}",public')
    assert migrate(url)
    with Database(url, size=1) as database, database.begin() as tx:
        assert is_current(tx)
        found = tx.execute("select schemaname from pg_tables where tablename = 'documents'")
        assert found.fetchall() == [{"schemaname": name}]
    with snapshot(url) as tx:
        assert "documents" in [shape.name for shape in shapes(tx)]


@pytest.mark.parametrize(
    "place", ["role {role}", "database {database}", "role {role} in database {database}"]
)
def test_who_is_told_that_commits_do_not_last_is_told_what_ends_it(
    theirs: Callable[[LiteralString], str], postgres_url: str, place: LiteralString
):
    """The configuration of the server has nothing of it."""
    url = theirs("")
    admin = of_superuser(postgres_url, url)
    by_superuser(admin, "create extension vector")
    named = sql.SQL("alter " + place + " set synchronous_commit = off").format(
        role=sql.Identifier(ROLE), database=sql.Identifier(str(conninfo_to_dict(url)["dbname"]))
    )
    with psycopg.connect(admin, autocommit=True) as session:
        session.execute(named)
        with pytest.raises(SetupError, match="synchronous_commit = off") as refused:
            migrate(url)
        session.execute(str(refused.value).rpartition("end it with: ")[2].encode())
    assert migrate(url)


@pytest.mark.parametrize("path", ["{}, public", "{}, elsewhere", '"$user", public'])
def test_no_empty_schema_is_made_beside_the_one_in_use(
    theirs: Callable[[LiteralString], str], postgres_url: str, path: LiteralString
):
    """As where a job has a shorter URL than the service, or someone makes a schema of that name."""
    url = theirs("")
    admin = of_superuser(postgres_url, url)
    by_superuser(admin, "create schema elsewhere")
    by_superuser(admin, "create extension vector schema elsewhere")
    by_superuser(admin, "grant usage on schema elsewhere to {}", ROLE)
    used = make_conninfo(url, options="-c search_path=public,elsewhere")
    migrate(used)
    by_superuser(url, "create schema {}", ROLE)
    by_superuser(url, "alter role current_user set search_path = " + path + ", elsewhere", ROLE)
    with pytest.raises(SetupError, match=r"first, and its Recollect is in the schema public"):
        migrate(url)
    with psycopg.connect(admin) as session:
        made = session.execute("select from pg_tables where schemaname = %s", (ROLE,)).fetchall()
    assert not made
    assert migrate(used) == []
    assert migrate(make_conninfo(url, options=f'-c search_path="{ROLE}",elsewhere'))


def test_a_migration_that_waits_says_for_whom(
    theirs: Callable[[LiteralString], str], postgres_url: str, monkeypatch: pytest.MonkeyPatch
):
    """A start stood still, without a word, for as long as a forgotten transaction was open."""
    url = theirs("")
    by_superuser(of_superuser(postgres_url, url), "create extension vector")
    monkeypatch.setattr(blockers, "LOOK", 0.05)
    with (
        ThreadPoolExecutor() as pool,
        capture_logs() as lines,
        psycopg.connect(url, application_name="forgotten") as session,
    ):
        session.execute("create table migrations (name text primary key, applied_at timestamptz)")
        session.commit()
        session.execute("lock table migrations")
        forgotten = f"pid {session.info.backend_pid} ({ROLE}, forgotten, idle in transaction)"
        migrating = pool.submit(migrate, url)
        [waits] = eventually(lambda: [one for one in lines if "waits for" in one["event"]])
        session.rollback()
        assert migrating.result()

    assert waits["sessions"] == [forgotten]


def shown(session: psycopg.Connection[Any], *settings: str) -> dict[str, str]:
    cursor = session.cursor(row_factory=tuple_row)
    cursor.execute(
        "select name, current_setting(name) from unnest(%s::text[]) as name", [list(settings)]
    )
    return dict(cursor.fetchall())


def test_what_a_database_sets_for_its_sessions_changes_nothing(
    theirs: Callable[[LiteralString], str], postgres_url: str
):
    url = theirs("")
    by_superuser(of_superuser(postgres_url, url), "create extension vector")
    name = str(conninfo_to_dict(url)["dbname"])
    settings: dict[LiteralString, LiteralString] = {
        "default_transaction_isolation": "'serializable'",
        "datestyle": "'SQL, DMY'",
        "intervalstyle": "'iso_8601'",
        "timezone": "'Asia/Tokyo'",
        "client_encoding": "'LATIN1'",
        "statement_timeout": "'5min'",
        "lock_timeout": "'5min'",
        "idle_session_timeout": "'5min'",
        "bytea_output": "'escape'",
        "extra_float_digits": "-5",
        "array_nulls": "off",
        "transform_null_equals": "on",
        "gin_fuzzy_search_limit": "3",
    }
    for setting, value in settings.items():
        by_superuser(postgres_url, "alter database {} set " + setting + " = " + value, name)
    migrate(url)
    with (
        Database(url, size=1, statement_timeout=timedelta(seconds=7)) as database,
        database.begin() as tx,
    ):
        orgs.create(tx, "acme", Plan.FREE)
        made = tx.execute("select created_at, interval '1 day' as day from orgs").fetchone()
        assert made is not None
        assert made["created_at"].tzinfo is not None
        assert made["day"] == timedelta(days=1)
        pooled = shown(tx, *settings)
    with connect(psycopg.Connection, url) as session:
        alone = shown(session, *settings)
    ours = {
        "default_transaction_isolation": "read committed",
        "intervalstyle": "postgres",
        "timezone": "UTC",
        "client_encoding": "UTF8",
        "lock_timeout": "0",
        "idle_session_timeout": "0",
        "bytea_output": "hex",
        "extra_float_digits": "1",
        "array_nulls": "on",
        "transform_null_equals": "off",
        "gin_fuzzy_search_limit": "0",
    }
    for found, timeout in ((pooled, "7s"), (alone, "0")):
        assert found.pop("datestyle").startswith("ISO")
        assert found == ours | {"statement_timeout": timeout}


def test_what_a_database_sets_for_its_sessions_does_not_deafen_who_hears_of_documents(
    theirs: Callable[[LiteralString], str], postgres_url: str
):
    url = theirs("")
    by_superuser(of_superuser(postgres_url, url), "create extension vector")
    name = str(conninfo_to_dict(url)["dbname"])
    by_superuser(postgres_url, "alter database {} set client_encoding = 'LATIN1'", name)
    migrate(url)

    async def heard(database: Database, tenant: Tenant) -> list[Notice]:
        async with watch(url) as told:
            with database.begin() as tx:
                new = NewDocument(documents.text_content("A note."), ["日本"])
                documents.add(tx, tenant, new, DocumentId("one"))
            return await told.next(timedelta(seconds=10))

    with Database(url, size=1) as database:
        with database.begin() as tx:
            tenant = Tenant(orgs.create(tx, "acme", Plan.FREE).id)
        assert [notice.tags for notice in asyncio.run(heard(database, tenant))] == [["日本"]]


def test_a_pool_tells_why_it_gets_no_connection(
    theirs: Callable[[LiteralString], str],
):
    """The pool kept it to itself: the log of an API process named no reason."""
    url = make_conninfo(theirs(""), password="another")
    with (
        Database(url, size=1, patience=timedelta(seconds=2)) as database,
        pytest.raises(DatabaseAway, match="password authentication failed"),
    ):
        database.ping()


@pytest.mark.parametrize("limited", ["role {role}", "database {database}"])
def test_who_finds_all_connections_taken_is_told_what_to_raise(
    theirs: Callable[[LiteralString], str], postgres_url: str, limited: LiteralString
):
    url = theirs("")
    limit = sql.SQL("alter " + limited + " connection limit 0").format(
        role=sql.Identifier(ROLE), database=sql.Identifier(str(conninfo_to_dict(url)["dbname"]))
    )
    with psycopg.connect(postgres_url, autocommit=True) as session:
        session.execute(limit)
    with pytest.raises(DatabaseAway, match=r"too many connections .*: raise its limit"):
        migrate(url)
    with (
        Database(url, size=1, patience=timedelta(seconds=2)) as database,
        pytest.raises(DatabaseAway, match=r"too many connections .*: raise its limit"),
    ):
        database.ping()


@pytest.mark.parametrize(
    "words",
    [
        "query_wait_timeout",
        "FATAL:  no more connections allowed (max_client_conn)",
        "FATAL:  Max client connections reached",
        "FATAL:  MaxClientsInSessionMode: max clients reached",
    ],
)
def test_the_words_of_a_pooler_that_is_full_come_with_what_to_raise(words: str):
    assert "max_client_conn and default_pool_size" in str(judged(psycopg.OperationalError(words)))


@pytest.mark.parametrize(
    "words",
    ["query timeout", "FATAL:  query_timeout", "idle transaction timeout", "client_idle_timeout"],
)
def test_the_words_of_a_pooler_that_is_in_a_hurry_come_with_what_to_set(words: str):
    assert "client_idle_timeout to 0" in str(judged(psycopg.OperationalError(words)))
    assert "client_idle_timeout to 0" in str(judged(psycopg.errors.ProtocolViolation(words)))


@pytest.mark.parametrize("place", ["role {role} in database {database}", "database {database}"])
def test_who_starts_on_a_database_that_takes_no_writes_is_told_what_ends_it(
    theirs: Callable[[LiteralString], str], postgres_url: str, place: LiteralString
):
    """It said which statement the server refused, and no more."""
    url = theirs("")
    admin = of_superuser(postgres_url, url)
    by_superuser(admin, "create extension vector")
    set_so = sql.SQL("alter " + place + " set default_transaction_read_only = on").format(
        role=sql.Identifier(ROLE), database=sql.Identifier(str(conninfo_to_dict(url)["dbname"]))
    )
    with psycopg.connect(admin, autocommit=True) as session:
        session.execute("set default_transaction_read_only = off")
        session.execute(set_so)
    with pytest.raises(
        Unavailable, match=r"default_transaction_read_only is on \(reset it"
    ) as told:
        migrate(url)
    assert told.value.code == READ_ONLY


def test_no_setting_is_in_the_first_message_of_a_session(database_url: str):
    """PgBouncer refuses `options`, or drops them."""
    with Database(database_url, size=1) as database, database.begin() as tx:
        set_by = {
            row["name"]: row["source"]
            for row in tx.execute("select name, source from pg_settings where source = 'client'")
        }
        [asked] = tx.execute("select current_setting('hnsw.ef_search') as ef_search")
    assert set_by.keys() <= {"application_name", "client_encoding"}
    assert asked == {"ef_search": "400"}


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://role:%zzhunter2@127.0.0.1/recollect",
        "mysql://role:hunter2@127.0.0.1/recollect",
        "postgresql://role:hunter2@127.0.0.1/recollect?hunter2=1",
        "postgresql://role:some@hunter2@127.0.0.1/recollect",
        "postgresql://role:hunter2/some@127.0.0.1/recollect",
        "postgresql://role:5432/hunter2@127.0.0.1/recollect",
        "host=127.0.0.1 password='some' port=hunter2",
    ],
)
def test_what_is_no_connection_string_is_not_quoted(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Each command ended with a traceback that told the password; what follows an `@` or `/` in it
    stood in errors as the name of a host, and in `/ready` as that of a replica."""
    with pytest.raises(SetupError, match=r"READ_URLS: one of them (is not|has a)") as refused:
        Replicated("postgresql://127.0.0.1/recollect", [url], size=1, name="test")
    assert "hunter2" not in f"{refused.value!r}{refused.value.__cause__!r}"
    given = {"DATABASE_URL": url, "DATA_DIR": str(tmp_path), "EMBEDDER": "none"}
    for name, value in given.items():
        monkeypatch.setenv(f"RECOLLECT_{name}", value)
    for command in (["doctor"], ["keys", "list"], ["backup", str(tmp_path / "backup.zip")]):
        told = CliRunner().invoke(cli, command)
        said = f"{told.output}{told.exception}"
        assert re.search("RECOLLECT_DATABASE_URL (is not a connection string|has a)", said)
        assert "hunter2" not in said


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ro%40le:p%40s%2Fs@127.0.0.1:5432/a%40b?application_name=a/b@c",
        "postgresql://role:a#b:c,d?e@127.0.0.1,127.0.0.2:5433/recollect",
        "postgresql:///recollect?host=/run/postgresql&user=a@b",
        "host=@socket dbname=a@b/c password='p@s/s'",
        "",
    ],
)
def test_what_is_a_connection_string_is_taken_as_one(url: str):
    check_url(url)


def test_doctor_says_why_the_database_does_not_answer(
    theirs: Callable[[LiteralString], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    url = make_conninfo(theirs(""), password="another")
    given = {"DATABASE_URL": url, "DATA_DIR": str(tmp_path), "EMBEDDER": "none"}
    for name, value in given.items():
        monkeypatch.setenv(f"RECOLLECT_{name}", value)
    told = CliRunner().invoke(cli, ["doctor"])
    assert "FAIL database: the database does not answer: " in told.output
    assert "password authentication failed" in told.output


def test_doctor_asks_a_database_that_is_away_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Four checks waited for it one after the other, 10 seconds each."""
    asked = list[str]()

    class Away(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            asked.append("and hung up on")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Away) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"postgresql://r:p@127.0.0.1:{server.server_address[1]}/r?sslmode=disable"
        given = {"DATABASE_URL": url, "DATA_DIR": str(tmp_path), "EMBEDDER": "none"}
        for name, value in given.items():
            monkeypatch.setenv(f"RECOLLECT_{name}", value)
        told = CliRunner().invoke(cli, ["doctor"])
        server.shutdown()

    assert asked == ["and hung up on"]
    assert "FAIL database: the database does not answer: " in told.output
    assert "embedder: none" in told.output


@pytest.fixture
def pooler(postgres_url: str, tmp_path: Path) -> Generator[Callable[[str, str], str]]:
    """Puts PgBouncer in that mode before a database; returns the URL by which it is reached."""
    program = shutil.which("pgbouncer")
    if program is None:
        pytest.skip("needs PgBouncer, which comes as a package of the system")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        shutil.chown(tmp_path, "nobody")  # PgBouncer refuses to run as root
    running: list[subprocess.Popen[bytes]] = []

    def start(url: str, mode: str) -> str:
        port, behind = free_port(), conninfo_to_dict(url)
        settings = tmp_path / f"{mode}.ini"
        settings.write_text(
            f"[databases]\n{behind['dbname']} = host={behind['host']}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            f"auth_type = plain\nauth_file = {tmp_path}/users\npool_mode = {mode}\n"
        )
        (tmp_path / "users").write_text(f'"{behind["user"]}" "{behind["password"]}"\n')
        as_nobody = ["--user=nobody"] if os.geteuid() == 0 else []
        running.append(subprocess.Popen([program, "--quiet", *as_nobody, settings]))
        pooled = make_conninfo(url, host="127.0.0.1", port=port)
        eventually(lambda: answers(pooled))
        return pooled

    yield start
    for one in running:
        one.terminate()
        one.wait()


def answers(url: str) -> bool:
    try:
        with psycopg.connect(url, autocommit=True) as session:
            return session.execute("select 1").fetchone() is not None
    except psycopg.OperationalError:
        return False


def test_a_pooler_that_gives_each_transaction_any_session_is_refused(
    theirs: Callable[[LiteralString], str],
    postgres_url: str,
    pooler: Callable[[str, str], str],
):
    """Where two connections had prepared statements of one name, each ran the other's."""
    url = theirs("")
    by_superuser(of_superuser(postgres_url, url), "create extension vector")
    mixing = pooler(url, "transaction")
    with pytest.raises(SetupError, match=r"pool_mode = session"):
        migrate(mixing)
    with pytest.raises(SetupError, match=r"pool_mode = session"), snapshot(mixing):
        pass
    pooled = pooler(url, "session")
    assert migrate(pooled)
    mixed = Replicated(url, [pooler(url, "transaction")], size=1, name="test")
    with pytest.raises(SetupError, match=r"pool_mode = session"), mixed:
        pass
    with Replicated(pooled, [pooled], size=1, name="test") as database:
        assert database.read(lambda tx: tx.execute("select 1 as n").fetchall()) == [{"n": 1}]


def test_two_connections_with_one_session_are_not_apart(database_url: str):
    with (
        connect(psycopg.Connection, database_url) as one,
        connect(psycopg.Connection, database_url) as other,
    ):
        assert are_apart(one, other)
        assert not are_apart(one, one)


def test_a_pooler_that_gives_two_sessions_in_turn_keeps_none_apart(database_url: str):
    with (
        connect(psycopg.Connection, database_url) as one,
        connect(psycopg.Connection, database_url) as other,
    ):
        pooled: Any = InTurns(one, other)
        assert not are_apart(pooled, pooled)


class InTurns:
    """Each statement goes to the session that waits longest."""

    def __init__(self, *sessions: psycopg.Connection[Any]) -> None:
        self._sessions = cycle(sessions)

    def cursor(self, **how: Any) -> psycopg.Cursor[Any]:
        return next(self._sessions).cursor(**how)
