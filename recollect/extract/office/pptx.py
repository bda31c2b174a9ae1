"""PPTX: each slide with its title as heading, its text, tables and notes; one place a slide."""

import re
from collections.abc import Mapping

from recollect.extract import _xml, _zip
from recollect.extract._text import clean_line
from recollect.extract.office import _ooxml
from recollect.model import Blob, Extracted, Place

_TITLES = ("title", "ctrTitle")
_SMALL_PRINT = ("dt", "ftr", "sldNum", "hdr", "sldImg")
"""Placeholders that repeat on every slide (ECMA-376 part 1, 19.7.10)."""
_TYPES = "[Content_Types].xml"
_DEFAULT_TITLE = re.compile(r"PowerPoint Presentation|Slide \d+|Presentation")

_TAGS = _xml.Tags(
    *("sld", "sp", "ph", "tbl", "tr", "tc", "p", "pPr", "t", "br"),
    *("buNone", "buChar", "buAutoNum", "Fallback"),
)


def extract(blob: Blob) -> Extracted:
    package = _ooxml.open_package(blob.data)
    places: list[Place] = []
    written: list[str] = []
    hidden: list[int] = []
    title = _ooxml.title(package)
    title = None if title and _DEFAULT_TITLE.fullmatch(title) else title
    has_notes = _has_notes(package)
    size = 0
    for number, part in enumerate(_slides(package), 1):
        slide = _Slide(package, part)
        title = title or clean_line(slide.title) or None
        if slide.hidden:
            hidden.append(number)
        notes = _ooxml.related(package, part, "notesSlide") if has_notes else None
        if text := _markdown(slide, _Slide(package, notes) if notes else None):
            places.append(Place(size, {"page": number}))
            written.append(text)
            size += len(text) + 2
    warnings = [f"Hidden slides were read as well: {_listed(hidden)}."] if hidden else []
    return Extracted("\n\n".join(written), title=title, warnings=warnings, places=places)


def _has_notes(package: _zip.Package) -> bool:
    """Whether a slide may have them: by the names of parts or what these are (ECMA-376 part 1,
    13.3.5). To ask each slide takes as long as to read a small one."""
    if any("notesSlide" in name for name in package.names):
        return True
    types = package.read(_TYPES) if _TYPES in package.names else b""
    return not types or b"\0" in types or b"notesSlide+xml" in types


def _markdown(slide: "_Slide", notes: "_Slide | None") -> str:
    blocks = [f"## {slide.title}"] if slide.title else []
    blocks += slide.blocks
    # A title has no place among notes, so what claims to be one is text.
    if notes and (lines := [text for text in (notes.title, *notes.blocks) if text]):
        blocks += ["Notes:", *lines]
    return "\n\n".join(blocks)


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:20])) + (" …" if len(numbers) > 20 else "")


def _slides(package: _zip.Package) -> list[str]:
    """Parts of the slides in the order in which they are shown."""
    main = _ooxml.main_part(package)
    relations = _ooxml.relations(package, main)
    slides: list[str] = []

    def start(tag: str, attributes: Mapping[str, str]) -> None:
        if tag == "sldId" and (relation := relations.get(attributes.get("id", ""))):
            slides.append(relation.target)

    _xml.parse(package.pieces(main), start)
    return [part for part in slides if part in package.names]


class _Slide:
    """Title and blocks of text of one slide, in the order of the file."""

    def __init__(self, package: _zip.Package, part: str) -> None:
        self.title = ""
        self.blocks: list[str] = []
        self.hidden = False
        self._placeholder = ""
        self._shape: list[str] = []
        self._words: list[str] = []
        self._inside = False
        self._bullet = False
        self._level = 0
        self._table: list[list[str]] | None = None
        self._choices = 0
        for _ in _xml.written(package.pieces(part), self._start, self._end, self._text):
            pass

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        match _TAGS[name]:
            case "":
                pass
            case "t":
                self._inside = not self._choices
            case "p":
                self._bullet, self._level = self._placeholder == "body", 0
            case "sld":
                self.hidden = _xml.plain(attributes).get("show") in ("0", "false")
            case "sp":
                self._placeholder, self._shape = "", []
            case "ph":
                self._placeholder = _xml.plain(attributes).get("type", "body")
            case "tbl":
                self._table = []
            case "tr" if self._table is not None:
                self._table.append([])
            case "tc" if self._table:
                self._shape = []
            case tag:
                self._start_text(tag, attributes)

    def _start_text(self, tag: str, attributes: Mapping[str, str]) -> None:
        match tag:
            case "pPr":
                level = _xml.plain(attributes).get("lvl", "0")
                self._level = int(level) if re.fullmatch("[0-9]{1,2}", level) else 0
            case "buNone":
                self._bullet = False
            case "buChar" | "buAutoNum":
                self._bullet = True
            case "br":
                self._words.append("\n")
            case "Fallback":
                # The same again, for readers that do not know what the choice before it uses.
                self._choices += 1
            case _:
                pass

    def _end(self, name: str) -> None:
        match _TAGS[name]:
            case "":
                pass
            case "t":
                self._inside = False
            case "p":
                if self._words:
                    self._end_paragraph()
            case "tc" if self._table:
                self._table[-1].append(" ".join(" ".join(self._shape).split()))
                self._shape = []
            case "tbl":
                self.blocks += _table(self._table or [])
                self._table = None
            case "sp":
                self._end_shape()
            case "Fallback":
                self._choices -= 1
            case _:
                pass

    def _text(self, piece: str) -> None:
        if self._inside:
            self._words.append(piece)

    def _end_paragraph(self) -> None:
        written = "".join(self._words)
        self._words.clear()
        lines = map(clean_line, written.split("\n")) if "\n" in written else [clean_line(written)]
        if text := "\n".join(lines).strip():
            self._shape.append(self._item(text))

    def _item(self, text: str) -> str:
        if self._table is not None or not self._bullet:
            return text
        return f"{'  ' * min(self._level, 8)}- {text}"

    def _end_shape(self) -> None:
        if self._placeholder in _TITLES and not self.title:
            self.title = clean_line(" ".join(self._shape))
        elif self._placeholder not in _SMALL_PRINT and self._shape:
            listed = all(line.lstrip().startswith("- ") for line in self._shape)
            self.blocks.append(("\n" if listed else "\n\n").join(self._shape))
        self._shape = []


def _table(rows: list[list[str]]) -> list[str]:
    rows = [[cell.replace("|", "\\|") for cell in row] for row in rows if any(row)]
    if not rows:
        return []
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return ["\n".join([lines[0], f"|{' --- |' * len(rows[0])}", *lines[1:]])]
