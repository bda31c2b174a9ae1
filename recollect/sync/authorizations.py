"""Links by which a person authorizes a connection, and the tokens that come of them."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from recollect import documents
from recollect.db import Tx
from recollect.db.leases import fenced
from recollect.errors import BadRequestError
from recollect.model import (
    Connection,
    ConnectionId,
    KeyId,
    OrgId,
    Tenant,
    storable,
)
from recollect.orgs import audit
from recollect.sync.connections import STANDS, get

AUTH_LINK_LIFE = timedelta(hours=1)
MOST_LINKS = 2_000
"""Each look at a connector that waits for its user makes one, and any of them may be followed."""
ACCOUNT_BYTES = 2_000
"""Of the id of an account at its provider: an index holds it."""


@dataclass(frozen=True, slots=True)
class Authorization:
    """A link that someone followed: which connection it was for, once."""

    connection: Connection
    verifier: str | None
    """sealed"""
    redirect_url: str | None


def begin_authorization(
    tx: Tx,
    id: ConnectionId,
    *,
    state: bytes,
    verifier: str | None,
    redirect_url: str | None,
    by: KeyId | None = None,
) -> None:
    """Remember a link: the hash of its state, the sealed verifier, where to go afterwards, and the
    key that it ends with. A connection has its newest `MOST_LINKS`."""
    tx.execute(
        "delete from authorizations where expires_at < now() or state in (select state"
        " from authorizations where connection_id = %s order by expires_at desc offset %s)",
        (id, MOST_LINKS - 1),
    )
    tx.execute(
        "insert into authorizations (state, connection_id, verifier, redirect_url, key_id,"
        " expires_at) values (%s, %s, %s, %s, %s, now() + %s)",
        (state, id, verifier, redirect_url, by, AUTH_LINK_LIFE),
    )


def take_authorization(tx: Tx, provider: str, state: bytes) -> Authorization:
    """What the state stands for; it is used up. Raises BadRequestError when it is unknown, used,
    too old, or another provider's, or when the key that made the link is revoked."""
    row = tx.execute(
        "delete from authorizations a using connections c where a.state = %s"
        " and a.connection_id = c.id and c.provider = %s and a.expires_at > now()"
        + STANDS
        + " returning a.connection_id, a.verifier, a.redirect_url, c.org_id",
        (state, provider),
    ).fetchone()
    if row is None:
        raise BadRequestError(
            "state: this link was used, is older than an hour, was not made here, or the key that"
            " made it was revoked; ask for a new link, or authorize the connection on its page in"
            " the console"
        )
    connection = get(tx, Tenant(OrgId(row["org_id"])), row["connection_id"])
    return Authorization(connection, row["verifier"], row["redirect_url"])


def peek_authorization(tx: Tx, provider: str, state: bytes) -> Authorization | None:
    """As `take_authorization`, but it stays good; None for a state that is not."""
    row = tx.execute(
        "select a.connection_id, a.redirect_url, c.org_id from authorizations a"
        " join connections c on c.id = a.connection_id"
        " where a.state = %s and c.provider = %s and a.expires_at > now()" + STANDS,
        (state, provider),
    ).fetchone()
    if row is None:
        return None
    connection = get(tx, Tenant(OrgId(row["org_id"])), row["connection_id"])
    return Authorization(connection, None, row["redirect_url"])


def authorize(
    tx: Tx,
    connection: Connection,
    *,
    tokens: str,
    expires_at: datetime | None,
    account: str,
    email: str | None,
    due: bool,
) -> None:
    """The user authorized: a sync begins, or goes on where it was. If one runs, its claim ends, and
    another worker goes on with the new tokens.

    Raises BadRequestError for another account than before, or an absurd one.
    """
    if len(account.encode(errors="surrogatepass")) > ACCOUNT_BYTES:
        raise BadRequestError(f"account: its id has more than {ACCOUNT_BYTES:,} bytes")
    done = tx.execute(
        "update connections set tokens = %(tokens)s, expires_at = %(expires_at)s,"
        " account = %(account)s, email = %(email)s, error_code = null, error_message = null,"
        " attempts = 0, away_since = null,"
        " state = case when state = 'syncing' then state else 'ready' end,"
        " claims = claims + 1,"
        " due_at = case when state = 'syncing' or %(due)s then now() end,"
        " updated_at = now() where id = %(id)s and (account is null or account = %(account)s)",
        {
            "id": connection.id,
            "tokens": tokens,
            "expires_at": expires_at,
            "account": storable(account),
            "email": storable(email),
            "due": due,
        },
    )
    if done.rowcount == 0:
        raise BadRequestError(
            "account: this connection belongs to another account; create a new connection for it"
        )
    documents.resume(tx, connection.id)
    audit.record(
        tx,
        "connection.authorized",
        connection.id,
        org=connection.org_id,
        provider=connection.provider,
    )


def keep_tokens(tx: Tx, id: ConnectionId, *, tokens: str, expires_at: datetime | None) -> None:
    """Refreshed ones; stored before they are used. Raises LeaseLost when the connection is gone."""
    fenced(
        tx,
        "update connections set tokens = %s, expires_at = %s where id = %s",
        (tokens, expires_at, id),
    )
