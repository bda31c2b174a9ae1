"""What the readers of light markup share: headings and code in the signs of Markdown.

Only these are rewritten, for they are what passages are cut at and named by; the rest of such a
text reads well as it is.
"""

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from recollect.extract._text import clean_line
from recollect.model import Extracted

DEEPEST = 6
_TICKS = re.compile(r"`{3,}")
_LANGUAGE = re.compile(r"[\w+#.-]{1,40}")


@dataclass(slots=True)
class Outline:
    """Lines of Markdown, as they are added."""

    title: str | None = None
    _lines: list[str] = field(default_factory=list[str])

    def add(self, line: str) -> None:
        """Of several blank lines the first is kept."""
        if line.strip() or (self._lines and self._lines[-1]):
            self._lines.append(line.rstrip())

    def head(self, level: int, words: str) -> None:
        """A heading; the first is the title, unless there is one. 1 is the highest level."""
        words = words.strip()
        self.title = self.title or words
        self._apart(f"{'#' * min(max(level, 1), DEEPEST)} {words}")

    def code(self, lines: Iterable[str], language: str = "") -> None:
        self._apart(fenced("\n".join(lines), language))

    def _apart(self, block: str) -> None:
        self.add("")
        self._lines += (block, "")

    def extracted(self) -> Extracted:
        return Extracted("\n".join(self._lines), title=clean_line(self.title or "") or None)


def fenced(code: str, language: str = "") -> str:
    """Code as Markdown, less what indents all of it; the fence is longer than any within."""
    ticks = max((len(found[0]) for found in _TICKS.finditer(code)), default=2) + 1
    language = language if _LANGUAGE.fullmatch(language) else ""
    body = textwrap.dedent(code).strip("\n")
    return f"{'`' * ticks}{language}\n{body}\n{'`' * ticks}"


def indented(lines: Sequence[str], start: int) -> int:
    """Where the block of indented lines that begins at `start` ends; blank lines are within it."""
    end = start
    for number in range(start, len(lines)):
        if lines[number][:1] in (" ", "\t"):
            end = number + 1
        elif lines[number].strip():
            break
    return end
