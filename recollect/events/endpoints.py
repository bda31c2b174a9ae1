"""Making and changing endpoints of webhooks: the rules that the API and the console share."""

from collections.abc import Callable, Sequence

from recollect import encryption
from recollect.app import App, secret_keys
from recollect.errors import BadRequestError
from recollect.events import signing, targets
from recollect.events.targets import TargetChange, WebhookTarget
from recollect.fetch import parse_url
from recollect.model import Tenant, random_id
from recollect.orgs import tags


def create(
    app: App,
    tenant: Tenant,
    *,
    url: str,
    events: Sequence[str] | None = None,
    tags: Sequence[str] | None = None,
    description: str = "",
    secret: str | None = None,
) -> tuple[WebhookTarget, str]:
    """An endpoint and its secret, which is shown this once; made here unless one is given.

    `events` None: all of them; `tags` as `reach`. Raises BadRequestError for an address that may
    not get events, PermissionDeniedError for a tag that the key may not touch.
    """
    id = random_id()
    secret = signing.check_secret(secret) if secret else signing.new_secret()
    with app.db.begin() as tx:
        made = targets.create(
            tx,
            tenant,
            id,
            url=_address(app, url),
            events=events or targets.EVENTS,
            tags=_reach(tenant, tags),
            secret=encryption.seal(secret_keys(app.config), secret, place=signing.place(id)),
            description=description,
        )
    return made, secret


def change(
    app: App,
    tenant: Tenant,
    id: str,
    *,
    url: str | None = None,
    events: Sequence[str] | None = None,
    tags: Sequence[str] | None = None,
    description: str | None = None,
    disabled: bool | None = None,
    rotate: bool = False,
    judge: Callable[[WebhookTarget], object] | None = None,
) -> tuple[WebhookTarget, str | None]:
    """Arguments left out change nothing. `rotate`: also a new secret, which is shown this once;
    `tags` as `reach`, so that none means all that the key may touch. `judge` sees what
    is stored, locked, and raises if that is not what was to be changed.

    Raises NotFoundError, and what `create` raises.
    """
    secret = signing.new_secret() if rotate else None
    with app.db.begin() as tx:
        found = targets.get(tx, tenant, id, lock=True)
        if judge is not None:
            judge(found)
        sealed = None
        if secret is not None:
            sealed = encryption.seal(secret_keys(app.config), secret, place=signing.place(found.id))
        wanted = TargetChange(
            url=None if url is None else _address(app, url),
            description=description,
            events=events,
            tags=None if tags is None else _reach(tenant, tags) or (),
            disabled=disabled,
            secret=sealed,
        )
        changed = targets.update(tx, tenant, found.id, wanted)
    return changed, secret


def _address(app: App, url: str) -> str:
    try:
        return parse_url(url, allow_networks=app.config.allow_networks)
    except BadRequestError as error:
        raise BadRequestError(f"url: {error.details}") from error


def _reach(tenant: Tenant, given: Sequence[str] | None) -> list[str] | None:
    """What an endpoint is told of: never more than the key may touch."""
    named = tags.asked(tenant, None, given, default=False)
    if named:
        return named
    return None if tenant.tags is None else list(tenant.tags)
