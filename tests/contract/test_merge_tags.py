"""Merging container tags: in batches, once, and to the end also after a crash."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx
import pytest

from recollect.app import App
from recollect.db import Database
from recollect.model import ConnectionId, Org, Tenant, random_id
from recollect.orgs import tags
from recollect.sync import connection_queue, connections
from recollect.sync.connections import SealedConnection
from recollect.worker import tag_merges
from recollect.worker.processing import drain
from tests.contract.calls import add, found, get, listed, refused, rows


def merge(http: httpx.Client, app: App, *sources: str, into: str) -> dict[str, Any]:
    """Ask for a merge and do it."""
    body = {"containerTags": list(sources), "targetContainerTag": into}
    answer = http.post("/v3/container-tags/merge", json=body)
    assert answer.status_code == 202, answer.text
    return finished(http, app, answer.json()["mergeId"])


def finished(http: httpx.Client, app: App, id: str) -> dict[str, Any]:
    while tag_merges.step(app):
        pass
    answer = http.get(f"/v3/container-tags/merge/{id}")
    assert answer.status_code == 200, answer.text
    assert answer.json()["status"] == "completed"
    return answer.json()


def test_documents_get_the_target_and_the_sources_end(
    client: httpx.Client, app: App, db: Database, org: Org, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tag_merges, "BATCH", 2)
    ids = [add(client, f"heron {n}", containerTags=["old", "x"]) for n in range(5)]
    both = add(client, "heron in both", containerTags=["team:a", "old", "older"])
    add(client, "stork", containerTag="elsewhere", entityContext="storks")
    client.patch("/v3/container-tags/old", json={"entityContext": "herons"})
    drain(app)
    before = rows(db, org)
    state = merge(client, app, "old", "older", into="team:a")

    assert state["success"] is True
    assert state["mergedCount"] == 6
    assert state["targetTag"] == "team:a"
    assert {tuple(get(client, id)["containerTags"]) for id in ids} == {("team:a", "x")}
    assert get(client, both)["containerTags"] == ["team:a"]
    assert len(found(client, "heron", containerTag="team:*", limit=20)) == 6
    assert found(client, "heron", containerTag="old") == []
    assert client.get("/v3/container-tags/team:a").json()["entityContext"] == "herons"
    refused(client.get("/v3/container-tags/old"), 404)
    after = rows(db, org)
    assert (after["documents"], after["entries"]) == (before["documents"], before["entries"])


def test_the_target_takes_over_the_buckets_that_it_lacks(client: httpx.Client, app: App):
    client.post(
        "/v4/memories",
        json={"containerTag": "old", "memories": [{"content": "Kim welds.", "buckets": ["work"]}]},
    )
    add(client, "two", containerTag="new")
    for tag, buckets in (
        ("old", {"work": "a job", "food": "in the old tag"}),
        ("new", {"food": "in the new tag"}),
    ):
        client.put(f"/ns/{tag}/profile/buckets", json={"buckets": buckets})
    merge(client, app, "old", into="new")

    assert client.get("/ns/new/profile/buckets").json()["buckets"] == {
        "food": "in the new tag",
        "work": "a job",
    }
    profile = client.post("/v4/profile", json={"containerTag": "new"}).json()["profile"]
    assert profile["buckets"] == {"food": [], "work": ["Kim welds."]}


def test_a_document_whose_name_is_taken_stays(client: httpx.Client, app: App):
    stays = add(client, "one", customId="n", containerTag="old")
    goes = add(client, "two", containerTag="old")
    add(client, "three", customId="n", containerTag="new")
    state = merge(client, app, "old", "new", into="new")

    assert (state["success"], state["mergedCount"], state["keptDocuments"]) == (False, 1, [stays])
    assert get(client, goes)["containerTags"] == ["new"]
    assert get(client, stays)["containerTags"] == ["old"]
    assert client.get("/v3/container-tags/old").json()["documentCount"] == 1


def test_what_a_stopped_process_left_goes_on(
    client: httpx.Client, app: App, db: Database, tenant: Tenant
):
    for n in range(3):
        add(client, f"heron {n}", containerTag="old")
    with db.begin() as tx:
        left = tags.begin_merge(tx, tenant, ["old"], "new", "left-behind")
        again = tags.begin_merge(tx, tenant, ["old"], "new", "another")

    assert again.id == left.id
    body = {"containerTags": ["new"], "targetContainerTag": "other"}
    refused(client.post("/v3/container-tags/merge", json=body), 409, "left-behind")
    assert finished(client, app, left.id)["mergedCount"] == 3
    assert len(listed(client, containerTag="new")) == 3


def test_two_at_once_move_each_document_once(
    client: httpx.Client, app: App, db: Database, org: Org
):
    for n in range(4):
        add(client, f"heron {n}", containerTag="old")
    drain(app)
    body = {"containerTags": ["old"], "targetContainerTag": "new"}
    answers = [client.post("/v3/container-tags/merge", json=body) for _ in range(2)]
    assert answers[0].status_code == 202
    assert finished(client, app, answers[0].json()["mergeId"])["mergedCount"] == 4
    with db.begin() as tx:
        counted = tx.execute(
            "with held as materialized (select number, count(*) as n from entries e"
            "  join facets d on d.id = e.document_id, unnest(e.terms) as number"
            "  where d.org_id = %(org)s group by number)"
            " select * from held full join (select number, entries from term_counts"
            "  where org_id = %(org)s) c using (number) where n is distinct from entries",
            {"org": org.id},
        ).fetchall()
    assert counted == []


@pytest.mark.parametrize(
    ("between", "along"), [(1, tag_merges.ALONG), (2, timedelta()), (5, timedelta())]
)
def test_it_ends_while_others_write_to_the_source(
    client: httpx.Client, app: App, monkeypatch: pytest.MonkeyPatch, between: int, along: timedelta
):
    monkeypatch.setattr(tag_merges, "BATCH", 2)
    monkeypatch.setattr(tag_merges, "ALONG", along)
    first = {add(client, f"heron {n}", containerTag="old") for n in range(7)}
    body = {"containerTags": ["old"], "targetContainerTag": "new"}
    path = client.post("/v3/container-tags/merge", json=body).json()["mergeId"]

    later = set[str]()
    for _ in range(20):
        if client.get(f"/v3/container-tags/merge/{path}").json()["status"] == "completed":
            break
        assert tag_merges.step(app)
        later |= {add(client, f"stork {random_id()}", containerTag="old") for _ in range(between)}

    ended = finished(client, app, path)
    assert ended["success"] is True
    moved = {one["id"] for one in listed(client, containerTag="new", limit=100)}
    left = {one["id"] for one in listed(client, containerTag="old", limit=100)}
    assert first <= moved
    assert moved | left == first | later
    assert client.get("/v3/container-tags/old").json()["documentCount"] == len(left) > 0


def test_what_cannot_be_merged_is_refused(
    client: httpx.Client,
    app: App,
    limited: Callable[..., httpx.Client],
    stranger: httpx.Client,
):
    add(client, containerTag="a")
    path = "/v3/container-tags/merge"

    for body in (
        {},
        {"containerTags": [], "targetContainerTag": "b"},
        {"containerTags": ["b"], "targetContainerTag": "b"},
        {"containerTags": ["a"], "targetContainerTag": "b c"},
        {"containerTags": ["a:*"], "targetContainerTag": "b"},
    ):
        refused(client.post(path, json=body), 400)
    refused(client.post(path, json={"containerTags": ["x"], "targetContainerTag": "b"}), 404)
    body = {"containerTags": ["a"], "targetContainerTag": "b"}
    refused(limited(tags=["a"]).post(path, json=body), 403)
    refused(client.get(f"{path}/nobody"), 404, "Merge not found")
    id = merge(client, app, "a", into="b")["mergeId"]
    refused(stranger.get(f"{path}/{id}"), 404)
    refused(limited(tags=["a"]).get(f"{path}/{id}"), 404)


def test_connections_write_to_the_target_from_then_on(
    client: httpx.Client, app: App, db: Database, tenant: Tenant
):
    add(client, containerTag="old")
    with db.begin() as tx:
        new = SealedConnection("s3", ["x", "old", "target"], 10, {}, None, pending=False)
        made = connections.create(tx, tenant.id, new, ConnectionId(random_id()))
        [claim] = connection_queue.claim(tx, lease=app.lease, limit=1)
    merge(client, app, "old", into="target")

    with db.begin() as tx:
        assert connections.get(tx, tenant, made.id).container_tags == ["x", "target"]
        assert not connection_queue.alive(tx, claim), "it would bring the old tag back"
