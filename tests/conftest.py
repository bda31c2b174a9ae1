"""What tests share: one real PostgreSQL, a database per worker, an organisation per test."""

import atexit
import fcntl
import gc
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from ipaddress import ip_network
from pathlib import Path
from random import SystemRandom
from typing import Any, LiteralString

import httpx
import psycopg
import pytest
import structlog
import uvicorn
from hypothesis import HealthCheck, settings
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from structlog.testing import LogCapture
from structlog.typing import EventDict, Processor

from recollect.app import App, index_identity
from recollect.blobs import open_blobs
from recollect.cli._process import listen
from recollect.cli._wire import BoundedHttp
from recollect.cli.api import website
from recollect.config import Config
from recollect.db import Database
from recollect.db.embedded import Embedded
from recollect.db.schema import migrate
from recollect.db.server_roles import SERVICE
from recollect.extract import Sandbox
from recollect.fetch import Fetcher
from recollect.index.vector_index import adopt
from recollect.inference.transcribe import Listener
from recollect.model import Org, Plan, Scope, Tenant
from recollect.ops import verify
from recollect.orgs import audit, orgs
from tests.fakes import citus, clusters
from tests.fakes.embedder import WordEmbedder
from tests.fakes.spread import WatchedTx

LOOPBACK = ip_network("127.0.0.0/8")
MOST_CPU_SECONDS = 3
"""of a test that every change runs, on a quiet machine of `QUIET_PACE`; where others work beside
it may take four times as many, and more on a slower machine"""
QUIET_PACE = 0.022
"""CPU seconds of a million additions"""
CONNECTIONS = 12
"""to the database, of the process under test"""
_PAUSE = threading.Event()
_SOON = (0.002, 0.004, 0.008, 0.016, 0.032)
"""Seconds between the first looks of `eventually`: most of what it waits for is nearly there."""
gc.disable()  # until all tests are collected: what that makes, stays
_PORTS = range(20_000, 32_000)
"""Below those that Linux gives to connections, which come and go by the thousand."""
_reserved: list[socket.socket] = []


def pytest_configure(config: pytest.Config) -> None:
    """Properties are judged by what they say, on a machine that stalls, too; and each run of what
    every change runs has the same examples. The night, which has all tests, draws new ones."""
    settings.register_profile(
        "recollect",
        deadline=None,
        derandomize="not slow" in config.option.markexpr,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("recollect")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu", metavar="FILE", help="write what each test costs, in CPU seconds")
    parser.addoption(
        "--citus",
        action="store_true",
        help=f"on a cluster of a coordinator and two workers ({citus.ARCHIVE} names the extension)",
    )
    parser.addoption(
        "--provider",
        action="append",
        metavar="NAME",
        help="of the conformance suite, run the part of this provider (may be given again)",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--citus"):
        alone = [item for item in items if item.get_closest_marker("one_server")]
        config.hook.pytest_deselected(items=alone)
        items[:] = [item for item in items if item not in alone]
    wanted: list[str] | None = config.getoption("--provider")
    if wanted is None:
        return

    def left_out(item: pytest.Item) -> bool:
        _, bracket, ids = item.name.partition("[")
        own = item.path.name.startswith("test_conformance") and bracket
        return bool(own) and not any(ids.rstrip("]").endswith(name) for name in wanted)

    config.hook.pytest_deselected(items=[item for item in items if left_out(item)])
    items[:] = [item for item in items if not left_out(item)]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """The processes of a run in turn: the others find compiled what the first had to compile."""
    with Path(__file__).open() as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        return (yield)


def pytest_collection_finish() -> None:
    """The collector never looks at ten thousand tests again, which took it 0.3 s each time."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """What every change runs stays cheap; with `--cpu`, write down what each test cost."""
    began, started = _cpu_seconds(), time.monotonic()
    done = yield
    # A child of an earlier test may end in this one, which has no more than the cores can do.
    most_possible = (time.monotonic() - started) * (os.cpu_count() or 1)
    spent = min(_cpu_seconds() - began, most_possible)
    if file := item.config.getoption("--cpu"):
        with Path(file).open("a") as lines:
            lines.write(f"{spent:.2f} {item.nodeid}\n")
    by_day = not any(item.get_closest_marker(name) for name in ("slow", "costly"))
    most = 4 * MOST_CPU_SECONDS
    if by_day and spent > most and spent > most * _pace() / QUIET_PACE:
        pytest.fail(f"it took {spent:.1f} CPU seconds: make it cheaper, or mark it slow")
    return done


def _pace() -> float:
    began, total = time.thread_time(), 0
    for number in range(1_000_000):
        total += number
    return time.thread_time() - began


def _cpu_seconds() -> float:
    """Of this process and of those children of it that have ended."""
    return sum(
        used.ru_utime + used.ru_stime
        for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def examples(*, change: int, night: int) -> int:
    """How many a dear property has: each change repeats the same few, the night draws many."""
    chosen = settings.default
    assert chosen is not None
    return change if chosen.derandomize else night


def eventually(holds: Callable[[], Any], timeout: float = 60.0) -> Any:
    """Ask until it holds, and return what it answered; fails when it never does."""
    for pause in (*_SOON, *[0.05] * int(timeout / 0.05)):
        if found := holds():
            return found
        _PAUSE.wait(pause)
    raise AssertionError(f"did not come true within {timeout} s")


@pytest.fixture(scope="session")
def short_tmp() -> Generator[Path]:
    """A folder that PostgreSQL's unprivileged user may pass through (pytest's own is closed)."""
    memory = Path("/dev/shm")  # a disk's fsync is slow and proves nothing here
    parent = memory if os.access(memory, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="recollect-test-", dir=parent))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def one_cluster_is_made(short_tmp: Path) -> Generator[None]:
    with clusters.copied(short_tmp / "first-cluster"):
        yield


@pytest.fixture(scope="session", autouse=True)
def statements_are_watched() -> Generator[None]:
    """No test sends what a cluster of Citus would refuse."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(Database.__init__.__kwdefaults__ or {}, "connections", WatchedTx)
        yield


@pytest.fixture(scope="session")
def citus_cluster(pytestconfig: pytest.Config, short_tmp: Path) -> Generator[citus.Cluster | None]:
    """Servers of this test process that share an index; none without `--citus`."""
    if not pytestconfig.getoption("--citus"):
        yield None
        return
    with citus.running(short_tmp / "citus", free_port) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def server(short_tmp: Path, citus_cluster: citus.Cluster | None) -> Generator[Embedded | None]:
    """A server of this test process; none if RECOLLECT_TEST_DATABASE_URL names another one."""
    if citus_cluster is not None or os.environ.get("RECOLLECT_TEST_DATABASE_URL"):  # noqa: TID251 # the tests' own switch
        yield None
        return
    server = Embedded(short_tmp / "shared")
    server.ensure()
    with psycopg.connect(server.superuser_url, autocommit=True) as session:
        # Nobody crashes this server: it need not write whole pages again after each database made.
        session.execute("alter system set full_page_writes = off")
        session.execute("select pg_reload_conf()")
        # To make what triggers and references would not let be: damage, and many rows at once.
        session.execute(_naming("grant set on parameter session_replication_role to {}", SERVICE))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def postgres_url(server: Embedded | None, citus_cluster: citus.Cluster | None) -> str:
    """Of the server's superuser, who makes databases."""
    if citus_cluster is not None:
        return citus_cluster.coordinator.url("postgres", citus.SUPERUSER)
    if server is not None:
        return server.superuser_url
    return os.environ["RECOLLECT_TEST_DATABASE_URL"]  # noqa: TID251 # the tests' own switch


@pytest.fixture(scope="session")
def copy_database(
    server: Embedded | None, citus_cluster: citus.Cluster | None, postgres_url: str
) -> Generator[Callable[[str], str]]:
    """Makes copies of a database that nobody is connected to; all are dropped at the end."""
    if citus_cluster is not None:
        yield citus_cluster.copy
        return
    made: list[str] = []

    def copy(url: str) -> str:
        name = f"test_{uuid.uuid4().hex[:12]}"
        with psycopg.connect(postgres_url, autocommit=True) as session:
            # Of files, which takes a fifth of what pages through the log take.
            session.execute(
                _naming(
                    "create database {} template {} strategy file_copy",
                    name,
                    str(conninfo_to_dict(url)["dbname"]),
                )
            )
        made.append(name)
        # What the service may do with a database is not copied along.
        return make_conninfo(url, dbname=name) if server is None else server.prepare(name)

    yield copy
    with psycopg.connect(postgres_url, autocommit=True) as session:
        for name in made:
            session.execute(_naming("drop database {} with (force)", name))


@pytest.fixture(scope="session")
def new_database(
    server: Embedded | None,
    citus_cluster: citus.Cluster | None,
    postgres_url: str,
    copy_database: Callable[[str], str],
) -> Generator[Callable[[], str]]:
    """Makes empty, migrated databases, all copies of one: to migrate takes ten times as long.

    Tests work in them as the service does: not as the superuser.
    """
    if citus_cluster is not None:  # whose databases cannot be copied
        yield citus_cluster.new_database
        return
    name = f"test_{uuid.uuid4().hex[:12]}_empty"
    url = make_conninfo(postgres_url, dbname=name)
    with psycopg.connect(postgres_url, autocommit=True) as session:
        session.execute(_naming("create database {}", name))
        migrate(url if server is None else server.prepare(name))
        session.execute(_naming("alter database {} allow_connections false", name))
    yield lambda: copy_database(url)
    with psycopg.connect(postgres_url, autocommit=True) as session:
        session.execute(_naming("drop database {} with (force)", name))


def _naming(statement: LiteralString, *names: str) -> sql.Composed:
    return sql.SQL(statement).format(*map(sql.Identifier, names))


@pytest.fixture(scope="session")
def database_url(new_database: Callable[[], str]) -> str:
    """The migrated database of this worker."""
    return new_database()


@pytest.fixture(scope="session")
def db(database_url: str) -> Generator[Database]:
    """Transactions on this worker's database."""
    with Database(database_url, size=CONNECTIONS) as database:
        yield database
        # Whatever any test did: what lists count is what there is.
        with database.moment() as tx:
            assert tx.execute(verify.LISTS_MISCOUNTED).fetchall() == []


@pytest.fixture(autouse=True)
def plain_context() -> None:
    """Undo what the test before, or a command that it ran in this process, left of the log's
    settings and of the actor."""
    audit.act(audit.SERVICE)
    structlog.reset_defaults()
    plain = structlog.dev.ConsoleRenderer(
        colors=False, exception_formatter=structlog.dev.plain_traceback
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            plain,
        ],
        # Asked for each line: what captures it, of a test or of a command, comes and goes.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )


@contextmanager
def capture_logs(processors: Sequence[Processor] = ()) -> Generator[list[EventDict]]:
    """As structlog's, which empties the list of processors for a moment, in which other threads
    may have something to say."""
    seen = LogCapture()
    before = structlog.get_config()["processors"]
    structlog.configure(processors=[*processors, seen])
    try:
        yield seen.entries
    finally:
        structlog.configure(processors=before)


@pytest.fixture(scope="session")
def embedder() -> WordEmbedder:
    return WordEmbedder()


@pytest.fixture(scope="session")
def app(db: Database, embedder: WordEmbedder, short_tmp: Path) -> Generator[App]:
    """A process without its loops: `worker.drain(app)` works the queue inline."""
    # Other machines may reach it, so it answers under any name, as that of Starlette's client.
    config = Config(
        host="0.0.0.0",
        data_dir=short_tmp / "app",
        workers=1,
        allow_networks=[LOOPBACK],
    )
    with db.begin() as tx:
        adopt(tx, *index_identity(embedder))
    with Sandbox(workers=1) as sandbox:
        fetcher = Fetcher(user_agent="RecollectBot/test", allow_networks=[LOOPBACK])
        yield App(
            config=config,
            db=db,
            blobs=open_blobs(config.blobs),
            embedder=embedder,
            fetcher=fetcher,
            sandbox=sandbox,
            listener=Listener(None),
        )
        fetcher.close()


@contextmanager
def fresh_org(db: Database, name: str | None = None) -> Generator[Org]:
    """An organisation of its own; with it goes all that a test left behind."""
    with db.begin() as tx:
        made = orgs.create(tx, name or f"org-{uuid.uuid4().hex[:12]}", Plan.ENTERPRISE)
    yield made
    with db.begin() as tx:
        tx.execute("delete from orgs where id = %s", (made.id,))


@pytest.fixture
def org(db: Database) -> Generator[Org]:
    with fresh_org(db) as made:
        yield made


@pytest.fixture
def house(db: Database) -> Generator[Org]:
    """The default organisation, whose admins run the service."""
    with fresh_org(db, orgs.DEFAULT) as made:
        yield made


@pytest.fixture
def tenant(org: Org) -> Tenant:
    return Tenant(org.id)


@pytest.fixture
def key(db: Database, org: Org) -> str:
    with db.begin() as tx:
        return orgs.create_key(tx, org.id, scope=Scope.ADMIN)[1]


@contextmanager
def serving(app: App, host: str = "127.0.0.1") -> Generator[str]:
    """The API on real HTTP, in a thread of this process; yields its address."""
    listening = listen(app.config.model_copy(update={"host": host, "port": 0}))
    server = uvicorn.Server(
        uvicorn.Config(
            website(app),
            fd=listening.fileno(),
            http=BoundedHttp,
            ws="none",
            log_config=None,
            access_log=False,
        )
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    eventually(lambda: server.started)
    with listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


@pytest.fixture(scope="session")
def live_url(app: App) -> Generator[str]:
    """The API on real HTTP."""
    with serving(app) as url:
        yield url


def plain_client(url: str, headers: Mapping[str, str]) -> httpx.Client:
    """On loopback: to read the certificates of the machine takes longer than a test asks."""
    return httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False, verify=False)


@pytest.fixture
def client(live_url: str, key: str) -> Generator[httpx.Client]:
    """HTTP with the key of this test's organisation."""
    headers = {"Authorization": f"Bearer {key}"}
    with plain_client(live_url, headers) as http:
        yield http


@dataclass(frozen=True, slots=True)
class Service:
    """`recollect serve`, as a user starts it."""

    url: str
    key: str
    data_dir: Path
    process: subprocess.Popen[bytes]
    log: Path

    def client(self) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.key}"}
        return plain_client(self.url, headers)


def free_port() -> int:
    """A port of loopback that nobody else takes before it is used.

    No other test process gets it as long as this one lives: a name that it binds says so.
    """
    if sys.platform != "linux":
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return probe.getsockname()[1]
    for port in SystemRandom().sample(_PORTS, 200):
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0recollect test port {port}")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            name.close()
            continue
        _reserved.append(name)
        return port
    raise AssertionError("no port is free")


@cache
def _model() -> Path:
    """Where the first service leaves the model that it takes seconds to build, for the others."""
    folder = Path(tempfile.mkdtemp(prefix="recollect-model-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _copy_model(source: Path, target: Path) -> None:
    target.mkdir(exist_ok=True)
    # The graph before what tells that it is whole, as the service does it.
    for kind in ("spm", "onnx", "json"):
        _copy_missing(source, target, f"embedder-*.{kind}")


def _copy_missing(source: Path, target: Path, pattern: str) -> None:
    for file in source.glob(pattern):
        if not (target / file.name).exists():
            shutil.copy(file, target)


RECOLLECT = (sys.executable, "-m", "recollect")


def start_service(
    data_dir: Path, *, program: Sequence[str] = RECOLLECT, **settings: str
) -> Service:
    """Start `recollect serve` on a free port, and wait until it is ready.

    In a new folder it gets a copy of the cluster that this process made.
    """
    data_dir.mkdir(parents=True, exist_ok=True)
    if "database_url" not in settings and not (data_dir / "postgres").exists():
        Embedded(data_dir)._init()
    return start_as_it_is(data_dir, program=program, **settings)


def start_as_it_is(
    data_dir: Path, *, program: Sequence[str] = RECOLLECT, **settings: str
) -> Service:
    """The same, with what is in the folder: in a new one it makes its cluster itself."""
    port = free_port()
    data_dir.mkdir(parents=True, exist_ok=True)
    log = data_dir / "serve.log"
    _copy_model(_model(), data_dir / "cache")
    environment = {
        **os.environ,  # noqa: TID251 # the child needs PATH and the like
        "RECOLLECT_DATA_DIR": str(data_dir),
        "RECOLLECT_PORT": str(port),
        "RECOLLECT_ALLOW_NETWORKS": "127.0.0.0/8",
        **{f"RECOLLECT_{name.upper()}": value for name, value in settings.items()},
    }
    with log.open("ab") as out:
        process = subprocess.Popen(
            [*program, "serve"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    url = f"http://127.0.0.1:{port}"

    def ready() -> bool:
        assert process.poll() is None, log.read_text()
        try:
            return asking.get("/ready", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    with plain_client(url, {}) as asking:
        eventually(ready, timeout=120)
    _copy_model(data_dir / "cache", _model())
    key = settings.get("api_key") or (data_dir / "api-key").read_text().strip()
    return Service(url, key, data_dir, process, log)


def stop_service(service: Service) -> None:
    service.process.terminate()
    service.process.wait(60)


FOLDERS = "folders"
"""beside the service's own: what it may read"""


@pytest.fixture(scope="session")
def service_settings() -> Mapping[str, str]:
    return {}


@pytest.fixture(scope="session")
def service(short_tmp: Path, service_settings: Mapping[str, str]) -> Generator[Service]:
    """The whole service with its real embedding model: supervisor, database, API, worker."""
    (short_tmp / FOLDERS).mkdir()
    folders = str(short_tmp / FOLDERS)
    running = start_as_it_is(short_tmp / "service", folders=folders, **service_settings)
    yield running
    stop_service(running)


def facet(tx: psycopg.Connection[Any]) -> None:
    """What the service does before it writes entries, for documents that a test wrote itself."""
    tx.execute("select facet(array_agg(id), array_agg(chunks)) from documents")


def pretty(value: object) -> str:
    return json.dumps(value, indent=2, default=str)
