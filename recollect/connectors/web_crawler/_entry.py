"""What stops a crawl at its start page, before anything could be taken for gone."""

from collections.abc import Callable
from typing import NamedTuple

from recollect.connectors import _urls
from recollect.connectors._robots import AGENT
from recollect.connectors.api import PROVIDER_UNAVAILABLE
from recollect.connectors.base import Trouble
from recollect.connectors.web_crawler._visit import NotHtml, Redirected, Visit
from recollect.errors import Permanent, Transient


def shut_out(rule: str | None) -> Trouble:
    """Of a site that may not be crawled at all."""
    return Trouble(
        f"The start page may not be crawled ({rule}), and no other page was found. Documents stay"
        f" as they are. Ask the owner of the site to allow {AGENT}, or use another startUrl.",
        "robots",
    )


class NoEntry(NamedTuple):
    verdict: str
    detail: str
    """of the start page"""
    message: str
    code: str
    """of the trouble"""


def no_entry(answer: Visit, is_own: Callable[[str], bool]) -> NoEntry | None:
    """Why the crawl cannot begin with this answer; None: it can."""
    match answer:
        case Transient():
            told = f"The start page cannot be reached: {answer}."
            return NoEntry("error", str(answer), told, PROVIDER_UNAVAILABLE)
        case Permanent(code="blocked_target"):
            told = f"The start page must not be fetched: {answer}."
            return NoEntry("blocked", str(answer), told, "blocked_target")
        case Redirected() if not is_own(answer.target):
            told = (
                f"The start page redirects to another host, {_urls.split(answer.target).host}."
                f" If you mean that site, use {answer.target} as startUrl."
            )
            return NoEntry("off_host", f"redirects to {answer.target}", told, "off_host")
        case NotHtml():
            told = f"The start page is {answer}, not HTML. Use an HTML page as startUrl."
            return NoEntry("not_html", str(answer), told, "start_page")
        case _:
            return None
