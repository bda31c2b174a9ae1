"""What is said to providers of connections that are gone: that they are to forget them.

A revocation takes registrations for pushes back, and the authorization, which may be that of other
connections: of the same account and application. So the last of them takes it back.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any

from recollect import connectors, encryption
from recollect.app import App, secret_keys
from recollect.connectors.base import Connector
from recollect.connectors.oauth import Tokens
from recollect.connectors.pushes import Registration
from recollect.db import Tx
from recollect.errors import BadRequestError, SetupError
from recollect.model import Connection, ConnectionId, random_id, storable
from recollect.sync import connections, push_registrations
from recollect.sync.credentials import client_of, open_registration, seal_tokens
from recollect.sync.push_registrations import Revocation

LONGEST_REGISTERING = timedelta(minutes=5)
"""that a revocation waits for a registration which the provider is just being asked for"""


def prepare(
    app: App, tx: Tx, ended: Sequence[Connection], *, besides: Collection[ConnectionId]
) -> None:
    """Have said what is to be said once connections of one account are gone, if there is anything
    to take back. Raises SetupError when no key opens it.

    The authorization stays while connections other than those of `besides` live by it.
    """
    newest = max(ended, key=lambda connection: connection.created_at)
    sealed = connections.sealed(tx, newest.id).tokens
    connector = connectors.get(newest.provider)
    if sealed is None or connector.oauth is None:
        return
    try:
        client = client_of(tx, app, newest.org_id, connector)
    except BadRequestError:
        return
    stored = [r for one in ended for r in push_registrations.registered(tx, one.id)]
    awaited = [r.registration.id for r in stored if not r.answered and r.error is None]
    told = {
        "connection": newest.id,
        "account": newest.account,
        "tokens": sealed,
        "client": [client.id, client.secret],
        "revoke": not is_shared(app, tx, connector, newest.account, client.id, besides=besides),
        "registrations": [
            _told_registration(open_registration(app, one)) for one in stored if one.answered
        ],
        "awaited": awaited,
    }
    _say_later(app, tx, newest.provider, told, LONGEST_REGISTERING if awaited else timedelta())


def take_back(app: App, connection: Connection, tokens: Tokens, account: str) -> None:
    """Have an authorization taken back that an account gave and that is not used, unless others
    live by it."""
    connector = connectors.get(connection.provider)
    with app.db.begin() as tx:
        client = client_of(tx, app, connection.org_id, connector)
        told = {
            "connection": connection.id,
            "account": storable(account),
            "tokens": seal_tokens(app, connection.id, tokens),
            "client": [client.id, client.secret],
            "revoke": True,
            "registrations": [],
            "awaited": [],
        }
        _say_later(app, tx, connection.provider, told, timedelta())


def is_shared(
    app: App,
    tx: Tx,
    connector: Connector,
    account: str | None,
    client: str,
    *,
    besides: Collection[ConnectionId] = (),
) -> bool:
    """Whether other connections live by an account's authorization, which ends for all of the
    account and the client at once, whatever their provider."""
    others = push_registrations.authorized_by(tx, account, _kin(connector), besides=besides)
    try:
        clients = [client_of(tx, app, org, connectors.get(name)).id for org, name in others]
        return client in clients
    except BadRequestError:  # by which client is not known now
        return True


def waits(app: App, tx: Tx, due: Revocation, told: Mapping[str, Any]) -> bool:
    """Whether another revocation needs the authorization that this one, which says `told`, takes
    back."""
    its = [told["account"], told["client"][0]]
    others = [
        other
        for name in _kin(connectors.get(due.provider))
        for other in push_registrations.revocations(tx, name)
        if other.id != due.id
    ]
    return any(
        said is not None and not said["revoke"] and [said.get("account"), said["client"][0]] == its
        for said in (_opened(app, other) for other in others)
    )


def say_off(tx: Tx, app: App, provider: str, made: Registration) -> bool:
    """Add a registration to the revocation of its connection, which has waited for it and is said
    once it waits for no other; False if none does."""
    for revocation in push_registrations.revocations(tx, provider):
        told = _opened(app, revocation)
        if told is not None and made.id in told.get("awaited", ()):
            told["registrations"].append(_told_registration(made))
            told["awaited"].remove(made.id)
            sealed = _sealed(app, revocation.id, told)
            push_registrations.change_revocation(tx, revocation.id, sealed, now=not told["awaited"])
            return True
    return False


def _kin(connector: Connector) -> list[str]:
    """The providers that one application serves."""
    return [
        name for name, one in connectors.all().items() if one.application == connector.application
    ]


def _say_later(app: App, tx: Tx, provider: str, told: Mapping[str, Any], after: timedelta) -> None:
    id = random_id()
    push_registrations.say_later(tx, provider, id, _sealed(app, id, told), after=after)


def _sealed(app: App, id: str, told: Mapping[str, Any]) -> str:
    return encryption.seal(secret_keys(app.config), json.dumps(told), place=("farewell", id))


def _opened(app: App, revocation: Revocation) -> dict[str, Any] | None:
    """None where no key opens it."""
    place = ("farewell", revocation.id)
    try:
        return json.loads(
            encryption.unseal(secret_keys(app.config), revocation.sealed, place=place)
        )
    except SetupError:
        return None


def _told_registration(one: Registration) -> Mapping[str, Any]:
    return {
        "id": one.id,
        "connection_id": one.connection_id,
        "resource": one.resource,
        "secret": one.secret,
        "url": one.url,
        "remote": dict(one.remote),
    }
