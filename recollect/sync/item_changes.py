"""What a sync hears of an item, brought into documents and rows."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from psycopg.types.json import Jsonb

from recollect import connectors, documents
from recollect.connectors.base import (
    Change,
    Folder,
    Gone,
    Item,
    Listed,
    Listing,
    Missing,
    Trouble,
    Verdict,
)
from recollect.db import Tx
from recollect.documents import SyncedDocument
from recollect.errors import NotFoundError, Refused
from recollect.model import ConnectionId, DocumentId, SyncClaim
from recollect.orgs import tags
from recollect.sync.item_filter import FILTERED, UNDECIDED, Gate, Ruling
from recollect.sync.item_rulings import note, recall
from recollect.sync.items import (
    DELETED,
    DOCUMENT,
    GUARDED,
    HELD,
    OVER_LIMIT,
    UNSUPPORTED,
    WAITS,
    Listings,
    SyncCounts,
    count_verdict,
    is_counted,
    item_of,
    now_of,
    remember,
    room,
    row_of,
    rows_outside,
    said_already,
    said_before,
    storable_change,
    tags_of,
)
from recollect.sync.same_items import SameItems, kept_out


def apply(
    tx: Tx,
    claim: SyncClaim,
    changes: Sequence[Change],
    *,
    listings: Listings,
    gate: Gate,
    counts: SyncCounts,
) -> None:
    """Make it so; the connection's row is locked by the caller, and what `undecided` returned of
    these changes was asked."""
    counts.free = room(tx, claim)
    changes = [
        _within_reach(claim, change) if isinstance(change, Item) else change
        for change in map(storable_change, changes)
    ]
    same = SameItems(tx, claim, changes, gate)
    _hold(tx, claim, same.others(changes, counts))
    for change in changes:
        if same.holds(change, counts):
            continue
        match change:
            case Item():
                _apply_item(tx, claim, change, gate, counts)
            case Verdict():
                _apply_verdict(tx, claim, change, counts)
            case Gone():
                _remove(tx, claim, [change.id], counts)
            case Missing():
                _apply_missing(tx, claim, change, counts)
            case Listing():
                listings.began[change.branch] = now_of(tx)
                listings.troubled.discard(change.branch)
                if not change.branch:
                    listings.troubled.clear()
            case Trouble():
                listings.troubled.add(change.branch)
                counts.note(change.message)
                counts.code = change.code
                counts.away = counts.away or change.away
                counts.failed += 1
            case Listed():
                _apply_listed(tx, claim, change.branch, listings, counts)
            case Folder():
                _apply_folder(tx, claim.connection.id, change)
            case _:
                raise TypeError(f"{type(change).__name__} is the sync's own")
    same.settle()
    note(tx, claim.connection.id, [one for one in changes if isinstance(one, Item)], gate)


def _hold(tx: Tx, claim: SyncClaim, changes: Sequence[Change]) -> None:
    """Lock the documents that may change, before anything is written.

    Who deletes documents locks them first and these rows of ours after that.
    """
    ids: list[str | None] = []
    for change in changes:
        match change:
            case Item():
                ids += [change.id, change.formerly]
            case Gone() | Missing() | Verdict():
                ids.append(change.id)
            case _:
                pass
    _lock(tx, claim, [id for id in ids if id is not None])


def _lock(tx: Tx, claim: SyncClaim, ids: Sequence[str]) -> None:
    """The documents of these things."""
    tx.execute(
        "select from documents d where d.id in (select document_id from items"
        "  where connection_id = %s and id = any(%s))"
        " order by d.archive_id is not null, d.id for update",
        (claim.connection.id, list(ids)),
    )


def reconsider(
    tx: Tx, claim: SyncClaim, gate: Gate, counts: SyncCounts, *, after: str, limit: int
) -> str | None:
    """Let in what the filter refused, or could not decide, and now admits, of up to `limit` things
    behind the id `after`.

    Returns the id to go on behind, None at the end. What `outside` returned of them was asked.
    """
    rows = rows_outside(tx, claim, after, limit)
    counts.free = room(tx, claim)
    for row in rows:
        item = item_of(row)
        ruling = gate.rule(item)
        if ruling is None:
            _apply_item(tx, claim, item, gate, counts)
        elif (ruling.verdict, ruling.reason) != (row["verdict"], row["detail"]):
            _keep_out(tx, claim, item.id, ruling)
            if (row["verdict"], ruling.verdict) == (UNDECIDED, FILTERED):
                counts.skipped[FILTERED] += 1
    note(tx, claim.connection.id, [item_of(row) for row in rows], gate)
    return rows[-1]["id"] if len(rows) == limit else None


def _keep_out(tx: Tx, claim: SyncClaim, id: str, ruling: Ruling) -> None:
    tx.execute(
        "update items set verdict = %s, detail = %s where connection_id = %s and id = %s",
        (ruling.verdict, ruling.reason, claim.connection.id, id),
    )


def fill(tx: Tx, claim: SyncClaim, gate: Gate, counts: SyncCounts, limit: int) -> bool:
    """Keep the newest within documentLimit: let in what waits for room, up to `limit` things.

    Newer things take the place of older ones, if the provider tells times. What the filter does
    not admit any more, as far as that is known, waits for room no longer. Whether any moved.
    """
    connection = claim.connection.id
    waiting = tx.execute(
        "select * from items where connection_id = %s and verdict = %s and version is not null"
        " order by modified_at desc nulls last, id limit %s",
        (connection, OVER_LIMIT, limit),
    ).fetchall()
    recall(tx, connection, [item_of(row) for row in waiting], gate)
    moved = False
    free = room(tx, claim)
    if free < 0:
        _evict(tx, claim, _oldest(tx, connection, -free, held=True), counts)
        return True
    for row in waiting:
        older = None if free > 0 else _older(tx, connection, row)
        if free <= 0 and older is None:
            break
        ruling = gate.rule(item_of(row))
        if ruling is not None:
            _keep_out(tx, claim, row["id"], ruling)
            counts.skipped[ruling.verdict] += 1
            moved = True
            continue
        if older is not None:
            _evict(tx, claim, [older], counts)
            free += 1
        _store(tx, claim, item_of(row), None, counts)
        free -= 1
        moved = True
    return moved


def leave_out(tx: Tx, claim: SyncClaim, item: Item, why: Refused, counts: SyncCounts) -> None:
    """An item that the database refuses: what it is so far it stays, and the run says why."""
    counts.failed += 1
    counts.code = why.code
    counts.note(f"{item.id[:100]} was left out: {why}")
    row = row_of(tx, claim, item.id)
    if row is None or row["verdict"] != DOCUMENT:
        told = Verdict(item.id, UNSUPPORTED, str(why), branch=item.branch)
        _apply_verdict(tx, claim, told, counts)


def _within_reach(claim: SyncClaim, item: Item) -> Item:
    """Without the tags that the keys behind the connection may not touch."""
    reach = claim.connection.reach
    foreign = [tag for tag in item.tags if reach is not None and tag not in reach]
    if not foreign:
        return item
    told = f"not tagged {foreign[0]!r}: the key that set this connection up may not use that tag"
    return replace(item, tags=tuple(tag for tag in item.tags if tag not in foreign), detail=told)


def _apply_item(tx: Tx, claim: SyncClaim, item: Item, gate: Gate, counts: SyncCounts) -> None:
    row = row_of(tx, claim, item.formerly) if item.formerly is not None else None
    if row is not None:
        # Under its new id; whatever was known under that one gives way.
        _remove(tx, claim, [item.id], counts, forget=True)
        tx.execute(
            "update items set id = %s where connection_id = %s and id = %s",
            (item.id, claim.connection.id, item.formerly),
        )
    else:
        row = row_of(tx, claim, item.id)
    known = row["document_id"] if row else None
    if row is not None and row["verdict"] == DOCUMENT and known is None:
        _stay_away(tx, claim, item, counts)
        return
    if item.confirm and known and row and not _said_before(claim, row):
        _await_another(tx, claim, item.id, item.detail)
        counts.skipped[WAITS] += 1
        return
    # The filter acts on new content only: what is here already stays.
    ruling = kept_out(item, gate, counts) if known is None else None
    if ruling is not None:
        remember(tx, claim, item, ruling.verdict, None, ruling.reason)
        counts.skipped[ruling.verdict] += 1
        return
    _store(tx, claim, item, row if known else None, counts)


def _store(
    tx: Tx, claim: SyncClaim, item: Item, row: Mapping[str, Any] | None, counts: SyncCounts
) -> None:
    """Make a document of it, or bring up to date that of its `row`."""
    connection = claim.connection
    item = _within_reach(claim, item)  # what waited for room may come from a wider time
    synced = SyncedDocument(
        connection_id=connection.id,
        source_id=item.id,
        provider=connection.provider,
        version=item.version,
        kind=item.kind or "text",
        tags=tags_of(claim, item),
        title=item.title,
        url=item.url,
        metadata=item.metadata,
        text=item.text,
    )
    if item.tags:  # those of the connection are there
        tags.ensure(tx, connection.org_id, item.tags)
    known: DocumentId | None = None if row is None else row["document_id"]
    try:
        id, changed, taken = documents.put(tx, connection.org_id, synced, known, said_before(row))
    except NotFoundError:  # deleted while we waited for its row
        _stay_away(tx, claim, item, counts)
        return
    remember(tx, claim, item, DOCUMENT, DocumentId(id), item.detail, taken)
    if known is None:
        counts.add(DocumentId(id))
        counts.free -= 1
    elif changed:
        counts.change(known)
    elif row is not None and not is_counted(claim, row):
        counts.unchanged += 1


def _stay_away(tx: Tx, claim: SyncClaim, item: Item, counts: SyncCounts) -> None:
    remember(tx, claim, item, DOCUMENT, None, "deleted here; it stays away")
    counts.skipped[DELETED] += 1


def _apply_verdict(tx: Tx, claim: SyncClaim, verdict: Verdict, counts: SyncCounts) -> None:
    row = row_of(tx, claim, verdict.id)
    if row is not None and row["verdict"] == DOCUMENT and row["document_id"] is None:
        tx.execute(
            "update items set seen_at = now() where connection_id = %s and id = %s",
            (claim.connection.id, verdict.id),
        )
        counts.skipped[DELETED] += 1
        return
    document: DocumentId | None = None if row is None else row["document_id"]
    if row is not None and document and verdict.confirm and not _said_before(claim, row):
        _await_another(tx, claim, verdict.id, verdict.detail)
    elif verdict.keep and document is not None:
        tx.execute(
            "update items set seen_at = now(), detail = %s where connection_id = %s and id = %s",
            (verdict.detail, claim.connection.id, verdict.id),
        )
    else:
        if document is not None:
            documents.drop(tx, claim.connection.org_id, [document])
            counts.remove([document])
            counts.free += 1
        tx.execute(
            "insert into items (connection_id, id, title, url, extra, branch, verdict, detail,"
            " seen_at) values (%(connection)s, %(id)s, %(title)s, %(url)s, %(extra)s, %(branch)s,"
            " %(verdict)s, %(detail)s, now())"
            " on conflict (connection_id, id) do update set title = excluded.title,"
            " url = excluded.url, extra = excluded.extra, branch = excluded.branch,"
            " verdict = excluded.verdict, detail = excluded.detail, seen_at = now(),"
            " version = null, document_id = null, missing_at = null",
            {
                "connection": claim.connection.id,
                "id": verdict.id,
                "title": verdict.title,
                "url": verdict.url,
                "extra": Jsonb(dict(verdict.extra)),
                "branch": verdict.branch,
                "verdict": verdict.kind,
                "detail": verdict.detail,
            },
        )
    if not said_already(claim, verdict, row):
        count_verdict(verdict, counts)


def _said_before(claim: SyncClaim, row: Mapping[str, Any]) -> bool:
    """Whether an earlier sync found it missing, early enough for this one to confirm it."""
    wait = connectors.get(claim.connection.provider).confirms_after
    return row["missing_at"] is not None and row["missing_at"] < claim.began_at - wait


def _apply_missing(tx: Tx, claim: SyncClaim, missing: Missing, counts: SyncCounts) -> None:
    row = row_of(tx, claim, missing.id)
    if row is None:
        return
    if _said_before(claim, row):
        _remove(tx, claim, [missing.id], counts)
        return
    _await_another(tx, claim, missing.id, missing.detail)
    counts.skipped["missing"] += 1


def _await_another(tx: Tx, claim: SyncClaim, id: str, detail: str | None) -> None:
    """The document stays as it is until another sync says the same."""
    tx.execute(
        "update items set missing_at = coalesce(missing_at, now()), seen_at = now(), detail = %s"
        " where connection_id = %s and id = %s",
        (detail, claim.connection.id, id),
    )


def _apply_listed(
    tx: Tx, claim: SyncClaim, branch: str, listings: Listings, counts: SyncCounts
) -> None:
    began = listings.began.pop(branch, None)
    if began is None or branch in listings.troubled:
        return
    unseen = {
        "connection": claim.connection.id,
        "branch": branch,
        "began": began,
        "troubled": list(listings.troubled),
        "since": claim.began_at,
    }
    tally = tx.execute(
        "select count(*) filter (where seen_at < %(began)s) as lost, count(*) as total,"
        " count(*) filter (where seen_at < %(began)s"
        "  and (missing_at is null or missing_at >= %(since)s)) as new"
        " from items where connection_id = %(connection)s and document_id is not null"
        " and (%(branch)s = '' or branch = %(branch)s) and not branch = any(%(troubled)s)",
        unseen,
    ).fetchone()
    assert tally is not None
    lost, new, total = tally["lost"], tally["new"], tally["total"]
    held = bool(new and ((new > GUARDED and new * 2 > total) or lost == total))
    if held:
        tx.execute(
            "update items set missing_at = coalesce(missing_at, now())"
            " where connection_id = %(connection)s and seen_at < %(began)s"
            " and document_id is not null"
            " and (%(branch)s = '' or branch = %(branch)s) and not branch = any(%(troubled)s)",
            unseen,
        )
        counts.note(
            f"This listing lacks {lost:,} of {total:,} documents. They are kept for now. The next"
            " sync deletes them if it sees the same, also one that is started by hand. Pause the"
            " connection to keep them until the source has been checked."
        )
        counts.code = counts.code or HELD
    rows = tx.execute(  # held: only what has no document, which would come in if there is room
        "select id from items where connection_id = %(connection)s and seen_at < %(began)s"
        " and (%(branch)s = '' or branch = %(branch)s) and not branch = any(%(troubled)s)"
        " and (document_id is null or not %(held)s)",
        {**unseen, "held": held},
    ).fetchall()
    _remove(tx, claim, [row["id"] for row in rows], counts)


def _apply_folder(tx: Tx, connection: ConnectionId, folder: Folder) -> None:
    if folder.parent is None:
        tx.execute(
            "delete from folders where connection_id = %s and id = %s", (connection, folder.id)
        )
        return
    tx.execute(
        "insert into folders (connection_id, id, name, parent) values (%s, %s, %s, %s)"
        " on conflict (connection_id, id) do update"
        " set name = excluded.name, parent = excluded.parent",
        (connection, folder.id, folder.name, folder.parent),
    )


def _remove(
    tx: Tx, claim: SyncClaim, ids: Sequence[str], counts: SyncCounts, *, forget: bool = False
) -> None:
    """Unless `forget`, what a user deleted here is kept in mind: it stays away if it comes back."""
    _lock(tx, claim, ids)
    rows = tx.execute(
        "delete from items where connection_id = %s and id = any(%s)"
        " and (verdict <> %s or document_id is not null or %s) returning document_id",
        (claim.connection.id, list(ids), DOCUMENT, forget),
    ).fetchall()
    tx.execute(
        "update items set missing_at = now()"
        " where connection_id = %s and id = any(%s) and missing_at is null",
        (claim.connection.id, list(ids)),
    )
    gone = [row["document_id"] for row in rows if row["document_id"] is not None]
    documents.drop(tx, claim.connection.org_id, gone)
    counts.remove(gone)
    counts.free += len(gone)


def _oldest(tx: Tx, connection: ConnectionId, count: int, *, held: bool) -> list[dict[str, Any]]:
    return tx.execute(
        "select * from items where connection_id = %s and document_id is not null"
        " and (missing_at is null or %s) order by modified_at asc nulls first, id desc limit %s",
        (connection, held, count),
    ).fetchall()


def _older(
    tx: Tx, connection: ConnectionId, waiting: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """What gives way to a newer thing, if its deletion is not held and the provider tells times."""
    for oldest in _oldest(tx, connection, 1, held=False):
        times = oldest["modified_at"], waiting["modified_at"]
        if None not in times and times[0] < times[1]:
            return oldest
    return None


def _evict(tx: Tx, claim: SyncClaim, rows: Sequence[Mapping[str, Any]], counts: SyncCounts) -> None:
    ids = [row["id"] for row in rows]
    _lock(tx, claim, ids)
    # What a user deleted while we waited is to stay away.
    rows = tx.execute(
        "select id, document_id from items where connection_id = %s and id = any(%s)"
        " and document_id is not null",
        (claim.connection.id, ids),
    ).fetchall()
    left = [row["id"] for row in rows]
    tx.execute(
        "update items set verdict = %s, detail = %s, document_id = null"
        " where connection_id = %s and id = any(%s)",
        (OVER_LIMIT, "documentLimit is reached by newer ones", claim.connection.id, left),
    )
    gone = [row["document_id"] for row in rows]
    documents.drop(tx, claim.connection.org_id, gone)
    counts.remove(gone)
