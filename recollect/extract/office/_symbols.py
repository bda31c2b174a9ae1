"""Signs of office files that only the fonts Symbol and Wingdings tell: β, ≤, arrows, ticks.

They stand at U+F020 to U+F0FF, where Unicode has nothing, or are named by number (ECMA-376 part 1,
17.3.3.30). The signs of Symbol: https://www.unicode.org/Public/MAPPINGS/VENDORS/ADOBE/symbol.txt
"""

import re
from collections.abc import Mapping, Sequence

from recollect.extract import _xml

_SYMBOL = dict(
    enumerate(
        " !∀#∃%&∋()∗+,−./0123456789:;<=>?≅ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ[∴]⊥_"  # noqa: RUF001
        "‾αβχδεφγηιϕκλμνοπθρστυϖωξψζ{|}∼",  # noqa: RUF001
        0x20,
    )
) | dict(
    enumerate(
        "€ϒ′≤⁄∞ƒ♣♦♥♠↔←↑→↓°±″≥×∝∂•÷≠≡≈…⏐⎯↵ℵℑℜ℘⊗⊕∅∩∪⊃⊇⊄⊂⊆∈∉∠∇®©™∏√⋅¬∧∨⇔⇐⇑⇒⇓◊〈®©™∑",  # noqa: RUF001
        0xA0,
    )
)
FONTS = {
    "symbol": _SYMBOL | {0xF1: "〉", 0xF2: "∫"},
    "wingdings": dict(
        zip(
            b"\x4a\x4b\x4c\x6c\x6e\x6f\x71\x76\xa7\xa8\xd8\xdf\xe0\xe7\xe8\xef\xf0\xf3\xfb\xfc\xfd\xfe",
            "☺😐☹●■□❑❖▪☐➢←→⬅➔⇦⇨⇔✗✓☒☑",
            strict=True,
        )
    ),
    "wingdings 2": dict(zip(b"\x4f\x50\x51\x52\x53\xa3", "✗✓☒☑☒☐", strict=True)),
}
"""what their signs are, by the names of the fonts in lower case"""
_NAMED = re.compile(rb"<((?:\w+:)?)sym\b([^<>]*?)/>")
_FONT = re.compile(rb"""font=["'](symbol|wingdings(?: 2)?)["']""", re.IGNORECASE)
_NUMBER = re.compile(rb"""char=["'](?:F0|00)?([2-9A-F][0-9A-F])["']""", re.IGNORECASE)
_TYPED = re.compile("[\uf020-\uf0ff]")
_ANY_TYPED = re.compile(rb"\xef[\x80-\x83]")
_SPAN = re.compile(rb'<text:span text:style-name="([^"]*)">[^<]*')
_SET = re.compile(rb"""(?:ascii|hAnsi)=["'](symbol|wingdings(?: 2)?)["']""", re.IGNORECASE)


def plain(source: bytes) -> bytes:
    """A part in UTF-8 with such signs as characters. The same object where it has none."""
    if _NAMED.search(source):
        source = _NAMED.sub(_named, source)
    if _ANY_TYPED.search(source):
        # What stands between the ends of two runs has one font.
        source = b"</w:r>".join(map(_typed, source.split(b"</w:r>")))
    return source


def in_odt(source: bytes, parts: Sequence[bytes | None]) -> bytes:
    """The text of an OpenDocument in the same way; `parts` say what fonts its styles have."""
    if not _ANY_TYPED.search(source):
        return source
    families: dict[str, str] = {}
    fonts: dict[str, str] = {}
    style = ""

    def start(tag: str, values: Mapping[str, str]) -> None:
        nonlocal style
        if tag == "font-face":
            families[values.get("name", "")] = values.get("font-family", "").strip("'").lower()
        elif tag == "style":
            style = values.get("name", "")
        elif tag == "text-properties":
            fonts[style] = values.get("font-name", "")

    for part in filter(None, parts):
        _xml.parse([part], start)

    def signed(span: re.Match[bytes]) -> bytes:
        signs = FONTS.get(families.get(fonts.get(span[1].decode(), ""), ""))
        return _signed(span[0], signs) if signs else span[0]

    return _SPAN.sub(signed, source)


def typed(text: str, font: str) -> str:
    """A text in that font."""
    signs = FONTS.get(font.lower(), {})
    return _TYPED.sub(lambda sign: signs.get(ord(sign[0]) - 0xF000, sign[0]), text)


def _named(sign: re.Match[bytes]) -> bytes:
    font, number = _FONT.search(sign[2]), _NUMBER.search(sign[2])
    shown = FONTS[font[1].decode().lower()].get(int(number[1], 16)) if font and number else None
    return b"<%st>%s</%st>" % (sign[1], _escaped(shown), sign[1]) if shown else sign[0]


def _typed(run: bytes) -> bytes:
    font = _SET.search(run)
    if not font:
        return run
    return _signed(run, FONTS[font[1].decode().lower()])


def _signed(run: bytes, signs: Mapping[int, str]) -> bytes:
    return _TYPED.sub(
        lambda sign: _escaped(signs.get(ord(sign[0]) - 0xF000, sign[0])).decode(), run.decode()
    ).encode()


def _escaped(sign: str) -> bytes:
    return {"&": b"&amp;", "<": b"&lt;", " ": b" "}.get(sign) or sign.encode()
