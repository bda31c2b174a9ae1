"""Forgetting what answers a query: the likest memories of a tag, looked at before they go."""

from collections.abc import Sequence

from recollect.app import App
from recollect.memories import memories
from recollect.memories.memories import FoundMemory, Memory, MemoryQuery
from recollect.model import Tenant

MOST_MEMORIES = 1_000_000
"""More than a tag holds: all that match are looked at."""


LEAST = 0.6
"""From here on a memory answers a query (`memories.likeness`)."""
NEAR = 0.06
"""What is further below the likest than this is of the same person or matter, and something else:
by the default model, facts about somebody are all at 0.6 and more for a question about one."""


def matching(
    app: App, tenant: Tenant, tag: str, query: str, threshold: float | None = None
) -> list[FoundMemory]:
    """Live memories of the tag that answer the query, the likest first; before all others those
    whose text is the query itself, but for case and spaces.

    Without a `threshold` only those that answer it about as well as the likest does.
    """
    vector = None if app.embedder is None else app.embedder.embed([query], query=True)[0]
    with app.db.begin() as tx:
        same = memories.saying(tx, tenant, tag, query)
        found = memories.search(
            tx,
            tenant,
            query,
            vector,
            MemoryQuery(any_of=[tag], limit=MOST_MEMORIES),
            threshold=LEAST if threshold is None else threshold,
            candidates=None,
        )
    if threshold is None and found:
        found = [one for one in found if one.similarity >= found[0].similarity - NEAR]
    first = {one.id for one in same}
    likest = [one for one in found if one.memory.id not in first]
    return [*(FoundMemory(one, 1.0) for one in same), *likest]


def forget(
    app: App, tenant: Tenant, tag: str, found: Sequence[FoundMemory], reason: str | None, batch: str
) -> list[Memory]:
    """Forget them; what was corrected since it was found says something else now, and stays."""
    ids = [one.memory.id for one in found]
    with app.db.begin() as tx:
        memories.hold(tx, tenant, tag)
        still = {one.id for one in memories.named(tx, tenant, tag, ids)}
        return memories.forget_these(
            tx, tenant, tag, [id for id in ids if id in still], reason, batch
        )
