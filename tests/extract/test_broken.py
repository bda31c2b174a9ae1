"""Damaged files of every kind: the reason is ours, in words for people."""

import random
import re

import pytest

from recollect.errors import Permanent
from recollect.model import Blob
from tests.extract import pictures
from tests.extract.test_golden import MAKERS

OF_A_LIBRARY = re.compile(
    r"errno|<none>|0x[0-9a-f]|\b[A-Z]\w*(?:Error|Exception|Warning)\b|Traceback|\bNone\b|::|->"
    r"|\bline \d+, column|not a zip|bad magic|invalid data|mismatch|syntax error|parser|codec"
    r"|decode|\b\w+\(\)|[A-Z]\w+\.\w+\(|buffer|ratio|-?\d{6,}|\bb'",
    re.I,
)
"""What words of libraries and their numbers look like."""


def _more():
    yield "a.png", pictures.png(20, 20)
    yield "a.wav", b"RIFF\x24\0\0\0WAVEfmt " + bytes(200)
    yield "a.mp4", b"\0\0\0\x18ftypmp42" + bytes(200)
    yield "a.mp3", b"ID3\x03" + bytes(200)
    yield "a.jpg", b"\xff\xd8\xff\xe0" + bytes(200)
    yield "a.webm", b"\x1a\x45\xdf\xa3" + bytes(200)


WHOLE = {name: make() for name, make in MAKERS.items()} | dict(_more())


def _damaged(data: bytes):
    """Cut, with bytes changed, with a stretch of zeros, and with what follows doubled."""
    chance = random.Random(len(data))
    yield data[: len(data) // 2]
    yield data[: len(data) * 9 // 10]
    yield data[:60] + bytes(len(data[60:]))
    for share in (0.001, 0.02, 0.2):
        changed = bytearray(data)
        for _ in range(max(1, int(len(data) * share))):
            changed[chance.randrange(4, len(data))] = chance.randrange(256)
        yield bytes(changed)


@pytest.mark.parametrize("name", WHOLE)
def test_no_message_about_a_damaged_file_is_that_of_a_library(sandbox, name):
    said = []
    for data in (WHOLE[name], *_damaged(WHOLE[name])):
        try:
            said += sandbox.extract(Blob(data, name=name), owner="tests").warnings
        except Permanent as error:
            said.append(str(error).replace(f'"{name}"', "it"))

    assert [words for words in said if OF_A_LIBRARY.search(words)] == []
