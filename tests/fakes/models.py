"""Embedding models that can be told apart, in this process or at an endpoint.

A vector has one number for each word, and a constant one, `lift`: so each model finds a text
like a query to a different degree, and a cosine says whose it is.
"""

import json
import re
import threading
import zlib
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
from numpy.typing import NDArray

from recollect.errors import Permanent, Transient, Unavailable

_PAUSE = threading.Event()


class Model:
    """`texts`: what it embedded that was no query; `slow` (seconds) and the rest are its moods."""

    def __init__(self, name: str, dimensions: int, lift: float) -> None:
        self.name = name
        self.dimensions = dimensions
        self.lift = lift
        self.texts: list[str] = []
        self.slow = 0.0
        self.down = False
        self.refuses: str | None = None
        self.fails_at: str | None = None
        self.dies_after: int | None = None
        self._lock = threading.Lock()

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        if self.slow:
            _PAUSE.wait(self.slow)
        if self.down:
            raise Unavailable(f"{self.name} does not answer")
        if self.refuses is not None and any(self.refuses in text for text in texts):
            raise Permanent("too long for the model", code="embedding_refused")
        if self.fails_at is not None and any(self.fails_at in text for text in texts):
            raise Transient("a vector of no length", code="embedding_refused")
        if not query:
            with self._lock:
                self.texts += texts
                if self.dies_after is not None:
                    self.dies_after -= 1
                    if self.dies_after < 0:
                        raise Killed
        return np.stack([self.vector(text) for text in texts])

    def stop(self) -> None:
        pass

    def vector(self, text: str) -> NDArray[np.float32]:
        found = np.full(self.dimensions, 1e-3, np.float32)
        found[0] = self.lift
        for word in re.findall(r"\w+", text.lower()):
            found[1 + zlib.crc32(word.encode()) % (self.dimensions - 1)] += 1
        return (found / np.linalg.norm(found)).astype(np.float32)

    def likeness(self, one: str, other: str) -> float:
        return float(self.vector(one) @ self.vector(other))


class Killed(BaseException):
    """The process is gone."""


def small() -> Model:
    return Model("openai:small", 48, 0.0)


def large() -> Model:
    return Model("openai:large", 80, 4.0)


@contextmanager
def endpoint(*models: Model) -> Generator[str]:
    """OpenAI's `POST /embeddings` for the models, at an address on loopback."""
    known = {model.name.partition(":")[2]: model for model in models}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # or each body waits 40 ms for the head's acknowledgement

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            try:
                vectors = known[asked["model"]].embed(asked["input"])
            except (Unavailable, KeyError):
                self._send(503, b"{}")
                return
            data = [{"index": n, "embedding": one.tolist()} for n, one in enumerate(vectors)]
            self._send(200, json.dumps({"data": data}).encode())

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 64

        def handle_error(self, request: object, client_address: object) -> None:
            """The other side was killed."""

    with Server(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=[0.05], daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
