"""What OpenDocument files share: are they locked, and what is their title."""

import re

from recollect.errors import Permanent
from recollect.extract import _xml
from recollect.extract._text import clean_line
from recollect.extract._zip import Package

_MANIFEST = "META-INF/manifest.xml"
_ENCRYPTED = re.compile(rb"<(?:\w+:)?encryption-data[\s/>]")


def open_package(data: bytes) -> Package:
    """Raises Permanent, also with encrypted_file."""
    package = Package(data)
    if _MANIFEST in package.names and _ENCRYPTED.search(package.read(_MANIFEST)):
        raise Permanent("it is protected by a password", code="encrypted_file")
    if "content.xml" not in package.names:
        raise Permanent("it is damaged: it has no content")
    return package


def title(package: Package) -> str | None:
    """What the file's properties call it."""
    told = _xml.words_of(package.pieces("meta.xml"), "title") if "meta.xml" in package.names else ""
    return clean_line(told) or None
