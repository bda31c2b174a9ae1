"""Files within an OpenDocument: charts with their titles and tables, sheets and formulas.

OpenDocument 1.3 part 3, 10.4.6 (`draw:object`) and 11 (charts).
"""

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import unquote

from recollect.errors import Permanent
from recollect.extract import _xml
from recollect.extract._text import clean_line
from recollect.extract._zip import Package
from recollect.extract.office import _equations, _slides

_TITLES = frozenset({"title", "subtitle"})
_MOST_CELLS = 100_000
_WIDEST = 100
"""how often a cell that is repeated is told"""


class InnerFile(NamedTuple):
    formula: str = ""
    titles: Sequence[str] = ()
    tables: Sequence[Sequence[Sequence[str]]] = ()

    def blocks(self) -> list[str]:
        """As Markdown."""
        tables = [block for rows in self.tables for block in _slides.table(rows)]
        return [text for text in (self.formula, "; ".join(self.titles), *tables) if text]


_NOTHING = InnerFile()


class Objects:
    """Those of a document, each told once; none that is damaged."""

    def __init__(self, package: Package) -> None:
        self._package = package
        self._read: set[str] = set()

    def told(self, address: str) -> InnerFile:
        """Of nothing else than files within it."""
        part = posixpath.normpath(posixpath.join(unquote(address), "content.xml"))
        if not address or part in self._read or part not in self._package.names:
            return _NOTHING
        self._read.add(part)
        try:
            source = self._package.read(part)
            if _equations.is_formula(source):
                return InnerFile(_equations.latex(source, block=True))
            return _Object(source).told()
        except Permanent:
            return _NOTHING


class _Object:
    def __init__(self, source: bytes) -> None:
        self._titles: list[str] = []
        self._tables: list[list[list[str]]] = []
        self._words: list[str] = []
        self._repeated = 1
        self._cells = 0
        self._open = dict.fromkeys(("title", "cell", "p", "annotation"), 0)
        _xml.parse([source], self._start, self._end, self._text)

    def told(self) -> InnerFile:
        return InnerFile("", self._titles, self._tables)

    def _start(self, tag: str, attributes: Mapping[str, str]) -> None:
        if tag in _TITLES:
            self._open["title"] += 1
        elif tag == "table":
            self._tables.append([])
        elif tag == "table-row" and self._tables:
            self._tables[-1].append([])
        elif tag in ("table-cell", "covered-table-cell"):
            self._open["cell"] += 1
            count = attributes.get("number-columns-repeated", "1")
            self._repeated = min(int(count), _WIDEST) if re.fullmatch(r"\d{1,4}", count) else 1
        elif tag in self._open:
            self._open[tag] += 1
            self._words.append(" ")
        elif tag in ("s", "tab", "line-break"):
            self._text(" ")

    def _end(self, tag: str) -> None:
        if tag in _TITLES:
            self._open["title"] -= 1
            self._titles += filter(None, [self._said()])
        elif tag in ("table-cell", "covered-table-cell"):
            self._open["cell"] -= 1
            self._end_cell(self._said())
        elif tag == "table" and self._tables:
            rows = [row[: max(_filled(row), default=0)] for row in self._tables[-1]]
            width = max(map(len, rows), default=0)
            self._tables[-1] = [[*row, *[""] * (width - len(row))] for row in rows if row]
        elif tag in self._open:
            self._open[tag] -= 1

    def _text(self, piece: str) -> None:
        shown = self._open["p"] and not self._open["annotation"]
        if shown and (self._open["title"] or self._open["cell"]):
            self._words.append(piece)

    def _said(self) -> str:
        said = clean_line("".join(self._words))
        self._words.clear()
        return said

    def _end_cell(self, said: str) -> None:
        said = "" if said == "NaN" else said
        self._cells += self._repeated
        if self._cells <= _MOST_CELLS and self._tables and self._tables[-1]:
            self._tables[-1][-1] += [said] * self._repeated


def _filled(row: Sequence[str]) -> list[int]:
    return [at for at, cell in enumerate(row, 1) if cell]
