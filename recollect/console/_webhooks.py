"""The room of webhooks: who gets events, how deliveries went, and sending them again."""

import json
from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Request, Response
from fastapi.responses import RedirectResponse

from recollect.app import App
from recollect.console import _room
from recollect.console._room import (
    LIVE,
    CurrentApp,
    Part,
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
from recollect.errors import BadRequestError, NotFoundError, RequestError
from recollect.events import endpoints, outbox, targets
from recollect.events.targets import EVENTS, WebhookTarget
from recollect.model import Tenant

WEBHOOKS = "/console/webhooks"
ROWS = 25
"""Deliveries on a page."""
STATES = ("pending", "delivered", "dead")
LONGEST_URL = 2_000
LONGEST_DESCRIPTION = 200
ABOUT = {
    "document.done": "a document became searchable",
    "document.failed": "a document could not be read",
    "document.deleted": "a document is gone",
    "sync.completed": "a sync ended well, or in part",
    "sync.failed": "a sync failed",
    "connection.needs_auth": "a connection has to be authorized again",
}
NOTICES = {
    "pause": "Paused: it gets no events, and what waited for it can be sent again from the log.",
    "resume": "It gets events from now on.",
    "test": "A test is on its way; the log shows how it went.",
    "replay": "It is sent again, with the same webhook-id.",
    "changed": "Saved.",
    "deleted": "The webhook and its log are deleted.",
}

rooms = APIRouter(route_class=SignedInPage, include_in_schema=False)


@rooms.get(WEBHOOKS)
def find(
    request: Request, tenant: Reader, app: CurrentApp, done: str = "", part: Part = ""
) -> Response:
    return _list(request, app, tenant, notice=NOTICES.get(done), part=part)


@rooms.post(WEBHOOKS)
def create(
    request: Request,
    tenant: Writer,
    app: CurrentApp,
    url: Annotated[Text, Form()] = "",
    event: Annotated[list[str] | None, Form(max_length=100)] = None,
    tags: Annotated[Text, Form()] = "",
    description: Annotated[Text, Form()] = "",
) -> Response:
    """The answer is the only place that shows the secret."""
    typed = {"url": url, "events": event or [], "tags": tags, "description": description}
    try:
        made, secret = endpoints.create(app, tenant, **_checked(typed))
    except RequestError as error:
        return _list(request, app, tenant, typed=typed, error=error)
    return _secret(request, made, secret, is_new=True)


@rooms.get(WEBHOOKS + "/{id}")
def show(
    request: Request,
    id: PathId,
    tenant: Reader,
    app: CurrentApp,
    state: str = "",
    number: Annotated[int, Query(alias="page", ge=1, le=1_000_000)] = 1,
    done: str = "",
    part: Part = "",
) -> Response:
    wanted = state if state in STATES else None
    with app.db.begin() as tx:
        found = targets.get(tx, tenant, id)
        log = outbox.deliveries(tx, tenant, id, state=wanted, limit=ROWS, page=number)
    own = f"{WEBHOOKS}/{found.id}"
    last = max(1, -(-log.total // ROWS))
    values = {
        "one": found,
        "own": own,
        "log": log,
        "payloads": {
            one.id: json.dumps(one.payload, indent=2, ensure_ascii=False) for one in log.items
        },
        "moving": any(one.state == "pending" for one in log.items),
        "state": wanted or "",
        "states": STATES,
        "notice": NOTICES.get(done),
        "last": last,
        "links": {at: address(own, state=wanted, page=at) for at in near(number, last)},
        "follows": f"webhooks/{found.id}",
    }
    return page(request, "_webhook.html" if part == LIVE else "webhook.html", values)


@rooms.post(WEBHOOKS + "/{id}/do")
def act(
    request: Request,
    id: PathId,
    tenant: Writer,
    app: CurrentApp,
    action: Annotated[str, Form()],
    delivery: Annotated[Text, Form()] = "",
) -> Response:
    """Pause, resume, send a test or a delivery again, or make a new secret."""
    match action:
        case "pause" | "resume":
            changed, _ = endpoints.change(app, tenant, id, disabled=action == "pause")
        case "rotate":
            changed, secret = endpoints.change(app, tenant, id, rotate=True)
            return _secret(request, changed, secret or "", is_new=False)
        case "test" | "replay":
            with app.db.begin() as tx:
                changed = targets.get(tx, tenant, id)
                if action == "test":
                    outbox.try_out(tx, tenant, changed.id)
                else:
                    outbox.replay(tx, tenant, changed.id, delivery)
        case _:
            raise BadRequestError("action: pause, resume, rotate, test or replay")
    return RedirectResponse(f"{WEBHOOKS}/{changed.id}?done={action}", 303)


@rooms.get(WEBHOOKS + "/{id}/edit")
def edit_form(request: Request, id: PathId, tenant: Writer, app: CurrentApp) -> Response:
    with app.db.begin() as tx:
        found = targets.get(tx, tenant, id)
    return _edit_page(request, app, tenant, found, _stored(found), None)


@rooms.post(WEBHOOKS + "/{id}/edit")
def edit(
    request: Request,
    id: PathId,
    tenant: Writer,
    app: CurrentApp,
    url: Annotated[Text, Form()] = "",
    event: Annotated[list[str] | None, Form(max_length=100)] = None,
    tags: Annotated[Text, Form()] = "",
    description: Annotated[Text, Form()] = "",
    before: Annotated[str | None, Form()] = None,
) -> Response:
    typed = {"url": url, "events": event or [], "tags": tags, "description": description}

    def judge(now: WebhookTarget) -> None:
        _room.check_stamp(before, _stored(now))

    try:
        endpoints.change(app, tenant, id, **_checked(typed), judge=judge)
    except NotFoundError:
        raise
    except RequestError as error:
        with app.db.begin() as tx:
            found = targets.get(tx, tenant, id)
        return _edit_page(request, app, tenant, found, typed, error)
    return RedirectResponse(f"{WEBHOOKS}/{id}?done=changed", 303)


@rooms.get(WEBHOOKS + "/{id}/delete")
def confirm_delete(request: Request, id: PathId, tenant: Writer, app: CurrentApp) -> Response:
    with app.db.begin() as tx:
        found = targets.get(tx, tenant, id)
    return page(request, "webhook_delete.html", {"one": found, "own": f"{WEBHOOKS}/{found.id}"})


@rooms.post(WEBHOOKS + "/{id}/delete")
def delete(id: PathId, tenant: Writer, app: CurrentApp) -> Response:
    with app.db.begin() as tx:
        targets.delete(tx, tenant, id)
    return RedirectResponse(f"{WEBHOOKS}?done=deleted", 303)


def _stored(found: WebhookTarget) -> dict[str, Any]:
    """As the form shows it."""
    return {
        "url": found.url,
        "events": list(found.events),
        "tags": ", ".join(found.tags or ()),
        "description": found.description,
    }


def _checked(typed: dict[str, Any]) -> dict[str, Any]:
    """The fields as `endpoints` takes them, in the bounds of the API; raises BadRequestError."""
    url, events, description = typed["url"].strip(), typed["events"], typed["description"].strip()
    if not url or len(url) > LONGEST_URL:
        raise BadRequestError(f"url: an address of 1 to {LONGEST_URL:,} characters")
    if not events or not set(events) <= set(EVENTS):
        raise BadRequestError("event: choose at least one")
    if len(description) > LONGEST_DESCRIPTION:
        raise BadRequestError(f"description: at most {LONGEST_DESCRIPTION} characters")
    named = typed["tags"].replace(",", " ").split()
    return {
        "url": url,
        "events": list(dict.fromkeys(events)),
        "tags": named,
        "description": description,
    }


def _list(
    request: Request,
    app: App,
    tenant: Tenant,
    *,
    typed: dict[str, Any] | None = None,
    error: RequestError | None = None,
    notice: str | None = None,
    part: str = "",
) -> Response:
    with app.db.begin() as tx:
        found = targets.find(tx, tenant)
    values = {
        "found": found,
        **_fields(app, tenant, typed),
        **_room.fault(error),
        "notice": notice,
        "follows": "webhooks",
        "snippets": _room.code(request, "createWebhook"),
    }
    template = "_webhooks.html" if part == LIVE else "webhooks.html"
    return page(request, template, values, error.status if error else 200)


def _edit_page(
    request: Request,
    app: App,
    tenant: Tenant,
    found: WebhookTarget,
    typed: dict[str, Any],
    error: RequestError | None,
) -> Response:
    values = {
        "one": found,
        "own": f"{WEBHOOKS}/{found.id}",
        "before": _room.stamp(_stored(found)),
        **_fields(app, tenant, typed),
        **_room.fault(error),
    }
    return page(request, "webhook_edit.html", values, error.status if error else 200)


def _fields(app: App, tenant: Tenant, typed: dict[str, Any] | None) -> dict[str, Any]:
    """What the form needs."""
    blank = {"url": "", "events": list(EVENTS), "tags": "", "description": ""}
    with app.db.begin() as tx:
        known = known_tags(tx, tenant)
    return {"typed": typed or blank, "about": ABOUT, "own_tags": tenant.tags, "known": known}


def _secret(request: Request, made: WebhookTarget, secret: str, *, is_new: bool) -> Response:
    return page(request, "secret.html", {"one": made, "secret": secret, "is_new": is_new})
