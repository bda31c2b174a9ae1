"""Torture: a seed for faults comes in, a verdict on what the service kept goes out.

`recollect torture` runs the whole service on a scratch folder. Clients write and remember what was
acknowledged; a plan made from a seed kills processes, fills the disk, spoils the embedding
endpoint, cuts connections. At the end it compares what is there with what must be: lost, doubled,
stuck, wrong.
"""

import sys
from pathlib import Path

from recollect.errors import SetupError
from recollect.torture._clock import can_step
from recollect.torture.ground import can_mount
from recollect.torture.oracle import VERDICTS, Fault, Verdict
from recollect.torture.plan import FaultPlan, Kind, make
from recollect.torture.run import Report, Torture

__all__ = ["VERDICTS", "Fault", "FaultPlan", "Report", "Torture", "Verdict", "capable", "make"]


def capable() -> tuple[list[Kind], dict[str, str], Path | None]:
    """Which faults besides kills this machine can make, why not the others, and a compiler for
    the clock.

    Raises SetupError where not even kills are possible.
    """
    if sys.platform != "linux":
        raise SetupError("torture finds the processes that it kills in /proc: it needs Linux")
    kinds: list[Kind] = ["embedder", "line"]
    not_done: dict[str, str] = {}
    refused = can_mount()
    if refused is None:
        kinds.append("disk")
    else:
        not_done["disk full"] = refused
    clock = can_step()
    if isinstance(clock, Path):
        kinds.append("clock")
        return kinds, not_done, clock
    not_done["clock steps"] = clock
    return kinds, not_done, None
