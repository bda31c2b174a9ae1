"""XML as lines "path: text", a blank line between records.

An element with text of its own is one line, whatever marks up its words; one that only holds
others is a step of their paths. No DTD is loaded, and a file that declares entities is refused.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from recollect.errors import Permanent
from recollect.extract import _xml
from recollect.extract._charsets import decoded
from recollect.extract._text import TEXT_BYTES, clean_line, decode
from recollect.model import Blob, Extracted

DEEPEST = 500
MOST_LINES = 1_000_000
_STEPS = 6
"""of a path; of a longer one the last"""
_RECORDS = 3
"""Levels below the root at which an element that holds others stands apart."""
_TITLED = frozenset({"articleinfo", "bookinfo", "channel", "head", "info", "titleStmt"})
"""Elements whose `title` is that of the file; else it stands below the root."""
_PIECE = 1 << 16
_DECLARED = re.compile(
    rb"""(?:\xef\xbb\xbf)?\s*<\?xml[^>]{0,200}?encoding\s*=\s*["']([\w.:-]{1,40})["'][^>]*\?>"""
)
_SCHEMA = ("xmlns", "xsi:")


def extract(blob: Blob) -> Extracted:
    reading = _Reading()
    warnings: list[str] = []
    try:
        for _ in _xml.written(pieces(blob.data), reading.start, reading.end, reading.text):
            if reading.is_full():
                warnings.append("It is long; the rest of it was left out.")
                break
    except Permanent as error:
        if not isinstance(error.__cause__, _xml.MALFORMED):
            raise
        # Logs and configurations are often almost XML.
        warning = f"{str(error)[:1].upper()}{str(error)[1:]}; it was read as text."
        return Extracted(decode(blob.data), warnings=[warning], markdown=False)
    return Extracted(reading.said(), title=reading.title, warnings=warnings, markdown=False)


def pieces(data: bytes) -> Iterator[bytes]:
    """In an encoding that expat knows, which is UTF."""
    declared = _DECLARED.match(data)
    name = declared[1].decode("ascii") if declared else "utf-8"
    if declared and name.lower() != "utf-8":
        # What says so in ASCII is not UTF-16.
        charset = None if name.lower().startswith("utf") else name
        data = decoded(data[declared.end() :], charset).encode()
    for start in range(0, len(data), _PIECE):
        yield data[start : start + _PIECE]


@dataclass(slots=True)
class _Line:
    path: str
    pieces: list[str] = field(default_factory=list[str])
    apart: bool = False


@dataclass(slots=True)
class _Element:
    name: str
    path: str
    first: int
    """its first line"""
    line: _Line | None = None
    """with its text, once there is any"""


class _Reading:
    """What a parser calls. Lines come as elements begin to say something."""

    def __init__(self) -> None:
        self.title: str | None = None
        self._size = 0
        self._lines: list[_Line] = []
        self._open: list[_Element] = []
        self._within = 0
        """elements that are open in one that has text of its own"""
        self._apart = False
        self._names = _xml.Tags()

    def is_full(self) -> bool:
        return self._size > TEXT_BYTES or len(self._lines) > MOST_LINES

    def said(self) -> str:
        written: list[str] = []
        for line in self._lines:
            words = " ".join("".join(line.pieces).split())
            if line.apart and written:
                written.append("")
            written.append(f"{line.path}: {words}" if words else line.path)
        return "\n".join(written)

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if self._within or (self._open and self._open[-1].line):
            self._within += 1
            return
        if len(self._open) == DEEPEST:
            raise Permanent("it is nested too deeply")
        plain = self._names[name]
        above = self._open[max(1, len(self._open) - _STEPS + 1) :]  # the root goes without saying
        path = "/".join([*(element.name for element in above), plain])
        told = {
            key: " ".join(value.split())
            for key, value in attributes.items()
            if not key.startswith(_SCHEMA)
        }
        if told:
            path += f" ({'; '.join(f'{key}: {value}' for key, value in told.items())})"
        self._open.append(_Element(plain, path, len(self._lines)))
        if told:
            self._add(_Line(path))

    def text(self, words: str) -> None:
        if not self._open:
            return
        element = self._open[-1]
        if element.line is None:
            if not words.strip():
                return
            # What stood in elements of their own so far was marked words of this one.
            before = self._lines[element.first :]
            del self._lines[element.first :]
            element.line = _Line(element.path, apart=bool(before and before[0].apart))
            for line in before:
                if line.pieces:
                    element.line.pieces += (*line.pieces, " ")
            self._add(element.line)
        element.line.pieces.append(words)
        self._size += len(words)

    def end(self, _name: str) -> None:
        if self._within:
            self._within -= 1
            return
        element = self._open.pop()
        depth = len(self._open)
        if element.line is not None:
            above = self._open[-1].name if self._open else ""
            if element.name == "title" and self.title is None and (depth == 1 or above in _TITLED):
                self.title = clean_line("".join(element.line.pieces)) or None
        elif 0 < depth <= _RECORDS and len(self._lines) > element.first + 1:
            self._lines[element.first].apart = self._apart = True

    def _add(self, line: _Line) -> None:
        line.apart = line.apart or self._apart
        self._apart = False
        self._lines.append(line)
        self._size += len(line.path)
