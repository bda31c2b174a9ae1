"""The settings of the organisation."""

from typing import Any

from fastapi import APIRouter

from recollect import connections, documents, settings, tags
from recollect.api.deps import Admin, CurrentApp, CurrentKey, Whole
from recollect.api.schemas import Reset, ResetDone, SettingsChanged, SettingsPatch
from recollect.app import secret_keys
from recollect.errors import BadRequestError
from recollect.sources import end

router = APIRouter(tags=["settings"])
_MASK = "********"


@router.get("/v3/settings", summary="Get settings", operation_id="getSettings")
def read(tenant: Whole, app: CurrentApp) -> dict[str, Any]:
    with app.db.begin() as tx:
        return _masked(settings.read(tx, tenant.id))


@router.patch("/v3/settings", summary="Change settings", operation_id="updateSettings")
def patch(
    tenant: Admin, key: CurrentKey, app: CurrentApp, body: SettingsPatch | None = None
) -> SettingsChanged:
    """Named fields change, null clears one; the answer shows all settings as they now are."""
    change = body.given() if body else {}
    # A client that sends back what it read must not overwrite a secret with its mask.
    change = {
        name: value
        for name, value in change.items()
        if not (name in settings.SECRETS and value == _MASK)
    }
    with app.db.begin() as tx:
        now = settings.patch(tx, tenant.id, change, keys=secret_keys(app.config))
    return SettingsChanged(org_id=key.org.id, org_slug=key.org.name, updated=_masked(now))


@router.post("/v3/settings/reset", summary="Delete everything", operation_id="resetOrganization")
def reset(body: Reset, tenant: Admin, key: CurrentKey, app: CurrentApp) -> ResetDone:
    """All documents, connections, container tags and settings; the keys stay. Permanent."""
    if body.confirmation != key.org.name:
        raise BadRequestError(f"confirmation: must be the orgSlug, {key.org.name!r}")
    with app.db.begin() as tx:
        gone = end(tx, app, tenant, connections.find(tx, tenant), with_documents=True)
        gone += len(documents.delete_all(tx, tenant))
        tags.forget_all(tx, tenant.id)
        settings.reset(tx, tenant.id)
    return ResetDone(success=True, deleted_count=gone)


def _masked(values: dict[str, Any]) -> dict[str, Any]:
    return {name: _MASK if v and name in settings.SECRETS else v for name, v in values.items()}
