"""CSV and TSV: each row as a line "header: value; …", so that a chunk makes sense alone."""

import csv
import functools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, islice

from recollect.extract._text import decode
from recollect.extract.office import _table
from recollect.model import Blob, Extracted

_DELIMITERS = ",;\t|"
_SAMPLE_LINES = 50
_MOST_ABOVE = 20
"""rows above a table"""
_ODD_SPACES = (
    "\t\v\f\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008"
    "\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
_ODD_IN_ASCII = 7
_LONGEST_LINE = 1_000_000
_LONGEST_FIELD = 1_000_000


def extract(blob: Blob) -> Extracted:
    text = decode(blob.data, blob.mime).replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")
    if _has_endless_line(text):
        warning = "A line is too long for a table; the file was read as plain text."
        return Extracted(text, warnings=[warning], markdown=False)
    delimiter, start = _declared_delimiter(text)
    if delimiter is None:
        delimiter = _find_delimiter(list(islice(_lines(text), _SAMPLE_LINES)), blob)
    warnings: list[str] = []
    table = _rows(text, start, delimiter, warnings)
    first = list(islice(table, _MOST_ABOVE + 2))
    above = first[: _count_above(first)]
    rows, places = _table.write(
        chain(
            ((row.number, "; ".join(row.texts)) for row in above),
            _table.lines(chain(first[len(above) :], table)),
        )
    )
    return Extracted(rows, warnings=warnings, places=places, markdown=False)


def _lines(text: str, start: int = 0) -> Iterator[str]:
    """Lines with their ends, without a copy of the whole as `io.StringIO` makes (4 bytes each)."""
    while start < len(text):
        end = text.find("\n", start) + 1 or len(text)
        yield text[start:end]
        start = end


def _count_above(rows: Sequence[_table.Row]) -> int:
    """How many rows stand above a table that fills twice as many columns. Most rows from its first
    one on are as wide as that: commas that no marks quote make a single row wider."""
    widths = [row.width for row in rows]
    tables = [
        (at, width)
        for at, width in enumerate(widths)
        if (same := widths[at:].count(width)) > 1 and same * 2 > len(widths) - at
    ]
    for number, row in enumerate(rows):
        if not any(at > number and width >= 2 * len(row.columns) for at, width in tables):
            return number
    return 0


def _has_endless_line(text: str) -> bool:
    start = 0
    while len(text) - start > _LONGEST_LINE:
        end = text.rfind("\n", start, start + _LONGEST_LINE)
        if end < 0:
            return True
        start = end + 1
    return False


def _declared_delimiter(text: str) -> tuple[str | None, int]:
    """Excel's own hint: a first line `sep=;`."""
    match = re.match(r"sep=([,;|\t])\n", text, re.IGNORECASE)
    return (match[1], match.end()) if match else (None, 0)


def _find_delimiter(sample: Sequence[str], blob: Blob) -> str:
    """The one that cuts most lines into the same number of cells; more cells break a tie."""
    if (blob.name or "").lower().endswith((".tsv", ".tab")):
        return "\t"

    def regularity(delimiter: str) -> tuple[float, int]:
        widths = [
            len(row)
            for row in csv.reader(sample, delimiter=delimiter, skipinitialspace=True)
            if row
        ]
        if not widths:
            return (0.0, 0)
        width, times = Counter(widths).most_common(1)[0]
        return (times / len(widths), width) if width > 1 else (0.0, 0)

    csv.field_size_limit(_LONGEST_FIELD)
    try:
        return max(_DELIMITERS, key=regularity)
    except csv.Error:
        return ","


def _rows(text: str, start: int, delimiter: str, warnings: list[str]) -> Iterator[_table.Row]:
    """Where a cell has no end, the quotation mark at its beginning is but a sign, and so are those
    after it; a warning says so."""
    csv.field_size_limit(_LONGEST_FIELD)
    is_tidy = _is_tidy(text, delimiter)
    # No text has a zero: at the end of a cell it tells that nothing closed this one.
    source = chain(_lines(text, start), "\0")
    reader = csv.reader(source, delimiter=delimiter, skipinitialspace=True)
    number = lines = 0
    while True:
        try:
            row = next(reader, ["\0"])
        except csv.Error:  # the cell is too long, which no line is
            if warnings:
                raise
            row = ["", "\0"]
        if row and row[-1].endswith("\0"):
            if len(row) == 1 and len(row[0]) == 1:
                return
            start += sum(map(len, islice(_lines(text, start), lines)))
            reader = csv.reader(
                chain(_lines(text, start), "\0"), delimiter=delimiter, quoting=csv.QUOTE_NONE
            )
            lines = 0
            warnings.append(
                "A quotation mark in it is never closed; from there on all were read as signs."
            )
            continue
        number += 1
        # A row of several lines has their ends in its cells.
        if not is_tidy or reader.line_num > lines + 1:
            texts = [" ".join(cell.split()) for cell in row]
        else:
            texts = row
        lines = reader.line_num
        columns = range(len(texts))
        if "" in texts:
            columns = [at for at, value in enumerate(texts) if value]
            texts = [value for value in texts if value]
        if columns:
            yield _table.Row(number, columns, texts, len(row))


def _is_tidy(text: str, delimiter: str) -> bool:
    """Whether no cell can have spaces around it, or any but single ones in it: then none needs a
    look of its own, for which most of the time went."""
    signs = text.encode("utf-8", "surrogatepass").translate(_edges(delimiter))
    # In quotes a cell may hold what else ends it.
    odd = _ODD_SPACES[:_ODD_IN_ASCII] if text.isascii() else _ODD_SPACES
    return not (
        text.startswith(" ")
        or text.endswith(" ")
        or any(edge in signs for edge in (b" |", b"| ", b"  "))
        or any(space in text for space in odd if space != delimiter or '"' in text)
    )


@functools.cache
def _edges(delimiter: str) -> bytes:
    """A bar for what ends a cell, a space, and the same for all else."""
    ends = f'{delimiter}\n"'.encode()
    return bytes(
        ord("|") if byte in ends else byte if byte == ord(" ") else ord("a") for byte in range(256)
    )
