"""Video: MP4, MOV, WebM, MKV, AVI, 3GP, OGV. What is known about it, and its captions if any.

What is said in it is written down by an engine, one stretch after the other: `hear`. Pictures are
not looked at.
"""

from recollect.extract.media import _media
from recollect.inference.speech import Heard, LocalEngine
from recollect.model import Blob, Extracted


def extract(blob: Blob) -> Extracted:
    return _media.read(blob, "video")


def hear(blob: Blob, start: float, seconds: float, engine: LocalEngine | None) -> Heard:
    return _media.hear(blob, start, seconds, engine)
