"""DOCX: Markdown with headings, lists, tables, footnotes and comments; without hidden text."""

import re
from collections.abc import Mapping

from recollect.errors import Permanent
from recollect.extract import _magic, _xml, _zip
from recollect.extract._text import decode
from recollect.extract.archive import mail
from recollect.extract.office import (
    _drawn,
    _equations,
    _numbers,
    _office,
    _ooxml,
    _plain_docx,
    _powers,
    _spelling,
    _symbols,
    _veiled,
    rtf,
    xlsx,
)
from recollect.extract.web import _page
from recollect.model import Blob, Extracted

_MAIN = "word/document.xml"
"""the name that xberg knows of the main part"""
_PACKAGE = ("[Content_Types].xml", "_rels/", "docProps/")
_READ = ("styles", "numbering", "footnotes", "endnotes", "comments")
_NESTING = 3
_PICTURE = re.compile(r"!\[([^\[\]]*)\]\(media/[^()\s]*\)")
_INITIAL = re.compile(rb"""\sw:dropCap=["'](?:drop|margin)["']""")
_PARAGRAPH, _END = (b"<w:p ", b"<w:p>"), b"</w:p>"
_WORDS = re.compile(rb"<w:t(?:\s[^<>]*)?>([^<]*)</w:t>")
_CAPTION = re.compile(rb"<(?:\w+:)?tblCaption\s[^<>]*?\bval=\"([^\"]+)\"\s*/>")
_NAME = re.compile(
    r"(?:\w+ )?\w* ?\d+|(?i:\S+\.(?:jpe?g|png|gif|bmp|emf|wmf|tiff?|svg))|image|[Pp]icture|"
)


def extract(blob: Blob) -> Extracted:
    return _read(blob, 1)


def _read(blob: Blob, depth: int) -> Extracted:
    package = _ooxml.open_package(blob.data)
    shown = _veiled.unveil(package)
    warnings = [f"Hidden text was left out ({shown.hidden:,} characters)."] if shown.hidden else []
    read: set[str | None] = set()
    drawings = _drawn.Drawings(package, shown.main, xlsx.shown)

    def read_chunk(id: str) -> str:
        kind, part = shown.relations.get(id, ("", None))
        if kind in _drawn.KINDS:
            return "\n\n".join(drawings.blocks(id))
        if part in read:
            return ""
        read.add(part)
        try:
            if part in package.names and depth < _NESTING:
                return _chunk(package.read(part), depth + 1)
        except Permanent:
            pass
        warnings.append("A file that was put into it as a whole cannot be read.")
        return ""

    sources = {
        part: _powers.in_word(_symbols.plain(_equations.in_word(_xml.composed(source))))
        for part, source in shown.sources.items()
    }
    if _CAPTION.search(sources[shown.main]):
        sources[shown.main] = _office.said_once(sources[shown.main], _CAPTION, b"</")
    text = _with_initials(sources[shown.main])
    sources[shown.main] = _numbers.numbered(text, shown.styles, shown.lists)
    plain = _plain_docx.plain(shown.main, shown.notes, sources, read_chunk)
    changed = {**sources, **plain.parts}
    if part := _ooxml.first(package, shown.relations, "styles"):
        changed[part] = shown.styles
    extracted = _office.read(_with(package, shown, changed), _zip.DOCX)
    text = _PICTURE.sub(_described, plain.finished(extracted.text))
    return Extracted(text, title=extracted.title, warnings=warnings)


def _described(picture: re.Match[str]) -> str:
    """What its author says of a picture, unless a caption behind says it; without that xberg has a
    name that Word gave it."""
    said = picture[1]
    behind = picture.string[picture.end() : picture.end() + len(said) + 3].strip("\n")
    return "" if _NAME.fullmatch(said) or behind == said else said


def _chunk(data: bytes, depth: int) -> str:
    """The text of what another program put in as it was (ECMA-376 part 1, 17.17.2)."""
    blob = Blob(data)
    if _zip.is_zip(data):
        return _read(blob, depth).text
    if _magic.RTF.match(data):
        return rtf.extract(blob).text
    if _magic.mail(data[:1024]) or data.lstrip()[:13].lower() == b"mime-version:":
        return mail.extract(blob).text
    if data.lstrip(b"\xef\xbb\xbf\xff\xfe\0 \r\n\t")[:1] == b"<":
        return _page.read_letter(data, "text/html").text
    return decode(data)


def _with_initials(source: bytes) -> bytes:
    """Drop caps as letters of the word that they begin: each is a paragraph of its own (ECMA-376
    part 1, 17.3.1.11)."""
    if b"dropCap" not in source:
        return source
    edits: list[tuple[int, int, bytes]] = []
    done = 0
    for found in _INITIAL.finditer(source):
        if found.start() < done:
            continue
        start = max(source.rfind(tag, done, found.start()) for tag in _PARAGRAPH)
        end = source.find(_END, found.end()) + len(_END)
        done = max(end, found.end())
        if start < 0 or not source.startswith(_PARAGRAPH, end):
            continue
        at = _xml.tag_end(source, end)
        done = max(source.find(_END, at), at)
        if source.startswith(b"<w:pPr>", at):
            at = source.find(b"</w:pPr>", at) + len(b"</w:pPr>")
        said = b"".join(_WORDS.findall(source, start, end))
        edits += [(start, end, b""), (at, at, b"<w:r><w:t>%s</w:t></w:r>" % said)]
    return _xml.edited(source, edits) if edits else source


def _is_xml(name: str) -> bool:
    return name.endswith((".xml", ".rels"))  # pictures tell nothing, and may be damaged


def _with(package: _zip.Package, shown: _veiled.Unveiled, changed: Mapping[str, bytes]) -> bytes:
    """What xberg reads of it."""
    names = {
        shown.main: _MAIN,
        _ooxml.relations_of(shown.main): _ooxml.relations_of(_MAIN),
    }
    read = {one.target for one in shown.relations.values() if one.kind in _READ}
    read |= {name for name in package.names if name.startswith(_PACKAGE) and _is_xml(name)}
    read = read.difference(names.values()) | names.keys()
    return _zip.packed(
        {
            names.get(name, name): changed[name]
            if name in changed
            else _spelling.usual_if_sound(package.read(name))
            for name in package.names
            if name in read
        }
    )
