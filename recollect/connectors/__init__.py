"""The providers, one folder each: what a provider's API tells comes in, items and verdicts go out.

What Recollect knows of a provider is in its folder, told by its one `Connector`.
"""

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Literal

from recollect.config import ProviderSettings
from recollect.connectors.about import Application
from recollect.connectors.base import Connector
from recollect.errors import BadRequestError

UNBUILT = frozenset({"granola"})
"""Providers of the wire contract that Recollect has no connector for."""


@cache
def all() -> Mapping[str, Connector]:
    """Every connector by its provider, in the order of the names."""
    found: dict[str, Connector] = {}
    for module in (entry.name for entry in pkgutil.iter_modules(__path__) if entry.ispkg):
        loaded = importlib.import_module(f"{__name__}.{module}")
        for value in vars(loaded).values():
            if (
                isinstance(value, type)
                and issubclass(value, Connector)
                and value.__module__ == loaded.__name__
            ):
                found[value.provider] = value()
    return dict(sorted(found.items()))


@cache
def applications() -> Mapping[Application, Sequence[Connector]]:
    """The OAuth applications, each with the connectors that use it, in the order of the names."""
    found: dict[Application, list[Connector]] = {}
    for connector in all().values():
        if connector.application is not None:
            found.setdefault(connector.application, []).append(connector)
    return found


@cache
def settings() -> Mapping[str, type[ProviderSettings]]:
    """By provider, what the operator may set for it, beside what every provider shares."""
    return {name: one.settings for name, one in all().items() if one.oauth is not None}


@cache
def kinds() -> Mapping[str, Literal["page", "file"]]:
    """Types of documents that only providers bring, and what those are."""
    return {kind: what for one in all().values() for kind, what in one.kinds.items()}


@cache
def example() -> Connector:
    """The one for examples: it needs no account and no setting."""
    return next(
        one
        for one in all().values()
        if one.guide.example and type(one).obstacle is Connector.obstacle
    )


def get(provider: str) -> Connector:
    """Raises BadRequestError for a provider that there is no connector for."""
    connector = all().get(provider)
    if connector is None:
        raise BadRequestError(f"provider: there is no {provider!r}; there are {', '.join(all())}")
    return connector
