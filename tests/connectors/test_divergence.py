"""After any operations and any faults: what is here is what is there. Seeds repeat a run."""

import random
from typing import Any

import pytest

from recollect import connections, tender
from recollect.app import App
from recollect.model import Org
from tests.connectors.peers import PEERS
from tests.connectors.test_conformance import Stopping, World
from tests.connectors.test_conformance import known_connectors as known_connectors
from tests.connectors.test_conformance import unpaced as unpaced
from tests.connectors.test_conformance import world as world

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
    match dice.choice(["put", "edit", "rename", "remove"]):
        case "edit" if names:
            world.peer.put(dice.choice(names), f"Edited, number {number}.")
        case "rename" if names:
            world.peer.rename(dice.choice(names), f"r{number}")
        case "remove" if len(names) > 3:
            world.peer.remove(dice.choice(names))
        case _:
            world.peer.put(f"p{number}", f"Put there, number {number}.")


def troubled_sync(world: World, dice: random.Random) -> None:
    """One in ten calls goes wrong, and one sync in four is killed somewhere."""
    for _ in range(dice.randrange(4)):
        world.peer.proxy.on(".", after=dice.randrange(12), **dice.choice(FAULTS))
    world.due()
    with world.app.db.begin() as tx:
        claims = connections.claim(tx, lease=world.app.lease, limit=1)
    for claim in claims:
        looks = dice.randrange(30) if dice.random() < 0.25 else 10**9
        outcome = tender.attempt(world.app, claim, Stopping(looks))
        if looks == 10**9:
            tender.settle(world.app, claim, outcome)
    world.peer.proxy.behave()


def diverge(world: World, seed: int, operations: int) -> None:
    dice = random.Random(seed)  # repeatable, no secret
    world.connect()
    for number in range(operations):
        act(world, dice, number)
        if number % 7 == 6:
            troubled_sync(world, dice)
    world.sync()
    world.sync()
    world.sync()
    world.agrees()
    texts = {document["id"] for document in world.documents().values()}
    assert len(texts) == len(world.peer.names())


@pytest.mark.parametrize("world", list(PEERS), indirect=True)
def test_nothing_diverges(world: World) -> None:
    diverge(world, seed=1, operations=70)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("world", list(PEERS), indirect=True)
def test_nothing_diverges_in_a_thousand_operations(world: World, app: App, org: Org) -> None:
    diverge(world, seed=2, operations=1000)
