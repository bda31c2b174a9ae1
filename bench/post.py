"""POST: how long a caller waits, and how many documents a second come in, alone and in batches,
against bare durable inserts.

A bare insert is one row with the same text, committed to the same server. Latencies alternate with
it call by call. The rate is measured without a worker, which would work on what was posted
meanwhile; latency once without a worker and once while a worker ingests long documents. What the
smallest server makes of the same insert says how much of the distance is the service's own.
"""

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import psycopg

from bench import smallest
from bench.corpus import Shuffled
from bench.figures import Figure, alternate, percentile
from bench.ground import Client, Ground, Service, wait
from bench.smallest import INSERT

CLIENTS = 8
BATCH = 50
BACKLOG = 4
"""long documents that wait while latency is measured"""


@dataclass(frozen=True, slots=True)
class Size:
    posts: int
    rounds: int
    seconds: float
    """of a round, for the rate"""
    backlog: int
    """characters of each of those documents"""


FULL = Size(posts=400, rounds=5, seconds=2.0, backlog=700_000)
QUICK = Size(posts=100, rounds=2, seconds=1.0, backlog=300_000)
TINY = Size(posts=3, rounds=1, seconds=0.1, backlog=20_000)


def measure(ground: Ground, size: Size) -> Iterator[Figure]:
    texts = Shuffled(2)
    url = ground.new_database()
    _prepare(url)
    with ground.answering(url) as service:
        yield from _latency(service, url, texts, size, "idle", "nothing else to do")
        yield from _rate(service.client, url, texts, size, "rate", "POSTs")
        what = f"documents in batches of {BATCH}"
        yield from _rate(service.client, url, texts, size, "batch", what, BATCH)
    with smallest.answering(ground, url) as connect:
        what = "POSTs to the smallest server"
        yield from _rate(connect, url, texts, size, "smallest", what)
    service, url = ground.service, ground.service.database_url
    _prepare(url)
    client = service.client()
    for _ in range(BACKLOG):
        client.add(texts.document(size.backlog), containerTag="backlog")
    wait(0.5)
    yield from _latency(service, url, texts, size, "ingesting", "while ingesting")
    for tag in ("backlog", "post"):
        client.send("DELETE", "/v3/documents/bulk", {"containerTags": [tag]})


def _prepare(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as session:
        session.execute(smallest.MAKE)


def _latency(
    service: Service, url: str, texts: Shuffled, size: Size, id: str, what: str
) -> Iterator[Figure]:
    client = service.client()
    posts: list[float] = []
    inserts: list[float] = []
    with psycopg.connect(url, autocommit=True) as session:
        for number in range(size.posts + 5):
            text = texts.document(500)
            started = time.perf_counter()
            client.add(text, containerTag="post")
            posted = time.perf_counter()
            session.execute(INSERT, (text,))
            inserted = time.perf_counter()
            if number >= 5:
                posts.append(posted - started)
                inserts.append(inserted - posted)
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        took = percentile(posts, share)
        yield Figure(
            f"post.{id}.{name}",
            f"POST latency, {what}, {name}",
            took * 1000,
            "ms",
            took / percentile(inserts, share),
            "bare insert",
        )


def _rate(
    connect: Callable[[], Client],
    url: str,
    texts: Shuffled,
    size: Size,
    id: str,
    what: str,
    each: int = 1,
) -> Iterator[Figure]:
    """`each`: documents of a request."""
    some = [texts.document(500) for _ in range(200)]

    def bare(_: int) -> float:
        return _per_second(size.seconds, lambda: _inserter(url, some))

    def real(number: int) -> float:
        name = f"{id}-{number}"
        return each * _per_second(size.seconds, lambda: _poster(connect(), some, name, each))

    rates, ratios = alternate(size.rounds, bare, real)
    yield Figure(
        f"post.{id}",
        f"{what}, {CLIENTS} clients, no worker",
        statistics.median(rates),
        "/s",
        statistics.median(ratios),
        f"bare inserts, {CLIENTS} threads",
    )


def _poster(client: Client, texts: list[str], round: str, each: int) -> Iterator[None]:
    name = f"{round}-{threading.get_ident()}"
    number = 0
    while True:
        # No two the same: the service takes the same text sent twice in a row for a retry.
        some = [f"{texts[n % len(texts)]} {name}-{n}" for n in range(number, number + each)]
        if each == 1:
            client.add(some[0], containerTag="post")
        else:
            client.send("POST", "/v3/documents/batch", {"documents": some, "containerTag": "post"})
        number += each
        yield


def _inserter(url: str, texts: list[str]) -> Iterator[None]:
    with psycopg.connect(url, autocommit=True) as session:
        number = 0
        while True:
            session.execute(INSERT, (texts[number % len(texts)],))
            number += 1
            yield


def _per_second(seconds: float, make: Callable[[], Iterator[None]]) -> float:
    """How often all threads together get round in that time, connections made before."""
    together = threading.Barrier(CLIENTS)

    def work(_: int) -> tuple[int, float]:
        steps = make()
        next(steps)
        together.wait()
        started = time.perf_counter()
        count = 0
        while time.perf_counter() - started < seconds:
            next(steps)
            count += 1
        return count, time.perf_counter() - started

    with ThreadPoolExecutor(CLIENTS) as pool:
        return sum(count / taken for count, taken in pool.map(work, range(CLIENTS)))
