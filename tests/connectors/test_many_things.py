"""Ten thousand things take little more memory than one thousand, and a kill loses none of them."""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.conftest import eventually
from tests.connectors.test_conformance import World, conforming
from tests.connectors.test_conformance import known_connectors as known_connectors
from tests.connectors.test_conformance import unpaced as unpaced
from tests.connectors.test_conformance import world as world

FEW, MANY = 1_000, 10_000
MOST = 1.3
"""by which the peak may be larger"""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc"),
]


def asked(world: World, syncs: int | None, **more: Any) -> bytes:
    config = world.app.config
    settings = world.peer.settings
    given = {} if settings is None else settings.model_dump(exclude_none=True)
    if "client_secret" in given:
        given["client_secret"] = given["client_secret"].get_secret_value()
    told: dict[str, Any] = {
        "providers": {world.provider: given} if given else {},
        "data_dir": str(config.data_dir),
        "database": world.app.db.url,
        "id": world.id,
        "syncs": syncs,
        "folders": [str(one) for one in world.peer.opens],
        **more,
    }
    return json.dumps(told).encode()


def start(world: World, syncs: int | None, **more: Any) -> subprocess.Popen[bytes]:
    """A process of its own; without a number of syncs it works until it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.connectors.one_sync"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write(asked(world, syncs, **more))
    process.stdin.close()
    return process


def finished(process: subprocess.Popen[bytes]) -> list[dict[str, Any]]:
    assert process.stdout is not None
    said = process.stdout.read()
    assert process.wait(60) == 0
    lines = [json.loads(line) for line in said.splitlines()]
    assert not [line for line in lines if "error" in line], lines
    return lines


def documents(world: World) -> int:
    with world.app.db.begin() as tx:
        row = tx.execute(
            "select count(*) as n, count(distinct i.id) as things from documents d"
            " join items i on i.document_id = d.id where d.connection_id = %s",
            (world.id,),
        ).fetchone()
    assert row is not None
    assert row["n"] == row["things"]
    return row["n"]


@pytest.mark.parametrize("world", conforming("many"), indirect=True)
def test_20_ten_thousand_things_take_little_more_memory(world: World) -> None:
    for name in sorted(world.peer.names()):
        world.peer.remove(name)
    world.peer.fill(range(FEW))
    world.connect(documentLimit=MANY)
    few = finished(start(world, syncs=2))
    assert documents(world) == FEW

    world.http.delete(f"/v3/connections/{world.id}")
    world.peer.fill(range(FEW, MANY))
    world.connect(documentLimit=MANY)
    many = finished(start(world, syncs=2))
    assert documents(world) == MANY
    before, after = few[-1]["kib"], many[-1]["kib"]
    sys.stdout.write(f"{world.provider}: {few[0]['kib']} KiB at rest, {before} for {FEW:,} things")
    sys.stdout.write(f", {after} for {MANY:,}: {after / before:.2f}\n")
    assert after <= MOST * before, (few, many)


@pytest.mark.parametrize("world", conforming("many"), indirect=True)
def test_20_a_kill_in_the_middle_of_many_loses_and_doubles_nothing(world: World) -> None:
    for name in sorted(world.peer.names()):
        world.peer.remove(name)
    world.peer.fill(range(3 * FEW))
    world.connect(documentLimit=MANY)
    process = start(world, syncs=1)
    eventually(lambda: documents(world) > FEW / 2 or process.poll() is not None, timeout=300)
    process.kill()
    process.wait(60)
    assert process.stdout is not None
    process.stdout.close()
    torn = documents(world)
    assert FEW / 2 < torn < 3 * FEW, "it was torn in the middle"

    [_, run] = finished(start(world, syncs=1))
    assert documents(world) == 3 * FEW
    assert run["removed"] == 0
    assert run["added"] == 3 * FEW, "the run goes on with what it had counted"
