"""The guarded door for HTTP stacks that are not ours, as a proxy on loopback.

A foreign client gets `url` as its proxy and can then reach what `Fetcher` could reach, and nothing
else: each target is screened, resolved once, judged and dialled by the same `Guard`. One connection
serves one request, so that nothing judged for one target is ever sent to another. Only the holder
of the URL may use it: any other user of this machine can connect to loopback, too.
"""

import base64
import hmac
import re
import secrets
import selectors
import socket
import sys
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from types import TracebackType
from typing import Self

from recollect.errors import Permanent, Transient
from recollect.fetch._address import FetchTarget
from recollect.fetch._backend import Guard

LARGEST_HEAD = 65_536
"""bytes of a request's or an answer's head"""
STEP = 65_536
"""bytes moved at a time"""
MOST_INTERIM = 8
"""1xx answers before the real one; they are not passed on"""
USER = "recollect"

METHOD = re.compile(r"[A-Z]{1,20}")
FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]++):[ \t]*+([^\x00-\x08\x0a-\x1f\x7f]*+)")
AUTHORITY = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:/?#@\[\]\\]+):[0-9]{1,5}")
# RFC 9110 7.6.1, RFC 9112 C.2.2
HOP_BY_HOP = frozenset(
    {
        "connection", "keep-alive", "proxy-authenticate", "proxy-authorization",
        "proxy-connection", "te", "upgrade",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ProxyLimits:
    """Times are seconds."""

    head: float = 10.0
    """until the head of a request is there; also until its target is connected"""
    idle: float = 60.0
    """without a byte in either direction"""
    total: float = 3600.0
    """of one connection"""
    tunnels: int = 32
    """connections at a time; more are refused with 503"""


class GuardedProxy(AbstractContextManager["GuardedProxy"]):
    """Runs while it is entered. Understands CONNECT, and absolute URLs for plain http.

    It answers 403 for a blocked target, 502 and 504 for one that cannot be reached.
    """

    def __init__(self, guard: Guard, limits: ProxyLimits = ProxyLimits()) -> None:
        self._guard = guard
        self._limits = limits
        secret = secrets.token_urlsafe(32)
        self._credential = base64.b64encode(f"{USER}:{secret}".encode())
        self._places = threading.BoundedSemaphore(limits.tunnels)
        self._closing = threading.Event()
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        port: int = self._listener.getsockname()[1]
        self.url = f"http://{USER}:{secret}@127.0.0.1:{port}"
        """Secret: who has it may use the proxy."""
        self._acceptor = threading.Thread(target=self._accept, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._acceptor.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Ends all connections."""
        with self._lock:
            self._closing.set()
            for one in self._sockets:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._acceptor.join()

    def dial(self) -> socket.socket:
        """A connection to this proxy, for a process that cannot make one itself."""
        return socket.create_connection(self._listener.getsockname(), self._limits.head)

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                self._closing.wait(0.1)  # too many open files, say
                continue
            if self._places.acquire(blocking=False):
                threading.Thread(
                    target=self._serve, args=(client,), name="proxied", daemon=True
                ).start()
            else:
                with client, suppress(OSError):
                    client.settimeout(0)
                    client.send(_Refusal(503, "too many connections").answer())

    def _serve(self, client: socket.socket) -> None:
        try:
            with suppress(OSError), self._held(client):
                self._answer(client)
        finally:
            self._places.release()

    def _answer(self, client: socket.socket) -> None:
        until = time.monotonic() + self._limits.total
        line = _Line(client, self._limits.idle, until)
        try:
            request, rest = line.head(self._limits.head)
            target = self._admitted(request)
            size = request.body_size()
            server = self._connected(target)
        except _Refusal as refusal:
            self._refuse(client, refusal)
            return
        with self._held(server):
            if request.start[0] == "CONNECT":
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                _relay(client, server, rest, self._limits.idle, until)
                return
            beyond = _Line(server, self._limits.idle, until)
            try:
                answer, begun = self._asked(line, beyond, request, target, rest[:size], size)
            except (_Refusal, EOFError, OSError):
                self._refuse(client, _Refusal(502, "the target gave no answer"))
                return
            line.send(answer.renewed(" ".join(answer.start).rstrip()))
            left = answer.answer_size(request.start[0])
            begun = begun[:left]
            line.send(begun)
            left -= len(begun)
            with suppress(EOFError):
                while left > 0:
                    left -= beyond.move(line, left)
            self._part(client)

    @contextmanager
    def _held(self, one: socket.socket) -> Generator[None]:
        """A connection that is closed at the end of the block, and ends when the proxy closes.
        Raises ConnectionError if the proxy has closed.
        """
        with one:
            with self._lock:
                if self._closing.is_set():
                    raise ConnectionAbortedError
                self._sockets.add(one)
            try:
                yield
            finally:
                with self._lock:
                    self._sockets.discard(one)

    def _admitted(self, request: "_Head") -> FetchTarget:
        """Where the request wants to go, if it may use the proxy at all."""
        given = request.values("proxy-authorization")
        scheme, _, credential = (given[0] if len(given) == 1 else "").partition(" ")
        known = hmac.compare_digest(credential.strip().encode("latin-1"), self._credential)
        if not known or scheme.lower() != "basic":
            raise _Refusal(407, "the credential of this proxy is missing or wrong")
        method, resource, _ = request.start
        if method == "CONNECT":
            if not AUTHORITY.fullmatch(resource):
                raise _Refusal(400, "CONNECT needs host:port")
            url = f"https://{resource}/"
        elif resource[:7].lower() == "http://":
            url = resource
        else:
            raise _Refusal(400, "the target must be an absolute http URL; for https use CONNECT")
        try:
            return self._guard.target(url)
        except Permanent as error:
            raise _Refusal(403 if error.code == "blocked_target" else 400, str(error)) from error

    def _connected(self, target: FetchTarget) -> socket.socket:
        try:
            with self._guard.fetching.within(self._limits.head):
                return self._guard.connect(target.host, target.port)
        except Permanent as error:
            raise _Refusal(403, str(error)) from error
        except Transient as error:
            raise _Refusal(502, str(error)) from error
        except TimeoutError as error:
            raise _Refusal(504, "the target did not answer in time") from error

    def _asked(
        self,
        client: "_Line",
        server: "_Line",
        request: "_Head",
        target: FetchTarget,
        begun: bytes,
        size: int,
    ) -> "tuple[_Head, bytes]":
        """Pass one plain request on; the head of its answer, and what came behind it.

        No further request on this connection is read.
        """
        method, _, version = request.start
        start = f"{method} {target.resource} {version}"
        server.send(request.renewed(start, host=target.authority))
        server.send(begun)
        left = size - len(begun)
        while left > 0:
            left -= client.move(server, left)
        answer, rest = server.head(self._limits.idle)
        for _ in range(MOST_INTERIM):
            if not answer.start[1].startswith("1"):
                return answer, rest
            answer, rest = server.head(self._limits.idle, rest)
        raise EOFError

    def _refuse(self, client: socket.socket, refusal: "_Refusal") -> None:
        client.settimeout(self._limits.head)
        client.sendall(refusal.answer())
        self._part(client)

    def _part(self, client: socket.socket) -> None:
        """Closing over unread bytes would reset the connection, and an answer be lost."""
        client.shutdown(socket.SHUT_WR)
        line = _Line(client, self._limits.head, time.monotonic() + self._limits.head)
        with suppress(EOFError):
            for _ in range(16):
                line.receive(STEP)


class _Refusal(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message

    def answer(self) -> bytes:
        body = f"{self.message}\n".encode("ascii", "replace")
        asks = 'Proxy-Authenticate: Basic realm="recollect"\r\n' if self.status == 407 else ""
        return (
            f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}\r\n{asks}"
            f"Content-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        ).encode() + body


@dataclass(frozen=True, slots=True)
class _Head:
    start: tuple[str, str, str]
    """the three parts of the first line"""
    fields: Sequence[tuple[str, str]]

    def values(self, name: str) -> list[str]:
        return [value for key, value in self.fields if key.lower() == name]

    def body_size(self) -> int:
        """Raises _Refusal for a body whose end is not known beforehand."""
        if self.values("transfer-encoding"):
            raise _Refusal(411, "the request must state the length of its body")
        if self.values("expect"):
            raise _Refusal(417, "send the body at once")
        told = set(self.values("content-length"))
        if len(told) > 1 or not all(re.fullmatch(r"[0-9]{1,18}", size) for size in told):
            raise _Refusal(400, "bad Content-Length")
        return int(told.pop()) if told else 0

    def answer_size(self, method: str) -> int:
        """How long the body of this answer is at most (RFC 9112 6.3).

        A body without a length ends when the target closes, as it was asked to; some do not obey.
        """
        if method == "HEAD" or self.start[1] in ("204", "304"):
            return 0
        told = self.values("content-length")
        if self.values("transfer-encoding") or not re.fullmatch(r"[0-9]{1,18}", "".join(told[:1])):
            return sys.maxsize
        return int(told[0])

    def renewed(self, start: str, *, host: str | None = None) -> bytes:
        """For the next hop, which is asked to close: with what belongs to this hop taken out.

        `host` replaces the Host that came (RFC 9112 3.2.2).
        """
        dropped = set(HOP_BY_HOP)
        for value in self.values("connection"):
            dropped.update(word.strip().lower() for word in value.split(","))
        if host is not None:
            dropped.add("host")
        own = [] if host is None else [("Host", host)]
        kept = [field for field in self.fields if field[0].lower() not in dropped]
        lines = [start, *(f"{name}: {value}" for name, value in [*own, *kept])]
        return "\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1")


@dataclass(frozen=True, slots=True)
class _Line:
    """One end of a connection, with its patience."""

    socket: socket.socket
    idle: float
    until: float
    """monotonic time"""

    def receive(self, most: int, seconds: float | None = None) -> bytes:
        """Raises EOFError at the end, TimeoutError."""
        self._wait(self.idle if seconds is None else seconds)
        data = self.socket.recv(min(most, STEP))
        if not data:
            raise EOFError
        return data

    def send(self, data: bytes) -> None:
        self._wait(self.idle)
        self.socket.sendall(data)

    def move(self, other: "_Line", most: int) -> int:
        """Pass something on; how many bytes. Raises EOFError, OSError."""
        data = self.receive(most)
        other.send(data)
        return len(data)

    def head(self, seconds: float, begun: bytes = b"") -> tuple[_Head, bytes]:
        """The head of a message, all of it within some seconds, and what came behind it.

        Raises _Refusal for one that is late, too large or malformed.
        """
        until = time.monotonic() + seconds
        data = bytearray(begun)
        while (end := data.find(b"\r\n\r\n")) < 0:
            if len(data) > LARGEST_HEAD:
                raise _Refusal(431, "the head is too large")
            try:
                data += self.receive(STEP, until - time.monotonic())
            except TimeoutError as error:
                raise _Refusal(408, "the head did not come in time") from error
            except EOFError as error:
                raise _Refusal(400, "the head is cut off") from error
        if end > LARGEST_HEAD:
            raise _Refusal(431, "the head is too large")
        return _parse(data[:end].decode("latin-1")), bytes(data[end + 4 :])

    def _wait(self, seconds: float) -> None:
        left = min(seconds, self.until - time.monotonic())
        if left <= 0:
            raise TimeoutError
        self.socket.settimeout(left)


def _parse(head: str) -> _Head:
    first, *lines = head.split("\r\n")
    words = first.split(" ", 2)
    found = [FIELD.fullmatch(line) for line in lines]
    is_request = len(words) == 3 and words[2] in ("HTTP/1.0", "HTTP/1.1")
    is_request = is_request and bool(METHOD.fullmatch(words[0]))
    is_answer = words[0] in ("HTTP/1.0", "HTTP/1.1") and len(words) > 1
    if not (is_request or is_answer) or not first.isprintable():
        raise _Refusal(400, "not HTTP/1")
    fields = [(match[1], match[2].rstrip()) for match in found if match]
    if len(fields) != len(lines):
        raise _Refusal(400, "a header is malformed")
    return _Head((words[0], words[1], words[2] if len(words) > 2 else ""), fields)


@dataclass(slots=True)
class _Flow:
    """One direction of a tunnel; each end may finish before the other."""

    source: socket.socket
    sink: socket.socket
    waiting: bytearray = field(default_factory=bytearray)
    """was read and is not written yet"""
    finished: bool = False
    """the source has ended"""
    ended: bool = False
    """and the sink was told so"""

    def wants(self) -> tuple[socket.socket, int]:
        if self.waiting:
            return self.sink, selectors.EVENT_WRITE
        return self.source, selectors.EVENT_READ

    def move(self) -> None:
        with suppress(BlockingIOError):
            if self.waiting:
                del self.waiting[: self.sink.send(self.waiting)]
            else:
                data = self.source.recv(STEP)
                self.waiting += data
                self.finished = not data
        if self.finished and not self.waiting:
            self.sink.shutdown(socket.SHUT_WR)
            self.ended = True


def _relay(
    client: socket.socket, server: socket.socket, early: bytes, idle: float, until: float
) -> None:
    """Pass bytes both ways until both ends have finished, or nothing moves, or time is up."""
    flows = [_Flow(client, server, bytearray(early)), _Flow(server, client)]
    client.setblocking(False)
    server.setblocking(False)
    while flows := [flow for flow in flows if not flow.ended]:
        interest: dict[socket.socket, int] = {}
        for flow in flows:
            end, event = flow.wants()
            interest[end] = interest.get(end, 0) | event
        with selectors.DefaultSelector() as selector:
            for end, events in interest.items():
                selector.register(end, events)
            ready = selector.select(max(0.0, min(idle, until - time.monotonic())))
        able = {(key.fileobj, event) for key, events in ready for event in (1, 2) if events & event}
        if not able:
            return
        for flow in flows:
            if flow.wants() in able:
                flow.move()
