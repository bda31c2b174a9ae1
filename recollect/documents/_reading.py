"""Reading documents."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from psycopg import sql

from recollect.db import Tx, tenancy
from recollect.documents import _counts
from recollect.documents._asked import DocumentQuery
from recollect.documents._rows import (
    BELOW,
    COLUMNS,
    NEWEST,
    ORDER,
    REACH,
    TEXT,
    ambiguous,
    read,
    sought,
    unknown,
)
from recollect.documents.filters import compile as compile_filter
from recollect.documents.filters import spellings
from recollect.errors import NotFoundError, RequestError
from recollect.model import (
    Chunk,
    ConnectionId,
    Document,
    DocumentId,
    OrgId,
    Page,
    Status,
    StoredBlob,
    Tenant,
)


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


def get(
    tx: Tx,
    tenant: Tenant,
    id: str,
    *,
    with_text: bool = False,
    newest: bool = False,
    lock: bool = False,
) -> Document:
    """By id, else by customId, with those of its tags that the tenant may touch; `with_text` the
    published text, `newest` the newest that was accepted.

    Raises NotFoundError, AmbiguousError for a customId of several.
    """
    return read(row_of(tx, tenant, id, with_text=with_text, newest=newest, lock=lock), tenant)


def row_of(
    tx: Tx,
    tenant: Tenant,
    id: str,
    *,
    with_text: bool = False,
    newest: bool = False,
    lock: bool = False,
) -> Mapping[str, Any]:
    """As `get`, as it is stored: with all of its tags."""
    rows = tx.execute(
        "select "
        + COLUMNS
        + (NEWEST if newest else TEXT if with_text else "")
        + " from documents d where "
        + REACH
        + " and (d.id = %(id)s or d.custom_id = %(id)s)"
        " order by (d.id = %(id)s) desc, (d.container_tags[1] = any(%(reach)s::text[])) desc"
        " nulls last limit 2" + (" for update" if lock else ""),
        {**tenancy.bounds(tenant), "id": id},
    ).fetchall()
    if not rows:
        raise unknown(id)
    if len(rows) > 1 and rows[0]["id"] != id and not _is_of_one_tag(tenant, rows[0]):
        raise ambiguous(id)
    return rows[0]


def _is_of_one_tag(tenant: Tenant, row: Mapping[str, Any]) -> bool:
    """Whether the tenant has one tag, and the row's customId is of that tag: no other has it."""
    return tenant.tags is not None and list(tenant.tags) == row["container_tags"][:1]


def named(
    tx: Tx, tenant: Tenant, ids: Sequence[str], *, inside: str | None = None, lock: bool = False
) -> tuple[dict[str, DocumentId], dict[str, RequestError]]:
    """What each of the ids, or customIds, means; and why others mean nothing.

    `inside`: only what carries this tag is known.
    """
    rows = tx.execute(
        "select d.id, d.custom_id, d.container_tags[1] = %(inside)s as own from documents d where "
        + REACH
        + " and (%(inside)s::text is null or d.container_tags @> array[%(inside)s::text])"
        + " and (d.id = any(%(ids)s) or d.custom_id = any(%(ids)s))"
        + ORDER
        + (" for update" if lock else ""),
        {**tenancy.bounds(tenant), "ids": list(ids), "inside": inside},
    ).fetchall()
    known = {row["id"] for row in rows}
    called: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        called.setdefault(row["custom_id"], []).append(row)
    found: dict[str, DocumentId] = {}
    refused: dict[str, RequestError] = {}
    for id in dict.fromkeys(ids):
        so = called.get(id, [])
        # Of several in a tag, at most one goes by the customId there.
        meant = [row for row in so if row["own"]] or so
        if id in known:
            found[id] = DocumentId(id)
        elif len(meant) == 1:
            found[id] = DocumentId(meant[0]["id"])
        else:
            refused[id] = ambiguous(id) if meant else unknown(id)
    return found, refused


def get_named(tx: Tx, tenant: Tenant, ids: Sequence[str], *, inside: str) -> dict[str, Document]:
    """The documents of the tag `inside` that ids, or customIds, mean; unknown ones are left out."""
    meant, _ = named(tx, tenant, ids, inside=inside)
    rows = tx.execute(
        "select " + COLUMNS + " from documents d where " + REACH + " and d.id = any(%(ids)s)",
        {**tenancy.bounds(tenant), "ids": list(meant.values())},
    )
    found = {row["id"]: read(row, tenant) for row in rows}
    return {name: found[id] for name, id in meant.items() if id in found}


def text_sizes(tx: Tx, tenant: Tenant, ids: Sequence[DocumentId]) -> dict[DocumentId, int]:
    """Bytes of the texts that `texts` and `get` read, at most, without reading them."""
    rows = tx.execute(
        "select d.id, coalesce(greatest(case when d.indexed_revision is not null then"
        "  octet_length(d.text) end, octet_length(d.content)), 0) as size from documents d where "
        + REACH
        + " and d.id = any(%(ids)s)",
        {**tenancy.bounds(tenant), "ids": list(ids)},
    )
    return {DocumentId(row["id"]): row["size"] for row in rows}


def texts(
    tx: Tx,
    tenant: Tenant,
    found: Sequence[Document],
    *,
    changed: bool = False,
    newest: bool = False,
) -> dict[DocumentId, str | None]:
    """The published texts, or the `newest` that were accepted, of documents that were found before;
    `changed`: also of those that changed since."""
    rows = tx.execute(
        "select d.id" + (NEWEST if newest else TEXT) + " from"
        " unnest(%(ids)s::text[], %(times)s::timestamptz[]) as f (id, updated_at)"
        " join documents d on d.id = f.id and (%(changed)s or d.updated_at = f.updated_at)"
        " where " + REACH,
        {
            **tenancy.bounds(tenant),
            "ids": [one.id for one in found],
            "times": [one.updated_at for one in found],
            "changed": changed,
        },
    )
    return {DocumentId(row["id"]): row["text"] for row in rows}


def find(tx: Tx, tenant: Tenant, query: DocumentQuery) -> Page[Document]:
    """One page of documents; `total` counts all that match."""
    matching, parameters = condition(tenant, query)
    order = sql.SQL("d.updated_at" if query.sort == "updated_at" else "d.created_at")
    direction = sql.SQL("desc" if query.descending else "asc")
    total = _counts.kept(tx, tenant, query) or _count(tx, matching, parameters)
    rows = tx.execute(
        sql.SQL(
            # Pages before are passed over in the index, without reading their documents.
            "select {columns} from (select d.id from documents d where {condition} {ordered}"
            "  limit %(limit)s offset %(offset)s) page join documents d on d.id = page.id {ordered}"
        ).format(
            columns=sql.SQL(COLUMNS + TEXT) if query.with_text else sql.SQL(COLUMNS),
            condition=matching,
            ordered=sql.SQL("order by {order} {direction}, d.id {direction}").format(
                order=order, direction=direction
            ),
        ),
        {**parameters, "limit": query.limit, "offset": (query.page - 1) * query.limit},
    ).fetchall()
    found = [read(row, tenant) for row in rows]
    return Page(found, total.documents, query.page, query.limit)


def _count(
    tx: Tx, matching: sql.Composable, parameters: Mapping[str, object]
) -> _counts.DocumentCounts:
    row = tx.execute(
        sql.SQL(
            "select count(*) as documents, coalesce(sum(d.chunks), 0)::int8 as chunks"
            " from documents d where {}"
        ).format(matching),
        parameters,
    ).fetchone()
    assert row is not None
    return _counts.DocumentCounts(row["documents"], row["chunks"])


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


_CHUNKS_BY_POSITION = sql.SQL(
    "with matching as materialized (select d.id, d.created_at from documents d where {condition}),"
    " page as materialized (select c.*, e.text as chunk, m.created_at"
    "  from matching m join chunks c on c.document_id = m.id"
    "  join entries e on e.document_id = c.document_id and e.hash = c.hash"
    "  order by c.position {direction}, m.created_at, m.id limit %(limit)s offset %(offset)s)"
    " select {columns}, p.position, p.start_at, p.end_at, p.hash, p.place, p.chunk"
    " from page p join documents d on d.id = p.document_id"
    " order by p.position {direction}, p.created_at, d.id"
)
# Each of them has a chunk at least: so many documents are enough.
_CHUNKS_BY_DOCUMENT = sql.SQL(
    "with few as materialized (select d.id, d.chunks, row_number() over way as nth,"
    "   sum(d.chunks) over way - d.chunks as before"
    "  from (select d.id, d.{first}, d.chunks from documents d where {condition} and d.chunks > 0"
    "   order by d.{first} {direction}, d.id {direction} limit %(limit)s + %(offset)s) d"
    "  window way as (order by d.{first} {direction}, d.id {direction} rows unbounded preceding)),"
    " shown as materialized (select * from few"
    "  where before < %(limit)s + %(offset)s and before + chunks > %(offset)s),"
    " page as materialized (select c.*, e.text as chunk, s.nth"
    "  from shown s join chunks c on c.document_id = s.id"
    "   and c.position between %(offset)s - s.before and %(offset)s + %(limit)s - s.before - 1"
    "  join entries e on e.document_id = c.document_id and e.hash = c.hash)"
    " select {columns}, p.position, p.start_at, p.end_at, p.hash, p.place, p.chunk"
    " from page p join documents d on d.id = p.document_id order by p.nth, p.position"
)


def find_chunks(tx: Tx, tenant: Tenant, query: DocumentQuery) -> Page[tuple[Document, Chunk]]:
    """One page of the chunks of all documents that match, in the documents' order and then by
    position, or with `sort` position by position first. `total` counts all of them."""
    matching, parameters = condition(tenant, query)
    paged = {**parameters, "limit": query.limit, "offset": (query.page - 1) * query.limit}
    direction = sql.SQL("desc" if query.descending else "asc")
    total = _counts.kept(tx, tenant, query) or _count(tx, matching, parameters)
    statement = _CHUNKS_BY_POSITION if query.sort == "position" else _CHUNKS_BY_DOCUMENT
    rows = tx.execute(
        statement.format(
            columns=sql.SQL(COLUMNS),
            condition=matching,
            first=sql.SQL("updated_at" if query.sort == "updated_at" else "created_at"),
            direction=direction,
        ),
        paged,
    )
    found = [
        (
            read(row, tenant),
            Chunk(
                row["position"],
                row["start_at"],
                row["end_at"],
                row["chunk"],
                row["hash"],
                row["place"],
            ),
        )
        for row in rows
    ]
    return Page(found, total.chunks, query.page, query.limit)


def counts_of_connections(
    tx: Tx, tenant: Tenant, connections: Sequence[ConnectionId]
) -> dict[ConnectionId, int]:
    """How many documents each connection has brought."""
    if tenant.tags is None:
        return dict.fromkeys(connections, 0) | _counts.of_connections(tx, tenant.id, connections)
    rows = tx.execute(
        "select d.connection_id, count(*) as n from documents d where "
        + REACH
        + " and d.connection_id = any(%(connections)s) group by d.connection_id",
        {**tenancy.bounds(tenant), "connections": list(connections)},
    )
    return dict.fromkeys(connections, 0) | {row["connection_id"]: row["n"] for row in rows}


def deleted_within(tx: Tx, org: OrgId, time: timedelta) -> bool:
    """Whether a document of the organisation was deleted within that time."""
    row = tx.execute(
        "select from receipts where org_id = %(org)s and deleted_at > now() - %(time)s union all"
        " select from documents where org_id = %(org)s and gone_at > now() - %(time)s limit 1",
        {"org": org, "time": time},
    ).fetchone()
    return row is not None


def counts(tx: Tx, tenant: Tenant) -> Mapping[Status, int]:
    """How many documents are in each status."""
    counted = _counts.subject(tenant, DocumentQuery())
    each = "select d.status, count(*) as n from documents d where " + REACH
    if counted is None:
        rows = tx.execute(each + " group by d.status", tenancy.bounds(tenant)).fetchall()
    else:
        # Those that wait and those that failed have indexes; all others are done. In one
        # statement, so that what comes meanwhile is in neither.
        rows = tx.execute(
            "with others as materialized ("
            + each
            + "  and (d.due_at is not null or d.status = 'failed') group by d.status)"
            " select * from others union all select 'done', kept.documents"
            "  - coalesce((select sum(n) from others), 0) from (" + _counts.KEPT + ") kept",
            {**tenancy.bounds(tenant), **counted},
        ).fetchall()
    found = {Status(row["status"]): int(row["n"]) for row in rows}
    return {status: found.get(status, 0) for status in Status}


FILEPATH = (
    "case when right((%(filepath)s::text[])[1], 1) = '/' then d.filepath ^@ any(%(filepath)s)"
    " else d.filepath = any(%(filepath)s) end"
)
"""`filepath`: the `spellings` of one path."""


def condition(tenant: Tenant, query: DocumentQuery) -> tuple[sql.Composable, dict[str, object]]:
    """A boolean SQL expression over `documents d` with its parameters; never another tenant's."""
    parts: list[sql.Composable] = [sql.SQL(REACH)]
    parameters: dict[str, object] = {**tenancy.bounds(tenant)}
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
        parts.append(sql.SQL(FILEPATH))
        parameters["filepath"] = spellings(query.filepath)
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
        compiled, values = compile_filter(
            query.filter, sql.SQL("d.metadata"), sql.SQL("d.group_pairs")
        )
        parts.append(compiled)
        parameters |= values
    return sql.SQL(" and ").join(parts), parameters
