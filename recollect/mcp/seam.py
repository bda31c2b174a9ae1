"""What the tools need of the service, whichever way an assistant came."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from recollect.model import storable

_HALF = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)
"""One of two surrogates without the other, as JavaScript writes a text that it cut in an emoji."""


def whole(message: bytes) -> bytes:
    """A JSON message that the SDK can parse: lone surrogates become U+FFFD, as elsewhere in the
    API. What cannot be read stays as it came."""
    if _HALF.search(message) is None:
        return message
    try:
        return json.dumps(storable(json.loads(message))).encode()
    except (ValueError, RecursionError):
        return message


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
