"""Memories: facts, each in one container tag, with versions, expiry, and documents as evidence.

What a caller adds directly and what is drawn from documents are rows of the same table. A memory is
*live* while it is the latest version and neither forgotten nor expired; only live ones are shown
unless a caller asks for the others. It has at least one source, and the database removes it with
the last one (see the migration), so nothing here has to follow a document that goes.

Here they are written. `records` says what a memory is, `reading` reads them by id, tag and
document, `finding` finds those that answer a query. For drawing memories from documents, `unread`
says which chunks are new, `known` and `search` what is known already, and `store` takes what came
of them.
"""

import json
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from pgvector import HalfVector, SparseVector
from psycopg import sql

from recollect import documents
from recollect.db import Tx, tenancy
from recollect.errors import ForgottenError, LeaseLost, RequestError
from recollect.index import missing_vectors, vector_index
from recollect.memories.locking import digests, lock, lock_all
from recollect.memories.reading import concluded, named, versions
from recollect.memories.records import (
    COLUMNS,
    LIVE,
    REACH,
    UNFORGOTTEN,
    WHOLE,
    Correction,
    Fact,
    Memory,
    MemoryId,
    MemoryTarget,
    Span,
    jsonb_of,
    read_row,
    unknown_memory,
    what_else_they_are,
)
from recollect.model import DocumentId, OrgId, Tenant, random_id

# --- adding and changing -----------------------------------------------------------------------


def add(
    tx: Tx, tenant: Tenant, tag: str, facts: Sequence[Fact], id: DocumentId
) -> tuple[DocumentId, list[Memory]]:
    """Know the facts, at least one, with a document that bears them; its `id` if it is a new one.

    A fact that is known word for word gets this document as one more source, and what it says
    of the rest counts. The same facts again within seconds are the same document.
    """
    document = documents.bear(tx, tenant, tag, "\n\n".join(fact.text for fact in facts), id)
    lock(tx, tenant.id, tag)
    lock_all(tx, tenant.id, document.id, tag, facts)
    start, kept = 0, list[MemoryId]()
    for fact in facts:
        end = start + len(fact.text)
        kept.append(_keep(tx, tenant.id, document.id, tag, fact, [Span(WHOLE, start, end)]))
        start = end + 2
    return document.id, _ordered(tx, tenant, kept)


def store(
    tx: Tx,
    org: OrgId,
    document: DocumentId,
    tag: str,
    facts: Sequence[Fact],
    *,
    read: Collection[bytes],
) -> list[MemoryId]:
    """Keep what came of reading chunks of a document; `read` are the hashes of their texts.

    A fact that is known word for word gets one more source, also if a user forgot it: it stays
    forgotten. What stood only in chunks that the document has no more is forgotten for good. So the
    same once more changes nothing. A conclusion from what is gone by now is not kept. Raises
    LeaseLost when the document is gone or has lost the tag.
    """
    lock(tx, org, tag)
    if any(fact.updates is not None for fact in facts):
        # What says the same may become one with what updates: its documents come first, as ours.
        tx.execute(
            "select from documents d where d.id in (select %(own)s::text"
            " union select s.document_id from memory_sources s join memories m"
            "  on m.id = s.memory_id where m.org_id = %(org)s and m.tag = %(tag)s and m.is_latest"
            "  and md5(m.content) = any(%(digests)s))" + documents.ORDER + " for key share",
            {"own": document, "org": org, "tag": tag, "digests": digests(facts)},
        )
    there = tx.execute(
        "select 1 from documents where id = %s and org_id = %s and gone_at is null"
        " and %s = any(container_tags)"
        " for share",
        (document, org, tag),
    ).fetchone()
    if there is None:
        raise LeaseLost
    lock_all(tx, org, document, tag, facts)
    kept = [
        _forgotten_before(tx, org, document, tag, fact)
        or _keep(tx, org, document, tag, fact, fact.spans, drawn=True)
        for fact in _founded(tx, org, tag, facts)
    ]
    tx.execute(
        "insert into memory_reads (document_id, hash) select %s, unnest(%s::bytea[])"
        " on conflict do nothing",
        (document, list(read)),
    )
    for table in ("memory_reads", "memory_sources"):
        tx.execute(
            sql.SQL(
                "with placed as materialized (select hash from chunks where document_id = %s)"
                " delete from {} t where t.document_id = %s and t.hash <> %s"
                " and t.hash not in (select hash from placed)"
            ).format(sql.Identifier(table)),
            (document, document, WHOLE),
        )
    return kept


def _founded(tx: Tx, org: OrgId, tag: str, facts: Sequence[Fact]) -> list[Fact]:
    """Without conclusions from what left the tag, or was forgotten, meanwhile; all is locked."""
    premises = {id for fact in facts if fact.is_inference for id in fact.related}
    rows = tx.execute(
        "select p.id from memories p join memories m on m.tag = p.tag and"
        " (m.id = coalesce(p.root_id, p.id) or m.root_id = coalesce(p.root_id, p.id))"
        " where p.org_id = %s and p.tag = %s and p.id = any(%s) and " + LIVE,
        (org, tag, list(premises)),
    )
    there = {row["id"] for row in rows}
    return [fact for fact in facts if not fact.is_inference or there.issuperset(fact.related)]


def correct(
    tx: Tx, tenant: Tenant, tag: str, target: MemoryTarget, correction: Correction
) -> Memory:
    """Add a version; the one before is not the latest any more. Raises NotFoundError.

    One that changes nothing, as a repeated request does, adds none. It has the same sources,
    relations and groups. Another memory of the tag that says what this one comes to say becomes
    one of its earlier versions: a text is one memory.
    """
    lock(tx, tenant.id, tag)
    old = _meant(tx, tenant, tag, target, becomes=correction.text)
    if old.is_forgotten:
        raise unknown_memory(target, "was forgotten")
    if _changes_nothing(old, correction):
        return old
    tx.execute("update memories set is_latest = false where id = %s", (old.id,))
    id = random_id()
    row = tx.execute(
        "insert into memories (id, org_id, tag, content, version, parent_id, root_id, is_static,"
        " is_inference, buckets, metadata, temporal, forget_after, forget_reason, terms, weights,"
        " embedding, embedding_b, group_pairs)"
        " select %(id)s, m.org_id, m.tag, %(content)s, m.version + 1, m.id,"
        " coalesce(m.root_id, m.id), m.is_static, false, m.buckets,"
        " coalesce(%(metadata)s, m.metadata), coalesce(%(temporal)s, m.temporal),"
        " case when %(sets_expiry)s then %(forget_after)s else m.forget_after end,"
        " case when %(sets_expiry)s and %(forget_after)s::timestamptz is null then null"
        "      else coalesce(%(forget_reason)s, m.forget_reason) end,"
        " %(terms)s, %(weights)s, %(embedding)s, %(embedding_b)s, m.group_pairs"
        " from memories m where m.id = %(old)s returning id",
        {
            "id": id,
            "old": old.id,
            "content": correction.text,
            "metadata": jsonb_of(correction.metadata),
            "temporal": jsonb_of(correction.temporal),
            "sets_expiry": correction.sets_expiry,
            "forget_after": correction.forget_after,
            "forget_reason": correction.forget_reason,
            **indexed(tx, id, correction.weights, correction.vector),
        },
    ).fetchone()
    assert row is not None
    tx.execute(
        "insert into memory_sources (memory_id, document_id, hash, start_at, end_at)"
        " select %s, document_id, hash, start_at, end_at from memory_sources where memory_id = %s",
        (row["id"], old.id),
    )
    _unite(tx, [MemoryId(row["id"])])
    return _ordered(tx, tenant, [MemoryId(row["id"])])[0]


def _changes_nothing(old: Memory, correction: Correction) -> bool:
    return (
        old.content == correction.text
        and not old.is_inference  # said by a person, it is a conclusion no more
        and all(
            # As JSON, in which 1 is not true.
            new is None or json.dumps(new, sort_keys=True) == json.dumps(known, sort_keys=True)
            for new, known in (
                (correction.metadata, old.metadata),
                (correction.temporal, old.temporal),
            )
        )
        and correction.forget_reason in (None, old.forget_reason)
        and (not correction.sets_expiry or correction.forget_after == old.forget_after)
    )


def hold(tx: Tx, tenant: Tenant, tag: str) -> None:
    """Before what is to be forgotten is read: until this ends, nobody adds a version to it.

    Else who waits for a row finds that it is not the latest any more, and does not see the latest.
    """
    lock(tx, tenant.id, tag)


def forget(tx: Tx, tenant: Tenant, tag: str, target: MemoryTarget, reason: str | None) -> Memory:
    """Show it to nobody any more. Raises NotFoundError, and ForgottenError if that was done."""
    hold(tx, tenant, tag)
    found = _meant(tx, tenant, tag, target)
    if found.is_forgotten:
        raise _forgotten_already(found)
    return _forgotten(tx, tenant, [found.id], reason, None)[0]


def forget_these(
    tx: Tx, tenant: Tenant, tag: str, ids: Sequence[str], reason: str | None, batch: str
) -> list[Memory]:
    """Forget those of the ids that are live memories of the tag; an older version means the latest.
    They remember the batch."""
    found = _held(tx, tenant, tag, ids)
    return _forgotten(tx, tenant, [memory.id for memory in found], reason, batch)


def forget_named(
    tx: Tx, tenant: Tenant, tag: str, ids: Sequence[str], reason: str | None, batch: str
) -> tuple[list[Memory], dict[str, RequestError]]:
    """As `forget_these`; and why others of the ids were not: unknown, or forgotten before."""
    live = _held(tx, tenant, tag, ids)
    roots = {one.root_id or one.id for one in live}
    known = {one.id: one for one in versions(tx, tenant, ids) if one.tag == tag}
    unknown = [id for id in dict.fromkeys(ids) if id not in known]
    why = what_else_they_are(tx, tenant, unknown)
    refused: dict[str, RequestError] = {
        id: unknown_memory(MemoryTarget(id=id), why.get(id)) for id in unknown
    }
    for id, one in known.items():
        if (one.root_id or one.id) not in roots:
            refused[id] = _forgotten_already(one)
    done = _forgotten(tx, tenant, [one.id for one in live], reason, batch)
    return done, {id: refused[id] for id in dict.fromkeys(ids) if id in refused}


def _held(tx: Tx, tenant: Tenant, tag: str, ids: Sequence[str]) -> list[Memory]:
    """Live memories of the tag among the ids, locked."""
    hold(tx, tenant, tag)
    roots = "select coalesce(root_id, id) from memories where org_id = %s and id = any(%s)"
    documents.lock_chains(tx, roots, (tenant.id, list(ids)))
    return named(tx, tenant, tag, ids)


def forget_vectors(tx: Tx) -> None:
    """For a change of the embedding model; until they are embedded again, words find memories.

    The workers embed those that the caller does not.
    """
    tx.execute(
        "update memories set embedding = null, embedding_b = null"
        " where embedding is not null or embedding_b is not null"
    )
    index = vector_index.read(tx)
    if index is not None and index.models:
        missing_vectors.note_memories(tx)


def without_vector(tx: Tx, limit: int = 64) -> dict[MemoryId, str]:
    """Texts of memories that wait for a vector."""
    rows = tx.execute(
        "select id, content from memories where embedding is null order by id limit %s", (limit,)
    )
    return {MemoryId(row["id"]): row["content"] for row in rows}


def embed(tx: Tx, vectors: Mapping[MemoryId, NDArray[np.float32]]) -> None:
    """Give memories their vectors."""
    for id, vector in sorted(vectors.items()):
        tx.execute("update memories set embedding = %s where id = %s", (HalfVector(vector), id))


def reweigh(tx: Tx, words: Mapping[MemoryId, Mapping[int, float]]) -> None:
    """Give memories these words; for a mend."""
    for id, weights in sorted(words.items()):
        tx.execute(
            "update memories set terms = %s, weights = %s where id = %s",
            (list(weights), _sparse(weights), id),
        )


def _sparse(weights: Mapping[int, float]) -> SparseVector:
    return SparseVector({n - 1: w for n, w in weights.items()}, documents.TERM_SPACE)


def _keep(
    tx: Tx,
    org: OrgId,
    document: DocumentId,
    tag: str,
    fact: Fact,
    spans: Sequence[Span],
    *,
    drawn: bool = False,
) -> MemoryId:
    """Insert the fact, or confirm the memory that says the same; the tag is locked. A `drawn` one
    without an expiry says nothing of it."""
    if not spans:
        raise ValueError("a fact needs evidence")
    same = tx.execute(
        "update memories m set is_static = m.is_static or %(is_static)s,"
        " is_inference = m.is_inference and %(is_inference)s,"
        " metadata = coalesce(%(metadata)s, m.metadata),"
        " temporal = coalesce(%(temporal)s, m.temporal),"
        " buckets = array(select distinct b from unnest(m.buckets || %(buckets)s::text[]) as b"
        "  order by b),"
        " forget_after = coalesce(%(forget_after)s, case when %(drawn)s then m.forget_after end),"
        " forget_reason = coalesce(%(forget_reason)s,"
        "  case when %(drawn)s then m.forget_reason end), updated_at = clock_timestamp()"
        " where m.id = (select m.id from memories m where m.org_id = %(org)s and m.tag = %(tag)s"
        "  and md5(m.content) = md5(%(content)s::text) and m.content = %(content)s"
        "  and m.group_pairs is not distinct from %(group)s::jsonb and "
        + LIVE
        + " order by m.created_at limit 1 for update) returning m.id",
        {**_said(org, tag, fact), "drawn": drawn},
    ).fetchone()
    if same is None:
        id = _insert(tx, org, tag, fact)
    elif _updates_another(tx, org, tag, fact):
        id = _united(tx, _insert(tx, org, tag, fact), MemoryId(same["id"]))
    else:
        id = MemoryId(same["id"])
    _cite(tx, id, document, spans)
    tx.execute(
        "insert into memory_relations (memory_id, target_id, relation)"
        " select %(id)s, m.id, r.relation"
        " from unnest(%(targets)s::text[], %(relations)s::text[]) as r (target, relation)"
        " join memories m on m.id = r.target and m.org_id = %(org)s and m.tag = %(tag)s"
        " where m.id <> %(id)s on conflict do nothing",
        {
            "id": id,
            "org": org,
            "tag": tag,
            "targets": list(fact.related),
            "relations": [relation.value for relation in fact.related.values()],
        },
    )
    return id


def _updates_another(tx: Tx, org: OrgId, tag: str, fact: Fact) -> bool:
    """Whether what the fact updates is a live memory that says something else."""
    row = tx.execute(
        "select from memories m where m.org_id = %s and m.tag = %s and " + LIVE
        + " and m.content <> %s and coalesce(m.root_id, m.id) ="
        " (select coalesce(v.root_id, v.id) from memories v where v.id = %s and v.org_id = %s)",
        (org, tag, fact.text, fact.updates, org),
    ).fetchone()  # fmt: skip
    return row is not None


def _united(tx: Tx, id: MemoryId, other: MemoryId) -> MemoryId:
    """The new version, with all that is known of the other memory, which says the same."""
    tx.execute(
        "update memories m set is_static = o.is_static, is_inference = o.is_inference,"
        " metadata = o.metadata, temporal = o.temporal, buckets = o.buckets,"
        " forget_after = o.forget_after, forget_reason = o.forget_reason"
        " from memories o where m.id = %s and o.id = %s",
        (id, other),
    )
    _unite(tx, [id])
    return id


def _forgotten_before(
    tx: Tx, org: OrgId, document: DocumentId, tag: str, fact: Fact
) -> MemoryId | None:
    """The memory of this text that is forgotten, if none is live; with one more source. One whose
    time is over, too, unless the fact names another time."""
    row = tx.execute(
        "select m.id, m.forgotten_at is not null"
        "  or (m.forget_after <= now() is true and %(forget_after)s::timestamptz is null)"
        "  as forgotten from memories m"
        " where m.org_id = %(org)s and m.tag = %(tag)s and m.is_latest"
        " and md5(m.content) = md5(%(content)s::text) and m.content = %(content)s"
        " and m.group_pairs is not distinct from %(group)s::jsonb"
        " order by forgotten, m.created_at limit 1",
        _said(org, tag, fact),
    ).fetchone()
    if row is None or not row["forgotten"]:
        return None
    _cite(tx, row["id"], document, fact.spans)
    return MemoryId(row["id"])


def _cite(tx: Tx, id: str, document: DocumentId, spans: Sequence[Span]) -> None:
    tx.execute(
        "insert into memory_sources (memory_id, document_id, hash, start_at, end_at)"
        " select %s, %s, * from unnest(%s::bytea[], %s::int[], %s::int[])"
        " on conflict do nothing",
        (
            id,
            document,
            [span.hash for span in spans],
            [span.start for span in spans],
            [span.end for span in spans],
        ),
    )


def _insert(tx: Tx, org: OrgId, tag: str, fact: Fact) -> MemoryId:
    """A memory of its own, or the next version of the one that it updates, if that is there."""
    old = None
    if fact.updates is not None:
        old = tx.execute(
            "update memories m set is_latest = false where m.id = (select m.id from memories m"
            f" where m.org_id = %(org)s and m.tag = %(tag)s and {LIVE}"
            " and coalesce(m.root_id, m.id) = (select coalesce(v.root_id, v.id) from memories v"
            "  where v.id = %(id)s and v.org_id = %(org)s)"
            " order by m.version desc limit 1 for update)"
            " returning m.id, m.version, coalesce(m.root_id, m.id) as root_id",
            {"org": org, "tag": tag, "id": fact.updates},
        ).fetchone()
    id = MemoryId(random_id())
    tx.execute(
        "insert into memories (id, org_id, tag, content, version, parent_id, root_id, is_static,"
        " is_inference, buckets, metadata, temporal, forget_after, forget_reason, terms, weights,"
        " embedding, embedding_b, group_pairs, created_at, updated_at)"
        " values (%(id)s, %(org)s, %(tag)s, %(content)s, %(version)s, %(parent)s,"
        " %(root)s, %(is_static)s, %(is_inference)s, %(buckets)s, %(metadata)s,"
        " %(temporal)s, %(forget_after)s, %(forget_reason)s, %(terms)s, %(weights)s,"
        # Those of one transaction keep their order.
        " %(embedding)s, %(embedding_b)s, %(group)s, clock_timestamp(), clock_timestamp())",
        {
            "id": id,
            "version": old["version"] + 1 if old else 1,
            "parent": old["id"] if old else None,
            "root": old["root_id"] if old else None,
            **_said(org, tag, fact),
            **indexed(tx, id, fact.weights, fact.vector),
        },
    )
    return id


def _unite(tx: Tx, ids: Sequence[MemoryId]) -> None:
    """Have each take over what else says the same in its tag (see migration 0027)."""
    tx.execute("select unite_memories(%s::text[])", (list(ids),))


def _meant(
    tx: Tx, tenant: Tenant, tag: str, target: MemoryTarget, *, becomes: str | None = None
) -> Memory:
    """The latest version of the memory that the caller means, locked; raises NotFoundError.

    `becomes`: the text that it is going to have, if that changes.
    """
    wanted = (
        "coalesce(m.root_id, m.id) = (select coalesce(v.root_id, v.id) from memories v"
        " where v.id = %(id)s and v.org_id = %(org)s and v.tag = %(tag)s)"
        if target.id is not None
        else "md5(m.content) = md5(%(content)s::text) and m.content = %(content)s"
    )
    known = " from memories m where " + REACH + " and m.tag = %(tag)s and m.is_latest and "
    matching = known + wanted
    parameters = {
        **tenancy.bounds(tenant),
        "tag": tag,
        "id": target.id,
        "content": target.content,
        "becomes": becomes,
    }
    # Documents before memories, in the order of deletion, which would wait for us else.
    tx.execute(
        "select from documents d where d.id in (select s.document_id from memory_sources s"
        " where s.memory_id in (select m.id"
        + matching
        + " union select m.id"
        + known
        + "md5(m.content) = md5(%(becomes)s::text)))"
        + documents.ORDER
        + " for key share",
        parameters,
    )
    if becomes is None:
        documents.lock_chains(tx, "select coalesce(m.root_id, m.id)" + matching, parameters)
    else:
        texts = (becomes, *([] if target.content is None else [target.content]))
        updates = None if target.id is None else MemoryId(target.id)
        facts = [Fact(text, updates=updates) for text in texts]
        lock_all(tx, tenant.id, DocumentId(""), tag, facts)
    if target.id is None:  # earlier versions of Recollect could leave several of one text
        same = tx.execute("select m.id" + matching + " and " + UNFORGOTTEN, parameters)
        _unite(tx, [MemoryId(row["id"]) for row in same.fetchall()][:1])
    row = tx.execute(
        "select "
        + COLUMNS
        + matching
        # Of several with the same text, the live one, else the newest.
        + " order by ("
        + UNFORGOTTEN
        + ") desc, m.updated_at desc limit 1 for update",
        parameters,
    ).fetchone()
    if row is not None:
        return read_row(row)
    if target.id is None:
        raise unknown_memory(target, None)
    raise unknown_memory(target, what_else_they_are(tx, tenant, [target.id]).get(target.id))


def _forgotten(
    tx: Tx, tenant: Tenant, ids: Sequence[MemoryId], reason: str | None, batch: str | None
) -> list[Memory]:
    tx.execute(
        "update memories set forgotten_at = now(), forget_reason = coalesce(%s, forget_reason),"
        " forget_batch = %s, updated_at = clock_timestamp() where id = any(%s)",
        (reason, batch, [*ids, *concluded(tx, tenant, ids)]),
    )
    return _ordered(tx, tenant, ids)


def _ordered(tx: Tx, tenant: Tenant, ids: Sequence[MemoryId]) -> list[Memory]:
    """The memories with these ids, in their order."""
    rows = tx.execute(
        "select " + COLUMNS + " from memories m where " + REACH + " and m.id = any(%(ids)s)",
        {**tenancy.bounds(tenant), "ids": list(ids)},
    )
    found = {row["id"]: read_row(row) for row in rows}
    return [found[id] for id in ids]


def _said(org: OrgId, tag: str, fact: Fact) -> dict[str, object]:
    return {
        "org": org,
        "tag": tag,
        "content": fact.text,
        "is_static": fact.is_static,
        "is_inference": fact.is_inference,
        "buckets": sorted(set(fact.buckets)),
        "metadata": jsonb_of(fact.metadata),
        "group": jsonb_of(fact.group or None),
        "temporal": jsonb_of(fact.temporal),
        "forget_after": fact.forget_after,
        "forget_reason": fact.forget_reason,
    }


def indexed(
    tx: Tx, id: str, weights: Mapping[int, float], vector: NDArray[np.float32] | None
) -> dict[str, object]:
    """Columns of a new memory; that a vector is lacking is noted."""
    index = vector_index.hold(tx)
    values = missing_vectors.split(index, vector)
    if vector is not None and missing_vectors.lacks(index, values):
        missing_vectors.note(tx, "memories", id)
    return {
        "terms": list(weights),
        "weights": _sparse(weights),
        "embedding": values[0],
        "embedding_b": values[1],
    }


def _forgotten_already(memory: Memory) -> ForgottenError:
    return ForgottenError("Memory already forgotten", f"memory {memory.id} was forgotten before")
