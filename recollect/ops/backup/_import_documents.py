"""The row of a document of a bundle: whether it is here, what it holds, and putting it in."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from psycopg.types.json import Jsonb

from recollect import db, documents
from recollect.app import App
from recollect.db import Tx
from recollect.errors import SetupError
from recollect.ingest import chunk
from recollect.model import (
    Chunk,
    Claim,
    Content,
    DocumentId,
    Entry,
    Extracted,
    OrgId,
    random_id,
    storable,
)
from recollect.ops.backup._archive import LARGEST_FILE
from recollect.ops.backup._bundle import (
    ID,
    BundledDocument,
    derived,
)
from recollect.orgs import tags

OWN = ("api", documents.DIRECT)
"""sources of documents that were given to us as they are"""


def read_whole(path: Path, most: int) -> bytes:
    """Raises OSError, and SetupError for a file of more than `most` bytes."""
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise SetupError(f"{path} has more than {most:,} bytes")
    return data


def as_jsonb(value: Mapping[str, Any] | None) -> Jsonb | None:
    return None if value is None else Jsonb(storable(value))


def is_fetched(given: BundledDocument) -> bool:
    """Whether it is an address whose page is to be read, and not what was read there."""
    return (
        given.url is not None and given.content is not None and documents.is_address(given.content)
    )


def read_elsewhere(given: BundledDocument, id: str) -> str | None:
    """What marks a text that a connection once brought: it is the content, as it stands.

    Nobody here may read it where it came from; its own id stands for the one at the provider.
    """
    brought = given.url is not None or (given.content is None and given.source not in OWN)
    return id if brought else None


@dataclass(frozen=True, slots=True)
class DocumentFound:
    id: DocumentId
    """the one that is there, else the one to take"""
    there: bool
    same: bool = False
    """whether the one that is there has the content of the bundle"""


def find_document(tx: Tx, org: OrgId, given: BundledDocument, digest: bytes) -> DocumentFound:
    """Whether it is there, and else which id is free.

    An id that another organisation has, or a hidden document (see `documents.sweep`), is answered
    with one derived of both, so that a second import finds what the first one made; where that is
    taken, too, with a random one.
    """
    wanted = given.id or derived(org, msgspec.json.encode(given).decode())
    other = derived(org, wanted)
    text = None if given.text is None else hashlib.sha256(given.text.encode()).digest()
    # A document of a connection has a digest of its version, so its text is compared.
    rows = tx.execute(
        "select id, org_id = %(org)s and gone_at is null as there,"
        " content_hash = %(digest)s or (%(finished)s and blob is null"
        "  and revision = indexed_revision"
        "  and sha256(convert_to(text, 'UTF8')) = %(text)s) as same"
        " from documents"
        " where id = any(%(ids)s) or (org_id = %(org)s and custom_id = %(custom_id)s"
        "  and container_tags[1] = %(tag)s)"
        " or (org_id = %(org)s and archive_id = %(archive)s and archive_path = %(path)s)"
        " order by array_position(%(ids)s::text[], id)",
        {
            "ids": [wanted, other],
            "org": org,
            "custom_id": given.custom_id,
            "tag": given.container_tags[0],
            "archive": given.archive,
            "path": given.archive_path,
            "digest": digest,
            "finished": given.chunks is not None and given.file is None,
            "text": text,
        },
    ).fetchall()
    for row in rows:
        if row["there"]:
            return DocumentFound(DocumentId(row["id"]), there=True, same=bool(row["same"]))
    taken = {row["id"] for row in rows}
    free = next((id for id in (wanted, other) if id not in taken), random_id())
    return DocumentFound(DocumentId(free), there=False)


def insert_document(
    tx: Tx,
    app: App,
    org: OrgId,
    id: DocumentId,
    given: BundledDocument,
    content: Content,
    chunks: Sequence[Chunk] | None,
    entries: Sequence[Entry] | None,
) -> bool:
    """Put the document in, finished if it has chunks; False when its place was taken meanwhile."""
    finished = chunks is not None and entries is not None
    tags.ensure(tx, org, given.container_tags)
    if given.archive is not None and not _is_there(tx, org, given.archive):
        given = msgspec.structs.replace(given, archive=None, archive_path=None)
    blob = content.blob
    if blob is not None:
        documents.name_blobs(tx, [blob.key])
    row = tx.execute(
        "insert into documents as d (id, org_id, custom_id, container_tags, scope, kind, title,"
        " url, source, filepath, metadata, document_date, task_type, content, content_hash, blob,"
        " blob_name, blob_mime, forced_kind, status, stage, attempts, claims, due_at, created_at,"
        " updated_at, archive_id, archive_path, source_id, group_pairs, given_title)"
        " values (%(id)s, %(org)s, %(custom_id)s, %(tags)s, %(scope)s, %(kind)s, %(title)s,"
        " %(url)s, %(source)s, %(filepath)s, %(metadata)s, %(document_date)s, %(task_type)s,"
        " %(text)s, %(hash)s, %(blob)s, %(blob_name)s, %(blob_mime)s, %(forced)s, %(status)s,"
        " %(stage)s, %(claims)s, %(claims)s, now() + %(lease)s * %(claims)s,"
        " coalesce(%(created_at)s, now()), now(), %(archive)s, %(path)s, %(source_id)s,"
        " %(group)s, %(given_title)s)"
        " on conflict do nothing returning " + documents.COLUMNS,
        {
            "id": id,
            "org": org,
            "custom_id": given.custom_id,
            "tags": given.container_tags,
            "scope": documents.scope(org, given.container_tags),
            "kind": given.type,
            "title": given.title,
            "given_title": given.given_title,
            "url": given.url,
            "source": given.source,
            "filepath": given.filepath,
            "metadata": None if given.metadata is None else Jsonb(given.metadata),
            "group": Jsonb(given.group) if given.group else None,
            "document_date": given.document_date,
            "task_type": given.task_type,
            "text": content.text,
            "hash": content.hash,
            "blob": blob and blob.key,
            "blob_name": blob and blob.name,
            "blob_mime": blob and blob.mime,
            "forced": content.forced,
            # A finished one is claimed by this transaction, which nobody sees before it is done.
            "status": "processing" if finished else "queued",
            "stage": "indexing" if finished else None,
            "claims": 1 if finished else 0,
            "lease": app.lease,
            "created_at": given.created_at,
            "archive": given.archive,
            "path": given.archive_path,
            "source_id": content.source_id,
        },
    ).fetchone()
    if row is None:
        return False
    if chunks is None or entries is None or given.text is None:
        _say_unpacked(tx, id, given)
        db.notify(tx)
        return True
    extracted = Extracted(given.text, title=given.title, kind=given.type, warnings=given.warnings)
    claim = Claim(documents.read(row), 1, content)
    documents.finish(tx, claim, extracted, chunks, entries, {}, reused=len(entries))
    _say_unpacked(tx, id, given)
    if given.updated_at is not None:
        tx.execute("update documents set updated_at = %s where id = %s", (given.updated_at, id))
    read = {
        one.hash for one, bundled in zip(chunks, given.chunks or (), strict=True) if bundled.read
    }
    tx.execute(
        "insert into memory_reads (document_id, hash) select %s, unnest(%s::bytea[])",
        (id, list(read)),
    )
    return True


def _is_there(tx: Tx, org: OrgId, id: str) -> bool:
    """And whether it stays until the end of the transaction."""
    sought = "select from documents where id = %s and org_id = %s and gone_at is null for key share"
    return tx.execute(sought, (id, org)).fetchone() is not None


def _say_unpacked(tx: Tx, id: DocumentId, given: BundledDocument) -> None:
    """After it is finished: its members, which come with the bundle, are not to be made again."""
    if given.unpacked is not None:
        tx.execute("update documents set unpacked = %s where id = %s", (Jsonb(given.unpacked), id))


def chunks_of(given: BundledDocument) -> list[Chunk] | None:
    if given.chunks is None or given.text is None:
        return None
    found: list[Chunk] = []
    for position, one in enumerate(given.chunks):
        if not 0 <= one.start < one.end <= len(given.text):
            raise ValueError(f"chunk {position} ends outside of the text")
        text = given.text[one.start : one.end]
        found.append(
            Chunk(position, one.start, one.end, text, chunk.digest(text), storable(one.place))
        )
    return found


def file_data(folder: Path, given: BundledDocument) -> bytes | None:
    if given.file is None:
        return None
    path = given.file.path(folder)
    try:
        data = read_whole(path, LARGEST_FILE)
    except OSError as error:
        raise SetupError(f"its file {path} cannot be read ({error.strerror})") from error
    if hashlib.sha256(data).hexdigest() != given.file.sha256:
        raise SetupError(f"its file {path} is damaged: its SHA-256 differs")
    return data


def check_document(given: BundledDocument) -> BundledDocument:
    """With every text as PostgreSQL can hold it; raises RequestError or ValueError."""
    if given.id is not None and not ID.fullmatch(given.id):
        raise ValueError("id: 1 to 64 characters of letters, digits, _ -")
    if not given.container_tags:
        raise ValueError("containerTags: at least one")
    if given.task_type not in ("memory", "superrag"):
        raise ValueError("taskType: memory or superrag")
    return msgspec.structs.replace(
        given,
        container_tags=tags.check(given.container_tags, "containerTags"),
        custom_id=storable(given.custom_id),
        type=storable(given.type),
        title=storable(given.title),
        url=storable(given.url),
        source=storable(given.source),
        filepath=storable(given.filepath),
        metadata=storable(given.metadata),
        group=storable(given.group),
        content=storable(given.content),
        text=storable(given.text),
        warnings=storable(given.warnings),
        archive_path=storable(given.archive_path),
        unpacked=storable(given.unpacked),
    )
