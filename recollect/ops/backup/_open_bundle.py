"""Whether a folder is a whole bundle, before anything of it is taken."""

import hashlib
from pathlib import Path

import msgspec

from recollect.errors import SetupError
from recollect.ops.backup._archive import PIECE
from recollect.ops.backup._bundle import (
    DOCUMENTS,
    FORMAT,
    INDEX,
    MEMORIES,
    QUESTIONS,
    Bundle,
)
from recollect.ops.backup._import_documents import read_whole

LONGEST_LINE = 512 << 20
"""Bytes of one document or memory: a text of 50 MB, as given and as read, with its vectors."""


def open_bundle(folder: Path) -> Bundle:
    """The head of a bundle, after a look at the whole; raises SetupError."""
    try:
        bundle = msgspec.json.decode(read_whole(folder / INDEX, LONGEST_LINE), type=Bundle)
        if bundle.format != "recollect-bundle" or bundle.version > FORMAT:
            raise SetupError(
                f"{folder} is a {bundle.format} of version {bundle.version};"
                f" this Recollect reads recollect-bundle up to version {FORMAT}"
            )
        digests = {name: _digest(folder / name) for name in {DOCUMENTS, *bundle.sha256}}
        counted = {name: (said, _lines(folder / name)) for name, said in _said(bundle).items()}
    except OSError as error:
        raise SetupError(
            f"{folder} is not a bundle ({error.filename}: {error.strerror})"
        ) from error
    except msgspec.MsgspecError as error:
        raise SetupError(f"{folder / INDEX}: {error}") from error
    for name, expected in bundle.sha256.items():
        if digests[name] != expected:
            raise SetupError(
                f"{folder / name} is not what was written (its SHA-256 differs);"
                f" if you changed it on purpose, remove its digest from {INDEX}"
            )
    for name, (said, found) in counted.items():
        if found != said:
            raise SetupError(
                f"{folder / name} has {found} lines, and {INDEX} says {said}, so it may be cut off;"
                f" if you changed it on purpose, remove that number from {INDEX}"
            )
    return bundle


def _said(bundle: Bundle) -> dict[str, int]:
    """How many lines the files have, as far as the head says and no digest tells more."""
    said = {DOCUMENTS: bundle.documents, MEMORIES: bundle.memories, QUESTIONS: bundle.questions}
    return {
        name: number
        for name, number in said.items()
        if number is not None and name not in bundle.sha256
    }


def _lines(path: Path) -> int:
    """Lines of a file, the last one with or without its end; 0 of none."""
    if not path.exists():
        return 0
    number, last = 0, b"\n"
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            number, last = number + piece.count(b"\n"), piece[-1:]
    return number + (last != b"\n")


def _digest(path: Path) -> str:
    if path.name not in (DOCUMENTS, MEMORIES, QUESTIONS):
        raise SetupError(f"{INDEX} gives the digest of {path.name!r}, which no bundle has")
    with path.open("rb") as lines:
        return hashlib.file_digest(lines, "sha256").hexdigest()
