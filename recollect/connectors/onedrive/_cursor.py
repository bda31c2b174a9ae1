"""Where a sync goes on: Graph's link, and how far a whole listing is."""

from dataclasses import dataclass

from recollect.connectors._json import as_time, as_word
from recollect.connectors.base import Cursor


@dataclass(slots=True)
class State:
    """The cursor."""

    scope: str
    link: str
    """where to go on"""
    midway: bool
    """whether more pages follow, of changes up to a moment that is past"""
    listing: bool
    """whether everything is being listed"""
    began: str
    """when the last whole listing did"""
    listed: str | None = None
    """the same, once nothing of it waits to be confirmed; None: everything must be listed"""
    stale: bool = False
    """whether what is known has to be compared with the folders"""
    last: str | None = None
    """the shortcut at which a sync ended, because one after the other failed"""


def state_of(cursor: Cursor | None) -> State | None:
    """What a cursor says; None for one that is not ours."""
    if cursor is None:
        return None
    scope, link, began = (as_word(cursor.get(name)) for name in ("scope", "link", "began"))
    listed = cursor.get("listed")
    if not scope or not link or as_time(began) is None:
        return None
    return State(
        scope=scope,
        link=link,
        midway=cursor.get("midway") is True,
        listing=cursor.get("listing") is True,
        began=began,
        listed=listed if isinstance(listed, str) else None,
        stale=cursor.get("stale") is True,
        last=as_word(cursor.get("last")) or None,
    )
