"""What the text kinds that xberg reads share: titles, and traces of the formats in its Markdown."""

import re

from recollect.extract import _formulas
from recollect.extract._text import clean_line
from recollect.extract.office import _xberg
from recollect.model import Extracted

_HEADING = re.compile(r"^# (.+)$", re.M)
_NEAR = 3_000
_NOTE = re.compile(r"\[\^\w+\]")


def read(data: bytes, mime: str) -> Extracted:
    """Raises Permanent: encrypted_file, too_large, unreadable_content."""
    converted = _xberg.convert(data, mime)
    text = _formulas.plain(converted.text)
    title = clean_line(converted.title or _first_heading(text))
    return Extracted(text, title=title or None)


def said_once(source: bytes, label: re.Pattern[bytes], end: bytes) -> bytes:
    """XML without the labels of pictures and tables that a paragraph beside them repeats; `end` is
    what ends the text of one."""

    def kept(found: re.Match[bytes]) -> bytes:
        said = b">%s%s" % (found[1].strip(), end)
        at = found.start()
        is_said = source.find(said, max(0, at - _NEAR), found.end() + _NEAR) >= 0
        return b"" if is_said else found[0]

    return label.sub(kept, source)


def _first_heading(text: str) -> str:
    sign = text.find("# ")
    heading = _HEADING.search(text, sign) if sign >= 0 else None
    return _NOTE.sub("", heading[1]) if heading else ""
