"""Cold start: from the command to `GET /ready` answering 200, on an empty folder and on a used one.

The counterpart is importing the API in a bare Python, which every process of the service does.
On an empty folder the database is created and the embedding model built.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.figures import Figure, alternate
from bench.ground import Ground, clean_environment


@dataclass(frozen=True, slots=True)
class Size:
    rounds: int


FULL = Size(rounds=3)
QUICK = Size(rounds=2)
TINY = Size(rounds=1)


def measure(ground: Ground, size: Size) -> Iterator[Figure]:
    used = ground.new_folder(with_model=False)

    def empty(number: int) -> float:
        return _start(ground, used if number == 0 else ground.new_folder(with_model=False))

    def again(_: int) -> float:
        return _start(ground, used)

    for id, what, starting in (
        ("start.empty", "start to ready, empty folder", empty),
        ("start.again", "start to ready, used folder", again),
    ):
        seconds, ratios = alternate(size.rounds, _import, starting)
        yield Figure(
            id,
            what,
            statistics.median(seconds),
            "s",
            statistics.median(ratios),
            "import recollect.api",
        )


def _start(ground: Ground, folder: Path) -> float:
    started = time.perf_counter()
    with ground.serving(folder):
        return time.perf_counter() - started


def _import(_: int) -> float:
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", "import recollect.api"], env=clean_environment(), check=True
    )
    return time.perf_counter() - started
