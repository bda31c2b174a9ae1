"""Namespaces themselves: list, context, end, and move into another."""

from typing import Annotated, Literal

from fastapi import Query, Request, Response

from recollect.api.deps import CurrentApp, Reader, refuse_slips
from recollect.api.namespaces._door import (
    Closed,
    Nothing,
    Number,
    PageSize,
    Reads,
    Writes,
    closed,
)
from recollect.api.namespaces._door import (
    router as door,
)
from recollect.api.namespaces._shapes import Times
from recollect.api.wire import EntityContext, Pagination, Wire
from recollect.db import Tx
from recollect.errors import BadRequestError
from recollect.memories import reading
from recollect.model import Page, random_id
from recollect.orgs import tags
from recollect.orgs.tags import TagDetails
from recollect.sync.sources import end_tag

router = door("namespaces")


class SpacePatch(Closed):
    model_config = closed(supportingContext="Minutes of the weekly meeting.")

    supporting_context: EntityContext | None = None


class ListedSpace(Wire):
    id: str
    namespace: str
    document_count: int
    memory_count: int
    description: str | None
    system: Times


class SpaceList(Wire):
    namespaces: list[ListedSpace]
    pagination: Pagination


class SpaceOut(Wire):
    namespace: str
    supporting_context: str | None
    system: Times

    @classmethod
    def of(cls, details: TagDetails) -> "SpaceOut":
        return cls(
            namespace=details.tag.name,
            supporting_context=details.tag.entity_context,
            system=_times(details),
        )


class SpaceDeleted(Wire):
    status: Literal["deleted"]
    namespace: str
    deleted_documents_count: int
    deleted_memories_count: int


class SpaceMoving(Wire):
    status: Literal["queued"]
    operation_id: str
    namespace: str
    move_to: str


@router.get("/ns", summary="List namespaces", operation_id="nsListNamespaces")
def find(
    tenant: Reader,
    app: CurrentApp,
    page: Number = 1,
    limit: PageSize = 10,
    q: Annotated[str, Query(max_length=100, description="Part of the name, in any case.")] = "",
) -> SpaceList:
    """Those that the key may use, the newest first."""

    def read(tx: Tx) -> tuple[Page[TagDetails], dict[str, int]]:
        found = tags.find(tx, tenant, limit=limit, page=page, part=q, order="newest")
        return found, reading.counts_of_tags(tx, tenant, [one.tag.name for one in found.items])

    found, known = app.db.read(read)
    listed = [
        ListedSpace(
            id=one.tag.name,
            namespace=one.tag.name,
            document_count=one.documents,
            memory_count=known[one.tag.name],
            description=one.title,
            system=_times(one),
        )
        for one in found.items
    ]
    return SpaceList(namespaces=listed, pagination=Pagination.of(found))


router.add_api_route(
    "/namespaces",
    find,
    methods=["GET"],
    summary="List namespaces",
    operation_id="nsListNamespacesToo",
)


@router.get("/ns/{namespace}", summary="Get a namespace", operation_id="nsGetNamespace")
def get(space: Reads, app: CurrentApp) -> SpaceOut:
    return SpaceOut.of(app.db.read(lambda tx: tags.get(tx, space.inside, space.name)))


@router.patch("/ns/{namespace}", summary="Change a namespace", operation_id="nsUpdateNamespace")
def patch(space: Writes, app: CurrentApp, body: SpacePatch | None = None) -> SpaceOut:
    """The context guides documents added later; null clears it."""
    if body is None or not body.model_fields_set:
        raise BadRequestError("supportingContext: name it; null clears it")
    change = {"entity_context": body.supporting_context}
    return SpaceOut.of(app.db.write(lambda tx: tags.patch(tx, space.inside, space.name, change)))


@router.delete(
    "/ns/{namespace}",
    summary="Delete or move a namespace",
    operation_id="nsDeleteNamespace",
    responses={202: {"model": SpaceDeleted | SpaceMoving, "description": "A worker moves it."}},
)
def delete(
    space: Writes,
    app: CurrentApp,
    request: Request,
    response: Response,
    body: Nothing | None = None,
    move_to: Annotated[
        str | None, Query(alias="moveTo", description="The namespace that gets everything.")
    ] = None,
) -> SpaceDeleted | SpaceMoving:
    """Documents that are in it alone, their memories, its context and buckets, and the connectors
    that write to it alone. Permanent. With `moveTo` all of it is moved there instead. Other
    parameters are refused: a misspelt `moveTo` would delete what was to be moved."""
    refuse_slips(request, "moveTo")
    if move_to is not None:
        [target] = tags.asked(space.key, move_to, None, default=False, field="moveTo")
        if target == space.name:
            raise BadRequestError("moveTo: must be another namespace")
        begun = app.db.write(
            lambda tx: tags.begin_merge(tx, space.key, [space.name], target, random_id())
        )
        response.status_code = 202
        return SpaceMoving(
            status="queued", operation_id=begun.id, namespace=space.name, move_to=target
        )
    ended = app.db.write(lambda tx: end_tag(tx, app, space.key, space.name))
    return SpaceDeleted(
        status="deleted",
        namespace=space.name,
        deleted_documents_count=ended.documents,
        deleted_memories_count=ended.memories,
    )


def _times(details: TagDetails) -> Times:
    return Times(created_at=details.tag.created_at, updated_at=details.updated_at)
