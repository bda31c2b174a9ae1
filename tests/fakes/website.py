"""A web site on loopback, well-behaved or not, over raw sockets: HTTP libraries refuse to lie.

    with Website() as site:
        site.page("/a", "<p>hello</p>")
        site.route("/b", trickled_body)
        site.fail_next(429, retry_after="2")

A behaviour gets the `Exchange` and sends what it likes; when it returns `True` the connection stays
open for the next request. Endless behaviours end when the client goes away or the site closes.
"""

import gzip
import io
import os
import socket
import ssl
import struct
import threading
import zlib
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Self


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    """with the query, as it came"""
    headers: Mapping[str, str]
    """names in lower case"""
    body: bytes
    connection: int
    """which connection brought it, counted from 1"""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and the socket for the answer."""

    request: Request
    socket: socket.socket
    closing: threading.Event
    """the site is going down"""

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def pause(self, seconds: float) -> None:
        """Raises ConnectionError when the site closes meanwhile."""
        if self.closing.wait(seconds):
            raise ConnectionError("site is closing")

    def silence(self) -> None:
        """Say nothing until the client goes away."""
        while self.socket.recv(65536):
            pass


Behaviour = Callable[[Exchange], bool | None]


class Website:
    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.requests: list[Request] = []
        self._routes: dict[str, Behaviour] = {}
        self._failures: deque[bytes] = deque()
        self._closing = threading.Event()
        self._connections: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host = "127.0.0.1"
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for connection in self._connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def url(self, path: str = "/", *, host: str | None = None) -> str:
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://{host or self.host}:{self.port}{path}"

    def page(
        self,
        path: str,
        body: str | bytes,
        *,
        status: int = 200,
        mime: str | None = "text/html; charset=utf-8",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Serve this; with an ETag among the headers, conditional requests get 304."""
        data = body.encode() if isinstance(body, str) else body
        all_headers = {**({"Content-Type": mime} if mime else {}), **(headers or {})}
        etag = all_headers.get("ETag")

        def serve(exchange: Exchange) -> bool:
            if etag and exchange.request.headers.get("if-none-match") == etag:
                exchange.send(answer(304, b"", {"ETag": etag}))
            else:
                exchange.send(answer(status, data, all_headers))
            return True

        self.route(path, serve)

    def redirect(self, path: str, location: str, *, status: int = 302) -> None:
        self.page(path, b"", status=status, headers={"Location": location})

    def route(self, path: str, behaviour: Behaviour) -> None:
        """`path` without query; ending in `*` it stands for all that begin so."""
        self._routes[path] = behaviour

    def fail_next(self, status: int, *, times: int = 1, retry_after: str | None = None) -> None:
        """Answer the next requests, whatever they are for, with this status."""
        headers = {} if retry_after is None else {"Retry-After": retry_after}
        self._failures.extend([answer(status, b"try again", headers)] * times)

    def paths(self) -> list[str]:
        """What was asked for, in order."""
        return [request.path for request in self.requests]

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        number = 0
        while not self._closing.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            if self._tls is not None:
                # The handshake waits for the connection's own thread.
                connection = self._tls.wrap_socket(
                    connection, server_side=True, do_handshake_on_connect=False
                )
            number += 1
            self._start(
                lambda connection=connection, number=number: self._serve(connection, number)
            )

    def _serve(self, connection: socket.socket, number: int) -> None:
        with self._tracked(connection), suppress(OSError, EOFError):
            if isinstance(connection, ssl.SSLSocket):
                connection.do_handshake()
            source = connection.makefile("rb")
            while not self._closing.is_set():
                request = read_request(source, number)
                if request is None:
                    return
                with self._lock:
                    self.requests.append(request)
                    failure = self._failures.popleft() if self._failures else None
                exchange = Exchange(request, connection, self._closing)
                if failure is not None:
                    exchange.send(failure)
                elif not self._behaviour(request.path)(exchange):
                    return

    @contextmanager
    def _tracked(self, connection: socket.socket) -> Generator[None]:
        with self._lock:
            self._connections.add(connection)
        try:
            yield
        finally:
            with self._lock:
                self._connections.discard(connection)
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _behaviour(self, path: str) -> Behaviour:
        path = path.partition("?")[0]
        if path in self._routes:
            return self._routes[path]
        prefixes = [route for route in self._routes if route.endswith("*")]
        for prefix in sorted(prefixes, key=len, reverse=True):
            if path.startswith(prefix[:-1]):
                return self._routes[prefix]
        return not_found


def read_request(source: io.BufferedReader, number: int) -> Request | None:
    if source.peek(1)[:1] == b"\x16":
        return None  # a TLS handshake
    parts = source.readline().split()
    if len(parts) != 3:
        return None  # the client went away
    headers: dict[str, str] = {}
    while (line := source.readline().strip()) != b"":
        name, _, value = line.partition(b":")
        key, text = name.decode("latin-1").lower(), value.strip().decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    if "chunked" in headers.get("transfer-encoding", ""):
        body = b""
        while size := int(source.readline(), 16):
            body += source.read(size)
            source.readline()
        source.readline()
    else:
        body = source.read(int(headers.get("content-length", "0")))
    return Request(parts[0].decode("latin-1"), parts[1].decode("latin-1"), headers, body, number)


def answer(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
    """A well-formed answer; a Content-Length among the headers wins over the true one."""
    fields = {"Content-Length": str(len(body)), **(headers or {})}
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return head.encode() + b"\r\n" + (b"" if status == 304 else body)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"


def not_found(exchange: Exchange) -> bool:
    exchange.send(answer(404, b"no such page"))
    return True


def never_answers(exchange: Exchange) -> None:
    exchange.silence()


def trickled_body(exchange: Exchange) -> None:
    exchange.send(HEAD + b"Content-Length: 50000\r\n\r\n")
    while True:
        exchange.send(b"x")
        exchange.pause(0.05)


def trickled_headers(exchange: Exchange) -> None:
    exchange.send(HEAD)
    while True:
        exchange.send(b"X-More: x\r\n")
        exchange.pause(0.05)


def promises_too_much(exchange: Exchange) -> None:
    """Says 1,000 bytes, sends 10, closes."""
    exchange.send(HEAD + b"Content-Length: 1000\r\n\r\n0123456789")


def promises_too_little(exchange: Exchange) -> None:
    """Says 5 bytes, sends 10, with a forged answer behind them."""
    exchange.send(HEAD + b"Content-Length: 5\r\n\r\n0123456789" + answer(200, b"forged"))


def announces_gigabytes(exchange: Exchange) -> None:
    exchange.send(HEAD + b"Content-Length: 5000000000\r\n\r\n")
    exchange.silence()


def gzip_bomb(exchange: Exchange) -> None:
    """Zeros without end, a thousandth of them on the wire."""
    exchange.send(HEAD + b"Content-Encoding: gzip\r\nConnection: close\r\n\r\n")
    press = zlib.compressobj(level=9, wbits=31)
    while True:
        exchange.send(press.compress(bytes(1_000_000)))


def nested_gzip(exchange: Exchange) -> None:
    inner = gzip.compress(gzip.compress(bytes(1_000_000)))
    exchange.send(answer(200, inner, {"Content-Encoding": "gzip, gzip"}))


def brotli(exchange: Exchange) -> None:
    exchange.send(answer(200, b"\x1b\x00\x00", {"Content-Encoding": "br"}))


def garbled_gzip(exchange: Exchange) -> None:
    exchange.send(answer(200, b"this is no gzip", {"Content-Encoding": "gzip"}))


def cut_gzip(exchange: Exchange) -> None:
    exchange.send(
        answer(200, gzip.compress(b"hello, world" * 99)[:-9], {"Content-Encoding": "gzip"})
    )


def endless_body(exchange: Exchange) -> None:
    exchange.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    piece = b"10000\r\n" + bytes(0x10000) + b"\r\n"
    while True:
        exchange.send(piece)


def endless_text(exchange: Exchange) -> None:
    exchange.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    piece = b"10000\r\n" + b"<p>words " * 7281 + b"<p>end." + b"\r\n"
    while True:
        exchange.send(piece)


@dataclass
class Pouring:
    """Sends so many bytes, or as many as the client takes: `sent`."""

    size: int
    mime: str | None
    begins: bytes
    sent: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def __call__(self, exchange: Exchange) -> None:
        exchange.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
        told = f"Content-Type: {self.mime}\r\n" if self.mime else ""
        head = f"HTTP/1.1 200 OK\r\n{told}Content-Length: {self.size}\r\n\r\n"
        self.sent = 0
        try:
            exchange.send(head.encode())
            while self.sent < self.size:
                piece = self.begins * (16_384 // len(self.begins))
                exchange.send(piece)
                self.sent += len(piece)
        finally:
            self.ended.set()


def endless_redirects(exchange: Exchange) -> bool:
    """For a route with `*`: each page leads to one with a longer address."""
    exchange.send(answer(302, b"", {"Location": exchange.request.path + "x"}))
    return True


def endless_continue(exchange: Exchange) -> None:
    while True:
        exchange.send(b"HTTP/1.1 100 Continue\r\n\r\n" * 10)
        exchange.pause(0.01)


def endless_headers(exchange: Exchange) -> None:
    exchange.send(HEAD)
    while True:
        exchange.send(b"X-More: and more\r\n" * 1000)


def big_header(exchange: Exchange) -> None:
    exchange.send(HEAD + b"X-Big: ")
    while True:
        exchange.send(b"x" * 100_000)


def wrong_charset(exchange: Exchange) -> bool:
    """Claims UTF-8, is windows-1251."""
    text = "<p>Привет</p>".encode("cp1251")
    exchange.send(answer(200, text, {"Content-Type": "Text/HTML; charset=utf-8"}))
    return True


def tls_bytes(exchange: Exchange) -> None:
    """A TLS alert where HTTP is spoken."""
    exchange.send(b"\x15\x03\x01\x00\x02\x02\x46")


def closes_at_once(exchange: Exchange) -> None:
    return


@dataclass
class ClosesReused:
    """Keeps a connection open only to close it, without a word, at its second request."""

    body: bytes
    connections: set[int] = field(default_factory=set[int])

    def __call__(self, exchange: Exchange) -> bool:
        if exchange.request.connection in self.connections:
            return False
        self.connections.add(exchange.request.connection)
        exchange.send(answer(200, self.body))
        return True


def closes_halfway(exchange: Exchange) -> None:
    exchange.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")


def resets(exchange: Exchange) -> None:
    exchange.send(HEAD + b"Content-Length: 100\r\n\r\nhalf")
    lingering = struct.pack("ii", 1, 0)  # on, for no time: closing sends RST
    exchange.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, lingering)
    os.close(exchange.socket.detach())


@dataclass
class SlowThenGood:
    """Never answers the first requests, then does."""

    body: bytes
    slow: int = 1
    seen: list[str] = field(default_factory=list[str])

    def __call__(self, exchange: Exchange) -> bool:
        self.seen.append(exchange.request.path)
        if len(self.seen) <= self.slow:
            exchange.silence()
            return False
        exchange.send(answer(200, self.body, {"Content-Type": "text/html"}))
        return True
