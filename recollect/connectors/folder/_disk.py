"""Opens what is below a folder, and nothing else. Each step of a path is opened by itself, in the
folder before it, and never through a symbolic link: even if something is moved or replaced
meanwhile, what is read is in the folder that was asked for. Only
what is a folder or a regular file is opened at all: to open a device or a pipe may have effects.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from recollect.connectors.api import PROVIDER_UNAVAILABLE
from recollect.connectors.base import LocalFolders
from recollect.errors import Permanent, Transient

Identity = tuple[int, int]
"""of a folder, whatever it is called: device and inode"""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_PIECE = 1 << 20
HEAD = 8_192
"""bytes from which the kind of a file can be recognised"""
DENIED = frozenset({errno.EACCES, errno.EPERM})
NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
"""gone, or something else in its place"""


class Replaced(OSError):
    """It is not a regular file any more."""


@dataclass(frozen=True, slots=True)
class Digested:
    digest: str
    head: bytes
    about: os.stat_result
    """as it was before the first byte was read"""


@contextmanager
def opened_root(path: Path, local: LocalFolders) -> Generator[int]:
    """The folder that a connection is of. Links on the way to an open folder are the operator's,
    links below it are nobody's.

    Raises Permanent (`not_allowed`, `access_denied`, `no_folder`) and Transient while it is away.
    """
    top = next((one for one in local.open if path == one or one in path.parents), None)
    if top is None:
        raise Permanent(
            f"{path} is not below a folder of RECOLLECT_FOLDERS; its documents stay",
            code="not_allowed",
        )
    try:
        descriptor = _descend(os.open(top, _FOLDER), path.relative_to(top).parts, identities(local))
    except OSError as error:
        raise _meaning(error, path) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def identities(local: LocalFolders) -> frozenset[Identity]:
    """Of the service's own folders, by whatever path one comes to them."""
    found: set[Identity] = set()
    for folder in local.own:
        with suppress(OSError):
            found.add(identity(folder.stat()))
    return frozenset(found)


def identity(about: os.stat_result) -> Identity:
    return about.st_dev, about.st_ino


@contextmanager
def opened_folder(above: int, name: str) -> Generator[int]:
    """A folder in another. Raises OSError; ELOOP or ENOTDIR where it is a link or a file."""
    descriptor = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=above)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def opened_file(folder: int, name: str) -> Generator[tuple[int, os.stat_result]]:
    """A regular file in a folder; raises OSError, Replaced if it is not one."""
    if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        raise Replaced(errno.ENOENT, "not a regular file", name)
    descriptor = os.open(name, _FILE, dir_fd=folder)
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):  # it was replaced between the two
            raise Replaced(errno.ENOENT, "not a regular file", name)
        yield descriptor, about
    finally:
        os.close(descriptor)


def digest(folder: int, name: str) -> Digested:
    """Raises OSError."""
    with opened_file(folder, name) as (descriptor, about):
        head = piece = os.read(descriptor, _PIECE)
        hashed = hashlib.sha256(piece)
        while piece:
            piece = os.read(descriptor, _PIECE)
            hashed.update(piece)
    return Digested(hashed.hexdigest()[:32], head[:HEAD], about)


def read(root: int, parts: Sequence[str], most: int) -> bytes | None:
    """The content of a file below an open folder; None if it has more than `most` bytes.

    Raises OSError.
    """
    folder = _descend(os.dup(root), parts[:-1])
    try:
        data = bytearray()
        with opened_file(folder, parts[-1]) as (file, _):
            while len(data) <= most and (piece := os.read(file, _PIECE)):
                data += piece
        return bytes(data) if len(data) <= most else None
    finally:
        os.close(folder)


def exists(root: int, parts: Sequence[str]) -> bool:
    """Whether a path below an open folder leads to anything."""
    try:
        folder = _descend(os.dup(root), parts[:-1])
        try:
            os.stat(parts[-1], dir_fd=folder, follow_symlinks=False)
        finally:
            os.close(folder)
    except OSError as error:
        # Of what cannot be told nothing may be concluded.
        return error.errno not in NOT_THERE
    return True


def _descend(here: int, steps: Sequence[str], own: frozenset[Identity] = frozenset()) -> int:
    """The folder that steps lead to; `here` is closed. Raises OSError, and Permanent on the way
    into what is the service's own."""
    try:
        for step in steps:
            _refuse(here, own)
            above = here
            here = os.open(step, _FOLDER | os.O_NOFOLLOW, dir_fd=above)
            os.close(above)
        _refuse(here, own)
    except BaseException:
        os.close(here)
        raise
    return here


def _refuse(folder: int, own: frozenset[Identity]) -> None:
    if own and identity(os.fstat(folder)) in own:
        raise Permanent("the folder belongs to the service itself", code="not_allowed")


def _meaning(error: OSError, path: Path) -> Permanent | Transient:
    if error.errno in DENIED:
        return Permanent(
            f"the user of the service may not read {path}; its documents stay",
            code="access_denied",
        )
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return Permanent(
            f"{path} is a link or not a folder, or leads through a link; name the folder itself",
            code="no_folder",
        )
    why = "is not there" if error.errno == errno.ENOENT else f"cannot be read: {error.strerror}"
    return Transient(
        f"{path} {why}. Is it mounted? Its documents stay, and the next sync looks for it again",
        code=PROVIDER_UNAVAILABLE,
    )
