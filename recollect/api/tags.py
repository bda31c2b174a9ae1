"""Container tags: what is kept on them, and their end."""

from typing import Annotated

from fastapi import APIRouter, Query

from recollect.api.deps import (
    ApiRoute,
    BareId,
    CurrentApp,
    Reader,
    TagName,
    Writer,
    effective_tags,
)
from recollect.api.tag_schemas import MergeOut, MergeTags, TagDeleted, TagList, TagOut, TagPatch
from recollect.api.wire import Pagination
from recollect.errors import BadRequestError
from recollect.orgs import tags
from recollect.orgs.orgs import random_id
from recollect.sync.sources import end_tag

router = APIRouter(tags=["container tags"], route_class=ApiRoute)


@router.get("/v3/container-tags/list", summary="List tags", operation_id="listContainerTags")
def find(
    tenant: Reader,
    app: CurrentApp,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
) -> TagList:
    """By name, with the number of documents that carry each."""
    found = app.db.read(lambda tx: tags.find(tx, tenant, limit=limit, page=page))
    return TagList(
        container_tags=[TagOut.of(details) for details in found.items],
        pagination=Pagination.of(found),
    )


@router.get("/v3/container-tags/{tag}", summary="Get a tag", operation_id="getContainerTag")
def get(tag: TagName, tenant: Reader, app: CurrentApp) -> TagOut:
    [name] = effective_tags(tenant, tag, None, default=False)
    return TagOut.of(app.db.read(lambda tx: tags.get(tx, tenant, name)))


@router.patch("/v3/container-tags/{tag}", summary="Change a tag", operation_id="updateContainerTag")
def patch(tag: TagName, body: TagPatch, tenant: Writer, app: CurrentApp) -> TagOut:
    """Named fields change, null clears one. The context guides documents added later."""
    [name] = effective_tags(tenant, tag, None, default=False)
    changed = app.db.write(lambda tx: tags.patch(tx, tenant, name, body.given()))
    return body.warned(TagOut.of(changed))


@router.delete(
    "/v3/container-tags/{tag}", summary="Delete a tag", operation_id="deleteContainerTag"
)
def delete(tag: TagName, tenant: Writer, app: CurrentApp) -> TagDeleted:
    """Documents with only this tag are deleted with it, the others lose it. Permanent.

    Memories of the tag go with their documents: a document that stays takes them to the first tag
    that it has left. Connections that write to this tag alone end; those with other tags stay as
    they are, and fill the tag again: `connections` names them.
    """
    [name] = effective_tags(tenant, tag, None, default=False)
    ended = app.db.write(lambda tx: end_tag(tx, app, tenant, name))
    return TagDeleted(
        success=True,
        container_tag=name,
        deleted_count=ended.documents,
        connections=list[str](ended.naming),
    )


@router.post(
    "/v3/container-tags/merge",
    status_code=202,
    summary="Merge tags",
    operation_id="mergeContainerTags",
)
def merge(body: MergeTags, tenant: Writer, app: CurrentApp) -> MergeOut:
    """Documents and connections of the tags get the target instead; then the tags end. A worker
    does it after the answer. What is written to the tags within ten minutes moves with them; a
    tag that gets documents later stays, with these.

    A document whose customId is taken in the target keeps its tag, and is named in the
    state of the merge. The same request again answers the same merge.
    """
    [target] = effective_tags(
        tenant, body.target_container_tag, None, default=False, field="targetContainerTag"
    )
    named = effective_tags(tenant, None, body.container_tags, default=False)
    sources = [name for name in named if name != target]
    if not sources:
        raise BadRequestError("containerTags: name at least one besides the targetContainerTag")
    begun = app.db.write(lambda tx: tags.begin_merge(tx, tenant, sources, target, random_id()))
    return body.warned(MergeOut.of(begun))


@router.get(
    "/v3/container-tags/merge/{id}", summary="State of a merge", operation_id="getContainerTagMerge"
)
def merge_state(id: BareId, tenant: Reader, app: CurrentApp) -> MergeOut:
    with app.db.begin() as tx:
        return MergeOut.of(tags.merge(tx, tenant, id))
