"""DOCX with the numbers that Word shows and nobody typed: "Article 2", "2.1", "(a)".

xberg numbers lists, each from 1 in Arabic numerals; headings and cells of tables have none.
ECMA-376 part 1, 17.9.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from xml.parsers import expat
from xml.sax.saxutils import escape

from recollect.extract import _xml
from recollect.extract._numerals import numeral

_HEADING = re.compile(r"heading|title", re.IGNORECASE)
_PLACE = re.compile("%([1-9])")
_PLAIN = re.compile(r"%[1-9][.)]?")
"""what xberg writes by itself"""
_LIST = re.compile(rb"""numId\s[^<>]*?val=["'](\d{1,9})["']""")
_ENDS = frozenset({"p", "pPr", "numPr", "pStyle"})
_SAYING = frozenset({"pStyle", "outlineLvl", "numId", "ilvl", "del"})
_LONGEST = 100
"""characters of a level's text"""
_LAST_LEVEL = 8
_DEEPEST = 50
"""styles based on each other"""
_DIGITS = re.compile("[0-9]{1,6}")
_SEEN = frozenset({"decimal", "lowerLetter", "upperLetter", "lowerRoman", "upperRoman"})


def _number(value: str) -> int:
    return int(value) if _DIGITS.fullmatch(value) else 0


def _level(value: str) -> int:
    return min(_number(value), _LAST_LEVEL)


class _Level:
    """What is said of a level of a list, by tag: `start`, `numFmt`, `lvlText` …"""

    def __init__(self, said: Mapping[str, str]) -> None:
        self.start = _number(said.get("start", ""))
        self.format = said.get("numFmt", "decimal")
        self.text = said.get("lvlText", "")[:_LONGEST]
        self.style = said.get("pStyle")
        """of the paragraphs that are on this level without saying so"""
        self.is_legal = said.get("isLgl", "off") not in ("0", "false", "off")
        """whether the numbers of the levels above are in Arabic numerals"""
        self.restart = _number(said["lvlRestart"]) if "lvlRestart" in said else None
        """after which level it starts again, counted from 1; 0: never; None: after any above"""
        self.gap = "" if said.get("suff") == "nothing" else " "


_BULLET = _Level({"numFmt": "bullet"})


@dataclass(slots=True)
class _List:
    """One that counts (`abstractNum`), or one that counts together with others (`num`)."""

    levels: dict[int, dict[str, str]] = field(default_factory=dict[int, dict[str, str]])
    starts: dict[int, int] = field(default_factory=dict[int, int])
    """of a `num`: where levels start again, once it is met"""
    counts: str = ""
    """of a `num`: the id of the one that counts"""
    style: str = ""
    """of one that counts: the style that says by which `num` it does"""


@dataclass(slots=True)
class _Style:
    name: str = ""
    based_on: str = ""
    list: str | None = None
    level: int | None = None
    outline: bool = False


@dataclass(slots=True)
class _Paragraph:
    at: int | None
    """where its text begins; None: it has none"""
    style: str
    list: str | None = None
    level: int | None = None
    outline: bool = False
    says: bool = False
    """whether a reader sees words in it"""
    deleted: bool = False
    cuts: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """where `numPr` and `pStyle` stand"""


def numbered(source: bytes, styles: bytes, lists: bytes) -> bytes:
    """The main part, in UTF-8, with such numbers as text; a part that it does not have is empty.
    Raises Permanent for broken XML."""
    if not lists or not any(b"numPr" in part for part in (source, styles)):
        return source
    known = _Styles(styles)
    found = _Lists(lists, known)
    if _has_bullets_alone(source, known, found):
        return source
    return _Numbering(source, known, found).written()


def _has_bullets_alone(source: bytes, styles: "_Styles", lists: "_Lists") -> bool:
    """A quick look at the lists that are in use, which says no where it cannot tell."""
    named = _LIST.findall(source)
    ids = {style.list for style in styles.of.values() if style.list} | {id.decode() for id in named}
    found = [lists.find(id) for id in ids]
    return len(named) == source.count(b"numId") and all(
        one and not one.seen and all(level.format == "bullet" for level in one.levels.values())
        for one in found
    )


class _Styles:
    def __init__(self, source: bytes) -> None:
        self.of: dict[str, _Style] = {}
        self.default = ""
        style = _Style()

        def start(tag: str, values: Mapping[str, str]) -> None:
            nonlocal style
            value = values.get("val", "")
            match tag:
                case "style":
                    style = self.of[values.get("styleId", "")] = _Style()
                    if values.get("type") == "paragraph" and values.get("default") in ("1", "true"):
                        self.default = values.get("styleId", "")
                case "name":
                    style.name = style.name or value
                case "basedOn":
                    style.based_on = value
                case "numId":
                    style.list = value
                case "ilvl":
                    style.level = _level(value)
                case "outlineLvl":
                    style.outline = _number(value) < 9
                case _:
                    pass

        if source:
            _xml.parse([source], start)

    def chain(self, id: str) -> list[tuple[str, _Style]]:
        """A style and those that it is based on."""
        found: dict[str, _Style] = {}
        while id in self.of and id not in found and len(found) < _DEEPEST:
            found[id] = self.of[id]
            id = found[id].based_on
        return list(found.items())


class _Lists:
    def __init__(self, source: bytes, styles: _Styles) -> None:
        self._counting: dict[str, _List] = {}
        self._used: dict[str, _List] = {}
        self._found: dict[str, _Found | None] = {}
        self._styles = styles
        now, at = _List(), 0

        def start(tag: str, values: Mapping[str, str]) -> None:
            nonlocal now, at
            value = values.get("val", "on")
            match tag:
                case "abstractNum":
                    now = self._counting[values.get("abstractNumId", "")] = _List()
                case "num":
                    now = self._used[values.get("numId", "")] = _List()
                case "abstractNumId":
                    now.counts = value
                case "numStyleLink":
                    now.style = value
                case "lvlOverride":
                    at = _level(values.get("ilvl", ""))
                case "lvl":
                    at = _level(values.get("ilvl", ""))
                    now.levels[at] = {}
                case "startOverride":
                    now.starts[at] = _number(value)
                case _ if at in now.levels:
                    now.levels[at].setdefault(tag, value)
                case _:
                    pass

        _xml.parse([source], start)

    def find(self, id: str) -> "_Found | None":
        """By the id of a `num`."""
        if id not in self._found:
            self._found[id] = self._find(id)
        return self._found[id]

    def _find(self, id: str) -> "_Found | None":
        used = self._used.get(id)
        if used is None or used.counts not in self._counting:
            return None
        counts, counting = used.counts, self._counting[used.counts]
        for _, style in self._styles.chain(counting.style):
            other = self._used.get(style.list or "")
            if other is not None and other.counts in self._counting:
                counts, counting = other.counts, self._counting[other.counts]
                break
        said = {**counting.levels, **used.levels}
        seen = self._counting[used.counts].levels
        return _Found(
            counts,
            used,
            {at: _Level(level) for at, level in said.items()},
            frozenset(at for at, level in seen.items() if level.get("numFmt") in _SEEN),
        )


@dataclass(frozen=True, slots=True)
class _Found:
    counts: str
    """the id of the one that counts"""
    used: _List
    levels: Mapping[int, _Level]
    seen: frozenset[int]
    """levels to which xberg gives numbers: it sees neither overrides nor links"""


class _Numbering:
    """One walk over the text."""

    def __init__(self, source: bytes, styles: _Styles, lists: _Lists) -> None:
        self._source, self._styles, self._lists = source, styles, lists
        self._edits: list[tuple[int, int, bytes]] = []
        self._counts: dict[str, dict[int, int]] = {}
        """of each list that counts, by level"""
        self._met: set[str] = set()
        self._run: tuple[str, dict[int, int]] = ("", {})
        """what xberg has counted by now: in which list, by level"""
        self._path: list[str] = []
        self._open: list[_Paragraph] = []
        self._starts: list[int] = []
        self._prefix = b""
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text
        _xml.walk(source, self._parser)

    def written(self) -> bytes:
        return _xml.edited(self._source, self._edits)

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        prefix, _, tag = name.rpartition(":")
        if not self._path:
            self._prefix = f"{prefix}:".encode() if prefix else b""
        self._path.append(tag)
        if tag in _ENDS:
            self._starts.append(self._parser.CurrentByteIndex)
        if tag == "p":
            here = self._starts[-1]
            at = None if self._is_empty(here) else _xml.tag_end(self._source, here)
            self._open.append(_Paragraph(at, self._styles.default))
        elif tag == "tbl":
            self._run = ("", {})
        elif tag in _SAYING and self._open:
            self._say(_xml.plain(attributes).get("val", ""))

    def _say(self, value: str) -> None:
        paragraph = self._open[-1]
        match self._path[-4:]:
            case [_, "p", "pPr", "pStyle"]:
                paragraph.style = value
            case [_, "p", "pPr", "outlineLvl"]:
                paragraph.outline = _number(value) < 9
            case ["p", "pPr", "numPr", "numId"]:
                paragraph.list = value
            case ["p", "pPr", "numPr", "ilvl"]:
                paragraph.level = _level(value)
            case ["p", "pPr", "rPr", "del"]:
                paragraph.deleted = True
            case _:
                pass

    def _end(self, _: str) -> None:
        tag = self._path.pop()
        if tag not in _ENDS:
            return
        start = self._starts.pop()
        if tag == "p":
            self._number(self._open.pop())
            return
        if self._path[-1:] != ["p"] and self._path[-2:] != ["p", "pPr"]:
            return
        # Of a tag that ends itself the end is what stands behind it.
        here = self._parser.CurrentByteIndex
        behind = here if self._is_empty(start) else _xml.tag_end(self._source, here)
        if tag == "pPr":
            self._open[-1].at = behind
        else:
            self._open[-1].cuts[tag] = (start, behind)

    def _text(self, text: str) -> None:
        if self._open and self._path[-1] == "t" and not text.isspace():
            self._open[-1].says = True

    def _number(self, paragraph: _Paragraph) -> None:
        if paragraph.deleted or "Fallback" in self._path:
            return
        chain = self._styles.chain(paragraph.style)
        id = paragraph.list or next((one.list for _, one in chain if one.list), "")
        found = self._lists.find(id)
        is_heading = paragraph.outline or any(
            style.outline or _HEADING.match(style.name) for _, style in chain
        )
        if found is None:
            self._run = ("", {}) if paragraph.says else self._run
            if id:  # xberg sees the list of the style all the same
                self._write(paragraph, "", keep_style=is_heading)
            return
        used, levels = found.used, found.levels
        level = _level_of(paragraph, chain, levels)
        shown = levels.get(level, _BULLET)
        counts = self._count(found.counts, id, used, levels, level)
        if shown.format == "bullet":
            if level in found.seen and paragraph.says:
                self._run = ("", {})
                self._write(paragraph, "- ", keep_style=False)
            self._run = self._run if self._run[0] == id else ("", {})
            return

        def written(place: re.Match[str]) -> str:
            at = int(place[1]) - 1
            of = levels.get(at, _BULLET)
            return numeral(counts.get(at, of.start), "decimal" if shown.is_legal else of.format)

        in_cell = "tc" in self._path
        last, run = self._run
        run = {at: n for at, n in run.items() if at <= level} if last == id else {}
        run[level] = run.get(level, 0) + 1
        if (
            (shown.format, run[level]) == ("decimal", counts[level])
            and _PLAIN.fullmatch(shown.text)
            and level in found.seen
            and not (is_heading or in_cell)
        ):
            self._run = (id, run) if paragraph.says else self._run
        elif paragraph.says or in_cell:
            self._run = ("", {})
            label = _PLACE.sub(written, shown.text)
            self._write(paragraph, label and label + shown.gap, keep_style=is_heading)

    def _count(
        self,
        counting: str,
        id: str,
        used: _List,
        levels: Mapping[int, _Level],
        level: int,
    ) -> Mapping[int, int]:
        """The numbers of a list at its next paragraph, by level."""
        counts = self._counts.setdefault(counting, {})
        if id not in self._met:
            self._met.add(id)
            if level in used.starts:
                counts.pop(level, None)
        for at in range(level + 1):
            if at not in counts:  # also above: "1.1" without a "1" ahead is followed by "2"
                counts[at] = used.starts.get(at, levels.get(at, _BULLET).start)
            elif at == level:
                counts[at] += 1
        for below in [at for at in counts if at > level]:
            restart = levels.get(below, _BULLET).restart
            if restart is None or level < restart:
                del counts[below]
        return counts

    def _write(self, paragraph: _Paragraph, label: str, *, keep_style: bool) -> None:
        """Put it before the text, and have xberg count the paragraph no more."""
        for tag, (start, end) in paragraph.cuts.items():
            if tag == "numPr" or not keep_style:
                self._edits.append((start, end, b""))
        if label and paragraph.at is not None:
            w, said = self._prefix, escape(label).encode()
            run = b'<%sr><%st xml:space="preserve">%s</%st></%sr>' % (w, w, said, w, w)
            self._edits.append((paragraph.at, paragraph.at, run))

    def _is_empty(self, start: int) -> bool:
        return self._source.startswith(b"/>", _xml.tag_end(self._source, start) - 2)


def _level_of(
    paragraph: _Paragraph, chain: Sequence[tuple[str, _Style]], levels: Mapping[int, _Level]
) -> int:
    """What a paragraph does not say of its list and level holds from its style, each by itself."""
    if paragraph.level is not None:
        return paragraph.level
    for id, style in chain:
        for at, level in levels.items():
            if level.style == id and not paragraph.list:
                return at
        if style.level is not None:
            return style.level
    return 0
