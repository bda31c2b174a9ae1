"""What OpenDocument files share: are they locked, and what is their title."""

from collections.abc import Mapping

from recollect.errors import Permanent
from recollect.extract import _xml
from recollect.extract._text import clean_line
from recollect.extract._zip import Package


def open_package(data: bytes) -> Package:
    """Raises Permanent, also with encrypted_file."""
    package = Package(data)
    if "META-INF/manifest.xml" in package.names:

        def start(tag: str, attributes: Mapping[str, str]) -> None:
            if tag == "encryption-data":
                raise Permanent("it is protected by a password", code="encrypted_file")

        _xml.parse(package.pieces("META-INF/manifest.xml"), start)
    if "content.xml" not in package.names:
        raise Permanent("it is damaged: it has no content")
    return package


def title(package: Package) -> str | None:
    """What the file's properties call it."""
    told = _xml.words_of(package.pieces("meta.xml"), "title") if "meta.xml" in package.names else ""
    return clean_line(told) or None
