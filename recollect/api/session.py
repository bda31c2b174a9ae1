"""What the published command line tool asks for beside the rest: whose key it has, how much there
is, and documents with their memories."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import Field

from recollect import documents
from recollect.api.deps import ApiRoute, CurrentApp, CurrentKey, Reader, effective_tags
from recollect.api.document_schemas import ListedDocument, MemoryOut
from recollect.api.wire import WARNINGS, Pagination, RequestBody, TagsIn, Wire, absent, example
from recollect.documents import DocumentQuery
from recollect.memories import reading
from recollect.model import Plan, Scope
from recollect.orgs import orgs, tags
from recollect.sync import connections

router = APIRouter(tags=["session"], route_class=ApiRoute)


class UserOut(Wire):
    name: str = Field(description="The name of the key: people are not known here.")
    email: None = None


class Organisation(Wire):
    id: str
    name: str
    slug: str


class SessionScope(Wire):
    type: Literal["full", "scoped"]
    permission: Scope
    container_tags: list[str] | None = absent()


class SessionOut(Wire):
    user: UserOut
    org: Organisation
    plan: Plan
    scope: SessionScope


class ConsoleLink(Wire):
    path: str = Field(description="To be put behind the address of the service.")
    expires_in: int = Field(description="In seconds.", examples=[120])


class Totals(Wire):
    total_memories: int = Field(description="Documents.")
    total_memory_entries: int = Field(description="Live memories.")
    total_connections: int
    total_container_tags: int


class ListWithMemories(RequestBody):
    model_config = example(containerTags=["team:a"], limit=20)

    container_tags: TagsIn | None = None
    page: int = Field(default=1, ge=1, le=1_000_000)
    limit: int = Field(default=10, ge=1, le=1_000)
    sort: Literal["createdAt", "updatedAt"] = "createdAt"
    order: Literal["asc", "desc"] = "desc"


class DocumentWithMemories(ListedDocument):
    chunk_count: int
    memory_entries: list[MemoryOut]


class DocumentsWithMemories(Wire):
    documents: list[DocumentWithMemories]
    pagination: Pagination
    warnings: list[str] | None = WARNINGS


@router.get("/v3/session", summary="Get the session of the key", operation_id="getSession")
def session(key: CurrentKey) -> SessionOut:
    """The organisation, the plan, and what the key may do."""
    return SessionOut(
        user=UserOut(name=key.name),
        org=Organisation(id=key.org.id, name=key.org.name, slug=key.org.name),
        plan=key.org.plan,
        scope=SessionScope(
            type="full" if key.tags is None else "scoped",
            permission=key.scope,
            container_tags=None if key.tags is None else list(key.tags),
        ),
    )


@router.post("/v3/session/link", summary="Open the console signed in", operation_id="linkSession")
def link(key: CurrentKey, app: CurrentApp) -> ConsoleLink:
    """A link that signs one browser in with this key, once and within two minutes."""
    with app.db.begin() as tx:
        token = orgs.link(tx, key.id)
    return ConsoleLink(
        path=f"/console/login?once={token}", expires_in=int(orgs.LINK.total_seconds())
    )


@router.get("/v3/analytics/memory", summary="Count what is stored", operation_id="countEverything")
def totals(
    tenant: Reader,
    app: CurrentApp,
    period: Annotated[str | None, Query(description="Ignored: it is counted as it is now.")] = None,
) -> Totals:
    """Of what the key may reach."""
    with app.db.begin() as tx:
        return Totals(
            total_memories=sum(documents.counts(tx, tenant).values()),
            total_memory_entries=reading.total(tx, tenant),
            total_connections=len(connections.find(tx, tenant)),
            total_container_tags=tags.find(tx, tenant, limit=1, page=1).total,
        )


@router.post(
    "/v3/documents/documents",
    summary="List documents with memories",
    operation_id="listDocumentsWithMemories",
)
def find(
    tenant: Reader, app: CurrentApp, body: ListWithMemories | None = None
) -> DocumentsWithMemories:
    """As the list of documents, each with the memories that come from it."""
    body = body or ListWithMemories()
    query = DocumentQuery(
        tags=effective_tags(tenant, None, body.container_tags, default=False, prefixes=True),
        sort="updated_at" if body.sort == "updatedAt" else "created_at",
        descending=body.order == "desc",
        limit=body.limit,
        page=body.page,
    )
    with app.db.begin() as tx:
        page = documents.find(tx, tenant, query)
        known = reading.of_documents(tx, tenant, [one.id for one in page.items])
    words = app.config.status_words
    shown: list[dict[str, Any]] = [
        {
            **ListedDocument.fields(one, words),
            "chunk_count": one.changed.chunks if one.changed else 0,
            "memory_entries": [MemoryOut.of(memory) for memory in known[one.id]],
        }
        for one in page.items
    ]
    return DocumentsWithMemories(
        documents=[DocumentWithMemories(**fields) for fields in shown],
        pagination=Pagination.of(page),
        warnings=body.passed_over(),
    )
