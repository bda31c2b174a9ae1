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

from recollect.connectors.base import (
    ONE_PAGE,
    Change,
    Folder,
    Item,
    Verdict,
)
from recollect.db import Tx
from recollect.documents import Said
from recollect.errors import NotFoundError
from recollect.model import TURNING, ConnectionId, DocumentId, Page, Remembered, SyncClaim, storable
from recollect.sync import change_log
from recollect.sync.change_log import What
from recollect.sync.item_filter import FILTERED, UNDECIDED

DOCUMENT = "document"
"""The verdict on things that are documents, or were until a user deleted the document."""
OVER_LIMIT = "over_limit"
DELETED = "deleted"
PLANNED = "planned"
UNSUPPORTED = "unsupported"
WAITS = "waits"
"""Counted among the skipped: a document whose new text another sync has to confirm."""
FEWEST_WAIT = 3
"""documents, and more than half, that wait for another sync: that is said"""
MOST_WAIT = "most_missing"
HELD = "mass_deletion_held"
WAITS_FOR_MODEL = "filter_undecided"
GUARDED = 20
"""A listing that lost more documents than this, and more than half, has to be confirmed."""

_VERDICT = "case when verdict = 'document' and document_id is null then 'deleted' else verdict end"


@dataclass(slots=True)
class SyncCounts:
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

    def become(self, other: "SyncCounts") -> None:
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
    """The listings that are under way; stored with the cursor."""

    began: dict[str, datetime]
    troubled: set[str]


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


def tell(tx: Tx, claim: SyncClaim, counts: SyncCounts) -> None:
    """Write into the feed of the run what this transaction did; the last that it does."""
    room = change_log.MOST - counts.listed
    change_log.keep(tx, claim.run_id, counts.fresh, room=room)
    counts.listed += min(len(counts.fresh), max(room, 0))
    counts.fresh = {}


def note_nothing(tx: Tx, id: ConnectionId, counts: SyncCounts, advice: str) -> None:
    """At the end of a sync: say what to look at if there is nothing at all, not even something that
    does not become a document."""
    row = tx.execute(
        "select exists (select from items where connection_id = %s) as seen", (id,)
    ).fetchone()
    if advice and counts.code is None and row is not None and not row["seen"]:
        counts.note(f"Nothing was found. {advice}")


def waits(tx: Tx, connection: ConnectionId, age: timedelta) -> bool:
    """Whether a document has waited that long for another sync to say that it goes or changes."""
    found = tx.execute(
        "select from items where connection_id = %s and document_id is not null"
        " and missing_at < now() - %s limit 1",
        (connection, age),
    )
    return found.fetchone() is not None


def note_waiting(tx: Tx, claim: SyncClaim, counts: SyncCounts) -> None:
    """Say when most documents wait for another sync to say that they go."""
    row = tx.execute(
        "select count(*) as total, count(missing_at) as waiting from items"
        " where connection_id = %s and document_id is not null",
        (claim.connection.id,),
    ).fetchone()
    assert row is not None
    total, waiting = row["total"], row["waiting"]
    if counts.away or counts.code == ONE_PAGE or waiting < FEWEST_WAIT or waiting * 2 <= total:
        return
    counts.note(
        f"{waiting:,} of {total:,} documents were not found, or their addresses lead elsewhere or"
        " say that they are no documents. They are kept for now. A sync a day later or more"
        " deletes those of which it sees the same. Pause the connection to keep them until the"
        " source has been checked."
    )
    counts.code = counts.code or MOST_WAIT


def note_unlisted(counts: SyncCounts) -> None:
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


def rows_outside(tx: Tx, claim: SyncClaim, after: str, limit: int) -> list[dict[str, Any]]:
    return tx.execute(
        "select * from items where connection_id = %s and verdict = any(%s)"
        " and version is not null and id > %s order by id limit %s",
        (claim.connection.id, [FILTERED, UNDECIDED], after, limit),
    ).fetchall()


def remembered(
    tx: Tx,
    connection: ConnectionId,
    *,
    ids: Sequence[str] | None = None,
    branch: str | None = None,
    after: str | None = None,
    limit: int = 1000,
) -> list[Remembered]:
    """What is known, by id, `limit` at a time from `after` on; but for what is gone at the provider
    and only kept so that it stays away."""
    rows = tx.execute(
        "select * from items where connection_id = %(connection)s"
        " and (verdict <> 'document' or document_id is not null or missing_at is null)"
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


def named(tx: Tx, connection: ConnectionId, what: str) -> Remembered:
    """By its id, else by the address at which people look at it. Raises NotFoundError."""
    row = tx.execute(
        "select * from items where connection_id = %(connection)s"
        " and (id = %(what)s or url = %(what)s)"
        " order by id = %(what)s desc, seen_at desc, id limit 1",
        {"connection": connection, "what": what},
    ).fetchone()
    if row is None:
        raise NotFoundError("Not found", f"this connection never saw {what!r}")
    return _remembered(row)


def find(
    tx: Tx,
    connection: ConnectionId,
    *,
    verdict: str | None,
    text: str | None,
    limit: int,
    page: int,
) -> Page[Remembered]:
    """One page of what is known, the latest seen first; `text` is looked for in id, address
    and title. The verdict "waits" is for documents that wait for another sync."""
    rows = tx.execute(
        "select *, count(*) over () as total from items where connection_id = %(connection)s"
        " and (%(verdict)s::text is null or " + _VERDICT + " = %(verdict)s"
        "      or %(verdict)s = %(waits)s and missing_at is not null and document_id is not null)"
        " and (%(text)s::text is null or position(fold_case(%(text)s) in fold_case(id)) > 0"
        "      or position(fold_case(%(text)s) in fold_case(url)) > 0"
        "      or position(fold_case(%(text)s) in fold_case(title)) > 0)"
        " order by seen_at desc, id limit %(limit)s offset %(offset)s",
        {
            "connection": connection,
            "verdict": verdict,
            "waits": WAITS,
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


def storable_change(change: Change) -> Change:
    """As the database can hold it. What has another id then could never be fetched."""
    clean = replace(
        change, **{one.name: storable(getattr(change, one.name)) for one in fields(change)}
    )
    if isinstance(clean, Item) and isinstance(change, Item) and clean.id != change.id:
        told = "its id contains characters that cannot be stored"
        return Verdict(clean.id, UNSUPPORTED, told, branch=clean.branch, title=clean.title)
    if isinstance(clean, Item) and clean.title:
        return replace(clean, title=TURNING.sub("", clean.title) or None)
    return clean


def item_of(row: Mapping[str, Any]) -> Item:
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
        missing_at=row["missing_at"],
    )


def _from_json(row: Mapping[str, Any]) -> dict[str, Any]:
    times = ("seen_at", "missing_at")
    return {**row, **{one: datetime.fromisoformat(row[one]) for one in times if row[one]}}


def row_of(tx: Tx, claim: SyncClaim, id: str) -> dict[str, Any] | None:
    return tx.execute(
        "select * from items where connection_id = %s and id = %s", (claim.connection.id, id)
    ).fetchone()


def tags_of(claim: SyncClaim, item: Item) -> list[str]:
    return list(dict.fromkeys([*claim.connection.container_tags, *item.tags]))


def said_before(row: Mapping[str, Any] | None) -> Said | None:
    """What the connection said of a document the last time, if that is known."""
    if row is None or row["given_tags"] is None:
        return None
    return Said(row["version"], row["title"], row["given_tags"], row["metadata"], row["taken_tags"])


def version_kept(item: Item, verdict: str, document: DocumentId | None) -> str | None:
    """The version to remember. None: a page came with a text that is not kept; it is fetched again
    when there is room, or when the filter lets it in."""
    kept = document is not None or item.text is None or verdict in (FILTERED, UNDECIDED)
    return item.version if kept else None


def remember(
    tx: Tx,
    claim: SyncClaim,
    item: Item,
    verdict: str,
    document: DocumentId | None,
    detail: str | None,
    taken: Sequence[str] = (),
) -> None:
    tx.execute(
        "insert into items (connection_id, id, version, title, url, kind, metadata, tags, extra,"
        " branch, verdict, detail, document_id, modified_at, seen_at, given_tags, taken_tags)"
        " values (%(connection)s, %(id)s, %(version)s, %(title)s, %(url)s, %(kind)s, %(metadata)s,"
        " %(tags)s, %(extra)s, %(branch)s, %(verdict)s, %(detail)s, %(document)s,"
        " %(modified_at)s, now(), %(given)s, %(taken)s)"
        " on conflict (connection_id, id) do update set version = excluded.version,"
        " title = excluded.title, url = excluded.url, kind = excluded.kind,"
        " metadata = excluded.metadata, tags = excluded.tags, extra = excluded.extra,"
        " branch = excluded.branch, verdict = excluded.verdict, detail = excluded.detail,"
        " document_id = excluded.document_id, modified_at = excluded.modified_at,"
        " given_tags = excluded.given_tags, taken_tags = excluded.taken_tags, seen_at = now(),"
        " missing_at = null",
        {
            "connection": claim.connection.id,
            "id": item.id,
            "given": None if document is None else tags_of(claim, item),
            "taken": list(taken),
            "version": version_kept(item, verdict, document),
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


def now_of(tx: Tx) -> datetime:
    row = tx.execute("select now() as now").fetchone()
    assert row is not None
    return row["now"]


def is_counted(claim: SyncClaim, row: Mapping[str, Any]) -> bool:
    """Whether this sync has met it before, even if the sync was cut off since."""
    return row["seen_at"] >= claim.began_at


def said_already(claim: SyncClaim, verdict: Verdict, row: Mapping[str, Any] | None) -> bool:
    """Whether this sync counted the same of it; `row` is as it was before."""
    return (
        row is not None
        and is_counted(claim, row)
        and row["detail"] == verdict.detail
        and (verdict.keep or row["verdict"] == verdict.kind)
    )


def count_verdict(verdict: Verdict, counts: SyncCounts) -> None:
    if not verdict.counted:
        return
    if verdict.failed:
        counts.failed += 1
    elif verdict.kind != PLANNED:
        counts.skipped[verdict.kind] += 1
