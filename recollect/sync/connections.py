"""Connections: one authorized link of an organisation to a provider, its queue, its runs.

Like a document, a connection is its own queue entry. A worker's claim is fenced by `claims`; a sync
that was cut off goes on at its last checkpoint. What a sync found is `items.py`'s.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, LiteralString

from psycopg import sql
from psycopg.types.json import Jsonb

from recollect import db, documents, encryption
from recollect.connectors.base import TAG_PATTERN
from recollect.db import Tx, tenancy
from recollect.errors import LeaseLost, NotFoundError
from recollect.model import (
    Connection,
    ConnectionId,
    ConnectionState,
    Failure,
    OrgId,
    Page,
    SyncRun,
    Tenant,
    Trigger,
)
from recollect.orgs import audit
from recollect.orgs.orgs import OPENS

LIMIT = 10_000
"""documentLimit, when nobody names one; and the most"""
MARKED = 1_000
"""connections that are looked at for a change, the newest"""

COLUMNS = (
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
STANDS = f" and (a.key_id is null or exists (select from keys k where k.id = a.key_id and {OPENS}))"
# A limited key sees a connection only when it may touch everything that the connection writes: its
# tags, and those that a pattern of it finds.
_REACH = (
    tenancy.with_all("c.container_tags", "c.org_id")
    + f" and (%(reach)s::text[] is null or coalesce(c.metadata ->> '{TAG_PATTERN}', '') = ''"
    " or coalesce(c.reach <@ %(reach)s::text[], false))"
)


@dataclass(frozen=True, slots=True)
class SealedConnection:
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
class Secrets:
    """What is sealed on a connection's row."""

    secrets: str | None = field(repr=False)
    tokens: str | None = field(repr=False)


# --- the noun ------------------------------------------------------------------------------------


def create(tx: Tx, org: OrgId, new: SealedConnection, id: ConnectionId) -> Connection:
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
        + COLUMNS
        + " from connections c where "
        + _REACH
        + " and c.id = %(id)s"
        + (" for update of c" if lock else ""),
        {**tenancy.bounds(tenant), "id": id},
    ).fetchone()
    if row is None:
        raise NotFoundError("Connection not found", f"no connection {id!r}")
    return read_row(row)


def find(
    tx: Tx, tenant: Tenant, *, provider: str | None = None, tags: Sequence[str] = ()
) -> list[Connection]:
    """Those of the provider that carry all of the tags, the newest first."""
    rows = tx.execute(
        "select " + COLUMNS + " from connections c where " + _REACH + " and"
        " (%(provider)s::text is null or c.provider = %(provider)s)"
        " and c.container_tags @> %(tags)s::text[] order by c.created_at desc, c.id desc",
        {**tenancy.bounds(tenant), "provider": provider, "tags": list(tags)},
    )
    return [read_row(row) for row in rows]


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
        "select " + COLUMNS + where + " order by c.created_at desc, c.id desc"
        " limit %(limit)s offset %(offset)s",
        {**asked, "limit": limit, "offset": (page - 1) * limit},
    ).fetchall()
    older = tx.execute(
        "select 1 from connections c where c.org_id = %(org)s"
        " order by c.created_at desc, c.id desc offset %(most)s limit 1",
        asked,
    ).fetchone()
    total = counted["n"] if counted else 0
    return Page([read_row(row) for row in rows], total, page, limit), older is not None


def update(tx: Tx, tenant: Tenant, id: str, change: ConnectionChange) -> Connection:
    """Change it, and have a sync make it so; raises NotFoundError.

    New metadata means another selection: everything is listed again, and a sync that runs begins
    again with it. A pause takes back wishes that wait. Who changes what a connection writes narrows
    its reach to the own; nothing widens it but tags that are named.
    """
    # Locked first, so that of two that narrow the reach at once the second sees the first.
    tx.execute(
        "select 1 from connections c where " + _REACH + " and c.id = %(id)s for update",
        {**tenancy.bounds(tenant), "id": id},
    )
    found = get(tx, tenant, id)
    again = change.metadata is not None or change.tags is not None
    reach = found.reach
    if again and tenant.tags is not None:
        reach = [tag for tag in tenant.tags if reach is None or tag in reach]
    if reach is not None:
        reach = list(dict.fromkeys([*reach, *(change.tags or found.container_tags)]))
    if change.metadata not in (None, found.metadata) or change.secrets is not None:
        _forget_missing(tx, found.id)
    if again and found.state is ConnectionState.SYNCING:
        _forget_run(tx, found.id)
    tx.execute(
        "update connections set container_tags = coalesce(%(tags)s, container_tags),"
        " reach = %(reach)s,"
        " document_limit = coalesce(%(limit)s, document_limit),"
        " metadata = coalesce(%(metadata)s, metadata), secrets = coalesce(%(secrets)s, secrets),"
        " cursor = case when %(again)s then null else cursor end,"
        " listings = case when %(again)s then '{}' else listings end,"
        " troubled = case when %(again)s then '{}' else troubled end,"
        " began_at = case when %(again)s then null else began_at end,"
        " claims = claims + case when %(again)s then 1 else 0 end,"  # a sync that runs is outdated
        " due_at = case when %(again)s and state = 'syncing' then now() else due_at end,"
        " wanted_at = case when paused or %(paused)s is not true then wanted_at end,"
        " wanted_by = case when paused or %(paused)s is not true then wanted_by end,"
        " paused = coalesce(%(paused)s, paused), updated_at = now() where id = %(id)s",
        {
            "id": found.id,
            "tags": None if change.tags is None else list(change.tags),
            "reach": reach,
            "limit": change.limit,
            "metadata": None if change.metadata is None else Jsonb(dict(change.metadata)),
            "secrets": change.secrets,
            "again": again,
            "paused": change.paused,
        },
    )
    if change.paused is not True:
        want(tx, [found.id], Trigger.MANUAL)
    return get(tx, tenant, found.id)


def _forget_missing(tx: Tx, id: ConnectionId) -> None:
    """What syncs of another selection found missing, no sync of this one confirms."""
    tx.execute(
        "update items set missing_at = null where connection_id = %s and document_id is not null"
        " and missing_at is not null",
        (id,),
    )


def _forget_run(tx: Tx, id: ConnectionId) -> None:
    """What the sync that runs found missing, and said; what it did to documents stays counted."""
    tx.execute(
        "update items i set missing_at = null from connections c where c.id = %s"
        " and i.connection_id = c.id and i.document_id is not null and i.missing_at >= c.began_at",
        (id,),
    )
    tx.execute(
        "update sync_runs set trigger = 'manual', unchanged = 0, failed = 0, skipped = '{}',"
        " notes = '{}', error_code = null where connection_id = %s and status = 'running'",
        (id,),
    )


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
    changed = tx.execute(
        "update connections set container_tags = " + _retagged("container_tags") + ","
        " reach = case when reach && %(sources)s::text[] then (select array_agg(distinct"
        "   case when tag = any(%(sources)s) then %(target)s else tag end)"
        "   from unnest(reach) as tag) else reach end,"
        " claims = claims + 1, due_at = case when state = 'syncing' then now() else due_at end,"
        " updated_at = now() where org_id = %(org)s and container_tags && %(sources)s::text[]"
        " returning id",
        {"org": org, "sources": list(sources), "target": target},
    ).fetchall()
    if changed:
        # A user who takes the target off a document now takes off what the connection gave. A tag
        # that only a pattern of the connection still gives ended with the merge.
        tx.execute(
            "update items set given_tags = " + _retagged("given_tags") + ", taken_tags = taken_tags"
            " || array(select tag from unnest(tags) as tag where tag = any(%(sources)s))"
            " where connection_id = any(%(changed)s) and given_tags && %(sources)s::text[]",
            {"changed": [row["id"] for row in changed], "sources": list(sources), "target": target},
        )
        db.notify(tx)


def _retagged(column: LiteralString) -> LiteralString:
    """The tags of a column with `target` instead of `sources`, each once."""
    return (
        "(select array_agg(tag order by place) from"
        " (select case when tag = any(%(sources)s) then %(target)s else tag end as tag,"
        "   min(place) as place from unnest(" + column + ") with ordinality as old (tag, place)"
        "   group by 1) as again)"
    )


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


def sealed(tx: Tx, id: ConnectionId, *, lock: bool = False) -> Secrets:
    """Raises LeaseLost when the connection is gone."""
    row = tx.execute(
        "select secrets, tokens from connections where id = %s" + (" for update" if lock else ""),
        (id,),
    ).fetchone()
    if row is None:
        raise LeaseLost
    return Secrets(row["secrets"], row["tokens"])


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


def redirect_of(tx: Tx, id: ConnectionId) -> str | None:
    """Where the newest link leads after authorizing."""
    row = tx.execute(
        "select redirect_url from authorizations where connection_id = %s"
        " order by expires_at desc limit 1",
        (id,),
    ).fetchone()
    return row["redirect_url"] if row else None


def read_row(row: Mapping[str, Any]) -> Connection:
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


def reseal(tx: Tx, keys: Sequence[bytes], after: str, limit: int = 100) -> tuple[int, str | None]:
    """Seal with the newest key what older ones sealed, of up to `limit` connections from id `after`
    on; how many texts that were, and the last id, None at the end."""
    rows = tx.execute(
        "select id, tokens, secrets from connections where id > %s order by id limit %s for update",
        (after, limit),
    ).fetchall()
    sealed = 0
    for row in rows:
        for column, place in (("tokens", "tokens"), ("secrets", "secrets")):
            again = encryption.again(keys, row[column], place=(row["id"], place))
            if again is not None:
                column_name = sql.Identifier(column)
                tx.execute(
                    sql.SQL("update connections set {} = %s where id = %s").format(column_name),
                    (again, row["id"]),
                )
                sealed += 1
        for one in tx.execute(
            "select id, secret from registrations where connection_id = %s", (row["id"],)
        ).fetchall():
            place = (row["id"], "registration", one["id"])
            again = encryption.again(keys, one["secret"], place=place)
            if again is not None:
                tx.execute("update registrations set secret = %s where id = %s", (again, one["id"]))
                sealed += 1
    return sealed, rows[-1]["id"] if len(rows) == limit else None


def stuck(tx: Tx) -> Mapping[str, int]:
    """How many of all organisations bring nothing until a person acts, by why: a state, or the code
    of a refused OAuth application."""
    rows = tx.execute(
        "select case when state = 'ready' then error_code else state end as why, count(*) as n"
        " from connections where not paused and (state in ('needs_auth', 'failed')"
        "  or state = 'ready' and error_code = 'invalid_client') group by 1 order by 1"
    )
    return {row["why"]: row["n"] for row in rows}


def sealed_by_others(tx: Tx, mark: str) -> int:
    """How many connections hold something that the key of that mark did not seal."""
    row = tx.execute(
        "select count(*) as n from connections"
        " where not starts_with(tokens, %(mark)s) or not starts_with(secrets, %(mark)s)",
        {"mark": mark},
    ).fetchone()
    assert row is not None
    return row["n"]
