"""What there is to add: files below folders, and what the service knows of them."""

import errno
import hashlib
import json
import math
import mimetypes
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from recollect.cli._add_choice import FileChoice, FolderSieve
from recollect.cli._add_ledger import AddLedger, LedgerEntry
from recollect.cli.client import DocumentRow, Service
from recollect.cli.output import fail
from recollect.extract import HEAD, detect

LARGEST = 50 * 1024 * 1024
"""Bytes that one upload may have."""
SETTLED = 2_000_000_000
"""Nanoseconds after which a time stamp proves that a file did not change; clocks are coarse."""
LONGEST_LABEL = 1000
UNKNOWN_MIME = "application/octet-stream"
STDIN = "standard input"
TOO_LARGE = f"larger than {LARGEST // 1024**2} MB"

URL = re.compile(r"https?://\S+", re.IGNORECASE)


class Outcome(StrEnum):
    ADDED = "added"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class AddReport:
    """What became of one source, or of one file of an archive. `status` is the document's, as far
    as it is known."""

    source: str
    outcome: Outcome
    id: str | None = None
    status: str | None = None
    reason: str | None = None
    entry: LedgerEntry | None = None
    is_archive: bool = False
    """known to be one before it is waited for"""


@dataclass(frozen=True, slots=True)
class SharedLabels:
    """What the options put on every document."""

    tags: Sequence[str]
    metadata: Mapping[str, str | float | bool]

    @property
    def metadata_text(self) -> str | None:
        return json.dumps(self.metadata, sort_keys=True) if self.metadata else None

    def fields(self) -> dict[str, str]:
        """As fields of a form."""
        tags = {"containerTags": json.dumps(self.tags)} if self.tags else {}
        return tags | ({"metadata": self.metadata_text} if self.metadata_text else {})

    def body(self) -> dict[str, object]:
        """As fields of a JSON object."""
        return {"containerTags": self.tags or None, "metadata": self.metadata or None}


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file to add: its real path, its path as the service shows it, and whether the user named
    the file itself and not a folder."""

    path: Path
    label: str
    named: bool


@dataclass(frozen=True, slots=True)
class AddTarget:
    """Where a file goes: its customId and label, and what is known of its document."""

    file: LocalFile
    custom_id: str
    label: str
    entry: LedgerEntry | None


Job = Callable[[], AddReport]


def metadata(pairs: Sequence[str]) -> dict[str, str | float | bool]:
    metadata: dict[str, str | float | bool] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not name or not equals:
            fail(f"--meta needs KEY=VALUE, not {pair!r}", code=2)
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        plain = isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))
        metadata[name] = value if plain else text
    return metadata


def check_sources(sources: Sequence[str], id: str | None) -> None:
    if sources.count("-") > 1:
        fail("standard input can be read only once", code=2)
    for source in sources:
        if source != "-" and not URL.fullmatch(source) and not Path(source).exists():
            fail(f"there is no file or folder {source}", code=2)
    if id is not None and (len(sources) > 1 or Path(sources[0]).is_dir()):
        fail("--id names one document: give one file, URL or -", code=2)


def walk(root: Path, choice: FileChoice | None = None) -> Iterator[LocalFile | AddReport]:
    """Files below a folder, and what is passed over. Links are followed, each folder seen once."""
    sieve = FolderSieve(root, choice or FileChoice.of())
    seen: set[tuple[int, int]] = set()
    folders, links = [root], list[Path]()
    while folders or links:
        # Links last, so that a folder is known by its real path if that is below the root, too.
        folder = folders.pop() if folders else links.pop()
        label = _label(root, folder)
        try:
            real = folder.resolve(strict=True)
            found = real.stat()
            if (found.st_dev, found.st_ino) in seen:
                yield AddReport(label, Outcome.SKIPPED, reason="link to a folder seen before")
                continue
            seen.add((found.st_dev, found.st_ino))
            with os.scandir(folder) as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
        except OSError as error:
            yield AddReport(label, Outcome.FAILED, reason=why_unreadable(error))
            continue
        for entry in entries:
            path = Path(entry.path)
            kind = _kind(entry)
            if kind in ("folder", "file"):
                kind = sieve.why_not(path, folder=kind == "folder") or kind
            match kind:
                case "folder":
                    (links if entry.is_symlink() else folders).append(path)
                case "file":
                    here = path.resolve() if entry.is_symlink() else real / entry.name
                    yield LocalFile(here, _label(root, path), named=False)
                case reason:
                    yield AddReport(_label(root, path), Outcome.SKIPPED, reason=reason)


def _kind(entry: os.DirEntry[str]) -> str:
    """`folder`, `file`, or why it is passed over."""
    if entry.name.startswith("."):
        return "hidden"
    try:
        if entry.is_dir():
            return "folder"
        if entry.is_file():
            return "file"
    except OSError as error:
        return "link in a circle" if error.errno == errno.ELOOP else why_unreadable(error)
    return "link to nothing" if entry.is_symlink() else "not a regular file"


def _label(root: Path, path: Path) -> str:
    """`<folder>/<path in it>`; a link's path is taken as it stands."""
    return (Path(root.name) / path.relative_to(root)).as_posix()


def aim(ledger: "AddLedger", files: Iterable[LocalFile], id: str | None) -> list[AddTarget]:
    targets: list[AddTarget] = []
    claimed: dict[str, str] = {}
    for file in files:
        path, label = str(file.path), file.label
        entry = ledger.find(path)
        if id is not None:
            custom_id = id
            entry = entry if entry and entry.custom_id == id else None
        elif entry is not None:
            custom_id, label = entry.custom_id, entry.label
        else:
            custom_id = identity(path if file.named else label)
            owner = claimed.get(custom_id) or ledger.owner(custom_id)
            # Two folders of the same name must not overwrite each other's documents.
            if owner is not None and owner != path and Path(owner).exists():
                custom_id = identity(path)
        claimed[custom_id] = path
        targets.append(AddTarget(file, custom_id, label, entry))
    return targets


def identity(name: str) -> str:
    """A name as customId: itself if it may be one (255 printable characters), else its end and
    a digest of all of it."""
    if name.isprintable() and len(name) <= 255:
        return name
    digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:16]
    return f"{printable(name)[-230:]}#{digest}"


def printable(text: str) -> str:
    return "".join(c if c.isprintable() else "_" for c in text)


def refusal(size: int, head: bytes, name: str) -> str | None:
    """Why a file is not sent, by its size, its first bytes and its name."""
    if size == 0:
        return "empty"
    if size > LARGEST:
        return TOO_LARGE
    if detect(head, name=name, mime=mime_of(name)) is None:
        return "kind not supported"
    return None


def refused(file: LocalFile) -> AddReport | None:
    """None: the file can be sent."""
    try:
        # To open a pipe waits for someone who writes to it.
        if not stat.S_ISREG(file.path.stat().st_mode):
            reason = "not a regular file; `recollect add -` reads standard input"
            return AddReport(file.label, Outcome.FAILED, reason=reason)
        with file.path.open("rb") as opened:
            size = os.fstat(opened.fileno()).st_size
            reason = refusal(size, opened.read(HEAD), file.path.name)
    except OSError as error:
        return AddReport(file.label, Outcome.FAILED, reason=why_unreadable(error))
    outcome = Outcome.FAILED if file.named else Outcome.SKIPPED
    return None if reason is None else AddReport(file.label, outcome, reason=reason)


def mime_of(name: str) -> str:
    return mimetypes.guess_type(name)[0] or UNKNOWN_MIME


@dataclass(frozen=True, slots=True)
class KnownDocuments:
    """Documents that were there before, as far as folders are concerned."""

    by_id: Mapping[str, DocumentRow]
    by_custom_id: Mapping[str, DocumentRow]


def what_is_known(
    service: Service, targets: Sequence[AddTarget], labels: SharedLabels
) -> KnownDocuments:
    # One list for a folder is far cheaper than one request for each of its files.
    folders = {target.label.partition("/")[0] for target in targets if not target.file.named}
    found = [
        document
        for folder in sorted(folders)
        for document in service.documents(
            filepath=f"{printable(folder)}/", containerTags=labels.tags[:1] or None
        )
    ]
    return KnownDocuments(
        {document.id: document for document in found},
        {document.custom_id: document for document in found if document.custom_id},
    )


def why_unreadable(error: OSError) -> str:
    return error.strerror or str(error)
