"""Whether the process lives, whether the service can work."""

import shutil
import time
from datetime import timedelta
from pathlib import Path

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from recollect.api.deps import CurrentApp
from recollect.api.schemas import Canary, Health, Readiness
from recollect.ops import canary
from recollect.ops.canary import Fate
from recollect.telemetry import metrics

router = APIRouter(tags=["health"])
_STARTED = time.monotonic()
MISSED = 3
"""Canaries that may be missing before nothing seems to work at all."""
SLACK = timedelta(minutes=5)
LEAST_FREE = 64 << 20
"""bytes in the data folder below which nothing can be written for long"""
_UNREADY = [{"$ref": f"#/components/schemas/{name}"} for name in ("Readiness", "Error")]


@router.get("/", include_in_schema=False, response_model=None)
async def root(request: Request) -> dict[str, str] | RedirectResponse:
    """A browser is led to the console."""
    if "text/html" in request.headers.get("accept", ""):
        return RedirectResponse("console", 303)
    return {"service": "recollect", "docs": "/docs", "console": "/console"}


@router.get("/health", summary="Alive", operation_id="health")
async def health() -> Health:
    """200 while the process lives."""
    # On the event loop: it must not wait for a thread that others have.
    return Health(status="ok")


@router.get(
    "/ready",
    summary="Ready",
    operation_id="ready",
    responses={
        503: {
            "description": "The database does not answer, or nothing is processed.",
            "content": {"application/json": {"schema": {"anyOf": _UNREADY}}},
        }
    },
)
def ready(app: CurrentApp, response: Response) -> Readiness:
    """200 when the database answers, the disk has room, no stage of processing fails for reasons
    of its own, and the last canary came through."""
    with app.db.begin() as tx:
        reason = metrics.failing(tx)
        fate = canary.last(tx)
    reason = reason or _missing(fate, app.config.canary_interval) or _full(app.config.data_dir)
    if reason:
        response.status_code = 503
    return Readiness(
        status="failing" if reason else "ready",
        reason=reason,
        warning=app.sandbox.missing(),
        canary=fate
        and Canary(
            ok=fate.ok,
            reason=fate.reason,
            age_seconds=round(fate.age.total_seconds()),
            ms=fate.ms,
        ),
    )


def _full(folder: Path) -> str | None:
    try:
        free = shutil.disk_usage(folder).free
    except FileNotFoundError:  # of a process that keeps nothing on its machine
        return None
    return f"the disk is full: {free >> 20} MB free" if free < LEAST_FREE else None


def _missing(fate: Fate | None, interval: timedelta) -> str | None:
    """What the canary says against the service; nothing when there is none."""
    if not interval:
        return None
    if fate is not None and not fate.ok and fate.age < MISSED * interval:
        return f"the canary did not come through: {fate.reason}"
    # A service that was off for a while has no fresh one yet.
    up = timedelta(seconds=time.monotonic() - _STARTED)
    age = up if fate is None else min(up, fate.age)
    if age > MISSED * interval + SLACK:
        return f"no canary for {age.total_seconds():.0f} s: no worker seems to run"
    return None
