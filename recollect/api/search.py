"""POST /v3/search and POST /v4/search."""

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from fastapi import APIRouter, Response
from numpy.typing import NDArray

from recollect import documents
from recollect.api.deps import CurrentApp, Reader, effective_tags
from recollect.api.memory_schemas import (
    Context,
    MemoryResult,
    MemoryResults,
    MemorySearch,
    SourceChunk,
    SourceDocument,
)
from recollect.api.room import CurrentRoom, Holding, fitting, left_out
from recollect.api.schemas import HitOut, SearchOut, SearchRequest
from recollect.app import App
from recollect.db import Tx
from recollect.documents.filters import parse as parse_filter
from recollect.errors import Permanent, Transient
from recollect.index import terms, vector_index
from recollect.inference.rerank import NEEDS_RERANKER
from recollect.memories import memories
from recollect.memories.memories import Found, MemoryId, MemoryQuery
from recollect.model import DocumentId, Hit, HitChunk, Tenant
from recollect.search import hybrid, query_vectors
from recollect.search.aggregate import Aggregate, Noted, aggregates
from recollect.search.hybrid import Query
from recollect.search.rewrite import variants

router = APIRouter(tags=["search"])
AS_FOUND = "the order is that of the search itself"
AS_ASKED = "the query was searched as it is"
NO_RERANKER = f"rerank: no reranker is configured ({NEEDS_RERANKER}); {AS_FOUND}"
NO_REWRITER = (
    "rewriteQuery: no language model is configured (RECOLLECT_LLM_URL and RECOLLECT_LLM_MODEL name"
    f" one); {AS_ASKED}"
)
AS_SINGLE = "the results are single memories"
NO_AGGREGATOR = (
    "aggregate: no language model is configured (RECOLLECT_LLM_URL and RECOLLECT_LLM_MODEL name"
    f" one); {AS_SINGLE}"
)
ONLY_MEMORIES = "aggregate: only memories are put together, and searchMode documents finds none"

Wording = tuple[str, NDArray[np.float32] | None]
"""a query, or another one that means the same, with its vector"""


@router.post(
    "/v3/search",
    summary="Search documents",
    operation_id="searchDocuments",
    response_model=SearchOut,
)
def find(body: SearchRequest, tenant: Reader, app: CurrentApp, room: CurrentRoom) -> Response:
    """Hybrid: words and meaning. Each chunk says where it stands in the document's content."""
    started = time.monotonic()
    warnings: list[str] = []
    first = _first(app, warnings, rerank=body.rerank)
    worded = _wordings(app, body.q, warnings, rewrite=body.rewrite_query)
    query = Query(
        text=body.q,
        vector=worded[0][1],
        tags=effective_tags(
            tenant, body.container_tag, body.container_tags, default=False, prefixes=True
        ),
        filter=None if body.filters is None else parse_filter(body.filters),
        filepath=body.filepath,
        threshold=body.chunk_threshold,
        limit=body.limit,
        with_neighbours=not body.only_matching_chunks,
    )

    def found() -> list[Hit]:
        with app.db.begin() as tx:
            inside = documents.get(tx, tenant, body.doc_id).id if body.doc_id else None
            if not first and len(worded) == 1:
                return hybrid.search(tx, tenant, query, inside=inside)
            more = replace(query, limit=max(query.limit, first), with_neighbours=False)
            hits = _searched(tx, tenant, more, worded, inside=inside)
        hits = _reranked(app, body.q, hits, first, warnings)[: body.limit]
        if query.with_neighbours:
            with app.db.begin() as tx:
                return hybrid.with_neighbours(tx, hits)
        return hits

    with Holding(room) as holding:
        hits = (
            _with_texts(app, tenant, found, holding, warnings)
            if body.include_full_docs
            else found()
        )
        took = round((time.monotonic() - started) * 1000, 3)
        return holding.answer(
            SearchOut(
                results=[HitOut.of(hit) for hit in hits],
                timing=took,
                total=len(hits),
                warnings=warnings or None,
            )
        )


def _with_texts(
    app: App, tenant: Tenant, found: Callable[[], list[Hit]], holding: Holding, warnings: list[str]
) -> list[Hit]:
    """Hits with their documents' texts, as far as those go into one answer.

    Where documents change between the search and the reading, both are done again: places in a
    text are worth nothing in another one.
    """
    hits: list[Hit] = []
    texts: dict[DocumentId, str | None] = {}
    for _ in range(hybrid.TRIES):
        hits = found()
        with app.db.begin() as tx:
            fits, size = fitting(tx, tenant, [hit.document.id for hit in hits])
        holding.take(size)
        with app.db.begin() as tx:
            texts = documents.texts(
                tx, tenant, [hit.document for hit in hits if hit.document.id in fits]
            )
        if len(texts) == len(fits):
            break
    if len(texts) < len(hits):
        warnings.append(left_out("includeFullDocs", len(hits) - len(texts)))
    return [
        replace(hit, document=replace(hit.document, text=texts.get(hit.document.id)))
        for hit in hits
    ]


@router.post("/v4/search", summary="Search memories", operation_id="searchMemories")
def find_memories(body: MemorySearch, tenant: Reader, app: CurrentApp) -> MemoryResults:
    """`searchMode` memories: what is known; documents: chunks of documents; hybrid: both.

    Where nothing was drawn from documents, chunks answer in place of memories that do not. What
    was asked for and not done stands in `warnings`.
    """
    started = time.monotonic()
    warnings: list[str] = []
    results = answers(app, tenant, body, warnings)
    return MemoryResults(
        results=results,
        timing=round((time.monotonic() - started) * 1000, 3),
        total=len(results),
        warnings=warnings or None,
    )


def answers(
    app: App, tenant: Tenant, body: MemorySearch, warnings: list[str]
) -> list[MemoryResult]:
    """Memories, chunks, or both, the likest first (see `memories.likeness`), or as reranked.

    What was asked for and not done is added to the `warnings`.
    """
    named = effective_tags(
        tenant, body.container_tag, body.container_tags, default=False, prefixes=True
    )
    filter = None if body.filters is None else parse_filter(body.filters)
    first = _first(app, warnings, rerank=body.rerank)
    worded = _wordings(app, body.q, warnings, rewrite=body.rewrite_query)
    depth = max(body.limit, first)
    results: list[MemoryResult] = []
    by_chunks = body.search_mode != "memories"
    if body.search_mode != "documents":
        query = MemoryQuery(
            tags=named,
            filter=filter,
            filepath=body.filepath,
            forgotten=body.include.forgotten_memories,
            limit=depth,
        )
        with app.db.begin() as tx:
            found = _remembered(tx, tenant, query, worded, body.threshold)
            results = _memories(tx, tenant, found, body)
            by_chunks = by_chunks or not (found or memories.drawn(tx, tenant, named))
    if body.aggregate:
        results += _aggregated(app, tenant, body, results, worded[0], warnings)
    if by_chunks:
        wanted = Query(
            text=body.q,
            vector=None,
            tags=named,
            filter=filter,
            filepath=body.filepath,
            limit=depth,
        )
        with app.db.begin() as tx:
            for text, vector in worded:
                hits = hybrid.search(tx, tenant, replace(wanted, text=text, vector=vector))
                results += _chunks(tenant, hits, text, body, vector_index.made_by(vector))
    likest = sorted(results, key=lambda one: one.similarity, reverse=True)
    once: dict[str, MemoryResult] = {}
    for one in likest:  # a chunk that answers several wordings counts with the likest
        once.setdefault(one.id, one)
    return _judged(app, body.q, list(once.values())[:depth], first, warnings)[: body.limit]


def _wordings(app: App, text: str, warnings: list[str], *, rewrite: bool) -> list[Wording]:
    """The query itself, and what the model makes of it if that is asked for."""
    texts = [text]
    if rewrite and app.llm is None:
        warnings.append(NO_REWRITER)
    elif rewrite and app.llm is not None:
        try:
            texts += variants(app.llm, text)
        except (Transient, Permanent) as error:
            told = query_vectors.left_out("rewriteQuery", "the model", error)
            warnings.append(f"{told}; {AS_ASKED}")
    return list(zip(texts, query_vectors.vectors(app, texts, warnings), strict=True))


def _first(app: App, warnings: list[str], *, rerank: bool) -> int:
    """How many passages are to be judged."""
    if rerank and app.reranker is None:
        warnings.append(NO_RERANKER)
    return app.config.rerank_first if rerank and app.reranker is not None else 0


def _scores(
    app: App, query: str, passages: Sequence[str], warnings: list[str]
) -> Sequence[float] | None:
    """What the reranker makes of each; None when it fails."""
    if app.reranker is None:
        return None
    try:
        return app.reranker.score(query, passages)
    except (Transient, Permanent) as error:
        told = query_vectors.left_out("rerank", "the reranker", error)
        warnings.append(f"{told}; {AS_FOUND}")
        return None


def _searched(
    tx: Tx,
    tenant: Tenant,
    query: Query,
    worded: Sequence[Wording],
    *,
    inside: DocumentId | None,
) -> list[Hit]:
    if len(worded) == 1:
        return hybrid.search(tx, tenant, query, inside=inside)
    lowest = replace(query, threshold=0.0)
    found = [
        hybrid.search(tx, tenant, replace(lowest, text=text, vector=vector), inside=inside)
        for text, vector in worded
    ]
    return hybrid.fuse(found, threshold=query.threshold, limit=query.limit)


def _reranked(
    app: App, query: str, hits: Sequence[Hit], first: int, warnings: list[str]
) -> list[Hit]:
    judged = hybrid.first_chunks(hits, first)
    scores = _scores(app, query, [chunk.text for _, chunk in judged], warnings) if judged else None
    if scores is None:
        return list(hits)
    places = [(id, chunk.position) for id, chunk in judged]
    return hybrid.rerank(hits, dict(zip(places, scores, strict=True)))


def _judged(
    app: App, query: str, results: Sequence[MemoryResult], first: int, warnings: list[str]
) -> list[MemoryResult]:
    """The first ones as the reranker puts them, then the others."""
    passages = [one.memory or one.chunk or "" for one in results[:first]]
    scores = _scores(app, query, passages, warnings) if passages else None
    if scores is None:
        return list(results)
    told = [
        one.model_copy(update={"rerank_score": round(score, 6)})
        for one, score in zip(results[:first], scores, strict=True)
    ]
    return [*sorted(told, key=lambda one: -(one.rerank_score or 0.0)), *results[first:]]


def _remembered(
    tx: Tx, tenant: Tenant, query: MemoryQuery, worded: Sequence[Wording], threshold: float
) -> list[Found]:
    """What answers any of the wordings, each as likely as with the likest."""
    best: dict[MemoryId, Found] = {}
    for text, vector in worded:
        for one in memories.search(tx, tenant, text, vector, query, threshold=threshold):
            before = best.get(one.memory.id)
            if before is None or one.similarity > before.similarity:
                best[one.memory.id] = one
    likest = sorted(best.values(), key=lambda one: one.similarity, reverse=True)
    return likest[: query.limit]


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
                is_forgotten=memory.is_forgotten or None,
                forget_reason=memory.forget_reason if memory.is_forgotten else None,
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


def _aggregated(
    app: App,
    tenant: Tenant,
    body: MemorySearch,
    found: Sequence[MemoryResult],
    asked: Wording,
    warnings: list[str],
) -> list[MemoryResult]:
    """What the model makes of the memories together; none when it fails, with a warning."""
    if app.llm is None or body.search_mode == "documents":
        warnings.append(NO_AGGREGATOR if app.llm is None else ONLY_MEMORIES)
        return []
    known = [Noted(one.memory or "", one.updated_at.date().isoformat()) for one in found]
    try:
        made = aggregates(app.llm, body.q, known)
    except (Transient, Permanent) as error:
        told = query_vectors.left_out("aggregate", "the model", error)
        warnings.append(f"{told}; {AS_SINGLE}")
        return []
    if not made:
        return []
    # Without the query's vector there is nothing to compare theirs with.
    texts = [one.text for one in made]
    theirs = [None] * len(made) if asked[1] is None else query_vectors.vectors(app, texts, warnings)
    return [
        _aggregate(tenant, one, [found[place] for place in one.of], asked, vector)
        for one, vector in zip(made, theirs, strict=True)
    ]


def _aggregate(
    tenant: Tenant,
    made: Aggregate,
    sources: Sequence[MemoryResult],
    asked: Wording,
    vector: NDArray[np.float32] | None,
) -> MemoryResult:
    text, of_query = asked
    cosine = None if vector is None or of_query is None else float(vector @ of_query)
    share = terms.share(terms.query_terms(tenant.id, text), terms.weigh(tenant.id, made.text))
    ids = [one.id for one in sources]
    borne = {one.id: one for source in sources for one in source.documents or ()}
    chunks = {
        (one.document_id, one.position): one for source in sources for one in source.chunks or ()
    }
    digest = hashlib.sha256("\n".join([*ids, made.text]).encode(errors="replace"))
    return MemoryResult(
        id=f"aggregate.{digest.hexdigest()[:16]}",
        memory=made.text,
        # All that it is made of passed the threshold.
        similarity=max(
            round(memories.likeness(cosine, share, vector_index.made_by(vector)), 6),
            min(one.similarity for one in sources),
        ),
        metadata=None,
        updated_at=max(one.updated_at for one in sources),
        documents=None if sources[0].documents is None else list(borne.values()),
        chunks=None if sources[0].chunks is None else list(chunks.values()),
        is_aggregated=True,
        aggregated_from=ids,
    )


def _chunks(
    tenant: Tenant, hits: Sequence[Hit], text: str, body: MemorySearch, model: str
) -> list[MemoryResult]:
    groups = terms.query_terms(tenant.id, text)
    results: list[MemoryResult] = []
    for hit in hits:
        for chunk in hit.chunks:
            similarity = _similarity(tenant, groups, chunk, model)
            if similarity >= body.threshold:
                results.append(_chunk(hit, chunk, similarity, whole=body.include.documents))
    return results


def _similarity(
    tenant: Tenant, groups: Sequence[Sequence[int]], chunk: HitChunk, model: str
) -> float:
    held = terms.weigh(tenant.id, chunk.text)
    return memories.likeness(chunk.similarity, terms.share(groups, held.keys()), model)


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
