"""What OpenDocument files share: are they locked, and what is their title. Those in one file of XML
(OpenDocument 1.3 part 3, 3.1.2) become such as others are."""

import re
from collections.abc import Iterator, Mapping
from xml.parsers import expat

from recollect.errors import Permanent
from recollect.extract import _magic, _xml, _zip
from recollect.extract._text import clean_line
from recollect.extract._zip import Package
from recollect.extract.office import _spelling

_MANIFEST = "META-INF/manifest.xml"
_ENCRYPTED = re.compile(rb"<(?:\w+:)?encryption-data[\s/>]")
_ROOT, _OBJECT, _PICTURE = "office:document", "draw:object", "office:binary-data"
_STYLES = ("office:font-face-decls", "office:styles", "office:automatic-styles")
_PARTS = {
    "content": (*_STYLES[::2], "office:body"),
    "styles": (*_STYLES, "office:master-styles"),
    "meta": ("office:meta",),
}


def packed(data: bytes) -> bytes:
    """In parts, as most files are. Raises Permanent."""
    if not _magic.flat_type(data):
        return data
    return _zip.packed(dict(_Flat(_spelling.usual(data)).parts()))


def open_package(data: bytes) -> Package:
    """Raises Permanent, also with encrypted_file."""
    package = Package(packed(data))
    if _MANIFEST in package.names and _ENCRYPTED.search(package.read(_MANIFEST)):
        raise Permanent("it is protected by a password", code="encrypted_file")
    if "content.xml" not in package.names:
        raise Permanent("it is damaged: it has no content")
    return package


def title(package: Package) -> str | None:
    """What the file's properties call it."""
    told = _xml.words_of(package.pieces("meta.xml"), "title") if "meta.xml" in package.names else ""
    return clean_line(told) or None


class _Flat:
    def __init__(self, source: bytes) -> None:
        self._source = source
        self._open: list[tuple[str, int]] = []
        """elements, and where their tags begin"""
        self._after = 0
        """where the last tag ended"""
        self._root = 0, 0
        self._children: dict[str, tuple[int, int]] = {}
        """of the root"""
        self._object = 0
        """how many elements are open in the object that is open, and around it"""
        self._inner = 0, 0
        """the last element in an object, the file"""
        self._objects: list[bytes] = []
        self._edits: list[tuple[int, int, bytes]] = []
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        _xml.walk(source, self._parser)

    def parts(self) -> Iterator[tuple[str, bytes]]:
        start, end = self._root
        for name, children in _PARTS.items():
            root = f"{_ROOT}-{name}".encode()
            head = self._source[:start] + b"<" + root + self._source[start + 1 + len(_ROOT) : end]
            spans = [self._children[child] for child in children if child in self._children]
            yield f"{name}.xml", b"".join([head, *map(self._edited, spans), b"</%s>" % root])
        for number, part in enumerate(self._objects, 1):
            yield f"Object {number}/content.xml", part

    def _edited(self, span: tuple[int, int]) -> bytes:
        start, end = span
        edits = [(at - start, to - start, new) for at, to, new in self._edits if start <= at < end]
        return _xml.edited(self._source[start:end], edits)

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        here = self._tag()
        if not self._open:
            self._root = here, self._after
        self._open.append((name, here))
        if name == _OBJECT and not self._object and "xlink:href" not in attributes:
            self._object, self._inner = len(self._open), (0, 0)

    def _end(self, name: str) -> None:
        _, start = self._open[-1]
        begin = self._end_of(start)
        # Of a tag that ends itself the end is what stands behind it.
        here = begin if self._source.startswith(b"/>", begin - 2) else self._tag()
        self._open.pop()
        level, inside = len(self._open), (begin, here)
        if level == 1:
            self._children[name] = start, self._after
        elif name == _PICTURE and not self._object:
            self._edits.append((*inside, b""))
        elif level == self._object:
            self._inner = start, self._after
        elif level + 1 == self._object:
            self._object = 0
            if any(self._inner):
                self._objects.append(self._source[slice(*self._inner)])
                at, number = start + 1 + len(_OBJECT), len(self._objects)
                self._edits.append((at, at, b' xlink:href="./Object %d"' % number))
                self._edits.append((*inside, b""))

    def _tag(self) -> int:
        """Where the tag begins. Space ahead of it within a drawing says nothing, but to xberg."""
        last, here = self._after, self._parser.CurrentByteIndex
        self._after = self._end_of(here)
        if (
            self._open
            and self._open[-1][0].startswith("draw:")
            and not self._object
            and self._source[last:here].isspace()
        ):
            self._edits.append((last, here, b""))
        return here

    def _end_of(self, tag: int) -> int:
        return _xml.tag_end(self._source, tag)
