"""Reads that streaming replicas answer (docs/decisions/0040-reads-from-replicas.md).

Each read asks the primary how far its log is written, and a replica answers once it has replayed
so far: whatever was acknowledged before the read began, a deletion, too, is there, whoever wrote it
through whatever process. A replica that does not get there within milliseconds, is away, or follows
another line of the log is left alone for a while, and the next one or the primary answers.
"""

import socket
import struct
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, Self

import psycopg
from psycopg import ConnectionInfo
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from recollect import log
from recollect.db import AT_ONE_MOMENT, Answer, Database, ReplicaState, Tx
from recollect.db.faults import first_line, judging
from recollect.db.server_check import check_pooler
from recollect.db.sessions import why_no_url
from recollect.errors import Contended, Refused, SetupError, Unavailable
from recollect.loop import backoff

LOG = log.get("replicas")
CATCH_UP = timedelta(milliseconds=20)
"""How long a read waits for a replica to replay what the primary has written."""
LOOK = timedelta(milliseconds=1)
"""between two looks at how far it is"""
CONNECT = timedelta(milliseconds=200)
"""How long a read waits for a connection; the pool goes on connecting meanwhile."""
PATIENCE = 2  # seconds, the shortest that libpq knows
"""How long a person, or a start, waits for one, to hear why it does not come up."""
SILENCE = timedelta(seconds=10)
"""A statement that takes longer is given up, and the primary does it."""
KNOCK = timedelta(seconds=1)
"""How often a statement that takes long is a reason to ask whether the server is there at all."""
ANSWER = timedelta(milliseconds=500)
"""How long it has to say so."""
WORD_LASTS = timedelta(seconds=10)
"""How long a word of the primary holds: a replica that begins to follow another server may still
answer for as long."""
WORDS = 100
"""that are kept: the newest"""
LEAST_REST, MOST_REST = timedelta(milliseconds=250), timedelta(seconds=30)
"""How long a replica is left alone: twice as long each time, until it serves again."""
NO_REPLICA = (
    "it does not follow the primary: build the replica again, or take it out of RECOLLECT_READ_URLS"
)
TAKES_WRITES = (
    "it takes writes itself, as a primary does: take it out of RECOLLECT_READ_URLS, or, where"
    " another server is the primary, build it again as a replica of that"
)
LASTING = 5
"""After so many rests a lag is told; under load each replica lags for moments, many times a minute,
which costs nothing."""
LINE = {
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
"""As `sessions.LINE`, with less patience: there are others to ask."""

# What is committed was flushed before anyone saw it.
_MARK = (
    "select pg_current_wal_flush_lsn()::text as position, line,"
    " (select word from lineages where lineages.line = here.line) as word from (select"
    " concat_ws('.', (select system_identifier from pg_control_system()),"
    "  (select oid from pg_database where datname = current_database()),"
    "  left(pg_walfile_name(pg_current_wal_flush_lsn()), 8),"
    "  lpad(div(extract(epoch from now())::int8, %s)::text, 12, '0')) as line) as here"
)
PAUSED = "for its replay is paused: `select pg_wal_replay_resume()` there ends that"
_STANDS = (
    "select pg_is_in_recovery() as replays,"
    " case when pg_is_in_recovery() then pg_is_wal_replay_paused() end as paused,"
    " exists (select from lineages where word = %(word)s) as follows,"
    " greatest(0, pg_wal_lsn_diff(%(position)s, pg_last_wal_replay_lsn()))::int8 as behind"
)


@dataclass(frozen=True, slots=True)
class _Mark:
    """How far the primary's log is written, and the word in it that tells it from others."""

    position: str
    word: str


class _PassedError(Exception):
    """The replica does not answer this read; `begun`: it broke off in the middle."""

    def __init__(self, state: Literal["lags", "away"], reason: str, *, begun: bool = False) -> None:
        super().__init__(reason)
        self.state: Literal["lags", "away"] = state
        self.begun = begun


class _ReplicaTx(Tx):
    """One that does not wait for long for a server that fell silent."""

    def bound(self, seconds: float | None) -> None:
        """Ignored: a replica has a shorter limit of its own, SILENCE."""

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        try:
            return super().wait(self._knocking(gen), interval, timeout or SILENCE.total_seconds())
        except (psycopg.OperationalError, _PassedError):
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                self.close()  # what it may still answer is nobody's any more
            raise

    def _knocking(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """`gen`, for which the connection waits; meanwhile the server has to show that it is there,
        or _PassedError is raised: one that stands still holds a read only so long."""
        asked = time.monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() - asked >= KNOCK.total_seconds():
                    if not _answers(self.info):
                        raise _PassedError("away", "it is silent")
                    asked = time.monotonic()
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value


class Replica(Database):
    """A pool of connections to one replica, and how it fares."""

    def __init__(self, url: str, *, size: int) -> None:
        """Raises SetupError if `url` is not a connection string."""
        if why := why_no_url(url):
            raise SetupError(f"RECOLLECT_READ_URLS: one of them {why}")
        said = conninfo_to_dict(url)
        super().__init__(
            make_conninfo(url, **{name: value for name, value in LINE.items() if name not in said}),
            size=size,
            patience=CONNECT,
            connections=_ReplicaTx,
        )
        self.name = f"{said.get('host', 'localhost')}:{said.get('port', 5432)}"
        self.busy = 0
        """reads under way"""
        self.served = 0
        self.passed = 0
        self._behind = 0
        self._state: Literal["new", "serves", "lags", "away"] = "new"
        self._told = self._state
        self._reason = ""
        self._rests = 0
        self._rest_until = 0.0
        self._lock = threading.Lock()
        self._closing = threading.Event()

    def close(self) -> None:
        self._closing.set()
        self._pool.close(timeout=0)  # not for what it still waits for of a server that is silent

    def refusal(self) -> str | None:
        """Why it takes up no connection; the pool, which connects, does not tell. None: it does."""
        try:
            with judging("it does not answer"):
                psycopg.connect(self.url, connect_timeout=PATIENCE).close()
        except (psycopg.Error, Unavailable) as error:
            return first_line(error)
        return None

    def standing(self) -> ReplicaState:
        return ReplicaState(
            self.name, self._state, self._reason, self._behind, self.served, self.passed
        )

    def count(self, *, served: bool) -> None:
        with self._lock:
            self.served += served
            self.passed += not served

    def is_left_alone(self) -> bool:
        return time.monotonic() < self._rest_until

    def take(self) -> bool:
        """Whether a read may go there and finds a connection; the first after a rest is alone."""
        with self._lock:
            if self.is_left_alone() or self.busy >= self._size:
                return False
            if self._rests:
                self._rest()
            self.busy += 1
            return True

    def ask(self, mark: _Mark, work: Callable[[Tx], Answer]) -> Answer:
        """What `work` answers there, after `take`.

        Raises as `work`, and _PassedError where it is to be asked elsewhere.
        """
        begun = False
        try:
            opening = "begin isolation level read committed read only"
            with self._transaction(opening, self._until()) as tx:
                self._catch_up(tx, mark)
                tx.execute("commit")
                tx.execute(AT_ONE_MOMENT)
                begun = True
                answer = work(tx)
        except _PassedError as passed:
            passed.begun = begun
            self._fares(passed.state, str(passed))
            raise
        except Exception as error:
            passed = _passed(error, begun=begun)
            if passed is None:
                self._fares("serves")
                raise
            # That it replays what removes the rows that we read is no fault of it.
            self._fares("serves" if passed.state == "lags" else "away", str(passed))
            raise passed from error
        except BaseException:
            self._fares("serves")
            raise
        self._fares("serves")
        return answer

    def _catch_up(self, tx: Tx, mark: _Mark) -> None:
        """Wait until it has replayed the log up to the mark; raises _PassedError."""
        values = {"position": mark.position, "word": mark.word}
        give_up = time.monotonic() + CATCH_UP.total_seconds()
        while True:
            # Of this transaction each statement has a snapshot of its own.
            try:
                row = tx.execute(_STANDS, values).fetchone()
            except psycopg.errors.UndefinedTable as error:  # another program's database
                raise _PassedError("away", NO_REPLICA) from error
            assert row is not None
            self._behind = row["behind"]
            if not row["behind"] or not row["replays"]:  # which will be behind for ever
                break
            if time.monotonic() >= give_up:
                behind = f"{row['behind']} bytes of the log are not replayed"
                raise _PassedError("lags", behind + (f", {PAUSED}" if row["paused"] else ""))
            self._closing.wait(LOOK.total_seconds())
        if not row["replays"]:
            raise _PassedError("away", TAKES_WRITES)
        if not row["follows"]:
            raise _PassedError("away", NO_REPLICA)

    def _fares(self, state: Literal["serves", "lags", "away"], reason: str = "") -> None:
        with self._lock:
            self.busy -= 1
            self._state, self._reason = state, reason
            if state == "serves":
                self._rests, self._rest_until = 0, 0.0
            elif not self.is_left_alone():
                self._rest()
            is_news = state != self._told and (state != "lags" or self._rests >= LASTING)
            if is_news:
                self._told = state
        if not is_news:
            return
        if state == "serves":
            LOG.info("replica serves", replica=self.name)
        else:
            LOG.warning("replica left alone", replica=self.name, state=state, reason=reason)

    def _rest(self) -> None:
        self._rests += 1
        self._rest_until = (
            time.monotonic() + backoff(self._rests, LEAST_REST, MOST_REST).total_seconds()
        )


class Replicated(Database):
    """A primary, and replicas of it that answer reads."""

    def __init__(self, url: str, replicas: Sequence[str], *, size: int, name: str) -> None:
        """Raises SetupError for what is not the URL of a replica. `open` raises it for a pooler in
        transaction mode."""
        super().__init__(url, size=size, name=name)
        self._replicas = [Replica(one, size=size) for one in replicas]

    def open(self) -> Self:
        with ExitStack() as opened:
            super().open()
            opened.callback(super().close)
            for replica in self._replicas:
                with suppress(Unavailable), judging():  # one that is away is left alone
                    check_pooler(replica.url, patience=PATIENCE)
                replica.open()
            opened.pop_all()
        return self

    def close(self) -> None:
        for replica in self._replicas:
            replica.close()
        super().close()

    def read(self, work: Callable[[Tx], Answer]) -> Answer:
        if all(replica.is_left_alone() for replica in self._replicas):
            return super().read(work)
        mark = self._mark()
        for replica in sorted(self._replicas, key=lambda one: (one.busy, one.served)):
            if not replica.take():
                continue
            try:
                answer = replica.ask(mark, work)
            except _PassedError as passed:
                replica.count(served=False)
                if passed.begun:
                    break  # it may take long, and is begun a second time, not a third
            else:
                replica.count(served=True)
                return answer
        return super().read(work)

    def replicas(self) -> Sequence[ReplicaState]:
        mark = self._mark()
        for replica in self._replicas:
            if replica.take():
                with suppress(_PassedError):
                    replica.ask(mark, lambda _: None)
        return [replica.standing() for replica in self._replicas]

    def refusals(self) -> Sequence[str | None]:
        return [replica.refusal() for replica in self._replicas]

    def _mark(self) -> _Mark:
        """Raises Unavailable."""
        with self.glance() as tx:
            try:
                row = tx.execute(_MARK, (int(WORD_LASTS.total_seconds()),)).fetchone()
            except psycopg.errors.ObjectNotInPrerequisiteState as error:
                tx.close()  # the next one may reach the server that took over
                raise Unavailable("the database is not a primary") from error
        assert row is not None
        if row["word"] is not None:
            return _Mark(row["position"], row["word"])
        with self.begin() as tx:
            tx.execute(
                "insert into lineages (line) values (%s) on conflict do nothing", (row["line"],)
            )
            tx.execute(
                "delete from lineages where line in"
                " (select line from lineages order by right(line, 12) desc offset %s)",
                (WORDS,),
            )
        return self._mark()


def _answers(server: ConnectionInfo) -> bool:
    """Whether the server takes up a connection and says a word. A process that stands still, and
    a machine that is off the network, do not."""
    does_it_speak_tls = struct.pack("!ii", 8, 80877103)  # any server says yes or no
    by_path = server.host.startswith("/")
    try:
        with socket.socket(socket.AF_UNIX if by_path else _family(server)) as line:
            line.settimeout(ANSWER.total_seconds())
            line.connect(
                f"{server.host}/.s.PGSQL.{server.port}"
                if by_path
                else (server.hostaddr, server.port)
            )
            line.sendall(does_it_speak_tls)
            return line.recv(1) != b""
    except OSError:
        return False


def _family(server: ConnectionInfo) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in server.hostaddr else socket.AF_INET


def _passed(error: Exception, *, begun: bool) -> _PassedError | None:
    """That another server is to do the work; None: its error is the answer."""
    cause = error if isinstance(error, psycopg.Error) else error.__cause__
    if begun and (
        not isinstance(cause, psycopg.Error)
        or isinstance(error, Refused)
        or isinstance(cause, psycopg.errors.QueryCanceled)
    ):
        return None
    if not isinstance(error, psycopg.Error | Contended | Unavailable | Refused):
        return None
    state = "lags" if isinstance(error, Contended) else "away"
    return _PassedError(state, first_line(error), begun=begun)
