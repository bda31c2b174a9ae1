"""A user at a terminal: one process runs `recollect …` as often as it is asked.

A start takes a second, and each command may set up logging and settings of its process, so that
neither a process each nor the tests' own process will do. Run as a module it is that process.
"""

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Terminal:
    """Commands see `environment`, are in `folder`, and answer each question with yes."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.terminal"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._turn = threading.Lock()

    @property
    def pid(self) -> int:
        return self._process.pid

    def run(self, *arguments: str, **settings: str | None) -> Ended:
        """`settings`: variables of the environment for this command alone; None takes one away."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with self._turn:
            print(json.dumps([arguments, settings]), file=process.stdin, flush=True)
            answer = process.stdout.readline()
        assert answer, "the process of the terminal has ended"
        return Ended(**json.loads(answer))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=30)


def _once(arguments: Sequence[str]) -> Ended:
    from recollect.cli import main  # noqa: PLC0415 # only the process needs it

    out, err = io.StringIO(), io.StringIO()
    sys.argv = ["recollect", *arguments]
    sys.stdin = io.StringIO("y\n")
    code: object = 0
    # The streams stay open: whoever sets up logging keeps them.
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
    return Ended(code if isinstance(code, int) else 1, out.getvalue(), err.getvalue())


if __name__ == "__main__":
    with os.fdopen(os.dup(1), "w") as answers, os.fdopen(os.dup(0)) as asked:
        os.dup2(2, 1)  # what a command prints past sys.stdout is no answer
        at_first = dict(os.environ)  # noqa: TID251 # this process belongs to the terminal
        for line in asked:
            given, more = json.loads(line)
            kept = {k: v for k, v in {**at_first, **more}.items() if v is not None}
            os.environ.clear()  # noqa: TID251 # as above
            os.environ.update(kept)  # noqa: TID251 # as above
            print(json.dumps(asdict(_once(given))), file=answers, flush=True)
