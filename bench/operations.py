"""`python -m bench.operations [CHUNKS]`: what else a large index is asked for than searches.

Documents of one chunk each (rows made as in `bench.sizes`), a tenth of them under each of ten tags,
served by a whole service with a stand-in for the embedding endpoint. Measured: how long a restart
takes, a list, a list far down, the counts, `recollect verify` and `recollect backup`, and the
memory of all processes; how long the deletion of a tag takes to answer, and until its last row is
gone, and how long the POST of a note takes while it goes on; and how many chunks a second come in
beside all that is there, as a ratio to how many come in beside a tenth of it. A million takes about
an hour and 12 GB of disk.
"""

import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import numpy as np
import psycopg

from bench import sizes
from bench.figures import Figure, percentile
from bench.fill import open_database
from bench.ground import Client, Ground, Service, clean_environment, until
from bench.memory import memory
from bench.scale import endpoint, stand_in

TAGS = 10
LOOKS = 20
PATIENCE = 3 * 3600.0
MODEL = "openai:stand-in"
ROUNDS, COMING, PARAGRAPHS = 3, 40, 40
"""of documents that come in, of so many paragraphs; the median of the rounds counts"""


def main(chunks: int) -> None:
    with Ground() as ground, endpoint(0.0, embed) as address:
        url = ground.new_database()
        settings = {**stand_in(address, sizes.DIMENSIONS), "database_url": url}
        with open_database(url) as db:
            made = sizes.prepare(db, MODEL)
            _fill(made, 0, chunks // 10)
        ground.restart_database()
        with ground.serving(ground.new_folder(with_model=False), **settings) as service:
            bare = _ingest(service)
        with open_database(url) as db:
            with db.begin() as tx:
                tx.execute("drop index entries_embedding")
            _fill(replace(made, db=db), chunks // 10, chunks - chunks // 10)
        ground.restart_database()
        for figure in _measure(ground, settings, chunks, bare):
            against = f"{figure.ratio:.2f} of {figure.against}" if figure.ratio else ""
            print(f"{figure.what:<60}{figure.value:>10,.4g} {figure.unit:<9}{against}", flush=True)


def embed(text: str) -> list[float]:
    """A vector that depends on the text alone."""
    seed = int.from_bytes(blake2b(text.encode(), digest_size=8).digest())
    vector = np.random.default_rng(seed).normal(size=sizes.DIMENSIONS)
    return [float(one) for one in vector / np.linalg.norm(vector)]


def _fill(made: sizes.Simulated, begun: int, count: int) -> None:
    sizes.fill(made, begun, count, each=1, tags=TAGS)
    sizes.build(made)
    with psycopg.connect(made.db.url, autocommit=True) as session:
        session.execute("vacuum analyze")


def _measure(
    ground: Ground, settings: dict[str, str], chunks: int, bare: float
) -> Iterator[Figure]:
    folder = ground.new_folder(with_model=False)
    started = time.perf_counter()
    with ground.serving(folder, **settings):
        yield _seconds("restart", "restart, command to ready", time.perf_counter() - started)
    with ground.serving(folder, **settings) as service:
        yield from _asked(service, chunks)
        yield Figure("operations.memory", "all processes but PostgreSQL", memory(service), "MB")
        rate = _ingest(service)
        yield Figure(
            "operations.ingest", "long documents, POST to searchable", rate, "chunks/s",
            rate / bare, "a tenth of the index",
        )  # fmt: skip
        yield from _deleted(service, settings["database_url"])
    took = _timed(lambda: _command(settings, folder, "verify"))
    yield _seconds("verify", "recollect verify", took)
    backup = ground.tmp / "backup.zip"
    took = _timed(lambda: _command(settings, folder, "backup", backup))
    yield _seconds("backup", "recollect backup", took)
    yield Figure("operations.backup.size", "the backup", backup.stat().st_size / 1e9, "GB")


def _asked(service: Service, chunks: int) -> Iterator[Figure]:
    """Lists and counts: the median, and the slowest."""
    client = service.client()
    ways: dict[str, Callable[[], object]] = {
        "first page of the list": lambda: client.send("POST", "/v3/documents/list", {"limit": 50}),
        "first page under a tag": lambda: client.send(
            "POST", "/v3/documents/list", {"limit": 50, "containerTags": ["tag3"]}
        ),
        "page in the middle of the list": lambda: client.send(
            "POST", "/v3/documents/list", {"limit": 50, "page": chunks // 100}
        ),
        "counts by status": lambda: client.send("GET", "/v3/documents/counts"),
        "tags with their counts": lambda: client.send("GET", "/v3/container-tags/list"),
    }
    for what, ask in ways.items():
        took = [_timed(ask) for _ in range(LOOKS)]
        for share, name in ((0.5, "p50"), (1.0, "most")):
            id = f"operations.{what.replace(' ', '-')}.{name}"
            yield Figure(id, f"{what}, {name}", percentile(took, share) * 1000, "ms")


def _deleted(service: Service, url: str) -> Iterator[Figure]:
    """A tag with a tenth of all: until it is answered, until it is gone; notes meanwhile."""
    idle = [_timed(lambda: _note(service.client())) for _ in range(LOOKS)]
    over = threading.Event()
    took: list[float] = []

    def write() -> None:
        client = service.client()
        while not over.is_set():
            took.append(_timed(lambda: _note(client)))

    with ThreadPoolExecutor(1) as pool, psycopg.connect(url, autocommit=True) as session:
        writing = pool.submit(write)
        try:
            started = time.perf_counter()
            gone = service.client().send("DELETE", "/v3/container-tags/tag3")["deletedCount"]
            answered = time.perf_counter() - started
            until(lambda: not _left(session), within=PATIENCE, every=1.0)
            swept = time.perf_counter() - started
        finally:
            over.set()
        writing.result()
    yield _seconds("delete.answer", f"deletion of a tag of {gone:,} documents, answer", answered)
    yield _seconds("delete.rows", "until its last row is gone", swept)
    yield Figure(
        "operations.delete.note", "POST of a note meanwhile, p99",
        percentile(took, 0.99) * 1000, "ms", percentile(took, 0.99) / percentile(idle, 0.5),
        "the median before",
    )  # fmt: skip


def _left(session: psycopg.Connection) -> bool:
    left = "select exists (select from documents where 'tag3' = any(container_tags))"
    row = session.execute(left).fetchone()
    assert row is not None
    return row[0]


def _note(client: Client) -> None:
    client.add(f"A note of no weight, {random.random()}.", containerTag="notes")


def _ingest(service: Service) -> float:
    """Chunks a second, from the first POST until all is searchable; the median of the rounds."""
    return statistics.median(_round(service.client(), seed) for seed in range(ROUNDS))


def _round(client: Client, seed: int) -> float:
    until(client.drained, within=PATIENCE)
    chance = random.Random(seed)
    words = ["".join(chance.choices("bcdfglmnprst", k=7)) for _ in range(5_000)]
    texts = [
        "\n\n".join(" ".join(chance.choices(words, k=120)) + "." for _ in range(PARAGRAPHS))
        for _ in range(COMING)
    ]
    tag = f"coming-{random.random()}"
    started = time.perf_counter()
    some = [{"content": text, "containerTag": tag} for text in texts]
    client.send("POST", "/v3/documents/batch", {"documents": some})
    until(client.drained, within=PATIENCE, every=0.2)
    took = time.perf_counter() - started
    listed = client.send("POST", "/v3/documents/list", {"containerTags": [tag], "limit": 1})
    (found,) = listed["memories"]
    return client.document(found["id"])["chunks"]["total"] * COMING / took


def _command(settings: dict[str, str], folder: Path, *arguments: str | Path) -> None:
    given = {**settings, "data_dir": str(folder)}
    environment = {f"RECOLLECT_{name.upper()}": value for name, value in given.items()}
    done = subprocess.run(
        [sys.executable, "-m", "recollect", *map(str, arguments)],
        env={**clean_environment(), **environment},
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{arguments} ended with {done.returncode}: {done.stdout[-2000:]}")


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _seconds(id: str, what: str, seconds: float) -> Figure:
    return Figure(f"operations.{id}", what, seconds, "s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 1_000_000)
