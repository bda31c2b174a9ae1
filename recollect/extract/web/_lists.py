"""Lists whose items a reader sees under letters, Roman numerals, or numbers out of turn.

The converter counts in Arabic numerals. HTML Standard, 4.4.5 and 4.4.8.
"""

import re

from selectolax.lexbor import LexborHTMLParser, LexborNode

from recollect.extract._numerals import numeral

_TYPES = {"a": "lowerAlpha", "A": "upperAlpha", "i": "lowerRoman", "I": "upperRoman"}
_STYLES = {
    f"{case}-{kind}": f"{case}{format}"
    for case in ("lower", "upper")
    for kind, format in (("alpha", "Alpha"), ("latin", "Alpha"), ("roman", "Roman"))
}
_STYLE = re.compile(rf"list-style(?:-type)?\s*:[^;]{{0,100}}?\b({'|'.join(_STYLES)})\b")
_MARK = "\U0010fffa"
_MARKED = re.compile(rf"(?:-?[0-9]{{1,6}}([.)]) )?{_MARK}([^{_MARK}]*){_MARK} *")
_INTEGER = re.compile(r"\s*(-?[0-9]{1,6})")
_AHEAD = frozenset({"p", "div", "section"})
"""elements in which an item may have its first words"""


def mark(page: LexborHTMLParser) -> None:
    """Write such numbers ahead of the words of the items, for `unmarked`."""
    for ordered in page.css("ol"):
        shown = _format(ordered)
        items = [node for node in ordered.iter() if node.tag == "li"]
        is_reversed = "reversed" in ordered.attributes
        given = any("value" in item.attributes for item in items)
        if shown == "decimal" and not is_reversed and not given:
            continue
        at = _integer(ordered.attributes.get("start"), len(items) if is_reversed else 1)
        for item in items:
            at = _integer(item.attributes.get("value"), at)
            _write(item, f"{_MARK}{numeral(at, shown)}{_MARK}")
            at += -1 if is_reversed else 1


def unmarked(markdown: str) -> str:
    """With those numbers in place of the converter's; letters stand behind a bullet."""
    return _MARKED.sub(_shown, markdown) if _MARK in markdown else markdown


def _shown(item: re.Match[str]) -> str:
    ahead = "- " if item[1] and not item[2].lstrip("-").isdecimal() else ""
    return f"{ahead}{item[2]}{item[1] or '.'} "


def _format(ordered: LexborNode) -> str:
    style = _STYLE.search((ordered.attributes.get("style") or "").lower())
    own = _TYPES.get(ordered.attributes.get("type") or "", "decimal")
    return _STYLES.get(style[1], own) if style else own


def _integer(value: str | None, other: int) -> int:
    found = _INTEGER.match(value or "")
    return int(found[1]) if found else other


def _write(item: LexborNode, label: str) -> None:
    first = item.first_child
    while first is not None:
        if first.tag in _AHEAD:
            first = first.first_child
        elif first.is_text_node and not (first.text_content or "").strip():
            first = first.next
        else:
            break
    if first is not None and first.tag not in ("ol", "ul"):
        first.insert_before(label)
