"""What Office Open XML files keep in parts of their own: charts, SmartArt, remarks.

SmartArt: ECMA-376 part 1, 21.4.
"""

from collections.abc import Mapping
from contextlib import suppress

from recollect.errors import Permanent
from recollect.extract import _xml
from recollect.extract._text import clean_line
from recollect.extract._zip import Package
from recollect.extract.office import _charts, _ooxml, _slides

_DIAGRAM = "diagramData"
KINDS = ("chart", "chartEx", _DIAGRAM)
_UNSHOWN = ("doc", "pres")
"""types of points of SmartArt that have no words"""


class Drawings:
    """Those that a part refers to, each told once; none that is damaged."""

    def __init__(self, package: Package, part: str, shown: _charts.Shown | None) -> None:
        """`shown` makes of a number and its format what a reader sees; without it charts have only
        their titles, as their numbers stand in the cells."""
        self._package, self._part, self._shown = package, part, shown
        self._relations: Mapping[str, _ooxml.PartRelation] | None = None
        self._told: set[str] = set()

    def blocks(self, id: str) -> list[str]:
        """Of a chart or diagram, by the id of its relation, as Markdown."""
        try:
            if self._relations is None:
                self._relations = _ooxml.relations(self._package, self._part)
            kind, target = self._relations.get(id, ("", ""))
            if kind not in KINDS or target in self._told or target not in self._package.names:
                return []
            self._told.add(target)
            if kind == _DIAGRAM:
                return _Diagram(self._package, target).blocks()
            blocks = _charts.Chart(self._package, target, self._shown).blocks()
            drawn = _ooxml.related(self._package, target, "chartUserShapes")
            return blocks + (paragraphs(self._package, drawn) if drawn else [])
        except Permanent:
            return []


def paragraphs(
    package: Package, part: str, sees: _xml.Start = lambda tag, values: None
) -> list[str]:
    """The words of a part's paragraphs (`a:p`), and of its elements `text`; `sees` is called with
    each tag. Not those for readers that do not know what the choice ahead of them uses, and of
    remarks the answers behind what they answer."""
    found: list[str] = []
    answers: list[str] = []
    words: list[str] = []
    inside = False
    fallbacks = replies = 0

    def start(tag: str, attributes: Mapping[str, str]) -> None:
        nonlocal inside, fallbacks, replies
        fallbacks += tag == "Fallback"
        replies += tag == "replyLst"
        inside = tag in ("t", "text") and not fallbacks
        sees(tag, attributes)

    def end(tag: str) -> None:
        nonlocal inside, fallbacks, replies
        inside = False
        fallbacks -= tag == "Fallback"
        replies -= tag == "replyLst"
        if tag in ("p", "text") and (told := clean_line(_ooxml.unescaped("".join(words)))):
            (answers if replies else found).append(told)
        if tag in ("p", "text"):
            words.clear()
        elif tag == "cm":
            found.extend(answers)
            answers.clear()

    def text(piece: str) -> None:
        if inside:
            words.append(piece)

    with suppress(Permanent):
        _xml.parse(package.pieces(part), start, end, text)
    return found


class _Diagram:
    """The points of a tree."""

    def __init__(self, package: Package, part: str) -> None:
        self._texts: dict[str, str] = {}
        self._roots: dict[str, None] = {}
        self._below: dict[str, list[tuple[int, str]]] = {}
        self._id = self._kind = ""
        self._words: list[str] = []
        self._inside = False
        _xml.parse(package.pieces(part), self._start, self._end, self._text)

    def blocks(self) -> list[str]:
        items: list[str] = []
        seen: set[str] = set()
        for root in (*self._roots, *self._texts):
            waiting = [(root, -1 if root in self._roots else 0)]
            while waiting:
                id, level = waiting.pop()
                if id in seen:
                    continue
                seen.add(id)
                if told := self._texts.get(id):
                    items.append(_slides.item(told, level))
                below = sorted(self._below.get(id, ()), reverse=True)
                waiting += [(other, level + 1) for _, other in below]
        return ["\n".join(items)] if items else []

    def _start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._inside = tag == "t" and bool(self._id)
        if tag == "pt":
            self._id, self._kind = attributes.get("modelId", ""), attributes.get("type", "node")
            if self._kind == "doc":
                self._roots[self._id] = None
        elif tag == "cxn" and attributes.get("type", "parOf") == "parOf":
            order = attributes.get("srcOrd", "")
            at = int(order) if order.isdecimal() and len(order) < 7 else 0
            self._below.setdefault(attributes.get("srcId", ""), []).append(
                (at, attributes.get("destId", ""))
            )

    def _end(self, tag: str) -> None:
        self._inside = False
        if tag == "p":
            self._words.append(" ")
        elif tag == "pt":
            if (told := clean_line("".join(self._words))) and self._kind not in _UNSHOWN:
                self._texts[self._id] = told
            self._id = ""
            self._words.clear()

    def _text(self, piece: str) -> None:
        if self._inside:
            self._words.append(piece)
