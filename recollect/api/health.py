"""Whether the process lives, whether the service can work."""

from fastapi import APIRouter, Response

from recollect import documents
from recollect.api.deps import CurrentApp

router = APIRouter(tags=["health"])


@router.get("/", include_in_schema=False)
def root() -> dict[str, str]:
    return {"service": "recollect", "docs": "/docs"}


@router.get("/health", summary="Alive", operation_id="health")
def health() -> dict[str, str]:
    """200 while the process lives."""
    return {"status": "ok"}


@router.get(
    "/ready",
    summary="Ready",
    operation_id="ready",
    responses={503: {"description": "The database does not answer, or nothing is processed."}},
)
def ready(app: CurrentApp, response: Response) -> dict[str, str]:
    """200 when the database answers and processing does not fail for reasons of its own."""
    with app.db.begin() as tx:
        trouble = documents.trouble(tx)
    if trouble:
        response.status_code = 503
        return {"status": "failing", "reason": trouble}
    return {"status": "ready"}
