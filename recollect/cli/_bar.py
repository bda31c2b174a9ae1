"""One bar for what takes a while: how far, how fast, how long still, and what is at hand."""

import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from recollect.cli.output import one_line, span

WIDTH = 24
LONGEST_NAME = 30
WINDOW = 20.0
"""Seconds over which the rate is taken."""
REFRESH = 0.2
"""Seconds between two pictures, at least."""


@dataclass(frozen=True, slots=True)
class BarState:
    """`searchable 79/115`; `total`: None as long as it is unknown."""

    verb: str
    done: int
    total: int | None
    failed: int = 0
    reading: str | None = None
    """name of what is being read"""

    @property
    def past(self) -> int:
        return self.done + self.failed


Draw = Callable[[BarState], None]


class Pace:
    """How many a second, over the last `WINDOW` seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()

    def rate(self, done: int) -> float:
        """0.0 while it is not known."""
        now = self._clock()
        self._seen.append((now, done))
        while len(self._seen) > 2 and self._seen[1][0] <= now - WINDOW:
            self._seen.popleft()
        began, before = self._seen[0]
        return max(0.0, (done - before) / (now - began)) if now > began else 0.0


@contextmanager
def bar(out: Console) -> Generator[Draw]:
    """A line at the bottom of a terminal, gone at the end."""
    pace, not_before = Pace(), 0.0
    with Live(console=out, transient=True, auto_refresh=False) as live:

        def draw(state: BarState) -> None:
            nonlocal not_before
            if (now := time.monotonic()) >= not_before or state.past == state.total:
                live.update(picture(state, pace.rate(state.past)), refresh=True)
                not_before = now + REFRESH

        yield draw


def picture(state: BarState, rate: float) -> Table:
    line = Table.grid(padding=(0, 1))
    # What tells nothing yet moves: rich draws it so without a total.
    drawn = ProgressBar(
        state.total or None, state.past, width=WIDTH, complete_style="cyan", finished_style="green"
    )
    line.add_row(drawn, Text(words(state, rate), no_wrap=True, overflow="ellipsis"))
    return line


def words(state: BarState, rate: float) -> str:
    """`searchable 79/115 · 2 failed · 3.2/s · 12 s left · reading loop.pdf`."""
    known = state.total is not None
    said = [f"{state.verb} {state.done}/{state.total}" if known else f"{state.verb} {state.done}"]
    if state.failed:
        said.append(f"{state.failed} failed")
    if rate > 0:
        said.append(f"{rate:.1f}/s" if rate < 100 else f"{rate:.0f}/s")
        if state.total is not None and state.total > state.past:
            said.append(f"{span((state.total - state.past) / rate)} left")
    if state.reading:
        name = one_line(state.reading)
        said.append(f"reading {name if len(name) <= LONGEST_NAME else f'{name[:LONGEST_NAME]}…'}")
    return " · ".join(said)
