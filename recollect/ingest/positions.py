"""Where a chunk stands in the original, in the reader's terms: page, row, time, heading, message.

Extractors say from which offset on which page, row or second it is (`Extracted.places`); headings
and messages are read off the text itself.
"""

import json
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from recollect.documents.stretch import find
from recollect.extract.text.text import unclosed
from recollect.model import Chunk, Extracted

# The end of a title is cut off in `_title`: a pattern that looks for it takes the square of a line.
HEADING = re.compile(r"^(?:(#{1,6})[ \t]++(\S.*+)|(```|~~~).*+)$", re.MULTILINE)
LONGEST_TITLE = 300
"""characters; a longer line is a paragraph that happens to begin like a heading"""
MESSAGE = re.compile(
    r"^[ \t>*_]{0,4}(user|assistant|system|tool|human|ai|bot|agent|customer)[*_]{0,2}[ \t]*:",
    re.IGNORECASE | re.MULTILINE,
)
TURN = re.compile(r"(?:\A|(?<=\n\n))(?:user|assistant|system|tool)(?: [^\n]{1,200}?)?: ")
"""As `POST /v4/conversations` writes messages, each with the name of who speaks if it has one. All
further lines of a message are indented."""
QUESTION = re.compile(r"(?<=\n\n)user(?: [^\n]{1,200}?)?: ")
OBJECT = re.compile(r'\{\s*"role"\s*:\s*"(user|assistant|system|tool)"\s*,')
"""As chat completions (OpenAI's and others') have a message, which programs send as it is."""
SAID = re.compile(r'\s*"content"\s*:\s*("(?:[^"\\\n]|\\.|(?!))*+")')
NOT_INDENTED = re.compile(r"^[^ \n]", re.MULTILINE)
FEWEST_MESSAGES = 2
"""with fewer it is a text that happens to have such a line"""
SPANNING = ("page", "row", "cell", "time", "message")
"""what is counted within a sheet, a chapter or a file"""

Named = Mapping[str, object]


def locate(extracted: Extracted, chunks: Sequence[Chunk]) -> list[Chunk]:
    """The chunks, each with its `place`."""
    named = [place.at for place in extracted.places]
    marks = _Marks([place.start for place in extracted.places], named.__getitem__)
    messages = _Marks(_messages(extracted.text), lambda index: {"message": index + 1})
    text = extracted.text if extracted.markdown else ""
    headings = _headings(text, [chunk.start for chunk in chunks])
    return [
        replace(
            chunk,
            place={
                **marks.over(chunk.start, chunk.end),
                **messages.over(chunk.start, chunk.end),
                **({"heading": path} if path else {}),
            },
        )
        for chunk, path in zip(chunks, headings, strict=True)
    ]


def first_said(text: str) -> str:
    """What the first message of a user says in a text of JSON messages; empty if there is none."""
    for message in find(OBJECT, text):
        if message[1] == "user":
            said = SAID.match(text, message.end())
            with suppress(ValueError):
                return json.loads(said[1]) if said else ""
    return ""


def first_question(text: str) -> int:
    """Where the first message of a user begins in a conversation that begins with a `system`
    message, which others begin with as well; else 0."""
    if not turns(text):
        return 0
    found = next(find(QUESTION, text), None)
    return found.start() if found else 0


class _Marks:
    """What holds from an offset on, until the next mark."""

    def __init__(self, starts: Sequence[int], named: Callable[[int], Named]) -> None:
        self._starts = starts
        self._named = named

    def over(self, start: int, end: int) -> dict[str, object]:
        """What holds at the first character, and where it ends if that is elsewhere. The heading of
        a sheet stands with the row below it. A sheet's rows end in that sheet; if the text goes on
        in the next one, `sheetEnd` names that."""
        last = bisect_left(self._starts, end) - 1
        if last < 0:
            return {}
        first = max(bisect_right(self._starts, start) - 1, 0)
        begins = self._named(first)
        while first < last and begins.items() < (below := self._named(first + 1)).items():
            first, begins = first + 1, below
        whole = _outside(begins)
        ends = next(
            (
                named
                for index in range(last, first, -1)
                if _outside(named := self._named(index)) == whole
            ),
            begins,
        )
        reached = {**self._named(last), **{name: ends[name] for name in SPANNING if name in ends}}
        return {
            **begins,
            **{
                f"{name}End": reached[name]
                for name in begins
                if name in reached and reached[name] != begins[name]
            },
        }


def _outside(named: Named) -> Named:
    """What the numbers count in: the sheet of a row, the file of a page."""
    return {name: value for name, value in named.items() if name not in SPANNING}


def _headings(text: str, offsets: Sequence[int]) -> Iterator[list[str]]:
    """The path of headings that is open at each offset; `offsets` rise."""
    path: list[tuple[int, str]] = []
    fence: str | None = None
    following = find(HEADING, text)
    found = next(following, None)
    for offset in offsets:
        while found is not None and found.start() <= offset:
            marks, title, bar = found.groups()
            if bar is not None:
                fence = bar if fence is None else (None if fence == bar else fence)
            elif fence is None and (name := _title(title)) is not None:
                path = [above for above in path if above[0] < len(marks)]
                path.append((len(marks), name))
            found = next(following, None)
        yield [name for _, name in path]


def _title(line: str) -> str | None:
    """What a heading says, without the `#` that may close it; None if it is too long for one."""
    name = unclosed(line) or "#"
    return name if len(name) <= LONGEST_TITLE else None


def _messages(text: str) -> Sequence[int]:
    """Where the messages of a conversation begin: one that `POST /v4/conversations` wrote, or any
    text with lines such as `user: …`, or with messages in JSON."""
    found = turns(text) or _starts(MESSAGE, text)
    if len(found) < FEWEST_MESSAGES and '"role"' in text:
        found = _starts(OBJECT, text)
    return found if len(found) >= FEWEST_MESSAGES else ()


def _starts(pattern: re.Pattern[str], text: str) -> Sequence[int]:
    return array("Q", (found.start() for found in find(pattern, text)))


def turns(text: str) -> Sequence[int]:
    """Where the messages begin, if `POST /v4/conversations` wrote the text."""
    if not TURN.match(text):
        return ()
    found = _starts(TURN, text)
    return found if len(found) == sum(1 for _ in find(NOT_INDENTED, text)) else ()
