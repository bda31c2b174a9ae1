"""What holds on one server holds on a cluster of Citus: the tests of the rooms that name the index,
and of the API's contract, run on one."""

import subprocess
import sys

import pytest

from tests.fakes import citus

ROOMS = ("contract", "documents", "memories", "search", "index", "ingest", "sync", "events", "ops")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("room", ROOMS)
def test_what_holds_on_one_server_holds_on_several(room: str):
    if citus.archive() is None:
        pytest.skip(citus.NONE)
    command = [sys.executable, "-m", "pytest", "-q", "--citus", "-p", "no:cacheprovider"]
    command += ["-m", "not slow"]
    done = subprocess.run(
        [*command, "--ignore", "tests/contract/test_fuzz.py", f"tests/{room}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
