"""Whether a real account is as its connector assumes: a walk that reads, and writes nothing.

Each assumption is looked at for itself, so that one that fails does not hide the others. Nothing is
changed at the provider: calls that could are refused here, whatever a connector does. Nothing is
stored either, but for an access token that had to be renewed.
"""

import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from recollect import connectors
from recollect.app import App
from recollect.connectors import oauth
from recollect.connectors.api import Api
from recollect.connectors.base import Assumption, Connector, Folder, Item, Trouble, Verdict
from recollect.connectors.oauth import Tokens
from recollect.errors import (
    BadRequestError,
    LeaseLost,
    NotFoundError,
    Permanent,
    Reauthorize,
    RecollectError,
    SetupError,
    Transient,
    sentence_of,
)
from recollect.fetch import Endpoint, EndpointAnswer
from recollect.model import Blob, Connection, ConnectionState, Remembered
from recollect.orgs import orgs, settings
from recollect.sync import connection_queue, connections, item_filter, items, push_registrations
from recollect.sync.credentials import client_of, open_secrets, open_tokens
from recollect.sync.sources import ConnectionSource, StoredAccess, api_url

PATIENCE = timedelta(seconds=30)
"""for the whole walk; a call that is under way then still ends"""
PROGRESS = 10.0
"""seconds without any progress of an answer"""
MOST = 200
"""things that are listed before one that can be fetched"""
CLOCK = timedelta(minutes=1)
"""by which our clock may be off: tokens and limits tell times"""
TOKEN = "token"  # noqa: S105 # a name
READING = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class CheckReport:
    assumptions: Sequence[Assumption]

    @property
    def holds(self) -> bool:
        """Whether nothing was found to be otherwise."""
        return all(one.holds is not False for one in self.assumptions)


def look(app: App, connection: Connection) -> CheckReport:
    """Walk the account of a connection, for half a minute at most."""
    return CheckReport(list(_Walk(app, connection).run()))


def try_out(app: App, unsaved: Connection, secrets: Mapping[str, Any]) -> CheckReport:
    """The same for a connection that is not stored yet, of a provider without authorization."""
    return CheckReport(list(_Walk(app, unsaved, secrets).run()))


@dataclass(slots=True)
class _Heard:
    """What the answers of the API said besides their contents."""

    good: int = 0
    limited: int = 0
    off: timedelta | None = None
    """how far the provider's clock is ahead of ours"""

    def hear(self, answer: EndpointAnswer) -> None:
        self.good += 200 <= answer.status < 300
        self.limited += answer.status == 429
        try:
            told = parsedate_to_datetime(answer.headers.get("date", ""))
            self.off = told - datetime.now(UTC)
        except (ValueError, OverflowError, TypeError):  # TypeError: a time without a zone
            return


class _Walk:
    def __init__(
        self, app: App, connection: Connection, secrets: Mapping[str, Any] | None = None
    ) -> None:
        self._app = app
        self._connection = connection
        self._secrets = secrets
        """of a connection that is not stored"""
        self._connector = connectors.get(connection.provider)
        self._heard = _Heard()

    def run(self) -> Iterator[Assumption]:
        yield self._plan()
        before = list(self._authorization())
        yield from before
        if any(one.holds is False for one in before):
            yield from self._pushes(None)
            return
        try:
            source = self._open()
        except RecollectError as error:
            yield Assumption("secrets", False, f"{sentence_of(error)}; give them again")
            return
        try:
            yield from self._account(source)
        finally:
            source.close()

    # --- before anything is asked ---

    def _plan(self) -> Assumption:
        with self._app.db.begin() as tx:
            plan = orgs.plan(tx, self._connection.org_id)
        if plan in self._connector.plans:
            return Assumption("plan", True, f"{self._connector.name} is part of the plan {plan}")
        told = f"{self._connector.name} is not part of the plan {plan}: nothing is synced"
        return Assumption("plan", False, told)

    def _authorization(self) -> Iterator[Assumption]:
        found = self._connection
        if self._connector.oauth is not None:
            yield self._application()
            yield from self._tokens()
        elif found.state is ConnectionState.NEEDS_AUTH:
            yield Assumption("authorization", False, self._told())
        if found.parked_until is not None and found.parked_for:
            until = found.parked_until.isoformat(timespec="seconds")
            told = f"the provider asked for a pause until {until}; check again then"
            yield Assumption("limits", False, told)

    def _application(self) -> Assumption:
        try:
            with self._app.db.begin() as tx:
                client_of(tx, self._app, self._connection.org_id, self._connector)
        except BadRequestError as error:
            return Assumption("application", False, sentence_of(error))
        return Assumption("application", True, "an OAuth application is configured")

    def _tokens(self) -> Iterator[Assumption]:
        found = self._connection
        if found.state is ConnectionState.NEEDS_AUTH:
            yield Assumption("authorization", False, self._told())
            return
        with self._app.db.begin() as tx:
            sealed = connections.sealed(tx, found.id).tokens
        if sealed is None:
            told = "nobody has authorized it yet: follow the link, then check again"
            yield Assumption("authorization", False, told)
            return
        try:
            tokens = open_tokens(self._app, found.id, sealed)
        except SetupError as error:
            yield Assumption("authorization", False, f"{error}; authorize the connection again")
            return
        yield Assumption("authorization", True, _life(tokens))
        needed = [
            scope
            for scope in self._connector.authorized(found.metadata)
            if scope not in oauth.SIGN_IN
        ]
        if not needed or not tokens.scopes:
            yield Assumption("scopes", None, "the provider does not say what was granted")
        elif lacking := oauth.missing(needed, tokens):
            told = f"{', '.join(lacking)} was not granted: authorize again, leave everything ticked"
            yield Assumption("scopes", False, told)
        else:
            yield Assumption("scopes", True, f"granted: {', '.join(needed)}")

    def _told(self) -> str:
        failure = self._connection.failure
        return failure.message if failure else "the authorization was lost; authorize it again"

    def _open(self) -> "_Source":
        id, secrets = self._connection.id, self._secrets
        with self._app.db.begin() as tx:
            sealed = connections.sealed(tx, id).secrets if secrets is None else None
            refuse = item_filter.refusal(settings.read(tx, self._connection.org_id))
        return _Source(
            self._app,
            self._connector,
            self._connection,
            secrets=open_secrets(self._app, id, sealed) if secrets is None else secrets,
            refuse=refuse,
            heard=self._heard,
        )

    # --- the account ---

    def _account(self, source: "_Source") -> Iterator[Assumption]:
        connector = self._connector
        steps = {
            "identity": self._identity(source) if connector.oauth is not None else iter(()),
            "listing": self._listing(source),
            connector.provider: connector.assumptions(source),
        }
        for name, step in steps.items():
            for one in _guarded(name, step):
                yield one
                if (one.name, one.holds) == (TOKEN, False):
                    return  # whatever else is asked says the same
        yield from self._pushes(source)
        if self._connector.api_url is not None:
            if self._heard.good:
                yield Assumption(TOKEN, True, "the provider takes the access token")
            yield self._limits()
            yield self._clock()

    def _identity(self, source: "_Source") -> Iterator[Assumption]:
        source.access.token()  # it may have to be renewed first
        with self._app.db.begin() as tx:
            sealed = connections.sealed(tx, self._connection.id).tokens
        assert sealed is not None
        tokens = open_tokens(self._app, self._connection.id, sealed)
        who = self._connector.identify(source.api, tokens)
        if who.id == self._connection.account:
            yield Assumption("identity", True, f"the account is {who.name or who.id}")
        else:
            told = f"{who.name or who.id} is not the account of this connection"
            yield Assumption("identity", False, told)

    def _listing(self, source: "_Source") -> Iterator[Assumption]:
        first, seen, troubles = self._first(source)
        if troubles:
            yield Assumption("listing", False, " ".join(dict.fromkeys(troubles)))
        elif self._connector.picks and not source.metadata.get("resources"):
            yield Assumption("listing", False, "nothing was picked yet: pick what is to be synced")
        elif first is None:
            advice = self._connector.guide.if_nothing.removesuffix(".")
            empty = f"nothing was found. {advice}" if advice else "it is empty"
            told = f"nothing that could be a document among {seen} items" if seen else empty
            yield Assumption("listing", None, f"the listing works, but {told}")
        else:
            yield Assumption("listing", True, "the first page lists items that can be documents")
        if first is not None:
            yield from _guarded("fetch", self._fetch(source, first))

    def _first(self, source: "_Source") -> tuple[Item | None, int, list[str]]:
        """The first thing that can be fetched, how many were seen, and what went wrong."""
        troubles: list[str] = []
        seen = 0
        for change in self._connector.sample(source):
            source.going()
            match change:
                case Item():
                    return change, seen + 1, troubles
                case Verdict():
                    seen += 1
                case Trouble():
                    troubles.append(change.message)
                case _:
                    pass
            if seen >= MOST:
                break
        return None, seen, troubles

    def _fetch(self, source: "_Source", item: Item) -> Iterator[Assumption]:
        if item.text is not None:
            yield Assumption("fetch", True, "contents come with the listing")
            return
        try:
            got = self._connector.fetch(source, _as_remembered(item, source.since))
        except NotFoundError:
            yield Assumption("fetch", None, "the first item vanished before it was read")
            return
        except Permanent as error:
            # This one cannot be read; that says nothing of the others.
            holds = False if error.code in ("access_denied", "http_403") else None
            yield Assumption("fetch", holds, f"the first item cannot be read: {error}")
            return
        size = len(got.data) if isinstance(got, Blob) else len(got.text.encode(errors="replace"))
        yield Assumption("fetch", True, f"the first item was read ({size:,} bytes)")

    # --- what was learned on the way ---

    def _pushes(self, source: "_Source | None") -> Iterator[Assumption]:
        app, found, connector = self._app, self._connection, self._connector
        if not connector.pushes:
            told = f"{connector.name} pushes nothing; changes are found by the schedule"
            yield Assumption("pushes", None, told)
            return
        if connector.push_url(app.config, "") is None:
            minutes = app.config.poll_interval.total_seconds() / 60
            told = (
                "RECOLLECT_PUBLIC_URL is not an https URL, so nothing can be pushed; changes are"
                f" looked for every {minutes:g} minutes"
            )
            yield Assumption("pushes", None, told)
            return
        with app.db.begin() as tx:
            stored = push_registrations.hook_secrets(tx, found.provider)
        confirmed = any(one.confirmed for one in stored)
        if (proof := connector.proof(app.config, confirmed=confirmed)) is not None:
            yield proof
        elif source is not None and not connector.watches(source):
            yield Assumption("pushes", None, "nothing of this connection is to be pushed")
        elif found.pushes is not None and found.pushes.startswith("off"):
            yield Assumption("pushes", False, f"pushes are {found.pushes}")
        else:
            told = "are on" if found.pushes == "on" else "are registered after the first sync"
            yield Assumption("pushes", True if found.pushes == "on" else None, f"pushes {told}")

    def _limits(self) -> Assumption:
        if self._heard.limited:
            told = f"{self._heard.limited} calls were refused for asking too often"
            return Assumption("limits", False, told)
        if not self._heard.good:
            return Assumption("limits", None, "no call was answered")
        told = f"{self._heard.good} calls were answered, none refused for asking too often"
        return Assumption("limits", True, told)

    def _clock(self) -> Assumption:
        off = self._heard.off
        if off is None:
            return Assumption("clock", None, "the provider does not send the time")
        seconds = abs(off).total_seconds()
        if abs(off) > CLOCK:
            told = f"this machine's clock is off by {seconds:.0f} seconds: correct it"
            return Assumption("clock", False, told)
        return Assumption("clock", True, f"the clocks differ by {seconds:.0f} seconds")


class _ReadingApi(Api):
    """Calls that only read."""

    asks: re.Pattern[str] | None = None

    def call(self, method: str, path: str, **how: Any) -> EndpointAnswer:
        asks = self.asks is not None and self.asks.fullmatch(path.partition("?")[0])
        if method not in READING and not (method == "POST" and asks):
            raise Permanent(f"a check does not {method}", code="writes")
        return super().call(method, path, **how)


class _Listening(Endpoint):
    """The API's address, of this walk alone."""

    def __init__(self, url: str, heard: _Heard) -> None:
        super().__init__(url, timeout=PROGRESS, total=PATIENCE.total_seconds())
        self._heard = heard

    def request(self, method: str, path: str, **asked: Any) -> EndpointAnswer:
        answer = super().request(method, path, **asked)
        self._heard.hear(answer)
        return answer


class _Source(ConnectionSource):
    """As for the first sync of a connection that knows nothing, but for the time that it has."""

    def __init__(
        self,
        app: App,
        connector: Connector,
        connection: Connection,
        *,
        secrets: Mapping[str, Any],
        refuse: item_filter.Refuse,
        heard: _Heard,
    ) -> None:
        self.access = StoredAccess(app, connector, connection)
        super().__init__(
            app,
            connector,
            connection,
            access=self.access,
            secrets=secrets,
            refuse=refuse,
            claim=None,
            stop=threading.Event(),
        )
        self._until = time.monotonic() + PATIENCE.total_seconds()
        self._endpoint = None
        if connector.api_url is not None:
            self._endpoint = _Listening(api_url(app, connector), heard)
            self._api = _ReadingApi(
                self._endpoint,
                access=self.access,
                pause=self.pause,
                pace=self._pace,
                judge=connector.judge,
                headers=connector.headers(),
            )
            self._api.asks = connector.asks

    def close(self) -> None:
        if self._endpoint is not None:
            self._endpoint.close()

    def room(self) -> int:
        return self.limit

    def remembered(
        self, ids: Sequence[str] | None = None, *, branch: str | None = None
    ) -> Iterator[Remembered]:
        return iter(())

    def folders(self) -> Mapping[str, Folder]:
        return {}

    def going(self) -> None:
        if time.monotonic() > self._until:
            seconds = PATIENCE.total_seconds()
            raise Transient(f"it took longer than {seconds:.0f} seconds", code="timeout")


def _guarded(name: str, work: Iterator[Assumption]) -> Iterator[Assumption]:
    """What ends the work, as one more that does not hold."""
    try:
        yield from work
    except Reauthorize as error:
        told = str(error)
        again = "" if "authorize" in told else f"; {connection_queue.AGAIN}"
        yield Assumption(TOKEN, False, told + again)
    except LeaseLost:
        yield Assumption(name, False, "the connection was deleted meanwhile")
    except RecollectError as error:
        yield Assumption(name, False, sentence_of(error))


def _as_remembered(item: Item, now: datetime) -> Remembered:
    return Remembered(
        id=item.id,
        version=item.version,
        title=item.title,
        url=item.url,
        kind=item.kind,
        verdict=items.DOCUMENT,
        detail=item.detail,
        extra=item.extra,
        branch=item.branch,
        document_id=None,
        seen_at=now,
    )


def _life(tokens: Tokens) -> str:
    if tokens.expires_at is None:
        return "it is authorized; the access token does not say when it expires"
    until = tokens.expires_at.isoformat(timespec="seconds")
    if tokens.refresh is None:
        return f"it is authorized until {until}, and cannot be renewed without the user"
    return f"it is authorized; the access token is good until {until} and renewed by itself"
