"""Numbers of lists as documents show them."""

_ROMAN = (
    *((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc")),
    *((50, "l"), (40, "xl"), (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i")),
)
_ORDINALS = {1: "st", 2: "nd", 3: "rd"}
_COUNTED_IN_HAN = frozenset(
    {
        *("chineseCounting", "chineseCountingThousand", "ideographDigital", "japaneseCounting"),
        *("taiwaneseCounting", "taiwaneseCountingThousand"),
    }
)
_HAN = "〇一二三四五六七八九"


def numeral(value: int, format: str) -> str:
    """A number as Word shows it (ECMA-376 part 1, 17.18.59); Arabic numerals for most scripts.

    After `z` come `aa` and `bb`; with `lowerAlpha` and `upperAlpha`, which Word does not have, `aa`
    and `ab`.
    """
    match format:
        case "none" | "bullet":
            return ""
        case "decimalZero":
            return f"{value:02}"
        case "upperLetter" | "lowerLetter" if 0 < value <= 260:
            letters = chr(ord("a") + (value - 1) % 26) * ((value + 25) // 26)
        case "upperAlpha" | "lowerAlpha" if value > 0:
            letters = _alpha(value)
        case "upperRoman" | "lowerRoman" if 0 < value < 4000:
            letters = _roman(value)
        case "ordinal":
            teen = value % 100 in (11, 12, 13)
            return f"{value}{'th' if teen else _ORDINALS.get(value % 10, 'th')}"
        case _ if format in _COUNTED_IN_HAN and 0 < value < 100:
            tens, ones = divmod(value, 10)
            before = _HAN[tens] if tens > 1 else ""
            return before + ("十" if tens else "") + (_HAN[ones] if ones else "")
        case _:
            return str(value)
    return letters.upper() if format.startswith("upper") else letters


def _alpha(value: int) -> str:
    letters = ""
    while value > 0:
        value, digit = divmod(value - 1, 26)
        letters = chr(ord("a") + digit) + letters
    return letters


def _roman(value: int) -> str:
    letters = ""
    for worth, letter in _ROMAN:
        letters += letter * (value // worth)
        value %= worth
    return letters
