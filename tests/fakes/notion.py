"""Notion's API on loopback: pages, blocks, databases, trash, sharing, a search that is late.

    with FakeNotion() as notion:
        home = notion.page("Home", para("Welcome"))
        notion.page("Guide", heading(1, "Start"), para("Do this."), parent=home)
        tasks = notion.database("Tasks", home, Status="select")
        notion.row(tasks, "Paint the door", Status=select("Done"))
        notion.pass_time(minutes=5)
        notion.trash(home)

The test is the user. Times are those of `now`, which the test moves, rounded down to the minute.
What is told of things follows the types of the official client, and each exchange is kept in
`exchanges`, so that a test can hold it against them. `late`, `gaps`, `most`, `most_records`,
`refuse` and `moody` make days worse.
"""

import base64
import hashlib
import hmac
import json
import random
import re
import threading
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.client import HTTPConnection, HTTPException
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from tests.fakes.website import Exchange, Request, Website

VERSIONS = ("2025-09-03", "2026-03-11")
WORKSPACE = "59833787-2cf9-4fdf-8782-e53db20768a5"
BOT = "b3414d65-1224-5ab3-8c4a-9a0a1c2b3d4e"
ANN = "6794760a-1f15-45cd-9c65-0dfe42f5135a"
EPOCH = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
MOODS = ("busy", "overloaded", "error", "bad gateway", "cut", "reset", "page", "nothing")
SIGNED = "https://prod-files-secure.s3.us-west-2.amazonaws.com/{}?X-Amz-Signature=5ec12e7"
Json = dict[str, Any]


# --- rich text and blocks, as a user writes them -------------------------------------------------


def text(content: str, *, url: str | None = None, **marks: bool) -> Json:
    how: Json = dict.fromkeys(("bold", "italic", "strikethrough", "underline", "code"), False) | {
        "color": "default"
    }
    return {
        "type": "text",
        "text": {"content": content, "link": {"url": url} if url else None},
        "annotations": how | marks,
        "plain_text": content,
        "href": url,
    }


def rich(content: "str | Sequence[Json]") -> list[Json]:
    if isinstance(content, str):
        return [text(content)] if content else []
    return list(content)


@dataclass(eq=False)
class Block:
    kind: str
    data: Json
    children: list["Block"] = field(default_factory=list["Block"])
    id: str = field(default_factory=lambda: "")

    @property
    def plain(self) -> str:
        return "".join(part["plain_text"] for part in self.data.get("rich_text", []))


def _words(
    kind: str, content: str | Sequence[Json], children: Sequence[Block], **more: Any
) -> Block:
    return Block(kind, {"rich_text": rich(content), "color": "default", **more}, list(children))


def para(content: str | Sequence[Json], *children: Block) -> Block:
    return _words("paragraph", content, children, icon=None)


def heading(level: int, content: str, *children: Block) -> Block:
    return _words(f"heading_{level}", content, children, is_toggleable=bool(children))


def bullet(content: str | Sequence[Json], *children: Block) -> Block:
    return _words("bulleted_list_item", content, children)


def number(content: str, *children: Block) -> Block:
    return _words("numbered_list_item", content, children)


def todo(content: str, *children: Block, checked: bool = False) -> Block:
    return _words("to_do", content, children, checked=checked)


def toggle(content: str, *children: Block) -> Block:
    return _words("toggle", content, children)


def quote(content: str, *children: Block) -> Block:
    return _words("quote", content, children)


def callout(content: str, *children: Block, emoji: str = "💡") -> Block:
    return _words("callout", content, children, icon={"type": "emoji", "emoji": emoji})


def code(content: str, language: str = "python") -> Block:
    return Block("code", {"rich_text": rich(content), "caption": [], "language": language})


def equation(expression: str) -> Block:
    return Block("equation", {"expression": expression})


def divider() -> Block:
    return Block("divider", {})


def breadcrumb() -> Block:
    return Block("breadcrumb", {})


def bookmark(url: str, caption: str = "") -> Block:
    return Block("bookmark", {"url": url, "caption": rich(caption)})


def image(url: str, caption: str = "") -> Block:
    return Block("image", {"type": "external", "external": {"url": url}, "caption": rich(caption)})


def hosted(kind: str, name: str, caption: str = "") -> Block:
    """A file that lies at Notion: its link is signed."""
    file = {"url": SIGNED.format(name), "expiry_time": "2026-01-01T13:00:00.000Z"}
    named = {"name": name} if kind == "file" else {}
    return Block(kind, {"type": "file", "file": file, "caption": rich(caption), **named})


def grid(*rows: Sequence[str], headed: bool = True) -> Block:
    cells = [Block("table_row", {"cells": [rich(cell) for cell in row]}) for row in rows]
    data = {"has_column_header": headed, "has_row_header": False, "table_width": len(rows[0])}
    return Block("table", data, cells)


def columns(*each: Sequence[Block]) -> Block:
    return Block("column_list", {}, [Block("column", {}, list(one)) for one in each])


def synced(*children: Block) -> Block:
    """An original."""
    return Block("synced_block", {"synced_from": None}, list(children))


def copy_of(original: Block) -> Block:
    """A copy of a synced block, which must have its id."""
    return Block("synced_block", {"synced_from": {"type": "block_id", "block_id": original.id}})


def unsupported(block_type: str) -> Block:
    return Block("unsupported", {"block_type": block_type})


def select(name: str) -> Json:
    return {"type": "select", "select": {"id": name.lower(), "name": name, "color": "red"}}


def multi(*names: str) -> Json:
    options = [{"id": name.lower(), "name": name, "color": "blue"} for name in names]
    return {"type": "multi_select", "multi_select": options}


def prop(kind: str, value: Any) -> Json:
    """A property of any other type."""
    return {"type": kind, kind: value}


# --- what there is -----------------------------------------------------------------------------


@dataclass(eq=False)
class Thing:
    id: str
    title: str
    parent: "Thing | None"
    """None: the workspace"""
    created: datetime
    edited: datetime
    shared: bool = False
    """given to the integration by itself; what stands in it is, too"""
    trashed: bool = False
    erased: bool = False

    def above(self) -> Iterator["Thing"]:
        """Itself, and all it stands in."""
        one: Thing | None = self
        while one is not None:
            yield one
            one = one.parent

    @property
    def visible(self) -> bool:
        line = list(self.above())
        return any(one.shared for one in line) and not any(one.erased for one in line)

    @property
    def in_trash(self) -> bool:
        return any(one.trashed for one in self.above())

    @property
    def key(self) -> str:
        return self.id.replace("-", "")


@dataclass(eq=False)
class Page(Thing):
    blocks: list[Block] = field(default_factory=list[Block])
    properties: dict[str, Json] = field(default_factory=dict[str, Json])
    odd: Json = field(default_factory=dict[str, Any])
    """fields that are told instead of the true ones"""


@dataclass(eq=False)
class Base(Thing):
    """A database: what holds data sources."""


@dataclass(eq=False)
class Table(Thing):
    """A data source."""

    schema: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def base(self) -> Base:
        assert isinstance(self.parent, Base)
        return self.parent


@dataclass(frozen=True)
class Reply:
    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def data(self) -> bytes:
        if isinstance(self.body, bytes):
            return self.body
        # Half a surrogate pair can only be spelt.
        return json.dumps(self.body).encode()


@dataclass(frozen=True)
class Traded:
    """A request and its answer."""

    method: str
    path: str
    body: Any
    status: int
    answer: Any


@dataclass
class Subscription:
    """Made by the operator, on Notion's page, for the whole integration."""

    url: str
    token: str
    verified: bool = False
    statuses: list[int] = field(default_factory=list[int])


class FakeNotion:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.site = Website()
        self.site.route("/*", self._serve)
        self.url = self.site.url("")
        self.store = Website()
        """where files lie; links of it live an hour"""
        self.files: dict[str, bytes] = {}
        """by name; those that are not here are empty"""
        self.store.route("/*", self._serve_file)
        self.now = EPOCH
        self.things: dict[str, Thing] = {}
        """by id without hyphens, in the order of their creation"""
        self.blocks: dict[str, tuple[Block, Page]] = {}
        self.tokens = {f"token-{number}" for number in range(1, 4)}
        self.refreshing: dict[str, str] = {}
        """refresh token → access token that came with it"""
        self.codes: dict[str, str] = {}
        """code → redirect_uri"""
        self.client = ("notion-client", "notion secret+/=")
        self.exchanges: list[Traded] = []
        self.late = False
        """search shows things as they were when `index` was last called"""
        self.gaps: set[str] = set()
        """keys of what search never shows"""
        self.most = 100
        """results at a time"""
        self.repeats = False
        """each page of a list begins with the last one of the page before"""
        self.circles = False
        """lists never end"""
        self.most_results = 10_000
        self.most_records = 20_000
        """blocks that are rendered as Markdown"""
        self.heaviest = 100
        """things of a page that the search and queries can give; more are answered with 504
        (github.com/dust-tt/dust/pull/5133)"""
        self.knows_markdown = True
        self.may_read = True
        """capability of the integration"""
        self.restricted: set[str] = set()
        """keys that answer 403"""
        self.subscription: Subscription | None = None
        self.events: list[bytes] = []
        self._index: dict[str, datetime] = {}
        self._cursors: dict[str, tuple[list[str], int]] = {}
        self._refusals: deque[tuple[re.Pattern[str], Reply]] = deque()
        self._moods: tuple[random.Random, float] | None = None
        self._ids = random.Random(4)

    def __enter__(self) -> Self:
        self.site.__enter__()
        self.store.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.site.__exit__()
        self.store.__exit__()

    # --- what users do ---

    def pass_time(self, *, minutes: float = 0, seconds: float = 0) -> datetime:
        self.now += timedelta(minutes=minutes, seconds=seconds)
        return self.now

    def page(
        self, title: str, *blocks: Block, parent: Page | None = None, inside: Block | None = None
    ) -> Page:
        """A page; at the top of the workspace it is shared. `inside`: a block of the parent."""
        with self.lock:
            page = Page(self.new_id(), title, parent, self.now, self.now, shared=parent is None)
            page.properties = {"title": prop("title", rich(title))}
            self.things[page.key] = page
            self.write(page, *blocks)
            self._stand_in(page, parent, inside)
        self._announce("page.created", page)
        return page

    def database(
        self,
        title: str,
        parent: Page | None = None,
        /,
        *,
        inside: Block | None = None,
        **schema: str,
    ) -> Table:
        """A database with one data source, by name and type of its properties."""
        with self.lock:
            base = Base(self.new_id(), title, parent, self.now, self.now, shared=parent is None)
            table = Table(self.new_id(), title, base, self.now, self.now)
            table.schema = {"Name": "title", **schema}
            self.things |= {base.key: base, table.key: table}
            self.touch(table)
            self._stand_in(base, parent, inside)
        self._announce("data_source.created", table)
        return table

    def row(self, table: Table, title: str, *blocks: Block, **properties: Json) -> Page:
        with self.lock:
            page = Page(self.new_id(), title, table, self.now, self.now)
            page.properties = {"Name": prop("title", rich(title)), **properties}
            self.things[page.key] = page
            self.write(page, *blocks)
        self._announce("page.created", page)
        return page

    def write(self, page: Page, *blocks: Block) -> None:
        """Replace what stands on a page, but for the pages and databases in it."""
        with self.lock:
            kept = [block for block in page.blocks if block.kind.startswith("child_")]
            page.blocks = [*blocks, *kept]
            self._adopt(page, page.blocks)
            self.touch(page)
        self._announce("page.content_updated", page)

    def rename(self, thing: Thing, title: str) -> None:
        with self.lock:
            thing.title = title
            if isinstance(thing, Page):
                name = "Name" if isinstance(thing.parent, Table) else "title"
                thing.properties[name] = prop("title", rich(title))
            self.touch(thing)
            for block, page in self._places(thing):
                block.data["title"] = title
                self.touch(page)
        self._announce("page.properties_updated", thing)

    def fill(self, row: Page, **properties: Json) -> None:
        with self.lock:
            row.properties |= properties
            self.touch(row)
        self._announce("page.properties_updated", row)

    def move(self, page: Page, parent: Page | None) -> None:
        """It is no edit of the page itself."""
        with self.lock:
            self._leave(page)
            page.parent, page.shared = parent, page.shared and parent is None
            self._stand_in(page, parent, None)
        self._announce("page.moved", page)

    def trash(self, thing: Thing) -> None:
        """With all that stands in it."""
        with self.lock:
            thing.trashed = True
            self._touch_with_place(thing)
        self._announce("page.deleted", thing)

    def restore(self, thing: Thing) -> None:
        with self.lock:
            thing.trashed = False
            self._touch_with_place(thing)
        self._announce("page.undeleted", thing)

    def erase(self, thing: Thing) -> None:
        """For ever."""
        with self.lock:
            thing.erased = True
            self._touch_with_place(thing)

    def share(self, thing: Thing, shared: bool = True) -> None:
        """Give it to the integration, or take it away; no event tells of it."""
        with self.lock:
            thing.shared = shared

    def touch(self, thing: Thing) -> None:
        thing.edited = self.now
        if not self.late:
            self._index[thing.key] = self.minute(self.now)

    def index(self) -> None:
        """The search index catches up."""
        with self.lock:
            for thing in self.things.values():
                self._index[thing.key] = self.minute(thing.edited)

    def readable(self) -> dict[str, Page]:
        """What a connector should have: key → page with something on it."""
        with self.lock:
            return {
                key: thing
                for key, thing in self.things.items()
                if isinstance(thing, Page)
                and thing.visible
                and not thing.in_trash
                and (isinstance(thing.parent, Table) or self._says(thing.blocks))
            }

    def said(self, page: Page) -> str:
        """All words of a page, to look for."""
        return " ".join(block.plain for block in _all(page.blocks) if block.plain)

    # --- bad days ---

    def refuse(
        self, status: int, *, times: int = 1, on: str = "", code: str = "unknown", **headers: str
    ) -> None:
        """Answer the next calls whose "METHOD /path" matches with this error."""
        told = {name.replace("_", "-"): value for name, value in headers.items()}
        reply = replace(_error(status, code), headers=told)
        self._refusals.extend([(re.compile(on), reply)] * times)

    def answer_with(self, body: Any, *, times: int = 1, on: str = "", status: int = 200) -> None:
        self._refusals.extend([(re.compile(on), Reply(status, body))] * times)

    def moody(self, moods: random.Random | None, share: float = 0.1) -> None:
        """Let that share of all calls go wrong, each in some way; None: no longer."""
        self._moods = None if moods is None else (moods, share)

    def behave(self) -> None:
        self._refusals.clear()
        self._moods = None

    def forget_cursors(self) -> None:
        self._cursors.clear()

    def calls(self, pattern: str = "") -> list[Request]:
        """What was asked, where "METHOD /path" matches."""
        seen = list(self.site.requests)
        return [each for each in seen if re.search(pattern, f"{each.method} {each.path}")]

    def forget(self) -> None:
        self.site.requests.clear()
        self.exchanges.clear()

    # --- events ---

    def subscribe(self, url: str) -> Subscription:
        """The operator pastes an address; Notion sends it a token at once."""
        made = Subscription(url, f"secret_{self._ids.getrandbits(160):040x}")
        self.subscription = made
        self.deliver(json.dumps({"verification_token": made.token}).encode(), signed=False)
        return made

    def confirm(self, token: str) -> bool:
        """The operator pastes the token back."""
        held = self.subscription
        if held is None or held.token != token:
            return False
        held.verified = True
        return True

    def event(self, kind: str, thing: Thing, *, workspace: str = WORKSPACE) -> bytes:
        entity = "page" if isinstance(thing, Page) else "data_source"
        parent: Json = {"id": WORKSPACE, "type": "space"}
        if isinstance(thing.parent, Page):
            parent = {"id": thing.parent.id, "type": "page"}
        data: Json = {"parent": parent}
        if kind.endswith("content_updated"):
            data["updated_blocks"] = [{"id": thing.id, "type": "block"}]
        if kind.endswith("properties_updated"):
            data["updated_properties"] = ["title"]
        told = {
            "id": self.new_id(),
            "timestamp": self.stamp(self.now),
            "workspace_id": workspace,
            "workspace_name": "Acme",
            "subscription_id": "29d75c0d-5546-4414-8459-7b7a92f1fc4b",
            "integration_id": "0ef2e755-4912-8096-91c1-00376a88a5ca",
            "authors": [{"id": ANN, "type": "person"}],
            "accessible_by": [{"id": BOT, "type": "bot"}],
            "attempt_number": 1,
            "api_version": VERSIONS[0],
            "type": kind,
            "entity": {"id": thing.id, "type": entity},
            "data": data,
        }
        return json.dumps(told).encode()

    def deliver(self, body: bytes, *, signed: bool = True) -> int:
        """Send it, whatever becomes of it; the status, 0 for none."""
        held = self.subscription
        assert held is not None
        headers = {"Content-Type": "application/json", "User-Agent": "notion-api"}
        if signed:
            headers["X-Notion-Signature"] = sign(body, held.token)
        url = urlsplit(held.url)
        connection = HTTPConnection(url.hostname or "", url.port, timeout=60)
        try:
            target = f"{url.path}?{url.query}" if url.query else url.path
            connection.request("POST", target, body, headers)
            status = connection.getresponse().status
        except (OSError, HTTPException):
            status = 0
        finally:
            connection.close()
        held.statuses.append(status)
        return status

    def _announce(self, kind: str, thing: Thing) -> None:
        body = self.event(kind, thing)
        self.events.append(body)
        if self.subscription is not None and self.subscription.verified:
            self.deliver(body)

    # --- serving ---

    def _serve(self, exchange: Exchange) -> bool:
        request = exchange.request
        with self.lock:
            mood = self._mood()
            silent = mood in ("reset", "busy", "overloaded", "error", "bad gateway")
            reply = Reply(500) if silent else self._answer(request)
            if not silent:
                self._keep(request, reply)
        data = self._links(reply.data)
        headers = {
            "Content-Type": "application/json; charset=utf-8",
            "Date": format_datetime(self.now, usegmt=True),
            **reply.headers,
        }
        match mood:
            case "reset":
                return False
            case "busy":
                exchange.send(_raw(429, _error(429, "rate_limited").data, {"Retry-After": "1"}))
            case "overloaded":
                exchange.send(_raw(529, _error(529, "service_overload").data, {"Retry-After": "1"}))
            case "error":
                exchange.send(_raw(500, _error(500, "internal_server_error").data))
            case "bad gateway":
                exchange.send(_raw(502, b"<html>Bad Gateway</html>"))
            case "page":
                exchange.send(_raw(200, b"<html>please sign in</html>"))
            case "nothing":
                exchange.send(_raw(200, b"{}", headers))
            case "cut":
                whole = _raw(reply.status, data, headers)
                exchange.send(whole[: -max(1, len(data) // 2)])
                return False
            case _:
                exchange.send(_raw(reply.status, data, headers))
        return True

    def _links(self, data: bytes) -> bytes:
        """Links to files as they are signed at this moment, which is told in them."""
        host, _, query = SIGNED.partition("{}")
        fresh = f"{query}&X-Amz-Date={int(self.now.timestamp())}"
        data = data.replace(query.encode(), fresh.encode())
        return data.replace(host.encode(), self.store.url("/").encode())

    def _serve_file(self, exchange: Exchange) -> bool:
        request = exchange.request
        path, _, query = request.path.partition("?")
        made = int(parse_qs(query)["X-Amz-Date"][0])
        if "authorization" in request.headers or self.now.timestamp() - made >= 3600:
            exchange.send(_raw(403, b"<Error><Code>AccessDenied</Code></Error>"))
        else:
            data = self.files.get(unquote(path[1:]), b"")
            exchange.send(_raw(200, data, {"Content-Type": "binary/octet-stream"}))
        return True

    def _mood(self) -> str | None:
        if self._moods is None:
            return None
        moods, share = self._moods
        return moods.choice(MOODS) if moods.random() < share else None

    def _keep(self, request: Request, reply: Reply) -> None:
        asked = json.loads(request.body) if request.body else None
        told = None if isinstance(reply.body, bytes) else reply.body
        self.exchanges.append(Traded(request.method, request.path, asked, reply.status, told))

    def _answer(self, request: Request) -> Reply:
        path, _, query = request.path.partition("?")
        line = f"{request.method} {path}"
        for at, (pattern, reply) in enumerate(self._refusals):
            if pattern.search(line):
                del self._refusals[at]
                return reply
        asked = {name: values[0] for name, values in parse_qs(query).items()}
        body: Json = json.loads(request.body) if request.body else {}
        if path == "/v1/oauth/authorize":
            return self._authorize(asked)
        if path == "/v1/oauth/token":
            return self._token(request, body)
        if request.headers.get("notion-version") not in VERSIONS:
            return _error(400, "missing_version")
        if path == "/v1/oauth/revoke":
            return self._revoke(request, body)
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        if bearer not in self.tokens:
            return _error(401, "unauthorized", "API token is invalid.")
        if path == "/v1/users/me":
            return Reply(200, self._me())
        if not self.may_read:
            return _error(403, "restricted_resource", "Insufficient permissions for this endpoint.")
        return self._route(line, asked, body)

    def _route(self, line: str, asked: Mapping[str, str], body: Json) -> Reply:
        if line == "POST /v1/search":
            return self._search(body)
        found = re.fullmatch(r"(GET|POST) /v1/(\w+)/([0-9a-fA-F-]{32,36})(?:/(\w+))?", line)
        if found is None:
            return _error(400, "invalid_request_url")
        verb, kind, key, rest = found[1], found[2], found[3].replace("-", "").lower(), found[4]
        if key in self.restricted:
            return _error(403, "restricted_resource", "Insufficient permissions for this resource.")
        if kind == "blocks" and (verb, rest) == ("GET", "children"):
            return self._children(key, asked)
        thing = self.things.get(key)
        if thing is None or not thing.visible:
            return NOT_FOUND
        match (kind, verb, rest, thing):
            case ("pages", "GET", None, Page()):
                return Reply(200, self.page_json(thing))
            case ("pages", "GET", "markdown", Page()) if self.knows_markdown:
                return Reply(200, self._markdown(thing))
            case ("databases", "GET", None, Base()):
                return Reply(200, self._base_json(thing))
            case ("data_sources", "GET", None, Table()):
                return Reply(200, self._table_json(thing))
            case ("data_sources", "POST", "query", Table()):
                return self._query(thing, body)
            case _:
                return NOT_FOUND

    # --- lists ---

    def _search(self, body: Json) -> Reply:
        known = {"sort", "query", "start_cursor", "page_size", "filter"}
        if body.keys() - known or not isinstance(body.get("page_size", 100), int):
            return _error(400, "validation_error")
        sort = body.get("sort", {"timestamp": "last_edited_time", "direction": "descending"})
        wanted = body.get("filter", {})
        if wanted.get("value") == "database":
            return _error(
                400, "validation_error", "body.filter.value should be page or data_source"
            )
        trash = wanted.get("in_trash", False)
        found = [
            thing
            for key, thing in self.things.items()
            if isinstance(thing, Page | Table) and thing.visible and key not in self.gaps
            if key in self._index and (thing.trashed if trash else not thing.in_trash)
            if not wanted.get("value") or wanted["value"] == _kind(thing)
        ]
        newest_first = sort["direction"] == "descending"
        found.sort(key=lambda thing: self._index[thing.key], reverse=newest_first)
        return self._list(body, [thing.key for thing in found], "page_or_data_source")

    def _query(self, table: Table, body: Json) -> Reply:
        known = {"sorts", "filter", "start_cursor", "page_size", "in_trash", "result_type"}
        if body.keys() - known or table.in_trash:
            return _error(400, "validation_error")
        rows = [
            thing
            for thing in self.things.values()
            if isinstance(thing, Page) and thing.parent is table
            if not thing.trashed and not thing.erased
        ]
        if (since := body.get("filter", {}).get("created_time", {}).get("on_or_after")) is not None:
            rows = [
                row for row in rows if self.minute(row.created) >= datetime.fromisoformat(since)
            ]
        rows.sort(key=lambda row: self.minute(row.created))
        return self._list(body, [row.key for row in rows], "page_or_data_source")

    def _children(self, key: str, asked: Mapping[str, str]) -> Reply:
        thing = self.things.get(key)
        if isinstance(thing, Page) and thing.visible:
            blocks, page = thing.blocks, thing
        elif key in self.blocks and self.blocks[key][1].visible:
            block, page = self.blocks[key]
            blocks = self._inside(block)
        else:
            return NOT_FOUND
        shown = [block for block in blocks if self._stands(block)]
        given: Json = {"page_size": int(asked.get("page_size", "100"))}
        given["start_cursor"] = asked.get("start_cursor")
        told = {block.id: self._block_json(block, page) for block in shown}
        return self._list(given, [block.id for block in shown], "block", told)

    def _inside(self, block: Block) -> list[Block]:
        source = block.data.get("synced_from")
        if block.kind == "synced_block" and source is not None:
            held = self.blocks.get(source["block_id"].replace("-", ""))
            return held[0].children if held is not None else []
        return block.children

    def _stands(self, block: Block) -> bool:
        """A page in the trash is not shown where it stood."""
        if not block.kind.startswith("child_"):
            return True
        thing = self.things[block.id.replace("-", "")]
        return not thing.trashed and not thing.erased

    def _list(
        self, body: Json, keys: list[str], kind: str, told: Mapping[str, Json] | None = None
    ) -> Reply:
        if told is None and int(body.get("page_size", 100)) > self.heaviest:
            return _error(504, "gateway_timeout")
        at, start = body.get("start_cursor"), 0
        incomplete = told is None and len(keys) > self.most_results
        keys = keys[: self.most_results] if incomplete else keys
        if at is not None:
            if at not in self._cursors:
                return _error(400, "validation_error", "The start_cursor provided is invalid")
            keys, start = self._cursors[at]
        size = min(int(body.get("page_size", 100)), self.most, 100)
        first = max(0, start - 1) if self.repeats else start
        end = start + size
        more = end < len(keys) or self.circles
        results = [
            told[key] if told is not None else self.thing_json(self.things[key])
            for key in keys[first:end]
        ]
        cursor: str | None = None
        if more:
            cursor = "again-and-again" if self.circles else self.new_id()
            self._cursors[cursor] = (keys, end)
        answer: Json = {
            "object": "list",
            "type": kind,
            kind: {},
            "results": results,
            "next_cursor": cursor,
            "has_more": more,
        }
        if incomplete and not more:
            status = {"type": "incomplete", "incomplete_reason": "query_result_limit_reached"}
            answer["request_status"] = status
        return Reply(200, answer)

    # --- objects ---

    def thing_json(self, thing: Thing) -> Json:
        return self._table_json(thing) if isinstance(thing, Table) else self.page_json(thing)

    def page_json(self, page: Thing) -> Json:
        assert isinstance(page, Page)
        return {
            "object": "page",
            **self._common(page),
            "is_archived": False,
            "is_locked": False,
            "icon": None,
            "cover": None,
            "parent": self._parent(page),
            "properties": {
                name: {"id": re.sub(r"\W", "", name)[:4] or "x", **value}
                for name, value in page.properties.items()
            },
            **page.odd,
        }

    def _table_json(self, table: Thing) -> Json:
        assert isinstance(table, Table)
        inside = {"type": "workspace", "workspace": True}
        if isinstance(table.base.parent, Page):
            inside = {"type": "page_id", "page_id": table.base.parent.id}
        return {
            "object": "data_source",
            **self._common(table),
            "title": rich(table.title),
            "description": [],
            "is_inline": False,
            "icon": None,
            "cover": None,
            "parent": {"type": "database_id", "database_id": table.base.id},
            "database_parent": inside,
            "properties": {
                name: {"id": name.lower(), "name": name, "description": None, "type": kind}
                | {kind: {"options": []} if "select" in kind else {}}
                for name, kind in table.schema.items()
            },
        }

    def _base_json(self, base: Base) -> Json:
        told = {name: value for name, value in self._common(base).items() if "_by" not in name}
        tables = [
            thing
            for thing in self.things.values()
            if isinstance(thing, Table) and thing.parent is base
        ]
        return {
            "object": "database",
            **told,
            "title": rich(base.title),
            "description": [],
            "is_inline": False,
            "is_locked": False,
            "icon": None,
            "cover": None,
            "parent": self._parent(base),
            "data_sources": [{"id": table.id, "name": table.title} for table in tables],
        }

    def _common(self, thing: Thing) -> Json:
        person = {"object": "user", "id": ANN}
        return {
            "id": thing.id,
            "created_time": self.stamp(self.minute(thing.created)),
            "last_edited_time": self.stamp(self.minute(thing.edited)),
            "created_by": person,
            "last_edited_by": person,
            "in_trash": thing.in_trash,
            "archived": thing.in_trash,
            "url": f"https://www.notion.so/{thing.key}",
            "public_url": None,
        }

    def _parent(self, thing: Thing) -> Json:
        match thing.parent:
            case Page():
                holder = self._holder(thing)
                if holder is not None:
                    return {"type": "block_id", "block_id": holder.id}
                return {"type": "page_id", "page_id": thing.parent.id}
            case Table():
                return {
                    "type": "data_source_id",
                    "data_source_id": thing.parent.id,
                    "database_id": thing.parent.base.id,
                }
            case _:
                return {"type": "workspace", "workspace": True}

    def _block_json(self, block: Block, page: Page) -> Json:
        person = {"object": "user", "id": ANN}
        told = self.stamp(self.minute(page.edited))
        return {
            "object": "block",
            "id": block.id,
            "parent": {"type": "page_id", "page_id": page.id},
            "created_time": told,
            "last_edited_time": told,
            "created_by": person,
            "last_edited_by": person,
            "has_children": bool(self._inside(block)) or block.kind == "child_page",
            "in_trash": False,
            "archived": False,
            "type": block.kind,
            block.kind: block.data,
        }

    def _me(self) -> Json:
        person = {"object": "user", "id": ANN, "name": "Ann", "avatar_url": None}
        person |= {"type": "person", "person": {"email": "ann@example.com"}}
        return {
            "object": "user",
            "id": BOT,
            "name": "Recollect",
            "avatar_url": None,
            "type": "bot",
            "bot": {
                "owner": {"type": "user", "user": person},
                "workspace_id": WORKSPACE,
                "workspace_limits": {"max_file_upload_size_in_bytes": 5242880},
                "workspace_name": "Acme",
            },
        }

    # --- Markdown ---

    def _markdown(self, page: Page) -> Json:
        unknown: list[str] = []
        left = [self.most_records]
        lines = list(self._lines(page, page.blocks, "", left, unknown))
        return {
            "object": "page_markdown",
            "id": page.id,
            "markdown": "\n".join(lines),
            "truncated": bool(unknown),
            "unknown_block_ids": unknown,
        }

    def _lines(
        self, page: Page, blocks: Sequence[Block], tabs: str, left: list[int], unknown: list[str]
    ) -> Iterator[str]:
        for block in blocks:
            if not self._stands(block):
                continue
            left[0] -= 1
            place = f"https://www.notion.so/{page.key}#{block.id.replace('-', '')}"
            if left[0] < 0:
                unknown.append(block.id)
                yield f'{tabs}<unknown url="{place}" alt="{block.kind}"/>'
                return
            before, after = self._tagged(block, place)
            deeper = tabs + "\t"
            if block.kind == "code":
                language = block.data["language"]
                yield from (
                    f"{tabs}{line}" for line in f"```{language}\n{block.plain}\n```".split("\n")
                )
                continue
            yield from (f"{tabs}{line}" for line in before)
            if block.kind != "table":
                yield from self._lines(page, self._inside(block), deeper, left, unknown)
            yield from (f"{tabs}{line}" for line in after)

    def _tagged(self, block: Block, place: str) -> tuple[list[str], list[str]]:  # noqa: C901 # one table
        said = _escaped(block.data.get("rich_text", []))
        match block.kind:
            case "heading_1" | "heading_2" | "heading_3":
                more = ' {toggle="true"}' if block.children else ""
                return [f"{'#' * int(block.kind[-1])} {said}{more}"], []
            case "bulleted_list_item":
                return [f"- {said}"], []
            case "numbered_list_item":
                return [f"1. {said}"], []
            case "to_do":
                return [f"- [{'x' if block.data['checked'] else ' '}] {said}"], []
            case "quote":
                return [f"> {said}"], []
            case "toggle":
                return ["<details>", f"<summary>{said}</summary>"], ["</details>"]
            case "callout":
                icon = block.data["icon"]["emoji"]
                return [f'<callout icon="{icon}" color="gray_bg">', f"\t{said}"], ["</callout>"]
            case "column_list":
                return ["<columns>"], ["</columns>"]
            case "column":
                return ["<column>"], ["</column>"]
            case "synced_block":
                tag = "synced_block" + ("_reference" if block.data["synced_from"] else "")
                return [f'<{tag} url="{place}">'], [f"</{tag}>"]
            case "equation":
                return ["$$", block.data["expression"], "$$"], []
            case "divider":
                return ["---"], []
            case "breadcrumb":
                return [], []
            case "image" | "file" | "pdf" | "video" | "audio":
                where = block.data[block.data["type"]]["url"]
                caption = _escaped(block.data["caption"])
                if block.kind == "image":
                    return [f"![{caption}]({where})"], []
                return [f'<{block.kind} src="{where}">{caption}</{block.kind}>'], []
            case "table":
                rows = [
                    "<tr>" + "".join(f"<td>{_escaped(c)}</td>" for c in row.data["cells"]) + "</tr>"
                    for row in block.children
                ]
                headed = str(block.data["has_column_header"]).lower()
                return [f'<table header-row="{headed}">', *rows, "</table>"], []
            case "child_page" | "child_database":
                tag = block.kind.removeprefix("child_")
                where = f"https://www.notion.so/{block.id.replace('-', '')}"
                return [f'<{tag} url="{where}">{block.data["title"]}</{tag}>'], []
            case "paragraph":
                return [said or "<empty-block/>"], []
            case _:
                return [f'<unknown url="{place}" alt="{block.kind}"/>'], []

    # --- authorization ---

    def _authorize(self, asked: Mapping[str, str]) -> Reply:
        """The user agrees at once."""
        if asked.get("client_id") != self.client[0] or asked.get("owner") != "user":
            return _error(400, "validation_error")
        code = self.new_id()
        self.codes[code] = asked["redirect_uri"]
        query = urlencode({"code": code, "state": asked.get("state", "")})
        return Reply(302, b"", {"Location": f"{asked['redirect_uri']}?{query}"})

    def _token(self, request: Request, body: Json) -> Reply:
        if not self._is_client(request):
            return Reply(401, {"error": "invalid_client", "request_id": self.new_id()})
        match body.get("grant_type"):
            case "authorization_code":
                redirect = self.codes.pop(body.get("code", ""), None)
                if redirect is None or redirect != body.get("redirect_uri"):
                    return Reply(400, {"error": "invalid_grant", "request_id": self.new_id()})
            case "refresh_token":
                old = self.refreshing.pop(body.get("refresh_token", ""), None)
                if old is None:
                    return Reply(400, {"error": "invalid_grant", "request_id": self.new_id()})
                self.tokens.discard(old)
            case _:
                return Reply(400, {"error": "unsupported_grant_type"})
        access, refresh = f"ntn_{self.new_id()}", f"nrt_{self.new_id()}"
        self.tokens.add(access)
        self.refreshing[refresh] = access
        person = {"object": "user", "id": ANN, "name": "Ann", "avatar_url": None}
        person |= {"type": "person", "person": {"email": "ann@example.com"}}
        return Reply(
            200,
            {
                "access_token": access,
                "token_type": "bearer",
                "refresh_token": refresh,
                "bot_id": BOT,
                "workspace_icon": None,
                "workspace_name": "Acme",
                "workspace_id": WORKSPACE,
                "owner": {"type": "user", "user": person},
                "duplicated_template_id": None,
                "request_id": self.new_id(),
            },
        )

    def _revoke(self, request: Request, body: Json) -> Reply:
        if not self._is_client(request):
            return Reply(401, {"error": "invalid_client"})
        token = body.get("token", "")
        if token not in self.tokens:
            return Reply(400, {"error": "invalid_grant"})
        self.tokens.discard(token)
        self.refreshing = {k: v for k, v in self.refreshing.items() if v != token}
        return Reply(200, {"request_id": self.new_id()})

    def _is_client(self, request: Request) -> bool:
        given = request.headers.get("authorization", "")
        plain = ":".join(self.client)
        # As in RFC 6749 2.3.1, or without its encoding, as Notion's own client does it.
        encoded = urlencode({"": self.client[0]})[1:] + ":" + urlencode({"": self.client[1]})[1:]
        return given in {
            "Basic " + base64.b64encode(each.encode()).decode() for each in (plain, encoded)
        }

    # --- small things ---

    def new_id(self) -> str:
        return str(uuid.UUID(int=self._ids.getrandbits(128), version=4))

    @staticmethod
    def minute(time: datetime) -> datetime:
        return time.replace(second=0, microsecond=0)

    @staticmethod
    def stamp(time: datetime) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%S.000Z")

    def _adopt(self, page: Page, blocks: Iterable[Block]) -> None:
        for block in _all(blocks):
            block.id = block.id or self.new_id()
            self.blocks[block.id.replace("-", "")] = (block, page)

    def _stand_in(self, thing: Thing, parent: Page | None, inside: Block | None) -> None:
        if parent is None:
            return
        kind = "child_page" if isinstance(thing, Page) else "child_database"
        block = Block(kind, {"title": thing.title}, id=thing.id)
        (parent.blocks if inside is None else inside.children).append(block)
        self.touch(parent)

    def _leave(self, thing: Thing) -> None:
        if not isinstance(thing.parent, Page):
            return
        for holder in [thing.parent, *_all(thing.parent.blocks)]:
            held = holder.blocks if isinstance(holder, Page) else holder.children
            held[:] = [block for block in held if block.id != thing.id]
        self.touch(thing.parent)

    def _places(self, thing: Thing) -> list[tuple[Block, Page]]:
        if not isinstance(thing.parent, Page):
            return []
        return [
            (block, thing.parent) for block in _all(thing.parent.blocks) if block.id == thing.id
        ]

    def _touch_with_place(self, thing: Thing) -> None:
        self.touch(thing)
        for _, page in self._places(thing):
            self.touch(page)

    def _says(self, blocks: Iterable[Block]) -> bool:
        quiet = {"column_list", "column", "synced_block", "divider", "breadcrumb"}
        return any(
            bool(block.plain.strip()) if "rich_text" in block.data else block.kind not in quiet
            for block in _all(blocks)
            if self._stands(block)
        )

    def _holder(self, thing: Thing) -> Block | None:
        """The block that a page stands in, if it does not stand in a page itself."""
        assert isinstance(thing.parent, Page)
        for block in _all(thing.parent.blocks):
            if any(child.id == thing.id for child in block.children):
                return block
        return None


def sign(body: bytes, token: str) -> str:
    return "sha256=" + hmac.new(token.encode(), body, hashlib.sha256).hexdigest()


def _all(blocks: Iterable[Block]) -> Iterator[Block]:
    for block in blocks:
        yield block
        yield from _all(block.children)


def _kind(thing: Thing) -> str:
    return "page" if isinstance(thing, Page) else "data_source"


def _escaped(parts: Sequence[Json]) -> str:
    return "".join(re.sub(r"([\\*~`$\[\]<>{}|^])", r"\\\1", part["plain_text"]) for part in parts)


def _raw(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
    """An answer of any status, those among them that HTTP libraries have no word for."""
    fields = {"Content-Length": str(len(body)), **(headers or {})}
    head = f"HTTP/1.1 {status} Status\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return head.encode() + b"\r\n" + body


def _error(status: int, code: str, message: str = "no") -> Reply:
    told = {"object": "error", "status": status, "code": code, "message": message}
    return Reply(status, {**told, "request_id": "0c2bb3a5-8b5a-4ff5-a28a-4f6d9c6d3c11"})


NOT_FOUND = _error(404, "object_not_found", "Make sure it is shared with your integration.")
