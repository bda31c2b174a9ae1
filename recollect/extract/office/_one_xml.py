"""Documents of Word and PowerPoint in one file of XML: the parts of a package beside each other, as
Word saves them since 2007, or what Word 2003 and servers of its time wrote, mostly called .doc.

https://learn.microsoft.com/previous-versions/office/office-12/ff460045(v=office.12)
"""

import re
from collections.abc import Mapping

from recollect.errors import Permanent
from recollect.extract.office import _spelling
from recollect.extract.text import xml

_PART = re.compile(rb'<pkg:part\s[^<>]*?pkg:name="/?([^"<>]+)"[^<>]*>\s*<pkg:xmlData[^<>]*>')
_PART_END = b"</pkg:xmlData>"
_OLD, _NEW = (
    b"http://schemas.microsoft.com/office/word/2003/wordml",
    b"http://schemas.openxmlformats.org/wordprocessingml/2006/main",
)
_ROOT = re.compile(rb"<w:wordDocument(\s[^<>]*)>")
_LABEL = re.compile(
    rb'<w:listPr>(?:(?!</?w:listPr)[\s\S])*?<wx:t\s[^<>]*?wx:val="([^"<>]*)"[^<>]*/>'
    rb"(?:(?!</?w:listPr)[\s\S])*</w:listPr>((?:(?!</w:pPr>|<w:listPr)[\s\S])*</w:pPr>)"
)
"""the sign or number of an item, as Word shows it"""
_BULLET = re.compile(rb"o|[^\w]*|[\x80-\xff]+")
_UNUSED = re.compile(rb"</?wx:[^<>]*>|<w:binData(?:\s[^<>]*)?>[^<]*</w:binData>")
_NOTE = re.compile(
    rb"<(/?)w:(?:foot|end)note(?:\s[^<>]*)?>|<(/?)aml:(?:annotation|content)\b[^<>]*>"
)
_BOX = b"w:txbxContent>"
"""which stands behind the paragraph that it is in"""
_TITLE = re.compile(rb"<o:Title>([^<]*)</o:Title>")
_TYPES = {"[Content_Types].xml": b"<Types/>"}
_RELATION = (
    b'<Relationship Id="r" Target="%s"'
    b' Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/%s"/>'
)
_RELATIONS = (
    b'<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
    + _RELATION
    + b"</Relationships>"
)
_CORE = (
    b"<cp:coreProperties"
    b' xmlns:cp="http://schemas.openxmlformats.org/package/2006/metadata/core-properties"'
    b' xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>%s</dc:title></cp:coreProperties>'
)


def parts(data: bytes) -> Mapping[str, bytes]:
    """Those of the package that it would be, without pictures. Raises Permanent for others."""
    data = _spelling.usual(b"".join(xml.pieces(data)))
    found: dict[str, bytes] = {}
    at = 0
    while part := _PART.search(data, at):
        at = data.find(_PART_END, part.end())
        if at < 0:
            break
        found[part[1].decode("utf-8", "replace")] = data[part.end() : at]
    return _TYPES | (found or _of_2003(data))


def _of_2003(data: bytes) -> dict[str, bytes]:
    root = _ROOT.search(data)
    body, styles = _element(data, b"w:body"), _element(data, b"w:styles")
    if root is None or not body:
        raise Permanent("it is damaged or not what it says")
    spaces = root[1].replace(_OLD, _NEW)
    body = _boxed(_UNUSED.sub(b"", _LABEL.sub(_labelled, body)))
    title = _TITLE.search(data)
    return {
        "_rels/.rels": _RELATIONS % (b"word/document.xml", b"officeDocument"),
        "docProps/core.xml": _CORE % (title[1] if title else b""),
        "word/document.xml": b"<w:document%s>%s</w:document>" % (spaces, body),
        "word/_rels/document.xml.rels": _RELATIONS % (b"styles.xml", b"styles"),
        "word/styles.xml": styles.replace(b"<w:styles", b"<w:styles" + spaces, 1)
        or b"<w:styles%s/>" % spaces,
    }


def _element(data: bytes, name: bytes) -> bytes:
    start, end = data.find(b"<%s>" % name), data.find(b"</%s>" % name)
    return data[start : end + len(name) + 3] if 0 <= start < end else b""


def _labelled(item: re.Match[bytes]) -> bytes:
    label = b"-" if _BULLET.fullmatch(item[1]) else item[1]
    return b'%s<w:r><w:t xml:space="preserve">%s </w:t></w:r>' % (item[2], label)


def _boxed(body: bytes) -> bytes:
    """With notes and comments in boxes, and other annotations as a part of the text."""
    comments: list[bool] = []

    def tag(found: re.Match[bytes]) -> bytes:
        if found[1] is not None:
            return b"<" + found[1] + _BOX
        if b":content" in found[0] or found[0].endswith(b"/>"):
            return b""
        if not found[2]:
            comments.append(b'"Word.Comment"' in found[0])
            return b"<" + _BOX if comments[-1] else b""
        return b"</" + _BOX if comments and comments.pop() else b""

    return _NOTE.sub(tag, body)
