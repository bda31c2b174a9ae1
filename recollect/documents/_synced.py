"""Documents of connections."""

import hashlib
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import timedelta

from recollect import db
from recollect.db import Tx
from recollect.documents._asked import DocumentChange, NewDocument, Said, SyncedDocument
from recollect.documents._changing import (
    accept,
    count,
    insert,
    lock_memories,
    members_of,
    remove,
    set_details,
    set_details_of_all,
)
from recollect.documents._naming import rename
from recollect.documents._reading import get
from recollect.documents._rows import LATER
from recollect.errors import (
    LeaseLost,
)
from recollect.model import (
    Claim,
    ConnectionId,
    Content,
    Document,
    DocumentId,
    Failure,
    Metadata,
    OrgId,
    Tenant,
    random_id,
    storable,
)


def put(
    tx: Tx,
    org: OrgId,
    synced: SyncedDocument,
    known: DocumentId | None,
    before: Said | None = None,
) -> tuple[str, bool, list[str]]:
    """Insert a document of a connection, or bring the `known` one up to date; never indexes twice
    what has the same version.

    `before` tells what a user has set since: tags and metadata stay beside what the source says
    now, content stays until the source has a new version of its own. Where nobody knows what it
    said before, labels are added to and content is the source's.

    Returns its id, whether anything changed, and the tags that a user took off. Raises
    NotFoundError when the known one is gone.
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
        return insert(tx, org, new, DocumentId(random_id())).id, True, []
    document = get(tx, Tenant(org), known, lock=True)
    here = document.container_tags
    taken = [tag for tag in (*before.tags, *before.taken) if tag not in here] if before else []
    tags = _tags(here, before and [*before.tags, *taken], synced.tags)
    taken = [tag for tag in dict.fromkeys(taken) if tag not in tags]
    change = DocumentChange(
        tags=_free(tx, document, tags),
        metadata=_metadata(document.metadata or {}, before and before.metadata, synced.metadata),
    )
    same = (list(here), document.metadata or {}) == (
        change.tags,
        change.metadata,
    )
    if not same:
        count(tx, org, _relabel(tx, document, change))
    row = tx.execute(
        "select source_id is null as own, content_hash is distinct from %s as differs"
        " from documents where id = %s",
        (content.hash, known),
    ).fetchone()
    assert row is not None
    if row["own"] and before is not None and before.version == synced.version:
        renamed = before.title != synced.title and _rename(tx, org, known, synced.title)
        return known, bool(renamed or not same), taken
    moved = tx.execute(
        "update documents set source_id = %(source_id)s,"
        " title = coalesce(given_title, %(title)s, title),"
        " url = %(url)s, updated_at = " + LATER + " where id = %(id)s"
        " and (source_id, title, url) is distinct from"
        " (%(source_id)s, coalesce(given_title, %(title)s, title), %(url)s::text)",
        {
            "id": known,
            "source_id": synced.source_id,
            "title": synced.title,
            "url": synced.url,
        },
    ).rowcount
    if row["differs"]:
        accept(tx, known, content, revive=False)
    if moved:  # at once: its content may be long in coming, or fail
        count(tx, org, rename(tx, org, known))
    return known, bool(row["differs"] or moved or not same), taken


def _rename(tx: Tx, org: OrgId, id: DocumentId, title: str | None) -> bool:
    done = tx.execute(
        "update documents set title = %(title)s, updated_at = "
        + LATER
        + " where id = %(id)s and given_title is null and title is distinct from %(title)s"
        " and %(title)s::text is not null",
        {"id": id, "title": title},
    )
    if done.rowcount:
        count(tx, org, rename(tx, org, id))
    return done.rowcount > 0


def _relabel(tx: Tx, document: Document, change: DocumentChange) -> Counter[int]:
    """It and the members of an archive; returns by how much `term_counts` change.

    What a user set on a member stays as it does on any document.
    """
    members = members_of(tx, [document.id])
    labels = (list(document.container_tags), document.metadata or {})
    if all((list(one.container_tags), one.metadata or {}) == labels for one in members):
        return set_details_of_all(tx, document, change)
    lock_memories(tx, [document.id, *(member.id for member in members)])
    delta = set_details(tx, document, change)
    for one in members:
        tags = _tags(one.container_tags, document.container_tags, change.tags or ())
        metadata = _metadata(one.metadata or {}, document.metadata or {}, change.metadata or {})
        delta.update(set_details(tx, one, DocumentChange(tags=tags, metadata=metadata)))
    return delta


def _free(tx: Tx, document: Document, tags: list[str]) -> list[str]:
    """With its first tag before the others where another document has its customId in theirs."""
    taken = (
        document.custom_id is not None
        and tx.execute(
            "select 1 from documents where org_id = %s and custom_id = %s"
            " and container_tags[1] = %s and id <> %s",
            (document.org_id, document.custom_id, tags[0], document.id),
        ).fetchone()
    )
    if not taken:
        return tags
    first = document.container_tags[0]
    return [first, *(tag for tag in tags if tag != first)]


def _tags(here: Sequence[str], before: Sequence[str] | None, now: Sequence[str]) -> list[str]:
    """Those of the source and those that a user added, without those that a user took away."""
    if before is None:
        return [*now, *(tag for tag in here if tag not in now)]
    if set(here) & set(before) <= set(now) <= set(before):
        return list(here)
    wanted = [tag for tag in now if tag in here or tag not in before]
    wanted += [tag for tag in here if tag not in before and tag not in wanted]
    return wanted or list(now)


def _metadata(here: Metadata, before: Metadata | None, now: Metadata) -> Metadata:
    """The same of metadata, key by key; what a user set under a key of the source stays."""
    if before is None:
        return {**here, **now}
    own = {key: value for key, value in here.items() if key not in before or before[key] != value}
    wanted = {key: value for key, value in now.items() if key in here or key not in before}
    return {**wanted, **own}


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
    resume(tx, connection)
    # Their text is their content now: what comes after (a retry, another model) reads that.
    tx.execute(
        "update documents set connection_id = null,"
        " content = case when blob is null then coalesce(content, text) end,"
        " claims = claims + 1, updated_at = " + LATER + " where connection_id = %s",
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


def try_again(
    tx: Tx, org: OrgId, connection: ConnectionId, codes: Collection[str], *, failed_for: timedelta
) -> None:
    """Queue what failed so, at least that long ago; who was told is told again only of another
    reason."""
    tx.execute(
        "update documents set status = 'queued', due_at = now(), attempts = 0,"
        " told_failure = error_code,"
        " error_code = null, error_message = null where id in (select id from documents"
        "  where org_id = %s and status = 'failed' and gone_at is null and connection_id = %s"
        "  and error_code = any(%s) and updated_at <= now() - %s order by id for update)",
        (org, connection, list(codes), failed_for),
    )
    db.notify(tx)


def resume(tx: Tx, connection: ConnectionId) -> None:
    """Those that wait for their connection, or to be tried again, are due now."""
    tx.execute(
        "update documents set due_at = now(), error_code = null, error_message = null"
        " where connection_id = %s and status = 'queued' and due_at > now()",
        (connection,),
    )
    db.notify(tx)
