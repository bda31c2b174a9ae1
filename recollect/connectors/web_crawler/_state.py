"""What the cursor carries: where a crawl stands, but for what its rows tell."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

from recollect.connectors.base import Cursor


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
        }
