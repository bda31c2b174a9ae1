"""Google as the signer of Pub/Sub's pushes, played by the npm package `oauth2-mock-server`.

    with Signer() as signer:
        token = signer.token(aud=AUDIENCE, email=ACCOUNT, email_verified=True)
        signer.certs_url          # its JSON Web Key Set

Nothing of ours makes keys, signs or publishes here. It is installed at the first use in a process
(two seconds, 1 MB), as the lock file in `tests/emulators/signer` pins it; where that cannot be
done, the test is skipped with the reason.
"""

import json
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Self

import httpx
import pytest

from tests.fakes.emulate import installed

HERE = Path(__file__).parent.parent / "emulators/signer"
GOOGLE = "https://accounts.google.com"


class Signer:
    def __init__(self, issuer: str = GOOGLE) -> None:
        folder = _install()
        self._child = subprocess.Popen(
            [_node(), Path(folder.name) / "serve.mjs", issuer],
            cwd=folder.name,
            env={},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._child.stdout is not None
        said = self._child.stdout.readline().strip()
        assert said.isdecimal(), f"oauth2-mock-server: {said!r}"
        self._url = f"http://127.0.0.1:{said}"
        self.certs_url = f"{self._url}/jwks"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()
        try:
            self._child.wait(10)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait(10)
        assert self._child.stdout is not None
        self._child.stdout.close()

    def token(self, **claims: Any) -> str:
        """Signed now, good for an hour; None takes a claim away."""
        form = {"grant_type": "client_credentials", "claims": json.dumps(claims)}
        answer = httpx.post(f"{self._url}/token", data=form, timeout=60, trust_env=False)
        return answer.raise_for_status().json()["access_token"]


def _node() -> Path:
    return installed()[0]


@cache
def _install() -> tempfile.TemporaryDirectory[str]:
    """Removed when the process ends; skips where it cannot be had."""
    node = _node()
    folder = tempfile.TemporaryDirectory(prefix="recollect-signer-")
    for name in ("package.json", "package-lock.json", "serve.mjs"):
        shutil.copy(HERE / name, folder.name)
    npm = node.parent.parent / "lib/node_modules/npm/bin/npm-cli.js"
    command = [str(node), str(npm)] if npm.exists() else [shutil.which("npm") or "npm"]
    done = subprocess.run(
        [*command, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-timeout=20000"],
        cwd=folder.name,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode:
        fault = " ".join(done.stderr.split())[:300]
        pytest.skip(f"oauth2-mock-server cannot be installed here: {fault}")
    return folder
