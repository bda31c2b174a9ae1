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
from typing import Any

import typer

from recollect.cli._add_ledger import AddLedger
from recollect.cli._add_progress import AddProgress, Show, screen
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
FEW = 10
"""Up to so many sources each get a line in the summary."""


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
    ) -> None:
        """`decided`: sources for which nothing is to be done; `wait`: until all is searchable."""
        self.interrupted = False
        self.stopped_by: RecollectError | None = None
        self._service = service
        self._ledger = ledger
        self._watch = watch
        self._wait = wait
        self._reports = list(decided)
        self._total = 0
        self._handled = 0

    def go(self, jobs: Sequence[Job]) -> None:
        """Returns also when it was interrupted or the service went away; `reports` says how far."""
        self._total = len(jobs)
        done = _done(jobs)
        pause = threading.Event()
        try:
            with screen() as show:
                for report in done:
                    if report is not None:
                        self._note(report)
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
            done.close()

    @property
    def reports(self) -> list[AddReport]:
        """What became of each source, with what the service said last."""
        return [self._latest(report) for report in self._reports]

    @property
    def members(self) -> list[AddReport]:
        """What became of each file of each archive that was waited for."""
        return [one for report in self._reports for one in self._members(report)]

    def as_json(self) -> dict[str, Any]:
        reports = self.reports
        counts = Counter(report.outcome for report in reports)
        return {
            **{outcome.value: counts[outcome] for outcome in Outcome},
            "unfinished": sum(_is_open(report) for report in reports),
            "notReached": self._total - self._handled,
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
        if len(reports) <= FEW:
            for report in reports:
                if report.id and report.outcome is not Outcome.FAILED:
                    typer.echo(f"{report.outcome:<10} {one_line(report.source)}  {report.id}")
        skipped: dict[str, list[str]] = {}
        for report in reports:
            if report.outcome is Outcome.SKIPPED:
                skipped.setdefault(report.reason or "", []).append(report.source)
        for reason, names in skipped.items():
            few = ", ".join(map(one_line, names[:3])) + (", …" if len(names) > 3 else "")
            typer.echo(f"{Outcome.SKIPPED:<10} {len(names)}: {reason} ({few})")
        members = self.members
        self._print_trouble(reports, members)
        counts = Counter(report.outcome for report in reports)
        typer.echo(", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome))
        if members:
            tally = _tally(members)
            typer.echo(f"files in archives: {tally['done']} searchable, {tally['failed']} failed")
        unfinished = sum(_is_open(report) for report in (*reports, *members))
        if unfinished:
            typer.echo(
                f"{unfinished} not searchable yet; `recollect status --watch` shows progress"
            )
        if self._handled < self._total:
            tell(f"{self._total - self._handled} not reached; the same command goes on from here")

    def _print_trouble(self, reports: Sequence[AddReport], members: Sequence[AddReport]) -> None:
        for report in reports:
            for warning in self._warnings(report):
                typer.echo(f"{'warning':<10} {one_line(report.source)}: {one_line(warning)}")
        for report in (*reports, *members):
            if report.outcome is Outcome.FAILED:
                reason = one_line(report.reason or "")
                typer.echo(f"{Outcome.FAILED:<10} {one_line(report.source)}: {reason}")

    def _note(self, report: AddReport) -> None:
        self._handled += 1
        self._reports.append(report)
        if report.entry is not None:
            self._ledger.note(report.entry)
        if self._wait and report.id is not None:
            if _is_open(report):
                self._watch.expect(report.id)
            elif report.is_archive:
                self._watch.open(report.id)

    def _look(self, show: "Show") -> None:
        self._watch.look()
        show(self._progress())

    def _progress(self) -> "AddProgress":
        waiting, working = len(self._watch.pending), self._watch.stages
        settled = self._watch.settled.values()
        searchable = sum(document is not None and document.status == "done" for document in settled)
        return AddProgress(
            total=self._total,
            handled=self._handled,
            queued=waiting - sum(working.values()),
            stages={stage: working.get(stage, 0) for stage in Stage},
            awaited=waiting + len(settled),
            searchable=searchable,
            failed=len(settled) - searchable,
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
        """What became of the files of an archive, by where they lie in it."""
        return [
            self._latest(AddReport(f"{archive.source}/{path}", archive.outcome, id, "queued"))
            for id, path in self._watch.members.get(archive.id or "", {}).items()
        ]

    def _warnings(self, archive: AddReport) -> Sequence[str]:
        return self._watch.warnings.get(archive.id or "", ())


def _done(jobs: Iterable[Job]) -> Generator[AddReport | None]:
    """Reports of the jobs, as they end; None now and then while none does."""
    queue = iter(jobs)
    pool = ThreadPoolExecutor(SENDERS)
    pending: set[Future[AddReport]] = set()
    try:
        while True:
            pending |= {pool.submit(job) for job in islice(queue, AHEAD - len(pending))}
            if not pending:
                return
            ended, pending = wait_for(pending, timeout=0.2, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in ended)
            if not ended:
                yield None
    finally:
        pool.shutdown(cancel_futures=True)


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
        """of each archive, such as how many files of it were not read, and where to see why"""
        self._working: dict[str, str] = {}
        self._service = service
        self._since = since
        self._pause = PAUSES[0]
        self._next = 0.0
        self._moved = time.monotonic()
        self._explained = False

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
        if not self.pending or self.due_in() > 0:
            return
        before = (len(self.pending), self.stages)
        self._read_changes()
        working, _ = self._service.page(status="processing", sort="updatedAt", limit=CHANGES)
        self._working = {document.id: document.stage or Stage.EXTRACTING for document in working}
        if (len(self.pending), self.stages) == before:
            self._recheck()
            self._pause = min(self._pause * 1.5, PAUSES[1])
        else:
            self._pause = PAUSES[0]
            self._moved = time.monotonic()
        if time.monotonic() - self._moved > QUIET and not self._explained:
            tell(f"nothing has moved for {QUIET:.0f} s; is a worker running? Ctrl-C ends the wait")
            self._explained = True
        self._next = time.monotonic() + self._pause

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
            if document is not None and document.status == "done" and document.members is not None:
                self.open(id)
