"""Packages that others build on the published clients, with nothing but base URL and key changed;
see `packages/`."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from recollect.model import random_id
from tests.conftest import Service, start_service, stop_service
from tests.installing import install

HERE = Path(__file__).parent / "packages"
SCENARIOS = re.findall(r"^  async (\w+)\(", (HERE / "tools.mjs").read_text(), re.MULTILINE)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def own(short_tmp: Path) -> Generator[Service]:
    """A service whose settings one of the packages may change."""
    running = start_service(short_tmp / f"packages-{random_id()[:6]}")
    yield running
    stop_service(running)


@pytest.fixture(scope="module")
def folder(node: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the packages of the lock file, as npm installs them."""
    folder = tmp_path_factory.mktemp("packages")
    for name in ("package.json", "package-lock.json", "tools.mjs"):
        shutil.copy(HERE / name, folder)
    npm = Path(node).parent.parent / "lib/node_modules/npm/bin/npm-cli.js"
    command = [node, str(npm)] if npm.exists() else [shutil.which("npm") or "npm"]
    # Not `ci`, which wants optional packages of other machines in the lock file, too.
    flags = ["install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund"]
    try:
        done = subprocess.run(
            [*command, *flags], cwd=folder, capture_output=True, text=True, timeout=300, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"npm cannot install the packages here: {error}")
    if done.returncode:
        pytest.skip(f"npm cannot install the packages here: {done.stderr[-300:]}")
    return folder


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_of_npm(scenario: str, node: str, folder: Path, own: Service, tmp_path: Path):
    _succeeds([node, "tools.mjs", scenario], folder, own, tmp_path)


@pytest.mark.parametrize("name", ["openai", "agents", "bash"])
def test_of_pypi(name: str, own: Service, tmp_path: Path):
    site = tmp_path / "site"
    install(site, "--require-hashes", "-r", str(HERE / f"{name}.txt"))
    program = shutil.copy(HERE / f"{name}_tools.py", tmp_path)
    command = [sys.executable, str(program), own.url, own.key]
    settings = {"PYTHONPATH": str(site), "SUPERMEMORY_BASE_URL": own.url}
    _succeeds(command, tmp_path, own, tmp_path, **settings)


def _succeeds(
    command: list[str], folder: Path, service: Service, home: Path, **environment: str
) -> None:
    ran = subprocess.run(
        command,
        cwd=folder,
        env={
            "PATH": os.environ["PATH"],  # noqa: TID251 # of the child
            "HOME": str(home),
            "BASE_URL": service.url,
            "API_KEY": service.key,
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-5000:]
