"""One listing of a folder: its files in a fixed order, then its folders, each the same way.

A file is as it was while its size, time and inode are; else its digest tells. The cursor keeps the
last path that was stored, so that a listing that was cut off goes on behind it.
"""

import errno
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, unquote

from recollect.connectors._patterns import fits, patterns
from recollect.connectors.api import PROVIDER_UNAVAILABLE
from recollect.connectors.base import (
    Change,
    Checkpoint,
    Cursor,
    Item,
    Listed,
    Listing,
    Source,
    Verdict,
)
from recollect.connectors.folder import _disk
from recollect.errors import Permanent, Transient
from recollect.model import Remembered

LARGEST = 50_000_000
"""bytes of a file"""
AT_ONCE = 100
"""files looked up together, and between checkpoints"""
DEEPEST = 100
MOST_ENTRIES = 1_000_000
"""of one folder; their names are in memory"""
LONGEST_LISTING = timedelta(days=1)
"""A listing that was cut off goes on for so long."""
TICK = 2.0
"""Seconds within which two changes of a file may have one time."""
LITTER = frozenset({"Thumbs.db", "desktop.ini", "lost+found"})
UNSUPPORTED = "unsupported"
UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class FolderScope:
    path: Path
    include: Sequence[str]
    exclude: Sequence[str]

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> "FolderScope":
        """Of metadata that were checked."""
        return cls(
            Path(metadata["path"]),
            patterns(metadata, "includePatterns"),
            patterns(metadata, "excludePatterns"),
        )

    def refusal(self, path: str) -> str | None:
        """Why the connection's own patterns keep a file out."""
        for pattern in self.exclude:
            if fits(pattern.lower(), path.lower()):
                return f"excludePatterns: {pattern}"
        if self.include and not any(fits(one.lower(), path.lower()) for one in self.include):
            return "includePatterns: no pattern matches"
        return None

    def excludes_all_of(self, folder: str) -> str | None:
        """The same for everything in a folder."""
        for pattern in self.exclude:
            if pattern.endswith("*") and fits(pattern.lower(), f"{folder.lower()}/"):
                return f"excludePatterns: {pattern}"
        return None

    def asked(self) -> dict[str, Any]:
        """What a listing was of."""
        return {
            "path": str(self.path),
            "include": list(self.include),
            "exclude": list(self.exclude),
        }


@dataclass(frozen=True, slots=True)
class _Found:
    name: str
    path: str
    """within the folder of the connection"""
    about: os.stat_result


class FolderPass:
    """What is said of one folder, from where the last listing was cut off."""

    def __init__(self, source: Source, cursor: Cursor | None, root: int) -> None:
        self._source = source
        self._scope = FolderScope.of(source.metadata)
        self._root = root
        known = cursor is not None and cursor.get("path") == str(self._scope.path)
        self._known: Cursor = cursor if known and cursor is not None else {}
        self._began, self._after = self._resumed()
        self._own = _disk.identities(source.local)
        mounts = self._known.get("mounts")
        listed = cast("list[object]", mounts) if isinstance(mounts, list) else []
        self._mounts = {one for one in listed if isinstance(one, str)}
        """folders in it on which others were mounted when they were last seen"""
        self._unseen = set(self._mounts)
        self._moved: dict[int, list[Remembered]] | None = None
        self._since_checkpoint = 0

    def run(self) -> Iterator[Change]:
        about = os.fstat(self._root)
        self._refuse_another(about)
        if not self._after:
            yield Listing()
        try:
            yield from self._list(self._root, (), self._after, [about])
        except OSError as error:
            raise away(str(self._scope.path), error) from error
        for mount in sorted(self._unseen):
            yield from self._keep_below(mount, "away", "what was mounted there is gone")
        yield Listed()
        yield self._checkpoint(None)

    # --- where it begins ---

    def _resumed(self) -> tuple[datetime, Sequence[str]]:
        """When the listing began that goes on now, and behind which path."""
        now = self._source.since
        same = all(self._known.get(key) == value for key, value in self._scope.asked().items())
        after = self._known.get("after")
        if not same or not isinstance(after, str):
            return now, ()
        try:
            began = datetime.fromisoformat(str(self._known.get("began")))
        except ValueError:
            return now, ()
        path = os.fsdecode(unquote(after).encode("utf-8", "surrogateescape"))
        return (began, path.split("/")) if now - began < LONGEST_LISTING else (now, ())

    def _refuse_another(self, about: os.stat_result) -> None:
        """Raises Transient if the folder is another one than before, without any of its files: then
        nothing is mounted there."""
        identity = list(_disk.identity(about))
        if self._known.get("identity") in (None, identity):
            return
        documents = 0
        for row in self._source.remembered():
            if row.verdict == "document":
                documents += 1
                if _disk.exists(self._root, row.id.split("/")):
                    return
        if documents:
            raise Transient(
                f"{self._scope.path} is another folder than before, without any of the"
                f" {documents:,} files that are documents. Is it mounted? They stay. If it is to be"
                " this one, end the connection and make a new one",
                code=PROVIDER_UNAVAILABLE,
            )

    def _checkpoint(self, after: str | None) -> Checkpoint:
        self._since_checkpoint = 0
        cursor = {
            **self._scope.asked(),
            "began": self._began.isoformat(),
            "after": None if after is None else quote(os.fsencode(after)),
            "identity": list(_disk.identity(os.fstat(self._root))),
            "mounts": sorted(self._mounts),
        }
        return Checkpoint(cursor)

    # --- the walk ---

    def _list(
        self,
        folder: int,
        above: Sequence[str],
        after: Sequence[str],
        line: Sequence[os.stat_result],
    ) -> Iterator[Change]:
        """All in an open folder; `line`: it and those above it."""
        files, folders, others = self._entries(folder, above)
        if len(after) <= 1:
            behind = after[0] if after else ""
            yield from others
            left = [one for one in files if one.name > behind]
            for first in range(0, len(left), AT_ONCE):
                yield from self._files(folder, left[first : first + AT_ONCE])
            after = ()
        for found in folders:
            if after and found.name < after[0]:  # it was listed before the cut
                self._unseen = {one for one in self._unseen if not _is_in(one, found.path)}
                continue
            further = after[1:] if after and found.name == after[0] else ()
            yield from self._folder(folder, found, above, further, line)

    def _entries(
        self, folder: int, above: Sequence[str]
    ) -> tuple[list[_Found], list[_Found], list[Change]]:
        """Regular files, folders, and what is said of all else; raises Transient, Permanent."""
        files: list[_Found] = []
        folders: list[_Found] = []
        others: list[Change] = []
        with os.scandir(folder) as entries:
            for number, entry in enumerate(entries):
                if number % AT_ONCE == 0:
                    self._source.going()
                if number == MOST_ENTRIES:
                    where = "/".join(above) or "the folder"
                    raise Permanent(
                        f"{where} has more than {MOST_ENTRIES:,} entries", code="too_large"
                    )
                name = entry.name
                if name.startswith((".", "~$")) or name in LITTER:
                    continue
                try:
                    about = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    raise away("/".join((*above, name)), error) from error
                found = _Found(name, "/".join((*above, name)), about)
                if stat.S_ISREG(about.st_mode):
                    files.append(found)
                elif stat.S_ISDIR(about.st_mode):
                    folders.append(found)
                elif stat.S_ISLNK(about.st_mode):
                    others.append(_verdict(found, "link", "links are not followed"))
                else:
                    others.append(_verdict(found, "special", "is a device, a pipe or a socket"))
        return _in_order(files), _in_order(folders), others

    def _folder(
        self,
        folder: int,
        found: _Found,
        above: Sequence[str],
        after: Sequence[str],
        line: Sequence[os.stat_result],
    ) -> Iterator[Change]:
        refusal = self._scope.excludes_all_of(found.path)
        if refusal is not None:
            self._unseen = {one for one in self._unseen if not _is_in(one, found.path)}
            yield _verdict(found, "filtered", refusal, is_folder=True)
        elif _disk.identity(found.about) in self._own:
            yield _verdict(found, "own", "belongs to the service itself", is_folder=True)
        elif len(line) > DEEPEST or any(os.path.samestat(found.about, one) for one in line):
            yield _verdict(
                found, "too_deep", "is nested too deeply, or contains itself", is_folder=True
            )
        else:
            try:
                with _disk.opened_folder(folder, found.name) as inner:
                    about = os.fstat(inner)
                    if self._is_unmounted(inner, found.path, about, line[-1]):
                        return
                    yield from self._list(inner, (*above, found.name), after, [*line, about])
            except OSError as error:
                if error.errno in _disk.DENIED:
                    told = "the user of the service may not read it"
                    yield _verdict(found, UNREADABLE, told, is_folder=True)
                    yield from self._keep_below(found.path, UNREADABLE, told)
                elif error.errno not in _disk.NOT_THERE:
                    raise away(found.path, error) from error

    def _is_unmounted(
        self, folder: int, path: str, about: os.stat_result, above: os.stat_result
    ) -> bool:
        """Whether the folder is but the place where another one was mounted."""
        if about.st_dev != above.st_dev:
            self._mounts.add(path)
        elif path in self._mounts:
            with os.scandir(folder) as entries:
                if next(entries, None) is None:
                    return True
            self._mounts.discard(path)
        self._unseen.discard(path)
        return False

    def _keep_below(self, folder: str, kind: str, told: str) -> Iterator[Change]:
        """Documents of what cannot be looked at stay."""
        for row in self._source.remembered():
            if row.verdict == "document" and _is_in(row.id, folder):
                yield Verdict(
                    row.id, kind, told, extra=row.extra, url=row.url, title=row.title, keep=True
                )

    # --- files ---

    def _files(self, folder: int, found: Sequence[_Found]) -> Iterator[Change]:
        said = [(one, self._without_reading(one)) for one in found]
        wanted = [one.path for one, verdict in said if verdict is None]
        known = {row.id: row for row in self._source.remembered(wanted)} if wanted else {}
        for one, verdict in said:
            self._source.going()
            if verdict is not None:
                yield verdict
                continue
            row = known.get(one.path)
            try:
                change = self._same(one, row) or self._read(folder, one, row)
            except OSError as error:
                if error.errno in _disk.NOT_THERE:
                    continue
                denied = error.errno in _disk.DENIED
                told = "the user of the service may not read it" if denied else str(error.strerror)
                yield _verdict(one, UNREADABLE if denied else "error", told, row, failed=not denied)
                continue
            yield change
        self._since_checkpoint += len(found)
        if self._since_checkpoint >= AT_ONCE:
            yield self._checkpoint(found[-1].path)

    def _without_reading(self, found: _Found) -> Verdict | None:
        try:
            found.path.encode()
        except UnicodeEncodeError:
            return _verdict(found, "bad_name", "its name is not UTF-8; rename it")
        if (refusal := self._scope.refusal(found.path)) is not None:
            return _verdict(found, "filtered", refusal)
        if found.about.st_size == 0:
            return _verdict(found, "empty", "has no content")
        if found.about.st_size > LARGEST:
            return _verdict(found, "too_large", f"is larger than {LARGEST // 1_000_000} MB")
        return None

    def _same(self, found: _Found, row: Remembered | None) -> Change | None:
        """What was said of it, if it can be seen without reading that it still holds."""
        if row is None or row.extra.get("racy") or not _looks_same(found.about, row.extra):
            return None
        if row.verdict == UNSUPPORTED:
            return _verdict(found, UNSUPPORTED, row.detail or "", extra=row.extra)
        if row.version is None:
            return None
        return self._item(found, found.about, row.version, None)

    def _read(self, folder: int, found: _Found, row: Remembered | None) -> Change:
        """Raises OSError."""
        began = time.time()
        read = _disk.digest(folder, found.name)
        racy = abs(began - read.about.st_mtime) < TICK
        if not self._source.reads(read.head, found.name):
            told = "is of a kind that cannot be read"
            extra = {**_looks(read.about), **({"racy": True} if racy else {})}
            return _verdict(found, UNSUPPORTED, told, extra=extra)
        formerly = self._formerly(read, found.path) if row is None else None
        return self._item(found, read.about, read.digest, formerly, racy=racy)

    def _item(
        self,
        found: _Found,
        about: os.stat_result,
        version: str,
        formerly: str | None,
        *,
        racy: bool = False,
    ) -> Item:
        modified = _time(about.st_mtime)
        told = {"path": found.path, "size": about.st_size}
        return Item(
            id=found.path,
            version=version,
            title=found.name,
            url=(self._scope.path / found.path).as_uri(),
            metadata=told if modified is None else {**told, "modified": modified.isoformat()},
            # A change within the same tick of the clock could not be seen: it is read once more.
            extra={**_looks(about), **({"racy": True} if racy else {})},
            formerly=formerly,
            modified_at=modified,
        )

    def _formerly(self, read: _disk.Digested, path: str) -> str | None:
        """The path that a new file had before: the same inode and content, and nothing there now.

        An inode alone tells little: the next file gets that of a deleted one.
        """
        if self._moved is None:
            self._moved = {}
            for row in self._source.remembered():
                if row.version is not None and row.verdict == "document":
                    self._moved.setdefault(int(row.extra.get("inode") or 0), []).append(row)
        for row in self._moved.get(read.about.st_ino, ()):
            gone = row.id != path and not _disk.exists(self._root, row.id.split("/"))
            if row.version == read.digest and gone:
                self._moved[read.about.st_ino].remove(row)
                return row.id
        return None


def _verdict(
    found: _Found,
    kind: str,
    told: str,
    row: Remembered | None = None,
    *,
    extra: Mapping[str, Any] | None = None,
    is_folder: bool = False,
    failed: bool = False,
) -> Verdict:
    """With a row of a document, that stays."""
    path = os.fsencode(found.path).decode("utf-8", "replace") + ("/" if is_folder else "")
    return Verdict(
        path,
        kind,
        told,
        extra=extra if extra is not None else row.extra if row is not None else {},
        title=path.rstrip("/").rpartition("/")[2],
        keep=row is not None and row.version is not None,
        failed=failed,
    )


def away(path: str, error: OSError) -> Transient:
    """Of a disk or network that does not answer nothing may be concluded."""
    told = error.strerror or errno.errorcode.get(error.errno or 0, "unknown")
    return Transient(f"{path} cannot be read: {told}", code=PROVIDER_UNAVAILABLE)


def _in_order(found: list[_Found]) -> list[_Found]:
    return sorted(found, key=lambda one: one.name)


def _looks(about: os.stat_result) -> dict[str, int]:
    return {"size": about.st_size, "time": about.st_mtime_ns, "inode": about.st_ino}


def _looks_same(about: os.stat_result, extra: Mapping[str, Any]) -> bool:
    return all(extra.get(name) == value for name, value in _looks(about).items())


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _time(seconds: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):  # a time that no calendar has
        return None
