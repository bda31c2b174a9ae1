"""The texts that a document had, and what changed from one to the next."""

from collections.abc import Sequence
from datetime import datetime
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from recollect import db, documents
from recollect.app import App
from recollect.console._documents import DOCUMENTS
from recollect.console._room import CurrentApp, PathId, Reader, SignedInPage, page
from recollect.documents import Version
from recollect.errors import NotFoundError
from recollect.model import Tenant

AROUND = 3
"""Lines shown before and after a change."""
COMPARED = 3_000
"""Lines of both texts, without what they begin and end with alike, that are compared: twice as many
take four times as long."""
SHOWN = 1_000
"""Lines shown of a comparison."""
LONGEST = 2_000
"""Characters shown of a line."""
WHOLE = 50_000
"""Characters shown of a text."""
DiffLine = tuple[str, str]
"""`same`, `in`, `out` or `gap`, and the line."""

rooms = APIRouter(route_class=SignedInPage, include_in_schema=False)


@rooms.get("/console/documents/{id}/versions")
def versions(
    request: Request,
    id: PathId,
    tenant: Reader,
    app: CurrentApp,
    number: Annotated[int, Query(ge=0, le=documents.MOST_KEPT)] = 0,
) -> Response:
    """All of them, and how the one of this number, 0 the newest, differs from the one before."""
    with app.db.begin() as tx:
        document = documents.get(tx, tenant, id)
        found = documents.versions(tx, tenant, document.id)
    if not found or number >= len(found):
        raise NotFoundError("Version not found", "this document has no such version")
    newer, older = found[number], found[number + 1] if number + 1 < len(found) else None
    text, lines = _text(app, tenant, document.id, newer), None
    if older is not None:
        before = _text(app, tenant, document.id, older)
        lines = differences(before.splitlines(), text.splitlines())
    values = {
        "document": document,
        "found": found,
        "number": number,
        "older": older,
        "lines": lines,
        "text": text,
        "whole": WHOLE,
        "longest": LONGEST,
        "is_cut": lines is not None and len(lines) >= SHOWN,
        "own": f"{DOCUMENTS}/{document.id}",
    }
    return page(request, "versions.html", values)


def differences(before: Sequence[str], after: Sequence[str]) -> list[DiffLine] | None:
    """What changed, line by line, at most `SHOWN`, with the lines around; None for texts that
    differ in too much to compare."""
    alike = _alike(before, after)
    tail = _alike(before[alike:][::-1], after[alike:][::-1])
    olds, news = before[alike : len(before) - tail], after[alike : len(after) - tail]
    if len(olds) + len(news) > COMPARED:
        return None
    blocks = SequenceMatcher(None, olds, news, autojunk=False).get_opcodes()
    told: list[DiffLine] = [("same", line) for line in before[:alike]]
    for what, a, b, c, d in blocks:
        if what == "equal":
            told += [("same", line) for line in olds[a:b]]
        else:
            told += [("out", line) for line in olds[a:b]] + [("in", line) for line in news[c:d]]
    told += [("same", line) for line in before[len(before) - tail :]] if tail else []
    return _near_changes(told)[:SHOWN]


def _alike(one: Sequence[str], other: Sequence[str]) -> int:
    """How many lines both begin with."""
    length = min(len(one), len(other))
    return next((n for n in range(length) if one[n] != other[n]), length)


def _near_changes(lines: Sequence[DiffLine]) -> list[DiffLine]:
    """The changed lines and those around, with a gap where lines are left out."""
    changed = [n for n, (what, _) in enumerate(lines) if what != "same"]
    near = sorted({n for at in changed for n in range(at - AROUND, at + AROUND + 1)})
    kept = [n for n in near if 0 <= n < len(lines)]
    if not kept:
        return []
    found: list[DiffLine] = [lines[kept[0]]]
    for before, n in pairwise(kept):
        found += [("gap", ""), lines[n]] if n > before + 1 else [lines[n]]
    return found


def _text(app: App, tenant: Tenant, id: str, version: Version) -> str:
    with app.db.begin() as tx:
        when: datetime | None = None if version.known_until is None else version.known_from
        db.look_back(tx, tenant.id, when)
        return documents.get(tx, tenant, id, with_text=True).text or ""
