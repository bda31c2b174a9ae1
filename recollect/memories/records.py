"""What a memory is, and how its row is read and bounded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, NewType

import numpy as np
from numpy.typing import NDArray
from psycopg import sql
from psycopg.types.json import Jsonb

from recollect import documents
from recollect.db import Tx, tenancy
from recollect.documents.filters import Filter
from recollect.documents.filters import compile as compile_filter
from recollect.errors import NotFoundError
from recollect.index import terms
from recollect.index.phrases import Phrase
from recollect.model import (
    DocumentId,
    Metadata,
    OrgId,
    Tenant,
)

MemoryId = NewType("MemoryId", str)
NO_PAST = "memories and profiles are known as they are today"
WHOLE = b""
"""Stands for a chunk in evidence that counts from the beginning of the document's text."""

COLUMNS = (
    "m.id, m.org_id, m.tag, m.content, m.version, m.parent_id, m.root_id, m.is_latest,"
    " m.is_static, m.is_inference, m.buckets, m.metadata, m.group_pairs, m.temporal,"
    " m.forget_after, m.forget_reason, m.forgotten_at, m.created_at, m.updated_at,"
    " m.forgotten_at is not null or m.forget_after <= now() is true as is_forgotten,"
    " array(select distinct s.document_id from memory_sources s where s.memory_id = m.id"
    "  order by s.document_id) as sources"
)
"""What `read_row` needs of a row of `memories m`."""
REACH = tenancy.with_one("m.tag", "m.org_id")
UNFORGOTTEN = "m.forgotten_at is null and (m.forget_after is null or m.forget_after > now())"
LIVE = "m.is_latest and " + UNFORGOTTEN


class Relation(StrEnum):
    """What a memory is to another: a newer version, an addition, or a conclusion."""

    UPDATES = "updates"
    EXTENDS = "extends"
    DERIVES = "derives"


@dataclass(frozen=True, slots=True)
class Memory:
    """One version of a fact."""

    id: MemoryId
    org_id: OrgId
    tag: str
    content: str
    version: int
    parent_id: MemoryId | None
    """the version before; None for the first, or when it is gone"""
    root_id: MemoryId | None
    """what all versions have in common: the first, maybe gone by now; None for itself"""
    is_latest: bool
    is_static: bool
    """stays true in the long run"""
    is_inference: bool
    """concluded, not said"""
    is_forgotten: bool
    """by a person, or because its time is over"""
    buckets: Sequence[str]
    metadata: Metadata | None
    temporal: Mapping[str, Any] | None
    """`documentDate`: when it was said; `eventDate`: a list, of what it tells; as given"""
    forget_after: datetime | None
    forget_reason: str | None
    forgotten_at: datetime | None
    sources: Sequence[DocumentId]
    created_at: datetime
    updated_at: datetime
    group: Metadata | None = None
    """of the document that it was drawn from; what has another group is another memory"""


@dataclass(frozen=True, slots=True)
class Span:
    """Evidence: characters `start` to `end` of the chunk text with this hash (see `WHOLE`)."""

    hash: bytes
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact to add. `weights` and `vector` stand for `text` in the index."""

    text: str
    weights: Mapping[int, float] = field(default_factory=dict[int, float])
    """as of `terms.weigh`"""
    vector: NDArray[np.float32] | None = None
    is_static: bool = False
    is_inference: bool = False
    buckets: Sequence[str] = ()
    metadata: Metadata | None = None
    group: Metadata | None = None
    temporal: Mapping[str, Any] | None = None
    forget_after: datetime | None = None
    forget_reason: str | None = None
    updates: MemoryId | None = None
    """of what it is a new version"""
    related: Mapping[MemoryId, Relation] = field(default_factory=dict[MemoryId, Relation])
    """what it `extends` and `derives` from"""
    spans: Sequence[Span] = ()
    """in the document that it is drawn from, at least one"""


@dataclass(frozen=True, slots=True)
class Correction:
    """A new text for a memory. None keeps what the version before has."""

    text: str
    weights: Mapping[int, float] = field(default_factory=dict[int, float])
    vector: NDArray[np.float32] | None = None
    metadata: Metadata | None = None
    temporal: Mapping[str, Any] | None = None
    sets_expiry: bool = False
    """whether `forget_after` counts, None included: then it never expires, and has no reason to"""
    forget_after: datetime | None = None
    forget_reason: str | None = None


@dataclass(frozen=True, slots=True)
class MemoryTarget:
    """The memory that a caller means: by the id of any of its versions, else by its exact text."""

    id: str | None = None
    content: str | None = None


@dataclass(frozen=True, slots=True)
class MemoryQuery:
    """Which memories; all conditions must hold. Only latest versions are found."""

    tags: Sequence[str] = ()
    """that a source carries all of; one of them is the memory's own"""
    any_of: Sequence[str] = ()
    """one of them is the memory's own"""
    filter: Filter | None = None
    grouped: bool = False
    """whether `group` counts: only those of just this group, None: those of none"""
    group: Metadata | None = None
    filepath: str | None = None
    """of a source: exact, or a prefix when it ends in `/`"""
    phrases: Sequence[Phrase] = ()
    """that it holds, all of them"""
    excluded: Sequence[Phrase] = ()
    """that it does not hold, none of them"""
    forgotten: bool = False
    """those that were forgotten as well"""
    sort: Literal["created_at", "updated_at"] = "created_at"
    descending: bool = True
    limit: int = 10
    page: int = 1


_WITHOUT = "not (m.terms && {}::int4[])"


def condition_of(tenant: Tenant, query: MemoryQuery) -> tuple[sql.Composable, dict[str, object]]:
    """A boolean SQL expression over `memories m` with its parameters; never another tenant's."""
    parts: list[sql.Composable] = [sql.SQL(REACH), sql.SQL("m.is_latest")]
    parameters: dict[str, object] = {**tenancy.bounds(tenant)}
    if not query.forgotten:
        parts.append(sql.SQL(UNFORGOTTEN))
    named = [*query.tags, *query.any_of]
    if named:
        whole = [tag for tag in named if not tag.endswith(documents.BELOW)]
        below = [tag.removesuffix("*") for tag in named if tag.endswith(documents.BELOW)]
        parts.append(
            sql.SQL(
                "(m.tag = any(%(own)s::text[]) or exists"
                " (select from unnest(%(below)s::text[]) as b where starts_with(m.tag, b)))"
            )
            if below
            else sql.SQL("m.tag = any(%(own)s::text[])")
        )
        parameters |= {"own": whole, "below": below}
    if query.filepath is not None or len(query.tags) > 1:
        borne, more = documents.condition(
            tenant, documents.DocumentQuery(tags=query.tags, filepath=query.filepath)
        )
        parts.append(
            sql.SQL(
                "exists (select from memory_sources s join documents d on d.id = s.document_id"
                " where s.memory_id = m.id and {})"
            ).format(borne)
        )
        parameters |= more
    if query.filter is not None:
        compiled, values = compile_filter(
            query.filter, sql.SQL("m.metadata"), sql.SQL("m.group_pairs")
        )
        parts.append(compiled)
        parameters |= values
    if query.grouped:
        parts.append(sql.SQL("m.group_pairs is not distinct from %(group)s::jsonb"))
        parameters["group"] = jsonb_of(query.group or None)
    held = [word for one in query.phrases for word in one.words]
    away = [one.words[0] for one in query.excluded if len(one.words) == 1]
    for place, word in enumerate([*held, *away]):
        holds = sql.SQL("(m.terms && {}::int4[])" if place < len(held) else _WITHOUT)
        parts.append(holds.format(sql.Placeholder(f"word{place}")))
        parameters[f"word{place}"] = list(terms.numbers(tenant.id, word))
    return sql.SQL(" and ").join(parts), parameters


def what_else_they_are(tx: Tx, tenant: Tenant, ids: Sequence[str]) -> dict[str, str]:
    """What those of the ids, which are no memories', are instead."""
    if not ids:
        return {}
    borne, more = documents.condition(tenant, documents.DocumentQuery())
    rows = tx.execute(
        sql.SQL("select d.id from documents d where {} and d.id = any(%(ids)s)").format(borne),
        {**more, "ids": list(ids)},
    )
    told = "is the id of a document; delete the document to remove those"
    return {row["id"]: told for row in rows}


def jsonb_of(value: Mapping[str, Any] | None) -> Jsonb | None:
    return None if value is None else Jsonb(dict(value))


def unknown_memory(target: MemoryTarget, why: str | None) -> NotFoundError:
    if target.id is None:
        told = f"what has this content {why}" if why else "no memory with exactly this content"
        return NotFoundError("Memory not found", told)
    details = f"{target.id!r} {why}" if why else f"no memory {target.id!r} in this containerTag"
    return NotFoundError("Memory not found", details)


def read_row(row: Mapping[str, Any]) -> Memory:
    return Memory(
        id=MemoryId(row["id"]),
        org_id=OrgId(row["org_id"]),
        tag=row["tag"],
        content=row["content"],
        version=row["version"],
        parent_id=MemoryId(row["parent_id"]) if row["parent_id"] else None,
        root_id=MemoryId(row["root_id"]) if row["root_id"] else None,
        is_latest=row["is_latest"],
        is_static=row["is_static"],
        is_inference=row["is_inference"],
        is_forgotten=row["is_forgotten"],
        buckets=row["buckets"],
        metadata=row["metadata"],
        temporal=row["temporal"],
        forget_after=row["forget_after"],
        forget_reason=row["forget_reason"],
        forgotten_at=row["forgotten_at"],
        sources=[DocumentId(id) for id in row["sources"]],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        group=row["group_pairs"],
    )
