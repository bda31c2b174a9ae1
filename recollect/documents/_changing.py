"""The steps that all changes are made of: content, details, removal, and the counts of tags."""

from collections import Counter
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, LiteralString

from psycopg.errors import UniqueViolation
from psycopg.types.json import Jsonb

from recollect import db
from recollect.db import Tx
from recollect.documents import _versions
from recollect.documents._asked import DocumentChange, NewDocument
from recollect.documents._blobs import name_blobs
from recollect.documents._counts import take_off
from recollect.documents._naming import rename
from recollect.documents._rows import COLUMNS, LATER, read, scope, stored
from recollect.errors import Collided, PermissionDeniedError
from recollect.model import (
    Content,
    Document,
    DocumentId,
    KeyId,
    Metadata,
    OrgId,
    Tenant,
    random_id,
)
from recollect.orgs import audit

AT_ONCE = 2_000
"""Documents and chunks that one transaction removes, a second of work."""
SWEPT = 1_000
"""The same of what is gone already: others wait for what it locks."""
INSERT = (
    "insert into documents as d (id, org_id, custom_id, container_tags, scope, kind, title,"
    " url, source, filepath, metadata, document_date, task_type, dreaming, content,"
    " content_hash, blob, blob_name, blob_mime, forced_kind, extractor, source_id, connection_id,"
    " archive_id, archive_path, group_pairs, created_at, updated_at, due_at)"
    " values (%(id)s, %(org)s, %(custom_id)s, %(tags)s, %(scope)s, %(kind)s, %(title)s,"
    " %(url)s, %(source)s, %(filepath)s, %(metadata)s, %(document_date)s, %(task_type)s,"
    " %(dreaming)s, %(text)s, %(hash)s, %(blob)s, %(blob_name)s, %(blob_mime)s, %(forced)s,"
    " %(extractor)s, %(source_id)s, %(connection)s, %(archive)s, %(archive_path)s, %(group)s,"
    " now() + %(after)s, now() + %(after)s, now() + %(after)s)"
)


def insert(tx: Tx, org: OrgId, new: NewDocument, id: DocumentId) -> Document:
    if new.content.blob is not None:
        name_blobs(tx, [new.content.blob.key])
    with _unless_taken(id):
        row = tx.execute(INSERT + " returning " + COLUMNS, row_of(org, new, id)).fetchone()
    assert row is not None
    db.notify(tx)
    return read(row)


def insert_all(tx: Tx, org: OrgId, news: Sequence[NewDocument]) -> list[Document]:
    """`insert` for texts, at once; they keep their order."""
    rows = [
        {**row_of(org, new, DocumentId(random_id())), "after": timedelta(microseconds=place)}
        for place, new in enumerate(news)
    ]
    with tx.cursor() as cursor, _unless_taken(f"{len(news)} documents"):
        cursor.executemany(INSERT + " returning " + COLUMNS, rows, returning=True)
        made = [read(row) for result in cursor.results() for row in result]
    db.notify(tx)
    return made


def row_of(org: OrgId, new: NewDocument, id: DocumentId) -> dict[str, object]:
    return {
        "id": id,
        "org": org,
        "custom_id": new.custom_id,
        "tags": list(new.tags),
        "scope": scope(org, new.tags),
        "title": new.title,
        "source": new.source,
        "filepath": new.filepath,
        "metadata": None if new.metadata is None else Jsonb(dict(new.metadata)),
        "document_date": new.document_date,
        "task_type": new.task_type or "memory",
        "dreaming": new.dreaming or "dynamic",
        "connection": new.connection_id,
        "archive": new.archive_id,
        "archive_path": new.archive_path,
        "group": grouped(new.group),
        "after": timedelta(),
        **stored(new.content),
    }


def grouped(group: Metadata | None) -> Jsonb | None:
    """As it is stored: an empty group is none."""
    return Jsonb(dict(group)) if group else None


def accept(tx: Tx, id: DocumentId, content: Content, *, revive: bool) -> None:
    """Take new content. If it is the same, retry what failed or found nothing, and take the file.

    The same bytes are another content as a file than as a text, and under another name, which may
    say what kind they are.
    """
    if content.blob is not None:
        name_blobs(tx, [content.blob.key])
    row = tx.execute(
        "update documents d set revision = d.revision + 1, attempts = 0,"
        " status = case when d.status = 'processing' then d.status else 'queued' end,"
        " due_at = case when d.status = 'processing' then d.due_at else now() end,"
        " error_code = null, error_message = null, updated_at = "
        + LATER
        + ", kind = %(kind)s, url = %(url)s, content = %(text)s, content_hash = %(hash)s,"
        " blob = %(blob)s, blob_name = %(blob_name)s, blob_mime = %(blob_mime)s,"
        " forced_kind = %(forced)s, extractor = %(extractor)s, source_id = %(source_id)s"
        " from (select id, blob from documents where id = %(id)s for update) old"
        " where d.id = old.id and ((d.content_hash, d.forced_kind, d.blob is null,"
        "    d.blob_name, d.blob_mime) is distinct from (%(hash)s, %(forced)s::text,"
        "    %(blob)s::text is null, %(blob_name)s::text, %(blob_mime)s::text)"
        "   or (%(revive)s and d.status = 'failed'))"
        " returning old.blob",
        {"id": id, "revive": revive, **stored(content)},
    ).fetchone()
    if row is not None:
        doom(tx, [row["blob"]])
        db.notify(tx)
        return
    if content.blob is not None:
        # The store certainly has the new file; its disk may have lost the old one, which is equal.
        # While a worker may be reading the old one, that stays, and the new one goes.
        held = tx.execute(
            "update documents d set blob = %(blob)s"
            " from (select id, blob from documents where id = %(id)s for update) old"
            " where d.id = old.id and d.status in ('done', 'failed') returning old.blob",
            {"id": id, "blob": content.blob.key},
        ).fetchone()
        doom(tx, [content.blob.key if held is None else held["blob"]])
    again = tx.execute(
        "update documents set status = 'queued', due_at = now(), attempts = 0,"
        " error_code = null, error_message = null, told_failure = null, updated_at = "
        + LATER
        + " where id = %s and (status = 'failed' or (status = 'done' and chunks = 0))",
        (id,),
    )
    if again.rowcount:
        db.notify(tx)


def set_details(tx: Tx, document: Document, change: DocumentChange) -> Counter[int]:
    """Everything of a change but the content; returns by how much `term_counts` change."""
    tags = None if change.tags is None else list(change.tags)
    if tags == list(document.container_tags):
        tags = None
    # customId and tags in one statement: a state between may collide with another document.
    with _unless_taken(document.id):
        row = tx.execute(
            "update documents d set custom_id = coalesce(%(custom_id)s, d.custom_id),"
            " given_title = nullif(coalesce(%(title)s, d.given_title), ''),"
            " title = coalesce(nullif(%(title)s, ''), d.title),"
            " container_tags = coalesce(%(tags)s, d.container_tags),"
            " scope = coalesce(%(scope)s, d.scope),"
            " filepath = coalesce(%(filepath)s, d.filepath),"
            " metadata = coalesce(%(metadata)s,"
            "   case when 'metadata' <> all(%(clears)s::text[]) then d.metadata end),"
            " group_pairs = case when %(sets_group)s then %(group)s else d.group_pairs end,"
            " document_date = coalesce(%(document_date)s,"
            "   case when 'document_date' <> all(%(clears)s::text[]) then d.document_date end),"
            " task_type = coalesce(%(task_type)s, d.task_type),"
            " dreaming = coalesce(%(dreaming)s, d.dreaming), updated_at = "
            + LATER
            + " from (select id, scope from documents where id = %(id)s) old"
            " where d.id = old.id and (%(sets_group)s"
            "  or num_nonnulls(%(custom_id)s::text, %(title)s::text, %(tags)s::text[],"
            "   %(filepath)s::text, %(metadata)s::jsonb, %(document_date)s::timestamptz,"
            "   %(task_type)s::text, %(dreaming)s::text, nullif(%(clears)s::text[], '{}')) > 0)"
            " returning old.scope",
            {
                "id": document.id,
                "custom_id": change.custom_id,
                "title": change.title,
                "tags": tags,
                "scope": scope(document.org_id, tags) if tags else None,
                "filepath": change.filepath,
                "metadata": None if change.metadata is None else Jsonb(dict(change.metadata)),
                "sets_group": change.group is not None or "group" in change.clears,
                "group": grouped(change.group),
                "document_date": change.document_date,
                "task_type": change.task_type,
                "dreaming": change.dreaming,
                "clears": list(change.clears),
            },
        ).fetchone()
    delta = Counter[int]()
    if tags and row is not None:
        db.fence(tx)
        old, new = row["scope"], scope(document.org_id, tags)
        moved = tx.execute(
            "update entries set terms = %s::int4[] || terms[%s:] where document_id = %s",
            (new, len(old) + 1, document.id),
        ).rowcount
        delta.update(dict.fromkeys(new, moved))
        delta.subtract(dict.fromkeys(old, moved))
        _drop_questions(tx, [document.id])
    if change.title is not None:
        delta.update(rename(tx, document.org_id, document.id))
    return delta


@contextmanager
def _unless_taken(whose: str) -> Generator[None]:
    """Raises Collided where another document took the customId since it was found free; a second
    try finds that document."""
    try:
        yield
    except UniqueViolation as error:
        if error.diag.constraint_name != "documents_custom_id":
            raise
        told = f"another document took the customId of {whose}, in the tag that it comes to"
        raise Collided(told) from None


def set_details_of_all(tx: Tx, document: Document, change: DocumentChange) -> Counter[int]:
    """The same with the members of an archive; returns by how much `term_counts` change."""
    shared = replace(change, content=None, custom_id=None, title=None)
    members = [] if shared == DocumentChange() else members_of(tx, [document.id])
    if change.tags is not None and list(change.tags) != list(document.container_tags):
        lock_memories(tx, [document.id, *(member.id for member in members)])
    delta = set_details(tx, document, change)
    if not members:
        return delta
    tags = None if change.tags is None else list(change.tags)
    new = None if tags is None else scope(document.org_id, tags)
    tx.execute(
        "update documents set container_tags = coalesce(%(tags)s, container_tags),"
        " scope = coalesce(%(scope)s, scope),"
        " filepath = coalesce(%(filepath)s || '/' || archive_path, filepath),"
        " metadata = coalesce(%(metadata)s,"
        "   case when 'metadata' <> all(%(clears)s::text[]) then metadata end),"
        " group_pairs = case when %(sets_group)s then %(group)s else group_pairs end,"
        " document_date = coalesce(%(document_date)s,"
        "   case when 'document_date' <> all(%(clears)s::text[]) then document_date end),"
        " task_type = coalesce(%(task_type)s, task_type),"
        " dreaming = coalesce(%(dreaming)s, dreaming), updated_at = "
        + LATER
        + " where id = any(%(ids)s)",
        {
            "tags": tags,
            "scope": new,
            "filepath": None if change.filepath is None else change.filepath.rstrip("/"),
            "metadata": None if change.metadata is None else Jsonb(dict(change.metadata)),
            "sets_group": change.group is not None or "group" in change.clears,
            "group": grouped(change.group),
            "document_date": change.document_date,
            "task_type": change.task_type,
            "dreaming": change.dreaming,
            "clears": list(change.clears),
            "ids": [member.id for member in members],
        },
    )
    if new is None:
        return delta
    db.fence(tx)
    old = {
        member.id: scope(document.org_id, member.container_tags)
        for member in members
        if list(member.container_tags) != tags
    }
    rows = tx.execute(
        "update entries e set terms = %s::int4[] || e.terms[m.skipped:]"
        " from unnest(%s::text[], %s::int[]) as m (id, skipped) where e.document_id = m.id"
        " returning e.document_id",
        (new, list(old), [len(numbers) + 1 for numbers in old.values()]),
    )
    for row in rows:
        delta.update(new)
        delta.subtract(old[row["document_id"]])
    _drop_questions(tx, list(old))
    return delta


def _drop_questions(tx: Tx, ids: Sequence[DocumentId]) -> None:
    """Test questions quote what they were made of: they go where it leaves their tag, too."""
    tx.execute(
        "delete from test_questions t using documents d where t.made_from = d.id"
        " and d.id = any(%s) and not t.tag = any(d.container_tags)",
        (ids,),
    )


def refuse_shared_files(tx: Tx, tenant: Tenant, archives: Sequence[DocumentId]) -> None:
    """Raises PermissionDeniedError where a file of an archive carries a tag that its archive has
    not and the tenant may not touch: tags and the end of the archive would be those of the file."""
    _refuse_files(tx, tenant, archives, "not m.container_tags <@ (a.container_tags || %s::text[])")


def refuse_unseen_files(tx: Tx, tenant: Tenant, archive: Document) -> None:
    """Raises PermissionDeniedError where the tenant does not see a file of an archive, which every
    change of the archive would reach."""
    if archive.members:
        _refuse_files(tx, tenant, [archive.id], "not m.container_tags && %s::text[]")


def _refuse_files(
    tx: Tx, tenant: Tenant, archives: Sequence[DocumentId], which: LiteralString
) -> None:
    if tenant.tags is None:
        return
    row = tx.execute(
        "select a.id from documents a join documents m on m.archive_id = a.id"
        " where a.org_id = %s and a.id = any(%s) and " + which + " limit 1",
        (tenant.id, list(archives), list(tenant.tags)),
    ).fetchone()
    if row is not None:
        raise PermissionDeniedError(
            "Forbidden",
            f"a file of the archive {row['id']} also carries a tag that this key may not use;"
            " change or delete the other files one by one",
        )


def members_of(tx: Tx, archives: Sequence[DocumentId]) -> list[Document]:
    """Locked."""
    rows = tx.execute(
        "select " + COLUMNS + " from documents d where d.archive_id is not null"
        " and d.archive_id = any(%s) order by d.id for update",
        (list(archives),),
    )
    return [read(row) for row in rows]


def remove(tx: Tx, org: OrgId, ids: Sequence[DocumentId], *, by: KeyId | None = None) -> None:
    count(tx, org, take_away(tx, org, ids, by=by))


def take_away(
    tx: Tx, org: OrgId, ids: Sequence[DocumentId], *, by: KeyId | None = None
) -> Counter[int]:
    """Remove documents, locked, with their members: no answer shows them after the commit. Returns
    by how much `term_counts` change now.

    Up to `AT_ONCE` go in this transaction, with a receipt; of more, a worker removes the rows.
    """
    ids = list(dict.fromkeys([*ids, *(member.id for member in members_of(tx, ids))]))
    row = tx.execute(
        "select coalesce(sum(chunks + 1), 0) as rows from documents where id = any(%s)", (ids,)
    ).fetchone()
    receipt = None if row is not None and row["rows"] > AT_ONCE else random_id()
    if by is not None and len(ids) > 1:
        audit.record(tx, "documents.deleted", receipt, org=org, documents=len(ids))
    if receipt is None:
        _hide(tx, ids, by)
        return Counter()
    return take_out(tx, org, ids, by=by, receipt=receipt)


def _hide(tx: Tx, ids: Sequence[DocumentId], by: KeyId | None) -> None:
    """All that others could see of them goes now: memories, test questions, their place in the
    queue and in an archive, their name, what a connection keeps of them. Who works on one loses it.
    """
    lock_memories(tx, ids)
    tx.execute("delete from memory_sources where document_id = any(%s)", (list(ids),))
    tx.execute("delete from dreams where document_id = any(%s)", (list(ids),))
    tx.execute("delete from test_questions where made_from = any(%s)", (list(ids),))
    tx.execute("update items set document_id = null where document_id = any(%s)", (list(ids),))
    with take_off(tx, ids):
        tx.execute(
            "update documents set gone_at = now(), gone_by = %s, due_at = null, custom_id = null,"
            " connection_id = null, archive_id = null, archive_path = null, claims = claims + 1"
            " where id = any(%s)",
            (by, list(ids)),
        )
    db.notify(tx)


def sweep(tx: Tx) -> int:
    """Remove some of what is gone, with a receipt, and of the older texts that nobody keeps any
    more; how many."""
    rows = tx.execute(
        "select id, org_id, gone_by, sum(chunks + 1) over (order by gone_at, id) - chunks as before"
        " from (select id, org_id, gone_by, gone_at, chunks from documents"
        "  where gone_at is not null order by gone_at, id limit %s for update skip locked) d",
        (SWEPT,),
    ).fetchall()
    of: dict[tuple[OrgId, KeyId | None], list[DocumentId]] = {}
    for row in rows:
        if row["before"] <= SWEPT:
            of.setdefault((row["org_id"], row["gone_by"]), []).append(row["id"])
    deltas: dict[OrgId, Counter[int]] = {}
    for (org, by), ids in of.items():
        deltas.setdefault(org, Counter()).update(take_out(tx, org, ids, by=by))
    for org, delta in sorted(deltas.items()):
        count(tx, org, delta)
    return sum(len(ids) for ids in of.values()) + _versions.sweep(tx)


def take_out(
    tx: Tx,
    org: OrgId,
    ids: Sequence[DocumentId],
    *,
    by: KeyId | None = None,
    receipt: str | None = None,
) -> Counter[int]:
    """Remove documents with their members, with a receipt, of that id if one is given; returns by
    how much `term_counts` change."""
    ids = list(dict.fromkeys([*ids, *(member.id for member in members_of(tx, ids))]))
    lock_memories(tx, ids)
    delta = Counter[int]()
    rows = tx.execute(
        "select number, count(*) as n from entries, unnest(terms) as number"
        " where document_id = any(%s) group by number",
        (list(ids),),
    )
    for row in rows:
        delta[row["number"]] -= row["n"]
    gone = tx.execute(
        "delete from documents where org_id = %s and id = any(%s) returning id, blob, chunks",
        (org, list(ids)),
    ).fetchall()
    doom(tx, [row["blob"] for row in gone])
    if gone:
        _receipt(tx, receipt or random_id(), org, gone, by)
    return delta


def _receipt(
    tx: Tx, id: str, org: OrgId, gone: Sequence[Mapping[str, Any]], by: KeyId | None
) -> None:
    """Note that documents were deleted, without a word of them: their ids are random."""
    tx.execute(
        "with receipt as (insert into receipts (id, org_id, key_id, documents, chunks, files)"
        "  values (%(id)s, %(org)s, %(key)s, %(documents)s, %(chunks)s, %(files)s) returning id)"
        " insert into receipt_documents (document, receipt_id)"
        " select sha256(convert_to(document, 'UTF8')), receipt.id"
        " from receipt, unnest(%(ids)s::text[]) as document",
        {
            "id": id,
            "org": org,
            "key": by,
            "documents": len(gone),
            "chunks": sum(row["chunks"] for row in gone),
            "files": sum(row["blob"] is not None for row in gone),
            "ids": [row["id"] for row in gone],
        },
    )


def drop_stashed(tx: Tx, org: OrgId, ids: Sequence[DocumentId]) -> None:
    """Entries that no chunk places belong to a revision that will never be finished."""
    db.fence(tx)
    delta = Counter[int]()
    rows = tx.execute(
        "delete from entries e where e.document_id = any(%s) and not exists"
        " (select 1 from chunks c where c.document_id = e.document_id and c.hash = e.hash)"
        " returning e.terms",
        (list(ids),),
    )
    for row in rows:
        delta.subtract(row["terms"])
    count(tx, org, delta)


def lock_memories(tx: Tx, ids: Sequence[str], *, keep: Collection[bytes] = ()) -> None:
    """Those that rest on these documents, but for their chunk texts `keep`, with all versions.

    Who takes evidence away may end a memory, which changes the versions before and after it (see
    the migration `0007_memories`). So that two of them never wait for each other, everybody first
    locks documents by their ids, then chains (`lock_chains`).
    """
    if not ids:
        return
    lock_chains(
        tx,
        "select coalesce(m.root_id, m.id) from memory_sources s join memories m"
        " on m.id = s.memory_id where s.document_id = any(%s) and not s.hash = any(%s::bytea[])",
        (list(ids), list(keep)),
    )


def lock_chains(
    tx: Tx, roots: LiteralString, parameters: Sequence[object] | Mapping[str, object]
) -> None:
    """Lock memories with all versions, and what was concluded from any of these, and so on: that
    ends with them. By the first version, then by version.

    `roots` is a query of the ids of first versions.
    """
    tx.execute(
        f"with recursive touched (root) as (({roots})"
        " union select coalesce(c.root_id, c.id) from touched t cross join lateral"
        "  (select t.root as id union all select v.id from memories v where v.root_id = t.root) p"
        "  join memory_relations r on r.target_id = p.id and r.relation = 'derives'"
        "  join memories c on c.id = r.memory_id)"
        " select from memories m where m.id in (select root from touched"
        "  union select v.id from touched t join memories v on v.root_id = t.root)"
        " order by coalesce(m.root_id, m.id), m.version, m.id for update",
        parameters,
    )


def count(tx: Tx, org: OrgId, delta: Mapping[int, int]) -> None:
    changed = {number: change for number, change in delta.items() if change}
    if not changed:
        return
    # In the order of the numbers, and once a transaction, so that two cannot wait for each other.
    tx.execute(
        "insert into term_counts (org_id, number, entries)"
        " select %s, number, change from unnest(%s::int4[], %s::int4[]) as t (number, change)"
        " order by number"
        " on conflict (org_id, number) do update"
        " set entries = term_counts.entries + excluded.entries",
        (org, list(changed), list(changed.values())),
    )
    fewer = [number for number, change in changed.items() if change < 0]
    if fewer:
        tx.execute(
            "delete from term_counts where org_id = %s and number = any(%s) and entries <= 0",
            (org, fewer),
        )


def doom(tx: Tx, keys: Sequence[str | None]) -> None:
    named = [key for key in keys if key is not None]
    if named:
        tx.execute(
            "insert into doomed_blobs (key) select unnest(%s::text[]) on conflict do nothing",
            (named,),
        )
        db.notify(tx)
