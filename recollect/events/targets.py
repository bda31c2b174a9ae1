"""Endpoints: where events go, which of them, and by which secrets they are signed."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, get_args

from psycopg.types.json import Jsonb

from recollect import encryption
from recollect.db import Tx, tenancy
from recollect.errors import BadRequestError, ConflictError, NotFoundError
from recollect.events.signing import place
from recollect.model import KeyId, OrgId, Tenant, storable
from recollect.orgs import audit

Event = Literal[
    "document.done",
    "document.failed",
    "document.deleted",
    "sync.completed",
    "sync.failed",
    "connection.needs_auth",
]
EVENTS: tuple[Event, ...] = get_args(Event)
MOST = 50
"""endpoints of an organisation"""
OVERLAP = timedelta(days=1)
"""How long an old secret signs beside the new one."""
MOST_OLD = 10
"""old secrets that sign at a time: each makes the header longer"""

_COLUMNS = (
    "e.id, e.org_id, e.url, e.description, e.events, e.tags, e.key_id, e.failures,"
    " e.failing_since, e.disabled_at, e.disabled_reason, e.created_at"
)
# A limited key sees an endpoint only when it may touch everything that the endpoint is told of.
REACH = tenancy.with_all("e.tags", "e.org_id")


@dataclass(frozen=True, slots=True)
class WebhookTarget:
    """An endpoint: where events go. `tags`: only what carries one of them; None: everything."""

    id: str
    org_id: OrgId
    url: str
    description: str
    events: Sequence[str]
    tags: Sequence[str] | None
    key_id: KeyId | None
    failures: int
    """attempts in a row that failed"""
    failing_since: datetime | None
    disabled_at: datetime | None
    disabled_reason: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class TargetChange:
    """What a caller changes. None means: leave it."""

    url: str | None = None
    description: str | None = None
    events: Sequence[str] | None = None
    tags: Sequence[str] | None = None
    """empty: everything"""
    disabled: bool | None = None
    secret: str | None = field(default=None, repr=False)
    """sealed; the one before signs for `OVERLAP` as well"""


STILL_SIGN = (
    "(select coalesce(jsonb_agg(one order by n), '[]')"
    " from jsonb_array_elements(old_secrets) with ordinality as t (one, n)"
    " where (one ->> 'until')::timestamptz > now())"
)
"""Of the old secrets of an endpoint, the newest first."""


def create(
    tx: Tx,
    tenant: Tenant,
    id: str,
    *,
    url: str,
    events: Sequence[str],
    tags: Sequence[str] | None,
    secret: str,
    description: str = "",
) -> WebhookTarget:
    """`secret` is sealed. Raises BadRequestError when the organisation has `MOST` of them."""
    row = tx.execute(
        "select count(*) as n from endpoints where org_id = %s", (tenant.id,)
    ).fetchone()
    if row is not None and row["n"] >= MOST:
        raise BadRequestError(f"there are {MOST} endpoints already; delete one first")
    tx.execute(
        "insert into endpoints (id, org_id, url, description, events, tags, secret, key_id)"
        " values (%s, %s, %s, %s, %s, %s, %s, %s)",
        (
            id,
            tenant.id,
            url,
            storable(description),
            list(events),
            None if tags is None else list(tags),
            secret,
            tenant.key,
        ),
    )
    audit.record(tx, "webhook.created", id, org=tenant.id)
    return get(tx, tenant, id)


def get(tx: Tx, tenant: Tenant, id: str, *, lock: bool = False) -> WebhookTarget:
    """Raises NotFoundError."""
    row = tx.execute(
        "select "
        + _COLUMNS
        + " from endpoints e where "
        + REACH
        + " and e.id = %(id)s"
        + (" for update of e" if lock else ""),
        {**tenancy.bounds(tenant), "id": id},
    ).fetchone()
    if row is None:
        raise NotFoundError("Webhook not found", f"no webhook {id!r}")
    return WebhookTarget(**row)


def find(tx: Tx, tenant: Tenant) -> list[WebhookTarget]:
    """The newest first."""
    rows = tx.execute(
        "select " + _COLUMNS + " from endpoints e where " + REACH + " order by e.created_at desc,"
        " e.id desc",
        tenancy.bounds(tenant),
    )
    return [WebhookTarget(**row) for row in rows]


def update(tx: Tx, tenant: Tenant, id: str, change: TargetChange) -> WebhookTarget:
    """Raises NotFoundError, and ConflictError when `MOST_OLD` old secrets sign already. Enabling it
    again and another address forget how it failed; what died stays dead. Of what other tags it was
    told, or was to be told, nothing is left."""
    found = get(tx, tenant, id)
    if change.tags:
        # First, so that this waits for whoever is writing a delivery with the old tags.
        tx.execute("select from endpoints where id = %s for update", (found.id,))
        _narrow(tx, found.id, change.tags)
    row = tx.execute(
        "update endpoints set url = coalesce(%(url)s, url),"
        " description = coalesce(%(description)s, description),"
        " events = coalesce(%(events)s, events),"
        " tags = nullif(coalesce(%(tags)s, tags), '{}'),"
        " old_secrets = case when %(secret)s::text is null then old_secrets else"
        "  jsonb_build_object('secret', secret, 'until', now() + %(overlap)s) || "
        + STILL_SIGN
        + " end, secret = coalesce(%(secret)s, secret), updated_at = now() where id = %(id)s"
        " returning jsonb_array_length(old_secrets) as old",
        {
            "id": found.id,
            "url": change.url,
            "description": storable(change.description),
            "events": None if change.events is None else list(change.events),
            "tags": None if change.tags is None else list(change.tags),
            "secret": change.secret,
            "overlap": OVERLAP,
        },
    ).fetchone()
    if change.secret is not None and row is not None and row["old"] > MOST_OLD:
        raise ConflictError(
            "Conflict",
            f"its secret was replaced {MOST_OLD} times within a day, and each old one still signs;"
            " make another endpoint instead",
        )
    if change.disabled is True:
        disable(tx, found.id, "disabled by hand")
    elif change.disabled is False:
        tx.execute(
            "update endpoints set disabled_at = null, disabled_reason = null where id = %s",
            (found.id,),
        )
    if change.disabled is False or change.url not in (None, found.url):
        tx.execute(
            "update endpoints set failures = 0, failing_since = null, rest_until = now()"
            " where id = %s",
            (found.id,),
        )
    rotated = change.secret is not None
    audit.record(tx, "webhook.changed", found.id, org=tenant.id, rotated=rotated)
    return get(tx, tenant, found.id)


def _narrow(tx: Tx, id: str, tags: Sequence[str]) -> None:
    """Take other tags out of its deliveries, and with their last one the delivery, as migration
    0069 tells it: of a connection only what writes to nothing else."""
    labels = "payload #> '{data,containerTags}'"
    tx.execute(
        "with told as (select d.id, d.type, coalesce((select"
        "   written_tags(c.container_tags, c.metadata, c.reach) <@ %(tags)s::text[]"
        "   from connections c where d.type not like 'document.%%' and c.id = coalesce("
        "    d.payload #>> '{data,connectionId}', d.payload #>> '{data,id}')), true) as within, "
        + labels
        + " as labels, coalesce((select"
        "   jsonb_agg(label order by n) from jsonb_array_elements_text(" + labels + ")"
        "   with ordinality as t (label, n) where label = any(%(tags)s)), '[]') as kept"
        "  from deliveries d where d.endpoint_id = %(id)s),"
        " gone as (delete from deliveries d using told t where d.id = t.id and (not t.within"
        "  or t.labels <> t.kept and (t.kept = '[]' or t.type not like 'document.%%')))"
        " update deliveries d set payload = jsonb_set(payload, '{data,containerTags}', t.kept)"
        " from told t where d.id = t.id and t.within and t.labels <> t.kept and t.kept <> '[]'"
        " and t.type like 'document.%%'",
        {"id": id, "tags": list(tags)},
    )


def delete(tx: Tx, tenant: Tenant, id: str) -> None:
    """With its log; raises NotFoundError."""
    found = get(tx, tenant, id)
    tx.execute("delete from endpoints where id = %s", (found.id,))
    audit.record(tx, "webhook.deleted", found.id, org=tenant.id)


def disable(tx: Tx, id: str, reason: str) -> None:
    """Tell it nothing more; what waits for it is dead, and can be replayed."""
    tx.execute(
        "update endpoints set disabled_at = coalesce(disabled_at, now()),"
        " disabled_reason = coalesce(disabled_reason, %s) where id = %s",
        (reason, id),
    )
    tx.execute(
        "update deliveries set state = 'dead', due_at = null, ended_at = now(),"
        " log = log || jsonb_build_array(jsonb_build_object('at', now(), 'status', null,"
        " 'reason', 'the endpoint is disabled', 'ms', 0))"
        " where endpoint_id = %s and due_at is not null",
        (id,),
    )


def reseal(tx: Tx, keys: Sequence[bytes]) -> int:
    """Seal with the newest key what older ones sealed; how many secrets."""
    done = 0
    for row in tx.execute("select id, secret, old_secrets from endpoints for update").fetchall():
        sealed = [row["secret"], *(old["secret"] for old in row["old_secrets"])]
        again = [encryption.again(keys, one, place=place(row["id"])) for one in sealed]
        if not any(again):
            continue
        new, *old_ones = (one or before for one, before in zip(again, sealed, strict=True))
        old = [
            {**old, "secret": one} for old, one in zip(row["old_secrets"], old_ones, strict=True)
        ]
        tx.execute(
            "update endpoints set secret = %s, old_secrets = %s where id = %s",
            (new, Jsonb(old), row["id"]),
        )
        done += sum(one is not None for one in again)
    return done
