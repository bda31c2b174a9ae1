"""Opening what a connector works with: tokens, the provider's API, what is known, the filter."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from recollect import connectors, documents, extract, log
from recollect.app import App
from recollect.connectors import oauth
from recollect.connectors.api import PROVIDER_UNAVAILABLE, RATE_LIMITED, Access, Api
from recollect.connectors.base import Connector, Folder, HostTurn, LocalFolders
from recollect.connectors.oauth import OAuthClient, Tokens
from recollect.db import Tx
from recollect.errors import (
    BadRequestError,
    KeyLost,
    LeaseLost,
    NotFoundError,
    Parked,
    Permanent,
    Reauthorize,
    SetupError,
    Transient,
    sentence_of,
)
from recollect.fetch import Endpoint, Fetcher
from recollect.memories import reading
from recollect.model import (
    Blob,
    Claim,
    Connection,
    ConnectionId,
    ConnectionState,
    Extracted,
    Failure,
    Remembered,
    Sitemap,
    SyncClaim,
    Tenant,
    Trigger,
    WebPage,
)
from recollect.orgs import tags
from recollect.sync import (
    authorizations,
    connection_queue,
    connections,
    host_limits,
    item_filter,
    items,
    revocations,
)
from recollect.sync.credentials import (
    ageing,
    client_of,
    oauth_of,
    open_secrets,
    open_tokens,
    provider_settings,
    seal_tokens,
)

LOG = log.get("sources")
LONGEST_ANSWER = 120.0
"""Seconds for a whole answer of a provider."""
LOOK = 1.0
"""Seconds between two looks whether the connection is still there."""
PAGE = 1000
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


class ConnectionSource:
    """A `connectors.base.Source` over the database."""

    def __init__(
        self,
        app: App,
        connector: Connector,
        connection: Connection,
        *,
        access: "StoredAccess",
        secrets: Mapping[str, Any],
        refuse: item_filter.Refuse | None,
        claim: SyncClaim | None,
        stop: threading.Event,
    ) -> None:
        self._app = app
        self._connector = connector
        self._connection = connection
        self.access = access
        self._secrets = secrets
        self._refuse = refuse
        self._claim = claim
        self._stop = stop
        self._looked = time.monotonic()
        self._api: Api | None = None

    @property
    def connection_id(self) -> ConnectionId:
        return self._connection.id

    @property
    def metadata(self) -> Mapping[str, Any]:
        return {**self._connection.metadata, **self._secrets}

    @property
    def account(self) -> str | None:
        return self._connection.account

    @property
    def granted(self) -> Sequence[str]:
        with self._app.db.begin() as tx:
            sealed = connections.sealed(tx, self._connection.id).tokens
        return () if sealed is None else open_tokens(self._app, self.connection_id, sealed).scopes

    @property
    def limit(self) -> int:
        return self._connection.document_limit

    @property
    def api(self) -> Api:
        if self._api is None:
            self._api = open_api(
                self._app, self._connector, self.access, pause=self.pause, pace=self._pace
            )
        return self._api

    @property
    def fetcher(self) -> Fetcher:
        return self._app.fetcher

    @property
    def since(self) -> datetime:
        return self._claim.began_at if self._claim else datetime.now(UTC)

    @property
    def asked(self) -> bool:
        return self._claim is not None and self._claim.trigger is Trigger.MANUAL

    @property
    def crawl_delay(self) -> float:
        return self._app.config.crawl_delay

    @property
    def crawl_concurrency(self) -> int:
        return self._app.config.crawl_concurrency

    @property
    def local(self) -> LocalFolders:
        return LocalFolders.of(self._app.config)

    def turn(self, host: str, delay: float) -> HostTurn:
        with self._app.db.begin() as tx:
            self._look(tx)
            return host_limits.turn(tx, host, self._connection.id, timedelta(seconds=delay))

    def rest(self, host: str, seconds: float) -> None:
        with self._app.db.begin() as tx:
            host_limits.rest(tx, host, timedelta(seconds=seconds))

    def leave(self, host: str) -> None:
        with self._app.db.begin() as tx:
            host_limits.leave(tx, host, self._connection.id)

    def room(self) -> int:
        if self._claim is None:
            return 0
        with self._app.db.begin() as tx:
            return items.room(tx, self._claim)

    def remembered(
        self, ids: Sequence[str] | None = None, *, branch: str | None = None
    ) -> Iterator[Remembered]:
        after: str | None = None
        while True:
            with self._app.db.begin() as tx:
                found = items.remembered(
                    tx, self._connection.id, ids=ids, branch=branch, after=after, limit=PAGE
                )
            yield from found
            if len(found) < PAGE:
                return
            after = found[-1].id

    def folders(self) -> Mapping[str, Folder]:
        with self._app.db.begin() as tx:
            return items.folders(tx, self._connection.id)

    def refused(self, title: str | None, url: str | None) -> str | None:
        assert self._refuse is not None, "only a listing is filtered"
        return self._refuse(title, url)

    def reads(self, head: bytes, name: str) -> bool:
        return extract.detect(head, name=name, mime=None) is not None

    def read(self, blob: Blob) -> Extracted:
        return self._app.sandbox.extract(blob, owner=self._connection.org_id)

    def survey(self, blob: Blob) -> WebPage:
        return self._app.sandbox.survey(blob, owner=self._connection.org_id)

    def sitemap(self, blob: Blob) -> Sitemap:
        return self._app.sandbox.sitemap(blob, owner=self._connection.org_id)

    def pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._stop.wait(min(left, LOOK))
            self.going()
        self.going()

    def going(self) -> None:
        if self._stop.is_set():
            raise LeaseLost
        if self.access.refused is not None:
            raise self.access.refused
        now = time.monotonic()
        if self._claim is None or now - self._looked < LOOK:
            return
        with self._app.db.begin() as tx:
            self._look(tx)

    def _look(self, tx: Tx) -> None:
        self._looked = time.monotonic()
        if self._claim is not None and not connection_queue.alive(tx, self._claim):
            raise LeaseLost

    def _pace(self) -> None:
        self.going()
        rate = self._connector.per_second
        if rate is None:
            return
        with self._app.db.begin() as tx:
            wait = connection_queue.next_call_in(
                tx, self._connection.id, timedelta(seconds=1 / rate)
            )
        if wait > timedelta():
            self.pause(wait.total_seconds())


class StoredAccess:
    """The tokens of one connection; refreshed by one process at a time, stored before use."""

    def __init__(self, app: App, connector: Connector, connection: Connection) -> None:
        self._app = app
        self._connector = connector
        self._connection = connection
        self._tokens: Tokens | None = None
        self.refused: Permanent | None = None
        """why no token can be had: it says nothing of what was to be read with it"""

    def token(self, stale: str | None = None) -> str | None:
        if self._connector.oauth is None:
            return None
        tokens = self._tokens or self._stored()
        if tokens.access == stale or (tokens.refresh is not None and ageing(tokens)):
            tokens = self._refreshed(stale)
        self._tokens = tokens
        return tokens.access

    def _refreshed(self, stale: str | None) -> Tokens:
        # Not in a transaction: none may wait for a provider. The lock has a connection of its own.
        with self._app.db.alone(f"refresh {self._connection.id}"):
            tokens = self._stored()
            if tokens.access != stale and not ageing(tokens):
                return tokens
            if tokens.refresh is None:
                raise Reauthorize(
                    "the provider refuses the authorization, and there is no refresh token"
                )
            fresh: Tokens | Reauthorize
            try:
                fresh = oauth.refresh(
                    oauth_of(self._app, self._connector),
                    self._client(),
                    tokens,
                    headers=self._connector.headers(),
                )
            except Reauthorize as error:
                fresh = error
            except Permanent as error:
                self.refused = Permanent(str(error), code=oauth.INVALID_CLIENT)
                raise self.refused from error
            with self._app.db.begin() as tx:
                now = self._opened(connections.sealed(tx, self._connection.id, lock=True))
                if now != tokens:  # the user has authorized again meanwhile
                    return now
                if isinstance(fresh, Reauthorize):
                    raise fresh
                authorizations.keep_tokens(
                    tx,
                    self._connection.id,
                    tokens=seal_tokens(self._app, self._connection.id, fresh),
                    expires_at=fresh.expires_at,
                )
            return fresh

    def _client(self) -> OAuthClient:
        try:
            with self._app.db.begin() as tx:
                return client_of(tx, self._app, self._connection.org_id, self._connector)
        except BadRequestError as error:  # the operator's to mend, not the user's
            raise Permanent(sentence_of(error), code=oauth.INVALID_CLIENT) from error

    def _stored(self) -> Tokens:
        with self._app.db.begin() as tx:
            sealed = connections.sealed(tx, self._connection.id)
        return self._opened(sealed)

    def _opened(self, sealed: connections.Secrets) -> Tokens:
        if sealed.tokens is None:
            raise Reauthorize("nobody has authorized this connection yet")
        try:
            return open_tokens(self._app, self._connection.id, sealed.tokens)
        except SetupError as error:
            # A lost key is like a lost authorization: nothing is deleted, the user comes again.
            raise _key_lost(connection_queue.AGAIN) from error


class GivenAccess:
    """Tokens that are not stored yet."""

    def __init__(self, tokens: Tokens) -> None:
        self._access = tokens.access

    def token(self, stale: str | None = None) -> str | None:
        if stale is not None:
            raise Reauthorize("the provider refuses the authorization that it has just given")
        return self._access


def open_source(
    app: App,
    connection: Connection,
    *,
    refuse: item_filter.Refuse | None = None,
    claim: SyncClaim | None = None,
    stop: threading.Event | None = None,
) -> ConnectionSource:
    """What the connector of a connection works with, during a sync or for one fetch.

    `refuse`: the filter that a listing asks; nothing else is filtered.
    """
    connector = connectors.get(connection.provider)
    with app.db.begin() as tx:
        sealed = connections.sealed(tx, connection.id)
    try:
        secrets = open_secrets(app, connection.id, sealed.secrets)
    except SetupError as error:
        raise _key_lost("give the secrets again") from error
    return ConnectionSource(
        app,
        connector,
        connection,
        access=StoredAccess(app, connector, connection),
        secrets=secrets,
        refuse=refuse,
        claim=claim,
        stop=stop or threading.Event(),
    )


def fetch(app: App, claim: Claim) -> Blob | Extracted:
    """The content of a document of a connection, from its provider.

    Raises Parked while the connection has to wait, Transient, Permanent; LeaseLost when the thing
    is gone at the provider, and its document with it.
    """
    assert claim.document.connection_id is not None
    assert claim.content.source_id is not None
    try:
        with app.db.begin() as tx:
            tenant = Tenant(claim.document.org_id)
            connection = connections.get(tx, tenant, claim.document.connection_id)
            item = items.get(tx, connection.id, claim.content.source_id)
            given = connections.sealed(tx, connection.id).secrets
    except NotFoundError as error:
        # A sync renamed or removed it since the claim: the row as it now is tells what to do.
        raise Transient("its connection no longer knows it", code="source_moved") from error
    if connection.state is ConnectionState.NEEDS_AUTH:
        raise Parked(_told(connection), code=Reauthorize.code, after=DAY)
    if connection.state is ConnectionState.FAILED:
        raise Parked(_told(connection), code=PROVIDER_UNAVAILABLE, after=DAY)
    if connection.parked_for:
        code = connection.failure.code if connection.failure else RATE_LIMITED
        raise Parked(_told(connection), code=code, after=connection.parked_for)
    try:
        return _fetched(app, connection, item)
    except NotFoundError as error:
        if claim.document.attempts < 2:
            raise Transient("the provider does not find it", code="source_missing") from error
        raise _not_found(app, claim, connection, item.id) from error
    except Reauthorize as error:
        with app.db.begin() as tx:
            renewed = connections.sealed(tx, connection.id, lock=True).secrets != given
            if not renewed:
                connection_queue.lose(tx, connection.id, str(error), code=error.code)
        after = MINUTE if renewed else DAY
        raise Parked(str(error), code=error.code, after=after) from error
    except Permanent as error:
        if error.code != oauth.INVALID_CLIENT:
            raise
        raise Parked(str(error), code=error.code, after=HOUR) from error
    except Transient as error:
        raise _parked(app, claim, connection, error) from error


def _fetched(app: App, connection: Connection, item: Remembered) -> Blob | Extracted:
    """Raises what is wrong with the application, also where a part was left out for that."""
    source = open_source(app, connection)
    found = connectors.get(connection.provider).fetch(source, item)
    if source.access.refused is not None:
        raise source.access.refused
    return found


def _not_found(app: App, claim: Claim, connection: Connection, id: str) -> LeaseLost | Parked:
    """The document goes, if only the one thing is not found."""
    if (told := _said_to_all(app, connection)) is not None:
        return Parked(
            f"the provider finds neither it nor anything else ({told})",
            code=PROVIDER_UNAVAILABLE,
            after=HOUR,
        )
    with app.db.begin() as tx:
        documents.discard(tx, claim)
        items.forget(tx, connection.id, id)
    return LeaseLost()


def _parked(app: App, claim: Claim, connection: Connection, error: Transient) -> Transient:
    """A limit, or a wait that the whole account is told, parks the connection; an outage parks this
    document, for as long as a day."""
    limit: Exception | None = error
    if error.code != RATE_LIMITED:
        limit = None if error.after is None else _said_to_all(app, connection)
    if isinstance(limit, Transient):  # else it is answered; the next sync says what of it
        after = min(limit.after or MINUTE, DAY)
        with app.db.begin() as tx:
            connection_queue.park(tx, connection.id, Failure(limit.code, str(limit)), after)
        return Parked(str(limit), code=limit.code, after=after)
    if error.code == PROVIDER_UNAVAILABLE and _age(claim) < DAY:
        return Parked(str(error), code=error.code, after=max(error.after or MINUTE, MINUTE))
    return error


def _said_to_all(app: App, connection: Connection) -> Exception | None:
    """What the whole account is told, where one thing is told to wait or not found: a 503 leaves
    open what it is said of (RFC 9110 15.6.4), and a 404 may come from something on the way. None:
    it is answered as ever."""
    try:
        connectors.get(connection.provider).ping(open_source(app, connection))
    except (NotFoundError, Permanent, Reauthorize, Transient) as told:
        return told
    return None


def _age(claim: Claim) -> timedelta:
    return datetime.now(UTC) - claim.document.updated_at


def _key_lost(otherwise: str) -> KeyLost:
    return KeyLost(
        "RECOLLECT_SECRET_KEY or DATA_DIR/secret-key changed, and the key before opened what this"
        " connection was given: put that key back, or after the new one, separated by a comma, and"
        f" start the service again; or {otherwise}"
    )


def _told(connection: Connection) -> str:
    return connection.failure.message if connection.failure else "its connection has to wait"


def open_api(
    app: App,
    connector: Connector,
    access: Access,
    *,
    pause: Callable[[float], None],
    pace: Callable[[], None] = lambda: None,
) -> Api:
    """The API of a provider, at the address that the settings name."""
    return Api(
        endpoint_at(api_url(app, connector)),
        access=access,
        pause=pause,
        pace=pace,
        judge=connector.judge,
        headers=connector.headers(),
    )


def api_url(app: App, connector: Connector) -> str:
    url = provider_settings(app, connector).api_url or connector.api_url
    assert url is not None
    return url


@cache
def endpoint_at(url: str) -> Endpoint:
    """One for all threads of the process, so that connections are kept."""
    return Endpoint(url, total=LONGEST_ANSWER)


def end(
    tx: Tx, app: App, tenant: Tenant, found: Sequence[Connection], *, with_documents: bool
) -> int:
    """Delete connections; what is to be said to their providers is said in the background.

    Returns how many documents went with them.
    """
    gone = set[ConnectionId]()
    # One revocation for all that an account authorized: the first must not end the others'. So the
    # last one of several providers that share an authorization takes it back.
    accounts: dict[tuple[str, str | None], list[Connection]] = {}
    for one in found:
        accounts.setdefault((one.provider, one.account), []).append(one)
    for (provider, _), ended in accounts.items():
        gone.update(connection.id for connection in ended)
        try:
            revocations.prepare(app, tx, ended, besides=gone)
        except SetupError as error:  # what no key opens cannot be taken back, only deleted
            LOG.warning("not revoked", provider=provider, reason=str(error))
    return connections.delete(tx, tenant, found, with_documents=with_documents)


@dataclass(frozen=True, slots=True)
class EndedTag:
    """What went for good with a tag."""

    documents: int
    memories: int
    naming: Sequence[ConnectionId]
    """connections that still name it beside other tags: their next sync makes it again"""


def end_tag(tx: Tx, app: App, tenant: Tenant, tag: str) -> EndedTag:
    """Delete a tag: documents that carry only it with their memories, what is kept on it, and
    connections that write to it alone, which would bring it back.

    Raises NotFoundError, ConflictError while a merge has it in work, and as `documents.untag`.
    """
    tags.refuse_merging(tx, tenant.id, tag)
    tags.require(tx, tenant, tag)
    known = reading.live(tx, tenant, tag)
    # Connections are locked before documents, as a sync does it. What only this tag holds goes with
    # it and is counted; a connection's documents that are left carry further tags.
    alone = [
        connections.get(tx, tenant, one.id, lock=True)
        for one in sorted(connections.find(tx, tenant, tags=[tag]), key=lambda one: one.id)
        if list(one.container_tags) == [tag]
    ]
    documents.hold_tag(tx, tenant, tag)
    # This waits for transactions that give the tag to a document, and makes later ones wait for us.
    # `untag` then finds the documents that came meanwhile.
    tags.forget(tx, tenant.id, tag)
    gone = documents.untag(tx, tenant, tag)
    end(tx, app, tenant, alone, with_documents=False)
    return EndedTag(
        documents=len(gone),
        memories=len(known) - reading.left(tx, tenant.id, known),
        naming=connections.naming(tx, tenant, tag),
    )
