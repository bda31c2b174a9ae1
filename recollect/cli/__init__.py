"""The command line: `recollect …`. Exit codes: 0 fine, 1 failed, 2 wrong usage, 130 interrupted.

A command's module is loaded when it is called: the server's libraries take longer to load than a
search takes to run.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from importlib.metadata import version
from types import MappingProxyType
from typing import Annotated

import typer
from typer._click.core import Command
from typer._click.exceptions import UsageError
from typer._click.shell_completion import CompletionItem
from typer.core import TyperGroup

from recollect.cli._lazy import loaded, tell_new_name
from recollect.cli.output import tell
from recollect.errors import BadRequestError, RecollectError

COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "quickstart": "quickstart",
        "add": "add",
        "search": "look",
        "list": "look",
        "show": "look",
        "rm": "look",
        "retry": "look",
        "status": "look",
        "connect": "connect",
        "connections": "connect",
        "sync": "connect",
        "changes": "connect",
        "seen": "connect",
        "disconnect": "connect",
        "filters": "filters",
        "serve": "serve",
        "api": "api",
        "work": "work",
        "mcp": "mcp",
        "orgs": "admin",
        "keys": "admin",
        "doctor": "doctor",
        "embedder": "embedder",
        "reindex": "admin",
        "backup": "backup",
        "restore": "backup",
        "export": "backup",
        "import": "backup",
        "purge": "trust",
        "verify": "trust",
        "receipt": "trust",
        "check-url": "admin",
        "torture": "torture",
        "webhooks": "webhooks",
        "audit": "admin",
    }
)
"""Command → module of this package that registers it, in the order of the help."""
ELSEWHERE: Mapping[str, str] = MappingProxyType(
    {
        "delete": "rm",
        "remove": "rm",
        "ls": "list",
        "get": "show",
        "find": "search",
        "query": "search",
        "upload": "add",
        "ingest": "add",
        "start": "serve",
        "run": "serve",
        "reprocess": "retry",
        "crawl": "connect",
    }
)
"""What other programs call a command."""
RENAMED: Mapping[str, str] = MappingProxyType({"endpoints": "webhooks"})
"""Names of earlier versions, which go on working."""


class _Lazy(TyperGroup):
    def list_commands(self, ctx: typer.Context) -> list[str]:  # pyright: ignore[reportIncompatibleMethodOverride] # typer's context is click's
        return list(COMMANDS)

    def get_command(self, ctx: typer.Context, cmd_name: str):  # pyright: ignore[reportIncompatibleMethodOverride] # as above
        if cmd_name in RENAMED:
            tell_new_name(ctx, cmd_name, RENAMED[cmd_name])
            cmd_name = RENAMED[cmd_name]
        return loaded(COMMANDS[cmd_name], cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(  # pyright: ignore[reportIncompatibleMethodOverride] # as above
        self, ctx: typer.Context, args: list[str]
    ) -> tuple[str | None, Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except UsageError as error:
            asked = args[0] if args else ""
            meant = [ELSEWHERE[asked]] if asked in ELSEWHERE else get_close_matches(asked, COMMANDS)
            if meant:
                names = ", ".join(f"'{name}'" for name in meant)
                error.message = f"{error.message.rstrip('.')}. Did you mean {names}?"
            raise

    def invoke(self, ctx: typer.Context) -> object:  # pyright: ignore[reportIncompatibleMethodOverride] # as above
        try:
            return super().invoke(ctx)
        except UsageError as error:
            error.message = error.message.replace("Value error, ", "")  # words of its validator
            raise

    def shell_complete(self, ctx: typer.Context, incomplete: str) -> list[CompletionItem]:  # pyright: ignore[reportIncompatibleMethodOverride] # as above
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        # Names alone: help texts would load every command while somebody waits for Tab.
        return [CompletionItem(name) for name in COMMANDS if name.startswith(incomplete)]


app = typer.Typer(
    name="recollect",
    cls=_Lazy,
    help="Self-hosted knowledge ingestion and search.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _tell_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"recollect {version('recollect')}")
        raise typer.Exit


@app.callback()
def recollect(
    _: Annotated[
        bool,
        typer.Option("--version", callback=_tell_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Self-hosted knowledge ingestion and search."""


def main() -> None:
    """Run the command that the arguments name; what we know to go wrong is one line, no trace."""
    try:
        app(prog_name="recollect")
    except BadRequestError as error:
        tell(f"error: {error.details}")
        raise SystemExit(2) from None
    except RecollectError as error:
        tell(f"error: {error}")
        raise SystemExit(1) from None
