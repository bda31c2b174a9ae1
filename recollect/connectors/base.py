"""What a connector is, what it works with during one sync, and what it may say.

A connector lists (`changes`: cheap, paged, one pass over what is new) and fetches (`fetch`: one
document, retried by itself, several at a time). It keeps no state between calls: what it must know
next time goes into the cursor of a `Checkpoint`, and what it knows of each thing stands in rows
that `Source.remembered` reads back.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar
from urllib.parse import unquote, urlsplit

from recollect.config import Config, ProviderSettings
from recollect.connectors.about import Application, Guide
from recollect.connectors.api import Api
from recollect.connectors.oauth import OAuth, Tokens
from recollect.connectors.pushes import FORGED, Inbox, Push, PushResult, Registration
from recollect.errors import BadRequestError, RequestError
from recollect.fetch import Endpoint, EndpointAnswer, Fetcher
from recollect.model import (
    Blob,
    ConnectionId,
    Extracted,
    Metadata,
    Plan,
    Remembered,
    Sitemap,
    WebPage,
)

Cursor = Mapping[str, Any]
"""Where to go on; JSON that only its connector reads. Small: maps belong in rows."""
EVERY_PLAN = frozenset(Plan)
ONE_PAGE = "one_page"
"""Code of a `Trouble`: most of a source looks like one thing, so it may not be the source."""


# --- what `changes` yields ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Item:
    """A thing at the provider that should be a document, as it is now.

    The same `version` means the same content: then title, url and metadata are brought up to date
    without fetching or embedding anything.
    """

    id: str
    """the provider's, which survives renames; unique within the connection"""
    version: str
    title: str | None = None
    url: str | None = None
    """where a person looks at it"""
    kind: str | None = None
    """document type in the contract's words; None: what extraction says"""
    metadata: Metadata = field(default_factory=dict[str, Any])
    """shown to users, searchable"""
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """what `fetch` and later syncs need; JSON, not shown"""
    branch: str = ""
    """part of the source that is listed by itself: a shared drive, a repository"""
    formerly: str | None = None
    """an earlier id of the same thing, where a rename changes ids"""
    tags: Sequence[str] = ()
    """container tags besides those of the connection"""
    text: str | None = None
    """Markdown, if the listing brought the content along; then `fetch` is not called"""
    modified_at: datetime | None = None
    """the provider's time; the newest stay when `documentLimit` does not admit all"""
    detail: str | None = None
    """a word for people: how it was found, or what changed"""
    confirm: bool = False
    """a document that it has changes only when another sync says so again (`Connector
    .confirms_after`)"""


@dataclass(frozen=True, slots=True)
class Gone:
    """The provider says that it is deleted, in the trash, or out of scope."""

    id: str


@dataclass(frozen=True, slots=True)
class Missing:
    """It was not found. Gone when another sync says so again (`Connector.confirms_after`); not
    before."""

    id: str
    detail: str
    branch: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """An answer for something that does not become a document, and has none from now on.

    With `keep`, a document that it already has stays as it is: a page that answers 500 today.
    """

    id: str
    kind: str
    """one word: `off_host`, `robots`, `too_large` …; counted by it as skipped. `planned`: not
    looked at yet, and not counted"""
    detail: str | None = None
    """a sentence for people, or the id of the page that it is a copy of"""
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    branch: str = ""
    keep: bool = False
    confirm: bool = False
    """a document that it has goes only when another sync says so again: a login page of a hotel
    answers for every address"""
    url: str | None = None
    title: str | None = None
    failed: bool = False
    """count it among the failures of the run"""
    counted: bool = True
    """False: a `Trouble` of the same run is about it"""


@dataclass(frozen=True, slots=True)
class Trouble:
    """A branch could not be listed: nothing of it may be taken as gone this time."""

    message: str
    """a sentence that says what to do; things are called by the provider's id, since the sentence
    outlives their deletion"""
    code: str = "provider_error"
    branch: str = ""
    away: bool = False
    """nothing of the source can be reached; where that lasts, the connection fails"""


@dataclass(frozen=True, slots=True)
class Listing:
    """From here on everything (of the branch) is listed."""

    branch: str = ""


@dataclass(frozen=True, slots=True)
class Listed:
    """That listing ended whole: what was not said since it began is gone.

    Not to be said of a listing that the provider calls incomplete, or that skipped a page.
    """

    branch: str = ""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder, for providers that do not tell paths; `parent` None: gone."""

    id: str
    name: str
    parent: str | None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A safe point: all that was said so far is stored together with the cursor.

    To be said at least every few hundred items; the last thing that `changes` says.
    """

    cursor: Cursor
    again: timedelta | None = None
    """after how long to sync again, though nobody wants it and it is not due: for what is not
    settled yet. That of the last one counts"""


Change = Item | Gone | Missing | Verdict | Trouble | Listing | Listed | Folder | Checkpoint


# --- what a connector works with ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LocalFolders:
    """Folders of this machine, as the operator's settings say."""

    open: Sequence[Path] = ()
    """that connections may read, with all below; absolute"""
    own: Sequence[Path] = ()
    """of the service itself, which none may"""

    @classmethod
    def of(cls, config: Config) -> Self:
        blobs = urlsplit(config.blobs)
        own = [Path(unquote(blobs.path))] if blobs.scheme == "file" else []
        return cls(config.folders, [config.data_dir.absolute(), *own])


@dataclass(frozen=True, slots=True)
class HostTurn:
    """When a crawl may ask a host. Seconds."""

    wait: float
    """until the turn that was taken, whatever else the host wants included"""
    rest: float
    """of these: the host asked for a pause"""
    guests: int
    """crawls that are there now, this one included"""


class Source(Protocol):
    """One connection during one sync, or one fetch.

    Threads do not share it, but for `fetcher`, `read`, `survey` and `sitemap`.
    """

    @property
    def connection_id(self) -> ConnectionId: ...
    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the caller gave and configured, secrets included."""
        ...

    @property
    def account(self) -> str | None:
        """The id of the account that authorized it."""
        ...

    @property
    def granted(self) -> Sequence[str]:
        """Scopes of the tokens in use; none where the provider does not say."""
        ...

    @property
    def limit(self) -> int:
        """`documentLimit`."""
        ...

    @property
    def api(self) -> Api:
        """The provider's API: authorized, polite, bounded. Only of connectors with `api_url`."""
        ...

    @property
    def fetcher(self) -> Fetcher:
        """The guarded door, for addresses that strangers or providers name. No credentials."""
        ...

    @property
    def crawl_delay(self) -> float:
        """Seconds between requests to one host, where the site does not ask for more."""
        ...

    @property
    def crawl_concurrency(self) -> int:
        """Requests to one host at once."""
        ...

    @property
    def local(self) -> LocalFolders:
        """What may be read on the machine of this process."""
        ...

    def turn(self, host: str, delay: float) -> HostTurn:
        """Take the next turn at a host, `delay` seconds before the one after it, over all crawls
        of all processes. Raises LeaseLost as `going` does, without delay."""
        ...

    def rest(self, host: str, seconds: float) -> None:
        """The host asks for a pause: nobody gets a turn there for that long."""
        ...

    def leave(self, host: str) -> None:
        """This crawl asks that host no more."""
        ...

    @property
    def since(self) -> datetime:
        """When this sync began; a sync that goes on after a crash keeps it."""
        ...

    @property
    def asked(self) -> bool:
        """Whether a user wants this sync, and does not see why it should leave anything out."""
        ...

    def room(self) -> int:
        """How many more documents the limit admits, those of the present batch not counted."""
        ...

    def remembered(
        self, ids: Sequence[str] | None = None, *, branch: str | None = None
    ) -> Iterator[Remembered]:
        """What earlier syncs and earlier batches of this one said; all of it without `ids`."""
        ...

    def folders(self) -> Mapping[str, Folder]:
        """All folders that were said and are not gone, by id."""
        ...

    def refused(self, title: str | None, url: str | None) -> str | None:
        """Why the settings' filter keeps it out (which pattern), or None: before fetching. Only of
        what is listed.

        A title of None is not known yet; what has none has an empty one.
        """
        ...

    def reads(self, head: bytes, name: str) -> bool:
        """Whether a file with this name that begins so is of a kind that can be read."""
        ...

    def read(self, blob: Blob) -> Extracted:
        """Text of bytes of any kind, by the sandbox; raises what `Sandbox.extract` raises."""
        ...

    def survey(self, blob: Blob) -> WebPage:
        """An HTML page with its links and what it says of itself, by the sandbox."""
        ...

    def sitemap(self, blob: Blob) -> Sitemap:
        """A sitemap (XML, gzip or text), by the sandbox."""
        ...

    def pause(self, seconds: float) -> None:
        """Wait; raises LeaseLost when the connection is deleted or the service stops meanwhile."""
        ...

    def going(self) -> None:
        """Raises LeaseLost when the connection is deleted or the service stops: ask often."""
        ...


@dataclass(frozen=True, slots=True)
class Account:
    """Who authorized: an id that never changes, and a name for people, an email if there is one."""

    id: str
    name: str | None


@dataclass(frozen=True, slots=True)
class Resource:
    """Something of the account that may be picked (a repository)."""

    id: str
    name: str
    full_name: str
    description: str | None = None
    private: bool = False
    default_branch: str | None = None
    updated_at: str | None = None


# --- looking at an account ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Assumption:
    """Something that must hold of a real account, and whether it does."""

    name: str
    """one word: `scopes`, `clock`"""
    holds: bool | None
    """None: it could not be determined, or nothing depends on it here"""
    sentence: str
    """for people: what was found, and what to do where it does not hold"""


# --- the operator's settings -------------------------------------------------------------------

SettingsT = TypeVar("SettingsT", bound=ProviderSettings)


def settings_of(config: Config, provider: str, kind: type[SettingsT]) -> SettingsT:
    """The settings of a provider; the defaults if none were read."""
    given = config.providers.get(provider)
    return given if isinstance(given, kind) else kind.model_construct()


# --- the connector -----------------------------------------------------------------------------


TAG_PATTERN = "containerTagRegex"
"""Key of the metadata under which a connector takes a pattern that finds container tags. No other
setting may make tags: a key that is limited to some sees no connection that makes others."""


class Connector(ABC):
    """Our code for one provider. One instance serves all connections; it holds no state."""

    provider: ClassVar[str]
    """as in the URL: `google-drive`"""
    name: ClassVar[str]
    """for people: `Google Drive`"""
    guide: ClassVar[Guide]
    """what people read about it, and the form of the metadata"""
    settings: ClassVar[type[ProviderSettings]] = ProviderSettings
    """what the operator may set; only with `oauth`"""
    kinds: ClassVar[Mapping[str, Literal["page", "file"]]] = MappingProxyType({})
    """types of documents that only it brings: pages that are written there, or files as they are"""
    subject: ClassVar[str | None] = None
    """key of the metadata that says what a connection is of, where no account does"""
    tree: ClassVar[bool] = False
    """whether the addresses of its things make a tree"""
    plans: ClassVar[frozenset[Plan]] = EVERY_PLAN
    interval: ClassVar[timedelta | None] = None
    """between scheduled syncs; None: the setting SYNC_INTERVAL"""
    confirms_after: ClassVar[timedelta] = timedelta()
    """how much later another sync must begin to confirm what one said of something missing"""
    api_url: ClassVar[str | None] = None
    """base URL of its API, unless the settings name another one"""
    oauth: ClassVar[OAuth | None] = None
    """None: ready as soon as it is created"""
    application: ClassVar[Application | None] = None
    """whose application it uses; None without `oauth`"""
    per_second: ClassVar[float | None] = None
    """calls that one connection may make, over all processes"""
    secrets: ClassVar[frozenset[str]] = frozenset()
    """keys of the metadata that are sealed and never shown"""
    pushes: ClassVar[bool] = False
    """whether `watches`, `subscribe` and `receive` are there; if not, only the schedule finds
    changes"""
    pulls: ClassVar[bool] = False
    """whether `inbox` is there"""
    largest_push: ClassVar[int | None] = None
    """Bytes of a push; None: as of any body that holds no content."""
    picks: ClassVar[bool] = False
    """whether resources must be configured before the first sync"""
    selects: ClassVar[Literal["repos", "folders", "labels"] | None] = None
    """what a sync may be limited to, in the wire's words; None: it takes everything"""
    asks: ClassVar[re.Pattern[str] | None] = None
    """paths below the API where a POST only reads"""

    def check(self, metadata: Mapping[str, Any], fetcher: Fetcher) -> dict[str, Any]:
        """At creation and change: the metadata to keep. Raises BadRequestError naming the fault.

        Looks addresses up at most; connects to nothing.
        """
        return dict(metadata)

    def obstacle(self, config: Config) -> str | None:
        """Why nobody can connect it under these settings, naming what to set; None: they can."""
        return None

    def admit(self, metadata: Mapping[str, Any], config: Config) -> None:
        """At creation and change, after `check`: raises BadRequestError for what the operator's
        settings keep from such a connection."""
        if (reason := self.obstacle(config)) is not None:
            raise BadRequestError(f"{self.provider}: {reason}")

    @abstractmethod
    def changes(self, source: Source, cursor: Cursor | None) -> Iterator[Change]:
        """What is new since the cursor (None: everything), ending on a Checkpoint.

        A cursor of a shape that it does not know counts as none. Raises CursorExpired when the
        provider forgot it, Reauthorize, Transient, Permanent.
        """
        ...

    def fetch(self, source: Source, item: Remembered) -> Blob | Extracted:
        """The content of an item that came without text.

        Raises NotFoundError when it vanished meanwhile, Permanent when it can never be read.
        """
        raise NotImplementedError(f"{self.provider} brings the content along")

    def ping(self, source: Source) -> None:
        """One cheap call that is answered as long as only single things are kept back or gone,
        where one thing may be told to wait (503). Raises what `changes` raises."""
        return

    def sample(self, source: Source) -> Iterator[Change]:
        """The beginning of a listing of everything, for a look at an account; it may be left off
        at any time. Raises what `changes` raises."""
        return self.changes(source, None)

    def assumptions(self, source: Source) -> Iterator[Assumption]:
        """What else must hold of a real account at this provider, by calls that only read.

        Raises what `changes` raises; what was said before counts.
        """
        yield from ()

    def judge(self, answer: EndpointAnswer) -> Exception | None:
        """What an answer means that this provider uses in a way of its own (a 403 that is a rate
        limit); None: what it means everywhere."""
        return None

    def headers(self) -> Mapping[str, str]:
        """Sent with each call of its API."""
        return {}

    def identify(self, api: Api, tokens: Tokens) -> Account:
        """Who authorized; only with `oauth`."""
        raise NotImplementedError

    def authorized(self, asked: Mapping[str, Any]) -> Sequence[str]:
        """Scopes to ask for with such metadata; only with `oauth`."""
        return self.oauth.scopes if self.oauth else ()

    def revoke(self, endpoint: Endpoint, tokens: Tokens, client: tuple[str, str]) -> bool:
        """Revoke the authorization without an `oauth.revoke_url`; False: there is no way.

        `endpoint` is that of the API, `client` the application's id and secret.
        """
        return False

    def resources(self, source: Source, page: int, per_page: int) -> tuple[list[Resource], int]:
        """One page of what may be picked, and how many there are; only with `picks`."""
        raise RequestError("Not implemented", f"{self.name} has nothing to pick")

    def configure(
        self, metadata: Mapping[str, Any], picked: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """The metadata with what was picked; raises BadRequestError. Only with `picks`."""
        raise BadRequestError(f"resources: {self.name} has nothing to pick")

    def selection(self, metadata: Mapping[str, Any]) -> Mapping[str, str] | None:
        """What the sync is limited to: ids with names; None: to nothing."""
        return None

    def select(self, metadata: Mapping[str, Any], ids: Sequence[str]) -> dict[str, Any]:
        """The metadata, limited to these; `check` looks at it. Only with `selects` and without
        `picks`."""
        raise BadRequestError(f"selection: {self.name} has nothing to select")

    def diagnose(self, config: Config) -> Iterator[Assumption]:
        """What `recollect doctor` says about the settings; it asks the provider nothing."""
        yield from ()

    def push_url(self, config: Config, registration: str) -> str | None:
        """Where its notices of a registration go; None where none can arrive.

        To us, if we have a public https address.
        """
        public = config.public_url
        if public is None or urlsplit(public).scheme != "https":
            return None
        return f"{public.rstrip('/')}/v3/hooks/{self.provider}?registration={registration}"

    def proof(self, config: Config, *, confirmed: bool) -> Assumption | None:
        """Whether pushes can be proved, where that takes a setting; None: it takes none, or there
        is one. `confirmed`: there is a confirmed secret of the application."""
        return None

    def hook_secrets(self, config: Config) -> Sequence[str]:
        """Active secrets of the application that the settings name, for `Push.secrets`."""
        return ()

    def push_config(self, config: Config) -> Mapping[str, Any]:
        """What `receive` finds in `Push.config`."""
        return {}

    def inbox(self, config: Config) -> Inbox | None:
        """Where its notices wait; None: the settings name no such place. Only with `pulls`.

        Raises SetupError that says which setting or file is at fault.
        """
        return None

    def watches(self, source: Source) -> Sequence[str]:
        """What pushes must be registered for, one word each; empty: no pushes."""
        return ()

    def subscribe(self, source: Source, registration: Registration) -> Registration:
        """Register; returns it with `remote` and `expires_at`. The handshake may arrive before
        the provider's answer does."""
        raise NotImplementedError

    def stands(self, api: Api, registration: Registration) -> bool:
        """Whether the provider still has it, where that can be asked cheaply; else True.

        Raises what `Api.call` raises.
        """
        return True

    def unsubscribe(self, api: Api, registration: Registration) -> None:
        """Best effort; the connection may be gone already."""
        raise NotImplementedError

    def reads(self, push: Push) -> bool:
        """Whether the body of a push is worth reading, told by all but its body, which is empty."""
        return push.registration is not None

    def receive(self, push: Push) -> PushResult:
        """Verify a push and say what it comes to. No calls of the provider."""
        return FORGED
