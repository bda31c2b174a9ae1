"""What providers are asked for besides content: to push changes, and to forget a connection that is
gone."""

import json
import secrets
import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from recollect import connectors, encryption, log
from recollect.app import App, secret_keys
from recollect.connectors import oauth
from recollect.connectors.base import Connector, Source
from recollect.connectors.pushes import Registration
from recollect.errors import LeaseLost, NotFoundError, Permanent, Reauthorize, SetupError, Transient
from recollect.model import Connection, ConnectionId, SyncClaim, Trigger, random_id
from recollect.sync import connections, push_registrations, revocations
from recollect.sync.credentials import (
    ageing,
    oauth_of,
    open_registration,
    open_tokens,
    seal_tokens,
)
from recollect.sync.push_registrations import Revocation, StoredRegistration
from recollect.sync.sources import GivenAccess, api_url, endpoint_at, open_api, open_source

LOG = log.get("sync")
PUSH_RETRY = timedelta(hours=1)
ENDED = (NotFoundError, LeaseLost, Permanent, Reauthorize, SetupError)
"""What ends the asking; LeaseLost also where the worker stops."""


def register(app: App, claim: SyncClaim, stop: threading.Event) -> None:
    """After a sync: make sure that pushes are registered for all that the connection watches.

    What fails is noted and tried again; polling goes on meanwhile. A connection that is gone, or
    has lost its authorization, has nothing to register.
    """
    try:
        _register(app, claim, stop)
    except ENDED as error:
        LOG.info("pushes are off", connection=claim.connection.id, reason=str(error))


def _register(app: App, claim: SyncClaim, stop: threading.Event) -> None:
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
        # The settings name another address now: they are made again, and end once that is done.
        moved = [
            one.registration.id
            for one in stored
            if one.registration.url != connector.push_url(app.config, one.registration.id)
        ]
        if moved:
            push_registrations.retire(tx, moved)
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
    except (Permanent, Transient, Reauthorize) as error:  # 401 for what may not be pushed, too
        LOG.warning("pushes are off", connection=connection.id, reason=str(error))
        with app.db.begin() as tx:
            push_registrations.refuse_registration(tx, id, str(error), PUSH_RETRY)
        return
    with app.db.begin() as tx:
        replaced = push_registrations.keep_registration(
            tx, id, remote=made.remote, expires_at=made.expires_at
        )
        told = replaced is None and revocations.say_off(tx, app, connector.provider, made)
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


def revoke(app: App, due: Revocation) -> None:
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
    revokes = told["revoke"]
    if revokes and told.get("account") is not None:
        with app.db.begin() as tx:
            # The account may have authorized another connection since.
            revokes = not revocations.is_shared(app, tx, connector, told["account"], client.id)
            if revokes and revocations.waits(app, tx, due, told):
                raise Transient("another revocation needs the authorization")
    try:
        if tokens.refresh is not None and ageing(tokens):
            tokens = oauth.refresh(spec, client, tokens, headers=connector.headers())
            _keep_tokens(app, due, told, tokens)
        api = open_api(app, connector, GivenAccess(tokens), pause=_no_pause)
        for one in told["registrations"]:
            try:
                connector.unsubscribe(api, Registration(**one))
            except (Permanent, Reauthorize) as error:  # the others, and the authorization, end
                LOG.info("registration not removed", provider=due.provider, reason=str(error))
        if revokes and spec.revoke_url is not None:
            oauth.revoke(spec, client, tokens, headers=connector.headers())
        elif revokes:
            endpoint = endpoint_at(api_url(app, connector))
            connector.revoke(endpoint, tokens, (client.id, client.secret))
    except (Reauthorize, Permanent) as error:
        # It was taken back already, or never will be: there is nothing left to say.
        LOG.info("revocation ended", provider=due.provider, reason=str(error))


def _keep_tokens(app: App, due: Revocation, told: Mapping[str, Any], tokens: oauth.Tokens) -> None:
    """For the next try: a refresh token may serve once."""
    now = {**told, "tokens": seal_tokens(app, ConnectionId(told["connection"]), tokens)}
    place = ("farewell", due.id)
    sealed = encryption.seal(secret_keys(app.config), json.dumps(now), place=place)
    with app.db.begin() as tx:
        push_registrations.change_revocation(tx, due.id, sealed, now=False)


def _no_pause(seconds: float) -> None:
    raise Transient("not in this minute", code="rate_limited")
