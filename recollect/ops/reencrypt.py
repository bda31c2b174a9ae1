"""Encrypt with the newest key of the installation what older keys encrypted."""

from collections.abc import Sequence

from psycopg.types.json import Jsonb

from recollect import encryption
from recollect.app import EMBEDDER_KEY, App, secret_keys
from recollect.db import Tx
from recollect.events import targets
from recollect.orgs import orgs, settings
from recollect.sync import connection_queue, connections, push_registrations


def reseal(app: App) -> int:
    """Encrypt it again, a transaction at a time; how many texts."""
    keys = secret_keys(app.config)
    with app.db.begin() as tx:
        done = sum(settings.reseal(tx, org.id, keys) for org in orgs.list_all(tx))
        done += targets.reseal(tx, keys) + push_registrations.reseal(tx, keys)
    with app.db.begin() as tx:
        done += _models(tx, keys)
    after: str | None = ""
    while after is not None:
        with app.db.begin() as tx:
            some, after = connections.reseal(tx, keys, after)
        done += some
    with app.db.begin() as tx:
        connection_queue.regain(tx, encryption.mark(keys))
    return done


def _models(tx: Tx, keys: Sequence[bytes]) -> int:
    """The keys of endpoints whose models the index remembers."""
    done = 0
    for column in ("choice", "other_choice"):
        row = tx.execute(
            f"select {column} ->> 'key' as key from index_settings for update"
        ).fetchone()
        again = encryption.again(keys, row["key"] if row else None, place=EMBEDDER_KEY)
        if again is not None:
            tx.execute(
                f"update index_settings set {column} = {column} || %s", (Jsonb({"key": again}),)
            )
            done += 1
    return done
