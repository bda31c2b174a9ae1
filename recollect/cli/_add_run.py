"""Sending many sources, and following their documents until they are searchable."""

import threading
import time
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from pathlib import PurePosixPath
from typing import Any

import typer

from recollect.cli._add_ledger import AddLedger
from recollect.cli._add_progress import SEARCHABLE, AddProgress, Show, screen
from recollect.cli._add_sources import AddReport, Job, Outcome
from recollect.cli.client import DocumentRow, Service
from recollect.cli.output import one_line, tell
from recollect.errors import (
    NotFoundError,
    RecollectError,
)
from recollect.model import Stage

SENDERS = 4
AHEAD = 64
"""Jobs handed to the senders at a time."""
OVERLAP = timedelta(seconds=5)
"""How much earlier than it becomes visible a change may be dated."""
CHANGES = 200
"""Changed documents asked for at a time."""
RECHECKED = 5
"""Documents looked at one by one in a round that brought nothing else."""
PAUSES = (0.1, 1.0)
"""Seconds between two rounds: at least, at most."""
QUIET = 60.0
"""Seconds without any movement after which the wait is explained."""
SHOWN_EVERY = 0.1
"""Seconds between two counts of all that there is."""
FEW = 10
"""Up to so many sources each get a line in the summary."""
MOST_WARNINGS = 20
"""So many that differ are told."""


class AddRun:
    """Brings everything in, shows how far it is, and knows at the end what became of what."""

    def __init__(
        self,
        service: Service,
        ledger: "AddLedger",
        watch: "DocumentWatch",
        decided: Sequence[AddReport],
        *,
        wait: bool,
        dry: bool = False,
    ) -> None:
        """`decided`: sources for which nothing is to be done; `wait`: until all is searchable;
        `dry`: the jobs only say what they would do."""
        self.interrupted = False
        self.stopped_by: RecollectError | None = None
        self._service = service
        self._ledger = ledger
        self._watch = watch
        self._wait = wait and not dry
        self._dry = dry
        self._decided = list(decided)
        self._total = 0
        self._not_before = 0.0
        self._ended: dict[Future[AddReport], AddReport] = {}
        """what became of each job, noted once even where Ctrl-C comes between"""

    def go(self, jobs: Sequence[Job]) -> None:
        """Returns also when it was interrupted or the service went away; `reports` says how far."""
        self._total = len(jobs)
        senders = _Senders(jobs)
        pause = threading.Event()
        try:
            with screen() as show:
                while senders.busy:
                    for future in senders.look():
                        self._note(future)
                    self._look(show)
                while self._watch.pending:
                    pause.wait(self._watch.due_in())
                    self._look(show)
                show(self._progress())
        except KeyboardInterrupt:
            self.interrupted = True
        except RecollectError as error:
            self.stopped_by = error
        finally:
            self._service.stop()
            # What was under way may have arrived: it is counted. What failed now is tried again
            # by the same command, like what was never begun.
            for future in senders.end():
                with suppress(RecollectError):
                    if future not in self._ended and future.result().outcome is not Outcome.FAILED:
                        self._note(future)

    @property
    def reports(self) -> list[AddReport]:
        """What became of each source, with what the service said last."""
        return [self._latest(report) for report in (*self._decided, *self._ended.values())]

    @property
    def members(self) -> list[AddReport]:
        """What became of each file of each archive that was waited for."""
        return [one for report in self._ended.values() for one in self._members(report)]

    def as_json(self) -> dict[str, Any]:
        reports = self.reports
        counts = Counter(report.outcome for report in reports)
        return {
            **({"dryRun": True} if self._dry else {}),
            **{outcome.value: counts[outcome] for outcome in Outcome},
            "unfinished": sum(_is_open(report) for report in reports),
            "notReached": self._total - len(self._ended),
            "members": _tally(self.members),
            "sources": [
                _as_json(report)
                | ({"members": [_as_json(one) for one in members]} if members else {})
                | ({"warnings": warnings} if warnings else {})
                for report in reports
                for members in [self._members(report)]
                for warnings in [self._warnings(report)]
            ],
        }

    def print_summary(self) -> None:
        reports = self.reports
        if len(reports) <= FEW or self._dry:
            for report in reports:
                if report.outcome not in (Outcome.FAILED, Outcome.SKIPPED):
                    id = f"  {report.id}" if report.id else ""
                    typer.echo(f"{report.outcome:<10} {one_line(report.source)}{id}")
        skipped: dict[str, list[str]] = {}
        for report in reports:
            if report.outcome is Outcome.SKIPPED:
                skipped.setdefault(report.reason or "", []).append(report.source)
        for reason, names in skipped.items():
            typer.echo(f"{Outcome.SKIPPED:<10} {len(names)}: {reason} ({_few(names)})")
        members = self.members
        self._print_trouble(reports, members)
        counts = Counter(report.outcome for report in reports)
        told = ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome)
        typer.echo(f"would be {told}; nothing was sent" if self._dry else told)
        if members:
            tally = _tally(members)
            typer.echo(f"files in these: {tally['done']} searchable, {tally['failed']} failed")
        unfinished = sum(_is_open(report) for report in (*reports, *members))
        if unfinished:
            typer.echo(
                f"{unfinished} not searchable yet; `recollect status --watch` shows progress"
            )
        if left := self._total - len(self._ended):
            tell(f"{left} not reached; the same command goes on from here")

    def _print_trouble(self, reports: Sequence[AddReport], members: Sequence[AddReport]) -> None:
        warned: dict[str, list[str]] = {}
        for report in (*reports, *members):
            for warning in self._warnings(report):
                warned.setdefault(warning, []).append(report.source)
        for warning, names in islice(warned.items(), MOST_WARNINGS):
            typer.echo(f"{'warning':<10} {_few(names)}: {one_line(warning)}")
        if (more := len(warned) - MOST_WARNINGS) > 0:
            typer.echo(f"{'warning':<10} {more} others; `recollect list --json` shows them")
        for report in (*reports, *members):
            if report.outcome is Outcome.FAILED:
                reason = one_line(report.reason or "")
                typer.echo(f"{Outcome.FAILED:<10} {one_line(report.source)}: {reason}")

    def _note(self, future: Future[AddReport]) -> None:
        report = future.result()
        if report.entry is not None:
            self._ledger.note(report.entry)
        if self._wait and report.id is not None:
            if _is_open(report):
                self._watch.expect(report.id)
            elif report.is_archive:
                self._watch.open(report.id)
        self._ended[future] = report

    def _look(self, show: "Show") -> None:
        self._watch.look()
        if time.monotonic() >= self._not_before:
            show(self._progress())
            self._not_before = time.monotonic() + SHOWN_EVERY

    def _progress(self) -> "AddProgress":
        waiting, working = len(self._watch.pending), self._watch.stages
        settled = self._watch.settled.values()
        searchable = sum(document is not None and document.status == "done" for document in settled)
        refused = sum(report.outcome is Outcome.FAILED for report in self._ended.values())
        awaited = sum(_is_open(report) for report in self._ended.values()) if self._wait else 0
        return AddProgress(
            verb="looked at" if self._dry else SEARCHABLE if self._wait else "uploaded",
            total=self._total,
            handled=len(self._ended),
            refused=refused,
            closed=len(self._ended) - refused - awaited,
            queued=waiting - sum(working.values()),
            stages={stage: working.get(stage, 0) for stage in Stage},
            awaited=waiting + len(settled),
            searchable=searchable,
            failed=len(settled) - searchable,
            reading=self._watch.reading,
        )

    def _latest(self, report: AddReport) -> AddReport:
        settled = self._watch.settled
        if report.id is None or report.id not in settled:
            return report
        document = settled[report.id]
        if document is None:
            return replace(report, outcome=Outcome.FAILED, status=None, reason="deleted meanwhile")
        if document.status == "failed":
            reason = f"{document.error_message} ({document.error_code})"
            return replace(report, outcome=Outcome.FAILED, status="failed", reason=reason)
        return replace(report, status=document.status)

    def _members(self, archive: AddReport) -> list[AddReport]:
        """What became of the files of an archive, by their paths in it."""
        return [
            self._latest(AddReport(f"{archive.source}/{path}", archive.outcome, id, "queued"))
            for id, path in self._watch.members.get(archive.id or "", {}).items()
        ]

    def _warnings(self, report: AddReport) -> Sequence[str]:
        return self._watch.warnings.get(report.id or "", ())


def _few(names: Sequence[str]) -> str:
    return ", ".join(map(one_line, names[:3])) + (", …" if len(names) > 3 else "")


class _Senders:
    """Do jobs in threads, a few ahead of those that were taken."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._queue = iter(jobs)
        self._pool = ThreadPoolExecutor(SENDERS)
        self._pending: set[Future[AddReport]] = set()
        self._refill()

    @property
    def busy(self) -> bool:
        return bool(self._pending)

    def look(self) -> Generator[Future[AddReport]]:
        """Those that have ended, each until it was taken; none when none does for a moment."""
        ended, _ = wait_for(self._pending, timeout=0.2, return_when=FIRST_COMPLETED)
        for future in ended:
            yield future
            self._pending.discard(future)
        self._refill()

    def end(self) -> list[Future[AddReport]]:
        """Begin no more, wait for those under way; all that have ended and were not taken."""
        self._pool.shutdown(cancel_futures=True)
        return [future for future in self._pending if not future.cancelled()]

    def _refill(self) -> None:
        ahead = islice(self._queue, AHEAD - len(self._pending))
        self._pending |= {self._pool.submit(job) for job in ahead}


def _is_open(report: AddReport) -> bool:
    return report.status not in (None, "done", "failed")


def _tally(members: Sequence[AddReport]) -> dict[str, int]:
    """How many files of archives came to which end."""
    counts = Counter(
        "failed" if report.outcome is Outcome.FAILED else report.status for report in members
    )
    done, failed = counts["done"], counts["failed"]
    return {"done": done, "failed": failed, "unfinished": len(members) - done - failed}


def _as_json(report: AddReport) -> dict[str, Any]:
    shown = {
        "source": report.source,
        "outcome": report.outcome,
        "id": report.id,
        "status": report.status,
        "reason": report.reason,
    }
    return {name: value for name, value in shown.items() if value is not None}


class DocumentWatch:
    """Follows documents until they are searchable or failed; a round costs two small lists.

    Of an archive that is read, the files are followed as well.
    """

    def __init__(self, service: Service, since: datetime | None) -> None:
        """`since`: when the service last changed a document, by its clock, before the first add."""
        self.pending: dict[str, None] = {}
        self.settled: dict[str, DocumentRow | None] = {}
        """None: the document was deleted meanwhile"""
        self.members: dict[str, Mapping[str, str]] = {}
        """of each archive: id → path in it"""
        self.warnings: dict[str, Sequence[str]] = {}
        """of each document, such as how many files in it were not read, and where to see why"""
        self.reading: str | None = None
        """name of a pending document that is in work"""
        self._working: dict[str, str] = {}
        self._service = service
        self._since = since
        self._pause = PAUSES[0]
        self._next = 0.0
        self._moved = time.monotonic()
        self._explained = False
        self._asked = time.monotonic()
        """when a document was settled last, or the service asked what hinders it"""
        self._trouble: str | None = None

    def expect(self, id: str) -> None:
        self.settled.pop(id, None)
        self.pending[id] = None
        self._pause = PAUSES[0]

    def open(self, archive: str) -> None:
        """Follow the files of an archive, too."""
        found = list(self._service.documents(archiveId=archive))
        self.members[archive] = {one.id: one.archive_path or "" for one in found}
        with suppress(NotFoundError):
            self.warnings[archive] = self._service.document(archive)["warnings"]
        for one in found:
            self.expect(one.id)
            if one.finished:
                self._settle(one.id, one)

    @property
    def stages(self) -> Mapping[str, int]:
        """How many of the pending documents are in which stage."""
        return Counter(stage for id, stage in self._working.items() if id in self.pending)

    def due_in(self) -> float:
        """Seconds until the next round."""
        return max(0.0, self._next - time.monotonic())

    def look(self) -> None:
        """One round, if it is time for one."""
        if time.monotonic() - self._asked > QUIET:  # while all is refused, nothing is pending
            self._ask_what_hinders()
        if not self.pending or self.due_in() > 0:
            return
        before = (len(self.pending), self.stages)
        self._read_changes()
        working, _ = self._service.page(status="processing", sort="updatedAt", limit=CHANGES)
        self._working = {document.id: document.stage or Stage.EXTRACTING for document in working}
        at_hand = [document for document in working if document.id in self.pending]
        self.reading = next((_name(document) for document in reversed(at_hand)), None)
        if (len(self.pending), self.stages) == before:
            self._recheck()
            self._pause = min(self._pause * 1.5, PAUSES[1])
        else:
            self._pause = PAUSES[0]
            self._moved = time.monotonic()
        if time.monotonic() - self._moved > QUIET and not (self._explained or self._trouble):
            why = "is a worker running?"
            if self.reading is not None:
                why = f"{self.reading} is being worked on, which takes long if it is large."
            tell(f"nothing has moved for {QUIET:.0f} s: {why} Ctrl-C ends the wait")
            self._explained = True
        self._next = time.monotonic() + self._pause

    def _ask_what_hinders(self) -> None:
        """On a full disk documents go from stage to stage and back, and end nowhere."""
        before, self._trouble = self._trouble, self._service.trouble()
        if self._trouble and self._trouble != before:
            tell(f"the service cannot work: {self._trouble}. Ctrl-C ends the wait")
        self._asked = time.monotonic()

    def _read_changes(self) -> None:
        expected = set(self.pending)
        number, newest = 1, self._since
        while True:
            found, total = self._service.page(
                sort="updatedAt", order="desc", limit=CHANGES, page=number
            )
            for document in found:
                newest = max(newest or document.updated_at, document.updated_at)
                if document.id in expected and document.finished:
                    self._settle(document.id, document)
            known = found and self._since and found[-1].updated_at < self._since - OVERLAP
            if known or number * CHANGES >= total:
                break
            number += 1
        self._since = newest

    def _recheck(self) -> None:
        """A few of those that wait longest, in turn: deleted ones are in no list."""
        for id in list(islice(self.pending, RECHECKED)):
            del self.pending[id]
            self.pending[id] = None
            try:
                document = DocumentRow.of(self._service.document(id))
            except NotFoundError:
                self._settle(id, None)
            else:
                if document.finished:
                    self._settle(id, document)

    def _settle(self, id: str, document: DocumentRow | None) -> None:
        if id in self.pending:
            del self.pending[id]
            self.settled[id] = document
            self._asked = time.monotonic()
            if document is not None and document.status == "done":
                self.warnings[id] = document.warnings
                if document.members is not None:
                    self.open(id)


def _name(document: DocumentRow) -> str:
    if document.archive_path or document.filepath:
        return PurePosixPath(document.archive_path or document.filepath or "").name
    return document.url or document.title or document.id
