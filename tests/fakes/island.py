"""A network of its own, in which every address of the world is this machine.

    with Island() as island:
        ...
    island.sought()      # the addresses that somebody tried to reach, loopback left out

`ashore(function)` runs a function of a test module on such an island, in a process of its own, and
returns what it returns (JSON). There, a connection to an inner or a foreign address succeeds at
once instead of failing somewhere: whoever tries it is seen, in whatever process and library.
"""

import importlib
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from types import TracebackType
from typing import Any, Self

PROJECT = Path(__file__).parents[2]
# As oneself, for PostgreSQL does not run as root.
ALLOWED = () if os.geteuid() == 0 else ("--user", "--map-current-user", "--keep-caps")
NAMESPACE = ("unshare", "--net", *ALLOWED)
EVERY_PROTOCOL = 3
SOL_PACKET, PACKET_STATISTICS = 263, 6
TCP, UDP = 6, 17
OUTGOING = 4
REFUSALS = {(1, 3), (58, 1)}
"""what ICMP says to whoever sent a datagram where nobody listens"""
DNS = (53).to_bytes(2, "big")


def missing() -> str | None:
    """Why there can be no island here."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return "needs unshare (util-linux) and ip (iproute2)"
    tried = subprocess.run([*NAMESPACE, "ip", "link", "set", "lo", "up"], capture_output=True)
    return None if tried.returncode == 0 else "namespaces of the network are off on this machine"


def ashore(function: Callable[[], Any], *, timeout: float = 120) -> Any:
    command = [*NAMESPACE, sys.executable, "-m", __name__, function.__module__, function.__name__]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


class Island:
    """Entered within a namespace without a network; watches all packets."""

    def __init__(self) -> None:
        self._sought: set[str] = set()
        self._ended = False

    def __enter__(self) -> Self:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        for family, everything in (("-4", "0.0.0.0/0"), ("-6", "::/0")):
            subprocess.run(["ip", family, "route", "add", "local", everything, "dev", "lo"])
        self._socket = socket.socket(
            socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(EVERY_PROTOCOL)
        )
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_000_000)
        self._socket.bind(("lo", 0))
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended = True
        # The watcher wakes up by a packet; those before it are read by then.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as bell:
            bell.sendto(b"", ("127.0.0.1", 9))
        self._thread.join()
        _, lost = struct.unpack("II", self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
        self._socket.close()
        assert lost == 0, f"{lost} packets were not seen"

    def sought(self) -> set[str]:
        """Where connections (and datagrams) were to go, but for loopback."""
        return self._sought

    def _watch(self) -> None:
        while True:
            packet, _, _, origin = self._socket.recvmsg(2048)
            if origin[2] == OUTGOING and (address := _destination(packet)) is not None:
                self._sought.add(address)
            if self._ended and origin[2] == OUTGOING and packet[9:10] == bytes([UDP]):
                return


def _destination(packet: bytes) -> str | None:
    """Of the beginning of a connection, or of anything else that is no part of one."""
    if packet[0] >> 4 == 4:
        address: IPv4Address | IPv6Address = IPv4Address(packet[16:20])
        protocol, rest = packet[9], packet[(packet[0] & 15) * 4 :]
    else:
        address = IPv6Address(packet[24:40])
        protocol, rest = packet[6], packet[40:]
    begins = protocol != TCP or rest[13] & 0b10010 == 0b10  # SYN without ACK
    if address.is_loopback or not begins or (protocol, rest[0]) in REFUSALS:
        return None
    if protocol == UDP and rest[2:4] == DNS:
        return f"{address} for the address of {_name(rest[8 + 12 :])}"
    return str(address)


def _name(question: bytes) -> str:
    """RFC 1035 4.1.2."""
    labels: list[str] = []
    while length := question[0]:
        labels.append(question[1 : 1 + length].decode("ascii", "replace"))
        question = question[1 + length :]
    return ".".join(labels)


def _land(module: str, name: str) -> None:
    # What the outside knows of proxies and the like is not for here.
    for variable in [key for key in os.environ if key.lower().endswith("_proxy")]:  # noqa: TID251
        del os.environ[variable]  # noqa: TID251
    sys.stdout.write(json.dumps(getattr(importlib.import_module(module), name)()))


if __name__ == "__main__":
    _land(*sys.argv[1:])
