"""Notices: a login page or a notice of maintenance in the place of many pages."""

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self
from urllib.parse import unquote

from recollect.connectors.web_crawler._page import SKETCH, CrawlPage
from recollect.connectors.web_crawler._texts import (
    UNSPACED,
    are_alike,
    is_kept,
    pairs,
    sketch,
    word_hashes,
)

FEWEST = 3
"""pages that had different texts and take the same one, before that means anything"""
MOST_RECENT = 50
"""documents whose new texts are compared, and wait for that to be told: those of 24 languages in
turn show two notices of each, and a third of one"""
_MOST_WORDS = 1_000
"""different ones in a notice"""
_MOST_KEPT = 100_000
"""characters of all notices of one crawl, which are in its cursor"""
_MOST_CHARACTERS = 20_000
_TARGET = re.compile(r"\]\([^)\s\[\]]{0,2048}\)|https?://\S+")
_ASCII = re.compile(r"[!-~]+")
_DIGIT = re.compile(r"[0-9]")
# Python's \w leaves out the marks that Indic words are made of.
_WORD = re.compile(r"(?:[^\W\d_]|(?![\d\u0964\u0965])[\u0300-\u036f\u0900-\u0dff])+")


@dataclass(frozen=True, slots=True)
class Wording:
    """The words of a text, to tell whether another page says the same but for names and numbers."""

    words: frozenset[str]
    rest: frozenset[str]
    """without those of its own address and title"""

    @classmethod
    def of(cls, text: str, url: str, title: str | None) -> Self | None:
        """None: it is too long for a notice, or mostly numbers."""
        if len(text) > _MOST_CHARACTERS:
            return None
        bare = _TARGET.sub(" ", text).lower()
        plain = _ASCII.sub(_unless_numbered, bare)
        found = list(_words(plain))
        words = frozenset(found)
        if not 0 < len(words) <= _MOST_WORDS or 2 * len(found) < len(bare.split()):
            return None
        own = f"{unquote(url)} {title or ''}".lower()[:_MOST_CHARACTERS]
        for name in UNSPACED.findall(own):
            plain = plain.replace(name, " ")
        # Where a page has no title, the beginning of its text is one, which may be all of it.
        rest = frozenset(_words(plain)) - set(_words(own)) or words
        return cls(words, rest)

    def is_as(self, other: Self) -> bool:
        return self.rest <= other.words and other.rest <= self.words


def _words(text: str) -> Iterator[str]:
    yield from _WORD.findall(UNSPACED.sub(" ", text))
    for run in UNSPACED.findall(text):
        yield from pairs(run)


def _unless_numbered(found: re.Match[str]) -> str:
    return " " if _DIGIT.search(found[0]) else found[0]


class PageWords(NamedTuple):
    """What a page says, as `Notices` see it."""

    sketch: str
    """of all its words (`_texts.sketch`), for the next crawl"""
    wording: Wording | None
    """None: it is too long for a notice, or mostly numbers"""
    changed: Wording | None
    """the wording, if the document had a text that is another one now: the two share less than half
    of their words, and more than a few of the former ones are lost"""
    first: str | None
    """if the text is a notice: the page on which this crawl found it first"""


class Notices:
    """Finds notices: texts that several pages share now, though each had a text of its own before.

    Numbers do not count, nor do the words of a page's address and title: so it finds a login page
    that names the page that was asked for, and the time. Pages that were alike before, such as
    those of a shop, may change together.
    """

    def __init__(self, kept: dict[str, list[list[str]]]) -> None:
        self._kept = kept
        """the same as JSON, for the cursor"""
        self._known = {
            first: Wording(frozenset(words), frozenset(words) - frozenset(own))
            for first, (words, own) in kept.items()
        }
        """the page on which a notice was found first → what the notice says"""
        self._size = sum(len(url) + sum(map(len, one.words)) for url, one in self._known.items())
        self._recent: deque[tuple[str, Wording, str]] = deque(maxlen=MOST_RECENT)

    def read(self, page: CrawlPage, text: str, title: str | None) -> PageWords:
        """Compare what a page says with its former text and with other pages of this crawl."""
        hashes = word_hashes(text)
        told = sketch(hashes)
        wording = Wording.of(text, page.url, title)
        before = page.known.extra.get(SKETCH) if page.known and page.has_document else None
        if wording is None or before is None or are_alike(before, told) or is_kept(before, hashes):
            return PageWords(told, wording, None, self._first(wording))
        if self._first(wording) is None:
            self._compare(page.url, wording, before)
        return PageWords(told, wording, wording, self._first(wording))

    def _compare(self, url: str, wording: Wording, before: str) -> None:
        self._recent.append((url, wording, before))
        same = [one for one in self._recent if one[1].is_as(wording)]
        formers: list[str] = []
        for _, _, former in same:
            if not any(are_alike(former, one) for one in formers):
                formers.append(former)
        first, known, _ = same[0]
        size = len(first) + sum(map(len, known.words))
        if len(formers) >= FEWEST and self._size + size <= _MOST_KEPT:
            self._size += size
            self._known[first] = known
            self._kept[first] = [sorted(known.words), sorted(known.words - known.rest)]

    def _first(self, wording: Wording | None) -> str | None:
        if wording is None:
            return None
        return next((url for url, known in self._known.items() if known.is_as(wording)), None)
