"""A server that stands still, as where its disk hangs: it keeps no limit of time itself."""

import asyncio
import os
import signal
import socket
import socketserver
import threading
from collections.abc import Callable, Generator
from datetime import timedelta

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import recollect.db
from recollect.db import Database, Tx, open_once, sessions
from recollect.db.schema import migrate
from recollect.errors import Contended, Unavailable
from recollect.events.listener import watch

pytestmark = pytest.mark.one_server
AT_ONCE = timedelta(milliseconds=300)
WAYS: dict[str, Callable[[Tx], object]] = {
    "a statement": lambda tx: tx.execute("select 1"),
    "the end": lambda tx: None,
    "rows sent": lambda tx: sent(tx),
    "rows asked for": lambda tx: list(tx.cursor().stream("select 1")),
}


def sent(tx: Tx) -> None:
    with tx.cursor().copy("copy kept from stdin") as copy:
        for _ in range(100_000):
            copy.write_row(["a row"])


def once(url: str) -> None:
    with open_once(url):
        pass


def hear_once(url: str) -> None:
    async def hear() -> None:
        async with watch(url):
            pass

    asyncio.run(hear())


@pytest.fixture
def db(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Generator[Database]:
    monkeypatch.setattr(recollect.db, "SLACK", AT_ONCE)
    with Database(database_url, size=3, statement_timeout=timedelta(milliseconds=200)) as db:
        yield db


@pytest.mark.parametrize("way", WAYS)
def test_it_holds_nobody_for_ever(db: Database, way: str):
    stopped = list[int]()

    def work(tx: Tx) -> None:
        tx.execute("create temporary table kept (row text)")
        stopped.append(tx.info.backend_pid)
        os.kill(tx.info.backend_pid, signal.SIGSTOP)
        WAYS[way](tx)

    try:
        with pytest.raises(Unavailable):
            db.write(work)
        with db.begin() as tx:
            assert tx.info.backend_pid not in stopped
            assert tx.execute("select 1 as n").fetchone() == {"n": 1}
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.timeout(70)  # one session alone would have 75 seconds
@pytest.mark.parametrize("kind", ["begin", "glance"])
def test_none_of_its_sessions_is_waited_for_in_turn(database_url: str, kind: str):
    with Database(database_url, size=3, patience=AT_ONCE) as db:
        with db.begin() as one, db.begin() as other, db.begin() as third:
            pids = [tx.info.backend_pid for tx in (one, other, third)]
        try:
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            with pytest.raises(Unavailable), getattr(db, kind)() as tx:
                tx.execute("select 1")
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)


def test_what_takes_its_time_has_it_for_one_transaction(db: Database):
    with db.begin() as tx:
        tx.take_time()
        tx.execute("select pg_sleep(0.6)")

    with pytest.raises(Contended), db.begin() as tx:
        tx.execute("select pg_sleep(30)")


@pytest.mark.timeout(30)
def test_it_holds_no_turn_for_ever(db: Database, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(recollect.db, "LONGEST_QUEUE", AT_ONCE.total_seconds())
    with db.alone("a name"), pytest.raises(Unavailable), db.alone("a name"):
        pass


@pytest.mark.timeout(30)
def test_it_holds_nobody_who_hears_of_documents(db: Database, monkeypatch: pytest.MonkeyPatch):
    """Each stream of events and each wait for a document hung, also once it worked again."""
    monkeypatch.setattr(sessions, "CONNECT_TIMEOUT", 1.0)

    async def hear() -> None:
        async with watch(db.url) as told:
            pid = told._connection.info.backend_pid
            os.kill(pid, signal.SIGSTOP)
            try:
                await told.renew()
            finally:
                os.kill(pid, signal.SIGCONT)

    with pytest.raises(Unavailable):
        asyncio.run(hear())
    with db.begin() as tx:
        tx.execute("delete from watchers")  # or other tests had each stage told


@pytest.mark.timeout(30)
@pytest.mark.parametrize("begin", [migrate, once, hear_once])
def test_one_that_lets_in_and_says_no_more_holds_no_start(
    begin: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
):
    """A pooler without a free session is one: the start, the doctor and commands hung."""

    class Silent(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1 << 10)
            welcome = b"R\0\0\0\x08\0\0\0\0" + b"Z\0\0\0\x05I"
            self.request.sendall(welcome)
            while self.request.recv(1 << 10):
                pass

    monkeypatch.setattr(sessions, "CONNECT_TIMEOUT", AT_ONCE.total_seconds())
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Silent) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"postgresql://r:p@127.0.0.1:{server.server_address[1]}/r?sslmode=disable"
        try:
            with pytest.raises(Unavailable, match="the database does not answer"):
                begin(f"{url}&gssencmode=disable")
        finally:
            server.shutdown()


@pytest.mark.timeout(60)
def test_one_that_is_silent_leaves_time_for_the_next(
    database_url: str, monkeypatch: pytest.MonkeyPatch
):
    """After a failover, while the machine of the old primary was gone, no service started."""
    monkeypatch.setattr(recollect.db, "CONNECT_TIMEOUT", 4.0)
    known = conninfo_to_dict(database_url)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and reads nothing
        ports = f"{silent.getsockname()[1]},{known.get('port', 5432)}"
        url = make_conninfo(database_url, host=f"127.0.0.1,{known['host']}", port=ports)
        with Database(url, size=1, patience=timedelta(seconds=3)) as db:
            db.ping()
