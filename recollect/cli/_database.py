"""The service's database, for commands that work on it whether the service runs or not."""

from collections.abc import Generator
from contextlib import contextmanager

from recollect.cli._config import load
from recollect.cli._log import log_of_command
from recollect.config import Config
from recollect.db import Database, Tx
from recollect.db.embedded import database
from recollect.db.schema import migrate_new
from recollect.errors import SetupError
from recollect.orgs import audit


@contextmanager
def address(config: Config) -> Generator[str]:
    """Its URL. Raises SetupError if the data folder has no database, and if its schema is older."""
    refuse_no_database(config)
    with database(config) as ensure:
        url = ensure()
        migrate_new(url)
        yield url


@contextmanager
def opened(config: Config, *, size: int = 2) -> Generator[Database]:
    """As `address`; `size`: how many transactions the command has at a time."""
    log_of_command(config.log_level)
    with address(config) as url, Database(url, size=size) as db:
        yield db


@contextmanager
def transaction() -> Generator[Tx]:
    """What goes wrong ends the command with one line."""
    audit.act(audit.CLI)
    with opened(load(), size=1) as db, db.begin() as tx:
        yield tx


def refuse_no_database(config: Config) -> None:
    """Rather than make an empty one, only to find nothing in it."""
    if config.database_url is None and not (config.data_dir / "postgres").exists():
        raise SetupError(
            f"there is no database in {config.data_dir}; name the data folder with"
            " RECOLLECT_DATA_DIR, or the database with RECOLLECT_DATABASE_URL"
        )
