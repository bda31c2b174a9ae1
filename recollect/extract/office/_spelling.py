"""XML of office files as the programs write it that most of them come from.

The same may be said in many ways: with other prefixes, other quotation marks, characters by number,
in another encoding (Extensible Markup Language 1.0; Namespaces in XML 1.0). xberg, and patterns of
our own, know one of them.
"""

import re
from collections.abc import Iterable, Mapping
from xml.parsers import expat
from xml.sax.saxutils import escape

from recollect.errors import Permanent
from recollect.extract import _xml

_ODF, _MICROSOFT = "urn:oasis:names:tc:opendocument:xmlns:", "http://schemas.microsoft.com/"
_PREFIXES = {
    "wordprocessingml": "w", "officeDocument/relationships": "r", "officeDocument/math": "m",
    "drawingml": "a", "drawingml/picture": "pic", "drawingml/wordprocessingDrawing": "wp",
    "markup-compatibility": "mc", "package/relationships": "",
    f"{_MICROSOFT}office/word/2010/wordprocessingShape": "wps",
    f"{_MICROSOFT}office/word/2003/wordml": "w", f"{_MICROSOFT}office/word/2003/auxHint": "wx",
    f"{_MICROSOFT}office/2006/xmlPackage": "pkg", f"{_MICROSOFT}aml/2001/core": "aml",
    "urn:schemas-microsoft-com:office:office": "o", "http://www.w3.org/1999/xlink": "xlink",
    "http://purl.org/dc/elements/1.1/": "dc",
    f"{_ODF}xsl-fo-compatible:1.0": "fo", f"{_ODF}svg-compatible:1.0": "svg",
    f"{_ODF}drawing:1.0": "draw",
    **{f"{_ODF}{name}:1.0": name for name in ("office", "text", "table", "style", "meta")},
}  # fmt: skip
"""by namespace; those of Office Open XML without what they share"""
_SHARED = re.compile(r"\Ahttp://schemas\.openxmlformats\.org/|/2006(?=/|\Z)|/main\Z")
_STRICT, _HEAD_BYTES = re.compile(rb"http://purl\.oclc\.org/ooxml/(\w+)/"), 8_192
_TRANSITIONAL = rb"http://schemas.openxmlformats.org/\1/2006/"
"""what namespaces and kinds of relations begin with in the two editions of Office Open XML"""
_DECLARATION = re.compile(rb"(?:\xef\xbb\xbf)?(?:<\?xml\s[^<>]*\?>)?")
_ENCODING = re.compile(rb"\bencoding\s*=\s*[\"'](?!utf-8[\"'])", re.IGNORECASE)
_SPACE = re.compile(rb'xmlns(?<=\sxmlns)(?::([^\s="]+))?="([^"]*)"')
_ODD = (
    # A comment, a DTD or a section of data.
    re.compile(rb"<[!?]"),
    re.compile(rb"=(?:'|\s+[\"']|(?<=\s=)\")"),
    # A character by number, but for the ends of lines that Word writes.
    re.compile(rb"&#(?!(?:x[9AaDd]|9|1[03]);)"),
    # An element that says nothing and does not end itself; a space at the end of a tag.
    re.compile(rb'"></'),
    re.compile(rb">(?<=\s>)"),
)
_DEEPEST, _MOST_SPACES = 2_000, 200
_QUOTED = {'"': "&quot;", "\n": "&#10;", "\r": "&#13;", "\t": "&#9;"}


def usual(part: bytes) -> bytes:
    """In UTF-8. The same object where it is written so already, as mostly.

    Raises Permanent for what is not, and is not well-formed.
    """
    if _STRICT.search(part, 0, _HEAD_BYTES):
        part = _STRICT.sub(_TRANSITIONAL, part)
    return _Writing(part).whole() if _is_odd(part) else part


def usual_if_sound(part: bytes) -> bytes:
    """The same of a part without which the rest can be read: as it is where it is not."""
    try:
        return usual(part)
    except Permanent:
        return part


def _is_odd(part: bytes) -> bool:
    """A quick look that says no only where it is not."""
    declaration = _DECLARATION.match(part)
    start = declaration.end() if declaration else 0
    return (
        b"\0" in part
        or _ENCODING.search(part, 0, start) is not None
        or any(odd.search(part, start) for odd in _ODD)
        or _is_renamed(part, set(_SPACE.findall(part, start)))
    )


def _is_renamed(part: bytes, spaces: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether another prefix than the usual one stands for a namespace, and is in use: Word 2007
    declares `ve`. Of many it is not asked whether they are."""
    renamed = [
        re.escape(prefix)
        for prefix, space in spaces
        if _known(space.decode("utf-8", "replace")) not in (None, prefix.decode("utf-8", "replace"))
    ]
    if not renamed or b"" in renamed or len(renamed) > _MOST_SPACES:
        return bool(renamed)
    return re.search(rb"[<\s](?:%s):" % b"|".join(renamed), part) is not None


def _is_space(key: str) -> bool:
    return key == "xmlns" or key.startswith("xmlns:")


def _known(space: str) -> str | None:
    """The prefix of a namespace."""
    return _PREFIXES.get(space, _PREFIXES.get(_SHARED.sub("", space)))


def _prefixes(spaces: Mapping[str, str]) -> Mapping[str, str]:
    """By those in the file. One that a namespace gets is that of no other."""
    new = {prefix: _known(space) for prefix, space in spaces.items()}
    taken = frozenset(new.values())
    return {
        prefix: (f"{prefix}_" if prefix in taken else prefix) if known is None else known
        for prefix, known in new.items()
    }


class _Writing:
    def __init__(self, part: bytes) -> None:
        self._out = bytearray(b'<?xml version="1.0" encoding="UTF-8"?>\n')
        self._spaces: list[Mapping[str, str]] = [{}]
        """of each open element, by the prefixes in the file"""
        self._prefixes: list[Mapping[str, str]] = [{}]
        self._names: list[str] = []
        """of the open elements"""
        self._begins = False
        """whether the end of the last tag is still to be written"""
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        _xml.walk(part, parser)

    def whole(self) -> bytes:
        return bytes(self._out)

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        self._end_tag()
        told = {key[6:]: value for key, value in attributes.items() if _is_space(key)}
        self._spaces.append({**self._spaces[-1], **told} if told else self._spaces[-1])
        if len(self._spaces) > _DEEPEST or len(self._spaces[-1]) > _MOST_SPACES:
            raise Permanent("it is nested too deeply, or has too many namespaces")
        self._prefixes.append(_prefixes(self._spaces[-1]) if told else self._prefixes[-1])
        self._names.append(self._named(name))
        written = {self._named_attribute(key): value for key, value in attributes.items()}
        said = [f' {key}="{escape(value, _QUOTED)}"' for key, value in written.items()]
        self._out += f"<{self._names[-1]}{''.join(said)}".encode()
        self._begins = True

    def _end(self, _: str) -> None:
        self._spaces.pop()
        self._prefixes.pop()
        name = self._names.pop()
        self._out += b"/>" if self._begins else f"</{name}>".encode()
        self._begins = False

    def _text(self, piece: str) -> None:
        self._end_tag()
        self._out += escape(piece).encode()

    def _end_tag(self) -> None:
        if self._begins:
            self._out += b">"
            self._begins = False

    def _named(self, name: str) -> str:
        prefix, _, plain = name.rpartition(":")
        new = self._prefixes[-1].get(prefix, prefix)
        return f"{new}:{plain}" if new else plain

    def _named_attribute(self, key: str) -> str:
        if _is_space(key):
            new = self._prefixes[-1][key[6:]]
            return f"xmlns:{new}" if new else "xmlns"
        return self._named(key) if ":" in key else key
