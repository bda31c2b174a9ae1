"""What of a listing is as it is known: most, in most listings."""

from collections.abc import Mapping, Sequence
from typing import Any

from recollect.connectors.base import Change, Gone, Item, Listed, Missing, Verdict
from recollect.db import Tx
from recollect.documents import content_hash
from recollect.model import SyncClaim
from recollect.sync.item_filter import Gate, Ruling
from recollect.sync.items import (
    DELETED,
    DOCUMENT,
    OVER_LIMIT,
    SyncCounts,
    count_verdict,
    is_counted,
    tags_of,
    version_kept,
)


def kept_out(item: Item, gate: Gate, counts: SyncCounts) -> Ruling | None:
    """Why a thing that is no document does not become one now, or None."""
    ruling = gate.rule(item)
    if ruling is None and counts.free <= 0:
        return Ruling(OVER_LIMIT, "documentLimit is reached")
    return ruling


class SameItems:
    """What of a batch is as it is said to be: documents, what is kept out, and verdicts.

    They are looked up together and only their time of being seen is written, together. A sync
    counts each of them once, however often it hears of it: in a listing, then in a feed of changes.
    """

    def __init__(self, tx: Tx, claim: SyncClaim, changes: Sequence[Change], gate: Gate) -> None:
        self._tx, self._claim, self._gate = tx, claim, gate
        self._seen: list[str] = []
        self._counted: set[str] = set()
        ids = [c.id for c in changes if isinstance(c, Item) and c.formerly is None]
        rows = tx.execute(
            "select i.*, d.source_id as now_source, d.title as now_title, d.url as now_url,"
            " d.given_title, d.content_hash as now_hash"
            " from items i left join documents d on d.id = i.document_id"
            " where i.connection_id = %s and i.id = any(%s) and i.missing_at is null",
            (claim.connection.id, ids),
        )
        self._rows = {row["id"]: row for row in rows}
        self._verdicts: dict[str, Mapping[str, Any]] = {}
        if judged := [c.id for c in changes if isinstance(c, Verdict)]:
            rows = tx.execute(
                "select id, title, url, extra, branch, verdict, detail, seen_at from items"
                " where connection_id = %s and id = any(%s) and verdict <> %s"
                " and document_id is null and version is null and missing_at is null",
                (claim.connection.id, judged, DOCUMENT),
            )
            self._verdicts = {row["id"]: row for row in rows}

    def others(self, changes: Sequence[Change], counts: SyncCounts) -> list[Change]:
        """Those of the batch that say something else, as far as it is known at its start."""
        return [change for change in changes if not self._covers(change, counts)]

    def holds(self, change: Change, counts: SyncCounts) -> bool:
        """Whether nothing is to be done but to count it. Otherwise what was seen before is written
        down, since what is done may rely on it."""
        if not self._covers(change, counts):
            self.settle()
            self._forget(change)
            return False
        match change:
            case Item():
                if self._is_first(self._rows[change.id]):
                    _count(self._rows[change.id], counts)
            case Verdict():
                if self._is_first(self._verdicts[change.id]):
                    count_verdict(change, counts)
            case _:
                return False
        self._counted.add(change.id)
        self._seen.append(change.id)
        return True

    def _is_first(self, row: Mapping[str, Any]) -> bool:
        return not is_counted(self._claim, row) and row["id"] not in self._counted

    def _covers(self, change: Change, counts: SyncCounts) -> bool:
        """Whether it says what is so, with the room that is left."""
        match change:
            case Item():
                return self._is_known(change, counts)
            case Verdict():
                return self._is_verdict(change)
            case _:
                return False

    def _is_known(self, item: Item, counts: SyncCounts) -> bool:
        row = self._rows.get(item.id)
        if row is None or item.formerly is not None or not _is_as_old(item, row):
            return False
        if row["document_id"] is not None:
            return _equal(item, row) and self._is_document(item, row)
        if row["verdict"] == DOCUMENT:  # deleted here: nothing else is kept of it
            return True
        ruling = kept_out(item, self._gate, counts)
        return _equal(item, row) and ruling == Ruling(row["verdict"], row["detail"])

    def _is_verdict(self, verdict: Verdict) -> bool:
        row = self._verdicts.get(verdict.id)
        return row is not None and (
            (row["verdict"], row["detail"]) == (verdict.kind, verdict.detail)
            and (row["title"], row["url"]) == (verdict.title, verdict.url)
            and (row["branch"], row["extra"]) == (verdict.branch, dict(verdict.extra))
        )

    def settle(self) -> None:
        """Write down what was seen."""
        if self._seen:
            self._tx.execute(
                "update items set seen_at = now() where connection_id = %s and id = any(%s)",
                (self._claim.connection.id, self._seen),
            )
            self._seen = []

    def _forget(self, change: Change) -> None:
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

    def _is_document(self, item: Item, row: Mapping[str, Any]) -> bool:
        return (
            row["detail"] == item.detail
            and row["given_tags"] == tags_of(self._claim, item)
            and (row["now_source"] is None or self._is_of_source(item, row))
        )

    def _is_of_source(self, item: Item, row: Mapping[str, Any]) -> bool:
        """Whether the document is as the source made it; else a user replaced its content."""
        return (
            row["now_source"] == item.id
            and row["now_hash"] == content_hash(item.version)
            and row["now_title"] == (row["given_title"] or item.title or row["now_title"])
            and row["now_url"] == item.url
        )


def _is_as_old(item: Item, row: Mapping[str, Any]) -> bool:
    return (
        row["version"] == version_kept(item, row["verdict"], row["document_id"])
        and row["branch"] == item.branch
        and row["modified_at"] == item.modified_at
    )


def _equal(item: Item, row: Mapping[str, Any]) -> bool:
    return (
        (row["title"], row["url"], row["kind"]) == (item.title, item.url, item.kind)
        and row["tags"] == list(item.tags)
        and row["metadata"] == dict(item.metadata)
        and row["extra"] == dict(item.extra)
    )


def _count(row: Mapping[str, Any], counts: SyncCounts) -> None:
    if row["document_id"] is not None:
        counts.unchanged += 1
    else:
        counts.skipped[DELETED if row["verdict"] == DOCUMENT else row["verdict"]] += 1
