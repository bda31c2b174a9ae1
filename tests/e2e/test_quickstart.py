"""The first minute with the product: quickstart, completion, and commands without a service."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

import pytest
import typer
from typer.main import get_group

from recollect.cli import COMMANDS
from recollect.ingest.samples import FIRST, texts
from tests.conftest import Service, eventually
from tests.e2e.shell import Shell, Starter

ASKING = (
    ("quickstart",),
    ("quickstart", "--clean"),
    ("add", "-"),
    ("search", "x"),
    ("ask", "x"),
    ("evaluate", "x"),
    ("open",),
    ("list",),
    ("show", "x"),
    ("versions", "x"),
    ("rm", "x"),
    ("rm", "--tag", "x", "--all"),
    ("retry", "x"),
    ("retry", "--failed"),
    ("status",),
    ("status", "--watch"),
    ("connect", "github"),
    ("connect", "github", "--follow"),
    ("connections",),
    ("sync", "x"),
    ("sync", "x", "--follow"),
    ("changes", "x"),
    ("seen", "x"),
    ("disconnect", "x", "--yes"),
    ("filters", "show"),
    ("filters", "preview"),
    ("edit", "x", "--tag", "y"),
    ("tags",),
    ("webhooks", "list"),
    ("webhooks", "log", "x"),
)
"""Every way of asking a running service for something."""
NOTE = b"A note."


@pytest.fixture
def shell(starter: Starter, service: Service, tmp_path: Path) -> Shell:
    settings = {"RECOLLECT_URL": service.url, "RECOLLECT_API_KEY": service.key}
    return Shell(starter, tmp_path, settings, NOTE)


@pytest.fixture
def alone(starter: Starter, nowhere: str, tmp_path: Path) -> Shell:
    """Where nothing answers."""
    settings = {"RECOLLECT_URL": nowhere, "RECOLLECT_DATA_DIR": str(tmp_path)}
    return Shell(starter, tmp_path, settings, NOTE)


@pytest.fixture
def tag() -> str:
    return f"quick-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def listed(service: Service, tag: str) -> Callable[[], list[str]]:
    def ask() -> list[str]:
        with service.client() as http:
            answer = http.post("/v3/documents/list", json={"containerTags": [tag], "limit": 100})
        return [document["customId"] for document in answer.json()["memories"]]

    return ask


# --- quickstart --------------------------------------------------------------------------------


def test_it_brings_its_texts_and_shows_the_first_hit(
    shell: Shell, tag: str, listed: Callable[[], list[str]]
) -> None:
    told = shell("quickstart", "--tag", tag, "--json").json

    assert told["seconds"] > 0
    assert told["hit"]["customId"] == f"quickstart/{FIRST}"
    assert "power fails" in told["hit"]["chunks"][0]["content"]
    assert sorted(listed()) == sorted(f"quickstart/{name}" for name in texts())


def test_it_shows_what_to_do_next_and_goes_away_without_a_trace(
    shell: Shell, tag: str, listed: Callable[[], list[str]]
) -> None:
    first = shell("quickstart", "--tag", tag)
    ids = set(listed())
    again = shell("quickstart", "--tag", tag)
    kept = set(listed())
    shell("add", "-", "--tag", tag)
    cleaned = shell("quickstart", "--clean", "--tag", tag)
    nothing = shell("quickstart", "--clean", "--tag", tag, "--json")

    assert first.code == again.code == 0, first.err + again.err
    command, heading, passage, place = first.out.splitlines()[:4]
    assert command.startswith("$ recollect search")
    assert heading.startswith("1. ")
    assert passage.strip()
    assert place.strip().startswith(f"quickstart/{FIRST} · ")
    assert "quickstart --clean" in first.err
    assert ids == kept
    assert cleaned.out == f"deleted {len(texts())}\n"
    assert nothing.json == {"deleted": 0}
    assert listed() == [None]  # what somebody else brought into the tag


@pytest.mark.timeout(600)
def test_it_brings_a_service_along_and_throws_it_away(alone: Shell, short_tmp: Path) -> None:
    scratch = short_tmp / f"quick-{uuid.uuid4().hex[:6]}"
    scratch.mkdir(mode=0o711)
    # The settings of a service elsewhere are not used for the one that is thrown away.
    elsewhere = "postgresql://nobody@127.0.0.1:1/none"
    began = time.monotonic()
    ended = alone(
        *("quickstart", "--serve", "--json"),
        TMPDIR=str(scratch),
        RECOLLECT_DATABASE_URL=elsewhere,
    )
    took = time.monotonic() - began

    assert ended.code == 0, ended.err
    assert ended.json["hit"]["customId"] == f"quickstart/{FIRST}"
    assert 0 < ended.json["seconds"] < took
    assert list(scratch.glob("recollect-quickstart-*")) == []
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert str(scratch) not in running.stdout


@pytest.mark.timeout(600)
def test_an_impatient_ctrl_c_leaves_nothing_of_it(alone: Shell, short_tmp: Path) -> None:
    scratch = short_tmp / f"quick-{uuid.uuid4().hex[:6]}"
    scratch.mkdir(mode=0o711)
    with subprocess.Popen(
        alone.command("quickstart", "--serve"),
        cwd=alone.folder,
        env=alone.environment(TMPDIR=str(scratch)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        # A shell's background jobs, and what they start, are deaf to Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        eventually(lambda: any(scratch.glob("*/data/postgres/data/*")))

        def ended() -> bool:
            process.send_signal(signal.SIGINT)
            return process.poll() is not None

        eventually(ended)
        _, told = process.communicate()

    assert process.returncode == 130, told
    assert list(scratch.glob("recollect-quickstart-*")) == []


def test_a_service_of_its_own_takes_no_address(alone: Shell) -> None:
    ended = alone("quickstart", "--serve", "--url", "http://127.0.0.1:1")

    assert (ended.code, ended.out) == (2, "")


def test_the_sample_is_short_and_useful() -> None:
    found = texts()

    assert next(iter(found)) == FIRST
    assert len(found) >= 5
    for name, text in found.items():
        assert text.startswith("# "), name
        assert 300 < len(text) < 3000, name


# --- without a service -------------------------------------------------------------------------


def test_every_command_that_asks_a_service_is_tried() -> None:
    asking: set[str] = set()
    for name, module in COMMANDS.items():
        part = typer.Typer()
        import_module(f"recollect.cli.{module}").register(part)
        command = get_group(part).commands[name]
        every = [command, *getattr(command, "commands", {}).values()]
        if any("--url" in option.opts for one in every for option in one.params):
            asking.add(name)

    # An assistant may be started before the service is; its tools say what is missing.
    # The address that `embedder switch` takes is the model's.
    assert {arguments[0] for arguments in ASKING} == asking - {"mcp", "embedder"}


@pytest.mark.parametrize("arguments", ASKING, ids=" ".join)
def test_without_a_service_one_line_says_how_to_start_it(
    alone: Shell, arguments: Sequence[str]
) -> None:
    ended = alone(*arguments)

    assert ended.code == 1
    assert ended.out == ""
    line = f"error: no service at {alone.settings['RECOLLECT_URL']}; start it with"
    assert ended.err.startswith(line)
    assert ended.err.count("\n") == 1


def test_quickstart_offers_to_bring_one_along(alone: Shell) -> None:
    assert "`recollect quickstart --serve`" in alone("quickstart").err


# --- completion --------------------------------------------------------------------------------


def completed(shell: Shell, line: str) -> list[str]:
    words = line.split(" ")
    ended = shell(
        _RECOLLECT_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(words) - 1)
    )
    return ended.out.split()


def test_commands_and_options_are_completed(alone: Shell) -> None:
    assert set(completed(alone, "recollect ")) == set(COMMANDS)
    assert completed(alone, "recollect qui") == ["quickstart"]
    assert "--limit" in completed(alone, "recollect search --")
    assert completed(alone, "recollect keys cr") == ["create"]
    assert "--install-completion" in completed(alone, "recollect --")


def test_completing_a_command_loads_none() -> None:
    code = (
        "import sys\n"
        "from recollect.cli import app\n"
        "try: app(prog_name='recollect')\n"
        "except SystemExit: pass\n"
        "print([m for m in sys.modules if m.startswith('recollect.cli.')], file=sys.stderr)"
    )
    inherited = os.environ  # noqa: TID251 # the child needs PATH and the like
    asked = {"_RECOLLECT_COMPLETE": "complete_bash", "COMP_WORDS": "recollect s", "COMP_CWORD": "1"}
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env={**inherited, **asked},
        capture_output=True,
        text=True,
        check=True,
    )

    assert set(ended.stdout.split()) >= {"search", "serve", "status"}
    assert ended.stderr.strip() == str(
        ["recollect.cli._help", "recollect.cli.output", "recollect.cli._lazy"]
    )


@pytest.mark.parametrize("kind", ["bash", "zsh", "fish"])
def test_completion_is_installed(alone: Shell, kind: str) -> None:
    shown = alone("--show-completion", kind, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    home = alone.folder / "home"
    home.mkdir()
    installed = alone(
        *("--install-completion", kind),
        HOME=str(home),
        _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1",
    )
    written = "".join(path.read_text() for path in home.rglob("*") if path.is_file())

    assert "_RECOLLECT_COMPLETE=complete_" + kind in shown.out
    assert installed.code == 0, installed.err
    assert "_RECOLLECT_COMPLETE=complete_" + kind in written
