"""How much memory the bundled server takes for its cache."""

import os
from contextlib import suppress
from pathlib import Path

from recollect.config import TOP, control_groups

LEAST_SHARED, ENOUGH_SHARED = 64 << 20, 512 << 20
"""Bytes of the server's own cache at least, and as long as there is little data. A search that
finds its pages there takes half of the time of one that asks the kernel for each. What nobody has
read takes no memory, but the places for it do, 1.4 %."""


def sized(cluster: Path, memory: int) -> list[str]:
    """Settings that follow from the bytes of memory and from the data, which grow between starts:
    the cache holds all of the data where a quarter of the memory does."""
    least = max(LEAST_SHARED, min(memory // 16, ENOUGH_SHARED))
    shared = max(least, min(_size(cluster / "base"), memory // 4))
    cached = max(memory // 2, shared)
    return [
        "-c",
        f"shared_buffers={shared >> 20}MB",
        "-c",
        f"effective_cache_size={cached >> 20}MB",
        "-c",
        "wal_buffers=4MB",  # they would grow with the cache, to 16, all of which is soon touched
    ]


def _size(folder: Path) -> int:
    """Bytes of the files below."""
    return sum(
        (Path(parent) / name).stat().st_size
        for parent, _, names in os.walk(folder)
        for name in names
    )


def memory_limit(root: Path = TOP) -> int:
    """Bytes of memory that this process may use: the machine's, or less where its control group or
    one above it is bounded (`memory.max`, in version 1 `memory.limit_in_bytes`)."""
    bounds = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for folder in control_groups("memory", root):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with suppress(OSError, ValueError):  # none here, or "max"
                bounds.append(int((folder / name).read_text()))
    return min(bounds)
