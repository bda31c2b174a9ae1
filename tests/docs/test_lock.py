"""What is installed: pinned by hash, from nowhere in particular, under licences that allow it."""

import re
from importlib import metadata
from pathlib import Path

import pytest
from packaging.markers import Marker

REQUIREMENTS = Path(__file__).parents[2] / "requirements"
FILES = sorted(REQUIREMENTS.glob("*.txt"))
PIN = re.compile(r"^([A-Za-z0-9_.-]+)==(\S+)(?: ; ([^\\]+))? \\$")
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}(?: \\)?$")

FREE = re.compile(
    r"0BSD|BSD|Apache|MIT|ISC|PSF-2\.0|Unlicense|Zlib|CC0|"
    # Copyleft of single files, which we do not change, and of a library that we only import.
    r"MPL|Mozilla Public License|LGPL"
)


def pins(file: Path) -> dict[str, str]:
    """Those for this version of Python."""
    found: dict[str, str] = {}
    for line in file.read_text().splitlines():
        match = PIN.match(line)
        if match and (match[3] is None or Marker(match[3]).evaluate()):
            found[match[1]] = match[2]
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_line_is_a_pin_or_its_hash(file: Path):
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    odd = [line for line in lines if not PIN.match(line) and not HASH.match(line)]
    assert odd == []
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if PIN.match(line):
            assert HASH.match(following), f"{line} has no hash"


def test_what_is_served_is_what_was_tested():
    served, tested = pins(REQUIREMENTS / "serve.txt"), pins(REQUIREMENTS / "all.txt")

    assert len(served) > 50
    assert served.items() <= tested.items()
    assert {"hatchling", "editables"} < pins(REQUIREMENTS / "build.txt").keys()
    assert pins(REQUIREMENTS / "build.txt").items() <= tested.items()
    assert not {"pytest", "ruff", "hypothesis", "scrapy"} & set(served)


def test_what_is_served_may_be_used_by_everybody():
    names = [*pins(REQUIREMENTS / "serve.txt"), *pins(REQUIREMENTS / "model.txt")]
    unfree = {name: licence(name) for name in names if not FREE.search(licence(name))}

    assert unfree == {}


def licence(name: str) -> str:
    told = metadata.metadata(name)
    classes = [one for one in told.get_all("Classifier") or [] if one.startswith("License")]
    named = [
        one for field in ("License-Expression", "License") for one in told.get_all(field) or []
    ]
    return "; ".join([*named, *classes])


def test_the_lock_is_what_is_installed():
    tested = pins(REQUIREMENTS / "all.txt")
    other = {name: v for name, v in tested.items() if metadata.version(name) != v}

    assert other == {}
