"""A machine that reaches others through a forward proxy only."""

import base64
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import anyio
import pytest

from recollect.errors import Permanent, SetupError, Transient
from recollect.fetch import (
    Endpoint,
    Fetcher,
    FetchLimits,
    ForwardProxy,
    use_proxy,
)
from recollect.fetch._backend import LOOKUPS
from tests.fakes.gateway import Gateway
from tests.fakes.website import Website

LOGIN = "Basic " + base64.b64encode(b"an:operator's@:100%41").decode()
LOGGED_IN = "http://an:operator%27s%40%3A100%2541@"


@pytest.fixture(autouse=True)
def back() -> Iterator[None]:
    yield
    use_proxy(None)


@pytest.fixture
def site() -> Iterator[Website]:
    with Website() as site:
        site.page("/*", "hello")
        yield site


@pytest.fixture
def gateway(site: Website) -> Iterator[Gateway]:
    with Gateway({"outside.com": site.port, "api.outside.com": site.port}) as gateway:
        use_proxy(ForwardProxy(gateway.url, ["direct.com", ".below.com", "9.9.9.0/24"]))
        yield gateway


def nobody(name: str, port: int) -> Sequence[str]:
    raise OSError("the names of the world are not known here")


def fetcher(**given: Any) -> Fetcher:
    settings: dict[str, Any] = {"resolve": nobody, "limits": FetchLimits(read=0.5, total=5)}
    return Fetcher(user_agent="t", **(settings | given))


# What is fetched


def test_a_page_comes_through_the_proxy_though_its_name_is_not_known_here(gateway: Gateway):
    with fetcher() as fetch:
        verdict = fetch.check("http://outside.com/a")
        assert (verdict.allowed, verdict.addresses) == (True, ())
        assert "the forward proxy looks the name up" in verdict.reason
        assert fetch.get("http://outside.com/a").data == b"hello"
        assert fetch.get("http://outside.com/b").data == b"hello"

    assert gateway.asked == ["CONNECT outside.com:80 HTTP/1.1"]  # one connection serves both


def test_a_certificate_is_checked_through_the_proxy(
    secure_site: Website, certificate: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    ports = {"a.com": secure_site.port, "b.com": secure_site.port}
    with Gateway(ports) as gateway, fetcher() as fetch:
        use_proxy(ForwardProxy(gateway.url))
        assert fetch.get("https://a.com/").data == b"hello"
        assert Endpoint("https://a.com").request("GET", "/").data == b"hello"
        with pytest.raises(Transient) as refusal:
            fetch.get("https://b.com/")
        with pytest.raises(Transient):
            Endpoint("https://b.com").request("GET", "/")

    assert refusal.value.code == "tls_failure"
    assert gateway.asked == [f"CONNECT {name}.com:443 HTTP/1.1" for name in "aabb"]


def test_the_inside_is_as_shut_as_without_a_proxy(gateway: Gateway):
    """What the proxy may reach is not for those who name URLs."""
    refused = ["http://localhost/", "http://127.0.0.1/", "http://10.1.2.3/", "http://[fd00::1]/"]
    refused += ["http://wiki/", "http://wiki.corp/", "http://169.254.169.254/", "http://inner.com/"]

    def resolve(name: str, port: int) -> Sequence[str]:
        return ["8.8.8.8", "10.0.0.5"] if name == "inner.com" else nobody(name, port)

    with fetcher(resolve=resolve) as fetch:
        for url in refused:
            assert not fetch.check(url).allowed, url
            with pytest.raises(Permanent) as refusal:
                fetch.get(url)
            assert refusal.value.code == "blocked_target", url
    assert gateway.asked == []


def test_a_name_that_waited_for_its_look_up_is_not_left_to_the_proxy(gateway: Gateway):
    """Whoever keeps all look-ups busy would have the proxy reach what is refused here."""
    hasty = FetchLimits(dns=0.01, read=0.5, total=5)
    with ExitStack() as busy, fetcher(limits=hasty) as fetch:
        while LOOKUPS.acquire(blocking=False):
            busy.callback(LOOKUPS.release)
        assert not fetch.check("http://outside.com/").allowed
        with pytest.raises(Transient):
            fetch.get("http://outside.com/")
    assert gateway.asked == []


def test_a_redirect_to_the_inside_is_refused_behind_a_proxy(site: Website, gateway: Gateway):
    site.page("/", "", status=302, headers={"Location": "http://10.0.0.1/"})

    with fetcher() as fetch, pytest.raises(Permanent) as refusal:
        fetch.get("http://outside.com/")
    assert refusal.value.code == "blocked_target"
    assert gateway.asked == ["CONNECT outside.com:80 HTTP/1.1"]


def test_open_networks_and_exceptions_are_reached_directly(site: Website, gateway: Gateway):
    dialled: list[str] = []

    def dial(address: str, port: int, seconds: float) -> socket.socket:
        dialled.append(address)
        return socket.create_connection(("127.0.0.1", site.port), seconds)

    known = {"direct.com": "8.8.8.8", "a.below.com": "8.8.4.4", "inner.lan": "10.0.0.5"}
    with fetcher(
        resolve=lambda name, port: [known[name]],
        dial=dial,
        allow_networks=[ip_network("10.0.0.0/8")],
    ) as fetch:
        for host in (*known, "9.9.9.9", "10.0.0.7"):
            assert fetch.get(f"http://{host}/").data == b"hello"

    assert dialled == ["8.8.8.8", "8.8.4.4", "10.0.0.5", "9.9.9.9", "10.0.0.7"]
    assert gateway.asked == []


def test_a_public_address_goes_through_the_proxy(site: Website):
    with Gateway({"8.8.8.8": site.port, "2001:4860:4860::8888": site.port}) as gateway:
        use_proxy(ForwardProxy(gateway.url))
        with fetcher() as fetch:
            assert fetch.get("http://8.8.8.8/").data == b"hello"
            assert fetch.get("http://[2001:4860:4860::8888]/").data == b"hello"

    assert gateway.asked == [
        "CONNECT 8.8.8.8:80 HTTP/1.1",
        "CONNECT [2001:4860:4860::8888]:80 HTTP/1.1",
    ]


def test_programs_behind_the_door_go_through_the_proxy_as_well(gateway: Gateway):
    """As yt-dlp does."""
    with fetcher() as fetch, fetch.proxy() as door:
        url = door.url.removeprefix("http://")
        login, _, address = url.rpartition("@")
        host, _, port = address.partition(":")
        with socket.create_connection((host, int(port.strip("/"))), 5) as line:
            token = base64.b64encode(login.encode()).decode()
            ask = f"Host: outside.com\r\nProxy-Authorization: Basic {token}\r\n\r\n"
            line.sendall(f"GET http://outside.com/ HTTP/1.1\r\n{ask}".encode())
            said = b""
            while piece := line.recv(65_536):
                said += piece

    assert said.endswith(b"hello")
    assert gateway.asked == ["CONNECT outside.com:80 HTTP/1.1"]


# Endpoints


def test_an_endpoint_outside_is_reached_through_the_proxy(site: Website, gateway: Gateway):
    site.page("/v1/*", '{"a": 1}', mime="application/json")
    outside = Endpoint("http://api.outside.com/v1", headers={"Authorization": "Bearer key"})

    assert outside.request_json("POST", "/embed", {}) == {"a": 1}
    assert Endpoint(site.url("/v1")).request_json("GET", "/x") == {"a": 1}  # of this machine
    assert [one.split(" ")[1] for one in gateway.asked] == ["http://api.outside.com/v1/embed"]
    assert site.requests[0].headers["authorization"] == "Bearer key"
    assert "proxy-authorization" not in site.requests[0].headers


def test_an_answer_in_parts_comes_through_the_proxy(site: Website, gateway: Gateway):
    async def read() -> bytes:
        async with Endpoint("http://api.outside.com").stream("/s", json={}) as stream:
            return b"".join([part async for part in stream.parts])

    assert anyio.run(read) == b"hello"
    assert [one.split(" ")[1] for one in gateway.asked] == ["http://api.outside.com/s"]


@pytest.mark.parametrize("host", ["127.1", "0x7f.1", "10.1.515", "0.0.0.0", "[::]", "[::1]"])
def test_each_spelling_of_an_address_inside_is_reached_directly(host: str):
    use_proxy(ForwardProxy("http://proxy:3128"))

    assert Endpoint(f"http://{host}:8080")._proxy is None


@pytest.mark.parametrize("host", ["ollama", "10.1.2.3", "llm.internal", "direct.com", "localhost"])
def test_models_of_the_inside_need_no_exception(host: str):
    proxy = ForwardProxy("http://proxy.outside.com:3128", ["direct.com"])

    assert not proxy.serves(host)
    assert not proxy.serves(host.upper())


@pytest.mark.parametrize(
    "host", ["api.openai.com", "8.8.8.8", "notdirect.com", "direct.com.evil.com"]
)
def test_all_others_go_through_it(host: str):
    assert ForwardProxy("http://proxy:3128", ["direct.com"]).serves(host)


def test_an_exception_holds_for_each_spelling_of_a_name():
    use_proxy(ForwardProxy("http://proxy:3128", ["xn--bcher-kva.de"]))

    for spelling in ("bücher.de", "xn--bcher-kva.de", "BÜCHER.de.", "api.bücher.de"):
        assert Endpoint(f"http://{spelling}")._proxy is None, spelling
    assert Endpoint("http://bücherei.de")._proxy is not None


# Trouble with it


def test_the_addresses_of_the_proxy_are_tried_within_the_time_of_the_fetch(gateway: Gateway):
    granted: list[float] = []

    def dial(address: str, port: int, seconds: float) -> socket.socket:
        granted.append(seconds)
        if address != "127.0.0.1":
            raise TimeoutError
        return socket.create_connection((address, port), seconds)

    def resolve(name: str, port: int) -> Sequence[str]:
        return ["10.0.0.1", "127.0.0.1"] if name == "proxy.corp" else nobody(name, port)

    use_proxy(ForwardProxy(gateway.url.replace("127.0.0.1", "proxy.corp")))
    limits = FetchLimits(read=5, total=5)
    with fetcher(resolve=resolve, dial=dial, limits=limits) as fetch:
        assert fetch.get("http://outside.com/").data == b"hello"
    assert len(granted) == 2
    assert granted[0] <= 2.5


def test_a_proxy_whose_name_is_not_known_is_away():
    use_proxy(ForwardProxy("http://proxy.corp:3128"))

    with fetcher() as fetch, pytest.raises(Transient) as away:
        fetch.get("http://outside.com/")
    assert (str(away.value), away.value.code) == ("no connection to the proxy", "unreachable")


def test_a_login_that_the_proxy_refuses_is_no_answer_of_the_endpoint(site: Website):
    """A document would fail for good (`http_407`), also where the login is set right later."""
    with Gateway({"outside.com": site.port}, login=LOGIN) as gateway:
        use_proxy(ForwardProxy(gateway.url))
        outside = Endpoint("http://outside.com")

        async def stream() -> None:
            async with outside.stream("/", json={}):
                pass

        for ask in (lambda: outside.request("GET", "/"), lambda: anyio.run(stream)):
            with pytest.raises(Transient, match=r"not connect to outside\.com: 407") as refusal:
                ask()
            assert refusal.value.code == "unreachable"


def test_the_login_is_told_to_the_proxy_alone_and_never_shown(site: Website):
    with Gateway({"outside.com": site.port}, login=LOGIN) as gateway, fetcher() as fetch:
        plain = gateway.url.removeprefix("http://")
        use_proxy(ForwardProxy(LOGGED_IN + plain))
        assert fetch.get("http://outside.com/").data == b"hello"
        assert Endpoint("http://outside.com").request("GET", "/").data == b"hello"
        assert all("proxy-authorization" not in one.headers for one in site.requests)

        use_proxy(ForwardProxy(f"http://an:wrong-secret@{plain}"))
        with pytest.raises(Transient) as unread:
            fetch.get("https://outside.com/")
        with pytest.raises(Transient) as unasked:
            Endpoint("https://outside.com").request("GET", "/")
    for told in (unread.value, unasked.value):
        assert told.code == "unreachable"
        assert str(told) == "the proxy did not connect to outside.com: 407"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"HTTP/1.1 403 Forbidden\r\n\r\n<html>", "did not connect to outside.com: 403"),
        (b"HTTP/1.1 502 Bad Gateway\r\nx: y\r\n\r\n", "did not connect to outside.com: 502"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "did not connect to outside.com: no HTTP"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000, "did not connect to outside.com: no HTTP"),
        (b"HTTP/1.1 200 OK\r\n", "the proxy broke off"),
        (b"", "the proxy broke off"),
    ],
)
def test_what_the_proxy_says_instead_is_told(gateway: Gateway, answer: bytes, told: str):
    gateway.answer = answer

    with fetcher() as fetch, pytest.raises(Transient, match=told) as refusal:
        fetch.get("https://outside.com/")
    assert refusal.value.code == "unreachable"
    with pytest.raises(Transient):
        Endpoint("https://outside.com").request("GET", "/")


def test_no_byte_behind_the_proxys_answer_is_lost(site: Website, gateway: Gateway):
    gateway.split = True

    with fetcher() as fetch:
        assert fetch.get("http://outside.com/").data == b"hello"


def test_a_silent_proxy_is_given_up(gateway: Gateway):
    gateway.silent = True

    with fetcher() as fetch, pytest.raises(Transient) as late:
        fetch.get("http://outside.com/")
    assert late.value.code == "timeout"


def test_a_proxy_that_is_away_is_named():
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    use_proxy(ForwardProxy(f"http://127.0.0.1:{port}"))

    with fetcher() as fetch, pytest.raises(Transient, match="no connection to the proxy"):
        fetch.get("http://outside.com/")
    with pytest.raises(Transient, match=r"no connection to outside\.com through the proxy"):
        Endpoint("http://outside.com").request("GET", "/")


@pytest.mark.parametrize(
    "url",
    ["proxy:3128", "https://proxy:3128", "socks5://proxy", "http://", "http://p/path", "http://[x"],
)
def test_an_address_that_is_no_proxys_is_refused_without_its_password(url: str):
    secret = url.replace("//", "//user:pass-word@")

    with pytest.raises(SetupError, match="RECOLLECT_PROXY") as refusal:
        ForwardProxy(secret)
    assert "pass-word" not in str(refusal.value)


@pytest.mark.parametrize("login", ["user:12#34", "user:12@34#56", "user#12:34"])
def test_a_number_sign_in_a_password_makes_nothing_of_it_the_host(login: str):
    with pytest.raises(SetupError, match="RECOLLECT_PROXY: must be"):
        ForwardProxy(f"http://{login}@proxy:3128")


def test_an_exception_that_is_no_name_is_refused():
    with pytest.raises(SetupError, match=r"RECOLLECT_NO_PROXY: '10\.0\.0\.1/8' is neither"):
        ForwardProxy("http://proxy", ["10.0.0.1/8"])
