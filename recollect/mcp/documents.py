"""Tools that find, add, read, list and delete documents."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import quote, unquote, urlencode

from pydantic import Field

from recollect.errors import NotFoundError, Transient
from recollect.mcp.seam import Session
from recollect.mcp.tool import Arguments, ReadTag, Tag, ToolAnswer
from recollect.search.ranking import ONLY_WEAK

PASSAGES = 3
"""Of each document that a search finds, the best, unless more are asked for."""
WHOLE = 20_000
"""Characters of a text that are handed over at once unless more are asked for."""
LONGEST = 200_000
"""Characters of a text that are handed over at once."""

DocumentRef = Annotated[
    str, Field(min_length=1, description="Id from `search` or `list`, or the custom_id it has.")
]
DocumentStatus = Literal["queued", "processing", "done", "failed"]


class SearchFor(Arguments):
    query: str = Field(
        min_length=1,
        max_length=10_000,
        description='A question, or words; "an exact phrase" must be there, -word must not.',
    )
    tag: ReadTag = None
    limit: int = Field(5, ge=1, le=50, description="The most documents.")
    passages: int = Field(PASSAGES, ge=1, le=20, description="The most passages of a document.")
    filters: dict[str, Any] | None = Field(
        None,
        description="Metadata filter, such as"
        ' {"AND": [{"key": "year", "value": "2026"}]}; OR works the same way.',
    )
    rerank: bool = Field(
        False, description="A model judges the first passages, where the service has one; slower."
    )
    as_of: str | None = Field(
        None, description="Search what was known at that time: 2026-11-20, or with a time of day."
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
    also_in: list[str] | None = Field(description="Ids of documents that say the same.")


class FoundDocument(ToolAnswer):
    id: str
    uri: str = Field(description="Resource with the whole text.")
    url: str = Field(description="Its address on the web, else `uri`.")
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
        "asOf": asked.as_of,
        "foldDuplicates": True,
    }
    answer = await session.api.send("POST", "/v3/search", body)
    hits = answer["results"]
    relevant = any(chunk["isRelevant"] for hit in hits for chunk in hit["chunks"])
    return SearchAnswer(
        results=[_found(hit, asked.passages) for hit in hits],
        warnings=answer.get("warnings"),
        note=None if relevant else ONLY_WEAK if hits else "Nothing found.",
    )


def _found(hit: Mapping[str, Any], passages: int) -> FoundDocument:
    best = hit["chunks"][:passages]
    return FoundDocument(
        id=hit["documentId"],
        uri=uri_of(hit["documentId"]),
        url=hit.get("url") or uri_of(hit["documentId"]),
        title=hit["title"],
        type=hit["type"],
        score=hit["score"],
        source=_source(hit),
        metadata=hit.get("metadata"),
        passages=[
            Passage(
                text=chunk["content"],
                score=chunk["score"],
                rerank_score=chunk.get("rerankScore"),
                start=chunk["start"],
                end=chunk["end"],
                place=chunk["place"],
                also_in=[one["documentId"] for one in chunk.get("alsoIn", ())] or None,
            )
            for chunk in best
        ],
    )


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
        " updates that document instead of making another: text that keeps at least half of its"
        " lines replaces it, other text is put behind it. To replace it by other text, `forget` it"
        " first.",
    )
    metadata: dict[str, str | int | float | bool | list[str]] | None = Field(
        None,
        description='Flat, for filters: {"project": "heron", "year": 2026, "topics": ["birds"]}.',
    )
    wait_seconds: float = Field(
        10, ge=0, le=30, description="Seconds to wait for it to become searchable."
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
    try:
        document = await _document(session, id, wait=new.wait_seconds)
    except Transient:
        # It is kept: an assistant that is told to try again would add it once more.
        return Added(id=id, uri=uri_of(id), status="queued", error=None)
    return Added(
        id=id,
        uri=uri_of(id),
        status=_status(document),
        error=document.get("errorMessage"),
    )


class OneDocument(Arguments):
    id: DocumentRef
    start: int = Field(0, ge=0, description="First character of the text that is wanted.")
    length: int = Field(WHOLE, ge=0, le=LONGEST, description="The most characters of it.")


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
    text = document.get("content") or ""
    return DocumentAnswer(
        id=document["id"],
        uri=uri_of(document["id"]),
        title=document["title"],
        type=document["type"],
        status=_status(document),
        source=_source(document),
        tags=document["containerTags"],
        metadata=document.get("metadata"),
        created_at=document["createdAt"],
        updated_at=document["updatedAt"],
        error=document.get("errorMessage"),
        warnings=document["warnings"],
        text=text[wanted.start : wanted.start + wanted.length],
        start=wanted.start,
        total_length=len(text),
    )


class WantedDocument(Arguments):
    id: DocumentRef


class FetchedDocument(ToolAnswer):
    """In the words that assistants which only know `search` and `fetch` want."""

    id: str
    title: str
    text: str = Field(description="The whole text, or its first 200,000 characters.")
    url: str = Field(description="Its address on the web, else that of the resource.")
    metadata: dict[str, Any] | None
    note: str | None = Field(description="Set where some of the text is or may be missing.")


async def fetch(session: Session, wanted: WantedDocument) -> FetchedDocument:
    document = await _document(session, wanted.id)
    uri, text = uri_of(document["id"]), document.get("content") or ""
    return FetchedDocument(
        id=document["id"],
        title=document["title"] or _source(document) or document["id"],
        text=text[:LONGEST],
        url=document.get("url") or uri,
        metadata=document.get("metadata"),
        note=_missing(document, text),
    )


def _missing(document: Mapping[str, Any], text: str) -> str | None:
    """What `fetch` does not bring of the document; None where that is nothing."""
    status = _status(document)
    found = [] if status == "done" else [f"The document is {status}."]
    if error := document.get("errorMessage"):
        found.append(error)
    found += document["warnings"]
    if len(text) > LONGEST:
        found.append(
            f"These are the first {LONGEST:,} of {len(text):,} characters: call `get` with"
            f" start={LONGEST} for more."
        )
    return "\n".join(found) or None


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


# Documents as resources

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
    return (await session.api.send("GET", _path(unquote(quoted)))).get("content") or ""


async def _document(session: Session, id: str, *, wait: float = 0) -> dict[str, Any]:
    return await session.api.send("GET", f"{_path(id)}?{urlencode({'wait': wait})}")


def _path(id: str) -> str:
    """Raises NotFoundError for what is not an id, but the name of another of the API's routes."""
    if id in NO_IDS:
        raise NotFoundError("Document not found", f"no document {id!r}")
    return f"/v3/documents/{quote(id, safe='')}"


def _source(document: Mapping[str, Any]) -> str | None:
    return document.get("url") or document["filepath"] or document["customId"]


def _status(document: Mapping[str, Any]) -> DocumentStatus:
    """The service may be set to finer words for what is under way."""
    status = document["status"]
    return status if status in ("queued", "done", "failed") else "processing"
