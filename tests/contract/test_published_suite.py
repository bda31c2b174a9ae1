"""The Python client's own test suite, of its source distribution, against a live service.

There it is switched off; `pypi/unskip.py` switches it on. Nothing of it is kept here.
"""

import os
import re
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from recollect.db import Database
from recollect.model import Org
from recollect.orgs import orgs
from tests.conftest import pretty
from tests.installing import download_source, install

HERE = Path(__file__).parent / "pypi"
REFUSED = re.compile(
    "add_with_all_params"  # documentDate is the word "documentDate"
    "|delete_bulk(?!_with)"  # names nothing to delete
    "|(forget|update_memory)(?!_with)"  # names no memory, neither by id nor by content
    "|(documents|execute)_with_all_params"  # a docId that there is not
    "|_create_with_all_params"  # a redirectUrl that is the word "redirectUrl"
    "|delete_by_id_with_all_params"  # deleteDocuments is the word "deleteDocuments"
    "|configure|resources"  # 501: Notion has nothing to pick, neither here nor there
)
"""Examples with values made up by a generator that the published API itself refuses, too."""


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the suite in `tests`, and in `site` what it needs."""
    folder = tmp_path_factory.mktemp("suite")
    download_source(folder, "supermemory", "--require-hashes", "-r", str(HERE / "sdist.txt"))
    install(folder / "site", "--no-deps", "-r", str(HERE / "suite.txt"))
    [archive] = folder.glob("supermemory-*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return next(folder.glob("supermemory-*/"))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_it_passes_where_the_service_has_what_it_asks_for(
    suite: Path,
    model_url: str,
    db: Database,
    org: Org,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    with db.begin() as tx:
        orgs.create_key(tx, org.id, secret="My API Key")
    report = tmp_path / "report.xml"
    # No configuration of the suite's own: it asks for plug-ins and workers. A traceback for each of
    # the refused, and the plug-ins that lie about here, would take longer than the tests do.
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--tb=line",
         "-p", "unskip", "-p", "pytest_asyncio.plugin",
         "-c", os.devnull, "--rootdir", str(suite), "-o", "asyncio_mode=auto",
         "-o", "asyncio_default_fixture_loop_scope=session", f"--junit-xml={report}",
         "tests/api_resources"],
        cwd=suite,
        env={
            "PATH": os.environ["PATH"],  # noqa: TID251 # of the child
            "PYTHONPATH": os.pathsep.join(map(str, (suite, suite.parent / "site", HERE))),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "TEST_API_BASE_URL": model_url,
            "TEST_API_ORG": org.name,
            "TEST_API_DATABASE": db.url,
        },
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert report.exists(), ran.stdout[-3000:] + ran.stderr[-3000:]

    passed, refused = Counter[str](), Counter[str]()
    broken: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        module, name = case.attrib["classname"].split(".")[-2], case.attrib["name"]
        fault = case.find("failure")
        if fault is None:
            fault = case.find("error")
        if fault is None:
            passed[module] += case.find("skipped") is None
        elif REFUSED.search(name):
            refused[module] += 1
        else:
            broken[f"{module}: {name}"] = fault.attrib.get("message", "")[:300]
    with capsys.disabled():
        counts = f"{passed.total()} passed, {refused.total()} refused"
        sys.stdout.write(f"\nThe client's own suite: {counts}\n")
    assert not broken, pretty(broken)
    assert passed["test_documents"] > 100
    assert passed["test_memories"] == 10
