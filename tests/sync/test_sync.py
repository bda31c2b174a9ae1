"""One sync after another: what a provider holds, and what became documents."""

import sys
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import FrameType
from typing import Any

import pytest

from recollect import connectors, documents
from recollect.app import App, secret_keys
from recollect.connectors.base import (
    Change,
    Checkpoint,
    Cursor,
    Item,
    Listed,
    Listing,
    Source,
    Verdict,
)
from recollect.documents import DocumentQuery
from recollect.errors import (
    DATABASE_AWAY,
    DISK_FULL,
    NO_ROOM_LEFT,
    DatabaseAway,
    LeaseLost,
    Permanent,
    Reauthorize,
    Transient,
    Unavailable,
)
from recollect.fetch import Fetcher
from recollect.model import (
    Blob,
    Connection,
    ConnectionId,
    ConnectionState,
    Document,
    DocumentId,
    Extracted,
    Remembered,
    Status,
    SyncClaim,
    Tenant,
    Trigger,
    random_id,
)
from recollect.orgs import settings, tags
from recollect.sync import (
    authorizations,
    connection_queue,
    connections,
    host_limits,
    item_filter,
    items,
    runs,
)
from recollect.sync import connect as connect_
from recollect.sync.connections import ConnectionChange, SealedConnection
from recollect.sync.credentials import open_secrets, seal_secrets
from recollect.telemetry.tracing import open_tracer
from recollect.worker import syncs
from recollect.worker.processing import drain
from tests.conftest import capture_logs, eventually
from tests.fakes.collector import collecting
from tests.fakes.shelf import SHELVES, MissingConnector, Shelf, ShelfConnector, providing, shelved
from tests.sync.test_crawl import RecordingDatabase

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)


@pytest.fixture(autouse=True)
def known_connectors() -> Generator[None]:
    with providing(shelf=ShelfConnector(), lost_shelf=MissingConnector()):
        yield


@pytest.fixture
def shelf() -> Generator[Shelf]:
    with shelved() as made:
        yield made


@pytest.fixture
def connect(app: App, tenant: Tenant, shelf: Shelf) -> Callable[..., Connection]:
    def make(provider: str = "shelf", *, limit: int = 100, **metadata: Any) -> Connection:
        [name] = [name for name, known in SHELVES.items() if known is shelf]
        new = SealedConnection(
            provider, ["notes"], limit, {"shelf": name, **metadata}, None, pending=False
        )
        with app.db.begin() as tx:
            return connections.create(tx, tenant.id, new, ConnectionId(random_id()))

    return make


def sync(app: App, connection: Connection) -> Connection:
    """Have it due, and work until nothing is: syncs and documents."""
    want(app, connection)
    syncs.drain(app)
    drain(app)
    return again(app, connection)


def want(app: App, connection: Connection) -> None:
    with app.db.begin() as tx:
        tx.execute(
            "update connections set due_at = now(), parked_until = null"
            " where id = %s and state in ('ready', 'syncing')",
            (connection.id,),
        )


def again(app: App, connection: Connection) -> Connection:
    with app.db.begin() as tx:
        return connections.get(tx, Tenant(connection.org_id), connection.id)


def found(app: App, connection: Connection) -> dict[str, Document]:
    """Documents of the connection by title."""
    query = DocumentQuery(connections=[connection.id], limit=1000, with_text=True)
    with app.db.begin() as tx:
        page = documents.find(tx, Tenant(connection.org_id), query)
    return {document.title or "": document for document in page.items}


def verdicts(app: App, connection: Connection) -> dict[str, int]:
    with app.db.begin() as tx:
        return dict(items.verdicts(tx, connection.id))


def take(app: App) -> SyncClaim:
    with app.db.begin() as tx:
        [claim] = connection_queue.claim(tx, lease=app.lease, limit=1)
    return claim


def set_filter(app: App, tenant: Tenant, **change: Any) -> None:
    with app.db.begin() as tx:
        settings.patch(tx, tenant.id, change, keys=secret_keys(app.config))


@contextmanager
def counting(function: Callable[..., object]) -> Generator[list[int]]:
    """How often it is called in this thread."""
    calls = [0]

    def profile(frame: FrameType, event: str, _: object) -> None:
        calls[0] += event == "call" and frame.f_code is function.__code__

    sys.setprofile(profile)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def counts(connection: Connection) -> tuple[int, int, int, int]:
    run = connection.last_run
    assert run is not None
    return run.added, run.changed, run.unchanged, run.removed


# --- documents follow the source -----------------------------------------------------------------


def test_first_sync_makes_documents_that_are_searchable(
    app: App, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    for n in range(7):
        shelf.put(f"{n}", f"The text of number {n}.", metadata={"shelf": "top"})

    synced = sync(app, connect())

    known = found(app, synced)
    assert len(known) == 7
    one = known["Thing 3"]
    assert (one.text, one.status, one.url) == (
        "The text of number 3.",
        "done",
        "https://shelf.example/3",
    )
    assert (one.metadata, one.source) == ({"shelf": "top"}, "shelf")
    assert synced.state is ConnectionState.READY
    assert counts(synced) == (7, 0, 0, 0)
    assert synced.due_at is not None
    assert synced.due_at > datetime.now(UTC) + HOUR


class TwiceConnector(ShelfConnector):
    """Says all that it lists three times: twice at a stretch, then again."""

    provider = "twice-shelf"

    def changes(self, source: Source, cursor: Cursor | None) -> Iterator[Change]:
        told = [
            *(change for change in super().changes(source, None) if isinstance(change, Item)),
            Verdict("large", "too_large", "It is too large.", title="Large"),
            Verdict("lost", "out_of_reach", "It cannot be given.", keep=True, failed=True),
        ]
        yield Listing()
        yield from [*told, *told]
        yield Checkpoint({})
        yield from told
        yield Listed()
        yield Checkpoint({})


def test_a_sync_counts_once_what_it_hears_of_twice(
    app: App, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    for n in range(3):
        shelf.put(f"{n}", f"Number {n}.")
    with providing(twice_shelf=TwiceConnector()):
        first = sync(app, connect("twice-shelf"))
        assert first.last_run is not None
        assert counts(first) == (3, 0, 0, 0)
        assert (first.last_run.skipped, first.last_run.failed) == ({"too_large": 1}, 1)
        second = sync(app, first)
        assert second.last_run is not None
        assert counts(second) == (0, 0, 3, 0)
        assert (second.last_run.skipped, second.last_run.failed) == ({"too_large": 1}, 1)


def test_a_sync_compiles_the_filter_once_and_a_fetch_never(
    app: App, tenant: Tenant, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    set_filter(app, tenant, excludeItems={"titlePatterns": ["Thing 9"], "urlPatterns": []})
    for n in range(10):
        shelf.put(f"{n}", f"The text of number {n}.")
    connection = connect()
    want(app, connection)

    with counting(item_filter.refusal) as listed:
        syncs.drain(app)
    with counting(item_filter.refusal) as fetched:
        drain(app)

    assert (len(found(app, connection)), listed[0], fetched[0]) == (9, 1, 0)


def test_later_syncs_cost_what_changed(
    app: App, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    for n in range(5):
        shelf.put(f"{n}", f"Number {n}.")
    connection = sync(app, connect())
    before = found(app, connection)
    shelf.fetched.clear()

    shelf.put("1", "Number 1, edited.")
    shelf.rename("2", "Another name")
    shelf.take("3")
    shelf.put("9", "Number 9.")
    connection = sync(app, connection)

    after = found(app, connection)
    assert sorted(shelf.fetched) == ["1", "9"]
    assert after["Thing 1"].text == "Number 1, edited."
    assert after["Thing 1"].id == before["Thing 1"].id
    assert after["Another name"].id == before["Thing 2"].id
    assert after["Another name"].revision == before["Thing 2"].revision
    assert "Thing 3" not in after
    assert counts(connection) == (1, 2, 0, 1)


def test_a_forgotten_cursor_lists_again_without_doubling_or_fetching(
    app: App, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    for n in range(5):
        shelf.put(f"{n}", f"Number {n}.")
    connection = sync(app, connect())
    shelf.take("0")
    shelf.fetched.clear()
    shelf.expired = True

    connection = sync(app, connection)

    assert sorted(found(app, connection)) == ["Thing 1", "Thing 2", "Thing 3", "Thing 4"]
    assert shelf.fetched == []
    assert connection.last_run is not None
    assert any("listed again" in note for note in connection.last_run.notes)


def test_a_sync_that_died_goes_on_where_it_was(
    app: App, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    for n in range(9):
        shelf.put(f"{n}", f"Number {n}.")
    connection = connect()

    class Killed(BaseException):
        pass

    def die(number: int) -> None:
        if number == 6:
            raise Killed

    shelf.before_checkpoint = die
    claim = take(app)
    with pytest.raises(Killed):
        syncs.attempt(app, claim, threading.Event())
    assert again(app, connection).cursor == {"at": "2", "start": 9}
    shelf.before_checkpoint = lambda _number: None

    connection = sync(app, connection)

    assert len(found(app, connection)) == 9
    assert connection.last_run is not None
    assert connection.last_run.added == 9
    assert connection.last_run.id == claim.run_id


def test_a_worker_that_lost_its_lease_writes_nothing(
    app: App, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    for n in range(9):
        shelf.put(f"{n}", f"Number {n}.")
    connection = connect()
    old = take(app)

    def overtaken(number: int) -> None:
        if number == 6:
            shelf.before_checkpoint = lambda _number: None
            want(app, connection)
            syncs.drain(app)

    shelf.before_checkpoint = overtaken
    outcome = syncs.attempt(app, old, threading.Event())

    assert isinstance(outcome, LeaseLost)
    syncs.settle(app, old, outcome)
    connection = again(app, connection)
    assert connection.state is ConnectionState.READY
    assert connection.cursor == {"seen": 9}
    assert verdicts(app, connection) == {"document": 9}


# --- what is no document -------------------------------------------------------------------------


def test_the_limit_is_exact_and_the_newest_stay(
    app: App, tenant: Tenant, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    for n in range(6):
        shelf.put(f"{n}", f"Number {n}.")
    connection = sync(app, connect(limit=4))
    assert sorted(found(app, connection)) == ["Thing 2", "Thing 3", "Thing 4", "Thing 5"]
    assert verdicts(app, connection) == {"document": 4, "over_limit": 2}

    with app.db.begin() as tx:
        connections.update(tx, tenant, connection.id, ConnectionChange(limit=5))
    connection = sync(app, connection)
    assert sorted(found(app, connection))[0] == "Thing 1"

    shelf.put("9", "The newest.")
    connection = sync(app, connection)
    assert sorted(found(app, connection)) == [f"Thing {n}" for n in (2, 3, 4, 5, 9)]

    with app.db.begin() as tx:
        documents.delete(tx, tenant, [found_one(app, connection, "Thing 4")])
    connection = sync(app, connection)
    assert sorted(found(app, connection)) == [f"Thing {n}" for n in (1, 2, 3, 5, 9)]


def found_one(app: App, connection: Connection, title: str) -> DocumentId:
    return found(app, connection)[title].id


def test_what_a_user_deleted_stays_away(
    app: App, tenant: Tenant, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    shelf.put("a", "First.")
    shelf.put("b", "Second.")
    connection = sync(app, connect(mode="listing"))
    with app.db.begin() as tx:
        documents.delete(tx, tenant, [found_one(app, connection, "Thing a")])

    shelf.put("a", "First, edited.")
    connection = sync(app, connection)

    assert sorted(found(app, connection)) == ["Thing b"]
    assert verdicts(app, connection) == {"deleted": 1, "document": 1}


@pytest.mark.parametrize("mode", ["listing", "feed"])
def test_what_a_user_deleted_stays_away_though_it_left_and_came_back(
    app: App, tenant: Tenant, shelf: Shelf, connect: Callable[..., Connection], mode: str
) -> None:
    """As from the trash, or with a folder that is taken out of the selection and chosen again."""
    shelf.put("a", "First.")
    shelf.put("b", "Second.")
    connection = sync(app, connect(mode=mode))
    with app.db.begin() as tx:
        documents.delete(tx, tenant, [found_one(app, connection, "Thing a")])
    shelf.take("a")
    connection = sync(app, connection)
    with app.db.begin() as tx:
        left = [row.id for row in items.remembered(tx, connection.id)]
    shelf.put("a", "First, restored.")
    connection = sync(app, connection)

    assert left == ["b"], "connectors need not look for it"
    assert sorted(found(app, connection)) == ["Thing b"]
    assert verdicts(app, connection) == {"deleted": 1, "document": 1}


def test_the_filter_keeps_out_with_the_pattern_and_lets_in_when_it_opens(
    app: App, tenant: Tenant, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    shelf.put("a", "Public.", title="Report")
    shelf.put("b", "Private.", title="Draft of a report")
    set_filter(app, tenant, excludeItems={"urlPatterns": [], "titlePatterns": ["draft*"]})
    connection = sync(app, connect())
    assert sorted(found(app, connection)) == ["Report"]
    with app.db.begin() as tx:
        assert items.get(tx, connection.id, "b").detail == "excludeItems: draft*"

    set_filter(app, tenant, excludeItems=None)
    connection = sync(app, connection)

    assert sorted(found(app, connection)) == ["Draft of a report", "Report"]


def test_what_stays_out_is_not_written_again(
    app: App,
    tenant: Tenant,
    shelf: Shelf,
    connect: Callable[..., Connection],
    database_url: str,
) -> None:
    """However many things the limit, the filter and the user keep out."""
    shelf.every = 25
    set_filter(app, tenant, excludeItems={"urlPatterns": [], "titlePatterns": ["draft*"]})
    for n in range(60):
        shelf.put(f"{n:03}", f"Number {n}.", title=f"{'Draft' if n % 3 else 'Note'} {n}")
    connection = sync(app, connect(limit=5, mode="listing"))
    with app.db.begin() as tx:
        documents.delete(tx, tenant, [one.id for one in found(app, connection).values()])
    sync(app, connection)
    connection = sync(app, connection)
    before = verdicts(app, connection)
    assert before == {"deleted": 5, "document": 5, "filtered": 40, "over_limit": 10}

    with RecordingDatabase(database_url) as db:
        db.said = Counter()
        connection = sync(replace(app, db=db), connection)

    assert verdicts(app, connection) == before
    assert connection.last_run is not None
    assert dict(connection.last_run.skipped) == {
        name: number for name, number in before.items() if name != "document"
    }
    assert counts(connection) == (0, 0, 5, 0)
    writing = [one for one in db.said.elements() if "items" in one and "select" not in one[:9]]
    assert len(writing) <= 12, writing


def test_what_stayed_out_is_written_when_it_changed_there(
    app: App, tenant: Tenant, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    for n in range(4):
        shelf.put(f"{n}", f"Number {n}.")
    connection = sync(app, connect(limit=2, mode="listing"))
    shelf.rename("0", "Zero")
    shelf.put("1", "Number one.")
    set_filter(app, tenant, excludeItems={"urlPatterns": [], "titlePatterns": ["zero"]})

    connection = sync(app, connection)

    assert sorted(found(app, connection)) == ["Thing 1", "Thing 3"], "the newest"
    assert verdicts(app, connection) == {"document": 2, "filtered": 1, "over_limit": 1}


def test_a_listing_that_lost_most_is_confirmed_by_a_second(
    app: App, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    for n in range(50):
        shelf.put(f"{n:02}", f"Number {n}.")
    connection = sync(app, connect(mode="listing"))
    for n in range(30):
        shelf.take(f"{n:02}")

    connection = sync(app, connection)
    assert len(found(app, connection)) == 50
    assert connection.last_run is not None
    assert connection.last_run.status == "partial"
    assert "30 of 50" in connection.last_run.notes[0]
    assert "started by hand" in connection.last_run.notes[0], "what confirms"
    assert "Pause" in connection.last_run.notes[0], "what keeps"
    assert connection.due_at is not None
    assert connection.due_at < datetime.now(UTC) + HOUR

    connection = sync(app, connection)
    assert len(found(app, connection)) == 20


def test_what_only_the_second_listing_lacks_is_not_confirmed(
    app: App, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    for n in range(50):
        shelf.put(f"{n:02}", f"Number {n}.")
    connection = sync(app, connect(mode="listing"))
    for n in range(30):
        shelf.take(f"{n:02}")
    connection = sync(app, connection)
    for n in range(30, 50):
        shelf.take(f"{n:02}")

    connection = sync(app, connection)
    assert len(found(app, connection)) == 50
    for n in range(30, 50):
        shelf.put(f"{n:02}", f"Number {n}.")
    sync(app, connection)

    assert sorted(found(app, connection)) == [f"Thing {n}" for n in range(30, 50)]


def test_a_held_deletion_is_forgotten_when_things_are_back(
    app: App, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    shelf.put("a", "First.")
    connection = sync(app, connect(mode="listing"))
    shelf.take("a")
    connection = sync(app, connection)
    assert len(found(app, connection)) == 1
    shelf.put("a", "First.")
    connection = sync(app, connection)
    shelf.take("a")

    connection = sync(app, connection)

    assert len(found(app, connection)) == 1, "the first of two empty listings"


def test_a_clock_that_is_set_back_during_a_listing_deletes_nothing(
    app: App, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    for n in range(9):
        shelf.put(f"{n}", f"Number {n}.")
    connection = sync(app, connect(mode="listing"))
    shelf.take("0")
    ids = {document.id for document in found(app, connection).values()}

    def set_back(number: int) -> None:
        if number == 6:  # what was written so far, by a clock that was an hour ahead
            with app.db.begin() as tx:
                tx.execute(
                    "update items set seen_at = seen_at + %s where connection_id = %s"
                    " and id in ('1', '2', '3')",
                    (HOUR, connection.id),
                )
                tx.execute(
                    "update connections set listings = jsonb_build_object('', now() + %s)"
                    " where id = %s",
                    (HOUR, connection.id),
                )

    shelf.before_checkpoint = set_back
    connection = sync(app, connection)
    left = {document.id for document in found(app, connection).values()}
    assert (len(left), left < ids) == (8, True)


def test_a_broken_branch_keeps_its_documents(
    app: App, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    for n in range(3):
        shelf.put(f"a{n}", f"A {n}.", branch="a")
        shelf.put(f"b{n}", f"B {n}.", branch="b")
    connection = sync(app, connect(mode="listing"))
    shelf.take("b1")
    shelf.broken.add("a")

    connection = sync(app, connection)

    assert sorted(found(app, connection)) == [f"Thing {n}" for n in ("a0", "a1", "a2", "b0", "b2")]
    assert connection.last_run is not None
    assert connection.last_run.status == "partial"


def test_what_is_missing_goes_with_the_second_sync(
    app: App, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    shelf.put("a", "First.")
    shelf.put("b", "Second.")
    connection = sync(app, connect("lost-shelf"))
    shelf.take("a")
    connection = sync(app, connection)
    assert len(found(app, connection)) == 2
    connection = sync(app, connection)
    assert sorted(found(app, connection)) == ["Thing b"]


# --- trouble -------------------------------------------------------------------------------------


def test_lost_authorization_deletes_nothing_and_waits(
    app: App, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    shelf.put("a", "First.")
    connection = sync(app, connect(mode="listing"))
    shelf.fail("changes", Reauthorize("the token was revoked"))

    connection = sync(app, connection)

    assert connection.state is ConnectionState.NEEDS_AUTH
    assert connection.due_at is None
    assert connection.failure is not None
    assert connection.failure.code == "auth_expired"
    assert len(found(app, connection)) == 1
    with app.db.begin() as tx:
        authorizations.authorize(
            tx,
            connection,
            tokens="sealed",
            expires_at=None,
            account="somebody",
            email=None,
            due=True,
        )
    assert sync(app, connection).state is ConnectionState.READY


def test_a_limit_parks_the_connection_with_its_documents(
    app: App, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    for n in range(3):
        shelf.put(f"{n}", f"Number {n}.")
    shelf.fail("fetch", Transient("slow down", code="rate_limited", after=HOUR / 2))

    connection = sync(app, connect())

    waiting = [d for d in found(app, connection).values() if d.status == "queued"]
    assert len(waiting) == 3
    assert {d.failure.code for d in waiting if d.failure} == {"rate_limited"}
    assert all(d.due_at and d.due_at > datetime.now(UTC) + HOUR / 4 for d in waiting)
    assert connection.parked_until is not None
    assert [d.attempts for d in waiting].count(0) == 3


def test_a_thing_that_has_no_text_any_more_keeps_its_document_without_any(
    app: App, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    shelf.put("a", "First words.")
    shelf.put("b", " ")
    connection = sync(app, connect())
    first = found(app, connection)
    shelf.put("a", " \n")

    sync(app, connection)

    now = found(app, connection)
    assert (now["Thing a"].id, now["Thing a"].status) == (first["Thing a"].id, "done")
    assert now["Thing a"].text == ""
    assert list(now["Thing a"].warnings) == ["No text was found in it."]
    assert now["Thing b"].status == "failed"
    with app.db.begin() as tx:
        held = "select from chunks where document_id = %s union all"
        held += " select from entries where document_id = %s"
        assert tx.execute(held, [now["Thing a"].id] * 2).rowcount == 0
    shelf.put("a", "First words again.")
    sync(app, connection)
    assert found(app, connection)["Thing a"].text == "First words again."


def test_a_document_that_vanished_before_it_was_read_is_gone(
    app: App, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    shelf.put("a", "First.")
    shelf.put("b", "Second.")
    connection = connect()
    want(app, connection)
    syncs.drain(app)
    shelf.take("a")
    drain(app)
    with app.db.begin() as tx:
        tx.execute("update documents set due_at = now() where due_at is not null")
    drain(app)
    assert sorted(found(app, connection)) == ["Thing b"]
    assert verdicts(app, connection) == {"document": 1}


@pytest.mark.parametrize("asked", [False, True], ids=["after a day", "asked for"])
def test_a_right_to_read_that_comes_back_is_found_by_a_later_sync(
    app: App, shelf: Shelf, connect: Callable[..., Connection], asked: bool
) -> None:
    shelf.put("a", "First.")
    shelf.fail("fetch", Permanent("not yours", code="http_403"))
    connection = sync(app, connect())
    shelf.put("b", "Second.")
    shelf.fail("fetch", Permanent("torn", code="unreadable_content"))
    sync(app, connection)
    assert [d.status for d in found(app, connection).values()] == ["failed", "failed"]

    with app.db.begin() as tx:
        if asked:
            connection_queue.want_now(tx, Tenant(connection.org_id), connection.id)
        else:
            tx.execute("update documents set updated_at = updated_at - interval '1 day'")
    sync(app, connection)

    assert shelf.fetched == ["a"]
    assert found(app, connection)["Thing a"].status == "done"
    assert found(app, connection)["Thing b"].status == "failed"


def test_a_failed_sync_tries_again_after_a_while(
    app: App, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    shelf.put("a", "First.")
    shelf.fail("changes", RuntimeError("a bug"))
    connection = sync(app, connect())
    assert connection.failure is not None
    assert connection.failure.code == "internal_error"
    assert connection.last_run is not None
    assert connection.last_run.status == "failed"
    assert connection.due_at is not None
    assert connection.due_at < datetime.now(UTC) + HOUR / 6
    assert len(found(app, sync(app, connection))) == 1


@pytest.mark.parametrize(
    ("way", "outcome", "code", "reason"),
    [
        (Permanent("no such bucket", code="no_bucket"), "put off", "no_bucket", "no such bucket"),
        (Transient("slow down", code="rate_limited"), "put off", "rate_limited", "slow down"),
        (DatabaseAway("host db1"), "put off", "internal_error", DATABASE_AWAY),
        (Reauthorize("revoked"), "authorization lost", None, "revoked"),
        ("long ago", "given up", "gave_up", "nobody is there"),
        ("branch", "partial", "provider_error", "east cannot be listed; look after it"),
    ],
    ids=["permanent", "limit", "database", "authorization", "given-up", "partial"],
)
def test_the_log_says_why_a_sync_did_not_do_it_all(
    app: App,
    shelf: Shelf,
    connect: Callable[..., Connection],
    way: Exception | str,
    outcome: str,
    code: str | None,
    reason: str,
) -> None:
    shelf.put("a", "First.", branch="east")
    connection = sync(app, connect(mode="listing"))
    if way == "branch":
        shelf.broken.add("east")
    elif way == "long ago":
        with app.db.begin() as tx:
            tx.execute("update connections set away_since = now() - interval '31 days'")
        shelf.fail("changes", Transient("nobody is there"))
    else:
        assert isinstance(way, Exception)
        shelf.fail("changes", way)

    with capture_logs() as lines:
        sync(app, connection)

    [line] = [one for one in lines if one["event"] == "sync" and one["outcome"] != "completed"]
    assert (line["outcome"], line.get("code"), line["reason"]) == (outcome, code, reason)


# --- wishes and the end --------------------------------------------------------------------------


def test_any_number_of_wishes_during_a_sync_makes_one_more(
    app: App, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    for n in range(3):
        shelf.put(f"{n}", f"Number {n}.")
    connection = connect()

    def wish(_number: int) -> None:
        with app.db.begin() as tx:
            for _ in range(5):
                connections.want(tx, [connection.id], Trigger.EVENT)

    shelf.before_checkpoint = wish
    want(app, connection)
    assert syncs.drain(app) == 2
    assert shelf.listed == 2


def test_a_change_of_the_selection_during_a_sync_begins_it_again_and_no_other(
    app: App, tenant: Tenant, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    for n in range(3):
        shelf.put(f"{n}", f"Number {n}.")
    connection = sync(app, connect(mode="listing"))
    metadata = {**connection.metadata, "note": "another"}

    def change(_number: int) -> None:
        shelf.before_checkpoint = lambda _number: None
        with app.db.begin() as tx:
            connections.update(tx, tenant, connection.id, ConnectionChange(metadata=metadata))

    shelf.listed, shelf.before_checkpoint = 0, change
    want(app, connection)
    syncs.drain(app)

    assert shelf.listed == 2, "what was outdated, and what was wanted"
    run = again(app, connection).last_run
    assert run is not None
    assert (run.trigger, run.unchanged) == (Trigger.MANUAL, 3)


def test_a_deletion_that_a_changed_selection_asks_for_is_held_until_another_sync(
    app: App, tenant: Tenant, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    """Also if a sync that ran, and was outdated by it, had found the same missing."""
    for n in range(50):
        shelf.put(f"{n:02}", f"Number {n}.")
    connection = sync(app, connect(mode="listing"))
    for n in range(30):
        shelf.take(f"{n:02}")
    want(app, connection)
    outdated = take(app)
    runs.run(app, outdated, threading.Event())
    change = ConnectionChange(metadata={**connection.metadata, "note": "another"})
    with app.db.begin() as tx:
        connections.update(tx, tenant, connection.id, change)
    syncs.drain(app)
    drain(app)

    assert len(found(app, connection)) == 50
    shown = again(app, connection).last_run
    assert shown is not None
    assert (shown.status, shown.removed) == ("partial", 0)
    sync(app, connection)
    assert len(found(app, connection)) == 20


def test_what_an_outdated_sync_could_not_do_is_not_told_of_the_new_selection(
    app: App, tenant: Tenant, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    shelf.put("a", "First.", branch="left")
    shelf.put("b", "Second.", branch="right")
    connection = sync(app, connect(mode="listing"))
    shelf.broken = {"left"}
    want(app, connection)
    runs.run(app, take(app), threading.Event())
    shelf.broken = set()
    change = ConnectionChange(metadata={**connection.metadata, "note": "another"})
    with app.db.begin() as tx:
        connections.update(tx, tenant, connection.id, change)
    syncs.drain(app)

    shown = again(app, connection).last_run
    assert shown is not None
    assert (shown.status, shown.failed, shown.unchanged, shown.notes) == ("completed", 0, 2, [])


def test_a_wish_during_a_sync_that_fails_is_heeded(
    app: App, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    for n in range(3):
        shelf.put(f"{n}", f"Number {n}.")
    connection = connect()

    def wish(_number: int) -> None:
        with app.db.begin() as tx:
            connections.want(tx, [connection.id], Trigger.MANUAL)

    shelf.before_checkpoint = wish
    shelf.fail("end", Permanent("not yours", code="access_denied"))
    want(app, connection)
    assert syncs.drain(app) == 2
    assert len(found(app, connection)) == 3
    assert again(app, connection).failure is None


@pytest.mark.parametrize("with_documents", [True, False])
def test_deleting_a_connection_in_the_middle_of_a_sync(
    app: App, tenant: Tenant, shelf: Shelf, connect: Callable[..., Connection], with_documents: bool
) -> None:
    for n in range(6):
        shelf.put(f"{n}", f"Number {n}.")
    connection = connect()
    claim = take(app)

    def delete(number: int) -> None:
        if number == 6:
            drain(app)
            with app.db.begin() as tx:
                connections.delete(tx, tenant, [connection], with_documents=with_documents)

    shelf.before_checkpoint = delete
    outcome = syncs.attempt(app, claim, threading.Event())
    syncs.settle(app, claim, outcome)

    assert isinstance(outcome, LeaseLost)
    with app.db.begin() as tx:
        left = documents.find(tx, tenant, DocumentQuery(with_text=True))
        rows = tx.execute("select 1 from items where connection_id = %s", (connection.id,))
        assert rows.fetchall() == []
    assert left.total == (0 if with_documents else 3)
    assert all(d.connection_id is None and d.status == "done" for d in left.items)


def test_kept_documents_can_be_processed_again(
    app: App, tenant: Tenant, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    shelf.put("a", "The text.")
    connection = sync(app, connect())
    id = found_one(app, connection, "Thing a")
    with app.db.begin() as tx:
        connections.delete(tx, tenant, [connection], with_documents=False)
        documents.reprocess(tx, tenant, ids=[id])
    drain(app)
    with app.db.begin() as tx:
        document = documents.get(tx, tenant, id, with_text=True)
    assert (document.status, document.text, document.title) == ("done", "The text.", "Thing a")


def test_kept_documents_wait_for_no_connection_that_is_gone(
    app: App, tenant: Tenant, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    shelf.put("a", "First.")
    connection = sync(app, connect())
    shelf.put("a", "Second.")
    shelf.fail("fetch", Reauthorize("the authorization was taken back"))
    waiting = found(app, sync(app, connection))["Thing a"]
    assert waiting.failure is not None
    with app.db.begin() as tx:
        connections.delete(tx, tenant, [connection], with_documents=False)
    drain(app)
    with app.db.begin() as tx:
        kept = documents.get(tx, tenant, waiting.id)
    assert (kept.status, kept.failure) == (Status.DONE, None)


def test_a_paused_connection_syncs_only_when_told_to(
    app: App, tenant: Tenant, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    shelf.put("a", "First.")
    connection = connect()
    with app.db.begin() as tx:
        connections.update(tx, tenant, connection.id, ConnectionChange(paused=True))
    want(app, connection)
    assert syncs.drain(app) == 0
    with app.db.begin() as tx:
        assert connections.want(tx, [connection.id], Trigger.EVENT) == 0
        assert connections.want(tx, [connection.id], Trigger.MANUAL) == 1
    assert syncs.drain(app) == 1


def test_who_pauses_a_connection_takes_back_the_wish_that_waits(
    app: App, tenant: Tenant, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    """As after a change of the selection by mistake, or while a provider is away."""
    connection = sync(app, connect())
    metadata = {**connection.metadata, "mode": "listing"}
    for change in (ConnectionChange(metadata=metadata), ConnectionChange(paused=True)):
        with app.db.begin() as tx:
            connections.update(tx, tenant, connection.id, change)
    want(app, connection)
    assert syncs.drain(app) == 0
    with app.db.begin() as tx:
        connections.update(tx, tenant, connection.id, ConnectionChange(paused=False))
    assert syncs.drain(app) == 1


def test_a_plan_that_is_too_low_stops_the_sync(
    app: App, tenant: Tenant, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    shelf.put("a", "First.")
    low = ShelfConnector()
    low.plans = frozenset()  # pyright: ignore[reportAttributeAccessIssue]
    registered = connectors.all()
    assert isinstance(registered, dict)
    registered["shelf"] = low
    connection = sync(app, connect())
    assert connection.failure is not None
    assert connection.failure.code == "plan_required"
    assert shelf.listed == 0


@pytest.mark.parametrize("killed", [False, True])
def test_a_clock_that_was_ahead_keeps_no_connection_waiting(
    app: App, shelf: Shelf, connect: Callable[..., Connection], killed: bool
) -> None:
    shelf.put("a", "First.")
    connection = sync(app, connect())
    if killed:
        want(app, connection)
        take(app)
    with app.db.begin() as tx:
        tx.execute(
            "update connections set due_at = due_at + %(day)s, updated_at = updated_at + %(day)s"
            " where id = %(id)s",
            {"day": 24 * HOUR, "id": connection.id},
        )
    syncs.chores(app, threading.Event())
    wait = app.lease if killed else timedelta()
    due = again(app, connection).due_at
    assert due is not None
    assert due <= datetime.now(UTC) + wait


def test_calls_of_all_processes_keep_their_distance(
    app: App, connect: Callable[..., Connection]
) -> None:
    id = connect().id
    waits: list[timedelta] = []
    for _ in range(3):
        with app.db.begin() as tx:
            waits.append(connection_queue.next_call_in(tx, id, HOUR))
    assert waits[0] <= timedelta()
    assert HOUR * 0.9 < waits[1] <= HOUR
    assert HOUR * 1.9 < waits[2] <= HOUR * 2


def test_a_clock_that_was_ahead_keeps_no_call_waiting(
    app: App, connect: Callable[..., Connection]
) -> None:
    id = connect().id
    waits: list[timedelta] = []
    for ahead in (24 * HOUR, timedelta(), timedelta()):
        with app.db.begin() as tx:
            tx.execute(
                "update connections set call_at = coalesce(call_at, now()) + %s where id = %s",
                (ahead, id),
            )
            waits.append(connection_queue.next_call_in(tx, id, SECOND))
    assert waits[0] <= timedelta()
    assert SECOND * 0.5 < waits[1] <= SECOND
    assert SECOND * 1.5 < waits[2] <= SECOND * 2


def test_a_clock_that_was_ahead_keeps_no_crawl_waiting(
    app: App, connect: Callable[..., Connection]
) -> None:
    id, host = connect().id, f"{random_id()}.example"
    with app.db.begin() as tx:
        host_limits.turn(tx, host, id, SECOND)
        tx.execute(
            "update crawled_hosts set next_at = next_at + %s where host = %s", (24 * HOUR, host)
        )
        assert host_limits.turn(tx, host, id, SECOND).wait < 1
        host_limits.rest(tx, host, HOUR)
        waits = [host_limits.turn(tx, host, id, SECOND).wait for _ in range(2)]
    assert 3590 < waits[0] <= 3600
    assert 3591 < waits[1] <= 3601


def test_secrets_open_on_their_own_row_only(app: App) -> None:
    sealed = seal_secrets(app, ConnectionId("a" * 22), {"password": "hunter2"})
    assert sealed is not None
    assert "hunter2" not in sealed
    assert open_secrets(app, ConnectionId("a" * 22), sealed) == {"password": "hunter2"}
    with pytest.raises(Exception, match="cannot be opened"):
        open_secrets(app, ConnectionId("b" * 22), sealed)


# --- what strangers and operators do -------------------------------------------------------------


def test_without_an_authorization_the_user_s_wish_is_another_try(
    app: App, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    """A bucket's key was refused and then mended at the provider: there is no link to follow."""
    shelf.put("a", "First.")
    shelf.fail("changes", Reauthorize("the key is unknown"))
    connection = sync(app, connect())
    assert connection.state is ConnectionState.NEEDS_AUTH
    with app.db.begin() as tx:
        assert connections.want(tx, [connection.id], Trigger.EVENT) == 0
        assert connections.want(tx, [connection.id], Trigger.MANUAL) == 1
    connection = sync(app, connection)
    assert (connection.state, connection.failure) == (ConnectionState.READY, None)
    assert sorted(found(app, connection)) == ["Thing a"]


def test_only_who_authorized_is_told_to_authorize_again(
    app: App, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    shelf.fail("changes", Reauthorize("the key is not known there"), times=2)
    keyed = sync(app, connect())
    with app.db.begin() as tx:
        authorizations.authorize(
            tx, keyed, tokens="sealed", expires_at=None, account="ann", email=None, due=True
        )
    authorized = sync(app, keyed)

    assert keyed.failure is not None
    assert authorized.failure is not None
    assert keyed.failure.message == "the key is not known there"
    assert authorized.failure.message.endswith("; authorize the connection again")


def test_new_secrets_are_another_try(
    app: App, tenant: Tenant, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    shelf.put("a", "First.")
    shelf.fail("changes", Reauthorize("the key is unknown"))
    connection = sync(app, connect())
    with app.db.begin() as tx:
        connections.update(
            tx, tenant, connection.id, ConnectionChange(metadata=connection.metadata)
        )
    assert sync(app, connection).state is ConnectionState.READY


def test_what_an_outdated_sync_says_of_the_old_secrets_does_not_stop_the_new_ones(
    app: App, tenant: Tenant, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    connection = connect()
    outdated = take(app)
    change = ConnectionChange(metadata=connection.metadata, secrets="sealed anew")
    with app.db.begin() as tx:
        connections.update(tx, tenant, connection.id, change)
    syncs.settle(app, outdated, Reauthorize("the key is not known there"))

    assert again(app, connection).state is ConnectionState.SYNCING
    with app.db.begin() as tx:
        [claim] = connection_queue.claim(tx, lease=app.lease, limit=1)
    assert claim.run_id == outdated.run_id


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        (DatabaseAway("it does not answer: no pg_hba.conf entry for 10.0.0.1"), DATABASE_AWAY),
        (Unavailable('could not extend file "base/1/2"', code=DISK_FULL), NO_ROOM_LEFT),
    ],
)
def test_a_run_does_not_tell_what_the_database_said(
    app: App, connect: Callable[..., Connection], outcome: Unavailable, told: str
) -> None:
    connection = connect()

    syncs.settle(app, take(app), outcome)

    failure = again(app, connection).failure
    assert failure is not None
    assert failure.message == told


def test_a_connection_may_be_deleted_when_its_sync_has_just_ended(
    app: App, tenant: Tenant, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    connection = connect()
    claim = take(app)
    counts = syncs.attempt(app, claim, threading.Event())
    with app.db.begin() as tx:
        connections.delete(tx, tenant, [connection], with_documents=True)

    syncs.settle(app, claim, counts)


def test_what_a_fetch_says_of_the_old_secrets_does_not_stop_the_new_ones(
    app: App, tenant: Tenant, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    class Meanwhile(ShelfConnector):
        def fetch(self, source: Source, item: Remembered) -> Blob | Extracted:
            change = ConnectionChange(secrets=seal_secrets(app, connection.id, {"password": "new"}))
            with app.db.begin() as tx:
                connections.update(tx, tenant, connection.id, change)
            raise Reauthorize("the key is not known there")

    shelf.put("a", "First.")
    connection = connect()
    with providing(shelf=Meanwhile()):
        connection = sync(app, connection)

    assert connection.state is ConnectionState.READY
    [waiting] = found(app, connection).values()
    assert waiting.due_at is not None
    assert waiting.due_at < datetime.now(UTC) + HOUR


def test_what_cannot_be_stored_does_not_stop_a_sync(
    app: App, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    shelf.put("a", "x\0y \ud800 z", title="bad\0 \ud800title", metadata={"k\0": "v\0\udfff"})
    shelf.put("b\0b", "Its id cannot be stored.")
    shelf.put("c", "Fine.")
    connection = sync(app, connect())
    known = found(app, connection)
    assert {document.status for document in known.values()} == {"done"}
    assert sorted(known) == ["Thing c", "bad\ufffd \ufffdtitle"]
    assert known["bad\ufffd \ufffdtitle"].metadata == {"k\ufffd": "v\ufffd\ufffd"}
    assert verdicts(app, connection) == {"document": 2, "unsupported": 1}


def test_all_that_was_filtered_comes_in_however_much_it_is(
    app: App,
    tenant: Tenant,
    shelf: Shelf,
    connect: Callable[..., Connection],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("recollect.sync.runs.FILL", 3)
    for n in range(11):
        shelf.put(f"{n:02}", f"Number {n}.", title=f"{'Draft' if n < 7 else 'Memo'} {n}")
    set_filter(app, tenant, excludeItems={"urlPatterns": [], "titlePatterns": ["*"]})
    connection = sync(app, connect())
    assert found(app, connection) == {}
    set_filter(app, tenant, excludeItems={"urlPatterns": [], "titlePatterns": ["draft*"]})
    connection = sync(app, connection)
    assert sorted(found(app, connection)) == ["Memo 10", "Memo 7", "Memo 8", "Memo 9"]
    assert verdicts(app, connection) == {"filtered": 7, "document": 4}


def test_tags_that_a_connector_makes_are_listed(
    app: App, tenant: Tenant, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    shelf.put("a", "First.", tags=["made-by-the-shelf"])
    sync(app, connect())
    with app.db.begin() as tx:
        assert tags.get(tx, tenant, "made-by-the-shelf").tag.name == "made-by-the-shelf"


def test_secrets_whose_key_is_lost_can_be_given_anew(
    app: App, tenant: Tenant, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    connection = connect()
    shelf.put("a", "First.")
    lost = seal_secrets(app, ConnectionId("elsewhere"), {"password": "old"})
    with app.db.begin() as tx:
        tx.execute("update connections set secrets = %s where id = %s", (lost, connection.id))
    assert sync(app, connection).state is ConnectionState.NEEDS_AUTH
    given = {**connection.metadata, "password": "new"}
    connect_.change(app, tenant, again(app, connection), connect_.ConnectionChanges(metadata=given))
    assert sync(app, connection).state is ConnectionState.READY
    with app.db.begin() as tx:
        sealed = connections.sealed(tx, connection.id).secrets
    assert open_secrets(app, connection.id, sealed) == {"password": "new"}


def test_a_sync_is_a_trace_with_its_counts(
    app: App, connect: Callable[..., Connection], shelf: Shelf
) -> None:
    shelf.put("a", "First.")
    with collecting() as collector:
        tracer = open_tracer(collector.url, None)
        assert tracer is not None
        connection = sync(replace(app, tracer=tracer), connect())
        shelf.fail("changes", RuntimeError("a bug"))
        sync(replace(app, tracer=tracer), connection)
        tracer.close()

    first, second = (one for one in collector.spans if one.name == "sync")
    told = {one.key: one.value for one in first.attributes}
    assert told["recollect.connection"].string_value == connection.id
    assert told["recollect.added"].int_value == 1
    assert first.status.code == 0
    assert second.status.code == 2


def test_a_sync_comes_back_by_itself_for_what_is_not_settled(
    app: App, connect: Callable[..., Connection], shelf: Shelf
) -> None:
    shelf.put("a", "one")
    connection = connect()
    sync(app, connection)
    shelf.again = timedelta(minutes=2)
    with app.db.begin() as tx:
        connections.want(tx, [connection.id], Trigger.MANUAL)
    sync(app, connection)
    soon = again(app, connection).due_at
    shelf.again = None
    sync(app, connection)
    late = again(app, connection).due_at

    assert soon is not None
    assert late is not None
    assert soon - datetime.now(UTC) <= timedelta(minutes=2)
    assert late - datetime.now(UTC) > timedelta(minutes=3)
    assert shelf.asked[-2:] == [True, False]


# --- what users set ------------------------------------------------------------------------------


def relabel(app: App, tenant: Tenant, id: DocumentId, **more: Any) -> None:
    with app.db.begin() as tx:
        tags.ensure(tx, tenant.id, more.get("tags", []))
        documents.update(tx, tenant, id, documents.DocumentChange(**more))


def retag(app: App, connection: Connection, names: Sequence[str]) -> None:
    with app.db.begin() as tx:
        tags.ensure(tx, connection.org_id, names)
        change = ConnectionChange(tags=names)
        connections.update(tx, Tenant(connection.org_id), connection.id, change)


def test_each_key_of_metadata_is_the_users_or_the_sources(
    app: App, tenant: Tenant, connect: Callable[..., Connection], shelf: Shelf
) -> None:
    given = {"same": 1, "mine": 1, "unwanted": 1, "going": 1}
    shelf.put("a", "one", metadata=given)
    connection = connect()
    sync(app, connection)
    id = found(app, connection)["Thing a"].id
    relabel(app, tenant, id, metadata={"same": 1, "mine": 2, "going": 1, "added": True})

    theirs = {"same": 3, "mine": 3, "unwanted": 3, "new": 3}
    shelf.put("a", "one", metadata=theirs)
    sync(app, connection)

    expected = {"same": 3, "mine": 2, "new": 3, "added": True}
    assert found(app, connection)["Thing a"].metadata == expected


def test_a_tag_that_a_user_took_off_stays_off(
    app: App, tenant: Tenant, connect: Callable[..., Connection], shelf: Shelf
) -> None:
    shelf.put("a", "one", tags=["shelf", "red"])
    connection = connect()
    sync(app, connection)
    id = found(app, connection)["Thing a"].id
    relabel(app, tenant, id, tags=["notes", "mine", "shelf"])

    shelf.put("a", "one", tags=["shelf", "red", "new"])
    sync(app, connection)

    tags_now = found(app, connection)["Thing a"].container_tags
    assert tags_now == ["notes", "shelf", "new", "mine"]


def test_a_custom_id_that_is_taken_in_the_new_tag_does_not_end_a_sync(
    app: App, tenant: Tenant, connect: Callable[..., Connection], shelf: Shelf
) -> None:
    shelf.put("a", "one")
    shelf.put("b", "two")
    connection = connect()
    sync(app, connection)
    relabel(app, tenant, found(app, connection)["Thing a"].id, custom_id="mine")
    with app.db.begin() as tx:
        tags.ensure(tx, tenant.id, ["desk"])
        new = documents.NewDocument(documents.text_content("Another."), ["desk"], custom_id="mine")
        documents.add(tx, tenant, new, DocumentId(random_id()))

    retag(app, connection, ["desk"])
    sync(app, connection)

    now = {title: one.container_tags for title, one in found(app, connection).items()}
    assert now == {"Thing a": ["notes", "desk"], "Thing b": ["desk"]}
    assert again(app, connection).state == ConnectionState.READY


def test_labels_of_a_file_in_a_synced_archive_stay(
    app: App, tenant: Tenant, connect: Callable[..., Connection], shelf: Shelf
) -> None:
    shelf.put("a", "one", metadata={"path": "/a"})
    connection = connect()
    sync(app, connection)
    archive = found(app, connection)["Thing a"].id
    files = {name: DocumentId(random_id()) for name in ("x.txt", "y.txt")}
    with app.db.begin() as tx:
        for name, id in files.items():
            new = documents.NewDocument(
                documents.text_content(f"The text of {name}."),
                ["notes"],
                metadata={"path": "/a"},
                archive_id=archive,
                archive_path=name,
            )
            documents.add(tx, tenant, new, id)
    drain(app)
    relabel(app, tenant, files["x.txt"], tags=["notes", "mine"], metadata={"path": "/a", "k": 1})

    shelf.put("a", "two", metadata={"path": "/b"})
    retag(app, connection, ["desk"])
    sync(app, connection)

    with app.db.begin() as tx:
        x, y = (documents.get(tx, tenant, id) for id in files.values())
        counted = tx.execute(
            "select (select sum(entries) from term_counts) as told,"
            " (select sum(cardinality(terms)) from entries) as there"
        ).fetchone()
    assert (x.container_tags, x.metadata) == (["desk", "mine"], {"path": "/b", "k": 1})
    assert (y.container_tags, y.metadata) == (["desk"], {"path": "/b"})
    assert counted is not None
    assert counted["told"] == counted["there"]


# --- while users act -----------------------------------------------------------------------------


def waits_for_a_lock(app: App) -> bool:
    with app.db.begin() as tx:
        row = tx.execute(
            "select count(*) as n from pg_stat_activity where datname = current_database()"
            " and wait_event_type = 'Lock'"
        ).fetchone()
    return row is not None and row["n"] > 0


@pytest.mark.parametrize("what", ["edited", "taken", "listed", "beside the same"])
@pytest.mark.parametrize("half", [False, True], ids=["deleted", "about to be deleted"])
def test_a_document_that_is_deleted_while_a_sync_waits_for_it_stays_away(
    app: App, connect: Callable[..., Connection], shelf: Shelf, what: str, half: bool
) -> None:
    shelf.every = 100  # one transaction
    for n in range(4):
        shelf.put(f"t{n}", f"The text of {n}.")
    connection = connect(mode="listing" if what in ("listed", "beside the same") else "feed")
    sync(app, connection)
    match what:
        case "edited" | "beside the same":
            shelf.put("t3", "Another text.")
        case _:
            shelf.take("t3")
    tenant = Tenant(connection.org_id)
    ids = [document.id for document in found(app, connection).values()]
    if what == "listed":  # what only the end of a listing takes away is not known before
        ids = [found(app, connection)["Thing t3"].id]

    with ThreadPoolExecutor(1) as beside:
        with app.db.begin() as tx:
            tx.execute("select from documents where id = any(%s) order by id for update", (ids,))
            if not half:
                assert documents.delete(tx, tenant, ids) == {}
            done = beside.submit(sync, app, connection)
            eventually(lambda: waits_for_a_lock(app))
            if half:
                assert documents.delete(tx, tenant, ids) == {}
        after = done.result()

    assert set(found(app, after)) == ({f"Thing t{n}" for n in range(3)} if len(ids) == 1 else set())
    assert after.state == ConnectionState.READY
    with app.db.begin() as tx:
        run = connections.runs(tx, connection.id)[0]
    assert (run.status, run.failure) == ("completed", None)


class PickingShelf(ShelfConnector):
    """A shelf of which parts are picked; `meanwhile` happens while a change is checked."""

    provider = "picking-shelf"
    picks = True

    def __init__(self) -> None:
        self.meanwhile: list[Callable[[], object]] = []

    def check(self, metadata: Mapping[str, Any], fetcher: Fetcher) -> dict[str, Any]:
        if self.meanwhile:
            self.meanwhile.pop()()
        return super().check(metadata, fetcher)

    def configure(
        self, metadata: Mapping[str, Any], picked: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        return {**metadata, "resources": list(picked)}


@pytest.fixture
def picking() -> Generator[PickingShelf]:
    found = connectors.all()
    assert isinstance(found, dict)
    found["picking-shelf"] = made = PickingShelf()
    yield made
    del found["picking-shelf"]


def test_what_is_picked_while_metadata_is_changed_stays_picked(
    app: App, tenant: Tenant, connect: Callable[..., Connection], picking: PickingShelf
) -> None:
    connection = connect("picking-shelf", resources=[{"id": "1"}], depth=1)
    shelf = connection.metadata["shelf"]
    picking.meanwhile = [
        lambda: connect_.pick(app, tenant, connection, [{"id": "2"}]),
        lambda: connect_.pick(app, tenant, connection, [{"id": "3"}]),
    ]

    change = connect_.ConnectionChanges(metadata={"shelf": shelf, "depth": 2})
    now = connect_.change(app, tenant, connection, change)

    assert now.metadata == {"shelf": shelf, "depth": 2, "resources": [{"id": "2"}]}


def test_metadata_that_is_changed_before_something_is_picked_stays_changed(
    app: App, tenant: Tenant, connect: Callable[..., Connection], picking: PickingShelf
) -> None:
    connection = connect("picking-shelf", depth=1)
    shelf = connection.metadata["shelf"]
    change = connect_.ConnectionChanges(metadata={"shelf": shelf, "depth": 2})
    connect_.change(app, tenant, connection, change)

    connect_.pick(app, tenant, connection, [{"id": "1"}])

    picked = {"shelf": shelf, "depth": 2, "resources": [{"id": "1"}]}
    assert again(app, connection).metadata == picked


def test_secrets_that_are_given_while_metadata_is_changed_stay(
    app: App, tenant: Tenant, connect: Callable[..., Connection], picking: PickingShelf
) -> None:
    connection = connect("picking-shelf", depth=1)
    shelf = connection.metadata["shelf"]
    newer = connect_.ConnectionChanges(metadata={"shelf": shelf, "depth": 3, "password": "newer"})
    picking.meanwhile = [lambda: connect_.change(app, tenant, connection, newer)]

    change = connect_.ConnectionChanges(metadata={"shelf": shelf, "depth": 2})
    connect_.change(app, tenant, connection, change)

    assert again(app, connection).metadata == {"shelf": shelf, "depth": 2}
    with app.db.begin() as tx:
        sealed = connections.sealed(tx, connection.id).secrets
    assert open_secrets(app, connection.id, sealed) == {"password": "newer"}
