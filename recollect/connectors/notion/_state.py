"""What is kept between passes: the cursor, a check under way, what a row remembers of a thing."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any, cast

from recollect.connectors.base import (
    Cursor,
)
from recollect.connectors.notion._values import (
    id_of,
    tidy,
    time_of,
)
from recollect.errors import Transient
from recollect.model import Remembered

PAGE, DATABASE = "page", "database"
SEARCH, WALK, VERIFY = "search", "walk", "verify"
"""phases of a check"""
UNSETTLED = "~"
"""end of a version that may change without a trace"""


@dataclass
class Check:
    """A complete check that is under way."""

    began: str
    """what was said since then was met"""
    phase: str = SEARCH
    at: str | None = None
    """where the search goes on"""
    calls: int = 0


@dataclass
class State:
    """The cursor; times are ISO 8601."""

    edited: str | None = None
    """the latest edit that the search reported"""
    checked: str | None = None
    """when the last complete check began"""
    calls: int = 0
    """what it cost"""
    check: Check | None = None
    unsettled: dict[str, str] = field(default_factory=dict[str, str])
    """id → edit that may not have been the last of its minute"""
    missing: list[str] = field(default_factory=list[str])
    """not found once, to be asked for again"""
    wanted: bool = False
    """a user asked for a complete check, which has to wait"""
    pending: list[str] = field(default_factory=list[str])
    """kind and id of what was heard of and not looked at yet, should the pass be cut off"""

    @classmethod
    def of(cls, cursor: Cursor | None) -> "State":
        """What a cursor knows; one of another shape counts as none."""
        if not cursor or cursor.get("form") != 1:
            return cls()
        given: dict[str, Any] = {name: cursor.get(name) for name in cls.__dataclass_fields__}
        check = given.pop("check")
        given["pending"] = given["pending"] or []
        given["wanted"] = given["wanted"] is True
        try:
            state = cls(**given, check=None if check is None else Check(**check))
            began = None if state.check is None else state.check.began
            for time in (state.edited, state.checked, began, *dict(state.unsettled).values()):
                if time is not None:
                    time_of(time)
            for each in state.pending:
                id_of(each.partition(":")[2])
            return replace(
                state,
                unsettled=dict(state.unsettled),
                missing=list(state.missing),
                pending=list(state.pending),
            )
        except (AttributeError, TypeError, ValueError, Transient):
            return cls()

    def cursor(self) -> Cursor:
        return {"form": 1, **asdict(self)}


@dataclass(frozen=True, slots=True)
class KnownObject:
    """What earlier passes kept of a thing in `extra`."""

    row: Remembered

    @property
    def edited(self) -> str:
        return tidy(self.row.extra.get("edited"))

    @property
    def object(self) -> str:
        return PAGE if self.row.extra.get("object") == PAGE else DATABASE

    @property
    def children(self) -> list[tuple[str, str]]:
        """Kind and id."""
        told = cast("list[Any]", self.row.extra.get("children") or [])
        return [(kind, id) for kind, _, id in (tidy(each).partition(":") for each in told) if id]

    def unchanged(self, edited: str, mark: str) -> bool:
        doubted = self.row.extra.get("blank") and not self.row.extra.get("walked")
        return not doubted and (self.edited, self.row.extra.get("mark")) == (edited, mark)

    def was_blank(self, edited: str) -> bool:
        """Whether nothing was found on it since that edit, settled or not."""
        return bool(self.row.extra.get("blank")) and self.edited.rstrip(UNSETTLED) == edited

    def walked(self, edited: str) -> bool:
        return self.row.extra.get("walked") == edited
