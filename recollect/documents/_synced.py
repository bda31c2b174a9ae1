"""Documents of connections."""

import hashlib
from datetime import timedelta

from recollect import db
from recollect.db import Tx
from recollect.documents._asked import DocumentChange, NewDocument, SyncedDocument
from recollect.documents._changing import accept, count, insert, remove, set_details_of_all
from recollect.documents._reading import get
from recollect.errors import (
    LeaseLost,
)
from recollect.model import (
    Claim,
    ConnectionId,
    Content,
    DocumentId,
    Failure,
    OrgId,
    Tenant,
    random_id,
    storable,
)


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
        return insert(tx, org, new, DocumentId(random_id())).id, True
    document = get(tx, Tenant(org), known, lock=True)
    change = DocumentChange(tags=synced.tags, metadata=synced.metadata)
    same = (list(document.container_tags), document.metadata) == (
        list(synced.tags),
        dict(synced.metadata),
    )
    if not same:
        count(tx, org, set_details_of_all(tx, document, change))
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
        accept(tx, known, content, revive=False)
    return known, bool(again["differs"] or moved or not same)


def content_hash(version: str) -> bytes:
    """What stands for the content of a document of a connection."""
    return hashlib.sha256(version.encode()).digest()


def discard(tx: Tx, claim: Claim) -> None:
    """Remove for good a document whose source vanished before it was read; raises LeaseLost."""
    ours = tx.execute(
        "select 1 from documents where id = %s and claims = %s and status = 'processing'"
        " for update",
        (claim.document.id, claim.number),
    ).fetchone()
    if ours is None:
        raise LeaseLost
    remove(tx, claim.document.org_id, [claim.document.id])


def detach(tx: Tx, org: OrgId, connection: ConnectionId) -> None:
    """Keep what a connection brought without it; what it never brought is removed."""
    rows = tx.execute(
        "select id from documents where connection_id = %s and indexed_revision is null"
        " and content is null and blob is null order by id for update",
        (connection,),
    ).fetchall()
    remove(tx, org, [DocumentId(row["id"]) for row in rows])
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
