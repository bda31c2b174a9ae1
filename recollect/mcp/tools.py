"""What an assistant may do: each tool's arguments, its answer, and how it is done.

Descriptions are read by language models: they say when to call, and what to do with the answer.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, TypeVar
from urllib.parse import quote, unquote, urlencode

from pydantic import BaseModel, ConfigDict, Field

from recollect import connectors
from recollect.errors import NotFoundError
from recollect.mcp.seam import Session
from recollect.search.ranking import ONLY_WEAK

PASSAGES = 3
"""Of each document that a search finds, the best."""
WHOLE = 20_000
"""Characters of a text that are handed over at once unless more are asked for."""
RUNS = 5
"""Of a connection that is asked for by id, the latest."""

Tag = Annotated[
    str | None,
    Field(description="Container tag; absent: the one of this session, else what the key allows."),
]
ReadTag = Annotated[
    str | None,
    Field(
        description="Only documents with this container tag; `team:*` means any that begins with"
        " `team:`. Absent: the one of this session, else all that the key may read."
    ),
]
DocumentRef = Annotated[
    str, Field(min_length=1, description="Id from `search` or `list`, or the custom_id it has.")
]
DocumentStatus = Literal["queued", "processing", "done", "failed"]


class Arguments(BaseModel):
    """Unknown arguments are refused: a model that invents one should hear of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ToolAnswer(BaseModel):
    model_config = ConfigDict(frozen=True)


ArgumentsT = TypeVar("ArgumentsT", bound=Arguments)
AnswerT = TypeVar("AnswerT", bound=ToolAnswer)


@dataclass(frozen=True, slots=True)
class Tool(Generic[ArgumentsT, AnswerT]):
    """`read_only`: changes nothing. `destructive`: what it changes cannot be had back.
    `open_world`: reaches beyond this service."""

    name: str
    title: str
    description: str
    arguments: type[ArgumentsT]
    answer: type[AnswerT]
    run: Callable[[Session, ArgumentsT], Awaitable[AnswerT]]
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False


# --- search ------------------------------------------------------------------------------------


class SearchFor(Arguments):
    query: str = Field(
        min_length=1,
        max_length=10_000,
        description='A question, or words; "an exact phrase" must be there, -word must not.',
    )
    tag: ReadTag = None
    limit: int = Field(5, ge=1, le=50, description="At most so many documents.")
    filters: dict[str, Any] | None = Field(
        None,
        description="Metadata filter, such as"
        ' {"AND": [{"key": "year", "value": "2026"}]}; OR works alike.',
    )
    rerank: bool = Field(
        False, description="A model judges the first passages, where the service has one; slower."
    )


class Passage(ToolAnswer):
    text: str
    score: float = Field(description="How likely it is that this answers the query, 0 to 1.")
    rerank_score: float | None = Field(description="The reranker's, where it judged.")
    start: int = Field(description="Where it begins in the document's text, in characters.")
    end: int
    place: dict[str, Any] = Field(
        description="Where it stands in the original: page, sheet, row, time, heading."
    )


class FoundDocument(ToolAnswer):
    id: str
    uri: str = Field(description="Resource with the whole text.")
    title: str | None
    type: str
    score: float
    source: str | None = Field(description="URL, path or custom_id: cite this.")
    metadata: dict[str, Any] | None
    passages: list[Passage] = Field(description="The best first.")


class SearchAnswer(ToolAnswer):
    results: list[FoundDocument]
    warnings: list[str] | None = Field(description="What was asked for and not done.")
    note: str | None = Field(description="Set where nothing was found that is likely to answer.")


async def search(session: Session, asked: SearchFor) -> SearchAnswer:
    body = {
        "q": asked.query,
        "limit": asked.limit,
        "containerTags": session.tags(asked.tag),
        "filters": asked.filters,
        "rerank": asked.rerank,
    }
    answer = await session.api.send("POST", "/v3/search", body)
    hits = answer["results"]
    relevant = any(chunk["isRelevant"] for hit in hits for chunk in hit["chunks"])
    return SearchAnswer(
        results=[_found(hit) for hit in hits],
        warnings=answer.get("warnings"),
        note=None if relevant else ONLY_WEAK if hits else "Nothing found.",
    )


def _found(hit: Mapping[str, Any]) -> FoundDocument:
    best = hit["chunks"][:PASSAGES]
    return FoundDocument(
        id=hit["documentId"],
        uri=uri_of(hit["documentId"]),
        title=hit["title"],
        type=hit["type"],
        score=hit["score"],
        source=_source(hit),
        metadata=hit["metadata"],
        passages=[
            Passage(
                text=chunk["content"],
                score=chunk["score"],
                rerank_score=chunk.get("rerankScore"),
                start=chunk["start"],
                end=chunk["end"],
                place=chunk["place"],
            )
            for chunk in best
        ],
    )


# --- add, get, list, forget --------------------------------------------------------------------


class AddArguments(Arguments):
    content: str = Field(
        min_length=1,
        description="Text, Markdown, HTML, a conversation; or one http(s) URL and nothing else,"
        " which is then fetched.",
    )
    tag: Tag = None
    custom_id: str | None = Field(
        None,
        max_length=255,
        description="A name of your own, such as `notes/standup`. Adding with the same name again"
        " updates that document instead of making another.",
    )
    metadata: dict[str, str | float | bool] | None = Field(
        None, description='Flat, for filters: {"project": "heron", "year": 2026}.'
    )
    wait_seconds: float = Field(
        10, ge=0, le=30, description="Wait so long for it to become searchable."
    )


class Added(ToolAnswer):
    id: str
    uri: str
    status: DocumentStatus = Field(
        description="done: searchable now. queued or processing: soon, look with `get`."
    )
    error: str | None = Field(description="Why it failed.")


async def add(session: Session, new: AddArguments) -> Added:
    tags = session.tags(new.tag)
    body = {
        "content": new.content,
        "containerTags": tags,
        "customId": new.custom_id,
        "metadata": new.metadata,
    }
    id = (await session.api.send("POST", "/v3/documents", body))["id"]
    document = await _document(session, id, wait=new.wait_seconds)
    return Added(
        id=id,
        uri=uri_of(id),
        status=_status(document),
        error=document.get("errorMessage"),
    )


class OneDocument(Arguments):
    id: DocumentRef
    start: int = Field(0, ge=0, description="First character of the text that is wanted.")
    length: int = Field(WHOLE, ge=0, le=200_000, description="At most so many characters of it.")


class DocumentAnswer(ToolAnswer):
    id: str
    uri: str
    title: str | None
    type: str
    status: DocumentStatus
    source: str | None
    tags: list[str]
    metadata: dict[str, Any] | None
    created_at: str
    updated_at: str
    error: str | None = Field(description="Why the last attempt failed.")
    warnings: list[str] = Field(description="What may be missing from the text.")
    text: str = Field(description="The extracted text, from `start` on.")
    start: int
    total_length: int = Field(
        description="Characters of the whole text; call again with a later `start` for the rest."
    )


async def get(session: Session, wanted: OneDocument) -> DocumentAnswer:
    document = await _document(session, wanted.id)
    text = document["content"] or ""
    return DocumentAnswer(
        id=document["id"],
        uri=uri_of(document["id"]),
        title=document["title"],
        type=document["type"],
        status=_status(document),
        source=_source(document),
        tags=document["containerTags"],
        metadata=document["metadata"],
        created_at=document["createdAt"],
        updated_at=document["updatedAt"],
        error=document.get("errorMessage"),
        warnings=document["warnings"],
        text=text[wanted.start : wanted.start + wanted.length],
        start=wanted.start,
        total_length=len(text),
    )


class SomeDocuments(Arguments):
    tag: ReadTag = None
    status: DocumentStatus | None = Field(None, description="Only these.")
    limit: int = Field(20, ge=1, le=100, description="Documents on a page.")
    page: int = Field(1, ge=1, le=1_000_000)


class ListedAnswer(ToolAnswer):
    id: str
    uri: str
    title: str | None
    type: str
    status: DocumentStatus
    source: str | None
    tags: list[str]
    updated_at: str
    error: str | None


class DocumentPage(ToolAnswer):
    documents: list[ListedAnswer] = Field(description="The newest first.")
    page: int
    pages: int
    total: int = Field(description="Documents on all pages.")


async def list_documents(session: Session, wanted: SomeDocuments) -> DocumentPage:
    body = {
        "containerTags": session.tags(wanted.tag),
        "status": wanted.status,
        "limit": wanted.limit,
        "page": wanted.page,
    }
    answer = await session.api.send("POST", "/v3/documents/list", body)
    return DocumentPage(
        documents=[_listed(document) for document in answer["memories"]],
        page=wanted.page,
        pages=answer["pagination"]["totalPages"],
        total=answer["pagination"]["totalItems"],
    )


def _listed(document: Mapping[str, Any]) -> ListedAnswer:
    return ListedAnswer(
        id=document["id"],
        uri=uri_of(document["id"]),
        title=document["title"],
        type=document["type"],
        status=_status(document),
        source=_source(document),
        tags=document["containerTags"],
        updated_at=document["updatedAt"],
        error=document.get("errorMessage"),
    )


class ForgetDocument(Arguments):
    id: DocumentRef


class ForgottenAnswer(ToolAnswer):
    id: str
    forgotten: bool


async def forget(session: Session, named: ForgetDocument) -> ForgottenAnswer:
    await session.api.send("DELETE", _path(named.id))
    return ForgottenAnswer(id=named.id, forgotten=True)


# --- connections -------------------------------------------------------------------------------


class ConnectArguments(Arguments):
    provider: str = Field(
        min_length=1,
        description=f"One of {', '.join(connectors.all())}.",
    )
    tag: Tag = None
    settings: dict[str, str | float | bool] | None = Field(
        None,
        description="What the provider takes, such as "
        + "; ".join(
            f"{json.dumps(one.guide.example)} for {one.provider}"
            for one in connectors.all().values()
            if one.guide.example
        )
        + ".",
    )
    document_limit: int | None = Field(None, ge=1, le=10_000, description="At most so many.")


class Connected(ToolAnswer):
    id: str = Field(description="For `sync_status`.")
    provider: str
    authorization_link: str | None = Field(
        description="The user has to open it and agree; give it to them as it is. Null: nothing is"
        " to be authorized, the first sync has begun."
    )
    expires_in: str | None = Field(description="How long the link can be used.")


async def connect(session: Session, new: ConnectArguments) -> Connected:
    body = {
        "containerTags": session.tags(new.tag),
        "metadata": new.settings,
        "documentLimit": new.document_limit,
    }
    if new.provider == "list":  # means something else there
        raise NotFoundError("Provider not found", f"no provider {new.provider!r}")
    path = f"/v3/connections/{quote(new.provider, safe='')}"
    made = await session.api.send("POST", path, body)
    return Connected(
        id=made["id"],
        provider=new.provider,
        authorization_link=made["authLink"],
        expires_in=made["expiresIn"],
    )


class WhichConnections(Arguments):
    connection: str | None = Field(
        None, description="Id of one connection, for its latest runs; absent: all of them."
    )
    tag: ReadTag = None


class RunAnswer(ToolAnswer):
    status: Literal["running", "completed", "partial", "failed"]
    started_at: str
    completed_at: str | None
    added: int
    changed: int
    unchanged: int
    removed: int
    failed: int
    skipped: dict[str, int] = Field(description="By reason.")
    error: str | None


class ConnectionAnswer(ToolAnswer):
    id: str
    provider: str
    state: Literal["pending", "ready", "syncing", "needs_auth", "failed"] = Field(
        description="pending: its link was not used yet. needs_auth: the user has to authorize it"
        " again, on the console's page of connections. failed: its provider was away for a month."
    )
    paused: bool
    tags: list[str]
    account: str | None
    error: str | None = Field(description="What is wrong, and what to do.")
    last_synced_at: str | None
    next_sync_at: str | None
    runs: list[RunAnswer] = Field(description="The latest first; only of one asked for by id.")


class Connections(ToolAnswer):
    connections: list[ConnectionAnswer]


async def sync_status(session: Session, wanted: WhichConnections) -> Connections:
    if wanted.connection is not None:
        path = f"/v3/connections/{quote(wanted.connection, safe='')}"
        one = await session.api.send("GET", path)
        runs = await session.api.array("GET", f"{path}/sync-runs?limit={RUNS}")
        return Connections(connections=[_connection(one, [_run(run) for run in runs])])
    body = {"containerTags": session.tags(wanted.tag)}
    found = await session.api.array("POST", "/v3/connections/list", body)
    return Connections(connections=[_connection(one, []) for one in found])


def _connection(one: Mapping[str, Any], runs: list[RunAnswer]) -> ConnectionAnswer:
    return ConnectionAnswer(
        id=one["id"],
        provider=one["provider"],
        state=one["state"],
        paused=one["paused"],
        tags=one["containerTags"],
        account=one.get("email"),
        error=one["error"],
        last_synced_at=one["lastSyncedAt"],
        next_sync_at=one["nextSyncAt"],
        runs=runs,
    )


def _run(run: Mapping[str, Any]) -> RunAnswer:
    return RunAnswer(
        status=run["status"],
        started_at=run["startedAt"],
        completed_at=run["completedAt"],
        added=run["added"],
        changed=run["changed"],
        unchanged=run["unchanged"],
        removed=run["removed"],
        failed=run["itemsFailed"],
        skipped=run["skipped"],
        error=run["error"],
    )


# --- documents as resources --------------------------------------------------------------------

NO_IDS = frozenset(
    {"batch", "bulk", "documents", "counts", "events", "file", "list", "processing", "retry"}
)
"""What stands where an id does in addresses below /v3/documents, and means something else."""
SCHEME = "recollect://documents/"
TEMPLATE = SCHEME + "{id}"


def uri_of(id: str) -> str:
    return SCHEME + quote(id, safe="")


class Resources(ToolAnswer):
    documents: list[ListedAnswer]
    more: bool
    """whether there is a further page"""


async def resources(session: Session, page: int) -> Resources:
    """One page of documents that can be read, the newest first."""
    found = await list_documents(session, SomeDocuments(status="done", limit=100, page=page))
    return Resources(documents=found.documents, more=page < found.pages)


async def text_of(session: Session, quoted: str) -> str:
    """The whole text of the document whose URI ends so."""
    return (await session.api.send("GET", _path(unquote(quoted))))["content"] or ""


# -----------------------------------------------------------------------------------------------


async def _document(session: Session, id: str, *, wait: float = 0) -> dict[str, Any]:
    return await session.api.send("GET", f"{_path(id)}?{urlencode({'wait': wait})}")


def _path(id: str) -> str:
    """Raises NotFoundError for what is no id, but the name of another of the API's routes."""
    if id in NO_IDS:
        raise NotFoundError("Document not found", f"no document {id!r}")
    return f"/v3/documents/{quote(id, safe='')}"


def _source(document: Mapping[str, Any]) -> str | None:
    return document["url"] or document["filepath"] or document["customId"]


def _status(document: Mapping[str, Any]) -> DocumentStatus:
    """The service may be set to finer words for what is under way."""
    status = document["status"]
    return status if status in ("queued", "done", "failed") else "processing"


TOOLS: tuple[Tool[Any, Any], ...] = (
    Tool(
        "search",
        "Search documents",
        "Find passages in the user's documents by meaning and words. Call it before you answer from"
        " memory about anything the user may have written down, read or collected. Answers with the"
        " best passages of each document; cite `source`, and call `get` for more of the text.",
        SearchFor,
        SearchAnswer,
        search,
        read_only=True,
    ),
    Tool(
        "add",
        "Add a document",
        "Keep a text, or the page behind a URL, so that `search` finds it from now on. Call it when"
        " the user asks to remember, save or note something. Give a `custom_id` to what will be"
        " updated later.",
        AddArguments,
        Added,
        add,
        open_world=True,
    ),
    Tool(
        "get",
        "Read a document",
        "Read one document: its text from `start` on, where it came from, and whether it is"
        " searchable yet or why it failed.",
        OneDocument,
        DocumentAnswer,
        get,
        read_only=True,
    ),
    Tool(
        "list",
        "List documents",
        "List documents, the newest first, in pages; to browse, or to see what waits or failed. To"
        " find something by what it says, call `search`.",
        SomeDocuments,
        DocumentPage,
        list_documents,
        read_only=True,
    ),
    Tool(
        "forget",
        "Delete a document",
        "Delete one document for good: text, passages and file. It cannot be had back: ask the user"
        " first, and name the document by its title.",
        ForgetDocument,
        ForgottenAnswer,
        forget,
        destructive=True,
    ),
    Tool(
        "connect",
        "Connect a source",
        "Keep a source such as a website or a drive in step with the service. Answers with a link"
        " where the user has to authorize it, or begins at once where nothing is to be authorized."
        " Every call makes one more connection: look with `sync_status` first.",
        ConnectArguments,
        Connected,
        connect,
        open_world=True,
    ),
    Tool(
        "sync_status",
        "Look at connections",
        "See how connections stand: state, last and next sync, what is wrong and what to do; with"
        " an id also the latest runs with their counts.",
        WhichConnections,
        Connections,
        sync_status,
        read_only=True,
    ),
)
