"""RTF as Outlook packs it into messages (MS-OXRTFCP)."""

from recollect.errors import Permanent

_HEADER = 16
_PACKED, _PLAIN = b"LZFu", b"MELA"
_KNOWN = (
    rb"{\rtf1\ansi\mac\deff0\deftab720{\fonttbl;}{\f0\fnil \froman \fswiss \fmodern \fscript "
    rb"\fdecor MS Sans SerifSymbolArialTimes New RomanCourier{\colortbl\red0\green0\blue0"
    b"\r\n\\par \\pard\\plain\\f0\\fs20\\b\\i\\u\\tab\\tx"
)
"""what is taken for written ahead of the text (2.1.2.1)"""
_WINDOW = 4096
"""bytes back from which a piece may be written once more"""


def unpacked(data: bytes) -> bytes:
    """Raises Permanent for what is damaged."""
    kind, rest = data[8:12], data[_HEADER : int.from_bytes(data[:4], "little") + 4]
    if kind == _PLAIN or not rest:
        return rest
    if kind != _PACKED:
        raise Permanent("its text is damaged")
    written = bytearray(_KNOWN)
    at = 0
    while at < len(rest):
        control = rest[at]
        at += 1
        for bit in range(8):
            if not control >> bit & 1:
                written += rest[at : at + 1]
                at += 1
                continue
            place = int.from_bytes(rest[at : at + 2], "big")
            at += 2
            back = (len(written) - (place >> 4)) % _WINDOW
            if at > len(rest) or not back:
                return bytes(written[len(_KNOWN) :])
            if back > len(written):
                raise Permanent("its text is damaged")
            for _ in range((place & 0xF) + 2):
                written.append(written[-back])
    return bytes(written[len(_KNOWN) :])
