"""The overview: how many documents there are, what waits, and what failed."""

from collections.abc import Sequence

from fastapi import APIRouter, Request, Response

from recollect.console import (
    _room,
)
from recollect.console._room import (
    HOME,
    LIVE,
    CurrentApp,
    CurrentKey,
    Part,
    Reader,
    SignedInPage,
    page,
)
from recollect.documents import figures
from recollect.model import (
    Document,
    Status,
)

FAILURES = 100
"""How many of the last failures the overview groups."""
COUNTED = 10_000
"""Documents of the last hour that are counted at most."""

rooms = APIRouter(route_class=SignedInPage, include_in_schema=False)


@rooms.get(HOME)
@rooms.get(HOME + "/")
def overview(
    request: Request, tenant: Reader, key: CurrentKey, app: CurrentApp, part: Part = ""
) -> Response:
    with app.db.begin() as tx:
        counts, total = figures.by_status(tx, tenant)
        oldest = figures.longest_waiting(tx, tenant)
        failed = figures.failures(tx, tenant, FAILURES) if counts[Status.FAILED].number else []
        chunks = figures.chunks(tx, tenant)
        finished = figures.finished_lately(tx, tenant, COUNTED)
        stored = figures.database(tx, tenant.id) if _room.may_tend(key) else None
    values = {
        "counts": counts,
        "total": total,
        "chunks": chunks,
        "finished": finished,
        "counted": COUNTED,
        "oldest": oldest,
        "failures": _by_code(failed),
        "looked_at": FAILURES,
        "reached": figures.LOOKED_AT,
        "stored": stored,
    }
    response = page(request, "_overview.html" if part == LIVE else "overview.html", values)
    return _room.foreseeing(request, response)


def _by_code(failed: Sequence[Document]) -> list[tuple[str, list[Document]]]:
    """Failed documents by error code, the newest failure first in each and among all."""
    groups: dict[str, list[Document]] = {}
    for document in failed:
        if document.failure is not None:
            groups.setdefault(document.failure.code, []).append(document)
    return list(groups.items())
