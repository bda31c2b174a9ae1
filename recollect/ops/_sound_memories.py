"""What verify looks at in memories: words, vectors, and the documents on which they rest."""

import random
from collections.abc import Mapping
from typing import Any

from recollect import documents
from recollect.db import Database, Tx
from recollect.index import missing_vectors, terms, vector_index
from recollect.memories import memories
from recollect.memories.records import WHOLE, MemoryId
from recollect.model import DocumentId, OrgId, Tenant, random_id
from recollect.ops import _words
from recollect.ops._findings import AllDamage
from recollect.ops._words import Words, same_words, vectors_fit

AT_ONCE = 1_000
"""memories in one snapshot"""


def check_memories(db: Database, found: AllDamage, *, mend: bool) -> None:
    """Their words and vectors, and that each rests on a document."""
    with db.begin() as tx:
        tx.take_time()
        row = tx.execute("select count(*) as n from memories").fetchone()
    assert row is not None
    share = _words.WORDS_COMPARED / max(row["n"], 1)
    if _differing(db, found, share, mend=mend) and mend and share < 1:
        _differing(db, found, 1.0, mend=mend)
    _check_sources(db, found, mend=mend)


def _differing(db: Database, found: AllDamage, share: float, *, mend: bool) -> bool:
    """Look at all, some at a time, and at the words of about that share of them; whether some are
    wrong."""
    after, any_words = "", False
    while True:
        with db.moment() as tx:
            index = vector_index.read(tx) or vector_index.UNBOUND
            rows = tx.execute(
                "select m.id, m.org_id, m.content, m.terms, m.weights,"
                " vector_dims(m.embedding) as a, vector_dims(m.embedding_b) as b,"
                " exists (select from vector_gaps g where g.relation = 'memories'"
                "  and m.id between g.first and g.last) as awaited"
                " from memories m where m.id > %s order by m.id limit %s",
                (after, AT_ONCE),
            ).fetchall()
        if not rows:
            return any_words
        after = rows[-1]["id"]
        words: dict[MemoryId, Words] = {}
        for one in rows:
            if share < 1 and random.random() >= share:  # noqa: S311 # no secret
                continue
            wanted = terms.weigh(one["org_id"], one["content"])
            if not same_words(one["terms"], one["weights"], wanted):
                words[MemoryId(one["id"])] = wanted
        any_words |= bool(words)
        wrong = [one["id"] for one in rows if not vectors_fit(one, index)]
        found.add("words_wrong", [*words])
        found.add("memory_vector_wrong", wrong)
        if mend and (words or wrong):
            with db.begin() as tx:
                memories.reweigh(tx, words)
                missing_vectors.mend_memories(tx, wrong)
            found.mend("words_wrong", len(words))
            found.mend("memory_vector_wrong", len(wrong))


def _check_sources(db: Database, found: AllDamage, *, mend: bool) -> None:
    """Each is made with a source, and goes with the last one."""
    unsourced = " where not exists (select from memory_sources s where s.memory_id = m.id)"
    with db.begin() as tx:
        tx.take_time()
        rows = tx.execute(
            "select m.id from memories m" + unsourced + " order by m.is_latest desc, m.id"
        ).fetchall()
    found.add("memory_without_source", [row["id"] for row in rows])
    for row in rows if mend else ():
        with db.begin() as tx:
            memory = tx.execute(
                "select m.id, m.org_id, m.tag, m.content, m.forgotten_at, m.is_latest,"
                " coalesce(m.root_id, m.id) as root from memories m" + unsourced + " and m.id = %s",
                (row["id"],),
            ).fetchone()
            if memory is not None:
                _found_again(tx, memory)
                found.mend("memory_without_source")


def _found_again(tx: Tx, memory: Mapping[str, Any]) -> None:
    """Let it rest on what its other versions rest on, else on a document of its own; without
    either, what was forgotten goes, as with its last source."""
    copied = tx.execute(
        "insert into memory_sources (memory_id, document_id, hash, start_at, end_at)"
        " select distinct %(id)s, s.document_id, s.hash, s.start_at, s.end_at"
        " from memories v join memory_sources s on s.memory_id = v.id"
        " where v.org_id = %(org_id)s and v.tag = %(tag)s"
        " and coalesce(v.root_id, v.id) = %(root)s on conflict do nothing",
        memory,
    )
    if copied.rowcount:
        return
    if memory["forgotten_at"] is not None or not memory["is_latest"]:
        tx.execute("delete from memories where id = %(id)s", memory)
        return
    bearer = documents.bear(
        tx,
        Tenant(OrgId(memory["org_id"])),
        memory["tag"],
        memory["content"],
        DocumentId(random_id()),
    )
    tx.execute(
        "insert into memory_sources (memory_id, document_id, hash, start_at, end_at)"
        " values (%s, %s, %s, 0, %s) on conflict do nothing",
        (memory["id"], bearer.id, WHOLE, len(memory["content"])),
    )
