"""Reading files: megabytes a second by kind, and the memory that the largest ones take.

Seconds are of processor time, of this process and its children: a busy machine slows neither side
more than the other. A batch of one kind goes through the sandbox: the bytes and the text cross
pipes, the text is cleaned, hidden text is looked for, places are kept. The counterpart gives the
same bytes to the library that reads that kind, in this process, with nothing around it; for kinds
that no library reads it is our own extractor, called bare. The files are those of the tests, of
words that are known.
"""

import asyncio
import csv
import email
import email.policy
import io
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import html_to_markdown
import psutil
import xberg
from selectolax.lexbor import LexborHTMLParser

from bench.figures import Figure, alternate
from bench.ground import PROJECT, Ground
from recollect.extract import Sandbox, code, image, text
from recollect.model import Blob
from tests.extract import pictures, recall

MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Size:
    rounds: int
    seconds: float
    """about how long one batch takes the library"""
    pages: int
    """of the large PDF"""
    table: int
    """bytes of the large CSV"""


FULL = Size(rounds=3, seconds=2.0, pages=1_600, table=50 * MB)
QUICK = Size(rounds=1, seconds=0.4, pages=1_600, table=50 * MB)
TINY = Size(rounds=1, seconds=0.01, pages=20, table=MB)


def measure(ground: Ground, size: Size) -> Iterator[Figure]:
    del ground  # nothing here needs a service
    for kind, bare in BARE.items():
        with Sandbox(workers=1) as sandbox:
            yield _throughput(sandbox, kind, bare, size)
    large = {
        "pdf": (f"PDF of {size.pages:,} pages", "a.pdf", lambda: long_pdf(size.pages)),
        "csv": (f"CSV of {size.table // MB} MB", "a.csv", lambda: large_csv(size.table)),
    }
    for kind, (what, name, make) in large.items():
        added = added_memory(name, make()) / MB
        yield Figure(f"extract.memory.{kind}", f"most memory added by a {what}", added, "MB")


# --- throughput ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bare:
    """The counterpart of a kind; `against` names it."""

    against: str
    read: Callable[[bytes], object]


def _throughput(sandbox: Sandbox, kind: str, bare: Bare, size: Size) -> Figure:
    name, syllables, make = recall.MAKERS[kind]
    data = make(recall.Words(syllables))
    blob = Blob(data, name=name)
    bare.read(data)  # loads the library
    sandbox.extract(blob)
    tries = 10 if size.seconds > 0.1 and kind not in SLOW else 1
    took = _timed(lambda: [bare.read(data) for _ in range(tries)]) / tries
    count = max(1, min(2_000, round(size.seconds / took)))

    def batch(read: Callable[[], object]) -> float:
        def all() -> None:
            for _ in range(count):
                read()

        return count * len(data) / MB / _timed(all)

    rates, ratios = alternate(
        size.rounds,
        lambda _: batch(lambda: bare.read(data)),
        lambda _: batch(lambda: sandbox.extract(blob)),
    )
    middle = len(rates) // 2
    return Figure(
        f"extract.{kind.replace(' ', '_')}",
        f"{count:,} files of {len(data) / 1000:,.0f} KB",
        sorted(rates)[middle],
        "MB/s",
        sorted(ratios)[middle],
        bare.against,
    )


def _timed(work: Callable[[], object]) -> float:
    started = _spent()
    work()
    return max(0.001, _spent() - started)


def _spent() -> float:
    """Seconds of processor time; what children took that have ended is in our own account."""
    ours = psutil.Process()
    times = ours.cpu_times()
    total = time.process_time() + times.children_user + times.children_system
    for child in ours.children(recursive=True):
        try:
            its = child.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += its.user + its.system
    return total


def _xberg(mime: str) -> Bare:
    def read(data: bytes) -> object:
        config = xberg.ExtractionConfig(
            disable_ocr=True, use_cache=False, output_format="markdown",
            concurrency=xberg.ConcurrencyConfig(max_threads=1),
        )  # fmt: skip
        source = xberg.ExtractInput(kind="bytes", bytes=data, mime_type=mime)

        async def ask() -> object:
            return await xberg.extract(source, config)

        return asyncio.run(ask())

    return Bare("xberg", read)


def _html(data: bytes) -> object:
    page = LexborHTMLParser(data)
    assert page.body is not None
    return html_to_markdown.convert(page.body.html or "")


def _csv(data: bytes) -> object:
    rows = csv.DictReader(io.StringIO(data.decode()))
    return "\n".join("; ".join(f"{key}: {value}" for key, value in row.items()) for row in rows)


def _mail(data: bytes) -> object:
    message = email.message_from_bytes(data, policy=email.policy.default)
    return cast(Any, message).get_body().get_content()


SLOW = ("picture",)
BARE: Mapping[str, Bare] = {
    "text": Bare("own extractor, bare", lambda data: text.extract(Blob(data))),
    "code": Bare("own extractor, bare", lambda data: code.extract(Blob(data))),
    "html": Bare("selectolax, html-to-markdown", _html),
    "json": Bare("json, indented", lambda data: json.dumps(json.loads(data), indent=1)),
    "csv": Bare("csv", _csv),
    "eml": Bare("email", _mail),
    "pdf": _xberg("application/pdf"),
    "docx": _xberg("application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    "doc": _xberg("application/msword"),
    "odt": _xberg("application/vnd.oasis.opendocument.text"),
    "rtf": _xberg("application/rtf"),
    "pptx": _xberg("application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    "epub": _xberg("application/epub+zip"),
    "xlsx": _xberg("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    "xls": _xberg("application/vnd.ms-excel"),
    "ods": _xberg("application/vnd.oasis.opendocument.spreadsheet"),
    "picture": Bare("rapidocr, own extractor", lambda data: image.extract_heavy(Blob(data))),
}


# --- memory --------------------------------------------------------------------------------------

READER = """
import sys
from recollect.extract import Sandbox
from recollect.model import Blob
with Sandbox(workers=1) as sandbox:
    sandbox.extract(Blob(b"words", name="a.txt"))
    print("ready", flush=True)
    data = sys.stdin.buffer.read()
    found = sandbox.extract(Blob(data, name=sys.argv[1]))
    print(len(found.text), flush=True)
"""


def added_memory(name: str, data: bytes) -> float:
    """Bytes: of a process with a sandbox and of its child, the most while they read this file.

    Resident memory, beyond what both hold when they have read a small one.
    """
    with subprocess.Popen(
        [sys.executable, "-c", READER, name],
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        before = most = _resident(process.pid)
        done = threading.Event()

        def watch() -> None:
            nonlocal most
            while not done.wait(0.01):
                most = max(most, _resident(process.pid))

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            process.stdin.write(data)
            process.stdin.close()
            if not int(process.stdout.readline() or b"0"):
                raise RuntimeError(f"nothing was read of {name}")
        finally:
            done.set()
            watching.join()
    return most - before


def _resident(pid: int) -> int:
    total = 0
    for process in [root := psutil.Process(pid), *root.children(recursive=True)]:
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


def long_pdf(count: int) -> bytes:
    words = recall.Words(recall.MAKERS["pdf"][1])
    return pictures.pdf(*(words.some(300) for _ in range(count)))


def large_csv(size: int) -> bytes:
    words = recall.Words(recall.MAKERS["csv in windows-1252"][1])
    out = io.StringIO()
    csv.writer(out).writerows(words.table(1_000, 5))
    head, _, rows = out.getvalue().encode().partition(b"\r\n")
    return head + b"\r\n" + rows * (size // len(rows))
