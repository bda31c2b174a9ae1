"""ODP: each slide with its title as heading, its text, tables and notes; one place a slide."""

from collections.abc import Iterator, Mapping

from recollect.extract import _signs, _xml
from recollect.extract._text import clean_line
from recollect.extract.office import _odf, _odf_objects, _powers, _slides
from recollect.model import Blob, Extracted

_SHAPES = frozenset(
    {
        "caption", "circle", "connector", "custom-shape", "ellipse", "frame", "line", "measure",
        "path", "polygon", "polyline", "rect", "regular-polygon",
    }
)  # fmt: skip
_SMALL_PRINT = frozenset({"date-time", "footer", "header", "page-number"})
_UNREAD = frozenset({"desc", "event-listeners", "ruby-text", "title"})
"""What is said of pictures, and aids of reading."""
_WIDEST = 100
"""columns of a table"""


def extract(blob: Blob) -> Extracted:
    package = _odf.open_package(blob.data)
    presentation = _Presentation(_odf_objects.Objects(package))
    slides = presentation.read(package.pieces("content.xml"))
    return _slides.written(slides, _odf.title(package))


class _Presentation:
    """Reads the slides of a content.xml (OpenDocument 1.3 part 3, 10.2.4)."""

    def __init__(self, objects: _odf_objects.Objects) -> None:
        self._objects = objects
        self._invisible: set[str] = set()
        self._raising: set[str] = set()
        self._style = ""
        self._is_raised = False
        self._ready: list[_slides.Slide] = []
        self._on_page = self._in_notes = self._is_hidden = False
        self._title = ""
        self._blocks: list[str] = []
        self._notes: list[str] = []
        self._remarks: list[str] = []
        self._remarking = False
        self._classes: list[str] = []
        """of the open shapes"""
        self._shape: list[str] = []
        self._words: list[str] = []
        self._paragraphs = self._level = self._unread = 0
        self._rows: list[list[str]] | None = None
        self._repeated = 1

    def read(self, pieces: Iterator[bytes]) -> Iterator[_slides.Slide]:
        for _ in _xml.steps(pieces, self._start, self._end, self._text):
            yield from self._ready
            self._ready.clear()

    def _start(self, tag: str, attributes: Mapping[str, str]) -> None:
        match tag:
            case "style":
                self._style = attributes.get("name", "")
            case "drawing-page-properties":
                if attributes.get("visibility") == "hidden":
                    self._invisible.add(self._style)
            case "text-properties":
                if _powers.is_raised(attributes):
                    self._raising.add(self._style)
            case "page":
                self._on_page, self._title, self._blocks, self._notes = True, "", [], []
                self._remarks = []
                self._is_hidden = attributes.get("style-name") in self._invisible
            case "notes":
                self._in_notes = True
            case "annotation":
                self._end_shape()
                self._remarking = True
            case _ if tag in _SHAPES:
                self._end_shape()
                empty = attributes.get("placeholder") == "true"
                self._classes.append("header" if empty else attributes.get("class", ""))
            case _ if tag in _UNREAD:
                self._unread += 1
            case _:
                self._start_text(tag, attributes)

    def _start_text(self, tag: str, attributes: Mapping[str, str]) -> None:
        match tag:
            case "list":
                self._level += 1
            case "p" | "h":
                self._paragraphs += 1
            case "span":
                self._is_raised = attributes.get("style-name") in self._raising
            case "s":
                self._text(" ")
            case "tab":
                self._text("\t")
            case "line-break":
                self._text("\n")
            case "table":
                self._rows = []
            case "object":
                if told := self._objects.told(attributes.get("href", "")):
                    self._told.extend(told.blocks())
            case "table-row" if self._rows is not None:
                self._rows.append([])
            case "table-cell" | "covered-table-cell":
                count = attributes.get("number-columns-repeated", "1")
                self._repeated = int(count) if count.isdecimal() and len(count) < 4 else 1
            case _:
                pass

    def _end(self, tag: str) -> None:
        match tag:
            case "page":
                self._end_shape()
                self._ready.append(
                    _slides.Slide(
                        self._title, self._blocks, self._notes, self._is_hidden, self._remarks
                    )
                )
                self._on_page = False
            case "notes":
                self._in_notes = False
            case "annotation":
                self._end_shape()
                self._remarking = False
            case "span":
                self._is_raised = False
            case "list":
                self._level -= 1
            case "p" | "h":
                self._paragraphs -= 1
                if not self._paragraphs:
                    self._end_paragraph()
            case "table-cell" | "covered-table-cell" if self._rows:
                cell = " ".join(" ".join(self._shape).split())
                times = min(self._repeated, _WIDEST - len(self._rows[-1]))
                self._rows[-1] += [cell] * times
                self._shape = []
            case "table" if self._rows is not None:
                rows, self._rows = self._rows, None
                self._told.extend(_slides.table(rows))
            case _ if tag in _SHAPES:
                self._end_shape()
                self._classes.pop()
            case _:
                self._unread -= tag in _UNREAD

    @property
    def _told(self) -> list[str]:
        return self._notes if self._in_notes else self._blocks

    def _text(self, piece: str) -> None:
        if self._paragraphs and self._on_page and not self._unread:
            if self._is_raised:
                piece = _signs.raised(piece, "".join(self._words[-1:]))
            self._is_raised = False
            self._words.append(piece)

    def _end_paragraph(self) -> None:
        text = _slides.paragraph("".join(self._words))
        self._words.clear()
        if text:
            is_item = self._level and self._rows is None
            self._shape.append(_slides.item(text, self._level - 1) if is_item else text)

    def _end_shape(self) -> None:
        paragraphs, self._shape = self._shape, []
        kind = self._classes[-1] if self._classes else ""
        if self._remarking:
            self._remarks += paragraphs
            return
        if not paragraphs or kind in _SMALL_PRINT:
            return
        if kind == "title" and not self._title and not self._in_notes:
            self._title = clean_line(" ".join(paragraphs))
        else:
            self._told.append(_slides.block(paragraphs))
