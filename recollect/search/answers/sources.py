"""What an answer rests on: passages and memories, chosen, numbered, and bounded by tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

from recollect.app import App
from recollect.db import Tx
from recollect.documents.filters import Filter
from recollect.index.phrases import QueryError
from recollect.memories import reading
from recollect.memories.finding import FoundMemory
from recollect.memories.records import MemoryQuery
from recollect.model import Document, Hit, HitChunk, Tenant
from recollect.search import ask, hybrid, ranking
from recollect.search.ask import Asked
from recollect.search.duplicates import SaidBefore
from recollect.search.hybrid import Query

BYTES_PER_TOKEN = 3
"""Of UTF-8. English has four and more; of what has fewer, the bound is passed by some."""
AROUND = 40
"""Tokens of a source beside its text: number, title, place."""
LIKELY = 0.6
"""The least similarity of a memory that answers, as in `POST /v4/search`."""
LEAST = 0.2
"""The least score of a passage that is given beside likely ones."""
SHOWN_WEAK = 5
"""Passages shown where none is likely to answer."""
MEMORIES = 10
LONGEST_QUERY = 10_000
"""Characters, as in searches."""


@dataclass(frozen=True, slots=True)
class EarlierTurn:
    role: str
    """`user` or `assistant`"""
    content: str


@dataclass(frozen=True, slots=True)
class AnswerQuery:
    """What is asked. `limit`: the most documents; `tokens`: the most that all sources have, as
    estimated; `profile_of`: the tag whose profile the model is given; `as_of`: documents as they
    were, and only with neither memories nor a profile, of which nothing tells how they were."""

    text: str
    turns: Sequence[EarlierTurn] = ()
    tags: Sequence[str] = ()
    filter: Filter | None = None
    filepath: str | None = None
    limit: int = 10
    tokens: int = 6_000
    rerank: bool = False
    with_memories: bool = True
    profile_of: str | None = None
    as_of: datetime | None = None


@dataclass(frozen=True, slots=True)
class AnswerSource:
    """One passage of a document, or one memory. `number` counts from 1: the model cites it."""

    number: int
    text: str
    document: Document | None = None
    """None: it is a memory"""
    memory_id: str | None = None
    position: int = 0
    start: int = 0
    end: int = 0
    place: Mapping[str, Any] = field(default_factory=dict[str, Any])
    score: float | None = None
    is_relevant: bool = False


@dataclass(frozen=True, slots=True)
class AnswerEvidence:
    """`is_relevant`: whether anything is likely to answer; if not, `sources` are the best of what
    was found, for people to see and not for the model."""

    query: AnswerQuery
    sources: Sequence[AnswerSource]
    is_relevant: bool
    warnings: Sequence[str]


def gather(app: App, tenant: Tenant, query: AnswerQuery) -> AnswerEvidence:
    """Search, choose and number. Not to be called in a transaction; raises as `ask.ask`."""
    warnings: dict[str, None] = {}
    best: dict[tuple[str, int], tuple[float, Document, HitChunk]] = {}
    memories: dict[str, AnswerSource] = {}
    for text in _texts(query):
        try:
            asked = ask.begin(app, text, rerank=query.rerank, rewrite=False)
        except QueryError:
            if text == query.text:
                raise
            continue  # what was said before need not be a query
        wanted = Query(
            text=text,
            vector=None,
            tags=query.tags,
            filter=query.filter,
            filepath=query.filepath,
            limit=query.limit,
            as_of=query.as_of,
        )
        hits, known = app.db.read(partial(_found, asked, tenant, wanted, query))
        for one in known:
            memories.setdefault(
                one.memory.id,
                AnswerSource(
                    0,
                    one.memory.content,
                    memory_id=one.memory.id,
                    score=one.similarity,
                    is_relevant=True,
                ),
            )
        _keep(best, asked.reranked(hits))
        warnings.update(dict.fromkeys(asked.warnings))
    ranked = sorted(best.values(), key=lambda one: -one[0])
    found = [(document, chunk) for _, document, chunk in ranked]
    if not memories and not any(chunk.is_relevant for _, chunk in found):
        shown = _fitting(_distinct(found), query.tokens)[:SHOWN_WEAK]
        return AnswerEvidence(query, _numbered(shown), False, list(warnings))
    if query.profile_of is not None:
        named = query.profile_of
        profile = app.db.read(lambda tx: reading.profile(tx, tenant, named, query.filter, ()))
        for entry in (*profile.static, *profile.dynamic):
            memories.setdefault(entry.id, AnswerSource(0, entry.text, memory_id=entry.id))
    first = list(dict.fromkeys(document.id for document, _ in found))[: query.limit]
    chosen = [
        (document, chunk)
        for document, chunk in found
        if document.id in first and (chunk.is_relevant or chunk.score >= LEAST)
    ]
    # Memories are short, and were chosen for the question: they go first.
    all = [*memories.values(), *_distinct(chosen)]
    return AnswerEvidence(query, _numbered(_fitting(all, query.tokens)), True, list(warnings))


def _texts(query: AnswerQuery) -> list[str]:
    """What is searched for: the question; and where there was one before, without which one such
    as "And in May?" means nothing, both together and that one."""
    before = [turn.content for turn in query.turns if turn.role == "user"][-1:]
    return [query.text, *(f"{one}\n{query.text}"[:LONGEST_QUERY] for one in before), *before]


def _found(
    asked: Asked, tenant: Tenant, wanted: Query, query: AnswerQuery, tx: Tx
) -> tuple[list[Hit], list[FoundMemory]]:
    """Passages, and the memories that likely belong to the answer."""
    hits = asked.passages(tx, tenant, wanted)
    if not query.with_memories:
        return hits, []
    narrowed = MemoryQuery(
        tags=query.tags, filter=query.filter, filepath=query.filepath, limit=MEMORIES
    )
    return hits, asked.memories(tx, tenant, narrowed, LIKELY)


def _keep(
    best: dict[tuple[str, int], tuple[float, Document, HitChunk]], hits: Sequence[Hit]
) -> None:
    """Each passage with its score as that would fall with its place, which compares over several
    searches. Of a text that changed since the last of them, nothing stays."""
    texts = {hit.document.id: hit.document.indexed_revision for hit in hits}
    for place, (_, document, _) in list(best.items()):
        if texts.get(document.id, document.indexed_revision) != document.indexed_revision:
            del best[place]
    ranked = hybrid.passages(hits)
    falling = ranking.falling([chunk.score for _, chunk in ranked])
    for score, (document, chunk) in zip(falling, ranked, strict=True):
        place = (document.id, chunk.position)
        if place not in best or score > best[place][0]:
            best[place] = (score, document, chunk)


def _distinct(found: Sequence[tuple[Document, HitChunk]]) -> list[AnswerSource]:
    """Without passages that say what a better one says."""
    said = SaidBefore()
    sources: list[AnswerSource] = []
    for document, chunk in found:
        if said.by(chunk.text) is not None:
            continue
        said.add(chunk.text)
        sources.append(
            AnswerSource(
                0,
                chunk.text,
                document,
                position=chunk.position,
                start=chunk.start,
                end=chunk.end,
                place=chunk.place,
                score=chunk.score,
                is_relevant=chunk.is_relevant,
            )
        )
    return sources


def tokens(text: str) -> int:
    """An estimate that needs no model's own vocabulary."""
    return len(text.encode(errors="replace")) // BYTES_PER_TOKEN + 1


def _fitting(sources: Sequence[AnswerSource], most: int) -> list[AnswerSource]:
    """The best first, as many as there is room for; of a first one that is too long, its
    beginning."""
    fits: list[AnswerSource] = []
    left = most
    for one in sources:
        size = tokens(one.text) + AROUND
        if size > left and not fits:
            room = max(0, left - AROUND) * BYTES_PER_TOKEN
            text = one.text.encode(errors="replace")[:room].decode(errors="ignore")
            one = replace(one, text=text, end=min(one.end, one.start + len(text)))
            size = left
        if size <= left:
            fits.append(one)
            left -= size
    return fits


def _numbered(sources: Sequence[AnswerSource]) -> list[AnswerSource]:
    """Documents in the order of their best passage, the passages of each in the order of its text;
    memories first."""
    documents = list(dict.fromkeys(one.document.id if one.document else "" for one in sources))
    order = {id: place for place, id in enumerate(documents)}

    def place(one: AnswerSource) -> tuple[int, int]:
        return order[one.document.id if one.document else ""], one.start

    return [replace(one, number=number) for number, one in enumerate(sorted(sources, key=place), 1)]
