"""The queue of connections: sync what is due; renew subscriptions, revoke what is over."""

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from urllib.parse import urlsplit

import structlog

from recollect import connectors, log
from recollect.app import App
from recollect.connectors.api import PROVIDER_UNAVAILABLE, RATE_LIMITED
from recollect.db import Tx
from recollect.documents import DocumentTurn
from recollect.errors import (
    INTERNAL_ERROR,
    Contended,
    LeaseLost,
    Permanent,
    Reauthorize,
    SetupError,
    Transient,
    Unavailable,
    sentence_of,
)
from recollect.loop import backoff, enduring, settled
from recollect.model import Failure, SyncClaim
from recollect.ops import reencrypt
from recollect.sync import connection_queue, host_limits, push_registrations, registering, runs
from recollect.sync.items import SyncCounts
from recollect.telemetry import metrics, tracing
from recollect.worker import pulls
from recollect.worker.loop import SHORTEST_WAIT, ClaimLoop, own_failure, written

LOG = log.get("syncs")
TICK = timedelta(seconds=10)
"""A waiting loop looks at least this often, should a wake-up call get lost."""
CHORES = timedelta(seconds=30)
"""Between two looks for registrations to renew."""
ITEMS = ("added", "changed", "unchanged", "removed", "failed")
FIRST_BACKOFF = timedelta(minutes=1)
LONGEST_BACKOFF = timedelta(hours=1)
LONGEST_PARK = timedelta(days=1)
"""The limit of a day ends with it."""
LONGEST_ABSENCE = timedelta(days=30)
"""After so long without an answer a connection has failed."""
GAVE_UP = "gave_up"
SPARE = 1
"""Places beside `syncs`, for organisations that have no sync under way here."""


class Syncer(ClaimLoop[SyncClaim]):
    """The queue of connections. A sync that it has to leave goes on at its last checkpoint."""

    name = "sync"
    log = LOG

    def __init__(self, app: App) -> None:
        super().__init__(app, app.config.syncs + SPARE)
        self._turn = DocumentTurn()

    def run(self) -> None:
        config = self._app.config
        if urlsplit(config.public_url or "").scheme != "https":
            LOG.info(
                "providers cannot push to us: RECOLLECT_PUBLIC_URL is not an https URL",
                polled_every_seconds=config.poll_interval.total_seconds(),
            )
        super().run()

    def helpers(self) -> dict[str, Callable[[], object]]:
        pulling = {
            f"pull-{connector.provider}": partial(pulls.run, self._app, connector, self._stop)
            for connector in connectors.all().values()
            if connector.pulls
        }
        return super().helpers() | {"chores": self._chores} | pulling

    def key(self, claim: SyncClaim) -> tuple[str, int]:
        return claim.connection.id, claim.number

    def renew(self, tx: Tx, held: Sequence[SyncClaim]) -> None:
        connection_queue.renew(tx, held, lease=self._app.lease)

    def release(self, tx: Tx, left: Sequence[SyncClaim]) -> None:
        connection_queue.release(tx, left)

    def claim(self) -> list[SyncClaim]:
        held = self.held()
        free = self._app.config.syncs - len(held)
        if free + SPARE <= 0:
            return []
        with self._app.db.begin() as tx:
            return connection_queue.claim(
                tx,
                lease=self._app.lease,
                limit=free if free > 0 else 1,
                turn=self._turn,
                besides=() if free > 0 else {one.connection.org_id for one in held},
            )

    def between(self) -> timedelta:
        if len(self.held()) >= self._app.config.syncs:
            return TICK
        wait: timedelta | None = None
        with enduring(LOG, self._stop), self._app.db.begin() as tx:
            wait = connection_queue.next_due_in(tx)
        return TICK if wait is None else min(TICK, max(wait, SHORTEST_WAIT))

    def work(self, claim: SyncClaim) -> None:
        connection = claim.connection
        with structlog.contextvars.bound_contextvars(
            connection=connection.id,
            org=connection.org_id,
            provider=connection.provider,
            **tracing.mark(self._app.tracer, trace_id(claim)),
        ):
            outcome = attempt(self._app, claim, self._stop)
            written_down = settled(partial(settle, self._app, claim), outcome, LOG, self._stop)
            if written_down and isinstance(outcome, SyncCounts):
                registering.register(self._app, claim, self._stop)

    def _chores(self) -> None:
        with enduring(LOG):
            self._reseal()
        while not self._stop.is_set():
            with enduring(LOG):
                chores(self._app, self._stop)
            self._stop.wait(CHORES.total_seconds())

    def _reseal(self) -> None:
        if done := reencrypt.reseal(self._app):
            LOG.info("sealed with the newest key", texts=done)


Outcome = SyncCounts | Exception


def drain(app: App, stop: threading.Event | None = None) -> int:
    """Sync inline until no connection is due, and do the chores; returns how many syncs ran."""
    worked = 0
    stop = stop or threading.Event()
    turn = DocumentTurn()
    chores(app, stop)
    while not stop.is_set():
        with app.db.begin() as tx:
            claims = connection_queue.claim(tx, lease=app.lease, limit=1, turn=turn)
        if not claims:
            break
        for claim in claims:
            outcome = attempt(app, claim, stop)
            settle(app, claim, outcome)
            if isinstance(outcome, SyncCounts):
                registering.register(app, claim, stop)
            worked += 1
    return worked


def attempt(app: App, claim: SyncClaim, stop: threading.Event) -> Outcome:
    """Sync; what happened is data."""
    span = tracing.begin(app.tracer, "sync", trace_id(claim), _traced(claim))
    try:
        counts = runs.run(app, claim, stop)
    except Exception as error:  # noqa: BLE001 # a bug must not take the loop or others down
        span.end(code=getattr(error, "code", type(error).__name__))
        return error
    told = ("added", "changed", "unchanged", "removed", "failed")
    span.end(attributes={name: getattr(counts, name) for name in told}, code=counts.code)
    return counts


def trace_id(claim: SyncClaim) -> str:
    """Of the trace of this run."""
    return tracing.id_of("sync", claim.run_id, claim.number)


def _traced(claim: SyncClaim) -> tracing.Attributes:
    connection = claim.connection
    return {
        "connection": connection.id,
        "org": connection.org_id,
        "provider": connection.provider,
        "trigger": claim.trigger,
    }


def settle(app: App, claim: SyncClaim, outcome: Outcome) -> None:
    """Write down what became of a sync.

    outcome       | connection                                 | its documents
    --------------|--------------------------------------------|---------------------------
    Counts        | ready, due again after its interval        | -
    LeaseLost     | someone else's, deleted, or stopping       | -
    - GaveWay     | due at once, behind those that wait        | -
    Reauthorize   | needs_auth, not due                        | wait for the user
    Unavailable   | ready, due in ten seconds                  | -
    Contended     | ready, due after back-off                  | -
    Transient     | ready, due after back-off or as asked      | wait, too, if it was a limit
    - for 30 days | failed, not due, until a user wants a sync | wait; none is deleted
    Permanent     | ready, due after its interval, error shown | -
    anything else | a bug: as Transient, traceback logged      | -
    """
    after: timedelta
    away = False
    match outcome:
        case SyncCounts():
            if outcome.away and _has_given_up(app, claim, outcome.notes[-1], outcome):
                return
            _write(
                app,
                lambda tx: connection_queue.finish(
                    tx, claim, outcome, again=runs.next_in(app, tx, claim.connection, outcome)
                ),
            )
            lacks = {"code": outcome.code, "reason": outcome.notes[0]} if outcome.code else {}
            LOG.info(
                "sync",
                outcome="partial" if outcome.code else "completed",
                **lacks,
                added=outcome.added,
                changed=outcome.changed,
                unchanged=outcome.unchanged,
                removed=outcome.removed,
                failed=outcome.failed,
                skipped=dict(outcome.skipped),
            )
            _count(claim, "partial" if outcome.code else "completed")
            _count_items(claim, outcome)
            return
        case LeaseLost():
            _write(app, lambda tx: connection_queue.release(tx, [claim]))
            gave_way = isinstance(outcome, runs.GaveWay)
            LOG.info("sync", outcome="gave way" if gave_way else "stopped")
            return
        case Reauthorize():
            lost, code = str(outcome), outcome.code
            _write(
                app,
                lambda tx: connection_queue.lose(tx, claim.connection.id, lost, claim, code=code),
            )
            LOG.warning("sync", outcome="authorization lost", reason=str(outcome))
            _count(claim, "needs_auth")
            return
        case Contended():
            failure = Failure(INTERNAL_ERROR, sentence_of(outcome))
            after = _backoff(claim)
        case Unavailable():
            failure, after = Failure(INTERNAL_ERROR, sentence_of(outcome)), TICK
        case Transient():
            code = RATE_LIMITED if outcome.code == RATE_LIMITED else PROVIDER_UNAVAILABLE
            away = True
            if _has_given_up(app, claim, str(outcome)):
                return
            failure, asked = Failure(code, str(outcome)), outcome.after or timedelta()
            after = max(min(asked, LONGEST_PARK), _backoff(claim))
        case Permanent():
            failure, after = Failure(outcome.code, str(outcome)), app.config.sync_interval
        case _:
            failure = own_failure(LOG, outcome)
            after = _backoff(claim)
    parked = failure.code == RATE_LIMITED
    _write(
        app,
        lambda tx: connection_queue.put_off(
            tx, claim, failure, after, connection_queue.counted(tx, claim), parked=parked, away=away
        ),
    )
    LOG.warning("sync", outcome="put off", code=failure.code, reason=failure.message)
    _count(claim, "failed")


def _has_given_up(app: App, claim: SyncClaim, last: str, counts: SyncCounts | None = None) -> bool:
    """Whether its provider was away for so long that the connection is failed now."""
    name = connectors.get(claim.connection.provider).name
    told = (
        f"{name} could not be read for {LONGEST_ABSENCE.days} days, so it is no longer asked by"
        f" itself; nothing was deleted. The last answer: {last.removesuffix('.')}. Check whether"
        " the source is still there, then sync the connection by hand, or delete it."
    )
    done = False

    def give_up(tx: Tx) -> None:
        nonlocal done
        if connection_queue.away_for(tx, claim) >= LONGEST_ABSENCE:
            done = True
            failure = Failure(GAVE_UP, told)
            connection_queue.give_up(
                tx, claim, failure, counts or connection_queue.counted(tx, claim)
            )

    _write(app, give_up)
    if done:
        LOG.warning("sync", outcome="given up", code=GAVE_UP, reason=last)
        _count(claim, "failed")
    return done


def chores(app: App, stop: threading.Event) -> None:
    """Renew registrations, make revocations, forget old keys; each for itself. Mind the clock."""
    with app.db.begin() as tx:
        connection_queue.recall(tx, lease=app.lease)
        push_registrations.sweep(tx)
        host_limits.sweep(tx)
        due = push_registrations.due_registrations(tx)
        revocations = push_registrations.due_revocations(tx)
    for one in due:
        with enduring(LOG.bind(connection=one.registration.connection_id, pushes="off")):
            try:
                registering.renew(app, one, stop)
            except registering.ENDED as error:
                LOG.warning(
                    "pushes are off", connection=one.registration.connection_id, reason=str(error)
                )
    for revocation in revocations:
        with enduring(LOG.bind(provider=revocation.provider)):
            try:
                registering.revoke(app, revocation)
            except SetupError as error:  # its key is lost: it can never be said
                LOG.warning("not revoked", provider=revocation.provider, reason=str(error))
            with app.db.begin() as tx:
                push_registrations.drop_revocation(tx, revocation.id)


def _backoff(claim: SyncClaim) -> timedelta:
    """1, 2, 4 … minutes, up to an hour."""
    return backoff(claim.connection.failures + 1, FIRST_BACKOFF, LONGEST_BACKOFF)


def _count(claim: SyncClaim, outcome: str) -> None:
    metrics.add("recollect_syncs_total", provider=claim.connection.provider, outcome=outcome)


def _count_items(claim: SyncClaim, counts: SyncCounts) -> None:
    told = {name: getattr(counts, name) for name in ITEMS} | dict(counts.skipped)
    for verdict, number in told.items():
        if number:
            provider = claim.connection.provider
            metrics.add("recollect_sync_items_total", number, provider=provider, verdict=verdict)


def _write(app: App, write: Callable[[Tx], object]) -> None:
    if not written(app, write):
        LOG.info("sync", outcome="lease lost")
