"""Text in the encoding that a file, a mail or a server tells, as browsers and mail programs do; but
text that can only be UTF-8 is UTF-8: who saves a page forgets what it says of itself."""

import codecs
import itertools
import re

from w3lib.encoding import (
    html_body_declared_encoding,
    http_content_type_encoding,
    read_bom,
    to_unicode,
)

from recollect.extract._text import decode, guess_encoding
from recollect.model import codec_of

_SEEN = ("utf-8", "utf-16")
"""What the bytes themselves mostly tell. Programs of Windows call UTF-16 what is UTF-8 once it is
written; of what is UTF-16 only the bytes tell the order, unless nothing in it is ASCII."""
_UTF_7 = ("utf-7", "unicode-1-1-utf-7")
"""RFC 2152: of old mails; browsers know it no more"""
_HIGH = bytes(range(0xA0, 0x100))
_SIGN = re.compile(rb"[\xc2-\xf4][\x80-\xbf]+")
_BEYOND_CHANCE, _OF_SINGLE_BYTES = 8, 3
"""Signs of UTF-8 beyond ASCII: of two in GB2312 every twentieth pair is valid UTF-8 as well. Where
a byte is a letter, words are not."""


def decoded(data: bytes, charset: str | None) -> str:
    """As a byte order mark says, or `charset`, if it can be right; else as the bytes look."""
    if read_bom(data)[0]:
        return decode(data)
    name = (charset or "us-ascii").lower()
    if name in _UTF_7:
        return data.decode("utf-7", "replace")
    codec = codec_of(name) if name != "us-ascii" else None
    if codec is None or codec.startswith(_SEEN[0]) or _is_utf8(data, codec):
        return decode(data)
    if codec.startswith(_SEEN[1]) and guess_encoding(data).startswith(_SEEN):
        return decode(data)
    return data.decode(codec, "replace")


def read_page(data: bytes, mime: str | None) -> tuple[str, str]:
    """The encoding of an HTML page and its text: as the server says, or the page, or it looks."""
    encoding, mark = read_bom(data)
    if encoding is None or mark is None:
        encoding = _told(data, mime)
        encoding = "utf-8" if encoding and _is_utf8(data, encoding) else encoding
    encoding = encoding or guess_encoding(data)
    return encoding, to_unicode(data[len(mark or b"") :], encoding)


def _told(data: bytes, mime: str | None) -> str | None:
    """A server says one charset of all that it has: UTF-8 that the page says and is counts more."""
    told = (http_content_type_encoding(mime), html_body_declared_encoding(data))
    if told[1] == "utf-8" and not data.isascii() and guess_encoding(data) == "utf-8":
        return "utf-8"
    return next(
        (name for name in told if name and codec_of(name) and not name.startswith(_SEEN[1])), None
    )


def _is_utf8(data: bytes, told: str) -> bool:
    """Whether it can be nothing else, that which is told of it least of all."""
    is_single = len(_HIGH.decode(told, "replace")) == len(_HIGH)
    least = _OF_SINGLE_BYTES if is_single else _BEYOND_CHANCE
    if sum(1 for _ in itertools.islice(_SIGN.finditer(data), least)) < least:
        return False
    try:
        codecs.utf_8_decode(data, "strict", False)
    except UnicodeDecodeError:
        return False
    return True
