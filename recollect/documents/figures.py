"""What the pages about documents read of an organisation: a bounded number of rows, however many
documents there are.

What an index counts by itself is counted up to `COUNTED`. Where rows have to be looked at, these
are the newest `LOOKED_AT`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, LiteralString

from recollect.db import Tx, tenancy
from recollect.documents._asked import DocumentQuery
from recollect.documents._counts import kept
from recollect.documents._rows import BELOW, COLUMNS, REACH, read, sought
from recollect.index import terms
from recollect.model import ConnectionId, Document, DocumentId, OrgId, Page, Status, Tenant
from recollect.orgs import orgs

COUNTED = 100_000
"""Rows of an index that are counted at most."""
LOOKED_AT = 20_000
"""Rows of the table that are read at most for one figure or one list."""
GATHERED = 5_000
"""Documents that one request does something to at most."""
WAITING = (Status.QUEUED, Status.PROCESSING)

_OF_ALL = "d.org_id = %(org)s and d.gone_at is null"
# The numbers find them by the index; the names tell the few whose numbers are alike.
_OF_TAGS = (
    "d.org_id = %(org)s and d.gone_at is null"
    " and d.scope && %(numbers)s::int4[] and d.container_tags && %(reach)s"
)


@dataclass(frozen=True, slots=True)
class Figure:
    """A number. `sign` says how it is to be taken: `+` (there are more), `≈`, or exact."""

    number: int
    sign: str = ""

    def __str__(self) -> str:
        about = "≈ " if self.sign == "≈" else ""
        return f"{about}{self.number:,}{'+' if self.sign == '+' else ''}"


LEAST_FOR_PACE = 3
"""documents, of which a pace can be told"""
# The index gives the last changed of the organisation, whatever they are: what is bounded is the
# number that is looked at, not the number that is found.
_LATELY: LiteralString = (
    "select d.updated_at as at, d.chunks, (d.status = 'done' and " + REACH + ") as ours"
    " from documents d where d.org_id = %(org)s and d.gone_at is null"
    " and d.updated_at > now() - %(since)s"
    " order by d.updated_at desc, d.id desc limit %(most)s"
)


@dataclass(frozen=True, slots=True)
class DocumentPace:
    """How many documents became searchable within about the last hour, and how many do by now."""

    hour: Figure
    per_second: float | None
    """over the last 10 minutes; None when too few did"""


@dataclass(frozen=True, slots=True)
class Hour:
    """What became searchable from `at` on."""

    at: datetime
    documents: int
    passages: int


@dataclass(frozen=True, slots=True)
class Course:
    """The hours, the oldest first. `since`: nothing before that was looked at; None: all was."""

    hours: Sequence[Hour]
    since: datetime | None


_NAMES = "d.title, d.filepath, d.url, d.archive_path"
Order = Literal["newest", "oldest", "changed", "title"]
_ORDERS: Mapping[Order, LiteralString] = {
    "newest": " order by d.created_at desc, d.id desc ",
    "oldest": " order by d.created_at, d.id ",
    "changed": " order by d.updated_at desc, d.id desc ",
    "title": " order by fold_case(coalesce(d.title, d.url, d.custom_id)) nulls last, d.id ",
}


@dataclass(frozen=True, slots=True)
class TableQuery:
    """Which documents the table shows; empty: all. A tag may be `team:*`."""

    text: str = ""
    """what its title, filepath, URL or path in an archive holds, in any case"""
    tag: str = ""
    status: Status | None = None
    kind: str = ""
    order: Order = "newest"
    """the others sort what is looked at: the newest `LOOKED_AT`"""
    limit: int = 25
    page: int = 1


@dataclass(frozen=True, slots=True)
class TablePage:
    """One page of the table. `cut`: older documents than the newest were not looked at."""

    items: Sequence[Document]
    total: Figure
    number: int
    limit: int
    cut: bool


@dataclass(frozen=True, slots=True)
class Revision:
    """What one sync did to one document."""

    run_id: str
    at: datetime
    what: str
    """`added` or `changed`"""
    revision: int | None
    texts: int | None
    """of its chunks, each once; None until it is processed"""
    new_texts: int | None
    """of these, how many the index did not hold before"""
    trigger: str


def by_status(tx: Tx, tenant: Tenant) -> tuple[Mapping[Status, Figure], Figure]:
    """How many documents are in each status, and in all."""
    where, parameters = _within(tenant)
    # Those who wait and those that failed have indexes of their own; of several tags, rows are
    # looked at.
    found = {
        Status(row["status"]): int(row["n"])
        for row in tx.execute(
            "select status, count(*) as n from (select d.status from documents d where "
            + where
            + " and d.due_at is not null limit %(most)s) waiting group by status",
            {**parameters, "most": LOOKED_AT},
        )
    }
    many = sum(found.values()) >= LOOKED_AT
    waiting = {status: Figure(found.get(status, 0), "+" if many else "") for status in WAITING}
    if counts := kept(tx, tenant, DocumentQuery()):
        total = Figure(counts.documents)
    else:
        number = _count(
            tx,
            "select count(*) as n from (select 1 from documents d where "
            + where
            + " limit %(most)s) found",
            {**parameters, "most": LOOKED_AT},
        )
        total = Figure(number, "+" if number >= LOOKED_AT else "")
    wrong = failed(tx, tenant)
    rest = max(0, total.number - sum(found.values()) - wrong.number)
    exact = not (many or total.sign or wrong.sign)
    done = Figure(rest, "" if exact else "≈")
    counts = {**waiting, Status.DONE: done, Status.FAILED: wrong}
    return {status: counts[status] for status in Status}, total


def failed(tx: Tx, tenant: Tenant) -> Figure:
    """How many documents failed."""
    where, parameters = _within(tenant)
    number = _count(
        tx,
        "select count(*) as n from (select 1 from documents d where "
        + where
        + " and d.status = 'failed' limit %(most)s) failed",
        {**parameters, "most": LOOKED_AT},
    )
    return Figure(number, "+" if number >= LOOKED_AT else "")


def failed_before(
    tx: Tx, tenant: Tenant, before: tuple[datetime, DocumentId] | None, limit: int
) -> list[tuple[datetime, DocumentId]]:
    """The next that failed, the newest first, with when they did; `before`: behind this one."""
    where, parameters = _within(tenant)
    moment, id = before or (None, None)
    rows = tx.execute(
        "select d.updated_at, d.id from documents d where "
        + where
        + " and d.status = 'failed' and (d.updated_at, d.id)"
        " < (coalesce(%(moment)s::timestamptz, 'infinity'), coalesce(%(id)s::text, ''))"
        " order by d.updated_at desc, d.id desc limit %(limit)s",
        {**parameters, "moment": moment, "id": id, "limit": limit},
    )
    return [(row["updated_at"], DocumentId(row["id"])) for row in rows]


def members(
    tx: Tx, tenant: Tenant, archive: DocumentId, *, limit: int, page: int
) -> Page[Document]:
    """One page of the files of an archive, by their paths; an archive has 1,000 at most."""
    where, parameters = _within(tenant)
    parameters |= {"archive": archive, "limit": limit, "offset": (page - 1) * limit}
    total = _count(
        tx,
        "select count(*) as n from documents d where " + where + " and d.archive_id = %(archive)s",
        parameters,
    )
    rows = tx.execute(
        "select " + COLUMNS + " from documents d where " + where
        + " and d.archive_id = %(archive)s order by d.archive_path, d.id"
        " limit %(limit)s offset %(offset)s",
        parameters,
    )  # fmt: skip
    return Page([read(row, tenant) for row in rows], total, page, limit)


def revisions(tx: Tx, connection: ConnectionId, id: DocumentId, limit: int) -> list[Revision]:
    """What the syncs that are kept did to a document, the newest first."""
    rows = tx.execute(
        "select c.run_id, c.at, c.what, c.revision, c.texts, c.new_texts, r.trigger"
        " from sync_runs r join sync_changes c on c.run_id = r.id"
        " where r.connection_id = %s and c.document_id = %s and c.what <> 'removed'"
        " order by c.at desc limit %s",
        (connection, id, limit),
    )
    return [Revision(**row) for row in rows]


def failures(tx: Tx, tenant: Tenant, limit: int) -> list[Document]:
    """The newest that failed."""
    where, parameters = _within(tenant)
    rows = tx.execute(
        "select " + COLUMNS + " from documents d where " + where
        + " and d.status = 'failed' order by d.updated_at desc, d.id desc limit %(limit)s",
        {**parameters, "limit": limit},
    )  # fmt: skip
    return [read(row, tenant) for row in rows]


def longest_waiting(tx: Tx, tenant: Tenant) -> Document | None:
    """Of those that wait, as far as they are looked at, the one changed longest ago."""
    where, parameters = _within(tenant)
    row = tx.execute(
        "select " + COLUMNS + " from (select d.* from documents d where "
        + where
        + " and d.due_at is not null limit %(most)s) d order by d.updated_at, d.id limit 1",
        {**parameters, "most": LOOKED_AT},
    ).fetchone()  # fmt: skip
    return None if row is None else read(row, tenant)


def pace(tx: Tx, tenant: Tenant, most: int) -> DocumentPace:
    """How fast documents become searchable, among the `most` changed last."""
    row = tx.execute(
        "select count(*) as seen, count(*) filter (where ours) as hour,"
        " count(*) filter (where ours and at > now() - interval '10 minutes') as n,"
        " extract(epoch from now() - min(at)"
        "  filter (where ours and at > now() - interval '10 minutes')) as seconds"
        " from (" + _LATELY + ") d",
        {**tenancy.bounds(tenant), "since": timedelta(hours=1), "most": most},
    ).fetchone()
    assert row is not None
    is_known = row["n"] >= LEAST_FOR_PACE
    per_second = row["n"] / max(1.0, float(row["seconds"])) if is_known else None
    return DocumentPace(Figure(row["hour"], "+" if row["seen"] >= most else ""), per_second)


def by_hour(tx: Tx, tenant: Tenant, hours: int) -> Course:
    """What became searchable in each of the last full hours and in this one, the oldest first,
    among the `LOOKED_AT` changed last."""
    rows = tx.execute(
        "with lately as materialized (" + _LATELY + "), seen as ("
        "  select date_trunc('hour', at, 'UTC') as hour, count(*) as documents,"
        "   sum(chunks) as chunks from lately where ours group by 1),"
        " hours as (select generate_series("
        "  date_trunc('hour', now(), 'UTC') - %(since)s + interval '1 hour',"
        "  date_trunc('hour', now(), 'UTC'), interval '1 hour') as hour)"
        " select hour, coalesce(seen.documents, 0) as documents,"
        "  coalesce(seen.chunks, 0) as passages,"
        "  (select case when count(*) >= %(most)s then min(at) end from lately) as since"
        " from hours left join seen using (hour) order by hour",
        {**tenancy.bounds(tenant), "since": timedelta(hours=hours), "most": LOOKED_AT},
    ).fetchall()
    return Course(
        [Hour(row["hour"], row["documents"], int(row["passages"])) for row in rows],
        rows[0]["since"] if rows else None,
    )


def of_tag_alone(tx: Tx, tenant: Tenant, tag: str) -> Figure:
    """How many documents carry this tag and no other; they go when it is deleted."""
    where, parameters = _within(tenant)
    number = _count(
        tx,
        "select count(*) as n from (select 1 from documents d where "
        + where
        + " and d.scope @> %(scope)s and d.container_tags = array[%(tag)s::text]"
        " limit %(most)s) alone",
        {**parameters, "scope": sought(tenant.id, [tag]), "tag": tag, "most": LOOKED_AT},
    )
    return Figure(number, "+" if number >= LOOKED_AT else "")


def chunks(tx: Tx, tenant: Tenant) -> Figure:
    """How many texts of chunks the index holds, as it counts them itself for its scores."""
    numbers = (
        [terms.org_number(tenant.id)]
        if tenant.tags is None
        else [terms.tag_number(tenant.id, tag) for tag in tenant.tags]
    )
    number = _count(
        tx,
        "select coalesce(sum(entries), 0) as n from term_counts"
        " where org_id = %(org)s and number = any(%(numbers)s::int4[])",
        {"org": tenant.id, "numbers": numbers},
    )
    # A document may have several tags of the key.
    return Figure(number, "≈" if number and len(numbers) > 1 else "")


def database(tx: Tx, org: OrgId) -> int | None:
    """Bytes of the whole database; only for the default organisation, whose house it is."""
    row = tx.execute(
        "select pg_database_size(current_database()) as n from orgs where id = %s and name = %s",
        (org, orgs.DEFAULT),
    ).fetchone()
    return None if row is None else int(row["n"])


def find(tx: Tx, tenant: Tenant, asked: TableQuery) -> TablePage:
    """One page of documents, in the order that was asked for."""
    where, also, parameters = _asked(tenant, asked)
    parameters |= {"limit": asked.limit, "offset": (asked.page - 1) * asked.limit}
    plain = not asked.tag and also == "true" and tenant.tags is None and asked.order == "newest"
    most = parameters["most"] = COUNTED if plain else LOOKED_AT
    newest = _ORDERS["newest"]
    counted = tx.execute(
        "select count(*) as seen, count(*) filter (where " + also + ") as n from ("
        + ("select 1" if also == "true" else "select d.status, d.kind, " + _NAMES)
        + " from documents d where " + where
        + ("" if also == "true" else newest)
        + " limit %(most)s) d",
        parameters,
    ).fetchone()  # fmt: skip
    assert counted is not None
    rows = tx.execute(
        "select " + COLUMNS + " from (select d.* from documents d where " + where
        + newest + "limit %(most)s) d where " + also
        + _ORDERS[asked.order] + "limit %(limit)s offset %(offset)s",
        parameters,
    )  # fmt: skip
    cut = counted["seen"] >= most
    total = Figure(int(counted["n"]), "+" if cut else "")
    items = [read(row, tenant) for row in rows]
    return TablePage(items, total, asked.page, asked.limit, cut)


def matching(tx: Tx, tenant: Tenant, asked: TableQuery) -> list[DocumentId]:
    """All documents of the table, whatever their page, in the order of their ids: of the newest
    `LOOKED_AT`, the first `GATHERED` in the order that was asked for."""
    where, also, parameters = _asked(tenant, asked)
    parameters |= {"most": LOOKED_AT, "limit": GATHERED}
    rows = tx.execute(
        "select d.id from (select d.* from documents d where " + where
        + _ORDERS["newest"] + "limit %(most)s) d where " + also
        + _ORDERS[asked.order] + "limit %(limit)s",
        parameters,
    )  # fmt: skip
    return sorted(DocumentId(row["id"]) for row in rows)


def _asked(
    tenant: Tenant, asked: TableQuery
) -> tuple[LiteralString, LiteralString, dict[str, object]]:
    """What an index finds of `documents d`, what is looked at of each, and the parameters."""
    where, parameters = _within(tenant)
    if asked.tag:
        where += " and d.scope @> %(scope)s"
        parameters["scope"] = sought(tenant.id, [asked.tag])
        if asked.tag.endswith(BELOW):
            where += (
                " and exists (select from unnest(d.container_tags) as tag (name)"
                " where starts_with(tag.name, %(tag)s))"
            )
        else:
            where += " and %(tag)s = any(d.container_tags)"
        parameters["tag"] = asked.tag.removesuffix("*") if asked.tag.endswith(":*") else asked.tag
    if asked.status in WAITING:
        where += " and d.due_at is not null"
    if asked.status is Status.FAILED:
        where += " and d.status = 'failed'"
    also = "true"
    if asked.status is not None:
        also += " and d.status = %(status)s"
        parameters["status"] = asked.status
    if asked.kind:
        also += " and d.kind = %(kind)s"
        parameters["kind"] = asked.kind
    if asked.text:
        also += (
            " and strpos(fold_case(normalize(concat_ws(E'\n', "
            + _NAMES
            + "))), fold_case(normalize(%(text)s::text))) > 0"
        )
        parameters["text"] = asked.text
    return where, also, parameters


def _within(tenant: Tenant) -> tuple[LiteralString, dict[str, object]]:
    """What the tenant may see of `documents d`."""
    if tenant.tags is None:
        return _OF_ALL, {"org": tenant.id}
    numbers = [terms.tag_number(tenant.id, tag) for tag in tenant.tags]
    return _OF_TAGS, {"org": tenant.id, "numbers": numbers, "reach": list(tenant.tags)}


def _count(tx: Tx, statement: LiteralString, parameters: Mapping[str, object]) -> int:
    row = tx.execute(statement, parameters).fetchone()
    return int(row["n"]) if row else 0
