"""What `--follow` shows: how a sync goes, then how what it brought becomes searchable."""

import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from recollect.cli._bar import BarState, bar
from recollect.cli._providers import todo
from recollect.cli.client import Service
from recollect.cli.output import age, console, fail, one_line, tell

LOOK = 1.0
"""Seconds between two looks."""
KINDS = ("added", "changed", "unchanged", "removed")

Show = Callable[[str, BarState], None]


def follow(service: Service, id: str, before: str | None) -> Mapping[str, Any]:
    """Until a run that is not `before` has ended, and its documents are searchable; a restart of
    the service is waited out. `before`: the newest run when the sync was asked for, which may
    run still."""
    service = service.patient()
    stop = threading.Event()
    if before is not None and _run(service, id, before)["status"] == "running":
        _ended(service, id, before, stop)
        tell("that sync ran already; the one that was asked for follows")
    run = _ended(service, id, _begun(service, id, before, stop), stop)
    for note in run["notes"]:
        tell(note)
    if run["status"] == "failed":
        fail(run["error"] or "the sync failed")
    with _shown() as show:
        _settle(service, id, stop, show)
    return run


@contextmanager
def _shown() -> Generator[Show]:
    """A bar on a terminal, and the last line below it; elsewhere each line that is new."""
    out, last = console(err=True), ""

    def say(line: str, _: BarState) -> None:
        nonlocal last
        if line != last:
            tell(line)
            last = line

    if not out.is_terminal:
        yield say
        return
    with bar(out) as draw:

        def show(line: str, state: BarState) -> None:
            nonlocal last
            last = line
            draw(state)

        yield show
    if last:
        tell(last)


def _begun(service: Service, id: str, before: str | None, stop: threading.Event) -> str:
    """The id of the first run after `before`, once there is one."""
    waiting = ""
    while True:
        runs = _runs(service, id)
        if runs and runs[0]["id"] != before:
            return runs[0]["id"]
        one = not_halted(service, id)
        if (why := _waits(one, datetime.now(UTC))) and not waiting:
            tell(waiting := why)
        stop.wait(LOOK)


def not_halted(service: Service, id: str) -> Mapping[str, Any]:
    """The connection. Fails where nothing is synced until a person acts."""
    one = service.get(f"/v3/connections/{quote(id, safe='')}")
    if one["state"] in ("pending", "needs_auth", "failed"):
        wrong = one_line(one["error"] or "the connection has to be authorized first")
        fail(f"{wrong}; {do}" if (do := todo(one)) else wrong)
    return one


def _ended(service: Service, id: str, run: str, stop: threading.Event) -> Mapping[str, Any]:
    """A run once it runs no more; how far it is is shown meanwhile."""
    with _shown() as show:
        while True:
            found = _run(service, id, run)
            looked_at = sum(found[name] for name in KINDS) + sum(_skipped(found).values())
            show(
                f"{found['status']}: {_counts(found)}",
                BarState("looked at", looked_at, None, found["itemsFailed"]),
            )
            if found["status"] != "running":
                return found
            stop.wait(LOOK)


def _run(service: Service, id: str, run: str) -> Mapping[str, Any]:
    """The run of that id; the newest once the list no longer has it."""
    runs = _runs(service, id)
    return next((one for one in runs if one["id"] == run), runs[0])


def _runs(service: Service, id: str) -> list[dict[str, Any]]:
    """The latest first."""
    return service.array("GET", f"/v3/connections/{quote(id, safe='')}/sync-runs?limit=20")


def _waits(one: Mapping[str, Any], now: datetime) -> str | None:
    """Why a sync that was asked for does not begin yet: its provider wants a pause."""
    if one["errorCode"] != "rate_limited":
        return None
    due = one["nextSyncAt"]
    when = "" if due is None else f" in {age(now, datetime.fromisoformat(due))}"
    return f"it begins{when or ' later'}: {one_line(one['error'])}"


def _settle(service: Service, id: str, stop: threading.Event, show: Show) -> None:
    one = service.get(f"/v3/connections/{quote(id, safe='')}")
    path = f"/v3/connections/{quote(one['provider'], safe='')}/documents"
    while True:
        brought = service.array("POST", path, {"containerTags": one["containerTags"]})
        done = sum(document["status"] == "done" for document in brought)
        failed = sum(document["status"] == "failed" for document in brought)
        if brought:
            line = f"{done} of {len(brought)} documents are searchable"
            line += f", {failed} failed" if failed else ""
            show(line, BarState("searchable", done, len(brought), failed))
        if done + failed == len(brought):
            return
        stop.wait(LOOK * (1 + len(brought) / 1000))  # each look lists them all


def _skipped(run: Mapping[str, Any]) -> dict[str, int]:
    """How many by reason."""
    return {reason: run["skipped"][reason] for reason in run["skipped"]}


def _counts(run: Mapping[str, Any]) -> str:
    told = [f"{run[name]} {name}" for name in KINDS if run[name]]
    # What answered with an error is no choice of anybody's; the console counts it so as well.
    skipped = _skipped(run)
    failed = run["itemsFailed"] + skipped.pop("error", 0)
    told += [f"{count} skipped ({reason})" for reason, count in skipped.items()]
    if failed:
        told.append(f"{failed} failed")
    return ", ".join(told) or ("nothing yet" if run["status"] == "running" else "nothing new")
