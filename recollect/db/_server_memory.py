"""How much memory the bundled server takes for its cache."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

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


def memory_limit(root: Path = Path("/")) -> int:
    """Bytes of memory that this process may use: the machine's, or less where its control group or
    one above it is bounded (`memory.max`, in version 1 `memory.limit_in_bytes`)."""
    bounds = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    groups = root / "sys/fs/cgroup"
    with suppress(OSError, ValueError):  # not Linux, or a form that we do not know
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers in ("", "memory"):
                top = groups / controllers
                own = top / path.lstrip("/")
                name = "memory.limit_in_bytes" if controllers else "memory.max"
                bounds += _bounds(name, own, *own.parents)
    return min(bounds)


def _bounds(name: str, *folders: Path) -> Iterator[int]:
    for folder in folders:
        with suppress(OSError, ValueError):  # none here, or "max"
            yield int((folder / name).read_text())
