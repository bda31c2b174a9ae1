"""Microsoft Graph on loopback, as far as it takes to follow a OneDrive, personal or for work.

    with FakeGraph() as graph:
        ann = graph.user("ann")                         # with a drive; `ann.token`
        docs = ann.drive.folder("Docs")
        plan = ann.drive.file("plan.txt", "text", into=docs)
        ann.drive.rename(plan, "plan-2.txt")
        ann.drive.delete(docs)
        graph.notify(ann.drive)                         # changes tell nobody by themselves

The test is the user. `delta` tells the latest state of what changed, with ancestors, without paths,
with what each kind of drive leaves out, and tells some things twice, the first time as they were
before. Content is on another host that refuses whoever sends it a token. Subscriptions are made
after the handshake with their address. Days get worse with `refuse`, `moody`, `forget`, `lead`.

Every object that is answered, pushed or taken is kept in `wire` with the name that Microsoft's
types have for it.
"""

import base64
import hashlib
import json
import random
import re
import threading
import uuid
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Any, Literal, Self
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from tests.fakes.website import Exchange, Request, Website

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""each change is a minute later than the one before"""
MOST_MINUTES = 42_300
FIELDS = frozenset(
    {
        "id", "name", "size", "webUrl", "file", "folder", "package", "remoteItem", "malware",
        "deleted", "root", "parentReference", "cTag", "eTag", "publication", "createdBy",
        "lastModifiedBy", "lastModifiedDateTime", "createdDateTime", "fileSystemInfo", "shared",
    }
)  # fmt: skip
"""that may be selected"""
SUBSCRIPTION_FIELDS = frozenset(
    {
        "changeType", "notificationUrl", "lifecycleNotificationUrl", "resource",
        "expirationDateTime", "clientState",
    }
)  # fmt: skip
MOODS = ("busy", "error", "bad gateway", "cut", "reset", "page")


@dataclass(eq=False)
class Thing:
    """A file, folder, notebook or shortcut."""

    id: str
    name: str
    parent: "Thing | None"
    content: bytes | None = None
    """of files"""
    folder: bool = False
    notebook: bool = False
    malware: bool = False
    locked: bool = False
    remote: "tuple[Drive, Thing] | None" = None
    deleted: bool = False
    changes: int = 1
    edits: int = 1
    modified: datetime = EPOCH
    size: int | None = None
    """instead of the truth"""
    hashed: bool = True
    """whether its hash is told"""
    former: dict[str, Any] = field(default_factory=dict[str, Any])
    """as it looked before its latest change"""
    readers: set[str] = field(default_factory=set[str])
    """users that it is shared with"""

    @property
    def above(self) -> "list[Thing]":
        """From its parent to the root."""
        return [] if self.parent is None else [self.parent, *self.parent.above]

    @property
    def path(self) -> str:
        """Below the root."""
        return "/".join([*(each.name for each in reversed(self.above[:-1])), self.name])

    @property
    def is_there(self) -> bool:
        return not any(each.deleted for each in [self, *self.above])


@dataclass(eq=False)
class Drive:
    graph: "FakeGraph"
    id: str
    owner: str
    kind: Literal["personal", "business"]
    root: Thing = field(init=False)
    things: dict[str, Thing] = field(default_factory=dict[str, Thing])
    log: list[Thing] = field(default_factory=list[Thing])
    """what changed, in order"""

    def __post_init__(self) -> None:
        self.root = Thing(self._new_id(), "root", None, folder=True)
        self.things[self.root.id] = self.root
        self.log.append(self.root)

    # --- what users do ---

    def file(self, name: str, content: str | bytes = "text", *, into: Thing | None = None) -> Thing:
        data = content.encode() if isinstance(content, str) else content
        return self._add(Thing(self._new_id(), name, into or self.root, data))

    def folder(self, name: str, *, into: Thing | None = None) -> Thing:
        return self._add(Thing(self._new_id(), name, into or self.root, folder=True))

    def notebook(self, name: str) -> Thing:
        return self._add(Thing(self._new_id(), name, self.root, notebook=True))

    def shortcut(self, drive: "Drive", thing: Thing, *, into: Thing | None = None) -> Thing:
        thing.readers.add(self.owner)
        made = Thing(self._new_id(), thing.name, into or self.root, remote=(drive, thing))
        return self._add(made)

    def edit(self, thing: Thing, content: str | bytes) -> None:
        data = content.encode() if isinstance(content, str) else content
        self._change(thing, content=data, edits=thing.edits + 1)

    def rename(self, thing: Thing, name: str) -> None:
        self._change(thing, name=name)

    def move(self, thing: Thing, into: Thing) -> None:
        self._change(thing, parent=into)

    def share(self, thing: Thing) -> None:
        """With somebody: its eTag changes, its content does not."""
        self._change(thing)

    def delete(self, thing: Thing) -> None:
        """Into the bin; what is in a folder goes with it and is not told of."""
        self._change(thing, deleted=True)

    def restore(self, thing: Thing) -> None:
        self._change(thing, deleted=False)

    def touch(self, thing: Thing, **attributes: Any) -> None:
        """Whatever else may happen to it."""
        self._change(thing, **attributes)

    # --- what there is ---

    def files(self, below: Thing | None = None) -> dict[str, Thing]:
        """By id, those that are there and may be read."""
        return {
            thing.id: thing
            for thing in self.things.values()
            if thing.content is not None
            and thing.is_there
            and (below is None or below in thing.above)
        }

    def inside(self, folder: Thing) -> list[Thing]:
        return [each for each in self.things.values() if each.parent is folder and not each.deleted]

    def _add(self, thing: Thing) -> Thing:
        with self.graph.lock:
            self.things[thing.id] = thing
            self._note(thing)
        return thing

    def _change(self, thing: Thing, **attributes: Any) -> None:
        with self.graph.lock:
            thing.former = self.graph.item_json(self, thing, from_delta=True)
            for name, value in attributes.items():
                setattr(thing, name, value)
            thing.changes += 1
            self._note(thing)

    def _note(self, thing: Thing) -> None:
        self.log.append(thing)
        thing.modified = EPOCH + timedelta(minutes=len(self.log))

    def _new_id(self) -> str:
        number = next(self.graph.numbers)
        if self.kind == "personal":
            return f"{self.id.upper()}!{number}"
        mark = base64.b32encode(hashlib.sha1(f"{self.id}{number}".encode()).digest()).decode()
        return f"01{mark}"


@dataclass
class User:
    id: str
    name: str
    token: str
    drive: Drive
    scopes: set[str]
    mail: str | None


@dataclass
class Subscription:
    id: str
    drive: Drive
    owner: str
    given: Mapping[str, Any]
    answers: list[int] = field(default_factory=list[int])
    """what its address answered to notifications"""


@dataclass(frozen=True)
class Reply:
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Enumeration:
    """What one run through the pages of `delta` goes through."""

    ids: list[str]
    until: int
    """how much of the log it covers"""
    query: Mapping[str, str]


class FakeGraph:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.numbers = iter(range(101, 10**9))
        self.site, self.store = Website(), Website()
        self.site.route("/*", self._serve)
        self.store.route("/*", self._serve_content)
        self.url = self.site.url("")
        self.users: dict[str, User] = {}
        self.drives: dict[str, Drive] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.detours: dict[str, str] = {}
        """public addresses of receivers, and where they are reached here"""
        self.page = 200
        """most entries of a page"""
        self.repeats = True
        """whether some things are told twice"""
        self.children_first = False
        """whether `delta` tells of what is in a folder before the folder"""
        self.tells_restored = False
        """whether what is in a restored folder is told of"""
        self.denies = False
        """whether 403 is answered of what is not shared with who asks, and not 404"""
        self.drops_zeros = False
        """whether ids in a shortcut to a personal drive lack the zero that they begin with
        (github.com/OneDrive/onedrive-api-docs/issues/1890)"""
        self.direct = False
        """whether content is answered without a redirect"""
        self.wire: list[tuple[str, Any]] = []
        self._enumerations: dict[str, Enumeration] = {}
        self._links: dict[str, bytes] = {}
        self._generation = 1
        self._gone: Mapping[str, Any] = {}
        self._circle: str | None = None
        self._refusals: deque[tuple[str, Reply]] = deque()
        self._moods: tuple[random.Random, float] | None = None

    def __enter__(self) -> Self:
        self.site.__enter__()
        self.store.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.site.__exit__()
        self.store.__exit__()

    # --- what users and Microsoft do ---

    def user(
        self,
        name: str,
        *,
        kind: Literal["personal", "business"] = "business",
        scopes: str = "Files.Read.All User.Read",
        mail: bool = True,
    ) -> User:
        """Somebody with a drive and a token."""
        number = next(self.numbers)
        id = f"{number:016x}" if kind == "personal" else f"b!{number:08d}"
        drive = self.drives[id] = Drive(self, id, name, kind)
        token = f"EwB-{name}-{number}"
        address = f"{name}@example.com" if mail else None
        user = User(str(uuid.UUID(int=number)), name, token, drive, set(scopes.split()), address)
        self.users[token] = user
        return user

    def notify(self, drive: Drive, *, times: int = 1) -> None:
        """Tell all subscriptions that something changed in the drive."""
        for subscription in [s for s in self.subscriptions.values() if s.drive is drive]:
            self.push(subscription, [self.notification(subscription)] * times)

    def lifecycle(self, subscription: Subscription, event: str) -> None:
        if event == "subscriptionRemoved":
            del self.subscriptions[subscription.id]
        said = self.notification(subscription)
        del said["changeType"]
        self.push(subscription, [{**said, "lifecycleEvent": event}])

    def expire_links(self) -> None:
        """Addresses of content that were given out are good for nothing."""
        self._links.clear()

    # --- bad days ---

    def refuse(
        self,
        status: int,
        code: str = "on purpose",
        *,
        at: str = "",
        times: int = 1,
        message: str | None = None,
        **headers: str,
    ) -> None:
        """Answer the next calls that match `at`; names of headers with underscores."""
        told = {name.replace("_", "-"): value for name, value in headers.items()}
        reply = replace(refusal(status, code, message=message), headers=told)
        self._refusals.extend([(at, reply)] * times)

    def moody(self, moods: random.Random | None, share: float = 0.1) -> None:
        """Let that share of all calls go wrong, each in some way; None: no longer."""
        self._moods = None if moods is None else (moods, share)

    def forget(
        self, code: str = "resyncChangesApplyDifferences", *, location: str | None = "own"
    ) -> None:
        """All links so far are answered with 410; `location`: where that says to begin."""
        self._generation += 1
        self._gone = {"code": code, "location": location}

    def lead(self, where: str | None) -> None:
        """All next links lead there: `circle`, or an address; None: where they should."""
        self._circle = where

    # --- serving ---

    def calls(self, pattern: str = "") -> list[Request]:
        """What was asked, where "METHOD /path" matches."""
        seen = list(self.site.requests)
        return [each for each in seen if re.search(pattern, f"{each.method} {each.path}")]

    def _serve(self, exchange: Exchange) -> bool:
        request = exchange.request
        with self.lock:
            mood = self._mood()
            reply = Reply(500) if mood in ("reset", "busy", "error") else self._refused(request)
            if reply is None:
                reply = self._answer(request)
        return send(exchange, reply, mood)

    def _serve_content(self, exchange: Exchange) -> bool:
        """Another host: who knows the address gets the content, once."""
        request = exchange.request
        with self.lock:
            mood = self._mood()
            data = self._links.pop(request.path, None)
        if "authorization" in request.headers:
            return send(exchange, Reply(401), mood)
        return send(exchange, Reply(404) if data is None else Reply(200, data), mood)

    def _mood(self) -> str | None:
        if self._moods is None:
            return None
        moods, share = self._moods
        return moods.choice(MOODS) if moods.random() < share else None

    def _refused(self, request: Request) -> Reply | None:
        if self._refusals and re.search(self._refusals[0][0], f"{request.method} {request.path}"):
            return self._refusals.popleft()[1]
        return None

    def _answer(self, request: Request) -> Reply:
        user = self.users.get(request.headers.get("authorization", "").removeprefix("Bearer "))
        if user is None:
            return refusal(401, "InvalidAuthenticationToken")
        path, _, query = request.path.partition("?")
        asked = dict(parse_qsl(query, keep_blank_values=True))
        match [unquote(part) for part in path.removeprefix("/v1.0/").split("/")]:
            case ["me"]:
                return self._me(user)
            case ["me", "drive"]:
                return Reply(200, json.dumps({"id": user.drive.id}).encode())
            case ["me", "drive", "root", "delta"]:
                return self._delta(user, asked)
            case ["me", "drive", "items", id, *rest]:
                return self._item(user, user.drive, id, rest, asked)
            case ["drives", drive, "items", id, *rest] if drive in self.drives:
                return self._item(user, self.drives[drive], id, rest, asked)
            case ["subscriptions"] if request.method == "POST":
                return self._subscribe(user, json.loads(request.body))
            case ["subscriptions", id] if request.method == "DELETE":
                gone = self.subscriptions.pop(id, None)
                return Reply(204) if gone else refusal(404, "ResourceNotFound")
            case _:
                return refusal(404, "ResourceNotFound")

    def _me(self, user: User) -> Reply:
        upn = f"{user.name}_upn@example.onmicrosoft.com"
        said = {"id": user.id, "mail": user.mail, "userPrincipalName": upn}
        self.wire.append(("User", said))
        return Reply(200, json.dumps(said).encode())

    # --- delta ---

    def _delta(self, user: User, asked: Mapping[str, str]) -> Reply:
        if not user.scopes & {"Files.Read", "Files.Read.All"}:
            return refusal(403, "accessDenied")
        if asked.keys() - {"$select", "$top", "token"} or self._misnamed(asked):
            return refusal(400, "invalidRequest")
        drive, token = user.drive, asked.get("token", "")
        generation, _, rest = token.partition(".")
        if token and generation != str(self._generation):
            return self._resync(asked)
        kind, _, place = rest.partition(".")
        if kind == "page":
            key, _, offset = place.partition(".")
            return self._page(drive, key, int(offset))
        key = uuid.uuid4().hex[:8]
        since = int(place) if kind == "since" else 0
        query = {name: value for name, value in asked.items() if name != "token"}
        ids = self._changed(drive, since)
        self._enumerations[key] = Enumeration(ids, len(drive.log), query)
        return self._page(drive, key, 0)

    def _resync(self, asked: Mapping[str, str]) -> Reply:
        location = self._gone.get("location", "own")
        query = {name: value for name, value in asked.items() if name != "token"}
        begin = f"{self.url}/v1.0/me/drive/root/delta?{urlencode(query)}"
        told = {} if location is None else {"Location": begin if location == "own" else location}
        inner = self._gone.get("code", "resyncChangesApplyDifferences")
        return replace(refusal(410, "resyncRequired", inner=inner), headers=told)

    def _changed(self, drive: Drive, since: int) -> list[str]:
        """What changed from there on, each once, with the folders that it is in."""
        changed = list(dict.fromkeys(reversed(drive.log[since:])))[::-1]
        if since == 0:
            changed = [thing for thing in changed if thing.is_there]
        found: dict[str, None] = {}
        for thing in changed:
            restored = thing.folder and "deleted" in thing.former
            below = self._below(drive, thing) if self.tells_restored and restored else ()
            order = [*reversed(thing.above), thing, *below]
            for each in reversed(order) if self.children_first else order:
                found.setdefault(each.id)
        return list(found)

    def _below(self, drive: Drive, folder: Thing) -> Iterator[Thing]:
        for each in drive.inside(folder):
            yield each
            yield from self._below(drive, each)

    def _page(self, drive: Drive, key: str, offset: int) -> Reply:
        run = self._enumerations[key]
        size = min(self.page, int(run.query.get("$top", "200")))
        things = [drive.things[id] for id in run.ids[offset : offset + size]]
        entries: list[dict[str, Any]] = []
        for number, thing in enumerate(things):
            # Told as it was before, and again as it is.
            if self.repeats and thing.former and number % 2 == 0:
                entries.append(thing.former)
        entries += [self.item_json(drive, thing, from_delta=True) for thing in things]
        if self.repeats and entries:
            entries.append(entries[-1])
            next_page = [drive.things[id] for id in run.ids[offset + size :][:1]]
            entries += [thing.former for thing in next_page if thing.former]
        ended = offset + size >= len(run.ids)
        state = f"since.{run.until}" if ended else f"page.{key}.{offset + size}"
        name = "@odata.deltaLink" if ended else "@odata.nextLink"
        link = self._link(run.query, f"{self._generation}.{state}")
        if self._circle is not None:
            name = "@odata.nextLink"
            link = self._circle
            if link == "circle":
                link = self._link(run.query, f"{self._generation}.page.{key}.{offset % (2 * size)}")
        return self._collection(entries, run.query, {name: link})

    def _link(self, query: Mapping[str, str], token: str) -> str:
        return f"{self.url}/v1.0/me/drive/root/delta?{urlencode({**query, 'token': token})}"

    def _collection(
        self, entries: list[dict[str, Any]], asked: Mapping[str, str], links: Mapping[str, str]
    ) -> Reply:
        shown = [self._selected(entry, asked) for entry in entries]
        self.wire += [("DriveItem", entry) for entry in shown]
        context = f"{self.url}/v1.0/$metadata#Collection(driveItem)"
        body = {"@odata.context": context, **links, "value": shown}
        return Reply(200, json.dumps(body).encode())

    def _misnamed(self, asked: Mapping[str, str]) -> bool:
        return bool(set(asked.get("$select", "id").split(",")) - FIELDS)

    def _selected(self, entry: dict[str, Any], asked: Mapping[str, str]) -> dict[str, Any]:
        wanted = asked["$select"].split(",") if "$select" in asked else FIELDS - {"publication"}
        return {name: value for name, value in entry.items() if name in wanted}

    # --- items ---

    def _item(
        self, user: User, drive: Drive, id: str, rest: list[str], asked: Mapping[str, str]
    ) -> Reply:
        thing = drive.things.get(id)
        foreign = drive.owner != user.name
        if foreign and "Files.Read.All" not in user.scopes:
            return refusal(403, "accessDenied")
        if thing is None or not thing.is_there:
            return refusal(404, "itemNotFound")
        if foreign and not any(user.name in each.readers for each in [thing, *thing.above]):
            return refusal(403, "accessDenied") if self.denies else refusal(404, "itemNotFound")
        if self._misnamed(asked):
            return refusal(400, "invalidRequest")
        match rest:
            case []:
                shown = self._selected(self.item_json(drive, thing), asked)
                self.wire.append(("DriveItem", shown))
                return Reply(200, json.dumps(shown).encode())
            case ["children"]:
                return self._children(drive, thing, asked)
            case ["content"] if thing.content is not None:
                return self._content(thing)
            case _:
                return refusal(400, "invalidRequest")

    def _children(self, drive: Drive, folder: Thing, asked: Mapping[str, str]) -> Reply:
        size, skip = min(self.page, int(asked.get("$top", "200"))), int(asked.get("$skiptoken", 0))
        inside = drive.inside(folder)
        entries = [self.item_json(drive, each) for each in inside[skip : skip + size]]
        links: dict[str, str] = {}
        if skip + size < len(inside):
            query = urlencode({**asked, "$skiptoken": str(skip + size)})
            base = f"{self.url}/v1.0/drives/{quote(drive.id)}"
            links["@odata.nextLink"] = f"{base}/items/{quote(folder.id)}/children?{query}"
        return self._collection(entries, asked, links)

    def _content(self, thing: Thing) -> Reply:
        if thing.locked:
            return refusal(423, "resourceLocked")
        if thing.malware:
            return refusal(403, "malwareDetected")
        assert thing.content is not None
        if self.direct:
            return Reply(200, thing.content, {"Content-Type": "application/octet-stream"})
        path = f"/download.aspx?UniqueId={uuid.uuid4()}&tempauth=v1.{uuid.uuid4().hex}"
        self._links[path] = thing.content
        return Reply(302, b"", {"Location": self.store.url(path)})

    def item_json(self, drive: Drive, thing: Thing, *, from_delta: bool = False) -> dict[str, Any]:
        business = drive.kind == "business"
        reference: dict[str, Any] = {"driveId": drive.id, "driveType": drive.kind}
        if thing.parent is not None:
            reference["id"] = thing.parent.id
            if not from_delta:
                above = thing.parent.path if thing.parent.parent else ""
                reference["path"] = f"/drive/root:/{quote(above, errors='replace')}".rstrip("/")
        entry: dict[str, Any] = {
            "id": thing.id,
            "name": thing.name,
            "parentReference": reference,
            "eTag": f'"{{{thing.id}}},{thing.changes}"',
        }
        if thing.deleted:
            # learn.microsoft.com/graph/api/driveitem-delta, "remarks"
            if business:
                del entry["name"]
            entry["deleted"] = {"state": "deleted"}
            return entry | ({"folder": {"childCount": 0}} if thing.folder else {})
        time = thing.modified.strftime("%Y-%m-%dT%H:%M:%SZ")
        who = {"user": {"displayName": f"{drive.owner.title()} Example", "id": "1"}}
        entry |= {
            "webUrl": f"https://{drive.owner}.example.com/{quote(thing.path, errors='replace')}",
            "createdDateTime": "2026-01-01T00:00:00Z",
            "lastModifiedDateTime": time,
            "fileSystemInfo": {"lastModifiedDateTime": time},
            "createdBy": who,
            "lastModifiedBy": who,
            "size": len(thing.content or b"") if thing.size is None else thing.size,
        }
        if not (business and (from_delta or thing.folder)):
            entry["cTag"] = f'"c:{{{thing.id}}},{thing.edits}"'
        return entry | self._facets(drive, thing)

    def _facets(self, drive: Drive, thing: Thing) -> dict[str, Any]:
        found: dict[str, dict[str, Any]] = {}
        if thing.parent is None:
            found["root"] = {}
        if thing.folder:
            # github.com/microsoftgraph/microsoft-graph-docs-contrib/issues/278
            found["folder"] = {"childCount": 0}
        if thing.notebook:
            found["package"] = {"type": "oneNote"}
        if thing.malware:
            found["malware"] = {"description": "EICAR"}
        if thing.content is not None:
            digest = base64.b64encode(hashlib.sha1(thing.content).digest()).decode()
            found["file"] = {"mimeType": _mime(thing.name)}
            if thing.hashed:
                found["file"]["hashes"] = {"quickXorHash": digest}
            if drive.kind == "business":
                found["publication"] = {"level": "published", "versionId": f"{thing.edits}.0"}
        if thing.remote is not None:
            other, target = thing.remote
            kind = {"folder": {"childCount": 0}} if target.folder else {"file": {}}
            cut = int(self.drops_zeros and other.kind == "personal")
            found["remoteItem"] = {
                "id": target.id[cut:],
                "name": target.name,
                "parentReference": {"driveId": other.id[cut:], "driveType": other.kind},
                **kind,
            }
        return found

    # --- subscriptions ---

    def _subscribe(self, user: User, given: Mapping[str, Any]) -> Reply:
        self.wire.append(("Subscription", given))
        ends = datetime.fromisoformat(given["expirationDateTime"])
        wrong = (
            given.keys() - SUBSCRIPTION_FIELDS
            or given["changeType"] != "updated"
            or given["resource"].strip("/") != "me/drive/root"
            or len(given.get("clientState", "")) > 128
            or ends > datetime.now(UTC) + timedelta(minutes=MOST_MINUTES)
        )
        if wrong:
            return refusal(400, "invalidRequest")
        for name in ("notificationUrl", "lifecycleNotificationUrl"):
            if name in given and not self._shakes_hands(given[name]):
                return refusal(400, "ValidationError")
        made = Subscription(str(uuid.uuid4()), user.drive, user.name, given)
        self.subscriptions[made.id] = made
        # Microsoft may give less than was asked for.
        told = {**given, "id": made.id, "expirationDateTime": _told(ends - timedelta(minutes=1))}
        told |= {"applicationId": str(uuid.UUID(int=7)), "creatorId": user.id}
        self.wire.append(("Subscription", told))
        return Reply(201, json.dumps(told).encode())

    def _shakes_hands(self, url: str) -> bool:
        token = f"Validation: Testing client application reachability & more {uuid.uuid4()}+%C3%A9"
        query = f"validationToken={quote(token, safe='')}"
        url = detour(url, self.detours)
        status, mime, body = _post(f"{url}{'&' if '?' in url else '?'}{query}", b"", "text/plain")
        return (status, mime.partition(";")[0], body) == (200, "text/plain", token.encode())

    def notification(self, subscription: Subscription) -> dict[str, Any]:
        return {
            "subscriptionId": subscription.id,
            "subscriptionExpirationDateTime": subscription.given["expirationDateTime"],
            "clientState": subscription.given.get("clientState"),
            "changeType": "updated",
            "resource": "me/drive/root",
            "tenantId": str(uuid.UUID(int=9)),
        }

    def push(self, subscription: Subscription, said: list[dict[str, Any]]) -> None:
        """Send it once, and note the answer."""
        body = {"value": said}
        self.wire.append(("ChangeNotificationCollection", body))
        url = detour(subscription.given["notificationUrl"], self.detours)
        status, _, _ = _post(url, json.dumps(body).encode(), "application/json")
        subscription.answers.append(status)


def refusal(
    status: int, code: str, *, inner: str | None = None, message: str | None = None
) -> Reply:
    more = {"innerError": {"code": inner, "date": "2026-01-01T00:00:00"}} if inner else {}
    said = {"error": {"code": code, "message": message or f"This is {code}.", **more}}
    return Reply(status, json.dumps(said).encode())


def send(exchange: Exchange, reply: Reply, mood: str | None) -> bool:
    """Answer, unless the mood is against it; whether the connection stays."""
    match mood:
        case "reset":
            return False
        case "busy":
            reply = Reply(429, b"{}", {"Retry-After": "1"})
        case "error":
            reply = refusal(500, "generalException")
        case "bad gateway":
            reply = Reply(502, b"<html>Bad Gateway</html>")
        case "page" if "download.aspx" not in exchange.request.path:
            reply = Reply(200, b"<html>please sign in</html>")
        case _:
            pass
    phrase = HTTPStatus(reply.status).phrase if reply.status in set(HTTPStatus) else "Other"
    headers = {"Content-Type": "application/json", **reply.headers}
    if reply.status != 204:
        headers["Content-Length"] = str(len(reply.body))
    lines = [
        f"HTTP/1.1 {reply.status} {phrase}",
        *(f"{k}: {v}" for k, v in headers.items()),
        "",
        "",
    ]
    whole = "\r\n".join(lines).encode() + reply.body
    if mood == "cut" and reply.body:
        exchange.send(whole[: -max(1, len(reply.body) // 2)])
        return False
    exchange.send(whole)
    return True


def _post(url: str, body: bytes, mime: str) -> tuple[int, str, bytes]:
    """Status, type and body of what is answered; 0 for nothing."""
    to = urlsplit(url)
    connection = HTTPConnection(to.hostname or "", to.port, timeout=60)
    try:
        connection.request("POST", f"{to.path}?{to.query}", body, {"Content-Type": mime})
        answer = connection.getresponse()
        return answer.status, answer.headers.get("content-type", ""), answer.read()
    except (OSError, HTTPException):
        return 0, "", b""
    finally:
        connection.close()


def detour(url: str, detours: Mapping[str, str]) -> str:
    for public, here in detours.items():
        url = url.replace(public, here, 1)
    return url


def _told(time: datetime) -> str:
    """With seven digits after the point, as Microsoft writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.0000000Z")


def _mime(name: str) -> str:
    types = {"txt": "text/plain", "md": "text/markdown"}
    return types.get(name.rpartition(".")[2], "application/octet-stream")
