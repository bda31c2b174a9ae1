"""Tags: what each holds and how it is set up; merging and deleting them."""

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Form, Query, Request, Response
from fastapi.responses import RedirectResponse

from recollect.app import App
from recollect.console import _room
from recollect.console._room import (
    CurrentApp,
    PathId,
    Reader,
    SignedInPage,
    Text,
    Writer,
    address,
    known_tags,
    near,
    page,
)
from recollect.db import Tx
from recollect.documents import figures
from recollect.documents.figures import Figure
from recollect.errors import BadRequestError, RequestError
from recollect.memories import reading
from recollect.model import Tenant, random_id
from recollect.orgs import settings, tags
from recollect.orgs.tags import ENTITY_CONTEXT_LIMIT, TITLE_LENGTH
from recollect.sync import connections
from recollect.sync.sources import end_tag

TAGS = "/console/tags"
ONE = f"{TAGS}/tag"
"""Of one tag; its name is a parameter, since `.` and `..` are names of tags as well."""
ROWS = 50
COUNTED = 10_000
"""Documents and memories of a tag that are counted at most."""
MERGES = 5
NOTICES = {
    "saved": "Saved.",
    "bucket": "The bucket is saved.",
    "gone": "The bucket is removed; memories stay.",
}

rooms = APIRouter(route_class=SignedInPage, include_in_schema=False)


@rooms.get(TAGS)
def find(
    request: Request,
    tenant: Reader,
    app: CurrentApp,
    q: Annotated[Text, Query(max_length=100)] = "",
    number: Annotated[int, Query(alias="page", ge=1, le=1_000_000)] = 1,
    ended: Annotated[Text, Query(max_length=100)] = "",
    n: int = 0,
    c: int = 0,
) -> Response:
    with app.db.begin() as tx:
        found = tags.find(tx, tenant, limit=ROWS, page=number, part=q.strip())
        names = [one.tag.name for one in found.items]
        remembered = reading.held(tx, tenant, names, most=COUNTED)
    last = max(1, -(-found.total // ROWS))
    values = {
        "q": q,
        "found": found,
        "rows": [
            (one, Figure(one.documents), counted(remembered[one.tag.name])) for one in found.items
        ],
        "ended": ended,
        "deleted": n,
        "naming": c,
        "last": last,
        "links": {at: address(TAGS, q=q, page=at) for at in near(number, last)},
        "snippets": _room.code(request, "listContainerTags") if not q else {},
    }
    return page(request, "tags.html", values)


@rooms.get(ONE)
def look(request: Request, name: Text, tenant: Reader, app: CurrentApp, done: str = "") -> Response:
    return _page(request, app, tenant, name, notice=NOTICES.get(done))


@rooms.post(ONE)
def change(
    request: Request,
    tenant: Writer,
    app: CurrentApp,
    name: Annotated[Text, Form()],
    title: Annotated[Text, Form()] = "",
    context: Annotated[Text, Form()] = "",
    before: Annotated[str | None, Form()] = None,
) -> Response:
    title, context = title.strip(), context.replace("\r\n", "\n").strip()
    try:
        if len(title) > TITLE_LENGTH:
            raise BadRequestError(f"title: at most {TITLE_LENGTH} characters")
        if len(context) > ENTITY_CONTEXT_LIMIT:
            raise BadRequestError(f"context: at most {ENTITY_CONTEXT_LIMIT:,} characters")
        wanted = {"title": title or None, "entity_context": context or None}

        def write(tx: Tx) -> None:
            _room.check_stamp(before, _stored(tags.get(tx, tenant, name, lock=True)))
            tags.patch(tx, tenant, name, wanted)

        app.db.write(write)
    except RequestError as error:
        typed = {"title": title, "context": context}
        return _page(request, app, tenant, name, typed=typed, error=error)
    return RedirectResponse(address(ONE, name=name, done="saved"), 303)


@rooms.post(TAGS + "/bucket")
def change_bucket(
    request: Request,
    tenant: Writer,
    app: CurrentApp,
    name: Annotated[Text, Form()],
    key: Annotated[Text, Form()] = "",
    description: Annotated[Text, Form()] = "",
    action: Annotated[str, Form()] = "save",
) -> Response:
    key, description = key.strip(), description.strip()
    is_removed = action == "remove"
    try:
        tags.check_bucket(key, description)
        with app.db.begin() as tx:
            organisation = settings.read(tx, tenant.id)["profileBuckets"]
            wanted = {key: None if is_removed else description}
            tags.change_buckets(tx, tenant, name, wanted, organisation=organisation)
    except RequestError as error:
        typed = {} if is_removed else {"key": key, "description": description}
        return _page(request, app, tenant, name, typed=typed, error=error)
    done = "gone" if is_removed else "bucket"
    return RedirectResponse(address(ONE, name=name, done=done), 303)


@rooms.get(TAGS + "/merge")
def ask_to_merge(
    request: Request, name: Text, tenant: Writer, app: CurrentApp, into: Text = ""
) -> Response:
    """Names what would move, before it does."""
    with app.db.begin() as tx:
        one = tags.get(tx, tenant, name)
        named = connections.naming(tx, tenant, one.tag.name)
    try:
        target = _target(tenant, one.tag.name, into)
    except RequestError as error:
        return _page(request, app, tenant, name, typed={"into": into}, error=error)
    values = {
        "name": one.tag.name,
        "into": target,
        "documents": Figure(one.documents),
        "connections": len(named),
    }
    return page(request, "tag_merge.html", values)


@rooms.post(TAGS + "/merge")
def merge(
    request: Request,
    tenant: Writer,
    app: CurrentApp,
    name: Annotated[Text, Form()],
    into: Annotated[Text, Form()] = "",
) -> Response:
    """A worker does it after the answer; asked again meanwhile, it is the same merge."""
    try:
        target = _target(tenant, name, into)
        begun = app.db.write(lambda tx: tags.begin_merge(tx, tenant, [name], target, random_id()))
    except RequestError as error:
        return _page(request, app, tenant, name, typed={"into": into}, error=error)
    return RedirectResponse(f"{TAGS}/merges/{begun.id}", 303)


@rooms.get(TAGS + "/merges/{id}")
def merge_state(request: Request, id: PathId, tenant: Reader, app: CurrentApp) -> Response:
    with app.db.begin() as tx:
        found = tags.merge(tx, tenant, id)
    return page(request, "tag_merging.html", {"merge": found})


@rooms.get(TAGS + "/delete")
def ask_to_delete(request: Request, name: Text, tenant: Writer, app: CurrentApp) -> Response:
    """Says how many documents go with it."""
    return _question(request, app, tenant, name, None)


@rooms.post(TAGS + "/delete")
def delete(
    request: Request, tenant: Writer, app: CurrentApp, name: Annotated[Text, Form()]
) -> Response:
    try:
        ended = app.db.write(lambda tx: end_tag(tx, app, tenant, name))
    except RequestError as error:
        return _question(request, app, tenant, name, error)
    told = address(TAGS, ended=name, n=ended.documents, c=len(ended.naming))
    return RedirectResponse(told, 303)


def _question(
    request: Request, app: App, tenant: Tenant, name: str, error: RequestError | None
) -> Response:
    """Raises NotFoundError."""
    with app.db.begin() as tx:
        one = tags.get(tx, tenant, name)
        alone = figures.of_tag_alone(tx, tenant, name)
        remembered = reading.held(tx, tenant, [name], most=COUNTED)[name]
        naming = connections.find(tx, tenant, tags=[name])
    values = {
        "name": one.tag.name,
        "documents": Figure(one.documents),
        "alone": alone,
        "memories": counted(remembered),
        "ending": sum(list(it.container_tags) == [name] for it in naming),
        "staying": sum(list(it.container_tags) != [name] for it in naming),
        **_room.fault(error),
    }
    return page(request, "tag_delete.html", values, error.status if error else 200)


def _page(
    request: Request,
    app: App,
    tenant: Tenant,
    name: str,
    *,
    typed: Mapping[str, str] | None = None,
    error: RequestError | None = None,
    notice: str | None = None,
) -> Response:
    """Raises NotFoundError."""
    with app.db.begin() as tx:
        one = tags.get(tx, tenant, name)
        remembered = reading.held(tx, tenant, [name], most=COUNTED)[name]
        named = connections.naming(tx, tenant, name)
        organisation = settings.buckets_of(tx, tenant.id, None)
        merges = tags.merges(tx, tenant, name, MERGES)
        known = known_tags(tx, tenant)
    stored = _stored(one)
    blank = {"key": "", "description": "", "into": ""}
    theirs = {bucket["key"] for bucket in organisation}
    values = {
        "one": one,
        "before": _room.stamp(stored),
        "documents": Figure(one.documents),
        "memories": counted(remembered),
        "connections": named,
        "buckets": [
            *((bucket, False) for bucket in organisation),
            *((it, True) for it in one.profile_buckets or () if it["key"] not in theirs),
        ],
        "merges": merges,
        "known": [tag for tag in known if tag != name],
        "own_tags": [tag for tag in tenant.tags if tag != name] if tenant.tags else None,
        "has_model": app.llm is not None,
        "typed": {**stored, **blank, **(typed or {})},
        **_room.fault(error),
        "notice": notice,
        "most_title": TITLE_LENGTH,
        "most_context": ENTITY_CONTEXT_LIMIT,
        "snippets": _room.code(
            request,
            "updateContainerTag",
            {"name": one.title or "", "entityContext": one.tag.entity_context or ""},
            path={"tag": name},
        ),
    }
    return page(request, "tag.html", values, error.status if error else 200)


def _stored(one: tags.TagDetails) -> dict[str, str]:
    """As the form shows it."""
    return {"title": one.title or "", "context": one.tag.entity_context or ""}


def _target(tenant: Tenant, name: str, into: str) -> str:
    """The tag that is to hold what this one holds; raises RequestError."""
    if not into.strip():
        raise BadRequestError("into: name the tag that is to hold the documents")
    [target] = tags.asked(tenant, into.strip(), None, default=False, field="into")
    if target == name:
        raise BadRequestError("into: name another tag than this one")
    return target


def counted(number: int) -> Figure:
    return Figure(number, "+" if number >= COUNTED else "")
