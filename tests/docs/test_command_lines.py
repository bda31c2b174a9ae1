"""Every command line of the README and of docs/ runs, or is at least one that there is.

What a page shows stands for something real: `SHOWN` says what for. Where a line cannot run in a
test, `PARSED` says why, and its command, options and arguments are looked at instead.
"""

import os
import re
import shlex
import subprocess
import sys
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import pytest
from reportlab.pdfgen.canvas import Canvas
from typer._click.exceptions import ClickException
from typer.core import TyperGroup
from typer.main import get_command

from bench.__main__ import main as bench
from bench.ground import PROJECT
from recollect.cli import app as commands
from tests.conftest import FOLDERS, Service, eventually, plain_client
from tests.fakes.receiver import Receiver
from tests.fakes.site import Site
from tests.fakes.terminal import Terminal

PAGES = [
    PROJECT / "README.md",
    *sorted((PROJECT / "docs").glob("*.md")),
    *sorted((PROJECT / "docs/recipes").glob("*.md")),
]
SHELLS = ("", "sh", "bash", "console")
_OURS = re.compile(
    r"^(?P<cron>(?:[\d*/]+ +){5})?(?P<before>(?:\w+=\S+ +)*|[^$|]+\| *)"
    r"(?:(?:\.venv/bin/)?(?P<recollect>recollect)|(?P<curl>curl)|(?P<make>make)"
    r"|\.venv/bin/python -m (?P<bench>bench))(?P<words> .*|)$"
)

BENCH = "it measures for minutes; test_bench.py runs each part"
MODEL = "it changes the model of the whole service; test_embedder_switch.py runs it"
PARSED: Mapping[str, str] = {
    "make run": "it serves until it is stopped",
    "make test": "it runs this",
    "bench": BENCH,
    "recollect serve": "it serves until it is stopped; everything else here asks one",
    "recollect api": "as above; tests/chaos/test_machines.py runs several",
    "recollect work": "as above",
    "recollect quickstart --serve": "a second service; test_quickstart.py runs it",
    "recollect --install-completion": "it asks in which shell it is; test_quickstart.py runs it",
    "recollect torture": "minutes of killed processes; tests/chaos runs it",
    "recollect embedder switch": MODEL,
    "recollect embedder rollback": MODEL,
    "recollect embedder finish": MODEL,
    "recollect reindex": "the service has to be stopped for it",
    "recollect connect github": "it needs an application at GitHub",
    "recollect connections authorize": "it needs one, too",
    "recollect connections pick": "it needs an account at GitHub",
    "recollect evaluate team:a --rerank": "it needs a reranker; test_evaluation.py runs it",
    "recollect filters set --prompt": "it needs a language model; test_model_filter.py runs it",
    "recollect filters set --exclude-title": "as above",
}
"""Beginning of a line → why it is only parsed."""

OTHERS = ("claude ", "export ", "LIB=", "python3.11 -m venv ", "/opt/recollect/bin/pip ", "pip ")
"""Beginnings of lines that are no command of ours."""

CODES: Mapping[str, int] = {
    "recollect check-url https://docs.example.org/private/x --robots": 1,
    "recollect check-url http://10.0.0.1/ --json": 1,
}
"""Line → the documented exit code, where it is not 0."""

STREAM = "curl -N"
"""Such a call has no end; it is ended once it was answered."""


@dataclass(frozen=True, slots=True)
class Line:
    """`whole` as it is typed, `text` from the name of the program on."""

    page: str
    program: str
    text: str
    whole: str

    @property
    def arguments(self) -> list[str]:
        return shlex.split(self.text)[1:]

    @property
    def command(self) -> str:
        return self.arguments[0]


def blocks(text: str) -> Iterator[list[str]]:
    """Fenced blocks that a shell may read, with continued lines joined."""
    for found in re.finditer(r"^( *)```(\w*)\n(.*?)^\1```", text, re.DOTALL | re.MULTILINE):
        if found[2] in SHELLS:
            yield re.sub(r"\\\n\s*", "", found[3]).splitlines()


def typed(block: list[str]) -> list[str]:
    """What a user types of it: the lines with a prompt; all of them where there is none."""
    prompted = [line.strip()[2:] for line in block if line.strip().startswith("$ ")]
    return [re.sub(r"\s+# .*|^# .*", "", line) for line in prompted or block]


def typed_lines() -> Iterator[tuple[Path, str]]:
    for page in PAGES:
        for block in blocks(page.read_text()):
            for line in typed(block):
                yield page, line


def lines() -> list[Line]:
    """Each command line once, however many pages show it."""
    found: dict[str, Line] = {}
    for page, line in typed_lines():
        ours = _OURS.match(line.strip())
        if ours is not None:
            program = next(name for name in ("recollect", "curl", "make", "bench") if ours[name])
            whole = line.strip().removeprefix(ours["cron"] or "")
            text = program + ours["words"].rstrip()
            found.setdefault(whole, Line(page.name, program, text, whole))
    return list(found.values())


LINES = lines()
READ = [one for one in LINES if one.text.startswith(tuple(PARSED))]
RUN = [one for one in LINES if one not in READ]


def named(one: Line) -> str:
    return f"{one.page}: {one.whole}"


# --- what the pages' names stand for -----------------------------------------------------------


class World:
    """An organisation of its own on a service, and something real for whatever the pages name."""

    def __init__(
        self,
        service: Service,
        folder: Path,
        site: Site,
        receiver: Receiver,
        new_database: Callable[[], str],
    ) -> None:
        self.service = service
        self.new_database = new_database
        self.folder = folder
        self.site = site
        self.receiver = receiver
        self.key = service.key
        self._files()
        self.terminal = Terminal(folder, self.environment)
        self.org = self.new_org()
        self.key = str(self.told("keys", "create", "--org", self.org, "--scope", "admin")["key"])
        self.http = httpx.Client(
            base_url=service.url,
            headers={"Authorization": f"Bearer {self.key}"},
            timeout=60,
            trust_env=False,
        )

    def _files(self) -> None:
        for where in ("notes", "lib/asyncio", "lib/http", "lib/json", "fresh", "bin"):
            (self.folder / where).mkdir(parents=True)
        for library in ("asyncio", "http", "json"):
            (self.folder / "lib" / library / "tasks.py").write_text(f"# Of {library}.\n")
        (self.folder / "notes" / "tasks.md").write_text("# Tasks\n\nTasks can be cancelled.\n")
        (self.folder / "questions.jsonl").write_text('{"question": "Tasks?", "words": "tasks"}\n')
        canvas = Canvas(str(self.folder / "report.pdf"))
        canvas.drawString(72, 720, "We decided to sell the boat.")
        canvas.save()
        for name, script in {
            "recollect": f'exec "{sys.executable}" -m recollect "$@"',
            "git": "echo A change.",
        }.items():
            program = self.folder / "bin" / name
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)

    @property
    def environment(self) -> dict[str, str]:
        inherited = os.environ  # noqa: TID251 # a child needs PATH and the like
        return {
            **{n: v for n, v in inherited.items() if not n.lower().endswith("_proxy")},
            **self.settings,
            "PATH": f"{self.folder / 'bin'}:{inherited['PATH']}",
            "PYTHONPATH": str(PROJECT),
        }

    @property
    def settings(self) -> dict[str, str]:
        return {
            "RECOLLECT_URL": self.service.url,
            "RECOLLECT_PORT": str(httpx.URL(self.service.url).port),
            "RECOLLECT_DATA_DIR": str(self.service.data_dir),
            "RECOLLECT_ALLOW_NETWORKS": "127.0.0.0/8",
            "RECOLLECT_API_KEY": self.key,
            "HOME": str(self.folder),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "LIB": str(self.folder / "lib"),
            "KEY": self.key,
        }

    def papers(self) -> str:
        """A folder below the one that the service may read."""
        made = self.service.data_dir.parent / FOLDERS / uuid.uuid4().hex
        made.mkdir()
        (made / "heron.md").write_text("# Herons\n\nThey wait at the weir.\n")
        return str(made)

    def shell(self, line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", line],
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )

    def says(self, line: str, words: str) -> bool:
        """Whether what never ends by itself says them; then it is ended."""
        with subprocess.Popen(
            ["bash", "-c", f"exec {line}"],
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            said = any(words in one for one in process.stdout)
            process.terminate()
        return said

    def told(self, *arguments: str) -> dict[str, Any]:
        ended = self.terminal.run(*arguments, "--json", RECOLLECT_API_KEY=self.key)
        assert ended.code == 0, ended.err
        return ended.json

    def new_org(self) -> str:
        return str(self.told("orgs", "create", f"acme-{uuid.uuid4().hex[:8]}")["name"])

    @cached_property
    def second(self) -> str:
        return self.new_org()

    def new_key(self) -> str:
        return str(self.told("keys", "create", "--org", self.org)["id"])

    def document(self, custom_id: str | None = None) -> str:
        """The id of one that is searchable, in the tags handbook and old."""
        body = {
            "content": f"Tasks can be cancelled. {uuid.uuid4().hex}",
            "customId": custom_id,
            "containerTags": ["handbook", "old"],
        }
        id = self.http.post("/v3/documents", json=body).raise_for_status().json()["id"]
        path = f"/v3/documents/{id}"
        eventually(lambda: self.http.get(path).json()["status"] == "done")
        return id

    def deleted(self) -> str:
        id = self.document()
        self.http.delete(f"/v3/documents/{id}").raise_for_status()
        return id

    @cached_property
    def connection(self) -> str:
        """A crawl that has ended."""
        return self.new_connection()

    def new_connection(self) -> str:
        body = {"metadata": {"startUrl": self.site.url("/")}, "containerTags": ["crawl"]}
        made = self.http.post("/v3/connections/web-crawler", json=body).raise_for_status()
        id = made.json()["id"]
        path = f"/v3/connections/{id}/sync-runs"
        eventually(lambda: [run for run in self.http.get(path).json() if run["completedAt"]])
        return id

    @cached_property
    def endpoint(self) -> str:
        body = {"url": self.receiver.url}
        return self.http.post("/v3/webhooks", json=body).raise_for_status().json()["id"]

    @cached_property
    def delivery(self) -> str:
        self.http.post(f"/v3/webhooks/{self.endpoint}/test", json={}).raise_for_status()
        return eventually(lambda: self.receiver.came)[0].id

    def came(self) -> str:
        """A token that a provider sent."""
        token = f"secret_{uuid.uuid4().hex}"
        body = {"verification_token": token}
        self.http.post("/v3/hooks/notion", json=body).raise_for_status()
        return token

    def new_assistant(self) -> str:
        """A program that the key let in."""
        back = "https://assistant.example/back"
        with plain_client(self.service.url, {"Sec-Fetch-Site": "same-origin"}) as browser:
            made = browser.post("/oauth/register", json={"redirect_uris": [back]}).json()
            browser.post("/console/login", data={"key": self.key})
            form = {
                "decision": "allow",
                "response_type": "code",
                "client_id": made["client_id"],
                "redirect_uri": back,
                "code_challenge": "c" * 43,
                "code_challenge_method": "S256",
            }
            browser.post("/console/assistants/allow", data=form)
        return self.http.get("/v3/assistants").json()["assistants"][0]["id"]

    def fresh(self, name: str) -> str:
        """A path that is not there yet."""
        return str(self.folder / "fresh" / f"{name}-{uuid.uuid4().hex[:8]}")

    def backup(self) -> str:
        made = self.fresh("backup")
        self.told("backup", made, "--with-key")
        return made

    def unmade_bundle(self) -> str:
        """Where one can be made: the tag handbook has a document."""
        self.document()
        return self.fresh("bundle")

    def bundle(self) -> str:
        folder = self.unmade_bundle()
        self.told("export", folder, "--org", self.org, "--tag", "handbook")
        return folder


IDENTIFIED: Mapping[str, Callable[[World], str]] = {
    "disconnect": World.new_connection,
    "webhooks": lambda world: world.endpoint,
    "receipt": World.deleted,
    "show": World.document,
    "edit": World.document,
    "rm": World.document,
    "retry": World.document,
}
"""Command → what an id is to it; to all others one of a connection."""


def identified(world: World, line: Line) -> str:
    found = IDENTIFIED.get(line.command)
    return world.connection if found is None else found(world)


SHOWN: Mapping[str, Callable[[World, Line], str]] = {
    r"https://docs\.example\.org": lambda world, _: world.site.url(""),
    r"https://example\.org/page": lambda world, _: world.site.url("/page"),
    r"https://app\.example\.org/hook": lambda world, _: world.receiver.url,
    r"http://127\.0\.0\.1:6767": lambda world, _: world.service.url,
    r"postgresql://…": lambda world, _: shlex.quote(world.new_database()),
    r"\bID\b|CVXG5IoOJV2dyxjV8NzG6p|7msRU48jI0KqwTPC6nnlhv": identified,
    r"\bURL$": lambda world, _: world.site.url("/private/"),
    r"QmqhWydXo8QuqxBir8Yg3x": lambda world, _: world.document(),
    r"notes/tasks\.md": lambda world, _: world.document("notes/tasks.md") and "notes/tasks.md",
    r"4f0c2ab19d3e": lambda world, _: world.new_key(),
    r"kQ3vVxJrW1pYc7TzN5bHfA": lambda world, _: world.new_assistant(),
    r"msg_3f0c…": lambda world, _: world.delivery,
    r"secret_7f…": lambda world, _: world.came(),
    r"\bacme\b": (
        lambda world, line: (
            f"{world.org}-more"
            if line.arguments[1] == "create" and line.command == "orgs"
            else world.org
        )
    ),
    r"\bsecond\b": lambda world, _: world.second,
    r"/backups/monday\.zip|move\.zip": (
        lambda world, line: world.backup() if line.command == "restore" else world.fresh("backup")
    ),
    r"/backups/recollect": lambda world, _: world.fresh("recollect"),
    r"handbook-bundle": (
        lambda world, line: world.bundle() if line.command == "import" else world.unmade_bundle()
    ),
    r"/srv/papers/handbook": lambda world, _: world.papers(),
    r"/srv/recollect": lambda world, _: world.fresh("data"),
    r"/var/log/": lambda world, _: f"{world.folder}/",
}
"""What the pages name → something real of this world."""


def real(world: World, line: Line) -> str:
    """The line with something real for each name that it shows."""
    every = re.compile("|".join(f"({name})" for name in SHOWN))
    makers = list(SHOWN.values())
    return every.sub(lambda found: makers[(found.lastindex or 1) - 1](world, line), line.whole)


@pytest.fixture(scope="module")
def world(service: Service, short_tmp: Path, new_database: Callable[[], str]) -> Generator[World]:
    folder = short_tmp / f"world-{uuid.uuid4().hex[:8]}"
    folder.mkdir(mode=0o711)
    with Site() as site, Receiver() as receiver:
        site.robots("User-agent: *\nDisallow: /private/")
        site.write("/", links=["/page", "/guide/", "/private/"])
        site.write("/page")
        site.write("/guide/", links=["/guide/first"])
        site.write("/guide/first")
        made = World(service, folder, site, receiver, new_database)
        asked = {"containerTag": "team:a", "questions": [{"question": "Tasks?", "words": "tasks"}]}
        with made.http, made.terminal:
            made.http.post("/v3/test-questions", json=asked).raise_for_status()
            yield made


# --- the lines ---------------------------------------------------------------------------------


@pytest.mark.parametrize("line", RUN, ids=named)
def test_a_line_runs(world: World, line: Line) -> None:
    typed = real(world, line)
    if line.program == "curl":
        typed = typed.replace("curl ", "curl --fail-with-body --max-time 100 ", 1)
    code = CODES.get(line.text, 0)
    plain = re.fullmatch(r"(?:\.venv/bin/)?recollect ([^$|>~]+)", typed)

    if line.text.startswith(STREAM):
        assert world.says(typed, ": listening"), typed
    elif plain is not None:
        ended = world.terminal.run(*shlex.split(plain[1]), RECOLLECT_API_KEY=world.key)
        assert ended.code == code, (typed, ended.out, ended.err)
    else:
        done = world.shell(typed.replace(".venv/bin/recollect ", "recollect "))
        assert done.returncode == code, (typed, done.stdout, done.stderr)


@pytest.mark.parametrize("line", READ, ids=named)
def test_a_line_that_cannot_run_here_names_what_there_is(
    line: Line, capsys: pytest.CaptureFixture[str]
) -> None:
    parse(line, capsys)


def parse(line: Line, capsys: pytest.CaptureFixture[str]) -> None:
    """Fails when the program has no such command, option or argument. Nothing is run."""
    match line.program:
        case "make":
            targets = re.findall(r"^([a-z]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE)
            assert set(line.arguments) <= set(targets)
        case "bench":
            with pytest.raises(SystemExit) as ended:
                bench([*line.arguments, "--help"])
            assert ended.value.code == 0
            shown = re.findall(r"--\w+", capsys.readouterr().out)
            assert {word for word in line.arguments if word.startswith("--")} <= set(shown)
        case _:
            command, words = get_command(commands), line.arguments
            if words[0].startswith("-"):
                assert words[0] in {name for param in command.params for name in param.opts}
                return
            context = command.make_context("recollect", words)
            while isinstance(command, TyperGroup):
                name, words = words[0], words[1:]
                found = command.get_command(context, name)
                assert found is not None, name
                command = found
                context = command.make_context(name, list(words), parent=context)


@pytest.mark.parametrize(
    "text",
    [
        "make runs",
        "bench ingests",
        "bench ingest --fast",
        "recollect serves",
        "recollect serve --ports 1",
        "recollect serve now",
        "recollect embedder switches openai",
        "recollect embedder switch openai --modell x",
        "recollect torture --minutes many",
        "recollect --install-completions",
    ],
)
def test_what_there_is_not_is_noticed(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    program = text.split()[0]
    with pytest.raises((AssertionError, ClickException)):
        parse(Line("", program, text, text), capsys)


def test_every_reason_has_its_line() -> None:
    assert {start for start in PARSED if not any(one.text.startswith(start) for one in LINES)} == (
        set()
    )
    assert set(CODES) <= {one.text for one in LINES}
    every = [line.lstrip() for _, line in typed_lines()]
    assert all(any(line.startswith(start) for line in every) for start in OTHERS)
    assert any(one.text.startswith(STREAM) for one in LINES)


def test_every_name_that_stands_for_something_is_shown() -> None:
    assert {name for name in SHOWN if not any(re.search(name, one.whole) for one in RUN)} == set()


def test_no_line_is_passed_over() -> None:
    known = {one.whole for one in LINES}
    passed = {
        line.strip()
        for _, line in typed_lines()
        if not line.lstrip().startswith(OTHERS)
        and re.search(r"(^|[ /])(recollect|curl|make|bench) ", line)
    }

    assert len(LINES) > 80
    assert {line for line in passed if not any(one in line for one in known)} == set()


def test_no_line_holds_what_a_shell_takes_for_a_pattern() -> None:
    """zsh, the shell of macOS, refuses a line with a pattern that matches no file."""
    quoted = re.compile(r""""[^"]*"|'[^']*'|\$\?""")
    bare = {one.whole: quoted.sub("", one.whole) for one in LINES}

    assert {line for line, rest in bare.items() if re.search(r"[?*]|\S\[", rest)} == set()
