"""The API called from inside its own process: the same doors, without a socket."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast
from urllib.parse import unquote

from starlette.types import ASGIApp, Message, Scope

from recollect.errors import RequestError, Transient

INSIDE = "recollect.inside"
"""Entry of the scope of a call from inside; no request from outside can set one."""
LONGEST = timedelta(seconds=75)
"""of a call; the longest that one may ask to wait is a minute"""


@dataclass(frozen=True, slots=True)
class Inside:
    """An `Api` (see `seam`) on the application itself.

    Each call passes the edge as any other request does, with the `Authorization` of the assistant's
    own: key, scope, tags and limits are judged there and nowhere else.
    """

    service: ASGIApp
    authorization: str
    client: tuple[str, int] | None
    """who asked, for limits by address"""

    async def send(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        return cast("dict[str, Any]", await self._ask(method, path, body) or {})

    async def array(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        return cast("list[dict[str, Any]]", await self._ask(method, path, body))

    async def _ask(self, method: str, path: str, body: Mapping[str, Any] | None) -> object:
        exchange = _Exchange(b"" if body is None else _json(body))
        scope = self._scope(method, path)
        try:
            async with asyncio.timeout(LONGEST.total_seconds()):
                # A task of its own has a context of its own: the edge binds the names of log lines
                # there. It is cancelled with us.
                await asyncio.create_task(self._run(scope, exchange))
        except TimeoutError as error:
            raise Transient("the service did not answer in time", code="timeout") from error
        if 200 <= exchange.status < 300:
            return json.loads(exchange.data) if exchange.data else None
        raise _refusal(exchange)

    async def _run(self, scope: Scope, exchange: "_Exchange") -> None:
        with suppress(_Endless):
            await self.service(scope, exchange.receive, exchange.send)

    def _scope(self, method: str, path: str) -> Scope:
        target, _, query = path.partition("?")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(target),
            "raw_path": target.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [
                (b"host", b"localhost"),
                (b"authorization", self.authorization.encode("latin-1")),
                (b"content-type", b"application/json"),
            ],
            "client": self.client,
            "server": ("localhost", None),
            "state": {},
            INSIDE: True,
        }


def _json(body: Mapping[str, Any]) -> bytes:
    """Characters as they are: escaped, many texts are two to three times as long."""
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")


class _Endless(Exception):
    """The answer is a stream that goes on for as long as someone listens."""


class _Exchange:
    """One request's body, and the answer as it comes."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body
        self.status = 500
        self.headers: dict[str, str] = {}
        self.data = b""

    async def receive(self) -> Message:
        if self._body is None:
            await asyncio.Event().wait()  # the caller does not go away
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {k.decode().lower(): v.decode() for k, v in message["headers"]}
            if self.headers.get("content-type", "").startswith("text/event-stream"):
                self.status = 500
                raise _Endless
        elif message["type"] == "http.response.body":
            self.data += message.get("body", b"")


def _refusal(exchange: _Exchange) -> RequestError | Transient:
    """What the service said, as an error that says what happens next."""
    try:
        body = json.loads(exchange.data)
        message, details = str(body["error"]), body.get("details")
    except (ValueError, KeyError, TypeError):
        message, details = f"the service answered {exchange.status}", None
    if exchange.status == 429 or exchange.status >= 500:
        wait = exchange.headers.get("retry-after", "")
        return Transient(
            f"{message}: {details}" if details else message,
            after=timedelta(seconds=int(wait)) if wait.isdecimal() else None,
        )
    error = RequestError(message, details)
    error.status = exchange.status
    return error
