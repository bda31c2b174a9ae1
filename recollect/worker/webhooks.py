"""The loop that tells endpoints what happened: claim, sign, send, settle (Standard Webhooks)."""

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import structlog

from recollect import encryption, log
from recollect.app import App, secret_keys
from recollect.errors import Permanent, SetupError, Transient
from recollect.events import outbox
from recollect.events.outbox import AT_ONCE, Attempt, Parcel, sign
from recollect.fetch import outcome
from recollect.loop import enduring
from recollect.telemetry import metrics

LOG = log.get("deliver")
IDLE = timedelta(seconds=10)
"""Between two looks while nobody wants events."""
TICK = timedelta(seconds=1)
"""Between two looks for something to tell."""
LEASE = timedelta(seconds=60)
"""Longer than an attempt may take: whoever holds a delivery longer has died."""
TOTAL = 15.0
"""Seconds of one attempt, look-up and handshake included."""
SLOW = 2.0
"""Seconds; an endpoint that took longer last time gets one delivery at a time."""
THREADS = 32
PAUSES = (
    timedelta(seconds=5),
    timedelta(minutes=1),
    timedelta(minutes=5),
    timedelta(minutes=30),
    timedelta(hours=2),
    timedelta(hours=5),
    timedelta(hours=10),
)
"""Between attempts, with up to a tenth of jitter; after the last it is dead."""
LONGEST_WISH = timedelta(hours=1)
"""How long a `Retry-After` is obeyed."""
GONE = 410
GRACE = timedelta(seconds=10)
"""How long a stopping loop waits for what is being sent."""


class Deliverer:
    """Works until `stop` is called; several may run on one database, in any processes."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._busy = Counter[str]()
        self._slow: set[str] = set()

    def stop(self) -> None:
        """Ask it to end; what is not sent by then is sent later. Safe in a signal handler."""
        self._stop.set()
        self._wake.set()

    def run(self) -> None:
        """Until stopped; an unreachable database is waited for."""
        pool = ThreadPoolExecutor(THREADS, "deliver")
        while not self._stop.is_set():
            self._wake.clear()
            pause = TICK
            with enduring(LOG, self._stop):
                for parcel in self._claim():
                    pool.submit(self._work, parcel)
                if not self._wanted():
                    pause = IDLE
            self._wake.wait(pause.total_seconds())
        give_up = time.monotonic() + GRACE.total_seconds()
        while time.monotonic() < give_up and self._held():
            self._wake.wait(0.05)
            self._wake.clear()
        pool.shutdown(wait=False, cancel_futures=True)

    def _wanted(self) -> bool:
        with self._app.db.begin() as tx:
            return outbox.wanted(tx)

    def _held(self) -> int:
        with self._lock:
            return self._busy.total()

    def _claim(self) -> list[Parcel]:
        with self._lock:
            free = THREADS - self._busy.total()
            busy = dict(self._busy)
            # Half of the places are for endpoints that are quick or not known yet.
            full = sum(self._busy[id] for id in self._slow) >= THREADS // 2
            for id in self._slow:
                busy[id] = AT_ONCE if full or busy.get(id) else AT_ONCE - 1
        if free <= 0:
            return []
        with self._app.db.begin() as tx:
            parcels = outbox.claim(tx, lease=LEASE, limit=free, busy=busy)
        with self._lock:
            self._busy.update(parcel.endpoint_id for parcel in parcels)
        return parcels

    def _work(self, parcel: Parcel) -> None:
        began = time.monotonic()
        try:
            # What cannot be written down is sent again when its lease runs out.
            with enduring(LOG.bind(delivery=parcel.id)):
                deliver(self._app, parcel)
        finally:
            with self._lock:
                if time.monotonic() - began > SLOW:
                    self._slow.add(parcel.endpoint_id)
                else:
                    self._slow.discard(parcel.endpoint_id)
                self._busy[parcel.endpoint_id] -= 1
                self._busy = +self._busy
            self._wake.set()


def drain(app: App) -> int:
    """Send inline until nothing is due; returns how many attempts there were."""
    sent = 0
    while True:
        with app.db.begin() as tx:
            parcels = outbox.claim(tx, lease=LEASE, limit=10, busy={})
        if not parcels:
            return sent
        for parcel in parcels:
            deliver(app, parcel)
            sent += 1


def deliver(app: App, parcel: Parcel) -> None:
    """One attempt, and what became of it.

    answer           | delivery                                     | endpoint
    -----------------|----------------------------------------------|--------------------------
    2xx              | delivered                                    | fine
    410              | dead                                         | disabled
    anything else,   | due after a pause, or as Retry-After asks;   | rests; disabled when it
    or none          | dead when no pause is left                   | took nothing for 3 days
    """
    attempt, asked = send(app, parcel)
    disabled = False
    after = pause(parcel.attempt, asked)
    with app.db.begin() as tx:
        if attempt.reason is None:
            outbox.delivered(tx, parcel, attempt)
        else:
            after = None if attempt.status == GONE else after
            disabled = outbox.refused(tx, parcel, attempt, after)
            if attempt.status == GONE:
                outbox.disable(tx, parcel.endpoint_id, "it answered 410 Gone")
                disabled = True
    result = "delivered" if attempt.reason is None else "again" if after else "dead"
    metrics.add("recollect_deliveries_total", type=parcel.type, outcome=result)
    with structlog.contextvars.bound_contextvars(org=parcel.org_id, endpoint=parcel.endpoint_id):
        LOG.info(
            "delivery",
            delivery=parcel.id,
            type=parcel.type,
            outcome=result,
            attempt=parcel.attempt,
            status=attempt.status,
            reason=attempt.reason,
            ms=attempt.ms,
        )
        if disabled:
            LOG.warning("endpoint disabled", reason=attempt.reason)


def send(app: App, parcel: Parcel) -> tuple[Attempt, timedelta | None]:
    """Send it once, signed now; how it went, and how long the endpoint asked us to wait."""
    began = time.monotonic()

    def over(status: int | None, reason: str | None) -> Attempt:
        return Attempt(status, reason, round((time.monotonic() - began) * 1000, 1))

    keys = secret_keys(app.config)
    opened: list[str] = []
    for sealed in parcel.secrets:
        try:
            opened.append(encryption.unseal(keys, sealed, place=outbox.place(parcel.endpoint_id)))
        except SetupError:
            continue
    if not opened:
        return over(None, "its secret cannot be opened; rotate it"), None
    body = json.dumps(parcel.payload, ensure_ascii=False, separators=(",", ":")).encode()
    stamp = int(time.time())
    headers = {
        "content-type": "application/json",
        "webhook-id": parcel.id,
        "webhook-timestamp": str(stamp),
        "webhook-signature": " ".join(sign(secret, parcel.id, stamp, body) for secret in opened),
    }
    try:
        answer = app.fetcher.tell(parcel.url, body, headers=headers, total=TOTAL)
    except (Permanent, Transient) as error:
        return over(None, f"{error.code}: {error}"), None
    if 200 <= answer.status < 300:
        return over(answer.status, None), None
    told = outcome(answer.status, answer.headers, f"it answered {answer.status}")
    asked = told.after if isinstance(told, Transient) else None
    return over(answer.status, str(told)), asked


def pause(
    attempt: int, asked: timedelta | None, pauses: Sequence[timedelta] = PAUSES
) -> timedelta | None:
    """How long after the `attempt`th (from 1) the next one comes; None: there is none."""
    if attempt > len(pauses):
        return None
    jitter = random.uniform(1.0, 1.1)  # noqa: S311 # no secret
    return max(pauses[attempt - 1] * jitter, min(asked or timedelta(), LONGEST_WISH))
