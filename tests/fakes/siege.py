"""What the packets of `test_escapes` are about: a stranger who says all that can be said.

Both functions are run `ashore`, each in a process of its own: this module imports little.
"""

import http.server
import socket
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import Any

from recollect.errors import Permanent, Transient
from recollect.fetch import Fetcher, FetchLimits
from tests.fakes.island import Island
from tests.fetch.test_fetch_addresses import HOSTILE, INNER_V4, INNER_V6, PUBLIC_V4, PUBLIC_V6

HASTY = FetchLimits(total=5.0, dns=1.0, read=1.0)
SECRET = b"a secret of the inside"
PORTS = (80, 8080)


class Inside(http.server.ThreadingHTTPServer):
    """Answers at every address, over both families."""

    address_family = socket.AF_INET6
    daemon_threads = True
    asked = 0

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


class Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or each body waits 40 ms for the head's acknowledgement

    def do_GET(self) -> None:
        assert isinstance(self.server, Inside)
        self.server.asked += 1
        target = self.path.removeprefix("/to/")
        redirects = target != self.path
        self.send_response(302 if redirects else 200)
        if redirects:
            self.send_header("Location", target)
        self.send_header("Content-Length", "0" if redirects else str(len(SECRET)))
        self.end_headers()
        if not redirects:
            self.wfile.write(SECRET)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def inside() -> Generator[list[Inside]]:
    servers = [Inside(("::", port), Answers) for port in PORTS]
    for server in servers:
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    yield servers
    for server in servers:
        server.shutdown()
        server.server_close()


def fetched(fetcher: Fetcher, url: str) -> bool:
    try:
        return fetcher.get(url).data == SECRET
    except (Permanent, Transient):
        return False


def host(address: str) -> str:
    return f"[{address}]" if ":" in address else address


class NameServer:
    """Of the enemy: each look-up of a name has another answer."""

    def __init__(self) -> None:
        self._answers: dict[str, Iterator[Sequence[str]]] = {}

    def name(self, answers: Sequence[Sequence[str]]) -> str:
        """A fresh name with these answers in turn, over and over."""
        name = f"name-{len(self._answers)}.net"
        self._answers[name] = cycle(answers)
        return name

    def __call__(self, name: str, port: int) -> Sequence[str]:
        return next(self._answers[name])


def besiege() -> dict[str, Any]:
    """Everything that a stranger can say, to a door that stands alone."""
    public, inner, names = PUBLIC_V4[2], [*INNER_V4, *INNER_V6], NameServer()
    urls = [*HOSTILE, *(f"http://{public}/to/http://{host(one)}/" for one in inner)]
    for one in inner:
        mixed = ([[one]], [[public, one]], [[one, public]])
        urls += [f"http://{names.name(answers)}/" for answers in mixed]
        # Public when it is judged, inner when it is dialled: were it looked up twice.
        urls += [f"http://{names.name([[public], [one]])}/"] * 2
        urls += [f"http://{names.name([[one], [public]])}:8080/"] * 2
    with (
        Island() as island,
        inside() as servers,
        Fetcher(user_agent="t", limits=HASTY, resolve=names) as fetcher,
    ):
        got = sum(fetched(fetcher, url) for url in urls)
        asked = sum(server.asked for server in servers)
    return {"tried": len(urls), "got": got, "asked": asked, "sought": sorted(island.sought())}


def visit_neighbours() -> dict[str, Any]:
    """The same island lets public addresses be reached, and sees who goes elsewhere."""
    with Island() as island, inside():
        with Fetcher(user_agent="t") as fetcher:
            good = [
                one for one in (*PUBLIC_V4, *PUBLIC_V6) if fetched(fetcher, f"http://{host(one)}/")
            ]
        with socket.create_connection(("169.254.169.254", 80), 30):
            pass
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as question:
            question.sendto(bytes(12) + b"\7example\3net\0\0\1\0\1", ("10.1.2.3", 53))
    return {"good": good, "sought": sorted(island.sought())}
