"""Lines that begin with a number within a sentence.

xberg takes "2.18 metres over the sill" and "7) was torn away" for new paragraphs or list items,
though the line before breaks off in the middle of its sentence. The words tell: pages set lists as
tight as prose, so the distance of the lines does not.
"""

import re

_BETWEEN = re.compile(r"(\n{2,}|\n(?=- ))")
_ENUMERATED = re.compile(
    r"(?:- )?\(?(\d{1,4}|[a-z]|[A-Z]|[ivxlc]{2,6}|[IVXLC]{2,6})[.)]{1,2}\s+(?=(\S))"
)
_NUMBER = re.compile(r"\d\S*\s+(?=(\S))")
_DECIMAL = re.compile(r"\d+[.,:]\d")
_FIRST = frozenset("01aAiI")
_NOT_PROSE = ("#", "|", "```", "<", "!", ">", "$")
_FEWEST_WORDS = 4
"""A shorter line without a stop is rather a title or a label than a part of a sentence."""


def joined(text: str) -> str:
    """The Markdown of a page with such lines put back into their paragraphs."""
    if "```" in text:  # code: its lines are as they are
        return text
    first, *rest = _BETWEEN.split(text)
    written = [first]
    begins = last = first
    numbers = {_mark(first)}
    for number, (between, block) in enumerate(zip(rest[::2], rest[1::2], strict=True)):
        if _breaks_off(last, begins) and _goes_on(block, begins, numbers, on_top=number == 0):
            written += (" ", block.removeprefix("- "))
        else:
            written += (between, block)
            begins = block
            numbers.add(_mark(block))
        last = block
    return "".join(written)


def _breaks_off(last: str, begins: str) -> bool:
    """Whether a block ends within a sentence; `begins` is what it begins with."""
    if begins.startswith(_NOT_PROSE):
        return False
    ending = last.rstrip()
    letter = ending[:-1] if ending.endswith(",") else ending
    return letter[-1:].islower() and len(begins.split(maxsplit=_FEWEST_WORDS)) >= _FEWEST_WORDS


def _goes_on(block: str, begins: str, numbers: set[str], *, on_top: bool) -> bool:
    if found := _ENUMERATED.match(block):
        mark, after = found.groups()
        if mark in _FIRST or _before(mark) in numbers:
            return False
        # On top of a page may be its running title, and below it a list that goes on.
        return after.islower() or not (on_top or begins.startswith("- "))
    if found := _NUMBER.match(block):
        if found[1].islower():
            return True
        # A capital: German nouns after a measure, but also headings, footnotes, tables of contents.
        return bool(_DECIMAL.match(block)) and not (on_top or begins[0] in "-0123456789")
    return False


def _mark(block: str) -> str:
    found = _ENUMERATED.match(block)
    return found[1] if found else ""


def _before(mark: str) -> str:
    """What an item of a list follows: 6 before 7, b before c; of Roman numbers any may."""
    if mark.isdigit():
        return str(int(mark) - 1)
    return chr(ord(mark) - 1) if len(mark) == 1 else mark
