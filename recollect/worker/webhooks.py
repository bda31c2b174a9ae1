"""The loop that tells endpoints what happened: claim, sign, send, settle (Standard Webhooks)."""

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import structlog

from recollect import encryption, log
from recollect.app import App, secret_keys
from recollect.errors import Permanent, SetupError, Transient
from recollect.events import outbox, signing, targets
from recollect.events.outbox import Attempt, ClaimedDelivery
from recollect.fetch import outcome
from recollect.loop import enduring
from recollect.telemetry import metrics
from recollect.worker.loop import LONGEST_WISH, ClaimLoop

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
GONE = 410


class Deliverer(ClaimLoop[ClaimedDelivery]):
    """The queue of deliveries. What it cannot write down is sent again when its lease runs out."""

    name = "deliver"
    log = LOG

    def __init__(self, app: App) -> None:
        super().__init__(app, THREADS)
        self._slow: set[str] = set()

    def helpers(self) -> dict[str, Callable[[], object]]:
        return {}

    def key(self, claim: ClaimedDelivery) -> tuple[str, datetime]:
        return claim.id, claim.begun_at

    def claim(self) -> list[ClaimedDelivery]:
        busy = Counter(claimed.endpoint_id for claimed in self.held())
        free = THREADS - busy.total()
        if free <= 0:
            return []
        # Half of the places are for endpoints that are quick or not known yet.
        slow = frozenset(self._slow)
        for_slow = THREADS // 2 - sum(busy[id] for id in slow)
        with self._app.db.begin() as tx:
            return outbox.claim(
                tx, lease=LEASE, limit=free, busy=busy, slow=slow, for_slow=for_slow
            )

    def between(self) -> timedelta:
        pause = TICK
        with enduring(LOG, self._stop), self._app.db.begin() as tx:
            if not outbox.wanted(tx):
                pause = IDLE
        return pause

    def work(self, claim: ClaimedDelivery) -> None:
        began = time.monotonic()
        try:
            deliver(self._app, claim)
        finally:
            if time.monotonic() - began > SLOW:
                self._slow.add(claim.endpoint_id)
            else:
                self._slow.discard(claim.endpoint_id)


def drain(app: App) -> int:
    """Send inline until nothing is due; returns how many attempts there were."""
    sent = 0
    while True:
        with app.db.begin() as tx:
            due = outbox.claim(tx, lease=LEASE, limit=10, busy={})
        if not due:
            return sent
        for claimed in due:
            deliver(app, claimed)
            sent += 1


def deliver(app: App, claimed: ClaimedDelivery) -> None:
    """One attempt, and what became of it.

    answer           | delivery                                     | endpoint
    -----------------|----------------------------------------------|--------------------------
    2xx              | delivered                                    | fine
    410              | dead                                         | disabled
    anything else,   | due after a pause, or as Retry-After asks;   | rests; disabled when it
    or none          | dead when no pause is left                   | took nothing for 3 days
    none of 2xx, and | due at once                                  | as it was
    it moved         |                                              |
    """
    attempt, asked = send(app, claimed)
    disabled = False
    after = pause(claimed.attempt, asked)
    with app.db.begin() as tx:
        if attempt.reason is None:
            outbox.delivered(tx, claimed, attempt)
        elif outbox.has_moved(tx, claimed):
            after = timedelta()
            outbox.again(tx, claimed, attempt, after)
        else:
            after = None if attempt.status == GONE else after
            disabled = outbox.refused(tx, claimed, attempt, after)
            if attempt.status == GONE:
                targets.disable(tx, claimed.endpoint_id, "it answered 410 Gone")
                disabled = True
    result = "delivered" if attempt.reason is None else "dead" if after is None else "again"
    metrics.add("recollect_deliveries_total", type=claimed.type, outcome=result)
    with structlog.contextvars.bound_contextvars(org=claimed.org_id, endpoint=claimed.endpoint_id):
        LOG.info(
            "delivery",
            delivery=claimed.id,
            type=claimed.type,
            outcome=result,
            attempt=claimed.attempt,
            status=attempt.status,
            reason=attempt.reason,
            ms=attempt.ms,
        )
        if disabled:
            LOG.warning("endpoint disabled", reason=attempt.reason)


def send(app: App, claimed: ClaimedDelivery) -> tuple[Attempt, timedelta | None]:
    """Send it once, signed now; how it went, and how long the endpoint asked us to wait."""
    began = time.monotonic()

    def over(status: int | None, reason: str | None) -> Attempt:
        return Attempt(status, reason, round((time.monotonic() - began) * 1000, 1))

    keys = secret_keys(app.config)
    opened: list[str] = []
    for sealed in claimed.secrets:
        try:
            opened.append(encryption.unseal(keys, sealed, place=signing.place(claimed.endpoint_id)))
        except SetupError:
            continue
    if not opened:
        return over(None, "its secret cannot be opened; rotate it"), None
    body = json.dumps(claimed.payload, ensure_ascii=False, separators=(",", ":")).encode()
    stamp = int(time.time())
    signatures = [signing.sign(secret, claimed.id, stamp, body) for secret in opened]
    headers = {
        "content-type": "application/json",
        "webhook-id": claimed.id,
        "webhook-timestamp": str(stamp),
        "webhook-signature": " ".join(signatures),
    }
    try:
        answer = app.fetcher.tell(claimed.url, body, headers=headers, total=TOTAL)
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
    """How long to wait after the attempt of that number (from 1) for the next one; None: there is
    none."""
    if attempt > len(pauses):
        return None
    jitter = random.uniform(1.0, 1.1)  # noqa: S311 # no secret
    return max(pauses[attempt - 1] * jitter, min(asked or timedelta(), LONGEST_WISH))
