"""What mails, pages and files call their encoding, read as browsers read it: `gb2312` is GB 18030,
and so on."""

from w3lib.encoding import resolve_encoding

_NO_CHARSETS = frozenset({"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"})
"""codecs of Python in which nobody writes texts, some of which take very long"""


def codec_of(charset: str) -> str | None:
    """Python's name for a charset; None if there is no such charset, as of `undefined`."""
    try:
        name = resolve_encoding(charset)
        b"?".decode(name or "?", "replace")
    except (LookupError, ValueError):  # some of Python's codecs are not for text
        return None
    return None if name in _NO_CHARSETS else name
