"""Clauses of what is promised of connections that no other test holds: time, absence, silence."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from recollect import connectors, sync, tender
from recollect.app import App
from recollect.cli import doctor
from recollect.config import Config
from recollect.connections import ConnectionChange, update, want
from recollect.errors import Permanent, Transient
from recollect.items import Counts
from recollect.model import Connection, ConnectionId, SyncRun, Tenant, Trigger
from recollect.worker import drain
from tests.connectors.peers import PEERS
from tests.connectors.test_conformance import World
from tests.connectors.test_conformance import unpaced as unpaced
from tests.connectors.test_conformance import world as world
from tests.fakes.shelf import Shelf
from tests.integration.test_sync import again, found
from tests.integration.test_sync import connect as connect
from tests.integration.test_sync import known_connectors as known_connectors
from tests.integration.test_sync import shelf as shelf
from tests.integration.test_sync import sync as synced

AWAY = Transient("no connection to shelf.example", code="provider_unavailable")
LIMITED = Transient("slow down", code="rate_limited")
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
    tender.drain(world.app)
    drain(world.app)
    shown = world.connection()
    assert (shown["state"], shown["errorCode"]) == ("ready", None)
    world.agrees()


def test_a_wish_gives_a_provider_that_is_still_away_as_long_again(
    app: App, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    shelf.put("a", "First.")
    shelf.fail("changes", AWAY, times=4)
    connection = synced(app, connect())
    absent(app, connection.id, 31)
    assert synced(app, connection).state == "failed"

    wish(app, connection, Trigger.MANUAL)
    tender.drain(app)
    assert again(app, connection).state == "ready", "it was away for a moment, as far as we know"

    absent(app, connection.id, 31)
    wish(app, connection, Trigger.MANUAL)
    tender.drain(app)
    assert again(app, connection).state == "ready", "a wish counts anew at any time"


def test_only_a_wish_of_a_user_brings_it_back(
    app: App, tenant: Tenant, shelf: Shelf, connect: Callable[..., Connection]
) -> None:
    shelf.fail("changes", AWAY, times=2)
    connection = synced(app, connect())
    absent(app, connection.id, 31)
    assert synced(app, connection).state == "failed"

    wish(app, connection, Trigger.EVENT)
    assert tender.drain(app) == 0
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


def test_syncs_come_every_four_hours_and_sites_every_seven_days() -> None:
    assert Config().sync_interval == timedelta(hours=4)
    own = {name: one.interval for name, one in connectors.all().items() if one.interval}
    assert own == {"web-crawler": timedelta(days=7)}


@pytest.mark.parametrize("provider", PUSHING)
def test_without_a_public_address_it_is_looked_for_changes_often(
    app: App, connect: Callable[..., Connection], provider: str
) -> None:
    assert app.config.public_url is None
    connection = replace(connect(), provider=provider)

    assert sync.next_in(app, connection, Counts()) == app.config.poll_interval


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
    assert tender.drain(replace(app, config=app.config.model_copy(update={"syncs": 1}))) == 1

    assert run_of(again(app, other)).status == "completed"
    due = again(app, parked).due_at
    assert due is not None
    assert due > datetime.now(UTC) + timedelta(minutes=25)
