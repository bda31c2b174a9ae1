"""Files that are of no document any more go from the store."""

from collections.abc import Sequence
from datetime import datetime

from recollect import documents
from recollect.blobs import Blobs, FileDeletion, delete_all
from recollect.db import Database


def delete_doomed(db: Database, store: Blobs, *, since: datetime | None = None) -> FileDeletion:
    """Those whose document is gone or has new content, as of `since`, each asked for once; nothing
    while a backup copies files. Raises Unavailable."""
    gone, kept, after = list[str](), list[str](), ""
    while True:
        with db.begin() as tx:
            held = not documents.blobs_may_go(tx)
            doomed = [] if held else documents.doomed_blobs(tx, after=after, since=since)
        if not doomed:
            return FileDeletion(gone, kept, held)
        done = delete_all(store, doomed)
        with db.begin() as tx:
            documents.forget_blobs(tx, done.gone)
        gone += done.gone
        kept += done.kept
        after = doomed[len(done.gone) + len(done.kept) - 1]


def delete_strays(db: Database, store: Blobs, keys: Sequence[str]) -> FileDeletion:
    """Those that no document names, which none ever will from now on. Raises Unavailable."""
    gone, kept = list[str](), list[str]()
    for start in range(0, len(keys), 500):
        with db.begin() as tx:
            left = documents.disown_blobs(tx, keys[start : start + 500])
        while left:
            done = delete_all(store, left)
            left = left[len(done.gone) + len(done.kept) :]
            gone += done.gone
            kept += done.kept
    return FileDeletion(gone, kept)
