"""The threshold that callers ask for stands between what belongs together and what does not."""

from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.memories.finding import Compared, likeness
from recollect.memories.forgetting import LEAST, NEIGHBOURS, apart, chances
from recollect.memories.records import Memory

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


# --- forgetting ---------------------------------------------------------------------------------


def compared(*rows: tuple[float | None, float, float]) -> list[Compared]:
    """Cosine, share of the query's words, share of the rare ones."""
    memory = cast(Memory, None)  # what is meant does not depend on it
    return [Compared(memory, *row) for row in rows]


@pytest.mark.parametrize("model", [E5, "local:all-MiniLM-L6-v2", "openai:m"])
def test_what_stands_out_is_meant_and_what_is_near_with_others_is_not(model: str):
    near, far = (0.83, 0.74) if model == E5 else (0.6, 0.1)
    alike = compared(*[(near, 0.3, 0.1)] * 8)
    one = compared((near + 0.06, 0.6, 0.5), *[(near - 0.03, 0.3, 0.1)] * 7)

    assert max(chances(alike, model)) < LEAST
    first, *others = chances(one, model)
    assert first >= LEAST > max(others)
    assert max(chances(compared(*[(far, 0.0, 0.0)] * 8), model)) < 0.1


@pytest.mark.parametrize("model", [E5, "local:all-MiniLM-L6-v2", ""])
def test_a_name_means_all_that_holds_it(model: str):
    cosine = None if not model else 0.82 if model == E5 else 0.5
    named = compared(*[(cosine, 1.0, 1.0)] * 3, *[(cosine, 0.0, 0.0)] * 3)

    found = chances(named, model)

    assert min(found[:3]) >= LEAST > max(found[3:])


@settings(derandomize=True)
@given(st.lists(st.floats(-1, 1), max_size=20))
def test_each_is_compared_with_the_nearest_others(cosines: list[float]):
    found = apart(np.array(cosines, np.float64))

    for place, cosine in enumerate(cosines):
        others = sorted(cosines[:place] + cosines[place + 1 :], reverse=True)[:NEIGHBOURS]
        assert found[place] == pytest.approx(cosine - sum(others) / len(others) if others else 0.0)


def test_nothing_is_compared_with_nothing():
    assert chances([], E5) == []
