"""The one file of a backup: a ZIP of tables, uploaded files and what is known of them.

    manifest.json          what it is, of which schema, and how much
    tables/<name>          rows, as PostgreSQL's binary COPY writes them
    files/<key>            uploaded files, under their keys in the blob store
    secrets/<name>         only with --with-key
    SHA256SUMS             of all the others, for `sha256sum --check`

ZIP, since it is written in one go, read from anywhere, and its end tells that it is whole.
"""

import errno
import fcntl
import glob
import hashlib
import os
import secrets
import shutil
import zipfile
import zlib
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, TypeAlias

import msgspec

from recollect.errors import SetupError

FORMAT = 1
MANIFEST = "manifest.json"
SUMS = "SHA256SUMS"
PIECE = 1 << 20
"""bytes read or written at a time"""
LARGEST_NOTE = 16 << 20
"""Bytes of a member that is read whole and is no uploaded file."""
LARGEST_FILE = 256 << 20
"""Bytes of an uploaded file; the service takes no larger one, nor unpacks one from an archive."""
FAST = 1
"""zlib's level: a higher one takes several times as long for a tenth less"""

METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)

Buffer: TypeAlias = bytes | bytearray | memoryview


class Column(msgspec.Struct, frozen=True):
    name: str
    type: str
    """as PostgreSQL spells it, `halfvec` or `text[]`"""


class Table(msgspec.Struct, frozen=True):
    name: str
    columns: list[Column]
    rows: int


class Sequence(msgspec.Struct, frozen=True):
    name: str
    last: int
    called: bool


class Manifest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a backup is and holds. Unknown fields of later versions are passed over."""

    format: int
    recollect: str
    """version that wrote it"""
    made_at: datetime
    """of the snapshot: what was acknowledged before is in it"""
    postgres: str
    migrations: list[str]
    """those that had been applied, in their order"""
    embedder: str | None
    dimensions: int
    """of the index; without vectors `none` and 0, None before the service ever started"""
    sealed_with: str
    """mark of the newest key of the installation, which tells nothing of the key"""
    tables: list[Table]
    sequences: list[Sequence]
    files: int
    file_bytes: int
    missing: list[str]
    """keys of files that documents name and the blob store had lost before"""
    secrets: list[str]
    """names of the files of secrets that are in it"""
    damaged: list[str] = []
    """keys of files that are in it as they were: not what was uploaded any more"""

    def rows(self, table: str) -> int:
        return next((one.rows for one in self.tables if one.name == table), 0)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is. `total` is None when nobody knows how much there will be."""

    step: str
    """`checking`, `tables`, `files`, `indexes`, `documents`"""
    done: int
    total: int | None = None
    detail: str = ""


Tell = Callable[[Progress], None]


def silent(_: Progress) -> None:
    """For callers that show no progress."""


def name_aside(path: Path) -> Path:
    """What `path` is called until it is whole."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")


@contextmanager
def alone(folder: Path) -> Generator[None]:
    """While no other run makes or names a file in the folder, or restores secrets into it."""
    held = os.open(folder.absolute(), os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def hold(aside: Path) -> int:
    """Let others know, while the descriptor is open, that this file or folder is being written; and
    remove what runs for the same path left that were killed.

    To be called together with the making of `aside`, `alone`: what is not held yet is removed."""
    held = os.open(aside, os.O_RDONLY)
    with suppress(OSError):  # a file system without locks: nothing is removed there
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    name = aside.name.rsplit(".", 2)[0]
    parts = set(aside.parent.glob(f"{glob.escape(name)}.{'[0-9a-f]' * 8}.part"))
    for left in parts - {aside}:
        with suppress(OSError):
            found = os.open(left, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left) if left.is_dir() else left.unlink()
            finally:
                os.close(found)
    return held


class Sink:
    """A member while it is written; whatever is written counts into its digest."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._held = bytearray()
        self._sha = hashlib.sha256()

    def write(self, data: Buffer) -> None:
        self._held += data
        if len(self._held) >= PIECE:
            self.flush()

    def flush(self) -> None:
        self._sha.update(self._held)
        self._file.write(self._held)
        self._held.clear()

    @property
    def digest(self) -> str:
        return self._sha.hexdigest()


class Writing:
    """A new archive. It stands under its name once it is whole and on the disk, and never before.

    Raises SetupError when it cannot be written; then nothing is left behind.
    """

    def __init__(self, path: Path, *, force: bool = False) -> None:
        """`force`: an existing file is replaced, by the whole new one."""
        self._path = path
        self._force = force
        try:
            self._refuse_existing()
        except OSError as error:
            raise self._refusal(error) from error
        self._aside = name_aside(path)
        self._sums: dict[str, str] = {}

    def __enter__(self) -> Self:
        try:
            with alone(self._path.parent):
                handle = os.open(self._aside, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
                self._held = hold(self._aside)
        except OSError as error:
            raise self._refusal(error) from error
        self._target = _Target(os.fdopen(handle, "r+b"))
        self._zip = zipfile.ZipFile(self._target, "w", zipfile.ZIP_DEFLATED, compresslevel=FAST)
        return self

    @contextmanager
    def member(self, name: str, *, compress: bool = True) -> Generator[Sink]:
        self._zip.compression = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
        with self._zip.open(name, "w", force_zip64=True) as file:
            sink = Sink(file)
            yield sink
            sink.flush()
        self._sums[name] = sink.digest

    def put(self, name: str, data: bytes, *, compress: bool = True) -> None:
        with self.member(name, compress=compress) as sink:
            sink.write(data)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._finish()
        except OSError as fault:
            raise self._refusal(fault) from fault
        finally:
            with suppress(OSError):
                self._aside.unlink(missing_ok=True)
            self._target.abandon()
            self._zip.close()
            self._target.close()
            os.close(self._held)
        if isinstance(error, OSError):
            raise self._refusal(error) from error

    def _finish(self) -> None:
        lines = [f"{digest}  {name}\n" for name, digest in self._sums.items()]
        self.put(SUMS, "".join(lines).encode())
        self._zip.close()
        self._target.sync()
        with alone(self._path.parent):
            self._refuse_existing()
            self._aside.rename(self._path)
        folder = os.open(self._path.absolute().parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _refuse_existing(self) -> None:
        if self._path.is_dir():
            raise SetupError(f"{self._path} is a folder; name the file to write")
        if self._path.exists() and not self._path.is_file():
            raise SetupError(f"{self._path} is a device or the like; name the file to write")
        if not self._force and self._path.exists():
            raise SetupError(f"{self._path} is there already; --force replaces it")

    def _refusal(self, error: OSError) -> SetupError:
        return SetupError(
            f"cannot write {self._path} ({error.strerror or error}); nothing is left of it"
        )


class _Target:
    """The file below a ZipFile, which wants to write its end even after the disk was full."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._abandoned = False
        self._told = 0
        """how far it was, as its ZipFile knows: it reckons with that at its end, too"""

    def abandon(self) -> None:
        """From now on nothing is written any more."""
        self._abandoned = True

    def write(self, data: bytes) -> int:
        if self._abandoned:
            return len(data)
        try:
            return self._file.write(data)
        except OSError:
            self._abandoned = True
            raise

    def seek(self, offset: int, whence: int = 0) -> int:
        return 0 if self._abandoned else self._guarded(lambda: self._file.seek(offset, whence))

    def tell(self) -> int:
        if not self._abandoned:
            self._told = self._file.tell()
        return self._told

    def flush(self) -> None:
        if not self._abandoned:
            self._guarded(self._file.flush)

    def sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        with suppress(OSError):  # what it still holds was abandoned
            self._file.close()

    def _guarded(self, act: Callable[[], Any]) -> Any:
        try:
            return act()
        except OSError:
            self._abandoned = True
            raise


class Archive:
    """A backup to be read. Raises SetupError, on opening it, for what is no whole backup."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            if path.stat().st_size == 0:
                raise SetupError(f"{path} is empty, so it is not a backup")
            self._zip = zipfile.ZipFile(path)
        except OSError as error:
            raise self._unread(error) from error
        except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError) as error:
            raise SetupError(
                f"{path} is damaged, cut off, or not a backup; nothing was changed"
            ) from error
        try:
            # Of other methods zipfile unpacks without a bound whatever it has read.
            if any(i.compress_type not in METHODS for i in self._zip.infolist()):
                raise self._damaged("a member is compressed as no backup is")
            self.manifest = self._manifest()
        except BaseException:
            self._zip.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._zip.close()

    def check(self, tell: Tell = silent) -> None:
        """Read it once and compare every byte with its digest; raises SetupError."""
        sums = self._sums()
        names = self._zip.namelist()
        if sorted(names) != sorted([*sums, SUMS]):
            raise self._damaged("it lacks members, or has some that it should not have")
        total = sum(info.file_size for info in self._zip.infolist())
        done = 0
        for name, expected in sums.items():
            digest = hashlib.sha256()
            for piece in self.pieces(name):
                digest.update(piece)
                done += len(piece)
                tell(Progress("checking", done, total))
            if digest.hexdigest() != expected:
                raise self._damaged(f"{name} is not what was written")
        missing = {f"tables/{table.name}" for table in self.manifest.tables} - set(names)
        files = sum(1 for name in names if name.startswith("files/"))
        if missing or files != self.manifest.files:
            raise self._damaged("it does not hold what it says")

    def pieces(self, name: str) -> Generator[bytes]:
        with self._reading(name), self._zip.open(name) as member:
            while piece := member.read(PIECE):
                yield piece

    def read(self, name: str, most: int = LARGEST_NOTE) -> bytes:
        """A whole member. Raises SetupError, and unpacks nothing, if it says that it is larger."""
        size = self._zip.getinfo(name).file_size  # more than that is never unpacked
        if size > most:
            raise self._damaged(f"{name} has {size:,} bytes, {most:,} are the most")
        return b"".join(self.pieces(name))

    def files(self) -> list[str]:
        """Keys of the uploaded files in it."""
        return [
            name.removeprefix("files/")
            for name in self._zip.namelist()
            if name.startswith("files/")
        ]

    def _manifest(self) -> Manifest:
        try:
            data = self.read(MANIFEST)
        except KeyError:
            raise SetupError(f"{self.path} is not a backup of Recollect") from None
        try:
            if msgspec.json.decode(data, type=_Versioned).format > FORMAT:
                raise SetupError(
                    f"{self.path} was made by a newer Recollect"
                    f" ({msgspec.json.decode(data, type=_Versioned).recollect});"
                    " install that version to restore it"
                )
            return msgspec.json.decode(data, type=Manifest)
        except msgspec.MsgspecError as error:
            raise self._damaged(f"{MANIFEST}: {error}") from error

    def _sums(self) -> Mapping[str, str]:
        names = (name for name in self._zip.namelist() if name != SUMS)
        most = sum(64 + 2 + len(name.encode()) + 1 for name in names)
        try:
            lines = self.read(SUMS, most).decode().splitlines()
        except (KeyError, UnicodeDecodeError):
            raise self._damaged(f"it has no {SUMS}") from None
        return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}

    @contextmanager
    def _reading(self, name: str) -> Generator[None]:
        try:
            yield
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
            raise self._damaged(f"{name} cannot be read") from error
        except OSError as error:
            raise self._unread(error) from error

    def _unread(self, error: OSError) -> SetupError:
        if error.errno == errno.EINVAL:  # it was to be read from before its first byte
            return self._damaged("its beginning, or more, is cut off")
        return SetupError(f"cannot read {self.path} ({error.strerror or error})")

    def _damaged(self, how: str) -> SetupError:
        return SetupError(f"{self.path} is damaged: {how}; nothing was changed")


class _Versioned(msgspec.Struct, frozen=True):
    format: int
    recollect: str
