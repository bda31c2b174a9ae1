"""Memories: facts, each in one container tag, with versions, expiry, and documents as evidence.

What a caller adds directly and what is drawn from documents lie in the same rows. A memory is
*live* while it is the latest version and neither forgotten nor expired; only live ones are shown
unless somebody asks for the others. It has at least one source, and the database removes it with
the last one (see the migration), so nothing here has to follow a document that goes.

For whoever draws memories from documents: `unread` says which chunks are new, `known` and `search`
what is known already, and `store` takes what came of them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from hashlib import md5
from math import sqrt
from typing import Any, Literal, NewType

import numpy as np
from numpy.typing import NDArray
from pgvector import HalfVector, SparseVector
from psycopg import sql
from psycopg.types.json import Jsonb

from recollect import documents
from recollect.db import Tx, tenancy
from recollect.documents.filters import Filter
from recollect.documents.filters import compile as compile_filter
from recollect.errors import ConflictError, LeaseLost, NotFoundError, RequestError
from recollect.index import missing_vectors, terms, vector_index
from recollect.index.phrases import Phrase, PhraseStanding
from recollect.model import (
    Chunk,
    Document,
    DocumentId,
    Metadata,
    OrgId,
    Page,
    Tenant,
    random_id,
)

MemoryId = NewType("MemoryId", str)

CANDIDATES = 100
"""How many memories each side, words and meaning, hands to the fusion."""
READ = 500
"""How many each side hands over where the order of a phrase's words has to be looked at."""
RANK_CONSTANT = 60
"""as in `search.py`"""
RANGES: Mapping[str, tuple[Sequence[float], Sequence[float]]] = {
    "local:multilingual-e5-small-q4": ((0.73, 0.79, 1.0), (0.0, 0.36, 1.0))
}
"""Cosines of models that call everything alike, and what they amount to, see `likeness`. Of 30
facts and questions about them, in six languages, all have 0.795 and more; of the others, one in 50.
"""
PROFILE_STATIC = 100
PROFILE_DYNAMIC = 50
PROFILE_BUCKET = 50
"""Facts of a profile's section at most, those that changed last."""
WHOLE = b""
"""Stands for a chunk in evidence that counts from the beginning of the document's text."""

COLUMNS = (
    "m.id, m.org_id, m.tag, m.content, m.version, m.parent_id, m.root_id, m.is_latest,"
    " m.is_static, m.is_inference, m.buckets, m.metadata, m.group_pairs, m.temporal,"
    " m.forget_after, m.forget_reason, m.forgotten_at, m.created_at, m.updated_at,"
    " m.forgotten_at is not null or m.forget_after <= now() is true as is_forgotten,"
    " array(select distinct s.document_id from memory_sources s where s.memory_id = m.id"
    "  order by s.document_id) as sources"
)
"""What `_read` needs of a row of `memories m`."""
_REACH = tenancy.with_one("m.tag", "m.org_id")
_UNFORGOTTEN = "m.forgotten_at is null and (m.forget_after is null or m.forget_after > now())"
_LIVE = "m.is_latest and " + _UNFORGOTTEN
_IN_ORDER = " order by coalesce(m.root_id, m.id), m.version, m.id"
"""in which everybody locks memories that locks several, as in `documents`: the versions of one
together, since the end of one of them changes those beside it"""


class Relation(StrEnum):
    """What a memory is to another: a newer version, an addition, or a conclusion."""

    UPDATES = "updates"
    EXTENDS = "extends"
    DERIVES = "derives"


@dataclass(frozen=True, slots=True)
class Memory:
    """One version of a fact."""

    id: MemoryId
    org_id: OrgId
    tag: str
    content: str
    version: int
    parent_id: MemoryId | None
    """the version before; None for the first, or when it is gone"""
    root_id: MemoryId | None
    """what all versions have in common: the first, maybe gone by now; None for itself"""
    is_latest: bool
    is_static: bool
    """stays true in the long run"""
    is_inference: bool
    """concluded, not said"""
    is_forgotten: bool
    """by somebody, or because its time is over"""
    buckets: Sequence[str]
    metadata: Metadata | None
    temporal: Mapping[str, Any] | None
    """`documentDate`: when it was said; `eventDate`: a list, of what it tells; as given"""
    forget_after: datetime | None
    forget_reason: str | None
    forgotten_at: datetime | None
    sources: Sequence[DocumentId]
    created_at: datetime
    updated_at: datetime
    group: Metadata | None = None
    """of the document that it was drawn from; what has another group is another memory"""


@dataclass(frozen=True, slots=True)
class Span:
    """Evidence: characters `start` to `end` of the chunk text with this hash (see `WHOLE`)."""

    hash: bytes
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Fact:
    """What shall be known. `weights` and `vector` stand for `text` in the index."""

    text: str
    weights: Mapping[int, float]
    """as of `terms.weigh`"""
    vector: NDArray[np.float32] | None = None
    is_static: bool = False
    is_inference: bool = False
    buckets: Sequence[str] = ()
    metadata: Metadata | None = None
    group: Metadata | None = None
    temporal: Mapping[str, Any] | None = None
    forget_after: datetime | None = None
    forget_reason: str | None = None
    updates: MemoryId | None = None
    """of what it is a new version"""
    related: Mapping[MemoryId, Relation] = field(default_factory=dict[MemoryId, Relation])
    """what it `extends` and `derives` from"""
    spans: Sequence[Span] = ()
    """in the document that it is drawn from, at least one"""


@dataclass(frozen=True, slots=True)
class Correction:
    """A new text for a memory. None keeps what the version before has."""

    text: str
    weights: Mapping[int, float]
    vector: NDArray[np.float32] | None = None
    metadata: Metadata | None = None
    temporal: Mapping[str, Any] | None = None
    sets_expiry: bool = False
    """whether `forget_after` counts, None included: then it never expires, and has no reason to"""
    forget_after: datetime | None = None
    forget_reason: str | None = None


@dataclass(frozen=True, slots=True)
class MemoryTarget:
    """The memory that a caller means: by the id of any of its versions, else by its exact text."""

    id: str | None = None
    content: str | None = None


@dataclass(frozen=True, slots=True)
class MemoryQuery:
    """Which memories; all conditions must hold. Only latest versions are found."""

    tags: Sequence[str] = ()
    """that a source carries all of; one of them is the memory's own"""
    any_of: Sequence[str] = ()
    """one of them is the memory's own"""
    filter: Filter | None = None
    grouped: bool = False
    """whether `group` counts: only those of just this group, None: those of none"""
    group: Metadata | None = None
    filepath: str | None = None
    """of a source: exact, or a prefix when it ends in `/`"""
    phrases: Sequence[Phrase] = ()
    """that it holds, all of them"""
    excluded: Sequence[Phrase] = ()
    """that it does not hold, none of them"""
    forgotten: bool = False
    """those that were forgotten as well"""
    sort: Literal["created_at", "updated_at"] = "created_at"
    descending: bool = True
    limit: int = 10
    page: int = 1


@dataclass(frozen=True, slots=True)
class FoundMemory:
    """A memory that answers a query; `similarity` as of `likeness`."""

    memory: Memory
    similarity: float


@dataclass(frozen=True, slots=True)
class Compared:
    """A memory beside a query. `cosine` is None without vectors of one model on both sides."""

    memory: Memory
    cosine: float | None
    share: float
    """of the query's words that it holds"""
    rare_share: float
    """the same, where a word counts for as much as it is rare among the memories"""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A memory beside another: an older (`distance` < 0) or newer version, or a related one."""

    id: MemoryId
    memory: str
    relation: Relation
    distance: int | None
    version: int
    """its own number among its versions"""
    is_forgotten: bool
    metadata: Metadata | None
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where a memory comes from: a chunk of a document, or (`position` None) a text of its own."""

    document_id: DocumentId
    position: int | None
    start: int
    end: int
    """offsets into the document's text, in characters"""
    text: str
    """of the chunk, or the characters themselves"""


@dataclass(frozen=True, slots=True)
class ProfileEntry:
    """A memory in a profile."""

    id: MemoryId
    text: str


@dataclass(frozen=True, slots=True)
class Profile:
    """What is known under a tag, each newest first."""

    static: Sequence[ProfileEntry]
    dynamic: Sequence[ProfileEntry]
    buckets: Mapping[str, Sequence[ProfileEntry]]


def likeness(cosine: float | None, share: float, model: str = "") -> float:
    """How well a text answers a query, 0 … 1: by meaning, by the words they share, or by both.

    Callers ask for 0.6 and more unless they say otherwise. Of most models, all-MiniLM-L6-v2 among
    them, a fact and a question about it have cosines from 0.4 on, unrelated ones up to 0.25: the
    root puts 0.6 between them, at 0.36. Where the cosines of a `model` lie elsewhere, `RANGES`
    says what they amount to. Without vectors it is 0.6 for 36 % of the words.
    """
    if cosine is None:
        return sqrt(share)
    if model in RANGES:
        cosine = float(np.interp(cosine, *RANGES[model]))
    return 1 - (1 - sqrt(min(max(cosine, 0.0), 1.0))) * (1 - share / 2)


# --- adding and changing -----------------------------------------------------------------------


def add(
    tx: Tx, tenant: Tenant, tag: str, facts: Sequence[Fact], id: DocumentId
) -> tuple[DocumentId, list[Memory]]:
    """Know the facts, at least one, with a document that bears them; its `id` if it is a new one.

    A fact that is known word for word gets this document as one more source, and what it says
    of the rest counts. The same facts again within seconds are the same document.
    """
    document = documents.bear(tx, tenant, tag, "\n\n".join(fact.text for fact in facts), id)
    _lock(tx, tenant.id, tag)
    _lock_all(tx, tenant.id, document.id, tag, facts)
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
    same once more changes nothing. Raises LeaseLost when the document is gone or has lost the tag.
    """
    _lock(tx, org, tag)
    there = tx.execute(
        "select 1 from documents where id = %s and org_id = %s and gone_at is null"
        " and %s = any(container_tags)"
        " for share",
        (document, org, tag),
    ).fetchone()
    if there is None:
        raise LeaseLost
    _lock_all(tx, org, document, tag, facts)
    kept = [
        _forgotten_before(tx, org, document, tag, fact)
        or _keep(tx, org, document, tag, fact, fact.spans)
        for fact in facts
    ]
    tx.execute(
        "insert into memory_reads (document_id, hash) select %s, unnest(%s::bytea[])"
        " on conflict do nothing",
        (document, list(read)),
    )
    for table in ("memory_reads", "memory_sources"):
        tx.execute(
            sql.SQL(
                "delete from {} t where t.document_id = %s and t.hash <> %s and not exists"
                " (select from chunks c where c.document_id = t.document_id and c.hash = t.hash)"
            ).format(sql.Identifier(table)),
            (document, WHOLE),
        )
    return kept


def correct(
    tx: Tx, tenant: Tenant, tag: str, target: MemoryTarget, correction: Correction
) -> Memory:
    """Add a version; the one before is not the latest any more. Raises NotFoundError.

    It has the same sources, relations and groups. Another memory of the tag that says what this
    one comes to say becomes one of its earlier versions: a text is one memory.
    """
    _lock(tx, tenant.id, tag)
    old = _meant(tx, tenant, tag, target, becomes=correction.text)
    if old.is_forgotten:
        raise _unknown(target, "was forgotten")
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
            "metadata": _json(correction.metadata),
            "temporal": _json(correction.temporal),
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


def hold(tx: Tx, tenant: Tenant, tag: str) -> None:
    """Before what is to be forgotten is read: until this ends, nobody adds a version to it.

    Else who waits for a row finds that it is not the latest any more, and does not see the latest.
    """
    _lock(tx, tenant.id, tag)


def forget(tx: Tx, tenant: Tenant, tag: str, target: MemoryTarget, reason: str | None) -> Memory:
    """Show it to nobody any more. Raises NotFoundError, and ConflictError if that was done."""
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
    hold(tx, tenant, tag)
    found = named(tx, tenant, tag, ids, lock=True)
    return _forgotten(tx, tenant, [memory.id for memory in found], reason, batch)


def forget_named(
    tx: Tx, tenant: Tenant, tag: str, ids: Sequence[str], reason: str | None, batch: str
) -> tuple[list[Memory], dict[str, RequestError]]:
    """As `forget_these`; and why others of the ids were not: unknown, or forgotten before."""
    hold(tx, tenant, tag)
    live = named(tx, tenant, tag, ids, lock=True)
    roots = {one.root_id or one.id for one in live}
    known = {one.id: one for one in versions(tx, tenant, ids) if one.tag == tag}
    unknown = [id for id in dict.fromkeys(ids) if id not in known]
    why = _absent(tx, tenant, unknown)
    refused: dict[str, RequestError] = {
        id: _unknown(MemoryTarget(id=id), why.get(id)) for id in unknown
    }
    for id, one in known.items():
        if (one.root_id or one.id) not in roots:
            refused[id] = _forgotten_already(one)
    done = _forgotten(tx, tenant, [one.id for one in live], reason, batch)
    return done, {id: refused[id] for id in dict.fromkeys(ids) if id in refused}


def forget_vectors(tx: Tx) -> None:
    """For a change of the embedding model; until they are embedded anew, words find memories."""
    tx.execute(
        "update memories set embedding = null, embedding_b = null"
        " where embedding is not null or embedding_b is not null"
    )


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


# --- reading -----------------------------------------------------------------------------------


def find(tx: Tx, tenant: Tenant, query: MemoryQuery) -> Page[Memory]:
    """One page of memories; `total` counts all that match."""
    matching, parameters = _condition(tenant, query)
    order = sql.SQL("m.updated_at" if query.sort == "updated_at" else "m.created_at")
    direction = sql.SQL("desc" if query.descending else "asc")
    counted = tx.execute(
        sql.SQL("select count(*) as n from memories m where {}").format(matching), parameters
    ).fetchone()
    assert counted is not None
    rows = tx.execute(
        sql.SQL(
            "select {columns} from memories m where {condition}"
            " order by {order} {direction}, m.id {direction} limit %(limit)s offset %(offset)s"
        ).format(columns=sql.SQL(COLUMNS), condition=matching, order=order, direction=direction),
        {**parameters, "limit": query.limit, "offset": (query.page - 1) * query.limit},
    ).fetchall()
    return Page([_read(row) for row in rows], counted["n"], query.page, query.limit)


def get(tx: Tx, tenant: Tenant, id: str) -> Memory:
    """That very version, also if it is forgotten; raises NotFoundError."""
    found = versions(tx, tenant, [id])
    if not found:
        raise _unknown(MemoryTarget(id=id), _absent(tx, tenant, [id]).get(id))
    return found[0]


def versions(tx: Tx, tenant: Tenant, ids: Sequence[str]) -> list[Memory]:
    """Those of the ids that are memories: each that very version, forgotten or not."""
    rows = tx.execute(
        "select " + COLUMNS + " from memories m where " + _REACH + " and m.id = any(%(ids)s)",
        {**tenancy.bounds(tenant), "ids": list(ids)},
    )
    return [_read(row) for row in rows]


def counts(tx: Tx, tenant: Tenant, documents: Sequence[str]) -> dict[DocumentId, int]:
    """How many live memories come from each of the documents."""
    rows = tx.execute(
        "select asked.id, (select count(distinct m.id) from memory_sources s"
        "  join memories m on m.id = s.memory_id where s.document_id = asked.id and "
        + _REACH
        + " and "
        + _LIVE
        + ") as n from unnest(%(documents)s::text[]) as asked (id)",
        {**tenancy.bounds(tenant), "documents": list(documents)},
    )
    return {DocumentId(row["id"]): row["n"] for row in rows}


def counts_of_tags(tx: Tx, tenant: Tenant, tags: Sequence[str]) -> dict[str, int]:
    """How many live memories are in each of the tags."""
    rows = tx.execute(
        "select m.tag, count(*) as n from memories m where "
        + _REACH
        + " and m.tag = any(%(tags)s) and "
        + _LIVE
        + " group by m.tag",
        {**tenancy.bounds(tenant), "tags": list(tags)},
    )
    return dict.fromkeys(tags, 0) | {row["tag"]: row["n"] for row in rows}


def live(tx: Tx, tenant: Tenant, tag: str) -> list[MemoryId]:
    """The live memories of a tag."""
    rows = tx.execute(
        "select m.id from memories m where " + _REACH + " and m.tag = %(tag)s and " + _LIVE,
        {**tenancy.bounds(tenant), "tag": tag},
    )
    return [MemoryId(row["id"]) for row in rows]


def left(tx: Tx, org: OrgId, ids: Sequence[MemoryId]) -> int:
    """How many of the memories there still are, in whatever tag."""
    row = tx.execute(
        "select count(*) as n from memories where org_id = %s and id = any(%s)", (org, list(ids))
    ).fetchone()
    return row["n"] if row else 0


def known(tx: Tx, tenant: Tenant, tag: str, limit: int = 100) -> list[Memory]:
    """Live memories of a tag, those that changed last first."""
    query = MemoryQuery(any_of=[tag], sort="updated_at", limit=limit)
    return list(find(tx, tenant, query).items)


def named(
    tx: Tx, tenant: Tenant, tag: str, ids: Sequence[str], *, lock: bool = False
) -> list[Memory]:
    """Those of the ids that are live memories of the tag; an older version means the latest."""
    rows = tx.execute(
        "select "
        + COLUMNS
        + " from memories m where "
        + _REACH
        + " and m.tag = %(tag)s and "
        + _LIVE
        + " and coalesce(m.root_id, m.id) in (select coalesce(v.root_id, v.id) from memories v"
        "  where v.org_id = %(org)s and v.tag = %(tag)s and v.id = any(%(ids)s))"
        + (_IN_ORDER + " for update" if lock else " order by m.id"),
        {**tenancy.bounds(tenant), "tag": tag, "ids": list(ids)},
    )
    return [_read(row) for row in rows]


def saying(tx: Tx, tenant: Tenant, tag: str, text: str) -> list[Memory]:
    """Live memories of the tag whose text is this one, but for case and spaces."""
    plain = "lower(btrim(regexp_replace({}, '\\s+', ' ', 'g')))"
    rows = tx.execute(
        "select " + COLUMNS + " from memories m where " + _REACH + " and m.tag = %(tag)s and "
        + _LIVE
        + f" and {plain.format('m.content')} = {plain.format('%(text)s::text')}"
        " order by m.created_at, m.id",
        {**tenancy.bounds(tenant), "tag": tag, "text": text},
    )  # fmt: skip
    return [_read(row) for row in rows]


def unread(tx: Tx, document: DocumentId, *, after: int = -1, limit: int = 200) -> list[Chunk]:
    """Chunks of the indexed revision from which nothing was drawn yet, in order: the first ones
    behind the position `after`."""
    rows = tx.execute(
        "select c.position, c.start_at, c.end_at, c.hash, c.place, e.text"
        " from chunks c join entries e on e.document_id = c.document_id and e.hash = c.hash"
        " where c.document_id = %s and c.position > %s and not exists"
        " (select from memory_reads r where r.document_id = c.document_id and r.hash = c.hash)"
        " order by c.position limit %s",
        (document, after, limit),
    )
    return [
        Chunk(r["position"], r["start_at"], r["end_at"], r["text"], r["hash"], r["place"])
        for r in rows
    ]


def unread_count(tx: Tx, document: DocumentId) -> int:
    """How many chunk texts there are from which nothing was drawn yet."""
    row = tx.execute(
        "select count(distinct c.hash) as n from chunks c where c.document_id = %s and not exists"
        " (select from memory_reads r where r.document_id = c.document_id and r.hash = c.hash)",
        (document,),
    ).fetchone()
    return row["n"] if row else 0


def of_document(tx: Tx, tenant: Tenant, document: DocumentId) -> list[Memory]:
    """All memories, and versions of them, that have the document as a source; oldest first."""
    return of_documents(tx, tenant, [document])[document]


def of_documents(
    tx: Tx, tenant: Tenant, documents: Sequence[DocumentId]
) -> dict[DocumentId, list[Memory]]:
    """As `of_document`, of several."""
    rows = tx.execute(
        "select s.document_id as of, " + COLUMNS + " from (select distinct document_id, memory_id"
        "  from memory_sources where document_id = any(%(documents)s)) s"
        " join memories m on m.id = s.memory_id where " + _REACH
        + " order by m.created_at, m.version, m.id",
        {**tenancy.bounds(tenant), "documents": list(documents)},
    )  # fmt: skip
    found: dict[DocumentId, list[Memory]] = {id: [] for id in documents}
    for row in rows:
        found[DocumentId(row["of"])].append(_read(row))
    return found


def total(tx: Tx, tenant: Tenant) -> int:
    """How many live memories the tenant may touch."""
    row = tx.execute(
        "select count(*) as n from memories m where " + _REACH + " and " + _LIVE,
        tenancy.bounds(tenant),
    ).fetchone()
    return row["n"] if row else 0


def sources(tx: Tx, tenant: Tenant, ids: Sequence[MemoryId]) -> dict[MemoryId, list[Document]]:
    """The documents that each comes from, oldest first."""
    borne, parameters = documents.condition(tenant, documents.DocumentQuery())
    rows = tx.execute(
        sql.SQL(
            "select s.memory_id, {columns} from (select distinct memory_id, document_id"
            " from memory_sources where memory_id = any(%(ids)s)) s"
            " join documents d on d.id = s.document_id where {borne} order by d.created_at, d.id"
        ).format(columns=sql.SQL(documents.COLUMNS), borne=borne),
        {**parameters, "ids": list(ids)},
    )
    found: dict[MemoryId, list[Document]] = {id: [] for id in ids}
    for row in rows:
        found[MemoryId(row["memory_id"])].append(documents.read(row, tenant))
    return found


def drawn(tx: Tx, tenant: Tenant, tags: Sequence[str]) -> bool:
    """Whether any memory in reach of these tags was drawn from a document, not added directly."""
    matching, parameters = _condition(tenant, MemoryQuery(tags=tags, forgotten=True))
    row = tx.execute(
        sql.SQL(
            "select exists (select from memories m join memory_sources o on o.memory_id = m.id"
            " where o.hash <> %(whole)s and {}) as any"
        ).format(matching),
        {**parameters, "whole": WHOLE},
    ).fetchone()
    return bool(row and row["any"])


def profile(
    tx: Tx, tenant: Tenant, tag: str, filter: Filter | None, buckets: Sequence[str]
) -> Profile:
    """The live memories of a tag; of the buckets, those that are named."""
    matching, parameters = _condition(tenant, MemoryQuery(any_of=[tag], filter=filter))
    rows = tx.execute(
        sql.SQL(
            "select kind, id, content from ("
            " select k.kind, m.content, m.updated_at, m.id, row_number() over"
            "  (partition by k.kind order by m.updated_at desc, m.id desc) as nth"
            " from memories m cross join lateral unnest("
            "  array[case when m.is_static then 'static' else 'dynamic' end] || array("
            "  select '#' || b from unnest(m.buckets) as b where b = any(%(buckets)s)))"
            " as k (kind)"
            " where {}) as ranked"
            " where nth <= case kind when 'static' then %(static)s when 'dynamic' then %(dynamic)s"
            "  else %(bucket)s end order by updated_at desc, id desc"
        ).format(matching),
        {
            **parameters,
            "buckets": list(buckets),
            "static": PROFILE_STATIC,
            "dynamic": PROFILE_DYNAMIC,
            "bucket": PROFILE_BUCKET,
        },
    ).fetchall()
    known: dict[str, list[ProfileEntry]] = {}
    for row in rows:
        known.setdefault(row["kind"], []).append(ProfileEntry(MemoryId(row["id"]), row["content"]))
    return Profile(
        static=known.get("static", []),
        dynamic=known.get("dynamic", []),
        buckets={key: known.get(f"#{key}", []) for key in buckets},
    )


def history(tx: Tx, tenant: Tenant, ids: Sequence[MemoryId]) -> dict[MemoryId, list[Memory]]:
    """All versions of each, also those that are gone from sight, newest first."""
    rows = tx.execute(
        "select shown.id as of, " + COLUMNS + " from memories shown join memories m"
        " on m.root_id = coalesce(shown.root_id, shown.id)"
        " or m.id = coalesce(shown.root_id, shown.id)"
        " where shown.id = any(%(ids)s) and m.tag = shown.tag and "
        + _REACH
        + " order by m.version desc, m.created_at desc",
        {**tenancy.bounds(tenant), "ids": list(ids)},
    )
    versions: dict[MemoryId, list[Memory]] = {id: [] for id in ids}
    for row in rows:
        versions[MemoryId(row["of"])].append(_read(row))
    return versions


def neighbours(
    tx: Tx, tenant: Tenant, ids: Sequence[MemoryId], *, filter: Filter | None = None
) -> dict[MemoryId, list[Neighbour]]:
    """Other versions of each, and live memories that extend or derive from one another; only those
    that the `filter` lets through."""
    let, values = sql.SQL("true"), dict[str, object]()
    if filter is not None:
        let, values = compile_filter(filter, sql.SQL("m.metadata"), sql.SQL("m.group_pairs"))
    shown = (
        "m.id, m.content, m.version, m.metadata, m.updated_at,"
        " m.forgotten_at is not null or m.forget_after <= now() is true as is_forgotten"
    )
    statement = (
        "with versions as materialized ("
        " select shown.id as shown, shown.tag, v.id, v.version - shown.version as distance"
        " from memories shown join memories v on v.tag = shown.tag and"
        "  (v.root_id = coalesce(shown.root_id, shown.id)"
        "   or v.id = coalesce(shown.root_id, shown.id))"
        " where shown.id = any(%(ids)s))"
        f" select v.shown, 'updates' as relation, v.distance, {shown}"
        " from versions v join memories m on m.id = v.id where v.id <> v.shown and {let} and "
        + _REACH
        + " union all"
        f" select v.shown, r.relation, null, {shown} from versions v"
        " join memory_relations r on v.id in (r.memory_id, r.target_id)"
        " join memories other"
        "  on other.id = case v.id when r.memory_id then r.target_id else r.memory_id end"
        # What took the place of the one that it was said of.
        " join memories m on m.id = other.id or m.root_id = coalesce(other.root_id, other.id)"
        " where m.tag = v.tag and {let} and "
        + _REACH
        + " and "
        + _LIVE
        + " order by distance, updated_at desc"
    )
    rows = tx.execute(
        sql.SQL(statement).format(let=let), {**tenancy.bounds(tenant), "ids": list(ids), **values}
    )
    found: dict[MemoryId, list[Neighbour]] = {id: [] for id in ids}
    for row in rows:
        found[MemoryId(row["shown"])].append(
            Neighbour(
                id=MemoryId(row["id"]),
                memory=row["content"],
                relation=Relation(row["relation"]),
                distance=row["distance"],
                version=row["version"],
                is_forgotten=row["is_forgotten"],
                metadata=row["metadata"],
                updated_at=row["updated_at"],
            )
        )
    return found


def evidence(tx: Tx, tenant: Tenant, ids: Sequence[MemoryId]) -> dict[MemoryId, list[Evidence]]:
    """Where each comes from. What stood in a chunk that is gone since is left out."""
    rows = tx.execute(
        "select m.id, s.document_id, c.position, coalesce(c.start_at, 0) + s.start_at as start_at,"
        " coalesce(c.start_at, 0) + s.end_at as end_at,"
        " coalesce(e.text, substr(d.text, s.start_at + 1, s.end_at - s.start_at)) as text"
        " from memories m join memory_sources s on s.memory_id = m.id"
        " join documents d on d.id = s.document_id"
        " left join lateral (select position, start_at from chunks"
        "  where document_id = s.document_id and hash = s.hash order by position limit 1) c on true"
        " left join entries e on e.document_id = s.document_id and e.hash = s.hash"
        " where m.id = any(%(ids)s) and "
        + _REACH
        + " and (c.position is not null or s.hash = %(whole)s)"
        " order by m.id, s.document_id, start_at",
        {**tenancy.bounds(tenant), "ids": list(ids), "whole": WHOLE},
    )
    found: dict[MemoryId, list[Evidence]] = {id: [] for id in ids}
    for row in rows:
        found[MemoryId(row["id"])].append(
            Evidence(
                DocumentId(row["document_id"]),
                row["position"],
                row["start_at"],
                row["end_at"],
                row["text"],
            )
        )
    return found


# The columns of a memory say where it belongs, so its terms are words only, and how common a word
# is gets counted among the memories in question: there are few of them beside the chunks.
_COUNTED = sql.SQL(
    "select number, count(*) as n from memories m cross join unnest(m.terms) as number"
    " where m.terms && %(numbers)s::int4[] and number = any(%(numbers)s) and {condition}"
    " group by number"
    " union all select null, count(*) from memories m where {condition}"
)
_LEXICAL = sql.SQL(
    "select m.id, -(m.weights <#> %(words)s) as points from memories m"
    " where m.terms && %(numbers)s::int4[] and {condition}"
    " order by points desc, m.id limit %(candidates)s"
)
_DENSE = sql.SQL(
    "select m.id, m.{column} <=> %(vector)s as distance from memories m"
    # Another model's vectors, until they are made anew, are no distance away.
    " where vector_dims(m.{column}) = %(dimensions)s and {condition}"
    " order by distance, m.id limit %(candidates)s"
)
_NO_WORDS = sql.SQL("select null::text as id, 0::float8 as points where false")
_NO_VECTOR = sql.SQL("select null::text as id, 0::float8 as distance where false")
_FUSED = sql.SQL(
    "with lexical as materialized ({lexical}), dense as materialized ({dense}),"
    " ranked as (select id, sum(1.0 / (%(k)s + place)) as score from ("
    "  select id, rank() over (order by points desc) as place from lexical where points > 0"
    "  union all select id, rank() over (order by distance) from dense) as sides group by id)"
    " select {columns}, m.terms, {cosine} as cosine from ranked r join memories m on m.id = r.id"
    " order by r.score desc, m.id"
)


def search(
    tx: Tx,
    tenant: Tenant,
    text: str,
    vector: NDArray[np.float32] | None,
    query: MemoryQuery,
    *,
    threshold: float = 0.0,
    candidates: int | None = CANDIDATES,
) -> list[FoundMemory]:
    """Up to `query.limit` memories that answer best, the likest first.

    By words and by meaning; `threshold` is the least similarity. `candidates`: how many of the
    best of each side are judged, None for all.
    """
    model = vector_index.made_by(vector)
    compared = compare(tx, tenant, text, vector, query, candidates=candidates)
    found = [FoundMemory(one.memory, likeness(one.cosine, one.share, model)) for one in compared]
    liked = sorted(found, key=lambda one: one.similarity, reverse=True)
    return [one for one in liked if one.similarity >= threshold][: query.limit]


def compare(
    tx: Tx,
    tenant: Tenant,
    text: str,
    vector: NDArray[np.float32] | None,
    query: MemoryQuery,
    *,
    candidates: int | None,
) -> list[Compared]:
    """The memories that are nearest by words and those by meaning, `candidates` of each (None:
    all), beside the query; those first that are high in both orders."""
    groups = terms.query_terms(tenant.id, text)
    groups += [terms.numbers(tenant.id, word) for one in query.phrases for word in one.words]
    # Single words are looked for in the index; the order of several is looked at below.
    told = [one for one in (*query.phrases, *query.excluded) if len(one.words) > 1]
    if told and candidates is not None:
        candidates = READ
    numbers = sorted({number for group in groups for number in group})
    condition, parameters = _condition(tenant, query)
    parameters |= {"numbers": numbers}
    # As in `search.search`: a scan of all tenants' rows only looks cheap.
    tx.execute("set local enable_seqscan = off; set local random_page_cost = 1.1")
    counted = {
        row["number"]: row["n"]
        for row in tx.execute(_COUNTED.format(condition=condition), parameters)
    }
    words = terms.idf(groups, counted, counted[None])
    if not counted[None] or (not words and vector is None):
        return []
    column = vector_index.sought(tx, "memories", vector)
    rows = tx.execute(
        _FUSED.format(
            lexical=_LEXICAL.format(condition=condition) if words else _NO_WORDS,
            dense=_NO_VECTOR
            if vector is None
            else _DENSE.format(condition=condition, column=column),
            columns=sql.SQL(COLUMNS),
            cosine=sql.SQL(
                "null::float8"
                if vector is None
                else "case when vector_dims(m.{column}) = %(dimensions)s"
                " then 1 - (m.{column} <=> %(vector)s) end"
            ).format(column=column),
        ),
        {
            **parameters,
            "numbers": list(words),
            "words": SparseVector({n - 1: w for n, w in words.items()}, documents.TERM_SPACE),
            "vector": None if vector is None else HalfVector(vector),
            "dimensions": 0 if vector is None else len(vector),
            "candidates": candidates,
            "k": RANK_CONSTANT,
        },
    ).fetchall()
    wanted, standing = set(told).intersection(query.phrases), PhraseStanding(told)

    def admitted(text: str) -> bool:
        stands = standing.of(text)
        return stands >= wanted and stands.isdisjoint(query.excluded)

    rarity = terms.rarities(groups, counted, counted[None])

    def beside(row: Mapping[str, Any]) -> Compared:
        held = set(row["terms"])
        shares = terms.share(groups, held), terms.share(groups, held, rarity)
        return Compared(_read(row), row["cosine"], *shares)

    return [beside(row) for row in rows if not told or admitted(row["content"])]


# --- rows --------------------------------------------------------------------------------------


_WITHOUT = "not (m.terms && {}::int4[])"


def _condition(tenant: Tenant, query: MemoryQuery) -> tuple[sql.Composable, dict[str, object]]:
    """A boolean SQL expression over `memories m` with its parameters; never another tenant's."""
    parts: list[sql.Composable] = [sql.SQL(_REACH), sql.SQL("m.is_latest")]
    parameters: dict[str, object] = {**tenancy.bounds(tenant)}
    if not query.forgotten:
        parts.append(sql.SQL(_UNFORGOTTEN))
    named = [*query.tags, *query.any_of]
    if named:
        whole = [tag for tag in named if not tag.endswith(documents.BELOW)]
        below = [tag.removesuffix("*") for tag in named if tag.endswith(documents.BELOW)]
        parts.append(
            sql.SQL(
                "(m.tag = any(%(own)s::text[]) or exists"
                " (select from unnest(%(below)s::text[]) as b where starts_with(m.tag, b)))"
            )
            if below
            else sql.SQL("m.tag = any(%(own)s::text[])")
        )
        parameters |= {"own": whole, "below": below}
    if query.filepath is not None or len(query.tags) > 1:
        borne, more = documents.condition(
            tenant, documents.DocumentQuery(tags=query.tags, filepath=query.filepath)
        )
        parts.append(
            sql.SQL(
                "exists (select from memory_sources s join documents d on d.id = s.document_id"
                " where s.memory_id = m.id and {})"
            ).format(borne)
        )
        parameters |= more
    if query.filter is not None:
        compiled, values = compile_filter(
            query.filter, sql.SQL("m.metadata"), sql.SQL("m.group_pairs")
        )
        parts.append(compiled)
        parameters |= values
    if query.grouped:
        parts.append(sql.SQL("m.group_pairs is not distinct from %(group)s::jsonb"))
        parameters["group"] = _json(query.group or None)
    held = [word for one in query.phrases for word in one.words]
    away = [one.words[0] for one in query.excluded if len(one.words) == 1]
    for place, word in enumerate([*held, *away]):
        holds = sql.SQL("(m.terms && {}::int4[])" if place < len(held) else _WITHOUT)
        parts.append(holds.format(sql.Placeholder(f"word{place}")))
        parameters[f"word{place}"] = list(terms.numbers(tenant.id, word))
    return sql.SQL(" and ").join(parts), parameters


def _keep(
    tx: Tx, org: OrgId, document: DocumentId, tag: str, fact: Fact, spans: Sequence[Span]
) -> MemoryId:
    """Insert the fact, or confirm the memory that says the same; the tag is locked."""
    if not spans:
        raise ValueError("a fact needs evidence")
    same = tx.execute(
        "update memories m set is_static = m.is_static or %(is_static)s,"
        " is_inference = m.is_inference and %(is_inference)s,"
        " metadata = coalesce(%(metadata)s, m.metadata),"
        " temporal = coalesce(%(temporal)s, m.temporal),"
        " buckets = array(select distinct b from unnest(m.buckets || %(buckets)s::text[]) as b"
        "  order by b),"
        " forget_after = %(forget_after)s, forget_reason = %(forget_reason)s, updated_at = now()"
        " where m.id = (select m.id from memories m where m.org_id = %(org)s and m.tag = %(tag)s"
        "  and md5(m.content) = md5(%(content)s::text) and m.content = %(content)s"
        "  and m.group_pairs is not distinct from %(group)s::jsonb and "
        + _LIVE
        + " order by m.created_at limit 1 for update) returning m.id",
        _said(org, tag, fact),
    ).fetchone()
    id = MemoryId(same["id"]) if same else _insert(tx, org, tag, fact)
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


def _forgotten_before(
    tx: Tx, org: OrgId, document: DocumentId, tag: str, fact: Fact
) -> MemoryId | None:
    """The memory of this text that a user forgot, if none is live; with one more source."""
    row = tx.execute(
        "select m.id, m.forgotten_at is not null as forgotten from memories m"
        " where m.org_id = %s and m.tag = %s and m.is_latest"
        " and md5(m.content) = md5(%s::text) and m.content = %s"
        " and m.group_pairs is not distinct from %s::jsonb"
        " order by forgotten, m.created_at limit 1",
        (org, tag, fact.text, fact.text, _json(fact.group or None)),
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
            " where m.org_id = %(org)s and m.tag = %(tag)s and m.is_latest"
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
    known = " from memories m where " + _REACH + " and m.tag = %(tag)s and m.is_latest and "
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
        + "md5(m.content) = md5(%(becomes)s::text))) order by d.id for key share",
        parameters,
    )
    if target.id is None:  # earlier versions of Recollect could leave several of one text
        same = tx.execute("select m.id" + matching + " and " + _UNFORGOTTEN, parameters)
        _unite(tx, [MemoryId(row["id"]) for row in same.fetchall()][:1])
    row = tx.execute(
        "select "
        + COLUMNS
        + matching
        # Of several with the same text, the live one, else the newest.
        + " order by ("
        + _UNFORGOTTEN
        + ") desc, m.updated_at desc limit 1 for update",
        parameters,
    ).fetchone()
    if row is not None:
        return _read(row)
    if target.id is None:
        raise _unknown(target, None)
    raise _unknown(target, _absent(tx, tenant, [target.id]).get(target.id))


def _absent(tx: Tx, tenant: Tenant, ids: Sequence[str]) -> dict[str, str]:
    """What those of the ids, which are no memories', are instead."""
    if not ids:
        return {}
    borne, more = documents.condition(tenant, documents.DocumentQuery())
    rows = tx.execute(
        sql.SQL("select d.id from documents d where {} and d.id = any(%(ids)s)").format(borne),
        {**more, "ids": list(ids)},
    )
    told = "is the id of a document; delete the document to remove those"
    return {row["id"]: told for row in rows}


def _forgotten(
    tx: Tx, tenant: Tenant, ids: Sequence[MemoryId], reason: str | None, batch: str | None
) -> list[Memory]:
    tx.execute(
        "update memories set forgotten_at = now(), forget_reason = coalesce(%s, forget_reason),"
        " forget_batch = %s, updated_at = now() where id = any(%s)",
        (reason, batch, list(ids)),
    )
    return _ordered(tx, tenant, ids)


def _ordered(tx: Tx, tenant: Tenant, ids: Sequence[MemoryId]) -> list[Memory]:
    """The memories with these ids, in their order."""
    rows = tx.execute(
        "select " + COLUMNS + " from memories m where " + _REACH + " and m.id = any(%(ids)s)",
        {**tenancy.bounds(tenant), "ids": list(ids)},
    )
    found = {row["id"]: _read(row) for row in rows}
    return [found[id] for id in ids]


def _said(org: OrgId, tag: str, fact: Fact) -> dict[str, object]:
    return {
        "org": org,
        "tag": tag,
        "content": fact.text,
        "is_static": fact.is_static,
        "is_inference": fact.is_inference,
        "buckets": sorted(set(fact.buckets)),
        "metadata": _json(fact.metadata),
        "group": _json(fact.group or None),
        "temporal": _json(fact.temporal),
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
        "weights": SparseVector({n - 1: w for n, w in weights.items()}, documents.TERM_SPACE),
        "embedding": values[0],
        "embedding_b": values[1],
    }


def _json(value: Mapping[str, Any] | None) -> Jsonb | None:
    return None if value is None else Jsonb(dict(value))


def _lock(tx: Tx, org: OrgId, tag: str) -> None:
    """One writer of a tag at a time: what two say at once is known once."""
    tx.execute("select pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"memories {org} {tag}",))


def _lock_all(tx: Tx, org: OrgId, document: DocumentId, tag: str, facts: Sequence[Fact]) -> None:
    """All that keeping these facts may change, whole chains in the order of `_IN_ORDER`."""
    tx.execute(
        "with touched as materialized (select distinct coalesce(m.root_id, m.id) as root"
        "  from memories m where m.org_id = %(org)s and m.id in ("
        "  select m.id from memories m where m.org_id = %(org)s and m.tag = %(tag)s"
        "   and m.is_latest and md5(m.content) = any(%(digests)s)"
        "  union select unnest(%(named)s::text[])"
        "  union select s.memory_id from memory_sources s"
        "   where s.document_id = %(document)s and s.hash <> %(whole)s and not exists"
        "    (select from chunks c where c.document_id = s.document_id and c.hash = s.hash)))"
        " select from memories m where m.id in (select root from touched"
        "  union select v.id from touched t join memories v on v.root_id = t.root)"
        + _IN_ORDER
        + " for update",
        {
            "org": org,
            "tag": tag,
            "digests": [
                md5(fact.text.encode(), usedforsecurity=False).hexdigest() for fact in facts
            ],
            "named": [
                *(id for fact in facts for id in fact.related),
                *(fact.updates for fact in facts if fact.updates is not None),
            ],
            "document": document,
            "whole": WHOLE,
        },
    )


def _forgotten_already(memory: Memory) -> ConflictError:
    return ConflictError("Memory already forgotten", f"memory {memory.id} was forgotten before")


def _unknown(target: MemoryTarget, why: str | None) -> NotFoundError:
    if target.id is None:
        return NotFoundError("Memory not found", "no memory with exactly this content")
    details = f"{target.id!r} {why}" if why else f"no memory {target.id!r} in this containerTag"
    return NotFoundError("Memory not found", details)


def _read(row: Mapping[str, Any]) -> Memory:
    return Memory(
        id=MemoryId(row["id"]),
        org_id=OrgId(row["org_id"]),
        tag=row["tag"],
        content=row["content"],
        version=row["version"],
        parent_id=MemoryId(row["parent_id"]) if row["parent_id"] else None,
        root_id=MemoryId(row["root_id"]) if row["root_id"] else None,
        is_latest=row["is_latest"],
        is_static=row["is_static"],
        is_inference=row["is_inference"],
        is_forgotten=row["is_forgotten"],
        buckets=row["buckets"],
        metadata=row["metadata"],
        temporal=row["temporal"],
        forget_after=row["forget_after"],
        forget_reason=row["forget_reason"],
        forgotten_at=row["forgotten_at"],
        sources=[DocumentId(id) for id in row["sources"]],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        group=row["group_pairs"],
    )
