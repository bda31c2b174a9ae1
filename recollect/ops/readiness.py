"""Whether the service can work, as `/ready` and the console say it."""

import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from recollect.app import App
from recollect.blobs import folder_of
from recollect.config import Config
from recollect.db import Tx, takes_writes
from recollect.errors import NO_WRITES
from recollect.ops import canary
from recollect.ops.canary import Fate
from recollect.telemetry import metrics

_STARTED = time.monotonic()
MISSED = 3
"""Canaries that may be missing before nothing seems to work at all."""
SLACK = timedelta(minutes=5)
LEAST_FREE = 64 << 20
"""bytes on a disk below which nothing can be written for long"""


@dataclass(frozen=True, slots=True)
class ServiceHealth:
    """`reason` says why the service cannot work; None when it can."""

    reason: str | None
    canary: Fate | None
    free: int | None
    """bytes on the disk of the data folder, of the database in it or of the folder of files, the
    fewest of these; None for a process that keeps nothing on its machine"""


def look(tx: Tx, app: App) -> ServiceHealth:
    """The database answers; does it take writes, has the disk room, does a stage of processing fail
    for reasons of its own, and did the last canary come through?"""
    fate, free = canary.last(tx), _free(app.config)
    reason = None if takes_writes(tx) else NO_WRITES
    # Before what it lets fail.
    reason = reason or full(free) or metrics.failing(tx)
    reason = reason or missing(fate, app.config.canary_interval)
    return ServiceHealth(reason, fate, free)


def resting(app: App) -> str | None:
    """Which replicas do not answer reads now. Those go elsewhere, so the service is none the worse
    for it, but slower."""
    found = app.db.replicas()
    told = [f"{number} {one.state}" for number, one in enumerate(found, 1) if one.state != "serves"]
    return f"of {len(found)} replicas, {', '.join(told)}" if told else None


def _free(config: Config) -> int | None:
    found: list[int] = []
    # The database that runs here may lie on a disk of its own.
    for folder in (config.data_dir, config.data_dir / "postgres", folder_of(config.blobs)):
        with suppress(OSError):  # that the files are away is for the canary to say
            found += [shutil.disk_usage(folder).free] if folder else []
    return min(found, default=None)


def full(free: int | None) -> str | None:
    if free is None or free >= LEAST_FREE:
        return None
    return f"the disk is full: {free >> 20} MB free"


def missing(fate: Fate | None, interval: timedelta) -> str | None:
    """What the canary says against the service; nothing when there is none."""
    if not interval:
        return None
    if fate is not None and not fate.ok and fate.age < MISSED * interval:
        return f"the canary did not come through: {fate.reason}"
    # A service that was off for a while has no fresh one yet.
    up = timedelta(seconds=time.monotonic() - _STARTED)
    age = up if fate is None else min(up, fate.age)
    if age > MISSED * interval + SLACK:
        return f"no canary for {age.total_seconds():.0f} s: no worker seems to run"
    return None
