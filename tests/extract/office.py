"""Small files of the office kinds, made on the spot, some of them byte by byte."""

import io
import re
import struct
import zipfile
from collections.abc import Callable, Mapping, Sequence
from email.message import EmailMessage
from xml.sax.saxutils import escape

import openpyxl
from openpyxl import Workbook

Rows = Sequence[Sequence[object]]


def packed(parts: Mapping[str, str | bytes]) -> bytes:
    """A ZIP in the order given; "mimetype" unpacked, as its readers want it."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in parts.items():
            kind = zipfile.ZIP_STORED if name == "mimetype" else zipfile.ZIP_DEFLATED
            archive.writestr(name, body, kind)
    return out.getvalue()


def in_one_xml(package: bytes) -> bytes:
    """The parts of a package beside each other, as Word saves a document as XML."""
    with zipfile.ZipFile(io.BytesIO(package)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    written = [
        b'<pkg:part pkg:name="/%s" pkg:contentType="x"><pkg:xmlData>%s</pkg:xmlData></pkg:part>'
        % (name.encode(), re.sub(rb"<\?xml[^>]*\?>\s*", b"", part))
        for name, part in parts.items()
        if name.endswith((".xml", ".rels")) and not name.startswith("[")
    ]
    return (
        b'<?xml version="1.0" standalone="yes"?>\n<?mso-application progid="Word.Document"?>\n'
        b'<pkg:package xmlns:pkg="http://schemas.microsoft.com/office/2006/xmlPackage">%s'
        b'<pkg:part pkg:name="/word/media/a.png"><pkg:binaryData>%s</pkg:binaryData></pkg:part>'
        b"</pkg:package>" % (b"".join(written), b"iVBORw0KGgo" * 100)
    )


def xlsx(sheets: Mapping[str, Rows], fill: Callable[[Workbook], object] | None = None) -> bytes:
    book = openpyxl.Workbook()
    book.remove(book.worksheets[0])
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(list(row))
    if fill:
        fill(book)
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


_WORD_SPACES = " ".join(
    f'xmlns:{prefix}="http://schemas.{space}"'
    for prefix, space in {
        "w": "openxmlformats.org/wordprocessingml/2006/main",
        "m": "openxmlformats.org/officeDocument/2006/math",
        "mc": "openxmlformats.org/markup-compatibility/2006",
        "r": "openxmlformats.org/officeDocument/2006/relationships",
        "a": "openxmlformats.org/drawingml/2006/main",
        "wps": "microsoft.com/office/word/2010/wordprocessingShape",
    }.items()
)


def docx(body: str, parts: Mapping[str, tuple[str, str | bytes]] | None = None) -> bytes:
    """A document of this XML with further parts by name: kind of the relation and content. An
    XML part begins with the name of its root, without the namespaces."""
    kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    parts = parts or {}
    whole = {
        f"word/{name}": content.replace(">", f" {_WORD_SPACES}>", 1)
        if isinstance(content, str) and name.endswith(".xml")
        else content
        for name, (_, content) in parts.items()
    }
    return packed(
        {
            "[Content_Types].xml": "<Types/>",
            "_rels/.rels": _relations({"rId1": (f"{kind}/officeDocument", "word/document.xml")}),
            "word/document.xml": f"<w:document {_WORD_SPACES}><w:body>{body}<w:sectPr/></w:body>"
            "</w:document>",
            "word/_rels/document.xml.rels": _relations(
                {
                    f"c{at}": (f"{kind}/{of}", name)
                    for at, (name, (of, _)) in enumerate(parts.items())
                }
            ),
            **whole,
        }
    )


def raw_xlsx(sheet: str | bytes, strings: str = "<sst/>") -> bytes:
    """A workbook whose one sheet is this XML."""
    kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    return packed(
        {
            "[Content_Types].xml": "<Types/>",
            "_rels/.rels": _relations({"rId1": (f"{kind}/officeDocument", "xl/workbook.xml")}),
            "xl/workbook.xml": f'<workbook xmlns:r="{kind}"><sheets>'
            '<sheet name="S" sheetId="1" r:id="rId1"/></sheets></workbook>',
            "xl/_rels/workbook.xml.rels": _relations(
                {
                    "rId1": (f"{kind}/worksheet", "worksheets/sheet1.xml"),
                    "rId2": (f"{kind}/sharedStrings", "sharedStrings.xml"),
                }
            ),
            "xl/sharedStrings.xml": strings,
            "xl/worksheets/sheet1.xml": sheet,
        }
    )


def _relations(targets: Mapping[str, tuple[str, str]]) -> str:
    return (
        "<Relationships>"
        + "".join(
            f'<Relationship Id="{id}" Type="{kind}" Target="{target}"/>'
            for id, (kind, target) in targets.items()
        )
        + "</Relationships>"
    )


def ods(sheets: Mapping[str, Rows], *, hidden: Sequence[str] = (), extra: str = "") -> bytes:
    tables = "".join(
        f'<table:table table:name="{escape(name)}" table:style-name='
        f'"{"off" if name in hidden else "on"}">'
        + "".join(
            f"<table:table-row>{''.join(map(_ods_cell, row))}</table:table-row>" for row in rows
        )
        + "</table:table>"
        for name, rows in sheets.items()
    )
    styles = "".join(
        f'<style:style style:name="{name}"><style:table-properties table:display="{shown}"/>'
        "</style:style>"
        for name, shown in (("on", "true"), ("off", "false"))
    )
    return odf("spreadsheet", f"{tables}{extra}", styles)


def _ods_cell(value: object) -> str:
    if value is None:
        return '<table:table-cell table:number-columns-repeated="1"/>'
    if isinstance(value, str) and value.startswith("="):
        return f'<table:table-cell table:formula="of:{escape(value)}"/>'
    kind = "string" if isinstance(value, str) else f'float" office:value="{value}'
    return (
        f'<table:table-cell office:value-type="{kind}"><text:p>{escape(str(value))}</text:p>'
        "</table:table-cell>"
    )


def odf(kind: str, body: str, styles: str = "", *, manifest: str = "", title: str = "") -> bytes:
    spaces = " ".join(
        f'xmlns:{prefix}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
        for prefix, name in {
            "office": "office", "table": "table", "text": "text", "style": "style", "meta": "meta",
            "draw": "drawing", "svg": "svg-compatible", "presentation": "presentation",
        }.items()
    )  # fmt: skip
    return packed(
        {
            "mimetype": f"application/vnd.oasis.opendocument.{kind}",
            "META-INF/manifest.xml": f"<manifest>{manifest}</manifest>",
            "meta.xml": f'<office:document-meta {spaces} xmlns:dc="http://purl.org/dc/elements/1.1/"'
            f"><office:meta><dc:title>{title}</dc:title></office:meta></office:document-meta>",
            "content.xml": f'<?xml version="1.0"?><office:document-content {spaces} '
            f'office:version="1.3"><office:automatic-styles>{styles}</office:automatic-styles>'
            f"<office:body><office:{kind}>{body}</office:{kind}></office:body>"
            "</office:document-content>",
        }
    )


def odt(*paragraphs: str) -> bytes:
    """Those that begin with "# " are headings."""
    body = "".join(
        f'<text:h text:outline-level="1">{escape(words[2:])}</text:h>'
        if words.startswith("# ")
        else f"<text:p>{escape(words)}</text:p>"
        for words in paragraphs
    )
    return odf("text", body)


def odp(slides: Sequence[tuple[str, Sequence[str]]], notes: str = "") -> bytes:
    """Slides of a title and bullets, each with the same notes."""

    def frame(kind: str, text: str) -> str:
        box = f"<draw:text-box>{text}</draw:text-box>"
        return f'<draw:frame presentation:class="{kind}">{box}</draw:frame>'

    pages = [
        frame("title", f"<text:p>{escape(title)}</text:p>")
        + frame("outline", "".join(f"<text:list>{_item(line)}</text:list>" for line in lines))
        for title, lines in slides
    ]
    said = f"<presentation:notes>{frame('notes', f'<text:p>{notes}</text:p>')}</presentation:notes>"
    return odf("presentation", "".join(f"<draw:page>{page}{said}</draw:page>" for page in pages))


def _item(line: str) -> str:
    return f"<text:list-item><text:p>{escape(line)}</text:p></text:list-item>"


def pptx(
    slides: Sequence[tuple[str, Sequence[str]]],
    *,
    notes: Mapping[int, str] | None = None,
    hidden: Sequence[int] = (),
    order: Sequence[int] | None = None,
    extra: str = "",
) -> bytes:
    """Slides of a title and bullets; `notes` by their number; `order` in which they are shown."""
    kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    spaces = (
        'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" '
        'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" '
        f'xmlns:r="{kind}"'
    )
    numbers = list(order or range(1, len(slides) + 1))
    parts: dict[str, str | bytes] = {
        "[Content_Types].xml": "<Types/>",
        "_rels/.rels": _relations({"rId1": (f"{kind}/officeDocument", "ppt/presentation.xml")}),
        "ppt/presentation.xml": f"<p:presentation {spaces}><p:sldIdLst>"
        + "".join(f'<p:sldId r:id="rId{number}" id="{number + 255}"/>' for number in numbers)
        + "</p:sldIdLst></p:presentation>",
        "ppt/_rels/presentation.xml.rels": _relations(
            {f"rId{n}": (f"{kind}/slide", f"slides/slide{n}.xml") for n in numbers}
        ),
    }
    for number, (title, lines) in enumerate(slides, 1):
        show = ' show="0"' if number in hidden else ""
        parts[f"ppt/slides/slide{number}.xml"] = (
            f"<p:sld {spaces}{show}><p:cSld><p:spTree>{_shape('title', [title])}"
            f"{_shape('body', lines)}{extra}{_shape('sldNum', [str(number)])}</p:spTree></p:cSld>"
            "</p:sld>"
        )
        if notes and number in notes:
            parts[f"ppt/slides/_rels/slide{number}.xml.rels"] = _relations(
                {"rId1": (f"{kind}/notesSlide", f"../notesSlides/notesSlide{number}.xml")}
            )
            parts[f"ppt/notesSlides/notesSlide{number}.xml"] = (
                f"<p:notes {spaces}><p:cSld><p:spTree>{_shape('notes', [notes[number]])}"
                "</p:spTree></p:cSld></p:notes>"
            )
    return packed(parts)


def _shape(placeholder: str, lines: Sequence[str]) -> str:
    paragraphs = "".join(f"<a:p><a:r><a:t>{escape(line)}</a:t></a:r></a:p>" for line in lines)
    return (
        f'<p:sp><p:nvSpPr><p:cNvPr id="2" name="{placeholder}"/><p:cNvSpPr/><p:nvPr><p:ph '
        f'type="{placeholder}"/></p:nvPr></p:nvSpPr><p:spPr/><p:txBody><a:bodyPr/>{paragraphs}'
        "</p:txBody></p:sp>"
    )


def epub(chapters: Mapping[str, str], *, title: str = "The Orchard", locks: str = "") -> bytes:
    """Chapters by their part's name, in reading order: each the body of a page."""
    items = "".join(
        f'<item id="c{n}" href="{name}" media-type="application/xhtml+xml"/>'
        for n, name in enumerate(chapters)
    )
    spine = "".join(f'<itemref idref="c{n}"/>' for n in range(len(chapters)))
    parts: dict[str, str | bytes] = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": '<container><rootfiles><rootfile full-path="OEBPS/book.opf"/>'
        "</rootfiles></container>",
        "OEBPS/book.opf": '<package xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata>'
        f"<dc:title>{escape(title)}</dc:title></metadata><manifest>{items}"
        '<item id="nav" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>'
        f'</manifest><spine><itemref idref="nav"/>{spine}</spine></package>',
        "OEBPS/nav.xhtml": "<html><body><nav>table of contents</nav></body></html>",
    }
    # Other than in the order of reading.
    for name, body in reversed(list(chapters.items())):
        parts[f"OEBPS/{name}"] = (
            '<?xml version="1.0" encoding="utf-8"?><html xmlns="http://www.w3.org/1999/xhtml">'
            f"<head><title/></head><body>{body}</body></html>"
        )
    if locks:
        parts["META-INF/encryption.xml"] = (
            f'<encryption><CipherReference URI="{locks}"/></encryption>'
        )
    return packed(parts)


def eml(fill: Callable[[EmailMessage], object], *, subject: str = "Harvest") -> bytes:
    message = EmailMessage()
    message["From"] = "Anna Öst <anna@orchard.test>"
    message["To"] = "bert@orchard.test"
    message["Date"] = "Mon, 05 Feb 2024 10:11:12 +0100"
    message["Subject"] = subject
    message["Message-ID"] = "<1@orchard.test>"
    fill(message)
    return message.as_bytes()


def ole(streams: Mapping[str, bytes]) -> bytes:
    """An OLE file (MS-CFB) of version 3; short streams are filled up, so that none is in the mini
    stream."""
    free, end, fat_mark = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD
    ordered = sorted(streams.items(), key=lambda item: (len(item[0]), item[0].upper()))
    bodies = [body.ljust(4096, b"\0") for _, body in ordered]
    directory_sectors = -(-(len(bodies) + 1) // 4)
    data_sectors = sum(-(-len(body) // 512) for body in bodies)
    fat_sectors = 1
    while fat_sectors * 128 < fat_sectors + directory_sectors + data_sectors:
        fat_sectors += 1
    fat = [fat_mark] * fat_sectors
    fat += [*range(fat_sectors + 1, fat_sectors + directory_sectors), end]
    content = b""
    entries = [_entry("Root Entry", 5, free, 1 if bodies else free, end, 0)]
    for number, ((name, _), body) in enumerate(zip(ordered, bodies, strict=True), 1):
        start, sectors = len(fat), -(-len(body) // 512)
        fat += [*range(start + 1, start + sectors), end]
        content += body.ljust(sectors * 512, b"\0")
        right = number + 1 if number < len(bodies) else free
        entries.append(_entry(name, 2, right, free, start, len(body)))
    fat += [free] * (fat_sectors * 128 - len(fat))
    directory = b"".join(entries).ljust(directory_sectors * 512, b"\0")
    header = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(16)
    header += struct.pack("<HHHHH6x", 0x3E, 3, 0xFFFE, 9, 6)
    header += struct.pack("<IIIIIIIIII", 0, fat_sectors, fat_sectors, 0, 4096, end, 0, end, 0, 0)[
        : 76 - len(header)
    ]
    listed = [*range(fat_sectors), *[free] * (109 - fat_sectors)]
    return (
        header.ljust(76, b"\0")
        + struct.pack("<109I", *listed)
        + struct.pack(f"<{len(fat)}I", *fat)
        + directory
        + content
    )


def ppt(
    slides: Sequence[tuple[str, Sequence[str]]],
    *,
    password: bool = False,
    others: Mapping[str, bytes] | None = None,
) -> bytes:
    """A PowerPoint 97 file: slides of a title and bullets (MS-PPT 2.5); with `others`, streams."""

    def record(kind: int, body: bytes, version: int = 0xF) -> bytes:
        return struct.pack("<HHI", version, kind, len(body)) + body

    def box(kind: int, text: str) -> bytes:
        said = record(3999, struct.pack("<I", kind), 0) + record(4000, text.encode("utf-16-le"), 0)
        return record(0xF004, record(0xF00D, said))

    document = record(1000, record(1001, bytes(40), 1))
    for title, lines in slides:
        shapes = record(0xF003, box(0, title) + box(1, "\r".join(lines)))
        drawing = record(1036, record(0xF002, shapes))
        document += record(1006, record(1007, bytes(24), 2) + drawing)
    token = 0xF3D1C4DF if password else 0xE391C05F
    user = record(0xFF6, struct.pack("<II", 20, token) + bytes(12), 0)
    return ole({"PowerPoint Document": document, "Current User": user, **(others or {})})


def msg(subject: str, body: str, **fields: str) -> bytes:
    """A message of Outlook; `fields` are further ones by the numbers of their properties, such as
    `p0C1A` for who sent it (MS-OXPROPS)."""
    streams = {"p0037": subject, "p1000": body, **fields}
    return ole(
        {
            "__properties_version1.0": bytes(32),
            **{
                f"__substg1.0_{name[1:]}001F": text.encode("utf-16-le")
                for name, text in streams.items()
            },
        }
    )


def _entry(name: str, kind: int, right: int, child: int, start: int, size: int) -> bytes:
    free = 0xFFFFFFFF
    encoded = name.encode("utf-16-le") + b"\0\0"
    return (
        encoded.ljust(64, b"\0")
        + struct.pack("<HBBIII", len(encoded), kind, 1, free, right, child)
        + bytes(36)
        + struct.pack("<IQ", start, size)
    )


def _record(kind: int, body: bytes = b"") -> bytes:
    return struct.pack("<HH", kind, len(body)) + body


def _text(words: str, *, wide_length: bool = True) -> bytes:
    flag, encoded = 1, words.encode("utf-16-le")
    if all(ord(letter) < 256 for letter in words):
        flag, encoded = 0, words.encode("latin-1")
    return struct.pack("<HB" if wide_length else "<BB", len(words), flag) + encoded


GENERAL, DATE, PERCENT, CUSTOM = range(4)
"""Styles that `xls` knows."""


def xls(
    sheets: Mapping[str, Rows],
    *,
    hidden: Sequence[str] = (),
    password: bool = False,
    cut: int = 0,
    besides: Sequence[tuple[int, bytes]] = (),
    version: int = 0x600,
) -> bytes:
    """An Excel 97 file. A cell is a text, a number, a truth, or a pair of number and style.

    With `cut`, the texts go on in another record after so many bytes. `besides` are further records
    of each sheet.
    """
    strings: list[str] = [
        str(cell)
        for rows in sheets.values()
        for row in rows
        for cell in row
        if isinstance(cell, str)
    ]
    table = struct.pack("<II", len(strings), len(strings)) + b"".join(map(_text, strings))
    pieces = [table]
    if cut:
        # Within a text of one byte a letter; the next piece says so again.
        pieces = [table[:cut], b"\0" + table[cut:]]
    styles = [0, 14, 9, 164]
    globals_ = [
        _record(0x809, struct.pack("<HHHHII", version, 5, 0, 0, 0, 0)),
        *([_record(0x2F, bytes(6))] if password else []),
        _record(0x42, struct.pack("<H", 1200)),
        _record(0x41E, struct.pack("<H", 164) + _text("yyyy\\-mm\\-dd hh:mm")),
        *(_record(0xE0, struct.pack("<HH", 0, style) + bytes(16)) for style in styles),
    ]
    tail = _record(0xFC, pieces[0]) + b"".join(_record(0x3C, piece) for piece in pieces[1:])
    tail += _record(0x0A)
    bodies = []
    number = 0
    for rows in sheets.values():
        body = _record(0x809, struct.pack("<HHHHII", 0x600, 0x10, 0, 0, 0, 0))
        for at, row in enumerate(rows):
            for column, cell in enumerate(row):
                if isinstance(cell, str):
                    body += _record(0xFD, struct.pack("<HHHI", at, column, 0, number))
                    number += 1
                elif cell is not None:
                    body += _xls_value(at, column, cell)
        body += b"".join(_record(kind, data) for kind, data in besides)
        bodies.append(body + _record(0x0A))
    names = [
        (bytes([1 if name in hidden else 0, 0]) + _text(name, wide_length=False)) for name in sheets
    ]
    start = sum(map(len, globals_)) + sum(len(name) + 8 for name in names) + len(tail)
    listed = []
    for name, body in zip(names, bodies, strict=True):
        listed.append(_record(0x85, struct.pack("<I", start) + name))
        start += len(body)
    return ole({"Workbook": b"".join([*globals_, *listed, tail, *bodies])})


def _xls_value(row: int, column: int, cell: object) -> bytes:
    if isinstance(cell, bool):
        return _record(0x205, struct.pack("<HHHBB", row, column, 0, cell, 0))
    if isinstance(cell, Formula):
        head = struct.pack("<HHH", row, column, 0)
        if isinstance(cell.value, str):
            value = b"\0" * 6 + b"\xff\xff"
            return _record(0x06, head + value + bytes(8)) + _record(0x207, _text(cell.value))
        return _record(0x06, head + struct.pack("<d", cell.value) + bytes(8))
    value, style = cell if isinstance(cell, tuple) else (cell, GENERAL)
    if isinstance(value, int) and abs(value) < 1 << 29:
        return _record(
            0x27E, struct.pack("<HHHI", row, column, style, (value << 2 | 2) & 0xFFFFFFFF)
        )
    return _record(0x203, struct.pack("<HHHd", row, column, style, value))


class Formula:
    """A cell with the value that was saved with it."""

    def __init__(self, value: str | float) -> None:
        self.value = value


def doc(text: str, *, password: bool = False) -> bytes:
    """A Word 97 file of one piece of text (MS-DOC 2.4.1); paragraphs end with a carriage return."""
    words = (text.replace("\n", "\r") + "\r").encode("cp1252")
    header = bytearray(1024)
    struct.pack_into("<HHHHHH", header, 0, 0xA5EC, 0xC1, 0, 0x407, 0, 0x0200 | (0x100 * password))
    struct.pack_into("<H", header, 32, 14)
    struct.pack_into("<H", header, 62, 22)
    struct.pack_into("<I", header, 76, len(words))
    struct.pack_into("<H", header, 152, 93)
    pieces = struct.pack("<II", 0, len(words))
    pieces += struct.pack("<HIH", 0, (len(header) * 2) | 0x40000000, 0)
    table = b"\x02" + struct.pack("<I", len(pieces)) + pieces
    struct.pack_into("<II", header, 0x1A2, 0, len(table))
    return ole({"WordDocument": bytes(header) + words, "1Table": table})


def rtf(*paragraphs: str) -> bytes:
    def encoded(words: str) -> str:
        return "".join(
            f"\\{letter}"
            if letter in "\\{}"
            else letter
            if ord(letter) < 128
            else f"\\u{ord(letter)}?"
            for letter in words
        )

    return (
        "{\\rtf1\\ansi\\ansicpg1252 " + "\\par\n".join(map(encoded, paragraphs)) + "\\par}"
    ).encode()
