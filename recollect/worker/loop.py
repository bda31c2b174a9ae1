"""The loop under every queue: claim what is due, renew leases while it is worked, let go."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import ClassVar, Generic, TypeVar

from structlog.typing import FilteringBoundLogger

from recollect.app import App
from recollect.db import Tx
from recollect.errors import INTERNAL_ERROR, LeaseLost, RecollectError
from recollect.loop import Loop, enduring, tell_bug
from recollect.model import Failure

SHORTEST_WAIT = timedelta(milliseconds=20)
LONGEST_WISH = timedelta(hours=1)
"""Upper bound of a Retry-After that we honour."""

C = TypeVar("C")


class ClaimLoop(ABC, Generic[C]):
    """Works until `stop` is called; several may run on one database, in any processes.

    A queue says how its rows are claimed, renewed and released, and how one of them is worked.
    """

    name: ClassVar[str]
    """of its threads"""
    log: ClassVar[FilteringBoundLogger]
    grace: timedelta = timedelta(seconds=4)
    """How long a stopping loop waits for what is in flight. A container is killed after ten
    seconds, and what is given back is worked again by others: better too early than not at all."""
    last: timedelta = timedelta(seconds=1)
    """How long it then waits for threads whose claim it has given back."""
    longest_attempt: timedelta = timedelta.max
    """A claim held longer is no longer renewed, so that even a hang ends in another attempt."""

    def __init__(self, app: App, places: int) -> None:
        self._app = app
        self._stop = threading.Event()
        self._wake = threading.Event()
        # By claim, not by row: after a long outage we may hold a row twice, once in vain.
        self._held: dict[Hashable, tuple[C, float]] = {}
        self._held_lock = threading.Lock()
        self._pool = ThreadPoolExecutor(places, self.name)

    # --- what a queue says -----------------------------------------------------------------------

    @abstractmethod
    def claim(self) -> Sequence[C]:
        """Take what is due, as much as there is room for."""

    @abstractmethod
    def key(self, claim: C) -> Hashable:
        """What tells this claim from all others."""

    @abstractmethod
    def work(self, claim: C) -> None:
        """Work on it and write the outcome down; in a thread of its own, may raise nothing."""

    def between(self) -> timedelta:
        """What else is done after each claim; returns how long to wait for the next."""
        return SHORTEST_WAIT

    def renew(self, tx: Tx, held: Sequence[C]) -> None:
        """Renew the leases of what is held."""

    def release(self, tx: Tx, left: Sequence[C]) -> None:
        """Give back what is still held at the end, for others to take at once."""

    def leave(self) -> None:
        """Told once that it stops: end what holds up work in flight."""

    def helpers(self) -> dict[str, Callable[[], object]]:
        """Other loops that run beside this one, by name."""
        return {"heed": partial(self._app.db.heed, self._wake, self._stop)}

    # --- the loop --------------------------------------------------------------------------------

    def stop(self) -> None:
        """Ask it to end; what is unfinished is done later. Safe in a signal handler."""
        self._stop.set()
        self._wake.set()

    def run(self) -> None:
        """Until stopped; an unreachable database is waited for."""
        beat = {f"{self.name}-heartbeat": self._beat}
        helpers = [Loop(target, name) for name, target in (self.helpers() | beat).items()]
        for helper in helpers:
            helper.start()
        while not self._stop.is_set():
            self._wake.clear()
            with enduring(self.log, self._stop):
                claims, now = self.claim(), time.monotonic()
                with self._held_lock:
                    self._held.update((self.key(claim), (claim, now)) for claim in claims)
                self.start_all(claims)
            if self._stop.is_set():  # a database that is away is waited for, but once
                break
            self._wake.wait(self.between().total_seconds())
        self._let_go()
        # Who hangs, in a request to a model for one, holds no claim any more.
        self._pool.shutdown(wait=not self.held(), cancel_futures=True)
        end = time.monotonic() + self.last.total_seconds()
        for helper in helpers:
            helper.join(max(0.0, end - time.monotonic()))

    def start_all(self, claims: Sequence[C]) -> None:
        for claim in claims:
            self.start(claim)

    def start(self, claim: C) -> None:
        """Work on it beside the loop."""
        self._pool.submit(self._worked, claim)

    def held(self) -> list[C]:
        """What this process works on now."""
        with self._held_lock:
            return [claim for claim, _ in self._held.values()]

    def _worked(self, claim: C) -> None:
        with self._working([claim]):
            self.work(claim)

    @contextmanager
    def _working(self, claims: Sequence[C]) -> Generator[None]:
        """In a thread: inside, they are worked; then they are held no longer."""
        try:
            with enduring(self.log):
                yield
        finally:
            with self._held_lock:
                for claim in claims:
                    self._held.pop(self.key(claim), None)
            self._wake.set()

    def _beat(self) -> None:
        """Renew leases from a thread of its own: long work needs no long lease."""
        while not self._stop.wait(self._app.config.lease_seconds / 3):
            oldest = time.monotonic() - self.longest_attempt.total_seconds()
            with self._held_lock:
                held = [claim for claim, since in self._held.values() if since > oldest]
            if held:
                with enduring(self.log), self._app.db.begin() as tx:
                    self.renew(tx, held)

    def _let_go(self) -> None:
        """Wait a while for what is in flight; give back the rest."""
        self.leave()
        self._await_held(self.grace)
        if left := self.held():
            # Where the database is away, they run out by themselves.
            with enduring(self.log), self._app.db.begin() as tx:
                self.release(tx, left)
            self._await_held(self.last)

    def _await_held(self, most: timedelta) -> None:
        end = time.monotonic() + most.total_seconds()
        while self.held() and (rest := end - time.monotonic()) > 0:
            self._wake.wait(min(rest, 0.05))
            self._wake.clear()


def own_failure(log: FilteringBoundLogger, error: BaseException) -> Failure:
    """Of an error that is a bug of ours: its traceback is logged, its type is told."""
    tell_bug(log, error)
    told = str(error) if isinstance(error, RecollectError) else type(error).__name__
    return Failure(INTERNAL_ERROR, f"an error in Recollect itself: {told}")


def written(app: App, write: Callable[[Tx], object]) -> bool:
    """Write an outcome down in a transaction of its own; whether the claim was still ours."""
    try:
        with app.db.begin() as tx:
            write(tx)
    except LeaseLost:
        return False
    return True
