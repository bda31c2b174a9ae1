"""The unit and the container file name only what there is."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from recollect.config import Config

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy/recollect.service"
CONTAINER = ROOT / "deploy/Containerfile"
SERVICE = Path(sys.executable).with_name("recollect")


@pytest.mark.parametrize("file", [UNIT, CONTAINER], ids=lambda file: file.name)
def test_every_setting_is_one(file: Path):
    named = set(re.findall(r"RECOLLECT_([A-Z_]+)=", file.read_text()))

    assert named
    assert {name.lower() for name in named} <= set(Config.model_fields)


def test_what_the_container_copies_is_there_or_made_by_make_wheels():
    makefile = (ROOT / "Makefile").read_text()
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", CONTAINER.read_text(), re.MULTILINE)
    sources = [source for line in copied for source in line.split()]

    assert len(sources) == 2
    for source in sources:
        assert (ROOT / source).exists() or f"-d {source}" in makefile, source
    assert "COPY requirements/serve.txt /lock/" in CONTAINER.read_text()


def test_the_container_installs_offline_and_runs_as_nobody_in_particular():
    text = CONTAINER.read_text()
    installs = re.findall(r"pip install (.+)", text)

    assert len(installs) == 2
    assert all("--no-index" in one for one in installs)
    assert "--require-hashes" in installs[0]
    assert re.search(r"^USER recollect$", text, re.MULTILINE)
    assert text.index("USER recollect") < text.index("\nCMD")


def test_the_port_is_that_of_the_settings():
    port = Config.model_fields["port"].default
    text = CONTAINER.read_text()

    assert f"EXPOSE {port}\n" in text
    assert f"int(os.environ.get('RECOLLECT_PORT') or {port})" in text


@pytest.mark.parametrize(
    ("file", "line"),
    [(UNIT, r"^ExecStart=\S+/recollect (.+)$"), (CONTAINER, r'^CMD \["recollect", "(.+)"\]$')],
    ids=["unit", "container"],
)
def test_the_command_is_one(file: Path, line: str):
    found = re.search(line, file.read_text(), re.MULTILINE)
    assert found is not None
    said = subprocess.run(
        [SERVICE, *found[1].split(), "--help"], capture_output=True, text=True, check=False
    )

    assert said.returncode == 0, said.stderr


def test_systemd_takes_the_unit(tmp_path: Path):
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/recollect/bin/recollect", str(SERVICE)))
    said = subprocess.run(
        [analyze, "verify", str(unit)], capture_output=True, text=True, check=False
    )

    assert (said.returncode, said.stderr) == (0, "")
