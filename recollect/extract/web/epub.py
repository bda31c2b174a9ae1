"""EPUB: the chapters in their reading order as Markdown; one place a chapter."""

import posixpath
import re
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

from recollect.errors import Permanent
from recollect.extract import _xml, _zip
from recollect.extract._text import TEXT_BYTES, clean_line
from recollect.extract.web import _page
from recollect.model import Blob, Extracted, Place

_CONTAINER = "META-INF/container.xml"
_LOCKS = "META-INF/encryption.xml"
_PAGE = re.compile(r"(?!image/|application/(?:smil|x-dtbncx)).*(?:html|xml|oeb1)|$", re.IGNORECASE)
"""What may be a chapter, if the spine lists it: older books call them text/x-oeb1-document."""
_NAMED = 10
_PROSE = re.compile(r"^[^#\s]", re.M)
_HEADING = re.compile(r"^#{1,6} +(.+)$", re.M)


def extract(blob: Blob) -> Extracted:
    package = _zip.Package(blob.data)
    book = _Book(package)
    places: list[Place] = []
    written: list[str] = []
    hidden = size = number = 0
    for part in book.chapters:
        is_contents = part in book.contents
        # They repeat what the chapters say, as links; of a short book they may be a part.
        chapter = _page.read_chapter(package.read(part), besides="nav" if is_contents else "")
        if is_contents and not _PROSE.search(chapter.text):
            continue
        number += 1
        hidden += chapter.hidden
        if not chapter.text:
            continue
        heading = _HEADING.search(chapter.text)
        name = clean_line(heading[1]) if heading else chapter.title
        places.append(Place(size, {"chapter": name or f"part {number}"}))
        written.append(chapter.text)
        size += len(chapter.text) + 2
        if size > TEXT_BYTES:
            break
    return Extracted(
        "\n\n".join(written),
        title=book.title,
        warnings=[*_page.hidden_warnings(hidden), *_missing(book.missing)],
        places=places,
    )


class _Book:
    """Title and parts of the chapters, as the package document lists them (EPUB 3.3, 5)."""

    def __init__(self, package: _zip.Package) -> None:
        self._source = ""
        self._words: list[str] = []
        self._titles: list[str] = []
        self._in_title = False
        self._pages: dict[str, str] = {}
        self._spine: list[str] = []
        self.contents: set[str] = set()
        """parts with the table of contents"""
        if _CONTAINER not in package.names:
            raise Permanent("it is damaged: it does not say where its content is")
        _xml.parse(package.pieces(_CONTAINER), self._start_container)
        if self._source not in package.names:
            raise Permanent("it is damaged: its list of chapters is missing")
        _xml.parse(package.pieces(self._source), self._start, self._end, self._text)
        # One that lists no order has that of its files.
        parts = [self._pages[item] for item in self._spine or self._pages if item in self._pages]
        self.chapters = [part for part in dict.fromkeys(parts) if part in package.names]
        missing = [part for part in dict.fromkeys(parts) if part not in package.names]
        self.missing = [part for part in missing if part not in self.contents]
        if not _locked(package).isdisjoint(self.chapters):
            raise Permanent("it is locked for one reader (DRM)", code="encrypted_file")
        self.title = next((title for title in self._titles if title), None)

    def _start_container(self, tag: str, attributes: Mapping[str, str]) -> None:
        if tag == "rootfile" and not self._source:
            self._source = attributes.get("full-path", "")

    def _start(self, tag: str, attributes: Mapping[str, str]) -> None:
        if tag == "item" and _PAGE.match(attributes.get("media-type", "")):
            path = unquote(attributes.get("href", "").partition("#")[0])
            part = posixpath.normpath(posixpath.join(posixpath.dirname(self._source), path))
            self._pages[attributes.get("id", "")] = part
            if "nav" in attributes.get("properties", "").split():
                self.contents.add(part)
        elif tag == "itemref":
            self._spine.append(attributes.get("idref", ""))
        elif tag == "title":
            self._in_title = True

    def _end(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
            self._titles.append(clean_line("".join(self._words)))
            self._words.clear()

    def _text(self, piece: str) -> None:
        if self._in_title:
            self._words.append(piece)


def _missing(parts: Sequence[str]) -> list[str]:
    if not parts:
        return []
    more = " …" if len(parts) > _NAMED else ""
    return [f"Chapters that it lists are missing in it: {', '.join(parts[:_NAMED])}{more}."]


def _locked(package: _zip.Package) -> set[str]:
    """Parts that are encrypted. Fonts often are, which locks no words."""
    found: set[str] = set()

    def start(tag: str, attributes: Mapping[str, str]) -> None:
        if tag == "CipherReference":
            found.add(unquote(attributes.get("URI", "")))

    if _LOCKS in package.names:
        _xml.parse(package.pieces(_LOCKS), start)
    return found
