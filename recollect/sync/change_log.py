"""The change feed of a sync: which documents it added, changed and removed.

A row holds the id of a document and numbers, never its title or address: those are looked up while
the document is there, so that deletion leaves nothing here that says what it was.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from recollect.db import Tx, tenancy
from recollect.model import ConnectionId, DocumentId, Page, Tenant

MOST = 10_000
"""changes of one run that are listed; further ones are only counted"""

What = Literal["added", "changed", "removed"]


@dataclass(frozen=True, slots=True)
class FeedEntry:
    """What one sync did to one document; both, if it did two things, as one: what came of it."""

    document_id: DocumentId
    what: What
    at: datetime
    title: str | None
    """None, as is the url, for a document that is gone by now"""
    url: str | None
    is_gone: bool
    """or out of the caller's reach"""
    texts: int | None
    """of its chunks, each once; None until it is processed, and if it is removed"""
    new_texts: int | None
    """of these, how many the index did not hold before"""

    @property
    def share(self) -> float | None:
        """Of the document's text, in chunks, how much was new (0 to 1); None as long as that is
        unknown, and for a document without text."""
        if not self.texts or self.new_texts is None:
            return None
        return self.new_texts / self.texts


def keep(tx: Tx, run: str, changes: Mapping[DocumentId, What], *, room: int) -> None:
    """Write down what a transaction of the run did to up to `room` documents.

    A change that left the indexed content as it was (a title, tags) is known to have no new text.
    A document that one run adds and then changes is added; one that it removes is removed.
    """
    some = list(changes.items())[: max(room, 0)]
    if not some:
        return
    tx.execute(
        "insert into sync_changes (run_id, document_id, what, revision, texts, new_texts)"
        " select %s, c.id, c.what, d.revision,"
        " case when d.revision = d.indexed_revision then d.reused + d.embedded end,"
        " case when d.revision = d.indexed_revision then 0 end"
        " from unnest(%s::text[], %s::text[]) as c (id, what)"
        " left join documents d on d.id = c.id and c.what <> 'removed'"
        " on conflict (run_id, document_id) do update set what = case"
        "  when sync_changes.what = 'added' and excluded.what = 'changed' then 'added'"
        "  else excluded.what end,"
        # Another title does not undo what is known of the text.
        " texts = case when excluded.revision = sync_changes.revision then sync_changes.texts"
        "  else excluded.texts end,"
        " new_texts = case when excluded.revision = sync_changes.revision"
        "  then sync_changes.new_texts else excluded.new_texts end,"
        " revision = excluded.revision",
        (run, [id for id, _ in some], [what for _, what in some]),
    )


def kept(tx: Tx, run: str) -> int:
    """How many rows the run has."""
    row = tx.execute("select count(*) as n from sync_changes where run_id = %s", (run,)).fetchone()
    assert row is not None
    return row["n"]


def processed(tx: Tx, id: DocumentId, revision: int, *, texts: int, new_texts: int) -> None:
    """A revision of a document of a connection is indexed: tell the runs that made it, or an older
    one that it overtook."""
    tx.execute(
        "update sync_changes set texts = %s, new_texts = %s"
        " where document_id = %s and texts is null and revision is not null and revision <= %s",
        (texts, new_texts, id, revision),
    )


def find(
    tx: Tx,
    tenant: Tenant,
    connection: ConnectionId,
    run: str,
    *,
    what: What | None,
    limit: int,
    page: int,
) -> Page[FeedEntry]:
    """One page of the changes of a run of the connection, the first made first."""
    rows = tx.execute(
        "with listed as materialized (select c.*, count(*) over () as total from sync_changes c"
        "  join sync_runs r on r.id = c.run_id"
        "  where c.run_id = %(run)s and r.connection_id = %(connection)s"
        "  and (%(what)s::text is null or c.what = %(what)s)"
        "  order by c.at, c.document_id limit %(limit)s offset %(offset)s)"
        " select c.*, d.title, d.url, d.id is null as is_gone"
        " from listed c left join documents d on d.id = c.document_id"
        "  and "
        + tenancy.with_any("d.container_tags", "d.org_id")
        # So is what a large deletion hides: the feed names nothing that is gone.
        + " and d.gone_at is null order by c.at, c.document_id",
        {
            "run": run,
            "connection": connection,
            "what": what,
            "limit": limit,
            "offset": (page - 1) * limit,
            **tenancy.bounds(tenant),
        },
    ).fetchall()
    total = rows[0]["total"] if rows else 0
    return Page([_read(row) for row in rows], total, page, limit)


def _read(row: Mapping[str, Any]) -> FeedEntry:
    return FeedEntry(
        document_id=DocumentId(row["document_id"]),
        what=row["what"],
        at=row["at"],
        title=row["title"],
        url=row["url"],
        is_gone=row["is_gone"],
        texts=row["texts"],
        new_texts=row["new_texts"],
    )
