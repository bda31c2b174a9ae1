"""The tables of docs/security.md name tests that exist, and each item has one or says no."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()
ITEM = re.compile(r"\| ((?:API\d+|\d+\.\d+\.\d+)[^|]*) \|([^|]*)\|([^|]*)\|")
NAMED = re.compile(r"`(tests/[a-z0-9_/]+\.py)::([A-Za-z0-9_]+(?:::[a-z0-9_]+)?)`")
ITEMS = [(found[1], found[2], found[3]) for found in ITEM.finditer(PAGE)]
ASKED = """
1.2.10 1.3.5 1.3.6 1.3.12 1.5.1 1.5.3 2.3.3 2.3.4 2.4.1 4.1.1 5.1.1 5.2.1 5.2.2 5.2.3 5.2.4 5.2.5
5.2.6 5.3.1 5.3.2 5.3.3 5.4.1 5.4.2 5.4.3 8.2.1 8.2.2 8.2.3 8.3.1 8.3.2 8.4.1 10.1.2 10.2.1 11.3.3
11.5.1 13.1.3 13.2.4 13.3.1 16.2.5 16.3.1 16.3.2 16.3.3 16.3.4 16.4.1 16.5.1 16.5.2 16.5.3 16.5.4
"""


def found_in(path: Path) -> set[str]:
    """`test_x` and `TestY::test_x`."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            inside = (n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
            found |= {f"{node.name}::{one.name}" for one in inside}
    return {name for name in found if name.rpartition("::")[2].startswith("test_")}


@pytest.mark.parametrize(("item", "holds", "shown"), ITEMS, ids=[one[0][:12] for one in ITEMS])
def test_each_item_is_shown_by_tests_that_exist(item: str, holds: str, shown: str) -> None:
    named = NAMED.findall(shown)
    strange = [f"{path}::{test}" for path, test in named if test not in found_in(ROOT / path)]

    assert strange == []
    assert named or "*no*" in holds, f"{item} has neither a test nor a no"


def test_no_item_is_left_out() -> None:
    told = {
        number for item, _, _ in ITEMS for number in re.findall(r"[\d.]*\d", item.split(" ")[0])
    }
    told |= {number for item, _, _ in ITEMS for number in re.findall(r"\d+\.\d+\.\d+", item)}

    assert set(ASKED.split()) <= told
    assert {str(number) for number in range(1, 11)} <= told
