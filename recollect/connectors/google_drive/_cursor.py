"""Where a sync goes on: the place in each feed, and a listing that is under way."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from recollect.connectors._json import as_list, as_object, as_time, as_word
from recollect.connectors.api import behind
from recollect.connectors.base import Cursor
from recollect.connectors.google_drive._feeds import USER
from recollect.model import Remembered


@dataclass(slots=True)
class Feed:
    """A change feed; JSON in the cursor."""

    token: str
    listed: str | None = None
    """when it was last listed whole; None: it must be"""


@dataclass(slots=True)
class UnderWay:
    """A listing that is going on; JSON in the cursor, so that the next sync can go on with it."""

    feeds: list[str]
    began: str
    phase: str = "folders"
    """then `files`, then `shortcuts`"""
    at: str | None = None
    """feed whose files are being listed"""
    page: str | None = None
    partial: list[str] = field(default_factory=list[str])
    """feeds whose listing Drive called incomplete"""

    def lacks(self, row: Remembered) -> bool:
        return row.branch in self.feeds and row.seen_at < datetime.fromisoformat(self.began)


@dataclass(slots=True)
class State:
    """The cursor."""

    scope: str
    user: Feed
    drives: dict[str, Feed] = field(default_factory=dict[str, Feed])
    lost: list[str] = field(default_factory=list[str])
    """shared drives that are gone, but not all of their documents yet, or that are back and could
    not be read so far"""
    listing: UnderWay | None = None
    last: str | None = None
    """the shared drive at which a sync ended, because one after the other failed"""

    def home(self, drive: str) -> str:
        """The feed that what is in it is listed with: files of foreign shared drives are the
        account's."""
        return drive if drive in self.drives else USER

    def feeds(self) -> dict[str, Feed]:
        """In the order of their turns."""
        drives = sorted(self.drives)
        if self.last is not None:
            drives = behind(drives, self.last)
        return {USER: self.user, **{id: self.drives[id] for id in drives}}


def state_of(cursor: Cursor | None) -> State | None:
    """What a cursor says; None for one that is not ours."""
    if cursor is None:
        return None
    user, scope = _feed(cursor.get("user")), cursor.get("scope")
    drives = {id: _feed(said) for id, said in as_object(cursor.get("drives")).items()}
    if user is None or not isinstance(scope, str):
        return None
    return State(
        scope=scope,
        user=user,
        drives={id: feed for id, feed in drives.items() if feed is not None},
        lost=[id for id in as_list(cursor.get("lost")) if isinstance(id, str)],
        listing=_under_way(cursor.get("listing")),
        last=as_word(cursor.get("last")) or None,
    )


def _feed(said: Any) -> Feed | None:
    token, listed = as_object(said).get("token"), as_object(said).get("listed")
    if not isinstance(token, str):
        return None
    whole = isinstance(listed, str) and as_time(listed) is not None
    return Feed(token, listed if whole else None)


def _under_way(said: Any) -> UnderWay | None:
    told = as_object(said)
    began, phase = as_word(told.get("began")), told.get("phase")
    if as_time(began) is None or phase not in ("folders", "files", "shortcuts"):
        return None
    return UnderWay(
        feeds=[feed for feed in as_list(told.get("feeds")) if isinstance(feed, str)],
        began=began,
        phase=phase,
        at=as_word(told.get("at")) or None,
        page=as_word(told.get("page")) or None,
        partial=[feed for feed in as_list(told.get("partial")) if isinstance(feed, str)],
    )
