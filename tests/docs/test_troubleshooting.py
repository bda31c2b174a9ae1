"""Every error code that a user may meet is explained."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/troubleshooting.md"


def codes() -> Iterator[str]:
    """What is passed as `code=`, by value or by the name of a constant of its module."""
    for file in (ROOT / "recollect").rglob("*.py"):
        tree = ast.parse(file.read_text())
        constants = {
            target.id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg == "code":
                value = node.value
                found = (
                    value.value
                    if isinstance(value, ast.Constant)
                    else constants.get(value.id)
                    if isinstance(value, ast.Name)
                    else None
                )
                if isinstance(found, str):
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
