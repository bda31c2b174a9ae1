"""Older texts of documents, kept where an organisation wants that, and reading as of a time.

What an edit takes out of the index moves to `version_entries`; what stays is shared by the texts
that hold it. `db.look_back` puts a schema before the tables, in which `documents`, `chunks` and
`entries` are what they were (migration `0039_versions`).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pgvector import SparseVector
from psycopg import sql

from recollect import db
from recollect.db import Tx, tenancy
from recollect.documents._reading import get
from recollect.documents._rows import TERM_SPACE
from recollect.model import Claim, DocumentId, OrgId, Tenant

MOST_KEPT = 100
"""Older texts of a document that an organisation may keep."""
SWEPT = 100
"""Texts that one transaction removes: others wait for what it locks."""
_ORPHANS = (
    "delete from version_entries k where k.document_id = any(%s) and not exists"
    " (select from versions v join version_chunks c on c.version_id = v.id"
    "  where v.document_id = k.document_id and c.hash = k.hash)"
)


@dataclass(frozen=True, slots=True)
class Version:
    """A text of a document, and when it was what searches found."""

    revision: int
    title: str | None
    characters: int
    chunks: int
    known_from: datetime
    known_until: datetime | None
    """None: still"""


def versions(tx: Tx, tenant: Tenant, id: str) -> list[Version]:
    """The texts of a document that are kept, the newest first; the first is today's, if it has one.

    Raises NotFoundError, AmbiguousError.
    """
    document = get(tx, tenant, id)
    rows = tx.execute(
        "select d.indexed_revision as revision, d.title, coalesce(length(d.text), 0) as characters,"
        " d.chunks, d.text_since as known_from, null::timestamptz as known_until"
        " from documents d where d.id = %(id)s and d.indexed_revision is not null"
        " union all select v.revision, v.title, v.characters, v.chunks, v.known_from,"
        " v.known_until from versions v where v.document_id = %(id)s and not v.doomed"
        " and v.container_tags && %(tags)s::text[] order by known_until desc nulls first",
        {"id": document.id, "tags": list(document.container_tags)},
    )
    return [Version(**row) for row in rows]


def keep(tx: Tx, claim: Claim, text: str) -> datetime | None:
    """Keep the text that is about to be replaced by `text`, if its organisation wants that. Returns
    since when the new one is known, None when none was kept."""
    row = tx.execute(
        # Held, so that who wants fewer meanwhile waits, and lets go of this one, too (`limit`).
        "with most as materialized (select (s.data->>'keepVersions')::int as wanted"
        "  from settings s where s.org_id = %(org)s and s.data ? 'keepVersions' for share),"
        " old as (select d.*, most.wanted"
        "  from documents d, most where d.id = %(id)s and d.indexed_revision is not null"
        "   and d.text is not null and d.text <> %(text)s),"
        " kept as (insert into versions (document_id, revision, kind, title, text, characters,"
        "   container_tags, chunks, known_from, known_until)"
        "  select id, indexed_revision, kind, title, text, length(text), container_tags, chunks,"
        # If the clock was set back, the text would end before it began, and no time would find it.
        "   text_since, greatest(date_trunc('milliseconds', clock_timestamp()),"
        "    text_since + interval '1 millisecond') from old where wanted > 0"
        "  returning id, known_until)"
        " select kept.id, known_until, wanted from kept, old",
        {"id": claim.document.id, "org": claim.document.org_id, "text": text},
    ).fetchone()
    if row is None:
        return None
    tx.execute(
        "insert into version_chunks (version_id, position, start_at, end_at, hash, place)"
        " select %s, position, start_at, end_at, hash, place from chunks where document_id = %s",
        (row["id"], claim.document.id),
    )
    tx.execute(
        "delete from versions where id in (select id from versions where document_id = %s"
        " order by known_until desc offset %s)",
        (claim.document.id, row["wanted"]),
    )
    tx.execute(_ORPHANS, ([claim.document.id],))
    return row["known_until"]


def take_entries(
    tx: Tx, id: DocumentId, condition: sql.Composable, parameters: Sequence[object]
) -> list[list[int]]:
    """Take entries of a document, locked, out of the index, but keep those that older texts have;
    returns the terms of each. `condition` is one on `entries e`."""
    kept = [
        row["hash"]
        for row in tx.execute(
            "select distinct c.hash from versions v join version_chunks c on c.version_id = v.id"
            " where v.document_id = %s",
            (id,),
        )
    ]
    if kept:
        tx.execute(
            sql.SQL(
                "with gone as materialized (select e.* from entries e"
                "  where e.document_id = %s and e.hash = any(%s) and {condition})"
                " insert into version_entries (document_id, hash, text, terms, weights,"
                "  embedding, embedding_b, model_a, model_b)"
                " select g.document_id, g.hash, g.text, g.terms[cardinality(d.scope) + 1:],"
                "  g.weights, g.embedding, g.embedding_b,"
                "  case i.slot when 'a' then i.embedder else i.other_embedder end,"
                "  case i.slot when 'b' then i.embedder else i.other_embedder end"
                " from gone g join documents d on d.id = g.document_id"
                " left join index_settings i on true"
                " on conflict (document_id, hash) do update set text = excluded.text,"
                "  terms = excluded.terms, weights = excluded.weights, model_a = excluded.model_a,"
                "  model_b = excluded.model_b, embedding = excluded.embedding,"
                "  embedding_b = excluded.embedding_b"
            ).format(condition=condition),
            (id, kept, *parameters),
        )
    rows = tx.execute(
        sql.SQL(
            "delete from entries e where e.document_id = %s and {condition} returning e.terms"
        ).format(condition=condition),
        (id, *parameters),
    ).fetchall()
    return [row["terms"] for row in rows]


def keep_entry(
    tx: Tx, id: DocumentId, hash: bytes, text: str, weights: Mapping[int, float]
) -> None:
    """Give older texts of a document, locked, this entry; for a mend. A vector stays with its text,
    and none is made."""
    vector = SparseVector({number - 1: weight for number, weight in weights.items()}, TERM_SPACE)
    tx.execute(
        "insert into version_entries as k (document_id, hash, text, terms, weights)"
        " values (%(id)s, %(hash)s, %(text)s, %(terms)s, %(weights)s)"
        " on conflict (document_id, hash) do update set text = excluded.text,"
        " terms = excluded.terms, weights = excluded.weights,"
        " embedding = case when k.text = excluded.text then k.embedding end,"
        " embedding_b = case when k.text = excluded.text then k.embedding_b end",
        {"id": id, "hash": hash, "text": text, "terms": [*weights], "weights": vector},
    )


def limit(tx: Tx, org: OrgId, most: int) -> None:
    """Let go of all but the newest texts of each document: nobody reads the others from the commit
    on, and a worker removes them."""
    tx.execute(
        "update versions set doomed = true where id in (select id from (select v.id,"
        "  row_number() over (partition by v.document_id order by v.known_until desc) as nth"
        "  from versions v join documents d on d.id = v.document_id"
        "  where d.org_id = %s and not v.doomed) ranked where nth > %s)",
        (org, most),
    )
    db.notify(tx)


def sweep(tx: Tx) -> int:
    """Remove some of what was let go; how many texts."""
    rows = tx.execute(
        # Documents before what is theirs, as everybody does.
        "with few as materialized (select v.id, v.document_id from versions v"
        "  join documents d on d.id = v.document_id where v.doomed order by d.id limit %s"
        "  for no key update of d skip locked)"
        " delete from versions v using few where v.id = few.id returning v.document_id",
        (SWEPT,),
    ).fetchall()
    if rows:
        tx.execute(_ORPHANS, (sorted({row["document_id"] for row in rows}),))
    return len(rows)


_RENAMED = (
    "update versions v set container_tags = array(select distinct"
    " case when had.tag = any(%(sources)s) then %(target)s else had.tag end"
    " from unnest(v.container_tags) as had (tag))"
)


def move_tags(tx: Tx, id: DocumentId, sources: Sequence[str], target: str) -> None:
    """The tags of older texts after a merge of tags."""
    tx.execute(
        _RENAMED + " where v.document_id = %(id)s and v.container_tags && %(sources)s::text[]",
        {"id": id, "sources": list(sources), "target": target},
    )


def move_tags_of_others(tx: Tx, org: OrgId, sources: Sequence[str], target: str) -> None:
    """The same of documents that have none of the sources any more."""
    tx.execute(
        _RENAMED + " from documents d where d.id = v.document_id and d.org_id = %(org)s"
        " and v.container_tags && %(sources)s::text[] and not d.container_tags && %(sources)s",
        {"org": org, "sources": list(sources), "target": target},
    )


def forget_tags(tx: Tx, ids: Sequence[DocumentId], tags: Collection[str]) -> None:
    """Take tags off the older texts of documents, locked; those that have no other are read by
    nobody, and a worker removes them."""
    if not ids:
        return
    done = tx.execute(
        "update versions v set doomed = v.doomed or v.container_tags <@ %(tags)s::text[],"
        " container_tags = array(select had.tag from unnest(v.container_tags)"
        "  with ordinality as had (tag, nth) where had.tag <> all(%(tags)s) order by had.nth)"
        " where v.document_id = any(%(ids)s) and v.container_tags && %(tags)s::text[]",
        {"ids": list(ids), "tags": list(tags)},
    )
    if done.rowcount:
        db.notify(tx)


def bytes_kept(tx: Tx, tenant: Tenant) -> int:
    """Bytes of the older texts of an organisation, of those that the tenant may touch."""
    row = tx.execute(
        "select coalesce(sum(octet_length(v.text)), 0)::int8 as n from versions v"
        " join documents d on d.id = v.document_id where not v.doomed and d.org_id = %(org)s"
        " and d.gone_at is null and " + tenancy.with_any("v.container_tags", "d.org_id"),
        tenancy.bounds(tenant),
    ).fetchone()
    assert row is not None
    return row["n"]
