"""The addresses that a crawl met: which wait to be fetched, which need not be, and which may not.

Whatever is met gets an answer, bounded where a site has no end.
"""

from collections.abc import Sequence
from dataclasses import replace

from recollect.connectors import _urls
from recollect.connectors.base import Source, Verdict
from recollect.connectors.web_crawler._dead_end import resting
from recollect.connectors.web_crawler._host import Host
from recollect.connectors.web_crawler._ledger import CrawlLedger
from recollect.connectors.web_crawler._page import (
    DENIED,
    LEADING,
    MOST_HOPS,
    CrawlPage,
    Frontier,
)
from recollect.connectors.web_crawler._scope import CrawlScope
from recollect.model import Link, Remembered

MOST_URLS = 100_000
"""addresses of one site that are kept in mind"""
MOST_ABROAD = 1_000
"""addresses of other hosts that are noted; after that, as many hosts"""

MASK = "…@"
"""instead of the user name and password in an address"""


class Addresses:
    def __init__(
        self, source: Source, scope: CrawlScope, host: Host, frontier: Frontier, ledger: CrawlLedger
    ) -> None:
        self._source = source
        self._scope = scope
        self._host = host
        self._frontier = frontier
        self._ledger = ledger
        self._elsewhere = f"the host is not {scope.host}"
        self.branches = _urls.Branches(source.since.date())
        self._seen: set[str] = set()
        """those of this host that were judged or wait in the frontier"""
        self._foreign: set[str] = set()
        """those of others"""
        self._abroad = 0
        self._deep: set[str] = set()
        self._unfollowed: set[str] = set()
        self._stale: dict[str, CrawlPage] = {}
        """those without a document that another crawl saw"""
        self._quiet: dict[str | None, list[Remembered]] = {}
        """page → rows that its links made, which hold as long as it does"""

    # --- what is known from before ---

    def recall(self, row: Remembered) -> None:
        """A row that another crawl made, and that is not a document."""
        page = CrawlPage.of(row)
        linked_only = row.verdict == "nofollow" or self._is_abroad(row) or MASK in row.id
        if linked_only:
            self._quiet.setdefault(page.referrer, []).append(row)
        else:
            self._stale[page.url] = page

    def recall_answered(self, row: Remembered) -> None:
        """This crawl had it already."""
        if row.verdict == "nofollow":
            self._unfollowed.add(row.id)
            return
        if self._is_abroad(row):
            self._foreign.add(row.id)
            self._abroad += 1
            return
        self._seen.add(row.id)
        self._ledger.recall_answered(row)
        if row.verdict in LEADING | DENIED:
            self.branches.take(row.id)

    def _is_abroad(self, row: Remembered) -> bool:
        """Pages of this host that only redirect elsewhere are not."""
        return row.verdict == "off_host" and _urls.split(row.id).host != self._scope.host

    def await_turn(self, page: CrawlPage) -> None:
        """It waits already, or is a document: nothing speaks against it but its rules."""
        self._seen.add(page.url)
        self._frontier.add(page)

    def take_entry(self) -> CrawlPage:
        """The start page, taken from wherever it waits."""
        url = self._scope.start
        page = self._stale.pop(url, None)
        page = self._frontier.take(url) or page
        self._seen.add(url)
        if page is None:
            page = CrawlPage(url, 0)
            self._ledger.plan(page)
        return replace(page, depth=0, entry=True)

    def stale(self) -> list[CrawlPage]:
        """What another crawl saw and this one did not meet yet."""
        return list(self._stale.values())

    # --- meeting ---

    def has_met(self, url: str) -> bool:
        return url in self._seen or url in self._foreign

    def admit(self, page: CrawlPage, *, urgent: bool = False) -> None:
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
            self._ledger.say(page.verdict("trap", reason))
        elif page.hops > MOST_HOPS:
            self._ledger.say(page.verdict("error", f"more than {MOST_HOPS} redirects led here"))
        elif page.depth > self._scope.depth:
            self._deep.add(url)
            detail = f"more than {self._scope.depth} links from the start page"
            self._ledger.say(page.verdict("depth", detail))
        else:
            self._frontier.add(page, urgent=urgent)
            if before is None:
                self._ledger.plan(page)

    def discover(self, page: CrawlPage, links: Sequence[Link], *, follow: bool) -> None:
        """Links that a page has now."""
        for link in links:
            if self.has_met(link.url):
                continue
            try:
                found = CrawlPage(_urls.normalise(link.url), page.depth + 1, page.url)
            except ValueError as error:
                self._note_blocked(page, link.url, str(error))
                continue
            if follow and link.followed:
                self.admit(found)
            else:
                self._note_unfollowed(found)

    def rediscover(self, page: CrawlPage) -> None:
        """Links that it had when it was read last, and still has."""
        for row in self._quiet.pop(page.url, ()):
            link = CrawlPage(row.id, page.depth + 1, page.url)
            match row.verdict:
                case "nofollow":
                    self._note_unfollowed(link)
                case "off_host":
                    self.admit(link)
                case _:
                    self._ledger.say(link.verdict(row.verdict, row.detail))

    def _overflow(self) -> None:
        sign = f"{self._scope.start}#more"
        if sign not in self._ledger.settled:
            detail = f"more than {MOST_URLS:,} addresses were seen; further ones are not noted"
            self._ledger.say(CrawlPage(sign, 0).verdict("limit", detail))

    def _note_abroad(self, page: CrawlPage) -> None:
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
        self._ledger.say(named.verdict("off_host", self._elsewhere))

    def _note_blocked(self, page: CrawlPage, url: str, reason: str) -> None:
        """Without the password that it may carry."""
        scheme, _, rest = url.partition("://")
        hidden = f"{scheme}://{MASK}{rest.rpartition('@')[2]}"
        if hidden not in self._ledger.settled:
            masked = CrawlPage(hidden, page.depth + 1, page.url)
            self._ledger.say(masked.verdict("blocked", reason))

    def _note_unfollowed(self, page: CrawlPage) -> None:
        """It may still be found by another link."""
        url = page.url
        if url in self._seen or url in self._unfollowed or len(self._unfollowed) >= MOST_URLS:
            return
        if _urls.split(url).host != self._scope.host:
            self.admit(page)
            return
        self._unfollowed.add(url)
        if url not in self._stale:
            reason = f"only linked with nofollow, by {page.referrer}"
            self._ledger.add(page.verdict("nofollow", reason))

    # --- judging ---

    def judge(self, page: CrawlPage) -> Verdict | None:
        """Why a page is not to be fetched. Raises Parked."""
        parts = _urls.split(page.url)
        if parts.host != self._scope.host:  # startUrl was changed
            return page.verdict("off_host", self._elsewhere)
        rules = self._host.rules_of(parts.origin)
        rule = rules.verdict(parts.target)
        if not rule.allowed:
            detail = rule.reason or f"robots.txt line {rule.number}: {rule.line}"
            # A slip in this file must not delete a site; a page that is to go says noindex or 404.
            return page.verdict("robots", detail, keep=True)
        if page.entry:
            return None
        reason = self._scope.refusal(page.url)
        if reason is None and not page.has_document:
            reason = self._source.refused(None, page.url)
        if reason is not None:
            return page.verdict("filtered", reason)
        asked = self._source.asked
        if not asked and (before := resting(page, self._source.since)) is not None:
            return before
        if page.has_document or page.hops:
            return None
        if (reason := self.branches.judge(page.url)) is not None:
            return page.verdict("trap", reason)
        if page.tries == 0 and not page.doubted and (same := self.branches.reordered(page.url)):
            return page.verdict("duplicate", same, extra={"of": same})
        return None
