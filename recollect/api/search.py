"""POST /v3/search."""

import time

from fastapi import APIRouter

from recollect import documents, search
from recollect.api.deps import CurrentApp, Reader, effective_tags
from recollect.api.schemas import HitOut, SearchOut, SearchRequest
from recollect.db.filters import parse as parse_filter
from recollect.search import Query

router = APIRouter(tags=["search"])


@router.post("/v3/search", summary="Search documents", operation_id="searchDocuments")
def find(body: SearchRequest, tenant: Reader, app: CurrentApp) -> SearchOut:
    """Hybrid: words and meaning. Each chunk says where it stands in the document's content."""
    started = time.monotonic()
    query = Query(
        text=body.q,
        vector=app.embedder.embed([body.q], query=True)[0] if app.embedder else None,
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
    return SearchOut(results=[HitOut.of(hit) for hit in hits], timing=took, total=len(hits))
