"""What a page holds that no reader of it sees: words for machines, often meant to mislead them."""

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from selectolax.lexbor import LexborHTMLParser, LexborNode

from recollect.extract._main import around

_MARKED = '[hidden]:not([hidden="until-found" i]), [aria-hidden="true" i]'
_STYLED = "[style], font[color], [bgcolor], [mathcolor]"
_COLOURED = (
    '[style*="color" i], [style*="background" i], font[color], [bgcolor], [background], '
    "[mathcolor], [mathbackground]"
)
_COLOURS = frozenset({"color", "bgcolor", "background", "mathcolor", "mathbackground"})
_FAR = 999
"""Pixels from which on something lies off the page."""
_ALIKE = 24
"""Difference of two colours, over red, green and blue, that nobody sees."""

_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:([0-9a-f]{1,6})\s?|(.))", re.DOTALL)
_DECLARATION = re.compile(r"(?<![a-z-])([a-z-]++)\s*+:\s*([^;]+)")
_SIZE = re.compile(r"(?<![\w.])(?:0+|\d*\.?\d+(?:[a-z]{2,4}|%))(?=[\s/])")
"""in what sets a font as a whole: other numbers are its weight"""
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
_INHERITED = frozenset({"inherit", "unset", "currentcolor"})

Colour = tuple[int, int, int]


class Backdrop(NamedTuple):
    """What a node sets behind its text."""

    colour: Colour | None
    """None: a picture, or a colour that is not known"""


@dataclass(frozen=True, slots=True)
class Hidden:
    """Nodes to take out, and characters that stay although they may not be seen."""

    nodes: list[LexborNode]
    doubtful: int


def find(page: LexborHTMLParser) -> Hidden:
    """By attributes and inline styles; rules of style sheets are not looked up."""
    nodes = list(page.css(_MARKED))
    doubtful = 0
    looks = _Looks(page)
    # White text may stand on what a style sheet colours.
    plain = page.css_first("style, link[rel~=stylesheet]") is None
    for node in page.css(_STYLED):
        style = _style(node)
        if _takes_no_room(node, style, looks) or _is_masked(node, style, looks):
            nodes.append(node)
        elif colour := _own_colour(node, style, looks):
            background = looks.behind(node, _WHITE if plain else None)
            if background and _alike(colour, background):
                nodes += looks.of_its_colour(node)
            elif background is None and colour == _WHITE:
                parts = looks.of_its_colour(node)
                doubtful += sum(len("".join(part.text().split())) for part in parts)
    return Hidden(nodes, doubtful)


class _Looks:
    """What is asked of many nodes and takes a look at all within or around them: one look at the
    page answers it for all."""

    def __init__(self, page: LexborHTMLParser) -> None:
        self._page = page
        self._behind: dict[int, Backdrop | None] = {}

    @functools.cached_property
    def resized(self) -> set[int]:
        """Nodes of which a part takes back that their text has no size."""
        return self._around("font-size", lambda size: not _is_zero(size, below=1.5))

    @functools.cached_property
    def revealed(self) -> set[int]:
        """The same of what is not painted."""
        return self._around("visibility", lambda value: value.startswith("visible"))

    def _around(self, name: str, shows: Callable[[str], bool]) -> set[int]:
        named = self._page.css(f'[style*="{name.partition("-")[0]}" i]')
        return around(node for node in named if (value := _style(node).get(name)) and shows(value))

    def of_its_colour(self, node: LexborNode) -> Iterator[LexborNode]:
        """All of it, or what stands around the parts that have colours of their own."""
        pending = [node]
        while pending:
            part = pending.pop()
            if part.mem_id in self._recoloured:
                inner = part.iter(include_text=True)
                pending += (one for one in inner if one.mem_id not in self._coloured)
            else:
                yield part

    @functools.cached_property
    def _coloured(self) -> dict[int, LexborNode]:
        return {node.mem_id: node for node in self._page.css(_COLOURED) if _is_coloured(node)}

    @functools.cached_property
    def _recoloured(self) -> set[int]:
        return around(self._coloured.values())

    def behind(self, node: LexborNode, page: Colour | None) -> Colour | None:
        """The colour behind it: the nearest that is named, else that of the page; None if that is
        not known, or a picture."""
        found: Backdrop | None = None
        passed: list[int] = []
        for outer in _and_ancestors(node):
            if outer.mem_id in self._behind:
                found = self._behind[outer.mem_id]
                break
            passed.append(outer.mem_id)
            if found := _backdrop(outer):
                break
        self._behind |= dict.fromkeys(passed, found)
        return found.colour if found else page


def _style(node: LexborNode) -> Mapping[str, str]:
    return _declared((node.attributes.get("style") or "").lower())


@functools.lru_cache(1_000)
def _declared(style: str) -> Mapping[str, str]:
    """However it is written (CSS Syntax 3, 4.3.2 and 4.3.7; CSS Cascade 5, 6.4.3)."""
    if "\\" in style or "/*" in style:
        style = _ESCAPE.sub(_character, _COMMENT.sub("", style)).lower()
    found: dict[str, str] = {}
    for name, told in _DECLARATION.findall(style):
        value = told.strip()
        if name == "font" and (size := _SIZE.search(value)):
            name, value = "font-size", size[0] + value[value.find("!") :] * ("!" in value)
        if "!" in value or "!" not in found.get(name, ""):
            found[name] = value
    return found


def _character(escape: re.Match[str]) -> str:
    number = int(escape[1] or "0", 16)
    return escape[2] or (chr(number) if 0 < number < 0x110000 else "\ufffd")


def _takes_no_room(node: LexborNode, style: Mapping[str, str], looks: _Looks) -> bool:
    if style.get("display", "").startswith("none"):
        return True
    if _is_zero(style.get("font-size"), below=1.5) and node.mem_id not in looks.resized:
        # Mail programs zero the size around columns, which set their own.
        return True
    cut = any(style.get(name, "").startswith(("hidden", "clip")) for name in _OVERFLOWS)
    return cut and any(_is_zero(style.get(name), below=1.5) for name in _SIZES)


_OVERFLOWS = ("overflow", "overflow-x", "overflow-y")
_SIZES = ("width", "height", "max-width", "max-height")
_EDGES = ("left", "top", "right", "bottom")


def _is_masked(node: LexborNode, style: Mapping[str, str], looks: _Looks) -> bool:
    """Not painted, or where no page is."""
    if style.get("visibility", "").startswith(("hidden", "collapse")):
        return node.mem_id not in looks.revealed
    if _is_zero(style.get("opacity"), below=0.05):
        return True
    if any(_NO_AREA.match(style.get(name, "")) for name in ("clip", "clip-path")):
        return True
    if _is_far(style.get("text-indent")):
        return True
    if style.get("position", "").startswith(("absolute", "fixed")):
        edges = (*map(style.get, _EDGES), *style.get("inset", "").split())
        return any(map(_is_far, edges))
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


def _own_colour(node: LexborNode, style: Mapping[str, str], looks: _Looks) -> Colour | None:
    """The colour of its text, if it names one; that of what lies behind it for a transparent."""
    attribute = "color" if node.tag == "font" else "mathcolor"
    named = style.get("color") or (node.attributes.get(attribute) or "").lower()
    if named.startswith("transparent") or _is_clear(named):
        return looks.behind(node, _WHITE) or _WHITE
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


def _backdrop(node: LexborNode) -> Backdrop | None:
    style = _style(node)
    if style.get("background-image", "none") != "none" or node.attributes.get("background"):
        return Backdrop(None)
    named = style.get("background-color") or style.get("background")
    told = node.attributes.get("bgcolor") or node.attributes.get("mathbackground")
    named = named or (told or "").lower()
    if not named or named.startswith(("transparent", "none", "inherit", "initial")):
        return None
    return Backdrop(_colour(named.split(" ")[0] if not named.startswith("rgb") else named))


def _is_coloured(node: LexborNode) -> bool:
    """Whether it sets the colour of its text, or of what lies behind that."""
    style = _style(node)
    return (
        style.get("color", "inherit") not in _INHERITED
        or any(name.startswith("background") for name in style)
        or not _COLOURS.isdisjoint(node.attributes)
    )


def _and_ancestors(node: LexborNode) -> Iterator[LexborNode]:
    outer: LexborNode | None = node
    while outer is not None:
        yield outer
        outer = outer.parent


def _alike(one: Colour, other: Colour) -> bool:
    return sum(abs(first - second) for first, second in zip(one, other, strict=True)) <= _ALIKE
