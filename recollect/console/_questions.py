"""Test questions of a tag, and runs over them."""

import time
from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse

from recollect import documents
from recollect.app import App
from recollect.console import _room
from recollect.console._room import (
    AsksOthers,
    CurrentApp,
    PathId,
    Reader,
    SignedInPage,
    Text,
    Writer,
    address,
    page,
)
from recollect.errors import Permanent, RequestError, Transient
from recollect.model import Tenant
from recollect.orgs import tags
from recollect.search import evaluation, made_questions
from recollect.search.evaluation import LONGEST_EXPECTED, LONGEST_QUESTION, Expected, TestRun

QUESTIONS = "/console/tags/questions"
BLANK: Mapping[str, str] = {"question": "", "document": "", "words": ""}
NOTICES = {
    "added": "Added.",
    "removed": "Removed, with what runs found for it.",
    "made": "Made. Look them over: what nobody would ask proves nothing.",
    "none": "There is no document left to make questions from: each has one already, or has no"
    " headings.",
}

rooms = APIRouter(route_class=SignedInPage, include_in_schema=False)


@rooms.get(QUESTIONS)
def listed(
    request: Request, tenant: Reader, app: CurrentApp, name: Text, done: str = ""
) -> Response:
    return _page(request, app, tenant, name, notice=NOTICES.get(done))


@rooms.post(QUESTIONS)
def add(
    request: Request,
    tenant: Writer,
    app: CurrentApp,
    name: Annotated[Text, Form()],
    question: Annotated[Text, Form()] = "",
    document: Annotated[Text, Form()] = "",
    words: Annotated[Text, Form()] = "",
) -> Response:
    typed = {"question": question, "document": document, "words": words}
    wanted = Expected(question.strip(), document.strip() or None, words.strip() or None)
    try:
        with app.db.begin() as tx:
            evaluation.add(tx, tenant, tags.get(tx, tenant, name).tag.name, [wanted])
    except RequestError as error:
        return _page(request, app, tenant, name, typed=typed, error=error)
    return RedirectResponse(address(QUESTIONS, name=name, done="added"), 303)


@rooms.post(QUESTIONS + "/remove")
def remove(
    tenant: Writer,
    app: CurrentApp,
    name: Annotated[Text, Form()],
    id: Annotated[Text, Form()],
) -> Response:
    with app.db.begin() as tx:
        evaluation.remove(tx, tenant, id)
    return RedirectResponse(address(QUESTIONS, name=name, done="removed"), 303)


@rooms.post(QUESTIONS + "/make")
def make(
    request: Request,
    tenant: Writer,
    app: CurrentApp,
    _: AsksOthers,
    name: Annotated[Text, Form()],
) -> Response:
    with app.db.begin() as tx:
        tag = tags.get(tx, tenant, name).tag.name
    try:
        made = made_questions.make(app, tenant, tag, made_questions.MOST)
    except (RequestError, Transient, Permanent) as error:
        return _page(request, app, tenant, name, error=error)
    done = "made" if made else "none"
    return RedirectResponse(address(QUESTIONS, name=name, done=done), 303)


@rooms.post(QUESTIONS + "/run")
def begin(
    request: Request,
    tenant: Writer,
    app: CurrentApp,
    _: AsksOthers,
    name: Annotated[Text, Form()],
    rerank: Annotated[str, Form()] = "",
) -> Response:
    try:
        with app.db.begin() as tx:
            tag = tags.get(tx, tenant, name).tag.name
            begun = evaluation.begin(tx, tenant, tag, rerank=rerank == "on", rewrite=False)
    except RequestError as error:
        return _page(request, app, tenant, name, error=error)
    _go_on(app, tenant, begun.id)
    return RedirectResponse(f"{QUESTIONS}/runs/{begun.id}", 303)


@rooms.get(QUESTIONS + "/runs/{id}")
def look(request: Request, id: PathId, tenant: Reader, app: CurrentApp) -> Response:
    with app.db.begin() as tx:
        one = evaluation.run(tx, tenant, id)
        before = evaluation.run_before(tx, tenant, one)
        results = evaluation.results(tx, one, before)
    values = {
        "run": one,
        "figures": list(zip(*map(_figures, (one, before or one)), strict=True)),
        "before": before,
        "results": results,
    }
    return page(request, "test_run.html", values)


@rooms.post(QUESTIONS + "/runs/{id}")
def go_on(id: PathId, tenant: Writer, app: CurrentApp, _: AsksOthers) -> Response:
    """Ask what is left, for some seconds."""
    _go_on(app, tenant, id)
    return RedirectResponse(f"{QUESTIONS}/runs/{id}", 303)


def _go_on(app: App, tenant: Tenant, id: str) -> None:
    end = time.monotonic() + evaluation.STRETCH
    while evaluation.step(app, tenant, id).finished_at is None and time.monotonic() < end:
        pass


def _page(
    request: Request,
    app: App,
    tenant: Tenant,
    name: str,
    *,
    typed: Mapping[str, str] = BLANK,
    error: RequestError | Transient | Permanent | None = None,
    notice: str | None = None,
) -> Response:
    """Raises NotFoundError."""
    with app.db.begin() as tx:
        tag = tags.get(tx, tenant, name).tag.name
        questions = evaluation.find(tx, tenant, tag)
        runs = evaluation.runs(tx, tenant, tag)
        wanted = [one.expected.document for one in questions if one.expected.document]
        expected = documents.get_named(tx, tenant, wanted, inside=tag)
    refusal = error if isinstance(error, RequestError) else None
    values = {
        "name": tag,
        "questions": questions,
        "expected": expected,
        "runs": [(one, _figures(one)) for one in runs],
        "has_model": app.llm is not None,
        "has_reranker": app.reranker is not None,
        "typed": typed,
        **(_room.fault(refusal) if refusal else {"error": error and str(error), "wrong": None}),
        "notice": notice,
        "most_question": LONGEST_QUESTION,
        "most_expected": LONGEST_EXPECTED,
    }
    status = refusal.status if refusal else 200 if error is None else 503
    return page(request, "test_questions.html", values, status)


def _figures(run: TestRun) -> list[tuple[str, str]]:
    figures = {
        "hit@1": run.hit_1,
        "hit@5": run.hit_5,
        "hit@10": run.hit_10,
        "MRR": run.reciprocal,
    }
    return [(name, f"{value:.3f}") for name, value in figures.items()]
