"""The command line as a person uses it: real processes against the real service."""

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import uuid
import zipfile
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from docx import Document as WordDocument
from hypothesis import given
from hypothesis import strategies as st
from reportlab.pdfgen.canvas import Canvas
from typer.testing import CliRunner, Result

from recollect.app import App
from recollect.cli import _add_run, _sync_progress, client
from recollect.cli import app as commands
from recollect.cli._add_run import SENDERS, DocumentWatch
from recollect.cli._add_sources import AddReport, identity, walk
from recollect.cli.client import Service as Client
from recollect.cli.look import PASSAGE, excerpt, matches
from recollect.cli.output import harmless
from recollect.errors import RequestError, SetupError, Transient
from recollect.model import Tenant
from recollect.ops import readiness
from tests.conftest import Service, eventually, free_port
from tests.console.test_console_archives import ran
from tests.console.test_console_connections import make
from tests.e2e.shell import Shell, Starter
from tests.fakes.proxy import Proxy

FILES, ARRIVING = 60, 20
UNREADABLE = b"%PDF-1.7\nthis goes on as no PDF does"
TASKS = """# Cancelling tasks

Tasks can easily and safely be cancelled. When a task is cancelled, an error is raised in it at
the next opportunity.

# Sleeping

A coroutine that sleeps lets the others go on.
"""


@pytest.fixture
def run(starter: Starter, service: Service, tmp_path: Path) -> Shell:
    settings = {"RECOLLECT_URL": service.url, "RECOLLECT_API_KEY": service.key}
    return Shell(starter, tmp_path, settings)


@pytest.fixture
def tag() -> str:
    return f"cli-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def listed(service: Service, tag: str) -> Callable[[], dict[str, dict[str, Any]]]:
    """The test's documents by filepath, as the API lists them."""

    def ask() -> dict[str, dict[str, Any]]:
        with service.client() as http:
            answer = http.post("/v3/documents/list", json={"containerTags": [tag], "limit": 1100})
        return {document["filepath"]: document for document in answer.json()["memories"]}

    return ask


def mixed(folder: Path) -> Path:
    """A folder with one of each readable kind, and with what is passed over."""
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("hidden")
    (folder / "tasks.md").write_text(TASKS)
    (folder / "deep" / "colours.csv").write_text("thing,colour\nsky,blue\ngrass,green\n")
    (folder / "deep" / "page.html").write_text("<title>Bees</title><p>Bees dance in the hive.</p>")
    canvas = Canvas(str(folder / "deep" / "er" / "whales.pdf"))
    canvas.drawString(72, 720, "Whales sing below the surface.")
    canvas.save()
    word = WordDocument()
    word.add_paragraph("Owls turn their heads.")
    word.save(str(folder / "owls.docx"))
    (folder / "empty.txt").touch()
    (folder / "noise.bin").write_bytes(bytes(range(256)) * 4)
    (folder / "deep" / "up").symlink_to(folder)
    return folder


# --- add ---------------------------------------------------------------------------------------


def test_a_folder_becomes_searchable_and_unchanged_files_are_not_sent_again(
    run: Shell, tag: str, listed: Callable[[], dict[str, dict[str, Any]]]
) -> None:
    folder = mixed(run.folder / "zoo")
    first = run("add", "zoo", "--tag", tag, "--json")
    before = listed()
    second = run("add", str(folder), "--tag", tag, "--json")
    after = listed()
    (folder / "tasks.md").write_text(TASKS.replace("Sleeping", "Napping"))
    third = run("add", ".", "--tag", tag, cwd=folder)

    assert first.code == second.code == third.code == 0, first.err
    assert {name: first.json[name] for name in ("added", "updated", "unchanged", "failed")} == {
        "added": 5,
        "updated": 0,
        "unchanged": 0,
        "failed": 0,
    }
    assert {s["source"]: s["reason"] for s in first.json["sources"] if "reason" in s} == {
        "zoo/.git": "hidden",
        "zoo/empty.txt": "empty",
        "zoo/noise.bin": "kind not supported",
        "zoo/deep/up": "link to a folder seen before",
    }
    assert set(before) == {
        "zoo/tasks.md",
        "zoo/owls.docx",
        "zoo/deep/colours.csv",
        "zoo/deep/page.html",
        "zoo/deep/er/whales.pdf",
    }
    assert {document["status"] for document in before.values()} == {"done"}
    # An upload, even of the same bytes, would have been a change to its labels.
    assert (second.json["unchanged"], after) == (5, before)
    assert "0 added, 1 updated, 4 unchanged, 4 skipped, 0 failed" in third.out
    assert listed()["zoo/tasks.md"]["id"] == before["zoo/tasks.md"]["id"]
    assert "searchable 1/1" in third.err


def test_a_deleted_document_is_added_again(run: Shell, tag: str) -> None:
    (run.folder / "a.md").write_text("Ants carry leaves.")
    id = run("add", "a.md", "--tag", tag, "--json").json["sources"][0]["id"]
    gone = run("rm", id)
    again = run("add", "a.md", "--tag", tag, "--json").json

    assert (gone.code, gone.out) == (0, "deleted 1\n")
    assert (again["added"], again["unchanged"]) == (1, 0)
    assert again["sources"][0]["id"] != id


def test_a_file_keeps_its_document_however_it_is_named(
    run: Shell, tag: str, listed: Callable[[], dict[str, dict[str, Any]]]
) -> None:
    (run.folder / "one" / "docs").mkdir(parents=True)
    (run.folder / "one" / "docs" / "a.md").write_text("Ants carry leaves.")
    (run.folder / "two" / "docs").mkdir(parents=True)
    (run.folder / "two" / "docs" / "a.md").write_text("Quite another file of that name.")
    first = run("add", "one/docs", "--tag", tag, "--json").json
    by_itself = run("add", "a.md", "--tag", tag, "--json", cwd=run.folder / "one" / "docs").json
    other = run("add", "two/docs", "--tag", tag, "--json").json
    with_metadata = run("add", "one/docs", "--tag", tag, "--meta", "year=2026", "--json").json

    assert (by_itself["unchanged"], by_itself["added"]) == (1, 0)
    assert by_itself["sources"][0]["id"] == first["sources"][0]["id"]
    assert other["added"] == 1
    assert other["sources"][0]["id"] != first["sources"][0]["id"]
    assert with_metadata["updated"] == 1
    assert with_metadata["sources"][0]["id"] == first["sources"][0]["id"]


def test_what_fails_is_told_with_its_reason(run: Shell, tag: str) -> None:
    (run.folder / "box").mkdir()
    (run.folder / "box" / "broken.pdf").write_bytes(UNREADABLE)
    (run.folder / "box" / "fine.txt").write_text("Foxes dig.")
    ended = run("add", "box", "http://10.0.0.1/secret", "--tag", tag)
    named = run("add", "box/broken.pdf", "--tag", tag, "--json")

    assert ended.code == named.code == 1
    failed = [line for line in ended.out.splitlines() if line.startswith("failed")]
    assert len(failed) == 2
    assert "box/broken.pdf" in "".join(failed)
    assert "unreadable_content" in "".join(failed)
    assert any("10.0.0.1" in line and "not a public address" in line for line in failed)
    assert "1 added, 0 updated, 0 unchanged, 0 skipped, 2 failed" in ended.out
    assert named.json["sources"][0]["reason"]


def test_what_was_not_read_of_a_file_is_told_once_for_all_that_lack_it(run: Shell, tag: str):
    for name in ("one", "two"):
        page = f"<p>The heron is number {name}.</p><p hidden>Reeds.</p>"
        (run.folder / f"{name}.html").write_text(page)
    (run.folder / "plain.txt").write_text("Bees dance in the hive.")
    added = run("add", "one.html", "two.html", "plain.txt", "--tag", tag)

    [told] = [line for line in added.out.splitlines() if line.startswith("warning")]
    names, _, warning = told.removeprefix("warning").partition(": ")
    assert {name.strip() for name in names.split(",")} == {"one.html", "two.html"}
    assert warning == "Hidden text was left out (6 characters)."
    listed = run("list", "--tag", tag, "--json").json["memories"]
    assert sorted(one.get("warnings", []) for one in listed) == [
        [],
        *[["Hidden text was left out (6 characters)."]] * 2,
    ]
    assert run("list", "--tag", tag).out.count("done (1 warning)") == 2


def test_the_files_of_an_archive_are_waited_for_and_counted(run: Shell, tag: str) -> None:
    with zipfile.ZipFile(run.folder / "box.zip", "w") as archive:
        archive.writestr("tasks.md", TASKS)
        archive.writestr("deep/owls.txt", "Owls turn their heads.")
        archive.writestr("broken.pdf", UNREADABLE)
        archive.writestr("nothing.txt", "")
    (run.folder / "plain.txt").write_text("Bees dance in the hive.")
    added = run("add", "box.zip", "plain.txt", "--tag", tag)

    assert added.code == 1
    assert "2 added, 0 updated, 0 unchanged, 0 skipped, 0 failed" in added.out
    assert "files in these: 2 searchable, 1 failed" in added.out
    assert "warning    box.zip: 1 file in it was not read, because it is empty." in added.out
    [failed] = [line for line in added.out.splitlines() if line.startswith("failed")]
    assert failed.split()[1] == "box.zip/broken.pdf:"
    assert "(unreadable_content)" in failed
    assert "searchable 4/5, failed 1" in added.err
    assert "not searchable yet" not in added.out
    [hit] = run("search", "owls", "--tag", tag, "--limit", "1", "--json").json["results"]
    assert hit["title"] == "owls.txt"

    again = run("add", "box.zip", "--tag", tag, "--json")

    assert again.code == 1
    assert again.json["unchanged"] == 1
    assert again.json["members"] == {"done": 2, "failed": 1, "unfinished": 0}
    [box] = again.json["sources"]
    assert {one["source"]: one["status"] for one in box["members"]} == {
        "box.zip/tasks.md": "done",
        "box.zip/deep/owls.txt": "done",
        "box.zip/broken.pdf": "failed",
    }
    assert len({one["id"] for one in box["members"]} | {box["id"]}) == 4
    assert box["warnings"] == ["1 file in it was not read, because it is empty."]

    with zipfile.ZipFile(run.folder / "box.zip", "w") as archive:
        archive.writestr("tasks.md", TASKS)
    mended = run("add", "box.zip", "--tag", tag, "--json")

    assert mended.code == 0
    assert mended.json["updated"] == 1
    assert mended.json["members"] == {"done": 1, "failed": 0, "unfinished": 0}


def test_standard_input_is_text_or_a_file(run: Shell, service: Service, tag: str) -> None:
    word = run.folder / "owls.docx"
    document = WordDocument()
    document.add_paragraph("Owls turn their heads.")
    document.save(str(word))
    meta = ("--meta", "n=3", "--meta", "ok=true", "--meta", "who=Ada L.")
    chat = ("--id", f"chat-{tag}", "--tag", tag, "--json")
    first = run("add", "-", *chat, *meta, input=b"user: are bees kind?\n")
    grown = run("add", "-", *chat, input="user: are bees kind?\nbot: très.\n".encode())
    binary = run("add", "-", "--tag", tag, "--json", input=word.read_bytes())
    with service.client() as http:
        shown = http.get(f"/v3/documents/chat-{tag}").json()
        owls = http.get(f"/v3/documents/{binary.json['sources'][0]['id']}").json()

    assert (first.json["added"], grown.json["updated"], binary.json["added"]) == (1, 1, 1)
    assert shown["content"].splitlines() == ["user: are bees kind?", "bot: très."]
    assert shown["metadata"] == {"n": 3, "ok": True, "who": "Ada L."}
    assert "Owls turn their heads." in owls["content"]


def test_an_interrupted_add_goes_on_where_it_was(
    run: Shell, service: Service, tag: str, listed: Callable[[], dict[str, dict[str, Any]]]
) -> None:
    (run.folder / "many").mkdir()
    for number in range(FILES):
        (run.folder / "many" / f"{number}.txt").write_text(f"Note {number} tells of a heron.")
    arguments = ("add", "many", "--tag", tag, "--json")
    with Proxy(service.url) as proxy:
        uploads = "POST /v3/documents/file"
        interrupted = threading.Event()
        # Some arrive; each sender has one under way when it happens; none after that arrives.
        proxy.on(uploads, times=ARRIVING)
        proxy.on(uploads, times=SENDERS, hold=interrupted)
        proxy.on(uploads, times=None, reset=True)
        with subprocess.Popen(
            run.command(*arguments),
            cwd=run.folder,
            env=run.environment(RECOLLECT_URL=proxy.url),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # A shell's background jobs, and what they start, are deaf to Ctrl-C.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ) as process:
            assert process.stderr is not None
            told = f"uploading {ARRIVING}/{FILES},".encode()
            while told not in (line := process.stderr.readline()):
                assert line.startswith(b"uploading"), line
            proxy.wait_for(uploads, ARRIVING + SENDERS)
            process.send_signal(signal.SIGINT)
            interrupted.set()
            out, err = process.communicate(timeout=100)
        stopped = json.loads(out)
        arrived = len(listed())
        proxy.behave()
        went_on = run(*arguments, RECOLLECT_URL=proxy.url).json

    assert process.returncode == 130
    assert stopped["added"] == arrived == ARRIVING + SENDERS
    assert (stopped["added"] + stopped["notReached"], stopped["failed"]) == (FILES, 0)
    assert 0 < stopped["notReached"] < FILES, err
    assert went_on["unchanged"] >= stopped["added"]
    assert went_on["added"] + went_on["updated"] + went_on["unchanged"] == FILES
    assert {document["status"] for document in listed().values()} == {"done"}
    assert len(listed()) == FILES


# --- looking -----------------------------------------------------------------------------------


def test_search_says_what_stands_where(run: Shell, tag: str) -> None:
    (run.folder / "guide.md").write_text(
        "".join(f"Line {n} of no use.\n" for n in range(150)) + TASKS
    )
    assert run("add", "guide.md", "--tag", tag).code == 0
    found = run("search", "how is a task cancelled", "--tag", tag, "--json").json
    text = run("show", found["results"][0]["documentId"], "--text").out
    shown = run("search", "how is a task cancelled", "--tag", tag, "--limit", "1")
    elsewhere = run("search", "task", "--tag", f"{tag}-other")

    best = found["results"][0]["chunks"][0]
    assert text[best["start"] : best["end"]] == best["content"]
    assert "cancelled" in best["content"]
    title, passage, place = shown.out.splitlines()[:3]
    assert title.startswith("1. ")
    assert "can easily and safely be cancelled" in passage
    assert place.strip().startswith(f"guide.md · chars {best['start']}")
    none = f"no document has the tag {tag}-other"
    assert (elsewhere.code, elsewhere.out, elsewhere.err) == (0, "", f"nothing found; {none}\n")
    assert run("ask", "task", "--tag", f"{tag}-other").err == f"Nothing was found; {none}.\n"
    assert run("search", "task", "--tag", f"{tag}-other:*").err == "nothing found\n"
    spoken = run("search", "how", "is", "a", "task", "cancelled", "--tag", tag, "--json").json
    assert spoken["results"] == found["results"]
    weak = run("search", "zxqvbn", "--tag", tag)
    assert weak.out.splitlines()[0].endswith(" weak")
    assert weak.err == "Only weak matches: none of these is likely to answer the query.\n"
    assert weak.code == 0
    assert weak.out.startswith("1. ")


def test_nothing_asks_before_it_has_looked(run: Shell, tag: str) -> None:
    gone = run("disconnect", "nosuch")
    none = run("rm", "--tag", tag, "--all")

    assert gone.code == 1
    assert "Connection not found" in gone.err
    assert (none.code, none.out) == (0, "deleted 0\n")


def test_disconnect_names_what_it_would_delete(run: Shell, tag: str) -> None:
    keys = ("bucket=papers", "region=eu-central-1", "accessKeyId=AKIA", "secretAccessKey=secret")
    options = [word for pair in keys for word in ("--set", pair)]
    made = run("connect", "s3", "--tag", tag, "--json", *options).json

    asked = run("disconnect", made["id"])

    assert asked.code == 2
    assert "Delete the s3 connection of papers, and all documents that it brought" in asked.err
    assert run("disconnect", made["id"], "--yes").code == 0


def test_a_verdict_that_nothing_has_is_told(run: Shell, tag: str) -> None:
    keys = ("bucket=papers", "region=eu-central-1", "accessKeyId=AKIA", "secretAccessKey=secret")
    options = [word for pair in keys for word in ("--set", pair)]
    made = run("connect", "s3", "--tag", tag, "--json", *options).json

    told = run("seen", made["id"], "--verdict", "robot")
    run("disconnect", made["id"], "--yes")

    assert (told.code, told.out) == (0, "")
    assert told.err == "nothing has the verdict robot\nnothing was seen yet\n"


def test_what_is_connected_a_second_time_is_told(run: Shell, tag: str, nowhere: str) -> None:
    connect = ("connect", "web-crawler", "--set", f"startUrl={nowhere}/docs", "--tag", tag)
    first, second = run(*connect), run(*connect)
    elsewhere = run(*connect[:-1], f"{tag}-too")
    ids = [made.out.split()[1] for made in (first, second, elsewhere)]
    for id in ids:
        run("disconnect", id, "--yes")

    assert f"Connection {ids[0]} brings the same" in second.err
    assert f"`recollect disconnect {ids[1]}` undoes this one" in second.err
    assert "brings the same" not in first.err + elsewhere.err


def test_ask_shows_what_was_found_and_what_to_set(run: Shell, tag: str) -> None:
    meeting = f"The team meets on Mondays at nine in the blue room. {'It talks. ' * 8}".strip()
    (run.folder / "meeting.md").write_text(meeting)
    run("add", "meeting.md", "--tag", tag)
    told = run("ask", "when", "does", "the", "team", "meet", "on", "Mondays", "--tag", tag)
    heading, passage = told.out.splitlines()
    assert heading.startswith("[1] meeting.md  id ")
    assert passage == f"    {meeting}"
    assert "RECOLLECT_LLM_URL" in told.err
    as_json = json.loads(run("ask", "--json", "zxqvbn", "--tag", tag).out)
    assert as_json["state"] == "nothing_found"
    assert "no model was asked" in run("ask", "zxqvbn", "--tag", tag).err
    assert run("ask", " ").code == 2


def test_evaluate_says_where_the_expected_document_stands(run: Shell, tag: str) -> None:
    (run.folder / "meeting.md").write_text("The team meets on Mondays at nine in the blue room.")
    run("add", "meeting.md", "--tag", tag)
    lines = '{"question": "When does the team meet?", "words": "blue room"}\n'
    (run.folder / "questions.jsonl").write_text(lines)
    none = run("evaluate", tag)
    assert (none.code, none.out) == (2, "")
    assert none.err.startswith(f"error: {tag} has no test questions; add some with --import")
    assert f"questions added to {tag}: 1" in run("evaluate", tag, "--import", "questions.jsonl").err
    told = run("evaluate", tag)
    assert told.code == 0
    assert "When does the team meet?" in told.out
    assert "1.000" in told.out
    as_json = json.loads(run("evaluate", tag, "--json").out)
    assert (as_json["run"]["hitAt1"], as_json["results"][0]["rankBefore"]) == (1.0, 1)
    assert json.loads(run("evaluate", tag, "--export").out) == json.loads(lines)
    assert run("evaluate", tag, "--export", "--import", "questions.jsonl").code == 2
    added = run("add", "meeting.md", "--tag", f"{tag}-too", "--json").json
    elsewhere = added["sources"][0]["id"]
    wanted = [{"question": "Who comes?", "document": one} for one in ("nosuch", elsewhere)]
    (run.folder / "questions.jsonl").write_text("\n".join(map(json.dumps, wanted)))
    run("evaluate", tag, "--import", "questions.jsonl")
    assert set(run("evaluate", tag).err.splitlines()) == {
        "a question expects the document nosuch, which does not exist",
        f"a question expects the document {elsewhere}, which does not have the tag {tag}",
    }
    (run.folder / "questions.jsonl").write_text("{")
    false = run("evaluate", tag, "--import", "questions.jsonl")
    assert false.code != 0
    assert "line 1" in false.err


def test_open_opens_the_console_signed_in(run: Shell, service: Service, tmp_path: Path) -> None:
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    browser.chmod(0o700)
    told = run("open", BROWSER=str(browser))
    assert "Opened" in told.err
    address = opened.read_text().strip()
    assert address.startswith(f"{service.url}/console/login?once=")
    assert httpx.get(address, trust_env=False).headers["location"] == "/console"
    assert "once=" not in told.out + told.err
    assert json.loads(run("open", "--json").out)["expiresIn"] == 120


def test_a_setting_that_is_misspelt_is_named(
    starter: Starter, tmp_path: Path, new_database: Callable[[], str]
) -> None:
    given = {"LLM_URI": "x", "AUDIT_RETENTION": "P3D", "EMBEDDER": "none"}
    given |= {"DATABASE_URL": new_database(), "DATA_DIR": str(tmp_path)}
    run = Shell(starter, tmp_path, {f"RECOLLECT_{name}": value for name, value in given.items()})
    ended = run("doctor")

    assert ended.code == 0, ended.out
    version, verdict, first, *_ = ended.out.splitlines()
    assert version.startswith("Recollect ")
    assert verdict.startswith("everything works (")
    assert first.startswith("warn settings: There is no setting RECOLLECT_LLM_URI; did you mean")
    assert "RECOLLECT_AUDIT_RETENTION  P3D" in ended.out
    assert "RECOLLECT_WORKERS" not in ended.out
    shown = {line.split()[0]: line for line in run("doctor", "--all").out.splitlines() if line}
    assert "for a new one multilingual-e5-small-q4 " in shown["RECOLLECT_EMBEDDER_MODEL"]
    assert shown["RECOLLECT_LLM_URL"].split()[1:] == ["none", "default"]
    assert run("--version").out.startswith("recollect ")


@pytest.mark.parametrize("command", ["serve", "api"])
def test_a_port_that_is_taken_is_named(run: Shell, nowhere: str, command: str) -> None:
    port = nowhere.rpartition(":")[2]
    ended = run(command, "--port", port, RECOLLECT_DATA_DIR=str(run.folder))

    assert ended.code == 1
    assert f"cannot listen on 127.0.0.1:{port} (Address already in use); choose" in ended.err


@pytest.mark.parametrize("command", ["serve", "api", "work"])
@pytest.mark.parametrize(
    ("setting", "value", "told"),
    [
        ("RECOLLECT_PUBSUB_SUBSCRIPTION", "topics/gmail", "must match"),
        ("RECOLLECT_PROXY", "socks5://proxy", "must be http://host:port"),
    ],
)
def test_what_is_wrong_in_the_settings_of_a_part_ends_the_command(
    run: Shell, new_database: Callable[[], str], command: str, setting: str, value: str, told: str
) -> None:
    wrong: dict[str, Any] = {setting: value}
    ended = run(
        command,
        RECOLLECT_PORT=str(free_port()),
        RECOLLECT_DATA_DIR=str(run.folder),
        RECOLLECT_DATABASE_URL=new_database(),
        **wrong,
    )

    assert ended.code == 1
    assert f"error: {setting}: {told}" in ended.err


def test_search_marks_what_matched_on_a_terminal(run: Shell, tag: str) -> None:
    run("add", "-", "--tag", tag, input=TASKS.encode())
    controller, terminal = pty.openpty()
    with subprocess.Popen(
        run.command("search", "cancel", "--tag", tag),
        cwd=run.folder,
        env=run.environment(TERM="xterm", COLUMNS="200"),
        stdin=subprocess.DEVNULL,
        stdout=terminal,
    ) as process:
        os.close(terminal)
        shown = read_all(controller).decode()
        assert process.wait(100) == 0

    assert "\x1b[1mcancelled\x1b[0m" in shown


def read_all(controller: int) -> bytes:
    """What is shown on a terminal until its last process has closed it."""
    shown = b""
    with os.fdopen(controller, "rb", buffering=0) as screen, suppress(OSError):
        while some := screen.read(4096):
            shown += some
    return shown


def test_list_show_retry_rm_status(run: Shell, service: Service, tag: str) -> None:
    (run.folder / "broken.pdf").write_bytes(UNREADABLE)
    run("add", "broken.pdf", "--tag", tag)
    run("add", "-", "--tag", tag, input=b"Foxes dig.")
    failed = run("list", "--tag", tag, "--status", "failed", "--json").json["memories"]
    id = failed[0]["id"]

    assert [document["filepath"] for document in failed] == ["broken.pdf"]
    assert len(run("list", "--tag", tag).out.splitlines()) == 3
    shown = run("show", id).out
    assert "unreadable_content" in shown
    assert "attempts  1" in shown

    status = run("status", "--json").json
    assert status["documents"]["failed"] >= 1
    assert status["failures"]["unreadable_content"] >= 1

    retried = run("retry", id, "no-such-document", "--json")
    assert retried.code == 1
    assert retried.json == {"queued": [id], "unknown": ["no-such-document"]}
    with service.client() as http:
        eventually(lambda: http.get(f"/v3/documents/{id}").json()["status"] == "failed")

    unasked = run("rm", "--tag", tag, "--all")
    assert unasked.code == 2
    assert "Delete all 2 documents" in unasked.err
    assert "--yes" in unasked.err
    assert run("rm", "--tag", tag, "--all", "--yes").out == "deleted 2\n"
    gone = run("rm", id)
    assert (gone.code, gone.out) == (1, "deleted 0\n")
    assert id in gone.err


def test_an_archive_and_its_files_lead_to_each_other(run: Shell, tag: str) -> None:
    with zipfile.ZipFile(run.folder / "fruit.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("pears.txt", "Pears hang in the orchard.")
        archive.writestr("sub/quinces.md", "Quinces are sour.")
    run("add", "fruit.zip", "--tag", tag)
    listed = run("list", "--tag", tag, "--json").json["memories"]
    [held] = [document["id"] for document in listed if "members" in document]
    files = run("list", "--archive", held, "--json").json["memories"]
    [quinces] = [one["id"] for one in files if one["archivePath"] == "sub/quinces.md"]

    assert len(files) == 2
    assert len(run("list", "--archive", held).out.splitlines()) == 3
    assert "files     2\n" in run("show", held).out
    assert f"archive   {held} (sub/quinces.md)\n" in run("show", quinces).out


def test_changes_tell_when_there_are_more(
    live_url: str, key: str, app: App, tenant: Tenant
) -> None:
    made = make(app, tenant)
    ran(app, made, [(f"document-{n}", "removed", None, None) for n in range(5)])

    def changes(*more: str) -> Result:
        at = ["--url", live_url, "--key", key]
        return CliRunner().invoke(commands, ["changes", made.id, "--limit", "2", *more, *at])

    assert "2 of 5; --page 2 for the next" in changes().output
    assert "4 of 5; --page 3 for the next" in changes("--page", "2").output
    assert changes("--page", "3").output.split()[-2:] == ["removed", "document-4"]
    assert "no page 4" in changes("--page", "4").output


# --- what goes wrong ---------------------------------------------------------------------------


def test_without_a_service_it_says_how_to_start_one(
    starter: Starter, nowhere: str, tmp_path: Path
) -> None:
    shell = Shell(starter, tmp_path, {"RECOLLECT_DATA_DIR": str(tmp_path)})
    ended = shell("search", "x", "--url", nowhere)

    assert ended.code == 1
    assert ended.err == f"error: no service at {nowhere}; start it with `recollect serve`\n"


def test_a_wrong_key_is_told_where_keys_come_from(run: Shell) -> None:
    ended = run("status", "--key", "sm_wrong")

    assert ended.code == 1
    assert "recollect keys create" in ended.err
    assert "--key" in ended.err


def test_the_key_of_the_first_boot_is_found(
    starter: Starter, service: Service, tmp_path: Path
) -> None:
    shell = Shell(starter, tmp_path, {"RECOLLECT_DATA_DIR": str(service.data_dir)})
    ended = shell("status", "--url", service.url, "--json")

    assert ended.code == 0
    assert set(ended.json["documents"]) == {"queued", "processing", "done", "failed"}


def test_what_the_service_refuses_is_one_line(run: Shell) -> None:
    ended = run("search", "x", "--filter", '{"key": "a"}')

    assert ended.code == 2
    assert ended.err.startswith("error: --filter")
    assert len(ended.err.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["add"],
        ["add", "no-such-file"],
        ["add", "-", "-"],
        ["add", ".", "--id", "x"],
        ["add", "-", "--meta", "novalue"],
        ["search", " "],
        ["search", "x", "--limit", "0"],
        ["search", "x", "--filter", "{"],
        ["rm"],
        ["rm", "--tag", "x"],
        ["retry"],
        ["retry", "x", "--failed"],
        ["nonsense"],
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: list[str]) -> None:
    ended = CliRunner().invoke(commands, arguments)

    assert ended.exit_code == 2, ended.output
    assert ended.stderr


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("serach", "'search'"),
        ("delete", "'rm'"),
        ("connectoins", "'connections'"),
        ("login", "'open'"),
        ("logs", "'audit'"),
        ("qqq", None),
    ],
)
def test_a_command_that_is_none_names_the_one_that_is_meant(asked: str, meant: str | None) -> None:
    ended = CliRunner().invoke(commands, [asked])

    assert ended.exit_code == 2
    said = " ".join(ended.stderr.replace("│", "").split())
    assert f"No such command '{asked}'." in said
    assert ("Did you mean" in said) == (meant is not None)
    assert meant is None or meant in said


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["keys", "create", "--scope", "wirte"], "'--scope': 'wirte' is not one of"),
        (["search", "x", "--limit", "1000"], "'--limit': must be at most 100"),
        (["list", "--page", "two"], "'--page': must be a whole number"),
    ],
)
def test_a_wrong_value_is_told_in_words_of_ours(arguments: list[str], told: str) -> None:
    ended = CliRunner().invoke(commands, arguments)

    assert ended.exit_code == 2
    assert f"Invalid value for {told}" in ended.stderr


@pytest.mark.parametrize(("level", "shown"), [("info", 1), ("warning", 1), ("debug", 4)])
def test_a_command_shows_of_its_log_what_went_wrong(level: str, shown: int) -> None:
    script = (
        "from recollect import log\n"
        "from recollect.cli._log import log_of_command\n"
        f"log_of_command({level!r})\n"
        "for one in ('debug', 'info', 'warning', 'error'):\n"
        "    getattr(log.get('x'), one)('it happened')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)

    assert done.stdout == b""
    assert done.stderr.count(b"it happened") == shown


# --- parts, in this process --------------------------------------------------------------------


def test_connections_say_what_the_last_sync_could_not_do(
    run: Shell, tag: str, nowhere: str
) -> None:
    made = run("connect", "web-crawler", "--set", f"startUrl={nowhere}/", "--tag", tag, "--follow")
    listed = run("connections", "--tag", tag)
    id = made.out.split()[1]
    run("disconnect", id, "--yes")

    assert made.err.splitlines()[-2].startswith("partial: ")
    assert listed.err.startswith(f"{id}: Nothing may be crawled while {nowhere}/robots.txt")


def test_a_folder_reached_twice_is_walked_once(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.txt").write_text(name)
    (tmp_path / "a" / "to-b").symlink_to(tmp_path / "b")
    (tmp_path / "b" / "to-a").symlink_to(tmp_path / "a")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    (tmp_path / "nothing").symlink_to(tmp_path / "missing")
    os.mkfifo(tmp_path / "pipe")
    found = list(walk(tmp_path))

    name = tmp_path.name
    assert {one.label for one in found if not isinstance(one, AddReport)} == {
        f"{name}/a/a.txt",
        f"{name}/b/b.txt",
    }
    assert {one.source: one.reason for one in found if isinstance(one, AddReport)} == {
        f"{name}/a/to-b": "link to a folder seen before",
        f"{name}/b/to-a": "link to a folder seen before",
        f"{name}/circle": "link in a circle",
        f"{name}/nothing": "link to nothing",
        f"{name}/pipe": "not a regular file",
    }


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=600))
def test_every_name_has_a_custom_id(name: str) -> None:
    made = identity(name)

    assert 1 <= len(made) <= 255
    assert made.isprintable()
    assert (made == name) == (name.isprintable() and len(name) <= 255)


def test_long_names_with_the_same_end_differ() -> None:
    assert identity("a" + "x" * 300) != identity("b" + "x" * 300)


@pytest.mark.parametrize(
    ("text", "query", "marked"),
    [
        ("Tasks are cancelled.", "cancel a TASK", ["Tasks", "cancelled"]),
        ("the cancellation", "dog", []),
        ("東京都の天気", "天気", ["天気"]),
        ("हिन्दी में किताब पढ़ना", "किताब", ["किताब"]),
        ("a re\u0301sume\u0301", "resume", ["re\u0301sume\u0301"]),
    ],
)
def test_words_are_marked_in_any_inflection(text: str, query: str, marked: list[str]) -> None:
    assert [text[start:end] for start, end in matches(text, query)] == marked


@given(
    st.lists(st.sampled_from(["dull", "grey", "words", "x" * 90, "heron"]), max_size=300),
    st.integers(0, 300),
)
def test_an_excerpt_is_short_and_shows_the_match(words: list[str], place: int) -> None:
    text = " ".join([*words[:place], "kingfisher", *words[place:]])
    shown = excerpt(text, "kingfishers")

    assert "kingfisher" in shown
    assert len(shown) <= PASSAGE + 4
    assert shown.removeprefix("… ").removesuffix(" …") in text


def test_an_excerpt_of_a_table_shows_the_row() -> None:
    more = "Customer: Boulangerie Petit; Address: 4, rue du Port, Lyon; Paid: in part; Notes: none"
    rows = [
        f"Number: INV-2025-{n:04}; Amount: {n * 37}.50; Status: open; {more}" for n in range(40)
    ]
    shown = excerpt("\n".join(rows), "INV-2025-0020")

    assert rows[20] in shown


def test_a_document_cannot_steer_the_terminal() -> None:
    assert harmless("invoice \u202efdp.exe\u2069") == "invoice �fdp.exe�"
    assert harmless("a\x1b]0;owned\x07\x9b2Jb\r\n\tc\x00") == "a�]0;owned��2Jb\n\tc�"


def test_the_watch_notices_a_document_that_was_deleted(live_url: str, key: str) -> None:
    service = Client(live_url, key)
    watch = DocumentWatch(service, None)
    ids = [
        service.send("POST", "/v3/documents", {"content": text})["id"] for text in ("one", "two")
    ]
    for id in ids:
        watch.expect(id)
    service.send("DELETE", "/v3/documents/bulk", {"ids": ids[:1]})

    def looked() -> bool:
        watch.look()
        return ids[0] in watch.settled

    eventually(looked)
    assert watch.settled == {ids[0]: None}
    assert list(watch.pending) == ids[1:]


def test_who_waits_is_told_what_the_service_lacks(
    live_url: str, key: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["status", "--url", live_url, "--key", key]
    well = CliRunner().invoke(commands, asked).stdout
    service = Client(live_url, key)
    watch = DocumentWatch(service, None)
    watch.expect(service.send("POST", "/v3/documents", {"content": "owls"})["id"])
    monkeypatch.setattr(readiness, "LEAST_FREE", 1 << 60)
    monkeypatch.setattr(_add_run, "QUIET", 0.0)
    watch.look()
    shown = CliRunner().invoke(commands, asked).stdout
    as_json = json.loads(CliRunner().invoke(commands, [*asked, "--json"]).stdout)

    assert "cannot work" not in well
    assert shown.splitlines()[-1].startswith("The service cannot work: the disk is full: ")
    assert as_json["reason"].startswith("the disk is full: ")
    assert "the service cannot work: the disk is full: " in capsys.readouterr().err


def test_who_is_refused_everything_is_told_why_meanwhile(
    live_url: str, key: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a full disk each file is tried for half a minute: 300 took twenty without a word."""
    monkeypatch.setattr(readiness, "LEAST_FREE", 1 << 60)
    monkeypatch.setattr(_add_run, "QUIET", 0.0)
    DocumentWatch(Client(live_url, key), None).look()

    assert "the service cannot work: the disk is full: " in capsys.readouterr().err


def test_who_waits_is_told_whether_anybody_works(
    live_url: str,
    key: str,
    app: App,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(_add_run, "QUIET", 0.0)
    service = Client(live_url, key)
    told: list[str] = []
    for status in ("queued", "processing"):
        id = service.send("POST", "/v3/documents", {"content": status, "filepath": "owls.txt"})[
            "id"
        ]
        with app.db.begin() as tx:
            tx.execute("update documents set status = %s where id = %s", (status, id))
        watch = DocumentWatch(service, None)
        watch.expect(id)
        for _ in range(2):  # the first is a movement
            watch.look()
            watch._next = 0.0
        told.append(capsys.readouterr().err)

    assert "nothing has moved for 0 s: is a worker running? Ctrl-C" in told[0]
    assert "owls.txt is being worked on" in told[1]


@contextmanager
def answering(*answers: tuple[int, bytes], asked: list[str] | None = None) -> Generator[str]:
    """A server that gives these answers, one after the other; the last one again and again.

    It notes the paths that were `asked` for."""
    left = list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            if asked is not None:
                asked.append(self.path)
            status, body = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.send_header("retry-after", "0")
            if 300 <= status < 400:
                self.send_header("location", f"https://notes.example{self.path}")
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


BUSY = (503, b'{"error": "Service unavailable", "details": "in a moment"}')


def test_a_patient_client_waits_until_the_service_can_answer() -> None:
    with answering(BUSY, (429, b'{"error": "Too many"}'), (200, b'{"ok": 1}')) as url:
        assert Client(url, "k", pauses=[0.01, 0.01]).get("/x") == {"ok": 1}
    with answering(BUSY) as url, pytest.raises(Transient, match="Service unavailable: in a moment"):
        Client(url, "k", pauses=[0.01]).get("/x")


def runs(*given: tuple[str, str, int]) -> tuple[int, bytes]:
    """The answer that lists runs: id, status, and how much was added."""
    nothing = dict.fromkeys(("changed", "unchanged", "removed", "itemsFailed"), 0)
    rest = {"skipped": {"error": 2}, "notes": ["Why."], "error": None, **nothing}
    told = [{"id": id, "status": status, "added": n, **rest} for id, status, n in given]
    return 200, json.dumps(told).encode()


STARTED = (202, b'{"message": "1 connection requested"}')
CONNECTION = (200, b'{"provider": "s3", "containerTags": ["x"], "state": "ready", "errorCode": 0}')
SETTLED = (200, b'[{"status": "done"}]')


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_sync_progress, "LOOK", 0)
    monkeypatch.setattr(client, "PAUSES", (0, 0, 0))


def followed(*answers: tuple[int, bytes]) -> list[str]:
    """What `sync --follow` shows while the service gives these answers."""
    with answering(*answers) as url:
        ended = CliRunner().invoke(
            commands, ["sync", "c", "--follow", "--url", url, "--key", "k"], catch_exceptions=False
        )
    return ended.stderr.splitlines()


@pytest.mark.usefixtures("hurried")
def test_following_a_sync_goes_on_when_the_service_is_back() -> None:
    told = followed(
        *[runs(), STARTED, runs(), CONNECTION, BUSY, runs(("a", "running", 1)), BUSY, BUSY],
        *[runs(("a", "running", 3)), BUSY],
        *[runs(("a", "running", 4)), BUSY, runs(("a", "partial", 5))],
        *[BUSY, CONNECTION, BUSY, (200, b'[{"status": "queued"}]'), BUSY, SETTLED],
    )

    assert told == [
        "running: 3 added, 2 failed",
        "running: 4 added, 2 failed",
        "partial: 5 added, 2 failed",
        "Why.",
        "0 of 1 documents are searchable",
        "1 of 1 documents are searchable",
    ]


@pytest.mark.usefixtures("hurried")
def test_a_sync_that_ran_already_is_told_from_the_one_asked_for() -> None:
    before = runs(("a", "running", 70))
    told = followed(
        *[before, STARTED, before, before, runs(("b", "running", 1), ("a", "completed", 80))],
        *[runs(("b", "running", 1), ("a", "completed", 80))],
        *[runs(("c", "running", 0), ("b", "completed", 2), ("a", "completed", 80))],
        *[CONNECTION, SETTLED],
    )

    assert told == [
        "running: 70 added, 2 failed",
        "completed: 80 added, 2 failed",
        "that sync ran already; the one that was asked for follows",
        "completed: 2 added, 2 failed",
        "Why.",
        "1 of 1 documents are searchable",
    ]


def test_a_service_that_cannot_answer_is_not_waited_for_before_it_is_watched() -> None:
    asked: list[str] = []
    with answering(BUSY, asked=asked) as url:
        ended = CliRunner().invoke(commands, ["status", "--watch", "--url", url, "--key", "k"])

    assert isinstance(ended.exception, Transient)
    assert asked == ["/v3/documents/counts"]


def test_what_a_proxy_refuses_for_its_size_stops_no_other_file(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text(name)
    listed = (200, b'{"memories": [], "pagination": {"totalItems": 0}}')
    large = (413, b"<html>413 Request Entity Too Large")
    with answering(listed, listed, large, large, listed) as url:
        ended = CliRunner().invoke(commands, ["add", str(tmp_path), "--url", url, "--key", "k"])

    assert "not reached" not in ended.stderr
    assert ended.output.count("client_max_body_size 80m") == 2


def test_another_service_at_the_address_is_told_from_ours() -> None:
    with answering((200, b"<html>")) as url, pytest.raises(SetupError, match="right address"):
        Client(url, "k").get("/x")
    with (
        answering((301, b"<html>")) as url,
        pytest.raises(SetupError, match=r"leads to https://notes\.example/x\. Give the address"),
    ):
        Client(url, "k").get("/x")
    with (
        answering((400, b'{"error": "Bad", "details": "q: missing"}')) as url,
        pytest.raises(RequestError, match="the query: missing"),
    ):
        Client(url, "k").get("/x")


LACKING = b'{"memories": [{"id": "a"}], "pagination": {"totalItems": 1}}'
NULL = b'{"memories": null, "results": null, "connections": null, "notes": null}'


@pytest.mark.parametrize(
    ("command", "body"),
    [
        *((command, LACKING) for command in ("list", "status", "show a", "search x", "tags")),
        *((command, NULL) for command in ("list", "search x", "filters preview")),
    ],
)
def test_a_service_of_another_version_is_named_where_its_answer_lacks_something(
    command: str, body: bytes
) -> None:
    lacking = (200, body)
    with answering(*[lacking] * 3) as url:
        ended = CliRunner().invoke(commands, [*command.split(), "--url", url, "--key", "k"])

    assert isinstance(ended.exception, SetupError)
    assert "another version of Recollect" in str(ended.exception)
