"""XLSX: each sheet under its name, each row by itself with its headers; formulas as their values.

Parts are read as a stream: what a sheet says of its own size does not count.
"""

import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from recollect.errors import Permanent
from recollect.extract import _xml, _zip
from recollect.extract.office import _drawn, _ooxml, _table
from recollect.model import Blob, Extracted

_DATE, _TIME, _PERCENT = "date", "time", "percent"
# Formats that a file uses without describing them (ECMA-376 part 1, 18.8.30).
BUILT_IN = {
    **dict.fromkeys((9, 10), _PERCENT),
    **dict.fromkeys((*range(14, 23), *range(27, 37), *range(50, 59)), _DATE),
    **dict.fromkeys((*range(18, 22), 45), _TIME),
    46: "hours",
    47: f"{_TIME}.",
}
_ELAPSED = {"[h": "hours", "[m": "minutes", "[s": "seconds"}
"""formats of a length of time, by what they begin with: `[h]:mm` shows 37:30"""
_NOT_A_PATTERN = re.compile(
    r'"[^"]*"|\\.|_.|\*.|\[(?!(?:h+|m+|s+)\])[^\]]*\]|General', re.IGNORECASE
)

_CODE = re.compile(r"""(?:[-+() 0]|\\[^0-9#?]|"[^"0-9#?]*"|_.|\[[A-Z][a-z]+\]|(?!))*+(?=;|\Z)""")
"""The format of a number with leading zeros, such as `00000` or `000-00-0000`."""
_UNSHOWN = re.compile(r'_.|\[[^\]]*\]|["\\]')

_MIDNIGHT = re.compile(r"T00:00:00(?:\.0+)?Z?$|(?<=:\d\d)\.0+(?=Z?$)")

_LONGEST_CODE = 255
"""characters, of which Excel writes no more"""

_NO_DAY, _FIRST_YEAR = 60, 366
"""days; a time of day whose number is not beyond them is a sum of times, and has no date"""
_LONGEST = 1e9
"""days; a larger number under the format of a date or time stays a number"""

_TAGS = _xml.Tags("row", "c", "v", "t", "f", "rPh")


def extract(blob: Blob) -> Extracted:
    package = _ooxml.open_package(blob.data)
    book = _ooxml.main_part(package)
    workbook = _Workbook(package, book)
    budget = _table.SheetBudget()
    strings = _strings(package, _ooxml.related(package, book, "sharedStrings"))
    formats = _formats(package, _ooxml.related(package, book, "styles"))
    text, places = _table.write_sheets(
        _table.Sheet(
            name,
            _Rows(strings, formats, workbook.epoch, budget).read(package.pieces(part)),
            _besides(package, part),
        )
        for name, part in workbook.sheets
    )
    return Extracted(
        text,
        title=_ooxml.title(package),
        warnings=[*_table.hidden_sheets(workbook.hidden), *budget.warnings()],
        places=places,
    )


def shown(value: float, code: str, from_1904: bool) -> str:
    """A number under a format of Excel's. Raises ValueError for one that is not finite."""
    if not math.isfinite(value):
        raise ValueError(value)
    return value_text(value, format_of(code), epoch(from_1904))


def moment_text(value: str) -> str:
    """A date, or a moment, that is written as ISO 8601 has it."""
    return _MIDNIGHT.sub("", value).replace("T", " ")


def value_text(value: float, format: str | None, epoch: datetime) -> str:
    """A number as its cell shows it: a date, a time, a length of time, a percentage, the number."""
    if format == _PERCENT:
        return f"{value * 100:.10g}%"
    if format and "0" in format:
        return _masked(value, format)
    if format is None or abs(value) >= _LONGEST:
        return _table.number_text(value)
    kind = format.rstrip(".")
    is_elapsed = kind in _ELAPSED.values()
    parts = 10 ** (len(format) - len(kind))
    seconds, part = divmod(round((abs(value) if is_elapsed else value) * 86_400 * parts), parts)
    fraction = f".{part:0{len(str(parts)) - 1}}" if part else ""
    if is_elapsed:
        return ("-" if value < 0 else "") + _elapsed(seconds, kind, fraction)
    try:
        return _moment(seconds, kind, epoch, fraction)
    except OverflowError:
        return _table.number_text(value)


def _moment(seconds: int, kind: str, epoch: datetime, fraction: str) -> str:
    """Excel takes 1900 for a leap year: of its days before 1 March each is one later than by the
    epoch, and the 60th is not in the calendar."""
    days, rest = divmod(seconds, 86_400)
    from_1900 = epoch.year < 1900
    clock = (epoch + timedelta(seconds=rest)).time()
    if (days == 0 and from_1900) or (kind == _TIME and 0 <= days < _FIRST_YEAR):
        return clock.strftime("%H:%M:%S" if clock.second or fraction else "%H:%M") + fraction
    if from_1900 and days == _NO_DAY:
        day = "1900-02-29"
    else:
        early = from_1900 and 0 < days < _NO_DAY
        day = (epoch + timedelta(days=days + early)).date().isoformat()
    return f"{day} {clock.isoformat()}{fraction}" if rest or fraction else day


def _masked(value: float, mask: str) -> str:
    """A whole number in the places that the zeros of a format are; more digits go ahead."""
    places = mask.count("0")
    if not 0 <= value < 1e15 or value != int(value):
        return _table.number_text(value)
    digits = str(int(value)).rjust(places, "0")
    shown = iter(digits[len(digits) - places :])
    first, rest = mask.split("0", 1)
    filled = re.sub("0", lambda _: next(shown), f"0{rest}")
    return f"{first}{digits[: len(digits) - places]}{filled}".strip()


def _elapsed(seconds: int, unit: str, fraction: str) -> str:
    minutes, rest = divmod(seconds, 60)
    if unit == "seconds":
        return f"{seconds}{fraction}"
    if unit == "minutes":
        return f"{minutes}:{rest:02}{fraction}"
    shown = f"{minutes // 60}:{minutes % 60:02}"
    return f"{shown}:{rest:02}{fraction}" if rest or fraction else shown


@functools.lru_cache(100)
def format_of(code: str) -> str | None:
    """What a number format makes of a number: `date`, `time`, `hours`, `percent`, a mask with the
    zeros that lead (`000-00-0000`), or nothing special; a dot for each place of its seconds."""
    if len(code) > _LONGEST_CODE:
        return None
    pattern = _NOT_A_PATTERN.sub("", code).lower()
    fine = re.search(r"s\]?\.(0{1,3})", pattern)
    places = "." * len(fine[1]) if fine else ""
    if elapsed := re.search(r"\[[hms]", pattern):
        return _ELAPSED[elapsed[0]] + places
    if "%" in pattern:
        return _PERCENT
    if re.search("[dmyhs]", pattern):
        return (_DATE if re.search("[dyge]|mmm|^[^hs]*$", pattern) else _TIME) + places
    padded = _CODE.match(code)
    mask = _UNSHOWN.sub("", padded[0]) if padded else ""
    return mask if mask.count("0") > 1 else None


def epoch(from_1904: bool) -> datetime:
    # Of days from 1 March 1900 on.
    return datetime(1904, 1, 1) if from_1904 else datetime(1899, 12, 30)  # noqa: DTZ001 - has none


def _besides(package: _zip.Package, part: str) -> Iterator[str]:
    """The words of a sheet that are in no cell: those of boxes and charts, and remarks. What is
    damaged is left out."""
    with suppress(Permanent):
        if any("drawing" in name for name in package.names):
            yield from _drawing(package, _ooxml.related(package, part, "drawing"))
        if any("omment" in name for name in package.names):
            yield from _remarks(package, part)


def _drawing(package: _zip.Package, part: str | None) -> Iterator[str]:
    if part is None:
        return
    drawings = _drawn.Drawings(package, part, None)
    blocks: list[str] = []

    def sees(tag: str, values: Mapping[str, str]) -> None:
        if tag in ("chart", "relIds"):
            blocks.extend(drawings.blocks(values.get("id") or values.get("dm", "")))

    yield from _drawn.paragraphs(package, part, sees)
    yield from blocks


def _remarks(package: _zip.Package, part: str) -> Iterator[str]:
    """By cell. Of a thread each is in a part of its own, and all in one once more, for older
    programs."""
    told: list[tuple[str, str]] = []
    threads: set[str] = set()
    ref = ""
    words: list[str] = []
    inside = False

    def start(tag: str, values: Mapping[str, str]) -> None:
        nonlocal ref, inside
        if tag in ("comment", "threadedComment"):
            ref = values.get("ref", "")
        inside = tag in ("t", "text")

    def end(tag: str) -> None:
        nonlocal inside
        inside = False
        if tag == "text":
            if ref not in threads:
                told.append((ref, " ".join(_ooxml.unescaped("".join(words)).split())))
            words.clear()

    def text(piece: str) -> None:
        if inside:
            words.append(piece)

    for kind in ("threadedComment", "comments"):
        threads = {cell for cell, _ in told}
        if found := _ooxml.related(package, part, kind):
            _xml.parse(package.pieces(found), start, end, text)
    for cell, remark in told:
        if remark:
            yield f"{cell}: {remark}"


class _Workbook:
    """The sheets by name and part, in order."""

    def __init__(self, package: _zip.Package, part: str) -> None:
        self._relations = _ooxml.relations(package, part)
        self._parts = package.names
        self.sheets: list[tuple[str, str]] = []
        self.hidden: list[str] = []
        self.epoch = epoch(from_1904=False)
        _xml.parse(package.pieces(part), self._start)

    def _start(self, tag: str, attributes: Mapping[str, str]) -> None:
        if tag == "workbookPr" and attributes.get("date1904") in ("1", "true"):
            self.epoch = epoch(from_1904=True)
        if tag == "sheet" and (relation := self._relations.get(attributes.get("id", ""))):
            name = attributes.get("name", "")
            if relation.target in self._parts:
                self.sheets.append((name, relation.target))
                if attributes.get("state", "visible") != "visible":
                    self.hidden.append(name)


def _strings(package: _zip.Package, part: str | None) -> Sequence[str]:
    """The texts that cells refer to by number; without the reading aids of East Asian ones."""
    strings: list[str] = []
    words: list[str] = []
    inside = aid = False

    def start(tag: str, attributes: Mapping[str, str]) -> None:
        nonlocal inside, aid
        inside = tag == "t" and not aid
        aid = aid or tag == "rPh"

    def end(tag: str) -> None:
        nonlocal inside, aid
        inside = False
        if tag == "rPh":
            aid = False
        elif tag == "si":
            strings.append(" ".join(_ooxml.unescaped("".join(words)).split()))
            words.clear()

    def text(piece: str) -> None:
        if inside:
            words.append(piece)

    if part:
        _xml.parse(package.pieces(part), start, end, text)
    return strings


def _formats(package: _zip.Package, part: str | None) -> Sequence[str | None]:
    """What each style makes of a number."""
    formats: list[str | None] = []
    known: dict[int, str | None] = dict(BUILT_IN)
    in_cells = False

    def start(tag: str, attributes: Mapping[str, str]) -> None:
        nonlocal in_cells
        if tag == "numFmt":
            known[_number(attributes.get("numFmtId"))] = format_of(attributes.get("formatCode", ""))
        elif tag == "cellXfs":
            in_cells = True
        elif tag == "xf" and in_cells:
            formats.append(known.get(_number(attributes.get("numFmtId"))))

    def end(tag: str) -> None:
        nonlocal in_cells
        if tag == "cellXfs":
            in_cells = False

    if part:
        _xml.parse(package.pieces(part), start, end)
    return formats


class _Rows:
    """Reads the rows of one sheet."""

    def __init__(
        self,
        strings: Sequence[str],
        formats: Sequence[str | None],
        epoch: datetime,
        budget: _table.SheetBudget,
    ) -> None:
        self._strings, self._formats, self._epoch = strings, formats, epoch
        self._budget = budget
        self._ready: list[_table.Row] = []
        self._row = 0
        self._columns: list[int] = []
        self._texts: list[str] = []
        self._column = -1
        self._type = self._style = ""
        self._value: list[str] = []
        self._formula: list[str] = []
        self._sink: list[str] | None = None
        self._aid = False

    def read(self, pieces: Iterator[bytes]) -> Iterator[_table.Row]:
        for _ in _xml.written(pieces, self._start, self._end, self._text):
            yield from self._ready
            self._ready.clear()
            if self._budget.spent:
                return

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        tag = _TAGS[name]
        if tag == "c":
            # None of a cell's has a prefix (ECMA-376 part 1, 18.3.1.4).
            reference = attributes.get("r", "").rstrip("0123456789")
            self._column = _column(reference) if reference else self._column + 1
            self._type, self._style = attributes.get("t", "n"), attributes.get("s", "")
            self._value.clear()
            self._formula.clear()
        elif tag in ("v", "t"):
            self._sink = None if self._aid else self._value
        elif tag == "f":
            self._sink = self._formula
        elif tag == "rPh":
            self._aid = True
        elif tag == "row":
            self._row = _number(attributes.get("r")) or self._row + 1
            self._column = -1

    def _end(self, name: str) -> None:
        tag = _TAGS[name]
        self._sink = None
        if tag == "c":
            if text := self._cell():
                self._columns.append(self._column)
                self._texts.append(text)
        elif tag == "row":
            columns = self._columns
            if self._budget.admits(len(columns)) and columns:
                width = columns[-1] - columns[0] + 1
                self._ready.append(_table.Row(self._row, columns, self._texts, width))
            self._columns, self._texts = [], []
        elif tag == "rPh":
            self._aid = False

    def _text(self, piece: str) -> None:
        if self._sink is not None:
            self._sink.append(piece)

    def _cell(self) -> str:
        value = "".join(self._value)
        if not value:
            return f"={' '.join(''.join(self._formula).split())}" if self._formula else ""
        if self._type == "s":
            number = _number(value)
            return self._strings[number] if 0 <= number < len(self._strings) else ""
        if self._type == "b":
            return "TRUE" if value == "1" else "FALSE"
        if self._type == "d":
            return moment_text(value)
        if self._type != "n":
            return " ".join(_ooxml.unescaped(value).split())
        try:
            number = float(value)
        except ValueError:
            return " ".join(value.split())
        if not math.isfinite(number):  # some programs write NaN
            return value.strip()
        style = _number(self._style)
        format = self._formats[style] if 0 <= style < len(self._formats) else None
        # More digits than a double holds are kept as they are written.
        return (
            value if format is None and value.isdigit() else value_text(number, format, self._epoch)
        )


_columns: dict[str, int] = {}


def _column(letters: str) -> int:
    if (number := _columns.get(letters)) is None:
        number = _columns[letters] = _table.column_number(letters[:4].upper())
    return number


def _number(text: str | None) -> int:
    try:
        return int(text or 0)
    except ValueError:
        return 0
