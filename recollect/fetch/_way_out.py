"""The operator's forward proxy, for machines that reach others through one only (RFC 9110, 9.3.6).

One for the whole process, as `HTTPS_PROXY` is elsewhere: it is set when the settings are read,
before anything connects.
"""

import base64
import re
import socket
import time
from collections.abc import Sequence
from ipaddress import ip_network

import httpx

from recollect.config import is_this_machine
from recollect.errors import SetupError, Transient
from recollect.fetch._address import (
    Network,
    inner_only,
    is_name,
    is_within,
    judge,
    literal_address,
)

LARGEST_HEAD = 16_384
"""bytes of the proxy's answer to CONNECT"""
_END = b"\r\n\r\n"
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})[ \r]")


class ForwardProxy:
    """Which hosts are reached through it, and how. May be shared by threads."""

    def __init__(self, url: str, direct: Sequence[str] = ()) -> None:
        """`url` is `http://[user:password@]host[:port]`. `direct` are what is reached without it:
        names, with those below them, and networks (CIDR).

        Raises SetupError, which does not quote what may be a password.
        """
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL:
            raise SetupError("RECOLLECT_PROXY: not a valid URL") from None
        host = parsed.raw_host.decode("ascii").strip("[]")
        known = literal_address(host) is not None or (bool(host) and is_name(host))
        bare = parsed.raw_path in (b"", b"/") and "#" not in url
        if parsed.scheme != "http" or not known or not bare:
            raise SetupError(
                "RECOLLECT_PROXY: must be http://host:port, or http://user:password@host:port"
            )
        self.address = (host, parsed.port or 80)
        self._login = (parsed.username, parsed.password)
        self._names: list[str] = []
        self._networks: list[Network] = []
        for one in direct:
            try:
                self._networks.append(ip_network(one))
            except ValueError:
                if not is_name(name := one.lower().strip(".")):
                    said = f"{one!r} is neither a host name nor a network"
                    raise SetupError(f"RECOLLECT_NO_PROXY: {said}") from None
                self._names.append(name)

    def serves(self, host: str) -> bool:
        """Not this machine, names and addresses that only the inside has, and what is excepted."""
        host = host.lower().strip("[]").removesuffix(".")
        if is_this_machine(host) or is_within(host, self._networks):
            return False
        if literal_address(host) is not None:
            return judge(host, ()).allowed
        if any(host == name or host.endswith(f".{name}") for name in self._names):
            return False
        # What ends with a number is an address in short, such as 127.1, and left to the system.
        return not host.rpartition(".")[2].isdigit() and inner_only(host, 443) is None

    def for_httpx(self) -> httpx.Proxy:
        host, port = self.address
        return httpx.Proxy(httpx.URL(scheme="http", host=host, port=port), auth=self._auth())

    def _auth(self) -> tuple[str, str] | None:
        return self._login if any(self._login) else None

    def tunnel(self, line: socket.socket, host: str, port: int, seconds: float) -> socket.socket:
        """The line to the proxy, connected to the host's port, which the proxy looks up. Raises
        TimeoutError, and Transient (`unreachable`) where the proxy cannot, or may not."""
        until = time.monotonic() + seconds
        try:
            line.settimeout(seconds)
            line.sendall(self._ask(f"[{host}]" if ":" in host else host, port))
            head = _head(line, until)
        except TimeoutError:
            line.close()
            raise
        except OSError as error:
            line.close()
            raise Transient("the proxy broke off", code="unreachable") from error
        status = _STATUS.match(head) if head.endswith(_END) else None
        if status is None or status[1][:1] != b"2":
            line.close()
            told = status[1].decode() if status else "no HTTP"
            raise Transient(f"the proxy did not connect to {host}: {told}", code="unreachable")
        return line

    def _ask(self, host: str, port: int) -> bytes:
        lines = [f"CONNECT {host}:{port} HTTP/1.1", f"Host: {host}:{port}"]
        if (login := self._auth()) is not None:
            pair = base64.b64encode(":".join(login).encode()).decode()
            lines.append(f"Proxy-Authorization: Basic {pair}")
        return "\r\n".join([*lines, "", ""]).encode("ascii")


def _head(line: socket.socket, until: float) -> bytes:
    """To the empty line, and no byte of what comes behind it."""
    head = b""
    while not head.endswith(_END) and len(head) < LARGEST_HEAD:
        line.settimeout(max(until - time.monotonic(), 0.001))
        waiting = line.recv(LARGEST_HEAD, socket.MSG_PEEK)
        if not waiting:
            raise ConnectionError
        end = (head + waiting).find(_END)
        head += line.recv(len(waiting) if end < 0 else end + 4 - len(head))
    return head


_set: ForwardProxy | None = None


def use_proxy(proxy: ForwardProxy | None) -> None:
    """From now on, for all that this process connects to."""
    global _set
    _set = proxy


def way_out(host: str) -> ForwardProxy | None:
    """The proxy through which this host is reached; None: directly."""
    return _set if _set is not None and _set.serves(host) else None
