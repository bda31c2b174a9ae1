"""One crawl: from the start page and the sitemaps over all that they lead to.

What was seen and what is still to be seen are rows of the connection, so that a crawl goes on
where it was killed and every address has an answer.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from time import monotonic

from recollect.connectors import _urls
from recollect.connectors._robots import Robots
from recollect.connectors.api import PROVIDER_UNAVAILABLE, TRIES
from recollect.connectors.base import (
    Change,
    Checkpoint,
    Cursor,
    Item,
    Listed,
    Listing,
    Missing,
    Source,
    Trouble,
    Verdict,
)
from recollect.connectors.web_crawler._addresses import Addresses
from recollect.connectors.web_crawler._dead_end import noted
from recollect.connectors.web_crawler._documents import (
    as_before,
    history,
    is_same_text,
    metadata_of,
)
from recollect.connectors.web_crawler._entry import no_entry, shut_out
from recollect.connectors.web_crawler._host import Host, SiteParked, SiteUnreachable
from recollect.connectors.web_crawler._ledger import CrawlLedger
from recollect.connectors.web_crawler._notices import Notices
from recollect.connectors.web_crawler._page import (
    DENIED,
    DOCUMENTS,
    MOST_HOPS,
    PLANNED,
    SKETCH,
    CrawlPage,
    Frontier,
)
from recollect.connectors.web_crawler._scope import CrawlScope
from recollect.connectors.web_crawler._state import State
from recollect.connectors.web_crawler._texts import Texts, fingerprint, version_of
from recollect.connectors.web_crawler._titles import SiteTitles
from recollect.connectors.web_crawler._visit import (
    NotHtml,
    Redirected,
    Visit,
    asks_to_hide,
    forbids_indexing,
    moment,
    told_in_headers,
    validators,
)
from recollect.errors import Permanent, Transient
from recollect.fetch import Fetched
from recollect.model import Remembered, WebPage

MOST_SITEMAPS = 50
BATCH = 20
"""pages that were read between checkpoints; what did not change is cheap to ask for again"""
SECONDS = 15.0
"""after which there is one anyway"""
SAID = 100
"""rows after which there is one anyway"""
MOST_ROWS = 190
"""rows between checkpoints. A sync may store more at a time than that without one, and then nothing
must stand before what it leads to: see `Crawl._read`"""
MOST_HIDDEN = 2
"""documents that go at once in one crawl since their pages ask for it; more may be a slip"""
STREAK = 5
"""failures in a row after which the site is asked whether it is there"""


class Crawl:
    def __init__(self, source: Source, cursor: Cursor | None) -> None:
        self._source = source
        self._scope = CrawlScope.of(source.metadata)
        begun = State.of(cursor, self._scope.start)
        self._is_new = begun is None
        self._state = begun or State(self._scope.start, source.since)
        self._incomplete = False
        self._shut_out: Trouble | None = None
        """if robots.txt allows nothing that the crawl met"""

        self._host = Host(source, self._state)
        self._streak = 0
        self._frontier = Frontier()
        self._ledger = CrawlLedger(self._frontier, self._scope.start)
        self._addresses = Addresses(source, self._scope, self._host, self._frontier, self._ledger)
        self._texts = Texts()
        self._notices = Notices(self._state.notices)
        self._titles = SiteTitles()

        self._room = source.room()
        self._pages = 0
        """read since the last checkpoint"""
        self._stored = monotonic()
        """when that was"""

    def close(self) -> None:
        self._host.close()

    def look(self) -> tuple[Item | Trouble, Robots]:
        """The start page, to be fetched if robots.txt allows it, which is asked.

        Raises Transient when that cannot be told now.
        """
        start = _urls.split(self._scope.start)
        try:
            rules = self._host.rules_of(start.origin)
        except SiteParked as parked:
            raise parked.reason from parked
        rule = rules.verdict(start.target)
        if rule.allowed:
            return Item(self._scope.start, ""), rules
        return Trouble(f"robots.txt does not allow {self._scope.start}", "robots"), rules

    def run(self) -> Iterator[Change]:
        try:
            self._recall()
            if self._state.sitemaps is None:
                if self._is_new:
                    yield Listing()
                yield from self._open()
            else:
                self._host.mind(self._host.rules_of(_urls.split(self._scope.start).origin))
            yield from self._seed()
            for page in self._addresses.stale():
                self._addresses.admit(page)
                yield from self._checkpoint_if_due()
            yield from self._work()
        except SiteUnreachable as error:
            yield from self._said()
            away = error.code == PROVIDER_UNAVAILABLE
            yield Trouble(str(error), error.code, away=away)
            yield Checkpoint({})
            return
        except SiteParked as error:
            yield from self._checkpoint()
            raise error.reason from error
        self._ledger.say_delayed()
        yield from self._said()
        yield from self._retitled()
        trouble = self._ledger.sameness.trouble(self._state.notices) or self._shut_out
        if trouble is not None:
            yield trouble
        elif not self._incomplete:
            yield Listed()
        yield Checkpoint({})

    # --- beginnings ---

    def _recall(self) -> None:
        known: list[CrawlPage] = []
        planned: list[CrawlPage] = []
        for row in self._source.remembered():
            if row.verdict in DOCUMENTS:
                self._titles.recall(row)
            if row.verdict == PLANNED:
                planned.append(CrawlPage.of(row))
            elif not self._is_new and row.seen_at >= self._state.started:
                self._addresses.recall_answered(row)
                if row.verdict in DOCUMENTS:
                    self._texts.register(row.id, row.version, row.extra.get("print"))
            elif row.verdict in DOCUMENTS:
                known.append(CrawlPage.of(row))
                self._ledger.had.add(row.id)
            else:
                self._addresses.recall(row)
        for page in sorted(known, key=self._order_of) + sorted(planned, key=self._order_of):
            self._addresses.await_turn(page)

    def _order_of(self, page: CrawlPage) -> tuple[int, int]:
        """What parked the crawl comes last: the site may well answer for the others."""
        return self._state.parks.get(page.url, 0), page.depth

    def _open(self) -> Generator[Change]:
        """Is the site there? Raises SiteUnreachable before anything could be taken for gone."""
        page = self._addresses.take_entry()
        origin = _urls.split(page.url).origin
        rules = self._host.fetch_rules(origin)
        if rules.reason is not None:
            page = replace(page, troubled=True)
            self._ledger.say(page.verdict("error", rules.reason, keep=True))
            raise SiteUnreachable(
                f"Nothing may be crawled while {rules.reason}. Recollect tries again by itself.",
                PROVIDER_UNAVAILABLE,
            )
        self._host.mind(rules)
        refusal = self._addresses.judge(page)
        if refusal is not None:
            self._ledger.say(refusal)
            self._shut_out = shut_out(refusal.detail)
        else:
            self._addresses.branches.take(page.url)
            yield from self._settle_entry(page, self._host.read(page))
        named = [] if self._scope.narrowed else [*rules.sitemaps, f"{origin}/sitemap.xml"]
        self._state.sitemaps = self._scope.own(named)
        yield from self._checkpoint()

    def _settle_entry(self, page: CrawlPage, answer: Visit) -> Generator[Change]:
        stopped = no_entry(answer, self._is_own)
        page = replace(page, troubled=isinstance(answer, Permanent) or stopped is not None)
        if stopped is not None:
            self._ledger.say(page.verdict(stopped.verdict, stopped.detail, keep=True))
            raise SiteUnreachable(stopped.message, stopped.code)
        yield from self._settle(page, answer)
        if isinstance(answer, Permanent):
            self._incomplete = True
            self._ledger.add(Trouble(f"The start page: {answer}. Check startUrl.", "start_page"))

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
            further = [one for one in self._scope.own(nested) if one not in met]
            left = max(0, MOST_SITEMAPS - self._state.read)
            self._state.sitemaps = list(dict.fromkeys([*rest, *further]))[:left]
            yield from self._checkpoint()

    def _read_sitemap(self, url: str) -> Generator[Change, None, Sequence[str]]:
        parts = _urls.split(url)
        if not self._host.rules_of(parts.origin).verdict(parts.target).allowed:
            return ()
        answer = self._host.read_sitemap(url, self._stay)
        if isinstance(answer, Transient):
            try:
                self._host.hold(answer, 0)
            except SiteParked:
                if self._state.park(url):
                    raise
        if not isinstance(answer, Fetched):
            return ()
        try:
            sitemap = self._source.sitemap(answer.blob)
        except Permanent:
            return ()
        for entry in sitemap.pages:
            with suppress(ValueError):
                modified = moment(entry.modified) if entry.modified else None
                page = CrawlPage(_urls.normalise(entry.url), 1, url, modified=modified)
                self._addresses.admit(page)
                yield from self._checkpoint_if_due()
        return sitemap.sitemaps

    def _stay(self, target: str) -> None:
        if not self._is_own(target):
            raise Redirected(target)

    # --- the loop ---

    def _work(self) -> Generator[Change]:
        while True:
            self._source.going()
            launched = False
            if not self._host.is_busy:
                launched = yield from self._launch()
            yield from self._checkpoint_if_due()
            if self._host.flying:
                patient = not launched or self._host.is_busy
                for page, answer in self._host.landed(self._host.patience if patient else 0.0):
                    yield from self._settle(page, answer)
                    yield from self._checkpoint_if_due()
            elif not self._frontier and not self._ledger.give_up_waiting():
                return

    def _launch(self) -> Generator[Change, None, bool]:
        """Send one page off, with verdicts on those before it that are not to be fetched."""
        while len(self._ledger) < SAID:
            returning = any(page.has_document for page in self._host.flying)
            queue = self._frontier.queue(known_only=returning)
            if queue is None:
                return False
            page = queue[0]
            refusal = self._addresses.judge(page)
            if refusal is None and self._needs_room(page) and self._room <= self._reserved():
                if self._host.flying:
                    return False  # they may leave room
                if self._ledger.freed:
                    yield from self._checkpoint()
                    continue
                refusal = page.verdict("limit", "documentLimit is reached")
            if refusal is None:
                self._host.launch(page)  # the page still waits if that raises
                queue.popleft()
                self._addresses.branches.take(page.url)
                return True
            queue.popleft()
            self._ledger.say(refusal)
        return False

    def _needs_room(self, page: CrawlPage) -> bool:
        """Whether it would be one more document; what only moved takes the old one's place."""
        return not page.has_document and not any(
            one.redirect and one.page.has_document for one in self._ledger.waiting_for(page.url)
        )

    def _reserved(self) -> int:
        """How many documents the pages in flight may become."""
        return sum(self._needs_room(page) for page in self._host.flying)

    def _checkpoint_if_due(self) -> Generator[Change]:
        rows = len(self._ledger)
        late = rows > 0 and monotonic() - self._stored > SECONDS
        if late or self._pages >= BATCH or rows >= SAID:
            yield from self._checkpoint()

    def _said(self) -> Iterator[Change]:
        return self._titles.shorten(self._ledger.said())

    def _retitled(self) -> Generator[Change]:
        """What the pages share shows when many are there: those said before lose it now."""
        outdated = self._titles.outdated()
        for first in range(0, len(outdated), SAID):
            yield Checkpoint(self._state.as_cursor())
            rows = self._source.remembered(outdated[first : first + SAID])
            same = [as_before(row) for row in rows if row.verdict == "document" and row.version]
            yield from self._titles.shorten(same)

    def _checkpoint(self) -> Generator[Change]:
        yield from self._said()
        yield Checkpoint(self._state.as_cursor())
        self._pages = 0
        self._stored = monotonic()
        self._room = self._source.room()
        self._ledger.freed = False

    # --- answers ---

    def _settle(self, page: CrawlPage, answer: Visit) -> Generator[Change]:
        if not isinstance(answer, Transient):
            self._streak = 0
            self._shut_out = None
        match answer:
            case Fetched(status=304) if page.has_document and asks_to_hide(answer):
                self._frontier.add(replace(page, doubted=True), urgent=True)
            case Fetched(status=304):
                self._unchanged(page)
            case Fetched():
                self._pages += 1
                yield from self._read(page, answer)
            case Redirected():
                self._moved(page, answer.target)
            case NotHtml():
                extra = validators(answer.headers)
                self._dead_end(page, page.verdict("not_html", str(answer), extra=extra))
            case Permanent():
                self._refused(page, answer)
            case Transient():
                self._failed(page, answer)

    def _read(self, page: CrawlPage, fetched: Fetched) -> Generator[Change]:
        found = validators(fetched.headers)
        try:
            web = self._source.survey(fetched.blob)
        except Permanent as error:
            if error.code == "unsupported_kind":
                self._ledger.say(page.verdict("not_html", str(error), extra=found))
            else:
                self._ledger.say(page.verdict("error", str(error), keep=True, failed=True))
            return
        directives = [*web.directives, *told_in_headers(fetched.headers)]
        hidden = forbids_indexing(directives, self._source.since)
        canonical = None if hidden or page.doubted else self._canonical(page, web)
        if canonical is not None:
            extra = {**found, "canonical": canonical}
            self._defer(page, canonical, redirect=False, extra=extra)
            return
        links = [link for link in web.links if not self._addresses.has_met(link.url)]
        if len(self._ledger) + len(links) > MOST_ROWS:
            yield from self._checkpoint()
        follow = "nofollow" not in directives and "none" not in directives
        self._addresses.discover(page, links, follow=follow)
        if len(self._ledger) > MOST_ROWS:
            yield from self._checkpoint()  # of links alone: the page has no answer yet
        if hidden:
            detail = "the page asks not to be indexed"
            self._state.hidden += page.has_document
            confirm = self._state.hidden > MOST_HIDDEN or not is_same_text(page, web.extracted.text)
            self._ledger.say(page.verdict("noindex", detail, extra=found, confirm=confirm))
        else:
            self._keep(page, web, found)

    def _canonical(self, page: CrawlPage, web: WebPage) -> str | None:
        """The page that it says it is a copy of, if that is believable."""
        if web.canonical is None or page.hops > MOST_HOPS:
            return None
        try:
            target = _urls.normalise(web.canonical)
        except ValueError:
            return None
        own = _urls.split(target).host == self._scope.host
        return target if own and target != page.url else None

    def _keep(self, page: CrawlPage, web: WebPage, found: Mapping[str, str]) -> None:
        """Turn the page into a document, unless it says nothing, or nothing new."""
        text = web.extracted.text
        title = web.extracted.title
        version = version_of(text)
        print = fingerprint(text)
        words = self._notices.read(page, text, title)
        notice = words.first
        if words.wording is not None and notice is not None:
            self._ledger.hold(words.wording, notice)
            found = found if page.has_document else {}  # it may yet be a page of its own
        refusal = self._refusal_of_text(page, text, title, version, print, found, notice)
        if refusal is not None:
            self._ledger.say(refusal)
            return
        metadata = metadata_of(web)
        formerly = self._ledger.renaming(page, version, print)
        if formerly is not None:
            self._ledger.renamed.add(formerly)
        elif not page.has_document:
            self._room -= 1
            self._ledger.freed = True  # the filter may yet refuse it
        near = self._texts.nearest(page.url, print)
        written = None if print is None else print.hex()
        told = history(page, version, formerly, near, self._source.since)
        extra = {**page.place(), **found, "metadata": metadata, "told": told, SKETCH: words.sketch}
        if written is not None:
            extra["print"] = written
        self._texts.register(page.url, version, written)
        self._addresses.branches.bore(page.url, fruit=True)
        item = Item(
            id=page.url,
            version=version,
            title=title,
            url=page.url,
            kind="webpage",
            metadata=metadata,
            extra=extra,
            formerly=formerly,
            text=text,
            detail=told,
        )
        # A crawl that was interrupted forgot what it had compared, and does not delay again.
        if words.changed is None or not (notice or self._is_new):
            self._ledger.say(item)
            return
        self._ledger.delay(item, words.changed)
        if notice is not None:
            self._ledger.hold(words.changed, notice)

    def _refusal_of_text(
        self,
        page: CrawlPage,
        text: str,
        title: str | None,
        version: str,
        print: bytes | None,
        found: Mapping[str, str],
        notice: str | None,
    ) -> Verdict | None:
        if not page.has_document:
            reason = self._source.refused(title or "", page.url)
            if reason is None and page.entry:
                reason = self._scope.refusal(page.url)
            if reason is not None:
                return page.verdict("filtered", reason, title=title)
        if not text.strip():
            detail = "the page has no text; it may need JavaScript"
            return page.verdict("empty", detail, extra=found, title=title)
        kind, original = "duplicate", self._texts.owner(version)
        if original is None:
            kind, original = "near_duplicate", self._variant(page, print, notice)
        if original is not None and original != page.url:
            self._addresses.branches.bore(page.url, fruit=False)
            extra = {**found, "of": original, "hash": version}
            return page.verdict(kind, original, extra=extra, title=title)
        one_more = not page.has_document and self._ledger.renaming(page, version, print) is None
        if one_more and self._room <= 0:
            return page.verdict("limit", "documentLimit is reached", title=title)
        return None

    def _variant(self, page: CrawlPage, print: bytes | None, notice: str | None) -> str | None:
        """A page nearly the same that only the query tells apart: sorted, printed, in a session.

        Pages of different paths stay documents, however alike: a wrong merge loses content. A
        `notice` that stands for documents becomes no other one.
        """
        if page.has_document:
            return None
        if notice is not None:
            return notice
        near = self._texts.nearest(page.url, print)
        if near is None:
            return None
        one, other = _urls.split(near), _urls.split(page.url)
        return near if (one.origin, one.path) == (other.origin, other.path) else None

    def _unchanged(self, page: CrawlPage) -> None:
        """304: what its row says still holds, and so do its links."""
        row = page.known
        assert row is not None, "only what is known is asked for with conditions"
        if row.verdict in DOCUMENTS:
            self._texts.register(row.id, row.version, row.extra.get("print"))
            self._ledger.say(as_before(row))
        elif row.verdict == "canonical":
            self._defer(page, row.extra["canonical"], redirect=False, extra=row.extra)
        elif row.verdict in DENIED or self._still_said_by(row):
            self._ledger.say(page.verdict(row.verdict, row.detail, extra=row.extra))
        else:
            self._frontier.add(replace(page, doubted=True), urgent=True)
            return
        self._addresses.rediscover(page)

    def _still_said_by(self, row: Remembered) -> bool:
        """Whether the page that a copy was a copy of is still one with the same text."""
        original = row.extra.get("of", "")
        same = row.verdict == "near_duplicate" or self._texts.owner(row.extra.get("hash"))
        return self._ledger.settled.get(original, False) and bool(same)

    def _moved(self, page: CrawlPage, raw: str) -> None:
        try:
            target = _urls.normalise(raw)
        except ValueError as error:
            detail = f"redirects: {error}"
            self._ledger.say(page.verdict("error", detail, keep=True, failed=True))
            return
        if _urls.split(target).host == self._scope.host:
            self._defer(page, target, redirect=True, extra={})
        else:
            detail = f"redirects to {target}"
            self._dead_end(page, page.verdict("off_host", detail, confirm=True))

    def _defer(
        self, page: CrawlPage, target: str, *, redirect: bool, extra: Mapping[str, str]
    ) -> None:
        onward = self._ledger.defer(page, target, redirect=redirect, extra=extra)
        if onward is not None:
            self._addresses.admit(onward, urgent=True)

    def _refused(self, page: CrawlPage, error: Permanent) -> None:
        match error.code:
            # One that says it is gone for good may still be a mistake of a morning's deployment.
            case "http_404" | "http_410" if page.has_document:
                self._ledger.say(Missing(page.url, str(error)))
            case "http_404" | "http_410":
                self._dead_end(page, page.verdict("error", str(error)))
            case "too_large":
                self._dead_end(page, page.verdict("too_large", str(error)))
            case "blocked_target":
                self._ledger.say(page.verdict("blocked", str(error), keep=True))
                self._addresses.rediscover(page)
            case _:
                self._dead_end(page, page.verdict("error", str(error), keep=True, failed=True))
                self._addresses.rediscover(page)

    def _dead_end(self, page: CrawlPage, verdict: Verdict) -> None:
        self._ledger.say(noted(page, verdict, self._source.since))

    def _give_up(self, page: CrawlPage, error: Transient) -> None:
        self._ledger.say(page.verdict("error", str(error), keep=True, failed=True))
        self._addresses.rediscover(page)

    def _failed(self, page: CrawlPage, error: Transient) -> None:
        again = replace(page, tries=page.tries + 1)
        try:
            limited = self._host.hold(error, page.tries)
        except SiteParked:
            if self._state.park(page.url):
                self._frontier.add(page, urgent=True)
                raise
            self._give_up(page, error)
            return
        if limited:
            self._frontier.add(again, urgent=True)
            return
        self._streak += 1
        if again.tries < TRIES:
            self._frontier.add(again)
        else:
            self._give_up(page, error)
        if self._streak >= STREAK:
            self._streak = 0
            rules = self._host.fetch_rules(_urls.split(self._scope.start).origin)
            if rules.reason is not None:
                raise SiteParked(Transient(rules.reason, code=PROVIDER_UNAVAILABLE))
