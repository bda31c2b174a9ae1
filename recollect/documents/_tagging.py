"""Taking tags from documents, and merging them."""

from collections import Counter
from collections.abc import Sequence

from recollect import terms
from recollect.db import Tx
from recollect.documents._asked import DocumentChange
from recollect.documents._changing import count, lock_memories, set_details, take_out
from recollect.documents._rows import COLUMNS, ORDER, REACH, reach, read, sought
from recollect.errors import (
    BadRequestError,
)
from recollect.model import (
    DocumentId,
    OrgId,
    Tenant,
)


def untag(tx: Tx, tenant: Tenant, tag: str) -> list[DocumentId]:
    """Take a tag off all documents; those that have no other are removed, and returned.

    Raises BadRequestError when a document would come to share its customId with another.
    """
    rows = tx.execute(
        "select " + COLUMNS + " from documents d where " + REACH + " and d.scope @> %(scope)s"
        " and %(tag)s = any(d.container_tags)" + ORDER + " for update",
        {**reach(tenant), "scope": sought(tenant.id, [tag]), "tag": tag},
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
    lock_memories(tx, [document.id for document in found])
    delta = take_out(tx, tenant.id, gone, by=tenant.key)
    for document in shared:
        rest = [name for name in document.container_tags if name != tag]
        delta.update(set_details(tx, document, DocumentChange(tags=rest)))
    count(tx, tenant.id, delta)
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
        " and not d.id = any(%(kept)s)" + ORDER + " limit %(limit)s for update",
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
    lock_memories(tx, [document.id for document in found])
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
        delta.update(set_details(tx, document, change))
        moved += 1
    count(tx, org, delta)
    return moved, stuck
