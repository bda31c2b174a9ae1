"""The first steps: the sample, and an assistant with a key made on the spot."""

import json
import shlex
from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse

from recollect.app import App
from recollect.console import _room
from recollect.console._room import (
    Admin,
    CurrentApp,
    Reader,
    SignedInPage,
    Text,
    Writer,
    address,
    known_tags,
    page,
)
from recollect.errors import BadRequestError, RequestError
from recollect.ingest import intake, samples
from recollect.ingest.intake import Labels
from recollect.model import Scope, Tenant
from recollect.orgs import orgs, tags

ASSISTANT = "/console/assistant"
SCOPES = {
    Scope.READ: "search and read",
    Scope.WRITE: "also add and delete",
}
PLACEHOLDER = "YOUR_KEY"

rooms = APIRouter(route_class=SignedInPage, include_in_schema=False)


@rooms.post("/console/sample")
def load_sample(tenant: Writer, app: CurrentApp) -> Response:
    """Again, it brings the same documents up to date."""
    tag = tenant.tags[0] if tenant.tags else samples.TAG
    added = [
        intake.take(
            app,
            tenant,
            Labels(tags=[tag], custom_id=samples.custom_id(name), filepath=samples.custom_id(name)),
            intake.content_of(app, intake.text(text)),
        ).id
        for name, text in samples.texts().items()
    ]
    return RedirectResponse(
        address("/console/progress", id=added, q=samples.QUESTION, tag=tag), 303
    )


@rooms.get(ASSISTANT)
def ask(request: Request, tenant: Reader, app: CurrentApp) -> Response:
    """How an assistant is connected; who may make keys gets one with it."""
    return _page(request, app, tenant, {})


@rooms.post(ASSISTANT)
def make(
    request: Request,
    tenant: Admin,
    app: CurrentApp,
    scope: Annotated[str, Form()] = Scope.READ.value,
    tag: Annotated[Text, Form()] = "",
) -> Response:
    """The answer is the only place that shows the key."""
    typed = {"scope": scope, "tag": tag}
    try:
        if scope not in SCOPES:
            raise BadRequestError("scope: read or write")
        named = tags.check([tag.strip()], "tag") if tag.strip() else None
    except RequestError as error:
        return _page(request, app, tenant, typed, error=error)
    with app.db.begin() as tx:
        _, secret = orgs.create_key(tx, tenant.id, name="assistant", scope=Scope(scope), tags=named)
    return _page(request, app, tenant, typed, secret=secret)


def _page(
    request: Request,
    app: App,
    tenant: Tenant,
    typed: Mapping[str, str],
    *,
    secret: str | None = None,
    error: RequestError | None = None,
) -> Response:
    with app.db.begin() as tx:
        known = known_tags(tx, tenant)
    values = {
        "typed": {"scope": Scope.READ.value, "tag": "", **typed},
        "scopes": SCOPES,
        "known": known,
        "secret": secret,
        "snippets": _snippets(_room.public_url(request), secret or PLACEHOLDER),
        **_room.fault(error),
    }
    return page(request, "assistant.html", values, error.status if error else 200)


def _snippets(url: str, key: str) -> dict[str, str]:
    """What to put where, by assistant."""
    header = f"Authorization: Bearer {key}"
    claude = ["claude", "mcp", "add", "--transport", "http", "recollect", f"{url}/mcp"]
    over_http = {"type": "http", "url": f"{url}/mcp", "headers": {"Authorization": f"Bearer {key}"}}
    beside = {
        "command": "recollect",
        "args": ["mcp"],
        "env": {"RECOLLECT_URL": url, "RECOLLECT_API_KEY": key},
    }
    return {
        "Claude Code": shlex.join([*claude, "--header", header]),
        "Cursor, VS Code and others that send headers": _servers(over_http),
        "Claude Desktop, where Recollect is installed": _servers(beside),
    }


def _servers(one: Mapping[str, object]) -> str:
    return json.dumps({"mcpServers": {"recollect": one}}, indent=2)
