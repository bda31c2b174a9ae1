"""A search on the wire: what is asked for, and hits with their chunks."""

from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    Field,
)

from recollect.api.wire import (
    ABSENT,
    PLACE,
    WARNINGS,
    AsOf,
    FiltersIn,
    Id,
    Label,
    RequestBody,
    TagsIn,
    Text,
    Timestamp,
    Wire,
    example,
    not_blank,
)
from recollect.model import Hit, HitChunk


class SearchRequest(RequestBody):
    model_config = example(q="When do we meet?", containerTags=["team:a"], limit=5)

    q: Annotated[Text, Field(max_length=10_000), AfterValidator(not_blank)]
    limit: int = Field(
        10,
        ge=1,
        le=100,
        description="The most documents. Beside the best passage of each, as many of the best of"
        " all are shown, and ten at least.",
    )
    chunk_threshold: float = Field(0, ge=0, le=1, description="The least score of a passage.")
    document_threshold: float | None = Field(
        None, ge=0, le=1, description="The least score of a document, which is its best passage's."
    )
    container_tag: str | None = None
    container_tags: TagsIn | None = None
    filters: FiltersIn = None
    doc_id: Id | None = None
    include_full_docs: bool = False
    include_summary: bool = False
    only_matching_chunks: bool = True
    rerank: bool = False
    rewrite_query: bool = False
    fold_duplicates: bool = False
    as_of: AsOf = None
    categories_filter: list[str] | None = Field(None, description="Ignored.")
    filepath: Label | None = None


class AlsoInOut(Wire):
    document_id: str
    title: str | None
    position: int
    start: int
    end: int

    @classmethod
    def of(cls, chunk: HitChunk) -> list[Self] | None:
        return [
            cls(
                document_id=one.document.id,
                title=one.document.title,
                position=one.position,
                start=one.start,
                end=one.end,
            )
            for one in chunk.also_in
        ] or None


class HitChunkOut(Wire):
    content: str
    score: float
    is_relevant: bool
    position: int
    start: int = Field(description="Offset into the document's content, in code points.")
    end: int
    similarity: float | None = Field(description="Cosine of the vectors, without an embedder null.")
    lexical: float = Field(description="BM25 score.")
    rerank_score: float | None = Field(
        default=None,
        description="What the reranker makes of it, which counts in the order. Absent: it was not"
        " judged.",
        exclude_if=lambda value: value is None,
    )
    place: dict[str, Any] = PLACE
    also_in: list[AlsoInOut] | None = ABSENT

    @classmethod
    def of(cls, chunk: HitChunk) -> Self:
        return cls(
            content=chunk.text,
            score=chunk.score,
            is_relevant=chunk.is_relevant,
            position=chunk.position,
            start=chunk.start,
            end=chunk.end,
            similarity=None if chunk.similarity is None else round(chunk.similarity, 6),
            lexical=round(chunk.lexical, 6),
            rerank_score=None if chunk.reranked is None else round(chunk.reranked, 6),
            place=dict(chunk.place),
            also_in=AlsoInOut.of(chunk),
        )


class HitOut(Wire):
    document_id: str
    title: str | None
    type: str
    score: float
    chunks: list[HitChunkOut]
    metadata: dict[str, Any] | None
    created_at: Timestamp
    updated_at: Timestamp
    custom_id: str | None
    url: str | None
    filepath: str | None
    content: str | None = ABSENT
    summary: str | None = None

    @classmethod
    def of(cls, hit: Hit) -> Self:
        document = hit.document
        return cls(
            document_id=document.id,
            title=document.title,
            type=document.kind,
            score=hit.score,
            chunks=[HitChunkOut.of(chunk) for chunk in hit.chunks],
            metadata=None if document.metadata is None else dict(document.metadata),
            created_at=document.created_at,
            updated_at=document.updated_at,
            custom_id=document.custom_id,
            url=document.url,
            filepath=document.filepath,
            content=document.text,
        )


class SearchOut(Wire):
    results: list[HitOut]
    timing: float = Field(description="Milliseconds.")
    total: int
    warnings: list[str] | None = WARNINGS
