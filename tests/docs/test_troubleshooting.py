"""Every error code that a user may meet is explained."""

import re
from collections.abc import Iterator
from pathlib import Path

from recollect.ingest import remedies

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/troubleshooting.md"


PASSED = re.compile(r"\bcode=\(?\s*(?:\"(\w+)\"|([A-Z_]+)\b)")
CONSTANT = re.compile(r"^([A-Z_]+)(?:: \S+)? = \"(\w+)\"", re.MULTILINE)


def codes() -> Iterator[str]:
    """What is passed as `code=`, by value or by the name of a constant of its module."""
    for file in (ROOT / "recollect").rglob("*.py"):
        text = file.read_text()  # as it is formatted; to parse all of it takes seconds
        constants = dict(CONSTANT.findall(text))
        for value, name in PASSED.findall(text):
            if found := value or constants.get(name):
                yield found


def test_every_code_is_explained():
    known = {code for code in codes() if not code.startswith("http_")}
    told = set(re.findall(r"`([a-z_]+)`", PAGE.read_text()))

    assert len(known) > 50
    assert known - told == set()


def test_no_code_is_explained_that_there_is_not():
    source = "\n".join(file.read_text() for file in (ROOT / "recollect").rglob("*.py"))
    rows = re.findall(r"^\| (`[a-z_`, ]+`) \|", PAGE.read_text(), re.MULTILINE)
    told = {code for row in rows for code in re.findall(r"`([a-z_]+)`", row)}

    assert len(told) > 50
    assert {
        code for code in told if f'"{code}"' not in source and f"'{code}'" not in source
    } == set()


def test_the_page_says_what_the_console_says_to_do():
    table = PAGE.read_text().partition("## Error codes of documents")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[a-z_`, ]+`) \| .* \| (.*) \|$", table, re.MULTILINE)
    told = {code: said for codes, said in rows for code in re.findall(r"`([a-z_]+)`", codes)}

    assert {code: remedies.of(code) for code in told} == told
    assert remedies.OTHERWISE not in told.values()
