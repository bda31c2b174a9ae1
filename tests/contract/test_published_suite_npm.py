"""The TypeScript client's own test suite against a live service, with the client that npm installs.

npm's package does not hold the suite; it is in the client's repository, of which the commit is
fixed here. Nothing of it is kept. `npm/suite.mjs` runs it, its switched-off tests included.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from recollect.db import Database
from recollect.model import Org
from recollect.orgs import orgs
from tests.conftest import plain_client, pretty
from tests.contract.pypi.unskip import prepare

# A checkout or mirror of it may be named instead, where there is no network.
REPOSITORY = os.environ.get(  # noqa: TID251 # the tests' own switch
    "RECOLLECT_TEST_NPM_SUITE", "https://github.com/supermemoryai/sdk-ts"
)
RELEASE = ("v4.25.4", "c15daeee53ee3c372fdb778bc251ed13b91e300d")
FILES = ("connections", "documents", "memories", "search", "settings", "top-level")
REFUSED = re.compile(
    "add: required and optional"  # documentDate is the word "documentDate"
    "|deleteBulk"  # names nothing to delete
    "|forget: only|updateMemory: only"  # names no memory, neither by id nor by content
    "|(documents|execute): required and optional"  # a docId that there is not
    "|configure|resources: required|resources$"  # 501: Notion has nothing to pick
)
"""Examples with values made up by a generator that the published API itself refuses, too."""


@pytest.fixture(scope="module")
def suite(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the suite's files, beside the installed client."""
    tag, commit = RELEASE
    clone = tmp_path_factory.mktemp("clone")
    asked = ["git", "clone", "--quiet", "--depth", "1", "--branch", tag, REPOSITORY, str(clone)]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"git cannot fetch the suite here: {error}")
    if done.returncode:
        pytest.skip(f"git cannot fetch the suite here: {done.stderr[-300:]}")
    head = ["git", "-C", str(clone), "rev-parse", "HEAD"]
    found = subprocess.run(head, capture_output=True, text=True, check=True).stdout.strip()
    assert found == commit, f"{tag} is not the commit that it was"
    folder = installed / "suite"
    folder.mkdir()
    for name in FILES:
        source = clone / "tests/api-resources" / f"{name}.test.ts"
        (folder / f"{name}.test.ts").write_bytes(source.read_bytes())
    return folder


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_it_passes_where_the_service_has_what_it_asks_for(
    suite: Path,
    typed_node: str,
    model_url: str,
    db: Database,
    org: Org,
    capsys: pytest.CaptureFixture[str],
):
    with db.begin() as tx:
        orgs.create_key(tx, org.id, secret="My API Key")
    passed: list[str] = []
    refused: list[str] = []
    broken: dict[str, str] = {}
    headers = {"Authorization": "Bearer My API Key"}
    with (
        plain_client(model_url, headers) as http,
        psycopg.connect(db.url, autocommit=True) as session,
    ):
        for name in FILES:
            for test in _names(typed_node, suite / f"{name}.test.ts"):
                prepare(http, session, org.name)
                ran = _run(typed_node, suite / f"{name}.test.ts", test, base_url=model_url)
                if ran.returncode == 0:
                    passed.append(test)
                elif REFUSED.search(test):
                    refused.append(test)
                else:
                    broken[f"{name}: {test}"] = ran.stderr[-600:]
    with capsys.disabled():
        counts = f"{len(passed)} passed, {len(refused)} refused"
        sys.stdout.write(f"\nThe client's own suite: {counts}\n")
    assert not broken, pretty(broken)
    assert len(passed) > 30


def _names(node: str, file: Path) -> Iterator[str]:
    listed = _run(node, file)
    assert listed.returncode == 0, listed.stderr
    yield from json.loads(listed.stdout)


def _run(
    node: str, file: Path, *arguments: str, base_url: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [node, "../suite.mjs", str(file), *arguments],
        cwd=file.parent,
        env={"TEST_API_BASE_URL": base_url},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
