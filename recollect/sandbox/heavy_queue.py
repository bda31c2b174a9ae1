"""The line before the heavy child: who stands in it holds a worker's place, so it is short."""

import threading
import time
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta

from recollect.errors import Parked

SOONEST = 5.0
LATEST = 600.0
"""seconds after which who was sent away may come back"""


class HeavyQueue:
    """Up to `places` callers stand in line, the one who is served included; None: all may.

    The others are sent away with Parked, each for as long as those sent away before it may need:
    then they come back one by one, and neither is the child idle nor is a document read ever again.
    """

    def __init__(self, places: int | None = None) -> None:
        self._places = places
        self._lock = threading.Lock()
        self._standing = 0
        self._mine = threading.local()
        self._away: deque[float] = deque()
        """when someone was sent away, of late"""
        self._takes = SOONEST
        """seconds that one takes; a running mean"""

    @contextmanager
    def join(self) -> Generator[None]:
        """Stand in line until the end of the block, once per thread; raises Parked."""
        if getattr(self._mine, "stands", False):
            yield
            return
        self._enter()
        self._mine.stands = True
        started = time.monotonic()
        try:
            yield
        finally:
            self._mine.stands = False
            with self._lock:
                self._takes += ((time.monotonic() - started) / self._standing - self._takes) / 4
                self._standing -= 1

    def _enter(self) -> None:
        with self._lock:
            if self._places is None or self._standing < self._places:
                self._standing += 1
                return
            now = time.monotonic()
            while self._away and self._away[0] < now - LATEST:
                self._away.popleft()
            self._away.append(now)
            wait = min(LATEST, max(SOONEST, len(self._away) * self._takes))
        raise Parked(
            "It waits for its turn: pictures and recordings are read one at a time, and others"
            " came before it.",
            code="waiting_for_turn",
            after=timedelta(seconds=wait),
        )
