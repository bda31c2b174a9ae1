"""Memories and the profile that they make. What is added here needs no model."""

import time
from functools import partial
from typing import Any

from fastapi import APIRouter

from recollect.api.deps import ApiRoute, CurrentApp, Reader, Writer, effective_tags
from recollect.api.document_schemas import MemoryOut, TemporalContext
from recollect.api.memory_schemas import (
    AddMemories,
    BucketsOut,
    BucketsRequest,
    Candidate,
    ForgetMatching,
    ForgetMatchingOut,
    ForgetMemory,
    Forgotten,
    ListMemories,
    MemoriesAdded,
    MemoryEntry,
    MemoryList,
    MemoryResults,
    MemorySearch,
    MemoryUpdated,
    ProfileOut,
    ProfileRequest,
    ProfileSections,
    UpdateMemory,
)
from recollect.api.search import answers
from recollect.api.settings_schemas import Bucket
from recollect.api.wire import Pagination
from recollect.db import Tx
from recollect.documents.filters import parse as parse_filter
from recollect.errors import BadRequestError
from recollect.memories import forgetting, memories, reading, telling
from recollect.memories.finding import FoundMemory
from recollect.memories.reading import Profile
from recollect.memories.records import (
    Correction,
    Fact,
    Memory,
    MemoryId,
    MemoryQuery,
    MemoryTarget,
)
from recollect.model import Page, random_id
from recollect.orgs import settings

router = APIRouter(tags=["memories"], route_class=ApiRoute)
MATCHED = "matched: "
"""Beginning of the reason when a query chose what to forget and nobody said why."""


@router.post("/v4/memories", status_code=201, summary="Add memories", operation_id="addMemories")
def add(body: AddMemories, tenant: Writer, app: CurrentApp) -> MemoriesAdded:
    """Facts as they are: nothing is drawn from them. Searches find them at once.

    The answer names the document that holds them; deleting it deletes them. What is
    known word for word in this tag already is confirmed, not doubled.
    """
    [tag] = effective_tags(tenant, body.container_tag, None, default=False)
    facts = [
        Fact(
            text=memory.content,
            is_static=memory.is_static,
            buckets=memory.buckets,
            metadata=memory.metadata,
            temporal=_temporal(memory.temporal_context),
            forget_after=memory.forget_after,
            forget_reason=memory.forget_reason,
        )
        for memory in body.memories
    ]
    id, added = telling.add(app, tenant, tag, facts)
    return MemoriesAdded(
        document_id=id,
        memories=[MemoryOut.of(memory) for memory in added],
        warnings=body.passed_over(),
    )


@router.patch("/v4/memories", summary="Update a memory", operation_id="updateMemory")
def update(body: UpdateMemory, tenant: Writer, app: CurrentApp) -> MemoryUpdated:
    """Adds a version; the one before is kept, but no longer found. If not given, metadata,
    `forgetAfter` and `temporalContext` stay as they are."""
    [tag] = effective_tags(tenant, body.container_tag, None, default=False)
    target = _target(body.id, body.content)
    correction = Correction(
        text=body.new_content,
        metadata=body.metadata,
        temporal=_temporal(body.temporal_context),
        sets_expiry="forget_after" in body.model_fields_set,
        forget_after=body.forget_after,
        forget_reason=body.forget_reason,
    )
    corrected = telling.correct(app, tenant, tag, target, correction)
    return MemoryUpdated(**MemoryUpdated.fields(corrected), warnings=body.passed_over())


@router.delete("/v4/memories", summary="Forget a memory", operation_id="forgetMemory")
def forget(body: ForgetMemory, tenant: Writer, app: CurrentApp) -> Forgotten:
    """It is no longer found, but kept, with the reason. To delete it for good, delete the document
    that it comes from. 409: it was forgotten before."""
    [tag] = effective_tags(tenant, body.container_tag, None, default=False)
    target = _target(body.id, body.content)
    gone = app.db.write(lambda tx: memories.forget(tx, tenant, tag, target, body.reason))
    return Forgotten(id=gone.id, forgotten=True, warnings=body.passed_over())


@router.post("/v4/memories/list", summary="List memories", operation_id="listMemories")
def find(body: ListMemories, tenant: Reader, app: CurrentApp) -> MemoryList:
    """The latest versions, each with its history and the documents that it comes from."""
    named = effective_tags(
        tenant, body.container_tag, body.container_tags, default=False, prefixes=True
    )
    if not named:
        raise BadRequestError("containerTags: name at least one")
    query = MemoryQuery(
        any_of=named,
        filter=None if body.filters is None else parse_filter(body.filters),
        forgotten=body.include_forgotten,
        sort="updated_at" if body.sort == "updatedAt" else "created_at",
        descending=body.order == "desc",
        limit=body.limit,
        page=body.page,
    )

    def read(tx: Tx) -> tuple[Page[Memory], dict[MemoryId, list[Memory]]]:
        page = reading.find(tx, tenant, query)
        return page, reading.history(tx, tenant, [memory.id for memory in page.items])

    page, versions = app.db.read(read)
    return MemoryList(
        memory_entries=[MemoryEntry.entry(memory, versions[memory.id]) for memory in page.items],
        pagination=Pagination.of(page),
        warnings=body.passed_over(),
    )


@router.post(
    "/v4/memories/forget-matching",
    summary="Forget what matches",
    operation_id="forgetMatchingMemories",
)
def forget_matching(body: ForgetMatching, tenant: Writer, app: CurrentApp) -> ForgetMatchingOut:
    """Memories that answer the `query`, the most similar first, or exactly those of `ids`.

    `dryRun` only says what would be forgotten. A misspelt field is refused.
    """
    body.refuse_slips()
    [tag] = effective_tags(tenant, body.container_tag, None, default=False)
    if body.query is None and body.ids is None:
        raise BadRequestError("name a query, or ids")
    if body.ids is None:
        found, matching = forgetting.matching(
            app, tenant, tag, body.query or "", most=body.max_forget, threshold=body.threshold
        )
    else:
        with app.db.begin() as tx:
            named = [FoundMemory(one, 1.0) for one in reading.named(tx, tenant, tag, body.ids)]
        found, matching = named[: body.max_forget], len(named)
    batch = None
    if found and not body.dry_run:
        batch = random_id()
        reason = body.reason or (MATCHED + body.query if body.query else None)
        if body.ids is None:
            done = forgetting.forget(app, tenant, tag, found, reason, batch)
        else:
            ids = [one.memory.id for one in found]
            done = app.db.write(
                partial(
                    memories.forget_these,
                    tenant=tenant,
                    tag=tag,
                    ids=ids,
                    reason=reason,
                    batch=batch,
                )
            )
        likeness = {one.memory.id: one.similarity for one in found}
        found = [FoundMemory(memory, likeness.get(memory.id, 1.0)) for memory in done]
    shown = [
        Candidate(id=one.memory.id, memory=one.memory.content, score=one.similarity)
        for one in found
    ]
    return ForgetMatchingOut(
        dry_run=body.dry_run,
        count=len(shown),
        remaining=matching - len(shown),
        forget_batch_id=batch,
        summary=_summary(len(shown), matching, dry_run=body.dry_run),
        candidates=shown if body.dry_run else None,
        forgotten=None if body.dry_run else shown,
        warnings=body.passed_over(),
    )


def _summary(count: int, matching: int, *, dry_run: bool) -> str:
    counted = "1 memory" if count == 1 else f"{count} memories"
    told = f"{counted} would be forgotten" if dry_run else f"forgot {counted}"
    if matching > count:
        told += f"; {matching - count} more match (maxForget bounds a request)"
    return told


@router.post("/v4/profile", summary="Get a profile", operation_id="getProfile")
def profile(body: ProfileRequest, tenant: Reader, app: CurrentApp) -> ProfileOut:
    """What is known under a tag: lasting facts (`static`), the others, newest first (`dynamic`),
    and those of each bucket. With `q`, what answers it, too. An unknown tag has empty lists."""
    [tag] = effective_tags(tenant, body.container_tag, None, default=False)
    filter = None if body.filters is None else parse_filter(body.filters)
    wanted = body.include or ["static", "dynamic", "buckets"]
    results = None
    if body.q is not None:
        started = time.monotonic()
        search = MemorySearch(
            q=body.q, container_tag=tag, threshold=body.threshold, filters=body.filters
        )
        found, warnings = answers(app, tenant, search)
        took = round((time.monotonic() - started) * 1000, 3)
        results = MemoryResults(
            results=found, timing=took, total=len(found), warnings=warnings or None
        )

    def read(tx: Tx) -> Profile:
        keys = body.buckets
        if keys is None:
            keys = [bucket["key"] for bucket in settings.buckets_of(tx, tenant.id, tag)]
        return reading.profile(tx, tenant, tag, filter, keys)

    known = app.db.read(read)
    sections = ProfileSections(
        static=[one.text for one in known.static] if "static" in wanted else None,
        dynamic=[one.text for one in known.dynamic] if "dynamic" in wanted else None,
        buckets={key: [one.text for one in some] for key, some in known.buckets.items()}
        if "buckets" in wanted
        else None,
    )
    return ProfileOut(profile=sections, search_results=results, warnings=body.passed_over())


@router.post(
    "/v4/profile/buckets", summary="List profile buckets", operation_id="listProfileBuckets"
)
def buckets(tenant: Reader, app: CurrentApp, body: BucketsRequest | None = None) -> BucketsOut:
    """Those of the organisation, and those that the tag has beside them."""
    body = body or BucketsRequest()
    named = effective_tags(tenant, body.container_tag, None, default=False)
    found = app.db.read(lambda tx: settings.buckets_of(tx, tenant.id, named[0] if named else None))
    done = BucketsOut(buckets=[Bucket.model_validate(bucket) for bucket in found])
    return body.warned(done)


def _target(id: str | None, content: str | None) -> MemoryTarget:
    if id is None and content is None:
        raise BadRequestError("name the id or the content of the memory")
    return MemoryTarget(id=id, content=content)


def _temporal(context: TemporalContext | None) -> dict[str, Any] | None:
    return None if context is None else context.model_dump(by_alias=True, exclude_none=True)
