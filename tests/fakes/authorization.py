"""An authorization server on loopback that does what the published ones leave out.

    with AuthorizationServer(client) as server:
        answer = server.consent(link.url, scopes=["read"])      # as the user, who unticks some
        answer = server.consent(link.url, deny=True)            # denial, with the state
        server.expire()                                         # access tokens die of age

It is as strict as the standards allow: codes serve once, the callback's address and the PKCE
verifier are compared, clients authenticate in one way only, refresh tokens may rotate. What it
answers may look like GitHub's (errors with 200, forms, commas) or Notion's (JSON, objects in it).
For bad days put a `Proxy` in front.
"""

import base64
import hashlib
import json
import secrets
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self
from urllib.parse import parse_qsl, unquote_plus, urlencode, urlsplit

CLIENT_ID, CLIENT_SECRET = "our app", "s3cret/ & more"


@dataclass
class Grant:
    """What a user once agreed to; all of its tokens end together."""

    user: str
    scopes: Sequence[str]
    challenge: str | None
    redirect_uri: str
    access: set[str] = field(default_factory=set[str])
    """alive"""
    refresh: set[str] = field(default_factory=set[str])
    """alive"""


class Refused(Exception):
    pass


class AuthorizationServer:
    def __init__(
        self,
        *,
        client: Literal["body", "basic"] = "body",
        takes: Literal["form", "json"] = "form",
        answers: Literal["json", "form"] = "json",
        errors_with_200: bool = False,
        rotates: bool = True,
        separator: str = " ",
    ) -> None:
        self.client = client
        self.takes = takes
        self.answers = answers
        self.errors_with_200 = errors_with_200
        self.rotates = rotates
        self.separator = separator
        self.life = 3600
        """seconds of an access token, as it is told"""
        self.grants: list[Grant] = []
        self._codes: dict[str, Grant] = {}
        self._lock = threading.Lock()
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

    # --- as the user -----------------------------------------------------------------------------

    def consent(
        self,
        link: str,
        *,
        user: str = "ann@example.com",
        scopes: Sequence[str] | None = None,
        deny: bool = False,
    ) -> str:
        """Where the browser is sent; `scopes` are granted, by default all that were asked for."""
        asked = dict(parse_qsl(urlsplit(link).query, strict_parsing=True))
        assert asked["response_type"] == "code"
        assert asked["client_id"] == CLIENT_ID
        assert asked.get("code_challenge_method", "S256") == "S256"
        if deny:
            told = {"error": "access_denied", "state": asked["state"]}
        else:
            granted = asked.get("scope", "").split() if scopes is None else scopes
            grant = Grant(user, granted, asked.get("code_challenge"), asked["redirect_uri"])
            code = secrets.token_urlsafe(12)
            with self._lock:
                self.grants.append(grant)
                self._codes[code] = grant
            told = {"code": code, "state": asked["state"]}
        return f"{asked['redirect_uri']}?{urlencode(told)}"

    def expire(self) -> None:
        """All access tokens so far are too old."""
        with self._lock:
            for grant in self.grants:
                grant.access.clear()

    def withdraw(self) -> None:
        """All users take their authorizations back."""
        with self._lock:
            for grant in self.grants:
                grant.access.clear()
                grant.refresh.clear()

    # --- endpoints -------------------------------------------------------------------------------

    def token(self, asked: dict[str, str]) -> dict[str, Any]:
        with self._lock:
            match asked.get("grant_type"):
                case "authorization_code":
                    grant = self._codes.pop(asked.get("code", ""), None)
                    if grant is None or asked.get("redirect_uri") != grant.redirect_uri:
                        raise Refused("invalid_grant")
                    if grant.challenge != _challenge(asked.get("code_verifier")):
                        raise Refused("invalid_grant")
                    return self._issue(grant, renewed=True)
                case "refresh_token":
                    used = asked.get("refresh_token", "")
                    for grant in self.grants:
                        if used in grant.refresh:
                            if self.rotates:
                                grant.refresh.discard(used)
                            return self._issue(grant, renewed=self.rotates)
                    raise Refused("invalid_grant")
                case _:
                    raise Refused("unsupported_grant_type")

    def revoke(self, asked: dict[str, str]) -> dict[str, Any]:
        token = asked["token"]
        with self._lock:
            for grant in self.grants:
                # One kind does not end the other here: RFC 7009 2.1 says only that it may.
                grant.access.discard(token)
                grant.refresh.discard(token)
        return {}

    def user(self, token: str) -> str | None:
        with self._lock:
            return next((grant.user for grant in self.grants if token in grant.access), None)

    def _issue(self, grant: Grant, *, renewed: bool) -> dict[str, Any]:
        access, refresh = (f"{kind}-{secrets.token_urlsafe(20)}" for kind in ("at", "rt"))
        grant.access.add(access)
        answer: dict[str, Any] = {
            "access_token": access,
            "token_type": "bEARER",
            "expires_in": f"{self.life}",
            "scope": self.separator.join(grant.scopes),
            "workspace_id": "w1",
            "owner": {"type": "user", "user": {"id": "u1", "person": {"email": grant.user}}},
        }
        if renewed:
            grant.refresh.add(refresh)
            answer["refresh_token"] = refresh
        return answer

    # --- HTTP ------------------------------------------------------------------------------------

    def authenticate(self, header: str | None, asked: dict[str, str]) -> None:
        if self.client == "basic":
            kind, _, text = (header or "").partition(" ")
            told = base64.b64decode(text).decode().partition(":") if kind == "Basic" else ()
            pair = tuple(unquote_plus(part) for part in told[::2])
        else:
            pair = (asked.get("client_id"), asked.get("client_secret")) if not header else ()
        if pair != (CLIENT_ID, CLIENT_SECRET):
            raise Refused("invalid_client")

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                _, _, token = self.headers.get("authorization", "").partition(" ")
                user = server.user(token)
                self.answer(200 if user else 401, {"email": user})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                mime = self.headers["content-type"]
                if server.takes == "json":
                    asked = json.loads(body) if mime == "application/json" else {}
                else:
                    asked = dict(parse_qsl(body.decode(), strict_parsing=True))
                try:
                    server.authenticate(self.headers["authorization"], asked)
                    act = {"/token": server.token, "/revoke": server.revoke}[self.path]
                    self.answer(200, act(asked))
                except Refused as error:
                    code = str(error)
                    status = 401 if code == "invalid_client" else 400
                    self.answer(200 if server.errors_with_200 else status, {"error": code})

            def answer(self, status: int, fields: dict[str, Any]) -> None:
                form = server.answers == "form"
                told = {name: value for name, value in fields.items() if isinstance(value, str)}
                body = (urlencode(told) if form else json.dumps(fields)).encode()
                mime = "application/x-www-form-urlencoded" if form else "application/json"
                self.send_response(status)
                self.send_header("content-type", f"{mime}; charset=utf-8")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler


def _challenge(verifier: str | None) -> str | None:
    if verifier is None:
        return None
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
