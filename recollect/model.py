"""The nouns as frozen values. Times are aware and UTC; offsets count characters, not bytes."""

import re
import secrets
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Generic, Literal, NewType, TypeVar, cast

ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
OrgId = NewType("OrgId", str)
KeyId = NewType("KeyId", str)
DocumentId = NewType("DocumentId", str)
ConnectionId = NewType("ConnectionId", str)

MetadataValue = str | float | bool
"""int counts as float, as in JSON."""
Metadata = Mapping[str, MetadataValue]
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
TURNING = re.compile("[\u202a-\u202e\u2066-\u2069]")
"""Signs for the direction of writing: a title would also turn round what is shown after it."""
_NO_CHARSETS = frozenset({"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"})
"""codecs of Python in which nobody writes texts, some of which take very long"""
_Anything = TypeVar("_Anything")


def storable(value: _Anything) -> _Anything:
    """The same with every text in it as PostgreSQL and UTF-8 can hold it.

    NUL and lone surrogates become U+FFFD, in keys and at any depth of a JSON value; offsets stay.
    """
    match value:
        case str():
            return cast("_Anything", _UNSTORABLE.sub("\ufffd", value))
        case Mapping():
            pairs = cast("Mapping[Any, Any]", value).items()
            return cast("_Anything", {storable(key): storable(one) for key, one in pairs})
        case list() | tuple():
            return cast("_Anything", [storable(one) for one in cast("Sequence[Any]", value)])
        case _:
            return value


def codec_of(charset: str) -> str | None:
    """Python's name for what a mail, a page or a file calls its charset, read as browsers read it:
    `gb2312` is GB 18030. None if there is no such charset, as of `undefined`.
    """
    from w3lib.encoding import resolve_encoding  # noqa: PLC0415 - only who reads texts pays

    try:
        name = resolve_encoding(charset)
        b"?".decode(name or "?", "replace")
    except (LookupError, ValueError):  # some of Python's codecs are not for text
        return None
    return None if name in _NO_CHARSETS else name


class Status(StrEnum):
    """Life cycle of a document. `queued` and `processing` have a `due_at`, the others have none."""

    QUEUED = "queued"
    PROCESSING = "processing"
    DONE = "done"
    FAILED = "failed"


class Stage(StrEnum):
    """Step within `processing`, in this order."""

    EXTRACTING = "extracting"
    CHUNKING = "chunking"
    EMBEDDING = "embedding"
    INDEXING = "indexing"


class Scope(StrEnum):
    """What a key may do; each includes the ones before."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


class Plan(StrEnum):
    FREE = "free"
    PRO = "pro"
    SCALE = "scale"
    ENTERPRISE = "enterprise"


@dataclass(frozen=True, slots=True)
class Org:
    """A tenant: owner of keys, settings, documents."""

    id: OrgId
    name: str
    plan: Plan
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who asks: an organisation, and the only container tags its key may touch (None: all).

    `key`: which key it was, for the record; None for the service itself.
    """

    id: OrgId
    tags: Sequence[str] | None = None
    key: KeyId | None = None


@dataclass(frozen=True, slots=True)
class Key:
    """An API key without its secret. `tags`: the only container tags it may touch; None: all."""

    id: KeyId
    org: Org
    name: str
    scope: Scope
    tags: Sequence[str] | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    rate_limit: int | None = None
    """requests that it may make in each `rate_window`; None: as many as any key"""
    rate_window: timedelta | None = None

    @property
    def state(self) -> Literal["active", "expired", "revoked"]:
        """Now, by this machine's clock."""
        if self.revoked_at is not None:
            return "revoked"
        is_over = self.expires_at is not None and self.expires_at <= datetime.now(UTC)
        return "expired" if is_over else "active"


class ConnectionState(StrEnum):
    """`pending`: the link to authorize was handed out; `needs_auth`: the user must do it again;
    `failed`: the provider was away for so long that nobody asks it any more, until a user wants."""

    PENDING = "pending"
    READY = "ready"
    SYNCING = "syncing"
    NEEDS_AUTH = "needs_auth"
    FAILED = "failed"


class Trigger(StrEnum):
    """Why a sync ran."""

    EVENT = "event"
    CRON = "cron"
    MANUAL = "manual"


@dataclass(frozen=True, slots=True)
class SyncRun:
    """What one sync did, in documents."""

    id: str
    trigger: Trigger
    status: str
    """`running`, `completed`, `partial` (a branch or items failed), `failed`"""
    started_at: datetime
    finished_at: datetime | None
    added: int
    changed: int
    unchanged: int
    removed: int
    failed: int
    skipped: Mapping[str, int]
    """by reason"""
    failure: "Failure | None"
    notes: Sequence[str]
    """sentences for people"""


@dataclass(frozen=True, slots=True)
class Connection:
    """One authorized link of an organisation to a provider. Holds no secrets."""

    id: ConnectionId
    org_id: OrgId
    provider: str
    container_tags: Sequence[str]
    reach: Sequence[str] | None
    """the only tags that what it finds may carry, those of the limited keys that made and changed
    it; None: all"""
    document_limit: int
    metadata: Mapping[str, Any]
    email: str | None
    account: str | None
    """id of the account at the provider"""
    state: ConnectionState
    failure: "Failure | None"
    paused: bool
    """nothing is synced on schedule or by pushes until the user resumes it"""
    cursor: Mapping[str, Any] | None
    due_at: datetime | None
    """when the next sync may begin; while syncing, the end of the lease"""
    parked_until: datetime | None
    """the provider asked for a pause until then"""
    parked_for: timedelta
    """how long that still is by the clock of the database, which wrote it; nothing: not any more"""
    failures: int
    """syncs in a row that failed"""
    pushes: str | None
    """how pushes stand: `on`, `off (reason)`; None when there are none"""
    pushed_at: datetime | None
    """when one last came"""
    expires_at: datetime | None
    """of the access token"""
    last_run: SyncRun | None
    last_synced_at: datetime | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class SyncClaim:
    """A worker's hold on a connection. `number` fences: it changes with each claim."""

    connection: Connection
    number: int
    run_id: str
    trigger: Trigger
    began_at: datetime
    secrets: str | None
    """sealed"""
    tokens: str | None
    """sealed"""


@dataclass(frozen=True, slots=True)
class Remembered:
    """What a connection knows of one thing at its provider."""

    id: str
    version: str | None
    title: str | None
    url: str | None
    kind: str | None
    """document type that the connector wants"""
    verdict: str
    """`document`, `over_limit`, `filtered`, `deleted` (by the user), or the connector's word"""
    detail: str | None
    extra: Mapping[str, Any]
    branch: str
    document_id: DocumentId | None
    seen_at: datetime
    """when a sync last said something of it"""
    missing_at: datetime | None = None
    """since when its document waits for another sync to say that it goes or changes"""

    @property
    def why(self) -> str | None:
        """The detail, for people."""
        if self.missing_at is None or self.document_id is None:
            return self.detail
        since = f"waits since {self.missing_at:%Y-%m-%d} for another sync that finds it so"
        return since if self.detail is None else f"{since}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes with what their sender said of them. `mime` and `name` are claims, not facts."""

    data: bytes
    mime: str | None = None
    name: str | None = None
    url: str | None = None


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """Bytes in the blob store: `key` finds them; one document owns them."""

    key: str
    name: str | None
    mime: str | None


@dataclass(frozen=True, slots=True)
class Content:
    """What a caller wants remembered: a text, a URL (as `text` and `url`), or stored bytes.

    `hash` (SHA-256 of text or bytes) tells whether it is the same as before.
    `forced` is the kind the caller insists on, against what the bytes say. `extractor` is who reads
    the bytes, where that was found already.
    """

    kind: str
    hash: bytes
    text: str | None = None
    url: str | None = None
    blob: StoredBlob | None = None
    forced: str | None = None
    extractor: str | None = None
    source_id: str | None = None
    """the provider's id of a thing that a connection fetches, unless `text` brings it along"""


@dataclass(frozen=True, slots=True)
class Place:
    """From offset `start` of a text on, until the next place, it stands there in the original.

    `at` names the spot in the original's own terms, counted from 1: `{"page": 3}` (slides, too),
    `{"sheet": "Q1", "row": 17}`, `{"chapter": "The Orchard"}`, `{"cell": 4}` of a notebook,
    `{"member": "a/b.txt"}` of an archive together with what its own kind says, `{"time": 83.5}`
    in seconds.
    """

    start: int
    at: Mapping[str, str | int | float]


@dataclass(frozen=True, slots=True)
class Member:
    """A file of an archive: its path in there, its kind, who reads it, and where its bytes stand
    among those of all members."""

    path: str
    """parts with slashes between them; those of archives within it included"""
    kind: str
    extractor: str
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class Extracted:
    """What extraction made of a blob: Markdown, and a title if the content names one.

    `kind` is the document type in the contract's words (`text`, `pdf`, `webpage` …).
    `warnings` are sentences for people about what may be missing or was hidden.
    `places` are in order of their starts; text before the first stands nowhere in particular.
    """

    text: str
    title: str | None = None
    kind: str = "text"
    warnings: Sequence[str] = ()
    places: Sequence[Place] = ()
    markdown: bool = True
    """whether lines that begin with # are headings; in source code they are not"""
    unheard: bool = False
    """whether it has sound that nobody has written down yet"""
    members: Sequence[Member] | None = None
    """of an archive that was unpacked"""


@dataclass(frozen=True, slots=True)
class Link:
    """A link of a page, absolute."""

    url: str
    followed: bool = True
    """False for `rel=nofollow` and its kin"""


@dataclass(frozen=True, slots=True)
class WebPage:
    """An HTML page as a crawler sees it."""

    extracted: Extracted
    links: Sequence[Link]
    """in the order of the page, each address once"""
    canonical: str | None = None
    """absolute; what the page says is its own address"""
    directives: Sequence[str] = ()
    """of meta robots, in lower case: `noindex`, `nofollow`, `none`, `unavailable_after: …`"""
    language: str | None = None
    published: str | None = None
    """ISO 8601, as the page says"""
    modified: str | None = None


@dataclass(frozen=True, slots=True)
class SitemapEntry:
    url: str
    modified: str | None = None


@dataclass(frozen=True, slots=True)
class Sitemap:
    """Addresses that a site names (sitemaps.org), as written."""

    pages: Sequence[SitemapEntry]
    sitemaps: Sequence[str]
    """further sitemaps, of an index"""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A searchable piece: `text == document_text[start:end]`; `hash` stands for the text.

    `place` says where it stands in the original (see `place.py`).
    """

    position: int
    start: int
    end: int
    text: str
    hash: bytes
    place: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Entry:
    """What the index holds for one chunk text: lexical terms with weights, and the vector."""

    hash: bytes
    text: str
    terms: Mapping[int, float]
    """term number (1 … 10^9) → BM25 weight of the document side"""
    vector: Any | None
    """float32 array of the embedder's dimensions, or None when there is no embedder"""


@dataclass(frozen=True, slots=True)
class Changed:
    """What the last finished revision did to the index, in chunks.

    `reused` and `embedded` count texts that differ, `chunks` all of them.
    """

    chunks: int
    reused: int
    embedded: int
    removed: int


@dataclass(frozen=True, slots=True)
class Failure:
    """Why the last attempt did not succeed."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Document:
    """One piece of content with a life cycle."""

    id: DocumentId
    org_id: OrgId
    custom_id: str | None
    container_tags: Sequence[str]
    kind: str
    title: str | None
    url: str | None
    source: str
    filepath: str | None
    metadata: Metadata | None
    status: Status
    stage: Stage | None
    failure: Failure | None
    revision: int
    """counter of accepted content changes, from 1"""
    indexed_revision: int | None
    """the revision that searchers see; None: none yet"""
    attempts: int
    due_at: datetime | None
    changed: Changed | None
    timings: Mapping[str, float]
    """milliseconds per stage of the last finished attempt"""
    warnings: Sequence[str]
    document_date: datetime | None
    task_type: str
    connection_id: ConnectionId | None
    created_at: datetime
    updated_at: datetime
    group: Metadata | None = None
    """pairs that keep what is drawn from it apart; filters see them beside the metadata"""
    text: str | None = None
    """only when asked for: stored text of the indexed revision, else the accepted content"""
    archive_id: DocumentId | None = None
    """the archive that it came out of, …"""
    archive_path: str | None = None
    """… and where it lay in there"""
    members: int | None = None
    """of an archive: how many documents came out of it"""


@dataclass(frozen=True, slots=True)
class Claim:
    """A worker's hold on a document. `number` fences: it changes with each claim."""

    document: Document
    number: int
    content: Content
    watched: bool = False
    """whether someone wants to be told of each stage, however brief"""


@dataclass(frozen=True, slots=True)
class Parts:
    """What put a chunk where it stands: how much each hint lifts it over the mean of the candidates
    of the same search, or lowers it. The weight of the hint is in it; the order is by the sum."""

    words: float = 0.0
    meaning: float = 0.0
    window: float = 0.0
    """words of the query close together"""
    pairs: float = 0.0
    """neighbouring words of the query next to each other"""
    conversation: float = 0.0
    """words of the query in the best passages of the same conversation"""
    name: float = 0.0
    """the query is the name of the document"""
    judge: float = 0.0
    """how far the reranker moved it, 0 if it was not asked"""

    @property
    def order(self) -> float:
        hints = self.words + self.meaning + self.window + self.pairs
        return hints + self.conversation + self.name


@dataclass(frozen=True, slots=True)
class AlsoIn:
    """Where else stands what a passage says."""

    document: "Document"
    position: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class HitChunk:
    """A chunk as a searcher sees it."""

    position: int
    start: int
    end: int
    text: str
    score: float
    """how likely it is that the chunk answers the query, 0 … 1"""
    is_relevant: bool
    """whether that is at least as likely as not; never for a neighbour that was asked for along"""
    similarity: float | None
    """cosine of its vector and the query's"""
    lexical: float
    """BM25 points"""
    share: float
    """of the query's words in the chunk's best window, each counted by its rarity, 0 … 1"""
    place: Mapping[str, Any] = field(default_factory=dict[str, Any])
    parts: Parts = Parts()
    reranked: float | None = None
    """what a reranker makes of it, if it was asked"""
    also_in: Sequence[AlsoIn] = ()
    """passages that say the same and are not shown"""


@dataclass(frozen=True, slots=True)
class Hit:
    """A document that answers a query, best chunks first."""

    document: Document
    score: float
    chunks: Sequence[HitChunk]


@dataclass(frozen=True, slots=True)
class Tag:
    """Container tag with the context that guides memory extraction."""

    org_id: OrgId
    name: str
    entity_context: str | None
    created_at: datetime


def random_id() -> str:
    """22 characters of [A-Za-z0-9]: 131 random bits."""
    return "".join(secrets.choice(ALPHABET) for _ in range(22))


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list; `number` counts from 1, `total` is over all pages."""

    items: Sequence[T]
    total: int
    number: int
    limit: int
