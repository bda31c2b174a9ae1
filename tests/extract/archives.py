"""ZIP archives as tests want them, and as their writers should not make them."""

import io
import struct
import zipfile
from collections.abc import Mapping


def packed(members: Mapping[str, str | bytes], *, stored: bool = False) -> bytes:
    """An archive of these files, in this order."""
    out = io.BytesIO()
    kind = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(out, "w", kind) as archive:
        for name, body in members.items():
            # The time is part of the bytes.
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), body, kind)
    return out.getvalue()


def named(raw: bytes, body: bytes = b"words") -> bytes:
    """One file whose name has these bytes, without a word about their encoding."""
    data = packed({"x" * len(raw): body}, stored=True)
    return data.replace(b"x" * len(raw), raw)


def locked(data: bytes) -> bytes:
    """As if all files were encrypted."""
    return _flagged(data, 1)


def _flagged(data: bytes, bit: int) -> bytes:
    out = bytearray(data)
    for signature, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = out.find(signature)
        while place >= 0:
            flags = struct.unpack_from("<H", out, place + at)[0]
            struct.pack_into("<H", out, place + at, flags | bit)
            place = out.find(signature, place + 4)
    return bytes(out)


def overlapping() -> bytes:
    """Two entries of the list that share their bytes."""
    data = packed({"a.txt": "words", "b.txt": "other words"}, stored=True)
    second = data.rfind(b"PK\x01\x02")
    return data[: second + 42] + struct.pack("<I", 0) + data[second + 46 :]


def wrapped(data: bytes, times: int) -> bytes:
    """In so many archives."""
    for number in range(times):
        data = packed({f"{times - number}.zip": data})
    return data


def fanned(levels: int, copies: int) -> bytes:
    """Archives in archives: each holds so many of the next, the innermost a text."""
    data, name = b"words", "a.txt"
    for level in range(levels):
        data = packed({f"{number}-{name}": data for number in range(copies)})
        name = f"{level}.zip"
    return data
