"""DOCX: Markdown with headings, lists, tables, footnotes and comments; without hidden text."""

from recollect.errors import Permanent
from recollect.extract import _ole, _zip
from recollect.extract.office import _office, _veiled
from recollect.model import Blob, Extracted


def extract(blob: Blob) -> Extracted:
    if _ole.is_ole(blob.data):
        _ole.refuse_encrypted(blob.data)
        raise Permanent("it is an old DOC file, not DOCX", code="unsupported_kind")
    data, hidden = _veiled.unveil(_zip.Package(blob.data), blob.data)
    extracted = _office.read(data, _zip.DOCX)
    warnings = [f"Hidden text was left out ({hidden:,} characters)."] if hidden else []
    return Extracted(extracted.text, title=extracted.title, warnings=warnings)
