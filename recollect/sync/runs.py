"""One connection: changes → documents, a checkpoint at a time."""

import copy
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from recollect import connectors, documents, log
from recollect.app import App
from recollect.connectors.api import PROVIDER_UNAVAILABLE
from recollect.connectors.base import (
    Change,
    Checkpoint,
    Connector,
    Cursor,
    Folder,
    Gone,
    Item,
    Listed,
    Missing,
    Source,
)
from recollect.db import Tx
from recollect.errors import CursorExpired, LeaseLost, NotFoundError, Permanent, Refused
from recollect.model import Connection, SyncClaim, Tenant, Trigger
from recollect.orgs import orgs, settings
from recollect.sync import (
    connection_queue,
    connections,
    item_changes,
    item_filter,
    item_rulings,
    items,
)
from recollect.sync.item_filter import Gate
from recollect.sync.items import SyncCounts
from recollect.sync.sources import open_source

LOG = log.get("sync")
BATCH = 200
"""Changes in one transaction, should a connector make no checkpoint for long."""
FILL = 100
"""Things let in at a time when there is room, or the filter opened."""
ID_BYTES = 2_400
"""Of a thing at a provider, in UTF-8: indexes hold it."""
READ = (Item, Gone, Missing, Listed, Folder)
"""What only a provider that is there can have said."""
HELD_BACK = (
    *(f"http_{status}" for status in range(400, 500)),
    *("access_denied", "no_access", "not_allowed"),
    *("domain_policy", "not_downloadable", "restricted_resource", "sso_required", "api_disabled"),
    *("disabled", "archived", "no_bucket", "no_folder", "no_mailbox", "wrong_region"),
    PROVIDER_UNAVAILABLE,
)
"""Codes of documents that the provider did not give, which may end without a change of the item."""
HELD_BACK_FOR = timedelta(days=1)
"""before a sync tries those documents again, unless a user asks for it"""
SPREAD = 1.05
"""Up to how many times its interval a scheduled sync waits: those that began together, at a start
of the service or a move from elsewhere, drift apart."""
PLAN_REQUIRED = "plan_required"


class GaveWay(LeaseLost):
    """Others wait, and this sync had its stretch; it goes on at its last checkpoint."""


def run(app: App, claim: SyncClaim, stop: threading.Event) -> SyncCounts:
    """Bring the documents of a connection in step with its provider.

    Raises LeaseLost (GaveWay when others wait and its stretch is over), Reauthorize, Transient,
    Permanent; what was said until the last checkpoint is kept.
    """
    connector = connectors.get(claim.connection.provider)
    with app.db.begin() as tx:
        counts = connection_queue.counted(tx, claim)
        plan = orgs.plan(tx, claim.connection.org_id)
        gate = item_filter.open_gate(settings.read(tx, claim.connection.org_id), app.llm)
    if plan not in connector.plans:
        raise Permanent(f"{connector.name} is not part of the plan {plan}", code=PLAN_REQUIRED)
    source = open_source(app, claim.connection, refuse=gate.refuse, claim=claim, stop=stop)
    work = _Work(app, claim, gate, counts, stop, time.monotonic())
    try:
        _list(work, connector, source, claim.connection.cursor)
    except CursorExpired:
        with app.db.begin() as tx:
            connection_queue.lock(tx, claim, lease=app.lease)
            connection_queue.forget_cursor(tx, claim)
        counts.note(
            "The provider no longer knew where the last sync ended, so everything was listed again."
        )
        _list(work, connector, source, None)
    _make_room(work)
    _try_again(work)
    items.note_unlisted(counts)
    with app.db.begin() as tx:
        items.note_nothing(tx, claim.connection.id, counts, connector.guide.if_nothing)
        if connector.confirms_after:
            items.note_waiting(tx, claim, counts)
    return counts


def next_in(app: App, tx: Tx, connection: Connection, counts: SyncCounts) -> timedelta:
    """When to sync again, if nobody wants it sooner. Raises LeaseLost when it is gone."""
    connector = connectors.get(connection.provider)
    interval = connector.interval or app.config.sync_interval
    try:
        pushes = connections.get(tx, Tenant(connection.org_id), connection.id).pushes
    except NotFoundError:
        raise LeaseLost from None
    if counts.code == items.HELD or (connector.pushes and pushes != "on"):
        wait = min(interval, app.config.poll_interval)
    elif counts.code is not None:
        wait = min(interval, app.config.sync_interval)
        # A sync that only looks whether the trouble is over must not be the one that deletes.
        day = connector.confirms_after
        if day and not counts.away and items.waits(tx, connection.id, day - wait):
            wait = interval
    else:
        wait = interval * random.uniform(1.0, SPREAD)  # noqa: S311 # no secret
    return wait if counts.again is None else min(wait, counts.again)


@dataclass(frozen=True, slots=True)
class _Work:
    """One sync under way."""

    app: App
    claim: SyncClaim
    gate: Gate
    counts: SyncCounts
    stop: threading.Event
    since: float
    """when this stretch began, by `time.monotonic`"""

    def pause(self, seconds: float) -> None:
        """For the model, in whatever thread."""
        if self.stop.wait(seconds):
            raise LeaseLost

    def give_way(self) -> None:
        """Raises GaveWay."""
        if time.monotonic() - self.since < self.app.config.sync_stretch.total_seconds():
            return
        with self.app.db.begin() as tx:
            if connection_queue.waits(tx):
                raise GaveWay


def _list(work: _Work, connector: Connector, source: Source, cursor: Cursor | None) -> None:
    batch: list[Change] = []
    at_checkpoint = False
    for change in connector.changes(source, cursor):
        if at_checkpoint:  # and not at the last one: who lists all each time would never end
            work.give_way()
        at_checkpoint = isinstance(change, Checkpoint)
        if isinstance(change, Item | Gone | Missing | Folder) and _too_long(change.id):
            if isinstance(change, Item):
                work.counts.failed += 1
            work.counts.note(
                f"The id of an item has more than {ID_BYTES:,} bytes, so it was left out:"
                f" {change.id[:100]}…"
            )
        elif isinstance(change, Checkpoint):
            _store(work, batch, change.cursor)
            work.counts.again = change.again
            batch = []
        else:
            batch.append(change)
            if len(batch) >= BATCH:
                _store(work, batch, None)
                batch = []
        source.going()
    if batch:
        raise TypeError(f"{connector.provider} did not end on a checkpoint")


def _too_long(id: str) -> bool:
    return len(id.encode(errors="surrogatepass")) > ID_BYTES


def _store(work: _Work, batch: Sequence[Change], cursor: Cursor | None) -> None:
    """Documents and cursor in one transaction, so that no cursor is ever ahead.

    What the database refuses is left out, and the rest is stored: the batch is halved until the
    refused item stands alone.
    """
    app, claim, gate, counts = work.app, work.claim, work.gate, work.counts
    if gate.asks:
        with app.db.begin() as tx:
            undecided = item_rulings.undecided(tx, claim, batch, gate)
        gate.ask(undecided, work.pause)
    before = copy.deepcopy(counts)
    try:
        _store_all(work, batch, cursor)
    except Refused as error:
        counts.become(before)
        middle = len(batch) // 2
        if middle:
            _store(work, batch[:middle], None)
            _store(work, batch[middle:], cursor)
            return
        if not batch or not isinstance(batch[0], Item):
            raise
        with app.db.begin() as tx:
            connection_queue.lock(tx, claim, lease=app.lease)
            item_changes.leave_out(tx, claim, batch[0], error, counts)
        _store_all(work, [], cursor)
    gate.forget()


def _store_all(work: _Work, batch: Sequence[Change], cursor: Cursor | None) -> None:
    app, claim, counts = work.app, work.claim, work.counts
    with app.db.begin() as tx:
        listings = connection_queue.lock(tx, claim, lease=app.lease)
        item_changes.apply(tx, claim, batch, listings=listings, gate=work.gate, counts=counts)
        items.tell(tx, claim, counts)
        reached = any(isinstance(change, READ) for change in batch)
        connection_queue.save(
            tx, claim, cursor=cursor, listings=listings, counts=counts, reached=reached
        )


def _make_room(work: _Work) -> None:
    work.gate.trouble = None  # it may be over
    _reconsider(work)
    if _fill(work):
        _reconsider(work)
    with work.app.db.begin() as tx:
        item_rulings.count_undecided(tx, work.claim, work.gate, work.counts)


def _reconsider(work: _Work) -> None:
    app, claim, gate, counts = work.app, work.claim, work.gate, work.counts
    after: str | None = ""
    while after is not None:
        if gate.asks:
            with app.db.begin() as tx:
                undecided = item_rulings.outside(tx, claim, gate, after=after, limit=FILL)
            gate.ask(undecided, work.pause)
        with app.db.begin() as tx:
            connection_queue.lock(tx, claim, lease=app.lease)
            after = item_changes.reconsider(tx, claim, gate, counts, after=after, limit=FILL)
            items.tell(tx, claim, counts)
        gate.forget()


def _fill(work: _Work) -> bool:
    """Whether the model has to be asked about things that waited for room."""
    app, claim, gate, counts = work.app, work.claim, work.gate, work.counts
    before = counts.skipped[items.UNDECIDED]
    moved = True
    while moved:
        with app.db.begin() as tx:
            connection_queue.lock(tx, claim, lease=app.lease)
            moved = item_changes.fill(tx, claim, gate, counts, FILL)
            items.tell(tx, claim, counts)
    return counts.skipped[items.UNDECIDED] > before


def _try_again(work: _Work) -> None:
    """Read what its provider held back: a right that comes back changes nothing of the item."""
    app, claim, connection = work.app, work.claim, work.claim.connection
    rest = timedelta() if claim.trigger is Trigger.MANUAL else HELD_BACK_FOR
    with app.db.begin() as tx:
        connection_queue.lock(tx, claim, lease=app.lease)
        if not rest:  # a user asks
            documents.resume(tx, connection.id)
        documents.try_again(tx, connection.org_id, connection.id, HELD_BACK, failed_for=rest)
