"""The organisation: the context that holds in all of its namespaces."""

from typing import Annotated

from pydantic import AfterValidator

from recollect.api.deps import Admin, CurrentApp, Reader, Whole
from recollect.api.namespaces._door import Closed, closed
from recollect.api.namespaces._door import router as door
from recollect.api.settings_schemas import Prompt
from recollect.api.wire import Wire, not_blank
from recollect.app import secret_keys
from recollect.db import Tx
from recollect.errors import BadRequestError, RequestError
from recollect.model import Tenant
from recollect.orgs import settings, tags

router = door("organization")


class OrganizationPatch(Closed):
    model_config = closed(organizationalContext="We make bicycles in Ulm.")

    organizational_context: Annotated[Prompt, AfterValidator(not_blank)] | None = None


class OrganizationOut(Wire):
    organizational_context: str | None
    namespace_count: int


class NoFeedbackError(RequestError):
    """What is sent goes nowhere: nothing leaves this machine."""

    status = 503
    permanent = True

    def __init__(self) -> None:
        super().__init__("Feedback is not available on this deployment")


@router.get("/organization", summary="Get the organisation", operation_id="nsGetOrganization")
def get(tenant: Whole, app: CurrentApp) -> OrganizationOut:
    with app.db.begin() as tx:
        return _shown(tx, tenant)


@router.patch(
    "/organization", summary="Change the organisation", operation_id="nsUpdateOrganization"
)
def patch(tenant: Admin, app: CurrentApp, body: OrganizationPatch | None = None) -> OrganizationOut:
    """`organizationalContext` is the `filterPrompt` of the settings; null clears it."""
    if body is None or not body.model_fields_set:
        raise BadRequestError("organizationalContext: name it; null clears it")
    change = {"filterPrompt": body.organizational_context}
    with app.db.begin() as tx:
        settings.patch(tx, tenant.id, change, keys=secret_keys(app.config))
        return _shown(tx, tenant)


@router.post(
    "/feedback",
    status_code=503,
    response_model=None,
    summary="Feedback",
    operation_id="nsPostFeedback",
)
def feedback(tenant: Reader) -> None:
    """Always 503: nobody would get it here."""
    raise NoFeedbackError


def _shown(tx: Tx, tenant: Tenant) -> OrganizationOut:
    return OrganizationOut(
        organizational_context=settings.read(tx, tenant.id)["filterPrompt"],
        namespace_count=tags.find(tx, tenant, limit=1, page=1).total,
    )
