"""How long is waited between tries."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from recollect.loop import backoff

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


def test_it_grows_from_the_first_rest_to_the_longest():
    rests = [backoff(n, 5 * SECOND, MINUTE).total_seconds() for n in range(1, 8)]

    assert rests == [5, 10, 20, 40, 60, 60, 60]
    assert backoff(2, 15 * SECOND, MINUTE, factor=4.0) == MINUTE


@given(failures=st.integers(1, 10**9))
def test_any_number_of_failures_has_one(failures: int):
    rest = backoff(failures, SECOND, MINUTE, jitter=(0.5, 1.0))

    assert SECOND / 2 <= rest <= MINUTE
