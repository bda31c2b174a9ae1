"""The other spelling of `filters`, with operators: one predicate, or groups of them.

`{"field": "year", "operator": "gte", "value": 2026}`, and `{"operator": "and", "operands": […]}`.
It is read into the same conditions, and as strictly: a filter is never dropped.
"""

import re
from collections.abc import Callable, Mapping
from typing import cast

from recollect.documents.filters import (
    MAX_CONDITIONS,
    MAX_KEY,
    Compares,
    Condition,
    Contains,
    Equals,
    Filter,
    Holds,
    Is,
    Joint,
    Operator,
    Path,
    fault,
    finite,
    named,
    storable_text,
)

MOST_LEVELS = 5
_FIELD = re.compile(r"[A-Za-z0-9_.-]+")
_JOINTS = {"and": Joint.AND, "or": Joint.OR}
_COMPARED = {
    "gt": Operator.MORE,
    "gte": Operator.AT_LEAST,
    "lt": Operator.LESS,
    "lte": Operator.AT_MOST,
}
_NEGATIONS = {"neq": "eq", "notContains": "contains", "arrayNotContains": "arrayContains"}
_WORDS = ("eq", *_COMPARED, "contains", "arrayContains", *_NEGATIONS, *_JOINTS)


def parse(raw: object) -> Filter:
    """The filter that a request carries.

    Raises BadRequestError naming the place of the first fault (`filter.operands[1].value: …`).
    """
    left = MAX_CONDITIONS

    def count(path: Path) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise fault(path[:1], f"at most {MAX_CONDITIONS} predicates")

    found = _expression(raw, ("filter",), 1, count)
    return found if isinstance(found, Filter) else Filter(Joint.AND, (found,))


def _expression(
    raw: object, path: Path, level: int, count: Callable[[Path], None]
) -> Condition | Filter:
    if not isinstance(raw, dict):
        raise fault(path, f"must be an object, not {named(raw)}")
    pairs = cast("Mapping[str, object]", raw).items()
    given = {name: value for name, value in pairs if value is not None}  # null is absent
    operator = given.get("operator")
    if not isinstance(operator, str) or operator not in _WORDS:
        told = "is missing" if operator is None else f"not {named(operator)}"
        raise fault((*path, "operator"), f"one of {' '.join(_WORDS)}; {told}")
    if operator not in _JOINTS:
        count(path)
        return _predicate(given, operator, path)
    _closed(given, ("operator", "operands"), path)
    if level > MOST_LEVELS:
        raise fault(path, f"at most {MOST_LEVELS} levels of and and or")
    operands = given.get("operands")
    path = (*path, "operands")
    if not isinstance(operands, list) or not operands:
        raise fault(path, "must be a list of at least one predicate or group")
    parts = cast("list[object]", operands)
    if len(parts) > MAX_CONDITIONS:
        raise fault(path, f"at most {MAX_CONDITIONS} entries, not {len(parts)}")
    return Filter(
        _JOINTS[operator],
        tuple(
            _expression(one, (*path, number), level + 1, count) for number, one in enumerate(parts)
        ),
    )


def _predicate(given: Mapping[str, object], operator: str, path: Path) -> Condition:
    key = _field(given.get("field"), (*path, "field"))
    value, place = given.get("value"), (*path, "value")
    plain = _NEGATIONS.get(operator, operator)
    negate = plain != operator
    cased = isinstance(value, str) and plain in ("eq", "contains")
    _closed(given, ("field", "operator", "value", *(["caseSensitive"] if cased else [])), path)
    if operator in _COMPARED:
        return Compares(key, _COMPARED[operator], _number(value, operator, place))
    if plain == "eq" and not isinstance(value, str):
        return Is(key, value if isinstance(value, bool) else _number(value, "eq", place), negate)
    if not isinstance(value, str):
        raise fault(place, f"{operator} takes a string, not {named(value)}")
    text = storable_text(value, place)
    ignore_case = not _flag(given.get("caseSensitive", True), (*path, "caseSensitive"))
    match plain:
        case "eq" if ignore_case:
            return Equals(key, text, ignore_case, negate)
        case "eq":
            return Is(key, text, negate)
        case "contains":
            return Contains(key, text, ignore_case, negate)
        case _:
            return Holds(key, text, ignore_case, negate)


def _field(raw: object, path: Path) -> str:
    if not isinstance(raw, str):
        raise fault(path, "is missing" if raw is None else f"must be a string, not {named(raw)}")
    if len(raw) > MAX_KEY or _FIELD.fullmatch(raw) is None:
        raise fault(path, f"1 to {MAX_KEY} letters, digits and _ . -, not {named(raw)}")
    return raw


def _number(raw: object, operator: str, path: Path) -> float:
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        wanted = "a string, a number or a boolean" if operator == "eq" else "a number"
        told = "is missing" if raw is None else f"not {named(raw)}"
        raise fault(path, f"{operator} takes {wanted}; {told}")
    if not finite(raw):
        raise fault(path, "must be a finite number")
    return raw


def _flag(raw: object, path: Path) -> bool:
    if not isinstance(raw, bool):
        raise fault(path, f"must be true or false, not {named(raw)}")
    return raw


def _closed(given: Mapping[str, object], known: tuple[str, ...], path: Path) -> None:
    for name in given:
        if name not in known:
            raise fault((*path, name), f"unknown field; there is {', '.join(known)}")
