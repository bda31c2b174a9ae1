"""What is locked before memories are written, so that two writers know what the other knows."""

from collections.abc import Sequence
from hashlib import md5

from recollect import documents
from recollect.db import Tx
from recollect.memories.records import WHOLE, Fact
from recollect.model import DocumentId, OrgId


def lock(tx: Tx, org: OrgId, tag: str) -> None:
    """One writer of a tag at a time: what two say at once is known once."""
    tx.execute("select pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"memories {org} {tag}",))


def lock_all(tx: Tx, org: OrgId, document: DocumentId, tag: str, facts: Sequence[Fact]) -> None:
    """All that keeping these facts may change."""
    documents.lock_chains(
        tx,
        "select coalesce(m.root_id, m.id) from memories m where m.org_id = %(org)s and m.id in ("
        "  select m.id from memories m where m.org_id = %(org)s and m.tag = %(tag)s"
        "   and m.is_latest and md5(m.content) = any(%(digests)s)"
        "  union select unnest(%(named)s::text[])"
        "  union select s.memory_id from memory_sources s"
        "   where s.document_id = %(document)s and s.hash = any(%(gone)s::bytea[]))",
        {
            "org": org,
            "tag": tag,
            "digests": digests(facts),
            "named": [
                *(id for fact in facts for id in fact.related),
                *(fact.updates for fact in facts if fact.updates is not None),
            ],
            "document": document,
            "gone": _gone(tx, document),
        },
    )


def _gone(tx: Tx, document: DocumentId) -> list[bytes]:
    """Hashes of passages that memories were drawn from and the document has no more."""
    rows = tx.execute(
        "select distinct hash from memory_sources where document_id = %s and hash <> %s",
        (document, WHOLE),
    ).fetchall()
    drawn = {row["hash"] for row in rows}
    if not drawn:
        return []
    # By itself: with Citus the places of passages lie on other servers than the rest.
    there = tx.execute(
        "select hash from chunks where document_id = %s and hash = any(%s)",
        (document, list(drawn)),
    ).fetchall()
    return list(drawn - {row["hash"] for row in there})


def digests(facts: Sequence[Fact]) -> list[str]:
    return [md5(fact.text.encode(), usedforsecurity=False).hexdigest() for fact in facts]
