"""From an organisation's documents to an open bundle."""

import hashlib
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, LiteralString

import msgspec
import pgvector.psycopg
from psycopg import sql

from recollect import __version__
from recollect.blobs import Blobs, is_whole
from recollect.db import Tx
from recollect.errors import NotFoundError, Permanent, SetupError
from recollect.index import vector_index
from recollect.model import OrgId
from recollect.ops.backup import _questions
from recollect.ops.backup._archive import Progress, Tell, alone, hold, name_aside, silent
from recollect.ops.backup._bundle import (
    DOCUMENTS,
    FORMAT,
    INDEX,
    MEMORIES,
    QUESTIONS,
    Bundle,
    BundledChunk,
    BundledDocument,
    BundledFile,
    BundledMemory,
    BundledSource,
    BundledTag,
    VectorModel,
    vector_text,
)
from recollect.ops.backup._session import snapshot, unlock_migrations
from recollect.orgs import orgs

_MATCHING = (
    " from documents d where d.org_id = %(org)s and d.gone_at is null"
    " and (%(tags)s::text[] is null or d.container_tags && %(tags)s::text[])"
)
_BATCH = 100
"""documents read at a time"""


@dataclass(slots=True)
class _Counted:
    documents: int = 0
    chunks: int = 0
    left_out: int = 0


def export(
    url: str,
    blobs: Blobs,
    folder: Path,
    *,
    org: str,
    tags: Sequence[str] | None = None,
    tell: Tell = silent,
) -> Bundle:
    """Write the documents of an organisation, as they are at one moment, into a new folder.

    `tags`: only those that have one of them. Raises SetupError when the folder is there and not
    empty or cannot be written, NotFoundError for an unknown organisation or tag. It is whole, or
    not there.
    """
    if folder.name in ("", ".."):
        raise SetupError(f"{folder} is there already; name a new folder")
    aside = name_aside(folder)
    held = None
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise SetupError(f"{folder} is there already and not empty; name a new folder")
        with alone(folder.parent):
            aside.mkdir(mode=0o700)
            held = hold(aside)
        with snapshot(url) as tx:
            bundle = _exported(tx, blobs, aside, org, tags, tell)
        if folder.exists():
            folder.rmdir()
        aside.rename(folder)
    except OSError as error:
        raise SetupError(
            f"cannot write {folder} ({error.strerror or error}); nothing is left of it"
        ) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        if held is not None:
            os.close(held)
    return bundle


def _exported(
    tx: Tx, blobs: Blobs, aside: Path, org: str, tags: Sequence[str] | None, tell: Tell
) -> Bundle:
    pgvector.psycopg.register_vector(tx)
    owner = orgs.find(tx, org)
    tx.execute(
        "lock table documents, entries, chunks, tags, memories, memory_sources, memory_relations,"
        " memory_reads, test_questions in access share mode"
    )
    unlock_migrations(tx)
    wanted = {"org": owner.id, "tags": None if tags is None else list(tags)}
    named = _tags(tx, owner.id, tags)
    if unknown := set(tags or ()) - {tag.name for tag in named}:
        raise NotFoundError("Container tag not found", f"no container tag {min(unknown)!r}")
    row = tx.execute("select count(*) as n, now() as made_at" + _MATCHING, wanted).fetchone()
    index = vector_index.read(tx)
    assert row is not None
    column = vector_index.COLUMNS[index.used.slot if index else "a"]
    counted, files, missing, damaged = _Counted(), set[str](), list[str](), list[str]()
    digest = hashlib.sha256()
    with (aside / DOCUMENTS).open("wb") as lines, tx.cursor("exported") as cursor:
        cursor.itersize = _BATCH
        cursor.execute(
            "select d.*" + _MATCHING + " order by d.archive_id is not null, d.created_at, d.id",
            wanted,
        )
        for number, one in enumerate(cursor):
            tell(Progress("documents", number, row["n"]))
            if one["content"] is None and one["blob"] is None and one["text"] is None:
                counted.left_out += 1
                continue
            file = _file(aside, blobs, one, files, damaged)
            if file is None and one["blob"] is not None:
                missing.append(one["id"])
                if one["text"] is None:
                    continue
            document = _document(tx, one, file, column)
            line = msgspec.json.encode(document) + b"\n"
            digest.update(line)
            lines.write(line)
            counted.documents += 1
            counted.chunks += len(document.chunks or ())
        _flush(lines)
    sums = {DOCUMENTS: digest.hexdigest()}
    memories = _memories(tx, aside, wanted, sums, column)
    questions = _lines(
        tx,
        aside / QUESTIONS,
        "select q.*" + _questions.MATCHING + " order by q.created_at, q.id",
        wanted,
        sums,
        lambda row: msgspec.json.encode(_questions.bundled(row)),
    )
    bundle = Bundle(
        format="recollect-bundle",
        version=FORMAT,
        recollect=__version__,
        made_at=row["made_at"],
        org=owner.name,
        only_tags=None if tags is None else list(tags),
        embedder=VectorModel(index.used.name, index.used.dimensions) if index else None,
        tags=named,
        documents=counted.documents,
        chunks=counted.chunks,
        files=len(files),
        left_out=counted.left_out,
        missing=missing,
        damaged=damaged,
        memories=memories,
        questions=questions,
        sha256=sums,
    )
    with (aside / INDEX).open("wb") as head:
        head.write(msgspec.json.format(msgspec.json.encode(bundle)) + b"\n")
        _flush(head)
    return bundle


def _document(
    tx: Tx, row: Mapping[str, Any], file: BundledFile | None, column: str
) -> BundledDocument:
    finished = row["indexed_revision"] == row["revision"]
    content = row["content"]
    # Of an older revision than the file or content, unless there is nothing else.
    text = row["text"] if finished or (content is None and file is None) else None
    return BundledDocument(
        id=row["id"],
        custom_id=row["custom_id"],
        container_tags=row["container_tags"],
        type=row["kind"],
        title=row["title"],
        given_title=row["given_title"],
        url=row["url"],
        source=row["source"],
        filepath=row["filepath"],
        metadata=row["metadata"],
        group=row["group_pairs"],
        document_date=row["document_date"],
        task_type=row["task_type"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        forced_type=row["forced_kind"],
        content=None if content == text else content,
        file=file,
        text=text,
        warnings=row["warnings"] if finished else [],
        chunks=_chunks(tx, row["id"], column) if finished else None,
        archive=row["archive_id"],
        archive_path=row["archive_path"],
        unpacked=row["unpacked"],
    )


def _chunks(tx: Tx, id: str, column: str) -> list[BundledChunk]:
    rows = tx.execute(
        sql.SQL(
            "with done as materialized (select hash from memory_reads where document_id = %s)"
            " select c.start_at, c.end_at, c.place, e.{} as vector,"
            " c.hash in (select hash from done) as read"
            " from chunks c join entries e on e.document_id = c.document_id and e.hash = c.hash"
            " where c.document_id = %s order by c.position"
        ).format(sql.Identifier(column)),
        (id, id),
        binary=True,
    )
    return [
        BundledChunk(
            row["start_at"],
            row["end_at"],
            row["place"],
            None if row["vector"] is None else vector_text(row["vector"].to_numpy()),
            row["read"],
        )
        for row in rows
    ]


def _memories(
    tx: Tx, aside: Path, wanted: Mapping[str, Any], sums: dict[str, str], column: str
) -> int:
    """Write them, with those of their sources that the bundle has; returns how many."""
    return _lines(
        tx,
        aside / MEMORIES,
        "select m.*,"
        " array(select json_build_object('document', s.document_id, 'start', s.start_at,"
        "   'end', s.end_at, 'hash', encode(s.hash, 'hex')) from memory_sources s"
        "  where s.memory_id = m.id order by s.document_id, s.hash, s.start_at) as sources,"
        " (select json_object_agg(r.target_id, r.relation) from memory_relations r"
        "  where r.memory_id = m.id) as relations"
        " from memories m where m.org_id = %(org)s"
        " and (%(tags)s::text[] is null or m.tag = any(%(tags)s::text[]))"
        " order by m.version, m.created_at, m.id",
        wanted,
        sums,
        lambda row: msgspec.json.encode(_memory(row, row[column])),
    )


def _lines(
    tx: Tx,
    path: Path,
    query: LiteralString,
    wanted: Mapping[str, Any],
    sums: dict[str, str],
    encoded: Callable[[Mapping[str, Any]], bytes],
) -> int:
    """Write a line of JSON for each row, and no file where there is none; returns how many."""
    digest, number = hashlib.sha256(), 0
    with path.open("wb") as lines, tx.cursor(path.stem, binary=True) as cursor:
        cursor.itersize = _BATCH
        cursor.execute(query, wanted)
        for row in cursor:
            line = encoded(row) + b"\n"
            digest.update(line)
            lines.write(line)
            number += 1
        _flush(lines)
    if number:
        sums[path.name] = digest.hexdigest()
    else:
        path.unlink()
    return number


def _memory(row: Mapping[str, Any], vector: Any) -> BundledMemory:
    return BundledMemory(
        id=row["id"],
        tag=row["tag"],
        content=row["content"],
        sources=[BundledSource(**source) for source in row["sources"]],
        version=row["version"],
        parent=row["parent_id"],
        root=row["root_id"],
        latest=row["is_latest"],
        static=row["is_static"],
        inference=row["is_inference"],
        buckets=row["buckets"],
        metadata=row["metadata"],
        group=row["group_pairs"],
        temporal=row["temporal"],
        forget_after=row["forget_after"],
        forget_reason=row["forget_reason"],
        forgotten_at=row["forgotten_at"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        relations=row["relations"] or {},
        vector=None if vector is None else vector_text(vector.to_numpy()),
    )


def _file(
    aside: Path, blobs: Blobs, row: Mapping[str, Any], written: set[str], damaged: list[str]
) -> BundledFile | None:
    if row["blob"] is None:
        return None
    try:
        data = blobs.get(row["blob"])
    except Permanent:
        return None
    if not is_whole(row["blob"], data):
        damaged.append(row["id"])
    file = BundledFile(
        sha256=hashlib.sha256(data).hexdigest(),
        size=len(data),
        name=row["blob_name"],
        mime=row["blob_mime"],
    )
    if file.sha256 not in written:
        path = file.path(aside)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with path.open("wb") as out:
            out.write(data)
            _flush(out)
        written.add(file.sha256)
    return file


def _tags(tx: Tx, org: OrgId, only: Sequence[str] | None) -> list[BundledTag]:
    rows = tx.execute(
        "select name, title, entity_context, profile_buckets from tags where org_id = %s"
        " and (%s::text[] is null or name = any(%s::text[])) order by name",
        (org, only and list(only), only and list(only)),
    )
    return [
        BundledTag(
            name=row["name"],
            title=row["title"],
            entity_context=row["entity_context"],
            profile_buckets=row["profile_buckets"],
        )
        for row in rows
    ]


def _flush(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())
