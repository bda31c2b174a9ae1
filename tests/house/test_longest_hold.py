"""What runs over a whole document in the worker lets other threads in, at the largest size."""

import threading
import time
from collections.abc import Callable

import pytest

from recollect.documents.merge import merge
from recollect.extract import clean, is_html
from recollect.ingest.intake import CONTENT_LIMIT
from recollect.ingest.positions import locate
from recollect.model import Chunk, Extracted, storable

WORK: dict[str, Callable[[str], object]] = {
    "clean": clean,
    "is_html": is_html,
    "locate": lambda text: locate(Extracted(text), [Chunk(0, 0, 9, text[:9], b"")]),
    "merge": lambda text: merge(text, text[:-3] + "x"),
    "storable": storable,
}
SHAPES = {
    "prose": "The quick brown fox jumps. ",
    "short lines": "a \n",
    "line ends": "\n",
    "spaces": " ",
    "headings": "# a\n",
    "messages": "user: a\n",
    "other line ends": "ab\r\n",
    "one sign": "-",
}


def longest_hold(work: Callable[[], object]) -> float:
    """CPU seconds that this thread took while another one wanted to run and could not."""
    clock = time.pthread_getcpuclockid(threading.get_ident())
    started, done = threading.Event(), threading.Event()
    held = [0.0]

    def look() -> None:
        last = time.clock_gettime(clock)
        started.set()
        while not done.wait(0.001):
            now = time.clock_gettime(clock)
            held.append(now - last)
            last = now

    other = threading.Thread(target=look)
    other.start()
    started.wait()
    work()
    done.set()
    other.join()
    return max(held)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", WORK)
def test_no_thread_is_kept_waiting_for_a_second(name: str, shape: str):
    text = SHAPES[shape] * (CONTENT_LIMIT // len(SHAPES[shape]))

    # What a neighbour on the machine adds is there once, not twice.
    assert longest_hold(lambda: WORK[name](text)) < 1 or longest_hold(lambda: WORK[name](text)) < 1
