"""ODT with the numbers that a reader sees and nobody typed: "Article 2", "2.1", "(a)".

xberg numbers the items of a list from 1 in Arabic numerals, and each of their paragraphs. It takes
headings within a list for items, and loses headers of lists and numbered paragraphs.
OpenDocument 1.3 part 3: 5.3 (lists), 16.30 to 16.35 (their styles), 19.880 (levels shown).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from xml.parsers import expat
from xml.sax.saxutils import escape

from recollect.extract import _xml
from recollect.extract._numerals import numeral

_BODY = b"<office:body"
_NEEDS = (b"<text:list", b"<text:numbered-paragraph")
_LEVELS = frozenset({"list-level-style-number", "outline-level-style"})
_OTHER_LEVELS = frozenset({"list-level-style-bullet", "list-level-style-image"})
_PARAGRAPHS = frozenset({"text:p", "text:h"})
_ITEMS = frozenset({"text:list-item", "text:list-header"})
_CELL, _DELETED = "table:table-cell", "text:tracked-changes"
_PLACE = re.compile("%([0-9]{1,2})%")
_DIGITS = re.compile("[0-9]{1,6}")
_SYNCED = {"a": "lowerLetter", "A": "upperLetter"}
"""`aa` and `bb` follow `z`"""
_FORMATS = {
    "a": "lowerAlpha",
    "A": "upperAlpha",
    "i": "lowerRoman",
    "I": "upperRoman",
    "01, 02, 03, ...": "decimalZero",
    "1st, 2nd, 3rd, ...": "ordinal",
    "一, 二, 三, ...": "chineseCounting",
}
_LONGEST = 100
"""characters ahead of a number, or behind it"""
_MOST_LEVELS = 10


def _number(value: str | None, other: int) -> int:
    return int(value) if value and _DIGITS.fullmatch(value) else other


class _Level:
    """What is said of a level of a list, by attribute; None: it has bullets, or pictures."""

    def __init__(self, said: Mapping[str, str] | None) -> None:
        self.is_bullet = said is None
        said = said or {}
        self.format = said.get("num-format", "")
        if said.get("num-letter-sync") == "true":
            self.format = _SYNCED.get(self.format, self.format)
        self.before = said.get("num-prefix", "")[:_LONGEST]
        self.behind = said.get("num-suffix", "")[:_LONGEST]
        self.shown = _number(said.get("display-levels"), 1)
        """how many levels, with those above, its number shows"""
        self.start = _number(said.get("start-value"), 1)
        self.pattern = said.get("num-list-format", "")[:_LONGEST]
        """of LibreOffice: `Article %1%.`"""
        self.gap = " "
        self.is_shown = bool(self.format or self.before or self.behind)

    def numeral(self, value: int) -> str:
        return numeral(value, _FORMATS.get(self.format, self.format)) if self.format else ""


_BULLET = _Level(None)
_Levels = Mapping[int, _Level]
"""by their depth, from 1"""


@dataclass(slots=True)
class _Root:
    """An open list that is in no other, or what is in none."""

    counts: dict[int, int] = field(default_factory=dict[int, int])
    """the last number, by level"""
    lists: "list[_List]" = field(default_factory=list["_List"])
    """it and those within it that are open"""
    kept: list[tuple[int, int, bytes]] = field(default_factory=list[tuple[int, int, bytes]])
    flat: list[tuple[int, int, bytes]] = field(default_factory=list[tuple[int, int, bytes]])
    """edits that leave it a list for xberg, and those that leave paragraphs of it"""
    is_flat: bool = False


@dataclass(slots=True)
class _List:
    tag: tuple[int, int]
    style: str
    """its own, or that of the list around it"""
    is_numbered: bool
    """whether xberg gives its items numbers"""
    items: int = 0
    """those that xberg has numbered"""
    shows: set[str] = field(default_factory=set[str])
    """styles of its items that have numbers; empty: one that has bullets"""
    item: "_Item | None" = None


@dataclass(slots=True)
class _Item:
    override: str = ""
    start: int | None = None
    has_begun: bool = False
    """whether its number is given; a header has none"""


@dataclass(slots=True)
class _Paragraph:
    name: str
    tag: tuple[int, int]
    is_empty: bool
    """whether its tag ends itself"""
    root: _Root
    """the one that it is in"""
    label: str | None = None
    """None: it needs none"""
    level: _Level = _BULLET
    style: str = ""
    says: bool = False
    """whether a reader sees words in it"""


def numbered(source: bytes, styles: bytes | None) -> bytes:
    """The text's part with such numbers as text. Raises Permanent for broken XML."""
    known = _Styles(source, styles)
    if not known.counts_headings and not any(need in source for need in _NEEDS):
        return source
    return _Numbering(source, known).written()


class _Styles:
    """Those of both parts. Names of automatic ones, in the text's, come first."""

    def __init__(self, source: bytes, others: bytes | None) -> None:
        self._lists: dict[str, dict[int, _Level]] = {}
        self.outline: dict[int, _Level] = {}
        self._paragraphs: dict[str, tuple[str, str | None]] = {}
        """by name: the style that it is based on, and that of its list"""
        now: dict[int, _Level] = {}
        level = _BULLET

        def start(tag: str, values: Mapping[str, str]) -> None:
            nonlocal now, level
            name = values.get("name", "")
            match tag:
                case "list-style":
                    now = self._lists[name] = {}
                case "outline-style":
                    now = self.outline = {}
                case "style" if values.get("family") == "paragraph":
                    parent = values.get("parent-style-name", "")
                    self._paragraphs[name] = parent, values.get("list-style-name")
                case _ if tag in _LEVELS or tag in _OTHER_LEVELS:
                    level = _Level(values if tag in _LEVELS else None)
                    now[_number(values.get("level"), 1)] = level
                case "list-level-label-alignment":
                    level.gap = "" if values.get("label-followed-by") == "nothing" else " "
                case _:
                    pass

        if others is not None:
            _xml.parse([others], start)
        # The text behind has no styles, and is not read for them.
        next(_xml.steps([source[: max(source.find(_BODY), 0)]], start), None)
        self.counts_headings = any(level.is_shown for level in self.outline.values())

    def levels(self, name: str) -> _Levels:
        return self._lists.get(name, {})

    def is_numbered(self, name: str) -> bool:
        """Whether xberg numbers a list that has it."""
        return any(not level.is_bullet for level in self.levels(name).values())

    def list_of(self, paragraph: str) -> str | None:
        """The style of its list that the style of a paragraph names, if only with the empty
        name."""
        seen: set[str] = set()
        of = None
        while of is None and paragraph in self._paragraphs and paragraph not in seen:
            seen.add(paragraph)
            paragraph, of = self._paragraphs[paragraph]
        # So that a chain of styles is walked once, and not for each paragraph.
        self._paragraphs.update(dict.fromkeys(seen, ("", of)))
        return of


class _Numbering:
    """One walk over the text."""

    def __init__(self, source: bytes, styles: _Styles) -> None:
        self._source, self._styles = source, styles
        self._edits: list[tuple[int, int, bytes]] = []
        self._root = self._none = _Root()
        self._roots: list[_Root] = []
        """those around the open paragraphs"""
        self._paragraphs: list[_Paragraph] = []
        self._headings: dict[int, int] = {}
        self._by_id: dict[str, dict[int, int]] = {}
        self._last: tuple[str, dict[int, int]] = ("", {})
        """the style and the numbers of the list before"""
        self._cells = self._deleted = 0
        self._typed: int | None = None
        """where a number begins that the program of its author wrote"""
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text
        _xml.walk(source, self._parser)

    def written(self) -> bytes:
        return _xml.edited(self._source, self._edits)

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        if self._deleted or name == _DELETED:
            self._deleted += name == _DELETED
        elif name in _PARAGRAPHS:
            self._start_paragraph(name, attributes)
        elif name == _CELL:
            self._cells += 1
        elif name == "text:number":
            self._typed = self._parser.CurrentByteIndex
        elif name == "text:list":
            self._start_list(attributes)
        elif name in _ITEMS and self._root.lists:
            self._root.flat.append((*self._tag(), b""))
            start = attributes.get("text:start-value")
            self._root.lists[-1].item = _Item(
                attributes.get("text:style-override", ""),
                _number(start, 0) if start else None,
                has_begun=name == "text:list-header",
            )
            self._root.is_flat |= name == "text:list-header"
        elif name == "text:numbered-paragraph":
            self._start_numbered(attributes)
        elif name == "draw:text-box" and self._paragraphs:
            # What is in it comes behind its paragraph, where xberg would give it a number.
            self._roots[-1].is_flat |= not self._paragraphs[-1].level.is_bullet

    def _end(self, name: str) -> None:
        if self._deleted:
            self._deleted -= name == _DELETED
        elif name in _PARAGRAPHS:
            self._end_paragraph(self._paragraphs.pop())
        elif name == _CELL:
            self._cells -= 1
        elif name == "text:number" and self._typed is not None:
            self._edits.append((self._typed, self._behind(self._typed), b""))
            self._typed = None
        elif name == "text:list" and self._root.lists:
            self._end_list(self._root.lists.pop())
        elif name in _ITEMS and self._root.lists:
            self._cut_end(self._root.flat)
            self._root.lists[-1].item = None
        elif name == "text:numbered-paragraph" and self._root.lists:
            self._cut_end(self._root.flat)
            self._close_root()

    def _text(self, text: str) -> None:
        if self._paragraphs and self._typed is None and not text.isspace():
            self._paragraphs[-1].says = True

    def _start_list(self, attributes: Mapping[str, str]) -> None:
        named = attributes.get("text:style-name", "")
        lists = self._root.lists
        if lists:
            around = lists[-1]
            # Of an item that has no words of its own xberg writes one sign behind another.
            self._root.is_flat |= around.item is None or not around.item.has_begun
            style = named or around.style
        else:
            self._open_root(attributes, named)
            style = named
        tag = self._tag()
        self._root.flat.append((*tag, b""))
        self._root.lists.append(_List(tag, style, self._styles.is_numbered(named)))

    def _end_list(self, ended: _List) -> None:
        self._cut_end(self._root.flat)
        start, end = ended.tag
        numbers = {style for style in ended.shows if style}
        if len(ended.shows) > 1:
            self._root.is_flat = True
        elif numbers and not ended.is_numbered:
            style = escape(numbers.pop(), {'"': "&quot;"})
            self._root.kept.append((start, end, f'<text:list text:style-name="{style}">'.encode()))
        elif ended.shows and not numbers and ended.is_numbered:
            self._root.kept.append((start, end, b"<text:list>"))
        if not self._root.lists:
            self._close_root()

    def _open_root(self, attributes: Mapping[str, str], style: str) -> None:
        counts = self._by_id.get(attributes.get("text:continue-list", ""))
        last_style, last = self._last
        if attributes.get("text:continue-numbering") == "true" and style == last_style:
            counts = last if counts is None else counts
        self._root = _Root({} if counts is None else counts)
        self._last = style, self._root.counts
        if id := attributes.get("xml:id"):
            self._by_id[id] = self._root.counts

    def _close_root(self) -> None:
        self._edits += self._root.flat if self._root.is_flat else self._root.kept
        self._root = self._none

    def _start_numbered(self, attributes: Mapping[str, str]) -> None:
        """A list of one paragraph that says how deep it is (5.3.6)."""
        style = attributes.get("text:style-name", "")
        counts = self._by_id.setdefault(attributes.get("text:list-id") or f" {style}", {})
        start = attributes.get("text:start-value")
        item = _Item(start=_number(start, 0) if start else None)
        depth = min(_number(attributes.get("text:level"), 1) or 1, _MOST_LEVELS)
        lists = [_List(self._tag(), style, is_numbered=False, item=item) for _ in range(depth)]
        self._root = _Root(counts, lists, flat=[(*self._tag(), b"")], is_flat=True)

    def _start_paragraph(self, name: str, attributes: Mapping[str, str]) -> None:
        tag = self._tag()
        is_empty = self._source.startswith(b"/>", tag[1] - 2)
        paragraph = _Paragraph(name, tag, is_empty, self._root)
        if self._root.lists:
            self._number_item(paragraph, attributes)
        elif name == "text:h":
            self._number_heading(paragraph, attributes)
        self._paragraphs.append(paragraph)
        self._roots.append(self._root)
        self._root = self._none

    def _number_item(self, paragraph: _Paragraph, attributes: Mapping[str, str]) -> None:
        root = paragraph.root
        item = root.lists[-1].item
        root.is_flat |= paragraph.name == "text:h" or self._cells > 0
        if item is None or item.has_begun:
            # Of a header, or a further paragraph: xberg gives each a number.
            root.is_flat |= bool(root.lists[-1].shows - {""})
            return
        item.has_begun = True
        own = self._styles.list_of(attributes.get("text:style-name", ""))
        style = item.override or root.lists[-1].style or own or ""
        levels = self._styles.levels(style)
        at = min(len(root.lists), _MOST_LEVELS)
        level = paragraph.level = levels.get(at, _BULLET)
        _count(root.counts, levels, at, item.start)
        paragraph.style = style
        if level.is_bullet:
            paragraph.label = "" if self._cells else "- "
        else:
            paragraph.label = _label(root.counts, levels, at)

    def _number_heading(self, paragraph: _Paragraph, attributes: Mapping[str, str]) -> None:
        at = min(_number(attributes.get("text:outline-level"), 1) or 1, _MOST_LEVELS)
        level = self._styles.outline.get(at, _BULLET)
        of = self._styles.list_of(attributes.get("text:style-name", ""))
        if (
            not level.is_shown
            or attributes.get("text:is-list-header") == "true"
            or of not in (None, "Outline")
        ):
            return
        start = attributes.get("text:start-value")
        begins = attributes.get("text:restart-numbering") == "true"
        other = _number(start, level.start) if begins else None
        _count(self._headings, self._styles.outline, at, other)
        paragraph.label = _label(self._headings, self._styles.outline, at)

    def _end_paragraph(self, paragraph: _Paragraph) -> None:
        self._root = self._roots.pop()
        if self._paragraphs:
            self._paragraphs[-1].says |= paragraph.says
        label = paragraph.label
        if label is None or not (paragraph.says or self._cells):
            return
        edits = self._edits
        if self._root.lists:
            edits = self._root.flat
            self._meet(self._root.lists[-1], paragraph)
        if label and paragraph.is_empty:
            start, end = paragraph.tag
            open_tag = self._source[start : end - 2]
            said = escape(label).encode()
            edits.append((start, end, b"%s>%s</%s>" % (open_tag, said, paragraph.name.encode())))
        elif label:
            edits.append((paragraph.tag[1], paragraph.tag[1], escape(label).encode()))

    def _meet(self, here: _List, paragraph: _Paragraph) -> None:
        """Keep in mind whether it would have in xberg's list what a reader sees."""
        here.items += 1
        if paragraph.level.is_bullet:
            here.shows.add("")
        elif paragraph.label == f"{here.items}. ":
            here.shows.add(paragraph.style)
        else:
            self._root.is_flat = True

    def _cut_end(self, edits: list[tuple[int, int, bytes]]) -> None:
        here = self._parser.CurrentByteIndex
        if self._source.startswith(b"</", here):  # and is not the end of a tag that ended itself
            edits.append((here, _xml.tag_end(self._source, here), b""))

    def _tag(self) -> tuple[int, int]:
        here = self._parser.CurrentByteIndex
        return here, _xml.tag_end(self._source, here)

    def _behind(self, start: int) -> int:
        """The element's end, at the call for it."""
        here = self._parser.CurrentByteIndex
        return _xml.tag_end(self._source, start if here <= start else here)


def _count(counts: dict[int, int], levels: _Levels, at: int, start: int | None) -> None:
    """Go on to the next number of a level."""
    if at in counts and start is None:
        counts[at] += 1
    else:
        # A level above that has no number yet has its first one.
        for place in range(1, at + 1):
            counts.setdefault(place, levels.get(place, _BULLET).start)
        counts[at] = counts[at] if start is None else start
    if len(counts) > at:
        for below in [level for level in counts if level > at]:
            del counts[below]


def _label(counts: Mapping[int, int], levels: _Levels, at: int) -> str:
    """What a reader sees ahead of the words, with the gap; empty where that is nothing."""
    level = levels[at]

    def written(place: int) -> str:
        of = levels.get(place, _BULLET)
        return of.numeral(counts.get(place, of.start))

    if level.pattern:
        label = _PLACE.sub(lambda place: written(int(place[1])), level.pattern)
    else:
        shown = [written(place) for place in range(max(at - level.shown, 0) + 1, at + 1)]
        label = level.before + ".".join(filter(None, shown)) + level.behind
    return label.strip() and label + level.gap
