"""A user at a shell: `recollect …`, a process each time, without the second that a start takes.

One process has loaded the command line, and forks for each command: it has an environment, a
folder, streams and an end of its own, as one that was started has. How `python -m recollect`
starts is shown by the tests that take `Shell.command`.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Self

from tests.fakes.terminal import Ended

PROJECT = Path(__file__).parents[2]


class Starter:
    """The process that forks; for one thread."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.shell"],
            cwd=PROJECT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, input: bytes
    ) -> Ended:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.TemporaryDirectory(prefix="recollect-shell-") as name:
            streams = [Path(name) / stream for stream in ("in", "out", "err")]
            streams[0].write_bytes(input)
            order = [arguments, dict(environment), str(folder), *map(str, streams)]
            print(json.dumps(order), file=self._process.stdin, flush=True)
            code = self._process.stdout.readline()
            assert code, "the process that forks has ended"
            return Ended(int(code), streams[1].read_text("utf-8"), streams[2].read_text("utf-8"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=60)


@dataclass(frozen=True, slots=True)
class Shell:
    """Runs `recollect …` in a folder of its own, as a user with a cache of their own."""

    starter: Starter
    folder: Path
    settings: Mapping[str, str]
    typed: bytes = b""
    """what commands find on standard input"""

    def __call__(
        self, *arguments: str, input: bytes | None = None, cwd: Path | None = None, **settings: str
    ) -> Ended:
        """`settings`: further variables of the environment, for this command alone."""
        typed = self.typed if input is None else input
        environment = self.environment(**settings)
        ended = self.starter.run(arguments, environment, cwd or self.folder, typed)
        assert "Traceback" not in ended.err, ended.err
        return ended

    def command(self, *arguments: str) -> list[str]:
        """For a process that is started indeed."""
        return [sys.executable, "-m", "recollect", *arguments]

    def environment(self, **settings: str) -> dict[str, str]:
        inherited = os.environ  # noqa: TID251 # the child needs PATH and the like
        return {
            **{name: v for name, v in inherited.items() if not name.startswith("RECOLLECT_")},
            "PYTHONPATH": str(PROJECT),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            **self.settings,
            **settings,
        }


def _fork_for_each_order() -> None:
    """Returns in the children, each made what its order says; ends the process after the last."""
    # Of whatever file descriptors a command prints to, these are none.
    with os.fdopen(os.dup(0)) as orders, os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        for order in orders:
            child = os.fork()
            if child == 0:
                return _become(*json.loads(order))
            _, status = os.waitpid(child, 0)
            print(os.waitstatus_to_exitcode(status), file=answers, flush=True)
    return sys.exit()


def _become(arguments: list[str], environment: dict[str, str], folder: str, *streams: str) -> None:
    for number, (path, flags) in enumerate(
        zip(streams, (os.O_RDONLY, os.O_WRONLY | os.O_CREAT, os.O_WRONLY | os.O_CREAT), strict=True)
    ):
        opened = os.open(path, flags, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    os.chdir(folder)
    variables: Any = os.environ  # noqa: TID251 # a process of its own
    variables.clear()
    variables.update(environment)
    sys.argv = ["recollect", *arguments]


if __name__ == "__main__":
    from recollect.cli import COMMANDS, main

    for module in ("look", "add", "connect", "filters", "webhooks", "quickstart"):
        assert module in COMMANDS.values()
        import_module(f"recollect.cli.{module}")
    _fork_for_each_order()
    main()
