"""The room of filters: what connections bring in and what stays out, and trying that out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse
from starlette.datastructures import FormData

from recollect.app import App
from recollect.console import _room
from recollect.console._connections import name_of, subject_of
from recollect.console._room import Admin, CurrentApp, SignedInPage, Text, Whole, page
from recollect.console._settings import save
from recollect.errors import BadRequestError, RequestError
from recollect.model import Connection, Tenant, storable
from recollect.orgs import settings
from recollect.orgs.settings import PATTERN_LENGTH, PATTERNS, PROMPT_LENGTH
from recollect.sync import connections, item_filter
from recollect.sync.filter_preview import ASKED, Previewed, preview

FILTERS = "/console/filters"
FIELDS = (
    ("includeItems", "urlPatterns", "Only these addresses"),
    ("includeItems", "titlePatterns", "Only these titles"),
    ("excludeItems", "urlPatterns", "Not these addresses"),
    ("excludeItems", "titlePatterns", "Not these titles"),
)
KINDS = ("urlPatterns", "titlePatterns")
EXAMPLES = 10
"""Of each effect and connection."""
CHOICES = 200
"""Connections offered to try a filter on."""

rooms = APIRouter(route_class=SignedInPage, include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Tried:
    """A thing that the filter was asked about; `reason` None: it comes in."""

    url: str
    title: str
    reason: str | None


@rooms.get(FILTERS)
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
        refuse = item_filter.refusal(stored)
        reason = refuse(title.strip(), url.strip() or None)
        tried = Tried(url.strip(), title.strip(), reason)
    return _page(request, app, tenant, stored, stored, tried=tried, saved=done == "saved")


@rooms.post(FILTERS)
async def change(
    request: Request, tenant: Admin, app: CurrentApp, action: Annotated[str, Form()] = "save"
) -> Response:
    """Save what was typed, or try it out without saving it."""
    async with request.form(max_files=0, max_fields=100) as form:
        act = _try if action == "try" else _save
        return await run_in_threadpool(act, request, app, tenant, _texts(form))


def _save(request: Request, app: App, tenant: Tenant, form: Mapping[str, str]) -> Response:
    before, wanted, refused = save(app, tenant, form, _typed, _check, _stamped)
    if refused is not None:
        return _page(request, app, tenant, wanted, before, error=refused)
    return RedirectResponse(f"{FILTERS}?done=saved", 303)


def _try(request: Request, app: App, tenant: Tenant, form: Mapping[str, str]) -> Response:
    with app.db.begin() as tx:
        before = settings.read(tx, tenant.id)
    wanted = _typed(form, before)
    chosen = form.get("connection") or None
    try:
        _check(wanted)
        told = preview(app, tenant, wanted, connection=chosen, ask="ask" in form, examples=EXAMPLES)
    except RequestError as error:
        return _page(request, app, tenant, wanted, before, error=error, chosen=chosen)
    unsaved = _differs(wanted, before)
    return _page(request, app, tenant, wanted, before, told=told, chosen=chosen, unsaved=unsaved)


def _stamped(stored: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the form can change."""
    return {name: stored[name] for name in _typed({}, stored)}


def _differs(wanted: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    return any(value != before[name] for name, value in wanted.items())


def _typed(form: Mapping[str, str], before: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that the form speaks of, as it says them."""
    wanted: dict[str, Any] = {}
    for name in ("includeItems", "excludeItems"):
        kinds = {kind: _lines(form.get(f"{name}.{kind}", "")) for kind in KINDS}
        given = any(kinds.values())
        # What means the same stays as it is: patterns of one kind only, or none at all.
        same = {kind: _patterns(before, name, kind) for kind in kinds} == kinds
        wanted[name] = before[name] if same else kinds if given else None
    wanted["filterPrompt"] = form.get("filterPrompt", "").replace("\r\n", "\n").strip() or None
    wanted["shouldLLMFilter"] = "shouldLLMFilter" in form
    return wanted


def _check(wanted: Mapping[str, Any]) -> None:
    """The bounds of `PATCH /v3/settings`; raises BadRequestError."""
    for name, kind, label in FIELDS:
        patterns = _patterns(wanted, name, kind)
        if len(patterns) > PATTERNS:
            raise BadRequestError(f"{label}: at most {PATTERNS:,} patterns")
        if any(len(one) > PATTERN_LENGTH for one in patterns):
            raise BadRequestError(f"{label}: a pattern has at most {PATTERN_LENGTH:,} characters")
    if len(wanted["filterPrompt"] or "") > PROMPT_LENGTH:
        raise BadRequestError(f"filterPrompt: at most {PROMPT_LENGTH:,} characters")


def _page(
    request: Request,
    app: App,
    tenant: Tenant,
    shown: Mapping[str, Any],
    stored: Mapping[str, Any],
    *,
    tried: Tried | None = None,
    told: Previewed | None = None,
    chosen: str | None = None,
    unsaved: bool = False,
    saved: bool = False,
    error: RequestError | None = None,
) -> Response:
    with app.db.begin() as tx:
        offered = connections.find(tx, tenant)[:CHOICES]
    body = {name: shown[name] for name in ("includeItems", "excludeItems", "filterPrompt")}
    given = {name: value for name, value in body.items() if value}
    values = {
        "shown": shown,
        "before": _room.stamp(_stamped(stored)),
        "patterns": [
            (f"{name}.{kind}", label, "\n".join(_patterns(shown, name, kind)))
            for name, kind, label in FIELDS
        ],
        "has_model": app.llm is not None,
        "lacks": item_filter.lacks(shown, app.llm),
        "offered": [(one.id, _label(one)) for one in offered],
        "chosen": chosen,
        "tried": tried,
        "told": told,
        "effects": [(one, _label(one.connection)) for one in told.effects] if told else [],
        "unsaved": unsaved,
        "asked": ASKED,
        "snippets": _room.code(request, "previewSettings", given or None),
        "notice": "Saved. It takes effect with the next sync." if saved else None,
        **_room.fault(error),
    }
    return page(request, "filters.html", values, error.status if error else 200)


def _label(one: Connection) -> str:
    return " · ".join(filter(None, (name_of(one.provider), subject_of(one))))


def _patterns(values: Mapping[str, Any], name: str, kind: str) -> list[str]:
    stored: Mapping[str, Sequence[str] | None] = values[name] or {}
    return list(stored.get(kind) or ())


def _lines(written: str) -> list[str]:
    return [line.strip() for line in written.splitlines() if line.strip()]


def _texts(form: FormData) -> dict[str, str]:
    return {name: storable(value) for name, value in form.items() if isinstance(value, str)}
