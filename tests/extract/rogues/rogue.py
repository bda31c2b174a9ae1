"""An extractor that does what its file says: what a parser does that a file took over.

The first word of the blob names the deed, the rest is its argument; "heavy" before them asks for
the heavy child. A deed that the system refuses
answers "denied", one that works "done".
"""

import ctypes
import fcntl
import importlib
import math
import mmap
import os
import platform
import resource
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import NoReturn

from recollect.errors import Permanent
from recollect.extract import _child
from recollect.extract._wire import Packed, ReadReply, SitemapEntries, Stretch, Surveyed, pack
from recollect.extract.kinds import NeedsHeavy
from recollect.inference.speech import Heard
from recollect.model import Blob, Extracted


def extract(blob: Blob) -> Extracted:
    if blob.data.startswith(b"heavy "):
        raise NeedsHeavy
    return _do(blob.data.decode())


def extract_heavy(blob: Blob) -> Extracted:
    words = blob.data.decode().removeprefix("heavy ")
    if words == "again":
        raise NeedsHeavy
    return _do(words)


def unpack(blob: Blob, keep: Callable[[str, bytes], None]) -> Extracted:
    """As an archive: files that may not come."""
    match blob.data:
        case b"twice":
            files = [("a.txt", b"x")] * 2
        case b"many":
            files = [(f"{n}.txt", b"x") for n in range(1001)]
        case b"nul":
            files = [("a\0.txt", b"x")]
        case b"big":
            files = [(f"{n}.txt", b"x" * 50_000_000) for n in range(5)]
        case _:
            files = [("a.txt", b"MZ\x90\0\x03")]
    for path, data in files:
        keep(path, data)
    return Extracted("done")


def _do(words: str) -> Extracted:
    deed, _, argument = words.partition(" ")
    try:
        answer = DEEDS[deed](argument)
    except (OSError, MemoryError) as error:
        return Extracted(f"denied {type(error).__name__}")
    return Extracted(f"done {answer}")


def _echo(words: str) -> str:
    return words


def _tcp(port: str) -> None:
    socket.create_connection(("127.0.0.1", int(port)), timeout=5).close()


def _udp(port: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        channel.sendto(b"x", ("127.0.0.1", int(port)))


def _unix(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as channel:
        channel.connect(path)


def _pair(_: str) -> None:
    for end in socket.socketpair():
        end.close()


def _read(path: str) -> str:
    with open(path, "rb") as file:
        return str(len(file.read(100)))


def _read_parent_environment(_: str) -> str:
    return _read(f"/proc/{os.getppid()}/environ")


def _write(path: str) -> None:
    with open(path, "w") as file:
        file.write("x")


def _truncate(path: str) -> None:
    os.truncate(path, 0)


def _unlink(path: str) -> None:
    os.unlink(path)


def _chmod(path: str) -> None:
    os.chmod(path, 0o777)


def _fill(descriptor: str) -> None:
    for _ in range(200):
        os.write(int(descriptor), b"x" * 1_000_000)


def _exec(_: str) -> None:
    os.execv("/bin/true", ["true"])


def _fork(_: str) -> None:
    if os.fork() == 0:
        os._exit(0)
    os.wait()


def _thread(_: str) -> str:
    heard: list[str] = []
    thread = threading.Thread(target=heard.append, args=("heard",))
    thread.start()
    thread.join()
    return heard[0]


def _threads(most: str) -> str:
    """As many as there may be; they live until this process ends."""
    threading.stack_size(1 << 16)
    never, started = threading.Event(), 0
    try:
        for _ in range(int(most)):
            threading.Thread(target=never.wait, daemon=True).start()
            started += 1
    except RuntimeError:  # Python's word for EAGAIN here
        return f"refused after {started}"
    return f"{started}"


def _processes(most: str) -> str:
    """As many as there may be; they live until their pipe closes, which is with this one."""
    waiting, ours = os.pipe()
    for started in range(int(most)):
        try:
            if os.fork() == 0:
                os.close(ours)
                os.read(waiting, 1)
                os._exit(0)
        except BlockingIOError:
            return f"refused after {started}"
    return most


def _memory(size: str) -> None:
    mmap.mmap(-1, int(size)).close()


def _raise_limit(_: str) -> None:
    size = resource.getrlimit(resource.RLIMIT_AS)[1]
    try:
        resource.setrlimit(resource.RLIMIT_AS, (size * 2, size * 2))
    except ValueError as error:  # Python's word for EPERM here
        raise PermissionError from error


def _anonymous_file(_: str) -> None:
    os.close(os.memfd_create("x"))


def _call(numbers: str) -> str:
    """What the system answers to these calls, all arguments nothing."""
    libc = ctypes.CDLL(None, use_errno=True)
    answers: set[int] = set()
    for number in numbers.split():
        libc.syscall(int(number), 0, 0, 0, 0, 0, 0)
        answers.add(ctypes.get_errno())
    return " ".join(map(str, sorted(answers)))


def _asked(name: str, *arguments: object) -> None:
    """A function of libc; what it refuses is raised."""
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) == -1:
        raise OSError(ctypes.get_errno(), name)


def _signal_by_pipe(pid: str) -> None:
    """Have the kernel send a signal for us: whoever owns a pipe hears of it."""
    f_setown, f_setsig, f_setfl = 8, 10, fcntl.F_SETFL
    reader, writer = os.pipe()
    _asked("fcntl", reader, f_setsig, signal.SIGKILL)
    _asked("fcntl", reader, f_setown, int(pid))
    _asked("fcntl", reader, f_setfl, os.O_ASYNC | os.O_NONBLOCK)
    os.write(writer, b"x")


def _own_by_struct(pid: str) -> None:
    reader, _ = os.pipe()
    _asked("fcntl", reader, 15, struct.pack("=ii", 1, int(pid)))


def _own_by_ioctl(request: str) -> Callable[[str], None]:
    def own(pid: str) -> None:
        ends = socket.socketpair()
        _asked("ioctl", ends[0].fileno(), int(request, 16), struct.pack("=i", int(pid)))

    return own


def _run_last(pid: str) -> None:
    _asked("sched_setscheduler", int(pid), 5, struct.pack("=i", 0))


def _one_core(pid: str) -> None:
    _asked("sched_setaffinity", int(pid), 8, struct.pack("=Q", 1))


def _reprioritise(pid: str) -> None:
    _asked("setpriority", 0, int(pid), 19)


def _idle_disk(pid: str) -> None:
    _asked("syscall", {"x86_64": 251}.get(platform.machine(), 30), 1, int(pid), 3 << 13)


def _limit_other(pid: str) -> None:
    _asked("prlimit", int(pid), resource.RLIMIT_NOFILE, struct.pack("=QQ", 0, 0), None)


def _group_other(pid: str) -> None:
    _asked("setpgid", int(pid), int(pid))


def _watch(path: str) -> None:
    watcher = ctypes.CDLL(None, use_errno=True).inotify_init()
    _asked("inotify_add_watch", watcher, path.encode(), 0xFFF)


def _lock(path: str) -> None:
    fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)


def _remove_shared(number: str) -> None:
    """As of PostgreSQL: its shared memory is found by number."""
    _asked("shmctl", int(number), 0, None)


def _datagram(path: str) -> None:
    ours, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.sendto(b"STOPPING=1", path)


def _outlive(_: str) -> None:
    _asked("prctl", 1, ctypes.c_ulong(0), 0, 0, 0)


def _capabilities(_: str) -> str:
    header = ctypes.create_string_buffer(struct.pack("=Ii", 0x20080522, 0))
    data = ctypes.create_string_buffer(24)
    ctypes.CDLL(None).capget(header, data)
    words = struct.unpack("=6I", data.raw)
    return f"{words[0] | words[1] | words[2]:x} {words[3] | words[4] | words[5]:x}"


def _signal(_: str) -> None:
    os.kill(os.getppid(), 0)


def _ptrace(_: str) -> None:
    attach, detach = 16, 17
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(attach, os.getppid(), None, None) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")
    libc.ptrace(detach, os.getppid(), None, None)


def _environment(name: str) -> str:
    return str(name in os.environ)  # noqa: TID251 - what it finds there is the test


def _descriptors(_: str) -> str:
    found: list[str] = []
    for number in range(64):
        try:
            os.fstat(number)
        except OSError:
            continue
        found.append(str(number))
    return " ".join(found)


def _segfault(_: str) -> None:
    ctypes.string_at(0)


def _abort(_: str) -> None:
    os.abort()


def _killed(_: str) -> None:
    signal.raise_signal(signal.SIGKILL)


def _spin(_: str) -> None:
    while True:
        pass


def _burn(seconds: str) -> None:
    end = time.process_time() + float(seconds)
    while time.process_time() < end:
        pass


def _hang(_: str) -> None:
    threading.Event().wait()


def _eat(_: str) -> None:
    pieces: list[bytes] = []
    while True:
        pieces.append(bytes(10_000_000))


def _eat_unnoticed(_: str) -> None:
    try:
        _eat("")
    except MemoryError as error:
        # As in a library that dies of it instead of reporting it.
        os.write(2, b"memory allocation of 10000000 bytes failed\n")
        os.abort()
        raise AssertionError from error


def _bug(_: str) -> None:
    raise ValueError("a case that nobody thought of")


def _refuse(reason: str) -> None:
    raise Permanent(reason, code="encrypted_file")


def _import(name: str) -> None:
    importlib.import_module(name)


def _recurse(_: str) -> None:
    _recurse(_)


def _exit(status: str) -> None:
    os._exit(int(status))


def _booby_trap(words: str) -> str:
    """Answer well, and die of the next file."""

    def die(*_: object) -> NoReturn:
        os._exit(3)

    _child.work = die
    return "set"


def _take_over(_: str) -> str:
    """Have this process answer what we like, whatever it is asked from now on."""

    def work(*_: object) -> ReadReply:
        return ReadReply(text="by the rogue")

    _child.work = work
    return "taken over"


LIES = {
    "nul": ReadReply(text="a\0b"),
    "nul-title": ReadReply(text="a", title="a\0b"),
    "nul-warning": ReadReply(text="a", warnings=("a\0b",)),
    "huge": ReadReply(text="a" * 2_000),
    "page": ReadReply(text="a", page=Surveyed((), None, (), None, None, None)),
    "sitemap": ReadReply(text="a", sitemap=SitemapEntries((), ())),
    "heard": ReadReply(text="a", heard=Heard(0.0, None)),
    "nan": ReadReply(
        text="a", places=(Stretch({"time": math.nan}, None, True, bytes(4), bytes(8)),)
    ),
    "inf": ReadReply(
        text="a",
        places=(Stretch({}, "time", False, bytes(4), struct.pack("=d", math.inf)),),
    ),
    "nul-place": ReadReply(text="a", places=(Stretch({"a\0": 1}, None, True, bytes(4), bytes(8)),)),
    "backwards": ReadReply(
        text="abcdef", places=(Stretch({}, "row", True, struct.pack("=II", 5, 1), bytes(16)),)
    ),
    "beyond": ReadReply(
        text="a", places=(Stretch({}, "row", True, struct.pack("=I", 5), bytes(8)),)
    ),
    "packed": ReadReply(packed=Packed("a.txt", 1)),
}
"""Answers that no honest child gives."""


def _lie(name: str) -> str:
    _answer(pack(LIES[name]))
    return "lied"


def _surrogate(_: str) -> None:
    """A text that is no UTF-8, as MessagePack."""
    body = b"\x81\xa4text\xa3\xed\xa0\x80"
    _answer(struct.pack(">I", len(body)) + body)


def _nested(_: str) -> None:
    body = b"\x81\xa8warnings" + b"\x91" * 100_000 + b"\xc0"
    _answer(struct.pack(">I", len(body)) + body)


def _claim(code: str) -> None:
    raise Permanent("so it says", code=code)


def _pid(_: str) -> str:
    return str(os.getpid())


def _stretch(_: str) -> str:
    """From when to when this was read, by the clock that all processes share."""
    start = time.monotonic()
    _burn("0.02")
    return f"{start} {time.monotonic()}"


def _niceness(_: str) -> str:
    return str(os.getpriority(os.PRIO_PROCESS, 0))


def _answer(data: bytes) -> None:
    """Into each pipe that there is, as if the child said it."""
    for descriptor in range(3, 64):
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        except OSError:
            continue


def _babble(_: str) -> None:
    """Answers in the extractor's stead, with bytes that are no answer."""
    _answer(b"\x00\x00\x00\x04junk")


def _boast(_: str) -> None:
    """Announces an answer of 4 GB."""
    _answer(b"\xff\xff\xff\xff" + bytes(1000))


def _hang_up(_: str) -> None:
    """Closes the pipe and lives on."""
    os.closerange(3, 64)
    threading.Event().wait()


def _print(words: str) -> str:
    print(words, flush=True)  # noqa: T201 - some libraries do
    return words


def _long(size: str) -> str:
    return "ä" * int(size)


def _dirty(_: str) -> str:
    return "a\x00b\ud800c\r\nd   \n\n\n\n\n\n\ne"


DEEDS = {
    "echo": _echo,
    "tcp": _tcp,
    "udp": _udp,
    "unix": _unix,
    "pair": _pair,
    "read": _read,
    "read-parent-environment": _read_parent_environment,
    "write": _write,
    "truncate": _truncate,
    "unlink": _unlink,
    "chmod": _chmod,
    "fill": _fill,
    "exec": _exec,
    "fork": _fork,
    "thread": _thread,
    "threads": _threads,
    "processes": _processes,
    "memory": _memory,
    "raise-limit": _raise_limit,
    "anonymous-file": _anonymous_file,
    "call": _call,
    "capabilities": _capabilities,
    "signal": _signal,
    "signal-by-pipe": _signal_by_pipe,
    "own-by-struct": _own_by_struct,
    "own-by-fiosetown": _own_by_ioctl("8901"),
    "own-by-siocspgrp": _own_by_ioctl("8902"),
    "run-last": _run_last,
    "one-core": _one_core,
    "reprioritise": _reprioritise,
    "idle-disk": _idle_disk,
    "limit-other": _limit_other,
    "group-other": _group_other,
    "watch": _watch,
    "lock": _lock,
    "remove-shared": _remove_shared,
    "datagram": _datagram,
    "outlive": _outlive,
    "ptrace": _ptrace,
    "environment": _environment,
    "descriptors": _descriptors,
    "segfault": _segfault,
    "abort": _abort,
    "killed": _killed,
    "spin": _spin,
    "burn": _burn,
    "hang": _hang,
    "eat": _eat,
    "eat-unnoticed": _eat_unnoticed,
    "bug": _bug,
    "refuse": _refuse,
    "import": _import,
    "recurse": _recurse,
    "exit": _exit,
    "take-over": _take_over,
    "booby-trap": _booby_trap,
    "claim": _claim,
    "lie": _lie,
    "surrogate": _surrogate,
    "nested": _nested,
    "pid": _pid,
    "stretch": _stretch,
    "niceness": _niceness,
    "babble": _babble,
    "boast": _boast,
    "hang-up": _hang_up,
    "print": _print,
    "long": _long,
    "dirty": _dirty,
}
