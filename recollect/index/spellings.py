"""What some people write as one word, and others as several.

`e-mail` and `email`, `O'Brien` and `OBrien`, `GitHub` and `github`, `1,234` and `1234`, `v2.14.3`
and `2.14.3`, `iPhone15` and `iPhone 15`, `RE-2025-17` and `RE202517`, `7.3.2025` and `2025-03-07`.
"""

import re
from collections.abc import Iterator
from heapq import merge
from itertools import chain

MOST_PIECES = 4
"""of a word of letters and digits; with more it is a random key, not a name"""
MOST_HYPHENS = 3
"""in a name; nobody writes a word with more of them, a slug, as one"""
MOST_CODED = 4
"""letters of a piece of a code; a longer one without a digit is a word of a slug"""
LEAST_CODED = 7
"""digits of a code of nothing else: the pieces of `10-12` are two numbers"""
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
_CODE = re.compile(
    r"(?<![\w./:@-])[A-Za-z0-9]++(?:(?:-|(?<=[0-9])/(?=[0-9]))[A-Za-z0-9]++){1,8}(?!\w|[-./:@]\w)"
)
_MIXED = re.compile(r"(?<!\w)(?=[A-Za-z]*[0-9])[A-Za-z0-9]++(?!\w)")
_DATE = re.compile(r"(?<![\w./:@-])([0-9]{1,4})([-./])([0-9]{1,2})\2([0-9]{1,4})(?!\w|[-./:@]\w)")
SPACED = re.compile(
    r"(?<!\w)[A-Z]{2}[0-9]{2}(?: [0-9A-Z]{4}){2,7}(?: [0-9A-Z]{1,3})?(?!\w)"
    r"|(?<![\w.,/-])(?:\+[1-9][0-9]{0,2}|0[0-9]{1,4})(?:(?: ?[/-] ?| )[0-9]++){1,6}"
    r"(?!\w|[.,]\w| ?[/-]? ?[0-9])"
)
"""an IBAN, or the number of a telephone, in groups with blanks"""
_BETWEEN = re.compile(" ?[/-] ?| ")
_NUMBERED = re.compile(r"(?<!\w)([^\W\d_]{4,})[0-9]++(?!\w)")


def pieces(word: str) -> list[str]:
    """The pieces of a word with several capitals, or of letters and digits; none if it is one."""
    found = _PIECE.findall(word) if word.isascii() else []
    return found if 1 < len(found) <= MOST_PIECES else []


def hyphened(spaced: re.Match[str]) -> str:
    """What `SPACED` found, with hyphens between its groups: it is one word so."""
    return _BETWEEN.sub("-", spaced[0])


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
    for found, whole in _codes(token):
        parts = _BETWEEN.split(found[0])
        yield whole, (found[0], *parts, *chain.from_iterable(map(pieces, parts)))
    for found in _MIXED.finditer(token):
        yield found[0], (*pieces(found[0]),)
    for found, day in _dates(token):
        yield day, (found[0], found[1], found[3], found[4])
    for found in _LETTERS.finditer(token):
        if parts := pieces(found[0]):
            yield found[0], (*parts,)
    for found in _NUMBERED.finditer(token):
        yield found[1], (found[0],)


def places(text: str) -> Iterator[tuple[int, int, str]]:
    """Where several words of a text may be written as one: start, end, and that one."""
    names = ((one.start(), one.end(), one[1] + one[2]) for one in _NAME.finditer(text))
    words = ((one.start(), one.end(2), one[1] + one[2]) for one in _HYPHENED.finditer(text))
    numbers = ((*one.span(), _plain(one[0])) for one in _NUMBER.finditer(text))
    codes = ((*found.span(), whole) for found, whole in _codes(text))
    dates = ((*found.span(), day) for found, day in _dates(text))
    return merge(names, words, numbers, codes, dates)


def _codes(text: str) -> Iterator[tuple[re.Match[str], str]]:
    """Letters and digits with hyphens, as numbers of parts, books, bills and accounts are written,
    each with what it is without them."""
    for found in _CODE.finditer(text):
        pieces = _BETWEEN.split(found[0])
        whole = "".join(pieces)
        coded = all(len(piece) <= MOST_CODED or not piece.isalpha() for piece in pieces)
        if coded and not whole.isalpha() and not (whole.isdecimal() and len(whole) < LEAST_CODED):
            yield found, whole


def _dates(text: str) -> Iterator[tuple[re.Match[str], str]]:
    """Dates of digits, each with its day as `2025-03-07`; 7/3/2025 may be two days."""
    for found in _DATE.finditer(text):
        first, sign, second, third = found.groups()
        read = [(third, second, first), (third, first, second)][: 1 if sign == "." else 2]
        for year, month, day in dict.fromkeys([(first, second, third)] if first[3:] else read):
            if len(year) == 4 and 1 <= int(month) <= 12 and len(day) <= 2 and 1 <= int(day) <= 31:
                yield found, f"{year}-{month:0>2}-{day:0>2}"


def _plain(number: str) -> str:
    """Without the signs between its thousands."""
    plain = THOUSANDS.sub("", number)
    return number.replace(".", "") if plain == number else plain
