"""An extractor whose parser is not installed."""

from recollect.model import Blob, Extracted

TYPES = frozenset({"application/x-absent", ".absent"})
LOADS = ("not_there",)


def extract(blob: Blob) -> Extracted:
    return Extracted("never")
