"""Search and lists of a namespace."""

import time
from typing import Annotated, Any, Literal

from fastapi import Path, Response
from pydantic import Field, WithJsonSchema

from recollect import documents
from recollect.api.deps import CurrentApp
from recollect.api.memory_schemas import (
    Include as OldInclude,
)
from recollect.api.memory_schemas import (
    MemoryResult,
    MemorySearch,
    Question,
    SourceDocument,
    Threshold,
)
from recollect.api.namespaces._door import (
    Closed,
    Number,
    PageSize,
    Reads,
    Space,
    closed,
    flat,
)
from recollect.api.namespaces._door import (
    router as door,
)
from recollect.api.namespaces._shapes import (
    DocumentSystem,
    Metadata,
    NsChanged,
    NsChunkOut,
    NsMemoryOut,
    Related,
    SourceOut,
    Times,
    beside,
    metadata_of,
    related,
)
from recollect.api.namespaces._words import in_words
from recollect.api.room import CurrentRoom, Holding, with_texts
from recollect.api.search import answers
from recollect.api.wire import Pagination, Text, Wire, absent
from recollect.app import App
from recollect.db import Tx
from recollect.documents import DocumentQuery
from recollect.documents.filters import Filter
from recollect.documents.predicates import parse
from recollect.errors import BadRequestError, NotFoundError
from recollect.index.phrases import QueryError
from recollect.memories import extraction_queue, reading
from recollect.memories.extraction_queue import Dreaming
from recollect.memories.reading import Neighbour
from recollect.memories.records import Memory, MemoryId, MemoryQuery
from recollect.model import Document, DocumentId, Page

router = door("reading")
RELATED = 10
"""of each kind beside a result of a search"""
_SORTS: dict[str, Literal["created_at", "updated_at", "position"]] = {
    "createdAt": "created_at",
    "updatedAt": "updated_at",
    "position": "position",
}
FilterIn = Annotated[
    Any,
    WithJsonSchema(
        {
            "type": "object",
            "description": "{field, operator, value}, or {operator: and or or, operands: […]}.",
            "examples": [{"field": "year", "operator": "gte", "value": 2026}],
        }
    ),
]


# --- requests ------------------------------------------------------------------------------------


class SearchInclude(Closed):
    documents: bool = False
    related: bool = False
    forgotten: bool = False


class SearchBody(Closed):
    model_config = closed(query="Where does Ann live?", limit=5)

    query: Question
    filter: FilterIn = None
    search_mode: Literal["hybrid", "memories", "chunks"] = "hybrid"
    limit: int = Field(default=10, ge=1, le=100)
    threshold: Threshold = 0.3
    rerank: Literal["none", "order", "aggregate"] = "none"
    rewrite_query: bool = False
    include: SearchInclude = SearchInclude()


class ListInclude(Closed):
    content: bool = False
    memory_count: bool = True
    forgotten: bool = False


class ListBody(Closed):
    model_config = closed(filter={"field": "source", "operator": "eq", "value": "chat"})

    filter: FilterIn = None
    include: ListInclude = ListInclude()


class CountBody(Closed):
    model_config = closed(ids=["notes/1"])

    ids: list[Annotated[Text, Field(min_length=1, max_length=255)]] = Field(
        min_length=1, max_length=100
    )


# --- answers -------------------------------------------------------------------------------------


class Included(Wire):
    related: Related | None = absent()
    document: SourceOut | None = absent()


class Result(Wire):
    """A memory (`memory`), or a chunk of a document (`chunk`)."""

    id: str
    memory: str | None = absent()
    chunk: str | None = absent()
    metadata: Metadata
    similarity: float
    rerank_score: float | None = absent()
    is_latest: bool
    is_inference: bool
    system: NsChanged
    included: Included | None = absent()
    is_aggregated: bool | None = absent()
    aggregated_from: list[str] | None = absent()


class Results(Wire):
    results: list[Result]
    search_time: float = Field(description="Milliseconds.")
    warnings: list[str] | None = absent()


class ListedOut(Wire):
    id: str
    custom_id: str | None
    title: str | None
    type: str
    summary: str | None
    url: str | None
    metadata: Metadata
    system: DocumentSystem


class ListedWithText(ListedOut):
    content: str | None = Field(description="The published text; null before there is one.")


class Lists(Wire):
    """Only what was asked for is filled."""

    documents: list[ListedWithText | ListedOut] = Field(default=[])
    chunks: list[NsChunkOut] = Field(default=[])
    memories: list[NsMemoryOut] = Field(default=[])
    pagination: Pagination
    warnings: list[str] | None = absent()


class CountOut(Wire):
    id: str
    memory_count: int


class CountsOut(Wire):
    counts: list[CountOut]


# --- search --------------------------------------------------------------------------------------


@router.post("/ns/{namespace}/search", summary="Search", operation_id="nsSearch")
def search(space: Reads, body: SearchBody, app: CurrentApp) -> Results:
    """What is known (memories), chunks of documents, or both. What was asked for and not done
    stands in `warnings`."""
    started = time.monotonic()
    warnings: list[str] = []
    filter = None if body.filter is None else parse(body.filter)
    asked = MemorySearch(
        q=body.query,
        container_tag=space.name,
        search_mode="documents" if body.search_mode == "chunks" else body.search_mode,
        threshold=body.threshold,
        limit=body.limit,
        filters=filter,
        rerank=body.rerank != "none",
        aggregate=body.rerank == "aggregate",
        rewrite_query=body.rewrite_query,
        include=OldInclude(
            documents=body.include.documents, forgotten_memories=body.include.forgotten
        ),
    )
    try:
        found, told = answers(app, space.inside, asked)
    except QueryError as error:
        raise BadRequestError(f"query: {error.problem}") from error
    warnings += told
    if body.search_mode == "memories":  # what `/v4` says in place of memories that there are not
        found = [one for one in found if one.memory is not None]
    results = _results(app, space, found, body.include, filter)
    return Results(
        results=results,
        search_time=round((time.monotonic() - started) * 1000, 3),
        warnings=[in_words(one) for one in warnings] or None,
    )


def _results(
    app: App,
    space: Space,
    found: list[MemoryResult],
    include: SearchInclude,
    filter: Filter | None,
) -> list[Result]:
    ids = [MemoryId(one.id) for one in found if one.memory is not None and not one.is_aggregated]
    known: dict[str, Memory] = {}
    others: dict[MemoryId, list[Neighbour]] = {}

    def read(tx: Tx) -> tuple[dict[str, Memory], dict[MemoryId, list[Neighbour]]]:
        known: dict[str, Memory] = {one.id: one for one in reading.versions(tx, space.inside, ids)}
        if not include.related:
            return known, {}
        return known, reading.neighbours(tx, space.inside, ids, filter=filter)

    if ids:
        known, others = app.db.read(read)
    return [
        _result(one, known.get(one.id), others.get(MemoryId(one.id), []), include) for one in found
    ]


def _result(
    one: MemoryResult, memory: Memory | None, others: list[Neighbour], include: SearchInclude
) -> Result:
    sources = one.documents or []
    newest = max(sources, key=lambda source: source.updated_at, default=None)
    beside_it = None
    if include.related and not one.is_aggregated:
        beside_it = related(beside(others, RELATED))
    asked = include.documents or include.related
    born = memory.created_at if memory else None
    if one.chunk is not None and newest is not None:
        born = newest.created_at
    return Result(
        id=one.id,
        memory=one.memory,
        chunk=one.chunk,
        metadata=metadata_of(memory) if memory else flat(one.metadata),
        similarity=one.similarity,
        rerank_score=one.rerank_score,
        is_latest=memory is None or (memory.is_latest and not memory.is_forgotten),
        is_inference=bool(one.is_aggregated or (memory and memory.is_inference)),
        system=NsChanged(updated_at=one.updated_at, created_at=born),
        included=Included(
            related=beside_it,
            document=_source(newest) if include.documents and newest is not None else None,
        )
        if asked
        else None,
        is_aggregated=one.is_aggregated,
        aggregated_from=one.aggregated_from,
    )


def _source(document: SourceDocument) -> SourceOut:
    return SourceOut(
        id=document.id,
        title=document.title,
        type=document.type or "text",
        metadata=flat(document.metadata),
        summary=None,
        system=Times(created_at=document.created_at, updated_at=document.updated_at),
    )


# --- lists ---------------------------------------------------------------------------------------


@router.post(
    "/ns/{namespace}/list/documents/memory-counts",
    summary="Count memories",
    operation_id="nsCountMemories",
)
def count(space: Reads, body: CountBody, app: CurrentApp) -> CountsOut:
    """Live memories by the document that they come from; ids that are not there are left out."""

    def read(tx: Tx) -> tuple[dict[str, DocumentId], dict[DocumentId, int]]:
        named, _ = documents.named(tx, space.inside, body.ids, inside=space.name)
        return named, reading.counts(tx, space.inside, list(named.values()))

    named, found = app.db.read(read)
    counted = [CountOut(id=name, memory_count=found[id]) for name, id in named.items()]
    return CountsOut(counts=counted)


@router.post(
    "/ns/{namespace}/list/{type}",
    summary="List",
    operation_id="nsList",
    response_model=Lists,
)
def find(
    space: Reads,
    type: Annotated[
        str, Path(description="documents, chunks or memories.", examples=["documents"])
    ],
    app: CurrentApp,
    room: CurrentRoom,
    body: ListBody | None = None,
    page: Number = 1,
    limit: PageSize = 10,
    sort: Literal["createdAt", "updatedAt", "position"] = "createdAt",
    order: Literal["asc", "desc"] = "desc",
) -> Response:
    """Documents, chunks, or memories (the latest versions), by page."""
    body = body or ListBody()
    filter = None if body.filter is None else parse(body.filter)
    if type not in ("documents", "chunks", "memories"):
        raise NotFoundError("Not found", f"there is no list of {type[:80]!r}")
    if sort == "position" and type != "chunks":
        raise BadRequestError("sort: position is for chunks")
    query = DocumentQuery(
        filter=filter, sort=_SORTS[sort], descending=order == "desc", limit=limit, page=page
    )
    with Holding(room, space.inside) as holding:
        match type:
            case "documents":
                found = _documents(app, space, query, body.include, holding)
            case "chunks":
                chunks = app.db.read(lambda tx: documents.find_chunks(tx, space.inside, query))
                shown = [NsChunkOut.of(of, chunk, listed=True) for of, chunk in chunks.items]
                found = Lists(chunks=shown, pagination=Pagination.of(chunks))
            case _:
                found = _memories(app, space, query, body.include)
        return holding.answer(found)


def _documents(
    app: App, space: Space, query: DocumentQuery, include: ListInclude, holding: Holding
) -> Lists:
    warnings: list[str] = []

    def read(tx: Tx) -> tuple[Page[Document], dict[DocumentId, Dreaming], dict[DocumentId, int]]:
        page = documents.find(tx, space.inside, query)
        ids = [one.id for one in page.items]
        dreaming = extraction_queue.states(tx, ids) if app.llm is not None else {}
        return page, dreaming, reading.counts(tx, space.inside, ids) if include.memory_count else {}

    page, dreaming, counts = app.db.read(read)
    found = page.items
    if include.content:
        found = with_texts(app, space.inside, found, holding, "include.content", warnings)

    def shown(one: Document) -> ListedOut:
        fields: dict[str, Any] = {
            "id": one.id,
            "custom_id": one.custom_id,
            "title": one.title,
            "type": one.kind,
            "summary": None,
            "url": one.url,
            "metadata": flat(one.metadata),
            "system": DocumentSystem.of(one, dreaming.get(one.id), counts.get(one.id)),
        }
        if not include.content:
            return ListedOut(**fields)
        published = one.text if one.indexed_revision is not None else None
        return ListedWithText(**fields, content=published)

    return Lists(
        documents=[shown(one) for one in found],
        pagination=Pagination.of(page),
        warnings=[in_words(one) for one in warnings] or None,
    )


def _memories(app: App, space: Space, query: DocumentQuery, include: ListInclude) -> Lists:
    asked = MemoryQuery(
        any_of=[space.name],
        filter=query.filter,
        forgotten=include.forgotten,
        sort="updated_at" if query.sort == "updated_at" else "created_at",
        descending=query.descending,
        limit=query.limit,
        page=query.page,
    )
    page: Page[Memory] = app.db.read(lambda tx: reading.find(tx, space.inside, asked))
    return Lists(
        memories=[NsMemoryOut.of(one) for one in page.items], pagination=Pagination.of(page)
    )
