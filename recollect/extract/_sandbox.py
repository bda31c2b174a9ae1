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
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import msgspec

from recollect.errors import Permanent, Transient, Unavailable
from recollect.extract._answers import Intake, Limits, extracted, longest_answer, validate
from recollect.extract._registry import HEAD, Format, detect, nearest
from recollect.extract._wire import (
    Birth,
    Listening,
    ReadJob,
    ReadReply,
    Ready,
    Setup,
    Task,
    pack,
)
from recollect.extract.kinds import SITEMAP_READER, known
from recollect.inference.speech import Heard, LocalEngine
from recollect.model import Blob, Extracted, Sitemap, WebPage
from recollect.sandbox.heavy_queue import HeavyQueue
from recollect.sandbox.pipes import Late, PipeClosed, is_readable, receive, receive_bytes, send
from recollect.sandbox.processes import (
    ReadingChild,
    Zygote,
    end_zygote,
    exit_status,
    fork_child,
    last_words,
    launch,
)

_START_SECONDS = 60
_LOCK_SECONDS = 0.2
_HEAVY_NICENESS = 10
FILES_PER_CHILD = 50
"""of one owner"""
SMALL = 4_000_000
"""Bytes of a file after which its child may read another: larger ones leave much memory in use."""
_PROGRAM = "from recollect.extract._child import serve; serve()"
_OUT_OF_MEMORY = ("memory allocation of", "MemoryError", "bad_alloc", "out of memory")
_TOO_MUCH = "it needs more memory than is allowed"


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
        self._readable = tuple(readable)
        self._kinds = known(*packages)
        self._turns = threading.Semaphore(workers)
        self._heavy_turn = threading.Semaphore(1)
        self._heavy_lock = heavy_lock
        self._confined = confined
        self._files_per_child = files_per_child
        self._most_resting = workers
        self._line = HeavyQueue(heavy_places)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._zygotes: dict[bool, Zygote] = {}
        """by whether they are for heavy work"""
        self._resting: list[ReadingChild] = []
        """which have read a part of a recording, or a file of an owner, and may be given more"""
        self._spare: ReadingChild | None = None
        """one that has read nothing, so that the next file need not wait for it"""
        self._layers: tuple[str, ...] | None = None
        self._closed = False

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
        closed, Parked if too many wait for the models already.
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
        """The list of an archive, with its `members`; their bytes follow one another in `into`.

        What cannot be read is not a member; the list says why. Raises what `extract` raises.
        """
        format = self.detect(blob, forced)
        intake = Intake(into)
        job = self._job(blob, format.extractor, Task.UNPACK)
        reply = self._read(blob, job, intake, owner=owner)
        return replace(extracted(reply, format.kind), members=intake.members)

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
    ) -> ReadReply:
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
        if self._layers is None:
            with self._turns:
                self._end(self._born(None, Birth(()), heavy=False))
        return "+".join(self._layers or ())

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
        with self._lock:
            self._closed = True
            zygotes, self._zygotes = list(self._zygotes.values()), {}
            resting, self._resting = self._resting, []
            if self._spare:
                resting.append(self._spare)
                self._spare = None
        for child in resting:
            self._end(child)
        for zygote in zygotes:
            end_zygote(zygote)

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
                    raise Transient("extraction was stopped")
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
        child = self._take(job, blob, owner, again=again)
        deadline = time.monotonic() + job.wall_seconds
        try:
            reply = self._converse(child, job, blob, intake, deadline)
        except PipeClosed as gone:
            status = exit_status(child)
            if self._closed or status is None:
                self._end(child)
                raise Transient("extraction was stopped") from gone
            # It may have ended for lack of work just when this came; only a new one cannot. Or what
            # it read before is to blame, or a machine out of memory, which kills any process.
            killed = status == -signal.SIGKILL and not again
            if (child.rested and status == 0) or self._may_ask_again(child, intake, killed=killed):
                self._end(child)
                return self._ask(job, blob, intake, owner, again=True)
            raise self._post_mortem(child, status, job, blob) from gone
        except Late as late:
            self._end(child)
            raise _timeout(blob, f"{job.wall_seconds:.0f} s") from late
        except (msgspec.DecodeError, ValueError) as error:
            self._end(child)
            if self._may_ask_again(child, intake, killed=False):
                return self._ask(job, blob, intake, owner, again=True)
            raise _crash(blob, job) from error
        except BaseException:  # an interrupt
            self._end(child)
            raise
        child.files += 1
        # The rest of a recording is wanted next, of one that has loaded its models.
        goes_on = reply.heard is not None and reply.heard.end is not None
        if goes_on or (owner and not reply.code and child.files < self._files_per_child):
            self._rest(child)
        else:
            self._end(child)
        return reply

    def _may_ask_again(self, child: ReadingChild, intake: Intake | None, *, killed: bool) -> bool:
        """Whether what went wrong may not be the fault of this file."""
        return (child.files > 0 or killed) and (intake is None or not intake.members)

    def _rest(self, child: ReadingChild) -> None:
        """Keep it for what comes next; no more than may work at once."""
        surplus = [child]
        with self._lock:
            if not self._closed:
                child.rested = True
                self._resting.append(child)
                surplus = [one for one in self._resting if one.owner][: -self._most_resting]
                self._resting = [one for one in self._resting if one not in surplus]
        for one in surplus:
            self._end(one)

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

    def _take(self, job: ReadJob, blob: Blob, owner: str | None, *, again: bool) -> ReadingChild:
        """One that has read nothing, or nothing but this very blob or files of this owner; with
        `again`, a new one."""
        birth = self._birth(job)

        def fits(one: ReadingChild) -> bool:
            if one.heavy != job.heavy:
                return False
            same = owner is not None and one.owner == owner and not again
            return one.blob is blob or (same and one.has.issuperset(birth.loads))

        with self._lock:
            ended = [child for child in self._resting if is_readable(child.line)]
            self._resting = [child for child in self._resting if child not in ended]
            found = next((one for one in reversed(self._resting) if fits(one)), None)
            if found:
                self._resting.remove(found)
        for child in ended:
            self._end(child)
        if found:
            found.blob = blob
            return found
        if again or job.heavy:
            child = self._born(None, birth, heavy=job.heavy)
        else:
            child = self._start(birth)
        child.blob, child.owner = blob, owner
        return child

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

    def _start(self, birth: Birth) -> ReadingChild:
        """The spare one, or a new one; the next spare one is made while it works."""
        with self._lock:
            spare, self._spare = self._spare, None
        if spare and not spare.has.issuperset(birth.loads):
            self._end(spare)
            spare = None
        child = self._born(spare, birth, heavy=False)
        zygote, _ = self._zygote(heavy=False)
        same = Birth(tuple(child.has), birth.extractors)
        next_one = None
        with suppress(Unavailable):  # then the next file has to wait for one
            next_one = fork_child(zygote, pack(same), same.loads, heavy=False)
            # It may end for lack of work.
            next_one.rested = True
        with self._lock:
            if self._spare is None and not self._closed:
                self._spare, next_one = next_one, None
        if next_one:
            self._end(next_one)
        return child

    def _born(self, child: ReadingChild | None, birth: Birth, *, heavy: bool) -> ReadingChild:
        """The same, or a new one, when it is confined."""
        while True:
            zygote, is_new = self._zygote(heavy=heavy)
            was_there = child is not None or not is_new
            child = child or fork_child(zygote, pack(birth), birth.loads, heavy=heavy)
            deadline = time.monotonic() + _START_SECONDS
            try:
                ready = msgspec.msgpack.decode(receive(child.answers, 65_536, deadline), type=Ready)
            except (PipeClosed, Late, ValueError) as error:
                words = last_words(child.errors)
                self._end(child)
                child = None
                if self._closed:
                    raise Transient("extraction was stopped") from error
                # One that was there may have ended for lack of work just when this came.
                if isinstance(error, PipeClosed) and was_there:
                    self._forget(zygote, heavy=heavy)
                    continue
                words = last_words(zygote.errors) or words or "it was ended from outside"
                self._forget(zygote, heavy=heavy)
                raise Unavailable(
                    f"the extraction process does not start: {words[-500:]}"
                ) from error
            except BaseException:
                self._end(child)
                raise
            if ready.trouble:
                self._end(child)
                raise Unavailable(f"the reader of such files does not load: {ready.trouble}")
            if self._layers is None:
                self._layers = ready.layers
            return child

    def _zygote(self, *, heavy: bool) -> tuple[Zygote, bool]:
        """The one that is there, or a new one, and whether it is new."""
        with self._lock:
            if self._closed:
                raise Transient("extraction was stopped")
            known = self._zygotes.get(heavy)
            if known is not None and known.process.poll() is None:
                return known, False
            if known is not None:
                end_zygote(known)
            limits = self._limits
            setup = Setup(
                packages=self._packages,
                readable=self._readable,
                memory_bytes=limits.heavy_memory_bytes if heavy else limits.memory_bytes,
                file_bytes=limits.file_bytes,
                descriptors=limits.descriptors,
                text_bytes=limits.text_bytes,
                idle_seconds=limits.heavy_idle_seconds if heavy else limits.idle_seconds,
                niceness=_HEAVY_NICENESS if heavy else 0,
                confined=self._confined,
            )
            zygote = self._zygotes[heavy] = launch(_PROGRAM, pack(setup))
            return zygote, True

    def _forget(self, zygote: Zygote, *, heavy: bool) -> None:
        with self._lock:
            if self._zygotes.get(heavy) is zygote:
                del self._zygotes[heavy]
                end_zygote(zygote)

    def _end(self, child: ReadingChild) -> None:
        """Its zygote kills it; nobody waits for that."""
        child.line.close()
        os.close(child.jobs)
        os.close(child.answers)
        child.errors.close()

    def _post_mortem(self, child: ReadingChild, status: int, job: ReadJob, blob: Blob) -> Permanent:
        """What a child died of that closed its pipe."""
        words = last_words(child.errors)
        self._end(child)
        if status in (-signal.SIGXCPU, -signal.SIGALRM):
            return _timeout(blob, f"{job.cpu_seconds} s of processor time")
        killed = status == -signal.SIGKILL
        if killed or any(sign in words for sign in _OUT_OF_MEMORY):
            why = "its reader was killed, as by a system out of memory" if killed else _TOO_MUCH
            error = Permanent(f"{_called(blob)} cannot be read: {why}", code="extraction_memory")
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
