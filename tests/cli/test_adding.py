"""`recollect add` with a person before it: what it would do, what it asks, what it shows."""

import io
import os
import pty
import subprocess
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from recollect.cli._add_progress import AddProgress, _steps
from recollect.cli._add_sending import attempt
from recollect.cli._add_sources import AddReport, Outcome
from recollect.cli._bar import WINDOW, BarState, Pace, words
from recollect.cli.add import MANY
from recollect.cli.client import Service as Client
from recollect.model import Stage
from tests.conftest import Service
from tests.e2e.shell import Shell, Starter
from tests.fakes.site import Site

FULL = Path("/dev/full")


@pytest.fixture
def run(starter: Starter, service: Service, tmp_path: Path) -> Shell:
    settings = {"RECOLLECT_URL": service.url, "RECOLLECT_API_KEY": service.key}
    return Shell(starter, tmp_path, settings)


def at_a_terminal(
    run: Shell, arguments: Sequence[str], answer: bytes, **settings: str
) -> tuple[int, str]:
    """The exit code and all that was shown."""
    controller, terminal = pty.openpty()
    with subprocess.Popen(
        run.command(*arguments),
        cwd=run.folder,
        env=run.environment(TERM="xterm", COLUMNS="120", **settings),
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    ) as process:
        os.close(terminal)
        os.write(controller, answer)
        shown = b""
        with os.fdopen(controller, "rb", buffering=0) as screen, suppress(OSError):
            while some := screen.read(4096):
                shown += some
        return process.wait(100), shown.decode()


def test_a_dry_run_says_what_the_next_run_does_and_sends_nothing(
    run: Shell, service: Service
) -> None:
    tag = f"dry-{uuid.uuid4().hex[:12]}"
    box = run.folder / "box"
    (box / "build").mkdir(parents=True)
    (box / "node_modules").mkdir()
    for name in ("a.md", "b.md", "build/made.txt", "node_modules/x.js", "noise.log"):
        (box / name).write_text(f"Of {name}.")
    (box / ".gitignore").write_text("build/\n*.log\n")
    add = ("add", "box", "http://127.0.0.1:9/page", "-", "--tag", tag)
    first = run(*add, "--dry-run", "--json", input=b"text").json

    def outcomes(told: dict[str, list[dict[str, str]]]) -> dict[str, str]:
        return {one["source"]: one["outcome"] for one in told["sources"]}

    assert first["dryRun"] is True
    assert outcomes(first) == {
        "box/.gitignore": "skipped",
        "box/build": "skipped",
        "box/node_modules": "skipped",
        "box/noise.log": "skipped",
        "standard input": "added",
        "http://127.0.0.1:9/page": "added",
        "box/a.md": "added",
        "box/b.md": "added",
    }
    with service.client() as http:
        asked = {"containerTags": [tag]}
        assert http.post("/v3/documents/list", json=asked).json()["memories"] == []

    did = run("add", "box", "--tag", tag)
    # What is passed over is decided before: nobody sees it being uploaded.
    assert "uploading 2/2" in did.err
    assert "/6" not in did.err
    assert "2 added, 0 updated, 0 unchanged, 4 skipped, 0 failed" in did.out
    assert "skipped    2: .gitignore (box/build, box/noise.log)" in did.out
    (box / "a.md").write_text("Changed.")
    again = run("add", "box", "--tag", tag, "--dry-run")
    assert "would be 0 added, 1 updated, 1 unchanged, 4 skipped, 0 failed" in again.out
    assert "updated    box/a.md" in again.out
    told = again.err.splitlines()
    assert told[-1] == "looked at 2/2"
    assert not [line for line in told if not line.startswith("looked at ")]
    assert outcomes(run("add", "box", "--tag", tag, "--json").json)["box/a.md"] == "updated"
    chosen = run("add", "box", "--tag", tag, "--no-ignore", "--include", "*.log", "--json")
    assert chosen.json["added"] == 1
    assert run("add", "box", "--exclude", "!").code == 2


def test_a_file_name_that_is_no_utf8_is_added_and_known_again(run: Shell) -> None:
    tag = f"bytes-{uuid.uuid4().hex[:12]}"
    box = run.folder / "box"
    box.mkdir()
    odd = box / os.fsdecode(b"caf\xe9.md")
    odd.write_text("Owls hunt at night.")
    (box / "plain.md").write_text("Bees dance.")
    add = ("add", "box", "--tag", tag)
    first = run(*add, "--json")
    again = run(*add, "--json")
    odd.write_text("Owls hunt mice at night.")
    changed = run(*add)

    assert (first.code, first.json["added"], again.json["unchanged"]) == (0, 2, 2)
    assert "box/caf�.md" in changed.out
    assert changed.out.endswith("0 added, 1 updated, 1 unchanged, 0 skipped, 0 failed\n")


def test_what_is_no_regular_file_fails_and_nothing_waits_for_it(run: Shell) -> None:
    os.mkfifo(run.folder / "pipe")
    told = run("add", "pipe", "/dev/zero")

    assert told.code == 1
    why = "not a regular file; `recollect add -` reads standard input"
    assert told.out.splitlines()[:2] == [f"failed     pipe: {why}", f"failed     zero: {why}"]


class Churned(io.FileIO):
    """A file to which somebody does something each time that it is read."""

    def __init__(self, path: Path, act: Callable[[Path], None]) -> None:
        super().__init__(path)
        self._path, self._act = path, act

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(-1 if size is None else size)
        self._act(self._path)
        return found or b""


def test_a_file_that_grows_while_it_is_sent_is_sent_as_it_was(
    service: Service, tmp_path: Path
) -> None:
    log = tmp_path / "log.txt"
    log.write_text("first line\n" * 20_000)

    def grow(path: Path) -> None:
        with path.open("a") as file:
            file.write("later line\n" * 20_000)

    client = Client(service.url, service.key)
    sent = client.upload(lambda: Churned(log, grow), log.name, "text/plain", {})

    with service.client() as asking:
        address = f"/v3/documents/{sent['id']}"
        found = asking.get(address, params={"wait": 60}).json()
    assert found["content"].split() == ["first", "line"] * 20_000


def test_a_file_that_becomes_shorter_while_it_is_sent_is_named(
    service: Service, tmp_path: Path
) -> None:
    log = tmp_path / "log.txt"
    log.write_text("first line\n" * 20_000)
    client = Client(service.url, service.key)

    def send() -> AddReport:
        client.upload(
            lambda: Churned(log, lambda path: os.truncate(path, 9)), "a", "text/plain", {}
        )
        return AddReport("log.txt", Outcome.ADDED)

    assert attempt("log.txt", send).reason == "it became shorter while it was sent; add it again"


def test_many_files_are_asked_about_on_a_terminal(run: Shell) -> None:
    tag = f"many-{uuid.uuid4().hex[:12]}"
    (run.folder / "many").mkdir()
    for number in range(MANY + 1):
        (run.folder / "many" / f"{number}.txt").write_text("x")
    code, shown = at_a_terminal(run, ("add", "many", "--tag", tag), b"n\n")

    assert code == 1
    assert "Add 1,001 files? `--dry-run` lists them, `--exclude` leaves some out. [y/N]" in shown
    assert run("list", "--tag", tag).err == "no documents\n"
    # Few are not asked about, and one line shows how far it is.
    code, shown = at_a_terminal(run, ("add", "many", "--tag", tag, "--include", "7.txt"), b"")
    assert code == 0
    assert "searchable 1/1" in shown
    assert "Add " not in shown
    _, shown = at_a_terminal(run, ("list", "--tag", tag), b"")
    assert "\x1b[32mdone\x1b[0m    " in shown  # as wide as its heading
    assert "\x1b" not in run("list", "--tag", tag).out
    _, shown = at_a_terminal(run, ("list", "--tag", tag), b"", NO_COLOR="1")
    assert "done" in shown
    assert "\x1b[3" not in shown


@pytest.mark.skipif(not FULL.exists(), reason="a device that is always full is Linux's")
@pytest.mark.parametrize("command", [("tags", "--json"), ("--version",)])
def test_no_room_for_what_is_printed_is_one_line(run: Shell, command: tuple[str, ...]) -> None:
    with FULL.open("wb") as full:
        ended = subprocess.run(
            run.command(*command),
            cwd=run.folder,
            env=run.environment(),
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert ended.returncode == 1
    assert ended.stderr == "error: what it prints cannot be written: No space left on device\n"


def test_a_sync_is_followed_by_a_bar(run: Shell) -> None:
    with Site() as site:
        site.write("/", links=["/page"])
        site.write("/page")
        start, tag = f"startUrl={site.url('/')}", f"follow-{uuid.uuid4().hex[:12]}"
        connect = ("connect", "web-crawler", "--set", start, "--tag", tag, "--follow")
        code, shown = at_a_terminal(run, connect, b"")

    assert code == 0, shown
    assert "searchable 2/2" in shown  # of the bar
    lines = [line.strip() for line in shown.splitlines()]
    assert any(line.endswith("completed: 2 added") for line in lines), lines
    assert lines[-1].endswith("2 of 2 documents are searchable")


def progress(**given: object) -> AddProgress:
    plain = dict.fromkeys(
        ("total", "handled", "refused", "closed", "queued", "awaited", "searchable", "failed"), 0
    )
    more = {"verb": "searchable", "stages": dict.fromkeys(Stage, 0), "reading": None}
    return AddProgress(**{**plain, **more, **given})  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("given", "done", "total"),
    [
        # Ten to send, nothing handled.
        ({"total": 10}, 0, 10),
        # Four unchanged, two of four awaited ones searchable, two still to send.
        ({"total": 10, "handled": 8, "closed": 4, "awaited": 4, "searchable": 2}, 6, 10),
        # An archive was one of ten, and has three files.
        ({"total": 10, "handled": 10, "awaited": 13, "searchable": 13}, 13, 13),
    ],
)
def test_the_bar_counts_what_is_known_of(given: dict[str, int], done: int, total: int) -> None:
    shown = progress(**given).bar

    assert (shown.done, shown.total) == (done, total)


def test_what_failed_leaves_nothing_to_wait_for() -> None:
    shown = progress(total=5, handled=5, refused=1, closed=1, awaited=3, searchable=2, failed=1).bar

    assert (shown.done, shown.failed, shown.past, shown.total) == (3, 2, 5, 5)


def test_lines_count_what_is_refused_as_failed_as_the_bar_does() -> None:
    assert ("failed", "2") in _steps(progress(total=5, handled=2, refused=1, failed=1))


def test_the_rate_is_that_of_the_last_seconds() -> None:
    now = [0.0]
    pace = Pace(lambda: now[0])
    rates: list[float] = []
    for second in range(100):
        now[0] = float(second)
        rates.append(pace.rate(second * 10 if second < 50 else 500 + (second - 50)))

    assert rates[0] == 0.0
    assert rates[49] == pytest.approx(10.0)
    assert rates[99] == pytest.approx(1.0)
    assert rates[50 + int(WINDOW) // 2] == pytest.approx(5.5, abs=0.1)


@pytest.mark.parametrize(
    ("state", "rate", "said"),
    [
        (BarState("uploaded", 3, 9), 0.0, "uploaded 3/9"),
        (
            BarState("searchable", 79, 115, 2, "loop.pdf"),
            3.2,
            "searchable 79/115 · 2 failed · 3.2/s · 10 s left · reading loop.pdf",
        ),
        (BarState("searchable", 1, 100_000), 4.0, "searchable 1/100000 · 4.0/s · 6 h left"),
        (BarState("found", 12, None), 140.4, "found 12 · 140/s"),
        (
            BarState("x", 1, 2, 0, "a\x1b[31m\n" + "b" * 40),
            0.0,
            f"x 1/2 · reading a�[31m {'b' * 23}…",
        ),
    ],
)
def test_the_line_beside_the_bar(state: BarState, rate: float, said: str) -> None:
    assert words(state, rate) == said
