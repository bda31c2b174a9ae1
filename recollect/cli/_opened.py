"""The App of a process that serves."""

from recollect.app import App, open_app, prepare
from recollect.cli.output import closed, fail
from recollect.config import Config
from recollect.db.embedded import database
from recollect.db.schema import migrate
from recollect.errors import SetupError, Unavailable


def opened(config: Config, *, supervised: bool = False) -> App:
    """The App of a process that serves, on the database that is configured or that runs here.

    Unless it is `supervised`, it brings the schema up to date itself, as the supervisor does.
    """
    try:
        with database(config, keep=True) as ensure:
            url = ensure()
            if not supervised and config.api_key is not None:
                prepare(config, url)
            elif not supervised:
                migrate(url, index_shards=config.index_shards)
            return open_app(config, url, serves=True)
    except PermissionError as error:
        fail(closed(error), code=2)
    except (SetupError, Unavailable) as error:
        fail(str(error), code=2 if isinstance(error, SetupError) else 1)
