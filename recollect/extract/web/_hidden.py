"""What a page holds that no reader of it sees: words for machines, often meant to mislead them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from selectolax.lexbor import LexborHTMLParser, LexborNode

_MARKED = '[hidden]:not([hidden="until-found" i]), [aria-hidden="true"]'
_STYLED = "[style], font[color], [bgcolor]"
_COLOURED = '[style*="color" i], [style*="background" i], font[color], [bgcolor], [background]'
_FAR = 999
"""Pixels from which on something lies off the page."""
_ALIKE = 24
"""Difference of two colours, over red, green and blue, that nobody sees."""

_DECLARATION = re.compile(r"([a-z-]+)\s*:\s*([^;]+)")
_LENGTH = re.compile(r"(-?\d*\.?\d+)([a-z%]*)")
_RGB = re.compile(
    r"rgba?\(\s*([0-9]{1,9})[\s,]+([0-9]{1,9})[\s,]+([0-9]{1,9})(?:[\s,/]+([\d.]+)(%?))?\s*\)"
)
_NO_AREA = re.compile(r"rect\(\s*0[^1-9]*\)|inset\(\s*(?:50|100)%|circle\(\s*0")
_NAMED = {
    "white": (255, 255, 255),
    "snow": (255, 250, 250),
    "ivory": (255, 255, 240),
    "whitesmoke": (245, 245, 245),
    "ghostwhite": (248, 248, 255),
    "floralwhite": (255, 250, 240),
    "black": (0, 0, 0),
}
_WHITE = (255, 255, 255)

Colour = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Hidden:
    """Nodes to take out, and characters that stay although they may not be seen."""

    nodes: list[LexborNode]
    doubtful: int


def find(page: LexborHTMLParser) -> Hidden:
    """By attributes and inline styles; rules of style sheets are not looked up."""
    nodes = list(page.css(_MARKED))
    doubtful = 0
    # White text may stand on what a style sheet colours.
    plain = page.css_first("style, link[rel~=stylesheet]") is None
    for node in page.css(_STYLED):
        style = _style(node)
        if _takes_no_room(node, style) or _is_masked(node, style):
            nodes.append(node)
        elif (colour := _own_colour(node, style)) and not _recoloured(node):
            background = _background(node, _WHITE if plain else None)
            if background and _alike(colour, background):
                nodes.append(node)
            elif background is None and colour == _WHITE:
                doubtful += len("".join(node.text().split()))
    return Hidden(nodes, doubtful)


def _style(node: LexborNode) -> Mapping[str, str]:
    declared = (node.attributes.get("style") or "").lower()
    return {name: value.strip() for name, value in _DECLARATION.findall(declared)}


def _takes_no_room(node: LexborNode, style: Mapping[str, str]) -> bool:
    if style.get("display", "").startswith("none"):
        return True
    if _is_zero(style.get("font-size"), below=1.5) and not _any_below(node, "font-size"):
        # Mail programs zero the size around columns, which set their own.
        return True
    cut = any(style.get(name, "").startswith(("hidden", "clip")) for name in _OVERFLOWS)
    return cut and any(_is_zero(style.get(name), below=1.5) for name in _SIZES)


_OVERFLOWS = ("overflow", "overflow-x", "overflow-y")
_SIZES = ("width", "height", "max-width", "max-height")
_EDGES = ("left", "top", "right", "bottom")


def _is_masked(node: LexborNode, style: Mapping[str, str]) -> bool:
    """Not painted, or where no page is."""
    if style.get("visibility", "").startswith(("hidden", "collapse")):
        return not _any_below(node, "visibility")
    if _is_zero(style.get("opacity"), below=0.05):
        return True
    if any(_NO_AREA.match(style.get(name, "")) for name in ("clip", "clip-path")):
        return True
    if _is_far(style.get("text-indent")):
        return True
    if style.get("position", "").startswith(("absolute", "fixed")):
        return any(_is_far(style.get(edge)) for edge in _EDGES)
    return False


def _is_zero(length: str | None, *, below: float) -> bool:
    """Whether nothing can be read at that size: pixels or points below a limit, else nothing."""
    match = _LENGTH.match(length or "")
    if not match:
        return False
    limit = below if match[2] in ("px", "pt", "") else 0.05
    return 0 <= float(match[1]) < limit


def _is_far(length: str | None) -> bool:
    match = _LENGTH.match(length or "")
    if not match:
        return False
    return float(match[1]) <= (-_FAR / 16 if match[2] in ("em", "rem") else -_FAR)


def _any_below(node: LexborNode, name: str) -> bool:
    """Whether a part of it takes back what `name` did to the whole."""
    for part in node.css(f'[style*="{name}" i]'):
        value = _style(part).get(name, "")
        if part.mem_id != node.mem_id and value:
            shown = value.startswith("visible") if name == "visibility" else True
            if shown and not _is_zero(value, below=1.5):
                return True
    return False


def _own_colour(node: LexborNode, style: Mapping[str, str]) -> Colour | None:
    """The colour of its text, if it names one; that of what lies behind it for a transparent."""
    named = style.get("color") or (
        (node.attributes.get("color") or "").lower() if node.tag == "font" else ""
    )
    if named.startswith("transparent") or _is_clear(named):
        return _background(node, _WHITE) or _WHITE
    return _colour(named)


def _is_clear(named: str) -> bool:
    match = _RGB.match(named)
    return bool(match and match[4] and float(match[4]) * (0.01 if match[5] else 1) < 0.05)


def _colour(named: str) -> Colour | None:
    word = named.split("!")[0].strip()
    if word in _NAMED:
        return _NAMED[word]
    if match := _RGB.match(word):
        return int(match[1]), int(match[2]), int(match[3])
    digits = word.removeprefix("#")
    if len(digits) in (3, 4):
        digits = "".join(2 * digit for digit in digits[:3])
    try:
        return (int(digits[0:2], 16), int(digits[2:4], 16), int(digits[4:6], 16))
    except ValueError:
        return None


def _background(node: LexborNode, page: Colour | None) -> Colour | None:
    """The colour behind it: the nearest that is named, else that of the page; None if that is not
    known, or a picture."""
    for around in _and_ancestors(node):
        style = _style(around)
        if style.get("background-image", "none") != "none" or around.attributes.get("background"):
            return None
        named = style.get("background-color") or style.get("background")
        named = named or (around.attributes.get("bgcolor") or "").lower()
        if named and not named.startswith(("transparent", "none", "inherit", "initial")):
            return _colour(named.split(" ")[0] if not named.startswith("rgb") else named)
    return page


def _and_ancestors(node: LexborNode) -> Iterator[LexborNode]:
    around: LexborNode | None = node
    while around is not None:
        yield around
        around = around.parent


def _recoloured(node: LexborNode) -> bool:
    return any(part.mem_id != node.mem_id for part in node.css(_COLOURED))


def _alike(one: Colour, other: Colour) -> bool:
    return sum(abs(first - second) for first, second in zip(one, other, strict=True)) <= _ALIKE
