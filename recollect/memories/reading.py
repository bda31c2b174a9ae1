"""Memories as they are read: by id, by tag, of documents, with their versions and evidence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from psycopg import sql

from recollect import documents
from recollect.db import Tx, tenancy
from recollect.documents.filters import Filter
from recollect.documents.filters import compile as compile_filter
from recollect.memories.records import (
    COLUMNS,
    LIVE,
    REACH,
    WHOLE,
    Memory,
    MemoryId,
    MemoryQuery,
    MemoryTarget,
    Relation,
    condition_of,
    read_row,
    unknown_memory,
    what_else_they_are,
)
from recollect.model import (
    Chunk,
    Document,
    DocumentId,
    Metadata,
    OrgId,
    Page,
    Tenant,
)

PROFILE_STATIC = 100
PROFILE_DYNAMIC = 50
PROFILE_BUCKET = 50
"""Facts of a profile's section at most, those that changed last."""


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


def find(tx: Tx, tenant: Tenant, query: MemoryQuery) -> Page[Memory]:
    """One page of memories; `total` counts all that match."""
    matching, parameters = condition_of(tenant, query)
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
    return Page([read_row(row) for row in rows], counted["n"], query.page, query.limit)


def browse(tx: Tx, tenant: Tenant, query: MemoryQuery, *, most: int) -> tuple[Page[Memory], bool]:
    """As `find`, the last changed first, over a bounded number of rows; and whether `total` is cut.

    Of one tag the index finds the last changed; of several, `most` are sorted that the database
    comes upon.
    """
    matching, parameters = condition_of(tenant, query)
    first = sql.SQL("")
    if len(query.any_of) == 1 and not query.any_of[0].endswith(documents.BELOW):
        matching = sql.SQL("m.org_id = %(org)s and m.tag = %(only)s and {}").format(matching)
        first = sql.SQL(" order by m.updated_at desc, m.id desc")
        parameters["only"] = query.any_of[0]
    parameters |= {"most": most, "limit": query.limit, "offset": (query.page - 1) * query.limit}
    counted = tx.execute(
        sql.SQL(
            "select count(*) as n from (select 1 from memories m where {} limit %(most)s) found"
        ).format(matching),
        parameters,
    ).fetchone()
    rows = tx.execute(
        sql.SQL(
            "select {columns} from memories m join (select seen.id from (select m.id, m.updated_at"
            "  from memories m where {condition}{first} limit %(most)s) seen"
            "  order by seen.updated_at desc, seen.id desc limit %(limit)s offset %(offset)s) shown"
            " on shown.id = m.id order by m.updated_at desc, m.id desc"
        ).format(columns=sql.SQL(COLUMNS), condition=matching, first=first),
        parameters,
    ).fetchall()
    total = counted["n"] if counted else 0
    found = Page([read_row(row) for row in rows], total, query.page, query.limit)
    return found, total >= most


def held(tx: Tx, tenant: Tenant, tags: Sequence[str], *, most: int) -> dict[str, int]:
    """How many live memories each of the tags has, counted up to `most`."""
    rows = tx.execute(
        "select asked.tag, (select count(*) from (select 1 from memories m where m.tag = asked.tag"
        "  and " + REACH + " and " + LIVE + " limit %(most)s) found) as n"
        " from unnest(%(tags)s::text[]) as asked (tag)",
        {**tenancy.bounds(tenant), "tags": list(tags), "most": most},
    )  # fmt: skip
    return {row["tag"]: row["n"] for row in rows}


def get(tx: Tx, tenant: Tenant, id: str) -> Memory:
    """That very version, also if it is forgotten; raises NotFoundError."""
    found = versions(tx, tenant, [id])
    if not found:
        raise unknown_memory(MemoryTarget(id=id), what_else_they_are(tx, tenant, [id]).get(id))
    return found[0]


def versions(tx: Tx, tenant: Tenant, ids: Sequence[str]) -> list[Memory]:
    """Those of the ids that are memories: each that very version, forgotten or not."""
    rows = tx.execute(
        "select " + COLUMNS + " from memories m where " + REACH + " and m.id = any(%(ids)s)",
        {**tenancy.bounds(tenant), "ids": list(ids)},
    )
    return [read_row(row) for row in rows]


def counts(tx: Tx, tenant: Tenant, documents: Sequence[str]) -> dict[DocumentId, int]:
    """How many live memories come from each of the documents."""
    rows = tx.execute(
        "select asked.id, (select count(distinct m.id) from memory_sources s"
        "  join memories m on m.id = s.memory_id where s.document_id = asked.id and "
        + REACH
        + " and "
        + LIVE
        + ") as n from unnest(%(documents)s::text[]) as asked (id)",
        {**tenancy.bounds(tenant), "documents": list(documents)},
    )
    return {DocumentId(row["id"]): row["n"] for row in rows}


def counts_of_tags(tx: Tx, tenant: Tenant, tags: Sequence[str]) -> dict[str, int]:
    """How many live memories are in each of the tags."""
    rows = tx.execute(
        "select m.tag, count(*) as n from memories m where "
        + REACH
        + " and m.tag = any(%(tags)s) and "
        + LIVE
        + " group by m.tag",
        {**tenancy.bounds(tenant), "tags": list(tags)},
    )
    return dict.fromkeys(tags, 0) | {row["tag"]: row["n"] for row in rows}


def live(tx: Tx, tenant: Tenant, tag: str) -> list[MemoryId]:
    """The live memories of a tag."""
    rows = tx.execute(
        "select m.id from memories m where " + REACH + " and m.tag = %(tag)s and " + LIVE,
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


def named(tx: Tx, tenant: Tenant, tag: str, ids: Sequence[str]) -> list[Memory]:
    """Those of the ids that are live memories of the tag; an older version means the latest."""
    rows = tx.execute(
        # By the ids of the chains: the planner would else compare all of the tag with each.
        "with roots as materialized (select distinct coalesce(v.root_id, v.id) as root"
        "  from memories v where v.org_id = %(org)s and v.tag = %(tag)s and v.id = any(%(ids)s))"
        " select "
        + COLUMNS
        + " from memories m where "
        + REACH
        + " and m.tag = %(tag)s and "
        + LIVE
        + " and m.id = any(array(select root from roots"
        "  union select v.id from roots join memories v on v.root_id = root)) order by m.id",
        {**tenancy.bounds(tenant), "tag": tag, "ids": list(ids)},
    )
    return [read_row(row) for row in rows]


def concluded(tx: Tx, tenant: Tenant, ids: Sequence[MemoryId]) -> list[MemoryId]:
    """Live conclusions from any version of these memories, and from those in turn, which tell what
    these said; locked."""
    rows = tx.execute(
        "with recursive near (id, root) as ("
        " select m.id, coalesce(m.root_id, m.id) from memories m where m.id = any(%(ids)s)"
        " union select c.id, coalesce(c.root_id, c.id) from near n"
        "  cross join lateral (select n.root as id"
        "   union all select v.id from memories v where v.root_id = n.root) p"
        "  join memory_relations r on r.target_id = p.id and r.relation = 'derives'"
        "  join memories c on c.id = r.memory_id and c.is_inference and c.is_latest)"
        " select m.id from memories m where m.id in (select id from near)"
        " and m.id <> all(%(ids)s) and m.is_inference and "
        + REACH
        + " and "
        + LIVE
        + " order by m.id for update",
        {**tenancy.bounds(tenant), "ids": list(ids)},
    )
    return [MemoryId(row["id"]) for row in rows]


def saying(tx: Tx, tenant: Tenant, tag: str, text: str) -> list[Memory]:
    """Live memories of the tag whose text is this one, but for case and spaces."""
    plain = "fold_case(btrim(regexp_replace({}, '\\s+', ' ', 'g')))"
    rows = tx.execute(
        "select " + COLUMNS + " from memories m where " + REACH + " and m.tag = %(tag)s and "
        + LIVE
        + f" and {plain.format('m.content')} = {plain.format('%(text)s::text')}"
        " order by m.created_at, m.id",
        {**tenancy.bounds(tenant), "tag": tag, "text": text},
    )  # fmt: skip
    return [read_row(row) for row in rows]


def home(tx: Tx, document: Document) -> str:
    """The tag for which a document is read: of those that it carries the first that has memories
    drawn from it, else the first of all. If another one came before that, a fact would be told
    twice, and once more where it was forgotten."""
    row = tx.execute(
        "select carried.tag from unnest(%s::text[]) with ordinality as carried (tag, n)"
        " where exists (select from memory_sources s join memories m on m.id = s.memory_id"
        "  where s.document_id = %s and m.tag = carried.tag) order by carried.n limit 1",
        (list(document.container_tags), document.id),
    ).fetchone()
    return row["tag"] if row else document.container_tags[0]


def unread(tx: Tx, document: DocumentId, *, after: int = -1, limit: int = 200) -> list[Chunk]:
    """Chunks of the indexed revision from which nothing was drawn yet, in order: the first ones
    behind the position `after`."""
    rows = tx.execute(
        "with done as materialized (select hash from memory_reads where document_id = %s)"
        " select c.position, c.start_at, c.end_at, c.hash, c.place, e.text"
        " from chunks c join entries e on e.document_id = c.document_id and e.hash = c.hash"
        " where c.document_id = %s and c.position > %s and c.hash not in (select hash from done)"
        " order by c.position limit %s",
        (document, document, after, limit),
    )
    return [
        Chunk(r["position"], r["start_at"], r["end_at"], r["text"], r["hash"], r["place"])
        for r in rows
    ]


def unread_count(tx: Tx, document: DocumentId) -> int:
    """How many chunk texts there are from which nothing was drawn yet."""
    row = tx.execute(
        "with done as materialized (select hash from memory_reads where document_id = %s)"
        " select count(distinct c.hash) as n from chunks c where c.document_id = %s"
        " and c.hash not in (select hash from done)",
        (document, document),
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
        " join memories m on m.id = s.memory_id where " + REACH
        + " order by m.created_at, m.version, m.id",
        {**tenancy.bounds(tenant), "documents": list(documents)},
    )  # fmt: skip
    found: dict[DocumentId, list[Memory]] = {id: [] for id in documents}
    for row in rows:
        found[DocumentId(row["of"])].append(read_row(row))
    return found


def total(tx: Tx, tenant: Tenant) -> int:
    """How many live memories the tenant may touch."""
    row = tx.execute(
        "select count(*) as n from memories m where " + REACH + " and " + LIVE,
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
    matching, parameters = condition_of(tenant, MemoryQuery(tags=tags, forgotten=True))
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
    matching, parameters = condition_of(tenant, MemoryQuery(any_of=[tag], filter=filter))
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
        + REACH
        + " order by m.version desc, m.created_at desc",
        {**tenancy.bounds(tenant), "ids": list(ids)},
    )
    versions: dict[MemoryId, list[Memory]] = {id: [] for id in ids}
    for row in rows:
        versions[MemoryId(row["of"])].append(read_row(row))
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
        + REACH
        + " union all"
        f" select v.shown, r.relation, null, {shown} from versions v"
        " join memory_relations r on v.id in (r.memory_id, r.target_id)"
        " join memories other"
        "  on other.id = case v.id when r.memory_id then r.target_id else r.memory_id end"
        # What took the place of the one that it was said of.
        " join memories m on m.id = other.id or m.root_id = coalesce(other.root_id, other.id)"
        " where m.tag = v.tag and {let} and "
        + REACH
        + " and "
        + LIVE
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
        "with named as materialized (select m.id, s.document_id, s.hash, s.start_at, s.end_at,"
        "  case when s.hash = %(whole)s"
        "   then substr(d.text, s.start_at + 1, s.end_at - s.start_at) end as text"
        "  from memories m join memory_sources s on s.memory_id = m.id"
        "  join documents d on d.id = s.document_id where m.id = any(%(ids)s) and "
        + REACH
        + "), placed as materialized (select c.document_id, c.hash, min(c.position) as position,"
        "  min(c.start_at) as start_at, e.text"
        "  from (select distinct document_id, hash from named) n"
        "  join chunks c on c.document_id = n.document_id and c.hash = n.hash"
        "  join entries e on e.document_id = c.document_id and e.hash = c.hash"
        "  group by c.document_id, c.hash, e.text)"
        " select n.id, n.document_id, p.position, coalesce(p.start_at, 0) + n.start_at as start_at,"
        " coalesce(p.start_at, 0) + n.end_at as end_at, coalesce(p.text, n.text) as text"
        " from named n left join placed p using (document_id, hash)"
        " where p.position is not null or n.hash = %(whole)s"
        " order by n.id, n.document_id, start_at",
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
