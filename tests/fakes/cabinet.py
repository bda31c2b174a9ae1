"""A provider with authorization, an API and pushes; what it holds is a `Shelf`.

    with Cabinet() as cabinet:
        cabinet.shelf.put("1", "text")
        cabinet.push()                      # to everyone who registered, signed

Its connector is `CabinetConnector`; its addresses go into the settings with `cabinet.settings`.
"""

import hashlib
import hmac
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import quote, unquote

from recollect.config import ProviderSettings
from recollect.connectors.about import Application, Guide
from recollect.connectors.api import Api
from recollect.connectors.base import (
    Account,
    Change,
    Checkpoint,
    Connector,
    Cursor,
    Gone,
    Item,
    Listed,
    Listing,
    Source,
)
from recollect.connectors.oauth import OAuth, Tokens
from recollect.connectors.pushes import FORGED, Push, PushResult, Registration
from recollect.errors import NotFoundError, Permanent
from recollect.model import Blob, Extracted, Remembered
from tests.fakes.authorization import CLIENT_ID, CLIENT_SECRET, AuthorizationServer
from tests.fakes.shelf import Shelf

WEEK = timedelta(days=7)


class Cabinet:
    def __init__(self) -> None:
        self.shelf = Shelf()
        self.authorization = AuthorizationServer(rotates=True)
        self.hooks: dict[str, dict[str, str]] = {}
        self.calls: list[str] = []
        self.refuse_hooks = False
        self.on_subscribe = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )

    def __enter__(self) -> Self:
        self.authorization.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self.authorization.__exit__()

    def settings(self, *, api: str | None = None, token: str | None = None) -> ProviderSettings:
        """With the addresses of proxies in front, if there are any."""
        return ProviderSettings(
            client_id=CLIENT_ID,
            client_secret=CLIENT_SECRET,  # pyright: ignore[reportArgumentType] # pydantic wraps it
            api_url=api or self.url,
            auth_url=f"{self.authorization.url}/authorize",
            token_url=f"{token or self.authorization.url}/token",
            revoke_url=f"{token or self.authorization.url}/revoke",
        )

    def signed(self, hook: str, body: bytes) -> dict[str, str]:
        secret = self.hooks[hook]["secret"]
        mark = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        return {"x-cabinet-signature": mark, "x-cabinet-delivery": hashlib.md5(body).hexdigest()}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        cabinet = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.route()

            def do_POST(self) -> None:
                self.route()

            def do_DELETE(self) -> None:
                self.route()

            def route(self) -> None:
                size = int(self.headers.get("content-length") or 0)
                body = json.loads(self.rfile.read(size)) if size else {}
                cabinet.calls.append(f"{self.command} {self.path}")
                _, _, token = self.headers.get("authorization", "").partition(" ")
                user = cabinet.authorization.user(token)
                if user is None:
                    self.answer(401, {"error": "unauthorized"})
                else:
                    self.answer(*cabinet.answer(self.command, self.path, body, user))

            def answer(self, status: int, fields: Any) -> None:
                body = json.dumps(fields).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler

    def answer(self, method: str, path: str, body: Any, user: str) -> tuple[int, Any]:
        match method, path.split("/")[1:]:
            case "GET", ["me"]:
                return 200, {"id": f"id of {user}", "email": user}
            case "GET", ["things"]:
                things = sorted(self.shelf.things.items())
                return 200, {"things": [[id, thing.version, thing.title] for id, thing in things]}
            case "GET", ["things", id]:
                id = unquote(id)
                thing = self.shelf.things.get(id)
                return (200, {"text": thing.text}) if thing else (404, {})
            case "POST", ["hooks"]:
                if self.refuse_hooks:
                    return 403, {"error": "hooks are not allowed here"}
                id = f"hook{len(self.calls)}"
                self.hooks[id] = body
                self.on_subscribe.set()
                return 200, {"id": id, "expires": (datetime.now(UTC) + WEEK).isoformat()}
            case "DELETE", ["hooks", id]:
                return (200, {}) if self.hooks.pop(id, None) else (404, {})
            case _:
                return 404, {}


class CabinetConnector(Connector):
    provider = "cabinet"
    name = "Cabinet"
    guide = Guide("Things.", "a cabinet")
    application = Application("cabinet", "Cabinet", "https://cabinet.example/applications")
    api_url = "https://cabinet.example"
    oauth = OAuth(
        authorize_url="https://cabinet.example/authorize",
        token_url="https://cabinet.example/token",
        scopes=("things", "hooks"),
        rotates=True,
    )
    pushes = True

    def identify(self, api: Api, tokens: Tokens) -> Account:
        found = api.get("/me")
        return Account(found["id"], found["email"])

    def changes(self, source: Source, cursor: Cursor | None) -> Iterator[Change]:
        found = source.api.get("/things")["things"]
        yield Listing()
        known = {row.id for row in source.remembered()}
        for id, version, title in found:
            known.discard(id)
            yield Item(id, str(version), title=title, url=f"https://cabinet.example/{id}")
        for id in known:
            yield Gone(id)
        yield Listed()
        yield Checkpoint({"runs": (cursor or {}).get("runs", 0) + 1})

    def fetch(self, source: Source, item: Remembered) -> Blob | Extracted:
        answer = source.api.call("GET", f"/things/{quote(item.id)}", accept=frozenset({404}))
        if answer.status == 404:
            raise NotFoundError("Not found")
        return Extracted(json.loads(answer.data)["text"])

    def ping(self, source: Source) -> None:
        source.api.get("/me")

    def watches(self, source: Source) -> Sequence[str]:
        return ["things"]

    def subscribe(self, source: Source, registration: Registration) -> Registration:
        told = {"url": registration.url, "secret": registration.secret}
        made: Mapping[str, Any] = source.api.post("/hooks", told)
        return replace(
            registration,
            remote={"hook": made["id"]},
            expires_at=datetime.fromisoformat(made["expires"]),
        )

    def unsubscribe(self, api: Api, registration: Registration) -> None:
        try:
            api.call("DELETE", f"/hooks/{registration.remote['hook']}")
        except Permanent as error:
            if error.code != "http_404":
                raise

    def receive(self, push: Push) -> PushResult:
        if push.registration is None:
            return PushResult(202)
        if push.query.get("challenge"):
            return PushResult(200, text=push.query["challenge"])
        mark = hmac.new(push.registration.secret.encode(), push.body, hashlib.sha256).hexdigest()
        given = push.headers.get("x-cabinet-signature", "")
        if not hmac.compare_digest(mark.encode(), given.encode("utf-8", "replace")):
            return FORGED
        return PushResult(202, concerned=True, key=push.headers.get("x-cabinet-delivery"))
