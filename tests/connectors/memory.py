"""A `Source` without a database, and the rules of a sync over it, for tests of one connector.

`sync` applies what a connector says as `recollect.sync.runs` does, but for filters, limits and the
guard against mass deletion; those are tested with the real thing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from weakref import WeakValueDictionary

from recollect.connectors.api import Api
from recollect.connectors.base import (
    Change,
    Checkpoint,
    Connector,
    Cursor,
    Folder,
    Gone,
    HostTurn,
    Item,
    Listed,
    Listing,
    LocalFolders,
    Missing,
    Trouble,
    Verdict,
)
from recollect.errors import LeaseLost
from recollect.extract import Sandbox, detect
from recollect.fetch import Endpoint, Fetcher
from recollect.model import Blob, ConnectionId, DocumentId, Extracted, Remembered, Sitemap, WebPage

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ID = ConnectionId("c" * 22)


@dataclass(eq=False)
class Pace:
    """Turns at a host, for all sources of a test, by a clock of its own: pauses take no time, and
    nothing else moves it, so that what is waited does not depend on how fast the machine is."""

    now: float = 0.0
    next: float = 0.0


PACES: WeakValueDictionary[str, Pace] = WeakValueDictionary()
LONG_REST = 60.0
"""seconds; a test that waits longer does so by another `since`"""


@dataclass
class Token:
    """Access with a token that a test may take away."""

    value: str | None = "token-1"
    refreshed: int = 0

    def token(self, stale: str | None = None) -> str | None:
        if stale is not None and stale == self.value:
            self.refreshed += 1
            self.value = f"token-{self.refreshed + 1}"
        return self.value


@dataclass
class MemorySource:
    """`documents` is what a sync would have stored: id → item."""

    connector: Connector
    fetcher: Fetcher
    sandbox: Sandbox
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    api_url: str | None = None
    account: str | None = "account-1"
    granted: Sequence[str] = ()
    limit: int = 10_000
    crawl_delay: float = 0.0
    crawl_concurrency: int = 2
    since: datetime = NOW
    asked: bool = False
    connection_id: ConnectionId = ID
    access: Token = field(default_factory=Token)
    surveyor: Callable[[Blob], WebPage] = lambda _blob: WebPage(Extracted(""), [])
    sitemap_reader: Callable[[Blob], Sitemap] = lambda _blob: Sitemap([], [])
    refuse: Callable[[str | None, str | None], str | None] = lambda _title, _url: None
    local: LocalFolders = field(default_factory=LocalFolders)
    stopped: bool = False
    pauses: list[float] = field(default_factory=list[float])
    rows: dict[str, Remembered] = field(default_factory=dict[str, Remembered])
    items: dict[str, Item] = field(default_factory=dict[str, Item])
    said: list[Change] = field(default_factory=list[Change])
    known_folders: dict[str, Folder] = field(default_factory=dict[str, Folder])
    cursor: Cursor | None = None
    _missing: set[str] = field(default_factory=set[str])
    _seen: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    _api: Api | None = None
    _pace: Pace = field(default_factory=Pace)

    @property
    def api(self) -> Api:
        if self._api is None:
            url = self.api_url or self.connector.api_url
            assert url is not None
            self._api = Api(
                Endpoint(url, total=30),
                access=self.access,
                pause=self.pause,
                pace=lambda: None,
                judge=self.connector.judge,
                headers=self.connector.headers(),
            )
        return self._api

    def room(self) -> int:
        return self.limit - len(self.items)

    def remembered(
        self, ids: Sequence[str] | None = None, *, branch: str | None = None
    ) -> Iterator[Remembered]:
        for row in list(self.rows.values()):
            if (ids is None or row.id in ids) and (branch is None or row.branch == branch):
                yield row

    def folders(self) -> Mapping[str, Folder]:
        return self.known_folders

    def refused(self, title: str | None, url: str | None) -> str | None:
        return self.refuse(title, url)

    def reads(self, head: bytes, name: str) -> bool:
        return detect(head, name=name, mime=None) is not None

    def read(self, blob: Blob) -> Extracted:
        return self.sandbox.extract(blob, owner="tests")

    def survey(self, blob: Blob) -> WebPage:
        return self.surveyor(blob)

    def sitemap(self, blob: Blob) -> Sitemap:
        return self.sitemap_reader(blob)

    def pause(self, seconds: float) -> None:
        self.going()
        self.pauses.append(seconds)
        self._pace.now += seconds

    def turn(self, host: str, delay: float) -> HostTurn:
        self._pace = PACES.setdefault(host, self._pace)
        at = max(self._pace.now, self._pace.next)
        self._pace.next = at + delay
        return HostTurn(at - self._pace.now, 0.0, 1)

    def rest(self, host: str, seconds: float) -> None:
        self._pace = PACES.setdefault(host, self._pace)
        if seconds < LONG_REST:
            self._pace.next = max(self._pace.next, self._pace.now + seconds)

    def leave(self, host: str) -> None:
        """The others are told by the database only."""

    def going(self) -> None:
        if self.stopped:
            raise LeaseLost

    # --- the sync ---

    def sync(self, *, at: datetime | None = None) -> list[Change]:
        """One pass of the connector from the stored cursor; returns what it said."""
        self.since = at or self.since
        heard: list[Change] = []
        missing_before, self._missing = self._missing, set()
        for change in self.connector.changes(self, self.cursor):
            heard.append(change)
            self._apply(change, missing_before)
        self.said += heard
        assert isinstance(heard[-1], Checkpoint), "changes() must end on a Checkpoint"
        return heard

    def _apply(self, change: Change, missing_before: set[str]) -> None:  # noqa: C901 # one table
        match change:
            case Item() if self._waits(change, missing_before):
                self.rows[change.id] = replace(
                    self.rows[change.id], detail=change.detail, seen_at=self.since
                )
                self._see(change.id, change.branch)
            case Item():
                if change.formerly is not None:
                    self._drop(change.formerly)
                self.items[change.id] = change
                self._remember(change.id, change, "document", change.detail)
            case Verdict():
                if change.confirm and change.id in self.items and change.id not in missing_before:
                    self._missing.add(change.id)
                    change = replace(change, keep=True)
                if not change.keep:
                    self.items.pop(change.id, None)
                self._remember(change.id, change, change.kind, change.detail)
            case Gone():
                self._drop(change.id)
            case Missing():
                if change.id in missing_before:
                    self._drop(change.id)
                else:
                    self._missing.add(change.id)
                    self._see(change.id, change.branch)
            case Listing():
                self._seen[change.branch] = set()
            case Trouble():
                self._seen.pop(change.branch, None)
            case Listed():
                seen = self._seen.pop(change.branch, None)
                for id, row in list(self.rows.items()):
                    if seen is None or id in seen:
                        continue
                    if change.branch in ("", row.branch):
                        self._drop(id)
            case Folder():
                if change.parent is None:
                    self.known_folders.pop(change.id, None)
                else:
                    self.known_folders[change.id] = change
            case Checkpoint():
                self.cursor = change.cursor

    def _waits(self, item: Item, missing_before: set[str]) -> bool:
        waits = item.confirm and item.id in self.items and item.id not in missing_before
        if waits:
            self._missing.add(item.id)
        return waits

    def _remember(self, id: str, change: Item | Verdict, verdict: str, detail: str | None) -> None:
        version = change.version if isinstance(change, Item) else None
        before = self.rows.get(id)
        if isinstance(change, Verdict) and change.keep and before is not None:
            self.rows[id] = replace(before, detail=detail, seen_at=self.since)
        else:
            self.rows[id] = Remembered(
                id=id,
                version=version,
                title=change.title,
                url=change.url,
                kind=change.kind if isinstance(change, Item) else None,
                verdict=verdict,
                detail=detail,
                extra=change.extra,
                branch=change.branch,
                document_id=DocumentId(f"d-{id}") if isinstance(change, Item) else None,
                seen_at=self.since,
            )
        self._see(id, change.branch)

    def _see(self, id: str, branch: str) -> None:
        for name, seen in self._seen.items():
            if name in ("", branch):
                seen.add(id)

    def _drop(self, id: str) -> None:
        self.items.pop(id, None)
        self.rows.pop(id, None)
