"""A network between a process and its PostgreSQL: it cuts, stalls and half-closes connections.

It reads the client's side of the protocol, so that it can break exactly at a commit: before the
server has it, after the server did it, in the middle of the answer. The server itself is sound.
"""

import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Literal, Self

import psycopg
from psycopg.conninfo import make_conninfo

Fault = Literal["unsent", "unanswered", "torn", "half", "stalled"]
"""What becomes of a statement, and its connection:

unsent      it is cut before the server has the statement
unanswered  it is cut after the server answered, and the answer is lost
torn        likewise, with the first bytes of the answer
half        the statement arrives, the client only sees the end of the stream; the server's side
            stays open
stalled     the answer comes late, and nothing is cut
"""
FAULTS: tuple[Fault, ...] = ("unsent", "unanswered", "torn", "half", "stalled")
STALL = 0.5
"""seconds"""
TORN = 3
"""bytes of an answer that is torn"""
RESET = struct.pack("ii", 1, 0)
"""Lingering for no time: closing sends RST."""


@dataclass
class Rule:
    """Break one commit: the next of a transaction in which a statement matched."""

    fault: Fault
    touching: re.Pattern[str]
    skip: int = 0
    """commits of that kind that pass before"""
    hit: threading.Event = field(default_factory=threading.Event)


@dataclass
class Weather:
    """Break statements at random: each with the chance `share`, a commit four times as likely."""

    chance: Random
    share: float
    faults: Sequence[Fault] = FAULTS
    happened: Counter[str] = field(default_factory=Counter[str])


class Wire:
    """Listens on loopback, at `url`, in front of the server of another one."""

    def __init__(self, url: str) -> None:
        with psycopg.connect(url) as session:
            info = session.info
            self._upstream = f"{info.host}/.s.PGSQL.{info.port}"
            self._tcp = None if info.host.startswith("/") else (info.hostaddr, info.port)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = make_conninfo(
            url,
            host="127.0.0.1",
            port=self._listener.getsockname()[1],
            sslmode="disable",
            gssencmode="disable",
        )
        self.weather: Weather | None = None
        self._rules: list[Rule] = []
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        with self._lock:
            for one in self._open:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def at_commit(self, fault: Fault, touching: str, *, skip: int = 0) -> Rule:
        """Break the next commit of a transaction that said something like `touching`."""
        rule = Rule(fault, re.compile(touching, re.IGNORECASE), skip)
        with self._lock:
            self._rules.append(rule)
        return rule

    def calm(self) -> None:
        """Break nothing from now on."""
        with self._lock:
            self._rules.clear()
            self.weather = None

    def decide(self, statement: str, said: list[str]) -> Fault | None:
        """What becomes of a statement after those that were `said` in its transaction."""
        is_commit = statement.strip().lower() == "commit"
        with self._lock:
            for rule in self._rules if is_commit else ():
                if any(rule.touching.search(one) for one in said):
                    if rule.skip > 0:
                        rule.skip -= 1
                        continue
                    self._rules.remove(rule)
                    rule.hit.set()
                    return rule.fault
            if (weather := self.weather) is not None:
                share = weather.share * (4 if is_commit else 1)
                if weather.chance.random() < share:
                    fault = weather.chance.choice(weather.faults)
                    weather.happened[f"{fault} commit" if is_commit else fault] += 1
                    return fault
        return None

    def keep(self, *ends: socket.socket) -> None:
        with self._lock:
            self._open.update(ends)

    def drop(self, *ends: socket.socket) -> None:
        with self._lock:
            self._open.difference_update(ends)

    def dial(self) -> socket.socket:
        if self._tcp is not None:
            return socket.create_connection(self._tcp)
        upstream = socket.socket(socket.AF_UNIX)
        upstream.connect(self._upstream)
        return upstream

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                upstream = self.dial()
            except OSError:
                return
            self.keep(client, upstream)
            _Line(self, client, upstream).start()


class _Line:
    """One connection: a thread for each direction."""

    def __init__(self, wire: Wire, client: socket.socket, upstream: socket.socket) -> None:
        self._wire = wire
        self._client = client
        self._upstream = upstream
        self._said: list[str] = []
        self._fault: Fault | None = None
        """what the next answer meets"""

    def start(self) -> None:
        self._client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for target in (self._forth, self._back):
            threading.Thread(target=target, daemon=True).start()

    def _forth(self) -> None:
        with suppress(OSError):
            for kind, frame in _frames(self._client):
                statement = _statement(kind, frame)
                if statement is None:
                    self._upstream.sendall(frame)
                    continue
                fault = self._wire.decide(statement, self._said)
                if statement.strip().lower().startswith(("begin", "commit", "rollback")):
                    self._said.clear()
                else:
                    self._said.append(statement)
                if fault == "unsent":
                    break
                self._fault = fault
                self._upstream.sendall(frame)
                if fault == "half":
                    # The other direction says the end to the client, and the server hears nothing.
                    return
        if self._fault is None or self._fault == "stalled":
            self._cut()

    def _back(self) -> None:
        with suppress(OSError):
            while data := self._upstream.recv(65536):
                fault, self._fault = self._fault, None
                match fault:
                    case "unanswered":
                        break
                    case "torn":
                        self._client.sendall(data[:TORN])
                        break
                    case "half":
                        self._client.shutdown(socket.SHUT_WR)
                        while self._upstream.recv(65536):  # until the server gives up by itself
                            pass
                        break
                    case "stalled":
                        threading.Event().wait(STALL)
                    case _:
                        pass
                self._client.sendall(data)
        self._cut()

    def _cut(self) -> None:
        self._wire.drop(self._client, self._upstream)
        with suppress(OSError):
            self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        for end in (self._client, self._upstream):
            # The other thread may hold the descriptor in a call: shut it down first.
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def _frames(client: socket.socket) -> Iterator[tuple[bytes, bytes]]:
    """The client's messages, each whole: its kind (empty for the first) and all its bytes."""
    held, first = b"", True
    while True:
        head = 4 if first else 5
        while len(held) < head or len(held) < (size := _size(held, first)):
            data = client.recv(65536)
            if not data:
                return
            held += data
        yield (b"" if first else held[:1]), held[:size]
        held, first = held[size:], False


def _size(held: bytes, first: bool) -> int:
    at = 0 if first else 1
    return at + int.from_bytes(held[at : at + 4], "big")


def _statement(kind: bytes, frame: bytes) -> str | None:
    """What a message asks to run, if it is one that asks."""
    if kind == b"Q":
        return frame[5:].partition(b"\0")[0].decode(errors="replace")
    if kind == b"P":
        return frame[5:].split(b"\0")[1].decode(errors="replace")
    return None
