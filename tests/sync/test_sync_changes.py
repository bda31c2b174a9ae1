"""The change feed of a sync: what it added, changed (and by how much) and removed."""

from collections.abc import Generator, Sequence
from typing import Any

import httpx
import psycopg
import pytest

from recollect.app import App
from recollect.model import ConnectionId, DocumentId, Org, Scope, Tenant
from recollect.orgs import orgs
from recollect.sync import change_log, connection_queue, connections, runs
from recollect.sync.connections import ConnectionChange
from recollect.sync.items import HELD, SyncCounts
from recollect.worker import syncs
from recollect.worker.processing import drain
from tests.fakes.shelf import SHELVES, MissingConnector, Shelf, ShelfConnector, providing, shelved

LONG = "\n\n".join(
    f"Chapter {n}. " + " ".join(f"word{n}x{i} tells more of it." for i in range(60))
    for n in range(12)
)


@pytest.fixture(autouse=True)
def known_connectors() -> Generator[None]:
    with providing(shelf=ShelfConnector(), lost_shelf=MissingConnector()):
        yield


class Feed:
    """A connection to a shelf, and the API that tells of its runs."""

    def __init__(self, app: App, http: httpx.Client, shelf: Shelf) -> None:
        self.app, self.http, self.shelf = app, http, shelf
        [name] = [name for name, known in SHELVES.items() if known is shelf]
        body = {"containerTags": ["notes"], "metadata": {"shelf": name}}
        self.id = str(http.post("/v3/connections/shelf", json=body).json()["id"])

    def sync(self) -> list[dict[str, Any]]:
        """Have it due, and work until nothing is; the changes of that run."""
        self.due()
        syncs.drain(self.app)
        drain(self.app)
        return self.changes()

    def due(self) -> None:
        with self.app.db.begin() as tx:
            tx.execute(
                "update connections set due_at = now(), parked_until = null where id = %s",
                (self.id,),
            )

    def run(self) -> dict[str, Any]:
        return self.http.get(f"/v3/connections/{self.id}/sync-runs").json()[0]

    def path(self, run: str) -> str:
        return f"/v3/connections/{self.id}/sync-runs/{run}/changes"

    def page(self, **query: Any) -> dict[str, Any]:
        answer = self.http.get(self.path(self.run()["id"]), params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def changes(self) -> list[dict[str, Any]]:
        return self.page(limit=1000)["changes"]

    def document(self, title: str) -> str:
        listed = self.http.post("/v3/connections/shelf/documents").json()
        [id] = [str(one["id"]) for one in listed if one["title"] == title]
        return id

    def columns(self) -> str:
        """All that the table holds, as text."""
        with self.app.db.begin() as tx:
            return str(tx.execute("select c::text from sync_changes c").fetchall())


@pytest.fixture
def shelf() -> Generator[Shelf]:
    with shelved() as made:
        yield made


@pytest.fixture
def followed(app: App, client: httpx.Client, shelf: Shelf) -> Feed:
    return Feed(app, client, shelf)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Statements, as they are sent."""
    seen: list[str] = []
    send = psycopg.Connection.execute

    def counted(connection: Any, query: Any, *args: Any, **more: Any) -> Any:
        seen.append(str(query))
        return send(connection, query, *args, **more)

    monkeypatch.setattr(psycopg.Connection, "execute", counted)
    return seen


def brief(changes: Sequence[dict[str, Any]]) -> dict[str | None, str]:
    return {one["title"]: one["change"] for one in changes}


def test_a_run_tells_what_it_added(followed: Feed, shelf: Shelf) -> None:
    shelf.put("1", LONG)
    shelf.put("2", "Short.")

    changes = followed.sync()

    assert brief(changes) == {"Thing 1": "added", "Thing 2": "added"}
    one = next(change for change in changes if change["title"] == "Thing 1")
    assert one["documentId"] == followed.document("Thing 1")
    assert one["url"] == "https://shelf.example/1"
    assert one["chunks"] == one["newChunks"] > 5
    assert one["share"] == 1.0


def test_an_edit_tells_the_share_of_chunks_that_are_new(followed: Feed, shelf: Shelf) -> None:
    shelf.put("1", LONG)
    shelf.put("2", "It stays.")
    followed.sync()
    first = followed.run()["id"]
    shelf.put("1", LONG.replace("word5x30", "changed"))

    [one] = followed.sync()
    followed.http.post("/v3/documents/retry", json={"ids": [one["documentId"]]})
    drain(followed.app)

    assert followed.changes() == [one], "to index the same once more changes nothing"
    assert (one["title"], one["change"]) == ("Thing 1", "changed")
    assert 1 <= one["newChunks"] <= 3 < one["chunks"]
    assert one["share"] == round(one["newChunks"] / one["chunks"], 4)
    before = followed.http.get(followed.path(first)).json()["changes"]
    assert {change["share"] for change in before} == {1.0}, "an older run keeps its own"


def test_an_edit_that_is_not_processed_yet_has_no_share(followed: Feed, shelf: Shelf) -> None:
    shelf.put("1", LONG)
    followed.sync()
    shelf.put("1", LONG.replace("word5x30", "changed"))
    followed.due()
    syncs.drain(followed.app)

    [waiting] = followed.changes()
    shelf.put("1", LONG.replace("word5x30", "changed").replace("word9x30", "again"))
    overtaken = followed.run()["id"]
    followed.sync()

    assert (waiting["change"], waiting["chunks"], waiting["share"]) == ("changed", None, None)
    [one] = followed.http.get(followed.path(overtaken)).json()["changes"]
    assert one["newChunks"] >= 1, "the revision that came after tells of both"


def test_a_new_title_changes_no_text(followed: Feed, shelf: Shelf) -> None:
    shelf.put("1", LONG)
    followed.sync()
    shelf.rename("1", "Another name")

    [one] = followed.sync()

    assert (one["title"], one["change"]) == ("Another name", "changed")
    assert (one["newChunks"], one["share"]) == (0, 0.0)
    assert one["chunks"] > 5


def test_a_title_given_here_outlives_a_rename_and_new_content_there(
    followed: Feed, shelf: Shelf
) -> None:
    shelf.put("1", LONG, title="Theirs")
    followed.sync()
    id = followed.document("Theirs")
    assert followed.http.patch(f"/v3/documents/{id}", json={"title": "Mine"}).status_code == 200

    shelf.rename("1", "Another name")
    assert followed.sync() == []
    assert followed.document("Mine") == id
    shelf.put("1", LONG + " And more.", title="Another name")
    [one] = followed.sync()
    assert (one["title"], one["newChunks"] > 0) == ("Mine", True)


def test_what_is_removed_is_told_by_its_id_alone(followed: Feed, shelf: Shelf) -> None:
    shelf.put("1", "A zebra in the text.", title="A zebra in the title")
    shelf.put("2", "It stays.")
    followed.sync()
    first = followed.run()["id"]
    id = followed.document("A zebra in the title")
    shelf.take("1")

    [one] = followed.sync()

    assert one == {
        "documentId": id,
        "change": "removed",
        "at": one["at"],
        "title": None,
        "url": None,
        "chunks": None,
        "newChunks": None,
        "share": None,
    }
    added = followed.http.get(followed.path(first))
    assert len(added.json()["changes"]) == 2
    assert "zebra" not in added.text + followed.columns()


def test_what_is_deleted_here_has_no_title_any_more(followed: Feed, shelf: Shelf) -> None:
    shelf.put("1", "A text.", title="A zebra in the title")
    followed.sync()
    followed.http.delete(f"/v3/documents/{followed.document('A zebra in the title')}")

    [one] = followed.changes()

    assert (one["change"], one["title"], one["url"]) == ("added", None, None)
    assert "zebra" not in followed.columns()


def test_what_is_unchanged_makes_no_row(followed: Feed, shelf: Shelf) -> None:
    shelf.put("1", "It stays.")
    followed.sync()

    assert followed.sync() == []
    assert followed.run()["added"] == 0


def test_the_feed_and_the_counts_agree(followed: Feed, shelf: Shelf) -> None:
    for n in range(9):
        shelf.put(f"{n}", f"The text of number {n}.")
    followed.sync()
    shelf.put("0", "Another text.")
    shelf.put("1", "Another text, too.")
    shelf.take("2")
    shelf.put("9", "A new one.")

    changes = followed.sync()

    run = followed.run()
    told = [change["change"] for change in changes]
    assert {what: told.count(what) for what in ("added", "changed", "removed")} == {
        "added": 1,
        "changed": 2,
        "removed": 1,
    }
    assert (run["added"], run["changed"], run["removed"]) == (1, 2, 1)
    assert [one["title"] for one in followed.page(change="added")["changes"]] == ["Thing 9"]


def test_what_gives_way_to_newer_things_is_told(
    app: App, followed: Feed, shelf: Shelf, tenant: Tenant
) -> None:
    for n in range(4):
        shelf.put(f"{n}", f"The text of number {n}.")
    followed.sync()
    with app.db.begin() as tx:
        connections.update(tx, tenant, followed.id, ConnectionChange(limit=3))

    [one] = followed.sync()

    assert one["change"] == "removed"


@pytest.mark.parametrize("most", [100, 6])
def test_a_killed_sync_that_goes_on_doubles_no_row(
    followed: Feed, shelf: Shelf, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(change_log, "MOST", most)
    monkeypatch.setattr(runs, "BATCH", 2)
    for n in range(8):
        shelf.put(f"{n}", f"The text of number {n}.")
    shelf.every = 3

    def killed(number: int) -> None:
        if number == 6:
            raise KeyboardInterrupt

    shelf.before_checkpoint = killed
    with pytest.raises(KeyboardInterrupt):
        syncs.drain(followed.app)
    cut_off = followed.run()["id"]
    assert len(followed.changes()) == 5, "three with a checkpoint; two will be said again"
    shelf.before_checkpoint = lambda _number: None
    changes = followed.sync()

    assert followed.run()["id"] == cut_off
    assert followed.run()["added"] == 8
    assert len(changes) == len({change["documentId"] for change in changes}) == min(8, most)


def test_a_document_that_comes_and_changes_in_one_run_is_added_once(
    app: App, followed: Feed, shelf: Shelf
) -> None:
    shelf.put("1", LONG)
    followed.sync()
    run, id = followed.run()["id"], DocumentId(followed.document("Thing 1"))

    with app.db.begin() as tx:
        change_log.keep(tx, run, {id: "changed"}, room=1)
    [twice] = followed.changes()
    with app.db.begin() as tx:
        change_log.keep(tx, run, {id: "removed"}, room=1)
    [gone] = followed.changes()

    assert (twice["change"], twice["share"]) == ("added", 1.0)
    assert (gone["change"], gone["share"]) == ("removed", None)


def test_a_long_feed_ends_and_says_so(
    followed: Feed, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_log, "MOST", 4)
    for n in range(7):
        shelf.put(f"{n}", f"The text of number {n}.")

    changes = followed.sync()

    run = followed.run()
    assert (len(changes), run["added"]) == (4, 7)
    assert run["notes"] == ["The feed lists the first 4 changes of this sync; there were 7."]
    shelf.put("0", "Another text.")
    followed.sync()
    assert followed.run()["notes"] == []


def test_the_feed_goes_with_its_run_and_with_the_connection(
    app: App, followed: Feed, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_queue, "RUNS_KEPT", 2)
    shelf.put("1", "The first.")
    followed.sync()
    first = followed.run()["id"]
    followed.sync()
    assert followed.http.get(followed.path(first)).status_code == 200
    followed.sync()

    assert followed.http.get(followed.path(first)).status_code == 404
    assert first not in followed.columns()
    shelf.put("2", "The second.")
    followed.sync()
    followed.http.delete(f"/v3/connections/{followed.id}")
    assert followed.columns() == "[]"


def test_it_comes_in_pages(followed: Feed, shelf: Shelf) -> None:
    for n in range(7):
        shelf.put(f"{n}", f"The text of number {n}.")
    whole = followed.sync()

    pages = [followed.page(limit=3, page=number) for number in (1, 2, 3)]

    assert [one for page in pages for one in page["changes"]] == whole
    assert pages[1]["pagination"] == {
        "currentPage": 2,
        "limit": 3,
        "totalItems": 7,
        "totalPages": 3,
    }


def test_a_run_is_found_by_its_own_connection_only(
    app: App, followed: Feed, shelf: Shelf, client: httpx.Client, tenant: Tenant
) -> None:
    shelf.put("1", "A text.")
    followed.sync()
    other = Feed(app, client, shelf)
    run = followed.run()["id"]

    assert client.get(other.path(run)).status_code == 404
    assert client.get(followed.path("r" * 22)).status_code == 404
    with app.db.begin() as tx:
        page = change_log.find(tx, tenant, ConnectionId(other.id), run, what=None, limit=10, page=1)
    assert page.items == []


def test_a_limited_key_sees_no_title_of_a_document_that_left_its_tag(
    app: App, followed: Feed, shelf: Shelf, org: Org
) -> None:
    def reading(tag: str) -> str:
        with app.db.begin() as tx:
            secret = orgs.create_key(tx, org.id, scope=Scope.READ, tags=[tag])[1]
        return f"Bearer {secret}"

    shelf.put("1", "A text.", title="A zebra in the title")
    followed.sync()
    path, id = followed.path(followed.run()["id"]), followed.document("A zebra in the title")
    reader = {"Authorization": reading("notes")}
    assert "zebra" in followed.http.get(path, headers=reader).text
    followed.http.patch(f"/v3/documents/{id}", json={"containerTags": ["private"]})

    answer = followed.http.get(path, headers=reader)

    assert answer.status_code == 200
    assert "zebra" not in answer.text
    elsewhere = {"Authorization": reading("elsewhere")}
    assert followed.http.get(path, headers=elsewhere).status_code == 404


def test_scheduled_syncs_that_began_together_drift_apart(
    app: App, followed: Feed, org: Org
) -> None:
    with app.db.begin() as tx:
        connection = connections.get(tx, Tenant(org.id), followed.id)
        waits = {runs.next_in(app, tx, connection, SyncCounts()) for _ in range(50)}
        held = runs.next_in(app, tx, connection, SyncCounts(code=HELD))

    interval = app.config.sync_interval
    assert all(interval <= wait <= interval * runs.SPREAD for wait in waits)
    assert max(waits) - min(waits) > interval * 0.01
    assert held == app.config.poll_interval


def test_reading_it_takes_as_many_statements_however_long_it_is(
    followed: Feed, shelf: Shelf, sent: list[str]
) -> None:
    def asked() -> int:
        path = followed.path(followed.run()["id"])
        sent.clear()
        assert followed.http.get(path).status_code == 200
        return len(sent)

    shelf.put("first", "A text.")
    followed.sync()
    few = asked()
    for n in range(30):
        shelf.put(f"{n}", f"The text of number {n}.")
    followed.sync()

    assert asked() == few <= 10


def test_writing_it_is_one_statement_for_a_batch(
    followed: Feed, shelf: Shelf, sent: list[str]
) -> None:
    shelf.every = 50
    for n in range(50):
        shelf.put(f"{n}", f"The text of number {n}.")
    followed.due()
    syncs.drain(followed.app)

    assert sum("insert into sync_changes" in one for one in sent) == 1


def test_documents_of_no_connection_cost_nothing_more(
    app: App, client: httpx.Client, sent: list[str]
) -> None:
    client.post("/v3/documents", json={"content": "By hand."})
    drain(app)

    assert any("indexed_revision = " in one for one in sent)
    assert not [one for one in sent if "sync_changes" in one]
