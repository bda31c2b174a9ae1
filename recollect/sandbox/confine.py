"""Confinement of the current process, for good: rlimits, Landlock, seccomp, no capabilities.

What remains is to compute, to start threads, to use descriptors that are open, and to read
Python's own files. Each layer holds where the kernel has it; `confine` says which ones do.

Sources: landlock(7), seccomp(2), capabilities(7), the kernel's unistd headers.
"""

import contextlib
import ctypes
import errno
import importlib
import os
import platform
import resource
import signal
import socket
import struct
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_FILE_RIGHTS_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16, 6: 16}
"""How many rights on files each version of Landlock knows."""

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_NOBODY = 65534
_KILLED_FIRST = 500
"""Thousandths of the memory, which count as if it had them beside what it has."""
_MORE_THREADS = 1_000
"""of a user, than there are as the sandbox starts"""
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_CAP_DAC_READ_SEARCH = 1 << 2

_X86, _ARM = "x86_64", "aarch64"
_ARCHITECTURES = {_X86: (0, 0xC000003E), _ARM: (1, 0xC00000B7)}
"""Column of the table below, and AUDIT_ARCH."""
_DENIED = {
    # network: socketpair stays, asyncio needs it
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
    "accept": (43, 202), "accept4": (288, 242), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    # other processes
    "execve": (59, 221), "execveat": (322, 281), "fork": (57, None), "vfork": (58, None),
    "tkill": (200, 130), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "kcmp": (312, 272), "setpriority": (141, 140),
    "process_mrelease": (448, 448), "ioprio_set": (251, 30), "setpgid": (109, 154),
    "setsid": (112, 157), "move_pages": (279, 239), "migrate_pages": (256, 238),
    "get_robust_list": (274, 100),
    # what others open and touch, and locks that they wait for: rights on files say nothing of it
    "inotify_init": (253, None), "inotify_init1": (294, 26), "inotify_add_watch": (254, 27),
    "fanotify_init": (300, 262), "fanotify_mark": (301, 263), "flock": (73, 32),
    "sync": (162, 81), "syncfs": (306, 267), "name_to_handle_at": (303, 264),
    # files: Landlock does not know modes, owners, times and attributes
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54),
    "utime": (132, None), "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14),
    "lremovexattr": (198, 15), "fremovexattr": (199, 16), "truncate": (76, 45), "creat": (85, None),
    "mknod": (133, None), "mknodat": (259, 33), "mkdir": (83, None), "mkdirat": (258, 34),
    "rmdir": (84, None), "unlink": (87, None), "unlinkat": (263, 35), "rename": (82, None),
    "renameat": (264, 38), "renameat2": (316, 276), "link": (86, None), "linkat": (265, 37),
    "symlink": (88, None), "symlinkat": (266, 36), "open_by_handle_at": (304, 265),
    # memory outside of RLIMIT_AS, and what processes of one user share by number: PostgreSQL's, too
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194),
    "shmat": (30, 196), "shmctl": (31, 195), "shmdt": (67, 197), "msgget": (68, 186),
    "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187), "semget": (64, 190),
    "semop": (65, 193), "semctl": (66, 191), "semtimedop": (220, 192), "mq_open": (240, 180),
    "mq_unlink": (241, 181), "io_setup": (206, 0),
    # the kernel
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "mount_setattr": (442, 442), "unshare": (272, 97), "setns": (308, 268), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "add_key": (248, 217),
    "request_key": (249, 218), "keyctl": (250, 219), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "reboot": (169, 142), "swapon": (167, 224),
    "swapoff": (168, 225), "personality": (135, 92), "setuid": (105, 146), "setgid": (106, 144),
    "setreuid": (113, 145), "setregid": (114, 143), "setresuid": (117, 147),
    "setresgid": (119, 149), "setfsuid": (122, 151), "setfsgid": (123, 152),
    "setgroups": (116, 159), "capset": (126, 91), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fspick": (433, 433), "quotactl": (179, 60), "quotactl_fd": (443, 443), "acct": (163, 89),
    "syslog": (103, 116), "vhangup": (153, 58), "sethostname": (170, 161),
    "setdomainname": (171, 162), "settimeofday": (164, 170), "clock_settime": (227, 112),
    "adjtimex": (159, 171), "clock_adjtime": (305, 266), "iopl": (172, None),
    "ioperm": (173, None), "modify_ldt": (154, None),
}  # fmt: skip
"""Calls that fail with EPERM: number on x86_64, on aarch64 (None: it has no such call)."""
_ABSENT = {"clone3": (435, 435), "openat2": (437, 437)}
"""Their arguments lie in memory, out of a filter's sight: ENOSYS makes libc take the older call."""
_NEWER = 450
"""The first call that nobody looked at here, and all after it: ENOSYS, as on an older kernel."""
_CLONE, _KILL, _TGKILL = (56, 220), (62, 129), (234, 131)
_OPEN, _OPENAT = (2, None), (257, 56)
_SOCKETPAIR = (53, 199)
_OF_SELF = {
    "prlimit64": (302, 261), "sched_setparam": (142, 118), "sched_setscheduler": (144, 119),
    "sched_setaffinity": (203, 122), "sched_setattr": (314, 274),
}  # fmt: skip
"""Calls whose first argument is a process: only 0, which is the caller, may be meant."""
_COMMANDS = {
    # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC, F_GETPIPE_SZ. Not F_SETOWN and
    # F_SETSIG, which have the kernel kill for us, nor F_NOTIFY, F_SETLEASE, locks, larger pipes.
    (72, 25): (1, (0, 1, 2, 3, 4, 1030, 1032)),
    # TCGETS, TCGETS2, TIOCGWINSZ, FIONREAD, FIONBIO, FIOCLEX, FIONCLEX. Not FIOSETOWN, SIOCSPGRP,
    # TIOCSTI.
    (16, 29): (1, (0x5401, 0x802C542A, 0x5413, 0x541B, 0x5421, 0x5451, 0x5450)),
}
"""fcntl and ioctl: which argument is the command, and the commands that are allowed."""
_PRCTL, _PRCTL_ALLOWED = (157, 167), (3, 15, 16, 0x53564D41)
"""PR_GET_DUMPABLE, PR_SET_NAME, PR_GET_NAME, PR_SET_VMA. Not PR_SET_PDEATHSIG, with which a child
would outlive its parent, PR_SET_PTRACER, PR_SCHED_CORE."""

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_CLONE_THREAD = 0x10000
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

_SYSTEM_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib")
_SYSTEM_FILES = (
    "/etc/ld.so.cache", "/dev/null", "/dev/urandom", "/usr/share/zoneinfo", "/proc/self/status"
)  # fmt: skip


def confine(
    *,
    packages: Sequence[str],
    memory_bytes: int,
    file_bytes: int,
    descriptors: int,
    readable: Sequence[str] = (),
) -> tuple[str, ...]:
    """Give up rights for good; the layers that hold. The process must have one thread only.

    `readable` are further folders.
    """
    tasks = most_tasks()  # while it can still be seen
    held = enclose(packages=packages, readable=readable)
    return layers(held, restrict(memory_bytes, file_bytes, descriptors, tasks=tasks))


def layers(enclosed: Sequence[str], restricted: Sequence[str]) -> tuple[str, ...]:
    """In the order in which people know them: rlimits, landlock6, seccomp."""
    return (*restricted[:1], *enclosed, *restricted[1:])


def enclose(*, packages: Sequence[str], readable: Sequence[str] = ()) -> tuple[str, ...]:
    """Give up files, the powers of root and most calls, for this process and those it forks.

    It may still fork, and kill. A system out of memory kills it before the service.
    """
    if sys.platform != "linux":
        return ()
    with contextlib.suppress(OSError):  # proc(5): -1,000 to 1,000
        score = Path("/proc/self/oom_score_adj")
        score.write_text(str(min(1_000, int(score.read_text("ascii")) + _KILLED_FIRST)), "ascii")
    libc = ctypes.CDLL(None, use_errno=True)
    version = 0
    may_lock = _prctl(libc, _PR_SET_NO_NEW_PRIVS, 1)
    if may_lock:
        version = _apply_landlock(libc, [*_python_paths(packages), *readable])
    if not version and os.geteuid() == 0:
        # Then nothing else keeps it from the files of root.
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    _drop_capabilities(libc, keep=_CAP_DAC_READ_SEARCH if version else 0)
    # To build and load the long filter once, rather than for each file, saves 2 ms of it.
    if may_lock:
        _apply_seccomp(libc, _common_filter)
    return (f"landlock{version}",) if version else ()


def restrict(
    memory_bytes: int,
    file_bytes: int,
    descriptors: int,
    *,
    tasks: int | None = None,
    calls: bool = True,
) -> tuple[str, ...]:
    """Give up what `enclose` left; system calls only if `calls`.

    `tasks`: threads of this user that there may be.
    """
    _set_limits(memory_bytes, file_bytes, descriptors, tasks)
    if sys.platform != "linux" or not calls:
        return ("rlimits",)
    libc = ctypes.CDLL(None, use_errno=True)
    # Its memory is not to be read under /proc by another child, where Landlock does not hide that.
    _prctl(libc, _PR_SET_DUMPABLE, 0)
    if _prctl(libc, _PR_SET_NO_NEW_PRIVS, 1) and _apply_seccomp(libc, _own_filter):
        return ("rlimits", "seccomp")
    return ("rlimits",)


def most_tasks() -> int | None:
    """How many threads this user may have, with those of all its processes; None: not to be said.

    The kernel counts a user's threads, not those of a process, so this goes by how many there are
    now. It does not count those of root, and what runs in other containers is out of sight: hence
    the trial.
    """
    if sys.platform != "linux" or os.geteuid() == 0:
        return None
    most = _MORE_THREADS
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{name}").st_uid == os.geteuid():
                most += len(os.listdir(f"/proc/{name}/task"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_NPROC, (most, hard))
    try:
        trial = threading.Thread(target=int)
        trial.start()
        trial.join()
    except RuntimeError:
        return None
    finally:
        resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))
    return most


def end_with_parent() -> None:
    """Have the kernel kill this process when the one that forked it is gone."""
    if sys.platform == "linux":
        _prctl(ctypes.CDLL(None), _PR_SET_PDEATHSIG, signal.SIGKILL)


def _set_limits(memory_bytes: int, file_bytes: int, descriptors: int, tasks: int | None) -> None:
    for limit, value in (
        *([(resource.RLIMIT_NPROC, tasks)] if tasks is not None else []),
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_NOFILE, descriptors),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(limit)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        # macOS knows RLIMIT_AS and refuses it.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(limit, (value, value))


def _python_paths(packages: Iterable[str]) -> list[str]:
    """Where Python and the libraries of its extensions are: not the folder of a checkout."""
    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    paths |= {path for path in sys.path if path.endswith(("site-packages", "dist-packages"))}
    paths.add(os.path.join(sys.base_prefix, "lib"))
    # Where a dependency is, the others are: also with `pip install --target`.
    paths.add(os.path.dirname(os.path.dirname(msgspec.__file__)))
    for name in ("recollect", *packages):
        paths |= set(importlib.import_module(name).__path__)
    return [*paths, *_SYSTEM_LIBRARIES, *_SYSTEM_FILES]


def _apply_landlock(libc: ctypes.CDLL, readable: Iterable[str]) -> int:
    """Only read, and only these paths; no TCP, no signals outwards. The version used, 0 if none."""
    create, add, restrict = 444, 445, 446
    version = min(libc.syscall(create, None, ctypes.c_size_t(0), 1), 6)
    if version < 1:
        return 0
    rights = (1 << _FILE_RIGHTS_BY_ABI[version]) - 1
    attributes = struct.pack("=QQQ", rights, 0b11, 0b11)[
        : 8 if version < 4 else 16 if version < 6 else 24
    ]
    ruleset = libc.syscall(create, attributes, ctypes.c_size_t(len(attributes)), 0)
    if ruleset < 0:
        return 0
    for path in readable:
        try:
            opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        allowed = _READ_FILE | (_READ_DIR if os.path.isdir(path) else 0)
        libc.syscall(add, ruleset, 1, struct.pack("=Qi", allowed, opened), 0)
        os.close(opened)
    restricted = libc.syscall(restrict, ruleset, 0) == 0
    os.close(ruleset)
    return version if restricted else 0


def _drop_capabilities(libc: ctypes.CDLL, *, keep: int) -> None:
    """Root without its powers, so that the limits hold for root as well.

    With Landlock, which says what is read, the right to read stays if it was there: Python may be
    installed where only its owner may look.
    """
    header = ctypes.create_string_buffer(struct.pack("=Ii", 0x20080522, 0))
    data = ctypes.create_string_buffer(24)
    if libc.capget(header, data) == 0:
        permitted = struct.unpack("=6I", data.raw)[1] & keep
        data = ctypes.create_string_buffer(struct.pack("=6I", permitted, permitted, 0, 0, 0, 0))
        libc.capset(header, data)


def _apply_seccomp(libc: ctypes.CDLL, filter: Callable[[int], Iterable[bytes]]) -> bool:
    machine = platform.machine()
    if machine not in _ARCHITECTURES:
        return False
    steps = program(machine, filter)
    buffer = ctypes.create_string_buffer(steps, len(steps))
    pointer = struct.pack("=HxxxxxxQ", len(steps) // 8, ctypes.addressof(buffer))
    return _prctl(libc, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, pointer)


def program(machine: str, filter: Callable[[int], Iterable[bytes]]) -> bytes:
    """A filter as the kernel of that machine runs it: calls of another architecture kill."""
    column, architecture = _ARCHITECTURES[machine]
    return b"".join(
        (
            _step(_LOAD, _ARCH_AT),
            _step(_EQUAL, architecture, 1, 0),
            _step(_RETURN, _KILL_PROCESS),
            _step(_LOAD, _NUMBER_AT),
            *filter(column),
            _step(_RETURN, _ALLOW),
        )
    )


def _prctl(libc: ctypes.CDLL, operation: int, value: int, pointer: bytes | None = None) -> bool:
    none = ctypes.c_ulong(0)
    return libc.prctl(operation, ctypes.c_ulong(value), pointer, none, none) == 0


def _common_filter(column: int) -> Iterable[bytes]:
    """The program in classic BPF. Jumps count instructions to skip: if true, if false."""
    refuse = _step(_RETURN, _ERRNO | errno.EPERM)
    # The x32 calls of x86_64 have the same numbers plus this bit.
    yield _step(_AT_LEAST, 0x40000000, 0, 1)
    yield refuse
    for number in (call[column] for call in _DENIED.values()):
        if number is not None:
            yield _step(_EQUAL, number, 0, 1)
            yield refuse
    for call in _ABSENT.values():
        yield _step(_EQUAL, call[column], 0, 1)
        yield _step(_RETURN, _ERRNO | errno.ENOSYS)
    yield _step(_AT_LEAST, _NEWER, 0, 1)
    yield _step(_RETURN, _ERRNO | errno.ENOSYS)
    # Limits and turns for itself only; no file opened for writing.
    for call in _OF_SELF.values():
        yield from _judge(call[column], 0, _EQUAL, [0], allow=True)
    for call, (argument, commands) in _COMMANDS.items():
        yield from _judge(call[column], argument, _EQUAL, commands, allow=True)
    yield from _judge(_OPEN[column], 1, _ANY_BIT, [_WRITING], allow=False)
    yield from _judge(_OPENAT[column], 2, _ANY_BIT, [_WRITING], allow=False)
    # A datagram goes to any address, also from a pair; so do pairs of other families.
    yield from _judge(_SOCKETPAIR[column], 1, _ANY_BIT, [socket.SOCK_DGRAM], allow=False)
    yield from _judge(_SOCKETPAIR[column], 0, _EQUAL, [socket.AF_UNIX], allow=True)


def _own_filter(column: int) -> Iterable[bytes]:
    """What the process that forks may, but its children may not."""
    # Threads, but no processes; signals for itself only.
    yield from _judge(_CLONE[column], 0, _ANY_BIT, [_CLONE_THREAD], allow=True)
    for call in (_KILL, _TGKILL):
        yield from _judge(call[column], 0, _EQUAL, [os.getpid()], allow=True)
    yield from _judge(_PRCTL[column], 0, _EQUAL, _PRCTL_ALLOWED, allow=True)


def _judge(
    number: int | None, argument: int, test: int, values: Sequence[int], *, allow: bool
) -> Iterable[bytes]:
    """One call, refused by the low half of one argument: `allow` it only if a test holds, or not.

    What is not refused goes on to what else is said of the call.
    """
    if number is None:
        return
    count = len(values)
    yield _step(_EQUAL, number, 0, count + 3)
    yield _step(_LOAD, _ARGUMENTS_AT + 8 * argument)
    for left in range(count, 0, -1):
        value = values[count - left]
        # What holds leads past the refusal, or to it; so does, after the last, what does not.
        yield _step(test, value, left, 0) if allow else _step(test, value, left - 1, left == 1)
    yield _step(_RETURN, _ERRNO | errno.EPERM)
    yield _step(_LOAD, _NUMBER_AT)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
