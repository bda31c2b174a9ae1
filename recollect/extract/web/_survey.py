"""What an HTML page says beside its text: its links, and its statements about itself."""

import json
import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, cast

from selectolax.lexbor import LexborHTMLParser, LexborNode

from recollect.extract._text import clean_line
from recollect.extract._wire import MAX_LINKS, MAX_WORDS, WORD_LENGTH
from recollect.extract.web import _page
from recollect.model import Blob, Link, WebPage

_BOT = "recollectbot"
_LEADS = "a[href], area[href], frame[src], link[rel][href], meta[http-equiv][content]"
_UNENDORSED = frozenset({"nofollow", "ugc", "sponsored"})
_REFRESH = re.compile(r"\s*[\d.]*\s*[;,]?\s*(?:url\s*=\s*)?(?:'([^']*)|\"([^\"]*)|(\S*))", re.I)

_DIRECTIVE = re.compile(r"([a-z-]+(?:_[a-z]+)?)\s*:\s*(\S.*)", re.I)
_LANGUAGE = re.compile(r"[a-z]{2,8}(?:-[a-z0-9]{1,8}){0,7}", re.I)

_PUBLISHED = ("article:published_time", "og:article:published_time", "og:published_time")
_MODIFIED = ("article:modified_time", "og:article:modified_time", "og:updated_time")
_ISSUED = ("date", "pubdate", "dc.date", "dc.date.issued", "dcterms.issued", "dcterms.created")
_REVISED = ("last-modified", "dc.date.modified", "dcterms.modified", "revised")
_REVISION = re.compile(r"(?:^|[\s_-])(?:dt-)?(?:updated|modified|revised)", re.I)
_ISO_START = re.compile(r"(?:19|20)\d\d-?\d\d")
_SPACED_OFFSET = re.compile(r"\s+(?=[+-]\d\d:?\d\d$)")
_JSON_LENGTH = 1_000_000
_JSON_ITEMS = 1_000
_STORY = re.compile(r"Article|Posting|Report|NewsItem|WebPage|CreativeWork|Page$")
_TIMES = 200
"""that are looked at; what comes behind so many is not a date of the page"""
_AROUND = frozenset({"nav", "aside", "footer"})


def survey(blob: Blob) -> WebPage:
    """Raises Permanent for markup that would choke a parser."""
    parsed = _page.parse(blob)
    page = parsed.tree
    links = _links(page, parsed.base, parsed.encoding)
    canonical = _canonical(page, parsed.base)
    directives = _directives(page)
    language = _language(page)
    published, modified = _dates(page)
    extracted = _page.content(parsed)
    return WebPage(extracted, links, canonical, directives, language, published, modified)


def _links(page: LexborHTMLParser, base: str | None, encoding: str) -> list[Link]:
    """The first of them, navigation included; one that is endorsed anywhere counts as endorsed."""
    followed: dict[str, bool] = {}
    for node in page.css(_LEADS):
        address = _lead(node)
        if address is None:
            continue
        url = _page.absolute(address, base, encoding)
        if url is None:
            continue
        endorsed = not _UNENDORSED & _words(node, "rel")
        followed[url] = followed.get(url, False) or endorsed
        if len(followed) == MAX_LINKS:
            break
    return [Link(url, endorsed) for url, endorsed in followed.items()]


def _lead(node: LexborNode) -> str | None:
    match node.tag:
        case "link":
            return node.attributes.get("href") if _words(node, "rel") & {"next", "prev"} else None
        case "meta":
            if (node.attributes.get("http-equiv") or "").strip().lower() != "refresh":
                return None
            # Without an address the page only loads itself again.
            target = _REFRESH.match(node.attributes.get("content") or "")
            return next(filter(None, target.groups()), None) if target else None
        case "frame":
            return node.attributes.get("src") or ""
        case _:
            return node.attributes.get("href") or ""


def _words(node: LexborNode, attribute: str) -> set[str]:
    return set((node.attributes.get(attribute) or "").lower().split())


def _canonical(page: LexborHTMLParser, base: str | None) -> str | None:
    """Only the head's: the body may hold what visitors wrote. Two that differ say nothing. A page
    that leads elsewhere at once says by that where it is read."""
    named = (
        {
            _page.absolute(node.attributes.get("href") or "", base)
            for node in page.css("head > link[rel][href]")
            if "canonical" in _words(node, "rel")
        }
        or {
            _page.absolute(target, base)
            for node in page.css("head > meta[http-equiv][content]")  # in noscript it is for others
            if (target := _lead(node))
            and (node.attributes.get("content") or "").lstrip()[:1] == "0"
        }
    )
    return named.pop() if len(named) == 1 else None


def _directives(page: LexborHTMLParser) -> list[str]:
    """Of all bots and of ours; where they differ, both: the stricter one wins with who reads it."""
    found: dict[str, None] = {}
    for node in page.css("meta[name][content]"):
        if (node.attributes.get("name") or "").strip().lower() in ("robots", _BOT):
            found |= dict.fromkeys(_rules(node.attributes.get("content") or ""))
    return list(found)[:MAX_WORDS]


def _rules(content: str) -> Iterator[str]:
    dated = ""
    for piece in clean_line(content).split(","):
        word = piece.strip()
        if dated and word[:1].isdigit():  # the date of `unavailable_after: Wed, 25 Jun …` goes on
            dated += f", {word}"
            continue
        if dated:
            yield dated[:WORD_LENGTH]
            dated = ""
        match = _DIRECTIVE.fullmatch(word)
        if match and match[1].lower() == "unavailable_after":
            dated = f"unavailable_after: {match[2]}"
        elif match:
            yield f"{match[1]}: {match[2]}".lower()[:WORD_LENGTH]
        elif word.lower() == "none":
            yield from ("noindex", "nofollow")
        elif word:
            # Some write spaces where commas belong.
            yield from (part[:WORD_LENGTH] for part in word.lower().split())
    if dated:
        yield dated[:WORD_LENGTH]


def _language(page: LexborHTMLParser) -> str | None:
    root = page.root
    if root is None:
        return None
    declared = root.attributes.get("lang") or root.attributes.get("xml:lang") or ""
    tag = declared.strip().replace("_", "-")
    return tag if _LANGUAGE.fullmatch(tag) else None


# --- dates -------------------------------------------------------------------------------------


def _dates(page: LexborHTMLParser) -> tuple[str | None, str | None]:
    """When it was published and changed: what it says to those it is shared with counts most."""
    said = _metas(page)
    data = _linked_data(page)
    first, last = _times(page)
    published = _first_date(
        (said.get(name) for name in _PUBLISHED),
        (_text(item.get("datePublished")) for item in data),
        _properties(page, "datePublished"),
        (said.get(name) for name in _ISSUED),
        [first],
    )
    modified = _first_date(
        (said.get(name) for name in _MODIFIED),
        (_text(item.get("dateModified")) for item in data),
        _properties(page, "dateModified"),
        (said.get(name) for name in _REVISED),
        [last],
    )
    return published, modified


def _first_date(*sources: Iterable[str | None]) -> str | None:
    return next((date for source in sources for text in source if (date := _date(text))), None)


def _date(text: str | None) -> str | None:
    """The text, if it is a date or a time of ISO 8601 that someone may have meant."""
    if not text or len(text) > WORD_LENGTH:
        return None
    date = _SPACED_OFFSET.sub("", text.strip())
    try:
        datetime.fromisoformat(date)
    except ValueError:
        return None
    return date if _ISO_START.match(date) else None


def _metas(page: LexborHTMLParser) -> dict[str, str]:
    said: dict[str, str] = {}
    for node in page.css("meta[content]"):
        name = node.attributes.get("property") or node.attributes.get("name") or ""
        name = name or node.attributes.get("http-equiv") or ""
        said.setdefault(name.strip().lower(), node.attributes.get("content") or "")
    return said


def _properties(page: LexborHTMLParser, name: str) -> Iterator[str | None]:
    for node in page.css(f"[itemprop~={name}]"):
        given = node.attributes
        yield given.get("content") or given.get("datetime") or node.text(deep=False)


def _times(page: LexborHTMLParser) -> tuple[str | None, str | None]:
    """The first `time` of the page that is not about something else, and one that says updated."""
    first = last = None
    for node in page.css("time[datetime]")[:_TIMES]:
        text = _date(node.attributes.get("datetime"))
        if text is None or _stands_around(node):
            continue
        if _REVISION.search(node.attributes.get("class") or ""):
            last = last or text
        else:
            first = first or text
        if first and last:
            break
    return first, last


def _stands_around(node: LexborNode) -> bool:
    around = node.parent
    while around is not None:
        if around.tag in _AROUND:
            return True
        around = around.parent
    return False


def _linked_data(page: LexborHTMLParser) -> list[dict[str, Any]]:
    """The things that JSON-LD describes, stories first; not those only mentioned within others."""
    found: list[dict[str, Any]] = []
    for node in page.css('script[type="application/ld+json" i]'):
        text = node.text()
        if len(text) > _JSON_LENGTH:
            continue
        try:
            found += _things(json.loads(text, strict=False))
        except (ValueError, RecursionError):
            continue
    return sorted(found, key=lambda item: not _STORY.search(_kind(item)))


def _things(value: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    waiting = [value]
    while waiting and len(found) < _JSON_ITEMS:
        thing = waiting.pop(0)
        if isinstance(thing, list):
            waiting = cast(list[object], thing)[:_JSON_ITEMS] + waiting
        elif isinstance(thing, dict):
            item = cast(dict[str, Any], thing)
            found.append(item)
            waiting += [item[name] for name in ("@graph", "mainEntity") if name in item]
    return found


def _kind(item: dict[str, Any]) -> str:
    kind = item.get("@type")
    return " ".join(map(str, cast(list[object], kind))) if isinstance(kind, list) else str(kind)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
