r"""Signs of RTF files that only the fonts Symbol and Wingdings tell: `{\f3 b}` for β.

They are letters, bytes, or stand at U+F020 to U+F0FF (RTF 1.9.1, fcharset 2).
"""

import re
from collections.abc import Mapping

from recollect.extract.office import _symbols

_TABLE = re.compile(rb"\{\\fonttbl(?:[^{}]|\{(?:[^{}]|\{[^{}]*+\}|(?!))*+\}|(?!))*+\}")
_FONT = re.compile(rb"\\f(\d{1,6})(?!\d)((?:[^{};\\]|\\(?!f\d)|\{[^{}]*+\}|(?!))*+);")
_NAME = re.compile(rb"[\s}](symbol|wingdings(?: 2)?)\s*+(?:\{[^{}]*+\}\s*+)?\Z", re.IGNORECASE)
_NAME_BYTES = 200
_CHARSET = re.compile(rb"\\fcharset2(?!\d)")
_TOKEN = re.compile(
    rb"(?P<open>\{(?:\\\*)?)|(?P<close>\})|\\bin(?P<raw>\d{1,9})[ ]?|\\f(?P<font>\d{1,6})(?!\d)[ ]?"
    rb"|(?P<plain>\\plain(?![a-z])[ ]?)|\\uc(?P<skip>\d)(?!\d)[ ]?|\\u(?P<unicode>-?\d{1,6})[ ]?"
    rb"|\\'(?P<byte>[0-9a-fA-F]{2})|\\(?:[a-z]++(?:-?\d++)?[ ]?|[^a-z])|(?P<text>[^\\{}\r\n]++)"
    rb"|[\r\n]++"
)
UNIT = re.compile(rb"\\'[0-9a-fA-F]{2}|\\[\\{}]|[^\\{}\r\n]")
_PRIVATE = 0xF000

_Signs = Mapping[int, str]


def told(data: bytes) -> bytes:
    """The file with such signs by their numbers in Unicode."""
    fonts = _fonts(data)
    if not fonts:
        return data
    uses = re.compile(rb"\\f(?:%s)(?!\d)" % b"|".join(b"%d" % font for font in fonts))
    table = _TABLE.search(data)
    at = table.end() if table else 0
    pieces = [data[:at]]
    while use := uses.search(data, at):
        pieces.append(data[at : use.start()])
        stretch, at = _stretch(data, use.start(), fonts)
        pieces += stretch
    return b"".join([*pieces, data[at:]])


def _fonts(data: bytes) -> Mapping[int, _Signs]:
    """By their numbers. Where the font table calls it a font of letters, as LibreOffice does, only
    what stands where Unicode has nothing is a sign."""
    table = _TABLE.search(data)
    found: dict[int, _Signs] = {}
    for font in _FONT.finditer(table[0]) if table else ():
        if name := _NAME.search(font[2][-_NAME_BYTES:]):
            signs = _symbols.FONTS[name[1].decode().lower()]
            private = {_PRIVATE + at: sign for at, sign in signs.items()}
            found[int(font[1])] = {**signs, **private} if _CHARSET.search(font[2]) else private
    return found


def _stretch(data: bytes, at: int, fonts: Mapping[int, _Signs]) -> tuple[list[bytes], int]:
    """What stands from there to the end of the group or to where another font begins, in pieces;
    and where that ends."""
    pieces: list[bytes] = []
    signs: _Signs = {}
    groups: list[tuple[_Signs, int]] = []
    skip = 1
    while token := _TOKEN.match(data, at) or UNIT.match(data, at):
        at = token.end()
        written, kind = token[0], token.lastgroup
        if kind == "open":
            groups.append((signs, skip))
            signs = {} if written.endswith(b"*") else signs
        elif kind == "close":
            if not groups:
                return pieces, token.start()
            signs, skip = groups.pop()
        elif kind in ("font", "plain"):
            signs = fonts.get(int(token["font"]), {}) if kind == "font" else {}
        elif kind == "skip":
            skip = int(token["skip"])
        elif kind == "raw":
            written, at = data[token.start() : at + int(token["raw"])], at + int(token["raw"])
        elif signs and kind in ("unicode", "byte", "text"):
            written, at = _signed(data, token, signs, skip)
        pieces.append(written)
        if not groups and not signs:
            return pieces, at
    return [*pieces, data[at : at + 1]], at + 1


def _signed(data: bytes, token: re.Match[bytes], signs: _Signs, skip: int) -> tuple[bytes, int]:
    at = token.end()
    match token.lastgroup:
        case "unicode":
            number = int(token["unicode"]) & 0xFFFF
            shown = signs.get(number) if number > _PRIVATE else None
            if shown is None:
                return token[0], at
            for _ in range(skip):
                unit = UNIT.match(data, at)
                at = unit.end() if unit else at
            return numbered(shown), at
        case "byte":
            shown = signs.get(int(token["byte"], 16))
            return numbered(shown) if shown else token[0], at
        case _:
            text = "".join(signs.get(byte, chr(byte)) for byte in token[0])
            return token[0] if text == token[0].decode("latin-1") else numbered(text), at


def numbered(text: str) -> bytes:
    return b"{\\uc0%s}" % b"".join(b"\\u%d " % ord(character) for character in text)
