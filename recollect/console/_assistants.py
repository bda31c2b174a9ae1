"""Where a person lets an assistant in that asked by OAuth, and the list of those let in."""

from typing import Annotated
from urllib.parse import urlencode, urlsplit

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse

from recollect.app import App
from recollect.console import _room
from recollect.console._keys import SCOPES
from recollect.console._room import (
    Admin,
    CurrentApp,
    CurrentKey,
    Reader,
    SignedInPage,
    Text,
    known_tags,
    page,
)
from recollect.errors import BadRequestError
from recollect.model import Scope
from recollect.orgs import assistants, tags
from recollect.orgs.assistants import OAuthError, RegisteredProgram

ALLOW = "/console/assistants/allow"
LIST = "/console/assistants"
LONGEST = 4_096
"""Characters of a parameter, the client's state for one."""
FIELDS = (
    "response_type", "client_id", "redirect_uri", "state", "code_challenge",
    "code_challenge_method", "resource", "scope",
)  # fmt: skip

rooms = APIRouter(route_class=SignedInPage, include_in_schema=False)


@rooms.get(LIST)
def find(request: Request, tenant: Admin, app: CurrentApp) -> Response:
    with app.db.begin() as tx:
        found = assistants.find(tx, tenant.id)
    return page(request, "assistants.html", {"found": found})


@rooms.post(LIST + "/{id}/revoke")
def revoke(id: Text, tenant: Admin, app: CurrentApp) -> Response:
    with app.db.begin() as tx:
        assistants.revoke(tx, id, tenant.id)
    return RedirectResponse(LIST, 303)


@rooms.get(ALLOW)
def ask(request: Request, tenant: Reader, app: CurrentApp) -> Response:
    asked = _asked(request.query_params.multi_items())
    known = _client(app, asked)
    # Anyone can register an address: nobody is sent there without a click.
    fault = _fault(request, asked)
    uri = asked["redirect_uri"]
    with app.db.begin() as tx:
        named = known_tags(tx, tenant)
    values = {
        "asked": asked,
        "name": known.name,
        "fault": fault and fault.description,
        "host": _whom(uri),
        "scopes": SCOPES,
        "wants_write": "write" in asked.get("scope", "").split(),
        "known": named,
    }
    response = page(request, "allow.html", values, 400 if fault else 200)
    # Browsers hold the redirect after a form to the policy, too.
    response.headers[_room.POLICY] = _room.HEADERS[_room.POLICY].replace(
        "form-action 'self'", f"form-action 'self' {_source(uri)}"
    )
    return response


@rooms.post(ALLOW)
def decide(
    request: Request,
    key: CurrentKey,
    app: CurrentApp,
    decision: Annotated[str, Form()] = "",
    access: Annotated[str, Form()] = "read",
    tag: Annotated[Text, Form(alias="tags")] = "",
    client_id: Annotated[Text, Form()] = "",
    redirect_uri: Annotated[Text, Form()] = "",
    state: Annotated[Text, Form()] = "",
    response_type: Annotated[Text, Form()] = "",
    code_challenge: Annotated[Text, Form()] = "",
    code_challenge_method: Annotated[Text, Form()] = "",
    resource: Annotated[Text, Form()] = "",
) -> Response:
    given = {
        "client_id": client_id, "redirect_uri": redirect_uri, "state": state,
        "response_type": response_type, "code_challenge": code_challenge,
        "code_challenge_method": code_challenge_method, "resource": resource,
    }  # fmt: skip
    asked = _asked([(name, value) for name, value in given.items() if value])
    known = _client(app, asked)
    fault = _fault(request, asked)
    if fault is not None:
        return _back(request, asked, error=fault.code, error_description=fault.description)
    if decision != "allow":
        return _back(request, asked, error="access_denied")
    if access not in ("read", "write"):
        raise BadRequestError("access: read or write")
    named = tags.check(tag.replace(",", " ").split(), "tags")
    with app.db.begin() as tx:
        code = assistants.allow(
            tx,
            key,
            known,
            scope=Scope(access),
            tags=named or None,
            redirect_uri=asked["redirect_uri"],
            challenge=asked["code_challenge"],
        )
    return _back(request, asked, code=code)


def _asked(pairs: list[tuple[str, str]]) -> dict[str, str]:
    ours = [(name, value) for name, value in pairs if name in FIELDS]
    asked = dict(ours)
    if len(asked) < len(ours) or any(len(value) > LONGEST for value in asked.values()):
        raise BadRequestError(f"a parameter is there twice, or has more than {LONGEST} characters")
    if any("\0" in value for value in asked.values()):
        raise BadRequestError("a parameter has NUL in it")
    return asked


def _client(app: App, asked: dict[str, str]) -> RegisteredProgram:
    """Until it is known that the address is the client's, errors are told here and not there."""
    with app.db.begin() as tx:
        try:
            known = assistants.client(tx, asked.get("client_id", ""))
        except OAuthError as error:
            raise BadRequestError(error.description) from None
    if not assistants.may_redirect(known, asked.get("redirect_uri", "")):
        raise BadRequestError("redirect_uri: not one that this client registered")
    return known


def _fault(request: Request, asked: dict[str, str]) -> OAuthError | None:
    own = f"{_room.public_url(request)}/mcp"
    if asked.get("response_type") != "code":
        return OAuthError("unsupported_response_type", "response_type: code")
    if asked.get("resource", own).rstrip("/") != own:
        return OAuthError("invalid_target", f"resource: {own}")
    try:
        assistants.check_challenge(
            asked.get("code_challenge", ""), asked.get("code_challenge_method", "")
        )
    except OAuthError as error:
        return error
    return None


def _back(request: Request, asked: dict[str, str], **told: str) -> Response:
    """To the client, at an address that it registered."""
    uri = asked["redirect_uri"]
    if "state" in asked:
        told["state"] = asked["state"]
    told["iss"] = _room.public_url(request)
    joint = "&" if "?" in uri else "?"
    return RedirectResponse(f"{uri}{joint}{urlencode(told)}", 303)


def _whom(uri: str) -> str:
    """Who gets the answer; what an app's own scheme has for a host says nothing of who that is."""
    parts = urlsplit(uri)
    if parts.scheme in ("http", "https"):
        return parts.netloc
    return f"{parts.scheme}://{parts.netloc}" if parts.netloc else f"{parts.scheme}:"


def _source(uri: str) -> str:
    parts = urlsplit(uri)
    is_named = parts.scheme in ("http", "https") and "[" not in parts.netloc
    return f"{parts.scheme}://{parts.netloc}" if is_named else f"{parts.scheme}:"
