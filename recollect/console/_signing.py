"""Signing in with a key, and out again."""

from typing import Annotated

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse

from recollect.app import App
from recollect.console import _room
from recollect.console._room import (
    COOKIE,
    HOME,
    LOGIN,
    LOGOUT,
    CurrentApp,
    PublicPage,
    SignedInPage,
    Text,
    inside,
    page,
)
from recollect.errors import AuthenticationError
from recollect.orgs import orgs

doors = APIRouter(route_class=PublicPage, include_in_schema=False)
rooms = APIRouter(route_class=SignedInPage, include_in_schema=False)


@doors.get(LOGIN)
def login(
    request: Request, app: CurrentApp, next: Text = HOME, once: Text | None = None
) -> Response:
    """With `once`, the token of a link, nothing has to be typed."""
    if _room.visitor(request) is not None:
        return RedirectResponse(inside(next), 303)
    error = None
    if once is not None:
        try:
            with app.db.begin() as tx:
                return _signed_in(request, orgs.redeem(tx, once), next)
        except AuthenticationError:
            request.app.state.guesses.wrong(request.state.address)
            error = "This link was used or is older than two minutes: ask for another."
    values = {
        "next": inside(next),
        "error": error,
        "ended": COOKIE in request.cookies,
        "key_file": _key_file(request, app),
    }
    status = 200 if error is None else 401
    return _room.foreseeing(request, page(request, "login.html", values, status))


@doors.post(LOGIN)
def sign_in(
    request: Request,
    app: CurrentApp,
    key: Annotated[str, Form()] = "",
    next: Annotated[Text, Form()] = HOME,
) -> Response:
    secret = key.strip()
    try:
        if not secret or not orgs.well_formed(secret):
            raise AuthenticationError
        with app.db.begin() as tx:
            token = orgs.sign_in(tx, orgs.authenticate(tx, secret).id)
    except AuthenticationError:
        request.app.state.guesses.wrong(request.state.address)
        with app.db.begin() as tx:
            orgs.note_wrong(tx, secret)
        error = "This key is not valid: it is mistyped, revoked or expired."
        values = {
            "next": inside(next),
            "error": error,
            "ended": False,
            "key_file": _key_file(request, app),
        }
        return page(request, "login.html", values, 401)
    return _signed_in(request, token, next)


def _key_file(request: Request, app: App) -> str:
    """Where `serve` keeps the first key; only who sits at the machine learns the folder."""
    here = app.config.public_url is None and request.state.address is None
    return str(app.config.data_dir / "api-key") if here else "api-key"


def _signed_in(request: Request, token: str, next: str) -> Response:
    response = RedirectResponse(inside(next), 303)
    response.set_cookie(
        COOKIE,
        token,
        max_age=int(orgs.SESSION.total_seconds()),
        path=request.scope["root_path"] + HOME,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return response


@doors.get("/console/session")
def session(request: Request) -> Response:
    """204 when signed in. A link from another site arrives without the cookie; the login page
    asks here, from our own, and goes on by itself."""
    return Response(status_code=200 if _room.visitor(request) is None else 204)


@rooms.post(LOGOUT)
def sign_out(
    request: Request, app: CurrentApp, everywhere: Annotated[bool, Form()] = False
) -> Response:
    """`everywhere`: all sessions of the key end, in other browsers, too."""
    with app.db.begin() as tx:
        orgs.sign_out(tx, request.cookies[COOKIE], everywhere=everywhere)
    response = RedirectResponse(LOGIN, 303)
    path = request.scope["root_path"] + HOME
    response.delete_cookie(COOKIE, path=path, httponly=True, samesite="strict")
    return response
