"""Statements on the index stand in the rooms whose tests run on Citus, too (decision 0042)."""

import ast
import re
from collections.abc import Iterator

from tests.house.facts import sources, trees

ROOMS = {"db", "documents", "index", "memories", "ops", "search", "torture"}
_NAMED = re.compile(
    r"\b(?:from|join|insert into|update|table|copy)\s+(?:only\s+)?(?:entries|chunks)\b(?! of)"
)


def statements(tree: ast.Module) -> Iterator[str]:
    """Texts that are no docstrings."""
    said = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield node.value


def test_only_rooms_that_citus_tests_cover_name_the_index():
    found = {
        path.partition("/")[0]
        for path, source in sources().items()
        if _NAMED.search(source)
        for text in statements(trees()[path])
        if _NAMED.search(text)
    }
    assert {"documents", "search"} <= found, "it sees statements"
    assert found <= ROOMS
