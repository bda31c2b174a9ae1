"""The settings of this process, with those that providers have of their own."""

from typing import Any

from recollect import config, connectors
from recollect.config import Config


def load(**given: Any) -> Config:
    """What the command line gave is on top; raises SetupError naming the fault."""
    return config.load(connectors.settings(), **given)


def check_providers() -> None:
    """Raises SetupError for a fault in what providers have of their own."""
    config.load_providers(connectors.settings())


def unknown() -> list[str]:
    """A sentence for each name in the environment that is not a setting."""
    return [
        f"There is no setting {name}" + (f"; did you mean {near}?" if near else ".")
        for name, near in config.unknown(connectors.settings()).items()
    ]
