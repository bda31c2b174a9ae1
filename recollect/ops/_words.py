"""What verify compares of words and vectors: a sample, since words take some milliseconds each."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from pgvector import SparseVector

from recollect.db import Database, Tx
from recollect.index.vector_index import Index

WORDS_COMPARED = 20_000
"""Entries, and memories, whose words are computed and compared: it takes some milliseconds each.
Of more, some are taken at random, others with each run."""
Words = Mapping[int, float]
"""Term number → weight, as of `terms.weigh`."""


@dataclass(frozen=True, slots=True)
class WordSample:
    """Of which entries the words are compared: by the first two bytes of their hashes, from `first`
    on in a circle."""

    first: int
    size: int

    @classmethod
    def of(cls, db: Database) -> Self:
        with db.begin() as tx:
            tx.take_time()
            row = tx.execute("select coalesce(sum(chunks), 0) as n from documents").fetchone()
        assert row is not None
        size = min(1 << 16, (WORDS_COMPARED << 16) // max(row["n"], 1))
        return cls(random.randrange(1 << 16), size)  # noqa: S311 # no secret

    def rest(self) -> "WordSample":
        return WordSample((self.first + self.size) % (1 << 16), (1 << 16) - self.size)

    def holds(self, hash: bytes) -> bool:
        return (int.from_bytes(hash[:2]) - self.first) % (1 << 16) < self.size


def stored_words(
    tx: Tx,
    rows: Sequence[Mapping[str, Any]],
    entries: Iterable[Mapping[str, Any]],
    sample: WordSample,
) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Entries of the sample, as they are, each with its document."""
    of = {row["id"]: row for row in rows}
    hashes = [
        (entry["document_id"], entry["hash"])
        for entry in entries
        if sample.holds(entry["hash"]) and entry["scope"] == of[entry["document_id"]]["scope"]
    ]
    stored = tx.execute(
        "select e.document_id, e.hash, e.text, e.terms, e.weights, exists (select from chunks c"
        "  where c.document_id = e.document_id and c.hash = e.hash and c.position = 0) as first"
        " from entries e"
        " join unnest(%s::text[], %s::bytea[]) as asked (id, hash)"
        "  on e.document_id = asked.id and e.hash = asked.hash",
        ([id for id, _ in hashes], [hash for _, hash in hashes]),
    )
    return [(of[entry["document_id"]], entry) for entry in stored]


def same_words(
    numbers: Sequence[int], weights: SparseVector, words: Words, *, or_more: bool = False
) -> bool:
    """Whether an entry holds the words as they should be; `or_more`: and perhaps others."""
    held = {
        number + 1: value for number, value in zip(weights.indices(), weights.values(), strict=True)
    }
    if or_more and held.keys() == set(numbers):
        held = {number: value for number, value in held.items() if number in words}
        numbers = [*held]
    if sorted(numbers) != sorted(words) or held.keys() != words.keys():
        return False
    values = np.array([[held[number], words[number]] for number in words]).reshape(-1, 2)
    return np.allclose(values[:, 0], values[:, 1], rtol=1e-5)


def vectors_fit(memory: Mapping[str, Any], index: Index) -> bool:
    for one in (index.used, index.other):
        if one is None or not one.dimensions:
            continue
        held = memory[one.slot]
        waits = memory["awaited"] or (one is index.other and not index.planned)
        if held != one.dimensions and not (held is None and waits):
            return False
    return index.other is not None or index.phase is not None or memory[index.idle] is None
