"""The rate limit of a key holds for all API processes together, each a process of its own."""

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.conftest import eventually, free_port

LIMIT = 12
KEY = "a key of two machines"


@pytest.fixture
def processes(new_database: Callable[[], str], tmp_path: Path) -> Generator[list[httpx.Client]]:
    """Two of `recollect api` on one database, with a data folder each."""
    shared = {
        **os.environ,  # noqa: TID251 # the children need PATH and the like
        "RECOLLECT_DATABASE_URL": new_database(),
        "RECOLLECT_API_KEY": KEY,
        "RECOLLECT_RATE_LIMIT": str(LIMIT),
        "RECOLLECT_EMBEDDER": "none",
        "RECOLLECT_SECRET_KEY": "the same 0c4e8a61d7f35b92e6a0c14b7d",
        "RECOLLECT_BLOB_URL": (tmp_path / "files").as_uri(),
    }
    with ExitStack() as stack:
        yield [stack.enter_context(_client(stack, tmp_path / name, shared)) for name in "ab"]


def _client(stack: ExitStack, folder: Path, shared: dict[str, str]) -> httpx.Client:
    folder.mkdir()
    port = free_port()
    log = stack.enter_context((folder / "api.log").open("wb"))
    process = subprocess.Popen(
        [sys.executable, "-m", "recollect", "api", "--port", str(port)],
        env={**shared, "RECOLLECT_DATA_DIR": str(folder)},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    stack.callback(process.wait, 60)
    stack.callback(process.terminate)
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert process.poll() is None, (folder / "api.log").read_text()
        try:
            return (
                httpx.get(f"{url}/health", timeout=5, trust_env=False, verify=False).status_code
                == 200
            )
        except httpx.TransportError:
            return False

    eventually(answers, timeout=120)
    headers = {"Authorization": f"Bearer {KEY}"}
    return httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False)


@pytest.mark.slow
def test_two_processes_asked_by_turns_count_together(processes: list[httpx.Client]):
    turns = itertools.cycle(processes)
    answers = [next(turns).get("/v3/documents/counts") for _ in range(LIMIT)]

    assert [answer.status_code for answer in answers] == [200] * LIMIT
    left = [int(re.findall(r"r=(\d+)", answer.headers["ratelimit"])[0]) for answer in answers]
    assert left == list(reversed(range(LIMIT)))
    for process in processes:
        late = process.get("/v3/documents/counts")
        assert late.status_code == 429
        assert late.json()["error"] == "Too many requests"
        assert 1 <= int(late.headers["retry-after"]) <= 60
        assert process.get("/health").status_code == 200
