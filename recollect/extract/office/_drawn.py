"""What Office Open XML files keep in parts of their own: charts, SmartArt, remarks.

Charts: ECMA-376 part 1, 21.2; SmartArt: 21.4.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from recollect.errors import Permanent
from recollect.extract import _xml
from recollect.extract._text import clean_line
from recollect.extract._zip import Package
from recollect.extract.office import _ooxml, _slides

Shown = Callable[[float, str], str]
_CHART, _DIAGRAM = "chart", "diagramData"
KINDS = (_CHART, _DIAGRAM)
_AXES = frozenset({"catAx", "valAx", "dateAx", "serAx"})
_NAMED = {"cat": "cat", "xVal": "cat", "val": "val", "yVal": "val", "bubbleSize": "size"}
_MOST_CELLS = 100_000
"""of the table that a chart becomes"""
_UNSHOWN = ("doc", "pres")
"""types of points of SmartArt that have no words"""


class Drawings:
    """Those that a part refers to, each told once; none that is damaged."""

    def __init__(self, package: Package, part: str, shown: Shown | None) -> None:
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
            return _Chart(self._package, target).blocks(self._shown)
        except Permanent:
            return []


def paragraphs(
    package: Package, part: str, sees: _xml.Start = lambda tag, values: None
) -> list[str]:
    """The words of a part's paragraphs (`a:p`), and of its elements `text`; `sees` is called with
    each tag."""
    found: list[str] = []
    words: list[str] = []
    inside = False

    def start(tag: str, attributes: Mapping[str, str]) -> None:
        nonlocal inside
        inside = tag in ("t", "text")
        sees(tag, attributes)

    def end(tag: str) -> None:
        nonlocal inside
        inside = False
        if tag in ("p", "text") and (told := clean_line(_ooxml.unescaped("".join(words)))):
            found.append(told)
        if tag in ("p", "text"):
            words.clear()

    def text(piece: str) -> None:
        if inside:
            words.append(piece)

    with suppress(Permanent):
        _xml.parse(package.pieces(part), start, end, text)
    return found


@dataclass(slots=True)
class _Series:
    name: list[str] = field(default_factory=list[str])
    format: dict[str, str] = field(default_factory=dict[str, str])
    points: dict[str, dict[int, list[str]]] = field(default_factory=dict[str, dict[int, list[str]]])
    """texts by number, of `cat`, `val` and `size`; several of those that are in groups"""


class _Chart:
    def __init__(self, package: Package, part: str) -> None:
        self._title: list[str] = []
        self._axes: list[list[str]] = []
        self._series: list[_Series] = []
        self._path: list[str] = []
        self._point = 0
        self._words: list[str] = []
        _xml.parse(package.pieces(part), self._start, self._end, self._text)

    def blocks(self, shown: Shown | None) -> list[str]:
        titles = [clean_line(" ".join(words)) for words in (self._title, *self._axes)]
        told = [title for title in titles if title]
        rows = self._rows(shown) if shown else []
        return ["; ".join(told)] * bool(told) + _slides.table(rows)

    def _rows(self, shown: Shown) -> list[list[str]]:
        columns: list[tuple[str, Mapping[int, str]]] = []
        labels: dict[int, str] = {}
        for number, series in enumerate(self._series, 1):
            name = clean_line(" ".join(series.name)) or f"{number}"
            for kind, points in series.points.items():
                texts = {
                    at: _text(" / ".join(reversed(parts)), series.format.get(kind, ""), shown)
                    for at, parts in points.items()
                }
                if kind == "cat":
                    labels = labels or texts
                columns += [(name, texts)] if kind != "cat" or texts != labels else []
        numbers = sorted({at for _, texts in columns for at in texts} | set(labels))
        header = ["", *(name for name, _ in columns)]
        del numbers[_MOST_CELLS // len(header) :]
        return [header] + [
            [labels.get(at, ""), *(texts.get(at, "") for _, texts in columns)] for at in numbers
        ]

    def _start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._path.append(tag)
        if tag == "ser":
            self._series.append(_Series())
        elif tag == "pt":
            number = attributes.get("idx", "")
            self._point = int(number) if number.isdecimal() and len(number) < 7 else 0
        elif tag == "title" and self._path[-2:-1] and self._path[-2] in _AXES:
            self._axes.append([])

    def _end(self, tag: str) -> None:
        if tag in ("t", "v", "formatCode"):
            self._say("".join(self._words), tag)
        self._words.clear()
        self._path.pop()

    def _text(self, piece: str) -> None:
        if self._path and self._path[-1] in ("t", "v", "formatCode"):
            self._words.append(piece)

    def _say(self, words: str, tag: str) -> None:
        path = self._path
        if "ser" in path:
            series = self._series[-1]
            part = path[path.index("ser") + 1]
            if part == "tx" and tag != "formatCode":
                series.name.append(words)
            elif kind := _NAMED.get(part):
                if tag == "formatCode":
                    series.format[kind] = words
                else:
                    points = series.points.setdefault(kind, {})
                    points.setdefault(self._point, []).append(clean_line(words))
        elif "title" in path and tag != "formatCode":
            around = path[path.index("title") - 1]
            if around == "chart":
                self._title.append(words)
            elif around in _AXES:
                self._axes[-1].append(words)


def _text(text: str, format: str, shown: Shown) -> str:
    try:
        return shown(float(text), format)
    except ValueError:
        return text


class _Diagram:
    """The points of a tree."""

    def __init__(self, package: Package, part: str) -> None:
        self._texts: dict[str, str] = {}
        self._roots: list[str] = []
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
                self._roots.append(self._id)
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
