"""The web crawler: every page of one host, as its robots.txt, its pages and its limits allow.

What was seen and what is still to be seen are rows of the connection, so that a crawl goes on
where it was killed and every address has an answer. Redirects are links: each address is judged,
fetched and remembered by itself. Pages arrive in threads; everything else happens in the caller's.
"""

import base64
import hashlib
import zlib
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from time import monotonic
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from recollect.connectors import _urls
from recollect.connectors._api import LONGEST_PAUSE, PROVIDER_UNAVAILABLE, RATE_LIMITED, TRIES
from recollect.connectors._robots import Robots, header_directives
from recollect.connectors.base import (
    Change,
    Checkpoint,
    Connector,
    Cursor,
    Gone,
    Item,
    Listed,
    Listing,
    Missing,
    Source,
    Trouble,
    Verdict,
)
from recollect.errors import BadRequestError, Issue, NotFoundError, Permanent, Transient
from recollect.fetch import Fetched, Fetcher, parse_url
from recollect.model import Blob, Extracted, Link, Plan, Remembered, WebPage

AGENT = "RecollectBot"
"""what robots.txt and pages call us"""
DEPTH = 20
"""links from the start page, if the metadata does not say"""
MOST_URLS = 100_000
"""addresses of one site that are kept in mind"""
MOST_ABROAD = 1_000
"""addresses of other hosts that are noted; after that, as many hosts"""
MOST_HOPS = 10
"""redirects and canonical links in a row"""
MOST_ORIGINS = 8
"""ports and schemes of the host"""
MOST_SITEMAPS = 50
LONGEST_DELAY = 30.0
"""seconds that a Crawl-delay is honoured"""
ROBOTS_AGE = timedelta(hours=24)
"""RFC 9309 2.4"""
ROBOTS_KEPT = 32_000
"""bytes of a robots.txt that the cursor carries; a longer one is fetched again"""
BATCH = 20
"""pages between checkpoints"""
SAID = 100
"""rows after which there is one anyway"""
MOST_ROWS = 190
"""rows between checkpoints. A sync may store more at a time than that without one, and then nothing
must stand before what it leads to: see `_Crawl._read`"""
STREAK = 5
"""failures in a row after which the site is asked whether it is there"""
TICK = 0.5
"""seconds between looks whether to go on"""
NEAR = 10
"""bits of 256 in which the fingerprints of texts differ that are nearly the same"""
FEWEST_WORDS = 48
"""of a text whose fingerprint says anything"""

MASK = "…@"
"""instead of the user name and password in an address"""

PLANNED = "planned"
DOCUMENTS = frozenset({"document", "deleted"})
"""verdicts on rows that are documents, or were until a user deleted them"""
LEADING = DOCUMENTS | {"canonical", "duplicate", "near_duplicate"}
"""verdicts that lead to a document, there or elsewhere"""
QUIET = frozenset({"off_host", "nofollow"})
"""verdicts that say nothing but that a link is there"""
DENIED = frozenset({"not_html", "noindex", "empty"})
"""verdicts that stay as they are while the page does"""
DOUBTFUL = frozenset(
    {"not_html", "too_large", "empty", "duplicate", "canonical", "redirect", "noindex"}
)
"""verdicts that a notice of maintenance, or a login page in between, gives to every page: documents
go when they are said a second time"""


class WebCrawler(Connector):
    """Metadata: `startUrl`; `crawlDepth` (or `depth`), `includePatterns` and `excludePatterns`
    (texts with `*`, several with commas or line ends between them) narrow the crawl."""

    provider = "web-crawler"
    name = "Web crawler"
    plans = frozenset({Plan.SCALE, Plan.ENTERPRISE})
    interval = timedelta(days=7)

    def check(self, metadata: Mapping[str, Any], fetcher: Fetcher) -> dict[str, Any]:
        scope = Scope.of(metadata)
        verdict = fetcher.check(scope.start)
        # A name that cannot be looked up now may be right; the crawl tells.
        if not verdict.allowed and (verdict.addresses or not _may_be_public(scope.start)):
            raise _wrong("startUrl", verdict.reason)
        return {**metadata, "startUrl": metadata["startUrl"].strip()}

    def changes(self, source: Source, cursor: Cursor | None) -> Iterator[Change]:
        crawl = _Crawl(source, cursor)
        try:
            yield from crawl.run()
        finally:
            crawl.close()

    def fetch(self, source: Source, item: Remembered) -> Blob | Extracted:
        """A page whose text was not kept when it was listed."""
        answer = _get(source.fetcher, item.id, {}, _stop)
        match answer:
            case Fetched() if _is_html(answer):
                return source.survey(_blob(answer)).extracted
            case Fetched():
                raise Permanent(f"{item.id} is no HTML page any more", code="unsupported_kind")
            case _Redirected():
                raise NotFoundError("Not found", f"{item.id} redirects to {answer.target}")
            case Permanent(code="http_404" | "http_410"):
                raise NotFoundError("Not found", str(answer)) from answer
            case _:
                raise answer


# --- what to crawl -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scope:
    start: str
    """normalised"""
    host: str
    depth: int
    narrowed: bool
    """whether the caller chose the depth"""
    include: Sequence[str]
    exclude: Sequence[str]

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> Self:
        """Raises BadRequestError."""
        given = metadata.get("startUrl")
        if not isinstance(given, str) or not given.strip():
            raise _wrong("startUrl", "required: the http(s) URL where the crawl begins")
        try:
            start = _urls.normalise(given)
        except ValueError as error:
            raise _wrong("startUrl", str(error)) from error
        if (reason := _urls.pathological(start)) is not None:
            raise _wrong("startUrl", reason)
        key = "crawlDepth" if "crawlDepth" in metadata else "depth"
        depth = _depth(key, metadata.get(key))
        return cls(
            start=start,
            host=_urls.split(start).host,
            depth=DEPTH if depth is None else depth,
            narrowed=depth is not None,
            include=_patterns(metadata, "includePatterns"),
            exclude=_patterns(metadata, "excludePatterns"),
        )

    def refusal(self, url: str) -> str | None:
        """Why the connection's own patterns keep an address out."""
        for pattern in self.exclude:
            if _matches(pattern, url):
                return f"excludePatterns: {pattern}"
        if self.include and not any(_matches(pattern, url) for pattern in self.include):
            return "includePatterns: no pattern matches"
        return None


def _wrong(key: str, what: str) -> BadRequestError:
    return BadRequestError(f"metadata.{key}: {what}", [Issue(["metadata", key], what)])


def _depth(key: str, given: object) -> int | None:
    if given is None:
        return None
    with suppress(ValueError, TypeError, OverflowError):
        number = float(cast("Any", given))
        if number == int(number) and 0 <= number <= DEPTH and not isinstance(given, bool):
            return int(number)
    raise _wrong(key, f"a whole number from 0 to {DEPTH}: how many links from the start page")


def _patterns(metadata: Mapping[str, Any], key: str) -> list[str]:
    given = metadata.get(key)
    listed = cast("list[object]", given) if isinstance(given, list) else [given or ""]
    if not all(isinstance(one, str) for one in listed):
        raise _wrong(key, "a text: patterns with * for any characters, commas between them")
    words = ",".join(cast("list[str]", listed)).replace("\n", ",").split(",")
    return [word.strip() for word in words if word.strip()]


def _matches(pattern: str, url: str) -> bool:
    """`*` stands for any run of characters; without case; all of the URL, or from its host or its
    path on. Linear, whatever the pattern."""
    first, *rest = pattern.lower().split("*")
    last = rest.pop() if rest else None
    bare = url.lower()
    spellings = (bare, bare.partition("://")[2], _urls.split(bare).target)
    return any(_fits(text, first, rest, last) for text in spellings)


def _fits(text: str, first: str, middle: Sequence[str], last: str | None) -> bool:
    if last is None:
        return text == first
    if not text.startswith(first):
        return False
    at = len(first)
    for part in middle:
        at = text.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return len(text) - len(last) >= at and text.endswith(last)


def _may_be_public(url: str) -> bool:
    try:
        parse_url(url)
    except BadRequestError:
        return False
    return True


# --- one fetch -----------------------------------------------------------------------------------


class _Redirected(Exception):
    """The answer is a redirect; nobody went there."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.target = target


class _Parked(Exception):
    """The site wants to be left alone, or is away: go on in another sync."""

    def __init__(self, reason: Transient) -> None:
        super().__init__(str(reason))
        self.reason = reason


class _Unreachable(Exception):
    """The site cannot be crawled now, so nothing is known of its pages."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


_Answer = Fetched | _Redirected | Permanent | Transient
_Admit = Callable[[str], None]


def _get(fetcher: Fetcher, url: str, headers: Mapping[str, str], admit: _Admit | None) -> _Answer:
    try:
        return fetcher.get(url, headers=headers, admit=admit)
    except (_Redirected, Permanent, Transient) as error:
        return error


def _stop(target: str) -> None:
    raise _Redirected(target)


def _blob(fetched: Fetched) -> Blob:
    # With its charset, which `mime` lacks.
    said = fetched.headers.get("content-type")
    return Blob(fetched.data, said or fetched.mime, fetched.name, fetched.url)


_HTML = frozenset({"text/html", "application/xhtml+xml"})
_TAGS = (b"<!doctype html", b"<html", b"<head", b"<body", b"<title", b"<!--")
_BINARY = (b"%PDF", b"\x89PNG", b"GIF8", b"\xff\xd8\xff", b"PK\x03\x04", b"\x1f\x8b", b"RIFF")
_WIDE = (b"\xff\xfe", b"\xfe\xff")
"""marks of encodings in which zero bytes are common"""


def _is_html(fetched: Fetched) -> bool:
    head = fetched.data[:512]
    if head.startswith(_BINARY) or (b"\0" in head and not head.startswith(_WIDE)):
        return False
    if fetched.mime is not None:
        return fetched.mime in _HTML
    return head.removeprefix(b"\xef\xbb\xbf").lstrip().lower().startswith(_TAGS)


def _validators(headers: Mapping[str, str]) -> dict[str, str]:
    """What a conditional request needs."""
    kept = {"etag": headers.get("etag"), "modified": headers.get("last-modified")}
    return {
        name: value
        for name, value in kept.items()
        if value is not None and len(value) <= 300 and value.isascii() and value.isprintable()
    }


def _forbids_indexing(directives: Sequence[str], now: datetime) -> bool:
    for directive in directives:
        if directive in ("noindex", "none"):
            return True
        name, _, date = directive.partition(":")
        if name == "unavailable_after":
            end = _moment(date.strip())
            if end is not None and end < now:
                return True
    return False


def _moment(text: str) -> datetime | None:
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        with suppress(ValueError):
            found = read(text)
            return found if found.tzinfo else found.replace(tzinfo=UTC)
    return None


# --- where a crawl stands ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Page:
    """An address that is to be fetched."""

    url: str
    depth: int
    referrer: str | None = None
    """the page or sitemap that named it"""
    hops: int = 0
    """redirects and canonical links that led here"""
    tries: int = 0
    entry: bool = False
    """the start page, or where it redirects: read for its links whatever the filters say"""
    doubted: bool = False
    """what it says of being another page did not hold: fetch it whole, take it as it is"""
    known: Remembered | None = None

    @property
    def has_document(self) -> bool:
        return self.known is not None and self.known.verdict in DOCUMENTS

    def conditions(self) -> dict[str, str]:
        if self.known is None or self.doubted:
            return {}
        if self.has_document and self.known.version is None:  # only its text would tell
            return {}
        extra = self.known.extra
        sent = {"if-none-match": extra.get("etag"), "if-modified-since": extra.get("modified")}
        return {name: value for name, value in sent.items() if value}

    def place(self) -> dict[str, Any]:
        """What its row tells of how it was found."""
        told = {"depth": self.depth, "from": self.referrer, "hops": self.hops, "entry": self.entry}
        return {name: value for name, value in told.items() if value or name == "depth"}

    @classmethod
    def of(cls, row: Remembered) -> Self:
        return cls(
            url=row.id if row.id.isascii() else row.url or row.id,
            depth=row.extra.get("depth", 0),
            referrer=row.extra.get("from"),
            hops=row.extra.get("hops", 0),
            entry=row.extra.get("entry", False),
            known=row if row.verdict in DOCUMENTS or row.verdict in LEADING | DENIED else None,
        )


@dataclass
class _State:
    """What the cursor carries."""

    start: str
    started: datetime
    robots: dict[str, Any] = field(default_factory=dict[str, Any])
    """origin → when it was fetched, and what it said (None: there is none)"""
    sitemaps: list[str] | None = None
    """still to be read; None: not even the start page is"""
    read: int = 0
    """sitemaps"""

    @classmethod
    def of(cls, cursor: Cursor | None, start: str) -> Self | None:
        """None if no crawl from this start is under way, or the cursor is of another shape."""
        if not cursor or cursor.get("start") != start:
            return None
        try:
            return cls(
                start,
                datetime.fromisoformat(cursor["started"]),
                dict(cursor["robots"]),
                None if cursor["sitemaps"] is None else list(cursor["sitemaps"]),
                int(cursor["read"]),
            )
        except (KeyError, TypeError, ValueError):
            return None

    def as_cursor(self) -> Cursor:
        return {
            "start": self.start,
            "started": self.started.isoformat(),
            "robots": dict(self.robots),
            "sitemaps": self.sitemaps,
            "read": self.read,
        }


@dataclass
class _Frontier:
    """Pages to fetch: those with documents first, so that what they free is known by then."""

    known: deque[_Page] = field(default_factory=deque[_Page])
    found: deque[_Page] = field(default_factory=deque[_Page])

    def __bool__(self) -> bool:
        return bool(self.known or self.found)

    def add(self, page: _Page, *, urgent: bool = False) -> None:
        queue = self.known if page.has_document else self.found
        if urgent:
            queue.appendleft(page)
        else:
            queue.append(page)

    def queue(self, *, known_only: bool) -> deque[_Page] | None:
        """Where the next page stands."""
        if self.known:
            return self.known
        return self.found if self.found and not known_only else None


@dataclass(frozen=True, slots=True)
class _Deferral:
    """A page that says it is another one, until we know what that is."""

    page: _Page
    target: str
    redirect: bool
    """or else a canonical link"""
    extra: Mapping[str, Any]


# --- texts that are nearly the same --------------------------------------------------------------


_PRIMES = [0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93]
_MOST_SHINGLES = 4_096


def fingerprint(text: str) -> bytes | None:
    """256 bits that differ in few places if texts do (Charikar's simhash, of runs of four words).

    None for a text that is too short.
    """
    words = text.lower().split()
    if len(words) < FEWEST_WORDS:
        return None
    hashes = np.fromiter((zlib.crc32(w.encode()) for w in words), np.uint64, count=len(words))
    runs = len(words) - 3
    shingles = np.zeros(runs, np.uint64)
    for offset, prime in enumerate(_PRIMES):
        shingles += hashes[offset : offset + runs] * np.uint64(prime)
    shingles = _mixed(np.unique(shingles))
    if len(shingles) > _MOST_SHINGLES:
        # By their values, not their places: an insertion must not change the choice of the rest.
        share = np.uint64(-(-len(shingles) // _MOST_SHINGLES))
        shingles = shingles[shingles % share == 0]
    lanes = np.stack([_mixed(shingles + np.uint64(prime)) for prime in _PRIMES], axis=1)
    bits = np.unpackbits(lanes.view(np.uint8), axis=1)
    return np.packbits(bits.sum(axis=0, dtype=np.uint32) * 2 > len(lanes)).tobytes()


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Each bit depends on all (the finaliser of splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


class _Fingerprints:
    """Of the documents met so far."""

    def __init__(self) -> None:
        self._urls: list[str] = []
        self._rows: NDArray[np.uint64] = np.zeros((256, 4), np.uint64)

    def add(self, url: str, print: bytes) -> None:
        if len(self._urls) == len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        self._rows[len(self._urls)] = np.frombuffer(print, np.uint64)
        self._urls.append(url)

    def nearest(self, url: str, print: bytes) -> str | None:
        """Another page that says nearly the same."""
        if not self._urls:
            return None
        differing = self._rows[: len(self._urls)] ^ np.frombuffer(print, np.uint64)
        distances = np.bitwise_count(differing).sum(axis=1, dtype=np.uint32)
        nearest: list[int] = np.argsort(distances, kind="stable")[:2].tolist()
        near = (self._urls[index] for index in nearest if distances[index] <= NEAR)
        return next((found for found in near if found != url), None)


def _are_near(one: bytes | None, other: bytes | None) -> bool:
    if one is None or other is None:
        return False
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).bit_count() <= NEAR


# --- the crawl -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rules:
    robots: Robots
    at: datetime


class _Crawl:
    def __init__(self, source: Source, cursor: Cursor | None) -> None:
        self._source = source
        self._scope = Scope.of(source.metadata)
        self._elsewhere = f"the host is not {self._scope.host}"
        begun = _State.of(cursor, self._scope.start)
        self._is_new = begun is None
        self._state = begun or _State(self._scope.start, source.since)
        self._incomplete = False

        self._pool = ThreadPoolExecutor(source.crawl_concurrency, "crawl")
        self._flying: dict[Future[_Answer], _Page] = {}
        self._delay = source.crawl_delay
        self._width = source.crawl_concurrency
        self._next = monotonic()
        """when the next request may go out"""
        self._streak = 0

        self._rules: dict[str, _Rules] = {}
        self._frontier = _Frontier()
        self._seen: set[str] = set()
        """addresses of this host that were judged or wait in the frontier"""
        self._foreign: set[str] = set()
        """those of others"""
        self._had: set[str] = set()
        """addresses that came with a document"""
        self._settled: dict[str, bool] = {}
        """those that have their answer: whether it leads to a document"""
        self._deep: set[str] = set()
        self._unfollowed: set[str] = set()
        self._stale: dict[str, _Page] = {}
        """addresses without a document that another crawl saw"""
        self._quiet: dict[str | None, list[Remembered]] = {}
        """page → rows that its links made, which hold as long as it does"""
        self._fresh: dict[str, _Page] = {}
        """pages in the frontier or in flight that no row tells of yet"""
        self._waiting: dict[str, list[_Deferral]] = {}
        self._awaits: dict[str, str] = {}
        self._renamed: set[str] = set()
        self._abroad = 0

        self._branches = _urls.Branches(source.since.date())
        self._owners: dict[str, str] = {}
        """hash of a text → the page that has it"""
        self._prints = _Fingerprints()

        self._room = source.room()
        self._freed = False
        """a document may have gone since `_room` was asked for, or not have come"""
        self._pages = 0
        self._answers: list[Change] = []
        """to be said with the next checkpoint"""

    def close(self) -> None:
        # What is in flight ends by itself, within the limits of a fetch; nobody waits for it.
        self._pool.shutdown(wait=False, cancel_futures=True)

    def run(self) -> Iterator[Change]:
        try:
            self._recall()
            if self._state.sitemaps is None:
                if self._is_new:
                    yield Listing()
                yield from self._open()
            else:
                self._mind(self._rules_of(_urls.split(self._scope.start).origin))
            yield from self._seed()
            for page in list(self._stale.values()):
                self._admit(page)
                yield from self._checkpoint_if_due()
            yield from self._work()
        except _Unreachable as error:
            yield from self._said()
            yield Trouble(str(error), error.code)
            yield Checkpoint({})
            return
        except _Parked as error:
            yield from self._checkpoint()
            raise error.reason from error
        yield from self._said()
        if not self._incomplete:
            yield Listed()
        yield Checkpoint({})

    # --- beginnings ---

    def _recall(self) -> None:
        known: list[_Page] = []
        planned: list[_Page] = []
        for row in self._source.remembered():
            page = _Page.of(row)
            if row.verdict == PLANNED:
                planned.append(page)
            elif not self._is_new and row.seen_at >= self._state.started:
                self._recall_answered(row)
            elif row.verdict in DOCUMENTS:
                known.append(page)
                self._had.add(row.id)
            elif row.verdict in QUIET or MASK in row.id:
                self._quiet.setdefault(page.referrer, []).append(row)
            else:
                self._stale[page.url] = page
        for page in sorted(known, key=_depth_of) + sorted(planned, key=_depth_of):
            self._seen.add(page.url)
            self._frontier.add(page)

    def _recall_answered(self, row: Remembered) -> None:
        """This crawl had it already."""
        if row.verdict == "nofollow":
            self._unfollowed.add(row.id)
            return
        if row.verdict == "off_host":
            self._foreign.add(row.id)
            self._abroad += 1
            return
        self._seen.add(row.id)
        self._settled[row.id] = row.verdict in LEADING or row.verdict == "redirect"
        if row.verdict in DOCUMENTS:
            self._register(row.id, row.version, row.extra.get("print"))
        if row.verdict in LEADING | DENIED:
            self._branches.take(row.id)

    def _register(self, url: str, version: str | None, print: str | None) -> None:
        """A document with its text."""
        if version is not None:
            self._owners.setdefault(version, url)
        if print:
            self._prints.add(url, bytes.fromhex(print))

    def _open(self) -> Generator[Change]:
        """Is the site there? Raises _Unreachable before anything could be taken for gone."""
        page = self._entry()
        origin = _urls.split(page.url).origin
        rules = self._fetch_rules(origin)
        if rules.reason is not None:
            self._say(self._verdict(page, "error", rules.reason, keep=True, failed=True))
            raise _Unreachable(
                f"Nothing may be crawled while {rules.reason}. It is tried again by itself.",
                PROVIDER_UNAVAILABLE,
            )
        self._mind(rules)
        refusal = self._judge(page)
        if refusal is not None:
            self._say(refusal)
        else:
            self._branches.take(page.url)
            yield from self._settle_entry(page, self._visit(page))
        named = [] if self._scope.narrowed else [*rules.sitemaps, f"{origin}/sitemap.xml"]
        self._state.sitemaps = self._own_addresses(named)
        yield from self._checkpoint()

    def _entry(self) -> _Page:
        """The start page, taken from wherever it waits."""
        url = self._scope.start
        page = self._stale.pop(url, None)
        for queue in (self._frontier.known, self._frontier.found):
            for waiting in [one for one in queue if one.url == url]:
                queue.remove(waiting)
                page = waiting
        self._seen.add(url)
        if page is None:
            page = _Page(url, 0)
            self._fresh[url] = page
        return replace(page, depth=0, entry=True)

    def _mind(self, rules: Robots) -> None:
        """Be as slow as the site asks."""
        if rules.delay:
            self._delay = max(self._delay, min(rules.delay, LONGEST_DELAY))
            self._width = 1

    def _visit(self, page: _Page) -> _Answer:
        """Fetch the start page, trying again in place."""
        answer = self._ask(page.url, page.conditions(), _stop)
        for tries in range(TRIES - 1):
            if not isinstance(answer, Transient):
                break
            self._hold(answer, tries)
            answer = self._ask(page.url, page.conditions(), _stop)
        return answer

    def _settle_entry(self, page: _Page, answer: _Answer) -> Generator[Change]:
        match answer:
            case Transient():
                self._say(self._verdict(page, "error", str(answer), keep=True, failed=True))
                raise _Unreachable(
                    f"The start page cannot be reached: {answer}.", PROVIDER_UNAVAILABLE
                )
            case Permanent(code="blocked_target"):
                self._say(self._verdict(page, "blocked", str(answer), keep=True))
                raise _Unreachable(
                    f"The start page must not be fetched: {answer}.", "blocked_target"
                )
            case _Redirected() if not self._is_own(answer.target):
                host = _urls.split(answer.target).host
                reason = f"redirects to {answer.target}"
                self._say(self._verdict(page, "off_host", reason, keep=True))
                raise _Unreachable(
                    f"The start page redirects to another host, {host}. Make {answer.target} the"
                    " startUrl if that is the site you mean.",
                    "off_host",
                )
            case Fetched() if answer.status != 304 and not _is_html(answer):
                told = answer.mime or "of no type"
                self._say(self._verdict(page, "not_html", told, keep=True))
                raise _Unreachable(
                    f"The start page is no HTML page but {told}. Make one the startUrl.",
                    "start_page",
                )
            case Permanent():
                yield from self._settle(page, answer)
                self._incomplete = True
                self._answers.append(
                    Trouble(f"The start page: {answer}. Check startUrl.", "start_page")
                )
            case _:
                yield from self._settle(page, answer)

    def _is_own(self, url: str) -> bool:
        try:
            return _urls.split(_urls.normalise(url)).host == self._scope.host
        except ValueError:
            return False

    # --- sitemaps ---

    def _seed(self) -> Generator[Change]:
        """Admit what sitemaps name. A killed crawl reads at most one of them twice."""
        met: set[str] = set()
        while self._state.sitemaps:
            url, *rest = self._state.sitemaps
            met.add(url)
            nested = yield from self._read_sitemap(url)
            self._state.read += 1
            further = [one for one in self._own_addresses(nested) if one not in met]
            left = max(0, MOST_SITEMAPS - self._state.read)
            self._state.sitemaps = list(dict.fromkeys([*rest, *further]))[:left]
            yield from self._checkpoint()

    def _own_addresses(self, raw: Sequence[str]) -> list[str]:
        """Those of this host, normalised, each once."""
        own: dict[str, None] = {}
        for one in raw:
            with suppress(ValueError):
                own[_urls.normalise(one)] = None
        return [url for url in own if _urls.split(url).host == self._scope.host]

    def _read_sitemap(self, url: str) -> Generator[Change, None, Sequence[str]]:
        parts = _urls.split(url)
        if not self._rules_of(parts.origin).verdict(parts.target).allowed:
            return ()
        answer = self._ask(url, {}, self._stay)
        if isinstance(answer, Transient):
            self._hold(answer, 0)
        if not isinstance(answer, Fetched):
            return ()
        try:
            sitemap = self._source.sitemap(_blob(answer))
        except Permanent:
            return ()
        for entry in sitemap.pages:
            with suppress(ValueError):
                page = _Page(_urls.normalise(entry.url), depth=1, referrer=url)
                self._admit(page)
                yield from self._checkpoint_if_due()
        return sitemap.sitemaps

    def _stay(self, target: str) -> None:
        if not self._is_own(target):
            raise _Redirected(target)

    # --- the loop ---

    def _work(self) -> Generator[Change]:
        while True:
            self._source.going()
            launched = False
            if len(self._flying) < self._width:
                launched = yield from self._launch()
            yield from self._checkpoint_if_due()
            if self._flying:
                patient = not launched or len(self._flying) >= self._width
                for page, answer in self._landed(TICK if patient else 0.0):
                    yield from self._settle(page, answer)
                    yield from self._checkpoint_if_due()
            elif not self._frontier:
                if not self._waiting:
                    return
                self._give_up_waiting()

    def _launch(self) -> Generator[Change, None, bool]:
        """Send one page off, with verdicts on those before it that are not to be fetched."""
        while self._rows() < SAID:
            returning = any(page.has_document for page in self._flying.values())
            queue = self._frontier.queue(known_only=returning)
            if queue is None:
                return False
            page = queue[0]
            refusal = self._judge(page)
            if refusal is None and self._needs_room(page) and self._room <= self._reserved():
                if self._flying:
                    return False  # they may leave room
                if self._freed:
                    yield from self._checkpoint()
                    continue
                refusal = self._verdict(page, "limit", "documentLimit is reached")
            queue.popleft()
            if refusal is None:
                self._branches.take(page.url)
                self._pace()
                self._flying[self._fetch(page.url, page.conditions(), _stop)] = page
                return True
            self._say(refusal)
        return False

    def _needs_room(self, page: _Page) -> bool:
        """Whether it would be one more document; what only moved takes the old one's place."""
        moved = self._waiting.get(page.url, ())
        return not page.has_document and not any(
            one.redirect and one.page.has_document for one in moved
        )

    def _reserved(self) -> int:
        """How many documents the pages in flight may become."""
        return sum(self._needs_room(page) for page in self._flying.values())

    def _landed(self, seconds: float) -> list[tuple[_Page, _Answer]]:
        done, _ = wait(self._flying, timeout=seconds, return_when=FIRST_COMPLETED)
        landed = [future for future in self._flying if future in done]
        return [(self._flying.pop(future), future.result()) for future in landed]

    def _give_up_waiting(self) -> None:
        """What they wait for is never looked at."""
        waiting, self._waiting = self._waiting, {}
        for deferrals in waiting.values():
            for deferral in deferrals:
                self._resolve(deferral, leads=False)

    def _checkpoint_if_due(self) -> Generator[Change]:
        if self._pages >= BATCH or self._rows() >= SAID:
            yield from self._checkpoint()

    def _checkpoint(self) -> Generator[Change]:
        yield from self._said()
        yield Checkpoint(self._state.as_cursor())
        self._pages = 0
        self._room = self._source.room()
        self._freed = False

    def _rows(self) -> int:
        """How many the next checkpoint makes."""
        return len(self._fresh) + len(self._answers)

    def _said(self) -> Generator[Change]:
        """What was planned and answered since the last checkpoint."""
        for page in self._fresh.values():
            yield self._verdict(page, PLANNED)
        yield from self._answers
        self._fresh.clear()
        self._answers.clear()

    # --- requests ---

    def _fetch(
        self, url: str, headers: Mapping[str, str], admit: _Admit | None
    ) -> "Future[_Answer]":
        return self._pool.submit(_get, self._source.fetcher, url, headers, admit)

    def _ask(self, url: str, headers: Mapping[str, str], admit: _Admit | None) -> _Answer:
        self._pace()
        future = self._fetch(url, headers, admit)
        while not wait([future], timeout=TICK).done:
            self._source.going()
        return future.result()

    def _pace(self) -> None:
        """Wait until the next request may go out."""
        seconds = self._next - monotonic()
        if seconds > 0:
            self._source.pause(seconds)
        self._next = monotonic() + self._delay

    def _hold(self, error: Transient, tries: int) -> bool:
        """Be slower after trouble; whether the site asked for it. Raises _Parked."""
        limited = error.code == "http_429" or error.after is not None
        seconds = 2.0**tries if error.after is None else error.after.total_seconds()
        if limited and (seconds > LONGEST_PAUSE or tries + 1 >= TRIES):
            raise _Parked(Transient(str(error), code=RATE_LIMITED, after=error.after))
        self._next = max(self._next, monotonic() + min(seconds, LONGEST_PAUSE))
        return limited

    # --- robots.txt ---

    def _rules_of(self, origin: str) -> Robots:
        """The robots.txt of this origin, fetched if it was not within a day. Raises _Parked."""
        known = self._rules.get(origin) or self._recalled_rules(origin)
        if known is not None and datetime.now(UTC) - known.at < ROBOTS_AGE:
            return known.robots
        if known is None and len(self._rules) >= MOST_ORIGINS:
            return Robots.nothing(f"more than {MOST_ORIGINS} ports of the host are linked")
        rules = self._fetch_rules(origin)
        if rules.reason is not None and origin == _urls.split(self._scope.start).origin:
            raise _Parked(Transient(rules.reason, code=PROVIDER_UNAVAILABLE))
        return rules

    def _recalled_rules(self, origin: str) -> _Rules | None:
        match self._state.robots.get(origin):
            case {"at": str(at), "data": str() | None as data}:
                rules = (
                    Robots.everything()
                    if data is None
                    else Robots.parse(base64.b64decode(data), AGENT)
                )
                known = self._rules[origin] = _Rules(rules, datetime.fromisoformat(at))
                return known
            case _:
                return None

    def _fetch_rules(self, origin: str) -> Robots:
        """RFC 9309 2.3.1: 4xx allows everything; trouble forbids it, and is not kept."""
        url = f"{origin}/robots.txt"
        answer = self._ask(url, {}, None)
        for tries in range(TRIES - 1):
            if not isinstance(answer, Transient):
                break
            self._hold(answer, tries)
            answer = self._ask(url, {}, None)
        data: bytes | None = None
        match answer:
            case Fetched():
                data = answer.data
                rules = Robots.parse(data, AGENT)
            case Permanent(code=code) if code.startswith("http_4") or code == "bad_redirect":
                rules = Robots.everything()
            case _:
                rules = Robots.nothing(f"{url} cannot be read ({answer})")
        at = datetime.now(UTC)
        self._rules[origin] = _Rules(rules, at)
        self._state.robots.pop(origin, None)
        if rules.reason is None and (data is None or len(data) <= ROBOTS_KEPT):
            text = None if data is None else base64.b64encode(data).decode()
            self._state.robots[origin] = {"at": at.isoformat(), "data": text}
        return rules

    # --- judging addresses ---

    def _admit(self, page: _Page, *, urgent: bool = False) -> None:
        """Into the frontier with it, unless it was there before or its address speaks against."""
        url = page.url
        if _urls.split(url).host != self._scope.host:
            self._note_abroad(page)
            return
        if url in self._seen and not (url in self._deep and page.depth <= self._scope.depth):
            return
        before = self._stale.pop(url, None)
        if before is not None:
            page = replace(page, known=before.known)
        elif len(self._seen) >= MOST_URLS:
            self._overflow()
            return
        self._seen.add(url)
        self._deep.discard(url)
        reason = _urls.pathological(url)
        if reason is not None:
            self._say(self._verdict(page, "trap", reason))
        elif page.hops > MOST_HOPS:
            self._say(self._verdict(page, "error", f"more than {MOST_HOPS} redirects led here"))
        elif page.depth > self._scope.depth:
            self._deep.add(url)
            detail = f"more than {self._scope.depth} links from the start page"
            self._say(self._verdict(page, "depth", detail))
        else:
            self._frontier.add(page, urgent=urgent)
            if before is None:
                self._fresh[url] = page

    def _overflow(self) -> None:
        sign = f"{self._scope.start}#more"
        if sign not in self._settled:
            detail = f"more than {MOST_URLS:,} addresses were seen; further ones are not noted"
            self._say(self._verdict(_Page(sign, 0), "limit", detail))

    def _note_abroad(self, page: _Page) -> None:
        """One row for each address, and when there are many, one for each host."""
        if page.url in self._foreign or len(self._foreign) >= MOST_URLS:
            return
        self._foreign.add(page.url)
        named = page
        if self._abroad >= MOST_ABROAD:
            named = replace(page, url=f"{_urls.split(page.url).origin}/")
            if named.url in self._foreign or self._abroad >= 2 * MOST_ABROAD:
                return
            self._foreign.add(named.url)
        self._abroad += 1
        self._say(self._verdict(named, "off_host", self._elsewhere))

    def _judge(self, page: _Page) -> Verdict | None:
        """Why a page is not to be fetched."""
        parts = _urls.split(page.url)
        if parts.host != self._scope.host:  # startUrl was changed
            return self._verdict(page, "off_host", self._elsewhere)
        rules = self._rules_of(parts.origin)
        rule = rules.verdict(parts.target)
        if not rule.allowed:
            detail = rule.reason or f"robots.txt line {rule.number}: {rule.line}"
            return self._verdict(page, "robots", detail, keep=rule.reason is not None)
        if page.entry:
            return None
        reason = self._scope.refusal(page.url)
        if reason is None and not page.has_document:
            reason = self._source.refused(None, page.url)
        if reason is not None:
            return self._verdict(page, "filtered", reason)
        if page.has_document or page.hops:
            return None
        if (reason := self._branches.judge(page.url)) is not None:
            return self._verdict(page, "trap", reason)
        if page.tries == 0 and not page.doubted and (same := self._branches.reordered(page.url)):
            return self._verdict(page, "duplicate", same, extra={"of": same})
        return None

    # --- answers ---

    def _settle(self, page: _Page, answer: _Answer) -> Generator[Change]:
        if not isinstance(answer, Transient):
            self._streak = 0
            self._pages += 1
        match answer:
            case Fetched(status=304):
                self._unchanged(page)
            case Fetched():
                yield from self._read(page, answer)
            case _Redirected():
                self._moved(page, answer.target)
            case Permanent():
                self._refused(page, answer)
            case Transient():
                self._failed(page, answer)

    def _read(self, page: _Page, fetched: Fetched) -> Generator[Change]:
        found = _validators(fetched.headers)
        if not _is_html(fetched):
            self._say(self._verdict(page, "not_html", fetched.mime or "of no type", extra=found))
            return
        try:
            web = self._source.survey(_blob(fetched))
        except Permanent as error:
            if error.code == "unsupported_kind":
                self._say(self._verdict(page, "not_html", str(error), extra=found))
            else:
                self._say(self._verdict(page, "error", str(error), keep=True, failed=True))
            return
        directives = [
            *web.directives,
            *header_directives(fetched.headers.get("x-robots-tag", ""), AGENT),
        ]
        hidden = _forbids_indexing(directives, self._source.since)
        canonical = None if hidden or page.doubted else self._canonical(page, web)
        if canonical is not None:
            self._defer(page, canonical, redirect=False, extra={**found, "canonical": canonical})
            return
        links = [link for link in web.links if not self._has_met(link.url)]
        if self._rows() + len(links) > MOST_ROWS:
            yield from self._checkpoint()
        follow = "nofollow" not in directives and "none" not in directives
        self._discover(page, links, follow=follow)
        if self._rows() > MOST_ROWS:
            yield from self._checkpoint()  # of links alone: the page has no answer yet
        if hidden:
            detail = "the page asks not to be indexed"
            confirm = not _is_same_text(page, web.extracted.text)
            self._say(self._verdict(page, "noindex", detail, extra=found, confirm=confirm))
        else:
            self._keep(page, web, found)

    def _canonical(self, page: _Page, web: WebPage) -> str | None:
        """The page that it says it is a copy of, if that is believable."""
        if web.canonical is None or page.hops > MOST_HOPS:
            return None
        try:
            target = _urls.normalise(web.canonical)
        except ValueError:
            return None
        own = _urls.split(target).host == self._scope.host
        return target if own and target != page.url else None

    def _keep(self, page: _Page, web: WebPage, found: Mapping[str, str]) -> None:
        """Make it a document, unless it says nothing, or nothing new."""
        text = web.extracted.text
        title = web.extracted.title
        version = _version(text)
        print = fingerprint(text)
        refusal = self._refusal_of_text(page, text, title, version, print, found)
        if refusal is not None:
            self._say(refusal)
            return
        metadata = {
            name: value
            for name, value in {
                "published": web.published,
                "modified": web.modified,
                "language": web.language,
            }.items()
            if value is not None
        }
        formerly = self._renaming(page, version, print)
        if formerly is not None:
            self._renamed.add(formerly)
        elif not page.has_document:
            self._room -= 1
            self._freed = True  # the filter may yet refuse it
        near = None if print is None else self._prints.nearest(page.url, print)
        written = None if print is None else print.hex()
        extra = {**page.place(), **found, "metadata": metadata}
        if written is not None:
            extra["print"] = written
        self._register(page.url, version, written)
        self._branches.bore(page.url, fruit=True)
        self._say(
            Item(
                id=page.url,
                version=version,
                title=title,
                url=page.url,
                kind="webpage",
                metadata=metadata,
                extra=extra,
                formerly=formerly,
                text=text,
                detail=_history(page, version, formerly, near),
            )
        )

    def _refusal_of_text(
        self,
        page: _Page,
        text: str,
        title: str | None,
        version: str,
        print: bytes | None,
        found: Mapping[str, str],
    ) -> Verdict | None:
        if not page.has_document:
            reason = self._source.refused(title, page.url)
            if reason is None and page.entry:
                reason = self._scope.refusal(page.url)
            if reason is not None:
                return self._verdict(page, "filtered", reason, title=title)
        if not text.strip():
            detail = "the page has no text; it may need JavaScript"
            return self._verdict(page, "empty", detail, extra=found, title=title)
        kind, original = "duplicate", self._owners.get(version)
        if original is None and print is not None:
            kind, original = "near_duplicate", self._variant(page, print)
        if original is not None and original != page.url:
            self._branches.bore(page.url, fruit=False)
            extra = {**found, "of": original, "hash": version}
            return self._verdict(page, kind, original, extra=extra, title=title)
        one_more = not page.has_document and self._renaming(page, version, print) is None
        if one_more and self._room <= 0:
            return self._verdict(page, "limit", "documentLimit is reached", title=title)
        return None

    def _variant(self, page: _Page, print: bytes) -> str | None:
        """A page nearly the same that only the query tells apart: sorted, printed, in a session.

        Pages of different paths stay documents, however alike: a wrong merge loses content.
        """
        near = self._prints.nearest(page.url, print)
        if near is None or page.has_document:
            return None
        one, other = _urls.split(near), _urls.split(page.url)
        return near if (one.origin, one.path) == (other.origin, other.path) else None

    def _renaming(self, page: _Page, version: str, print: bytes | None) -> str | None:
        """The document that used to be at an address which leads here now, if its text is here."""
        if page.has_document:
            return None
        for deferral in self._waiting.get(page.url, ()):
            known = deferral.page.known
            if not deferral.redirect or known is None or not deferral.page.has_document:
                continue
            before = known.extra.get("print")
            if known.version == version or (before and _are_near(bytes.fromhex(before), print)):
                return known.id
        return None

    def _unchanged(self, page: _Page) -> None:
        """304: what its row says still holds, and so do its links."""
        row = page.known
        assert row is not None, "only what is known is asked for with conditions"
        if row.verdict in DOCUMENTS:
            assert row.version is not None
            self._register(row.id, row.version, row.extra.get("print"))
            self._say(
                Item(
                    id=row.id,
                    version=row.version,
                    title=row.title,
                    url=row.url,
                    kind="webpage",
                    metadata=row.extra.get("metadata", {}),
                    extra=row.extra,
                    detail="unchanged",
                )
            )
        elif row.verdict in DENIED:
            self._say(replace(self._verdict(page, row.verdict, row.detail), extra=row.extra))
        elif row.verdict == "canonical":
            self._defer(page, row.extra["canonical"], redirect=False, extra=row.extra)
        elif self._still_said_by(row):
            self._say(replace(self._verdict(page, row.verdict, row.detail), extra=row.extra))
        else:
            self._frontier.add(replace(page, doubted=True), urgent=True)
            return
        self._say_links_again(page)

    def _still_said_by(self, row: Remembered) -> bool:
        """Whether the page that a copy was a copy of is still one with the same text."""
        original = row.extra.get("of", "")
        same = row.verdict == "near_duplicate" or row.extra.get("hash") in self._owners
        return self._settled.get(original, False) and same

    def _say_links_again(self, page: _Page) -> None:
        for row in self._quiet.pop(page.url, ()):
            link = _Page(row.id, page.depth + 1, page.url)
            match row.verdict:
                case "nofollow":
                    self._note_unfollowed(link)
                case "off_host":
                    self._admit(link)
                case _:
                    self._say(self._verdict(link, row.verdict, row.detail))

    def _moved(self, page: _Page, raw: str) -> None:
        try:
            target = _urls.normalise(raw)
        except ValueError as error:
            self._say(self._verdict(page, "error", f"redirects: {error}", keep=True, failed=True))
            return
        if _urls.split(target).host == self._scope.host:
            self._defer(page, target, redirect=True, extra={})
        else:
            detail = f"redirects to {target}"
            self._say(self._verdict(page, "off_host", detail, confirm=True))

    def _refused(self, page: _Page, error: Permanent) -> None:
        match error.code:
            case "http_404" if page.has_document:
                self._say(Missing(page.url, str(error)))
            case "http_410" if page.has_document:
                self._say(Gone(page.url))
            case "http_404" | "http_410":
                self._say(self._verdict(page, "error", str(error)))
            case "too_large":
                self._say(self._verdict(page, "too_large", str(error)))
            case "blocked_target":
                self._say(self._verdict(page, "blocked", str(error), keep=True))
                self._say_links_again(page)
            case _:
                self._say(self._verdict(page, "error", str(error), keep=True, failed=True))
                self._say_links_again(page)

    def _failed(self, page: _Page, error: Transient) -> None:
        again = replace(page, tries=page.tries + 1)
        try:
            limited = self._hold(error, page.tries)
        except _Parked:
            self._frontier.add(page, urgent=True)
            raise
        if limited:
            self._frontier.add(again, urgent=True)
            return
        self._streak += 1
        if again.tries < TRIES:
            self._frontier.add(again)
        else:
            self._pages += 1
            self._say(self._verdict(page, "error", str(error), keep=True, failed=True))
            self._say_links_again(page)
        if self._streak >= STREAK:
            self._streak = 0
            rules = self._fetch_rules(_urls.split(self._scope.start).origin)
            if rules.reason is not None:
                raise _Parked(Transient(rules.reason, code=PROVIDER_UNAVAILABLE))

    # --- links ---

    def _discover(self, page: _Page, links: Sequence[Link], *, follow: bool) -> None:
        for link in links:
            if self._has_met(link.url):
                continue
            try:
                found = _Page(_urls.normalise(link.url), page.depth + 1, page.url)
            except ValueError as error:
                scheme, _, rest = link.url.partition("://")
                hidden = f"{scheme}://{MASK}{rest.rpartition('@')[2]}"
                if hidden not in self._settled:
                    masked = _Page(hidden, page.depth + 1, page.url)
                    self._say(self._verdict(masked, "blocked", str(error)))
                continue
            if follow and link.followed:
                self._admit(found)
            else:
                self._note_unfollowed(found)

    def _has_met(self, url: str) -> bool:
        return url in self._seen or url in self._foreign

    def _note_unfollowed(self, page: _Page) -> None:
        """It may still be found by another link."""
        url = page.url
        if url in self._seen or url in self._unfollowed or len(self._unfollowed) >= MOST_URLS:
            return
        if _urls.split(url).host != self._scope.host:
            self._admit(page)
            return
        self._unfollowed.add(url)
        if url not in self._stale:
            reason = f"only linked with nofollow, by {page.referrer}"
            self._answers.append(self._verdict(page, "nofollow", reason))

    # --- pages that are other pages ---

    def _defer(self, page: _Page, target: str, *, redirect: bool, extra: Mapping[str, Any]) -> None:
        deferral = _Deferral(page, target, redirect, extra)
        end = target
        while end in self._awaits:
            end = self._awaits[end]
        if end == page.url:
            if redirect:
                self._say(self._verdict(page, "error", "redirects in a circle", keep=True))
            else:
                self._frontier.add(replace(page, doubted=True), urgent=True)
        elif target in self._settled:
            self._resolve(deferral, leads=self._settled[target])
        else:
            self._awaits[page.url] = target
            self._waiting.setdefault(target, []).append(deferral)
            onward = _Page(
                target, page.depth, page.url, hops=page.hops + 1, entry=page.entry and redirect
            )
            self._admit(onward, urgent=True)

    def _resolve(self, deferral: _Deferral, *, leads: bool) -> None:
        page, target = deferral.page, deferral.target
        self._awaits.pop(page.url, None)
        if deferral.redirect:
            # What moved has its document elsewhere; of others a redirect may be a passing matter.
            confirm = page.url not in self._renamed
            self._say(self._verdict(page, "redirect", target, confirm=confirm), leads=leads)
        elif leads:
            verdict = self._verdict(page, "canonical", target, extra=deferral.extra)
            self._say(verdict, leads=True)
        else:
            self._frontier.add(replace(page, doubted=True), urgent=True)

    # --- saying ---

    def _verdict(
        self,
        page: _Page,
        kind: str,
        detail: str | None = None,
        *,
        keep: bool = False,
        confirm: bool | None = None,
        failed: bool = False,
        title: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Verdict:
        return Verdict(
            id=_row_id(page.url),
            kind=kind,
            detail=detail,
            extra={**page.place(), **(extra or {})},
            keep=keep and page.has_document,
            confirm=page.has_document and (kind in DOUBTFUL if confirm is None else confirm),
            url=page.url,
            title=title,
            failed=failed,
        )

    def _say(self, change: Item | Verdict | Gone | Missing, *, leads: bool | None = None) -> None:
        """The answer for an address, and then for those that waited for it."""
        self._answers.append(change)
        url = change.url or change.id if isinstance(change, Verdict) else change.id
        if leads is None:
            leads = isinstance(change, Item) or (
                isinstance(change, Verdict) and change.kind in LEADING
            )
        if url in self._had and not (isinstance(change, Verdict) and change.keep):
            self._freed = self._freed or not isinstance(change, Item)
        self._fresh.pop(url, None)
        self._settled[url] = leads
        for deferral in self._waiting.pop(url, ()):
            self._resolve(deferral, leads=leads)


def _version(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _is_same_text(page: _Page, text: str) -> bool:
    """Whether the page still says what its document says, or nearly."""
    if page.known is None:
        return False
    before = page.known.extra.get("print")
    same = page.known.version == _version(text)
    return same or (before is not None and _are_near(bytes.fromhex(before), fingerprint(text)))


def _depth_of(page: _Page) -> int:
    return page.depth


def _row_id(url: str) -> str:
    """Long ones are cut, since no index takes them."""
    if len(url) <= _urls.LONGEST:
        return url
    return f"{url[:200]}…{hashlib.sha256(url.encode()).hexdigest()[:16]}"


def _history(page: _Page, version: str, formerly: str | None, near: str | None) -> str:
    """What people may want to know of how a document came, or came to change."""
    if formerly is not None:
        told = f"moved here from {formerly}"
    elif page.has_document:
        same = page.known is not None and page.known.version == version
        told = "unchanged" if same else "changed"
    else:
        told = f"found on {page.referrer}" if page.referrer else "the start page"
    return told if near is None else f"{told}; says nearly the same as {near}"
