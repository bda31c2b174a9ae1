"""Single memories of a namespace: get, and forget."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from fastapi import Query
from pydantic import AfterValidator, Field

from recollect.api.deps import CurrentApp
from recollect.api.memory_schemas import MOST_FORGOTTEN, MemoryIdIn
from recollect.api.namespaces._door import (
    Closed,
    Reads,
    RestId,
    Writes,
    closed,
    words,
)
from recollect.api.namespaces._door import (
    router as door,
)
from recollect.api.namespaces._shapes import (
    Named,
    NsMemoryOut,
    Refusal,
    Related,
    SourceOut,
    beside,
    related,
)
from recollect.api.namespaces._words import in_words
from recollect.api.wire import Text, Wire, absent, not_blank
from recollect.db import Tx
from recollect.errors import RequestError
from recollect.memories import forgetting, memories, reading
from recollect.memories.records import Memory
from recollect.model import random_id

router = door("memories")
MOST_MATCHES = 100
Includes = Annotated[
    Sequence[str],
    Query(description="`related`, `documents`; repeated, or separated by commas."),
    AfterValidator(words("related", "documents")),
]


class Forgetting(Closed):
    model_config = closed(ids=["IXRZM3PPg0pOY9rElgLlmk"])

    ids: list[MemoryIdIn] = Field(min_length=1, max_length=MOST_FORGOTTEN)


class ForgettingByQuery(Closed):
    model_config = closed(query="the old office", dryRun=True)

    query: Annotated[Text, Field(min_length=1, max_length=2_000), AfterValidator(not_blank)]
    dry_run: bool


class MemoryInclusions(Wire):
    related: Related | None = absent()
    document: SourceOut | None = absent()


class WholeMemory(NsMemoryOut):
    included: MemoryInclusions | None = absent()


class ForgottenOut(Wire):
    count: int = Field(description="Of the matches, those of a preview included.")
    matches: list[Named]
    errors: list[Refusal]

    @classmethod
    def of(
        cls, found: Sequence[Memory], refused: Mapping[str, RequestError] | None = None
    ) -> "ForgottenOut":
        return cls(
            count=len(found),
            matches=[Named(id=one.id, memory=one.content) for one in found],
            errors=[Refusal(id=id, error=_told(error)) for id, error in (refused or {}).items()],
        )


@router.get(
    "/ns/{namespace}/memories/{id:path}", summary="Get a memory", operation_id="nsGetMemory"
)
def get(
    space: Reads,
    id: RestId,
    app: CurrentApp,
    include: Includes = (),
    related_limit: Annotated[
        int, Query(alias="relatedLimit", ge=1, le=100, description="Of each kind.")
    ] = 10,
) -> WholeMemory:
    """That very version, also if it was forgotten; with its other versions and what belongs to it,
    and the documents that they come from."""
    with_related, with_documents = "related" in include, "documents" in include

    def read(tx: Tx) -> WholeMemory:
        memory = reading.get(tx, space.inside, id)
        groups = (
            beside(reading.neighbours(tx, space.inside, [memory.id])[memory.id], related_limit)
            if with_related
            else {}
        )
        shown = [memory.id, *(one.id for some in groups.values() for one in some)]
        sources = reading.sources(tx, space.inside, shown) if with_documents else None
        included = None
        if with_related or with_documents:
            included = MemoryInclusions(
                related=related(groups, sources) if with_related else None,
                document=SourceOut.newest(sources[memory.id]) if sources is not None else None,
            )
        return WholeMemory(**NsMemoryOut.fields(memory), included=included)

    return app.db.read(read)


@router.delete(
    "/ns/{namespace}/memories", summary="Forget memories", operation_id="nsForgetMemories"
)
def forget(space: Writes, body: Forgetting, app: CurrentApp) -> ForgottenOut:
    """By the id of any version. They are no longer found, but kept. The rest is done where some are
    refused."""
    done, refused = app.db.write(
        lambda tx: memories.forget_named(tx, space.inside, space.name, body.ids, None, random_id())
    )
    return ForgottenOut.of(done, refused)


@router.delete(
    "/ns/{namespace}/memories/semantic",
    summary="Forget what matches",
    operation_id="nsForgetMatching",
)
def forget_matching(space: Writes, body: ForgettingByQuery, app: CurrentApp) -> ForgottenOut:
    """What answers the `query`, the most similar first; a memory of just this text before all.
    `dryRun` only says what would be forgotten."""
    found, _ = forgetting.matching(app, space.inside, space.name, body.query, most=MOST_MATCHES)
    if body.dry_run or not found:
        return ForgottenOut.of([one.memory for one in found])
    done = forgetting.forget(app, space.inside, space.name, found, body.query, random_id())
    return ForgottenOut.of(done)


def _told(error: RequestError) -> str:
    """The short sentence, but what an id is instead of a memory's."""
    return in_words(
        error.details if error.details and "document" in error.details else error.message
    )
