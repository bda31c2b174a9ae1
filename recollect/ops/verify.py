"""Verify: documents, index, counts and files agree, and nothing is left that belongs to nothing.

Documents are looked at by id, a few at a time, each few in one snapshot of the database; counts and
references in one snapshot each. So the service may write meanwhile, and memory stays small. A mend
is what the service would do itself: drop what is wrong, and process the document again.
"""

import time
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

from recollect import documents, log
from recollect.blobs import Blobs, is_whole
from recollect.db import Database, Tx
from recollect.errors import Permanent
from recollect.index import missing_vectors, vector_index
from recollect.index.vector_index import Index
from recollect.ingest import chunk
from recollect.model import DocumentId, OrgId, Tenant
from recollect.ops._findings import FEW, AllDamage, Damage, Finding, grouped
from recollect.ops._older_texts import check_older_texts
from recollect.ops._sound_memories import check_memories
from recollect.ops._words import WordSample, few_documents, other_words, stored_words
from recollect.ops.files import delete_doomed, delete_strays
from recollect.orgs import tags

LOG = log.get("verify")
AT_ONCE = 200
"""Documents in one snapshot, …"""
CHUNKS_AT_ONCE = 5_000
"""… or fewer, with so many chunks."""
SETTLED = timedelta(hours=1)
"""Age from which a file without a document is none that is just being uploaded, and one that is to
be removed should have been."""

_BESIDE = {"vector_beside_missing", "vector_left_over"}


@dataclass(frozen=True, slots=True)
class Verified:
    """What was looked at, and what was found."""

    documents: int
    entries: int
    files: int
    seconds: float
    findings: Sequence[Finding]


def verify(db: Database, store: Blobs, *, mend: bool = False) -> Verified:
    """Look at everything; with `mend`, mend what can be mended. Raises Unavailable."""
    began = time.monotonic()
    found = AllDamage()
    strays = _strays(db, store)
    looked, entries, files = 0, 0, 0
    _check_references(db, found, mend=mend)  # first: the rest relies on them
    sample = WordSample.of(db)
    for rows, damaged, seen in _documents(db, sample):
        looked += len(rows)
        entries += seen
        for damage in damaged:
            _settle(db, damage, found, mend=mend)
        _check_tags(db, rows, found, mend=mend)
        files += _check_files(db, store, rows, found)
    if mend and "words_wrong" in found.counts:
        _mend_words(db, sample.rest(), found)
    check_memories(db, found, mend=mend)
    check_older_texts(db, found, mend=mend)
    for check in (_check_items, _check_queue, _check_counts, _check_lists):
        check(db, found, mend=mend)
    # Last: an upload that merely looked old, by a clock that is wrong, has its document now.
    _check_orphans(db, store, strays, found, mend=mend)
    done = Verified(looked, entries, files, round(time.monotonic() - began, 3), found.findings())
    for one in done.findings:
        LOG.warning("found", kind=one.kind, count=one.count, mended=one.mended)
    return done


# --- documents -----------------------------------------------------------------------------------


def _documents(
    db: Database, sample: WordSample
) -> Generator[tuple[list[dict[str, Any]], list[Damage], int]]:
    """Some documents at a time: their rows, what is wrong with them, how many entries they have."""
    after = ""
    while True:
        with db.moment() as tx:
            rows = few_documents(tx, after, AT_ONCE, CHUNKS_AT_ONCE)
            if not rows:
                return
            damaged, entries = _compare(tx, rows)
            stored = stored_words(tx, rows, entries, sample)
        _compare_words(stored, damaged)
        yield rows, damaged, len(entries)
        after = rows[-1]["id"]


def _compare(
    tx: Tx, rows: Sequence[Mapping[str, Any]]
) -> tuple[list[Damage], list[Mapping[str, Any]]]:
    """What is wrong with them, and their entries."""
    ids = [row["id"] for row in rows]
    index = vector_index.read(tx) or vector_index.UNBOUND
    texts = {
        row["id"]: row["text"]
        for row in tx.execute("select id, text from documents where id = any(%s)", (ids,))
    }
    awaited = missing_vectors.awaited(tx, ids)
    chunks = grouped(
        tx.execute(
            "select document_id, position, start_at, end_at, hash from chunks"
            " where document_id = any(%s) order by document_id, position",
            (ids,),
        )
    )
    entries = grouped(
        tx.execute(
            "select e.document_id, e.hash, e.text, e.terms[1:cardinality(d.scope)] as scope,"
            " vector_dims(e.embedding) as a, vector_dims(e.embedding_b) as b"
            " from entries e join facets d on d.id = e.document_id"
            " where e.document_id = any(%s)",
            (ids,),
        )
    )
    found: list[Damage] = []
    for row in rows:
        damage = _damage(row)
        own = {entry["hash"]: entry for entry in entries.get(row["id"], [])}
        placed = chunks.get(row["id"], [])
        _compare_row(damage, row)
        _compare_chunks(damage, row, texts[row["id"]] or "", placed, own)
        _compare_entries(damage, row, {one["hash"] for one in placed}, own)
        if row["status"] == "done":
            _compare_vectors(damage, own, index, awaited=row["id"] in awaited)
        if damage.kinds:
            found.append(damage)
    return found, [entry for some in entries.values() for entry in some]


def _damage(row: Mapping[str, Any]) -> Damage:
    return Damage(OrgId(row["org_id"]), DocumentId(row["id"]), row["indexed_revision"])


def _compare_words(
    stored: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]], found: list[Damage]
) -> None:
    """Of what is not to be dropped anyway. Not in a transaction: it takes long."""
    damages = {one.id: one for one in found}
    for row, entry in stored:
        words = other_words(row, entry)
        if words is None:
            continue
        damage = damages.get(row["id"])
        if damage is None:
            damage = damages[row["id"]] = _damage(row)
            found.append(damage)
        if entry["hash"] not in damage.bad | damage.orphans:
            damage.add("words_wrong")
            damage.words[entry["hash"]] = words


def _compare_row(damage: Damage, row: Mapping[str, Any]) -> None:
    if row["status"] == "done" and row["indexed_revision"] != row["revision"]:
        damage.add("revision_behind")
    if row["scope"] != _scope(row):
        damage.add("scope_wrong")


def _scope(row: Mapping[str, Any]) -> list[int]:
    """As the tags of the document have it, whatever stands in its row."""
    return documents.scope(OrgId(row["org_id"]), row["container_tags"])


def _compare_chunks(
    damage: Damage,
    row: Mapping[str, Any],
    text: str,
    placed: Sequence[Mapping[str, Any]],
    entries: Mapping[bytes, Mapping[str, Any]],
) -> None:
    expected = row["chunks"] if row["indexed_revision"] is not None else 0
    if [one["position"] for one in placed] != list(range(expected)):
        damage.add("chunks_missing")
    for one in placed:
        entry = entries.get(one["hash"])
        if entry is None:
            damage.add("chunk_without_entry")
        elif text[one["start_at"] : one["end_at"]] != entry["text"]:
            damage.add("offsets_wrong")


def _compare_entries(
    damage: Damage,
    row: Mapping[str, Any],
    placed: set[bytes],
    entries: Mapping[bytes, Mapping[str, Any]],
) -> None:
    ended, scope = row["status"] in ("done", "failed"), _scope(row)
    for hash, entry in entries.items():
        # What is in work may be ahead of its chunks.
        if ended and hash not in placed:
            damage.add("entry_orphaned")
            damage.orphans.add(hash)
            continue
        if chunk.digest(entry["text"]) != hash:
            damage.add("hash_wrong")
            damage.bad.add(hash)
        if entry["scope"] != scope:
            damage.add("scope_wrong")
            damage.bad.add(hash)


def _compare_vectors(
    damage: Damage, entries: Mapping[bytes, Mapping[str, Any]], index: Index, *, awaited: bool
) -> None:
    """`awaited`: the workers are to make what is lacking."""
    used, other = index.used, index.other
    for hash, entry in entries.items():
        if hash in damage.orphans:
            continue
        held, beside = entry[used.slot], entry[index.idle]
        if used.dimensions and held != used.dimensions and not (held is None and awaited):
            damage.add("vector_missing")
            damage.bad.add(hash)
        if other is not None and beside != other.dimensions and not (beside is None and awaited):
            # Before it is planned, nothing is there yet.
            if index.planned or beside is not None:
                damage.add("vector_beside_missing")
        elif index.phase is None and beside is not None:
            damage.add("vector_left_over")


def _settle(db: Database, damage: Damage, found: AllDamage, *, mend: bool) -> None:
    for kind, count in damage.kinds.items():
        found.add(kind, [damage.id], count)
    if not mend:
        return
    mended = damage.kinds.keys()
    with db.begin() as tx:
        again = damage.kinds.keys() - {"entry_orphaned", "words_wrong", *_BESIDE}
        row = tx.execute(
            "select org_id, status, container_tags, indexed_revision from documents"
            " where id = %s for update",
            (damage.id,),
        ).fetchone()
        if row is not None:
            dropped = set(damage.bad)
            if row["indexed_revision"] == damage.revision:
                if row["status"] in ("done", "failed"):
                    dropped |= damage.orphans
                documents.reweigh_entries(tx, damage.org, damage.id, _scope(row), damage.words)
            else:  # its text may hold the orphans by now, and begin with another passage
                mended -= {"entry_orphaned", "words_wrong"}
            documents.drop_entries(tx, damage.org, damage.id, sorted(dropped))
            tx.execute(
                "update documents set scope = %(scope)s where id = %(id)s and scope <> %(scope)s",
                {"scope": _scope(row), "id": damage.id},
            )
            if damage.kinds.keys() & _BESIDE:
                missing_vectors.mend(tx, damage.id)
            if again:
                documents.reprocess(tx, Tenant(damage.org), ids=[damage.id])
    for kind in mended:
        found.mend(kind, damage.kinds[kind])


def _mend_words(db: Database, sample: WordSample, found: AllDamage) -> None:
    """Where some entries have other words, all may."""
    for _, damaged, _ in _documents(db, sample):
        for damage in damaged:
            if damage.words:
                words = Damage(damage.org, damage.id, damage.revision, words=damage.words)
                words.add("words_wrong", len(damage.words))
                _settle(db, words, found, mend=True)


def _check_tags(
    db: Database, rows: Iterable[Mapping[str, Any]], found: AllDamage, *, mend: bool
) -> None:
    wanted = {(row["org_id"], tag) for row in rows for tag in row["container_tags"]}
    with db.begin() as tx:
        for org, name in missing_tags(tx, wanted):
            if (org, name) in found.tags:
                continue
            found.tags.add((org, name))
            found.add("tag_missing", [name], 1)
            if mend:
                tags.ensure(tx, org, [name])
                found.mend("tag_missing")


def missing_tags(tx: Tx, wanted: Collection[tuple[OrgId, str]]) -> list[tuple[OrgId, str]]:
    """Those that documents carry now and that have no row: a tag may have been deleted with its
    documents since they were read."""
    rows = tx.execute(
        "select wanted.org_id, wanted.name from unnest(%s::text[], %s::text[])"
        " as wanted (org_id, name) where not exists (select from tags t"
        "  where t.org_id = wanted.org_id and t.name = wanted.name)",
        ([org for org, _ in wanted], [name for _, name in wanted]),
    ).fetchall()
    # Each by the index, and they are few: in one statement, all documents were read each time.
    return [
        (row["org_id"], row["name"])
        for row in rows
        if tx.execute(
            "select 1 from documents d where d.org_id = %s and d.gone_at is null"
            " and d.scope @> %s and %s = any(d.container_tags) limit 1",
            (row["org_id"], documents.sought(row["org_id"], [row["name"]]), row["name"]),
        ).fetchone()
    ]


# --- files ---------------------------------------------------------------------------------------


def _check_files(
    db: Database, store: Blobs, rows: Iterable[Mapping[str, Any]], found: AllDamage
) -> int:
    seen = 0
    for row in rows:
        if row["blob"] is None:
            continue
        seen += 1
        fault = _fault(store, row["blob"])
        if fault is None:
            continue
        with db.begin() as tx:
            known = documents.known_blobs(tx, [row["blob"]])
        if known:  # or it was deleted while we looked
            found.add(fault, [row["id"]])
    return seen


def _fault(store: Blobs, key: str) -> str | None:
    try:
        data = store.get(key)
    except Permanent:
        return "file_missing"
    return None if is_whole(key, data) else "file_damaged"


def _strays(db: Database, store: Blobs) -> list[str]:
    """Keys of files that are old, as clocks say, and that nothing names."""
    return _unnamed(db, store.older_than(SETTLED))


def _unnamed(db: Database, keys: Iterable[str]) -> list[str]:
    left, found = list(keys), list[str]()
    for start in range(0, len(left), 500):
        some = left[start : start + 500]
        with db.begin() as tx:
            known = documents.known_blobs(tx, some)
            rows = tx.execute(
                "select key from doomed_blobs where key = any(%s) and doomed_at < 'infinity'",
                (some,),
            )
            known |= {row["key"] for row in rows}
        found += [key for key in some if key not in known]
    return found


def _check_orphans(
    db: Database, store: Blobs, strays: Sequence[str], found: AllDamage, *, mend: bool
) -> None:
    keys = _unnamed(db, strays)
    found.add("file_orphaned", keys, len(keys))
    if mend:
        found.mend("file_orphaned", len(delete_strays(db, store, keys).gone))
    with db.begin() as tx:
        late = tx.execute(
            "select key from doomed_blobs where doomed_at < now() - %s order by key", (SETTLED,)
        ).fetchall()
    late_keys = [row["key"] for row in late]
    found.add("file_undeleted", late_keys, len(late_keys))
    if mend:
        gone = set(delete_doomed(db, store).gone)
        found.mend("file_undeleted", len(gone.intersection(late_keys)))


# --- everything at once --------------------------------------------------------------------------


def _check_items(db: Database, found: AllDamage, *, mend: bool) -> None:
    _check_rows(
        db,
        found,
        "item_missing",
        "select d.id from documents d where d.connection_id is not null"
        " and not exists (select from items i where i.document_id = d.id) order by d.id",
        # Without a version, so that the next sync fetches it again.
        "insert into items (connection_id, id, title, url, kind, verdict, document_id, seen_at)"
        " select connection_id, source_id, title, url, kind, 'document', id, now() from documents"
        " where id = any(%s) and connection_id is not null and source_id is not null"
        " on conflict (connection_id, id) do update set document_id = excluded.document_id,"
        " verdict = excluded.verdict, version = null"
        if mend
        else None,
    )


def _check_queue(db: Database, found: AllDamage, *, mend: bool) -> None:
    """What is due in a year is due never: the longest that anything waits is a day."""
    for rows, mending in (
        (
            "select id from documents where due_at > now() + interval '1 year' order by id",
            "update documents set due_at = now() where id = any(%s) and due_at > now()",
        ),
        (
            "select id from connections where due_at > now() + interval '1 year' order by id",
            "update connections set due_at = now() where id = any(%s) and due_at > now()",
        ),
    ):
        _check_rows(db, found, "stranded", rows, mending if mend else None)


def _check_rows(db: Database, found: AllDamage, kind: str, rows: str, mending: str | None) -> None:
    with db.begin() as tx:
        tx.take_time()
        ids = [row["id"] for row in tx.execute(cast("Any", rows))]
        if ids:
            found.add(kind, ids)
        if ids and mending is not None:
            found.mend(kind, tx.execute(cast("Any", mending), (ids,)).rowcount)


# Each reference of the schema as two statements: count what it breaks, and mend it as the deletion
# of the other row would have. Our keys are of one column.
_REFERENCES = """
select k.conrelid::regclass::text || '.' || a.attname as name,
  format('select count(*) as n, (array_agg(t.%2$I::text order by t.%2$I))[1:5] as examples'
    ' from %1$s t where t.%2$I is not null'
    ' and not exists (select from %3$s o where o.%4$I = t.%2$I)',
    k.conrelid::regclass, a.attname, k.confrelid::regclass, b.attname) as broken,
  format(case k.confdeltype when 'n' then 'update %1$s t set %2$I = null where %5$s'
              else 'delete from %1$s t where %5$s' end,
    k.conrelid::regclass, a.attname, null, null,
    format('t.%2$I is not null and not exists (select from %3$s o where o.%4$I = t.%2$I)',
      null, a.attname, k.confrelid::regclass, b.attname)) as mending
from pg_constraint k
join pg_attribute a on a.attrelid = k.conrelid and a.attnum = k.conkey[1]
join pg_attribute b on b.attrelid = k.confrelid and b.attnum = k.confkey[1]
where k.contype = 'f' and cardinality(k.conkey) = 1
  and k.connamespace = quote_ident(current_schema())::regnamespace
order by 1
"""


def _check_references(db: Database, found: AllDamage, *, mend: bool) -> None:
    """Orphans of each kind: rows that refer to one that is not there."""
    with db.begin() as tx:
        references = tx.execute(_REFERENCES).fetchall()
    for reference in references:
        with db.begin() as tx:
            tx.take_time()
            row = tx.execute(reference["broken"]).fetchone()
            assert row is not None
            if not row["n"]:
                continue
            named = [f"{reference['name']} = {example}" for example in row["examples"]]
            found.add("reference_broken", named, row["n"])
            if mend:
                found.mend("reference_broken", tx.execute(reference["mending"]).rowcount)


_MISCOUNTED = """
with actual as materialized (
  select d.org_id, number, count(*)::int as entries
  from entries e join facets d on d.id = e.document_id cross join unnest(e.terms) as number
  group by d.org_id, number
)
select org_id, number, coalesce(a.entries, 0) - coalesce(c.entries, 0) as change
from actual a full join term_counts c using (org_id, number)
where coalesce(a.entries, 0) <> coalesce(c.entries, 0) order by org_id, number
"""


def _check_counts(db: Database, found: AllDamage, *, mend: bool) -> None:
    """In how many entries each word and tag stands, against what `term_counts` says."""
    with db.moment() as tx:
        tx.take_time()
        off = tx.execute(_MISCOUNTED).fetchall()
    if not off:
        return
    named = [f"{row['org_id']} {row['number']}" for row in off[:FEW]]
    found.add("count_wrong", named, len(off))
    if not mend:
        return
    # By how much it is off, not what it should be: others add to it at the same time.
    changes: dict[OrgId, dict[int, int]] = {}
    for row in off:
        changes.setdefault(row["org_id"], {})[row["number"]] = row["change"]
    for org, delta in changes.items():
        with db.begin() as tx:
            tx.take_time()
            documents.count(tx, org, delta)
    found.mend("count_wrong", len(off))


LISTS_MISCOUNTED = """
with actual as (
  select d.org_id, of.tag, of.connection_id, count(*) as documents, sum(d.chunks) as chunks
  from documents d cross join counted_under(d.container_tags, d.connection_id) as of
  where d.gone_at is null group by 1, 2, 3
), kept as (
  select org_id, tag, connection_id, sum(documents) as documents, sum(chunks) as chunks
  from document_counts group by 1, 2, 3
), differing as (
  select org_id, tag, connection_id,
    coalesce(a.documents, 0) - coalesce(k.documents, 0) as documents,
    coalesce(a.chunks, 0) - coalesce(k.chunks, 0) as chunks
  from actual a full join kept k using (org_id, tag, connection_id)
)
select * from differing where documents <> 0 or chunks <> 0 order by org_id, connection_id, tag
"""


def _check_lists(db: Database, found: AllDamage, *, mend: bool) -> None:
    """How many documents and chunks there are, against what lists say."""
    with db.moment() as tx:
        tx.take_time()
        off = tx.execute(LISTS_MISCOUNTED).fetchall()
    if not off:
        return
    found.add("count_wrong", [f"{row['org_id']} {row['tag']}" for row in off[:FEW]], len(off))
    if not mend:
        return
    with db.begin() as tx, tx.cursor() as cursor:
        # By how much it is off, as above.
        cursor.executemany(
            "insert into document_counts (org_id, tag, connection_id, documents, chunks)"
            " values (%(org_id)s, %(tag)s, %(connection_id)s, %(documents)s, %(chunks)s)",
            off,
        )
    found.mend("count_wrong", len(off))
