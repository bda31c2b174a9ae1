"""DOC (Word 97 to 2003): Markdown with headings, lists, tables, footnotes and comments."""

import re

from recollect.errors import Permanent
from recollect.extract import _ole
from recollect.extract.office import _office
from recollect.model import Blob, Extracted

MIME = "application/msword"

_ENCRYPTED = 0x0100
"""Flag of the file's header (MS-DOC 2.5.2, fEncrypted)."""
# Instructions of fields, such as that of a table of contents: Word shows their results.
_INSTRUCTIONS = re.compile(
    r'\b(?:TOC|PAGEREF|HYPERLINK|REF|SEQ|INDEX|DATE|TIME|PAGE)(?: "[^"\n]*"| _\w+)?'
    r'(?: \\{1,2}[a-z*@](?: (?:"[^"\n]*"|\w+(?= \\)))?)+ ?'
)


def extract(blob: Blob) -> Extracted:
    _ole.refuse_encrypted(blob.data)
    streams = _ole.Streams(blob.data)
    if "WordDocument" not in streams.names:
        raise Permanent("it is damaged or not what it says (it holds no Word document)")
    header = streams.read("WordDocument")[:12]
    if int.from_bytes(header[10:12], "little") & _ENCRYPTED:
        raise Permanent("it is protected by a password", code="encrypted_file")
    extracted = _office.read(blob.data, MIME)
    text = extracted.text
    # Each has a switch, which a backslash begins.
    return Extracted(_INSTRUCTIONS.sub("", text) if " \\" in text else text, title=extracted.title)
