"""MSG (Outlook): who wrote to whom, when, about what, then the message and its attachments."""

import re

from recollect.errors import Permanent
from recollect.extract import _ole
from recollect.extract._text import clean_line
from recollect.extract.office import _office
from recollect.model import Blob, Extracted

MIME = "application/vnd.ms-outlook"

_FIELDS = ("Subject", "From", "To", "CC", "BCC", "Date", "Message-ID")
"""in the order in which xberg writes them ahead of the message"""
_HEAD = re.compile("".join(rf"(?:\*\*{name}\*\*: ([^\n]*)(?:\n+|\Z))?" for name in _FIELDS))
_SHOWN = ("From", "To", "CC", "Date", "Subject")
_INTERNAL = re.compile(r"\s*</o=[^>\n]*>", re.IGNORECASE)
"""an address within Exchange (X.500), which says nothing to a reader"""


def extract(blob: Blob) -> Extracted:
    if _ole.MESSAGE not in _ole.Streams(blob.data).names:
        raise Permanent("it is damaged or not what it says (it holds no message)")
    text = _office.read(blob.data, MIME).text
    head = _HEAD.match(text)
    fields = dict(zip(_FIELDS, head.groups(""), strict=True)) if head else {}
    fields = {name: _INTERNAL.sub("", said) for name, said in fields.items()}
    lines = [f"{name.capitalize()}: {fields[name]}" for name in _SHOWN if fields.get(name)]
    blocks = ["\n".join(lines), text[head.end() if head else 0 :].strip()]
    title = clean_line(fields.get("Subject", ""))
    return Extracted("\n\n".join(filter(None, blocks)), title=title or None)
