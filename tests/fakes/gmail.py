"""Gmail on loopback: one mailbox with mails in real MIME, threads, labels, history, and watches.

    with FakeGmail() as gmail:
        plan = gmail.mail("Plan", "Let us meet.")
        gmail.reply(plan, "Fine with me.")
        gmail.trash(plan)
        gmail.documents()          # what a connection of this account should have now

The test is the user. By default pages are short, threads come twice in a listing, and a history
record may be told twice. A page continues behind the last thread of the one before, so a thread
that gets a mail meanwhile is not met any more. Each exchange is put before Google's own
description of the API (`violations`). Bad days: `refuse`, `moody`, `budget`, `forget_history`.
"""

import base64
import email.policy
import hashlib
import itertools
import json
import random
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.header import decode_header, make_header
from email.message import EmailMessage, Message
from email.utils import format_datetime
from functools import cache
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

from tests.fakes.google_contract import Contract, masked, parse_mask
from tests.fakes.website import Exchange, Request, Website, answer

ME = "me@example.com"
TOKEN = "token-1"
READ = "https://www.googleapis.com/auth/gmail.readonly"
SYSTEM = ("INBOX", "UNREAD", "SENT", "DRAFT", "SPAM", "TRASH", "STARRED", "IMPORTANT")
HIDDEN = {"SPAM", "TRASH"}
UNITS = {
    "gmail.users.getProfile": 1,
    "gmail.users.labels.list": 1,
    "gmail.users.history.list": 2,
    "gmail.users.threads.list": 10,
    "gmail.users.threads.get": 40,
    "gmail.users.messages.attachments.get": 20,
    "gmail.users.watch": 100,
}
MOODS = ("busy", "limit", "error", "bad gateway", "cut", "reset", "page", "nothing")
PUBLISHER = "gmail-api-push@system.gserviceaccount.com"
ADDED, DELETED = "messagesAdded", "messagesDeleted"
LABELLED, UNLABELLED = "labelsAdded", "labelsRemoved"


@dataclass(eq=False)
class Mail:
    id: str
    thread: str
    raw: bytes
    at: datetime
    labels: set[str]
    history: int = 0
    payload: dict[str, Any] | None = None
    """given as it is, instead of being made of `raw`"""


@dataclass(frozen=True)
class Record:
    number: int
    kind: str
    mail: str
    thread: str
    labels: Sequence[str] = ()


@dataclass
class Refusal:
    match: re.Pattern[str]
    status: int
    reason: str
    message: str
    times: int | None
    headers: Mapping[str, str]


@dataclass
class Watch:
    topic: str
    labels: Sequence[str]
    expires: datetime


@dataclass(frozen=True)
class Document:
    """What a connection should have of a thread."""

    subject: str
    mails: Sequence[str]
    labels: frozenset[str]


class Problem(Exception):
    def __init__(
        self, status: int, reason: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message
        self.headers = headers or {}


@cache
def contract() -> Contract:
    return Contract("gmail.v1")


@dataclass
class Reply:
    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


class FakeGmail:
    def __init__(self) -> None:
        self.mails: dict[str, Mail] = {}
        self.names: dict[str, str] = {id: id for id in SYSTEM}
        """labels, by id"""
        self.scopes: dict[str, set[str]] = {TOKEN: {READ, "openid", "email"}}
        """by access token"""
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.page_size = 7
        """the most that is really given at once"""
        self.tidy = False
        """nothing is told twice"""
        self.cycles: str | None = None
        """`threads` or `history`: whose pages lead in a circle"""
        self.normalises = True
        """bodies are turned into UTF-8, while their headers stay"""
        self.large = 100_000
        """bytes from which on a body comes by itself"""
        self.topics: dict[str, set[str]] = {}
        """who may publish to a topic"""
        self.watch: Watch | None = None
        self.published: list[dict[str, Any]] = []
        """what Pub/Sub got, as it pushes it"""
        self.units = 0
        """used so far"""
        self.budget: int | None = None
        """units until the limit"""
        self.limit_message = "User-rate limit exceeded."
        self.violations: list[str] = []
        self.asked: list[str] = []
        """`GET /path?query` of every request, decoded"""
        self._refusals: list[Refusal] = []
        self._moods: tuple[random.Random, float] | None = None
        self._log: list[Record] = []
        self._members: dict[str, list[str]] = {}
        """mails by thread"""
        self._changed: dict[str, int] = {}
        """number of the last change of each thread"""
        self._number = 1000
        self._forgotten = 0
        self._epoch = 0
        self._ids = itertools.count(1)
        self._bodies: dict[str, bytes] = {}
        self._before: Callable[[str], None] = lambda _line: None
        self.lock = threading.RLock()
        self.site = Website()
        self.site.route("/*", self._serve)
        self.url = self.site.url("")

    def __enter__(self) -> Self:
        self.site.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.site.__exit__()

    # --- as a user -----------------------------------------------------------------------------

    def mail(
        self,
        subject: str = "Plan",
        body: str = "Let us meet on Monday.",
        *,
        thread: str | None = None,
        sender: str = "Ann <ann@example.com>",
        to: str = ME,
        html: str | None = None,
        files: Mapping[str, bytes] | None = None,
        labels: Sequence[str] = ("INBOX", "UNREAD"),
        message: EmailMessage | bytes | None = None,
        payload: dict[str, Any] | None = None,
    ) -> str:
        """A mail comes; answers its thread. `message` is taken as it is, if given."""
        with self.lock:
            at = self._tick()
            if message is None:
                message = letter(subject, body, sender=sender, to=to, html=html, files=files, at=at)
            raw = message if isinstance(message, bytes) else message.as_bytes()
            id = f"{next(self._ids):016x}"
            thread = thread or id
            self.mails[id] = Mail(id, thread, raw, at, set(labels), payload=payload)
            self._members.setdefault(thread, []).append(id)
            self._note(ADDED, self.mails[id])
            return thread

    def reply(self, thread: str, body: str = "Fine with me.", **more: Any) -> str:
        """Answers the id of the mail."""
        with self.lock:
            first = self.of(thread)[0]
            subject = f"Re: {email.message_from_bytes(first.raw)['Subject']}"
            told: dict[str, Any] = {"sender": "Bob <bob@example.com>", **more}
            self.mail(subject, body, thread=thread, **told)
            return self.of(thread)[-1].id

    def draft(self, thread: str, body: str) -> str:
        """Saved once more, it is another mail."""
        with self.lock:
            for mail in self.of(thread):
                if "DRAFT" in mail.labels:
                    self.delete_mail(mail.id)
            return self.reply(thread, body, sender=ME, labels=("DRAFT",))

    def send(self, mail: str) -> None:
        """A draft."""
        with self.lock:
            draft = self.mails[mail]
            self.delete_mail(mail)
            self.mail(thread=draft.thread, message=draft.raw, labels=("SENT",))

    def label(self, name: str) -> str:
        """A label of the user."""
        with self.lock:
            id = f"Label_{next(self._ids)}"
            self.names[id] = name
            return id

    def tag(self, thread: str, *labels: str) -> None:
        for mail in self.of(thread):
            self._relabel(mail, add=labels)

    def untag(self, thread: str, *labels: str) -> None:
        for mail in self.of(thread):
            self._relabel(mail, remove=labels)

    def read(self, thread: str) -> None:
        self.untag(thread, "UNREAD")

    def trash(self, thread: str) -> None:
        for mail in self.of(thread):
            self._relabel(mail, add=("TRASH",), remove=("INBOX",))

    def restore(self, thread: str) -> None:
        for mail in self.of(thread):
            self._relabel(mail, add=("INBOX",), remove=("TRASH",))

    def trash_mail(self, id: str) -> None:
        self._relabel(self.mails[id], add=("TRASH",))

    def delete(self, thread: str) -> None:
        """For ever."""
        for mail in self.of(thread):
            self.delete_mail(mail.id)

    def delete_mail(self, id: str) -> None:
        with self.lock:
            mail = self.mails.pop(id)
            self._members[mail.thread].remove(id)
            self._note(DELETED, mail)

    # --- bad days ------------------------------------------------------------------------------

    def refuse(
        self,
        match: str,
        status: int,
        reason: str = "backendError",
        message: str = "on purpose",
        *,
        times: int | None = 1,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Answer the next requests that match (`GET /path?query`) with one of Google's errors."""
        refusal = Refusal(re.compile(match), status, reason, message, times, headers or {})
        with self.lock:
            self._refusals.append(refusal)

    def behave(self) -> None:
        with self.lock:
            self._refusals.clear()
            self._moods = None
            self.cycles = None
            self.budget = None

    def moody(self, moods: random.Random, share: float = 0.1) -> None:
        """Let that share of all calls go wrong, each in some way."""
        self._moods = (moods, share)

    def forget_history(self) -> None:
        """All numbers that were given so far are too old."""
        with self.lock:
            self._number += 1
            self._forgotten = self._number
            self._log.clear()

    def forget_pages(self) -> None:
        with self.lock:
            self._epoch += 1

    def before(self, act: Callable[[str], None]) -> None:
        """Called with each request before it is answered."""
        self._before = act

    # --- what there is -------------------------------------------------------------------------

    def of(self, thread: str) -> list[Mail]:
        with self.lock:
            mails = [self.mails[id] for id in self._members.get(thread, ())]
            return sorted(mails, key=lambda mail: (mail.at, mail.id))

    def documents(self) -> dict[str, Document]:
        """By thread, all that is neither in the trash nor spam nor only a draft."""
        found: dict[str, Document] = {}
        with self.lock:
            for thread in self._members:
                mails = [m for m in self.of(thread) if not m.labels & {"TRASH", "SPAM", "DRAFT"}]
                if mails:
                    subject = str(email.message_from_bytes(mails[0].raw)["Subject"])
                    labels = {label for mail in mails for label in mail.labels} - {"UNREAD"}
                    names = frozenset(self.names[label] for label in labels)
                    found[thread] = Document(subject, [mail.id for mail in mails], names)
        return found

    def count(self, match: str) -> int:
        return sum(bool(re.search(match, line)) for line in self.asked)

    @property
    def requests(self) -> list[Request]:
        return self.site.requests

    # --- state ---------------------------------------------------------------------------------

    def _tick(self) -> datetime:
        self.now += timedelta(minutes=1)
        return self.now

    def _relabel(self, mail: Mail, add: Sequence[str] = (), remove: Sequence[str] = ()) -> None:
        with self.lock:
            new, old = set(add) - mail.labels, set(remove) & mail.labels
            mail.labels = (mail.labels | new) - old
            if new:
                self._note(LABELLED, mail, sorted(new))
            if old:
                self._note(UNLABELLED, mail, sorted(old))

    def _note(self, kind: str, mail: Mail, labels: Sequence[str] = ()) -> None:
        # History ids rise, with gaps.
        self._number += 3
        mail.history = self._changed[mail.thread] = self._number
        self._log.append(Record(self._number, kind, mail.id, mail.thread, labels))
        watch = self.watch
        if watch is not None and watch.expires > self.now and mail.labels & set(watch.labels):
            self.published.append(envelope(ME, self._number, str(next(self._ids))))

    # --- serving -------------------------------------------------------------------------------

    def _serve(self, exchange: Exchange) -> bool:
        request = exchange.request
        line = f"{request.method} {unquote(request.path.replace('+', ' '))}"
        self._before(line)
        with self.lock:
            self.asked.append(line)
            mood = self._mood()
            reply = self._answer(request, line, mood)
        headers = {"Content-Type": "application/json; charset=UTF-8", **reply.headers}
        whole = answer(reply.status, reply.body, headers)
        match mood:
            case "reset":
                return False
            case "cut":
                exchange.send(whole[: -max(1, len(reply.body) // 2)])
                return False
            case "bad gateway":
                exchange.send(answer(502, b"<html>Bad Gateway</html>"))
            case "page":
                exchange.send(answer(200, b"<html>please sign in</html>"))
            case "nothing":
                exchange.send(answer(200, b"{}", {"Content-Type": "application/json"}))
            case _:
                exchange.send(whole)
        return True

    def _mood(self) -> str | None:
        if self._moods is None:
            return None
        moods, share = self._moods
        return moods.choice(MOODS) if moods.random() < share else None

    def _answer(self, request: Request, line: str, mood: str | None) -> Reply:
        try:
            self._admit(request, line, mood)
            reply = Reply(200, json.dumps(self._route(request)).encode())
        except Problem as problem:
            entry = {"domain": "global", "reason": problem.reason, "message": problem.message}
            said = {"code": problem.status, "message": problem.message, "errors": [entry]}
            body = json.dumps({"error": said}).encode()
            reply = Reply(problem.status, body, problem.headers)
        faults = contract().check_request(request.method, request.path, request.body)
        if reply.status == 200 or not faults:
            mime = "application/json"
            faults += contract().check_answer(
                request.method, request.path, reply.status, reply.body, mime
            )
        self.violations += faults
        return reply

    def _admit(self, request: Request, line: str, mood: str | None) -> None:
        for refusal in self._refusals:
            if refusal.times != 0 and refusal.match.search(line):
                refusal.times = None if refusal.times is None else refusal.times - 1
                raise Problem(refusal.status, refusal.reason, refusal.message, refusal.headers)
        if mood == "busy":
            raise Problem(429, "rateLimitExceeded", "Too many requests", {"Retry-After": "1"})
        if mood == "limit":
            raise Problem(403, "userRateLimitExceeded", "User-rate limit exceeded.")
        if mood == "error":
            raise Problem(500, "backendError", "Backend Error")
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        if bearer not in self.scopes:
            raise Problem(401, "authError", "Invalid Credentials")
        if READ not in self.scopes[bearer]:
            raise Problem(403, "insufficientPermissions", "Insufficient Permission")
        method = contract().method(request.method, request.path)
        units = UNITS[method.id] if method else 0
        if self.budget is not None:
            if units > self.budget:
                raise Problem(403, "rateLimitExceeded", self.limit_message)
            self.budget -= units
        self.units += units

    def _route(self, request: Request) -> Any:
        parts = urlsplit(request.path)
        query = parse_qs(parts.query)
        path = [unquote(part) for part in parts.path.split("/")[1:]]
        if path[:2] != ["gmail", "v1"] or path[2:4] not in (["users", "me"], ["users", ME]):
            raise Problem(404, "notFound", "Not Found")
        match request.method, path[4:]:
            case "GET", ["profile"]:
                found: Any = self._profile()
            case "GET", ["labels"]:
                found = {"labels": [_label(id, name) for id, name in self.names.items()]}
            case "GET", ["threads"]:
                found = self._list_threads(query)
            case "GET", ["threads", id]:
                found = self._get_thread(id, query.get("format", ["full"])[0])
            case "GET", ["history"]:
                found = self._list_history(query)
            case "GET", ["messages", id, "attachments", name]:
                found = self._get_body(id, name)
            case "POST", ["watch"]:
                found = self._start_watch(json.loads(request.body))
            case _:
                raise Problem(404, "notFound", "Not Found")
        fields = query.get("fields")
        return masked(found, parse_mask(fields[0])) if fields else found

    def _profile(self) -> dict[str, Any]:
        threads = {mail.thread for mail in self.mails.values()}
        return {
            "emailAddress": ME,
            "messagesTotal": len(self.mails),
            "threadsTotal": len(threads),
            "historyId": str(self._number),
        }

    # --- threads ---

    def _list_threads(self, query: Mapping[str, list[str]]) -> dict[str, Any]:
        newest: dict[str, tuple[datetime, str]] = {}
        for mail in self.mails.values():
            if not mail.labels & HIDDEN:
                newest[mail.thread] = max(
                    newest.get(mail.thread, (mail.at, mail.thread)), (mail.at, mail.thread)
                )
        matching = [key for key in newest.values() if self._matches(key[1], query)]
        matching.sort(reverse=True)
        behind = self._position(query)
        rest = [key for key in matching if behind is None or key < behind]
        size = min(self._most(query), self.page_size)
        page, more = rest[:size], len(rest) > size
        threads = [
            {
                "id": id,
                "snippet": self._snippet(self.of(id)[-1]),
                "historyId": str(self._changed[id]),
            }
            for _, id in page
        ]
        if not self.tidy:
            threads += threads[-1:]
        found: dict[str, Any] = {"resultSizeEstimate": len(matching)}
        if threads:
            found["threads"] = threads
        if more or self.cycles == "threads":
            at = (datetime.max.replace(tzinfo=UTC), "") if self.cycles == "threads" else page[-1]
            found["nextPageToken"] = self._token([at[0].isoformat(), at[1]])
        return found

    def _matches(self, thread: str, query: Mapping[str, list[str]]) -> bool:
        """`subject:`, `label:` and bare words; all must match."""
        mails = [mail for mail in self.of(thread) if not mail.labels & HIDDEN]
        if not all(any(id in mail.labels for mail in mails) for id in query.get("labelIds", ())):
            return False
        text = "\n".join(mail.raw.decode(errors="replace").lower() for mail in mails)
        labels = {self.names[id].lower() for mail in mails for id in mail.labels}
        for word in query.get("q", [""])[0].lower().split():
            kind, colon, what = word.partition(":")
            if kind == "label" and colon:
                if what not in labels:
                    return False
            elif word not in text:
                return False
        return True

    def _get_thread(self, id: str, form: str) -> dict[str, Any]:
        mails = self.of(id)
        if not mails:
            raise Problem(404, "notFound", "Requested entity was not found.")
        return {
            "id": id,
            "historyId": str(self._changed[id]),
            "messages": [self._shown(mail, form) for mail in mails],
        }

    def _shown(self, mail: Mail, form: str) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "id": mail.id,
            "threadId": mail.thread,
            "labelIds": sorted(mail.labels),
            "snippet": self._snippet(mail),
            "historyId": str(mail.history),
            "internalDate": str(int(mail.at.timestamp() * 1000)),
            "sizeEstimate": len(mail.raw),
        }
        if form == "minimal":
            return shown
        payload = mail.payload or self._part(email.message_from_bytes(mail.raw), "", mail.id)
        if form == "metadata":
            # It has headers, but no parts.
            payload = {key: payload[key] for key in ("mimeType", "headers")}
        return {**shown, "payload": payload}

    def _part(self, message: Message, path: str, mail: str) -> dict[str, Any]:
        kind = message.get_content_type()
        headers = [{"name": name, "value": _words(value)} for name, value in message.items()]
        part: dict[str, Any] = {
            "partId": path,
            "mimeType": kind,
            "filename": _words(message.get_filename() or ""),
            "headers": headers,
            "body": {"size": 0},
        }
        inner: Any = message.get_payload()
        if isinstance(inner, list):
            part["parts"] = [
                self._part(one, f"{path}.{at}".strip("."), mail) for at, one in enumerate(inner)
            ]
            return part
        data = message.get_payload(decode=True)
        assert isinstance(data, bytes)
        if kind.startswith("text/") and not part["filename"] and self.normalises:
            data = _utf8(data, message.get_content_charset())
        by_itself = part["filename"] or not kind.startswith("text/") or len(data) > self.large
        body: dict[str, Any] = {"size": len(data)}
        if by_itself:
            name = f"ANGjdJ{hashlib.sha256(f'{mail}:{path}'.encode()).hexdigest()}"
            self._bodies[name] = data
            body["attachmentId"] = name
        else:
            body["data"] = _encoded(data)
        return {**part, "body": body}

    def _get_body(self, mail: str, name: str) -> dict[str, Any]:
        if mail not in self.mails or name not in self._bodies:
            raise Problem(404, "notFound", "Requested entity was not found.")
        data = self._bodies[name]
        return {"size": len(data), "data": _encoded(data)}

    def _snippet(self, mail: Mail) -> str:
        return str(email.message_from_bytes(mail.raw)["Subject"] or "")[:50]

    # --- history ---

    def _list_history(self, query: Mapping[str, list[str]]) -> dict[str, Any]:
        if "startHistoryId" not in query:
            raise Problem(400, "invalidArgument", "Missing startHistoryId")
        start = int(query["startHistoryId"][0])
        if start < self._forgotten or start > self._number:
            raise Problem(404, "notFound", "Requested entity was not found.")
        behind = self._position(query)
        after = max(start, behind or 0)
        rest = [record for record in self._log if record.number > after]
        size = min(self._most(query), self.page_size)
        page, more = rest[:size], len(rest) > size
        found: dict[str, Any] = {"historyId": str(self._number)}
        records = [self._record(record) for record in page]
        if not self.tidy:
            records += records[-1:]
        if records:
            found["history"] = records
        if more or self.cycles == "history":
            number = 0 if self.cycles == "history" else page[-1].number
            found["nextPageToken"] = self._token(number)
        return found

    def _record(self, record: Record) -> dict[str, Any]:
        message: dict[str, Any] = {"id": record.mail, "threadId": record.thread}
        mail = self.mails.get(record.mail)
        entry: dict[str, Any] = {"message": dict(message)}
        if mail is not None:
            entry["message"]["labelIds"] = sorted(mail.labels)
        if record.labels:
            entry["labelIds"] = list(record.labels)
        return {"id": str(record.number), "messages": [message], record.kind: [entry]}

    # --- pages ---

    def _most(self, query: Mapping[str, list[str]]) -> int:
        return int(query.get("maxResults", ["100"])[0])

    def _token(self, position: Any) -> str:
        return _encoded(json.dumps([self._epoch, position]).encode())

    def _position(self, query: Mapping[str, list[str]]) -> Any:
        if "pageToken" not in query:
            return None
        try:
            epoch, position = json.loads(base64.urlsafe_b64decode(query["pageToken"][0] + "=="))
        except ValueError:
            epoch, position = None, None
        if epoch != self._epoch:
            raise Problem(400, "invalidArgument", "Invalid pageToken")
        if isinstance(position, list):
            return (datetime.fromisoformat(position[0]), position[1])
        return position

    # --- watching ---

    def _start_watch(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        topic = asked["topicName"]
        if PUBLISHER not in self.topics.get(topic, ()):
            raise Problem(
                403,
                "forbidden",
                f"Error sending test message to Cloud PubSub {topic} : User not authorized to"
                " perform this action.",
            )
        if self.watch is not None and self.watch.topic != topic and self.watch.expires > self.now:
            raise Problem(
                400,
                "invalidArgument",
                "Only one user push notification client allowed per developer (call /stop then try"
                " again)",
            )
        expires = self.now + timedelta(days=7)
        self.watch = Watch(topic, asked.get("labelIds", []), expires)
        expiration = str(int(expires.timestamp() * 1000))
        return {"historyId": str(self._number), "expiration": expiration}


# --- mails ---------------------------------------------------------------------------------------


def letter(
    subject: str = "Plan",
    body: str = "Let us meet on Monday.",
    *,
    sender: str = "Ann <ann@example.com>",
    to: str = ME,
    html: str | None = None,
    files: Mapping[str, bytes] | None = None,
    at: datetime | None = None,
) -> EmailMessage:
    message = EmailMessage(policy=email.policy.SMTP)
    message["From"], message["To"], message["Subject"] = sender, to, subject
    message["Date"] = format_datetime(at or datetime(2026, 1, 1, tzinfo=UTC))
    message["Message-ID"] = f"<{hashlib.sha256(f'{subject}{body}{at}'.encode()).hexdigest()}@x>"
    if body:
        message.set_content(body)
    if html is not None and body:
        message.add_alternative(html, subtype="html")
    elif html is not None:
        message.set_content(html, subtype="html")
    for name, data in (files or {}).items():
        message.add_attachment(data, maintype="application", subtype="pdf", filename=name)
    return message


def envelope(address: str, history: int, id: str) -> dict[str, Any]:
    """A push of Pub/Sub, without its proof."""
    data = json.dumps({"emailAddress": address, "historyId": history}).encode()
    return {
        "message": {
            "data": base64.b64encode(data).decode(),
            "messageId": id,
            "message_id": id,
            "publishTime": "2026-01-01T00:00:00.000Z",
            "publish_time": "2026-01-01T00:00:00.000Z",
        },
        "subscription": "projects/recollect-test/subscriptions/gmail",
    }


def walk(payload: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A part and all below it."""
    yield payload
    for part in payload.get("parts", ()):
        yield from walk(part)


def _label(id: str, name: str) -> dict[str, Any]:
    return {"id": id, "name": name, "type": "system" if id in SYSTEM else "user"}


def _words(value: object) -> str:
    """Gmail decodes encoded words (RFC 2047) where it can."""
    try:
        return str(make_header(decode_header(str(value))))
    except (LookupError, ValueError):
        return str(value)


def _utf8(data: bytes, charset: str | None) -> bytes:
    try:
        return data.decode(charset or "utf-8").encode()
    except (LookupError, ValueError):
        return data


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()
