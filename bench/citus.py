"""One server, and Citus with two workers: the CPU that each takes for a document and a search.

`python -m bench.citus [DOCUMENTS]`, with `RECOLLECT_TEST_CITUS` naming the extension (see
`tests/fakes/citus.py`). All servers are on this machine, so what counts is not how long anything
takes but how much of it the coordinator does, which is what several machines would share out: CPU
seconds of the servers' processes, and whether answers are the same. Documents of ten chunks of
made-up words and vectors are indexed by the product's own statements.
"""

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import numpy as np
import psutil
import psycopg
from numpy.typing import NDArray

from bench.fill import Filling, default_tenant, fill, open_database
from bench.ground import KEY, Ground
from recollect.app import prepare
from recollect.config import Config
from recollect.db import Database
from recollect.index import vector_index
from recollect.model import Tenant
from recollect.search import hybrid
from recollect.search.hybrid import Query
from tests.conftest import free_port
from tests.fakes import citus

DIMENSIONS, PER_DOCUMENT, WORDS, TAGS = 384, 10, 130, 100
SEARCHES, SHARDS = 60, 4


@dataclass(frozen=True, slots=True)
class Site:
    """A database, and the process of each server that has some of it; the first coordinates."""

    db: Database
    tenant: Tenant
    servers: Sequence[psutil.Process]

    def cpu(self) -> list[float]:
        """Seconds of each server up to now, also by sessions that have ended."""
        return [
            sum(sum(one.cpu_times()[:2]) for one in server.children()) + sum(server.cpu_times()[:4])
            for server in self.servers
        ]

    def spent(self, work: Callable[[], object], times: int) -> list[float]:
        """CPU milliseconds of each server for one of so many."""
        before = self.cpu()
        work()
        return [1000 * (now - then) / times for now, then in zip(self.cpu(), before, strict=True)]

    def answers(
        self, asked: Sequence[tuple[str, NDArray[np.float32]]], tags: Sequence[str]
    ) -> list[list[str]]:
        """To each question the first passages of ten documents."""
        with self.db.begin() as tx:
            found = [
                hybrid.search(tx, self.tenant, Query(text, vector, tags=tags))
                for text, vector in asked
            ]
        return [[hit.chunks[0].text for hit in hits] for hits in found]


def main(count: int) -> None:
    chance, noise = random.Random(5), np.random.default_rng(5)
    words = ["".join(chance.choices("bcdfglmnprst", k=7)) for _ in range(5_000)]
    often = [1 / (rank + 10) for rank in range(len(words))]
    clusters = noise.normal(size=(200, DIMENSIONS))

    def fillings(many: int) -> Iterator[Filling]:
        for number in range(many):
            texts = [" ".join(chance.choices(words, often, k=WORDS)) for _ in range(PER_DOCUMENT)]
            near = clusters[noise.integers(len(clusters), size=PER_DOCUMENT)]
            vectors = near + noise.normal(size=near.shape) * 0.3
            yield Filling(texts, vectors.astype(np.float32), [f"tag{number % TAGS}"])

    given = list(fillings(count))
    asked = [
        (" ".join(chance.choices(words, k=4)), clusters[number].astype(np.float32))
        for number in range(SEARCHES)
    ]
    with ExitStack() as stack:
        sites = _sites(stack)
        print(f"{count:,} documents of {PER_DOCUMENT} chunks, {SHARDS} shards on two workers")
        heads = ("CPU milliseconds", "one server", "coordinator", "workers", "ratio")
        print("{:<28}{:>12}{:>13}{:>10}{:>8}".format(*heads))
        _row(
            "add and finish, ten chunks",
            *(site.spent(partial(fill, site.db, site.tenant, given), count) for site in sites),
        )
        for site in sites:
            with psycopg.connect(site.db.url, autocommit=True) as session:
                session.execute("vacuum analyze")
                session.execute("select measure_index()")
        for what, tags in (("search", []), (f"search, tag of 1/{TAGS}", ["tag7"])):
            found = [site.answers(asked, tags) for site in sites]
            _row(what, *(s.spent(partial(s.answers, asked, tags), SEARCHES) for s in sites))
            same = sum(a == b for a, b in zip(*found, strict=True))
            print(f"  the same first ten passages: {same} of {SEARCHES}")


def _sites(stack: ExitStack) -> tuple[Site, Site]:
    ground = stack.enter_context(Ground())
    cluster = stack.enter_context(citus.running(ground.tmp / "citus", free_port))
    settings = {"data_dir": ground.tmp, "api_key": KEY, "index_shards": SHARDS}
    spread = cluster.create("bench")
    prepare(Config.model_validate(settings), spread)
    made: list[Site] = []
    for url in (ground.new_database(), spread):
        db = stack.enter_context(open_database(url))
        with db.begin() as tx:
            vector_index.rebind(tx, "bench", DIMENSIONS)
        nodes = [node.url("bench") for node in cluster.nodes] if url == spread else [url]
        made.append(Site(db, default_tenant(db), [_postmaster(node) for node in nodes]))
    return made[0], made[1]


def _postmaster(url: str) -> psutil.Process:
    with psycopg.connect(url) as session:
        found = psutil.Process(session.info.backend_pid).parent()
    assert found is not None
    return found


def _row(what: str, one: Sequence[float], spread: Sequence[float]) -> None:
    alone, here, there = one[0], spread[0], sum(spread[1:])
    print(f"{what:<28}{alone:>12.1f}{here:>13.1f}{there:>10.1f}{here / alone:>8.2f}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2_000)
