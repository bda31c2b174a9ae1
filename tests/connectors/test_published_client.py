"""Each provider that a user authorizes, through the published Python client from end to end."""

import base64
import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import supermemory
from pydantic import SecretStr
from supermemory import Supermemory

from recollect import connectors
from recollect.app import App
from recollect.model import Org, Tenant
from recollect.sync import connections
from recollect.worker import syncs
from recollect.worker.processing import drain
from tests.conftest import serving
from tests.connectors.peers import PEERS, Peer
from tests.fakes.authorization import CLIENT_ID, CLIENT_SECRET, AuthorizationServer

ANN = "ann@example.com"


@dataclass(frozen=True)
class Expected:
    type: str
    url: str
    """how each begins"""


EXPECTED = {
    "google-drive": Expected("google_doc", "https://drive.google.com/"),
    "gmail": Expected("text", "https://mail.google.com/mail/u/"),
    "notion": Expected("notion_doc", "https://www.notion.so/"),
    "onedrive": Expected("onedrive", "https://"),
}


class Provider(AuthorizationServer):
    """Its access tokens open the peer; who authorized stands in an id_token, too."""

    def __init__(self, peer: Peer, **how: Any) -> None:
        super().__init__(**how)
        self._peer = peer

    def token(self, asked: dict[str, str]) -> dict[str, Any]:
        said = super().token(asked)
        self._peer.admit(said["access_token"])
        claims = json.dumps({"sub": f"id of {ANN}", "email": ANN, "aud": CLIENT_ID}).encode()
        parts = [b'{"alg":"none"}', claims, b""]
        told = [base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts]
        return {**said, "id_token": ".".join(told)}


@dataclass
class World:
    app: App
    url: str
    name: Any
    peer: Peer
    authorization: AuthorizationServer
    sdk: Supermemory

    def connect(self, tag: str) -> str:
        """Created, and agreed to by the user in the browser."""
        made = self.sdk.connections.create(
            self.name,
            container_tags=[tag],
            document_limit=1_000,
            metadata=self.peer.metadata(),
            redirect_url="http://127.0.0.1/back",
        )
        assert made.auth_link
        assert made.expires_in == "1 hour"
        assert made.id
        back = urlsplit(self.authorization.consent(made.auth_link, user=ANN))
        answer = httpx.get(f"{self.url}{back.path}?{back.query}", trust_env=False)
        assert answer.status_code == 303
        assert "status=connected" in answer.headers["location"]
        return made.id

    def work(self) -> None:
        syncs.drain(self.app)
        drain(self.app)

    def titles(self, tag: str) -> set[str]:
        listed = self.sdk.connections.list_documents(
            self.name,
            container_tags=[tag],
        )
        return {self.peer.name_of({"title": one.title}) for one in listed}


@pytest.fixture
def unpaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fakes have no rate that calls of one connection would have to keep."""
    for connector in connectors.all().values():
        if connector.per_second is not None:
            monkeypatch.setattr(connector, "per_second", None, raising=False)


@contextmanager
def world(app: App, key: str, name: str) -> Generator[World]:
    how: dict[str, Any] = {"client": "basic", "takes": "json"} if name == "notion" else {}
    with PEERS[name]() as peer, Provider(peer, **how) as authorization:
        assert peer.settings is not None
        settings = peer.settings.model_copy(
            update={
                "client_id": CLIENT_ID,
                "client_secret": SecretStr(CLIENT_SECRET),
                "auth_url": f"{authorization.url}/authorize",
                "token_url": f"{authorization.url}/token",
                "revoke_url": f"{authorization.url}/revoke",
            }
        )
        ours = replace(app, config=app.config.model_copy(update={"providers": {name: settings}}))
        with (
            serving(ours) as url,
            Supermemory(base_url=url, api_key=key, max_retries=0) as sdk,
        ):
            yield World(ours, url, name, peer, authorization, sdk)


@pytest.fixture(params=list(EXPECTED))
def lived(request: pytest.FixtureRequest, app: App, key: str, unpaced: None) -> Generator[World]:
    with world(app, key, request.param) as made:
        yield made


def test_a_connection_lives_through_the_published_client(lived: World):
    """Create, authorize, list with title, type, status and url, import, delete by provider."""
    sdk, expected = lived.sdk, EXPECTED[lived.name]
    lived.peer.put("heron", "Herons eat frogs.")
    lived.peer.put("stork", "Storks eat frogs, too.")
    id = lived.connect("marsh")
    lived.work()

    found = sdk.connections.get_by_id(id)
    page = sdk.documents.list(container_tags=["marsh"]).memories
    whole = [sdk.documents.get(one.id) for one in page]
    assert (found.provider, found.email) == (lived.name, ANN)
    assert lived.titles("marsh") == {"heron", "stork"}
    assert {(one.type, one.status) for one in page} == {(expected.type, "done")}
    assert all(str(one.url).startswith(expected.url) for one in whole)
    assert len({one.url for one in whole}) == 2
    assert sdk.search.documents(q="Storks eat", container_tags=["marsh"]).results

    lived.peer.put("ibis", "Ibises eat insects.")
    lived.peer.remove("heron")
    assert sdk.connections.import_(
        lived.name,
        container_tags=["marsh"],
    )
    lived.work()
    assert lived.titles("marsh") == {"ibis", "stork"}

    sdk.connections.delete_by_provider(lived.name, container_tags=["marsh"])
    lived.work()
    assert sdk.documents.list(container_tags=["marsh"]).memories == []
    with pytest.raises(supermemory.NotFoundError):
        sdk.connections.get_by_id(id)


BASE = "https://www.googleapis.com/auth/"
WHO = ["openid", "email"]


@pytest.mark.parametrize(
    ("name", "granted", "lacking"),
    [
        ("google-drive", WHO, f"{BASE}drive.readonly"),
        # Only what a user picks file by file.
        ("google-drive", [*WHO, f"{BASE}drive.file"], f"{BASE}drive.readonly"),
        ("google-drive", [*WHO, f"{BASE}drive.metadata.readonly"], f"{BASE}drive.readonly"),
        ("gmail", WHO, f"{BASE}gmail.readonly"),
        ("gmail", [*WHO, f"{BASE}gmail.metadata"], f"{BASE}gmail.readonly"),
        ("onedrive", ["User.Read"], "Files.Read"),
    ],
)
def test_a_box_that_stays_empty_is_named_and_another_try_is_free(
    app: App, key: str, name: str, granted: list[str], lacking: str
):
    with world(app, key, name) as made:
        created = made.sdk.connections.create(made.name, container_tags=["marsh"])
        assert created.id
        assert created.auth_link
        back = urlsplit(made.authorization.consent(created.auth_link, user=ANN, scopes=granted))
        answer = httpx.get(f"{made.url}{back.path}?{back.query}", trust_env=False)
        made.work()

        assert answer.status_code == 400
        assert lacking in answer.text
        assert made.sdk.connections.list_documents(made.name, container_tags=["marsh"]) == []
        assert made.connect("marsh")


@pytest.mark.slow
def test_a_long_first_walk_shows_how_far_it_is(app: App, org: Org, key: str):
    """Looked at from outside, while it goes on; Gmail allows few calls a second."""
    with world(app, key, "gmail") as made:
        made.peer.fill(range(24))
        id = made.connect("marsh")
        seen: list[int] = []
        ended = threading.Event()

        def look() -> None:
            while not ended.wait(0.01):
                with app.db.begin() as tx:
                    run = connections.get(tx, Tenant(org.id), id).last_run
                if run is not None and run.status == "running":
                    seen.append(run.added)

        watcher = threading.Thread(target=look)
        watcher.start()
        try:
            syncs.drain(made.app)
        finally:
            ended.set()
            watcher.join()
        with app.db.begin() as tx:
            run = connections.get(tx, Tenant(org.id), id).last_run

        assert run is not None
        assert (run.status, run.added) == ("completed", 24)
        assert seen == sorted(seen)
        assert any(0 < added < 24 for added in seen)


Delete = Callable[[Supermemory, str], object]
WAYS: dict[str, tuple[Delete, set[str]]] = {
    "with_documents": (lambda sdk, id: sdk.connections.delete_by_id(id), set()),
    "without_them": (
        lambda sdk, id: sdk.connections.delete_by_id(id, delete_documents="false"),
        {"heron"},
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_connection_is_deleted_with_its_documents_or_without(lived: World, way: str):
    delete, left = WAYS[way]
    lived.peer.put("heron", "Herons eat frogs.")
    id = lived.connect("left")
    lived.work()

    delete(lived.sdk, id)
    lived.work()

    kept = lived.sdk.documents.list(container_tags=["left"]).memories
    assert {lived.peer.name_of({"title": one.title}) for one in kept} == left
    assert lived.sdk.connections.list(container_tags=["left"]) == []
