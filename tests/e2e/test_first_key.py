"""What `serve` prints: the first key to who started the service, and to no log."""

import json
import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.conftest import eventually, free_port, plain_client


@pytest.mark.costly
@pytest.mark.parametrize("kind", ["terminal", "file", "journal"])
def test_the_first_key_is_printed_but_not_into_a_log(short_tmp: Path, kind: str):
    data_dir = short_tmp / f"first-key-{kind}"
    data_dir.mkdir()
    reading, writing = pty.openpty() if kind == "terminal" else os.pipe()
    said = data_dir / "said"
    file = said.open("wb")
    out = file.fileno() if kind == "file" else writing
    about = os.fstat(out)
    stream = {"JOURNAL_STREAM": f"{about.st_dev}:{about.st_ino}"} if kind == "journal" else {}
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "recollect", "serve"],
        env={
            **os.environ,  # noqa: TID251 # the child needs PATH and the like
            "RECOLLECT_DATA_DIR": str(data_dir),
            "RECOLLECT_PORT": str(port),
            "RECOLLECT_EMBEDDER": "none",
            "PYTHONUNBUFFERED": "1",
            **stream,
        },
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=out,
    )
    os.close(writing)
    copying = threading.Thread(target=_copy, args=(reading, said), daemon=True)
    if kind != "file":
        copying.start()
    try:
        ready = '"event": "ready"' if kind == "file" else "Stop with Ctrl-C."
        eventually(lambda: ready in said.read_text(), timeout=120)
        key = (data_dir / "api-key").read_text().strip()
        if kind == "terminal":
            _see_a_failure(f"http://127.0.0.1:{port}", key, said)
    finally:
        process.terminate()
        process.wait(60)
    text = said.read_text()
    assert re.fullmatch(r"sm_\w+", key)
    assert (key in text) is (kind == "terminal")
    assert str(data_dir / "api-key") in text
    if kind == "file":
        told = [json.loads(line)["event"] for line in text.splitlines()]
        assert told.count("migrated") == 1
        assert told[-1] == "stopped"


def _copy(source: int, target: Path) -> None:
    with target.open("ab", buffering=0) as out:
        while True:
            try:
                some = os.read(source, 65_536)
            except OSError:  # the terminal has nobody left
                return
            if not some:
                return
            out.write(some)


def _see_a_failure(url: str, key: str, said: Path) -> None:
    """On a terminal a document that fails is a line, and a request is none."""
    with plain_client(url, {"Authorization": f"Bearer {key}"}) as http:
        broken = {"file": ("a.docx", b"PK\x03\x04 broken")}
        id = http.post("/v3/documents/file", files=broken).json()["id"]
    eventually(lambda: id in said.read_text(), timeout=60)
    assert "request" not in said.read_text()
    assert said.read_text().count("migrated") == 1
    assert "open` opens the console" in said.read_text()
