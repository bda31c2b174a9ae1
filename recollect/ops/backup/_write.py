"""A backup of everything, while the service goes on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from psycopg import sql

from recollect import __version__
from recollect.blobs import Blobs, is_whole
from recollect.db import Tx
from recollect.errors import Permanent, SetupError
from recollect.ops.backup import _catalogue
from recollect.ops.backup._archive import (
    FORMAT,
    MANIFEST,
    Manifest,
    Progress,
    Table,
    Tell,
    Writing,
    silent,
)
from recollect.ops.backup._catalogue import Shape
from recollect.ops.backup._session import snapshot, unlock_migrations

STEP = 2_000
"""rows between two words of progress"""


@dataclass(frozen=True, slots=True)
class WrittenBackup:
    """A backup that was written."""

    path: Path
    bytes: int
    manifest: Manifest


def backup(
    url: str,
    blobs: Blobs,
    path: Path,
    *,
    sealed_with: str,
    secrets: Mapping[str, bytes] | None = None,
    force: bool = False,
    tell: Tell = silent,
) -> WrittenBackup:
    """Write all rows of one moment, and the files they name, into one file.

    `sealed_with` is the mark of the installation's key; `secrets` are files of the data folder to
    put in. Raises SetupError when the file is there already (unless `force`), when it cannot be
    written, or when there is nothing to back up; Unavailable when database or files are away. The
    file is whole, or not there.
    """
    with Writing(path, force=force) as file, snapshot(url) as tx:
        shapes = _catalogue.shapes(tx)
        if not any(shape.name == "migrations" for shape in shapes):
            raise SetupError("there is nothing to back up: the database was never used")
        _catalogue.lock(tx, [shape.name for shape in shapes])
        unlock_migrations(tx)
        facts = _facts(tx)
        tables = [_table(tx, file, shape, n, len(shapes), tell) for n, shape in enumerate(shapes)]
        keys = _blob_keys(tx)
        counters = _catalogue.counters(tx)
        tx.execute("commit")  # the snapshot would keep the server from tidying up; files stay held
        size, missing, damaged = _files(file, blobs, keys, tell)
        for name, data in (secrets or {}).items():
            file.put(f"secrets/{name}", data)
        manifest = Manifest(
            format=FORMAT,
            recollect=__version__,
            made_at=facts.made_at,
            postgres=facts.postgres,
            migrations=facts.migrations,
            embedder=facts.embedder,
            dimensions=facts.dimensions,
            sealed_with=sealed_with,
            tables=tables,
            sequences=counters,
            files=len(keys) - len(missing),
            file_bytes=size,
            missing=missing,
            secrets=sorted(secrets or {}),
            damaged=damaged,
        )
        file.put(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)))
    return WrittenBackup(path, path.stat().st_size, manifest)


@dataclass(frozen=True, slots=True)
class _Facts:
    made_at: datetime
    postgres: str
    migrations: list[str]
    embedder: str | None
    dimensions: int


def _facts(tx: Tx) -> _Facts:
    row = tx.execute(
        "select now() as made_at, current_setting('server_version') as postgres"
    ).fetchone()
    index = tx.execute("select embedder, dimensions from index_settings").fetchone()
    applied = tx.execute("select name from migrations order by name").fetchall()
    assert row is not None
    return _Facts(
        row["made_at"].astimezone(UTC),
        row["postgres"],
        [one["name"] for one in applied],
        index["embedder"] if index else None,
        index["dimensions"] if index else 0,
    )


def _table(tx: Tx, file: Writing, shape: Shape, number: int, of: int, tell: Tell) -> Table:
    columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in shape.columns)
    # A query, not the table: so partitions are read with it.
    statement = sql.SQL("copy (select {} from {}) to stdout (format binary)").format(
        columns, sql.Identifier(shape.name)
    )
    cursor = tx.cursor()
    with file.member(f"tables/{shape.name}") as sink, cursor.copy(statement) as copy:
        for count, row in enumerate(copy):
            sink.write(row)
            if count % STEP == 0:
                tell(Progress("tables", number, of, shape.name))
    return Table(shape.name, list(shape.columns), cursor.rowcount)


def _blob_keys(tx: Tx) -> list[str]:
    rows = tx.execute("select distinct blob from documents where blob is not null order by blob")
    return [row["blob"] for row in rows]


def _files(
    file: Writing, blobs: Blobs, keys: Sequence[str], tell: Tell
) -> tuple[int, list[str], list[str]]:
    """Their size in bytes, and the keys of those that are not in the store, and of those that are
    damaged there."""
    size, missing, damaged = 0, list[str](), list[str]()
    for number, key in enumerate(keys):
        tell(Progress("files", number, len(keys)))
        try:
            data = blobs.get(key)
        except Permanent:  # lost before: to refuse would leave the rest without a backup, too
            missing.append(key)
            continue
        if not is_whole(key, data):
            damaged.append(key)
        file.put(f"files/{key}", data)
        size += len(data)
    return size, missing, damaged
