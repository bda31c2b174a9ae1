"""Throughput of one, two and three worker processes on one database, each with a folder of its own.

The embedding model is a stand-in that answers after a fixed time, as a busy endpoint does, so that
the cores of one machine do not limit what several would do. Documents are queued beforehand; then a
worker process is added at a time, and the rate is the slope of the documents that are done over
time, once the new one has done its first. What an added worker brings is compared with
what the first one alone did, in the same run.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import psycopg

from bench.corpus import Shuffled
from bench.figures import Figure
from bench.ground import Ground, clean_environment, until

PLACES = 8
"""documents that a worker process has at once"""
DIMENSIONS = 8
BATCH = 100
LENGTH = 5_000
"""characters: too many to be worked together with others, few enough for one call of the model"""
PATIENCE = 120.0
START = 15.0
"""seconds that a worker process may take to start, for which documents are queued, too"""


@dataclass(frozen=True, slots=True)
class Size:
    workers: int
    seconds: float
    """of a measurement"""
    delay: float
    """seconds of an answer"""
    places: int = PLACES


FULL = Size(workers=3, seconds=40.0, delay=4.0)
QUICK = Size(workers=3, seconds=24.0, delay=4.0)
TINY = Size(workers=3, seconds=1.5, delay=0.5, places=2)
ORDINALS = ("first", "second", "third")


def measure(ground: Ground, size: Size) -> Iterator[Figure]:
    url = ground.new_database()
    rates: list[float] = []
    with endpoint(size.delay) as address:
        _queue(ground, url, address, size)
        workers: list[subprocess.Popen[bytes]] = []
        try:
            for _ in range(size.workers):
                folder = ground.new_folder(with_model=False)
                workers.append(_worker(ground, folder, url, address, size))
                log = folder / "bench.log"
                # Looked for in its log, since the database does not tell who did what.
                until(lambda: b'"done"' in log.read_bytes(), within=PATIENCE)  # noqa: B023 # at once
                rates.append(_rate(url, size.seconds))
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
    yield Figure(
        "scale.first",
        "documents with one worker process",
        rates[0],
        "/s",
        rates[0] * size.delay / size.places,
        f"{size.places} places, {size.delay:g} s each",
    )
    for number in range(1, size.workers):
        yield Figure(
            f"scale.{ORDINALS[number]}",
            f"documents with {number + 1} worker processes",
            rates[number],
            "/s",
            (rates[number] - rates[number - 1]) / rates[0],
            "what the first one alone does, for the added one",
        )


def _queue(ground: Ground, url: str, address: str, size: Size) -> None:
    """More documents than all workers can do in the time."""
    texts = Shuffled(3)
    rate = size.places / size.delay
    wanted = int(rate * (size.seconds + START) * size.workers * (size.workers + 1) / 2) + BATCH
    with ground.answering(url, **stand_in(address)) as service:
        client = service.client()
        for first in range(0, wanted, BATCH):
            some = [
                {"content": f"{texts.document(LENGTH)} {number}", "containerTag": "scale"}
                for number in range(first, first + BATCH)
            ]
            client.send("POST", "/v3/documents/batch", {"documents": some})


def stand_in(address: str, dimensions: int = DIMENSIONS) -> dict[str, str]:
    """The settings of a service that asks it."""
    return {
        "embedder": "openai",
        "embedder_url": address,
        "embedder_model": "stand-in",
        "embedder_dimensions": str(dimensions),
        "secret_key": "bench d81f60b7c2a94e35f0b6d2c8a19f",
        "allow_networks": "127.0.0.0/8",
    }


def _worker(
    ground: Ground, folder: Path, url: str, address: str, size: Size
) -> subprocess.Popen[bytes]:
    settings = {
        "database_url": url,
        "data_dir": str(folder),
        "blob_url": (ground.tmp / "scale-blobs").as_uri(),
        "workers": str(size.places),
        "canary_interval": "0",
        **stand_in(address),
    }
    with (folder / "bench.log").open("ab") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "recollect", "work"],
            env={
                **clean_environment(),
                **{f"RECOLLECT_{name.upper()}": value for name, value in settings.items()},
            },
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )


def _rate(url: str, seconds: float) -> float:
    """Documents a second: the slope of the line through how many were done when."""
    with psycopg.connect(url, autocommit=True) as session:
        session.execute("listen recollect_documents")
        # The database tells the end of each document: asking would cost it time.
        began = time.perf_counter()
        done: list[float] = []
        for notice in session.notifies(timeout=seconds + PATIENCE):
            now = time.perf_counter() - began
            status = json.loads(notice.payload)["status"]
            if status == "failed":
                raise RuntimeError("a document failed")
            if now > seconds and len(done) > 1:
                break
            if status == "done":
                done.append(now)
        left = session.execute("select count(*) from documents where status = 'queued'").fetchone()
    if not left or not left[0]:
        raise RuntimeError("the queue ran dry: the machine is too busy")
    return _slope(done)


def _slope(times: Sequence[float]) -> float:
    return float(np.polyfit(times, np.arange(len(times)), 1)[0])


@contextmanager
def endpoint(delay: float, embed: Callable[[str], Sequence[float]] | None = None) -> Generator[str]:
    """An OpenAI-compatible embedding endpoint that answers after so many seconds; its base URL.

    `embed`: the vector of a text; without it all have one.
    """
    one = [1.0] * DIMENSIONS
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            over.wait(delay)
            texts = asked["input"] if isinstance(asked["input"], list) else [asked["input"]]
            data = [
                {"index": index, "embedding": list(embed(text)) if embed else one}
                for index, text in enumerate(texts)
            ]
            body = json.dumps({"data": data}).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 64
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """A worker was ended while it waited."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        over.set()
        server.shutdown()
        server.server_close()
        thread.join()
