"""ODT: Markdown with headings, lists, tables, footnotes and comments; without hidden text."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from xml.parsers import expat
from xml.sax.saxutils import escape

from recollect.extract import _xml, _zip
from recollect.extract.office import (
    _equations,
    _odf,
    _odf_hidden,
    _odf_numbers,
    _odf_objects,
    _office,
    _powers,
    _spelling,
    _symbols,
)
from recollect.extract.web import _page
from recollect.model import Blob, Extracted

_CONTENT = "content.xml"
_PARAGRAPHS = ("text:p", "text:h")
_NOTES = {"text:note": "", "office:annotation": "comment"}
_BLOCKS = frozenset({*_PARAGRAPHS, "text:list", "table:table"})
_NEEDS = (
    b"<draw:",
    b"<text:s",
    b"<text:note",
    b"<office:annotation",
    b"<text:ruby",
    b"<text:section",
    b"<text:index-title",
)
_LABEL = re.compile(rb"<svg:(?:title|desc)>([^<]+)</svg:(?:title|desc)>")
"""what is said of a picture"""
_STYLES = "styles.xml"
_DELETED, _AID, _BODY = "text:tracked-changes", "text:ruby-text", "text:note-body"
_COUNTED = frozenset({_DELETED, "table:table-cell", "text:list-item"})
_SECTIONS = frozenset({"draw:g", "text:index-title"})
_REWRITTEN = frozenset({*_PARAGRAPHS, *_NOTES, *_SECTIONS, *_COUNTED, _AID, _BODY, "draw:text-box"})
_MOST_SPACES = 100


def extract(blob: Blob) -> Extracted:
    data = _odf.packed(blob.data)
    package = _odf.open_package(data)
    source = _spelling.usual(package.read(_CONTENT))
    styles = _spelling.usual(package.read(_STYLES)) if _STYLES in package.names else None
    veils = _odf_hidden.Veils(source, styles)
    raising = {name for part in (styles, source) if part for name in _powers.raising(part)}
    composed = _symbols.in_odt(_xml.composed(_odf_hidden.marked(source)), (styles, source))
    shown = _odf_numbers.numbered(
        _powers.in_odt(_equations.in_odt(composed, package), raising), styles
    )
    if b"<svg:" in shown:
        shown = _office.said_once(shown, _LABEL, b"</text:")
        shown = shown.replace(b"</svg:title><svg:desc>", b"</svg:title><svg:desc> ")
    warnings: Sequence[str] = ()
    if veils.any or any(need in shown for need in _NEEDS):
        rewriting = _rewritten(shown, veils, _odf_objects.Objects(package))
        shown, warnings = rewriting.whole(), _page.hidden_warnings(rewriting.hidden)
    changed = {_CONTENT: shown, _STYLES: styles or b""}
    # Also if nothing changed: readers differ in what they take from a damaged container.
    plain = {
        name: changed[name] if name in changed else _spelling.usual_if_sound(package.read(name))
        for name in package.names
        if name.endswith(".xml")  # pictures tell nothing, and may be damaged
    }
    extracted = _office.read(_zip.packed(plain), _zip.ODT)
    return Extracted(extracted.text, title=extracted.title, warnings=warnings)


def _rewritten(
    source: bytes, veils: _odf_hidden.Veils, objects: _odf_objects.Objects
) -> "_Rewriting":
    """The same without what xberg does not understand (OpenDocument 1.3 part 3): it drops spaces
    (6.1.3), groups of shapes (10.3.15) and titles of indexes (8.2.3), reads boxes within a
    paragraph (10.4.3) twice, takes charts for equations (10.4.6), refers to notes (6.3, 14.1) where
    they are not, and breaks words with their reading aids (6.4).
    """
    parser = expat.ParserCreate()
    rewriting = _Rewriting(source, parser, veils, objects)
    parser.StartElementHandler = rewriting.start
    parser.EndElementHandler = rewriting.end
    parser.CharacterDataHandler = rewriting.text
    _xml.walk(source, parser)
    return rewriting


class _Rewriting:
    """Groups become sections, and what is in a box comes behind the paragraph that it is in."""

    def __init__(
        self,
        source: bytes,
        parser: expat.XMLParserType,
        veils: _odf_hidden.Veils,
        objects: _odf_objects.Objects,
    ) -> None:
        self._source, self._parser, self._veils, self._objects = source, parser, veils, objects
        self.hidden = 0
        """characters that no reader sees"""
        self._veil = 0
        """open elements that hide what is in them, and those in them"""
        self._at = 0
        self._sinks: list[list[bytes]] = [[]]
        """the text, and that of each open box"""
        self._behind: list[list[bytes]] = []
        """of each open paragraph"""
        self._notes: list[bytes] = []
        self._counts = Counter[str]()
        self._labels: list[str] = []
        """of the open notes; empty once their text has begun"""
        self._within = dict.fromkeys(_COUNTED, 0)
        """how many of each are open"""
        self._is_empty = False
        """whether the tag that ends next ended itself"""

    def whole(self) -> bytes:
        self._write(len(self._source))
        return b"".join(self._sinks[0])

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        here = self._parser.CurrentByteIndex
        if self._veil or (
            self._veils.any and not self._within[_DELETED] and self._veils.hides(name, attributes)
        ):
            if not self._veil:
                self._write(here)
                self._is_empty = self._source.startswith(b"/>", self._end_of(here) - 2)
            self._veil += 1
        else:
            self._start(here, name, attributes)

    def _start(self, here: int, name: str, attributes: Mapping[str, str]) -> None:
        tag = _xml.TAG.match(self._source, here) if name in _REWRITTEN else None
        self._is_empty = bool(tag and tag[0].endswith(b"/>"))
        if name in _BLOCKS and self._labels and self._labels[-1]:
            self._start_text(here, tag.end() if tag and not self._is_empty else None)
        if self._is_empty:
            return
        if name in _NOTES and not self._within[_DELETED]:
            self._counts[_NOTES[name]] += 1
            self._labels.append(f"[^{_NOTES[name]}{self._counts[_NOTES[name]]}]")
            self._write(here)
            self._sinks[-1].append(self._labels[-1].encode())
            self._sinks.append([])
        elif name == _AID:
            self._write(here)
            self._sinks.append([])
        elif name in _COUNTED:
            self._within[name] += 1
        elif name == "text:s":
            self._write(here)
            count = attributes.get("text:c", "1")
            spaces = int(count) if count.isdecimal() and len(count) < 4 else 1
            self._sinks[-1].append(b" " * min(spaces, _MOST_SPACES))
        elif name in _PARAGRAPHS:
            self._behind.append([])
        elif name in _SECTIONS:
            self._section(here + 1, name)
        elif name.startswith("draw:"):
            self._start_drawing(here, name, attributes, tag)

    def _start_drawing(
        self, here: int, name: str, attributes: Mapping[str, str], tag: re.Match[bytes] | None
    ) -> None:
        if name == "draw:object":
            self._replace_object(here, self._objects.told(attributes.get("xlink:href", "")))
        elif name == "draw:text-box" and self._behind and tag:
            self._write(here)
            self._sinks.append([])
            self._at = tag.end()

    def _replace_object(self, here: int, told: _odf_objects.InnerFile) -> None:
        self._write(here)
        self._at = self._end_of(here)
        is_empty = self._source.startswith(b"/>", self._at - 2)
        self._sinks[-1].append(b"<draw:object/>" if is_empty else b"<draw:object>")
        if not self._within[_DELETED]:
            # There xberg loses tables.
            is_within = any(self._within.values())
            blocks = _paragraphs(told) if is_within else _blocks(told)
            (self._behind or self._sinks)[-1].append(blocks)

    def end(self, name: str) -> None:
        here = self._parser.CurrentByteIndex
        if self._veil:
            self._veil -= 1
            if not self._veil:
                # Of a tag that ends itself the end is what stands behind it.
                self._at = here if self._is_empty else self._end_of(here)
                self._is_empty = False
        elif self._is_empty:
            self._is_empty = False
        elif name in _NOTES and not self._within[_DELETED]:
            self._end_note(here)
        elif name == _BODY and not self._within[_DELETED]:
            self._write(here)
            self._at = self._end_of(here)
        elif name == _AID:
            self._sinks.pop()
            self._at = self._end_of(here)
        elif name in _COUNTED:
            self._within[name] -= 1
        elif name == "office:text":
            self._write(here)
            self._sinks[-1] += self._notes
        elif name in _SECTIONS:
            self._section(here + 2, name)
        elif name in _PARAGRAPHS:
            self._write(self._end_of(here))
            self._sinks[-1] += self._behind.pop()
        elif name == "draw:text-box" and self._behind:
            self._write(here)
            self._behind[-1] += self._sinks.pop()
            self._at = self._end_of(here)

    def text(self, piece: str) -> None:
        if self._veil:
            self.hidden += len("".join(piece.split()))

    def _start_text(self, here: int, end: int | None) -> None:
        """What stands ahead of it in a note is its sign, or who wrote it when."""
        self._write(here)
        label = self._labels[-1].encode() + b": "
        self._labels[-1] = ""
        if end is not None:
            self._sinks[-1][:] = [self._source[here:end], label]
            self._at = end
        else:
            self._sinks[-1][:] = [b"<text:p>", label, b"</text:p>"]

    def _end_note(self, here: int) -> None:
        self._write(here)
        text = self._sinks.pop()
        if not self._labels.pop():
            self._notes += text
        self._at = self._end_of(here)

    def _section(self, at: int, name: str) -> None:
        self._write(at)
        self._sinks[-1].append(b"text:section")
        self._at = at + len(name.encode())

    def _write(self, end: int) -> None:
        self._sinks[-1].append(self._source[self._at : end])
        self._at = end

    def _end_of(self, tag: int) -> int:
        return _xml.tag_end(self._source, tag)


def _blocks(told: _odf_objects.InnerFile) -> bytes:
    tables = (
        "<table:table>"
        + "".join(f"<table:table-row>{''.join(map(_cell, row))}</table:table-row>" for row in rows)
        + "</table:table>"
        for rows in told.tables
        if rows
    )
    return _paragraph("; ".join(told.titles)).encode() + "".join(tables).encode()


def _paragraphs(told: _odf_objects.InnerFile) -> bytes:
    """For cells and items of lists."""
    words = [*told.titles, *(cell for rows in told.tables for row in rows for cell in row)]
    return _paragraph(" ".join(filter(None, words))).encode()


def _cell(text: str) -> str:
    return f"<table:table-cell>{_paragraph(text)}</table:table-cell>"


def _paragraph(text: str) -> str:
    return f"<text:p>{escape(text)}</text:p>" if text else ""
