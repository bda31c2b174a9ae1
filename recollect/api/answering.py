"""Answers with their evidence, in one piece or as a stream."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from pydantic import AfterValidator, BaseModel, Field

from recollect.api.deps import CurrentApp, Reader, effective_tags
from recollect.api.memory_schemas import Question
from recollect.api.schemas import (
    PLACE,
    WARNINGS,
    FiltersIn,
    Label,
    RequestBody,
    TagsIn,
    Text,
    Wire,
    absent,
    example,
    not_blank,
)
from recollect.api.turns import AsksOthers, own_turn
from recollect.documents.filters import parse as parse_filter
from recollect.errors import BadRequestError
from recollect.search import answer
from recollect.search.answer import (
    Answered,
    AnswerState,
    AskedFor,
    GivenSource,
    GivenSources,
    Sentence,
    Turn,
)

router = APIRouter(tags=["search"])
ALIVE = 15.0
"""Seconds after which a stream that waits for the model says that it is alive."""
MOST_TURNS = 50


class AnswerTurn(RequestBody):
    role: Literal["user", "assistant"]
    content: Annotated[Text, Field(max_length=10_000), AfterValidator(not_blank)]


class AnswerRequest(RequestBody):
    model_config = example(q="When do we meet?", containerTags=["team:a"])

    q: Question
    container_tag: str | None = None
    container_tags: TagsIn | None = None
    filters: FiltersIn = None
    filepath: Label | None = None
    turns: list[AnswerTurn] = Field(
        [],
        max_length=MOST_TURNS,
        description="What was said before, oldest first.",
        examples=[[{"role": "user", "content": "Who leads the team?"}]],
    )
    limit: int = Field(default=10, ge=1, le=30, description="The most documents to answer from.")
    rerank: bool = False
    memories: bool = Field(default=True, description="Answer from memories as well.")
    profile: bool = Field(
        default=False, description="Give the model the profile of the tag; needs exactly one tag."
    )
    stream: bool = Field(
        default=False,
        description="Answer as server-sent events: `sources` at once, each `sentence`, then `end`.",
    )


class CitedSentenceOut(Wire):
    text: str = Field(description="The sentence.", examples=["The team meets on Mondays at nine."])
    sources: list[int] = Field(
        description="Numbers of the sources that it rests on; each was given to the model.",
        examples=[[1]],
    )
    unsupported: bool = Field(
        description="Whether it states something and names no source: do not rely on it."
    )

    @classmethod
    def of(cls, sentence: Sentence) -> Self:
        return cls(
            text=sentence.text, sources=list(sentence.sources), unsupported=sentence.unsupported
        )


class AnswerSource(Wire):
    """A passage of a document, or a memory."""

    number: int = Field(description="By which sentences name it, from 1.", examples=[1])
    content: str
    score: float | None = Field(
        description="How likely it answers the question, 0 to 1; null for the profile.",
        examples=[0.87],
    )
    memory_id: str | None = Field(
        default=None,
        description="Of a memory; absent for a passage.",
        examples=["kP3xYt6Rw9aZ2mQ8sLbN4v"],
        exclude_if=lambda value: value is None,
    )
    document_id: str | None = absent()
    custom_id: str | None = absent()
    title: str | None = absent()
    url: str | None = absent()
    filepath: str | None = absent()
    position: int | None = absent()
    start: int | None = absent()
    end: int | None = absent()
    place: dict[str, Any] | None = PLACE

    @classmethod
    def of(cls, source: GivenSource) -> Self:
        score = None if source.score is None else round(source.score, 6)
        if source.hit is None or source.chunk is None:
            return cls(
                number=source.number,
                content=source.text,
                score=score,
                memory_id=source.memory,
                place=None,
            )
        document, chunk = source.hit.document, source.chunk
        return cls(
            number=source.number,
            content=source.text,
            score=score,
            document_id=document.id,
            custom_id=document.custom_id,
            title=document.title,
            url=document.url,
            filepath=document.filepath,
            position=chunk.position,
            start=chunk.start,
            end=chunk.end,
            place=dict(chunk.place),
        )


class AnswerEnd(Wire):
    state: AnswerState = Field(
        description="`answered`; `nothing_found`: nothing relevant is there, and no model was"
        " asked; `not_answered`: the model read the sources, and they do not answer; `no_model`;"
        " `model_failed`."
    )
    dropped_citations: int = Field(
        description="Citations of the model that named nothing that it was given.", examples=[0]
    )
    reason: str | None = Field(
        description="Why there is no answer, and what to do.", examples=["the model is busy"]
    )
    timing: float


class AnswerOut(AnswerEnd):
    answer: str | None = Field(
        description="All sentences, each with the numbers of its sources; null without any.",
        examples=["The team meets on Mondays at nine. [1]"],
    )
    sentences: list[CitedSentenceOut] = Field(description="The answer, sentence by sentence.")
    sources: list[AnswerSource] = Field(description="What was found, also when nothing answers.")
    warnings: list[str] | None = WARNINGS


@router.post(
    "/v4/answer",
    summary="Answer a question",
    operation_id="answerQuestion",
    response_model=AnswerOut,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def answer_question(
    request: Request, body: AnswerRequest, tenant: Reader, app: CurrentApp, _: AsksOthers
) -> Response:
    """From what a search finds, by the language model of `RECOLLECT_LLM_URL`.

    Every citation is checked: what names nothing that was found is dropped and counted. Where
    nothing relevant is found no model is asked; without a model, or when it fails, the sources
    are there all the same.
    """
    began = time.monotonic()
    named = effective_tags(
        tenant, body.container_tag, body.container_tags, default=False, prefixes=True
    )
    if body.profile and len(named) != 1:
        raise BadRequestError("profile: name exactly one container tag")
    asked_for = AskedFor(
        text=body.q,
        tags=named,
        filter=None if body.filters is None else parse_filter(body.filters),
        filepath=body.filepath,
        turns=[Turn(turn.role, turn.content) for turn in body.turns],
        limit=body.limit,
        rerank=body.rerank,
        memories=body.memories,
        profile=named[0] if body.profile else None,
    )
    async with own_turn(request):
        found = await run_in_threadpool(answer.find, app, tenant, asked_for)
    asking = run_in_threadpool(answer.answer, app.llm, asked_for, found)
    warnings = [*(body.passed_over() or ()), *found.warnings]
    if body.stream:
        told = _told(asyncio.ensure_future(asking), found, warnings, began)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(told, media_type="text/event-stream", headers=headers)
    answered = await asking
    shown = AnswerOut(
        **_end(answered, began).model_dump(),
        answer=_written(answered),
        sentences=[CitedSentenceOut.of(one) for one in answered.sentences],
        sources=[AnswerSource.of(one) for one in found.sources],
        warnings=warnings or None,
    )
    return Response(shown.model_dump_json(by_alias=True), media_type="application/json")


async def _told(
    asking: asyncio.Future[Answered], found: GivenSources, warnings: list[str], began: float
) -> AsyncGenerator[str]:
    shown = [AnswerSource.of(one).model_dump(by_alias=True, mode="json") for one in found.sources]
    yield _event("sources", {"sources": shown, "warnings": warnings})
    while not (await asyncio.wait([asking], timeout=ALIVE))[0]:
        yield ": alive\n\n"
    answered = asking.result()
    for sentence in answered.sentences:
        yield _event("sentence", CitedSentenceOut.of(sentence))
    yield _event("end", _end(answered, began))


def _event(name: str, data: BaseModel | dict[str, Any]) -> str:
    text = json.dumps(data) if isinstance(data, dict) else data.model_dump_json(by_alias=True)
    return f"event: {name}\ndata: {text}\n\n"


def _end(answered: Answered, began: float) -> AnswerEnd:
    return AnswerEnd(
        state=answered.state,
        dropped_citations=answered.dropped,
        reason=answered.reason,
        timing=round((time.monotonic() - began) * 1000, 3),
    )


def _written(answered: Answered) -> str | None:
    texts = [
        one.text + "".join(f" [{number}]" for number in one.sources) for one in answered.sentences
    ]
    return " ".join(texts) or None
