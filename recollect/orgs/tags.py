"""Container tags: labels that group documents, and what is kept on them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from psycopg.types.json import Jsonb

from recollect.db import Tx, notify, tenancy
from recollect.errors import (
    BadRequestError,
    ConflictError,
    Issue,
    NotFoundError,
    PermissionDeniedError,
)
from recollect.index import terms
from recollect.model import DocumentId, OrgId, Page, Tag, Tenant

DEFAULT = "sm_project_default"
ENTITY_CONTEXT_LIMIT = 1500
TITLE_LENGTH = 200
BUCKET_LENGTH = 2_000
"""characters of its description"""
_BUCKET_KEY = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
BUCKET_KEY = f"^{_BUCKET_KEY.pattern}$"
BUCKETS_OF_THE_SERVICE = ("static", "dynamic")
MOST_BUCKETS = 50
"""of a tag's own"""
MOST_FAILURES = 8
"""in a row, of a batch of a merge: four minutes; then it is given up"""
_NAME = re.compile(r"[A-Za-z0-9_:.-]{1,100}")
_PREFIX = re.compile(r"[A-Za-z0-9_:.-]{1,98}:\*")


@dataclass(frozen=True, slots=True)
class TagDetails:
    """A tag with all that is kept on it, and how many documents carry it."""

    tag: Tag
    title: str | None
    profile_buckets: Sequence[Mapping[str, Any]] | None
    updated_at: datetime
    documents: int


@dataclass(frozen=True, slots=True)
class Merge:
    """Documents on their way from some tags to another; `kept` are those that cannot go."""

    id: str
    org_id: OrgId
    sources: Sequence[str]
    target: str
    moved: int
    kept: Sequence[str]
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    reason: str | None
    """why it was given up, if it was"""


def check(
    names: Iterable[str], field: str = "containerTag", *, prefixes: bool = False
) -> list[str]:
    """The names without repeats; raises BadRequestError on one that is not a tag.

    `prefixes`: `team:*` passes as well, and means any tag that begins with `team:`.
    """
    unique = list(dict.fromkeys(names))
    for name in unique:
        if not _NAME.fullmatch(name) and not (prefixes and _PREFIX.fullmatch(name)):
            fault = "1 to 100 characters of letters, digits, _ - : ."
            raise BadRequestError(f"{field}: {fault}", [Issue([field], fault)])
    return unique


def asked(
    tenant: Tenant,
    one: str | None,
    several: Sequence[str] | None,
    *,
    default: bool,
    prefixes: bool = False,
    field: str = "containerTag",
) -> list[str]:
    """The container tags of a request: `containerTag` first, then `containerTags`.

    `default`: when none is named, the tag that a write goes to. `prefixes`: a read may ask for
    `team:*`, any tag that begins with `team:`. Raises BadRequestError for a name
    that is not a tag, PermissionDeniedError for one that the key may not touch; `field` is how they
    call it.
    """
    given = [*([one] if one is not None else []), *(several or ())]
    named = check(given, field, prefixes=prefixes)
    if tenant.tags is not None:
        foreign = [name for name in named if name not in tenant.tags]
        if foreign:
            raise PermissionDeniedError(
                "Forbidden", f"{field}: this key may not use {foreign[0]!r}"
            )
    if named or not default:
        return named
    return [tenant.tags[0]] if tenant.tags else [DEFAULT]


def ensure(tx: Tx, org: OrgId, names: Sequence[str], entity_context: str | None = None) -> None:
    """Make the tags that are not there yet; `entity_context` replaces that of all of them."""
    tx.execute(
        "insert into tags (org_id, name, entity_context)"
        " select %(org)s, name, %(context)s from unnest(%(names)s::text[]) name order by name"
        " on conflict (org_id, name) do "
        + (
            "nothing"  # and nobody waits
            if entity_context is None
            else "update set entity_context = excluded.entity_context, updated_at = now()"
        ),
        {"org": org, "names": list(names), "context": entity_context},
    )


def guidance(
    tx: Tx, org: OrgId, name: str
) -> tuple[str | None, Sequence[Mapping[str, Any]] | None]:
    """Entity context and profile buckets of its own; None where there are none."""
    row = tx.execute(
        "select entity_context, profile_buckets from tags where org_id = %s and name = %s",
        (org, name),
    ).fetchone()
    return (row["entity_context"], row["profile_buckets"]) if row else (None, None)


_DETAILS = (
    "select t.org_id, t.name, t.entity_context, t.created_at, t.title, t.profile_buckets,"
    " t.updated_at from tags t"
    " where " + tenancy.with_one("t.name", "t.org_id")
)


def find(
    tx: Tx,
    tenant: Tenant,
    *,
    limit: int,
    page: int,
    part: str = "",
    order: Literal["name", "newest"] = "name",
) -> Page[TagDetails]:
    """The tags that the tenant may touch and whose name has this part, in any case."""
    asked = {
        **tenancy.bounds(tenant),
        "part": part,
        "limit": limit,
        "offset": (page - 1) * limit,
    }
    matching = "(" + _DETAILS + " and strpos(fold_case(t.name), fold_case(%(part)s)) > 0) as found"
    by = "name" if order == "name" else "created_at desc, name"
    rows = tx.execute(
        "select *, count(*) over () as total from " + matching + f" order by {by}"
        " limit %(limit)s offset %(offset)s",
        asked,
    ).fetchall()
    total = rows[0]["total"] if rows else 0
    if not rows and page > 1:
        counted = tx.execute("select count(*) as n from " + matching, asked).fetchone()
        total = counted["n"] if counted else 0
    held = _held(tx, tenant.id, [row["name"] for row in rows])
    return Page([_details(row, held[row["name"]]) for row in rows], total, page, limit)


def get(tx: Tx, tenant: Tenant, name: str, *, lock: bool = False) -> TagDetails:
    """Raises NotFoundError, also for a tag that the tenant may not touch."""
    row = tx.execute(
        _DETAILS + " and t.name = %(name)s" + (" for no key update of t" if lock else ""),
        {**tenancy.bounds(tenant), "name": name},
    ).fetchone()
    if row is None:
        raise _unknown(name)
    return _details(row, _held(tx, tenant.id, [name])[name])


def require(tx: Tx, tenant: Tenant, name: str) -> None:
    """Raises NotFoundError as `get`, whose counts it does without."""
    known = tx.execute(
        "select from tags t where " + tenancy.with_one("t.name", "t.org_id")
        + " and t.name = %(name)s",
        {**tenancy.bounds(tenant), "name": name},
    ).fetchone()  # fmt: skip
    if known is None:
        raise _unknown(name)


def _held(tx: Tx, org: OrgId, names: Sequence[str]) -> dict[str, int]:
    """How many documents carry each of the tags, by the counts that are kept (migration 0044)."""
    rows = tx.execute(
        "select tag, sum(documents)::int8 as n from kept_counts"
        " where org_id = %s and connection_id = '' and tag = any(%s) group by tag",
        (org, list(names)),
    )
    return dict.fromkeys(names, 0) | {row["tag"]: row["n"] for row in rows}


def patch(tx: Tx, tenant: Tenant, name: str, change: Mapping[str, Any]) -> TagDetails:
    """Set what `change` names (`title`, `entity_context`, `profile_buckets`); None clears it."""
    try:
        get(tx, tenant, name)
    except NotFoundError as error:
        made = f"{error.details}; its first document makes it and may bring its entityContext"
        raise NotFoundError(error.message, made) from error
    buckets = change.get("profile_buckets")
    tx.execute(
        "update tags set updated_at = now(),"
        " title = case when %(sets_title)s then %(title)s else title end,"
        " entity_context = case when %(sets_context)s then %(context)s else entity_context end,"
        " profile_buckets = case when %(sets_buckets)s then %(buckets)s else profile_buckets end"
        " where org_id = %(org)s and name = %(name)s",
        {
            "org": tenant.id,
            "name": name,
            "sets_title": "title" in change,
            "title": change.get("title"),
            "sets_context": "entity_context" in change,
            "context": change.get("entity_context"),
            "sets_buckets": "profile_buckets" in change,
            "buckets": None if buckets is None else Jsonb(buckets),
        },
    )
    return get(tx, tenant, name)


def buckets(
    organisation: Sequence[Mapping[str, Any]] | None, own: Sequence[Mapping[str, Any]] | None
) -> list[Mapping[str, Any]]:
    """The profile buckets that hold for a tag: those of the organisation, and its own beside them.
    Where both define one, the organisation's counts."""
    first = list(organisation or ())
    taken = {one["key"] for one in first}
    return [*first, *(one for one in own or () if one["key"] not in taken)]


def check_bucket(key: str, description: str) -> None:
    """Raises BadRequestError for a bucket that a tag cannot have."""
    if not _BUCKET_KEY.fullmatch(key):
        raise BadRequestError(
            "bucket: 1 to 64 of a-z, 0-9, _ and -, beginning with a letter or digit"
        )
    if key in BUCKETS_OF_THE_SERVICE:
        raise BadRequestError(f"bucket: {key} is a bucket of the service itself")
    if len(description) > BUCKET_LENGTH:
        raise BadRequestError(f"bucket: a description has at most {BUCKET_LENGTH:,} characters")


def change_buckets(
    tx: Tx,
    tenant: Tenant,
    name: str,
    change: Mapping[str, str | None],
    *,
    organisation: Sequence[Mapping[str, Any]] | None,
) -> TagDetails:
    """Define buckets of the tag, or with None take one away; the others stay.

    Raises NotFoundError, BadRequestError for more than `MOST_BUCKETS`, and ConflictError for one
    of the organisation's, or while a merge has the tag in work.
    """
    refuse_merging(tx, tenant.id, name)
    theirs = sorted({one["key"] for one in organisation or ()} & change.keys())
    if theirs:
        raise ConflictError("Conflict", f"buckets: {theirs[0]!r} belongs to the organisation")
    get(tx, tenant, name, lock=True)
    own = {one["key"]: one for one in guidance(tx, tenant.id, name)[1] or ()}
    own |= {key: {"key": key, "description": told} for key, told in change.items()}
    kept = [one for key, one in own.items() if change.get(key, "") is not None]
    if len(kept) > MOST_BUCKETS:
        raise BadRequestError(f"buckets: at most {MOST_BUCKETS}, these would be {len(kept)}")
    return patch(tx, tenant, name, {"profile_buckets": kept})


def forget(tx: Tx, org: OrgId, name: str) -> None:
    """Drop what is kept on a tag; its documents are not touched. Waits for transactions that give
    the tag to a document now; later ones wait for this one (migration 0046)."""
    tx.execute("delete from tags where org_id = %s and name = %s", (org, name))


def forget_all(tx: Tx, org: OrgId) -> None:
    """Drop what is kept on every tag of the organisation, and its merges."""
    tx.execute("delete from tag_merges where org_id = %s", (org,))
    rows = tx.execute("delete from tags where org_id = %s returning name", (org,)).fetchall()
    restore(tx, org, [row["name"] for row in rows])


def restore(tx: Tx, org: OrgId, names: Sequence[str]) -> None:
    """Make those again that documents carry, which came while they were being forgotten."""
    tx.execute(
        "insert into tags (org_id, name) select %(org)s, t.name"
        " from unnest(%(names)s::text[], %(numbers)s::int4[]) as t (name, number)"
        " where exists (select from documents d where d.org_id = %(org)s and d.gone_at is null"
        "  and d.scope @> array[t.number] and t.name = any(d.container_tags))"
        " order by t.name on conflict do nothing",
        {
            "org": org,
            "names": list(names),
            "numbers": [terms.tag_number(org, name) for name in names],
        },
    )


# --- merging -----------------------------------------------------------------------------------


def begin_merge(tx: Tx, tenant: Tenant, sources: Sequence[str], target: str, id: str) -> Merge:
    """Note that the sources are to go into the target, and wake a worker for it; asked again
    meanwhile, it is the same merge.

    Raises NotFoundError for a source that is not there, ConflictError while another merge moves
    documents from or to one of the tags.
    """
    running = _running(tx, tenant.id, [*sources, target])
    if running is not None:
        if (sorted(running["sources"]), running["target"]) == (sorted(sources), target):
            return _merge(running)
        raise _busy(running)
    for name in sources:
        get(tx, tenant, name)
    ensure(tx, tenant.id, [target])
    row = tx.execute(
        "insert into tag_merges (id, org_id, sources, target) values (%s, %s, %s, %s) returning *",
        (id, tenant.id, list(sources), target),
    ).fetchone()
    assert row is not None
    notify(tx)
    return _merge(row)


def names(tx: Tx, tenant: Tenant, limit: int) -> list[str]:
    """The first names of the tags that the tenant may touch."""
    rows = tx.execute(
        "select name from tags where " + tenancy.with_one("name", "org_id")
        + " order by name limit %(limit)s",
        {**tenancy.bounds(tenant), "limit": limit},
    )  # fmt: skip
    return [row["name"] for row in rows]


def refuse_merging(tx: Tx, org: OrgId, name: str) -> None:
    """Raises ConflictError while a merge moves documents from or to the tag; until this transaction
    ends none begins."""
    running = _running(tx, org, [name])
    if running is not None:
        raise _busy(running)


def _running(tx: Tx, org: OrgId, names: Sequence[str]) -> Mapping[str, Any] | None:
    """The first unfinished merge with one of the tags; others wait to begin one."""
    tx.execute("select pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"merges {org}",))
    return tx.execute(
        "select * from tag_merges where org_id = %s and finished_at is null"
        " and (target = any(%s) or sources && %s::text[]) order by created_at limit 1",
        (org, list(names), list(names)),
    ).fetchone()


def _busy(running: Mapping[str, Any]) -> ConflictError:
    return ConflictError(
        "Merge running", f"merge {running['id']} is still moving one of these tags"
    )


def merges(tx: Tx, tenant: Tenant, name: str, limit: int) -> list[Merge]:
    """The last that have the tag as source or target, the newest first; none with a tag that the
    tenant may not touch."""
    rows = tx.execute(
        "select * from tag_merges where %(name)s = any(sources || target) and "
        + tenancy.with_all("sources || target", "org_id")
        + " order by created_at desc limit %(limit)s",
        {"name": name, "limit": limit, **tenancy.bounds(tenant)},
    )
    return [_merge(row) for row in rows]


def merge(tx: Tx, tenant: Tenant, id: str) -> Merge:
    """Raises NotFoundError, also for one with a tag that the tenant may not touch."""
    row = tx.execute(
        "select * from tag_merges where id = %(id)s and "
        + tenancy.with_all("sources || target", "org_id"),
        {"id": id, **tenancy.bounds(tenant)},
    ).fetchone()
    if row is None:
        raise NotFoundError("Merge not found", f"no merge {id!r}")
    return _merge(row)


def claim_merge(tx: Tx) -> Merge | None:
    """The unfinished merge that waits longest, of those that nobody else works on now, locked.

    One that failed waits 2, 4, 8 … seconds.
    """
    row = tx.execute(
        "select * from tag_merges where finished_at is null and (failures = 0"
        "  or updated_at < now() - interval '1 second' * 2 ^ failures)"
        " order by updated_at limit 1 for update skip locked"
    ).fetchone()
    return None if row is None else _merge(row)


def fail_merge(tx: Tx, id: str, reason: str) -> bool:
    """Count a batch that could not be moved; whether the merge is given up with that.

    What was moved stays moved; what was not keeps its tags.
    """
    row = tx.execute(
        "update tag_merges set failures = failures + 1, updated_at = now(),"
        " finished_at = case when failures + 1 >= %(most)s then now() end,"
        " reason = case when failures + 1 >= %(most)s then %(reason)s end"
        " where id = %(id)s and finished_at is null returning finished_at",
        {"id": id, "reason": reason, "most": MOST_FAILURES},
    ).fetchone()
    return row is not None and row["finished_at"] is not None


def advance_merge(
    tx: Tx, merge: Merge, moved: int, kept: Sequence[DocumentId], *, done: bool
) -> None:
    """Note what a batch did. `done`: the sources end, but for those that keep documents, or got
    some since."""
    tx.execute(
        "update tag_merges set moved = moved + %s, kept = kept || %s::text[], updated_at = now(),"
        " failures = 0, finished_at = case when %s then now() end where id = %s",
        (moved, list(kept), done, merge.id),
    )
    if not done:
        return
    tx.execute(
        "update tags set entity_context = (select s.entity_context from tags s"
        "  where s.org_id = %(org)s and s.name = any(%(sources)s) and s.entity_context is not null"
        "  order by array_position(%(sources)s::text[], s.name) limit 1)"
        " where org_id = %(org)s and name = %(target)s and entity_context is null",
        {"org": merge.org_id, "sources": list(merge.sources), "target": merge.target},
    )
    _take_over_buckets(tx, merge)
    # They would end with their tag; what was made of a document that stays behind stays with it.
    of_sources = (merge.target, merge.org_id, list(merge.sources))
    tx.execute(
        "update test_questions t set tag = %s where t.org_id = %s and t.tag = any(%s)"
        " and not exists (select from documents d where d.id = t.made_from and d.gone_at is null"
        "  and t.tag = any(d.container_tags))",
        of_sources,
    )
    tx.execute("update test_runs set tag = %s where org_id = %s and tag = any(%s)", of_sources)
    tx.execute(
        "delete from tags t using unnest(%(sources)s::text[], %(numbers)s::int4[])"
        "  as source (name, number) where t.org_id = %(org)s and t.name = source.name"
        " and not exists (select from documents d where d.org_id = %(org)s and d.gone_at is null"
        "  and d.scope @> array[source.number] and t.name = any(d.container_tags))",
        {
            "org": merge.org_id,
            "sources": list(merge.sources),
            "numbers": [terms.tag_number(merge.org_id, name) for name in merge.sources],
        },
    )
    restore(tx, merge.org_id, merge.sources)


def _take_over_buckets(tx: Tx, merge: Merge) -> None:
    """Those that the target lacks, as far as there is room: memories that came name them."""
    rows = tx.execute(
        "select name, profile_buckets from tags where org_id = %s and name = any(%s)"
        " order by name for no key update",
        (merge.org_id, [merge.target, *merge.sources]),
    ).fetchall()
    found: dict[str, Sequence[Mapping[str, Any]]] = {
        row["name"]: row["profile_buckets"] or () for row in rows
    }
    kept = {one["key"]: one for one in found.pop(merge.target, ())}
    before = len(kept)
    for name in merge.sources:
        for one in found.get(name, ()):
            if len(kept) < MOST_BUCKETS:
                kept.setdefault(one["key"], one)
    if len(kept) > before:
        tx.execute(
            "update tags set profile_buckets = %s where org_id = %s and name = %s",
            (Jsonb(list(kept.values())), merge.org_id, merge.target),
        )


def _merge(row: Mapping[str, Any]) -> Merge:
    return Merge(
        id=row["id"],
        org_id=OrgId(row["org_id"]),
        sources=row["sources"],
        target=row["target"],
        moved=row["moved"],
        kept=row["kept"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        finished_at=row["finished_at"],
        reason=row["reason"],
    )


def _details(row: Mapping[str, Any], documents: int) -> TagDetails:
    return TagDetails(
        tag=Tag(OrgId(row["org_id"]), row["name"], row["entity_context"], row["created_at"]),
        title=row["title"],
        profile_buckets=row["profile_buckets"],
        updated_at=row["updated_at"],
        documents=documents,
    )


def _unknown(name: str) -> NotFoundError:
    return NotFoundError("Container tag not found", f"no container tag {name!r}")
