"""Test questions, and runs over them."""

from typing import Annotated, Self

from fastapi import APIRouter, Query, Response
from pydantic import Field

from recollect.api.deps import ApiRoute, BareId, CurrentApp, Reader, Writer, effective_tags
from recollect.api.turns import AsksOthers
from recollect.api.wire import WARNINGS, RequestBody, Text, Timestamp, Wire, example
from recollect.errors import BadRequestError
from recollect.inference.rerank import NEEDS_RERANKER
from recollect.model import Tenant
from recollect.search import evaluation, made_questions
from recollect.search.evaluation import (
    LONGEST_EXPECTED,
    LONGEST_QUESTION,
    MOST_QUESTIONS,
    Expected,
    QuestionResult,
    TestQuestion,
    TestRun,
)

router = APIRouter(tags=["test questions"], route_class=ApiRoute)
OfTag = Annotated[
    str,
    Query(alias="containerTag", description="The tag that is searched.", examples=["team:a"]),
]
NEEDS_LLM = "RECOLLECT_LLM_URL and RECOLLECT_LLM_MODEL name one"
LONGEST_LINES = 4_000_000
"""Characters of an import."""
Share = Annotated[float, Field(ge=0, le=1)]
ExpectedText = Annotated[Text, Field(max_length=LONGEST_EXPECTED)]
AskedQuestion = Annotated[
    Text,
    Field(max_length=LONGEST_QUESTION, description="The question.", examples=["When do we meet?"]),
]


class ExpectedIn(RequestBody):
    model_config = example(question="When do we meet?", document="notes/1")

    question: AskedQuestion
    document: ExpectedText | None = None
    words: ExpectedText | None = None

    def expected(self) -> Expected:
        return Expected(self.question, self.document, self.words)


class NewTestQuestions(RequestBody):
    model_config = example(
        containerTag="team:a", questions=[{"question": "When do we meet?", "document": "notes/1"}]
    )

    container_tag: str
    questions: list[ExpectedIn] = Field(
        min_length=1,
        max_length=MOST_QUESTIONS,
        description="Questions with what should be found: a document, words, or both.",
    )


class TestLines(RequestBody):
    model_config = example(
        containerTag="team:a", lines='{"question": "When do we meet?", "words": "Mondays"}\n'
    )

    container_tag: str
    lines: Text = Field(
        max_length=LONGEST_LINES,
        description="A JSON object a line: `question`, and `document`, `words` or both.",
        examples=['{"question": "When do we meet?", "words": "Mondays"}\n'],
    )


class MadeTestQuestions(RequestBody):
    model_config = example(containerTag="team:a")

    container_tag: str
    limit: int = Field(
        default=made_questions.MOST,
        ge=1,
        le=made_questions.MOST,
        description="How many to make at most, each from a different document.",
    )


class NewTestRun(RequestBody):
    model_config = example(containerTag="team:a")

    container_tag: str
    rerank: bool = False
    rewrite_query: bool = False


class TestQuestionOut(Wire):
    id: str
    container_tag: str
    question: AskedQuestion
    document: ExpectedText | None
    words: ExpectedText | None
    created_at: Timestamp
    updated_at: Timestamp
    warnings: list[str] | None = WARNINGS

    @classmethod
    def of(cls, one: TestQuestion) -> Self:
        return cls(
            id=one.id,
            container_tag=one.tag,
            question=one.expected.question,
            document=one.expected.document,
            words=one.expected.words,
            created_at=one.created_at,
            updated_at=one.updated_at,
        )


class TestQuestionList(Wire):
    questions: list[TestQuestionOut] = Field(description="The questions, the oldest first.")
    warnings: list[str] | None = WARNINGS


class TestQuestionGone(Wire):
    success: bool


class TestRunOut(Wire):
    id: str
    container_tag: str
    rerank: bool
    rewrite_query: bool
    created_at: Timestamp
    finished_at: Timestamp | None = Field(
        description="When all questions were asked; null before.",
        examples=["2026-11-23T09:30:00.000Z"],
    )
    questions: int = Field(description="How many questions the run has.", examples=[50])
    asked: int = Field(description="How many of them were asked.", examples=[20])
    hit_at_1: Share = Field(description="Share of the asked that found it first.", examples=[0.7])
    hit_at_5: Share = Field(description="Share that found it among the first five.", examples=[0.9])
    hit_at_10: Share = Field(
        description="Share that found it among the first ten.", examples=[0.96]
    )
    mrr: Share = Field(description="The mean of 1/rank; 0 for what was not found.", examples=[0.8])
    warnings: list[str] | None = WARNINGS

    @classmethod
    def of(cls, one: TestRun) -> Self:
        return cls(
            id=one.id,
            container_tag=one.tag,
            rerank=one.rerank,
            rewrite_query=one.rewrite,
            created_at=one.created_at,
            finished_at=one.finished_at,
            questions=one.questions,
            asked=one.asked,
            hit_at_1=one.hit_1,
            hit_at_5=one.hit_5,
            hit_at_10=one.hit_10,
            mrr=one.reciprocal,
        )


class TestResultOut(Wire):
    question_id: str = Field(
        description="Id of the test question.", examples=["kP3xYt6Rw9aZ2mQ8sLbN4v"]
    )
    question: AskedQuestion
    asked: bool = Field(description="Whether the run has asked it.", examples=[True])
    rank: int | None = Field(
        description="The place of what was expected, from 1; null: not among the first ten.",
        examples=[1],
    )
    asked_before: bool = Field(description="Whether the run before asked it.", examples=[True])
    rank_before: int | None = Field(description="Its place in the run before.", examples=[3])

    @classmethod
    def of(cls, one: QuestionResult) -> Self:
        return cls(
            question_id=one.question_id,
            question=one.question,
            asked=one.asked,
            rank=one.rank,
            asked_before=one.asked_before,
            rank_before=one.before,
        )


class TestRunDetails(Wire):
    run: TestRunOut = Field(description="The run.")
    run_before: TestRunOut | None = Field(
        description="The last run of the tag that was finished before; null without one."
    )
    results: list[TestResultOut] = Field(description="By question, in the order of the run.")


class TestRunList(Wire):
    runs: list[TestRunOut] = Field(description="The runs, the newest first.")


def _tag(tenant: Tenant, name: str) -> str:
    [tag] = effective_tags(tenant, name, None, default=False)
    return tag


@router.get("/v3/test-questions", summary="List test questions", operation_id="listTestQuestions")
def find(container_tag: OfTag, tenant: Reader, app: CurrentApp) -> TestQuestionList:
    tag = _tag(tenant, container_tag)
    with app.db.begin() as tx:
        found = evaluation.find(tx, tenant, tag)
    return TestQuestionList(questions=[TestQuestionOut.of(one) for one in found])


@router.post("/v3/test-questions", summary="Add test questions", operation_id="addTestQuestions")
def add(body: NewTestQuestions, tenant: Writer, app: CurrentApp) -> TestQuestionList:
    """All of them or none. A tag has at most 1,000."""
    given = [one.expected() for one in body.questions]
    return body.warned(_added(app, tenant, body.container_tag, given))


@router.post(
    "/v3/test-questions/import",
    summary="Import test questions",
    operation_id="importTestQuestions",
)
def bring(body: TestLines, tenant: Writer, app: CurrentApp) -> TestQuestionList:
    """From JSON lines, all or none: an error names the line."""
    given = evaluation.read_lines(body.lines)
    return body.warned(_added(app, tenant, body.container_tag, given))


@router.post(
    "/v3/test-questions/make",
    summary="Make test questions from documents",
    operation_id="makeTestQuestions",
)
def make(
    body: MadeTestQuestions, tenant: Writer, app: CurrentApp, _: AsksOthers
) -> TestQuestionList:
    """From passages by the language model, without one from headings; one for each document."""
    made = made_questions.make(app, tenant, _tag(tenant, body.container_tag), body.limit)
    return body.warned(TestQuestionList(questions=[TestQuestionOut.of(one) for one in made]))


@router.get(
    "/v3/test-questions/export",
    summary="Export test questions",
    operation_id="exportTestQuestions",
    response_class=Response,
    responses={200: {"content": {"application/x-ndjson": {"schema": {"type": "string"}}}}},
)
def export(container_tag: OfTag, tenant: Reader, app: CurrentApp) -> Response:
    """As JSON lines, which the import reads."""
    tag = _tag(tenant, container_tag)
    with app.db.begin() as tx:
        found = evaluation.find(tx, tenant, tag)
    return Response(evaluation.write_lines(found), media_type="application/x-ndjson")


@router.put(
    "/v3/test-questions/{id}", summary="Change a test question", operation_id="updateTestQuestion"
)
def change(id: BareId, body: ExpectedIn, tenant: Writer, app: CurrentApp) -> TestQuestionOut:
    with app.db.begin() as tx:
        changed = evaluation.change(tx, tenant, id, body.expected())
    return body.warned(TestQuestionOut.of(changed))


@router.delete(
    "/v3/test-questions/{id}", summary="Delete a test question", operation_id="deleteTestQuestion"
)
def remove(id: BareId, tenant: Writer, app: CurrentApp) -> TestQuestionGone:
    """With its results in all runs."""
    with app.db.begin() as tx:
        evaluation.remove(tx, tenant, id)
    return TestQuestionGone(success=True)


@router.get("/v3/test-runs", summary="List test runs", operation_id="listTestRuns")
def find_runs(container_tag: OfTag, tenant: Reader, app: CurrentApp) -> TestRunList:
    """The last 20 of the tag."""
    tag = _tag(tenant, container_tag)
    with app.db.begin() as tx:
        return TestRunList(runs=[TestRunOut.of(one) for one in evaluation.runs(tx, tenant, tag)])


@router.post("/v3/test-runs", summary="Start a test run", operation_id="beginTestRun")
def begin(body: NewTestRun, tenant: Writer, app: CurrentApp) -> TestRunOut:
    """Over the questions that the tag has now. `step` asks them."""
    tag = _tag(tenant, body.container_tag)
    if body.rerank and app.reranker is None:
        raise BadRequestError(f"rerank: no reranker is configured ({NEEDS_RERANKER})")
    if body.rewrite_query and app.llm is None:
        raise BadRequestError(f"rewriteQuery: no language model is configured ({NEEDS_LLM})")
    with app.db.begin() as tx:
        begun = evaluation.begin(tx, tenant, tag, rerank=body.rerank, rewrite=body.rewrite_query)
    return body.warned(TestRunOut.of(begun))


@router.post("/v3/test-runs/{id}/step", summary="Continue a test run", operation_id="stepTestRun")
def step(id: BareId, tenant: Writer, app: CurrentApp, _: AsksOthers) -> TestRunOut:
    """Ask the next questions: 20, or as many as ten seconds suffice for. Call it until
    `finishedAt` is there. Where a model gives no answer the run stands still: 503 says why."""
    return TestRunOut.of(evaluation.step(app, tenant, id))


@router.get("/v3/test-runs/{id}", summary="Get a test run", operation_id="getTestRun")
def get_run(id: BareId, tenant: Reader, app: CurrentApp) -> TestRunDetails:
    """With its results by question, beside those of the run before."""
    with app.db.begin() as tx:
        found = evaluation.run(tx, tenant, id)
        before = evaluation.run_before(tx, tenant, found)
        results = evaluation.results(tx, found, before)
    return TestRunDetails(
        run=TestRunOut.of(found),
        run_before=None if before is None else TestRunOut.of(before),
        results=[TestResultOut.of(one) for one in results],
    )


def _added(app: CurrentApp, tenant: Tenant, name: str, given: list[Expected]) -> TestQuestionList:
    tag = _tag(tenant, name)
    with app.db.begin() as tx:
        added = evaluation.add(tx, tenant, tag, given)
    return TestQuestionList(questions=[TestQuestionOut.of(one) for one in added])
