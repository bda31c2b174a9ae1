"""Numbers set higher behind numbers, as in ten to the sixth: `10^6`, and not 106."""

import re
from collections.abc import Collection, Mapping

_AHEAD = rb"(?=[+\-]?\d|\xe2\x88\x92\d)"
_ALIGN = b"vertAlign"
_ALIGNED = re.compile(
    rb"<(\w+:|)vertAlign\s[^<>]*(?:/>|></\1vertAlign>)"
    rb"((?:(?!</\1r>|<\1(?:t|vertAlign)\b)[\s\S]){0,1000}?<\1t\b[^<>]*>" + _AHEAD + rb")?"
)
_RUN = re.compile(
    rb"\d</(\w+:|)t>\s*</\1r>(?:<\1(?:proofErr|bookmarkStart|bookmarkEnd)\b[^<>]*/>|\s|(?!))*+<\1r\b[^<>]*>"
    rb"(?:(?!</\1r>|<\1t\b)[\s\S])*\Z"
)
"""the end of a number ahead of the format of the next run"""
_SPAN = re.compile(rb"<text:span text:style-name=\"([^\"]*)\">" + _AHEAD)
_DIGIT = re.compile(rb"\d(?:</text:span>)?\Z")
_POSITION = re.compile(rb"text-position=\"(?:super|[1-9])")
_NAME = b'style:name="'
_FORMAT = (
    rb"(?:[\r\n]|\\(?!super|nosupersub|plain|u-?\d|(?:par|line|tab|cell|row)(?![a-z]))[a-z]++"
    rb"(?:-?\d++)?[ ]?|(?!))*+"
)
_RAISED = re.compile(rb"\\super(?!\w)[ ]?" + _FORMAT + rb"(?=[+\-]?\d|\\u8722(?!\d))")
# A number is text unless it belongs to a control word.
_BEHIND = re.compile(rb"(?<![\w\\-])\d{1,20}\}?\{?" + _FORMAT + rb"\Z")


def in_word(source: bytes) -> bytes:
    """A part of a DOCX without runs that are set lower or higher, of which xberg makes `CO~2~`."""

    def level(aligned: re.Match[bytes]) -> bytes:
        rest = aligned[2]
        if rest is None or b"super" not in aligned[0][: -len(rest)]:
            return rest or b""
        end = aligned.start()
        text = source.rfind(b"t></", max(0, end - 1000), end)
        is_power = text >= 0 and _RUN.search(source, max(0, text - 12), end)
        return rest + b"^" if is_power else rest

    return _ALIGNED.sub(level, source) if _ALIGN in source else source


def raising(styles: bytes) -> set[bytes]:
    """Names of the styles of an OpenDocument that set higher what has them."""
    found: set[bytes] = set()
    for raised in _POSITION.finditer(styles):
        start = styles.rfind(_NAME, 0, raised.start()) + len(_NAME)
        found.add(styles[start : styles.find(b'"', start)])
    return found


def is_raised(attributes: Mapping[str, str]) -> bool:
    """Whether properties of an OpenDocument's style say so (OpenDocument 1.3 part 3, 20.394)."""
    position = attributes.get("text-position", "")
    return position.startswith("super") or position[:1] in tuple("123456789")


def in_odt(source: bytes, styles: Collection[bytes]) -> bytes:
    """The text of an OpenDocument with a sign ahead of them; `styles` set higher."""

    def signed(span: re.Match[bytes]) -> bytes:
        is_power = span[1] in styles and _DIGIT.search(source, span.start() - 20, span.start())
        return span[0] + b"^" if is_power else span[0]

    return _SPAN.sub(signed, source) if styles else source


def in_rtf(data: bytes) -> bytes:
    """An RTF with a sign ahead of them."""

    def signed(raised: re.Match[bytes]) -> bytes:
        end = raised.start()
        group = data.rfind(b"}", max(0, end - 300), end)
        at = max(0, (group if group >= 0 else end) - 20)
        return raised[0] + b"^" if _BEHIND.search(data, at, end) else raised[0]

    return _RAISED.sub(signed, data)
