"""Looking at a real account: every assumption is told, and nothing is written at the provider."""

import base64
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import httpx
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from recollect import connectors
from recollect.api import create_app
from recollect.app import App
from recollect.cli import app as commands
from recollect.config import ProviderSettings
from recollect.connectors.base import Connector, Source
from recollect.connectors.oauth import Tokens
from recollect.model import ConnectionId, Org, Tenant
from recollect.sync import account_check, authorizations, connections
from recollect.sync.credentials import seal_tokens
from recollect.sync.sources import open_source
from tests.conftest import serving
from tests.connectors.peers import PEERS, GithubPeer, NotionPeer
from tests.connectors.test_conformance import World
from tests.connectors.test_conformance import known_connectors as known_connectors
from tests.connectors.test_conformance import unpaced as unpaced
from tests.connectors.test_conformance import world as world

every = pytest.mark.parametrize
LACKS = "the token lacks repo, user:email: authorize the connection again"
PUBLIC = "https://recollect.example"


def connected(world: World) -> None:
    """By the account that there is."""
    world.connect()
    connector = connectors.get(world.provider)
    tokens = world.peer.tokens()
    if tokens is None:
        return
    if world.provider == "gmail":
        regrant(world, [])
        return
    with world.app.db.begin() as tx:
        found = connections.get(tx, Tenant(world.org.id), world.id)
    account = connector.identify(open_source(world.app, found).api, tokens)
    with world.app.db.begin() as tx:
        tx.execute("update connections set account = %s where id = %s", (account.id, world.id))


def check(world: World, **settings: Any) -> dict[str, tuple[str, str]]:
    """State and sentence by name; the last of those that share one."""
    config = world.app.config.model_copy(update=settings)
    with TestClient(create_app(replace(world.app, config=config))) as http:
        http.headers.update(world.http.headers)
        answer = cast("httpx.Client", http).post(f"/v3/connections/{world.id}/check")
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert (told["connectionId"], told["provider"]) == (world.id, world.provider)
    found = {one["name"]: (one["state"], one["sentence"]) for one in told["assumptions"]}
    assert told["holds"] == all(one["state"] != "fails" for one in told["assumptions"])
    assert all(sentence for _, sentence in found.values())
    return found


def failing(told: dict[str, tuple[str, str]]) -> dict[str, str]:
    return {name: sentence for name, (state, sentence) in told.items() if state == "fails"}


def writes(world: World) -> list[str]:
    asks = connectors.get(world.provider).asks
    return [
        seen.line
        for seen in world.peer.proxy.log
        if seen.method not in ("GET", "HEAD")
        and not (asks is not None and seen.method == "POST" and asks.fullmatch(seen.path))
    ]


def rows(world: World) -> list[Any]:
    """All that a sync would write."""
    with world.app.db.begin() as tx:
        return [
            tx.execute(f"select * from {table} where connection_id = %s", (world.id,)).fetchall()
            for table in ("items", "sync_runs", "registrations", "folders", "documents")
        ]


@every("world", list(PEERS), indirect=True)
def test_a_good_account_holds_and_is_only_read(world: World) -> None:
    connected(world)
    world.peer.proxy.forget()
    before = rows(world)

    told = check(world)

    failed = failing(told)
    if world.provider == "notion":
        del failed["clock"]  # that of the fake goes by hand
    assert failed == {}
    assert told["listing"][0] == "holds"
    assert told["fetch"][0] == "holds"
    assert len(world.peer.proxy.log) > 0 or world.provider == "folder"  # which asks nobody
    assert writes(world) == []
    assert rows(world) == before
    assert world.documents() == {}
    if connectors.get(world.provider).oauth is not None:
        assert told["token"][0] == told["identity"][0] == told["application"][0] == "holds"
    assert "clock" in told or world.provider in ("folder", "web-crawler")


@every("world", [name for name in PEERS if name != "cabinet"], indirect=True)
def test_every_provider_adds_its_own(world: World) -> None:
    connector = connectors.get(world.provider)
    assert type(connector).assumptions is not Connector.assumptions
    connected(world)
    names = set(check(world))
    own = {
        "folder": {"folder"},
        "github": {"rights", "budget", "repository"},
        "gmail": {"mailbox"},
        "google-drive": {"changes", "shared_drives"},
        "notion": {"workspace"},
        "onedrive": {"changes"},
        "s3": {"clock", "transport"},
        "web-crawler": {"robots"},
    }
    assert own[world.provider] <= names


@every("world", [name for name in PEERS if name not in ("folder", "web-crawler")], indirect=True)
def test_a_bad_token_is_told_with_what_to_do(world: World) -> None:
    connected(world)
    world.peer.revoke()
    world.peer.proxy.forget()

    told = check(world)

    failed = failing(told)
    assert "token" in failed, told
    assert any(word in failed["token"] for word in ("authorize", "key"))
    assert writes(world) in ([], ["POST /v1/oauth/token"])
    assert world.connection()["state"] == "ready", "a check changes nothing"


@every("world", ["gmail", "google-drive"], indirect=True)
def test_a_missing_scope_is_named(world: World) -> None:
    connected(world)
    regrant(world, ["openid", "https://www.googleapis.com/auth/userinfo.email"])
    told = check(world)
    assert ".readonly was not granted" in failing(told)["scopes"]


@every("world", ["onedrive"], indirect=True)
def test_a_missing_scope_of_microsoft_is_named(world: World) -> None:
    connected(world)
    regrant(world, ["https://graph.microsoft.com/User.Read"])
    assert "Files.Read was not granted" in failing(check(world))["scopes"]


def regrant(world: World, scopes: list[str]) -> None:
    """As if the user had left boxes unticked."""
    tokens = world.peer.tokens()
    assert tokens is not None
    # Google's tokens come with one; Gmail's API does not tell who it is.
    claims = base64.urlsafe_b64encode(b'{"sub": "ann", "email": "ann@example.com"}').decode()
    told = {"id_token": f"e30.{claims}.x"} if world.provider == "gmail" else {}
    granted = Tokens(tokens.access, tokens.refresh, scopes=scopes, extra=told)
    sealed = seal_tokens(world.app, ConnectionId(world.id), granted)
    with world.app.db.begin() as tx:
        authorizations.keep_tokens(tx, ConnectionId(world.id), tokens=sealed, expires_at=None)


@every("world", ["github"], indirect=True)
def test_rights_that_a_token_of_github_lost_are_named(world: World) -> None:
    connected(world)
    peer = cast("GithubPeer", world.peer)
    for user in peer.github.users.values():
        user.scopes = {"public_repo"}
    peer.repository.private = False
    failed = failing(check(world))
    assert failed == {"rights": LACKS}


@every("world", ["github"], indirect=True)
def test_a_spent_budget_and_a_repository_without_rights(world: World) -> None:
    connected(world)
    peer = cast("GithubPeer", world.peer)
    assert "a webhook can be added" in check(world)["repository"][1]
    peer.github.budget = 100
    peer.github.rename(peer.repository, "others/docs")
    peer.repository.readers.add("octo")
    told = check(world)
    assert "of 5,000 calls" in failing(told)["budget"]
    assert told["repository"][0] == "unknown"
    assert "polls for its changes" in told["repository"][1]


@every("world", ["github"], indirect=True)
def test_nothing_picked_is_said(world: World) -> None:
    connected(world)
    world.http.patch(f"/v3/connections/{world.id}", json={"metadata": {"resources": []}})
    assert "pick what is to be synced" in failing(check(world))["listing"]


@every("world", ["notion", "google-drive", "gmail", "onedrive", "s3", "folder"], indirect=True)
def test_of_a_source_without_anything_the_check_says_what_to_look_at(world: World) -> None:
    for name in sorted(world.peer.names()):
        world.peer.remove(name)
    connected(world)
    advice = connectors.get(world.provider).guide.if_nothing
    state, sentence = check(world)["listing"]
    assert state == "unknown"
    assert sentence == f"the listing works, but nothing was found. {advice.removesuffix('.')}"


@every("world", list(PEERS), indirect=True)
def test_without_an_application_nothing_is_asked(world: World) -> None:
    if connectors.get(world.provider).oauth is None:
        pytest.skip("needs no application")
    connected(world)
    assert world.peer.settings is not None
    bare = world.peer.settings.model_copy(update={"client_id": None})
    world.peer.proxy.forget()
    failed = failing(check(world, providers={world.provider: bare}))
    assert "CLIENT_ID" in failed["application"]
    assert world.peer.proxy.log == []


@every("world", ["github"], indirect=True)
def test_before_the_user_agreed_nothing_is_asked(world: World) -> None:
    made = world.http.post("/v3/connections/github", json={}).json()
    world.id = made["id"]
    world.peer.proxy.forget()
    assert "follow the link" in failing(check(world))["authorization"]
    assert world.peer.proxy.log == []


@every("world", ["github"], indirect=True)
def test_a_parked_connection_is_left_alone(world: World) -> None:
    connected(world)
    with world.app.db.begin() as tx:
        tx.execute("update connections set parked_until = now() + interval '1 hour'")
    world.peer.proxy.forget()
    assert "a pause until" in failing(check(world))["limits"]
    assert world.peer.proxy.log == []


@every("world", ["github"], indirect=True)
def test_another_account_is_told(world: World) -> None:
    connected(world)
    with world.app.db.begin() as tx:
        tx.execute("update connections set account = 'another'")
    assert "not the account of" in failing(check(world))["identity"]


@every("world", ["github"], indirect=True)
def test_a_clock_that_is_off_is_told(world: World) -> None:
    connected(world)
    headers = {"Date": "Mon, 01 Jan 2001 00:00:00 GMT"}
    world.peer.proxy.on("GET /repositories/", status=404, headers=headers)
    assert "correct it" in failing(check(world))["clock"]


@every("world", ["s3"], indirect=True)
def test_a_clock_that_signs_wrong_is_told(world: World) -> None:
    connected(world)
    body = b"<Error><Code>RequestTimeTooSkewed</Code><Message>off</Message></Error>"
    world.peer.proxy.on(".", status=403, body=body, times=None)
    assert "clock of this machine is wrong" in failing(check(world))["listing"]


@every("world", ["github", "gmail", "s3", "onedrive"], indirect=True)
def test_a_limit_is_told_and_bounded(world: World) -> None:
    connected(world)
    world.peer.proxy.on(".", status=429, headers={"Retry-After": "600"}, times=None)
    failed = failing(check(world))
    assert failed["listing"]
    assert world.provider == "s3" or "asking too often" in failed["limits"]


@every("world", ["web-crawler"], indirect=True)
def test_a_site_that_forbids_robots_is_told(world: World) -> None:
    connected(world)
    world.peer.proxy.on("GET /robots.txt", status=200, body=b"User-agent: *\nDisallow: /", times=9)
    failed = failing(check(world))
    assert "does not allow" in failed["robots"]
    assert "does not allow" in failed["listing"]
    assert not any(seen.path == "/" for seen in world.peer.proxy.log)


@every("world", ["github", "gmail", "notion", "web-crawler"], indirect=True)
def test_what_pushes_need(world: World) -> None:
    connected(world)
    state, told = check(world)["pushes"]
    assert state == "unknown"
    assert world.provider == "web-crawler" or "every 5 minutes" in told

    state, told = check(world, public_url=PUBLIC)["pushes"]
    lacking = {"gmail": "PUBSUB_SERVICE_ACCOUNT", "notion": "recollect connections verify"}
    if world.provider in lacking:
        assert (state, lacking[world.provider] in told) == ("fails", True)
    else:
        assert state == "unknown"


@every("world", ["web-crawler"], indirect=True)
def test_a_plan_that_is_too_low_is_told(world: World) -> None:
    connected(world)
    assert check(world)["plan"][0] == "holds"
    with world.app.db.begin() as tx:
        tx.execute("update orgs set plan = 'free' where id = %s", (world.org.id,))
    assert "not part of the plan free" in failing(check(world))["plan"]


@every("world", ["cabinet"], indirect=True)
def test_a_connector_that_would_write_is_stopped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected(world)

    def meddle(self: object, source: Source) -> Any:
        source.api.post("/hooks", {})
        yield from ()

    monkeypatch.setattr(type(connectors.get("cabinet")), "assumptions", meddle)
    world.peer.proxy.forget()
    assert "does not POST" in failing(check(world))["cabinet"]
    assert writes(world) == []


@every("world", ["notion"], indirect=True)
def test_another_workspace_is_told(world: World) -> None:
    connected(world)
    assert isinstance(world.peer, NotionPeer)
    with world.app.db.begin() as tx:
        tx.execute("update connections set account = 'of another workspace'")
    failed = failing(check(world))
    assert "not the workspace of this connection" in failed["workspace"]


def test_a_walk_has_an_end(monkeypatch: pytest.MonkeyPatch, app: App, org: Org, key: str) -> None:
    with PEERS["cabinet"]() as peer:
        assert isinstance(peer.settings, ProviderSettings)
        own = replace(
            app, config=app.config.model_copy(update={"providers": {"cabinet": peer.settings}})
        )
        with TestClient(create_app(own), headers={"authorization": f"Bearer {key}"}) as http:
            world = World(own, cast("httpx.Client", http), peer, "cabinet", org)
            peer.put("a", "text")
            connected(world)
            monkeypatch.setattr(account_check, "PATIENCE", timedelta(seconds=-1))
            with own.db.begin() as tx:
                found = connections.get(tx, Tenant(org.id), world.id)
            report = account_check.look(own, found)
    assert not report.holds
    assert any("took longer" in one.sentence for one in report.assumptions)


# --- the command -------------------------------------------------------------------------------


@every("world", ["github", "s3"], indirect=True)
def test_the_command_checks_what_is_there(world: World, key: str) -> None:
    connected(world)
    with serving(world.app) as url:
        words = ["connect", world.provider, "--check", "--url", url, "--key", key]
        shown = CliRunner().invoke(commands, words)
        assert shown.exit_code == 0, shown.output
        assert "ok" in shown.output
        assert world.id in shown.output
        told = CliRunner().invoke(commands, [*words, "--json"])
        assert '"holds": true' in told.output
        world.peer.revoke()
        bad = CliRunner().invoke(commands, words)
        assert bad.exit_code == 1
        assert "FAILS" in bad.output
    assert len(world.http.post("/v3/connections/list").json()) == 1, "none was made"


@every("world", ["s3", "github"], indirect=True)
def test_the_command_makes_one_if_there_is_none(world: World, key: str) -> None:
    given = [f"--set={name}={value}" for name, value in world.peer.metadata().items()]
    with serving(world.app) as url:
        words = ["connect", world.provider, "--check", "--url", url, "--key", key, *given]
        ended = CliRunner().invoke(commands, words)
    [made] = world.http.post("/v3/connections/list").json()
    assert made["id"] in ended.output
    if world.provider == "s3":
        assert ended.exit_code == 0, ended.output
    else:
        assert ended.exit_code == 1
        assert "authorize within" in ended.output
        assert "follow the link" in ended.output
