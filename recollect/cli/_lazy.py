"""Commands whose code is loaded when they are called."""

import gc
from importlib import import_module
from typing import Any

import typer
from typer._click.core import Command
from typer.main import get_group

from recollect.cli._help import plain
from recollect.cli.output import tell


def part(module: str) -> Any:
    """A module of this package that only some calls of a command need.

    The collector rests while it loads, and never looks at what was loaded: code stays. A fifth of
    the time that a process takes to start went there.
    """
    gc.disable()
    try:
        return import_module(f"recollect.cli.{module}")
    finally:
        gc.freeze()
        gc.enable()


def loaded(ctx: typer.Context, module: str, name: str) -> Command:
    """A command as a module of this package registers it."""
    app = typer.Typer()
    part(module).register(app)
    return plain(get_group(app).commands[name], ctx)


def tell_new_name(ctx: typer.Context, old: str, new: str) -> None:
    """Not while Tab is answered."""
    if not ctx.resilient_parsing:
        tell(f"`recollect {old}` is now `recollect {new}`")
