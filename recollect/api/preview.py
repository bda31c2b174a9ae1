"""What a changed filter would do to what connections remember, without doing it."""

from dataclasses import asdict

from fastapi import APIRouter

from recollect.api.deps import Admin, ApiRoute, CurrentApp
from recollect.api.settings_schemas import (
    FilterEffect,
    FilterExample,
    FilterPreview,
    FilterPreviewed,
)
from recollect.api.turns import AsksOthers
from recollect.sync import filter_preview as flow

router = APIRouter(tags=["settings"], route_class=ApiRoute)


@router.post("/v3/settings/preview", summary="Try out a filter", operation_id="previewSettings")
def preview(
    tenant: Admin, app: CurrentApp, _: AsksOthers, body: FilterPreview | None = None
) -> FilterPreviewed:
    """What a changed filter would add and drop among remembered things. Changes no setting, no
    document; what the model says is remembered, so that a sync does not ask it again."""
    body = body or FilterPreview()
    told = flow.preview(
        app,
        tenant,
        body.given(),
        connection=body.connection_id,
        ask=body.ask,
        examples=body.examples,
    )
    return FilterPreviewed(
        adds=told.adds,
        drops=told.drops,
        undecided=told.undecided,
        asked=told.asked,
        connections=[
            FilterEffect(
                connection_id=one.connection.id,
                provider=one.connection.provider,
                known=one.known,
                adds=one.adds,
                drops=one.drops,
                undecided=one.undecided,
                examples=[FilterExample(**asdict(example)) for example in one.examples],
            )
            for one in told.effects
        ],
        notes=list(told.notes),
        warnings=body.passed_over(),
    )
