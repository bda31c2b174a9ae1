"""Things that are broken, and a provider that is down."""

import pytest

from recollect.connectors import api
from recollect.connectors.api import PROVIDER_UNAVAILABLE, Patience, Turning
from recollect.errors import Transient

HANGS = Transient("no answer", code=PROVIDER_UNAVAILABLE)


def test_things_that_give_no_answer_for_long_end_the_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "LONGEST_TROUBLE", 0.0)
    patience = Patience(lambda: None)

    for _ in range(5):
        patience.failed(HANGS)
        patience.succeeded()
    patience.failed(HANGS)
    with pytest.raises(Transient):
        patience.failed(HANGS)


def test_of_many_that_fail_at_once_a_hundred_end_the_sync() -> None:
    asked: list[int] = []
    patience = Patience(lambda: asked.append(1))

    for _ in range(api.MOST_FAILURES):
        patience.failed(HANGS)
    with pytest.raises(Transient):
        patience.failed(HANGS)
    assert len(asked) == api.MOST_FAILURES // api.PATIENCE


def test_pages_that_bring_something_new_now_and_then_are_turned_for_long() -> None:
    turning = Turning("Anyone")

    for at in range(3 * api.MOST_EMPTY_PAGES):
        ids = [at] if at % (api.MOST_EMPTY_PAGES - 1) == 0 else []
        assert turning.turn(f"page {at}", ids) == f"page {at}"
    assert turning.turn(None, []) is None


def test_a_few_pages_by_turns_are_no_news() -> None:
    turning = Turning("Anyone")

    for at in range(api.MOST_IDLE_PAGES + 2):
        turning.turn(f"page {at}", [at % 3, "same"])
        turning.turn(f"page {at} and a half", [])
    with pytest.raises(Transient, match="without anything new"):
        turning.turn("one more", [0, "same"])


def test_empty_pages_without_an_end_are_turned_no_more() -> None:
    turning = Turning("Anyone")

    for at in range(api.MOST_EMPTY_PAGES - 1):
        turning.turn(f"page {at}", [])
    with pytest.raises(Transient, match="20,000 pages in a row without anything new"):
        turning.turn("one more", [])


def test_a_token_that_came_before_is_a_circle() -> None:
    turning = Turning("Anyone", "first")

    turning.turn("second", [1])
    with pytest.raises(Transient, match="in a circle"):
        turning.turn("first", [2])
