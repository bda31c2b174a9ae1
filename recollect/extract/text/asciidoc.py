"""AsciiDoc: headings as Markdown, listings fenced, comments left out."""

import re

from recollect.extract._text import decode
from recollect.extract.text._outline import Outline
from recollect.model import Blob, Extracted

_HEADING = re.compile(r"(={1,6}|#{1,6})[ \t]+(\S.*)")
_SOURCE = re.compile(r"\[(?:source|,)[ \t]*,?[ \t]*([\w+#.-]*)[^\]]*\]\s*$")
_LISTING = re.compile(r"(?:-{4,}|\.{4,}|\+{4,}|/{4,}|```.*)\s*$")
_UNDERLINES = "=-~^+"
_DELIMITER = re.compile(r"(?:={4,}|\*{4,}|_{4,}|--|\|={3,}|[,:!]={3,})\s*$")


def extract(blob: Blob) -> Extracted:
    lines = decode(blob.data, blob.mime).splitlines()
    outline = Outline()
    language = ""
    number = 0
    while number < len(lines):
        line = lines[number]
        if heading := _HEADING.fullmatch(line.rstrip()):
            outline.head(len(heading[1]), heading[2])
            number += 1
        elif level := _underlined(lines, number):
            outline.head(level, line)
            number += 2
        elif _LISTING.match(line):
            end = _end(lines, number)
            if not line.startswith("//"):
                outline.code(lines[number + 1 : end], language or line.strip().lstrip("`.-+"))
            number, language = end + 1, ""
        elif source := _SOURCE.match(line):
            language = source[1]
            number += 1
        else:
            if not line.startswith("//") and not _DELIMITER.match(line):
                outline.add(line)
            language = language if not line.strip() or line.startswith(".") else ""
            number += 1
    return outline.extracted()


def _end(lines: list[str], start: int) -> int:
    """Where a block ends that begins there: at the same line again, else with the text."""
    mark = lines[start].strip()
    mark = "```" if mark.startswith("```") else mark
    for number in range(start + 1, len(lines)):
        if lines[number].rstrip() == mark:
            return number
    return len(lines)


def _underlined(lines: list[str], number: int) -> int:
    """The level of a title with a line below it that is as long, give or take a sign; 0: none."""
    title = lines[number].rstrip()
    below = lines[number + 1].rstrip() if number + 1 < len(lines) else ""
    if not below or below[0] not in _UNDERLINES or below.strip(below[0]):
        return 0
    alone = number == 0 or not lines[number - 1].strip() or lines[number - 1].startswith("[")
    if not alone or not any(map(str.isalnum, title)) or title[0] in " \t.[:":
        return 0
    return _UNDERLINES.index(below[0]) + 1 if abs(len(title) - len(below)) <= 1 else 0
