"""Nothing gets out: seen by the packets, where every address of the world would answer."""

import http.server
import socket
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from recollect.errors import Permanent, Transient
from recollect.fetch import Fetcher, FetchLimits
from tests.conftest import eventually, start_service, stop_service
from tests.fakes.island import Island, ashore, missing
from tests.fakes.site import Site
from tests.unit.test_fetch_addresses import HOSTILE, INNER_V4, INNER_V6, PUBLIC_V4, PUBLIC_V6

HASTY = FetchLimits(total=5.0, dns=1.0, read=1.0)
SECRET = b"a secret of the inside"
PORTS = (80, 8080)

needs_island = pytest.mark.skipif(missing() is not None, reason=str(missing()))


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
        threading.Thread(target=server.serve_forever, daemon=True).start()
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
        with Fetcher(user_agent="t", limits=HASTY) as fetcher:
            good = [
                one for one in (*PUBLIC_V4, *PUBLIC_V6) if fetched(fetcher, f"http://{host(one)}/")
            ]
        with socket.create_connection(("169.254.169.254", 80), 5):
            pass
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as question:
            question.sendto(bytes(12) + b"\7example\3net\0\0\1\0\1", ("10.1.2.3", 53))
    return {"good": good, "sought": sorted(island.sought())}


@needs_island
def test_an_island_sees_whoever_leaves_it() -> None:
    seen = ashore(visit_neighbours)

    assert seen["good"] == [*PUBLIC_V4, *PUBLIC_V6]
    assert set(seen["sought"]) == {
        *PUBLIC_V4,
        *PUBLIC_V6,
        "169.254.169.254",
        "10.1.2.3 for the address of example.net",
    }


@needs_island
def test_no_packet_goes_to_an_inner_address_whatever_a_stranger_says() -> None:
    seen = ashore(besiege)

    assert seen["tried"] > 1_500
    assert seen["sought"] == [PUBLIC_V4[2]], "it redirects, or is the answer of the moment"
    assert seen["asked"] > seen["got"] > 0, "the secret was there to be had"


def live_alone() -> dict[str, Any]:
    """The whole service, from its first start to a crawl and a search."""
    with Island() as island, TemporaryDirectory() as folder, Site() as site:
        Path(folder).chmod(0o755)  # where PostgreSQL has a user of its own
        site.write("/", "Herons eat frogs.", ["https://example.com/", "http://10.0.0.1/"])
        service = start_service(Path(folder) / "data")
        try:
            with service.client() as client:
                made = client.post(
                    "/v3/connections/web-crawler",
                    json={"metadata": {"startUrl": site.url("/")}, "containerTags": ["alone"]},
                )
                assert made.status_code < 300, made.text

                def hits() -> list[Any]:
                    asked = {"q": "what do herons eat", "containerTags": ["alone"]}
                    return client.post("/v3/search", json=asked).json()["results"]

                found = eventually(hits, 90)
                inner = client.post("/v3/documents", json={"content": "http://169.254.169.254/"})
        finally:
            stop_service(service)
    return {"found": len(found), "inner": inner.status_code, "sought": sorted(island.sought())}


@needs_island
@pytest.mark.slow
def test_the_service_works_without_a_network_and_looks_for_none() -> None:
    seen = ashore(live_alone, timeout=300)

    assert seen["found"] == 1
    assert seen["inner"] == 400
    assert seen["sought"] == []
