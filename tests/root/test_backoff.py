"""How long is waited between tries."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.db import Database, leases
from recollect.loop import backoff

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


def test_it_grows_from_the_first_rest_to_the_longest():
    rests = [backoff(n, 5 * SECOND, MINUTE).total_seconds() for n in range(1, 8)]

    assert rests == [5, 10, 20, 40, 60, 60, 60]
    assert backoff(2, 15 * SECOND, MINUTE, factor=4.0) == MINUTE


@pytest.mark.parametrize("failures", [0, 1, 5, 9, 1_000])
def test_it_grows_alike_in_a_statement(db: Database, failures: int):
    with db.begin() as tx:
        row = tx.execute(
            "select "
            + leases.backoff("%(failures)s::int", "interval '5 seconds'", "interval '5 minutes'")
            + " as rest",
            {"failures": failures},
        ).fetchone()

    assert row == {"rest": backoff(failures + 1, 5 * SECOND, 5 * MINUTE)}


@given(failures=st.integers(1, 10**9))
def test_any_number_of_failures_has_one(failures: int):
    rest = backoff(failures, SECOND, MINUTE, jitter=(0.5, 1.0))

    assert SECOND / 2 <= rest <= MINUTE
