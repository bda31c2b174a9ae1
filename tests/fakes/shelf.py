"""A provider in memory: things on a shelf with a change feed, and its connector.

A test puts, edits, renames and takes things as a user would; the connector lists and fetches them
by the rules of `connectors/base.py`. `fail` makes the next call of a kind raise.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from recollect import connectors
from recollect.connectors.about import Guide
from recollect.connectors.base import (
    Change,
    Checkpoint,
    Connector,
    Cursor,
    Gone,
    Item,
    Listed,
    Listing,
    Missing,
    Source,
    Trouble,
)
from recollect.errors import BadRequestError, CursorExpired, NotFoundError
from recollect.fetch import Fetcher
from recollect.model import Blob, Extracted, Plan, Remembered, random_id

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Thing:
    id: str
    text: str
    version: int
    title: str
    branch: str = ""
    changed: int = 0
    """number of the change that made it so"""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tags: Sequence[str] = ()


@dataclass
class Shelf:
    """What stands there, and everything that happened, in order."""

    things: dict[str, Thing] = field(default_factory=dict[str, Thing])
    feed: list[str] = field(default_factory=list[str])
    """ids in the order of their changes"""
    fetched: list[str] = field(default_factory=list[str])
    listed: int = 0
    broken: set[str] = field(default_factory=set[str])
    """branches that cannot be listed"""
    expired: bool = False
    every: int = 3
    """things between two checkpoints"""
    faults: dict[str, list[Exception]] = field(default_factory=dict[str, list[Exception]])
    again: timedelta | None = None
    """after how long it wants to be looked at again"""
    asked: list[bool] = field(default_factory=list[bool])
    """of each sync: whether a user wanted it"""
    before_checkpoint: Callable[[int], None] = lambda _number: None

    def put(self, id: str, text: str, *, title: str | None = None, **more: Any) -> None:
        old = self.things.get(id)
        version = old.version + 1 if old else 1
        self._keep(Thing(id, text, version, title or f"Thing {id}", **more))

    def rename(self, id: str, title: str) -> None:
        self._keep(replace(self.things[id], title=title))

    def take(self, id: str) -> None:
        del self.things[id]
        self.feed.append(id)

    def fail(self, where: str, error: Exception, times: int = 1) -> None:
        self.faults.setdefault(where, []).extend([error] * times)

    def check(self, where: str) -> None:
        if waiting := self.faults.get(where):
            raise waiting.pop(0)

    def _keep(self, thing: Thing) -> None:
        self.feed.append(thing.id)
        self.things[thing.id] = replace(thing, changed=len(self.feed))


SHELVES: dict[str, Shelf] = {}
"""By the name in the connection's metadata."""


class ShelfConnector(Connector):
    """Lists everything at first, afterwards follows the feed; `mode: listing` lists each time."""

    provider = "shelf"
    name = "Shelf"
    guide = Guide("Things.", "nothing")
    plans = frozenset(Plan)
    secrets = frozenset({"password"})

    def check(self, metadata: Mapping[str, Any], fetcher: Fetcher) -> dict[str, Any]:
        if metadata.get("shelf") not in SHELVES:
            raise BadRequestError("metadata.shelf: there is no such shelf")
        return dict(metadata)

    def changes(self, source: Source, cursor: Cursor | None) -> Iterator[Change]:
        shelf = _shelf(source)
        shelf.check("changes")
        shelf.listed += 1
        shelf.asked.append(source.asked)
        if cursor is None or source.metadata.get("mode") == "listing" or "at" in cursor:
            yield from self._everything(shelf, cursor or {})
            return
        if shelf.expired:
            shelf.expired = False
            raise CursorExpired
        for id in dict.fromkeys(shelf.feed[cursor["seen"] :]):
            thing = shelf.things.get(id)
            yield Gone(id) if thing is None else _item(thing)
        yield Checkpoint({"seen": len(shelf.feed)}, shelf.again)

    def _everything(self, shelf: Shelf, cursor: Cursor) -> Iterator[Change]:
        start = cursor.get("start", len(shelf.feed))
        at = cursor.get("at")
        if at is None:
            yield Listing()
        number = 0
        for id, thing in sorted(shelf.things.items()):
            if at is not None and id <= at:
                continue
            if thing.branch in shelf.broken:
                continue
            yield _item(thing)
            number += 1
            if number % shelf.every == 0:
                shelf.before_checkpoint(number)
                shelf.check("page")
                yield Checkpoint({"at": id, "start": start})
        for branch in sorted(shelf.broken):
            yield Trouble(f"{branch} cannot be listed; look after it", branch=branch)
        shelf.check("end")
        yield Listed()
        yield Checkpoint({"seen": start})

    def fetch(self, source: Source, item: Remembered) -> Blob | Extracted:
        shelf = _shelf(source)
        shelf.check("fetch")
        thing = shelf.things.get(item.id)
        if thing is None:
            raise NotFoundError("Not found")
        shelf.fetched.append(item.id)
        return Extracted(thing.text)


class MissingConnector(ShelfConnector):
    """Says of what it does not find only that it is missing."""

    provider = "lost-shelf"
    name = "Lost shelf"

    def changes(self, source: Source, cursor: Cursor | None) -> Iterator[Change]:
        shelf = _shelf(source)
        for row in source.remembered():
            if row.id not in shelf.things:
                yield Missing(row.id, "404")
        for thing in shelf.things.values():
            yield _item(thing)
        yield Checkpoint({})


def _shelf(source: Source) -> Shelf:
    return SHELVES[source.metadata["shelf"]]


def _item(thing: Thing) -> Item:
    return Item(
        id=thing.id,
        version=str(thing.version),
        title=thing.title,
        url=f"https://shelf.example/{thing.id}",
        metadata=thing.metadata,
        branch=thing.branch,
        tags=thing.tags,
        modified_at=EPOCH + timedelta(minutes=thing.changed),
    )


@contextmanager
def providing(**by_name: Connector) -> Generator[None]:
    """With more connectors in the registry, by their providers (`_` for `-`)."""
    known = connectors.all()
    assert isinstance(known, dict)
    before = dict(known)
    known.update({name.replace("_", "-"): one for name, one in by_name.items()})
    try:
        yield
    finally:
        known.clear()
        known.update(before)


@contextmanager
def shelved(name: str | None = None, connector: Connector | None = None) -> Generator[Shelf]:
    """A new shelf, and the provider `shelf` in the registry, in whose settings it has the name."""
    name = name or random_id()
    SHELVES[name] = Shelf()
    try:
        with providing(shelf=connector or ShelfConnector()):
            yield SHELVES[name]
    finally:
        del SHELVES[name]
