"""Leaving alone what does not answer, for what someone waits for and can do without.

A search whose reranker hangs would wait out the timeout each time. After some failures in a row
all others are refused at once for a while; then one is let through, to see. Each process finds
out for itself.
"""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta

from recollect import log
from recollect.errors import RecollectError, Unavailable
from recollect.loop import backoff

FAILURES = 3
"""in a row, until it is left alone"""
FIRST_REST = 10.0
LONGEST_REST = 120.0
"""Seconds that it is left alone: 10, 20, 40 … while it stays down."""

_log = log.get("breaker")


class Resting(Unavailable):
    """It gave no answer lately and is not asked now; `code` says why, `after` for how long."""


class Breaker:
    """Of one dependency; shared by threads."""

    def __init__(
        self,
        name: str,
        *,
        failures: int = FAILURES,
        rest: float = FIRST_REST,
        longest: float = LONGEST_REST,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`name` is for the log, `rest` and `longest` are seconds, `clock` tells seconds."""
        self._name = name
        self._most = failures
        self._first = rest
        self._longest = longest
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._rests = 0
        """in a row; 0: it is asked"""
        self._until = 0.0
        self._trying = False
        self._last: Unavailable | None = None

    @contextmanager
    def guard(self) -> Generator[None]:
        """Around one question. Raises Resting in its place, and passes on what it raises.

        Unavailable is a failure; any other error of ours is an answer.
        """
        trial = self._enter()
        try:
            yield
        except Unavailable as error:
            self._failed(error, trial=trial)
            raise
        except RecollectError:
            self._answered()
            raise
        except BaseException:
            self._broke_off(trial=trial)
            raise
        else:
            self._answered()

    def check(self) -> None:
        """Raises Resting where a question would be refused."""
        with self._lock:
            if self._rests and (self._trying or self._left() > 0):
                raise self._resting()

    def _enter(self) -> bool:
        """Whether this question is the one that is let through."""
        with self._lock:
            if not self._rests:
                return False
            if self._trying or self._left() > 0:
                raise self._resting()
            self._trying = True
            return True

    def _left(self) -> float:
        return self._until - self._clock()

    def _resting(self) -> Resting:
        assert self._last is not None
        return Resting(
            f"{self._last}; it gets no requests for a while",
            code=self._last.code,
            after=timedelta(seconds=max(self._left(), 0.0)),
        )

    def _failed(self, error: Unavailable, *, trial: bool) -> None:
        with self._lock:
            self._failures += 1
            if trial:
                self._trying = False
            # Of those that were under way when the rest began, none makes it longer.
            if self._failures < self._most or (self._rests and not trial):
                return
            self._rests += 1
            longest = timedelta(seconds=self._longest)
            grown = backoff(self._rests, timedelta(seconds=self._first), longest)
            seconds = min(max(grown, error.after or _NONE), longest).total_seconds()
            self._until = self._clock() + seconds
            self._last = error
        _log.warning("left alone", of=self._name, code=error.code, seconds=seconds)

    def _answered(self) -> None:
        with self._lock:
            again = self._rests > 0
            self._failures = self._rests = 0
            self._trying = False
        if again:
            _log.info("answers again", of=self._name)

    def _broke_off(self, *, trial: bool) -> None:
        if trial:
            with self._lock:
                self._trying = False


_NONE = timedelta()
