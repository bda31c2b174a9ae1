"""Names of commands and their help: one word for one thing, and the old ones go on working."""

import gc
import importlib
import uuid
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import typer
from typer.main import get_group
from typer.testing import CliRunner

from recollect.cli import COMMANDS, _lazy, app, output
from recollect.cli._add_sources import LARGEST
from recollect.db.embedded import Embedded
from tests.conftest import Service, eventually
from tests.e2e.shell import Shell, Starter


@pytest.fixture
def run(starter: Starter, service: Service, tmp_path: Path) -> Shell:
    settings = {
        "RECOLLECT_URL": service.url,
        "RECOLLECT_API_KEY": service.key,
        "RECOLLECT_DATA_DIR": str(service.data_dir),
    }
    return Shell(starter, tmp_path, settings)


def test_a_key_may_write_unless_another_scope_is_named() -> None:
    told = CliRunner().invoke(app, ["keys", "create", "--help"]).stdout

    assert "[default: write]" in told


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("keys", "create", "--expires", "yesterday"), "error: expires: how long (90m, 2h, 30d;"),
        (("keys", "create", "--tag", "not a tag"), "error: --tag: 1 to 100 characters"),
        (("keys", "create", "--name", "caf\udce9"), "error: caf�: not UTF-8"),
        (("orgs", "create", "a\nb"), "error: name: 1 to 100 printable characters"),
    ],
)
def test_a_value_that_a_command_on_the_database_refuses_is_wrong_usage(
    run: Shell, arguments: tuple[str, ...], told: str
) -> None:
    ended = run(*arguments)

    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(told), ended.err
    assert len(ended.err.splitlines()) == 1


def test_keys_are_listed_with_their_state(run: Shell, service: Service) -> None:
    ids = [run("keys", "create", "--name", name, "--json").json["id"] for name in "abc"]
    run("keys", "revoke", ids[1])
    with psycopg.connect(Embedded(service.data_dir).url) as session:
        session.execute("update keys set expires_at = now() where id = %s", (ids[2],))

    states = {one["id"]: one["state"] for one in run("keys", "list", "--json").json}

    assert [states[id] for id in ids] == ["active", "revoked", "expired"]


def test_a_key_may_ask_as_often_as_its_limit_says(run: Shell, service: Service) -> None:
    made = run("keys", "create", "--per-minute", "2", "--json").json
    limited = made["key"]

    headers = {"Authorization": f"Bearer {limited}"}
    with httpx.Client(base_url=service.url, headers=headers, trust_env=False) as http:
        asked = [http.get("/v3/documents/counts") for _ in range(3)]

    assert [one.status_code for one in asked] == [200, 200, 429]
    [listed] = [one for one in run("keys", "list", "--json").json if one["id"] == made["id"]]
    assert (listed["rateLimit"], listed["rateLimitWindow"]) == (2, 60)
    assert run("keys", "create", "--per-minute", "0").code == 2


def test_a_webhook_is_what_the_console_calls_one(run: Shell) -> None:
    made = run("webhooks", "add", "https://app.example.org/hook", "--json").json
    listed = run("endpoints", "list", "--json")

    assert made["id"] in [one["id"] for one in listed.json]
    assert listed.err == "`recollect endpoints` is now `recollect webhooks`\n"
    assert "active" in run("webhooks", "list").out
    assert run("webhooks", "rm", made["id"]).code == 0
    assert "endpoints" not in run("--help").out


def test_tokens_of_providers_are_verified_where_connections_are(
    run: Shell, service: Service
) -> None:
    with service.client() as http:
        for token in ("secret_one", "secret_two"):
            http.post("/v3/hooks/notion", json={"verification_token": token}).raise_for_status()
    came = run("connections", "verify", "--json").json
    old = run("webhooks", "confirm", "notion", "secret_one")
    after = run("connections", "verify")

    assert {(one["token"], one["confirmed"]) for one in came} >= {
        ("secret_one", False),
        ("secret_two", False),
    }
    assert (old.code, old.out) == (0, "notion: confirmed\n")
    assert old.err == "`recollect webhooks confirm` is now `recollect connections verify`\n"
    assert ["notion", "secret_one", "True"] in [
        [line.split()[0], line.split()[1], line.split()[-1]] for line in after.out.splitlines()
    ]
    assert run("connections", "verify", "notion").code == 2
    assert isinstance(run("connections", "--json").json, list)


def test_a_filter_that_needs_a_model_says_so_where_there_is_none(run: Shell) -> None:
    told = run("filters", "set", "--prompt", "No invoices.", "--model")
    as_json = run("filters", "set", "--model", "--json")
    cleared = run("filters", "set", "--clear", "prompt", "--no-model")

    assert "No invoices." in told.out
    assert "it is stored, and needs a language model: set RECOLLECT_LLM_URL" in told.err
    assert "needs a language model" in as_json.err
    assert as_json.json["shouldLLMFilter"] is True
    assert cleared.err == "nothing is filtered\n"


# --- help --------------------------------------------------------------------------------------

ENDLESS = {("serve",), ("api",), ("work",)}
"""They run until they are stopped, and have a log."""
GROUPS = {(name,) for name in ("orgs", "keys", "assistants", "webhooks", "embedder", "filters")}
"""They do nothing by themselves."""


def commands(path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command and every command below one."""
    if not path:
        for name in COMMANDS:
            yield (name,)
            yield from commands((name,))
        return
    module = importlib.import_module(f"recollect.cli.{COMMANDS[path[0]]}")
    alone = typer.Typer()
    module.register(alone)
    for name in getattr(get_group(alone).commands[path[0]], "commands", {}):
        yield (*path, name)


@pytest.mark.parametrize("path", [(), *commands(), ("connections", "verify")], ids=" ".join)
def test_help_has_placeholders_and_is_wrapped_once(path: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "100", "TERM": "dumb"})

    assert shown.exit_code == 0, shown.output
    if path and path not in GROUPS:
        assert ("--json" in shown.output) == (path not in ENDLESS)
    for python in ("<bool>", "<str>", "<int", "<float", "list[", "{id}", "[["):
        assert python not in shown.output
    # A line that is no paragraph's last is full: the next word would not have fitted.
    lines = [line.strip() for line in shown.output.partition("╭")[0].splitlines()]
    broken = [
        (line, following)
        for line, following in pairwise(lines)
        if line and following and len(line) + 1 + len(following.split()[0]) <= 97
    ]
    assert broken == []


def test_the_first_help_loads_no_command_and_has_one_line_for_each() -> None:
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80", "TERM": "dumb"})
    lines = [line.strip("│ ") for line in shown.output.splitlines() if line.startswith("│")]

    assert [line.split()[0] for line in lines if not line.startswith("-")][-len(COMMANDS) :] == (
        list(COMMANDS)
    )


# --- edit and tags -----------------------------------------------------------------------------


def test_a_document_is_edited_and_its_tags_are_listed(run: Shell, service: Service) -> None:
    tag, other = f"edit-{uuid.uuid4().hex[:8]}", f"edited-{uuid.uuid4().hex[:8]}"
    added = run("add", "-", "--tag", tag, "--meta", "a=1", "--json", input=b"Bees dance.").json
    id = added["sources"][0]["id"]

    def shown() -> dict[str, Any]:
        return run("show", id, "--json").json

    assert run("edit", id, "--tag", other).code == 0
    after = shown()
    assert (after["containerTags"], after["metadata"]) == ([other], {"a": 1})
    assert after["content"] == "Bees dance."
    replaced = run("edit", id, "--content", "-", "--meta", "b=2", "--json", input=b"Owls hoot.")
    assert replaced.json["id"] == id
    eventually(lambda: shown()["status"] == "done")
    assert (shown()["content"], shown()["metadata"]) == ("Owls hoot.", {"b": 2})
    listed = run("tags", "--limit", "1000").out
    assert [other, "1"] in [line.split()[:2] for line in listed.splitlines()]
    assert run("edit", id, "--title", "Of owls").code == 0
    assert (shown()["title"], shown()["content"]) == ("Of owls", "Owls hoot.")
    assert run("edit", id).code == 2
    assert run("edit", id, "--content", "nosuch.txt").code == 2
    with (run.folder / "large.txt").open("wb") as file:
        file.truncate(LARGEST + 1)
    large = run("edit", id, "--content", "large.txt")
    assert (large.code, large.err) == (2, "error: large.txt is larger than 50 MB\n")
    assert run("edit", "nosuch", "--tag", "x").code == 1


@pytest.mark.parametrize("name", [".", "..", "a/../b"])
def test_a_document_is_found_by_a_name_that_an_address_would_resolve(
    run: Shell, service: Service, name: str
) -> None:
    added = run("add", "-", "--id", name, "--tag", "dots", input=b"Dots.")
    assert added.code == 0, added.err

    assert run("show", name, "--json").json["content"] == "Dots."
    assert run("edit", name, "--title", "Point").code == 0
    assert run("rm", name, "--yes").code == 0


def test_versions_are_listed_shown_and_searched(run: Shell, service: Service) -> None:
    tag = f"versions-{uuid.uuid4().hex[:8]}"
    with service.client() as http:
        http.patch("/v3/settings", json={"keepVersions": 3})
        try:
            id = run("add", "-", "--tag", tag, "--json", input=b"Bees dance.").json["sources"][0][
                "id"
            ]
            eventually(lambda: run("show", id, "--json").json["status"] == "done")
            run("edit", id, "--content", "-", input=b"Owls hoot.")
            eventually(lambda: run("show", id, "--text").out.strip() == "Owls hoot.")
            eventually(lambda: len(run("versions", id, "--json").json["versions"]) == 2)
            lines = run("versions", id).out.splitlines()
            assert [line.split()[0] for line in lines] == ["2", "1"]
            then = lines[1].split()[1]
            assert run("show", id, "--text", "--as-of", then).out.strip() == "Bees dance."
            found = run("search", "what do they do", "--tag", tag, "--as-of", then, "--json").json
            assert found["results"][0]["chunks"][0]["content"] == "Bees dance."
            assert "Owls hoot." in run("search", "what do they do", "--tag", tag).out
        finally:
            http.patch("/v3/settings", json={"keepVersions": None})
    for asking in ("search", "ask"):
        assert "error: --as-of: " in run(asking, "x", "--as-of", "yesterday").err
    assert run("show", id, "--as-of", "2001-01-01").code == 1
    assert run("versions", "nosuch").code == 1


def test_the_collector_works_again_once_a_command_is_loaded(monkeypatch: pytest.MonkeyPatch):
    seen: list[bool] = []
    monkeypatch.setattr(_lazy, "import_module", lambda _: seen.append(gc.isenabled()))

    _lazy.part("look")

    assert (seen, gc.isenabled()) == ([False], True)


def test_numbers_and_nouns_agree() -> None:
    told = [output.counted(number, "file") for number in (0, 1, 2)]
    assert told == ["0 files", "1 file", "2 files"]
    assert output.counted(1, "memory", "memories") == "1 memory"
    assert output.counted(4, "memory", "memories") == "4 memories"
