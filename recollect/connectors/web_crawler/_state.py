"""What the cursor carries: where a crawl stands, but for what its rows tell."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

from recollect.connectors.base import Cursor

MOST_PARKS = 3
"""times"""


@dataclass
class State:
    start: str
    started: datetime
    robots: dict[str, Any] = field(default_factory=dict[str, Any])
    """origin → when it was fetched, and what it said (None: there is none)"""
    sitemaps: list[str] | None = None
    """still to be read; None: not even the start page is"""
    read: int = 0
    """sitemaps"""
    parks: dict[str, int] = field(default_factory=dict[str, int])
    """address → how often its answer parked the crawl"""
    notices: dict[str, list[list[str]]] = field(default_factory=dict[str, list[list[str]]])
    """see `Notices`"""
    hidden: int = 0
    """documents whose pages ask not to be indexed"""

    def park(self, url: str) -> bool:
        """Whether to park for this address: not if it asks for that each time. Then the limit is
        its own, and the rest of the site must not wait for it."""
        self.parks[url] = self.parks.get(url, 0) + 1
        return self.parks[url] < MOST_PARKS

    @classmethod
    def of(cls, cursor: Cursor | None, start: str) -> Self | None:
        """None if no crawl from this start is under way, or the cursor is of another shape."""
        if not cursor or cursor.get("start") != start:
            return None
        try:
            return cls(
                start,
                datetime.fromisoformat(cursor["started"]),
                dict(cursor["robots"]),
                None if cursor["sitemaps"] is None else list(cursor["sitemaps"]),
                int(cursor["read"]),
                dict(cursor.get("parks", {})),
                dict(cursor.get("notices", {})),
                int(cursor.get("hidden", 0)),
            )
        except (KeyError, TypeError, ValueError):
            return None

    def as_cursor(self) -> Cursor:
        return {
            "start": self.start,
            "started": self.started.isoformat(),
            "robots": dict(self.robots),
            "sitemaps": self.sitemaps,
            "read": self.read,
            "parks": dict(self.parks),
            "notices": dict(self.notices),
            "hidden": self.hidden,
        }
