"""The published npm client, with nothing but its base URL changed; see npm/scenarios.mjs."""

import os
import re
import subprocess
import threading
import uuid
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest
import uvicorn

from recollect.api import create_app
from recollect.app import App
from recollect.db import Database
from recollect.model import Plan, Scope
from recollect.orgs import orgs
from recollect.worker import syncs
from recollect.worker.processing import drain
from tests.conftest import eventually
from tests.fakes.site import Site
from tests.fakes.website import Exchange, answer

HERE = Path(__file__).parent / "npm"
PREFIX = "/tools/recollect"
CRAWLING = {"a_site_becomes_documents_and_follows"}
SCENARIOS = re.findall(r"^  async (\w+)\(", (HERE / "scenarios.mjs").read_text(), re.MULTILINE)


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


@pytest.fixture
def site() -> Generator[Site]:
    """Two pages and one that nobody wants; whoever asks for `/edit` has changed one."""
    with Site() as site:

        def edit(exchange: Exchange) -> bool:
            site.write("/heron", "Herons eat mice.", title="Heron")
            exchange.send(answer(200, b"done"))
            return True

        site.write("/", "Birds of the marsh.", ["/heron", "/admin"], title="Marsh")
        site.write("/heron", "Herons eat frogs.", title="Heron")
        site.write("/admin", "Keep out.", title="Admin")
        site.route("/edit", edit)
        yield site


@pytest.fixture
def free_key(db: Database) -> Generator[str]:
    """Of an organisation with the smallest plan."""
    with db.begin() as tx:
        made = orgs.create(tx, f"org-{uuid.uuid4().hex[:12]}", Plan.FREE)
        secret = orgs.create_key(tx, made.id, scope=Scope.ADMIN)[1]
    yield secret
    with db.begin() as tx:
        tx.execute("delete from orgs where id = %s", (made.id,))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(
    scenario: str,
    node: str,
    installed: Path,
    live_url: str,
    prefixed_url: str,
    key: str,
    free_key: str,
    site: Site,
    app: App,
):
    eager = replace(app, config=app.config.model_copy(update={"crawl_delay": 0.0}))
    environment = {
        "PATH": os.environ["PATH"],  # noqa: TID251 # of the child
        "BASE_URL": live_url,
        "PREFIXED_URL": prefixed_url,
        "API_KEY": key,
        "SITE": site.url("/"),
        "FREE_KEY": free_key,
    }
    with subprocess.Popen(
        [node, "scenarios.mjs", scenario],
        cwd=installed,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as child:
        for _ in range(1500):
            if scenario in CRAWLING:
                syncs.drain(eager)
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
