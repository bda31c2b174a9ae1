"""What all of Google's APIs have in common: authorization, who authorized, and refusals.

Facts: developers.google.com/identity/protocols/oauth2/web-server,
accounts.google.com/.well-known/openid-configuration,
developers.google.com/workspace/drive/api/guides/handle-errors,
developers.google.com/workspace/gmail/api/guides/handle-errors, cloud.google.com/apis/design/errors.
"""

import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, cast

from recollect.connectors.about import Application
from recollect.connectors.api import RATE_LIMITED, Api, field_of
from recollect.connectors.base import Account
from recollect.connectors.oauth import OAuth, Tokens
from recollect.errors import Permanent, Reauthorize, Transient
from recollect.fetch import EndpointAnswer, outcome, told_time

APPLICATION = Application("google-drive", "Google", "https://console.cloud.google.com")
LIMITS = frozenset(
    {
        "rateLimitExceeded", "userRateLimitExceeded", "sharingRateLimitExceeded",
        "concurrentLimitExceeded", "RATE_LIMIT_EXCEEDED", "RESOURCE_EXHAUSTED",
    }
)  # fmt: skip
DAILY_LIMITS = frozenset({"dailyLimitExceeded", "dailyLimitExceededUnreg", "quotaExceeded"})
TOO_FEW_SCOPES = frozenset(
    {"insufficientPermissions", "insufficientScopes", "ACCESS_TOKEN_SCOPE_INSUFFICIENT"}
)
DISABLED = frozenset({"accessNotConfigured", "SERVICE_DISABLED"})
MIDNIGHT = 8
"""the hour in UTC of midnight in Pacific winter time; in summer this is an hour after midnight"""


def GOOGLE_OAUTH(scopes: Sequence[str]) -> OAuth:  # stands where a constant would
    """How Google authorizes; without `consent`, a second time brings no refresh token."""
    return OAuth(
        authorize_url="https://accounts.google.com/o/oauth2/v2/auth",
        token_url="https://oauth2.googleapis.com/token",  # noqa: S106 # an address
        revoke_url="https://oauth2.googleapis.com/revoke",
        scopes=tuple(scopes),
        parameters={
            "access_type": "offline",
            "prompt": "consent",
            "include_granted_scopes": "false",
        },
        issuer="https://accounts.google.com",
    )


def identify(api: Api, tokens: Tokens) -> Account:
    """Who authorized, by the id_token that came with the tokens, else by asking. Its signature is
    not checked: it came from Google itself over TLS (OpenID Connect Core 3.1.3.7). Needs the scopes
    `openid` and `email`. Raises Transient when there is no answer.
    """
    said = _claims(tokens.extra.get("id_token", ""))
    if not isinstance(said.get("sub"), str):
        said = api.get("/oauth2/v3/userinfo")
    email: Any = said.get("email")
    return Account(field_of(said, "sub", str), email if isinstance(email, str) else None)


def judge(answer: EndpointAnswer, *, scope: str | None = None) -> Exception | None:
    """What a refusal of Google means; None: what its status means everywhere.

    `scope` is named when rights are missing and Google does not say which.
    """
    if answer.status not in (403, 429):
        return None
    why = reasons(answer)
    if why & DAILY_LIMITS:
        return Transient(
            "Google's limit for today is used up", code=RATE_LIMITED, after=_until_midnight(answer)
        )
    if answer.status == 429 or why & LIMITS:
        asked = outcome(429, answer.headers, "Google's rate limit is used up")
        after = asked.after if isinstance(asked, Transient) else None
        return Transient(str(asked), code=RATE_LIMITED, after=after)
    if why & TOO_FEW_SCOPES:
        lacking = f" ({scope})" if scope else ""
        return Reauthorize(
            f"a permission{lacking} was not granted; authorize again, and leave everything ticked"
        )
    if why & DISABLED:
        return Permanent(
            f"the Google project of the OAuth application has this API switched off; switch it on"
            f" in the Google Cloud console ({message(answer)})",
            code="api_disabled",
        )
    return None


def reasons(answer: EndpointAnswer) -> frozenset[str]:
    """The error codes in the body of a refusal, in their several forms."""
    error = _error(answer)
    found = [error.get("status"), *(entry.get("reason") for entry in _entries(error))]
    return frozenset(word for word in found if isinstance(word, str))


def message(answer: EndpointAnswer) -> str:
    """The message for people in the body of a refusal, on one line of at most 300 characters."""
    said: Any = _error(answer).get("message")
    return " ".join(said.split())[:300] if isinstance(said, str) else f"status {answer.status}"


def _error(answer: EndpointAnswer) -> Mapping[str, Any]:
    try:
        body: Any = json.loads(answer.data)
    except (ValueError, RecursionError):
        return {}
    return _object(_object(body).get("error"))


def _entries(error: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for name in ("errors", "details"):
        entries: Any = error.get(name)
        if isinstance(entries, list):
            yield from (_object(entry) for entry in cast("list[Any]", entries))


def _object(value: Any) -> Mapping[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _claims(token: str) -> Mapping[str, Any]:
    """What a JWT says (RFC 7519); nothing if it is not one."""
    _, _, rest = token.partition(".")
    payload = rest.partition(".")[0]
    try:
        said: Any = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return {}
    return _object(said)


def _until_midnight(answer: EndpointAnswer) -> timedelta:
    """Quotas of a day begin again at midnight Pacific time; by Google's clock if it tells it."""
    now = told_time(answer.headers)
    midnight = now.replace(hour=MIDNIGHT, minute=0, second=0, microsecond=0)
    return (midnight if midnight > now else midnight + timedelta(days=1)) - now


__all__ = ["APPLICATION", "GOOGLE_OAUTH", "identify", "judge", "message", "reasons"]
