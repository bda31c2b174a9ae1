"""RTF: Markdown with lists and tables. Hidden text of it is left out."""

import codecs
import re

from recollect.errors import Permanent
from recollect.extract import _magic
from recollect.extract.office import _office
from recollect.model import Blob, Extracted

MIME = "application/rtf"

_CODE_PAGE = re.compile(rb"\\ansicpg(\d{3,5})")
_SYMBOL = re.compile(rb"\\([\\~_])")
_CHARACTERS = {b"~": 0xA0, b"_": 0x2011}
"""a space and a hyphen that do not break, which xberg takes for the signs themselves"""


def extract(blob: Blob) -> Extracted:
    if not _magic.RTF.match(blob.data):
        raise Permanent("it is damaged or not what it says (not RTF)")
    extracted = _office.read(_SYMBOL.sub(_plainly, blob.data), MIME)
    # xberg escapes for Markdown what has no meaning in it.
    text = re.sub(r"\\([\\!<>.+\-()~])", r"\1", extracted.text)
    title = _decoded(extracted.title, blob.data) if extracted.title else None
    return Extracted(text, title=title)


def _plainly(symbol: re.Match[bytes]) -> bytes:
    character = _CHARACTERS.get(symbol[1])
    return symbol[0] if character is None else b"\\u%d?" % character


def _decoded(title: str, data: bytes) -> str:
    """A title whose bytes beyond ASCII still stand as `\\'e4`."""
    page = _CODE_PAGE.search(data)
    encoding = f"cp{page[1].decode()}" if page else "cp1252"
    try:
        codecs.lookup(encoding)
    except LookupError:
        encoding = "cp1252"
    return re.sub(
        r"(?:\\'[0-9a-fA-F]{2}.?(?=\\')|\\'[0-9a-fA-F]{2})+",
        lambda run: _bytes(run[0]).decode(encoding, "replace"),
        title,
    )


def _bytes(run: str) -> bytes:
    return b"".join(
        bytes.fromhex(piece[2:]) if piece.startswith("\\'") else piece.encode()
        for piece in re.findall(r"\\'[0-9a-fA-F]{2}|.", run)
    )
