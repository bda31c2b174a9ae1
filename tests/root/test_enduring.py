"""What the rounds of a loop say of the trouble that they meet."""

import pytest

from recollect import log, loop
from recollect.errors import DatabaseAway
from tests.conftest import capture_logs

SYNCS, WORKER = log.get("syncs"), log.get("worker")


def test_trouble_that_stays_is_told_once_a_minute(monkeypatch: pytest.MonkeyPatch):
    """A role that may not log in was told of twice a second, for as long as it lasted."""
    with capture_logs() as lines:
        rounds = [(SYNCS, "refused"), (WORKER, "refused"), (SYNCS.bind(hook="a"), "refused")]
        rounds = [*rounds, (SYNCS, "away"), *rounds]
        for logger, words in rounds:
            with loop.enduring(logger):
                raise DatabaseAway(f"{words} by test_enduring")
        told = len(lines)
        monkeypatch.setattr(loop, "QUIET", 0)
        for logger, words in rounds:
            with loop.enduring(logger):
                raise DatabaseAway(f"{words} by test_enduring")

    assert told == 4
    assert len(lines) == 4 + len(rounds)
