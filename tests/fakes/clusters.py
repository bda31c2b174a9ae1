"""The clusters of a test process: `initdb` makes the first, the others are copies of it.

A copy takes a sixth of the time. It has the password of the first superuser.
"""

import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from recollect.db.embedded import Embedded


@contextmanager
def copied(folder: Path) -> Generator[None]:
    """`folder`: where the first is kept."""
    first, secret = folder / "data", folder / "password"
    run = Embedded._run

    def make(server: Embedded, program: str, *arguments: str) -> None:
        if program != "initdb":
            run(server, program, *arguments)
            return
        [target] = (one for one in arguments if one.startswith("--pgdata="))
        making, password = Path(target.partition("=")[2]), server.folder / "password"
        if first.exists() and first.stat().st_uid == making.stat().st_uid:
            making.rmdir()
            _copy(first, making)
            password.write_text(secret.read_text())
        else:
            run(server, program, *arguments)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o700)
            _copy(making, first)
            shutil.copy(password, secret)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Embedded, "_run", make)
        yield


def _copy(cluster: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", cluster, target], check=True)
