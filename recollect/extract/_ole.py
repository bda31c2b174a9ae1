"""OLE files, the container of the old Office formats (MS-CFB): which streams they have, and those.

Everything is bounded by the file's own size: chains that loop or lead out are refused.
"""

import struct
from collections.abc import Iterator, Mapping

from recollect.errors import Permanent

_MARK = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENTRY_SIZE = 128
_STREAM, _ROOT = 2, 5
_CHILD, _SIBLINGS = struct.Struct("<I"), struct.Struct("<II")
_END_OF_CHAIN = 0xFFFFFFFA
"""From this number on, sectors are marks (MS-CFB 2.1)."""

ENCRYPTED = "EncryptedPackage"
MESSAGE = "__properties_version1.0"
"""a stream of each message of Outlook (MS-OXMSG 2.4)"""
_MAIN = {
    "WordDocument": "application/msword",
    "Workbook": "application/vnd.ms-excel",
    "Book": "application/vnd.ms-excel",
    "PowerPoint Document": "application/vnd.ms-powerpoint",
    MESSAGE: "application/vnd.ms-outlook",
}
"""main streams, and the media types of what has them"""
_FIRST_BYTES = {
    # Writers mostly put the main stream first: the header of Word's (MS-DOC 2.5.2), and the first
    # record of Excel's (MS-XLS 2.4.21).
    b"\xec\xa5": "WordDocument",
    b"\x09\x08": "Workbook",
}


def is_ole(head: bytes) -> bool:
    return head.startswith(_MARK)


def streams_in(head: bytes) -> set[str]:
    """Names of the streams that the first bytes of a file list; perhaps none."""
    if not is_ole(head) or len(head) < 512:
        return set()
    size = _sector_size(head)
    start = size * (int.from_bytes(head[48:52], "little") + 1)
    names = {name for _, name, *_ in _entries(head[start : start + size])}
    if first := _FIRST_BYTES.get(head[size : size + 2]):
        names.add(first)
    return names


def sniff(head: bytes, *streams: str) -> bool | None:
    """Whether an OLE file has one of these streams, as far as its head tells."""
    if not is_ole(head):
        return False
    if names := streams_in(head) & _MAIN.keys():
        # A Word file may hold a workbook, but not in its root's first sector.
        return bool(names & set(streams))
    return None


def document(data: bytes) -> str | None:
    """The media type of the document that an OLE file is by its list, wherever that stands; None
    for another thing, and for a damaged one."""
    try:
        own = Streams(data).own
    except Permanent:
        return None
    return next((mime for stream, mime in _MAIN.items() if stream in own), None)


def refuse_encrypted(data: bytes) -> None:
    """Raise Permanent if this is the wrapping of an encrypted OOXML file (MS-OFFCRYPTO 2.3.2)."""
    if ENCRYPTED.encode("utf-16-le") in data:
        raise Permanent("it is protected by a password", code="encrypted_file")


class Streams:
    """The streams of an OLE file. Raises Permanent for what is damaged."""

    def __init__(self, data: bytes) -> None:
        if not is_ole(data) or len(data) < 512:
            raise Permanent("it is damaged or not what it says (not an OLE file)")
        self._data = data
        self._size = _sector_size(data)
        self._sectors = len(data) // self._size
        self._fat = self._read_fat()
        directory = self._chain(int.from_bytes(data[48:52], "little"))
        self._mini_fat = _numbers(self._chain(int.from_bytes(data[60:64], "little")))
        self._entries: dict[str, tuple[int, int]] = {}
        self._mini = b""
        self.own: set[str] = set()
        """names of those that are in no folder"""
        in_root = _in_root(directory)
        # A file within the file has streams of the same names.
        entries = sorted(_entries(directory), key=lambda entry: entry[0] not in in_root)
        for number, name, kind, start, size in entries:
            if kind == _ROOT:
                self._mini = self._chain(start)[:size]
                continue
            self._entries.setdefault(name, (start, size))
            if number in in_root:
                self.own.add(name)

    @property
    def names(self) -> Mapping[str, tuple[int, int]]:
        return self._entries

    def read(self, name: str) -> bytes:
        start, size = self._entries[name]
        if size < int.from_bytes(self._data[56:60], "little"):
            return self._mini_chain(start)[:size]
        return self._chain(start)[:size]

    def _read_fat(self) -> list[int]:
        listed = list(struct.unpack_from("<109I", self._data, 76))
        more, seen = int.from_bytes(self._data[68:72], "little"), 0
        while more < _END_OF_CHAIN and seen <= self._sectors:
            numbers = _numbers(self._sector(more))
            listed += numbers[:-1]
            more, seen = (numbers[-1] if numbers else _END_OF_CHAIN), seen + 1
        fat: list[int] = []
        for number in listed[: self._sectors + 109]:
            if number < _END_OF_CHAIN and len(fat) <= self._sectors:
                fat += _numbers(self._sector(number))
        return fat

    def _sector(self, number: int) -> bytes:
        at = self._size * (number + 1)
        return self._data[at : at + self._size]

    def _chain(self, start: int) -> bytes:
        return b"".join(self._sector(number) for number in self._follow(start, self._fat))

    def _mini_chain(self, start: int) -> bytes:
        return b"".join(
            self._mini[64 * number : 64 * number + 64]
            for number in self._follow(start, self._mini_fat)
        )

    def _follow(self, number: int, table: list[int]) -> Iterator[int]:
        for _ in range(len(table) + 1):
            if number >= _END_OF_CHAIN:
                return
            if number >= len(table):
                raise Permanent("it is damaged: a part of it is missing")
            yield number
            number = table[number]
        raise Permanent("it is damaged: a stream of it has no end")


def _sector_size(data: bytes) -> int:
    return 4096 if data[30:32] == b"\x0c\x00" else 512


def _numbers(sectors: bytes) -> list[int]:
    return list(struct.unpack(f"<{len(sectors) // 4}I", sectors[: len(sectors) // 4 * 4]))


def _in_root(directory: bytes) -> set[int]:
    """Numbers of the entries that stand in the root itself, a tree of them (MS-CFB 2.6.4)."""
    found: set[int] = set()
    waiting: list[int] = [*_CHILD.unpack(directory[76:80].ljust(4, b"\xff"))]
    while waiting:
        number = waiting.pop()
        entry = directory[number * _ENTRY_SIZE : (number + 1) * _ENTRY_SIZE]
        if number not in found and len(entry) == _ENTRY_SIZE:
            found.add(number)
            waiting += _SIBLINGS.unpack_from(entry, 68)
    return found


def _entries(directory: bytes) -> Iterator[tuple[int, str, int, int, int]]:
    """Number, name, kind, first sector and size of streams and of the root."""
    for at in range(0, len(directory) - _ENTRY_SIZE + 1, _ENTRY_SIZE):
        entry = directory[at : at + _ENTRY_SIZE]
        length, kind = int.from_bytes(entry[64:66], "little"), entry[66]
        if kind in (_STREAM, _ROOT) and 2 <= length <= 64:
            name = entry[: length - 2].decode("utf-16-le", "replace")
            # The upper half of the size is to be ignored in files of version 3 (MS-CFB 2.6.1).
            yield at // _ENTRY_SIZE, name, kind, *struct.unpack_from("<II", entry, 116)
