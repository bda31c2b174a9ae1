"""Sound: MP3, M4A, WAV, OGG, FLAC, AAC, WebM. What is known about it, and its captions if any.

What is said in it is written down by an engine, one stretch after the other: `hear`.
"""

from recollect.extract._text import looks_like_text
from recollect.extract.media._containers import find_container
from recollect.inference.speech import Heard, LocalEngine
from recollect.model import Blob, Extracted

TYPES = frozenset(
    {
        "audio/mpeg", "audio/mp3", "audio/mp4", "audio/x-m4a", "audio/aac", "audio/wav",
        "audio/wave", "audio/x-wav", "audio/vnd.wave", "audio/ogg", "audio/opus", "audio/flac",
        "audio/x-flac", "audio/webm", "audio/x-matroska",
        ".mp3", ".m4a", ".m4b", ".aac", ".wav", ".ogg", ".oga", ".opus", ".flac", ".weba", ".mka",
    }
)  # fmt: skip
LOADS = ("recollect.extract.media._media",)
KIND = "audio"


def sniff(head: bytes) -> bool | None:
    container = find_container(head)
    if container is not None:
        return container.kind == KIND
    # A recording of a stream may begin in the middle of a frame.
    return False if looks_like_text(head) else None


def extract(blob: Blob) -> Extracted:
    from recollect.extract.media import _media  # noqa: PLC0415 - parsers that only the child may load

    return _media.read(blob, KIND)


def hear(blob: Blob, start: float, seconds: float, engine: LocalEngine | None) -> Heard:
    from recollect.extract.media import _media  # noqa: PLC0415 - parsers that only the child may load

    return _media.hear(blob, start, seconds, engine)
