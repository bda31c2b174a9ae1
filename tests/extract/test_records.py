"""JSON and JSON Lines: every value says what it is the value of."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.errors import Permanent
from recollect.extract.text import records
from recollect.model import Blob

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def test_each_record_of_an_array_is_a_block_of_paths_and_values(read):
    data = [
        {"name": "Anna", "address": {"city": "Köln", "zip": "01234"}, "tags": ["a", "b"]},
        {"name": "Bert", "age": 40, "retired": False, "note": None, "kids": [{"name": "Cleo"}]},
    ]

    assert read(json.dumps(data), "people.json").text == (
        "name: Anna\naddress.city: Köln\naddress.zip: 01234\ntags: a, b\n\n"
        "name: Bert\nage: 40\nretired: false\nkids[0].name: Cleo"
    )


def test_arrays_of_an_object_are_records_too(read):
    data = {"version": 1.10, "people": [{"name": "Anna"}, {"name": "Bert"}], "end": "yes"}

    assert read(json.dumps(data).replace("1.1,", "1.10,"), "people.json").text == (
        "version: 1.10\n\npeople[0].name: Anna\n\npeople[1].name: Bert\n\nend: yes"
    )


def test_each_line_is_a_record(read):
    lines = '{"a": 1, "b": "x\\ny"}\n\n{"a": 2}\n{"a": 3\n'
    extracted = read(lines, "a.jsonl")

    assert extracted.text == 'a: 1\nb: x\ny\n\na: 2\n\n{"a": 3'
    assert "1 line of it is not valid JSON" in extracted.warnings[0]


def test_lines_are_found_under_the_other_name_too(read):
    assert read('{"a": 1}\n{"a": 2}\n', "a.json").text == "a: 1\n\na: 2"


def test_what_is_no_json_is_read_as_text_with_a_warning(read):
    extracted = read('{\n  "a": 1, // a comment\n}', "tsconfig.json")

    assert extracted.text == '{\n  "a": 1, // a comment\n}'
    assert "not valid JSON (line 2" in extracted.warnings[0]


@pytest.mark.parametrize("data", ["", " ", "[]", "{}", "null", '""', "[[], {}]", '{"a": []}'])
def test_nothing_is_an_empty_text(read, data):
    assert read(data, "a.json").text == ""


def test_a_number_keeps_all_its_digits(read):
    assert read("[" + "9" * 5000 + "]", "a.json").text == "9" * 5000


def test_nesting_without_end_is_refused(read):
    with pytest.raises(Permanent, match="nested too deeply") as caught:
        read("[" * 100_000, "a.json")

    assert caught.value.code == "unreadable_content"


@pytest.mark.slow
def test_50_megabytes_of_small_records_are_read_within_the_limits(read):
    data = b"[" + b'{"a":[[],{}],"b":1},' * 2_500_000 + b'{"a":2}]'
    extracted = read(data, "a.json")

    assert extracted.text.startswith("b: 1\n\nb: 1")


@given(values)
def test_no_value_is_lost(data):
    text = records.extract(Blob(json.dumps(data).encode(), name="a.json")).text

    def leaves(value):
        if isinstance(value, dict):
            for part in value.values():
                yield from leaves(part)
        elif isinstance(value, list):
            for part in value:
                yield from leaves(part)
        elif isinstance(value, str):
            yield value.strip()
        elif value is not None:
            yield json.dumps(value)

    assert all(leaf in text for leaf in leaves(data))


@given(st.text(alphabet=st.sampled_from('[]{}:,"a1 \n\\')))
def test_any_text_is_read_as_what_it_is(text):
    try:
        json.loads(text)
        valid = True
    except ValueError:
        valid = False
    warned = bool(records.extract(Blob(text.encode(), name="a.json")).warnings)

    assert not (valid and warned)
