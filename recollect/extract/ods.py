"""ODS: each sheet under its name, each row by itself with its headers; cells as they are shown."""

from collections.abc import Iterator, Mapping

from recollect.extract import _odf, _table, _xml, _zip
from recollect.extract._text import TEXT_BYTES
from recollect.model import Blob, Extracted

TYPES = frozenset({_zip.ODS, ".ods"})


def sniff(head: bytes) -> bool | None:
    return _zip.sniff(head, _zip.ODS)


def extract(blob: Blob) -> Extracted:
    package = _odf.open_package(blob.data)
    budget = _table.Budget()
    spreadsheet = _Spreadsheet(budget)
    text, places = _table.write_sheets(spreadsheet.read(package.pieces("content.xml")))
    return Extracted(
        text,
        title=_odf.title(package),
        warnings=[*_table.hidden_sheets(spreadsheet.hidden), *budget.warnings()],
        places=places,
    )


class _Spreadsheet:
    """Reads the sheets of a content.xml (OpenDocument 1.3 part 3, 9)."""

    def __init__(self, budget: _table.Budget) -> None:
        self.hidden: list[str] = []
        self._budget = budget
        self._invisible: set[str] = set()
        self._style = ""
        self._sheets: list[_table.Sheet] = []
        self._rows: list[_table.Row] = []
        self._row = 0
        self._repeated = 1
        self._cells: list[tuple[int, str]] = []
        self._column = 0
        self._cell: Mapping[str, str] = {}
        self._words: list[str] = []
        self._depth = 0
        """how deep inside of a cell's shown text; notes do not count"""
        self._note = False

    def read(self, pieces: Iterator[bytes]) -> Iterator[_table.Sheet]:
        for _ in _xml.steps(pieces, self._start, self._end, self._text):
            # A sheet is known as a whole only at its end, and needs its header first.
            yield from self._sheets
            self._sheets.clear()
        yield from self._sheets

    def _start(self, tag: str, attributes: Mapping[str, str]) -> None:
        match tag:
            case "style":
                self._style = attributes.get("name", "")
            case "table-properties" if attributes.get("display") == "false":
                self._invisible.add(self._style)
            case "table":
                self._name, self._rows, self._row = attributes.get("name", ""), [], 1
                if attributes.get("style-name") in self._invisible:
                    self.hidden.append(self._name)
            case "table-row":
                self._repeated = _count(attributes.get("number-rows-repeated"))
                self._cells, self._column = [], 0
            case "table-cell" | "covered-table-cell":
                self._cell = attributes
                self._words.clear()
            case "annotation":
                self._note = True
            case "p" if not self._note:
                self._depth += 1
                self._words.append(" ")
            case "s" | "tab" | "line-break":
                self._text(" ")
            case _:
                pass

    def _end(self, tag: str) -> None:
        match tag:
            case "p" if not self._note:
                self._depth -= 1
            case "annotation":
                self._note = False
            case "table-cell" | "covered-table-cell":
                count = _count(self._cell.get("number-columns-repeated"))
                if text := self._shown():
                    # What is repeated thousands of times fills a page with colour, not with data.
                    for column in range(self._column, self._column + min(count, 1_000)):
                        self._cells.append((column, text))
                self._column += count
            case "table-row":
                self._end_row()
            case "table":
                self._sheets.append(_table.Sheet(self._name, self._rows))
            case _:
                pass

    def _text(self, piece: str) -> None:
        if self._depth and not self._note:
            self._words.append(piece)

    def _shown(self) -> str:
        kind = self._cell.get("value-type")
        if kind == "date" and (date := self._cell.get("date-value")):
            return date.replace("T00:00:00", "").replace("T", " ")
        shown = " ".join("".join(self._words).split())
        formula = self._cell.get("formula", "").removeprefix("of:")
        return shown or self._cell.get("value") or formula

    def _end_row(self) -> None:
        if self._cells:
            width = self._cells[-1][0] - self._cells[0][0] + 1
            for number in range(self._row, self._row + self._repeated):
                if not self._budget.admits(len(self._cells)):
                    break
                self._rows.append(_table.Row(number, self._cells, width))
        self._row += self._repeated


def _count(text: str | None) -> int:
    try:
        return min(max(1, int(text or 1)), TEXT_BYTES)
    except ValueError:
        return 1
