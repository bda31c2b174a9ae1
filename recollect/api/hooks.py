"""What comes from outside without a key: pushes of providers, users back from authorizing."""

import hashlib
import html
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse

from recollect import connectors, db, encryption, log
from recollect.api.deps import ApiRoute, CurrentApp, ProviderName
from recollect.api.edge import Visits
from recollect.api.turns import AsksOthers
from recollect.app import App, secret_keys
from recollect.connectors import oauth
from recollect.connectors.base import Account, Connector
from recollect.connectors.oauth import Tokens
from recollect.connectors.pushes import Push, PushResult, Registration
from recollect.errors import (
    BadRequestError,
    NotFoundError,
    Permanent,
    Reauthorize,
    RecollectError,
    RequestError,
    SetupError,
    Transient,
    Unavailable,
    sentence_of,
)
from recollect.model import Connection, Tenant
from recollect.sync import (
    authorizations,
    connect,
    connections,
    overlaps,
    push_registrations,
    revocations,
)
from recollect.sync.connect import callback_url
from recollect.sync.credentials import client_of, oauth_of, open_registration, seal_tokens
from recollect.sync.push_registrations import StoredRegistration
from recollect.sync.sources import GivenAccess, open_api

LOG = log.get("hooks")
router = APIRouter(tags=["connections"], route_class=ApiRoute)
_AT_ONCE = timedelta()
_ERROR = re.compile(r"[a-z]{1,20}(?:_[a-z]{1,20}){0,4}")
"""of RFC 6749, 4.1.2.1 and providers: no text that a stranger's link could put on our page"""
_HEADERS = {
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'",
}
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Recollect</title>
<meta name="viewport" content="width=device-width"><style>body{{font:16px/1.5 system-ui,sans-serif;
max-width:32em;margin:15vh auto;padding:0 1em;color-scheme:light dark}}</style>
<h1>{title}</h1><p>{text}</p></html>"""


@router.post("/v3/hooks/{provider}", include_in_schema=False)
async def push(provider: ProviderName, request: Request, app: CurrentApp) -> Response:
    """Verify, note, answer: no call of the provider is made here.

    What cannot be proven is answered before its body is read. Raises RateLimitError for it once
    too much of it has come from its address; what is proven is not counted.
    """
    visits: Visits = request.scope["state"]["visits"]
    address: str | None = request.scope["state"]["address"]
    judge = partial(to_thread.run_sync, limiter=request.scope["state"]["proving"])
    connector = connectors.all().get(provider)
    if connector is None or not connector.pushes:
        visits.count(address)
        return Response(status_code=404)
    headers = {name.lower(): value for name, value in request.headers.items()}
    come, connection = await judge(_come, app, connector, headers, dict(request.query_params))
    if connector.reads(come):
        come = replace(come, body=await request.body())
    notice = await judge(connector.receive, come)
    # A handshake cannot be proven, but names a registration whose id we told the provider alone.
    shakes_hands = come.registration is not None and notice.status < 400
    if not notice.proven and not shakes_hands:
        visits.count(address)
    return await judge(_act, app, connector, notice, come.registration, connection)


@router.get(
    "/v3/connections/auth/callback/{provider}",
    include_in_schema=False,
)
@router.get("/v3/connections/{provider}/callback", include_in_schema=False)
def callback(
    provider: ProviderName,
    app: CurrentApp,
    _: AsksOthers,
    state: Annotated[str | None, Query(max_length=500)] = None,
    code: Annotated[str | None, Query(max_length=4_000)] = None,
    error: Annotated[str | None, Query(max_length=200)] = None,
    iss: Annotated[list[str] | None, Query()] = None,
) -> Response:
    """The user comes back from the provider, having agreed or not."""
    try:
        connector = connectors.get(provider)
        if connector.oauth is None:
            raise NotFoundError("Not found", f"{provider} needs no authorization")
        if state is None or (code is None and error is None):
            if error is not None:
                return _said_no(app, connector, None, error, iss or [])
            raise BadRequestError("state: part of the address is missing; follow the link again")
        if code is None:
            return _said_no(app, connector, state, error or "", iss or [])
        return _agreed(app, connector, state, code, iss or [])
    except RequestError as fault:
        return _page("That did not work", fault.details or fault.message, fault.status)
    except Unavailable as fault:  # before the link was used up
        told = f"Recollect cannot answer now: {sentence_of(fault)}. Reload this page in a while."
        return _page("That did not work", told, 503)


def _agreed(
    app: App, connector: Connector, state: str, code: str, issuers: Sequence[str]
) -> Response:
    with app.db.begin() as tx:
        taken = authorizations.take_authorization(tx, connector.provider, oauth.hashed(state))
        client = client_of(tx, app, taken.connection.org_id, connector)
    connection = taken.connection
    try:
        verifier = None
        if taken.verifier is not None:
            place = (connection.id, "verifier")
            verifier = encryption.unseal(secret_keys(app.config), taken.verifier, place=place)
        provider = oauth_of(app, connector)
        oauth.check_issuer(provider, issuers)
        tokens = oauth.exchange(
            provider,
            client,
            code,
            redirect_uri=callback_url(app, connector.provider),
            verifier=verifier,
            headers=connector.headers(),
        )
        lacking = oauth.missing(connector.authorized(connection.metadata), tokens)
        refused = BadRequestError(
            f"scope: {', '.join(lacking)} was not granted; authorize by a new link and leave"
            " everything ticked"
        )
        try:
            account = connector.identify(
                open_api(app, connector, GivenAccess(tokens), pause=_no_pause), tokens
            )
        except RecollectError as error:
            raise (refused if lacking else error) from None
        try:
            if lacking:
                raise refused
            _authorize(app, connection, connector, tokens, account)
        except BadRequestError:  # scopes are missing, or it is another account's
            with suppress(RecollectError):
                revocations.take_back(app, connection, tokens, account.id)
            raise
    except RecollectError as fault:
        LOG.warning("authorization failed", connection=connection.id, reason=sentence_of(fault))
        return _back(app, taken.redirect_url, connection, fault)
    LOG.info("authorized", connection=connection.id, provider=connector.provider)
    who = account.name or account.id
    left = (
        " Nothing is synced until someone picks what, in the console or by `recollect connections"
        " pick`."
        if connector.picks and not connection.metadata.get(connect.PICKED)
        else ""
    )
    if (sent := _redirect(app, taken.redirect_url, connection, None)) is not None:
        return sent
    twice = "".join(f" {told}" for told in _overlaps(app, connection))
    return _page(
        "Connected",
        f"{connector.name} of {who} is connected.{left}{twice} You may close this page.",
    )


def _overlaps(app: App, connection: Connection) -> list[str]:
    """What comes in twice, now that the account is known."""
    tenant = Tenant(connection.org_id, connection.reach)
    with app.db.begin() as tx, suppress(NotFoundError):  # it may have ended meanwhile
        return overlaps.told(tx, tenant, connections.get(tx, tenant, connection.id))
    return []


def _authorize(
    app: App, connection: Connection, connector: Connector, tokens: Tokens, account: Account
) -> None:
    sealed = seal_tokens(app, connection.id, tokens)
    with app.db.begin() as tx:
        authorizations.authorize(
            tx,
            connection,
            tokens=sealed,
            expires_at=tokens.expires_at,
            account=account.id,
            email=account.name,
            due=not connector.picks or connect.PICKED in connection.metadata,
        )
        db.notify(tx)


def _said_no(
    app: App, connector: Connector, state: str | None, error: str, issuers: Sequence[str]
) -> Response:
    """The link stays good until its hour is over. Raises BadRequestError for an answer of another
    than the provider."""
    oauth.check_issuer(oauth_of(app, connector), issuers)
    if state is not None:
        with app.db.begin() as tx:
            found = authorizations.peek_authorization(tx, connector.provider, oauth.hashed(state))
        if found is not None:
            code = "access_denied" if error == "access_denied" else "authorization_failed"
            if (sent := _redirect(app, found.redirect_url, found.connection, code)) is not None:
                return sent
    told = "because the authorization was refused there"
    if error != "access_denied" and _ERROR.fullmatch(error):
        told = f"because {connector.name} answered {error}"
        if error == oauth.WRONG_CALLBACK:
            address = callback_url(app, connector.provider)
            told += f": {address} has to be registered with the OAuth application there"
    return _page(
        "Not connected",
        f"{connector.name} was not connected, {told}. You can follow the same link again.",
        400,
    )


def _back(
    app: App, redirect_url: str | None, connection: Connection, fault: RecollectError
) -> Response:
    status, told = 400, sentence_of(fault)
    again = " Have a new link made in a while, and follow that one."
    match fault:
        case Reauthorize():
            code, again = "code_refused", ""
        case Unavailable():
            code, status = "service_unavailable", 503
            told = f"Recollect could not keep the authorization: {told}"
        case SetupError():
            code, status = "service_error", 500
        case Transient():
            code = "provider_unavailable"
        case Permanent():
            code = "provider_refused"
        case _:
            code, again = "refused", ""
    sent = _redirect(app, redirect_url, connection, code)
    return sent or _page("That did not work", f"{told.removesuffix('.')}.{again}", status)


def _redirect(
    app: App, url: str | None, connection: Connection, error: str | None
) -> Response | None:
    """None where none was asked for, or where it leads may not be named any more: the origins that
    the settings allow can have changed since it was stored."""
    if url is None:
        return None
    try:
        connect.check_redirect(app, url)
    except BadRequestError:
        return None
    status = "error" if error else "connected"
    target = oauth.with_outcome(url, connectionId=connection.id, status=status, error=error)
    return RedirectResponse(target, 303, _HEADERS)


def _come(
    app: App, connector: Connector, headers: dict[str, str], query: dict[str, str]
) -> tuple[Push, Connection | None]:
    """A push without its body, and the connection that its query names."""
    named = query.get("registration")
    registration, connection = None, None
    if named is not None:
        with app.db.begin() as tx:
            found = push_registrations.registration(tx, named)
        if found is not None and found[1].provider == connector.provider:
            registration, connection = _opened(app, found[0]), found[1]
    proofs, settings = _proofs(app, connector), connector.push_config(app.config)
    return Push(headers, query, b"", registration, proofs, settings), connection


def _act(
    app: App,
    connector: Connector,
    notice: PushResult,
    registration: Registration | None,
    connection: Connection | None,
) -> Response:
    provider = connector.provider
    if notice.pending_secret is not None:
        _keep_pending(app, provider, notice.pending_secret)
    with app.db.begin() as tx:
        push_registrations.take_push(
            tx, provider, notice, connection.id if connection is not None else None
        )
        if notice.lost and registration is not None:
            push_registrations.refuse_registration(
                tx, registration.id, "lost at the provider", _AT_ONCE
            )
    if notice.text is not None:
        return PlainTextResponse(notice.text, notice.status)
    return Response(status_code=notice.status)


def _opened(app: App, stored: StoredRegistration) -> Registration | None:
    """None when its key is lost: then nothing proves its pushes, and syncs go on by schedule."""
    try:
        return open_registration(app, stored)
    except SetupError as error:
        LOG.warning("push not proved", reason=str(error))
        return None


def _proofs(app: App, connector: Connector) -> list[str]:
    """The secrets of the application that are active."""
    provider = connector.provider
    with app.db.begin() as tx:
        stored = push_registrations.hook_secrets(tx, provider)
    keys = secret_keys(app.config)
    active: list[str] = []
    for one in stored:
        if one.confirmed:
            with suppress(SetupError):  # what no key opens proves nothing
                active.append(encryption.unseal(keys, one.sealed, place=(provider, "hook")))
    return [*active, *connector.hook_secrets(app.config)]


def _keep_pending(app: App, provider: str, secret: str) -> None:
    """Shown to the operator by `recollect connections verify`; a stranger may have sent it."""
    sealed = encryption.seal(secret_keys(app.config), secret, place=(provider, "hook"))
    digest = hashlib.sha256(secret.encode()).digest()
    with app.db.begin() as tx:
        push_registrations.keep_hook_secret(tx, provider, digest, sealed)
    LOG.warning("verification token came", provider=provider, do="recollect connections verify")


def _page(title: str, text: str, status: int = 200) -> Response:
    """The text as a sentence. That the state is wrong says nothing to a person; all else is told as
    it is, since it may begin with the name of a scope."""
    said = text.removeprefix("state: ")
    if said != text:
        said = said[:1].upper() + said[1:]
    said = html.escape(f"{said.removesuffix('.')}.")
    shown = _PAGE.format(title=html.escape(title), text=said)
    return HTMLResponse(shown, status, _HEADERS)


def _no_pause(seconds: float) -> None:
    raise Transient("the provider asks to wait", code="rate_limited")
