"""Two connections that bring the same into one tag: the API, the console and the page that ends an
authorization say so."""

from typing import Any

import httpx
import pytest

from recollect.app import App
from recollect.db import Tx
from recollect.model import Connection, ConnectionId, Tenant, random_id
from recollect.sync import authorizations, connections, overlaps
from recollect.sync.connections import SealedConnection

BUCKET = {"bucket": "papers", "endpoint": "http://127.0.0.1:9"}
PICKED = [{"id": "1", "name": "a/docs", "branch": "main"}]
OTHERS = [*PICKED, {"id": "2", "name": "a/site", "branch": "main"}]
SOME = "brings some of the same into notes"
SAME = "brings the same into notes"
ACCOUNT = "brings things of the same account into notes"


def made(
    tx: Tx, tenant: Tenant, provider: str, metadata: dict[str, Any], *tags: str, account: str = ""
) -> Connection:
    id = ConnectionId(random_id())
    new = SealedConnection(provider, tags, 100, metadata, None, bool(account), due=False)
    found = connections.create(tx, tenant.id, new, id)
    if account:
        authorizations.authorize(
            tx, found, tokens="", expires_at=None, account=account, email=None, due=False
        )
    return connections.get(tx, tenant, id)


@pytest.mark.parametrize(
    ("provider", "first", "second", "told"),
    [
        ("s3", BUCKET, BUCKET, SAME),
        ("s3", BUCKET, BUCKET | {"prefix": "docs/"}, SOME),
        ("s3", BUCKET | {"prefix": "docs/"}, BUCKET | {"prefix": "papers/"}, None),
        ("s3", BUCKET, BUCKET | {"endpoint": "https://other.example"}, None),
        ("folder", {"path": "/srv/a"}, {"path": "/srv/a/"}, SAME),
        ("folder", {"path": "/srv/a"}, {"path": "/srv/a/b"}, SOME),
        ("folder", {"path": "/srv/a"}, {"path": "/srv/ab"}, None),
        ("web-crawler", {"startUrl": "https://a.example"}, {"startUrl": "https://a.example"}, SAME),
        ("web-crawler", {"startUrl": "https://a.example"}, {"startUrl": "https://b.example"}, None),
        ("github", {"resources": PICKED}, {"resources": PICKED}, SAME),
        ("github", {"resources": OTHERS}, {"resources": PICKED}, SOME),
        ("github", {"resources": OTHERS[1:]}, {"resources": PICKED}, None),
        ("github", {}, {}, None),
        ("gmail", {}, {}, SAME),
        ("gmail", {"query": "from:ann"}, {}, ACCOUNT),
        ("notion", {}, {}, SAME),
        ("onedrive", {}, {}, SAME),
        ("google-drive", {}, {}, SAME),
        ("google-drive", {"syncScope": "selected", "folders": "0Bone"}, {}, ACCOUNT),
        (
            "google-drive",
            {"syncScope": "selected", "folders": "0Bone"},
            {"syncScope": "selected", "folders": "0Btwo"},
            None,
        ),
    ],
)
def test_what_comes_in_twice_is_told_of_both(
    app: App,
    tenant: Tenant,
    provider: str,
    first: dict[str, Any],
    second: dict[str, Any],
    told: str | None,
) -> None:
    by_account = provider in ("github", "gmail", "google-drive", "notion", "onedrive")
    account = "ann" if by_account else ""
    with app.db.begin() as tx:
        one = made(tx, tenant, provider, first, "notes", "mine", account=account)
        two = made(tx, tenant, provider, second, "yours", "notes", account=account)
        made(tx, tenant, provider, first, "elsewhere", account=account)
        if by_account and provider != "github":
            made(tx, tenant, provider, first, "notes", account="bob")

        for here, other in ((one, two), (two, one)):
            said = overlaps.told(tx, tenant, here)
            assert [f"Connection {other.id} {told}, too" in line for line in said] == (
                [True] if told else []
            )


def test_the_api_warns_when_it_is_made_and_when_it_is_changed(client: httpx.Client) -> None:
    given = {**BUCKET, "region": "eu-central-1", "accessKeyId": "A", "secretAccessKey": "b"}

    def create(tag: str) -> dict[str, Any]:
        body = {"containerTags": [tag], "metadata": given}
        return client.post("/v3/connections/s3", json=body).json()

    one, two, three = create("notes"), create("notes"), create("elsewhere")
    path = f"/v3/connections/{three['id']}"
    moved = client.patch(path, json={"containerTags": ["notes"], "paused": True}).json()

    assert "warnings" not in one
    assert [SAME in line and one["id"] in line for line in two["warnings"]] == [True]
    assert "warnings" not in three
    assert len(moved["warnings"]) == 2
