"""Counts that are kept: how many documents and chunks an organisation, a tag, a connection have.

Triggers keep them (migration 0044), so that no list counts what it does not show.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from recollect.db import Database, Tx
from recollect.documents._asked import DocumentQuery
from recollect.documents._rows import BELOW
from recollect.model import ConnectionId, DocumentId, OrgId, Tenant

AT_ONCE = 50_000
"""differences that one transaction folds"""
_LOCK = 0x636F756E74


@dataclass(frozen=True, slots=True)
class DocumentCounts:
    """Of documents that are not gone, and of the chunks that searches find of them."""

    documents: int
    chunks: int


KEPT = (
    "select coalesce(sum(documents), 0)::int8 as documents,"
    " coalesce(sum(chunks), 0)::int8 as chunks from kept_counts"
    " where org_id = %(org)s and tag = %(tag)s and connection_id = %(connection)s"
)
"""The counts of what `subject` names."""


def kept(tx: Tx, tenant: Tenant, query: DocumentQuery) -> DocumentCounts | None:
    """How many documents and chunks match; None where that is not kept."""
    counted = subject(tenant, query)
    if counted is None:
        return None
    row = tx.execute(KEPT, counted).fetchone()
    assert row is not None
    return DocumentCounts(row["documents"], row["chunks"])


def subject(tenant: Tenant, query: DocumentQuery) -> dict[str, object] | None:
    """The organisation, tag or connection whose documents are those that match, as parameters of
    `KEPT`; None where the query is narrower, or asks for several."""
    narrower = (
        query.id,
        query.filter,
        query.filepath,
        query.archive,
        query.touched_within,
        query.statuses or None,
    )
    if any(one is not None for one in narrower):
        return None
    tags = set(query.tags)
    if tenant.tags is not None and not tags <= set(tenant.tags):
        return None
    tags = tags or set(tenant.tags or ())
    connections = set(query.connections or ())
    if (
        len(tags) + len(connections) > 1
        or any(tag.endswith(BELOW) for tag in tags)
        # A key without any tag, or no connection at all, sees nothing.
        or (tenant.tags is not None and not tags)
        or (query.connections is not None and not connections)
    ):
        return None
    return {
        "org": tenant.id,
        "tag": next(iter(tags), ""),
        "connection": next(iter(connections), ""),
    }


def of_connections(
    tx: Tx, org: OrgId, connections: Sequence[ConnectionId]
) -> dict[ConnectionId, int]:
    """How many documents each of them has brought; those that brought none are left out."""
    rows = tx.execute(
        "select connection_id, sum(documents)::int8 as n from kept_counts"
        " where org_id = %s and tag = '' and connection_id = any(%s) group by connection_id",
        (org, list(connections)),
    )
    return {ConnectionId(row["connection_id"]): row["n"] for row in rows}


@contextmanager
def take_off(tx: Tx, ids: Sequence[DocumentId]) -> Generator[None]:
    """Count documents, locked, off at once, of which the block takes each out of all lists; nothing
    else that it does to documents is counted."""
    tx.execute(
        "insert into document_counts (org_id, tag, connection_id, documents, chunks)"
        " select d.org_id, of.tag, of.connection_id, -count(*), -sum(d.chunks)"
        " from documents d cross join counted_under(d.container_tags, d.connection_id) as of"
        " where d.id = any(%s) and d.gone_at is null group by 1, 2, 3",
        (list(ids),),
    )
    tx.execute("select set_config('recollect.counted', 'at once', true)")
    yield
    tx.execute("select set_config('recollect.counted', '', true)")


def fold_counts(db: Database) -> None:
    """Add the differences up; of several that try at once, one does."""
    folded = AT_ONCE
    while folded == AT_ONCE:
        with db.begin() as tx:
            mine = tx.execute("select pg_try_advisory_xact_lock(%s) as mine", (_LOCK,)).fetchone()
            assert mine is not None
            folded = _fold(tx) if mine["mine"] else 0


def _fold(tx: Tx) -> int:
    row = tx.execute(
        "with gone as (delete from document_counts where ctid = any(array("
        "   select ctid from document_counts where not folded limit %s)) returning *),"
        " added as (insert into document_counts"
        "   (org_id, tag, connection_id, documents, chunks, folded)"
        "  select org_id, tag, connection_id, sum(documents), sum(chunks), true"
        "   from gone group by org_id, tag, connection_id"
        "  on conflict (org_id, connection_id, tag) where folded do update"
        "  set documents = document_counts.documents + excluded.documents,"
        "   chunks = document_counts.chunks + excluded.chunks)"
        " select count(*) as n from gone",
        (AT_ONCE,),
    ).fetchone()
    assert row is not None
    if row["n"]:
        # The name of a tag that is gone must not stay.
        tx.execute("delete from document_counts where folded and documents = 0 and chunks = 0")
    return row["n"]
