"""Registrations for pushes, the secrets of applications that push, and revocations to providers."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from psycopg.types.json import Jsonb

from recollect import db, encryption
from recollect.connectors.pushes import PushResult, Registration
from recollect.db import Tx, leases
from recollect.errors import NotFoundError
from recollect.model import (
    Connection,
    ConnectionId,
    OrgId,
    Trigger,
    storable,
)
from recollect.orgs import audit
from recollect.sync.connections import COLUMNS, read_row, want

PUSH_MEMORY = timedelta(days=7)
NOW = timedelta()


@dataclass(frozen=True, slots=True)
class StoredRegistration:
    """A registration whose secret is still sealed."""

    registration: Registration
    sealed: str = field(repr=False)
    answered: bool
    retired: bool
    error: str | None

    def opened(self, secret: str) -> Registration:
        return replace(self.registration, secret=secret)


def registered(tx: Tx, connection: ConnectionId) -> list[StoredRegistration]:
    """All of a connection, the newest first; those that the provider never answered, too."""
    rows = tx.execute(
        "select * from registrations where connection_id = %s order by created_at desc, id",
        (connection,),
    )
    return [_registration(row) for row in rows]


def registration(tx: Tx, id: str) -> tuple[StoredRegistration, Connection] | None:
    """The one of that id, with its connection; None when it is not ours any more."""
    row = tx.execute("select * from registrations where id = %s", (id,)).fetchone()
    if row is None:
        return None
    found = tx.execute(
        "select " + COLUMNS + " from connections c where c.id = %s", (row["connection_id"],)
    ).fetchone()
    return None if found is None else (_registration(row), read_row(found))


def add_registration(
    tx: Tx, id: str, connection: ConnectionId, resource: str, *, secret: str, url: str
) -> None:
    """Before the provider is asked, since its handshake may come before its answer.

    Should we be cut off before that answer, it is made again. Raises NotFoundError when its
    connection is gone.
    """
    done = tx.execute(
        "insert into registrations (id, connection_id, resource, secret, url, renew_at)"
        " select %s, c.id, %s, %s, %s, now() + interval '10 minutes'"
        " from connections c where c.id = %s for key share",
        (id, resource, secret, url, connection),
    )
    if not done.rowcount:
        raise NotFoundError("Connection not found", f"no connection {connection!r}")


def keep_registration(
    tx: Tx, id: str, *, remote: Mapping[str, Any], expires_at: datetime | None
) -> list[StoredRegistration] | None:
    """The provider took it, to be made again at half its life; returns those that it replaces, None
    if its connection was deleted meanwhile."""
    row = tx.execute(
        "update registrations set remote = %s, expires_at = %s, error = null, attempts = 0,"
        # Somewhat before it, so that those that began together drift apart.
        " renew_at = now() + (%s::timestamptz - now()) * (0.5 - 0.05 * random()) where id = %s"
        " returning connection_id, resource",
        (Jsonb(dict(remote)), expires_at, expires_at, id),
    ).fetchone()
    if row is None:
        return None
    rows = tx.execute(
        "update registrations set retired = true, renew_at = null where connection_id = %s"
        " and resource = %s and id <> %s returning *",
        (row["connection_id"], row["resource"], id),
    )
    return [_registration(old) for old in rows]


def drop_registrations(tx: Tx, ids: Sequence[str]) -> None:
    tx.execute("delete from registrations where id = any(%s)", (list(ids),))


def retire(tx: Tx, ids: Sequence[str]) -> None:
    """They count for nothing, until another one of their resource replaces them."""
    tx.execute(
        "update registrations set retired = true, renew_at = null where id = any(%s)", (list(ids),)
    )


def refuse_registration(tx: Tx, id: str, reason: str, again: timedelta) -> None:
    """The provider did not take it; tried again after `again`."""
    tx.execute(
        "update registrations set error = %s, attempts = attempts + 1, renew_at = now() + %s"
        " where id = %s",
        (storable(reason)[:500], again, id),
    )


def due_registrations(tx: Tx, limit: int = 20) -> list[StoredRegistration]:
    """Those that want to be made again; nobody else takes them for ten minutes. One whose next is
    under way, or was refused, has that tried in its place."""
    rows = tx.execute(
        "with due as materialized (select g.id from registrations g"
        "  join connections c on c.id = g.connection_id"
        "  where g.renew_at <= now() and not g.retired and c.state in ('ready', 'syncing')"
        "  and (g.remote is null or not exists (select from registrations o"
        "   where o.connection_id = g.connection_id and o.resource = g.resource"
        "   and o.remote is null and not o.retired))"
        "  order by g.renew_at limit %s for update of g skip locked)"
        " update registrations g set renew_at = now() + interval '10 minutes'"
        " from due where g.id = due.id returning g.*",
        (limit,),
    )
    return [_registration(row) for row in rows]


def first_push(tx: Tx, provider: str, key: str) -> bool:
    """Whether no push with that key came within a week."""
    done = tx.execute(
        "insert into pushes (provider, key) values (%s, %s) on conflict do nothing",
        (provider, key[:500]),  # 2,000 bytes at most: an index holds it
    )
    return done.rowcount == 1


def take_push(
    tx: Tx, provider: str, notice: PushResult, concerned: ConnectionId | None = None
) -> int:
    """A verified notice arrived, whichever way: have what it concerns synced, once.

    `concerned`: the connection of the registration that it came by. Returns how many will be.
    """
    if notice.key is not None:
        # GitHub tells all webhooks of an event by one id, and nobody's may take another's away.
        key = notice.key if concerned is None else f"{concerned}:{notice.key}"
        if not first_push(tx, provider, key):
            return 0
    found = [concerned] if notice.concerned and concerned is not None else []
    if notice.accounts or notice.addresses:
        found += of_account(tx, provider, notice.accounts, notice.addresses)
    return want(tx, found, Trigger.EVENT) if found else 0


def suspend(tx: Tx, provider: str, reason: str, *, again: timedelta) -> int:
    """No notice of this provider can arrive: its connections are synced within `again`, and until
    `resume` their registrations count for nothing; how many did count."""
    rows = tx.execute(
        "update registrations g set remote = null, error = %(reason)s, renew_at = null"
        " from connections c where c.id = g.connection_id and c.provider = %(provider)s"
        " and not g.retired and (g.remote is not null"
        "   or (g.renew_at is null and g.error is distinct from %(reason)s))"
        " returning c.id",
        {"provider": provider, "reason": storable(reason)[:500]},
    ).fetchall()
    tx.execute(
        "update connections set due_at = least(due_at, now() + %s)"
        " where id = any(%s) and state = 'ready' and due_at is not null",
        (again, [row["id"] for row in rows]),
    )
    return len(rows)


def resume(tx: Tx, provider: str) -> int:
    """They can again: what was suspended is registered again, and a sync follows; how many are."""
    done = tx.execute(
        "update registrations g set renew_at = now() from connections c"
        " where c.id = g.connection_id and c.provider = %s and not g.retired"
        " and g.remote is null and g.renew_at is null",
        (provider,),
    )
    return done.rowcount


def of_account(
    tx: Tx, provider: str, accounts: Sequence[str], addresses: Sequence[str]
) -> list[ConnectionId]:
    """Connections of any organisation that these accounts authorized. A name proves nothing: people
    choose those of workspaces."""
    rows = tx.execute(
        "select id from connections where provider = %s"
        " and (account = any(%s) or fold_case(email) = any(%s)) order by id",
        (provider, list(accounts), [address.lower() for address in addresses]),
    )
    return [ConnectionId(row["id"]) for row in rows]


def authorized_by(
    tx: Tx, account: str | None, providers: Sequence[str], *, besides: Collection[ConnectionId]
) -> list[tuple[OrgId, str]]:
    """Organisation and provider of the other connections that exactly this account authorized."""
    rows = tx.execute(
        "select distinct org_id, provider from connections"
        " where account = %s and provider = any(%s) and id <> all(%s)",
        (account, list(providers), list(besides)),
    )
    return [(OrgId(row["org_id"]), row["provider"]) for row in rows]


def sweep(tx: Tx) -> None:
    """Forget keys of old pushes and links that nobody followed."""
    tx.execute("delete from pushes where came_at < now() - %s", (PUSH_MEMORY,))
    tx.execute("delete from authorizations where expires_at < now()")


@dataclass(frozen=True, slots=True)
class HookSecret:
    """A verification token that a provider sent; it proves pushes once it is confirmed."""

    provider: str
    hash: bytes
    sealed: str = field(repr=False)
    came_at: datetime
    confirmed: bool


PENDING_KEPT = 5
"""Unconfirmed tokens of a provider: anybody may send some."""


def keep_hook_secret(tx: Tx, provider: str, hash: bytes, sealed: str) -> None:
    """As pending; it never replaces one that is confirmed."""
    tx.execute(
        "insert into hook_secrets (provider, hash, secret) values (%s, %s, %s)"
        " on conflict do nothing",
        (provider, hash, sealed),
    )
    tx.execute(
        "delete from hook_secrets where provider = %(provider)s and confirmed_at is null"
        " and hash not in (select hash from hook_secrets where provider = %(provider)s"
        "  and confirmed_at is null order by came_at desc limit %(kept)s)",
        {"provider": provider, "kept": PENDING_KEPT},
    )


def hook_secrets(tx: Tx, provider: str | None = None) -> list[HookSecret]:
    """The newest first."""
    rows = tx.execute(
        "select * from hook_secrets where %(provider)s::text is null or provider = %(provider)s"
        " order by came_at desc, hash",
        {"provider": provider},
    )
    return [
        HookSecret(
            row["provider"],
            row["hash"],
            row["secret"],
            row["came_at"],
            row["confirmed_at"] is not None,
        )
        for row in rows
    ]


def confirm_hook_secret(tx: Tx, provider: str, hash: bytes) -> None:
    """From now on it alone proves the provider's pushes; raises NotFoundError."""
    done = tx.execute(
        "update hook_secrets set confirmed_at = now() where provider = %s and hash = %s",
        (provider, hash),
    )
    if done.rowcount == 0:
        raise NotFoundError("Token not found", f"{provider} sent no such token")
    tx.execute("delete from hook_secrets where provider = %s and hash <> %s", (provider, hash))
    audit.record(tx, "hook_token.confirmed", provider)


def reseal(tx: Tx, keys: Sequence[bytes]) -> int:
    """Seal with the newest key the tokens and the revocations that older ones sealed; how many."""
    done = 0
    for row in tx.execute("select provider, hash, secret from hook_secrets for update").fetchall():
        again = encryption.again(keys, row["secret"], place=(row["provider"], "hook"))
        if again is not None:
            tx.execute(
                "update hook_secrets set secret = %s where provider = %s and hash = %s",
                (again, row["provider"], row["hash"]),
            )
            done += 1
    for row in tx.execute("select id, sealed from farewells for update").fetchall():
        again = encryption.again(keys, row["sealed"], place=("farewell", row["id"]))
        if again is not None:
            tx.execute("update farewells set sealed = %s where id = %s", (again, row["id"]))
            done += 1
    return done


@dataclass(frozen=True, slots=True)
class Revocation:
    """What is still to be taken back at a provider after a connection ended."""

    id: str
    provider: str
    sealed: str = field(repr=False)
    attempts: int


def say_later(tx: Tx, provider: str, id: str, sealed: str, *, after: timedelta = NOW) -> None:
    tx.execute(
        "insert into farewells (id, provider, sealed, due_at) values (%s, %s, %s, now() + %s)",
        (id, provider, sealed, after),
    )
    db.notify(tx)


def revocations(tx: Tx, provider: str) -> list[Revocation]:
    """All that wait, locked."""
    rows = tx.execute(
        "select id, provider, sealed, attempts from farewells where provider = %s"
        " order by id for update",
        (provider,),
    )
    return [Revocation(r["id"], r["provider"], r["sealed"], r["attempts"]) for r in rows]


def change_revocation(tx: Tx, id: str, sealed: str, *, now: bool) -> None:
    tx.execute(
        "update farewells set sealed = %s, due_at = case when %s then now() else due_at end"
        " where id = %s",
        (sealed, now, id),
    )
    db.notify(tx)


def due_revocations(tx: Tx, limit: int = 10) -> list[Revocation]:
    """Those that are due; each is tried again after a while, unless it is dropped meanwhile."""
    tx.execute("delete from farewells where expires_at < now()")
    rows = tx.execute(
        "with due as materialized (select id from farewells where due_at <= now()"
        "  order by due_at limit %s for update skip locked)"
        " update farewells f set attempts = f.attempts + 1,"
        " due_at = now() + "
        + leases.backoff("f.attempts", "interval '1 minute'", "interval '256 minutes'")
        + " from due where f.id = due.id returning f.id, f.provider, f.sealed, f.attempts",
        (limit,),
    )
    return [Revocation(r["id"], r["provider"], r["sealed"], r["attempts"]) for r in rows]


def drop_revocation(tx: Tx, id: str) -> None:
    tx.execute("delete from farewells where id = %s", (id,))


def _registration(row: Mapping[str, Any]) -> StoredRegistration:
    return StoredRegistration(
        Registration(
            id=row["id"],
            connection_id=ConnectionId(row["connection_id"]),
            resource=row["resource"],
            secret="",
            url=row["url"],
            remote=row["remote"] or {},
            expires_at=row["expires_at"],
        ),
        sealed=row["secret"],
        answered=row["remote"] is not None,
        retired=row["retired"],
        error=row["error"],
    )
