"""What this machine remembers of the files that it added."""

import os
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from pathlib import Path

import platformdirs

from recollect.cli.output import tell


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
            (self._scope, _stored(path)),
        ).fetchone()
        if row is None:
            return None
        found = LedgerEntry(*row)
        return replace(found, path=os.fsdecode(found.path), label=os.fsdecode(found.label))

    def owner(self, custom_id: str) -> str | None:
        """The path that was added last under a customId."""
        row = self._session.execute(
            "select path from added where scope = ? and custom_id = ? order by noted desc limit 1",
            (self._scope, custom_id),
        ).fetchone()
        return os.fsdecode(row[0]) if row else None

    def note(self, entry: LedgerEntry) -> None:
        self._session.execute(
            "insert or replace into added values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                self._scope,
                *(_stored(cell) if isinstance(cell, str) else cell for cell in astuple(entry)),
            ),
        )


def _stored(name: str) -> str | bytes:
    """Texts of SQLite are UTF-8: a name of a file that is not is kept as its bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return os.fsencode(name)
    return name


@contextmanager
def open_ledger(scope: str) -> Generator[AddLedger]:
    path = None
    try:
        folder = Path(platformdirs.user_cache_dir("recollect", appauthor=False))
        path = folder / "added.sqlite3"
        folder.mkdir(parents=True, exist_ok=True)
        session = sqlite3.connect(path, isolation_level=None)
        ledger = AddLedger(session, scope)
    except (OSError, sqlite3.Error, RuntimeError) as error:  # RuntimeError: a user without a home
        what = path or "added.sqlite3"
        tell(f"{what} cannot be used ({error}): nothing is remembered for the next time")
        session = sqlite3.connect(":memory:", isolation_level=None)
        ledger = AddLedger(session, scope)
    try:
        yield ledger
    finally:
        session.close()
