"""SRT and WebVTT: what is said, in paragraphs, each caption with its time."""

import re

from recollect.extract._text import decode, looks_like_text
from recollect.extract.text import _captions
from recollect.model import Blob, Extracted

TYPES = frozenset({"text/vtt", "application/x-subrip", "text/srt", ".vtt", ".srt"})
LOADS = ("chardet",)
SAMPLE = b"WEBVTT\n\n00:01.000 --> 00:02.000\na\n"

_BEGINNING = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:WEBVTT(?=[ \t\r\n]|\Z)|\s*\d+[ \t]*\r?\n\d+:\d\d:\d\d[.,]\d{1,3} *-->)"
)


def sniff(head: bytes) -> bool | None:
    if _BEGINNING.match(head):
        return True
    return None if looks_like_text(head) else False


def extract(blob: Blob) -> Extracted:
    text = decode(blob.data)
    segments = _captions.parse(text)
    if not segments:
        return Extracted(
            text, warnings=["It holds no captions; it was read as plain text."], markdown=False
        )
    woven, places = _captions.weave("", (), segments)
    return Extracted(woven, places=places, markdown=False)
