"""One transaction on the service's database, for commands that work whether it runs or not."""

from collections.abc import Generator
from contextlib import contextmanager

from recollect.cli._log import log_of_command
from recollect.config import load
from recollect.db import Database, Tx, migrate
from recollect.db.embedded import database
from recollect.orgs import audit


@contextmanager
def transaction() -> Generator[Tx]:
    """What goes wrong ends the command with one line."""
    audit.act(audit.CLI)
    config = load()
    log_of_command(config.log_level)
    with database(config) as ensure:
        url = ensure()
        migrate(url)
        with Database(url, size=1) as db, db.begin() as tx:
            yield tx
