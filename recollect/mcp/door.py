"""`/mcp` of the API: who may come in, and the SDK's server behind it."""

import asyncio
import json
from contextvars import Context
from importlib import import_module
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recollect.config import host_of, is_this_machine
from recollect.errors import BadRequestError, StrangerError
from recollect.mcp.inside import Inside
from recollect.mcp.seam import Session, whole

if TYPE_CHECKING:
    from recollect.mcp.server import Http

TAG_HEADER = "x-recollect-tag"
"""Container tag that is meant when a tool is called without one; percent-encoded or plain."""


class Door:
    """ASGI application at `/mcp`, behind the edge, which has checked the key.

    MCP asks servers to check `Origin`, against pages that reach a service on the reader's own
    machine or network under a name of their own (DNS rebinding). The edge has checked `Host`.
    """

    def __init__(self, service: ASGIApp, *, public_url: str | None) -> None:
        """`service` answers what the tools ask. `public_url` is where others reach it."""
        self._service = service
        self._public = urlsplit(public_url) if public_url else None
        self._http: Http | None = None
        self._opening = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        self._check_origin(headers.get("origin"))
        if scope["method"] != "POST":
            # Nothing is ever told unasked and there are no sessions to end, so nothing but POST.
            raise HTTPException(405, headers={"Allow": "POST"})
        # The edge has taken the one or the other.
        sent = headers.get("authorization") or f"Bearer {headers.get('x-api-key', '')}"
        scope["state"]["mcp"] = Session(
            Inside(self._service, sent, scope.get("client")),
            unquote(headers.get(TAG_HEADER, "")).strip() or None,
        )
        http = await self._opened()
        if "accept" not in headers:  # RFC 9110, 12.5.1: any answer will do
            scope["headers"] = [*scope["headers"], (b"accept", b"*/*")]
        # Of a body that breaks off or is refused the SDK would make an error of its own.
        body = whole(await Request(scope, receive).body())
        _check_message(body)
        await http(scope, _after(body, receive), send)

    async def _opened(self) -> "Http":
        async with self._opening:
            if self._http is None:
                server = await run_in_threadpool(import_module, "recollect.mcp.server")
                http: Http = server.Http()
                # In a context of its own: what the first caller's log lines say is not for all.
                self._life = asyncio.create_task(http.live(), context=Context())
                await http.alive.wait()
                self._http = http
            return self._http

    def _check_origin(self, origin: str | None) -> None:
        """Browsers send one with every POST; other programs send none."""
        if origin is None or is_this_machine(host_of(origin)):
            return
        public = self._public
        if public is not None and origin == f"{public.scheme}://{public.netloc}":
            return
        raise StrangerError("Origin", origin)


def _check_message(body: bytes) -> None:
    """The SDK would answer with how it tried to parse the body."""
    try:
        message: object = json.loads(body)
    except (ValueError, RecursionError):
        return  # it says where
    match message:
        case {"jsonrpc": "2.0", "params": list() | str() | int() | float()}:
            raise BadRequestError("params: must be an object")
        case {"jsonrpc": "2.0", "method": str()}:
            return
        case {"jsonrpc": "2.0", "id": str() | int(), "result": dict()} | {
            "jsonrpc": "2.0",
            "error": dict(),
        }:
            return
        case {"jsonrpc": "2.0"}:
            raise BadRequestError("method: must name a method, as tools/call")
        case dict():
            raise BadRequestError('jsonrpc: must be "2.0"')
        case _:
            raise BadRequestError("the body must be one JSON-RPC message, an object; not a batch")


def _after(body: bytes, receive: Receive) -> Receive:
    """`receive` for anyone who has not read the body, which was read before."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again
