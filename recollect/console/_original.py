"""An uploaded file as the document page shows it: what browsers draw and play, and text.

The page decides by what the document is taken for; what is handed over says by its first bytes what
it is, and only a type that no browser runs anything of: never HTML, never SVG.
"""

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal
from urllib.parse import quote

from fastapi import Response

from recollect import extract
from recollect.model import Chunk, StoredBlob, storable

MOST = 200_000
"""Bytes of a text that are shown; the rest is in the download."""
POLICY = "default-src 'none'; img-src 'self'; media-src 'self'; style-src 'unsafe-inline'"
"""Of a file in the browser's own viewer, which styles itself. Not `sandbox`: in that, browsers open
no PDF, and send no cookie for the next part of a film."""
SEALED = "sandbox; default-src 'none'"
"""Of a file that is handed over to keep."""

Shape = Literal["picture", "pdf", "audio", "video", "text"]

_TEXTS = frozenset(
    {
        "text", "html", "code", "records", "subtitles", "mail", "sheet", "notebook", "xml", "rst",
        "asciidoc", "org", "ical",
    }
)  # fmt: skip
"""Extractors of what is text to begin with."""
_BINARY = frozenset(
    {
        ".docx", ".doc", ".xlsx", ".xls", ".pptx", ".ppt", ".odt", ".ods", ".odp", ".epub", ".zip",
        ".tar", ".gz", ".tgz", ".rtf",
    }
)  # fmt: skip
"""Endings of what need not be read to know that it is not text."""
_NOT_DRAWN = frozenset({".tif", ".tiff", ".avi", ".ts", ".heic", ".heif"})
_NOT_DRAWN_TYPES = frozenset(
    {
        *("image/tiff", "image/heic", "image/heif", "image/svg+xml"),
        *("video/x-msvideo", "video/avi", "video/mp2t"),
    }
)
_SHAPES: Mapping[str, Shape] = {
    "image": "picture", "pdf": "pdf", "audio": "audio", "video": "video", "text": "text",
    "webpage": "text",
}  # fmt: skip
"""By document types that name a format; the others say where it came from."""
_MEDIA: Mapping[str, tuple[Shape, ...]] = {
    "image": ("picture",), "application": ("pdf",), "audio": ("audio", "video"),
    "video": ("audio", "video"),
}  # fmt: skip
"""What a media type may be shown as, by its first word: sound often comes as a film."""
_SIGNS: tuple[tuple[re.Pattern[bytes], str], ...] = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), "image/webp"),
    (re.compile(rb"BM....\0\0\0\0", re.DOTALL), "image/bmp"),
    (re.compile(rb"....ftypavi[fs]", re.DOTALL), "image/avif"),
    (re.compile(rb"(?<!\s)\s*+%PDF-"), "application/pdf"),
    (re.compile(rb"....ftypM4[AB] ", re.DOTALL), "audio/mp4"),
    (re.compile(rb"....ftyp", re.DOTALL), "video/mp4"),
    (re.compile(rb"\x1aE\xdf\xa3"), "video/webm"),
    (re.compile(rb"OggS"), "video/ogg"),
    (re.compile(rb"RIFF....WAVE", re.DOTALL), "audio/wav"),
    (re.compile(rb"fLaC"), "audio/flac"),
    (re.compile(rb"ID3"), "audio/mpeg"),
    (re.compile(rb"\xff[\xf0\xf1\xf8\xf9]"), "audio/aac"),
    (re.compile(rb"\xff[\xe2-\xfd]"), "audio/mpeg"),
)
"""How files begin that browsers show, and what they are called."""
WORDS = 5
"""of each end of a passage by which a viewer finds it …"""
MOST_WORDS = 30
"""… and where fewer stand elsewhere as well"""
_NO_MARKS = str.maketrans("", "", "\\*`|")
_MARKS = re.compile(r"[-#>:=~+_]*")
"""Of headings, quotes, lists and tables."""
_RANGE = re.compile(r"bytes=(\d*)-(\d*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Original:
    """What the page says of the file, and shows of it if `shape` is not None."""

    blob: StoredBlob
    shape: Shape | None
    text: str = ""
    """of a text"""
    cut: bool = False
    """whether there is more of the text than is shown"""


def shape(kind: str, blob: StoredBlob) -> Shape | None:
    """What to show it as, by what it is taken for; None: nothing that a browser shows.

    A text is one only if its bytes say so, too: see `shown`.
    """
    ending = PurePath(blob.name or "").suffix.lower()
    declared = (blob.mime or "").partition(";")[0].strip().lower()
    if kind in _SHAPES:
        found = _SHAPES[kind]
    elif declared == "application/pdf" or ending == ".pdf":
        found = "pdf"
    else:
        found = _SHAPES.get(declared.partition("/")[0], "text")
    is_hidden = (
        ending in _BINARY
        if found == "text"
        else (ending in _NOT_DRAWN or declared in _NOT_DRAWN_TYPES)
    )
    return None if is_hidden else found


def shown(blob: StoredBlob, data: bytes) -> Original:
    """The beginning of a file as text, if it is one."""
    found = extract.detect(data[: extract.HEAD], name=blob.name, mime=blob.mime)
    if not data or found is None or found.extractor not in _TEXTS:
        return Original(blob, None)
    return Original(blob, "text", storable(_decode(data[:MOST])), len(data) > MOST)


def says(original: Original, text: str) -> bool:
    """Whether the file says what the text says, white space aside; of a long one its beginning."""
    if original.shape != "text" or not original.text.strip():
        return False
    said, whole = "".join(original.text.split()), "".join(text.split())
    # The cut may have gone through a character.
    return whole.startswith(said.rstrip("\ufffd")) if original.cut else said == whole


def media_type(shape: Shape | None, data: bytes) -> str | None:
    """What a browser may be told that these bytes are, to show them so; None: nothing."""
    type = next((type for sign, type in _SIGNS if sign.match(data[:1024])), "")
    return type if shape in _MEDIA.get(type.partition("/")[0], ()) else None


def handed_over(data: bytes, type: str, wanted: str | None) -> Response:
    """The bytes to show, or the part of them that `wanted` (the `Range` header) names: a player
    goes to a place of a film only if it may ask for that."""
    headers = {
        "content-security-policy": f"{POLICY}; frame-ancestors 'self'",
        "content-disposition": "inline",
        "cross-origin-resource-policy": "same-origin",
        "accept-ranges": "bytes",
    }
    found = _RANGE.fullmatch(wanted.strip()) if wanted else None
    if found is None or not any(found.groups()):
        return Response(data, media_type=type, headers=headers)
    first, last = found.groups()
    size = len(data)
    start = int(first) if first else max(0, size - int(last))
    end = min(int(last) + 1, size) if first and last else size
    if start >= end:
        return Response(status_code=416, headers={**headers, "content-range": f"bytes */{size}"})
    headers["content-range"] = f"bytes {start}-{end - 1}/{size}"
    return Response(data[start:end], 206, headers, type)


def spot(shape: Shape | None, chunk: Chunk | None, whole: str) -> str:
    """The end of the file's address that opens it at a chunk, marked on the page of a PDF; without
    one, at its beginning. `whole` is the text of the document as `bare` gives it.

    The chunk also stands in the query: a viewer that has the file open ignores another fragment.
    """
    if chunk is None:
        return "#navpanes=0&view=FitH" if shape == "pdf" else ""
    place = chunk.place
    if shape == "pdf" and isinstance(page := place.get("page"), int):
        at = f"page={page}&navpanes=0&view=FitH{_text_fragment(bare(chunk.text), whole)}"
        return f"?at={chunk.start}#{at}"
    if shape in ("audio", "video") and isinstance(time := place.get("time"), int | float):
        return f"#t={time:g}"
    return "#navpanes=0&view=FitH" if shape == "pdf" else ""


def bare(text: str) -> str:
    """Its words with a space between them, without marks of Markdown: those are not on a page."""
    words = text.translate(_NO_MARKS).split()
    return " ".join(word for word in words if not _MARKS.fullmatch(word))


def _text_fragment(passage: str, whole: str) -> str:
    """What has a viewer mark a passage, where it can: Chromium's does in a PDF, from the first
    words to the last (wicg.github.io/scroll-to-text-fragment). It takes the first place where they
    stand: so nothing is marked where the first words do not tell the passage from the others.
    """
    words = passage.split(" ")
    counts = range(WORDS, MOST_WORDS + 1)
    starts = (" ".join(words[:n]) for n in counts)
    ends = (" ".join(words[-n:]) for n in counts)
    start = next((one for one in starts if whole.count(one) == 1), None)
    end = next((one for one in ends if passage.count(one) == 1), None)
    if start is None or end is None:
        return ""
    said = [start, end] if len(start) + len(end) < len(passage) else [passage]
    # A hyphen at an end would say that the words stand before or behind what is meant.
    return ":~:text=" + ",".join(quote(one, safe="").replace("-", "%2D") for one in said)


def _decode(data: bytes) -> str:
    for mark, encoding in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if data.startswith(mark):
            return data.decode(encoding, "replace")
    try:
        # A character that the cut went through is left out.
        return codecs.utf_8_decode(data, "strict", len(data) < MOST)[0]
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")
