"""Secrets that can be recognised, through the whole life of a connection, and then looked for:
in logs, answers, every table as text, and every file of the data folder. None may be there.
"""

import base64
import json
import os
import secrets
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, quote, urlsplit

import httpx
import psycopg
import pytest
import re2 as _untyped
from psycopg import sql
from pydantic import SecretStr
from starlette.testclient import TestClient

from recollect import connectors
from recollect.api import create_app
from recollect.app import App
from recollect.config import ProviderSettings
from tests.connectors.peers import PEERS
from tests.connectors.test_conformance import known_connectors as known_connectors
from tests.connectors.test_conformance import unpaced as unpaced
from tests.connectors.test_conformance_pushes import Loud
from tests.connectors.test_conformance_pushes import loud as loud
from tests.fakes.website import Exchange, Website, answer

every = pytest.mark.parametrize
re2 = cast("Any", _untyped)
PREFIXES = {
    "google-drive": "googleDrive",
    "gmail": "googleDrive",
    "notion": "notion",
    "onedrive": "onedrive",
    "github": "github",
}


SECRETLESS = {"folder", "web-crawler"}
"""Nobody authorizes it and nothing of it is sealed, so there is nothing that could leak."""


@dataclass
class Canaries:
    """What must be nowhere; each is made once and recognised wherever it turns up."""

    made: dict[str, str] = field(default_factory=dict[str, str])

    def new(self, what: str) -> str:
        self.made[what] = f"canary{secrets.token_hex(16)}"
        return self.made[what]

    def found(self, text: bytes) -> list[str]:
        """In one pass: there are a hundred megabytes to look at, and as many forms."""
        known = {form: what for what, canary in self.made.items() for form in forms(canary)}
        options = re2.Options()
        options.encoding = re2.Options.Encoding.LATIN1
        any_of = re2.compile(b"|".join(map(re2.escape, known)), options)
        return sorted({known[hit] for hit in any_of.findall(text)})


def forms(canary: str) -> set[bytes]:
    """As they may be written; base64 in its three positions."""
    raw = canary.encode()
    shifted = {base64.b64encode(b"\0" * n + raw)[4 : -4 or None] for n in range(3)}
    return {raw, raw.hex().encode(), quote(canary, safe="").encode(), *shifted}


@dataclass
class Tokens:
    """A token endpoint that hands out canaries, and repeats in its errors what it was sent."""

    canaries: Canaries
    admit: Callable[[str], None]
    issued: list[str] = field(default_factory=list[str])
    asked: list[str] = field(default_factory=list[str])
    refuses: bool = False

    def __call__(self, exchange: Exchange) -> bool:
        body = exchange.request.body.decode()
        self.asked.append(body)
        sent = {k: v[0] for k, v in parse_qs(body).items()} if "=" in body else json.loads(body)
        if "code_verifier" in sent:
            self.canaries.made["verifier"] = sent["code_verifier"]
        if self.refuses:
            told: dict[str, Any] = {"error": "invalid_grant", "error_description": body}
            exchange.send(answer(400, json.dumps(told).encode(), JSON))
            return True
        number = len(self.issued)
        access = self.canaries.new(f"access token {number}")
        self.issued.append(access)
        self.admit(access)
        who = {"sub": "ann", "email": "me@example.com", "aud": sent.get("client_id")}
        claims = base64.urlsafe_b64encode(json.dumps(who).encode()).decode().rstrip("=")
        told = {
            "access_token": access,
            "refresh_token": self.canaries.new(f"refresh token {number}"),
            "token_type": "bearer",
            "expires_in": 3600,
        }
        if "client_id" in sent:  # Notion has it in a header, and tells who it was otherwise
            told["id_token"] = f"e30.{claims}.x"
        exchange.send(answer(200, json.dumps(told).encode(), JSON))
        return True


JSON = {"Content-Type": "application/json"}


@pytest.fixture
def endpoint() -> Generator[Website]:
    with Website() as site:
        yield site


@every("form", [str.encode, lambda c: c.encode().hex().encode(), lambda c: b64(c, 0)], ids=range(3))
@every("shift", range(3))
def test_a_canary_is_recognised(form: Callable[[str], bytes], shift: int) -> None:
    canaries = Canaries()
    canary = canaries.new("token")
    assert canaries.found(b"before " + form(canary) + b" after") == ["token"]
    assert canaries.found(b64(canary, shift)) == ["token"]
    assert canaries.found(form("another" * 6)) == []


def b64(canary: str, shift: int) -> bytes:
    return base64.b64encode(b"x" * shift + canary.encode() + b"yy")


@every(
    "loud",
    [
        name if name == "github" else pytest.param(name, marks=pytest.mark.slow)
        for name in PEERS
        if name not in SECRETLESS
    ],
    indirect=True,
)
def test_35_canaries_are_nowhere(
    loud: Loud,
    endpoint: Website,
    capfd: pytest.CaptureFixture[str],
    short_tmp: Path,
) -> None:
    canaries = Canaries()
    tokens = Tokens(canaries, loud.peer.admit)
    endpoint.route("/*", tokens)
    connector = connectors.get(loud.provider)
    given = loud.peer.settings
    providers: dict[str, ProviderSettings] = {}
    if given is not None:
        changed: dict[str, Any] = {
            "client_secret": SecretStr(canaries.new("client secret")),
            "token_url": endpoint.url("/token"),
        }
        providers[loud.provider] = given.model_copy(update=changed)
    own = replace(loud.app, config=loud.app.config.model_copy(update={"providers": providers}))
    heard: list[bytes] = []
    with TestClient(create_app(own), headers=dict(loud.http.headers)) as http:
        http.event_hooks["response"] = [lambda got: heard.append(got.read() + raw(got))]
        world = replace(loud, app=own, http=cast("httpx.Client", http))
        lead(world, canaries, tokens, connector.oauth is not None)
        canaries.made |= {f"webhook {n}": s for n, s in enumerate(loud.peer.hook_secrets())}
        sweep(own, canaries, heard, capfd, short_tmp)
        assert len(canaries.made) >= (1 if given is None else 4)

        http.delete(f"/v3/connections/{world.id}")
        world.work()
        loud.peer.proxy.behave()
        world.work()
        sweep(own, canaries, heard, capfd, short_tmp)


def raw(got: httpx.Response) -> bytes:
    return repr(got.headers.multi_items()).encode()


def lead(world: Loud, canaries: Canaries, tokens: Tokens, authorizes: bool) -> None:
    """Create, authorize, sync, push, refresh, fail, lose, come back; and look at all of it."""
    http, provider = world.http, world.provider
    metadata: dict[str, Any] = dict(world.peer.metadata())
    for name in connectors.get(provider).secrets & metadata.keys():
        metadata[name] = canaries.new(name)
    asked = {"containerTags": ["notes"], "metadata": metadata}
    if (prefix := PREFIXES.get(provider)) is not None:
        own = {f"{prefix}CustomKeyEnabled": True, f"{prefix}ClientId": "own-id"}
        own[f"{prefix}ClientSecret"] = canaries.new("client secret of the organisation")
        assert http.patch("/v3/settings", json=own).status_code == 200
    made = http.post(f"/v3/connections/{provider}", json=asked).json()
    world.id = made["id"]
    if authorizes:
        follow(world, made["authLink"], canaries)
    if world.peer.picks():
        http.post(f"/v3/connections/{world.id}/configure", json={"resources": world.peer.picks()})
    look(world, world.sync)
    world.agrees()
    world.peer.put("n8", "Pushed.")
    world.peer.deliver()
    world.work()
    if authorizes:
        world.peer.banish(tokens.issued[-1])
        look(world, world.sync)
        assert len(tokens.issued) == 2, "it was refreshed"

    sent = tokens.issued[-1:] + [canaries.made[n] for n in ("accessKeyId",) if n in canaries.made]
    echo = " ".join(sent).encode()  # as some servers repeat what they were asked with
    for status in (500, 403, 400):
        world.peer.proxy.on(".", status=status, body=echo, times=None)
        look(world, world.sync)
        world.peer.proxy.behave()
        look(world, world.sync)
    if authorizes:
        tokens.refuses = True
        world.peer.banish(tokens.issued[-1])
        shown = look(world, world.sync)
        assert shown["state"] == "needs_auth"
        tokens.refuses = False
        link = http.post(f"/v3/connections/{world.id}/authorize").json()["authLink"]
        follow(world, link, canaries)
        look(world, world.sync)
        world.agrees()


def follow(world: Loud, link: str, canaries: Canaries) -> None:
    """The user agrees, and comes back with a code that is a canary."""
    state = parse_qs(urlsplit(link).query)["state"][0]
    code = canaries.new("code")
    path = f"/v3/connections/auth/callback/{world.provider}?state={state}&code={code}"
    answer = world.caller.get("/health")
    assert answer.status_code == 200
    answer = world.http.get(path, headers={"authorization": ""})
    assert answer.status_code == 200, answer.text


def look(world: Loud, work: Callable[[], object]) -> dict[str, Any]:
    """Do it, and ask for everything that could tell of it."""
    work()
    base = f"/v3/connections/{world.id}"
    for path in (base, f"{base}/sync-runs", f"{base}/items", "/v3/settings", "/v3/audit"):
        world.http.get(path)
    world.http.post(f"{base}/check")
    world.http.post("/v3/connections/list", json={})
    for document in world.documents().values():
        world.http.get(f"/v3/documents/{document['id']}")
    world.http.get(f"{base}/resources")
    return world.connection()


def sweep(
    app: App,
    canaries: Canaries,
    heard: list[bytes],
    capfd: pytest.CaptureFixture[str],
    short_tmp: Path,
) -> None:
    assert len(heard) > 10
    assert canaries.found(b"\n".join(heard)) == [], "in an answer"
    out, err = capfd.readouterr()
    assert "[info" in out + err, "there is a log"
    assert canaries.found((out + err).encode()) == [], "in the log"
    for table, text in dump(app).items():
        assert canaries.found(text) == [], f"in the table {table}"
    seen = 0
    # The data folder, and the database's own beside it, where folders come and go meanwhile.
    for folder, _, names in os.walk(short_tmp):
        for path in (Path(folder, name) for name in names):
            try:
                if path.is_symlink() or not path.is_file():
                    continue
                data = path.read_bytes()
            except OSError:
                continue  # it was a temporary one
            seen += 1
            assert canaries.found(data) == [], f"in the file {path}"
    assert seen > 10


def dump(app: App) -> dict[str, bytes]:
    """Every table as a dump writes it."""
    texts: dict[str, bytes] = {}
    with app.db.begin() as tx:
        names = [
            row["table_name"]
            for row in tx.execute(
                "select table_name from information_schema.tables where table_schema = 'public'"
                " and table_type = 'BASE TABLE'"
            ).fetchall()
        ]
    with psycopg.connect(app.db.url) as session, session.cursor() as cursor:
        for name in names:
            with cursor.copy(sql.SQL("copy {} to stdout").format(sql.Identifier(name))) as copy:
                texts[name] = b"".join(bytes(part) for part in copy)
    assert "connections" in texts
    assert "farewells" in texts
    return texts


def test_only_some_providers_have_no_secrets() -> None:
    without = {name for name, one in connectors.all().items() if not (one.oauth or one.secrets)}
    assert without == SECRETLESS
