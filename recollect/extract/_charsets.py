"""What a file calls its encoding, read as browsers read it: `gb2312` is GB 18030, and so on."""

from w3lib.encoding import html_to_unicode, resolve_encoding

from recollect.extract._text import guess_encoding


def codec_of(charset: str) -> str | None:
    """Python's name for a charset; None if there is no such charset, as of `undefined`."""
    name = resolve_encoding(charset)
    try:
        b"?".decode(name or "?", "replace")
    except (LookupError, ValueError):  # some of Python's codecs are not for text
        return None
    return name


def read_page(data: bytes, mime: str | None) -> tuple[str, str]:
    """The encoding of an HTML page and its text: as the server says, or the page, or it looks."""
    for said in (mime, None):
        try:
            return html_to_unicode(said, data, auto_detect_fun=guess_encoding)
        except (LookupError, ValueError):  # as above
            continue
    encoding = guess_encoding(data)
    return encoding, data.decode(encoding, "replace")
