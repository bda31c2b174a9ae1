"""Workbooks in XML as Excel 2003 writes them, and many programs that export files called .xls.

https://learn.microsoft.com/previous-versions/office/developer/office-xp/aa140066(v=office.10)
"""

from collections.abc import Mapping

from recollect.extract import _xml
from recollect.extract._text import clean_line
from recollect.extract.office import _table, xlsx
from recollect.extract.text import xml
from recollect.model import Extracted

_MOST_COLUMNS = 16_384
_MOST_ROWS = 1 << 40
_NAMED = {
    "Percent": "0%",
    **dict.fromkeys(("General Number", "Currency", "Fixed", "Standard", "Scientific"), "General"),
}
"""formats by names of their own"""


def read(data: bytes) -> Extracted:
    """Raises Permanent for broken XML."""
    reading = _Reading()
    for _ in _xml.steps(xml.pieces(data), reading.start, reading.end, reading.text):
        if reading.budget.spent:
            break
    text, places = _table.write_sheets(reading.sheets)
    warnings = [*_table.hidden_sheets(reading.hidden), *reading.budget.warnings()]
    return Extracted(text, title=reading.title, warnings=warnings, places=places)


def _number(text: str | None, other: int, most: int) -> int:
    return min(int(text), most) if text and text.isascii() and text.isdigit() else other


class _Reading:
    """What a parser calls. Rows and columns count from 1 in the file."""

    def __init__(self) -> None:
        self.title: str | None = None
        self.sheets: list[_table.Sheet] = []
        self.hidden: list[str] = []
        self.budget = _table.SheetBudget()
        self._rows: list[_table.Row] = []
        self._remarks: list[str] = []
        self._formats: dict[str, str] = {}
        self._path = [""]
        self._words: list[str] | None = None
        self._style = self._type = ""
        self._row = self._next_row = 0
        self._column = self._next_column = 0
        self._cells: dict[int, str] = {}

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        match tag:
            case "Style":
                self._style = attributes.get("ID", "")
            case "NumberFormat":
                self._formats[self._style] = attributes.get("Format", "")
            case "Worksheet":
                self._rows, self._remarks, self._next_row = [], [], 1
                self.sheets.append(
                    _table.Sheet(attributes.get("Name", ""), self._rows, self._remarks)
                )
            case "Row":
                self._row = _number(attributes.get("Index"), self._next_row, _MOST_ROWS)
                self._next_row = self._row + 1 + _number(attributes.get("Span"), 0, _MOST_ROWS)
                self._next_column = 1
                self._cells = {}
            case "Cell":
                self._column = _number(attributes.get("Index"), self._next_column, _MOST_COLUMNS)
                merged = _number(attributes.get("MergeAcross"), 0, _MOST_COLUMNS)
                self._next_column = self._column + 1 + merged
                self._style = attributes.get("StyleID", "")
            case "Data" | "Title" | "Visible":
                self._type = attributes.get("Type", "")
                self._words = []
            case _:
                pass
        self._path.append(tag)

    def text(self, piece: str) -> None:
        if self._words is not None:
            self._words.append(piece)

    def end(self, tag: str) -> None:
        self._path.pop()
        if tag == "Row" and self.budget.admits(len(self._cells)) and self._cells:
            columns = sorted(self._cells)
            texts = [self._cells[column] for column in columns]
            width = columns[-1] - columns[0] + 1
            self._rows.append(_table.Row(self._row, [at - 1 for at in columns], texts, width))
        if tag not in ("Data", "Title", "Visible") or self._words is None:
            return
        said = " ".join("".join(self._words).split())
        self._words = None
        match self._path[-1]:
            case "Cell" if said:
                self._cells[self._column] = self._shown(said)
            case "Comment" if said:
                self._remarks.append(said)
            case "DocumentProperties" if tag == "Title":
                self.title = clean_line(said) or None
            case "WorksheetOptions" if said != "SheetVisible" and self.sheets:
                self.hidden.append(self.sheets[-1].name)
            case _:
                pass

    def _shown(self, value: str) -> str:
        if self._type == "Boolean":
            return "TRUE" if value == "1" else "FALSE"
        if self._type == "DateTime":
            return xlsx.moment_text(value)
        code = self._formats.get(self._style) or self._formats.get("Default", "")
        # More digits than a double holds are kept as they are written.
        if self._type != "Number" or (value.isdigit() and code in ("", "General")):
            return value
        try:
            return xlsx.shown(float(value), _NAMED.get(code, code), from_1904=False)
        except ValueError:
            return value
