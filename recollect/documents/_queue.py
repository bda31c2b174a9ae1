"""The queue: who works on which document, and when it is due again."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from psycopg.types.json import Jsonb

from recollect import db
from recollect.db import Tx
from recollect.db.leases import Leases, fenced
from recollect.documents._changing import drop_stashed
from recollect.documents._rows import COLUMNS, LATER, ORDER, content_of, read
from recollect.errors import LeaseLost
from recollect.model import (
    Claim,
    Document,
    DocumentId,
    Failure,
    Stage,
    Status,
    storable,
)

_LEASES = Leases("documents", "d.status = 'processing'", order=ORDER)
LONGEST_LEASE = timedelta(minutes=30)
"""of work that goes on when heartbeats have ended"""
TURNS_KEPT = 100
"""organisations of which a worker remembers the tag whose turn was last"""
NOTE = 4_000
"""bytes of a text up to which it is worked together with others"""
MOST_AHEAD = 10_000
"""documents that are counted before one that waits"""


@dataclass(slots=True)
class DocumentTurn:
    """Whose turn was last: an organisation, and a container tag of each of the last ones."""

    org: str = ""
    tags: dict[str, str] = field(default_factory=dict[str, str])

    def pass_on(self, org: str, tag: str) -> None:
        self.org = org
        self.tags.pop(org, None)
        self.tags[org] = tag
        while len(self.tags) > TURNS_KEPT:
            del self.tags[next(iter(self.tags))]


_TAKE = (
    """
update documents d set status = 'processing', stage = 'extracting', attempts = d.attempts + 1,
  claims = d.claims + 1, due_at = now() + %(lease)s, extractor = null
from due where d.id = due.id
returning """
    + COLUMNS
    + """, d.claims, d.content, d.content_hash, d.blob, d.blob_name,
  d.blob_mime, d.forced_kind, due.extractor, d.source_id,
  exists (select from watchers where expires_at > now()) as watched"""
)
# Walks from the turn on, in circles: organisations that have something due, then each one's tags.
# Each step is one look into documents_turns; what waits behind the first is not read. Tags that are
# busy are passed over, and of the others those of an organisation that has none come first.
_CLAIM = (
    """
with recursive orgs as (
  select %(org)s::text as org_id, false as around, 0 as n
  union all
  select next.org_id, next.around, o.n + 1 from orgs o cross join lateral (
    (select d.org_id, o.around from documents d
      where d.org_id > o.org_id and d.due_at <= now() and d.attempts < %(max)s
      order by d.org_id limit 1)
    union all
    (select d.org_id, true from documents d
      where not o.around and d.due_at <= now() and d.attempts < %(max)s
      order by d.org_id limit 1)
    limit 1
  ) next where o.n < %(steps)s and not (next.around and next.org_id > %(org)s)
), lanes as (
  select o.org_id, o.n, walk.tag, walk.k from orgs o cross join lateral (
    with recursive tags as (
      select coalesce(%(tags)s::jsonb ->> o.org_id, '') as tag, false as around, 0 as k
      union all
      select next.tag, next.around, t.k + 1 from tags t cross join lateral (
        (select d.container_tags[1] as tag, t.around from documents d
          where d.org_id = o.org_id and d.container_tags[1] > t.tag and d.due_at <= now()
            and d.attempts < %(max)s order by d.container_tags[1] limit 1)
        union all
        (select d.container_tags[1], true from documents d
          where not t.around and d.org_id = o.org_id and d.due_at <= now()
            and d.attempts < %(max)s order by d.container_tags[1] limit 1)
        limit 1
      ) next where t.k < %(steps)s
        and not (next.around and next.tag > coalesce(%(tags)s::jsonb ->> o.org_id, ''))
    ) select tag, k from tags where k > 0
  ) walk where o.n > 0 and not coalesce(%(busy)s::jsonb -> o.org_id ? walk.tag, false)
  order by %(busy)s::jsonb ? o.org_id, walk.k, o.n limit %(limit)s
), due as materialized (
  select one.id, one.extractor, lanes.n, lanes.k, lanes.tag from lanes cross join lateral (
    select d.id, d.extractor from documents d
    where d.org_id = lanes.org_id and d.container_tags[1] = lanes.tag and d.due_at <= now()
      and d.attempts < %(max)s
    order by d.due_at limit %(limit)s / (select count(*) from lanes) for update skip locked
  ) one
)"""
    + _TAKE
    + ", due.n, due.k, due.tag"
)


def claim(
    tx: Tx,
    *,
    lease: timedelta,
    limit: int,
    max_attempts: int,
    turn: DocumentTurn | None = None,
    busy: Collection[tuple[str, str]] = (),
) -> list[Claim]:
    """Take up to `limit` documents that are due, of as many organisations and tags as have some.

    They take turns, from `turn` on, which is passed on; of each tag the longest waiting come first.
    So whoever adds one document waits for one of everybody else's, not for all. Fewer than `limit`
    are no sign that nothing is left. None is taken of the organisations and tags that are `busy`.
    """
    turn = turn or DocumentTurn()
    tags: defaultdict[str, list[str]] = defaultdict(list)
    for org, tag in busy:
        tags[org].append(tag)
    rows = tx.execute(
        _CLAIM,
        {
            "lease": lease,
            "limit": limit,
            "steps": limit + len(busy),
            "max": max_attempts,
            "org": turn.org,
            "tags": Jsonb(turn.tags),
            "busy": Jsonb(tags),
        },
    ).fetchall()
    for row in sorted(rows, key=lambda row: (row["n"], row["k"])):
        turn.pass_on(row["org_id"], row["tag"])
    return [_claimed(row) for row in rows]


# Of the next in a lane those that one call of the model and one transaction can take together.
_CLAIM_NOTES = (
    """
with next as (
  select d.id from documents d
  where d.org_id = %(org)s and d.container_tags[1] = %(tag)s and d.due_at <= now()
    and d.attempts < %(max)s order by d.due_at limit 2 * %(limit)s
), due as materialized (
  select d.id, d.extractor from documents d join next using (id)
  where d.due_at <= now() and d.claims = 0 and d.blob is null and d.url is null
    and d.source_id is null and octet_length(d.content) <= %(size)s
  order by d.due_at limit %(limit)s for update of d skip locked
)"""
    + _TAKE
)


def is_note(claim: Claim) -> bool:
    """Whether it is a short text that nobody has worked on."""
    content = claim.content
    return (
        claim.number == 1
        and content.text is not None
        and content.blob is None
        and content.url is None
        and content.source_id is None
        and len(content.text.encode()) <= NOTE
    )


def claim_notes(
    tx: Tx, beside: Claim, *, lease: timedelta, limit: int, max_attempts: int
) -> list[Claim]:
    """Take more notes of the organisation and first tag of a claimed one, the longest waiting."""
    rows = tx.execute(
        _CLAIM_NOTES,
        {
            "lease": lease,
            "limit": limit,
            "max": max_attempts,
            "size": NOTE,
            "org": beside.document.org_id,
            "tag": beside.document.container_tags[0],
        },
    ).fetchall()
    return [_claimed(row) for row in rows]


def _claimed(row: Mapping[str, Any]) -> Claim:
    return Claim(read(row), row["claims"], content_of(row), row["watched"])


def ahead(tx: Tx, document: Document) -> int | None:
    """How many of its organisation and first tag are worked before it; None unless it waits.

    Counted up to `MOST_AHEAD`.
    """
    if document.status is not Status.QUEUED or document.due_at is None:
        return None
    row = tx.execute(
        "select count(*) as n from (select from documents where org_id = %s"
        " and container_tags[1] = %s and due_at < %s limit %s) before",
        (document.org_id, document.container_tags[0], document.due_at, MOST_AHEAD),
    ).fetchone()
    assert row is not None
    return row["n"]


def bury(tx: Tx, *, max_attempts: int) -> list[DocumentId]:
    """Fail what is due with no attempt left: such a document took its worker down, if not each time
    then the last."""
    rows = tx.execute(
        "with due as materialized"
        " (select id from documents where due_at <= now() and attempts >= %s"
        "  order by due_at limit 100 for update skip locked)"
        " update documents d set status = 'failed', stage = null, due_at = null,"
        # What an earlier attempt met is not what ended the last one.
        " error_code = case when d.status = 'processing' then 'worker_died'"
        "  else coalesce(d.error_code, 'worker_died') end,"
        " error_message = case when d.status = 'processing' or d.error_message is null"
        "  then format('the worker died while %%s it, at the last of %%s attempts',"
        "   coalesce(d.stage, 'processing'), d.attempts) else d.error_message end,"
        " updated_at = " + LATER + " from due where d.id = due.id returning d.id, d.org_id",
        (max_attempts,),
    ).fetchall()
    for org in sorted({row["org_id"] for row in rows}):
        drop_stashed(tx, org, [row["id"] for row in rows if row["org_id"] == org])
    return [DocumentId(row["id"]) for row in rows]


def next_due_in(tx: Tx) -> timedelta | None:
    """How long until the next document is due; None when none ever is."""
    row = tx.execute("select min(due_at) - now() as wait from documents where due_at is not null")
    found = row.fetchone()
    return found["wait"] if found else None


def advance(tx: Tx, claim: Claim, stage: Stage, *, lease: timedelta) -> None:
    """Show progress and renew the lease; raises LeaseLost."""
    fenced(
        tx,
        "update documents set stage = %s, due_at = now() + %s"
        " where id = %s and claims = %s and status = 'processing'",
        (stage, lease, claim.document.id, claim.number),
    )


def renew(tx: Tx, claims: Sequence[Claim], *, lease: timedelta) -> None:
    """The heartbeat: renew the leases that are still ours."""
    held = [(one.document.id, one.number) for one in claims]
    _LEASES.renew(tx, held, lease, spare=LONGEST_LEASE)


def retry(tx: Tx, claim: Claim, failure: Failure, after: timedelta, *, free: bool = False) -> None:
    """Put back in the queue, due after `after`; `free`: the attempt does not count.

    Content that arrived meanwhile is due at once, with all its attempts.
    """
    fenced(
        tx,
        "update documents set status = 'queued', stage = null, error_code = %(code)s,"
        " error_message = %(message)s,"
        " due_at = now() + case when revision > %(revision)s then interval '0' else %(after)s end,"
        " attempts = case when revision > %(revision)s then 0"
        "                 when %(free)s then greatest(attempts - 1, 0) else attempts end"
        " where id = %(id)s and claims = %(number)s and status = 'processing'",
        {**_failed(claim, failure), "after": after, "free": free},
    )


def fail(tx: Tx, claim: Claim, failure: Failure) -> None:
    """Give up on this revision, with the reason; an earlier good one stays searchable."""
    row = tx.execute(
        "update documents set stage = null, error_code = %(code)s, error_message = %(message)s,"
        " status = case when revision > %(revision)s then 'queued' else 'failed' end,"
        " due_at = case when revision > %(revision)s then now() end,"
        " attempts = case when revision > %(revision)s then 0 else attempts end,"
        " updated_at = "
        + LATER
        + " where id = %(id)s and claims = %(number)s and status = 'processing' returning status",
        _failed(claim, failure),
    ).fetchone()
    if row is None:
        raise LeaseLost
    if row["status"] == Status.QUEUED:
        db.notify(tx)
    drop_stashed(tx, claim.document.org_id, [claim.document.id])


def release(tx: Tx, claims: Sequence[Claim]) -> None:
    """Give back unfinished work at a graceful stop: due at once, the attempt does not count."""
    held = [(one.document.id, one.number) for one in claims]
    back = "status = 'queued', stage = null, attempts = greatest(d.attempts - 1, 0)"
    _LEASES.release(tx, held, back)
    db.notify(tx)


def _failed(claim: Claim, failure: Failure) -> dict[str, object]:
    return {
        "id": claim.document.id,
        "number": claim.number,
        "revision": claim.document.revision,
        "code": failure.code,
        "message": storable(failure.message)[:2000],
    }
