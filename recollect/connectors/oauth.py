"""OAuth 2.0 for web applications (RFC 6749, RFC 7636): links, exchange, refresh, revocation.

Nothing is stored here and nothing repeated. What an answer means is decided once: the user must
authorize again (Reauthorize), the operator must mend the application (Permanent `invalid_client`),
or it is passing (Transient). When in doubt it is passing, because an authorization that is given up
by mistake costs a person's attention.
"""

import base64
import binascii
import hashlib
import json
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from types import MappingProxyType
from typing import Any, Literal, cast
from urllib.parse import parse_qsl, quote, quote_plus, unquote_plus, urlencode, urlsplit

import ada_url

from recollect.config import is_this_machine
from recollect.errors import BadRequestError, Permanent, Reauthorize, Transient
from recollect.fetch import Endpoint, EndpointAnswer

NOTHING: Mapping[str, str] = MappingProxyType({})
RANDOM_BYTES = 32
"""of a state (RFC 6749 10.10 asks for 128 bits, here are 256) and of a verifier, which become 43
characters, the least of RFC 7636 4.1"""
PATIENCE = 15.0
"""seconds without any progress of an answer"""
LONGEST_ANSWER_TIME = 30.0
"""seconds of a whole answer"""
LARGEST_ANSWER = 1_000_000
"""bytes; real ones have a few thousand"""
LONGEST_TEXT = 16_000
"""characters of one text of an answer that is kept"""
MOST_TEXTS = 100
DEEPEST = 5
LONGEST_LIFE = 10 * 365 * 24 * 60 * 60
"""seconds"""
LONGEST_REDIRECT = 4_000
"""characters"""
SECRET = frozenset({"code", "code_verifier", "refresh_token"})
"""fields of a request that no message repeats"""
USED = frozenset({"access_token", "token_type", "refresh_token", "expires_in", "scope"})
"""fields of an answer that have a place of their own"""
RATE_LIMITED = "rate_limited"
PROVIDER_UNAVAILABLE = "provider_unavailable"

# RFC 6749 5.2, OpenID Connect Core 3.1.2.6, and what GitHub calls them ("Troubleshooting OAuth app
# access token request errors").
LOST = frozenset(
    {
        "invalid_grant", "bad_refresh_token", "bad_verification_code", "unverified_user_email",
        "access_denied", "interaction_required", "login_required", "consent_required",
    }
)  # fmt: skip
"""errors that only the user can fix"""
WRONG_CLIENT = frozenset(
    {
        "invalid_client", "unauthorized_client", "incorrect_client_credentials", "deleted_client",
        "disabled_client", "application_suspended",
    }
)  # fmt: skip
"""errors that only the operator can fix"""
INVALID_CLIENT = "invalid_client"
"""the code of our errors for all of those"""
WRONG_CALLBACK = "redirect_uri_mismatch"
PASSING = frozenset({"temporarily_unavailable", "server_error", "slow_down", "internal_failure"})
DEAD = LOST | {"invalid_token"}
"""what some say, against RFC 7009 2.2, where there is nothing left to revoke"""
SIGN_IN = frozenset({"openid", "email", "profile", "offline_access"})
"""Scopes that ask for a kind of answer and no rights; the granted ones name them otherwise
(Google) or not at all (Microsoft)."""


@dataclass(frozen=True, slots=True)
class OAuth:
    """How a provider does it. URLs are its own, unless the settings name others."""

    authorize_url: str
    token_url: str
    revoke_url: str | None = None
    scopes: Sequence[str] = ()
    pkce: bool = True
    """whether it takes an S256 challenge"""
    parameters: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    """further ones of the link"""
    client: Literal["body", "basic"] = "body"
    """where the token endpoint wants the client's id and secret"""
    sends: Literal["form", "json"] = "form"
    rotates: bool = False
    """whether a refresh token serves once"""
    separator: str = " "
    """between scopes in answers"""
    issuer: str | None = None
    """what it calls itself in the answers that browsers bring; None: that is not known for sure"""


@dataclass(frozen=True, slots=True)
class Tokens:
    """What an authorization is worth. Never logged, stored sealed."""

    access: str = field(repr=False)
    refresh: str | None = field(default=None, repr=False)
    expires_at: datetime | None = None
    """of the access token; None: it says nothing, so 401 will"""
    scopes: Sequence[str] = ()
    """granted; empty when the provider does not say"""
    extra: Mapping[str, str] = field(default_factory=lambda: NOTHING, repr=False)
    """further texts of the answer that identify the account (`workspace_id`, `id_token`); of
    objects within it with a path (`owner.user.id`)"""


@dataclass(frozen=True, slots=True)
class OAuthClient:
    """The application that an operator registered at the provider."""

    id: str
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class AuthorizationLink:
    """Where the user authorizes. `state` is to be stored hashed, `verifier` sealed."""

    url: str = field(repr=False)
    state: str = field(repr=False)
    verifier: str | None = field(repr=False)
    """None: the provider does without"""


# --- the flow ----------------------------------------------------------------------------------


def begin(
    oauth: OAuth,
    client: OAuthClient,
    *,
    redirect_uri: str,
    scopes: Sequence[str],
    parameters: Mapping[str, str] = NOTHING,
) -> AuthorizationLink:
    """One attempt to authorize; `parameters` are further ones of the link, as a login hint."""
    state = secrets.token_urlsafe(RANDOM_BYTES)
    verifier = secrets.token_urlsafe(RANDOM_BYTES) if oauth.pkce else None
    asked = {
        **oauth.parameters,
        **parameters,
        "response_type": "code",
        "client_id": client.id,
        "redirect_uri": redirect_uri,
        "state": state,
    }
    if scopes:
        asked["scope"] = " ".join(scopes)
    if verifier is not None:
        asked["code_challenge"] = challenge(verifier)
        asked["code_challenge_method"] = "S256"
    glue = "&" if "?" in oauth.authorize_url else "?"
    url = f"{oauth.authorize_url}{glue}{urlencode(asked, quote_via=quote)}"
    return AuthorizationLink(url, state, verifier)


def hashed(state: str) -> bytes:
    """What is stored of a state: a reader of the database cannot finish an attempt with it."""
    return hashlib.sha256(state.encode("utf-8", "surrogatepass")).digest()


def challenge(verifier: str) -> str:
    """S256 of RFC 7636 4.2."""
    digest = hashlib.sha256(verifier.encode("ascii")).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def check_issuer(oauth: OAuth, told: Sequence[str]) -> None:
    """Whether an answer that a browser brought is from this provider, as far as it says from whom
    (`iss` of RFC 9207 2.4); what it says else counts for nothing if not.

    That answers of one provider do not pass for another's is certain without it, because each has
    a callback address of its own, where only its states serve (RFC 9700 4.4.2). Raises
    BadRequestError.
    """
    if oauth.issuer is not None and any(issuer != oauth.issuer for issuer in told):
        raise BadRequestError(
            f"iss: the answer is not from {oauth.issuer}; ask for a new link, and follow it"
        )


def exchange(
    oauth: OAuth,
    client: OAuthClient,
    code: str,
    *,
    redirect_uri: str,
    verifier: str | None,
    headers: Mapping[str, str] = NOTHING,
) -> Tokens:
    """The tokens for a code, which the callback brought and which serves once.

    Raises Reauthorize when the code is not taken, Permanent (`invalid_client` for what is wrong
    with the application, `bad_id_token`) and Transient (`provider_unavailable`, `rate_limited`).
    """
    asked = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect_uri}
    if verifier is not None:
        asked["code_verifier"] = verifier
    tokens = _tokens(oauth, client, asked, headers)
    if (told := tokens.extra.get("id_token")) is not None:
        read_id_token(told, client)
    return tokens


def refresh(
    oauth: OAuth, client: OAuthClient, tokens: Tokens, *, headers: Mapping[str, str] = NOTHING
) -> Tokens:
    """Tokens with a new access token; what the answer does not bring is kept.

    Where refresh tokens rotate, one caller at a time, who stores the answer before its use: an
    answer that is lost (Transient) may have used the old token up, which the next try shows.

    Raises what `exchange` raises: Reauthorize when there is no refresh token, or a dead one.
    """
    if tokens.refresh is None:
        raise Reauthorize("the authorization has ended; authorize the connection again")
    asked = {"grant_type": "refresh_token", "refresh_token": tokens.refresh}
    new = _tokens(oauth, client, asked, headers)
    return Tokens(
        access=new.access,
        refresh=new.refresh or tokens.refresh,
        expires_at=new.expires_at,
        # RFC 6749 6: no scope in the answer means the same as before.
        scopes=new.scopes or tokens.scopes,
        extra={**tokens.extra, **new.extra},
    )


def revoke(
    oauth: OAuth, client: OAuthClient, tokens: Tokens, *, headers: Mapping[str, str] = NOTHING
) -> bool:
    """Take the authorization back (RFC 7009); False where the provider has no address for it.

    Both tokens are named, because some providers end only the one they are told. Those that are
    dead already are as good as revoked. Raises Permanent and Transient as `exchange` does.
    """
    if oauth.revoke_url is None:
        return False
    given = [tokens.access] if tokens.refresh is None else [tokens.access, tokens.refresh]
    refused: list[Permanent] = []
    for token in given:
        reply = _post(oauth, client, oauth.revoke_url, {"token": token}, headers)
        if reply.error in DEAD:
            continue
        try:
            _check(reply, hide=(client.secret, *given))
        except Permanent as error:
            refused.append(error)
    if len(refused) == len(given):
        raise refused[0]
    return True


def missing(needed: Sequence[str], tokens: Tokens) -> list[str]:
    """Which of the needed scopes the user did not grant; none when the provider does not say.

    A broader grant counts: GitHub answers `user` for `user,user:email`, and `admin:repo_hook`
    implies `write:repo_hook`. Microsoft's may carry the address of the resource in front.
    """
    granted = {scope.lower() for scope in tokens.scopes}
    if not granted:
        return []
    granted |= {scope.rpartition("/")[2] for scope in granted if "://" in scope}
    return [scope for scope in needed if scope not in SIGN_IN and not _covers(granted, scope)]


def _covers(granted: set[str], scope: str) -> bool:
    scope = scope.lower()
    if "://" in scope:
        return scope in granted
    kind, colon, of = scope.partition(":")
    broader = {scope}
    if colon:
        broader.add(kind)
        if kind in ("read", "write"):
            broader |= {f"admin:{of}", f"write:{of}", of}
    return not broader.isdisjoint(granted)


def read_id_token(token: str, client: OAuthClient) -> Mapping[str, Any]:
    """The claims of an id_token that the token endpoint has just answered.

    Its signature is not checked: it came over TLS straight from the provider, who could sign what
    he likes (OpenID Connect Core 3.1.3.7, 6). From anywhere else, a browser above all, it would
    prove nothing. That it was made for our application is checked all the same.

    Raises Permanent (`bad_id_token`).
    """
    try:
        _, payload, _ = token.split(".")
        padded = payload + "=" * (-len(payload) % 4)
        claims: Any = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError) as error:
        raise Permanent("the provider's id_token cannot be read", code="bad_id_token") from error
    found = cast("dict[str, Any]", claims) if isinstance(claims, dict) else {}
    audience: Any = found.get("aud")
    several = cast("list[Any]", audience) if isinstance(audience, list) else [audience]
    # 3.1.3.7, 3 to 5: of several audiences, `azp` says who asked.
    ours = client.id in several and (len(several) == 1 or found.get("azp") == client.id)
    if not ours:
        raise Permanent("the provider's id_token is for another application", code="bad_id_token")
    return found


# --- the return to the caller's page -----------------------------------------------------------


def check_redirect(url: str, origins: Sequence[str]) -> None:
    """Whether a browser may be sent there afterwards; raises BadRequestError.

    With `origins` it must be one of exactly these; without, any https address, and http on
    loopback. What parsers read in different ways is refused rather than understood.
    """
    parsed = _parsed(url)
    if origins:
        allowed = {origin for text in origins if (origin := _origin(text)) is not None}
        if parsed.origin not in allowed:
            raise BadRequestError(
                f"redirectUrl: {parsed.origin} is not an origin that"
                " RECOLLECT_REDIRECT_ORIGINS allows"
            )
    elif parsed.protocol == "http:" and not is_this_machine(parsed.hostname):
        raise BadRequestError("redirectUrl: must be an https URL (http only for this machine)")


def with_outcome(url: str, **facts: str | None) -> str:
    """The address of `check_redirect` with these as query parameters, which replace any of the
    same name; None leaves one out. In ASCII, as browsers write it."""
    parsed = _parsed(url)
    kept = [
        part
        for part in parsed.search.removeprefix("?").split("&")
        if part and unquote_plus(part.partition("=")[0]) not in facts
    ]
    told = {name: value for name, value in facts.items() if value is not None}
    query = "&".join([*kept, *([urlencode(told)] if told else [])])
    # With its mark, because one is taken off, even if it belongs to a name.
    parsed.search = f"?{query}" if query else ""
    return parsed.href


def _parsed(url: str) -> ada_url.URL:
    if not url.isprintable() or re.search(r"[\s\\#]", url):
        raise BadRequestError(
            "redirectUrl: spaces, control characters, backslashes and fragments are not allowed"
        )
    # Written out, because browsers read `https:/host` and `https:host` as well.
    if len(url) > LONGEST_REDIRECT or not re.match(r"https?://[^/?@]+(?=[/?]|$)", url, re.I):
        raise BadRequestError(
            "redirectUrl: must be a whole http or https URL without user name and password"
        )
    try:
        parsed = ada_url.URL(url)
    except ValueError as error:
        raise BadRequestError("redirectUrl: not a valid URL") from error
    if parsed.username or parsed.password or not parsed.hostname:
        raise BadRequestError("redirectUrl: not a valid URL")
    return parsed


def _origin(text: str) -> str | None:
    """As browsers write it; None for what is more, or less, than an origin."""
    try:
        parsed = _parsed(text)
    except BadRequestError:
        return None
    return parsed.origin if parsed.pathname == "/" and not parsed.search else None


# --- the token endpoint ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Reply:
    host: str
    status: int
    fields: Mapping[str, Any]
    """none if the body is not an object"""
    passing: Transient | None
    """what the status alone says, if trying again may help"""

    @property
    def error(self) -> str | None:
        """RFC 6749 5.2; whatever the status, because GitHub sends errors with 200."""
        # Notion names its errors `code`, beside `object: error`.
        code: Any = self.fields.get("error", self.fields.get("code"))
        known = isinstance(code, str) and re.fullmatch(r"[\w.-]{1,64}", code, re.ASCII)
        return code if known else None

    def description(self, hide: Sequence[str]) -> str:
        """What the provider says of an error, on one line, without secrets of either side."""
        text: Any = self.fields.get("error_description", self.fields.get("message"))
        if not isinstance(text, str):
            return ""
        theirs = (self.fields.get(k) for k in ("access_token", "refresh_token", "id_token"))
        for secret in {*hide, *(token for token in theirs if isinstance(token, str))} - {""}:
            for form in (secret, quote(secret), quote(secret, safe=""), quote_plus(secret)):
                text = text.replace(form, "***")
        return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:300]


def _tokens(
    oauth: OAuth, client: OAuthClient, asked: Mapping[str, str], headers: Mapping[str, str]
) -> Tokens:
    began = datetime.now(UTC)
    reply = _post(oauth, client, oauth.token_url, asked, headers)
    sent = [client.secret, *(asked[name] for name in asked.keys() & SECRET)]
    _check(reply, hide=sent, callback=asked.get("redirect_uri"))
    access, renewal = reply.fields.get("access_token"), reply.fields.get("refresh_token")
    kind = reply.fields.get("token_type")
    # What a header cannot carry is not a token (RFC 6750 2.1).
    if not isinstance(access, str) or not re.fullmatch(r"[!-~]+", access):
        raise Transient(f"{reply.host} answered without an access token", code=PROVIDER_UNAVAILABLE)
    if isinstance(kind, str) and kind.lower() != "bearer":
        raise Permanent(
            f"{reply.host} issues tokens of a kind that is not supported",
            code="unsupported_token_type",
        )
    return Tokens(
        access=access,
        refresh=renewal if isinstance(renewal, str) and renewal and _is_text(renewal) else None,
        expires_at=_end(began, reply.fields.get("expires_in")),
        scopes=_scopes(reply.fields.get("scope"), oauth.separator),
        extra=dict(islice(_texts(reply.fields, ""), MOST_TEXTS)),
    )


def _post(
    oauth: OAuth,
    client: OAuthClient,
    url: str,
    asked: Mapping[str, str],
    headers: Mapping[str, str],
) -> _Reply:
    """Raises Transient when there is no whole answer, SetupError for a URL that is not one."""
    sent = {name.lower(): value for name, value in headers.items()}
    sent["accept"] = "application/json"  # GitHub answers with a form otherwise
    body = dict(asked)
    if oauth.client == "basic":
        # RFC 6749 2.3.1: encoded as in a form before they are joined.
        pair = f"{quote_plus(client.id)}:{quote_plus(client.secret)}"
        sent["authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    else:
        body |= {"client_id": client.id, "client_secret": client.secret}
    base, path = _split(url)
    endpoint = Endpoint(base, timeout=PATIENCE, total=LONGEST_ANSWER_TIME)
    try:
        if oauth.sends == "form":
            answer = endpoint.request("POST", path, data=body, headers=sent)
        else:
            answer = endpoint.request("POST", path, json=body, headers=sent)
        meaning = endpoint.refusal(answer)
    except (Transient, Permanent) as error:  # Permanent: too large, or of an unknown encoding
        raise Transient(str(error), code=PROVIDER_UNAVAILABLE) from error
    finally:
        endpoint.close()
    return _Reply(
        host=urlsplit(base).netloc,
        status=answer.status,
        fields=_fields(answer),
        passing=meaning if isinstance(meaning, Transient) else None,
    )


def _check(reply: _Reply, *, hide: Sequence[str], callback: str | None = None) -> None:
    """Raises what an answer means that is not one of success; `hide` are secrets that were sent."""
    error = reply.error
    because = error or f"status {reply.status}"
    if error is not None and (more := reply.description(hide)):
        because += f": {more}"
    if reply.passing is not None or error in PASSING or 300 <= reply.status < 400:
        raise Transient(
            f"{reply.host} cannot answer now ({because})",
            code=RATE_LIMITED if reply.status == 429 else PROVIDER_UNAVAILABLE,
            after=reply.passing.after if reply.passing else None,
        )
    if error in LOST:
        raise Reauthorize(
            f"{reply.host} does not accept the authorization ({because});"
            " authorize the connection again"
        )
    if error == WRONG_CALLBACK:
        raise Permanent(
            f"{reply.host} does not know our callback address ({because});"
            f" register {callback or 'it'} with the OAuth application",
            code=INVALID_CLIENT,
        )
    if error in WRONG_CLIENT:
        raise Permanent(
            f"{reply.host} does not accept our OAuth application ({because});"
            " check its client id and client secret in the settings",
            code=INVALID_CLIENT,
        )
    if error is not None:
        raise Permanent(f"{reply.host} refuses ({because})", code="provider_error")
    if not 200 <= reply.status < 300:
        raise Permanent(
            f"{reply.host} refuses ({because}); check its URL in the settings",
            code=f"http_{reply.status}",
        )


def _split(url: str) -> tuple[str, str]:
    """What an endpoint is opened with and what is asked of it."""
    parts = urlsplit(url)
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{parts.netloc}", (parts.path or "/") + query


def _fields(answer: EndpointAnswer) -> dict[str, Any]:
    if len(answer.data) > LARGEST_ANSWER:
        return {}
    if answer.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        return dict(parse_qsl(answer.data.decode("latin-1")))
    try:
        found: Any = json.loads(answer.data)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _end(began: datetime, seconds: object) -> datetime | None:
    """Counted from before the request, so never later than the truth."""
    if isinstance(seconds, str) and re.fullmatch(r"[0-9]{1,12}", seconds, re.ASCII):
        seconds = int(seconds)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    if not 0 < seconds <= LONGEST_LIFE:  # nor is "not a number"
        return None
    return began + timedelta(seconds=seconds)


def _scopes(told: object, separator: str) -> tuple[str, ...]:
    parts = cast("list[object]", told) if isinstance(told, list) else [told]
    return tuple(
        scope
        for part in parts
        if isinstance(part, str)
        for piece in part.split(separator)
        for scope in piece.split()
        if _is_text(scope)
    )


def _texts(fields: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for name, value in fields.items():
        if not path and name in USED:
            continue
        if isinstance(value, str):
            if len(value) <= LONGEST_TEXT and _is_text(path + name + value):
                yield path + name, value
        elif isinstance(value, dict) and path.count(".") < DEEPEST:
            yield from _texts(cast("dict[str, Any]", value), f"{path}{name}.")


def _is_text(value: str) -> bool:
    """JSON may spell half a surrogate pair, which cannot be stored."""
    return not re.search("[\ud800-\udfff]", value)
