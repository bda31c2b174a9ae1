"""`recollect add`: files, folders, URLs and standard input into the service.

Adding again brings up to date. What makes it the same document is its customId: for a file in a
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

from recollect.cli._add_ledger import AddLedger, open_ledger
from recollect.cli._add_run import AddRun, DocumentWatch
from recollect.cli._add_sending import attempt, bring_bytes, bring_file, bring_url
from recollect.cli._add_sources import (
    LARGEST,
    STDIN,
    URL,
    AddReport,
    Job,
    LocalFile,
    Outcome,
    SharedLabels,
    aim,
    check_sources,
    metadata,
    walk,
    what_is_known,
)
from recollect.cli.client import ApiKey, AsJson, Service, Url, open_service
from recollect.cli.output import echo_json, fail


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
    labels = SharedLabels(tag or [], metadata(meta or []))
    check_sources(sources, id)
    impatient = open_service(url, key)
    # Before anything is read: is there a service, does it know the key and the tags?
    newest, _ = impatient.page(containerTags=labels.tags or None, limit=1)
    service = impatient.patient()
    started = newest[0].updated_at if newest else None
    with open_ledger(f"{service.url} {json.dumps(labels.tags)}") as ledger:
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
            work = partial(bring_bytes, service, data, id, labels)
            jobs.append(partial(attempt, STDIN, work))
        elif URL.fullmatch(source):
            work = partial(bring_url, service, source, id, labels)
            jobs.append(partial(attempt, source, work))
        else:
            path = Path(source).resolve()
            found = walk(path) if path.is_dir() else [LocalFile(path, path.name, named=True)]
            for one in found:
                if isinstance(one, AddReport):
                    reports.append(one)
                else:
                    files.setdefault(one.path, one)
    targets = aim(ledger, files.values(), id)
    known = what_is_known(service, targets, labels)
    jobs += [
        partial(attempt, target.label, partial(bring_file, service, target, known, labels))
        for target in targets
    ]
    return reports, jobs
