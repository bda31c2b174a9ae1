"""From a backup to a database that can serve: all of it or nothing, in one transaction."""

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

import psycopg
from psycopg import sql

from recollect.blobs import KEY, Blobs, delete_all, is_whole
from recollect.db import Tx, citus, machines
from recollect.db.schema import MIGRATION_LOCK, scripts
from recollect.db.server_check import check_server, have_vectors
from recollect.errors import Permanent, SetupError, Unavailable
from recollect.index import vector_index
from recollect.ops.backup import _catalogue
from recollect.ops.backup._archive import (
    LARGEST_FILE,
    Archive,
    Manifest,
    Progress,
    Table,
    Tell,
    silent,
)
from recollect.ops.backup._session import PATIENCE, session

UNREADABLE = (
    psycopg.errors.DataError,
    psycopg.errors.IntegrityError,
    psycopg.errors.ProtocolViolation,
)
"""what the server says of bytes that are no rows of a table; the last one ends no session"""
_PAUSE = threading.Event()


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore brought."""

    manifest: Manifest
    documents: int
    migrated: Sequence[str]
    """migrations applied after the backup's own"""
    strange: Sequence[str]
    """tables in the backup that are none of Recollect's, left out"""
    damaged: Sequence[str]
    """keys of files that were damaged before the backup was made"""
    deleted: Sequence[str]
    """ids of documents that are back, though the database that was replaced had deleted them"""
    revoked: Sequence[str]
    """ids of API keys that open again, though it had revoked them"""


def check_schema(manifest: Manifest) -> None:
    """Raises SetupError when this version does not know all of the backup's migrations."""
    known = {name for name, _ in scripts()}
    newer = [name for name in manifest.migrations if name not in known]
    if newer:
        raise SetupError(
            f"the backup was made by Recollect {manifest.recollect}, whose schema is newer than"
            f" this one's (it has {newer[-1]}); install that version to restore it"
        )


def restore(
    archive: Archive,
    url: str,
    blobs: Blobs,
    *,
    replace: bool = False,
    index_shards: int | None = None,
    tell: Tell = silent,
) -> Restored:
    """Make the schema as the backup's, load the rows, then bring the schema up to date; and spread
    the index, as `migrate` does it.

    The archive must have been checked. The database must be unused, unless `replace`: then what
    it holds is dropped. Raises SetupError when it is used, in use, or another program's, and when
    something does not fit; then database and files are as before.
    """
    check_schema(archive.manifest)
    brought = _Brought(blobs)
    with session(url) as tx:
        check_server(tx)
        try:
            tx.execute("begin")
            tx.execute("set local maintenance_work_mem = '256MB'")
            tx.execute("select pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
            _refuse_used(tx, replace)
            brought.begin()
            ended = _ended_since(tx, archive.manifest.made_at)
            _catalogue.drop_all(tx)
            citus.keep_apart(tx)
            have_vectors(tx)
            _make_schema(tx, archive.manifest)
            strange = _load(tx, archive, tell)
            migrated = _migrate(tx)
            if index_shards is not None:
                citus.spread(tx, index_shards)
            # Who signed out of the console since the backup was made stays so, and an assistant
            # that was revoked. A token that was renewed since must not count again, either.
            tx.execute("delete from sessions")
            tx.execute("delete from assistant_tokens")
            deleted, revoked = _back_again(tx, *ended)
            tell(Progress("indexes", 0, None, "vectors"))
            vector_index.rebuild(tx)
            _catalogue.analyze(tx)
            damaged = _bring_files(tx, archive, blobs, brought.keys, tell)
        except BaseException:
            brought.take_back()
            raise
        _commit(tx, url, brought)
    rows = archive.manifest.rows("documents")
    return Restored(archive.manifest, rows, migrated, strange, damaged, deleted, revoked)


class _Brought:
    """What a restore put into the store of files."""

    def __init__(self, blobs: Blobs) -> None:
        self.keys: list[str] = []
        self._blobs = blobs
        self._made = False

    def begin(self) -> None:
        """Make the store if it is none yet. Called only once the database may be restored: a new
        store that is left behind lets the service start though its volume is not mounted."""
        self._made = self._blobs.begin()

    def take_back(self) -> None:
        """Delete all of it that the store lets go, and the store if this restore made it."""
        done = delete_all(self._blobs, self.keys)
        if self._made and len(done.gone) == len(self.keys):
            self._blobs.end()


def _commit(tx: Tx, url: str, brought: _Brought) -> None:
    """Commit, and when the answer is lost, ask the server what became of it."""
    row = tx.execute("select pg_current_xact_id()::text as id").fetchone()
    assert row is not None
    try:
        tx.execute("commit")
    except psycopg.OperationalError as error:
        if _came_through(url, row["id"], error):
            return
        brought.take_back()
        raise


def _came_through(url: str, transaction: str, lost: Exception) -> bool:
    """Whether a transaction was committed whose connection is lost."""
    give_up = time.monotonic() + PATIENCE
    while time.monotonic() < give_up:
        with suppress(Unavailable), session(url) as tx:
            row = tx.execute("select pg_xact_status(%s::xid8) as fate", (transaction,)).fetchone()
            if row is not None and row["fate"] in ("committed", "aborted"):
                return row["fate"] == "committed"
        _PAUSE.wait(0.2)
    raise Unavailable(
        "the database went away during the commit, so nobody knows whether it is restored;"
        " run it again: it is refused if all is there"
    ) from lost


def _refuse_used(tx: Tx, replace: bool) -> None:
    found = _catalogue.tables(tx)
    if not found:
        return
    if "migrations" not in found or "orgs" not in found:
        raise SetupError(
            "the database holds tables of another program"
            f" ({', '.join(found[:5])}); give Recollect a database of its own"
        )
    if machines.is_served(tx, "recollect"):
        raise SetupError("a service is running on this database; stop it first")
    used = tx.execute("select exists (select from orgs) as used").fetchone()
    if used and used["used"] and not replace:
        raise SetupError(
            "the database is in use already: it has organisations. Restore into an empty one"
            " (another RECOLLECT_DATA_DIR or RECOLLECT_DATABASE_URL), or drop all it holds with"
            " --replace"
        )


def _ended_since(tx: Tx, moment: datetime) -> tuple[list[bytes], list[str]]:
    """What the database that is to be replaced knows of: digests of the documents that were deleted
    after that moment, and ids of the API keys that were revoked. Nothing if its schema is older."""
    if "migrations" not in _catalogue.tables(tx):
        return [], []
    applied = {row["name"] for row in tx.execute("select name from migrations")}
    if any(name not in applied for name, _ in scripts()):
        return [], []
    documents = tx.execute(
        "select document from receipt_documents where receipt_id in"
        "  (select id from receipts where deleted_at > %(moment)s)"
        " union select sha256(convert_to(id, 'UTF8')) from documents where gone_at > %(moment)s",
        {"moment": moment},
    )
    digests = [row["document"] for row in documents]
    keys = tx.execute("select id from keys where revoked_at > %s", (moment,))
    return digests, [row["id"] for row in keys]


def _back_again(
    tx: Tx, documents: Sequence[bytes], keys: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Ids of those that the backup has brought back."""
    back = tx.execute(
        "select id from documents where sha256(convert_to(id, 'UTF8')) = any(%s)"
        " and gone_at is null order by id",
        (list(documents),),
    )
    deleted = [row["id"] for row in back]
    open_again = tx.execute(
        "select id from keys where id = any(%s) and revoked_at is null order by id", (list(keys),)
    )
    return deleted, [row["id"] for row in open_again]


def _make_schema(tx: Tx, manifest: Manifest) -> None:
    # As in migrate; the names come with the rows of the backup.
    tx.execute(
        "create table migrations"
        " (name text primary key, applied_at timestamptz not null default now())"
    )
    wanted = set(manifest.migrations)
    for name, script in scripts():
        if name in wanted:
            tx.execute(script)


def _migrate(tx: Tx) -> list[str]:
    rows = tx.execute("select name from migrations").fetchall()
    done = {row["name"] for row in rows}
    left = [(name, script) for name, script in scripts() if name not in done]
    for name, script in left:
        tx.execute(script)
        tx.execute("insert into migrations (name) values (%s)", (name,))
    return [name for name, _ in left]


def _load(tx: Tx, archive: Archive, tell: Tell) -> list[str]:
    """All rows of all tables; returns names of tables that nobody here knows."""
    manifest = archive.manifest
    here = {shape.name: {c.name: c.type for c in shape.columns} for shape in _catalogue.shapes(tx)}
    guards = _catalogue.lay_aside(tx)
    strange: list[str] = []
    for number, table in enumerate(manifest.tables):
        if table.name not in here:
            strange.append(table.name)
            continue
        tell(Progress("tables", number, len(manifest.tables), table.name))
        _copy_in(tx, archive, table, here[table.name])
    tell(Progress("indexes", 0, None))
    _catalogue.put_back(tx, guards)
    sequences = {counter.name for counter in _catalogue.counters(tx)}
    for counter in manifest.sequences:
        if counter.name in sequences:
            _catalogue.set_counter(tx, counter)
    return strange


def _copy_in(tx: Tx, archive: Archive, table: Table, here: dict[str, str]) -> None:
    unlike = [column.name for column in table.columns if here.get(column.name) != column.type]
    if unlike:
        raise SetupError(
            f"the backup's table {table.name} is not the one of this version"
            f" ({', '.join(unlike)}); restore it with Recollect {archive.manifest.recollect}"
        )
    statement = sql.SQL("copy {} ({}) from stdin (format binary)").format(
        sql.Identifier(table.name),
        sql.SQL(", ").join(sql.Identifier(column.name) for column in table.columns),
    )
    # Some migrations write rows; the backup has what became of them.
    tx.execute(sql.SQL("delete from {}").format(sql.Identifier(table.name)))
    cursor = tx.cursor()
    try:
        with cursor.copy(statement) as copy:
            for piece in archive.pieces(f"tables/{table.name}"):
                copy.write(piece)
    except UNREADABLE as error:  # not its details, which may quote rows
        told = error.diag.message_primary
        raise SetupError(f"{archive.path} is damaged: tables/{table.name}: {told}") from error
    if cursor.rowcount != table.rows:
        raise SetupError(
            f"{archive.path} is damaged: {table.name} has {cursor.rowcount} rows, not {table.rows}"
        )


def _bring_files(
    tx: Tx, archive: Archive, blobs: Blobs, brought: list[str], tell: Tell
) -> list[str]:
    """Put them into the store; returns the keys of those that were damaged before the backup."""
    keys, damaged = archive.files(), list[str]()
    rows = tx.execute("select blob from documents where blob is not null")
    named = {row["blob"] for row in rows}
    for number, key in enumerate(keys):
        tell(Progress("files", number, len(keys)))
        data = archive.read(f"files/{key}", LARGEST_FILE)
        if not KEY.fullmatch(key) or key not in named:
            raise SetupError(f"{archive.path} is damaged: no document has the file {key!r}")
        if not is_whole(key, data):
            damaged.append(key)
        if _there(blobs, key, data):
            continue
        brought.append(key)
        blobs.put(key, data)
    return damaged


def _there(blobs: Blobs, key: str, data: bytes) -> bool:
    """Whether the store has it already, or has it whole."""
    try:
        found = blobs.get(key)
    except Permanent:
        return False
    return found == data or is_whole(key, found)
