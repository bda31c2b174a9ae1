"""Parts of a document in a ZIP: read at once where they are as most are, and never more of them."""

import io
import zipfile
from collections.abc import Callable

import pytest

from recollect.errors import Permanent
from recollect.extract._zip import Package

WORDS = b"<p>words and more words</p>" * 50


def packed(method: int = zipfile.ZIP_DEFLATED, name: str = "part.xml") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.writestr("first.xml", "other")
        archive.writestr(name, WORDS)
    return out.getvalue()


@pytest.mark.parametrize(
    "method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
)
@pytest.mark.parametrize("name", ["part.xml", "größe.xml"])
@pytest.mark.parametrize("ahead", [b"", b"#!/bin/sh\n"])
def test_a_part_is_read_however_it_is_packed(method: int, name: str, ahead: bytes):
    assert Package(ahead + packed(method, name)).read(name) == WORDS


def renamed(data: bytes) -> bytes:
    """Only ahead of the part, not in the directory."""
    return data.replace(b"part.xml", b"evil.xml", 1)


def of_other_words(data: bytes) -> bytes:
    return data.replace(b"words", b"wordz", 1)


def of_less(data: bytes) -> bytes:
    """In the directory it is said to have one byte less; there the size stands at 24."""
    at = data.index(b"PK\1\2", data.index(b"PK\1\2") + 1) + 24
    return data[:at] + (len(WORDS) - 1).to_bytes(4, "little") + data[at + 4 :]


@pytest.mark.parametrize("lie", [renamed, of_other_words, of_less])
def test_a_part_that_is_not_what_the_directory_says_is_refused(lie: Callable[[bytes], bytes]):
    with pytest.raises(Permanent, match=r"part\.xml cannot be unpacked"):
        Package(lie(packed(zipfile.ZIP_STORED))).read("part.xml")


def test_a_part_without_a_name_harms_nothing():
    """A name ends at its first zero."""
    data = packed().replace(b"first.xml", b"\0irst.xml")

    assert [*Package(data).names] == ["part.xml"]
