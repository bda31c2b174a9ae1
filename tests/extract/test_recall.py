"""Of every kind, the words of a document reach its text."""

import pytest

from tests.extract.recall import FLOORS, MAKERS, measure, recall

LONG = ("picture", "picture of small print", "noisy picture", "scanned pdf")
"""To read pictures takes seconds: of the first and the last `test_image.py` has the like in each
run, and the others are here at once, as a noisy picture of small print."""


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.slow] if kind in LONG else []) for kind in MAKERS],
)
def test_words_of_each_kind_reach_the_text(sandbox, kind):
    assert measure(sandbox, kind) >= FLOORS[kind]


def test_each_kind_has_a_floor():
    assert list(FLOORS) == list(MAKERS)


def test_a_word_counts_as_often_as_it_occurs():
    assert recall("a b b c", "A, b.") == 0.5
    assert recall("a", "b") == 0
