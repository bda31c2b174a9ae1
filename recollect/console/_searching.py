"""Search: documents, memories, or both, with all that stands behind the order of passages."""

import dataclasses
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse
from markupsafe import Markup
from pydantic import BeforeValidator

from recollect.app import App
from recollect.console import _rendering, _room, _show
from recollect.console._reading import place
from recollect.console._room import (
    CurrentApp,
    Reader,
    SignedInPage,
    Text,
    known_tags,
    page,
)
from recollect.documents.filters import Filter
from recollect.documents.filters import parse as parse_filter
from recollect.errors import BadRequestError, RequestError
from recollect.memories import reading
from recollect.memories.finding import FoundMemory
from recollect.memories.records import Memory, MemoryQuery
from recollect.model import Document, Hit, HitChunk, Tenant
from recollect.orgs import tags
from recollect.search import hybrid, ranking
from recollect.search.ask import Asked, begin

SEARCH = "/console/search"
LONGEST_QUERY = 10_000
"""characters"""
DOCUMENTS = 10
"""shown where the field is left empty"""
FILTER_ROWS = 3
MODES: Mapping[str, str] = {
    "documents": "documents",
    "memories": "memories",
    "hybrid": "both",
}
FITS = 0.6
"""Likeness of a memory that answers, as `/v4/search` asks for unless told otherwise."""
REMOTE = 0.4
"""Likeness of a memory that is shown as a weak match; below that nothing is."""
OPERATIONS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "is": ("is", {}),
    "is-not": ("is not", {"negate": True}),
    "contains": ("contains", {"filterType": "string_contains", "ignoreCase": True}),
    "lacks": (
        "does not contain",
        {"filterType": "string_contains", "ignoreCase": True, "negate": True},
    ),
    "eq": ("= (number)", {"filterType": "numeric", "numericOperator": "="}),
    "lt": ("<", {"filterType": "numeric", "numericOperator": "<"}),
    "le": ("≤", {"filterType": "numeric", "numericOperator": "<="}),
    "gt": (">", {"filterType": "numeric", "numericOperator": ">"}),
    "ge": ("≥", {"filterType": "numeric", "numericOperator": ">="}),
    "holds": ("list holds", {"filterType": "array_contains"}),
}
"""What a row of the form asks of a key, with its words, as the filters of the API have it."""

rooms = APIRouter(route_class=SignedInPage, include_in_schema=False)
Several = Annotated[list[Text] | None, Query(max_length=50)]


@dataclass(frozen=True, slots=True)
class SearchForm:
    """A search as it was typed."""

    q: str
    mode: str
    tag: str
    rows: Sequence[tuple[str, str, str]]
    """metadata as (key, operation, value)"""
    any: bool
    """whether one of the rows is enough"""
    filters: str
    """more of them, as JSON"""
    limit: int
    rerank: bool
    rewrite: bool
    strong: bool
    """whether weak matches are left out"""

    def filter(self) -> dict[str, object] | None:
        """As the API takes it; raises BadRequestError."""
        rows = [_condition(*row) for row in self.rows if row[0].strip() or row[2].strip()]
        groups: list[dict[str, object]] = [{"OR" if self.any else "AND": rows}] if rows else []
        if self.filters.strip():
            parse_filter(self.filters)  # which says what is wrong, and where
            groups.append(json.loads(self.filters))
        return {"AND": groups} if len(groups) > 1 else groups[0] if groups else None


@rooms.get("/console/playground")
def playground(request: Request) -> Response:
    """Lead from the address that this page had before."""
    return RedirectResponse(str(request.url.replace(path=request.scope["root_path"] + SEARCH)), 308)


@rooms.get(SEARCH)
def search(
    request: Request,
    tenant: Reader,
    app: CurrentApp,
    q: Text = "",
    mode: str = "documents",
    tag: Text = "",
    key: Several = None,
    is_: Annotated[list[str] | None, Query(alias="is", max_length=50)] = None,
    value: Several = None,
    any: bool = False,
    filters: Text = "",
    limit: Annotated[int, BeforeValidator(lambda given: given or DOCUMENTS)] = DOCUMENTS,
    rerank: bool = False,
    rewrite: bool = False,
    strong: bool = False,
) -> Response:
    """Everything typed stands in the address, so that a search can be kept and sent on."""
    rows = list(zip(key or (), is_ or (), value or (), strict=False))
    mode = mode if mode in MODES else "documents"
    typed = SearchForm(q, mode, tag, rows, any, filters, limit, rerank, rewrite, strong)
    with app.db.begin() as tx:
        known = known_tags(tx, tenant)
    blank = max(FILTER_ROWS - len(rows), 0)
    values: dict[str, object] = {
        "typed": typed,
        "rows": [*rows, *[("", "is", "")] * blank],
        "found": None,
        "error": None,
        "known": known,
        "own_tags": tenant.tags,
        "modes": MODES,
        "operations": {name: words for name, (words, _) in OPERATIONS.items()},
        "can_rerank": app.reranker is not None,
        "can_rewrite": app.llm is not None,
    }
    if not q.strip():
        return page(request, "search.html", values)
    try:
        found, body = _find(app, tenant, typed)
    except RequestError as error:
        return page(request, "search.html", {**values, "error": error}, error.status)
    values |= {"found": found, "mark": _show.marker(tenant.id, q)}
    by_memory = mode != "documents"
    operation = "searchMemories" if by_memory else "searchDocuments"
    values["snippets"] = _room.code(request, operation, body)
    return page(request, "search.html", values)


def _find(
    app: App, tenant: Tenant, typed: SearchForm
) -> tuple["SearchFindings", dict[str, object]]:
    """What was found, and the search as a body for the API; raises RequestError."""
    if not 1 <= typed.limit <= 100:
        raise BadRequestError("limit: 1 to 100")
    if len(typed.q) > LONGEST_QUERY:
        raise BadRequestError(f"query: at most {LONGEST_QUERY:,} characters")
    several = [name for part in typed.tag.split(",") if (name := part.strip())]
    named = tags.asked(tenant, None, several, default=False, prefixes=True, field="tag")
    given = typed.filter()
    filter = None if given is None else parse_filter(given)
    started = time.monotonic()
    asked = begin(app, typed.q, rerank=typed.rerank, rewrite=typed.rewrite)
    hits: list[Hit] = []
    if typed.mode != "memories":
        query = hybrid.Query(
            text=typed.q,
            vector=None,
            tags=named,
            filter=filter,
            limit=typed.limit,
            threshold=ranking.RELEVANT if typed.strong else 0.0,
            fold=True,
        )
        hits = app.db.read(lambda tx: asked.passages(tx, tenant, query))
        hits = asked.ordered(hits, query)
    memories = (
        [] if typed.mode == "documents" else _memories(app, tenant, typed, asked, named, filter)
    )
    mark = _show.marker(tenant.id, typed.q)
    shown = [_shown_hit(hit, typed.q, mark) for hit in hits]
    found = SearchFindings(
        shown, memories, list(dict.fromkeys(asked.warnings)), (time.monotonic() - started) * 1000
    )
    return found, _body(typed, named, given)


def _memories(
    app: App,
    tenant: Tenant,
    typed: SearchForm,
    asked: Asked,
    named: Sequence[str],
    filter: Filter | None,
) -> list["FoundFact"]:
    query = MemoryQuery(tags=named, filter=filter, limit=typed.limit)
    with app.db.begin() as tx:
        likest = asked.memories(tx, tenant, query, FITS if typed.strong else REMOTE)
        ids = [one.memory.id for one in likest]
        sources = reading.sources(tx, tenant, ids)
        evidence = reading.evidence(tx, tenant, ids)
    mark = _show.marker(tenant.id, typed.q)
    ordered = asked.judged_first(likest, _text_of, _likeness_of)[: typed.limit]
    found: list[FoundFact] = []
    for one, _ in ordered:
        places = {e.document_id: e.position for e in reversed(evidence[one.memory.id])}
        borne = [
            (document, place(document.id, typed.q, places.get(document.id)))
            for document in sources[one.memory.id]
        ]
        found.append(FoundFact(one.memory, one.similarity, mark(one.memory.content), borne))
    return found


def _text_of(one: FoundMemory) -> str:
    return one.memory.content


def _likeness_of(one: FoundMemory) -> float:
    return one.similarity


def _condition(key: str, operation: str, value: str) -> dict[str, object]:
    if not key.strip():
        raise BadRequestError(f"filter: name the key that {value.strip()[:40]!r} is for")
    if operation not in OPERATIONS:
        raise BadRequestError(f"filter: {key.strip()[:64]!r} is compared by what the form offers")
    return {"key": key.strip(), "value": value.strip(), **OPERATIONS[operation][1]}


def _body(
    typed: SearchForm, named: Sequence[str], filter: Mapping[str, object] | None
) -> dict[str, object]:
    """The same search for the API, without what is its default."""
    body: dict[str, object] = {"q": typed.q, "limit": typed.limit}
    if typed.mode != "documents":
        body |= {"searchMode": typed.mode, "threshold": FITS if typed.strong else REMOTE}
    elif typed.strong:
        body["chunkThreshold"] = ranking.RELEVANT
    if typed.mode != "memories":
        body["foldDuplicates"] = True
    if named:
        body["containerTags"] = list(named)
    if filter is not None:
        body["filters"] = filter
    if typed.rerank:
        body["rerank"] = True
    if typed.rewrite:
        body["rewriteQuery"] = True
    return body


PARTS = {
    "Words": "BM25 over the words of the whole passage",
    "Meaning": "Cosine of the vectors",
    "Window": "Words of the query within a few sentences",
    "Pairs": "Neighbouring words of the query next to each other",
}
CONVERSATION = "Words of the query in the best passages of the same conversation"
NAME = "The query is the title of the document, or the name of its file"
JUDGE = "What the reranker says, as far as it goes with the order of the search"
TELLING = 0.1
"""A part that lifts or lowers a passage by less is not worth a word."""


@dataclass(frozen=True, slots=True)
class HitPassage:
    """A chunk of a hit, drawn with its words of the query marked, and the address of its place."""

    chunk: HitChunk
    drawn: Markup
    place: str
    also: Sequence[tuple[Document, str]]
    """where else stands what it says, with addresses"""

    @property
    def parts(self) -> list[tuple[str, float, str]]:
        """What put the passage at its place: name, lift, and meaning of each part of the score."""
        parts = self.chunk.parts
        judge = [] if self.chunk.reranked is None else [("Reranker", parts.judge, JUDGE)]
        found = zip(
            PARTS.items(), (parts.words, parts.meaning, parts.window, parts.pairs), strict=True
        )
        talk = [("Conversation", parts.conversation, CONVERSATION)] if parts.conversation else []
        called = [("Name", parts.name, NAME)] if parts.name else []
        return [*((name, lift, hint) for (name, hint), lift in found), *talk, *called, *judge]

    @property
    def why(self) -> str:
        """A sentence about what lifts it most, and what lowers it."""
        ordered = sorted(self.parts, key=lambda one: one[1], reverse=True)
        up = [name.lower() for name, lift, _ in ordered if lift > TELLING]
        down = [name.lower() for name, lift, _ in reversed(ordered) if lift < -TELLING]
        said = [f"lifted by {' and '.join(up[:2])}"] if up else []
        said += [f"lowered by {' and '.join(down[:2])}"] if down else []
        told = ", ".join(said) or "no hint sets it apart from the other candidates"
        return f"{told[0].upper()}{told[1:]}. The order is by the sum of these:"


@dataclass(frozen=True, slots=True)
class FoundFact:
    """A memory that was found, and the documents that it comes from, with their places."""

    memory: Memory
    similarity: float
    pieces: Sequence[_show.Piece]
    sources: Sequence[tuple[Document, str]]

    @property
    def is_weak(self) -> bool:
        return self.similarity < FITS


@dataclass(frozen=True, slots=True)
class SearchFindings:
    """What a search found, in words for the page."""

    hits: Sequence[tuple[Hit, Sequence[HitPassage]]]
    memories: Sequence[FoundFact]
    warnings: Sequence[str]
    took: float
    """milliseconds"""

    @property
    def is_empty(self) -> bool:
        return not self.hits and not self.memories

    @property
    def weak(self) -> str | None:
        """What to say where nothing is likely to answer."""
        is_weak = all(one.is_weak for one in self.memories) and not any(
            is_likely(hit) for hit, _ in self.hits
        )
        return ranking.ONLY_WEAK if is_weak and not self.is_empty else None

    @property
    def most(self) -> float:
        """BM25 points of the best passage."""
        return max((one.chunk.lexical for _, some in self.hits for one in some), default=0)

    @property
    def widest(self) -> float:
        """The longest lift."""
        lifts = (
            abs(lift)
            for _, some in self.hits
            for one in some
            for lift in dataclasses.astuple(one.chunk.parts)
        )
        return max(lifts, default=0) or 1


def is_likely(hit: Hit) -> bool:
    return any(chunk.is_relevant for chunk in hit.chunks)


def _shown_hit(hit: Hit, q: str, mark: _rendering.Marker) -> tuple[Hit, list[HitPassage]]:
    look = _rendering.look(hit.document, None)
    return hit, [
        HitPassage(
            chunk,
            _rendering.passage(chunk.text, look, mark),
            place(hit.document.id, q, chunk.position),
            [(one.document, place(one.document.id, q, one.position)) for one in chunk.also_in],
        )
        for chunk in hit.chunks
    ]
