"""Titles without what the pages of a site share: "Traits - The Rust Programming Language"."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from recollect.connectors.base import Change, Item
from recollect.model import Remembered

FEWEST = 3
"""Pages with the same beginning or end of a title, from which on it may be the site's."""
SHARE = 0.6
"""of all pages with a title. Not all: a site's start page and its oldest ones have others"""
_BETWEEN = re.compile(r" [-–—|·•»«:~]{1,2} ")  # noqa: RUF001 - the signs themselves
_MOST_PARTS = 8
TITLED = "titled"
"""In the extra of a page: what it calls itself, where its document has a shorter title."""


class SiteTitles:
    """What the pages of a site call themselves, and their documents."""

    def __init__(self) -> None:
        self._own: dict[str, str] = {}
        self._said: dict[str, str] = {}
        self._ends: Counter[tuple[bool, str]] = Counter()
        """how many titles begin (True) or end with it"""

    def recall(self, row: Remembered) -> None:
        """A document of an earlier crawl, or of this one before it was cut off."""
        self._note(row.id, row.extra.get(TITLED) or row.title)

    def shorten(self, changes: Iterable[Change]) -> Iterator[Change]:
        """What a crawl says, with the titles that documents get by what is known so far."""
        said = list(changes)
        for change in said:
            if isinstance(change, Item) and not change.confirm:
                self._note(change.id, change.extra.get(TITLED) or change.title)
        shared = self._shared()
        for change in said:
            yield self._titled(change, shared) if isinstance(change, Item) else change

    def outdated(self) -> list[str]:
        """Pages of this crawl whose documents would have another title by now."""
        shared = self._shared()
        return [id for id, title in self._said.items() if title != _cut(self._own[id], shared)]

    def _titled(self, item: Item, shared: tuple[str, str]) -> Item:
        own = self._own.get(item.id)
        if own is None or item.confirm:
            return item
        title = self._said[item.id] = _cut(own, shared)
        extra = {name: value for name, value in item.extra.items() if name != TITLED}
        return replace(item, title=title, extra=extra if title == own else {**extra, TITLED: own})

    def _note(self, id: str, title: str | None) -> None:
        before = self._own.get(id)
        if title == before:
            return
        if before is not None:
            self._ends.subtract(_parts(before))
        if title:
            self._own[id] = title
            self._ends.update(_parts(title))
        else:
            self._own.pop(id, None)

    def _shared(self) -> tuple[str, str]:
        """The longest beginning and end that are the site's."""
        needed = max(FEWEST, SHARE * len(self._own))
        found = [part for part, count in self._ends.items() if count >= needed]
        return (
            max((part for begins, part in found if begins), key=len, default=""),
            max((part for begins, part in found if not begins), key=len, default=""),
        )


def _parts(title: str) -> list[tuple[bool, str]]:
    """All beginnings up to what separates parts of a title, and all ends from there."""
    between = list(_BETWEEN.finditer(title))[:_MOST_PARTS]
    begins = [(True, title[: found.end()]) for found in between]
    return begins + [(False, title[found.start() :]) for found in between]


def _cut(title: str, shared: tuple[str, str]) -> str:
    begin, end = shared
    if end and title.endswith(end) and len(title) > len(end):
        title = title.removesuffix(end)
    if begin and title.startswith(begin) and len(title) > len(begin):
        title = title.removeprefix(begin)
    return title
