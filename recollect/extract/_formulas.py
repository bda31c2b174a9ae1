"""Formulas as LaTeX within dollar signs: those of MathML, and those of Office.

MathML Core; Office Math is ECMA-376 part 1, 22.1. Signs stay as they are: `±`, not `\\pm`.
"""

import re
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

DEPTH = 100
"""levels of a formula; what stands deeper counts as on the last of them"""

_OVER = {
    **dict.fromkeys("^\u02c6\u0302", "hat"),
    **dict.fromkeys("~\u02dc\u0303", "tilde"),
    **dict.fromkeys(("¯", "‾", "\\_", "\u0304", "\u0305"), "overline"),
    **dict.fromkeys("→\u20d7", "vec"),
    **dict.fromkeys("˙\u0307", "dot"),
    **dict.fromkeys("¨\u0308", "ddot"),
    **dict.fromkeys("ˇ\u030c", "check"),
    **dict.fromkeys("\xb4\u02ca\u0301", "acute"),
    **dict.fromkeys("`\u02cb\u0300", "grave"),
    **dict.fromkeys("˘\u0306", "breve"),
    "⏞": "overbrace",
}
_UNDER = {
    **dict.fromkeys(("¯", "‾", "\\_", "\u0331", "\u0332"), "underline"),
    "⏟": "underbrace",
}
_SIGNS = str.maketrans(
    {sign: f"\\{sign}" for sign in "{}%#&_$"}
    | {"\\": "\\backslash ", "|": "\\vert ", "\u2061": " "}
    | dict.fromkeys("\u2062\u2063\u2064\u200b", "")
)
_SPACES = re.compile(r"\s+")
_LOOSE = re.compile(r" (?=[\s_^,.;])|(?<=[{(\[])(?<!\\text\{) ")
_FAR = 1_000
"""characters of a script that are looked at"""
_WORD = re.compile(r"[^\W\d_]{2,}")
_KEPT = {ord(sign): 0x10FE00 + ord(sign) for sign in string.punctuation + " "}
_PLAIN = {kept: sign for sign, kept in _KEPT.items()}
_DOLLAR = chr(_KEPT[ord("$")])
_ON = ("", "1", "on", "true")
_OFF = ("0", "off", "false")
_TOKENS = frozenset({"mi", "mn", "mo", "mtext", "ms", "t"})
_UNSEEN = frozenset(
    {"annotation", "annotation-xml", "mphantom", "mprescripts", "none", "del", "moveFrom"}
)
"""the last two of Word, for what was taken out"""


@dataclass(slots=True)
class Element:
    """A part of a formula, named without its prefix."""

    name: str
    attributes: Mapping[str, str | None]
    children: "list[Element]"
    text: str = ""
    """of a leaf"""

    def of(self, name: str) -> "Element":
        """The child of that name; an empty one if there is none."""
        return next((child for child in self.children if child.name == name), _NOTHING)

    def said(self) -> str:
        return self.text or "".join(child.said() for child in self.children)

    def value(self, properties: str, name: str, default: str) -> str:
        """What a property of an element of Office says; "" for one that says nothing."""
        said = self.of(properties).of(name)
        return default if said is _NOTHING else said.attributes.get("val") or ""


_NONE: Mapping[str, str | None] = {}
_NOTHING = Element("", _NONE, [])


class Formula:
    """A formula as it is read, tag by tag."""

    def __init__(self) -> None:
        self.root = Element("", _NONE, [])
        self._open = [self.root]
        self._deeper = 0

    def start(self, name: str, attributes: Mapping[str, str | None]) -> None:
        element = Element(name, attributes, [])
        self._open[-1].children.append(element)
        if len(self._open) < DEPTH:
            self._open.append(element)
        else:
            self._deeper += 1

    def leaf(self, name: str, text: str) -> None:
        """An element that has but text."""
        self._open[-1].children.append(Element(name, _NONE, [], text))

    def end(self) -> None:
        if self._deeper:
            self._deeper -= 1
        elif len(self._open) > 1:
            self._open.pop()

    def text(self, piece: str) -> None:
        """What it says there; spaces between tags are nothing."""
        into = self._open[-1]
        if into.name in _TOKENS or not piece.isspace():
            into.children.append(Element("", _NONE, [], piece))


def latex(formula: Element, *, block: bool = False) -> str:
    """`$x^2$`, or `$$x^2$$` for one that stands by itself; nothing for one without words."""
    return quoted(_written(formula), block=block)


def quoted(tex: str, *, block: bool = False) -> str:
    """The same of what is TeX already."""
    text = _LOOSE.sub("", _SPACES.sub(" ", tex)).strip()
    mark = "$$" if block else "$"
    return f"{mark}{text}{mark}" if text else ""


def kept(text: str) -> str:
    """In signs that converters to Markdown leave alone, for `plain`."""
    return text.translate(_KEPT)


def plain(markdown: str) -> str:
    return markdown.translate(_PLAIN) if _DOLLAR in markdown else markdown


def _written(element: Element) -> str:
    if element.name in _UNSEEN or element.name.endswith("Pr"):
        return ""
    write = _WRITERS.get(element.name)
    return write(element) if write else _row(element.children) or _signs(element.text)


def _token(element: Element) -> str:
    """What it says, or the parts that KaTeX writes in an operator."""
    is_parted = any(child.name for child in element.children)
    return _row(element.children) if is_parted else _signs(element.said().strip())


def _row(elements: Iterable[Element]) -> str:
    text = ""
    was_name = False
    for element in elements:
        part = _written(element)
        # Names of more than one letter stand apart, `a sin x`, and so do scripts: `x^2 y`.
        is_name = len(part) > 1 and part.isalpha() and _is_upright(element)
        is_parted = is_name or was_name or text[-2:-1] in ("_", "^")
        if is_parted and text[-1:].isalnum() and part[:1].isalnum():
            text += " "
        text += part
        was_name = is_name or (was_name and not part)
    return text


def _is_upright(element: Element) -> bool:
    return element.name in ("mi", "mo") or element.value("rPr", "sty", "i") == "p"


def _signs(text: str) -> str:
    return _SPACES.sub(" ", text).translate(_SIGNS)


def _words(text: str) -> str:
    text = _signs(text)
    return f"\\text{{{text}}}" if _WORD.search(text) else text


def _group(text: str) -> str:
    return text if len(text) == 1 else f"{{{text.strip()}}}"


def _fraction(above: str, below: str, *, line: bool = True) -> str:
    if line:
        return f"\\frac{{{above}}}{{{below}}}"
    return f"{{{above} \\atop {below}}}"


def _root(base: str, degree: str = "") -> str:
    return f"\\sqrt[{degree}]{{{base}}}" if degree.strip() else f"\\sqrt{{{base}}}"


def _scripts(base: str, below: str, above: str = "") -> str:
    below = f"_{_group(below)}" if below.strip() else ""
    above = f"^{_group(above)}" if above.strip() else ""
    is_twice = any(_ends_in(base, script[0]) for script in (below, above) if script)
    base = f"{{{base.strip()}}}" if is_twice or not base.strip() else base
    return base + below + above


def _ends_in(text: str, sign: str) -> bool:
    """Whether it has such a script already, or one too long to tell."""
    end = len(text)
    while start := _last(text, end):
        if text[start - 1] == sign:
            return True
        if text[start - 1] not in "^_":
            return False
        end = start - 1
    return end > _FAR


def _last(text: str, end: int) -> int:
    """Where the last sign or group ahead of there begins; 0 if that is the beginning, or far."""
    depth = 0
    for at in range(end - 1, max(end - _FAR, 0), -1):
        if text[at] in "{}" and text[at - 1] != "\\":
            depth += 1 if text[at] == "}" else -1
        if depth <= 0:
            return at
    return 0


def _limits(base: str, below: str, above: str = "") -> str:
    if not below and (accent := _OVER.get(above.strip())):
        return f"\\{accent}{{{base}}}"
    if not above and (accent := _UNDER.get(below.strip())):
        return f"\\{accent}{{{base}}}"
    return _scripts(base, below, above)


def _matrix(rows: Iterable[Iterable[str]]) -> str:
    lines = r" \\ ".join(" & ".join(cell.strip() for cell in row) for row in rows)
    return f"\\begin{{matrix}}{lines}\\end{{matrix}}"


def _fenced(opening: str, parts: Sequence[str], separators: str, closing: str) -> str:
    text = ""
    for at, part in enumerate(parts):
        if at and separators:
            text += separators[min(at, len(separators)) - 1].translate(_SIGNS)
        text += part
    return opening.translate(_SIGNS) + text + closing.translate(_SIGNS)


def _parts(element: Element, count: int) -> list[str]:
    """What its children say; the last has what one too many says."""
    parts = list(map(_written, element.children[: count - 1]))
    return [*parts, *[""] * (count - 1 - len(parts)), _row(element.children[count - 1 :])]


def _mfrac(element: Element) -> str:
    thickness = element.attributes.get("linethickness") or ""
    return _fraction(*_parts(element, 2), line=not thickness.startswith("0"))


def _mfenced(element: Element) -> str:
    told = element.attributes
    separators = "".join((told.get("separators", ",") or "").split())
    parts = [_written(child) for child in element.children]
    return _fenced(told.get("open", "(") or "", parts, separators, told.get("close", ")") or "")


def _mmultiscripts(element: Element) -> str:
    names = [child.name for child in element.children]
    split = names.index("mprescripts") if "mprescripts" in names else len(names)
    ahead, behind = element.children[split + 1 :], element.children[1:split]
    left = _scripts("{}", _row(ahead[0::2]), _row(ahead[1::2])) if ahead else ""
    return left + _scripts(_row(element.children[:1]), _row(behind[0::2]), _row(behind[1::2]))


def _mtable(element: Element) -> str:
    rows = [row for row in element.children if row.name in ("mtr", "mlabeledtr")]
    return _matrix([map(_written, row.children) for row in rows])


def _run(element: Element) -> str:
    """A run of Office: `nor` says that it is text."""
    text = "".join(child.said() for child in element.children if child.name == "t")
    return _words(text) if element.value("rPr", "nor", "0") in _ON else _signs(text)


def _f(element: Element) -> str:
    above, below = _written(element.of("num")), _written(element.of("den"))
    return _fraction(above, below, line=element.value("fPr", "type", "bar") != "noBar")


def _rad(element: Element) -> str:
    is_square = element.value("radPr", "degHide", "0") in _ON
    return _root(_written(element.of("e")), "" if is_square else _written(element.of("deg")))


def _nary(element: Element) -> str:
    sign = element.value("naryPr", "chr", "∫")
    below, above = _written(element.of("sub")), _written(element.of("sup"))
    return f"{_scripts(sign, below, above)} {_written(element.of('e'))}"


def _delimited(element: Element) -> str:
    parts = [_written(child) for child in element.children if child.name == "e"]
    opening, middle, closing = (
        element.value("dPr", f"{which}Chr", default)
        for which, default in (("beg", "("), ("sep", "|"), ("end", ")"))
    )
    return _fenced(opening, parts, middle, closing)


def _marked(element: Element) -> str:
    """An accent, a bar or a brace over or under a part."""
    kind, base = element.name, _written(element.of("e"))
    above = element.value(f"{kind}Pr", "pos", "top" if kind == "acc" else "bot") == "top"
    sign = element.value(
        f"{kind}Pr", "chr", {"acc": "\u0302", "bar": "¯"}.get(kind, "⏞" if above else "⏟")
    )
    return _limits(base, "", sign) if above else _limits(base, sign, "")


def _m(element: Element) -> str:
    rows = [row for row in element.children if row.name == "mr"]
    return _matrix([map(_written, row.children) for row in rows])


def _lines(element: Element) -> str:
    return _matrix([[_written(child)] for child in element.children if child.name == "e"])


_WRITERS: Mapping[str, Callable[[Element], str]] = {
    **dict.fromkeys(("mi", "mn", "mo"), _token),
    **dict.fromkeys(("mtext", "ms"), lambda of: _words(of.said())),
    "mspace": lambda _: " ",
    "mfrac": _mfrac,
    "msqrt": lambda of: _root(_row(of.children)),
    "mroot": lambda of: _root(*_parts(of, 2)),
    "msub": lambda of: _scripts(*_parts(of, 2)),
    "msup": lambda of: _scripts((parts := _parts(of, 2))[0], "", parts[1]),
    "msubsup": lambda of: _scripts(*_parts(of, 3)),
    "munder": lambda of: _limits(*_parts(of, 2)),
    "mover": lambda of: _limits((parts := _parts(of, 2))[0], "", parts[1]),
    "munderover": lambda of: _limits(*_parts(of, 3)),
    "mmultiscripts": _mmultiscripts,
    "mtable": _mtable,
    "mfenced": _mfenced,
    **dict.fromkeys(("semantics", "maction"), lambda of: _row(of.children[:1])),
    "r": _run,
    "f": _f,
    "rad": _rad,
    "sSub": lambda of: _scripts(_written(of.of("e")), _written(of.of("sub"))),
    "sSup": lambda of: _scripts(_written(of.of("e")), "", _written(of.of("sup"))),
    "sSubSup": lambda of: _scripts(
        _written(of.of("e")), _written(of.of("sub")), _written(of.of("sup"))
    ),
    "sPre": lambda of: (
        f"{_scripts('{}', _written(of.of('sub')), _written(of.of('sup')))} {_written(of.of('e'))}"
    ),
    "phant": lambda of: "" if of.value("phantPr", "show", "1") in _OFF else _row(of.children),
    "nary": _nary,
    "d": _delimited,
    "acc": _marked,
    "bar": _marked,
    "groupChr": _marked,
    "m": _m,
    "eqArr": _lines,
    "func": lambda of: f"{_written(of.of('fName'))} {_written(of.of('e'))}",
    "limLow": lambda of: _limits(_written(of.of("e")), _written(of.of("lim")), ""),
    "limUpp": lambda of: _limits(_written(of.of("e")), "", _written(of.of("lim"))),
}
