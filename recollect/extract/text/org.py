"""Org: headings as Markdown, code fenced; comments, drawers and settings left out."""

import re

from recollect.extract._text import decode
from recollect.extract.text._outline import Outline
from recollect.model import Blob, Extracted

_HEADING = re.compile(r"(\*{1,100})[ \t]+(\S.*)")
_BLOCK = re.compile(r"[ \t]*#\+begin_(src|example|export|comment)\b[ \t]*(\S*)", re.IGNORECASE)
_SETTING = re.compile(r"[ \t]*#\+(\w+):[ \t]*(.*)")
_TELLING = frozenset(
    {"author", "caption", "date", "description", "email", "keywords", "subtitle", "title"}
)
_DRAWER = re.compile(r"[ \t]*:(?:properties|logbook):[ \t]*$", re.IGNORECASE)
_COMMENT = re.compile(r"[ \t]*#(?: |$)")
_LINK = re.compile(r"\[\[([^\[\]]+)\]\[([^\[\]]+)\]\]")
_QUOTE = re.compile(r"[ \t]*#\+(?:begin|end)_\w+[^\n]*", re.IGNORECASE)


def extract(blob: Blob) -> Extracted:
    lines = decode(blob.data, blob.mime).splitlines()
    outline = Outline()
    drawers, comments = _ends(lines, ":end:"), _ends(lines, "#+end_comment")
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if heading := _HEADING.fullmatch(line.rstrip()):
            outline.head(len(heading[1]), _linked(heading[2]))
        elif block := _BLOCK.match(line):
            kind = block[1].lower()
            if kind == "comment":
                number = comments[number]
                continue
            end = _end(lines, number, f"#+end_{kind}")
            code = [
                one.replace(",", "", 1) if _is_escaped(one) else one for one in lines[number:end]
            ]
            outline.code(code, block[2] if kind == "src" else "")
            number = end + 1
        elif _DRAWER.match(line):
            number = drawers[number]
        elif setting := _SETTING.match(line):
            name = setting[1].lower()
            if name == "title" and outline.title is None:
                outline.title = setting[2]
            if name in _TELLING:
                outline.add(f"{name.capitalize()}: {_linked(setting[2])}")
        elif not _COMMENT.match(line) and not _QUOTE.match(line):
            outline.add(_linked(line))
    return outline.extracted()


def _ends(lines: list[str], mark: str) -> list[int]:
    """For each line: what follows a drawer or comment that goes on there; the line itself if a
    heading or the end of the text comes first, for then it hides nothing."""
    found = list(range(len(lines) + 1))
    end = None
    for number in range(len(lines) - 1, -1, -1):
        line = lines[number]
        if _HEADING.fullmatch(line.rstrip()):
            end = None
        elif line.strip().lower() == mark:
            end = number + 1
        found[number] = end or number
    return found


def _end(lines: list[str], start: int, mark: str) -> int:
    """Where a line says so, else where the text ends."""
    for number in range(start, len(lines)):
        if lines[number].strip().lower() == mark:
            return number
    return len(lines)


def _is_escaped(line: str) -> bool:
    """Code has a comma before what Org would take for its own."""
    return line.lstrip(" \t").startswith((",*", ",#+", ",,"))


def _linked(line: str) -> str:
    return _LINK.sub(r"[\2](\1)", line) if "[[" in line else line
