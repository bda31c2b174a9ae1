"""The outermost layer: request id, key, rate limit, one log line, body limit, raw paths.

It stands before the body is read, so that nobody without a key makes us read one.
"""

import asyncio
import math
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterator
from datetime import timedelta
from ipaddress import IPv6Address, IPv6Network, ip_address
from threading import Lock
from urllib.parse import quote, urlsplit

import structlog
from anyio import CapacityLimiter, to_thread
from starlette.datastructures import Headers, State
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recollect import log
from recollect.api import errors, metrics
from recollect.api.bodies import Body, BodyMemory
from recollect.app import App
from recollect.config import host_of, is_this_machine
from recollect.errors import (
    AuthenticationError,
    BadRequestError,
    RateLimitError,
    RequestError,
    StrangerError,
    Unavailable,
)
from recollect.mcp.inside import INSIDE
from recollect.model import Key
from recollect.orgs import assistants, audit, orgs
from recollect.orgs.audit import Actor
from recollect.orgs.orgs import Limit, Usage

LOG = log.get("api")
OPEN = frozenset({"/", "/console", "/health", "/ready", "/docs", "/v3/openapi"})
"""Paths without a key; every other path, known or not, asks for one."""
BACK = "/v3/connections/auth/callback/"
OPEN_BELOW = ("/v3/files/", "/console/", "/oauth/", "/.well-known/oauth-", "/v3/hooks/", BACK)
"""Beginnings of such paths: signed addresses, the console, which has sessions of its own, pushes,
which prove themselves, and users who come back from authorizing with a state."""
CALLBACK = re.compile(r"/v3/connections/[a-z0-9-]+/callback")
"""Another spelling of the callback's path."""
ALIASES = {
    "/v3/memories": "/v3/documents",
    "/openapi.json": "/v3/openapi",
    "/favicon.ico": "/console/static/icon.svg",
    "/mcp/": "/mcp",
}
"""Older names of paths, which older clients use, and those at which others look or which people
type."""
LONGEST_RETRY = 60
"""The longest Retry-After that clients obey, in seconds."""
ANY_HOST = frozenset({"/health", "/ready"})
"""Paths that are answered under any name: they show nothing of what is stored."""
GUESSES = Limit(20)
"""Wrong keys from one address."""
PUSHES = Limit(3_000)
"""Pushes that nothing proves, and users who come back, from one address. A provider's own are not
counted: others may push from its addresses, or through the proxy that all pushes come by."""
PIECE = 64 * 1024
"""Bytes of an answer that are handed to the connection at once. It gets the next ones when these
are read: what nobody reads does not pile up there, and an answer counts until it is read."""
PROVING = 8
"""Threads in which pushes are judged, so that forged ones do not take those of requests."""
REMEMBERED = 10_000
"""Addresses per process."""


class Guesses:
    """Wrong keys by address, in this process: one that tried too many has to wait.

    It is asked only when a key was wrong. A right one is never kept waiting, since others may come
    from the same address.
    """

    def __init__(self) -> None:
        self._visits = Visits(GUESSES)

    def wrong(self, address: str | None) -> None:
        """Raises RateLimitError. `address` None: this machine, which does not wait."""
        if address is not None:
            self._visits.count(address)


class Visits:
    """Requests without a key by address, in this process; no more than the limit in a window."""

    def __init__(self, limit: Limit) -> None:
        self._limit = limit
        self._seen = OrderedDict[str, tuple[float, int]]()
        self._lock = Lock()

    def count(self, address: str | None) -> None:
        """Raises RateLimitError."""
        now, window = time.monotonic(), self._limit.window.total_seconds()
        with self._lock:
            since, came = self._seen.pop(address or "", (now, 0))
            if since + window <= now:
                since, came = now, 0
            self._seen[address or ""] = (since, came + 1)
            if len(self._seen) > REMEMBERED:
                self._seen.popitem(last=False)
        if came >= self._limit.requests:
            rest = math.ceil(since + window - now)
            raise RateLimitError("Too many requests", timedelta(seconds=min(rest, LONGEST_RETRY)))


class Edge:
    """ASGI middleware around everything."""

    def __init__(self, inner: ASGIApp, app: App, limit: Limit | None, state: State) -> None:
        self._inner = inner
        self._app = app
        self._limit = limit
        self._requests: metrics.Requests = state.requests
        self._guesses: Guesses = state.guesses
        self._checks: CapacityLimiter = state.checks
        self._visits = Visits(PUSHES)
        self._proving = CapacityLimiter(PROVING)
        self._ledger = BodyMemory()
        public = urlsplit(app.config.public_url or "")
        self._public_host = public.hostname
        self._only_here = is_this_machine(app.config.host)
        # Percent-encoded, as paths come in.
        self._prefix = quote(public.path.rstrip("/"), safe="/%")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        # Matched as it was sent: a customId with an encoded slash stays one segment.
        path = _path(scope["raw_path"], self._prefix)
        scope["root_path"] = self._prefix
        scope["path"] = self._prefix + path
        request_id = secrets.token_hex(8)
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request=request_id)
        client = scope.get("client")
        audit.act(Actor("nobody", address=client[0] if client else None, request=request_id))
        started = time.monotonic()
        status: int | None = None
        marks = {"x-request-id": request_id, "x-content-type-options": "nosniff"}
        scope.setdefault("state", {}).update(
            marks=marks, address=self._address(scope), visits=self._visits, proving=self._proving
        )
        body = Body(self._ledger, scope, path, marks)

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = message.get("headers", [])
                added = [(name.encode(), value.encode()) for name, value in marks.items()]
                if "key" in scope["state"] and b"cache-control" not in dict(own):
                    added.append((b"cache-control", b"no-store"))
                message = {**message, "headers": [*own, *added]}
            for piece in _pieces(message):
                await send(piece)

        try:
            await self._answer(path, scope, body, receive, answer)
        except ClientDisconnect:
            pass  # who asked is gone; the line below says so by having no status
        except asyncio.CancelledError:
            # This process ends and has waited for its requests; what becomes of this, nobody knows.
            if status is not None:
                raise
            error = Unavailable("this process is shutting down; try again")
            await errors.unavailable(Request(scope), error)(scope, receive, answer)
        except Exception:
            LOG.exception("bug", method=scope["method"])
            if status is not None:
                raise
            await errors.bug(Request(scope))(scope, receive, answer)
        finally:
            body.close()
            route = getattr(scope.get("route"), "path", None)
            took = time.monotonic() - started
            self._requests.count(scope["method"], route, status, took)
            LOG.info(
                "request",
                method=scope["method"],
                route=route,
                status=status,
                ms=round(took * 1000, 1),
            )

    async def _answer(
        self, path: str, scope: Scope, body: Body, receive: Receive, send: Send
    ) -> None:
        headers = Headers(scope=scope)
        try:
            if self._only_here and path not in ANY_HOST and self._is_foreign(headers):
                raise StrangerError("Host", headers.get("host", ""))
            if b"%00" in scope["query_string"]:
                raise BadRequestError(
                    "a query must not contain NUL, which the database cannot hold"
                )
            if path.startswith(BACK) or CALLBACK.fullmatch(path):
                self._visits.count(scope["state"]["address"])
            scrapes = path == metrics.PATH and metrics.opens(self._app, headers)
            if not scrapes and not is_open(path, scope["method"]):
                key, usage = await to_thread.run_sync(
                    self._authenticate,
                    headers,
                    scope["state"]["address"],
                    path == "/mcp" or INSIDE in scope,
                    limiter=self._checks,
                )
                scope["state"]["key"] = key
                structlog.contextvars.bind_contextvars(org=key.org.id, key=key.id)
                audit.act_as(key.id, key.org.id)
                if usage is not None:
                    scope["state"]["marks"].update(_told(usage))
                    _judge(usage)
            body.check()
        except RequestError as error:
            await errors.request_error(Request(scope), error)(scope, receive, send)
        except Unavailable as error:
            await errors.unavailable(Request(scope), error)(scope, receive, send)
        else:
            await self._inner(scope, body.counted(receive), send)

    def _address(self, scope: Scope) -> str | None:
        """As `address_of`. What comes from this machine under a foreign name was sent by a page
        that gave us a name of its own, so it is not this machine that asks."""
        address = address_of(scope.get("client"))
        if address is None and self._is_foreign(Headers(scope=scope)):
            return "a foreign name"
        return address

    def _is_foreign(self, headers: Headers) -> bool:
        """Whether we are asked under a name that is neither this machine's nor the public one."""
        name = host_of(f"//{headers.get('host', '')}")
        return not is_this_machine(name) and (name is None or name != self._public_host)

    def _authenticate(
        self, headers: Headers, address: str | None, for_assistants: bool
    ) -> tuple[Key, Usage | None]:
        """The key behind a request, and what it has used if it is limited."""
        scheme, _, secret = headers.get("authorization", "").partition(" ")
        if "authorization" not in headers:  # as the published command line tool does
            scheme, secret = "bearer", headers.get("x-api-key", "")
        secret = secret.strip()
        if scheme.lower() != "bearer" or not secret:
            raise AuthenticationError(
                "send the header Authorization: Bearer KEY, or x-api-key: KEY"
            )
        try:
            return self._found(secret, for_assistants)
        except AuthenticationError:
            self._guesses.wrong(address)
            with self._app.db.ahead() as tx:
                orgs.note_wrong(tx, secret)
            raise

    def _found(self, secret: str, for_assistants: bool) -> tuple[Key, Usage | None]:
        if not orgs.well_formed(secret):
            raise AuthenticationError
        with self._app.db.glance() as tx:
            # A token of an assistant opens /mcp, and what the tools there ask for, alone.
            is_token = for_assistants and secret.startswith(assistants.PREFIX)
            key = (assistants if is_token else orgs).authenticate(tx, secret)
        if self._limit is None and key.rate_limit is None:
            return key, None
        with self._app.db.ahead() as tx:
            return key, orgs.charge(tx, key.id, self._limit)


def _pieces(message: Message) -> Iterator[Message]:
    body = message.get("body", b"")
    last = max(len(body) - 1, 0) // PIECE * PIECE
    for start in range(0, last, PIECE):
        yield {**message, "body": body[start : start + PIECE], "more_body": True}
    yield {**message, "body": body[last:]} if last else message


def is_open(path: str, method: str) -> bool:
    """Whether a request needs no key."""
    return (
        path in OPEN
        or path.startswith(OPEN_BELOW)
        or (method == "GET" and CALLBACK.fullmatch(path) is not None)
    )


def _path(raw: bytes, prefix: str) -> str:
    """The path as it was sent, under today's name.

    `prefix` is the path of our public address. A proxy in front may have taken it off or not.
    """
    path = raw.split(b"?", 1)[0].decode("ascii", "replace")
    if path == prefix or path.startswith(f"{prefix}/"):
        path = path.removeprefix(prefix) or "/"
    for old, new in ALIASES.items():
        if path == old or path.startswith(f"{old}/"):
            return new + path.removeprefix(old)
    return path


def _told(usage: Usage) -> dict[str, str]:
    """draft-ietf-httpapi-ratelimit-headers: the policy, and what is left of it."""
    window = max(1, round(usage.limit.window.total_seconds()))
    left = max(0, usage.limit.requests - usage.used)
    return {
        "ratelimit-policy": f'"default";q={usage.limit.requests};w={window}',
        "ratelimit": f'"default";r={left};t={_seconds(usage)}',
    }


def _judge(usage: Usage) -> None:
    if usage.used > usage.limit.requests:
        wait = timedelta(seconds=min(_seconds(usage), LONGEST_RETRY))
        raise RateLimitError("Too many requests", wait)


def _seconds(usage: Usage) -> int:
    return max(1, math.ceil(usage.rest.total_seconds()))


def address_of(client: tuple[str, int] | None) -> str | None:
    """Who asks: an IPv4 address, or the /64 of an IPv6 one, which one household has to itself.

    None for this machine: that is a proxy that does not say for whom it asks, or an administrator.
    """
    try:
        address = ip_address(client[0] if client else "")
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped  # as a socket for both families tells it
    if address.is_loopback:
        return None
    if address.version == 6:
        return str(IPv6Network((address, 64), strict=False))
    return str(address)
