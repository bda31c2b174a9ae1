"""A question as the API, the console, MCP and the canary ask it.

What was typed is read, worded in other ways if that is asked for, made into vectors, searched for,
and the first passages are judged by a reranker. An engine that fails costs its part of the answer,
and the answer says so.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from recollect import db, documents
from recollect.app import App
from recollect.db import Tx
from recollect.errors import AmbiguousError, Permanent, Transient
from recollect.index.phrases import Reading, read
from recollect.inference.rerank import NEEDS_RERANKER
from recollect.memories import finding
from recollect.memories.records import MemoryId, MemoryQuery
from recollect.model import DocumentId, Hit, Tenant
from recollect.search import hybrid, query_vectors, ranking
from recollect.search.duplicates import fold
from recollect.search.hybrid import Query
from recollect.search.query_vectors import Vector
from recollect.search.rewrite import variants

AS_FOUND = "the order is that of the search itself"
AS_ASKED = "the query was searched as it is"
NO_RERANKER = f"rerank: no reranker is configured ({NEEDS_RERANKER}); {AS_FOUND}"
NO_REWRITER = (
    "rewriteQuery: no language model is configured (RECOLLECT_LLM_URL and RECOLLECT_LLM_MODEL name"
    f" one); {AS_ASKED}"
)

MOST_FOR_FOLDING = 100
"""Documents looked for so that enough are left when what says the same is folded."""

Answering = TypeVar("Answering")
"""a memory, or a passage"""
Wording = tuple[str, Vector | None]
"""a query, or another one that means the same, with its vector"""


@dataclass(frozen=True, slots=True)
class Answer:
    """`warnings`: what was asked for and not done, and why."""

    hits: Sequence[Hit]
    warnings: Sequence[str]


def ask(
    app: App,
    tenant: Tenant,
    query: Query,
    *,
    inside: str | None = None,
    rerank: bool = False,
    rewrite: bool = False,
) -> Answer:
    """The documents that answer best. `query.text` is as typed; its vector and what `phrases` reads
    are found here. `inside`: only the document of that id or customId; of a customId that several
    have, the one in the tag of the query.

    Not to be called in a transaction. Raises BadRequestError for a text that asks for nothing,
    NotFoundError for no such document, AmbiguousError for several of that customId in the tags
    asked for, and as `query_vectors.vectors`.
    """
    asked = begin(app, query.text, rerank=rerank, rewrite=rewrite)

    def found(tx: Tx) -> list[Hit]:
        within = None if inside is None else _meant(tx, tenant, inside, query)
        return asked.passages(tx, tenant, query, within)

    hits = asked.ordered(app.db.read(found), query)
    if query.with_neighbours:

        def completed(tx: Tx) -> list[Hit]:
            db.look_back(tx, tenant.id, query.as_of)
            return hybrid.with_neighbours(tx, hits, in_the_past=query.as_of is not None)

        return Answer(app.db.read(completed), asked.warnings)
    return Answer(hits, asked.warnings)


def begin(app: App, text: str, *, rerank: bool, rewrite: bool) -> "Asked":
    """Read and word the query; asks models, and no database. As `ask`."""
    reading, warnings = read(text), list[str]()
    if rerank and app.reranker is None:
        warnings.append(NO_RERANKER)
    texts = [reading.text]
    if rewrite and app.llm is None:
        warnings.append(NO_REWRITER)
    elif rewrite and app.llm is not None:
        try:
            texts += variants(app.llm, reading.text)
        except (Transient, Permanent) as error:
            told = query_vectors.left_out("rewriteQuery", "the model", error)
            warnings.append(f"{told}; {AS_ASKED}")
    vectors = query_vectors.vectors(app, texts, warnings)
    judged = app.config.rerank_first if rerank and app.reranker is not None else 0
    return Asked(app, reading, list(zip(texts, vectors, strict=True)), judged, warnings)


@dataclass(frozen=True, slots=True)
class Asked:
    """A question that was read and worded, the query itself first. The first `judged` passages are
    for the reranker."""

    app: App
    reading: Reading
    worded: Sequence[Wording]
    judged: int
    warnings: list[str] = field(default_factory=list[str])

    def passages(
        self, tx: Tx, tenant: Tenant, query: Query, inside: DocumentId | None = None
    ) -> list[Hit]:
        """What answers any of the wordings, at least as many documents as are to be judged."""
        [text, vector], *others = self.worded
        query = replace(
            query,
            text=text,
            vector=vector,
            phrases=self.reading.phrases,
            excluded=self.reading.excluded,
            limit=max(_room(query), self.judged),
            with_neighbours=False,
        )
        if not others:
            return hybrid.search(tx, tenant, query, inside=inside)
        lowest = replace(query, threshold=0.0, document_threshold=0.0)
        found = [
            hybrid.search(tx, tenant, replace(lowest, text=text, vector=vector), inside=inside)
            for text, vector in self.worded
        ]
        return hybrid.fuse(found, query)

    def memories(
        self, tx: Tx, tenant: Tenant, query: MemoryQuery, threshold: float
    ) -> list[finding.FoundMemory]:
        """What answers any of the wordings, each as likely as with the likest."""
        query = replace(
            query,
            phrases=self.reading.phrases,
            excluded=self.reading.excluded,
            limit=max(query.limit, self.judged),
        )
        best: dict[MemoryId, finding.FoundMemory] = {}
        for text, vector in self.worded:
            for one in finding.search(tx, tenant, text, vector, query, threshold=threshold):
                before = best.get(one.memory.id)
                if before is None or one.similarity > before.similarity:
                    best[one.memory.id] = one
        likest = sorted(best.values(), key=lambda one: one.similarity, reverse=True)
        return likest[: query.limit]

    def ordered(self, hits: Sequence[Hit], query: Query) -> list[Hit]:
        """As many hits as the query asks for, in the order that search and reranker give together,
        with their best passages; those that say the same are folded if it asks for that."""
        ranked = self.reranked(hits)
        folded = fold(ranked) if query.fold else ranked
        return hybrid.shortened(folded[: query.limit], query.limit)

    def reranked(self, hits: Sequence[Hit]) -> list[Hit]:
        """Hits in the order that search and reranker give together."""
        first = hybrid.passages(hits)[: self.judged] if self.judged else []
        scores = self.scores([chunk.text for _, chunk in first])
        if scores is None:
            return list(hits)
        lifts = ranking.lifts([chunk.parts.order for _, chunk in first], scores)
        places = [(document.id, chunk.position) for document, chunk in first]
        return hybrid.rerank(hits, dict(zip(places, zip(scores, lifts, strict=True), strict=True)))

    def judged_first(
        self,
        likest: Sequence[Answering],
        text: Callable[[Answering], str],
        similarity: Callable[[Answering], float],
    ) -> list[tuple[Answering, float | None]]:
        """The first ones as search and reranker put them together, then the others; each with what
        the reranker makes of it. `likest` come in the order of their similarity."""
        first = likest[: self.judged]
        scores = self.scores([text(one) for one in first])
        if scores is None:
            return [(one, None) for one in likest]
        lifts = ranking.lifts([similarity(one) for one in first], scores)
        judged = sorted(
            zip(first, scores, lifts, strict=True),
            key=lambda one: similarity(one[0]) + one[2],
            reverse=True,
        )
        rest = likest[len(first) :]
        return [*((one, score) for one, score, _ in judged), *((one, None) for one in rest)]

    def scores(self, passages: Sequence[str]) -> Sequence[float] | None:
        """What the reranker makes of each; None where it is not asked, or fails."""
        if self.app.reranker is None or not passages or not self.judged:
            return None
        try:
            return self.app.reranker.score(self.reading.text, passages)
        except (Transient, Permanent) as error:
            told = query_vectors.left_out("rerank", "the reranker", error)
            self.warnings.append(f"{told}; {AS_FOUND}")
            return None


def _meant(tx: Tx, tenant: Tenant, id: str, query: Query) -> DocumentId:
    """The document of an id, or of a customId: of several that have it, the one in the tags.

    Raises NotFoundError, AmbiguousError.
    """
    db.look_back(tx, tenant.id, query.as_of)
    try:
        return documents.get(tx, tenant, id).id
    except AmbiguousError:
        whole = [tag for tag in query.tags if not tag.endswith(documents.BELOW)]
        if not whole:
            raise
        return documents.get(tx, replace(tenant, tags=whole), id).id


def _room(query: Query) -> int:
    """Documents to look for: folding leaves some out."""
    return min(2 * query.limit, max(query.limit, MOST_FOR_FOLDING)) if query.fold else query.limit
