"""The settings of this process, with those that providers have of their own."""

from typing import Any

from recollect import config, connectors
from recollect.config import Config
from recollect.fetch import ForwardProxy, use_proxy


def load(**given: Any) -> Config:
    """What the command line gave is on top; raises SetupError naming the fault.

    From now on this process goes through the forward proxy that they name.
    """
    loaded = config.load(connectors.settings(), **given)
    use_proxy(_proxy_of(loaded))
    return loaded


def check(loaded: Config) -> None:
    """Raises SetupError for a fault in what `config.load` alone does not look at: the settings that
    providers have of their own, and the forward proxy."""
    config.load_providers(connectors.settings())
    _proxy_of(loaded)


def _proxy_of(loaded: Config) -> ForwardProxy | None:
    proxy = loaded.proxy.get_secret_value() if loaded.proxy else None
    return ForwardProxy(proxy, loaded.no_proxy) if proxy else None


def unknown() -> list[str]:
    """A sentence for each name in the environment that is not a setting."""
    return [
        f"There is no setting {name}" + (f"; did you mean {near}?" if near else ".")
        for name, near in config.unknown(connectors.settings()).items()
    ]
