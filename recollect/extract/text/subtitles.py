"""SRT and WebVTT: what is said, in paragraphs, each caption with its time."""

from recollect.extract._text import decode
from recollect.extract.text import _captions
from recollect.model import Blob, Extracted


def extract(blob: Blob) -> Extracted:
    text = decode(blob.data, blob.mime)
    segments = _captions.parse(text)
    if not segments:
        return Extracted(
            text, warnings=["It holds no captions; it was read as plain text."], markdown=False
        )
    woven, places = _captions.weave("", (), segments)
    return Extracted(woven, places=places, markdown=False)
