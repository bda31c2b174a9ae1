"""What verify looks at in older texts of documents: that all their chunks are there, each with its
entry."""

import random
from collections.abc import Mapping
from typing import Any

from psycopg.types.json import Jsonb

from recollect import documents
from recollect.db import Database
from recollect.index import terms
from recollect.ingest import chunk
from recollect.model import DocumentId, OrgId
from recollect.ops import _words
from recollect.ops._findings import AllDamage
from recollect.ops._words import same_words

AT_ONCE = 1_000
"""entries in one snapshot"""
DOCUMENTS_AT_ONCE = 200
_PLACED = (
    " from versions v join documents d on d.id = v.document_id"
    " join version_chunks c on c.version_id = v.id"
    " where not v.doomed and d.gone_at is null"
)


def check_older_texts(db: Database, found: AllDamage, *, mend: bool) -> None:
    """What is lacking, and what has another text or other words than it should.

    Of many passages it compares the words of a share; if some are wrong and it is to mend them, it
    compares those of all.
    """
    with db.begin() as tx:
        tx.take_time()
        row = tx.execute("select count(*) as n from version_entries").fetchone()
    assert row is not None
    share = _words.WORDS_COMPARED / max(row["n"], 1)
    _check_places(db, found, mend=mend)
    wrong = _differing(db, share)
    if wrong and mend and share < 1:
        wrong = _differing(db, 1.0)
    wrong += _lacking(db)
    found.add("older_text_wrong", [*dict.fromkeys(row["id"] for row in wrong)], len(wrong))
    for row in wrong if mend else ():
        found.mend("older_text_wrong", _make_again(db, DocumentId(row["id"]), row["hash"]))


def _check_places(db: Database, found: AllDamage, *, mend: bool) -> None:
    """Whether each text has as many chunks as it had when it was today's."""
    with db.begin() as tx:
        tx.take_time()
        rows = tx.execute(
            "select v.id, v.document_id, v.chunks - count(c.version_id) as lost from versions v"
            " join documents d on d.id = v.document_id"
            " left join version_chunks c on c.version_id = v.id"
            " where not v.doomed and d.gone_at is null"
            " group by v.id having v.chunks <> count(c.version_id) order by v.document_id, v.id"
        ).fetchall()
    for row in rows:
        found.add("older_text_wrong", [row["document_id"]], abs(row["lost"]))
        if mend and _place_again(db, row["document_id"], row["id"]):
            found.mend("older_text_wrong", row["lost"])


def _place_again(db: Database, document: str, version: int) -> bool:
    """Write the rows of chunks that a version lacks. False, and nothing is written, if the text is
    cut in another way today, or the rows that are left do not fit it."""
    with db.begin() as tx:
        tx.execute("select from documents where id = %s for no key update", (document,))
        row = tx.execute("select text, chunks from versions where id = %s", (version,)).fetchone()
        if row is None:
            return False
        cut = {
            one.position: (one.start, one.start + len(one.text), one.hash)
            for one in chunk.split(row["text"])
        }
        left = {
            one["position"]: (one["start_at"], one["end_at"], one["hash"])
            for one in tx.execute("select * from version_chunks where version_id = %s", (version,))
        }
        if len(cut) != row["chunks"] or not left.items() <= cut.items():
            return False
        for position in sorted(cut.keys() - left.keys()):
            start, end, hash = cut[position]
            # By itself: with Citus these lie on other servers than the rest.
            place = tx.execute(
                "select place from chunks where document_id = %s and hash = %s"
                " order by position limit 1",
                (document, hash),
            ).fetchone()
            tx.execute(
                "insert into version_chunks (version_id, position, start_at, end_at, hash, place)"
                " values (%s, %s, %s, %s, %s, %s)",
                (version, position, start, end, hash, Jsonb(place["place"] if place else {})),
            )
    return True


def _lacking(db: Database) -> list[dict[str, Any]]:
    """Passages that have no entry, neither here nor in today's text, some documents at a time."""
    after, found = "", list[dict[str, Any]]()
    while True:
        with db.moment() as tx:
            ids = [
                row["id"]
                for row in tx.execute(
                    "select distinct document_id as id from versions where document_id > %s"
                    " order by 1 limit %s",
                    (after, DOCUMENTS_AT_ONCE),
                )
            ]
            if not ids:
                return found
            rows = tx.execute(
                "select distinct v.document_id as id, c.hash"
                + _PLACED
                + " and d.id = any(%s) and not exists (select from version_entries k"
                "  where k.document_id = v.document_id and k.hash = c.hash) order by 1, 2",
                (ids,),
            ).fetchall()
            # By itself: with Citus these lie on other servers than the rest.
            there = {
                (row["id"], row["hash"])
                for row in tx.execute(
                    "select document_id as id, hash from entries where document_id = any(%s)",
                    (ids,),
                )
            }
        found += [row for row in rows if (row["id"], row["hash"]) not in there]
        after = ids[-1]


def _differing(db: Database, share: float) -> list[dict[str, Any]]:
    """Entries of older texts that are wrong. It compares the text of each with its hash, and of
    about that share the words, too."""
    id, hash, wrong = "", b"", list[dict[str, Any]]()
    while True:
        with db.begin() as tx:
            rows = tx.execute(
                "select k.document_id as id, k.hash, k.text, k.terms, k.weights, d.org_id"
                " from version_entries k join documents d on d.id = k.document_id"
                " where (k.document_id, k.hash) > (%s, %s) and d.gone_at is null"
                " order by k.document_id, k.hash limit %s",
                (id, hash, AT_ONCE),
            ).fetchall()
        if not rows:
            return wrong
        id, hash = rows[-1]["id"], rows[-1]["hash"]
        wrong += [
            {"id": row["id"], "hash": row["hash"]}
            for row in rows
            if chunk.digest(row["text"]) != row["hash"]
            or (random.random() < share and not _has_its_words(row))  # noqa: S311 # no secret
        ]


def _has_its_words(row: Mapping[str, Any]) -> bool:
    # Beside those of a title that the document had then.
    words = terms.weigh(row["org_id"], row["text"])
    return same_words(row["terms"], row["weights"], words, or_more=True)


def _make_again(db: Database, id: DocumentId, hash: bytes) -> bool:
    """Write an entry again from an older text that contains the passage. False if each of these
    texts is damaged, too."""
    with db.begin() as tx:
        rows = tx.execute(
            "select d.org_id, substr(v.text, c.start_at + 1, c.end_at - c.start_at) as text"
            + _PLACED
            + " and d.id = %s and c.hash = %s for no key update of d",
            (id, hash),
        )
        row = next((one for one in rows if chunk.digest(one["text"]) == hash), None)
        if row is None:
            return False
        words = terms.weigh(OrgId(row["org_id"]), row["text"])
        documents.keep_entry(tx, id, hash, row["text"], words)
    return True
