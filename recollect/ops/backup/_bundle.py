"""The open bundle: a folder of JSON and files that others may read and write.

    bundle.json        what it is
    documents.jsonl    a document a line, with its text, its chunks and their vectors
    memories.jsonl     a memory a line, with its sources; only where there are some
    questions.jsonl    a test question a line; only where there are some
    files/<aa>/<sha>   uploaded files, under their SHA-256

`docs/backup.md` describes every field.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from recollect.errors import SetupError
from recollect.model import ALPHABET, OrgId
from recollect.orgs import tags

FORMAT = 1
ID = re.compile(r"[0-9A-Za-z_-]{1,64}")
INDEX = "bundle.json"
DOCUMENTS = "documents.jsonl"
MEMORIES = "memories.jsonl"
QUESTIONS = "questions.jsonl"


class VectorModel(msgspec.Struct, frozen=True):
    """Which model made the vectors."""

    name: str
    dimensions: int


class BundledBucket(msgspec.Struct, frozen=True):
    key: Annotated[str, msgspec.Meta(pattern=tags.BUCKET_KEY)]
    description: Annotated[str, msgspec.Meta(max_length=tags.BUCKET_LENGTH)] | None = None


class BundledTag(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    name: str
    title: Annotated[str, msgspec.Meta(max_length=tags.TITLE_LENGTH)] | None = None
    entity_context: Annotated[str, msgspec.Meta(max_length=tags.ENTITY_CONTEXT_LIMIT)] | None = None
    profile_buckets: list[BundledBucket] | None = None


class BundledFile(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    sha256: str
    size: int
    name: str | None = None
    mime: str | None = None

    def path(self, folder: Path) -> Path:
        """Raises SetupError if the digest is not a SHA-256."""
        if len(self.sha256) != 64 or set(self.sha256) - set("0123456789abcdef"):
            raise SetupError(f"{self.sha256[:70]!r} is not a SHA-256")
        return folder / "files" / self.sha256[:2] / self.sha256


class BundledChunk(msgspec.Struct, frozen=True, omit_defaults=True):
    """`start` and `end` count characters of `text`; `vector` is base64 of little-endian float16.

    `read`: memories were drawn from it, so that nobody has to do so again.
    """

    start: int
    end: int
    place: dict[str, Any] = {}
    vector: str | None = None
    read: bool = False


class BundledDocument(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """A document. With `text` and `chunks` it is finished, else it will be processed."""

    container_tags: list[str]
    id: str | None = None
    custom_id: Annotated[str, msgspec.Meta(min_length=1, max_length=255)] | None = None
    type: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9_-]{1,40}$")] = "text"
    title: str | None = None
    given_title: str | None = None
    """the title, if somebody gave it"""
    url: str | None = None
    source: Annotated[str, msgspec.Meta(max_length=1_000)] = "api"
    filepath: str | None = None
    metadata: dict[str, str | int | float | bool | list[str]] | None = None
    group: dict[str, str | int | float | bool | list[str]] | None = None
    document_date: datetime | None = None
    task_type: str = "memory"
    created_at: datetime | None = None
    updated_at: datetime | None = None
    forced_type: str | None = None
    content: str | None = None
    """what was given; None: `text`, or `file`"""
    file: BundledFile | None = None
    text: str | None = None
    """what was read out of it"""
    warnings: list[str] = []
    chunks: list[BundledChunk] | None = None
    archive: str | None = None
    """the document whose file it came out of; it stands in an earlier line"""
    archive_path: str | None = None
    unpacked: dict[str, str] | None = None
    """of an archive: what it held, as path → SHA-256 in hexadecimal"""


class BundledSource(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a memory comes from: characters `start` to `end` of a chunk, or of the whole text."""

    document: str
    start: int
    end: int
    hash: str = ""
    """hexadecimal BLAKE2b of 16 bytes of the chunk's text; empty: offsets are those of the text"""


Time: TypeAlias = Annotated[str, msgspec.Meta(max_length=100)]


class BundledTimes(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """When something was said, and when what it tells happens; as given."""

    document_date: Time | None = None
    event_date: Annotated[list[Time], msgspec.Meta(max_length=100)] | None = None


class BundledMemory(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One version of a memory. Earlier versions stand in earlier lines."""

    id: str
    tag: str
    content: str
    sources: list[BundledSource]
    version: Annotated[int, msgspec.Meta(ge=1, lt=1 << 31)] = 1
    parent: str | None = None
    root: str | None = None
    latest: bool = True
    static: bool = False
    inference: bool = False
    buckets: list[str] = []
    metadata: dict[str, Any] | None = None
    group: dict[str, Any] | None = None
    temporal: BundledTimes | None = None
    forget_after: datetime | None = None
    forget_reason: str | None = None
    forgotten_at: datetime | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    relations: dict[str, str] = {}
    """id of another memory → `extends` or `derives`"""
    vector: str | None = None


class BundledQuestion(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """A test question of a tag; see `recollect.search.evaluation`."""

    id: str
    tag: str
    question: str
    document: str | None = None
    words: str | None = None
    made_from: str | None = None
    """the document with which it goes"""
    created_at: datetime | None = None


class Bundle(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The head of a bundle. What tools of others leave out is not checked."""

    format: str
    version: int
    recollect: str | None = None
    made_at: datetime | None = None
    org: str | None = None
    only_tags: list[str] | None = None
    embedder: VectorModel | None = None
    tags: list[BundledTag] = []
    documents: int | None = None
    chunks: int | None = None
    files: int | None = None
    memories: int | None = None
    questions: int | None = None
    left_out: int | None = None
    """documents of connections that had not been fetched yet"""
    missing: list[str] = []
    """ids of documents whose file the blob store had lost"""
    damaged: list[str] = []
    """ids of documents whose file is in it as it was: not what was uploaded any more"""
    sha256: Mapping[str, str] = {}
    """of the files of lines"""


def derived(org: OrgId, what: str) -> str:
    """The id here of what another organisation has under its own: the same for the same."""
    number = int.from_bytes(hashlib.sha256(f"{org} {what}".encode()).digest())
    digits: list[str] = []
    for _ in range(22):
        number, digit = divmod(number, len(ALPHABET))
        digits.append(ALPHABET[digit])
    return "".join(digits)


def vector_text(vector: NDArray[np.float16]) -> str:
    return base64.b64encode(vector.astype("<f2").tobytes()).decode()


def vector_of(text: str, dimensions: int) -> NDArray[np.float32]:
    """Raises ValueError unless it is a vector of that many dimensions."""
    found = np.frombuffer(base64.b64decode(text, validate=True), dtype="<f2")
    if len(found) != dimensions:
        raise ValueError(f"a vector of {len(found)} dimensions, not {dimensions}")
    if not np.isfinite(found).all():
        raise ValueError("a vector with a number that is infinite or not a number")
    return found.astype(np.float32)
