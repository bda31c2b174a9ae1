"""Each piece of text knows where it stood, also after the text was cleaned."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.extract import clean
from recollect.extract._places import Places
from recollect.extract._text import clean_placed
from recollect.extract._wire import Stretch
from recollect.model import Blob, Place

pieces = st.lists(
    st.text(alphabet=st.sampled_from("ab \t\r\n\v\f\x00\x85\ud800\u200b\u200d\ufeffé\U000e0067")),
    max_size=8,
)
spots = st.dictionaries(
    st.sampled_from(["page", "row", "sheet", "time"]),
    st.one_of(st.integers(1, 9), st.floats(0, 9), st.sampled_from("xy")),
    min_size=1,
    max_size=2,
)


@given(pieces)
def test_a_place_stays_with_its_text(pieces):
    # A letter that occurs nowhere else begins each piece.
    marked = [f"{chr(ord('Ⅰ') + number)}{piece}" for number, piece in enumerate(pieces)]
    starts = [sum(map(len, marked[:number])) for number in range(len(marked))]
    text, moved = clean_placed("".join(marked), starts)

    assert text == clean("".join(marked))
    assert [text[start] for start in moved] == [piece[0] for piece in marked]


@given(pieces)
def test_a_place_anywhere_stays_in_order_and_within_the_text(pieces):
    starts = [sum(map(len, pieces[:number])) for number in range(len(pieces))]
    text, moved = clean_placed("".join(pieces), starts)

    assert list(moved) == sorted(moved)
    assert all(0 <= start <= len(text) for start in moved)


@given(st.lists(st.tuples(st.integers(0, 5), spots)))
def test_places_come_back_as_they_were_packed(steps):
    places, start = [], 0
    for step, at in steps:
        start += step
        places.append(Place(start, at))
    packed = Places.of(places)

    assert list(Places.unpack(packed.pack())) == places
    assert [packed[-number] for number in range(len(places), 0, -1)] == places
    assert packed[1:-1] == places[1:-1]


def test_a_million_rows_are_one_stretch_of_twelve_bytes_each():
    places = Places()
    for row in range(1_000_000):
        places.add(5 * row, {"sheet": "Q1", "row": row})
    (stretch,) = places.pack()

    assert len(stretch.starts) + len(stretch.numbers) == 12_000_000
    assert places[999_999] == Place(4_999_995, {"sheet": "Q1", "row": 999_999})


def test_places_out_of_order_are_a_mistake():
    with pytest.raises(ValueError, match="comes after"):
        Places.of([Place(3, {"page": 1}), Place(2, {"page": 2})])


@given(st.binary(max_size=30), st.binary(max_size=30), st.booleans())
def test_a_child_that_lies_about_places_harms_nothing(starts, numbers, whole):
    places = Places.unpack([Stretch({"a": "b"}, "row", whole, starts, numbers)])

    assert len(list(places)) == len(places)


def test_places_without_text_are_dropped_and_of_several_the_last_remains(read):
    read_places = read("a\n\n\n", "a.csv").places

    assert list(read_places) == [Place(0, {"row": 1})]
    moved = Places.of([Place(0, {"page": 1}), Place(0, {"page": 2}), Place(9, {"page": 3})])
    assert list(moved.moved([0, 0, 9], 9)) == [Place(0, {"page": 2})]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_each_row_of_a_table_has_its_number(read, name):
    table = 'name,city\nAnna,"Bonn\u200b\n am Rhein"\n\nBert,\x07Rome the eternal city\n'
    extracted = read(table.replace(",", "\t") if name.endswith("tsv") else table, name)
    lines = extracted.text.splitlines()

    assert [dict(place.at) for place in extracted.places] == [{"row": 2}, {"row": 4}]
    assert [extracted.text[place.start :].splitlines()[0] for place in extracted.places] == lines
    assert lines == ["name: Anna; city: Bonn am Rhein", "name: Bert; city: Rome the eternal city"]


def test_a_text_without_parts_has_no_places(read):
    assert list(read("just words", "a.txt").places) == []


def test_a_cut_text_has_no_places_beyond_its_end(strict):
    table = "name,city\n" + "Anna,Bonn\n" * 500
    extracted = strict.extract(Blob(table.encode(), name="a.csv"))

    assert len(extracted.text) == 1000
    assert extracted.places[-1].start < 1000
    assert len(extracted.places) == 1000 // len("name: Anna; city: Bonn\n") + 1
