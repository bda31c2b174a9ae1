"""Reads a second from a primary alone, with one, and with two streaming replicas of it.

A read is a stand-in that takes a session of its server for a fixed time, and a server has few
sessions, so that the cores of one machine do not limit what several would do. What is measured is
what the way of a read costs: to ask the primary for its position, to choose, to wait for the
replaying, while another process writes. How fast a server searches is that of `search`.
"""

import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

from bench.figures import Figure
from bench.ground import Ground, until
from recollect.db import Database, Tx
from recollect.db.embedded import Embedded
from recollect.db.replicas import Replicated
from recollect.db.schema import migrate
from tests.conftest import free_port
from tests.fakes.streaming import Standby, standing_by

SESSIONS = 4
"""of each server that reads take"""
WRITES = 0.02
"""seconds between two"""


@dataclass(frozen=True, slots=True)
class Size:
    seconds: float
    """of a measurement"""
    read: float
    """seconds that a read takes"""


FULL = Size(seconds=20.0, read=0.25)
QUICK = Size(seconds=8.0, read=0.25)
TINY = Size(seconds=1.0, read=0.1)


def measure(ground: Ground, size: Size) -> Iterator[Figure]:
    with ExitStack() as stack:
        primary = Embedded(ground.new_folder(with_model=False), port=free_port())
        migrate(primary.ensure())
        stack.callback(primary.stop)
        standbys = [
            stack.enter_context(
                standing_by(Standby(primary, ground.tmp / f"standby-{number}", free_port()))
            )
            for number in range(2)
        ]
        stack.enter_context(_writing(primary.url))
        urls = [one.url("recollect") for one in standbys]
        rates = [_rate(primary.url, urls[:number], size) for number in range(3)]
        alone, replica = _single(primary.url, []), _single(primary.url, urls[:1])
    yield Figure(
        "replicas.none",
        "reads by the primary alone",
        rates[0],
        "/s",
        rates[0] * size.read / SESSIONS,
        f"{SESSIONS} sessions, {size.read:g} s each",
    )
    for number, name in enumerate(("first", "second"), 1):
        yield Figure(
            f"replicas.{name}",
            f"reads with {number} of them",
            rates[number],
            "/s",
            (rates[number] - rates[number - 1]) / rates[0],
            "what the primary alone does, for the added one",
        )
    yield Figure(
        "replicas.read",
        "one short read, by a replica",
        replica * 1000,
        "ms",
        replica / alone,
        "by the primary without replicas",
    )


def _opened(url: str, replicas: Sequence[str]) -> Replicated:
    db = Replicated(url, replicas, size=SESSIONS, name="bench").open()
    until(lambda: all(one.state == "serves" for one in db.replicas()))
    return db


def _rate(url: str, replicas: Sequence[str], size: Size) -> float:
    """Reads a second by as many clients as all servers have sessions for."""
    with _opened(url, replicas) as db:
        end = time.monotonic() + size.seconds

        def read(_: int) -> int:
            done = 0
            while time.monotonic() < end:
                db.read(lambda tx: tx.execute("select pg_sleep(%s)", (size.read,)))
                done += 1
            return done

        clients = SESSIONS * (1 + len(replicas))
        with ThreadPoolExecutor(clients) as pool:
            return sum(pool.map(read, range(clients))) / size.seconds


def _single(url: str, replicas: Sequence[str]) -> float:
    """Seconds of a read of one row, at the median."""
    took: list[float] = []
    with _opened(url, replicas) as db:
        for _ in range(300):
            began = time.perf_counter()
            db.read(_count)
            took.append(time.perf_counter() - began)
    return statistics.median(took)


def _count(tx: Tx) -> object:
    return tx.execute("select count(*) from orgs").fetchone()


def _writing(url: str) -> ExitStack:
    """Commit a little again and again, until it is closed."""
    stack, over = ExitStack(), threading.Event()
    db = stack.enter_context(Database(url, size=1))
    with db.begin() as tx:
        tx.execute("create table written as select 1 as n")

    def write() -> None:
        while not over.wait(WRITES):
            with db.begin() as tx:
                tx.execute("insert into written values (1)")

    thread = threading.Thread(target=write)
    thread.start()
    stack.callback(thread.join)
    stack.callback(over.set)
    return stack
