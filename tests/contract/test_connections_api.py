"""Connections on the wire: contract S8 to S14, D9 to D11, and what is ours beside them."""

from collections.abc import Callable, Generator
from typing import Any

import httpx
import pytest
from supermemory import Supermemory

from recollect.api import connections as older
from recollect.app import App
from recollect.model import ConnectionId, Org, Plan, Tenant, random_id
from recollect.orgs import orgs
from recollect.sync import connections
from recollect.sync.connections import SealedConnection
from recollect.worker import syncs
from recollect.worker.processing import drain
from tests.contract.calls import refused
from tests.fakes.shelf import SHELVES, Shelf, ShelfConnector, providing, shelved

Make = Callable[..., dict[str, Any]]


@pytest.fixture(autouse=True)
def known_connectors() -> Generator[None]:
    with providing(shelf=ShelfConnector()):
        yield


@pytest.fixture
def shelf() -> Generator[Shelf]:
    with shelved() as made:
        for n in range(3):
            made.put(f"{n}", f"The text of number {n}.")
        yield made


@pytest.fixture
def create(client: httpx.Client, shelf: Shelf) -> Make:
    def make(*tags: str, **body: Any) -> dict[str, Any]:
        [name] = [name for name, known in SHELVES.items() if known is shelf]
        metadata = {"shelf": name, "password": "hunter2", "team": "ops"}
        answer = client.post(
            "/v3/connections/shelf",
            json={"containerTags": list(tags or ("notes",)), "metadata": metadata, **body},
        )
        assert answer.status_code == 200, answer.text
        return answer.json()

    return make


def work(app: App) -> None:
    syncs.drain(app)
    drain(app)


# --- create and read -----------------------------------------------------------------------------


def test_what_needs_no_authorization_is_ready_at_once(
    app: App, client: httpx.Client, create: Make
) -> None:
    made = create("notes", redirectUrl="https://app.example/done", documentLimit=50)
    assert made == {
        "id": made["id"],
        "redirectsTo": "https://app.example/done",
        "authLink": None,
        "expiresIn": None,
    }
    work(app)
    shown = client.get(f"/v3/connections/{made['id']}").json()
    assert shown["provider"] == "shelf"
    assert shown["documentLimit"] == 50
    assert shown["containerTags"] == ["notes"]
    assert shown["lastSyncRun"]["status"] == "completed"
    assert "email" not in shown
    assert shown["createdAt"].endswith("Z")


def test_secrets_of_the_metadata_are_never_shown(
    app: App, client: httpx.Client, create: Make
) -> None:
    made = create()
    shown = client.get(f"/v3/connections/{made['id']}")
    assert shown.json()["metadata"]["team"] == "ops"
    assert "password" not in shown.json()["metadata"]
    with app.db.begin() as tx:
        row = tx.execute("select * from connections where id = %s", (made["id"],)).fetchone()
    assert "hunter2" not in str(row)


def test_metadata_changes_without_the_secrets_being_sent_again(
    app: App, client: httpx.Client, create: Make
) -> None:
    made = create()
    metadata = client.get(f"/v3/connections/{made['id']}").json()["metadata"]
    answer = client.patch(
        f"/v3/connections/{made['id']}",
        json={"metadata": {**metadata, "team": "dev"}, "documentLimit": 2},
    )
    assert answer.status_code == 200
    assert answer.json()["metadata"]["team"] == "dev"
    work(app)
    assert len(client.post("/v3/connections/shelf/documents").json()) == 2


def test_more_documents_than_a_page_are_on_the_next(
    app: App, client: httpx.Client, create: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two connections bring more together than one page holds."""
    assert older.LIMIT == 10_000
    monkeypatch.setattr(older, "LIMIT", 100)
    work_of = [create("a")["id"], create("b")["id"]]
    work(app)
    path = "/v3/connections/shelf/documents"
    before = int(client.post(path).headers["X-Total-Count"])
    with app.db.begin() as tx:
        for connection in work_of:
            tx.execute(
                "insert into documents (id, org_id, container_tags, scope, kind, source, content,"
                " content_hash, connection_id, source_id, status, due_at)"
                " select c.id || n, c.org_id, c.container_tags, '{}', 'text', 'shelf', 'Text.',"
                " 'hash', c.id, 'many ' || n, 'done', null"
                " from connections c, generate_series(1, 51) n where c.id = %s",
                (connection,),
            )
    first, second = client.post(path), client.post(path, params={"page": 2})
    assert first.headers["X-Total-Count"] == str(before + 102)
    assert (len(first.json()), len(second.json())) == (100, before + 2)
    ids = {one["id"] for one in [*first.json(), *second.json()]}
    assert len(ids) == before + 102


def test_documents_of_a_connection(app: App, client: httpx.Client, create: Make) -> None:
    made = create("a", "b")
    work(app)
    listed = client.post("/v3/connections/shelf/documents", json={"containerTags": ["b"]}).json()
    assert sorted(document["title"] for document in listed) == ["Thing 0", "Thing 1", "Thing 2"]
    assert {document["status"] for document in listed} == {"done"}
    assert listed[0]["url"].startswith("https://shelf.example/")
    one = client.get(f"/v3/documents/{listed[0]['id']}").json()
    assert (one["connectionId"], one["source"]) == (made["id"], "shelf")
    nothing = client.post("/v3/connections/shelf/documents", json={"containerTags": ["c"]})
    assert nothing.json() == []


def test_lists_want_all_of_the_tags(client: httpx.Client, create: Make) -> None:
    both, one = create("a", "b"), create("a")
    listed = client.post("/v3/connections/list", json={"containerTags": ["a"]}).json()
    assert [found["id"] for found in listed] == [one["id"], both["id"]]
    listed = client.post("/v3/connections/list", json={"containerTags": ["a", "b"]}).json()
    assert [found["id"] for found in listed] == [both["id"]]
    found = client.post("/v3/connections/shelf/connection", json={"containerTags": ["a"]}).json()
    assert found["id"] == one["id"], "the newest"
    assert client.post("/v3/connections/list").status_code == 200
    missing = client.post("/v3/connections/shelf/connection", json={"containerTags": ["zzz"]})
    assert missing.status_code == 404


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("provider", "body", "status", "told"),
    [
        ("telegraph", {}, 400, "there is no 'telegraph'"),
        ("granola", {}, 400, "there is no 'granola'"),
        ("shelf", {"documentLimit": 0}, 400, "documentLimit"),
        ("shelf", {"documentLimit": 10_001}, 400, "documentLimit"),
        ("shelf", {"metadata": {"a": {"b": 1}}}, 400, "metadata"),
        ("shelf", {"metadata": {"shelf": "none"}}, 400, "no such shelf"),
        ("shelf", {"redirectUrl": "javascript:alert(1)"}, 400, "redirectUrl"),
        ("shelf", {"redirectUrl": "http://good@evil.example/"}, 400, "redirectUrl"),
        ("shelf", {"containerTags": ["no spaces"]}, 400, "containerTag"),
    ],
)
def test_bad_requests_name_the_field(
    client: httpx.Client, provider: str, body: dict[str, Any], status: int, told: str
) -> None:
    answer = client.post(f"/v3/connections/{provider}", json=body)
    assert answer.status_code == status
    assert told in answer.json()["details"]


def test_metadata_of_a_change_is_as_flat_as_that_of_a_new_one(
    client: httpx.Client, served: Callable[..., httpx.Client], create: Make
) -> None:
    path = f"/v3/connections/{create()['id']}"
    strict = served(metadata_arrays="refuse")
    body = {"metadata": {"team": ["dev", "ops"]}, "documentLimit": 2}
    for answer in (strict.patch(path, json=body), strict.post("/v3/connections/shelf", json=body)):
        told = refused(answer, 400, "team: arrays are not allowed as values")
        assert told["issues"][0]["path"] == ["metadata", "team"]
    # An empty one as well, and what is picked only where something may be picked.
    refused(strict.patch(path, json={"metadata": {"team": []}}), 400, "arrays are not allowed")
    refused(strict.patch(path, json={"metadata": {"resources": []}}), 400, "arrays are not allowed")
    now = client.get(path).json()
    assert (now["metadata"]["team"], now["documentLimit"]) == ("ops", 10_000)

    name = now["metadata"]["shelf"]
    liberal = client
    body = {"metadata": {"shelf": name, "team": ["dev", "ops"]}}
    assert liberal.patch(path, json=body).json()["metadata"]["team"] == ["dev", "ops"]
    assert liberal.post("/v3/connections/shelf", json=body).status_code == 200


def test_the_plan_gate(app: App, client: httpx.Client, org: Org) -> None:
    with app.db.begin() as tx:
        orgs.change_plan(tx, org.name, Plan.PRO)
    answer = client.post(
        "/v3/connections/web-crawler", json={"metadata": {"startUrl": "https://example.com"}}
    )
    assert answer.status_code == 403
    assert answer.json()["error"] == "web-crawler requires a Scale or Enterprise plan"


def test_a_connection_of_others_is_unknown(
    client: httpx.Client, stranger: httpx.Client, create: Make
) -> None:
    made = create()
    for call in (
        stranger.get(f"/v3/connections/{made['id']}"),
        stranger.delete(f"/v3/connections/{made['id']}"),
        stranger.post(f"/v3/connections/{made['id']}/sync"),
        stranger.get(f"/v3/connections/{made['id']}/items"),
        stranger.get(f"/v3/connections/{made['id']}/sync-runs"),
        stranger.patch(f"/v3/connections/{made['id']}", json={"paused": True}),
    ):
        assert call.status_code == 404
    assert stranger.post("/v3/connections/list").json() == []
    assert client.get(f"/v3/connections/{made['id']}").status_code == 200


def test_a_limited_key_sees_what_it_may_touch_whole(
    client: httpx.Client, limited: Callable[..., httpx.Client], create: Make
) -> None:
    create("a", "b")
    mine = create("a")
    key = limited(tags=["a"])
    assert [found["id"] for found in key.post("/v3/connections/list").json()] == [mine["id"]]
    refused = key.post("/v3/connections/list", json={"containerTags": ["b"]})
    assert refused.status_code == 403


# --- sync, items, runs ---------------------------------------------------------------------------


def test_manual_sync_answers_as_the_client_asks(
    app: App, client: httpx.Client, create: Make, shelf: Shelf
) -> None:
    create("a")
    work(app)
    text = client.post("/v3/connections/shelf/import", headers={"accept": "text/plain"})
    assert (text.status_code, text.headers["content-type"]) == (202, "text/plain; charset=utf-8")
    body = client.post("/v3/connections/shelf/import", json={"containerTags": ["a"]})
    assert (body.status_code, body.json()["provider"]) == (202, "shelf")
    shelf.put("9", "New.")
    work(app)
    assert len(client.post("/v3/connections/shelf/documents").json()) == 4
    missing = client.post("/v3/connections/shelf/import", json={"containerTags": ["zzz"]})
    assert missing.status_code == 404
    assert client.post("/v3/connections/telegraph/import").status_code == 404


def test_a_paused_connection_names_no_next_sync(
    app: App, client: httpx.Client, create: Make
) -> None:
    path = f"/v3/connections/{create('a')['id']}"
    assert client.patch(path, json={"paused": True}).json()["nextSyncAt"] is None
    client.post(f"{path}/sync")
    work(app)
    shown = client.get(path).json()
    assert shown["lastSyncedAt"], "by hand it is synced all the same"
    assert shown["nextSyncAt"] is None
    assert client.patch(path, json={"paused": False}).json()["nextSyncAt"]


def test_runs_say_what_was_done(app: App, client: httpx.Client, create: Make, shelf: Shelf) -> None:
    made = create()
    work(app)
    shelf.take("0")
    shelf.put("1", "Edited.")
    client.post(f"/v3/connections/{made['id']}/sync")
    work(app)
    last, first = client.get(f"/v3/connections/{made['id']}/sync-runs").json()
    assert (first["added"], first["triggerType"], first["status"]) == (3, "cron", "completed")
    assert (last["changed"], last["removed"], last["triggerType"]) == (1, 1, "manual")
    assert last["itemsProcessed"] == 2


def test_every_thing_has_its_verdict(app: App, client: httpx.Client, create: Make) -> None:
    client.patch("/v3/settings", json={"excludeItems": {"titlePatterns": ["*1"]}})
    made = create()
    work(app)
    seen = client.get(f"/v3/connections/{made['id']}/items").json()
    assert seen["verdicts"] == {"document": 2, "filtered": 1}
    assert seen["pagination"]["totalItems"] == 3
    out = client.get(f"/v3/connections/{made['id']}/items", params={"verdict": "filtered"}).json()
    assert [(one["id"], one["detail"]) for one in out["items"]] == [("1", "excludeItems: *1")]
    one = client.get(f"/v3/connections/{made['id']}/items", params={"id": "2"}).json()
    assert one["items"][0]["documentId"] is not None
    address = one["items"][0]["url"]
    assert address != "2"
    at = client.get(f"/v3/connections/{made['id']}/items", params={"id": address})
    assert at.json()["items"] == one["items"]
    part = client.get(f"/v3/connections/{made['id']}/items", params={"q": address[3:]})
    assert part.json()["items"] == one["items"]
    unknown = client.get(f"/v3/connections/{made['id']}/items", params={"id": "77"})
    assert unknown.status_code == 404


def test_nothing_to_pick(client: httpx.Client, create: Make) -> None:
    made = create()
    for answer in (
        client.get(f"/v3/connections/{made['id']}/resources"),
        client.post(f"/v3/connections/{made['id']}/configure", json={"resources": [{"id": 1}]}),
    ):
        assert answer.status_code == 501
        assert answer.headers["x-should-retry"] == "false"


@pytest.mark.parametrize(
    ("public_url", "metadata", "asked"),
    [
        ("https://recollect.example", {}, 1),
        ("https://recollect.example", {"webhooks": False}, 0),
        ("http://recollect.example", {}, 0),
        (None, {}, 0),
    ],
)
def test_pushes_are_not_promised_before_they_are_agreed(
    app: App,
    served: Callable[..., httpx.Client],
    tenant: Tenant,
    public_url: str | None,
    metadata: dict[str, Any],
    asked: int,
) -> None:
    new = SealedConnection("github", ["notes"], 10, metadata, None, pending=False, due=False)
    with app.db.begin() as tx:
        made = connections.create(tx, tenant.id, new, ConnectionId(random_id()))
    body = {"resources": [{"id": "1", "name": "octo/docs", "defaultBranch": "main"}]}

    told = served(public_url=public_url).post(f"/v3/connections/{made.id}/configure", json=body)

    looks = "1 picked; the sync has begun, and changes are looked for every few minutes"
    until = ", until GitHub agrees to push them" if asked else ""
    assert told.json()["message"] == looks + until
    assert told.json()["webhooksRegistered"] == asked


# --- the end -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("query", "left"), [("", 0), ("?deleteDocuments=false", 3)])
def test_delete_by_id(app: App, client: httpx.Client, create: Make, query: str, left: int) -> None:
    made = create()
    work(app)
    answer = client.delete(f"/v3/connections/{made['id']}{query}")
    assert answer.json() == {"id": made["id"], "provider": "shelf"}
    listed = client.post("/v3/documents/list", json={}).json()
    assert listed["pagination"]["totalItems"] == left
    assert all(document["connectionId"] is None for document in listed["memories"])
    found = client.post("/v3/search", json={"q": "The text of number 1"}).json()
    assert bool(found["results"]) == bool(left)
    assert client.get(f"/v3/connections/{made['id']}").status_code == 404


def test_delete_by_provider_and_tags(app: App, client: httpx.Client, create: Make) -> None:
    create("a", "b")
    newest = create("a")
    kept = create("b")
    work(app)
    assert client.delete("/v3/connections/shelf").status_code == 400
    answer = client.request("DELETE", "/v3/connections/shelf", json={"containerTags": ["a"]})
    assert answer.json() == {"id": newest["id"], "provider": "shelf"}
    listed = client.post("/v3/connections/list").json()
    assert [found["id"] for found in listed] == [kept["id"]]
    again = client.request("DELETE", "/v3/connections/shelf", json={"containerTags": ["a"]})
    assert again.status_code == 404


def test_the_published_client_walks_it(
    app: App, live_url: str, key: str, create: Make, shelf: Shelf
) -> None:
    python = Supermemory(api_key=key, base_url=live_url)
    made = create("notes")
    work(app)
    listed = python.connections.list(container_tags=["notes"])
    assert [found.id for found in listed] == [made["id"]]
    assert python.connections.get_by_id(made["id"]).provider == "shelf"
    shelf.put("7", "Seven.")
    python.connections.delete_by_id(made["id"])
    assert python.connections.list(container_tags=["notes"]) == []


@pytest.mark.parametrize(
    ("language", "version", "array"),
    [
        ("python", "3.62.0", True),
        ("python", "3.58.0", True),
        ("python", "3.57.0", False),
        ("js", "4.25.4", False),
        ("", "", False),
    ],
)
def test_only_the_clients_that_expect_it_get_an_array(
    client: httpx.Client, create: Make, language: str, version: str, array: bool
) -> None:
    made = create()
    answer = client.delete(
        f"/v3/connections/{made['id']}",
        headers={"x-stainless-lang": language, "x-stainless-package-version": version},
    )
    assert isinstance(answer.json(), list) == array
