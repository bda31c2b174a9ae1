"""XLS (Excel 5 to 2003): each sheet under its name, each row by itself with its headers.

Reads the records of MS-XLS that hold cells; formulas give the value that was saved with them.
"""

import math
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from recollect.errors import Permanent
from recollect.extract import _magic, _ole
from recollect.extract._numerals import numeral
from recollect.extract._registry import HEAD
from recollect.extract.office import _excel_xml, _table, xlsx
from recollect.model import Blob, Extracted

_BOF, _EOF, _CONTINUE, _FILE_PASS = 0x809, 0x0A, 0x3C, 0x2F
_SHEET, _STRINGS, _FORMAT, _STYLE, _DATE_1904, _CODE_PAGE = 0x85, 0xFC, 0x41E, 0xE0, 0x22, 0x42
_SHARED, _LABEL, _RICH, _NUMBER, _RK, _MANY_RK, _FORMULA, _STRING, _BOOL = (
    0xFD, 0x204, 0xD6, 0x203, 0x27E, 0xBD, 0x06, 0x207, 0x205,
)  # fmt: skip
_NOTE, _OBJECT, _BOX = 0x1C, 0x5D, 0x1B6
_GOES_ON = 0xFFFF
"""row of the rest of a long remark of Excel 5"""
_VERSION_8 = 0x0600
_CELLS = (_SHARED, _LABEL, _RICH, _NUMBER, _RK, _FORMULA, _BOOL)
_NOT_CELLS = (1, 2, 6)
"""Kinds of sheet that hold a macro, a chart, a module (MS-XLS 2.4.28)."""
_ERRORS = {0: "#NULL!", 7: "#DIV/0!", 15: "#VALUE!", 23: "#REF!", 29: "#NAME?", 36: "#NUM!"}
_UNICODE = 1200


def extract(blob: Blob) -> Extracted:
    if _magic.is_excel_xml(blob.data[:HEAD]):
        return _excel_xml.read(blob.data)
    _ole.refuse_encrypted(blob.data)
    streams = _ole.Streams(blob.data)
    known = {name.lower(): name for name in streams.names}
    name = known.get("workbook") or known.get("book")
    if name is None:
        raise Permanent("it is damaged or not what it says (it holds no workbook)")
    data = streams.read(name)
    try:
        book = _read_book(data)
        budget = _table.SheetBudget()
        text, places = _table.write_sheets(
            _table.Sheet(name, _rows(data, start, book, budget), _besides(data, start, book))
            for name, start in book.sheets
        )
    except (struct.error, IndexError) as error:
        raise Permanent("it is damaged: a record of it is cut off") from error
    warnings = [*_table.hidden_sheets(book.hidden), *budget.warnings()]
    return Extracted(text, warnings=warnings, places=places)


@dataclass(slots=True)
class _Book:
    """What the workbook's first part says of all sheets."""

    version_8: bool
    encoding: str = "cp1252"
    from_1904: bool = False
    sheets: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    """name, and where its records begin"""
    hidden: list[str] = field(default_factory=list[str])
    strings: Sequence[str] = ()
    formats: dict[int, str | None] = field(default_factory=lambda: dict[int, str | None]())
    styles: list[int] = field(default_factory=list[int])
    """number format of each style"""

    def text(self, data: bytes, *, wide_length: bool = True) -> str:
        """A text behind its length (MS-XLS 2.5.240 and 2.5.293), without formatting."""
        length = struct.unpack_from("<H" if wide_length else "<B", data)[0]
        at = 2 if wide_length else 1
        if not self.version_8:
            return _one_line(data[at : at + length].decode(self.encoding, "replace"))
        if data[at] & 1:
            return _one_line(data[at + 1 : at + 1 + 2 * length].decode("utf-16-le", "replace"))
        return _one_line(data[at + 1 : at + 1 + length].decode("latin-1"))

    def number(self, value: float, style: int) -> str:
        number = self.styles[style] if style < len(self.styles) else 0
        format = self.formats.get(number, xlsx.BUILT_IN.get(number))
        return xlsx.value_text(value, format, xlsx.epoch(self.from_1904))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _records(data: bytes, start: int) -> Iterator[tuple[int, bytes]]:
    """Records of one part, up to its end; parts inside of it (charts) are left out."""
    at, depth = start, 0
    while at + 4 <= len(data):
        kind, size = struct.unpack_from("<HH", data, at)
        body = data[at + 4 : at + 4 + size]
        at += 4 + size
        if kind == _BOF:
            depth += 1
        if depth <= 1:
            yield kind, body
        if kind == _EOF:
            depth -= 1
            if depth <= 0:
                return


def _read_book(data: bytes) -> _Book:
    if len(data) < 8 or data[:2] != _BOF.to_bytes(2, "little"):
        raise Permanent("it is of an older Excel than can be read, or damaged")
    book = _Book(struct.unpack_from("<H", data, 4)[0] == _VERSION_8)
    strings: list[bytes] = []
    sheets: list[bytes] = []
    before = 0
    for kind, body in _records(data, 0):
        if kind == _FILE_PASS:
            raise Permanent("it is protected by a password", code="encrypted_file")
        if kind == _STRINGS or (kind == _CONTINUE and before == _STRINGS):
            strings.append(body)
        elif kind == _SHEET:
            sheets.append(body)
        else:
            _take_in(book, kind, body)
        before = before if kind == _CONTINUE else kind
    for body in sheets:
        state, type = body[4], body[5]
        if type not in _NOT_CELLS:
            name = book.text(body[6:], wide_length=False)
            book.sheets.append((name, int.from_bytes(body[:4], "little")))
            if state & 3:
                book.hidden.append(name)
    book.strings = list(_shared_strings(strings)) if strings else []
    return book


def _take_in(book: _Book, kind: int, body: bytes) -> None:
    """What a record says of dates, styles and the encoding."""
    if kind == _CODE_PAGE:
        book.encoding = _encoding(struct.unpack_from("<H", body)[0])
    elif kind == _DATE_1904:
        book.from_1904 = body[:1] == b"\x01"
    elif kind == _FORMAT:
        code = book.text(body[2:], wide_length=book.version_8)
        book.formats[struct.unpack_from("<H", body)[0]] = xlsx.format_of(code)
    elif kind == _STYLE:
        book.styles.append(struct.unpack_from("<H", body, 2)[0])


def _encoding(code_page: int) -> str:
    if code_page in (_UNICODE, 0x8001):
        return "cp1252"
    encoding = "mac_roman" if code_page in (10_000, 0x8000) else f"cp{code_page}"
    try:
        "".encode(encoding)
    except LookupError:
        return "cp1252"
    return encoding


class _Pieces:
    """Bytes that go on in CONTINUE records. IndexError where there are no more."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = iter(pieces)
        self._rest = b""

    def take(self, size: int) -> bytes:
        while len(self._rest) < size:
            self._rest += self._next()
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken

    def characters(self, count: int, *, wide: bool) -> str:
        """Each further piece says again how wide its characters are (MS-XLS 2.5.293)."""
        text: list[str] = []
        while True:
            size = 2 if wide else 1
            part = self._rest[: count * size]
            text.append(part.decode("utf-16-le" if wide else "latin-1", "replace"))
            self._rest = self._rest[len(part) :]
            count -= -(-len(part) // size)
            if count <= 0:
                return "".join(text)
            piece = self._next()
            wide, self._rest = bool(piece[0] & 1), piece[1:]

    def _next(self) -> bytes:
        for piece in self._pieces:
            return piece
        raise IndexError


def _shared_strings(pieces: Sequence[bytes]) -> Iterator[str]:
    source = _Pieces(pieces)
    count = struct.unpack("<II", source.take(8))[1]
    for _ in range(count):
        length, flags = struct.unpack("<HB", source.take(3))
        runs = struct.unpack("<H", source.take(2))[0] if flags & 8 else 0
        more = struct.unpack("<I", source.take(4))[0] if flags & 4 else 0
        yield _one_line(source.characters(length, wide=bool(flags & 1)))
        source.take(4 * runs + more)


def _rows(data: bytes, start: int, book: _Book, budget: _table.SheetBudget) -> Iterator[_table.Row]:
    row, cells = -1, dict[int, str]()
    for number, column, text in _cells(data, start, book):
        if number != row:
            if not budget.admits(len(cells)):
                return
            if cells:
                yield _row(row, cells)
            row, cells = number, {}
        if text:
            cells[column] = text
    if cells and budget.admits(len(cells)):
        yield _row(row, cells)


def _row(number: int, cells: dict[int, str]) -> _table.Row:
    columns = sorted(cells)
    texts = [cells[column] for column in columns]
    return _table.Row(number + 1, columns, texts, columns[-1] - columns[0] + 1)


def _cells(data: bytes, start: int, book: _Book) -> Iterator[tuple[int, int, str]]:
    """Row and column (from 0) and text of each cell of a sheet, as they are stored."""
    awaits_text = (0, 0)
    for kind, body in _records(data, start):
        if kind == _STRING:
            row, column = awaits_text
            yield row, column, book.text(body)
        elif kind == _MANY_RK:
            row, column = struct.unpack_from("<HH", body)
            for at in range(4, len(body) - 6, 6):
                style, packed = struct.unpack_from("<HI", body, at)
                yield row, column + (at - 4) // 6, book.number(_unpacked(packed), style)
        elif kind in _CELLS:
            row, column, style = struct.unpack_from("<HHH", body)
            if kind == _FORMULA:
                awaits_text = row, column
            yield row, column, _text(kind, body, style, book)


def _besides(data: bytes, start: int, book: _Book) -> Iterator[str]:
    """Words of a sheet that are in no cell: boxes, and remarks by their cells (MS-XLS 2.4.329,
    2.4.179). What is damaged is left out."""
    if not any(kind.to_bytes(2, "little") in data for kind in (_NOTE, _BOX)):
        return
    boxes: dict[int, list[bytes]] = {}
    notes: list[tuple[str, int, bytes]] = []
    number = before = 0
    for kind, body in _records(data, start):
        if kind == _OBJECT:
            number = int.from_bytes(body[6:8], "little")
        elif kind == _BOX or (kind == _CONTINUE and before == _BOX):
            boxes.setdefault(number, []).append(body)
        elif kind == _NOTE and len(body) >= 8:
            row, column, _, of = struct.unpack_from("<HHHH", body)
            if row == _GOES_ON and notes:
                notes[-1] = (*notes[-1][:2], notes[-1][2] + body[6:])
            else:
                cell = f"{numeral(column + 1, 'upperAlpha')}{row + 1}"
                notes.append((cell, of, body[6:]))
        before = before if kind == _CONTINUE else kind
    texts = {number: _boxed(pieces) for number, pieces in boxes.items()}
    remarks = [
        (
            cell,
            texts.pop(of, "")
            if book.version_8
            else _one_line(said.decode(book.encoding, "replace")),
        )
        for cell, of, said in notes
    ]
    yield from filter(None, texts.values())
    yield from (f"{cell}: {said}" for cell, said in remarks if said)


def _boxed(records: Sequence[bytes]) -> str:
    with suppress(IndexError, struct.error):
        length = struct.unpack_from("<H", records[0], 10)[0]
        return _one_line(_Pieces(records[1:]).characters(length, wide=False)) if length else ""
    return ""


def _text(kind: int, body: bytes, style: int, book: _Book) -> str:
    if kind == _SHARED:
        number = struct.unpack_from("<I", body, 6)[0]
        return book.strings[number] if number < len(book.strings) else ""
    if kind in (_LABEL, _RICH):
        return book.text(body[6:])
    if kind == _RK:
        return book.number(_unpacked(struct.unpack_from("<I", body, 6)[0]), style)
    if kind == _BOOL:
        return _truth(body[6], error=bool(body[7]))
    if kind == _FORMULA and body[12:14] == b"\xff\xff":
        # Not a number (MS-XLS 2.5.133): a text, which a record of its own holds, or one of these.
        return _truth(body[8], error=body[6] == 2) if body[6] in (1, 2) else ""
    value = struct.unpack_from("<d", body, 6)[0]
    return book.number(value, style) if math.isfinite(value) else ""


def _truth(value: int, *, error: bool) -> str:
    if error:
        return _ERRORS.get(value, "#N/A")
    return "TRUE" if value else "FALSE"


def _unpacked(packed: int) -> float:
    """A number in 30 bits (MS-XLS 2.5.217)."""
    if packed & 2:
        value = float((packed >> 2) - (1 << 30 if packed & 1 << 31 else 0))
    else:
        value = struct.unpack("<d", b"\0\0\0\0" + (packed & 0xFFFFFFFC).to_bytes(4, "little"))[0]
    return value / 100 if packed & 1 else value
