"""Who may push: tokens that Google signed for one audience and one service account."""

import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import jwt

from recollect import log
from recollect.connectors._json import as_object, as_objects, as_word
from recollect.errors import RecollectError
from recollect.fetch import Endpoint

LEEWAY = timedelta(minutes=1)
"""by which the clocks of others may be wrong"""
ISSUERS = frozenset({"accounts.google.com", "https://accounts.google.com"})
REFETCH = 60.0
"""seconds between two looks at Google's keys; anybody can make up the name of a key"""
LONGEST_ANSWER = 120.0
"""seconds"""
KEYS_LIFE = (60, 86_400)
"""seconds; the least and the most that keys are kept"""
LOG = log.get("gmail")
FindKey = Callable[[str], jwt.PyJWK | None]
"""A key of Google's by its name; None: there is none of that name."""


def verify(
    token: str, *, audience: str, service_account: str, keys: FindKey, now: datetime
) -> bool:
    """Whether Pub/Sub signed it for us: key, audience, issuer, service account and time.

    Rules: cloud.google.com/pubsub/docs/authenticate-push-subscriptions, RFC 7519, RFC 8725.
    """
    try:
        head = jwt.get_unverified_header(token)
        name = head.get("kid")
        if head.get("alg") != "RS256" or not isinstance(name, str):
            return False
        key = keys(name)
        if key is None:
            return False
        claims = jwt.decode(
            token,
            key,
            algorithms=["RS256"],
            audience=audience,
            options={
                "require": ["exp", "iat", "iss", "aud"],
                # Below, by the given clock.
                "verify_exp": False,
                "verify_iat": False,
                "verify_nbf": False,
            },
        )
    except (jwt.PyJWTError, ValueError, RecursionError):
        return False
    return (
        claims["aud"] == audience
        and claims["iss"] in ISSUERS
        and claims.get("email") == service_account
        and claims.get("email_verified") is True
        and _is_timely(claims, now)
    )


def _is_timely(claims: Mapping[str, Any], now: datetime) -> bool:
    times = [claims["exp"], claims["iat"], claims.get("nbf", claims["iat"])]
    if not all(isinstance(one, int | float) and not isinstance(one, bool) for one in times):
        return False
    expires, *begins = times
    leeway, at = LEEWAY.total_seconds(), now.timestamp()
    return expires > at - leeway and all(one <= at + leeway for one in begins)


class Keys:
    """Google's public keys by their names, fetched when they are needed. May be shared by threads.

    `fetch` brings a JSON Web Key Set (RFC 7517) and for how many seconds it may be kept. While it
    fails the old ones stay in use.
    """

    def __init__(
        self,
        fetch: Callable[[], tuple[bytes, int]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._lock = threading.Lock()
        self._found: Mapping[str, jwt.PyJWK] = {}
        self._until = 0.0
        self._tried: float | None = None

    def __call__(self, name: str) -> jwt.PyJWK | None:
        with self._lock:
            now = self._clock()
            stale = now >= self._until or name not in self._found
            if stale and (self._tried is None or now - self._tried >= REFETCH):
                self._tried = now
                self._renew(now)
            return self._found.get(name)

    def _renew(self, now: float) -> None:
        try:
            data, seconds = self._fetch()
        except RecollectError as error:
            LOG.warning("Google's keys could not be fetched", reason=str(error))
            return
        found = {
            name: key
            for entry in as_objects(json_of(data).get("keys"))
            if (name := as_word(entry.get("kid"))) and (key := _key(entry)) is not None
        }
        if found:
            shortest, longest = KEYS_LIFE
            self._found = found
            self._until = now + min(max(seconds, shortest), longest)


@cache
def keys_at(url: str) -> Keys:
    """Those that are published there; one for all threads of the process."""
    parts = urlsplit(url)
    endpoint = Endpoint(f"{parts.scheme}://{parts.netloc}", total=LONGEST_ANSWER)

    def fetch() -> tuple[bytes, int]:
        answer = endpoint.request("GET", parts.path or "/")
        if answer.status != 200:
            raise endpoint.refusal(answer)
        age = re.search(r"max-age=([0-9]{1,9})", answer.headers.get("cache-control", ""))
        return answer.data, int(age[1]) if age else 0

    return Keys(fetch)


def _key(entry: dict[str, Any]) -> jwt.PyJWK | None:
    if entry.get("kty") != "RSA":
        return None
    try:
        return jwt.PyJWK.from_dict(entry, "RS256")
    except (jwt.PyJWTError, ValueError, TypeError):
        return None


def json_of(data: bytes) -> dict[str, Any]:
    try:
        return as_object(json.loads(data))
    except (ValueError, RecursionError):
        return {}
