"""The table of documents, and what is done with several of them."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Annotated
from urllib.parse import parse_qsl, urlencode

from fastapi import APIRouter, Form, Query, Request, Response
from fastapi.responses import RedirectResponse

from recollect import connectors, documents
from recollect.app import App
from recollect.console import (
    _room,
    _show,
)
from recollect.console._room import (
    LIVE,
    CurrentApp,
    Part,
    Reader,
    SignedInPage,
    Text,
    Writer,
    address,
    inside,
    known_tags,
    near,
    page,
)
from recollect.db import Tx
from recollect.documents import DocumentChange, figures
from recollect.errors import (
    BadRequestError,
    ConflictError,
    NotFoundError,
    RequestError,
)
from recollect.ingest import intake
from recollect.model import (
    Document,
    DocumentId,
    Status,
    Tenant,
    storable,
)
from recollect.orgs import tags

RETRIED = 1_000
"""Documents that one transaction queues again, or deletes."""
NAMED = 1_000
"""Documents that a page names that were selected one by one."""
LISTED = 20
"""Documents that it names of all that match."""
CHANGED = (
    "What matches has changed since the page was shown, so nothing was done. It now looks as below."
)
SIZES = (25, 50, 100)
KINDS = ("text", "webpage", "pdf", "image", "audio", "video", *connectors.kinds())
"""Types that the field offers; it takes any."""
SORTS: Mapping[figures.Order, str] = {
    "newest": "newest first",
    "oldest": "oldest first",
    "changed": "last changed",
    "title": "title",
}
DOCUMENTS = "/console/documents"
NOTICES = {
    "retry": "queued to be processed again",
    "delete": "deleted for good",
    "tag": "given the tag",
}
ACTIONS = "action: retry, tag, delete or failed"

rooms = APIRouter(route_class=SignedInPage, include_in_schema=False)


@rooms.get(DOCUMENTS)
def find(
    request: Request,
    tenant: Reader,
    app: CurrentApp,
    q: Annotated[Text, Query(max_length=500)] = "",
    tag: Text = "",
    status: str = "",
    sort: str = "",
    kind: Annotated[Text, Query(alias="type", max_length=100)] = "",
    size: int = SIZES[0],
    number: Annotated[int, Query(alias="page", ge=1, le=1_000_000)] = 1,
    done: str = "",
    n: int = 0,
    part: Part = "",
) -> Response:
    asked = _table(q, tag, status, kind, sort, size, number)
    order = asked.order
    with app.db.begin() as tx:
        found = figures.find(tx, tenant, asked)
        known = known_tags(tx, tenant)
    last = max(1, -(-found.total.number // found.limit))
    chosen = {"q": q, "tag": tag, "status": status, "type": kind, "size": found.limit}
    if order != "newest":
        chosen["sort"] = order
    values = {
        "found": found,
        "statuses": list(Status),
        "reached": figures.LOOKED_AT,
        "q": q,
        "sorts": SORTS,
        "sort": order,
        "narrowed": bool(q or tag or status or kind),
        "tag": tag,
        "status": status,
        "kind": kind,
        "kinds": KINDS,
        "sizes": SIZES,
        "own_tags": tenant.tags,
        "known": known,
        "notice": _notice(done, n),
        "last": last,
        "links": {at: address(DOCUMENTS, **chosen, page=at) for at in near(number, last)},
        "back": address(DOCUMENTS, **chosen, page=number),
        "matching": address(DOCUMENTS, **chosen),
        "gathered": figures.GATHERED,
        "snippets": {}
        if asked.kind or asked.text or order != "newest"  # which the API does not list by
        else _room.code(request, "listDocuments", _listing(asked)),
    }
    return page(request, "_documents.html" if part == LIVE else "documents.html", values)


def _table(
    q: str, tag: str, status: str, kind: str, sort: str, size: int = SIZES[0], number: int = 1
) -> figures.TableQuery:
    meant: list[figures.Order] = [one for one in SORTS if one == sort]
    return figures.TableQuery(
        text=q.strip(),
        tag=tag.strip(),
        status=Status(status) if status in list(Status) else None,
        kind=kind.strip(),
        order=meant[0] if meant else "newest",
        limit=size if size in SIZES else SIZES[0],
        page=number,
    )


def _of_address(listed: str) -> figures.TableQuery:
    """The table that an address of the list shows, as far as it says which documents."""
    given = dict(parse_qsl(listed.partition("?")[2]))
    q, tag, status, kind, sort = (
        storable(given.get(name, "")[:500]) for name in ("q", "tag", "status", "type", "sort")
    )
    return _table(q, tag, status, kind, sort)


def _digest(ids: Sequence[str]) -> str:
    """Stands for these documents, so that what is done is done to those that were asked about."""
    return hashlib.sha256("\n".join(ids).encode()).hexdigest()


def _listing(asked: figures.TableQuery) -> dict[str, object]:
    """The table as the body of `POST /v3/documents/list`."""
    body: dict[str, object] = {"limit": asked.limit, "page": asked.page}
    if asked.tag:
        body["containerTags"] = [asked.tag]
    if asked.status is not None:
        body["status"] = asked.status.value
    return body


@rooms.post("/console/documents/confirm")
def confirm(
    request: Request,
    tenant: Writer,
    app: CurrentApp,
    action: Annotated[str, Form()],
    id: Annotated[list[Text] | None, Form(max_length=1_000)] = None,
    matching: Annotated[Text, Form(max_length=5_000)] = "",
    back: Annotated[Text, Form()] = DOCUMENTS,
    after: Annotated[Text, Form()] = DOCUMENTS,
) -> Response:
    """Ask once more, naming what it is about: the documents of `id`, or all that the list at the
    address `matching` holds. `failed` as action: retry all that failed."""
    if action not in (*NOTICES, "failed"):
        raise BadRequestError(ACTIONS)
    return _question(request, app, tenant, action, id or (), back, after, matching=matching)


def _question(
    request: Request,
    app: App,
    tenant: Tenant,
    action: str,
    ids: Sequence[str],
    back: str,
    after: str,
    tag: str = "",
    refused: Mapping[str, RequestError] | None = None,
    matching: str = "",
) -> Response:
    """The page that asks; `refused`: what could not be done, by id, or for all of them by ""."""
    refused = refused or {}
    with app.db.begin() as tx:
        if matching:
            ids = figures.matching(tx, tenant, _of_address(matching))
        chosen = those(tx, tenant, ids[: LISTED if matching else NAMED])
        failed = figures.failed(tx, tenant)
        known = known_tags(tx, tenant)
    values = {
        "action": action,
        "chosen": chosen,
        "number": len(ids) if matching else len(chosen),
        "matching": matching,
        "digest": _digest(ids),
        "gathered": figures.GATHERED,
        "failed": failed,
        "own_tags": tenant.tags,
        "known": known,
        "tag": tag,
        "refused": refused,
        "back": inside(back, DOCUMENTS),
        "after": inside(after, DOCUMENTS),
    }
    status = next((error.status for error in refused.values()), 200)
    return page(request, "confirm.html", values, status)


def _notice(done: str, number: int) -> str | None:
    if done not in NOTICES:
        return None
    if number == 0:
        return "Nothing was done: what was selected is gone, or has changed meanwhile."
    return f"{_show.counted(number, 'document')} {NOTICES[done]}."


@rooms.post("/console/documents/apply")
def apply(
    request: Request,
    tenant: Writer,
    app: CurrentApp,
    action: Annotated[str, Form()],
    id: Annotated[list[Text] | None, Form(max_length=1_000)] = None,
    matching: Annotated[Text, Form(max_length=5_000)] = "",
    digest: Annotated[str, Form()] = "",
    tag: Annotated[Text, Form()] = "",
    after: Annotated[Text, Form()] = DOCUMENTS,
) -> Response:
    """Retry, tag or delete; documents that are gone by now are passed over.

    Where a tag is refused, the page asks again with the documents that are left, and says why; so
    it does where not the same documents match as when it asked.
    """
    ids: Sequence[str] = id or []
    if matching:
        with app.db.begin() as tx:
            ids = figures.matching(tx, tenant, _of_address(matching))
        if _digest(ids) != digest:
            refused = {"": ConflictError("Conflict", CHANGED)}
            return _question(request, app, tenant, action, (), after, after, tag, refused, matching)
    match action:
        case "retry":
            done = 0
            for some in _parts(ids):
                done += len(app.db.write(partial(documents.reprocess, tenant=tenant, ids=some)))
        case "failed":
            done = _retry_failed(app, tenant)
        case "tag":
            done, refused = _tag(app, tenant, ids, tag.strip())
            if "" in refused:
                return _question(
                    request, app, tenant, action, ids, after, after, tag, refused, matching
                )
            if refused:
                left = list(refused)[:NAMED]
                return _question(request, app, tenant, action, left, after, after, tag, refused)
        case "delete":
            done = 0
            for some in _parts(ids):
                gone, _ = app.db.write(partial(documents.delete_named, tenant=tenant, ids=some))
                done += len(gone)
        case _:
            raise BadRequestError(ACTIONS)
    notice = {"done": "retry" if action == "failed" else action, "n": done}
    target = inside(after, DOCUMENTS)
    return RedirectResponse(target + ("&" if "?" in target else "?") + urlencode(notice), 303)


def _tag(
    app: App, tenant: Tenant, ids: Sequence[str], tag: str
) -> tuple[int, dict[str, RequestError]]:
    """Give each document this tag instead of those that the key may touch; how many have it now,
    and what was refused, by id (by "": all of them)."""
    try:
        if not tag:
            raise BadRequestError("tag: name the tag that the documents get")
        named = tags.asked(tenant, tag, None, default=False, field="tag")
    except RequestError as error:
        return 0, {"": error}
    done = 0
    refused: dict[str, RequestError] = {}
    for id in dict.fromkeys(ids):
        try:
            intake.change(app, tenant, id, DocumentChange(tags=named))
            done += 1
        except NotFoundError:
            continue
        except RequestError as error:
            refused[id] = error
    return done, refused


def _parts(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """As many as one transaction takes."""
    for start in range(0, len(ids), RETRIED):
        yield ids[start : start + RETRIED]


def _retry_failed(app: App, tenant: Tenant) -> int:
    """Queue all that failed once more, in parts; what fails again meanwhile is left."""
    done = 0
    last = None
    while True:
        some, queued = app.db.write(partial(_retry_part, tenant=tenant, before=last))
        done += queued
        if len(some) < RETRIED:
            return done
        last = some[-1]


def _retry_part(
    tx: Tx, tenant: Tenant, before: tuple[datetime, DocumentId] | None
) -> tuple[list[tuple[datetime, DocumentId]], int]:
    """The next that failed, and how many of them are queued now."""
    some = figures.failed_before(tx, tenant, before, RETRIED)
    return some, len(documents.reprocess(tx, tenant, ids=[id for _, id in some])) if some else 0


def those(tx: Tx, tenant: Tenant, ids: Sequence[str]) -> list[Document]:
    """The documents of the ids, without those that are gone."""
    found: list[Document] = []
    for id in dict.fromkeys(ids):
        try:
            found.append(documents.get(tx, tenant, id))
        except (NotFoundError, ConflictError):
            continue
    return found
