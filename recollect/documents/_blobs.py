"""Blobs that nobody names any more."""

from collections.abc import Sequence
from datetime import datetime

from recollect.db import Tx
from recollect.errors import (
    Unavailable,
)


def hold_blobs(tx: Tx) -> bool:
    """Keep all blobs that a document names now until this session ends. False: another session
    keeps them."""
    row = tx.execute(
        "select pg_try_advisory_lock(hashtextextended('recollect.blobs', 0)) as held"
    ).fetchone()
    return bool(row and row["held"])


def blobs_may_go(tx: Tx) -> bool:
    """Whether blobs may be deleted: no backup holds them, which has yet to copy them."""
    row = tx.execute(
        "select pg_try_advisory_xact_lock_shared(hashtextextended('recollect.blobs', 0)) as free"
    ).fetchone()
    return bool(row and row["free"])


def doomed_blobs(
    tx: Tx, limit: int = 100, *, after: str = "", since: datetime | None = None
) -> list[str]:
    """Keys of blobs that may be deleted now, because their document is gone or has new content.
    They come in the order of the keys, from the one behind `after`; `since`: only those that were
    given up then or later."""
    if not blobs_may_go(tx):
        return []
    rows = tx.execute(
        "select key from doomed_blobs where doomed_at < 'infinity' and key > %s"
        " and doomed_at >= coalesce(%s, '-infinity'::timestamptz) order by key limit %s",
        (after, since, limit),
    )
    return [row["key"] for row in rows]


def forget_blobs(tx: Tx, keys: Sequence[str]) -> None:
    """Delete the rows of blobs whose bytes are gone from the store."""
    tx.execute("delete from doomed_blobs where key = any(%s)", (list(keys),))


def some_blobs(tx: Tx, limit: int) -> list[str]:
    """Keys that documents name, of any organisation."""
    rows = tx.execute(
        "select blob from documents where blob is not null and gone_at is null limit %s", (limit,)
    )
    return [row["blob"] for row in rows]


def known_blobs(tx: Tx, keys: Sequence[str]) -> set[str]:
    """Those of the keys that must stay: a document names them, or a backup holds all blobs."""
    if not blobs_may_go(tx):
        return set(keys)
    rows = tx.execute("select blob from documents where blob = any(%s)", (list(keys),))
    return {row["blob"] for row in rows}


def disown_blobs(tx: Tx, keys: Sequence[str]) -> list[str]:
    """Those of the keys that no document names, nor ever will: their bytes may go after this.

    Bytes are stored before their row is made, and clocks do not tell which of them wait for it:
    one that is set right makes an upload of this second years old. So it is the key that is given
    up, for good (`doomed_at` is infinity), and a writer who comes to `name_blobs` too late begins
    again. Keys are random, and few are ever left: those of uploads that a crash cut off.
    """
    tx.execute("select pg_advisory_xact_lock(hashtextextended('recollect.naming', 0))")
    known = known_blobs(tx, keys)
    strays = [key for key in keys if key not in known]
    tx.execute(
        "insert into doomed_blobs (key, doomed_at) select unnest(%s::text[]), 'infinity'"
        " on conflict do nothing",
        (strays,),
    )
    return strays


def name_blobs(tx: Tx, keys: Sequence[str]) -> None:
    """Before rows are made that name these keys, in their transaction.

    Raises Unavailable when one of them was given up meanwhile (see `disown_blobs`).
    """
    tx.execute("select pg_advisory_xact_lock_shared(hashtextextended('recollect.naming', 0))")
    gone = tx.execute(
        "select from doomed_blobs where key = any(%s) and doomed_at = 'infinity' limit 1",
        (list(keys),),
    )
    if gone.fetchone() is not None:
        raise Unavailable("the file was swept before its document was there; send it again")
