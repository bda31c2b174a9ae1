"""What the tools need of the service, whichever way an assistant came."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


class ServiceApi(Protocol):
    """The service's HTTP API with one key.

    Calls raise RequestError when the service refuses, Transient when it cannot answer now, and
    SetupError when there is none.
    """

    async def send(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Of calls that answer with an object; {} when they answer with nothing."""
        ...

    async def array(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """Of calls that answer with an array."""
        ...


@dataclass(frozen=True, slots=True)
class Session:
    """One assistant: the API with its key, and the container tag that is meant when it names
    none."""

    api: ServiceApi
    tag: str | None = None

    def tags(self, named: str | None) -> list[str] | None:
        """Container tags of a request; None leaves the choice to the service."""
        tag = named or self.tag
        return [tag] if tag else None
