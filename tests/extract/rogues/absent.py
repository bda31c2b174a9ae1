"""An extractor whose parser is not installed."""

from recollect.model import Blob, Extracted


def extract(blob: Blob) -> Extracted:
    return Extracted("never")
