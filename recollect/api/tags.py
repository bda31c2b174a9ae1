"""Container tags: what is kept on them, and their end."""

from typing import Annotated

from fastapi import APIRouter, BackgroundTasks, Path, Query

from recollect import documents, log, tags
from recollect.api.deps import CurrentApp, PathId, Reader, Writer, effective_tags
from recollect.api.schemas import (
    MergeOut,
    MergeTags,
    Pagination,
    TagDeleted,
    TagList,
    TagOut,
    TagPatch,
)
from recollect.app import App
from recollect.errors import BadRequestError, Unavailable
from recollect.orgs import random_id

LOG = log.get("api")
router = APIRouter(tags=["container tags"])
MERGED_AT_ONCE = 100
"""Documents moved in one transaction."""
TagName = Annotated[str, Path(description="A container tag.", examples=["user_123"])]


@router.get("/v3/container-tags/list", summary="List tags", operation_id="listContainerTags")
def find(
    tenant: Reader,
    app: CurrentApp,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
) -> TagList:
    """By name, with the number of documents that carry each."""
    with app.db.begin() as tx:
        found = tags.find(tx, tenant, limit=limit, page=page)
    return TagList(
        container_tags=[TagOut.of(details) for details in found.items],
        pagination=Pagination.of(found),
    )


@router.get("/v3/container-tags/{tag}", summary="Get a tag", operation_id="getContainerTag")
def get(tag: TagName, tenant: Reader, app: CurrentApp) -> TagOut:
    [name] = effective_tags(tenant, tag, None, default=False)
    with app.db.begin() as tx:
        return TagOut.of(tags.get(tx, tenant, name))


@router.patch("/v3/container-tags/{tag}", summary="Change a tag", operation_id="updateContainerTag")
def patch(tag: TagName, body: TagPatch, tenant: Writer, app: CurrentApp) -> TagOut:
    """Named fields change, null clears one. The context guides documents added later."""
    [name] = effective_tags(tenant, tag, None, default=False)
    with app.db.begin() as tx:
        return TagOut.of(tags.patch(tx, tenant, name, body.given()))


@router.delete(
    "/v3/container-tags/{tag}", summary="Delete a tag", operation_id="deleteContainerTag"
)
def delete(tag: TagName, tenant: Writer, app: CurrentApp) -> TagDeleted:
    """Documents that carry only this tag are deleted with it, the others lose it. Permanent."""
    [name] = effective_tags(tenant, tag, None, default=False)
    with app.db.begin() as tx:
        tags.get(tx, tenant, name)
        gone = documents.untag(tx, tenant, name)
        tags.forget(tx, tenant.id, name)
    return TagDeleted(success=True, container_tag=name, deleted_count=len(gone))


@router.post(
    "/v3/container-tags/merge",
    status_code=202,
    summary="Merge tags",
    operation_id="mergeContainerTags",
)
def merge(body: MergeTags, tenant: Writer, app: CurrentApp, after: BackgroundTasks) -> MergeOut:
    """Documents of the tags get the target instead; then the tags end. Goes on after the answer.

    A document whose customId another one of the target has keeps its tag, and is named in the
    state of the merge. The same request again takes up what a stopped process left.
    """
    [target] = effective_tags(tenant, body.target_container_tag, None, default=False)
    named = effective_tags(tenant, None, body.container_tags, default=False)
    sources = [name for name in named if name != target]
    if not sources:
        raise BadRequestError("containerTags: name at least one besides the targetContainerTag")
    with app.db.begin() as tx:
        begun = tags.begin_merge(tx, tenant, sources, target, random_id())
    after.add_task(work_off, app, begun.id)
    return MergeOut.of(begun)


@router.get(
    "/v3/container-tags/merge/{id}", summary="State of a merge", operation_id="getContainerTagMerge"
)
def merge_state(id: PathId, tenant: Reader, app: CurrentApp, after: BackgroundTasks) -> MergeOut:
    """Asking takes it up again when the process that worked on it has ended."""
    with app.db.begin() as tx:
        found = tags.merge(tx, tenant, id)
    if found.finished_at is None:
        after.add_task(work_off, app, found.id)
    return MergeOut.of(found)


def work_off(app: App, id: str) -> None:
    """Move batch after batch until the merge is done or somebody else works on it."""
    try:
        while _moved_some(app, id):
            pass
    except Unavailable as error:
        LOG.warning("merge interrupted", merge=id, error=str(error))


def _moved_some(app: App, id: str) -> bool:
    with app.db.begin() as tx:
        found = tags.claim_merge(tx, id)
        if found is None:
            return False
        moved, kept = documents.retag(
            tx, found.org_id, found.sources, found.target, kept=found.kept, limit=MERGED_AT_ONCE
        )
        working = moved + len(kept) > 0
        tags.advance_merge(tx, found, moved, kept, done=not working)
    return working
