"""What a connection knows of each thing at its provider, and the documents made of it.

`apply` is the one place where what a connector says becomes documents: filter, limit, renames,
disappearance and the guard against mass deletion are decided here, for every connector alike. It
runs in the transaction that stores the cursor.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import Any

from psycopg.types.json import Jsonb

from recollect import documents
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
from recollect.documents import Said, SyncedDocument, content_hash
from recollect.errors import NotFoundError, Refused
from recollect.model import ConnectionId, DocumentId, Page, Remembered, SyncClaim, storable
from recollect.orgs import tags
from recollect.sync import change_log
from recollect.sync.change_log import What
from recollect.sync.item_filter import FILTERED, KEYS, UNDECIDED, Gate, Judgement, Ruling

DOCUMENT = "document"
"""The verdict on things that are documents, or were until a user deleted the document."""
OVER_LIMIT = "over_limit"
DELETED = "deleted"
PLANNED = "planned"
UNSUPPORTED = "unsupported"
HELD = "mass_deletion_held"
WAITS_FOR_MODEL = "filter_undecided"
GUARDED = 20
"""A listing that lost more documents than this, and more than half, has to be confirmed."""

_VERDICT = "case when verdict = 'document' and document_id is null then 'deleted' else verdict end"


@dataclass(slots=True)
class Counts:
    """What one sync did; `notes` are sentences for people."""

    added: int = 0
    changed: int = 0
    unchanged: int = 0
    removed: int = 0
    failed: int = 0
    skipped: Counter[str] = field(default_factory=Counter[str])
    notes: list[str] = field(default_factory=list[str])
    code: str | None = None
    """of the worst trouble: the run is partial"""
    away: bool = False
    """the source could not be reached at all"""
    again: timedelta | None = None
    """after how long the source wants to be looked at again"""
    free: int = 0
    """how many more documents the limit admits"""
    fresh: dict[DocumentId, What] = field(default_factory=dict[DocumentId, What])
    """what was done to which document in this transaction: the feed lacks it yet"""
    listed: int = 0
    """rows of the feed that the run has"""

    def become(self, other: "Counts") -> None:
        """After a transaction that came to nothing."""
        for one in fields(self):
            setattr(self, one.name, getattr(other, one.name))

    def note(self, sentence: str) -> None:
        if sentence not in self.notes and len(self.notes) < 20:
            self.notes.append(sentence)

    def add(self, id: DocumentId) -> None:
        self.added += 1
        self.fresh[id] = "added"

    def change(self, id: DocumentId) -> None:
        self.changed += 1
        self.fresh.setdefault(id, "changed")

    def remove(self, ids: Sequence[DocumentId]) -> None:
        self.removed += len(ids)
        self.fresh.update(dict.fromkeys(ids, "removed"))


@dataclass(slots=True)
class Listings:
    """The listings that are under way, and what waits to be confirmed; stored with the cursor."""

    began: dict[str, datetime]
    troubled: set[str]
    held: dict[str, int]
    """branch → how many documents a listing would have removed"""


@dataclass(frozen=True, slots=True)
class Branch:
    """A step in the tree of the addresses that a connection saw."""

    prefix: str
    """the address, or what all addresses in the folder begin with"""
    name: str
    """its last part"""
    verdicts: Mapping[str, int]
    """how many things in it have which verdict, itself included"""
    own: Remembered | None
    """what was seen at exactly this address"""

    @property
    def is_folder(self) -> bool:
        """Whether more than the thing itself stands there."""
        return sum(self.verdicts.values()) > (0 if self.own is None else 1)


def apply(
    tx: Tx,
    claim: SyncClaim,
    changes: Sequence[Change],
    *,
    listings: Listings,
    gate: Gate,
    counts: Counts,
) -> None:
    """Make it so; the connection's row is locked by the caller, and what `undecided` returned of
    these changes was asked."""
    counts.free = room(tx, claim)
    changes = [
        _within_reach(claim, change) if isinstance(change, Item) else change
        for change in map(_storable, changes)
    ]
    same = _Same(tx, claim, changes)
    _hold(tx, claim, [change for change in changes if not same.covers(change)])
    for change in changes:
        if same.holds(change, counts):
            continue
        same.settle(change)
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
                listings.began[change.branch] = _now(tx)
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
    same.settle(None)
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


def tell(tx: Tx, claim: SyncClaim, counts: Counts) -> None:
    """Write into the feed of the run what this transaction did; the last that it does."""
    room = change_log.MOST - counts.listed
    change_log.keep(tx, claim.run_id, counts.fresh, room=room)
    counts.listed += min(len(counts.fresh), max(room, 0))
    counts.fresh = {}


def note_unlisted(counts: Counts) -> None:
    """At the end of a sync: say that the feed is not complete, if it is not."""
    total = counts.added + counts.changed + counts.removed
    if counts.listed >= change_log.MOST < total:
        counts.note(
            f"The feed lists the first {change_log.MOST:,} changes of this sync;"
            f" there were {total:,}."
        )


def room(tx: Tx, claim: SyncClaim) -> int:
    """How many more documents the limit admits; the claim's own limit, not that of the row."""
    row = tx.execute(
        "select count(*) as n from documents where connection_id = %s", (claim.connection.id,)
    ).fetchone()
    assert row is not None
    return claim.connection.document_limit - row["n"]


def reconsider(
    tx: Tx, claim: SyncClaim, gate: Gate, counts: Counts, *, after: str, limit: int
) -> str | None:
    """Let in what the filter refused, or could not decide, and now admits, of up to `limit` things
    behind the id `after`.

    Returns the id to go on behind, None at the end. What `outside` returned of them was asked.
    """
    rows = _outside(tx, claim, after, limit)
    counts.free = room(tx, claim)
    for row in rows:
        item = _item(row)
        ruling = gate.rule(item)
        if ruling is None:
            _apply_item(tx, claim, item, gate, counts)
        elif (ruling.verdict, ruling.reason) != (row["verdict"], row["detail"]):
            _keep_out(tx, claim, item.id, ruling)
            if (row["verdict"], ruling.verdict) == (UNDECIDED, FILTERED):
                counts.skipped[FILTERED] += 1
    note(tx, claim.connection.id, [_item(row) for row in rows], gate)
    return rows[-1]["id"] if len(rows) == limit else None


def _outside(tx: Tx, claim: SyncClaim, after: str, limit: int) -> list[dict[str, Any]]:
    return tx.execute(
        "select * from items where connection_id = %s and verdict = any(%s)"
        " and version is not null and id > %s order by id limit %s",
        (claim.connection.id, [FILTERED, UNDECIDED], after, limit),
    ).fetchall()


def _keep_out(tx: Tx, claim: SyncClaim, id: str, ruling: Ruling) -> None:
    tx.execute(
        "update items set verdict = %s, detail = %s where connection_id = %s and id = %s",
        (ruling.verdict, ruling.reason, claim.connection.id, id),
    )


def fill(tx: Tx, claim: SyncClaim, gate: Gate, counts: Counts, limit: int) -> bool:
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
    recall(tx, connection, [_item(row) for row in waiting], gate)
    moved = False
    free = room(tx, claim)
    if free < 0:
        _evict(tx, claim, _oldest(tx, connection, -free), counts)
        return True
    for row in waiting:
        older = None if free > 0 else _older(tx, connection, row)
        if free <= 0 and older is None:
            break
        ruling = gate.rule(_item(row))
        if ruling is not None:
            _keep_out(tx, claim, row["id"], ruling)
            counts.skipped[ruling.verdict] += 1
            moved = True
            continue
        if older is not None:
            _evict(tx, claim, [older], counts)
            free += 1
        _store(tx, claim, _item(row), None, counts)
        free -= 1
        moved = True
    return moved


def remembered(
    tx: Tx,
    connection: ConnectionId,
    *,
    ids: Sequence[str] | None = None,
    branch: str | None = None,
    after: str | None = None,
    limit: int = 1000,
) -> list[Remembered]:
    """What is known, by id, `limit` at a time from `after` on."""
    rows = tx.execute(
        "select * from items where connection_id = %(connection)s"
        " and (%(ids)s::text[] is null or id = any(%(ids)s::text[]))"
        " and (%(branch)s::text is null or branch = %(branch)s)"
        " and (%(after)s::text is null or id > %(after)s) order by id limit %(limit)s",
        {
            "connection": connection,
            "ids": None if ids is None else list(ids),
            "branch": branch,
            "after": after,
            "limit": limit,
        },
    )
    return [_remembered(row) for row in rows]


def get(tx: Tx, connection: ConnectionId, id: str) -> Remembered:
    """Raises NotFoundError."""
    found = remembered(tx, connection, ids=[id])
    if not found:
        raise NotFoundError("Not found", f"this connection never saw {id!r}")
    return found[0]


def find(
    tx: Tx,
    connection: ConnectionId,
    *,
    verdict: str | None,
    text: str | None,
    limit: int,
    page: int,
) -> Page[Remembered]:
    """One page of what is known, the latest seen first; `text` is looked for in id and title."""
    rows = tx.execute(
        "select *, count(*) over () as total from items where connection_id = %(connection)s"
        " and (%(verdict)s::text is null or " + _VERDICT + " = %(verdict)s)"
        " and (%(text)s::text is null or position(lower(%(text)s) in lower(id)) > 0"
        "      or position(lower(%(text)s) in lower(title)) > 0)"
        " order by seen_at desc, id limit %(limit)s offset %(offset)s",
        {
            "connection": connection,
            "verdict": verdict,
            "text": text,
            "limit": limit,
            "offset": (page - 1) * limit,
        },
    ).fetchall()
    total = rows[0]["total"] if rows else 0
    return Page([_remembered(row) for row in rows], total, page, limit)


def verdicts(tx: Tx, connection: ConnectionId) -> Mapping[str, int]:
    """How many things have which verdict."""
    rows = tx.execute(
        "select " + _VERDICT + " as verdict, count(*) as n"
        " from items where connection_id = %s group by 1 order by 2 desc, 1",
        (connection,),
    )
    return {row["verdict"]: row["n"] for row in rows}


def below(tx: Tx, connection: ConnectionId, prefix: str, *, after: str, limit: int) -> list[Branch]:
    """What stands directly below the beginning of an address, in the order of the names from
    behind `after` on, at most `limit`. "" has the hosts below it.

    A name that ends with a slash is a folder, and counts all that is in it; others are single
    things. Whoever wants to know whether there is more asks for one more.
    """
    # Of `docs/a?b=/c` below a host, `docs/` is the folder: a slash in a query makes none.
    slash = "strpos(split_part(rest, '?', 1), '/')"
    if prefix == "":
        mark = "strpos(rest, '://')"
        slash = (
            f"case when {mark} = 0 then 0 else"
            f" coalesce(nullif(strpos(substr(rest, {mark} + 3), '/'), 0) + {mark} + 2, 0) end"
        )
    rows = tx.execute(
        "with here as materialized (select id, verdict, document_id,"
        "  substr(coalesce(url, id), length(%(prefix)s) + 1) as rest"
        "  from items where connection_id = %(connection)s"
        "  and starts_with(coalesce(url, id), %(prefix)s)),"
        " measured as (select *, " + slash + " as slash from here),"
        " named as (select *, case when slash > 0 then left(rest, slash) else rest end"
        '  collate "C" as name from measured),'
        " counted as (select name, " + _VERDICT + " as verdict, count(*) as n,"
        "  min(id) filter (where rest = name) as own from named"
        "  where name > %(after)s group by name, 2),"
        " chosen as (select name, jsonb_object_agg(verdict, n) as verdicts, min(own) as own"
        "  from counted group by name order by name limit %(limit)s)"
        " select c.name, c.verdicts, to_jsonb(i) as item from chosen c"
        " left join items i on i.connection_id = %(connection)s and i.id = c.own order by c.name",
        {"connection": connection, "prefix": prefix, "after": after, "limit": limit},
    )
    return [
        Branch(
            prefix + row["name"],
            row["name"],
            row["verdicts"],
            None if row["item"] is None else _remembered(_from_json(row["item"])),
        )
        for row in rows
    ]


def folders(tx: Tx, connection: ConnectionId) -> dict[str, Folder]:
    rows = tx.execute(
        "select id, name, parent from folders where connection_id = %s", (connection,)
    )
    return {row["id"]: Folder(row["id"], row["name"], row["parent"]) for row in rows}


def forget(tx: Tx, connection: ConnectionId, id: str) -> None:
    """It vanished at the provider while its document was to be read."""
    tx.execute("delete from items where connection_id = %s and id = %s", (connection, id))


# --- the filter ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Known:
    """A thing that is a document, or that the filter keeps out."""

    item: Item
    detail: str | None
    document_id: DocumentId | None


def survey(
    tx: Tx, connection: ConnectionId, *, after: str, limit: int
) -> tuple[list[Known], str | None]:
    """What a changed filter could mean something for, of up to `limit` things behind the id
    `after`; and the id to go on behind, None at the end.

    What the connection's own patterns keep out is not among them.
    """
    rows = tx.execute(
        "select * from items where connection_id = %(connection)s and id > %(after)s"
        " and (document_id is not null or verdict = %(undecided)s"
        "  or (verdict = %(filtered)s and split_part(detail, ':', 1) = any(%(keys)s)))"
        " order by id limit %(limit)s",
        {
            "connection": connection,
            "after": after,
            "undecided": UNDECIDED,
            "filtered": FILTERED,
            "keys": list(KEYS),
            "limit": limit,
        },
    ).fetchall()
    found = [Known(_item(row), row["detail"], row["document_id"]) for row in rows]
    return found, rows[-1]["id"] if len(rows) == limit else None


def undecided(tx: Tx, claim: SyncClaim, changes: Sequence[Change], gate: Gate) -> list[Item]:
    """The new things among the changes that only the model can decide: to be asked before `apply`,
    outside of the transaction."""
    found = [one for change in changes if isinstance(one := _storable(change), Item)]
    rows = tx.execute(
        "select id from items where connection_id = %s and id = any(%s)"
        " and (document_id is not null or verdict = %s)",
        (
            claim.connection.id,
            [id for item in found for id in (item.id, item.formerly) if id is not None],
            DOCUMENT,
        ),
    ).fetchall()
    here = {row["id"] for row in rows}
    new = [item for item in found if (item.formerly or item.id) not in here]
    recall(tx, claim.connection.id, new, gate)
    return [item for item in new if gate.open(item)]


def outside(tx: Tx, claim: SyncClaim, gate: Gate, *, after: str, limit: int) -> list[Item]:
    """The same of what `reconsider` looks at next."""
    known = [_item(row) for row in _outside(tx, claim, after, limit)]
    recall(tx, claim.connection.id, known, gate)
    return [item for item in known if gate.open(item)]


def count_undecided(tx: Tx, claim: SyncClaim, gate: Gate, counts: Counts) -> None:
    """At the end of a sync: how many things wait for the model; then the run is partial."""
    row = tx.execute(
        "select count(*) as n from items where connection_id = %s and verdict = %s",
        (claim.connection.id, UNDECIDED),
    ).fetchone()
    assert row is not None
    counts.skipped.pop(UNDECIDED, None)
    if row["n"]:
        counts.skipped[UNDECIDED] = row["n"]
        number = "1 thing waits" if row["n"] == 1 else f"{row['n']:,} things wait"
        reason = gate.trouble or "it gave no answer about them"
        counts.note(f"{number} for the model of the filter: {reason}. The next sync asks again.")
        counts.code = counts.code or WAITS_FOR_MODEL


def recall(tx: Tx, connection: ConnectionId, known: Sequence[Item], gate: Gate) -> None:
    """Tell the gate what the model said of these earlier."""
    if not gate.asks or not known:
        return
    rows = tx.execute(
        "select j.* from judgements j join unnest(%s::text[], %s::bytea[]) as asked (id, question)"
        " on j.item_id = asked.id and j.question = asked.question where j.connection_id = %s",
        ([item.id for item in known], [gate.question(item) for item in known], connection),
    )
    for row in rows:
        gate.recall(row["item_id"], row["question"], Judgement(row["keep"], row["reason"]))


def note(tx: Tx, connection: ConnectionId, known: Sequence[Item], gate: Gate) -> None:
    """Remember what the model said of these, for as long as the things are remembered."""
    said = [(item.id, gate.question(item), j) for item in known if (j := gate.judgement(item))]
    if not said:
        return
    tx.execute(
        "insert into judgements (connection_id, item_id, question, keep, reason)"
        " select i.connection_id, i.id, s.question, s.keep, s.reason"
        " from unnest(%s::text[], %s::bytea[], %s::bool[], %s::text[]) as s"
        "  (id, question, keep, reason)"
        " join items i on i.connection_id = %s and i.id = s.id on conflict do nothing",
        (
            [id for id, _, _ in said],
            [question for _, question, _ in said],
            [judgement.keep for _, _, judgement in said],
            [judgement.reason for _, _, judgement in said],
            connection,
        ),
    )


# --- what each change does -----------------------------------------------------------------------


class _Same:
    """What of a batch is as it is said to be, documents and verdicts: most, in most listings.

    They are looked up together and only their time of being seen is written, together.
    """

    def __init__(self, tx: Tx, claim: SyncClaim, changes: Sequence[Change]) -> None:
        self._tx = tx
        self._claim = claim
        self._seen: list[str] = []
        ids = [c.id for c in changes if isinstance(c, Item) and c.formerly is None]
        rows = tx.execute(
            "select i.*, d.source_id as now_source, d.title as now_title, d.url as now_url,"
            " d.content_hash as now_hash from items i join documents d on d.id = i.document_id"
            " where i.connection_id = %s and i.id = any(%s) and i.verdict = %s"
            " and i.missing_at is null",
            (claim.connection.id, ids, DOCUMENT),
        )
        self._rows = {row["id"]: row for row in rows}
        self._verdicts: dict[str, Mapping[str, Any]] = {}
        if judged := [c.id for c in changes if isinstance(c, Verdict)]:
            rows = tx.execute(
                "select id, title, url, extra, branch, verdict, detail from items"
                " where connection_id = %s and id = any(%s) and verdict <> %s"
                " and document_id is null and version is null and missing_at is null",
                (claim.connection.id, judged, DOCUMENT),
            )
            self._verdicts = {row["id"]: row for row in rows}

    def holds(self, change: Change, counts: Counts) -> bool:
        """Whether nothing is to be done but to count it."""
        match change:
            case Item() if self.covers(change):
                counts.unchanged += 1
            case Verdict() if self.covers(change):
                _count(change, counts)
            case _:
                return False
        self._seen.append(change.id)
        return True

    def covers(self, change: Change) -> bool:
        """Whether it says what is so."""
        match change:
            case Item():
                return self._is_document(change)
            case Verdict():
                return self._is_verdict(change)
            case _:
                return False

    def _is_document(self, item: Item) -> bool:
        row = self._rows.get(item.id)
        return row is not None and item.formerly is None and self._equal(item, row)

    def _is_verdict(self, verdict: Verdict) -> bool:
        row = self._verdicts.get(verdict.id)
        return row is not None and (
            (row["verdict"], row["detail"]) == (verdict.kind, verdict.detail)
            and (row["title"], row["url"]) == (verdict.title, verdict.url)
            and (row["branch"], row["extra"]) == (verdict.branch, dict(verdict.extra))
        )

    def settle(self, change: Change | None) -> None:
        """Write down what was seen, before a change that may rely on it; None: at the end."""
        if self._seen:
            self._tx.execute(
                "update items set seen_at = now() where connection_id = %s and id = any(%s)",
                (self._claim.connection.id, self._seen),
            )
            self._seen = []
        match change:
            case Item():
                self._rows.pop(change.id, None)
                self._rows.pop(change.formerly or "", None)
                self._verdicts.pop(change.id, None)
            case Gone() | Missing() | Verdict():
                self._rows.pop(change.id, None)
                self._verdicts.pop(change.id, None)
            case Listed():
                self._rows.clear()
                self._verdicts.clear()
            case _:
                pass

    def _equal(self, item: Item, row: Mapping[str, Any]) -> bool:
        return (
            row["version"] == item.version
            and (row["title"], row["url"], row["kind"]) == (item.title, item.url, item.kind)
            and (row["branch"], row["detail"]) == (item.branch, item.detail)
            and row["modified_at"] == item.modified_at
            and row["tags"] == list(item.tags)
            and row["metadata"] == dict(item.metadata)
            and row["extra"] == dict(item.extra)
            and row["given_tags"] == _tags(self._claim, item)
            and (row["now_source"] is None or self._is_of_source(item, row))
        )

    def _is_of_source(self, item: Item, row: Mapping[str, Any]) -> bool:
        """Whether the document is as the source made it; else a user replaced its content."""
        return (
            row["now_source"] == item.id
            and row["now_hash"] == content_hash(item.version)
            and row["now_title"] == (item.title or row["now_title"])
            and row["now_url"] == item.url
        )


def leave_out(tx: Tx, claim: SyncClaim, item: Item, why: Refused, counts: Counts) -> None:
    """An item that the database refuses: what it is so far it stays, and the run says why."""
    counts.failed += 1
    counts.code = why.code
    counts.note(f"{item.id[:100]} was left out: {why}")
    row = _row(tx, claim, item.id)
    if row is None or row["verdict"] != DOCUMENT:
        told = Verdict(item.id, UNSUPPORTED, str(why), branch=item.branch)
        _apply_verdict(tx, claim, told, counts)


def _storable(change: Change) -> Change:
    """As the database can hold it. What has another id then could never be fetched."""
    clean = replace(
        change, **{one.name: storable(getattr(change, one.name)) for one in fields(change)}
    )
    if isinstance(clean, Item) and isinstance(change, Item) and clean.id != change.id:
        told = "its id contains characters that cannot be stored"
        return Verdict(clean.id, UNSUPPORTED, told, branch=clean.branch, title=clean.title)
    return clean


def _within_reach(claim: SyncClaim, item: Item) -> Item:
    """Without the tags that the keys behind the connection may not touch."""
    reach = claim.connection.reach
    foreign = [tag for tag in item.tags if reach is not None and tag not in reach]
    if not foreign:
        return item
    told = f"not tagged {foreign[0]!r}: the key that set this connection up may not use that tag"
    return replace(item, tags=tuple(tag for tag in item.tags if tag not in foreign), detail=told)


def _apply_item(tx: Tx, claim: SyncClaim, item: Item, gate: Gate, counts: Counts) -> None:
    row = _row(tx, claim, item.formerly) if item.formerly is not None else None
    if row is not None:
        # Under its new id; whatever was known under that one gives way.
        _remove(tx, claim, [item.id], counts)
        tx.execute(
            "update items set id = %s where connection_id = %s and id = %s",
            (item.id, claim.connection.id, item.formerly),
        )
    else:
        row = _row(tx, claim, item.id)
    known = row["document_id"] if row else None
    if row is not None and row["verdict"] == DOCUMENT and known is None:
        _stay_away(tx, claim, item, counts)
        return
    # The filter acts on new content only: what is here already stays.
    ruling = gate.rule(item) if known is None else None
    if ruling is not None:
        _remember(tx, claim, item, ruling.verdict, None, ruling.reason)
        counts.skipped[ruling.verdict] += 1
        return
    if known is None and counts.free <= 0:
        _remember(tx, claim, item, OVER_LIMIT, None, "documentLimit is reached")
        counts.skipped[OVER_LIMIT] += 1
        return
    _store(tx, claim, item, row if known else None, counts)


def _store(
    tx: Tx, claim: SyncClaim, item: Item, row: Mapping[str, Any] | None, counts: Counts
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
        tags=_tags(claim, item),
        title=item.title,
        url=item.url,
        metadata=item.metadata,
        text=item.text,
    )
    if item.tags:  # those of the connection are there
        tags.ensure(tx, connection.org_id, item.tags)
    known: DocumentId | None = None if row is None else row["document_id"]
    before = None
    if row is not None and row["given_tags"] is not None:
        before = Said(row["version"], row["title"], row["given_tags"], row["metadata"])
    try:
        id, changed = documents.put(tx, connection.org_id, synced, known, before)
    except NotFoundError:  # deleted while we waited for its row
        _stay_away(tx, claim, item, counts)
        return
    _remember(tx, claim, item, DOCUMENT, DocumentId(id), item.detail)
    if known is None:
        counts.add(DocumentId(id))
        counts.free -= 1
    elif changed:
        counts.change(known)
    else:
        counts.unchanged += 1


def _stay_away(tx: Tx, claim: SyncClaim, item: Item, counts: Counts) -> None:
    _remember(tx, claim, item, DOCUMENT, None, "deleted here; it stays away")
    counts.skipped[DELETED] += 1


def _tags(claim: SyncClaim, item: Item) -> list[str]:
    return list(dict.fromkeys([*claim.connection.container_tags, *item.tags]))


def _apply_verdict(tx: Tx, claim: SyncClaim, verdict: Verdict, counts: Counts) -> None:
    row = _row(tx, claim, verdict.id)
    if row is not None and row["verdict"] == DOCUMENT and row["document_id"] is None:
        tx.execute(
            "update items set seen_at = now() where connection_id = %s and id = %s",
            (claim.connection.id, verdict.id),
        )
        counts.skipped[DELETED] += 1
        return
    if row is not None and row["document_id"] is not None and _unconfirmed(claim, verdict, row):
        tx.execute(
            "update items set missing_at = coalesce(missing_at, now()) where connection_id = %s"
            " and id = %s",
            (claim.connection.id, verdict.id),
        )
        verdict = replace(verdict, keep=True)
    if verdict.keep and row is not None and row["document_id"] is not None:
        tx.execute(
            "update items set seen_at = now(), detail = %s where connection_id = %s and id = %s",
            (verdict.detail, claim.connection.id, verdict.id),
        )
    else:
        if row is not None and row["document_id"] is not None:
            documents.drop(tx, claim.connection.org_id, [row["document_id"]])
            counts.remove([row["document_id"]])
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
    _count(verdict, counts)


def _count(verdict: Verdict, counts: Counts) -> None:
    if verdict.failed:
        counts.failed += 1
    elif verdict.kind != PLANNED:
        counts.skipped[verdict.kind] += 1


def _unconfirmed(claim: SyncClaim, verdict: Verdict, row: Mapping[str, Any]) -> bool:
    """Whether the document stays until another sync says the same."""
    before = row["missing_at"]
    return verdict.confirm and (before is None or before >= claim.began_at)


def _apply_missing(tx: Tx, claim: SyncClaim, missing: Missing, counts: Counts) -> None:
    row = _row(tx, claim, missing.id)
    if row is None:
        return
    if row["missing_at"] is not None and row["missing_at"] < claim.began_at:
        _remove(tx, claim, [missing.id], counts)
        return
    tx.execute(
        "update items set missing_at = coalesce(missing_at, now()), seen_at = now(), detail = %s"
        " where connection_id = %s and id = %s",
        (missing.detail, claim.connection.id, missing.id),
    )
    counts.skipped["missing"] += 1


def _apply_listed(
    tx: Tx, claim: SyncClaim, branch: str, listings: Listings, counts: Counts
) -> None:
    began = listings.began.pop(branch, None)
    if began is None or branch in listings.troubled:
        return
    unseen = {
        "connection": claim.connection.id,
        "branch": branch,
        "began": began,
        "troubled": list(listings.troubled),
    }
    tally = tx.execute(
        "select count(*) filter (where seen_at < %(began)s) as lost, count(*) as total"
        " from items where connection_id = %(connection)s and document_id is not null"
        " and (%(branch)s = '' or branch = %(branch)s) and not branch = any(%(troubled)s)",
        unseen,
    ).fetchone()
    assert tally is not None
    lost, total = tally["lost"], tally["total"]
    empty = lost == total and total > 0
    if ((lost > GUARDED and lost * 2 > total) or empty) and branch not in listings.held:
        listings.held[branch] = lost
        counts.note(
            f"This listing lacks {lost:,} of {total:,} documents. They are kept until the next"
            " sync sees the same."
        )
        counts.code = counts.code or HELD
        return
    listings.held.pop(branch, None)
    rows = tx.execute(
        "select id from items where connection_id = %(connection)s and seen_at < %(began)s"
        " and (%(branch)s = '' or branch = %(branch)s) and not branch = any(%(troubled)s)",
        unseen,
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


def _remove(tx: Tx, claim: SyncClaim, ids: Sequence[str], counts: Counts) -> None:
    _lock(tx, claim, ids)
    rows = tx.execute(
        "delete from items where connection_id = %s and id = any(%s) returning document_id",
        (claim.connection.id, list(ids)),
    ).fetchall()
    gone = [row["document_id"] for row in rows if row["document_id"] is not None]
    documents.drop(tx, claim.connection.org_id, gone)
    counts.remove(gone)
    counts.free += len(gone)


# --- limit -------------------------------------------------------------------------------------


def _oldest(tx: Tx, connection: ConnectionId, count: int) -> list[dict[str, Any]]:
    return tx.execute(
        "select * from items where connection_id = %s and document_id is not null"
        " order by modified_at asc nulls first, id desc limit %s",
        (connection, count),
    ).fetchall()


def _older(
    tx: Tx, connection: ConnectionId, waiting: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """The document that gives way to a newer thing; None where the provider tells no times."""
    for oldest in _oldest(tx, connection, 1):
        times = oldest["modified_at"], waiting["modified_at"]
        if None not in times and times[0] < times[1]:
            return oldest
    return None


def _evict(tx: Tx, claim: SyncClaim, rows: Sequence[Mapping[str, Any]], counts: Counts) -> None:
    tx.execute(
        "update items set verdict = %s, detail = %s, document_id = null"
        " where connection_id = %s and id = any(%s)",
        (
            OVER_LIMIT,
            "documentLimit is reached by newer ones",
            claim.connection.id,
            [row["id"] for row in rows],
        ),
    )
    gone = [row["document_id"] for row in rows]
    documents.drop(tx, claim.connection.org_id, gone)
    counts.remove(gone)


# --- rows --------------------------------------------------------------------------------------


def _row(tx: Tx, claim: SyncClaim, id: str) -> dict[str, Any] | None:
    return tx.execute(
        "select * from items where connection_id = %s and id = %s", (claim.connection.id, id)
    ).fetchone()


def _remember(
    tx: Tx,
    claim: SyncClaim,
    item: Item,
    verdict: str,
    document: DocumentId | None,
    detail: str | None,
) -> None:
    # A page's text without a document is not kept: it is fetched again when there is room, or
    # when the filter lets it in.
    kept = document is not None or item.text is None or verdict in (FILTERED, UNDECIDED)
    version = item.version if kept else None
    tx.execute(
        "insert into items (connection_id, id, version, title, url, kind, metadata, tags, extra,"
        " branch, verdict, detail, document_id, modified_at, seen_at, given_tags)"
        " values (%(connection)s, %(id)s, %(version)s, %(title)s, %(url)s, %(kind)s, %(metadata)s,"
        " %(tags)s, %(extra)s, %(branch)s, %(verdict)s, %(detail)s, %(document)s,"
        " %(modified_at)s, now(), %(given)s)"
        " on conflict (connection_id, id) do update set version = excluded.version,"
        " title = excluded.title, url = excluded.url, kind = excluded.kind,"
        " metadata = excluded.metadata, tags = excluded.tags, extra = excluded.extra,"
        " branch = excluded.branch, verdict = excluded.verdict, detail = excluded.detail,"
        " document_id = excluded.document_id, modified_at = excluded.modified_at,"
        " given_tags = excluded.given_tags, seen_at = now(), missing_at = null",
        {
            "connection": claim.connection.id,
            "id": item.id,
            "given": None if document is None else _tags(claim, item),
            "version": version,
            "title": item.title,
            "url": item.url,
            "kind": item.kind,
            "metadata": Jsonb(dict(item.metadata)),
            "tags": list(item.tags),
            "extra": Jsonb(dict(item.extra)),
            "branch": item.branch,
            "verdict": verdict,
            "detail": detail,
            "document": document,
            "modified_at": item.modified_at,
        },
    )


def _item(row: Mapping[str, Any]) -> Item:
    return Item(
        id=row["id"],
        version=row["version"],
        title=row["title"],
        url=row["url"],
        kind=row["kind"],
        metadata=row["metadata"],
        extra=row["extra"],
        branch=row["branch"],
        tags=row["tags"],
        modified_at=row["modified_at"],
    )


def _remembered(row: Mapping[str, Any]) -> Remembered:
    deleted = row["verdict"] == DOCUMENT and row["document_id"] is None
    return Remembered(
        id=row["id"],
        version=row["version"],
        title=row["title"],
        url=row["url"],
        kind=row["kind"],
        verdict=DELETED if deleted else row["verdict"],
        detail=row["detail"],
        extra=row["extra"],
        branch=row["branch"],
        document_id=row["document_id"],
        seen_at=row["seen_at"],
    )


def _from_json(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, "seen_at": datetime.fromisoformat(row["seen_at"])}


def _now(tx: Tx) -> datetime:
    row = tx.execute("select now() as now").fetchone()
    assert row is not None
    return row["now"]
