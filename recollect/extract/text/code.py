"""Source code, known by its name: kept as it is; its title is the name of the file."""

from recollect.extract._text import clean_line, decode
from recollect.model import Blob, Extracted


def extract(blob: Blob) -> Extracted:
    return Extracted(
        decode(blob.data, blob.mime), title=clean_line(blob.name or "") or None, markdown=False
    )
