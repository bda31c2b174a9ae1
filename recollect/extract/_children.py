"""The children that read files, from their birth to their end."""

import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from recollect.errors import Transient, Unavailable
from recollect.extract._answers import Limits
from recollect.extract._wire import Birth, Ready, Setup, pack
from recollect.model import Blob
from recollect.sandbox.pipes import Late, PipeClosed, is_readable, receive
from recollect.sandbox.processes import (
    ReadingChild,
    Zygote,
    end_zygote,
    fork_child,
    last_words,
    launch,
)

_START_SECONDS = 60
_HEAVY_NICENESS = 10
_PROGRAM = "from recollect.extract._child import serve; serve()"


class Children:
    """Those at rest, a spare one, and the zygotes that fork them. Threads may share it.

    Of those that read files of owners, `most_resting` are kept for more.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        packages: Sequence[str],
        readable: Sequence[str],
        confined: bool,
        most_resting: int,
    ) -> None:
        self.closed = False
        self.layers: tuple[str, ...] | None = None
        """that confine them, once one was there"""
        self._limits = limits
        self._packages = tuple(packages)
        self._readable = tuple(readable)
        self._confined = confined
        self._most_resting = most_resting
        self._lock = threading.Lock()
        self._zygotes: dict[bool, Zygote] = {}
        """by whether they are for heavy work"""
        self._resting: list[ReadingChild] = []
        """which have read a part of a recording, or a file of an owner, and may be given more"""
        self._spare: ReadingChild | None = None
        """one that has read nothing, so that the next file need not wait for it"""

    def close(self) -> None:
        """End all, also those at work."""
        with self._lock:
            self.closed = True
            zygotes, self._zygotes = list(self._zygotes.values()), {}
            resting, self._resting = self._resting, []
            if self._spare:
                resting.append(self._spare)
                self._spare = None
        for child in resting:
            end(child)
        for zygote in zygotes:
            end_zygote(zygote)

    def take(
        self, birth: Birth, blob: Blob, owner: str | None, *, heavy: bool, again: bool
    ) -> ReadingChild:
        """One that has read nothing, or nothing but this very blob or files of this owner; with
        `again`, a new one."""

        def fits(one: ReadingChild) -> bool:
            if one.heavy != heavy:
                return False
            same = owner is not None and one.owner == owner and not again
            return one.blob is blob or (same and one.has.issuperset(birth.loads))

        with self._lock:
            ended = [child for child in self._resting if is_readable(child.line)]
            self._resting = [child for child in self._resting if child not in ended]
            found = next((one for one in reversed(self._resting) if fits(one)), None)
            if found:
                self._resting.remove(found)
        for child in ended:
            end(child)
        if found:
            found.blob = blob
            return found
        child = self.new(birth, heavy=heavy) if again or heavy else self._ready(birth)
        child.blob, child.owner = blob, owner
        return child

    def new(self, birth: Birth, *, heavy: bool) -> ReadingChild:
        """Raises Unavailable if it does not start, or a reader does not load."""
        return self._born(None, birth, heavy=heavy)

    def rest(self, child: ReadingChild) -> None:
        """Keep it for what comes next; no more than may work at once."""
        surplus = [child]
        with self._lock:
            if not self.closed:
                child.rested = True
                self._resting.append(child)
                surplus = [one for one in self._resting if one.owner][: -self._most_resting]
                self._resting = [one for one in self._resting if one not in surplus]
        for one in surplus:
            end(one)

    def _ready(self, birth: Birth) -> ReadingChild:
        """The spare one, or a new one; the next spare one is made while it works."""
        with self._lock:
            spare, self._spare = self._spare, None
        if spare and not spare.has.issuperset(birth.loads):
            end(spare)
            spare = None
        child = self._born(spare, birth, heavy=False)
        same = Birth(tuple(child.has), birth.extractors)
        next_one = None
        with suppress(Transient):  # then the next file has to wait for one
            zygote, _ = self._zygote(heavy=False)
            next_one = fork_child(zygote, pack(same), same.loads, heavy=False)
            # It may end for lack of work.
            next_one.rested = True
        with self._lock:
            if self._spare is None and not self.closed:
                self._spare, next_one = next_one, None
        if next_one:
            end(next_one)
        return child

    def _born(self, child: ReadingChild | None, birth: Birth, *, heavy: bool) -> ReadingChild:
        """The same, or a new one, when it is confined."""
        while True:
            zygote, is_new = self._zygote(heavy=heavy)
            was_there = child is not None or not is_new
            child = child or fork_child(zygote, pack(birth), birth.loads, heavy=heavy)
            deadline = time.monotonic() + _START_SECONDS
            try:
                ready = msgspec.msgpack.decode(receive(child.answers, 65_536, deadline), type=Ready)
            except (PipeClosed, Late, ValueError) as error:
                words = last_words(child.errors)
                end(child)
                child = None
                if self.closed:
                    raise stopped() from error
                # One that was there may have ended for lack of work just when this came.
                if isinstance(error, PipeClosed) and was_there:
                    self._forget(zygote, heavy=heavy)
                    continue
                words = last_words(zygote.errors) or words or "it was ended from outside"
                self._forget(zygote, heavy=heavy)
                raise Unavailable(
                    f"the extraction process does not start: {words[-500:]}"
                ) from error
            except BaseException:  # an interrupt
                end(child)
                raise
            if ready.trouble:
                end(child)
                raise Unavailable(f"the reader of such files does not load: {ready.trouble}")
            if self.layers is None:
                self.layers = ready.layers
            return child

    def _zygote(self, *, heavy: bool) -> tuple[Zygote, bool]:
        """The one that is there, or a new one, and whether it is new."""
        with self._lock:
            if self.closed:
                raise stopped()
            known = self._zygotes.get(heavy)
            if known is not None and known.process.poll() is None:
                return known, False
            if known is not None:
                end_zygote(known)
            limits = self._limits
            setup = Setup(
                packages=self._packages,
                readable=self._readable,
                memory_bytes=limits.heavy_memory_bytes if heavy else limits.memory_bytes,
                file_bytes=limits.file_bytes,
                descriptors=limits.descriptors,
                text_bytes=limits.text_bytes,
                idle_seconds=limits.heavy_idle_seconds if heavy else limits.idle_seconds,
                niceness=_HEAVY_NICENESS if heavy else 0,
                confined=self._confined,
            )
            zygote = self._zygotes[heavy] = launch(_PROGRAM, pack(setup))
            return zygote, True

    def _forget(self, zygote: Zygote, *, heavy: bool) -> None:
        with self._lock:
            if self._zygotes.get(heavy) is zygote:
                del self._zygotes[heavy]
                end_zygote(zygote)


def end(child: ReadingChild) -> None:
    """Its zygote kills it; nobody waits for that."""
    child.line.close()
    os.close(child.jobs)
    os.close(child.answers)
    child.errors.close()


def stopped() -> Transient:
    return Transient("extraction was stopped")
