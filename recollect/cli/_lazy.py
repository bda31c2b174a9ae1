"""Commands whose code is loaded when they are called."""

from importlib import import_module

import typer
from typer._click.core import Command
from typer.main import get_group

from recollect.cli.output import tell


def loaded(module: str, name: str) -> Command:
    """A command as a module of this package registers it."""
    part = typer.Typer()
    import_module(f"recollect.cli.{module}").register(part)
    return get_group(part).commands[name]


def tell_new_name(ctx: typer.Context, old: str, new: str) -> None:
    """Not while Tab is answered."""
    if not ctx.resilient_parsing:
        tell(f"`recollect {old}` is now `recollect {new}`")
