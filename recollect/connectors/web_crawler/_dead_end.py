"""Addresses that lead nowhere each time: they are asked less and less often.

A dead link is asked again at the next crawl, for it may have been a mishap. From the second same
answer on it rests: 14 days, then 28, 56 and at last 84 between two requests. Its row keeps what was
said, how often and when, so that every crawl has its answer without a request. A crawl that a user
starts asks it as well; the same answer before its time does not extend its rest.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from recollect.connectors.base import Verdict
from recollect.connectors.web_crawler._page import CrawlPage
from recollect.loop import backoff

FIRST_REST = timedelta(days=14)
LONGEST_REST = timedelta(days=84)


def noted(page: CrawlPage, verdict: Verdict, now: datetime) -> Verdict:
    """The verdict with what must be remembered; of a document it stays as it is."""
    if page.has_document:
        return verdict
    before: Mapping[str, Any] = {} if page.known is None else page.known.extra
    said = [verdict.kind, verdict.detail]
    times = 1
    if before.get("said") == said:
        due = datetime.fromisoformat(before["asked"]) + _rest(before["times"])
        times = before["times"] + (now >= due)
    rest = _rest(times)
    detail = verdict.detail
    if rest:
        detail = f"{detail}; not asked again before {now + rest:%Y-%m-%d}"
    extra = {**verdict.extra, "said": said, "times": times, "asked": now.isoformat()}
    return replace(verdict, detail=detail, extra=extra)


def resting(page: CrawlPage, now: datetime) -> Verdict | None:
    """The last answer, if it is too early to ask again and no sitemap reports a change."""
    row = page.known
    if row is None or page.has_document or "asked" not in row.extra:
        return None
    asked = datetime.fromisoformat(row.extra["asked"])
    changed = page.modified is not None and page.modified > asked
    if changed or now >= asked + _rest(row.extra["times"]):
        return None
    said = page.verdict(row.verdict, row.detail, title=row.title)
    return replace(said, extra=row.extra)


def _rest(times: int) -> timedelta:
    if times < 2:
        return timedelta()
    return backoff(times - 1, FIRST_REST, LONGEST_REST)
