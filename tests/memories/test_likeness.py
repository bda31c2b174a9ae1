"""The threshold that callers ask for stands between what belongs together and what does not."""

import pytest

from recollect.memories.memories import likeness

E5 = "local:multilingual-e5-small-q4"


@pytest.mark.parametrize(
    ("model", "alike", "unlike"),
    [(E5, 0.795, 0.775), ("local:all-MiniLM-L6-v2", 0.4, 0.25), ("openai:m", 0.4, 0.25)],
)
def test_the_threshold_stands_between_alike_and_unlike(model: str, alike: float, unlike: float):
    assert likeness(unlike, 0, model) < 0.6 <= likeness(alike, 0, model)


@pytest.mark.parametrize("model", [E5, "openai:m"])
def test_likeness_rises_with_the_cosine_and_stays_in_bounds(model: str):
    found = [likeness(cosine / 100, 0, model) for cosine in range(-100, 101)]

    assert found == sorted(found)
    assert (found[0], found[-1]) == (0, 1)
    assert likeness(0.9, 0, model) < likeness(0.95, 0, model)
