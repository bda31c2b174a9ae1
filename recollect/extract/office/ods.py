"""ODS: each sheet under its name, each row by itself with its headers; cells as they are shown."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from recollect.extract import _xml
from recollect.extract._numerals import numeral
from recollect.extract._text import TEXT_BYTES
from recollect.extract.office import _odf, _odf_objects, _table
from recollect.model import Blob, Extracted

_ASIDES = frozenset(
    {
        "annotation", "caption", "circle", "connector", "custom-shape", "ellipse", "frame", "line",
        "path", "polygon", "polyline", "rect", "regular-polygon",
    }
)  # fmt: skip
_TAGS = _xml.Tags(
    *("style", "table-properties", "table", "table-row", "table-cell", "covered-table-cell"),
    *("p", "s", "tab", "line-break", "document-content", "object", *_ASIDES),
)
_USUAL = {
    f"xmlns:{prefix}": f"urn:oasis:names:tc:opendocument:xmlns:{prefix}:1.0"
    for prefix in ("office", "table")
}


class _Names(NamedTuple):
    """What the attributes of a cell are called."""

    value_type: str = "value-type"
    date: str = "date-value"
    value: str = "value"
    boolean: str = "boolean-value"
    time: str = "time-value"
    string: str = "string-value"
    formula: str = "formula"
    repeated: str = "number-columns-repeated"


_PLAIN = _Names()
_WRITTEN = _Names(
    "office:value-type",
    "office:date-value",
    "office:value",
    "office:boolean-value",
    "office:time-value",
    "office:string-value",
    "table:formula",
    "table:number-columns-repeated",
)
"""with the prefixes that the standard itself has, which saves a look at each attribute of a cell"""


def extract(blob: Blob) -> Extracted:
    package = _odf.open_package(blob.data)
    budget = _table.SheetBudget()
    spreadsheet = _Spreadsheet(budget, _odf_objects.Objects(package))
    text, places = _table.write_sheets(spreadsheet.read(package.pieces("content.xml")))
    return Extracted(
        text,
        title=_odf.title(package),
        warnings=[*_table.hidden_sheets(spreadsheet.hidden), *budget.warnings()],
        places=places,
    )


class _Spreadsheet:
    """Reads the sheets of a content.xml (OpenDocument 1.3 part 3, 9)."""

    def __init__(self, budget: _table.SheetBudget, objects: _odf_objects.Objects) -> None:
        self.hidden: list[str] = []
        self._budget, self._objects = budget, objects
        self._invisible: set[str] = set()
        self._style = ""
        self._sheets: list[_table.Sheet] = []
        self._rows: list[_table.Row] = []
        self._row = 0
        self._repeated = 1
        self._columns: list[int] = []
        self._texts: list[str] = []
        self._column = 0
        self._names = _PLAIN
        self._cell: Mapping[str, str] = {}
        self._words: list[str] = []
        self._depth = 0
        """how deep inside of a cell's shown text; what is beside does not count"""
        self._asides = 0
        """open remarks and shapes"""
        self._paragraphs = 0
        """open ones in them"""
        self._said: list[str] = []
        self._besides: list[str] = []

    def read(self, pieces: Iterator[bytes]) -> Iterator[_table.Sheet]:
        for _ in _xml.written(pieces, self._start, self._end, self._text):
            # A sheet is known as a whole only at its end, and needs its header first.
            yield from self._sheets
            self._sheets.clear()
        yield from self._sheets

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        match _TAGS[name]:
            case "table-cell" | "covered-table-cell":
                usual = self._names is _WRITTEN
                self._cell = attributes if usual else _xml.plain(attributes)
                self._words.clear()
            case "p" if not self._asides:
                self._depth += 1
                self._words.append(" ")
            case "p":
                self._paragraphs += 1
            case "table-row":
                self._repeated = _count(_xml.plain(attributes).get("number-rows-repeated"))
                self._columns, self._texts, self._column = [], [], 0
            case "table":
                self._start_sheet(_xml.plain(attributes))
            case "style":
                self._style = _xml.plain(attributes).get("name", "")
            case "table-properties":
                if _xml.plain(attributes).get("display") == "false":
                    self._invisible.add(self._style)
            case "document-content":
                usual = all(attributes.get(name) == space for name, space in _USUAL.items())
                self._names = _WRITTEN if usual else _PLAIN
            case tag:
                self._start_other(tag, attributes)

    def _start_other(self, tag: str, attributes: Mapping[str, str]) -> None:
        if tag in _ASIDES:
            self._asides += 1
        elif tag in ("s", "tab", "line-break"):
            self._text(" ")
        elif tag == "object" and (
            told := self._objects.told(_xml.plain(attributes).get("href", ""))
        ):
            # What a chart shows stands in cells.
            self._besides += filter(None, [told.formula, "; ".join(told.titles)])

    def _start_sheet(self, attributes: Mapping[str, str]) -> None:
        self._name, self._rows, self._row = attributes.get("name", ""), [], 1
        self._besides = []
        if attributes.get("style-name") in self._invisible:
            self.hidden.append(self._name)

    def _end(self, name: str) -> None:
        match _TAGS[name]:
            case "p" if not self._asides:
                self._depth -= 1
            case "p":
                self._paragraphs -= 1
                self._said.append(" ")
            case "table-cell" | "covered-table-cell":
                self._end_cell()
            case "table-row":
                self._end_row()
            case "table":
                self._sheets.append(_table.Sheet(self._name, self._rows, self._besides))
            case tag if tag in _ASIDES:
                self._end_aside(tag)
            case _:
                pass

    def _text(self, piece: str) -> None:
        if self._paragraphs:
            self._said.append(piece)
        elif self._depth and not self._asides:
            self._words.append(piece)

    def _end_aside(self, tag: str) -> None:
        self._asides -= 1
        said = " ".join("".join(self._said).split())
        self._said.clear()
        if said and tag == "annotation":
            cell = f"{numeral(self._column + 1, 'upperAlpha')}{self._row}"
            self._besides.append(f"{cell}: {said}")
        elif said:
            self._besides.append(said)

    def _end_cell(self) -> None:
        text = self._shown()
        repeated = self._cell.get(self._names.repeated)
        if repeated is None:
            if text:
                self._columns.append(self._column)
                self._texts.append(text)
            self._column += 1
            return
        count = _count(repeated)
        if text:
            # What is repeated thousands of times fills a page with colour, not with data.
            times = min(count, 1_000)
            self._columns += range(self._column, self._column + times)
            self._texts += [text] * times
        self._column += count

    def _shown(self) -> str:
        cell, names = self._cell, self._names
        if cell.get(names.value_type) == "date" and (date := cell.get(names.date)):
            return date.replace("T00:00:00", "").replace("T", " ")
        if shown := " ".join("".join(self._words).split()):
            return shown
        values = (names.value, names.boolean, names.string, names.time)
        saved = next((value for name in values if (value := cell.get(name))), "")
        return saved or cell.get(names.formula, "").removeprefix("of:")

    def _end_row(self) -> None:
        columns = self._columns
        if columns:
            width = columns[-1] - columns[0] + 1
            for number in range(self._row, self._row + self._repeated):
                if not self._budget.admits(len(columns)):
                    break
                self._rows.append(_table.Row(number, columns, self._texts, width))
        self._row += self._repeated


def _count(text: str | None) -> int:
    try:
        return min(max(1, int(text or 1)), TEXT_BYTES)
    except ValueError:
        return 1
