"""The filter language over metadata: `parse` what a caller sent, `compile` it to SQL.

A filter is `{"AND": […]}` or `{"OR": […]}` of conditions and further filters. A restriction that
got lost would show its caller documents that he asked not to see: so empty lists and misspelt
fields are faults (400), as much as what cannot be understood.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias, TypeVar, cast
from unicodedata import normalize

from psycopg import sql

from recollect.errors import BadRequestError, Issue

MAX_CONDITIONS = 200
MAX_LEVELS = 8
MAX_KEY = 64


class Joint(StrEnum):
    """How the parts of a filter go together."""

    AND = "AND"
    OR = "OR"


class FilterKind(StrEnum):
    """`filterType` on the wire."""

    METADATA = "metadata"
    STRING_CONTAINS = "string_contains"
    NUMERIC = "numeric"
    ARRAY_CONTAINS = "array_contains"


class Operator(StrEnum):
    """`numericOperator` on the wire; `!=` is only ever the negation of `=`."""

    EQUAL = "="
    UNEQUAL = "!="
    LESS = "<"
    AT_LEAST = ">="
    MORE = ">"
    AT_MOST = "<="

    def negated(self) -> "Operator":
        return _NEGATED[self]


_NEGATED = {
    Operator.EQUAL: Operator.UNEQUAL,
    Operator.UNEQUAL: Operator.EQUAL,
    Operator.LESS: Operator.AT_LEAST,
    Operator.AT_LEAST: Operator.LESS,
    Operator.MORE: Operator.AT_MOST,
    Operator.AT_MOST: Operator.MORE,
}
OPERATORS_ON_THE_WIRE = [operator for operator in Operator if operator is not Operator.UNEQUAL]


@dataclass(frozen=True, slots=True)
class Equals:
    """The stored value is `value`: text as text, a number as number, a boolean as true/false."""

    key: str
    value: str
    ignore_case: bool
    negate: bool
    """matches exactly what would not match otherwise, so also documents without the key"""


@dataclass(frozen=True, slots=True)
class Contains:
    """The stored value is text with `value` somewhere in it; `negate` as in `Equals`."""

    key: str
    value: str
    ignore_case: bool
    negate: bool


@dataclass(frozen=True, slots=True)
class Holds:
    """The stored value is an array with an element that `Equals`, or equals itself."""

    key: str
    value: str
    ignore_case: bool
    negate: bool


@dataclass(frozen=True, slots=True)
class Compares:
    """The stored value is a number and stands so to `number`; negated by turning the operator."""

    key: str
    operator: Operator
    number: float


@dataclass(frozen=True, slots=True)
class Is:
    """The stored value is `value` as JSON compares: text is no number. `negate` as in `Equals`."""

    key: str
    value: str | float | bool
    negate: bool


Condition: TypeAlias = Equals | Contains | Holds | Compares | Is


@dataclass(frozen=True, slots=True)
class Filter:
    """Conditions and filters, at least one; all (`AND`) or any (`OR`) of them must match."""

    joint: Joint
    parts: Sequence["Condition | Filter"]


# --- parse -----------------------------------------------------------------------------------

Path: TypeAlias = tuple[str | int, ...]
_Object: TypeAlias = Mapping[str, object]
_Word = TypeVar("_Word", FilterKind, Operator)

# The Python SDK translates these names only to a depth of two, and below AND or OR in upper case
# not at all: what it then sends is the caller's own spelling.
_ALIASES = {
    "filter_type": "filterType",
    "ignore_case": "ignoreCase",
    "numeric_operator": "numericOperator",
}
_FIELDS = ("AND", "OR", "key", "value", "filterType", "negate", "ignoreCase", "numericOperator")
# RFC 8259 6. Also keeps out what Python's `float` would take: "nan", "1_000", " 5".
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


def parse(raw: object) -> Filter:
    """The filter that a request carries, as an object or as the JSON text of one; one that is read
    already (see `predicates`) as it is.

    Raises BadRequestError naming the place of the first fault (`filters.AND[1].key: …`).
    """
    if isinstance(raw, Filter):
        return raw
    path: Path = ("filters",)
    found = _group(_object(_read(raw, path) if isinstance(raw, str) else raw, path), path, 1)
    count = sum(1 for _ in _conditions(found))
    if count > MAX_CONDITIONS:
        raise fault(path, f"at most {MAX_CONDITIONS} conditions, not {count}")
    return found


def _read(text: str, path: Path) -> object:
    try:
        return cast("object", json.loads(text))
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, character {error.colno}"
        raise fault(path, f"not readable as JSON from {place} on") from error
    except (RecursionError, ValueError) as error:  # thousands of levels; thousands of digits
        raise fault(path, "not readable as JSON: too deep, or a number too long") from error


def _object(raw: object, path: Path) -> _Object:
    if not isinstance(raw, dict):
        raise fault(path, f"must be an object, {{AND: […]}} or {{OR: […]}}, not {named(raw)}")
    # null is the same as absent, in every optional field of every request
    given: dict[str, object] = {}
    for field, value in cast("_Object", raw).items():
        if value is None:
            continue
        name = _ALIASES.get(field, field)
        if name in given:
            raise fault((*path, field), f"{name} is given twice")
        meant = _meant(name)
        if meant is not None:
            raise fault((*path, field), f"unknown field, write {meant}")
        given[name] = value
    return given


def _meant(field: str) -> str | None:
    """The field of which this is another spelling.

    Other unknown fields of a condition are ignored as everywhere, but these carry its meaning.
    """
    if field in _FIELDS:
        return None
    plain = field.replace("_", "").lower()
    return next((known for known in _FIELDS if known.lower() == plain), None)


def _group(raw: _Object, path: Path, level: int) -> Filter:
    if level > MAX_LEVELS:
        raise fault(path, f"at most {MAX_LEVELS} levels of AND and OR")
    joints = [joint for joint in Joint if joint in raw]
    if not joints:
        raise fault(path, "needs AND or OR, also around a single condition")
    if len(joints) > 1:
        raise fault(path, "AND and OR in one object; nest one in the other")
    for field in raw:
        if field != joints[0]:
            raise fault(path, f"{named(field)} beside {joints[0]}; put it in the list")
    path = (*path, joints[0].value)
    entries = raw[joints[0]]
    if not isinstance(entries, list):
        raise fault(path, f"must be a list, not {named(entries)}")
    if not entries:
        # Logic would have an empty AND match everything: a program whose list of restrictions
        # came out empty by mistake would be shown all there is.
        raise fault(path, "must not be empty")
    return Filter(
        joints[0],
        tuple(
            _part(entry, (*path, number), level)
            for number, entry in enumerate(cast("list[object]", entries))
        ),
    )


def _part(raw: object, path: Path, level: int) -> Condition | Filter:
    entry = _object(raw, path)
    if "AND" in entry or "OR" in entry:
        return _group(entry, path, level + 1)
    return _condition(entry, path)


def _condition(raw: _Object, path: Path) -> Condition:
    key = _key(raw.get("key"), (*path, "key"))
    value = _value(raw.get("value"), (*path, "value"))
    kind = _word(
        raw.get("filterType", FilterKind.METADATA), list(FilterKind), (*path, "filterType")
    )
    negate = _flag(raw.get("negate", False), (*path, "negate"))
    ignore_case = _flag(raw.get("ignoreCase", False), (*path, "ignoreCase"))
    operator = _word(
        raw.get("numericOperator", Operator.EQUAL),
        OPERATORS_ON_THE_WIRE,
        (*path, "numericOperator"),
    )
    # Beside another filterType it says nothing; the published clients' own examples send it so.
    match kind:
        case FilterKind.METADATA:
            return Equals(key, value, ignore_case, negate)
        case FilterKind.STRING_CONTAINS:
            return Contains(key, value, ignore_case, negate)
        case FilterKind.ARRAY_CONTAINS:
            return Holds(key, value, ignore_case, negate)
        case FilterKind.NUMERIC:
            number = _number(value)
            if number is None:
                raise fault((*path, "value"), f"must be a finite number, not {named(value)}")
            return Compares(key, operator.negated() if negate else operator, number)


def _key(raw: object, path: Path) -> str:
    if raw is None:
        raise fault(path, "is missing")
    if not isinstance(raw, str):
        raise fault(path, f"must be a string, not {named(raw)}")
    if not 1 <= len(raw) <= MAX_KEY:
        raise fault(path, f"1 to {MAX_KEY} characters, not {len(raw)}")
    return storable_text(raw, path)


def _value(raw: object, path: Path) -> str:
    """A number or boolean is another way to write its text."""
    match raw:
        case None:
            raise fault(path, "is missing")
        case str():
            return storable_text(raw, path)
        case bool():
            return "true" if raw else "false"
        case int() | float():
            if not finite(raw):
                raise fault(path, "must be a finite number")
            return repr(raw).removesuffix(".0")
        case _:
            raise fault(path, f"must be a string, number or boolean, not {named(raw)}")


def storable_text(text: str, path: Path) -> str:
    if "\0" in text:
        raise fault(path, "must not hold the character NUL")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise fault(path, "must not hold half of a surrogate pair")
    return text


def _word(raw: object, words: Sequence[_Word], path: Path) -> _Word:
    found = next((word for word in words if raw == word), None)
    if found is None:
        raise fault(path, f"must be one of {' '.join(words)}, not {named(raw)}")
    return found


def _flag(raw: object, path: Path) -> bool:
    match raw:
        case bool():
            return raw
        case "true" | "false":
            return raw == "true"
        case _:
            raise fault(path, f"must be true or false, not {named(raw)}")


def _number(text: str) -> float | None:
    """What a JSON reader makes of the text, so that it equals metadata that came in as JSON."""
    if _NUMBER.fullmatch(text) is None or not finite(float(text)):
        return None
    return cast("float", json.loads(text))


def finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # an int beyond all floats
        return False


def _conditions(filter: Filter) -> Iterator[Condition]:
    for part in filter.parts:
        if isinstance(part, Filter):
            yield from _conditions(part)
        else:
            yield part


def named(raw: object) -> str:
    """What the caller sent, short enough and printable for an error message."""
    match raw:
        case str():
            return repr(raw) if len(raw) <= 40 else f"{raw[:40]!r}…"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case list():
            return "a list"
        case dict():
            return "an object"
        case _:
            return "null"


def fault(path: Path, message: str) -> BadRequestError:
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)[1:]
    return BadRequestError(f"{place}: {message}", [Issue(path, message)])


# --- compile ---------------------------------------------------------------------------------

_Bind: TypeAlias = Callable[[str], sql.Placeholder]


@dataclass(frozen=True, slots=True)
class _Columns:
    metadata: sql.Composable
    group: sql.Composable | None

    @property
    def seen(self) -> sql.Composable:
        """Metadata with what the group has besides; null where there is neither."""
        if self.group is None:
            return self.metadata
        return sql.SQL(
            "(case when {group} is null then {metadata}"
            " else {group} || coalesce({metadata}, '{{}}'::jsonb) end)"
        ).format(group=self.group, metadata=self.metadata)


def compile(
    filter: Filter, metadata: sql.Composable, group: sql.Composable | None = None
) -> tuple[sql.Composed, dict[str, object]]:
    """A boolean expression over the jsonb column `metadata`, and the values of its placeholders
    f0, f1 …. What the column `group` has is seen as if it were metadata; metadata wins.

    True or false, never null, also where a column is null (a document without metadata).
    Equality is written as containment, which the indexes on `documents` serve; conditions
    that ignore case, look for substrings, order numbers or negate look at each row.
    """
    column = _Columns(metadata, group)
    values: dict[str, object] = {}

    def bind(value: str) -> sql.Placeholder:
        name = f"f{len(values)}"
        values[name] = value
        return sql.Placeholder(name)

    return _all_or_any(filter, column, bind), values


def _all_or_any(filter: Filter, column: _Columns, bind: _Bind) -> sql.Composed:
    parts = [
        _all_or_any(part, column, bind)
        if isinstance(part, Filter)
        else _compiled(part, column, bind)
        for part in filter.parts
    ]
    return _joined(filter.joint, parts)


def _compiled(condition: Condition, column: _Columns, bind: _Bind) -> sql.Composed:
    match condition:
        case Equals():
            return _negated(condition.negate, _equals(condition, column, bind))
        case Contains():
            return _negated(condition.negate, _contains(condition, column, bind))
        case Holds():
            return _negated(condition.negate, _holds(condition, column, bind))
        case Compares():
            return _compares(condition, column, bind)
        case Is():
            value = condition.value
            same = spellings(value) if isinstance(value, str) else [value]
            found = [_includes({condition.key: one}, column, bind) for one in same]
            return _negated(condition.negate, _joined(Joint.OR, found))


def _equals(condition: Equals, column: _Columns, bind: _Bind) -> sql.Composed:
    alternatives = [
        _includes({condition.key: scalar}, column, bind) for scalar in _scalars(condition)
    ]
    if condition.ignore_case:
        alternatives.append(
            sql.SQL(
                "coalesce(jsonb_typeof({column} -> {key}::text) = 'string'"
                " and fold_case(normalize({column} ->> {key}::text)) = fold_case({value}::text),"
                " false)"
            ).format(column=column.seen, key=bind(condition.key), value=bind(_nfc(condition.value)))
        )
    return _joined(Joint.OR, alternatives)


def _contains(condition: Contains, column: _Columns, bind: _Bind) -> sql.Composed:
    # strpos, not like: % and _ are ordinary characters of the value
    found = (
        sql.SQL(
            "strpos(fold_case(normalize({column} ->> {key}::text)), fold_case({value}::text)) > 0"
        )
        if condition.ignore_case
        else sql.SQL("strpos(normalize({column} ->> {key}::text), {value}::text) > 0")
    )
    return sql.SQL(
        "coalesce(jsonb_typeof({column} -> {key}::text) = 'string' and {found}, false)"
    ).format(
        column=column.seen,
        key=(key := bind(condition.key)),
        found=found.format(column=column.seen, key=key, value=bind(_nfc(condition.value))),
    )


def _holds(condition: Holds, column: _Columns, bind: _Bind) -> sql.Composed:
    alternatives = [
        _includes({condition.key: held}, column, bind)
        for scalar in _scalars(condition)
        for held in (scalar, [scalar])
    ]
    if condition.ignore_case:
        alternatives.append(
            sql.SQL(
                "exists (select from jsonb_array_elements("
                "case jsonb_typeof({column} -> {key}::text) when 'array'"
                " then {column} -> {key}::text"
                " else jsonb_build_array({column} -> {key}::text) end) as element (held)"
                " where jsonb_typeof(element.held) = 'string'"
                " and fold_case(normalize(element.held #>> '{{}}')) = fold_case({value}::text))"
            ).format(column=column.seen, key=bind(condition.key), value=bind(_nfc(condition.value)))
        )
    return _joined(Joint.OR, alternatives)


def _compares(condition: Compares, column: _Columns, bind: _Bind) -> sql.Composed:
    if condition.operator is Operator.EQUAL:
        return _includes({condition.key: condition.number}, column, bind)
    # case, not and: it alone promises that text is never cast to a number
    return sql.SQL(
        "case when jsonb_typeof({column} -> {key}::text) = 'number'"
        " then ({column} -> {key}::text)::numeric {operator} {number}::numeric else false end"
    ).format(
        column=column.seen,
        key=bind(condition.key),
        operator=_OPERATORS[condition.operator],
        number=bind(json.dumps(condition.number)),
    )


_OPERATORS = {
    Operator.UNEQUAL: sql.SQL("<>"),
    Operator.LESS: sql.SQL("<"),
    Operator.AT_LEAST: sql.SQL(">="),
    Operator.MORE: sql.SQL(">"),
    Operator.AT_MOST: sql.SQL("<="),
}


def _scalars(condition: Equals | Holds) -> list[str | float | bool]:
    """The JSON values equal to the condition's; where case is ignored, those that are no text."""
    value = condition.value
    scalars: list[str | float | bool] = [] if condition.ignore_case else [*spellings(value)]
    number = _number(value)
    if number is not None:
        scalars.append(number)
    if (value.lower() if condition.ignore_case else value) in ("true", "false"):
        scalars.append(value.lower() == "true")
    return scalars


def spellings(text: str) -> list[str]:
    """The text as it is, and with `ü` as one character and as two: macOS writes file names so, and
    people see no difference. Most texts have one spelling."""
    return list(dict.fromkeys((text, _nfc(text), normalize("NFD", text))))


def _nfc(text: str) -> str:
    """As PostgreSQL's `normalize` has it."""
    return normalize("NFC", text)


def _includes(part: Mapping[str, object], column: _Columns, bind: _Bind) -> sql.Composed:
    # Not coalesce(… @> …, false): no index serves that. And each column by itself: an index serves
    # what has no group, and another what has one.
    value = bind(json.dumps(part))
    found = sql.SQL("{column} is not null and {column} @> {part}::jsonb")
    own = found.format(column=column.metadata, part=value)
    if column.group is None:
        return sql.SQL("({})").format(own)
    both = sql.SQL(
        "{group} is not null and ({group} || coalesce({metadata}, '{{}}'::jsonb)) @> {part}::jsonb"
    )
    return sql.SQL("({} or {})").format(
        own, both.format(group=column.group, metadata=column.metadata, part=value)
    )


def _negated(negate: bool, expression: sql.Composed) -> sql.Composed:
    return sql.SQL("not {}").format(expression) if negate else expression


def _joined(joint: Joint, expressions: Sequence[sql.Composed]) -> sql.Composed:
    word = sql.SQL(" and ") if joint is Joint.AND else sql.SQL(" or ")
    return sql.SQL("({})").format(word.join(expressions))
