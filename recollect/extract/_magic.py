"""What the first bytes of a file tell: whether they are of a kind, are not, or do not tell (None).

The calling process runs these over strangers' bytes, so they only compare and never parse.
"""

import re

from recollect.extract import _ole, _zip
from recollect.extract._text import looks_like_text
from recollect.extract.media._containers import STILLS, find_container

RTF = re.compile(rb"(?:\xef\xbb\xbf)?\s*\{\\rtf")
_FLAT = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*|<!--.*?-->\s*|(?!))*+"
    rb"<(?:[\w.-]+:)?document\s[^>]*?\bmimetype\s*=\s*[\"']([^\"']+)[\"']",
    re.DOTALL,
)
"""OpenDocument in one file of XML, and its type"""
_WIDE = (b"\xff\xfe", b"\xfe\xff")
_PDF = re.compile(rb"^[^\S\n]*+%PDF-", re.MULTILINE)
_SUBTITLES = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:WEBVTT(?=[ \t\r\n]|\Z)|\s*\d+[ \t]*\r?\n\d+:\d\d:\d\d[.,]\d{1,3} *-->)"
)
_ICAL = re.compile(rb"(?:\xef\xbb\xbf)?\s*BEGIN:V(?:CALENDAR|CARD)[ \t]*[\r\n]", re.IGNORECASE)
_PAGE = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*|<!--.*?-->\s*|(?!))*+(?:<!doctype\s+html|<html[\s>])",
    re.IGNORECASE | re.DOTALL,
)
_XML = re.compile(rb"(?:\xef\xbb\xbf)?\s*<\?xml\s")
_OFFICE_ROOT = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?[^>]*>\s*|<!--.*?-->\s*|(?!))*+"
    rb"<(?:[\w.-]+:)?(Workbook|wordDocument|package)[\s>]",
    re.DOTALL,
)
_OF_EXCEL = b"urn:schemas-microsoft-com:office:spreadsheet"
_OF_OFFICE = {
    b"wordDocument": b"http://schemas.microsoft.com/office/word/2003/wordml",
    b"package": b"http://schemas.microsoft.com/office/2006/xmlPackage",
}
_INTERPRETER = re.compile(rb"(?:\xef\xbb\xbf)?#![ \t]*+/")
_HEADER = re.compile(rb"^([A-Za-z][A-Za-z0-9-]*):", re.M)
_ENVELOPE = re.compile(rb"\d{1,9}[ \t]*\r?\n|From (?=[^\n]*+\n)[^\n]*?\d\d:\d\d[^\n]*+\n")
"""What a folder of mails or Apple Mail writes ahead of one."""
_OF_MAIL = frozenset(
    [
        b"received",
        b"return-path",
        b"message-id",
        b"mime-version",
        b"delivered-to",
        b"dkim-signature",
    ]
)


def cannot_tell(head: bytes) -> bool | None:
    return None


def text(head: bytes) -> bool | None:
    """For kinds of text that only their names tell apart."""
    return None if looks_like_text(head) else False


def code(head: bytes) -> bool | None:
    """A script names its interpreter first."""
    return True if _INTERPRETER.match(head) and looks_like_text(head) else text(head)


def image(head: bytes) -> bool | None:
    if head.startswith(b"BM"):
        # Text may begin like this; four zeros and the size of a known header follow in a bitmap.
        return head[6:10] == bytes(4) and head[14:18] in (
            b"\x0c\0\0\0",
            b"\x28\0\0\0",
            b"\x6c\0\0\0",
            b"\x7c\0\0\0",
        )
    return (
        head.startswith(
            (
                b"\x89PNG\r\n\x1a\n",
                b"\xff\xd8\xff",
                b"GIF87a",
                b"GIF89a",
                b"II*\0",
                b"MM\0*",
                b"II+\0",
                b"MM\0+",
            )
        )
        or (head[:4] == b"RIFF" and head[8:12] == b"WEBP")
        or (head[4:8] == b"ftyp" and head[8:12] in STILLS)
    )


def audio(head: bytes) -> bool | None:
    container = find_container(head)
    if container is not None:
        return container.kind == "audio"
    # A recording of a stream may begin in the middle of a frame.
    return False if looks_like_text(head) else None


def video(head: bytes) -> bool | None:
    container = find_container(head)
    return container is not None and container.kind == "video"


def doc(head: bytes) -> bool | None:
    return _ole.sniff(head, "WordDocument")


def xls(head: bytes) -> bool | None:
    return is_excel_xml(head) or _ole.sniff(head, "Workbook", "Book")


def is_excel_xml(head: bytes) -> bool:
    head = _narrow(head)
    return _office_root(head) == b"Workbook" and _OF_EXCEL in head


def _narrow(head: bytes) -> bytes:
    """XML as far as it is ASCII, also of UTF-16."""
    return head[2:].replace(b"\0", b"") if head.startswith(_WIDE) else head


def _office_root(head: bytes) -> bytes:
    root = _OFFICE_ROOT.match(head)
    return root[1] if root else b""


def ppt(head: bytes) -> bool | None:
    return _ole.sniff(head, "PowerPoint Document")


def msg(head: bytes) -> bool | None:
    return _ole.sniff(head, _ole.MESSAGE)


def docx(head: bytes) -> bool | None:
    if _ole.is_ole(head):
        # Word wraps an encrypted DOCX in the container of its old formats. So do the others, and
        # an encrypted file is one like the other.
        return True if _ole.ENCRYPTED in _ole.streams_in(head) else None
    if is_office_xml(head):
        return b"ppt/" not in head
    return _zip.sniff(head, _zip.DOCX)


def pptx(head: bytes) -> bool | None:
    if is_office_xml(head):
        return b"ppt/" in head
    return None if _ole.is_ole(head) else _zip.sniff(head, _zip.PPTX)


def is_office_xml(head: bytes) -> bool:
    """Whether it is a document of Word or PowerPoint in one file of XML."""
    head = _narrow(head)
    return _office_root(head) in _OF_OFFICE and _OF_OFFICE[_office_root(head)] in head


def xlsx(head: bytes) -> bool | None:
    return None if _ole.is_ole(head) else _zip.sniff(head, _zip.XLSX)


def odt(head: bytes) -> bool | None:
    return _opendocument(head, _zip.ODT)


def ods(head: bytes) -> bool | None:
    return _opendocument(head, _zip.ODS)


def odp(head: bytes) -> bool | None:
    return _opendocument(head, _zip.ODP)


def _opendocument(head: bytes, mime: str) -> bool | None:
    flat = flat_type(head)
    return flat.startswith(mime.encode()) if flat else _zip.sniff(head, mime)


def flat_type(head: bytes) -> bytes | None:
    """The type of an OpenDocument in one file of XML; None of other files."""
    flat = _FLAT.match(_narrow(head))
    return flat[1] if flat else None


def epub(head: bytes) -> bool | None:
    return _zip.sniff(head, _zip.EPUB)


def archive(head: bytes) -> bool | None:
    return _zip.sniff(head, _zip.ANY)


def rtf(head: bytes) -> bool | None:
    return bool(RTF.match(head))


def pdf(head: bytes) -> bool | None:
    # Readers accept the mark anywhere in the first 1,024 bytes (ISO 32000-1, annex H, note 13);
    # but an archive or a mail may begin with a PDF as it is, and a text may speak of the mark.
    if b"%PDF-" not in head[:1024] or _zip.is_zip(head) or mail(head):
        return False
    return True if _PDF.search(head[:1024]) or not looks_like_text(head) else None


def subtitles(head: bytes) -> bool | None:
    return True if _SUBTITLES.match(head) else text(head)


def ical(head: bytes) -> bool | None:
    return True if _ICAL.match(head) else text(head)


def html(head: bytes) -> bool | None:
    return True if _PAGE.match(head) else text(head)


def is_xml(head: bytes) -> bool:
    """For text that neither its name nor its declared type calls anything."""
    return bool(_XML.match(head))


def mail(head: bytes) -> bool | None:
    if not looks_like_text(head):
        return False
    start = head.lstrip()
    if envelope := _ENVELOPE.match(start):
        start = start[envelope.end() :]
    if not _HEADER.match(start):
        return None
    lines = start.replace(b"\r\n", b"\n").partition(b"\n\n")[0]
    names = {name.lower() for name in _HEADER.findall(lines)}
    # Someone's notes may begin with "From:" and "To:", but not with what mail servers write.
    return True if b"from" in names and names & _OF_MAIL else None
