"""After any operations and any faults: what is here is what is there. Seeds repeat a run.

Users add, edit, rename, move, delete and share; calls fail in all ways, cursors are forgotten,
pushes come twice and in another order or not at all, and syncs are killed between two steps, or
with the whole process, anywhere.
"""

import random
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from recollect.sync import connection_queue
from recollect.worker import syncs
from tests.conftest import eventually
from tests.connectors.peers import PEERS
from tests.connectors.test_conformance import Stopping, World
from tests.connectors.test_conformance import known_connectors as known_connectors
from tests.connectors.test_conformance import unpaced as unpaced
from tests.connectors.test_conformance import world as world
from tests.connectors.test_conformance_pushes import Loud
from tests.connectors.test_conformance_pushes import loud as loud
from tests.connectors.test_many_things import start

FAULTS: list[dict[str, Any]] = [
    {"status": 429, "headers": {"Retry-After": "0"}},
    {"status": 429, "headers": {"Retry-After": "900"}},
    {"status": 500},
    {"status": 503},
    {"cut": 5},
    {"reset": True},
    {"lose": True},
    {"status": 200, "body": b"<html>a page of something in between</html>"},
]


def act(world: World, dice: random.Random, number: int) -> None:
    """One thing that a user does at the provider."""
    names = sorted(name for name in world.peer.names() if name)
    match dice.choice(["put", "edit", "rename", "remove", "move", "share"]):
        case "edit" if names:
            world.peer.put(dice.choice(names), f"Edited, number {number}.")
        case "rename" if names:
            world.peer.rename(dice.choice(names), f"r{number}")
        case "remove" if len(names) > 3:
            world.peer.remove(dice.choice(names))
        case "move" if names:
            world.peer.move(dice.choice(names), f"folder{dice.randrange(4)}")
        case "share" if names:
            world.peer.share(dice.choice(names))
        case _:
            world.peer.put(f"p{number}", f"Put there, number {number}.")


def push(world: Loud, dice: random.Random) -> None:
    """What came lately, or was held, comes again, shuffled; or for the first time, and late."""
    late = world.gate.log[-6:]
    world.gate.forget()
    for again in dice.choices(late, k=2 * len(late)) if late else []:
        assert 200 <= world.send(again).status_code < 300


def troubled_sync(world: Loud, dice: random.Random) -> int:
    """One in ten calls goes wrong, one sync in four is killed somewhere, one cursor in ten lost;
    how many syncs there were."""
    if dice.random() < 0.1:
        world.peer.forget_cursor()
    for _ in range(dice.randrange(4)):
        world.peer.proxy.on(".", after=dice.randrange(12), **dice.choice(FAULTS))
    if dice.random() < 0.5:
        world.due()  # else whatever a push made due
    with world.app.db.begin() as tx:
        claims = connection_queue.claim(tx, lease=world.app.lease, limit=1)
    for claim in claims:
        looks = dice.randrange(30) if dice.random() < 0.25 else 10**9
        outcome = syncs.attempt(world.app, claim, Stopping(looks))
        if looks == 10**9:
            syncs.settle(world.app, claim, outcome)
    world.peer.proxy.behave()
    return len(claims)


def diverge(world: Loud, seed: int, operations: int) -> None:
    dice = random.Random(seed)  # repeatable, no secret
    world.begun()
    syncs = 0
    for number in range(operations):
        if dice.random() < 0.3:
            world.gate.on(".", status=200, body=b"", times=None)  # held, and perhaps lost
        act(world, dice, number)
        world.peer.deliver()
        world.gate.behave()
        if number % 7 == 6:
            push(world, dice)
            syncs += troubled_sync(world, dice)
    world.work()
    world.sync()
    world.sync()
    world.sync()
    world.agrees()
    texts = {document["id"] for document in world.documents().values()}
    assert len(texts) == len(world.peer.names())
    assert syncs > operations / 20


@pytest.mark.parametrize(
    "loud",
    [
        name
        if name in ("folder", "github", "s3", "notion")
        else pytest.param(name, marks=pytest.mark.slow)
        for name in PEERS
    ],
    indirect=True,
)
def test_nothing_diverges(loud: Loud) -> None:
    diverge(loud, seed=1, operations=70)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("loud", list(PEERS), indirect=True)
def test_nothing_diverges_in_a_thousand_operations(loud: Loud) -> None:
    diverge(loud, seed=2, operations=1000)


# --- with processes that are killed ---------------------------------------------------------------

OPERATIONS = 80
LEASE = 4.0
"""seconds after which another process takes over"""


class Process:
    """A worker process: what is due is done in it, and in no other."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        process = start(self._world, None, lease_seconds=LEASE)
        assert process.stdout is not None
        assert process.stdout.readline(), "it says when it is there"
        return process

    def kill(self) -> None:
        """SIGKILL: nothing is said to anybody, no lease is given back."""
        assert self.process.poll() is None, "nothing else ends it"
        self.process.kill()
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def kill_and_start(self) -> None:
        self.kill()
        self.process = self._started()


def ask(world: World) -> None:
    answer = world.http.post(f"/v3/connections/{world.id}/sync")
    assert answer.status_code == 202, answer.text


def is_at_rest(world: World) -> bool:
    shown = world.connection()
    if shown["state"] != "ready":
        return False
    later = datetime.fromisoformat(shown["nextSyncAt"]) - datetime.now(UTC)
    documents = world.http.post(f"/v3/connections/{world.provider}/documents").json()
    return later > timedelta(seconds=1) and all(one["status"] == "done" for one in documents)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("world", ["github", "s3"], indirect=True)
def test_nothing_diverges_though_processes_are_killed(world: World) -> None:
    dice = random.Random(5)  # repeatable, no secret
    world.connect()
    process = Process(world)
    kills = torn = 0
    try:
        for number in range(OPERATIONS):
            act(world, dice, number)
            if number % 4 != 3:
                continue
            held = threading.Event()
            call = world.peer.proxy.on(".", after=dice.randrange(5), hold=held)
            ask(world)
            eventually(lambda: call.hit.is_set() or is_at_rest(world), 120)  # noqa: B023 # asked at once
            if dice.random() < 0.7:
                torn += call.hit.is_set()  # it waits for an answer
                process.kill_and_start()
                kills += 1
            held.set()
            world.peer.proxy.behave()
        for _ in range(3):  # what is missing is gone when a second sync says so
            ask(world)
            eventually(lambda: is_at_rest(world), 120)
    finally:
        process.kill()
    world.agrees()
    texts = {document["id"] for document in world.documents().values()}
    assert len(texts) == len(world.peer.names())
    sys.stdout.write(f"{world.provider}: {kills} kills, {torn} of them in the middle of work\n")
    assert torn >= 3
