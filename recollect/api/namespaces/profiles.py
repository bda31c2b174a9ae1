"""The profile of a namespace, and its buckets."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import Header, Response
from fastapi.responses import PlainTextResponse
from pydantic import AfterValidator, Field

from recollect.api.deps import CurrentApp, wants
from recollect.api.memory_schemas import BucketKey
from recollect.api.namespaces._door import Closed, Reads, Writes, closed
from recollect.api.namespaces._door import router as door
from recollect.api.namespaces._shapes import Named
from recollect.api.namespaces.reading import FilterIn
from recollect.api.settings_schemas import Bucket
from recollect.api.wire import Text, Wire
from recollect.db import Tx
from recollect.documents.predicates import parse
from recollect.memories import reading
from recollect.memories.reading import Profile, ProfileEntry
from recollect.model import Tenant
from recollect.orgs import settings, tags

router = door("profile")
MOST_NAMED = 50
MARKDOWN = "text/markdown"


def _bucket_key(key: str) -> str:
    return Bucket.model_validate({"key": key}).key


Key = Annotated[BucketKey, AfterValidator(_bucket_key)]


class ProfileBody(Closed):
    model_config = closed(buckets=["work"])

    filter: FilterIn = None
    buckets: Annotated[list[BucketKey], Field(max_length=MOST_NAMED)] | None = None


class NewBuckets(Closed):
    model_config = closed(buckets={"work": "What the user does for a living."})

    buckets: dict[Key, Annotated[Text, Field(max_length=2_000)]] = Field(
        min_length=1, max_length=MOST_NAMED, description="What belongs in each, by its name."
    )


def _different(names: list[str]) -> list[str]:
    if len(set(names)) < len(names):
        raise ValueError("names one twice")
    return names


class GoneBuckets(Closed):
    model_config = closed(buckets=["work"])

    buckets: Annotated[list[BucketKey], AfterValidator(_different)] = Field(
        min_length=1, max_length=MOST_NAMED
    )


class Sections(Wire):
    static: list[Named]
    dynamic: list[Named]
    buckets: dict[str, list[Named]]


class NsProfileOut(Wire):
    profile: Sections


class NsBucketsOut(Wire):
    buckets: dict[str, str]


@router.post(
    "/ns/{namespace}/profile",
    summary="Get a profile",
    operation_id="nsGetProfile",
    response_model=NsProfileOut,
    responses={200: {"content": {MARKDOWN: {"schema": {"type": "string"}}}}},
)
def profile(
    space: Reads,
    app: CurrentApp,
    body: ProfileBody | None = None,
    accept: Annotated[str | None, Header()] = None,
) -> Response | NsProfileOut:
    """What is known: lasting facts (`static`), the others, newest first (`dynamic`), and those of
    each bucket. As Markdown for anyone who accepts that before JSON."""
    body = body or ProfileBody()
    filter = None if body.filter is None else parse(body.filter)

    def read(tx: Tx) -> tuple[Sequence[str], Profile]:
        defined = [one["key"] for one in settings.buckets_of(tx, space.inside.id, space.name)]
        wanted = defined if body.buckets is None else body.buckets
        asked = [key for key in wanted if key in defined]
        return wanted, reading.profile(tx, space.inside, space.name, filter, asked)

    wanted, known = app.db.read(read)
    sections = Sections(
        static=_named(known.static),
        dynamic=_named(known.dynamic),
        buckets={key: _named(known.buckets.get(key, ())) for key in wanted},
    )
    if wants(accept, MARKDOWN):
        return PlainTextResponse(_markdown(sections), media_type=MARKDOWN)
    return NsProfileOut(profile=sections)


@router.get("/ns/{namespace}/profile/buckets", summary="List buckets", operation_id="nsGetBuckets")
def buckets(space: Reads, app: CurrentApp) -> NsBucketsOut:
    """Those of the organisation, and the namespace's own beside them."""
    return app.db.read(lambda tx: _shown(tx, space.inside, space.name))


@router.put(
    "/ns/{namespace}/profile/buckets", summary="Define buckets", operation_id="nsSetBuckets"
)
def set_buckets(space: Writes, body: NewBuckets, app: CurrentApp) -> NsBucketsOut:
    """Adds and redefines; the others stay. 409 for one of the organisation's."""
    with app.db.begin() as tx:
        return _changed(tx, space.inside, space.name, body.buckets)


@router.delete(
    "/ns/{namespace}/profile/buckets", summary="Remove buckets", operation_id="nsDeleteBuckets"
)
def delete_buckets(space: Writes, body: GoneBuckets, app: CurrentApp) -> NsBucketsOut:
    """Memories stay; unknown names are passed over. 409 for one of the organisation's."""
    with app.db.begin() as tx:
        return _changed(tx, space.inside, space.name, dict.fromkeys(body.buckets))


def _changed(
    tx: Tx, tenant: Tenant, name: str, change: dict[str, str] | dict[str, None]
) -> NsBucketsOut:
    organisation = settings.read(tx, tenant.id)["profileBuckets"]
    tags.change_buckets(tx, tenant, name, change, organisation=organisation)
    return _shown(tx, tenant, name)


def _shown(tx: Tx, tenant: Tenant, name: str) -> NsBucketsOut:
    found = settings.buckets_of(tx, tenant.id, name)
    return NsBucketsOut(buckets={one["key"]: one.get("description") or "" for one in found})


def _named(entries: Sequence[ProfileEntry]) -> list[Named]:
    return [Named(id=one.id, memory=one.text) for one in entries]


def _markdown(sections: Sections) -> str:
    titled = {"Static": sections.static, "Dynamic": sections.dynamic, **sections.buckets}
    parts = [
        "\n".join([f"## {title}", "", *(f"- {' '.join(one.memory.split())}" for one in some)])
        for title, some in titled.items()
        if some
    ]
    return "\n\n".join(parts) + ("\n" if parts else "")
