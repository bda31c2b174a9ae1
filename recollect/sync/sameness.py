"""What of a batch is as it is said to be: all that is written of it is that it was seen."""

from collections.abc import Mapping, Sequence
from typing import Any

from recollect.connectors.base import Change, Gone, Item, Listed, Missing, Verdict
from recollect.db import Tx
from recollect.documents import content_hash
from recollect.model import SyncClaim
from recollect.sync.items import DOCUMENT, SyncCounts, count_verdict, tags_of


class Sameness:
    """What of a batch is as it is said to be, documents and verdicts: most, in most listings.

    They are looked up together and only their time of being seen is written, together. A sync
    counts each of them once, however often it hears of it: in a listing, then in a feed of changes.
    """

    def __init__(self, tx: Tx, claim: SyncClaim, changes: Sequence[Change]) -> None:
        self._tx = tx
        self._claim = claim
        self._seen: list[str] = []
        self._counted: set[str] = set()
        ids = [c.id for c in changes if isinstance(c, Item) and c.formerly is None]
        rows = tx.execute(
            "select i.*, d.source_id as now_source, d.title as now_title, d.url as now_url,"
            " d.given_title, d.content_hash as now_hash"
            " from items i join documents d on d.id = i.document_id"
            " where i.connection_id = %s and i.id = any(%s) and i.verdict = %s"
            " and i.missing_at is null",
            (claim.connection.id, ids, DOCUMENT),
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

    def holds(self, change: Change, counts: SyncCounts) -> bool:
        """Whether nothing is to be done but to count it."""
        match change:
            case Item() if self.covers(change):
                if self._is_first(self._rows[change.id]):
                    counts.unchanged += 1
            case Verdict() if self.covers(change):
                if self._is_first(self._verdicts[change.id]):
                    count_verdict(change, counts)
            case _:
                return False
        self._counted.add(change.id)
        self._seen.append(change.id)
        return True

    def _is_first(self, row: Mapping[str, Any]) -> bool:
        return row["seen_at"] < self._claim.began_at and row["id"] not in self._counted

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
