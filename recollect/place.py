"""Where a chunk stands in the original, in the reader's terms: page, row, time, heading, message.

Extractors say from which offset on which page, row or second it is (`Extracted.places`); headings
and messages are read off the text itself.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from recollect.model import Chunk, Extracted

# The end of a title is cut off in `_title`: a pattern that looks for it takes the square of a line.
HEADING = re.compile(r"^(?:(#{1,6})[ \t]++(\S.*+)|(```|~~~).*+)$", re.MULTILINE)
LONGEST_TITLE = 300
"""characters; a longer line is a paragraph that happens to begin like a heading"""
MESSAGE = re.compile(
    r"^[ \t>*_]{0,4}(user|assistant|system|tool|human|ai|bot|agent|customer)[*_]{0,2}[ \t]*:",
    re.IGNORECASE | re.MULTILINE,
)
FEWEST_MESSAGES = 2
"""with fewer it is a text that happens to have such a line"""
SPANNING = ("page", "row", "time", "message")
"""of these a chunk that goes on to another one also names the last, as `pageEnd` and so on"""

Named = Mapping[str, object]


def locate(extracted: Extracted, chunks: Sequence[Chunk]) -> list[Chunk]:
    """The chunks, each with its `place`."""
    marks = _Marks([(place.start, place.at) for place in extracted.places])
    messages = _Marks(_messages(extracted.text))
    headings = _Marks(_headings(extracted.text) if extracted.markdown else ())
    return [
        replace(
            chunk,
            place={
                **marks.over(chunk.start, chunk.end),
                **messages.over(chunk.start, chunk.end),
                **headings.at(chunk.start),
            },
        )
        for chunk in chunks
    ]


class _Marks:
    """What holds from an offset on, until the next mark."""

    def __init__(self, marks: Iterator[tuple[int, Named]] | Sequence[tuple[int, Named]]) -> None:
        pairs = list(marks)
        self._starts = [start for start, _ in pairs]
        self._names = [named for _, named in pairs]

    def at(self, offset: int) -> Named:
        index = bisect_right(self._starts, offset) - 1
        return self._names[index] if index >= 0 else {}

    def over(self, start: int, end: int) -> dict[str, object]:
        """What holds at the first character, and where it ends if that is elsewhere."""
        last = bisect_left(self._starts, end) - 1
        if last < 0:
            return {}
        begins = self.at(start) or self._names[bisect_right(self._starts, start)]
        ends = self._names[last]
        return {
            **begins,
            **{
                f"{name}End": ends[name]
                for name in SPANNING
                if name in begins and name in ends and ends[name] != begins[name]
            },
        }


def _headings(text: str) -> Iterator[tuple[int, Named]]:
    """The path of headings that is open from each heading on."""
    path: list[tuple[int, str]] = []
    fence: str | None = None
    for found in HEADING.finditer(text):
        marks, title, bar = found.groups()
        if bar is not None:
            fence = bar if fence is None else (None if fence == bar else fence)
        elif fence is None and (name := _title(title)) is not None:
            path = [above for above in path if above[0] < len(marks)]
            path.append((len(marks), name))
            yield found.start(), {"heading": [name for _, name in path]}


def _title(line: str) -> str | None:
    """What a heading says, without the `#` that may close it; None if it is too long for one."""
    name = line.rstrip(" \t").rstrip("#").rstrip(" \t") or "#"
    return name if len(name) <= LONGEST_TITLE else None


def _messages(text: str) -> list[tuple[int, Named]]:
    """The messages of a conversation in lines such as `user: …`, counted from 1."""
    found = [message.start() for message in MESSAGE.finditer(text)]
    if len(found) < FEWEST_MESSAGES:
        return []
    return [(start, {"message": number}) for number, start in enumerate(found, 1)]
