"""Equations of RTF files as LaTeX in their lines: `{\\mmath{\\*\\moMath{\\mf …}}}`, which is Office
Math by other names (RTF 1.9.1, math)."""

import re

from recollect.extract import _formulas
from recollect.extract.office import _rtf_signs

_ZONE = re.compile(rb"\{\\mmath(?![A-Za-z])[ ]?")
_TOKEN = re.compile(
    rb"(?P<open>\{)(?:(?:\\\*)?\\m(?P<name>[A-Za-z]++)(?:-?\d++)?[ ]?)?|(?P<close>\})"
    rb"|\\uc(?P<skip>\d)(?!\d)[ ]?|\\u(?P<number>-?\d{1,6})[ ]?|\\(?P<sign>[\\{}])"
    rb"|\\m(?P<set>nor|sty0)(?![A-Za-z\d])[ ]?|\\'(?P<byte>[0-9A-Fa-f]{2})"
    rb"|\\[A-Za-z]++(?:-?\d++)?[ ]?|\\[^A-Za-z]|(?P<text>[^\\{}\r\n]++)|[\r\n]++"
)
_SET = {b"nor": ("nor", ""), b"sty0": ("sty", "p")}
_PICTURE, _BLOCK = "mathPict", "oMathPara"


def in_rtf(data: bytes) -> bytes:
    """The file with words in their place."""
    pieces: list[bytes] = []
    at = 0
    while zone := _ZONE.search(data, at):
        pieces.append(data[at : zone.start()])
        reading = _Zone(data, zone.end())
        pieces.append(_rtf_signs.numbered(_formulas.kept(reading.told())))
        at = reading.end
    return b"".join([*pieces, data[at:]])


class _Zone:
    def __init__(self, data: bytes, at: int) -> None:
        self._formula = _formulas.Formula()
        self._names: list[str] = []
        """of the open groups; those of others are empty"""
        self._words: list[str] = []
        self._pictures = 0
        """open groups of what is drawn for other programs"""
        self._block = False
        skips = [1]
        while token := _TOKEN.match(data, at):
            at = token.end()
            if token["open"]:
                skips.append(skips[-1])
                self._open((token["name"] or b"").decode())
            elif token["close"]:
                if not self._names:
                    break
                skips.pop()
                self._close()
            elif token["skip"]:
                skips[-1] = int(token["skip"])
            elif token["number"]:
                self._words.append(chr(int(token["number"]) & 0xFFFF))
                for _ in range(skips[-1]):
                    unit = _rtf_signs.UNIT.match(data, at)
                    at = unit.end() if unit else at
            elif token["set"]:
                name, value = _SET[token["set"]]
                self._formula.start("rPr", {})
                self._formula.start(name, {"val": value})
                self._formula.end()
                self._formula.end()
            elif token["byte"]:
                self._words.append(
                    bytes.fromhex(token["byte"].decode()).decode("cp1252", "replace")
                )
            else:
                self._words.append((token["sign"] or token["text"] or b"").decode("latin-1"))
        self.end = at

    def told(self) -> str:
        return _formulas.latex(self._formula.root, block=self._block)

    def _is_property(self) -> bool:
        return len(self._names) > 1 and self._names[-2].endswith("Pr")

    def _open(self, name: str) -> None:
        self._say()
        self._names.append(name)
        self._pictures += name == _PICTURE
        self._block |= name == _BLOCK
        if name and not self._is_property():
            self._formula.start(name, {})

    def _close(self) -> None:
        if self._is_property():
            self._formula.start(self._names[-1], {"val": self._said()})
            self._formula.end()
        else:
            self._say()
            if self._names[-1]:
                self._formula.end()
        self._pictures -= self._names.pop() == _PICTURE

    def _said(self) -> str:
        said = "".join(self._words).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        self._words.clear()
        return said

    def _say(self) -> None:
        if (said := self._said()) and not self._pictures:
            self._formula.leaf("t", said)
