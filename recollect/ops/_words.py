"""What verify compares of words and vectors: a sample, since words take some milliseconds each."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from pgvector import SparseVector

from recollect import documents
from recollect.db import Database, Tx
from recollect.index import terms
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

    @classmethod
    def whole(cls) -> Self:
        return cls(0, 1 << 16)

    def rest(self) -> "WordSample":
        return WordSample((self.first + self.size) % (1 << 16), (1 << 16) - self.size)

    def holds(self, hash: bytes) -> bool:
        return (int.from_bytes(hash[:2]) - self.first) % (1 << 16) < self.size


def few_documents(tx: Tx, after: str, most: int, chunks: int) -> list[dict[str, Any]]:
    """The next documents by their ids: so many at most, or fewer with about so many chunks.

    What a large deletion left to be removed is passed over: nothing keeps it in order.
    """
    return tx.execute(
        "select * from (select d.id, d.org_id, d.container_tags, d.scope, d.status,"
        "  d.revision, d.indexed_revision, d.chunks, d.blob, d.connection_id,"
        "  d.title, d.blob_name,"
        "  sum(d.chunks) over (order by d.id) - d.chunks as before"
        "  from (select * from documents where id > %s and gone_at is null"
        "   order by id limit %s) d) as few"
        " where before < %s order by id",
        (after, most, chunks),
    ).fetchall()


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


def other_words(row: Mapping[str, Any], entry: Mapping[str, Any]) -> Words | None:
    """Those that an entry of `stored_words` should have, if it has others."""
    if entry["first"] and row["revision"] != row["indexed_revision"]:
        return None  # the name of the file is that of newer content
    named = (row["title"], row["blob_name"], entry["text"])
    names = documents.names(*named) if entry["first"] else ""
    words = terms.weigh(row["org_id"], entry["text"], names)
    same = same_words(entry["terms"][len(row["scope"]) :], entry["weights"], words)
    return None if same else words


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
