"""What a connection's metadata asks for: where the crawl begins, and how far it goes."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self, cast

from recollect.connectors import _urls
from recollect.errors import BadRequestError, Issue

DEPTH = 20
"""links from the start page, if the metadata does not say"""


@dataclass(frozen=True, slots=True)
class CrawlScope:
    start: str
    """normalised"""
    host: str
    depth: int
    narrowed: bool
    """whether the caller chose the depth"""
    include: Sequence[str]
    exclude: Sequence[str]

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> Self:
        """Raises BadRequestError."""
        given = metadata.get("startUrl")
        if not isinstance(given, str) or not given.strip():
            raise wrong("startUrl", "required: the http(s) URL where the crawl begins")
        try:
            start = _urls.normalise(given)
        except ValueError as error:
            raise wrong("startUrl", str(error)) from error
        if (reason := _urls.pathological(start)) is not None:
            raise wrong("startUrl", reason)
        key = "crawlDepth" if "crawlDepth" in metadata else "depth"
        depth = _depth(key, metadata.get(key))
        return cls(
            start=start,
            host=_urls.split(start).host,
            depth=DEPTH if depth is None else depth,
            narrowed=depth is not None,
            include=_patterns(metadata, "includePatterns"),
            exclude=_patterns(metadata, "excludePatterns"),
        )

    def refusal(self, url: str) -> str | None:
        """Why the connection's own patterns keep an address out."""
        for pattern in self.exclude:
            if _matches(pattern, url):
                return f"excludePatterns: {pattern}"
        if self.include and not any(_matches(pattern, url) for pattern in self.include):
            return "includePatterns: no pattern matches"
        return None


def wrong(key: str, what: str) -> BadRequestError:
    return BadRequestError(f"metadata.{key}: {what}", [Issue(["metadata", key], what)])


def _depth(key: str, given: object) -> int | None:
    if given is None:
        return None
    with suppress(ValueError, TypeError, OverflowError):
        number = float(cast("Any", given))
        if number == int(number) and 0 <= number <= DEPTH and not isinstance(given, bool):
            return int(number)
    raise wrong(key, f"a whole number from 0 to {DEPTH}: how many links from the start page")


def _patterns(metadata: Mapping[str, Any], key: str) -> list[str]:
    given = metadata.get(key)
    listed = cast("list[object]", given) if isinstance(given, list) else [given or ""]
    if not all(isinstance(one, str) for one in listed):
        raise wrong(key, "a text: patterns with * for any characters, commas between them")
    words = ",".join(cast("list[str]", listed)).replace("\n", ",").split(",")
    return [word.strip() for word in words if word.strip()]


def _matches(pattern: str, url: str) -> bool:
    """`*` stands for any run of characters; without case; all of the URL, or from its host or its
    path on. Linear, whatever the pattern."""
    first, *rest = pattern.lower().split("*")
    last = rest.pop() if rest else None
    bare = url.lower()
    spellings = (bare, bare.partition("://")[2], _urls.split(bare).target)
    return any(_fits(text, first, rest, last) for text in spellings)


def _fits(text: str, first: str, middle: Sequence[str], last: str | None) -> bool:
    if last is None:
        return text == first
    if not text.startswith(first):
        return False
    at = len(first)
    for part in middle:
        at = text.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return len(text) - len(last) >= at and text.endswith(last)
