"""The proxy through which HTTP stacks that are not ours pass the guarded door."""

import base64
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from urllib.parse import urlsplit

import obstore
import pytest
from obstore.exceptions import PermissionDeniedError
from obstore.store import HTTPStore

from recollect.fetch import Fetcher, FetchLimits, GuardedProxy, ProxyLimits
from tests.conftest import LOOPBACK, eventually
from tests.fakes import website
from tests.fakes.website import Exchange, Website, answer

PUBLIC = "93.184.216.34"


@pytest.fixture
def site() -> Iterator[Website]:
    with Website() as site:
        yield site


@pytest.fixture(scope="module")
def fetcher() -> Iterator[Fetcher]:
    with Fetcher(user_agent="test/1", allow_networks=[LOOPBACK]) as fetcher:
        yield fetcher


@pytest.fixture
def proxy(fetcher: Fetcher) -> Iterator[GuardedProxy]:
    with fetcher.proxy() as proxy:
        yield proxy


@pytest.fixture
def hasty(fetcher: Fetcher) -> Iterator[GuardedProxy]:
    """Gives requests little time."""
    with fetcher.proxy(ProxyLimits(head=0.3)) as proxy:
        yield proxy


@pytest.fixture
def idle(fetcher: Fetcher) -> Iterator[GuardedProxy]:
    """Gives them all that they need, and then ends what does not move."""
    with fetcher.proxy(ProxyLimits(head=60, idle=0.3)) as proxy:
        yield proxy


class Echo:
    """Says what it hears, and `bye` when the client has finished speaking."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.connections = 0

    def __enter__(self) -> "Echo":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while data := connection.recv(65536):
                connection.sendall(data)
            connection.sendall(b"bye")


@pytest.fixture
def echo() -> Iterator[Echo]:
    with Echo() as echo:
        yield echo


def connect(proxy: GuardedProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", urlsplit(proxy.url).port or 0), timeout=30)


def credential(proxy: GuardedProxy) -> bytes:
    parts = urlsplit(proxy.url)
    pair = base64.b64encode(f"{parts.username}:{parts.password}".encode())
    return b"Proxy-Authorization: Basic " + pair + b"\r\n"


def request(proxy: GuardedProxy, line: str, *fields: str) -> bytes:
    lines = "".join(f"{one}\r\n" for one in [line, *fields])
    return lines.encode("latin-1") + credential(proxy) + b"\r\n"


def said(client: socket.socket) -> bytes:
    """All that comes until the other side has finished."""
    heard = b""
    with suppress(ConnectionResetError):
        while data := client.recv(65536):
            heard += data
    return heard


def talk(proxy: GuardedProxy, raw: bytes) -> bytes:
    with connect(proxy) as client:
        client.sendall(raw)
        return said(client)


def status(heard: bytes) -> int:
    return int(heard.split(b" ", 2)[1])


def tunnel(proxy: GuardedProxy, port: int, early: bytes = b"") -> socket.socket:
    client = connect(proxy)
    client.sendall(request(proxy, f"CONNECT 127.0.0.1:{port} HTTP/1.1") + early)
    heard = b""
    while not heard.endswith(b"\r\n\r\n"):
        if not (one := client.recv(1)):
            client.close()
            raise ConnectionError("ended by the proxy")
        heard += one
    assert status(heard) == 200
    return client


def exactly(client: socket.socket, size: int) -> bytes:
    heard = b""
    while len(heard) < size and (data := client.recv(size - len(heard))):
        heard += data
    return heard


# What passes


def test_a_plain_request_arrives_without_what_belongs_to_the_proxy(
    site: Website, proxy: GuardedProxy
):
    site.page("/a", "hello", headers={"X-Answer": "1", "Keep-Alive": "timeout=5"})

    heard = talk(
        proxy,
        request(
            proxy,
            f"GET http://127.0.0.1:{site.port}/a?q=1 HTTP/1.1",
            "Host: other.example",
            "X-Mine: yes",
            "X-Hop: no",
            "Connection: keep-alive, X-Hop",
            "Proxy-Connection: keep-alive",
        ),
    )

    head, _, body = heard.partition(b"\r\n\r\n")
    assert (status(heard), body) == (200, b"hello")
    assert b"X-Answer: 1" in head
    assert b"connection: close" in head.lower()
    assert b"keep-alive" not in head.lower()
    sent = site.requests[0]
    assert (sent.method, sent.path) == ("GET", "/a?q=1")
    assert sent.headers == {
        "host": f"127.0.0.1:{site.port}",
        "x-mine": "yes",
        "connection": "close",
    }


def test_a_body_arrives_whole_and_nothing_behind_it(site: Website, proxy: GuardedProxy):
    body = bytes(range(256)) * 2000
    site.page("/put", "stored")

    heard = talk(
        proxy,
        request(
            proxy,
            f"PUT http://127.0.0.1:{site.port}/put HTTP/1.1",
            f"Content-Length: {len(body)}",
        )
        + body
        + request(proxy, f"GET http://127.0.0.1:{site.port}/second HTTP/1.1"),
    )

    assert heard.endswith(b"stored")
    assert [(one.method, one.body) for one in site.requests] == [("PUT", body)]


def test_a_large_answer_passes(site: Website, proxy: GuardedProxy):
    site.page("/", b"x" * 3_000_000)

    heard = talk(proxy, request(proxy, f"GET http://127.0.0.1:{site.port}/ HTTP/1.1"))

    assert heard.count(b"x") >= 3_000_000


def test_interim_answers_are_left_out(site: Website, proxy: GuardedProxy):
    def serve(exchange: Exchange) -> None:
        exchange.send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n")
        exchange.send(answer(200, b"real"))

    site.route("/", serve)

    heard = talk(proxy, request(proxy, f"GET http://127.0.0.1:{site.port}/ HTTP/1.1"))

    assert heard.startswith(b"HTTP/1.1 200")
    assert heard.endswith(b"real")


def test_a_foreign_client_passes_and_is_stopped(site: Website, proxy: GuardedProxy):
    site.page("/folder/file", "content", headers={"Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"})
    options = {"allow_http": True, "proxy_url": proxy.url}
    store = HTTPStore.from_url(site.url("/folder"), client_options=options)  # pyright: ignore[reportArgumentType]

    got = bytes(obstore.get(store, "file").bytes())

    assert got == b"content"
    with Fetcher(user_agent="test/1") as strict, strict.proxy() as guarded:
        store = HTTPStore.from_url(
            site.url("/folder"),
            client_options={"allow_http": True, "proxy_url": guarded.url},
            retry_config={"max_retries": 0},
        )
        with pytest.raises(PermissionDeniedError, match="not a public address"):
            obstore.get(store, "file")
    assert len(site.requests) == 1


def test_a_tunnel_carries_both_ways_and_each_end_may_finish_first(echo: Echo, proxy: GuardedProxy):
    with tunnel(proxy, echo.port, early=b"early ") as client:
        assert exactly(client, 6) == b"early "
        client.sendall(b"later")
        assert exactly(client, 5) == b"later"

        client.shutdown(socket.SHUT_WR)

        assert said(client) == b"bye"


def test_a_tunnel_takes_more_than_it_gives_at_a_time(echo: Echo, proxy: GuardedProxy):
    """Megabytes go in before anything is read back: neither direction may hold up the other."""
    sent = bytes(range(256)) * 40_000
    with tunnel(proxy, echo.port) as client:
        writer = threading.Thread(target=lambda: client.sendall(sent))
        writer.start()

        assert exactly(client, len(sent)) == sent
        writer.join()


# What does not


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:80",
        "169.254.169.254:80",
        "[::1]:443",
        "[::ffff:127.0.0.1]:443",
        "localhost:80",
        "metadata.google.internal:80",
        "0x7f000001:80",
        "2130706433:80",
        "017700000001:80",
        "10.0.0.1:443",
        "printer:80",
        "mail.example.net:25",
    ],
)
@pytest.mark.parametrize("form", ["CONNECT {}", "GET http://{}/latest/meta-data/"])
def test_the_inside_is_refused_before_anything_is_looked_up(form: str, host: str):
    asked: list[str] = []

    def never(name: str, *_: object) -> Sequence[str]:
        asked.append(name)
        raise OSError

    def dial(address: str, port: int, seconds: float) -> socket.socket:
        asked.append(address)
        raise OSError

    with (
        Fetcher(user_agent="test/1", resolve=never, dial=dial) as fetcher,
        fetcher.proxy() as proxy,
    ):
        heard = talk(proxy, request(proxy, f"{form.format(host)} HTTP/1.1"))

    assert status(heard) == 403
    assert asked == []


def test_what_is_judged_is_dialled_and_looked_up_once(site: Website):
    answers = iter([[PUBLIC], ["127.0.0.1"], [PUBLIC, "127.0.0.1"]])
    dialled: list[str] = []

    def dial(address: str, port: int, seconds: float) -> socket.socket:
        dialled.append(address)
        return socket.create_connection((site.host, site.port), seconds)

    site.page("/", "hello")
    with (
        Fetcher(user_agent="t", resolve=lambda name, port: next(answers), dial=dial) as fetcher,
        fetcher.proxy() as proxy,
    ):
        raw = request(proxy, "GET http://rebinding.net/ HTTP/1.1")
        got = [status(talk(proxy, raw)) for _ in range(3)]

    assert got == [200, 403, 403]
    assert dialled == [PUBLIC]
    assert site.requests[0].headers["host"] == "rebinding.net"


@pytest.mark.parametrize(
    "field",
    [
        "",
        "Basic",
        "Basic d3Jvbmc6d3Jvbmc=",
        "Bearer {}",
        "basic x{}",
        "Basic {}\r\n{}",
        "Basic \xe9",
    ],
    ids=["none", "empty", "wrong", "scheme", "longer", "twice", "latin"],
)
def test_only_who_knows_the_secret_may_pass(
    echo: Echo, site: Website, proxy: GuardedProxy, field: str
):
    right = credential(proxy).decode().removeprefix("Proxy-Authorization: Basic ").strip()
    if field == "Basic {}\r\n{}":
        value = f"Basic {right}\r\nProxy-Authorization: Basic {right}"
    else:
        value = field.format(right)
    line = f"Proxy-Authorization: {value}\r\n" if field else ""
    for start in (
        f"CONNECT 127.0.0.1:{echo.port} HTTP/1.1\r\n",
        f"GET {site.url()} HTTP/1.1\r\n",
    ):
        heard = talk(proxy, f"{start}{line}\r\n".encode("latin-1"))

        assert status(heard) == 407
        assert b"Proxy-Authenticate: Basic" in heard
    assert (echo.connections, site.requests) == (0, [])


def test_each_proxy_has_a_secret_of_its_own(fetcher: Fetcher, proxy: GuardedProxy, echo: Echo):
    with fetcher.proxy() as other:
        raw = request(other, f"CONNECT 127.0.0.1:{echo.port} HTTP/1.1")

        assert status(talk(proxy, raw)) == 407


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        (["GET / HTTP/1.1"], 400),
        (["GET https://127.0.0.1/ HTTP/1.1"], 400),
        (["GET ftp://127.0.0.1/ HTTP/1.1"], 400),
        (["OPTIONS * HTTP/1.1"], 400),
        (["CONNECT 127.0.0.1 HTTP/1.1"], 400),
        (["CONNECT 127.0.0.1:99999 HTTP/1.1"], 400),
        (["CONNECT user@127.0.0.1:80 HTTP/1.1"], 400),
        (["CONNECT http://127.0.0.1:80 HTTP/1.1"], 400),
        (["GET http://u:p@127.0.0.1/ HTTP/1.1"], 403),
        (["GET http://127.0.0.1/ HTTP/2.0"], 400),
        (["GET http://127.0.0.1/"], 400),
        (["get http://127.0.0.1/ HTTP/1.1"], 400),
        (["GET http://127.0.0.1/ HTTP/1.1", "bad header: x"], 400),
        (["GET http://127.0.0.1/ HTTP/1.1", "X: a", " folded"], 400),
        (["GET http://127.0.0.1/ HTTP/1.1", "X: a\nY: b"], 400),
        (["PUT http://127.0.0.1/ HTTP/1.1", "Transfer-Encoding: chunked"], 411),
        (["PUT http://127.0.0.1/ HTTP/1.1", "Content-Length: 1", "Content-Length: 2"], 400),
        (["PUT http://127.0.0.1/ HTTP/1.1", "Content-Length: -1"], 400),
        (["PUT http://127.0.0.1/ HTTP/1.1", "Content-Length: 4", "Expect: 100-continue"], 417),
        (["\x16\x03\x01\x02\x00\x01"], 400),
        (["\0" * 1000], 400),
    ],
    ids=str,
)
def test_what_it_does_not_understand_is_refused(proxy: GuardedProxy, lines: list[str], code: int):
    assert status(talk(proxy, request(proxy, *lines))) == code


def test_endless_heads_are_cut_off(proxy: GuardedProxy):
    raw = b"GET http://127.0.0.1/ HTTP/1.1\r\n" + b"X-More: and more\r\n" * 6_000

    assert status(talk(proxy, raw)) == 431


def test_a_request_that_dribbles_is_given_up(hasty: GuardedProxy):
    """Each piece comes in time, the whole does not."""
    heard = b""
    with connect(hasty) as client:
        client.sendall(b"GET http://127.0.0.1/ HTTP/1.1\r\n")
        client.settimeout(0.05)
        for _ in range(1_000):
            with suppress(ConnectionError):  # it need not listen to the end
                client.sendall(b"X")
            with suppress(TimeoutError):
                heard = client.recv(65536)
                break

    assert status(heard) == 408


def test_a_silent_client_is_given_up(hasty: GuardedProxy):
    assert status(talk(hasty, b"")) == 408


def test_a_tunnel_in_which_nothing_moves_ends(echo: Echo, idle: GuardedProxy):
    with tunnel(idle, echo.port) as client:
        assert said(client) == b""


def test_a_tunnel_ends_when_its_time_is_up_although_it_moves(echo: Echo, fetcher: Fetcher):
    def moved(total: float) -> int:
        """Bytes until the end; none when the time was up before it began."""
        count = 0
        with (
            suppress(OSError),
            fetcher.proxy(ProxyLimits(head=60, total=total)) as proxy,
            tunnel(proxy, echo.port) as client,
        ):
            while client.sendall(b"x") is None and client.recv(1) == b"x":
                count += 1
        return count

    assert any(moved(total) for total in (0.5, 2, 8, 30))


@pytest.mark.parametrize(
    "behaviour",
    [website.never_answers, website.endless_continue, website.endless_headers, website.big_header],
)
def test_a_target_without_a_proper_answer_is_told(
    site: Website, idle: GuardedProxy, behaviour: website.Behaviour
):
    site.route("/", behaviour)

    assert status(talk(idle, request(idle, f"GET {site.url()} HTTP/1.1"))) == 502


def test_a_target_that_cannot_be_reached_is_told(proxy: GuardedProxy):
    with socket.socket() as deaf:  # bound, and so nobody else's, but it does not listen
        deaf.bind(("127.0.0.1", 0))
        line = f"CONNECT 127.0.0.1:{deaf.getsockname()[1]} HTTP/1.1"
        assert status(talk(proxy, request(proxy, line))) == 502


def test_a_name_that_is_not_found_in_time_is_told():
    never = threading.Event()

    def resolve(name: str, port: int) -> Sequence[str]:
        never.wait(30)
        return []

    limits = FetchLimits(dns=0.2)
    with (
        Fetcher(user_agent="test/1", resolve=resolve, limits=limits) as fetcher,
        fetcher.proxy() as proxy,
    ):
        heard = talk(proxy, request(proxy, "CONNECT slow.net:443 HTTP/1.1"))
        never.set()

    assert status(heard) == 502


def test_connections_are_counted_and_their_places_given_back(echo: Echo, fetcher: Fetcher):
    with fetcher.proxy(ProxyLimits(tunnels=1)) as proxy:
        with tunnel(proxy, echo.port):
            assert status(talk(proxy, b"")) == 503

        raw = request(proxy, "GET / HTTP/1.1")
        for _ in range(3):  # refusals give theirs back, too
            eventually(lambda: is_refused(proxy, raw))
        eventually(lambda: can_tunnel(proxy, echo.port))


def is_refused(proxy: GuardedProxy, raw: bytes) -> bool:
    """With 400; who finds no place may be cut off before it has heard why."""
    with suppress(ConnectionError):
        return talk(proxy, raw).startswith(b"HTTP/1.1 400 ")
    return False


def can_tunnel(proxy: GuardedProxy, port: int) -> bool:
    with suppress(ConnectionError), connect(proxy) as client:
        client.sendall(request(proxy, f"CONNECT 127.0.0.1:{port} HTTP/1.1"))
        return client.recv(1000).startswith(b"HTTP/1.1 200 ")
    return False


def test_closing_ends_what_is_under_way(echo: Echo, fetcher: Fetcher):
    with fetcher.proxy() as proxy:
        client = tunnel(proxy, echo.port)

    with client:
        assert said(client) == b""
    with pytest.raises(OSError, match="refused"):
        connect(proxy)
