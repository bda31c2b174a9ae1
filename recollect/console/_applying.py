"""The steps that a provider wants before it can be connected: an application of one's own."""

from typing import Annotated

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse

from recollect import connectors
from recollect.app import App, secret_keys
from recollect.connectors.base import Connector
from recollect.console import _room
from recollect.console._room import Admin, CurrentApp, PathId, SignedInPage, Text, page
from recollect.errors import BadRequestError, NotFoundError
from recollect.model import Tenant
from recollect.orgs import settings
from recollect.orgs.settings import CREDENTIAL_LENGTH
from recollect.sync import connect

rooms = APIRouter(route_class=SignedInPage, include_in_schema=False)


@rooms.get("/console/connections/new/{provider}/application")
def ask(request: Request, provider: PathId, tenant: Admin, app: CurrentApp) -> Response:
    return _page(request, app, _asked(provider))


@rooms.post("/console/connections/new/{provider}/application")
def keep(
    request: Request,
    provider: PathId,
    tenant: Admin,
    app: CurrentApp,
    id: Annotated[Text, Form()] = "",
    secret: Annotated[Text, Form()] = "",
) -> Response:
    """It counts for the organisation from now on; then the form of the connection comes."""
    connector = _asked(provider)
    id, secret = id.strip(), secret.strip()
    try:
        _keep(app, tenant, connector, id, secret)
    except BadRequestError as error:
        return _page(request, app, connector, id=id, error=error)
    return RedirectResponse(f"/console/connections/new/{connector.provider}", 303)


def _keep(app: App, tenant: Tenant, connector: Connector, id: str, secret: str) -> None:
    application = connector.application
    assert application is not None
    if not id or not secret:
        raise BadRequestError("an application has a client id and a client secret")
    if max(len(id), len(secret)) > CREDENTIAL_LENGTH:
        raise BadRequestError(f"at most {CREDENTIAL_LENGTH:,} characters")
    named = {
        application.setting("CustomKeyEnabled"): True,
        application.setting("ClientId"): id,
        application.setting("ClientSecret"): secret,
    }
    with app.db.begin() as tx:
        settings.patch(tx, tenant.id, named, keys=secret_keys(app.config))


def _asked(provider: str) -> Connector:
    """Raises NotFoundError, also for a provider that wants no application."""
    connector = connectors.get(provider)
    if connector.application is None:
        raise NotFoundError("Not found", f"{connector.name} needs no application")
    return connector


def _page(
    request: Request,
    app: App,
    connector: Connector,
    *,
    id: str = "",
    error: BadRequestError | None = None,
) -> Response:
    application = connector.application
    assert application is not None
    users = connectors.applications()[application]
    values = {
        "connector": connector,
        "application": application,
        "callbacks": [(one.name, connect.callback_url(app, one.provider)) for one in users],
        "is_public": _room.public_url(request) == connect.own_url(app),
        "id": id,
        "most": CREDENTIAL_LENGTH,
        **_room.fault(error),
    }
    return page(request, "application.html", values, error.status if error else 200)
