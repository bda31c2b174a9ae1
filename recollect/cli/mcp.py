"""`recollect mcp`: the service for an assistant on this machine, over stdio."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, TypeVar

import typer
from anyio import to_thread

from recollect.cli._process import let_signals_end
from recollect.cli.client import ApiKey, Service, Url, open_service
from recollect.cli.output import echo_json, fail
from recollect.mcp.seam import Session
from recollect.mcp.tools import TOOLS

T = TypeVar("T")


def register(app: typer.Typer) -> None:
    app.command()(mcp)


def mcp(
    tag: Annotated[str | None, typer.Option(help="Container tag of calls that name none.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the tools as JSON instead of serving them.")
    ] = False,
    url: Url = None,
    key: ApiKey = None,
) -> None:
    """Serve MCP over standard input and output, for assistants such as Claude Desktop.

    It talks to a running service, which may start later. docs/mcp.md has what to put where.

    Example: recollect mcp --tag notes
    """
    if as_json:
        echo_json([{"name": tool.name, "description": tool.description} for tool in TOOLS])
        return
    if tag is not None and not tag.strip():
        fail("--tag needs a container tag", code=2)
    session = Session(Outside(open_service(url, key)), tag)
    # It has nothing to clean up, and would wait for its standard input to be closed.
    let_signals_end()
    # Loaded only now, so that the list of commands does not wait for the SDK.
    import_module("recollect.mcp.server").serve_stdio(session)


@dataclass(frozen=True, slots=True)
class Outside:
    """An `Api` (see `recollect.mcp.seam`) on a service elsewhere; it blocks, so in threads."""

    service: Service

    async def send(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        if method == "GET":
            return await self._aside(lambda: self.service.get(path))
        return await self._aside(lambda: self.service.send(method, path, body or {}))

    async def array(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        return await self._aside(lambda: self.service.array(method, path, body))

    async def _aside(self, ask: Callable[[], T]) -> T:
        # An assistant that gives up does not wait for the service.
        return await to_thread.run_sync(ask, abandon_on_cancel=True)
