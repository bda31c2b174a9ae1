"""Webhooks: what is told to whom, signed how, and what happens when nobody takes it."""

import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from recollect import documents, encryption
from recollect.app import App, secret_keys
from recollect.config import Config
from recollect.db import Database
from recollect.documents import NewDocument
from recollect.errors import Permanent
from recollect.events import outbox, signing, targets
from recollect.fetch import Fetcher, FetchLimits
from recollect.model import ConnectionId, DocumentId, Org, Plan, Scope, Status, Tenant, random_id
from recollect.ops import reencrypt
from recollect.orgs import orgs
from recollect.sync import connection_queue, connections
from recollect.sync.connections import SealedConnection
from recollect.worker import processing, syncs, tag_merges, webhooks
from recollect.worker.webhooks import LEASE, Deliverer
from tests.conftest import LOOPBACK, eventually, fresh_org, plain_client
from tests.contract.calls import upload
from tests.fakes.receiver import Came, Receiver
from tests.fakes.shelf import Shelf, shelved
from tests.fakes.terminal import Terminal

Json = dict[str, Any]


@pytest.fixture
def receiver() -> Generator[Receiver]:
    with Receiver() as found:
        yield found


@pytest.fixture
def endpoint(client: httpx.Client, receiver: Receiver) -> Callable[..., Json]:
    """Makes an endpoint of the test's organisation."""

    def make(http: httpx.Client = client, **body: Any) -> Json:
        answer = http.post("/v3/webhooks", json={"url": receiver.url, **body})
        assert answer.status_code == 201, answer.text
        return answer.json()

    return make


def add(app: App, tenant: Tenant, text: str = "a heron in the reeds", tag: str = "a") -> str:
    with app.db.begin() as tx:
        new = NewDocument(documents.text_content(text), [tag])
        return documents.add(tx, tenant, new, DocumentId(random_id())).id


def log(http: httpx.Client, endpoint: Json, **query: Any) -> list[Json]:
    answer = http.get(f"/v3/webhooks/{endpoint['id']}/deliveries", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()["deliveries"]


def due_now(db: Database) -> None:
    """As after a pause."""
    with db.begin() as tx:
        tx.execute("update deliveries set due_at = now() where due_at is not null")
        tx.execute("update endpoints set rest_until = now()")


def age_secrets(db: Database, by: timedelta) -> None:
    """As if that time had passed since they were replaced."""
    with db.begin() as tx:
        tx.execute(
            "update endpoints set old_secrets = (select coalesce(jsonb_agg(one ||"
            "  jsonb_build_object('until', (one ->> 'until')::timestamptz - %s) order by n), '[]')"
            " from jsonb_array_elements(old_secrets) with ordinality as t (one, n))",
            (by,),
        )
        outbox.sweep(tx)


def told(receiver: Receiver) -> list[tuple[str, Mapping[str, Any]]]:
    return [(one.said["type"], one.said["data"]) for one in receiver.came]


def test_the_signature_is_that_of_standard_webhooks():
    stamp, body = 1731705121, b'{"event_type":"ping","data":{"success":true}}'

    signature = signing.sign("whsec_plJ3nmyCDGBKInavdOK15jsl", "msg_loFOjxBNrRLzqYUf", stamp, body)

    assert signature == "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0="


def test_the_life_of_a_document_is_told_signed_and_without_content(
    app: App, tenant: Tenant, receiver: Receiver, endpoint: Callable[..., Json]
):
    made = endpoint()
    began = int(time.time())
    id = add(app, tenant, "zugzwang in the reeds", tag="a")
    processing.drain(app)
    with app.db.begin() as tx:
        documents.delete(tx, tenant, [id])
    webhooks.drain(app)

    assert sorted(type for type, _ in told(receiver)) == ["document.deleted", "document.done"]
    [done] = [data for type, data in told(receiver) if type == "document.done"]
    assert (done["id"], done["status"], done["chunks"]) == (id, "done", 1)
    assert done["containerTags"] == ["a"]
    for one in receiver.came:
        assert one.signed_by(made["secret"])
        assert began <= int(one.headers["webhook-timestamp"]) <= time.time()
        assert b"zugzwang" not in one.body


def test_a_failure_is_told_with_its_code_alone(
    app: App, tenant: Tenant, receiver: Receiver, endpoint: Callable[..., Json]
):
    endpoint(events=["document.failed"])
    add(app, tenant, "   ")
    processing.drain(app)
    webhooks.drain(app)

    [(type, data)] = told(receiver)
    assert (type, data["code"]) == ("document.failed", "empty_content")


def test_nothing_is_written_where_nobody_wants_it(
    app: App, db: Database, tenant: Tenant, endpoint: Callable[..., Json]
):
    made = endpoint(events=["document.failed"])
    add(app, tenant)
    processing.drain(app)

    with db.begin() as tx:
        assert (
            tx.execute("select 1 from deliveries where endpoint_id = %s", (made["id"],)).fetchone()
            is None
        )


def test_what_is_rolled_back_is_never_told(
    app: App, tenant: Tenant, receiver: Receiver, endpoint: Callable[..., Json]
):
    endpoint(events=["document.deleted"])
    id = add(app, tenant)

    def delete_in_vain() -> None:
        with app.db.begin() as tx:
            documents.delete(tx, tenant, [id])
            raise RuntimeError

    with pytest.raises(RuntimeError):
        delete_in_vain()
    webhooks.drain(app)

    assert receiver.came == []


@pytest.fixture
def shelf() -> Generator[Shelf]:
    with shelved("events") as made:
        yield made


def connect(app: App, tenant: Tenant, tags: list[str], **metadata: str) -> ConnectionId:
    given = {"shelf": "events", **metadata}
    new = SealedConnection("shelf", tags, 100, given, None, pending=False)
    with app.db.begin() as tx:
        return connections.create(tx, tenant.id, new, ConnectionId(random_id())).id


def test_syncs_and_lost_authorizations_are_told(
    app: App, tenant: Tenant, receiver: Receiver, shelf: Shelf, endpoint: Callable[..., Json]
):
    endpoint(events=["sync.completed", "sync.failed", "connection.needs_auth"])
    shelf.put("1", "one")
    id = connect(app, tenant, ["notes"])
    syncs.drain(app)
    shelf.fail("changes", Permanent("no", code="broken"))
    with app.db.begin() as tx:
        connections.want(tx, [id], connections.Trigger.MANUAL)
    syncs.drain(app)
    with app.db.begin() as tx:
        connection_queue.lose(tx, id, "it was taken back")
    webhooks.drain(app)

    found = dict(told(receiver))
    assert found["sync.completed"]["added"] == 1
    assert found["sync.failed"]["code"] == "broken"
    assert found["connection.needs_auth"]["id"] == id


def test_a_limited_endpoint_hears_only_of_connections_that_its_keys_see(
    app: App,
    tenant: Tenant,
    receiver: Receiver,
    shelf: Shelf,
    client: httpx.Client,
    endpoint: Callable[..., Json],
):
    """One with a pattern writes other tags, too, and no key that is limited to `mine` sees it."""
    events = ["sync.completed", "connection.needs_auth"]
    mine = endpoint(url=f"{receiver.url}/mine", events=events, containerTags=["mine"])
    later = endpoint(url=f"{receiver.url}/later", events=events)
    ids = {
        kind: connect(app, tenant, ["mine"], **metadata)
        for kind, metadata in {"plain": {}, "wide": {"containerTagRegex": "^team"}}.items()
    }
    reaching = connect(app, tenant, ["mine"], containerTagRegex="^mine")
    with app.db.begin() as tx:
        tx.execute("update connections set reach = '{mine}' where id = %s", (reaching,))
    syncs.drain(app)
    with app.db.begin() as tx:
        for id in (*ids.values(), reaching):
            connection_queue.lose(tx, id, "it was taken back")

    def heard(of: Json) -> set[tuple[str, str]]:
        with app.db.begin() as tx:
            rows = tx.execute(
                "select type, coalesce(payload #>> '{data,connectionId}',"
                " payload #>> '{data,id}') as id from deliveries where endpoint_id = %s",
                (of["id"],),
            )
            return {(row["type"], row["id"]) for row in rows}

    every = {(event, id) for event in events for id in (*ids.values(), reaching)}
    seen = {(event, id) for event in events for id in (ids["plain"], reaching)}
    assert heard(later) == every
    assert heard(mine) == seen
    client.patch(f"/v3/webhooks/{later['id']}", json={"containerTags": ["mine"]}).raise_for_status()
    assert heard(later) == seen


def test_a_failure_that_the_service_tries_again_is_told_once_for_each_reason(
    app: App,
    tenant: Tenant,
    receiver: Receiver,
    client: httpx.Client,
    shelf: Shelf,
    endpoint: Callable[..., Json],
):
    endpoint(events=["document.failed", "document.done"])
    id = connect(app, tenant, ["notes"])

    def a_day_later(reason: str | None) -> None:
        if reason is not None:
            shelf.fail("fetch", Permanent("no", code=reason))
        with app.db.begin() as tx:
            tx.execute("update documents set updated_at = updated_at - interval '1 day'")
            tx.execute("update connections set due_at = now() where id = %s", (id,))
        syncs.drain(app)
        processing.drain(app)
        webhooks.drain(app)

    shelf.put("1", "one")
    for reason in ("http_403", "http_403", "http_403", "no_access", "no_access"):
        a_day_later(reason)
    shelf.put("1", "another")
    a_day_later("no_access")
    shelf.fail("fetch", Permanent("no", code="no_access"))
    client.post("/v3/documents/retry", json={"failed": True}).raise_for_status()
    processing.drain(app)
    webhooks.drain(app)  # or two are sent at once, in any order
    a_day_later(None)
    shelf.put("1", "a third")
    a_day_later("no_access")

    codes = [data.get("code") for _, data in told(receiver)]
    assert codes == ["http_403", "no_access", "no_access", "no_access", None, "no_access"]


def test_a_limited_key_hears_only_of_its_tags(
    app: App,
    db: Database,
    org: Org,
    tenant: Tenant,
    live_url: str,
    client: httpx.Client,
    receiver: Receiver,
    endpoint: Callable[..., Json],
    shelf: Shelf,
):
    with db.begin() as tx:
        secret = orgs.create_key(tx, org.id, scope=Scope.WRITE, tags=["mine"])[1]
    headers = {"Authorization": f"Bearer {secret}"}
    whole = endpoint(url=f"{receiver.url}/whole")
    with httpx.Client(base_url=live_url, headers=headers, trust_env=False) as limited:
        mine = endpoint(limited, events=["document.done", "sync.completed"])
        assert (
            limited.post(
                "/v3/webhooks", json={"url": receiver.url, "containerTags": ["theirs"]}
            ).status_code
            == 403
        )
        assert [one["id"] for one in limited.get("/v3/webhooks").json()["endpoints"]] == [
            mine["id"]
        ]
        assert limited.get(f"/v3/webhooks/{whole['id']}/deliveries").status_code == 404
    for tags in (["mine"], ["theirs"], ["theirs", "mine"]):
        with app.db.begin() as tx:
            new = NewDocument(documents.text_content(f"of {tags}"), tags)
            documents.add(tx, tenant, new, DocumentId(random_id()))
    processing.drain(app)
    shelf.put("1", "one")
    connect(app, tenant, ["mine", "theirs"])
    syncs.drain(app)
    webhooks.drain(app)

    heard = [one.said for one in receiver.came if one.path == "/hook"]
    assert [(said["type"], said["data"]["containerTags"]) for said in heard] == [
        ("document.done", ["mine"])
    ] * 2
    assert mine["containerTags"] == ["mine"]
    assert client.get("/v3/webhooks").json()["endpoints"][0]["id"] in (mine["id"], whole["id"])


def test_a_document_that_leaves_the_tags_of_an_endpoint_is_deleted_for_it(
    app: App,
    client: httpx.Client,
    tenant: Tenant,
    receiver: Receiver,
    endpoint: Callable[..., Json],
):
    endpoint(events=["document.deleted"], containerTags=["a", "b"])
    endpoint(events=["document.deleted"], url=f"{receiver.url}/whole")
    with app.db.begin() as tx:
        new = NewDocument(documents.text_content("one"), ["a", "c"])
        id = documents.add(tx, tenant, new, DocumentId(random_id())).id
    for tags in (["b", "c"], ["c"], ["d"]):
        change = {"containerTags": tags}
        client.patch(f"/v3/documents/{id}", json=change).raise_for_status()
    webhooks.drain(app)
    assert [(one.path, one.said["data"]) for one in receiver.came] == [
        (
            "/hook",
            {"id": id, "status": "deleted", "connectionId": None, "containerTags": ["b"]},
        )
    ]


def test_a_document_that_comes_to_the_tags_of_an_endpoint_is_told_to_it(
    app: App,
    client: httpx.Client,
    tenant: Tenant,
    receiver: Receiver,
    endpoint: Callable[..., Json],
):
    read, queued = add(app, tenant, tag="c"), add(app, tenant, "two", tag="c")
    merged = add(app, tenant, "three", tag="d")
    failed = upload(client, "broken.pdf", b"%PDF-1.7", containerTags="c").json()["id"]
    processing.drain(app)
    client.patch(f"/v3/documents/{queued}", json={"content": "changed"}).raise_for_status()
    endpoint(containerTags=["a", "b"])
    whole = endpoint(url=f"{receiver.url}/whole", events=["document.done", "document.failed"])

    for id in (read, failed, queued):
        for tags in (["c", "a"], ["b"]):
            change = {"containerTags": tags}
            client.patch(f"/v3/documents/{id}", json=change).raise_for_status()
    merge = {"containerTags": ["d"], "targetContainerTag": "a"}
    client.post("/v3/container-tags/merge", json=merge).raise_for_status()
    while tag_merges.step(app):
        pass
    webhooks.drain(app)
    assert log(client, whole) == []
    assert {data["id"]: (type, data["containerTags"]) for type, data in told(receiver)} == {
        read: ("document.done", ["a"]),
        failed: ("document.failed", ["a"]),
        merged: ("document.done", ["a"]),
    }
    assert len(receiver.came) == 3
    [whole_told] = [data for _, data in told(receiver) if data["id"] == read]
    assert dict(whole_told) == {
        "id": read, "status": "done", "type": "text", "connectionId": None, "revision": 1,
        "chunks": 1, "embedded": 1, "reused": 0, "removed": 0, "containerTags": ["a"],
    }  # fmt: skip
    receiver.came.clear()
    processing.drain(app)
    webhooks.drain(app)
    assert {(one.path, one.said["data"]["id"]) for one in receiver.came} == {
        ("/hook", queued),
        ("/hook/whole", queued),
    }


def test_an_endpoint_that_is_limited_later_forgets_other_tags(
    app: App,
    tenant: Tenant,
    client: httpx.Client,
    receiver: Receiver,
    shelf: Shelf,
    endpoint: Callable[..., Json],
):
    made = endpoint()
    for tags in (["theirs"], ["theirs", "mine"], ["mine"]):
        with app.db.begin() as tx:
            new = NewDocument(documents.text_content(f"of {tags}"), tags)
            documents.add(tx, tenant, new, DocumentId(random_id()))
    processing.drain(app)
    shelf.put("1", "one")
    connect(app, tenant, ["theirs", "mine"])
    syncs.drain(app)
    client.post(f"/v3/webhooks/{made['id']}/test")
    client.patch(f"/v3/webhooks/{made['id']}", json={"containerTags": ["mine"]})

    webhooks.drain(app)

    data = [data for type, data in told(receiver) if type != "webhook.test"]
    assert [one["containerTags"] for one in data] == [["mine"]] * 2
    assert len(log(client, made)) == len(receiver.came) == 3


def test_an_endpoint_that_was_limited_gets_everything_again(
    app: App,
    tenant: Tenant,
    client: httpx.Client,
    receiver: Receiver,
    endpoint: Callable[..., Json],
):
    """None of the tags named, as at its creation, is no limit; null leaves it as it is."""
    own = f"/v3/webhooks/{endpoint(containerTags=['mine'])['id']}"
    kept = client.patch(own, json={"containerTags": None}).json()
    widened = client.patch(own, json={"containerTags": []}).json()
    add(app, tenant, tag="theirs")
    processing.drain(app)
    webhooks.drain(app)

    assert kept["containerTags"] == ["mine"]
    assert widened["containerTags"] is None
    assert [data["containerTags"] for _, data in told(receiver)] == [["theirs"]]


def test_what_is_not_taken_is_sent_again_with_the_same_id_until_it_is_dead(
    app: App,
    db: Database,
    tenant: Tenant,
    client: httpx.Client,
    receiver: Receiver,
    endpoint: Callable[..., Json],
):
    made = endpoint(events=["document.done"])
    receiver.status = 500
    add(app, tenant)
    processing.drain(app)
    attempts = len(webhooks.PAUSES) + 1
    for _ in range(attempts):
        assert webhooks.drain(app) == 1
        due_now(db)
    assert webhooks.drain(app) == 0

    [delivery] = log(client, made)
    assert (delivery["state"], delivery["attempts"]) == ("dead", attempts)
    assert [(one["status"], one["reason"]) for one in delivery["log"]] == [
        (500, "it answered 500")
    ] * attempts
    assert {one.id for one in receiver.came} == {delivery["id"]}

    receiver.status = 200
    answer = client.post(f"/v3/webhooks/{made['id']}/deliveries/{delivery['id']}/replay")
    assert answer.status_code == 202, answer.text
    webhooks.drain(app)
    [delivery] = log(client, made, state="delivered")
    assert len(receiver.came) == attempts + 1
    assert receiver.came[-1].id == delivery["id"]
    assert client.get("/v3/webhooks").json()["endpoints"][0]["failingSince"] is None


def test_pauses_grow_and_retry_after_is_obeyed(
    app: App, db: Database, tenant: Tenant, receiver: Receiver, endpoint: Callable[..., Json]
):
    made = endpoint(events=["document.done"])
    receiver.status, receiver.headers = 429, {"retry-after": "600"}
    add(app, tenant)
    processing.drain(app)
    webhooks.drain(app)

    with db.begin() as tx:
        row = tx.execute(
            "select due_at - (log -> -1 ->> 'at')::timestamptz as wait from deliveries"
            " where endpoint_id = %s",
            (made["id"],),
        ).fetchone()
    assert row is not None
    assert row["wait"] == timedelta(seconds=600)
    pauses = [webhooks.pause(n, None) for n in range(1, len(webhooks.PAUSES) + 2)]
    assert pauses[-1] is None
    mistaken = webhooks.pause(1, timedelta(hours=20))
    assert mistaken is not None
    assert mistaken <= timedelta(hours=1)
    assert all(
        p is not None and p >= least for p, least in zip(pauses, webhooks.PAUSES, strict=False)
    )


def test_a_worker_that_dies_after_sending_sends_it_again_with_the_same_id(
    app: App, db: Database, tenant: Tenant, receiver: Receiver, endpoint: Callable[..., Json]
):
    endpoint(events=["document.done"])
    add(app, tenant)
    processing.drain(app)
    with app.db.begin() as tx:
        [claimed] = outbox.claim(tx, lease=LEASE, limit=10, busy={})
    webhooks.send(app, claimed)  # and the process is gone before it could write that down
    assert webhooks.drain(app) == 0, "somebody has the lease"
    due_now(db)
    assert webhooks.drain(app) == 1

    assert [one.id for one in receiver.came] == [claimed.id] * 2


def test_who_lost_the_lease_does_not_overrule_who_has_it(
    app: App, db: Database, tenant: Tenant, client: httpx.Client, endpoint: Callable[..., Json]
):
    made = endpoint(events=["document.done"])
    add(app, tenant)
    processing.drain(app)
    with app.db.begin() as tx:
        [late] = outbox.claim(tx, lease=LEASE, limit=10, busy={})
    due_now(db)
    webhooks.drain(app)
    with app.db.begin() as tx:
        outbox.refused(tx, late, outbox.Attempt(None, "timeout", 1.0), timedelta(seconds=1))

    [delivery] = log(client, made)
    assert delivery["state"] == "delivered"
    assert len(delivery["log"]) == 1


def test_an_attempt_says_nothing_of_the_one_that_a_replay_asked_for(
    app: App, db: Database, client: httpx.Client, endpoint: Callable[..., Json]
):
    made = endpoint()
    path = f"/v3/webhooks/{made['id']}"
    id = client.post(f"{path}/test").json()["id"]
    claims: list[outbox.ClaimedDelivery] = []
    for _ in range(2):
        client.post(f"{path}/deliveries/{id}/replay").raise_for_status()
        with db.begin() as tx:
            claims += outbox.claim(tx, lease=LEASE, limit=10, busy={})
    late, now = claims
    with db.begin() as tx:
        outbox.refused(tx, late, outbox.Attempt(None, "timeout", 1.0), timedelta(seconds=1))
    [shown] = log(client, made)
    with db.begin() as tx:
        outbox.delivered(tx, now, outbox.Attempt(204, None, 1.0))

    assert (shown["state"], shown["nextAttemptAt"]) == ("pending", None)
    assert shown["sendingSince"] is not None
    [ended] = log(client, made)
    assert (ended["state"], [one["status"] for one in ended["log"]]) == ("delivered", [204])


def test_the_log_tells_what_is_being_sent_from_what_waits(
    app: App,
    db: Database,
    client: httpx.Client,
    live_url: str,
    key: str,
    endpoint: Callable[..., Json],
    terminal: Terminal,
):
    made = endpoint()
    sent = client.post(f"/v3/webhooks/{made['id']}/test").json()

    def claim() -> outbox.ClaimedDelivery:
        with db.begin() as tx:
            [claimed] = outbox.claim(tx, lease=LEASE, limit=10, busy={})
        return claimed

    def told() -> tuple[bool, bool, str]:
        """Whether the service says that it is being sent, and that it will be; and the command."""
        [one] = log(client, made)
        done = terminal.run("webhooks", "log", made["id"], "--url", live_url, "--key", key)
        words = "being sent for", "pending, again in", "pending, due again", "pending", "delivered"
        shown = next(one for one in words if one in done.out)
        return bool(one["sendingSince"]), bool(one["nextAttemptAt"]), shown

    sending, waiting = (True, False, "being sent for"), (False, True, "pending, again in")
    assert (sent["sendingSince"], told()) == (None, (False, True, "pending"))
    claimed = claim()
    assert told() == sending
    with db.begin() as tx:
        outbox.refused(tx, claimed, outbox.Attempt(503, "busy", 1.0), timedelta(minutes=9))
    assert told() == waiting
    due_now(db)
    claim()
    assert told() == sending
    due_now(db)  # the process that sends it has died
    assert told() == (False, True, "pending, due again")
    claim()
    again = client.post(f"/v3/webhooks/{made['id']}/deliveries/{sent['id']}/replay").json()
    assert (again["sendingSince"], told()) == (None, (False, True, "pending"))
    outcome = claim()
    with db.begin() as tx:
        outbox.delivered(tx, outcome, outbox.Attempt(204, None, 1.0))
    assert told() == (False, False, "delivered")


def test_an_endpoint_that_takes_nothing_for_days_is_disabled_with_the_reason(
    app: App,
    db: Database,
    tenant: Tenant,
    client: httpx.Client,
    receiver: Receiver,
    endpoint: Callable[..., Json],
):
    made = endpoint()
    receiver.status = 503
    for text in ("one", "two"):
        add(app, tenant, text)
    processing.drain(app)
    webhooks.drain(app)
    with db.begin() as tx:
        tx.execute(
            "update endpoints set failing_since = now() - interval '4 days' where id = %s",
            (made["id"],),
        )
    due_now(db)
    webhooks.drain(app)

    [shown] = client.get("/v3/webhooks").json()["endpoints"]
    assert shown["disabled"]
    assert "3 days: it answered 503" in shown["disabledReason"]
    assert [one["state"] for one in log(client, made)] == ["dead", "dead"]
    add(app, tenant, "three")
    processing.drain(app)
    assert len(log(client, made)) == 2
    assert client.post(f"/v3/webhooks/{made['id']}/test").status_code == 400

    enabled = client.patch(f"/v3/webhooks/{made['id']}", json={"disabled": False}).json()
    assert (enabled["disabled"], enabled["failures"]) == (False, 0)
    receiver.status = 200
    assert client.post(f"/v3/webhooks/{made['id']}/test").status_code == 202
    webhooks.drain(app)
    assert told(receiver)[-1] == ("webhook.test", {"endpointId": made["id"]})


def test_failures_of_one_address_are_not_those_of_the_next(
    db: Database, app: App, client: httpx.Client, receiver: Receiver, endpoint: Callable[..., Json]
):
    made = endpoint()
    receiver.status = 503
    assert client.post(f"/v3/webhooks/{made['id']}/test").status_code == 202
    webhooks.drain(app)
    with db.begin() as tx:
        tx.execute("update endpoints set failing_since = now() - interval '4 days'")
    same = client.patch(f"/v3/webhooks/{made['id']}", json={"url": receiver.url}).json()
    moved = client.patch(f"/v3/webhooks/{made['id']}", json={"url": f"{receiver.url}/new"}).json()
    due_now(db)
    webhooks.drain(app)

    [shown] = client.get("/v3/webhooks").json()["endpoints"]
    assert (same["failures"], moved["failures"], shown["failures"]) == (1, 0, 1)
    assert not shown["disabled"]


def test_a_failure_long_after_the_last_is_the_first_of_a_new_row(
    app: App,
    db: Database,
    tenant: Tenant,
    client: httpx.Client,
    receiver: Receiver,
    endpoint: Callable[..., Json],
):
    made = endpoint()
    receiver.status = 503
    add(app, tenant, "one")
    processing.drain(app)
    webhooks.drain(app)
    with db.begin() as tx:  # it was given up, and nothing happened for days
        tx.execute("update deliveries set state = 'dead', due_at = null, ended_at = now()")
        tx.execute(
            "update endpoints set failing_since = now() - interval '4 days',"
            " rest_until = now() - interval '3 days' where id = %s",
            (made["id"],),
        )
    add(app, tenant, "two")
    processing.drain(app)
    webhooks.drain(app)

    [shown] = client.get("/v3/webhooks").json()["endpoints"]
    assert not shown["disabled"]
    assert [one["state"] for one in log(client, made)] == ["pending", "dead"]
    receiver.status = 200
    due_now(db)
    webhooks.drain(app)
    assert [one["state"] for one in log(client, made)] == ["delivered", "dead"]


def test_what_a_clock_wrote_that_was_ahead_is_told_once_it_is_set_right(
    app: App,
    db: Database,
    tenant: Tenant,
    client: httpx.Client,
    receiver: Receiver,
    endpoint: Callable[..., Json],
):
    made = endpoint()
    add(app, tenant, "one")
    processing.drain(app)
    with db.begin() as tx:
        tx.execute("update deliveries set due_at = due_at + interval '5 hours'")
        tx.execute("update endpoints set rest_until = now() + interval '5 hours'")
        outbox.sweep(tx)
    webhooks.drain(app)
    assert [one["state"] for one in log(client, made)] == ["delivered"]
    assert len(receiver.came) == 1


def test_one_that_is_gone_is_disabled_at_once(
    app: App,
    tenant: Tenant,
    client: httpx.Client,
    receiver: Receiver,
    endpoint: Callable[..., Json],
):
    endpoint()
    receiver.status = 410
    add(app, tenant)
    processing.drain(app)
    webhooks.drain(app)

    assert client.get("/v3/webhooks").json()["endpoints"][0]["disabledReason"] == (
        "it answered 410 Gone"
    )


@pytest.mark.parametrize("status", [410, 503])
def test_what_was_refused_at_an_old_address_is_sent_to_the_new_one(
    status: int,
    app: App,
    tenant: Tenant,
    client: httpx.Client,
    receiver: Receiver,
    endpoint: Callable[..., Json],
):
    made = endpoint()
    add(app, tenant)
    processing.drain(app)
    with app.db.begin() as tx:
        [claimed] = outbox.claim(tx, lease=webhooks.LEASE, limit=1, busy={})
    receiver.status = status
    client.patch(f"/v3/webhooks/{made['id']}", json={"url": f"{receiver.url}/new"})
    webhooks.deliver(app, claimed)
    [shown] = client.get("/v3/webhooks").json()["endpoints"]
    receiver.status = 204
    webhooks.drain(app)

    assert (shown["disabled"], shown["failures"]) == (False, 0)
    assert [(came.id, came.path) for came in receiver.came[:2]] == [
        (claimed.id, "/hook"),
        (claimed.id, "/hook/new"),
    ]


def test_after_rotation_both_secrets_sign_for_a_day(
    app: App,
    db: Database,
    client: httpx.Client,
    receiver: Receiver,
    endpoint: Callable[..., Json],
):
    made = endpoint()
    rotated = client.patch(f"/v3/webhooks/{made['id']}", json={"rotateSecret": True}).json()
    client.post(f"/v3/webhooks/{made['id']}/test")
    webhooks.drain(app)
    age_secrets(db, timedelta(days=1))
    client.post(f"/v3/webhooks/{made['id']}/test")
    webhooks.drain(app)

    during, after = receiver.came
    assert during.signed_by(made["secret"])
    assert during.signed_by(rotated["secret"])
    assert not after.signed_by(made["secret"])
    assert after.signed_by(rotated["secret"])
    with db.begin() as tx:
        row = tx.execute("select * from endpoints where id = %s", (made["id"],)).fetchone()
    assert row is not None
    assert rotated["secret"] not in str(row)
    assert "secret" not in client.get("/v3/webhooks").json()["endpoints"][0]


def test_each_secret_of_several_rotations_signs_for_its_day(
    app: App,
    db: Database,
    client: httpx.Client,
    receiver: Receiver,
    endpoint: Callable[..., Json],
):
    made = endpoint()
    path = f"/v3/webhooks/{made['id']}"
    first, second = made["secret"], client.patch(path, json={"rotateSecret": True}).json()["secret"]
    age_secrets(db, timedelta(hours=23))
    third = client.patch(path, json={"rotateSecret": True}).json()["secret"]
    for older in (timedelta(), timedelta(hours=2), timedelta(hours=22)):
        age_secrets(db, older)
        client.post(f"{path}/test")
        webhooks.drain(app)

    sign = [
        {one for one in (first, second, third) if came.signed_by(one)} for came in receiver.came
    ]
    assert sign == [{first, second, third}, {second, third}, {third}]


def test_rotations_without_end_are_refused_before_an_old_secret_signs_no_more(
    client: httpx.Client, endpoint: Callable[..., Json]
):
    path = f"/v3/webhooks/{endpoint()['id']}"
    answers = [client.patch(path, json={"rotateSecret": True}) for _ in range(targets.MOST_OLD + 1)]

    assert [answer.status_code for answer in answers] == [200] * targets.MOST_OLD + [409]
    assert "still signs" in answers[-1].text


def test_after_rotation_both_secrets_sign_though_the_key_changes(
    app: App,
    db: Database,
    client: httpx.Client,
    receiver: Receiver,
    endpoint: Callable[..., Json],
):
    """What the old key of the installation sealed is sealed again, and the old key may go."""
    made = endpoint()
    rotated = client.patch(f"/v3/webhooks/{made['id']}", json={"rotateSecret": True}).json()
    secret = app.config.data_dir / "secret-key"
    kept = secret.read_bytes()
    config = app.config.model_copy(update={"secret_key": SecretStr(secrets.token_hex(32))})
    newer = replace(app, config=config)
    try:
        reencrypt.reseal(newer)
        secret.unlink()
        client.post(f"/v3/webhooks/{made['id']}/test")
        webhooks.drain(newer)
    finally:
        secret.write_bytes(kept)

    [came] = receiver.came
    assert came.signed_by(rotated["secret"])
    assert came.signed_by(made["secret"])


def test_inner_addresses_are_not_called(
    app: App, db: Database, client: httpx.Client, receiver: Receiver, endpoint: Callable[..., Json]
):
    refused = client.post("/v3/webhooks", json={"url": "http://10.0.0.1/x"})
    made = endpoint()
    with db.begin() as tx:  # as if its name had come to mean another address
        tx.execute("update endpoints set url = 'http://10.0.0.1/x' where id = %s", (made["id"],))
    client.post(f"/v3/webhooks/{made['id']}/test")
    webhooks.drain(app)

    assert refused.status_code == 400
    assert "url" in refused.json()["details"]
    assert log(client, made)[0]["log"][0]["reason"].startswith("blocked_target")


def test_redirects_are_not_followed(
    app: App, client: httpx.Client, receiver: Receiver, endpoint: Callable[..., Json]
):
    made = endpoint()
    receiver.status, receiver.headers = 307, {"location": f"{receiver.url}/elsewhere"}
    client.post(f"/v3/webhooks/{made['id']}/test")
    webhooks.drain(app)

    assert [one.path for one in receiver.came] == ["/hook"]
    assert log(client, made)[0]["state"] == "pending"


def test_a_slow_endpoint_does_not_delay_another(
    app: App,
    tenant: Tenant,
    receiver: Receiver,
    endpoint: Callable[..., Json],
    monkeypatch: pytest.MonkeyPatch,
):
    # So patient that the slow one holds what it has until the other has everything.
    monkeypatch.setattr(webhooks, "TOTAL", 140.0)
    monkeypatch.setattr(webhooks, "LEASE", timedelta(minutes=10))
    patient = FetchLimits(total=140.0, read=140.0)
    with (
        Receiver() as slow,
        Fetcher(user_agent="t", limits=patient, allow_networks=[LOOPBACK]) as fetcher,
    ):
        slow.hold.clear()
        endpoint(url=slow.url, events=["document.done"])
        endpoint(events=["document.done"])
        loop = Deliverer(replace(app, fetcher=fetcher))
        thread = threading.Thread(target=loop.run)
        thread.start()
        try:
            for number in range(40):
                add(app, tenant, f"text {number}")
            processing.drain(app)
            eventually(lambda: len(receiver.came) == 40)
            waiting = len(slow.came)
            slow.hold.set()
            eventually(lambda: len(slow.came) == 40)
        finally:
            loop.stop()
            thread.join()

    assert waiting <= outbox.AT_ONCE


def test_slow_endpoints_together_take_half_of_the_places(
    app: App,
    client: httpx.Client,
    receiver: Receiver,
    endpoint: Callable[..., Json],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(webhooks, "SLOW", 0.0)

    def tell(*endpoints: Json) -> None:
        for one in endpoints:
            client.post(f"/v3/webhooks/{one['id']}/test").raise_for_status()

    with Receiver() as slow:
        many = [endpoint(url=slow.url) for _ in range(20)]
        loop = Deliverer(app)
        thread = threading.Thread(target=loop.run)
        tell(*many)
        thread.start()
        try:
            eventually(lambda: len(slow.came) == 20 and not loop.held())
            slow.hold.clear()
            tell(*many)
            eventually(lambda: len(slow.came) >= 20 + webhooks.THREADS // 2)
            tell(endpoint())
            eventually(lambda: receiver.came)
            waiting = len(slow.came) - 20
            slow.hold.set()
            eventually(lambda: len(slow.came) == 40)
        finally:
            slow.hold.set()
            loop.stop()
            thread.join()

    assert waiting == webhooks.THREADS // 2


def test_organisations_and_their_endpoints_take_turns(
    client: httpx.Client, db: Database, endpoint: Callable[..., Json], live_url: str
):
    a, b, c = (endpoint()["id"] for _ in range(3))
    tell = [(client, one) for one in (a, b, c) for _ in range(5)]
    with fresh_org(db) as other:
        with db.begin() as tx:
            secret = orgs.create_key(tx, other.id)[1]
        with plain_client(live_url, {"authorization": f"Bearer {secret}"}) as stranger:
            z = endpoint(stranger)["id"]
            for http, one in [*tell, (stranger, z), (stranger, z)]:
                http.post(f"/v3/webhooks/{one}/test").raise_for_status()

        def taken(limit: int, busy: Mapping[str, int], **slow: Any) -> list[str]:
            with db.begin() as tx:
                found = outbox.claim(tx, lease=LEASE, limit=limit, busy=busy, **slow)
                tx.execute("update deliveries set due_at = created_at where due_at is not null")
            return sorted(one.endpoint_id for one in found)

        assert z in taken(2, {}), "what came last waits for nobody"
        assert taken(5, {}) == sorted([a, b, c, z, z])
        assert taken(1, {a: 1, b: 1}) == [z]
        assert taken(1, {z: 1}) == [a]
        assert taken(3, {a: 1, b: 1, z: 2}) == sorted([a, c, z])
        assert taken(20, {}) == sorted([a, b, c] * 4 + [z] * 2)
        assert taken(20, {}, slow=[a, b, c], for_slow=2) == sorted([a, b, z, z])
        assert taken(20, {a: 1}, slow=[a, b, c], for_slow=0) == [z, z]


def ids(came: list[Came]) -> list[str]:
    return [one.id for one in came]


def test_two_loops_send_each_delivery_once(
    app: App, tenant: Tenant, receiver: Receiver, endpoint: Callable[..., Json]
):
    endpoint(events=["document.done"])
    loops = [Deliverer(app), Deliverer(app)]
    threads = [threading.Thread(target=loop.run) for loop in loops]
    for number in range(30):
        add(app, tenant, f"text {number}")
    processing.drain(app)
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: len(receiver.came) >= 30)
    finally:
        for loop in loops:
            loop.stop()
        for thread in threads:
            thread.join()

    assert len(set(ids(receiver.came))) == len(ids(receiver.came)) == 30


def test_the_log_forgets_what_ended_a_week_ago(
    app: App, db: Database, client: httpx.Client, endpoint: Callable[..., Json]
):
    made = endpoint()
    for _ in range(2):
        client.post(f"/v3/webhooks/{made['id']}/test")
    webhooks.drain(app)
    newest, oldest = log(client, made)
    with db.begin() as tx:
        tx.execute(
            "update deliveries set ended_at = now() - interval '8 days' where id = %s",
            (oldest["id"],),
        )
        outbox.sweep(tx)

    assert [one["id"] for one in log(client, made)] == [newest["id"]]


# --- real processes ------------------------------------------------------------------------------


@pytest.mark.chaos
def test_a_worker_killed_while_it_waits_for_the_answer_loses_nothing(
    app: App, new_database: Callable[[], str], short_tmp: Path, receiver: Receiver
):
    url, folder = new_database(), short_tmp / f"killed-{random_id()}"
    config = Config(data_dir=folder, embedder="none", allow_networks=[LOOPBACK])
    secret, id = signing.new_secret(), random_id()
    environment = {
        **os.environ,  # noqa: TID251 # the child needs PATH and the like
        "RECOLLECT_DATABASE_URL": url,
        "RECOLLECT_DATA_DIR": str(folder),
        "RECOLLECT_EMBEDDER": "none",
        "RECOLLECT_ALLOW_NETWORKS": "127.0.0.0/8",
    }

    receiver.hold.clear()
    with Database(url, size=2) as other:
        with other.begin() as tx:
            tenant = Tenant(orgs.create(tx, "killed", Plan.FREE).id)
            targets.create(
                tx,
                tenant,
                id,
                url=receiver.url,
                events=["document.done"],
                tags=None,
                secret=encryption.seal(secret_keys(config), secret, place=signing.place(id)),
            )
            new = NewDocument(documents.text_content("a heron"), ["a"])
            documents.add(tx, tenant, new, DocumentId(random_id()))
        first = subprocess.Popen(
            [sys.executable, "-m", "recollect", "work", "--workers", "1"],
            env=environment,
            stderr=subprocess.DEVNULL,
        )
        try:
            eventually(lambda: receiver.came)
        finally:
            first.kill()
            first.wait()
        before = len(receiver.came)
        due_now(other)
        receiver.hold.set()
        # The next process is this one.
        assert webhooks.drain(replace(app, config=config, db=other)) == 1
        with other.begin() as tx:
            found = outbox.deliveries(tx, tenant, id, state="delivered", limit=9, page=1)

    assert found.total == 1
    assert len(receiver.came) == before + 1
    assert len(set(ids(receiver.came))) == 1
    assert all(one.signed_by(secret) for one in receiver.came)


@pytest.fixture
def terminal(tmp_path: Path) -> Generator[Terminal]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}  # noqa: TID251 # it needs PATH
    with Terminal(tmp_path, environment) as terminal:
        yield terminal


def test_the_command_line_makes_tests_and_replays(
    app: App, live_url: str, key: str, receiver: Receiver, terminal: Terminal
):
    service = ["--url", live_url, "--key", key, "--json"]

    def run(*words: str) -> Any:
        done = terminal.run("endpoints", *words, *service)
        assert done.code == 0, done.err
        return done.json

    made = run("add", receiver.url, "--event", "document.done", "--tag", "a")
    sent = run("test", made["id"])
    webhooks.drain(app)
    [delivery] = run("log", made["id"], "--state", "delivered")
    run("replay", made["id"], delivery["id"])
    webhooks.drain(app)
    rotated = run("rotate", made["id"])
    [listed] = run("list")
    run("rm", made["id"])

    assert delivery["id"] == sent["id"]
    assert ids(receiver.came) == [sent["id"]] * 2
    assert rotated["secret"] != made["secret"]
    assert (listed["events"], listed["containerTags"]) == (["document.done"], ["a"])
    assert run("list") == []


# --- at once -------------------------------------------------------------------------------------


def waits(db: Database, count: int) -> bool:
    """Whether so many sessions of this database wait for a lock."""
    with db.begin() as tx:
        row = tx.execute(
            "select count(*) as n from pg_stat_activity"
            " where datname = current_database() and wait_event_type = 'Lock'"
        ).fetchone()
    return row is not None and row["n"] >= count


@pytest.mark.parametrize("ending", ["delivered", "refused", "replayed"])
def test_deleting_an_endpoint_waits_for_what_is_written_down_and_for_nothing_else(
    app: App,
    db: Database,
    tenant: Tenant,
    client: httpx.Client,
    endpoint: Callable[..., Json],
    ending: str,
):
    """Both want the endpoint and its delivery: the second must not hold what the first needs."""
    made = endpoint(events=["document.done"])
    add(app, tenant)
    processing.drain(app)
    with db.begin() as tx:
        tx.execute(
            "update endpoints set failures = 1, failing_since = now() where id = %s", (made["id"],)
        )
        [claimed] = outbox.claim(tx, lease=LEASE, limit=1, busy={})
    failed: list[BaseException] = []

    def end() -> None:
        try:
            with db.begin() as tx:
                attempt = outbox.Attempt(200, None, 1.0)
                if ending == "delivered":
                    outbox.delivered(tx, claimed, attempt)
                elif ending == "refused":
                    outbox.refused(tx, claimed, attempt, None)
                else:
                    outbox.replay(tx, tenant, claimed.endpoint_id, claimed.id)
        except BaseException as error:  # noqa: BLE001 # looked at below
            failed.append(error)

    with ThreadPoolExecutor(2) as threads, db.begin() as tx:
        tx.execute("select 1 from deliveries where id = %s for update", (claimed.id,))
        ended = threads.submit(end)
        eventually(lambda: waits(db, 1))
        deleted = threads.submit(client.delete, f"/v3/webhooks/{made['id']}")
        eventually(lambda: waits(db, 2))
        tx.execute("commit")
        tx.execute("begin")
        ended.result(60)
        answer = deleted.result(60)

    assert failed == []
    assert answer.status_code < 300, answer.text


def test_a_document_ends_while_an_endpoint_is_deleted(
    app: App, db: Database, tenant: Tenant, endpoint: Callable[..., Json]
):
    made = endpoint(events=["document.done"])
    id = add(app, tenant)
    with ThreadPoolExecutor(1) as threads, db.begin() as tx:
        targets.delete(tx, tenant, made["id"])
        worked = threads.submit(processing.drain, app)
        eventually(lambda: waits(db, 1))
        tx.execute("commit")
        tx.execute("begin")
        assert worked.result(60) == 1

    with db.begin() as tx:
        found = documents.get(tx, tenant, DocumentId(id))
    assert (found.status, found.attempts) == (Status.DONE, 1)
