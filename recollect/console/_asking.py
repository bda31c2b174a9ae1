"""The page Ask: a question, its answer with the passages that it rests on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Form, Request, Response
from fastapi.concurrency import run_in_threadpool

from recollect.app import App
from recollect.console._reading import place
from recollect.console._room import CurrentApp, Reader, SignedInPage, Text, known_tags, page
from recollect.errors import BadRequestError, RequestError
from recollect.model import Tenant
from recollect.orgs import tags
from recollect.search.answers.sources import AnswerEvidence, AnswerQuery, AnswerSource, gather
from recollect.search.answers.telling import Answered, answer

LONGEST_QUESTION = 10_000
"""characters"""
BODY = 64_000
"""bytes"""

rooms = APIRouter(route_class=SignedInPage, include_in_schema=False)


@dataclass(frozen=True, slots=True)
class ShownSource:
    """A source as the page shows it; `place` leads to the passage, if it is one."""

    source: AnswerSource
    place: str | None
    is_cited: bool


@rooms.get("/console/ask")
def form(
    request: Request, tenant: Reader, app: CurrentApp, q: Text = "", tag: Text = ""
) -> Response:
    return _page(request, app, tenant, {"q": q, "tag": tag})


@rooms.post("/console/ask", max_body_size=BODY)
async def ask(
    request: Request,
    tenant: Reader,
    app: CurrentApp,
    q: Annotated[Text, Form()] = "",
    tag: Annotated[Text, Form()] = "",
) -> Response:
    # The places of those that wait for a model, which the API counts.
    async with request.app.state.asking.place(tenant.id, tenant.key or "none"):
        return await _answered(request, app, tenant, {"q": q, "tag": tag})


async def _answered(
    request: Request, app: App, tenant: Tenant, typed: Mapping[str, str]
) -> Response:
    try:
        query = _query(app, tenant, typed["q"], typed["tag"])
        found = await run_in_threadpool(gather, app, tenant, query)
    except RequestError as error:
        shown = {**typed, "error": error}
        return await run_in_threadpool(_page, request, app, tenant, shown, error.status)
    done = await answer(app.llm, found)
    evidence = _evidence(found, done, query.text)
    shown = {**typed, "done": done, "evidence": evidence, "warnings": found.warnings}
    return await run_in_threadpool(_page, request, app, tenant, shown)


def _query(app: App, tenant: Tenant, q: str, tag: str) -> AnswerQuery:
    """Raises RequestError."""
    if not q.strip():
        raise BadRequestError("question: must not be empty")
    if len(q) > LONGEST_QUESTION:
        raise BadRequestError(f"question: at most {LONGEST_QUESTION:,} characters")
    one = tag.strip() or None
    named = tags.asked(tenant, one, None, default=False, prefixes=True, field="tag")
    return AnswerQuery(q, tags=named, tokens=app.config.answer_tokens)


def _evidence(found: AnswerEvidence, done: Answered, q: str) -> list[ShownSource]:
    """What is cited comes first, by its number."""
    cited = {number for sentence in done.sentences for number in sentence.cites}
    shown = [
        ShownSource(
            source,
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
    shown: dict[str, object] = {"done": None, "error": None, "evidence": [], "warnings": []}
    shown |= {"known": known, "own_tags": tenant.tags, "has_model": app.llm is not None}
    return page(request, "ask.html", {**shown, **values}, status)
