"""From the link to the hit, with GitHub played by `emulate`, as a caller and a user see it."""

import base64
from collections.abc import Generator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, cast
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.testclient import TestClient

from recollect.api import create_app
from recollect.app import App
from recollect.config import ProviderSettings
from recollect.worker import syncs
from recollect.worker.processing import drain
from tests.connectors.test_oauth_flow import press
from tests.fakes.emulate import behind_proxy
from tests.fakes.proxy import Proxy

PUBLIC = "http://recollect.test"
SEED: dict[str, Any] = {
    "tokens": {"ann-token": {"login": "ann", "scopes": ["repo", "user", "admin:repo_hook"]}},
    "github": {
        # An unknown bearer is the first user.
        "users": [{"login": "aa-decoy"}, {"login": "ann", "email": "ann@example.com"}],
        "repos": [{"owner": "ann", "name": "handbook", "auto_init": True, "private": True}],
        "oauth_apps": [
            {
                "client_id": "id",
                "client_secret": "s3cret-github",
                "name": "Recollect",
                "redirect_uris": [f"{PUBLIC}/v3/connections/auth/callback/github"],
            }
        ],
    },
}


@pytest.fixture
def github() -> Generator[Proxy]:
    with ExitStack() as stack:
        proxy = stack.enter_context(behind_proxy("github", SEED))
        proxy.strict = True
        proxy.admit("ann-token")
        yield proxy


@pytest.fixture
def http(app: App, key: str, github: Proxy) -> Generator[tuple[App, httpx.Client]]:
    settings = ProviderSettings(
        client_id="id",
        client_secret="s3cret-github",  # pyright: ignore[reportArgumentType] # pydantic wraps it
        api_url=github.url,
        auth_url=f"{github.url}/login/oauth/authorize",
        token_url=f"{github.url}/login/oauth/access_token",
    )
    config = app.config.model_copy(update={"providers": {"github": settings}, "public_url": PUBLIC})
    own = replace(app, config=config)
    with TestClient(create_app(own), headers={"authorization": f"Bearer {key}"}) as client:
        yield own, cast("httpx.Client", client)


def write(github: Proxy, path: str, text: str) -> None:
    """As the user, on the default branch."""
    with httpx.Client(
        base_url=github.url, headers={"authorization": "Bearer ann-token"}, trust_env=False
    ) as ann:
        content = base64.b64encode(text.encode()).decode()
        known = ann.get(f"/repos/ann/handbook/contents/{path}")
        sha = {"sha": known.json()["sha"]} if known.status_code == 200 else {}
        body = {"message": "write", "content": content, **sha}
        ann.put(f"/repos/ann/handbook/contents/{path}", json=body).raise_for_status()


def test_from_the_link_to_the_hit(github: Proxy, http: tuple[App, httpx.Client]) -> None:
    app, client = http
    write(github, "guide/start.md", "# Start\n\nThe aardvark opens the door at nine.")
    body = {"containerTags": ["handbook"], "redirectUrl": "https://app.example/done"}
    made = client.post("/v3/connections/github", json=body).json()
    consent = press(github, "/login/oauth/callback", login="ann")
    back = urlsplit(consent(made["authLink"]))
    answer = client.get(
        f"{back.path}?{back.query}", headers={"authorization": ""}, follow_redirects=False
    )
    assert "status=connected" in answer.headers["location"]

    listed = client.get(f"/v3/connections/{made['id']}/resources").json()
    [handbook] = [one for one in listed["resources"] if one["full_name"] == "ann/handbook"]
    picked = {"id": handbook["id"], "name": "ann/handbook", "defaultBranch": "main"}
    told = client.post(f"/v3/connections/{made['id']}/configure", json={"resources": [picked]})
    assert told.json()["success"] is True

    def work() -> dict[str, Any]:
        syncs.drain(app)
        drain(app)
        return client.get(f"/v3/connections/{made['id']}").json()

    shown = work()
    assert shown["email"] == "ann@example.com"
    assert shown["lastSyncRun"]["status"] == "completed"
    hits = client.post("/v3/search", json={"q": "when does the aardvark open"}).json()["results"]
    assert hits[0]["type"] == "github_markdown"
    assert "aardvark opens the door at nine" in hits[0]["chunks"][0]["content"]

    write(github, "guide/start.md", "# Start\n\nThe aardvark opens the door at ten.")
    client.post("/v3/connections/github/import", json={"containerTags": ["handbook"]})
    work()
    hits = client.post("/v3/search", json={"q": "when does the aardvark open"}).json()["results"]
    assert "at ten" in hits[0]["chunks"][0]["content"]

    github.forget()
    gone = client.delete(f"/v3/connections/{made['id']}")
    assert gone.json() == {"id": made["id"], "provider": "github"}
    syncs.drain(app)
    assert client.post("/v3/search", json={"q": "aardvark"}).json()["results"] == []
    assert github.asked("^DELETE /applications/id/grant") == 1, "it was taken back"
    github.forget()
    work_again = syncs.drain(app)
    assert (work_again, github.log) == (0, [])
