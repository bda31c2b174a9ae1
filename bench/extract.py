"""Reading files: megabytes a second by kind, and the memory that the largest ones take.

Seconds are of processor time, of this process and its children: a busy machine slows neither side
more than the other. A batch of one kind is read twice: by the reader in this process, which does
all that a child of the sandbox does (hidden text is looked for, the text is cleaned, places are
kept), and through the sandbox, where the bytes and the text cross pipes as well. The counterpart is
one call in this process: of xberg, the library that reads most of these kinds, without what would
slow it down, or what somebody would write with Python's own library for the kind. Hidden text is
not looked for, and no place kept. Where that one call does less than the kind asks for, the library
that does the job is the counterpart, and the leaner call has a figure of its own. Whatever it is,
it has to find the words of the file, else the comparison would be with nothing: that is checked
each time.
Files are those of the tests, of words that are known, in sizes that people have: a text of 20 KB, a
table of 2,000 rows, 2,000 records, a page of 35 KB.
"""

import asyncio
import contextlib
import csv
import email
import email.policy
import importlib
import importlib.util
import io
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import chardet
import charset_normalizer
import psutil
import xberg

from bench.figures import Figure, alternate
from bench.ground import PROJECT, Ground
from recollect.extract import Limits, Sandbox
from recollect.extract._child import work
from recollect.extract._registry import HEAD, detect
from recollect.extract._wire import ReadJob, ReadReply
from recollect.extract.image import image
from recollect.extract.kinds import known
from recollect.model import Blob, Extracted
from tests.extract import office, pictures, recall

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
QUICK = Size(rounds=1, seconds=0.2, pages=600, table=10 * MB)
TINY = Size(rounds=1, seconds=0.01, pages=20, table=MB)


def measure(ground: Ground, size: Size) -> Iterator[Figure]:
    del ground  # nothing here needs a service
    # A service under work does not load its models again for each picture.
    with Sandbox(workers=1, limits=Limits(heavy_idle_seconds=600)) as sandbox:
        for kind, bare in BARE.items():
            yield _throughput(_reader(kind), kind, bare, size, f"{kind}.reader")
            # As the service reads the files of one organisation.
            read = partial(sandbox.extract, owner="bench")
            yield _throughput(read, kind, bare, size, kind)
            if kind in LEANER:
                yield _throughput(read, kind, LEANER[kind], size, f"{kind}.leaner")
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
    """The counterpart of a kind; `against` names it. It gives the text."""

    against: str
    read: Callable[[bytes], str]
    is_there: bool = True
    """else `read` is another, for the clock to have something to run by"""


@dataclass(frozen=True, slots=True)
class Sample:
    name: str
    data: bytes
    words: str
    """that are in it and have to be in its text"""


def _reader(kind: str) -> Callable[[Blob], ReadReply]:
    """What a child of the sandbox does with a blob of this kind, in this process."""
    sample = _samples(kind)[0]
    format = detect(sample.data[:HEAD], name=sample.name, mime=None)
    if format is None:
        raise RuntimeError(f"{sample.name} is of no kind")
    kinds = known()
    limits = Limits()

    def read(blob: Blob) -> ReadReply:
        size = len(blob.data)
        times = limits.cpu(size), limits.wall(size)
        job = ReadJob(
            format.extractor, None, blob.name, None, size, *times, heavy=kind == "picture"
        )
        return work(job, blob.data, kinds, limits.text_bytes, -1)

    return read


def _throughput(
    read: Callable[[Blob], Extracted | ReadReply], kind: str, bare: Bare, size: Size, id: str
) -> Figure:
    samples = _samples(kind)
    blobs = [Blob(sample.data, name=sample.name) for sample in samples]
    for sample, blob in zip(samples, blobs, strict=True):  # loads the libraries, too
        _expect(sample, bare.read(blob.data), bare.against)
        _expect(sample, read(blob).text, "our reader")
    took = _timed(lambda: [bare.read(blob.data) for blob in blobs])
    if took < size.seconds / 10:  # too short to be taken at its word
        took = _timed(lambda: [bare.read(blob.data) for _ in range(10) for blob in blobs]) / 10
    times = max(1, min(2_000, round(size.seconds / took)))
    total = sum(len(blob.data) for blob in blobs)

    def batch(read: Callable[[Blob], object]) -> float:
        return times * total / MB / _timed(lambda: [read(b) for _ in range(times) for b in blobs])

    rates, ratios = alternate(
        size.rounds,
        lambda _: batch(lambda blob: bare.read(blob.data)),
        lambda _: batch(read),
    )
    middle = len(rates) // 2
    return Figure(
        f"extract.{id}",
        f"{times * len(blobs):,} files of {total / len(blobs) / 1000:,.0f} KB",
        sorted(rates)[middle],
        "MB/s",
        sorted(ratios)[middle] if bare.is_there else None,
        bare.against if bare.is_there else f"no {bare.against} here",
    )


def _expect(sample: Sample, text: str, reader: str) -> None:
    """RuntimeError for a reader that leaves out what it is measured by."""
    if (share := recall.recall(sample.words, text)) < LEAST_READ:
        raise RuntimeError(f"{reader} finds {share:.2f} of the words of {sample.name}")


def _samples(kind: str) -> Sequence[Sample]:
    """The files of which the batch of this kind is made."""
    words = recall.Words(recall.MAKERS[KNOWN.get(kind, kind)][1])
    match kind:
        case "text":
            plain = _made("text")
            marked = plain.data.decode().encode("utf-16")
            return [plain, Sample("b.txt", marked, plain.words)]
        case "csv":
            return [Sample("a.csv", large_csv(200_000, words), " ".join(words.used))]
        case "json":
            records = [
                {
                    "id": n,
                    "name": words.some(2),
                    "said": {"by": words.some(1), "text": words.some(9)},
                }
                for n in range(2_000)
            ]
            data = json.dumps(records).encode()
            return [Sample("a.json", data, " ".join(words.used))]
        case "html":
            return [Sample("a.html", _site_page(words), " ".join(words.used))]
        case "pptx":
            # Without notes: the library does not read them.
            slides = [(words.some(4), [words.some(6) for _ in range(5)]) for _ in range(30)]
            return [Sample("a.pptx", office.pptx(slides), " ".join(words.used))]
        case _:
            return [_made(KNOWN.get(kind, kind))]


def _made(kind: str) -> Sample:
    name, syllables, make = recall.MAKERS[kind]
    words = recall.Words(syllables)
    data = make(words)
    return Sample(name, data, " ".join(words.used))


def _site_page(words: recall.Words) -> bytes:
    """An article as sites frame it: menus, a column of links, styles, a footer. Of its words only
    those of the article count as used."""
    around = recall.Words(recall.MAKERS["html"][1])

    def links(count: int) -> str:
        return "".join(
            f'<li class="item"><a href="/{n}/page.html">{around.some(2)}</a></li>'
            for n in range(count)
        )

    article = "".join(
        f"<h2>{words.some(3)}</h2>"
        + "".join(
            f'<p class="text">{words.some(60)} <a href="/s">{words.some(2)}</a>'
            f" <b>{words.some(2)}</b></p>"
            for _ in range(5)
        )
        for _ in range(6)
    )
    style = ".item { margin: 0; padding: 4px } " * 40
    return (
        f"<!doctype html><html><head><meta charset=utf-8><title>{around.some(4)}</title>"
        f"<style>{style}</style></head><body><nav><ul>{links(40)}</ul></nav>"
        f'<div class="page"><main><article><h1>{words.some(4)}</h1>{article}</article></main>'
        f"<aside><ul>{links(30)}</ul></aside></div><footer><ul>{links(20)}</ul></footer>"
        f"<script>{'let a = 1; ' * 100}</script></body></html>"
    ).encode()


def _timed(work: Callable[[], object]) -> float:
    started = _spent()
    work()
    return max(0.001, _spent() - started)


def _spent() -> float:
    """Seconds of processor time; what those took that have ended is in their parents' accounts.

    One that ends while the others are asked is in no account: then all are asked again.
    """
    ours = psutil.Process()
    while True:
        children = ours.children(recursive=True)
        try:
            accounts = [one.cpu_times() for one in (*children, ours)]
        except psutil.NoSuchProcess:
            continue
        if ours.children(recursive=True) == children:
            return sum(sum(account[:4]) for account in accounts)


def _xberg(mime: str, *, pages: bool = False, plain: bool = False) -> Bare:
    def read(data: bytes) -> str:
        config = xberg.ExtractionConfig(
            disable_ocr=True, use_cache=False, enable_quality_processing=False,
            escape_markdown=False, output_format="plain" if plain else "markdown",
            pages=xberg.PageConfig(extract_pages=True) if pages else None,
            concurrency=xberg.ConcurrencyConfig(max_threads=1),
        )  # fmt: skip
        source = xberg.ExtractInput(kind="bytes", bytes=data, mime_type=mime)

        async def ask() -> xberg.ExtractionResult:
            return await xberg.extract(source, config)

        return asyncio.run(ask()).results[0].content

    return Bare("xberg", read)


def _decoded(data: bytes) -> str:
    with contextlib.suppress(UnicodeDecodeError):
        if b"\0" not in data:
            return data.decode()
    return data.decode(chardet.detect(data)["encoding"] or "cp1252", "replace")


def _csv(data: bytes) -> str:
    text = _decoded(data)
    dialect: type[csv.Dialect] = csv.excel
    with contextlib.suppress(csv.Error):
        dialect = csv.Sniffer().sniff(text[:4_096])
    rows = csv.DictReader(io.StringIO(text), dialect=dialect)
    return "\n".join("; ".join(f"{key}: {value}" for key, value in row.items()) for row in rows)


def _json(data: bytes) -> str:
    """As we do: a line for each value, with its path, and a blank line between records."""
    return "\n\n".join("\n".join(_paths("", record)) for record in json.loads(_decoded(data)))


def _paths(path: str, value: Any) -> Iterator[str]:
    match value:
        case dict():
            for key, part in cast(dict[str, Any], value).items():
                yield from _paths(f"{path}.{key}" if path else key, part)
        case list():
            for number, part in enumerate(cast(list[Any], value)):
                yield from _paths(f"{path}[{number}]", part)
        case _:
            yield f"{path}: {value}"


def _mail(data: bytes) -> str:
    message = email.message_from_bytes(data, policy=email.policy.default)
    return cast(str, cast(Any, message).get_body().get_content())


def _guessed(data: bytes) -> str:
    return str(charset_normalizer.from_bytes(data).best())


def _trafilatura() -> Bare:
    """It finds the main part of a page and writes it as Markdown, with its links."""
    if importlib.util.find_spec("trafilatura") is None:
        return Bare("trafilatura", _xberg("text/html").read, is_there=False)

    def read(data: bytes) -> str:
        library = cast(Any, importlib.import_module("trafilatura"))
        return library.extract(data, output_format="markdown", include_links=True) or ""

    return Bare("trafilatura", read)


LEAST_READ = 0.95
KNOWN = {"latin": "text in windows-1252"}
"""Kinds that the tests know by another name."""
BARE: Mapping[str, Bare] = {
    "text": _xberg("text/plain", plain=True),
    "latin": Bare("charset-normalizer", _guessed),
    "code": _xberg("text/plain", plain=True),
    "html": _trafilatura(),
    "json": Bare("json, a line a value", _json),
    "csv": Bare("csv with its Sniffer", _csv),
    "eml": Bare("email", _mail),
    "pdf": _xberg("application/pdf", pages=True),
    "docx": _xberg("application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    "doc": _xberg("application/msword"),
    "odt": _xberg("application/vnd.oasis.opendocument.text"),
    "rtf": _xberg("application/rtf"),
    "pptx": _xberg("application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    "epub": _xberg("application/epub+zip"),
    "xlsx": _xberg("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    "xls": _xberg("application/vnd.ms-excel"),
    "ods": _xberg("application/vnd.oasis.opendocument.spreadsheet"),
    "picture": Bare("rapidocr, own extractor", lambda data: image.extract_heavy(Blob(data)).text),
}
LEANER: Mapping[str, Bare] = {
    # It weighs few encodings: of Shift-JIS it makes letters of another script.
    "latin": _xberg("text/plain", plain=True),
    # All of the page, menus and footer as well.
    "html": _xberg("text/html"),
}
"""Calls that do less than is asked of the kind."""


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


def large_csv(size: int, words: recall.Words | None = None) -> bytes:
    """The same thousand rows again and again."""
    words = words or recall.Words(recall.MAKERS["csv"][1])
    out = io.StringIO()
    csv.writer(out).writerows(words.table(1_000, 5))
    head, _, rows = out.getvalue().encode().partition(b"\r\n")
    return head + b"\r\n" + rows * (size // len(rows))
