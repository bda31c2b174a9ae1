"""robots.txt (RFC 9309) and X-Robots-Tag: what a site asks of robots. No I/O, linear time.

Where the RFC leaves room, or a file is faulty in a common way, it is read as the site meant it:
a misspelt `Dissallow` disallows. Paths are compared as octets: percent-encoding is brought into
one form on both sides (2.2.2), so that no spelling of an address gets around a rule.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

MAX_BYTES = 512_000
"""500 KiB (RFC 9309 2.5); the rest is not read."""
# Or what a careless editor left of it; none of these bytes begins a line that means something.
_BOM = re.compile(rb"\xef?\xbb?\xbf?")
_LINE_END = re.compile(rb"\r\n|[\r\n]")
_SPACE = b" \t\v\f"
_LINE_LENGTH = 300
"""Characters of a rule line that are shown."""

AGENT = "RecollectBot"
"""What robots.txt and pages call us."""
_AGENT = frozenset({b"user-agent", b"useragent", b"user agent"})
_ALLOW = frozenset({b"allow"})
_DISALLOW = frozenset(
    {b"disallow", b"dissallow", b"dissalow", b"disalow", b"diasllow", b"disallaw"}
)
_SITEMAP = frozenset({b"sitemap", b"site-map"})
_DELAY = frozenset({b"crawl-delay", b"crawldelay"})
_TOKEN = re.compile(r"[A-Za-z_-]+")
_NUMBER = re.compile(rb"[0-9]{1,5}(?:\.[0-9]{1,9})?|\.[0-9]{1,9}")
_LONGEST_DELAY = 86_400
"""Seconds; more is a mistake."""

_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
# What has more than one spelling: neither unreserved nor reserved, or a mark of patterns. With the
# apostrophe, which some encode and some do not (URL Standard 1.3, special-query set).
_SPELLED = re.compile(rb"%[0-9A-Fa-f]{2}|[^A-Za-z0-9\-._~:/?#\[\]@!&()+,;=]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")

_VALUED = frozenset(
    {"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview", "max-age"}
)
_PREFIXED = re.compile(r"([^\s:]+)\s*:\s*(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Rule:
    """What decided on an address. Without a line, no rule did: none matches it, or everything is
    disallowed.
    """

    allowed: bool
    line: str | None
    number: int | None
    """of the line, from 1"""
    reason: str | None = None
    """why everything is disallowed"""


class RobotsPattern(NamedTuple):
    """A path of a rule: its octets between the wildcards, in one form."""

    parts: tuple[str, ...]
    ends: bool
    """`$`: it has to reach the end"""
    length: int
    """octets, by which the most specific is found"""

    def matches(self, target: str) -> bool:
        """Matches each part at its first place, which leaves the most room for later ones.

        Every octet of the target is passed once, however many wildcards there are.
        """
        first, *rest = self.parts
        if not target.startswith(first):
            return False
        position = len(first)
        if not rest:
            return not self.ends or position == len(target)
        last = rest.pop() if self.ends else ""
        for part in rest:
            position = target.find(part, position)
            if position < 0:
                return False
            position += len(part)
        return len(target) - len(last) >= position and target.endswith(last)


@dataclass(frozen=True, slots=True)
class _Path:
    pattern: RobotsPattern
    rule: Rule


class _Record(NamedTuple):
    number: int
    line: bytes
    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class Robots:
    """What a robots.txt asks of one robot."""

    paths: Sequence[_Path] = ()
    """the most specific first, so that the first that matches decides"""
    delay: float | None = None
    """seconds between requests (`Crawl-delay`, which is not in the RFC)"""
    sitemaps: Sequence[str] = ()
    """as written; they belong to no group"""
    reason: str | None = None
    """why everything is disallowed; None: the rules decide"""

    @classmethod
    def parse(cls, data: bytes, agent: str) -> Self:
        """The rules for the product token `agent` ("ExampleBot"), else those for `*`.

        Never fails: what cannot be read is passed over (2.2.4, 2.5).
        """
        ours = _token(agent)
        groups = _Groups(ours)
        sitemaps: list[str] = []
        for record in _records(data):
            if record.key in _SITEMAP:
                if record.value:
                    sitemaps.append(_shown(record.value))
            else:
                groups.take(record)
        chosen = groups.chosen()
        # RFC 9309 2.2.2: the most octets win, and of equals the one that allows.
        ordered = sorted(
            chosen.paths, key=lambda path: (-path.pattern.length, not path.rule.allowed)
        )
        return cls(tuple(ordered), chosen.delay, tuple(sitemaps))

    @classmethod
    def everything(cls) -> Self:
        """All is allowed: there is no robots.txt (RFC 9309 2.3.1.3, unavailable: 4xx)."""
        return cls()

    @classmethod
    def nothing(cls, reason: str) -> Self:
        """All is disallowed: robots.txt cannot be had now (2.3.1.4, unreachable: 5xx, network)."""
        return cls(reason=reason)

    def verdict(self, target: str) -> Rule:
        """Whether a path with its query may be fetched, and by which line."""
        if self.reason is not None:
            return Rule(False, None, None, self.reason)
        path = _normalized_target(target)
        # RFC 9309 2.2.2: robots.txt itself is always allowed.
        if path != "/robots.txt":
            for candidate in self.paths:
                if candidate.pattern.matches(path):
                    return candidate.rule
        return Rule(True, None, None)


class _Group:
    def __init__(self) -> None:
        self.paths: list[_Path] = []
        self.delay: float | None = None


class _Groups:
    """The lines of the file one after another; those for one robot make one group (2.2.1)."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._own = _Group()
        self._general = _Group()
        self._named = False
        self._current: list[_Group] = []
        self._ruled = False
        """whether the next user-agent line begins another group"""

    def take(self, record: _Record) -> None:
        if record.key in _AGENT:
            self._begin(record.value)
        elif record.key in _ALLOW or record.key in _DISALLOW:
            self._ruled = True
            if record.value:  # an empty rule matches nothing
                path = _Path(_pattern(record.value), _rule(record))
                for group in self._current:
                    group.paths.append(path)
        elif record.key in _DELAY and (delay := _seconds(record.value)) is not None:
            # Other records do not end the list of agents (2.2.4), but this is of those so far.
            for group in self._current:
                group.delay = max(delay, group.delay or 0)

    def chosen(self) -> _Group:
        return self._own if self._named else self._general

    def _begin(self, value: bytes) -> None:
        if self._ruled:
            self._current, self._ruled = [], False
        name = value.decode("latin-1")
        if name.split()[:1] == ["*"]:
            group = self._general
        elif self._agent and _token(name) == self._agent:
            group, self._named = self._own, True
        else:
            return
        if group not in self._current:
            self._current.append(group)


def header_directives(values: str, agent: str) -> tuple[str, ...]:
    """What X-Robots-Tag asks of `agent`: directives in lower case, `none` as the two it means.

    A name of a robot in front holds up to the next one, or the end of the header; several headers
    come as one line each. Of `unavailable_after` the date stays as written.
    """
    ours = _token(agent)
    found: dict[str, None] = {}
    for header in values.splitlines():
        meant = True
        for piece in _pieces(header):
            name, value = _prefix(piece)
            if name and name not in _VALUED:
                meant = name == "*" or _token(name) == ours
                name, value = _prefix(value)
            if meant:
                found |= dict.fromkeys(_directives(name, value))
    return tuple(found)


def _pieces(header: str) -> Iterator[str]:
    """What stands between commas; the comma of a date does not separate."""
    held = ""
    for part in header.split(","):
        piece = part.strip()
        if held and piece[:1].isdigit():
            yield f"{held}, {piece}"
            held = ""
            continue
        if held:
            yield held
            held = ""
        if "unavailable_after" in piece.lower():
            held = piece
        elif piece:
            yield piece
    if held:
        yield held


def _prefix(piece: str) -> tuple[str, str]:
    match = _PREFIXED.fullmatch(piece)
    return (match[1].lower(), match[2].strip()) if match else ("", piece)


def _directives(name: str, value: str) -> tuple[str, ...]:
    if name == "unavailable_after":
        return (f"{name}: {value}",)
    word = f"{name}: {value}".lower() if name else value.lower()
    return ("noindex", "nofollow") if word == "none" else (word,) if word else ()


def _records(data: bytes) -> Iterator[_Record]:
    whole = len(data) <= MAX_BYTES
    lines = _LINE_END.split(_BOM.sub(b"", data[:MAX_BYTES], count=1))
    if not whole:
        # Cut in two, `Allow: /a` may have become `Allow: /`.
        lines.pop()
    for number, line in enumerate(lines, 1):
        text = line.partition(b"#")[0].strip(_SPACE)
        key, colon, value = text.partition(b":")
        if not colon:
            words = text.split()
            if len(words) != 2:
                continue
            key, value = words
        yield _Record(number, text, b" ".join(key.lower().split()), value.strip(_SPACE))


def _token(name: str) -> str:
    """The product token at the beginning, without case; "" for none (RFC 9309 2.2.1)."""
    match = _TOKEN.match(name.strip())
    return match[0].lower() if match else ""


def _rule(record: _Record) -> Rule:
    return Rule(record.key in _ALLOW, _shown(record.line)[:_LINE_LENGTH], record.number)


def _shown(text: bytes) -> str:
    return _CONTROL.sub("\ufffd", text.decode("utf-8", "replace"))


def _seconds(value: bytes) -> float | None:
    if not _NUMBER.fullmatch(value) or float(value) > _LONGEST_DELAY:
        return None
    return float(value)


def _pattern(value: bytes) -> RobotsPattern:
    ends = value.endswith(b"$")
    parts = [_normalized(part) for part in (value[:-1] if ends else value).split(b"*")]
    length = sum(map(len, parts)) + len(parts) - 1 + ends
    # Several wildcards in a row are one.
    inner = [part for part in parts[1:-1] if part]
    return RobotsPattern((parts[0], *inner, *parts[1:][-1:]), ends, length)


def _normalized_target(target: str) -> str:
    path = target.partition("#")[0]
    return _normalized(path.encode("utf-8", "replace")) or "/"


def _normalized(path: bytes) -> str:
    """One form for all spellings (RFC 9309 2.2.2; RFC 3986 2.3, 6.2.2): what needs no encoding is
    decoded, everything else encoded, in capitals. The marks of patterns are taken for letters."""
    return _SPELLED.sub(_form, path).decode("ascii")


def _form(spelled: re.Match[bytes]) -> bytes:
    text = spelled[0]
    octet = int(text[1:], 16) if len(text) > 1 else text[0]
    return bytes([octet]) if octet in _UNRESERVED else b"%%%02X" % octet
