"""PPTX: each slide with its title as heading, its text, tables and notes; one place a slide."""

import re
from collections.abc import Iterator, Mapping

from recollect.extract import _formulas, _signs, _xml, _zip
from recollect.extract._numerals import numeral
from recollect.extract._text import clean_line
from recollect.extract.office import _drawn, _ooxml, _slides, _symbols, xlsx
from recollect.model import Blob, Extracted

_TITLES = ("title", "ctrTitle")
_SMALL_PRINT = ("dt", "ftr", "sldNum", "hdr", "sldImg")
"""Placeholders that repeat on every slide (ECMA-376 part 1, 19.7.10)."""
_TYPES = "[Content_Types].xml"
_DEFAULT_TITLE = re.compile(r"PowerPoint Presentation|Slide \d+|Presentation")

_NUMBERS = re.compile("(alphaLc|alphaUc|arabic|romanLc|romanUc)(ParenBoth|ParenR|Period|Plain)")
"""of paragraphs (ECMA-376 part 1, 20.1.10.61), but for those of other scripts"""
_FORMATS = {
    "alphaLc": "lowerLetter", "alphaUc": "upperLetter", "arabic": "decimal",
    "romanLc": "lowerRoman", "romanUc": "upperRoman",
}  # fmt: skip
_SHOWN = {"ParenBoth": "({})", "ParenR": "{})", "Period": "{}.", "Plain": "{}"}

_TAGS = _xml.Tags(
    *("sld", "sp", "ph", "tbl", "tr", "tc", "p", "pPr", "t", "br"),
    *("buNone", "buChar", "buAutoNum", "Fallback", "chart", "relIds", "rPr", "sym"),
    *("oMath", "oMathPara"),
)

_PARTS = _xml.Tags()
"""of formulas"""


def extract(blob: Blob) -> Extracted:
    package = _ooxml.open_package(blob.data)
    title = _ooxml.title(package)
    title = None if title and _DEFAULT_TITLE.fullmatch(title) else title
    return _slides.written(_read(package), title)


def _read(package: _zip.Package) -> Iterator[_slides.Slide]:
    has_notes = _has_notes(package)
    has_comments = any("omment" in name for name in package.names)
    for part in _parts(package):
        slide = _Slide(package, part)
        notes = _ooxml.related(package, part, "notesSlide") if has_notes else None
        said: list[str] = []
        if notes:
            # A title has no place among notes, so what claims to be one is text.
            found = _Slide(package, notes)
            said = [text for text in (found.title, *found.blocks) if text]
        comments = _ooxml.related(package, part, "comments") if has_comments else None
        remarks = _drawn.paragraphs(package, comments) if comments else []
        yield _slides.Slide(slide.title, slide.blocks, said, slide.hidden, remarks)


def _has_notes(package: _zip.Package) -> bool:
    """Whether a slide may have them: by the names of parts or what these are (ECMA-376 part 1,
    13.3.5). To ask each slide takes as long as to read a small one."""
    if any("notesSlide" in name for name in package.names):
        return True
    types = package.read(_TYPES) if _TYPES in package.names else b""
    return not types or b"\0" in types or b"notesSlide+xml" in types


def _parts(package: _zip.Package) -> list[str]:
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
        self._raised = False
        self._font = ""
        """of signs, which the open run has"""
        self._bullet = False
        self._numbers: tuple[str, int] | None = None
        """how the open paragraph is numbered, and from which number on"""
        self._counts: dict[int, tuple[tuple[str, int], int]] = {}
        """that of the last paragraph of each level, and its number"""
        self._level = 0
        self._table: list[list[str]] | None = None
        self._choices = 0
        self._formula: _formulas.Formula | None = None
        self._stands_alone = False
        """whether the formula does"""
        self._drawings = _drawn.Drawings(package, part, xlsx.shown)
        for _ in _xml.written(package.pieces(part), self._start, self._end, self._text):
            pass

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        if self._formula:
            self._formula.start(_PARTS[name], _xml.plain(attributes))
            return
        match _TAGS[name]:
            case "":
                pass
            case "t":
                self._inside = not self._choices
            case "rPr":
                self._raised = not attributes.get("baseline", "0").startswith(("0", "-"))
                self._font = ""
            case "p":
                self._bullet, self._level = self._placeholder == "body", 0
                self._numbers = None
            case "sld":
                self.hidden = _xml.plain(attributes).get("show") in ("0", "false")
            case "sp":
                self._placeholder, self._shape, self._counts = "", [], {}
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
            case "buChar":
                self._bullet = True
            case "buAutoNum":
                values = _xml.plain(attributes)
                start = values.get("startAt", "1")
                self._bullet = True
                self._numbers = (
                    values.get("type", ""),
                    int(start) if re.fullmatch("[0-9]{1,5}", start) else 1,
                )
            case "sym":
                self._font = _xml.plain(attributes).get("typeface", "")
            case "br":
                self._words.append("\n")
            case "Fallback":
                # The same again, for readers that do not know what the choice before it uses.
                self._choices += 1
            case "oMathPara":
                self._stands_alone = True
            case "oMath" if not self._choices:
                self._formula = _formulas.Formula()
            case "chart" | "relIds":
                values = _xml.plain(attributes)
                self.blocks += self._drawings.blocks(values.get("id") or values.get("dm", ""))
            case _:
                pass

    def _end(self, name: str) -> None:
        if self._formula:
            self._end_of_formula(name)
            return
        match _TAGS[name]:
            case "":
                pass
            case "t":
                self._inside = self._raised = False
                self._font = ""
            case "p":
                if self._words:
                    self._end_paragraph()
            case "tc" if self._table:
                self._table[-1].append(" ".join(" ".join(self._shape).split()))
                self._shape = []
            case "tbl":
                self.blocks += _slides.table(self._table or [])
                self._table = None
            case "sp":
                self._end_shape()
            case "Fallback":
                self._choices -= 1
            case "oMathPara":
                self._stands_alone = False
            case _:
                pass

    def _end_of_formula(self, name: str) -> None:
        if self._formula and _TAGS[name] != "oMath":
            self._formula.end()
        elif self._formula:
            block = self._stands_alone
            self._words.append(_formulas.latex(self._formula.root, block=block))
            self._formula = None

    def _text(self, piece: str) -> None:
        if self._formula:
            self._formula.text(piece)
        elif self._inside:
            if self._font:
                piece = _symbols.typed(piece, self._font)
            if self._raised:
                piece = _signs.raised(piece, "".join(self._words[-1:]))
            self._words.append(piece)

    def _end_paragraph(self) -> None:
        text = _slides.paragraph("".join(self._words))
        self._words.clear()
        if text:
            is_item = self._bullet and self._table is None
            sign = self._sign()
            self._shape.append(_slides.item(text, self._level, sign) if is_item else text)

    def _sign(self) -> str:
        """What stands ahead of the paragraph. Paragraphs count on while none stands between them
        that is on a level above, or on theirs and numbered in another way."""
        level, last = self._level, self._counts.get(self._level)
        self._counts = {at: one for at, one in self._counts.items() if at < level}
        if self._numbers is None:
            return "-"
        number = last[1] + 1 if last and last[0] == self._numbers else self._numbers[1]
        self._counts[level] = self._numbers, number
        kind = _NUMBERS.fullmatch(self._numbers[0])
        format, shown = (_FORMATS[kind[1]], _SHOWN[kind[2]]) if kind else ("decimal", "{}.")
        return shown.format(numeral(number, format))

    def _end_shape(self) -> None:
        if self._placeholder in _TITLES and not self.title:
            self.title = clean_line(" ".join(self._shape))
        elif self._placeholder not in _SMALL_PRINT and self._shape:
            self.blocks.append(_slides.block(self._shape))
        self._shape = []
