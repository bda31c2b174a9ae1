"""A parser that a file took over tries what it can; see tests/extract/rogues."""

import ctypes
import errno
import json
import os
import platform
import socket
import subprocess
import sys

import psutil
import pytest

from recollect.cli import doctor
from recollect.config import Config
from recollect.errors import Permanent
from recollect.extract import Limits, Sandbox
from recollect.model import Blob
from recollect.sandbox import confine
from tests.extract.conftest import ROGUES, deed, needs_linux
from tests.extract.rogues import rogue

pytestmark = needs_linux


@pytest.fixture(scope="module")
def targets(tmp_path_factory):
    """What an attack reaches for: listeners and another tenant's file."""
    folder = tmp_path_factory.mktemp("tenant")
    secret = folder / "secret"
    secret.write_text("of another tenant")
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as unix,
    ):
        udp.bind(("127.0.0.1", 0))
        unix.bind(str(folder / "unix"))
        unix.listen()
        yield {
            "tcp": tcp.getsockname()[1],
            "udp": udp.getsockname()[1],
            "unix": folder / "unix",
            "secret": secret,
            "new": folder / "new",
        }


SECCOMP, LANDLOCK = "seccomp", "landlock"

ATTACKS = [
    # the fourteen of the self-attack, less the thread, which is wanted
    ("tcp {tcp}", SECCOMP),
    ("udp {udp}", SECCOMP),
    ("unix {unix}", SECCOMP),
    ("read {secret}", LANDLOCK),
    ("read /etc/passwd", LANDLOCK),
    ("read-parent-environment", LANDLOCK),
    ("write {new}", SECCOMP),
    ("exec", SECCOMP),
    ("fork", SECCOMP),
    ("memory 3000000000", "rlimits"),
    ("fill 2", "rlimits"),
    ("signal", SECCOMP),
    ("ptrace", SECCOMP),
    # and some more
    ("truncate {secret}", SECCOMP),
    ("unlink {secret}", SECCOMP),
    ("chmod {secret}", SECCOMP),
    ("raise-limit", SECCOMP),
    ("anonymous-file", SECCOMP),
]


@pytest.mark.parametrize(("attack", "layer"), ATTACKS)
def test_the_attack_is_refused(sandbox, targets, attack, layer):
    if layer not in sandbox.describe():
        pytest.skip(f"this kernel has no {layer}")

    assert deed(sandbox, attack.format(**targets)).startswith("denied ")
    assert targets["secret"].read_text() == "of another tenant"


@pytest.mark.parametrize(
    "attack",
    ["tcp {tcp}", "udp {udp}", "unix {unix}", "read {secret}", "read /etc/passwd", "write {new}",
     "chmod {secret}", "memory 3000000000", "anonymous-file"],
)  # fmt: skip
def test_outside_of_the_sandbox_the_attack_works(targets, attack):
    words = attack.format(**targets).encode()

    assert rogue.extract(Blob(words)).text.startswith("done")


@pytest.mark.parametrize(
    ("table", "answer"), [(confine._DENIED, errno.EPERM), (confine._ABSENT, errno.ENOSYS)]
)
def test_every_call_of_the_table_is_refused(sandbox, table, answer):
    if SECCOMP not in sandbox.describe():
        pytest.skip(f"this kernel has no {SECCOMP}")
    column, _ = confine._ARCHITECTURES[platform.machine()]
    numbers = [call[column] for call in table.values() if call[column] is not None]

    assert deed(sandbox, "call " + " ".join(map(str, numbers))) == f"done {answer}"


def test_root_has_none_of_its_powers_but_to_read(sandbox):
    assert deed(sandbox, "capabilities") in {"done 0 0", "done 4 0"}


@pytest.mark.parametrize("deed_", ["thread", "pair"])
def test_what_parsers_need_works(sandbox, deed_):
    assert deed(sandbox, deed_).startswith("done")


def test_nothing_of_the_environment_reaches_the_child(monkeypatch):
    monkeypatch.setenv("RECOLLECT_TEST_SECRET", "hush")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    with Sandbox(workers=1, packages=[ROGUES]) as sandbox:
        assert deed(sandbox, "environment RECOLLECT_TEST_SECRET") == "done False"
        assert deed(sandbox, "environment AWS_SECRET_ACCESS_KEY") == "done False"
        assert deed(sandbox, "environment PGPASSWORD") == "done False"


@pytest.mark.usefixtures("targets")
def test_no_descriptor_of_the_parent_reaches_the_child():
    with Sandbox(workers=1, packages=[ROGUES]) as sandbox:
        # Null, the file for errors twice, and the two pipes.
        assert len(deed(sandbox, "descriptors").split()) == 1 + 5


def test_the_checkout_itself_is_not_readable(sandbox):
    if LANDLOCK not in sandbox.describe():
        pytest.skip(f"this kernel has no {LANDLOCK}")
    here = os.path.abspath(__file__)

    assert deed(sandbox, f"read {here}").startswith("denied ")


def test_filling_the_error_file_stops_at_its_limit():
    limits = Limits(file_bytes=5_000_000)
    with Sandbox(workers=1, packages=[ROGUES], limits=limits) as sandbox:
        assert deed(sandbox, "fill 2").startswith("denied ")


ALONE = """
import json, os, sys
from recollect.sandbox import confine
import ctypes
version, missing, deeds = json.loads(sys.argv[1])
class Libc:
    def __init__(self, libc): self.libc = libc
    def __getattr__(self, name):
        if name in missing: return lambda *arguments: -1
        if name == "syscall": return self.syscall
        return getattr(self.libc, name)
    def syscall(self, number, *arguments):
        if number == 444 and arguments[0] is None:
            return min(version, self.libc.syscall(number, *arguments))
        return self.libc.syscall(number, *arguments)
real = ctypes.CDLL
libc = Libc(real(None, use_errno=True))
confine.ctypes.CDLL = lambda *arguments, **options: libc
from tests.extract.rogues import rogue
print(*confine.confine(packages=[], memory_bytes=10**9, file_bytes=10**6, descriptors=64))
ctypes.CDLL = real
from recollect.model import Blob
for deed in deeds:
    print(rogue.extract(Blob(deed.encode())).text, flush=True)
"""


def alone(deeds=(), *, landlock=99, missing=()):
    """A process that confines itself on a kernel with less; the layers, and how the deeds end."""
    out = subprocess.run(
        [sys.executable, "-c", ALONE, json.dumps([landlock, list(missing), list(deeds)])],
        capture_output=True,
        text=True,
        check=True,
    )
    layers, *answers = out.stdout.splitlines()
    return layers, answers


@pytest.fixture
def victim(tmp_path):
    """Another process of the same user, and things that it has."""
    shared = ctypes.CDLL(None).shmget(0, ctypes.c_size_t(4096), 0o1600)
    lock = tmp_path / "heavy.lock"
    lock.touch()
    with (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified,
    ):
        notified.bind(str(tmp_path / "notify"))
        yield {
            "process": process,
            "pid": process.pid,
            "shared": shared,
            "folder": tmp_path,
            "lock": lock,
            "notify": tmp_path / "notify",
        }
        process.kill()
    ctypes.CDLL(None).shmctl(shared, 0, None)


OTHERS = [
    "signal-by-pipe {pid}",
    "own-by-struct {pid}",
    "own-by-fiosetown {pid}",
    "own-by-siocspgrp {pid}",
    "run-last {pid}",
    "one-core {pid}",
    "reprioritise {pid}",
    "idle-disk {pid}",
    "limit-other {pid}",
    "watch {folder}",
    "lock {lock}",
    "datagram {notify}",
    "outlive",
    "remove-shared {shared}",
]
"""What reaches other processes of the same user, on every kernel, if nobody refuses it."""


@pytest.mark.parametrize("landlock", [0, 5, 6])
def test_no_other_process_is_reached_on_any_kernel(victim, landlock):
    before = psutil.Process(victim["pid"]).as_dict(["cpu_affinity", "nice", "ionice"])

    _, answers = alone([deed.format(**victim) for deed in OTHERS], landlock=landlock)

    assert dict(zip(OTHERS, answers, strict=True)) == dict.fromkeys(
        OTHERS, "denied PermissionError"
    )
    assert victim["process"].poll() is None
    assert psutil.Process(victim["pid"]).as_dict(["cpu_affinity", "nice", "ionice"]) == before
    assert os.sched_getscheduler(victim["pid"]) == os.SCHED_OTHER


UNCONFINED = """
import sys
from recollect.model import Blob
from tests.extract.rogues import rogue
print(rogue.extract(Blob(sys.argv[1].encode())).text)
"""


@pytest.mark.parametrize("deed", OTHERS)
def test_outside_of_the_sandbox_other_processes_are_reached(victim, deed):
    out = subprocess.run(
        [sys.executable, "-c", UNCONFINED, deed.format(**victim)], capture_output=True, text=True,
        check=True,
    )  # fmt: skip

    assert out.stdout.startswith("done")


def test_calls_that_nobody_looked_at_are_absent():
    numbers = " ".join(str(number) for number in (450, 460, 463, 470, 600))

    assert alone([f"call {numbers}"])[1] == [f"done {errno.ENOSYS}"]


@pytest.mark.parametrize(
    ("lacks", "layers"),
    [
        ({"landlock": 0}, "rlimits seccomp"),
        ({"missing": ["prctl"]}, "rlimits"),
        ({"missing": ["capget"]}, None),
    ],
)
def test_a_layer_that_the_kernel_lacks_is_left_out_and_not_claimed(sandbox, lacks, layers):
    assert alone(**lacks)[0] == (layers or sandbox.describe().replace("+", " "))


def test_without_any_layer_a_rogue_is_still_only_a_document(sandbox):
    with pytest.raises(Permanent):
        deed(sandbox, "segfault")

    assert deed(sandbox, "echo fine") == "done fine"


BARE = """
import ctypes, json, struct, sys
refuse = [(0x20, 0, 0, 0), (0x15, 0, 1, 444), (6, 0, 0, 0x50026), (6, 0, 0, 0x7FFF0000)]
program = b"".join(struct.pack("=HBBI", *step) for step in refuse)
kept = ctypes.create_string_buffer(program, len(program))
pointer = struct.pack("=HxxxxxxQ", len(refuse), ctypes.addressof(kept))
libc, none = ctypes.CDLL(None), ctypes.c_ulong(0)
assert libc.prctl(38, ctypes.c_ulong(1), none, none, none) == 0
assert libc.prctl(22, ctypes.c_ulong(2), pointer, none, none) == 0
from recollect.extract import Sandbox
from recollect.model import Blob
packages, confined, deeds = json.loads(sys.argv[1])
with Sandbox(workers=1, packages=packages, confined=confined) as sandbox:
    print(sandbox.describe())
    print(sandbox.missing())
    for deed in deeds:
        print(sandbox.extract(Blob(deed.encode(), name="x.rogue")).text)
    if not deeds:
        from recollect.app import _check
        from recollect.config import Config
        from recollect.errors import SetupError
        for setting in ("required", "best"):
            try:
                _check(sandbox, Config(sandbox=setting))
                print("starts")
            except SetupError as error:
                print(error)
        from recollect.cli import doctor
        for setting in ("required", "best", "off"):
            [found] = doctor._sandbox(Config(sandbox=setting))
            print(found.state, found.name, found.details)
"""
"""A service on a kernel without Landlock: that call is absent for it and all that it starts."""


def on_a_kernel_without_landlock(deeds=(), *, confined=True):
    out = subprocess.run(
        [sys.executable, "-c", BARE, json.dumps([[ROGUES], confined, list(deeds)])],
        capture_output=True,
        text=True,
        check=True,
    )
    return out.stdout.splitlines()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_without_landlock_a_service_run_by_root_shows_its_files_to_no_reader(tmp_path):
    secret = tmp_path / "secret-key"
    secret.write_text("s")
    secret.chmod(0o600)
    reads = [f"read {secret}", "read /etc/shadow", f"read /proc/{os.getpid()}/environ",
             "read-parent-environment"]  # fmt: skip

    layers, missing, *answers = on_a_kernel_without_landlock([*reads, "capabilities", "echo fine"])

    assert layers == "rlimits+seccomp"
    assert "without Landlock" in missing
    assert answers == ["denied PermissionError"] * len(reads) + ["done 0 0", "done fine"]


def test_a_service_that_requires_confinement_does_not_start_without():
    refusal, warned, starts = on_a_kernel_without_landlock()[2:5]

    assert refusal.startswith("RECOLLECT_SANDBOX=required, but ")
    assert "without Landlock" in refusal
    assert "less confinement" in warned
    assert starts == "starts"


def test_doctor_tells_what_confinement_lacks_and_fails_where_it_is_required(sandbox):
    required, best, off = on_a_kernel_without_landlock()[-3:]
    whole = "ok" if sandbox.missing() is None else "off"

    assert required.startswith("FAIL sandbox rlimits+seccomp; ")
    assert best.startswith("off sandbox rlimits+seccomp; ")
    assert "without Landlock" in best
    assert off.startswith("off sandbox rlimits; RECOLLECT_SANDBOX=off")
    assert [found.state for found in doctor._sandbox(Config())] == [whole]


def test_what_confinement_lacks_is_said(sandbox):
    layers, missing, *_ = on_a_kernel_without_landlock(confined=False)

    assert layers == "rlimits"
    assert "RECOLLECT_SANDBOX=off" in missing
    assert sandbox.missing() is None or LANDLOCK not in sandbox.describe()
