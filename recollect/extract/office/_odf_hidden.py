"""What a text of OpenDocument does not show (OpenDocument 1.3 part 3, 19.474, 19.850, 20.334)."""

import re
from collections.abc import Mapping

from recollect.extract import _xml

_BY_STYLE = b"text:display="
_BY_ITSELF = (b'text:display="none"', b'text:is-hidden="true"')
_FIELD = re.compile(rb'<text:hidden-paragraph\s[^<>]*?text:is-hidden="true"')
_PARAGRAPH = re.compile(rb"<text:[ph](?=[\s>])")
_FAMILIES = {
    **dict.fromkeys(("text:p", "text:h"), "paragraph"),
    **dict.fromkeys(("text:span", "text:a"), "text"),
}

_Style = tuple[str, str]
"""its family and its name; the name of the one of all that name none is empty"""


def marked(source: bytes) -> bytes:
    """With paragraphs that a field within them hides as such that hide themselves."""
    edits: dict[int, tuple[int, int, bytes]] = {}
    done = 0
    for field in _FIELD.finditer(source):
        # Mostly the field is all that stands ahead.
        for paragraph in _PARAGRAPH.finditer(source, done, field.start()):
            done = paragraph.end()
        edits[done] = (done, done, b' text:display="none"')
    return _xml.edited(source, edits.values()) if edits else source


class Veils:
    """Which elements are hidden: by themselves, by their style, or by one that it is based on."""

    def __init__(self, content: bytes, named: bytes | None) -> None:
        self._hiding: set[_Style] = set()
        if _BY_STYLE in content or (named and _BY_STYLE in named):
            styles = _Styles()
            if named:
                # Those without a name of their own are of what pages repeat.
                styles.read(named, but="office:automatic-styles")
            styles.read(content, but=None)
            self._hiding = styles.hiding()
        self.any = bool(self._hiding) or any(veil in content for veil in _BY_ITSELF)

    def hides(self, name: str, attributes: Mapping[str, str]) -> bool:
        if not name.startswith("text:"):
            return False
        if attributes.get("text:display") == "none" or attributes.get("text:is-hidden") == "true":
            return True
        family = _FAMILIES.get(name)
        style = attributes.get("text:style-name", "")
        return family is not None and not self._hiding.isdisjoint([(family, style), ("", style)])


class _Styles:
    def __init__(self) -> None:
        self._said: dict[_Style, bool] = {}
        self._based_on: dict[_Style, _Style] = {}

    def read(self, part: bytes, *, but: str | None) -> None:
        style: _Style | None = None
        is_read = True

        def start(name: str, values: Mapping[str, str]) -> None:
            nonlocal style, is_read
            if name in ("style:style", "style:default-style"):
                family = values.get("style:family", "")
                style = family, values.get("style:name", "")
                if is_read and style[1]:
                    self._based_on[style] = family, values.get("style:parent-style-name", "")
                    self._said.pop(style, None)
            elif name == "style:text-properties" and style and is_read:
                if display := values.get("text:display"):
                    self._said[style] = display == "none"
            elif name.endswith("style"):
                style = None
            is_read = is_read and name != but

        def end(name: str) -> None:
            nonlocal is_read
            is_read = is_read or name == but

        for _ in _xml.written([part], start, end):
            pass

    def hiding(self) -> set[_Style]:
        said = self._said
        for name in self._based_on:
            chain: dict[_Style, None] = {}
            at: _Style | None = name
            while at is not None and at not in chain:
                chain[at] = None
                at = None if at in said else self._based_on.get(at)
            said.update(dict.fromkeys(chain, said.get(next(reversed(chain)), False)))
        return {style for style, hides in said.items() if hides}
