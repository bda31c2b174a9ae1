"""Lines found on a page become text as a person reads it: columns, then paragraphs."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import median

_GRID = 200
_CROSSING = 0.2
"""Part of the lines that may run across the gap between two columns: headings, footers."""
_FEW = 3
_COLUMN_WIDTH = 8.0
"""In line heights. Narrower ones are cells of a table, which is read row by row."""
_GUTTER = 0.8
_CELL_GAP = 1.5
_WIDEST_STEP = 2.2
"""From line to line within a paragraph, in line heights."""
_PARAGRAPH_STEP = 1.35
_OTHER_SIZE = 1.8
_FARTHEST_IN = 4.0
"""In line heights. What stands further in is the date of a letter, or code."""
_IDEOGRAPHIC = re.compile("[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef]")
_ITEM = re.compile(r"\s*[\u2022\u00b7\u25aa\u25cf\u25a0\u25e6\u25cb*\u2013-]\s?[^\W\d]")
_SYLLABLE = re.compile(r"[^\W\d_][-\u00ad\u2010]$")


@dataclass(frozen=True, slots=True)
class TextLine:
    """A line of writing and its box, y pointing down, on a page that stands upright."""

    text: str
    left: float
    top: float
    right: float
    bottom: float

    @property
    def height(self) -> float:
        return self.bottom - self.top

    @property
    def width(self) -> float:
        return self.right - self.left

    @property
    def middle(self) -> float:
        return (self.top + self.bottom) / 2


@dataclass(frozen=True, slots=True)
class _Row:
    """What stands side by side within a column: usually one line, in a table the cells."""

    text: str
    left: float
    top: float
    right: float
    bottom: float
    has_cells: bool

    @property
    def height(self) -> float:
        return self.bottom - self.top

    @property
    def middle(self) -> float:
        return (self.top + self.bottom) / 2


def arrange(lines: Sequence[TextLine]) -> str:
    """All of them once, in reading order: paragraphs between blank lines.

    Lines of a paragraph are joined if they fill their column, else they stay lines.
    """
    blocks = _columns([line for line in lines if line.text.strip()])
    return "\n\n".join(part for block in blocks for part in _paragraphs(_rows(block)))


def _columns(lines: Sequence[TextLine]) -> Iterator[Sequence[TextLine]]:
    """Blocks of one column each. What spans two columns parts what is above from below."""
    gutter = _gutter(lines)
    if gutter is None:
        if lines:
            yield lines
        return
    ordered = sorted(lines, key=lambda line: line.middle)
    for spans, group in groupby(ordered, key=lambda line: line.left < gutter < line.right):
        band = list(group)
        if spans:
            yield band
        else:
            yield from _columns([line for line in band if line.right <= gutter])
            yield from _columns([line for line in band if line.left >= gutter])


def _gutter(lines: Sequence[TextLine]) -> float | None:
    """Where a gap between two columns of prose runs down the page."""
    if len(lines) < 2 * _FEW:
        return None
    left, right = min(line.left for line in lines), max(line.right for line in lines)
    height = median(line.height for line in lines)
    step = (right - left) / _GRID
    if step <= 0 or height <= 0:
        return None
    counts = [0] * (_GRID + 1)
    for line in lines:
        counts[int((line.left - left) / step)] += 1
        counts[min(_GRID, int((line.right - left) / step) + 1)] -= 1
    crossing = 0
    covered = [crossing := crossing + change for change in counts[:_GRID]]
    inner = range(_GRID // 10, _GRID - _GRID // 10)
    fewest = min(covered[at] for at in inner)
    if fewest > len(lines) * _CROSSING:
        return None
    gaps = [
        list(group) for free, group in groupby(inner, key=lambda at: covered[at] <= fewest) if free
    ]
    gap = max(gaps, key=len)
    gutter = left + (gap[0] + gap[-1] + 1) / 2 * step
    sides = (
        [line for line in lines if line.right <= gutter],
        [line for line in lines if line.left >= gutter],
    )
    for side in sides:
        if len(side) < _FEW or _has_cells(side, height):
            return None
    # Not by the grid, which makes it narrower by up to two steps.
    if min(line.left for line in sides[1]) - max(line.right for line in sides[0]) < (
        _GUTTER * height
    ):
        return None
    return gutter


def _has_cells(side: Sequence[TextLine], height: float) -> bool:
    """Whether it is a column of a table, not one of prose, or of items as slides have them."""
    items = sum(bool(_ITEM.match(line.text)) for line in side)
    return 2 * items < len(side) and median(line.width for line in side) < _COLUMN_WIDTH * height


def _rows(block: Sequence[TextLine]) -> list[_Row]:
    rows: list[list[TextLine]] = []
    for line in sorted(block, key=lambda line: line.middle):
        last = rows[-1][-1] if rows else None
        if last and abs(line.middle - last.middle) < min(line.height, last.height) / 2:
            rows[-1].append(line)
        else:
            rows.append([line])
    return [_row(sorted(row, key=lambda line: line.left)) for row in rows]


def _row(lines: Sequence[TextLine]) -> _Row:
    height = max(line.height for line in lines)
    return _Row(
        text=" ".join(line.text.strip() for line in lines),
        left=lines[0].left,
        top=min(line.top for line in lines),
        right=max(line.right for line in lines),
        bottom=max(line.bottom for line in lines),
        has_cells=any(
            after.left - before.right > _CELL_GAP * height for before, after in pairwise(lines)
        ),
    )


def _paragraphs(rows: Sequence[_Row]) -> Iterator[str]:
    if not rows:
        return
    left, right = min(row.left for row in rows), max(row.right for row in rows)
    # Boxes are as high as their letters, "xenon" lower than "July": middles tell more than edges.
    steps = [after.middle - before.middle for before, after in pairwise(rows)]
    usual = min(median(steps or [0]), _WIDEST_STEP * median(row.height for row in rows))
    text = rows[0].text
    for before, row in pairwise(rows):
        height = min(before.height, row.height)
        fills = before.right > right - max(4 * height, (right - left) * 0.12)
        # The first line of a paragraph may stand further in than the next, but not so far.
        is_apart = not -_FARTHEST_IN * height <= row.left - before.left <= 1.2 * height
        if (
            row.middle - before.middle > _PARAGRAPH_STEP * usual
            or max(before.height, row.height) > _OTHER_SIZE * height
        ):
            yield text
            text = row.text
        elif before.has_cells or row.has_cells or is_apart or not fills or _ITEM.match(row.text):
            text = f"{text}\n{row.text}"
        else:
            text = _join(text, row.text)
    yield text


def _join(text: str, more: str) -> str:
    if _SYLLABLE.search(text) and more[:1].islower():
        return text[:-1] + more
    if _IDEOGRAPHIC.match(text[-1:]) and _IDEOGRAPHIC.match(more):
        return text + more
    return f"{text} {more}"
