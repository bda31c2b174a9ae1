"""Assistants that were connected by OAuth: clients, what a key allowed them, and their tokens.

An assistant never may more than the key that allowed it, and ends with that key.
"""

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, cast
from urllib.parse import SplitResult, urlsplit

from recollect.db import Tx
from recollect.errors import (
    AuthenticationError,
    BadRequestError,
    NotFoundError,
    PermissionDeniedError,
    RequestError,
)
from recollect.model import Key, KeyId, OrgId, Scope, random_id
from recollect.orgs import audit, orgs

ACCESS, REFRESH, CODE = timedelta(hours=1), timedelta(days=60), timedelta(minutes=1)
PREFIX = "oat_"
"""Access tokens begin so, and no key of ours does."""
MOST_CLIENTS = 1_000
"""Registered programs that nobody has allowed anything; the oldest are forgotten, but for young
ones: a person may be about to allow them, and a program that registers many times must not push
them out.
"""
UNUSED = timedelta(days=1)
"""How long such a registration is kept."""
YOUNG = timedelta(hours=1)
MOST_YOUNG = 5_000
"""Such registrations, the young ones included, however they came."""
MOST_OF_KEY = 100
"""Assistants that one key lets in: a list that nobody can read hides the one that counts."""
TOGETHER = timedelta(seconds=10)
"""How long a refresh token gives further tokens: the SDKs for TypeScript renew once for each call
that was under way when the access token ended."""
MOST_TOGETHER = 20
"""Refresh tokens of an assistant that count at a time; the newest ones."""
MOST_SPENT = 1_500
"""Used tokens of an assistant that are known when they come back: one an hour for as long as they
could. A program that renews without end does not fill the table."""
MOST_REDIRECTS = 10
LONGEST = 2_000
"""Characters of a redirect address."""
LONGEST_NAME = 100
_ASKS = (
    "exists (select 1 from assistant_tokens t where t.assistant_id = a.id and t.spent_at is null"
    " and t.expires_at > now())"
)
"""Of assistants `a`: those that can still ask."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")
_HOST = re.compile(r"(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9._-]+)(:[0-9]+)?")
"""What stands in an https or http address, with nothing that parsers read differently."""
_REDIRECT = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9\-._~:/?\[\]@!$&()*+=%]+")
_NEVER = frozenset(
    [
        "javascript",
        "data",
        "vbscript",
        "file",
        "blob",
        "about",
        "filesystem",
        "view-source",
        "chrome",
        "intent",
        "ftp",
        "ws",
        "wss",
        "mailto",
        "tel",
        "sms",
    ]
)
_VERIFIER = re.compile(r"[A-Za-z0-9\-._~]{43,128}")
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")


class OAuthError(RequestError):
    """What the RFCs name: `code` is theirs, such as `invalid_grant`."""

    def __init__(self, code: str, description: str, status: int = 400) -> None:
        super().__init__(code, description)
        self.code, self.description, self.status = code, description, status


@dataclass(frozen=True, slots=True)
class RegisteredProgram:
    """A program as it described itself: its name is its own claim."""

    id: str
    name: str
    redirect_uris: list[str]
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Assistant:
    """A program that a key let in; its name is its own claim."""

    id: str
    org: str
    """The name of the organisation."""
    key_id: KeyId
    name: str
    scope: Scope
    tags: list[str] | None
    created_at: datetime
    last_used_at: datetime | None


@dataclass(frozen=True, slots=True)
class TokenPair:
    access: str
    refresh: str
    scope: Scope


def register(tx: Tx, name: object, redirect_uris: object) -> RegisteredProgram:
    """Raises OAuthError."""
    given = cast("list[object]", redirect_uris) if isinstance(redirect_uris, list) else []
    if not 1 <= len(given) <= MOST_REDIRECTS:
        raise OAuthError("invalid_redirect_uri", f"redirect_uris: 1 to {MOST_REDIRECTS} addresses")
    uris = [str(one) for one in given]
    for uri in uris:
        check_redirect(uri)
    told = name if isinstance(name, str) else ""
    shown = "".join(c for c in told if c.isprintable())[:LONGEST_NAME].strip() or "Unnamed"
    _forget_unused(tx)
    row = tx.execute(
        "insert into oauth_clients (id, name, redirect_uris) values (%s, %s, %s) returning *",
        (random_id(), shown, uris),
    ).fetchone()
    assert row is not None
    return RegisteredProgram(**row)


def _forget_unused(tx: Tx) -> None:
    unused = "not exists (select 1 from assistants a where a.client_id = c.id)"
    # Locked before it is asked again: `allow` may be about to use one.
    rows = tx.execute(
        f"select id from oauth_clients c where {unused} and (created_at < now() - %(unused)s"
        f" or id in (select id from oauth_clients c where {unused} order by created_at desc"
        "  offset %(most_young)s)"
        f" or created_at < now() - %(young)s and id in (select id from oauth_clients c"
        f"  where {unused} order by created_at desc offset %(most)s)) for update skip locked",
        {
            "unused": UNUSED,
            "young": YOUNG,
            "most_young": MOST_YOUNG - 1,
            "most": MOST_CLIENTS - 1,
        },
    ).fetchall()
    old = [row["id"] for row in rows]
    tx.execute(f"delete from oauth_clients c where id = any(%s) and {unused}", (old,))


def client(tx: Tx, id: str) -> RegisteredProgram:
    """Raises OAuthError."""
    row = tx.execute("select * from oauth_clients where id = %s", (id,)).fetchone()
    if row is None:
        raise OAuthError("invalid_client", "client_id: not registered here; register again", 401)
    return RegisteredProgram(**row)


def check_redirect(uri: str) -> SplitResult:
    """https, http of this machine, or a scheme of a native app; raises OAuthError."""
    try:
        parts = urlsplit(uri) if len(uri) <= LONGEST and _REDIRECT.fullmatch(uri) else None
        host = parts and parts.hostname
        if parts is not None and parts.port == 0:
            parts = None
    except ValueError:
        parts, host = None, None
    if parts is not None and "@" not in parts.netloc:
        native = "." in parts.scheme or parts.netloc
        if (
            (parts.scheme == "https" and _HOST.fullmatch(parts.netloc))
            or (parts.scheme == "http" and _HOST.fullmatch(parts.netloc) and host in LOOPBACK)
            or (parts.scheme not in _NEVER | {"http", "https"} and native)
        ):
            return parts
    raise OAuthError(
        "invalid_redirect_uri",
        "redirect_uri: https, http://127.0.0.1 or an app's own scheme, without user or fragment",
    )


def may_redirect(known: RegisteredProgram, uri: str) -> bool:
    """Whether the client registered it; the port of a loopback address is free (RFC 8252)."""
    if uri in known.redirect_uris:
        return True
    try:
        parts = check_redirect(uri)
    except OAuthError:
        return False
    if parts.scheme != "http":
        return False
    asked = (parts.hostname, parts.path, parts.query)
    ours = [urlsplit(one) for one in known.redirect_uris]
    return any(
        one.scheme == "http" and (one.hostname, one.path, one.query) == asked for one in ours
    )


def check_challenge(challenge: str, method: str) -> None:
    """Raises OAuthError: only S256 of RFC 7636 will do."""
    if method != "S256" or not _CHALLENGE.fullmatch(challenge):
        raise OAuthError("invalid_request", "code_challenge with code_challenge_method=S256")


def allow(
    tx: Tx,
    key: Key,
    known: RegisteredProgram,
    *,
    scope: Scope,
    tags: Sequence[str] | None,
    redirect_uri: str,
    challenge: str,
) -> str:
    """The code for the client. Raises PermissionDeniedError for more than the key may do, and
    BadRequestError."""
    if scope is Scope.ADMIN or (scope is Scope.WRITE and key.scope is Scope.READ):
        raise PermissionDeniedError("Forbidden", "this key cannot grant more than it may do itself")
    wanted = list(tags) if tags else key.tags
    if key.tags is not None and not set(wanted or ()) <= set(key.tags):
        raise PermissionDeniedError("Forbidden", f"this key can only grant {', '.join(key.tags)}")
    if not may_redirect(known, redirect_uri):
        raise BadRequestError("redirect_uri: not one that the client registered")
    kept = tx.execute("select 1 from oauth_clients where id = %s for key share", (known.id,))
    if kept.fetchone() is None:
        raise BadRequestError("client_id: its registration was forgotten; connect it again")
    # Locked before it is counted, so that two at once do not pass the limit together.
    tx.execute("select 1 from keys where id = %s for update", (key.id,))
    # Those on no list, which nobody could revoke, take no place.
    tx.execute(f"delete from assistants a where key_id = %s and not {_ASKS}", (key.id,))
    row = tx.execute("select count(*) as n from assistants where key_id = %s", (key.id,)).fetchone()
    if row and row["n"] >= MOST_OF_KEY:
        raise BadRequestError(
            f"this key has connected {MOST_OF_KEY} assistants; revoke some, or use another key"
        )
    id = random_id()
    tx.execute(
        "insert into assistants (id, org_id, key_id, client_id, scope, tags)"
        " values (%s, %s, %s, %s, %s, %s)",
        (id, key.org.id, key.id, known.id, scope, wanted),
    )
    audit.record(tx, "assistant.allowed", id, org=key.org.id, scope=scope, limited=bool(wanted))
    return _issue(tx, id, "code", CODE, redirect_uri=redirect_uri, challenge=challenge)


def exchange(
    tx: Tx, code: str, *, client_id: str, redirect_uri: str | None, verifier: str
) -> TokenPair | None:
    """Tokens for a code, once. None: `invalid_grant`; a replay has ended what came of it, so
    commit. The address is OAuth 2.0's: OAuth 2.1 has none here, since the verifier proves more."""
    row = _locked(tx, code, "code", client_id)
    if row is None:
        return None
    digest = hashlib.sha256(verifier.encode("utf-8", "surrogatepass")).digest()
    told = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    proven = _VERIFIER.fullmatch(verifier) and hmac.compare_digest(told, row["challenge"])
    if not proven or redirect_uri not in (None, row["redirect_uri"]):
        return None
    return _renewed(tx, code, row)


def refresh(tx: Tx, token: str, *, client_id: str) -> TokenPair | None:
    """New tokens for a refresh token, once, or again within `TOGETHER`; else as `exchange`."""
    row = _locked(tx, token, "refresh", client_id)
    return None if row is None else _renewed(tx, token, row)


def revoke_token(tx: Tx, token: str, client_id: str | None) -> None:
    """RFC 7009: whichever token it is, all of the assistant's end. Unknown ones are no error."""
    row = tx.execute(
        "select a.id, a.org_id from assistant_tokens t join assistants a on a.id = t.assistant_id"
        " where t.hash = %s and (%s::text is null or a.client_id = %s)",
        (_hash(token), client_id, client_id),
    ).fetchone()
    if row is not None:
        with suppress(NotFoundError):  # somebody was faster
            revoke(tx, row["id"])


def revoke(tx: Tx, id: str, org: OrgId | None = None) -> None:
    """From the commit on its tokens open nothing. Raises NotFoundError."""
    done = tx.execute(
        "delete from assistants where id = %(id)s and (%(org)s::text is null or org_id = %(org)s)"
        " returning org_id",
        {"id": id, "org": org},
    ).fetchone()
    if done is None:
        raise NotFoundError("Assistant not found", f"no assistant {id}")
    audit.record(tx, "assistant.revoked", id, org=OrgId(done["org_id"]))


def authenticate(tx: Tx, token: str) -> Key:
    """The key behind an access token, narrowed to what it allowed; raises AuthenticationError."""
    row = tx.execute(
        "select a.key_id, a.scope, a.tags from assistant_tokens t"
        " join assistants a on a.id = t.assistant_id"
        " where t.hash = %s and t.kind = 'access' and t.expires_at > now()",
        (_hash(token),),
    ).fetchone()
    if row is None:
        raise AuthenticationError
    key = orgs.key(tx, KeyId(row["key_id"]))
    tags = row["tags"]
    if key.tags is not None:
        tags = [tag for tag in tags or key.tags if tag in key.tags]
        if not tags:
            raise AuthenticationError
    scope = Scope.READ if key.scope is Scope.READ else Scope(row["scope"])
    return replace(key, scope=scope, tags=tags)


def find(tx: Tx, org: OrgId | None = None) -> list[Assistant]:
    """Those that can still ask, the newest first."""
    rows = tx.execute(
        "select a.id, o.name as org, a.key_id, c.name, a.scope, a.tags, a.created_at,"
        " a.last_used_at from assistants a join oauth_clients c on c.id = a.client_id"
        " join orgs o on o.id = a.org_id join keys k on k.id = a.key_id"
        " where (%(org)s::text is null or a.org_id = %(org)s) and "
        + orgs.OPENS
        + " and "
        + _ASKS
        + " order by a.created_at desc, a.id limit 500",
        {"org": org},
    )
    return [
        Assistant(
            id=row["id"],
            org=row["org"],
            key_id=KeyId(row["key_id"]),
            name=row["name"],
            scope=Scope(row["scope"]),
            tags=row["tags"],
            created_at=row["created_at"],
            last_used_at=row["last_used_at"],
        )
        for row in rows
    ]


def _locked(tx: Tx, secret: str, kind: str, client_id: str) -> dict[str, Any] | None:
    """The row of a token that counts, which nobody else can use meanwhile. One that was used
    before, and not for a call at the same moment, was stolen, by whom is not known: its assistant
    ends."""
    # The assistant before its tokens, in the order in which its end takes them.
    tx.execute(
        "select 1 from assistants where client_id = %s and id ="
        " (select assistant_id from assistant_tokens where hash = %s) for update",
        (client_id, _hash(secret)),
    )
    row = tx.execute(
        "select t.*, t.expires_at > now() as counts, a.org_id, a.key_id, a.scope,"
        " kind = 'refresh' and spent_at > now() - %s as just_spent"
        " from assistant_tokens t"
        " join assistants a on a.id = t.assistant_id"
        " where t.hash = %s and t.kind = %s and a.client_id = %s for update",
        (TOGETHER, _hash(secret), kind, client_id),
    ).fetchone()
    if row is None:
        return None
    if row["spent_at"] is not None and not row["just_spent"]:
        revoke(tx, row["assistant_id"])
        return None
    try:
        orgs.key(tx, KeyId(row["key_id"]))
    except AuthenticationError:
        return None
    return row if row["counts"] else None


def _renewed(tx: Tx, secret: str, row: dict[str, Any]) -> TokenPair:
    id = row["assistant_id"]
    tx.execute(
        "update assistant_tokens set spent_at = coalesce(spent_at, now()) where hash = %s",
        (_hash(secret),),
    )
    tx.execute("update assistants set last_used_at = now() where id = %s", (id,))
    # Used ones are kept while they could come back, so that a replay is seen.
    tx.execute("delete from assistant_tokens where expires_at < now() - interval '1 day'")
    tx.execute(
        "delete from assistants a where created_at < now() - interval '1 day' and not exists"
        " (select 1 from assistant_tokens t where t.assistant_id = a.id)"
    )
    tx.execute(
        # Who has the new access token needs no other, but for those given at the same moment.
        "delete from assistant_tokens where assistant_id = %(id)s"
        " and (kind = 'access' and expires_at <= now() + %(fresh)s or hash in"
        " (select hash from assistant_tokens where assistant_id = %(id)s and spent_at is not null"
        " order by spent_at desc offset %(most)s) or hash in"
        " (select hash from assistant_tokens where assistant_id = %(id)s and spent_at is null"
        " and kind = 'refresh' order by expires_at desc offset %(together)s))",
        {
            "id": id,
            "fresh": ACCESS - TOGETHER,
            "most": MOST_SPENT,
            "together": MOST_TOGETHER - 1,
        },
    )
    return TokenPair(
        _issue(tx, id, "access", ACCESS, prefix=PREFIX),
        _issue(tx, id, "refresh", REFRESH),
        Scope(row["scope"]),
    )


def _issue(
    tx: Tx,
    assistant: str,
    kind: str,
    lifetime: timedelta,
    *,
    prefix: str = "",
    redirect_uri: str | None = None,
    challenge: str | None = None,
) -> str:
    token = prefix + secrets.token_urlsafe(32)
    tx.execute(
        "insert into assistant_tokens"
        " (hash, assistant_id, kind, redirect_uri, challenge, expires_at)"
        " values (%s, %s, %s, %s, %s, now() + %s)",
        (_hash(token), assistant, kind, redirect_uri, challenge, lifetime),
    )
    return token


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
