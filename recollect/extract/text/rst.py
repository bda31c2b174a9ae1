"""reStructuredText: headings as Markdown, by the order in which their lines appear; code fenced."""

import re
import string

from recollect.extract._text import decode
from recollect.extract.text._outline import Outline, indented
from recollect.model import Blob, Extracted

_CODE = re.compile(r"\.\. (?:code-block|code|sourcecode|highlight)::[ \t]*(\S*)")
_OPTION = re.compile(r"\s+:[\w-]+:")
_SHORTEST = 4
"""A line below a title may be shorter than the title, but for one of fewer signs."""


def extract(blob: Blob) -> Extracted:
    lines = decode(blob.data, blob.mime).splitlines()
    outline = Outline()
    levels: dict[tuple[str, bool], int] = {}
    number = 0
    while number < len(lines):
        if found := _heading(lines, number):
            level = levels.setdefault(found, len(levels) + 1)
            over = found[1]
            outline.head(level, lines[number + over])
            number += 2 + over
        elif directive := _CODE.match(lines[number]):
            end = indented(lines, number + 1)
            body = lines[number + 1 : end]
            while body and _OPTION.match(body[0]):
                body = body[1:]
            outline.code(body, directive[1])
            number = end if end > number + 1 else number + 1
        else:
            outline.add(lines[number])
            number += 1
            if lines[number - 1].endswith("::") and not lines[number - 1].startswith(".. "):
                end = indented(lines, number)
                if end > number:
                    outline.code(lines[number:end])
                    number = end
    return outline.extracted()


def _heading(lines: list[str], number: int) -> tuple[str, bool] | None:
    """The sign of the lines around a title, and whether one is above it; None: no title begins."""
    if number and lines[number - 1].strip() and not lines[number - 1].startswith((".. ", "__")):
        return None
    if sign := _adorned(lines, number):
        title = lines[number + 1].strip() if number + 1 < len(lines) else ""
        if title and not _adorned(lines, number + 1) and _adorned(lines, number + 2) == sign:
            return sign, True
        return None
    title = lines[number].rstrip()
    if not title or title[0] in " \t":
        return None
    sign = _adorned(lines, number + 1)
    if sign and len(lines[number + 1].rstrip()) >= min(len(title), _SHORTEST):
        return sign, False
    return None


def _adorned(lines: list[str], number: int) -> str:
    """The sign that a line consists of, if of one alone."""
    line = lines[number].rstrip() if number < len(lines) else ""
    sign = line[:1]
    return sign if len(line) > 1 and sign in string.punctuation and not line.strip(sign) else ""
