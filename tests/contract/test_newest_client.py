"""The newest published client (PyPI 5.x) against a running service: its live tests, the calls of
its reference as printed and with every argument, its README, its guide and its examples; and every
answer held against the OpenAPI document of its sdist. Nothing of it is kept here."""

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from recollect.api import create_app
from recollect.app import App
from recollect.console import _code
from tests.conftest import Service, pretty
from tests.fakes.website import Website
from tests.installing import download_source, install

HERE = Path(__file__).parent / "pypi"
REFUSED: dict[str, tuple[int, str]] = {
    "printed documents.update": (400, "names nothing that is to change"),
    "printed connectors.create": (400, "no OAuth application of Notion is set up here"),
    "printed connectors.update": (400, "names neither a selection nor a limit"),
    "printed namespaces.update": (400, "names no context"),
    "printed feedback.post_feedback": (503, "feedback goes nowhere here"),
}
"""What the API itself refuses, and why."""


@dataclass(frozen=True, slots=True)
class Newest:
    """The client, and its sdist."""

    site: Path
    sdist: Path

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            env={
                "PATH": os.environ["PATH"],  # noqa: TID251 # of the child
                "PYTHONPATH": str(self.site),
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
                **environment,
            },
            cwd=self.sdist,
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory) -> Newest:
    folder = tmp_path_factory.mktemp("newest")
    wanted = ["--require-hashes", "-r", str(HERE / "newest.txt")]
    install(folder / "site", "--no-deps", *wanted)
    install(folder / "site", "--no-deps", "-r", str(HERE / "suite.txt"))
    download_source(folder, "supermemory", *wanted)
    [archive] = folder.glob("supermemory-*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return Newest(folder / "site", next(folder.glob("supermemory-*/")))


@pytest.fixture
def site() -> Generator[str]:
    with Website() as site:
        site.page("/", "<h1>Herons</h1><p>They stand in the water, all day long.</p>")
        yield site.url("/")


BIND = """
import ast, inspect, json, sys
from operator import attrgetter
from supermemory import Supermemory

client = Supermemory(api_key="x", base_url="http://127.0.0.1:9")
for id, code in json.loads(sys.argv[1]).items():
    told = next(one.value for one in ast.walk(ast.parse(code)) if isinstance(one, ast.Assign)
                and one.targets[0].id == "found")
    try:
        method = attrgetter(ast.unparse(told.func).removeprefix("client."))(client)
        named = {one.arg: one.value for one in told.keywords}
        inspect.signature(method).bind(*told.args, **named)
    except (AttributeError, TypeError) as error:
        print(id, error)
"""


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_it_takes_the_code_of_the_console(newest: Newest, app: App):
    document = create_app(app).openapi()
    ids = [id for id in _code.operations(document) if id.startswith(_code.NEWEST)]
    # Feedback is refused whatever is sent.
    codes = {
        id: _code.render(document, id, "http://x")["Python"] for id in ids if id != "nsPostFeedback"
    }
    ran = newest.run("-c", BIND, json.dumps(codes))
    assert (ran.stdout, ran.stderr) == ("", "")
    assert len(codes) > 30


@pytest.mark.costly
@pytest.mark.timeout(1200)
def test_its_live_tests(newest: Newest, service: Service, tmp_path: Path):
    report = tmp_path / "report.xml"
    ran = newest.run(
        "-m", "pytest", "-q", "-p", "pytest_asyncio.plugin", "-c", os.devnull,
        "--rootdir", str(newest.sdist), "-o", "asyncio_mode=auto", f"--junit-xml={report}",
        "tests/live",
        SUPERMEMORY_LIVE_API_KEY=service.key, SUPERMEMORY_LIVE_BASE_URL=service.url,
    )  # fmt: skip
    assert report.exists(), ran.stdout[-3000:] + ran.stderr[-3000:]
    failed = {
        case.attrib["name"]: fault.attrib["message"]
        for case in ElementTree.parse(report).iter("testcase")
        if (fault := case.find("failure")) is not None or (fault := case.find("error")) is not None
    }

    # Its last line goes through an answer as through a list, and gets pairs, on any server.
    assert list(failed) == ["test_add_get_search_list"], pretty(failed)
    assert "'tuple' object has no attribute 'id'" in failed["test_add_get_search_list"]
    assert "4 passed" in ran.stdout


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_its_calls_and_its_documentation(newest: Newest, service: Service, site: str):
    program = str(HERE / "newest.py")
    ran = newest.run(program, str(newest.sdist), service.url, service.key, site)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-4000:]
    results: list[dict[str, Any]] = json.loads(ran.stdout.splitlines()[-1])

    unfit = {one["call"]: one for one in results if one["faults"]}
    assert unfit == {}, pretty(unfit)
    surprising = {
        one["call"]: one
        for one in results
        if (one["status"] if one["error"] else None) != REFUSED.get(one["call"], (None,))[0]
    }
    assert surprising == {}, pretty(surprising)
    calls = [one["call"] for one in results]
    assert sum(call.startswith("printed ") for call in calls) == 32
    assert sum(call.startswith("full ") for call in calls) >= 32
