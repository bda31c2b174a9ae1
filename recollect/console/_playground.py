"""The playground: a search with all that stands behind its order."""

import dataclasses
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from recollect.console import (
    _room,
    _show,
)
from recollect.console._reading import place
from recollect.console._room import (
    CurrentApp,
    Reader,
    SignedInPage,
    Text,
    known_tags,
    page,
)
from recollect.documents.filters import parse as parse_filter
from recollect.errors import (
    BadRequestError,
    RequestError,
)
from recollect.model import (
    Hit,
    HitChunk,
    OrgId,
    Tenant,
)
from recollect.orgs import tags
from recollect.search import hybrid, ranking
from recollect.search.ask import ask

LONGEST_QUERY = 10_000
"""characters"""

rooms = APIRouter(route_class=SignedInPage, include_in_schema=False)


@rooms.get("/console/playground")
def playground(
    request: Request,
    tenant: Reader,
    app: CurrentApp,
    q: Text = "",
    tag: Text = "",
    filters: Text = "",
    limit: int = 10,
    rerank: bool = False,
) -> Response:
    """A search with all that stands behind its order, and the same search as code."""
    with app.db.begin() as tx:
        known = known_tags(tx, tenant)
    typed = {"q": q, "tag": tag, "filters": filters, "limit": limit, "rerank": rerank}
    values: dict[str, object] = {**typed, "hits": None, "error": None, "known": known}
    values["own_tags"] = tenant.tags
    values["can_rerank"] = app.reranker is not None
    if not q.strip():
        return page(request, "playground.html", values)
    try:
        if not 1 <= limit <= 100:
            raise BadRequestError("limit: 1 to 100")
        if len(q) > LONGEST_QUERY:
            raise BadRequestError(f"query: at most {LONGEST_QUERY:,} characters")
        named = _tags(tenant, tag)
        started = time.monotonic()
        query = hybrid.Query(
            text=q,
            vector=None,
            tags=named,
            filter=parse_filter(filters) if filters.strip() else None,
            limit=limit,
        )
        answer = ask(app, tenant, query, rerank=rerank)
    except RequestError as error:
        return page(request, "playground.html", {**values, "error": error}, error.status)
    body: dict[str, object] = {"q": q, "limit": limit}
    if named:
        body["containerTags"] = named
    if filters.strip():
        body["filters"] = json.loads(filters)
    if rerank:
        body["rerank"] = True
    hits = answer.hits
    values |= {
        "hits": _shown(tenant.id, hits, q),
        "widest": max(
            (
                abs(lift)
                for hit in hits
                for chunk in hit.chunks
                for lift in dataclasses.astuple(chunk.parts)
            ),
            default=0,
        )
        or 1,
        "warnings": answer.warnings,
        "weak": None if not hits or _relevant(hits) else ranking.ONLY_WEAK,
        "took": (time.monotonic() - started) * 1000,
        "most": max((chunk.lexical for hit in hits for chunk in hit.chunks), default=0),
        "snippets": _room.code(request, "searchDocuments", body),
    }
    return page(request, "playground.html", values)


def _relevant(hits: Sequence[Hit]) -> bool:
    return any(chunk.is_relevant for hit in hits for chunk in hit.chunks)


def _tags(tenant: Tenant, tag: str) -> list[str]:
    one = tag.strip() or None
    return tags.asked(tenant, one, None, default=False, prefixes=True, field="tag")


PARTS = {
    "Words": "BM25 over the words of the whole passage",
    "Meaning": "Cosine of the vectors",
    "Window": "Words of the query within a few sentences",
    "Pairs": "Neighbouring words of the query next to each other",
}
JUDGE = "What the reranker says, as far as it goes with the order of the search"
TELLING = 0.1
"""A part that lifts or lowers a passage by less is not worth a word."""


@dataclass(frozen=True, slots=True)
class HitPassage:
    """A chunk of a hit, with its words of the query marked and the address of its place."""

    chunk: HitChunk
    pieces: Sequence[_show.Piece]
    place: str

    @property
    def parts(self) -> list[tuple[str, float, str]]:
        """What put it where it stands: name, lift, and what the name means."""
        parts = self.chunk.parts
        judge = [] if self.chunk.reranked is None else [("Reranker", parts.judge, JUDGE)]
        found = zip(
            PARTS.items(), (parts.words, parts.meaning, parts.window, parts.pairs), strict=True
        )
        return [*((name, lift, hint) for (name, hint), lift in found), *judge]

    @property
    def why(self) -> str:
        """A sentence about what lifts it most, and what lowers it."""
        ordered = sorted(self.parts, key=lambda one: one[1], reverse=True)
        up = [name.lower() for name, lift, _ in ordered if lift > TELLING]
        down = [name.lower() for name, lift, _ in reversed(ordered) if lift < -TELLING]
        said = [f"lifted by {' and '.join(up[:2])}"] if up else []
        said += [f"lowered by {' and '.join(down[:2])}"] if down else []
        told = ", ".join(said) or "no hint tells it from the other candidates"
        return f"{told[0].upper()}{told[1:]}. The order is by the sum of these:"


def _shown(org: OrgId, hits: Sequence[Hit], q: str) -> list[tuple[Hit, list[HitPassage]]]:
    mark = _show.marker(org, q)
    return [
        (
            hit,
            [
                HitPassage(chunk, mark(chunk.text), place(hit.document.id, q, chunk.position))
                for chunk in hit.chunks
            ],
        )
        for hit in hits
    ]
