"""After any operations and any faults: what is here is what is there. Seeds repeat a run.

Users add, edit, rename, move, delete and share; calls fail in all ways, cursors are forgotten,
pushes come twice and in another order or not at all, and syncs are killed between two steps.
"""

import random
from typing import Any

import pytest

from recollect import connections, tender
from tests.connectors.peers import PEERS
from tests.connectors.test_conformance import Stopping
from tests.connectors.test_conformance import known_connectors as known_connectors
from tests.connectors.test_conformance import unpaced as unpaced
from tests.connectors.test_conformance_pushes import Loud
from tests.connectors.test_conformance_pushes import loud as loud

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


def act(world: Loud, dice: random.Random, number: int) -> None:
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
        claims = connections.claim(tx, lease=world.app.lease, limit=1)
    for claim in claims:
        looks = dice.randrange(30) if dice.random() < 0.25 else 10**9
        outcome = tender.attempt(world.app, claim, Stopping(looks))
        if looks == 10**9:
            tender.settle(world.app, claim, outcome)
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
        name if name in ("github", "s3", "notion") else pytest.param(name, marks=pytest.mark.slow)
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
