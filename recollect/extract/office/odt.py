"""ODT: Markdown with headings, lists, tables and footnotes."""

from recollect.extract import _zip
from recollect.extract.office import _odf, _office
from recollect.model import Blob, Extracted


def extract(blob: Blob) -> Extracted:
    _odf.open_package(blob.data)
    return _office.read(blob.data, _zip.ODT)
