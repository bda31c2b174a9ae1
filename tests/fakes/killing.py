"""The end of processes that may be children of others."""

import threading
import time
from collections.abc import Sequence
from contextlib import suppress

import psutil

PAUSE = 0.01


def kill(processes: Sequence[psutil.Process], within: float = 60.0) -> None:
    """Kill them at once, and wait until they have ended.

    Some stay as zombies, until whoever took them over as a parent looks: those have ended, too.
    """
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    give_up, pause = time.monotonic() + within, threading.Event()
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            while process.status() != psutil.STATUS_ZOMBIE:
                assert time.monotonic() < give_up, f"{process} does not end"
                pause.wait(PAUSE)
