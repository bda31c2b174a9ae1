"""Adding and changing documents, for callers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from psycopg.types.json import Jsonb

from recollect import db
from recollect.db import Tx, tenancy
from recollect.documents._asked import DocumentChange, NewDocument
from recollect.documents._changing import (
    accept,
    count,
    doom,
    grouped,
    insert,
    refuse_shared_files,
    refuse_unseen_files,
    set_details_of_all,
)
from recollect.documents._reading import get, row_of
from recollect.documents._rows import (
    COLUMNS,
    DIRECT,
    LATER,
    ORDER,
    REACH,
    TITLE_LENGTH,
    ambiguous,
    content_of,
    foreign_tags,
    lock,
    read,
    sought,
    stored,
    text_content,
)
from recollect.errors import (
    BadRequestError,
    ConflictError,
    RecollectError,
)
from recollect.model import (
    Content,
    Document,
    DocumentId,
    Tenant,
)

JOINED_AT_ONCE = 20_000
"""characters of two texts that are joined while the row is locked: milliseconds"""
RECENT = "d.created_at > now() - interval '10 seconds'"
"""What came so long ago at most may be sent again by a client that got no answer."""
RETRIED = "d.created_at > now() - interval '5 minutes' and d.gone_at is null"
"""What came so long ago at most is the same if the client says that it sends it again: the
published ones wait a minute for each of three answers."""


@dataclass(frozen=True, slots=True)
class Joined:
    """What a text that is added again makes of a revision of a document."""

    id: DocumentId
    revision: int
    content: Content


class Unjoined(RecollectError):
    """Two texts are too long to be joined while others wait for the row. The caller leaves the
    transaction, has them joined (`join`), and adds again with the result."""

    def __init__(self, id: DocumentId, revision: int, text: str, *, recent: bool) -> None:
        super().__init__(f"the text of {id} has to be joined first")
        self.id = id
        self.revision = revision
        self.text = text
        self.recent = recent


def join(found: Unjoined, new: NewDocument) -> Joined:
    """Takes seconds for the longest texts."""
    assert new.content.text is not None
    text = new.join(found.text, new.content.text, found.recent)
    return Joined(found.id, found.revision, text_content(text, kind=new.content.kind))


def add(
    tx: Tx, tenant: Tenant, new: NewDocument, id: DocumentId, *, joined: Joined | None = None
) -> Document:
    """Insert, or bring the document with the same customId up to date (contract 7.2).

    `id` is taken if a document is inserted. Raises ConflictError when the customId is ambiguous,
    and Unjoined, before anything is written, unless long texts were `joined` for the revision that
    is there.
    """
    if new.custom_id is None:
        twin = _twin(tx, tenant, new)
        return twin or insert(tx, tenant.id, new, id)
    # Two adds of the same customId follow one another: the second sees the first's row.
    lock(tx, tenant.id, ("customId", new.custom_id))
    tag = new.tags[0] if new.tagged else None
    found = _with_custom_id(tx, tenant, new.custom_id, tag, joined)
    if found is None:
        return insert(tx, tenant.id, new, id)
    return _add_again(tx, tenant, found, new, joined)


def all_new(tx: Tx, tenant: Tenant, news: Sequence[NewDocument]) -> bool:
    """Whether `add` would insert each of them, so that `insert_all` may. Until the transaction ends
    nobody else adds one of them."""
    names = [
        ("content", new.content.hash.hex())
        if new.custom_id is None
        else ("customId", new.custom_id)
        for new in news
    ]
    if len(set(names)) < len(names) or any(new.retried for new in news):
        return False
    lock(tx, tenant.id, *names)
    known = tx.execute(
        "select exists (select from documents d where d.org_id = %(org)s"
        "   and d.custom_id = any(%(custom_ids)s))"
        "  or exists (select from documents d where d.org_id = %(org)s and d.custom_id is null"
        "   and d.content_hash = any(%(hashes)s) and d.due_at is not null and " + RECENT + ")"
        "  as some",
        {
            "org": tenant.id,
            "custom_ids": [new.custom_id for new in news if new.custom_id is not None],
            "hashes": [new.content.hash for new in news if new.custom_id is None],
        },
    ).fetchone()
    return known is not None and not known["some"]


def bear(tx: Tx, tenant: Tenant, tag: str, text: str, id: DocumentId) -> Document:
    """Insert a document that bears memories which nobody has to draw from it: done at once.

    It is never processed and has no chunks. The same within seconds is a client's retry, and gets
    the document that is there.
    """
    content = text_content(text)
    lock(tx, tenant.id, ("content", content.hash.hex()))
    row = tx.execute(
        "select " + COLUMNS + " from documents d where d.org_id = %s and d.gone_at is null"
        " and d.scope @> %s"
        " and d.source = %s and d.container_tags = array[%s::text] and d.content_hash = %s"
        # Who is deleting it is waited for: memories would come to rest on what is gone.
        " and " + RECENT + " limit 1 for key share",
        (tenant.id, sought(tenant.id, [tag]), DIRECT, tag, content.hash),
    ).fetchone()
    if row is not None:
        return read(row)
    document = insert(tx, tenant.id, NewDocument(content, [tag], source=DIRECT), id)
    done = tx.execute(
        "update documents d set status = 'done', due_at = null, indexed_revision = revision,"
        " text = content, title = left(split_part(content, E'\n', 1), %s) where id = %s returning "
        + COLUMNS,
        (TITLE_LENGTH, document.id),
    ).fetchone()
    assert done is not None
    return read(done)


def update(tx: Tx, tenant: Tenant, id: str, change: DocumentChange) -> Document:
    """Metadata and labels in place, without indexing; new content replaces all and is queued.

    Tags, metadata and the like of an archive go to its members, too. Tags that the tenant may not
    touch stay on the document, whatever it names. Raises NotFoundError, BadRequestError when the
    new customId is taken in that tag, or for new content of a document that only bears memories,
    and PermissionDeniedError as `refuse_shared_files` and `refuse_unseen_files`.
    """
    document = _locked(tx, tenant, id, change)
    if replace(change, custom_id=None, title=None) != DocumentChange():
        refuse_unseen_files(tx, tenant, document)
    if change.tags:
        refuse_shared_files(tx, tenant, [document.id])
        change = replace(change, tags=_beside_foreign(tenant, document, change.tags))
    if change.laid is not None:
        laid = {**(document.metadata or {}), **change.laid}
        kept = {name: value for name, value in laid.items() if value is not None}
        change = replace(change, metadata=kept, laid=None)
    tags = change.tags or document.container_tags
    if change.custom_id is not None or change.tags:
        custom_id = change.custom_id or document.custom_id
        if custom_id is not None:
            taken = tx.execute(
                "select 1 from documents where org_id = %s and custom_id = %s"
                " and container_tags[1] = %s and id <> %s",
                (tenant.id, custom_id, tags[0], document.id),
            ).fetchone()
            if taken:
                # BadRequest, not Conflict: clients repeat a 409 by themselves, in vain here.
                where = (
                    "another tag of it" if foreign_tags(tenant, tags[:1]) else f"tag {tags[0]!r}"
                )
                raise BadRequestError(f"customId: {custom_id!r} is taken in {where}")
    count(tx, document.org_id, set_details_of_all(tx, document, change))
    if change.content is not None:
        _refuse_direct(document)
        accept(tx, document.id, change.content, revive=True)
    return get(tx, tenant, document.id)


def reprocess(
    tx: Tx, tenant: Tenant, *, ids: Sequence[str] = (), failed: bool = False
) -> list[DocumentId]:
    """Queue the documents once more with the content they have: those named, or all that failed.
    One that waits for its next try gets it now."""
    rows = tx.execute(
        "with ended as materialized (select d.id from documents d"
        " where " + REACH + " and (d.status in ('done', 'failed')"
        "  or d.status = 'queued' and d.due_at > now()) and d.source <> %(direct)s"
        " and (d.id = any(%(ids)s) or d.custom_id = any(%(ids)s)"
        " or (%(failed)s and d.status = 'failed'))" + ORDER + " for update)"
        " update documents d set status = 'queued', stage = null, due_at = now(), attempts = 0,"
        " error_code = null, error_message = null, told_failure = null, updated_at = "
        + LATER
        + " from ended where d.id = ended.id returning d.id",
        {**tenancy.bounds(tenant), "ids": list(ids), "failed": failed, "direct": DIRECT},
    ).fetchall()
    if rows:
        db.notify(tx)
    return [DocumentId(row["id"]) for row in rows]


def reindex(tx: Tx) -> int:
    """Queue every document again and forget all vectors; for a change of the embedding model.
    How many wait then, with those that waited already: an earlier call may have been cut off."""
    db.fence(tx)
    tx.execute(
        "update entries set embedding = null, embedding_b = null"
        " where embedding is not null or embedding_b is not null"
    )
    tx.execute(
        "update documents set status = 'queued', stage = null, due_at = now(), attempts = 0"
        " where status in ('done', 'failed') and gone_at is null and source <> %s",
        (DIRECT,),
    )
    db.notify(tx)
    row = tx.execute(
        "select count(*) as n from documents"
        " where status in ('queued', 'processing') and gone_at is null and source <> %s",
        (DIRECT,),
    ).fetchone()
    assert row is not None
    return row["n"]


def _beside_foreign(tenant: Tenant, document: Document, named: Sequence[str]) -> list[str]:
    """The named tags and those that are not the tenant's to take off. The first tag is what its
    customId and its memories go by, so a foreign one stays the first."""
    carried = document.container_tags
    foreign = foreign_tags(tenant, carried)
    first = [tag for tag in carried[:1] if tag in foreign]
    return list(dict.fromkeys([*first, *named, *foreign]))


def _add_again(
    tx: Tx, tenant: Tenant, row: Mapping[str, Any], new: NewDocument, joined: Joined | None
) -> Document:
    document = read(row)
    _refuse_direct(document)
    content = _merged(row, new, joined)
    added = [t for t in new.tags if new.tagged and t not in row["container_tags"]]
    change = DocumentChange(
        tags=[*row["container_tags"], *added] if added else None,
        filepath=new.filepath,
        metadata=new.metadata,
        group=new.group,
        document_date=new.document_date,
        task_type=new.task_type,
        dreaming=new.dreaming,
    )
    if change != DocumentChange() or content.hash != row["content_hash"]:
        refuse_unseen_files(tx, tenant, document)
    if added:
        refuse_shared_files(tx, tenant, [document.id])
    count(tx, document.org_id, set_details_of_all(tx, document, change))
    accept(tx, document.id, content, revive=False)
    return get(tx, tenant, document.id)


def _refuse_direct(document: Document) -> None:
    if document.source == DIRECT:
        raise BadRequestError(
            "content: this document only bears memories that were added directly;"
            " change those with PATCH /v4/memories"
        )


def _merged(row: Mapping[str, Any], new: NewDocument, joined: Joined | None) -> Content:
    """What the document's content becomes: texts grow or are edited, everything else replaces."""
    if joined is not None and (joined.id, joined.revision) == (row["id"], row["revision"]):
        return joined.content
    old, given = content_of(row), new.content
    if old.text is None or given.text is None or old.url is not None or given.url is not None:
        return given
    found = Unjoined(DocumentId(row["id"]), row["revision"], old.text, recent=row["recent"])
    if len(old.text) + len(given.text) > JOINED_AT_ONCE:
        raise found
    return join(found, new).content


def _twin(tx: Tx, tenant: Tenant, new: NewDocument) -> Document | None:
    """The same request a moment ago, still unfinished unless the client says that it is a retry.

    The same content under another name or path is no retry, nor is a file of an archive, which goes
    with that. Of several it is the newest.
    """
    since = RETRIED if new.retried else "d.due_at is not null and " + RECENT
    lock(tx, tenant.id, ("content", new.content.hash.hex()))
    row = tx.execute(
        "select " + COLUMNS + " from documents d"
        " where d.org_id = %(org)s and d.content_hash = %(hash)s"
        " and d.custom_id is null and d.container_tags = %(tags)s"
        " and (d.metadata, d.group_pairs, d.filepath, d.document_date, d.forced_kind,"
        "  d.blob is null, d.blob_name, d.blob_mime)"
        "  is not distinct from (%(metadata)s::jsonb, %(group)s::jsonb, %(filepath)s::text,"
        "  %(date)s::timestamptz, %(forced)s::text, %(blob)s::text is null, %(blob_name)s::text,"
        "  %(blob_mime)s::text)"
        " and d.task_type = %(task)s and d.source = %(source)s and d.revision = 1"
        " and d.archive_id is null and " + since + " order by d.created_at desc limit 1",
        {
            **stored(new.content),
            "org": tenant.id,
            "tags": list(new.tags),
            "metadata": None if new.metadata is None else Jsonb(dict(new.metadata)),
            "group": grouped(new.group),
            "filepath": new.filepath,
            "date": new.document_date,
            "task": new.task_type or "memory",
            "source": new.source,
        },
    ).fetchone()
    if row is not None and new.content.blob is not None:
        doom(tx, [new.content.blob.key])
    return None if row is None else read(row)


def _locked(tx: Tx, tenant: Tenant, id: str, change: DocumentChange) -> Document:
    """The document with its row locked, and before it, in the order of `add`, its customIds."""
    if change.custom_id is None and not change.tags:
        return read(row_of(tx, tenant, id, lock=True))
    found = get(tx, tenant, id)
    custom_ids = {name for name in (found.custom_id, change.custom_id) if name}
    lock(tx, tenant.id, *(("customId", name) for name in custom_ids))
    document = read(row_of(tx, tenant, found.id, lock=True))
    if document.custom_id != found.custom_id:
        raise ConflictError("Conflict", f"the customId of {found.id} was changed at this moment")
    return document


def _with_custom_id(
    tx: Tx, tenant: Tenant, custom_id: str, tag: str | None, joined: Joined | None
) -> Mapping[str, Any] | None:
    """The row that a customId means, locked; the customId is locked already. Its text is left out
    if it is `joined`."""
    wanted = (
        REACH + " and d.custom_id = %(custom_id)s"
        " and (%(tag)s::text is null or d.container_tags @> array[%(tag)s::text])"
    )
    known = {**tenancy.bounds(tenant), "custom_id": custom_id, "tag": tag}
    named = tx.execute(
        "select d.id, d.container_tags from documents d where "
        + wanted
        + " order by (d.container_tags[1] = %(tag)s) desc nulls last limit 2",
        known,
    ).fetchall()
    if not named:
        return None
    if len(named) > 1 and named[0]["container_tags"][0] != tag:
        raise ambiguous(custom_id, "name the containerTag, or use the id")
    return tx.execute(
        "select " + COLUMNS + ", d.content_hash, d.blob, d.blob_name, d.blob_mime,"
        " case when (d.id, d.revision) is distinct from (%(joined)s::text, %(revision)s::int)"
        "  then d.content end as content, d.forced_kind, d.extractor, d.source_id,"
        " d.due_at is not null or d.updated_at > now() - interval '10 seconds' as recent"
        # Asked once more: it may have left the tag while it was waited for.
        " from documents d where d.id = %(id)s and " + wanted + " for update",
        {
            **known,
            "id": named[0]["id"],
            "joined": joined and joined.id,
            "revision": joined and joined.revision,
        },
    ).fetchone()
