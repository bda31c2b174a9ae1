"""Long texts in stretches of whole lines: whoever looks for a pattern, or splits, holds the
interpreter as long as that takes, and all other threads of the process wait."""

import re
from collections.abc import Iterator

LENGTH = 1 << 20
"""characters after which a stretch ends with its line: milliseconds"""


def stretches(text: str) -> Iterator[tuple[int, int]]:
    """Where each begins and ends. All but the last end with a line end; one line is never cut."""
    start = 0
    while start < len(text):
        end = text.find("\n", start + LENGTH) + 1 or len(text)
        yield start, end
        start = end


def find(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """All matches of a pattern that matches within lines."""
    for start, end in stretches(text):
        yield from pattern.finditer(text, start, end)


def lines(text: str) -> Iterator[str]:
    """As `text.split("\n")`."""
    rest = ""
    for start, end in stretches(text):
        *whole, rest = text[start:end].split("\n")
        yield from whole
    yield rest
