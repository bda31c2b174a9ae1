"""What commands print: data on standard output, everything else on standard error.

Titles and texts come from strangers: control characters are shown as U+FFFD, so that a document
cannot steer the terminal that shows it.
"""

import json
import sys
import unicodedata
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import NoReturn, TextIO

import typer
from pydantic import TypeAdapter
from rich.cells import cell_len
from rich.console import Console
from rich.status import Status

GAP = "  "
COLOURS = {
    "done": "green",
    "ready": "green",
    "active": "green",
    "processing": "cyan",
    "queued": "yellow",
    "paused": "yellow",
    "failing": "red",
    "failed": "red",
    "needs_auth": "red",
    "disabled": "red",
}
"""of cells that are a status"""
TURNING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_ISO = TypeAdapter(timedelta)
"""a duration as the settings take it"""


def fail(message: str, code: int = 1) -> NoReturn:
    """End the command: 1 it failed, 2 it was called wrongly."""
    tell(f"error: {message}")
    raise typer.Exit(code)


def closed(error: PermissionError) -> str:
    """What to tell a user who is not the one of the service."""
    told = f"{error.filename} is closed to this user ({error.strerror})"
    return f"{told}: open it, or run this as the user of the service"


def confirm(question: str, *, yes: bool) -> None:
    """Go on if the user agrees, or if `yes` says so without a question.

    Raises:
        typer.Abort: the answer is no.
        typer.Exit: no answer came, as from a script: with code 2, after naming `--yes`.
    """
    if yes:
        return
    try:
        agreed = typer.confirm(question, err=True)  # noqa: TID251 # all others call `confirm`
    except typer.Abort as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        if sys.stdin.isatty():
            raise
        tell("")  # which ends the line of the question
        fail("nobody answered; call it with --yes to go on", code=2)
    if not agreed:
        raise typer.Abort


def tell(message: str) -> None:
    """A remark for people, on standard error."""
    typer.echo(harmless(message), err=True)


@contextmanager
def if_stopped(told: str) -> Generator[None]:
    """Say what has become of the work inside, if Ctrl-C or another signal ends it."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        tell(f"stopped: {told}")
        raise


def speaks_unicode(stream: TextIO) -> bool:
    """Whether each character can be written to it. Its encoding is that of the user's locale; a
    stream in memory has none."""
    return (stream.encoding or "utf-8").lower().startswith("utf")


def echo_json(value: object) -> None:
    """One JSON value; spread over lines on a terminal, one line elsewhere."""
    indent = 2 if sys.stdout.isatty() else None
    # Lone surrogates, of file names that are no UTF-8, cannot be printed as they are.
    text = json.dumps(value, ensure_ascii=not speaks_unicode(sys.stdout), indent=indent)
    typer.echo(text.encode("utf-8", "replace").decode())


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Aligned columns under a heading, one row a line, nothing cut off."""
    lines = [[one_line(cell) for cell in row] for row in [columns, *rows]]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    plain = console().no_color  # what NO_COLOR asks for
    for number, line in enumerate(lines):
        ends = [" " * (width - cell_len(cell)) for cell, width in zip(line, widths, strict=True)]
        cells = line if number == 0 or plain else [_coloured(cell) for cell in line]
        padded = (cell + end for cell, end in zip(cells, ends, strict=True))
        shown = GAP.join(padded).rstrip()
        typer.echo(typer.style(shown, bold=True) if number == 0 else shown)


def _coloured(cell: str) -> str:
    """A status as people see it on a terminal; elsewhere colours are left away."""
    colour = COLOURS.get(cell.partition(" (")[0])
    return cell if colour is None else typer.style(cell, fg=colour)


def console(*, err: bool = False) -> Console:
    """For progress and for marked words; without a terminal it prints plain text."""
    return Console(stderr=err, highlight=False, markup=False, emoji=False)


def working(what: str) -> Status:
    """Shows on a terminal, while it is entered, that something is done that may take minutes."""
    return console(err=True).status(f"{what} …")


def harmless(text: str) -> str:
    """Text without control characters, those of the direction of writing included: they would turn
    round what stands after the text, too. Tabs and line ends stay."""
    return "".join(
        c
        if c in "\n\t" or (unicodedata.category(c) not in ("Cc", "Cs") and c not in TURNING)
        else "�"
        for c in text.replace("\r\n", "\n")
    )


def one_line(text: str) -> str:
    return " ".join(harmless(text).split())


def counted(number: int, noun: str, nouns: str | None = None) -> str:
    """`1 file`, `3 files`; `nouns` are several where it is not `noun` with an s."""
    return f"{number} {noun if number == 1 else nouns or noun + 's'}"


def age(moment: datetime, now: datetime) -> str:
    """`3 min`: how long ago, in the largest unit."""
    return span((now - moment).total_seconds())


def span(seconds: float) -> str:
    """`3 min`: in the largest unit."""
    seconds = max(0.0, seconds)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"


def shown(value: object) -> str:
    """A value in a cell of a table."""
    if value is None:
        return ""
    if isinstance(value, timedelta):
        return _ISO.dump_python(value, mode="json")
    if isinstance(value, list):
        return ", ".join(str(part) for part in value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return str(value)
