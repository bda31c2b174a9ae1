"""One connection: changes → documents, a checkpoint at a time; registrations; farewells."""

import copy
import json
import random
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from recollect import connectors, documents, encryption, log
from recollect.app import App, secret_keys
from recollect.connectors import oauth
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
from recollect.connectors.pushes import Registration
from recollect.db import Tx
from recollect.errors import (
    CursorExpired,
    LeaseLost,
    NotFoundError,
    Permanent,
    Reauthorize,
    Refused,
    SetupError,
    Transient,
)
from recollect.model import Connection, ConnectionId, SyncClaim, Tenant, Trigger, random_id
from recollect.orgs import orgs, settings
from recollect.sync import (
    connection_queue,
    connections,
    item_changes,
    item_filter,
    item_rulings,
    items,
    push_registrations,
)
from recollect.sync.credentials import ageing, oauth_of, open_registration, open_tokens
from recollect.sync.item_filter import Gate
from recollect.sync.items import SyncCounts
from recollect.sync.push_registrations import Farewell, StoredRegistration
from recollect.sync.sources import (
    GivenAccess,
    api_url,
    endpoint_at,
    open_api,
    open_source,
    say_off,
)

LOG = log.get("sync")
BATCH = 200
"""Changes in one transaction, should a connector make no checkpoint for long."""
FILL = 100
"""Things let in at a time when there is room, or the filter opened."""
ID_BYTES = 2_400
"""Of a thing at a provider, in UTF-8: indexes hold it."""
PUSH_RETRY = timedelta(hours=1)
READ = (Item, Gone, Missing, Listed, Folder)
"""What only a provider that is there can have said."""
HELD_BACK = (
    *("http_401", "http_402", "http_403", "http_451", "access_denied", "no_access", "not_allowed"),
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
    app, claim = work.app, work.claim
    rest = timedelta() if claim.trigger is Trigger.MANUAL else HELD_BACK_FOR
    with app.db.begin() as tx:
        connection_queue.lock(tx, claim, lease=app.lease)
        connection = claim.connection
        documents.try_again(tx, connection.org_id, connection.id, HELD_BACK, failed_for=rest)


# --- pushes --------------------------------------------------------------------------------------


def register(app: App, claim: SyncClaim, stop: threading.Event) -> None:
    """After a sync: make sure that pushes are registered for all that the connection watches.

    What fails is noted and tried again; polling goes on meanwhile.
    """
    connection = claim.connection
    connector = connectors.get(connection.provider)
    if not connector.pushes:
        return
    if connector.push_url(app.config, "") is None:
        _forget_registrations(app, connection)
        return
    source = open_source(app, connection, stop=stop)
    with app.db.begin() as tx:
        stored = push_registrations.registered(tx, connection.id)
    if claim.trigger is not Trigger.EVENT:  # else a push has just shown that there are some
        stored = _standing(app, connector, source, connection.id, stored)
    live = {r.registration.resource for r in stored if not r.retired}
    wanted = list(connector.watches(source))
    for resource in wanted:
        if resource not in live:
            _subscribe(app, connector, source, connection, resource)
    unwanted = [r for r in stored if r.registration.resource not in wanted]
    _unsubscribe(app, connector, source, connection.id, unwanted)


def _standing(
    app: App,
    connector: Connector,
    source: Source,
    connection: ConnectionId,
    stored: Sequence[StoredRegistration],
) -> list[StoredRegistration]:
    """Those that are not lost at the provider; the others are forgotten, to be made again."""
    lost: list[StoredRegistration] = []
    for one in stored:
        if not one.answered or one.retired:
            continue
        try:
            if not connector.stands(source.api, open_registration(app, one)):
                lost.append(one)
        except (Permanent, Transient, Reauthorize, SetupError) as error:
            LOG.info("registration not verified", connection=connection, reason=str(error))
    for one in lost:
        LOG.warning("registration lost", connection=connection, resource=one.registration.resource)
    _unsubscribe(app, connector, source, connection, lost)
    return [one for one in stored if one not in lost]


def renew(app: App, due: StoredRegistration, stop: threading.Event) -> None:
    """Register again at half of its life; the old one lives until the new one does."""
    with app.db.begin() as tx:
        found = push_registrations.registration(tx, due.registration.id)
    if found is None:
        return
    _, connection = found
    connector = connectors.get(connection.provider)
    if connector.push_url(app.config, "") is None:
        _forget_registrations(app, connection)
        return
    source = open_source(app, connection, stop=stop)
    _subscribe(app, connector, source, connection, due.registration.resource)
    if not due.answered:
        with app.db.begin() as tx:
            push_registrations.drop_registrations(tx, [due.registration.id])


def _forget_registrations(app: App, connection: Connection) -> None:
    """The settings name no address any more where they could arrive, so nothing is pushed; at the
    provider they end by themselves."""
    with app.db.begin() as tx:
        stored = push_registrations.registered(tx, connection.id)
        push_registrations.drop_registrations(tx, [one.registration.id for one in stored])


def _subscribe(
    app: App, connector: Connector, source: Source, connection: Connection, resource: str
) -> None:
    id, secret = random_id(), secrets.token_urlsafe(32)
    url = connector.push_url(app.config, id)
    assert url is not None
    sealed = encryption.seal(
        secret_keys(app.config), secret, place=(connection.id, "registration", id)
    )
    with app.db.begin() as tx:
        push_registrations.add_registration(tx, id, connection.id, resource, secret=sealed, url=url)
    asked = Registration(id, connection.id, resource, secret, url)
    try:
        made = connector.subscribe(source, asked)
    except (Permanent, Transient) as error:
        LOG.warning("pushes are off", connection=connection.id, reason=str(error))
        with app.db.begin() as tx:
            push_registrations.refuse_registration(tx, id, str(error), PUSH_RETRY)
        return
    with app.db.begin() as tx:
        replaced = push_registrations.keep_registration(
            tx, id, remote=made.remote, expires_at=made.expires_at
        )
        told = replaced is None and say_off(tx, app, connector.provider, made)
        # Whatever changed between the end of the old one and the start of the new one.
        connections.want(tx, [connection.id], Trigger.EVENT)
    if replaced is not None:
        _unsubscribe(app, connector, source, connection.id, replaced)
    elif not told:  # another connection of the account may have kept the authorization alive
        try:
            connector.unsubscribe(source.api, made)
        except (Permanent, Transient, Reauthorize, NotFoundError, LeaseLost) as error:
            LOG.info("registration not removed", connection=connection.id, reason=str(error))


def _unsubscribe(
    app: App,
    connector: Connector,
    source: Source,
    connection: ConnectionId,
    stored: Sequence[StoredRegistration],
) -> None:
    for old in stored:
        if old.answered:
            try:
                connector.unsubscribe(source.api, open_registration(app, old))
            except (Permanent, Transient, Reauthorize) as error:
                LOG.info("registration not removed", connection=connection, reason=str(error))
    with app.db.begin() as tx:
        push_registrations.drop_registrations(tx, [old.registration.id for old in stored])


# --- after the end -------------------------------------------------------------------------------


def bid(app: App, due: Farewell) -> None:
    """Take back authorization and registrations of a connection that is gone.

    Raises Transient when it should be tried again.
    """
    told: Mapping[str, Any] = json.loads(
        encryption.unseal(secret_keys(app.config), due.sealed, place=("farewell", due.id))
    )
    connector = connectors.get(due.provider)
    tokens = open_tokens(app, ConnectionId(told["connection"]), told["tokens"])
    client = oauth.OAuthClient(*told["client"])
    spec = oauth_of(app, connector)
    try:
        if tokens.refresh is not None and ageing(tokens):
            tokens = oauth.refresh(spec, client, tokens, headers=connector.headers())
        api = open_api(app, connector, GivenAccess(tokens), pause=_no_pause)
        for one in told["registrations"]:
            connector.unsubscribe(api, Registration(**one))
        if told["revoke"] and spec.revoke_url is not None:
            oauth.revoke(spec, client, tokens, headers=connector.headers())
        elif told["revoke"]:
            endpoint = endpoint_at(api_url(app, connector))
            connector.revoke(endpoint, tokens, (client.id, client.secret))
    except (Reauthorize, Permanent) as error:
        # It was taken back already, or never will be: there is nothing left to say.
        LOG.info("farewell ended", provider=due.provider, reason=str(error))


def _no_pause(seconds: float) -> None:
    raise Transient("not in this minute", code="rate_limited")
