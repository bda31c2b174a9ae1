"""The filter of system calls as data, for both architectures: numbers, and what the program says.

`syscalls.txt` is taken from the kernel's headers, not from our table. A machine that is none of
them cannot run the filter, and qemu-user emulates neither seccomp nor Landlock; so the program is
read here as the kernel reads it.
"""

import errno
import os
import signal
import socket
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

import pytest

from recollect.sandbox import confine
from tests.extract.conftest import needs_linux

pytestmark = needs_linux

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
MACHINES = list(AUDIT_ARCH)
NEWER = {"fchmodat2": 452}
"""Calls younger than the headers: such have one number on all machines."""
Filter: TypeAlias = Callable[[int], Iterable[bytes]]


def numbers(machine: str) -> dict[str, int]:
    found = dict(NEWER)
    for line in (Path(__file__).parent / "syscalls.txt").read_text().splitlines()[1:]:
        name, *columns = line.split()
        if (number := columns[MACHINES.index(machine)]) != "-":
            found[name] = int(number)
    return found


TABLES = {**confine._DENIED, **confine._ABSENT, **confine._OF_SELF}
ALONE = {
    "clone": confine._CLONE, "kill": confine._KILL, "tgkill": confine._TGKILL,
    "open": confine._OPEN, "openat": confine._OPENAT, "socketpair": confine._SOCKETPAIR,
    "prctl": confine._PRCTL, "fcntl": next(iter(confine._COMMANDS)),
    "ioctl": list(confine._COMMANDS)[1],
}  # fmt: skip


@pytest.mark.parametrize("machine", MACHINES)
def test_every_number_of_our_table_is_the_kernels(machine: str):
    column, known = MACHINES.index(machine), numbers(machine)

    ours = {name: call[column] for name, call in {**TABLES, **ALONE}.items()}

    assert ours == {name: known.get(name) for name in ours}


def judged(machine: str, filter: Filter, number: int, *arguments: int, arch: int | None = None):
    """What the kernel does with a call: None if it lets it pass, an errno, or a signal.

    Classic BPF over struct seccomp_data: number, architecture, address, six arguments of 64 bits.
    """
    data = struct.pack(
        "=IIQ6Q", number, AUDIT_ARCH[machine] if arch is None else arch, 0,
        *(*arguments, *[0] * (6 - len(arguments))),
    )  # fmt: skip
    steps = list(struct.iter_unpack("=HBBI", confine.program(machine, filter)))
    assert len(steps) <= 4096
    at, held = 0, 0
    while True:
        code, if_true, if_false, value = steps[at]
        at += 1
        match code:
            case 0x20:  # load a word
                [held] = struct.unpack_from("=I", data, value)
            case 0x15:
                at += if_true if held == value else if_false
            case 0x35:
                at += if_true if held >= value else if_false
            case 0x45:
                at += if_true if held & value else if_false
            case 0x06:
                action, told = value & 0x7FFF0000 | value & 0x80000000, value & 0xFFFF
                return {0x7FFF0000: None, 0x00050000: told, 0x80000000: signal.SIGSYS}[action]
            case _:
                raise AssertionError(f"no step of ours: {code:#x}")


NEEDED = {
    "read": (), "write": (), "close": (), "mmap": (), "munmap": (), "mprotect": (), "brk": (),
    "futex": (), "exit_group": (), "exit": (), "rt_sigaction": (), "rt_sigreturn": (),
    "getrandom": (), "clock_gettime": (), "ppoll": (), "newfstatat": (), "lseek": (),
    "madvise": (), "set_robust_list": (), "rseq": (), "sched_yield": (), "getrusage": (),
    "openat": (0, 0, os.O_RDONLY | os.O_CLOEXEC), "fcntl": (0, 1), "ioctl": (0, 0x5401),
    "socketpair": (socket.AF_UNIX, socket.SOCK_STREAM), "prlimit64": (0, 7),
    "sched_setaffinity": (0,),
}  # fmt: skip
"""Calls without which no parser works, with arguments that are harmless."""


@pytest.mark.parametrize("machine", MACHINES)
def test_what_parsers_need_passes(machine: str):
    known = numbers(machine)

    assert {
        name: judged(machine, confine._common_filter, known[name], *arguments)
        for name, arguments in NEEDED.items()
    } == dict.fromkeys(NEEDED)


@pytest.mark.parametrize("machine", MACHINES)
def test_what_is_denied_is_refused(machine: str):
    known = numbers(machine)
    denied = [name for name in confine._DENIED if name in known]

    assert len(denied) > 120
    assert {judged(machine, confine._common_filter, known[name]) for name in denied} == {
        errno.EPERM
    }
    assert {judged(machine, confine._common_filter, known[name]) for name in confine._ABSENT} == {
        errno.ENOSYS
    }


WAYS = [
    ("openat", (0, 0, os.O_WRONLY)),
    ("openat", (0, 0, os.O_RDWR)),
    ("openat", (0, 0, os.O_CREAT)),
    ("openat", (0, 0, os.O_TMPFILE | os.O_RDWR)),
    ("fcntl", (3, 8)),  # F_SETOWN
    ("fcntl", (3, 10)),  # F_SETSIG
    ("fcntl", (3, 15)),  # F_SETOWN_EX
    ("fcntl", (3, 1026)),  # F_NOTIFY
    ("ioctl", (3, 0x8901)),  # FIOSETOWN
    ("ioctl", (3, 0x8902)),  # SIOCSPGRP
    ("ioctl", (3, 0x5412)),  # TIOCSTI
    ("socketpair", (socket.AF_UNIX, socket.SOCK_DGRAM)),
    ("socketpair", (socket.AF_INET, socket.SOCK_STREAM)),
    ("prlimit64", (1, 7)),
    ("sched_setscheduler", (1, 5)),
    ("sched_setaffinity", (1, 8)),
]
"""Calls that are fit for harm by one of their arguments."""


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("name", "arguments"), WAYS)
def test_an_argument_that_harms_is_refused(machine: str, name: str, arguments: tuple[int, ...]):
    number = numbers(machine)[name]

    assert judged(machine, confine._common_filter, number, *arguments) == errno.EPERM
    # The upper half of a register is not what the kernel looks at, so neither do we.
    upper = tuple(one | 1 << 40 for one in arguments)
    assert judged(machine, confine._common_filter, number, *upper) == errno.EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_a_child_makes_threads_and_no_processes_and_signals_itself_only(machine: str):
    known, own = numbers(machine), confine._own_filter
    thread = 0x10000  # CLONE_THREAD

    assert judged(machine, own, known["clone"], thread) is None
    assert judged(machine, own, known["clone"], signal.SIGCHLD) == errno.EPERM
    for call in ("kill", "tgkill"):
        assert judged(machine, own, known[call], os.getpid()) is None
        assert judged(machine, own, known[call], 1) == errno.EPERM
    assert judged(machine, own, known["prctl"], 1) == errno.EPERM  # PR_SET_PDEATHSIG
    assert judged(machine, own, known["prctl"], 15) is None  # PR_SET_NAME


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("filter", [confine._common_filter, confine._own_filter])
def test_calls_of_another_architecture_kill(machine: str, filter: Filter):
    """As by `int 0x80`, where the same numbers mean other calls."""
    for arch in {*AUDIT_ARCH.values(), 0x40000003, 0x40000028} - {AUDIT_ARCH[machine]}:
        assert judged(machine, filter, 0, arch=arch) == signal.SIGSYS


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_that_nobody_looked_at_do_not_exist(machine: str):
    common = confine._common_filter

    assert {judged(machine, common, number) for number in range(453, 700)} == {errno.ENOSYS}
    assert judged("x86_64", common, 0x40000000 | 1) == errno.EPERM  # x32
