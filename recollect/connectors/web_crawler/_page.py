"""An address of the site: how it was found, what is known of it, and where it waits."""

import hashlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

from recollect.connectors import _urls
from recollect.connectors.base import Verdict
from recollect.model import Remembered

MOST_HOPS = 10
"""redirects and canonical links in a row"""

SKETCH = "sketch"
"""In the extra of a document: see `_texts.sketch`."""
AGAIN = "again"
"""In the extra of a page without a document that leads to another one: a crawl before said so."""
PLANNED = "planned"
DOCUMENTS = frozenset({"document", "deleted"})
"""verdicts on rows that are documents, or were until a user deleted them"""
SAME = frozenset({"duplicate", "near_duplicate", "redirect"})
"""verdicts whose detail is the address of the page that counts instead"""
LEADING = DOCUMENTS | {"canonical", "duplicate", "near_duplicate"}
"""verdicts that lead to a document, there or elsewhere"""
DENIED = frozenset({"not_html", "noindex", "empty"})
"""verdicts that stay as they are while the page does"""
DOUBTFUL = frozenset(
    {"not_html", "too_large", "empty", "duplicate", "canonical", "redirect", "noindex"}
)
"""verdicts that a notice of maintenance, or a login page in between, gives to every page: documents
go when they are said a second time"""


@dataclass(frozen=True, slots=True)
class CrawlPage:
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
    """its row, if another crawl asked for it"""
    modified: datetime | None = None
    """as a sitemap says"""
    troubled: bool = False
    """a trouble tells what is wrong with it"""

    @classmethod
    def of(cls, row: Remembered) -> Self:
        return cls(
            url=row.id if row.id.isascii() else row.url or row.id,
            depth=row.extra.get("depth", 0),
            referrer=row.extra.get("from"),
            hops=row.extra.get("hops", 0),
            entry=row.extra.get("entry", False),
            known=None if row.verdict == PLANNED else row,
        )

    @property
    def has_document(self) -> bool:
        return self.known is not None and self.known.verdict in DOCUMENTS

    def conditions(self) -> dict[str, str]:
        """Headers that ask only for what is new."""
        if self.known is None or self.doubted:
            return {}
        if self.has_document and (self.known.version is None or SKETCH not in self.known.extra):
            return {}  # only its text would tell
        extra = self.known.extra
        sent = {"if-none-match": extra.get("etag"), "if-modified-since": extra.get("modified")}
        return {name: value for name, value in sent.items() if value}

    def place(self) -> dict[str, Any]:
        """How it was found, by its row."""
        told = {"depth": self.depth, "from": self.referrer, "hops": self.hops, "entry": self.entry}
        return {name: value for name, value in told.items() if value or name == "depth"}

    def verdict(
        self,
        kind: str,
        detail: str | None = None,
        *,
        keep: bool = False,
        confirm: bool | None = None,
        failed: bool = False,
        title: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Verdict:
        """An answer for it that is not a document; of one that has none, there is nothing to keep
        or to confirm."""
        told = {**self.place(), **(extra or {})}
        known = self.known
        if kind in SAME and known is not None and not self.has_document:
            told |= {AGAIN: True} if (known.verdict, known.detail) == (kind, detail) else {}
        return Verdict(
            id=_row_id(self.url),
            kind=kind,
            detail=detail,
            extra=told,
            keep=keep and self.has_document,
            confirm=self.has_document and (kind in DOUBTFUL if confirm is None else confirm),
            url=self.url,
            title=title,
            failed=failed,
            counted=not self.troubled,
        )


def _row_id(url: str) -> str:
    """Long ones are cut, since no index takes them."""
    if len(url) <= _urls.LONGEST:
        return url
    return f"{url[:200]}…{hashlib.sha256(url.encode()).hexdigest()[:16]}"


@dataclass
class Frontier:
    """Pages to fetch: those with documents first, so that what they free is known by then."""

    known: deque[CrawlPage] = field(default_factory=deque[CrawlPage])
    found: deque[CrawlPage] = field(default_factory=deque[CrawlPage])

    def __bool__(self) -> bool:
        return bool(self.known or self.found)

    def add(self, page: CrawlPage, *, urgent: bool = False) -> None:
        queue = self.known if page.has_document else self.found
        if urgent:
            queue.appendleft(page)
        else:
            queue.append(page)

    def take(self, url: str) -> CrawlPage | None:
        """The page of this address, out of the middle of the queue."""
        for queue in (self.known, self.found):
            for waiting in [one for one in queue if one.url == url]:
                queue.remove(waiting)
                return waiting
        return None

    def queue(self, *, known_only: bool) -> deque[CrawlPage] | None:
        """Where the next page stands."""
        if self.known:
            return self.known
        return self.found if self.found and not known_only else None
