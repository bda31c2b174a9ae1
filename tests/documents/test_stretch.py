"""Long texts in stretches mean the same as whole."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.documents import stretch

LONG = "x" * (stretch.LENGTH - 3)
TEXTS = st.lists(st.sampled_from(["\n", "a\n", "", "b", "\n\n", LONG]), max_size=6).map("".join)


@given(TEXTS)
def test_lines_are_those_of_the_whole(text: str):
    assert list(stretch.lines(text)) == text.split("\n")


@given(TEXTS)
def test_stretches_are_the_text_and_end_with_a_line(text: str):
    parts = [text[start:end] for start, end in stretch.stretches(text)]

    assert "".join(parts) == text
    assert all(part.endswith("\n") for part in parts[:-1])


@pytest.mark.parametrize("pattern", [r"^b.*$", r"^\w+$", r"a$"])
@given(text=TEXTS)
def test_matches_are_those_of_the_whole(pattern: str, text: str):
    compiled = re.compile(pattern, re.MULTILINE)
    whole = [match.span() for match in compiled.finditer(text)]

    assert [match.span() for match in stretch.find(compiled, text)] == whole
