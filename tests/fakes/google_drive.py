"""Google Drive on loopback: files, folders, shared drives, change feeds and channels, with state.

    with FakeDrive() as drive:
        plans = drive.folder("Plans")
        doc = drive.doc("Q3", "# Sales", parent=plans)
        drive.rename(plans, "Old plans")
        drive.trash(doc)
        drive.documents()          # what a connection of this account should have now

Seen with the eyes of one account (`ME`). By default pages are short, entries come twice, and files
that were only looked at are in the feed. Each exchange is put before Google's own description of
the API (`violations`). Broken bodies and lost connections are the business of a `Proxy` in front.
"""

import hashlib
import io
import itertools
import json
import random
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self
from urllib.parse import parse_qsl, unquote, urlsplit

import openpyxl

from tests.fakes.google_contract import Contract, masked, parse_mask

ME = "me@example.com"
OTHER = "other@example.com"
TOKEN = "token-1"
ROOT = "0AFakeRootPVA"
APPS = "application/vnd.google-apps."
FOLDER, SHORTCUT = APPS + "folder", APPS + "shortcut"
DOC, SHEET, SLIDES = APPS + "document", APPS + "spreadsheet", APPS + "presentation"
FORM, DRAWING = APPS + "form", APPS + "drawing"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
EXPORTED = {
    DOC: {"text/markdown", "text/plain", "application/pdf"},
    SHEET: {XLSX, "text/csv"},
    SLIDES: {PPTX, "text/plain", "application/pdf"},
    DRAWING: {"application/pdf", "image/png"},
}
LARGEST_EXPORT = 10_000_000
WEEK = timedelta(days=7)
READ = "https://www.googleapis.com/auth/drive.readonly"
DEFAULT_FIELDS = {
    "drive.files.list": "kind,incompleteSearch,nextPageToken,files(kind,id,name,mimeType)",
    "drive.files.get": "kind,id,name,mimeType",
    "drive.changes.list": "kind,nextPageToken,newStartPageToken,"
    "changes(kind,type,changeType,time,removed,fileId,driveId,file(kind,id,name,mimeType))",
}
Feed = str
"""`user`, or the id of a shared drive"""


@dataclass
class Node:
    id: str
    name: str
    mime: str
    parent: str | None
    drive: str | None
    owner: str
    data: bytes = b""
    plain: bytes | None = None
    """the export without pictures"""
    modified: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    version: int = 1
    trashed: bool = False
    shared: bool = False
    """with me, by itself"""
    key: str | None = None
    """resource key of a link that it is shared by"""
    target: str | None = None
    declared: int | None = None
    """size that it is said to have"""
    abusive: bool = False
    accessed: bool = False
    """a file of a shared drive that the account's own listing and feed have, too"""

    @property
    def md5(self) -> str:
        return hashlib.md5(self.data, usedforsecurity=False).hexdigest()


@dataclass
class Channel:
    id: str
    resource: str
    feed: Feed
    token: str
    address: str
    expires: datetime
    number: int = 1


@dataclass(frozen=True)
class Sent:
    """A notification; header names in lower case."""

    address: str
    headers: Mapping[str, str]


@dataclass
class Refusal:
    match: re.Pattern[str]
    status: int
    reason: str
    times: int | None
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Document:
    """What a connection should have of a file."""

    title: str
    version: str
    path: str


class Problem(Exception):
    def __init__(
        self, status: int, reason: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message
        self.headers = headers or {}


@cache
def contract() -> Contract:
    return Contract("drive.v3")


class FakeDrive:
    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.drives: dict[str, str] = {}
        """names of the shared drives that the account is a member of"""
        self.others: dict[str, str] = {}
        """of those that it is not"""
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.scopes: dict[str, set[str]] = {TOKEN: {READ, "openid", "email"}}
        """by access token"""
        self.page_size = 7
        """the most that is really given at once"""
        self.tidy = False
        """no entry comes twice"""
        self.incomplete: set[Feed] = set()
        """whose search Drive does not finish"""
        self.cycles: Literal["files", "changes", None] = None
        self.gives_pptx = True
        self.channels: dict[str, Channel] = {}
        self.sent: list[Sent] = []
        self.asked: list[str] = []
        """`GET /path?query` of every request, decoded"""
        self.headers: list[Mapping[str, str]] = []
        self.violations: list[str] = []
        self.chaos: tuple[random.Random, float] | None = None
        """of so many requests a share goes wrong somehow"""
        self._refusals: list[Refusal] = []
        self._log: dict[Feed, list[str]] = {"user": []}
        self._epoch = 0
        self._expired_with = 400
        self._listings: dict[str, list[str]] = {}
        self._numbers = itertools.count(1)
        self._before: Callable[[str], None] = lambda _line: None
        self._lock = threading.RLock()
        self.nodes[ROOT] = Node(ROOT, "My Drive", FOLDER, None, None, ME)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    # --- as a user -----------------------------------------------------------------------------

    def folder(self, name: str, parent: str | None = ROOT, **more: Any) -> str:
        return self._add(name, FOLDER, parent, **more)

    def doc(self, name: str, text: str = "", parent: str | None = ROOT, **more: Any) -> str:
        return self._add(name, DOC, parent, data=text.encode(), **more)

    def slides(self, name: str, text: str = "", parent: str | None = ROOT, **more: Any) -> str:
        return self._add(name, SLIDES, parent, data=text.encode(), **more)

    def sheet(self, name: str, sheets: Mapping[str, Sequence[Sequence[Any]]]) -> str:
        book = openpyxl.Workbook()
        for old in list(book.worksheets):
            book.remove(old)
        for title, rows in sheets.items():
            sheet = book.create_sheet(title)
            for row in rows:
                sheet.append(list(row))
        saved = io.BytesIO()
        book.save(saved)
        return self._add(name, SHEET, ROOT, data=saved.getvalue())

    def file(
        self,
        name: str,
        data: bytes = b"text",
        mime: str = "text/plain",
        parent: str | None = ROOT,
        **more: Any,
    ) -> str:
        return self._add(name, mime, parent, data=data, **more)

    def shortcut(self, name: str, target: str, parent: str | None = ROOT) -> str:
        return self._add(name, SHORTCUT, parent, target=target)

    def edit(self, id: str, data: bytes) -> None:
        with self._lock:
            node = self.nodes[id]
            node.data, node.modified = data, self._tick()
            self._touch(node)

    def rename(self, id: str, name: str) -> None:
        with self._lock:
            self.nodes[id].name = name
            self._touch(self.nodes[id])

    def move(self, id: str, parent: str) -> None:
        """Within a drive or into another; `modifiedTime` stays, and children are not told."""
        with self._lock:
            node = self.nodes[id]
            before, now = self._feed(node), self._drive_of(parent)
            node.parent = parent
            for below in [node, *self._below(id)]:
                below.drive = now
            self._touch(node)
            if before != self._feed(node):
                self._tell(before, id)

    def trash(self, id: str) -> None:
        with self._lock:
            self.nodes[id].trashed = True
            self._touch(self.nodes[id])

    def restore(self, id: str) -> None:
        with self._lock:
            self.nodes[id].trashed = False
            self._touch(self.nodes[id])

    def delete(self, id: str) -> None:
        """For ever, with all that is in it."""
        with self._lock:
            for node in [*self._below(id), self.nodes[id]]:
                self._touch(node)
                del self.nodes[node.id]

    def share(self, id: str) -> None:
        """Another user shares a file or folder with the account."""
        with self._lock:
            self.nodes[id].shared = True
            self._touch(self.nodes[id])

    def unshare(self, id: str, *, silently: bool = False) -> None:
        with self._lock:
            self.nodes[id].shared = False
            if not silently:
                self._touch(self.nodes[id], heard=True)

    def view(self, id: str) -> None:
        """Look at it; that is in the feed, too."""
        with self._lock:
            self._touch(self.nodes[id])

    def access(self, id: str) -> None:
        """Open a file of a shared drive: the account's own listing and feed have it from now on."""
        with self._lock:
            self.nodes[id].accessed = True
            self._touch(self.nodes[id])

    def shared_drive(self, name: str) -> str:
        with self._lock:
            id = self._id("0B")
            self.drives[id] = name
            self._log[id] = []
            return id

    def rename_drive(self, id: str, name: str) -> None:
        with self._lock:
            self.drives[id] = name

    def leave(self, drive: str) -> None:
        """The account is no member any more."""
        with self._lock:
            self.others[drive] = self.drives.pop(drive)

    def join(self, drive: str) -> None:
        with self._lock:
            self.drives[drive] = self.others.pop(drive)

    # --- bad days ------------------------------------------------------------------------------

    def refuse(
        self,
        match: str,
        status: int,
        reason: str,
        *,
        times: int | None = 1,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Answer the next requests that match (`GET /path?query`) with one of Google's errors."""
        refusal = Refusal(re.compile(match), status, reason, times, headers or {})
        with self._lock:
            self._refusals.append(refusal)

    def behave(self) -> None:
        with self._lock:
            self._refusals.clear()
            self.chaos = self.cycles = None
            self.incomplete.clear()

    def forget_tokens(self, status: int = 400) -> None:
        """All tokens of feeds and pages that were given so far are not known any more."""
        with self._lock:
            self._epoch += 1
            self._expired_with = status
            self._listings.clear()

    def forget_pages(self) -> None:
        with self._lock:
            self._listings.clear()

    def before(self, act: Callable[[str], None]) -> None:
        """Called with each request before it is answered."""
        self._before = act

    # --- what should be ------------------------------------------------------------------------

    def documents(self, selected: Sequence[str] | None = None) -> dict[str, Document]:
        """By id, all that the account can read and that has text, within these folders."""
        with self._lock:
            listed = [
                node
                for node in self.nodes.values()
                if node.mime != FOLDER
                and self._visible(node)
                and not self._trashed(node)
                and (node.drive is None or node.drive in self.drives or node.shared)
            ]
            inside = [node for node in listed if self._inside(node, selected)]
            through = [self.nodes.get(node.target) for node in inside if node.target]
            found = [*inside, *(n for n in through if n and self._readable(n, n.key))]
            return {
                node.id: Document(node.name, self._version(node), self._path(node))
                for node in found
                if not self._trashed(node) and self._has_text(node)
            }

    def count(self, match: str) -> int:
        return sum(bool(re.search(match, line)) for line in self.asked)

    # --- state ---------------------------------------------------------------------------------

    def _add(self, name: str, mime: str, parent: str | None, **more: Any) -> str:
        with self._lock:
            node = Node(
                id=self._id("1"),
                name=name,
                mime=mime,
                parent=parent,
                drive=self._drive_of(parent),
                owner=more.pop("owner", ME),
                **more,
            )
            if node.owner != ME and node.parent == ROOT:
                node.parent = None
            node.modified = self._tick()
            self.nodes[node.id] = node
            self._touch(node)
            return node.id

    def _id(self, start: str) -> str:
        number = next(self._numbers)
        return f"{start}{hashlib.sha256(str(number).encode()).hexdigest()[:27]}"

    def _tick(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now

    def _drive_of(self, parent: str | None) -> str | None:
        if parent in self.drives or parent in self.others:
            return parent
        return self.nodes[parent].drive if parent in self.nodes else None

    def _below(self, id: str) -> Iterator[Node]:
        for node in list(self.nodes.values()):
            if node.parent == id and node.id != id:
                yield node
                yield from self._below(node.id)

    def _lineage(self, node: Node) -> Iterator[Node]:
        seen: set[str] = set()
        at: Node | None = node
        while at is not None and at.id not in seen:
            seen.add(at.id)
            yield at
            at = self.nodes.get(at.parent or "")

    def _visible(self, node: Node) -> bool:
        if node.drive is not None:
            return node.drive in self.drives or node.shared
        return node.owner == ME or any(each.shared for each in self._lineage(node))

    def _readable(self, node: Node, key: str | None) -> bool:
        return self._visible(node) or (node.key is not None and node.key == key)

    def _trashed(self, node: Node) -> bool:
        return any(each.trashed for each in self._lineage(node))

    def _feed(self, node: Node) -> Feed:
        return node.drive or "user"

    def _touch(self, node: Node, *, heard: bool = False) -> None:
        """Of what others have, nothing is heard unless it is shared."""
        node.version += 1
        if node.drive is not None or self._visible(node) or heard:
            self._tell(self._feed(node), node.id)
        if node.accessed or (node.drive is not None and node.shared):
            self._tell("user", node.id)

    def _tell(self, feed: Feed, id: str) -> None:
        self._log[feed].append(id)
        for channel in self.channels.values():
            if channel.feed == feed and channel.expires > self.now:
                channel.number += 1
                self._send(channel, "change")

    def _send(self, channel: Channel, state: str) -> None:
        headers = {
            "x-goog-channel-id": channel.id,
            "x-goog-channel-token": channel.token,
            "x-goog-channel-expiration": channel.expires.strftime("%a, %d %b %Y %H:%M:%S GMT"),
            "x-goog-resource-id": channel.resource,
            "x-goog-resource-state": state,
            "x-goog-message-number": str(channel.number),
            "content-length": "0",
        }
        self.sent.append(Sent(channel.address, headers))

    def _inside(self, node: Node, selected: Sequence[str] | None) -> bool:
        if selected is None:
            return True
        above = [*self._lineage(node)][1:]
        return any(each.id in selected and self._visible(each) for each in above) or (
            node.drive in selected
        )

    def _has_text(self, node: Node) -> bool:
        if node.mime.startswith(APPS):
            return node.mime in EXPORTED
        return self._size(node) <= 50_000_000

    def _size(self, node: Node) -> int:
        return len(node.data) if node.declared is None else node.declared

    def _version(self, node: Node) -> str:
        return _stamp(node.modified) if node.mime.startswith(APPS) else node.md5

    def _path(self, node: Node) -> str:
        names: list[str] = []
        for each in self._lineage(node):
            if names and not self._visible(each):
                break
            names.append(each.name)
        if node.drive in self.drives:
            names.append(self.drives[node.drive])
        return "/".join(reversed(names))

    def _shown(self, node: Node) -> dict[str, Any]:
        said: dict[str, Any] = {
            "kind": "drive#file",
            "id": node.id,
            "name": node.name,
            "mimeType": node.mime,
            "trashed": self._trashed(node),
            "explicitlyTrashed": node.trashed,
            "version": str(node.version),
            "createdTime": _stamp(datetime(2026, 1, 1, tzinfo=UTC)),
            "modifiedTime": _stamp(node.modified),
            "webViewLink": f"https://drive.google.com/open?id={node.id}",
        }
        parent = self.nodes.get(node.parent or "")
        if (parent is not None and self._visible(parent)) or node.parent in self.drives:
            said["parents"] = [node.parent]
        if node.drive is not None:
            said["driveId"] = node.drive
        else:
            said["owners"] = [
                {"kind": "drive#user", "displayName": node.owner, "emailAddress": node.owner}
            ]
            said["ownedByMe"] = node.owner == ME
        if not node.mime.startswith(APPS):
            said["md5Checksum"] = node.md5
            said["size"] = str(self._size(node))
        if node.key is not None:
            said["resourceKey"] = node.key
        if node.target is not None:
            target = self.nodes.get(node.target)
            said["shortcutDetails"] = {"targetId": node.target} | (
                {"targetMimeType": target.mime} if target else {}
            )
            if target is not None and target.key:
                said["shortcutDetails"]["targetResourceKey"] = target.key
        return said

    # --- the API -------------------------------------------------------------------------------

    def answer(
        self, verb: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Mapping[str, str], bytes]:
        line = f"{verb} {unquote(target.replace('+', ' '))}"
        self._before(line)
        with self._lock:
            self.asked.append(line)
            self.headers.append(headers)
            try:
                self._admit(line, headers)
                status, mime, data = self._route(verb, target, headers, body)
                told: Mapping[str, str] = {"Content-Type": mime}
            except Problem as problem:
                error = {"domain": "global", "reason": problem.reason, "message": problem.message}
                said = {"code": problem.status, "message": problem.message, "errors": [error]}
                status, data = problem.status, json.dumps({"error": said}).encode()
                told = {"Content-Type": "application/json; charset=UTF-8", **problem.headers}
            if target.startswith("/drive/"):
                self.violations += contract().check_request(verb, target, body)
                self.violations += contract().check_answer(
                    verb, target, status, data, told["Content-Type"]
                )
            return status, told, data

    def _admit(self, line: str, headers: Mapping[str, str]) -> None:
        for refusal in self._refusals:
            if refusal.times != 0 and refusal.match.search(line):
                refusal.times = None if refusal.times is None else refusal.times - 1
                raise Problem(refusal.status, refusal.reason, "on purpose", refusal.headers)
        if self.chaos is not None and self.chaos[0].random() < self.chaos[1]:
            self._misbehave(self.chaos[0])
        token = headers.get("authorization", "").removeprefix("Bearer ")
        if token not in self.scopes:
            raise Problem(401, "authError", "Invalid Credentials")
        if READ not in self.scopes[token] and " /drive/" in line:
            raise Problem(403, "insufficientPermissions", "Insufficient authentication scopes.")

    def _misbehave(self, dice: random.Random) -> None:
        match dice.randrange(5):
            case 0:
                self.forget_tokens(dice.choice([400, 404, 410]))
            case 1:
                raise Problem(403, "userRateLimitExceeded", "User Rate Limit Exceeded")
            case 2:
                raise Problem(429, "rateLimitExceeded", "Rate Limit Exceeded")
            case 3:
                raise Problem(503, "backendError", "Backend Error")
            case _:
                self.forget_pages()

    def _route(
        self, verb: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, str, bytes]:
        parts = urlsplit(target)
        query = dict(parse_qsl(parts.query))
        if parts.path == "/oauth2/v3/userinfo":
            return 200, "application/json", json.dumps({"sub": "108", "email": ME}).encode()
        method = contract().method(verb, target)
        if method is None:
            raise Problem(404, "notFound", "Not Found")
        found = re.search(r"/(?:files|drives)/([^/]+)", parts.path)
        id = unquote(found[1]) if found else ""
        key = dict(
            pair.split("/", 1)
            for pair in headers.get("x-goog-drive-resource-keys", "").split(",")
            if "/" in pair
        ).get(id)
        if method.id == "drive.files.export":
            return self._export(self._find(id, key), query.get("mimeType", ""))
        if method.id == "drive.channels.stop":
            self._stop(json.loads(body))
            return 204, "text/html", b""
        if query.get("alt") == "media":
            return self._download(self._find(id, key))
        answers: dict[str, Callable[[], dict[str, Any]]] = {
            "drive.files.list": lambda: self._list(query),
            "drive.files.get": lambda: self._shown(self._find(id, key)),
            "drive.changes.getStartPageToken": lambda: self._start(query),
            "drive.changes.list": lambda: self._changes(query),
            "drive.changes.watch": lambda: self._watch(query, json.loads(body)),
            "drive.drives.list": lambda: self._list_drives(query),
            "drive.drives.get": lambda: self._get_drive(id),
        }
        if method.id not in answers:
            raise Problem(501, "notImplemented", f"{method.id} is not part of this fake")
        said = answers[method.id]()
        fields = query.get("fields", DEFAULT_FIELDS.get(method.id))
        if fields:
            said = masked(said, parse_mask(fields))
        return 200, "application/json; charset=UTF-8", json.dumps(said).encode()

    def _get_drive(self, id: str) -> dict[str, Any]:
        if id not in self.drives:
            raise Problem(404, "notFound", f"Shared drive not found: {id}")
        return {"kind": "drive#drive", "id": id, "name": self.drives[id]}

    def _start(self, query: Mapping[str, str]) -> dict[str, Any]:
        feed = self._known_feed(query)
        token = self._token(feed, len(self._log[feed]))
        return {"kind": "drive#startPageToken", "startPageToken": token}

    def _find(self, id: str, key: str | None) -> Node:
        node = self.nodes.get(ROOT if id == "root" else id)
        if node is None or not self._readable(node, key):
            raise Problem(404, "notFound", f"File not found: {id}.")
        return node

    def _list(self, query: Mapping[str, str]) -> dict[str, Any]:
        feed = query["driveId"] if query.get("corpora") == "drive" else "user"
        if feed != "user" and feed not in self.drives:
            raise Problem(404, "notFound", f"Shared drive not found: {feed}")
        if feed != "user" and query.get("includeItemsFromAllDrives") != "true":
            raise Problem(403, "teamDrivesParameterRequired", "includeItemsFromAllDrives")
        token = query.get("pageToken")
        if token is None:
            admits = _Query(query.get("q", ""), self._trashed, self._missing).test
            ids = [
                node.id
                for node in self.nodes.values()
                if node.id != ROOT and self._is_listed(node, feed) and admits(node)
            ]
            listing, start = f"l{next(self._numbers)}", 0
            self._listings[listing] = ids
        else:
            listing, _, place = token.partition("~")
            if listing not in self._listings:
                raise Problem(400, "invalid", "Invalid Value")
            start = int(place)
        ids = self._listings[listing]
        size = min(int(query.get("pageSize", "100")), self.page_size)
        page = ids[start : start + size]
        if start and not self.tidy:
            page = [ids[start - 1], *page]
        said: dict[str, Any] = {
            "kind": "drive#fileList",
            "incompleteSearch": feed in self.incomplete,
            "files": [
                self._shown(node)
                for id in page
                if (node := self.nodes.get(id)) and self._visible(node) and not self._trashed(node)
            ],
        }
        if self.cycles == "files":
            said["nextPageToken"] = f"{listing}~0"
        elif start + size < len(ids):
            said["nextPageToken"] = f"{listing}~{start + size}"
        return said

    def _is_listed(self, node: Node, feed: Feed) -> bool:
        if feed == "user":
            return self._visible(node) and (node.drive is None or node.accessed or node.shared)
        return node.drive == feed

    def _missing(self, id: str) -> bool:
        node = self.nodes.get(id)
        return id not in self.drives and (node is None or not self._visible(node))

    def _list_drives(self, query: Mapping[str, str]) -> dict[str, Any]:
        start, size = int(query.get("pageToken", "0")), min(int(query.get("pageSize", "10")), 2)
        page = list(self.drives.items())[start : start + size]
        said: dict[str, Any] = {
            "kind": "drive#driveList",
            "drives": [{"kind": "drive#drive", "id": id, "name": name} for id, name in page],
        }
        if start + size < len(self.drives):
            said["nextPageToken"] = str(start + size)
        return said

    def _known_feed(self, query: Mapping[str, str]) -> Feed:
        feed = query.get("driveId", "user")
        if feed != "user" and feed not in self.drives:
            raise Problem(404, "notFound", f"Shared drive not found: {feed}")
        return feed

    def _token(self, feed: Feed, position: int) -> str:
        return f"{self._epoch}~{feed}~{position}"

    def _changes(self, query: Mapping[str, str]) -> dict[str, Any]:
        feed = self._known_feed(query)
        epoch, told, place = [*query["pageToken"].split("~"), "", ""][:3]
        if epoch != str(self._epoch) or told != feed or not place.isdecimal():
            raise Problem(self._expired_with, "invalid", "Invalid Value")
        start, log = int(place), self._log[feed]
        size = min(int(query.get("pageSize", "100")), self.page_size)
        ids = log[start : start + size]
        if start and not self.tidy:
            ids = [log[start - 1], *ids]
        said: dict[str, Any] = {
            "kind": "drive#changeList",
            "changes": [change for id in ids if (change := self._change(feed, id, query))],
        }
        if self.cycles == "changes":
            said["nextPageToken"] = self._token(feed, 0)
        elif start + size < len(log):
            said["nextPageToken"] = self._token(feed, start + size)
        else:
            said["newStartPageToken"] = self._token(feed, len(log))
        return said

    def _change(self, feed: Feed, id: str, query: Mapping[str, str]) -> dict[str, Any] | None:
        node = self.nodes.get(id)
        visible = node is not None and self._visible(node)
        within = visible and node is not None and self._is_listed(node, feed)
        if not within and query.get("includeRemoved") == "false":
            return None
        said: dict[str, Any] = {
            "kind": "drive#change",
            "type": "file",
            "changeType": "file",
            "time": _stamp(self.now),
            "removed": not within,
            "fileId": id,
        }
        if node is not None and (
            within or (visible and query.get("includeCorpusRemovals") == "true")
        ):
            said["file"] = self._shown(node)
        return said

    def _download(self, node: Node) -> tuple[int, str, bytes]:
        if node.mime.startswith(APPS):
            raise Problem(403, "fileNotDownloadable", "Only files with binary content")
        if node.abusive:
            raise Problem(403, "cannotDownloadAbusiveFile", "This file has been identified as")
        return 200, node.mime, node.data

    def _export(self, node: Node, form: str) -> tuple[int, str, bytes]:
        if node.mime not in EXPORTED:
            raise Problem(403, "fileNotExportable", "Export only supports Docs Editors files.")
        if form not in EXPORTED[node.mime] or (form == PPTX and not self.gives_pptx):
            raise Problem(400, "badRequest", "The requested conversion is not supported.")
        data = node.plain if form == "text/plain" and node.plain is not None else node.data
        if len(data) > LARGEST_EXPORT:
            raise Problem(403, "exportSizeLimitExceeded", "This file is too large to be exported.")
        return 200, form, data

    def _watch(self, query: Mapping[str, str], asked: Mapping[str, Any]) -> dict[str, Any]:
        feed = self._known_feed(query)
        if not str(asked.get("address", "")).startswith("https://"):
            raise Problem(400, "push.webhookUrlNotHttps", "WebHook callback must be HTTPS")
        if asked.get("type") != "web_hook" or not re.fullmatch(
            r"[A-Za-z0-9\-_+/=]{1,64}", str(asked.get("id"))
        ):
            raise Problem(400, "badRequest", "Bad channel")
        if asked["id"] in self.channels:
            raise Problem(400, "channelIdNotUnique", f"Channel id {asked['id']} not unique")
        wanted = datetime.fromtimestamp(int(asked.get("expiration", "0")) / 1000, UTC)
        expires = min(wanted, self.now + WEEK) if "expiration" in asked else self.now + WEEK / 168
        resource = "resource-" + feed
        channel = Channel(
            asked["id"], resource, feed, asked.get("token", ""), asked["address"], expires
        )
        self.channels[channel.id] = channel
        self._send(channel, "sync")
        return {
            "kind": "api#channel",
            "id": channel.id,
            "resourceId": resource,
            "resourceUri": f"{self.url}/drive/v3/changes",
            "token": channel.token,
            "expiration": str(int(expires.timestamp() * 1000)),
        }

    def _stop(self, asked: Mapping[str, Any]) -> None:
        channel = self.channels.get(asked.get("id", ""))
        if channel is None or channel.resource != asked.get("resourceId"):
            raise Problem(404, "notFound", "Channel not found")
        del self.channels[channel.id]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # headers and body in one piece, or each answer takes 40 ms

            def log_message(self, format: str, *args: Any) -> None:
                pass

            def do(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                body = self.rfile.read(int(headers.get("content-length") or 0))
                status, told, data = fake.answer(self.command, self.path, headers, body)
                self.send_response_only(status)
                for name, value in told.items():
                    self.send_header(name, value)
                if status != 204:
                    self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PATCH = do_DELETE = do

        return Handler


class _Query:
    """Drive's search language, as much of it as is used here: and, or, brackets, four terms.

    Of what stands between `or` only the first counts: asked for what is in any of several folders,
    Drive may give that of some alone, or of none (github.com/rclone/rclone/issues/3114, 9810).
    """

    def __init__(
        self, text: str, trashed: Callable[[Node], bool], missing: Callable[[str], bool]
    ) -> None:
        self._tokens = re.findall(r"'(?:\\.|[^'\\])*'|!=|[=()]|\w+|\S", text)
        self._trashed = trashed
        self._missing = missing
        self.test: Callable[[Node], bool] = self._any() if self._tokens else lambda _node: True
        if self._tokens:
            raise Problem(400, "invalid", f"Invalid Value: q {text!r}")

    def _any(self) -> Callable[[Node], bool]:
        terms = [self._all()]
        while self._take("or"):
            terms.append(self._all())
        return terms[0]

    def _all(self) -> Callable[[Node], bool]:
        terms = [self._term()]
        while self._take("and"):
            terms.append(self._term())
        return lambda node: all(term(node) for term in terms)

    def _term(self) -> Callable[[Node], bool]:
        if self._take("("):
            inner = self._any()
            self._take(")")
            return inner
        first, relation, second = self._tokens[:3]
        del self._tokens[:3]
        match first, relation:
            case "mimeType", "=":
                return lambda node: node.mime == second[1:-1]
            case "mimeType", "!=":
                return lambda node: node.mime != second[1:-1]
            case "trashed", "=":
                return lambda node: self._trashed(node) == (second == "true")
            case parent, "in" if second == "parents":
                if self._missing(parent[1:-1]):
                    raise Problem(404, "notFound", "File not found: .")
                return lambda node: node.parent == parent[1:-1]
            case _:
                raise Problem(400, "invalid", f"Invalid Value: {first} {relation}")

    def _take(self, word: str) -> bool:
        if self._tokens[:1] != [word]:
            return False
        del self._tokens[0]
        return True


def _stamp(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.") + f"{time.microsecond // 1000:03d}Z"
