"""What some people write as one word, and others as several.

`e-mail` and `email`, `O'Brien` and `OBrien`, `GitHub` and `github`, `1,234` and `1234`, `v2.14.3`
and `2.14.3`, `iPhone15` and `iPhone 15`.
"""

import re
from collections.abc import Iterator
from heapq import merge

MOST_PIECES = 4
"""of a word of letters and digits; with more it is a random key, not a name"""
MOST_HYPHENS = 3
"""in a name; nobody writes a word with more of them, a slug, as one"""
_CAPITAL = "[A-ZÀ-ÖØ-Þ]"
_DIGIT = "[0-9\u0660-\u0669\u06f0-\u06f9\u0966-\u096f\u09e6-\u09ef]"
"""In Latin, Arabic, Persian, Hindi or Bengali signs. `_FIRST`: the same without zero."""
_FIRST = "[1-9\u0661-\u0669\u06f1-\u06f9\u0967-\u096f\u09e7-\u09ef]"
_SIGN = r"[,'\u2019\u066c]"
_TWO, _THREE = _DIGIT * 2, _DIGIT * 3
# In India only the last three digits stand together: 12,34,567.
_THOUSANDS = rf"(?<={_DIGIT}){_SIGN}(?=(?:{_TWO},)?(?:{_TWO},)?(?:{_TWO},)?{_THREE}(?!{_DIGIT}))"
WITHIN = rf"(?:{_THOUSANDS}|(?<=\b{_CAPITAL})['\u2019](?={_CAPITAL}))"
"""A sign between the thousands of a number, or behind the first letter of a name."""
THOUSANDS = re.compile(_THOUSANDS)
THIN_SPACE = re.compile("(?<=[0-9])[\u00a0\u2009\u202f](?=[0-9]{3}(?![0-9]))")
"""between the thousands of a number; a usual space stands between two numbers as well"""
_NUMBER = re.compile(
    rf"(?<![\w.,'\u2019\u066c]){_FIRST}{_DIGIT}?{_DIGIT}?(?:"
    rf"(?:(?:{_SIGN}{_THREE}|(?!))++|(?:,{_TWO}(?=,)|(?!))++,{_THREE}(?!,))(?:\.{_DIGIT}++)?"
    rf"|(?:\.{_THREE}|(?!))++)(?!\w)"
)
"""With signs between its thousands, and a fraction. Points may be either: `1.234` is both."""
_SIGNS = re.compile(r"[.,'\u2019\u066c]")
_NAME = re.compile(rf"(?<!\w)({_CAPITAL})['\u2019]({_CAPITAL}\w*+)")
_HYPHENED = re.compile(r"(?<!\w)(?=([^\W\d_]++)-([^\W\d_]++)(?!\w))")
_LETTERS = re.compile(r"(?<![^\W\d_])[A-Za-z]++(?![^\W\d_])")
_PIECE = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_VERSION = re.compile(r"(?<!\w)([vV])(([0-9]++)(?:\.[0-9]++)+)(?!\w)")
_NUMBERED = re.compile(r"(?<!\w)([^\W\d_]{4,})[0-9]++(?!\w)")


def pieces(word: str) -> list[str]:
    """The pieces of a word with several capitals, or of letters and digits; none if it is one."""
    found = _PIECE.findall(word) if word.isascii() else []
    return found if 1 < len(found) <= MOST_PIECES else []


def joined(token: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """As what else words of a token may be written, each time with the words that it stands for."""
    for found in _NAME.finditer(token):
        yield found[1] + found[2], (found[1], found[2])
    if token.count("-") <= MOST_HYPHENS:
        for found in _HYPHENED.finditer(token):
            yield found[1] + found[2], (found[1], found[2])
    for found in _NUMBER.finditer(token):
        whole = _plain(found[0])
        yield whole, (found[0], *THOUSANDS.split(found[0]))
        yield whole.partition(".")[0], (*_SIGNS.split(found[0]),)
    for found in _VERSION.finditer(token):
        yield found[2], (found[0],)
        yield found[3], (found[1], found[1] + found[3])
    for found in _LETTERS.finditer(token):
        if parts := pieces(found[0]):
            yield found[0], (*parts,)
    for found in _NUMBERED.finditer(token):
        yield found[1], (found[0],)


def places(text: str) -> Iterator[tuple[int, int, str]]:
    """Where several words of a text may be written as one: start, end, and that one."""
    names = ((one.start(), one.end(), one[1] + one[2]) for one in _NAME.finditer(text))
    hyphened = ((one.start(), one.end(2), one[1] + one[2]) for one in _HYPHENED.finditer(text))
    numbers = ((*one.span(), _plain(one[0])) for one in _NUMBER.finditer(text))
    return merge(names, hyphened, numbers)


def _plain(number: str) -> str:
    """Without the signs between its thousands."""
    plain = THOUSANDS.sub("", number)
    return number.replace(".", "") if plain == number else plain
