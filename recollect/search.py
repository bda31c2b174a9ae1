"""Hybrid search: BM25 over hashed words and nearest vectors, fused in one statement.

The lexical side finds candidates by the GIN index on `entries.terms` and scores them with a sparse
inner product (BM25's document side is stored, its query side are the inverse frequencies). The
dense side scans exactly where the scope (a tag, a document, the organisation) holds few entries,
and walks the HNSW index where it holds many: the planner cannot know which is better, the counts
in `term_counts` do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pgvector import HalfVector, SparseVector
from psycopg import sql

from recollect import documents, embedding, terms
from recollect.db import Tx
from recollect.db.filters import Filter
from recollect.errors import NotFoundError
from recollect.model import DocumentId, Hit, HitChunk, Tenant

EXACT_UP_TO = 10_000
"""Entries in scope up to which every vector is compared; above, the HNSW index is walked."""
VISIT = 20
"""How many comparisons of a vector take as long as one visit on a walk through the HNSW index. It
takes `CANDIDATES` / (share of the entries that is in scope) visits to find enough."""
MOST_VISITS = 10_000
"""pgvector gives up at 20,000 (`hnsw.max_scan_tuples`)"""
CANDIDATES = 100
"""How many entries each side hands to the fusion."""
PICKED = 3_000
"""Entries in scope that words should pick as candidates: the rarest pick, all score. Of the hundred
that would score best if all picked, these held 99 in 140 queries to 100,000 entries, and always
the first ten, for a quarter of the time."""
RARE = 0.1
"""Words in more than this share of the entries pick no candidates but for want of rarer ones."""
RANK_CONSTANT = 60
"""k of reciprocal rank fusion (Cormack, Clarke, Büttcher, SIGIR 2009)."""
PER_DOCUMENT = 10
"""Chunks shown of one document."""

# The numbers of words are salted with the organisation: they alone keep tenants apart but for a
# collision, which the condition on the best finds.
_LEXICAL = sql.SQL(
    "select best.* from (select e.document_id, e.hash, -(e.weights <#> %(words)s) as points"
    " from entries e where e.terms @> %(within)s::int4[] and e.terms && %(picks)s::int4[]"
    " order by points desc, e.hash limit %(candidates)s) as best"
    " join documents d on d.id = best.document_id where {condition}"
)
_LEXICAL_NARROWED = sql.SQL(
    "select e.document_id, e.hash, -(e.weights <#> %(words)s) as points"
    " from entries e join documents d on d.id = e.document_id"
    " where e.terms @> %(within)s::int4[] and e.terms && %(picks)s::int4[] and {condition}"
    " order by points desc, e.hash limit %(candidates)s"
)
# No condition on `terms`: it would tempt the planner to the GIN index and a sort of everything.
_NEAREST = sql.SQL(
    "select e.document_id, e.hash,"
    " (e.{column}::halfvec({dimensions})) <=> %(vector)s as distance"
    " from entries e join documents d on d.id = e.document_id"
    " where {condition}"
    " order by (e.{column}::halfvec({dimensions})) <=> %(vector)s limit %(candidates)s"
)
# From the documents that match to all of their entries. The sum keeps the planner from the vector
# index, which would miss entries of a small scope.
_EXACT = sql.SQL(
    "with matching as materialized (select d.id from documents d where {condition})"
    " select e.document_id, e.hash, (e.{column} <=> %(vector)s) + 0 as distance"
    " from matching m join entries e on e.document_id = m.id"
    " where e.{column} is not null order by distance, e.hash limit %(candidates)s"
)
_NO_WORDS = sql.SQL(
    "select null::text as document_id, null::bytea as hash, 0::float8 as points where false"
)
_NO_VECTOR = sql.SQL(
    "select null::text as document_id, null::bytea as hash, 0::float8 as distance where false"
)
_FUSED = sql.SQL(
    """
with lexical as materialized ({lexical}),
dense as materialized ({dense}),
ranked as (
  select document_id, hash, sum(1.0 / (%(k)s + place)) / %(best)s as score
  from (
    select document_id, hash, rank() over (order by points desc) as place from lexical
    where points > 0
    union all
    select document_id, hash, rank() over (order by distance) from dense
  ) as sides
  group by document_id, hash
),
placed as (
  select r.*, c.position, c.start_at, c.end_at, c.place,
         row_number() over (partition by r.document_id order by r.score desc, c.position) as nth,
         max(r.score) over (partition by r.document_id) as top
  from ranked r
  join lateral (
    select position, start_at, end_at, place from chunks
    where document_id = r.document_id and hash = r.hash order by position limit 1
  ) as c on true
  where r.score >= %(threshold)s
),
shown as (
  select *, dense_rank() over (order by top desc, document_id) as document_place from placed
)
select {columns}, s.score, s.top, s.position, s.start_at, s.end_at, s.place, e.text as chunk_text,
       -(e.weights <#> %(words)s) as lexical, {similarity} as similarity
from shown s
join entries e on e.document_id = s.document_id and e.hash = s.hash
join documents d on d.id = s.document_id
where s.nth <= %(per_document)s and s.document_place <= %(limit)s
order by s.document_place, s.nth
"""
)


@dataclass(frozen=True, slots=True)
class Query:
    """What to look for. `threshold` (0 … 1) is the least score of a chunk."""

    text: str
    vector: NDArray[np.float32] | None
    tags: Sequence[str] = ()
    filter: Filter | None = None
    filepath: str | None = None
    threshold: float = 0.0
    limit: int = 10
    with_neighbours: bool = False
    with_text: bool = False


def adopt(tx: Tx, name: str, dimensions: int) -> None:
    """As `embedding.adopt`: the vectors that are searched are of this model, or of none yet."""
    embedding.adopt(tx, name, dimensions)


def rebind(tx: Tx, name: str, dimensions: int) -> None:
    """As `embedding.rebind`."""
    embedding.rebind(tx, name, dimensions)


def search(tx: Tx, tenant: Tenant, query: Query, *, inside: DocumentId | None = None) -> list[Hit]:
    """The documents that answer best, each with its best chunks; `inside`: only that one.

    Raises Unavailable for the vector of a model that the index does not have any more.
    """
    # A scan of all tenants' entries is never best, but looks cheap to the planner, which does not
    # know how long it takes to compare arrays, nor that the index mostly is in memory.
    tx.execute("set local enable_seqscan = off; set local random_page_cost = 1.1")
    groups = terms.query_terms(tenant.id, query.text)
    scope = documents.sought(tenant.id, query.tags)
    counted, everywhere = _counts(tx, tenant, [*scope, *(n for group in groups for n in group)])
    total = counted.get(scope[0], 0)
    in_scope = min((counted.get(number, 0) for number in scope), default=0)
    words = terms.idf(groups, counted, total)
    condition, parameters = documents.condition(
        tenant,
        documents.DocumentQuery(
            id=inside, tags=query.tags, filter=query.filter, filepath=query.filepath
        ),
    )
    narrowed = inside is not None or query.filter is not None or query.filepath is not None
    narrow = narrowed and _matching(tx, condition, parameters) <= EXACT_UP_TO
    lexical = _LEXICAL_NARROWED if narrowed or tenant.tags is not None else _LEXICAL
    sides = 2 if query.vector is not None and words else 1
    column = embedding.sought(tx, "entries", query.vector)
    statement = _FUSED.format(
        lexical=lexical.format(condition=condition) if words else _NO_WORDS,
        dense=_dense(query, narrow, in_scope, everywhere).format(
            condition=condition,
            column=column,
            dimensions=sql.Literal(0 if query.vector is None else len(query.vector)),
        ),
        columns=sql.SQL(documents.COLUMNS + (", d.text" if query.with_text else "")),
        similarity=sql.SQL(
            "null::float8" if query.vector is None else "1 - (e.{} <=> %(vector)s)"
        ).format(column),
    )
    rows = tx.execute(
        statement,
        {
            **parameters,
            "within": scope[1:],
            "picks": _picks(groups, counted, total, in_scope),
            "words": SparseVector({n - 1: w for n, w in words.items()}, documents.TERM_SPACE),
            "vector": None if query.vector is None else HalfVector(query.vector),
            "candidates": CANDIDATES,
            "k": RANK_CONSTANT,
            "best": sides / (RANK_CONSTANT + 1),
            "threshold": query.threshold,
            "limit": query.limit,
            "per_document": PER_DOCUMENT,
        },
    ).fetchall()
    hits = _hits(rows)
    return _with_neighbours(tx, hits) if query.with_neighbours else hits


def fuse(answers: Sequence[Sequence[Hit]], *, threshold: float, limit: int) -> list[Hit]:
    """The answers to several wordings of one question as one.

    The score of a chunk is the mean over the wordings, each of which counts alike; `threshold` is
    the least, and they were searched without one.
    """
    of = {hit.document.id: hit.document for hits in answers for hit in hits}
    best: dict[tuple[DocumentId, int], HitChunk] = {}
    total: dict[tuple[DocumentId, int], float] = {}
    for hits in answers:
        for hit in hits:
            for chunk in hit.chunks:
                key = (hit.document.id, chunk.position)
                total[key] = total.get(key, 0.0) + chunk.score / len(answers)
                if key not in best or chunk.score > best[key].score:
                    best[key] = chunk
    chunks: dict[DocumentId, list[HitChunk]] = {}
    for (id, position), score in sorted(total.items(), key=lambda one: (-one[1], one[0])):
        if score >= threshold:
            chunks.setdefault(id, []).append(replace(best[id, position], score=score))
    return [
        Hit(of[id], some[0].score, some[:PER_DOCUMENT]) for id, some in list(chunks.items())[:limit]
    ]


def first_chunks(hits: Sequence[Hit], most: int) -> list[tuple[DocumentId, HitChunk]]:
    """The chunks that match best, over all documents: what a reranker is to judge."""
    all = [(hit.document.id, chunk) for hit in hits for chunk in hit.chunks if chunk.is_relevant]
    return sorted(all, key=lambda one: -one[1].score)[:most]


def rerank(hits: Sequence[Hit], scores: Mapping[tuple[DocumentId, int], float]) -> list[Hit]:
    """Documents and their chunks by the scores, of which the keys are document and position.

    What was not judged comes behind, in the order that it has.
    """
    judged: list[Hit] = []
    for hit in hits:
        chunks = [
            replace(c, reranked=scores.get((hit.document.id, c.position))) for c in hit.chunks
        ]
        judged.append(replace(hit, chunks=sorted(chunks, key=_unliked)))
    return sorted(judged, key=lambda hit: _unliked(hit.chunks[0]))


def complete(
    tx: Tx, tenant: Tenant, hits: Sequence[Hit], *, with_neighbours: bool, with_text: bool
) -> list[Hit]:
    """What a query asks to be shown, for hits that were put in order since.

    Documents of which the text is wanted and that are gone by now are left out.
    """
    shown: list[Hit] = []
    for hit in hits:
        if with_text:
            try:
                document = documents.get(tx, tenant, hit.document.id, with_text=True)
            except NotFoundError:
                continue
            hit = replace(hit, document=document)
        shown.append(hit)
    return _with_neighbours(tx, shown) if with_neighbours else shown


def _unliked(chunk: HitChunk) -> tuple[bool, float]:
    return (chunk.reranked is None, -(chunk.reranked or 0.0))


def _dense(query: Query, narrow: bool, in_scope: int, everywhere: int) -> sql.SQL:
    if query.vector is None:
        return _NO_VECTOR
    if narrow:
        return _EXACT
    visits = CANDIDATES * everywhere / max(in_scope, 1)
    if in_scope <= max(EXACT_UP_TO, VISIT * visits) or visits > MOST_VISITS:
        return _EXACT
    return _NEAREST


def _matching(tx: Tx, condition: sql.Composable, parameters: Mapping[str, object]) -> int:
    """How many chunks the documents that match have; stops counting where it is clear."""
    row = tx.execute(
        sql.SQL(
            "select coalesce(sum(chunks), 0) as n from"
            " (select d.chunks from documents d where {} limit %(most)s) as found"
        ).format(condition),
        {**parameters, "most": EXACT_UP_TO + 1},
    ).fetchone()
    return int(row["n"]) if row else 0


def _counts(tx: Tx, tenant: Tenant, numbers: Sequence[int]) -> tuple[dict[int, int], int]:
    """In how many entries each number stands, and about how many entries all tenants have."""
    rows = tx.execute(
        "select number, entries from term_counts where org_id = %s and number = any(%s)"
        " union all"
        " select null, reltuples::int8 from pg_class where oid = 'entries'::regclass",
        (tenant.id, list(numbers)),
    ).fetchall()
    everywhere = next(row["entries"] for row in rows if row["number"] is None)
    return {row["number"]: row["entries"] for row in rows if row["number"]}, everywhere


def _picks(
    groups: Sequence[Sequence[int]], counted: Mapping[int, int], total: int, in_scope: int
) -> list[int]:
    """The numbers that find candidates: those of the rarest words, until they find enough."""
    found = [[n for n in group if counted.get(n, 0) > 0] for group in groups]
    share = in_scope / max(total, 1)
    picks: list[int] = []
    expected = 0.0
    for n, group in sorted((sum(counted[n] for n in group), group) for group in found if group):
        enough = expected >= CANDIDATES and expected + n * share > PICKED
        if picks and (enough or n > RARE * total):
            break
        expected += n * share
        picks += group
    return picks


def _hits(rows: Sequence[Mapping[str, Any]]) -> list[Hit]:
    hits: list[Hit] = []
    for _, group in groupby(rows, key=lambda row: row["id"]):
        found = list(group)
        chunks = [
            HitChunk(
                position=row["position"],
                start=row["start_at"],
                end=row["end_at"],
                text=row["chunk_text"],
                score=float(row["score"]),
                is_relevant=True,
                similarity=row["similarity"],
                lexical=row["lexical"],
                place=row["place"],
            )
            for row in found
        ]
        hits.append(Hit(documents.read(found[0]), chunks[0].score, chunks))
    return hits


def _with_neighbours(tx: Tx, hits: Sequence[Hit]) -> list[Hit]:
    """Add the chunk before and after each match, marked as not relevant by itself."""
    wanted = [
        (hit.document.id, hit.document.updated_at, position)
        for hit in hits
        for chunk in hit.chunks
        for position in (chunk.position - 1, chunk.position + 1)
    ]
    rows = tx.execute(
        "select distinct c.document_id, c.position, c.start_at, c.end_at, c.place, e.text"
        # This is a later snapshot: what was finished meanwhile has other chunks at other places.
        " from unnest(%s::text[], %s::timestamptz[], %s::int[]) as near (id, updated_at, position)"
        " join documents d using (id, updated_at)"
        " join chunks c on c.document_id = d.id and c.position = near.position"
        " join entries e on e.document_id = c.document_id and e.hash = c.hash"
        " order by c.document_id, c.position",
        (
            [id for id, _, _ in wanted],
            [updated_at for _, updated_at, _ in wanted],
            [position for _, _, position in wanted],
        ),
    ).fetchall()
    near: dict[str, list[HitChunk]] = {}
    for row in rows:
        near.setdefault(row["document_id"], []).append(
            HitChunk(
                position=row["position"],
                start=row["start_at"],
                end=row["end_at"],
                text=row["text"],
                score=0.0,
                is_relevant=False,
                similarity=None,
                lexical=0.0,
                place=row["place"],
            )
        )
    completed: list[Hit] = []
    for hit in hits:
        shown = {chunk.position for chunk in hit.chunks}
        extra = [chunk for chunk in near.get(hit.document.id, []) if chunk.position not in shown]
        completed.append(replace(hit, chunks=[*hit.chunks, *extra]))
    return completed
