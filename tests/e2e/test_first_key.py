"""Where the first key is told: to who started the service, and to no log."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import eventually, free_port


@pytest.mark.costly
@pytest.mark.parametrize("journal", [False, True])
def test_the_first_key_is_printed_but_not_into_a_log(short_tmp: Path, journal: bool):
    data_dir = short_tmp / f"first-key-{journal}"
    data_dir.mkdir()
    said = data_dir / "said"
    with said.open("wb") as out:
        about = os.fstat(out.fileno())
        stream = {"JOURNAL_STREAM": f"{about.st_dev}:{about.st_ino}"} if journal else {}
        process = subprocess.Popen(
            [sys.executable, "-m", "recollect", "serve"],
            env={
                **os.environ,  # noqa: TID251 # the child needs PATH and the like
                "RECOLLECT_DATA_DIR": str(data_dir),
                "RECOLLECT_PORT": str(free_port()),
                "RECOLLECT_EMBEDDER": "none",
                "PYTHONUNBUFFERED": "1",
                **stream,
            },
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        try:
            eventually(lambda: "Stop with Ctrl-C." in said.read_text(), timeout=120)
        finally:
            process.terminate()
            process.wait(60)
    key = (data_dir / "api-key").read_text().strip()
    assert re.fullmatch(r"sm_\w+", key)
    assert (key in said.read_text()) is not journal
    assert str(data_dir / "api-key") in said.read_text()
