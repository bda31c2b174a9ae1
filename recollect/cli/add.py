"""`recollect add`: files, folders, URLs and standard input into the service.

Adding again brings up to date. What makes it the same document is its customId: for a file in a
folder `<folder>/<path in it>`, for a file by itself its absolute path, for a URL the URL. A ledger
in the user's cache folder knows what this machine added where: an unchanged file is not even sent,
and a file keeps its document when it is named in another way. Losing the ledger costs uploads only.
"""

import errno
import hashlib
import io
import json
import math
import mimetypes
import os
import re
import sqlite3
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import platformdirs
import typer
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from recollect.cli.client import ApiKey, AsJson, DocumentRow, Service, Url, open_service
from recollect.cli.output import console, echo_json, fail, one_line, tell
from recollect.errors import (
    AuthenticationError,
    NotFoundError,
    PermissionDeniedError,
    RecollectError,
    RequestError,
    Transient,
)
from recollect.extract import HEAD, detect
from recollect.model import Stage

LARGEST = 50 * 1024 * 1024
"""Bytes that one upload may have."""
SENDERS = 4
AHEAD = 64
"""Jobs handed to the senders at a time."""
SETTLED = 2_000_000_000
"""Nanoseconds after which a time stamp proves that a file did not change; clocks are coarse."""
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
LONGEST_LABEL = 1000
UNKNOWN_MIME = "application/octet-stream"
STDIN = "standard input"
TOO_LARGE = f"larger than {LARGEST // 1024**2} MB"
FEW = 10
"""Up to so many sources each get a line in the summary."""

_URL = re.compile(r"https?://\S+", re.IGNORECASE)


class Outcome(StrEnum):
    ADDED = "added"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """What the ledger knows of a file: what was sent, and as which document."""

    path: str
    size: int
    mtime: int
    hash: str
    custom_id: str
    label: str
    metadata: str | None
    document: str
    noted: int
    """nanoseconds since 1970, as `mtime`"""


@dataclass(frozen=True, slots=True)
class AddReport:
    """What became of one source, or of one file of an archive. `status` is the document's, as far
    as it is known."""

    source: str
    outcome: Outcome
    id: str | None = None
    status: str | None = None
    reason: str | None = None
    entry: LedgerEntry | None = None
    is_archive: bool = False
    """known to be one before it is waited for"""


@dataclass(frozen=True, slots=True)
class SharedLabels:
    """What the options put on every document."""

    tags: Sequence[str]
    metadata: Mapping[str, str | float | bool]

    @property
    def metadata_text(self) -> str | None:
        return json.dumps(self.metadata, sort_keys=True) if self.metadata else None

    def fields(self) -> dict[str, str]:
        """As fields of a form."""
        tags = {"containerTags": json.dumps(self.tags)} if self.tags else {}
        return tags | ({"metadata": self.metadata_text} if self.metadata_text else {})

    def body(self) -> dict[str, object]:
        """As fields of a JSON object."""
        return {"containerTags": self.tags or None, "metadata": self.metadata or None}


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file to add: its real path, its path as the service shows it, and whether the user named
    the file itself and not a folder."""

    path: Path
    label: str
    named: bool


@dataclass(frozen=True, slots=True)
class AddTarget:
    """Where a file goes: its customId and label, and what is known of its document."""

    file: LocalFile
    custom_id: str
    label: str
    entry: LedgerEntry | None


Job = Callable[[], AddReport]


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel="Add")(add)


def add(
    sources: Annotated[
        list[str], typer.Argument(metavar="PATH|DIR|URL|-", help="- reads standard input.")
    ],
    tag: Annotated[
        list[str] | None, typer.Option("--tag", help="Container tag; repeat for several.")
    ] = None,
    id: Annotated[
        str | None, typer.Option("--id", help="customId, for one source; the same id updates.")
    ] = None,
    meta: Annotated[
        list[str] | None,
        typer.Option("--meta", metavar="KEY=VALUE", help="Metadata; numbers and true, false too."),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until all of it is searchable.")
    ] = True,
    as_json: AsJson = False,
    url: Url = None,
    key: ApiKey = None,
) -> None:
    """Add files, folders (with all below), URLs and standard input; again brings up to date.

    Unchanged files are not sent again, so what was interrupted goes on where it was.
    The files in an archive are waited for, too. The exit code is 1 when anything failed.

    Example: recollect add notes/ report.pdf https://example.org/page --tag handbook
    """
    labels = SharedLabels(tag or [], _metadata(meta or []))
    _check_sources(sources, id)
    impatient = open_service(url, key)
    # Before anything is read: is there a service, does it know the key and the tags?
    newest, _ = impatient.page(containerTags=labels.tags or None, limit=1)
    service = impatient.patient()
    started = newest[0].updated_at if newest else None
    with _open_ledger(f"{service.url} {json.dumps(labels.tags)}") as ledger:
        reports, jobs = _plan(service, ledger, sources, labels, id)
        run = AddRun(service, ledger, DocumentWatch(service, started), reports, wait=wait)
        run.go(jobs)
    if as_json:
        echo_json(run.as_json())
    else:
        run.print_summary()
    if run.stopped_by is not None:
        fail(str(run.stopped_by))
    if run.interrupted:
        raise typer.Exit(130)
    if any(report.outcome is Outcome.FAILED for report in (*run.reports, *run.members)):
        raise typer.Exit(1)


def _metadata(pairs: Sequence[str]) -> dict[str, str | float | bool]:
    metadata: dict[str, str | float | bool] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not name or not equals:
            fail(f"--meta wants KEY=VALUE, not {pair!r}", code=2)
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        plain = isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))
        metadata[name] = value if plain else text
    return metadata


def _check_sources(sources: Sequence[str], id: str | None) -> None:
    if sources.count("-") > 1:
        fail("standard input can be read only once", code=2)
    for source in sources:
        if source != "-" and not _URL.fullmatch(source) and not Path(source).exists():
            fail(f"there is no file or folder {source}", code=2)
    if id is not None and (len(sources) > 1 or Path(sources[0]).is_dir()):
        fail("--id names one document: give one file, URL or -", code=2)


# --- what there is to do -----------------------------------------------------------------------


def _plan(
    service: Service,
    ledger: "AddLedger",
    sources: Sequence[str],
    labels: SharedLabels,
    id: str | None,
) -> tuple[list[AddReport], list[Job]]:
    """What is decided already, and what is to be done."""
    reports: list[AddReport] = []
    jobs: list[Job] = []
    files: dict[Path, LocalFile] = {}
    for source in dict.fromkeys(sources):
        if source == "-":
            data = sys.stdin.buffer.read(LARGEST + 1)
            work = partial(_bring_bytes, service, data, id, labels)
            jobs.append(partial(_attempt, STDIN, work))
        elif _URL.fullmatch(source):
            work = partial(_bring_url, service, source, id, labels)
            jobs.append(partial(_attempt, source, work))
        else:
            path = Path(source).resolve()
            found = walk(path) if path.is_dir() else [LocalFile(path, path.name, named=True)]
            for one in found:
                if isinstance(one, AddReport):
                    reports.append(one)
                else:
                    files.setdefault(one.path, one)
    targets = _aim(ledger, files.values(), id)
    known = _known(service, targets, labels)
    jobs += [
        partial(_attempt, target.label, partial(_bring_file, service, target, known, labels))
        for target in targets
    ]
    return reports, jobs


def walk(root: Path) -> Iterator[LocalFile | AddReport]:
    """Files below a folder, and what is passed over. Links are followed, each folder seen once."""
    seen: set[tuple[int, int]] = set()
    folders, links = [root], list[Path]()
    while folders or links:
        # Links last, so that a folder is known by its real path if that is below the root, too.
        folder = folders.pop() if folders else links.pop()
        label = _label(root, folder)
        try:
            real = folder.resolve(strict=True)
            found = real.stat()
            if (found.st_dev, found.st_ino) in seen:
                yield AddReport(label, Outcome.SKIPPED, reason="link to a folder seen before")
                continue
            seen.add((found.st_dev, found.st_ino))
            with os.scandir(folder) as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
        except OSError as error:
            yield AddReport(label, Outcome.FAILED, reason=_why(error))
            continue
        for entry in entries:
            path = Path(entry.path)
            match _kind(entry):
                case "folder":
                    (links if entry.is_symlink() else folders).append(path)
                case "file":
                    here = path.resolve() if entry.is_symlink() else real / entry.name
                    yield LocalFile(here, _label(root, path), named=False)
                case reason:
                    yield AddReport(_label(root, path), Outcome.SKIPPED, reason=reason)


def _kind(entry: os.DirEntry[str]) -> str:
    """`folder`, `file`, or why it is passed over."""
    if entry.name.startswith("."):
        return "hidden"
    try:
        if entry.is_dir():
            return "folder"
        if entry.is_file():
            return "file"
    except OSError as error:
        return "link in a circle" if error.errno == errno.ELOOP else _why(error)
    return "link to nothing" if entry.is_symlink() else "not a regular file"


def _label(root: Path, path: Path) -> str:
    """`<folder>/<path in it>`; a link's path is taken as it stands."""
    return (Path(root.name) / path.relative_to(root)).as_posix()


def _aim(ledger: "AddLedger", files: Iterable[LocalFile], id: str | None) -> list[AddTarget]:
    targets: list[AddTarget] = []
    claimed: dict[str, str] = {}
    for file in files:
        path, label = str(file.path), file.label
        entry = ledger.find(path)
        if id is not None:
            custom_id = id
            entry = entry if entry and entry.custom_id == id else None
        elif entry is not None:
            custom_id, label = entry.custom_id, entry.label
        else:
            custom_id = identity(path if file.named else label)
            owner = claimed.get(custom_id) or ledger.owner(custom_id)
            # Two folders of the same name must not overwrite each other's documents.
            if owner is not None and owner != path and Path(owner).exists():
                custom_id = identity(path)
        claimed[custom_id] = path
        targets.append(AddTarget(file, custom_id, label, entry))
    return targets


def identity(name: str) -> str:
    """A name as customId: itself if it may be one (255 printable characters), else its end and
    a digest of all of it."""
    if name.isprintable() and len(name) <= 255:
        return name
    digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:16]
    return f"{_printable(name)[-230:]}#{digest}"


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "_" for c in text)


@dataclass(frozen=True, slots=True)
class KnownDocuments:
    """Documents that were there before, as far as folders are concerned."""

    by_id: Mapping[str, DocumentRow]
    by_custom_id: Mapping[str, DocumentRow]


def _known(service: Service, targets: Sequence[AddTarget], labels: SharedLabels) -> KnownDocuments:
    # One list for a folder is far cheaper than one request for each of its files.
    folders = {target.label.partition("/")[0] for target in targets if not target.file.named}
    found = [
        document
        for folder in sorted(folders)
        for document in service.documents(
            filepath=f"{_printable(folder)}/", containerTags=labels.tags[:1] or None
        )
    ]
    return KnownDocuments(
        {document.id: document for document in found},
        {document.custom_id: document for document in found if document.custom_id},
    )


# --- one source, in a sender's thread ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileState:
    """What a file is now."""

    size: int
    mtime: int
    hash: str
    head: bytes


def _attempt(source: str, work: Job) -> AddReport:
    """A source that cannot be added is a fact about it; without permission all would fail alike."""
    try:
        return work()
    except (AuthenticationError, PermissionDeniedError):
        raise
    except (RequestError, Transient) as error:
        return AddReport(source, Outcome.FAILED, reason=str(error))
    except OSError as error:
        return AddReport(source, Outcome.FAILED, reason=_why(error))


def _bring_file(
    service: Service, target: AddTarget, known: KnownDocuments, labels: SharedLabels
) -> AddReport:
    file, entry = target.file, target.entry
    now = time.time_ns()
    look = _look(file.path, entry)
    before = _standing(service, target, known)
    if before and _is_sent(entry, look, labels) and before.status != "failed":
        noted = replace(entry, size=look.size, mtime=look.mtime, noted=now) if entry else None
        return AddReport(
            target.label,
            Outcome.UNCHANGED,
            before.id,
            before.status,
            entry=noted,
            is_archive=bool(before.members),
        )
    mime = mimetypes.guess_type(file.path.name)[0] or UNKNOWN_MIME
    if reason := _refusal(look, file.path.name, mime):
        outcome = Outcome.FAILED if file.named else Outcome.SKIPPED
        return AddReport(target.label, outcome, reason=reason)
    answer = service.upload(
        lambda: file.path.open("rb"),
        _printable(file.path.name),
        mime,
        {
            **labels.fields(),
            "customId": target.custom_id,
            "filepath": _printable(target.label)[-LONGEST_LABEL:],
        },
    )
    sent = LedgerEntry(
        path=str(file.path),
        size=look.size,
        mtime=look.mtime,
        hash=look.hash,
        custom_id=target.custom_id,
        label=target.label,
        metadata=labels.metadata_text or (entry.metadata if entry else None),
        document=answer["id"],
        noted=now,
    )
    # What else the service holds is known of folders only.
    is_new = before is None and (not file.named or _is_new(service, answer["id"]))
    return _report(target.label, answer, labels, is_new=is_new, entry=sent)


def _bring_url(service: Service, url: str, id: str | None, labels: SharedLabels) -> AddReport:
    body = {**labels.body(), "content": url, "customId": id or identity(url)}
    answer = service.send("POST", "/v3/documents", body)
    return _report(url, answer, labels, is_new=_is_new(service, answer["id"]))


def _bring_bytes(service: Service, data: bytes, id: str | None, labels: SharedLabels) -> AddReport:
    """Text is added as such; anything else is sent as a file, so that its bytes decide."""
    if len(data) > LARGEST:
        return AddReport(STDIN, Outcome.FAILED, reason=TOO_LARGE)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        fields = labels.fields() | ({"customId": id} if id else {})
        answer = service.upload(lambda: io.BytesIO(data), "stdin", UNKNOWN_MIME, fields)
    else:
        body = {**labels.body(), "content": text, "customId": id}
        answer = service.send("POST", "/v3/documents", body)
    return _report(STDIN, answer, labels, is_new=_is_new(service, answer["id"]))


def _look(path: Path, entry: LedgerEntry | None) -> FileState:
    """Read the file, unless its size and time prove that it is as the ledger has it."""
    with path.open("rb") as file:
        found = os.fstat(file.fileno())
        head = file.read(HEAD)
        file.seek(0)
        if (
            entry is not None
            and (found.st_size, found.st_mtime_ns) == (entry.size, entry.mtime)
            and entry.noted - entry.mtime > SETTLED
        ):
            return FileState(found.st_size, found.st_mtime_ns, entry.hash, head)
        digest = "" if found.st_size > LARGEST else hashlib.file_digest(file, "sha256").hexdigest()
        return FileState(found.st_size, found.st_mtime_ns, digest, head)


def _standing(service: Service, target: AddTarget, known: KnownDocuments) -> DocumentRow | None:
    """The document that the file had so far, if it is still there."""
    if target.entry is None:
        return known.by_custom_id.get(target.custom_id)
    if target.entry.document in known.by_id:
        return known.by_id[target.entry.document]
    try:
        return DocumentRow.of(service.document(target.entry.document))
    except NotFoundError:
        return None


def _is_sent(entry: LedgerEntry | None, look: FileState, labels: SharedLabels) -> bool:
    """Whether the service has these bytes and this metadata."""
    if entry is None or entry.hash != look.hash:
        return False
    return labels.metadata_text in (None, entry.metadata)


def _refusal(look: FileState, name: str, mime: str) -> str | None:
    if look.size == 0:
        return "empty"
    if look.size > LARGEST:
        return TOO_LARGE
    if detect(look.head, name=name, mime=mime) is None:
        return "kind not supported"
    return None


def _is_new(service: Service, id: str) -> bool:
    return service.document(id)["latestRevision"] == 1


def _report(
    source: str,
    answer: Mapping[str, Any],
    labels: SharedLabels,
    *,
    is_new: bool,
    entry: LedgerEntry | None = None,
) -> AddReport:
    # `done` at once: the content is what it was. What changed, if anything, are the labels.
    if answer["status"] == "done":
        outcome = Outcome.UPDATED if labels.metadata else Outcome.UNCHANGED
    else:
        outcome = Outcome.ADDED if is_new else Outcome.UPDATED
    return AddReport(source, outcome, answer["id"], answer["status"], entry=entry)


def _why(error: OSError) -> str:
    return error.strerror or str(error)


# --- doing it ----------------------------------------------------------------------------------


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
            with _screen() as show:
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


# --- what the user sees meanwhile --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AddProgress:
    total: int
    handled: int
    queued: int
    stages: Mapping[Stage, int]
    awaited: int
    searchable: int
    failed: int

    @property
    def complete(self) -> bool:
        return self.handled == self.total and self.searchable + self.failed == self.awaited


Show = Callable[[AddProgress], None]


@contextmanager
def _screen() -> Generator[Show]:
    """Bars on a terminal, lines elsewhere; on standard error, so that data stays clean."""
    out = console(err=True)
    if not out.is_terminal:
        yield _paced(
            lambda progress: tell(", ".join(f"{name} {n}" for name, n in _steps(progress))), 1.0
        )
        return
    with Live(console=out, transient=True, auto_refresh=False) as live:
        yield _paced(lambda progress: live.update(_bars(progress), refresh=True), 0.1)


def _paced(show: Show, seconds: float) -> Show:
    """Shows what is new, at most every so many seconds, and the end in any case."""
    shown: AddProgress | None = None
    not_before = 0.0

    def maybe(progress: AddProgress) -> None:
        nonlocal shown, not_before
        if progress != shown and (progress.complete or time.monotonic() >= not_before):
            show(progress)
            shown, not_before = progress, time.monotonic() + seconds

    return maybe


def _bars(progress: AddProgress) -> Table:
    grid = Table.grid(padding=(0, 2))
    ends = {"uploading": (progress.handled, progress.total)}
    ends["searchable"] = (progress.searchable, progress.awaited)
    for name, count in _steps(progress):
        done, total = ends.get(name, (0, 0))
        bar = ProgressBar(total, done, width=40) if name in ends else ""
        grid.add_row(name, count, bar)
    return grid


def _steps(progress: AddProgress) -> Iterator[tuple[str, str]]:
    """One for each thing that happens to a document, in that order."""
    yield "uploading", f"{progress.handled}/{progress.total}"
    yield "queued", str(progress.queued)
    for stage, count in progress.stages.items():
        yield stage.value, str(count)
    yield "searchable", f"{progress.searchable}/{progress.awaited}"
    if progress.failed:
        yield "failed", str(progress.failed)


# --- what this machine remembers ---------------------------------------------------------------


class AddLedger:
    """Which files were added to one service under one set of tags. For one thread."""

    def __init__(self, session: sqlite3.Connection, scope: str) -> None:
        self._session = session
        self._scope = scope
        session.execute("pragma journal_mode = wal")
        session.execute("pragma synchronous = normal")
        session.execute(
            "create table if not exists added (scope text, path text, size integer, mtime integer,"
            " hash text, custom_id text, label text, metadata text, document text, noted integer,"
            " primary key (scope, path))"
        )
        session.execute("create index if not exists added_custom_id on added (scope, custom_id)")

    def find(self, path: str) -> LedgerEntry | None:
        row = self._session.execute(
            "select path, size, mtime, hash, custom_id, label, metadata, document, noted"
            " from added where scope = ? and path = ?",
            (self._scope, path),
        ).fetchone()
        return LedgerEntry(*row) if row else None

    def owner(self, custom_id: str) -> str | None:
        """The path that was added last under a customId."""
        row = self._session.execute(
            "select path from added where scope = ? and custom_id = ? order by noted desc limit 1",
            (self._scope, custom_id),
        ).fetchone()
        return row[0] if row else None

    def note(self, entry: LedgerEntry) -> None:
        self._session.execute(
            "insert or replace into added values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (self._scope, *astuple(entry)),
        )


@contextmanager
def _open_ledger(scope: str) -> Generator[AddLedger]:
    folder = Path(platformdirs.user_cache_dir("recollect", appauthor=False))
    path = folder / "added.sqlite3"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        session = sqlite3.connect(path, isolation_level=None)
        ledger = AddLedger(session, scope)
    except (OSError, sqlite3.Error) as error:
        tell(f"{path} cannot be used ({error}): nothing is remembered for the next time")
        session = sqlite3.connect(":memory:", isolation_level=None)
        ledger = AddLedger(session, scope)
    try:
        yield ledger
    finally:
        session.close()
