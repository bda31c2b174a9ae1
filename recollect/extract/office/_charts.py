"""Charts of Office Open XML files: their titles, and their points as a table.

ECMA-376 part 1, 21.2; those of Office 2016 (waterfalls, maps of trees …): MS-ODRAWXML 2.24.3.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from recollect.errors import Permanent
from recollect.extract import _xml
from recollect.extract._text import clean_line
from recollect.extract._zip import Package
from recollect.extract.office import _slides

Shown = Callable[[float, str, bool], str]
"""What a reader sees of a number under a format, and whether its days count from 1904. Raises
ValueError for one that is not finite."""
_DEEPEST = 200
"""elements within each other"""
_AXES = frozenset({"catAx", "valAx", "dateAx", "serAx", "axis"})
_NAMED = {"cat": "cat", "xVal": "cat", "val": "val", "yVal": "val", "bubbleSize": "size"}
_COLUMNS = ("cat", "val", "size", "label")
_LABELS = frozenset({"dLbl", "datalabelsRange"})
"""what an author wrote beside points, and cells whose words stand there"""
_NUMBERS = frozenset({"numCache", "numLit"})
_SAID = frozenset({"t", "v", "formatCode", "pt"})
_MOST_CELLS = 100_000
"""of the table that a chart becomes"""
_MOST_LEVELS = 10
"""of categories in groups"""

_Points = dict[int, list[str]]
"""texts by number"""


@dataclass(slots=True)
class _Series:
    name: list[str] = field(default_factory=list[str])
    points: dict[str, list[_Points]] = field(default_factory=dict[str, list[_Points]])
    """by `_COLUMNS`; several of categories in groups, the inner ones first"""

    def begin_level(self, kind: str) -> None:
        levels = self.points.setdefault(kind, [])
        if len(levels) < _MOST_LEVELS:
            levels.append({})

    def say(self, kind: str, at: int, words: str) -> None:
        points = self.points.setdefault(kind, [{}])[-1]
        points.setdefault(at, []).append(words)


class Chart:
    """Raises Permanent for one that is damaged."""

    def __init__(self, package: Package, part: str, shown: Shown | None) -> None:
        """Without `shown` it has nothing but its titles."""
        self._shown = shown
        self._title: list[str] = []
        self._axes: list[list[str]] = []
        self._series: list[_Series] = []
        self._data: dict[str, _Series] = {}
        """those of Office 2016, by the id of their points"""
        self._kind = ""
        """of the open points among these"""
        self._name: list[str] = []
        self._path: list[str] = []
        self._point = 0
        self._format: str | None = None
        """of the open points; None: they are words"""
        self._words: list[str] = []
        self._from_1904 = False
        _xml.parse(package.pieces(part), self._start, self._end, self._text)

    def blocks(self) -> list[str]:
        """As Markdown."""
        titles = [clean_line("".join(words)) for words in (self._title, *self._axes)]
        told = [title for title in titles if title]
        rows = self._rows() if self._shown else []
        return ["; ".join(told)] * bool(told) + _slides.table(rows)

    def _rows(self) -> list[list[str]]:
        columns: list[tuple[str, Mapping[int, str]]] = []
        labels: Mapping[int, str] = {}
        for number, series in enumerate(self._series, 1):
            name = clean_line(" ".join(series.name)) or f"{number}"
            for kind in filter(series.points.__contains__, _COLUMNS):
                texts = _joined(series.points[kind])
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
        around = self._path[-1] if self._path else ""
        self._path.append(tag)
        if len(self._path) > _DEEPEST:
            raise Permanent("it is nested too deeply")
        match tag:
            case "ser":
                self._series.append(_Series())
            case "pt":
                self._point = _number(attributes.get("idx", ""))
                self._words.clear()
            case "idx" if around == "dLbl":
                self._point = _number(attributes.get("val", ""))
            case "title" if around in _AXES:
                self._axes.append([])
            case "date1904":
                self._from_1904 = attributes.get("val", "1") in ("1", "true")
            case "lvl" if "ser" in self._path:
                self._series[-1].begin_level(self._part())
            case _ if tag in _NUMBERS:
                self._format = ""
            case _:
                self._start_data(tag, attributes)

    def _start_data(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Of Office 2016, where points stand by themselves, ahead of their series."""
        match tag:
            case "data":
                self._series.append(_Series())
                self._data.setdefault(attributes.get("id", ""), self._series[-1])
            case "numDim":
                self._kind = "val"
            case "strDim":
                self._kind = "cat" if attributes.get("type") == "cat" else ""
            case "lvl" if self._kind and "data" in self._path:
                self._series[-1].begin_level(self._kind)
                is_number = self._kind == "val"
                self._format = attributes.get("formatCode", "") if is_number else None
            case "series":
                self._name = []
            case "dataId" if series := self._data.get(attributes.get("val", "")):
                series.name = series.name or self._name
            case _:
                pass

    def _end(self, tag: str) -> None:
        if tag in _SAID:
            self._say("".join(self._words), tag)
            self._words.clear()
        elif tag == "p":
            self._say(" ", tag)
        elif tag in _NUMBERS:
            self._format = None
        self._path.pop()

    def _text(self, piece: str) -> None:
        if self._path and self._path[-1] in _SAID:
            self._words.append(piece)

    def _say(self, words: str, tag: str) -> None:
        path = self._path
        if tag == "formatCode":
            self._format = words
        elif "ser" in path:
            self._say_of_series(words, tag)
        elif "data" in path:
            if tag == "pt" and self._kind:
                self._series[-1].say(self._kind, self._point, self._told(words))
        elif "title" in path and "txPr" not in path:
            around = path[path.index("title") - 1]
            said = [words, " "] if tag == "v" else [words]
            if around == "chart":
                self._title += said
            elif around in _AXES:
                self._axes[-1] += said
        elif "series" in path and tag == "v":
            self._name.append(words)

    def _say_of_series(self, words: str, tag: str) -> None:
        kind = self._part()
        if kind == "tx" and tag == "v":
            self._series[-1].name.append(words)
        elif kind == "label" and tag in ("t", "v", "p") and "fld" not in self._path:
            self._series[-1].say(kind, self._point, f" {words}" if tag == "v" else words)
        elif kind in _COLUMNS and tag == "v":
            self._series[-1].say(kind, self._point, self._told(words))

    def _part(self) -> str:
        """What of a series is being read."""
        if not _LABELS.isdisjoint(self._path):
            return "label"
        part = self._path[self._path.index("ser") + 1]
        return _NAMED.get(part, part)

    def _told(self, words: str) -> str:
        if self._format is not None and self._shown:
            try:
                return self._shown(float(words), self._format, self._from_1904)
            except ValueError:
                pass
        return clean_line(words)


def _joined(levels: Sequence[_Points]) -> Mapping[int, str]:
    """The texts by number, each behind those of the groups that it is in: a group is named at its
    first point alone."""
    if len(levels) == 1:
        return {at: clean_line("".join(texts)) for at, texts in levels[0].items()}
    found: dict[int, str] = {}
    groups = [""] * len(levels)
    for at in sorted({at for level in levels for at in level}):
        for depth in reversed(range(len(levels))):
            if at in levels[depth]:
                groups[: depth + 1] = [*[""] * depth, clean_line("".join(levels[depth][at]))]
        found[at] = " / ".join(filter(None, reversed(groups)))
        groups[0] = ""
    return found


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 7 else 0
