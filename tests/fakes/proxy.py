"""A reverse proxy on loopback that gives a friendly peer bad days, and remembers every request.

    with Proxy(peer.url) as proxy:
        proxy.on("GET /user/repos", after=1, status=429, headers={"Retry-After": "2"})
        proxy.on("POST .*/token", lose=True)      # it arrives, the answer does not
        proxy.strict = True                       # bearers that were never issued get 401
        proxy.expire()                            # so do those issued so far
        ...
        assert proxy.asked("^GET /user$") == 2

Patterns are searched in "METHOD /path?query". Nothing here waits for a time: a delay ends by an
event, and whoever wants to see something happen waits for it (`wait_for`, `Rule.hit`).
"""

import json
import re
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

ISSUING = re.compile(r"^POST [^?]*/(token|access_token)(\?|$)")
HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "te", "upgrade"})
PATIENCE = 60.0
"""seconds after which something that does not happen is a failure"""


@dataclass(eq=False)
class Seen:
    """A request as it came, and how it was answered; `status` None: not at all (yet)."""

    method: str
    path: str
    """with the query"""
    headers: Mapping[str, str]
    """names in lower case"""
    body: bytes
    status: int | None = None

    @property
    def line(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True)
class Reply:
    status: int
    headers: list[tuple[str, str]]
    body: bytes


@dataclass(eq=False)
class Rule:
    """What to do to some requests instead of passing them on; several parts may be combined.

    Made by `Proxy.on`.
    """

    match: re.Pattern[str]
    after: int = 0
    """matches that are let through first"""
    times: int | None = 1
    """how often it serves; None: forever"""
    do: Callable[[], None] | None = None
    """called first"""
    hold: threading.Event | None = None
    """the request waits for it before it is passed on or answered"""
    reset: bool = False
    """the connection is reset; the peer hears nothing of the request"""
    lose: bool = False
    """the peer acts on the request; then the connection is reset"""
    status: int | None = None
    """answered here with it, `headers` and `body`; the peer hears nothing of the request"""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes | None = None
    """None: an error in JSON"""
    alter: Callable[[bytes], bytes] | None = None
    """changes the body of the answer"""
    cut: int | None = None
    """the answer ends after so many bytes of its body, short of what it promised"""
    dribble: tuple[int, float] | None = None
    """the body comes in so many pieces, with so many seconds between them"""
    hit: threading.Event = field(default_factory=threading.Event)
    """set once it has served"""


class Proxy:
    """See the module; attributes may be changed at any time, by any thread."""

    def __init__(self, upstream: str = "") -> None:
        self.upstream = upstream
        """base URL of the peer"""
        self.strict = False
        """whether bearers must have been issued through this proxy, or admitted"""
        self.refusal: bytes = json.dumps(
            {"error": {"code": 401, "status": "UNAUTHENTICATED", "message": "no such token"}}
        ).encode()
        """body of the 401 that a bad bearer gets"""
        self.closing = threading.Event()
        self.connections: set[socket.socket] = set()
        self._log: list[Seen] = []
        self._rules: list[Rule] = []
        self._alive: set[str] = set()
        self._refreshing: set[str] = set()
        """refresh tokens that were issued"""
        self._revoked: set[str] = set()
        self._news = threading.Condition()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.proxy = self
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        for connection in list(self.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    # --- faults --------------------------------------------------------------------------------

    def on(
        self,
        match: str,
        *,
        json_body: object = None,
        **parts: Any,
    ) -> Rule:
        """Do something to the next matching request; `parts` are those of `Rule`.

        Of several rules that match, the one that was made first serves.
        """
        if json_body is not None:
            parts["body"] = json.dumps(json_body).encode()
        rule = Rule(re.compile(match), **parts)
        with self._news:
            self._rules.append(rule)
        return rule

    def behave(self) -> None:
        """No rules any more; tokens stay as they are."""
        with self._news:
            self._rules.clear()

    def admit(self, *bearers: str) -> None:
        """Let strictness know these, too: seeded ones."""
        with self._news:
            self._alive.update(bearers)

    def expire(self, *bearers: str) -> None:
        """These access tokens, or all that are known, are dead; their refresh tokens live."""
        with self._news:
            self._alive.difference_update(bearers or set(self._alive))

    def revoke(self) -> None:
        """The user takes the authorization back: all tokens issued so far are dead, both kinds."""
        with self._news:
            self._alive.clear()
            self._revoked |= self._refreshing

    # --- what happened -------------------------------------------------------------------------

    @property
    def log(self) -> list[Seen]:
        """All requests so far, in the order in which they came."""
        with self._news:
            return list(self._log)

    def seen(self, match: str) -> list[Seen]:
        return [seen for seen in self.log if re.search(match, seen.line)]

    def asked(self, match: str) -> int:
        """How many requests matched."""
        return len(self.seen(match))

    def forget(self) -> None:
        """Start the log again."""
        with self._news:
            self._log.clear()

    def wait_for(self, match: str, times: int = 1) -> list[Seen]:
        """Until so many matching requests have come since the start of the log."""
        with self._news:
            came = self._news.wait_for(
                lambda: sum(bool(re.search(match, s.line)) for s in self._log) >= times, PATIENCE
            )
        assert came, f"{self.asked(match)} requests like {match!r}, not {times}"
        return self.seen(match)

    # --- for the handler -----------------------------------------------------------------------

    def arrive(self, seen: Seen) -> Rule | None:
        with self._news:
            self._log.append(seen)
            self._news.notify_all()
            for rule in self._rules:
                if rule.times == 0 or not rule.match.search(seen.line):
                    continue
                if rule.after > 0:
                    rule.after -= 1
                    continue
                if rule.times is not None:
                    rule.times -= 1
                return rule
        return None

    def refuses(self, seen: Seen) -> Reply | None:
        """What a dead or unknown token gets."""
        mime = [("Content-Type", "application/json")]
        kind, _, bearer = seen.headers.get("authorization", "").partition(" ")
        issuing = ISSUING.search(seen.line)
        with self._news:
            if issuing and _fields(seen.body).get("refresh_token") in self._revoked:
                return Reply(400, mime, b'{"error": "invalid_grant"}')
            presents = kind.lower() in ("bearer", "token") and not issuing
            if self.strict and presents and bearer.strip() not in self._alive:
                return Reply(401, mime, self.refusal)
        return None

    def learn(self, seen: Seen, reply: Reply) -> None:
        """The tokens that an answer issues."""
        if reply.status != 200 or not ISSUING.search(seen.line):
            return
        issued = _fields(reply.body)
        with self._news:
            if access := issued.get("access_token"):
                self._alive.add(access)
            if refresh := issued.get("refresh_token"):
                self._refreshing.add(refresh)

    def pass_on(self, seen: Seen) -> Reply:
        """What the peer answers; Host stays as it came, because signatures cover it."""
        target = urlsplit(self.upstream)
        connection = HTTPConnection(target.hostname or "", target.port, timeout=PATIENCE)
        try:
            path = target.path.rstrip("/") + seen.path
            connection.putrequest(seen.method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in seen.headers.items():
                if name not in HOP_BY_HOP | {"content-length", "accept-encoding"}:
                    connection.putheader(name, value.encode("latin-1"))
            if seen.body or seen.method in ("POST", "PUT", "PATCH"):
                connection.putheader("content-length", str(len(seen.body)))
            connection.endheaders(seen.body)
            answer = connection.getresponse()
            return Reply(answer.status, answer.getheaders(), answer.read())
        finally:
            connection.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    proxy: Proxy

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # clients that go away are part of the game


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    """head and body leave together; apart, the second waits for the first's acknowledgement"""

    def setup(self) -> None:
        super().setup()
        assert isinstance(self.server, _Server)
        self.proxy = self.server.proxy
        self.proxy.connections.add(self.connection)

    def finish(self) -> None:
        self.proxy.connections.discard(self.connection)
        with suppress(OSError):
            super().finish()

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do(self) -> None:
        proxy = self.proxy
        headers = {name.lower(): value for name, value in self.headers.items()}
        seen = Seen(self.command, self.path, headers, self._body())
        rule = proxy.arrive(seen) or Rule(re.compile(""))
        if rule.do is not None:
            rule.do()
        rule.hit.set()
        if rule.hold is not None and not self._held(rule.hold):
            return self._reset()
        if rule.reset:
            return self._reset()
        try:
            reply = self._reply(seen, rule)
        except (OSError, HTTPException):
            return self._reset()  # the peer is gone
        if rule.alter is not None:
            reply = Reply(reply.status, reply.headers, rule.alter(reply.body))
        proxy.learn(seen, reply)
        if rule.lose:
            return self._reset()
        seen.status = reply.status
        return self._send(reply, rule)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do

    def _reply(self, seen: Seen, rule: Rule) -> Reply:
        if (refusal := self.proxy.refuses(seen)) is not None:
            return refusal
        if rule.status is None:
            return self.proxy.pass_on(seen)
        body = rule.body
        if body is None:
            body = json.dumps({"error": {"code": rule.status, "message": "on purpose"}}).encode()
        headers = {"Content-Type": "application/json", **rule.headers}
        return Reply(rule.status, list(headers.items()), body)

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("transfer-encoding", ""):
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        body = b""
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _held(self, event: threading.Event) -> bool:
        """Whether the event came, rather than the end of the proxy."""
        closing = self.proxy.closing
        while not closing.is_set():
            if event.wait(0.05):
                return True
        return False

    def _send(self, reply: Reply, rule: Rule) -> None:
        self.send_response_only(reply.status)
        for name, value in reply.headers:
            if name.lower() not in HOP_BY_HOP | {"content-length"}:
                self.send_header(name, value)
        length = str(len(reply.body))
        if self.command == "HEAD":
            length = next((v for n, v in reply.headers if n.lower() == "content-length"), length)
        if reply.status not in (204, 304):
            self.send_header("Content-Length", length)
        self.end_headers()
        if self.command == "HEAD" or reply.status in (204, 304):
            return
        body = reply.body if rule.cut is None else reply.body[: rule.cut]
        pieces, seconds = rule.dribble or (1, 0.0)
        step = max(1, -(-len(body) // pieces))
        for start in range(0, len(body), step):
            self.wfile.write(body[start : start + step])
            if rule.dribble is not None:
                self.wfile.flush()
            if self.proxy.closing.wait(seconds if start + step < len(body) else 0):
                break
        if rule.cut is not None:
            self.close_connection = True

    def _reset(self) -> None:
        self.close_connection = True
        lingering = struct.pack("ii", 1, 0)  # on, for no time: closing sends RST
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, lingering)
        # The streams hold the socket open, too.
        self.rfile.close()
        self.connection.close()


def _fields(body: bytes) -> dict[str, str]:
    """Of JSON or of a form, whichever it is."""
    try:
        found: Any = json.loads(body)
    except ValueError:
        return dict(parse_qsl(body.decode("latin-1")))
    items = found.items() if isinstance(found, dict) else ()
    return {name: value for name, value in items if isinstance(value, str)}
