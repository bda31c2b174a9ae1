"""A parser that a file took over tries what it can; see tests/extract/rogues."""

import errno
import os
import platform
import socket
import subprocess
import sys

import pytest

from recollect.errors import Permanent
from recollect.extract import Limits, Sandbox, _confine
from recollect.model import Blob
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
    ("table", "answer"), [(_confine._DENIED, errno.EPERM), (_confine._ABSENT, errno.ENOSYS)]
)
def test_every_call_of_the_table_is_refused(sandbox, table, answer):
    if SECCOMP not in sandbox.describe():
        pytest.skip(f"this kernel has no {SECCOMP}")
    column, _ = _confine._ARCHITECTURES[platform.machine()]
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
import sys
from recollect.extract import _confine
import ctypes
class Libc:
    def __init__(self, libc): self.libc = libc
    def __getattr__(self, name):
        if name in sys.argv[1:]: return lambda *arguments: -1
        return getattr(self.libc, name)
libc = Libc(ctypes.CDLL(None, use_errno=True))
_confine.ctypes.CDLL = lambda *arguments, **options: libc
print(*_confine.confine(packages=[], memory_bytes=10**9, file_bytes=10**6, descriptors=64))
"""


@pytest.mark.parametrize(
    ("missing", "layers"),
    [(["syscall"], "rlimits seccomp"), (["prctl"], "rlimits"), (["capget"], None)],
)
def test_a_layer_that_the_kernel_lacks_is_left_out_and_not_claimed(sandbox, missing, layers):
    out = subprocess.run(
        [sys.executable, "-c", ALONE, *missing], capture_output=True, text=True, check=True
    )

    assert out.stdout.strip() == (layers or sandbox.describe().replace("+", " "))


def test_without_any_layer_a_rogue_is_still_only_a_document(sandbox):
    with pytest.raises(Permanent):
        deed(sandbox, "segfault")

    assert deed(sandbox, "echo fine") == "done fine"
