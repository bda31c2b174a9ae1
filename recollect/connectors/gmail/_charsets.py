"""Bytes of mails as text, whatever their headers call them."""

import base64
import binascii
import re

from recollect.model import codec_of

CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:+-]{1,40})", re.IGNORECASE)
ALSO_UTF_8 = re.compile(r"iso-?2022|hz|utf-?(16|32)", re.IGNORECASE)
"""charsets whose bytes may be UTF-8 as well, if there is one of `SIGNS` in them"""
SIGNS = (b"\x1b", b"\0", b"~{")


def bytes_of(encoded: str) -> bytes | None:
    """The bytes of Base64 for URLs, with or without padding; None if it is not Base64."""
    try:
        return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    except (binascii.Error, ValueError):
        return None


def decoded(data: bytes, charset: str | None) -> str:
    """The text of a body. UTF-8 is tried first: Gmail turns most bodies into it, and leaves the
    charset in their headers as it was."""
    declared = codec_of(charset or "") or "windows-1252"
    if not (ALSO_UTF_8.match(declared) and any(sign in data for sign in SIGNS)):
        try:
            return data.decode()
        except UnicodeDecodeError:
            pass
    return data.decode(declared, "replace")
