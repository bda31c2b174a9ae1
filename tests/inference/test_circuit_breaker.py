"""What does not answer is left alone for a while. Time is what the test says."""

import threading
from datetime import timedelta

import pytest

from recollect.errors import Permanent, Unavailable
from recollect.inference.circuit_breaker import Breaker, Resting


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker("it", failures=3, rest=10, longest=60, clock=clock)


def fail(breaker: Breaker, times: int = 1, error: Unavailable | None = None) -> None:
    """Asked, and it does not answer."""
    told = error or Unavailable("it is down", code="timeout")
    for _ in range(times):
        with pytest.raises(Unavailable) as raised, breaker.guard():
            raise told
        assert raised.value is told


def rests(breaker: Breaker) -> Resting | None:
    """What is said to one more; it answers if it is asked."""
    try:
        with breaker.guard():
            return None
    except Resting as error:
        return error


def test_after_some_failures_in_a_row_it_is_left_alone(breaker: Breaker, clock: Clock):
    fail(breaker, 2)
    assert rests(breaker) is None
    fail(breaker, 3)

    told = rests(breaker)
    assert told is not None
    assert told.code == "timeout"
    assert told.after == timedelta(seconds=10)
    assert "it is down" in str(told)
    clock.now += 9.9
    assert rests(breaker) is not None
    clock.now += 0.2
    assert rests(breaker) is None
    assert rests(breaker) is None


def test_one_is_let_through_to_see_and_the_rest_grows(breaker: Breaker, clock: Clock):
    fail(breaker, 3)
    for seconds in (10, 20, 40, 60, 60):
        told = rests(breaker)
        assert told is not None
        assert told.after == timedelta(seconds=seconds)
        clock.now += seconds
        fail(breaker)
    clock.now += 60
    with breaker.guard():
        assert rests(breaker) is not None  # while somebody looks, nobody else does
    assert rests(breaker) is None
    fail(breaker, 3)
    told = rests(breaker)
    assert told is not None
    assert told.after == timedelta(seconds=10)


def test_a_refusal_is_an_answer(breaker: Breaker, clock: Clock):
    fail(breaker, 2)
    with pytest.raises(Permanent), breaker.guard():
        raise Permanent("not this one")
    fail(breaker, 2)
    assert rests(breaker) is None


def test_a_bug_is_neither_and_does_not_keep_the_place(breaker: Breaker, clock: Clock):
    fail(breaker, 3)
    clock.now += 10
    with pytest.raises(ZeroDivisionError), breaker.guard():
        raise ZeroDivisionError
    assert rests(breaker) is None


def test_who_asks_for_patience_gets_it_within_bounds(breaker: Breaker, clock: Clock):
    fail(breaker, 3, Unavailable("later", code="http_429", after=timedelta(seconds=30)))
    told = rests(breaker)
    assert told is not None
    assert (told.code, told.after) == ("http_429", timedelta(seconds=30))
    clock.now += 30
    fail(breaker, 1, Unavailable("later", after=timedelta(hours=1)))
    told = rests(breaker)
    assert told is not None
    assert told.after == timedelta(seconds=60)


def test_those_under_way_when_it_breaks_do_not_make_it_worse(breaker: Breaker, clock: Clock):
    under_way, over = threading.Barrier(6), threading.Event()

    def hang() -> None:
        under_way.wait(60)
        over.wait(60)
        raise Unavailable("it is down")

    def ask() -> None:
        with pytest.raises(Unavailable), breaker.guard():
            hang()

    threads = [threading.Thread(target=ask) for _ in range(5)]
    for thread in threads:
        thread.start()
    under_way.wait(60)
    over.set()
    for thread in threads:
        thread.join(60)

    told = rests(breaker)
    assert told is not None
    assert told.after == timedelta(seconds=10)
