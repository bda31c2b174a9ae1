"""What the published command line tool reads: whose key it is, totals, documents with memories."""

from collections.abc import Callable

import httpx

from recollect.app import App
from recollect.model import Org, Scope
from recollect.worker.processing import drain
from tests.contract.calls import add, refused


def test_whose_key_it_is(
    client: httpx.Client, limited: Callable[..., httpx.Client], org: Org, live_url: str, key: str
):
    named = {"id": org.id, "name": org.name, "slug": org.name}

    whole = client.get("/v3/session").json()
    assert (whole["org"], whole["plan"]) == (named, "enterprise")
    assert whole["scope"] == {"type": "full", "permission": "admin"}
    assert whole["user"]["email"] is None
    mine = limited(Scope.READ, tags=["a"]).get("/v3/session").json()["scope"]
    assert mine == {"type": "scoped", "permission": "read", "containerTags": ["a"]}
    by_header = httpx.get(f"{live_url}/v3/session", headers={"x-api-key": key}, trust_env=False)
    assert by_header.json() == whole


def test_how_much_there_is(client: httpx.Client, limited: Callable[..., httpx.Client]):
    add(client, "one", containerTag="a")
    add(client, "two", containerTag="b")
    body = {"containerTag": "a", "memories": [{"content": "a fact"}]}
    client.post("/v4/memories", json=body)

    def totals(http: httpx.Client) -> list[int]:
        return list(http.get("/v3/analytics/memory?period=all").json().values())

    assert totals(client) == [3, 1, 0, 2]
    assert totals(limited(tags=["b"])) == [1, 0, 0, 1]


def test_documents_with_their_memories(
    client: httpx.Client, app: App, limited: Callable[..., httpx.Client]
):
    one = add(client, "one", containerTag="a")
    drain(app)
    body = {"containerTag": "a", "memories": [{"content": "a fact"}, {"content": "another"}]}
    bearing = client.post("/v4/memories", json=body).json()["documentId"]
    add(client, "elsewhere", containerTag="b")
    ask = {"containerTags": ["a"], "order": "asc"}
    told = client.post("/v3/documents/documents", json=ask).json()

    assert [d["id"] for d in told["documents"]] == [one, bearing]
    assert [d["chunkCount"] for d in told["documents"]] == [1, 0]
    assert [m["memory"] for m in told["documents"][1]["memoryEntries"]] == ["a fact", "another"]
    assert told["pagination"]["totalItems"] == 2
    assert client.post("/v3/documents/documents").json()["pagination"]["totalItems"] == 3
    refused(client.post("/v3/documents/documents", json={"limit": 1001}), 400, "limit")
    refused(limited(tags=["b"]).post("/v3/documents/documents", json=ask), 403)
