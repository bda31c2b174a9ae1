"""What must hold of every connector, asserted through the API only (connectors.md 4.1).

The numbers in the names are those of the scenarios there. A scenario that does not apply to a
provider stands in EXEMPT with the reason.
"""

import json
import re
import threading
import time
from collections.abc import Callable, Collection, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from starlette.testclient import TestClient

from recollect import connectors, documents
from recollect.api import create_app
from recollect.app import App
from recollect.connectors import api
from recollect.errors import BadRequestError
from recollect.model import ConnectionId, Org, Tenant, random_id
from recollect.ops.verify import verify
from recollect.sync import account_check, authorizations, connection_queue, connections, sources
from recollect.sync.credentials import seal_tokens
from recollect.worker import syncs, tag_merges
from recollect.worker.processing import drain
from tests.connectors.peers import PEERS, GithubPeer, NotionPeer, Peer
from tests.fakes.cabinet import CabinetConnector
from tests.fakes.notion import para, toggle
from tests.fakes.proxy import Proxy
from tests.fakes.shelf import providing

EXEMPT: dict[tuple[str, str], str] = {
    **dict.fromkeys(
        [("s3", one) for one in ("push", "other_secret", "handshake", "renewed", "lost", "shared")],
        "S3 tells queues of Amazon's of changes, not us; objects are found by the schedule",
    ),
    **dict.fromkeys(
        [
            ("web-crawler", one)
            for one in ("push", "other_secret", "handshake", "renewed", "lost", "shared")
        ],
        "sites push nothing",
    ),
    **dict.fromkeys(
        [
            ("folder", one)
            for one in ("push", "other_secret", "handshake", "renewed", "lost", "shared")
        ],
        "a folder pushes nothing; it is looked at often",
    ),
    **dict.fromkeys(
        [("folder", one) for one in ("authorizes", "revoked")], "a folder asks for no authorization"
    ),
    **dict.fromkeys(
        [("folder", one) for one in ("limited", "waited", "told")],
        "a disk asks nobody to slow down",
    ),
    ("web-crawler", "told"): "a host is asked by all crawls together, and its robots.txt may be"
    " there while nothing else is; its own tests leave out a page that asks for each pause",
    ("folder", "meanwhile"): "nothing is asked that could tell when; its own tests change it"
    " between two steps of a listing",
    ("gmail", "other_secret"): "pushes of all mailboxes are signed by Google, for one address",
    ("gmail", "handshake"): "Pub/Sub pushes without one",
    ("gmail", "lost"): "nothing tells whether a watch lives; it is renewed every two days",
    ("notion", "other_secret"): "there is one secret for all, of the integration",
    ("notion", "handshake"): "the operator registers it; its own test is below",
    ("notion", "renewed"): "a subscription of Notion does not expire",
    ("notion", "lost"): "the operator registers it; Notion tells nobody but him when it is gone",
    ("google-drive", "lost"): "nothing tells whether a channel lives; it is renewed every 3 days",
    ("s3", "authorizes"): "keys are given; there is nobody to authorize",
    ("web-crawler", "authorizes"): "a public site asks for no authorization",
    ("web-crawler", "many"): "its listing is the crawl, whose pages are read one by one; that it"
    " keeps little is the crawler's own test of checkpoints",
    **dict.fromkeys(
        [(one, "many") for one in ("gmail", "google-drive", "notion", "onedrive")],
        "its own tests list hundreds page by page; memory is measured at GitHub and S3, whose"
        " answers are the largest",
    ),
    ("folder", "away"): "a folder cannot redirect",
    ("folder", "page"): "nothing stands between a folder and us",
    ("web-crawler", "page"): "pages are what it brings; its own tests tell those of a hotel apart",
    ("web-crawler", "away"): "a site may lead elsewhere; its own tests follow redirects",
    ("cabinet", "many"): "it stands for no real provider",
    ("cabinet", "lost"): "it stands for no real provider",
    ("cabinet", "nothing"): "it stands for no real provider",
    ("web-crawler", "nothing"): "its first page is always there, or says why it is not",
    ("gmail", "rename"): "threads have no names that could change",
    ("gmail", "poison"): "a blank mail still has sender, subject and date",
    ("web-crawler", "revoked"): "a public site asks for no authorization",
    ("web-crawler", "rename"): "a page that moved is another address; 301 is tested with it",
    ("web-crawler", "limit"): "pages have no order of age; the crawler's own tests cover the limit",
    (
        "web-crawler",
        "emptied",
    ): "pages go one by one, each with its own 404 or 410, never by a listing",
}
LONG = "\n\n".join(
    f"Chapter {n}. " + " ".join(f"word{n}x{i} tells more of it." for i in range(60))
    for n in range(12)
)


def conforming(scenario: str, *, by_day: Collection[str] = tuple(PEERS)) -> list[Any]:
    """All peers; those exempt from the scenario are skipped with the reason.

    `by_day`: who shows it in every run. Where what is shown is not the connector's own doing, the
    others show it at night.
    """
    return [
        pytest.param(
            name,
            id=name,
            marks=[
                *(
                    [pytest.mark.skip(reason=EXEMPT[name, scenario])]
                    if (name, scenario) in EXEMPT
                    else []
                ),
                *([] if name in by_day else [pytest.mark.slow]),
            ],
        )
        for name in PEERS
    ]


SHAPES = ("cabinet", "github", "web-crawler")
"""One that lists changes, one that lists all, and one without an account or a listing."""
CALLERS = (*SHAPES, "gmail", "s3")
"""Of those who call through the same code, two: the crawler and S3 have their own."""


class Clock:
    """By which syncs wait."""

    ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


CLOCK = Clock()


class Hurried(threading.Event):
    """Nobody stops, and who waits for that until a pause is over finds it over at once."""

    def wait(self, timeout: float | None = None) -> bool:
        CLOCK.ahead += timeout or 0.0
        return False


REFUSED = {"error": "invalid_client"}


@dataclass
class World:
    """An API of its own with one connection to a peer."""

    app: App
    http: httpx.Client
    peer: Peer
    provider: str
    org: Org
    id: str = ""

    def connect(self, **body: Any) -> None:
        """As a caller; the user's consent is not what these scenarios are about."""
        body = {"containerTags": ["notes"], "metadata": self.peer.metadata(), **body}
        answer = self.http.post(f"/v3/connections/{self.provider}", json=body)
        assert answer.status_code == 200, answer.text
        self.id = answer.json()["id"]
        self.authorize()

    def authorize(self) -> None:
        tokens = self.peer.tokens()
        if tokens is not None:
            with self.app.db.begin() as tx:
                authorizations.authorize(
                    tx,
                    connections.get(tx, Tenant(self.org.id), self.id),
                    tokens=seal_tokens(self.app, ConnectionId(self.id), tokens),
                    expires_at=None,
                    account=self.peer.account[0],
                    email=self.peer.account[1],
                    due=not self.peer.picks(),
                )
        if self.peer.picks():
            picked = {"resources": self.peer.picks()}
            answer = self.http.post(f"/v3/connections/{self.id}/configure", json=picked)
            assert answer.status_code == 200, answer.text

    def wait_for_confirmation(self) -> None:
        """As long as what is missing has to be, before another sync may confirm it."""
        wait = connectors.get(self.provider).confirms_after
        with self.app.db.begin() as tx:
            tx.execute(
                "update items set missing_at = missing_at - %s where connection_id = %s",
                (wait, self.id),
            )

    def sync(self, *, patient: bool = True) -> dict[str, Any]:
        """Have it due, work until nothing is; `patient`: wait out parked documents."""
        self.due()
        syncs.drain(self.app, Hurried())
        drain(self.app)
        if patient:
            self.documents_due()
        return self.connection()

    def documents_due(self) -> None:
        """Wait out parked documents, and process them."""
        with self.app.db.begin() as tx:
            tx.execute(
                "update documents set due_at = now() where connection_id = %s"
                " and due_at is not null",
                (self.id,),
            )
            tx.execute("update connections set parked_until = null where id = %s", (self.id,))
        drain(self.app)

    def due(self) -> None:
        with self.app.db.begin() as tx:
            tx.execute(
                "update connections set due_at = now(), parked_until = null"
                " where id = %s and state in ('ready', 'syncing')",
                (self.id,),
            )
            tx.execute("delete from crawled_hosts")  # what a host asked for is over, too

    def connection(self) -> dict[str, Any]:
        return self.http.get(f"/v3/connections/{self.id}").json()

    def documents(self) -> dict[str, dict[str, Any]]:
        listed = self.http.post(f"/v3/connections/{self.provider}/documents").json()
        found = {self.peer.name_of(document): document for document in listed}
        assert len(found) == len(listed), "no thing has two documents"
        return found

    def get(self, name: str) -> dict[str, Any]:
        return self.http.get(f"/v3/documents/{self.documents()[name]['id']}").json()

    def waits(self, name: str) -> timedelta:
        """How long its document waits yet."""
        with self.app.db.begin() as tx:
            row = tx.execute(
                "select due_at - now() as wait from documents where id = %s",
                (self.documents()[name]["id"],),
            ).fetchone()
        assert row is not None
        return row["wait"]

    def agrees(self) -> None:
        documents = self.documents()
        assert set(documents) == self.peer.names()
        assert {document["status"] for document in documents.values()} <= {"done"}

    def patch(self, name: str, **body: Any) -> None:
        """As a user does, who waits until it is processed."""
        answer = self.http.patch(f"/v3/documents/{self.documents()[name]['id']}", json=body)
        assert answer.status_code == 200, answer.text
        drain(self.app)

    def again(self) -> None:
        """Have the next sync list everything, as after a change of the selection."""
        with self.app.db.begin() as tx:
            tx.execute("update connections set cursor = null where id = %s", (self.id,))

    def finds(self, words: str) -> bool:
        answer = self.http.post("/v3/search", json={"q": words, "onlyMatchingChunks": True})
        hits = answer.json()["results"]
        return any(words in chunk["content"] for hit in hits for chunk in hit["chunks"])

    def proxy_is_quiet_while(self, work: Callable[[], object]) -> None:
        before = len(self.peer.proxy.log)
        work()
        assert len(self.peer.proxy.log) == before

    def run(self) -> dict[str, Any]:
        return self.http.get(f"/v3/connections/{self.id}/sync-runs").json()[0]

    def changes(self) -> list[dict[str, Any]]:
        path = f"/v3/connections/{self.id}/sync-runs/{self.run()['id']}/changes"
        return self.http.get(path, params={"limit": 1000}).json()["changes"]


@pytest.fixture(autouse=True)
def known_connectors() -> Generator[None]:
    with providing(cabinet=CabinetConnector()):
        yield


@pytest.fixture(autouse=True)
def unpaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fakes have no rate that calls of one connection would have to keep; a check waits for
    no time."""
    monkeypatch.setattr(sources, "time", CLOCK)
    monkeypatch.setattr(account_check, "threading", SimpleNamespace(Event=Hurried))
    for connector in connectors.all().values():
        if connector.per_second is not None:
            monkeypatch.setattr(connector, "per_second", None, raising=False)


@pytest.fixture
def world(request: pytest.FixtureRequest, app: App, org: Org, key: str) -> Generator[World]:
    name: str = request.param
    with PEERS[name]() as peer:
        providers = {name: peer.settings} if peer.settings else {}
        config = app.config.model_copy(
            update={
                "providers": providers,
                "crawl_delay": 0.0,
                "crawl_concurrency": 2,
                "folders": list(peer.opens),
            }
        )
        own = replace(app, config=config)
        headers = {"authorization": f"Bearer {key}"}
        with TestClient(create_app(own), headers=headers) as http:
            for n in range(3):
                peer.put(f"n{n}", f"The text of number {n} speaks of zebra{n}.")
            yield World(own, cast("httpx.Client", http), peer, name, org)


every = pytest.mark.parametrize


def test_every_connector_has_a_peer() -> None:
    assert set(connectors.all()) <= set(PEERS)


@every("world", conforming("first"), indirect=True)
def test_2_first_sync(world: World) -> None:
    world.connect()
    shown = world.sync()
    world.agrees()
    assert shown["lastSyncRun"]["status"] == "completed"
    one = world.get("n1")
    assert one["source"] == world.provider
    assert one["connectionId"] == world.id
    assert one["containerTags"] == ["notes"]
    assert one["title"]
    assert one["url"]
    assert world.finds("zebra1")


@every("world", conforming("nothing"), indirect=True)
def test_2_a_source_without_anything_says_where_to_look(world: World) -> None:
    for name in sorted(world.peer.names()):
        world.peer.remove(name)
    world.connect()
    world.sync()

    run = world.run()
    assert run["status"] == "completed"
    assert [note.partition(".")[0] for note in run["notes"]] == ["Nothing was found"]
    assert len(run["notes"][0]) > len("Nothing was found. ")


MISTYPED: dict[str, dict[str, Any]] = {
    "gmail": {"labelIds": "Nowhere"},
    "google-drive": {"syncScope": "selected", "folders": "1Nowhere"},
    "onedrive": {"syncScope": "selected", "folders": "NOWHERE"},
    "s3": {"prefix": "nowhere/"},
}
"""Metadata that admits nothing that is there."""


@every("world", MISTYPED, indirect=True)
def test_30_a_selection_without_anything_takes_everything_away_only_after_a_second_look(
    world: World,
) -> None:
    world.connect()
    world.sync()
    shown = world.connection()["metadata"]
    changed = {**shown, **MISTYPED[world.provider]}
    answer = world.http.patch(f"/v3/connections/{world.id}", json={"metadata": changed})
    assert answer.status_code == 200, answer.text
    world.sync()
    first, kept = world.run(), world.documents()
    world.sync()

    assert len(kept) == 3
    assert "They are kept for now" in first["error"]
    assert (first["status"], first["removed"]) == ("partial", 0)
    assert world.documents() == {}
    assert world.run()["removed"] == 3


def select(world: World, metadata: dict[str, Any], **more: Any) -> None:
    """As a user does, and wait for the sync that follows."""
    shown = world.connection()["metadata"]
    changed = {"metadata": {**shown, **metadata}, **more}
    answer = world.http.patch(f"/v3/connections/{world.id}", json=changed)
    assert answer.status_code == 200, answer.text
    world.sync()


@every("world", MISTYPED, indirect=True)
def test_30_what_two_selections_lack_is_gone_only_after_a_second_look_at_one(world: World) -> None:
    world.connect()
    world.sync()
    mistyped = MISTYPED[world.provider]
    again = {key: value.swapcase() for key, value in mistyped.items() if key != "syncScope"}
    select(world, mistyped)
    select(world, {**mistyped, **again})

    assert len(world.documents()) == 3
    assert "They are kept for now" in world.run()["error"]
    world.sync()
    assert world.documents() == {}


@every("world", ["s3"], indirect=True)  # the one whose secrets decide what is there
def test_30_what_another_key_lacked_is_gone_only_after_a_second_look(world: World) -> None:
    world.connect()
    world.sync()
    world.peer.hide()
    world.sync()
    select(world, {**world.peer.metadata(), "accessKeyId": "AKIAANOTHER"})
    select(world, world.peer.metadata())
    after_change = set(world.documents())
    select(world, world.peer.metadata())

    assert after_change == {"n0", "n1", "n2"}
    assert world.documents() == {}


@every("world", MISTYPED, indirect=True)
@every("kept_out_by", ["limit", "filter"])
def test_30_what_was_kept_out_of_an_old_selection_stays_out(world: World, kept_out_by: str) -> None:
    rule = {"excludeItems": {"titlePatterns": ["n2*"]}} if kept_out_by == "filter" else {}
    assert world.http.patch("/v3/settings", json=rule).status_code == 200
    world.connect(documentLimit=2 if kept_out_by == "limit" else 100)
    world.sync()
    before = set(world.documents())
    world.http.patch("/v3/settings", json={"excludeItems": None})
    select(world, MISTYPED[world.provider], documentLimit=100)

    assert len(before) == 2
    assert set(world.documents()) == before
    world.sync()
    assert world.documents() == {}
    select(world, {**dict.fromkeys(MISTYPED[world.provider], ""), "syncScope": "full"})
    world.agrees()


def inside(world: World, folder: str) -> dict[str, Any]:
    """Metadata that admits what was moved there alone."""
    match world.provider:
        case "gmail":
            return {"labelIds": "STARRED"}
        case _:
            return {"syncScope": "selected", "folders": world.peer.folder_id(folder)}


@every("world", ["gmail", "google-drive", "onedrive"], indirect=True)  # S3 tells whole seconds
def test_30_newer_things_take_the_place_of_older_ones_but_of_none_whose_deletion_is_held(
    world: World,
) -> None:
    world.connect(documentLimit=3)
    world.sync()
    for n in range(3, 6):
        world.peer.put(f"n{n}", f"Number {n} is newer.")
        world.peer.move(f"n{n}", "inside")
    select(world, inside(world, "inside"))

    assert set(world.documents()) == {"n0", "n1", "n2"}
    assert "They are kept for now" in world.run()["error"]
    select(world, {"labelIds": ""} if world.provider == "gmail" else {"syncScope": "full"})
    assert set(world.documents()) == {"n3", "n4", "n5"}


@every("world", ["web-crawler", "folder"], indirect=True)
@every(("patterns", "left"), [("includePatterns", {"n1"}), ("excludePatterns", {"n0", "n2"})])
def test_a_list_of_patterns_ends_with_the_metadata_that_no_longer_has_it(
    world: World, patterns: str, left: set[str]
) -> None:
    world.connect()
    world.sync()
    shown = world.connection()["metadata"]
    for given, names in (({patterns: ["*n1*"]}, left), ({}, world.peer.names() - {""})):
        changed = {**shown, **given}
        answer = world.http.patch(f"/v3/connections/{world.id}", json={"metadata": changed})
        world.sync()
        world.sync()

        assert answer.json()["metadata"] == changed
        assert set(world.documents()) - {""} == names


@every("world", ["google-drive", "onedrive"], indirect=True)
def test_the_whole_drive_is_no_folder_that_could_be_selected(world: World) -> None:
    world.connect()
    metadata = {"syncScope": "selected", "folders": "root"}
    answer = world.http.patch(f"/v3/connections/{world.id}", json={"metadata": metadata})

    assert answer.status_code == 400
    assert "set metadata.syncScope to 'full'" in answer.text
    assert "folders" not in world.connection()["metadata"]


@every("world", conforming("change"), indirect=True)
def test_4_changes_are_found_on_schedule_and_cost_only_themselves(world: World) -> None:
    world.connect()
    world.sync()
    before = {name: world.get(name) for name in world.documents()}
    world.peer.put("n1", "Number one speaks of yaks now.")
    world.peer.put("n9", "A new one speaks of quaggas.")
    world.sync()
    world.agrees()
    assert world.finds("yaks")
    assert world.finds("quaggas")
    assert not world.finds("zebra1")
    after = {name: world.get(name) for name in world.documents()}
    assert after["n1"]["id"] == before["n1"]["id"]
    untouched = {name for name in before if after[name]["updatedAt"] == before[name]["updatedAt"]}
    assert {"n0", "n2"} <= untouched


@every("world", conforming("nothing"), indirect=True)
def test_4_nothing_new_costs_nothing(world: World) -> None:
    world.connect()
    world.sync()
    before = {name: world.get(name) for name in world.documents()}
    world.sync()
    assert {name: world.get(name) for name in world.documents()} == before
    run = world.run()
    assert (run["added"], run["changed"], run["removed"], run["itemsFailed"]) == (0, 0, 0, 0)


@every("world", ["google-drive", "onedrive"], indirect=True)
def test_a_selection_at_the_newest_door_brings_what_is_in_it_and_nothing_else(world: World) -> None:
    world.connect()
    world.sync()
    world.agrees()
    for name, folder in (("n1", "Box"), ("n2", "Shelf")):
        world.peer.move(name, folder)

    for folders, names in ((("Box",), {"n1"}), (("Box", "Shelf"), {"n1", "n2"})):
        selection = {"folders": [world.peer.folder_id(folder) for folder in folders]}
        path = f"/ns/notes/connectors/{world.id}"
        answer = world.http.patch(path, json={"selection": selection})
        assert answer.status_code == 200, answer.text
        world.sync()
        world.sync()

        assert set(world.documents()) == names
        assert {n: world.finds(f"zebra{n}") for n in range(3)} == {
            n: f"n{n}" in names for n in range(3)
        }
    [run, *_] = world.http.get(path, params={"include": "syncs"}).json()["syncs"]
    assert run["failures"] == []


@every("world", conforming("labels", by_day=SHAPES), indirect=True)
def test_4_labels_that_a_user_set_stay_beside_those_of_the_source(world: World) -> None:
    world.connect()
    world.sync()
    one = world.get("n1")
    given = one["metadata"] or {}
    own = {**given, "reviewed": True}
    world.patch("n1", metadata=own, containerTags=["notes", "mine"])
    by_name = {"customId": "mine-2", "containerTags": ["notes"]}
    world.patch("n2", customId="mine-2")
    world.patch("n2", containerTags=["mine", "notes"], metadata={"only": "this"})

    world.sync()
    world.again()
    world.sync()

    labelled = world.get("n1")
    assert (labelled["metadata"], labelled["containerTags"]) == (own, ["notes", "mine"])
    assert world.get("n2")["containerTags"] == ["mine", "notes"]
    assert world.get("n2")["metadata"] == {"only": "this"}

    world.peer.put("n1", "Number one speaks of yaks now.")
    world.sync()

    labelled = world.get("n1")
    assert world.finds("yaks")
    assert labelled["containerTags"] == ["notes", "mine"]
    assert labelled["metadata"]["reviewed"] is True
    assert set(labelled["metadata"]) == {*own}

    changed = world.http.patch(f"/v3/connections/{world.id}", json={"containerTags": ["desk"]})
    assert changed.status_code == 200, changed.text
    world.sync()

    assert world.get("n0")["containerTags"] == ["desk"]
    assert world.get("n1")["containerTags"] == ["desk", "mine"]
    assert world.get("n2")["containerTags"] == ["desk", "mine"]
    assert world.get("n2")["metadata"] == {"only": "this"}

    id = world.documents()["n2"]["id"]
    by_name["containerTags"] = ["desk"]
    sent = {**by_name, "content": "A walrus of my own.", "metadata": {"only": "that"}}
    assert world.http.post("/v3/documents", json=sent).status_code == 200
    world.sync()
    added = world.http.get(f"/v3/documents/{id}").json()
    assert (added["metadata"], added["containerTags"]) == ({"only": "that"}, ["desk", "mine"])
    assert world.finds("walrus of my own")


@every("world", conforming("labels", by_day=SHAPES), indirect=True)
def test_4_a_tag_that_a_user_took_off_does_not_return_with_the_connection(world: World) -> None:
    def give(*tags: str) -> None:
        changed = {"containerTags": [*tags]}
        assert world.http.patch(f"/v3/connections/{world.id}", json=changed).status_code == 200
        world.sync()

    world.connect(containerTags=["notes", "work"])
    world.sync()
    for name in ("n1", "n2"):
        world.patch(name, containerTags=["notes"])
    world.sync()
    give("notes")
    world.peer.put("n1", "Number one speaks of yaks now.")
    world.patch("n2", containerTags=["notes", "work"])
    world.sync()
    give("notes", "desk")
    own = world.get("n2")["containerTags"]
    give("notes", "work")

    assert set(own) == {"notes", "desk", "work"}
    assert set(world.get("n0")["containerTags"]) == {"notes", "work"}
    assert world.get("n1")["containerTags"] == ["notes"]
    assert set(world.get("n2")["containerTags"]) == {"notes", "work"}
    before = world.run()
    world.again()
    world.sync()
    assert before["removed"] == world.run()["changed"] == 0
    world.patch("n1", containerTags=["notes", "work"])
    give("notes")
    assert {name: world.get(name)["containerTags"] for name in ("n0", "n1")} == {
        "n0": ["notes"],
        "n1": ["notes"],
    }


@every("world", conforming("labels", by_day=SHAPES), indirect=True)
def test_4_a_merged_tag_that_a_user_took_off_does_not_return(world: World) -> None:
    world.connect(containerTags=["notes", "work"])
    world.sync()
    merge(world, "work", "desk")
    assert set(world.get("n1")["containerTags"]) == {"notes", "desk"}
    world.patch("n1", containerTags=["notes"])
    world.again()
    world.sync()

    assert world.run()["changed"] == 0
    assert set(world.get("n0")["containerTags"]) == {"notes", "desk"}
    assert world.get("n1")["containerTags"] == ["notes"]


@every("world", ["s3"], indirect=True)  # the one with a pattern that gives tags
def test_4_a_merged_tag_that_a_pattern_gives_does_not_return(world: World) -> None:
    pattern = {"containerTagRegex": "(?<tag>n)[0-9]"}
    world.connect(containerTags=["notes", "n"], metadata={**world.peer.metadata(), **pattern})
    world.sync()
    merge(world, "n", "desk")
    world.again()
    world.sync()

    assert set(world.get("n0")["containerTags"]) == {"notes", "desk"}


def merge(world: World, tag: str, target: str) -> None:
    asked = {"containerTags": [tag], "targetContainerTag": target}
    assert world.http.post("/v3/container-tags/merge", json=asked).status_code == 202
    while tag_merges.step(world.app):
        pass


@every("world", conforming("content"), indirect=True)
def test_4_content_that_a_user_replaced_stays_until_the_source_changes(world: World) -> None:
    world.connect()
    world.sync()
    before = world.get("n1")
    world.patch("n1", content="The okapi is what I say of number 1.")

    world.sync()
    world.again()
    world.sync()

    assert world.finds("okapi")
    assert not world.finds("zebra1")
    assert world.run()["changed"] == 0

    world.peer.put("n1", "Number one speaks of yaks now.")
    world.sync()

    assert world.finds("yaks")
    assert not world.finds("okapi")
    after = world.get("n1")
    assert (after["id"], after["url"]) == (before["id"], before["url"])
    world.agrees()


@every("world", conforming("deletion"), indirect=True)
def test_5_deletion(world: World) -> None:
    world.connect()
    world.sync()
    id = world.documents()["n1"]["id"]
    world.peer.remove("n1")
    world.sync()
    world.wait_for_confirmation()
    world.sync()
    world.agrees()
    assert world.http.get(f"/v3/documents/{id}").status_code == 404
    assert not world.finds("zebra1")


@every("world", conforming("restored"), indirect=True)
def test_5_restore(world: World) -> None:
    world.connect()
    world.sync()
    world.peer.remove("n1")
    world.sync()
    world.peer.put("n1", "The text of number 1 speaks of zebra1.")
    world.sync()
    world.agrees()
    assert world.finds("zebra1")


@every("world", ["cabinet", "folder", "google-drive", "s3"], indirect=True)
def test_4_a_name_that_turns_the_writing_round_changes_nothing_twice(world: World) -> None:
    world.peer.put("\u202efdp", "The walrus has a strange name.")
    world.connect()
    world.sync()
    [listed] = [one for one in world.documents().values() if "fdp" in one["title"]]
    world.again()
    world.sync()

    assert listed["title"].startswith("fdp")
    assert world.run()["changed"] == 0


@every("world", conforming("rename"), indirect=True)
def test_6_rename_keeps_the_document_and_embeds_nothing(world: World) -> None:
    world.connect()
    world.sync()
    before = world.get("n1")
    world.peer.rename("n1", "renamed")
    world.sync()
    world.agrees()
    after = world.get("renamed")
    assert after["id"] == before["id"]
    # Where a rename counts as an edit (Notion) it is read again, and costs nothing.
    same = after["latestRevision"] == before["latestRevision"]
    assert same or after["chunks"]["embedded"] == 0


@every("world", conforming("rename", by_day=("github", "s3")), indirect=True)
def test_6_a_rename_to_the_name_of_what_was_deleted_here_keeps_the_document(world: World) -> None:
    world.connect()
    world.sync()
    before = world.get("n2")
    gone = world.http.delete(f"/v3/documents/{world.get('n1')['id']}")
    assert gone.status_code < 300
    world.peer.remove("n1")
    world.sync()
    world.peer.rename("n2", "n1")
    world.sync()
    world.agrees()
    assert world.get("n1")["id"] == before["id"]


@every("world", conforming("revoked"), indirect=True)
def test_10_revoked_deletes_nothing_and_asks_again(world: World) -> None:
    world.connect()
    world.sync()
    world.peer.revoke()
    world.peer.put("n9", "Later.")
    shown = world.sync()
    assert shown["state"] == "needs_auth"
    assert shown["lastSyncRun"]["errorCode"] == "auth_expired"
    remedy = "authorize" if connectors.get(world.provider).oauth else "give the connection another"
    assert remedy in shown["error"]
    assert len(world.documents()) == 3
    world.proxy_is_quiet_while(lambda: world.sync())


@every("world", ["notion"], indirect=True)
def test_10_what_no_token_can_be_had_for_is_not_skipped(world: World) -> None:
    """A page that cannot be looked through keeps no other from being synced; a refused application
    is not of that page."""
    world.connect()
    world.sync()
    world.peer.put("n1", "The heron left.")
    world.peer.proxy.on("POST .*/token", status=401, json_body=REFUSED, times=None)
    world.peer.proxy.on("/blocks/", status=401, times=None)
    shown = world.sync()
    world.peer.proxy.behave()
    world.sync()

    assert shown["lastSyncRun"]["status"] == "failed"
    assert shown["errorCode"] == "invalid_client"
    assert "The heron left." in world.get("n1")["content"]


@every("world", ["notion"], indirect=True)
def test_10_a_document_does_not_lack_what_no_token_could_be_had_for(world: World) -> None:
    assert isinstance(world.peer, NotionPeer)
    notion = world.peer.notion
    notion.knows_markdown = False
    notion.page("long", toggle("Spring", para("The heron came back.")))
    notion.pass_time(minutes=5)
    world.connect()
    syncs.drain(world.app, Hurried())
    world.peer.proxy.on("POST .*/token", status=401, json_body=REFUSED, times=None)
    world.peer.proxy.on("/blocks/", after=1, status=401, times=None)
    drain(world.app)
    waiting = world.documents()["long"]["status"]
    world.peer.proxy.behave()
    world.documents_due()

    assert waiting == "queued"
    assert "The heron came back." in world.get("long")["content"]


@every("world", conforming("limited", by_day=CALLERS), indirect=True)
def test_14_a_long_limit_parks_the_connection(world: World) -> None:
    world.connect()
    world.peer.proxy.on(".", status=429, headers={"Retry-After": "600"}, times=None)
    world.due()
    syncs.drain(world.app)
    shown = world.connection()
    assert shown["state"] == "ready"
    assert shown["lastSyncRun"]["errorCode"] == "rate_limited"
    assert "on purpose" not in shown["error"], "a sentence for people, not what was sent"
    due = datetime.fromisoformat(shown["nextSyncAt"]) - datetime.now(UTC)
    assert timedelta(minutes=5) < due < timedelta(minutes=70)
    world.proxy_is_quiet_while(lambda: syncs.drain(world.app))
    world.peer.proxy.behave()
    world.sync()
    world.agrees()


@every("world", conforming("told"), indirect=True)
def test_14_a_wait_that_one_thing_is_told_is_its_own(world: World) -> None:
    world.connect()
    world.due()
    syncs.drain(world.app)
    asked = world.peer.proxy.on(".", status=503, headers={"Retry-After": "7200"})
    drain(world.app)

    assert asked.hit.is_set()
    documents = world.documents()
    [name] = [name for name, shown in documents.items() if shown["status"] != "done"]
    assert documents[name]["status"] == "queued"
    assert timedelta(hours=1) < world.waits(name) < timedelta(hours=3)
    shown = world.connection()
    assert (shown["errorCode"], shown["error"]) == (None, None)
    world.sync()
    world.agrees()


@every("world", conforming("told"), indirect=True)
def test_14_a_sync_that_a_user_asks_for_ends_the_wait_of_a_thing(world: World) -> None:
    world.connect()
    world.due()
    syncs.drain(world.app)
    world.peer.proxy.on(".", status=503, headers={"Retry-After": "7200"})
    drain(world.app)
    [name] = [name for name, shown in world.documents().items() if shown["status"] != "done"]
    world.sync(patient=False)
    left = world.waits(name)
    world.http.post(f"/v3/connections/{world.id}/sync").raise_for_status()
    syncs.drain(world.app, Hurried())
    drain(world.app)

    assert left > timedelta(hours=1), "a sync of the schedule leaves it alone"
    world.agrees()


@every("world", conforming("told"), indirect=True)
def test_14_a_wait_that_the_account_is_told_is_that_of_all(world: World) -> None:
    world.connect()
    world.due()
    syncs.drain(world.app)
    before = len(world.peer.proxy.log)
    world.peer.proxy.on(".", status=503, headers={"Retry-After": "7200"}, times=None)
    drain(world.app)

    assert len(world.peer.proxy.log) == before + 2
    documents = world.documents()
    assert {shown["status"] for shown in documents.values()} == {"queued"}
    assert {world.waits(name) > timedelta(hours=1) for name in documents} == {True}
    shown = world.connection()
    assert (shown["state"], shown["errorCode"]) == ("ready", "provider_unavailable")
    due = datetime.fromisoformat(shown["nextSyncAt"]) - datetime.now(UTC)
    assert timedelta(hours=1) < due
    world.peer.proxy.behave()
    world.sync()
    world.agrees()


@every("world", conforming("told", by_day=CALLERS), indirect=True)
@every("status", [404, 400])
def test_16_what_is_refused_or_not_found_with_all_else_is_read_once_that_is_over(
    world: World, status: int
) -> None:
    world.connect()
    world.due()
    syncs.drain(world.app)
    world.peer.proxy.on(".", status=status, body=b"<html>Not here.</html>", times=None)
    drain(world.app)
    world.documents_due()
    world.documents_due()

    assert set(world.documents()) == {"n0", "n1", "n2"}
    world.peer.proxy.behave()
    assert world.http.post(f"/v3/connections/{world.id}/sync").status_code == 202
    world.sync()
    world.agrees()


@every("world", ["gmail"], indirect=True)
def test_16_what_is_listed_only_once_is_read_though_it_was_not_found_three_times(
    world: World,
) -> None:
    world.connect()
    world.due()
    syncs.drain(world.app)
    world.peer.proxy.on("/threads/", status=404, times=9)
    drain(world.app)
    for _ in range(3):
        world.documents_due()

    world.agrees()
    world.peer.proxy.on("/threads/", status=404, times=None)
    world.peer.put("n3", "Soon gone.")
    world.due()
    syncs.drain(world.app)
    world.peer.remove("n3")
    drain(world.app)
    world.peer.proxy.behave()
    world.sync()
    world.agrees()


@every("world", conforming("errors"), indirect=True)
@every(
    "fault",
    # One of each sort; that the others of it are taken alike is shown at night.
    [
        "500",
        "cut",
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("503", "reset", "html", "empty")),
    ],
)
def test_16_17_bad_days_lose_and_delete_nothing(world: World, fault: str) -> None:
    world.connect()
    world.sync()
    world.peer.put("n9", "Added on a bad day.")
    behaviour: dict[str, Any] = {
        "500": {"status": 500},
        "503": {"status": 503},
        "cut": {"cut": 3},
        "reset": {"reset": True},
        "html": {"status": 200, "body": b"<html>log in to the hotel</html>"},
        "empty": {"status": 200, "json_body": {}},
    }[fault]
    world.peer.proxy.on(".", times=None, **behaviour)
    world.due()
    syncs.drain(world.app, Hurried())
    assert {"n0", "n1", "n2"} <= set(world.documents())
    world.peer.proxy.behave()
    world.sync()
    world.sync()
    world.agrees()
    assert world.finds("bad day")


@every("world", conforming("away", by_day=("github", "s3", "google-drive")), indirect=True)
def test_17_a_redirect_to_a_sign_in_page_is_soon_over(world: World) -> None:
    world.connect()
    world.sync()
    world.peer.put("n9", "Added behind it.")
    sign_in = {"Location": "https://sign-in.example/?back=1"}
    world.peer.proxy.on(".", status=302, headers=sign_in, body=b"", times=None)
    world.due()
    syncs.drain(world.app, Hurried())
    shown = world.connection()
    assert (shown["state"], shown["errorCode"]) == ("ready", "provider_unavailable")
    assert "a redirect to sign-in.example" in shown["error"]
    due = datetime.fromisoformat(shown["nextSyncAt"]) - datetime.now(UTC)
    assert due < timedelta(minutes=5)
    world.peer.proxy.behave()
    world.sync()
    world.agrees()


SIGN_IN = b"""\r\n<!-- All rights reserved. -->
<!DOCTYPE html><html><title>Sign in</title><body>Whoever you are, sign in to the hotel."""


STAND_INS: dict[str, tuple[int, str, bytes]] = {
    "page": (200, "text/html; charset=utf-8", SIGN_IN),
    "error": (200, "application/json", b'{"error": {"message": "The hotel is full."}}'),
    "object": (200, "application/json", b"{}"),
    "xml": (200, "application/xml", b'<?xml version="1.0"?>\n<Error><Code>hotel</Code></Error>'),
    "nothing": (200, "text/plain", b""),
    "204": (204, "text/plain", b""),
}


@every("world", conforming("page", by_day=("gmail", "onedrive", "s3")), indirect=True)
def test_17_what_a_gateway_refuses_is_told_in_its_words(world: World) -> None:
    world.connect()
    world.sync()
    page = b"<html><head><title>Blocked by the gateway</title></head><body>Ask IT.</body></html>"
    world.peer.proxy.on("", status=403, body=page, times=None)

    world.sync()

    assert "Blocked by the gateway" in world.run()["error"]


@every("world", conforming("page"), indirect=True)
@every(
    "came",
    [
        "page",
        "error",
        *(pytest.param(o, marks=pytest.mark.slow) for o in ("object", "xml", "nothing", "204")),
    ],
)
def test_17_what_comes_in_place_of_content_is_never_taken(world: World, came: str) -> None:
    world.connect()
    world.due()
    syncs.drain(world.app)
    status, mime, body = STAND_INS[came]
    headers = {"Content-Type": mime}
    world.peer.proxy.on(".", status=status, headers=headers, body=body, times=None)
    drain(world.app)
    waiting = {document["status"] for document in world.documents().values()}
    taken = world.finds("hotel")
    world.peer.proxy.behave()
    world.sync()
    assert waiting == {"queued"}
    assert not taken
    world.agrees()
    assert world.finds("zebra1")


def hollow(body: bytes) -> bytes:
    """An answer whose lists are empty, and the last of its pages."""
    said = json.loads(body)
    said = {key: [] if isinstance(value, list) else value for key, value in said.items()}
    said.pop("nextPageToken", None)
    return json.dumps(said).encode()


@every("world", ["github", "gmail", "google-drive", "notion", "onedrive"], indirect=True)
def test_17_a_first_listing_without_anything_is_not_the_last_word(world: World) -> None:
    lists = "/threads|/files|/drives|/changes[?]|/delta|/search|/git/trees"
    world.peer.proxy.on(lists, alter=hollow, times=None)
    world.connect()
    world.sync()
    before = world.documents()
    world.peer.proxy.behave()
    world.sync()

    assert before == {}
    world.agrees()


class Endless:
    """A list whose first page comes again and again, each time with a new token for the next;
    after 300 pages it ends, so that a sync that follows it fails the test and does not hang."""

    def __init__(self, proxy: Proxy, list_of: str) -> None:
        self.page: dict[str, Any] = {}
        self.turned = 0
        proxy.on(list_of, alter=self.first)
        proxy.on(list_of, status=200, alter=self.again, times=None)

    def first(self, body: bytes) -> bytes:
        self.page = json.loads(body)
        return self.again(body)

    def again(self, _: bytes) -> bytes:
        self.turned += 1
        if self.turned > 300:
            return json.dumps(self.page).encode()
        if "has_more" in self.page:
            more = {"has_more": True, "next_cursor": f"page-{self.turned}"}
            return json.dumps({**self.page, **more}).encode()
        if (link := self.page.get("@odata.deltaLink")) is not None:
            left = {key: value for key, value in self.page.items() if key != "@odata.deltaLink"}
            return json.dumps({**left, "@odata.nextLink": f"{link}&n={self.turned}"}).encode()
        return json.dumps({**self.page, "nextPageToken": f"page-{self.turned}"}).encode()


@every(
    ("world", "list_of"),
    [
        ("gmail", "/threads[?]"),
        ("gmail", "/history[?]"),
        ("google-drive", "/files[?]"),
        ("google-drive", "/changes[?]"),
        ("google-drive", "/drives[?]"),
        ("notion", "/search"),
        ("onedrive", "/delta"),
    ],
    indirect=["world"],
)
def test_a_list_without_an_end_ends_the_sync(
    world: World, list_of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "MOST_IDLE_PAGES", 40)
    monkeypatch.setattr(api, "MOST_EMPTY_PAGES", 40)
    world.connect()
    world.sync()
    world.peer.put("late", "Number nine speaks of zebra9.")
    world.again() if list_of != "/history[?]" else None
    endless = Endless(world.peer.proxy, list_of)

    world.sync()

    assert 40 <= endless.turned < 200  # more than one try
    assert "without anything new" in world.run()["error"]
    assert world.documents()
    world.peer.proxy.behave()
    world.sync()
    world.agrees()


TIME = re.compile(
    rb"""("(?:modifiedTime|lastModifiedDateTime|last_edited_time)": *"|<LastModified>)[^"<]*"""
)
"""What tells when a thing changed, in the words of those who tell it."""


@every("world", ["google-drive", "notion", "onedrive", "s3"], indirect=True)
@every("time", ["9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+14:00"])
def test_17_a_time_that_cannot_be_told_in_utc_stops_nothing(world: World, time: str) -> None:
    world.peer.proxy.on(
        ".", times=None, alter=lambda body: TIME.sub(rb"\g<1>" + time.encode(), body, count=2)
    )
    world.connect()
    world.sync()
    world.peer.put("n9", "Added beside it.")
    world.sync()

    assert world.run()["status"] != "failed"
    assert len(world.documents()) >= 2
    world.peer.proxy.behave()
    world.sync()
    world.agrees()


@every("world", conforming("limit"), indirect=True)
def test_21_the_limit_is_exact_and_remembers_the_rest(world: World) -> None:
    world.connect(documentLimit=2)
    world.sync()
    assert len(world.documents()) == 2
    world.http.patch(f"/v3/connections/{world.id}", json={"documentLimit": 100})
    world.sync()
    world.agrees()


@every("world", conforming("killed"), indirect=True)
def test_22_killed_anywhere_nothing_is_lost_or_doubled(world: World) -> None:
    for n in range(3, 8):
        world.peer.put(f"n{n}", f"The text of number {n} speaks of zebra{n}.")
    world.connect()

    for after in range(1, 12):
        world.due()
        with world.app.db.begin() as tx:
            claims = connection_queue.claim(tx, lease=world.app.lease, limit=1)
        stop = Stopping(after)
        for claim in claims:
            syncs.attempt(world.app, claim, cast("threading.Event", stop))
    world.sync()
    world.agrees()


class Stopping(Hurried):
    """Is set after it was looked at so often: a sync ends in the middle, unsettled."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self._looks = looks

    def is_set(self) -> bool:
        self._looks -= 1
        return self._looks < 0


@every("world", conforming("two", by_day=SHAPES), indirect=True)
def test_23_two_workers_sync_one_connection_once(world: World) -> None:
    world.connect()
    world.due()
    with ThreadPoolExecutor(4) as pool:
        ran = sum(pool.map(lambda _: syncs.drain(world.app), range(4)))
    assert ran == 1
    drain(world.app)
    world.agrees()


@every("world", conforming("disconnect", by_day=SHAPES), indirect=True)
@every("with_documents", ["true", "false"])
def test_28_disconnect(world: World, with_documents: str) -> None:
    world.connect()
    world.sync()
    answer = world.http.delete(f"/v3/connections/{world.id}?deleteDocuments={with_documents}")
    assert answer.status_code == 200
    world.peer.put("n9", "After the end.")
    syncs.drain(world.app)
    said = len(world.peer.proxy.log)
    syncs.drain(world.app)
    drain(world.app)
    assert len(world.peer.proxy.log) == said, "no requests after the farewell"
    total = world.http.post("/v3/documents/list", json={}).json()["pagination"]["totalItems"]
    assert total == (0 if with_documents == "true" else len(world.peer.names()) - 1)
    assert world.finds("zebra1") == (with_documents == "false")


@every("world", conforming("kept", by_day=SHAPES), indirect=True)
def test_28_what_is_kept_after_a_disconnect_is_read_from_itself(world: World) -> None:
    world.connect()
    world.sync()
    world.patch("n1", content="The okapi is what I say of number 1.")
    answer = world.http.delete(f"/v3/connections/{world.id}?deleteDocuments=false")
    assert answer.status_code == 200
    syncs.drain(world.app)

    def texts() -> dict[str, str]:
        query = documents.DocumentQuery(limit=100, with_text=True)
        with world.app.db.begin() as tx:
            found = documents.find(tx, Tenant(world.org.id), query)
        assert {document.status for document in found.items} == {"done"}
        return {document.id: document.text or "" for document in found.items}

    before, said = texts(), len(world.peer.proxy.log)
    with world.app.db.begin() as tx:
        again = documents.reprocess(tx, Tenant(world.org.id), ids=list(before))
    drain(world.app)

    assert set(again) == set(before)
    assert texts() == before
    assert len(world.peer.proxy.log) == said
    assert world.finds("okapi")


@every("world", conforming("emptied", by_day=(*SHAPES, "s3")), indirect=True)
def test_30_an_account_that_looks_empty_is_emptied_by_the_second_look(world: World) -> None:
    world.connect()
    world.sync()
    world.peer.hide()
    world.sync()
    first = len(world.documents())
    world.sync()
    world.sync()
    assert world.documents() == {}
    assert first in (0, 3), "explicit deletions at once, a listing only when confirmed"


@every("world", ["github"], indirect=True)
def test_30_a_repository_that_was_deleted_goes_with_the_second_look(world: World) -> None:
    github = cast("GithubPeer", world.peer).github
    world.connect()
    world.sync()
    repositories = dict(github.repositories)
    github.repositories.clear()
    world.sync()
    first, kept = world.run(), world.documents()
    world.sync()
    gone, without = world.run(), world.documents()
    github.repositories.update(repositories)
    world.sync()

    assert len(kept) == 3
    assert first["error"].startswith("octo/docs: it is gone, or this account may not read it.")
    assert (first["status"], first["errorCode"], first["removed"]) == ("partial", "no_access", 0)
    assert (gone["removed"], without) == (3, {})
    assert len(world.documents()) == 3
    world.agrees()


@every("world", conforming("poison"), indirect=True)
def test_32_one_bad_thing_fails_alone(world: World) -> None:
    world.peer.put("nul", "a\0b and \u202ereversed\u202c")
    world.peer.put("blank", " ")
    world.connect()
    world.sync()
    documents = world.documents()
    assert {documents[name]["status"] for name in ("n0", "n1", "n2")} == {"done"}
    assert documents.get("blank", {"status": "failed"})["status"] == "failed"


@every("world", conforming("poison", by_day=(*SHAPES, "google-drive")), indirect=True)
@every("text", ["", " \n"], ids=["empty", "blank"])
def test_32_what_was_emptied_is_not_found_any_more(world: World, text: str) -> None:
    world.connect()
    world.sync()
    world.peer.put("n1", text)
    world.sync()
    world.wait_for_confirmation()
    world.sync()
    assert not world.finds("zebra1")
    assert world.finds("zebra2")
    world.peer.put("n1", "It speaks of okapis now.")
    world.sync()
    world.agrees()
    assert world.finds("okapis")


# That it keeps its document at every provider is shown above (4); what that spares is not theirs.
@every("world", conforming("edit", by_day=SHAPES), indirect=True)
def test_34_an_edit_costs_what_changed(world: World) -> None:
    world.peer.put("long", LONG)
    world.connect()
    world.sync()
    whole = world.get("long")["chunks"]["embedded"]
    world.peer.put("long", LONG.replace("word5x30", "changed"))
    world.sync()
    now = world.get("long")["chunks"]
    assert whole > 5
    assert 1 <= now["embedded"] <= 3
    assert now["reused"] >= whole - 4
    [told] = [one for one in world.changes() if one["documentId"] == world.get("long")["id"]]
    assert (told["change"], told["newChunks"]) == ("changed", now["embedded"])


@every("world", conforming("secrets"), indirect=True)
def test_35_secrets_are_nowhere(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    world.connect()
    world.sync()
    tokens = world.peer.tokens()
    secrets = [tokens.access, tokens.refresh or tokens.access] if tokens else []
    secrets += [
        str(value) for name, value in world.peer.metadata().items() if "secret" in name.lower()
    ]
    shown = world.http.get(f"/v3/connections/{world.id}").text
    shown += world.http.get(f"/v3/connections/{world.id}/sync-runs").text
    shown += world.http.get(f"/v3/connections/{world.id}/items").text
    with world.app.db.begin() as tx:
        for table in ("connections", "items", "sync_runs", "registrations", "documents"):
            shown += str(tx.execute(f"select * from {table}").fetchall())
    shown += "".join(capfd.readouterr())
    assert [secret for secret in secrets if secret in shown] == []


@every("world", conforming("tag", by_day=SHAPES), indirect=True)
def test_a_connection_ends_with_its_only_tag(world: World) -> None:
    world.connect()
    world.sync()
    brought = len(world.documents())
    gone = world.http.delete("/v3/container-tags/notes").json()
    assert (gone["deletedCount"], gone["connections"]) == (brought, [])
    assert world.http.get("/v3/container-tags/notes").status_code == 404
    assert world.http.get(f"/v3/connections/{world.id}").status_code == 404
    syncs.drain(world.app)
    assert world.http.post("/v3/documents/list", json={}).json()["pagination"]["totalItems"] == 0


@every("world", conforming("tag", by_day=SHAPES), indirect=True)
def test_a_deleted_tag_that_a_connection_fills_again_is_a_tag(world: World) -> None:
    world.connect(containerTags=["notes", "work"])
    world.sync()
    brought = set(world.documents())
    gone = world.http.delete("/v3/container-tags/notes").json()
    assert (gone["deletedCount"], gone["connections"]) == (0, [world.id])
    assert world.http.get("/v3/container-tags/notes").status_code == 404
    world.sync()
    world.sync()
    assert set(world.documents()) == brought, "another tag keeps them"
    assert world.http.get("/v3/container-tags/notes").status_code == 404, "they stay out of it"

    world.peer.put("n9", "It came later.")
    world.sync()
    assert set(world.documents()) == {*brought, "n9"}
    assert world.http.get("/v3/container-tags/notes").json()["documentCount"] == 1
    listed = world.http.get("/v3/container-tags/list").json()["containerTags"]
    assert [tag["containerTag"] for tag in listed] == ["notes", "work"]
    changed = world.http.patch("/v3/container-tags/notes", json={"name": "Notes"})
    assert changed.status_code == 200
    with world.app.db.begin() as tx:
        tx.execute("delete from tags where org_id = %s", (world.org.id,))
    [found] = [one for one in verify(world.app.db, world.app.blobs).findings if "tag" in one.kind]
    assert (found.kind, "notes" in found.examples) == ("tag_missing", True)
    verify(world.app.db, world.app.blobs, mend=True)
    assert world.http.get("/v3/container-tags/notes").status_code == 200


def rows(app: App) -> str:
    """All that is in the database, of every table."""
    with app.db.begin() as tx:
        tables = tx.execute(
            "select format('%I', tablename) as name from pg_tables"
            " where schemaname = current_schema()"
        ).fetchall()
        return "\n".join(
            row["row"]
            for table in tables
            for row in tx.execute(
                "select to_jsonb(t)::text as row from " + table["name"] + " t"
            ).fetchall()
        )


@every("world", conforming("forgotten"), indirect=True)
def test_of_a_deleted_thing_only_its_id_stays(world: World) -> None:
    """Also where syncs failed on just that thing, and said so: runs outlive what they brought."""
    name, words = (random_id().lower().replace("-", "x") for _ in range(2))
    world.peer.put(name, f"It speaks of {words}.")
    world.connect()
    world.sync()
    document = world.get(name)
    with world.app.db.begin() as tx:
        known = tx.execute(
            "select id from items where document_id = %s", (document["id"],)
        ).fetchone()
        assert known is not None
        id: str = known["id"]
    told = rows(world.app)
    assert name in told
    assert words in told
    # Its own calls fail, in the ways that end a sync and that leave out one thing.
    mark = re.escape(id.rsplit("/", 1)[-1])
    for status in (400, 500):
        world.peer.put(name, f"It speaks of {words} {status}.")
        world.peer.proxy.on(mark, times=None, status=status)
        world.due()
        syncs.drain(world.app, Hurried())
        world.peer.proxy.behave()
    world.http.request("DELETE", "/v3/documents/bulk", json={"ids": [document["id"]]})
    world.due()
    syncs.drain(world.app, Hurried())

    left = rows(world.app).replace(id, "")
    assert [line for line in left.splitlines() if name in line or words in line] == []


@every("world", conforming("manual", by_day=SHAPES), indirect=True)
def test_36_a_manual_sync(world: World) -> None:
    world.connect()
    world.sync()
    world.peer.put("n9", "On demand.")
    answer = world.http.post(f"/v3/connections/{world.provider}/import")
    assert answer.status_code == 202
    syncs.drain(world.app)
    drain(world.app)
    world.agrees()
    assert world.run()["triggerType"] == "manual"


@every("world", conforming("authorizes", by_day=SHAPES), indirect=True)
def test_11_another_account_does_not_take_it_over(world: World) -> None:
    world.connect()
    world.sync()
    tokens = world.peer.tokens()
    assert tokens is not None
    with world.app.db.begin() as tx, pytest.raises(BadRequestError, match="another account"):
        authorizations.authorize(
            tx,
            connections.get(tx, Tenant(world.org.id), world.id),
            tokens=seal_tokens(world.app, ConnectionId(world.id), tokens),
            expires_at=None,
            account="eve",
            email="eve@example.com",
            due=True,
        )
    assert world.connection()["email"] == world.peer.account[1]
    world.sync()
    world.agrees()


@every("world", conforming("waited", by_day=CALLERS), indirect=True)
def test_13_a_short_limit_is_waited_for_in_place(world: World) -> None:
    world.connect()
    headers = {"Retry-After": "1"}
    world.peer.proxy.on(".", status=429, headers=headers, times=1)
    began = time.monotonic()
    world.due()
    syncs.drain(world.app)
    assert time.monotonic() - began >= 1
    assert world.run()["status"] == "completed"
    drain(world.app)
    world.agrees()


@every("world", conforming("meanwhile"), indirect=True)
@every("after", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, 4))])
def test_19_a_change_while_the_first_listing_runs_is_seen(world: World, after: int) -> None:
    world.connect()
    rule = world.peer.proxy.on(
        ".", after=after, do=lambda: world.peer.put("n9", "Put there while it was listed.")
    )
    world.sync()
    if not rule.hit.is_set():
        world.peer.put("n9", "Put there while it was listed.")
    world.sync()
    world.agrees()
    assert world.finds("while it was listed")


@every("world", conforming("down", by_day=CALLERS), indirect=True)
def test_29_disconnect_while_the_provider_is_down(world: World) -> None:
    world.connect()
    world.sync()
    world.peer.proxy.on(".", reset=True, times=None)
    assert world.http.delete(f"/v3/connections/{world.id}").status_code == 200
    assert world.http.post("/v3/documents/list", json={}).json()["pagination"]["totalItems"] == 0
    syncs.drain(world.app)
    world.peer.proxy.behave()
    with world.app.db.begin() as tx:
        tx.execute("update farewells set due_at = now()")
    syncs.drain(world.app)
    with world.app.db.begin() as tx:
        assert tx.execute("select 1 from farewells").rowcount == 0
    world.proxy_is_quiet_while(lambda: syncs.drain(world.app))
