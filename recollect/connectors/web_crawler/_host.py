"""How to visit a site politely: requests, the pace between them, robots.txt.

Requests are made in threads; everything else happens in the caller's.
"""

import base64
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from queue import Empty, SimpleQueue
from time import monotonic

from recollect.connectors import _urls
from recollect.connectors._robots import AGENT, MAX_BYTES, Robots
from recollect.connectors.api import LONGEST_PAUSE, PROVIDER_UNAVAILABLE, RATE_LIMITED, TRIES
from recollect.connectors.base import HostTurn, Source
from recollect.connectors.web_crawler._page import CrawlPage
from recollect.connectors.web_crawler._state import State
from recollect.connectors.web_crawler._visit import Visit, visit_file, visit_page
from recollect.errors import Permanent, Transient, Unavailable
from recollect.fetch import Fetched, FetchLimits
from recollect.loop import backoff

MOST_ORIGINS = 8
"""ports and schemes of the host"""
LONGEST_DELAY = 30.0
"""seconds that a Crawl-delay is honoured"""
REST = timedelta(minutes=1)
"""when a limit comes without a time"""
SLOWNESS = 2
"""times that the latest answer took, to be left between requests"""
ROBOTS_AGE = timedelta(hours=24)
"""RFC 9309 2.4"""
ROBOTS_KEPT = 32_000
"""bytes of a robots.txt that the cursor carries; a longer one is fetched again"""
SITEMAP_BYTES = FetchLimits().max_bytes
"""read of a sitemap, which may have 50,000 addresses and 50 MB (sitemaps.org)"""
AT_HAND = 0.005
"""seconds of an answer from so near that threads would wait for each other, not for the site"""
BURST = 1.0
"""seconds of requests without a delay for which one turn is enough"""
TICK = 0.5
"""seconds between looks whether to go on"""


class SiteUnreachable(Exception):
    """The site cannot be crawled now, so nothing is known of its pages."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class SiteParked(Exception):
    """The site asks for a pause, or is away: go on in another sync."""

    def __init__(self, reason: Transient) -> None:
        super().__init__(str(reason))
        self.reason = reason


@dataclass(frozen=True, slots=True)
class _Rules:
    robots: Robots
    at: datetime


class Host:
    """All ports and schemes of one host; `flying` are the pages that were requested. All crawls of
    the host share turns and rests, whichever process runs them. They also share the number of
    requests under way: each crawl has its part of them, and at least one.
    """

    def __init__(self, source: Source, state: State) -> None:
        self._source = source
        self._fetcher = source.fetcher
        self._state = state
        self._pool = ThreadPoolExecutor(source.crawl_concurrency, "crawl")
        self._delay = source.crawl_delay
        self._most = source.crawl_concurrency
        self._width = self._most
        self._name = _name(state.start)
        self._asked = -BURST
        """when the latest turn was taken"""
        self._latest = 0.0
        """seconds that the latest answer took"""
        self._launched = 0.0
        """when a page was last sent for"""
        self._flying: dict[Future[Visit], CrawlPage] = {}
        self._done: SimpleQueue[Future[Visit]] = SimpleQueue()
        """those of the flying that have landed"""
        self._rules: dict[str, _Rules] = {}

    def close(self) -> None:
        # What is in flight ends by itself, within the limits of a fetch; nobody waits for it.
        self._pool.shutdown(wait=False, cancel_futures=True)
        with suppress(Unavailable):  # then it is forgotten there by itself
            self._source.leave(self._name)

    # --- requests ---

    @property
    def flying(self) -> list[CrawlPage]:
        return list(self._flying.values())

    @property
    def is_busy(self) -> bool:
        """Whether as many requests are under way as may be."""
        return len(self._flying) >= (1 if self._is_at_hand else self._width)

    @property
    def patience(self) -> float:
        """Seconds to wait for an answer before more is sent for, or the crawl may be stopped."""
        return AT_HAND if self._is_at_hand else TICK

    @property
    def _is_at_hand(self) -> bool:
        return 0 < self._latest < AT_HAND and monotonic() - self._launched < AT_HAND

    def launch(self, page: CrawlPage) -> None:
        """Send for a page, when it is time. Raises Parked."""
        self._wait_turn()
        future = self._visit(page)
        self._flying[future] = page
        self._launched = monotonic()
        future.add_done_callback(self._done.put)

    def landed(self, seconds: float) -> list[tuple[CrawlPage, Visit]]:
        """What came of pages that were sent for, after waiting so long for one."""
        landed: list[Future[Visit]] = []
        with suppress(Empty):
            landed.append(self._done.get(timeout=seconds) if seconds else self._done.get_nowait())
            while True:
                landed.append(self._done.get_nowait())
        return [(self._flying.pop(future), future.result()) for future in landed]

    def read(self, page: CrawlPage) -> Visit:
        """Fetch a page now, trying again in place while that may help. Raises Parked."""
        return self._insist(lambda: self._visit(page))

    def read_sitemap(self, url: str, admit: Callable[[str], None]) -> Visit:
        return self._await(
            lambda: self._pool.submit(visit_file, self._fetcher, url, admit, SITEMAP_BYTES)
        )

    def _visit(self, page: CrawlPage) -> "Future[Visit]":
        return self._pool.submit(self._timed_visit, page.url, page.conditions())

    def _timed_visit(self, url: str, headers: Mapping[str, str]) -> Visit:
        began = monotonic()
        answer = visit_page(self._fetcher, url, headers)
        self._latest = monotonic() - began
        return answer

    def _insist(self, send: Callable[[], "Future[Visit]"]) -> Visit:
        answer = self._await(send)
        for tries in range(TRIES - 1):
            if not isinstance(answer, Transient):
                break
            self.hold(answer, tries)
            answer = self._await(send)
        return answer

    def _await(self, send: Callable[[], "Future[Visit]"]) -> Visit:
        self._wait_turn()
        future = send()
        while not wait([future], timeout=TICK).done:
            self._source.going()
        return future.result()

    # --- pace ---

    def mind(self, rules: Robots) -> None:
        """Be as slow as the site asks."""
        if rules.delay:
            self._delay = max(self._delay, min(rules.delay, LONGEST_DELAY))
            self._most = self._width = 1

    def hold(self, error: Transient, tries: int) -> bool:
        """Be slower after trouble; whether the site asked for it. Raises Parked."""
        limited = _is_limit(error)
        pause = backoff(tries + 1, timedelta(seconds=1)) if error.after is None else error.after
        seconds = pause.total_seconds()
        self._source.rest(self._name, seconds if limited else min(seconds, LONGEST_PAUSE))
        self._asked = -BURST
        if limited and (seconds > LONGEST_PAUSE or tries + 1 >= TRIES):
            raise SiteParked(Transient(str(error), code=RATE_LIMITED, after=error.after))
        return limited

    def _wait_turn(self) -> None:
        """Wait until the next request may go out; a site that is slow to answer is asked less."""
        delay = self._delay and max(self._delay, min(SLOWNESS * self._latest, LONGEST_DELAY))
        if not delay and monotonic() - self._asked < BURST:
            return
        turn = self._source.turn(self._name, delay)
        self._asked = monotonic()
        self._width = max(1, self._most // turn.guests)
        if turn.rest > LONGEST_PAUSE:  # another crawl was told so
            raise SiteParked(_resting(self._name, turn))
        if turn.wait > 0:
            self._source.pause(turn.wait)

    # --- robots.txt ---

    def rules_of(self, origin: str) -> Robots:
        """The robots.txt of this origin, fetched if it was not within a day. Raises Parked."""
        known = self._rules.get(origin) or self._recalled_rules(origin)
        if known is not None and abs(datetime.now(UTC) - known.at) < ROBOTS_AGE:
            return known.robots
        if known is None and len(self._rules) >= MOST_ORIGINS:
            return Robots.nothing(f"more than {MOST_ORIGINS} ports of the host are linked")
        rules = self.fetch_rules(origin)
        if rules.reason is not None and origin == _urls.split(self._state.start).origin:
            raise SiteParked(Transient(rules.reason, code=PROVIDER_UNAVAILABLE))
        return rules

    def fetch_rules(self, origin: str) -> Robots:
        """RFC 9309 2.3.1: 4xx allows everything; trouble forbids it, and is not kept."""
        url = f"{origin}/robots.txt"
        answer = self._insist(
            lambda: self._pool.submit(visit_file, self._fetcher, url, None, MAX_BYTES + 1)
        )
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


def visit_alone(source: Source, start: str, url: str) -> Visit:
    """A page outside of a crawl, in a turn among those of the crawls of its host.

    Raises Transient (`rate_limited`) if the host asks for a pause, which then applies to all.
    """
    name = _name(start)
    turn = source.turn(name, source.crawl_delay)
    if turn.rest > LONGEST_PAUSE:
        raise _resting(name, turn)
    if turn.wait > 0:
        source.pause(turn.wait)
    answer = visit_page(source.fetcher, url, {})
    if isinstance(answer, Transient) and _is_limit(answer):
        asked = answer.after or REST
        source.rest(name, asked.total_seconds())
        raise Transient(str(answer), code=RATE_LIMITED, after=asked)
    return answer


def _name(start: str) -> str:
    return start.partition("://")[2].partition("/")[0]


def _is_limit(error: Transient) -> bool:
    return error.code == "http_429" or error.after is not None


def _resting(name: str, turn: HostTurn) -> Transient:
    return Transient(
        f"{name} asked for a pause", code=RATE_LIMITED, after=timedelta(seconds=turn.rest)
    )
