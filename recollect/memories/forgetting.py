"""Forgetting what answers a query: the likest memories of a tag, looked at before they go."""

from collections.abc import Sequence

from recollect.app import App
from recollect.memories import memories
from recollect.memories.memories import Found, Memory, MemoryQuery
from recollect.model import Tenant

MOST_MEMORIES = 1_000_000
"""More than a tag holds: all that match are looked at."""


def matching(app: App, tenant: Tenant, tag: str, query: str, threshold: float) -> list[Found]:
    """Live memories of the tag that answer the query, the likest first; before all others those
    whose text is the query itself, but for case and spaces."""
    vector = None if app.embedder is None else app.embedder.embed([query], query=True)[0]
    with app.db.begin() as tx:
        same = memories.saying(tx, tenant, tag, query)
        found = memories.search(
            tx,
            tenant,
            query,
            vector,
            MemoryQuery(any_of=[tag], limit=MOST_MEMORIES),
            threshold=threshold,
            candidates=None,
        )
    first = {one.id for one in same}
    likest = [one for one in found if one.memory.id not in first]
    return [*(Found(one, 1.0) for one in same), *likest]


def forget(
    app: App, tenant: Tenant, tag: str, found: Sequence[Found], reason: str | None, batch: str
) -> list[Memory]:
    """Forget them; what was corrected since it was found says something else now, and stays."""
    ids = [one.memory.id for one in found]
    with app.db.begin() as tx:
        memories.hold(tx, tenant, tag)
        still = {one.id for one in memories.named(tx, tenant, tag, ids)}
        return memories.forget_these(
            tx, tenant, tag, [id for id in ids if id in still], reason, batch
        )
