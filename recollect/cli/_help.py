"""What all commands have in common: help with placeholders instead of types and with paragraphs
that are wrapped once, and a refusal of empty arguments."""

import inspect
from pathlib import Path
from typing import Any

import typer
from typer._click.core import Command, Context
from typer.core import TyperArgument, TyperGroup, TyperOption

NUMBERS = (int, float)


def plain(command: Command, ctx: typer.Context) -> Command:
    """The command, and what is below it, made so."""
    if command.help:
        paragraphs = inspect.cleandoc(command.help).split("\n\n")
        command.help = "\n\n".join(" ".join(one.split("\n")) for one in paragraphs)
    for param in (*command.params, command.get_help_option(ctx)):
        if isinstance(param, TyperOption):
            _name(param)
            if param.type_descriptor.annotation is Path:
                _refuse_empty(param)
        elif isinstance(param, TyperArgument):
            if param.metavar is None and param.nargs == 1:
                param.metavar = param.name.upper()
            _refuse_empty(param)
            param.display_type_rich = _no_type  # pyright: ignore[reportAttributeAccessIssue] # its name says it
    for one in command.commands.values() if isinstance(command, TyperGroup) else ():
        plain(one, ctx)
    return command


def _name(option: TyperOption) -> None:
    described = option.type_descriptor
    if option.is_flag:
        option.metavar = ""
        option.show_default = option.show_default and bool(option.default)
    elif option.metavar is None and not described.is_choice:
        numeric = described.is_ranged or described.annotation in NUMBERS
        option.metavar = "N" if numeric else option.name.upper().replace("_", "-")


def _refuse_empty(param: Any) -> None:
    """An empty argument comes from a variable that a script has not set. No id is empty, and as a
    path it would mean the working folder: so look before it becomes one."""
    process = param.process_value

    def process_given(ctx: Context, value: Any) -> Any:
        if "" in ([value] if param.nargs == 1 else value or []):
            raise typer.BadParameter("is empty", ctx=ctx, param=param)
        return process(ctx, value)

    param.process_value = process_given


def _no_type(ctx: typer.Context) -> None:
    return None
