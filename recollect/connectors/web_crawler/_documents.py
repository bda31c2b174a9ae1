"""How a page stands to the document that it was."""

from datetime import datetime
from typing import Any

from recollect.connectors.base import Item
from recollect.connectors.web_crawler._page import CrawlPage
from recollect.connectors.web_crawler._texts import are_near, fingerprint, version_of
from recollect.model import Remembered, WebPage


def as_before(row: Remembered) -> Item:
    """A document that is as it was."""
    assert row.version is not None, "without one, only its text would tell"
    return Item(
        id=row.id,
        version=row.version,
        title=row.title,
        url=row.url,
        kind="webpage",
        metadata=row.extra.get("metadata", {}),
        extra=row.extra,
        # Not what happened in between: it answers again.
        detail=row.extra.get("told", "unchanged"),
    )


def is_same_text(page: CrawlPage, text: str) -> bool:
    """Whether the page still says what its document says, or nearly."""
    if page.known is None:
        return False
    before = page.known.extra.get("print")
    same = page.known.version == version_of(text)
    return same or (before is not None and are_near(bytes.fromhex(before), fingerprint(text)))


def metadata_of(web: WebPage) -> dict[str, Any]:
    told = {"published": web.published, "modified": web.modified, "language": web.language}
    return {name: value for name, value in told.items() if value is not None}


def history(
    page: CrawlPage, version: str, formerly: str | None, near: str | None, now: datetime
) -> str:
    """What people may want to know of how a document came, or came to change.

    The same as long as the page is: then a crawl writes nothing but that it was seen.
    """
    known = page.known
    if page.has_document and known is not None and known.version == version:
        return known.extra.get("told", "unchanged")
    if formerly is not None:
        told = f"moved here from {formerly}"
    elif page.has_document:
        told = f"changed on {now:%Y-%m-%d}"
    else:
        told = f"found on {page.referrer}" if page.referrer else "the start page"
    return told if near is None else f"{told}; says nearly the same as {near}"
