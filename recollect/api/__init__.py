"""The HTTP API: requests come in, calls of the rooms below and their answers on the wire go out."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

from anyio import CapacityLimiter
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Route

from recollect import __version__
from recollect.api import (
    answering,
    audit,
    connections,
    conversations,
    documents,
    errors,
    evaluation,
    events,
    files,
    health,
    hooks,
    keys,
    memories,
    metrics,
    namespaces,
    oauth,
    preview,
    search,
    session,
    settings,
    tags,
    webhooks,
)
from recollect.api.edge import Edge, Guesses, Visits
from recollect.api.openapi import serve_openapi
from recollect.api.room import Room
from recollect.api.turns import Asking, InTurn, RequestTurns
from recollect.app import App
from recollect.db import AHEAD
from recollect.errors import Permanent, Refused, RequestError, Transient
from recollect.mcp import Door
from recollect.orgs.orgs import Limit

REGISTRATIONS = Limit(60, timedelta(hours=1))
"""Programs that register from one address, while they are young (`assistants.MOST_YOUNG`)."""
TOKENS = Limit(300)
"""Tokens that are asked for, or ended, from one address: many people may come by one proxy."""


def create_app(app: App, *, limit: Limit | None = None) -> FastAPI:
    """The ASGI application on an opened `App`, which the caller closes.

    `limit` is that of every key which has none of its own; None: no limit.
    """
    api = FastAPI(
        title="Recollect",
        version=__version__,
        summary="Self-hosted knowledge ingestion and search.",
        description="Send the key as `Authorization: Bearer KEY`. Every error has the body"
        " `{error, details?, issues?}`. Unknown fields of a request are ignored and named in"
        " `warnings` (under `/ns` they are refused); null is as good as absent (in settings it"
        " clears). Container tags in a query may end in `:*`,"
        " which means any tag that begins so. `/v3/memories…` is an older name of"
        " `/v3/documents…`.",
        openapi_url=None,  # the framework makes the document on the event loop; see below
        docs_url=None,  # the framework's page loads scripts from elsewhere; the console has ours
        redoc_url=None,
        root_path_in_servers=False,
        redirect_slashes=False,  # behind a proxy the redirect would name the wrong address
    )
    api.state.app = app
    api.state.events = events.Events(app.db.url)
    api.state.requests = metrics.Requests()
    api.state.room = Room()
    api.state.asking = Asking()
    api.state.turns = RequestTurns()
    api.state.guesses = Guesses()
    api.state.registrations = Visits(REGISTRATIONS)
    api.state.tokens = Visits(TOKENS)
    # Keys have threads of their own, too: what takes all others must not keep a check waiting.
    api.state.checks = CapacityLimiter(AHEAD)
    api.state.error_page = None  # the console brings one
    api.state.paths = list[str]()  # told to those who ask for one that is much like them
    # Events first: their path looks like that of a document.
    # Hooks before connections: the callback's path looks like that of a connection.
    for module in (
        events,
        documents,
        files,
        conversations,
        search,
        answering,
        evaluation,
        memories,
        tags,
        settings,
        preview,
        hooks,
        connections,
        keys,
        session,
        webhooks,
        health,
        metrics,
        audit,
        oauth,
        *namespaces.MODULES,
    ):
        # As they are: to include a router makes each route again, at every start, once it is asked.
        api.router.routes.extend(module.router.routes)
        api.state.paths += [
            route.path
            for route in module.router.routes
            if isinstance(route, Route) and route.include_in_schema
        ]
    door = Door(api, public_url=app.config.public_url)
    api.router.routes.append(Route("/mcp", door, include_in_schema=False))
    api.add_exception_handler(RequestError, _at_once(errors.request_error))
    api.add_exception_handler(RequestValidationError, errors.invalid)
    api.add_exception_handler(HTTPException, _at_once(errors.http_error))
    api.add_exception_handler(Refused, _at_once(errors.refused))
    api.add_exception_handler(Transient, _at_once(errors.unavailable))
    # An endpoint refuses our settings.
    api.add_exception_handler(Permanent, _at_once(errors.unavailable))
    api.add_middleware(InTurn, turns=api.state.turns)
    api.add_middleware(Edge, app=app, limit=limit, state=api.state)
    serve_openapi(api, app.config.public_url)
    return api


def _at_once(
    handler: Callable[[Request, Exception], Response],
) -> Callable[[Request, Exception], Awaitable[Response]]:
    """The handler on the event loop: the framework gives others a thread, for which they wait."""

    async def handle(request: Request, error: Exception) -> Response:
        return handler(request, error)

    return handle
