"""The room of settings: what is synced and what is not, and the applications of providers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse
from starlette.datastructures import FormData

from recollect import admission, connect, settings
from recollect.app import App, secret_keys
from recollect.console._room import Admin, CurrentApp, Room, Text, Whole, page
from recollect.errors import BadRequestError, RequestError
from recollect.model import Tenant, storable
from recollect.settings import (
    CREDENTIAL_LENGTH,
    MASK,
    PATTERN_LENGTH,
    PATTERNS,
    PROMPT_LENGTH,
)

SETTINGS = "/console/settings"
PATTERN_FIELDS = (
    ("includeItems", "urlPatterns", "Only these addresses"),
    ("includeItems", "titlePatterns", "Only these titles"),
    ("excludeItems", "urlPatterns", "Not these addresses"),
    ("excludeItems", "titlePatterns", "Not these titles"),
)
KINDS = ("urlPatterns", "titlePatterns")
APPLICATIONS = (
    ("googleDrive", "Google", ("google-drive", "gmail")),
    ("notion", "Notion", ("notion",)),
    ("onedrive", "Microsoft", ("onedrive",)),
    ("github", "GitHub", ("github",)),
)
"""Beginning of the names of its settings, name for people, and the providers that use it."""

rooms = APIRouter(route_class=Room, include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Tried:
    """A thing that the filter was asked about; `reason` None: it comes in."""

    url: str
    title: str
    reason: str | None


@rooms.get(SETTINGS)
def show(
    request: Request,
    tenant: Whole,
    app: CurrentApp,
    done: str = "",
    url: Annotated[Text, Query(max_length=4_000)] = "",
    title: Annotated[Text, Query(max_length=4_000)] = "",
) -> Response:
    """With `url` or `title`, also what the patterns that are stored say of such a thing."""
    with app.db.begin() as tx:
        stored = settings.read(tx, tenant.id)
    tried = None
    if url.strip() or title.strip():
        refuse = admission.refusal(stored)
        reason = refuse(title.strip(), url.strip() or None)
        tried = Tried(url.strip(), title.strip(), reason)
    return _page(request, app, settings.masked(stored), tried=tried, saved=done == "saved")


@rooms.post(SETTINGS)
async def change(request: Request, tenant: Admin, app: CurrentApp) -> Response:
    async with request.form(max_files=0, max_fields=100) as form:
        return await run_in_threadpool(_change, request, app, tenant, _texts(form))


def _change(request: Request, app: App, tenant: Tenant, form: Mapping[str, str]) -> Response:
    with app.db.begin() as tx:
        before = settings.masked(settings.read(tx, tenant.id))
    wanted = _typed(form, before)
    differing = {name: value for name, value in wanted.items() if value != before[name]}
    try:
        _check(wanted)
        admission.need_model(differing, app.llm)
    except RequestError as error:
        return _page(request, app, {**before, **wanted}, error=error)
    with app.db.begin() as tx:
        settings.patch(tx, tenant.id, differing, keys=secret_keys(app.config))
    return RedirectResponse(f"{SETTINGS}?done=saved", 303)


def _typed(form: Mapping[str, str], before: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that the form speaks of, as it says them."""
    wanted: dict[str, Any] = {}
    for name in ("includeItems", "excludeItems"):
        kinds = {kind: _lines(form.get(f"{name}.{kind}", "")) for kind in KINDS}
        given = any(kinds.values())
        # What means the same stays as it is: patterns of one kind only, or none at all.
        same = {kind: _patterns(before, name, kind) for kind in kinds} == kinds
        wanted[name] = before[name] if same else kinds if given else None
    for name in ("filterPrompt", "workspacePrompt"):
        wanted[name] = form.get(name, "").replace("\r\n", "\n").strip() or None
    wanted["shouldLLMFilter"] = "shouldLLMFilter" in form
    for prefix, _, _ in APPLICATIONS:
        wanted[f"{prefix}CustomKeyEnabled"] = f"{prefix}CustomKeyEnabled" in form
        wanted[f"{prefix}ClientId"] = form.get(f"{prefix}ClientId", "").strip() or None
        name = f"{prefix}ClientSecret"
        forget = f"{name}.forget" in form
        wanted[name] = None if forget else form.get(name, "").strip() or before[name]
    return wanted


def _check(wanted: Mapping[str, Any]) -> None:
    """The bounds of `PATCH /v3/settings`; raises BadRequestError."""
    for name, kind, label in PATTERN_FIELDS:
        patterns = _patterns(wanted, name, kind)
        if len(patterns) > PATTERNS:
            raise BadRequestError(f"{label}: at most {PATTERNS:,} patterns")
        if any(len(one) > PATTERN_LENGTH for one in patterns):
            raise BadRequestError(f"{label}: a pattern has at most {PATTERN_LENGTH:,} characters")
    for name in ("filterPrompt", "workspacePrompt"):
        if len(wanted[name] or "") > PROMPT_LENGTH:
            raise BadRequestError(f"{name}: at most {PROMPT_LENGTH:,} characters")
    for prefix, label, _ in APPLICATIONS:
        for part in ("ClientId", "ClientSecret"):
            if len(wanted[prefix + part] or "") > CREDENTIAL_LENGTH:
                raise BadRequestError(f"{label}: at most {CREDENTIAL_LENGTH:,} characters")
        complete = wanted[f"{prefix}ClientId"] and wanted[f"{prefix}ClientSecret"]
        if wanted[f"{prefix}CustomKeyEnabled"] and not complete:
            raise BadRequestError(f"{label}: an application has a client id and a client secret")


def _page(
    request: Request,
    app: App,
    shown: Mapping[str, Any],
    *,
    tried: Tried | None = None,
    saved: bool = False,
    error: RequestError | None = None,
) -> Response:
    values = {
        "shown": shown,
        "patterns": [
            (f"{name}.{kind}", label, "\n".join(_patterns(shown, name, kind)))
            for name, kind, label in PATTERN_FIELDS
        ],
        "applications": [
            {
                "prefix": prefix,
                "label": label,
                "enabled": shown[f"{prefix}CustomKeyEnabled"],
                "id": shown[f"{prefix}ClientId"] or "",
                "has_secret": shown[f"{prefix}ClientSecret"] == MASK,
                "callbacks": [connect.callback_url(app, provider) for provider in providers],
            }
            for prefix, label, providers in APPLICATIONS
        ],
        "has_model": app.llm is not None,
        "tried": tried,
        "notice": "Saved." if saved else None,
        "error": (error.details or error.message) if error else None,
    }
    return page(request, "settings.html", values, error.status if error else 200)


def _patterns(values: Mapping[str, Any], name: str, kind: str) -> list[str]:
    stored: Mapping[str, Sequence[str] | None] = values[name] or {}
    return list(stored.get(kind) or ())


def _lines(written: str) -> list[str]:
    return [line.strip() for line in written.splitlines() if line.strip()]


def _texts(form: FormData) -> dict[str, str]:
    return {name: storable(value) for name, value in form.items() if isinstance(value, str)}
