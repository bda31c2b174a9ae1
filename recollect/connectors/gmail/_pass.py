"""One pass over a mailbox: the listing, then what its history tells."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeGuard
from urllib.parse import quote

from recollect.connectors._json import as_list, as_object, as_word
from recollect.connectors.api import PROVIDER_UNAVAILABLE, Patience, Turning, as_json, field_of
from recollect.connectors.base import (
    Change,
    Checkpoint,
    Cursor,
    Gone,
    Item,
    Listed,
    Listing,
    Missing,
    Source,
    Verdict,
)
from recollect.connectors.gmail._threads import (
    HEADS,
    LONGEST_LINE,
    QUIET,
    Thread,
    address_of,
    attachments_of,
    left_by,
    line_of,
    marks_of,
    number_of,
    path_of,
    read_thread,
    said_by,
    subject_of,
    time_of,
    touched_by,
)
from recollect.errors import CursorExpired, NotFoundError, Permanent, Transient
from recollect.model import Remembered

QUERY = "q"
"""key of the metadata: only threads that Gmail's search finds with it"""
LABELS = "labelIds"
"""key of the metadata: only threads with all of these labels; ids with commas between them"""
PAGE = 500
"""threads or records, the most that Gmail gives at once"""
BATCH = 100
"""threads between two checkpoints"""
RETRIED = 2
"""threads of those that wait that may fail again in one sync"""
MOST_AGAIN = 100
"""threads that wait for another try"""
UNREADABLE = "unreadable"
"""verdict on threads that Gmail refuses and that are no documents"""
ASKED_AGAIN = timedelta(minutes=1)
"""after which what was not found is asked for once more"""
DAY = timedelta(days=1)
"""between two tries of those, but for syncs that a user asks for and threads that change"""
REFUSED = frozenset({400, 404})
"""what Gmail may say to a page token that it does not know any more"""
FOR_ALL = frozenset({"api_disabled", "domain_policy", "no_mailbox"})
"""codes of refusals that do not concern one thread"""


@dataclass(slots=True)
class ListingUnderWay:
    """A listing that is going on; JSON in the cursor, so that the next sync can go on with it."""

    began: str
    page: str | None = None
    """the one that comes next"""
    paged: bool = False
    """all pages were listed; what changed meanwhile was not looked at yet"""
    passed: int = 0
    """threads of the pages so far that are documents, or may become some"""


@dataclass(slots=True)
class State:
    """The cursor."""

    scope: str
    """query and labels; empty: the whole mailbox"""
    address: str
    history: str
    """number of the change that was looked at last"""
    listed: bool = False
    """whole, and whatever was not there is gone"""
    more: bool = False
    """older threads wait for documentLimit; they were not asked for"""
    listing: ListingUnderWay | None = None
    again: list[str] = field(default_factory=list[str])
    """threads that Gmail could not give the last time"""


class Pass:
    """One pass. What is asked for here are heads; `fetch` reads the mails."""

    def __init__(self, source: Source, cursor: Cursor | None) -> None:
        self._source = source
        self._api = source.api
        self._query = as_word(source.metadata.get(QUERY))
        self._label_ids = [id for id in as_word(source.metadata.get(LABELS)).split(",") if id]
        self._scope = json.dumps([self._query, self._label_ids])
        if not self._query and not self._label_ids:
            self._scope = ""
        self._known = _state(cursor)
        self._state = self._known or State(self._scope, "", "0")
        self._names: Mapping[str, str] | None = None
        self._patience = Patience(lambda: self._api.get(path_of("profile")))
        self._left: set[str] = set()
        """threads of which the history says that mails were deleted or put away"""
        self._missed = False
        """whether one was not found, of which nothing else says that it is gone"""

    def run(self) -> Iterator[Change]:
        try:
            yield from self._steps()
        except Transient:
            # What was asked for is dear, and should not be asked for again.
            if self._state.history != "0":
                yield self._checkpoint()
            raise

    def _steps(self) -> Iterator[Change]:
        if self._must_list():
            yield from self._begin()
        if self._state.listing is not None:
            yield from self._list(self._state.listing)
        yield from self._try_again()
        if not self._scope:
            yield from self._follow()
        elif self._state.listing is not None:
            yield from self._keep_moved(self._state.listing)
        if self._state.listing is not None:
            yield from self._end(self._state.listing)
        yield self._checkpoint()

    def _checkpoint(self) -> Checkpoint:
        return Checkpoint(asdict(self._state), ASKED_AGAIN if self._missed else None)

    # --- listing everything ---

    def _must_list(self) -> bool:
        state = self._state
        if self._known is None or state.scope != self._scope:
            return True
        if state.listing is not None:
            return False
        if not state.listed or (state.more and self._source.room() > 0):
            return True
        return bool(self._scope) and self._has_news()

    def _has_news(self) -> bool:
        for touched, newest in self._news():
            if touched:
                return True
            self._state.history = newest
        return False

    def _begin(self) -> Iterator[Change]:
        """The place in the history first: what changes from now on is found there."""
        profile = self._api.get(path_of("profile"))
        self._state = State(
            scope=self._scope,
            address=line_of(field_of(profile, "emailAddress", str)),
            history=_place_of(profile),
            listing=ListingUnderWay(self._source.since.isoformat()),
            again=self._state.again,
        )
        yield Listing()
        yield self._checkpoint()

    def _list(self, listing: ListingUnderWay) -> Iterator[Change]:
        turning = Turning("Gmail", listing.page)
        resumed = listing.page
        while not listing.paged:
            self._source.going()
            path = path_of(
                "threads",
                maxResults=str(PAGE),
                q=self._query or None,
                labelIds=self._label_ids,
                pageToken=listing.page,
            )
            accept = REFUSED if listing.page and listing.page == resumed else frozenset[int]()
            answer = self._api.call("GET", path, accept=accept)
            if answer.status in REFUSED:
                # The place where an earlier sync stopped is forgotten: from the start.
                listing.page, listing.passed, resumed = None, 0, None
                listing.began = self._source.since.isoformat()
                yield Listing()
                continue
            body = as_json(answer)
            if "threads" not in as_object(body):
                # An empty mailbox says at least that it has none.
                field_of(body, "resultSizeEstimate", int)
            marks = marks_of(body)
            yield from self._tell_listed(marks, listing)
            following = turning.turn(body.get("nextPageToken"), marks)
            listing.page, listing.paged = following, following is None
            yield self._checkpoint()

    def _tell_listed(self, marks: Mapping[str, str], listing: ListingUnderWay) -> Iterator[Change]:
        """One page. The newest come first, so without room what is not known yet can wait once so
        many have passed as documentLimit admits."""
        rows = {row.id: row for row in self._source.remembered(list(marks))}
        free, said = self._source.room(), 0
        for id, mark in marks.items():
            row = rows.get(id)
            if row is None and free <= 0 and listing.passed >= self._source.limit:
                if said:  # the filter may have kept out some of what was counted
                    yield self._checkpoint()
                    free, said = self._source.room(), 0
                if free <= 0:
                    self._state.more = True
                    continue
            if row is not None and _is_known(row) and as_word(row.extra.get("history")) == mark:
                yield _said_again(row)
            elif id in self._state.again and row is not None and not _is_refused(row):
                yield self._unread(id, row, "unavailable", row.detail or "")
            else:
                yield from self._look(id, row, mark)
            free -= row is None or row.document_id is None
            listing.passed += row is None or row.document_id is not None
            said += 1
            if said >= BATCH:
                yield self._checkpoint()
                free, said = self._source.room(), 0

    def _end(self, listing: ListingUnderWay) -> Iterator[Change]:
        yield Listed()
        yield self._checkpoint()
        began = datetime.fromisoformat(listing.began)
        self._state.listing = None
        # If that was not acted on, another listing has to confirm it; also that there is nothing.
        oldest = min((row.seen_at for row in self._source.remembered()), default=None)
        self._state.listed = oldest is not None and oldest >= began
        yield self._checkpoint()

    # --- following the history ---

    def _follow(self) -> Iterator[Change]:
        """Also at the end of a listing, before anything is taken as gone: a thread that got a
        mail meanwhile moved to pages that were listed already."""
        for touched, newest in self._news():
            rows = {row.id: row for row in self._source.remembered(list(touched))}
            for count, (id, number) in enumerate(touched.items(), 1):
                row = rows.get(id)
                if id in self._state.again and not _is_refused(row):
                    continue  # it has just been tried, or will be
                if row is None or not _is_known(row) or _history_of(row) < number:
                    yield from self._look(id, row)
                if count % BATCH == 0:
                    yield self._checkpoint()
            self._state.history = newest
            yield self._checkpoint()

    def _keep_moved(self, listing: ListingUnderWay) -> Iterator[Change]:
        """With a query the next sync says whether they are still in scope; nothing is gone yet."""
        began = datetime.fromisoformat(listing.began)
        for touched, _ in self._news():
            for row in list(self._source.remembered(list(touched))):
                if row.seen_at < began:
                    yield from self._look(row.id, row)
            yield self._checkpoint()

    def _news(self) -> Iterator[tuple[Mapping[str, int], str]]:
        """Pages of threads that changed, each with the number of its last change; and where to go
        on after the page. Raises CursorExpired."""
        start, page = self._state.history, None
        turning = Turning("Gmail")
        while True:
            self._source.going()
            path = path_of("history", startHistoryId=start, maxResults=str(PAGE), pageToken=page)
            answer = self._api.call("GET", path, accept=frozenset({404}))
            if answer.status == 404:
                if start == _place_of(self._api.get(path_of("profile"))):
                    # Of a mailbox that has been quiet for weeks Gmail knows no place any more.
                    yield {}, start
                    return
                if self._known is None:
                    raise Transient(
                        "Gmail refuses the place in its history that it gave",
                        code=PROVIDER_UNAVAILABLE,
                    )
                raise CursorExpired("Gmail no longer keeps its history from the last sync on")
            body = as_json(answer)
            newest = str(number_of(field_of(body, "historyId", str)))
            touched: dict[str, int] = {}
            last = 0
            records = as_list(body.get("history"))
            for record in records:
                last = max(last, number_of(field_of(record, "id", str)))
                for id in touched_by(record):
                    touched[id] = last
                self._left.update(left_by(record))
            page = turning.turn(body.get("nextPageToken"), (record["id"] for record in records))
            yield touched, newest if page is None else str(last or start)
            if page is None:
                return

    # --- one thread ---

    def _try_again(self) -> Iterator[Change]:
        waiting = list(self._state.again)
        if not waiting:
            return
        rows = {row.id: row for row in self._source.remembered(waiting)}
        for id in waiting:
            if self._patience.in_a_row >= RETRIED:
                break
            row = rows.get(id)
            if not _is_refused(row) or self._source.asked or row.seen_at < self._source.since - DAY:
                yield from self._look(id, row)
        self._patience.succeeded()
        yield self._checkpoint()

    def _look(self, id: str, row: Remembered | None, mark: str | None = None) -> Iterator[Change]:
        """A thread as it is now. One that cannot be read keeps no other from being synced."""
        self._source.going()
        waiting = self._state.again
        try:
            thread = read_thread(self._api, id, HEADS)
        except Permanent as error:
            if error.code in FOR_ALL:
                raise
            self._patience.succeeded()
            if id not in waiting and len(waiting) < MOST_AGAIN // 2:
                waiting.append(id)
            yield self._unread(id, row, UNREADABLE, f"{error}. What was read of it before stays")
            return
        except Transient as error:
            self._patience.failed(error)
            if len(waiting) >= MOST_AGAIN and id not in waiting:
                raise
            if id in waiting:  # the others get their turn before it
                waiting.remove(id)
            waiting.append(id)
            yield self._unread(id, row, "unavailable", f"{error}. What was read of it before stays")
            return
        except NotFoundError as error:
            yield from self._not_found(id, row, str(error))
            return
        # It may ask for the names of labels, in vain: then the thread waits on.
        item = None if thread is None else self._item(thread, mark or thread.history)
        self._forgive(id)
        if item is not None:
            yield item
        elif row is not None:
            yield Gone(id)

    def _not_found(self, id: str, row: Remembered | None, told: str) -> Iterator[Change]:
        """Gone, if the history tells so, too, or another sync does not find it either. The history
        may mean one mail of several, so the next sync looks once more."""
        again = self._state.again
        twice = id in again if row is None else row.missing_at is not None
        sure = twice or id in self._left
        self._forgive(id)
        if row is not None:
            yield Gone(id) if sure else Missing(id, told)
        if not sure or (row is not None and not twice and len(again) < MOST_AGAIN // 2):
            again.append(id)
        self._missed = self._missed or not sure

    def _forgive(self, id: str) -> None:
        self._patience.succeeded()
        if id in self._state.again:
            self._state.again.remove(id)

    def _unread(self, id: str, row: Remembered | None, kind: str, detail: str) -> Verdict:
        return Verdict(
            id,
            kind,
            detail,
            keep=True,
            url=self._url(id),
            title=row.title if row else None,
            failed=True,
        )

    def _item(self, thread: Thread, mark: str) -> Item:
        first, last = thread.mails[0], thread.mails[-1]
        files = [name for mail in thread.mails for name in attachments_of(mail.payload)]
        labels = {id for mail in thread.mails for id in mail.labels} - QUIET
        told = {
            "subject": subject_of(first),
            "from": address_of(first, "from"),
            "to": address_of(first, "to"),
            "attachmentNames": ", ".join(files)[:LONGEST_LINE],
            "labels": ", ".join(sorted(self._label(id) for id in labels))[:LONGEST_LINE],
        }
        modified = time_of(last.at)
        metadata = {
            "type": "gmail_thread",
            "threadId": thread.id,
            **{name: text for name, text in told.items() if text},
            "date": modified.isoformat(timespec="seconds"),
            "messageCount": len(thread.mails),
            "attachmentCount": len(files),
        }
        ids = "\n".join(mail.id for mail in thread.mails)
        return Item(
            id=thread.id,
            version=hashlib.sha256(ids.encode()).hexdigest()[:32],
            title=subject_of(first),
            url=self._url(thread.id),
            kind="text",
            metadata=metadata,
            extra={"history": mark, "metadata": metadata, "modified": modified.isoformat()},
            modified_at=modified,
        )

    def _url(self, id: str) -> str:
        address = quote(self._state.address, safe="@")
        return f"https://mail.google.com/mail/u/{address}/#all/{quote(id, safe='')}"

    def _label(self, id: str) -> str:
        """Its name; labels of the user have ids that say nothing."""
        if self._names is None:
            found = as_list(field_of(self._api.get(path_of("labels")), "labels", list))
            self._names = {said_by(one, "id"): line_of(said_by(one, "name")) for one in found}
        return self._names.get(id) or line_of(id)


def _place_of(profile: Any) -> str:
    """Where the history is now."""
    return str(number_of(field_of(profile, "historyId", str)))


def _is_refused(row: Remembered | None) -> TypeGuard[Remembered]:
    return row is not None and row.verdict == UNREADABLE


def _is_known(row: Remembered) -> bool:
    """Whether it can be said again without asking."""
    return row.version is not None and isinstance(row.extra.get("metadata"), dict)


def _said_again(row: Remembered) -> Item:
    modified = as_word(row.extra.get("modified"))
    return Item(
        id=row.id,
        version=row.version or "",
        title=row.title,
        url=row.url,
        kind="text",
        metadata=as_object(row.extra.get("metadata")),
        extra=row.extra,
        modified_at=datetime.fromisoformat(modified) if modified else None,
    )


def _history_of(row: Remembered) -> int:
    return number_of(as_word(row.extra.get("history")) or "0")


def _state(cursor: Cursor | None) -> State | None:
    """What a cursor says; None if it is not in our words."""
    said = cursor or {}
    scope, address, history = (said.get(name) for name in ("scope", "address", "history"))
    listed, more, listing = (said.get(name) for name in ("listed", "more", "listing"))
    if not (isinstance(scope, str) and isinstance(address, str) and isinstance(history, str)):
        return None
    if not (isinstance(listed, bool) and isinstance(more, bool) and history.isdecimal()):
        return None
    again = [id for id in as_list(said.get("again")) if isinstance(id, str)]
    state = State(scope, address, history, listed, more, again=again)
    if isinstance(listing, dict):
        under_way = as_object(listing)
        began, page = under_way.get("began"), under_way.get("page")
        if not (isinstance(began, str) and isinstance(page, str | None)):
            return None
        passed = under_way.get("passed")
        state.listing = ListingUnderWay(
            began,
            page,
            under_way.get("paged") is True,
            passed if isinstance(passed, int) else 0,
        )
    return state
