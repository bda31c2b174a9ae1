"""Many callers, one model: their texts go to it in batches, some at once."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from operator import attrgetter
from threading import Event, Lock

import numpy as np
from numpy.typing import NDArray

from recollect.errors import LeaseLost, RecollectError, Unavailable

Vectors = NDArray[np.float32]
"""one row of length 1 for each text"""

BATCH_TEXTS = 64
BATCH_BYTES = 32_000
"""of UTF-8, about 8 000 tokens in most scripts: common endpoints take no more in one request"""
STOPPED = "the model takes no more texts: this process ends"


@dataclass(slots=True, eq=False)
class _Ask:
    """One caller's texts, and what has become of them."""

    texts: Sequence[str]
    rows: list[Vectors]
    """in the order of the texts once all are there"""
    taken: int = 0
    answered: int = 0
    error: BaseException | None = None
    over: Event = field(default_factory=Event)

    @property
    def left(self) -> int:
        return len(self.texts) - self.taken


_Batch = Sequence[tuple[_Ask, int]]
"""callers, and which of their texts"""


class EmbeddingTurns:
    """Brings the texts of many callers to a model, in batches, some of them at once.

    A batch is for whoever waits longest and for whoever has the fewest left, by turns, filled up
    with texts of others: a note does not wait for a book, and the book is not forgotten for notes.
    Nobody waits for a batch to fill; texts gather while all of `lanes` are busy.
    """

    def __init__(
        self,
        model: Callable[[Sequence[str]], Vectors],
        *,
        lanes: int,
        texts: int = BATCH_TEXTS,
        size: int = BATCH_BYTES,
    ) -> None:
        """`texts` and `size` (bytes of UTF-8) are the most of a batch; one text always goes."""
        self._model = model
        self._texts = texts
        self._size = size
        self._pool = ThreadPoolExecutor(lanes, thread_name_prefix="embed")
        self._lock = Lock()
        self._waiting: list[_Ask] = []
        self._longest_next = False
        self._stopped = False

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One row per text, of which there is at least one.

        Raises what the model raised: Transient and Permanent only for a batch of these texts,
        since one that failed with texts of others is tried again for each caller alone. Raises
        LeaseLost once these turns have stopped.
        """
        ask = _Ask(texts, [_NO_ROW] * len(texts))
        with self._lock:
            if self._stopped:
                raise LeaseLost(STOPPED)
            self._waiting.append(ask)
        for _ in texts:  # enough turns, even if each should take but one text
            self._pool.submit(self._turn)
        ask.over.wait()
        if ask.error is not None:
            raise ask.error
        return np.stack(ask.rows)

    def stop(self) -> None:
        """Take no further text: who has some left waits no longer, the others get their rows."""
        with self._lock:
            self._stopped = True
            left, self._waiting = self._waiting, []
        for ask in left:
            ask.error = LeaseLost(STOPPED)
            ask.over.set()

    def _turn(self) -> None:
        if batch := self._take():
            self._bring(batch)

    def _take(self) -> _Batch:
        batch: list[tuple[_Ask, int]] = []
        size = 0
        with self._lock:
            ask = self._first()
            while ask is not None and len(batch) < self._texts:
                size += len(ask.texts[ask.taken].encode(errors="replace"))
                if batch and size > self._size:
                    break
                batch.append((ask, ask.taken))
                ask.taken += 1
                if not ask.left:
                    self._waiting.remove(ask)
                    ask = self._waiting[0] if self._waiting else None
        return batch

    def _first(self) -> _Ask | None:
        if not self._waiting:
            return None
        self._longest_next = not self._longest_next
        return self._waiting[0] if self._longest_next else min(self._waiting, key=_left)

    def _bring(self, batch: _Batch) -> None:
        try:
            vectors = self._model([ask.texts[position] for ask, position in batch])
            answers = list(zip(batch, vectors, strict=True))
        except RecollectError as error:
            self._refuse(batch, error)
        except BaseException as error:
            self._fail(batch, error)
            raise
        else:
            for (ask, position), row in answers:
                self._answer(ask, position, row)

    def _refuse(self, batch: _Batch, error: RecollectError) -> None:
        asks = {id(ask): ask for ask, _ in batch}
        if len(asks) == 1 or isinstance(error, Unavailable):
            self._fail(batch, error)
            return
        for ask in asks.values():  # whose text it was, each finds out alone
            self._pool.submit(self._bring, [one for one in batch if one[0] is ask])

    def _answer(self, ask: _Ask, position: int, row: Vectors) -> None:
        ask.rows[position] = row
        with self._lock:
            ask.answered += 1
            done = ask.answered == len(ask.texts)
        if done:
            ask.over.set()

    def _fail(self, batch: _Batch, error: BaseException) -> None:
        for ask, _ in batch:
            with self._lock:
                if ask in self._waiting:
                    self._waiting.remove(ask)
            ask.error = error
            ask.over.set()


_NO_ROW = np.empty(0, np.float32)
_left = attrgetter("left")
