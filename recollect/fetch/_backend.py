"""Resolve once, judge every answer, dial what was judged, and never outlive the deadline.

httpcore asks this backend for connections by name and keeps the name as the connection's origin, so
that Host, SNI and certificate are right; only here does the name become an address. There is no
second look-up which could get another answer.
"""

import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Any

import httpcore

from recollect.errors import BadRequestError, Permanent, Transient
from recollect.fetch._address import (
    NOT_PUBLIC,
    FetchTarget,
    JudgedAddress,
    Network,
    inner_only,
    is_within,
    judge,
    literal_address,
    read_url,
    refuse,
    screen,
)
from recollect.fetch._way_out import ForwardProxy, way_out

Resolver = Callable[[str, int], Sequence[str]]
"""(name, port) → all its addresses. Raises OSError when there are none."""
Dial = Callable[[str, int, float], socket.socket]
"""(address, port, seconds) → connected socket. Never given a name. Raises OSError."""

DIALLED = 4
"""how many addresses of a name are tried"""
LOOKUPS = threading.BoundedSemaphore(64)
"""A look-up cannot be interrupted, only abandoned: this many may be under way in a process."""


def system_resolve(name: str, port: int) -> Sequence[str]:
    # As bytes, because for text Python would apply its own, older IDNA rules to the name.
    found = socket.getaddrinfo(name.encode("ascii"), port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def system_dial(address: str, port: int, seconds: float) -> socket.socket:
    connected = socket.create_connection((address, port), seconds)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected


class Fetching(threading.local):
    """What the current thread is fetching; connections outlive fetches and serve several."""

    dials = 0
    """how many connections were asked for"""
    _end: float | None = None
    _patient = False

    @contextmanager
    def within(self, seconds: float, *, patient: bool = False) -> Generator[None]:
        """All that this thread does inside ends when the time is up. `patient`: one read, such as
        that of an answer which its sender works for, may take all of it."""
        self._end = time.monotonic() + seconds
        self._patient = patient
        try:
            yield
        finally:
            self._end = None

    def left(self, at_most: float) -> float:
        """Seconds that one step may take. Raises TimeoutError when there are none."""
        if self._end is None:
            raise RuntimeError("nothing is fetched without a deadline")
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left if self._patient else min(left, at_most)


class Guard(httpcore.NetworkBackend):
    """Connects to judged addresses only. Blocked targets raise Permanent right through httpcore."""

    def __init__(
        self,
        *,
        allow_networks: Sequence[Network],
        resolve: Resolver,
        dial: Dial,
        dns: float,
        step: float,
    ) -> None:
        """`dns` and `step` (one connect, read or write) are seconds."""
        self.fetching = Fetching()
        self._allow_networks = allow_networks
        self._resolve = resolve
        self._dial = dial
        self._dns = dns
        self._step = step

    def target(self, url: str) -> FetchTarget:
        """What a URL points at; asks no DNS. Raises Permanent (`invalid_url`, `blocked_target`)."""
        try:
            return screen(read_url(url), self._allow_networks)
        except ValueError as error:
            raise Permanent("not a valid URL", code="invalid_url") from error
        except BadRequestError as error:
            raise Permanent(error.details or NOT_PUBLIC, code="blocked_target") from error

    def judge(self, host: str, port: int) -> tuple[Sequence[JudgedAddress], str | None]:
        """All addresses of the host, and why it must not be dialled (None: it may be). A name that
        only the forward proxy knows has none here."""
        try:
            addresses = [host] if literal_address(host) is not None else self._addresses(host, port)
        except Transient as error:
            if error.code != "dns_failure" or way_out(host) is None:
                raise
            return (), inner_only(host, port)
        judged = [judge(address, self._allow_networks) for address in addresses]
        return judged, refuse(judged, host, port, self._allow_networks)

    def _addresses(self, name: str, port: int) -> Sequence[str]:
        box: SimpleQueue[Sequence[str] | OSError] = SimpleQueue()

        def look_up() -> None:
            try:
                box.put(self._resolve(name, port))
            except OSError as error:
                box.put(error)
            finally:
                LOOKUPS.release()

        try:
            seconds = self.fetching.left(self._dns)
            if not LOOKUPS.acquire(timeout=seconds):
                raise Transient(f"too many names are looked up: {name} waits", code="timeout")
            threading.Thread(target=look_up, name="look-up", daemon=True).start()
            found = box.get(timeout=seconds)
        except (Empty, TimeoutError) as error:
            raise Transient(f"looking up {name} took too long", code="dns_failure") from error
        if isinstance(found, OSError):
            raise Transient(f"{name} does not resolve", code="dns_failure") from found
        if not found:
            raise Transient(f"{name} does not resolve", code="dns_failure")
        return found

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        return Stream(self.connect(host, port), self.fetching, self._step)

    def connect(self, host: str, port: int) -> socket.socket:
        """Connected to a judged address of the host, within the time of the fetch.

        Raises Permanent (`blocked_target`), Transient (`dns_failure`, `unreachable`), TimeoutError.
        """
        self.fetching.dials += 1
        judged, refusal = self.judge(host, port)
        if refusal is not None:
            raise Permanent(NOT_PUBLIC, code="blocked_target")
        opened = judged and all(is_within(one.address, self._allow_networks) for one in judged)
        if not opened and (proxy := way_out(host)) is not None:
            return proxy.tunnel(self._line_to(proxy), host, port, self.fetching.left(self._step))
        return self._dialled(host, [one.address for one in judged], port)

    def _line_to(self, proxy: ForwardProxy) -> socket.socket:
        host, port = proxy.address
        try:
            known = literal_address(host) is not None
            return self._dialled(host, [host] if known else self._addresses(host, port), port)
        except Transient as error:  # its name is not for those who name URLs
            raise Transient("no connection to the proxy", code="unreachable") from error

    def _dialled(self, host: str, addresses: Sequence[str], port: int) -> socket.socket:
        failure: OSError | None = None
        candidates = addresses[:DIALLED]
        for tried, candidate in enumerate(candidates):
            # A silent address must leave time for those after it.
            share = self.fetching.left(float("inf")) / (len(candidates) - tried)
            try:
                return self._dial(candidate, port, min(share, self._step))
            except OSError as error:
                failure = error
        # The same words for closed, filtered and silent: they are no port scanner's tool.
        raise Transient(f"no connection to {host}", code="unreachable") from failure


class Stream(httpcore.NetworkStream):
    """A socket on which each step ends when the fetch's time is up."""

    def __init__(self, connected: socket.socket, fetching: Fetching, step: float) -> None:
        self._socket = connected
        self._fetching = fetching
        self._step = step

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            self._socket.settimeout(self._fetching.left(self._step))
            return self._socket.recv(max_bytes)
        except TimeoutError as error:
            raise httpcore.ReadTimeout from error
        except OSError as error:
            raise httpcore.ReadError from error

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        rest = memoryview(buffer)
        try:
            while rest:
                self._socket.settimeout(self._fetching.left(self._step))
                rest = rest[self._socket.send(rest) :]
        except TimeoutError as error:
            raise httpcore.WriteTimeout from error
        except OSError as error:
            raise httpcore.WriteError from error

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        try:
            # The socket's time limit covers the handshake as a whole.
            self._socket.settimeout(self._fetching.left(self._step))
            secured = ssl_context.wrap_socket(self._socket, server_hostname=server_hostname)
        except TimeoutError as error:
            self.close()
            raise httpcore.ConnectTimeout from error
        except ssl.SSLCertVerificationError as error:
            self.close()
            raise Transient(
                f"the certificate of {server_hostname} is not valid: {error.verify_message}",
                code="tls_failure",
            ) from error
        except (OSError, ValueError) as error:
            self.close()
            raise Transient(
                f"no secure connection to {server_hostname}", code="tls_failure"
            ) from error
        return Stream(secured, self._fetching, self._step)

    def close(self) -> None:
        self._socket.close()

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":  # how httpcore finds idle connections that the server closed
            return self._socket.fileno() < 0 or self._is_readable()
        return None

    def _is_readable(self) -> bool:
        # Asked of every idle connection before every request.
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))
