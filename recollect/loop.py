"""Loops that go on until they are told to stop, whatever a round of theirs meets.

`enduring` is around one round, `settled` around the writing down of an outcome, `backoff` between
tries. A `Loop` that ends all the same ends its process (`ending_with_loops`), so that its
supervisor starts it again.
"""

import random
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

import structlog
from structlog.typing import FilteringBoundLogger

from recollect.errors import Contended, Transient, Unavailable
from recollect.log import trace

BREATH = 1.0
"""Seconds of rest after a bug, so that a loop that is woken often does not spin."""
QUIET = 60.0
"""Seconds in which the same trouble is not logged again."""
MOST_WRITES = 5
"""How often an outcome is written down whose transaction the database gives up each time."""

T = TypeVar("T")
_TOLD: dict[str, float] = {}
"""What this process has told lately, and when."""


def backoff(
    failures: int,
    first: timedelta,
    longest: timedelta = timedelta.max,
    *,
    factor: float = 2.0,
    jitter: tuple[float, float] = (1.0, 1.0),
) -> timedelta:
    """How long to rest after so many failures in a row: `first` after the first one, then `factor`
    times as long each time, up to `longest`; times something between the bounds of `jitter`."""
    grown = first.total_seconds() * factor ** min(failures - 1, 60)
    chance = random.uniform(*jitter)  # noqa: S311 # no secret
    return timedelta(seconds=min(grown, longest.total_seconds()) * chance)


class Loop(threading.Thread):
    """A daemon thread whose `target` ends only when it was told to."""

    def __init__(self, target: Callable[[], object], name: str) -> None:
        super().__init__(target=target, name=name, daemon=True)


@contextmanager
def enduring(log: FilteringBoundLogger, stop: threading.Event | None = None) -> Generator[None]:
    """One round: trouble that passes is a warning, everything else a bug that is logged.

    The same trouble is told once in `QUIET` seconds. With `stop`, a bug is followed by a breath,
    unless it is time to end.
    """
    try:
        yield
    except Transient as error:
        if _is_news(log, error):
            log.warning("waiting", code=error.code, error=str(error))
    except Exception as error:  # noqa: BLE001 # the loop is for all, the bug for one
        tell_bug(log, error)
        if stop is not None:
            stop.wait(BREATH)


def _is_news(log: FilteringBoundLogger, error: Transient) -> bool:
    """Whether nobody has told the same for a while; a database may be away for hours."""
    trouble, now = f"{structlog.get_context(log.bind())} {error}", time.monotonic()
    for told in [one for one, moment in list(_TOLD.items()) if now - moment >= QUIET]:
        _TOLD.pop(told, None)
    return _TOLD.setdefault(trouble, now) == now


def settled(
    settle: Callable[[T | Exception], object],
    outcome: T | Exception,
    log: FilteringBoundLogger,
    stop: threading.Event,
) -> bool:
    """Write an outcome down; while the database is away, wait for it rather than forget it.

    An outcome that cannot be written becomes one of its own, of which that is the reason. False if
    nothing could be written, or it is time to end: then the lease runs out by itself.
    """
    tries, again = 0, False
    while True:
        try:
            settle(outcome)
        except Unavailable as error:
            tries += isinstance(error, Contended)
            if tries >= MOST_WRITES:
                log.warning("outcome not written down", error=str(error))
                return False
            if stop.wait(1):
                return False
        except Exception as error:  # noqa: BLE001 # nobody looks at what a thread raises
            tell_bug(log, error)
            if again:
                return False
            outcome, again = error, True
        else:
            return True


def tell_bug(log: FilteringBoundLogger, error: BaseException) -> None:
    log.error("bug", traceback=trace(error))


@contextmanager
def ending_with_loops(
    log: FilteringBoundLogger, stop: Callable[[], object]
) -> Generator[threading.Event]:
    """Inside, `stop` is called when a `Loop` ends by an error; yields whether one did.

    Other threads that end by an error are logged, too.
    """
    died, before = threading.Event(), threading.excepthook

    def told(ended: threading.ExceptHookArgs) -> None:
        if ended.exc_value is not None:
            tell_bug(log, ended.exc_value)
        if isinstance(ended.thread, Loop):
            log.error("a loop ended; the process ends with it", loop=ended.thread.name)
            died.set()
            stop()

    threading.excepthook = told
    try:
        yield died
    finally:
        threading.excepthook = before
