"""PPT (PowerPoint 97 to 2003): each slide with its title as heading, and its text; one place a
slide."""

import re

from recollect.errors import Permanent
from recollect.extract import _ole
from recollect.extract.office import _office, _slides
from recollect.model import Blob, Extracted

MIME = "application/vnd.ms-powerpoint"

_ENCRYPTED = b"\xdf\xc4\xd1\xf3"
"""of the atom of the current user (MS-PPT 2.3.2, headerToken)"""
_NEXT = re.compile(r"^-----$\n*", re.MULTILINE)
"""what xberg writes ahead of each slide"""


def extract(blob: Blob) -> Extracted:
    streams = _ole.Streams(blob.data)
    if "PowerPoint Document" not in streams.names:
        raise Permanent("it is damaged or not what it says (it holds no presentation)")
    if "Current User" in streams.names and streams.read("Current User")[12:16] == _ENCRYPTED:
        raise Permanent("it is protected by a password", code="encrypted_file")
    extracted = _office.read(blob.data, MIME)
    ahead, *slides = _NEXT.split(extracted.text)
    return _slides.written(map(_slide, [ahead, *slides] if ahead.strip() else slides), None)


def _slide(text: str) -> _slides.Slide:
    first, _, rest = text.strip().partition("\n\n")
    if first.startswith("## "):
        return _slides.Slide(first[3:], [rest] if rest else [])
    return _slides.Slide("", [text.strip()] if text.strip() else [])
