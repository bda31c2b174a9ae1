"""`recollect torture`: does the service keep its promises while everything around it breaks?"""

import secrets
import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from recollect import log
from recollect.cli._process import on_signals
from recollect.cli.client import AsJson
from recollect.cli.output import echo_json, table, tell
from recollect.torture import VERDICTS, Report, Torture, capable, make

SHOWN = 20
"""Faults of a verdict that are printed; `--json` has all."""

Seed = Annotated[
    int | None, typer.Option(help="Repeat a run, as far as threads and signals allow.")
]
Minutes = Annotated[float, typer.Option(min=0.05, help="Minutes of faults, at least.")]
Kills = Annotated[
    int | None, typer.Option(min=0, help="Number of SIGKILLs; by default 12 a minute.")
]
Machines = Annotated[
    bool, typer.Option("--machines", help="Two API and three worker processes, one PostgreSQL.")
]
BlobStore = Annotated[
    str | None, typer.Option("--blobs", help="File store, s3://bucket/prefix; by default a folder.")
]
Keep = Annotated[bool, typer.Option("--keep", help="Keep the scratch folder: ledger, log, data.")]


def register(app: typer.Typer) -> None:
    app.command()(torture)


def torture(
    seed: Seed = None,
    minutes: Minutes = 1.0,
    kills: Kills = None,
    machines: Machines = False,
    blobs: BlobStore = None,
    keep: Keep = False,
    as_json: AsJson = False,
) -> None:
    """Run the whole service on a scratch folder, break what can break, and compare every document.

    Kills any of its processes and PostgreSQL's, fills its disk, spoils its embedding endpoint,
    cuts connections; prints what was lost, doubled, stuck or wrong. Exit code 1 if anything was.
    Ctrl-C ends the faults early and compares what there is.

    With --machines each process has a data folder of its own, as if it were on a machine of its
    own, and is frozen now and then, too; they share PostgreSQL and a store of files.

    Example: recollect torture --seed 7 --minutes 5 --kills 60
    """
    log.configure("error", process="torture")
    able, not_done, clock = capable()
    if machines:
        able.append("freeze")
    if seed is None:
        seed = secrets.randbelow(10**6)
    plan = make(seed, minutes, kills, able, machines=machines)
    tell(plan.command)
    folder = Path(tempfile.mkdtemp(prefix="recollect-torture-"))
    folder.chmod(0o711)  # PostgreSQL's own user passes through
    try:
        with Torture(plan, folder, tell, not_done, clock, blobs=blobs) as run:
            on_signals(run.enough.set)
            report = run.run()
            if keep:
                run.ground.keep(folder / "kept")
    finally:
        if keep:
            tell(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    if as_json:
        echo_json(report.as_json())
    else:
        _show(report)
    if not report.good:
        raise typer.Exit(1)


def _show(report: Report) -> None:
    for verdict in VERDICTS:
        faults = [fault.what for fault in report.faults if fault.verdict == verdict]
        for what in faults[:SHOWN]:
            typer.echo(f"{verdict}: {what}")
        if len(faults) > SHOWN:
            typer.echo(f"{verdict}: {len(faults) - SHOWN} more")
    table(["verdict", "documents"], [[name, str(report.count(name))] for name in VERDICTS])
    typer.echo()
    rows = [[f"kills: {what}", str(count)] for what, count in sorted(report.kills.items())]
    rows += [["kills", str(sum(report.kills.values()))]]
    rows += [[what, str(count)] for what, count in sorted(report.others.items())]
    rows += [[_words(name), f"{value:g}"] for name, value in report.figures.items()]
    rows += [[what, f"not done: {why}"] for what, why in report.not_done.items()]
    table(["what", "how much"], rows)
    typer.echo(f"\nagain: {report.plan.command}")


def _words(name: str) -> str:
    """`drainSeconds` as `drain seconds`."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name)
