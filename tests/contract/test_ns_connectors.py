"""Connectors through the namespace door: connections of its tag."""

from collections.abc import Callable, Generator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from recollect.app import App
from recollect.config import ProviderSettings
from recollect.connectors import oauth
from recollect.db import Database
from recollect.errors import Permanent
from recollect.model import ConnectionId, Org, Plan, Scope, Tenant
from recollect.sync import authorizations, connections
from recollect.worker import syncs
from recollect.worker.processing import drain
from tests.contract.calls import refused
from tests.contract.test_ns_documents import listed
from tests.fakes.shelf import Shelf, shelved

CRAWLER = {"provider": "web-crawler", "config": {"startUrl": "http://127.0.0.1:9/"}}


@pytest.fixture(autouse=True)
def shelf() -> Generator[Shelf]:
    with shelved("ns") as made:
        yield made


def connect(http: httpx.Client, *tags: str) -> str:
    body = {"metadata": {"shelf": "ns", "note": "x"}, "containerTags": list(tags)}
    answer = http.post("/v3/connections/shelf", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["id"]


def one(http: httpx.Client, namespace: str, id: str, **query: Any) -> dict[str, Any]:
    answer = http.get(f"/ns/{namespace}/connectors/{id}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def every(http: httpx.Client, path: str) -> list[str]:
    return [one["id"] for one in http.get(path).json()["connectors"]]


@pytest.fixture
def google(served: Callable[..., httpx.Client]) -> httpx.Client:
    """A service with an OAuth application of Google's."""
    client = {"client_id": "ours", "client_secret": "a secret of ours"}
    return served(providers={"google-drive": ProviderSettings.model_validate(client)})


def test_one_that_syncs_at_once(client: httpx.Client, app: App):
    answer = client.post("/ns/a/connectors", json={**CRAWLER, "documentLimit": 5})
    assert answer.status_code == 201
    made = answer.json()
    assert made == {"id": made["id"], "authorization": None}
    told = one(client, "a", made["id"])

    assert told["config"] == {"startUrl": "http://127.0.0.1:9/", "crawlDepth": 3}
    assert (told["namespace"], told["documentLimit"], told["selection"]) == ("a", 5, None)
    assert told["capabilities"] == {"selectable": False, "webhooks": False}
    assert (told["latestRun"], told["system"]["status"]) == (None, "active")
    assert {"authorization", "syncs", "picker"} & set(told) == set()
    assert client.get(f"/v3/connections/{made['id']}").json()["containerTags"] == ["a"]


def test_its_runs_and_what_failed_in_them(client: httpx.Client, app: App, shelf: Shelf):
    shelf.put("1", "one")
    shelf.put("2", "two")
    id = connect(client, "a")
    syncs.drain(app)
    drain(app)
    bad = listed(client, "a")["documents"][0]["id"]
    with app.db.begin() as tx:
        tx.execute(
            "update documents set status = 'failed', error_code = 'unreadable_content',"
            " error_message = 'it is no text' where id = %s",
            (bad,),
        )
    told = one(client, "a", id, include="syncs,picker")

    assert told["documentCount"] == 2
    assert told["picker"] is None
    assert told["latestRun"]["system"]["status"] == "completed"
    [run] = told["syncs"]
    assert (run["trigger"], run["itemsProcessed"], run["errorCode"]) == ("cron", 2, None)
    [failed] = run["failures"]
    assert (failed["documentId"], failed["errorCode"]) == (bad, "unreadable_content")
    assert failed["errorMessage"] == "it is no text"


def test_the_ten_newest_of_its_runs(client: httpx.Client, app: App, shelf: Shelf):
    id = connect(client, "a")
    for _ in range(11):
        syncs.drain(app)
        assert client.post(f"/ns/a/connectors/{id}/sync").status_code == 202
    syncs.drain(app)

    runs = one(client, "a", id, include="syncs")["syncs"]
    assert [run["trigger"] for run in runs] == ["manual"] * 10
    started = [run["system"]["startedAt"] for run in runs]
    assert started == sorted(started, reverse=True)


def test_a_sync_during_a_sync_is_refused(client: httpx.Client, app: App, shelf: Shelf):
    shelf.put("1", "one")
    id = connect(client, "a")
    refused(client.post(f"/ns/a/connectors/{id}/sync"), 409, "already running")
    syncs.drain(app)

    wanted = client.post(f"/ns/a/connectors/{id}/sync")
    assert (wanted.status_code, wanted.json()) == (202, {"id": id, "status": "queued"})
    refused(client.post(f"/ns/a/connectors/{id}/sync"), 409, "already running")
    assert client.post(f"/v3/connections/{id}/sync").status_code == 202, "as ever"
    syncs.drain(app)
    assert one(client, "a", id)["latestRun"]["system"]["status"] == "completed"


def test_a_sync_that_failed_may_be_wanted_again_at_once(
    client: httpx.Client, app: App, shelf: Shelf
):
    id = connect(client, "a")
    syncs.drain(app)
    shelf.fail("changes", Permanent("the key may not read this", code="access_denied"))
    assert client.post(f"/ns/a/connectors/{id}/sync").status_code == 202
    syncs.drain(app)
    assert one(client, "a", id)["latestRun"]["system"]["status"] == "failed"

    assert client.post(f"/ns/a/connectors/{id}/sync").status_code == 202, "nothing runs"
    syncs.drain(app)
    assert one(client, "a", id)["latestRun"]["system"]["status"] == "completed"


def test_one_of_several_tags_is_in_the_namespace_of_each(
    client: httpx.Client, limited: Callable[..., httpx.Client]
):
    id = connect(client, "a", "b")

    for namespace in ("a", "b"):
        assert one(client, namespace, id)["namespace"] == "a"
        assert every(client, f"/ns/{namespace}/connectors") == [id]
    refused(client.get(f"/ns/c/connectors/{id}"), 404, "Connector not found")
    refused(limited(tags=["a"]).get(f"/ns/a/connectors/{id}"), 404)
    assert every(limited(tags=["a"]), "/connectors") == []
    assert every(limited(tags=["a", "b"]), "/connectors") == [id]


def test_lists_by_page_and_provider(client: httpx.Client):
    crawler = client.post("/ns/a/connectors", json=CRAWLER).json()["id"]
    other = client.post("/ns/b/connectors", json=CRAWLER).json()["id"]

    assert every(client, "/connectors") == [other, crawler]
    assert every(client, "/connectors?limit=1&page=2") == [crawler]
    assert every(client, "/ns/a/connectors?provider=web-crawler") == [crawler]
    assert every(client, "/ns/a/connectors?provider=s3") == []
    refused(client.get("/connectors?provider=dropbox"), 400, "provider")


def test_changing_and_deleting(client: httpx.Client, app: App, shelf: Shelf):
    shelf.put("1", "one")
    id = connect(client, "a")
    syncs.drain(app)
    drain(app)
    path = f"/ns/a/connectors/{id}"
    assert client.patch(path, json={"documentLimit": 7}).json()["documentLimit"] == 7
    for body, about in (
        ({}, "name a selection"),
        (None, "name a selection"),
        ({"selection": {}}, "selection"),
        ({"selection": {"folders": ["x"]}}, "nothing to select"),
        ({"selection": {"repos": ["x"], "labels": ["y"]}}, "selection"),
        ({"paused": True}, "paused: unknown field"),
        ({"documentLimit": 10_001}, "documentLimit"),
    ):
        refused(client.patch(path, json=body), 400, about)

    gone = client.delete(path, params={"deleteDocuments": "false"})
    assert gone.json() == {"id": id, "deleted": True}
    assert len(listed(client, "a")["documents"]) == 1
    refused(client.delete(path), 404)


@pytest.mark.parametrize(
    ("body", "about"),
    [
        ({}, "provider"),
        ({"provider": "dropbox"}, "provider"),
        ({"provider": "granola", "config": {"apiKey": "x"}}, "provider"),
        ({"provider": "web-crawler"}, "config.startUrl: is required"),
        ({"provider": "s3", "config": {"bucket": "b"}}, "config.accessKeyId: is required"),
        ({**CRAWLER, "config": {"startUrl": "http://a.example", "depth": 2}}, "config.depth"),
        ({**CRAWLER, "config": {"startUrl": "http://a.example", "crawlDepth": 6}}, "crawlDepth"),
        ({**CRAWLER, "config": {"startUrl": "http://a.example", "crawlDepth": 0}}, "crawlDepth"),
        ({"provider": "notion", "config": {"a": 1}}, "config.a: unknown field"),
        ({"provider": "notion"}, "RECOLLECT_NOTION_CLIENT_ID"),
        ({**CRAWLER, "containerTag": "b"}, "containerTag: unknown field"),
        ({**CRAWLER, "documentLimit": 0}, "documentLimit"),
    ],
)
def test_what_cannot_be_made(client: httpx.Client, body: Any, about: str):
    refused(client.post("/ns/a/connectors", json=body), 400, about)
    assert client.get("/connectors").json()["connectors"] == []


def test_a_plan_without_the_connector_is_to_be_paid(client: httpx.Client, db: Database, org: Org):
    with db.begin() as tx:
        tx.execute("update orgs set plan = %s where id = %s", (Plan.FREE, org.id))
    body = CRAWLER

    refused(client.post("/ns/a/connectors", json=body), 402, "requires")
    refused(client.post("/v3/connections/web-crawler", json={}), 403, "requires")


DRIVE = {"provider": "google-drive", "redirectUrl": "http://127.0.0.1:3000/done"}


class TestConsent:
    def test_while_it_is_pending(
        self, google: httpx.Client, client: httpx.Client, db: Database, org: Org,
        limited: Callable[..., httpx.Client],
    ):  # fmt: skip
        made = google.post("/ns/a/connectors", json={**DRIVE, "config": {"syncScope": "full"}})
        assert made.status_code == 201, made.text
        id, link = made.json()["id"], made.json()["authorization"]
        assert link["url"].startswith("https://accounts.google.com/")
        assert every(google, "/ns/a/connectors") == []
        told = one(google, "a", id)

        assert told["system"]["status"] == "pending_authorization"
        assert told["authorization"]["url"].startswith("https://accounts.google.com/")
        with db.begin() as tx:
            where = connections.redirect_of(tx, ConnectionId(id))
        assert where == DRIVE["redirectUrl"], "a new link leads to the same place"
        assert "authorization" not in one(limited(Scope.READ), "a", id)
        assert "authorization" not in one(client, "a", id), "where no application is set up"
        refused(google.post(f"/ns/a/connectors/{id}/sync"), 400, "authorization")
        assert google.delete(f"/ns/a/connectors/{id}").status_code == 200

    def test_a_link_stays_good_though_someone_looks_again_and_again(
        self, google: httpx.Client, db: Database
    ):
        """As a program does that waits until the user has agreed."""
        made = google.post("/ns/a/connectors", json=DRIVE).json()
        for _ in range(40):
            one(google, "a", made["id"])

        [state] = parse_qs(urlsplit(made["authorization"]["url"]).query)["state"]
        with db.begin() as tx:
            assert authorizations.peek_authorization(tx, "google-drive", oauth.hashed(state))

    def test_a_selection_of_folders(self, google: httpx.Client, db: Database, org: Org):
        id = google.post("/ns/a/connectors", json=DRIVE).json()["id"]
        path = f"/ns/a/connectors/{id}"
        told = google.patch(path, json={"selection": {"folders": ["folder-1", "folder-2"]}})
        assert told.status_code == 200, told.text

        assert told.json()["selection"] == {
            "folders": [
                {"id": "folder-1", "name": "folder-1"}, {"id": "folder-2", "name": "folder-2"},
            ]
        }  # fmt: skip
        assert told.json()["capabilities"]["selectable"] is True
        with db.begin() as tx:
            kept = connections.get(tx, Tenant(org.id), id).metadata
        assert kept == {"syncScope": "selected", "folders": "folder-1,folder-2"}
        assert told.json()["config"] == {"syncScope": "selected"}, "what is selected stands apart"
        both = {"selection": {"folders": ["folder-3"]}, "documentLimit": 7}
        again = google.patch(path, json=both).json()
        assert (again["selection"]["folders"][0]["id"], again["documentLimit"]) == ("folder-3", 7)
        refused(google.patch(path, json={"selection": {"folders": ["a b"]}}), 400, "selection.fold")
        refused(google.patch(path, json={"selection": {"files": ["x"]}}), 400, "folders")


def test_whose_account_it_is_and_whether_the_provider_pushes(
    served: Callable[..., httpx.Client], db: Database
):
    client = {"client_id": "ours", "client_secret": "a secret of ours"}
    given = {"google-drive": ProviderSettings.model_validate(client)}
    public = served(providers=given, public_url="https://memory.example.org")
    id = public.post("/ns/a/connectors", json=DRIVE).json()["id"]
    assert one(public, "a", id)["account"] is None

    with db.begin() as tx:
        tx.execute("update connections set account = '42' where id = %s", (id,))
    told = one(public, "a", id)
    assert (told["account"], told["capabilities"]["webhooks"]) == ("42", True)
    with db.begin() as tx:
        tx.execute("update connections set email = 'ann@example.org' where id = %s", (id,))
    assert one(public, "a", id)["account"] == "ann@example.org"


def test_the_end_of_a_namespace_ends_what_writes_to_it_alone(
    client: httpx.Client, app: App, shelf: Shelf
):
    shelf.put("1", "one")
    alone, both = connect(client, "a"), connect(client, "a", "b")
    syncs.drain(app)

    told = client.delete("/ns/a").json()
    assert told["deletedDocumentsCount"] == 1
    refused(client.get(f"/v3/connections/{alone}"), 404)
    assert client.get(f"/v3/connections/{both}").json()["containerTags"] == ["a", "b"]
    assert len(listed(client, "b")["documents"]) == 1
