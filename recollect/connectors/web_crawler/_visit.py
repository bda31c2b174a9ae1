"""One fetch of an address, and what its answer says without being read."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from recollect.connectors._robots import AGENT, header_directives
from recollect.errors import Permanent, Transient
from recollect.fetch import Fetched, Fetcher


class Redirected(Exception):
    """The answer is a redirect, which was not followed."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.target = target


class NotHtml(Exception):
    """The answer is something else, and was not read to its end."""

    def __init__(self, answer: Fetched) -> None:
        super().__init__(answer.mime or "of no type")
        self.headers = answer.headers


Visit = Fetched | Redirected | NotHtml | Permanent | Transient
"""what became of it"""


AS_HTML = {"accept": "text/html, application/xhtml+xml, */*;q=0.5"}
"""for sites that have a page in several forms, or refuse who takes all of them alike"""


def visit_page(fetcher: Fetcher, url: str, headers: Mapping[str, str]) -> Visit:
    """A page of HTML.

    Redirects are links: each address is judged, fetched and remembered by itself.
    """
    sent = {**AS_HTML, **headers}
    return _outcome(lambda: fetcher.get(url, headers=sent, admit=_stop, sniff=_only_html))


def visit_file(
    fetcher: Fetcher, url: str, admit: Callable[[str], None] | None, enough: int | None
) -> Visit:
    """What the site publishes for robots: its robots.txt, a sitemap."""
    return _outcome(lambda: fetcher.get(url, admit=admit, enough=enough))


def _outcome(fetch: Callable[[], Fetched]) -> Visit:
    try:
        return fetch()
    except (Redirected, NotHtml, Permanent, Transient) as error:
        return error


def _stop(target: str) -> None:
    raise Redirected(target)


_HTML = frozenset({"text/html", "application/xhtml+xml"})
_TAGS = (b"<!doctype html", b"<html", b"<head", b"<body", b"<title", b"<!--")
_BINARY = (b"%PDF", b"\x89PNG", b"GIF8", b"\xff\xd8\xff", b"PK\x03\x04", b"\x1f\x8b", b"RIFF")
_WIDE = (b"\xff\xfe", b"\xfe\xff")
"""marks of encodings in which zero bytes are common"""


def _only_html(answer: Fetched, head: bytes | None) -> None:
    """Stop reading an answer that is not HTML, by the type that the server names or by its
    bytes."""
    if head is None:
        is_html = answer.mime is None or answer.mime in _HTML
    elif head.startswith(_BINARY) or (b"\0" in head and not head.startswith(_WIDE)):
        is_html = False
    elif answer.mime is None:
        is_html = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower().startswith(_TAGS)
    else:
        is_html = True
    if not is_html:
        raise NotHtml(answer)


def validators(headers: Mapping[str, str]) -> dict[str, str]:
    """What a conditional request needs; none where headers forbid indexing, since 304 would not
    say that they have ended."""
    if "noindex" in told_in_headers(headers):
        return {}
    kept = {"etag": headers.get("etag"), "modified": headers.get("last-modified")}
    return {
        name: value
        for name, value in kept.items()
        if value is not None and len(value) <= 300 and value.isascii() and value.isprintable()
    }


def told_in_headers(headers: Mapping[str, str]) -> tuple[str, ...]:
    """What the site asks of this robot in the headers of the page."""
    return header_directives(headers.get("x-robots-tag", ""), AGENT)


def asks_to_hide(answer: Fetched) -> bool:
    """Whether its headers alone forbid indexing."""
    return "noindex" in told_in_headers(answer.headers)


def forbids_indexing(directives: Sequence[str], now: datetime) -> bool:
    for directive in directives:
        if directive in ("noindex", "none"):
            return True
        name, _, date = directive.partition(":")
        if name == "unavailable_after":
            end = moment(date.strip())
            if end is not None and end < now:
                return True
    return False


def moment(text: str) -> datetime | None:
    """A date as machines write it; in UTC where it does not say."""
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        with suppress(ValueError, OverflowError):
            found = read(text)
            return found if found.tzinfo else found.replace(tzinfo=UTC)
    return None
