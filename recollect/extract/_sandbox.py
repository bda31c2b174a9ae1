"""Extraction in confined child processes.

Own processes over own pipes rather than a pool library: a pool reads what its workers pickled, so
a worker that a file took over could run code in the service, and its workers share one pipe, so
it could read other tenants' files from it.
"""

import fcntl
import os
import signal
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import msgspec

from recollect.errors import Permanent, Transient, Unavailable
from recollect.extract._answers import Intake, Limits, extracted, longest_answer, validate
from recollect.extract._children import Children, end, stopped
from recollect.extract._registry import HEAD, Format, detect, nearest
from recollect.extract._wire import (
    Birth,
    Listening,
    ReadJob,
    ReadReply,
    Task,
    pack,
)
from recollect.extract.kinds import SITEMAP_READER, known
from recollect.inference.speech import Heard, LocalEngine
from recollect.model import Blob, Extracted, Sitemap, WebPage
from recollect.sandbox.heavy_queue import HeavyQueue
from recollect.sandbox.pipes import Late, PipeClosed, receive, receive_bytes, send
from recollect.sandbox.processes import (
    ReadingChild,
    exit_status,
    last_words,
)

_LOCK_SECONDS = 0.2
FILES_PER_CHILD = 50
"""of one owner"""
SMALL = 4_000_000
"""Bytes of a file after which its child may read another: larger ones leave much memory in use."""
_OUT_OF_MEMORY = ("memory allocation of", "MemoryError", "bad_alloc", "out of memory")
_TOO_MUCH = "it needs more memory than is allowed"
_MEMORY_WAIT = timedelta(minutes=1)


class Sandbox:
    """Extracts in up to `workers` children at once; more callers wait their turn.

    Threads may share it. Children start when there is work and end by themselves when there is
    none. `packages` are further packages with `KINDS`, `readable` folders that engines read.

    What takes models goes on to one more child, one blob at a time; with `heavy_lock`, a file,
    also over all processes of this machine that are given the same. Of its callers, `heavy_places`
    wait; the others get Parked. Without `confined` children have limits of time and memory only.

    A child that has read a file of one owner never reads another owner's: up to `files_per_child`
    small files of the same owner, then it ends. To fork one takes as long as to read a small file.
    Without an owner, each file has a child of its own.
    """

    def __init__(
        self,
        *,
        workers: int,
        limits: Limits | None = None,
        packages: Sequence[str] = (),
        readable: Sequence[str] = (),
        heavy_lock: Path | None = None,
        heavy_places: int | None = None,
        confined: bool = True,
        files_per_child: int = FILES_PER_CHILD,
    ) -> None:
        self._limits = limits or Limits()
        self._packages = tuple(packages)
        self._kinds = known(*packages)
        self._turns = threading.Semaphore(workers)
        self._heavy_turn = threading.Semaphore(1)
        self._heavy_lock = heavy_lock
        self._confined = confined
        self._files_per_child = files_per_child
        self._line = HeavyQueue(heavy_places)
        self._stop = threading.Event()
        self._children = Children(
            self._limits,
            packages=packages,
            readable=readable,
            confined=confined,
            most_resting=workers,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def extract(
        self, blob: Blob, *, forced: str | Format | None = None, owner: str | None = None
    ) -> Extracted:
        """Text of a blob; empty, with a warning, if it holds none.

        `forced` is a document type (see `extract.detect`), or the format that `detect` found.
        Raises Permanent with a code: `unsupported_kind`, `too_large`, `encrypted_file`,
        `unreadable_content`, `extraction_timeout`, `extraction_memory`, `extraction_crashed`.
        Raises Unavailable if a child or an extractor does not start, Transient if the sandbox is
        closed or a system out of memory kills its child, Parked if too many wait for the models
        already.
        """
        format = self.detect(blob, forced)
        reply = self._read(blob, self._job(blob, format.extractor), owner=owner)
        return extracted(reply, format.kind)

    def detect(self, blob: Blob, forced: str | Format | None = None) -> Format:
        """What it is, to be handed on as `forced`, so that it is found once.

        Raises Permanent `unsupported_kind`.
        """
        if isinstance(forced, Format):
            return forced
        format = detect(
            blob.data[:HEAD],
            name=blob.name,
            mime=blob.mime,
            forced=forced,
            packages=self._packages,
        )
        if format is None:
            raise Permanent(
                f"{_called(blob)} is of a type that cannot be read. {nearest(blob.name)}",
                code="unsupported_kind",
            )
        return format

    def unpack(
        self,
        blob: Blob,
        into: IO[bytes],
        *,
        forced: str | Format | None = None,
        owner: str | None = None,
    ) -> Extracted:
        """The list of an archive, or the text of what only holds files, such as a mail, with its
        `members`; their bytes follow one another in `into`.

        What cannot be read is not a member; the list, or a warning, says why. Raises what
        `extract` raises.
        """
        format = self.detect(blob, forced)
        intake = Intake(into)
        job = self._job(blob, format.extractor, Task.UNPACK)
        reply = self._read(blob, job, intake, owner=owner)
        is_archive = self._kinds[format.extractor].is_archive
        members = intake.members if intake.members or is_archive else None
        return replace(extracted(reply, format.kind), members=members)

    def survey(self, blob: Blob, *, owner: str | None = None) -> WebPage:
        """An HTML page as a crawler sees it: its text, its links, what it says of itself.

        Links are relative to `blob.url`; without it only absolute ones are found. Raises what
        `extract` raises; `unsupported_kind` also for what its first bytes show to be no HTML.
        """
        format = self.detect(blob, None)
        if format.extractor not in ("html", "text"):
            raise Permanent(
                f"{_called(blob)} is not an HTML page: it looks like {format.mime}",
                code="unsupported_kind",
            )
        reply = self._read(blob, self._job(blob, "html", Task.SURVEY), owner=owner)
        if reply.page is None:
            raise Permanent(f"{_called(blob)} cannot be surveyed", code="extraction_crashed")
        page = reply.page
        return WebPage(
            extracted=extracted(reply, "webpage"),
            links=page.links,
            canonical=page.canonical,
            directives=page.directives,
            language=page.language,
            published=page.published,
            modified=page.modified,
        )

    def sitemap(self, blob: Blob, *, owner: str | None = None) -> Sitemap:
        """The addresses that a sitemap names: XML, a feed, or lines of text; also packed by gzip.

        Of a damaged one, those before the damage. Raises what `extract` raises, and
        `unreadable_content` for what is not a sitemap.
        """
        reply = self._read(blob, self._job(blob, "sitemap", Task.SITEMAP), owner=owner)
        if reply.sitemap is None:
            raise Permanent(f"{_called(blob)} cannot be read", code="extraction_crashed")
        return Sitemap(reply.sitemap.pages, reply.sitemap.sitemaps)

    def hear(
        self,
        blob: Blob,
        start: float,
        seconds: float,
        engine: LocalEngine | None,
        *,
        forced: str | Format | None = None,
    ) -> Heard:
        """A stretch of a recording: its samples or, with an engine, what is said in it.

        Raises what `extract` raises, and Permanent `transcriber_failed` for an engine that does
        not load.
        """
        listening = Listening(start, seconds, engine)
        format = self.detect(blob, forced)
        job = msgspec.structs.replace(self._job(blob, format.extractor), listening=listening)
        reply = self._read(blob, job)
        if reply.heard is None:
            raise Permanent(f"{_called(blob)} cannot be heard", code="extraction_crashed")
        return reply.heard

    def _job(self, blob: Blob, extractor: str, task: Task = Task.READ) -> ReadJob:
        size = len(blob.data)
        if size > self._limits.input_bytes:
            raise Permanent(
                f"{_called(blob)} has {size:,} bytes; {self._limits.input_bytes:,} are accepted",
                code="too_large",
            )
        return ReadJob(
            extractor=extractor,
            mime=blob.mime,
            name=blob.name,
            url=blob.url,
            size=size,
            cpu_seconds=self._limits.cpu(size),
            wall_seconds=self._limits.wall(size),
            task=task,
        )

    def _read(
        self,
        blob: Blob,
        job: ReadJob,
        intake: Intake | None = None,
        *,
        owner: str | None = None,
        turned: bool = False,
    ) -> ReadReply:
        """`turned`: whether it was found to be of another kind than its first bytes said."""
        owner = owner if self._files_per_child > 1 and job.size <= SMALL else None
        job = msgspec.structs.replace(job, more=owner is not None)
        listening = job.listening
        if listening is not None and listening.engine is not None:
            reply = ReadReply(needs_heavy=True)
        else:
            with self._turns:
                reply = self._ask(job, blob, intake, owner)
        if reply.needs_heavy:
            job = msgspec.structs.replace(
                job,
                heavy=True,
                more=False,
                cpu_seconds=self._limits.heavy_cpu_seconds,
                wall_seconds=self._limits.heavy_wall,
            )
            with self._line.join(), self._heavy_turn, self._turn_of_machine():
                reply = self._ask(job, blob)
        if reply.document:
            other = next((one for one in self._kinds.values() if reply.document in one.types), None)
            if turned or other is None or other.is_archive:
                raise Permanent(f"{_called(blob)} cannot be read: it is not what it says")
            return self._read(blob, self._job(blob, other.name), owner=owner, turned=True)
        if reply.needs_heavy:
            raise _crash(blob, job)
        if reply.code:
            reason = reply.message or _TOO_MUCH
            raise Permanent(f"{_called(blob)} cannot be read: {reason}", code=reply.code)
        return reply

    def in_line(self) -> AbstractContextManager[None]:
        """For a job of several heavy parts: once begun, none of them raises Parked."""
        return self._line.join()

    def describe(self) -> str:
        """The layers that confine children here, as a child reports them: starts one if need be."""
        if self._children.layers is None:
            with self._turns:
                end(self._children.new(Birth(()), heavy=False))
        return "+".join(self._children.layers or ())

    def missing(self) -> str | None:
        """What confinement lacks here, as a sentence for the operator; None if it is complete."""
        held = self.describe()
        if not self._confined:
            return (
                "RECOLLECT_SANDBOX=off: a file that takes over its reader can do all that the"
                " service can; unset it"
            )
        lacks = [layer for layer in ("Landlock", "seccomp") if layer.lower() not in held]
        if not lacks:
            return None
        return (
            f"the processes that read files are confined without {' and '.join(lacks)}: if a"
            " file takes one over, it could read what the service may read. Linux 5.13 or newer"
            " has both,"
            " unless the container engine forbids them; RECOLLECT_SANDBOX=required refuses to start"
        )

    def close(self) -> None:
        """End all children, also those at work: their callers get Transient."""
        self._stop.set()
        self._children.close()

    @contextmanager
    def _turn_of_machine(self) -> Generator[None]:
        if self._heavy_lock is None:
            yield
            return
        try:
            descriptor = os.open(
                self._heavy_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
        except OSError as error:
            raise Unavailable(f"the lock for heavy work cannot be opened: {error}") from error
        try:
            # Not a blocking call: closing must end those who wait.
            while not _locked(descriptor):
                if self._stop.wait(_LOCK_SECONDS):
                    raise stopped()
            yield
        finally:
            os.close(descriptor)

    def _ask(
        self,
        job: ReadJob,
        blob: Blob,
        intake: Intake | None = None,
        owner: str | None = None,
        *,
        again: bool = False,
    ) -> ReadReply:
        child = self._children.take(self._birth(job), blob, owner, heavy=job.heavy, again=again)
        deadline = time.monotonic() + job.wall_seconds
        try:
            reply = self._converse(child, job, blob, intake, deadline)
        except PipeClosed as gone:
            status = exit_status(child)
            if self._children.closed or status is None:
                end(child)
                raise stopped() from gone
            # It may have ended for lack of work just when this came; only a new one cannot. Or what
            # it read before is to blame, or a machine out of memory, which kills any process.
            killed = status == -signal.SIGKILL and not again
            if (child.rested and status == 0) or self._may_ask_again(child, intake, killed=killed):
                end(child)
                return self._ask(job, blob, intake, owner, again=True)
            raise self._post_mortem(child, status, job, blob) from gone
        except Late as late:
            end(child)
            raise _timeout(blob, f"{job.wall_seconds:.0f} s") from late
        except (msgspec.DecodeError, ValueError) as error:
            end(child)
            if self._may_ask_again(child, intake, killed=False):
                return self._ask(job, blob, intake, owner, again=True)
            raise _crash(blob, job) from error
        except BaseException:  # an interrupt
            end(child)
            raise
        child.files += 1
        # The rest of a recording is wanted next, of one that has loaded its models.
        goes_on = reply.heard is not None and reply.heard.end is not None
        if goes_on or (owner and not reply.code and child.files < self._files_per_child):
            self._children.rest(child)
        else:
            end(child)
        return reply

    def _may_ask_again(self, child: ReadingChild, intake: Intake | None, *, killed: bool) -> bool:
        """Whether what went wrong may not be the fault of this file."""
        return (child.files > 0 or killed) and (intake is None or not intake.members)

    def _converse(
        self, child: ReadingChild, job: ReadJob, blob: Blob, intake: Intake | None, deadline: float
    ) -> ReadReply:
        send(child.jobs, [pack(job), blob.data], deadline)
        most = longest_answer(job, self._limits)
        while True:
            reply = msgspec.msgpack.decode(receive(child.answers, most, deadline), type=ReadReply)
            validate(reply, job, self._limits)
            if reply.packed is None:
                return reply
            if intake is None:
                raise ValueError("a file that nobody asked for")
            intake.announce(reply.packed)
            intake.take(reply.packed, receive_bytes(child.answers, reply.packed.size, deadline))

    def _birth(self, job: ReadJob) -> Birth:
        if job.task is Task.SITEMAP:
            return Birth((SITEMAP_READER,))
        kind = self._kinds[job.extractor]
        engine = job.listening.engine if job.listening else None
        heavy = kind.heavy_loads if job.heavy and engine is None else ()
        # One that is not installed says so itself.
        spoken = (engine.loads,) if engine and find_spec(engine.loads) else ()
        reader = () if kind.is_light else (kind.reader,)
        return Birth((*reader, *kind.loads, *heavy, *spoken), (kind.name,))

    def _post_mortem(
        self, child: ReadingChild, status: int, job: ReadJob, blob: Blob
    ) -> Permanent | Transient:
        """What a child died of that closed its pipe."""
        words = last_words(child.errors)
        end(child)
        if status in (-signal.SIGXCPU, -signal.SIGALRM):
            return _timeout(blob, f"{job.cpu_seconds} s of processor time")
        called, code = _called(blob), "extraction_memory"
        if status == -signal.SIGKILL:  # the memory that others need may be free later
            why = "its reader was killed, as by a system out of memory"
            error = Transient(f"{called} cannot be read: {why}", code=code, after=_MEMORY_WAIT)
        elif any(sign in words for sign in _OUT_OF_MEMORY):
            error = Permanent(f"{called} cannot be read: {_TOO_MUCH}", code=code)
        else:
            error = _crash(blob, job)
        error.add_note(words)
        return error


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _called(blob: Blob) -> str:
    return f'"{blob.name}"' if blob.name else "the content"


def _timeout(blob: Blob, limit: str) -> Permanent:
    return Permanent(
        f"{_called(blob)} cannot be read: it takes more than {limit}", code="extraction_timeout"
    )


def _crash(blob: Blob, job: ReadJob) -> Permanent:
    return Permanent(
        f"{_called(blob)} cannot be read: the {job.extractor} extractor crashed on it",
        code="extraction_crashed",
    )
