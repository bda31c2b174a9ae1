"""POST /v3/search and POST /v4/search."""

import time
from collections.abc import Sequence

import numpy as np
from fastapi import APIRouter
from numpy.typing import NDArray

from recollect import documents, memories, search, terms
from recollect.api.deps import CurrentApp, Reader, effective_tags
from recollect.api.memory_schemas import (
    Context,
    MemoryResult,
    MemoryResults,
    MemorySearch,
    SourceChunk,
    SourceDocument,
)
from recollect.api.schemas import HitOut, SearchOut, SearchRequest
from recollect.app import App
from recollect.db import Tx
from recollect.db.filters import parse as parse_filter
from recollect.memories import Found, MemoryQuery
from recollect.model import Hit, HitChunk, Tenant
from recollect.search import Query

router = APIRouter(tags=["search"])
NO_RERANKER = "rerank: no reranker is configured; the order is that of the search itself"
NO_REWRITER = "rewriteQuery: no model is configured; the query was searched as it is"
NO_AGGREGATOR = "aggregate: no model is configured; the results are single memories"


@router.post("/v3/search", summary="Search documents", operation_id="searchDocuments")
def find(body: SearchRequest, tenant: Reader, app: CurrentApp) -> SearchOut:
    """Hybrid: words and meaning. Each chunk says where it stands in the document's content."""
    started = time.monotonic()
    query = Query(
        text=body.q,
        vector=vectors(app, [body.q], query=True)[0],
        tags=effective_tags(
            tenant, body.container_tag, body.container_tags, default=False, prefixes=True
        ),
        filter=None if body.filters is None else parse_filter(body.filters),
        filepath=body.filepath,
        threshold=body.chunk_threshold,
        limit=body.limit,
        with_neighbours=not body.only_matching_chunks,
        with_text=body.include_full_docs,
    )
    with app.db.begin() as tx:
        inside = documents.get(tx, tenant, body.doc_id).id if body.doc_id else None
        hits = search.search(tx, tenant, query, inside=inside)
    took = round((time.monotonic() - started) * 1000, 3)
    return SearchOut(
        results=[HitOut.of(hit) for hit in hits],
        timing=took,
        total=len(hits),
        warnings=_undone(rerank=body.rerank, rewrite=body.rewrite_query, aggregate=False),
    )


@router.post("/v4/search", summary="Search memories", operation_id="searchMemories")
def find_memories(body: MemorySearch, tenant: Reader, app: CurrentApp) -> MemoryResults:
    """`searchMode` memories: what is known; documents: chunks of documents; hybrid: both.

    Where nothing was drawn from documents, chunks answer in place of memories that do not. What
    was asked for and not done stands in `warnings`.
    """
    started = time.monotonic()
    results = answers(app, tenant, body)
    return MemoryResults(
        results=results,
        timing=round((time.monotonic() - started) * 1000, 3),
        total=len(results),
        warnings=_undone(rerank=body.rerank, rewrite=body.rewrite_query, aggregate=body.aggregate),
    )


def answers(app: App, tenant: Tenant, body: MemorySearch) -> list[MemoryResult]:
    """Memories, chunks, or both, the likest first; see `memories.likeness`."""
    named = effective_tags(
        tenant, body.container_tag, body.container_tags, default=False, prefixes=True
    )
    filter = None if body.filters is None else parse_filter(body.filters)
    [vector] = vectors(app, [body.q], query=True)
    results: list[MemoryResult] = []
    by_chunks = body.search_mode != "memories"
    if body.search_mode != "documents":
        query = MemoryQuery(
            tags=named,
            filter=filter,
            filepath=body.filepath,
            forgotten=body.include.forgotten_memories,
            limit=body.limit,
        )
        with app.db.begin() as tx:
            found = memories.search(tx, tenant, body.q, vector, query, threshold=body.threshold)
            results = _memories(tx, tenant, found, body)
            by_chunks = by_chunks or not (found or memories.drawn(tx, tenant, named))
    if by_chunks:
        wanted = Query(
            text=body.q,
            vector=vector,
            tags=named,
            filter=filter,
            filepath=body.filepath,
            limit=body.limit,
        )
        with app.db.begin() as tx:
            hits = search.search(tx, tenant, wanted)
        results += _chunks(tenant, hits, body)
    return sorted(results, key=lambda one: one.similarity, reverse=True)[: body.limit]


def vectors(
    app: App, texts: Sequence[str], *, query: bool = False
) -> Sequence[NDArray[np.float32] | None]:
    """One for each text; without an embedder there are none."""
    if app.embedder is None:
        return [None] * len(texts)
    return list(app.embedder.embed(texts, query=query))


def _memories(
    tx: Tx, tenant: Tenant, found: Sequence[Found], body: MemorySearch
) -> list[MemoryResult]:
    ids = [one.memory.id for one in found]
    sources = memories.sources(tx, tenant, ids)
    beside = memories.neighbours(tx, tenant, ids) if body.include.related_memories else None
    evidence = memories.evidence(tx, tenant, ids) if body.include.chunks else None
    with_documents = body.include.documents or body.include.summaries
    results: list[MemoryResult] = []
    for one in found:
        memory = one.memory
        borne = sources[memory.id]
        results.append(
            MemoryResult(
                id=memory.id,
                memory=memory.content,
                similarity=round(one.similarity, 6),
                metadata=None if memory.metadata is None else dict(memory.metadata),
                updated_at=memory.updated_at,
                version=memory.version,
                root_memory_id=memory.root_id,
                filepath=next((d.filepath for d in borne if d.filepath), None),
                context=Context.of(beside[memory.id]) if beside is not None else None,
                documents=[SourceDocument.of(d, whole=body.include.documents) for d in borne]
                if with_documents
                else None,
                chunks=[SourceChunk.of(place) for place in evidence[memory.id]]
                if evidence is not None
                else None,
            )
        )
    return results


def _chunks(tenant: Tenant, hits: Sequence[Hit], body: MemorySearch) -> list[MemoryResult]:
    groups = terms.query_terms(tenant.id, body.q)
    results: list[MemoryResult] = []
    for hit in hits:
        for chunk in hit.chunks:
            similarity = _similarity(tenant, groups, chunk)
            if similarity >= body.threshold:
                results.append(_chunk(hit, chunk, similarity, whole=body.include.documents))
    return results


def _similarity(tenant: Tenant, groups: Sequence[Sequence[int]], chunk: HitChunk) -> float:
    held = terms.weigh(tenant.id, chunk.text)
    return memories.likeness(chunk.similarity, terms.share(groups, held.keys()))


def _chunk(hit: Hit, chunk: HitChunk, similarity: float, *, whole: bool) -> MemoryResult:
    document = hit.document
    return MemoryResult(
        id=f"{document.id}.{chunk.position}",
        chunk=chunk.text,
        similarity=round(similarity, 6),
        metadata=None if document.metadata is None else dict(document.metadata),
        updated_at=document.updated_at,
        filepath=document.filepath,
        documents=[SourceDocument.of(document, whole=whole)],
    )


def _undone(*, rerank: bool, rewrite: bool, aggregate: bool) -> list[str] | None:
    """What was asked for that nothing here can do, as sentences."""
    asked = {NO_RERANKER: rerank, NO_REWRITER: rewrite, NO_AGGREGATOR: aggregate}
    return [sentence for sentence, wanted in asked.items() if wanted] or None
