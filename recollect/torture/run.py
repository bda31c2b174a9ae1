"""One run: build up, torment, let it recover, compare."""

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from secrets import token_hex
from typing import Any, Self

from recollect.blobs import open_blobs
from recollect.db import Database
from recollect.errors import RecollectError, SetupError, Transient, Unavailable
from recollect.fetch import Endpoint
from recollect.torture.clients import Client, Watcher, Weather
from recollect.torture.ground import KEY, Ground
from recollect.torture.judge import Judge, bugs
from recollect.torture.oracle import VERDICTS, Fault, Ledger, Verdict
from recollect.torture.peers import DIMENSIONS, MODEL, Peers
from recollect.torture.plan import FaultPlan, Step

CLIENTS = 6
LIGHT_CLIENTS = 2
"""Those of them that write in the light phases, too."""
WATCHERS = 2
OUTAGE = 120.0
"""Seconds: a service that acknowledges nothing for so long after a fault is stuck."""
TELL_EVERY = 5.0


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a run."""

    plan: FaultPlan
    faults: Sequence[Fault]
    kills: Mapping[str, int]
    """SIGKILLs that hit, by what they hit"""
    others: Mapping[str, int]
    """the other faults that were made"""
    not_done: Mapping[str, str]
    """faults that this machine cannot make, and why"""
    figures: Mapping[str, float]
    """acknowledged writes, documents, … and seconds"""

    def count(self, verdict: Verdict) -> int:
        return sum(fault.verdict == verdict for fault in self.faults)

    @property
    def good(self) -> bool:
        return not self.faults

    def as_json(self) -> dict[str, Any]:
        return {
            "good": self.good,
            "verdicts": {verdict: self.count(verdict) for verdict in VERDICTS},
            "faults": [{"verdict": one.verdict, "what": one.what} for one in self.faults],
            "kills": dict(self.kills),
            "otherFaults": dict(self.others),
            "notDone": dict(self.not_done),
            "figures": dict(self.figures),
            "seed": self.plan.seed,
            "command": self.plan.command,
        }


@dataclass
class Torture:
    """A run in its four parts, of which `run` is all; close it at the end, by `with`."""

    plan: FaultPlan
    folder: Path
    """empty; holds the ledger, the log and the service's data"""
    say: Callable[[str], object]
    """takes lines of progress"""
    not_done: Mapping[str, str] = field(default_factory=dict[str, str])
    clock: Path | None = None
    """a C compiler, for a clock that steps"""
    patience: float = 60.0
    """seconds without any progress after which what is left counts as stuck"""
    clients: int = CLIENTS
    blobs: str | None = None
    """the store of files, a URL; a folder among the data if None"""
    enough: threading.Event = field(default_factory=threading.Event)
    """set it to end the faults before their time and compare"""
    weather: Weather = field(default_factory=Weather)
    kills: Counter[str] = field(default_factory=Counter[str])
    others: Counter[str] = field(default_factory=Counter[str])
    faults: list[Fault] = field(default_factory=list[Fault])
    longest_outage: float = 0.0
    _told: float = 0.0
    _blind: bool = False
    """whether asking the database might wait for what is done to it"""
    _spoilt_until: float = math.inf
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        if self.blobs is not None:
            _try_blobs(self.blobs)
        with ExitStack() as stack:
            self.ledger = stack.enter_context(closing(Ledger(self.folder / "ledger.jsonl")))
            self.peers = stack.enter_context(Peers(self.plan.seed))
            self.ground = stack.enter_context(
                Ground(
                    self.folder,
                    f"{self.peers.url}/v1",
                    disk=any(step.kind == "disk" for step in self.plan.steps),
                    clock=self.clock,
                    settings={
                        "embedder_model": MODEL,
                        "embedder_dimensions": str(DIMENSIONS),
                    },
                    machines=self.plan.machines,
                    blobs=self.blobs,
                )
            )
            self.database = stack.enter_context(
                Database(
                    self.ground.database_url(), size=2, statement_timeout=timedelta(minutes=10)
                )
            )
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.weather.stop.set()
        self._stack.close()

    def run(self) -> Report:
        """All of it. Raises SetupError when the service does not even start."""
        started = time.monotonic()
        connection = self._connect_site()
        writing, watching = self.torment()
        drained, faults, documents = self.judge(connection)
        self.ground.stop()
        faults += [*self.faults]
        for log in self.ground.logs:
            faults += bugs(log)
        for one in (*writing, *watching):
            faults += one.faults
        counts = sum((client.counts for client in writing), Counter[str]())
        figures = {
            "acknowledged": self.ledger.acknowledged,
            "documents": documents,
            "documentsWritten": len(self.ledger.written),
            "reads": counts["reads"] + sum(one.answers for one in watching),
            "chunksCompared": sum(one.chunks for one in watching),
            "withoutAnswer": counts["no answer"],
            "cutConnections": counts["cut while sending"] + counts["cut before the answer"],
            "embeddingFaults": sum(n for mood, n in self.peers.answers.items() if mood != "well"),
            "restarts": self.ground.restarts,
            "longestOutageSeconds": round(self.longest_outage, 1),
            "drainSeconds": round(drained, 1),
            "seconds": round(time.monotonic() - started, 1),
        }
        return Report(self.plan, faults, self.kills, self.others, self.not_done, figures)

    # --- faults --------------------------------------------------------------------------------

    def torment(self) -> tuple[list[Client], list[Watcher]]:
        """Clients write while all faults of the plan happen."""
        make = partial(Client, self.ground.urls, KEY, self.ledger, self.weather)
        writing = [make(f"{self.plan.seed} writes {n}") for n in range(self.clients)]
        look = partial(Watcher, self.ground.urls, KEY, self.ledger, self.weather)
        watching = [look(f"{self.plan.seed} watches {n}") for n in range(WATCHERS)]
        with ThreadPoolExecutor(len(writing) + len(watching)) as threads:
            working = [
                threads.submit(client.run, rests=number >= LIGHT_CLIENTS)
                for number, client in enumerate(writing)
            ]
            working += [threads.submit(watcher.run) for watcher in watching]
            try:
                self._follow_plan(working)
            finally:
                self.weather.stop.set()
                self._calm()
        for work in working:
            work.result()
        return writing, watching

    def _follow_plan(self, working: Sequence[Future[None]]) -> None:
        started = time.monotonic()
        chance = Random(f"{self.plan.seed} follows")
        for step in self.plan.steps:
            if self.enough.is_set() or any(work.done() for work in working):
                return  # work is done only by an exception, since nobody told it to end
            self._get_through(step, started)
            while self._rest(started) < step.at and not self.enough.is_set():
                pass
            self._do(step, chance, started)
        while self._rest(started) < self.plan.minutes * 60 and not self.enough.is_set():
            pass
        self._get_through(Step(0, "api", settle=5), started)

    def _rest(self, started: float) -> float:
        """Wait a little; returns the seconds since the start."""
        self.weather.stop.wait(0.05)
        now = time.monotonic()
        if self._spoilt_until < now:
            self._calm()
        passed = now - started
        self.weather.light = self.plan.light_at(passed)
        self._tell(passed)
        return passed

    def _calm(self) -> None:
        self._spoilt_until = math.inf
        self.peers.mood = "well"
        self.ground.step_clock(0)

    def _get_through(self, step: Step, started: float) -> None:
        """Wait until some writes are acknowledged."""
        begun = last = time.monotonic()
        before = seen = self.ledger.acknowledged
        first: float | None = None
        while self.ledger.acknowledged < before + step.settle and not self.enough.is_set():
            self._rest(started)
            now = time.monotonic()
            if self.ledger.acknowledged > seen:
                seen, last = self.ledger.acknowledged, now
                first = now - begun if first is None else first
            if now - last > OUTAGE:
                what = f"no write was acknowledged for {OUTAGE:.0f} s with the fault over"
                self.faults.append(Fault("stuck", what))
                break
        waited = time.monotonic() - begun if first is None else first
        self.longest_outage = max(self.longest_outage, waited)

    def _do(self, step: Step, chance: Random, started: float) -> None:
        match step.kind:
            case "embedder":
                self.others[f"embedding endpoint: {step.how}"] += 1
                self.peers.mood = step.how
                self._spoilt_until = time.monotonic() + step.hold  # others may come meanwhile
            case "disk":
                self.others["disk full"] += 1
                self.ground.fill_disk()
                try:
                    end = time.monotonic() + step.hold
                    while time.monotonic() < end:
                        self._rest(started)
                finally:
                    self.ground.free_disk()
            case "clock":
                self.others["clock stepped"] += 1
                self.ground.step_clock(int(step.how))
                self._spoilt_until = time.monotonic() + step.hold
            case "line":
                self._spoil_line(step, chance, started)
            case "freeze":
                what = "api" if step.how == "api" else "worker"
                with self.ground.frozen(what, chance) as hit:
                    self.others[f"frozen: {what}"] += hit
                    end = time.monotonic() + step.hold
                    while time.monotonic() < end:
                        self._rest(started)
            case kill:
                # It may be on its way up just now.
                end = time.monotonic() + OUTAGE
                while not self.ground.kill(kill, chance):
                    self._rest(started)
                    if time.monotonic() > end:
                        self.faults.append(
                            Fault("stuck", f"there was no {kill} for {OUTAGE:.0f} s")
                        )
                        return
                self.kills[kill] += 1

    def _spoil_line(self, step: Step, chance: Random, started: float) -> None:
        """Connections to the database are lost, or one of them is silent for a while."""
        if step.how == "stalled":
            self._blind = True  # the session that stands still may be our own
            try:
                with self.ground.stalled_session(chance) as hit:
                    end = time.monotonic() + step.hold
                    while hit and time.monotonic() < end:
                        self._rest(started)
            finally:
                self._blind = False
        else:
            hit = self.ground.cut_sessions(chance, every=step.how == "all cut")
        self.others[f"database connections: {step.how}"] += hit

    # --- the end -------------------------------------------------------------------------------

    def judge(self, connection: str | None) -> tuple[float, list[Fault], int]:
        """With the faults over: seconds until all work was done, all faults, documents."""
        self.ground.wait_until_up()
        faults: list[Fault] = []
        blobs = open_blobs(self.ground.blobs)
        judge = Judge(self.ground.urls, KEY, self.database, blobs, patience=self.patience)
        with closing(judge):
            drained = judge.drain(self._pause, self._tell_left)
            self.say("comparing each document with what was acknowledged")
            try:
                if connection is not None:
                    faults += judge.site(connection, self._pause)
                found, documents = judge.verdicts(
                    self.ledger.written, Random(f"{self.plan.seed} judges")
                )
            except RecollectError as error:
                return drained, [Fault("stuck", f"the service does not answer: {error}")], 0
        return drained, faults + found, documents

    def _connect_site(self) -> str | None:
        """Crawl a small site, since a sync has a life of its own; None where none is needed."""
        headers = {"Authorization": f"Bearer {KEY}"}
        body = {
            "containerTags": ["site"],
            "documentLimit": 100,
            "metadata": {"startUrl": f"{self.peers.url}/site"},
        }
        with closing(Endpoint(self.ground.url, headers=headers)) as endpoint:
            while True:
                # Nothing is broken yet, but the API may be faster than the rest.
                try:
                    found = endpoint.request_json("POST", "/v3/connections/web-crawler", body)
                except Transient:
                    self._pause(0.2)
                else:
                    return found["id"]

    def _pause(self, seconds: float) -> None:
        threading.Event().wait(seconds)

    # --- progress ------------------------------------------------------------------------------

    def _tell(self, passed: float) -> None:
        if passed - self._told < TELL_EVERY or self._blind:
            return
        self._told = passed
        try:
            with self.database.begin() as tx:
                row = tx.execute(
                    "select count(*) as all, count(due_at) as waiting from documents"
                ).fetchone()
        except Transient:
            row = None
        state = "the database does not answer"
        if row is not None:
            self.weather.backlog = row["waiting"]
            state = f"{row['all']} documents, {row['waiting']} of them waiting"
        self.say(
            f"{int(passed) // 60}:{int(passed) % 60:02}"
            f"  {self.kills.total()} of {self.plan.kills} kills"
            f"  {self.ledger.acknowledged} acknowledged  {state}"
            + ("  light" if self.weather.light else "  heavy")
        )

    def _tell_left(self, left: int) -> None:
        now = time.monotonic()
        if now - self._told > TELL_EVERY or left == 0:
            self._told = now
            self.say(f"the faults are over; {left} documents are still waiting")


def _try_blobs(url: str) -> None:
    """Raises SetupError unless the store takes a file: else all would wait for it to the end."""
    store, name = open_blobs(url), f"torture/{token_hex(8)}"
    try:
        store.put(name, b"tried")
        store.delete(name)
    except Unavailable as error:
        raise SetupError(f"{url}: {error}; are the AWS variables set?") from error
