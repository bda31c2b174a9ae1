"""Documents: one piece of content with a life cycle, and the queue that is its table.

Content changes count up `revision`. A worker's claim is fenced by `claims`, which counts every
claim there ever was: `advance`, `finish`, `retry` and `fail` of a worker that lost its lease touch
nothing and raise LeaseLost. A revision that is overtaken while it is processed may still finish;
then the row is due again at once, so content that grows faster than it is processed never starves.

The files of an archive are documents of their own, its members. Whoever locks several rows locks
archives and all else first, by id, then members, by id.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from pgvector import SparseVector
from psycopg import sql
from psycopg.types.json import Jsonb

from recollect import audit, db, embedding, feed, merge, terms
from recollect.db import Tx
from recollect.db.filters import Filter
from recollect.db.filters import compile as compile_filter
from recollect.errors import BadRequestError, ConflictError, LeaseLost, NotFoundError, RequestError
from recollect.model import (
    Changed,
    Chunk,
    Claim,
    ConnectionId,
    Content,
    Document,
    DocumentId,
    Entry,
    Extracted,
    Failure,
    KeyId,
    Metadata,
    OrgId,
    Page,
    Stage,
    Status,
    StoredBlob,
    Tenant,
    random_id,
    storable,
)

TURNS_KEPT = 100
"""organisations of which a worker remembers the tag whose turn was last"""
MOST_AHEAD = 10_000
"""documents that are counted before one that waits"""
DIRECT = "memories"
"""`source` of documents that only bear the memories that were added with them."""
BELOW = ":*"
"""Ending of a tag in a query that means: any tag that begins so."""
TITLE_LENGTH = 80
"""Characters of a title that is made of the first line."""
TERM_SPACE = 1_000_000_000
"""Largest term number, and the dimensions of the sparse weights."""

COLUMNS = (
    "d.id, d.org_id, d.custom_id, d.container_tags, d.kind, d.title, d.url, d.source, d.filepath,"
    " d.metadata, d.status, d.stage, d.error_code, d.error_message, d.revision,"
    " d.indexed_revision, d.attempts, d.due_at, d.chunks, d.reused, d.embedded, d.removed,"
    " d.timings, d.warnings, d.document_date, d.task_type, d.connection_id, d.created_at,"
    " d.updated_at, d.archive_id, d.archive_path, case when d.unpacked is not null then"
    " (select count(*) from documents m where m.archive_id = d.id) end as members"
)
"""What `read` needs of a row of `documents d`."""
_TEXT = (
    ", case when d.indexed_revision is not null then d.text"
    " when d.blob is null and d.url is null then d.content end as text"
)
_ORDER = " order by d.archive_id is not null, d.id"
"""in which rows are locked"""
_REACH = (
    "d.org_id = %(org)s and (%(reach)s::text[] is null or d.container_tags && %(reach)s::text[])"
)


@dataclass(frozen=True, slots=True)
class NewDocument:
    """What a caller adds. None means: not said, keep what is there."""

    content: Content
    tags: Sequence[str]
    """container tags, at least one; the first is the scope of `custom_id`"""
    tagged: bool = True
    """whether the caller named the tags; if not, `custom_id` is looked for in all of them"""
    custom_id: str | None = None
    title: str | None = None
    source: str = "api"
    filepath: str | None = None
    metadata: Metadata | None = None
    document_date: datetime | None = None
    task_type: str | None = None
    dreaming: str | None = None
    connection_id: ConnectionId | None = None
    archive_id: DocumentId | None = None
    archive_path: str | None = None
    join: Callable[[str, str, bool], str] = lambda old, new, _: merge.merge(old, new).text
    """how the text goes together with the one that its customId has already; told whether that
    one came within seconds, so that the same once more may be a client's retry"""


@dataclass(frozen=True, slots=True)
class DocumentChange:
    """What a caller changes. None means: leave it."""

    content: Content | None = None
    custom_id: str | None = None
    tags: Sequence[str] | None = None
    filepath: str | None = None
    metadata: Metadata | None = None
    document_date: datetime | None = None
    task_type: str | None = None
    dreaming: str | None = None


@dataclass(frozen=True, slots=True)
class NewMember:
    """A file of an archive that is being finished. Its content has no blob if the archive held
    the same when it was last read."""

    path: str
    content: Content


@dataclass(frozen=True, slots=True)
class DocumentQuery:
    """Which documents to list, in which order; all conditions must hold."""

    id: DocumentId | None = None
    tags: Sequence[str] = ()
    filter: Filter | None = None
    filepath: str | None = None
    """exact, or a prefix when it ends in `/`"""
    archive: str | None = None
    """the id of one: its members"""
    statuses: Sequence[Status] = ()
    connections: Sequence[ConnectionId] | None = None
    touched_within: timedelta | None = None
    sort: Literal["created_at", "updated_at"] = "created_at"
    descending: bool = True
    limit: int = 10
    page: int = 1
    with_text: bool = False


# --- adding and changing -----------------------------------------------------------------------


def add(tx: Tx, tenant: Tenant, new: NewDocument, id: DocumentId) -> Document:
    """Insert, or bring the document with the same customId up to date (contract 7.2).

    `id` is taken if a document is inserted. Raises ConflictError when the customId is ambiguous.
    """
    if new.custom_id is None:
        twin = _in_flight_twin(tx, tenant, new)
        return twin or _insert(tx, tenant.id, new, id)
    # Two adds of the same customId follow one another: the second sees the first's row.
    _lock(tx, tenant.id, "customId", new.custom_id)
    found = _with_custom_id(tx, tenant, new.custom_id, new.tags[0] if new.tagged else None)
    if found is None:
        return _insert(tx, tenant.id, new, id)
    return _add_again(tx, found, new)


def bear(tx: Tx, tenant: Tenant, tag: str, text: str, id: DocumentId) -> Document:
    """Insert a document that bears memories which nobody has to draw from it: done at once.

    It is never processed and has no chunks. The same within seconds is a client's retry, and gets
    the document that is there.
    """
    content = text_content(text)
    _lock(tx, tenant.id, "content", content.hash.hex())
    row = tx.execute(
        "select " + COLUMNS + " from documents d where d.org_id = %s and d.scope @> %s"
        " and d.source = %s and d.container_tags = array[%s::text] and d.content_hash = %s"
        " and d.created_at > now() - interval '10 seconds' limit 1",
        (tenant.id, sought(tenant.id, [tag]), DIRECT, tag, content.hash),
    ).fetchone()
    if row is not None:
        return read(row)
    document = _insert(tx, tenant.id, NewDocument(content, [tag], source=DIRECT), id)
    done = tx.execute(
        "update documents d set status = 'done', due_at = null, indexed_revision = revision,"
        " text = content, title = left(split_part(content, E'\n', 1), %s) where id = %s returning "
        + COLUMNS,
        (TITLE_LENGTH, document.id),
    ).fetchone()
    assert done is not None
    return read(done)


def update(tx: Tx, tenant: Tenant, id: str, change: DocumentChange) -> Document:
    """Metadata and labels in place, without indexing; new content replaces all and is queued.

    Tags, metadata and the like of an archive go to its members, too. Raises NotFoundError, and
    BadRequestError when the new customId is taken in that tag, or for new content of a document
    that only bears memories.
    """
    document = _locked(tx, tenant, id, change)
    tags = change.tags or document.container_tags
    if change.custom_id is not None or change.tags:
        custom_id = change.custom_id or document.custom_id
        if custom_id is not None:
            taken = tx.execute(
                "select 1 from documents where org_id = %s and custom_id = %s"
                " and container_tags[1] = %s and id <> %s",
                (tenant.id, custom_id, tags[0], document.id),
            ).fetchone()
            if taken:
                # BadRequest, not Conflict: clients repeat a 409 by themselves, in vain here.
                raise BadRequestError(f"customId: {custom_id!r} is taken in tag {tags[0]!r}")
    _count(tx, document.org_id, _set_details_of_all(tx, document, change))
    if change.content is not None:
        _refuse_direct(document)
        _accept(tx, document.id, change.content, revive=True)
    return get(tx, tenant, document.id)


def delete(tx: Tx, tenant: Tenant, ids: Sequence[str]) -> dict[str, RequestError]:
    """Remove for good, each by id, else by customId; work in flight is fenced off.

    With an archive go its members, here and in all that removes documents. Returns why some of
    the ids were not removed: unknown, or an ambiguous customId.
    """
    return delete_named(tx, tenant, ids)[1]


def delete_named(
    tx: Tx, tenant: Tenant, ids: Sequence[str]
) -> tuple[list[DocumentId], dict[str, RequestError]]:
    """As `delete`; returns what was removed, too."""
    rows = tx.execute(
        "select d.id, d.custom_id from documents d where "
        + _REACH
        + " and (d.id = any(%(ids)s) or d.custom_id = any(%(ids)s))"
        + _ORDER
        + " for update",
        {**_reach(tenant), "ids": list(ids)},
    ).fetchall()
    known = {row["id"] for row in rows}
    gone: set[DocumentId] = set()
    refused: dict[str, RequestError] = {}
    for id in ids:
        named = [row["id"] for row in rows if row["custom_id"] == id]
        if id in known:
            gone.add(DocumentId(id))
        elif len(named) == 1:
            gone.add(DocumentId(named[0]))
        else:
            refused[id] = _ambiguous(id) if named else _unknown(id)
    _remove(tx, tenant.id, sorted(gone), by=tenant.key)
    return sorted(gone), refused


def delete_where(
    tx: Tx, tenant: Tenant, *, tags: Sequence[str] = (), filepath: str | None = None
) -> list[DocumentId]:
    """Remove for good all documents in any of the tags, below the filepath, or both.

    A filepath is exact, or a prefix when it ends in `/`. One of the two must be given.
    """
    if not tags and filepath is None:
        raise BadRequestError("name ids, containerTags, or a filepath")
    rows = tx.execute(
        "select d.id from documents d where "
        + _REACH
        # The numbers find them by the index; the names tell the few whose numbers are alike.
        + " and (%(tags)s::text[] = '{}' or"
        "  d.scope && %(numbers)s::int4[] and d.container_tags && %(tags)s::text[])"
        " and (%(filepath)s::text is null or " + _FILEPATH + ")" + _ORDER + " for update",
        {
            **_reach(tenant),
            "tags": list(tags),
            "numbers": [terms.tag_number(tenant.id, tag) for tag in tags],
            "filepath": filepath,
        },
    ).fetchall()
    gone = [DocumentId(row["id"]) for row in rows]
    _remove(tx, tenant.id, gone, by=tenant.key)
    return gone


def delete_all(tx: Tx, tenant: Tenant) -> list[DocumentId]:
    """Remove for good everything that the tenant may touch."""
    rows = tx.execute(
        "select d.id from documents d where " + _REACH + _ORDER + " for update",
        _reach(tenant),
    ).fetchall()
    gone = [DocumentId(row["id"]) for row in rows]
    _remove(tx, tenant.id, gone, by=tenant.key)
    return gone


def untag(tx: Tx, tenant: Tenant, tag: str) -> list[DocumentId]:
    """Take a tag off all documents; those that have no other are removed, and returned.

    Raises BadRequestError when a document would come to share its customId with another.
    """
    rows = tx.execute(
        "select " + COLUMNS + " from documents d where " + _REACH + " and d.scope @> %(scope)s"
        " and %(tag)s = any(d.container_tags)" + _ORDER + " for update",
        {**_reach(tenant), "scope": sought(tenant.id, [tag]), "tag": tag},
    ).fetchall()
    found = [read(row) for row in rows]
    gone = [document.id for document in found if list(document.container_tags) == [tag]]
    shared = [document for document in found if list(document.container_tags) != [tag]]
    taken = tx.execute(
        "select d.custom_id, rest.tags[1] as tag from documents d"
        " cross join lateral (select array_remove(d.container_tags, %(tag)s) as tags) as rest"
        " join documents other on other.org_id = d.org_id and other.custom_id = d.custom_id"
        "  and other.container_tags[1] = rest.tags[1] and other.id <> d.id"
        " where d.id = any(%(ids)s) limit 1",
        {"tag": tag, "ids": [document.id for document in shared]},
    ).fetchone()
    if taken is not None:
        raise BadRequestError(
            f"two documents of the tag {taken['tag']!r} would have the customId"
            f" {taken['custom_id']!r}; delete or rename one of them first"
        )
    _lock_memories(tx, [document.id for document in found])
    delta = _take_out(tx, tenant.id, gone, by=tenant.key)
    for document in shared:
        rest = [name for name in document.container_tags if name != tag]
        delta.update(_set_details(tx, document, DocumentChange(tags=rest)))
    _count(tx, tenant.id, delta)
    return gone


def retag(
    tx: Tx, org: OrgId, sources: Sequence[str], target: str, *, kept: Sequence[str], limit: int
) -> tuple[int, list[DocumentId]]:
    """Give up to `limit` documents of any of the sources the target in their place.

    `kept` are passed over. Returns how many were moved, and those that cannot be, since another
    document of the target has their customId.
    """
    rows = tx.execute(
        "select " + COLUMNS + " from documents d where d.org_id = %(org)s"
        " and d.scope && %(numbers)s::int4[] and d.container_tags && %(sources)s::text[]"
        " and not d.id = any(%(kept)s)" + _ORDER + " limit %(limit)s for update",
        {
            "org": org,
            "numbers": [terms.tag_number(org, tag) for tag in sources],
            "sources": list(sources),
            "kept": list(kept),
            "limit": limit,
        },
    ).fetchall()
    moved, stuck, delta = 0, list[DocumentId](), Counter[int]()
    found = [read(row) for row in rows]
    _lock_memories(tx, [document.id for document in found])
    for document in found:
        tags = [target if tag in sources else tag for tag in document.container_tags]
        taken = (
            document.custom_id is not None
            and tx.execute(
                "select 1 from documents where org_id = %s and custom_id = %s"
                " and container_tags[1] = %s and id <> %s",
                (org, document.custom_id, tags[0], document.id),
            ).fetchone()
        )
        if taken:
            stuck.append(document.id)
            continue
        change = DocumentChange(tags=list(dict.fromkeys(tags)))
        delta.update(_set_details(tx, document, change))
        moved += 1
    _count(tx, org, delta)
    return moved, stuck


def file(tx: Tx, tenant: Tenant, id: str) -> StoredBlob:
    """The file that the document was uploaded as; raises NotFoundError when it was none."""
    document = get(tx, tenant, id)
    row = tx.execute(
        "select blob, blob_name, blob_mime from documents where id = %s and blob is not null",
        (document.id,),
    ).fetchone()
    if row is None:
        raise NotFoundError("File not found", f"document {document.id} was not uploaded as a file")
    return StoredBlob(row["blob"], row["blob_name"], row["blob_mime"])


def reprocess(
    tx: Tx, tenant: Tenant, *, ids: Sequence[str] = (), failed: bool = False
) -> list[DocumentId]:
    """Queue the documents once more with the content they have: those named, or all that failed."""
    rows = tx.execute(
        "with ended as materialized (select d.id from documents d"
        " where " + _REACH + " and d.status in ('done', 'failed') and d.source <> %(direct)s"
        " and (d.id = any(%(ids)s) or d.custom_id = any(%(ids)s)"
        " or (%(failed)s and d.status = 'failed'))" + _ORDER + " for update)"
        " update documents d set status = 'queued', stage = null, due_at = now(), attempts = 0,"
        " error_code = null, error_message = null, updated_at = now()"
        " from ended where d.id = ended.id returning d.id",
        {**_reach(tenant), "ids": list(ids), "failed": failed, "direct": DIRECT},
    ).fetchall()
    if rows:
        db.notify(tx)
    return [DocumentId(row["id"]) for row in rows]


# --- of connections ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SyncedDocument:
    """What a connection says of one of its documents."""

    connection_id: ConnectionId
    source_id: str
    """the provider's id"""
    provider: str
    version: str
    """of the content; the same again means that there is nothing to do"""
    kind: str
    tags: Sequence[str]
    title: str | None
    url: str | None
    metadata: Metadata
    text: str | None = None
    """the content, if it is known; else it is fetched when the document is processed"""


def put(tx: Tx, org: OrgId, synced: SyncedDocument, known: DocumentId | None) -> tuple[str, bool]:
    """Insert a document of a connection, or bring the `known` one up to date; never indexes twice
    what has the same version.

    Returns its id and whether anything changed.
    """
    content = Content(
        kind=synced.kind,
        hash=content_hash(synced.version),
        text=synced.text,
        url=synced.url,
        source_id=synced.source_id,
    )
    if known is None:
        new = NewDocument(
            content,
            synced.tags,
            title=synced.title,
            source=synced.provider,
            metadata=synced.metadata,
            connection_id=synced.connection_id,
        )
        return _insert(tx, org, new, DocumentId(random_id())).id, True
    document = get(tx, Tenant(org), known, lock=True)
    change = DocumentChange(tags=synced.tags, metadata=synced.metadata)
    same = (list(document.container_tags), document.metadata) == (
        list(synced.tags),
        dict(synced.metadata),
    )
    if not same:
        _count(tx, org, _set_details_of_all(tx, document, change))
    moved = tx.execute(
        "update documents set source_id = %(source_id)s, title = coalesce(%(title)s, title),"
        " url = %(url)s, updated_at = now() where id = %(id)s"
        " and (source_id, title, url) is distinct from"
        " (%(source_id)s, coalesce(%(title)s, title), %(url)s::text)",
        {
            "id": known,
            "source_id": synced.source_id,
            "title": synced.title,
            "url": synced.url,
        },
    ).rowcount
    again = tx.execute(
        "select content_hash is distinct from %s as differs from documents where id = %s",
        (content.hash, known),
    ).fetchone()
    assert again is not None
    if again["differs"]:
        _accept(tx, known, content, revive=False)
    return known, bool(again["differs"] or moved or not same)


def content_hash(version: str) -> bytes:
    """What stands for the content of a document of a connection."""
    return hashlib.sha256(version.encode()).digest()


def drop(tx: Tx, org: OrgId, ids: Sequence[DocumentId], *, by: KeyId | None = None) -> None:
    """Remove for good documents of a connection: gone at the provider, or with it (`by`: who)."""
    _remove(tx, org, sorted(ids), by=by)


def discard(tx: Tx, claim: Claim) -> None:
    """Remove for good a document whose source vanished before it was read; raises LeaseLost."""
    ours = tx.execute(
        "select 1 from documents where id = %s and claims = %s and status = 'processing'"
        " for update",
        (claim.document.id, claim.number),
    ).fetchone()
    if ours is None:
        raise LeaseLost
    _remove(tx, claim.document.org_id, [claim.document.id])


def detach(tx: Tx, org: OrgId, connection: ConnectionId) -> None:
    """Keep what a connection brought without it; what it never brought is removed."""
    rows = tx.execute(
        "select id from documents where connection_id = %s and indexed_revision is null"
        " and content is null and blob is null order by id for update",
        (connection,),
    ).fetchall()
    _remove(tx, org, [DocumentId(row["id"]) for row in rows])
    # Their text is their content now: what comes after (a retry, another model) reads that.
    tx.execute(
        "update documents set connection_id = null,"
        " content = case when blob is null then coalesce(content, text) end,"
        " claims = claims + 1, updated_at = now() where connection_id = %s",
        (connection,),
    )


def of_connection(tx: Tx, connection: ConnectionId) -> list[DocumentId]:
    """All documents of a connection, by id."""
    rows = tx.execute(
        "select id from documents where connection_id = %s order by id for update", (connection,)
    )
    return [DocumentId(row["id"]) for row in rows]


def postpone(tx: Tx, connection: ConnectionId, until: timedelta, failure: Failure) -> None:
    """Let the queued documents of a connection wait, and say why."""
    tx.execute(
        "update documents set due_at = greatest(due_at, now() + %s), error_code = %s,"
        " error_message = %s where connection_id = %s and status = 'queued' and content is null",
        (until, failure.code, storable(failure.message)[:2000], connection),
    )


def resume(tx: Tx, connection: ConnectionId) -> None:
    """Those that wait for their connection are due now."""
    tx.execute(
        "update documents set due_at = now(), error_code = null, error_message = null"
        " where connection_id = %s and status = 'queued'",
        (connection,),
    )
    db.notify(tx)


# --- reading -----------------------------------------------------------------------------------


def get(
    tx: Tx, tenant: Tenant, id: str, *, with_text: bool = False, lock: bool = False
) -> Document:
    """By id, else by customId; raises NotFoundError, ConflictError for an ambiguous customId."""
    rows = tx.execute(
        "select "
        + COLUMNS
        + (_TEXT if with_text else "")
        + " from documents d where "
        + _REACH
        + " and (d.id = %(id)s or d.custom_id = %(id)s)"
        " order by (d.id = %(id)s) desc limit 2" + (" for update" if lock else ""),
        {**_reach(tenant), "id": id},
    ).fetchall()
    if not rows:
        raise _unknown(id)
    if len(rows) > 1 and rows[0]["id"] != id:
        raise _ambiguous(id)
    return read(rows[0])


def find(tx: Tx, tenant: Tenant, query: DocumentQuery) -> Page[Document]:
    """One page of documents; `total` counts all that match."""
    matching, parameters = condition(tenant, query)
    order = sql.SQL("d.updated_at" if query.sort == "updated_at" else "d.created_at")
    direction = sql.SQL("desc" if query.descending else "asc")
    counted = tx.execute(
        sql.SQL("select count(*) as n from documents d where {}").format(matching), parameters
    ).fetchone()
    assert counted is not None
    rows = tx.execute(
        sql.SQL(
            "select {columns} from documents d where {condition}"
            " order by {order} {direction}, d.id {direction} limit %(limit)s offset %(offset)s"
        ).format(
            columns=sql.SQL(COLUMNS + _TEXT) if query.with_text else sql.SQL(COLUMNS),
            condition=matching,
            order=order,
            direction=direction,
        ),
        {**parameters, "limit": query.limit, "offset": (query.page - 1) * query.limit},
    ).fetchall()
    return Page([read(row) for row in rows], counted["n"], query.page, query.limit)


def chunks(tx: Tx, tenant: Tenant, id: str) -> list[Chunk]:
    """The chunks of the indexed revision, in order; raises NotFoundError."""
    document = get(tx, tenant, id)
    rows = tx.execute(
        "select c.position, c.start_at, c.end_at, c.hash, c.place, e.text"
        " from chunks c join entries e on e.document_id = c.document_id and e.hash = c.hash"
        " where c.document_id = %s order by c.position",
        (document.id,),
    )
    return [
        Chunk(r["position"], r["start_at"], r["end_at"], r["text"], r["hash"], r["place"])
        for r in rows
    ]


def counts(tx: Tx, tenant: Tenant) -> Mapping[Status, int]:
    """How many documents are in each status."""
    rows = tx.execute(
        "select d.status, count(*) as n from documents d where " + _REACH + " group by d.status",
        _reach(tenant),
    )
    found = {Status(row["status"]): int(row["n"]) for row in rows}
    return {status: found.get(status, 0) for status in Status}


# --- the queue ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Turn:
    """Whose turn was last: an organisation, and a container tag of each of the last ones."""

    org: str = ""
    tags: dict[str, str] = field(default_factory=dict[str, str])

    def pass_on(self, org: str, tag: str) -> None:
        self.org = org
        self.tags.pop(org, None)
        self.tags[org] = tag
        while len(self.tags) > TURNS_KEPT:
            del self.tags[next(iter(self.tags))]


# Walks from the turn on, in circles: organisations that have something due, then each one's tags.
# Each step is one look into documents_turns; what waits behind the first is not read.
_CLAIM = (
    """
with recursive orgs as (
  select %(org)s::text as org_id, false as around, 0 as n
  union all
  select next.org_id, next.around, o.n + 1 from orgs o cross join lateral (
    (select d.org_id, o.around from documents d
      where d.org_id > o.org_id and d.due_at <= now() and d.attempts < %(max)s
      order by d.org_id limit 1)
    union all
    (select d.org_id, true from documents d
      where not o.around and d.due_at <= now() and d.attempts < %(max)s
      order by d.org_id limit 1)
    limit 1
  ) next where o.n < %(limit)s and not (next.around and next.org_id > %(org)s)
), lanes as (
  select o.org_id, o.n, walk.tag, walk.k from orgs o cross join lateral (
    with recursive tags as (
      select coalesce(%(tags)s::jsonb ->> o.org_id, '') as tag, false as around, 0 as k
      union all
      select next.tag, next.around, t.k + 1 from tags t cross join lateral (
        (select d.container_tags[1] as tag, t.around from documents d
          where d.org_id = o.org_id and d.container_tags[1] > t.tag and d.due_at <= now()
            and d.attempts < %(max)s order by d.container_tags[1] limit 1)
        union all
        (select d.container_tags[1], true from documents d
          where not t.around and d.org_id = o.org_id and d.due_at <= now()
            and d.attempts < %(max)s order by d.container_tags[1] limit 1)
        limit 1
      ) next where t.k < %(limit)s
        and not (next.around and next.tag > coalesce(%(tags)s::jsonb ->> o.org_id, ''))
    ) select tag, k from tags where k > 0
  ) walk where o.n > 0 order by walk.k, o.n limit %(limit)s
), due as materialized (
  select one.id, lanes.n, lanes.k, lanes.tag from lanes cross join lateral (
    select d.id from documents d
    where d.org_id = lanes.org_id and d.container_tags[1] = lanes.tag and d.due_at <= now()
      and d.attempts < %(max)s
    order by d.due_at limit %(limit)s / (select count(*) from lanes) for update skip locked
  ) one
)
update documents d set status = 'processing', stage = 'extracting', attempts = d.attempts + 1,
  claims = d.claims + 1, due_at = now() + %(lease)s
from due where d.id = due.id
returning """
    + COLUMNS
    + """, d.claims, d.content, d.content_hash, d.blob, d.blob_name,
  d.blob_mime, d.forced_kind, d.source_id, due.n, due.k, due.tag,
  exists (select from watchers where expires_at > now()) as watched
"""
)


def claim(
    tx: Tx, *, lease: timedelta, limit: int, max_attempts: int, turn: Turn | None = None
) -> list[Claim]:
    """Take up to `limit` documents that are due, of as many organisations and tags as have some.

    They take turns, from `turn` on, which is passed on; of each tag the longest waiting come first.
    So whoever adds one document waits for one of everybody else's, not for all. Fewer than `limit`
    are no sign that nothing is left.
    """
    turn = turn or Turn()
    rows = tx.execute(
        _CLAIM,
        {
            "lease": lease,
            "limit": limit,
            "max": max_attempts,
            "org": turn.org,
            "tags": Jsonb(turn.tags),
        },
    ).fetchall()
    for row in sorted(rows, key=lambda row: (row["n"], row["k"])):
        turn.pass_on(row["org_id"], row["tag"])
    return [Claim(read(row), row["claims"], _content(row), row["watched"]) for row in rows]


def ahead(tx: Tx, document: Document) -> int | None:
    """How many of its organisation and first tag are worked before it; None unless it waits.

    Counted up to `MOST_AHEAD`.
    """
    if document.status is not Status.QUEUED or document.due_at is None:
        return None
    row = tx.execute(
        "select count(*) as n from (select from documents where org_id = %s"
        " and container_tags[1] = %s and due_at < %s limit %s) before",
        (document.org_id, document.container_tags[0], document.due_at, MOST_AHEAD),
    ).fetchone()
    assert row is not None
    return row["n"]


def bury(tx: Tx, *, max_attempts: int) -> list[DocumentId]:
    """Fail what is due with no attempt left: such a document took its worker down each time."""
    rows = tx.execute(
        "with due as materialized"
        " (select id from documents where due_at <= now() and attempts >= %s"
        "  order by due_at limit 100 for update skip locked)"
        " update documents d set status = 'failed', stage = null, due_at = null,"
        " error_code = coalesce(d.error_code, 'worker_died'),"
        " error_message = coalesce(d.error_message,"
        "   format('the worker died while %%s it, %%s times', coalesce(d.stage, 'processing'),"
        "          d.attempts)),"
        " updated_at = now()"
        " from due where d.id = due.id returning d.id, d.org_id",
        (max_attempts,),
    ).fetchall()
    for org in sorted({row["org_id"] for row in rows}):
        _drop_stashed(tx, org, [row["id"] for row in rows if row["org_id"] == org])
    return [DocumentId(row["id"]) for row in rows]


def next_due_in(tx: Tx) -> timedelta | None:
    """How long until the next document is due; None when none ever is."""
    row = tx.execute("select min(due_at) - now() as wait from documents where due_at is not null")
    found = row.fetchone()
    return found["wait"] if found else None


def advance(tx: Tx, claim: Claim, stage: Stage, *, lease: timedelta) -> None:
    """Show progress and renew the lease; raises LeaseLost."""
    done = tx.execute(
        "update documents set stage = %s, due_at = now() + %s"
        " where id = %s and claims = %s and status = 'processing'",
        (stage, lease, claim.document.id, claim.number),
    )
    if done.rowcount == 0:
        raise LeaseLost


def renew(tx: Tx, claims: Sequence[Claim], *, lease: timedelta) -> None:
    """The heartbeat: renew the leases that are still ours."""
    # A row that is locked is being finished; waiting for it would starve the other leases.
    tx.execute(
        "update documents d set due_at = now() + %s"
        " from (select d.id from documents d"
        "       join unnest(%s::text[], %s::bigint[]) as held (id, number)"
        "         on d.id = held.id and d.claims = held.number and d.status = 'processing'"
        "       order by d.id for update of d skip locked) ours"
        " where d.id = ours.id",
        (lease, [c.document.id for c in claims], [c.number for c in claims]),
    )


def known_hashes(tx: Tx, claim: Claim, *, embedded: bool) -> set[bytes]:
    """Chunk texts of this document that the index holds; `embedded`: holds with a vector."""
    index = embedding.read(tx)
    column = sql.SQL("embedding") if index is None else index.used.column
    rows = tx.execute(
        sql.SQL(
            "select hash from entries where document_id = %s and ({} is not null or not %s)"
        ).format(column),
        (claim.document.id, embedded),
    )
    return {row["hash"] for row in rows}


def unpacked(tx: Tx, claim: Claim) -> Mapping[str, str]:
    """What an archive held when it was last read: path → SHA-256 in hexadecimal."""
    row = tx.execute(
        "select unpacked from documents where id = %s", (claim.document.id,)
    ).fetchone()
    return (row and row["unpacked"]) or {}


def stash(tx: Tx, claim: Claim, entries: Sequence[Entry], *, lease: timedelta) -> None:
    """Keep entries of a large document before it is finished; searchers do not see them yet.

    So the last transaction stays short, and a killed worker's embeddings are not lost.
    Renews the lease; raises LeaseLost.
    """
    row = tx.execute(
        "update documents set due_at = now() + %s"
        " where id = %s and claims = %s and status = 'processing' returning org_id, scope",
        (lease, claim.document.id, claim.number),
    ).fetchone()
    if row is None:
        raise LeaseLost
    delta = Counter[int]()
    _insert_entries(tx, claim, row["scope"], entries, delta)
    _count(tx, row["org_id"], delta)


def finish(
    tx: Tx,
    claim: Claim,
    extracted: Extracted,
    chunks: Sequence[Chunk],
    entries: Sequence[Entry],
    timings: Mapping[str, float],
    *,
    reused: int,
    members: Sequence[NewMember] | None = None,
) -> Changed:
    """Swap in a processed revision: searchers see the old text or the new, never half.

    `entries` are those of chunk texts that the index does not hold yet; `reused` says how many
    of the chunk texts it held when the work began. `timings` are those of the stages before; that
    of this transaction is added. `members` are those of an archive: what changed since it was last
    read is queued, or removed. Raises LeaseLost.
    """
    id = claim.document.id
    wanted = {chunk.hash for chunk in chunks}
    row = tx.execute(
        "select org_id, scope from documents"
        " where id = %s and claims = %s and status = 'processing' for no key update",
        (id, claim.number),
    ).fetchone()
    if row is None:
        raise LeaseLost
    delta = Counter[int]()
    if members is not None or _ends_archive(claim):
        _lock_memories(tx, [id, *(member.id for member in _members(tx, [id]))])
        delta.update(_unpack(tx, claim, members))
    lost = _lost_evidence(tx, claim, keep=wanted)
    removed = _drop_entries(tx, claim, keep=wanted, delta=delta)
    _insert_entries(tx, claim, row["scope"], entries, delta)
    _place(tx, claim, chunks)
    _mend_evidence(tx, claim, chunks, lost)
    done = tx.execute(
        "update documents set"
        # Newer content brought a kind of its own.
        " kind = case when revision > %(revision)s then kind else %(kind)s end,"
        " title = coalesce(%(title)s, title), text = %(text)s,"
        " indexed_revision = %(revision)s, warnings = %(warnings)s,"
        " timings = %(timings)s || jsonb_build_object('indexing',"
        "   round(extract(epoch from clock_timestamp() - now()) * 1000, 1)),"
        " status = case when revision > %(revision)s then 'queued' else 'done' end,"
        " due_at = case when revision > %(revision)s then now() end,"
        " attempts = case when revision > %(revision)s then 0 else attempts end,"
        " stage = null, error_code = null, error_message = null, updated_at = now(),"
        " chunks = %(chunks)s, embedded = %(embedded)s, reused = %(reused)s,"
        " removed = %(removed)s"
        " where id = %(id)s returning status",
        {
            "kind": extracted.kind,
            "title": extracted.title,
            "text": extracted.text,
            "revision": claim.document.revision,
            "warnings": list(extracted.warnings),
            "timings": Jsonb(dict(timings)),
            "chunks": len(chunks),
            "embedded": len(wanted) - reused,
            "reused": reused,
            "removed": removed,
            "id": id,
        },
    ).fetchone()
    assert done is not None
    if claim.document.connection_id is not None:
        new = len(wanted) - reused
        feed.processed(tx, id, claim.document.revision, texts=len(wanted), new_texts=new)
    if done["status"] == Status.QUEUED:
        db.notify(tx)
    # Last, since these rows are shared by all documents of the organisation.
    _count(tx, row["org_id"], delta)
    return Changed(len(chunks), reused, len(wanted) - reused, removed)


def retry(tx: Tx, claim: Claim, failure: Failure, after: timedelta, *, free: bool = False) -> None:
    """Put back in the queue, due after `after`; `free`: the attempt does not count.

    Content that arrived meanwhile is due at once, with all its attempts.
    """
    done = tx.execute(
        "update documents set status = 'queued', stage = null, error_code = %(code)s,"
        " error_message = %(message)s,"
        " due_at = now() + case when revision > %(revision)s then interval '0' else %(after)s end,"
        " attempts = case when revision > %(revision)s then 0"
        "                 when %(free)s then greatest(attempts - 1, 0) else attempts end"
        " where id = %(id)s and claims = %(number)s and status = 'processing'",
        {**_failed(claim, failure), "after": after, "free": free},
    )
    if done.rowcount == 0:
        raise LeaseLost


def fail(tx: Tx, claim: Claim, failure: Failure) -> None:
    """Give up on this revision, with the reason; an earlier good one stays searchable."""
    row = tx.execute(
        "update documents set stage = null, error_code = %(code)s, error_message = %(message)s,"
        " status = case when revision > %(revision)s then 'queued' else 'failed' end,"
        " due_at = case when revision > %(revision)s then now() end,"
        " attempts = case when revision > %(revision)s then 0 else attempts end,"
        " updated_at = now()"
        " where id = %(id)s and claims = %(number)s and status = 'processing' returning status",
        _failed(claim, failure),
    ).fetchone()
    if row is None:
        raise LeaseLost
    if row["status"] == Status.QUEUED:
        db.notify(tx)
    _drop_stashed(tx, claim.document.org_id, [claim.document.id])


def release(tx: Tx, claims: Sequence[Claim]) -> None:
    """Give back unfinished work at a graceful stop: due at once, the attempt does not count."""
    tx.execute(
        "with ours as materialized (select d.id from documents d"
        " join unnest(%s::text[], %s::bigint[]) as held (id, number)"
        " on d.id = held.id and d.claims = held.number and d.status = 'processing'"
        + _ORDER
        + " for update of d)"
        " update documents d set status = 'queued', stage = null, due_at = now(),"
        " attempts = greatest(d.attempts - 1, 0)"
        " from ours where d.id = ours.id",
        ([c.document.id for c in claims], [c.number for c in claims]),
    )
    db.notify(tx)


def drop_entries(tx: Tx, org: OrgId, id: DocumentId, hashes: Sequence[bytes]) -> None:
    """Take entries out of the index, with their counts; for a mend."""
    delta = Counter[int]()
    rows = tx.execute(
        "delete from entries where document_id = %s and hash = any(%s) returning terms",
        (id, list(hashes)),
    )
    for row in rows:
        delta.subtract(row["terms"])
    _count(tx, org, delta)


def reindex(tx: Tx) -> int:
    """Queue every document anew and forget all vectors; for a change of the embedding model."""
    tx.execute(
        "update entries set embedding = null, embedding_b = null"
        " where embedding is not null or embedding_b is not null"
    )
    done = tx.execute(
        "update documents set status = 'queued', stage = null, due_at = now(), attempts = 0"
        " where status in ('done', 'failed') and source <> %s",
        (DIRECT,),
    )
    db.notify(tx)
    return done.rowcount


# --- blobs that nobody names any more ----------------------------------------------------------


def hold_blobs(tx: Tx) -> bool:
    """Keep all blobs that a document names now until this session ends; False: another does."""
    row = tx.execute(
        "select pg_try_advisory_lock(hashtextextended('recollect.blobs', 0)) as held"
    ).fetchone()
    return bool(row and row["held"])


def blobs_may_go(tx: Tx) -> bool:
    """Whether nobody holds the blobs, for a backup that has yet to copy them."""
    row = tx.execute(
        "select pg_try_advisory_xact_lock_shared(hashtextextended('recollect.blobs', 0)) as free"
    ).fetchone()
    return bool(row and row["free"])


def doomed_blobs(tx: Tx, limit: int = 100) -> list[str]:
    """Keys of blobs whose document is gone or has new content, and that may go now."""
    if not blobs_may_go(tx):
        return []
    rows = tx.execute("select key from doomed_blobs order by doomed_at limit %s", (limit,))
    return [row["key"] for row in rows]


def forget_blobs(tx: Tx, keys: Sequence[str]) -> None:
    """Their bytes are gone from the store."""
    tx.execute("delete from doomed_blobs where key = any(%s)", (list(keys),))


def known_blobs(tx: Tx, keys: Sequence[str]) -> set[str]:
    """Those of the keys that must stay: a document names them, or somebody holds them all."""
    if not blobs_may_go(tx):
        return set(keys)
    rows = tx.execute("select blob from documents where blob = any(%s)", (list(keys),))
    return {row["blob"] for row in rows}


# --- rows --------------------------------------------------------------------------------------


def read(row: Mapping[str, Any]) -> Document:
    """A row with the columns of `COLUMNS` (and `text`, if it was asked for) as a value."""
    failure = None
    if row["error_message"] is not None:
        failure = Failure(row["error_code"], row["error_message"])
    changed = None
    if row["indexed_revision"] is not None:
        changed = Changed(row["chunks"], row["reused"], row["embedded"], row["removed"])
    return Document(
        id=DocumentId(row["id"]),
        org_id=OrgId(row["org_id"]),
        custom_id=row["custom_id"],
        container_tags=row["container_tags"],
        kind=row["kind"],
        title=row["title"],
        url=row["url"],
        source=row["source"],
        filepath=row["filepath"],
        metadata=row["metadata"],
        status=Status(row["status"]),
        stage=Stage(row["stage"]) if row["stage"] else None,
        failure=failure,
        revision=row["revision"],
        indexed_revision=row["indexed_revision"],
        attempts=row["attempts"],
        due_at=row["due_at"],
        changed=changed,
        timings=row["timings"],
        warnings=row["warnings"],
        document_date=row["document_date"],
        task_type=row["task_type"],
        connection_id=ConnectionId(row["connection_id"]) if row["connection_id"] else None,
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        text=row.get("text"),
        archive_id=DocumentId(row["archive_id"]) if row["archive_id"] else None,
        archive_path=row["archive_path"],
        members=row["members"],
    )


def _content(row: Mapping[str, Any]) -> Content:
    blob = None
    if row["blob"] is not None:
        blob = StoredBlob(row["blob"], row["blob_name"], row["blob_mime"])
    return Content(
        kind=row["kind"],
        hash=row["content_hash"],
        text=row["content"],
        url=row["url"],
        blob=blob,
        forced=row["forced_kind"],
        source_id=row["source_id"],
    )


_INSERT = (
    "insert into documents as d (id, org_id, custom_id, container_tags, scope, kind, title,"
    " url, source, filepath, metadata, document_date, task_type, dreaming, content,"
    " content_hash, blob, blob_name, blob_mime, forced_kind, source_id, connection_id,"
    " archive_id, archive_path)"
    " values (%(id)s, %(org)s, %(custom_id)s, %(tags)s, %(scope)s, %(kind)s, %(title)s,"
    " %(url)s, %(source)s, %(filepath)s, %(metadata)s, %(document_date)s, %(task_type)s,"
    " %(dreaming)s, %(text)s, %(hash)s, %(blob)s, %(blob_name)s, %(blob_mime)s, %(forced)s,"
    " %(source_id)s, %(connection)s, %(archive)s, %(archive_path)s)"
)


def _insert(tx: Tx, org: OrgId, new: NewDocument, id: DocumentId) -> Document:
    row = tx.execute(_INSERT + " returning " + COLUMNS, _row(org, new, id)).fetchone()
    assert row is not None
    db.notify(tx)
    return read(row)


def _row(org: OrgId, new: NewDocument, id: DocumentId) -> dict[str, object]:
    return {
        "id": id,
        "org": org,
        "custom_id": new.custom_id,
        "tags": list(new.tags),
        "scope": scope(org, new.tags),
        "title": new.title,
        "source": new.source,
        "filepath": new.filepath,
        "metadata": None if new.metadata is None else Jsonb(dict(new.metadata)),
        "document_date": new.document_date,
        "task_type": new.task_type or "memory",
        "dreaming": new.dreaming or "dynamic",
        "connection": new.connection_id,
        "archive": new.archive_id,
        "archive_path": new.archive_path,
        **_stored(new.content),
    }


def _add_again(tx: Tx, row: Mapping[str, Any], new: NewDocument) -> Document:
    tags = [*row["container_tags"], *(t for t in new.tags if t not in row["container_tags"])]
    change = DocumentChange(
        tags=tags if new.tagged else None,
        filepath=new.filepath,
        metadata=new.metadata,
        document_date=new.document_date,
        task_type=new.task_type,
        dreaming=new.dreaming,
    )
    document = read(row)
    _refuse_direct(document)
    _count(tx, document.org_id, _set_details_of_all(tx, document, change))
    _accept(tx, document.id, _merged(_content(row), new, recent=row["recent"]), revive=False)
    return get(tx, Tenant(document.org_id), document.id)


def _refuse_direct(document: Document) -> None:
    if document.source == DIRECT:
        raise BadRequestError(
            "content: this document only bears memories that were added directly;"
            " change those with PATCH /v4/memories"
        )


def _merged(old: Content, new: NewDocument, *, recent: bool) -> Content:
    """What the document's content becomes: texts grow or are edited, everything else replaces."""
    given = new.content
    if old.text is None or given.text is None or old.url is not None or given.url is not None:
        return given
    return text_content(new.join(old.text, given.text, recent), kind=given.kind)


def text_content(text: str, *, kind: str = "text") -> Content:
    return Content(kind=kind, hash=hashlib.sha256(text.encode()).digest(), text=text)


def _accept(tx: Tx, id: DocumentId, content: Content, *, revive: bool) -> None:
    """Take new content, or, when it is the same, repair what failed or found nothing."""
    row = tx.execute(
        "update documents d set revision = d.revision + 1, attempts = 0,"
        " status = case when d.status = 'processing' then d.status else 'queued' end,"
        " due_at = case when d.status = 'processing' then d.due_at else now() end,"
        " error_code = null, error_message = null, updated_at = now(),"
        " kind = %(kind)s, url = %(url)s, content = %(text)s, content_hash = %(hash)s,"
        " blob = %(blob)s, blob_name = %(blob_name)s, blob_mime = %(blob_mime)s,"
        " forced_kind = %(forced)s, source_id = %(source_id)s"
        " from (select id, blob from documents where id = %(id)s for update) old"
        " where d.id = old.id and ((d.content_hash, d.forced_kind)"
        "   is distinct from (%(hash)s, %(forced)s::text)"
        "   or (%(revive)s and d.status = 'failed'))"
        " returning old.blob",
        {"id": id, "revive": revive, **_stored(content)},
    ).fetchone()
    if row is not None:
        _doom(tx, [row["blob"]])
        db.notify(tx)
        return
    if content.blob is not None:
        _doom(tx, [content.blob.key])
    again = tx.execute(
        "update documents set status = 'queued', due_at = now(), attempts = 0,"
        " error_code = null, error_message = null, updated_at = now()"
        " where id = %s and (status = 'failed' or (status = 'done' and chunks = 0))",
        (id,),
    )
    if again.rowcount:
        db.notify(tx)


def _set_details(tx: Tx, document: Document, change: DocumentChange) -> Counter[int]:
    """Everything of a change but the content; returns by how much `term_counts` change."""
    tags = None if change.tags is None else list(change.tags)
    if tags == list(document.container_tags):
        tags = None
    # customId and tags in one statement: a state between may collide with another document.
    row = tx.execute(
        "update documents d set custom_id = coalesce(%(custom_id)s, d.custom_id),"
        " container_tags = coalesce(%(tags)s, d.container_tags),"
        " scope = coalesce(%(scope)s, d.scope),"
        " filepath = coalesce(%(filepath)s, d.filepath),"
        " metadata = coalesce(%(metadata)s, d.metadata),"
        " document_date = coalesce(%(document_date)s, d.document_date),"
        " task_type = coalesce(%(task_type)s, d.task_type),"
        " dreaming = coalesce(%(dreaming)s, d.dreaming), updated_at = now()"
        " from (select id, scope from documents where id = %(id)s) old"
        " where d.id = old.id and num_nonnulls(%(custom_id)s::text, %(tags)s::text[],"
        "   %(filepath)s::text, %(metadata)s::jsonb, %(document_date)s::timestamptz,"
        "   %(task_type)s::text, %(dreaming)s::text) > 0 returning old.scope",
        {
            "id": document.id,
            "custom_id": change.custom_id,
            "tags": tags,
            "scope": scope(document.org_id, tags) if tags else None,
            "filepath": change.filepath,
            "metadata": None if change.metadata is None else Jsonb(dict(change.metadata)),
            "document_date": change.document_date,
            "task_type": change.task_type,
            "dreaming": change.dreaming,
        },
    ).fetchone()
    delta = Counter[int]()
    if tags and row is not None:
        old, new = row["scope"], scope(document.org_id, tags)
        moved = tx.execute(
            "update entries set terms = %s::int4[] || terms[%s:] where document_id = %s",
            (new, len(old) + 1, document.id),
        ).rowcount
        delta.update(dict.fromkeys(new, moved))
        delta.subtract(dict.fromkeys(old, moved))
    return delta


def _set_details_of_all(tx: Tx, document: Document, change: DocumentChange) -> Counter[int]:
    """The same with the members of an archive; returns by how much `term_counts` change."""
    shared = replace(change, content=None, custom_id=None)
    members = [] if shared == DocumentChange() else _members(tx, [document.id])
    if change.tags is not None and list(change.tags) != list(document.container_tags):
        _lock_memories(tx, [document.id, *(member.id for member in members)])
    delta = _set_details(tx, document, change)
    if not members:
        return delta
    tags = None if change.tags is None else list(change.tags)
    new = None if tags is None else scope(document.org_id, tags)
    tx.execute(
        "update documents set container_tags = coalesce(%(tags)s, container_tags),"
        " scope = coalesce(%(scope)s, scope),"
        " filepath = coalesce(%(filepath)s || '/' || archive_path, filepath),"
        " metadata = coalesce(%(metadata)s, metadata),"
        " document_date = coalesce(%(document_date)s, document_date),"
        " task_type = coalesce(%(task_type)s, task_type),"
        " dreaming = coalesce(%(dreaming)s, dreaming), updated_at = now() where id = any(%(ids)s)",
        {
            "tags": tags,
            "scope": new,
            "filepath": None if change.filepath is None else change.filepath.rstrip("/"),
            "metadata": None if change.metadata is None else Jsonb(dict(change.metadata)),
            "document_date": change.document_date,
            "task_type": change.task_type,
            "dreaming": change.dreaming,
            "ids": [member.id for member in members],
        },
    )
    if new is None:
        return delta
    old = {
        member.id: scope(document.org_id, member.container_tags)
        for member in members
        if list(member.container_tags) != tags
    }
    rows = tx.execute(
        "update entries e set terms = %s::int4[] || e.terms[m.skipped:]"
        " from unnest(%s::text[], %s::int[]) as m (id, skipped) where e.document_id = m.id"
        " returning e.document_id",
        (new, list(old), [len(numbers) + 1 for numbers in old.values()]),
    )
    for row in rows:
        delta.update(new)
        delta.subtract(old[row["document_id"]])
    return delta


def _members(tx: Tx, archives: Sequence[DocumentId]) -> list[Document]:
    """Locked."""
    rows = tx.execute(
        "select " + COLUMNS + " from documents d where d.archive_id is not null"
        " and d.archive_id = any(%s) order by d.id for update",
        (list(archives),),
    )
    return [read(row) for row in rows]


def _within(filepath: str | None, path: str) -> str | None:
    """The label of a member: below that of its archive."""
    return None if filepath is None else f"{filepath.rstrip('/')}/{path}"


def _ends_archive(claim: Claim) -> bool:
    """Whether what it was unpacked from is not its content any more, if it turns out to be none.

    The text of an archive that was left by its connection stands for the same archive.
    """
    document, content = claim.document, claim.content
    fetched = content.url is not None and content.source_id is None
    return document.members is not None and (
        fetched or document.revision != document.indexed_revision
    )


def _unpack(tx: Tx, claim: Claim, members: Sequence[NewMember] | None) -> Counter[int]:
    """Make documents of what changed in an archive; returns by how much `term_counts` change.

    Compared is with what it held before, not with the documents: one that was deleted or changed
    here stays so until the archive brings something else for its path.
    """
    id, org = claim.document.id, claim.document.org_id
    there = {member.archive_path: member.id for member in _members(tx, [id])}
    row = tx.execute(
        "select container_tags, source, filepath, metadata, document_date, task_type, dreaming,"
        " unpacked from documents where id = %s",
        (id,),
    ).fetchone()
    assert row is not None
    before: Mapping[str, str] = row["unpacked"] or {}
    held = {member.path: member.content.hash.hex() for member in members or ()}
    gone = sorted(member for path, member in there.items() if path not in held)
    delta = _take_out(tx, org, gone) if gone else Counter[int]()
    made: list[dict[str, object]] = []
    for member in members or ():
        path, content = member.path, member.content
        if content.hash.hex() == before.get(path):
            continue
        assert content.blob is not None
        if path in there:
            _accept(tx, there[path], content, revive=False)
            continue
        new = NewDocument(
            content,
            row["container_tags"],
            title=content.blob.name,
            source=row["source"],
            filepath=_within(row["filepath"], path),
            metadata=row["metadata"],
            document_date=row["document_date"],
            task_type=row["task_type"],
            dreaming=row["dreaming"],
            archive_id=id,
            archive_path=path,
        )
        made.append(_row(org, new, DocumentId(random_id())))
    if made:
        tx.cursor().executemany(_INSERT, made)
        db.notify(tx)
    tx.execute(
        "update documents set unpacked = %s where id = %s",
        (None if members is None else Jsonb(held), id),
    )
    return delta


def _remove(tx: Tx, org: OrgId, ids: Sequence[DocumentId], *, by: KeyId | None = None) -> None:
    _count(tx, org, _take_out(tx, org, ids, by=by))


def _take_out(
    tx: Tx, org: OrgId, ids: Sequence[DocumentId], *, by: KeyId | None = None
) -> Counter[int]:
    """Remove documents with their members, with a receipt; returns by how much `term_counts`
    change."""
    ids = list(dict.fromkeys([*ids, *(member.id for member in _members(tx, ids))]))
    _lock_memories(tx, ids)
    delta = Counter[int]()
    rows = tx.execute(
        "select number, count(*) as n from entries, unnest(terms) as number"
        " where document_id = any(%s) group by number",
        (list(ids),),
    )
    for row in rows:
        delta[row["number"]] -= row["n"]
    gone = tx.execute(
        "delete from documents where org_id = %s and id = any(%s) returning id, blob, chunks",
        (org, list(ids)),
    ).fetchall()
    _doom(tx, [row["blob"] for row in gone])
    if gone:
        _receipt(tx, org, gone, by)
    return delta


def _receipt(tx: Tx, org: OrgId, gone: Sequence[Mapping[str, Any]], by: KeyId | None) -> None:
    """Note that documents were deleted, without a word of them: their ids are random."""
    id = random_id()
    if by is not None and len(gone) > 1:
        audit.record(tx, "documents.deleted", id, org=org, documents=len(gone))
    tx.execute(
        "with receipt as (insert into receipts (id, org_id, key_id, documents, chunks, files)"
        "  values (%(id)s, %(org)s, %(key)s, %(documents)s, %(chunks)s, %(files)s) returning id)"
        " insert into receipt_documents (document, receipt_id)"
        " select sha256(convert_to(document, 'UTF8')), receipt.id"
        " from receipt, unnest(%(ids)s::text[]) as document",
        {
            "id": id,
            "org": org,
            "key": by,
            "documents": len(gone),
            "chunks": sum(row["chunks"] for row in gone),
            "files": sum(row["blob"] is not None for row in gone),
            "ids": [row["id"] for row in gone],
        },
    )


def _drop_entries(tx: Tx, claim: Claim, *, keep: set[bytes], delta: Counter[int]) -> int:
    if _is_first(claim):
        return 0
    rows = tx.execute(
        "delete from entries where document_id = %s and not hash = any(%s) returning terms",
        (claim.document.id, list(keep)),
    ).fetchall()
    for row in rows:
        delta.subtract(row["terms"])
    return len(rows)


def _drop_stashed(tx: Tx, org: OrgId, ids: Sequence[DocumentId]) -> None:
    """Entries that no chunk places belong to a revision that will never be finished."""
    delta = Counter[int]()
    rows = tx.execute(
        "delete from entries e where e.document_id = any(%s) and not exists"
        " (select 1 from chunks c where c.document_id = e.document_id and c.hash = e.hash)"
        " returning e.terms",
        (list(ids),),
    )
    for row in rows:
        delta.subtract(row["terms"])
    _count(tx, org, delta)


def _is_first(claim: Claim) -> bool:
    """Whether nobody claimed the document before: the index holds only what this claim put in."""
    return claim.number == 1


def _insert_entries(
    tx: Tx, claim: Claim, scope: Sequence[int], entries: Sequence[Entry], delta: Counter[int]
) -> None:
    """Put entries into the index; one that is there already only gets its vector anew."""
    if not entries:
        return
    id = claim.document.id
    index = embedding.hold(tx)
    lacking = 0
    if not _is_first(claim):
        replaced = tx.execute(
            "delete from entries where document_id = %s and hash = any(%s) returning terms",
            (id, [entry.hash for entry in entries]),
        )
        for row in replaced:
            delta.subtract(row["terms"])
    # Binary: to write the numbers of vectors out takes longer than to index them.
    with tx.cursor().copy(
        "copy entries (document_id, hash, text, terms, weights, embedding, embedding_b)"
        " from stdin (format binary)"
    ) as copy:
        copy.set_types(["text", "bytea", "text", "int4[]", "sparsevec", "halfvec", "halfvec"])
        for entry in entries:
            numbers = [*scope, *entry.terms]
            delta.update(numbers)
            weights = {number - 1: weight for number, weight in entry.terms.items()}
            vectors = embedding.split(index, entry.vector)
            lacking += entry.vector is not None and embedding.lacks(index, vectors)
            copy.write_row(
                (
                    id,
                    entry.hash,
                    entry.text,
                    numbers,
                    SparseVector(weights, TERM_SPACE),
                    *vectors,
                )
            )
    if lacking:
        embedding.note(tx, "entries", id, lacking)


def _place(tx: Tx, claim: Claim, chunks: Sequence[Chunk]) -> None:
    id = claim.document.id
    if not _is_first(claim):
        tx.execute("delete from chunks where document_id = %s", (id,))
    with tx.cursor().copy(
        "copy chunks (document_id, position, start_at, end_at, hash, place) from stdin"
    ) as copy:
        for chunk in chunks:
            place = Jsonb(dict(chunk.place))
            copy.write_row((id, chunk.position, chunk.start, chunk.end, chunk.hash, place))


@dataclass(frozen=True, slots=True)
class _Lost:
    """What a memory was drawn from, in a chunk that is about to go."""

    memory: str
    quote: str


def _lost_evidence(tx: Tx, claim: Claim, *, keep: set[bytes]) -> list[_Lost]:
    if _is_first(claim):
        return []
    _lock_memories(tx, [claim.document.id], keep=keep)
    rows = tx.execute(
        "select s.memory_id as memory, substr(e.text, s.start_at + 1, s.end_at - s.start_at)"
        " as quote from memory_sources s"
        " join entries e on e.document_id = s.document_id and e.hash = s.hash"
        " where s.document_id = %s and not s.hash = any(%s) order by s.memory_id",
        (claim.document.id, list(keep)),
    )
    return [_Lost(row["memory"], row["quote"]) for row in rows]


def _lock_memories(tx: Tx, ids: Sequence[str], *, keep: Collection[bytes] = ()) -> None:
    """Those that rest on these documents, but for their chunk texts `keep`, with all versions.

    Who takes evidence away may end a memory, which changes the versions before and after it (see
    the migration `0007_memories`). So that two of them never wait for each other, everybody first
    locks documents by their ids, then whole chains: by their first version, then by version.
    """
    if not ids:
        return
    tx.execute(
        "with touched as materialized (select distinct coalesce(m.root_id, m.id) as root"
        "  from memory_sources s join memories m on m.id = s.memory_id"
        "  where s.document_id = any(%s) and not s.hash = any(%s::bytea[]))"
        " select from memories m where m.id in (select root from touched"
        "  union select v.id from touched t join memories v on v.root_id = t.root)"
        " order by coalesce(m.root_id, m.id), m.version, m.id for update",
        (list(ids), list(keep)),
    )


def _mend_evidence(tx: Tx, claim: Claim, chunks: Sequence[Chunk], lost: Sequence[_Lost]) -> None:
    """Move evidence along that still stands in the text; with the rest, its memories go.

    What is appended changes the chunk before it, and that is no reason to forget what it says.
    """
    if _is_first(claim):
        return
    id, there = claim.document.id, [chunk.hash for chunk in chunks]
    for one in lost:
        found = next((chunk for chunk in chunks if one.quote in chunk.text), None)
        if found is not None:
            start = found.text.index(one.quote)
            tx.execute(
                "insert into memory_sources (memory_id, document_id, hash, start_at, end_at)"
                " values (%s, %s, %s, %s, %s) on conflict do nothing",
                (one.memory, id, found.hash, start, start + len(one.quote)),
            )
    # Documents that only bear memories are never finished, so all hashes are those of chunks.
    for table in ("memory_sources", "memory_reads"):
        tx.execute(
            sql.SQL("delete from {} where document_id = %s and not hash = any(%s)").format(
                sql.Identifier(table)
            ),
            (id, there),
        )


def _count(tx: Tx, org: OrgId, delta: Mapping[int, int]) -> None:
    changed = {number: change for number, change in delta.items() if change}
    if not changed:
        return
    # In the order of the numbers, and once a transaction, so that two cannot wait for each other.
    tx.execute(
        "insert into term_counts (org_id, number, entries)"
        " select %s, number, change from unnest(%s::int4[], %s::int4[]) as t (number, change)"
        " order by number"
        " on conflict (org_id, number) do update"
        " set entries = term_counts.entries + excluded.entries",
        (org, list(changed), list(changed.values())),
    )
    fewer = [number for number, change in changed.items() if change < 0]
    if fewer:
        tx.execute(
            "delete from term_counts where org_id = %s and number = any(%s) and entries <= 0",
            (org, fewer),
        )


def _doom(tx: Tx, keys: Sequence[str | None]) -> None:
    named = [key for key in keys if key is not None]
    if named:
        tx.execute(
            "insert into doomed_blobs (key) select unnest(%s::text[]) on conflict do nothing",
            (named,),
        )
        db.notify(tx)


def _in_flight_twin(tx: Tx, tenant: Tenant, new: NewDocument) -> Document | None:
    """The same request a moment ago, still unfinished: a client's blind retry.

    The same content under another name or path is no retry.
    """
    _lock(tx, tenant.id, "content", new.content.hash.hex())
    row = tx.execute(
        "select " + COLUMNS + " from documents d"
        " where d.org_id = %(org)s and d.content_hash = %(hash)s and d.due_at is not null"
        " and d.custom_id is null and d.container_tags = %(tags)s"
        " and (d.metadata, d.filepath, d.blob_name, d.document_date) is not distinct from"
        " (%(metadata)s::jsonb, %(filepath)s::text, %(name)s::text, %(date)s::timestamptz)"
        " and d.task_type = %(task)s and d.source = %(source)s and d.revision = 1"
        " and d.created_at > now() - interval '10 seconds' limit 1",
        {
            "org": tenant.id,
            "hash": new.content.hash,
            "tags": list(new.tags),
            "metadata": None if new.metadata is None else Jsonb(dict(new.metadata)),
            "filepath": new.filepath,
            "name": new.content.blob and new.content.blob.name,
            "date": new.document_date,
            "task": new.task_type or "memory",
            "source": new.source,
        },
    ).fetchone()
    if row is not None and new.content.blob is not None:
        _doom(tx, [new.content.blob.key])
    return None if row is None else read(row)


def _locked(tx: Tx, tenant: Tenant, id: str, change: DocumentChange) -> Document:
    """The document with its row locked, and before it, in the order of `add`, its customIds."""
    if change.custom_id is None and not change.tags:
        return get(tx, tenant, id, lock=True)
    found = get(tx, tenant, id)
    for custom_id in sorted({name for name in (found.custom_id, change.custom_id) if name}):
        _lock(tx, tenant.id, "customId", custom_id)
    document = get(tx, tenant, found.id, lock=True)
    if document.custom_id != found.custom_id:
        raise ConflictError("Conflict", f"the customId of {found.id} was changed at this moment")
    return document


def _with_custom_id(
    tx: Tx, tenant: Tenant, custom_id: str, tag: str | None
) -> Mapping[str, Any] | None:
    """The row that a customId means, locked; the customId is locked already."""
    named = tx.execute(
        "select d.id, d.container_tags from documents d where "
        + _REACH
        + " and d.custom_id = %(custom_id)s"
        " and (%(tag)s::text is null or d.container_tags @> array[%(tag)s::text])"
        " order by (d.container_tags[1] = %(tag)s) desc nulls last limit 2",
        {**_reach(tenant), "custom_id": custom_id, "tag": tag},
    ).fetchall()
    if not named:
        return None
    if len(named) > 1 and named[0]["container_tags"][0] != tag:
        raise _ambiguous(custom_id)
    return tx.execute(
        "select " + COLUMNS + ", d.content, d.content_hash, d.blob, d.blob_name, d.blob_mime,"
        " d.forced_kind, d.source_id,"
        " d.due_at is not null or d.updated_at > now() - interval '10 seconds' as recent"
        " from documents d where d.id = %s for update",
        (named[0]["id"],),
    ).fetchone()


_FILEPATH = (
    "case when right(%(filepath)s, 1) = '/' then starts_with(d.filepath, %(filepath)s)"
    " else d.filepath = %(filepath)s end"
)


def condition(tenant: Tenant, query: DocumentQuery) -> tuple[sql.Composable, dict[str, object]]:
    """A boolean SQL expression over `documents d` with its parameters; never another tenant's."""
    parts: list[sql.Composable] = [sql.SQL(_REACH)]
    parameters: dict[str, object] = {**_reach(tenant)}
    if query.tags:  # finds them by the index; what follows tells the few whose numbers are alike
        parts.append(sql.SQL("d.scope @> %(scope)s"))
        parameters["scope"] = sought(tenant.id, query.tags)
    whole = [tag for tag in query.tags if not tag.endswith(BELOW)]
    if whole:
        parts.append(sql.SQL("d.container_tags @> %(tags)s::text[]"))
        parameters["tags"] = whole
    for number, tag in enumerate(tag for tag in query.tags if tag.endswith(BELOW)):
        parts.append(
            sql.SQL(
                "exists (select from unnest(d.container_tags) as tag (name)"
                " where starts_with(tag.name, {}))"
            ).format(sql.Placeholder(f"below{number}"))
        )
        parameters[f"below{number}"] = tag.removesuffix("*")
    if query.filepath is not None:
        parts.append(sql.SQL(_FILEPATH))
        parameters["filepath"] = query.filepath
    if query.archive is not None:
        parts.append(sql.SQL("d.archive_id = %(archive)s"))
        parameters["archive"] = query.archive
    if query.id is not None:
        parts.append(sql.SQL("d.id = %(id)s"))
        parameters["id"] = query.id
    if query.statuses:
        parts.append(sql.SQL("d.status = any(%(statuses)s)"))
        parameters["statuses"] = list(query.statuses)
    if query.connections is not None:
        parts.append(sql.SQL("d.connection_id = any(%(connections)s)"))
        parameters["connections"] = list(query.connections)
    if query.touched_within is not None:
        parts.append(sql.SQL("d.updated_at > now() - %(touched_within)s"))
        parameters["touched_within"] = query.touched_within
    if query.filter is not None:
        compiled, values = compile_filter(query.filter, sql.SQL("d.metadata"))
        parts.append(compiled)
        parameters |= values
    return sql.SQL(" and ").join(parts), parameters


def scope(org: OrgId, tags: Sequence[str]) -> list[int]:
    """The numbers that a document of these tags carries in the index: of the organisation, of
    each tag, and of what tags begin with (`team:*` for `team:a`). No number comes twice.
    """
    above = [
        tag[:end] + BELOW for tag in tags for end in range(1, len(tag)) if tag[end] == BELOW[0]
    ]
    return sought(org, [*tags, *above])


def sought(org: OrgId, tags: Sequence[str]) -> list[int]:
    """The numbers by which documents are found that carry all of these tags or `team:*`."""
    numbers = [terms.org_number(org), *(terms.tag_number(org, tag) for tag in tags)]
    return list(dict.fromkeys(numbers))


def _stored(content: Content) -> dict[str, object]:
    blob = content.blob
    return {
        "kind": content.kind,
        "url": content.url,
        "text": content.text,
        "hash": content.hash,
        "blob": blob and blob.key,
        "blob_name": blob and blob.name,
        "blob_mime": blob and blob.mime,
        "forced": content.forced,
        "source_id": content.source_id,
    }


def _failed(claim: Claim, failure: Failure) -> dict[str, object]:
    return {
        "id": claim.document.id,
        "number": claim.number,
        "revision": claim.document.revision,
        "code": failure.code,
        "message": storable(failure.message)[:2000],
    }


def _reach(tenant: Tenant) -> dict[str, object]:
    return {"org": tenant.id, "reach": None if tenant.tags is None else list(tenant.tags)}


def _lock(tx: Tx, org: OrgId, what: str, name: str) -> None:
    tx.execute("select pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"{what} {org} {name}",))


def _unknown(id: str) -> NotFoundError:
    return NotFoundError("Document not found", f"no document {id!r}")


def _ambiguous(custom_id: str) -> ConflictError:
    return ConflictError(
        "Ambiguous customId",
        f"several documents have the customId {custom_id!r}; name the containerTag, or use the id",
    )
