"""What verify found: kinds of damage, of one document and of all."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recollect.model import DocumentId, OrgId
from recollect.ops._words import Words

FEW = 5
"""Examples of each kind that are shown."""

REBUILD = "drop what is wrong and process the document again"
KINDS: Mapping[str, str] = {
    "revision_behind": "process the document again",
    "chunks_missing": REBUILD,
    "chunk_without_entry": REBUILD,
    "offsets_wrong": REBUILD,
    "hash_wrong": REBUILD,
    "scope_wrong": REBUILD,
    "words_wrong": "compute the words again",
    "vector_missing": REBUILD,
    "vector_beside_missing": "let the workers embed it",
    "vector_left_over": "forget it",
    "memory_vector_wrong": "let the workers embed it",
    "memory_without_source": "rest it on what its other versions do, or on a document of its own",
    "older_text_wrong": "create it again from the older text, to be found by its words",
    "entry_orphaned": "drop the entry",
    "tag_missing": "create the tag",
    "item_missing": "remember the document at its connection",
    "stranded": "let the queue have it now",
    "reference_broken": "do what deleting the other row should have done",
    "count_wrong": "count again",
    "file_missing": "none here: restore it from a backup, or upload it again with its customId",
    "file_damaged": "none here: restore it from a backup, or upload it again with its customId",
    "file_orphaned": "remove the file",
    "file_undeleted": "remove the file",
}
"""What can be wrong, and its mend."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One kind of damage. `examples` are ids, of documents where there is one."""

    kind: str
    count: int
    examples: Sequence[str]
    mend: str
    mended: int


@dataclass(slots=True)
class AllDamage:
    """What was found so far: of each kind how much, how much of it is mended, and examples."""

    counts: dict[str, int] = field(default_factory=dict[str, int])
    mended: dict[str, int] = field(default_factory=dict[str, int])
    examples: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    tags: set[tuple[OrgId, str]] = field(default_factory=set[tuple[OrgId, str]])
    """that were found to be missing"""

    def add(self, kind: str, ids: Sequence[str], count: int | None = None) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + (len(ids) if count is None else count)
        some = self.examples.setdefault(kind, [])
        some += [id for id in ids if id not in some][: FEW - len(some)]

    def mend(self, kind: str, count: int = 1) -> None:
        self.mended[kind] = self.mended.get(kind, 0) + count

    def findings(self) -> list[Finding]:
        return [
            Finding(
                kind, self.counts[kind], self.examples[kind], KINDS[kind], self.mended.get(kind, 0)
            )
            for kind in KINDS
            if self.counts.get(kind)
        ]


@dataclass(slots=True)
class Damage:
    """What is wrong with one document."""

    org: OrgId
    id: DocumentId
    revision: int | None
    """its text in the index when it was looked at"""
    kinds: dict[str, int] = field(default_factory=dict[str, int])
    bad: set[bytes] = field(default_factory=set[bytes])
    """entries that must not be used again"""
    orphans: set[bytes] = field(default_factory=set[bytes])
    words: dict[bytes, Words] = field(default_factory=dict[bytes, Words])
    """entries that have other words, and those that they should have"""

    def add(self, kind: str, count: int = 1) -> None:
        self.kinds[kind] = self.kinds.get(kind, 0) + count


def grouped(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """By document."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["document_id"], []).append(row)
    return found
