"""How a memory of a bundle compares with the chain of corrections that is here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recollect.db import Tx
from recollect.model import (
    OrgId,
)
from recollect.ops.backup._bundle import (
    BundledMemory,
    BundledSource,
)


@dataclass(frozen=True, slots=True)
class MemoryVersion:
    """A memory that is here, in the chain of its corrections."""

    id: str
    root: str
    parent: str | None
    content: str
    latest: bool
    forgotten: bool


def chain_of(tx: Tx, org: OrgId, id: str) -> dict[str, MemoryVersion]:
    """All versions of a memory, or of the first that is gone; locked, in the order of everybody
    who locks chains."""
    rows = tx.execute(
        "with its as (select coalesce((select coalesce(root_id, id) from memories"
        "  where org_id = %(org)s and id = %(id)s), %(id)s) as root)"
        " select m.id, coalesce(m.root_id, m.id) as root, m.parent_id, m.content, m.is_latest,"
        " m.forgotten_at from memories m, its"
        " where m.org_id = %(org)s and (m.id = its.root or m.root_id = its.root)"
        " order by coalesce(m.root_id, m.id), m.version, m.id for update of m",
        {"org": org, "id": id},
    )
    return {
        row["id"]: MemoryVersion(
            row["id"],
            row["root"],
            row["parent_id"],
            row["content"],
            row["is_latest"],
            row["forgotten_at"] is not None,
        )
        for row in rows
    }


def differs(given: BundledMemory, chain: Mapping[str, MemoryVersion], id: str) -> bool:
    """Whether it is forgotten on one side only, or current there and here another correction is.

    One that was corrected further here does not differ.
    """
    if id not in chain:  # deleted at this moment
        return True
    here = chain[id]
    if here.forgotten != (given.forgotten_at is not None):
        return True
    return given.latest and not any(
        one.content == here.content or id in _back(chain, one)
        for one in chain.values()
        if one.latest
    )


def _back(chain: Mapping[str, MemoryVersion], version: MemoryVersion) -> set[str]:
    """The ids of a version and of all versions before it."""
    found = {version.id}
    before = chain.get(version.parent or "")
    while before is not None and before.id not in found:
        found.add(before.id)
        before = chain.get(before.parent or "")
    return found


def source_columns(sources: Sequence[tuple[str, BundledSource]]) -> tuple[list[Any], ...]:
    return (
        [document for document, _ in sources],
        [bytes.fromhex(one.hash) for _, one in sources],
        [one.start for _, one in sources],
        [one.end for _, one in sources],
    )
