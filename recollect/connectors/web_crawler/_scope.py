"""What a connection's metadata asks for: where the crawl begins, and how far it goes."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self, cast

from recollect.connectors import _urls
from recollect.connectors._patterns import fits, patterns, wrong

DEPTH = 20
"""links from the start page, if the metadata does not say"""
ASKED = (1, 5)
"""The least and the most of `crawlDepth`, a name of the newer API; `depth` is our own."""


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
    def asked(cls, metadata: Mapping[str, Any]) -> Self:
        """As `of`, for a new or changed crawl: what is stored may have a larger `crawlDepth`,
        since that was once taken."""
        _depth("crawlDepth", metadata.get("crawlDepth"), *ASKED)
        return cls.of(metadata)

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
            include=patterns(metadata, "includePatterns"),
            exclude=patterns(metadata, "excludePatterns"),
        )

    def refusal(self, url: str) -> str | None:
        """Why the connection's own patterns keep an address out."""
        for pattern in self.exclude:
            if _matches(pattern, url):
                return f"excludePatterns: {pattern}"
        if self.include and not any(_matches(pattern, url) for pattern in self.include):
            return "includePatterns: no pattern matches"
        return None

    def own(self, raw: Sequence[str]) -> list[str]:
        """Those of this host, normalised, each once."""
        own: dict[str, None] = {}
        for one in raw:
            with suppress(ValueError):
                own[_urls.normalise(one)] = None
        return [url for url in own if _urls.split(url).host == self.host]


def _depth(key: str, given: object, least: int = 0, most: int = DEPTH) -> int | None:
    if given is None:
        return None
    with suppress(ValueError, TypeError, OverflowError):
        number = float(cast("Any", given))
        if number == int(number) and least <= number <= most and not isinstance(given, bool):
            return int(number)
    raise wrong(key, f"a whole number from {least} to {most}: how many links from the start page")


def _matches(pattern: str, url: str) -> bool:
    """`*` stands for any run of characters; without case; all of the URL, or from its host or its
    path on. Linear, whatever the pattern."""
    bare = url.lower()
    spellings = (bare, bare.partition("://")[2], _urls.split(bare).target)
    return any(fits(pattern.lower(), text) for text in spellings)
