"""Files that are of no document any more go from the store."""

from collections.abc import Sequence

from recollect import documents
from recollect.blobs import Blobs, FileDeletion, delete_all
from recollect.db import Database


def delete_doomed(db: Database, store: Blobs, *, but: Sequence[str] = ()) -> FileDeletion:
    """Those whose document is gone or has new content, except `but`; nothing while a backup copies
    files. Raises Unavailable."""
    gone, kept = list[str](), list(but)
    while True:
        with db.begin() as tx:
            doomed = documents.doomed_blobs(tx, but=kept)
        if not doomed:
            return FileDeletion(gone, kept[len(but) :])
        done = delete_all(store, doomed)
        with db.begin() as tx:
            documents.forget_blobs(tx, done.gone)
        gone += done.gone
        kept += done.kept


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
