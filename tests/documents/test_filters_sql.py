"""Compiled filters on a real PostgreSQL: against a naive reading of the contract, and planned."""

import json
import operator
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any
from unicodedata import normalize

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from psycopg import sql

from recollect.db import Database, Tx
from recollect.documents import filters, predicates
from tests.conftest import examples

METADATA, GROUP = sql.SQL("d.metadata"), sql.SQL("d.group_pairs")

# --- the contract's words, read naively --------------------------------------------------------

COMPARE = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
}
TURNED = {"=": "!=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def admits(raw: Mapping[str, Any], metadata: Mapping[str, Any] | None) -> bool:
    """Whether the contract lets this metadata through this filter or condition."""
    if "AND" in raw:
        return all(admits(part, metadata) for part in raw["AND"])
    if "OR" in raw:
        return any(admits(part, metadata) for part in raw["OR"])
    negate = raw.get("negate") in (True, "true")
    ignore_case = raw.get("ignoreCase") in (True, "true")
    missing = raw["key"] not in (metadata or {})
    stored = (metadata or {}).get(raw["key"])
    match raw.get("filterType", "metadata"):
        case "numeric":
            if not is_number(stored):
                return False
            sign = raw.get("numericOperator", "=")
            compare = COMPARE[TURNED[sign] if negate else sign]
            return compare(exact(stored), exact(number_in(raw["value"])))
        case "string_contains":
            found = isinstance(stored, str) and cased(raw["value"], ignore_case) in cased(
                stored, ignore_case
            )
        case "array_contains":
            elements = stored if isinstance(stored, list) else [stored]
            found = any(equal(element, raw["value"], ignore_case) for element in elements)
        case _:
            found = equal(stored, raw["value"], ignore_case)
    return (not found or missing) if negate else (found and not missing)


def equal(stored: object, value: object, ignore_case: bool) -> bool:
    if isinstance(stored, bool):
        return cased("true" if stored else "false", ignore_case) == cased(value, ignore_case)
    if is_number(stored):
        number = number_in(value)
        return number is not None and exact(stored) == exact(number)
    if isinstance(stored, str):
        return cased(stored, ignore_case) == cased(value, ignore_case)
    return False


def cased(value: object, ignore_case: bool) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    text = normalize("NFC", text.removesuffix(".0") if isinstance(value, float) else text)
    return text.lower() if ignore_case else text


def number_in(value: object) -> object:
    """The number that a value stands for, written as such or as text; else None."""
    try:
        read = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return None
    return read if is_number(read) else None


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def exact(number: object) -> Decimal:
    return Decimal(json.dumps(number))


# --- random metadata, random filters ----------------------------------------------------------

# Few keys and few values, so that filters and documents meet.
KEYS = st.sampled_from(["a", "ключ.b", "%s {} '\" \\ ; --"])
NUMBERS = st.sampled_from([0, 5, 5.0, -1, 0.1, -0.0, 1e21, 2**53, 2**53 + 1])
WORDS = [
    "draft",
    "Draft",
    "Äpfel",
    "A\u0308pfel",
    "äPFEL",
    "a%b",
    "axb",
    "a_b",
    "%",
    "_",
    "{}",
    "'",
    '"',
    "\\",
]
LIKENESSES = ["5", "5.0", "05", "-1", "1e21", "9007199254740993", "true", "True", "FALSE", "null"]
TEXTS = st.sampled_from(WORDS) | st.sampled_from(LIKENESSES) | st.text("aAäÄ%_", max_size=3)
SCALARS = TEXTS | NUMBERS | st.booleans()
STORED = st.none() | st.dictionaries(KEYS, SCALARS | st.lists(SCALARS, max_size=3))

FLAGS = st.sampled_from([True, False, "true", "false"])
OPTIONS = {"negate": FLAGS, "ignoreCase": FLAGS}
CONDITIONS = st.fixed_dictionaries(
    {"key": KEYS, "value": SCALARS},
    optional={
        "filterType": st.sampled_from(["metadata", "string_contains", "array_contains"]),
        **OPTIONS,
    },
) | st.fixed_dictionaries(
    {
        "key": KEYS,
        "value": NUMBERS | NUMBERS.map(json.dumps),
        "filterType": st.just("numeric"),
    },
    optional={"numericOperator": st.sampled_from(list(TURNED)), **OPTIONS},
)


def groups(entries: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(entries, min_size=1, max_size=3)
    return st.builds(lambda joint, parts: {joint: parts}, st.sampled_from(["AND", "OR"]), lists)


FILTERS = groups(st.recursive(CONDITIONS, groups, max_leaves=6))


def answers(
    tx: Tx, raw: object, documents: Sequence[object], groups: Sequence[object] | None = None
) -> list[object]:
    """What the compiled filter says of each document, in their order; by its metadata, and its
    group."""

    def column(values: Sequence[object]) -> list[str | None]:
        return [None if one is None else json.dumps(one) for one in values]

    expression, values = filters.compile(filters.parse(raw), METADATA, GROUP)
    query = sql.SQL(
        "select {} as admitted"
        " from unnest(%(documents)s::jsonb[], %(groups)s::jsonb[]) with ordinality"
        " as d (metadata, group_pairs, number) order by number"
    ).format(expression)
    rows = tx.execute(
        query,
        {
            "documents": column(documents),
            "groups": column([None] * len(documents) if groups is None else groups),
            **values,
        },
    )
    return [row["admitted"] for row in rows]


@settings(max_examples=examples(change=200, night=800))
@given(raw=FILTERS, documents=st.lists(STORED, min_size=1, max_size=8))
@example(raw={"AND": [{"key": "a", "value": "b", "negate": True}]}, documents=[None, {}])
@example(raw={"OR": [{"key": "a", "value": "5"}]}, documents=[{"a": 5}, {"a": "5"}, {"a": 5.0}])
def test_the_compiled_filter_says_what_the_contract_says(
    db: Database, raw: Mapping[str, Any], documents: list[dict[str, Any] | None]
):
    with db.begin() as tx:
        said = answers(tx, raw, documents)

    assert said == [admits(raw, document) for document in documents]


@settings(max_examples=examples(change=200, night=800))
@given(raw=FILTERS, documents=st.lists(st.tuples(STORED, STORED), min_size=1, max_size=8))
@example(
    raw={"AND": [{"key": "a", "value": "b", "filterType": "array_contains"}]},
    documents=[({"a": "c"}, {"a": ["b"]}), (None, {"a": ["b"]}), ({}, {"a": "b"}), (None, None)],
)
def test_a_group_counts_as_metadata_which_wins(
    db: Database,
    raw: Mapping[str, Any],
    documents: list[tuple[dict[str, Any] | None, dict[str, Any] | None]],
):
    with db.begin() as tx:
        said = answers(tx, raw, [one for one, _ in documents], [group for _, group in documents])

    assert said == [admits(raw, {**(group or {}), **(one or {})}) for one, group in documents]


@pytest.mark.parametrize(
    ("entry", "matching", "others"),
    [
        (
            {"key": "status", "value": "draft", "negate": True},
            [None, {}, {"status": "final"}, {"status": "Draft"}, {"status": 5}],
            [{"status": "draft"}],
        ),
        (
            {"key": "n", "value": "5"},
            [{"n": 5}, {"n": 5.0}, {"n": "5"}],
            [None, {}, {"n": "5.0"}, {"n": True}, {"n": ["5"]}, {"n": None}],
        ),
        (
            {"key": "on", "value": True},
            [{"on": True}, {"on": "true"}],
            [{"on": False}, {"on": "True"}, {"on": 1}],
        ),
        (
            {"key": "on", "value": "TRUE", "ignoreCase": "true"},
            [{"on": True}, {"on": "True"}],
            [{"on": False}, {"on": 1}],
        ),
        (
            {"key": "who", "value": "ÄRZTE", "ignoreCase": True},
            [{"who": "Ärzte"}, {"who": "ärzte"}],
            [{"who": "Arzte"}],
        ),
        *(
            ({"key": "t", "value": value, **more}, [{"t": stored}], [None, {"t": "Apfel"}])
            for value, stored in (("Äpfel", "A\u0308pfel"), ("A\u0308pfel", "Äpfel"))
            for more in (
                {},
                {"ignoreCase": True},
                {"filterType": "array_contains"},
                {"filterType": "array_contains", "ignoreCase": True},
                {"filterType": "string_contains"},
                {"filterType": "string_contains", "ignoreCase": True},
            )
        ),
        (
            {"key": "t", "value": "A_5%", "filterType": "string_contains", "ignoreCase": True},
            [{"t": "a_5%"}, {"t": "xA_5%y"}],
            [None, {"t": "ab5c"}, {"t": "a_5"}, {"t": ""}],
        ),
        (
            {"key": "t", "value": "50%", "filterType": "string_contains"},
            [{"t": "a 50% cut"}],
            [None, {"t": "500"}, {"t": 50}, {"t": ["50%"]}],
        ),
        (
            {"key": "n", "value": "5", "filterType": "numeric", "negate": True},
            [{"n": 4}, {"n": 5.5}],
            [None, {}, {"n": 5}, {"n": "4"}, {"n": True}, {"n": "words"}, {"n": [4]}],
        ),
        (
            {"key": "n", "value": 5, "filterType": "numeric", "numericOperator": "<="},
            [{"n": 5}, {"n": -1e300}],
            [None, {}, {"n": 5.0001}, {"n": "4"}],
        ),
        (
            {"key": "n", "value": "9007199254740993"},
            [{"n": 9007199254740993}, {"n": "9007199254740993"}],
            [{"n": 9007199254740992}],
        ),
        (
            {"key": "n", "value": "9007199254740993", "filterType": "numeric"},
            [{"n": 9007199254740993}],
            [{"n": 9007199254740992}],
        ),
        (
            {"key": "l", "value": "Red", "filterType": "array_contains", "ignoreCase": True},
            [{"l": ["blue", "RED"]}, {"l": "red"}],
            [None, {}, {"l": []}, {"l": ["redder"]}, {"l": {"red": "red"}}, {"l": [["red"]]}],
        ),
        (
            {"key": "l", "value": "5", "filterType": "array_contains", "negate": True},
            [None, {}, {"l": []}, {"l": ["50"]}, {"l": 6}],
            [{"l": ["a", "5"]}, {"l": [5]}, {"l": 5}, {"l": "5"}],
        ),
    ],
)
def test_a_condition_matches(
    db: Database, entry: object, matching: Sequence[object], others: Sequence[object]
):
    with db.begin() as tx:
        said = answers(tx, {"AND": [entry]}, [*matching, *others])

    assert said == [True] * len(matching) + [False] * len(others)


@pytest.mark.parametrize("value", ["Äpfel", "A\u0308pfel"])
def test_a_predicate_matches_either_spelling_of_an_accent(db: Database, value: str):
    filter = predicates.parse({"field": "t", "operator": "eq", "value": value})
    with db.begin() as tx:
        said = answers(tx, filter, [{"t": "Äpfel"}, {"t": "A\u0308pfel"}, {"t": "Apfel"}])

    assert said == [True, True, False]


def test_the_largest_filter_allowed_runs(db: Database):
    entry: object = {
        "OR": [{"key": f"k{n}", "value": str(n), "ignoreCase": True} for n in range(200)]
    }
    for _ in range(7):
        entry = {"AND": [entry]}

    with db.begin() as tx:
        assert answers(tx, entry, [{"k199": 199}, {"k199": 198}, None]) == [True, False, False]


# --- plans ----------------------------------------------------------------------------------

ROWS = 25_000


@contextmanager
def many_documents(db: Database) -> Generator[Tx]:
    """A transaction that sees 25,000 documents, a third of them without metadata."""
    with db.begin() as tx, tx.transaction(force_rollback=True):
        # Triggers, row by row, would take most of the time.
        tx.execute("set local session_replication_role = replica")
        tx.execute("insert into orgs (id, name, plan) values ('filters', 'filters', 'free')")
        tx.execute(
            "insert into documents (id, org_id, container_tags, scope, kind, source, content,"
            " content_hash, status, due_at, metadata)"
            " select 'filters-' || n, 'filters', '{t}', '{1}', 'text', 'api', '', '', 'done', null,"
            " case when n %% 3 > 0 then jsonb_build_object("
            "'customer', n %% 5000, 'owner', 'user ' || n %% 4000, 'draft', n %% 2 = 0) end"
            " from generate_series(1, %s) as n",
            (ROWS,),
        )
        # As vacuum would: the planner prices a scan of what waits outside of the index's tree.
        tx.execute("select gin_clean_pending_list('documents_metadata')")
        tx.execute("analyze documents")
        yield tx


def plan(tx: Tx, raw: object) -> str:
    expression, values = filters.compile(filters.parse(raw), METADATA, GROUP)
    query = sql.SQL("explain (format text) select id from documents d where {}").format(expression)
    return "\n".join(row["QUERY PLAN"] for row in tx.execute(query, values))


@pytest.mark.one_server
def test_equality_is_served_by_the_index_on_metadata(db: Database):
    customer = {"key": "customer", "value": "77"}
    owner = {"key": "owner", "value": "user 77"}
    number = {"key": "customer", "value": "77", "filterType": "numeric"}
    element = {"key": "owner", "value": "user 77", "filterType": "array_contains"}
    not_draft = {"key": "draft", "value": "true", "negate": True}
    with many_documents(db) as tx:
        served = {
            json.dumps(raw): plan(tx, raw)
            for raw in (
                {"AND": [owner]},
                {"AND": [customer]},
                {"AND": [number]},
                {"AND": [element]},
                {"OR": [customer, owner]},
                {"AND": [owner, not_draft]},
                {"AND": [not_draft, {"OR": [customer, {"AND": [owner, number]}]}]},
            )
        }
        expression, values = filters.compile(
            filters.parse({"OR": [customer, owner]}), METADATA, GROUP
        )
        found = tx.execute(
            sql.SQL("select id from documents d where {}").format(expression), values
        ).fetchall()

    assert {raw: "Bitmap Index Scan on documents_metadata" in p for raw, p in served.items()} == (
        dict.fromkeys(served, True)
    )
    assert not any("Seq Scan" in p for p in served.values())
    assert {row["id"] for row in found} == {
        f"filters-{n}" for n in range(1, ROWS + 1) if n % 3 and (n % 5000 == 77 or n % 4000 == 77)
    }
