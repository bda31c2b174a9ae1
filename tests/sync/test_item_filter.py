"""What the patterns of a filter admit, and that many long ones take no longer than they are."""

import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from recollect.connectors.base import Item
from recollect.sync.item_filter import open_gate, refusal

TITLED = {"includeItems": {"titlePatterns": ["report*"]}, "excludeItems": None}


def admits(pattern: str, text: str) -> bool:
    only = {"urlPatterns": [pattern], "titlePatterns": []}
    return refusal({"includeItems": only, "excludeItems": None})("", text) is None


@given(st.text("aB*.", max_size=8), st.text("abB.\n", max_size=10))
@example("a*a", "a")
@example("a*ab*b", "ab")
@example("*ab*ba*", "aba")
def test_a_pattern_admits_what_its_words_say(pattern: str, text: str):
    said = ".*".join(re.escape(part) for part in pattern.split("*"))

    assert admits(pattern, text) is bool(re.fullmatch(said, text, re.DOTALL | re.IGNORECASE))


@pytest.mark.parametrize(
    ("pattern", "text"),
    [("*STRASSE*", "Hauptstraße 3"), ("ΟΔΟΣ", "οδος"), ("*İ", "xi\u0307"), ("K*", "\u212a1")],
)
def test_case_does_not_matter_in_any_script(pattern: str, text: str):
    assert admits(pattern, text)


def test_a_thing_without_a_title_matches_no_pattern_for_titles():
    refuse = refusal(TITLED)

    assert refuse("", "https://e.org/a") == "includeItems: no pattern matches"
    assert refuse("Report 3", "https://e.org/a") is None


def test_a_title_that_is_not_known_yet_is_no_reason():
    refuse = refusal(TITLED)

    assert refuse(None, "https://e.org/a") is None
    both = {"titlePatterns": [], "urlPatterns": ["*/b"]}
    assert refusal({"includeItems": both, "excludeItems": None})(None, "https://e.org/a")


def test_the_gate_knows_an_untitled_thing_from_one_that_nobody_has_looked_at():
    gate = open_gate({**TITLED, "shouldLLMFilter": False, "filterPrompt": None}, None)

    seen = gate.rule(Item("page", "v1", url="https://e.org/a"))
    assert seen is not None
    assert seen.reason == "includeItems: no pattern matches"
    assert gate.rule(Item("page", "", url="https://e.org/a")) is None


@pytest.mark.parametrize("length", [2_000, 4_000])
def test_the_most_and_longest_patterns_are_tried_at_once(length: int):
    """One page took 177 s of them."""
    wide = ["*" + "a*" * 498 + "b" for _ in range(500)]
    long = ["*" + "a" * 499 + "b" + "a" * 498 + "*" for _ in range(500)]
    both = {"urlPatterns": wide + long, "titlePatterns": long + wide}
    began = time.process_time()

    refuse = refusal({"includeItems": both, "excludeItems": both})
    assert refuse("a" * length, "a" * length)
    assert time.process_time() - began < 20
