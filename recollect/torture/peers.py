"""What the service talks to, on loopback: an embedding endpoint with moods, and a web site."""

import hashlib
import json
import math
import socket
import threading
from collections import Counter
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any, Self

DIMENSIONS = 32
MODEL = "torture"
PAGES = 12
SLOWEST = 2.0
"""seconds of an answer of the slow endpoint"""


def vector(text: str) -> list[float]:
    """The right one of a text, of length 1: whoever mixes up two texts is found out."""
    numbers = [byte - 127.5 for byte in hashlib.sha256(text.encode()).digest()]
    length = math.hypot(*numbers)
    return [number / length for number in numbers]


def page(number: int) -> str:
    """The words that stand on one page of the site, and on no other."""
    digest = hashlib.sha256(str(number).encode()).hexdigest()
    return " ".join(f"page{number}word{digest[at : at + 4]}" for at in range(0, 60, 2))


class Peers:
    """Both of them, at `url`; `mood` may be changed at any time."""

    def __init__(self, seed: int) -> None:
        self.mood = "well"
        self.answers = Counter[str]()
        """by mood; incremented by many threads, so a few may be missing"""
        self._chance = Random(seed)
        self._stop = threading.Event()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        peers = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers.get("content-length", 0))
                peers.embed(self, json.loads(self.rfile.read(length))["input"])

            def do_GET(self) -> None:
                peers.show(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler

    def embed(self, request: BaseHTTPRequestHandler, texts: Sequence[str]) -> None:
        mood = self.mood
        if mood == "mixed":
            mood = self._chance.choice(["well", "well", "slow", "500", "429", "cut", "garbage"])
        self.answers[mood] += 1
        good = _answer([vector(text) for text in texts])
        match mood:
            case "slow":
                self._stop.wait(self._chance.uniform(0, SLOWEST))
                _send(request, 200, good)
            case "500":
                _send(request, 500, b'{"error": {"message": "overloaded"}}')
            case "429":
                _send(request, 429, b'{"error": {"message": "slow down"}}', {"retry-after": "1"})
            case "cut":
                _cut(request, good)
            case "garbage":
                _send(request, 200, self._garbage(texts, good))
            case _:
                _send(request, 200, good)

    def _garbage(self, texts: Sequence[str], good: bytes) -> bytes:
        """Answers that nobody may take for vectors."""
        vectors = [vector(text) for text in texts]
        return self._chance.choice(
            [
                b"<html>no such thing</html>",
                good[: len(good) // 2],
                b'{"data": []}',
                _answer([*vectors, vectors[0]]),
                _answer([[0.0] * DIMENSIONS for _ in texts]),
                _answer([[1e999] * DIMENSIONS for _ in texts]),
                _answer([[*one, 0.5] for one in vectors]),
                json.dumps({"data": [{"index": 0, "embedding": v} for v in vectors] * 2}).encode(),
            ]
        )

    def show(self, request: BaseHTTPRequestHandler) -> None:
        name = request.path.strip("/")
        if name == "site":
            links = "".join(f'<li><a href="/site/{n}">page {n}</a></li>' for n in range(PAGES))
            body = f"<p>{page(PAGES)}</p><ul>{links}</ul>"
        elif name in {f"site/{number}" for number in range(PAGES)}:
            body = f"<p>{page(int(name.partition('/')[2]))}</p>"
        else:
            _send(request, 404, b"none")
            return
        html = f"<!doctype html><html><head><title>{name}</title></head><body>{body}</body></html>"
        _send(request, 200, html.encode(), {"content-type": "text/html; charset=utf-8"})


class _Server(ThreadingHTTPServer):
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The other side was killed in the middle; that is what we are here for."""


def _answer(vectors: Sequence[Sequence[float]]) -> bytes:
    data = [{"index": index, "embedding": one} for index, one in enumerate(vectors)]
    return json.dumps({"data": data}).encode()


def _send(
    request: BaseHTTPRequestHandler,
    status: int,
    body: bytes,
    headers: dict[str, str] | None = None,
) -> None:
    request.send_response(status)
    for name, value in ({"content-type": "application/json"} | (headers or {})).items():
        request.send_header(name, value)
    request.send_header("content-length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)


def _cut(request: BaseHTTPRequestHandler, body: bytes) -> None:
    """Half an answer, then the end of the connection."""
    request.send_response(200)
    request.send_header("content-length", str(len(body)))
    request.end_headers()
    request.wfile.write(body[: len(body) // 2])
    request.wfile.flush()
    request.close_connection = True
    request.connection.shutdown(socket.SHUT_RDWR)
