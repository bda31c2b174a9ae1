"""The line before the heavy child: who stands in it holds a worker's place, so it is short."""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta

from recollect.errors import Parked

SOONEST = 5.0
LATEST = 600.0
"""seconds after which who was sent away may come back"""


class HeavyQueue:
    """Up to `places` callers stand in line, the one who is served included; None: all may.

    The others are sent away with Parked, each until a moment of its own. They come back one by one,
    so the child is not idle, and no document is sent away again and again.
    """

    def __init__(
        self, places: int | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._places = places
        self._lock = threading.Lock()
        self._standing = 0
        self._mine = threading.local()
        self._away: list[float] = []
        """when those come back who were sent away; who comes again counts once"""
        self._clock = clock
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
        started = self._clock()
        try:
            yield
        finally:
            self._mine.stands = False
            with self._lock:
                self._takes += ((self._clock() - started) / self._standing - self._takes) / 4
                self._standing -= 1

    def _enter(self) -> None:
        with self._lock:
            if self._places is None or self._standing < self._places:
                self._standing += 1
                return
            now = self._clock()
            # The first moment that no other caller has; one who came back in vain gets one, too.
            self._away = sorted(due for due in self._away if due > now)
            takes = max(SOONEST, self._takes)
            free = now + takes
            for due in self._away:
                if due - free >= takes:
                    break
                free = max(free, due + takes)
            wait = min(LATEST, free - now)
            self._away.append(now + wait)
        raise Parked(
            "It waits for its turn: pictures and recordings are read one at a time, and others"
            " came before it.",
            code="waiting_for_turn",
            after=timedelta(seconds=wait),
        )
