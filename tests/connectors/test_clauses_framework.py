"""Clauses of what is promised of connections that no other test holds: time, absence, silence."""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Self

import pytest

from recollect import connectors
from recollect.app import App
from recollect.cli import doctor
from recollect.config import Config
from recollect.errors import Permanent, Transient
from recollect.model import (
    Connection,
    ConnectionId,
    Document,
    Failure,
    SyncRun,
    Tenant,
    Trigger,
)
from recollect.sync import runs, sources
from recollect.sync.connection_queue import park
from recollect.sync.connections import ConnectionChange, get, update, want
from recollect.sync.items import SyncCounts
from recollect.worker import syncs
from recollect.worker.processing import drain
from tests.conftest import eventually
from tests.connectors import test_conformance as conformance
from tests.connectors.peers import PEERS
from tests.connectors.test_conformance import World
from tests.connectors.test_conformance import unpaced as unpaced
from tests.connectors.test_conformance import world as world
from tests.fakes.shelf import Shelf
from tests.sync.test_sync import again, found
from tests.sync.test_sync import connect as connect
from tests.sync.test_sync import known_connectors as known_connectors
from tests.sync.test_sync import shelf as shelf
from tests.sync.test_sync import sync as synced
from tests.sync.test_sync import want as want_soon

AWAY = Transient("no connection to shelf.example", code="provider_unavailable")
LIMITED = Transient("slow down", code="rate_limited")
known_cabinet = conformance.known_connectors
"""for every test by itself, beside the one of `test_sync` that has the shelves"""
PUSHING = sorted(name for name, one in connectors.all().items() if one.pushes)


def absent(app: App, id: str, days: float) -> None:
    """As if the provider had been away for so long."""
    with app.db.begin() as tx:
        done = tx.execute(
            "update connections set away_since = now() - %s where id = %s"
            " and away_since is not null",
            (timedelta(days=days), id),
        )
    assert done.rowcount == 1, "it counts as away already"


def run_of(connection: Connection) -> SyncRun:
    assert connection.last_run is not None
    return connection.last_run


# --- a provider that stays away ------------------------------------------------------------------


@pytest.mark.parametrize(
    "world",
    [
        name if name == "github" else pytest.param(name, marks=pytest.mark.slow)
        for name in PEERS
        if name != "web-crawler"  # which has its own
    ],
    indirect=True,
)
def test_after_thirty_days_of_absence_a_connection_fails_and_a_wish_brings_it_back(
    world: World,
) -> None:
    world.connect()
    world.sync()
    world.agrees()
    world.peer.proxy.on(".", status=503, headers={"Retry-After": "0"}, times=None)
    assert world.sync()["state"] == "ready"
    absent(world.app, world.id, 29.9)
    shown = world.sync()
    assert (shown["state"], shown["errorCode"]) == ("ready", "provider_unavailable")
    assert shown["nextSyncAt"]

    absent(world.app, world.id, 30.1)
    shown = world.sync()

    assert (shown["state"], shown["errorCode"]) == ("failed", "gave_up")
    assert "30 days" in shown["error"]
    assert "nothing was deleted" in shown["error"]
    assert "sync the connection by hand" in shown["error"]
    assert shown["nextSyncAt"] is None
    assert shown["lastSyncRun"]["errorCode"] == "provider_unavailable", "a word of the contract"
    assert world.run()["errorCode"] == "gave_up"
    world.agrees()
    world.proxy_is_quiet_while(world.sync)

    world.peer.proxy.behave()
    world.peer.put("back", "The provider is back with a zebra.")
    answer = world.http.post(f"/v3/connections/{world.id}/sync")
    assert answer.status_code == 202, answer.text
    syncs.drain(world.app)
    drain(world.app)
    shown = world.connection()
    assert (shown["state"], shown["errorCode"]) == ("ready", None)
    world.agrees()


def test_a_provider_was_not_away_while_nobody_asked_it(
    app: App, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    connection = connect()
    shelf.fail("changes", AWAY, times=2)
    synced(app, connection)
    absent(app, connection.id, 40)
    with app.db.begin() as tx:  # the service stood still meanwhile
        tx.execute(
            "update connections set updated_at = now() - interval '39 days' where id = %s",
            (connection.id,),
        )
    assert synced(app, connection).state == "ready"
    absent(app, connection.id, 0)
    assert synced(app, connection).failure is None


def test_a_wish_gives_a_provider_that_is_still_away_as_long_again(
    app: App, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    shelf.put("a", "First.")
    shelf.fail("changes", AWAY, times=4)
    connection = synced(app, connect())
    absent(app, connection.id, 31)
    assert synced(app, connection).state == "failed"

    wish(app, connection, Trigger.MANUAL)
    syncs.drain(app)
    assert again(app, connection).state == "ready", "it was away for a moment, as far as we know"

    absent(app, connection.id, 31)
    wish(app, connection, Trigger.MANUAL)
    syncs.drain(app)
    assert again(app, connection).state == "ready", "a wish counts again at any time"


def test_only_a_wish_of_a_user_brings_it_back(
    app: App, tenant: Tenant, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    shelf.fail("changes", AWAY, times=2)
    connection = synced(app, connect())
    absent(app, connection.id, 31)
    assert synced(app, connection).state == "failed"

    wish(app, connection, Trigger.EVENT)
    assert syncs.drain(app) == 0
    assert again(app, connection).state == "failed"

    with app.db.begin() as tx:
        update(tx, tenant, connection.id, ConnectionChange(limit=7))
    assert synced(app, connection).state == "ready"


@pytest.mark.parametrize(
    ("fault", "state"),
    [(AWAY, "failed"), (LIMITED, "failed"), (Permanent("no", code="no_access"), "ready")],
    ids=["away", "limited", "refused"],
)
def test_what_counts_as_absence(
    app: App,
    shelf: Shelf,
    connect: Callable[..., Connection],
    fault: Exception,
    state: str,
) -> None:
    shelf.fail("changes", AWAY)
    connection = synced(app, connect())
    absent(app, connection.id, 31)
    shelf.fail("changes", fault)

    assert synced(app, connection).state == state


def test_whatever_could_be_read_ends_an_absence(
    app: App, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    for n in range(7):
        shelf.put(f"{n}", f"Number {n}.")
    shelf.fail("changes", AWAY)
    connection = synced(app, connect())
    absent(app, connection.id, 31)
    shelf.fail("end", AWAY)

    connection = synced(app, connection)

    assert (connection.state, run_of(connection).status) == ("ready", "failed")
    assert len(found(app, connection)) == 6, "two pages of it were there"
    assert synced(app, connection).state == "ready"


def test_a_bad_provider_today_does_not_remember_one_of_last_year(
    app: App, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    shelf.fail("changes", AWAY)
    connection = synced(app, connect())
    absent(app, connection.id, 31)
    assert run_of(synced(app, connection)).status == "completed"
    shelf.fail("changes", AWAY)

    assert synced(app, connection).state == "ready"


def wish(app: App, connection: Connection, trigger: Trigger) -> None:
    with app.db.begin() as tx:
        want(tx, [ConnectionId(connection.id)], trigger)


# --- time ----------------------------------------------------------------------------------------


def test_syncs_come_every_four_hours_sites_every_seven_days_folders_in_minutes() -> None:
    assert Config().sync_interval == timedelta(hours=4)
    own = {name: one.interval for name, one in connectors.all().items() if one.interval}
    assert own == {"web-crawler": timedelta(days=7), "folder": timedelta(minutes=5)}


@pytest.mark.parametrize("provider", PUSHING)
def test_without_a_public_address_it_is_looked_for_changes_often(
    app: App, connect: Callable[..., Connection], provider: str
) -> None:
    assert app.config.public_url is None
    connection = replace(connect(), provider=provider)

    with app.db.begin() as tx:
        again = runs.next_in(app, tx, connection, SyncCounts())
    assert again == app.config.poll_interval


@pytest.mark.parametrize("public", [None, "http://recollect.example"])
def test_that_nothing_can_be_pushed_is_said_once(public: str | None) -> None:
    found = doctor._providers(Config(public_url=public))

    told = [one.details for one in found if "push" in one.details]
    assert len(told) == 1, "not at each provider"
    assert "RECOLLECT_PUBLIC_URL" in told[0]
    assert "every 5 minutes" in told[0]


def test_a_parked_connection_takes_no_thread_and_stays_parked_over_a_restart(
    app: App, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    """One place for syncs, and the parked one has waited longest; a new loop is a new process."""
    shelf.put("a", "First.")
    shelf.fail("changes", Transient("later", code="rate_limited", after=timedelta(minutes=30)))
    parked = synced(app, connect())
    other = connect()

    with app.db.begin() as tx:
        tx.execute("update connections set due_at = now() where id = %s", (other.id,))
    assert syncs.drain(replace(app, config=app.config.model_copy(update={"syncs": 1}))) == 1

    assert run_of(again(app, other)).status == "completed"
    due = again(app, parked).due_at
    assert due is not None
    assert due > datetime.now(UTC) + timedelta(minutes=25)


@pytest.mark.slow
@pytest.mark.parametrize(
    "world", [name for name in PEERS if name != "folder"], indirect=True
)  # a disk asks nobody to wait
def test_a_wait_of_ten_hours_is_kept_over_a_restart_and_holds_no_thread(
    world: World, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    world.connect()
    world.peer.proxy.on(".", status=429, headers={"Retry-After": "36000"}, times=None)
    world.due()
    with syncing(world.app):
        eventually(lambda: world.connection()["errorCode"] == "rate_limited")
        other = connect()
        eventually(lambda: again(world.app, other).last_synced_at)
    asked = len(world.peer.proxy.log)
    shelf.put("a", "First.")
    want_soon(world.app, other)
    with syncing(world.app):
        eventually(lambda: found(world.app, other))

    assert len(world.peer.proxy.log) == asked, "it is left alone"
    with world.app.db.begin() as tx:
        kept = get(tx, Tenant(world.org.id), world.id)
    assert timedelta(hours=9.9) < kept.parked_for <= timedelta(hours=10)
    due = datetime.fromisoformat(world.connection()["nextSyncAt"]) - datetime.now(UTC)
    assert timedelta(hours=9.9) < due <= timedelta(hours=10)
    world.peer.proxy.behave()
    world.sync()
    world.agrees()


@contextmanager
def syncing(app: App) -> Generator[None]:
    """A loop of a process of its own, as far as it can tell, with one place for syncs."""
    loop = syncs.Syncer(replace(app, config=app.config.model_copy(update={"syncs": 1})))
    thread = threading.Thread(target=loop.run)
    thread.start()
    try:
        yield
    finally:
        loop.stop()
        thread.join()


@pytest.mark.parametrize("end", [None, AWAY, LIMITED], ids=["completed", "away", "limited"])
def test_a_wait_that_a_document_was_told_outlasts_the_sync_under_way(
    app: App, shelf: Shelf, connect: Callable[..., Connection], end: Transient | None
) -> None:
    connection = connect()
    shelf.put("a", "First.")
    told = Failure("rate_limited", "come back in ten hours")

    def told_to_wait(_number: int) -> None:
        with app.db.begin() as tx:
            park(tx, connection.id, told, timedelta(hours=10))

    shelf.every, shelf.before_checkpoint = 1, told_to_wait
    if end is not None:
        shelf.fail("end", end)
    syncs.drain(app)

    kept = again(app, connection)
    assert run_of(kept).status == ("failed" if end else "completed")
    assert timedelta(hours=9.9) < kept.parked_for <= timedelta(hours=10)
    assert kept.due_at is not None
    assert kept.due_at > datetime.now(UTC) + timedelta(hours=9.9)
    assert kept.failure is not None
    assert kept.failure.code == (end or told).code
    wish(app, connection, Trigger.MANUAL)
    assert syncs.drain(app) == 0


@pytest.mark.parametrize("hours", [-1, 1], ids=["slow", "fast"])
def test_whether_it_is_parked_is_judged_by_the_clock_that_parked_it(
    app: App,
    shelf: Shelf,
    connect: Callable[..., Connection],
    monkeypatch: pytest.MonkeyPatch,
    hours: int,
) -> None:
    """A machine whose clock is an hour off reads documents neither too early nor too late."""

    class Off(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return super().now(tz) + timedelta(hours=hours)

    shelf.put("a", "First.")
    connection = connect()
    syncs.drain(app)
    parked(app, connection, timedelta(minutes=30))
    monkeypatch.setattr(sources, "datetime", Off)

    waiting = read(app, connection)
    assert waiting.failure is not None
    assert (waiting.status, waiting.failure.code) == ("queued", "rate_limited")
    assert waiting.due_at is not None
    assert timedelta(minutes=29) < waiting.due_at - datetime.now(UTC) <= timedelta(minutes=30)
    assert shelf.fetched == []

    parked(app, connection, timedelta(minutes=-1))
    assert again(app, connection).parked_for == timedelta()
    assert read(app, connection).status == "done"


def parked(app: App, connection: Connection, wait: timedelta) -> None:
    with app.db.begin() as tx:
        tx.execute(
            "update connections set parked_until = now() + %s where id = %s", (wait, connection.id)
        )


def read(app: App, connection: Connection) -> Document:
    """Its only document, after it was due once."""
    with app.db.begin() as tx:
        tx.execute("update documents set due_at = now() where connection_id = %s", (connection.id,))
    drain(app)
    [document] = found(app, connection).values()
    return document
