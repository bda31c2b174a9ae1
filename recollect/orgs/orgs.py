"""Organisations, their plan, and API keys."""

import hashlib
import re
import secrets
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from recollect import log
from recollect.db import Tx
from recollect.errors import AuthenticationError, BadRequestError, ConflictError, NotFoundError
from recollect.model import Key, KeyId, Org, OrgId, Page, Plan, Scope, random_id
from recollect.orgs import audit

LOG = log.get("orgs")
DEFAULT = "default"
NAMED = "RECOLLECT_API_KEY"
"""The name of the key that the settings name."""
LONGEST_LIFE = timedelta(days=3_650)
_SPAN = re.compile(r"([0-9]{1,7})([mhd]?)", re.ASCII)
_UNITS = {
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "": timedelta(days=1),
}
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_OURS = re.compile(r"sm_([0-9a-f]{12})_([0-9A-Za-z]{43})([0-9A-Za-z]{6})")
_ORG = "o.id as org_id, o.name as org_name, o.plan, o.created_at as org_created_at"
OPENS = "k.revoked_at is null and (k.expires_at is null or k.expires_at > now())"
"""Whether a row of `keys k` opens anything."""
SESSION = timedelta(hours=12)
"""How long one who signed in to the console stays so."""
LINK = timedelta(minutes=2)
"""How long a link that signs in to the console can be used."""
_KEY = (
    "k.id, k.name, k.scope, k.tags, k.created_at, k.expires_at, k.revoked_at,"
    " k.rate_limit, k.rate_window, "
) + _ORG


@dataclass(frozen=True, slots=True)
class Limit:
    """So many requests in each window of time."""

    requests: int
    window: timedelta = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Usage:
    """What a key used of its limit, this request included; `rest` of the window is still to go."""

    limit: Limit
    used: int
    rest: timedelta


def create(tx: Tx, name: str, plan: Plan) -> Org:
    """A new organisation; raises ConflictError when the name is taken."""
    if not 1 <= len(name) <= 100 or not name.isprintable():
        raise BadRequestError("name: 1 to 100 printable characters")
    row = tx.execute(
        "insert into orgs (id, name, plan) values (%s, %s, %s) on conflict (name) do nothing"
        " returning id as org_id, name as org_name, plan, created_at as org_created_at",
        (random_id(), name, plan),
    ).fetchone()
    if row is None:
        raise ConflictError("Organisation exists", f"there is an organisation {name!r} already")
    org = _org(row)
    audit.record(tx, "org.created", org.id, org=org.id, plan=plan)
    return org


def find(tx: Tx, name: str) -> Org:
    """The organisation of that name; raises NotFoundError."""
    row = tx.execute(
        "select " + _ORG + " from orgs o where o.name = %s and not o.hidden", (name,)
    ).fetchone()
    if row is None:
        raise NotFoundError("Organisation not found", f"no organisation {name!r}")
    return _org(row)


def list_all(tx: Tx) -> list[Org]:
    return [
        _org(row)
        for row in tx.execute(
            "select " + _ORG + " from orgs o where not o.hidden order by o.created_at"
        )
    ]


def plan(tx: Tx, id: OrgId) -> Plan:
    """Raises NotFoundError."""
    row = tx.execute("select plan from orgs where id = %s", (id,)).fetchone()
    if row is None:
        raise NotFoundError("Organisation not found")
    return Plan(row["plan"])


def change_plan(tx: Tx, name: str, plan: Plan) -> Org:
    org = find(tx, name)
    tx.execute("update orgs set plan = %s where id = %s", (plan, org.id))
    audit.record(tx, "org.plan_changed", org.id, org=org.id, plan=plan)
    return find(tx, name)


def create_key(
    tx: Tx,
    org: OrgId,
    *,
    name: str = "",
    scope: Scope = Scope.ADMIN,
    tags: Sequence[str] | None = None,
    expires_at: datetime | None = None,
    secret: str | None = None,
    limit: Limit | None = None,
) -> tuple[Key, str]:
    """A key and its secret, which is not stored; `secret` takes a string of the operator's."""
    id_, generated = _generate()
    secret = secret or generated
    tx.execute(
        "insert into keys (id, org_id, name, hash, scope, tags, expires_at, rate_limit,"
        " rate_window) values (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
        (
            id_,
            org,
            name,
            _hash(secret),
            scope,
            list(tags) if tags else None,
            expires_at,
            limit and limit.requests,
            limit and limit.window,
        ),
    )
    row = tx.execute(
        "select " + _KEY + " from keys k join orgs o on o.id = k.org_id where k.id = %s", (id_,)
    ).fetchone()
    assert row is not None
    audit.record(tx, "key.created", id_, org=org, scope=scope, limited=bool(tags))
    return _key(row), secret


def list_keys(tx: Tx, org: OrgId | None = None) -> list[Key]:
    rows = tx.execute(
        "select " + _KEY + " from keys k join orgs o on o.id = k.org_id"
        " where %(org)s::text is null or k.org_id = %(org)s order by k.created_at",
        {"org": org},
    )
    return [_key(row) for row in rows]


def browse_keys(tx: Tx, org: OrgId, *, limit: int, page: int) -> Page[Key]:
    """One page of the organisation's keys: those that open something first, then the newest."""
    counted = tx.execute("select count(*) as n from keys where org_id = %s", (org,)).fetchone()
    rows = tx.execute(
        "select " + _KEY + " from keys k join orgs o on o.id = k.org_id where k.org_id = %s"
        " order by k.revoked_at is not null or coalesce(k.expires_at <= now(), false),"
        " k.created_at desc, k.id limit %s offset %s",
        (org, limit, (page - 1) * limit),
    ).fetchall()
    return Page([_key(row) for row in rows], counted["n"] if counted else 0, page, limit)


def find_key(tx: Tx, org: OrgId, id: KeyId) -> Key:
    """One of the organisation's keys, also one that is no longer valid; raises
    NotFoundError."""
    row = tx.execute(
        "select " + _KEY + " from keys k join orgs o on o.id = k.org_id"
        " where k.id = %s and k.org_id = %s",
        (id, org),
    ).fetchone()
    if row is None:
        raise NotFoundError("Key not found", f"no key {id}")
    return _key(row)


def revoke_key(tx: Tx, id: KeyId, org: OrgId | None = None, *, scoped: bool = False) -> None:
    """From the commit on, the key is not valid, and everything that it opened ends: sessions,
    streams, signed addresses, links to authorize. Raises NotFoundError.

    `scoped`: only a key that is limited to container tags.
    """
    done = tx.execute(
        "update keys set revoked_at = coalesce(revoked_at, now())"
        " where id = %(id)s and (%(org)s::text is null or org_id = %(org)s)"
        " and (tags is not null or not %(scoped)s) returning org_id",
        {"id": id, "org": org, "scoped": scoped},
    ).fetchone()
    if done is None:
        raise NotFoundError("Key not found", f"no key {id}")
    audit.record(tx, "key.revoked", id, org=OrgId(done["org_id"]))


def authenticate(tx: Tx, secret: str) -> Key:
    """The key behind a secret; raises AuthenticationError, with one answer for every reason.

    The secret is looked up by its SHA-256, so the time of the comparison reveals nothing.
    """
    row = tx.execute(
        "select " + _KEY + " from keys k join orgs o on o.id = k.org_id"
        " where k.hash = %s and " + OPENS,
        (_hash(secret),),
    ).fetchone()
    if row is None:
        raise AuthenticationError
    return _key(row)


def note_wrong(tx: Tx, secret: str) -> None:
    """Record a refused secret; if its public id is that of a key, whose key it is.

    One row a minute and address, so that guessing cannot fill the record.
    """
    if not audit.is_news(tx, "sign_in.failed"):
        return
    match = _OURS.fullmatch(secret)
    row = match and tx.execute("select id, org_id from keys where id = %s", (match[1],)).fetchone()
    id, org = (row["id"], OrgId(row["org_id"])) if row else (None, None)
    audit.record(tx, "sign_in.failed", id, org=org, result=audit.REFUSED)


def key(tx: Tx, id: KeyId) -> Key:
    """The key of that id, for what was opened with its secret: streams, signed addresses.

    Raises AuthenticationError, with one answer, when it is unknown, revoked or expired.
    """
    row = tx.execute(
        "select " + _KEY + " from keys k join orgs o on o.id = k.org_id"
        " where k.id = %s and " + OPENS,
        (id,),
    ).fetchone()
    if row is None:
        raise AuthenticationError
    return _key(row)


def sign_in(tx: Tx, key: KeyId) -> str:
    """Open a session of the console; returns what the browser keeps of it, which is not stored
    here.
    """
    row = tx.execute("select org_id from keys where id = %s", (key,)).fetchone()
    if row is not None:
        audit.act_as(key, OrgId(row["org_id"]))
        audit.record(tx, "sign_in.done", key)
    return _open(tx, key, SESSION, once=False)


def link(tx: Tx, key: KeyId) -> str:
    """A token that `redeem` takes once, for two minutes."""
    return _open(tx, key, LINK, once=True)


def redeem(tx: Tx, token: str) -> str:
    """Sign in by the token of a `link`, as `sign_in` does. Raises AuthenticationError."""
    row = tx.execute(
        "delete from sessions s using keys k where s.id = %s and s.once and s.expires_at > now()"
        " and k.id = s.key_id and " + OPENS + " returning k.id",
        (_hash(token),),
    ).fetchone()
    if row is None:
        raise AuthenticationError
    return sign_in(tx, row["id"])


def _open(tx: Tx, key: KeyId, lifetime: timedelta, *, once: bool) -> str:
    token = secrets.token_urlsafe(32)
    tx.execute("delete from sessions where expires_at < now()")
    tx.execute(
        "insert into sessions (id, key_id, expires_at, once) values (%s, %s, now() + %s, %s)",
        (_hash(token), key, lifetime, once),
    )
    return token


def signed_in(tx: Tx, token: str) -> Key:
    """The key behind a session; raises AuthenticationError, with one answer for every reason."""
    row = tx.execute(
        "select " + _KEY + " from sessions s join keys k on k.id = s.key_id"
        " join orgs o on o.id = k.org_id"
        " where s.id = %s and not s.once and s.expires_at > now() and " + OPENS,
        (_hash(token),),
    ).fetchone()
    if row is None:
        raise AuthenticationError
    return _key(row)


def sign_out(tx: Tx, token: str, *, everywhere: bool = False) -> None:
    """End the session. `everywhere`: and all others that its key opened."""
    tx.execute(
        "delete from sessions s where s.id = %(id)s"
        " or (%(everywhere)s and s.key_id = (select key_id from sessions where id = %(id)s))",
        {"id": _hash(token), "everywhere": everywhere},
    )


def charge(tx: Tx, key: KeyId, default: Limit | None) -> Usage | None:
    """Count a request against the key's own limit, else the default; None when it has neither."""
    row = tx.execute(
        "insert into key_usage as u (key_id, allowed, length, started_at, used)"
        " select k.id, coalesce(k.rate_limit, %(requests)s), coalesce(k.rate_window, %(window)s),"
        "        now(), 1"
        " from keys k where k.id = %(key)s and coalesce(k.rate_limit, %(requests)s) is not null"
        " on conflict (key_id) do update set allowed = excluded.allowed, length = excluded.length,"
        " started_at = case when u.started_at + excluded.length <= now() then now()"
        "                   else u.started_at end,"
        " used = case when u.started_at + excluded.length <= now() then 1 else u.used + 1 end"
        " returning allowed, length, used, started_at + length - now() as rest",
        {
            "key": key,
            "requests": default and default.requests,
            "window": default.window if default else timedelta(minutes=1),
        },
    ).fetchone()
    if row is None:
        return None
    return Usage(Limit(row["allowed"], row["length"]), row["used"], row["rest"])


def ensure_default(tx: Tx, *, plan: Plan, secret: str | None) -> str | None:
    """Make sure there is a default organisation, and that `secret` opens it.

    Returns the secret of a key made now, or None when nothing new was needed.
    """
    tx.execute("select pg_advisory_xact_lock(hashtextextended('recollect.default', 0))")
    row = tx.execute("select id from orgs where name = %s", (DEFAULT,)).fetchone()
    org = create(tx, DEFAULT, plan).id if row is None else OrgId(row["id"])
    tx.execute("update orgs set plan = %s where id = %s and plan <> %s", (plan, org, plan))
    if secret is not None:
        _ensure_key(tx, org, secret)
        return None
    any_key = tx.execute("select 1 from keys where org_id = %s limit 1", (org,)).fetchone()
    return None if any_key else create_key(tx, org, name="first boot")[1]


def _ensure_key(tx: Tx, org: OrgId, secret: str) -> None:
    """Make sure that there is such a key. Warn if it is not valid, and of earlier ones that are."""
    known = tx.execute(
        "select k.id, k.hash = %(hash)s as given, " + OPENS + " as opens from keys k"
        " where k.hash = %(hash)s or k.org_id = %(org)s and k.name = %(name)s"
        " order by k.created_at",
        {"hash": _hash(secret), "org": org, "name": NAMED},
    ).fetchall()
    given = next((row for row in known if row["given"]), None)
    if given is None:
        create_key(tx, org, name=NAMED, secret=secret)
    elif not given["opens"]:
        reason = f"{NAMED} names a key that was revoked or has expired: set another"
        LOG.warning("key does not open", key=given["id"], reason=reason)
    for row in known:
        if row["opens"] and not row["given"]:
            reason = f"{NAMED} was this one before; `recollect keys revoke {row['id']}` ends it"
            LOG.warning("earlier key still opens", key=row["id"], reason=reason)


def expiry(written: str, now: datetime, *, most: timedelta = LONGEST_LIFE) -> datetime:
    """When a key made now ends that lives for `90m`, `2h` or `30d` (a bare number counts days), or
    until a date (its beginning, in UTC) or a time of ISO 8601. Raises BadRequestError."""
    text = written.strip()
    try:
        if span := _SPAN.fullmatch(text):
            end = now + int(span[1]) * _UNITS[span[2]]
        else:
            given = datetime.fromisoformat(text)
            end = given if given.tzinfo else given.replace(tzinfo=UTC)
        if now < end <= now + most:
            return end.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise BadRequestError(
        "expires: how long (90m, 2h, 30d; a bare number counts days) or until when (2027-01-31,"
        " 2027-01-31T18:00+01:00; UTC unless it says otherwise),"
        f" within {most.days:,} days from now"
    )


def well_formed(secret: str) -> bool:
    """Whether a secret that looks like one of ours has the right checksum (any other passes)."""
    match = _OURS.fullmatch(secret)
    return match is None or _checksum(f"sm_{match[1]}_{match[2]}") == match[3]


def _generate() -> tuple[KeyId, str]:
    # sm_ + public id + 256 random bits + CRC32, so that a scanner for leaked keys can be exact.
    id_ = secrets.token_hex(6)
    body = f"sm_{id_}_{_base62(int.from_bytes(secrets.token_bytes(32)), 43)}"
    return KeyId(id_), body + _checksum(body)


def _checksum(body: str) -> str:
    return _base62(zlib.crc32(body.encode()), 6)


def _base62(number: int, width: int) -> str:
    digits: list[str] = []
    for _ in range(width):
        number, digit = divmod(number, 62)
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _org(row: dict[str, Any]) -> Org:
    return Org(OrgId(row["org_id"]), row["org_name"], Plan(row["plan"]), row["org_created_at"])


def _key(row: dict[str, Any]) -> Key:
    return Key(
        id=KeyId(row["id"]),
        org=_org(row),
        name=row["name"],
        scope=Scope(row["scope"]),
        tags=row["tags"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        revoked_at=row["revoked_at"],
        rate_limit=row["rate_limit"],
        rate_window=row["rate_window"],
    )
