"""Merging container tags: what carries one of the sources gets the target, batch after batch."""

from datetime import timedelta

from recollect import documents, log
from recollect.app import App
from recollect.db import Tx
from recollect.errors import Contended, RecollectError, Transient
from recollect.loop import tell_bug
from recollect.orgs import tags
from recollect.orgs.tags import Merge
from recollect.sync import connections

LOG = log.get("tag merges")
BATCH = 100
"""Documents moved in one transaction."""
ALONG = timedelta(minutes=10)
"""How long after its begin a merge moves what others write to the sources. Later writes stay
there: a merge would never end where they come faster than it moves."""


def step(app: App) -> bool:
    """Move one batch of the merge that waits longest; whether there was one.

    A batch that fails is put off and tried again, some times, while other merges go on. Raises
    Unavailable when the database is.
    """
    claimed: list[Merge] = []

    def move(tx: Tx) -> None:
        claimed.clear()
        found = tags.claim_merge(tx)
        if found is None:
            return
        claimed.append(found)
        # Its connections come first, so that no sync brings the old tags back.
        connections.retag(tx, found.org_id, found.sources, found.target)
        moved, kept = documents.retag(
            tx,
            found.org_id,
            found.sources,
            found.target,
            kept=found.kept,
            until=found.created_at + ALONG,
            limit=BATCH,
        )
        tags.advance_merge(tx, found, moved, kept, done=moved + len(kept) < BATCH)

    try:
        app.db.write(move)
    except Exception as error:
        if not claimed or (isinstance(error, Transient) and not isinstance(error, Contended)):
            raise
        _put_off(app, claimed[0], error)
    return bool(claimed)


def _put_off(app: App, merge: Merge, error: Exception) -> None:
    told = str(error)
    if not isinstance(error, RecollectError):
        tell_bug(LOG, error)
        told = f"an error in Recollect itself ({type(error).__name__})"
    with app.db.begin() as tx:
        given_up = tags.fail_merge(tx, merge.id, told)
    LOG.warning("merge", outcome="given up" if given_up else "again", merge=merge.id, error=told)
