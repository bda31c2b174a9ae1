"""Plain text and Markdown: kept as it is, in whatever encoding it came."""

import re

from recollect.extract._text import clean_line, decode
from recollect.model import Blob, Extracted

_FENCE = re.compile(r"^ {0,3}(```|~~~)")
_HEADING = re.compile(r"^ {0,3}# +(.*?)[ #]*$")


def extract(blob: Blob) -> Extracted:
    text = decode(blob.data, blob.mime)
    return Extracted(text, title=first_heading(text) if _is_markdown(blob) else None)


def _is_markdown(blob: Blob) -> bool:
    return (blob.name or "").lower().endswith((".md", ".markdown")) or (
        blob.mime or ""
    ).lower().startswith(("text/markdown", "text/x-markdown"))


def first_heading(text: str) -> str | None:
    fenced = False
    for line in text.splitlines():
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and (heading := _HEADING.match(line)):
            return clean_line(heading[1]) or None
    return None
