"""What holds on every page: who may come in, from where, and what the browser may do with it."""

import hashlib
import json
import re
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, unquote, urlencode, urlsplit

import structlog
from anyio import to_thread
from fastapi import Depends, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pydantic import AfterValidator
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException

from recollect import db, log
from recollect.app import App
from recollect.console import _code, _show
from recollect.db import Tx
from recollect.errors import (
    AuthenticationError,
    BadRequestError,
    ConflictError,
    PermissionDeniedError,
    Refused,
    RequestError,
    Unavailable,
    in_words,
)
from recollect.loop import tell_bug
from recollect.model import Key, Scope, Tenant, storable
from recollect.orgs import audit, orgs, tags

LOG = log.get("console")
HOME = "/console"
LOGIN = "/console/login"
LOGOUT = "/console/logout"
COOKIE = "recollect_session"
ELSEWHERE = (
    "this page belongs to another organisation than the one to which this browser is signed in now,"
    " so nothing was done. Sign in there again in another tab, then load this page again: the"
    " browser sends once more what you typed"
)
SAVED_MEANWHILE = (
    "this form was saved in another tab, or by another person, after you opened it, so what you"
    " typed was not saved. It is below; save again to put it in place of the other"
)
TAGS = 500
"""Tags offered in a field."""
LIVE = "live"
"""Value of the query parameter `part` that asks for the changing piece of a page alone."""
HEADERS: Mapping[str, str] = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " img-src 'self' data:; connect-src 'self'; form-action 'self'; frame-ancestors 'none';"
    " base-uri 'none'",
    "cache-control": "no-store",
    # Not no-referrer: with that, browsers send `Origin: null` along with our own forms.
    "referrer-policy": "same-origin",
}
ROOMS = (
    (HOME, "Overview"),
    (f"{HOME}/search", "Search"),
    (f"{HOME}/ask", "Ask"),
    (f"{HOME}/documents", "Documents"),
    (f"{HOME}/memories", "Memories"),
    (f"{HOME}/tags", "Tags"),
    (f"{HOME}/add", "Add"),
    (f"{HOME}/connections", "Connections"),
    (f"{HOME}/filters", "Filters"),
    (f"{HOME}/webhooks", "Webhooks"),
    (f"{HOME}/keys", "Keys"),
    (f"{HOME}/audit", "Audit"),
    (f"{HOME}/settings", "Settings"),
)
"""The work first, then what is administered: from `FIRST_ADMINISTERED` on."""
FIRST_ADMINISTERED = "Filters"
POLICY = "content-security-policy"
_ADDRESS = re.compile(r'\b(?:href|action|src|data-(?:live|next|once|session))="(?=/console\b)')
"""Before an address of the console in a page. A quotation mark that is text is escaped."""
Handler = Callable[[Request], Coroutine[Any, Any, Response]]

_environment = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    undefined=StrictUndefined,
    auto_reload=False,
    trim_blocks=True,
    lstrip_blocks=True,
)
_environment.filters.update(_show.FILTERS)


class PublicPage(APIRoute):
    """A page without a session: one policy, one shape of errors, no posting from other sites."""

    def get_route_handler(self) -> Handler:
        inner = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                if request.method not in ("GET", "HEAD"):
                    check_origin(request)
                response = await self.enter(request, inner)
            except RequestValidationError as error:
                response = refusal(request, _invalid(error))
            except HTTPException as error:
                response = refusal(request, _unreadable(error))
            except RequestError as error:
                response = refusal(request, error)
            except Refused as error:
                tell_bug(LOG, error)
                response = refusal(request, BadRequestError(str(error)))
            except Unavailable as error:
                LOG.warning("unavailable", error=str(error))
                response = away(request)
            return guarded(request, response)

        return answer

    async def enter(self, request: Request, inner: Handler) -> Response:
        return await inner(request)


class SignedInPage(PublicPage):
    """A page for a signed-in visitor. The key is checked before a body is read."""

    async def enter(self, request: Request, inner: Handler) -> Response:
        key = await to_thread.run_sync(visitor, request, limiter=request.app.state.checks)
        if key is None:
            if request.method == "GET" and request.query_params.get("part") != LIVE:
                target = quote(here(request), safe="")
                return RedirectResponse(f"{LOGIN}?next={target}", 303)
            raise AuthenticationError(
                "your session has ended, so nothing was done. Sign in in another tab, then load"
                " this page again: the browser sends once more what you typed"
            )
        request.state.key = key
        shown = request.query_params.get("org", key.org.id)
        # Whoever signs out and walks away is signed out, whichever session it is.
        if request.method == "POST" and shown != key.org.id and self.path != LOGOUT:
            raise ConflictError("Conflict", ELSEWHERE)
        structlog.contextvars.bind_contextvars(org=key.org.id, key=key.id)
        audit.act_as(key.id, key.org.id)
        async with request.app.state.turns.of(request.scope, key):
            return await inner(request)


def visitor(request: Request) -> Key | None:
    """The key behind the session, as the database knows it now; None without one that counts."""
    token = request.cookies.get(COOKIE)
    if not token:
        return None
    with app_of(request).db.ahead() as tx:
        try:
            return orgs.signed_in(tx, token)
        except AuthenticationError:
            return None


def check_origin(request: Request) -> None:
    """Refuse what another site made the browser send; raises PermissionDeniedError.

    `Sec-Fetch-Site` decides where the browser sends it (https and localhost), else `Origin`.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        allowed = site == "same-origin"
    else:
        ours = {request.headers.get("host"), urlsplit(public_url(request)).netloc}
        allowed = urlsplit(request.headers.get("origin", "")).netloc in ours - {"", None}
    if not allowed:
        raise PermissionDeniedError(
            "Forbidden",
            "this was not sent from the console itself. If a proxy stands in front of the service,"
            " let it forward Host, or set RECOLLECT_PUBLIC_URL to the address in the browser",
        )


def app_of(request: Request) -> App:
    return request.app.state.app


def key_of(request: Request) -> Key:
    return request.state.key


# Coroutines, although they wait for nothing: FastAPI hands a plain function to a thread.
async def current_app(request: Request) -> App:
    return app_of(request)


async def current_key(request: Request) -> Key:
    return key_of(request)


CurrentApp = Annotated[App, Depends(current_app)]
CurrentKey = Annotated[Key, Depends(current_key)]


async def reader(key: CurrentKey) -> Tenant:
    return Tenant(key.org.id, key.tags, key.id)


async def writer(key: CurrentKey) -> Tenant:
    if not may_write(key):
        raise PermissionDeniedError(
            "Forbidden", f"this key has the scope {key.scope}, which does not allow it"
        )
    return Tenant(key.org.id, key.tags, key.id)


async def whole(key: CurrentKey) -> Tenant:
    if key.tags is not None:
        raise PermissionDeniedError("Forbidden", "this key is limited to container tags")
    return await reader(key)


async def admin(key: CurrentKey) -> Tenant:
    if key.scope is not Scope.ADMIN:
        raise PermissionDeniedError(
            "Forbidden", f"this key has the scope {key.scope}, which does not allow it"
        )
    return await whole(key)


Reader = Annotated[Tenant, Depends(reader)]
Writer = Annotated[Tenant, Depends(writer)]
Whole = Annotated[Tenant, Depends(whole)]
Admin = Annotated[Tenant, Depends(admin)]


async def asking(request: Request) -> AsyncGenerator[None]:
    """A place among those that wait for a model, which the API counts, until all is sent."""
    key = key_of(request)
    async with request.app.state.asking.place(key.org.id, key.id):
        yield


AsksOthers = Annotated[None, Depends(asking)]
Text = Annotated[str, AfterValidator(storable)]
PathId = Annotated[str, AfterValidator(lambda id: storable(unquote(id)))]
Part = Annotated[str, Query()]


def may_write(key: Key) -> bool:
    return key.scope is not Scope.READ


def may_tend(key: Key) -> bool:
    """Whether keys and settings are this key's to change."""
    return key.scope is Scope.ADMIN and key.tags is None


def is_house(key: Key) -> bool:
    """Whether the machine is this key's business: it administers the default organisation."""
    return may_tend(key) and key.org.name == orgs.DEFAULT


def here(request: Request) -> str:
    """Path and query of this request, as the console's links have them: without the path of the
    public address."""
    query = request.url.query
    return path_of(request) + (f"?{query}" if query else "")


def path_of(request: Request) -> str:
    return request.url.path.removeprefix(request.scope["root_path"])


def address(path: str, **parameters: object) -> str:
    """The path with those parameters that are not empty."""
    given = {name: value for name, value in parameters.items() if value not in ("", None, [])}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def near(number: int, last: int) -> list[int]:
    """Page numbers worth a link: the ends and those around."""
    around = range(max(1, number - 2), min(last, number + 2) + 1)
    return sorted({1, last, *around})


def known_tags(tx: Tx, tenant: Tenant) -> list[str]:
    """What the tag fields offer."""
    return tags.names(tx, tenant, TAGS)


def inside(path: str, otherwise: str = HOME) -> str:
    """The path if it leads into the console, so that nobody is sent elsewhere from here."""
    is_ours = path == HOME or path.startswith((HOME + "/", HOME + "?"))
    return path if is_ours and path.isprintable() and "\\" not in path else otherwise


def public_url(request: Request) -> str:
    """Where others reach the service, without a trailing slash."""
    return (app_of(request).config.public_url or str(request.base_url)).rstrip("/")


def code(
    request: Request,
    operation: str,
    body: Mapping[str, Any] | None = None,
    path: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """A request of the API as code by language; without a body its own example."""
    return _code.render(request.app.openapi(), operation, public_url(request), body=body, path=path)


def page(
    request: Request, template: str, values: Mapping[str, object], status: int = 200
) -> Response:
    """A rendered template, which also knows who is signed in and what they may do."""
    key: Key | None = getattr(request.state, "key", None)
    shared = {
        "path": path_of(request),
        "here": here(request),
        "live": f"{here(request)}{'&' if request.url.query else '?'}part={LIVE}",
        "key": key,
        "may_write": key is not None and may_write(key),
        "may_tend": key is not None and may_tend(key),
        "is_whole": key is not None and key.tags is None,
        "open_rooms": [] if key is None else _open_rooms(key),
        "apart": FIRST_ADMINISTERED,
    }
    html = _environment.get_template(template).render({**shared, **values})
    return HTMLResponse(_placed(request, html), status)


def part(request: Request, template: str, macro: str, *values: object) -> str:
    """What a macro makes of the values: a piece of a page that is sent by and by."""
    made = getattr(_environment.get_template(template).module, macro)
    return _placed(request, str(made(*values)))


def _placed(request: Request, html: str) -> str:
    """With the path of the public address in front of the console's own addresses."""
    root: str = request.scope["root_path"]
    return _ADDRESS.sub(lambda found: found[0] + root, html) if root else html


def _open_rooms(key: Key) -> list[tuple[str, str]]:
    """Address and name of the rooms that this key has."""
    closed = {
        "Add": not may_write(key),
        "Filters": key.tags is not None,
        "Keys": not may_tend(key),
        "Audit": not may_tend(key),
        "Settings": key.tags is not None,
    }
    return [(path, name) for path, name in ROOMS if not closed.get(name)]


FIELD_LABELS = {
    "containerTag": "Tag",
    "containerTags": "Tags",
    "content": "Text",
    "customId": "The customId",
    "documentLimit": "Document limit",
    "entityContext": "Context",
    "expiresInDays": "Days",
    "filepath": "File path",
    "filterPrompt": "The rule in words",
    "forgetAfter": "Expiry",
    "keepVersions": "Older texts",
    "into": "Target tag",
    "q": "Query",
    "resources": "Picked",
    "targetContainerTag": "Target tag",
    "url": "Address",
    "workspacePrompt": "Context for memories",
}
"""Fields whose names on the wire are not those that a form has beside them."""
_VERBS = ("are", "cannot", "carries", "goes", "has", "is", "may", "must", "names", "needs", "was")


def sentence(error: RequestError) -> str:
    """Why a form was refused, for the person before it: the label of the field, then the reason."""
    told = (error.details or error.message).strip()
    field, colon, reason = told.partition(": ")
    root, _, below = field.partition(".")
    if colon and root.isidentifier():
        label = FIELD_LABELS.get(root) or root[:1].upper() + root[1:]
        return labelled(label + (f" ({below})" if below else ""), reason)
    return _show.sentence(told)


def labelled(label: str, reason: str) -> str:
    """What is wrong with the field that has the label."""
    joint = " " if reason.split(" ", 1)[0] in _VERBS else ": "
    return _show.sentence(f"{label}{joint}{reason}")


_environment.filters["refusal"] = sentence


def fault(error: RequestError | None) -> dict[str, str | None]:
    """What a page says of a form that was refused, and the name of the field that is wrong."""
    if error is None:
        return {"error": None, "wrong": None}
    field, colon, _ = (error.details or error.message).partition(": ")
    return {"error": sentence(error), "wrong": field if colon and field.isidentifier() else None}


def stamp(stored: object) -> str:
    """Of what a form was filled with: another one once that has changed."""
    written = json.dumps(stored, sort_keys=True, default=str)
    return hashlib.sha256(written.encode()).hexdigest()


def check_stamp(opened: str | None, stored: object) -> None:
    """Raises ConflictError for a form that was opened before another person saved it."""
    if opened is not None and opened != stamp(stored):
        raise ConflictError("Conflict", SAVED_MEANWHILE)


def guarded(request: Request, response: Response) -> Response:
    """With the headers that every page has."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    target = response.headers.get("location", "")
    if inside(target, otherwise=""):
        response.headers["location"] = request.scope["root_path"] + target
    return response


def refusal(request: Request, error: RequestError) -> Response:
    return _error(request, error.status, error.message, error.details)


def error_page(
    request: Request,
    status: int,
    message: str,
    details: str | None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """For what fails outside of a page of ours."""
    return guarded(request, _error(request, status, message, details, headers))


def _error(
    request: Request,
    status: int,
    message: str,
    details: str | None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    values = {"status": status, "message": message, "details": details}
    response = page(request, "error.html", values, status)
    response.headers.update(headers or {})
    return response


def until(app: App, written: str) -> datetime | None:
    """The time that a field of a form names as the end of something; None if the field is empty,
    which means never. Raises BadRequestError."""
    if not written.strip():
        return None
    with app.db.begin() as tx:
        return orgs.expiry(written, db.now(tx))


def away(request: Request) -> Response:
    """Something that the service needs is down; the page may simply be loaded again."""
    details = "Something that the service needs does not answer. Try again in a moment."
    return _error(request, 503, "Service unavailable", details, {"retry-after": "1"})


def _invalid(error: RequestValidationError) -> RequestError:
    fault = error.errors()[0]
    where = ".".join(str(part) for part in fault["loc"][1:])
    return BadRequestError(f"{where}: {in_words(fault)}")


def _unreadable(error: HTTPException) -> RequestError:
    # What was raised while a form was read comes wrapped by the framework.
    if isinstance(error.__cause__, RequestError):
        return error.__cause__
    return BadRequestError(str(error.detail))


def foreseeing(request: Request, response: Response) -> Response:
    """The answer, and behind it what takes a second of a process once: the OpenAPI document, of
    which pages make their code. A person who came in by this page looks at one of those next."""
    if request.app.openapi_schema is None:
        response.background = BackgroundTask(request.app.openapi)
    return response
