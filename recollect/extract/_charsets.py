"""Text in the encoding that a file, a mail or a server tells, as browsers and mail programs do."""

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


def decoded(data: bytes, charset: str | None) -> str:
    """As `charset` says, if it says something and can be right; else as the bytes look."""
    codec = codec_of(charset) if charset and charset.lower() != "us-ascii" else None
    if codec is None or codec.startswith(_SEEN[0]):
        return decode(data)
    if codec.startswith(_SEEN[1]) and guess_encoding(data).startswith(_SEEN):
        return decode(data)
    return data.decode(codec, "replace")


def read_page(data: bytes, mime: str | None) -> tuple[str, str]:
    """The encoding of an HTML page and its text: as the server says, or the page, or it looks.

    Servers say one charset of all that they have: UTF-8 that the page says and is counts more.
    """
    encoding, mark = read_bom(data)
    if encoding is None or mark is None:
        told = (http_content_type_encoding(mime), html_body_declared_encoding(data))
        if told[1] == "utf-8" and not data.isascii() and guess_encoding(data) == "utf-8":
            told = told[1:]
        encoding = next(
            (name for name in told if name and codec_of(name) and not name.startswith(_SEEN[1])),
            None,
        )
    encoding = encoding or guess_encoding(data)
    return encoding, to_unicode(data[len(mark or b"") :], encoding)
