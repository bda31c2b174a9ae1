"""ZIP: a list of the files in it; `unpack` hands over those that can be read, one by one.

A ZIP within it is not a file of its own: its files stand in the same list. What an archive says of
itself (paths, sizes, times) is only ever shown; bytes are counted as they come out.
"""

import io
import re
import stat
import struct
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from lzma import LZMAError

from recollect.errors import Permanent
from recollect.extract import _zip
from recollect.extract._registry import HEAD, Format, detect
from recollect.extract._text import clean_line, safe_name
from recollect.extract._unpacking import UNSUPPORTED, Keep, Skipped, Unpacking, counted
from recollect.model import Blob, Extracted

MAX_DEPTH = 3
"""of ZIPs within the outermost one"""
MAX_LISTED = 10_000
"""entries that are looked at"""
MAX_RECORDS = 100_000
"""entries, with those of archives within, beyond which an archive is not opened"""
MAX_RATIO = 200
_SMALL = 10_000_000
_PIECE = 65_536
_RECORD = b"PK\x01\x02"
_LOCAL_HEADER = 30
_LOCKED = "it is protected by a password"
_DRIVE = re.compile(r"[A-Za-z]:")
_UTF8_NAME = 0x800
_FIELD, _UNICODE_PATH = struct.Struct("<HH"), 0x7075
"""kind and size of an extra field, and the kind that has the name in UTF-8, behind the checksum of
the other one (APPNOTE 4.6.9)"""
_LEFT_BY_SYSTEMS = frozenset({".DS_Store", "Thumbs.db", "desktop.ini"})

# Accented letters in names of DOS mostly stand alone: two such characters in a row tell.
_JAPANESE = re.compile(
    rb"(?:[\x81\x88-\x9f\xe0-\xea][\x40-\x7e\x80-\xfc]|\x82[\x4f-\xf1]|\x83[\x40-\x96])+"
)
_CHINESE = re.compile(rb"(?:[\xa1-\xa3\xb0-\xf7][\xa1-\xfe])+")
_CYRILLIC = re.compile(rb"[\x80-\xaf\xe0-\xf1]+")
_HIGH = re.compile(rb"[\x80-\xff]")


def extract(blob: Blob) -> Extracted:
    """The list alone."""
    return unpack(blob, lambda path, data: None)


def unpack(blob: Blob, keep: Keep) -> Extracted:
    """The list; `keep` gets each file that can be read. Raises Permanent for a damaged archive."""
    walk = Walk(Unpacking(keep))
    walk.through(blob.data, "", 0)
    return walk.listing(blob.name)


class Walk:
    """Through one archive and those within it."""

    def __init__(self, files: Unpacking) -> None:
        self._files = files
        self._lines: list[str] = []
        self._locked = 0
        self._records = 0
        self._cut = False

    def through(self, data: bytes, above: str, depth: int) -> None:
        """`above`: the path of this archive in the outermost one, with a slash at its end."""
        self._records += data.count(_RECORD)
        if self._records > MAX_RECORDS:
            raise Permanent(f"it has more than {MAX_RECORDS:,} entries", code="too_large")
        archive, entries = _open(data)
        names = _names(entries)
        last = {name: number for number, name in enumerate(names)}
        for number, (name, entry) in enumerate(zip(names, entries, strict=True)):
            if name.endswith("/") or entry.filename.endswith("/") or _is_left_by_system(name):
                continue
            if len(self._lines) >= MAX_LISTED:
                self._cut = True
                return
            try:
                path = above + _path(name)
                if last[name] != number:
                    raise Skipped("a later file has the same path")
                self._admit(entry, path)
                self._take(archive, entry, path, depth)
            except Skipped as reason:
                self._skip(above + name, str(reason))

    def listing(self, name: str | None) -> Extracted:
        files = self._files
        if self._locked and self._locked == files.skipped and not files.kept:
            raise Permanent("all files in it are protected by a password", code="encrypted_file")
        warnings = files.warnings()
        if self._cut:
            warnings.append(f"Only the first {MAX_LISTED:,} entries were looked at.")
        number, size = counted(files.kept, "file"), counted(files.kept_bytes, "byte")
        text = "\n".join([f"Archive of {number}, {size}.\n", *self._lines])
        return Extracted(text, title=name, warnings=warnings, markdown=False)

    def _admit(self, entry: zipfile.ZipInfo, path: str) -> None:
        """Raises Skipped if the entry in the list alone is reason enough."""
        self._files.check_path(path)
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if kind not in (0, stat.S_IFREG):
            raise Skipped("it is a link" if kind == stat.S_IFLNK else "it is not a file")
        if entry.flag_bits & 1:
            self._locked += 1
            raise Skipped(_LOCKED)
        size = entry.file_size
        self._files.check_size(size)
        if size > _SMALL and size > MAX_RATIO * entry.compress_size:
            raise Skipped(f"it unpacks to more than {MAX_RATIO} times its size")

    def _take(
        self, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, path: str, depth: int
    ) -> None:
        pieces = _pieces(archive, entry)
        head = _up_to(pieces, HEAD)
        self._files.unpacked += len(head)
        found = detect(head[:HEAD], name=path, mime=None)
        if found is None:
            raise Skipped(UNSUPPORTED)
        data = bytearray(head)
        for piece in pieces:
            data += piece
            self._files.unpacked += len(piece)
        if len(data) != entry.file_size:
            raise Skipped("it is damaged")
        self.offer(path, bytes(data), found, depth)

    def offer(self, path: str, data: bytes, found: Format, depth: int) -> None:
        """A whole file, or the files in it if it is an archive. Raises Skipped."""
        is_archive = found.extractor == "zip" and not _zip.document(data)
        if is_archive and depth == MAX_DEPTH:
            raise Skipped(f"it is nested in more than {MAX_DEPTH} archives")
        self._files.take(path)
        if not is_archive:
            self._files.hand_over(path, data)
            self._lines.append(f"- {path} ({counted(len(data), 'byte')})")
            return
        try:
            self.through(data, path + "/", depth + 1)
        except Permanent as error:
            raise Skipped(str(error)) from error

    def _skip(self, path: str, reason: str) -> None:
        self._files.skip(reason)
        self._lines.append(f"- {clean_line(path)}: not read, {reason}")


def _open(data: bytes) -> tuple[zipfile.ZipFile, Sequence[zipfile.ZipInfo]]:
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except (
        zipfile.BadZipFile,
        struct.error,
        ValueError,
        OSError,
        IndexError,
        NotImplementedError,
    ) as error:
        raise Permanent("it is damaged or cut off") from error
    entries = archive.infolist()
    placed = sorted(entries, key=lambda entry: entry.header_offset)
    for entry, following in pairwise(placed):
        if entry.header_offset + _LOCAL_HEADER + entry.compress_size > following.header_offset:
            raise Permanent("it is damaged: its entries overlap")
    return archive, entries


def _pieces(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Iterator[bytes]:
    """As it is unpacked; no more than the entry says. Raises Skipped."""
    try:
        with archive.open(entry) as part:
            while piece := part.read(_PIECE):
                yield piece
    except NotImplementedError as error:
        raise Skipped("it is packed in a way that is not supported") from error
    except MemoryError as error:
        raise Skipped("it takes too much memory to unpack") from error
    except (
        zipfile.BadZipFile,
        zlib.error,
        LZMAError,
        struct.error,
        EOFError,
        OSError,
        RuntimeError,
        ValueError,
        IndexError,
    ) as error:
        raise Skipped("it is damaged") from error


def _up_to(pieces: Iterator[bytes], size: int) -> bytes:
    """The first pieces, until they have that many bytes."""
    data = b""
    for piece in pieces:
        data += piece
        if len(data) >= size:
            break
    return data


def _path(name: str) -> str:
    """The parts of a path as they can be shown; raises Skipped for one that leads elsewhere."""
    if "\0" in name:
        raise Skipped("its path has a NUL character")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or _DRIVE.match(name) or ".." in parts:
        raise Skipped("its path leads out of the archive")
    shown = [safe_name(part) for part in parts]
    path = "/".join(part for part in shown if part)
    if None in shown or not path:
        raise Skipped("its path cannot be shown")
    return path


def _names(entries: Sequence[zipfile.ZipInfo]) -> list[str]:
    """With slashes, in the encoding that the archive names, else the one they look like."""
    told = [_told_name(entry) for entry in entries]
    encoding = _encoding(b"\n".join(name for name in told if isinstance(name, bytes)))
    names = [name.decode(encoding, "replace") if isinstance(name, bytes) else name for name in told]
    return [unicodedata.normalize("NFC", name.replace("\\", "/")) for name in names]


def _told_name(entry: zipfile.ZipInfo) -> str | bytes:
    """As bytes where it is not told in which encoding it is."""
    if entry.flag_bits & _UTF8_NAME:
        return entry.orig_filename
    # Read as code page 437, which has a character for each byte.
    name = entry.orig_filename.encode("cp437", "replace")
    at = 0
    while at + _FIELD.size < len(entry.extra):
        kind, size = _FIELD.unpack_from(entry.extra, at)
        at += _FIELD.size + size
        if kind == _UNICODE_PATH:
            field = entry.extra[at - size : at]
            if field[1:5] == zlib.crc32(name).to_bytes(4, "little"):
                return field[5:].decode("utf-8", "replace")
    return name


def _encoding(names: bytes) -> str:
    """Of a few words no statistics are any use; what the common encodings look like is."""
    for encoding in ("ascii", "utf-8"):
        try:
            names.decode(encoding)
        except UnicodeDecodeError:
            continue
        return encoding
    high = len(_HIGH.findall(names))
    for encoding, pattern, share in (
        ("cp932", _JAPANESE, 0.9),
        ("gb18030", _CHINESE, 0.9),
        ("cp866", _CYRILLIC, 0.5),  # it has short words
    ):
        runs = [run for run in pattern.findall(names) if len(run) > 2]
        covered = sum(len(_HIGH.findall(run)) for run in runs)
        if covered >= share * high:
            return encoding
    return "cp437"


def _is_left_by_system(name: str) -> bool:
    parts = name.split("/")
    return "__MACOSX" in parts or parts[-1] in _LEFT_BY_SYSTEMS
