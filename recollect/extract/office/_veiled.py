"""DOCX without the runs that Word does not show: hidden ones, white ones on white, and those that
were moved away under track changes."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from xml.parsers import expat

from recollect.extract import _xml
from recollect.extract._zip import Package
from recollect.extract.office import _ooxml, _styles

_PARTS = ("footnotes", "endnotes", "comments")
_WHITE = ("FFFFFF", "FEFEFE", "FDFDFD")
_TAG_BYTES = 300
"""A tag that names a colour is shorter."""
# With zeros (UTF-16), characters by number, or attributes that a DTD adds, the bytes do not say
# what the XML says; nor do they in other encodings.
_NO_DTD = re.compile(rb"(?:\xef\xbb\xbf)?(?:<\?xml[^>]*\?>)?\s*<[A-Za-z]")
"""It would stand ahead of the first tag: where that comes first, there is none."""
_AS_WRITTEN = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:<\?xml[^>]*?\sencoding\s*=\s*[\"']utf-8[\"']|(?!<\?xml))", re.IGNORECASE
)
_UTF_16 = (b"\xff\xfe", b"\xfe\xff", b"<\0", b"\0<")


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
    sources = {
        part: _as_utf8(package.read(part))
        for part in (main, *notes.values())
        if part in package.names
    }
    styles, lists = (
        package.read(part) if (part := _ooxml.first(package, relations, kind)) else b""
        for kind in ("styles", "numbering")
    )
    used = _styles.in_use(styles, sources.values(), lists)
    hidden = 0
    if not (used and _may_vanish(used)) and not any(map(_may_hide, sources.values())):
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
    return _may_vanish(source) or any(
        _may_be_colour(source, start) for start in _written_white(source.lower())
    )


def _written_white(source: bytes) -> Iterator[int]:
    for white in _WHITE:
        start = source.find(white.lower().encode())
        while start >= 0:
            yield start
            start = source.find(white.lower().encode(), start + 1)


def _may_vanish(source: bytes) -> bool:
    return (
        not _AS_WRITTEN.match(source)
        or not _NO_DTD.match(source)
        or b"\0" in source
        # One sign is found at the speed of memory, two are not.
        or (b"&" in source and b"&#" in source)
        or b"vanish" in source
        or b"moveFrom" in source
    )


def _may_be_colour(source: bytes, at: int) -> bool:
    """Whether what stands there may be the colour of a run, rather than of its ground."""
    before = source[max(0, at - _TAG_BYTES) : at]
    start = before.rfind(b"<")
    return start < 0 or b"color" in before[start:]


@dataclass(frozen=True, slots=True)
class _Styles:
    """Ids of the styles that hide what they apply to, and of those that colour its ground."""

    vanish: frozenset[str]
    shaded: frozenset[str]


def _read_styles(source: bytes) -> _Styles:
    vanish: dict[str, bool] = {}
    shaded: set[str] = set()
    based_on: dict[str, str] = {}
    style = ""

    def start(tag: str, attributes: Mapping[str, str]) -> None:
        nonlocal style
        if tag == "style":
            style = attributes.get("styleId", "")
        elif tag == "basedOn":
            based_on[style] = attributes.get("val", "")
        elif tag == "vanish":
            vanish[style] = _is_on(attributes)
        elif tag == "shd" and _is_dark(attributes):
            shaded.add(style)

    if source:
        _xml.parse([source], start)

    def hides(style: str) -> bool:
        seen: set[str] = set()
        while style not in vanish and style in based_on and style not in seen:
            seen.add(style)
            style = based_on[style]
        found = vanish.get(style, False)
        vanish.update(dict.fromkeys(seen, found))
        return found

    known = {*vanish, *based_on}
    return _Styles(frozenset(filter(hides, known)), frozenset(shaded))


@dataclass(slots=True)
class _Run:
    start: int
    vanish: bool | None = None
    """as it says itself"""
    styled: bool = False
    """whether its style hides it"""
    white: bool = False
    shaded: bool = False
    characters: int = 0


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
        self._grounds: list[bool] = []
        """for each paragraph, cell, table and box around: whether its ground has a colour, or that
        of one around it"""
        self._veiled: list[bool] = []
        """for each paragraph around: whether its style hides it"""
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text
        _xml.walk(source, self._parser)

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        tag = name[name.find(":") + 1 :]
        values = {key[key.find(":") + 1 :]: value for key, value in attributes.items()}
        self._path.append(tag)
        parent = self._path[-2] if len(self._path) > 1 else ""
        match tag:
            case "r":
                self._runs.append(_Run(self._parser.CurrentByteIndex))
            case "p":
                self._grounds.append(self._is_grounded())
                self._veiled.append(False)
            case "tbl" | "tc":
                self._grounds.append(self._is_grounded())
            case "moveFrom":
                self._moved += 1
            case "txbxContent":
                # Boxes have fills of many makes.
                self._grounds.append(True)
            case "pStyle" if self._veiled:
                self._veiled[-1] = values.get("val") in self._styles.vanish
                self._grounds[-1] |= values.get("val") in self._styles.shaded
            case "tblStyle" if self._grounds:
                self._grounds[-1] |= values.get("val") in self._styles.shaded
            case "shd" if self._grounds and parent in ("pPr", "tcPr", "tblPr"):
                self._grounds[-1] |= _is_dark(values)
            case _ if parent == "rPr" and self._runs and self._path[-3:-2] == ["r"]:
                self._format(tag, values)
            case _:
                pass

    def _format(self, tag: str, values: Mapping[str, str]) -> None:
        run = self._runs[-1]
        match tag:
            case "vanish":
                run.vanish = _is_on(values)
            case "rStyle":
                run.styled = values.get("val") in self._styles.vanish
                run.shaded |= values.get("val") in self._styles.shaded
            case "color":
                run.white = values.get("val", "").upper() in _WHITE and "themeColor" not in values
            case "shd":
                run.shaded |= _is_dark(values)
            case "highlight":
                run.shaded |= values.get("val") not in ("none", "white")
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
                self._veiled.pop()

    def _end_run(self, run: _Run) -> None:
        styled = run.styled or bool(self._veiled and self._veiled[-1])
        hidden = styled if run.vanish is None else run.vanish
        hidden = hidden or (run.white and not run.shaded and not self._is_grounded())
        is_moved = self._moved > 0  # where it went to it is text
        if is_moved or (hidden and run.characters):
            end = self._source.find(b">", self._parser.CurrentByteIndex) + 1
            # An outer one comes after those within it.
            while self.cuts and self.cuts[-1][0] > run.start:
                self.cuts.pop()
            self.cuts.append((run.start, end))
            self.characters += 0 if is_moved else run.characters

    def _is_grounded(self) -> bool:
        return bool(self._grounds and self._grounds[-1])

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


def _as_utf8(source: bytes) -> bytes:
    if not source.startswith(_UTF_16):
        return source
    text = source.decode("utf-16" if source[:1] in b"\xff\xfe" else _order(source), "replace")
    return re.sub(r"""(<\?xml[^>]*?)\s+encoding\s*=\s*["'][^"']*["']""", r"\1", text).encode()


def _order(source: bytes) -> str:
    return "utf-16-be" if source.startswith(b"\0") else "utf-16-le"


def _is_on(values: Mapping[str, str]) -> bool:
    return values.get("val", "1") not in ("0", "false", "off")


def _is_dark(values: Mapping[str, str]) -> bool:
    """Whether a shading makes the ground another than white."""
    fill = values.get("fill", "auto").upper()
    return fill not in ("AUTO", *_WHITE) or "themeFill" in values
