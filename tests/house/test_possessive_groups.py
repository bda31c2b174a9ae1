"""Patterns mean the same in every Python from 3.11.0 on.

Up to 3.11.4 a group that is repeated possessively leaves its place where its last, failing round
got to (gh-106052), so that words lost their last letter, for one. An alternative that never matches
takes it back: `(?:ab|(?!))*+`.
"""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import recollect

parser: Any = importlib.import_module("re._parser")
constants: Any = importlib.import_module("re._constants")
OF_ONE_CHARACTER = ("LITERAL", "NOT_LITERAL", "IN", "ANY", "CATEGORY")


def patterns() -> Iterator[tuple[str, re.Pattern[Any]]]:
    for module in pkgutil.walk_packages(recollect.__path__, "recollect."):
        if module.name.endswith(("__main__", "_child")):
            continue
        for name, value in vars(importlib.import_module(module.name)).items():
            held = value.values() if isinstance(value, dict) else value
            for one in held if isinstance(value, dict | list | tuple) else [value]:
                if isinstance(one, re.Pattern):
                    yield f"{module.name}.{name}", one


def inside(argument: Any) -> Iterator[Any]:
    """The patterns within an operation, however deep in its argument."""
    if isinstance(argument, parser.SubPattern):
        yield argument
    elif isinstance(argument, tuple | list):
        for part in argument:
            yield from inside(part)


def unguarded(pattern: Any) -> Iterator[Any]:
    for operation, argument in pattern:
        for inner in inside(argument):
            yield from unguarded(inner)
        if operation is constants.POSSESSIVE_REPEAT:
            body = argument[2]
            while len(body) == 1 and body[0][0] is constants.SUBPATTERN:
                body = body[0][1][3]
            is_simple = len(body) == 1 and str(body[0][0]) in OF_ONE_CHARACTER
            if not is_simple and not ends_in_nothing(body):
                yield body


def ends_in_nothing(body: Any) -> bool:
    if len(body) != 1 or body[0][0] is not constants.BRANCH:
        return False
    last = body[0][1][1][-1]
    return len(last) == 1 and repr(last[0]) == repr((constants.ASSERT_NOT, (1, [])))


def test_groups_that_are_repeated_possessively_take_a_failing_round_back() -> None:
    found = list(patterns())

    assert len(found) > 400
    assert [
        name for name, one in found if any(unguarded(parser.parse(one.pattern, one.flags)))
    ] == []


def test_a_group_without_it_is_seen() -> None:
    assert any(unguarded(parser.parse(r"\w++(?:\.\w++)*+")))
    assert any(unguarded(parser.parse(r"(?:a(?:bc){1,5}+|(?!))*+")))
    assert not any(unguarded(parser.parse(r"\w++(?:\.\w++|(?!))*+")))
