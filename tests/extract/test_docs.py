"""docs/file-kinds.md says what the registry knows, no more and no less."""

import re
from pathlib import Path

from recollect.extract.kinds import KINDS

PAGE = Path(__file__).parents[2] / "docs" / "file-kinds.md"


def _rows() -> list[list[str]]:
    table = PAGE.read_text().partition("| Kind |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]


def test_every_type_of_the_registry_is_documented_once():
    documented = [word for row in _rows() for word in re.findall(r"`([^`]+)`", row[1] + row[2])]
    known = {type for kind in KINDS for type in kind.types}

    assert sorted(documented) == sorted(known)


def test_each_kind_is_documented_with_its_document_type():
    for row in _rows():
        endings = set(re.findall(r"`([^`]+)`", row[1]))
        (kind,) = [kind for kind in KINDS if endings <= kind.types]

        assert row[3].split()[0] == kind.kind
