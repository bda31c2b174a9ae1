"""What a person is told who types something wrong, and what Tab offers before."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from recollect import connectors
from recollect.cli import doctor
from recollect.config import load, proxies_of_environment
from tests.conftest import Service
from tests.e2e.shell import Shell, Starter


@pytest.fixture
def run(starter: Starter, service: Service, tmp_path: Path) -> Shell:
    settings = {"RECOLLECT_URL": service.url, "RECOLLECT_API_KEY": service.key}
    return Shell(starter, tmp_path, settings)


@pytest.mark.parametrize(
    "arguments",
    [
        ("add", ""),
        ("add", "a.txt", ""),
        ("show", ""),
        ("edit", "", "--title", ""),
        ("rm", "a", ""),
        ("disconnect", "", "--yes"),
        ("webhooks", "rm", ""),
        ("search", ""),
        ("backup", ""),
        ("restore", ""),
        ("export", ""),
        ("import", ""),
        ("serve", "--data-dir", ""),
    ],
)
def test_an_empty_argument_is_refused_before_anything_is_done(
    run: Shell, arguments: tuple[str, ...]
) -> None:
    """`recollect add "$FILE"` without the variable took in the whole working folder."""
    (run.folder / "a.txt").write_text("A heron.")
    ended = run(*arguments)

    assert (ended.code, ended.out) == (2, "")
    assert "is empty" in ended.err


# --- usage -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("list", "--tag", "not a tag"), "error: --tag"),
        (("quickstart", "--tag", "not a tag"), "error: --tag: 1 to 100 characters"),
        (("search", "x", "--as-of", "yesterday"), "error: --as-of: "),
        (("webhooks", "add", "https://a.example", "--event", "x"), "error: --event: "),
        (("add", "-", "--tag", "not a tag"), "error: --tag"),
        (("search", "x", "--filter", '{"key": "a"}'), "error: --filter"),
        (("list", "--status", "dome"), "error: status: "),
        (("connect", "nosuch"), "error: provider: there is no 'nosuch'; there are folder, github"),
        (("status", "--url", "not-a-url"), "error: --url not-a-url: give it as http://HOST:PORT\n"),
        (
            ("status", "--url", "http://host/#console"),
            "error: --url http://host/#console: give it as http://HOST:PORT\n",
        ),
        (
            ("status", "--url", "ftp://host"),
            "error: --url ftp://host: give it as http://HOST:PORT\n",
        ),
        (("list", "--key", "schlüssel"), "error: this is not an API key; "),
        (("search", "caf\udce9"), "error: caf�: not UTF-8"),
        (("show", "caf\udce9"), "error: caf�: not UTF-8"),
        (
            ("connect", "web-crawler", "--set", "startUrl=http://10.0.0.1/"),
            "error: metadata.startUrl: target is not a public address;"
            " RECOLLECT_ALLOW_NETWORKS allows networks of your own\n",
        ),
    ],
)
def test_wrong_usage_ends_with_2_and_says_what_to_change(
    run: Shell, arguments: tuple[str, ...], told: str
) -> None:
    ended = run(*arguments)

    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(told), ended.err
    assert len(ended.err.splitlines()) == 1
    assert "Invalid request" not in ended.err


def test_https_to_a_port_without_tls_is_told_apart_from_no_service(run: Shell) -> None:
    address = run.settings["RECOLLECT_URL"].replace("http:", "https:")
    ended = run("status", "--url", address)

    assert ended.code == 1
    assert ended.err == (
        f"error: {address}: what answers there does not speak TLS;"
        f" without TLS its address is {run.settings['RECOLLECT_URL']}\n"
    )


def test_a_provider_tells_all_keys_that_it_lacks(run: Shell) -> None:
    ended = run("connect", "s3", "--set", "bucket=letters")
    shown = run("connect", "--help").out

    assert ended.code == 2
    assert ended.err.splitlines() == [
        "error: s3 needs to know more:",
        "  --set region=…  Region, required. Such as eu-central-1; auto for Cloudflare R2; others"
        " often us-east-1.",
        "  --set accessKeyId=…  Access key id, required",
        "  --set secretAccessKey=…  Secret access key, required",
    ]
    for word, connector in connectors.all().items():
        for field in connector.guide.fields:
            assert [word, field.name] in [line.split()[:2] for line in shown.splitlines()]


def test_a_key_that_a_provider_nearly_knows_is_named_with_the_one_it_knows(run: Shell) -> None:
    tag = f"near-{uuid.uuid4().hex[:12]}"
    given = ("startUrl=http://127.0.0.1:9/", "excludePattern=*/drafts/*", "team=red", "limt=3")
    ended = run(
        *("connect", "web-crawler", "--tag", tag),
        *(part for pair in given for part in ("--set", pair)),
    )

    assert ended.code == 0, ended.err
    assert ended.err == (
        "web-crawler knows no excludePattern; did you mean excludePatterns? It is kept, and does"
        " nothing\n"
        "web-crawler knows no limt; did you mean --limit? It is kept, and does nothing\n"
    )
    run("disconnect", ended.out.split()[1], "--yes")


# --- completion --------------------------------------------------------------------------------


def offered(shell: Shell, line: str, **settings: str) -> set[str]:
    words = line.split(" ")
    asking = Shell(shell.starter, shell.folder, {**shell.settings, **settings})
    ended = asking(
        _RECOLLECT_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(words) - 1)
    )
    assert ended.err == ""
    return set(ended.out.split())


def test_tab_knows_tags_ids_providers_and_statuses(run: Shell) -> None:
    tag = f"tab-{uuid.uuid4().hex[:12]}"
    added = run("add", "-", "--id", f"note-{tag}", "--tag", tag, "--json", input=b"Bees.").json
    id = added["sources"][0]["id"]
    hook = run("webhooks", "add", "https://app.example.org/hook", "--json").json["id"]

    for command in ("search x", "list", "add x", "rm", "connect s3", "connections"):
        assert offered(run, f"recollect {command} --tag {tag[:8]}") == {tag}
    for command in ("show", "rm", "retry"):
        assert offered(run, f"recollect {command} {id[:12]}") == {id}
    assert offered(run, f"recollect show note-{tag[:8]}") == {f"note-{tag}"}
    assert offered(run, "recollect list --status ") == {"queued", "processing", "done", "failed"}
    assert offered(run, "recollect list --status d") == {"done"}
    assert offered(run, "recollect connect g") == {"github", "gmail", "google-drive"}
    assert hook in offered(run, "recollect webhooks rm ")
    assert hook in offered(run, "recollect endpoints rm ")
    assert run("webhooks", "rm", hook).code == 0


@contextmanager
def silent() -> Generator[str]:
    """An address that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        held: list[socket.socket] = []

        def take() -> None:
            while True:
                try:
                    held.append(listening.accept()[0])
                except OSError:
                    return

        threading.Thread(target=take, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        for one in held:
            one.close()


def test_tab_is_silent_where_nothing_answers(run: Shell) -> None:
    line = "recollect search x --tag "
    with silent() as mute:
        for url in (mute, "http://127.0.0.1:9", "nonsense", run.settings["RECOLLECT_URL"]):
            settings = {"RECOLLECT_URL": url, "RECOLLECT_API_KEY": "sm_wrong"}
            assert offered(run, line, **settings) == set()
    # A setting that is wrong is for `doctor` to tell.
    assert offered(run, line, RECOLLECT_PORT="many") == set()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_what_serves_an_assistant(number: signal.Signals):
    """Whether or not the assistant closes its side, too."""
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-03-26",
            "capabilities": {},
            "clientInfo": {"name": "a", "version": "1"},
        },
    }
    with subprocess.Popen(
        [sys.executable, "-m", "recollect", "mcp"],
        env={**os.environ, "RECOLLECT_API_KEY": "sm_any"},  # noqa: TID251 # PATH and the like
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # A shell's background jobs, and what they start, are deaf to Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as served:
        assert served.stdin is not None
        assert served.stdout is not None
        try:
            served.stdin.write(json.dumps(hello).encode() + b"\n")
            served.stdin.flush()
            assert b"serverInfo" in served.stdout.readline()
            served.send_signal(number)

            assert served.wait(60) == -number
        finally:
            served.kill()


LOADING = """
import signal, sys

class Hurried:
    def find_spec(self, name, path, target=None):
        if name == "typer":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Hurried())
import recollect.__main__
"""


def test_ctrl_c_while_the_libraries_load_leaves_no_trace():
    ended = subprocess.run(
        [sys.executable, "-c", LOADING],
        capture_output=True,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )

    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, b"")


def test_a_terminal_without_unicode_is_shown_what_it_lacks_by_numbers(run: Shell) -> None:
    tag = uuid.uuid4().hex
    run("add", "-", "--tag", tag, input="Störche – nisten 🐦".encode())

    def printed(*arguments: str) -> str:
        ended = subprocess.run(
            run.command(*arguments),
            env=run.environment(PYTHONIOENCODING="iso-8859-1"),
            capture_output=True,
            check=False,
        )
        assert (ended.returncode, ended.stderr) == (0, b"")
        return ended.stdout.decode("iso-8859-1")

    assert r"a website, a drive, mails \u2026" in printed("--help")
    assert r"\u2013 nisten \U0001f426" in printed("list", "--tag", tag)
    assert "Störche" in printed("list", "--tag", tag)
    [found] = json.loads(printed("list", "--tag", tag, "--json"))["memories"]
    assert found["title"] == "Störche – nisten 🐦"


@pytest.mark.parametrize(
    ("mounted", "name", "state"),
    [
        ("data/postgres", "disk of the database", "FAIL"),
        ("files", "disk of files", "FAIL"),
        ("tmp", "temporary files", "warn"),
    ],
)
def test_the_doctor_tells_which_folder_has_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mounted: str, name: str, state: str
) -> None:
    """Each may be a disk of its own."""
    for folder in ("data/postgres", "files", "tmp"):
        (tmp_path / folder).mkdir(parents=True)
    full = tmp_path / mounted
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(
        shutil, "disk_usage", lambda of: SimpleNamespace(free=0 if of == full else 1 << 40)
    )

    found = doctor._disk(load(data_dir=tmp_path / "data", blob_url=f"file://{tmp_path}/files"))

    assert [(one.name, one.state) for one in found if one.state != "ok"] == [(name, state)]


def test_the_doctor_tells_of_the_forward_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in proxies_of_environment():
        monkeypatch.delenv(name)
    assert doctor._way_out(load(data_dir=tmp_path)) == []

    monkeypatch.setenv("https_proxy", "http://me:pass-word@proxy")
    [unused] = doctor._way_out(load(data_dir=tmp_path))
    monkeypatch.setenv("RECOLLECT_PROXY", "http://me:pass-word@proxy:3128")
    [used] = doctor._way_out(load(data_dir=tmp_path))

    assert (unused.state, used.state) == ("off", "ok")
    assert unused.details.startswith("https_proxy is set and not used")
    assert used.details.endswith("through proxy:3128")


def test_the_doctor_names_secrets_that_others_may_read(tmp_path: Path) -> None:
    (tmp_path / "postgres").mkdir()
    for name, mode in (("secret-key", 0o640), ("api-key", 0o600), ("postgres/password", 0o666)):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(mode)

    told = [one.details for one in doctor._secrets(load(data_dir=tmp_path))]

    assert [one.rpartition("/")[2] for one in told] == ["secret-key", "password"]
    assert all(one.startswith(f"{tmp_path}/") for one in told)


STRANGER = """
import os, sys
from recollect.cli import _database, doctor, main, trust

os.setgroups([])
os.setgid(54321)
os.setuid(54321)
main(sys.argv[1:])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
@pytest.mark.parametrize("command", ["doctor", "verify"])
def test_a_user_who_may_not_look_into_the_data_folder_is_told_so(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The unit of systemd closes it to all but its own user; commands ended with a traceback."""
    data = tmp_path / "data"
    (data / "postgres").mkdir(parents=True)
    data.chmod(0o700)
    monkeypatch.setenv("RECOLLECT_DATA_DIR", str(data))
    done = subprocess.run(
        [sys.executable, "-c", STRANGER, command], capture_output=True, text=True, check=False
    )

    assert f"{data}/" in done.stdout + done.stderr
    assert "is closed to this user (Permission denied)" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == 1
