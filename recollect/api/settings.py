"""The settings of the organisation."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter

from recollect import documents
from recollect.api.access_schemas import Reset, ResetDone
from recollect.api.deps import Admin, ApiRoute, CurrentApp, CurrentKey, Whole
from recollect.api.settings_schemas import SettingsChanged, SettingsOut, SettingsPatch
from recollect.app import secret_keys
from recollect.db import Tx
from recollect.errors import BadRequestError
from recollect.orgs import audit, settings, tags
from recollect.sync import connections, item_filter
from recollect.sync.sources import end

router = APIRouter(tags=["settings"], route_class=ApiRoute)


@router.get("/v3/settings", summary="Get settings", operation_id="getSettings")
def read(tenant: Whole, app: CurrentApp) -> SettingsOut:
    with app.db.begin() as tx:
        return _shown(settings.read(tx, tenant.id))


@router.patch("/v3/settings", summary="Change settings", operation_id="updateSettings")
def patch(
    tenant: Admin, key: CurrentKey, app: CurrentApp, body: SettingsPatch | None = None
) -> SettingsChanged:
    """Named fields change, null clears one; the answer shows all settings as they now are, and in
    `warnings` what cannot work yet."""
    change = body.given() if body else {}
    with app.db.begin() as tx:
        now = settings.patch(tx, tenant.id, change, keys=secret_keys(app.config))
        if "keepVersions" in change:
            documents.limit(tx, tenant.id, now["keepVersions"] or 0)
    return SettingsChanged(
        org_id=key.org.id,
        org_slug=key.org.name,
        updated=_shown(now),
        warnings=[
            *((body and body.passed_over()) or ()),
            *item_filter.lacks(change, app.llm),
            *settings.lacks(change, now),
        ]
        or None,
    )


@router.post("/v3/settings/reset", summary="Delete everything", operation_id="resetOrganization")
def reset(body: Reset, tenant: Admin, key: CurrentKey, app: CurrentApp) -> ResetDone:
    """All documents, connections, container tags and settings; the keys stay. Permanent."""
    if body.confirmation != key.org.name:
        raise BadRequestError(f"confirmation: must be the orgSlug, {key.org.name!r}")

    def empty(tx: Tx) -> int:
        gone = end(tx, app, tenant, connections.find(tx, tenant), with_documents=True)
        gone += len(documents.delete_all(tx, tenant))
        tags.forget_all(tx, tenant.id)
        settings.reset(tx, tenant.id)
        audit.record(tx, "organisation.reset", tenant.id, documents=gone)
        return gone

    return body.warned(ResetDone(success=True, deleted_count=app.db.write(empty)))


def _shown(values: Mapping[str, Any]) -> SettingsOut:
    return SettingsOut.model_validate(settings.masked(values))
