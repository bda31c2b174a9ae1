"""Cloud Pub/Sub, where Gmail's notices are fetched from by those that nobody can push to.

A pull subscription of the topic keeps them; asking for them needs no address that Google could
reach. Who asks is a service account, or a user of `gcloud auth application-default login`, as the
key file says.

Facts: cloud.google.com/pubsub/docs/reference/rest/v1/projects.subscriptions (pull, acknowledge),
developers.google.com/identity/protocols/oauth2/service-account, RFC 7523 2.1,
cloud.google.com/docs/authentication/application-default-credentials.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jwt

from recollect.connectors import _google
from recollect.connectors._json import as_object, as_objects, as_word
from recollect.connectors.api import as_json
from recollect.connectors.base import Assumption
from recollect.connectors.gmail._charsets import bytes_of
from recollect.connectors.gmail._settings import GmailSettings
from recollect.connectors.gmail.proofs import json_of
from recollect.connectors.pushes import PushResult, Received
from recollect.errors import Permanent, SetupError, Transient
from recollect.fetch import Endpoint, EndpointAnswer

SCOPE = "https://www.googleapis.com/auth/pubsub"
TOKEN_URL = "https://oauth2.googleapis.com/token"  # noqa: S105 # an address
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
NOTICES = "gmail's notices"
MOST = 100
"""notices at once"""
PATIENCE = 100.0
"""seconds for one answer; where there is nothing new, Pub/Sub lets us wait for some of it"""
LIFE = 3600
"""seconds; the most that an assertion may claim"""
AGEING = 60.0
"""A token with fewer seconds to live is replaced before it is used."""


def notice_of(message: Mapping[str, Any]) -> PushResult:
    """What a message of Gmail's comes to, whichever way it came; any other concerns nobody."""
    data = json_of(bytes_of(as_word(message.get("data"))) or b"")
    address = as_word(data.get("emailAddress"))
    key = as_word(message.get("messageId"))[:100]
    return PushResult(status=200, addresses=[address] if address else [], key=key or None)


# --- who asks ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    email: str
    key_id: str
    private_key: str = field(repr=False)
    token_url: str = TOKEN_URL

    def grant(self, now: float) -> Mapping[str, str]:
        claims = {
            "iss": self.email,
            "scope": SCOPE,
            # Whatever the file says of the address, as Google's own libraries do.
            "aud": TOKEN_URL,
            "iat": int(now),
            "exp": int(now) + LIFE,
        }
        try:
            signed = jwt.encode(claims, self.private_key, "RS256", headers={"kid": self.key_id})
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise Permanent("its private key is not valid", code="key_refused") from error
        return {"grant_type": JWT_BEARER, "assertion": signed}


@dataclass(frozen=True, slots=True)
class GcloudUser:
    """Whose refresh token `gcloud` wrote down; it does not expire by itself."""

    client_id: str
    client_secret: str = field(repr=False)
    refresh_token: str = field(repr=False)
    token_url: str = TOKEN_URL

    def grant(self, now: float) -> Mapping[str, str]:
        return {
            "grant_type": "refresh_token",
            "client_id": self.client_id,
            "client_secret": self.client_secret,
            "refresh_token": self.refresh_token,
        }


Key = ServiceAccount | GcloudUser


def read_key(path: Path) -> Key:
    """Raises SetupError that names the file and what is wrong with it, but nothing of its text."""
    try:
        told = as_object(json.loads(path.read_bytes()))
    except OSError as error:
        raise SetupError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError):
        # `from None`: the fault repeats what it could not read.
        raise SetupError(f"{path} is not JSON, as Google's key files are") from None
    url = as_word(told.get("token_uri")) or TOKEN_URL
    if urlsplit(url).scheme not in ("http", "https"):
        raise SetupError(f"{path}: token_uri is not a URL")
    match told.get("type"):
        case "service_account":
            email, id, key = _words(path, told, "client_email", "private_key_id", "private_key")
            return ServiceAccount(email, id, key, url)
        case "authorized_user":
            id, secret, token = _words(path, told, "client_id", "client_secret", "refresh_token")
            return GcloudUser(id, secret, token, url)
        case _:
            raise SetupError(
                f"{path} is neither the key of a service account nor what `gcloud auth"
                " application-default login` writes: its `type` is something else"
            )


def open_subscription(given: GmailSettings) -> "Subscription | None":
    """Raises SetupError that says which setting or file is at fault."""
    name, path = given.pubsub_subscription, given.pubsub_key_file
    if name is None:
        return None
    if path is None:
        raise SetupError("set RECOLLECT_PUBSUB_KEY_FILE to a key that may read the subscription")
    return Subscription(name, read_key(path), given.pubsub_api_url)


def diagnosed(given: GmailSettings) -> Iterator[Assumption]:
    """Of the key no more than that it is one: connections tell whether it opens."""
    name, path = given.pubsub_subscription, given.pubsub_key_file
    if name is None:
        return
    if path is None:
        told = f"{name}: RECOLLECT_PUBSUB_KEY_FILE is not set, so it cannot be read"
        yield Assumption(NOTICES, False, told)
        return
    try:
        read_key(path)
    except SetupError as error:
        yield Assumption(NOTICES, False, str(error))
    else:
        yield Assumption(NOTICES, True, f"pulled from {name}")


def _words(path: Path, told: Mapping[str, Any], *names: str) -> list[str]:
    found = [as_word(told.get(name)) for name in names]
    lacking = [name for name, word in zip(names, found, strict=True) if not word]
    if lacking:
        raise SetupError(f"{path} has no {', '.join(lacking)}")
    return found


# --- what is asked -----------------------------------------------------------------------------


class Subscription:
    """A pull subscription, as an `Inbox`. One thread at a time."""

    def __init__(
        self, name: str, key: Key, api_url: str, *, clock: Callable[[], float] = time.time
    ) -> None:
        """`name` is `projects/PROJECT/subscriptions/SUBSCRIPTION`; raises SetupError."""
        self.name = name
        self._key = key
        self._clock = clock
        self._api = Endpoint(api_url, timeout=PATIENCE, total=PATIENCE)
        parts = urlsplit(key.token_url)
        self._tokens = Endpoint(f"{parts.scheme}://{parts.netloc}", total=30.0)
        self._token_path = parts.path or "/"
        self._token, self._until = "", 0.0

    def pull(self) -> list[Received]:
        said = as_object(as_json(self._call("pull", {"maxMessages": MOST})))
        return [
            Received(ack, notice_of(as_object(one.get("message"))))
            for one in as_objects(said.get("receivedMessages"))
            if (ack := as_word(one.get("ackId")))
        ]

    def acknowledge(self, received: Sequence[Received]) -> None:
        if received:
            self._call("acknowledge", {"ackIds": [one.ack for one in received]})

    def _call(self, verb: str, body: object) -> EndpointAnswer:
        for fresh in (False, True):
            token = self._access(again=fresh)
            answer = self._api.request(
                "POST",
                f"/v1/{self.name}:{verb}",
                json=body,
                headers={"authorization": f"Bearer {token}"},
            )
            if answer.status != 401:
                break
        if answer.status == 200:
            return answer
        raise self._refusal(answer, token)

    def _refusal(self, answer: EndpointAnswer, token: str) -> Exception:
        message = _google.message(answer)
        match answer.status:
            case 401:
                return Permanent(f"Pub/Sub refuses the key ({message})", code="key_refused")
            case 403 if not isinstance(known := _google.judge(answer), Transient):
                return known or Permanent(
                    f"{self.name}: its key needs the role Pub/Sub Subscriber ({message})",
                    code="no_permission",
                )
            case 404:
                return Permanent(
                    f"there is no {self.name}: create it, or correct RECOLLECT_PUBSUB_SUBSCRIPTION",
                    code="no_subscription",
                )
            case _:
                return _google.judge(answer) or self._api.refusal(answer, hide=(token,))

    def _access(self, *, again: bool) -> str:
        if again or self._clock() > self._until - AGEING:
            now = self._clock()
            answer = self._tokens.request("POST", self._token_path, data=self._key.grant(now))
            said = json_of(answer.data)
            token, life = as_word(said.get("access_token")), said.get("expires_in")
            if answer.status in (400, 401, 403):
                why = as_word(said.get("error_description")) or as_word(said.get("error"))
                raise Permanent(
                    f"Google refuses the key ({why[:200] or answer.status}): it was deleted, its"
                    " account is disabled, or this machine's clock is wrong",
                    code="key_refused",
                )
            if answer.status != 200 or not token:
                raise Transient("Google gives no token for Pub/Sub", code="provider_unavailable")
            self._token = token
            self._until = now + (life if isinstance(life, int | float) else 0)
        return self._token
