"""The page Ask: a question, its answer with the passages that it rests on."""

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
from recollect.search import answer
from recollect.search.answer import Answered, AskedFor, GivenSource, GivenSources

LONGEST_QUESTION = 10_000
"""characters"""
BODY = 64_000
"""bytes"""

rooms = APIRouter(route_class=SignedInPage, include_in_schema=False)


@dataclass(frozen=True, slots=True)
class ShownSource:
    """A source as the page shows it; `place` leads to the passage, if it is one."""

    source: GivenSource
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
        return await run_in_threadpool(_answered, request, app, tenant, q, tag)


def _answered(request: Request, app: App, tenant: Tenant, q: str, tag: str) -> Response:
    typed: dict[str, object] = {"q": q, "tag": tag}
    try:
        if not q.strip():
            raise BadRequestError("question: must not be empty")
        if len(q) > LONGEST_QUESTION:
            raise BadRequestError(f"question: at most {LONGEST_QUESTION:,} characters")
        one = tag.strip() or None
        named = tags.asked(tenant, one, None, default=False, prefixes=True, field="tag")
        asked_for = AskedFor(text=q, tags=named)
        found = answer.find(app, tenant, asked_for)
    except RequestError as error:
        return _page(request, app, tenant, {**typed, "error": error}, error.status)
    done = answer.answer(app.llm, asked_for, found)
    values = {**typed, "done": done, "evidence": _evidence(found, done, q)}
    return _page(request, app, tenant, {**values, "warnings": found.warnings})


def _evidence(found: GivenSources, done: Answered, q: str) -> list[ShownSource]:
    """What is cited comes first, by its number."""
    cited = {number for sentence in done.sentences for number in sentence.sources}
    shown = [
        ShownSource(
            source,
            None
            if source.hit is None or source.chunk is None
            else place(source.hit.document.id, q, source.chunk.position),
            source.number in cited,
        )
        for source in found.sources
    ]
    return sorted(shown, key=lambda one: (not one.is_cited, one.source.number))


def _page(
    request: Request, app: App, tenant: Tenant, values: dict[str, object], status: int = 200
) -> Response:
    with app.db.begin() as tx:
        known = known_tags(tx, tenant)
    shown: dict[str, object] = {"done": None, "error": None, "evidence": [], "warnings": []}
    shown |= {"known": known, "own_tags": tenant.tags, "has_model": app.llm is not None}
    return page(request, "ask.html", {**shown, **values}, status)
