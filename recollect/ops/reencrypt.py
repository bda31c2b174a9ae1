"""Encrypt with the newest key of the installation what older keys encrypted."""

from recollect.app import App, secret_keys
from recollect.events import outbox
from recollect.orgs import orgs, settings
from recollect.sync import connections


def reseal(app: App) -> int:
    """Encrypt it again, a transaction at a time; how many texts."""
    keys = secret_keys(app.config)
    with app.db.begin() as tx:
        done = sum(settings.reseal(tx, org.id, keys) for org in orgs.list_all(tx))
        done += outbox.reseal(tx, keys)
    after: str | None = ""
    while after is not None:
        with app.db.begin() as tx:
            some, after = connections.reseal(tx, keys, after)
        done += some
    return done
