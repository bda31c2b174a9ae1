"""After an upgrade that reads other words in texts, or other names: documents and memories that are
there get them from the workers, some at a time. Nothing is embedded."""

from collections.abc import Mapping

from recollect import documents, log
from recollect.db import Database, Tx
from recollect.index import terms
from recollect.memories import memories
from recollect.memories.records import MemoryId
from recollect.model import DocumentId, OrgId
from recollect.ops._words import (
    Words,
    WordSample,
    few_documents,
    other_words,
    same_words,
    stored_words,
)

AT_ONCE = 200
"""Documents or memories of one step, …"""
CHUNKS_AT_ONCE = 1_000
"""… or fewer, with so many chunks. Each takes a millisecond or two."""
LOG = log.get("words")
_LOCK = 0x0E_3D5


def refresh_words(db: Database) -> bool:
    """Do a step of what is to do; whether there may be more. Of several that try, one does."""
    with db.begin() as turn:
        [mine] = turn.execute("select pg_try_advisory_xact_lock(%s) as mine", (_LOCK,)).fetchall()
        due = turn.execute(
            "select relation, coalesce(after, '') as after"
            " from (values ('documents'), ('memories')) as each (relation)"
            " left join word_refresh using (relation)"
            " where coalesce(version, 0) < %s order by relation limit 1",
            (terms.VERSION,),
        ).fetchone()
        if due is None or not mine["mine"]:
            return False
        step = _documents if due["relation"] == "documents" else _memories
        last = step(db, due["after"])
        with db.begin() as tx:
            tx.execute(
                "insert into word_refresh (relation, version, after)"
                " values (%(relation)s, %(version)s, %(after)s) on conflict (relation) do update"
                " set version = greatest(word_refresh.version, excluded.version),"
                " after = excluded.after",
                {
                    "relation": due["relation"],
                    "version": terms.VERSION if last is None else 0,
                    "after": last or "",
                },
            )
        if last is None and due["after"]:
            LOG.info("words are up to date", of=due["relation"])
    return True


def _documents(db: Database, after: str) -> str | None:
    """The id of the last one that was looked at; None if there are no more."""
    with db.begin() as tx:
        rows = few_documents(tx, after, AT_ONCE, CHUNKS_AT_ONCE)
        entries = tx.execute(
            "select e.document_id, e.hash, e.terms[1:cardinality(d.scope)] as scope"
            " from entries e join facets d on d.id = e.document_id where e.document_id = any(%s)",
            ([row["id"] for row in rows],),
        ).fetchall()
        stored = stored_words(tx, rows, entries, WordSample.whole())
    wrong: dict[tuple[str, int | None], dict[bytes, Words]] = {}
    for row, entry in stored:
        words = other_words(row, entry)
        if words is not None:
            wrong.setdefault((row["id"], row["indexed_revision"]), {})[entry["hash"]] = words
    any_changed = False
    for (id, revision), words in wrong.items():
        with db.begin() as tx:
            any_changed |= not _reweigh(tx, DocumentId(id), revision, words)
    if any_changed:  # another passage may be its first now: look again
        return after
    return rows[-1]["id"] if rows else None


def _reweigh(tx: Tx, id: DocumentId, revision: int | None, words: Mapping[bytes, Words]) -> bool:
    """Whether the document still had that text, or is gone."""
    row = tx.execute(
        "select org_id, scope, indexed_revision from documents where id = %s for update", (id,)
    ).fetchone()
    if row is not None and row["indexed_revision"] == revision:
        documents.reweigh_entries(tx, OrgId(row["org_id"]), id, row["scope"], words)
    return row is None or row["indexed_revision"] == revision


def _memories(db: Database, after: str) -> str | None:
    """As `_documents`."""
    with db.begin() as tx:
        rows = tx.execute(
            "select id, org_id, content, terms, weights from memories where id > %s"
            " order by id limit %s",
            (after, AT_ONCE),
        ).fetchall()
    read = {MemoryId(row["id"]): terms.weigh(row["org_id"], row["content"]) for row in rows}
    wrong = {
        MemoryId(row["id"]): read[MemoryId(row["id"])]
        for row in rows
        if not same_words(row["terms"], row["weights"], read[MemoryId(row["id"])])
    }
    with db.begin() as tx:
        memories.reweigh(tx, wrong)
    return rows[-1]["id"] if rows else None
