"""Tools that say what is there beside documents: container tags, memories, the profile."""

from typing import Any

from pydantic import Field

from recollect.mcp.seam import Session
from recollect.mcp.tool import Arguments, Tag, ToolAnswer
from recollect.orgs.tags import DEFAULT

TAGS = 100
"""on a page"""
MEMORIES = 10


class SomeTags(Arguments):
    page: int = Field(1, ge=1, le=1_000_000)


class TagAnswer(ToolAnswer):
    tag: str
    name: str | None
    about: str | None = Field(description="What the tag is about.")
    documents: int


class TagPage(ToolAnswer):
    tags: list[TagAnswer]
    page: int
    pages: int
    total: int = Field(description="Tags on all pages.")


async def list_tags(session: Session, wanted: SomeTags) -> TagPage:
    path = f"/v3/container-tags/list?limit={TAGS}&page={wanted.page}"
    answer = await session.api.send("GET", path)
    return TagPage(
        tags=[
            TagAnswer(
                tag=one["containerTag"],
                name=one.get("name"),
                about=one.get("entityContext"),
                documents=one["documentCount"],
            )
            for one in answer["containerTags"]
        ],
        page=wanted.page,
        pages=answer["pagination"]["totalPages"],
        total=answer["pagination"]["totalItems"],
    )


class AboutWhom(Arguments):
    tag: Tag = None
    query: str | None = Field(
        None, min_length=1, max_length=10_000, description="Also find memories that answer this."
    )


class MatchedMemory(ToolAnswer):
    memory: str
    likelihood: float = Field(description="How likely it answers the query, 0 to 1.")
    updated_at: str


class ProfileAnswer(ToolAnswer):
    tag: str
    static: list[str] = Field(description="What stays true.")
    dynamic: list[str] = Field(description="What was true lately, the newest first.")
    found: list[MatchedMemory] = Field(
        description="Memories that answer it, the most likely first."
    )
    warnings: list[str] | None = Field(description="What was asked for and not done.")


async def profile(session: Session, asked: AboutWhom) -> ProfileAnswer:
    [tag] = session.tags(asked.tag) or [await _own_tag(session)]
    body: dict[str, Any] = {"containerTag": tag}
    told = (await session.api.send("POST", "/v4/profile", body))["profile"]
    answer: dict[str, Any] = {"results": []}
    if asked.query is not None:
        search = {**body, "q": asked.query, "limit": MEMORIES}
        answer = await session.api.send("POST", "/v4/search", search)
    return ProfileAnswer(
        tag=tag,
        static=told.get("static") or [],
        dynamic=told.get("dynamic") or [],
        found=[
            MatchedMemory(
                memory=one["memory"], likelihood=one["similarity"], updated_at=one["updatedAt"]
            )
            for one in answer["results"]
            if one.get("memory")
        ],
        warnings=answer.get("warnings"),
    )


async def _own_tag(session: Session) -> str:
    """The tag to which the key writes when none is named."""
    scope = (await session.api.send("GET", "/v3/session"))["scope"]
    return scope.get("containerTags", [DEFAULT])[0]
