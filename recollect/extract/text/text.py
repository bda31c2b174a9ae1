"""Plain text and Markdown: kept as it is, in whatever encoding it came."""

import re

from recollect.extract._text import clean_line, decode
from recollect.model import Blob, Extracted

LONGEST_FRONT_MATTER = 20_000
"""characters"""
_FENCE = re.compile(r"^ {0,3}(```|~~~)")
_HEADING = re.compile(r"^ {0,3}# ++(.*+)")
_FRONT_MATTER = re.compile(
    r"---[ \t]*\r?\n((?:\w[\w. -]*+:.*+\n|[ \t#-].*+\n|\r?\n)*?)(?:---|\.\.\.)[ \t\r]*(?:\n|\Z)"
)
_TITLE = re.compile(r"^title:[ \t]+([^|>\s].*)$", re.MULTILINE | re.IGNORECASE)


def extract(blob: Blob) -> Extracted:
    text = decode(blob.data, blob.mime)
    if not _is_markdown(blob):
        # A line of a log that begins with # is no heading, as one of a note may be.
        return Extracted(text, markdown=not (blob.name or "").lower().endswith(".log"))
    title, body = front_matter(text)
    return Extracted(text, title=title or first_heading(text[body:]))


def _is_markdown(blob: Blob) -> bool:
    return (blob.name or "").lower().endswith((".md", ".markdown")) or (
        blob.mime or ""
    ).lower().startswith(("text/markdown", "text/x-markdown"))


def front_matter(text: str) -> tuple[str | None, int]:
    """The title that the lines between `---` at the beginning of a note give, and where the text
    after them begins: 0 without such lines."""
    lines = _FRONT_MATTER.match(text, 0, LONGEST_FRONT_MATTER)
    if lines is None:
        return None, 0
    title = _TITLE.search(lines[1])
    said = title[1].strip() if title else ""
    if len(said) > 1 and said[0] == said[-1] and said[0] in "\"'":
        said = said[1:-1]
    return clean_line(said) or None, lines.end()


def first_heading(text: str) -> str | None:
    fenced = False
    for line in text.splitlines():
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and (heading := _HEADING.match(line)):
            return clean_line(unclosed(heading[1])) or None
    return None


def unclosed(heading: str) -> str:
    """Without the `#` that may close it after a space; that of "C#" belongs to the word."""
    said = heading.rstrip()
    bare = said.rstrip("#")
    return said if bare[-1:].strip() else bare.rstrip()
