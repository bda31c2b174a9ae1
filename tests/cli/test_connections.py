"""What the command line tells who connects providers: what to do next, and what does not go on."""

import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import SecretStr

from recollect.app import App
from recollect.cli import _sync_progress, doctor
from recollect.cli.client import Service as Client
from recollect.model import Connection, ConnectionId, Failure, Org, Tenant
from recollect.sync import authorizations, connection_queue, connections
from recollect.sync.credentials import seal_tokens
from recollect.worker import syncs
from tests.conftest import serving
from tests.connectors.peers import GithubPeer
from tests.e2e.shell import Shell, Starter


@dataclass
class Desk:
    """A person at a shell, an application of GitHub, and the service that both reach."""

    app: App
    tenant: Tenant
    github: GithubPeer
    run: Shell

    def authorize(self, id: str) -> None:
        """As the user who follows the link."""
        tokens = self.github.tokens()
        assert tokens is not None
        sealed = seal_tokens(self.app, ConnectionId(id), tokens)
        with self.app.db.begin() as tx:
            made = connections.get(tx, self.tenant, id)
            authorizations.authorize(
                tx, made, tokens=sealed, expires_at=None, account="1", email="octo", due=False
            )

    def connection(self, id: str) -> Connection:
        with self.app.db.begin() as tx:
            return connections.get(tx, self.tenant, id)


@pytest.fixture
def desk(app: App, org: Org, key: str, starter: Starter, tmp_path: Path) -> Generator[Desk]:
    with GithubPeer() as github:
        assert github.settings is not None
        config = app.config.model_copy(update={"providers": {"github": github.settings}})
        own = replace(app, config=config)
        with serving(own) as url:
            shell = Shell(starter, tmp_path, {"RECOLLECT_URL": url, "RECOLLECT_API_KEY": key})
            yield Desk(own, Tenant(org.id), github, shell)


@pytest.mark.parametrize(
    ("status", "headers"),
    [(429, {"Retry-After": "3600"}), (403, {"X-RateLimit-Remaining": "0"}), (503, {}), (500, {})],
)
def test_who_waits_for_a_provider_is_told_that_it_goes_on_by_itself(
    desk: Desk, status: int, headers: dict[str, str]
) -> None:
    id = desk.run("connect", "github", "--tag", "docs").out.split()[1]
    desk.authorize(id)
    desk.run("connections", "pick", id, "octo/docs")
    desk.github.proxy.on(".", status=status, headers=headers, times=None)
    syncs.drain(desk.app)

    shown = desk.run("connections")

    assert f"{id}: nothing has to be done: its documents stay" in shown.err


def test_repositories_are_connected_from_the_link_to_the_pick(desk: Desk) -> None:
    desk.github.repository.commit({"guide.md": "Herons."})
    made = desk.run("connect", "github", "--tag", "docs")
    id = made.out.split()[1]
    waiting = desk.run("connections")
    link = desk.run("connections", "authorize", id)
    early = desk.run("connections", "pick", id)
    desk.authorize(id)
    unpicked = desk.run("connections")
    syncs.drain(desk.app)
    listed = desk.run("connections", "pick", id)
    absent = desk.run("connections", "pick", id, "octo/nowhere")
    picked = desk.run("connections", "pick", id, "octo/Docs")
    syncs.drain(desk.app)
    shown, relisted = desk.run("connections"), desk.run("connections", "pick", id)

    assert f"`recollect connections pick {id}`" in made.err
    assert f"`recollect connections authorize {id}` prints the link" in waiting.err
    assert "code_challenge" in link.out.split()[-1]
    assert early.code == 2
    assert "authorize" in early.err
    assert f"nothing is picked yet, so nothing is synced; `recollect connections pick {id}`" in (
        unpicked.err
    )
    assert listed.out.split() == ["picked", "name", "octo/docs"]
    assert absent.code == 1
    assert "has no octo/nowhere" in absent.err
    assert picked.out.startswith("1 picked; ")
    assert "completed" in shown.out
    assert shown.err == ""
    assert relisted.out.split() == ["picked", "name", "yes", "octo/docs"]


def test_a_lost_authorization_comes_with_the_command_for_a_link(desk: Desk) -> None:
    id = desk.run("connect", "github", "--json").json["id"]
    desk.authorize(id)
    with desk.app.db.begin() as tx:
        connection_queue.lose(tx, ConnectionId(id), "the token was revoked")
    listed = desk.run("connections")

    told = f"`recollect connections authorize {id}` prints the link"
    assert told in listed.err
    for more in ([], ["--follow"], ["--json"]):
        asked = desk.run("sync", id, *more)
        assert asked.code == 1
        assert told in asked.err


def test_a_refused_application_comes_with_the_command_for_when_it_is_mended(desk: Desk) -> None:
    id = desk.run("connect", "github", "--json").json["id"]
    desk.authorize(id)
    with desk.app.db.begin() as tx:
        tx.execute(
            "update connections set error_code = 'invalid_client', error_message = 'no'"
            " where id = %s",
            (id,),
        )

    assert f"`recollect sync {id}`" in desk.run("connections").err


def test_who_follows_a_sync_that_has_to_wait_is_told_why(
    desk: Desk, key: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    id = desk.run("connect", "github", "--json").json["id"]
    desk.authorize(id)
    limit = Failure("rate_limited", "GitHub's rate limit is used up")
    with desk.app.db.begin() as tx:
        connection_queue.park(tx, ConnectionId(id), limit, timedelta(hours=2, minutes=5))
    asked = desk.run("sync", id)
    assert "connection requested; 1 once the provider accepts requests again" in asked.out
    service = Client(desk.run.settings["RECOLLECT_URL"], key)

    class Looked(Exception):
        pass

    looks: list[float] = []

    class Stop:
        def wait(self, seconds: float) -> None:
            looks.append(seconds)
            if len(looks) == 3:
                raise Looked

    with pytest.raises(Looked):
        _sync_progress._begun(service, id, None, cast("Any", Stop()))

    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("it ")]
    assert told == ["it begins in 2 h: GitHub's rate limit is used up"]


def test_documents_that_failed_are_not_counted_as_searchable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Told:
        def __init__(self, *looks: list[str]) -> None:
            self.looks = list(looks)

        def get(self, path: str) -> dict[str, object]:
            return {"provider": "s3", "containerTags": ["x"]}

        def array(self, method: str, path: str, body: object = None) -> list[dict[str, str]]:
            return [{"status": status} for status in self.looks.pop(0)]

    monkeypatch.setattr(_sync_progress, "LOOK", 0)
    # "extracting" is a word of RECOLLECT_STATUS_WORDS=sdk.
    told = Told(["done", "extracting", "failed"], ["done", "done", "failed"])
    with _sync_progress._shown() as show:
        _sync_progress._settle(cast("Client", told), "c", threading.Event(), show)

    assert capsys.readouterr().err.splitlines() == [
        "1 of 3 documents are searchable, 1 failed",
        "2 of 3 documents are searchable, 1 failed",
    ]


def test_a_sync_that_could_not_do_it_all_is_listed_as_partial(desk: Desk) -> None:
    id = desk.run("connect", "github", "--json").json["id"]
    desk.authorize(id)
    desk.run("connections", "pick", id, "octo/docs")
    desk.github.repository.blocked = True
    syncs.drain(desk.app)
    listed = desk.run("connections")

    assert desk.connection(id).last_run is not None
    assert "partial" in listed.out
    assert "completed" not in listed.out
    assert "blocked" in listed.err


def test_what_was_seen_is_named_as_people_know_it(desk: Desk) -> None:
    id = desk.run("connect", "github", "--json").json["id"]
    with desk.app.db.begin() as tx:
        for key, url, title in [
            ("8534f45738d0", "https://notes.example/8534f45738d0", "Home"),
            ("docs/rules.txt", "s3://papers/docs/rules.txt", "rules.txt"),
        ]:
            tx.execute(
                "insert into items (connection_id, id, url, title, verdict, detail, seen_at)"
                " values (%s, %s, %s, %s, 'too_large', 'It is large.', now())",
                (id, key, url, title),
            )
    listed = desk.run("seen", id)
    by_url = desk.run("seen", id, "https://notes.example/8534f45738d0")
    by_path = desk.run("seen", id, "docs/rules.txt")
    never = desk.run("seen", id, "https://notes.example/85")

    head, *rows = listed.out.splitlines()
    assert head.split() == ["verdict", "what", "title", "why"]
    assert sorted(" ".join(row.split()) for row in rows) == [
        "too_large 8534f45738d0 Home It is large.",
        "too_large docs/rules.txt It is large.",
    ]
    assert " Home " in by_url.out
    assert by_path.out.splitlines()[0].split() == ["verdict", "what", "why"]
    assert never.code == 1


def test_the_doctor_counts_the_connections_that_wait_for_a_person(
    desk: Desk, database_url: str
) -> None:
    config = desk.app.config.model_copy(update={"database_url": SecretStr(database_url)})

    def stuck() -> Counter[str]:
        """Those of other tests, too."""
        with desk.app.db.begin() as tx:
            return Counter(connections.stuck(tx))

    ids = [desk.run("connect", "github", "--json").json["id"] for _ in range(3)]
    before = stuck()
    for id in ids:
        desk.authorize(id)
    with desk.app.db.begin() as tx:
        connection_queue.lose(tx, ConnectionId(ids[0]), "the token was revoked")
        tx.execute(
            "update connections set error_code = 'invalid_client', error_message = 'no'"
            " where id = any(%s)",
            (ids[1:],),
        )

    after = stuck()
    assert after - before == {"invalid_client": 2, "needs_auth": 1}
    [told] = [one for one in doctor._database(config) if one.name == "connections"]
    assert f"{after['needs_auth']} needs_auth" in told.details
    assert "`recollect connections` says what to do" in told.details


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ({}, {}, "brings the same into papers,"),
        ({"prefix": "docs/"}, {"prefix": "docs/"}, "brings the same into papers,"),
        ({}, {"prefix": "docs/"}, "brings some of the same into papers,"),
        ({"prefix": "docs/old/"}, {"prefix": "docs/"}, "brings some of the same into papers,"),
        ({"prefix": "docs/"}, {"prefix": "papers/"}, None),
        ({}, {"endpoint": "http://127.0.0.1:9"}, None),
        ({}, {"bucket": "papers2"}, None),
    ],
)
def test_what_two_connections_of_a_bucket_have_in_common_is_told(
    desk: Desk, first: dict[str, str], second: dict[str, str], told: str | None
) -> None:
    def connected(**given: str) -> str:
        keys = {"bucket": "papers", "region": "eu-central-1", "accessKeyId": "AKIA"}
        keys |= {"secretAccessKey": "secret", **given}
        pairs = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
        return desk.run("connect", "s3", "--tag", "papers", *pairs).err

    assert connected(**first) == ""
    said = connected(**second)
    listed = desk.run("connections").out

    assert told in said if told else said == ""
    assert all(f"papers/{one['prefix']}" in listed for one in (first, second) if "prefix" in one)


def test_ctrl_c_at_a_question_is_an_interrupt(desk: Desk) -> None:
    id = desk.run("connect", "github", "--json").json["id"]
    with subprocess.Popen(
        desk.run.command("disconnect", id),
        cwd=desk.run.folder,
        env=desk.run.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        # A shell's background jobs, and what they start, are deaf to Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stderr is not None
        told = b""
        while not told.endswith(b"[y/N]:"):
            told += process.stderr.read(1)
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=60)

    assert process.returncode == 130, rest
    assert desk.connection(id)
