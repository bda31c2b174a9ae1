"""Deleting documents."""

from collections.abc import Sequence

from recollect import terms
from recollect.db import Tx
from recollect.documents._changing import remove
from recollect.documents._reading import FILEPATH
from recollect.documents._rows import ORDER, REACH, ambiguous, reach, unknown
from recollect.errors import (
    BadRequestError,
    RequestError,
)
from recollect.model import (
    DocumentId,
    KeyId,
    OrgId,
    Tenant,
)


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
        + REACH
        + " and (d.id = any(%(ids)s) or d.custom_id = any(%(ids)s))"
        + ORDER
        + " for update",
        {**reach(tenant), "ids": list(ids)},
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
            refused[id] = ambiguous(id) if named else unknown(id)
    remove(tx, tenant.id, sorted(gone), by=tenant.key)
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
        + REACH
        # The numbers find them by the index; the names tell the few whose numbers are alike.
        + " and (%(tags)s::text[] = '{}' or"
        "  d.scope && %(numbers)s::int4[] and d.container_tags && %(tags)s::text[])"
        " and (%(filepath)s::text is null or " + FILEPATH + ")" + ORDER + " for update",
        {
            **reach(tenant),
            "tags": list(tags),
            "numbers": [terms.tag_number(tenant.id, tag) for tag in tags],
            "filepath": filepath,
        },
    ).fetchall()
    gone = [DocumentId(row["id"]) for row in rows]
    remove(tx, tenant.id, gone, by=tenant.key)
    return gone


def delete_all(tx: Tx, tenant: Tenant) -> list[DocumentId]:
    """Remove for good everything that the tenant may touch."""
    rows = tx.execute(
        "select d.id from documents d where " + REACH + ORDER + " for update",
        reach(tenant),
    ).fetchall()
    gone = [DocumentId(row["id"]) for row in rows]
    remove(tx, tenant.id, gone, by=tenant.key)
    return gone


def drop(tx: Tx, org: OrgId, ids: Sequence[DocumentId], *, by: KeyId | None = None) -> None:
    """Remove for good documents of a connection: gone at the provider, or with it (`by`: who)."""
    remove(tx, org, sorted(ids), by=by)
