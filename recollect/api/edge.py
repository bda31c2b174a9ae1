"""The outermost layer: request id, key, rate limit, one log line, body limit, raw paths.

It stands before the body is read, so that nobody without a key makes us read one.
"""

import asyncio
import hashlib
import math
import re
import secrets
import time
from collections import OrderedDict
from datetime import timedelta
from ipaddress import IPv6Address, IPv6Network, ip_address
from threading import Lock
from urllib.parse import quote, urlsplit

import structlog
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recollect import audit, log, orgs
from recollect.api import errors, metrics
from recollect.app import App
from recollect.audit import Actor
from recollect.errors import (
    AuthenticationError,
    BadRequestError,
    RateLimitError,
    RequestError,
    Unavailable,
)
from recollect.model import Key
from recollect.orgs import Limit, Usage

LOG = log.get("api")
BODY_LIMIT = 80 * 1024 * 1024
"""Largest request body in bytes; single fields have tighter limits of their own."""
OPEN = frozenset(
    {"/", "/console", "/health", "/ready", "/docs", "/docs/oauth2-redirect", "/v3/openapi"}
)
"""Paths without a key; every other path, known or not, asks for one."""
OUTSIDE = ("/v3/hooks/", "/v3/connections/auth/callback/")
OPEN_BELOW = ("/v3/files/", "/console/", *OUTSIDE)
"""Beginnings of such paths: signed addresses, the console, which has sessions of its own, pushes,
which prove themselves, and users who come back from authorizing with a state."""
CALLBACK = re.compile(r"/v3/connections/[a-z0-9-]+/callback")
"""Another spelling of the callback's path."""
ALIASES = {"/v3/memories": "/v3/documents"}
"""Older names of paths, which older clients use."""
LONGEST_RETRY = 60
"""Clients obey a Retry-After of at most so many seconds."""


STALL = timedelta(seconds=30)
"""How long a body may bring nothing before we stop to wait for the rest."""
GUESSES = Limit(20)
"""Wrong keys from one address."""
PUSHES = Limit(3_000)
"""Pushes, and users who come back, from one address; providers push in bursts."""
REMEMBERED = 10_000
"""Addresses, and keys that opened something, per process."""


class Guesses:
    """Wrong keys by address, in this process.

    An address that tried too many has to wait, but for keys that opened something before: others
    may come from the same address.
    """

    def __init__(self) -> None:
        self._wrong = OrderedDict[str, tuple[float, int]]()
        self._good = OrderedDict[bytes, None]()
        self._lock = Lock()

    def judge(self, address: str | None, secret: str) -> None:
        """Raises RateLimitError."""
        window = GUESSES.window.total_seconds()
        with self._lock:
            since, tried = self._wrong.get(address or "", (0.0, 0))
            rest = since + window - time.monotonic()
            if tried >= GUESSES.requests and rest > 0 and _digest(secret) not in self._good:
                wait = timedelta(seconds=min(math.ceil(rest), LONGEST_RETRY))
                raise RateLimitError("Too many requests", wait)

    def wrong(self, address: str | None) -> None:
        if address is None:
            return
        now = time.monotonic()
        with self._lock:
            since, tried = self._wrong.pop(address, (now, 0))
            if since + GUESSES.window.total_seconds() <= now:
                since, tried = now, 0
            self._wrong[address] = (since, tried + 1)
            if len(self._wrong) > REMEMBERED:
                self._wrong.popitem(last=False)

    def right(self, secret: str) -> None:
        with self._lock:
            self._good[_digest(secret)] = None
            self._good.move_to_end(_digest(secret))
            if len(self._good) > REMEMBERED:
                self._good.popitem(last=False)


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

    def __init__(
        self, inner: ASGIApp, app: App, limit: Limit | None, requests: metrics.Requests
    ) -> None:
        self._inner = inner
        self._app = app
        self._limit = limit
        self._requests = requests
        self._guesses = Guesses()
        self._visits = Visits(PUSHES)
        # Percent-encoded, as paths come in.
        self._prefix = quote(urlsplit(app.config.public_url or "").path.rstrip("/"), safe="/%")

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
        scope.setdefault("state", {})["marks"] = marks

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                added = [(name.encode(), value.encode()) for name, value in marks.items()]
                message = {**message, "headers": [*message.get("headers", []), *added]}
            await send(message)

        try:
            await self._answer(path, scope, receive, answer)
        except asyncio.CancelledError:
            # This process ends and has waited for its requests; what becomes of this, nobody knows.
            if status is not None:
                raise
            error = Unavailable("this process ends")
            await errors.unavailable(Request(scope), error)(scope, receive, answer)
        except Exception:
            LOG.exception("bug", method=scope["method"])
            if status is not None:
                raise
            await errors.bug()(scope, receive, answer)
        finally:
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

    async def _answer(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if path.startswith(OUTSIDE) or CALLBACK.fullmatch(path):
                self._visits.count(address_of(scope.get("client")))
            headers = Headers(scope=scope)
            scrapes = path == metrics.PATH and metrics.opens(self._app, headers)
            if not scrapes and not is_open(path, scope["method"]):
                key, usage = await run_in_threadpool(self._authenticate, headers, scope)
                scope["state"]["key"] = key
                structlog.contextvars.bind_contextvars(org=key.org.id, key=key.id)
                audit.act_as(key.id, key.org.id)
                if usage is not None:
                    scope["state"]["marks"].update(_told(usage))
                    _judge(usage)
        except RequestError as error:
            await errors.request_error(Request(scope), error)(scope, receive, send)
        except Unavailable as error:
            await errors.unavailable(Request(scope), error)(scope, receive, send)
        else:
            await self._inner(scope, limited(receive, scope["state"]["marks"]), send)

    def _authenticate(self, headers: Headers, scope: Scope) -> tuple[Key, Usage | None]:
        """The key behind a request, and what it has used if it is limited."""
        address = address_of(scope.get("client"))
        scheme, _, secret = headers.get("authorization", "").partition(" ")
        secret = secret.strip()
        if scheme.lower() != "bearer" or not secret:
            raise AuthenticationError("send the header Authorization: Bearer KEY")
        self._guesses.judge(address, secret)
        try:
            found = self._found(secret)
        except AuthenticationError:
            self._guesses.wrong(address)
            with self._app.db.begin() as tx:
                orgs.note_wrong(tx, secret)
            raise
        self._guesses.right(secret)
        return found

    def _found(self, secret: str) -> tuple[Key, Usage | None]:
        if not orgs.well_formed(secret):
            raise AuthenticationError
        with self._app.db.begin() as tx:
            key = orgs.authenticate(tx, secret)
            # Only keys that are limited to tags may have a limit of their own.
            limited = self._limit is not None or key.tags is not None
            return key, orgs.charge(tx, key.id, self._limit) if limited else None


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


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


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


def limited(receive: Receive, marks: dict[str, str]) -> Receive:
    """Counts the body as it comes in; what its header claims proves nothing.

    One that stalls ends the request and the connection, told by `marks`, the answer's headers.
    """
    taken = 0
    more = True

    async def counted() -> Message:
        nonlocal taken, more
        try:
            # After the body comes only the end of the connection, for which one may wait long.
            async with asyncio.timeout(STALL.total_seconds() if more else None):
                message = await receive()
        except TimeoutError as error:
            marks["connection"] = "close"
            raise BadRequestError(
                f"the body brought nothing for {STALL.total_seconds():g} seconds"
            ) from error
        if message["type"] == "http.request":
            more = message.get("more_body", False)
            taken += len(message.get("body", b""))
            if taken > BODY_LIMIT:
                raise BadRequestError(f"the body is larger than {BODY_LIMIT:,} bytes")
        return message

    return counted
