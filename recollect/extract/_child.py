"""The child process of the sandbox: confines itself, then reads blobs one after another.

Its parsers are loaded after confinement, when the first blob of their kind comes. An exception
that an extractor did not foresee ends the process; its parent reports that and starts another.
"""

import contextlib
import gc
import math
import os
import resource
import select
import signal
import sys
from collections.abc import Mapping

import msgspec

from recollect.errors import Permanent
from recollect.extract import html
from recollect.extract._confine import confine
from recollect.extract._places import Places
from recollect.extract._registry import PACKAGE, Kind, NeedsHeavy, scan
from recollect.extract._text import clean_line, clean_placed, count_smuggled
from recollect.extract._wire import (
    LENGTH,
    UNAVAILABLE,
    Job,
    Listed,
    Listening,
    Packed,
    Ready,
    Reply,
    Setup,
    Surveyed,
    Task,
    pack,
)
from recollect.model import Blob, Extracted
from recollect.speech import Heard

_STATUS = "/proc/self/status"


def serve() -> None:
    """Serve jobs from standard input until it closes or stays silent. Never returns."""
    reader, writer = os.dup(0), os.dup(1)
    # A library that prints must not write into the answers.
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    setup = msgspec.msgpack.decode(_read_message(reader), type=Setup)
    kinds = scan(PACKAGE, *setup.packages)
    os.nice(setup.niceness)
    layers = confine(
        packages=setup.packages,
        readable=setup.readable,
        memory_bytes=setup.memory_bytes,
        file_bytes=setup.file_bytes,
        descriptors=setup.descriptors,
    )
    # Nearly all that a document makes lives as long as it is read; the rule is to look for what
    # does not at each 700 objects.
    gc.set_threshold(50_000)
    _write(writer, pack(Ready(layers)))
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    while poll.poll(setup.idle_seconds * 1000):
        job = msgspec.msgpack.decode(_read_message(reader), type=Job)
        data = _read(reader, job.size)
        _limit_time(job)
        reply = work(job, data, kinds, setup.text_bytes, writer)
        signal.setitimer(signal.ITIMER_REAL, 0)
        if _peak_at_most() > setup.worn_bytes and _peak() > setup.worn_bytes:
            reply = msgspec.structs.replace(reply, worn=True)
        _write(writer, pack(reply))
    _leave()


def _leave() -> None:
    # Not sys.exit: xberg's threads abort the interpreter while it finalizes.
    os._exit(0)


def _read_message(reader: int) -> bytes:
    return _read(reader, LENGTH.unpack(_read(reader, LENGTH.size))[0])


def _read(reader: int, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = os.read(reader, min(size - len(data), 1 << 20))
        if not piece:
            _leave()
        data += piece
    return bytes(data)


def _write(writer: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(writer, view) :]


def _limit_time(job: Job) -> None:
    """The kernel ends this process when the job takes too long, even if the parent is gone."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    used = math.ceil(usage.ru_utime + usage.ru_stime)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = used + job.cpu_seconds
    resource.setrlimit(
        resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard)
    )
    signal.setitimer(signal.ITIMER_REAL, job.wall_seconds + 5)


def work(job: Job, data: bytes, kinds: Mapping[str, Kind], text_bytes: int, writer: int) -> Reply:
    """One job, in this process; the files of an archive go into `writer`, ahead of the reply.

    What is wrong with the blob is in the reply; what an extractor did not foresee is raised.
    """
    blob = Blob(data, mime=job.mime, name=job.name, url=job.url)
    try:
        match job.task:
            case Task.READ:
                return _read_kind(job, blob, kinds[job.extractor], text_bytes)
            case Task.SURVEY:
                return _survey(blob, text_bytes)
            case Task.SITEMAP:
                return _sitemap(blob)
            case Task.UNPACK:
                return _unpack(blob, kinds[job.extractor], text_bytes, writer)
    except NeedsHeavy:
        return Reply(needs_heavy=True)
    except Permanent as error:
        return Reply(code=error.code, message=clean_line(str(error)))
    except ImportError as error:
        # A parser that is not installed, or not where it may be read, is no fault of the file.
        return Reply(code=UNAVAILABLE, message=clean_line(str(error)), worn=True)
    except MemoryError:
        return Reply(code="extraction_memory", worn=True)
    except RecursionError:
        return Reply(code="unreadable_content", message="it is nested too deeply")


def _read_kind(job: Job, blob: Blob, kind: Kind, text_bytes: int) -> Reply:
    if job.listening is not None:
        return Reply(heard=_hear(kind, blob, job.listening))
    if job.heavy and kind.extract_heavy is not None:
        return _reply(kind.extract_heavy(blob), text_bytes)
    return _reply(kind.extractor.extract(blob), text_bytes)


def _survey(blob: Blob, text_bytes: int) -> Reply:
    page = html.survey(blob)
    return msgspec.structs.replace(
        _reply(page.extracted, text_bytes),
        page=Surveyed(
            links=tuple(page.links),
            canonical=page.canonical,
            directives=tuple(page.directives),
            language=page.language,
            published=page.published,
            modified=page.modified,
        ),
    )


def _sitemap(blob: Blob) -> Reply:
    from recollect.extract import _sitemap  # noqa: PLC0415 - a parser, to be loaded when needed

    found = _sitemap.read(blob)
    return Reply(sitemap=Listed(pages=tuple(found.pages), sitemaps=tuple(found.sitemaps)))


def _unpack(blob: Blob, kind: Kind, text_bytes: int, writer: int) -> Reply:
    if kind.unpack is None:
        raise Permanent("it is no archive", code="unsupported_kind")

    def send(path: str, data: bytes) -> None:
        _write(writer, pack(Reply(packed=Packed(path, len(data)))))
        _write(writer, data)

    return _reply(kind.unpack(blob, send), text_bytes)


def _hear(kind: Kind, blob: Blob, listening: Listening) -> Heard:
    if kind.hear is None:
        raise Permanent("it is no recording", code="unsupported_kind")
    return kind.hear(blob, listening.start, listening.seconds, listening.engine)


def _reply(extracted: Extracted, text_bytes: int) -> Reply:
    places = Places.of(extracted.places)
    _keep_encoded(extracted.text)
    text, starts = clean_placed(extracted.text, places.starts())
    warnings = [clean_line(warning) for warning in extracted.warnings]
    # Cleaning took out what is invisible: a text that came out as it was has nothing of it.
    if text != extracted.text.strip("\n") and (smuggled := count_smuggled(extracted.text)):
        warnings.append(f"Text in invisible characters was left out ({smuggled:,} characters).")
    if len(text) * 4 > text_bytes and len(encoded := text.encode()) > text_bytes:
        text = encoded[:text_bytes].decode("utf-8", "ignore")
        warnings.append(f"Only the first {text_bytes:,} bytes of its text were kept.")
    if not text.strip():
        text = ""
        warnings.append("No text was found in it.")
    title = clean_line(extracted.title) if extracted.title else None
    stretches = places.moved(starts, len(text)).pack()
    return Reply(
        text=text,
        title=title or None,
        warnings=tuple(warnings),
        places=stretches,
        markdown=extracted.markdown,
        unheard=extracted.unheard,
    )


def _keep_encoded(text: str) -> None:
    """A string keeps its UTF-8 once a C library asked for it: cleaning wants it, and the answer."""
    with contextlib.suppress(UnicodeEncodeError):
        msgspec.msgpack.encode(text)


def _peak() -> int:
    """Most bytes of memory that this process has held."""
    try:
        with open(_STATUS) as status:
            return next(int(line.split()[1]) * 1024 for line in status if line[:6] == "VmHWM:")
    except (OSError, StopIteration):
        return _peak_at_most()


def _peak_at_most() -> int:
    """The same, cheaper; on Linux it begins with what the parent held when it started the child."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024)
