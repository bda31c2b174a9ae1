"""Markdown that converters wrote, for reading and searching: signs and words are whole in it."""

import re
from collections.abc import Iterable, Iterator

_CODE = r"^```.*?^```|(?<!`)(`+)(?!`)(?:[^\n]|\n(?!\n)){0,2000}?(?<!`)\1(?!`)"
_NUMBER_SIGN = r"(?<=[^\n]\\)\#|\#(?!(?:\\?\#)*[ \t])"
"""one that begins no heading without its backslash"""
_BY_HTML, _BY_XBERG = (
    re.compile(f"(?:{_CODE})|\\\\({_NUMBER_SIGN}|{signs})", re.DOTALL | re.MULTILINE)
    for signs in (
        r"[!\"$-/:-@\[-`{}~]",
        # Ahead of `()=-` xberg puts none: those that stand there are the author's.
        r"[!\"$-'*-,./:-<>-@\[-`{}~]",
    )
)
_MARKS = ("*", "__", "==", "~~")
_NUMBERED = r"&#(9|32|160|5760|819\d|820[0-2]|8239|8287|12288);"
_SPACE = re.compile(rf"(__|==){_NUMBERED}(?:\1)?|{_NUMBERED}(__|==)")
"""at the edge of what is underlined or marked; xberg writes it so that it would be within that"""
_FENCE = re.compile(r"[ >]*(`{3,})(.*)")
_GLUED = re.compile(
    r"(?:\*(?<=[^\s*]\*)\*{0,5}|__(?<=[^\s_]__)|==(?<=[^\s=]==)|~~(?<=[^\s~]~~))[-'\u2019]?[^\W_]"
)
"""a mark with a word on both its sides"""
_JOINED = re.compile(
    r"(?<![\w*\\])(\*{1,3})(?![\s*])([^*\n]{1,500}(?<!\s)(?:\1\1(?![\s*])[^*\n]{1,500}(?<!\s))+)\1(?!\*)"
)
"""what stands apart twice in succession, as `**in****to**`"""
_SPACED = r"[^\W\d_\u0e00-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u30ff\u3400-\u9fff\uac00-\ud7ff]"
"""a letter of a script that parts words by spaces"""
_PARTS = tuple(
    re.compile(pattern.replace("L", _SPACED))
    for pattern in (
        # The first letters of a word, or words up to there.
        r"(?<![\w*])(\*{1,3})([^\W\d_]{1,20})\1(?=[^\W\d_])",
        r"(?<![\w*=~])(\*{1,3}|__|==|~~)([^\s*=~_]{0,40}[^\W_])\1(?=[-'\u2019]?L|\d)",
        r"(?<![\w*])(\*{2,3})((?=[^\s*])[^*\n]{0,300}?L)\1(?=L)",
        # The last ones, or words from there on.
        r"(?<=[^\W_])(\*{1,3}|==|~~)(L{1,40})\1(?![\w*=~])",
        r"(?<=L)(\*{2,3})(L[^*\n]{0,300}?[^\s*])\1(?![\w*])",
        # Those in the middle; `x**y**z` and `width*height*depth` are rather formulas.
        r"(?<=LL)(\*{2,3})(L{1,40})\1(?=L)",
    )
)
_POWER = re.compile(r"[+\-\u2212]?\d")


def plain(text: str, *, by_xberg: bool = False) -> str:
    """Without the backslashes that a converter put before signs, as in `p \\< 0.05`, but for those
    of a `#` that would begin a heading, of a `|`, which ends a cell, and those in code. Nor does
    emphasis part a word: `**R**etrieval` would be found by neither part."""
    if by_xberg and "&#" in text:
        text = _SPACE.sub(_outside, text)
    if any(mark in text for mark in _MARKS) and _GLUED.search(text):
        text = "\n".join(_whole(text.split("\n")))
    if "\\" not in text:
        return text
    return (_BY_XBERG if by_xberg else _BY_HTML).sub(lambda at: at[2] or at[0], text)


def _outside(edge: re.Match[str]) -> str:
    if edge[1]:
        return chr(int(edge[2])) + (edge[1] if edge[0].endswith(";") else "")
    return edge[4] + chr(int(edge[3]))


def _whole(lines: Iterable[str]) -> Iterator[str]:
    """The lines with their words whole, but for code."""
    fence = ""
    for line in lines:
        if found := _FENCE.match(line):
            ends = fence and found[1].startswith(fence) and not found[2]
            fence = "" if ends else fence or found[1]
        elif not fence and "`" not in line and _GLUED.search(line):
            line = _JOINED.sub(lambda at: at[1] + at[2].replace(at[1] * 2, "") + at[1], line)
            for part in _PARTS:
                line = part.sub(r"\2", line)
        yield line


def raised(part: str, before: str) -> str:
    """A superscript as plain text: behind a digit `10^6`, else `m2`, `1st`."""
    return f"^{part}" if before[-1:].isdigit() and _POWER.match(part) else part
