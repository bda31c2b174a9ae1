"""Names of commands: one word for one thing, and the old ones go on working."""

from pathlib import Path

import pytest

from tests.conftest import Service
from tests.e2e.shell import Shell, Starter


@pytest.fixture
def run(starter: Starter, service: Service, tmp_path: Path) -> Shell:
    settings = {
        "RECOLLECT_URL": service.url,
        "RECOLLECT_API_KEY": service.key,
        "RECOLLECT_DATA_DIR": str(service.data_dir),
    }
    return Shell(starter, tmp_path, settings)


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
