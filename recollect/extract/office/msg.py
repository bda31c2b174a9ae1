"""MSG (Outlook): who wrote to whom, when, about what, then the message and its attachments."""

import re
from collections.abc import Iterator, Sequence

from recollect.errors import Permanent
from recollect.extract import _ole
from recollect.extract._charsets import decoded
from recollect.extract._text import clean_line
from recollect.extract.office import _office, _packed_rtf, rtf
from recollect.extract.web import _page
from recollect.model import Blob, Extracted

MIME = "application/vnd.ms-outlook"

_FIELDS = ("Subject", "From", "To", "CC", "BCC", "Date", "Message-ID")
"""in the order in which xberg writes them ahead of the message"""
_HEAD = re.compile("".join(rf"(?:\*\*{name}\*\*: ([^\n]*)(?:\n+|\Z))?" for name in _FIELDS))
_SHOWN = ("From", "To", "CC", "Date", "Subject")
_INTERNAL = re.compile(r"\s*</o=[^>\n]*>", re.IGNORECASE)
"""an address within Exchange (X.500), which says nothing to a reader"""
_ATTACHED = re.compile("^Attachments:\n\n ", re.MULTILINE)
"""what xberg writes behind the message"""
_HTML, _PLAIN = "1013", "1000"
_RICH = "__substg1.0_10090102"
_WIDE, _NARROW = "001F", ("001E", "0102")
"""numbers of properties and types of text (MS-OXPROPS 2.618, 2.620, 2.941; MS-OXCDATA 2.11.1)"""
_OF_BODY, _OF_STRINGS = 0x3FDE0003, 0x3FFD0003
"""properties that tell code pages (MS-OXPROPS 2.750, 2.781)"""
_PROPERTIES_AT, _PROPERTY_SIZE = 32, 16
_CHARSETS = {20127: "us-ascii", 20866: "koi8-r", 21866: "koi8-u", 50220: "iso-2022-jp"} | {
    51932: "euc-jp", 51949: "euc-kr", 54936: "gb18030", 65001: "utf-8"
}  # fmt: skip


def extract(blob: Blob) -> Extracted:
    streams = _ole.Streams(blob.data)
    if _ole.MESSAGE not in streams.names:
        raise Permanent("it is damaged or not what it says (it holds no message)")
    text = _office.read(blob.data, MIME).text
    head = _HEAD.match(text)
    fields = dict(zip(_FIELDS, head.groups(""), strict=True)) if head else {}
    fields = {name: _INTERNAL.sub("", said) for name, said in fields.items()}
    lines = [f"{name.capitalize()}: {fields[name]}" for name in _SHOWN if fields.get(name)]
    rest = text[head.end() if head else 0 :].strip()
    attached = _ATTACHED.search(rest)
    # Of a message xberg keeps no lines, and of tables not all cells.
    body = next((body for body in _bodies(streams) if body.text), None)
    if body:
        rest = "\n\n".join([body.text, rest[attached.start() :]] if attached else [body.text])
    blocks = ["\n".join(lines), rest]
    title = clean_line(fields.get("Subject", ""))
    return Extracted(
        "\n\n".join(filter(None, blocks)),
        title=title or None,
        warnings=_page.hidden_warnings(body.hidden) if body else [],
    )


def _bodies(streams: _ole.Streams) -> Iterator[_page.Whole]:
    """As a page, as plain text and as RTF, if the message has them."""
    for property in (_HTML, _PLAIN):
        for type in (_WIDE, *_NARROW):
            name = f"__substg1.0_{property}{type}"
            if name not in streams.own:
                continue
            told = (_OF_STRINGS, _OF_BODY) if property == _PLAIN else (_OF_BODY, _OF_STRINGS)
            data, charset = streams.read(name), _charset(streams, told)
            if type == _WIDE:
                data, charset = data.decode("utf-16-le", "replace").encode(), "utf-8"
            data = data.rstrip(b"\0")
            if property == _HTML:
                yield _page.read_letter(data, f"text/html; charset={charset or ''}")
            else:
                yield _page.Whole(decoded(data, charset).strip(), None, 0)
    if _RICH in streams.own and (rich := _packed_rtf.unpacked(streams.read(_RICH))):
        yield _page.Whole(rtf.extract(Blob(rich)).text.strip(), None, 0)


def _charset(streams: _ole.Streams, told: Sequence[int]) -> str | None:
    """By the first of these properties that the message has."""
    listed = streams.read(_ole.MESSAGE)
    pages = {
        int.from_bytes(listed[at : at + 4], "little"): int.from_bytes(
            listed[at + 8 : at + 12], "little"
        )
        for at in range(_PROPERTIES_AT, len(listed) - _PROPERTY_SIZE + 1, _PROPERTY_SIZE)
    }
    page = next((pages[property] for property in told if property in pages), None)
    if page is None:
        return None
    latin = f"iso-8859-{page - 28590}" if 28590 < page < 28607 else f"cp{page}"
    return _CHARSETS.get(page, latin)
