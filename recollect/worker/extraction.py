"""The queue of documents from which memories are to be drawn: claim, ask the model, settle."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial

import structlog

from recollect import log
from recollect.app import App
from recollect.db import Tx
from recollect.errors import (
    Contended,
    HeldOff,
    LeaseLost,
    Permanent,
    Transient,
    Unavailable,
    sentence_of,
)
from recollect.inference import endpoint_embedder
from recollect.inference.llm import wait
from recollect.loop import backoff, settled
from recollect.memories import extraction_queue
from recollect.memories.extraction import (
    MODEL_HELD_OFF,
    MOST_ATTEMPTS,
    MOST_HELD_OFF,
    ExtractionTurn,
    Pause,
    dream,
)
from recollect.memories.extraction_queue import DreamClaim
from recollect.model import Failure
from recollect.telemetry import metrics
from recollect.worker.loop import LONGEST_WISH, ClaimLoop, own_failure, written

LOG = log.get("dream")
TICK = timedelta(seconds=1)
"""Between two looks for something to read."""
FIRST_BACKOFF = timedelta(seconds=15)
LONGEST_HELD_OFF = timedelta(hours=6)
HELD_OFF = (MODEL_HELD_OFF, endpoint_embedder.HELD_OFF)
FIRST_PAUSE = timedelta(seconds=5)
LONGEST_PAUSE = timedelta(minutes=5)
"""What is down is asked again after 5, 10, 20 … seconds."""


class Dreamer(ClaimLoop[DreamClaim]):
    """The queue of the model. Without a model there is nothing to do, and `run` returns."""

    name = "dream"
    log = LOG

    def __init__(self, app: App) -> None:
        super().__init__(app, app.config.llm_concurrency)
        self._turn = extraction_queue.QueueTurn()
        self._mood = Mood()

    def run(self) -> None:
        if self._app.llm is not None:
            super().run()

    def helpers(self) -> dict[str, Callable[[], object]]:
        return {}

    def key(self, claim: DreamClaim) -> tuple[str, int]:
        return claim.document_id, claim.number

    def renew(self, tx: Tx, held: Sequence[DreamClaim]) -> None:
        extraction_queue.renew(tx, held, lease=self._app.lease)

    def release(self, tx: Tx, left: Sequence[DreamClaim]) -> None:
        extraction_queue.release(tx, left)

    def claim(self) -> list[DreamClaim]:
        free = self._app.config.llm_concurrency - len(self.held())
        if free <= 0 or self._mood.resting:
            return []
        with self._app.db.begin() as tx:
            return extraction_queue.claim(tx, lease=self._app.lease, limit=free, turn=self._turn)

    def between(self) -> timedelta:
        return TICK

    def start(self, claim: DreamClaim) -> None:
        # Not in the pool: its threads would keep the process until the model has answered.
        threading.Thread(target=self._worked, args=(claim,), name="dream", daemon=True).start()

    def work(self, claim: DreamClaim) -> None:
        with structlog.contextvars.bound_contextvars(document=claim.document_id, org=claim.org_id):
            outcome = attempt(self._app, claim, self._pause)
            settled(partial(settle, self._app, claim, mood=self._mood), outcome, LOG, self._stop)

    def _pause(self, seconds: float) -> None:
        """Between two tries of a question; who stops does not wait for the last one."""
        if self._stop.wait(seconds):
            raise LeaseLost


class Mood:
    """How the model fares, for all that ask it in a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pauses = 0
        self._until = 0.0

    @property
    def resting(self) -> bool:
        return time.monotonic() < self._until

    def answered(self) -> None:
        with self._lock:
            self._pauses = 0

    def rest(self, asked: timedelta | None) -> timedelta:
        """Ask nothing for a while, longer each time, or as it was asked for; returns how long."""
        with self._lock:
            if not self.resting:
                self._pauses += 1
                again = backoff(self._pauses, FIRST_PAUSE, LONGEST_PAUSE)
                wanted = max(again, min(asked or timedelta(), LONGEST_WISH))
                self._until = time.monotonic() + wanted.total_seconds()
                LOG.warning("no memories are drawn for now", seconds=wanted.total_seconds())
            return timedelta(seconds=max(self._until - time.monotonic(), 0.0))


Outcome = ExtractionTurn | Exception


def drain(app: App) -> int:
    """Read inline until nothing is due; returns how many claims were worked."""
    worked, turn, mood = 0, extraction_queue.QueueTurn(), Mood()
    while True:
        with app.db.begin() as tx:
            claims = extraction_queue.claim(tx, lease=app.lease, limit=1, turn=turn)
        if not claims:
            return worked
        for claim in claims:
            settle(app, claim, attempt(app, claim, wait), mood)
            worked += 1


def attempt(app: App, claim: DreamClaim, pause: Pause) -> Outcome:
    """Read; what happened is data."""
    try:
        return dream(app, claim, pause)
    except Exception as error:  # noqa: BLE001 # a bug must not take the loop or others down
        return error


def settle(app: App, claim: DreamClaim, outcome: Outcome, mood: Mood) -> None:
    """Write down what became of a turn. The document itself stays as it is, whatever happened.

    outcome        | its dreaming                                   | counts as attempt
    ---------------|------------------------------------------------|------------------
    Turn           | over, or due again while there is more         | no
    Turn that ends | due again at once if some of the pass was      | yes, unless
    a pass that    | read; else after back-off; given up when no    | some of it
    left something | attempt is left                                | was read
    LeaseLost      | someone else's, deleted, changed, or stopping  | no
    Unavailable    | due again when the stage goes on               | no
    HeldOff        | as a turn without answers, with more attempts, | yes
                   | for a week; the stage pauses for seconds       |
    Contended      | as a turn without answers                      | yes
    anything else  | as a turn without answers; a bug is logged     | yes
    """
    match outcome:
        case ExtractionTurn():
            if outcome.read:
                mood.answered()
            _turned(app, claim, outcome)
            return
        case LeaseLost():
            written(app, lambda tx: extraction_queue.release(tx, [claim]))
            _tell("lost", None)
            return
        case Unavailable() if not isinstance(outcome, Contended):
            down = Failure(outcome.code, sentence_of(outcome))
            rest = mood.rest(outcome.after)
            written(app, lambda tx: extraction_queue.again(tx, claim, rest, down, free=True))
            _tell("paused", down)
            return
        case HeldOff():
            mood.answered()
            mood.rest(None)
            failure = Failure(outcome.code, str(outcome))
            _failed(app, claim, failure, outcome.after)
            return
        case Permanent() | Transient():
            failure = Failure(outcome.code, str(outcome))
        case _:
            failure = own_failure(LOG, outcome)
    _failed(app, claim, failure)


def _turned(app: App, claim: DreamClaim, turn: ExtractionTurn) -> None:
    """Write down a turn of which nothing went wrong but that some of it may have no answer."""
    place, failure = turn.place, turn.failure or claim.failure
    if place is not None:
        done = written(app, lambda tx: extraction_queue.onward(tx, claim, place, turn.failure))
        word = "more"
    elif not turn.unread:
        done = written(app, lambda tx: extraction_queue.finish(tx, claim))
        word = "done"
    elif failure is None:  # it came meanwhile, before the place where this pass was
        done = written(app, lambda tx: extraction_queue.onward(tx, claim, -1, None))
        word = "more"
    elif claim.fruitful or turn.read:
        done = written(app, lambda tx: extraction_queue.next_pass(tx, claim, timedelta(), failure))
        word = "more"
    elif claim.attempts + 1 < _most(failure):
        after = _backoff(claim, failure)
        done = written(app, lambda tx: extraction_queue.next_pass(tx, claim, after, failure))
        word = "again"
    else:
        told = replace(failure, message=_left(turn.unread, failure))
        done = written(app, lambda tx: extraction_queue.give_up(tx, claim, told))
        word = "given_up"
    _tell(word if done else "lost", turn.failure, read=turn.read, facts=turn.facts)


def _left(chunks: int, failure: Failure) -> str:
    what = "one chunk of it" if chunks == 1 else f"{chunks} chunks of it"
    return f"{what} could not be read: {failure.message}"


def _failed(app: App, claim: DreamClaim, failure: Failure, asked: timedelta | None = None) -> None:
    if claim.attempts + 1 >= _most(failure):
        told = replace(failure, message=f"some of it could not be read: {failure.message}")
        written(app, lambda tx: extraction_queue.give_up(tx, claim, told))
        _tell("given_up", failure)
    else:
        after = max(_backoff(claim, failure), min(asked or timedelta(), LONGEST_HELD_OFF))
        written(app, lambda tx: extraction_queue.again(tx, claim, after, failure))
        _tell("again", failure)


def _most(failure: Failure) -> int:
    return MOST_HELD_OFF if failure.code in HELD_OFF else MOST_ATTEMPTS


def _backoff(claim: DreamClaim, failure: Failure) -> timedelta:
    """15, 60 … seconds, with a quarter of jitter."""
    failures, jitter = claim.attempts + 1, (0.75, 1.25)
    longest = LONGEST_HELD_OFF if failure.code in HELD_OFF else LONGEST_PAUSE
    return backoff(failures, FIRST_BACKOFF, longest, factor=4.0, jitter=jitter)


def _tell(outcome: str, failure: Failure | None, **numbers: int) -> None:
    code = failure.code if failure else None
    metrics.add("recollect_dreams_total", outcome=outcome, code=code or "")
    LOG.info("memories", outcome=outcome, code=code, **numbers)
