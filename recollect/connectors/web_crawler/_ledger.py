"""The answers for addresses: what is said with the next checkpoint, and what waits for another
page's answer first."""

from collections import deque
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from recollect.connectors.base import Change, Item, Missing, Verdict
from recollect.connectors.web_crawler._notices import MOST_RECENT, Wording
from recollect.connectors.web_crawler._page import (
    AGAIN,
    DOCUMENTS,
    LEADING,
    PLANNED,
    SAME,
    CrawlPage,
    Frontier,
)
from recollect.connectors.web_crawler._sameness import Sameness
from recollect.connectors.web_crawler._texts import are_near
from recollect.model import Remembered


@dataclass(frozen=True, slots=True)
class Deferral:
    """A page that says it is another one, until we know what that is."""

    page: CrawlPage
    target: str
    redirect: bool
    """or else a canonical link"""
    extra: Mapping[str, Any]


class CrawlLedger:
    def __init__(self, frontier: Frontier, start: str) -> None:
        self._frontier = frontier
        self._answers: list[Change] = []
        """to be said with the next checkpoint"""
        self._delayed: deque[tuple[Item, Wording]] = deque()
        """answers that may turn out to be a notice"""
        self._fresh: dict[str, CrawlPage] = {}
        """pages in the frontier or in flight that have no row yet"""
        self._waiting: dict[str, list[Deferral]] = {}
        self._awaits: dict[str, str] = {}
        self.settled: dict[str, bool] = {}
        """addresses that have their answer: whether it leads to a document"""
        self.had: set[str] = set()
        """addresses that came with a document"""
        self.renamed: set[str] = set()
        """those whose document is at another address now"""
        self.freed = False
        """a document may have gone since this was put back, or not have come"""
        self.sameness = Sameness(start)

    def __len__(self) -> int:
        """How many rows the next checkpoint makes."""
        return len(self._fresh) + len(self._answers)

    def plan(self, page: CrawlPage) -> None:
        self._fresh[page.url] = page

    def said(self) -> Generator[Change]:
        """What was planned and answered since the last time."""
        for page in self._fresh.values():
            yield page.verdict(PLANNED)
        yield from self._answers
        self._fresh.clear()
        self._answers.clear()

    def add(self, change: Change) -> None:
        """Say it without taking it for an answer."""
        self._answers.append(change)

    def say(self, change: Item | Verdict | Missing, *, leads: bool | None = None) -> None:
        """The answer for an address, and then for those that waited for it."""
        self._answers.append(change)
        self._settle(change, leads=leads)

    def delay(self, item: Item, wording: Wording) -> None:
        """A document's new text: its answer, to be said when others have answered as well."""
        self._delayed.append((item, wording))
        if len(self._delayed) > MOST_RECENT:
            self._answers.append(self._delayed.popleft()[0])
        self._settle(item)

    def say_delayed(self) -> None:
        self._answers += [item for item, _ in self._delayed]
        self._delayed.clear()

    def hold(self, wording: Wording, first: str) -> None:
        """What was delayed with this wording is a notice, found first on the page `first`: a
        document takes it only when another sync says so, too."""
        delayed, self._delayed = self._delayed, deque()
        for item, words in delayed:
            if not words.is_as(wording):
                self._delayed.append((item, words))
                continue
            self._answers.append(replace(item, confirm=True, detail=first))
            self.sameness.add(item.id, first, had=True)

    def _settle(self, change: Item | Verdict | Missing, *, leads: bool | None = None) -> None:
        url = change.url or change.id if isinstance(change, Verdict) else change.id
        if leads is None:
            leads = isinstance(change, Item) or (
                isinstance(change, Verdict) and (change.kind in LEADING or change.keep)
            )
        if url in self.had and not (isinstance(change, Verdict) and change.keep):
            self.freed = self.freed or not isinstance(change, Item)
        self._fresh.pop(url, None)
        self.settled[url] = leads
        if isinstance(change, Item):
            self.sameness.add(url, None, had=url in self.had)
        elif isinstance(change, Verdict) and change.kind in SAME:
            retired = change.kind == "redirect" and not change.confirm
            again = AGAIN in change.extra
            had = change.confirm
            self.sameness.add(url, change.detail, had=had, retired=retired, again=again)
        for deferral in self._waiting.pop(url, ()):
            self._resolve(deferral, leads=leads)

    def recall_answered(self, row: Remembered) -> None:
        """Take up an address that this crawl had read before it was interrupted. The detail of a
        document that is kept for now is the address that it leads to."""
        self.settled[row.id] = row.verdict in LEADING or row.verdict == "redirect"
        if row.verdict in DOCUMENTS | SAME:
            leads = (row.detail or "").startswith(("http://", "https://"))
            target, retired = row.detail if leads else None, row.verdict == "redirect"
            had, again = row.verdict in DOCUMENTS, AGAIN in row.extra
            url = row.url or row.id
            self.sameness.add(url, target, had=had, retired=retired, again=again)

    # --- pages that are other pages ---

    def defer(
        self, page: CrawlPage, target: str, *, redirect: bool, extra: Mapping[str, Any]
    ) -> CrawlPage | None:
        """Answer for a page when its target is; returns the target if nobody looked for it yet."""
        deferral = Deferral(page, target, redirect, extra)
        end = target
        while end in self._awaits:
            end = self._awaits[end]
        if end == page.url:
            if redirect:
                self.say(page.verdict("error", "redirects in a circle", keep=True))
            else:
                self._doubt(page)
        elif target in self.settled:
            self._resolve(deferral, leads=self.settled[target])
        else:
            self._awaits[page.url] = target
            self._waiting.setdefault(target, []).append(deferral)
            return CrawlPage(
                target, page.depth, page.url, hops=page.hops + 1, entry=page.entry and redirect
            )
        return None

    def waiting_for(self, url: str) -> Sequence[Deferral]:
        return self._waiting.get(url, ())

    def renaming(self, page: CrawlPage, version: str, print: bytes | None) -> str | None:
        """The document that used to be at an address which leads here now, if its text is here."""
        if page.has_document:
            return None
        for deferral in self.waiting_for(page.url):
            known = deferral.page.known
            if not deferral.redirect or known is None or not deferral.page.has_document:
                continue
            before = known.extra.get("print")
            if known.version == version or (before and are_near(bytes.fromhex(before), print)):
                return known.id
        return None

    def give_up_waiting(self) -> bool:
        """What they wait for is never looked at. Whether any waited."""
        waiting, self._waiting = self._waiting, {}
        for deferrals in waiting.values():
            for deferral in deferrals:
                self._resolve(deferral, leads=False)
        return bool(waiting)

    def _resolve(self, deferral: Deferral, *, leads: bool) -> None:
        page, target = deferral.page, deferral.target
        self._awaits.pop(page.url, None)
        if deferral.redirect:
            # What moved has its document elsewhere; of others a redirect may be a passing matter.
            confirm = page.url not in self.renamed
            self.say(page.verdict("redirect", target, confirm=confirm), leads=leads)
        elif leads:
            self.say(page.verdict("canonical", target, extra=deferral.extra), leads=True)
        else:
            self._doubt(page)

    def _doubt(self, page: CrawlPage) -> None:
        self._frontier.add(replace(page, doubted=True), urgent=True)
