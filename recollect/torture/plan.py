"""What is done to the service, and when: made from a seed, the same for the same arguments."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

Kill = Literal[
    "api", "worker", "supervisor", "machine", "everything", "reused", "postmaster", "backend"
]
Kind = Kill | Literal["embedder", "disk", "clock", "freeze", "line"]
# A child that dies again within a minute is restarted later and later, so few kills hit those.
SHARES: dict[Kill, int] = {
    "api": 4,
    "worker": 4,
    "supervisor": 3,
    "everything": 1,
    "reused": 1,
    "postmaster": 4,
    "backend": 7,
}
SHARES_OF_MACHINES: dict[Kill, int] = {
    "api": 4,
    "worker": 6,
    "machine": 3,
    "everything": 1,
    "postmaster": 3,
    "backend": 7,
}
"""Where each process has a machine of its own: no supervisor, and `machine` is one with all that
runs on it."""
MOODS = ("slow", "500", "429", "cut", "garbage", "mixed")
"""How the embedding endpoint may misbehave."""
LINES = ("cut", "all cut", "stalled")
"""What may become of connections to the database."""
# reused: everything, and then the ids in PostgreSQL's lock files belong to another process.
EVERY: dict[Kind, int] = {"embedder": 4, "disk": 20, "clock": 15, "freeze": 5, "line": 4}
"""How many kills there are to one of each."""
KILLS_A_MINUTE = 12


@dataclass(frozen=True, slots=True)
class Step:
    """One fault."""

    at: float
    """seconds after the start, at the earliest"""
    kind: Kind
    settle: int = 0
    """acknowledged writes that come before it: not into ruins"""
    hold: float = 0.0
    """seconds until it is over, of faults that last"""
    how: str = ""
    """the endpoint's mood, the clock's step in seconds, what is frozen, what becomes of
    connections"""


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """All faults of a run in their order."""

    seed: int
    minutes: float
    kills: int
    steps: Sequence[Step]
    machines: bool = False
    """whether each process has a machine of its own"""

    @property
    def command(self) -> str:
        """What repeats it, as far as threads and signals repeat."""
        return (
            f"recollect torture --seed {self.seed} --minutes {self.minutes:g} --kills {self.kills}"
            + (" --machines" if self.machines else "")
        )

    def light_at(self, seconds: float) -> bool:
        """Whether few clients write now: a backlog hides races, an idle queue hides losses."""
        length = min(60.0, self.minutes * 60 / 4)
        return int(seconds / length) % 2 == 1


def make(
    seed: int, minutes: float, kills: int | None, able: Iterable[Kind], *, machines: bool = False
) -> FaultPlan:
    """Kills of every kind in their shares, and of the other faults those that this machine can."""
    shares = SHARES_OF_MACHINES if machines else SHARES
    chance = Random(seed)
    kills = max(1, round(minutes * KILLS_A_MINUTE)) if kills is None else kills
    names: list[Kind] = [name for name, share in shares.items() for _ in range(share)]
    order: list[Kind] = []
    while len(order) < kills:
        round_ = list(names)
        chance.shuffle(round_)
        order += round_[: kills - len(order)]
    # At least one of each, however short the run is.
    for kind, every in EVERY.items():
        if kind in able:
            for _ in range(max(1, kills // every)):
                order.insert(chance.randrange(len(order) + 1), kind)
    gap = minutes * 60 / (len(order) + 1)
    moods = Counter[str]()
    steps: list[Step] = []
    for number, kind in enumerate(order):
        at = gap * (number + chance.uniform(0.2, 0.8))
        settle, hold, how = chance.randrange(1, 20), 0.0, ""
        if kind == "embedder":
            hold, how = chance.uniform(1, 5), min(MOODS, key=lambda mood: (moods[mood], mood))
            moods[how] += 1
        elif kind == "disk":
            hold = chance.uniform(1, 4)
        elif kind == "clock":
            hold, how = chance.uniform(1, 6), chance.choice(["+3600", "-3600", "+86400", "-86400"])
        elif kind == "line":
            hold, how = chance.uniform(1, 5), chance.choice(LINES)
        elif kind == "freeze":  # mostly longer than a lease
            hold, how = chance.uniform(2, 8), chance.choice(["api", "worker", "worker"])
        steps.append(Step(at, kind, settle, hold, how))
    return FaultPlan(seed, minutes, kills, steps, machines)
