"""What `filters.parse` takes, what it refuses and where, and that no user text becomes SQL."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import sql

from recollect.documents import filters
from recollect.documents.filters import Compares, Contains, Equals, Filter, Holds, Joint, Operator
from recollect.errors import BadRequestError


def condition(**fields: object) -> dict[str, object]:
    return {"key": "a", "value": "b", **fields}


def only(entry: object) -> object:
    """The one part of a filter around `entry`."""
    (part,) = filters.parse({"AND": [entry]}).parts
    return part


def nested(levels: int) -> object:
    filter: object = condition()
    for level in range(levels):
        filter = {"OR" if level % 2 else "AND": [filter]}
    return filter


FAULTS: list[tuple[object, list[str | int], str]] = [
    # the root
    (None, [], "must be an object"),
    (5, [], "must be an object, {AND: […]} or {OR: […]}, not a number"),
    ([], [], "not a list"),
    ({}, [], "needs AND or OR"),
    (condition(), [], "needs AND or OR, also around a single condition"),
    ({"AND": None}, [], "needs AND or OR"),
    ({"NOT": [condition()]}, [], "needs AND or OR"),
    ({"and": [condition()]}, ["and"], "write AND"),
    ({"or_": [condition()]}, ["or_"], "write OR"),
    # as text
    ("", [], "not readable as JSON"),
    ("{AND: []}", [], "not readable as JSON from line 1, character 2 on"),
    ("null", [], "must be an object"),
    ('"{}"', [], "must be an object, {AND: […]} or {OR: […]}, not '{}'"),
    (json.dumps(condition()), [], "needs AND or OR"),
    ('{"AND":' * 100_000, [], "too deep"),
    ('{"AND":[{"key":"a","value":' + "9" * 5_000 + "}]}", [], "a number too long"),
    ('{"AND":[{"key":"a","value":NaN}]}', ["AND", 0, "value"], "finite"),
    ('{"OR":[{"key":"a","value":1e999}]}', ["OR", 0, "value"], "finite"),
    # groups
    ({"AND": [condition()], "OR": [condition()]}, [], "AND and OR in one object"),
    ({"AND": [condition()], "NOT": []}, [], "'NOT' beside AND"),
    ({"AND": [condition()], "key": "a", "value": "b"}, [], "'key' beside AND"),
    ({"AND": []}, ["AND"], "must not be empty"),
    ({"OR": []}, ["OR"], "must not be empty"),
    ({"OR": {}}, ["OR"], "must be a list, not an object"),
    ({"AND": "[]"}, ["AND"], "must be a list, not '[]'"),
    ({"AND": [condition(), {"OR": []}]}, ["AND", 1, "OR"], "must not be empty"),
    ({"AND": [{"AND": [condition()], "OR": [condition()]}]}, ["AND", 0], "in one object"),
    ({"AND": ["a=b"]}, ["AND", 0], "must be an object"),
    ({"AND": [None]}, ["AND", 0], "must be an object"),
    ({"AND": [[condition()]]}, ["AND", 0], "must be an object"),
    # limits
    ({"OR": [condition()] * 201}, [], "at most 200 conditions, not 201"),
    ({"OR": [{"AND": [condition()] * 67}] * 3}, [], "at most 200 conditions, not 201"),
    (nested(9), ["AND", 0, "OR", 0] * 4, "at most 8 levels"),
    (nested(400), ["OR", 0, "AND", 0] * 4, "at most 8 levels"),
    # conditions
    ({"AND": [condition(), {"value": "b"}]}, ["AND", 1, "key"], "is missing"),
    ({"AND": [{}]}, ["AND", 0, "key"], "is missing"),
    ({"AND": [condition(key=None)]}, ["AND", 0, "key"], "is missing"),
    ({"AND": [condition(key=5)]}, ["AND", 0, "key"], "must be a string, not a number"),
    ({"AND": [condition(key="")]}, ["AND", 0, "key"], "1 to 64 characters"),
    ({"AND": [condition(key="ä" * 65)]}, ["AND", 0, "key"], "1 to 64 characters, not 65"),
    ({"AND": [condition(key="a\0")]}, ["AND", 0, "key"], "NUL"),
    ({"AND": [condition(key="\ud83d")]}, ["AND", 0, "key"], "surrogate"),
    ({"AND": [{"key": "a"}]}, ["AND", 0, "value"], "is missing"),
    ({"AND": [condition(value=None)]}, ["AND", 0, "value"], "is missing"),
    ({"AND": [condition(value=["b"])]}, ["AND", 0, "value"], "must be a string, number or bool"),
    ({"AND": [condition(value={})]}, ["AND", 0, "value"], "not an object"),
    ({"AND": [condition(value=float("nan"))]}, ["AND", 0, "value"], "finite"),
    ({"AND": [condition(value=float("-inf"))]}, ["AND", 0, "value"], "finite"),
    ({"AND": [condition(value=10**400)]}, ["AND", 0, "value"], "finite"),
    ({"AND": [condition(value="a\0b")]}, ["AND", 0, "value"], "NUL"),
    ({"AND": [condition(value="\udfff")]}, ["AND", 0, "value"], "surrogate"),
    ({"AND": [condition(filterType="fuzzy")]}, ["AND", 0, "filterType"], "not 'fuzzy'"),
    ({"AND": [condition(filterType="NUMERIC")]}, ["AND", 0, "filterType"], "not 'NUMERIC'"),
    ({"AND": [condition(filterType="x" * 99)]}, ["AND", 0, "filterType"], "x" * 40 + "'…"),
    ({"AND": [condition(filterType=1)]}, ["AND", 0, "filterType"], "not a number"),
    ({"AND": [condition(filtertype="numeric")]}, ["AND", 0, "filtertype"], "write filterType"),
    (
        {"AND": [condition(filterType="numeric", filter_type="metadata")]},
        ["AND", 0, "filter_type"],
        "filterType is given twice",
    ),
    ({"AND": [condition(ignorecase=True)]}, ["AND", 0, "ignorecase"], "write ignoreCase"),
    ({"AND": [condition(negate="yes")]}, ["AND", 0, "negate"], "must be true or false"),
    ({"AND": [condition(negate="True")]}, ["AND", 0, "negate"], "must be true or false"),
    ({"AND": [condition(negate=1)]}, ["AND", 0, "negate"], "must be true or false"),
    ({"AND": [condition(ignoreCase=[])]}, ["AND", 0, "ignoreCase"], "not a list"),
    # numbers
    *(
        ({"AND": [condition(filterType="numeric", value=value)]}, ["AND", 0, "value"], "a finite")
        for value in ("b", "", "nan", "1e999", "9" * 5_000, "0x10", "1_000", " 5", "5\n", True, "٥")
    ),
    (
        {"AND": [condition(filterType="numeric", value="5", numericOperator="!=")]},
        ["AND", 0, "numericOperator"],
        "must be one of = < >= > <=, not '!='",
    ),
    (
        {"AND": [condition(filterType="metadata", numericOperator="~")]},
        ["AND", 0, "numericOperator"],
        "not '~'",
    ),
    # the place of a fault far inside
    (
        {"AND": [condition(), {"OR": [condition(), {"AND": [condition(key="")]}]}]},
        ["AND", 1, "OR", 1, "AND", 0, "key"],
        "1 to 64",
    ),
]


@pytest.mark.parametrize(("raw", "place", "words"), FAULTS, ids=range(len(FAULTS)))
def test_a_fault_is_refused_by_its_place(raw: object, place: list[str | int], words: str):
    with pytest.raises(BadRequestError) as caught:
        filters.parse(raw)

    (issue,) = caught.value.issues
    assert list(issue.path) == ["filters", *place]
    assert words in issue.message
    written = "filters" + "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in place)
    assert caught.value.details == f"{written}: {issue.message}"
    assert issue.message.isprintable()


def test_the_limits_themselves_are_allowed():
    assert len(filters.parse({"OR": [condition()] * 200}).parts) == 200
    assert filters.parse(nested(8)).joint is Joint.OR
    assert only(condition(key="ä" * 64)) == Equals("ä" * 64, "b", False, False)


def test_text_and_object_are_the_same_filter():
    raw = {"OR": [condition(), {"AND": [condition(key="ключ", value=5), condition(value=True)]}]}

    filter = filters.parse(json.dumps(raw))

    assert filter == filters.parse(raw)
    assert filter == Filter(
        Joint.OR,
        (
            Equals("a", "b", False, False),
            Filter(
                Joint.AND, (Equals("ключ", "5", False, False), Equals("a", "true", False, False))
            ),
        ),
    )


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (condition(filterType="metadata"), Equals("a", "b", False, False)),
        (condition(filterType="string_contains"), Contains("a", "b", False, False)),
        (condition(filterType="array_contains"), Holds("a", "b", False, False)),
        (condition(negate=True, ignoreCase="true"), Equals("a", "b", True, True)),
        (condition(negate="false", ignoreCase=False), Equals("a", "b", False, False)),
        (
            condition(filterType=None, negate=None, ignoreCase=None, numericOperator=None),
            Equals("a", "b", False, False),
        ),
        (condition(AND=None, OR=None, note="ours"), Equals("a", "b", False, False)),
        (condition(numericOperator="="), Equals("a", "b", False, False)),
        (condition(value=""), Equals("a", "", False, False)),
        (condition(value=5.0), Equals("a", "5", False, False)),
        (condition(value=0.1), Equals("a", "0.1", False, False)),
        (condition(value=2**63 + 1), Equals("a", "9223372036854775809", False, False)),
        (condition(value=False), Equals("a", "false", False, False)),
    ],
)
def test_a_condition_means(entry: object, expected: object):
    assert only(entry) == expected


@pytest.mark.parametrize(
    ("operator", "negate", "expected"),
    [
        ("<", False, Operator.LESS),
        ("<", True, Operator.AT_LEAST),
        (">=", "true", Operator.LESS),
        (">", True, Operator.AT_MOST),
        ("<=", True, Operator.MORE),
        ("=", True, Operator.UNEQUAL),
        (None, False, Operator.EQUAL),
        (None, True, Operator.UNEQUAL),
    ],
)
def test_negating_a_comparison_turns_its_operator(
    operator: str | None, negate: object, expected: Operator
):
    entry = condition(filterType="numeric", value="-1.5e2", numericOperator=operator, negate=negate)

    assert only(entry) == Compares("a", expected, -150.0)


@given(
    marks=st.lists(st.text("☃'\"%{}();-\\", min_size=1).map("☃{}".format), min_size=2, max_size=2),
    kind=st.sampled_from(["metadata", "string_contains", "array_contains"]),
    ignore_case=st.booleans(),
)
def test_no_text_of_the_caller_becomes_sql(marks: list[str], kind: str, ignore_case: bool):
    key, value = marks
    entry = condition(key=key[:64], value=value, filterType=kind, ignoreCase=ignore_case)

    expression, values = filters.compile(filters.parse({"OR": [entry]}), sql.Identifier("metadata"))

    assert "☃" not in expression.as_string(None)
    assert list(values) == [f"f{number}" for number in range(len(values))]
    assert all(f"%({name})s" in expression.as_string(None) for name in values)


def test_the_spelling_of_the_python_client_means_the_same():
    assert only(condition(value="5", filter_type="numeric", numeric_operator="<")) == Compares(
        "a", Operator.LESS, 5
    )
    assert only(condition(filter_type="string_contains", ignore_case="true")) == Contains(
        "a", "b", ignore_case=True, negate=False
    )
