"""Merging container tags: what carries one of the sources gets the target, batch after batch."""

from recollect import connections, documents, tags
from recollect.app import App

BATCH = 100
"""Documents moved in one transaction."""


def step(app: App) -> bool:
    """Move one batch of the merge that waits longest; whether there was one.

    Its connections come first, so that no sync brings the old tags back.
    """
    with app.db.begin() as tx:
        found = tags.claim_merge(tx)
        if found is None:
            return False
        connections.retag(tx, found.org_id, found.sources, found.target)
        moved, kept = documents.retag(
            tx, found.org_id, found.sources, found.target, kept=found.kept, limit=BATCH
        )
        tags.advance_merge(tx, found, moved, kept, done=moved + len(kept) == 0)
    return True
