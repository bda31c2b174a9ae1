"""The web crawler over a real site on loopback: what it takes, leaves and remembers."""

import base64
import random
import threading
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from ipaddress import ip_network
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import pytest

from recollect.connectors.base import (
    Change,
    Checkpoint,
    Gone,
    Item,
    Listed,
    Listing,
    Missing,
    Trouble,
    Verdict,
)
from recollect.connectors.web_crawler import WebCrawler, _addresses, _crawl
from recollect.connectors.web_crawler._texts import NEAR, fingerprint, word_hashes
from recollect.errors import BadRequestError, LeaseLost, NotFoundError, Permanent, Transient
from recollect.extract import Sandbox
from recollect.fetch import Fetched, Fetcher, FetchLimits
from recollect.fetch import UrlVerdict as FetchVerdict
from recollect.model import Blob, Extracted, Remembered
from recollect.sync import item_filter, runs
from tests.conftest import examples
from tests.connectors.memory import PACES, MemorySource
from tests.fakes import website
from tests.fakes.site import WORDS, Site, html, prose
from tests.fakes.website import Exchange, Request

LOOPBACK = ip_network("127.0.0.0/8")
WEEK = timedelta(days=7)
HASTY = FetchLimits(total=0.4, read=0.3)
"""for what never ends; what does end may take its time, however busy the machine is"""
SMALL = FetchLimits(max_bytes=100_000)
FOREVER = 1_000.0
"""seconds; pauses here only note how long they would have been"""
PATIENT = FetchLimits(total=FOREVER, read=FOREVER)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(workers=1) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def fetcher() -> Iterator[Fetcher]:
    with Fetcher(user_agent="RecollectBot/1", allow_networks=[LOOPBACK]) as fetcher:
        yield fetcher


@pytest.fixture(scope="module")
def closed() -> Iterator[Fetcher]:
    """For whom every name is one of this machine, which is not open."""
    with Fetcher(user_agent="test", resolve=lambda _name, _port: ["127.0.0.1"]) as fetcher:
        yield fetcher


@pytest.fixture(scope="module")
def small() -> Iterator[Fetcher]:
    with Fetcher(user_agent="RecollectBot/1", allow_networks=[LOOPBACK], limits=SMALL) as fetcher:
        yield fetcher


@pytest.fixture(scope="module")
def hasty() -> Iterator[Fetcher]:
    with Fetcher(user_agent="RecollectBot/1", allow_networks=[LOOPBACK], limits=HASTY) as fetcher:
        yield fetcher


class Except(Fetcher):
    """Like one fetcher, but for some paths, which another one gets."""

    def __init__(self, usual: Fetcher, paths: Collection[str], other: Fetcher) -> None:
        self._usual, self._paths, self._other = usual, paths, other

    def check(self, url: str) -> FetchVerdict:
        return self._usual.check(url)

    def get(self, url: str, **how: Any) -> Fetched:
        of = self._other if urlsplit(url).path in self._paths else self._usual
        return of.get(url, **how)


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as site:
        yield site


@pytest.fixture
def source(site: Site, sandbox: Sandbox, fetcher: Fetcher) -> MemorySource:
    PACES.clear()  # the port may have been another site's
    return MemorySource(
        WebCrawler(),
        fetcher,
        sandbox,
        metadata={"startUrl": site.url("/")},
        surveyor=partial(sandbox.survey, owner="tests"),
        sitemap_reader=partial(sandbox.sitemap, owner="tests"),
    )


def crawl(
    source: MemorySource,
    *,
    checkpoints: int | None = None,
    changes: int | None = None,
    together: int = runs.BATCH,
) -> list[Change]:
    """One sync as it is: what it stores, it stores at checkpoints, or so many changes `together`.

    It is killed after so many `checkpoints`, or `changes`. Returns what was stored.
    """
    stored: list[Change] = []
    batch: list[Change] = []
    reached = 0
    missing, source._missing = source._missing, set()
    heard = source.connector.changes(source, source.cursor)
    assert isinstance(heard, Generator)
    for number, change in enumerate(heard, 1):
        batch.append(change)
        if isinstance(change, Checkpoint) or len(batch) == together:
            for one in batch:
                source._apply(one, missing)
            stored += batch
            batch = []
            reached += isinstance(change, Checkpoint)
        if number == changes or (reached == checkpoints and not batch):
            heard.close()
            return stored
    assert not batch, "changes() must end on a Checkpoint"
    return stored


def again(source: MemorySource) -> list[Change]:
    """A week later."""
    source.since += WEEK
    return crawl(source)


def narrowed(source: MemorySource, **metadata: Any) -> MemorySource:
    source.metadata = {**source.metadata, **metadata}
    return source


def verdicts(source: MemorySource) -> dict[str, str]:
    """Of every row, by its path; a document that is not there any more shows."""
    base = source.metadata["startUrl"].rstrip("/")
    return {row.id.removeprefix(base): row.verdict for row in source.rows.values()}


def row(source: MemorySource, path: str) -> Remembered:
    return source.rows[source.metadata["startUrl"].rstrip("/") + path]


def documents(source: MemorySource) -> set[str]:
    base = source.metadata["startUrl"].rstrip("/")
    return {id.removeprefix(base) for id in source.items}


def of_kind(changes: Sequence[Change], *kinds: type) -> list[Any]:
    return [change for change in changes if isinstance(change, kinds)]


# --- metadata ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (None, "required"),
        ("", "required"),
        ("  ", "required"),
        (17, "required"),
        ("no url", "not a valid URL"),
        ("ftp://example.com/", "only http and https"),
        ("file:///etc/passwd", "only http and https"),
        ("http://me:secret@example.com/", "user name or password"),
        ("http://127.0.0.1/", "not a public address"),
        ("http://10.1.2.3/", "not a public address"),
        ("http://169.254.169.254/latest/meta-data/", "not a public address"),
        ("http://localhost/", "not a public address"),
        ("http://metadata.google.internal/", "not a public address"),
        ("http://[::1]/", "not a public address"),
        ("http://example.com/" + "x" * 3_000, "longer than"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_start_url_is_refused_by_the_rule_that_it_breaks(
    closed: Fetcher, given: object, reason: str
):
    with pytest.raises(BadRequestError, match=reason) as refused:
        WebCrawler().check({"startUrl": given}, closed)

    assert list(refused.value.issues[0].path) == ["metadata", "startUrl"]


def test_what_a_name_resolves_to_is_judged_at_creation():
    def inner(_name: str, _port: int) -> list[str]:
        return ["93.184.216.34", "10.0.0.1"]

    with (
        Fetcher(user_agent="test", resolve=inner) as fetcher,
        pytest.raises(BadRequestError, match="not a public address"),
    ):
        WebCrawler().check({"startUrl": "https://docs.example.com"}, fetcher)


def test_a_name_that_cannot_be_looked_up_now_may_still_be_right():
    def broken(_name: str, _port: int) -> list[str]:
        raise OSError("no DNS here")

    given = {"startUrl": " https://docs.example.com/x ", "colour": "blue", "crawlDepth": 3.0}
    with Fetcher(user_agent="test", resolve=broken) as fetcher:
        kept = WebCrawler().check(given, fetcher)

    assert kept == {**given, "startUrl": "https://docs.example.com/x"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("crawlDepth", 0),
        ("crawlDepth", 6),
        ("depth", -1),
        ("depth", 21),
        ("depth", "deep"),
        ("depth", True),
        ("crawlDepth", 1.5),
        ("crawlDepth", float("nan")),
        ("includePatterns", 5),
        ("excludePatterns", ["/a", 5]),
    ],
    ids=str,
)
def test_what_narrows_a_crawl_is_checked(fetcher: Fetcher, key: str, value: object):
    with pytest.raises(BadRequestError, match=f"metadata.{key}"):
        WebCrawler().check({"startUrl": "http://127.0.0.1/", key: value}, fetcher)


# --- what becomes a document ---------------------------------------------------------------------


def test_pages_become_documents_with_what_they_say_of_themselves(site: Site, source: MemorySource):
    published = '<meta property="article:published_time" content="2024-05-06T07:08:09Z">'
    site.write("/", "Welcome to the harbour.", ["/a"], title="Harbour")
    site.write("/a", "All about lanterns.", title="Lanterns", head=published)

    crawl(source)

    item = source.items[site.url("/a")]
    assert (item.title, item.kind, item.url) == ("Lanterns", "webpage", site.url("/a"))
    assert item.text is not None
    assert "All about lanterns." in item.text
    assert item.metadata == {"published": "2024-05-06T07:08:09Z", "language": "en"}
    assert item.detail == f"found on {site.url('/')}"
    assert documents(source) == {"/", "/a"}
    assert site.requests[0].headers["user-agent"] == "RecollectBot/1"


def test_each_address_is_fetched_once_however_it_is_written(site: Site, source: MemorySource):
    site.write(
        "/",
        links=[
            "/a",
            "a#part",
            "/x/../a",
            "/a?utm_source=mail&utm_medium=x",
            "/%61",
            site.url("/a").replace("http", "HTTP"),
        ],
    )
    site.write("/a", links=["/"])

    crawl(source)

    assert sorted(site.pages()) == ["/", "/a"]


def test_other_hosts_are_noted_and_never_asked(site: Site, source: MemorySource):
    other = f"http://localhost:{site.port}/a"
    site.write("/", links=[other, "https://example.com/b", "/in"])
    site.write("/in")

    crawl(source)

    assert source.rows[other].verdict == "off_host"
    assert source.rows["https://example.com/b"].verdict == "off_host"
    assert row(source, "/in").verdict == "document"
    assert all(request.headers["host"] == f"127.0.0.1:{site.port}" for request in site.requests)


def test_a_farm_of_foreign_links_makes_a_bounded_number_of_rows(
    site: Site, source: MemorySource, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_addresses, "MOST_ABROAD", 20)
    links = [f"https://farm{n % 200}.example.com/{n}" for n in range(2_000)]
    site.write("/", links=[*links, "/in"])
    site.write("/in")

    crawl(source)

    abroad = [one for one in source.rows.values() if one.verdict == "off_host"]
    assert len(abroad) == 40
    assert "https://farm150.example.com/" not in source.rows
    assert "https://farm21.example.com/" in source.rows
    assert documents(source) == {"/", "/in"}


def test_only_html_is_taken_whatever_it_is_called(site: Site, source: MemorySource):
    shown = {
        "/report.pdf": (b"%PDF-1.7 words", "application/pdf"),
        "/lying-pdf": (b"%PDF-1.7 words", "text/html"),
        "/zeros": (b"<p>\0\0\0\1</p>", "text/html"),
        "/text": (b"plain words", "text/plain"),
        "/json": (b'{"a": 1}', "application/json"),
        "/nameless": (b"just words", None),
    }
    taken = {
        "/named.pdf": (html(prose("named")).encode(), "text/html"),
        "/xhtml": (html(prose("xhtml")).encode(), "application/xhtml+xml; charset=utf-8"),
        "/untold": (html(prose("untold")).encode(), None),
        "/wide": (html(prose("wide")).encode("utf-16"), "text/html"),
    }
    site.write("/", links=[*shown, *taken])
    for path, (body, mime) in {**shown, **taken}.items():
        site.page(path, body, mime=mime)

    crawl(source)

    assert {path: verdicts(source)[path] for path in shown} == dict.fromkeys(shown, "not_html")
    assert documents(source) == {"/", *taken}


@pytest.mark.parametrize(
    ("mime", "begins"),
    [
        ("application/pdf", b"%PDF-1.7 "),
        ("text/html; charset=utf-8", b"%PDF-1.7 "),
        (None, b"plain words "),
        ("application/octet-stream", b"<!doctype html>"),
    ],
)
def test_what_is_no_html_is_left_as_soon_as_that_shows(
    site: Site, source: MemorySource, mime: str | None, begins: bytes
):
    poured = website.Pouring(9_000_000, mime, begins)
    site.write("/", links=["/file", "/a"])
    site.write("/a")
    site.route("/file", poured)

    crawl(source)

    assert verdicts(source) == {"/": "document", "/a": "document", "/file": "not_html"}
    assert poured.ended.wait(60)
    assert poured.sent < 5_000_000, "what fits into the buffers of the two ends, not the whole"


def test_the_charset_of_the_header_is_heeded(site: Site, source: MemorySource):
    site.page("/", "<p>Ångström čaj</p>".encode("iso8859-4"), mime="text/html; charset=iso8859-4")

    crawl(source)

    assert "Ångström čaj" in (source.items[site.url("/")].text or "")


def test_a_page_without_text_is_no_document(site: Site, source: MemorySource):
    site.write("/", links=["/app"])
    site.page("/app", "<body><div id=root></div><script>draw()</script></body>")

    crawl(source)

    assert row(source, "/app").verdict == "empty"
    assert "JavaScript" in str(row(source, "/app").detail)


# --- robots.txt ----------------------------------------------------------------------------------


def test_robots_txt_is_obeyed_and_quoted(site: Site, source: MemorySource):
    site.robots("User-agent: *\nDisallow: /\n\nUser-agent: recollectbot\nDisallow: /private\n")
    site.write("/", links=["/private/a", "/public"])
    site.write("/public")

    crawl(source)

    assert site.paths()[0] == "/robots.txt"
    assert "/private/a" not in site.paths()
    assert row(source, "/private/a").verdict == "robots"
    assert row(source, "/private/a").detail == "robots.txt line 5: Disallow: /private"
    assert documents(source) == {"/", "/public"}


def test_a_site_that_shuts_all_robots_out_is_left_alone(site: Site, source: MemorySource):
    site.robots("User-agent: *\nDisallow: /")
    site.write("/", links=["/a"])

    changes = crawl(source)

    assert site.paths() == ["/robots.txt"]
    assert verdicts(source) == {"/": "robots"}
    [told] = of_kind(changes, Trouble)
    assert "robots.txt line 2: Disallow: /" in told.message


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_a_robots_txt_that_is_not_to_be_had_allows_everything(
    site: Site, source: MemorySource, status: int
):
    site.status("/robots.txt", status)
    site.write("/")

    crawl(source)

    assert documents(source) == {"/"}


def _fails(site: Site) -> None:
    site.status("/robots.txt", 503)


def _hangs(site: Site) -> None:
    site.route("/robots.txt", website.never_answers)


def _breaks(site: Site) -> None:
    site.route("/robots.txt", website.promises_too_much)


@pytest.mark.parametrize("harm", [_fails, _hangs, _breaks], ids=["503", "hangs", "breaks"])
def test_while_robots_txt_cannot_be_read_nothing_is_fetched_and_nothing_deleted(
    site: Site, source: MemorySource, hasty: Fetcher, harm: Callable[[Site], None]
):
    site.write("/", links=["/a"])
    site.write("/a")
    crawl(source)
    source.fetcher = hasty
    site.forget()
    harm(site)

    changes = again(source)

    assert site.pages() == []
    assert documents(source) == {"/", "/a"}
    [trouble] = of_kind(changes, Trouble)
    assert trouble.code == "provider_unavailable"
    assert "robots.txt" in trouble.message
    assert not of_kind(changes, Listed, Gone, Missing)


def test_the_beginning_of_an_endless_robots_txt_is_obeyed(site: Site, source: MemorySource):
    rules = b"User-agent: *\nDisallow: /private\n"
    site.route("/robots.txt", website.Pouring(10**12, "text/plain", rules))
    site.write("/", links=["/private", "/a"])
    site.write("/a")

    crawl(source)

    assert verdicts(source) == {"/": "document", "/a": "document", "/private": "robots"}


def test_a_robots_txt_elsewhere_counts_for_this_host(site: Site, source: MemorySource):
    site.redirect("/robots.txt", site.url("/rules", host="127.0.0.2"), status=301)
    site.page("/rules", "User-agent: *\nDisallow: /a", mime="text/plain")
    site.write("/", links=["/a"])
    with Site() as other:
        other.page("/rules", "User-agent: *\nDisallow: /a", mime="text/plain")
        site.redirect("/robots.txt", other.url("/rules"), status=301)

        crawl(source)

    assert row(source, "/a").verdict == "robots"


def test_pages_that_robots_txt_disallows_now_are_not_asked_and_keep_their_document(
    site: Site, source: MemorySource
):
    site.write("/", links=["/a", "/b"])
    site.write("/a")
    site.write("/b")
    crawl(source)
    site.robots("User-agent: *\nDisallow: /")
    site.forget()

    for _ in range(3):
        again(source)

    assert documents(source) == {"/", "/a", "/b"}
    assert set(site.paths()) <= {"/robots.txt", "/sitemap.xml"}
    assert row(source, "/a").detail == "robots.txt line 2: Disallow: /"


@pytest.mark.parametrize("hours", [25, -25], ids=["old", "by a clock that was ahead"])
def test_robots_txt_is_kept_for_a_day_of_the_same_crawl(
    site: Site, source: MemorySource, hours: int
):
    site.robots("User-agent: *\nDisallow: /z")
    site.write("/", links=["/z", "/a"])
    site.write("/a")
    crawl(source, checkpoints=1)
    crawl(source)
    kept = site.paths().count("/robots.txt")

    site.forget()
    later = replace(source, cursor=None, rows={}, items={}, _seen={})
    crawl(later, checkpoints=1)
    assert later.cursor is not None
    copies = {
        origin: {**copy, "at": (datetime.now(UTC) - timedelta(hours=hours)).isoformat()}
        for origin, copy in later.cursor["robots"].items()
    }
    assert base64.b64decode(copies[site.url("")]["data"]).endswith(b"/z")
    later.cursor = {**later.cursor, "robots": copies}
    crawl(later)

    assert kept == 1
    assert site.paths().count("/robots.txt") == 2


# --- what pages ask for --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "headers", "expected"),
    [
        ('<meta name="robots" content="noindex">', {}, "noindex"),
        ('<meta name="robots" content="none">', {}, "noindex"),
        ('<meta name="RecollectBot" content="NOINDEX">', {}, "noindex"),
        ("", {"X-Robots-Tag": "noindex"}, "noindex"),
        ("", {"X-Robots-Tag": "recollectbot: noindex"}, "noindex"),
        ("", {"X-Robots-Tag": "unavailable_after: 25 Jun 2010 15:00:00 GMT"}, "noindex"),
        ("", {"X-Robots-Tag": "otherbot: noindex"}, "document"),
        ("", {"X-Robots-Tag": "unavailable_after: 25 Jun 2910 15:00:00 GMT"}, "document"),
        ("", {"X-Robots-Tag": f"unavailable_after: 1 Jan {10**20} 00:00 GMT"}, "document"),
        ('<meta name="robots" content="index, noarchive">', {}, "document"),
    ],
    ids=str,
)
def test_pages_that_ask_not_to_be_indexed_are_not(
    site: Site, source: MemorySource, head: str, headers: dict[str, str], expected: str
):
    site.write("/", links=["/a"])
    site.write("/a", head=head, headers=headers)

    crawl(source)

    assert row(source, "/a").verdict == expected


def test_links_of_a_page_that_is_not_indexed_are_followed_unless_it_says_no(
    site: Site, source: MemorySource
):
    site.write("/", links=["/list", "/shut"])
    site.write("/list", links=["/a"], head='<meta name="robots" content="noindex">')
    site.write("/shut", links=["/b", "/a"], head='<meta name="robots" content="nofollow">')
    site.write("/a")
    site.write("/b")

    crawl(source)

    assert documents(source) == {"/", "/shut", "/a"}
    assert row(source, "/b").verdict == "nofollow"
    assert "/b" not in site.paths()


def test_a_link_with_nofollow_is_not_followed_unless_another_leads_there(
    site: Site, source: MemorySource
):
    site.write("/", links=["/next"], nofollow=["/a", "/b"])
    site.write("/next", links=["/b"])
    site.write("/a")
    site.write("/b")

    crawl(source)

    assert documents(source) == {"/", "/next", "/b"}
    assert row(source, "/a").verdict == "nofollow"


def _canonical(url: str) -> str:
    return f'<link rel="canonical" href="{url}">'


def test_a_canonical_link_leads_to_the_one_document(site: Site, source: MemorySource):
    site.write("/", links=["/a?view=print"])
    site.write("/a", head=_canonical("/a"))

    crawl(source)

    assert row(source, "/a?view=print").verdict == "canonical"
    assert row(source, "/a?view=print").detail == site.url("/a")
    assert documents(source) == {"/", "/a"}


def test_a_canonical_link_that_leads_nowhere_is_not_believed(site: Site, source: MemorySource):
    site.robots("User-agent: *\nDisallow: /shut")
    site.write("/", links=["/a", "/b", "/c", "/d"])
    site.write("/a", head=_canonical("/gone"))
    site.write("/b", head=_canonical("/shut"))
    site.write("/c", head=_canonical("https://example.com/elsewhere"))
    site.write("/d", head=_canonical("/d2"))
    site.write("/d2", head='<meta name="robots" content="noindex">')

    crawl(source)

    assert documents(source) == {"/", "/a", "/b", "/c", "/d"}
    assert verdicts(source)["/shut"] == "robots"


def test_a_page_that_leads_elsewhere_at_once_is_no_document(site: Site, source: MemorySource):
    site.write("/", "Redirecting …", head='<meta http-equiv="refresh" content="0; url=/latest/">')
    site.write("/latest/")

    crawl(source)

    assert row(source, "/").detail == site.url("/latest/")
    assert documents(source) == {"/latest/"}


def test_a_copy_stays_one_while_its_original_does_not_answer(site: Site, source: MemorySource):
    site.write("/", links=["/a", "/b"])
    site.write("/a")
    site.write("/b", head='<link rel="canonical" href="/a">')
    crawl(source)
    site.status("/a", 500)

    again(source)

    assert documents(source) == {"/", "/a"}
    assert row(source, "/b").verdict == "canonical"


def test_pages_that_call_each_other_canonical_make_one_document(site: Site, source: MemorySource):
    site.write("/", links=["/a"])
    site.write("/a", head=_canonical("/b"))
    site.write("/b", head=_canonical("/c"))
    site.write("/c", head=_canonical("/a"))

    crawl(source)

    assert len(documents(source) - {"/"}) == 1
    assert sorted(set(verdicts(source).values())) == ["canonical", "document"]


# --- redirects -----------------------------------------------------------------------------------


def test_redirects_are_links_with_all_that_holds_for_those(site: Site, source: MemorySource):
    site.robots("User-agent: *\nDisallow: /private")
    site.write("/", links=["/old", "/secret", "/away", "/inside"])
    site.redirect("/old", "/new", status=301)
    site.redirect("/secret", "/private/x")
    site.redirect("/away", f"http://localhost:{site.port}/a")
    site.redirect("/inside", "http://169.254.169.254/latest")
    site.write("/new")

    crawl(source)

    assert documents(source) == {"/", "/new"}
    assert (row(source, "/old").verdict, row(source, "/old").detail) == (
        "redirect",
        site.url("/new"),
    )
    assert verdicts(source)["/secret"] == "redirect"
    assert verdicts(source)["/private/x"] == "robots"
    assert verdicts(source)["/away"] == "off_host"
    assert verdicts(source)["/inside"] == "blocked"
    assert "/private/x" not in site.paths()
    assert all(request.headers["host"] != f"localhost:{site.port}" for request in site.requests)


def test_redirects_without_end_end(site: Site, source: MemorySource):
    site.write("/", links=["/long", "/ring1", "/self"])
    site.route("/long*", website.endless_redirects)
    site.redirect("/ring1", "/ring2")
    site.redirect("/ring2", "/ring1")
    site.redirect("/self", "/self")

    crawl(source)

    longs = [path for path in site.paths() if path.startswith("/long")]
    assert len(longs) == 11
    assert verdicts(source)["/long" + "x" * 11] == "error"
    assert verdicts(source)["/long"] == "redirect"
    assert sorted([verdicts(source)["/ring1"], verdicts(source)["/ring2"]]) == [
        "error",
        "redirect",
    ]
    assert verdicts(source)["/self"] == "error"
    assert documents(source) == {"/"}


def test_pages_are_asked_for_as_html(site: Site, source: MemorySource):
    """Some sites give Markdown, or 406, to who takes everything alike:
    github.com/clavia-labs/tardigrade/pull/345, github.com/colophon-group/jobseek/pull/2225"""
    site.write("/", "Welcome.")
    site.header("/", "accept", "text/html, ", otherwise=406)

    crawl(source)

    assert documents(source) == {"/"}
    assert site.requests[-1].headers["accept"].count("*/*") == 1


def test_a_start_page_may_redirect_within_its_host(site: Site, source: MemorySource):
    site.redirect("/", "/en/")
    site.write("/en/", links=["/en/a"])
    site.write("/en/a")

    crawl(source)

    assert documents(source) == {"/en/", "/en/a"}


def test_a_start_page_that_is_on_another_host_now_says_so_and_deletes_nothing(
    site: Site, source: MemorySource
):
    site.write("/", links=["/a"])
    site.write("/a")
    crawl(source)
    site.forget()
    elsewhere = site.url("/", host="localhost")
    site.redirect("/", elsewhere)

    changes = again(source)

    [trouble] = of_kind(changes, Trouble)
    assert trouble.code == "off_host"
    assert elsewhere in trouble.message
    assert documents(source) == {"/", "/a"}
    assert site.paths() == ["/robots.txt", "/"]


# --- sitemaps ------------------------------------------------------------------------------------


def test_sitemaps_of_robots_txt_and_of_the_usual_place_are_seeds(site: Site, source: MemorySource):
    site.robots(f"Sitemap: {site.url('/maps/index.xml')}\nUser-agent: *\nDisallow: /no")
    site.sitemap("/maps/index.xml", [site.url("/maps/one.xml"), site.url("/no.xml")], index=True)
    site.sitemap("/maps/one.xml", [site.url("/a"), "https://example.com/far", site.url("/no")])
    site.sitemap("/sitemap.xml", [site.url("/b")])
    for path in ("/", "/a", "/b"):
        site.write(path)

    crawl(source)

    assert documents(source) == {"/", "/a", "/b"}
    assert source.rows["https://example.com/far"].verdict == "off_host"
    assert verdicts(source)["/no"] == "robots"
    assert "/no.xml" not in site.paths()


def test_a_sitemap_may_name_a_time_that_no_clock_shows(site: Site, source: MemorySource):
    site.write("/")
    site.write("/a")
    entry = f"<url><loc>{site.url('/a')}</loc><lastmod>1 Jan {10**20} 00:00 GMT</lastmod></url>"
    site.render("/sitemap.xml", lambda _request: f"<urlset>{entry}</urlset>")

    crawl(source)

    assert documents(source) == {"/", "/a"}


def test_sitemaps_that_name_each_other_end(
    site: Site, source: MemorySource, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_crawl, "MOST_SITEMAPS", 5)
    site.write("/")
    site.sitemap("/sitemap.xml", [site.url("/sitemap.xml"), site.url("/s/0")], index=True)
    serial = iter(range(1, 1_000))

    def next_one(_request: Request) -> str:
        name = site.url(f"/s/{next(serial)}")
        return f"<sitemapindex><sitemap><loc>{name}</loc></sitemap></sitemapindex>"

    site.render("/s/*", next_one)

    crawl(source)

    assert site.paths().count("/sitemap.xml") == 1
    assert len([path for path in site.paths() if path.startswith("/s/")]) == 4


def test_a_large_sitemap_is_planned_in_batches(site: Site, source: MemorySource):
    source.limit = 3
    site.write("/")
    site.sitemap("/sitemap.xml", [site.url(f"/p/{n}") for n in range(1_700)])
    site.render("/p/*", lambda request: html(prose(request.path)))

    changes = crawl(source)

    sizes = _between_checkpoints(changes)
    assert max(sizes) <= 200
    assert sum(verdict == "limit" for verdict in verdicts(source).values()) == 1_698


def test_of_a_sitemap_that_is_too_large_the_start_is_read(site: Site, source: MemorySource):
    site.write("/")
    site.write("/a")
    site.write("/b")
    first, second = (f"<url><loc>{site.url(path)}</loc></url>" for path in ("/a", "/b"))
    body = f"<urlset>{first}{' ' * 9_500_000}{second}<!--{'-' * 1_500_000}--></urlset>"
    site.page("/sitemap.xml", body, mime="application/xml")

    crawl(source)

    assert documents(source) == {"/", "/a", "/b"}


def _between_checkpoints(changes: Sequence[Change]) -> list[int]:
    sizes = [0]
    for change in changes:
        if isinstance(change, Checkpoint):
            sizes.append(0)
        else:
            sizes[-1] += 1
    return sizes


# --- narrowing -----------------------------------------------------------------------------------


def test_a_chosen_depth_counts_links_from_the_start(site: Site, source: MemorySource):
    site.sitemap("/sitemap.xml", [site.url("/mapped")])
    site.write("/", links=["/1"])
    site.write("/1", links=["/2"])
    site.write("/2", links=["/3", "/1"])
    site.write("/3")

    crawl(narrowed(source, crawlDepth=2))

    assert documents(source) == {"/", "/1", "/2"}
    assert row(source, "/3").verdict == "depth"
    assert "/sitemap.xml" not in site.paths()


def test_patterns_of_the_connection_narrow_it(site: Site, source: MemorySource):
    site.write("/", links=["/docs/a", "/docs/old/b", "/blog/c", "/docs/d?x=1"])
    for path in ("/docs/a", "/docs/old/b", "/blog/c", "/docs/d"):
        site.write(path)

    crawl(narrowed(source, includePatterns="/docs/*", excludePatterns="*/OLD/*,\n/*?x=*"))

    assert documents(source) == {"/docs/a"}
    assert verdicts(source)["/"] == "filtered"
    assert row(source, "/blog/c").detail == "includePatterns: no pattern matches"
    assert row(source, "/docs/old/b").detail == "excludePatterns: */OLD/*"
    assert row(source, "/docs/d?x=1").verdict == "filtered"
    assert site.pages() == ["/", "/docs/a"]


@pytest.mark.parametrize(
    ("name", "called"),
    [
        ("end", "{} - The Weir Book"),
        ("beginning", "Weir Book | {}"),
        ("longest", "{} — Chapter 1 — The Weir Book"),
        ("not all", "{} · The Weir Book"),
    ],
)
def test_titles_lose_what_the_pages_of_the_site_share(
    site: Site, source: MemorySource, name: str, called: str
):
    paths = [f"/{n}" for n in range(30)]
    site.write("/", links=[*paths, "/odd", "/none"], title="The Weir Book")
    site.write("/odd", title="Weirs - a list")
    site.write("/none", title=called.format("").strip(" -|—·"))
    for path in paths:
        site.write(path, title=called.format(f"Gate {path}"))
    crawl(source)

    titles = {row.id.removeprefix(site.url("")): row.title for row in source.rows.values()}
    assert {path: titles[path] for path in paths} == {path: f"Gate {path}" for path in paths}
    assert titles["/"] == "The Weir Book"
    assert titles["/odd"] == "Weirs - a list"

    before = {id: replace(item, text=None) for id, item in source.items.items()}
    site.write("/3", prose("changed"), title=called.format("Gate /3"))
    said = again(source)
    items = {item.id: replace(item, text=None) for item in of_kind(said, Item)}
    changed = {id for id, item in items.items() if item.version != before[id].version}
    assert changed == {site.url("/3")}
    assert {id: item.title for id, item in items.items()} == {
        id: item.title for id, item in before.items()
    }
    assert len(items) == len(of_kind(said, Item)), "nothing is said twice"


def test_a_site_that_takes_another_name_has_it_taken_off_as_well(site: Site, source: MemorySource):
    paths = [f"/{n}" for n in range(5)]
    for called in ("{} - Old", "{} - New", "{}"):
        site.write("/", links=paths, title="Home")
        for path in paths:
            site.write(path, title=called.format(f"Gate {path}"))
        again(source)

        assert {item.title for item in source.items.values()} == {
            "Home",
            *(f"Gate {path}" for path in paths),
        }


def test_a_few_pages_with_the_same_words_are_no_site(site: Site, source: MemorySource):
    site.write("/", links=["/a", "/b", "/c"], title="Home")
    site.write("/a", title="Gates - drawings")
    site.write("/b", title="Locks - drawings")
    site.write("/c", title="Prices")
    crawl(source)

    assert {item.title for item in source.items.values()} == {
        "Home",
        "Gates - drawings",
        "Locks - drawings",
        "Prices",
    }


def test_a_page_without_a_title_is_no_match_for_titles_to_include(site: Site, source: MemorySource):
    only = {"titlePatterns": ["Page*"], "urlPatterns": []}
    source.refuse = item_filter.refusal({"includeItems": only, "excludeItems": None})
    site.write("/", links=["/a", "/untitled"])
    site.write("/a")
    site.write("/untitled", title="")

    crawl(source)

    assert documents(source) == {"/", "/a"}
    assert row(source, "/untitled").detail == "includeItems: no pattern matches"


def test_the_settings_filter_is_asked_before_fetching_and_again_with_the_title(
    site: Site, source: MemorySource
):
    def refuse(title: str | None, url: str | None) -> str | None:
        if url is not None and "/secret" in url:
            return "excludeItems: *secret*"
        return "excludeItems: *draft*" if title is not None and "Draft" in title else None

    source.refuse = refuse
    site.write("/", links=["/secret", "/draft"])
    site.write("/secret")
    site.write("/draft", title="Draft of a plan", links=["/a"])
    site.write("/a")

    crawl(source)

    assert "/secret" not in site.paths()
    assert row(source, "/secret").detail == "excludeItems: *secret*"
    assert (row(source, "/draft").verdict, row(source, "/draft").title) == (
        "filtered",
        "Draft of a plan",
    )
    assert documents(source) == {"/", "/a"}


def test_the_settings_filter_leaves_documents_alone_that_are_there(
    site: Site, source: MemorySource
):
    site.write("/", links=["/a"])
    site.write("/a")
    crawl(source)
    source.refuse = lambda _title, _url: "excludeItems: *"
    site.write("/a", "Something else.", links=["/b"])

    again(source)

    assert documents(source) == {"/", "/a"}
    assert verdicts(source)["/b"] == "filtered"


# --- documentLimit -------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 4])
def test_the_document_limit_is_exact(site: Site, source: MemorySource, width: int):
    source.limit, source.crawl_concurrency = 5, width
    paths = [f"/{n}" for n in range(20)]
    site.write("/", links=["/none", *paths])
    site.write("/none", head='<meta name="robots" content="noindex">')
    for path in paths:
        site.write(path)

    crawl(source)

    assert len(documents(source)) == 5
    assert sum(verdict == "limit" for verdict in verdicts(source).values()) == 16
    assert len(site.pages()) == 6, "what cannot be kept is not fetched"


def test_a_raised_limit_brings_in_what_was_left_out(site: Site, source: MemorySource):
    source.limit = 3
    site.write("/", links=[f"/{n}" for n in range(9)])
    for n in range(9):
        site.write(f"/{n}")
    crawl(source)
    source.limit = 7

    again(source)
    at_seven = len(documents(source))
    source.limit = 100
    again(source)

    assert at_seven == 7
    assert len(documents(source)) == 10


def test_a_document_that_went_leaves_its_place_to_the_next(site: Site, source: MemorySource):
    source.limit = 3
    site.write("/", links=["/a", "/b", "/c"])
    for path in ("/a", "/b", "/c"):
        site.write(path)
    crawl(source)
    assert verdicts(source)["/c"] == "limit"
    site.status("/a", 410)

    again(source)
    assert documents(source) == {"/", "/a", "/b"}
    again(source)

    assert documents(source) == {"/", "/b", "/c"}


# --- copies --------------------------------------------------------------------------------------


def test_a_page_with_the_same_text_is_a_duplicate_of_the_first(site: Site, source: MemorySource):
    source.crawl_concurrency = 1
    site.write("/", links=["/a", "/b"])
    site.write("/a", "The same old story.", title="One")
    site.write("/b", "The same old story.", title="Two", links=["/c"])
    site.write("/c")

    crawl(source)

    assert documents(source) == {"/", "/a", "/c"}
    assert (row(source, "/b").verdict, row(source, "/b").detail) == ("duplicate", site.url("/a"))


def test_nearly_the_same_page_under_another_query_is_recorded_as_such(
    site: Site, source: MemorySource
):
    source.crawl_concurrency = 1
    story = prose("story", 600)
    site.write("/", links=["/news", "/news?print=1", "/news?id=2", "/copy"])
    site.write("/copy", f"{story} copied")

    def news(request: Request) -> str:
        match request.path.partition("?")[2]:
            case "id=2":
                return html(prose("another", 600))
            case "print=1":
                return html(f"{story} printed")
            case _:
                return html(story)

    site.render("/news", news)

    crawl(source)

    assert documents(source) == {"/", "/news", "/news?id=2", "/copy"}
    variant = row(source, "/news?print=1")
    assert (variant.verdict, variant.detail) == ("near_duplicate", site.url("/news"))
    assert str(row(source, "/copy").detail).endswith(
        f"says nearly the same as {site.url('/news')}"
    ), "other pages stay, however alike"


def test_texts_that_differ_in_a_sentence_are_not_nearly_the_same():
    story = prose("story", 300)
    other = f"{story} {prose('more', 30)}"
    words = story.split()

    def apart(one: str, two: str) -> int:
        prints = [fingerprint(text) for text in (one, two)]
        assert prints[0] is not None
        assert prints[1] is not None
        return (int.from_bytes(prints[0]) ^ int.from_bytes(prints[1])).bit_count()

    assert apart(story, " ".join([*words[:150], "changed", *words[151:]])) <= 2 * NEAR
    assert apart(story, other) > NEAR
    assert apart(story, prose("else", 300)) > 60
    assert fingerprint("too short to say") is None


# --- traps ---------------------------------------------------------------------------------------


def test_a_calendar_without_end_is_left(site: Site, source: MemorySource):
    site.write("/", links=["/calendar/2026/01"])

    def month(request: Request) -> str:
        year, month = map(int, request.path.split("/")[2:4])
        ahead = [year * 12 + month + step for step in range(6)]
        links = [f"/calendar/{number // 12}/{number % 12 + 1:02}" for number in ahead]
        return html(prose(request.path), links)

    site.render("/calendar/*", month)

    crawl(source)

    months = [path for path in site.paths() if path.startswith("/calendar")]
    assert len(months) == 36
    assert row(source, "/calendar/2029/01").verdict == "trap"
    assert row(source, "/calendar/2029/01").detail == "a calendar, in the year 2029"


def test_sessions_in_queries_are_one_page(site: Site, source: MemorySource):
    serial = iter(range(10_000))

    def shop(request: Request) -> str:
        return html(
            "A shop.", [f"/shop?sid={next(serial):032x}", f"/shop?PHPSESSID={next(serial)}"]
        )

    site.write("/", links=["/shop"])
    site.render("/shop", shop)

    crawl(source)

    assert site.paths().count("/shop") == 1
    assert documents(source) == {"/", "/shop"}


def test_sessions_in_paths_are_left_after_a_while(site: Site, source: MemorySource):
    def page(request: Request) -> str:
        session = f"S{len(site.requests):012x}"
        name = request.path.rpartition("/")[2]
        return html(prose(name), [f"/{session}/{one}" for one in ("a", "b", "c")])

    site.render("/*", page)
    for path in ("/robots.txt", "/sitemap.xml"):
        site.status(path, 404)

    crawl(source)

    assert len(documents(source)) == 4
    assert "trap" in verdicts(source).values()
    assert len(site.pages()) < 400


def test_queries_that_say_nothing_new_are_left_after_a_while(site: Site, source: MemorySource):
    serial = iter(range(100_000))

    def page(_request: Request) -> str:
        return html("All the same.", [f"/list?token={next(serial)}" for _ in range(5)])

    site.write("/", links=["/list"])
    site.render("/list", page)

    crawl(source)

    assert len(site.requests) < 120
    assert "trap" in verdicts(source).values()
    assert documents(source) == {"/", "/list"}


def test_a_path_with_very_many_pages_is_no_trap(site: Site, source: MemorySource):
    site.write("/", links=[f"/item?id={n}" for n in range(150)])
    site.render("/item", lambda request: html(prose(request.path)))

    crawl(source)

    assert len(documents(source)) == 151


def test_parameters_in_another_order_are_the_same_page(site: Site, source: MemorySource):
    source.crawl_concurrency = 1
    site.write("/", links=["/list?a=1&b=2", "/list?b=2&a=1"])
    site.render("/list", lambda request: html(prose(request.path)))

    crawl(source)

    assert [path for path in site.paths() if path.startswith("/list")] == ["/list?a=1&b=2"]
    assert row(source, "/list?b=2&a=1").detail == site.url("/list?a=1&b=2")


def test_relative_links_that_pile_up_end(site: Site, source: MemorySource):
    site.write("/", links=["/a/"])
    site.render("/a/*", lambda request: html(prose(request.path), ["more/", "other/"]))

    crawl(narrowed(source, crawlDepth=8))

    assert verdicts(source)["/a/more/more/more/"] == "trap"
    assert "/a/more/more/more/" not in site.paths()
    assert len(site.requests) < 40


def test_addresses_that_no_index_takes_are_cut(site: Site, source: MemorySource):
    site.write("/", links=["/" + "x" * 3_000])

    crawl(source)
    again(source)

    [trap] = [one for one in source.rows.values() if one.verdict == "trap"]
    assert len(trap.id) < 300
    assert trap.url == site.url("/" + "x" * 3_000)
    assert trap.detail == "the address is longer than 2,048 characters"


def test_passwords_in_links_are_not_kept(site: Site, source: MemorySource):
    secret = f"http://me:secret@127.0.0.1:{site.port}/a"
    site.write("/", links=[secret])

    crawl(source)
    again(source)

    assert verdicts(source) == {"/": "document", f"http://…@127.0.0.1:{site.port}/a": "blocked"}
    assert "secret" not in str(source.rows)
    assert "/a" not in site.paths()


def test_there_is_an_end_to_the_addresses_of_a_site(
    site: Site, source: MemorySource, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_addresses, "MOST_URLS", 50)
    site.write("/", links=["/0/"])

    def deeper(request: Request) -> str:
        number = int(request.path.split("/")[1])
        return html(prose(request.path), [f"/{number * 10 + n}/" for n in range(1, 10)])

    site.render("/*", deeper)
    site.status("/robots.txt", 404)
    site.status("/sitemap.xml", 404)

    crawl(source)

    assert len(source.rows) == 51
    assert source.rows[site.url("/#more")].verdict == "limit"


# --- misbehaving pages ---------------------------------------------------------------------------


def test_every_misbehaviour_gets_its_answer_and_the_others_are_crawled(
    site: Site, source: MemorySource, small: Fetcher, hasty: Fetcher
):
    behaviours: dict[str, tuple[website.Behaviour, str]] = {
        "/silent": (website.never_answers, "error"),
        "/trickles": (website.trickled_body, "error"),
        "/cut": (website.promises_too_much, "error"),
        "/bomb": (website.gzip_bomb, "not_html"),
        "/huge": (website.announces_gigabytes, "too_large"),
        "/endless": (website.endless_body, "not_html"),
        "/babble": (website.endless_text, "too_large"),
        "/nested": (website.nested_gzip, "error"),
        "/resets": (website.resets, "error"),
        "/closes": (website.closes_at_once, "error"),
        "/headers": (website.endless_headers, "error"),
    }
    source.fetcher = Except(small, {"/silent", "/trickles"}, hasty)
    source.crawl_concurrency = 8
    site.write("/", links=[*behaviours, "/cyrillic", "/good"])
    site.write("/good")
    site.route("/cyrillic", website.wrong_charset)
    for path, (behaviour, _) in behaviours.items():
        site.route(path, behaviour)

    crawl(source)

    found = verdicts(source)
    assert {path: found[path] for path in behaviours} == {
        path: verdict for path, (_, verdict) in behaviours.items()
    }
    assert documents(source) == {"/", "/good", "/cyrillic"}


def test_cookies_are_neither_kept_nor_sent(site: Site, source: MemorySource):
    site.write("/", links=["/a"], headers={"Set-Cookie": "visitor=7; Path=/"})
    site.write("/a")

    crawl(source)

    assert all("cookie" not in request.headers for request in site.requests)


def test_an_error_that_stays_is_told_after_three_tries(site: Site, source: MemorySource):
    site.write("/", links=["/broken", "/a"])
    site.write("/a")
    site.status("/broken", 500)

    changes = crawl(source)

    [verdict] = [one for one in of_kind(changes, Verdict) if one.kind == "error"]
    assert verdict.failed
    assert "500" in str(verdict.detail)
    assert site.paths().count("/broken") == 3
    assert documents(source) == {"/", "/a"}


def test_an_error_that_passes_costs_nothing(site: Site, source: MemorySource):
    site.write("/", links=["/a"])
    site.write("/a")
    crawl(source, checkpoints=1)
    site.fail_next(502, times=2)

    crawl(source)

    assert documents(source) == {"/", "/a"}


@pytest.mark.parametrize("status", [202, 206, 401, 403, 451, 500, 503])
def test_a_page_that_answers_with_an_error_keeps_its_document(
    site: Site, source: MemorySource, status: int
):
    site.write("/", links=["/a"])
    site.write("/a", links=["https://example.com/far"])
    crawl(source)
    site.status("/a", status)

    again(source)
    again(source)

    assert documents(source) == {"/", "/a"}
    assert str(status) in str(row(source, "/a").detail)
    assert "https://example.com/far" in source.rows


# --- pace ----------------------------------------------------------------------------------------


def test_requests_keep_their_distance(site: Site, source: MemorySource):
    source.crawl_delay = FOREVER
    site.write("/", links=["/a", "/b"])
    site.write("/a")
    site.write("/b")

    crawl(source)

    assert source.pauses == [FOREVER] * (len(site.requests) - 1)


def test_crawls_of_one_site_keep_their_distance_together(site: Site, source: MemorySource):
    source.crawl_delay = FOREVER
    site.write("/", links=["/a", "/b"])
    site.write("/a")
    site.write("/b")
    of_others = replace(source, pauses=[], rows={}, items={})
    one = source.connector.changes(source, None)
    while not isinstance(next(one), Checkpoint):
        pass
    site.forget()

    crawl(of_others)

    assert of_others.pauses == [FOREVER] * len(site.requests), "before the first one, too"


def test_a_site_that_is_slow_to_answer_is_asked_less(site: Site, source: MemorySource):
    source.crawl_delay, source.crawl_concurrency = 0.001, 1
    site.write("/", links=["/slow", "/a", "/b"])
    site.write("/a")
    site.write("/b")

    def slow(exchange: Exchange) -> bool:
        exchange.pause(0.4)
        exchange.send(website.answer(200, html(prose("slow")).encode()))
        return True

    site.route("/slow", slow)
    began = monotonic()

    crawl(source)

    took = monotonic() - began
    assert 2 * 0.4 <= max(source.pauses) <= 2 * took, "twice as long as the answer took"


@pytest.mark.parametrize(("asked", "kept"), [(7, 7.0), (9_999, 30.0)])
def test_the_delay_that_robots_txt_asks_for_is_kept_within_reason(
    site: Site, source: MemorySource, asked: int, kept: float
):
    site.robots(f"User-agent: *\nCrawl-delay: {asked}")
    site.write("/", links=["/a", "/b"])
    site.write("/a")
    site.write("/b")

    crawl(source)

    assert len(source.pauses) >= 2
    assert min(source.pauses) == pytest.approx(kept), "longer only if answers are slow"
    assert max(source.pauses) <= 30.0


def test_as_many_requests_at_once_as_are_wanted_and_no_more(site: Site, source: MemorySource):
    source.crawl_concurrency = 3
    site.write("/", links=[f"/p/{n}" for n in range(9)])
    site.meeting("/p/*", 3)

    crawl(source)

    assert len(documents(source)) == 10


def test_one_request_at_a_time_where_the_site_asks_for_delay(site: Site, source: MemorySource):
    source.crawl_concurrency = 4
    site.robots("User-agent: *\nCrawl-delay: 1")
    site.write("/", links=[f"/p/{n}" for n in range(12)])
    site.render("/p/*", lambda request: html(prose(request.path)))

    crawl(source)

    assert len(documents(source)) == 13
    pages = [request for request in site.requests if request.path.startswith("/p/")]
    assert len({request.connection for request in pages}) == 1


def test_a_short_wait_that_the_site_asks_for_is_waited_in_place(site: Site, source: MemorySource):
    source.crawl_concurrency = 1
    site.write("/", links=["/a", "/b"])
    site.write("/a")
    site.write("/b")
    site.limit("/a", times=2, retry_after="4")

    crawl(source)

    assert site.pages() == ["/", "/a", "/a", "/a", "/b"]
    assert source.pauses == [4.0, 4.0]
    assert documents(source) == {"/", "/a", "/b"}


@pytest.mark.parametrize(
    ("times", "after", "seconds"),
    [(1, "600", 600), (1, "36000", 36_000), (9, "1", 1), (9, None, None)],
    ids=str,
)
def test_a_long_wait_parks_the_crawl_which_then_goes_on_where_it_was(
    site: Site, source: MemorySource, times: int, after: str | None, seconds: int | None
):
    source.crawl_concurrency = 1
    site.write("/", links=["/a", "/b", "/c"])
    for path in ("/a", "/b", "/c"):
        site.write(path)
    site.limit("/b", times=times, retry_after=after)

    with pytest.raises(Transient) as parked:
        crawl(source)
    site.write("/b")
    site.forget()
    source.since += timedelta(hours=1)
    crawl(source)

    assert parked.value.code == "rate_limited"
    assert parked.value.after == (None if seconds is None else timedelta(seconds=seconds))
    assert site.paths() == ["/c", "/b"]
    assert documents(source) == {"/", "/a", "/b", "/c"}


@pytest.mark.parametrize("after", [None, "600"])
@pytest.mark.parametrize("path", ["/a", "/sitemap.xml"])
def test_an_address_that_asks_for_a_pause_each_time_does_not_hold_up_the_rest(
    site: Site, source: MemorySource, path: str, after: str | None
):
    site.write("/", links=["/a", "/b", "/c"])
    for other in ("/b", "/c"):
        site.write(other)
    site.limit(path, times=1_000, retry_after=after)

    for _ in range(3):
        with suppress(Transient):
            crawl(source)

    assert documents(source) == {"/", "/b", "/c"}
    assert source.cursor == {}, "it ended"


def test_a_site_that_goes_down_meanwhile_parks_the_crawl(site: Site, source: MemorySource):
    paths = [f"/{n}" for n in range(12)]
    site.write("/", links=paths)
    for path in paths:
        site.write(path)
    crawl(source)
    site.write("/", "The start page changed.", links=paths)
    source.since += WEEK
    crawl(source, checkpoints=1)
    for path in (*paths, "/robots.txt"):
        site.status(path, 500)

    with pytest.raises(Transient) as parked:
        crawl(source)

    assert parked.value.code == "provider_unavailable"
    assert len(documents(source)) == 13
    for path in paths:
        site.write(path)
    site.robots("")
    crawl(source)
    assert len(documents(source)) == 13
    assert set(verdicts(source).values()) == {"document"}


# --- crawling again ------------------------------------------------------------------------------


def test_an_unchanged_site_answers_304_and_gets_no_new_version(site: Site, source: MemorySource):
    site.write("/", links=["/a", "/b", "https://example.com/far", "/none", "/c"])
    site.write("/a", links=["/d"], nofollow=["/secret"])
    site.write("/b", etag=False, head=_canonical("/a"))
    site.write("/c", prose("/d"))
    site.write("/d", modified=False)
    site.write("/none", head='<meta name="robots" content="noindex">')
    before = crawl(source)
    rows = verdicts(source)
    versions = {id: item.version for id, item in source.items.items()}
    site.forget()

    after = again(source)

    items = of_kind(after, Item)
    assert {item.id: item.version for item in items} == versions
    assert all(item.text is None for item in items), "nothing was read again"
    assert verdicts(source) == rows
    asked = [one for one in site.requests if one.path not in ("/robots.txt", "/sitemap.xml")]
    assert all({"if-none-match", "if-modified-since"} & set(one.headers) for one in asked)
    first = {item.id: item for item in of_kind(before, Item)}
    for item in items:
        assert (item.title, item.url, item.metadata) == (
            first[item.id].title,
            first[item.id].url,
            first[item.id].metadata,
        )


def test_a_page_without_validators_is_read_again_and_unchanged(site: Site, source: MemorySource):
    site.write("/", etag=False, modified=False)
    [first] = of_kind(crawl(source), Item)

    [second] = of_kind(again(source), Item)

    assert (second.id, second.version, second.detail) == (first.id, first.version, "the start page")


def test_an_edited_page_keeps_its_id_and_new_links_are_followed(site: Site, source: MemorySource):
    site.write("/", links=["/a"])
    site.write("/a", "What it said.")
    crawl(source)
    site.write("/a", "What it says now.", links=["/new"])
    site.write("/new")

    changes = again(source)

    items = {item.id: item for item in of_kind(changes, Item)}
    assert items[site.url("/a")].detail == "changed on 2026-01-08"
    assert "says now" in (items[site.url("/a")].text or "")
    assert documents(source) == {"/", "/a", "/new"}


def test_a_page_that_only_looks_different_has_the_same_version(site: Site, source: MemorySource):
    site.write("/", "The text.", etag=False, modified=False)
    [first] = of_kind(crawl(source), Item)
    site.write("/", "The text.", links=["/a"], title="New", etag=False, modified=False)
    site.write("/a")

    items = {item.id: item for item in of_kind(again(source), Item)}

    assert items[first.id].version == first.version
    assert items[first.id].title == "New"


@pytest.mark.parametrize("statuses", [(404, 404), (410, 410), (404, 410), (410, 404)])
def test_a_page_not_found_twice_loses_its_document(
    site: Site, source: MemorySource, statuses: tuple[int, int]
):
    site.write("/", links=["/a"])
    site.write("/a")
    crawl(source)
    site.status("/a", statuses[0])

    again(source)
    after_one = documents(source)
    site.status("/a", statuses[1])
    again(source)

    assert after_one == {"/", "/a"}
    assert documents(source) == {"/"}


@pytest.mark.parametrize("status", [404, 410])
def test_a_page_that_came_back_starts_anew(site: Site, source: MemorySource, status: int):
    site.write("/", links=["/a"])
    site.write("/a")
    crawl(source)
    site.status("/a", status)
    again(source)
    site.write("/a")
    again(source)
    site.status("/a", status)

    again(source)

    assert documents(source) == {"/", "/a"}


def dead_ends(site: Site) -> dict[str, str]:
    """Addresses that will not become documents, and what is said of them; linked from `/`."""
    site.page("/paper", b"%PDF-1.7", mime="application/pdf")
    site.route("/huge", website.announces_gigabytes)
    site.redirect("/left", "https://example.com/")
    site.status("/private", 403)
    site.status("/over", 410)
    found = {
        "/none": "error",
        "/over": "error",
        "/private": "error",
        "/paper": "not_html",
        "/huge": "too_large",
        "/left": "off_host",
    }
    site.write("/", links=[*found])
    return found


def test_dead_ends_are_asked_ever_more_seldom(site: Site, source: MemorySource):
    found = dead_ends(site)
    weeks: list[int] = []
    crawl(source)
    for week in range(1, 40):
        site.forget()
        again(source)
        asked = set(site.pages()) - {"/"}
        assert asked in (set(), set(found)), "they rest alike"
        if asked:
            weeks.append(week)
        assert {path: verdicts(source)[path] for path in found} == found

    assert weeks == [1, 3, 7, 15, 27, 39]
    asked_last = source.since.date()
    assert row(source, "/none").detail == (
        f"127.0.0.1 answered 404; not asked again before {asked_last + 12 * WEEK}"
    )


def test_a_crawl_by_hand_asks_dead_ends_too_and_lets_them_rest_no_longer(
    site: Site, source: MemorySource
):
    site.write("/", links=["/late", "/none"])
    crawl(source)
    again(source)
    source.asked = True
    for _ in range(5):
        site.forget()
        crawl(source)  # at once
        assert {"/late", "/none"} <= set(site.pages())
    assert row(source, "/none").extra["times"] == 2
    site.write("/late")

    crawl(source)

    assert "/late" in documents(source)
    source.asked = False
    site.forget()
    crawl(source)
    assert "/none" not in site.pages()


def test_a_dead_end_that_leads_somewhere_again_is_found_out(site: Site, source: MemorySource):
    site.write("/", links=["/late"])
    crawl(source)
    again(source)
    site.write("/late")

    again(source)
    assert documents(source) == {"/"}
    again(source)

    assert documents(source) == {"/", "/late"}
    assert "times" not in row(source, "/late").extra


def test_a_dead_end_that_says_something_else_is_asked_again_soon(site: Site, source: MemorySource):
    site.write("/", links=["/x"])
    crawl(source)
    site.status("/x", 410)
    again(source)
    site.forget()

    again(source)

    assert "/x" in site.pages()


@pytest.mark.parametrize(("modified", "asked"), [("2026-01-14", True), ("2025-12-01", False)])
def test_a_sitemap_that_tells_of_a_change_wakes_a_dead_end(
    site: Site, source: MemorySource, modified: str, asked: bool
):
    site.write("/", links=["/late"])
    site.sitemap("/sitemap.xml", [site.url("/late")], modified=modified)
    crawl(source)  # on January 1
    again(source)
    site.forget()

    again(source)

    assert ("/late" in site.pages()) == asked


def test_a_page_that_nobody_links_any_more_stays_while_it_answers(site: Site, source: MemorySource):
    site.write("/", links=["/a", "https://example.com/far"])
    site.write("/a")
    crawl(source)
    site.write("/", "No links here.")

    changes = again(source)

    assert of_kind(changes, Listed)
    assert documents(source) == {"/", "/a"}
    assert "https://example.com/far" not in source.rows


@pytest.mark.parametrize(
    "harm",
    [
        lambda site: site.status("/", 500),
        lambda site: site.route("/", website.never_answers),
        lambda site: site.redirect("/", "http://10.0.0.1/"),
    ],
    ids=["500", "hangs", "redirects inside"],
)
def test_an_unreachable_site_deletes_nothing(
    site: Site,
    source: MemorySource,
    fetcher: Fetcher,
    hasty: Fetcher,
    harm: Callable[[Site], None],
):
    site.write("/", links=["/a", "/b"])
    site.write("/a")
    site.write("/b")
    crawl(source)
    source.fetcher = Except(fetcher, {"/"}, hasty)
    site.forget()
    harm(site)
    site.status("/a", 404)
    site.status("/b", 410)

    changes = again(source)
    again(source)

    assert documents(source) == {"/", "/a", "/b"}
    assert len(of_kind(changes, Trouble)) == 1
    assert not of_kind(changes, Listed)
    assert set(site.paths()) == {"/robots.txt", "/"}


def test_a_server_that_is_gone_deletes_nothing(
    site: Site, source: MemorySource, sandbox: Sandbox, fetcher: Fetcher
):
    site.write("/", links=["/a"])
    site.write("/a")
    crawl(source)
    site.__exit__()

    changes = again(source)

    assert documents(source) == {"/", "/a"}
    assert of_kind(changes, Trouble)[0].code == "provider_unavailable"


def test_a_start_page_that_is_not_found_does_not_stop_the_rest(site: Site, source: MemorySource):
    site.write("/", links=["/a"])
    site.write("/a")
    crawl(source)
    site.status("/", 404)
    site.write("/a", "Edited.")

    changes = again(source)

    assert of_kind(changes, Trouble)[0].code == "start_page"
    assert [item.detail for item in of_kind(changes, Item)] == ["changed on 2026-01-08"]
    assert documents(source) == {"/", "/a"}


def test_a_page_that_moved_keeps_its_document(site: Site, source: MemorySource):
    source.limit = 3
    site.write("/", links=["/old", "/b"])
    site.write("/old", prose("story"))
    site.write("/b")
    crawl(source)
    site.redirect("/old", "/new", status=301)
    site.write("/new", prose("story"))

    changes = again(source)

    moved = {item.id: item for item in of_kind(changes, Item)}[site.url("/new")]
    assert moved.formerly == site.url("/old")
    assert documents(source) == {"/", "/new", "/b"}
    assert row(source, "/old").verdict == "redirect"


def test_a_redirect_to_something_else_has_to_be_seen_twice(site: Site, source: MemorySource):
    site.write("/", links=["/a", "/b"])
    site.write("/a")
    site.write("/b")
    crawl(source)
    for path in ("/a", "/b"):
        site.redirect(path, "/maintenance")
    site.write("/maintenance", "Back soon.")

    again(source)
    kept = documents(source)
    again(source)

    assert kept == {"/", "/a", "/b", "/maintenance"}
    assert documents(source) == {"/", "/maintenance"}


@pytest.mark.parametrize("text", ["Back soon.", ""], ids=["notice", "nothing"])
def test_a_site_that_shows_one_notice_everywhere_loses_nothing_at_once(
    site: Site, source: MemorySource, text: str
):
    paths = ("/", "/a", "/b")
    for path in paths:
        site.write(path, links=["/a", "/b"])
    crawl(source)
    for path in paths:
        site.write(path, text)
    again(source)
    kept = documents(source)
    for path in paths:
        site.write(path, links=["/a", "/b"])

    again(source)

    assert kept == documents(source) == {"/", "/a", "/b"}
    told = {str(item.detail).partition(" on ")[0] for item in source.items.values()}
    assert told <= {"the start page", "found", "changed"}, "nothing is left of the notice"


def _to_login(site: Site, path: str) -> None:
    site.redirect(path, f"/login?next={path}")
    site.write(f"/login?next={path}", "Who are you?")


ONE_PAGE: dict[str, Callable[[Site, str], None]] = {
    "login": lambda site, path: site.redirect(path, "/login"),
    "login and back": _to_login,
    "notice": lambda site, path: site.write(path, "Back soon."),
    "notice that names the page": lambda site, path: site.write(
        path, f"Please sign in to see {path}. Request {len(path) * 7} was refused.", etag=False
    ),
    "long notice": lambda site, path: site.write(
        path, f"{' '.join(WORDS.split() * 9)}. You asked for {path} at 10:0{len(path)}."
    ),
}


@pytest.mark.parametrize("answer", ONE_PAGE)
@pytest.mark.parametrize("checkpoints", [None, 3], ids=["in one go", "killed meanwhile"])
def test_a_site_of_which_most_leads_to_one_page_says_so_and_keeps_its_documents(
    site: Site, source: MemorySource, answer: str, checkpoints: int | None
):
    paths = ["/", *(f"/p{number}" for number in range(110))]
    site.write("/login", "Who are you?")
    for path in paths:
        site.write(path, links=paths)
    healthy = of_kind(crawl(source), Trouble)
    texts = {path: source.items[site.url(path)].version for path in paths}
    for path in paths:
        ONE_PAGE[answer](site, path)

    source.since += WEEK
    stored = crawl(source, checkpoints=checkpoints)
    if checkpoints is not None:
        assert not of_kind(stored, Trouble), "it was killed before its end"
        stored = crawl(source)

    assert healthy == []
    [told] = of_kind(stored, Trouble)
    assert told.code == "one_page"
    assert "login page" in told.message
    assert documents(source) >= set(paths)
    changed = [path for path in paths if source.items[site.url(path)].version != texts[path]]
    assert len(changed) <= (0 if checkpoints is None else 2)
    assert not of_kind(stored, Listed)
    for path in paths:
        site.write(path, links=paths)
    recovered = again(source)
    assert not of_kind(recovered, Trouble)
    assert of_kind(recovered, Listed)
    assert {path: source.items[site.url(path)].version for path in paths} == texts


def _signs_in(site: Site, path: str) -> None:
    site.write(path, f"Please sign in to see {path}.")


def test_a_notice_on_some_pages_is_told_and_taken_for_their_text_when_seen_twice(
    site: Site, source: MemorySource
):
    pages = [f"/p{number}" for number in range(12)]
    site.write("/", links=pages)
    for path in pages:
        site.write(path)
    crawl(source)
    site.write("/", prose("/"), links=[*pages, "/new"])
    for path in [*pages[:4], "/new"]:
        _signs_in(site, path)

    texts = {id: item.version for id, item in source.items.items()}
    first = again(source)
    kept = {id: item.version for id, item in source.items.items()}
    second = again(source)
    replaced = {id for id, item in source.items.items() if item.version != texts.get(id)}
    third = again(source)

    assert [trouble.code for trouble in of_kind(first, Trouble)] == ["one_page"]
    assert kept == texts
    assert "/new" not in {urlsplit(item.id).path for item in of_kind(first, Item)}
    assert [trouble.code for trouble in of_kind(second, Trouble)] == ["one_page"]
    assert replaced == {site.url(path) for path in pages[:4]}
    assert not of_kind(third, Trouble)
    assert "/new" in documents(source), "by then it may be the form of these pages"


def test_pages_addressed_by_queries_may_show_one_notice_too(site: Site, source: MemorySource):
    pages = [f"/index.php?page={number}" for number in range(5)]
    site.write("/", links=pages)
    told = {"text": ""}
    site.render("/index.php", lambda request: html(told["text"] or prose(request.path)))
    crawl(source)
    told["text"] = "Back soon."

    [trouble] = of_kind(again(source), Trouble)

    assert trouble.code == "one_page"
    assert all("Back" not in str(item.text) for item in source.items.values())


def _shop(site: Site, prices: int) -> None:
    pages = [f"/product/{number}" for number in range(30)]
    for number, path in enumerate(["/", *pages]):
        text = f"Widget {number} costs {prices + number} euros and is there in three days."
        site.write(path, text, links=pages)


SLUGS = [
    "/",
    "/about-us",
    "/how-we-built-it",
    "/docs/api-reference",
    "/page",
    "/account",
    "/de/hilfe",
]


def test_a_notice_is_found_whatever_words_the_addresses_share_with_it(
    site: Site, source: MemorySource
):
    for path in SLUGS:
        site.write(path, links=SLUGS)
    crawl(source)
    texts = {id: item.version for id, item in source.items.items()}
    for number, path in enumerate(SLUGS):
        name = path.rpartition("/")[2].replace("-", " ").title() or "Home"
        site.write(
            path,
            f"The page {name} needs an account. You asked us for {site.url(path)}, no. {number}. If"
            " it is a mistake, write to help@acme.example and name the reference.",
            title=f"{name} | Sign in",
        )

    [trouble] = of_kind(again(source), Trouble)

    assert trouble.code == "one_page"
    assert {id: item.version for id, item in source.items.items()} == texts


UNSPACED: dict[str, tuple[list[str], list[str], str]] = {
    "Chinese": (
        ["铜灯笼", "亚麻衬衫", "玻璃花瓶", "橡木桌"],
        ["从前人们用它照明", "夏天穿着非常凉爽", "插上鲜花放在窗边", "全家人围坐着吃饭"],
        "请登录后查看{name}的页面，如果没有帐号请先注册。",
    ),
    "Japanese": (
        ["銅のランタン", "麻のシャツ", "ガラスの花瓶", "樫の机"],
        ["昔の人は灯りに使った", "夏に着ると涼しい", "花を生けて窓辺に置く", "家族で食事をする"],
        "{name}を見るにはログインしてください。会員登録は無料です。",
    ),
    "Thai": (
        ["ตะเกียงทองเหลือง", "เสื้อผ้าลินิน", "แจกันแก้ว", "โต๊ะไม้โอ๊ค"],
        ["ใช้ส่องสว่างในอดีต", "ใส่สบายในฤดูร้อน", "วางดอกไม้ริมหน้าต่าง", "ครอบครัวนั่งกินข้าว"],
        "กรุณาเข้าสู่ระบบเพื่อดู{name}หรือสมัครสมาชิกใหม่",
    ),
}


@pytest.mark.parametrize("language", UNSPACED)
def test_a_notice_that_names_the_page_is_found_where_words_have_no_spaces(
    site: Site, source: MemorySource, language: str
):
    names, texts, notice = UNSPACED[language]
    paths = [f"/p{number}" for number in range(len(names))]
    site.write("/", links=paths)
    for path, name, text in zip(paths, names, texts, strict=True):
        site.write(path, f"{name}{text}。", title=name)
    crawl(source)
    before = {id: item.version for id, item in source.items.items()}
    for path, name in zip(paths, names, strict=True):
        site.write(path, notice.format(name=name), title=name)

    [trouble] = of_kind(again(source), Trouble)

    assert trouble.code == "one_page"
    assert {id: item.version for id, item in source.items.items()} == before


@pytest.mark.parametrize("language", UNSPACED)
def test_a_changed_sentence_is_no_notice_where_words_have_no_spaces(
    site: Site, source: MemorySource, language: str
):
    names, texts, notice = UNSPACED[language]
    paths = [f"/p{number}" for number in range(len(names))]
    site.write("/", links=paths)
    about = notice.format(name="。".join(names[1:] + texts[1:]))
    for changing in ([name[::-1] for name in names], texts[:1] * len(names)):
        for path, name, text in zip(paths, names, changing, strict=True):
            site.write(path, f"{name}{about}{text}", title=name)
        changes = again(source)

    assert not of_kind(changes, Trouble)
    assert all(texts[0] in str(source.items[site.url(path)].text) for path in paths)


@pytest.mark.parametrize("where", ["/{language}/{n}", "/{n}.{language}"], ids=["apart", "in turn"])
def test_notices_in_many_languages_are_all_held(site: Site, source: MemorySource, where: str):
    words = WORDS.split() * 2
    pages = {
        where.format(language=language, n=n): " ".join(words[first : first + 9])
        for first, language in enumerate("abcdefghijklmnopqrstuvwx")
        for n in range(4)
    }
    site.write("/", links=list(pages))
    for path in pages:
        site.write(path)
    crawl(source)
    before = {id: item.version for id, item in source.items.items()}
    for path, notice in pages.items():
        site.write(path, f"{notice}, for {path}")

    [trouble] = of_kind(again(source), Trouble)

    assert trouble.message.startswith("96 of 97 pages")
    assert {id: item.version for id, item in source.items.items()} == before


def test_of_a_hostile_page_a_bounded_number_of_words_is_kept_in_mind():
    characters = random.Random(1).choices(range(0x4E00, 0x9FFF), k=500_000)

    assert len(word_hashes("".join(map(chr, characters)))) <= 200_000


def test_a_banner_longer_than_the_pages_is_no_notice(site: Site, source: MemorySource):
    names = ["Brass lantern", "Copper kettle", "Oak table", "Silver spoon", "Wool blanket"]
    paths = [f"/p{number}" for number in range(len(names))]
    site.write("/", links=paths)
    banner = "Shipping costs nothing until the end of the year, for all that you order from us. "
    for above in ("", banner):
        for path, name in zip(paths, names, strict=True):
            site.write(path, f"{above}{name}, by hand.", title=name)
        changes = again(source)

    assert not of_kind(changes, Trouble)
    assert all("costs nothing" in str(source.items[site.url(path)].text) for path in paths)


def test_a_banner_on_pages_of_numbers_is_no_notice(site: Site, source: MemorySource):
    pages = [f"/p{number}" for number in range(8)]
    for banner in ("", "Version two is out, read what is new. "):
        for number, path in enumerate(["/", *pages]):
            table = " ".join(f"{number}.{row}" for row in range(60))
            site.write(path, banner + table, links=pages)
        changes = again(source)

    assert not of_kind(changes, Trouble)
    assert {str(item.text)[:7] for item in source.items.values()} == {"Version"}


def test_products_that_are_all_sold_out_are_no_notice(site: Site, source: MemorySource):
    pages = [f"/p{number}" for number in range(8)]
    about = "The lantern of brass gives light for a long evening and costs 30 euros."
    site.write("/", links=pages)
    for told in (["In stock.", "Sold out.", "Few are left.", "To be ordered."], ["Sold out."]):
        for number, path in enumerate(pages):
            site.write(path, f"{about} {told[number % len(told)]} Number {number}.", links=pages)
        changes = again(source)

    assert not of_kind(changes, Trouble)


def test_pages_of_one_form_may_change_together(site: Site, source: MemorySource):
    _shop(site, 10)
    crawl(source)
    _shop(site, 50)

    changes = again(source)

    assert not of_kind(changes, Trouble)
    assert "80 euros" in str(source.items[site.url("/product/29")].text)


@pytest.mark.parametrize("answer", ["login", "notice"])
def test_what_has_long_led_to_one_page_is_told_once_where_there_are_others(
    site: Site, source: MemorySource, answer: str
):
    pages = [f"/p{number}" for number in range(9)]
    site.write("/", links=[*pages, "/a"])
    site.write("/a")
    site.write("/login", "Who are you?")
    for path in pages:
        ONE_PAGE[answer](site, path)

    first, second = crawl(source), again(source)

    assert [trouble.code for trouble in of_kind(first, Trouble)] == ["one_page"]
    assert not of_kind(second, Trouble)
    assert of_kind(second, Listed)


def test_a_site_of_which_nothing_but_a_login_page_is_left_says_so_each_time(
    site: Site, source: MemorySource
):
    pages = ["/", "/a", "/b", "/c"]
    site.sitemap("/sitemap.xml", [site.url(path) for path in pages])
    site.write("/login", "Who are you?")
    for path in pages:
        site.redirect(path, "/login")

    told = [of_kind(crawl(source), Trouble), of_kind(again(source), Trouble)]

    assert [trouble.code for [trouble] in told] == ["one_page", "one_page"]


def test_pages_that_were_given_up_do_not_hide_a_login_page(site: Site, source: MemorySource):
    old = [f"/old/{number}" for number in range(9)]
    pages = [f"/p{number}" for number in range(4)]
    site.write("/", links=[*old, *pages])
    for path in old:
        site.redirect(path, "/")
    for path in pages:
        site.write(path)
    crawl(source)
    for path in pages:
        site.redirect(path, "/login")
    site.write("/login", "Who are you?")

    assert [trouble.code for trouble in of_kind(again(source), Trouble)] == ["one_page"]


def test_a_first_crawl_that_sees_only_a_login_page_says_so(site: Site, source: MemorySource):
    site.sitemap("/sitemap.xml", [site.url(path) for path in ("/", "/a", "/b", "/c")])
    site.write("/login", "Who are you?")
    for path in ("/", "/a", "/b", "/c"):
        site.redirect(path, "/login")

    [told] = of_kind(crawl(source), Trouble)

    assert told.message.startswith(f"4 of 5 pages redirect to {site.url('/login')}")


def test_pages_that_a_site_gave_up_may_redirect_to_its_start(site: Site, source: MemorySource):
    site.write("/", links=["/old", "/older", "/oldest"])
    for path in ("/old", "/older", "/oldest"):
        site.redirect(path, "/")

    assert not of_kind(crawl(source), Trouble)


NOTICES: dict[str, Callable[[Site, str], None]] = {
    "json": lambda site, path: site.page(path, "{}", mime="application/json"),
    "too large": lambda site, path: site.page(path, html("x" * 200_000)),
    "noindex": lambda site, path: site.write(
        path, f"Back soon {path}.", head='<meta name="robots" content="noindex">'
    ),
    "canonical": lambda site, path: site.write(path, "Log in.", head=_canonical("/login")),
    "redirect": lambda site, path: site.redirect(path, "/login"),
    "abroad": lambda site, path: site.redirect(path, f"http://localhost:{site.port}/login"),
}


@pytest.mark.parametrize("notice", NOTICES)
def test_what_may_be_a_passing_matter_takes_documents_only_when_seen_twice(
    site: Site, source: MemorySource, small: Fetcher, notice: str
):
    source.fetcher = small
    site.write("/", links=["/a", "/b"])
    site.write("/login", "Who are you?")
    for path in ("/a", "/b"):
        site.write(path)
    crawl(source)
    for path in ("/a", "/b"):
        NOTICES[notice](site, path)

    again(source)
    kept = documents(source) - {"/login"}
    again(source)

    assert kept == {"/", "/a", "/b"}
    assert documents(source) - {"/login"} == {"/"}


def test_a_page_that_asks_not_to_be_indexed_any_more_is_obeyed_at_once(
    site: Site, source: MemorySource
):
    site.write("/", links=["/a"])
    site.write("/a")
    crawl(source)
    site.write("/a", head='<meta name="robots" content="noindex">')

    again(source)

    assert documents(source) == {"/"}


@pytest.mark.parametrize("killed", [0, 1], ids=["in one go", "killed meanwhile"])
def test_a_site_that_asks_as_a_whole_not_to_be_indexed_is_obeyed_when_it_does_so_twice(
    site: Site, source: MemorySource, killed: int
):
    paths = ["/", *(f"/p{number}" for number in range(8 + 40 * killed))]
    for path in paths:
        site.write(path, links=paths)
    crawl(source)
    for path in paths:
        site.write(path, links=paths, headers={"X-Robots-Tag": "noindex"})

    source.since += WEEK
    for _ in range(killed):
        crawl(source, checkpoints=3)
    crawl(source)
    kept = documents(source)
    again(source)
    again(source)  # the source of these tests forgets at a kill what waits

    assert len(kept) == len(paths) - 2
    assert documents(source) == set()
    for path in paths:
        site.write(path, links=paths)
    again(source)
    assert documents(source) == set(paths), "the header ended, and nothing else changed"


def test_a_start_page_that_is_no_html_stops_the_crawl(site: Site, source: MemorySource):
    site.write("/", links=["/a"])
    site.write("/a")
    crawl(source)
    site.page("/", "{}", mime="application/json")
    site.forget()

    changes = again(source)
    again(source)

    assert of_kind(changes, Trouble)[0].code == "start_page"
    assert documents(source) == {"/", "/a"}
    assert "/a" not in site.paths()


def test_pages_that_have_become_the_same_are_one_document_after_two_looks(
    site: Site, source: MemorySource
):
    source.crawl_concurrency = 1
    site.write("/", links=["/a", "/b"])
    site.write("/a")
    site.write("/b")
    crawl(source)
    site.write("/a", prose("the same"))
    site.write("/b", prose("the same"))

    again(source)
    after_one = documents(source)
    again(source)

    assert after_one == {"/", "/a", "/b"}
    assert len(documents(source)) == 2


def test_pages_that_swap_their_texts_both_stay(site: Site, source: MemorySource):
    site.write("/", links=["/a", "/b"])
    site.write("/a", prose("one"))
    site.write("/b", prose("two"))
    crawl(source)
    site.write("/a", prose("two"))
    site.write("/b", prose("one"))

    again(source)

    assert documents(source) == {"/", "/a", "/b"}


def test_a_duplicate_takes_the_place_of_its_original(site: Site, source: MemorySource):
    source.crawl_concurrency = 1
    site.write("/", links=["/a", "/b"])
    site.write("/a", prose("story"))
    site.write("/b", prose("story"), headers={"X-Copy": "1"})
    crawl(source)
    assert verdicts(source)["/b"] == "duplicate"
    site.write("/a", prose("another story"))

    again(source)

    assert documents(source) == {"/", "/a", "/b"}


def test_a_document_that_a_user_deleted_does_not_need_room_or_a_new_version(
    site: Site, source: MemorySource
):
    site.write("/", links=["/a"])
    site.write("/a")
    crawl(source)
    id = site.url("/a")
    source.rows[id] = replace(source.rows[id], verdict="deleted", version=None, document_id=None)
    del source.items[id]
    source.limit = 1

    changes = again(source)

    assert id in {item.id for item in of_kind(changes, Item)}


def test_another_start_url_ends_the_crawl_that_was_under_way(site: Site, source: MemorySource):
    site.write("/", links=["/a"])
    site.write("/a")
    site.write("/other", links=["/b"])
    site.write("/b")
    crawl(source, checkpoints=1)
    base = source.metadata["startUrl"]
    source.metadata = {"startUrl": site.url("/other")}
    source.since += WEEK

    changes = crawl(source)

    assert isinstance(changes[0], Listing)
    source.metadata = {"startUrl": base}
    assert {"/other", "/b"} <= documents(source)


@pytest.mark.parametrize(
    "cursor", [{}, {"v": 99}, {"start": 1}, {"start": "http://x/", "started": "yesterday"}], ids=str
)
def test_a_cursor_of_another_shape_means_from_the_beginning(
    site: Site, source: MemorySource, cursor: dict[str, Any]
):
    site.write("/")
    source.cursor = {**cursor, "start": site.url("/")} if "started" in cursor else cursor

    changes = crawl(source)

    assert isinstance(changes[0], Listing)
    assert documents(source) == {"/"}


# --- stopping and going on -----------------------------------------------------------------------


def _web(site: Site, pages: int) -> None:
    """Each page links the next ten."""
    for n in range(pages):
        below = range(n * 10 + 1, min(n * 10 + 11, pages))
        site.write(f"/{n or ''}", links=[f"/{m}" for m in below])


def test_a_killed_crawl_goes_on_where_it_was(site: Site, source: MemorySource):
    source.crawl_concurrency = 1
    _web(site, 111)
    kills = 0
    while True:
        changes = crawl(source, checkpoints=2)
        if any(isinstance(change, Listed) for change in changes):
            break
        kills += 1

    assert kills >= 3
    assert len(documents(source)) == 111
    fetched = site.pages()
    assert len(set(fetched)) == 111
    assert len(fetched) <= 111 + kills, "at most what was in flight is fetched twice"
    assert site.paths().count("/robots.txt") == 1
    assert site.paths().count("/sitemap.xml") == 1


@pytest.mark.parametrize("changes", [1, 150, 199, 205, 330, 480, 620])
def test_nothing_is_lost_wherever_a_crawl_is_killed(
    site: Site, source: MemorySource, changes: int, monkeypatch: pytest.MonkeyPatch
):
    """By day a quarter of everything."""
    part = examples(change=4, night=1)
    for name in ("BATCH", "SAID", "MOST_ROWS"):
        monkeypatch.setattr(_crawl, name, getattr(_crawl, name) // part)
    together, many = runs.BATCH // part, 240 // part
    source.limit = 300
    hub = [f"/hub/{n}" for n in range(many)]
    site.write("/", links=["/few", "/many", "https://example.com/far"])
    site.write("/few", links=["/few/1", "/few/2"])
    site.write("/few/1", links=["/few/3"])
    site.write("/few/2")
    site.write("/few/3")
    site.write("/many", links=[*hub, *(f"https://example.com/{n}" for n in range(many))])
    site.render("/hub/*", lambda request: html(prose(request.path, 10)))

    crawl(source, changes=max(1, changes // part), together=together)
    crawl(source, together=together)

    assert documents(source) == {"/", "/few", "/few/1", "/few/2", "/few/3", "/many", *hub}
    assert len(source.rows) == 6 + many + many + 1
    assert len(site.pages()) <= 6 + many + 20 // part + 5


def test_a_killed_recrawl_goes_on_where_it_was(site: Site, source: MemorySource):
    source.crawl_concurrency = 1
    _web(site, 120)
    crawl(source)
    site.forget()
    source.since += WEEK
    heard = crawl(source, checkpoints=3)

    heard += crawl(source)

    assert sum(isinstance(change, Listing) for change in heard) == 1
    assert sum(isinstance(change, Listed) for change in heard) == 1
    assert len({item.id for item in of_kind(heard, Item)}) == 120
    assert len(site.pages()) <= 121


def test_checkpoints_come_every_twenty_pages_and_are_small(site: Site, source: MemorySource):
    _web(site, 111)

    changes = crawl(source)

    checkpoints = of_kind(changes, Checkpoint)
    assert len(checkpoints) >= 111 // 20
    assert all(len(str(one.cursor)) < 1_000 for one in checkpoints)
    planned = {one.id for one in of_kind(changes, Verdict) if one.kind == "planned"}
    assert planned
    assert "planned" not in verdicts(source).values()


def test_a_deleted_connection_stops_requests_at_once(site: Site, source: MemorySource):
    source.crawl_concurrency = 1
    _web(site, 60)
    changes = source.connector.changes(source, None)
    for change in changes:
        if isinstance(change, Item):
            break
    asked = len(site.requests)
    source.stopped = True

    with pytest.raises(LeaseLost):
        list(changes)

    assert len(site.requests) <= asked + 1


@pytest.mark.parametrize("path", ["/robots.txt", "/", "/silent"])
def test_a_crawl_that_waits_for_an_answer_notices_that_it_is_to_stop(
    site: Site, source: MemorySource, path: str
):
    asked = threading.Event()

    def silent(exchange: Exchange) -> None:
        asked.set()
        exchange.silence()

    def stop_when_asked() -> None:
        asked.wait()
        source.stopped = True

    site.write("/", links=["/silent"])
    site.route(path, silent)
    watcher = threading.Thread(target=stop_when_asked)
    watcher.start()

    with (
        Fetcher(user_agent="x", allow_networks=[LOOPBACK], limits=PATIENT) as source.fetcher,
        pytest.raises(LeaseLost),
    ):
        crawl(source)

    watcher.join()
    assert site.paths()[-1] == path


# --- a page by itself ----------------------------------------------------------------------------


def _remembered(source: MemorySource, path: str) -> Remembered:
    crawl(source)
    return row(source, path)


def test_a_page_can_be_fetched_again_by_itself(site: Site, source: MemorySource):
    site.write("/", "What it says.", title="Start")
    known = _remembered(source, "/")

    extracted = source.connector.fetch(source, known)

    assert isinstance(extracted, Extracted)
    assert (extracted.title, extracted.kind) == ("Start", "webpage")
    assert "What it says." in extracted.text


def test_pages_that_are_fetched_by_themselves_keep_the_pace(site: Site, source: MemorySource):
    site.write("/")
    known = _remembered(source, "/")
    source.crawl_delay = 3.0

    for _ in range(3):
        source.connector.fetch(source, known)

    assert source.pauses == [3.0, 3.0]


@pytest.mark.parametrize(
    ("status", "told", "seconds"),
    [(429, "7", 7), (429, None, 60), (429, "0", 60), (503, "36000", 36_000)],
)
def test_a_limit_of_a_page_that_is_fetched_by_itself_is_one_of_the_site(
    site: Site, source: MemorySource, status: int, told: str | None, seconds: int
):
    site.write("/")
    known = _remembered(source, "/")
    site.fail_next(status, retry_after=told)

    with pytest.raises(Transient) as caught:
        source.connector.fetch(source, known)

    assert (caught.value.code, caught.value.after) == ("rate_limited", timedelta(seconds=seconds))


def test_a_page_that_cannot_be_fetched_by_itself_says_why(site: Site, source: MemorySource):
    site.write("/")
    known = _remembered(source, "/")

    for path_status in (404, 410):
        site.status("/", path_status)
        with pytest.raises(NotFoundError):
            source.connector.fetch(source, known)
    site.redirect("/", "/elsewhere")
    with pytest.raises(NotFoundError, match="redirects"):
        source.connector.fetch(source, known)
    site.page("/", b"%PDF-1.7", mime="application/pdf")
    with pytest.raises(Permanent):
        source.connector.fetch(source, known)
    site.status("/", 500)
    with pytest.raises(Transient):
        source.connector.fetch(source, known)


def test_ports_of_the_host_have_rules_of_their_own(site: Site, source: MemorySource):
    with Site() as other:
        other.robots("User-agent: *\nDisallow: /shut")
        site.write("/", links=[other.url("/open"), other.url("/shut")])
        other.write("/open")
        other.write("/shut")

        crawl(source)

    assert source.rows[other.url("/open")].verdict == "document"
    assert source.rows[other.url("/shut")].verdict == "robots"


def test_a_bad_page_of_the_sandbox_is_an_error_of_that_page(
    site: Site, source: MemorySource, sandbox: Sandbox
):
    def survey(blob: Blob):
        if str(blob.url).endswith("/bad"):
            raise Permanent("it chokes the parser", code="extraction_timeout")
        return sandbox.survey(blob, owner="tests")

    source.surveyor = survey
    site.write("/", links=["/bad", "/a"])
    site.write("/bad")
    site.write("/a")

    crawl(source)

    assert (row(source, "/bad").verdict, row(source, "/bad").detail) == (
        "error",
        "it chokes the parser",
    )
    assert documents(source) == {"/", "/a"}
