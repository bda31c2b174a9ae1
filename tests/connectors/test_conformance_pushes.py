"""What must hold of pushes at every connector that has them (connectors.md 4.1: 3, 24 to 27, 33).

The service is reached over real HTTP through a gate that remembers what the provider sent, so that
a test can send it again, changed, doubled, or in another order.
"""

import random
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, cast

import httpx
import pytest
from starlette.testclient import TestClient

from recollect import encryption
from recollect.api import create_app
from recollect.app import App, secret_keys
from recollect.connectors.pushes import Registration
from recollect.documents import DocumentTurn
from recollect.errors import NotFoundError
from recollect.model import ConnectionId, Org, Plan, Tenant
from recollect.orgs import orgs
from recollect.sync import (
    connection_queue,
    connections,
    push_registrations,
    registering,
    revocations,
    sources,
)
from recollect.worker import syncs
from recollect.worker.processing import drain
from tests.conftest import plain_client, serving
from tests.connectors.peers import PEERS, PUBLIC, NotionPeer, Peer
from tests.connectors.test_conformance import Hurried, World, conforming
from tests.connectors.test_conformance import known_connectors as known_connectors
from tests.connectors.test_conformance import unpaced as unpaced
from tests.fakes.proxy import Proxy, Seen

every = pytest.mark.parametrize
MOVED = "https://moved.example"


@dataclass
class Loud(World):
    """A world whose provider can push."""

    live: str = ""
    caller: httpx.Client = None  # pyright: ignore[reportAssignmentType] # always given
    """of the service itself, without a key"""
    gate: Proxy = None  # pyright: ignore[reportAssignmentType] # always given

    def work(self) -> int:
        """All that is due; how many syncs ran."""
        ran = syncs.drain(self.app, Hurried())
        drain(self.app)
        return ran

    def is_due(self) -> bool:
        with self.app.db.begin() as tx:
            row = tx.execute(
                "select due_at <= now() and wanted_by = 'event' as due from connections"
                " where id = %s",
                (self.id,),
            ).fetchone()
        return row is not None and row["due"] is True

    def send(
        self, push: Seen, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> httpx.Response:
        """To the service itself, past the gate."""
        return self.caller.post(
            push.path,
            headers={n: v for n, v in push.headers.items() if n not in ("host", "content-length")}
            if headers is None
            else headers,
            content=push.body if body is None else body,
        )

    def begun(self) -> None:
        """Connected, synced, pushes registered, and nothing left to do."""
        self.connect()
        self.sync()
        self.work()
        assert not self.is_due()
        self.gate.forget()

    def hold(self) -> None:
        """What is pushed from here on stays at the gate, answered as if it had arrived."""
        self.gate.forget()
        self.gate.on(".", status=200, body=b"", times=None)


@pytest.fixture
def loud(request: pytest.FixtureRequest, app: App, org: Org, key: str) -> Generator[Loud]:
    name: str = request.param
    with ExitStack() as stack:
        peer: Peer = stack.enter_context(PEERS[name]())
        given = peer.pushed()
        settings: dict[str, Any] = {
            "providers": {name: given} if given else {},
            "crawl_delay": 0.0,
            "public_url": PUBLIC,
            "folders": list(peer.opens),
        }
        own = replace(app, config=app.config.model_copy(update=settings))
        live = stack.enter_context(serving(own))
        gate = stack.enter_context(Proxy(live))
        caller = stack.enter_context(plain_client(live, {}))
        headers = {"authorization": f"Bearer {key}"}
        http = stack.enter_context(TestClient(create_app(own), headers=headers))
        peer.listen(gate.url)
        if isinstance(peer, NotionPeer):
            confirm(own, peer)
        for n in range(3):
            peer.put(f"n{n}", f"The text of number {n} speaks of zebra{n}.")
        known = cast("httpx.Client", http)
        yield Loud(own, known, peer, name, org, live=live, caller=caller, gate=gate)
        with own.db.begin() as tx:
            tx.execute("delete from hook_secrets")
            tx.execute("delete from pushes")  # another fake may number its own alike


def confirm(app: App, peer: NotionPeer) -> None:
    """As the operator does, by hand."""
    with app.db.begin() as tx:
        [pending] = push_registrations.hook_secrets(tx, "notion")
        assert not pending.confirmed
        push_registrations.confirm_hook_secret(tx, "notion", pending.hash)
    token = encryption.unseal(secret_keys(app.config), pending.sealed, place=("notion", "hook"))
    assert peer.notion.confirm(token)


@every("loud", conforming("push"), indirect=True)
def test_3_a_push_brings_the_change_and_touches_nothing_else(loud: Loud) -> None:
    loud.begun()
    before = {name: loud.get(name) for name in loud.documents()}
    loud.peer.put("n1", "Number one speaks of yaks now.")
    loud.peer.deliver()
    assert loud.is_due(), "without the schedule"
    loud.work()
    assert loud.finds("yaks")
    loud.agrees()
    assert loud.run()["triggerType"] == "event"
    for name in ("n0", "n2"):
        assert loud.get(name) == before[name], "nothing of it was read or embedded"


@every("loud", conforming("push"), indirect=True)
def test_24_a_forged_push_does_nothing(loud: Loud) -> None:
    loud.begun()
    loud.hold()
    loud.peer.put("n9", "A new one.")
    loud.peer.deliver()
    genuine = loud.gate.log[-1]

    forgeries = loud.peer.forgeries(genuine)
    for name, (headers, body) in forgeries.items():
        answer = loud.send(genuine, headers, body)
        assert (answer.status_code, answer.content) == (401, b""), name
        assert not loud.is_due(), name

    assert 200 <= loud.send(genuine).status_code < 300
    assert loud.is_due(), "the genuine one is none of them"


@every("loud", conforming("other_secret"), indirect=True)
def test_24_the_secret_of_another_connection_proves_nothing(loud: Loud) -> None:
    loud.begun()
    first = loud.id
    loud.connect(containerTags=["other"])
    loud.sync()
    second, loud.id = loud.id, first
    loud.work()
    loud.hold()
    loud.peer.put("n9", "A new one.")
    loud.peer.deliver()
    of = {push.path: push for push in loud.gate.log}
    [mine, yours] = of.values()
    for swapped in (replace(mine, path=yours.path), replace(yours, path=mine.path)):
        answer = loud.send(swapped)
        assert (answer.status_code, answer.content) == (401, b"")
    for id in (first, second):
        loud.id = id
        assert not loud.is_due()


# The thousand pushes of the night are everybody's.
@every("loud", conforming("push", by_day=("cabinet", "google-drive", "notion")), indirect=True)
def test_25_doubled_and_shuffled_pushes_make_two_runs_at_most(loud: Loud) -> None:
    loud.begun()
    burst(loud, times=8, hands=4)


@pytest.mark.slow
@every("loud", conforming("push"), indirect=True)
def test_25_a_thousand_pushes_make_two_runs_at_most(loud: Loud) -> None:
    loud.begun()
    burst(loud, times=200, hands=16)


def burst(loud: Loud, *, times: int, hands: int) -> None:
    loud.hold()
    for n in range(5):
        loud.peer.put(f"n{n}", f"Changed number {n} speaks of okapi{n}.")
        loud.peer.deliver()
    late = loud.gate.log
    assert late
    many = [push for push in late for _ in range(times)][: 5 * times]
    many += late * ((5 * times - len(many)) // len(late))
    random.Random(25).shuffle(many)
    half = len(many) // 2

    def send(pushes: list[Seen]) -> None:
        with ThreadPoolExecutor(hands) as pool:
            codes = [answer.status_code for answer in pool.map(loud.send, pushes)]
        assert all(200 <= code < 300 for code in codes)

    before = len(loud.http.get(f"/v3/connections/{loud.id}/sync-runs?limit=200").json())
    send(many[:half])
    with loud.app.db.begin() as tx:
        [claim] = connection_queue.claim(tx, lease=loud.app.lease, limit=1)
    send(many[half:])  # while a sync runs
    syncs.settle(loud.app, claim, syncs.attempt(loud.app, claim, Never()))
    loud.work()
    after = len(loud.http.get(f"/v3/connections/{loud.id}/sync-runs?limit=200").json())
    assert 1 <= after - before <= 2
    loud.agrees()
    assert loud.finds("okapi4")

    loud.http.delete(f"/v3/connections/{loud.id}")
    loud.work()
    loud.peer.proxy.forget()
    send(late)
    assert loud.work() == 0
    assert loud.peer.proxy.log == [], "a push for a deleted connection is only acknowledged"


class Never(syncs.threading.Event):
    """Nobody stops."""


@every("loud", conforming("handshake"), indirect=True)
def test_26_the_handshake_may_come_before_the_answer(loud: Loud) -> None:
    assert loud.peer.registers is not None

    def early(body: bytes) -> bytes:
        loud.peer.deliver()
        return body

    loud.peer.proxy.on(loud.peer.registers, alter=early)
    loud.connect()
    loud.sync()
    shaken = [seen.status for seen in loud.gate.log]
    assert shaken
    assert all(status is not None and 200 <= status < 300 for status in shaken), shaken
    assert loud.connection()["pushes"] == "on"
    runs = loud.http.get(f"/v3/connections/{loud.id}/sync-runs").json()
    assert runs[0]["triggerType"] == "event", "each registration is followed by a sync"


@every("loud", ["notion"], indirect=True)
def test_26_a_stranger_replaces_no_token(loud: Loud) -> None:
    loud.begun()
    stranger = {"verification_token": "secret_of_a_stranger_who_knocks_here"}
    answer = loud.caller.post("/v3/hooks/notion", json=stranger)
    assert answer.status_code == 200
    loud.peer.put("n9", "Still heard.")
    assert loud.is_due(), "the confirmed one goes on to prove pushes"


@every("loud", conforming("renewed"), indirect=True)
def test_27_a_registration_is_renewed_without_a_gap(loud: Loud) -> None:
    loud.begun()
    [old] = loud.peer.registrations()
    half_over(loud)
    assert loud.peer.registers is not None
    overlap: list[set[str]] = []

    def look(body: bytes) -> bytes:
        overlap.append(loud.peer.registrations())
        return body

    loud.peer.proxy.on(loud.peer.registers, alter=look)
    loud.work()
    [new] = loud.peer.registrations()
    assert loud.provider == "gmail" or new != old
    assert loud.provider == "gmail" or old in overlap[0], "the old one lived until the new one did"
    assert loud.run()["triggerType"] == "event", "followed by a sync"
    loud.peer.put("n9", "Heard by the new one.")
    loud.peer.deliver()
    assert loud.is_due()


@every("loud", conforming("renewed"), indirect=True)
def test_27_while_renewal_fails_the_old_one_serves_and_then_polling(loud: Loud) -> None:
    loud.begun()
    assert loud.peer.registers is not None
    loud.peer.proxy.on(loud.peer.registers, status=503, times=None)
    half_over(loud)
    loud.work()
    assert loud.connection()["pushes"] == "on"
    loud.peer.put("n8", "Still heard.")
    loud.peer.deliver()
    assert loud.is_due()
    loud.work()

    with loud.app.db.begin() as tx:
        tx.execute(
            "update registrations set expires_at = now() - interval '1 minute'"
            " where connection_id = %s",
            (loud.id,),
        )
    shown = loud.sync()
    assert shown["pushes"].startswith("off (")
    wait = datetime.fromisoformat(shown["nextSyncAt"]) - datetime.fromisoformat(
        shown["lastSyncedAt"]
    )
    assert wait <= loud.app.config.poll_interval


def half_over(loud: Loud) -> None:
    with loud.app.db.begin() as tx:
        tx.execute("update registrations set renew_at = now() where connection_id = %s", (loud.id,))


@every("loud", conforming("renewed"), indirect=True)
def test_27_a_provider_that_calls_a_registration_unauthorized_is_polled(loud: Loud) -> None:
    """With an authorization that is good for all else: github.com/OneDrive/onedrive-api-docs
    issue 1740, and Google's `push.webhookUrlUnauthorized` for a domain that is not verified."""
    assert loud.peer.registers is not None
    loud.peer.proxy.on(loud.peer.registers, status=401, times=None)
    loud.connect()
    loud.sync()
    for _ in range(3):
        half_over(loud)
        loud.work()

    shown = loud.connection()
    assert shown["pushes"].startswith("off (")
    assert shown["state"] == "ready"
    with loud.app.db.begin() as tx:
        stored = push_registrations.registered(tx, ConnectionId(loud.id))
    assert len(stored) == 1


@every("loud", conforming("renewed"), indirect=True)
def test_27_a_renewal_that_is_refused_again_and_again_is_one(loud: Loud) -> None:
    loud.begun()
    assert loud.peer.registers is not None
    loud.peer.proxy.on(loud.peer.registers, status=401, times=None)
    for _ in range(4):
        half_over(loud)
        loud.work()

    with loud.app.db.begin() as tx:
        stored = push_registrations.registered(tx, ConnectionId(loud.id))
    assert sorted(one.answered for one in stored) == [False, True]


@every("loud", conforming("renewed"), indirect=True)
def test_28_a_registration_that_is_under_way_at_the_end_is_taken_back(loud: Loud) -> None:
    assert loud.peer.registers is not None

    def end(body: bytes) -> bytes:
        tenant = Tenant(loud.org.id)
        with loud.app.db.begin() as tx:
            ended = [connections.get(tx, tenant, loud.id, lock=True)]
            sources.end(tx, loud.app, tenant, ended, with_documents=True)
        syncs.chores(loud.app, Hurried())
        return body

    loud.peer.proxy.on(loud.peer.registers, alter=end)
    loud.connect()
    loud.due()
    syncs.drain(loud.app, Hurried())

    syncs.chores(loud.app, Hurried())

    # A watch of a mailbox may serve other connections, too.
    assert loud.provider == "gmail" or loud.peer.registrations() == set()
    with loud.app.db.begin() as tx:
        assert tx.execute("select from farewells").rowcount == 0


@every("loud", conforming("renewed"), indirect=True)
def test_28_a_connection_that_is_gone_has_nothing_to_register(loud: Loud) -> None:
    loud.connect()
    loud.due()
    with loud.app.db.begin() as tx:
        [claim] = connection_queue.claim(tx, lease=loud.app.lease, limit=1, turn=DocumentTurn())
        tenant = Tenant(loud.org.id)
        ended = [connections.get(tx, tenant, loud.id, lock=True)]
        sources.end(tx, loud.app, tenant, ended, with_documents=True)

    registering.register(loud.app, claim, Hurried())
    syncs.chores(loud.app, Hurried())

    assert loud.peer.registrations() == set()
    with loud.app.db.begin() as tx, pytest.raises(NotFoundError):
        push_registrations.add_registration(
            tx, "one", ConnectionId(loud.id), "another", secret="", url="https://a.org/"
        )


@every("loud", ["github"], indirect=True)
def test_28_an_authorization_is_taken_back_though_a_registration_stays(loud: Loud) -> None:
    """Microsoft has answered 401 where a subscription was to be deleted:
    github.com/OneDrive/onedrive-api-docs issue 869."""
    loud.begun()
    loud.peer.proxy.on("DELETE .*/hooks", status=401, times=None)

    assert loud.http.delete(f"/v3/connections/{loud.id}").status_code == 200
    loud.work()

    said = [(seen.method, seen.path.rpartition("/")[2]) for seen in loud.peer.proxy.log]
    assert ("DELETE", "grant") in said


@every("loud", conforming("renewed"), indirect=True)
def test_28_a_revocation_waits_for_all_registrations_that_are_under_way(loud: Loud) -> None:
    assert loud.peer.registers is not None
    loud.connect()
    other = Registration(loud.id, ConnectionId(loud.id), "another", "", "https://a.org/")

    def end(body: bytes) -> bytes:
        tenant = Tenant(loud.org.id)
        with loud.app.db.begin() as tx:
            push_registrations.add_registration(
                tx, other.id, other.connection_id, other.resource, secret="", url=other.url
            )
            ended = [connections.get(tx, tenant, loud.id, lock=True)]
            sources.end(tx, loud.app, tenant, ended, with_documents=True)
        return body

    def due() -> list[bool]:
        with loud.app.db.begin() as tx:
            rows = tx.execute("select due_at <= now() as due from farewells").fetchall()
        return [row["due"] for row in rows]

    loud.peer.proxy.on(loud.peer.registers, alter=end)
    loud.due()
    syncs.drain(loud.app, Hurried())

    assert due() == [False]
    with loud.app.db.begin() as tx:
        assert revocations.say_off(tx, loud.app, loud.provider, other)
    assert due() == [True]
    with loud.app.db.begin() as tx:
        tx.execute("delete from farewells")


@every("loud", conforming("lost"), indirect=True)
def test_27_a_registration_that_somebody_deleted_is_made_again(loud: Loud) -> None:
    loud.begun()
    [old] = loud.peer.registrations()
    loud.peer.lose()
    loud.peer.put("n9", "Pushed to nobody.")
    loud.sync()
    loud.work()
    [new] = loud.peer.registrations()
    assert new != old
    assert loud.run()["triggerType"] == "event", "followed by a sync"
    assert loud.connection()["pushes"] == "on"
    loud.agrees()
    loud.peer.put("n10", "Pushed to somebody.")
    loud.peer.deliver()
    assert loud.is_due()


@every("fails", [False, True])
@every("loud", conforming("renewed", by_day=("github", "onedrive")), indirect=True)
def test_27_an_address_that_changed_is_registered_in_place_of_the_old_one(
    loud: Loud, fails: bool
) -> None:
    loud.begun()
    before = loud.peer.registrations()
    config = loud.app.config.model_copy(update={"public_url": MOVED})
    loud.app = replace(loud.app, config=config)
    assert loud.peer.registers is not None
    if fails:
        loud.peer.proxy.on(loud.peer.registers, status=404, times=None)
    else:
        loud.peer.listen(loud.gate.url, MOVED)

    shown = loud.sync()

    with loud.app.db.begin() as tx:
        stored = push_registrations.registered(tx, ConnectionId(loud.id))
    if fails:
        assert shown["pushes"].startswith("off (")
        assert loud.peer.registrations() >= before, "the old address may still work"
        return
    assert shown["pushes"] == "on"
    assert [one.registration.url.partition("/v3/")[0] for one in stored] == [MOVED]
    assert before.isdisjoint(loud.peer.registrations())


@every("loud", ["github"], indirect=True)
def test_27_a_deleted_hook_that_cannot_be_made_again_is_polled(loud: Loud) -> None:
    loud.begun()
    loud.peer.lose()
    assert loud.peer.registers is not None
    loud.peer.proxy.on(loud.peer.registers, status=404, times=None)
    loud.sync()
    shown = loud.sync()
    assert shown["pushes"].startswith("off (")
    wait = datetime.fromisoformat(shown["nextSyncAt"]) - datetime.fromisoformat(
        shown["lastSyncedAt"]
    )
    assert wait <= loud.app.config.poll_interval


@every("loud", conforming("shared"), indirect=True)
def test_33_one_account_in_two_organisations(
    loud: Loud, stranger: tuple[Org, httpx.Client]
) -> None:
    loud.begun()
    org, http = stranger
    theirs = replace(loud, org=org, http=http, id="")
    theirs.begun()
    loud.work()
    two = loud.peer.registrations()
    assert len(two) == (1 if loud.provider in ("gmail", "notion") else 2)
    for one in (loud, theirs):
        one.agrees()
        total = one.http.post("/v3/documents/list", json={}).json()["pagination"]["totalItems"]
        assert total == len(loud.peer.names()), "each has its own and no other's"

    loud.peer.put("n8", "Both hear of it.")
    loud.peer.deliver()
    assert (loud.is_due(), theirs.is_due()) == (True, True)
    loud.work()

    loud.http.delete(f"/v3/connections/{loud.id}")
    loud.work()
    assert len(loud.peer.registrations()) == 1
    loud.peer.put("n9", "One still hears of it.")
    loud.peer.deliver()
    assert theirs.is_due()
    theirs.work()
    theirs.agrees()


@pytest.fixture
def stranger(loud: Loud) -> Generator[tuple[Org, httpx.Client]]:
    with loud.app.db.begin() as tx:
        org = orgs.create(tx, f"other-{orgs.random_id()}", Plan.ENTERPRISE)
        secret = orgs.create_key(tx, org.id)[1]
    with TestClient(create_app(loud.app), headers={"authorization": f"Bearer {secret}"}) as http:
        yield org, cast("httpx.Client", http)
    with loud.app.db.begin() as tx:
        tx.execute("delete from orgs where id = %s", (org.id,))


@every("loud", ["gmail", "notion"], indirect=True)
def test_33_an_account_with_the_id_of_another_for_a_name_hears_nothing_of_it(
    loud: Loud, stranger: tuple[Org, httpx.Client]
) -> None:
    loud.begun()
    org, http = stranger
    theirs = replace(loud, org=org, http=http, id="")
    id, name = loud.peer.account
    loud.peer.account = (name, id)
    theirs.connect()

    loud.peer.put("n8", "None of their business.")
    loud.peer.deliver()

    assert (loud.is_due(), theirs.is_due()) == (True, False)


# Of those that push, two by day; at the others, two organisations show it, too.
@every(
    "loud",
    conforming("two_tags", by_day=("cabinet", "gmail", "s3", "web-crawler")),
    indirect=True,
)
def test_33_one_account_in_two_tags(loud: Loud) -> None:
    loud.begun()
    first = loud.id
    loud.connect(containerTags=["other"])
    loud.sync()
    loud.work()
    for tag in ("notes", "other"):
        body = {"containerTags": [tag]}
        found = loud.http.post(f"/v3/connections/{loud.provider}/documents", json=body).json()
        assert {loud.peer.name_of(one) for one in found} == loud.peer.names()
        assert len(found) == len(loud.peer.names())
    loud.http.delete(f"/v3/connections/{first}")
    loud.work()
    loud.agrees()
    assert loud.connection()["state"] == "ready"
    loud.peer.put("n9", "After the other one ended.")
    loud.sync()
    loud.agrees()
