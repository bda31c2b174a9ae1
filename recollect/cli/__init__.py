"""The command line, `recollect …`: arguments come in, text or JSON and an exit code go out.

Exit codes: 0 fine, 1 failed, 2 wrong usage, 130 interrupted, 143 terminated.

A command's module is loaded when it is called: the server's libraries take longer to load than a
search takes to run.
"""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib.metadata import version
from io import TextIOWrapper
from types import MappingProxyType
from typing import Annotated, cast

import typer
from pydantic import ValidationError
from typer._click.core import Command
from typer._click.exceptions import UsageError
from typer._click.formatting import HelpFormatter
from typer._click.shell_completion import CompletionItem
from typer.core import TyperCommand, TyperGroup

from recollect.cli._help import plain
from recollect.cli._lazy import loaded, tell_new_name
from recollect.cli.output import closed, speaks_unicode, tell
from recollect.errors import NO_ROOM, BadRequestError, RecollectError, SetupError, in_words

_Row = tuple[str, str, str]
PANELS: Mapping[str, tuple[_Row, ...]] = MappingProxyType(
    {
        "Add and search": (
            ("quickstart", "quickstart", "Try it: add a sample, ask it a question."),
            ("add", "add", "Add files, folders, URLs and standard input."),
            ("search", "look", "Find documents by words and meaning."),
            ("ask", "ask", "Answer a question from what is found, with its sources."),
            ("evaluate", "evaluate", "Ask test questions; say what the search finds."),
        ),
        "Documents": (
            ("list", "look", "List documents, the newest first."),
            ("show", "look", "Show a document, or its text."),
            ("versions", "look", "List the texts that a document has and had."),
            ("edit", "edit", "Change tags, metadata or content of a document."),
            ("rm", "look", "Delete documents for good."),
            ("retry", "look", "Process documents again."),
            ("status", "look", "Show how many wait, are worked on, failed, and why."),
            ("tags", "tags", "List container tags with their documents."),
        ),
        "Connections": (
            ("connect", "connect", "Connect a provider: a website, a drive, mails …"),
            ("connections", "connect", "List connections and what is wrong with them."),
            ("sync", "connect", "Sync a connection now."),
            ("changes", "connect", "Show what a sync added, changed and removed."),
            ("seen", "connect", "Show why something did not become a document."),
            ("disconnect", "connect", "End a connection."),
            ("filters", "filters", "Choose what to keep out of connected sources."),
        ),
        "Run the service": (
            ("serve", "serve", "Run all of it on this machine."),
            ("api", "api", "Run an API process, one of several."),
            ("work", "work", "Run a worker process, one of several."),
            ("open", "open", "Open the console in a browser, signed in."),
            ("mcp", "mcp", "Serve assistants over standard input and output."),
            ("doctor", "doctor", "Check the installation; say what to do."),
            ("embedder", "embedder", "Change the embedding model while it runs."),
            ("reindex", "admin", "Embed everything again, while it is stopped."),
        ),
        "Access and events": (
            ("orgs", "admin", "Organisations and their plan."),
            ("keys", "admin", "API keys."),
            ("assistants", "admin", "List and revoke assistants connected to /mcp."),
            ("webhooks", "webhooks", "Send signed events to your programs."),
            ("audit", "admin", "Show who did what."),
        ),
        "Keep and delete data": (
            ("backup", "backup", "Write everything into one file."),
            ("restore", "backup", "Bring a backup back."),
            ("export", "backup", "Write documents as JSON and files."),
            ("import", "backup", "Add the documents of an export."),
            ("purge", "trust", "Remove from the disk what was deleted."),
            ("receipt", "trust", "Show that a document was deleted."),
            ("verify", "trust", "Check that documents, index and files agree."),
        ),
        "Try out": (
            ("check-url", "admin", "Say whether an address may be fetched, and why not."),
            ("torture", "torture", "Break a scratch service and count what it lost."),
        ),
    }
)
"""Panel of the help → command, module of this package that registers it, what it does."""
COMMANDS: Mapping[str, str] = MappingProxyType(
    {name: module for rows in PANELS.values() for name, module, _ in rows}
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
        "login": "open",
        "logs": "audit",
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
        if cmd_name not in COMMANDS:
            return None
        return loaded(ctx, COMMANDS[cmd_name], cmd_name)

    def format_help(self, ctx: typer.Context, formatter: HelpFormatter) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] # as above
        # From the lines above: to load every command takes seconds.
        shown = TyperGroup(
            name=self.name, params=self.params, help=self.help, rich_markup_mode="rich"
        )
        for panel, rows in PANELS.items():
            for name, _, told in rows:
                shown.add_command(TyperCommand(name, help=told, rich_help_panel=panel))
        plain(shown, ctx).format_help(ctx, formatter)

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
            if isinstance(error.__cause__, ValidationError):
                error.message = in_words(error.__cause__.errors()[0])
            raise
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            client = sys.modules.get("recollect.cli.client")
            if client is None or not client.Service.answered or isinstance(error, UnicodeError):
                raise
            if client.load().log_level == "debug":
                raise
            raise SetupError(
                f"an answer of the service is not what this command knows ({error!r}): it is"
                " another version of Recollect than this one, or something else; is its address"
                " right? RECOLLECT_LOG_LEVEL=debug shows where the command stumbled"
            ) from error

    def shell_complete(self, ctx: typer.Context, incomplete: str) -> list[CompletionItem]:  # pyright: ignore[reportIncompatibleMethodOverride] # as above
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        # Names alone: help texts would load every command while someone waits for Tab.
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that the arguments name, by default those of this process, and end it; what
    we know to go wrong is one line, no trace."""
    _open_streams()
    _clean_up_at_signals()
    try:
        app(arguments, prog_name="recollect")
    except BadRequestError as error:
        tell(f"error: {error.details}")
        raise SystemExit(2) from None
    except RecollectError as error:
        tell(f"error: {error}")
        raise SystemExit(1) from None
    except OSError as error:
        if isinstance(error, PermissionError) and error.filename is not None:
            tell(f"error: {closed(error)}")
        elif error.errno in NO_ROOM and error.filename is None:
            tell(f"error: what it prints cannot be written: {error.strerror}")
        else:
            raise
        raise SystemExit(1) from error
    except UnicodeEncodeError as error:
        # An argument comes with a lone surrogate for each byte that is no UTF-8.
        if (given := next((one for one in sys.argv if not _is_text(one)), None)) is None:
            raise
        tell(f"error: {given}: not UTF-8; check the encoding of the terminal or the script")
        raise SystemExit(2) from error


def _open_streams() -> None:
    """Open the null device for closed standard streams, else the next files get their numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 # as long as the process
    out = cast("TextIOWrapper", sys.stdout)
    if not speaks_unicode(out):
        out.reconfigure(errors="backslashreplace")  # as stderr does


def _clean_up_at_signals() -> None:
    """Let SIGTERM and a closed terminal end a command as Ctrl-C does: it stops what it started."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _end)
    if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:  # see `__main__`
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def _is_text(argument: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in argument)
