"""The door to the network against a web site that does its worst, on loopback."""

import gzip
import io
import json
import socket
import threading
import tracemalloc
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.errors import Permanent, SetupError, Transient
from recollect.fetch import Endpoint, Fetched, Fetcher, FetchLimits, _backend, self_test
from tests.conftest import eventually
from tests.fakes import website
from tests.fakes.website import ClosesReused, Exchange, SlowThenGood, Website, answer

LOOPBACK = IPv4Network("127.0.0.0/8")
HASTY = FetchLimits(total=0.5, dns=0.3, read=0.3)
IMPATIENT = FetchLimits(read=0.3)
SMALL = FetchLimits(max_bytes=100_000)


@pytest.fixture
def site() -> Iterator[Website]:
    with Website() as site:
        yield site


@pytest.fixture(scope="module")
def fetcher() -> Iterator[Fetcher]:
    with Fetcher(user_agent="test/1", allow_networks=[LOOPBACK]) as fetcher:
        yield fetcher


@pytest.fixture(scope="module")
def hasty() -> Iterator[Fetcher]:
    with Fetcher(user_agent="test/1", allow_networks=[LOOPBACK], limits=HASTY) as fetcher:
        yield fetcher


@pytest.fixture(scope="module")
def impatient() -> Iterator[Fetcher]:
    with Fetcher(user_agent="test/1", allow_networks=[LOOPBACK], limits=IMPATIENT) as fetcher:
        yield fetcher


@pytest.fixture(scope="module")
def small() -> Iterator[Fetcher]:
    with Fetcher(user_agent="test/1", allow_networks=[LOOPBACK], limits=SMALL) as fetcher:
        yield fetcher


class Dialler:
    """Sends what is dialled to one site, and remembers the addresses."""

    def __init__(self, site: Website, dead: Sequence[str] = ()) -> None:
        self.dialled: list[tuple[str, int]] = []
        self._site = site
        self._dead = dead

    def __call__(self, address: str, port: int, seconds: float) -> socket.socket:
        self.dialled.append((address, port))
        if address in self._dead:
            raise ConnectionRefusedError
        return socket.create_connection((self._site.host, self._site.port), seconds)


# What a fetch brings


def test_a_page_is_fetched_with_what_the_server_said_of_it(site: Website, fetcher: Fetcher):
    site.page("/a%20b", "<p>hé</p>", mime="Text/HTML; charset=utf-8", headers={"X-One": "1"})

    fetched = fetcher.get(site.url("/a b?q=ö#part"), headers={"X-Mine": "yes"})

    assert fetched.url == site.url("/a%20b?q=%C3%B6")
    assert (fetched.status, fetched.mime, fetched.name) == (200, "text/html", "a b")
    assert fetched.data == "<p>hé</p>".encode()
    assert fetched.headers["x-one"] == "1"
    assert fetched.redirects == ()
    sent = site.requests[0]
    assert (sent.method, sent.path) == ("GET", "/a%20b?q=%C3%B6")
    assert sent.headers["host"] == f"127.0.0.1:{site.port}"
    assert sent.headers["user-agent"] == "test/1"
    assert sent.headers["accept-encoding"] == "gzip"
    assert sent.headers["x-mine"] == "yes"


def test_gzip_is_undone(site: Website, fetcher: Fetcher):
    members = gzip.compress(b"one ") + gzip.compress(b"two") + b"\0\0\0"
    site.page("/", members, headers={"Content-Encoding": "GZIP"})

    assert fetcher.get(site.url()).data == b"one two"


def test_an_empty_body_needs_no_gzip(site: Website, fetcher: Fetcher):
    site.page("/", b"", headers={"Content-Encoding": "gzip"})

    assert fetcher.get(site.url()).data == b""


def test_bytes_are_left_as_they_came_whatever_charset_is_claimed(site: Website, fetcher: Fetcher):
    site.route("/", website.wrong_charset)

    assert fetcher.get(site.url()).data.decode("cp1251") == "<p>Привет</p>"


def test_connections_are_kept_open_for_the_next_fetch(site: Website, fetcher: Fetcher):
    site.page("/", "hello")
    fetcher.get(site.url())
    fetcher.get(site.url())

    assert [request.connection for request in site.requests] == [1, 1]


def test_a_kept_connection_that_the_server_closes_costs_nothing(site: Website, fetcher: Fetcher):
    site.route("/", ClosesReused(b"hello"))

    assert [fetcher.get(site.url()).data for _ in range(3)] == [b"hello"] * 3
    assert [request.connection for request in site.requests] == [1, 1, 2, 2, 3]


def test_a_fetcher_is_shared_by_threads(site: Website, fetcher: Fetcher):
    meeting = threading.Barrier(4, timeout=30)

    def serve(exchange: Exchange) -> bool:
        meeting.wait()
        exchange.send(answer(200, exchange.request.path.encode()))
        return True

    site.route("/*", serve)
    found: dict[str, bytes] = {}

    def fetch(path: str) -> None:
        found[path] = fetcher.get(site.url(path)).data

    threads = [threading.Thread(target=fetch, args=(f"/{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found == {f"/{n}": f"/{n}".encode() for n in range(4)}


@pytest.mark.parametrize(
    ("disposition", "path", "name"),
    [
        (None, "/a/report%20%C3%A9.pdf?x=/y", "report é.pdf"),
        (None, "/a/..%2f..%2fetc%2fpasswd", "passwd"),
        (None, "/", None),
        ('attachment; filename="a b.pdf"', "/x", "a b.pdf"),
        ("attachment; filename=plain.txt", "/x", "plain.txt"),
        ("attachment; filename*=UTF-8''%e2%82%ac%20rates.csv", "/x", "€ rates.csv"),
        ("attachment; filename=\"a.txt\"; filename*=UTF-8''b.txt", "/x", "b.txt"),
        ('attachment; filename="../../etc/passwd"', "/x", "passwd"),
        ('attachment; filename="C:\\\\windows\\\\evil.exe"', "/x", "evil.exe"),
        ('attachment; filename="fdp.\u202eexe"', "/x", "fdp.exe"),
        ('attachment; filename=".."', "/fallback.txt", "fallback.txt"),
        ("inline", "/page.html", "page.html"),
        (f'attachment; filename="{"x" * 300}.docx"', "/x", "x" * 195 + ".docx"),
        ("attachment; filename*=idna''a.txt", "/x", "x"),
        ("attachment; filename*=undefined''a.txt", "/x", "x"),
        ("attachment; filename*=punycode''%ff", "/x", "x"),
        ("attachment; filename*=UTF-8''a.txt; filename*0=b.txt", "/x", "x"),
    ],
)
def test_the_file_name_is_harmless(
    site: Website, fetcher: Fetcher, disposition: str | None, path: str, name: str | None
):
    headers = {} if disposition is None else {"Content-Disposition": disposition}
    site.page("/*", "x", headers=headers)

    assert fetcher.get(site.url(path)).name == name


def test_a_conditional_request_may_find_nothing_new(site: Website, fetcher: Fetcher):
    site.page("/", "hello", headers={"ETag": '"1"'})
    first = fetcher.get(site.url())
    second = fetcher.get(site.url(), headers={"If-None-Match": first.headers["etag"]})

    assert (second.status, second.data) == (304, b"")


def test_a_304_keeps_its_connection(site: Website, fetcher: Fetcher):
    site.page("/", "hello", headers={"ETag": '"1"'})
    for _ in range(3):
        assert fetcher.get(site.url(), headers={"If-None-Match": '"1"'}).status == 304

    assert {request.connection for request in site.requests} == {1}


def test_304_is_no_answer_to_a_plain_request(site: Website, fetcher: Fetcher):
    site.page("/", "", status=304)

    assert refused(fetcher, site.url()) == "http_304"


# Statuses


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 418, 451])
def test_client_errors_are_permanent(site: Website, fetcher: Fetcher, status: int):
    site.page("/", "no", status=status)

    assert refused(fetcher, site.url()) == f"http_{status}"


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_passing_trouble_is_transient(site: Website, fetcher: Fetcher, status: int):
    site.page("/", "later", status=status)

    assert delayed(fetcher, site.url()).code == f"http_{status}"


def test_the_next_try_may_succeed(site: Website, fetcher: Fetcher):
    site.page("/", "hello")
    site.fail_next(503, retry_after="7")

    assert delayed(fetcher, site.url()).after == timedelta(seconds=7)
    assert fetcher.get(site.url()).data == b"hello"


@pytest.mark.parametrize(
    ("value", "after"),
    [
        ("0", timedelta()),
        (" 120 ", timedelta(seconds=120)),
        ("86400", timedelta(hours=24)),
        ("86401", timedelta(hours=1)),
        ("99999999", timedelta(hours=1)),
        ("9" * 5_000, None),
        ("-5", None),
        # Of Microsoft, and of gateways to models; RFC 9110 knows whole seconds.
        ("2.542", timedelta(seconds=2.542)),
        ("2.5.4", None),
        ("soon", None),
        ("", None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", timedelta()),
        ("Fri, 31 Dec 9999 23:59:59 GMT", timedelta(hours=1)),
        ("Fri, 99 Dec 2999 23:59:59 GMT", None),
        ("Mon, 01 Jan 0001 00:00:00 +2359", timedelta()),
        ("Mon, 01 Jan 2026 9999999999999999999:00:00 GMT", None),
    ],
)
def test_retry_after_is_honoured_within_reason(
    site: Website, fetcher: Fetcher, value: str, after: timedelta | None
):
    site.fail_next(429, retry_after=value)

    assert delayed(fetcher, site.url()).after == after


def test_retry_after_may_be_a_date(site: Website, fetcher: Fetcher):
    then = datetime.now(UTC) + timedelta(minutes=20)
    site.fail_next(503, retry_after=format_datetime(then, usegmt=True))

    after = delayed(fetcher, site.url()).after

    assert after is not None
    assert timedelta(minutes=15) < after <= timedelta(minutes=20)


def test_a_date_to_wait_for_is_by_the_clock_of_who_names_it(site: Website, fetcher: Fetcher):
    theirs = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=5)
    then = format_datetime(theirs + timedelta(minutes=20), usegmt=True)
    told = {"Retry-After": then, "Date": format_datetime(theirs, usegmt=True)}
    site.page("/", b"try again", status=503, headers=told)

    assert delayed(fetcher, site.url()).after == timedelta(minutes=20)


# The guard


def test_loopback_is_refused_without_an_explicit_allowance(site: Website):
    site.page("/", "secret")
    with Fetcher(user_agent="t") as fetcher:
        assert refused(fetcher, site.url()) == "blocked_target"
        assert refused(fetcher, site.url(host="localhost")) == "blocked_target"
        assert refused(fetcher, site.url(host="[::ffff:127.0.0.1]")) == "blocked_target"
    assert site.requests == []


def test_the_system_resolver_is_judged_as_well(site: Website, fetcher: Fetcher):
    site.page("/", "hello")
    with Fetcher(user_agent="t", allow_networks=[IPv4Network("10.0.0.0/8")]) as strict:
        assert refused(strict, site.url(host="localhost")) == "blocked_target"
    assert site.requests == []


def test_the_guard_tests_itself(monkeypatch: pytest.MonkeyPatch):
    self_test()

    monkeypatch.setattr(_backend, "refuse", lambda *judged: None)
    with pytest.raises(SetupError, match="guard"):
        self_test()


def test_the_judged_address_is_dialled_under_the_name(site: Website):
    site.page("/", "hello")
    dial = Dialler(site)
    with Fetcher(user_agent="t", resolve=lambda n, p: ["93.184.216.34"], dial=dial) as fetcher:
        fetched = fetcher.get("http://www.a.com/")

    assert fetched.data == b"hello"
    assert dial.dialled == [("93.184.216.34", 80)]
    assert site.requests[0].headers["host"] == "www.a.com"


def test_a_name_that_changes_its_address_gains_nothing(site: Website):
    """Each connection has one look-up: its answer is judged, and dialled."""
    site.route("/", lambda exchange: exchange.send(answer(200, b"x", {"Connection": "close"})))
    dial = Dialler(site)
    asked: list[str] = []

    def rebinding(name: str, port: int) -> Sequence[str]:
        asked.append(name)
        return ["93.184.216.34"] if len(asked) % 2 else ["127.0.0.1"]

    outcomes: list[str] = []
    with Fetcher(user_agent="t", resolve=rebinding, dial=dial) as fetcher:
        for _ in range(50):
            try:
                fetcher.get("http://a.com/")
                outcomes.append("fetched")
            except Permanent as error:
                outcomes.append(error.code)

    assert outcomes == ["fetched", "blocked_target"] * 25
    assert len(asked) == 50
    assert set(dial.dialled) == {("93.184.216.34", 80)}


def test_another_address_of_the_name_is_tried(site: Website):
    site.page("/", "hello")
    addresses = ["2606:4700::1", "8.8.8.8", "8.8.4.4"]
    dial = Dialler(site, dead=addresses[:2])
    with Fetcher(user_agent="t", resolve=lambda n, p: addresses, dial=dial) as fetcher:
        fetcher.get("http://a.com:8080/")

    assert dial.dialled == [(address, 8080) for address in addresses]


def test_nobody_there_is_worth_another_try(site: Website):
    dial = Dialler(site, dead=["8.8.8.8"])
    with Fetcher(user_agent="t", resolve=lambda n, p: ["8.8.8.8"], dial=dial) as fetcher:
        assert delayed(fetcher, "http://a.com/").code == "unreachable"


def test_a_look_up_that_never_ends_is_given_up(site: Website):
    released = threading.Event()

    def stuck(name: str, port: int) -> Sequence[str]:
        released.wait()
        return ["8.8.8.8"]

    with Fetcher(user_agent="t", resolve=stuck, dial=Dialler(site), limits=HASTY) as fetcher:
        assert delayed(fetcher, "http://a.com/").code == "dns_failure"
        assert not fetcher.check("http://a.com/").allowed
    released.set()


def test_proxies_of_the_environment_are_ignored(
    site: Website, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
):
    site.page("/", "hello")
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/")

    with Fetcher(user_agent="t", allow_networks=[LOOPBACK]) as fresh:
        assert fresh.get(site.url()).data == b"hello"
    assert Endpoint(site.url()).request("GET", "/").data == b"hello"


# Redirects


def test_redirects_are_followed_and_told(site: Website, fetcher: Fetcher):
    site.redirect("/a", "/b?x=1")
    site.redirect("/b", "../c#part", status=301)
    site.redirect("/c", f"//127.0.0.1:{site.port}/é", status=308)
    site.page("/%C3%A9", "here")

    fetched = fetcher.get(site.url("/a#top"))

    assert fetched.data == b"here"
    assert fetched.url == site.url("/%C3%A9")
    assert fetched.redirects == (site.url("/a"), site.url("/b?x=1"), site.url("/c"))


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.1/",
        "//127.0.0.1/",
        "http://2130706433/",
        "http://[::1]/",
        "http://[::ffff:169.254.169.254]/latest/",
        "http://localhost/",
        "http://metadata.google.internal/",
        "http://inner.a.com/",
        "\\\\127.0.0.1\\",
        "http://me:secret@a.com/",
        "http://a.com:22/",
        "ftp://a.com/",
        "file:///etc/passwd",
        "gopher://127.0.0.1:6379/_INFO",
        "javascript:alert(1)",
    ],
)
@pytest.mark.parametrize("hops", [1, 3])
def test_redirects_to_the_inside_are_refused(site: Website, location: str, hops: int):
    for hop in range(1, hops):
        site.redirect(f"/{hop}", f"/{hop + 1}")
    site.redirect(f"/{hops}", location)
    dial = Dialler(site)

    def resolve(name: str, port: int) -> Sequence[str]:
        return ["10.0.0.1"] if name == "inner.a.com" else ["8.8.8.8"]

    with Fetcher(user_agent="t", resolve=resolve, dial=dial) as fetcher:
        assert refused(fetcher, "http://a.com/1") == "blocked_target"
    assert {address for address, _ in dial.dialled} == {"8.8.8.8"}
    assert len(site.requests) == hops


@pytest.mark.parametrize("location", ["http://", "http://[::1", "http://a b/", "http://a.com:x/"])
def test_redirects_to_nonsense_are_refused(site: Website, fetcher: Fetcher, location: str):
    site.redirect("/", location)

    assert refused(fetcher, site.url()) == "bad_redirect"


def test_a_redirect_needs_exactly_one_address(site: Website, fetcher: Fetcher):
    site.page("/none", "", status=302)
    two = b"HTTP/1.1 302 Found\r\nLocation: /a\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n"
    site.route("/two", lambda exchange: exchange.send(two))

    assert refused(fetcher, site.url("/none")) == "bad_redirect"
    assert refused(fetcher, site.url("/two")) == "bad_redirect"


def test_endless_redirects_end(site: Website, fetcher: Fetcher):
    site.route("/far*", website.endless_redirects)
    site.redirect("/loop", "/loop")

    assert refused(fetcher, site.url("/far")) == "bad_redirect"
    assert len(site.requests) == 11
    assert refused(fetcher, site.url("/loop")) == "bad_redirect"
    assert len(site.requests) == 22


def test_the_caller_may_stop_at_a_redirect(site: Website, fetcher: Fetcher):
    site.redirect("/a", "/b")
    site.redirect("/b", "/private")
    site.page("/private", "x")

    def admit(url: str) -> None:
        if url.endswith("/private"):
            raise Permanent("robots.txt says no", code="robots")

    with pytest.raises(Permanent, match="robots"):
        fetcher.get(site.url("/a"), admit=admit)
    assert site.paths() == ["/a", "/b"]


def test_credentials_stay_with_their_origin(site: Website, fetcher: Fetcher):
    with Website() as other:
        site.redirect("/a", "/b")
        site.redirect("/b", other.url("/c"))
        other.page("/c", "x")
        headers = {"Authorization": "Bearer s", "Cookie": "s=1", "X-Harmless": "1"}
        fetcher.get(site.url("/a"), headers=headers)

        assert [r.headers.get("authorization") for r in site.requests] == ["Bearer s"] * 2
        assert "authorization" not in other.requests[0].headers
        assert "cookie" not in other.requests[0].headers
        assert other.requests[0].headers["x-harmless"] == "1"


def test_the_caller_cannot_change_what_is_ours(site: Website, fetcher: Fetcher):
    site.page("/", "x")
    fetcher.get(site.url(), headers={"Host": "other.com", "accept-encoding": "br"})

    assert site.requests[0].headers["host"] == f"127.0.0.1:{site.port}"
    assert site.requests[0].headers["accept-encoding"] == "gzip"


# Size


def test_the_cap_is_exact_on_the_wire_and_decoded(site: Website, small: Fetcher):
    site.page("/fits", b"x" * 100_000)
    site.page("/fits.gz", gzip.compress(b"x" * 100_000), headers={"Content-Encoding": "gzip"})
    site.page("/over", b"x" * 100_001)
    site.page("/over.gz", gzip.compress(b"x" * 100_001), headers={"Content-Encoding": "gzip"})

    assert len(small.get(site.url("/fits")).data) == 100_000
    assert len(small.get(site.url("/fits.gz")).data) == 100_000
    assert refused(small, site.url("/over")) == "too_large"
    assert refused(small, site.url("/over.gz")) == "too_large"
    assert len(small.get(site.url("/over"), enough=100_000).data) == 100_000
    assert len(small.get(site.url("/over.gz"), enough=100_000).data) == 100_000


class Stop(Exception):
    pass


@pytest.mark.parametrize("coding", [None, "gzip"])
def test_the_caller_may_look_at_the_beginning_and_stop(
    site: Website, fetcher: Fetcher, coding: str | None
):
    body = b"0123456789abcdef" * 100
    shown: list[bytes | None] = []
    told = {"Content-Encoding": coding} if coding else {}
    site.page("/", gzip.compress(body) if coding else body, mime="a/b", headers=told)

    whole = fetcher.get(site.url(), sniff=lambda answer, head: shown.append(head))

    assert whole.data == body
    assert shown == [None, body[:512]]

    def stop(answer: Fetched, head: bytes | None) -> None:
        raise Stop(answer.mime, answer.data, head)

    with pytest.raises(Stop) as stopped:
        fetcher.get(site.url(), sniff=stop)
    assert stopped.value.args == ("a/b", b"", None)
    assert fetcher.get(site.url()).data == body, "the next one finds a clean connection"


@pytest.mark.parametrize("body", [b"", b"short"])
def test_the_beginning_of_a_short_body_is_all_of_it(site: Website, fetcher: Fetcher, body: bytes):
    shown: list[bytes | None] = []
    site.page("/", body)

    fetched = fetcher.get(site.url(), sniff=lambda answer, head: shown.append(head))

    assert (fetched.data, shown) == (body, [None, body])


def test_a_server_that_is_stopped_at_its_headers_sends_little(site: Website, fetcher: Fetcher):
    poured = website.Pouring(9_000_000, "application/pdf", b"%PDF-1.7 ")
    site.route("/", poured)

    def stop(answer: Fetched, head: bytes | None) -> None:
        raise Stop

    with pytest.raises(Stop):
        fetcher.get(site.url(), sniff=stop)

    assert poured.ended.wait(60)
    assert poured.sent < 5_000_000


@pytest.mark.parametrize(
    "behaviour",
    [website.endless_text, website.gzip_bomb, website.Pouring(10**12, "text/plain", b"<p>words ")],
    ids=["endless", "bomb", "a terabyte"],
)
def test_of_what_has_no_end_so_much_is_read_as_is_enough(
    site: Website, fetcher: Fetcher, behaviour: website.Behaviour
):
    site.route("/", behaviour)

    assert len(fetcher.get(site.url(), enough=100_000).data) == 100_000


def test_a_bomb_is_not_unpacked(site: Website):
    site.route("/", website.gzip_bomb)
    limits = FetchLimits(max_bytes=1_000_000)
    with Fetcher(user_agent="t", allow_networks=[LOOPBACK], limits=limits) as fetcher:
        tracemalloc.start()
        try:
            assert refused(fetcher, site.url()) == "too_large"
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert peak < 10_000_000


@pytest.mark.parametrize(
    ("behaviour", "code"),
    [
        (website.announces_gigabytes, "too_large"),
        (website.endless_body, "too_large"),
        (website.gzip_bomb, "too_large"),
        (website.nested_gzip, "unsupported_encoding"),
        (website.brotli, "unsupported_encoding"),
    ],
)
def test_too_much_is_refused(
    site: Website, small: Fetcher, behaviour: website.Behaviour, code: str
):
    site.route("/", behaviour)

    assert refused(small, site.url()) == code


# Time and broken answers


@pytest.mark.parametrize(
    "behaviour",
    [
        website.never_answers,
        website.trickled_body,
        website.trickled_headers,
        website.endless_continue,
    ],
)
def test_a_slow_server_costs_a_bounded_time(
    site: Website, hasty: Fetcher, behaviour: website.Behaviour
):
    site.route("/", behaviour)

    assert delayed(hasty, site.url()).code == "timeout"


@pytest.mark.parametrize(
    "behaviour",
    [
        website.endless_headers,
        website.big_header,
        website.promises_too_much,
        website.closes_at_once,
        website.closes_halfway,
        website.resets,
        website.tls_bytes,
        website.garbled_gzip,
        website.cut_gzip,
    ],
)
def test_a_broken_answer_is_worth_another_try(
    site: Website, fetcher: Fetcher, behaviour: website.Behaviour
):
    site.page("/good", "still fine")
    site.route("/", behaviour)

    assert delayed(fetcher, site.url()).code == "bad_response"
    assert fetcher.get(site.url("/good")).data == b"still fine"


def test_silence_ends_long_before_the_whole_fetch_must(site: Website):
    site.route("/", website.never_answers)
    limits = FetchLimits(total=1_000, read=0.2)
    with Fetcher(user_agent="t", allow_networks=[LOOPBACK], limits=limits) as fetcher:
        assert delayed(fetcher, site.url()).code == "timeout"


def test_a_slow_server_gets_another_chance(site: Website, impatient: Fetcher, fetcher: Fetcher):
    slow = SlowThenGood(b"good")
    site.route("/", slow)

    assert delayed(impatient, site.url()).code == "timeout"
    eventually(lambda: slow.seen)  # it may hear of the first when nobody waits any more
    assert fetcher.get(site.url()).data == b"good"


def test_the_deadline_covers_all_hops_together(site: Website):
    def slow(exchange: Exchange) -> bool:
        exchange.pause(0.15)
        return website.endless_redirects(exchange)

    site.route("/*", slow)
    limits = FetchLimits(total=0.5, read=0.4, redirects=1_000)
    with Fetcher(user_agent="t", allow_networks=[LOOPBACK], limits=limits) as fetcher:
        assert delayed(fetcher, site.url()).code == "timeout"


def test_when_the_time_is_up_no_further_address_is_dialled():
    def dial(address: str, port: int, seconds: float) -> socket.socket:
        threading.Event().wait(HASTY.total)  # all that there is, for all addresses together
        raise ConnectionRefusedError

    addresses = ["8.8.8.8", "8.8.4.4"]
    with Fetcher(
        user_agent="t", resolve=lambda n, p: addresses, dial=dial, limits=HASTY
    ) as fetcher:
        assert delayed(fetcher, "http://a.com/").code == "timeout"


def test_what_follows_a_short_answer_is_not_its_body(site: Website, fetcher: Fetcher):
    site.route("/", website.promises_too_little)

    assert fetcher.get(site.url()).data == b"01234"


# TLS


@pytest.mark.parametrize(
    "behaviour", [website.promises_too_much, website.closes_halfway, website.resets]
)
def test_who_answers_a_message_has_received_it_however_the_answer_ends(
    site: Website, fetcher: Fetcher, behaviour: website.Behaviour
):
    site.route("/*", behaviour)

    assert fetcher.tell(site.url(), b"{}", total=5.0).status == 200
    assert len(site.requests) == 1


def test_a_receiver_may_take_all_of_its_time_for_the_answer(site: Website):
    """It has 15 seconds; after ten without a byte it was given up."""
    waits: list[float | None] = []

    class Watched(socket.socket):
        def settimeout(self, value: float | None, /) -> None:
            waits.append(value)
            super().settimeout(value)

    def dial(address: str, port: int, seconds: float) -> socket.socket:
        return Watched(fileno=socket.create_connection((address, port), seconds).detach())

    site.route("/", lambda exchange: exchange.send(answer(200, b"taken")))
    with Fetcher(user_agent="test", allow_networks=[LOOPBACK], dial=dial) as fetcher:
        assert fetcher.tell(site.url(), b"{}", total=500.0).status == 200

    assert (waits[-1] or 0.0) > FetchLimits().read


def test_https_on_a_plain_port_is_transient(site: Website, fetcher: Fetcher):
    assert delayed(fetcher, f"https://127.0.0.1:{site.port}/").code == "tls_failure"


def test_a_silent_handshake_ends(hasty: Fetcher):
    with socket.create_server(("127.0.0.1", 0)) as listener:  # connects, but nobody accepts
        url = f"https://127.0.0.1:{listener.getsockname()[1]}/"
        assert delayed(hasty, url).code == "timeout"


def test_a_certificate_that_nobody_trusts_is_refused(secure_site: Website, fetcher: Fetcher):
    failure = delayed(fetcher, secure_site.url())

    assert failure.code == "tls_failure"
    assert "certificate" in str(failure)
    assert secure_site.requests == []


def test_certificates_are_checked_for_the_name_not_the_address(
    secure_site: Website, certificate: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    dial = Dialler(secure_site)
    with Fetcher(user_agent="t", resolve=lambda n, p: ["8.8.8.8"], dial=dial) as fetcher:
        assert fetcher.get("https://a.com/").data == b"hello"
        assert fetcher.get("https://a.com./").data == b"hello"
        assert delayed(fetcher, "https://b.com/").code == "tls_failure"
    assert set(dial.dialled) == {("8.8.8.8", 443)}


# Endpoints of the operator


def test_an_endpoint_keeps_its_prefix_and_headers(site: Website):
    site.page("/api/v1/*", '{"a": [1]}', mime="application/json")
    endpoint = Endpoint(site.url("/api/v1/"), headers={"Authorization": "Bearer secret"})

    assert endpoint.request_json("POST", "/embed", {"input": ["x"]}) == {"a": [1]}
    sent = site.requests[0]
    assert (sent.method, sent.path) == ("POST", "/api/v1/embed")
    assert json.loads(sent.body) == {"input": ["x"]}
    assert sent.headers["authorization"] == "Bearer secret"


@pytest.mark.parametrize("status", [200, 302, 404, 500])
def test_a_plain_request_answers_with_any_status(site: Website, status: int):
    site.page("/x", b"body", status=status, headers={"X-Seen": "1", "Location": "/y"})

    got = Endpoint(site.url()).request("GET", "/x", params={"q": "a b"})

    assert (got.status, got.data, got.headers["x-seen"]) == (status, b"body", "1")
    assert site.paths() == ["/x?q=a%20b"] or site.paths() == ["/x?q=a+b"]


def test_json_refusals_say_what_the_service_said_but_not_our_key(site: Website):
    said = "wrong key sk-1234567890  \n" + "x" * 1_000
    site.page("/", said, status=401)
    endpoint = Endpoint(site.url(), headers={"Authorization": "Bearer sk-1234567890"})

    with pytest.raises(Permanent) as refusal:
        endpoint.request_json("GET", "/")
    message = str(refusal.value)
    assert refusal.value.code == "http_401"
    assert "wrong key *** xxx" in message
    assert "sk-1234567890" not in message
    assert len(message) < 400


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ('{"message": "Not Found", "documentation_url": "https://x"}', "Not Found"),
        ('{"error": {"code": 403, "message": "No.", "errors": [{"message": "No."}]}}', "No"),
        ('{"error": "denied", "error_description": "sign in"}', "denied: sign in"),
        ('{"message": "Failed.", "errors": [{"message": "It exists"}]}', "Failed: It exists"),
        ('{"detail": [{"loc": ["body"], "msg": "too long"}]}', "too long"),
        ('{"type": "about:blank", "title": "Gone", "detail": "for good"}', "Gone: for good"),
        ('{"message": "wrong key sk-1234567890"}', "wrong key ***"),
        ('{"message": "wrong\\u0000key\\nsk-\\u0031234567890\\ud800"}', "wrong key ***"),
        ('{"code": 7, "reason": null}', '{"code": 7, "reason": null}'),
        ('{"message": "cut o', '{"message": "cut o'),
        ("[" * 30_000, "[" * 300),
        ('"no"', '"no"'),
        ("<html><head><title>502 Bad\nGateway &amp; more</title></head>", "502 Bad Gateway & more"),
        ("<!doctype html><p>Go <b>away</b>, now", "Go away , now"),
        ("<html><title> </title>Later", "Later"),
        ("<!doctype html>", ""),
        ('\ufeff{"message": "marked"}', "marked"),
    ],
)
def test_refusals_are_told_in_the_words_for_people(site: Website, body: str, told: str):
    site.page("/", body, status=403)
    endpoint = Endpoint(site.url(), headers={"Authorization": "Bearer sk-1234567890"})

    with pytest.raises(Permanent) as refusal:
        endpoint.request_json("GET", "/")
    assert str(refusal.value).partition(" answered 403: ")[2] == told


@pytest.mark.parametrize("status", [408, 425, 429, 500, 503])
def test_json_trouble_is_transient(site: Website, status: int):
    site.fail_next(status, retry_after="3")

    with pytest.raises(Transient) as failure:
        Endpoint(site.url()).request_json("GET", "/")
    assert failure.value.after == timedelta(seconds=3)


@pytest.mark.parametrize("body", ["", "<html>", "\xff", "[" * 100_000])
def test_what_is_no_json_is_permanent(site: Website, body: str):
    site.page("/", body.encode("latin-1"))

    with pytest.raises(Permanent) as refusal:
        Endpoint(site.url()).request_json("GET", "/")
    assert refusal.value.code == "bad_answer"


@pytest.mark.parametrize(
    ("behaviour", "patience", "code"),
    [
        (website.never_answers, 0.3, "timeout"),
        (website.closes_at_once, 60, "bad_response"),
        (website.promises_too_much, 60, "bad_response"),
        (website.cut_gzip, 60, "bad_response"),
    ],
)
def test_no_whole_answer_of_an_endpoint_is_transient(
    site: Website, behaviour: website.Behaviour, patience: float, code: str
):
    site.route("/", behaviour)

    with pytest.raises(Transient) as failure:
        Endpoint(site.url(), timeout=patience).request("GET", "/")
    assert failure.value.code == code


def test_a_connection_that_is_broken_off_is_told_as_that(site: Website, fetcher: Fetcher):
    site.route("/", website.closes_at_once)

    with pytest.raises(Transient, match="broke off the connection"):
        Endpoint(site.url()).request("GET", "/")
    with pytest.raises(Transient, match="broke off the connection"):
        fetcher.get(site.url())


def test_nobody_at_the_endpoint_is_transient():
    with socket.socket() as deaf:  # bound, and so nobody else's, but it does not listen
        deaf.bind(("127.0.0.1", 0))
        port = deaf.getsockname()[1]
        with pytest.raises(Transient) as failure:
            Endpoint(f"http://me:secret@127.0.0.1:{port}").request("GET", "/")

    assert failure.value.code == "unreachable"
    assert "secret" not in str(failure.value)


def test_a_gigantic_answer_of_an_endpoint_is_refused(site: Website):
    site.route("/big", website.announces_gigabytes)
    site.route("/bomb", website.gzip_bomb)

    for path in ("/big", "/bomb"):
        with pytest.raises(Permanent) as refusal:
            Endpoint(site.url()).request("GET", path)
        assert refusal.value.code == "too_large"


class Dripping(io.RawIOBase):
    """A file that remembers how much of it was asked for at a time."""

    def __init__(self, size: int) -> None:
        self._left = self.size = size
        self.largest = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._left = 0 if whence == 2 else self.size - offset
        return self.size - self._left

    def tell(self) -> int:
        return self.size - self._left

    def read(self, size: int = -1) -> bytes:
        size = self._left if size < 0 else min(size, self._left)
        self.largest = max(self.largest, size)
        self._left -= size
        return b"x" * size


def test_files_are_read_while_they_are_sent(site: Website):
    site.page("/upload", "{}")
    file = Dripping(3_000_000)
    Endpoint(site.url()).request(
        "POST",
        "/upload",
        data={"containerTag": "a"},
        files={"file": ("a.bin", file, "application/octet-stream")},  # pyright: ignore[reportArgumentType]
    )

    body = site.requests[0].body
    assert b'name="containerTag"' in body
    assert b'filename="a.bin"' in body
    assert body.count(b"x") >= 3_000_000
    assert 0 < file.largest < 1_000_000


def test_content_may_come_in_pieces(site: Website):
    site.page("/", "ok")
    Endpoint(site.url()).request("PUT", "/", content=iter([b"ab", b"cd"]))

    assert site.requests[0].body == b"abcd"


def test_headers_of_an_endpoint_go_nowhere_else(site: Website):
    site.page("/*", "x")
    with Website() as other:
        endpoint = Endpoint(site.url(), headers={"Authorization": "Bearer secret"})
        endpoint.request("GET", f"//127.0.0.1:{other.port}/")
        with pytest.raises(ValueError, match="slash"):
            endpoint.request("GET", other.url("/"))

        assert other.requests == []


@pytest.mark.parametrize(
    "address",
    [
        "",
        "a.com",
        "ftp://a.com",
        "http://",
        "http://a.com:x/",
        "http://a.com/v1?x=1",
        "http://a/#x",
    ],
)
def test_an_endpoint_needs_an_http_address(address: str):
    with pytest.raises(SetupError):
        Endpoint(address)


@given(st.text(min_size=1).filter(lambda s: not (s.isascii() and s.isprintable())))
def test_an_endpoint_refuses_keys_that_no_header_can_carry(key: str):
    with pytest.raises(SetupError) as refusal:
        Endpoint("http://a.com", headers={"Authorization": key})
    assert refusal.value.__cause__ is None


def refused(fetcher: Fetcher, url: str) -> str:
    """The code with which this address is refused for good."""
    with pytest.raises(Permanent) as refusal:
        fetcher.get(url)
    return refusal.value.code


def delayed(fetcher: Fetcher, url: str) -> Transient:
    """The passing trouble with this address."""
    with pytest.raises(Transient) as failure:
        fetcher.get(url)
    return failure.value
