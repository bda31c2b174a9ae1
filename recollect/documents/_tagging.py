"""Taking tags from documents, and merging them."""

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime

from recollect.db import Tx, tenancy
from recollect.documents._asked import DocumentChange
from recollect.documents._changing import (
    count,
    lock_memories,
    members_of,
    refuse_shared_files,
    set_details,
    take_away,
)
from recollect.documents._rows import COLUMNS, ORDER, REACH, foreign_tags, read, sought
from recollect.documents._versions import (
    forget_tags,
    move_tags,
    move_tags_of_others,
)
from recollect.errors import BadRequestError
from recollect.index import terms
from recollect.model import (
    Document,
    DocumentId,
    OrgId,
    Tenant,
)


def hold_tag(tx: Tx, tenant: Tenant, tag: str) -> None:
    """Lock all that `untag` changes, by id."""
    _hold_tag(tx, tenant, tag)


def untag(tx: Tx, tenant: Tenant, tag: str) -> list[DocumentId]:
    """Take a tag off all documents and older texts; those documents that have no other are removed,
    and returned.

    Raises BadRequestError when a document would come to share its customId with another.
    """
    carrying, had = _hold_tag(tx, tenant, tag)
    forget_tags(tx, had, [tag])
    return strip(tx, tenant, carrying, [tag])


def _hold_tag(tx: Tx, tenant: Tenant, tag: str) -> tuple[list[DocumentId], list[DocumentId]]:
    """The documents of the tag, and those of which older texts are, locked."""
    rows = tx.execute(
        "with had as materialized (select v.document_id as id from versions v"
        "  join documents d on d.id = v.document_id"
        "  where d.org_id = %(org)s and v.container_tags @> array[%(tag)s])"
        " select d.id, %(tag)s = any(d.container_tags) as carries, d.id in (table had) as had"
        " from documents d where d.id in ("
        "  select d.id from documents d where " + REACH + " and d.scope @> %(scope)s"
        "   and %(tag)s = any(d.container_tags) union table had)"
        " and d.gone_at is null" + ORDER + " for update of d",
        {**tenancy.bounds(tenant), "scope": sought(tenant.id, [tag]), "tag": tag},
    ).fetchall()
    return [row["id"] for row in rows if row["carries"]], [row["id"] for row in rows if row["had"]]


def strip(
    tx: Tx, tenant: Tenant, ids: Sequence[DocumentId], tags: Collection[str]
) -> list[DocumentId]:
    """Take tags off documents, locked, and off the files of archives among them; those that have no
    other are removed, and returned.

    Raises BadRequestError when a document would come to share its customId with another, and
    PermissionDeniedError as `refuse_shared_files`.
    """
    # Those that stay are read whole; of those that go, who may be very many, the ids are enough.
    rows = tx.execute(
        "select " + COLUMNS + " from documents d"
        " where d.id = any(%s) and not d.container_tags <@ %s::text[]" + ORDER,
        (list(ids), list(tags)),
    )
    rest = {one.id: (one, _without(one, tags)) for one in map(read, rows)}
    gone = [id for id in ids if id not in rest]
    refuse_shared_files(tx, tenant, gone)
    members = members_of(tx, list(rest)) if rest else ()
    files = {one.id: (one, _without(one, tags)) for one in members}
    everything = rest | files
    shared = [(one, left) for one, left in everything.values() if left]
    _check_custom_ids(tx, tenant, [(one, left[0]) for one, left in shared])
    forget_tags(tx, list(everything), tags)
    lock_memories(tx, [*gone, *everything])
    going = [*gone, *(id for id, (_, left) in files.items() if not left)]
    delta = take_away(tx, tenant.id, going, by=tenant.key)
    for one, left in shared:
        delta.update(set_details(tx, one, DocumentChange(tags=left)))
    count(tx, tenant.id, delta)
    return gone


def _without(document: Document, tags: Collection[str]) -> list[str]:
    return [name for name in document.container_tags if name not in tags]


def _check_custom_ids(tx: Tx, tenant: Tenant, firsts: Sequence[tuple[Document, str]]) -> None:
    """Whether the documents may have these first tags; raises BadRequestError."""
    wanted = Counter((one.custom_id, first) for one, first in firsts if one.custom_id is not None)
    taken = next((pair for pair, times in wanted.items() if times > 1), None)
    row = tx.execute(
        "select other.custom_id, other.container_tags[1] as tag"
        " from unnest(%s::text[], %s::text[], %s::text[]) as asked (id, custom_id, tag)"
        " join documents other on other.org_id = %s and other.custom_id = asked.custom_id"
        "  and other.container_tags[1] = asked.tag and not other.id = any(%s) limit 1",
        (
            [one.id for one, _ in firsts],
            [one.custom_id for one, _ in firsts],
            [first for _, first in firsts],
            tenant.id,
            [one.id for one, _ in firsts],
        ),
    ).fetchone()
    if row is not None:
        taken = (row["custom_id"], row["tag"])
    if taken is not None:
        custom_id, tag = taken
        where = "another tag" if foreign_tags(tenant, [tag]) else f"the tag {tag!r}"
        raise BadRequestError(
            f"two documents of {where} would have the customId {custom_id!r}; delete or rename one"
            " of them first"
        )


def retag(
    tx: Tx,
    org: OrgId,
    sources: Sequence[str],
    target: str,
    *,
    kept: Sequence[str],
    until: datetime,
    limit: int,
) -> tuple[int, list[DocumentId]]:
    """Give up to `limit` documents of any of the sources the target in their place.

    `kept`, and those that came after `until`, are passed over. Returns how many were moved, and
    those that cannot be, since another document of the target has their customId.
    """
    rows = tx.execute(
        "select " + COLUMNS + " from documents d where d.org_id = %(org)s"
        " and d.gone_at is null and d.scope && %(numbers)s::int4[]"
        " and d.container_tags && %(sources)s::text[]"
        " and d.created_at <= %(until)s and not d.id = any(%(kept)s)"
        + ORDER
        + " limit %(limit)s for update",
        {
            "org": org,
            "numbers": [terms.tag_number(org, tag) for tag in sources],
            "sources": list(sources),
            "kept": list(kept),
            "until": until,
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
        tx.execute(  # they would go else, as those of a tag that a document leaves
            "update test_questions set tag = %s where made_from = %s and tag = any(%s)",
            (target, document.id, list(sources)),
        )
        delta.update(set_details(tx, document, change))
        move_tags(tx, document.id, sources, target)
        moved += 1
    if len(found) < limit:
        move_tags_of_others(tx, org, sources, target)
    count(tx, org, delta)
    return moved, stuck
