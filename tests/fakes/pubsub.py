"""Cloud Pub/Sub on loopback: one pull subscription, and Google's token endpoint before it.

    with FakePubSub() as pubsub:
        path = pubsub.key_file(tmp_path)
        pubsub.publish(envelope(ME, 9876, "1"))
        pubsub.waiting            # what nobody has acknowledged

What is not acknowledged comes again (`lapse` lets all deadlines pass), and by default one message
of a batch comes twice. Where there is nothing new an answer is held back for a moment. Each
exchange is put before Google's own description of the API (`violations`); assertions are checked
with the public half of the service account's key. Bad days: `refuse`, `revoke`, `expire`.
"""

import base64
import itertools
import json
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.fakes.google_contract import Contract
from tests.fakes.website import Exchange, Request, Website, answer

SUBSCRIPTION = "projects/recollect-test/subscriptions/gmail"
ACCOUNT = "reader@recollect-test.iam.gserviceaccount.com"
SCOPES = {"https://www.googleapis.com/auth/pubsub"}
TOKEN_URL = "https://oauth2.googleapis.com/token"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
HELD = 0.2
"""seconds that an answer without messages waits for one"""


class Problem(Exception):
    def __init__(self, status: int, word: str, message: str, after: str | None = None) -> None:
        super().__init__(message)
        self.status, self.word, self.message = status, word, message
        self.headers = {} if after is None else {"Retry-After": after}


@cache
def contract() -> Contract:
    return Contract("pubsub.v1")


@cache
def _private_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@dataclass
class Message:
    id: str
    data: str
    handed_out: int = 0
    leased: bool = False


@dataclass
class Refusal:
    match: re.Pattern[str]
    problem: Problem
    times: int | None


@dataclass
class Reply:
    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


class FakePubSub:
    def __init__(self) -> None:
        self.waiting: dict[str, Message] = {}
        """messages that nobody has acknowledged, by id"""
        self.tidy = False
        """nothing comes twice"""
        self.readers = {ACCOUNT, "ann@example.com"}
        """who has the role"""
        self.exists = True
        self.key_id = "key-1"
        self.tokens: dict[str, str] = {}
        """who, by access token"""
        self.granted = 0
        self.refresh_tokens = {"refresh-1": "ann@example.com"}
        self.violations: list[str] = []
        self.asked: list[str] = []
        self._refusals: list[Refusal] = []
        self._acks: dict[str, str] = {}
        self._numbers = itertools.count(1)
        self._news = threading.Condition()
        self.site = Website()
        self.site.route("/*", self._serve)
        self.url = self.site.url("")

    def __enter__(self) -> Self:
        self.site.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.site.__exit__()

    # --- as Gmail, and as the operator ---------------------------------------------------------

    def publish(self, envelope: Mapping[str, Any]) -> str:
        """A message as a push brings it; answers its id."""
        told = envelope["message"]
        with self._news:
            self.waiting[told["messageId"]] = Message(told["messageId"], told["data"])
            self._news.notify_all()
        return told["messageId"]

    def lapse(self) -> None:
        """All deadlines pass: what was handed out and not acknowledged comes again."""
        with self._news:
            for message in self.waiting.values():
                message.leased = False
            self._news.notify_all()

    def key_file(self, folder: Path, kind: str = "service_account", **changed: Any) -> Path:
        """As Google's console, or `gcloud auth application-default login`, writes it."""
        if kind == "service_account":
            told: dict[str, Any] = {
                "type": kind,
                "project_id": "recollect-test",
                "private_key_id": self.key_id,
                "private_key": _private_key()
                .private_bytes(
                    serialization.Encoding.PEM,
                    serialization.PrivateFormat.PKCS8,
                    serialization.NoEncryption(),
                )
                .decode(),
                "client_email": ACCOUNT,
                "client_id": "1",
                "token_uri": f"{self.url}/token",
            }
        else:
            told = {
                "type": kind,
                "client_id": "gcloud",
                "client_secret": "of gcloud",
                "refresh_token": "refresh-1",
                "token_uri": f"{self.url}/token",
            }
        path = folder / f"{kind}.json"
        path.write_text(json.dumps({k: v for k, v in {**told, **changed}.items() if v is not None}))
        return path

    def revoke(self) -> None:
        """The key is deleted at Google."""
        self.key_id = "another"
        self.expire()

    def expire(self) -> None:
        """Every access token."""
        with self._news:
            self.tokens.clear()

    def refuse(
        self,
        match: str,
        status: int,
        word: str = "INTERNAL",
        *,
        times: int | None = 1,
        after: str | None = None,
    ) -> None:
        problem = Problem(status, word, "on purpose", after)
        self._refusals.append(Refusal(re.compile(match), problem, times))

    def behave(self) -> None:
        self._refusals.clear()

    def count(self, match: str) -> int:
        return sum(bool(re.search(match, line)) for line in self.asked)

    # --- serving -------------------------------------------------------------------------------

    def _serve(self, exchange: Exchange) -> bool:
        request = exchange.request
        line = f"{request.method} {unquote(request.path)}"
        self.asked.append(line)
        reply = self._token(request) if request.path == "/token" else self._answer(request, line)
        headers = {"Content-Type": "application/json; charset=UTF-8", **reply.headers}
        exchange.send(answer(reply.status, reply.body, headers))
        return True

    def _token(self, request: Request) -> Reply:
        form = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
        try:
            self._stop_at("POST /token")
            who = self._who(form)
        except Problem as problem:
            told = {"error": problem.word, "error_description": problem.message}
            return Reply(problem.status, json.dumps(told).encode(), problem.headers)
        with self._news:
            self.granted += 1
            token = f"pubsub-token-{self.granted}"
            self.tokens[token] = who
        said = {"access_token": token, "expires_in": 3599, "token_type": "Bearer"}
        return Reply(200, json.dumps(said).encode())

    def _who(self, form: Mapping[str, str]) -> str:
        match form.get("grant_type"):
            case "refresh_token":
                known = (form.get("client_id"), form.get("client_secret"))
                who = self.refresh_tokens.get(form.get("refresh_token", ""))
                if who is None or known != ("gcloud", "of gcloud"):
                    raise Problem(400, "invalid_grant", "Bad Request")
                return who
            case grant if grant == JWT_BEARER:
                return self._asserted(form["assertion"])
            case _:
                raise Problem(400, "unsupported_grant_type", "Invalid grant_type")

    def _asserted(self, assertion: str) -> str:
        """developers.google.com/identity/protocols/oauth2/service-account, 2.1 to 2.3"""
        if jwt.get_unverified_header(assertion).get("kid") not in (None, self.key_id):
            raise Problem(400, "invalid_grant", "Invalid JWT Signature.")
        try:
            said = jwt.decode(
                assertion,
                _private_key().public_key(),
                algorithms=["RS256"],
                audience=TOKEN_URL,
                options={"require": ["iss", "scope", "aud", "iat", "exp"]},
            )
        except jwt.PyJWTError as error:
            raise Problem(400, "invalid_grant", f"Invalid JWT: {error}") from error
        if said["exp"] - said["iat"] > 3600 or said["iss"] != ACCOUNT:
            raise Problem(400, "invalid_grant", "Invalid JWT: too long, or of somebody else")
        if not SCOPES & set(said["scope"].split()):
            raise Problem(400, "invalid_scope", "Invalid OAuth scope")
        return said["iss"]

    def _answer(self, request: Request, line: str) -> Reply:
        try:
            self._stop_at(line)
            self._admit(request)
            reply = Reply(200, json.dumps(self._route(request)).encode())
        except Problem as problem:
            said = {"code": problem.status, "message": problem.message, "status": problem.word}
            body = json.dumps({"error": said}).encode()
            reply = Reply(problem.status, body, problem.headers)
        faults = contract().check_request(request.method, request.path, request.body)
        faults += contract().check_answer(
            request.method, request.path, reply.status, reply.body, "application/json"
        )
        self.violations += faults
        return reply

    def _stop_at(self, line: str) -> None:
        for refusal in self._refusals:
            if refusal.times != 0 and refusal.match.search(line):
                refusal.times = None if refusal.times is None else refusal.times - 1
                raise refusal.problem

    def _admit(self, request: Request) -> None:
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        if bearer not in self.tokens:
            raise Problem(401, "UNAUTHENTICATED", "Request had invalid credentials.")
        if self.tokens[bearer] not in self.readers:
            raise Problem(403, "PERMISSION_DENIED", "User not authorized to perform this action.")
        if not self.exists:
            raise Problem(404, "NOT_FOUND", f"Resource not found (resource={SUBSCRIPTION}).")

    def _route(self, request: Request) -> Any:
        parts = urlsplit(request.path)
        body = json.loads(request.body)
        match unquote(parts.path).removeprefix(f"/v1/{SUBSCRIPTION}:"):
            case "pull":
                return self._pull(body["maxMessages"])
            case "acknowledge":
                return self._acknowledge(body["ackIds"])
            case _:
                raise Problem(404, "NOT_FOUND", "Resource not found.")

    def _pull(self, most: int) -> dict[str, Any]:
        until = time.monotonic() + HELD
        with self._news:
            while not (found := [m for m in self.waiting.values() if not m.leased][:most]):
                if not self._news.wait(until - time.monotonic()):
                    return {}
            told: list[dict[str, Any]] = []
            for message in found:
                message.leased = True
                told.append(self._handed_out(message))
            if not self.tidy and len(told) < most:
                told.append(self._handed_out(found[0]))
            return {"receivedMessages": told}

    def _handed_out(self, message: Message) -> dict[str, Any]:
        message.handed_out += 1
        ack = base64.urlsafe_b64encode(f"ack {next(self._numbers)}".encode()).decode()
        self._acks[ack] = message.id
        sent = {"data": message.data, "messageId": message.id}
        return {"ackId": ack, "message": {**sent, "publishTime": "2026-01-01T00:00:00Z"}}

    def _acknowledge(self, acks: list[str]) -> dict[str, Any]:
        with self._news:
            for ack in acks:
                # An unknown one is no error, nor is one twice.
                self.waiting.pop(self._acks.get(ack, ""), None)
        return {}
