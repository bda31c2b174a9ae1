"""Whose connection is synced next: organisations take turns, a long sync gives its place back."""

import threading
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from recollect import documents
from recollect.app import App
from recollect.documents import DocumentQuery, DocumentTurn
from recollect.model import (
    Connection,
    ConnectionId,
    ConnectionState,
    Plan,
    SyncClaim,
    Tenant,
    random_id,
)
from recollect.orgs import orgs
from recollect.sync import connection_queue, connections
from recollect.sync.connections import SealedConnection
from recollect.worker import processing, syncs
from tests.fakes.shelf import SHELVES, Shelf, ShelfConnector, providing
from tests.worker.test_cut_commits import eventually

Connect = Callable[[Tenant, Shelf], Connection]


@pytest.fixture(autouse=True)
def known_connector() -> Generator[None]:
    with providing(shelf=ShelfConnector()):
        yield


@pytest.fixture
def neighbour(app: App) -> Generator[Tenant]:
    with app.db.begin() as tx:
        made = orgs.create(tx, f"neighbour-{random_id()}", Plan.ENTERPRISE)
    yield Tenant(made.id)
    with app.db.begin() as tx:
        tx.execute("delete from orgs where id = %s", (made.id,))


@pytest.fixture
def connect(app: App) -> Generator[Connect]:
    names: list[str] = []

    def make(tenant: Tenant, shelf: Shelf) -> Connection:
        names.append(random_id())
        SHELVES[names[-1]] = shelf
        new = SealedConnection("shelf", ["notes"], 1_000, {"shelf": names[-1]}, None, pending=False)
        with app.db.begin() as tx:
            return connections.create(tx, tenant.id, new, ConnectionId(random_id()))

    yield make
    for name in names:
        del SHELVES[name]


def with_settings(app: App, **change: Any) -> App:
    return replace(app, config=app.config.model_copy(update=change))


def claim(app: App, limit: int, turn: DocumentTurn | None = None, **how: Any) -> list[SyncClaim]:
    with app.db.begin() as tx:
        return connection_queue.claim(tx, lease=app.lease, limit=limit, turn=turn, **how)


def owners(claims: list[SyncClaim]) -> list[str]:
    return [claim.connection.org_id for claim in claims]


def again(app: App, connection: Connection) -> Connection:
    with app.db.begin() as tx:
        return connections.get(tx, Tenant(connection.org_id), connection.id)


def is_synced(app: App, connection: Connection) -> bool:
    return again(app, connection).last_synced_at is not None


@contextmanager
def syncing(app: App) -> Generator[syncs.Syncer]:
    loop = syncs.Syncer(app)
    thread = threading.Thread(target=loop.run)
    thread.start()
    try:
        yield loop
    finally:
        loop.stop()
        thread.join()


def test_organisations_take_turns(
    app: App, tenant: Tenant, neighbour: Tenant, connect: Connect
) -> None:
    for _ in range(12):
        connect(tenant, Shelf())
    for _ in range(3):
        connect(neighbour, Shelf())
    turn = DocumentTurn()
    order = [owner for _ in range(6) for owner in owners(claim(app, 1, turn))]
    assert Counter(order) == {tenant.id: 3, neighbour.id: 3}
    assert all(one != other for one, other in pairwise(order))
    assert owners(claim(app, 20, turn)) == [tenant.id] * 9


def test_a_claim_of_several_is_shared_and_the_oldest_of_each_come_first(
    app: App, tenant: Tenant, neighbour: Tenant, connect: Connect
) -> None:
    ours = [connect(tenant, Shelf()) for _ in range(5)]
    theirs = [connect(neighbour, Shelf()) for _ in range(5)]
    with app.db.begin() as tx:
        for age, one in enumerate([*ours, *theirs]):
            tx.execute(
                "update connections set due_at = now() - %s where id = %s",
                (timedelta(minutes=age), one.id),
            )
    first = claim(app, 4)
    expected = {ours[-1].id, ours[-2].id, theirs[-1].id, theirs[-2].id}
    assert {one.connection.id for one in first} == expected


def test_none_is_taken_of_those_that_are_left_out(
    app: App, tenant: Tenant, neighbour: Tenant, connect: Connect
) -> None:
    connect(tenant, Shelf())
    connect(neighbour, Shelf())
    assert owners(claim(app, 5, besides=[tenant.id])) == [neighbour.id]


def test_two_claims_at_a_time_take_different_ones(
    app: App, tenant: Tenant, connect: Connect
) -> None:
    for _ in range(6):
        connect(tenant, Shelf())
    with app.db.begin() as one, app.db.begin() as other:
        first = connection_queue.claim(one, lease=app.lease, limit=3)
        second = connection_queue.claim(other, lease=app.lease, limit=6)
    assert len({claim.connection.id for claim in first + second}) == len(first) + len(second) == 6


def test_what_is_given_back_waits_behind_the_others_and_a_late_heartbeat_does_not_take_it(
    app: App, tenant: Tenant, connect: Connect
) -> None:
    first, second = connect(tenant, Shelf()), connect(tenant, Shelf())
    [held] = claim(app, 1)
    with app.db.begin() as tx:
        connection_queue.release(tx, [held])
    with app.db.begin() as tx:
        connection_queue.renew(tx, [held], lease=timedelta(hours=1))
    following = [one.connection.id for _ in range(2) for one in claim(app, 1)]
    assert sorted(following) == sorted([first.id, second.id])
    assert following[-1] == held.connection.id


def test_slow_syncs_of_one_organisation_leave_a_place_to_another(
    app: App, tenant: Tenant, neighbour: Tenant, connect: Connect
) -> None:
    """All of its providers hang within a page until the other's sync is through."""
    hang, hanging = threading.Event(), threading.Semaphore(0)

    def wait(_number: int) -> None:
        hanging.release()
        assert hang.wait(120)

    slow: list[Connection] = []
    for _ in range(12):
        shelf = Shelf(every=1, before_checkpoint=wait)
        shelf.put("a", "Slow.")
        slow.append(connect(tenant, shelf))
    with syncing(with_settings(app, syncs=2)):
        try:
            for _ in range(2):
                assert hanging.acquire(timeout=60)
            quick = Shelf()
            quick.put("a", "Quick.")
            other = connect(neighbour, quick)
            eventually(lambda: is_synced(app, other))
            assert not any(is_synced(app, one) for one in slow)
            assert not hanging.acquire(blocking=False), "the spare place is not for its third"
        finally:
            hang.set()
        eventually(lambda: all(is_synced(app, one) for one in slow))


@pytest.mark.parametrize("things", [7, 8, 9])
def test_a_long_sync_gives_its_place_back_at_a_checkpoint_and_goes_on_there(
    app: App, tenant: Tenant, neighbour: Tenant, connect: Connect, things: int
) -> None:
    """One place, no stretch: at the first checkpoint the other's sync, which falls due meanwhile,
    comes first; then the long one goes on, and nothing is listed or counted twice."""
    impatient = with_settings(app, syncs=1, sync_stretch=timedelta(0))
    pages: list[int] = []
    made: list[Connection] = []
    quick = Shelf()
    quick.put("a", "Quick.")

    def page(number: int) -> None:
        pages.append(number)
        if not made:
            made.append(connect(neighbour, quick))
        else:
            assert is_synced(app, made[0])

    long = Shelf(every=2, before_checkpoint=page)
    for number in range(things):
        long.put(f"{number}", f"Long {number}.")
    slow = connect(tenant, long)

    syncs.drain(impatient)
    processing.drain(impatient)

    assert len(pages) == things // 2
    assert long.listed == 2, "one stretch before the other, one after"
    run = again(app, slow).last_run
    assert run is not None
    assert (run.status, run.added, run.changed, run.unchanged) == ("completed", things, 0, 0)
    with app.db.begin() as tx:
        found = documents.find(tx, tenant, DocumentQuery(connections=[slow.id], limit=100))
        assert len(connections.runs(tx, slow.id)) == 1, "one run, however many stretches"
    assert found.total == things


def test_many_that_give_way_to_each_other_all_end(
    app: App, tenant: Tenant, neighbour: Tenant, connect: Connect
) -> None:
    """Stretches of one page, four connections: each page is listed once."""
    impatient = with_settings(app, syncs=1, sync_stretch=timedelta(0))
    shelves: list[Shelf] = []
    made: list[Connection] = []
    for owner in (tenant, tenant, tenant, neighbour):
        shelf = Shelf(every=1)
        for number in range(5):
            shelf.put(f"{number}", f"Text {number}.")
        shelves.append(shelf)
        made.append(connect(owner, shelf))
    syncs.drain(impatient)
    for connection, shelf in zip(made, shelves, strict=True):
        now = again(app, connection)
        assert now.state is ConnectionState.READY
        assert now.last_run is not None
        assert (now.last_run.status, now.last_run.added) == ("completed", 5)
        assert shelf.listed <= 6


def test_who_lists_everything_each_time_ends_although_others_wait(
    app: App, tenant: Tenant, neighbour: Tenant, connect: Connect
) -> None:
    """Its only checkpoint is the last: there is nothing left to go on with, so it is finished."""
    impatient = with_settings(app, syncs=1, sync_stretch=timedelta(0))
    shelf = Shelf(every=100)
    shelf.put("a", "One.")
    first, second = connect(tenant, shelf), connect(neighbour, shelf)
    assert syncs.drain(impatient) == 2
    assert is_synced(app, first)
    assert is_synced(app, second)
    assert shelf.listed == 2


def test_alone_a_sync_keeps_its_place(app: App, tenant: Tenant, connect: Connect) -> None:
    shelf = Shelf(every=1)
    for number in range(5):
        shelf.put(f"{number}", f"Text {number}.")
    connect(tenant, shelf)
    assert syncs.drain(with_settings(app, sync_stretch=timedelta(0))) == 1
    assert shelf.listed == 1
