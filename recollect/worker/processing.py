"""The queue of documents: claim, process, settle; with the housekeeping of the installation."""

import threading
import time
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TypeGuard

import structlog

from recollect import db, documents, log, loop
from recollect.app import App
from recollect.db import Tx
from recollect.errors import (
    Contended,
    HeldOff,
    LeaseLost,
    Parked,
    Permanent,
    Transient,
    Unavailable,
    code_of,
    sentence_of,
)
from recollect.index import missing_vectors
from recollect.ingest import notes
from recollect.ingest.pipeline import process, trace_id
from recollect.loop import enduring, settled, tell_bug
from recollect.model import Changed, Claim, Failure
from recollect.ops import canary
from recollect.ops.files import delete_doomed, delete_strays
from recollect.telemetry import metrics, tracing
from recollect.worker import model_change, tag_merges
from recollect.worker.loop import LONGEST_WISH, ClaimLoop, own_failure

LOG = log.get("worker")
TICK = timedelta(seconds=10)
"""A waiting worker looks at least this often, should a wake-up call get lost."""
PAUSE = timedelta(seconds=5)
"""How long the queue rests, at most, when something that every document needs is down …"""
FIRST_PAUSE = timedelta(milliseconds=250)
"""… and at first: what was away for a moment is there again. Each further rest is twice as long,
until a document is done."""
FIRST_BACKOFF = timedelta(seconds=2)
LONGEST_BACKOFF = timedelta(minutes=5)
FIRST_HELD_OFF = timedelta(seconds=15)
LONGEST_HELD_OFF = timedelta(hours=6)
LONGEST_ATTEMPT = timedelta(hours=2)
"""A claim held longer is no longer renewed, so that even a hang of ours ends in another attempt."""
PACE = timedelta(milliseconds=250)
"""How soon housekeeping may be done again."""
GATHER = timedelta(milliseconds=50)
"""How long a free place waits for others while some are taken: one claim serves all of them."""
LONG = timedelta(seconds=10)
"""Where each place is taken for so long, one more opens for a tag that has none …"""
MOST_MORE = 8
"""… and so many in all, no more than there are places. Where all tags have some, only one opens."""
SECOND_LOOK = timedelta(hours=1)
"""How long a worker waits before it removes the files that it found without a document: their age
is what clocks say, and one that was set right makes an upload of this second a day old. It would
be refused then, not lost (`documents.disown_blobs`); this spares its sender the second try."""
STEP = timedelta(seconds=2)
"""By how much the database's clock and ours of the time that passes must differ, between two looks
at both, for a step of the former; slewing it is no matter."""

Lane = tuple[str, str]
"""an organisation, and the first container tag of documents"""


@dataclass(frozen=True, slots=True)
class ClockReading:
    """At the database's clock, at some moment between two of the monotonic clock of here."""

    moment: documents.Moment
    began: float
    ended: float

    def step(self, before: "ClockReading") -> timedelta:
        """By how much, at least, the database's clock was set ahead since (below 0: back)."""
        passed, none = self.moment.at - before.moment.at, timedelta()
        most = timedelta(seconds=self.ended - before.began)
        least = timedelta(seconds=self.began - before.ended)
        return max(passed - most, none) or min(passed - least, none)


class Worker(ClaimLoop[Claim]):
    """The queue of documents, with the housekeeping between its claims."""

    name = "document"
    log = LOG
    longest_attempt = LONGEST_ATTEMPT

    def __init__(self, app: App) -> None:
        super().__init__(app, app.config.workers + MOST_MORE)
        self._paused = threading.Event()
        self._rests = 0
        self._beside = 0
        """notes in work that share the place of another"""
        self._turn = documents.DocumentTurn()
        self._last_look: ClockReading | None = None
        self._reembedding: threading.Thread | None = None
        self._tend_at = 0.0
        self._cleaning: threading.Thread | None = None
        self._strays: set[str] | None = None
        self._asked: datetime | None = None
        """since when no file was asked for; None if the store kept none of those before"""
        self._all_again = 0.0
        self._sweep_at = 0.0

    def key(self, claim: Claim) -> tuple[str, int]:
        return claim.document.id, claim.number

    def renew(self, tx: Tx, held: Sequence[Claim]) -> None:
        documents.renew(tx, held, lease=self._app.lease)

    def release(self, tx: Tx, left: Sequence[Claim]) -> None:
        documents.release(tx, left)
        self._app.sandbox.close()

    def leave(self) -> None:
        if self._app.embedder is not None:
            self._app.embedder.stop()

    def claim(self) -> list[Claim]:
        self._gather()
        free = self._free()
        busy = self._busy_for_long() if free <= 0 else set[Lane]()
        if self._paused.is_set() or (free <= 0 and not busy):
            return []
        take = partial(
            documents.claim,
            lease=self._app.lease,
            limit=max(free, 1),
            max_attempts=self._app.config.max_attempts,
            turn=self._turn,
        )
        with self._app.db.begin() as tx:
            look = self._mind_the_clock(tx)
            claims = take(tx, busy=busy)
            if not claims and free == 0:
                claims = take(tx)
            claims += self._notes_beside(tx, claims)
        self._last_look = look
        return claims

    def _notes_beside(self, tx: Tx, claims: Sequence[Claim]) -> list[Claim]:
        """Further notes, which share the places of those that are claimed."""
        lanes = {_lane(one): one for one in claims}
        return [
            note
            for lane in lanes.values()
            if documents.is_note(lane)
            for note in documents.claim_notes(
                tx,
                lane,
                lease=self._app.lease,
                limit=notes.TOGETHER - 1,
                max_attempts=self._app.config.max_attempts,
            )
        ]

    def start_all(self, claims: Sequence[Claim]) -> None:
        for group in notes.groups(claims):
            if len(group) == 1:
                self.start(group[0])
            else:
                with self._held_lock:
                    self._beside += len(group) - 1
                self._pool.submit(self._worked_together, group)

    def _worked_together(self, group: Sequence[Claim]) -> None:
        with self._working(group):
            try:
                self._settle_together(group)
            finally:
                with self._held_lock:
                    self._beside -= len(group) - 1

    def _settle_together(self, group: Sequence[Claim]) -> None:
        """All at once; where that fails each by itself, and what is wrong with one is its own."""
        try:
            outcomes = notes.process(self._app, group)
        except Exception as error:  # noqa: BLE001 # each meets it again, and is settled by it
            if _is_down(error):
                self._settle_surely(group, error)
                return
            LOG.info("notes apart", count=len(group), code=code_of(error))
            for claim in group:
                self.work(claim)
            return
        for claim, outcome in zip(group, outcomes, strict=True):
            self._settle_surely([claim], outcome)

    def between(self) -> timedelta:
        now, wait = time.monotonic(), TICK
        with enduring(LOG, self._stop):
            if now < self._tend_at:
                wait = timedelta(seconds=self._tend_at - now)
            else:
                wait = self._tend()
                self._tend_at = now + PACE.total_seconds()
        return wait

    def _gather(self) -> None:
        end = time.monotonic() + GATHER.total_seconds()
        while 0 < self._free() <= self._app.config.workers // 2 and not self._stop.is_set():
            rest = end - time.monotonic()
            if rest <= 0:
                break
            self._wake.wait(rest)
            self._wake.clear()

    def _free(self) -> int:
        return self._app.config.workers - len(self._held) + self._beside

    def _busy_for_long(self) -> set[Lane]:
        """Whose documents have taken all places for long, if one more place may open for others;
        else none."""
        places, then = self._app.config.workers, time.monotonic() - LONG.total_seconds()
        with self._held_lock:
            held = list(self._held.values())
        long = sum(since <= then for _, since in held)
        if long < places or -self._free() >= min(MOST_MORE, places):
            return set()
        return {_lane(claim) for claim, _ in held}

    def _mind_the_clock(self, tx: Tx) -> "ClockReading":
        """Before anything is judged by the database's clock: see whether that was set.

        Returns the last look from now on, once this is committed.
        """
        began = time.monotonic()
        moment = documents.moment(tx)
        look, last = ClockReading(moment, began, time.monotonic()), self._last_look
        step = timedelta() if last is None else look.step(last)
        if last is None:
            moved = documents.recall(tx, lease=self._app.lease)
        elif abs(step) < STEP:
            return look
        else:
            moved = documents.step_along(tx, last.moment, step, lease=self._app.lease)
        if moved or step:
            LOG.warning("the database's clock was set", seconds=step.total_seconds(), moved=moved)
        return look

    def _tend(self) -> timedelta:
        """Housekeeping between claims; returns how long to wait for the next."""
        app, now = self._app, time.monotonic()
        with app.db.begin() as tx:
            look = self._mind_the_clock(tx)
            for id in documents.bury(tx, max_attempts=app.config.max_attempts):
                LOG.warning("document", document=id, outcome="failed", code="worker_died")
                metrics.stumbled("worker", "worker_died", id)
                _count("failed", "worker_died")
            wait = documents.next_due_in(tx)
            doomed = documents.doomed_blobs(tx, 1, since=self._since(now))
            reembed_wanted = missing_vectors.wanted(tx)
        self._last_look = look
        stray = self._strays is None or (self._strays and now > self._sweep_at)
        if (doomed or stray) and (self._cleaning is None or not self._cleaning.is_alive()):
            # A daemon, too: a store that hangs holds up nothing else.
            self._cleaning = threading.Thread(target=self._clean, name="files", daemon=True)
            self._cleaning.start()
        if reembed_wanted and (self._reembedding is None or not self._reembedding.is_alive()):
            # A daemon: whatever it is at may be cut off.
            self._reembedding = threading.Thread(target=self._reembed, name="reembed", daemon=True)
            self._reembedding.start()
        if tag_merges.step(app) or sweep(app):
            return timedelta(milliseconds=20)
        if wait is None or self._free() <= 0 or self._paused.is_set():
            return TICK
        return min(TICK, max(wait, timedelta(milliseconds=20)))

    def _since(self, now: float) -> datetime | None:
        """Files that were to be deleted before, and that the store keeps, are asked for again after
        a while only: they may be many."""
        return self._asked if now < self._all_again else None

    def _clean(self) -> None:
        """Files whose document is gone, and those that never had one."""
        app, now = self._app, time.monotonic()
        with enduring(LOG):
            since = self._since(now)
            with app.db.begin() as tx:
                began = db.now(tx)
            done = delete_doomed(app.db, app.blobs, since=since)
            if since is None:
                self._all_again = now + SECOND_LOOK.total_seconds()
            if not done.held:
                self._asked = began if since or done.kept else None
            if self._strays is None:
                self._strays = stray_blobs(app)
                self._sweep_at = now + SECOND_LOOK.total_seconds()
            elif self._strays and now > self._sweep_at:
                sweep_blobs(app, seen=self._strays)
                self._strays = set()
            return
        self._stop.wait(TICK.total_seconds())

    def _reembed(self) -> None:
        """A change of the embedding model, until there is nothing to do; documents come first."""
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                if not model_change.step(self._app):
                    return
            except LeaseLost:
                return
            except Transient as error:
                LOG.warning("reembedding waits", code=error.code, error=str(error))
                self._stop.wait(_pause(error).total_seconds())
                return
            except Exception as error:  # noqa: BLE001 # a bug must not end it forever
                tell_bug(LOG, error)
                self._stop.wait(PAUSE.total_seconds())
                return
            if self._free() <= 0:  # as long again for them, who want the same cores and model
                self._stop.wait(min(time.monotonic() - began, PAUSE.total_seconds()))

    def work(self, claim: Claim) -> None:
        with self._marked(claim):
            outcome = attempt(self._app, claim, process)
        self._settle_surely([claim], outcome)

    def _marked(self, claim: Claim) -> AbstractContextManager[object]:
        """Inside, lines of the log name the document."""
        return structlog.contextvars.bound_contextvars(
            document=claim.document.id,
            org=claim.document.org_id,
            **tracing.mark(self._app.tracer, trace_id(claim)),
        )

    def _settle_surely(self, claims: Sequence[Claim], outcome: "Outcome") -> None:
        """Settle, and while the database is away, wait for it rather than forget the outcome."""
        pause = PAUSE
        if isinstance(outcome, Unavailable):
            pause = outcome.after or loop.backoff(self._rests + 1, FIRST_PAUSE, PAUSE)
        for claim in claims:
            write = partial(settle, self._app, claim, pause=pause)
            with self._marked(claim):
                if not settled(write, outcome, LOG, self._stop):
                    return
        if isinstance(outcome, Changed):
            self._rests = 0
        if _is_down(outcome):
            self._rest(outcome, min(pause, LONGEST_WISH))

    def _rest(self, error: Unavailable, pause: timedelta) -> None:
        """Pause the queue of this process; whatever is down, the next document needs it, too."""
        if self._paused.is_set():
            return
        self._paused.set()
        self._rests += 1
        LOG.warning("queue paused", reason=str(error))
        self._stop.wait(pause.total_seconds())
        self._paused.clear()
        LOG.info("queue resumed")


def _lane(claim: Claim) -> Lane:
    return claim.document.org_id, claim.document.container_tags[0]


def sweep(app: App) -> bool:
    """Remove some rows of large deletions; whether there were any."""
    with app.db.begin() as tx:
        return documents.sweep(tx) > 0


def drain(app: App) -> int:
    """Work inline until nothing is due; returns how many claims were worked."""
    while tag_merges.step(app) or sweep(app) or model_change.step(app):
        pass
    worked, turn = 0, documents.DocumentTurn()
    while True:
        with app.db.begin() as tx:
            documents.bury(tx, max_attempts=app.config.max_attempts)
            claims = documents.claim(
                tx, lease=app.lease, limit=1, max_attempts=app.config.max_attempts, turn=turn
            )
        if not claims:
            return worked
        for claim in claims:
            settle(app, claim, attempt(app, claim, process))
            worked += 1


def _is_down(outcome: "Outcome") -> TypeGuard[Unavailable]:
    """Whether something does not answer that every document needs."""
    return isinstance(outcome, Unavailable) and not isinstance(outcome, Contended)


Outcome = Changed | Exception


def attempt(app: App, claim: Claim, work: Callable[[App, Claim], Changed]) -> Outcome:
    """Do the work; what happened is data."""
    try:
        return work(app, claim)
    except Exception as error:  # noqa: BLE001 # a bug must not take the loop or the document down
        return error


def settle(app: App, claim: Claim, outcome: Outcome, *, pause: timedelta = PAUSE) -> None:
    """Write down what became of an attempt; `pause`: for how long the queue rests if it does.

    outcome       | document                                  | counts as attempt
    --------------|-------------------------------------------|------------------
    Changed       | done (was written by `process` itself)    | yes
    LeaseLost     | someone else's, deleted, or stopping:     | no
                  | given back where it is still ours         |
    Contended     | like Transient                            | yes
    Unavailable   | queued again, the queue pauses            | no
    Parked        | queued again, waits as long as it is told | no
    Transient     | queued after back-off or as asked; failed | yes
                  | when no attempt is left                   |
    HeldOff       | like Transient, after hours in the end    | yes
    Permanent     | failed                                    | yes
    anything else | a bug: like Transient, traceback logged   | yes
    """
    line = LOG.bind(kind=claim.document.kind, attempt=claim.document.attempts)
    match outcome:
        case Changed():
            line.info(
                "document",
                outcome="done",
                chunks=outcome.chunks,
                embedded=outcome.embedded,
                reused=outcome.reused,
                removed=outcome.removed,
            )
            metrics.passed(["worker"])
            if claim.document.org_id != canary.ORG:
                _count("done", "")
                for how in ("embedded", "reused", "removed"):
                    metrics.add("recollect_chunks_total", getattr(outcome, how), how=how)
            return
        case LeaseLost():
            with app.db.begin() as tx:
                documents.release(tx, [claim])
            line.info("document", outcome="lease lost")
            _count("lease_lost", "")
            return
        case Permanent():
            failure, after, free = Failure(outcome.code, str(outcome)), None, False
        case Unavailable() if _is_down(outcome):
            failure, free = Failure(outcome.code, sentence_of(outcome)), True
            after = min(outcome.after or pause, LONGEST_WISH)
        case Parked():
            failure, after, free = Failure(outcome.code, str(outcome)), outcome.after or PAUSE, True
        case Transient():
            failure, after, free = Failure(outcome.code, str(outcome)), _wait(claim, outcome), False
        case _:
            failure = own_failure(line, outcome)
            after, free = backoff(claim.document.attempts), False
    if not free and claim.document.attempts >= app.config.max_attempts:
        after = None
    try:
        with app.db.begin() as tx:
            if after is None:
                documents.fail(tx, claim, failure)
            else:
                documents.retry(tx, claim, failure, after, free=free)
    except LeaseLost:
        line.info("document", outcome="lease lost")
        return
    _count("failed" if after is None else "again", failure.code)
    line.info(
        "document",
        outcome="failed" if after is None else "again",
        code=failure.code,  # the words, which may name the file, are at the document
    )


def _count(outcome: str, code: str) -> None:
    metrics.add("recollect_documents_finished_total", outcome=outcome, code=code)


def backoff(attempts: int) -> timedelta:
    """2, 4, 8 … seconds, up to five minutes, with a quarter of jitter."""
    return loop.backoff(attempts, FIRST_BACKOFF, LONGEST_BACKOFF, jitter=(0.75, 1.25))


def stray_blobs(app: App) -> set[str]:
    """Keys of bytes that are a day old, by the clock of here, and that no document names."""
    found = set[str]()
    for some in _batches(app.blobs.older_than(timedelta(days=1))):
        with app.db.begin() as tx:
            found |= set(some) - documents.known_blobs(tx, some)
    return found


def sweep_blobs(app: App, *, seen: Collection[str] | None = None) -> int:
    """Remove bytes whose upload was cut off before its document existed; returns how many.

    `seen`: only those among them, which were without a document a while ago, too.
    """
    keys = stray_blobs(app) if seen is None else seen
    return len(delete_strays(app.db, app.blobs, list(keys)).gone)


def _batches(keys: Iterable[str]) -> Generator[list[str]]:
    found = list(keys)
    for start in range(0, len(found), 500):
        yield found[start : start + 500]


def _pause(error: Transient) -> timedelta:
    return min(error.after or PAUSE, LONGEST_WISH)


def _wait(claim: Claim, error: Transient) -> timedelta:
    wish = min(error.after, LONGEST_WISH) if error.after else timedelta(0)
    attempts = claim.document.attempts
    if isinstance(error, HeldOff):
        return max(wish, loop.backoff(attempts, FIRST_HELD_OFF, LONGEST_HELD_OFF, factor=12.0))
    return max(wish, backoff(attempts))
