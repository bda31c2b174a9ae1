"""OAuth 2.1 for assistants, as MCP's authorization specification has it: metadata (RFC 9728, RFC
8414), registration (RFC 7591), tokens and their revocation (RFC 7009). A person confirms in the
console (`console/_assistants.py`)."""

import json
from collections.abc import Callable
from typing import Any, cast
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse
from starlette.concurrency import run_in_threadpool

from recollect.api.edge import Visits
from recollect.app import App
from recollect.db import Tx
from recollect.orgs import assistants
from recollect.orgs.assistants import OAuthError, TokenPair

SCOPES = ["read", "write"]
CORS = {
    "access-control-allow-origin": "*",
    "access-control-allow-headers": "authorization, content-type, mcp-protocol-version",
    "access-control-allow-methods": "GET, POST, OPTIONS",
}
router = APIRouter(include_in_schema=False)


def base(request: Request) -> str:
    app: App = request.app.state.app
    return (app.config.public_url or str(request.base_url)).rstrip("/")


@router.get("/.well-known/oauth-protected-resource{rest:path}")
async def resource(request: Request) -> Response:
    own = base(request)
    return _told(
        {
            "resource": f"{own}/mcp",
            "authorization_servers": [own],
            "scopes_supported": SCOPES,
            "bearer_methods_supported": ["header"],
            "resource_name": "Recollect",
        }
    )


@router.get("/.well-known/oauth-authorization-server{rest:path}")
async def server(request: Request) -> Response:
    own = base(request)
    return _told(
        {
            "issuer": own,
            "authorization_endpoint": f"{own}/oauth/authorize",
            "token_endpoint": f"{own}/oauth/token",
            "registration_endpoint": f"{own}/oauth/register",
            "revocation_endpoint": f"{own}/oauth/revoke",
            "scopes_supported": SCOPES,
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "token_endpoint_auth_methods_supported": ["none"],
            "revocation_endpoint_auth_methods_supported": ["none"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
        }
    )


@router.get("/oauth/authorize")
async def authorize(request: Request) -> Response:
    """The console's page checks what is asked; its cookie is sent to its own paths only."""
    target = f"{request.scope['root_path']}/console/assistants/allow?{request.url.query}"
    return RedirectResponse(target, 303, {"cache-control": "no-store"})


@router.options("/oauth/{rest:path}")
@router.options("/.well-known/oauth-{rest:path}")
async def preflight() -> Response:
    return Response(status_code=204, headers=CORS)


@router.post("/oauth/register")
async def register(request: Request) -> Response:
    async def read() -> Callable[[Tx], Any]:
        _count(request, request.app.state.registrations)
        try:
            told = json.loads(await request.body())
        except (ValueError, RecursionError):
            told = None
        if not isinstance(told, dict):
            raise OAuthError("invalid_client_metadata", "the body is not a JSON object")
        told = cast("dict[str, Any]", told)
        return lambda tx: assistants.register(
            tx, told.get("client_name"), told.get("redirect_uris")
        )

    return await _answered(request, read, _registered)


@router.post("/oauth/token")
async def token(request: Request) -> Response:
    async def read() -> Callable[[Tx], Any]:
        _count(request, request.app.state.tokens)
        form = await _form(request)
        kind, id = form.get("grant_type", ""), form.get("client_id", "")
        if form.get("resource", f"{base(request)}/mcp").rstrip("/") != f"{base(request)}/mcp":
            raise OAuthError("invalid_target", f"resource: {base(request)}/mcp")
        if kind not in ("authorization_code", "refresh_token"):
            raise OAuthError("unsupported_grant_type", "authorization_code or refresh_token")
        for name in ("code",) if kind == "authorization_code" else ("refresh_token",):
            if not form.get(name):
                raise OAuthError("invalid_request", f"{name} is missing")

        def run(tx: Tx) -> TokenPair | None:
            assistants.client(tx, id)
            if kind == "refresh_token":
                return assistants.refresh(tx, form["refresh_token"], client_id=id)
            return assistants.exchange(
                tx,
                form["code"],
                client_id=id,
                redirect_uri=form.get("redirect_uri"),
                verifier=form.get("code_verifier", ""),
            )

        return run

    return await _answered(request, read, _granted)


@router.post("/oauth/revoke")
async def revoke(request: Request) -> Response:
    async def read() -> Callable[[Tx], Any]:
        _count(request, request.app.state.tokens)
        form = await _form(request)
        if not form.get("token"):
            raise OAuthError("invalid_request", "token is missing")
        return lambda tx: assistants.revoke_token(tx, form["token"], form.get("client_id"))

    return await _answered(request, read, lambda _: _told({}))


async def _answered(request: Request, read: Any, shown: Callable[[Any], Response]) -> Response:
    """What was asked, in one transaction; errors in the words of the RFCs."""
    app: App = request.app.state.app
    try:
        work = await read()

        def run() -> Any:
            with app.db.begin() as tx:
                return work(tx)

        return shown(await run_in_threadpool(run))
    except OAuthError as error:
        return _told({"error": error.code, "error_description": error.description}, error.status)


def _count(request: Request, visits: Visits) -> None:
    """Raises RateLimitError. This machine does not wait, but a page that its browser shows may be
    anybody's."""
    address = request.scope["state"]["address"]
    if address is not None or "origin" in request.headers:
        visits.count(address)


async def _form(request: Request) -> dict[str, str]:
    try:
        text = (await request.body()).decode("ascii")
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=50)
    except ValueError:
        raise OAuthError("invalid_request", "the body is not a form") from None
    form = dict(pairs)
    if len(form) < len(pairs) or any("\0" in value for value in form.values()):
        raise OAuthError("invalid_request", "a parameter is there twice, or has NUL in it")
    return form


def _registered(made: assistants.RegisteredProgram) -> Response:
    return _told(
        {
            "client_id": made.id,
            "client_id_issued_at": int(made.created_at.timestamp()),
            "client_name": made.name,
            "redirect_uris": made.redirect_uris,
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
            "scope": " ".join(SCOPES),
        },
        201,
    )


def _granted(pair: TokenPair | None) -> Response:
    if pair is None:
        described = "unknown, expired, used before, or of another client, address or verifier"
        return _told({"error": "invalid_grant", "error_description": described}, 400)
    return _told(
        {
            "access_token": pair.access,
            "token_type": "Bearer",
            "expires_in": int(assistants.ACCESS.total_seconds()),
            "refresh_token": pair.refresh,
            "scope": "read write" if pair.scope == "write" else "read",
        }
    )


def _told(body: dict[str, Any], status: int = 200) -> Response:
    return JSONResponse(body, status, {**CORS, "cache-control": "no-store", "pragma": "no-cache"})
