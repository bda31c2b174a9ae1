"""What a child may use and say: the service rejects answers that no honest child would give."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO, cast

import msgspec

from recollect.errors import DISK_FULL, HeldOff
from recollect.extract._places import Places
from recollect.extract._registry import HEAD, detect
from recollect.extract._text import TEXT_BYTES
from recollect.extract._wire import (
    CODES,
    MAX_ENTRIES,
    MAX_LINKS,
    MAX_MEMBERS,
    UNPACKED_BYTES,
    URL_LENGTH,
    Packed,
    ReadJob,
    ReadReply,
    Task,
)
from recollect.model import Extracted, Member, storable


@dataclass(frozen=True, slots=True)
class Limits:
    """What one blob may take. Processor time grows with its size, wall time with that."""

    memory_bytes: int = 1_500_000_000
    """address space of the child"""
    cpu_seconds: int = 30
    cpu_seconds_per_mb: int = 1
    cpu_seconds_cap: int = 300
    wall_factor: float = 2.0
    """wall seconds per second of processor time"""
    input_bytes: int = 52_428_800
    text_bytes: int = TEXT_BYTES
    file_bytes: int = 64_000_000
    descriptors: int = 64
    idle_seconds: int = 60
    """after which an idle process that loads the parsers ends"""
    heavy_memory_bytes: int = 4_000_000_000
    heavy_cpu_seconds: int = 600
    """for reading pictures; when it is used up, the document's other pictures are left out"""
    heavy_idle_seconds: int = 10
    """what models need holds 200 MB"""

    def cpu(self, size: int) -> int:
        grown = self.cpu_seconds + self.cpu_seconds_per_mb * (size // 1_000_000)
        return max(self.cpu_seconds, min(grown, self.cpu_seconds_cap))

    def wall(self, size: int) -> float:
        return self.cpu(size) * self.wall_factor

    @property
    def heavy_wall(self) -> float:
        return self.heavy_cpu_seconds * self.wall_factor


@dataclass(slots=True)
class Intake:
    """The files of an archive as they come. ValueError for what no honest child sends, HeldOff
    where there is no room for them."""

    into: IO[bytes]
    members: list[Member] = field(default_factory=list[Member])
    _paths: set[str] = field(default_factory=set[str])
    _bytes: int = 0

    def announce(self, packed: Packed) -> None:
        if (
            packed.path in self._paths
            or storable(packed.path) != packed.path
            or len(self.members) >= MAX_MEMBERS
            or self._bytes + packed.size > UNPACKED_BYTES
        ):
            raise ValueError("more files of an archive than it may have")

    def take(self, packed: Packed, data: bytes) -> None:
        format = detect(data[:HEAD], name=packed.path, mime=None)
        if format is None:
            raise ValueError("a file of an archive that is of no kind")
        try:
            self.into.write(data)
        except OSError as error:
            raise HeldOff(
                "its files have no room in the folder for temporary files (TMPDIR):"
                f" {error.strerror}",
                code=DISK_FULL,
            ) from error
        self.members.append(
            Member(packed.path, format.kind, format.extractor, self._bytes, len(data))
        )
        self._paths.add(packed.path)
        self._bytes += len(data)


def validate(reply: ReadReply, job: ReadJob, limits: Limits) -> None:
    """ValueError for what no honest child says: nothing of it reaches the document."""
    if reply.code is not None and reply.code not in CODES:
        raise ValueError(f"the code {reply.code!r}")
    if (
        (reply.page is not None and job.task is not Task.SURVEY)
        or (reply.sitemap is not None and job.task is not Task.SITEMAP)
        or (reply.heard is not None and job.listening is None)
    ):
        raise ValueError("an answer to another question")
    if storable(reply.text) != reply.text or len(reply.text) > limits.text_bytes:
        raise ValueError("a text that cannot be kept")
    said = (reply.title, reply.message, reply.warnings, reply.page, reply.sitemap)
    heard = (reply.heard.start, reply.heard.end, reply.heard.segments) if reply.heard else ()
    where = [(stretch.at, stretch.counter) for stretch in reply.places]
    _validate_leaves(msgspec.to_builtins((said, heard, where)))
    Places.validate(reply.places, len(reply.text))


def _validate_leaves(value: object) -> None:
    """No text that the database refuses, and no number that JSON does not have."""
    match value:
        case str():
            if storable(value) != value:
                raise ValueError("a text that cannot be kept")
        case float():
            if not math.isfinite(value):
                raise ValueError("an invalid number")
        case dict():
            _validate_leaves(list(cast("dict[str, object]", value).items()))
        case list() | tuple():
            for one in cast("Sequence[object]", value):
                _validate_leaves(one)
        case _:
            pass


def extracted(reply: ReadReply, kind: str) -> Extracted:
    return Extracted(
        text=reply.text,
        title=reply.title,
        kind=kind,
        warnings=reply.warnings,
        places=Places.unpack(reply.places),
        markdown=reply.markdown,
        unheard=reply.unheard,
    )


def longest_answer(job: ReadJob, limits: Limits) -> int:
    """Bytes of a message that a child has no honest reason to exceed."""
    match job.task:
        case Task.READ | Task.UNPACK:
            addresses = 0
        case Task.SURVEY:
            addresses = MAX_LINKS
        case Task.SITEMAP:
            addresses = MAX_ENTRIES
    # The text, and its places: twelve bytes each, and none is for less than a line.
    return 8 * limits.text_bytes + addresses * URL_LENGTH + 1_000_000
