"""Deleting documents."""

from collections.abc import Sequence

from recollect.db import Tx, tenancy
from recollect.documents._changing import remove
from recollect.documents._reading import FILEPATH, named
from recollect.documents._rows import ORDER, REACH
from recollect.documents._tagging import strip
from recollect.documents.filters import spellings
from recollect.errors import (
    BadRequestError,
    RequestError,
)
from recollect.index import terms
from recollect.model import (
    DocumentId,
    KeyId,
    OrgId,
    Tenant,
)


def delete(tx: Tx, tenant: Tenant, ids: Sequence[str]) -> dict[str, RequestError]:
    """Remove for good, each by id, else by customId; work in flight is fenced off.

    With an archive go its members, here and in all that removes documents. What also carries tags
    that the tenant may not touch only loses those that it may: it is gone for the tenant, and stays
    for the others; so in all that removes documents for a tenant. Returns why some of the ids were
    not removed: unknown, or an ambiguous customId. Raises as `withdraw`.
    """
    return delete_named(tx, tenant, ids)[1]


def delete_named(
    tx: Tx, tenant: Tenant, ids: Sequence[str], *, inside: str | None = None
) -> tuple[list[DocumentId], dict[str, RequestError]]:
    """As `delete`; returns what was removed, too.

    `inside`: only what carries this tag is known by the ids; it is removed with all of its tags.
    """
    found, refused = named(tx, tenant, ids, inside=inside, lock=True)
    gone = sorted(set(found.values()))
    withdraw(tx, tenant, gone)
    return gone, refused


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
        " and (%(filepath)s::text[] is null or " + FILEPATH + ")" + ORDER + " for update",
        {
            **tenancy.bounds(tenant),
            "tags": list(tags),
            "numbers": [terms.tag_number(tenant.id, tag) for tag in tags],
            "filepath": None if filepath is None else spellings(filepath),
        },
    ).fetchall()
    gone = [DocumentId(row["id"]) for row in rows]
    withdraw(tx, tenant, gone)
    return gone


def delete_all(tx: Tx, tenant: Tenant) -> list[DocumentId]:
    """Remove for good everything that the tenant may touch."""
    rows = tx.execute(
        "select d.id from documents d where " + REACH + ORDER + " for update",
        tenancy.bounds(tenant),
    ).fetchall()
    gone = [DocumentId(row["id"]) for row in rows]
    withdraw(tx, tenant, gone)
    return gone


def withdraw(tx: Tx, tenant: Tenant, ids: Sequence[DocumentId]) -> None:
    """Remove documents, locked, for good, but take only the tenant's tags off those that carry
    others, too. Raises as `strip`."""
    if tenant.tags is None:
        remove(tx, tenant.id, ids, by=tenant.key)
    else:
        strip(tx, tenant, ids, tenant.tags)


def drop(tx: Tx, org: OrgId, ids: Sequence[DocumentId], *, by: KeyId | None = None) -> None:
    """Remove for good documents of a connection: gone at the provider, or with it (`by`: who)."""
    remove(tx, org, sorted(ids), by=by)
