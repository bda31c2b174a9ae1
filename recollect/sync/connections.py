"""Connections: one authorized link of an organisation to a provider, its queue, its runs.

Like a document, a connection is its own queue entry. A worker's claim is fenced by `claims`; a sync
that was cut off goes on at its last checkpoint. What a sync found is `items.py`'s.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from psycopg import sql
from psycopg.types.json import Jsonb

from recollect import db, documents, encryption
from recollect.connectors.base import TAG_PATTERN
from recollect.connectors.pushes import Notice, Registration
from recollect.db import Tx, tenancy
from recollect.db.leases import Leases, fenced
from recollect.errors import BadRequestError, ConflictError, LeaseLost, NotFoundError, SetupError
from recollect.model import (
    Connection,
    ConnectionId,
    ConnectionState,
    Document,
    Failure,
    KeyId,
    OrgId,
    Page,
    Status,
    SyncClaim,
    SyncRun,
    Tenant,
    Trigger,
    random_id,
    storable,
)
from recollect.orgs import audit
from recollect.orgs.orgs import OPENS
from recollect.sync import change_log
from recollect.sync.items import Counts, Listings

_LEASES = Leases("connections", "d.state = 'syncing'")
AUTH_LINK_LIFE = timedelta(hours=1)
MOST_LINKS = 20
ACCOUNT_BYTES = 2_000
"""Of the id of an account at its provider: an index holds it."""
LIMIT = 10_000
"""documentLimit, when nobody names one; and the most"""
RUNS_KEPT = 200
MARKED = 1_000
"""connections that are looked at for a change, the newest"""
PUSH_MEMORY = timedelta(days=7)
AUTH_EXPIRED = "auth_expired"
AGAIN = "authorize the connection again"

_COLUMNS = (
    "c.id, c.org_id, c.provider, c.container_tags, c.reach, c.document_limit, c.metadata,"
    " c.expires_at, c.account, c.email, c.state, c.paused, c.error_code, c.error_message,"
    " c.cursor, c.due_at, c.parked_until,"
    " greatest(c.parked_until - now(), interval '0') as parked_for,"
    " c.last_synced_at, c.created_at, c.pushed_at, c.attempts,"
    " (select to_jsonb(r) from sync_runs r where r.connection_id = c.id"
    "  order by r.started_at desc, r.id desc limit 1) as run,"
    " (select jsonb_build_object('on', bool_or(g.remote is not null and not g.retired"
    "    and (g.expires_at is null or g.expires_at > now())),"
    "   'error', max(g.error)) from registrations g where g.connection_id = c.id) as pushes"
)
_STANDS = (
    f" and (a.key_id is null or exists (select from keys k where k.id = a.key_id and {OPENS}))"
)
_DUE = "due_at <= now() and (not paused or wanted_by = 'manual' or state = 'syncing')"
# A limited key sees a connection only when it may touch everything that the connection writes: its
# tags, and those that a pattern of it finds.
_REACH = (
    tenancy.with_all("c.container_tags", "c.org_id")
    + f" and (%(reach)s::text[] is null or coalesce(c.metadata ->> '{TAG_PATTERN}', '') = ''"
    " or coalesce(c.reach <@ %(reach)s::text[], false))"
)


@dataclass(frozen=True, slots=True)
class NewConnection:
    """What a caller creates; `secrets` is sealed already."""

    provider: str
    tags: Sequence[str]
    limit: int
    metadata: Mapping[str, Any]
    secrets: str | None
    pending: bool
    """whether the user has to authorize first"""
    reach: Sequence[str] | None = None
    """the only tags that what it finds may carry; None: all"""
    due: bool = True
    """whether the first sync begins at once"""


@dataclass(frozen=True, slots=True)
class ConnectionChange:
    """What a caller changes. None means: leave it."""

    tags: Sequence[str] | None = None
    limit: int | None = None
    metadata: Mapping[str, Any] | None = None
    secrets: str | None = None
    paused: bool | None = None


@dataclass(frozen=True, slots=True)
class Authorization:
    """A link that somebody followed: which connection it was for, once."""

    connection: Connection
    verifier: str | None
    """sealed"""
    redirect_url: str | None


@dataclass(frozen=True, slots=True)
class Secrets:
    """What is sealed on a connection's row."""

    secrets: str | None = field(repr=False)
    tokens: str | None = field(repr=False)


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


# --- the noun ------------------------------------------------------------------------------------


def create(tx: Tx, org: OrgId, new: NewConnection, id: ConnectionId) -> Connection:
    state = ConnectionState.PENDING if new.pending else ConnectionState.READY
    tx.execute(
        "insert into connections (id, org_id, provider, container_tags, reach, document_limit,"
        " metadata, secrets, state, due_at) values (%s, %s, %s, %s, %s, %s, %s, %s, %s,"
        " case when %s then now() end)",
        (
            id,
            org,
            new.provider,
            list(new.tags),
            None if new.reach is None else list(new.reach),
            new.limit,
            Jsonb(dict(new.metadata)),
            new.secrets,
            state,
            new.due and not new.pending,
        ),
    )
    db.notify(tx)
    audit.record(tx, "connection.created", id, org=org, provider=new.provider)
    return get(tx, Tenant(org), id)


def get(tx: Tx, tenant: Tenant, id: str, *, lock: bool = False) -> Connection:
    """Raises NotFoundError."""
    row = tx.execute(
        "select "
        + _COLUMNS
        + " from connections c where "
        + _REACH
        + " and c.id = %(id)s"
        + (" for update of c" if lock else ""),
        {**tenancy.bounds(tenant), "id": id},
    ).fetchone()
    if row is None:
        raise NotFoundError("Connection not found", f"no connection {id!r}")
    return _read(row)


def find(
    tx: Tx, tenant: Tenant, *, provider: str | None = None, tags: Sequence[str] = ()
) -> list[Connection]:
    """Those of the provider that carry all of the tags, the newest first."""
    rows = tx.execute(
        "select " + _COLUMNS + " from connections c where " + _REACH + " and"
        " (%(provider)s::text is null or c.provider = %(provider)s)"
        " and c.container_tags @> %(tags)s::text[] order by c.created_at desc, c.id desc",
        {**tenancy.bounds(tenant), "provider": provider, "tags": list(tags)},
    )
    return [_read(row) for row in rows]


def browse(
    tx: Tx,
    tenant: Tenant,
    *,
    provider: str | None,
    tag: str | None,
    limit: int,
    page: int,
    most: int,
) -> tuple[Page[Connection], bool]:
    """One page of those of the provider that carry the tag, the newest first, as far as they are
    among the `most` newest of the organisation; and whether there are older ones."""
    asked = {
        **tenancy.bounds(tenant),
        "provider": provider,
        "tags": [tag] if tag else [],
        "most": most,
    }
    where = (
        " from (select * from connections c where c.org_id = %(org)s"
        "  order by c.created_at desc, c.id desc limit %(most)s) c where " + _REACH + " and"
        " (%(provider)s::text is null or c.provider = %(provider)s)"
        " and c.container_tags @> %(tags)s::text[]"
    )
    counted = tx.execute("select count(*) as n" + where, asked).fetchone()
    rows = tx.execute(
        "select " + _COLUMNS + where + " order by c.created_at desc, c.id desc"
        " limit %(limit)s offset %(offset)s",
        {**asked, "limit": limit, "offset": (page - 1) * limit},
    ).fetchall()
    older = tx.execute(
        "select 1 from connections c where c.org_id = %(org)s"
        " order by c.created_at desc, c.id desc offset %(most)s limit 1",
        asked,
    ).fetchone()
    total = counted["n"] if counted else 0
    return Page([_read(row) for row in rows], total, page, limit), older is not None


def update(tx: Tx, tenant: Tenant, id: str, change: ConnectionChange) -> Connection:
    """Change it, and have a sync make it so; raises NotFoundError.

    New metadata means another selection: everything is listed anew. Who changes what a connection
    writes narrows its reach to the own; nothing widens it but tags that are named.
    """
    # Locked first, so that of two that narrow the reach at once the second sees the first.
    tx.execute(
        "select 1 from connections c where " + _REACH + " and c.id = %(id)s for update",
        {**tenancy.bounds(tenant), "id": id},
    )
    found = get(tx, tenant, id)
    anew = change.metadata is not None or change.tags is not None
    reach = found.reach
    if anew and tenant.tags is not None:
        reach = [tag for tag in tenant.tags if reach is None or tag in reach]
    if reach is not None:
        reach = list(dict.fromkeys([*reach, *(change.tags or found.container_tags)]))
    tx.execute(
        "update connections set container_tags = coalesce(%(tags)s, container_tags),"
        " reach = %(reach)s,"
        " document_limit = coalesce(%(limit)s, document_limit),"
        " metadata = coalesce(%(metadata)s, metadata), secrets = coalesce(%(secrets)s, secrets),"
        " cursor = case when %(anew)s then null else cursor end,"
        " listings = case when %(anew)s then '{}' else listings end,"
        " claims = claims + case when %(anew)s then 1 else 0 end,"  # a sync that runs is outdated
        " due_at = case when %(anew)s and state = 'syncing' then now() else due_at end,"
        " paused = coalesce(%(paused)s, paused), updated_at = now() where id = %(id)s",
        {
            "id": found.id,
            "tags": None if change.tags is None else list(change.tags),
            "reach": reach,
            "limit": change.limit,
            "metadata": None if change.metadata is None else Jsonb(dict(change.metadata)),
            "secrets": change.secrets,
            "anew": anew,
            "paused": change.paused,
        },
    )
    if change.paused is not True:
        want(tx, [found.id], Trigger.MANUAL)
    return get(tx, tenant, found.id)


def naming(tx: Tx, tenant: Tenant, tag: str) -> list[ConnectionId]:
    """Connections whose documents get the tag."""
    rows = tx.execute(
        "select c.id from connections c where " + _REACH + " and %(tag)s = any(c.container_tags)"
        " order by c.id",
        {**tenancy.bounds(tenant), "tag": tag},
    )
    return [ConnectionId(row["id"]) for row in rows]


def retag(tx: Tx, org: OrgId, sources: Sequence[str], target: str) -> None:
    """Let them write to the target instead of the sources; a sync that runs goes on so."""
    done = tx.execute(
        "update connections set container_tags = (select array_agg(tag order by place) from"
        "   (select case when tag = any(%(sources)s) then %(target)s else tag end as tag,"
        "     min(place) as place from unnest(container_tags) with ordinality as old (tag, place)"
        "     group by 1) as anew),"
        " reach = case when reach && %(sources)s::text[] then (select array_agg(distinct"
        "   case when tag = any(%(sources)s) then %(target)s else tag end)"
        "   from unnest(reach) as tag) else reach end,"
        " claims = claims + 1, due_at = case when state = 'syncing' then now() else due_at end,"
        " updated_at = now() where org_id = %(org)s and container_tags && %(sources)s::text[]",
        {"org": org, "sources": list(sources), "target": target},
    )
    if done.rowcount:
        db.notify(tx)


def delete(tx: Tx, tenant: Tenant, found: Sequence[Connection], *, with_documents: bool) -> int:
    """End them, secrets and all; a sync that runs is fenced off. Returns how many documents went.

    `with_documents`: what they brought is removed for good, but what also carries tags that the
    tenant may not touch only loses the tenant's; else it stays, without connection.
    """
    gone = 0
    for connection in sorted(found, key=lambda connection: connection.id):
        row = tx.execute(
            "select 1 from connections c where " + _REACH + " and c.id = %(id)s for update",
            {**tenancy.bounds(tenant), "id": connection.id},
        ).fetchone()
        if row is None:
            continue
        brought = documents.of_connection(tx, connection.id) if with_documents else []
        documents.withdraw(tx, tenant, brought)
        gone += len(brought)
        documents.detach(tx, connection.org_id, connection.id)
        tx.execute("delete from connections where id = %s", (connection.id,))
        audit.record(
            tx,
            "connection.deleted",
            connection.id,
            org=tenant.id,
            provider=connection.provider,
            documents=len(brought),
        )
    return gone


def runs(tx: Tx, connection: ConnectionId, limit: int = 50) -> list[SyncRun]:
    """The latest first."""
    rows = tx.execute(
        "select to_jsonb(r) as run from sync_runs r where connection_id = %s"
        " order by started_at desc, id desc limit %s",
        (connection, limit),
    )
    return [_run(row["run"]) for row in rows]


def run(tx: Tx, connection: ConnectionId, id: str) -> SyncRun:
    """Raises NotFoundError."""
    row = tx.execute(
        "select to_jsonb(r) as run from sync_runs r where connection_id = %s and id = %s",
        (connection, id),
    ).fetchone()
    if row is None:
        raise NotFoundError("Sync run not found", f"this connection has no run {id!r}")
    return _run(row["run"])


def mark(tx: Tx, tenant: Tenant, id: str | None = None) -> str:
    """Stands for how one is now, or those that the tenant sees among the newest `MARKED`: another
    after any change of them or of their latest runs."""
    row = tx.execute(
        "select md5(string_agg(concat_ws(' ', c.id, c.version, r.id, r.xmin), ',' order by c.id))"
        " as mark from (select c.*, c.xmin as version from connections c"
        "  where c.org_id = %(org)s and (%(id)s::text is null or c.id = %(id)s)"
        "  order by c.created_at desc, c.id desc limit %(most)s) c"
        " left join lateral (select r.id, r.xmin from sync_runs r"
        "  where r.connection_id = c.id order by r.started_at desc, r.id desc limit 1) r on true"
        " where " + _REACH,
        {**tenancy.bounds(tenant), "id": id, "most": MARKED},
    ).fetchone()
    return str(row["mark"]) if row else ""


def sealed(tx: Tx, id: ConnectionId) -> Secrets:
    """Raises LeaseLost when the connection is gone."""
    row = tx.execute("select secrets, tokens from connections where id = %s", (id,)).fetchone()
    if row is None:
        raise LeaseLost
    return Secrets(row["secrets"], row["tokens"])


# --- authorization -------------------------------------------------------------------------------


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
    too old, or another provider's, or when the key that made the link opens nothing any more."""
    row = tx.execute(
        "delete from authorizations a using connections c where a.state = %s"
        " and a.connection_id = c.id and c.provider = %s and a.expires_at > now()"
        + _STANDS
        + " returning a.connection_id, a.verifier, a.redirect_url, c.org_id",
        (state, provider),
    ).fetchone()
    if row is None:
        raise BadRequestError(
            "state: this link was used, is older than an hour, was not made here, or the key that"
            " made it was revoked; create the connection again, or ask for a new link"
        )
    connection = get(tx, Tenant(OrgId(row["org_id"])), row["connection_id"])
    return Authorization(connection, row["verifier"], row["redirect_url"])


def peek_authorization(tx: Tx, provider: str, state: bytes) -> Authorization | None:
    """As `take_authorization`, but it stays good; None for a state that is not."""
    row = tx.execute(
        "select a.connection_id, a.redirect_url, c.org_id from authorizations a"
        " join connections c on c.id = a.connection_id"
        " where a.state = %s and c.provider = %s and a.expires_at > now()" + _STANDS,
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
    """The user authorized; the sync begins, or goes on where it was.

    Raises BadRequestError for another account than before, or an absurd one.
    """
    if len(account.encode(errors="surrogatepass")) > ACCOUNT_BYTES:
        raise BadRequestError(f"account: its id has more than {ACCOUNT_BYTES:,} bytes")
    done = tx.execute(
        "update connections set tokens = %(tokens)s, expires_at = %(expires_at)s,"
        " account = %(account)s, email = %(email)s, error_code = null, error_message = null,"
        " attempts = 0, away_since = null,"
        " state = case when state = 'syncing' then state else 'ready' end,"
        " due_at = case when state = 'syncing' then due_at when %(due)s then now() end,"
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


# --- the queue -----------------------------------------------------------------------------------


def want(tx: Tx, ids: Sequence[ConnectionId], trigger: Trigger) -> int:
    """Have them synced soon: at once, or after the sync that runs now; returns how many will be.

    Any number of wishes during a sync makes one more. Where there is nothing to authorize (a
    bucket's keys), the wish of a user is another try after the provider refused; it always is one
    after the provider was away, however long.
    """
    if trigger is Trigger.MANUAL:
        tx.execute("update connections set away_since = null where id = any(%s)", (list(ids),))
        for row in tx.execute(
            "update connections set state = 'ready', error_code = null, error_message = null,"
            " attempts = 0 where id = any(%s)"
            " and (state = 'failed' or (state = 'needs_auth' and tokens is null)) returning id",
            (list(ids),),
        ).fetchall():
            documents.resume(tx, ConnectionId(row["id"]))
    done = tx.execute(
        "update connections set wanted_at = clock_timestamp(),"
        " wanted_by = case when wanted_by = 'manual' then wanted_by else %(trigger)s end,"
        " due_at = case when state = 'ready'"
        "   then greatest(least(coalesce(due_at, now()), now()), coalesce(parked_until, now()))"
        "   else due_at end,"
        " pushed_at = case when %(trigger)s = 'event' then now() else pushed_at end"
        " where id = any(%(ids)s) and state in ('ready', 'syncing')"
        " and (not paused or %(trigger)s = 'manual')",
        {"ids": list(ids), "trigger": trigger},
    )
    if done.rowcount:
        db.notify(tx)
    return done.rowcount


def want_now(tx: Tx, tenant: Tenant, id: str) -> None:
    """As `want` of a user, for one that nothing is going on with.

    Raises NotFoundError, ConflictError while a sync runs or waits to run, BadRequestError where it
    has to be authorized first.
    """
    found = get(tx, tenant, id, lock=True)
    row = tx.execute(
        "select state = 'syncing' or state = 'ready' and (wanted_at is not null"
        "  or due_at <= now() and not paused) as busy from connections where id = %s",
        (found.id,),
    ).fetchone()
    if row is not None and row["busy"]:
        raise ConflictError("A sync is already running", f"of connection {found.id}")
    if not want(tx, [found.id], Trigger.MANUAL):
        raise BadRequestError(f"authorization: {AGAIN}")


def redirect_of(tx: Tx, id: ConnectionId) -> str | None:
    """Where the newest link leads after authorizing."""
    row = tx.execute(
        "select redirect_url from authorizations where connection_id = %s"
        " order by expires_at desc limit 1",
        (id,),
    ).fetchone()
    return row["redirect_url"] if row else None


def failures(
    tx: Tx, tenant: Tenant, runs: Sequence[str], *, most: int
) -> dict[str, list[Document]]:
    """Documents that the runs added or changed and that could not be processed, by run: those that
    failed last."""
    borne, parameters = documents.condition(
        tenant, documents.DocumentQuery(statuses=[Status.FAILED])
    )
    rows = tx.execute(
        sql.SQL(
            "select failed.* from unnest(%(runs)s::text[]) as asked (run_id) cross join lateral"
            " (select s.run_id, {columns} from sync_changes s join documents d"
            "   on d.id = s.document_id where s.run_id = asked.run_id and {borne}"
            "  order by d.updated_at desc, d.id limit %(most)s) failed"
        ).format(columns=sql.SQL(documents.COLUMNS), borne=borne),
        {**parameters, "runs": list(runs), "most": most},
    )
    found: dict[str, list[Document]] = {run: [] for run in runs}
    for row in rows:
        found[row["run_id"]].append(documents.read(row, tenant))
    return found


def claim(
    tx: Tx,
    *,
    lease: timedelta,
    limit: int,
    turn: documents.Turn | None = None,
    besides: Collection[OrgId] = (),
) -> list[SyncClaim]:
    """Take up to `limit` connections that are due, of as many organisations as have some.

    They take turns, from `turn` on, which is passed on; of each the longest waiting come first.
    `besides`: the organisations of which none is taken.
    """
    turn = turn or documents.Turn()
    rows = tx.execute(
        "with ranked as (select id, org_id, org_id <= %(org)s as around,"
        "  row_number() over (partition by org_id order by due_at, id) as nth from connections"
        "  where " + _DUE + " and org_id <> all(%(besides)s::text[])"
        "), due as materialized (select c.id, r.nth, r.around"
        "  from ranked r join connections c on c.id = r.id where c.due_at <= now()"
        "  order by r.nth, r.around, r.org_id limit %(limit)s for update of c skip locked)"
        " update connections c set state = 'syncing', due_at = now() + %(lease)s,"
        " claims = c.claims + 1, began_at = coalesce(c.began_at, clock_timestamp())"
        " from due where c.id = due.id returning " + _COLUMNS + ", c.claims, c.began_at,"
        " c.wanted_by, c.secrets, c.tokens, due.nth, due.around",
        {"lease": lease, "limit": limit, "org": turn.org, "besides": list(besides)},
    ).fetchall()
    rows.sort(key=lambda row: (row["nth"], row["around"], row["org_id"]))
    if rows:
        turn.org = rows[-1]["org_id"]
    return [_claimed(tx, row) for row in rows]


def waits(tx: Tx) -> bool:
    """Whether a connection is due that no loop has claimed."""
    row = tx.execute("select exists (select from connections where " + _DUE + ") as waits")
    found = row.fetchone()
    return found is not None and found["waits"]


def next_due_in(tx: Tx) -> timedelta | None:
    """How long until the next connection is due; None when none ever is."""
    row = tx.execute(
        "select min(due_at) - now() as wait from connections where due_at is not null"
        " and (not paused or wanted_by = 'manual' or state = 'syncing')"
    ).fetchone()
    return row["wait"] if row else None


def renew(tx: Tx, claims: Sequence[SyncClaim], *, lease: timedelta) -> None:
    """The heartbeat: renew the leases that are still ours."""
    _LEASES.renew(tx, [(one.connection.id, one.number) for one in claims], lease)


def release(tx: Tx, claims: Sequence[SyncClaim]) -> None:
    """Give back unfinished work; it goes on at its last checkpoint when its turn comes."""
    held = [(one.connection.id, one.number) for one in claims]
    # A heartbeat that is late must not renew what is given back.
    _LEASES.release(tx, held, "claims = d.claims + 1")
    db.notify(tx)


def lock(tx: Tx, claim: SyncClaim, *, lease: timedelta) -> Listings:
    """Take the row for this transaction and renew the lease; raises LeaseLost."""
    row = tx.execute(
        "update connections set due_at = now() + %s"
        " where id = %s and claims = %s and state = 'syncing'"
        " returning listings, troubled, held",
        (lease, claim.connection.id, claim.number),
    ).fetchone()
    if row is None:
        raise LeaseLost
    return Listings(
        began={b: datetime.fromisoformat(at) for b, at in row["listings"].items()},
        troubled=set(row["troubled"]),
        held=dict(row["held"]),
    )


def alive(tx: Tx, claim: SyncClaim) -> bool:
    """Whether the claim still holds; a deleted connection does not."""
    row = tx.execute(
        "select 1 from connections where id = %s and claims = %s and state = 'syncing'",
        (claim.connection.id, claim.number),
    ).fetchone()
    return row is not None


def save(
    tx: Tx,
    claim: SyncClaim,
    *,
    cursor: Mapping[str, Any] | None,
    listings: Listings,
    counts: Counts,
    reached: bool,
) -> None:
    """Store a checkpoint with what was counted; the row is locked by `lock`.

    `cursor` None: what was said so far is stored, but a cut-off sync says it again. `reached`:
    something was read, so the provider is there.
    """
    tx.execute(
        "update connections set cursor = coalesce(%(cursor)s, cursor), listings = %(listings)s,"
        " troubled = %(troubled)s, held = %(held)s,"
        " away_since = case when not %(reached)s then away_since end where id = %(id)s",
        {
            "id": claim.connection.id,
            "cursor": None if cursor is None else Jsonb(storable(cursor)),
            "listings": Jsonb({b: at.isoformat() for b, at in listings.began.items()}),
            "troubled": sorted(listings.troubled),
            "held": Jsonb(listings.held),
            "reached": reached,
        },
    )
    _count(tx, claim, counts)


def forget_cursor(tx: Tx, claim: SyncClaim) -> None:
    """The provider forgot it: everything is listed again."""
    tx.execute(
        "update connections set cursor = null, listings = '{}', troubled = '{}'"
        " where id = %s and claims = %s",
        (claim.connection.id, claim.number),
    )


def finish(tx: Tx, claim: SyncClaim, counts: Counts, *, again: timedelta) -> None:
    """The sync ended well, or in part; due after `again`, or at once if it was wanted meanwhile,
    but not while a document of it, fetched meanwhile, was told to wait.

    What is held back wants a second listing soon. Raises LeaseLost.
    """
    fenced(
        tx,
        "update connections set state = 'ready', attempts = 0,"
        " error_code = case when parked_until > now() then error_code end,"
        " error_message = case when parked_until > now() then error_message end,"
        " parked_until = case when parked_until > now() then parked_until end,"
        " last_synced_at = now(), began_at = null,"
        " due_at = greatest(parked_until,"
        "   case when wanted_at > began_at then now() else now() + %(again)s end),"
        " wanted_by = case when wanted_at > began_at then wanted_by end,"
        " wanted_at = case when wanted_at > began_at then wanted_at end,"
        " away_since = case when %(away)s then coalesce(away_since, now()) end, updated_at = now()"
        " where id = %(id)s and claims = %(number)s and state = 'syncing'",
        {
            "id": claim.connection.id,
            "number": claim.number,
            "again": again,
            "away": counts.away,
        },
    )
    db.notify(tx)
    status = "partial" if counts.code else "completed"
    _count(tx, claim, counts)
    _end_run(tx, claim, status, Failure(counts.code, counts.notes[0]) if counts.code else None)


def away_for(tx: Tx, claim: SyncClaim) -> timedelta:
    """How long its provider has let nothing be read, up to the sync before this one; locks the row.
    Raises LeaseLost."""
    row = tx.execute(
        "select coalesce(now() - away_since, interval '0') as away from connections"
        " where id = %s and claims = %s and state = 'syncing' for update",
        (claim.connection.id, claim.number),
    ).fetchone()
    if row is None:
        raise LeaseLost
    return row["away"]


def give_up(tx: Tx, claim: SyncClaim, failure: Failure, counts: Counts) -> None:
    """The provider was away for too long: nothing is asked until a user wants a sync.

    Nothing is deleted: who is away may come back. Raises LeaseLost.
    """
    fenced(
        tx,
        "update connections set state = 'failed', error_code = %(code)s,"
        " error_message = %(message)s, attempts = attempts + 1, due_at = null, began_at = null,"
        " wanted_at = null, wanted_by = null, parked_until = null, updated_at = now()"
        " where id = %(id)s and claims = %(number)s and state = 'syncing'",
        {
            "id": claim.connection.id,
            "number": claim.number,
            "code": failure.code,
            "message": _sentence(failure),
        },
    )
    documents.postpone(tx, claim.connection.id, timedelta(days=1), failure)
    _count(tx, claim, counts)
    _end_run(tx, claim, "failed", failure)


def put_off(
    tx: Tx,
    claim: SyncClaim,
    failure: Failure,
    after: timedelta,
    counts: Counts,
    *,
    parked: bool,
    away: bool,
) -> None:
    """The sync failed; it goes on from its last checkpoint after `after`, or later if a document,
    fetched meanwhile, was told so.

    `parked`: the provider wants to be left alone, so its documents wait, too. `away`: it let
    nothing be read. Raises LeaseLost.
    """
    fenced(
        tx,
        "update connections set state = 'ready', error_code = %(code)s,"
        " error_message = %(message)s, attempts = attempts + 1,"
        " due_at = greatest(now() + %(after)s, parked_until), began_at = null,"
        " parked_until = greatest(case when %(parked)s then now() + %(after)s end,"
        "   case when parked_until > now() then parked_until end),"
        " away_since = case when %(away)s then coalesce(away_since, now()) end, updated_at = now()"
        " where id = %(id)s and claims = %(number)s and state = 'syncing'",
        {
            "id": claim.connection.id,
            "number": claim.number,
            "code": failure.code,
            "message": _sentence(failure),
            "after": after,
            "parked": parked,
            "away": away,
        },
    )
    if parked:
        documents.postpone(tx, claim.connection.id, after, failure)
    _count(tx, claim, counts)
    _end_run(tx, claim, "failed", failure)


def park(tx: Tx, id: ConnectionId, failure: Failure, after: timedelta) -> None:
    """A document's fetch was told to wait: so do all of them, and the next sync."""
    tx.execute(
        "update connections set parked_until = greatest(coalesce(parked_until, now()), now() + %s),"
        " due_at = case when state = 'ready' then greatest(due_at, now() + %s) else due_at end,"
        " error_code = %s, error_message = %s where id = %s",
        (after, after, failure.code, _sentence(failure), id),
    )
    documents.postpone(tx, id, after, failure)


def lose(tx: Tx, id: ConnectionId, message: str, claim: SyncClaim | None = None) -> None:
    """The authorization is gone: nothing happens until the user authorizes again.

    Nothing is deleted: a lost authorization is not an empty account.
    """
    if AGAIN not in message:
        message = f"{message}; {AGAIN}"
    failure = Failure(AUTH_EXPIRED, message)
    tx.execute(
        "update connections set state = 'needs_auth', due_at = null, began_at = null,"
        " error_code = %s, error_message = %s, updated_at = now()"
        " where id = %s and state in ('ready', 'syncing')",
        (failure.code, _sentence(failure), id),
    )
    documents.postpone(tx, id, timedelta(days=1), failure)
    if claim is not None:
        _end_run(tx, claim, "failed", failure)


def next_call_in(tx: Tx, id: ConnectionId, gap: timedelta) -> timedelta:
    """How long to wait so that the calls of all processes keep `gap` between them."""
    row = tx.execute(
        "update connections set"
        " call_at = greatest(coalesce(call_at, clock_timestamp()), clock_timestamp()) + %s"
        " where id = %s returning call_at - %s - clock_timestamp() as wait",
        (gap, id, gap),
    ).fetchone()
    if row is None:
        raise LeaseLost
    return row["wait"]


# --- rows ----------------------------------------------------------------------------------------


def _claimed(tx: Tx, row: Mapping[str, Any]) -> SyncClaim:
    connection = _read(row)
    run = row["run"]
    wanted = row["wanted_by"]
    trigger = Trigger(wanted) if wanted else Trigger.CRON
    if run is not None and run["status"] == "running":
        run_id, trigger = run["id"], Trigger(run["trigger"])
    else:
        run_id = random_id()
        tx.execute(
            "insert into sync_runs (id, connection_id, trigger, status)"
            " values (%s, %s, %s, 'running')",
            (run_id, connection.id, trigger),
        )
        tx.execute(
            "delete from sync_runs where id in (select id from sync_runs where connection_id = %s"
            " order by started_at desc, id desc offset %s)",
            (connection.id, RUNS_KEPT),
        )
    return SyncClaim(
        connection=connection,
        number=row["claims"],
        run_id=run_id,
        trigger=trigger,
        began_at=row["began_at"],
        secrets=row["secrets"],
        tokens=row["tokens"],
    )


def counted(tx: Tx, claim: SyncClaim) -> Counts:
    """What the run counted before it was cut off."""
    row = tx.execute("select * from sync_runs where id = %s", (claim.run_id,)).fetchone()
    counts = Counts()
    if row is None:
        return counts
    for name in ("added", "changed", "unchanged", "removed", "failed"):
        setattr(counts, name, row[name])
    counts.skipped.update(row["skipped"])
    counts.notes = list(row["notes"])
    counts.code = row["error_code"]
    counts.listed = change_log.kept(tx, claim.run_id)
    return counts


def _count(tx: Tx, claim: SyncClaim, counts: Counts) -> None:
    tx.execute(
        "update sync_runs set added = %s, changed = %s, unchanged = %s, removed = %s, failed = %s,"
        " skipped = %s, notes = %s, error_code = %s where id = %s",
        (
            counts.added,
            counts.changed,
            counts.unchanged,
            counts.removed,
            counts.failed,
            Jsonb(dict(counts.skipped)),
            counts.notes,
            counts.code,
            claim.run_id,
        ),
    )


def _end_run(tx: Tx, claim: SyncClaim, status: str, failure: Failure | None) -> None:
    tx.execute(
        "update sync_runs set status = %s, finished_at = clock_timestamp(), error_code = %s,"
        " error_message = %s where id = %s",
        (
            status,
            failure and failure.code,
            failure and _sentence(failure),
            claim.run_id,
        ),
    )


def _read(row: Mapping[str, Any]) -> Connection:
    failure = None
    if row["error_message"] is not None:
        failure = Failure(row["error_code"], row["error_message"])
    return Connection(
        id=ConnectionId(row["id"]),
        org_id=OrgId(row["org_id"]),
        provider=row["provider"],
        container_tags=row["container_tags"],
        reach=row["reach"],
        document_limit=row["document_limit"],
        metadata=row["metadata"],
        email=row["email"],
        account=row["account"],
        state=ConnectionState(row["state"]),
        failure=failure,
        paused=row["paused"],
        cursor=row["cursor"],
        due_at=row["due_at"],
        parked_until=row["parked_until"],
        parked_for=row["parked_for"],
        failures=row["attempts"],
        pushes=_pushes(row["pushes"]),
        pushed_at=row["pushed_at"],
        expires_at=row["expires_at"],
        last_run=_run(row["run"]) if row["run"] else None,
        last_synced_at=row["last_synced_at"],
        created_at=row["created_at"],
    )


def _pushes(found: Mapping[str, Any] | None) -> str | None:
    if found is None or (found["on"] is None and found["error"] is None):
        return None
    if found["on"]:
        return "on"
    return f"off ({found['error']})" if found["error"] else "being registered"


def _run(row: Mapping[str, Any]) -> SyncRun:
    finished = row["finished_at"]
    failure = None
    if row["error_message"] is not None:
        failure = Failure(row["error_code"], row["error_message"])
    return SyncRun(
        id=row["id"],
        trigger=Trigger(row["trigger"]),
        status=row["status"],
        started_at=datetime.fromisoformat(row["started_at"]),
        finished_at=datetime.fromisoformat(finished) if finished else None,
        added=row["added"],
        changed=row["changed"],
        unchanged=row["unchanged"],
        removed=row["removed"],
        failed=row["failed"],
        skipped=row["skipped"],
        failure=failure,
        notes=row["notes"],
    )


def _sentence(failure: Failure) -> str:
    return storable(failure.message)[:2000]


# --- registrations for pushes --------------------------------------------------------------------


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
        "select " + _COLUMNS + " from connections c where c.id = %s", (row["connection_id"],)
    ).fetchone()
    return None if found is None else (_registration(row), _read(found))


def add_registration(
    tx: Tx, id: str, connection: ConnectionId, resource: str, *, secret: str, url: str
) -> None:
    """Before the provider is asked, since its handshake may come before its answer.

    Should we be cut off before that answer, it is made anew.
    """
    tx.execute(
        "insert into registrations (id, connection_id, resource, secret, url, renew_at)"
        " values (%s, %s, %s, %s, %s, now() + interval '10 minutes')",
        (id, connection, resource, secret, url),
    )


def keep_registration(
    tx: Tx, id: str, *, remote: Mapping[str, Any], expires_at: datetime | None
) -> list[StoredRegistration]:
    """The provider took it, to be made anew at half its life; returns those that it replaces."""
    row = tx.execute(
        "update registrations set remote = %s, expires_at = %s, error = null, attempts = 0,"
        # Somewhat before it, so that those that began together drift apart.
        " renew_at = now() + (%s::timestamptz - now()) * (0.5 - 0.05 * random()) where id = %s"
        " returning connection_id, resource",
        (Jsonb(dict(remote)), expires_at, expires_at, id),
    ).fetchone()
    if row is None:
        return []
    rows = tx.execute(
        "update registrations set retired = true, renew_at = null where connection_id = %s"
        " and resource = %s and id <> %s returning *",
        (row["connection_id"], row["resource"], id),
    )
    return [_registration(old) for old in rows]


def drop_registrations(tx: Tx, ids: Sequence[str]) -> None:
    tx.execute("delete from registrations where id = any(%s)", (list(ids),))


def refuse_registration(tx: Tx, id: str, reason: str, again: timedelta) -> None:
    """The provider did not take it; tried again after `again`."""
    tx.execute(
        "update registrations set error = %s, attempts = attempts + 1, renew_at = now() + %s"
        " where id = %s",
        (storable(reason)[:500], again, id),
    )


def due_registrations(tx: Tx, limit: int = 20) -> list[StoredRegistration]:
    """Those that want to be made anew; nobody else takes them for ten minutes."""
    rows = tx.execute(
        "with due as materialized (select g.id from registrations g"
        "  join connections c on c.id = g.connection_id"
        "  where g.renew_at <= now() and not g.retired and c.state in ('ready', 'syncing')"
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


def heed(tx: Tx, provider: str, notice: Notice, concerned: ConnectionId | None = None) -> int:
    """A verified notice arrived, whichever way: have what it concerns synced, once.

    `concerned`: the connection of the registration that it came by. Returns how many will be.
    """
    if notice.key is not None and not first_push(tx, provider, notice.key):
        return 0
    found = [concerned] if notice.concerned and concerned is not None else []
    if notice.accounts:
        found += of_account(tx, provider, notice.accounts)
    return want(tx, found, Trigger.EVENT) if found else 0


def mute(tx: Tx, provider: str, reason: str, *, again: timedelta) -> int:
    """No notice of this provider can arrive: its connections are synced within `again`, and until
    `unmute` their registrations count for nothing; how many did count."""
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


def unmute(tx: Tx, provider: str) -> int:
    """They can again: what was muted is registered anew, and a sync follows; how many are."""
    done = tx.execute(
        "update registrations g set renew_at = now() from connections c"
        " where c.id = g.connection_id and c.provider = %s and not g.retired"
        " and g.remote is null and g.renew_at is null",
        (provider,),
    )
    return done.rowcount


def of_account(tx: Tx, provider: str, accounts: Sequence[str]) -> list[ConnectionId]:
    """Connections of any organisation that these accounts authorized."""
    rows = tx.execute(
        "select id from connections where provider = %s"
        " and (account = any(%s) or lower(email) = any(%s)) order by id",
        (provider, list(accounts), [account.lower() for account in accounts]),
    )
    return [ConnectionId(row["id"]) for row in rows]


def sweep(tx: Tx) -> None:
    """Forget keys of old pushes and links that nobody followed."""
    tx.execute("delete from pushes where came_at < now() - %s", (PUSH_MEMORY,))
    tx.execute("delete from authorizations where expires_at < now()")


def reseal(tx: Tx, keys: Sequence[bytes], after: str, limit: int = 100) -> tuple[int, str | None]:
    """Seal with the newest key what older ones sealed, of up to `limit` connections from id `after`
    on; how many texts that were, and the last id, None at the end.

    Those that none of the keys opens stay as they are: the old key may still come back.
    """
    rows = tx.execute(
        "select id, tokens, secrets from connections where id > %s order by id limit %s for update",
        (after, limit),
    ).fetchall()
    sealed = 0
    for row in rows:
        for column, place in (("tokens", "tokens"), ("secrets", "secrets")):
            anew = _resealed(keys, row[column], (row["id"], place))
            if anew is not None:
                column_name = sql.Identifier(column)
                tx.execute(
                    sql.SQL("update connections set {} = %s where id = %s").format(column_name),
                    (anew, row["id"]),
                )
                sealed += 1
        for one in tx.execute(
            "select id, secret from registrations where connection_id = %s", (row["id"],)
        ).fetchall():
            anew = _resealed(keys, one["secret"], (row["id"], "registration", one["id"]))
            if anew is not None:
                tx.execute("update registrations set secret = %s where id = %s", (anew, one["id"]))
                sealed += 1
    return sealed, rows[-1]["id"] if len(rows) == limit else None


def _resealed(keys: Sequence[bytes], sealed: str | None, place: Sequence[str]) -> str | None:
    if sealed is None or not encryption.stale(keys, sealed):
        return None
    try:
        return encryption.seal(keys, encryption.unseal(keys, sealed, place=place), place=place)
    except SetupError:
        return None


def sealed_by_others(tx: Tx, mark: str) -> int:
    """How many connections hold something that the key of that mark did not seal."""
    row = tx.execute(
        "select count(*) as n from connections"
        " where not starts_with(tokens, %(mark)s) or not starts_with(secrets, %(mark)s)",
        {"mark": mark},
    ).fetchone()
    assert row is not None
    return row["n"]


# --- secrets of an application's pushes ----------------------------------------------------------


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


# --- farewells -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Farewell:
    """What is still to be said to a provider after a connection ended."""

    id: str
    provider: str
    sealed: str = field(repr=False)
    attempts: int


def say_later(tx: Tx, provider: str, id: str, sealed: str) -> None:
    tx.execute(
        "insert into farewells (id, provider, sealed) values (%s, %s, %s)", (id, provider, sealed)
    )
    db.notify(tx)


def due_farewells(tx: Tx, limit: int = 10) -> list[Farewell]:
    """Those that are due; each is tried again after a while, unless `said` meanwhile."""
    tx.execute("delete from farewells where expires_at < now()")
    rows = tx.execute(
        "with due as materialized (select id from farewells where due_at <= now()"
        "  order by due_at limit %s for update skip locked)"
        " update farewells f set attempts = f.attempts + 1,"
        " due_at = now() + interval '1 minute' * power(2, least(f.attempts, 8))"
        " from due where f.id = due.id returning f.id, f.provider, f.sealed, f.attempts",
        (limit,),
    )
    return [Farewell(r["id"], r["provider"], r["sealed"], r["attempts"]) for r in rows]


def said(tx: Tx, id: str) -> None:
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
