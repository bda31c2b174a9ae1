"""The room of settings: what the workspace is about, and the applications of providers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse
from starlette.datastructures import FormData

from recollect import connectors, documents
from recollect.app import App, secret_keys
from recollect.console import _installation, _room
from recollect.console._rendering import inline
from recollect.console._room import (
    Admin,
    CurrentApp,
    SignedInPage,
    Whole,
    is_house,
    key_of,
    page,
)
from recollect.errors import BadRequestError, RequestError
from recollect.model import Tenant, storable
from recollect.orgs import settings, tags
from recollect.orgs.settings import CREDENTIAL_LENGTH, MASK, PROMPT_LENGTH
from recollect.sync import connect

SETTINGS = "/console/settings"

rooms = APIRouter(route_class=SignedInPage, include_in_schema=False)


@rooms.get(SETTINGS)
def show(request: Request, tenant: Whole, app: CurrentApp, done: str = "") -> Response:
    with app.db.begin() as tx:
        stored = settings.read(tx, tenant.id)
    shown = settings.masked(stored)
    return _page(request, app, tenant, shown, shown, saved=done == "saved")


@rooms.post(SETTINGS)
async def change(request: Request, tenant: Admin, app: CurrentApp) -> Response:
    async with request.form(max_files=0, max_fields=100) as form:
        return await run_in_threadpool(_change, request, app, tenant, _texts(form))


def _change(request: Request, app: App, tenant: Tenant, form: Mapping[str, str]) -> Response:
    before, wanted, refused = save(app, tenant, form, _typed, _check, _stamped)
    if refused is not None:
        return _page(request, app, tenant, {**before, **wanted}, before, error=refused)
    return RedirectResponse(f"{SETTINGS}?done=saved", 303)


def save(
    app: App,
    tenant: Tenant,
    form: Mapping[str, str],
    typed: Callable[[Mapping[str, str], Mapping[str, Any]], dict[str, Any]],
    check: Callable[[Mapping[str, Any]], object],
    stamped: Callable[[Mapping[str, Any]], object],
) -> tuple[Mapping[str, Any], Mapping[str, Any], RequestError | None]:
    """Save what a form says of some settings, unless `check` or another person's change is against
    it: what was stored, what the form says, and what is against it."""
    with app.db.begin() as tx:
        before = settings.masked(settings.read(tx, tenant.id, lock=True))
        wanted = typed(form, before)
        differing = {name: value for name, value in wanted.items() if value != before[name]}
        try:
            check(wanted)
            _room.check_stamp(form.get("before"), stamped(before))
        except RequestError as error:
            return before, wanted, error
        settings.patch(tx, tenant.id, differing, keys=secret_keys(app.config))
        if "keepVersions" in differing:
            documents.limit(tx, tenant.id, differing["keepVersions"] or 0)
    return before, wanted, None


def _typed(form: Mapping[str, str], before: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that the form speaks of, as it says them."""
    prompt = form.get("workspacePrompt", "").replace("\r\n", "\n").strip()
    kept = form.get("keepVersions", "").strip()
    wanted: dict[str, Any] = {
        "workspacePrompt": prompt or None,
        "keepVersions": before["keepVersions"] if "keepVersions" not in form else _number(kept),
    }
    as_before = _lines(before["profileBuckets"] or ())
    typed = form.get("profileBuckets", "\n".join(as_before))
    is_same = typed.splitlines() == as_before
    wanted["profileBuckets"] = before["profileBuckets"] if is_same else _buckets(typed)
    for one in connectors.applications():
        enabled, id_name = one.setting("CustomKeyEnabled"), one.setting("ClientId")
        wanted[enabled] = enabled in form
        wanted[id_name] = form.get(id_name, "").strip() or None
        name = one.setting("ClientSecret")
        forget = f"{name}.forget" in form
        wanted[name] = None if forget else form.get(name, "").strip() or before[name]
    return wanted


def _buckets(typed: str) -> list[dict[str, str]] | None:
    """One on a line, as `key: description`."""
    pairs = [line.partition(":") for line in typed.splitlines() if line.strip()]
    said = [(key.strip(), description.strip()) for key, _, description in pairs]
    return [{"key": k, "description": d} if d else {"key": k} for k, d in said] or None


def _lines(buckets: Sequence[Mapping[str, Any]]) -> list[str]:
    """As `_buckets` reads them."""
    said = [(one["key"], " ".join((one.get("description") or "").split())) for one in buckets]
    return [f"{key}: {description}" if description else key for key, description in said]


def _number(typed: str) -> int:
    """-1 for what is not a number: `_check` refuses it."""
    return int(typed or "0") if (typed or "0").isascii() and (typed or "0").isdigit() else -1


def _check(wanted: Mapping[str, Any]) -> None:
    """The bounds of `PATCH /v3/settings`; raises BadRequestError."""
    if len(wanted["workspacePrompt"] or "") > PROMPT_LENGTH:
        raise BadRequestError(f"workspacePrompt: at most {PROMPT_LENGTH:,} characters")
    if not 0 <= wanted["keepVersions"] <= documents.MOST_KEPT:
        raise BadRequestError(f"keepVersions: a number from 0 to {documents.MOST_KEPT}")
    buckets: Sequence[Mapping[str, Any]] = wanted["profileBuckets"] or ()
    if len(buckets) > tags.MOST_BUCKETS:
        raise BadRequestError(f"profileBuckets: at most {tags.MOST_BUCKETS}")
    for bucket in buckets:
        tags.check_bucket(bucket["key"], bucket.get("description") or "")
    for one in connectors.applications():
        client = [wanted[one.setting("ClientId")], wanted[one.setting("ClientSecret")]]
        if any(len(part or "") > CREDENTIAL_LENGTH for part in client):
            raise BadRequestError(f"{one.name}: at most {CREDENTIAL_LENGTH:,} characters")
        if wanted[one.setting("CustomKeyEnabled")] and not all(client):
            raise BadRequestError(f"{one.name}: an application has a client id and a client secret")


def _stamped(stored: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the form can change."""
    return {name: stored[name] for name in _typed({}, stored)}


def _page(
    request: Request,
    app: App,
    tenant: Tenant,
    shown: Mapping[str, Any],
    stored: Mapping[str, Any],
    *,
    saved: bool = False,
    error: RequestError | None = None,
) -> Response:
    values = {
        "shown": shown,
        "before": _room.stamp(_stamped(stored)),
        "buckets": "\n".join(_lines(shown["profileBuckets"] or ())),
        "applications": [
            {
                "prefix": one.setting(""),
                "label": one.name,
                "enabled": shown[one.setting("CustomKeyEnabled")],
                "id": shown[one.setting("ClientId")] or "",
                "has_secret": shown[one.setting("ClientSecret")] == MASK,
                "callbacks": [connect.callback_url(app, user.provider) for user in users],
            }
            for one, users in connectors.applications().items()
        ],
        "has_model": app.llm is not None,
        "most_kept": documents.MOST_KEPT,
        "bytes_kept": _bytes_kept(app, tenant),
        # How the machine is set up is the business of the default organisation alone.
        "installed": [
            (one, inline(one.meaning))
            for one in (_installation.facts(app) if is_house(key_of(request)) else ())
        ],
        "notice": "Saved." if saved else None,
        **_room.fault(error),
    }
    return page(request, "settings.html", values, error.status if error else 200)


def _texts(form: FormData) -> dict[str, str]:
    return {name: storable(value) for name, value in form.items() if isinstance(value, str)}


def _bytes_kept(app: App, tenant: Tenant) -> int:
    with app.db.begin() as tx:
        return documents.bytes_kept(tx, tenant)
