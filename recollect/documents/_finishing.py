"""What a worker leaves behind: entries, their places, the files of an archive."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate, islice

from pgvector import SparseVector
from psycopg import sql
from psycopg.types.json import Jsonb

from recollect import db
from recollect.db import Tx
from recollect.documents import _versions
from recollect.documents._asked import NewDocument, NewMember
from recollect.documents._blobs import name_blobs
from recollect.documents._changing import (
    INSERT,
    accept,
    count,
    lock_memories,
    members_of,
    row_of,
    take_out,
)
from recollect.documents._naming import first_hash, move_names, rename, replace_words
from recollect.documents._rows import LATER, ORDER, TERM_SPACE
from recollect.errors import (
    LeaseLost,
)
from recollect.index import missing_vectors, vector_index
from recollect.model import (
    Changed,
    Chunk,
    Claim,
    DocumentId,
    Entry,
    Extracted,
    OrgId,
    Status,
    random_id,
)

Place = tuple[bytes, int]
"""The hash of a chunk, and the character of its text at which a quote begins."""


def known_hashes(tx: Tx, claim: Claim, *, embedded: bool) -> set[bytes]:
    """Chunk texts of this document that the index holds; `embedded`: holds with a vector."""
    index = vector_index.read(tx)
    column = sql.SQL("embedding") if index is None else index.used.column
    rows = tx.execute(
        sql.SQL(
            "select hash from entries where document_id = %s and ({} is not null or not %s)"
        ).format(column),
        (claim.document.id, embedded),
    )
    return {row["hash"] for row in rows}


def unpacked(tx: Tx, claim: Claim) -> Mapping[str, str]:
    """What an archive held when it was last read: path → SHA-256 in hexadecimal. Without those of
    its files that failed since the store has lost them: the archive brings them back."""
    row = tx.execute(
        "select a.unpacked - coalesce((select array_agg(m.archive_path) from documents m"
        "  where m.archive_id = a.id and m.status = 'failed' and m.error_code = 'missing_blob'"
        "  and encode(m.content_hash, 'hex') = a.unpacked ->> m.archive_path), '{}') as unpacked"
        " from documents a where a.id = %s",
        (claim.document.id,),
    ).fetchone()
    return (row and row["unpacked"]) or {}


def stash(tx: Tx, claim: Claim, entries: Sequence[Entry], *, lease: timedelta) -> None:
    """Keep entries of a large document before it is finished; searchers do not see them yet.

    So the last transaction stays short, and a killed worker's embeddings are not lost.
    Renews the lease; raises LeaseLost.
    """
    row = tx.execute(
        "update documents set due_at = now() + %s"
        " where id = %s and claims = %s and status = 'processing' returning org_id, scope,"
        " facet(array[id], null)",
        (lease, claim.document.id, claim.number),
    ).fetchone()
    if row is None:
        raise LeaseLost
    delta = Counter[int]()
    _insert_entries(tx, claim, row["scope"], entries, delta)
    count(tx, row["org_id"], delta)


def finish(
    tx: Tx,
    claim: Claim,
    extracted: Extracted,
    chunks: Sequence[Chunk],
    entries: Sequence[Entry],
    timings: Mapping[str, float],
    *,
    reused: int,
    members: Sequence[NewMember] | None = None,
    places: Mapping[str, Place | None] | None = None,
) -> Changed:
    """Swap in a processed revision: searchers see the old text or the new, never half.

    `entries` are those of chunk texts that the index does not hold yet; `reused` says how many
    of the chunk texts it held when the work began. `timings` are those of the stages before; that
    of this transaction is added. `members` are those of an archive: what changed since it was last
    read is queued, or removed. `places` are those of `lost_quotes`, looked up
    before the transaction. Raises LeaseLost.
    """
    id = claim.document.id
    wanted = {chunk.hash for chunk in chunks}
    row = tx.execute(
        # What is selected is computed before rows are locked: so in two steps.
        "with held as materialized (select id, org_id, scope from documents"
        "  where id = %s and claims = %s and status = 'processing' for no key update)"
        " select org_id, scope, facet(array[id], array[%s]) from held",
        (id, claim.number, len(chunks)),
    ).fetchone()
    if row is None:
        raise LeaseLost
    delta = Counter[int]()
    if members is not None or _ends_archive(claim):
        lock_memories(tx, [id, *(member.id for member in members_of(tx, [id]))])
        delta.update(_unpack(tx, claim, members))
    if not _is_first(claim):
        lock_memories(tx, [id], keep=wanted)
    lost = _lost_evidence(tx, claim, keep=wanted)
    since = None if _is_first(claim) else _versions.keep(tx, claim, extracted.text)
    removed = _drop_entries(tx, claim, keep=wanted, delta=delta)
    _insert_entries(tx, claim, row["scope"], entries, delta)
    first = None if _is_first(claim) else first_hash(tx, id)
    _place(tx, claim, chunks)
    _mend_evidence(tx, claim, chunks, lost, places or {})
    done = tx.execute(
        _DONE,
        _said(Finished(claim, extracted, chunks, entries, timings), wanted, reused, removed)
        | {"since": since},
    ).fetchone()
    assert done is not None
    if done["status"] == Status.QUEUED:
        db.notify(tx)
    whole = _is_first(claim) and any(entry.hash == chunks[0].hash for entry in entries)
    if chunks and not (whole and done["title"] == extracted.title):
        hashes = [chunks[0].hash, *([] if first is None else [first])]
        delta.update(_named(tx, claim, row["scope"], done["title"], hashes))
    # Last, since these rows are shared by all documents of the organisation.
    count(tx, row["org_id"], delta)
    return Changed(len(chunks), reused, len(wanted) - reused, removed)


COPIED = 1_000
"""Entries that one statement takes in: some seconds of its minute."""
_DONE = (
    "update documents set"
    # Newer content brought a kind of its own.
    " kind = case when revision > %(revision)s then kind else %(kind)s end,"
    " text_since = case when text is distinct from %(text)s"
    "  then coalesce(%(since)s, date_trunc('milliseconds', clock_timestamp())) else text_since end,"
    # One that a connection has brought since then is newer.
    " title = coalesce(given_title, case when title is distinct from %(known)s then title end,"
    "  %(title)s, title), text = %(text)s,"
    " indexed_revision = %(revision)s, warnings = %(warnings)s,"
    " timings = %(timings)s || jsonb_build_object('indexing',"
    "   round(extract(epoch from clock_timestamp() - now()) * 1000, 1)),"
    " status = case when revision > %(revision)s then 'queued' else 'done' end,"
    " due_at = case when revision > %(revision)s then now() end,"
    " attempts = case when revision > %(revision)s then 0 else attempts end,"
    " stage = null, error_code = null, error_message = null, updated_at = " + LATER + ","
    " chunks = %(chunks)s, embedded = %(embedded)s, reused = %(reused)s,"
    " removed = %(removed)s"
    " where id = %(id)s returning status, title"
)


@dataclass(frozen=True, slots=True)
class Finished:
    """What came of the work on a document; as `finish` takes it."""

    claim: Claim
    extracted: Extracted
    chunks: Sequence[Chunk]
    entries: Sequence[Entry]
    timings: Mapping[str, float]


def finish_together(tx: Tx, works: Sequence[Finished]) -> list[Changed | None]:
    """Do for some documents of one organisation, claimed for the first time, what `finish` does for
    each; None for one whose lease was lost."""
    claims = [work.claim for work in works]
    rows = tx.execute(
        "select d.id, d.scope from documents d"
        " join unnest(%s::text[], %s::bigint[]) as held (id, claims) using (id, claims)"
        " where d.status = 'processing'" + ORDER + " for no key update of d",
        ([one.document.id for one in claims], [one.number for one in claims]),
    )
    scopes: dict[DocumentId, Sequence[int]] = {row["id"]: row["scope"] for row in rows}
    ours = [work for work in works if work.claim.document.id in scopes]
    if not ours:
        return [None] * len(works)
    tx.execute(
        "select facet(%s, %s)", ([_id(one) for one in ours], [len(one.chunks) for one in ours])
    )
    delta = Counter[int]()
    _copy_entries(tx, [(_id(one), scopes[_id(one)], one.entries) for one in ours], delta)
    _copy_chunks(tx, [(_id(one), one.chunks) for one in ours])
    wanted = {_id(one): {chunk.hash for chunk in one.chunks} for one in ours}
    cursor = tx.cursor()
    cursor.executemany(_DONE, [_said(one, wanted[_id(one)]) for one in ours], returning=True)
    done = [row for one in cursor.results() for row in one]
    if any(row["status"] == Status.QUEUED for row in done):
        db.notify(tx)
    for one, row in zip(ours, done, strict=True):
        if row["title"] != one.extracted.title and one.chunks:
            hashes = [one.chunks[0].hash]
            delta.update(_named(tx, one.claim, scopes[_id(one)], row["title"], hashes))
    count(tx, claims[0].document.org_id, delta)
    return [
        Changed(len(one.chunks), 0, len(wanted[_id(one)]), 0) if _id(one) in scopes else None
        for one in works
    ]


def _named(
    tx: Tx, claim: Claim, scope: Sequence[int], title: str | None, hashes: Sequence[bytes]
) -> Counter[int]:
    """Its title is another one than the worker knew, or another passage may be the first."""
    document, blob = claim.document, claim.content.blob
    named = title, blob and blob.name
    return move_names(tx, document.org_id, document.id, scope, named, hashes)


def _id(work: Finished) -> DocumentId:
    return work.claim.document.id


def _said(
    work: Finished, wanted: Collection[bytes], reused: int = 0, removed: int = 0
) -> dict[str, object]:
    """Parameters of `_DONE`; `wanted`: the hashes of the chunks."""
    return {
        "kind": work.extracted.kind,
        "title": work.extracted.title,
        "known": work.claim.document.title,
        "text": work.extracted.text,
        "revision": work.claim.document.revision,
        "warnings": list(work.extracted.warnings),
        "timings": Jsonb(dict(work.timings)),
        "chunks": len(work.chunks),
        "since": None,
        "embedded": len(wanted) - reused,
        "reused": reused,
        "removed": removed,
        "id": work.claim.document.id,
    }


def drop_entries(tx: Tx, org: OrgId, id: DocumentId, hashes: Sequence[bytes]) -> None:
    """Delete entries from the index and lower their counts, where `verify` mends."""
    db.fence(tx)
    delta = Counter[int]()
    rows = tx.execute(
        "delete from entries where document_id = %s and hash = any(%s) returning terms",
        (id, list(hashes)),
    )
    for row in rows:
        delta.subtract(row["terms"])
    count(tx, org, delta)


def reweigh_entries(
    tx: Tx,
    org: OrgId,
    id: DocumentId,
    scope: Sequence[int],
    words: Mapping[bytes, Mapping[int, float]],
) -> None:
    """Replace the words of entries and change their counts, where `verify` mends."""
    if words:
        delta = replace_words(tx, id, scope, words)
        if first_hash(tx, id) in words:  # made of a title that may have changed since
            delta.update(rename(tx, org, id))
        count(tx, org, delta)


def _within(filepath: str | None, path: str) -> str | None:
    """The label of a member: below that of its archive."""
    return None if filepath is None else f"{filepath.rstrip('/')}/{path}"


def _ends_archive(claim: Claim) -> bool:
    """Whether the members of an archive go if its new content is not an archive: they were unpacked
    from other content.

    The text of an archive that was left by its connection stands for the same archive.
    """
    document, content = claim.document, claim.content
    fetched = content.url is not None and content.source_id is None
    return document.members is not None and (
        fetched or document.revision != document.indexed_revision
    )


def _unpack(tx: Tx, claim: Claim, members: Sequence[NewMember] | None) -> Counter[int]:
    """Make documents of what changed in an archive; returns by how much `term_counts` change.

    Compared is with what it held before, not with the documents: one that was deleted or changed
    here stays so until the archive brings something else for its path.
    """
    id, org = claim.document.id, claim.document.org_id
    there = {member.archive_path: member.id for member in members_of(tx, [id])}
    row = tx.execute(
        "select container_tags, source, filepath, metadata, document_date, task_type, dreaming,"
        " group_pairs from documents where id = %s",
        (id,),
    ).fetchone()
    assert row is not None
    held = {member.path: member.content.hash.hex() for member in members or ()}
    gone = sorted(member for path, member in there.items() if path not in held)
    delta = take_out(tx, org, gone) if gone else Counter[int]()
    made: list[dict[str, object]] = []
    for member in members or ():
        path, content = member.path, member.content
        if content.blob is None:  # as it was before
            continue
        if path in there:
            accept(tx, there[path], content, revive=False)
            continue
        new = NewDocument(
            content,
            row["container_tags"],
            title=content.blob.name,
            source=row["source"],
            filepath=_within(row["filepath"], path),
            metadata=row["metadata"],
            group=row["group_pairs"],
            document_date=row["document_date"],
            task_type=row["task_type"],
            dreaming=row["dreaming"],
            archive_id=id,
            archive_path=path,
        )
        made.append(row_of(org, new, DocumentId(random_id())))
    if made:
        name_blobs(tx, [str(row["blob"]) for row in made])
        tx.cursor().executemany(INSERT, made)
        db.notify(tx)
    tx.execute(
        "update documents set unpacked = %s where id = %s",
        (None if members is None else Jsonb(held), id),
    )
    return delta


def _drop_entries(tx: Tx, claim: Claim, *, keep: set[bytes], delta: Counter[int]) -> int:
    if _is_first(claim):
        return 0
    taken = _versions.take_entries(
        tx, claim.document.id, sql.SQL("not e.hash = any(%s)"), [list(keep)]
    )
    for numbers in taken:
        delta.subtract(numbers)
    return len(taken)


def _is_first(claim: Claim) -> bool:
    """Whether nobody claimed the document before: the index holds only what this claim put in."""
    return claim.number == 1


def _insert_entries(
    tx: Tx, claim: Claim, scope: Sequence[int], entries: Sequence[Entry], delta: Counter[int]
) -> None:
    """Put entries into the index; one that is there already only gets its vector again."""
    if not entries:
        return
    id = claim.document.id
    if not _is_first(claim):
        replaced = tx.execute(
            "delete from entries where document_id = %s and hash = any(%s) returning terms",
            (id, [entry.hash for entry in entries]),
        )
        for row in replaced:
            delta.subtract(row["terms"])
    _copy_entries(tx, [(id, scope, entries)], delta)


def _copy_entries(
    tx: Tx,
    given: Iterable[tuple[DocumentId, Sequence[int], Sequence[Entry]]],
    delta: Counter[int],
) -> None:
    """Documents with their scopes; counts the terms into `delta`."""
    index = vector_index.hold(tx)
    lacking = Counter[DocumentId]()
    rest = ((id, scope, entry) for id, scope, entries in given for entry in entries)
    # Each statement has its time: the longest texts would not be indexed within one.
    while some := list(islice(rest, COPIED)):
        # Binary: to write the numbers of vectors out takes longer than to index them.
        with tx.cursor().copy(
            "copy entries (document_id, hash, text, terms, weights, embedding, embedding_b)"
            " from stdin (format binary)"
        ) as copy:
            copy.set_types(["text", "bytea", "text", "int4[]", "sparsevec", "halfvec", "halfvec"])
            for id, scope, entry in some:
                numbers = [*scope, *entry.terms]
                delta.update(numbers)
                weights = {number - 1: weight for number, weight in entry.terms.items()}
                vectors = missing_vectors.split(index, entry.vector)
                lacking[id] += entry.vector is not None and missing_vectors.lacks(index, vectors)
                words = SparseVector(weights, TERM_SPACE)
                copy.write_row((id, entry.hash, entry.text, numbers, words, *vectors))
    for id, number in lacking.items():
        if number:
            missing_vectors.note(tx, "entries", id, number)


def _place(tx: Tx, claim: Claim, chunks: Sequence[Chunk]) -> None:
    id = claim.document.id
    if not _is_first(claim):
        tx.execute("delete from chunks where document_id = %s", (id,))
    _copy_chunks(tx, [(id, chunks)])


def _copy_chunks(tx: Tx, given: Iterable[tuple[DocumentId, Sequence[Chunk]]]) -> None:
    with tx.cursor().copy(
        "copy chunks (document_id, position, start_at, end_at, hash, place) from stdin"
    ) as copy:
        for id, chunks in given:
            for chunk in chunks:
                place = Jsonb(dict(chunk.place))
                copy.write_row((id, chunk.position, chunk.start, chunk.end, chunk.hash, place))


@dataclass(frozen=True, slots=True)
class _Lost:
    """What a memory was drawn from, in a chunk that is about to go."""

    memory: str
    quote: str


def lost_quotes(tx: Tx, claim: Claim, *, keep: set[bytes]) -> set[str]:
    """What memories were drawn from, in chunks of the document that are not among `keep`."""
    return {one.quote for one in _lost_evidence(tx, claim, keep=keep)}


def places_of(quotes: Iterable[str], chunks: Sequence[Chunk]) -> dict[str, Place | None]:
    """Where each quote stands in the chunks; None where it stands in none of them.

    Each quote is looked for in the whole text, so call it while no transaction is open.
    """
    # Nothing that the database holds contains a zero, so no quote is found across two chunks.
    whole = "\0".join(chunk.text for chunk in chunks)
    starts = list(accumulate((len(chunk.text) + 1 for chunk in chunks[:-1]), initial=0))
    found: dict[str, Place | None] = {}
    for quote in quotes:
        at = whole.find(quote)
        number = bisect_right(starts, at) - 1
        found[quote] = (chunks[number].hash, at - starts[number]) if at >= 0 and chunks else None
    return found


def _lost_evidence(tx: Tx, claim: Claim, *, keep: set[bytes]) -> list[_Lost]:
    if _is_first(claim):
        return []
    rows = tx.execute(
        "with lost as materialized (select * from memory_sources"
        "  where document_id = %s and not hash = any(%s))"
        " select s.memory_id as memory, substr(e.text, s.start_at + 1, s.end_at - s.start_at)"
        " as quote from lost s join entries e on e.document_id = s.document_id and e.hash = s.hash"
        " order by s.memory_id",
        (claim.document.id, list(keep)),
    )
    return [_Lost(row["memory"], row["quote"]) for row in rows]


def _mend_evidence(
    tx: Tx,
    claim: Claim,
    chunks: Sequence[Chunk],
    lost: Sequence[_Lost],
    places: Mapping[str, Place | None],
) -> None:
    """Move evidence along that still stands in the text; with the rest, its memories go.

    What is appended changes the chunk before it, and that is no reason to forget what it says.
    """
    if _is_first(claim):
        return
    id, there = claim.document.id, [chunk.hash for chunk in chunks]
    # Memories that were drawn since the places were looked for.
    late = places_of({one.quote for one in lost} - places.keys(), chunks)
    moved = ((one, (late if one.quote in late else places)[one.quote]) for one in lost)
    tx.cursor().executemany(
        "insert into memory_sources (memory_id, document_id, hash, start_at, end_at)"
        " values (%s, %s, %s, %s, %s) on conflict do nothing",
        [
            (one.memory, id, place[0], place[1], place[1] + len(one.quote))
            for one, place in moved
            if place is not None
        ],
    )
    # Documents that only bear memories are never finished, so all hashes are those of chunks.
    for table in ("memory_sources", "memory_reads"):
        tx.execute(
            sql.SQL("delete from {} where document_id = %s and not hash = any(%s)").format(
                sql.Identifier(table)
            ),
            (id, there),
        )
