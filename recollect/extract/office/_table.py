"""Rows of a table as lines "header: value; …", so that a chunk makes sense alone."""

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import add
from typing import NamedTuple

from recollect.extract._places import Places
from recollect.extract._text import TEXT_BYTES, clean_line

MAX_CELLS = 1_000_000
MAX_ROWS = 1_048_576
"""Of a spreadsheet, over all sheets; a CSV file may have more."""

_TITLE_ROWS = 20
_DIFFERENT = 0.75
"""Banks give each amount a column "currency" of its own."""
_NUMBER = re.compile(r"[-+(]?[$€£]?\s?\d[\d.,' ]*\s?[%€$£)]?$|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}\b")
_YEAR = re.compile(r"(?:19|20)\d\d$")


class Row(NamedTuple):
    """The cells of a row that hold something: their columns (from 0), their texts in one line."""

    number: int
    """as the original counts, from 1"""
    columns: Sequence[int]
    texts: Sequence[str]
    """as many"""
    width: int
    """columns that it spans, empty ones included"""


class Sheet(NamedTuple):
    name: str
    rows: Iterable[Row]
    besides: Iterable[str] = ()
    """lines that are in no cell: boxes, titles of charts, remarks; looked at after the rows"""


def lines(rows: Iterable[Row], *, titles: int = 0) -> Iterator[tuple[int, str]]:
    """Number and line of each row but the header, which is the first row or follows up to
    `titles` rows that stand above the table. Headers of empty columns share a line at the end."""
    remaining = iter(rows)
    first = list(islice(remaining, titles + 2))
    header = _find_header(first, titles)
    names = (
        {} if header is None else dict(zip(first[header].columns, first[header].texts, strict=True))
    )
    ahead = _Headers({at: f"{name}: " for at, name in names.items()}).__getitem__
    unused = set(names)
    for row in first[: header or 0]:
        yield row.number, "; ".join(row.texts)
    for row in chain(first if header is None else first[header + 1 :], remaining):
        if titles and len(row.columns) == 1 and row.columns[0] not in names:
            yield row.number, row.texts[0]  # a note below or beside the table
        else:
            yield row.number, "; ".join(map(add, map(ahead, row.columns), row.texts))
        if unused:
            unused.difference_update(row.columns)
    if header is not None and unused:
        without = "; ".join(names[at] for at in sorted(unused))
        yield first[header].number, f"without values: {without}"


class _Headers(dict[int, str]):
    """What stands ahead of a cell by its column; one without a header has a number."""

    def __missing__(self, at: int) -> str:
        return f"column {at + 1}: "


def _find_header(rows: Sequence[Row], titles: int) -> int | None:
    """Titles and notes above a table fill fewer columns than it does."""
    width = max((len(row.columns) for row in rows), default=0)
    for number, row in enumerate(rows[: titles + 1]):
        if number == len(rows) - 1:
            return None
        if not titles or len(row.columns) * 2 > width:
            return number if _is_header(row) else None
    return None


def _is_header(row: Row) -> bool:
    """A row names columns if nearly all its cells differ and none is a number or a date.

    Years may head columns of figures.
    """
    named = row.texts
    if len(named) * 2 < row.width or len(set(named)) < _DIFFERENT * len(named):
        return False
    values = [text for text in named if _NUMBER.match(text)]
    return len(values) < len(named) and all(_YEAR.match(text) for text in values)


def write(rows: Iterable[tuple[int, str]]) -> tuple[str, Places]:
    """One table as a text, with a place for each line.

    No more of it than the sandbox hands on anyway, so that a huge file takes bounded memory.
    """
    starts, numbers = array("I"), array("q")
    written: list[str] = []
    size = 0
    for number, line in rows:
        starts.append(size)
        numbers.append(number)
        written.append(line)
        size += len(line) + 1
        if size > TEXT_BYTES:
            break
    places = Places()
    places.add_all({}, "row", starts, numbers)
    return "\n".join(written), places


def write_sheets(sheets: Iterable[Sheet]) -> tuple[str, Places]:
    """Sheets with their names as headings; those without any row are left out."""
    places = Places()
    written: list[str] = []
    size = 0
    for sheet in sheets:
        name = clean_line(sheet.name)
        heading = ("\n" if size else "") + f"## {name}\n"
        starts, numbers = array("I"), array("q")
        besides: int | None = None
        rows = lines(sheet.rows, titles=_TITLE_ROWS)
        for number, line in chain(rows, ((0, line) for line in sheet.besides)):
            if heading:
                places.add(size, {"sheet": name})
                written.append(heading)
                size += len(heading) + 1
                heading = ""
            if number:
                starts.append(size)
                numbers.append(number)
            elif besides is None:
                besides = size
            written.append(line)
            size += len(line) + 1
            if size > TEXT_BYTES:
                break
        places.add_all({"sheet": name}, "row", starts, numbers)
        if besides is not None:
            places.add(besides, {"sheet": name})
        if size > TEXT_BYTES:
            break
    return "\n".join(written), places


class SheetBudget:
    """What one spreadsheet may hold; the rest is left out, with a warning."""

    def __init__(self) -> None:
        self._cells = MAX_CELLS
        self._rows = MAX_ROWS
        self.spent = False

    def admits(self, cells: int) -> bool:
        """Whether one more row with so many cells is read."""
        self._cells -= cells
        self._rows -= 1
        self.spent = self.spent or self._cells < 0 or self._rows < 0
        return not self.spent

    def warnings(self) -> list[str]:
        if not self.spent:
            return []
        return [f"Only the first {MAX_CELLS:,} cells or {MAX_ROWS:,} rows of it were read."]


def hidden_sheets(names: Sequence[str]) -> list[str]:
    """A warning about sheets that a reader does not see."""
    if not names:
        return []
    shown = ", ".join(f'"{name}"' for name in names[:10]) + (" …" if len(names) > 10 else "")
    return [
        f"The sheet {shown} is hidden in the file; its rows were read as well."
        if len(names) == 1
        else f"The sheets {shown} are hidden in the file; their rows were read as well."
    ]


def column_number(letters: str) -> int:
    """Of a column called `A`, `AB` …, from 0."""
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - 64
    return number - 1


def number_text(value: float) -> str:
    """As a spreadsheet shows it: 15 digits at most, so that 0.1 + 0.2 is 0.3."""
    return str(int(value)) if value == int(value) and abs(value) < 1 << 53 else f"{value:.15g}"
