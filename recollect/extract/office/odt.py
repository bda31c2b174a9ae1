"""ODT: Markdown with headings, lists, tables and footnotes."""

from recollect.extract import _zip
from recollect.model import Blob, Extracted

TYPES = frozenset({_zip.ODT, ".odt"})
LOADS = ("recollect.extract.office._odf", "recollect.extract.office._office")


def sniff(head: bytes) -> bool | None:
    return _zip.sniff(head, _zip.ODT)


def extract(blob: Blob) -> Extracted:
    from recollect.extract.office import _odf, _office  # noqa: PLC0415 - 28 MB that only the child needs

    _odf.open_package(blob.data)
    return _office.read(blob.data, _zip.ODT)
