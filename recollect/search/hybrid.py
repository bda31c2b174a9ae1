"""Documents with their best chunks, out of the candidates by words and by vectors."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from psycopg import sql

from recollect import documents
from recollect.db import Tx
from recollect.model import Document, DocumentId, Hit, HitChunk, Parts, Tenant
from recollect.search import ranking
from recollect.search.candidates import Candidates, Placed, Query

PER_DOCUMENT = 10
"""Chunks shown of one document."""
LEAST_SHOWN = 10
"""Chunks of all documents together that an answer shows even where it shows fewer documents."""
TRIES = 3
"""How often a search begins again when documents change between finding and reading them, which
they do where a transaction does not see one moment."""


def search(tx: Tx, tenant: Tenant, query: Query, *, inside: DocumentId | None = None) -> list[Hit]:
    """The documents that answer best, each with its best chunks; `inside`: only that one.

    Raises Unavailable for the vector of a model that the index does not have any more.
    """
    hits: list[Hit] = []
    for _ in range(TRIES):
        found = Candidates(tx, tenant, query, inside).find()
        hits, whole = _read(tx, tenant, query, found)
        if whole:
            break
    past = query.as_of is not None
    return with_neighbours(tx, hits, in_the_past=past) if query.with_neighbours else hits


def fuse(answers: Sequence[Sequence[Hit]], query: Query) -> list[Hit]:
    """The answers to several wordings of one question as one.

    The score of a chunk and its parts are the means over the wordings, each of which counts alike.
    They were searched without thresholds; those of the `query` hold for what comes of them. Of a
    text that changed between two of them, only what is found in the last one counts.
    """
    of = {hit.document.id: hit.document for hits in answers for hit in hits}
    best: dict[tuple[DocumentId, int], HitChunk] = {}
    total: dict[tuple[DocumentId, int], float] = {}
    parts: dict[tuple[DocumentId, int], list[Parts]] = {}
    for hits in answers:
        for hit in hits:
            if hit.document.indexed_revision != of[hit.document.id].indexed_revision:
                continue
            for chunk in hit.chunks:
                key = (hit.document.id, chunk.position)
                total[key] = total.get(key, 0.0) + chunk.score / len(answers)
                parts.setdefault(key, []).append(chunk.parts)
                if key not in best or chunk.score > best[key].score:
                    best[key] = chunk
    chunks: dict[DocumentId, list[HitChunk]] = {}

    def behind(one: tuple[tuple[DocumentId, int], float]) -> tuple[float, float, DocumentId, int]:
        """Of equals the newest are first, and of a document its first passages."""
        (id, position), score = one
        return -score, -of[id].updated_at.timestamp(), id, position

    for (id, position), mean in sorted(total.items(), key=behind):
        score = round(mean, ranking.DIGITS)
        if score >= query.threshold and (id in chunks or score >= query.document_threshold):
            chunk = replace(
                best[id, position],
                score=score,
                is_relevant=score >= ranking.RELEVANT,
                parts=ranking.mean(parts[id, position], len(answers)),
            )
            chunks.setdefault(id, []).append(chunk)
    return [
        Hit(of[id], some[0].score, some[:PER_DOCUMENT])
        for id, some in list(chunks.items())[: query.limit]
    ]


def passages(hits: Sequence[Hit]) -> list[tuple[Document, HitChunk]]:
    """The chunks of all documents in one order, the best first: those that were judged, then the
    others by their score. Neighbours often share one, which is the mean of theirs."""
    all = [(hit.document, chunk) for hit in hits for chunk in hit.chunks]
    all.sort(key=lambda one: (-one[1].score, -one[1].parts.order))
    return sorted(all, key=lambda one: _behind(one[1]))


def shortened(hits: Sequence[Hit], limit: int) -> list[Hit]:
    """Each document with its best chunk, and those others that are among the `limit` best of all
    documents, or among the `LEAST_SHOWN` best.

    Ten weak chunks of the first document would stand before the best one of the second.
    """
    most = max(limit, LEAST_SHOWN)
    if sum(len(hit.chunks) for hit in hits) <= most:
        return list(hits)
    best = {(document.id, chunk.position) for document, chunk in passages(hits)[:most]}
    return [
        replace(
            hit,
            chunks=[
                hit.chunks[0],
                *(c for c in hit.chunks[1:] if (hit.document.id, c.position) in best),
            ],
        )
        for hit in hits
    ]


def rerank(
    hits: Sequence[Hit], judged: Mapping[tuple[DocumentId, int], tuple[float, float]]
) -> list[Hit]:
    """Documents and their chunks with what a judge makes of them: by document and position, its
    score, and how far that lifts the chunk.

    What was not judged comes behind, in the order that it has.
    """
    found: list[Hit] = []
    for hit in hits:
        chunks: list[HitChunk] = []
        for chunk in hit.chunks:
            score, lift = judged.get((hit.document.id, chunk.position), (None, 0.0))
            parts = replace(chunk.parts, judge=lift)
            chunks.append(replace(chunk, reranked=score, parts=parts))
        found.append(replace(hit, chunks=sorted(chunks, key=_behind)))
    return sorted(found, key=lambda hit: _behind(hit.chunks[0]))


def with_neighbours(tx: Tx, hits: Sequence[Hit], *, in_the_past: bool = False) -> list[Hit]:
    """Add the chunk before and after each match, marked as not relevant by itself."""
    known = these = ""
    # Without this a join reads everything of the past; with it, it reads whole documents of today.
    if in_the_past:
        known = "where d.id = any(%(ids)s)"
        these = "where c.document_id = any(%(ids)s) and e.document_id = any(%(ids)s)"
    wanted = [
        (hit.document.id, hit.document.updated_at, position)
        for hit in hits
        for chunk in hit.chunks
        for position in (chunk.position - 1, chunk.position + 1)
    ]
    rows = tx.execute(
        # This is a later snapshot: what was finished meanwhile has other chunks at other places.
        "with near as materialized (select distinct id, position from unnest"
        "   (%(ids)s::text[], %(updated)s::timestamptz[], %(positions)s::int[])"
        "   as n (id, updated_at, position)"
        f"  join documents d using (id, updated_at) {known})"
        " select c.document_id, c.position, c.start_at, c.end_at, c.place, e.text"
        " from near join chunks c on c.document_id = near.id and c.position = near.position"
        " join entries e on e.document_id = c.document_id and e.hash = c.hash"
        f" {these} order by c.document_id, c.position",
        {
            "ids": [id for id, _, _ in wanted],
            "updated": [updated_at for _, updated_at, _ in wanted],
            "positions": [position for _, _, position in wanted],
        },
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
                share=0.0,
                place=row["place"],
            )
        )
    completed: list[Hit] = []
    for hit in hits:
        shown = {chunk.position for chunk in hit.chunks}
        extra = [chunk for chunk in near.get(hit.document.id, []) if chunk.position not in shown]
        completed.append(replace(hit, chunks=[*hit.chunks, *extra]))
    return completed


def _behind(chunk: HitChunk) -> tuple[bool, float]:
    judged = chunk.reranked is not None
    return (not judged, -(chunk.parts.order + chunk.parts.judge) if judged else 0.0)


def _read(tx: Tx, tenant: Tenant, query: Query, found: Sequence[Placed]) -> tuple[list[Hit], bool]:
    """The first documents with their best chunks; and whether none of them changed meanwhile."""
    best: dict[DocumentId, list[Placed]] = {}
    for one in found:
        if one.chunk.score < query.threshold:
            break
        new = one.chunk.score >= query.document_threshold and len(best) < query.limit
        if one.document in best or new:
            best.setdefault(one.document, []).append(one)
    condition, parameters = documents.condition(tenant, documents.DocumentQuery())
    rows = tx.execute_planned(
        sql.SQL("select {} from documents d where d.id = any(%(ids)s) and {}").format(
            sql.SQL(documents.COLUMNS), condition
        ),
        {**parameters, "ids": list(best)},
    ).fetchall()
    read = {row["id"]: documents.read(row, tenant) for row in rows}
    hits: list[Hit] = []
    for id, chunks in best.items():
        document = read.get(id)
        if document is not None and document.updated_at == chunks[0].updated_at:
            shown = [one.chunk for one in chunks[:PER_DOCUMENT]]
            hits.append(Hit(document, shown[0].score, shown))
    return hits, len(hits) == len(best)
