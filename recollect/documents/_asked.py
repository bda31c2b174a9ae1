"""What callers ask for."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from recollect.documents import merge
from recollect.documents.filters import Filter
from recollect.model import (
    ConnectionId,
    Content,
    DocumentId,
    Metadata,
    MetadataValue,
    Status,
)


@dataclass(frozen=True, slots=True)
class NewDocument:
    """What a caller adds. None means: not said, keep what is there."""

    content: Content
    tags: Sequence[str]
    """container tags, at least one; the first is the scope of `custom_id`"""
    tagged: bool = True
    """whether the caller named the tags; if not, `custom_id` is looked for in all of them"""
    custom_id: str | None = None
    title: str | None = None
    source: str = "api"
    filepath: str | None = None
    metadata: Metadata | None = None
    group: Metadata | None = None
    """pairs that keep what is drawn from it apart; empty: none"""
    document_date: datetime | None = None
    task_type: str | None = None
    dreaming: str | None = None
    connection_id: ConnectionId | None = None
    archive_id: DocumentId | None = None
    archive_path: str | None = None
    retried: bool = False
    """whether the sender says that it sends this again, since it got no answer"""
    join: Callable[[str, str, bool], str] = lambda old, new, _: merge.merge(old, new).text
    """how the text goes together with the one that its customId has already; told whether that
    one came within seconds, so that the same once more may be a client's retry"""


@dataclass(frozen=True, slots=True)
class DocumentChange:
    """What a caller changes. None means: leave it."""

    content: Content | None = None
    custom_id: str | None = None
    title: str | None = None
    """stays whatever the content says; empty: that of the content, when it is next processed"""
    tags: Sequence[str] | None = None
    filepath: str | None = None
    metadata: Metadata | None = None
    group: Metadata | None = None
    """pairs that keep what is drawn from it apart; empty: none"""
    document_date: datetime | None = None
    task_type: str | None = None
    dreaming: str | None = None
    laid: Mapping[str, MetadataValue | None] | None = None
    """metadata that is laid over what is there; a value of None takes its key away"""
    clears: Collection[Literal["metadata", "group", "document_date"]] = ()
    """what becomes empty unless it is named above"""


@dataclass(frozen=True, slots=True)
class NewMember:
    """A file of an archive that is being finished. Its content has no blob if the archive held
    the same when it was last read."""

    path: str
    content: Content


@dataclass(frozen=True, slots=True)
class DocumentQuery:
    """Which documents to list, in which order; all conditions must hold."""

    id: DocumentId | None = None
    tags: Sequence[str] = ()
    filter: Filter | None = None
    filepath: str | None = None
    """exact, or a prefix when it ends in `/`"""
    archive: str | None = None
    """the id of one: its members"""
    statuses: Sequence[Status] = ()
    connections: Sequence[ConnectionId] | None = None
    touched_within: timedelta | None = None
    sort: Literal["created_at", "updated_at", "position"] = "created_at"
    """`position` is that of a chunk, in lists of those"""
    descending: bool = True
    limit: int = 10
    page: int = 1
    with_text: bool = False


@dataclass(frozen=True, slots=True)
class Said:
    """What a connection said of one of its documents before."""

    version: str | None
    title: str | None
    tags: Sequence[str]
    metadata: Metadata
    taken: Sequence[str] = ()
    """tags that a user took off the document before"""


@dataclass(frozen=True, slots=True)
class SyncedDocument:
    """What a connection says of one of its documents."""

    connection_id: ConnectionId
    source_id: str
    """the provider's id"""
    provider: str
    version: str
    """of the content; the same again means that there is nothing to do"""
    kind: str
    tags: Sequence[str]
    title: str | None
    url: str | None
    metadata: Metadata
    text: str | None = None
    """the content, if it is known; else it is fetched when the document is processed"""
