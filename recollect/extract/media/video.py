"""Video: MP4, MOV, WebM, MKV, AVI, 3GP, OGV. What is known about it, and its captions if any.

What is said in it is written down by an engine, one stretch after the other: `hear`. Pictures are
not looked at.
"""

from recollect.extract.media._containers import find_container
from recollect.inference.speech import Heard, LocalEngine
from recollect.model import Blob, Extracted

TYPES = frozenset(
    {
        "video/mp4", "video/x-m4v", "video/quicktime", "video/webm", "video/x-matroska",
        "video/x-msvideo", "video/avi", "video/3gpp", "video/ogg", "video/mp2t",
        ".mp4", ".m4v", ".mov", ".webm", ".mkv", ".avi", ".3gp", ".ogv",
    }
)  # fmt: skip
LOADS = ("recollect.extract.media._media",)
KIND = "video"


def sniff(head: bytes) -> bool | None:
    container = find_container(head)
    return container is not None and container.kind == KIND


def extract(blob: Blob) -> Extracted:
    from recollect.extract.media import _media  # noqa: PLC0415 - parsers that only the child may load

    return _media.read(blob, KIND)


def hear(blob: Blob, start: float, seconds: float, engine: LocalEngine | None) -> Heard:
    from recollect.extract.media import _media  # noqa: PLC0415 - parsers that only the child may load

    return _media.hear(blob, start, seconds, engine)
