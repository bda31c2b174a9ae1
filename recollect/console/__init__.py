"""The console: addresses and forms of a browser come in, pages made on the server go out.

Each room is a function that asks the nouns and fills a template. Without JavaScript everything
works; with it, what is unfinished is refreshed, files can be dropped, and code can be copied.
"""

from pathlib import Path

from fastapi import APIRouter, FastAPI, Response
from fastapi.staticfiles import StaticFiles

from recollect.console import (
    _adding,
    _applying,
    _asking,
    _assistants,
    _audit,
    _beginning,
    _connecting,
    _connections,
    _documents,
    _editing,
    _filters,
    _handbook,
    _keys,
    _live,
    _memories,
    _overview,
    _picking,
    _questions,
    _reading,
    _reference,
    _room,
    _searching,
    _seen,
    _settings,
    _signing,
    _tags,
    _versions,
    _webhooks,
)
from recollect.console._room import SignedInPage
from recollect.errors import NotFoundError

PARTS = (
    _live, _connecting, _connections, _picking, _seen, _filters, _webhooks, _keys, _audit,
    _settings, _signing, _overview, _documents, _editing, _reading, _adding, _searching, _asking,
    _memories, _tags, _beginning, _applying, _handbook, _questions, _assistants, _versions,
)  # fmt: skip


class Files(StaticFiles):
    """Style, script and icon; browsers ask each time whether they changed."""

    def file_response(self, *args: object, **more: object) -> Response:
        response = super().file_response(*args, **more)  # pyright: ignore[reportArgumentType]
        policy = _room.HEADERS[_room.POLICY]
        response.headers.update({"cache-control": "no-cache", _room.POLICY: policy})
        return response


static = Files(directory=Path(__file__).with_name("static"))
rest = APIRouter(route_class=SignedInPage, include_in_schema=False)


@rest.api_route("/console/{path:path}", methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])
def nowhere(path: str) -> Response:
    raise NotFoundError("Not found", "there is no page of the console at this address")


ROUTES = (
    *_signing.doors.routes,
    *_reference.router.routes,
    *(route for part in PARTS for route in part.rooms.routes),
    *rest.routes,
)


def add_to(web: FastAPI) -> None:
    """The console's pages, behind all that is there already: the last takes what is left."""
    web.state.error_page = _room.error_page
    web.mount("/console/static", static)
    # As they are: to include a router makes each route again, at every start.
    web.router.routes.extend(ROUTES)
