"""Wire models that several modules of the door share."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from recollect.api.document_schemas import public_status
from recollect.api.namespaces._door import flat
from recollect.api.wire import Timestamp, Wire, absent
from recollect.memories.extraction_queue import Dreaming
from recollect.memories.reading import Neighbour
from recollect.memories.records import Memory, Relation
from recollect.model import Chunk, Document, Status

Metadata = Annotated[dict[str, Any], Field(description="`{}` when there is none.")]
StatusWord = Literal["queued", "extracting", "chunking", "embedding", "indexing", "done", "failed"]


class NsWritten(Wire):
    id: str
    status: StatusWord

    @classmethod
    def of(cls, document: Document) -> Self:
        return cls(id=document.id, status=status_of(document))


class Times(Wire):
    created_at: Timestamp
    updated_at: Timestamp


class DocumentSystem(Times):
    status: StatusWord
    dreaming_status: Literal["dreaming", "done"]
    processing_stage: str | None = absent()
    memory_count: int | None = absent()
    error_code: str | None = absent()
    error_message: str | None = absent()

    @classmethod
    def of(cls, document: Document, dreaming: Dreaming | None, memories: int | None) -> Self:
        pending = document.status in (Status.QUEUED, Status.PROCESSING)
        failure = document.failure
        return cls(
            status=status_of(document),
            dreaming_status="dreaming" if pending or (dreaming and dreaming.pending) else "done",
            processing_stage=document.stage,
            memory_count=memories,
            error_code=failure.code if failure else None,
            error_message=failure.message if failure else None,
            created_at=document.created_at,
            updated_at=document.updated_at,
        )


class ChunkSystem(Wire):
    created_at: Timestamp


class NsChunkOut(Wire):
    id: str
    position: int
    content: str
    type: str
    metadata: Metadata
    start: int = Field(description="Offset into the document's published text, in code points.")
    end: int
    place: dict[str, Any]
    system: ChunkSystem
    document_id: str | None = absent()

    @classmethod
    def of(cls, document: Document, chunk: Chunk, *, listed: bool = False) -> Self:
        return cls(
            id=f"{document.id}.{chunk.position}",
            position=chunk.position,
            content=chunk.text,
            type="text",
            metadata={},
            start=chunk.start,
            end=chunk.end,
            place=dict(chunk.place),
            system=ChunkSystem(created_at=document.created_at),
            document_id=document.id if listed else None,
        )


class NsMemoryOut(Wire):
    id: str
    memory: str
    metadata: Metadata
    is_static: bool
    is_inference: bool
    is_latest: bool
    is_forgotten: bool
    version: int
    system: Times

    @classmethod
    def fields(cls, memory: Memory) -> dict[str, Any]:
        return {
            "id": memory.id,
            "memory": memory.content,
            "metadata": metadata_of(memory),
            "is_static": memory.is_static,
            "is_inference": memory.is_inference,
            "is_latest": memory.is_latest,
            "is_forgotten": memory.is_forgotten,
            "version": memory.version,
            "system": Times(created_at=memory.created_at, updated_at=memory.updated_at),
        }

    @classmethod
    def of(cls, memory: Memory) -> Self:
        return cls(**cls.fields(memory))


class SourceOut(Wire):
    id: str
    title: str | None
    type: str
    metadata: Metadata
    summary: str | None
    system: Times

    @classmethod
    def newest(cls, documents: Sequence[Document]) -> Self | None:
        """The one that changed last."""
        if not documents:
            return None
        document = max(documents, key=lambda one: one.updated_at)
        return cls(
            id=document.id,
            title=document.title,
            type=document.kind,
            metadata=flat(document.metadata),
            summary=None,
            system=Times(created_at=document.created_at, updated_at=document.updated_at),
        )


class NsChanged(Wire):
    updated_at: Timestamp
    created_at: Timestamp | None = absent()


class RelatedOut(Wire):
    id: str
    relation: Relation
    version: int = Field(description="Its own number among its versions, from 1.")
    memory: str
    metadata: Metadata
    system: NsChanged
    document: SourceOut | None = absent()


class Related(Wire):
    parents: list[RelatedOut]
    children: list[RelatedOut]
    siblings: list[RelatedOut]


STEPS = 3
"""from a version to others that are shown beside it"""


def beside(neighbours: Sequence[Neighbour], most: int) -> dict[str, list[Neighbour]]:
    """Earlier and later versions, the nearest first, and what extends or derives; none that was
    forgotten."""
    live = [one for one in neighbours if not one.is_forgotten]
    near = sorted(
        (one for one in live if one.distance is not None and abs(one.distance) <= STEPS),
        key=lambda one: abs(one.distance or 0),
    )
    return {
        "parents": [one for one in near if (one.distance or 0) < 0][:most],
        "children": [one for one in near if (one.distance or 0) > 0][:most],
        "siblings": [one for one in live if one.distance is None][:most],
    }


def related(
    groups: dict[str, list[Neighbour]], sources: dict[Any, list[Document]] | None = None
) -> Related:
    """`sources`: the documents of each of them, if those are to be shown."""
    return Related(
        **{
            name: [
                RelatedOut(
                    id=one.id,
                    relation=one.relation,
                    version=one.version,
                    memory=one.memory,
                    metadata=flat(one.metadata),
                    system=NsChanged(updated_at=one.updated_at),
                    document=SourceOut.newest(sources[one.id]) if sources is not None else None,
                )
                for one in some
            ]
            for name, some in groups.items()
        }
    )


class Named(Wire):
    id: str
    memory: str


class Refusal(Wire):
    id: str
    error: str


def status_of(document: Document) -> Any:
    """The clients' word, whatever the setting for `/v3` says."""
    return public_status(document, "sdk")


def metadata_of(memory: Memory) -> dict[str, Any]:
    found = flat(memory.metadata)
    return {**found, "temporalContext": dict(memory.temporal)} if memory.temporal else found
