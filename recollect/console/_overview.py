"""The overview: what needs a person, how many documents there are and wait, and the last day."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC

from fastapi import APIRouter, Request, Response

from recollect import __version__, connectors
from recollect.app import App
from recollect.console import _room
from recollect.console._connections import name_of, subject_of
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
from recollect.db import Tx
from recollect.documents import figures
from recollect.documents.figures import Course, DocumentPace, Figure
from recollect.memories import extraction_queue
from recollect.model import Connection, ConnectionState, Document, Key, Status, Tenant
from recollect.ops import readiness
from recollect.sync import connections

FAILURES = 100
"""How many of the last failures the overview groups."""
COUNTED = 10_000
"""Documents changed last that are looked at for the pace."""
HOURS = 24
SYNCS = 5
BROWSED = 30
"""Connections, the newest, among which the last syncs and what needs someone are looked for."""
LOOKED_AT = 200
"""of the organisation, of which a limited key sees some"""
TALL = 72
"""units of the tallest bar"""

rooms = APIRouter(route_class=SignedInPage, include_in_schema=False)


@dataclass(frozen=True, slots=True)
class HourBar:
    """One hour of a chart: how high it is drawn, and what it says."""

    at: str
    """`14:00`"""
    number: int
    height: float


@dataclass(frozen=True, slots=True)
class HourChart:
    title: str
    bars: Sequence[HourBar]
    most: int
    total: int


@rooms.get(HOME)
@rooms.get(HOME + "/")
def overview(
    request: Request, tenant: Reader, key: CurrentKey, app: CurrentApp, part: Part = ""
) -> Response:
    with app.db.begin() as tx:
        counts, total = figures.by_status(tx, tenant)
        oldest = figures.longest_waiting(tx, tenant)
        failed = figures.failures(tx, tenant, FAILURES) if counts[Status.FAILED].number else []
        pace = figures.pace(tx, tenant, COUNTED)
        values = {
            "counts": counts,
            "total": total,
            "chunks": figures.chunks(tx, tenant),
            "pace": pace,
            "left": _left(counts[Status.QUEUED], counts[Status.PROCESSING], pace),
            "oldest": oldest,
            "failures": _by_code(failed),
            "looked_at": FAILURES,
            "reached": figures.LOOKED_AT,
            "course": (course := figures.by_hour(tx, tenant, HOURS)),
            "charts": _charts(course),
        }
        if part != LIVE:
            values |= _beside(tx, app, key, tenant)
            values["searches"] = request.app.state.requests.searches()
    response = page(request, "_overview.html" if part == LIVE else "overview.html", values)
    return _room.foreseeing(request, response)


def _beside(tx: Tx, app: App, key: Key, tenant: Tenant) -> dict[str, object]:
    """The part of the page that is made when it is opened, and is not refreshed."""
    browsed, _ = connections.browse(
        tx, tenant, provider=None, tag=None, limit=BROWSED, page=1, most=LOOKED_AT
    )
    synced = [(one, one.last_run) for one in browsed.items if one.last_run is not None]
    synced.sort(key=lambda pair: pair[1].started_at, reverse=True)
    # The disk and the size of all are the business of the default organisation alone.
    stored = figures.database(tx, tenant.id) if _room.may_tend(key) else None
    return {
        "syncs": [(_called(one), one, run) for one, run in synced[:SYNCS]],
        "waiting": [(_called(one), one) for one in browsed.items if _needs_somebody(one)],
        "easiest": connectors.example(),
        "health": readiness.look(tx, app),
        "unread": None if app.llm is None else extraction_queue.delay(tx, tenant),
        "version": __version__,
        "model": None if app.embedder is None else app.embedder.name,
        "language_model": None if app.llm is None else app.llm.name,
        "stored": stored,
        "workers": app.config.workers,
    }


def _needs_somebody(one: Connection) -> bool:
    return one.state in (ConnectionState.NEEDS_AUTH, ConnectionState.FAILED)


def _called(one: Connection) -> str:
    subject = subject_of(one)
    return f"{name_of(one.provider)} · {subject}" if subject else name_of(one.provider)


def _left(queued: Figure, processing: Figure, pace: DocumentPace) -> str | None:
    """How long the documents that wait will take at the present pace; None if that is not known."""
    waiting = queued.number + processing.number
    if not waiting or pace.per_second is None or queued.sign or processing.sign:
        return None
    seconds = waiting / pace.per_second
    if seconds < 90:
        return "about a minute"
    minutes = seconds / 60
    return f"about {minutes:.0f} minutes" if minutes < 90 else f"about {minutes / 60:,.0f} hours"


def _charts(course: Course) -> list[HourChart]:
    documents = [(hour.at, hour.documents) for hour in course.hours]
    passages = [(hour.at, hour.passages) for hour in course.hours]
    charts: list[HourChart] = []
    for title, numbers in (("Documents", documents), ("Passages", passages)):
        most = max((number for _, number in numbers), default=0)
        bars = [
            HourBar(
                f"{at.astimezone(UTC):%H:%M}",
                number,
                # One document beside thousands is still to be seen.
                round(max(1.5, TALL * number / most), 1) if number else 0,
            )
            for at, number in numbers
        ]
        charts.append(HourChart(title, bars, most, sum(number for _, number in numbers)))
    return charts


def _by_code(failed: Sequence[Document]) -> list[tuple[str, list[Document]]]:
    """Failed documents by error code, the newest failure first in each and among all."""
    groups: dict[str, list[Document]] = {}
    for document in failed:
        if document.failure is not None:
            groups.setdefault(document.failure.code, []).append(document)
    return list(groups.items())
