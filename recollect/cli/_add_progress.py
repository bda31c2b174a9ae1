"""What a person sees while files are added."""

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from recollect.cli._bar import BarState, bar
from recollect.cli.output import console, tell
from recollect.model import Stage

SEARCHABLE = "searchable"


@dataclass(frozen=True, slots=True)
class AddProgress:
    verb: str
    """what is counted in the end: searchable, uploaded, looked at"""
    total: int
    handled: int
    refused: int
    closed: int
    """of those handled, the ones that nothing more is waited for"""
    queued: int
    stages: Mapping[Stage, int]
    awaited: int
    searchable: int
    failed: int
    reading: str | None
    """name of a document that is being read"""

    @property
    def complete(self) -> bool:
        return self.handled == self.total and self.searchable + self.failed == self.awaited

    @property
    def bar(self) -> BarState:
        return BarState(
            self.verb,
            done=self.closed + self.searchable,
            total=self.closed + self.refused + self.awaited + self.total - self.handled,
            failed=self.refused + self.failed,
            reading=self.reading,
        )


Show = Callable[[AddProgress], None]


@contextmanager
def screen() -> Generator[Show]:
    """A bar on a terminal, lines elsewhere; on standard error, so that data stays clean."""
    out = console(err=True)
    if out.is_terminal:
        with bar(out) as draw:
            yield lambda progress: draw(progress.bar)
    else:
        yield _paced(
            lambda progress: tell(", ".join(f"{name} {n}" for name, n in _steps(progress))), 1.0
        )


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


def _steps(progress: AddProgress) -> Iterator[tuple[str, str]]:
    """One for each thing that happens to a document, in that order; without waiting, only the
    first."""
    if progress.verb != SEARCHABLE:
        yield progress.verb, f"{progress.handled}/{progress.total}"
        return
    yield "uploading", f"{progress.handled}/{progress.total}"
    yield "queued", str(progress.queued)
    for stage, count in progress.stages.items():
        yield stage.value, str(count)
    yield SEARCHABLE, f"{progress.searchable}/{progress.awaited}"
    if failed := progress.refused + progress.failed:
        yield "failed", str(failed)
