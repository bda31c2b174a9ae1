"""The styles that a DOCX uses (ECMA-376 part 1, 17.7).

Word writes all that it knows into each file, often ten times the size of its text, and xberg reads
them all.
"""

import re
from collections.abc import Iterable

_BEGIN, _END = b"<w:style ", b"</w:style>"
_ID, _DEFAULT = b'w:styleId="', b"default="
_LATENT, _LATENT_END = b"<w:latentStyles", b"</w:latentStyles>"
_VALUE = rb'(?:\s+(?:\w+:)?val="([^"&<>]*)"\s*/?>)?'
_USE = re.compile(rb"[<:]\w*Style\b" + _VALUE)
"""by a paragraph, a run or a table"""
_LINK = re.compile(rb"numStyleLink\b" + _VALUE)
"""by a list"""
_NEED = re.compile(rb"[<:](?:basedOn|link)\b" + _VALUE)
"""by another style"""


def in_use(source: bytes, texts: Iterable[bytes], lists: bytes) -> bytes:
    """The part with the default styles, those that the other parts use, and those that these need.

    The same object wherever one of them is not written as Word does: a style that was left out
    would no longer hide what it hides.
    """
    head, *blocks = source.split(_BEGIN)
    if not blocks or b"<!" in source or source.count(b"styleId") > len(blocks):
        return source
    blocks[-1], end, tail = blocks[-1].partition(_END)
    blocks[-1] += end
    styles = {_id(block): block for block in blocks if block.rstrip().endswith(_END)}
    if len(styles) < len(blocks) or b"" in styles:
        return source
    asked = {id for text in texts for id in _USE.findall(text)} | set(_LINK.findall(lists))
    asked |= {id for id, block in styles.items() if _DEFAULT in block[: block.find(b">")]}
    used: set[bytes] = set()
    while asked:
        id = asked.pop()
        if not id:
            return source
        if id in styles and id not in used:
            used.add(id)
            asked.update(_NEED.findall(styles[id]))
    ahead, _, behind = head.partition(_LATENT)
    behind = behind.partition(_LATENT_END)[2]
    kept = [_BEGIN + block for id, block in styles.items() if id in used]
    return b"".join([ahead, behind, *kept, tail])


def _id(block: bytes) -> bytes:
    """Nothing where it may be another than it looks."""
    tag = block[: block.find(b">")]
    _, found, rest = tag.partition(_ID)
    id, end, _ = rest.partition(b'"')
    is_plain = found and end and b"'" not in tag and b"&" not in id
    return id if is_plain else b""
