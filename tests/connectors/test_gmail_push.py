"""Pushes of Pub/Sub, signed by an independent token server with keys of its own.

From the HTTP of the push to the connection that is wanted; the keys come over HTTP as Google's do.
"""

import json
import time
from collections.abc import Callable, Generator
from dataclasses import replace
from datetime import datetime
from typing import Any

import httpx
import jwt
import pytest

from recollect.app import App
from recollect.connectors.gmail._settings import GmailSettings
from recollect.connectors.oauth import Tokens
from recollect.model import ConnectionId, Org, Tenant, random_id
from recollect.sync import authorizations, connections
from recollect.sync.credentials import seal_tokens
from tests.conftest import serving
from tests.fakes.gmail import ME, envelope
from tests.fakes.signer import Signer

AUDIENCE = "https://recollect.example.com/v3/hooks/gmail"
ACCOUNT = "push@recollect-test.iam.gserviceaccount.com"
RIGHT: dict[str, Any] = {"aud": AUDIENCE, "email": ACCOUNT, "email_verified": True, "sub": "1"}


@pytest.fixture(scope="module")
def signer() -> Generator[Signer]:
    with Signer() as made:
        yield made


@pytest.fixture(scope="module")
def address(app: App, signer: Signer) -> Generator[str]:
    given = GmailSettings.model_construct(
        pubsub_audience=AUDIENCE,
        pubsub_service_account=ACCOUNT,
        pubsub_certs_url=signer.certs_url,
    )
    own = app.config.model_copy(update={"providers": {"gmail": given}})
    with serving(replace(app, config=own)) as url:
        yield url


@pytest.fixture
def connection(app: App, org: Org) -> str:
    new = connections.SealedConnection("gmail", ["mail"], 100, {}, None, pending=True)
    with app.db.begin() as tx:
        made = connections.create(tx, org.id, new, ConnectionId(random_id()))
        sealed = seal_tokens(app, made.id, Tokens("token"))
        authorizations.authorize(
            tx, made, tokens=sealed, expires_at=None, account=made.id, email=ME, due=False
        )
    return made.id


Pushed = Callable[[], datetime | None]


@pytest.fixture
def pushed(app: App, org: Org, connection: str) -> Pushed:
    """When the last push for the connection came."""

    def look() -> datetime | None:
        with app.db.begin() as tx:
            return connections.get(tx, Tenant(org.id), connection).pushed_at

    return look


def push(address: str, token: str | None, message_id: str | None = None) -> int:
    body = envelope(ME, 9876, message_id or random_id())
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    url = f"{address}/v3/hooks/gmail"
    return httpx.post(url, json=body, headers=headers, trust_env=False).status_code


def test_the_signer_is_like_google(signer: Signer):
    """Else this proves nothing: keys with names, RS256, Google as issuer, an hour to live."""
    token = signer.token(**RIGHT)
    head = jwt.get_unverified_header(token)
    said = jwt.decode(token, options={"verify_signature": False})
    keys = httpx.get(signer.certs_url, trust_env=False).json()["keys"]

    assert head["alg"] == "RS256"
    assert [head["kid"]] == [key["kid"] for key in keys]
    assert said["iss"] == "https://accounts.google.com"
    assert said["exp"] - said["iat"] == 3600


def test_a_push_that_it_signed_has_the_mailbox_synced(address: str, signer: Signer, pushed: Pushed):
    assert push(address, signer.token(**RIGHT)) == 200

    assert pushed() is not None


def test_a_push_that_comes_twice_is_one(address: str, signer: Signer, pushed: Pushed):
    id = random_id()
    push(address, signer.token(**RIGHT), id)
    first = pushed()

    assert push(address, signer.token(**RIGHT), id) == 200

    assert pushed() == first


NOW = int(time.time())
FORGERIES: dict[str, dict[str, Any]] = {
    "other_audience": {"aud": "https://other.example.com"},
    "no_audience": {"aud": None},
    "other_account": {"email": "push@evil.iam.gserviceaccount.com"},
    "no_account": {"email": None},
    "unverified": {"email_verified": False},
    "other_issuer": {"iss": "https://accounts.example.com"},
    "expired": {"iat": NOW - 7200, "exp": NOW - 3600},
    "not_yet": {"nbf": NOW + 24 * 3600},
    "for_ever": {"exp": None},
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_what_it_signs_for_others_is_refused(
    address: str, signer: Signer, pushed: Pushed, forgery: str
):
    token = signer.token(**{**RIGHT, **FORGERIES[forgery]})

    assert push(address, token) == 401
    assert pushed() is None


def test_what_another_server_signs_is_refused(address: str, signer: Signer, pushed: Pushed):
    with Signer() as other:
        foreign = other.token(**RIGHT)
    renamed = signer.token(**RIGHT).split(".")[0] + "." + foreign.split(".", 1)[1]

    assert push(address, foreign) == 401
    assert push(address, renamed) == 401
    assert push(address, None) == 401
    assert pushed() is None


def test_an_authentic_push_for_an_unknown_mailbox_is_acknowledged(address: str, signer: Signer):
    """Else Pub/Sub would repeat it for a week."""
    body = json.dumps(envelope("nobody@example.com", 1, random_id()))
    headers = {"authorization": f"Bearer {signer.token(**RIGHT)}"}

    answer = httpx.post(f"{address}/v3/hooks/gmail", content=body, headers=headers, trust_env=False)

    assert answer.status_code == 200
