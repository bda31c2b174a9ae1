"""DOCX: Markdown with headings, lists, tables, footnotes and comments; without hidden text."""

from recollect.errors import Permanent
from recollect.extract import _zip
from recollect.extract.office import _ole
from recollect.model import Blob, Extracted

TYPES = frozenset({_zip.DOCX, "application/vnd.ms-word.document.macroenabled.12", ".docx", ".docm"})
LOADS = ("recollect.extract.office._office", "recollect.extract.office._veiled")


def sniff(head: bytes) -> bool | None:
    if _ole.is_ole(head):
        # Word wraps an encrypted DOCX in the container of its old formats. So do the others, and
        # an encrypted file is one like the other.
        return True if _ole.ENCRYPTED in _ole.streams_in(head) else None
    return _zip.sniff(head, _zip.DOCX)


def extract(blob: Blob) -> Extracted:
    from recollect.extract.office import _office, _veiled  # noqa: PLC0415 - 28 MB that the child needs

    if _ole.is_ole(blob.data):
        _ole.refuse_encrypted(blob.data)
        raise Permanent("it is an old DOC file, not DOCX", code="unsupported_kind")
    data, hidden = _veiled.unveil(_zip.Package(blob.data), blob.data)
    extracted = _office.read(data, _zip.DOCX)
    warnings = [f"Hidden text was left out ({hidden:,} characters)."] if hidden else []
    return Extracted(extracted.text, title=extracted.title, warnings=warnings)
