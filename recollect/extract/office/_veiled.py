"""DOCX without the runs that Word does not show: hidden ones, white ones on white, and those that
were moved away under track changes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from xml.parsers import expat

from recollect.extract import _xml
from recollect.extract._zip import Package
from recollect.extract.office import _ooxml, _spelling, _styles

_PARTS = ("footnotes", "endnotes", "comments")
_WHITE = ("FFFFFF", "FEFEFE", "FDFDFD")
_TAG_BYTES = 300
"""A tag that names a colour is shorter."""
_TELLING = frozenset(
    {"background", "color", "highlight", "pStyle", "rStyle", "shd", "tblStyle", "vanish"}
)
_APART = frozenset({"pPr", "rPrChange", "tblStylePr"})
"""Elements of a style whose formats of runs are not those of its text."""


@dataclass(frozen=True, slots=True)
class Unveiled:
    """What of a DOCX says something: the text and its notes."""

    main: str
    notes: Mapping[str, str]
    """their parts, by kind: `footnote` …"""
    sources: Mapping[str, bytes]
    """in UTF-8, by part, without hidden runs"""
    hidden: int
    """characters of them"""
    relations: Mapping[str, _ooxml.PartRelation]
    """of the main part"""
    styles: bytes
    """the part, as far as they are in use; empty: it has none"""
    lists: bytes


def unveil(package: Package) -> Unveiled:
    main = _ooxml.main_part(package)
    relations = _ooxml.relations(package, main)
    notes = {kind[:-1]: part for kind in _PARTS if (part := _ooxml.first(package, relations, kind))}
    sources = {part: _spelling.usual(package.read(part)) for part in (main, *notes.values())}
    styles, lists = (
        _spelling.usual(package.read(part))
        if (part := _ooxml.first(package, relations, kind))
        else b""
        for kind in ("styles", "numbering")
    )
    used = _styles.in_use(styles, sources.values(), lists)
    hidden = 0
    if not any(map(_may_hide, (used, *sources.values()))):
        for source in sources.values():
            _xml.check(source)
    else:
        veiling = _read_styles(used)
        for part, source in sources.items():
            found = _Runs(source, veiling)
            if found.cuts:
                hidden += found.characters
                sources[part] = _without(source, found.cuts)
    return Unveiled(main, notes, sources, hidden, relations, used, lists)


def _may_hide(source: bytes) -> bool:
    """Whether runs of it may be hidden: a quick look that says no only where none is."""
    return (
        b"vanish" in source
        or b"moveFrom" in source
        or any(_may_be_colour(source, start) for start in _written_white(source.lower()))
    )


def _written_white(source: bytes) -> Iterator[int]:
    for white in _WHITE:
        start = source.find(white.lower().encode())
        while start >= 0:
            yield start
            start = source.find(white.lower().encode(), start + 1)


def _may_be_colour(source: bytes, at: int) -> bool:
    """Whether what stands there may be the colour of a run, rather than of its ground."""
    before = source[max(0, at - _TAG_BYTES) : at]
    start = before.rfind(b"<")
    return start < 0 or b"color" in before[start:]


@dataclass(frozen=True, slots=True)
class _Look:
    """What a style says of what it applies to; None: nothing."""

    vanish: bool | None = None
    white: bool | None = None
    shaded: bool = False
    """whether it colours the ground"""

    def over(self, other: "_Look") -> "_Look":
        if self is _NO_LOOK or other is _NO_LOOK:
            return other if self is _NO_LOOK else self
        return _Look(
            other.vanish if self.vanish is None else self.vanish,
            other.white if self.white is None else self.white,
            self.shaded or other.shaded,
        )


_NO_LOOK = _Look()


@dataclass(slots=True)
class _Styles:
    of: dict[str, _Look]
    """by id"""
    default: _Look
    """of paragraphs that name none"""


def _read_styles(source: bytes) -> _Styles:
    reading = _StylesReading()
    if source:
        for _ in _xml.written([source], reading.start, reading.end):
            pass
    looks: dict[str, _Look] = {}
    for id in reading.said:
        chain: dict[str, None] = {}
        while id in reading.said and id not in looks and id not in chain:
            chain[id] = None
            id = reading.based_on.get(id, id)
        look = looks.get(id, _NO_LOOK)
        for one in reversed(chain):
            look = looks[one] = reading.said[one].over(look)
    return _Styles(looks, looks[reading.default])


class _StylesReading:
    """What a parser calls. Of styles of paragraphs the last basis is what the file says of all."""

    def __init__(self) -> None:
        self.said = {"": _NO_LOOK}
        self.based_on: dict[str, str] = {}
        self.default = ""
        self._style = ""
        self._path: list[str] = []

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        tag, values = name.removeprefix("w:"), _own(attributes)
        look = self.said[self._style]
        match tag:
            case "style":
                self._start_style(values)
            case "docDefaults":
                self._style = ""
            case "basedOn":
                self.based_on[self._style] = values.get("val", "")
            case "shd" if _is_dark(values):
                self.said[self._style] = replace(look, shaded=True)
            case "vanish" if self._is_of_text():
                self.said[self._style] = replace(look, vanish=_is_on(values))
            case "color" if self._is_of_text():
                self.said[self._style] = replace(look, white=_is_white(values))
            case _:
                pass
        self._path.append(tag)

    def end(self, _: str) -> None:
        self._path.pop()

    def _start_style(self, values: Mapping[str, str]) -> None:
        self._style = values.get("styleId", "")
        self.said[self._style] = _NO_LOOK
        if values.get("type", "paragraph") == "paragraph":
            self.based_on[self._style] = ""
            if _is_on({"val": values.get("default", "0")}):
                self.default = self._style

    def _is_of_text(self) -> bool:
        return self._path[-1:] == ["rPr"] and _APART.isdisjoint(self._path)


@dataclass(slots=True)
class _Run:
    start: int
    said: _Look = _NO_LOOK
    """by itself"""
    style: _Look = _NO_LOOK
    characters: int = 0
    within: int = 0
    """characters of the runs in it, such as those of a box"""


class _Runs:
    """Finds the byte ranges of hidden runs (ECMA-376 part 1, 17.3.2.41 and 17.3.2.6)."""

    def __init__(self, source: bytes, styles: _Styles) -> None:
        self.cuts: list[tuple[int, int]] = []
        self.characters = 0
        self._source, self._styles = source, styles
        self._path: list[str] = []
        self._moved = 0
        """open elements of what was moved away"""
        self._runs: list[_Run] = []
        self._grounds: list[bool] = [False]
        """for the page, and for each paragraph, cell, table and box around: whether its ground has
        a colour, or that of one around it"""
        self._paragraphs: list[_Look] = []
        """those around, by their styles"""
        self._tables: list[_Look] = []
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text
        _xml.walk(source, self._parser)

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        tag = name[name.find(":") + 1 :]
        values = _own(attributes) if tag in _TELLING else {}
        self._path.append(tag)
        parent = self._path[-2] if len(self._path) > 1 else ""
        match tag:
            case "r":
                self._runs.append(_Run(self._parser.CurrentByteIndex))
            case "background" if "color" in values:
                self._grounds[0] = values["color"].upper() not in ("AUTO", *_WHITE)
            case "p":
                self._grounds.append(self._grounds[-1] or self._styles.default.shaded)
                self._paragraphs.append(self._styles.default)
            case "tbl":
                self._grounds.append(self._grounds[-1])
                self._tables.append(_NO_LOOK)
            case "tc":
                self._grounds.append(self._grounds[-1])
            case "moveFrom":
                self._moved += 1
            case "txbxContent":
                # Boxes have fills of many makes.
                self._grounds.append(True)
            case "pStyle" if self._paragraphs:
                look = self._styles.of.get(values.get("val", ""), self._styles.default)
                self._paragraphs[-1] = look
                self._grounds[-1] |= look.shaded
            case "tblStyle" if self._tables:
                self._tables[-1] = self._styles.of.get(values.get("val", ""), _NO_LOOK)
                self._grounds[-1] |= self._tables[-1].shaded
            case "shd" if parent in ("pPr", "tcPr", "tblPr", "tblPrEx"):
                self._grounds[-1] |= _is_dark(values)
            case _ if parent == "rPr" and self._runs and self._path[-3:-2] == ["r"]:
                self._format(tag, values)
            case _:
                pass

    def _format(self, tag: str, values: Mapping[str, str]) -> None:
        run = self._runs[-1]
        match tag:
            case "vanish":
                run.said = replace(run.said, vanish=_is_on(values))
            case "rStyle":
                run.style = self._styles.of.get(values.get("val", ""), _NO_LOOK)
            case "color":
                run.said = replace(run.said, white=_is_white(values))
            case "shd" if _is_dark(values):
                run.said = replace(run.said, shaded=True)
            case "highlight" if values.get("val") not in ("none", "white"):
                run.said = replace(run.said, shaded=True)
            case _:
                pass

    def _end(self, name: str) -> None:
        tag = self._path.pop()
        if tag == "r":
            self._end_run(self._runs.pop())
        elif tag == "moveFrom":
            self._moved -= 1
        elif tag in ("p", "tbl", "tc", "txbxContent"):
            self._grounds.pop()
            if tag == "p":
                self._paragraphs.pop()
            elif tag == "tbl":
                self._tables.pop()

    def _end_run(self, run: _Run) -> None:
        look = run.said.over(run.style)
        is_grounded = look.shaded or self._grounds[-1]
        for around in (self._paragraphs, self._tables):
            look = look.over(around[-1]) if around else look
        characters = run.characters + run.within
        is_white = look.white and not is_grounded and run.characters
        is_gone = self._moved or (look.vanish and characters) or is_white
        if is_gone and not self._source.startswith(b"/>", self._end_of(run.start) - 2):
            end = self._end_of(self._parser.CurrentByteIndex)
            # An outer one comes after those within it.
            while self.cuts and self.cuts[-1][0] > run.start:
                self.cuts.pop()
            self.cuts.append((run.start, end))
            # Where it went to what was moved is text.
            self.characters += 0 if self._moved else characters
        elif self._runs:
            self._runs[-1].within += characters

    def _end_of(self, tag: int) -> int:
        return _xml.tag_end(self._source, tag)

    def _text(self, text: str) -> None:
        if self._runs and self._path[-1] == "t":
            self._runs[-1].characters += len("".join(text.split()))


def _without(source: bytes, cuts: Sequence[tuple[int, int]]) -> bytes:
    kept: list[bytes] = []
    at = 0
    for start, end in cuts:
        kept.append(source[at:start])
        at = end
    return b"".join([*kept, source[at:]])


def _own(attributes: Mapping[str, str]) -> dict[str, str]:
    """Those of Word itself: those of others mean nothing, whatever they are called."""
    return {key[2:]: value for key, value in attributes.items() if key.startswith("w:")}


def _is_on(values: Mapping[str, str]) -> bool:
    return values.get("val", "1") not in ("0", "false", "off")


def _is_white(values: Mapping[str, str]) -> bool:
    return values.get("val", "").upper() in _WHITE and "themeColor" not in values


def _is_dark(values: Mapping[str, str]) -> bool:
    """Whether a shading makes the ground another than white."""
    fill = values.get("fill", "auto").upper()
    is_filled = values.get("val", "clear") in ("clear", "nil")
    return fill not in ("AUTO", *_WHITE) or "themeFill" in values or not is_filled
