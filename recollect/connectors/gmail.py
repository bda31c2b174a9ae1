"""Gmail: the threads of a mailbox, each of them one document with all of its mails.

Everything is listed once and then followed through the history. Of a thread the ids of its mails
are the version: mails never change, and labels are metadata. Gmail puts a number on each thread
that rises with every change (its `historyId`), which is remembered: a listing asks only for
threads whose number is another one. So a history that Gmail forgot is no calamity: everything is
listed again, which finds what was deleted meanwhile as well, in one call for 500 threads.

With a query or labels only Gmail knows what is in scope. There, anything new in the history means
listing again.

Facts: developers.google.com/workspace/gmail/api (guides/sync, guides/push, reference/quota,
users.threads, users.history), cloud.google.com/pubsub/docs/authenticate-push-subscriptions.
"""

import base64
import binascii
import codecs
import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.errors import HeaderParseError
from email.header import decode_header
from email.utils import parsedate_to_datetime
from typing import Any, cast
from urllib.parse import quote, urlencode

import jwt

from recollect import log
from recollect.connectors import _google
from recollect.connectors._api import PROVIDER_UNAVAILABLE, RATE_LIMITED, Api, as_json, field_of
from recollect.connectors._json import as_list, as_object, as_word
from recollect.connectors.base import (
    FORGED,
    Account,
    Change,
    Checkpoint,
    Connector,
    Cursor,
    Gone,
    Item,
    Listed,
    Listing,
    Notice,
    Push,
    Registration,
    Source,
    Verdict,
)
from recollect.errors import (
    BadRequestError,
    CursorExpired,
    NotFoundError,
    Permanent,
    RecollectError,
    Transient,
)
from recollect.fetch import Answer, Fetcher
from recollect.model import Blob, Extracted, Remembered
from recollect.oauth import Tokens

QUERY = "q"
"""key of the metadata: only threads that Gmail's search finds with it"""
LABELS = "labelIds"
"""key of the metadata: only threads with all of these labels; ids with commas between them"""
TOPIC = "pubsubTopic"
"""key of the metadata: the Pub/Sub topic for pushes; without it there are none"""
SCOPE = "https://www.googleapis.com/auth/gmail.readonly"
MAILBOX = "mailbox"
PAGE = 500
"""threads or records, the most that Gmail gives at once"""
BATCH = 100
"""threads between two checkpoints"""
PATIENCE = 3
"""threads in a row that fail before Gmail as a whole counts as unavailable"""
MOST_AGAIN = 100
"""threads that wait for another try"""
REFUSED = frozenset({400, 404})
"""what Gmail may say to a page token that it does not know any more"""
FOR_ALL = frozenset({"api_disabled", "domain_policy", "no_mailbox"})
"""codes of refusals that do not concern one thread"""
LEFT_OUT = frozenset({"TRASH", "SPAM", "DRAFT"})
"""labels of mails that are not read; a draft becomes another mail each time it is saved"""
QUIET = frozenset({"UNREAD"})
"""labels that are not told: they come and go with every look at the mailbox"""
CHANGED = ("messagesAdded", "messagesDeleted", "labelsAdded", "labelsRemoved")
RENEWAL = timedelta(days=2)
"""Registrations are renewed at half of their life, and Google wants that daily."""
NESTED = 6
"""levels of parts that are looked through for attachments"""
LONGEST_LINE = 1_000
"""characters of what is metadata"""
MOST_PARTS = 1_000
"""of one mail"""
DEEPEST = 5
"""mails in mails"""
LONGEST_BODY = 2_000_000
"""characters"""
LONGEST_TEXT = 10_000_000
"""characters of a thread"""
LARGEST_BODY = 10_000_000
"""bytes of a body that comes by itself"""
MOST_CALLS = 50
"""for such bodies of one thread"""
LEEWAY = timedelta(minutes=1)
"""by which the clocks of others may be wrong"""
ISSUERS = frozenset({"accounts.google.com", "https://accounts.google.com"})
REFETCH = 60.0
"""seconds between two looks at Google's keys; anybody can make up the name of a key"""
KEYS_LIFE = (60, 86_400)
"""seconds; the least and the most that keys are kept"""

LOG = log.get("gmail")

TOPIC_NAME = re.compile(r"projects/[a-z0-9.:-]{4,100}/topics/[A-Za-z][A-Za-z0-9._~+%-]{2,254}")
LABEL_ID = re.compile(r"[A-Za-z0-9_^.-]{1,100}")
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
UNSTORABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
GAPS = re.compile(r"\n{3,}")
WAIT_UNTIL = re.compile(r"Retry after (\d{4}-\d\d-\d\dT[\d:]{8}(?:\.\d{1,6})?Z)", re.IGNORECASE)
CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:+-]{1,40})", re.IGNORECASE)
ALSO_UTF_8 = re.compile(r"iso-?2022|hz|utf-?(16|32)", re.IGNORECASE)
"""charsets whose bytes may be UTF-8 as well, if there is one of `SIGNS` in them"""
SIGNS = (b"\x1b", b"\0", b"~{")
NO_CHARSETS = frozenset({"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"})
"""codecs of Python that no mail is written in, some of which take very long"""


class Gmail(Connector):
    provider = "gmail"
    name = "Gmail"
    api_url = "https://gmail.googleapis.com"
    oauth = _google.GOOGLE_OAUTH((SCOPE, "openid", "email"))
    # A project of today has 6,000 units a minute for each user, and threads.get costs 40.
    per_second = 2.4
    pushes = True

    def check(self, metadata: Mapping[str, Any], fetcher: Fetcher) -> dict[str, Any]:
        kept = dict(metadata)
        if QUERY in metadata:
            kept[QUERY] = _checked_query(metadata[QUERY])
        if LABELS in metadata:
            kept[LABELS] = ",".join(_checked_labels(metadata[LABELS]))
        topic = metadata.get(TOPIC)
        if topic is not None and not (isinstance(topic, str) and TOPIC_NAME.fullmatch(topic)):
            raise BadRequestError(f"metadata.{TOPIC}: must be projects/PROJECT/topics/TOPIC")
        return kept

    def judge(self, answer: Answer) -> Exception | None:
        known = _google.judge(answer, scope="gmail.readonly")
        if isinstance(known, Transient) and known.after is None:
            return Transient(str(known), code=known.code, after=_told_wait(answer))
        if known is not None:
            return known
        why = _google.reasons(answer)
        if answer.status == 400 and why & {"failedPrecondition", "FAILED_PRECONDITION"}:
            return Permanent(
                f"this Google account has no mailbox, or Gmail is switched off for it"
                f" ({_google.message(answer)})",
                code="no_mailbox",
            )
        if answer.status == 403 and "domainPolicy" in why:
            return Permanent(
                "an administrator of the Google Workspace does not let applications read mail",
                code="domain_policy",
            )
        return None

    def identify(self, api: Api, tokens: Tokens) -> Account:
        return _google.identify(api, tokens)

    # --- listing and fetching ------------------------------------------------------------------

    def changes(self, source: Source, cursor: Cursor | None) -> Iterator[Change]:
        yield from _Sync(source, cursor).run()

    def fetch(self, source: Source, item: Remembered) -> Extracted:
        fields = "id,messages(id,labelIds,internalDate,payload)"
        try:
            thread = _thread(source.api, item.id, fields)
        except Permanent as error:
            raise Permanent(f"{item.title}: {error}", code=error.code) from error
        if thread is None:
            raise NotFoundError(f"{item.title} is not in the mailbox any more")
        return _Reader(source).read(thread)

    # --- pushes --------------------------------------------------------------------------------

    def watches(self, source: Source) -> Sequence[str]:
        return [MAILBOX] if source.metadata.get(TOPIC) else []

    def subscribe(self, source: Source, registration: Registration) -> Registration:
        """There is one watch for a mailbox and an application; a second one is the first, renewed.

        Raises Permanent (`no_watch`) when Gmail may not publish to the topic.
        """
        body = {
            "topicName": source.metadata.get(TOPIC),
            "labelIds": ["INBOX"],
            "labelFilterBehavior": "include",
        }
        refused = frozenset({400, 403, 404})
        answer = source.api.call("POST", _path("watch"), json=body, accept=refused, repeat=True)
        if answer.status in refused:
            raise self.judge(answer) or Permanent(
                f"Gmail does not publish to {body['topicName']} ({_google.message(answer)}): the"
                " topic must be in the project of the OAuth application, and"
                " gmail-api-push@system.gserviceaccount.com must be a publisher of it",
                code="no_watch",
            )
        watch = as_json(answer)
        ends = _time(_number(field_of(watch, "expiration", str)))
        return replace(
            registration,
            remote={"historyId": field_of(watch, "historyId", str)},
            expires_at=min(ends, source.since + RENEWAL),
        )

    def unsubscribe(self, api: Api, registration: Registration) -> None:
        """Nothing: `users.stop` would end the pushes of every connection of this mailbox, and the
        renewed watch with the old one. What nobody renews ends within a week."""

    def receive(self, push: Push) -> Notice:
        """Of `Push.config`: `audience`, `service_account`, and `keys` by their names (`Keys`).

        What is authentic is always acknowledged; Pub/Sub would repeat it for a week.
        """
        audience, account = push.config.get("audience"), push.config.get("service_account")
        keys = push.config.get("keys")
        if not (isinstance(audience, str) and isinstance(account, str) and callable(keys)):
            return FORGED
        kind, _, token = push.headers.get("authorization", "").partition(" ")
        proven = kind.lower() == "bearer" and verify(
            token.strip(),
            audience=audience,
            service_account=account,
            keys=cast("FindKey", keys),
            now=datetime.now(UTC),
        )
        if not proven:
            return FORGED
        message = as_object(_json(push.body).get("message"))
        address = as_word(_json(_bytes(as_word(message.get("data"))) or b"").get("emailAddress"))
        key = as_word(message.get("messageId"))[:100]
        return Notice(status=200, accounts=[address] if address else [], key=key or None)


# --- one sync ----------------------------------------------------------------------------------


@dataclass(slots=True)
class UnderWay:
    """A listing that is going on; JSON in the cursor, so that the next sync can go on with it."""

    began: str
    page: str | None = None
    """the one that comes next"""
    paged: bool = False
    """all pages were listed; what changed meanwhile was not looked at yet"""


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
    listing: UnderWay | None = None
    again: list[str] = field(default_factory=list[str])
    """threads that Gmail could not give the last time"""


@dataclass(frozen=True, slots=True)
class Mail:
    id: str
    at: int
    """milliseconds since 1970, when Gmail got it"""
    labels: Sequence[str]
    payload: Mapping[str, Any]
    headers: Mapping[str, str]
    """names in lower case; the first of each"""


@dataclass(frozen=True, slots=True)
class Thread:
    id: str
    history: str
    mails: Sequence[Mail]
    """the oldest first; at least one"""


class _Sync:
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
        self._failures = 0

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
        return Checkpoint(asdict(self._state))

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
        profile = self._api.get(_path("profile"))
        history = field_of(profile, "historyId", str)
        self._state = State(
            scope=self._scope,
            address=_line(field_of(profile, "emailAddress", str)),
            history=str(_number(history)),
            listing=UnderWay(self._source.since.isoformat()),
            again=self._state.again,
        )
        yield Listing()
        yield self._checkpoint()

    def _list(self, listing: UnderWay) -> Iterator[Change]:
        seen = {listing.page} if listing.page else set[str]()
        resumed = listing.page
        while not listing.paged:
            self._source.going()
            path = _path(
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
                listing.page = resumed = None
                listing.began = self._source.since.isoformat()
                yield Listing()
                continue
            body = as_json(answer)
            if "threads" not in as_object(body):
                # An empty mailbox says at least that it has none.
                field_of(body, "resultSizeEstimate", int)
            yield from self._tell_listed(_marks(body))
            following = _following(body, seen)
            listing.page, listing.paged = following, following is None
            yield self._checkpoint()

    def _tell_listed(self, marks: Mapping[str, str]) -> Iterator[Change]:
        """One page. The newest come first, so without room what is not known yet can wait."""
        rows = {row.id: row for row in self._source.remembered(list(marks))}
        free, said = self._source.room(), 0
        for id, mark in marks.items():
            row = rows.get(id)
            if row is None and free <= 0 and said:
                # The filter may have kept out some of what was counted.
                yield self._checkpoint()
                free, said = self._source.room(), 0
            if row is None and free <= 0:
                self._state.more = True
                continue
            if row is not None and _is_known(row) and as_word(row.extra.get("history")) == mark:
                yield _said_again(row)
            else:
                yield from self._look(id, row, mark)
            free -= row is None or row.document_id is None
            said += 1
            if said >= BATCH:
                yield self._checkpoint()
                free, said = self._source.room(), 0

    def _end(self, listing: UnderWay) -> Iterator[Change]:
        yield Listed()
        yield self._checkpoint()
        began = datetime.fromisoformat(listing.began)
        self._state.listing = None
        # If that was not acted on, another listing has to confirm it.
        self._state.listed = all(row.seen_at >= began for row in self._source.remembered())
        yield self._checkpoint()

    # --- following the history ---

    def _follow(self) -> Iterator[Change]:
        """Also at the end of a listing, before anything is taken as gone: a thread that got a
        mail meanwhile moved to pages that were listed already."""
        for touched, newest in self._news():
            rows = {row.id: row for row in self._source.remembered(list(touched))}
            for count, (id, number) in enumerate(touched.items(), 1):
                row = rows.get(id)
                if row is None or not _is_known(row) or _history_of(row) < number:
                    yield from self._look(id, row)
                if count % BATCH == 0:
                    yield self._checkpoint()
            self._state.history = newest
            yield self._checkpoint()

    def _keep_moved(self, listing: UnderWay) -> Iterator[Change]:
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
        seen: set[str] = set()
        while True:
            self._source.going()
            path = _path("history", startHistoryId=start, maxResults=str(PAGE), pageToken=page)
            answer = self._api.call("GET", path, accept=frozenset({404}))
            if answer.status == 404:
                if self._known is None:
                    raise Transient("Gmail refuses its own number", code=PROVIDER_UNAVAILABLE)
                raise CursorExpired("Gmail does not know the place in its history any more")
            body = as_json(answer)
            newest = str(_number(field_of(body, "historyId", str)))
            touched: dict[str, int] = {}
            last = 0
            for record in as_list(body.get("history")):
                last = max(last, _number(field_of(record, "id", str)))
                for id in _touched(record):
                    touched[id] = last
            page = _following(body, seen)
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
            yield from self._look(id, rows.get(id))
        yield self._checkpoint()

    def _look(self, id: str, row: Remembered | None, mark: str | None = None) -> Iterator[Change]:
        """A thread as it is now. One that cannot be read keeps no other from being synced."""
        self._source.going()
        waiting = self._state.again
        try:
            thread = _thread(self._api, id, HEADS)
        except Permanent as error:
            if error.code in FOR_ALL:
                raise
            self._forgive(id)
            yield self._unread(id, row, "unreadable", str(error))
            return
        except Transient as error:
            self._failures += 1
            full = len(waiting) >= MOST_AGAIN and id not in waiting
            if error.code == RATE_LIMITED or self._failures >= PATIENCE or full:
                raise
            if id not in waiting:
                waiting.append(id)
            yield self._unread(id, row, "unavailable", str(error))
            return
        self._forgive(id)
        if thread is not None:
            yield self._item(thread, mark or thread.history)
        elif row is not None:
            yield Gone(id)

    def _forgive(self, id: str) -> None:
        self._failures = 0
        if id in self._state.again:
            self._state.again.remove(id)

    def _unread(self, id: str, row: Remembered | None, kind: str, detail: str) -> Verdict:
        return Verdict(
            id,
            kind,
            f"{detail}. What is here of it stays",
            keep=True,
            url=self._url(id),
            title=row.title if row else None,
            failed=True,
        )

    def _item(self, thread: Thread, mark: str) -> Item:
        first, last = thread.mails[0], thread.mails[-1]
        files = [name for mail in thread.mails for name in _attachments(mail.payload)]
        labels = {id for mail in thread.mails for id in mail.labels} - QUIET
        told = {
            "subject": _subject(first),
            "from": _address(first, "from"),
            "to": _address(first, "to"),
            "attachmentNames": ", ".join(files)[:LONGEST_LINE],
            "labels": ", ".join(sorted(self._label(id) for id in labels))[:LONGEST_LINE],
        }
        modified = _time(last.at)
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
            title=_subject(first),
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
            found = as_list(field_of(self._api.get(_path("labels")), "labels", list))
            self._names = {_said(one, "id"): _line(_said(one, "name")) for one in found}
        return self._names.get(id) or _line(id)


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
    return _number(as_word(row.extra.get("history")) or "0")


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
        state.listing = UnderWay(began, page, under_way.get("paged") is True)
    return state


# --- what Gmail tells --------------------------------------------------------------------------


def _path(tail: str, **params: str | Sequence[str] | None) -> str:
    given = {name: value for name, value in params.items() if value}
    query = f"?{urlencode(given, doseq=True)}" if given else ""
    return f"/gmail/v1/users/me/{tail}{query}"


def _parts_of(levels: int) -> str:
    """A mask of fields: parts without what is in them, that many levels deep."""
    below = f",{_parts_of(levels - 1)}" if levels > 1 else ""
    return f"parts(mimeType,filename,body/attachmentId{below})"


HEADS = (
    "id,historyId,messages(id,labelIds,internalDate,"
    f"payload(mimeType,filename,headers,body/attachmentId,{_parts_of(NESTED)}))"
)
"""All but the bodies. `format=metadata` costs as much, and does not tell of attachments."""


def _thread(api: Api, id: str, fields: str) -> Thread | None:
    """None: it is deleted, or all of it is in the trash, spam, or not sent yet."""
    path = _path(f"threads/{quote(id, safe='')}", format="full", fields=fields)
    answer = api.call("GET", path, accept=frozenset({404}))
    if answer.status == 404:
        return None
    body = as_json(answer)
    mails = [_mail(entry) for entry in as_list(field_of(body, "messages", list))]
    kept = [mail for mail in mails if LEFT_OUT.isdisjoint(mail.labels)]
    kept.sort(key=lambda mail: mail.at)
    if not kept:
        return None
    return Thread(field_of(body, "id", str), as_word(body.get("historyId")), kept)


def _mail(entry: Any) -> Mail:
    said = as_object(entry)
    payload = as_object(said.get("payload"))
    return Mail(
        id=field_of(entry, "id", str),
        at=_number(as_word(said.get("internalDate")) or "0"),
        labels=[id for id in as_list(said.get("labelIds")) if isinstance(id, str)],
        payload=payload,
        headers=_headers(payload),
    )


def _headers(part: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for header in as_list(part.get("headers")):
        found.setdefault(_said(header, "name").lower(), _said(header, "value"))
    return found


def _marks(body: Mapping[str, Any]) -> dict[str, str]:
    """Thread → historyId, in the order of the listing."""
    entries = as_list(body.get("threads"))
    return {field_of(one, "id", str): field_of(one, "historyId", str) for one in entries}


def _touched(record: Any) -> Iterator[str]:
    """Threads of one record of the history."""
    said = as_object(record)
    kinds = [kind for kind in CHANGED if kind in said]
    for kind in kinds:
        for entry in as_list(said[kind]):
            labels = as_list(as_object(entry).get("labelIds"))
            if kind.startswith("labels") and QUIET.issuperset(labels):
                continue
            yield field_of(as_object(entry).get("message"), "threadId", str)
    if not kinds:
        for message in as_list(said.get("messages")):
            yield field_of(message, "threadId", str)


def _following(body: Mapping[str, Any], seen: set[str]) -> str | None:
    """The token of the next page, if there is one; raises Transient for one that came before."""
    page = as_word(body.get("nextPageToken"))
    if page in seen:
        raise Transient("Gmail leads from page to page in a circle", code=PROVIDER_UNAVAILABLE)
    if page:
        seen.add(page)
    return page or None


def _told_wait(answer: Answer) -> timedelta | None:
    """Gmail hides it in the message for people: `Retry after 2026-01-31T12:00:00.000Z`."""
    found = WAIT_UNTIL.search(_google.message(answer))
    if found is None:
        return None
    try:
        now = parsedate_to_datetime(answer.headers.get("date", "")).astimezone(UTC)
    except ValueError:
        now = datetime.now(UTC)
    wait = datetime.fromisoformat(found[1]) - now
    return min(max(wait, timedelta(seconds=1)), timedelta(hours=1))


def _number(text: str) -> int:
    """Raises Transient for what is no number."""
    if not re.fullmatch(r"[0-9]{1,30}", text):
        raise Transient(f"Gmail answered {text[:50]!r} for a number", code=PROVIDER_UNAVAILABLE)
    return int(text)


def _time(milliseconds: int) -> datetime:
    # Mail of an import may claim any time.
    return datetime.fromtimestamp(min(milliseconds / 1000, 253_402_300_799), UTC)


def _said(entry: Any, name: str) -> str:
    return as_word(as_object(entry).get(name))


def _line(text: str) -> str:
    """Without what cannot be stored; on one line."""
    return " ".join(UNPRINTABLE.sub(" ", text).split())[:LONGEST_LINE]


# --- heads -------------------------------------------------------------------------------------


def _subject(mail: Mail) -> str:
    return _header(mail.headers, "subject") or "(no subject)"


def _address(mail: Mail, name: str) -> str:
    return _header(mail.headers, name)


def _header(headers: Mapping[str, str], name: str) -> str:
    """Gmail decodes what it understands; the rest is still in the form of RFC 2047."""
    text = headers.get(name, "")[: 10 * LONGEST_LINE]
    if "=?" in text:
        try:
            text = "".join(_piece(*piece) for piece in decode_header(text))
        except (HeaderParseError, ValueError):
            return _line(text)
    return _line(text)


def _piece(piece: str | bytes, charset: str | None) -> str:
    if isinstance(piece, str):
        return piece
    # So Python passes on what stands between encoded words.
    return piece.decode("raw_unicode_escape") if charset is None else _decoded(piece, charset)


def _attachments(payload: Mapping[str, Any]) -> Iterator[str]:
    """Names of what is attached; pictures that an HTML body shows are part of it."""
    pending = [(payload, "")]
    looked = 0
    while pending and looked < MOST_PARTS:
        part, around = pending.pop()
        looked += 1
        kind, inner = _kind(part), as_list(part.get("parts"))
        if kind.startswith("multipart/"):
            pending += [(as_object(one), kind) for one in reversed(inner)]
        elif _is_attachment(part, around):
            yield _line(as_word(part.get("filename"))) or f"unnamed ({_line(kind)})"


def _is_attachment(part: Mapping[str, Any], around: str) -> bool:
    kind = _kind(part)
    if kind.startswith("image/") and around == "multipart/related":
        return False
    if as_word(part.get("filename")) or kind == "message/rfc822":
        return True
    return not kind.startswith("text/") and "attachmentId" in as_object(part.get("body"))


def _kind(part: Mapping[str, Any]) -> str:
    return as_word(part.get("mimeType")).lower()


# --- mails as text -----------------------------------------------------------------------------


class _Reader:
    """One thread as Markdown: mail after mail, so that another one is added at the end.

    The first mail keeps what it quotes, since that is nowhere else in the document; the others
    quote what stands above them.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._calls = 0
        self._size = 0
        self._warnings: dict[str, None] = {}

    def read(self, thread: Thread) -> Extracted:
        blocks: list[str] = []
        for place, mail in enumerate(thread.mails):
            if self._size > LONGEST_TEXT:
                left = len(thread.mails) - place
                self._warn(f"The last {left} mails were left out: the thread is too long.")
                break
            blocks.append(self._mail(mail, quotes=place == 0))
            self._size += len(blocks[-1])
        # As all text leaves extraction: without what nobody sees.
        whole = Blob("\n\n".join(blocks).encode(), "text/markdown", "thread.md")
        text = self._source.read(whole).text
        return Extracted(text, title=_subject(thread.mails[0]), warnings=list(self._warnings))

    def _mail(self, mail: Mail, *, quotes: bool) -> str:
        at = _time(mail.at).strftime("%Y-%m-%d %H:%M UTC")
        sender = _header(mail.headers, "from")[:200] or "Unknown"
        heads = [f"## {sender}, {at}", *_told(mail.headers, ("To", "Cc", "Subject"))]
        keep = quotes or FORWARD.match(_header(mail.headers, "subject")) is not None
        blocks = ["\n".join(heads), *self._contents(mail.id, mail.payload, 0, keep=keep)]
        names = list(_attachments(mail.payload))
        if names:
            blocks.append(f"Attachments ({len(names)}): {', '.join(names)}")
        return "\n\n".join(block for block in blocks if block)

    def _contents(
        self, mail: str, payload: Mapping[str, Any], depth: int, *, keep: bool
    ) -> Iterator[str]:
        """Bodies, then the mails that are attached."""
        bodies, inner, whole = _sorted_parts(payload)
        if not whole:
            self._warn("Parts of a mail were left out: it has too many of them.")
        for part in bodies:
            yield self._body(mail, part, keep=keep)
        for part in inner:
            if depth + 1 >= DEEPEST:
                self._warn("Mails within mails were left out: they are nested too deeply.")
                return
            headers = _headers(part)
            heads = _told(headers, ("From", "To", "Cc", "Date", "Subject"))
            yield "\n".join(["### Attached mail", *heads])
            yield from self._contents(mail, part, depth + 1, keep=True)

    def _body(self, mail: str, part: Mapping[str, Any], *, keep: bool) -> str:
        data = self._data(mail, part)
        text = _decoded(data, _charset(part))
        if len(text) > LONGEST_BODY:
            text = text[:LONGEST_BODY]
            self._warn("The end of a mail was left out: it is too long.")
        if _kind(part) == "text/html":
            whole = "" if keep else self._html(without_quoted_markup(text))
            text = whole if whole.strip() else self._html(text)
        text = _tidy(text)
        return text if keep else without_quotes(text) or text

    def _html(self, markup: str) -> str:
        """All of it, as a mail: of a page only the main content would be read."""
        head = b"MIME-Version: 1.0\nContent-Type: text/html; charset=utf-8\n"
        body = UNSTORABLE.sub(" ", markup).encode()
        blob = Blob(head + b"Content-Transfer-Encoding: 8bit\n\n" + body, "message/rfc822", "m.eml")
        try:
            return self._source.read(blob).text
        except Permanent as error:
            self._warn(f"A mail in HTML could not be read: {error}")
            return ""

    def _data(self, mail: str, part: Mapping[str, Any]) -> bytes:
        """The bytes of a body; large ones come by themselves."""
        body = as_object(part.get("body"))
        encoded, id = as_word(body.get("data")), as_word(body.get("attachmentId"))
        if not encoded and id:
            size = body.get("size")
            if self._calls >= MOST_CALLS or (isinstance(size, int) and size > LARGEST_BODY):
                self._warn("The text of a mail was left out: it is too long.")
                return b""
            self._calls += 1
            path = _path(f"messages/{quote(mail, safe='')}/attachments/{quote(id, safe='')}")
            encoded = field_of(self._source.api.get(path), "data", str)
        data = _bytes(encoded)
        if data is None:
            self._warn("A part of a mail could not be decoded.")
            return b""
        return data

    def _warn(self, sentence: str) -> None:
        self._warnings[sentence] = None


def _sorted_parts(
    payload: Mapping[str, Any],
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]], bool]:
    """Bodies, of alternatives the better one; the mails that are attached; whether that is all."""
    bodies: list[Mapping[str, Any]] = []
    inner: list[Mapping[str, Any]] = []
    pending = [payload]
    looked = 0
    while pending and looked < MOST_PARTS:
        part = pending.pop()
        looked += 1
        kind = _kind(part)
        below = [as_object(one) for one in as_list(part.get("parts"))]
        if kind == "message/rfc822":
            inner += below
        elif kind == "multipart/alternative":
            pending += _better(below)
        elif below:
            pending += reversed(below)
        elif kind in ("text/plain", "text/html") and not _is_file(part):
            bodies.append(part)
    return bodies, inner, not pending


def _better(parts: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The plain text, unless it says nothing (`See the HTML version`)."""
    plain = [part for part in parts if _kind(part) == "text/plain"]
    rich = [
        part for part in parts if _kind(part) == "text/html" or _kind(part).startswith("multipart/")
    ]
    for part in plain:
        body = as_object(part.get("body"))
        # More than three words; what comes by itself is long.
        if "attachmentId" in body or len((_bytes(as_word(body.get("data"))) or b"").split()) > 3:
            return [part]
    return rich[:1] or plain[:1] or parts[:1]


def _is_file(part: Mapping[str, Any]) -> bool:
    disposition = _headers(part).get("content-disposition", "")
    named = as_word(part.get("filename")) != ""
    return named or disposition.strip().lower().startswith("attachment")


def _charset(part: Mapping[str, Any]) -> str | None:
    found = CHARSET.search(_headers(part).get("content-type", ""))
    return found[1] if found else None


def _told(headers: Mapping[str, str], names: Iterable[str]) -> list[str]:
    return [f"{name}: {text}" for name in names if (text := _header(headers, name.lower()))]


def _bytes(encoded: str) -> bytes | None:
    """Base64 for URLs, padded or not; None: it is none."""
    try:
        return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    except (binascii.Error, ValueError):
        return None


def _decoded(data: bytes, charset: str | None) -> str:
    """Gmail turns most bodies into UTF-8 and leaves the charset in their headers as it was."""
    declared = _codec(charset or "windows-1252")
    if not (ALSO_UTF_8.match(declared) and any(sign in data for sign in SIGNS)):
        try:
            return data.decode()
        except UnicodeDecodeError:
            pass
    return data.decode(declared, "replace")


def _codec(charset: str) -> str:
    try:
        name = codecs.lookup(charset).name
        # Some of Python's codecs are not for text.
        b"?".decode(name, "replace")
    except (LookupError, ValueError):
        return "windows-1252"
    return "windows-1252" if name in NO_CHARSETS else name


def _tidy(text: str) -> str:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = (line.rstrip() for line in UNSTORABLE.sub("", text).split("\n"))
    return GAPS.sub("\n\n", "\n".join(lines)).strip("\n")


# --- quotes ------------------------------------------------------------------------------------

FORWARD = re.compile(r"\s*(fwd?|wg|tr|rv|enc|vs|転送|转发)\s*[:\uff1a]", re.IGNORECASE)
"""subjects of mails that pass others on"""
WROTE = re.compile(
    r"(\b(wrote|schrieb\b.{0,100}|a écrit|escribió|escreveu|ha scritto|schreef\b.{0,100}"
    r"|skrev\b.{0,100}|kirjoitti|napisał(\(a\))?|(на)?пи[сш]\S{1,6})|写道|のメッセージ)"
    r"\s*[:\uff1a]$",
    re.IGNORECASE,
)
DATE = re.compile(r"\b(19|20)\d\d\b|\b\d{1,2}[:.h]\d\d\b|\b\d{1,2}[./]\d{1,2}[./]\d\d")
OPENING = re.compile(r"(on|am|le|el|il|op|em|den|dnia)\b", re.IGNORECASE)
"""first words of the line above a quote"""
ORIGINAL = re.compile(
    r"[-_]{3,}\s*(original message|original appointment|ursprüngliche nachricht|message d'origine"
    r"|mensaje original|mensagem original|messaggio originale|oorspronkelijk bericht"
    r"|исходное сообщение|原始邮件|元のメッセージ)\s*[-_]{3,}$",
    re.IGNORECASE,
)


def _field(*names: str) -> re.Pattern[str]:
    """A line of a head as Outlook writes it, in Markdown or not: `**From:** Ann`."""
    return re.compile(
        rf"[*_ ]{{0,4}}({'|'.join(names)})[*_ \xa0]{{0,4}}[:\uff1a][*_ ]{{0,4}}\S", re.IGNORECASE
    )


SENDER = _field("from", "von", "de", "da", "van", "från", "fra", "od", "от", "发件人", "差出人")
SENT = _field(
    "sent", "date", "gesendet", "datum", "envoyé", "enviado", "enviada em", "fecha", "data",
    "inviato", "verzonden", "skickat", "sendt", "wysłano", "отправлено", "дата", "发送时间",
    "送信日時",
)  # fmt: skip
SUBJECT = _field(
    "subject", "betreff", "objet", "asunto", "assunto", "oggetto", "onderwerp", "ämne", "emne",
    "temat", "тема", "主题", "件名",
)  # fmt: skip
HEAD_LINES = 8
RULE = re.compile(r"[-_* ]*")
"""a line that only sets apart, or an empty one"""
TAG = re.compile(r"<(/?)(div|blockquote)\b([^<>]{0,2000})>", re.IGNORECASE)
QUOTED = re.compile(
    r"gmail_quote|yahoo_quoted|moz-cite-prefix|protonmail_quote|type\s*=\s*[\"']?cite\b",
    re.IGNORECASE,
)
"""in a tag that begins a quote"""


def without_quotes(text: str) -> str:
    """What a mail itself says: not what follows `On … wrote:` behind `>`, nor what follows the
    head that Outlook puts above the mail it answers."""
    lines = text.split("\n")
    kept: list[str] = []
    quoting = inside = False
    for line in lines[: _answered_at(lines)]:
        quoted = line.startswith(">")
        if quoted and not inside and (start := _attribution(kept)) is not None:
            del kept[start:]
            quoting = True
        inside = quoted or (inside and not line)
        if not (quoted and quoting):
            kept.append(line)
    return GAPS.sub("\n\n", "\n".join(kept)).strip()


def without_quoted_markup(html: str) -> str:
    """The same for what mail programs mark as quoted."""
    kept: list[str] = []
    start = depth = 0
    within = ""
    for tag in TAG.finditer(html):
        closing, name, attributes = tag[1], tag[2].lower(), tag[3]
        if not within:
            if not closing and QUOTED.search(attributes):
                kept.append(html[start : tag.start()])
                within, depth = name, 1
        elif name == within:
            depth += -1 if closing else 1
            if depth == 0:
                within, start = "", tag.end()
    if not within:
        kept.append(html[start:])
    return "".join(kept)


def _attribution(lines: Sequence[str]) -> int | None:
    """Where the line (or what it was broken into) begins that introduces a quote below."""
    end = len(lines)
    while end and len(lines) - end < 2 and not lines[end - 1].strip():
        end -= 1
    paragraph: list[str] = []
    for line in reversed(lines[max(0, end - 3) : end]):
        if not line.strip() or line.startswith(">"):
            break
        paragraph.insert(0, line.strip())
    joined = " ".join(paragraph)
    if not paragraph or len(joined) > 500 or joined[-1] not in ":\uff1a":
        return None
    if not WROTE.search(joined) and not ("@" in joined and DATE.search(joined)):
        return None
    count = 1
    while count < len(paragraph) and not DATE.search(" ".join(paragraph[-count:])):
        count += 1
    if not DATE.search(" ".join(paragraph[-count:])):
        return end - 1
    if count < len(paragraph) and not OPENING.match(paragraph[-count]):
        count += OPENING.match(paragraph[-count - 1]) is not None
    return end - count


def _answered_at(lines: Sequence[str]) -> int:
    """The line from which on Outlook repeats the mail that is answered; behind the last: none."""
    for at, line in enumerate(lines):
        if ORIGINAL.match(line.strip()):
            return at
        if not SENDER.match(line):
            continue
        below = lines[at + 1 : at + HEAD_LINES]
        if any(SENT.match(one) for one in below) and any(SUBJECT.match(one) for one in below):
            above = at
            while above and RULE.fullmatch(lines[above - 1]):
                above -= 1
            return above
    return len(lines)


# --- metadata ----------------------------------------------------------------------------------


def _checked_query(given: object) -> str:
    if not isinstance(given, str) or len(given) > 1_000 or UNPRINTABLE.search(given):
        raise BadRequestError(
            f"metadata.{QUERY}: must be what one types into Gmail's search, at most 1,000"
            " characters"
        )
    return given.strip()


def _checked_labels(given: object) -> list[str]:
    """Ids out of a list or `a,b`; raises BadRequestError."""
    parts = given.split(",") if isinstance(given, str) else given
    found: list[str] = []
    for part in cast("list[Any]", parts) if isinstance(parts, list) else [None]:
        id = part.strip() if isinstance(part, str) else None
        if id is None or (id and not LABEL_ID.fullmatch(id)):
            raise BadRequestError(
                f"metadata.{LABELS}: must be ids of labels (INBOX, Label_12) with commas between"
            )
        found += [id] if id else []
    if len(set(found)) > 20:
        raise BadRequestError(f"metadata.{LABELS}: at most 20 labels")
    return list(dict.fromkeys(found))


# --- proofs of pushes --------------------------------------------------------------------------

FindKey = Callable[[str], jwt.PyJWK | None]
"""A key of Google's by its name; None: there is none of that name."""


def verify(
    token: str, *, audience: str, service_account: str, keys: FindKey, now: datetime
) -> bool:
    """Whether Pub/Sub signed it for us: key, audience, issuer, service account and time.

    Rules: cloud.google.com/pubsub/docs/authenticate-push-subscriptions, RFC 7519, RFC 8725.
    """
    try:
        head = jwt.get_unverified_header(token)
        name = head.get("kid")
        if head.get("alg") != "RS256" or not isinstance(name, str):
            return False
        key = keys(name)
        if key is None:
            return False
        claims = jwt.decode(
            token,
            key,
            algorithms=["RS256"],
            audience=audience,
            options={
                "require": ["exp", "iat", "iss", "aud"],
                # Below, by the given clock.
                "verify_exp": False,
                "verify_iat": False,
                "verify_nbf": False,
            },
        )
    except (jwt.PyJWTError, ValueError, RecursionError):
        return False
    return (
        claims["aud"] == audience
        and claims["iss"] in ISSUERS
        and claims.get("email") == service_account
        and claims.get("email_verified") is True
        and _is_timely(claims, now)
    )


def _is_timely(claims: Mapping[str, Any], now: datetime) -> bool:
    times = [claims["exp"], claims["iat"], claims.get("nbf", claims["iat"])]
    if not all(isinstance(one, int | float) and not isinstance(one, bool) for one in times):
        return False
    expires, *begins = times
    leeway, at = LEEWAY.total_seconds(), now.timestamp()
    return expires > at - leeway and all(one <= at + leeway for one in begins)


class Keys:
    """Google's public keys by their names, fetched when they are needed. May be shared by threads.

    `fetch` brings a JSON Web Key Set (RFC 7517) and for how many seconds it may be kept. While it
    fails the old ones stay in use.
    """

    def __init__(
        self,
        fetch: Callable[[], tuple[bytes, int]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._lock = threading.Lock()
        self._found: Mapping[str, jwt.PyJWK] = {}
        self._until = 0.0
        self._tried: float | None = None

    def __call__(self, name: str) -> jwt.PyJWK | None:
        with self._lock:
            now = self._clock()
            stale = now >= self._until or name not in self._found
            if stale and (self._tried is None or now - self._tried >= REFETCH):
                self._tried = now
                self._renew(now)
            return self._found.get(name)

    def _renew(self, now: float) -> None:
        try:
            data, seconds = self._fetch()
        except RecollectError as error:
            LOG.warning("Google's keys could not be fetched", reason=str(error))
            return
        found = {
            name: key
            for entry in as_list(_json(data).get("keys"))
            if (name := _said(entry, "kid")) and (key := _key(as_object(entry))) is not None
        }
        if found:
            shortest, longest = KEYS_LIFE
            self._found = found
            self._until = now + min(max(seconds, shortest), longest)


def _key(entry: dict[str, Any]) -> jwt.PyJWK | None:
    if entry.get("kty") != "RSA":
        return None
    try:
        return jwt.PyJWK.from_dict(entry, "RS256")
    except (jwt.PyJWTError, ValueError, TypeError):
        return None


def _json(data: bytes) -> dict[str, Any]:
    try:
        return as_object(json.loads(data))
    except (ValueError, RecursionError):
        return {}
