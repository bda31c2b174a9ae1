"""The processes that read files: a zygote, and the children that it forks."""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import IO

from recollect.errors import Unavailable
from recollect.model import Blob
from recollect.sandbox.pipes import STATUS, widen

_LAST_BREATH_SECONDS = 5


@dataclass(slots=True, eq=False)
class Zygote:
    """A process that loads parsers and forks children that read. It sees no files."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    errors: IO[bytes]
    """what it writes to standard error, for the post-mortem"""


@dataclass(slots=True, eq=False)
class ReadingChild:
    """A process that reads one file, or a few of one owner."""

    line: socket.socket
    """to its zygote, which kills it when this closes, and tells how it ended"""
    jobs: int
    """descriptors of the two pipes"""
    answers: int
    errors: IO[bytes]
    has: frozenset[str]
    """modules that it has"""
    heavy: bool
    blob: Blob | None = None
    """what it read, or is to read"""
    owner: str | None = None
    """whose files it reads, if it may read more than one"""
    files: int = 0
    """how many it has read"""
    rested: bool = False
    """whether it ever waited for work, and so may have ended for lack of it"""


def launch(program: str, setup: bytes) -> Zygote:
    """A process that runs this program, with its end of a socket, on which `setup` comes first, as
    standard input. Raises Unavailable if it does not start."""
    with _starting() as opened:
        errors = opened.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - lives on
        ours, theirs = map(opened.enter_context, socket.socketpair())
        process = subprocess.Popen(
            [sys.executable, "-s", "-P", "-B", "-X", "utf8", "-c", program],
            stdin=theirs.fileno(),
            stdout=errors,
            stderr=errors,
            cwd="/",
            # Nothing of this process's environment: it holds keys and passwords.
            env=_environment(),
            # A Ctrl-C is for the service, which lets documents at work come to their end.
            start_new_session=True,
        )
    theirs.close()
    with suppress(OSError):  # the first wish for a child shows it
        ours.sendall(setup)
    return Zygote(process, ours, errors)


@contextmanager
def _starting() -> Generator[ExitStack]:
    """What is opened inside stays open, unless all of it cannot be: then Unavailable is raised."""
    with ExitStack() as opened:
        try:
            yield opened
        except OSError as error:
            told = f"the extraction process cannot be started: {error.strerror}"
            raise Unavailable(told) from error
        opened.pop_all()


def _environment() -> dict[str, str]:
    return {
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
        # Threads of libraries reserve address space each, on a large machine more than allowed.
        "MALLOC_ARENA_MAX": "2",
        "OMP_NUM_THREADS": "1",
        "RAYON_NUM_THREADS": "1",
        "TOKIO_WORKER_THREADS": "1",
    }


def fork_child(zygote: Zygote, birth: bytes, has: Iterable[str], *, heavy: bool) -> ReadingChild:
    """Ask for a child that `has` these modules; its first message says whether it is there.
    Raises Unavailable where there is no room for its descriptors."""
    with _starting() as opened:
        errors = opened.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - lives on
        ours, theirs = map(opened.enter_context, socket.socketpair())
        their_jobs, jobs = _pipe(opened)
        answers, their_answers = _pipe(opened)
        for pipe in (jobs, answers):
            os.set_blocking(pipe, False)
            widen(pipe)
    # A zygote that is gone is seen when the answer fails to come.
    with suppress(OSError):
        ours.sendall(birth)
        given = [theirs.fileno(), their_jobs, their_answers, errors.fileno()]
        socket.send_fds(zygote.control, [b"+"], given)
    theirs.close()
    os.close(their_jobs)
    os.close(their_answers)
    return ReadingChild(ours, jobs, answers, errors, frozenset(has), heavy)


def _pipe(opened: ExitStack) -> tuple[int, int]:
    ends = os.pipe()
    for end in ends:
        opened.callback(os.close, end)
    return ends


def exit_status(child: ReadingChild) -> int | None:
    """How a child ended that closed its pipe; one that lives on regardless is killed.

    None if its zygote is gone, and so it is.
    """
    child.line.settimeout(_LAST_BREATH_SECONDS)
    try:
        told = child.line.recv(STATUS.size)
    except TimeoutError:
        return 1
    except OSError:
        return None
    return STATUS.unpack(told)[0] if len(told) == STATUS.size else None


def last_words(errors: IO[bytes]) -> str:
    size = errors.seek(0, os.SEEK_END)
    errors.seek(max(0, size - 4_000))
    return errors.read().decode("utf-8", "replace").strip()


def end_zygote(zygote: Zygote) -> None:
    """End one, and its children with it."""
    zygote.control.close()
    try:
        zygote.process.wait(_LAST_BREATH_SECONDS)
    except subprocess.TimeoutExpired:
        zygote.process.kill()
        zygote.process.wait()
    zygote.errors.close()
