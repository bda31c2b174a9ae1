"""What Citus refuses, told where there is one server: each statement that tests send is looked at.

It knows the forms that were met over the tables that `db.citus` spreads, not all that there are:
the night asks Citus itself (`tests/db/test_citus_contract.py`).
"""

import re
from functools import cache
from typing import Any, cast

import psycopg
from psycopg.rows import DictRow
from psycopg.sql import Composable

from recollect.db import Tx
from recollect.db.citus import DISTRIBUTED

_READS = re.compile(
    rf"\b(?:from|join|update|using)\s+(?:only\s+)?(?:{'|'.join(DISTRIBUTED)})\b(?! of)"
)
_TABLE = re.compile(r"\b(?:from|join|update|using)\s+(?:only\s+)?(\w+)(?!\w|\s*\( )")
_ALIAS = re.compile(
    r"(?:\b(?:from|join|update|using)\s+(?:only\s+)?\w+|\))\s+(?:as\s+)?(?!from\b)(\w+)"
)
_LOCKS = re.compile(r"\bfor (?:no key )?(?:update|key share|share)\b")


@cache
def refused(statement: str) -> str | None:
    """Why Citus refuses it; None: as far as is known here, it does not."""
    text = re.sub(r"'[^']*'", "''", statement.lower())
    # Verify looks along foreign keys as they are, and where the index is spread they stay inside.
    # What was known then is looked up one by one where there is one server.
    elsewhere = ("from documents o where o.id = t.", "e.hash = k.hash offset 0")
    if not _READS.search(text) or any(one in text for one in elsewhere):
        return None
    if "with recursive" in text:
        return "a walk (with recursive) beside tables of the index"
    parts, above, stack = list[list[str]]([[]]), [-1], [0]
    for piece in re.split(r"([()])", text):
        if piece == "(":
            parts.append([])
            above.append(stack[-1])
            stack.append(len(parts) - 1)
        elif piece == ")":
            stack.pop()
        else:
            parts[stack[-1]].append(piece)
    levels = ["( )".join(part) for part in parts]  # each without what stands in a deeper one
    for level, outer in zip(levels, above, strict=True):
        reads, names = bool(_READS.search(level)), _names(level)
        free = set(re.findall(r"\b(\w+)\.\w", level)) - names
        pinned = re.search(r"document_id = (%|')", level)
        if _LOCKS.search(level) and (outer >= 0 or (reads and not pinned)):
            return "a lock (for update) that is not the last word, or of rows of several workers"
        above_it = levels[outer] if outer >= 0 else ""
        if reads and not free and level.startswith("select from") and " from " in above_it:
            return "a look for any row (select from) that selects no column"
        while _TABLE.search(level) and outer >= 0:
            around = _names(levels[outer])
            if free & around and reads != bool(_READS.search(levels[outer])):
                return "a look for each row on the other side, of the index or of the rest"
            if reads and re.search(r"\binsert into\b.*\bvalues\b", levels[outer]):
                return "a look into the index among the values of an insert"
            free, outer = free - around, above[outer]
    return None


def _names(level: str) -> set[str]:
    """Of tables, and what they are called there."""
    return {*_TABLE.findall(level), *_ALIAS.findall(level)} - {"from", "where"}


class WatchedCursor(psycopg.Cursor[DictRow]):
    def execute(self, query: Any, params: Any = None, **how: Any) -> "WatchedCursor":
        sent = query.as_string(self) if isinstance(query, Composable) else query
        why = refused(sent if isinstance(sent, str) else sent.decode())
        assert why is None, f"Citus refuses {why} (tests/fakes/spread.py):\n{query}"
        return super().execute(cast("Any", query), params, **how)


class WatchedTx(Tx):
    """Fails the test whose statement Citus would refuse."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.cursor_factory = WatchedCursor
