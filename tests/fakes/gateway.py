"""A forward proxy of an operator: tunnels by CONNECT, absolute URLs for plain http, a login.

Names outside are known to it alone: `hosts` says which port of this machine answers for them.
"""

import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit

STEP = 65_536


class Gateway:
    def __init__(self, hosts: Mapping[str, int], *, login: str | None = None) -> None:
        """`login` is the `Proxy-Authorization` that it wants."""
        self.asked: list[str] = []
        """first lines of the requests"""
        self.answer: bytes | None = None
        """in place of any other, before it hangs up"""
        self.silent = False
        """takes requests and answers none"""
        self.split = False
        """sends its answer byte by byte"""
        self._hosts = hosts
        self._login = login
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        for end in [self._listener, *self._open]:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for end in [self._listener, *self._open]:
            end.close()

    def _start(self, work: Callable[..., None], *given: object) -> None:
        thread = threading.Thread(target=work, args=given)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                line = self._listener.accept()[0]
                self._open.add(line)
                self._start(self._serve, line)

    def _serve(self, line: socket.socket) -> None:
        with suppress(OSError):
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                if not (byte := line.recv(1)):
                    return
                head += byte
            first, *fields = head.decode("latin-1").split("\r\n")
            self.asked.append(first)
            if not self.silent:
                self._answer(line, first, fields)

    def _answer(self, line: socket.socket, first: str, fields: list[str]) -> None:
        method, target, _ = first.split(" ")
        wanted = f"Proxy-Authorization: {self._login}".lower()
        url = urlsplit(f"//{target}" if method == "CONNECT" else target)
        port = self._hosts.get(url.hostname or "")
        if self.answer is not None:
            self._say(line, self.answer)
            line.shutdown(socket.SHUT_RDWR)
        elif self._login and wanted not in map(str.lower, fields):
            self._say(line, b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
            line.shutdown(socket.SHUT_RDWR)
        elif port is None:
            self._say(line, b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n")
            line.shutdown(socket.SHUT_RDWR)
        else:
            there = socket.create_connection(("127.0.0.1", port))
            self._open.add(there)
            if method == "CONNECT":
                self._say(line, b"HTTP/1.1 200 Connection established\r\nvia: 1.1 gateway\r\n\r\n")
            else:
                path = url.path + (f"?{url.query}" if url.query else "")
                kept = [one for one in fields if not one.lower().startswith("proxy-")]
                there.sendall("\r\n".join([f"{method} {path} HTTP/1.1", *kept]).encode("latin-1"))
            self._start(self._pass, line, there)
            self._pass(there, line)

    def _say(self, line: socket.socket, answer: bytes) -> None:
        for piece in [answer[at : at + 1] for at in range(len(answer))] if self.split else [answer]:
            line.sendall(piece)

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(STEP):
                target.sendall(piece)
            target.shutdown(socket.SHUT_WR)
