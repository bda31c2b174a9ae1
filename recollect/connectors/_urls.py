"""Addresses as a crawler sees them: one spelling for each page, and which lead nowhere. No I/O.

What is changed here is only what cannot matter to the server, or is known not to: the order of
parameters, trailing slashes and `index.html` stay as they are.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import date
from urllib.parse import unquote

import ada_url

LONGEST = 2_048
"""characters of an address"""
MOST_SEGMENTS = 20
MOST_REPEATS = 2
"""times that one word may stand in a path"""
MOST_FACETS = 100
"""addresses of one path with three parameters or more"""
MOST_DAYS = 100
"""addresses of a calendar that differ in nothing but numbers"""
MOST_BARREN = 100
"""pages in a row below one folder, or of one path, that say nothing new"""
CALENDAR_AHEAD = 2
"""years"""
CALENDAR_BEGINS = 1990

_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")

_PATH_SESSION = re.compile(r";jsessionid=[^/;]*", re.IGNORECASE)
_TRACKING = re.compile(
    r"utm_\w+|mtm_\w+|pk_(?:campaign|kwd|source|medium|content|keyword|cid)"
    r"|[dg]clid|gclsrc|[gw]braid|fbclid|msclkid|yclid|twclid|ttclid|li_fat_id|igshid"
    r"|mc_[ce]id|mkt_tok|_hsenc|_hsmi|oly_(?:anon|enc)_id|vero_id|_gl|_ga"
    r"|phpsessid|jsessionid|aspsessionid\w*",
    re.IGNORECASE,
)
_SESSION = re.compile(r"sid|sess|session|session_?id", re.IGNORECASE)
_TICKET = re.compile(r"(?=\w*\d)[\w-]{16,}", re.ASCII)
"""what a machine made up: long, with a digit"""
_MADE_UP = re.compile(
    r"(?<![A-Za-z0-9])(?=[0-9]*[A-Za-z])(?=[A-Za-z]*[0-9])[A-Za-z0-9]{12,}(?![A-Za-z0-9])"
)
"""the same in a path: letters and digits together, and not words between hyphens"""

_DIGITS = re.compile(r"\d+")
_CALENDAR = re.compile(
    r"(?<![a-z])(?:calend[ae]r|calendrier|calendario|kalender|agenda|events?|termine?"
    r"|year|month|week|day|date)(?![a-z])",
    re.IGNORECASE,
)
_YEAR = re.compile(
    r"(?<!\d)(\d{4})[-/](?:0?[1-9]|1[0-2])(?!\d)"
    r"|[?&;/](?:y|yr|year|jahr|annee|ano)[=/](\d{4})(?!\d)",
    re.IGNORECASE,
)


def normalise(raw: str, base: str | None = None) -> str:
    """The one spelling of an address; raises ValueError with a reason for people.

    Case of scheme and host, default port, dot segments, fragment (WHATWG); escapes as RFC 3986
    6.2.2 has them; without parameters that only count visitors or name a session.
    """
    try:
        url = ada_url.URL(raw, base)
    except ValueError as error:
        raise ValueError("not a valid URL") from error
    if url.protocol not in ("http:", "https:"):
        raise ValueError("only http and https URLs can be fetched")
    if url.username or url.password:
        raise ValueError("a URL must not contain a user name or password")
    path = _unescaped(url.pathname)
    query = _unescaped(url.search.removeprefix("?"))
    named = _PATH_SESSION.sub("", path)
    asked = "&".join(piece for piece in query.split("&") if not _is_noise(piece))
    plain = f"{url.protocol}//{url.host}{named}{f'?{asked}' if asked else ''}"
    # What was cut out may have stood in front of dots, or escapes, that mean something alone.
    return plain if (named, asked) == (path, query) else normalise(plain)


def _unescaped(text: str) -> str:
    """Escapes in capitals, and none where none is needed."""
    if "%" not in text:
        return text
    if _BROKEN_ESCAPE.search(text):  # taken apart, it might read as another escape
        return _ESCAPE.sub(lambda found: found[0].upper(), text)
    return _ESCAPE.sub(_plain, text)


def _plain(escape: re.Match[str]) -> str:
    character = chr(int(escape[1], 16))
    return character if character in _UNRESERVED else escape[0].upper()


def _is_noise(parameter: str) -> bool:
    name, _, value = parameter.partition("=")
    if _TRACKING.fullmatch(name):
        return True
    return _SESSION.fullmatch(name) is not None and _TICKET.fullmatch(value) is not None


@dataclass(frozen=True, slots=True)
class UrlParts:
    """Of a normalised address."""

    origin: str
    """scheme, host and port: what a robots.txt speaks for"""
    host: str
    """without port"""
    path: str
    query: str

    @property
    def target(self) -> str:
        """path and query, as on the wire"""
        return f"{self.path}?{self.query}" if self.query else self.path


def split(url: str) -> UrlParts:
    scheme, _, rest = url.partition("://")
    authority, slash, rest = rest.partition("/")
    path, _, query = rest.partition("?")
    host, colon, port = authority.rpartition(":")
    if not colon or not port.isdecimal():  # the colons of an IPv6 address are none
        host = authority
    return UrlParts(f"{scheme}://{authority}", host, slash + path, query)


def pathological(url: str) -> str | None:
    """Why the address alone suggests that a loop in the site made it."""
    if len(url) > LONGEST:
        return f"the address is longer than {LONGEST:,} characters"
    segments = [segment for segment in split(url).path.split("/") if segment]
    if len(segments) > MOST_SEGMENTS:
        return f"the path has more than {MOST_SEGMENTS} parts"
    repeated = Counter(segment for segment in segments if not segment.isdecimal())
    for segment, times in repeated.items():
        if times > MOST_REPEATS:
            return f"{unquote(segment)[:60]!r} is in the path {times} times"
    return None


@dataclass
class Branches:
    """What came of the parts of a site so far, to notice one that has no end. Each rule needs more
    than a large number as a sign: a shop may well have ten thousand `?id=`.
    """

    today: date
    _facets: Counter[str] = field(default_factory=Counter[str])
    _calendars: Counter[str] = field(default_factory=Counter[str])
    _barren: Counter[str] = field(default_factory=Counter[str])
    _orders: dict[tuple[str, ...], str] = field(default_factory=dict[tuple[str, ...], str])

    def judge(self, url: str) -> str | None:
        """Why one more address is likely to lead nowhere."""
        parts = split(url)
        branch = _branch(parts)
        if self._barren[branch] >= MOST_BARREN:
            return f"the last {MOST_BARREN} pages of {branch} said nothing new"
        if _is_faceted(parts) and self._facets[parts.origin + parts.path] >= MOST_FACETS:
            return f"{parts.path} has more than {MOST_FACETS} combinations of parameters"
        return self._judge_calendar(parts)

    def reordered(self, url: str) -> str | None:
        """The address taken before that has the same parameters in another order."""
        before = self._orders.get(_unordered(split(url)))
        return before if before != url else None

    def take(self, url: str) -> None:
        """It was fetched, or will be."""
        parts = split(url)
        if "&" in parts.query:
            self._orders.setdefault(_unordered(parts), url)
        if _is_faceted(parts):
            self._facets[parts.origin + parts.path] += 1
        if _calendar_year(parts) is not None:
            self._calendars[_shape(parts)] += 1

    def bore(self, url: str, *, fruit: bool) -> None:
        """Whether it said anything that others had not."""
        branch = _branch(split(url))
        if fruit:
            del self._barren[branch]
        else:
            self._barren[branch] += 1

    def _judge_calendar(self, parts: UrlParts) -> str | None:
        year = _calendar_year(parts)
        if year is None:
            return None
        if not CALENDAR_BEGINS <= year <= self.today.year + CALENDAR_AHEAD:
            return f"a calendar, in the year {year}"
        if self._calendars[_shape(parts)] >= MOST_DAYS:
            return f"a calendar of which {MOST_DAYS} pages are known"
        return None


def _branch(parts: UrlParts) -> str:
    """What pages are siblings within: the path if a query tells them apart, else the folder. If
    the path has a word that a machine made up, which may name a session: all such paths."""
    shape = _MADE_UP.sub("*", parts.path)
    if not parts.query and shape == parts.path:
        shape = parts.path.rpartition("/")[0] + "/"
    return parts.origin + shape


def _unordered(parts: UrlParts) -> tuple[str, ...]:
    return (parts.origin + parts.path, *sorted(parts.query.split("&")))


def _is_faceted(parts: UrlParts) -> bool:
    return parts.query.count("&") >= 2


def _calendar_year(parts: UrlParts) -> int | None:
    """The year that a page of a calendar is about."""
    if not _CALENDAR.search(parts.target):
        return None
    found = _YEAR.search(parts.target)
    return int(found[1] or found[2]) if found else None


def _shape(parts: UrlParts) -> str:
    return _DIGITS.sub("0", parts.origin + parts.target)
