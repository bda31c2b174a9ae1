"""The page Ask: a question, its answer with the passages that it rests on.

The answer is part of the page's HTML, sent sentence by sentence: browsers show what has come, with
and without JavaScript.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Form, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from markupsafe import Markup

from recollect.app import App
from recollect.console import _rendering, _show
from recollect.console._reading import place
from recollect.console._room import (
    AsksOthers,
    CurrentApp,
    Reader,
    SignedInPage,
    Text,
    app_of,
    known_tags,
    page,
    part,
)
from recollect.errors import BadRequestError, RequestError
from recollect.model import Tenant
from recollect.orgs import tags
from recollect.search.answers.citations import Sentence
from recollect.search.answers.sources import AnswerEvidence, AnswerQuery, AnswerSource, gather
from recollect.search.answers.telling import ALIVE, AnswerEnd, tell_alive

LONGEST_QUESTION = 10_000
"""characters"""
PATIENCE = 3 * ALIVE
"""Seconds of silence after which the page says that the connection broke."""
HERE = "<!-- here -->"
"""Where the answer comes in the page: no text of anybody can hold it, since those are escaped."""

rooms = APIRouter(route_class=SignedInPage, include_in_schema=False)


@dataclass(frozen=True, slots=True)
class ShownSource:
    """A source as the page shows it; `place` leads to the passage, if it is one."""

    source: AnswerSource
    drawn: Markup
    place: str | None
    is_cited: bool


@rooms.get("/console/ask")
def form(
    request: Request, tenant: Reader, app: CurrentApp, q: Text = "", tag: Text = ""
) -> Response:
    return _page(request, app, tenant, {"q": q, "tag": tag})


@rooms.post("/console/ask")
async def ask(
    request: Request,
    tenant: Reader,
    app: CurrentApp,
    _: AsksOthers,
    q: Annotated[Text, Form()] = "",
    tag: Annotated[Text, Form()] = "",
) -> Response:
    """The page as far as it is known, then each sentence as the model ends it, then the rest."""
    typed = {"q": q, "tag": tag}
    try:
        query = _query(app, tenant, q, tag)
        found = await run_in_threadpool(gather, app, tenant, query)
    except RequestError as error:
        shown = {**typed, "error": error}
        return await run_in_threadpool(_page, request, app, tenant, shown, error.status)
    shown = {**typed, "found": found, "warnings": found.warnings, "patience": PATIENCE}
    around = await run_in_threadpool(_page, request, app, tenant, shown)
    begun, ended = bytes(around.body).decode().split(HERE)
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    told = _told(request, tenant, found, query.text, begun, ended)
    return StreamingResponse(told, media_type="text/html", headers=headers)


async def _told(
    request: Request, tenant: Tenant, found: AnswerEvidence, q: str, begun: str, ended: str
) -> AsyncGenerator[str]:
    """A browser that leaves, or stops, ends the model's work."""
    yield begun
    said: list[Sentence] = []
    async with aclosing(tell_alive(app_of(request).llm, found, ALIVE)) as told:
        async for one in told:
            if one is None:
                yield "<!-- alive -->"
            elif isinstance(one, AnswerEnd):
                dropped = sum(len(sentence.dropped) for sentence in said)
                evidence = _evidence(tenant, found, said, q)
                yield part(request, "_answer.html", "end", one, dropped, evidence) + ended
            else:
                said.append(one)
                yield part(request, "_answer.html", "sentence", one)


def _query(app: App, tenant: Tenant, q: str, tag: str) -> AnswerQuery:
    """Raises RequestError."""
    if not q.strip():
        raise BadRequestError("question: must not be empty")
    if len(q) > LONGEST_QUESTION:
        raise BadRequestError(f"question: at most {LONGEST_QUESTION:,} characters")
    one = tag.strip() or None
    named = tags.asked(tenant, one, None, default=False, prefixes=True, field="tag")
    return AnswerQuery(q, tags=named, tokens=app.config.answer_tokens)


def _evidence(
    tenant: Tenant, found: AnswerEvidence, said: Sequence[Sentence], q: str
) -> list[ShownSource]:
    """What is cited comes first, by its number."""
    cited = {number for sentence in said for number in sentence.cites}
    mark = _show.marker(tenant.id, q)
    shown = [
        ShownSource(
            source,
            _rendering.prose(source.text, mark)
            if source.document is None
            else _rendering.passage(source.text, _rendering.look(source.document, None), mark),
            None if source.document is None else place(source.document.id, q, source.position),
            source.number in cited,
        )
        for source in found.sources
    ]
    return sorted(shown, key=lambda one: (not one.is_cited, one.source.number))


def _page(
    request: Request, app: App, tenant: Tenant, values: Mapping[str, object], status: int = 200
) -> Response:
    with app.db.begin() as tx:
        known = known_tags(tx, tenant)
    shown: dict[str, object] = {"found": None, "error": None, "warnings": []}
    shown |= {"known": known, "own_tags": tenant.tags, "has_model": app.llm is not None}
    return page(request, "ask.html", {**shown, **values}, status)
