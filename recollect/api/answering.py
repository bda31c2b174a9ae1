"""Answers with their evidence, in one piece or as a stream."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from pydantic import AfterValidator, BaseModel, Field

from recollect.api.deps import ApiRoute, CurrentApp, Reader, effective_tags
from recollect.api.memory_schemas import Question
from recollect.api.turns import AsksOthers, own_turn
from recollect.api.wire import (
    PLACE,
    WARNINGS,
    AsOf,
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
from recollect.app import App
from recollect.documents.filters import parse as parse_filter
from recollect.errors import BadRequestError
from recollect.memories.records import NO_PAST
from recollect.model import Tenant
from recollect.search.answers.citations import Sentence
from recollect.search.answers.sources import (
    AnswerEvidence,
    AnswerQuery,
    AnswerSource,
    EarlierTurn,
    gather,
)
from recollect.search.answers.telling import ALIVE, AnswerEnd, AnswerState, answer, tell_alive

router = APIRouter(tags=["search"], route_class=ApiRoute)
MOST_TURNS = 50
CLIENT_GONE = 499
"""Nobody reads it: a word for counters and logs."""


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
    as_of: AsOf = None
    memories: bool | None = Field(
        default=None,
        description="Answer from memories as well; true by default, and false with `asOf`.",
    )
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
            text=sentence.text, sources=list(sentence.cites), unsupported=sentence.is_unsupported
        )


class AnswerSourceOut(Wire):
    """A passage of a document, or a memory."""

    number: int = Field(description="The number by which sentences cite it, from 1.", examples=[1])
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
    def of(cls, source: AnswerSource) -> Self:
        document = source.document
        known = cls(
            number=source.number,
            content=source.text,
            score=None if source.score is None else round(source.score, 6),
            memory_id=source.memory_id,
            place=None,
        )
        if document is None:
            return known
        return known.model_copy(
            update={
                "document_id": document.id,
                "custom_id": document.custom_id,
                "title": document.title,
                "url": document.url,
                "filepath": document.filepath,
                "position": source.position,
                "start": source.start,
                "end": source.end,
                "place": dict(source.place),
            }
        )


class AnswerEndOut(Wire):
    state: AnswerState = Field(
        description="`answered`; `nothing_found`: nothing relevant is there, and no model was"
        " asked; `not_answered`: the model read the sources, and they do not answer; `no_model`;"
        " `cut`: the model stopped in the middle of it; `model_failed`: it gave no answer."
    )
    dropped_citations: int = Field(
        description="Citations of the model that named nothing that it was given.", examples=[0]
    )
    reason: str | None = Field(
        description="Why there is no answer, and what to do.", examples=["the model is busy"]
    )
    code: str | None = Field(
        description="A word for what went wrong with the model.", examples=["timeout"]
    )
    timing: float


class AnswerOut(AnswerEndOut):
    answer: str | None = Field(
        description="All sentences, each with the numbers of its sources; null without any.",
        examples=["The team meets on Mondays at nine. [1]"],
    )
    sentences: list[CitedSentenceOut] = Field(description="The answer, sentence by sentence.")
    sources: list[AnswerSourceOut] = Field(description="What was found, also when nothing answers.")
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

    Every citation is checked: one that names nothing that was found is dropped and counted. If
    nothing relevant is found, no model is asked; without a model, or when it fails, the sources
    are there all the same.
    """
    began = time.monotonic()
    query = _query(app, tenant, body)
    async with own_turn(request):
        found = await run_in_threadpool(gather, app, tenant, query)
    warnings = [*(body.passed_over() or ()), *found.warnings]
    if body.stream:
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        told = _told(app, found, warnings, began)
        return StreamingResponse(told, media_type="text/event-stream", headers=headers)
    writing = asyncio.create_task(_whole(app, found, warnings, began))
    leaving = asyncio.create_task(_gone(request))
    try:
        await asyncio.wait({writing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not writing.done():
            return Response(status_code=CLIENT_GONE)
        shown = await writing
    finally:
        for task in (writing, leaving):
            task.cancel()
        await asyncio.gather(writing, leaving, return_exceptions=True)
    return Response(shown.model_dump_json(by_alias=True), media_type="application/json")


def _query(app: App, tenant: Tenant, body: AnswerRequest) -> AnswerQuery:
    named = effective_tags(
        tenant, body.container_tag, body.container_tags, default=False, prefixes=True
    )
    if body.profile and len(named) != 1:
        raise BadRequestError("profile: name exactly one container tag")
    if body.as_of is not None and (body.memories or body.profile):
        raise BadRequestError(f"asOf: {NO_PAST}; leave out memories and profile")
    return AnswerQuery(
        text=body.q,
        turns=[EarlierTurn(turn.role, turn.content) for turn in body.turns],
        tags=named,
        filter=None if body.filters is None else parse_filter(body.filters),
        filepath=body.filepath,
        limit=body.limit,
        tokens=app.config.answer_tokens,
        rerank=body.rerank,
        with_memories=body.as_of is None if body.memories is None else body.memories,
        profile_of=named[0] if body.profile else None,
        as_of=body.as_of,
    )


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _whole(app: App, found: AnswerEvidence, warnings: list[str], began: float) -> AnswerOut:
    answered = await answer(app.llm, found)
    texts = [
        one.text + "".join(f" [{number}]" for number in one.cites) for one in answered.sentences
    ]
    return AnswerOut(
        **_end(answered.end, len(answered.dropped), began).model_dump(),
        answer=" ".join(texts) or None,
        sentences=[CitedSentenceOut.of(one) for one in answered.sentences],
        sources=[AnswerSourceOut.of(one) for one in found.sources],
        warnings=warnings or None,
    )


async def _told(
    app: App, found: AnswerEvidence, warnings: list[str], began: float
) -> AsyncGenerator[str]:
    """A sentence as soon as the model has ended it; lines that keep the connection meanwhile. A
    client that leaves ends the model's work."""
    shown = [
        AnswerSourceOut.of(one).model_dump(by_alias=True, mode="json") for one in found.sources
    ]
    yield _event("sources", {"sources": shown, "warnings": warnings})
    dropped = 0
    async with aclosing(tell_alive(app.llm, found, ALIVE)) as told:
        async for one in told:
            if one is None:
                yield ": alive\n\n"
            elif isinstance(one, AnswerEnd):
                yield _event("end", _end(one, dropped, began))
            else:
                dropped += len(one.dropped)
                if one.text:
                    yield _event("sentence", CitedSentenceOut.of(one))


def _event(name: str, data: BaseModel | dict[str, Any]) -> str:
    text = json.dumps(data) if isinstance(data, dict) else data.model_dump_json(by_alias=True)
    return f"event: {name}\ndata: {text}\n\n"


def _end(end: AnswerEnd, dropped: int, began: float) -> AnswerEndOut:
    return AnswerEndOut(
        state=end.state,
        dropped_citations=dropped,
        reason=end.reason,
        code=end.code,
        timing=round((time.monotonic() - began) * 1000, 3),
    )
