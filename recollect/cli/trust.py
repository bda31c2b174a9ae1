"""Commands that show that the service can be trusted: purge, verify, receipt.

They work on the database of the settings, whether the service runs or not.
"""

from dataclasses import asdict
from typing import Annotated

import typer

from recollect.blobs import open_blobs
from recollect.cli._config import load
from recollect.cli._database import opened
from recollect.cli.output import counted, echo_json, fail, shown, table, tell, working
from recollect.ops import verify as checks
from recollect.ops.purge import Receipt, latest, receipts
from recollect.ops.purge import purge as purge_now
from recollect.orgs import audit

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
MB = 1_048_576
LISTED = 20


def register(app: typer.Typer) -> None:
    app.command()(purge)
    app.command()(verify)
    app.command()(receipt)


def purge(
    now: Annotated[bool, typer.Option("--now", help="Do it, at once.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove from the disk what was deleted: pages, statistics, write-ahead log, files.

    The service does it by itself every RECOLLECT_PURGE_INTERVAL; it may run meanwhile.

    Example: recollect purge --now
    """
    if not now:
        fail("add --now to purge at once; the service purges by itself otherwise", code=2)
    config = load()
    with opened(config) as db:
        with working("purging"):
            done = purge_now(db, open_blobs(config.blobs, used=True), config.data_dir)
        audit.act(audit.CLI)
        with db.begin() as tx:
            audit.record(tx, "purge.done", done.id, receipts=done.receipts)
    if as_json:
        echo_json(asdict(done))
    else:
        before = sum(one.before for one in done.tables)
        after = sum(one.after for one in done.tables)
        typer.echo(
            f"purged in {done.seconds:.1f} s: {len(done.tables)} tables,"
            f" {before / MB:.1f} MB before, {after / MB:.1f} MB now"
        )
        longest = max(done.tables, key=lambda one: one.locked, default=None)
        if longest is not None:
            typer.echo(f"longest lock {longest.locked:.2f} s ({longest.table})")
        typer.echo(
            f"{counted(done.files, 'file')} removed, {counted(done.receipts, 'deletion')} completed"
        )
    for rest in done.left:
        tell(f"not reached: {rest}")


def verify(
    mend: Annotated[bool, typer.Option("--mend", help="Repair what can be repaired.")] = False,
    as_json: AsJson = False,
) -> None:
    """Prove that documents, index and files agree; exit code 1 when something was found.

    The service may run meanwhile. With --mend the exit code is 1 for what could not be repaired.

    Example: recollect verify --mend
    """
    config = load()
    with opened(config) as db, working("looking at every document, chunk and file"):
        done = checks.verify(db, open_blobs(config.blobs, used=True), mend=mend)
    if as_json:
        echo_json(asdict(done))
    else:
        typer.echo(
            f"{counted(done.documents, 'document')}, {counted(done.entries, 'entry', 'entries')},"
            f" {counted(done.files, 'file')} looked at in {done.seconds:.1f} s"
        )
        if done.findings:
            table(
                ["found", "count", "for example", "mend", "mended"],
                [
                    [one.kind, str(one.count), ", ".join(one.examples), one.mend, str(one.mended)]
                    for one in done.findings
                ],
            )
        else:
            typer.echo("everything agrees")
    if any(one.count > one.mended for one in done.findings):
        raise typer.Exit(1)


def receipt(id: Annotated[str | None, typer.Argument()] = None, as_json: AsJson = False) -> None:
    """Show that a document was deleted: when, by which key, and since when it is off the disk.

    ID is the document's, or that of a receipt. Exit code 1 when there is none. Without an ID, the
    last 20 deletions are listed.

    Example: recollect receipt 7msRU48jI0KqwTPC6nnlhv
    """
    with opened(load()) as db, db.begin() as tx:
        found = latest(tx, LISTED) if id is None else receipts(tx, id)
    told = [_shown(one) for one in found]
    if as_json:
        echo_json(told)
    elif id is None:
        names = ["receipt", "key", "documents", "chunks", "files", "deletedAt", "purgedAt"]
        table(names, [[shown(one[name]) or "-" for name in names] for one in told])
    else:
        for one in told:
            for name, value in one.items():
                typer.echo(f"{name:10}{shown(value) or '-'}")
    if not found and id is not None:
        fail(
            f"nothing was deleted under the id {id}; it takes no name and no customId."
            " `recollect receipt` lists the last deletions"
        )


def _shown(one: Receipt) -> dict[str, object]:
    return {
        "receipt": one.id,
        "org": one.org,
        "key": one.key,
        "documents": one.documents,
        "chunks": one.chunks,
        "files": one.files,
        "deletedAt": one.deleted_at.isoformat(),
        "purgedAt": one.purged_at and one.purged_at.isoformat(),
        "sha256": list(one.sha256),
    }
