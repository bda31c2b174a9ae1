"""Ingest: from the first POST to the last chunk searchable, against embedding the chunks bare.

Both use the same model with the same threads on the same chunks, by turns. The ratio of rates says
how much of the time goes into embedding; the ratio of processor time (all processes of the service,
client not counted) says the same without the waiting, and hardly moves with the machine's load.
"""

import json
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import psutil
import psycopg

from bench.corpus import Shuffled
from bench.figures import Figure, alternate
from bench.ground import Ground, Service
from recollect.ingest import chunk

CLIENTS = 4
BATCH = 50
LONG, NOTE = 100_000, 500
"""characters"""
PATIENCE = 300.0
"""seconds"""


@dataclass(frozen=True, slots=True)
class Size:
    rounds: int
    long_documents: int
    """per round"""
    notes: int
    long: int = LONG


FULL = Size(rounds=5, long_documents=3, notes=250)
QUICK = Size(rounds=1, long_documents=1, notes=80)
TINY = Size(rounds=1, long_documents=1, notes=3, long=3_000)


def measure(ground: Ground, size: Size) -> Iterator[Figure]:
    texts = Shuffled(1)
    yield from _mix(ground, size, texts, "long", "long documents", size.long_documents, size.long)
    what = "notes of 500 characters"
    yield from _mix(ground, size, texts, "notes", what, size.notes, NOTE)
    what = f"{what} in batches of {BATCH}"
    yield from _mix(ground, size, texts, "notes.batch", what, size.notes, NOTE, each=BATCH)


def _mix(
    ground: Ground,
    size: Size,
    texts: Shuffled,
    id: str,
    what: str,
    count: int,
    length: int,
    each: int = 1,
) -> Iterator[Figure]:
    """`each`: texts of a request."""
    rounds = [[texts.document(length) for _ in range(count)] for _ in range(size.rounds + 1)]
    pieces = [[piece.text for text in round for piece in chunk.split(text)] for round in rounds]
    _ingest(ground.service, rounds[-1][:2], each)  # whatever happens only once has happened
    bare_costs: list[float] = []
    real_costs: list[float] = []

    def bare(number: int) -> float:
        taken, cost = _embed(ground, pieces[min(number, size.rounds - 1)])
        bare_costs.append(cost)
        return taken

    def real(number: int) -> float:
        before = _processor_time(ground.service)
        taken = _ingest(ground.service, rounds[number], each)
        after = _processor_time(ground.service)
        spent = sum(used - before.get(pid, 0.0) for pid, used in after.items())
        real_costs.append(spent / len(pieces[number]))
        return len(pieces[number]) / taken

    rates, ratios = alternate(size.rounds, bare, real)
    yield Figure(
        f"ingest.{id}",
        f"{what}, POST to searchable",
        statistics.median(rates),
        "chunks/s",
        statistics.median(ratios),
        "bare embedding",
    )
    cost = statistics.median(real_costs)
    yield Figure(
        f"ingest.{id}.cpu",
        f"{what}, processor time",
        cost * 1000,
        "ms/chunk",
        cost / statistics.median(bare_costs),
        "bare embedding",
    )


def _embed(ground: Ground, texts: Sequence[str]) -> tuple[float, float]:
    """Texts a second, and seconds of processor time per text."""
    spent = time.process_time()
    started = time.perf_counter()
    ground.embedder.embed(texts)
    taken = time.perf_counter() - started
    return len(texts) / taken, (time.process_time() - spent) / len(texts)


def _ingest(service: Service, texts: Sequence[str], each: int) -> float:
    """Seconds until all are searchable."""

    def add(first: int) -> None:
        client = service.client()
        if each == 1:
            for text in texts[first::CLIENTS]:
                client.add(text, containerTag="ingest")
            return
        for start in range(first * each, len(texts), CLIENTS * each):
            some = texts[start : start + each]
            client.send(
                "POST", "/v3/documents/batch", {"documents": some, "containerTag": "ingest"}
            )

    # The database tells the end of each document's processing: asking would cost the service time.
    with psycopg.connect(service.database_url, autocommit=True) as session:
        session.execute("listen recollect_documents")
        started = time.perf_counter()
        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(add, range(CLIENTS)))
        ended = 0
        for notice in session.notifies(timeout=PATIENCE):
            ended += json.loads(notice.payload)["status"] in ("done", "failed")
            if ended == len(texts):
                break
        taken = time.perf_counter() - started
    if not service.client().drained():
        raise TimeoutError(f"{ended} of {len(texts)} documents in {taken:.0f} s")
    return taken


def _processor_time(service: Service) -> dict[int, float]:
    found: dict[int, float] = {}
    for process in service.processes():
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        found[process.pid] = times.user + times.system
    return found
