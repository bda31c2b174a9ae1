"""The processes of the sandbox: a zygote, which loads parsers, and its children, which read.

The zygote never sees a byte of a file: it imports parsers and forks a child for each file, or for
some files of one owner, over pipes of its own, which the child confines before it reads. So nothing
that a file does to its reader is there for another owner's. An exception that an extractor did not
foresee ends the child.
"""

import contextlib
import gc
import importlib
import math
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NoReturn, cast

import msgspec

from recollect.errors import Permanent
from recollect.extract import _ole, _zip
from recollect.extract._places import Places
from recollect.extract._registry import HEAD
from recollect.extract._text import (
    NO_TEXT,
    clean_line,
    clean_placed,
    count_smuggled,
    without_data,
)
from recollect.extract._wire import (
    Birth,
    Listening,
    Packed,
    ReadJob,
    ReadReply,
    Ready,
    Setup,
    SitemapEntries,
    Surveyed,
    Task,
    pack,
)
from recollect.extract.kinds import SITEMAP_READER, Kind, NeedsHeavy, Reader, SitemapReader, known
from recollect.inference.speech import Heard
from recollect.model import Blob, Extracted
from recollect.sandbox.confine import enclose, end_with_parent, layers, most_tasks, restrict
from recollect.sandbox.pipes import LENGTH, STATUS

_DESCRIPTORS = 4
"""that come with the request for a child: its line to the parent, job, answer, errors"""


def serve() -> NoReturn:
    """Fork children for the process at the other end of standard input, until that closes."""
    control = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    setup = msgspec.msgpack.decode(_read_message(control.fileno()), type=Setup)
    kinds = known(*setup.packages)
    _load_light(kinds)
    os.nice(setup.niceness)
    tasks = most_tasks()
    enclosed = _enclosed(setup)
    # Nearly all that a document makes lives as long as it is read; the rule is to look for what
    # does not at each 700 objects.
    gc.set_threshold(50_000)
    ended, signals = os.pipe()
    for descriptor in (ended, signals):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(signals, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    lines: dict[int, socket.socket] = {}
    warm: set[str] = set()
    while True:
        watched = [control.fileno(), ended, *(line.fileno() for line in lines.values())]
        ready = _wait(watched, None if lines else setup.idle_seconds)
        if not ready:
            _leave()
        if ended in ready:
            os.read(ended, 4096)
        _see_to(lines, ready)
        if control.fileno() not in ready:
            continue
        _, given, _, _ = socket.recv_fds(control, 1, _DESCRIPTORS)
        if len(given) != _DESCRIPTORS:
            _leave()  # and the kernel ends the children
        line = socket.socket(fileno=given[0])
        birth = msgspec.msgpack.decode(_read_message(line.fileno()), type=Birth)
        zygote = os.getpid()
        try:
            _load(birth, kinds, warm)
            pid = os.fork()
        except (ImportError, OSError) as error:
            with line, contextlib.suppress(OSError):
                _write(given[2], pack(Ready((), trouble=clean_line(str(error)))))
        else:
            if pid == 0:
                end_with_parent()
                if os.getppid() == zygote:
                    _read_files(given[1:], setup, kinds, enclosed, tasks)
                _leave()
            lines[pid] = line
        for descriptor in given[1:]:
            os.close(descriptor)


def _enclosed(setup: Setup) -> Sequence[str]:
    if not setup.confined:
        return ()
    return enclose(packages=setup.packages, readable=setup.readable)


def _wait(descriptors: Iterable[int], seconds: int | None) -> set[int]:
    """Those that can be read, or have closed; none if time is up."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return {one for one, _ in poll.poll(None if seconds is None else seconds * 1000)}


def _see_to(lines: dict[int, socket.socket], ready: Collection[int]) -> None:
    """Kill the children whose callers are done with them, or gone, and tell how others ended."""
    for pid, line in list(lines.items()):
        unwanted = line.fileno() in ready
        if unwanted:
            os.kill(pid, signal.SIGKILL)
        # Only here it is forgotten: until then its number is no other process's.
        found, status = os.waitpid(pid, 0 if unwanted else os.WNOHANG)
        if found:
            del lines[pid]
            with line, contextlib.suppress(OSError):
                line.sendall(STATUS.pack(os.waitstatus_to_exitcode(status)))


def _load_light(kinds: Mapping[str, Kind]) -> None:
    for kind in kinds.values():
        if kind.is_light:
            importlib.import_module(kind.reader)


def _load(birth: Birth, kinds: Mapping[str, Kind], warm: set[str]) -> None:
    missing = [name for name in birth.loads if name not in sys.modules]
    for name in missing:
        # A reader without its library refuses all files; the child says so of its own.
        with contextlib.suppress(Permanent):
            importlib.import_module(name)
    cold = [name for name in birth.extractors if name not in warm]
    for name in cold:
        warm.add(name)
        if (sample := kinds[name].sample) is not None:
            _reply(_reader(kinds[name]).extract(Blob(sample)), len(sample))
    if missing or cold:
        # What is not looked at by the collector is not copied for a child either.
        gc.collect()
        gc.freeze()


def _read_files(
    given: Sequence[int],
    setup: Setup,
    kinds: Mapping[str, Kind],
    enclosed: Sequence[str],
    tasks: int | None,
) -> None:
    """In the child: jobs, all of one file or of one owner, until no more come."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    reader, writer, errors = given
    # A library that prints must not write into the answers.
    os.dup2(errors, 1)
    os.dup2(errors, 2)
    # Above all, the lines of the zygote: it is to have nothing to do with the files.
    kept = sorted((reader, writer))
    for first, last in zip((3, kept[0] + 1, kept[1] + 1), (*kept, 65_536), strict=True):
        os.closerange(first, last)
    restricted = restrict(
        setup.memory_bytes,
        setup.file_bytes,
        setup.descriptors,
        tasks=tasks,
        calls=setup.confined,
    )
    _write(writer, pack(Ready(layers(enclosed, restricted))))
    while _wait([reader], setup.idle_seconds):
        job = msgspec.msgpack.decode(_read_message(reader), type=ReadJob)
        data = _read(reader, job.size)
        _limit_time(job)
        reply = work(job, data, kinds, setup.text_bytes, writer)
        signal.setitimer(signal.ITIMER_REAL, 0)
        _write(writer, pack(reply))


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


def _limit_time(job: ReadJob) -> None:
    """The kernel ends this process when the job takes too long, even if the parent is gone."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    used = math.ceil(usage.ru_utime + usage.ru_stime)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = used + job.cpu_seconds
    soft = soft if hard == resource.RLIM_INFINITY else min(soft, hard)
    # One that was taken over could raise it up to the hard limit. A recording, and the files of one
    # owner, come in several jobs, each with time of its own.
    hard = hard if job.listening is not None or job.more else soft + 1
    resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
    signal.setitimer(signal.ITIMER_REAL, job.wall_seconds + 5)


def work(
    job: ReadJob, data: bytes, kinds: Mapping[str, Kind], text_bytes: int, writer: int
) -> ReadReply:
    """One job, in this process; the files of an archive go into `writer`, ahead of the reply.

    What is wrong with the blob is in the reply; what an extractor did not foresee is raised.
    """
    blob = Blob(data, mime=job.mime, name=job.name, url=job.url)
    try:
        if job.extractor in kinds and (document := _document(kinds[job.extractor], data)):
            return ReadReply(document=document)
        match job.task:
            case Task.READ:
                return _read_kind(job, blob, kinds[job.extractor], text_bytes)
            case Task.SURVEY:
                return _survey(_reader(kinds[job.extractor]), blob, text_bytes)
            case Task.SITEMAP:
                return _sitemap(blob)
            case Task.UNPACK:
                return _unpack(blob, kinds[job.extractor], text_bytes, writer)
    except NeedsHeavy:
        return ReadReply(needs_heavy=True)
    except Permanent as error:
        return ReadReply(code=error.code, message=clean_line(str(error)))
    except MemoryError:
        return ReadReply(code="extraction_memory")
    except RecursionError:
        return ReadReply(code="unreadable_content", message="it is nested too deeply")


def _document(kind: Kind, data: bytes) -> str | None:
    """The media type of the document that a container is, where its first bytes did not tell."""
    if kind.is_archive:
        return _zip.document(data)
    if not _ole.is_ole(data) or kind.sniff(data[:HEAD]) is not None:
        return None
    found = _ole.document(data)
    return None if found in kind.types else found


def _read_kind(job: ReadJob, blob: Blob, kind: Kind, text_bytes: int) -> ReadReply:
    if job.listening is not None:
        return ReadReply(heard=_hear(kind, blob, job.listening))
    reader = _reader(kind)
    read = reader.extract_heavy if job.heavy else reader.extract
    return _reply(read(blob), text_bytes)


def _reader(kind: Kind) -> Reader:
    return cast(Reader, importlib.import_module(kind.reader))


def _survey(reader: Reader, blob: Blob, text_bytes: int) -> ReadReply:
    page = reader.survey(blob)
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


def _sitemap(blob: Blob) -> ReadReply:
    found = cast(SitemapReader, importlib.import_module(SITEMAP_READER)).read(blob)
    return ReadReply(
        sitemap=SitemapEntries(pages=tuple(found.pages), sitemaps=tuple(found.sitemaps))
    )


def _unpack(blob: Blob, kind: Kind, text_bytes: int, writer: int) -> ReadReply:
    if not kind.unpacks:
        raise Permanent("it is not an archive", code="unsupported_kind")

    def send(path: str, data: bytes) -> None:
        _write(writer, pack(ReadReply(packed=Packed(path, len(data)))))
        _write(writer, data)

    return _reply(_reader(kind).unpack(blob, send), text_bytes)


def _hear(kind: Kind, blob: Blob, listening: Listening) -> Heard:
    if not kind.is_recording:
        raise Permanent("it is not a recording", code="unsupported_kind")
    return _reader(kind).hear(blob, listening.start, listening.seconds, listening.engine)


def _reply(extracted: Extracted, text_bytes: int) -> ReadReply:
    places = Places.of(extracted.places)
    _keep_encoded(extracted.text)
    read, starts, data = without_data(extracted.text, places.starts())
    text, starts = clean_placed(read, starts)
    warnings = [*map(clean_line, extracted.warnings), *data]
    # Cleaning took out what is invisible: a text that came out as it was has nothing of it.
    if text != read.strip("\n") and (smuggled := count_smuggled(read)):
        warnings.append(f"Text in invisible characters was left out ({smuggled:,} characters).")
    if len(text) * 4 > text_bytes and len(encoded := text.encode()) > text_bytes:
        text = encoded[:text_bytes].decode("utf-8", "ignore")
        warnings.append(f"Only the first {text_bytes:,} bytes of its text were kept.")
    if not text.strip():
        text = ""
        warnings.append(NO_TEXT)
    title = clean_line(extracted.title) if extracted.title else None
    stretches = places.moved(starts, len(text)).pack()
    return ReadReply(
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
