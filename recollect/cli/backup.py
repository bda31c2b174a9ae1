"""`backup` and `restore` of the whole installation; `export` and `import` of documents."""

import itertools
import os
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.live import Live
from rich.text import Text

from recollect import encryption
from recollect.app import open_app, secret_keys
from recollect.blobs import open_blobs
from recollect.cli._config import load
from recollect.cli._database import address, refuse_no_database
from recollect.cli._log import log_of_command
from recollect.cli.output import console, counted, echo_json, if_stopped, tell
from recollect.config import Config
from recollect.db import Database, Tx
from recollect.db.embedded import database
from recollect.errors import AuthenticationError, SetupError, Unavailable
from recollect.ops import backup as backups
from recollect.ops.backup import Archive, Progress, Tell
from recollect.orgs import audit, orgs, tags
from recollect.sync import connections

SECRETS = ("secret-key", "api-key")
"""Files of the data folder that open what is sealed, and the service."""

AUDITED = "0011_events"
"""The migration that brought the audit log."""
SHOWN = 20
"""Ids that are printed; `--json` has all."""
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
OrgName = Annotated[str, typer.Option("--org", help="Name of the organisation.")]


def register(app: typer.Typer) -> None:
    app.command()(backup)
    app.command()(restore)
    app.command()(export)
    app.command("import")(bring)


def backup(
    file: Annotated[Path, typer.Argument(help="The file to write.")],
    with_key: Annotated[
        bool,
        typer.Option(
            "--with-key", help="Include the secret key; then keep the file as secret as the key."
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write everything into one file, while the service goes on.

    Example: recollect backup /backups/recollect-monday.zip
    """
    config = _config()
    stopped = if_stopped(f"there is no new {file}; a backup is complete or absent")
    with _watched("backup") as show, stopped:
        refuse_no_database(config)
        secrets = _secrets(config) if with_key else {}
        with database(config) as ensure:
            url = ensure()
            made = backups.backup(
                url,
                open_blobs(config.blobs, used=True),
                file,
                sealed_with=_mark(config),
                secrets=secrets,
                force=force,
                tell=show,
            )
            if AUDITED in made.manifest.migrations:  # a backup changes no older schema
                audit.act(audit.CLI)
                with _recorded(), Database(url, size=1) as db, db.begin() as tx:
                    audit.record(tx, "backup.made", with_key=bool(secrets))
    manifest = made.manifest
    if as_json:
        echo_json(
            {
                "file": str(made.path),
                "bytes": made.bytes,
                "madeAt": manifest.made_at.isoformat(),
                "schema": manifest.migrations[-1] if manifest.migrations else None,
                "documents": manifest.rows("documents"),
                "connections": manifest.rows("connections"),
                "rows": {table.name: table.rows for table in manifest.tables},
                "files": manifest.files,
                "fileBytes": manifest.file_bytes,
                "missing": manifest.missing,
                "damaged": manifest.damaged,
                "secrets": manifest.secrets,
            }
        )
    else:
        typer.echo(
            f"{made.path}: {counted(manifest.rows('documents'), 'document')},"
            f" {counted(manifest.files, 'file')}, {made.bytes / 1e6:.1f} MB,"
            f" as of {manifest.made_at:%Y-%m-%d %H:%M:%S} UTC"
        )
    if manifest.missing:
        tell(
            f"missing in the blob store, so in the backup, too:"
            f" {counted(len(manifest.missing), 'file')} that documents were uploaded as; the first"
            f" is {manifest.missing[0]}"
        )
    if manifest.damaged:
        tell(
            f"{len(manifest.damaged)} uploaded files are damaged in the blob store, and are in the"
            " backup as they are: `recollect verify` names their documents"
        )
    if config.secret_key is not None:
        tell(
            "RECOLLECT_SECRET_KEY is not in it: keep it elsewhere, or connections must be"
            " authorized again after a restore"
        )
    elif "secret-key" not in manifest.secrets:
        tell(
            "the secret key is not in it: keep a copy of DATA_DIR/secret-key elsewhere, or"
            " connections must be authorized again after a restore"
        )


def restore(
    file: Annotated[Path, typer.Argument(help="A file of `recollect backup`.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Delete what the database holds now.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Bring a backup into an empty database and data folder; the service must not run.

    Example: RECOLLECT_DATA_DIR=/srv/recollect recollect restore /backups/recollect-monday.zip
    """
    config = _config()
    with _watched("restore") as show, Archive(file) as archive:
        backups.check_schema(archive.manifest)
        archive.check(show)
        secrets = {name: archive.read(f"secrets/{name}") for name in archive.manifest.secrets}
        with database(config) as ensure:
            url = ensure()
            stopped = if_stopped("the database is as it was before")
            with stopped, _secrets_put(config, secrets):
                done = backups.restore(
                    archive,
                    url,
                    open_blobs(config.blobs, used=True),
                    replace=replace,
                    index_shards=config.index_shards,
                    tell=show,
                )
            marks = [encryption.mark([key]) for key in secret_keys(config)]
            with Database(url, size=1) as db, db.begin() as tx:
                sealed = connections.sealed_by_others(tx, marks[0])
                kept = _opens(tx, config)
                audit.act(audit.CLI)
                audit.record(tx, "backup.restored", made_at=done.manifest.made_at.isoformat())
    manifest = done.manifest
    key_missing = manifest.sealed_with not in marks and (bool(manifest.sealed_with) or sealed > 0)
    closed = sealed if key_missing else 0
    if as_json:
        echo_json(
            {
                "file": str(file),
                "madeAt": manifest.made_at.isoformat(),
                "recollect": manifest.recollect,
                "documents": done.documents,
                "connections": manifest.rows("connections"),
                "files": manifest.files,
                "missing": manifest.missing,
                "damaged": list(done.damaged),
                "migrated": list(done.migrated),
                "leftOut": list(done.strange),
                "secrets": sorted(secrets),
                "keyMissing": key_missing,
                "connectionsClosed": closed,
                "keyKept": kept,
                "deletedAreBack": list(done.deleted),
                "revokedAreBack": list(done.revoked),
            }
        )
    else:
        typer.echo(
            f"restored {counted(done.documents, 'document')} and"
            f" {counted(manifest.files, 'file')}, as of"
            f" {manifest.made_at:%Y-%m-%d %H:%M:%S} UTC"
        )
        if done.migrated:
            typer.echo(f"brought the schema up to date: {', '.join(done.migrated)}")
    if done.strange:
        tell(f"left out, since they are not Recollect's: {', '.join(done.strange)}")
    if manifest.missing:
        tell(f"missing when the backup was made: {counted(len(manifest.missing), 'uploaded file')}")
    if done.damaged:
        tell(
            f"damaged when the backup was made: {counted(len(done.damaged), 'uploaded file')};"
            " `recollect verify` names the documents"
        )
    if key_missing:
        again = (
            f"{counted(closed, 'connection')} must be authorized again; the" if closed else "The"
        )
        tell(
            "the secret key of that installation is not here: what it sealed cannot be opened."
            f" {again} secrets among the settings must be set again, unless you put its secret-key"
            " file into DATA_DIR, or its RECOLLECT_SECRET_KEY behind this one's after a comma"
        )
    if not kept:
        tell(
            f"no key that opens it is in {config.data_dir / 'api-key'}: use one that you have, or"
            " `recollect keys create --scope admin`"
        )
    tell("what was deleted since then is back, and keys that were revoked since then open again")
    for what, ids in (("documents", done.deleted), ("keys", done.revoked)):
        if ids:
            more = f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else ""
            tell(f"  {what}, as the replaced database knew: {', '.join(ids[:SHOWN])}{more}")


def _opens(tx: Tx, config: Config) -> bool:
    """Whether the commands find a key that the installation takes."""
    if config.api_key is not None:
        return True  # the start of the service sees to it
    try:
        orgs.authenticate(tx, (config.data_dir / "api-key").read_text().strip())
    except (OSError, UnicodeDecodeError, AuthenticationError):
        return False
    return True


def export(
    folder: Annotated[Path, typer.Argument(help="The folder to create.")],
    org: OrgName = orgs.DEFAULT,
    tag: Annotated[
        list[str] | None, typer.Option(help="Only documents with this container tag.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write an organisation's documents as an open bundle of JSON and files.

    Example: recollect export handbook-bundle --org acme --tag handbook
    """
    config = _config()
    stopped = if_stopped(f"there is no {folder}; a bundle is complete or absent")
    with _watched("export") as show, stopped:
        only = tags.check(tag, "--tag") if tag else None
        with address(config) as url:
            bundle = backups.export(
                url, open_blobs(config.blobs, used=True), folder, org=org, tags=only, tell=show
            )
            with _recorded():
                _record(url, "export.made", org, bundle.documents)
    if as_json:
        echo_json(
            {
                "folder": str(folder),
                "org": bundle.org,
                "documents": bundle.documents,
                "chunks": bundle.chunks,
                "files": bundle.files,
                "memories": bundle.memories,
                "questions": bundle.questions,
                "leftOut": bundle.left_out,
                "missing": bundle.missing,
                "damaged": bundle.damaged,
                "embedder": bundle.embedder.name if bundle.embedder else None,
            }
        )
    else:
        typer.echo(
            f"{folder}: {counted(bundle.documents or 0, 'document')},"
            f" {counted(bundle.chunks or 0, 'chunk')}, {counted(bundle.files or 0, 'file')},"
            f" {counted(bundle.memories or 0, 'memory', 'memories')},"
            f" {counted(bundle.questions or 0, 'test question')}"
        )
    if bundle.left_out:
        tell(f"left out: {counted(bundle.left_out, 'document')}, yet to be fetched by a connection")
    if bundle.missing:
        tell(f"{counted(len(bundle.missing), 'document')} lost the uploaded file")
    if bundle.damaged:
        tell(f"damaged in the blob store: the files of {counted(len(bundle.damaged), 'document')}")


def bring(
    folder: Annotated[Path, typer.Argument(help="A folder of `recollect export`.")],
    org: OrgName = orgs.DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Add the documents of a bundle to an organisation; those that are there already stay.

    The exit code is 1 when something of the bundle does not stand here as the bundle has it.

    Example: recollect import handbook-bundle --org acme
    """
    config = _config()
    stopped = if_stopped("what was added stays; the same command adds the rest")
    with _watched("import") as show, stopped:
        bundle = backups.open_bundle(folder)
        with address(config) as url, open_app(config, url) as app:
            reason = backups.must_embed(bundle, app.embedder)
            if reason is not None:
                tell(reason)
            _record(url, "import.begun", org, bundle.documents)
            brought = backups.bring(app, folder, org=org, tell=show)
    if as_json:
        echo_json(
            {
                "folder": str(folder),
                "org": org,
                "added": brought.added,
                "unchanged": brought.there,
                "differing": brought.differing,
                "queued": brought.queued,
                "renamed": brought.renamed,
                "memories": brought.memories,
                "memoriesDiffering": brought.memories_differing,
                "memoriesLeftOut": brought.memories_left_out,
                "questions": brought.questions,
                "questionsLeftOut": brought.questions_left_out,
                "vectorsTakenOver": brought.taken_over,
                "vectorsMade": brought.embedded,
                "embedsBecause": reason,
            }
        )
    else:
        typer.echo(
            f"{brought.added} added, {brought.there} there already;"
            f" {counted(brought.memories, 'memory', 'memories')},"
            f" {counted(brought.questions, 'test question')};"
            f" {counted(brought.taken_over, 'vector')} taken over,"
            f" {brought.embedded} made"
        )
    if brought.differing:
        tell(f"{brought.differing} of those there already differ from the bundle, and stay")
    if brought.memories_differing:
        tell(
            "corrected or forgotten here or in the bundle, and not in the other:"
            f" {counted(brought.memories_differing, 'memory', 'memories')}; what was here still"
            " stands"
        )
    if brought.memories_left_out:
        tell(
            f"{counted(brought.memories_left_out, 'memory', 'memories')} left out:"
            " none of the documents that they came from is here"
        )
    if brought.questions_left_out:
        tell(
            f"{brought.questions_left_out} test questions left out: the document that they were"
            " made of is not here, or their tag has as many as it may"
        )
    if brought.queued:
        tell(f"waiting for a worker: {brought.queued} of the added")
    if brought.conflicts:
        raise typer.Exit(1)


@contextmanager
def _recorded() -> Generator[None]:
    """For the row of what is complete: a database that takes no writes, or whose disk is full, is
    one to save."""
    try:
        yield
    except Unavailable as error:
        tell(f"it is complete, and not in the audit log: {error}")


def _record(url: str, action: str, org: str, documents: int | None) -> None:
    """Add a row to the audit log of the organisation of that name. Raises NotFoundError."""
    audit.act(audit.CLI)
    with Database(url, size=1) as db, db.begin() as tx:
        audit.record(tx, action, org=orgs.find(tx, org).id, documents=documents)


def _config() -> Config:
    config = load()
    log_of_command(config.log_level)
    return config


def _mark(config: Config) -> str:
    """The mark of the newest key. Empty on a machine that has no key: this makes none."""
    if config.secret_key is None and not (config.data_dir / "secret-key").exists():
        return ""
    return encryption.mark(secret_keys(config))


def _secrets(config: Config) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name in SECRETS:
        path = config.data_dir / name
        try:
            found[name] = path.read_bytes()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise SetupError(f"{path} cannot be read ({error.strerror})") from error
    return found


@contextmanager
def _secrets_put(config: Config, secrets: Mapping[str, bytes]) -> Generator[None]:
    """Let files of secrets stand in the data folder for the block and afterwards, unless it fails;
    one that replaces another only once the block is through. Others wait for the end of it.

    So no database is restored without its key, however suddenly the command ends. Where nobody
    knows whether it was restored (Unavailable), they stay. Raises SetupError.
    """
    ready = {config.data_dir / name: secrets[name] for name in SECRETS if name in secrets}
    asides = {path: path.with_name(f"{path.name}.restoring") for path in ready}
    with ExitStack() as ending:
        with _writing_to(config.data_dir):
            config.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            ending.enter_context(backups.alone(config.data_dir))
            ending.callback(_remove, asides.values())
            new = [path for path in ready if not os.path.lexists(path)]
            for path, data in ready.items():
                made = os.open(asides[path], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                with os.fdopen(made, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(made)
            for path in new:
                asides[path].rename(path)
        try:
            yield
        except Unavailable:
            raise
        except BaseException:
            _remove(new)
            raise
        with _writing_to(config.data_dir):
            for path in ready.keys() - set(new):
                if path.exists() and path.read_bytes() != ready[path]:
                    path.rename(_unused(path.with_name(f"{path.name}.replaced")))
                asides[path].rename(path)


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _unused(path: Path) -> Path:
    """`path`, or the path with the first number behind it that is free: a file that is there may be
    the only copy of a key, so it is never replaced."""
    numbered = (path.with_name(f"{path.name}.{n}") for n in itertools.count(2))
    return next(one for one in itertools.chain([path], numbered) if not os.path.lexists(one))


@contextmanager
def _writing_to(folder: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise SetupError(
            f"the keys of the backup cannot be put into {folder} ({error.strerror})"
        ) from error


@contextmanager
def _watched(what: str) -> Generator[Tell]:
    """One line that says how far it is; on a terminal only."""
    out = console(err=True)
    if not out.is_terminal:
        yield backups.silent
        return
    shown_at = 0.0
    with Live(console=out, transient=True, auto_refresh=False) as live:

        def show(progress: Progress) -> None:
            nonlocal shown_at
            if time.monotonic() < shown_at + 0.1:
                return
            shown_at = time.monotonic()
            of = "" if progress.total is None else f" of {progress.total:,}"
            live.update(
                Text(f"{what}: {progress.step} {progress.done:,}{of} {progress.detail}"),
                refresh=True,
            )

        yield show
