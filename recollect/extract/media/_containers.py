"""Containers of sound and video, by their first bytes: the demuxer, and which of the two they hold.

The demuxer is named to the library rather than left to its guess: it knows hundreds, among them
playlists that name other files.
"""

import re
from dataclasses import dataclass

_EBML = b"\x1a\x45\xdf\xa3"
_MP4_PARTS = (b"moov", b"mdat", b"wide", b"free", b"skip")
_AUDIO_BRANDS = (b"M4A ", b"M4B ", b"M4P ")
STILLS = (b"avif", b"avis", b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
"""brands of pictures in HEIF and AVIF (ISO 23008-12, AV1 Image File Format)"""
_PICTURE_BRANDS = (*STILLS, b"jp2 ", b"crx ")
_ID3_HEADER = 10
_TS_PACKET, _TS_SYNC = 188, 0x47
"""what a transport stream is made of (ISO 13818-1 2.4.3.2); streams over HTTP come as one"""

_LAYER_3_KBITS = {
    3: (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    2: (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
"""bit rates of MPEG-1 and MPEG-2 layer III (ISO 11172-3 2.4.2.3, ISO 13818-3 2.4.2.3)"""
_RATES = (44_100, 48_000, 32_000)


@dataclass(frozen=True, slots=True)
class Container:
    """`demuxer` as FFmpeg calls it; `kind` is the contract's word: `video` or `audio`."""

    demuxer: str
    kind: str


def find_container(head: bytes) -> Container | None:
    """What these first bytes are; None if they do not tell."""
    # In "The free tier" a letter stands where a size of gigabytes would begin.
    if head[:1] < b"\t" and head[4:8] == b"ftyp":
        return _of_brand(head)
    if head[:1] < b"\t" and head[4:8] in _MP4_PARTS:
        return Container("mov", "video")
    if head.startswith(_EBML):
        return _matroska(head)
    if head.startswith(b"RIFF"):
        riff = {b"AVI ": Container("avi", "video"), b"WAVE": Container("wav", "audio")}
        return riff.get(head[8:12])
    if head.startswith(b"OggS\0"):
        return Container("ogg", "video" if b"\x80theora" in head else "audio")
    if len(head) > 2 * _TS_PACKET and set(head[: 5 * _TS_PACKET : _TS_PACKET]) == {_TS_SYNC}:
        return Container("mpegts", "video")
    if head.startswith((b"fLaC\0", b"fLaC\x80")):
        return Container("flac", "audio")
    if head.startswith(b"ID3") and head[3:4] < b"\t":  # its version, or the next letter of a text
        return _after_tag(head)
    if re.match(rb"\xff[\xf0\xf1\xf8\xf9]", head):
        return Container("aac", "audio")
    return Container("mp3", "audio") if _is_mp3(head) else None


def _of_brand(head: bytes) -> Container | None:
    brand = head[8:12]
    if brand in _PICTURE_BRANDS:
        return None
    # The index tells the kinds of tracks, if it comes first and is short.
    index = head.find(b"moov") - 4
    size = int.from_bytes(head[max(index, 0) :][:4], "big")
    whole = 0 < index <= len(head) - size
    only_sound = whole and b"soun" in head and b"vide" not in head
    return Container("mov", "audio" if brand in _AUDIO_BRANDS or only_sound else "video")


def _matroska(head: bytes) -> Container | None:
    if b"webm" not in head[:64] and b"matroska" not in head[:64]:
        return None
    # Names of codecs: V_VP9, A_OPUS (RFC 9559 5.1.4.1.23).
    only_sound = re.search(rb"A_[A-Z]{2}", head) and not re.search(rb"V_[A-Z]{2}", head)
    return Container("matroska", "audio" if only_sound else "video")


def _after_tag(data: bytes) -> Container:
    """An ID3 tag may stand before any of three kinds; its size has 7 bits a byte (ID3v2.4, 3.1)."""
    size = 0
    for byte in data[6:_ID3_HEADER]:
        size = size << 7 | byte & 0x7F
    found = (
        None
        if data[_ID3_HEADER + size :][:3] == b"ID3"
        else find_container(data[_ID3_HEADER + size :])
    )
    return found if found and found.demuxer in ("flac", "aac") else Container("mp3", "audio")


def _is_mp3(head: bytes) -> bool:
    """Whether two frames follow each other: the first bytes alone may be UTF-16, too."""
    length = _frame_length(head)
    return length is not None and _frame_length(head[length:]) is not None


def _frame_length(head: bytes) -> int | None:
    """Bytes of an MPEG layer III frame that begins here (ISO 11172-3 2.4.1.3)."""
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return None
    version, layer = head[1] >> 3 & 3, head[1] >> 1 & 3
    bits, rate, padding = head[2] >> 4, head[2] >> 2 & 3, head[2] >> 1 & 1
    if version == 1 or layer != 1 or bits in (0, 15) or rate == 3:
        return None
    kbits = _LAYER_3_KBITS[3 if version == 3 else 2][bits - 1]
    halvings = {3: 0, 2: 1, 0: 2}[version]
    return (144 if version == 3 else 72) * kbits * 1000 // (_RATES[rate] >> halvings) + padding
