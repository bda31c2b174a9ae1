"""Whether the process lives, whether the service can work."""

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from recollect import log
from recollect.api.deps import CurrentApp
from recollect.api.health_schemas import Canary, Health, Readiness
from recollect.errors import DATABASE_AWAY, DatabaseAway
from recollect.ops import readiness

LOG = log.get("api")
router = APIRouter(tags=["health"])
_UNREADY = [{"$ref": f"#/components/schemas/{name}"} for name in ("Readiness", "Error")]


@router.get("/", include_in_schema=False, response_model=None)
async def root(request: Request) -> dict[str, str] | RedirectResponse:
    """A browser is led to the console."""
    if "text/html" in request.headers.get("accept", ""):
        return RedirectResponse("console", 303)
    return {"service": "recollect", "docs": "/docs", "console": "/console"}


@router.head("/health", include_in_schema=False)
@router.get("/health", summary="Check that the process lives", operation_id="health")
async def health() -> Health:
    """200 while the process lives."""
    # On the event loop: it must not wait for a thread that others have.
    return Health(status="ok")


@router.head("/ready", include_in_schema=False)
@router.get(
    "/ready",
    summary="Check that the service works",
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
    try:
        with app.db.begin() as tx:
            found = readiness.look(tx, app)
    except DatabaseAway as error:
        LOG.warning("unavailable", error=str(error))
        response.status_code = 503
        return Readiness(status="failing", reason=DATABASE_AWAY)
    reason, fate = found.reason, found.canary
    if reason:
        response.status_code = 503
    return Readiness(
        status="failing" if reason else "ready",
        reason=reason,
        warning="; ".join(filter(None, (app.sandbox.missing(), readiness.resting(app)))) or None,
        canary=fate
        and Canary(
            ok=fate.ok,
            reason=fate.reason,
            age_seconds=round(fate.age.total_seconds()),
            ms=fate.ms,
        ),
    )
