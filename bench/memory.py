"""Memory of all processes (proportional, so that shared pages count once), and what idling costs.

Idle is after a document has been through everything, a search was asked, the extraction process
has ended for want of work, and the worker has let its model go. Under load, documents of several
kinds are ingested while searches run. The counterpart is one bare process that holds the embedding
model and has used it.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.corpus import Shuffled
from bench.figures import Figure
from bench.ground import PROJECT, THREADS, Ground, Service, clean_environment, until, wait
from recollect.inference.local_model import IDLE

MB = 1_000_000
BARE = """
import sys
from pathlib import Path
from recollect.inference.embed import EmbedderChoice, open_embedder
embedder = open_embedder(EmbedderChoice("local"), cache=Path(sys.argv[1]), threads=int(sys.argv[2]))
embedder.embed(["word " * n for n in range(8, 200, 3)])
print("used", flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True, slots=True)
class Size:
    with_extraction: bool
    """an HTML document, whose extraction process then takes a minute to end"""
    idle_seconds: float
    load_seconds: float
    long: int = 100_000
    """characters of the documents that are the load"""


FULL = Size(with_extraction=True, idle_seconds=20, load_seconds=30)
QUICK = Size(with_extraction=False, idle_seconds=15, load_seconds=8)
TINY = Size(with_extraction=False, idle_seconds=0.3, load_seconds=0.3, long=3_000)


def measure(ground: Ground, size: Size) -> Iterator[Figure]:
    folder = ground.new_folder()
    bare = _bare(folder / "cache")
    with ground.serving(folder) as service:
        client = service.client()
        if size.with_extraction:
            client.add(_page("A page"))
        client.add(Shuffled(5).document(5_000))
        until(client.drained)
        client.send("POST", "/v3/search", {"q": "shuffled words"})
        until(lambda: not _extracting(service), within=120, every=0.5)
        wait(min(IDLE + 5, size.idle_seconds * 4))
        idle = memory(service)
        yield Figure(
            "memory.idle", "all processes, idle", idle, "MB", idle / bare, "bare model process"
        )
        share = _idle_share(service, size.idle_seconds)
        yield Figure("memory.idle.cpu", "processor, idle", share * 100, "% of a core")
        peak = _under_load(service, size)
        yield Figure(
            "memory.load",
            "all processes, most under load",
            peak,
            "MB",
            peak / bare,
            "bare model process",
        )


def _bare(cache: Path) -> float:
    process = subprocess.Popen(
        [sys.executable, "-c", BARE, str(cache), str(THREADS)],
        env=clean_environment(),
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        return _proportional(psutil.Process(process.pid)) / MB


def memory(service: Service) -> float:
    return sum(_proportional(process) for process in service.processes()) / MB


def _proportional(process: psutil.Process) -> float:
    try:
        return float(process.memory_full_info().pss)
    except psutil.NoSuchProcess:
        return 0.0


def _extracting(service: Service) -> bool:
    return any("_child" in " ".join(_command(process)) for process in service.processes())


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def _idle_share(service: Service, seconds: float) -> float:
    """Of one core; processes that end meanwhile are in their parent's account."""
    started = time.monotonic()
    before = _spent(service)
    wait(seconds)
    return (_spent(service) - before) / (time.monotonic() - started)


def _spent(service: Service) -> float:
    total = 0.0
    for process in service.processes():
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def _under_load(service: Service, size: Size) -> float:
    texts = Shuffled(6)
    client = service.client()
    most = 0.0
    end = time.monotonic() + size.load_seconds
    number = 0
    while time.monotonic() < end:
        if number % 4 == 0:
            client.add(texts.document(size.long))
        client.add(_page(f"Page {number}: {texts.document(400)}"))
        client.send("POST", "/v3/search", {"q": texts.document(80)})
        most = max(most, memory(service))
        number += 1
        wait(0.2)
    client.send("DELETE", "/v3/documents/bulk", {"containerTags": ["sm_project_default"]})
    return most


def _page(title: str) -> str:
    return f"<!doctype html><html><body><main><h1>{title}</h1><p>Text.</p></main></body></html>"
