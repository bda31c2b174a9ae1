"""What Office Open XML files share (ECMA-376 part 2): relations between parts, the title."""

import posixpath
import re
from collections.abc import Mapping
from typing import NamedTuple

from recollect.errors import Permanent
from recollect.extract import _magic, _ole, _xml
from recollect.extract._registry import HEAD
from recollect.extract._text import clean_line
from recollect.extract._zip import Package, packed
from recollect.extract.office import _one_xml

_ESCAPED = re.compile("_x([0-9A-Fa-f]{4})_")


class PartRelation(NamedTuple):
    kind: str
    """last part of its type: `slide`, `sharedStrings` …"""
    target: str
    """name of a part"""


def open_package(data: bytes) -> Package:
    """Raises Permanent, also with encrypted_file: encrypted ones are wrapped in an OLE file."""
    if _magic.is_office_xml(data[:HEAD]):
        return Package(packed(_one_xml.parts(data)))
    if _ole.is_ole(data):
        _ole.refuse_encrypted(data)
        raise Permanent("it is of the old Office format, not of what its name says")
    return Package(data)


def relations(package: Package, part: str) -> Mapping[str, PartRelation]:
    """Relations of a part by their ids; those of the whole package for `""`."""
    folder = posixpath.dirname(part)
    source = relations_of(part)
    found: dict[str, PartRelation] = {}

    def start(tag: str, attributes: Mapping[str, str]) -> None:
        if tag == "Relationship" and attributes.get("TargetMode") != "External":
            target = attributes.get("Target", "")
            path = posixpath.normpath(posixpath.join("/", folder, target)).lstrip("/")
            kind = attributes.get("Type", "").rpartition("/")[2]
            found[attributes.get("Id", "")] = PartRelation(kind, path)

    if source in package.names:
        _xml.parse(package.pieces(source), start)
    return found


def relations_of(part: str) -> str:
    """The part that lists the relations of another."""
    folder, name = posixpath.split(part)
    return posixpath.join(folder, "_rels", f"{name}.rels")


def main_part(package: Package) -> str:
    for relation in relations(package, "").values():
        if relation.kind == "officeDocument":
            return relation.target
    raise Permanent("it is damaged: it does not say which its main part is")


def related(package: Package, part: str, kind: str) -> str | None:
    """The first part that `part` calls its `kind`, if it exists."""
    return first(package, relations(package, part), kind)


def first(package: Package, relations: Mapping[str, PartRelation], kind: str) -> str | None:
    """The first part of a kind in these relations, if it exists."""
    for relation in relations.values():
        if relation.kind == kind and relation.target in package.names:
            return relation.target
    return None


def unescaped(text: str) -> str:
    """Characters that XML does not have, such as the `_x000D_` of a line end (ECMA-376 part 1,
    22.9.2.19)."""
    return _ESCAPED.sub(lambda code: chr(int(code[1], 16)), text) if "_x" in text else text


def title(package: Package) -> str | None:
    """What the file's properties call it."""
    source = related(package, "", "core-properties")
    if source is None:
        return None
    told = _xml.words_of(package.pieces(source), "title")
    return clean_line(unescaped(told)) or None
