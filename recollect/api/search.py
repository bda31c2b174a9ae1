"""POST /v3/search and POST /v4/search."""

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from fastapi import APIRouter, Response

from recollect import db, documents
from recollect.api.deps import ApiRoute, CurrentApp, Reader, effective_tags
from recollect.api.memory_schemas import (
    Context,
    MemoryResult,
    MemoryResults,
    MemorySearch,
    SourceChunk,
    SourceDocument,
)
from recollect.api.room import CurrentRoom, Holding, fitting, left_out
from recollect.api.search_schemas import AlsoInOut, HitOut, SearchOut, SearchRequest
from recollect.app import App
from recollect.db import Tx
from recollect.documents.filters import parse as parse_filter
from recollect.errors import BadRequestError, Permanent, Transient
from recollect.index import terms, vector_index
from recollect.memories import finding, reading
from recollect.memories.finding import FoundMemory
from recollect.memories.records import NO_PAST, MemoryQuery
from recollect.model import Document, DocumentId, HitChunk, Tenant
from recollect.search import hybrid, query_vectors, ranking
from recollect.search.aggregate import Aggregate, Noted, aggregates
from recollect.search.ask import Answer, Asked, Wording, ask, begin
from recollect.search.duplicates import fold
from recollect.search.hybrid import Query
from recollect.search.query_vectors import Vector

router = APIRouter(tags=["search"], route_class=ApiRoute)
AS_SINGLE = "the results are single memories"
NO_AGGREGATOR = (
    "aggregate: no language model is configured (RECOLLECT_LLM_URL and RECOLLECT_LLM_MODEL name"
    f" one); {AS_SINGLE}"
)
ONLY_MEMORIES = "aggregate: only memories are put together, and searchMode documents finds none"


@router.post(
    "/v3/search",
    summary="Search documents",
    operation_id="searchDocuments",
    response_model=SearchOut,
)
def find(body: SearchRequest, tenant: Reader, app: CurrentApp, room: CurrentRoom) -> Response:
    """Hybrid: words and meaning. Each chunk says where it is in the document's content."""
    started = time.monotonic()
    query = Query(
        text=body.q,
        vector=None,
        tags=effective_tags(
            tenant, body.container_tag, body.container_tags, default=False, prefixes=True
        ),
        filter=None if body.filters is None else parse_filter(body.filters),
        filepath=body.filepath,
        threshold=body.chunk_threshold,
        document_threshold=body.document_threshold or 0.0,
        limit=body.limit,
        with_neighbours=not body.only_matching_chunks,
        fold=body.fold_duplicates,
        as_of=body.as_of,
    )

    def asked() -> Answer:
        return ask(
            app,
            tenant,
            query,
            inside=body.doc_id,
            rerank=body.rerank,
            rewrite=body.rewrite_query,
        )

    with Holding(room, tenant) as holding:
        answer = (
            _with_texts(app, tenant, asked, holding, body.as_of)
            if body.include_full_docs
            else asked()
        )
        took = round((time.monotonic() - started) * 1000, 3)
        return holding.answer(
            SearchOut(
                results=[HitOut.of(hit) for hit in answer.hits],
                timing=took,
                total=len(answer.hits),
                warnings=[*(body.passed_over() or ()), *answer.warnings] or None,
            )
        )


def _with_texts(
    app: App,
    tenant: Tenant,
    asked: Callable[[], Answer],
    holding: Holding,
    as_of: datetime | None,
) -> Answer:
    """Hits with their documents' texts, as far as those go into one answer.

    Where documents change between the search and the reading, both are done again: places in a
    text are worth nothing in another one.
    """
    answer, texts = Answer([], []), dict[DocumentId, str | None]()
    fits = list[DocumentId]()
    for _ in range(hybrid.TRIES):
        answer = asked()
        hits = answer.hits
        found = [hit.document for hit in hits]
        fits, size = app.db.read(partial(_fitting, tenant, found, as_of))
        holding.take(size)
        texts = app.db.read(
            partial(_texts, tenant, [one for one in found if one.id in fits], as_of)
        )
        if len(texts) == len(fits):
            break
    warnings = [*answer.warnings]
    if len(fits) < len(answer.hits):
        warnings.append(left_out("includeFullDocs", len(answer.hits) - len(fits)))
    if len(texts) < len(fits):
        warnings.append(
            "includeFullDocs: texts that changed while they were read are left out"
            f" ({len(fits) - len(texts)}); ask again"
        )
    return Answer(
        [
            replace(hit, document=replace(hit.document, text=texts.get(hit.document.id)))
            for hit in answer.hits
        ],
        warnings,
    )


def _fitting(
    tenant: Tenant, found: Sequence[Document], as_of: datetime | None, tx: Tx
) -> tuple[list[DocumentId], int]:
    db.look_back(tx, tenant.id, as_of)
    return fitting(tx, tenant, [one.id for one in found])


def _texts(
    tenant: Tenant, found: Sequence[Document], as_of: datetime | None, tx: Tx
) -> dict[DocumentId, str | None]:
    db.look_back(tx, tenant.id, as_of)
    return documents.texts(tx, tenant, found)


@router.post("/v4/search", summary="Search memories", operation_id="searchMemories")
def find_memories(body: MemorySearch, tenant: Reader, app: CurrentApp) -> MemoryResults:
    """`searchMode` memories: what is known; documents: chunks of documents; hybrid: both.

    Where nothing was drawn from documents, chunks answer in place of memories that do not. What
    was asked for and not done stands in `warnings`.
    """
    started = time.monotonic()
    results, warnings = answers(app, tenant, body)
    return MemoryResults(
        results=results,
        timing=round((time.monotonic() - started) * 1000, 3),
        total=len(results),
        warnings=[*(body.passed_over() or ()), *warnings] or None,
    )


def answers(app: App, tenant: Tenant, body: MemorySearch) -> tuple[list[MemoryResult], list[str]]:
    """Memories and chunks, the most similar first, or as reranked; and what was asked for and not
    done."""
    named = effective_tags(
        tenant, body.container_tag, body.container_tags, default=False, prefixes=True
    )
    filter = None if body.filters is None else parse_filter(body.filters)
    asked = begin(app, body.q, rerank=body.rerank, rewrite=body.rewrite_query)
    results: list[MemoryResult] = []
    by_chunks = body.search_mode != "memories"
    if body.as_of is not None and body.search_mode != "documents":
        raise BadRequestError(f"asOf: {NO_PAST}; set searchMode to documents")
    if body.search_mode != "documents":
        query = MemoryQuery(
            tags=named,
            filter=filter,
            filepath=body.filepath,
            forgotten=body.include.forgotten_memories,
            limit=body.limit,
        )

        def known(tx: Tx) -> tuple[list[MemoryResult], bool]:
            found = asked.memories(tx, tenant, query, body.threshold)
            is_known = bool(found) or reading.drawn(tx, tenant, named)
            return _memories(tx, tenant, found, body), is_known

        results, is_known = app.db.read(known)
        by_chunks = by_chunks or not is_known
    if body.aggregate:
        results += _aggregated(app, tenant, body, results, asked)
    if by_chunks:
        wanted = Query(
            text=body.q,
            vector=None,
            tags=named,
            filter=filter,
            filepath=body.filepath,
            threshold=ranking.least_relevance(body.threshold),
            limit=body.limit,
            fold=body.fold_duplicates,
            as_of=body.as_of,
        )
        hits = app.db.read(lambda tx: asked.passages(tx, tenant, wanted))
        hits = fold(hits) if wanted.fold else hits
        chunks = [
            _chunk(document, chunk, whole=body.include.documents)
            for document, chunk in hybrid.passages(hits)
        ]
        results += [one for one in chunks if one.similarity >= body.threshold]
    likest = sorted(results, key=lambda one: one.similarity, reverse=True)
    likest = likest[: max(body.limit, asked.judged)]
    return _judged(asked, likest)[: body.limit], asked.warnings


def _judged(asked: Asked, results: Sequence[MemoryResult]) -> list[MemoryResult]:
    """The first ones as search and reranker put them together, then the others."""
    judged = asked.judged_first(
        results, lambda one: one.memory or one.chunk or "", lambda one: one.similarity
    )
    return [
        one if score is None else one.model_copy(update={"rerank_score": round(score, 6)})
        for one, score in judged
    ]


def _memories(
    tx: Tx, tenant: Tenant, found: Sequence[FoundMemory], body: MemorySearch
) -> list[MemoryResult]:
    ids = [one.memory.id for one in found]
    sources = reading.sources(tx, tenant, ids)
    beside = reading.neighbours(tx, tenant, ids) if body.include.related_memories else None
    evidence = reading.evidence(tx, tenant, ids) if body.include.chunks else None
    with_documents = body.include.documents or body.include.summaries
    results: list[MemoryResult] = []
    for one in found:
        memory = one.memory
        borne = sources[memory.id]
        results.append(
            MemoryResult(
                id=memory.id,
                memory=memory.content,
                similarity=one.similarity,
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
                chunks=[SourceChunk.of(place, one.similarity) for place in evidence[memory.id]]
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
    asked: Asked,
) -> list[MemoryResult]:
    """What the model makes of the memories together; none when it fails, with a warning."""
    if app.llm is None or body.search_mode == "documents":
        asked.warnings.append(NO_AGGREGATOR if app.llm is None else ONLY_MEMORIES)
        return []
    known = [Noted(one.memory or "", one.updated_at.date().isoformat()) for one in found]
    try:
        made = aggregates(app.llm, body.q, known)
    except (Transient, Permanent) as error:
        told = query_vectors.left_out("aggregate", "the model", error)
        asked.warnings.append(f"{told}; {AS_SINGLE}")
        return []
    if not made:
        return []
    # Without the query's vector there is nothing to compare theirs with.
    texts = [one.text for one in made]
    question = asked.worded[0]
    theirs: Sequence[Vector | None] = [None] * len(made)
    if question[1] is not None:
        theirs = query_vectors.vectors(app, texts, asked.warnings)
    return [
        _aggregate(tenant, one, [found[place] for place in one.of], question, vector)
        for one, vector in zip(made, theirs, strict=True)
    ]


def _aggregate(
    tenant: Tenant,
    made: Aggregate,
    sources: Sequence[MemoryResult],
    asked: Wording,
    vector: Vector | None,
) -> MemoryResult:
    text, of_query = asked
    cosine = None if vector is None or of_query is None else float(vector @ of_query)
    share = terms.share(
        terms.query_terms(tenant.id, text), terms.weigh(tenant.id, made.text).keys()
    )
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
            round(finding.likeness(cosine, share, vector_index.made_by(vector)), 6),
            min(one.similarity for one in sources),
        ),
        metadata=None,
        updated_at=max(one.updated_at for one in sources),
        documents=None if sources[0].documents is None else list(borne.values()),
        chunks=None if sources[0].chunks is None else list(chunks.values()),
        is_aggregated=True,
        aggregated_from=ids,
    )


def _chunk(document: Document, chunk: HitChunk, *, whole: bool) -> MemoryResult:
    return MemoryResult(
        id=f"{document.id}.{chunk.position}",
        chunk=chunk.text,
        similarity=ranking.likeness(chunk.score),
        metadata=None if document.metadata is None else dict(document.metadata),
        updated_at=document.updated_at,
        filepath=document.filepath,
        documents=[SourceDocument.of(document, whole=whole)],
        also_in=AlsoInOut.of(chunk),
    )
