"""What a person sees while files are added."""

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from recollect.cli.output import console, tell
from recollect.model import Stage


@dataclass(frozen=True, slots=True)
class AddProgress:
    total: int
    handled: int
    queued: int
    stages: Mapping[Stage, int]
    awaited: int
    searchable: int
    failed: int

    @property
    def complete(self) -> bool:
        return self.handled == self.total and self.searchable + self.failed == self.awaited


Show = Callable[[AddProgress], None]


@contextmanager
def screen() -> Generator[Show]:
    """Bars on a terminal, lines elsewhere; on standard error, so that data stays clean."""
    out = console(err=True)
    if not out.is_terminal:
        yield _paced(
            lambda progress: tell(", ".join(f"{name} {n}" for name, n in _steps(progress))), 1.0
        )
        return
    with Live(console=out, transient=True, auto_refresh=False) as live:
        yield _paced(lambda progress: live.update(_bars(progress), refresh=True), 0.1)


def _paced(show: Show, seconds: float) -> Show:
    """Shows what is new, at most every so many seconds, and the end in any case."""
    shown: AddProgress | None = None
    not_before = 0.0

    def maybe(progress: AddProgress) -> None:
        nonlocal shown, not_before
        if progress != shown and (progress.complete or time.monotonic() >= not_before):
            show(progress)
            shown, not_before = progress, time.monotonic() + seconds

    return maybe


def _bars(progress: AddProgress) -> Table:
    grid = Table.grid(padding=(0, 2))
    ends = {"uploading": (progress.handled, progress.total)}
    ends["searchable"] = (progress.searchable, progress.awaited)
    for name, count in _steps(progress):
        done, total = ends.get(name, (0, 0))
        bar = ProgressBar(total, done, width=40) if name in ends else ""
        grid.add_row(name, count, bar)
    return grid


def _steps(progress: AddProgress) -> Iterator[tuple[str, str]]:
    """One for each thing that happens to a document, in that order."""
    yield "uploading", f"{progress.handled}/{progress.total}"
    yield "queued", str(progress.queued)
    for stage, count in progress.stages.items():
        yield stage.value, str(count)
    yield "searchable", f"{progress.searchable}/{progress.awaited}"
    if progress.failed:
        yield "failed", str(progress.failed)
