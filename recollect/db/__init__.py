"""PostgreSQL: statements come in, rows go out; with transactions and wake-up calls."""

import logging
import select
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property, partial
from types import TracebackType
from typing import Any, Literal, LiteralString, Self, TypeVar, cast

import pgvector.psycopg
import psycopg
from psycopg import sql
from psycopg.abc import Params, Query
from psycopg.pq import TransactionStatus
from psycopg.rows import DictRow, dict_row
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from recollect import log, loop
from recollect.db import citus
from recollect.db.faults import first_line, judged, judging, why_away
from recollect.db.notices import NoticeListener
from recollect.db.sessions import CONNECT_TIMEOUT, PooledSession, bound, connect, line, settle
from recollect.errors import DATABASE_AWAY, Collided, DatabaseAway


class Tx(PooledSession):
    """A connection inside a transaction. Only `Database.begin` makes one; nobody else commits."""

    made_due = False
    """whether it has workers woken once it commits"""

    def bound(self, seconds: float | None) -> None:
        """As `sessions.bound`, written out: one call less at the beginning of each transaction."""
        self.__dict__["wait"] = partial(super().wait, timeout=seconds)

    def take_time(self) -> None:
        """Lift the limits of time of this transaction, for one that looks at all that there is."""
        self.execute("set local statement_timeout = 0")
        self.bound(None)

    def plan_for_any(self, settings: sql.SQL) -> None:
        """Begin with statements that `execute_planned` is to execute, and with these settings."""
        super().execute(sql.SQL("set local plan_cache_mode = force_generic_plan;") + settings)
        self.__dict__["execute"] = self._execute_for_these

    def _execute_for_these(
        self, query: Query, params: Params | None = None, **how: Any
    ) -> psycopg.Cursor[DictRow]:
        """`execute`, of a statement that is to be planned for its parameters again."""
        del self.__dict__["execute"]
        self.execute("set local plan_cache_mode = auto")
        return self.execute(cast("Any", query), params, **how)

    def execute_planned(
        self, statement: sql.SQL | sql.Composed, parameters: Mapping[str, object]
    ) -> psycopg.Cursor[DictRow]:
        """Execute a statement with a plan for any parameters, which this connection makes once.

        For a statement that is best executed in one way whatever its parameters: to plan it may
        take as long as to execute it (docs/decisions/0048).
        """
        if "execute" not in self.__dict__:
            self.plan_for_any(sql.SQL(""))
        self.prepare_threshold = sys.maxsize  # None would forbid it, for this statement, too
        try:
            return super().execute(statement, parameters, prepare=True)
        finally:
            self.prepare_threshold = None


Answer = TypeVar("Answer")
"""of what reads"""


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """How a replica fares, as this process knows it."""

    name: str
    """host and port"""
    state: Literal["new", "serves", "lags", "away"]
    reason: str
    behind: int
    """bytes of the log that it had not replayed when it was asked last"""
    served: int
    """reads that it answered"""
    passed: int
    """reads that went on to another server, or to the primary"""


LOG = log.get("db")
DUE = "recollect_due"
"""The channel that a transaction notifies when it made something due."""
AT_ONE_MOMENT = "begin isolation level repeatable read read only"
ASK_AGAIN = 1.0
TRIES = 5
"""of a transaction that collides with others"""
SLACK = timedelta(seconds=15)
"""A server that has not ended a statement so long after its limit of time counts as silent."""
LONGEST_QUEUE = 600.0  # seconds that `Database.alone` waits for those before it
START_TIMEOUT = 75.0  # seconds that the start and `doctor` give each statement
AHEAD = 8
"""Connections that are kept for what all others wait for, such as the check of a key."""
# Those who needed a connection report what its pool would.
logging.getLogger("psycopg.pool").propagate = False
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())


class Database:
    """A pool of connections to one PostgreSQL: `size` for all, and `AHEAD` more for `ahead`.

    What the server refuses or breaks off comes out of `begin` as `db.faults` judges it. The work
    was rolled back or, after `Unavailable`, its outcome is unknown: the server may have died
    during the commit.
    """

    def __init__(
        self,
        url: str,
        *,
        size: int = 10,
        statement_timeout: timedelta = timedelta(seconds=60),
        idle_timeout: timedelta = timedelta(seconds=10),
        name: str = "recollect",
        patience: timedelta = timedelta(seconds=CONNECT_TIMEOUT),
        connections: type[Tx] = Tx,
    ) -> None:
        """`name`: what the server calls its sessions, at most 63 bytes (see `db.machines`).

        `patience`: how long to wait for a connection.
        """
        self.url = url
        self._patience = patience.total_seconds()
        self._pool: ConnectionPool[Tx] = ConnectionPool(
            url,
            connection_class=connections,
            min_size=1,
            max_size=size + AHEAD,
            open=False,
            max_idle=20,  # each connection is a process with megabytes of its own
            reconnect_timeout=0,
            kwargs={
                "autocommit": True,
                "row_factory": dict_row,
                "prepare_threshold": None,
                **line(url, CONNECT_TIMEOUT),
                "application_name": name,
                "refused": self._note,
            },
            configure=self._configure,
        )
        # auto: triggers and foreign keys keep plans; our statements, not prepared, get new ones.
        # ef_search: of the 10 nearest of 100,000 entries, 400 finds 9.6; 100 finds 8.9.
        self._settings = {
            "plan_cache_mode": "auto",
            "jit": "off",  # costs are estimated too high, so it compiles for longer than it saves
            "hnsw.ef_search": "400",
            "hnsw.iterative_scan": "relaxed_order",
            "idle_in_transaction_session_timeout": str(_ms(idle_timeout)),
            "statement_timeout": str(_ms(statement_timeout)),
        }
        self._silence = (statement_timeout + SLACK).total_seconds() if statement_timeout else None
        self._size = size
        self._places = threading.Semaphore(size)
        self._refusal: psycopg.Error | None = None
        """of the last connection that was tried, unless it came up"""
        self._opened = False
        self._calling = threading.Lock()
        self._called = threading.Lock()

    def open(self) -> Self:
        """Start the pool; raises Unavailable when no connection comes up in time."""
        if not self._opened:
            self._pool.open()
            self._opened = True
        return self

    def close(self) -> None:
        self._pool.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @contextmanager
    def begin(self) -> Generator[Tx]:
        """One transaction: commits at the end of the block, rolls back when it raises."""
        with self._placed("begin") as tx:
            yield tx

    def write(self, work: Callable[[Tx], Answer]) -> Answer:
        """What `work` answers in one transaction. Where that collides with another one, all of
        `work` is done again, `TRIES` times at most, so it changes nothing but the database."""
        for _ in range(TRIES - 1):
            with suppress(Collided), self.begin() as tx:
                return work(tx)
        with self.begin() as tx:
            return work(tx)

    def read(self, work: Callable[[Tx], Answer]) -> Answer:
        """What `work` answers in a transaction that may only read.

        Where there are replicas it may be one of theirs, and `work` be done a second time, by the
        primary: it leaves nothing behind but its answer. It sees whatever was committed before, and
        nothing of what is meanwhile, unless the index lies on several servers.
        """
        with self._placed(self._reading) as tx:
            return work(tx)

    @cached_property
    def _reading(self) -> LiteralString:
        """How a read begins. There is no snapshot over servers: on several, each statement has its
        own, so that a later one may tell what has changed."""
        with self.begin() as tx:
            return "begin read only" if citus.is_spread(tx) else AT_ONE_MOMENT

    def replicas(self) -> Sequence[ReplicaState]:
        """Ask each how it fares, unless it is left alone."""
        return ()

    def refusals(self) -> Sequence[str | None]:
        """Why each of them takes up no connection; None for one that does. It may take seconds."""
        return ()

    @contextmanager
    def ahead(self) -> Generator[Tx]:
        """`begin`, for the short work that all others wait for: it has places of its own."""
        with self._transaction("begin", self._until()) as tx:
            yield tx

    @contextmanager
    def _placed(self, opening: LiteralString) -> Generator[Tx]:
        """Raises Unavailable when all places stay taken."""
        give_up = self._until()
        if not self._places.acquire(timeout=self._patience):
            raise DatabaseAway("all connections to the database are taken")
        try:
            with self._transaction(opening, give_up) as tx:
                yield tx
        finally:
            self._places.release()

    def _note(self, refusal: psycopg.Error | None) -> None:
        self._refusal = refusal

    def _configure(self, connection: Tx) -> None:
        with connection.made_ready(self._note):
            connection.bound(self._patience)
            settle(connection, self._settings)
            pgvector.psycopg.register_vector(connection)

    def _until(self) -> float:
        return time.monotonic() + self._patience

    @contextmanager
    def _transaction(self, opening: LiteralString, give_up: float) -> Generator[Tx]:
        tx = self._begun(opening, give_up)
        try:
            try:
                yield tx
            except BaseException:
                if tx.pgconn.transaction_status == TransactionStatus.ACTIVE:
                    tx.close()  # nobody reads the rest of the server's answer
                if not tx.closed:
                    _quietly(tx, "rollback")
                raise
            Tx.execute(tx, "commit")
            if tx.made_due:
                self._wake(tx)
        except psycopg.Error as error:
            if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
                tx.close()  # the next one may reach the server that took over
            raised = judged(error)
            if raised is error:
                raise
            raise raised from error
        finally:
            tx.made_due = False
            tx.__dict__.pop("execute", None)
            self._pool.putconn(tx)

    @contextmanager
    def glance(self) -> Generator[Tx]:
        """`ahead`, for one statement that only reads: it saves the ways of begin and commit."""
        tx = self._alive(self._until())
        tx.bound(self._patience)
        try:
            yield tx
        except psycopg.Error as error:
            raise judged(error) from error
        finally:
            self._pool.putconn(tx)

    @contextmanager
    def moment(self) -> Generator[Tx]:
        """A transaction that only reads and sees the same in all its statements, on all servers.

        Raises Contended at its end where it did not, since a part of the index moved meanwhile.
        """
        with self.begin() as tx:
            spread = citus.is_spread(tx)
        with self.begin() as tx:
            tx.execute("set transaction isolation level repeatable read, read only")
            seen = None
            if spread:
                with self._session() as session, citus.still(session):
                    seen = citus.look(tx)
            yield tx
            if seen is not None:
                with self._session() as session:
                    citus.refuse_moved(seen, session)

    @contextmanager
    def alone(self, name: str) -> Generator[None]:
        """Wait until no process is in a block of that name; then be in it.

        For what must not happen twice at a time and must not hold a transaction, such as calling
        somebody else. The connection that holds the lock is not one of the pool. Raises
        Unavailable after `LONGEST_QUEUE`.
        """
        with self._session() as session:
            bound(session, LONGEST_QUEUE)
            session.execute("select pg_advisory_lock(hashtextextended(%s, 0))", (name,))
            yield

    @contextmanager
    def _session(self) -> Generator[psycopg.Connection[Any]]:
        """A connection that is not one of the pool."""
        with judging(), connect(psycopg.Connection, self.url) as session:
            yield session

    def heed(self, wake: threading.Event, stop: threading.Event) -> None:
        """Set `wake` whenever something became due, until `stop`; outlives the server's absence."""
        while not stop.is_set():
            with loop.enduring(LOG, stop), closing(self.listen()) as listener:
                wake.set()
                while not stop.is_set():
                    if listener.wait(timedelta(seconds=1)):
                        wake.set()
            stop.wait(1)

    def ping(self) -> None:
        """Raises Unavailable unless the database answers."""
        with self.begin() as tx:
            tx.execute("select 1")

    def listen(self) -> NoticeListener:
        """A connection of its own that hears `notify`; the caller closes it."""
        with judging():
            connection = connect(psycopg.Connection, self.url)
            try:
                bound(connection, CONNECT_TIMEOUT)
                connection.execute("listen recollect_due")
            except BaseException:
                connection.close()
                raise
        return NoticeListener(connection)

    def _wake(self, committed: Tx) -> None:
        """Call the workers, unless another thread is about to: its call comes after our commit.

        A notice inside of a transaction would make all those that have one commit one after the
        other, each with its own flush to disk. A call that gets lost costs seconds.
        """
        if not self._called.acquire(blocking=False):
            return
        with self._calling:
            self._called.release()
            _quietly(committed, "notify recollect_due")

    def _begun(self, opening: LiteralString, give_up: float) -> Tx:
        for _ in range(self._size + AHEAD + 1):
            tx = self._alive(give_up)
            try:
                tx.bound(self._patience)  # no server that works takes longer for it
                tx.execute(opening)
                tx.bound(self._silence)
            except BaseException as error:  # whatever ends it, its place in the pool comes back
                tx.close()
                self._pool.putconn(tx)
                if not isinstance(error, psycopg.Error):
                    raise
                if time.monotonic() > give_up:
                    break
            else:
                return tx
        raise DatabaseAway(DATABASE_AWAY)

    def _alive(self, give_up: float) -> Tx:
        # A server that restarted leaves dead connections in the pool. What came in unasked is its
        # farewell, or the end: each is thrown away without a statement, and the next one tried.
        while True:
            tx = self._connection(give_up)
            heard = select.poll()
            heard.register(tx.fileno(), select.POLLIN)
            if not heard.poll(0):
                return tx
            tx.close()
            self._pool.putconn(tx)

    def _connection(self, give_up: float) -> Tx:
        # The pool tries to connect when it is asked, not while somebody waits: so ask again.
        while True:
            try:
                return self._pool.getconn(min(ASK_AGAIN, self._patience))
            except PoolTimeout as error:
                if time.monotonic() > give_up:
                    why = f": {why_away(self._refusal)}" if self._refusal else ""
                    raise DatabaseAway(f"{DATABASE_AWAY}{why}") from error
            except PoolClosed as error:
                raise judged(error) from error


def versions(tx: Tx) -> tuple[str, str]:
    """Of the server and of its extension for vectors."""
    row = tx.execute(
        "select current_setting('server_version') as server,"
        " (select extversion from pg_extension where extname = 'vector') as vector"
    ).fetchone()
    assert row is not None
    return row["server"], row["vector"]


def look_back(tx: Tx, org: str, when: datetime | None, within: Sequence[int] = ()) -> None:
    """From here on, this transaction reads the documents of an organisation as they were, out of
    the schema of migration `0039_versions`; None: as they are. `within`: only those whose scope has
    these numbers are asked for."""
    if when is not None:
        tx.execute(
            "select set_config('recollect.as_of', %s, true),"
            " set_config('recollect.as_of_org', %s, true),"
            " set_config('recollect.as_of_scope', %s::int4[]::text, true),"
            " set_config('search_path',"
            " case when current_schema() like '%%\\_as\\_of' then '' else"
            "  quote_ident(current_schema() || '_as_of') || ', ' end"
            " || current_setting('search_path'), true)",
            (when.isoformat(), org, list(within)),
        )


def notify(tx: Tx) -> None:
    """Wake the workers once this transaction has committed."""
    tx.made_due = True


def fence(tx: Tx) -> None:
    """Before a transaction takes entries away or changes them, and writes other tables: where the
    index is spread over several servers, all of them commit, or none."""
    tx.execute("select fence()")


def measure_index(tx: Tx) -> None:
    """Ask the servers that have the index how large it is, for searches to go by."""
    tx.execute("select measure_index()")


@contextmanager
def open_once(url: str) -> Generator[Tx]:
    """A transaction on a connection of its own. Raises Unavailable with the reason at the first
    failure; a pool would retry, and hide the reason."""
    with judging(), connect(Tx, url, row_factory=dict_row) as tx:
        tx.bound(START_TIMEOUT)
        with tx.transaction():
            yield tx


def now(tx: Tx) -> datetime:
    """By the one clock that all processes share; those of their machines may differ."""
    row = tx.execute("select clock_timestamp() as now").fetchone()
    assert row is not None
    return row["now"]


def takes_writes(tx: Tx) -> bool:
    """Whether the server takes writes: it is not a standby, and no setting of it, the database or
    the role makes transactions read only."""
    row = tx.execute("select current_setting('transaction_read_only') = 'off' as writes").fetchone()
    assert row is not None
    return row["writes"]


def _quietly(tx: Tx, statement: str) -> None:
    try:
        Tx.execute(tx, cast("Any", statement))
    except psycopg.Error as error:
        LOG.debug("not done", statement=statement, error=first_line(error))
        tx.close()


def _ms(duration: timedelta) -> int:
    return int(duration.total_seconds() * 1000)
