"""ZIP containers of documents: what their first bytes tell, and their parts within limits."""

import functools
import io
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping

from recollect.errors import Permanent

MAX_ENTRIES = 10_000
MAX_UNPACKED = 1_000_000_000
MAX_RATIO = 200
_SMALL = 10_000_000
_PIECE = 65_536
_ENTRY = b"PK\x03\x04"
_NAME_AT = 30
_LENGTHS_AT, _LENGTHS = 26, struct.Struct("<HH")
"""of the name and of what follows it, in the header of an entry (APPNOTE 4.3.7)"""
_AT_ONCE = 1_000_000
_PLAIN_FLAGS = 0x080E
"""how it was packed, sizes after it, name in UTF-8 (APPNOTE 4.4.4)"""

DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
ODT = "application/vnd.oasis.opendocument.text"
ODS = "application/vnd.oasis.opendocument.spreadsheet"
ODP = "application/vnd.oasis.opendocument.presentation"
EPUB = "application/epub+zip"
ANY = "application/zip"

_FOLDERS = {"word": DOCX, "xl": XLSX, "ppt": PPTX}
_MAINS = {"word/document.xml": DOCX, "xl/workbook.xml": XLSX, "ppt/presentation.xml": PPTX}
_DECLARED = (ODT, ODS, ODP, EPUB)
_RECORD = b"PK\x01\x02"
_OOXML_PARTS = (".xml", ".rels")
_PACKAGE_PARTS = ("[Content_Types].xml", "_rels", "docProps", "customXml", "META-INF")


def is_zip(head: bytes) -> bool:
    return head.startswith((_ENTRY, b"PK\x05\x06"))


@functools.lru_cache(1)
def contained(head: bytes) -> str | None:
    """The media type of the document that a ZIP is, `ANY` for none, "" for a kind that no extractor
    reads, None if its head cannot tell.

    OOXML is known by XML in a folder, OpenDocument and EPUB by the part "mimetype", which comes
    first and unpacked (OpenDocument 1.3 part 2, 3.3; EPUB OCF 3.3, 4.3).
    """
    names = list(_names(head))
    if names and names[0] == "mimetype":
        if head[8:10] != b"\0\0":
            return None  # packed by a tool for other archives; the name may tell
        skipped = int.from_bytes(head[28:30], "little")
        declared = head[_NAME_AT + len("mimetype") + skipped :][:100]
        return _declared(declared) or ("" if declared.startswith(b"application/") else ANY)
    folders = [name.partition("/")[0] for name in names]
    if not folders or (folders[0] not in _FOLDERS and folders[0] not in _PACKAGE_PARTS):
        return ANY  # what looks like a document further on is one of its members
    for folder, name in zip(folders, names, strict=True):
        if folder in _FOLDERS and name.endswith(_OOXML_PARTS):
            return _FOLDERS[folder]
    return None if any(folder in _PACKAGE_PARTS for folder in folders) else ANY


def _declared(said: bytes) -> str | None:
    """Of the kind itself or of what is read like it: `-template`, `-master`."""
    return next((mime for mime in _DECLARED if said.lstrip().startswith(mime.encode())), None)


def _names(head: bytes) -> Iterator[str]:
    at = head.find(_ENTRY)
    while at >= 0 and at + _NAME_AT <= len(head):
        length = int.from_bytes(head[at + 26 : at + 28], "little")
        yield head[at + _NAME_AT : at + _NAME_AT + length].decode("utf-8", "replace")
        at = head.find(_ENTRY, at + _NAME_AT)


def sniff(head: bytes, mime: str) -> bool | None:
    """Whether a ZIP is a document of this type."""
    if not is_zip(head):
        return False
    found = contained(head)
    return None if found is None else found == mime


def document(data: bytes) -> str | None:
    """The media type of the document that a ZIP is by its list, in whatever order its parts stand;
    None for an archive, and for a kind that no extractor reads."""
    if data.count(_RECORD) > MAX_ENTRIES:
        return None
    try:
        package = Package(data)
        if "mimetype" in package.names:
            mime = _declared(next(package.pieces("mimetype"), b""))
            needed = "META-INF/container.xml" if mime == EPUB else "content.xml"
            return mime if needed in package.names else None
    except Permanent:
        return None
    if not {"[Content_Types].xml", "_rels/.rels"} <= package.names.keys():
        return None
    return next((mime for main, mime in _MAINS.items() if main in package.names), None)


def packed(parts: Mapping[str, bytes]) -> bytes:
    """A container of these parts."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compresslevel=1) as archive:
        for name, part in parts.items():
            is_large = len(part) > _AT_ONCE
            archive.writestr(name, part, zipfile.ZIP_DEFLATED if is_large else zipfile.ZIP_STORED)
    return out.getvalue()


class Package:
    """The parts of a document in a ZIP. Raises Permanent for all that is wrong with it."""

    def __init__(self, data: bytes, *, entries: int = MAX_ENTRIES) -> None:
        try:
            self._data = data
            self._archive = zipfile.ZipFile(io.BytesIO(data))
            parts = self._archive.infolist()
        except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError) as error:
            raise Permanent("it is damaged or not what it says") from error
        unpacked = sum(part.file_size for part in parts)
        if any(part.flag_bits & 1 for part in parts):
            raise Permanent("it is protected by a password", code="encrypted_file")
        if any(_leads_out(part.filename) for part in parts):
            raise Permanent("a part of it has a path that leads out of the document")
        if (
            len(parts) > entries
            or unpacked > MAX_UNPACKED
            or (unpacked > _SMALL and unpacked > MAX_RATIO * len(data))
        ):
            raise Permanent(
                f"it would unpack to {unpacked:,} bytes in {len(parts):,} parts", code="too_large"
            )
        self.names = {
            part.filename: part.file_size for part in parts if part.filename[-1:] not in ("", "/")
        }
        """size of each part by its name, in the order of the container"""

    def read(self, name: str) -> bytes:
        return b"".join(self.pieces(name))

    def pieces(self, name: str) -> Iterator[bytes]:
        """A part as it is unpacked; no more of it than it says."""
        if (whole := self._read_small(name)) is not None:
            yield whole
            return
        try:
            with self._archive.open(name) as part:
                while piece := part.read(_PIECE):
                    yield piece
        except KeyError as error:
            raise Permanent(f"it is damaged: its part {name} is missing") from error
        except (
            zipfile.BadZipFile,
            zlib.error,
            lzma.LZMAError,
            EOFError,
            OSError,
            NotImplementedError,
            ValueError,
        ) as error:
            raise Permanent(f"it is damaged: its part {name} cannot be unpacked") from error

    def _read_small(self, name: str) -> bytes | None:
        """A part at once, if it is as most are; what is wrong or rare is left to `zipfile`."""
        info = self._archive.NameToInfo.get(name)
        if (
            info is None
            or info.file_size > _AT_ONCE
            or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
            or info.flag_bits & ~_PLAIN_FLAGS
            or info.header_offset < 0
        ):
            return None
        header = self._data[info.header_offset : info.header_offset + _NAME_AT]
        if len(header) < _NAME_AT or not header.startswith(_ENTRY):
            return None
        length, extra = _LENGTHS.unpack_from(header, _LENGTHS_AT)
        start = info.header_offset + _NAME_AT
        written = self._data[start : start + length]
        if not written.isascii() or written.decode("ascii") != info.orig_filename:
            return None
        start += length + extra
        packed = self._data[start : start + info.compress_size]
        try:
            found = (
                packed
                if info.compress_type == zipfile.ZIP_STORED
                else zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, info.file_size + 1)
            )
        except zlib.error:
            return None
        return found if len(found) == info.file_size and zlib.crc32(found) == info.CRC else None


def _leads_out(name: str) -> bool:
    path = name.replace("\\", "/")
    return path.startswith("/") or (".." in path and ".." in path.split("/"))
