"""RTF whose bytes xberg cannot read: raw ones, those of East Asian fonts, code pages of DOS."""

import codecs
import re

_DEFAULT = re.compile(rb"\\(?:ansicpg(\d{3,5})|(pca?)(?![a-z]))")
_CHARSETS = {128: "cp932", 129: "cp949", 130: "johab", 134: "cp936", 136: "cp950"}
"""of fonts, by number (RTF 1.9.1, fcharset); several bytes a character"""
_WIDE = frozenset({*_CHARSETS.values(), "cp1361"})
_NARROW = frozenset({161, 162, 163, 177, 178, 186, 204, 222, 238})
"""charsets of one byte a character, which xberg knows"""
_OLD = {b"pc": "cp437", b"pca": "cp850"}
_EAST_ASIAN = re.compile(rb"\\fcharset(?:128|129|130|134|136)(?!\d)")
_TOKEN = re.compile(
    rb"(?P<group>[{}])"
    rb"|\\bin(?P<raw>\d{1,9})[ ]?"
    rb"|\\uc(?P<skip>\d)(?!\d)"
    rb"|\\u-?\d{1,6}[ ]?(?P<unicode>)"
    rb"|\\f(?P<font>\d{1,6})(?!\d)"
    rb"|\\fcharset(?P<charset>\d{1,3})(?!\d)"
    rb"|(?P<plain>\\plain(?![a-z]))"
    rb"|(?P<byte>\\'[0-9a-fA-F]{2}|[\x80-\xff]++)"
    rb"|\\[\\{}]"
)
_UNIT = re.compile(rb"[\r\n]*+(\\'[0-9a-fA-F]{2}|\\[\\{}]|[^\\{}\r\n])")
"""a byte of text; lines end anywhere"""


def in_unicode(data: bytes) -> bytes:
    """The file with each byte that xberg cannot read written as `\\u` and a number; all others
    stay."""
    found = _DEFAULT.search(data)
    page = _OLD.get(found[2]) or f"cp{found[1].decode()}" if found else ""
    if data.isascii() and not _is_odd(page) and not _EAST_ASIAN.search(data):
        return data
    return _Rewritten(data, page if _is_odd(page) else None).whole()


def _is_odd(page: str) -> bool:
    """Whether Python knows the page and xberg does not."""
    if not page or page.startswith(("cp125", "cp65001")):
        return False
    try:
        codecs.lookup(page)
    except LookupError:
        return False
    return True


class _Rewritten:
    """One walk over the groups of a file. A group has a font, and a number of characters that stand
    behind each `\\u` for readers that do not know it."""

    def __init__(self, data: bytes, page: str | None) -> None:
        self._data, self._page = data, page
        self._fonts: dict[int, str | None] = {}
        self._defined = -1
        try:
            data.decode()
            self._is_utf8 = not data.isascii()
        except UnicodeDecodeError:
            self._is_utf8 = False

    def whole(self) -> bytes:
        data, page = self._data, self._page
        out: list[bytes] = []
        groups = [(1, page)]
        skip, encoding = groups[0]
        at = done = 0
        while token := _TOKEN.search(data, at):
            at = token.end()
            match token.lastgroup:
                case "group" if token[0] == b"{":
                    groups.append((skip, encoding))
                case "group":
                    skip, encoding = groups.pop() if len(groups) > 1 else groups[0]
                case "raw" if (end := at + int(token["raw"])) <= len(data):
                    out.append(data[done : token.start()])
                    at = done = end
                case "skip":
                    skip = int(token["skip"])
                case "unicode":
                    for _ in range(skip):
                        unit = _UNIT.match(data, at)
                        at = unit.end() if unit else at
                case "font":
                    self._defined = int(token["font"])
                    encoding = self._fonts.get(self._defined, page)
                case "charset":
                    self._define(int(token["charset"]))
                case "plain":
                    encoding = page
                case "byte":
                    out.append(data[done : token.start()])
                    text, at = self._text(token, encoding)
                    out.append(text if isinstance(text, bytes) else _numbered(text, skip))
                    done = at
                case _:
                    pass
        return b"".join([*out, data[done:]])

    def _define(self, charset: int) -> None:
        if encoding := _CHARSETS.get(charset):
            self._fonts[self._defined] = encoding
        elif charset == 0 and self._page in _WIDE:
            self._fonts[self._defined] = "cp1252"
        elif charset in _NARROW:
            self._fonts[self._defined] = None

    def _text(self, token: re.Match[bytes], encoding: str | None) -> tuple[str | bytes, int]:
        """The text of a token and the position behind it. A byte of no known charset stays as an
        escape."""
        written, end = token["byte"], token.end()
        is_raw = not written.startswith(b"\\")
        if is_raw and self._is_utf8:
            return written.decode(), end
        if encoding is None:
            return b"".join([b"\\'%02x" % byte for byte in written]) if is_raw else written, end
        if encoding not in _WIDE:
            return (written if is_raw else _byte(written)).decode(encoding, "replace"), end
        characters: list[str] = []
        at = token.start()
        while at < end:
            character, at = self._character(at, encoding)
            characters.append(character)
        return "".join(characters), at

    def _character(self, at: int, encoding: str) -> tuple[str, int]:
        """The character of one or two bytes at a position, and the position behind it."""
        first = _UNIT.match(self._data, at)
        assert first
        byte = _byte(first[1])
        if second := _UNIT.match(self._data, first.end()):
            pair = (byte + _byte(second[1])).decode(encoding, "ignore")
            if len(pair) == 1:
                return pair, second.end()
        return byte.decode(encoding, "replace"), first.end()


def _byte(unit: bytes) -> bytes:
    return bytes.fromhex(unit[2:].decode()) if unit.startswith(b"\\'") else unit[-1:]


def _numbered(text: str, skip: int) -> bytes:
    units = text.encode("utf-16-be")
    numbers = [int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2)]
    return b"".join([b"\\u%d%s" % (number, b"?" * skip or b" ") for number in numbers])
