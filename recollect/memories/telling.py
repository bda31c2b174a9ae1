"""Memories that a caller adds as texts: their place in the index is made here.

Nothing is drawn from them and no model is asked. The API, the console and MCP add and correct
memories by these two.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from recollect.app import App
from recollect.db import Tx
from recollect.index import terms
from recollect.memories import memories
from recollect.memories.records import Correction, Fact, Memory, MemoryTarget
from recollect.model import DocumentId, Tenant, random_id
from recollect.orgs import tags

MEMORY_LENGTH = 10_000
REASON_LENGTH = 1_000
"""characters"""


def add(
    app: App, tenant: Tenant, tag: str, facts: Sequence[Fact]
) -> tuple[DocumentId, list[Memory]]:
    """Know the facts, at least one, in the tag; the document that bears them, and the memories.

    Their `weights` and `vector` are made here. Not to be called in a transaction.
    """
    vectors = _vectors(app, [fact.text for fact in facts])
    placed = [
        replace(fact, weights=terms.weigh(tenant.id, fact.text), vector=vector)
        for fact, vector in zip(facts, vectors, strict=True)
    ]

    def write(tx: Tx) -> tuple[DocumentId, list[Memory]]:
        tags.ensure(tx, tenant.id, [tag])
        return memories.add(tx, tenant, tag, placed, DocumentId(random_id()))

    return app.db.write(write)


def correct(
    app: App, tenant: Tenant, tag: str, target: MemoryTarget, correction: Correction
) -> Memory:
    """Add a version; as `memories.correct`, with `weights` and `vector` made here.

    Not to be called in a transaction. Raises NotFoundError.
    """
    [vector] = _vectors(app, [correction.text])
    placed = replace(correction, weights=terms.weigh(tenant.id, correction.text), vector=vector)
    return app.db.write(lambda tx: memories.correct(tx, tenant, tag, target, placed))


def _vectors(app: App, texts: Sequence[str]) -> Sequence[NDArray[np.float32] | None]:
    """One for each text; without an embedder there are none."""
    if app.embedder is None:
        return [None] * len(texts)
    return list(app.embedder.embed(texts))
