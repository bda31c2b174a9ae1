"""`recollect add`: files, folders, URLs and standard input into the service.

Adding something again updates it. What makes it the same document is its customId: for a file in a
folder `<folder>/<path in it>`, for a file by itself its absolute path, for a URL the URL. A ledger
in the user's cache folder knows what this machine added where: an unchanged file is not even sent,
and a file keeps its document when it is named in another way. Losing the ledger costs uploads only.
"""

import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from recollect.cli import _complete
from recollect.cli._add_choice import FileChoice
from recollect.cli._add_ledger import open_ledger
from recollect.cli._add_run import AddRun, DocumentWatch
from recollect.cli._add_sending import (
    attempt,
    bring_bytes,
    bring_file,
    bring_url,
    foresee,
    foresee_file,
)
from recollect.cli._add_sources import (
    LARGEST,
    STDIN,
    URL,
    AddReport,
    AddTarget,
    Job,
    LocalFile,
    Outcome,
    SharedLabels,
    aim,
    check_sources,
    identity,
    metadata,
    refused,
    walk,
    what_is_known,
)
from recollect.cli.client import ApiKey, AsJson, Service, Url, open_service
from recollect.cli.output import confirm, echo_json, fail, working

MANY = 1_000
"""Files above which a person is asked."""


def register(app: typer.Typer) -> None:
    app.command()(add)


def add(
    sources: Annotated[
        list[str], typer.Argument(metavar="PATH|DIR|URL|-", help="- reads standard input.")
    ],
    tag: Annotated[
        list[str] | None,
        typer.Option(
            "--tag", help="Container tag; repeat for several.", autocompletion=_complete.tags
        ),
    ] = None,
    id: Annotated[
        str | None, typer.Option("--id", help="customId, for one source; the same id updates.")
    ] = None,
    meta: Annotated[
        list[str] | None,
        typer.Option("--meta", metavar="KEY=VALUE", help="Metadata; numbers and true, false too."),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option("--exclude", metavar="GLOB", help="In folders, leave these out; repeatable."),
    ] = None,
    include: Annotated[
        list[str] | None,
        typer.Option("--include", metavar="GLOB", help="In folders, take only these; repeatable."),
    ] = None,
    ignore: Annotated[
        bool, typer.Option("--ignore/--no-ignore", help="Leave out what .gitignore leaves out.")
    ] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be added; send nothing.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask, however many files there are.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until everything is searchable.")
    ] = True,
    as_json: AsJson = False,
    url: Url = None,
    key: ApiKey = None,
) -> None:
    """Add files, folders with everything in them, URLs and standard input.

    Run it again to update what changed: unchanged files are not sent again, so an interrupted run
    goes on where it was. Hidden files, node_modules and what .gitignore names are left out of
    folders. It waits for the files in an archive, too. The exit code is 1 if anything failed.

    Example: recollect add notes/ report.pdf https://example.org/page --tag handbook
    """
    labels = SharedLabels(tag or [], metadata(meta or []))
    choice = FileChoice.of(exclude or (), include or (), gitignore=ignore)
    check_sources(sources, id)
    impatient = open_service(url, key)
    # Before anything is read: is there a service, does it know the key and the tags?
    newest, _ = impatient.page(containerTags=labels.tags or None, limit=1)
    service = impatient.patient()
    started = newest[0].updated_at if newest else None
    with open_ledger(f"{service.url} {json.dumps(labels.tags)}") as ledger:
        with working("looking for files"):
            reports, files = _find(sources, choice)
        if not (yes or dry_run):
            _ask(files)
        targets = aim(ledger, files, id)
        jobs = _jobs(service, sources, targets, labels, id, dry=dry_run)
        watch = DocumentWatch(service, started)
        run = AddRun(service, ledger, watch, reports, wait=wait, dry=dry_run)
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


# --- what there is to do -----------------------------------------------------------------------


def _find(
    sources: Sequence[str], choice: FileChoice
) -> tuple[list[AddReport], Sequence[LocalFile]]:
    """What is passed over, and the files that can be sent, each once."""
    reports: list[AddReport] = []
    files: dict[Path, LocalFile] = {}
    for source in dict.fromkeys(sources):
        if source == "-" or URL.fullmatch(source):
            continue
        path = Path(source).resolve()
        found = walk(path, choice) if path.is_dir() else [LocalFile(path, path.name, named=True)]
        for one in found:
            report = one if isinstance(one, AddReport) else refused(one)
            if report is not None:
                reports.append(report)
            elif isinstance(one, LocalFile):
                files.setdefault(one.path, one)
    return reports, list(files.values())


def _ask(files: Sequence[LocalFile]) -> None:
    """Many files may be a mistake, such as a home folder."""
    if len(files) > MANY and sys.stdin.isatty() and sys.stderr.isatty():
        told = f"Add {len(files):,} files? `--dry-run` lists them, `--exclude` leaves some out."
        confirm(told, yes=False)


def _jobs(
    service: Service,
    sources: Sequence[str],
    targets: Sequence[AddTarget],
    labels: SharedLabels,
    id: str | None,
    *,
    dry: bool,
) -> list[Job]:
    """`dry`: jobs that send nothing and say what the others would do."""
    work: list[tuple[str, Job]] = []
    for source in dict.fromkeys(sources):
        if source == "-" and dry:
            work.append((STDIN, partial(foresee, service, STDIN, id)))
        elif source == "-":
            data = sys.stdin.buffer.read(LARGEST + 1)
            work.append((STDIN, partial(bring_bytes, service, data, id, labels)))
        elif URL.fullmatch(source) and dry:
            work.append((source, partial(foresee, service, source, id or identity(source))))
        elif URL.fullmatch(source):
            work.append((source, partial(bring_url, service, source, id, labels)))
    known = what_is_known(service, targets, labels)
    bring = foresee_file if dry else bring_file
    work += [(one.label, partial(bring, service, one, known, labels)) for one in targets]
    return [partial(attempt, source, job) for source, job in work]
