"""What the sandbox and its child say to each other: MessagePack behind a length, never pickle.

The child may be taken over by the file it reads, so its answers are decoded into these types and
nothing else.
"""

from enum import StrEnum
from typing import Annotated

import msgspec

from recollect.inference.speech import Heard, LocalEngine
from recollect.model import Link, SitemapEntry
from recollect.sandbox.pipes import LENGTH

CODES = frozenset(
    {
        "encrypted_file", "extraction_crashed", "extraction_memory", "extraction_timeout",
        "ocr_unavailable", "too_large", "transcriber_failed", "unreadable_content",
        "unsupported_kind",
    }
)  # fmt: skip
"""What a child may say of its file. It never blames the installation: that would be tried again,
as often as a file likes."""
MAX_LINKS = 5_000
"""of a page"""
MAX_ENTRIES = 50_000
"""of a sitemap (sitemaps.org)"""
URL_LENGTH = 4_096
"""Characters of an address; a longer one is not worth naming."""
WORD_LENGTH = 200
"""Characters of what a page says of itself: a date, a directive."""
MAX_WORDS = 50

MAX_MEMBERS = 1_000
"""files of an archive"""
MEMBER_BYTES = 52_428_800
"""of one of them"""
UNPACKED_BYTES = 200_000_000
"""of all of them"""
PATH_LENGTH = 1_000
"""Characters of a path in an archive."""
PATH_BYTES = 2_400
"""Its bytes in UTF-8: an index holds it."""

_Url = Annotated[str, msgspec.Meta(max_length=URL_LENGTH)]
_Word = Annotated[str, msgspec.Meta(max_length=WORD_LENGTH)]


class Setup(msgspec.Struct, frozen=True):
    """First message to the zygote: what its children may use."""

    packages: tuple[str, ...]
    readable: tuple[str, ...]
    """folders of models"""
    memory_bytes: int
    file_bytes: int
    descriptors: int
    text_bytes: int
    idle_seconds: int
    niceness: int
    confined: bool = True


class Birth(msgspec.Struct, frozen=True):
    """To the zygote: load these modules, warm up these extractors, and fork a child.

    What was done before is not done again.
    """

    loads: tuple[str, ...]
    extractors: tuple[str, ...] = ()


class Ready(msgspec.Struct, frozen=True):
    """A child is confined, by these layers; or it cannot be had, and `trouble` says why.

    The child says it before it reads a file, so it can be believed.
    """

    layers: tuple[str, ...]
    trouble: str = ""


class Listening(msgspec.Struct, frozen=True):
    """Which stretch of a recording is wanted, and who writes it down; None: as samples."""

    start: float
    seconds: float
    engine: LocalEngine | None


class Task(StrEnum):
    """What is wanted of a blob."""

    READ = "read"
    SURVEY = "survey"
    SITEMAP = "sitemap"
    UNPACK = "unpack"


class ReadJob(msgspec.Struct, frozen=True):
    """One blob to read; its `size` bytes follow the message."""

    extractor: str
    mime: str | None
    name: str | None
    url: str | None
    size: int
    cpu_seconds: int
    wall_seconds: float
    heavy: bool = False
    listening: Listening | None = None
    task: Task = Task.READ
    more: bool = False
    """whether the child may be given further files, of the same owner"""


class Stretch(msgspec.Struct, frozen=True):
    """Places in a row that differ only in one number: `starts` and `numbers` of equal length.

    The bytes are those of arrays of this machine: of C's unsigned int, and of long long, or double
    if not `whole`.
    """

    at: dict[str, str | int | float]
    counter: str | None
    whole: bool
    starts: bytes
    numbers: bytes


class Surveyed(msgspec.Struct, frozen=True):
    """What a page says beside its text."""

    links: Annotated[tuple[Link, ...], msgspec.Meta(max_length=MAX_LINKS)]
    canonical: _Url | None
    directives: Annotated[tuple[_Word, ...], msgspec.Meta(max_length=MAX_WORDS)]
    language: _Word | None
    published: _Word | None
    modified: _Word | None


class SitemapEntries(msgspec.Struct, frozen=True):
    """What a sitemap names."""

    pages: Annotated[tuple[SitemapEntry, ...], msgspec.Meta(max_length=MAX_ENTRIES)]
    sitemaps: Annotated[tuple[_Url, ...], msgspec.Meta(max_length=MAX_ENTRIES)]


class Packed(msgspec.Struct, frozen=True):
    """A file of an archive; its `size` bytes follow the message."""

    path: Annotated[str, msgspec.Meta(min_length=1, max_length=PATH_LENGTH)]
    size: Annotated[int, msgspec.Meta(ge=1, le=MEMBER_BYTES)]


class ReadReply(msgspec.Struct, frozen=True):
    """The outcome: a text, or a code and a message. With `packed` it is not the last one.

    `needs_heavy`: neither; the job is one for a heavy child. `document`: the same; it is a
    document of this media type, which its first bytes did not tell.
    """

    text: str = ""
    title: str | None = None
    warnings: tuple[str, ...] = ()
    places: tuple[Stretch, ...] = ()
    markdown: bool = True
    unheard: bool = False
    heard: Heard | None = None
    page: Surveyed | None = None
    sitemap: SitemapEntries | None = None
    packed: Packed | None = None
    code: str | None = None
    message: str = ""
    needs_heavy: bool = False
    document: str | None = None


def pack(message: msgspec.Struct) -> bytes:
    body = msgspec.msgpack.encode(message)
    return LENGTH.pack(len(body)) + body
