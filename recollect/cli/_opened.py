"""The App of a process that serves."""

from recollect.app import App, open_app
from recollect.cli.output import fail
from recollect.config import Config
from recollect.db.embedded import database
from recollect.errors import SetupError, Unavailable


def opened(config: Config) -> App:
    """The App of a child process, on the database that is configured or that runs here."""
    try:
        with database(config, keep=True) as ensure:
            return open_app(config, ensure())
    except (SetupError, Unavailable) as error:
        fail(str(error), code=2 if isinstance(error, SetupError) else 1)
