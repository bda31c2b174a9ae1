"""Bytes that callers uploaded, in a folder or an S3 bucket.

A blob has exactly one owner, the document row that names its key, so that nobody has to count
references: it is written before the row and removed after it.
"""

import errno
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from recollect import log
from recollect.errors import DISK_FULL, NO_ROOM, Permanent, SetupError, Unavailable, Undeletable
from recollect.model import OrgId

LOG = log.get("blobs")
NOTE = ".store"
"""Names a folder that keeps blobs; no blob."""
KEY = re.compile(r"[0-9A-Za-z]{1,64}/[0-9a-f]{2}/[0-9a-f]{64}\.[0-9a-f]{8}")
"""as `new_key` makes them"""
_PART = ".part"
"""The ending of what is being written."""
_LOST = frozenset({errno.ENOENT, errno.EACCES, errno.EPERM, errno.EISDIR, errno.EIO})
"""What the disk says of a file that it will not give later either, while it gives the note."""
_PIECE = 5 << 20
"""Bytes that go to or from a bucket at once: a request has 30 seconds, however slow the link."""
_CODE = re.compile(r"<Code>([\w.]+)</Code>|\(code: ([\w.]+)\)")
_STATUS = re.compile(r"status code: (\d{3})")
_PASSING = frozenset({"408", "429", "InternalError", "ServiceUnavailable", "SlowDown"})


class Blobs(Protocol):
    """A store of bytes; whatever goes wrong with it is `Unavailable`."""

    def begin(self) -> bool:
        """Make a store unless it is one already; returns whether it made it. Raises SetupError
        where that is not possible."""
        ...

    def end(self) -> None:
        """Undo `begin`: what it made is a store no more. Nothing may be in it."""
        ...

    def put(self, key: str, data: bytes) -> None:
        """Durable once it returns."""
        ...

    def get(self, key: str) -> bytes:
        """Raises Permanent when there is no such blob, or this one cannot be read."""
        ...

    def has(self, key: str) -> bool:
        """Whether there is a file of that name, whole or not. Raises SetupError for a folder that
        cannot be read, which may be away, and a bucket that is not there."""
        ...

    def delete(self, key: str) -> None:
        """Gone, or was gone already. Raises Undeletable where this one is kept all the same."""
        ...

    def older_than(self, age: timedelta) -> Iterator[str]:
        """Keys of blobs written longer ago, and of what an upload that was cut off left; of nothing
        that others put there."""
        ...


def new_key(org: OrgId, data: bytes) -> str:
    """Where to put bytes of an organisation: their digest, and a mark of its own."""
    digest = hashlib.sha256(data).hexdigest()
    return f"{org}/{digest[:2]}/{digest}.{secrets.token_hex(4)}"


def is_whole(key: str, data: bytes) -> bool:
    """Whether these are the bytes that the key was made for."""
    return hashlib.sha256(data).hexdigest() == key.rpartition("/")[2].partition(".")[0]


def get_whole(store: Blobs, key: str) -> bytes:
    """The bytes that the key was made for; raises Permanent where the store has others or none."""
    data = store.get(key)
    if not is_whole(key, data):
        raise Permanent("the uploaded file is damaged in the store", code="missing_blob")
    return data


@dataclass(frozen=True, slots=True)
class FileDeletion:
    gone: Sequence[str]
    kept: Sequence[str]
    """what the store does not let go"""
    held: bool = False
    """whether some stay for a backup that copies files"""


def delete_all(store: Blobs, keys: Iterable[str]) -> FileDeletion:
    """What the store keeps is told to the log, and stops nothing. Where it is down, the rest is
    left; raises Unavailable if that is all."""
    gone, kept = list[str](), list[str]()
    for key in keys:
        try:
            store.delete(key)
        except Undeletable as error:
            LOG.warning("file not deleted", key=key, error=str(error))
            kept.append(key)
        except Unavailable:
            if not gone and not kept:
                raise
            break
        else:
            gone.append(key)
    return FileDeletion(gone, kept)


def _is_ours(key: str) -> bool:
    """Whether the service wrote it, if only in part: what else lies in the store is another's."""
    return KEY.fullmatch(key.removesuffix(_PART)) is not None


def open_blobs(url: str, *, used: bool = False) -> Blobs:
    """The store of a `file://` or `s3://` URL; raises SetupError for any other, and for a folder
    that cannot be used.

    `used`: it was opened before, so a folder without its note is away, and is not made.
    """
    parts = urlsplit(url)
    if parts.scheme == "file" and not parts.netloc:
        return FolderBlobs(Path(unquote(parts.path)), used=used)
    if parts.scheme == "s3" and parts.netloc:
        # Someone waits for an upload, and a worker tries again by itself: so not for minutes.
        return ObjectBlobs(
            S3Store.from_url(
                url, retry_config={"max_retries": 4, "retry_timeout": timedelta(seconds=20)}
            )
        )
    raise SetupError(
        f"RECOLLECT_BLOB_URL: {url!r} is neither file:///folder nor s3://bucket/prefix"
    )


def folder_of(url: str) -> Path | None:
    """The folder that a URL names; None for a bucket."""
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def is_new(url: str) -> bool:
    """Whether it names a store without the note, which `identity` and `open_blobs` make in a
    folder, and a person in a bucket. Raises SetupError, and Unavailable for a bucket."""
    return not keeps_any(url, [NOTE])


def keeps_any(url: str, keys: Iterable[str]) -> bool:
    """Whether the store that a URL names has one of the files. Raises as `is_new`."""
    store = open_blobs(url, used=True)
    return any(store.has(key) for key in keys)


def identity(url: str) -> str:
    """8 characters, the same wherever a URL means the same store of files.

    A folder has a note in it, made now if there is none: so the same path on two machines tells
    whether they share it. A bucket goes by its name, whatever its endpoint is called. Raises
    SetupError.
    """
    parts = urlsplit(url)
    said = f"{parts.netloc}/{parts.path.strip('/')}"
    if parts.scheme == "file":
        said = _note_of(Path(unquote(parts.path)))
    return hashlib.sha256(f"{parts.scheme}:{said}".encode()).hexdigest()[:8]


def _note_of(folder: Path) -> str:
    """What the note of a folder says; both are made if they are not there. Raises SetupError."""
    note = folder / NOTE
    with _using(note):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _noted(note)


@contextmanager
def _using(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise SetupError(f"{path} cannot be read or written: {error.strerror}") from error


def _noted(note: Path) -> str:
    """What a note says; of several processes that make it, the first one's."""
    if not note.exists():
        draft = note.with_name(f"{NOTE}.{secrets.token_hex(8)}")
        draft.write_text(secrets.token_hex(16))
        try:
            note.hardlink_to(draft)
        except FileExistsError:
            pass
        except OSError:  # a file system without such links
            draft.replace(note)
        finally:
            draft.unlink(missing_ok=True)
    return note.read_text()


class FolderBlobs:
    """Files below a folder. Written aside, flushed to the disk, then renamed into place.

    The folder has its note. Without that it is away, say not mounted: a file that is not found then
    is not lost, and one that is put there would be.
    """

    def __init__(self, root: Path, *, used: bool = False) -> None:
        self._root = root
        if not used:
            self.begin()

    def begin(self) -> bool:
        with _using(self._root / NOTE):
            is_first = not (self._root / NOTE).exists()
        _note_of(self._root)
        return is_first

    def end(self) -> None:
        (self._root / NOTE).unlink(missing_ok=True)

    def put(self, key: str, data: bytes) -> None:
        self._check()
        path = self._root / key
        aside = path.with_name(path.name + _PART)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                with aside.open("wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                self._give_to_owner(aside)
                aside.rename(path)
            except OSError:  # on a full disk it would take the room that others have
                aside.unlink(missing_ok=True)
                raise
            for folder in path.parents:  # those between may be new as well
                _flush_folder(folder)
                if folder == self._root:
                    break
        except OSError as error:
            code = DISK_FULL if error.errno in NO_ROOM else "dependency_down"
            words = f"cannot write to the blob folder: {error.strerror}"
            raise Unavailable(words, code=code) from error

    def get(self, key: str) -> bytes:
        try:
            return (self._root / key).read_bytes()
        except OSError as error:
            self._check()
            if error.errno not in _LOST:
                raise Unavailable(f"cannot read the blob folder: {error.strerror}") from error
            told = f"the uploaded file is missing or cannot be read: {error.strerror}"
            raise Permanent(told, code="missing_blob") from error

    def has(self, key: str) -> bool:
        with _using(self._root / key):
            return (self._root / key).is_file()

    def delete(self, key: str) -> None:
        try:
            (self._root / key).unlink()
        except FileNotFoundError:
            self._check()
        except OSError as error:
            told = f"cannot delete from the blob folder: {error.strerror}"
            if error.errno not in _LOST:
                raise Unavailable(told) from error
            self._check()
            raise Undeletable(told) from error

    def older_than(self, age: timedelta) -> Iterator[str]:
        self._check()
        limit = (datetime.now(UTC) - age).timestamp()
        for path in self._root.rglob("*"):
            try:
                found = path.stat()
            except FileNotFoundError:  # somebody else removed it, or it has its name by now
                continue
            key = str(path.relative_to(self._root))
            if stat.S_ISREG(found.st_mode) and found.st_mtime < limit and _is_ours(key):
                yield key

    def _give_to_owner(self, path: Path) -> None:
        """What root makes in the folder of the service's user belongs to that user."""
        if os.geteuid() == 0:
            owner = self._root.stat()
            for made in (path, *path.parents):
                if made == self._root:
                    break
                with suppress(OSError):  # root without its rights, or a user unknown in a container
                    os.chown(made, owner.st_uid, owner.st_gid)

    def _check(self) -> None:
        """Raises Unavailable while the folder is away."""
        try:
            (self._root / NOTE).read_text()
        except OSError as error:
            raise Unavailable(
                f"the blob folder is away: {NOTE} in it cannot be read: {error.strerror}"
            ) from error


class ObjectBlobs:
    """Objects in a bucket; the usual AWS variables say which endpoint and whose keys."""

    def __init__(self, store: S3Store) -> None:
        self._store = store

    def begin(self) -> bool:
        """Buckets are made by those who own them."""
        return False

    def end(self) -> None:
        """Buckets are deleted by those who own them."""

    def put(self, key: str, data: bytes) -> None:
        try:
            # A few parts at a time: on a slow link many at once would all be late.
            obstore.put(self._store, key, data, chunk_size=_PIECE, max_concurrency=2)
        except (BaseError, FileNotFoundError) as error:  # the latter without the bucket
            raise _trouble(error) from error

    def get(self, key: str) -> bytes:
        found, size = bytearray(), 1
        try:
            while len(found) < size:
                wanted = (len(found), len(found) + _PIECE)
                answer = obstore.get(self._store, key, options={"range": wanted})
                size = answer.meta["size"]
                piece = answer.bytes()
                if not piece:
                    break
                found += piece
        except FileNotFoundError as error:
            _check_bucket(error)
            raise Permanent("the uploaded file is missing", code="missing_blob") from error
        except BaseError as error:
            self._check(error)
            told = f"the uploaded file cannot be read: {_trouble(error)}"
            raise Permanent(told, code="missing_blob") from error
        return bytes(found)

    def has(self, key: str) -> bool:
        try:
            with suppress(FileNotFoundError):
                obstore.head(self._store, key)
                return True
            # Says so where it is the bucket that is not there.
            next(iter(self._store.list(key)), None)  # pyright: ignore[reportUnknownMemberType]
        except (BaseError, FileNotFoundError) as error:
            trouble = _trouble(error)
            raise (SetupError(str(trouble)) if "NoSuchBucket" in str(error) else trouble) from error
        return False

    def delete(self, key: str) -> None:
        try:
            obstore.delete(self._store, key)
        except FileNotFoundError as error:
            _check_bucket(error)
        except BaseError as error:
            self._check(error)
            raise Undeletable(str(_trouble(error))) from error

    def older_than(self, age: timedelta) -> Iterator[str]:
        limit = datetime.now(UTC) - age
        try:
            for page in self._store.list():  # pyright: ignore[reportUnknownMemberType]
                for item in page:
                    if item["last_modified"] < limit and _is_ours(item["path"]):
                        yield item["path"]
        except (BaseError, FileNotFoundError) as error:
            raise _trouble(error) from error

    def _check(self, error: BaseError) -> None:
        """Raises Unavailable unless it is one object that the bucket refuses, such as one that was
        moved to an archive or is locked, and not all of them."""
        said = _answered(error)
        if not said or not _PASSING.isdisjoint(said) or said[0].startswith("5"):
            raise _trouble(error) from error
        try:
            self.has(NOTE)
        except (Unavailable, SetupError):
            raise _trouble(error) from error


def _check_bucket(error: FileNotFoundError) -> None:
    """Raises Unavailable where it is the bucket that is not there."""
    if "NoSuchBucket" in str(error):
        raise _trouble(error) from error


def _trouble(error: Exception) -> Unavailable:
    told = str(error)
    if "NoSuchBucket" in told:
        return Unavailable("there is no such blob bucket")
    if "configured region" in told:
        return Unavailable("the blob bucket is in another region than AWS_REGION names")
    said = _answered(error)
    return Unavailable(
        f"the blob bucket answers {' '.join(said)}" if said else "the blob bucket does not answer"
    )


def _answered(error: Exception) -> list[str]:
    """Status and code of the bucket's answer, as far as it gave one."""
    status, code = _STATUS.search(str(error)), _CODE.search(str(error))
    return [found for found in (status and status[1], code and (code[1] or code[2])) if found]


def _flush_folder(path: Path) -> None:
    """A renamed file survives a power cut only once its folder is on the disk, too."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
