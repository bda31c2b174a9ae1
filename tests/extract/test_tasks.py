"""How many threads and processes a child may have that a file took over, and who suffers."""

import itertools
import os
import subprocess
import sys
import uuid
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.extract.conftest import ROGUES, needs_linux

pytestmark = needs_linux

UNNAMED = 54_000
MORE = 1_000
RUNS = itertools.count()
SLACK = 0 if os.geteuid() == 0 else 300
"""Other processes of ours come and go; those of a user that nobody has do not."""

PLAIN = """
import os, sys, threading
from recollect.model import Blob
from recollect.sandbox import confine
from tests.extract.rogues import rogue
uid, calls, deed = int(sys.argv[1]), sys.argv[2] == "seccomp", sys.argv[3]
if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
tasks = confine.most_tasks()
told, tell = os.pipe()
let_go, hold = os.pipe()
if os.fork() == 0:
    confine.restrict(2 * 10**9, 10**6, 64, tasks=tasks, calls=calls)
    os.write(tell, rogue.extract(Blob(deed.encode())).text.encode())
    os.close(hold)
    os.read(let_go, 1)
    os._exit(0)
print(os.read(told, 1000).decode())
# While it holds all that it could get, another process of the same user goes on.
heard = []
thread = threading.Thread(target=heard.append, args=("another thread",))
thread.start()
thread.join()
print(*heard)
if os.fork() == 0:
    os._exit(7)
print(os.waitstatus_to_exitcode(os.wait()[1]))
os.write(hold, b".")
"""


def as_plain_user(deed: str, *, layer: str) -> list[str]:
    """The rogue's answer, and what its neighbour of the same user could do meanwhile."""
    # Each run has a user of its own: the kernel counts by user, also what is about to end.
    uid = UNNAMED + (16 * os.getpid() + next(RUNS) % 16) % 11_000
    out = subprocess.run(
        [sys.executable, "-c", PLAIN, str(uid), layer, deed],
        capture_output=True,
        text=True,
        check=True,
    )
    return out.stdout.splitlines()


@pytest.mark.parametrize("layer", ["seccomp", "rlimits"])
@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_a_fork_bomb_of_a_plain_user_harms_only_itself(layer: str, kind: str):
    answer, neighbour, ended = as_plain_user(f"{kind} 5000", layer=layer)

    if kind == "processes" and layer == "seccomp":
        assert answer == "denied PermissionError"
    else:
        words, count = answer.rsplit(" ", 1)
        assert words == "done refused after"
        assert MORE - SLACK - 20 < int(count) <= MORE + SLACK
    assert (neighbour, ended) == ("another thread", "7")


@pytest.fixture
def few_tasks() -> Generator[Path]:
    """A control group of at most 40 tasks, as `TasksMax=` and `--pids-limit` make one."""
    unified = Path("/sys/fs/cgroup")
    parent = unified / "pids" if (unified / "pids").is_dir() else unified
    group = parent / f"recollect-test-{uuid.uuid4().hex[:8]}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"control groups cannot be made here: {error}")
    try:
        try:
            (group / "pids.max").write_text("40")
        except OSError as error:
            pytest.skip(f"tasks of control groups are not counted here: {error}")
        yield group
    finally:
        with suppress(OSError):
            group.rmdir()


GROUPED = """
import os, sys
with open(sys.argv[1], "w") as group:
    group.write(str(os.getpid()))
from recollect.errors import Unavailable
from recollect.extract import Limits, Sandbox
from recollect.model import Blob
with Sandbox(workers=1, packages=[sys.argv[2]], limits=Limits(cpu_seconds=20)) as sandbox:
    deeds = ["threads 5000", "echo fine"]
    while deeds:
        try:
            print(sandbox.extract(Blob(deeds[0].encode(), name="x.rogue")).text)
        except Unavailable:  # as a worker does: threads that are about to end count, too
            continue
        del deeds[0]
"""


def test_a_control_group_bounds_the_threads_of_root_and_the_next_file_is_read(few_tasks: Path):
    """RLIMIT_NPROC does not count what root has."""
    out = subprocess.run(
        [sys.executable, "-c", GROUPED, str(few_tasks / "cgroup.procs"), ROGUES],
        capture_output=True,
        text=True,
        check=True,
    )

    bomb, after = out.stdout.splitlines()
    assert bomb.startswith("done refused after ")
    assert int(bomb.rsplit(" ", 1)[1]) < 40
    assert after == "done fine"


def test_what_we_deploy_bounds_its_tasks():
    deploy = Path(__file__).parents[2] / "deploy"

    assert "\nTasksMax=1024\n" in (deploy / "recollect.service").read_text()
    assert "--pids-limit 1024 " in (deploy / "Containerfile").read_text()
