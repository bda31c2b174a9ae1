"""Taking documents in: the rules that the API and the console share."""

import hashlib
import json
import unicodedata
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from math import isfinite
from typing import Any, BinaryIO, Literal, cast

from recollect import blobs, documents, extract
from recollect.app import App
from recollect.db import Tx
from recollect.documents import DocumentChange, Joined, NewDocument, Unjoined
from recollect.errors import (
    BadRequestError,
    ConflictError,
    Contended,
    Issue,
    RequestError,
    Unavailable,
)
from recollect.fetch import parse_url
from recollect.model import (
    Content,
    Document,
    DocumentId,
    Metadata,
    StoredBlob,
    Tenant,
    storable,
)
from recollect.orgs import orgs, tags

CONTENT_LIMIT = 50 * 1024 * 1024
"""bytes of a text"""
METADATA_KEYS = 1_000
METADATA_KEY = 64
METADATA_VALUE = 10_000
METADATA_BYTES = 100_000
"""of all keys and values together"""
CUSTOM_ID = 255
JOINS = 5
"""tries to join a long text to one that others change meanwhile"""
TOGETHER = 50
"""Documents of a batch that one transaction adds: others wait for the locks of all."""
TOGETHER_SIZE = 200_000
"""characters of them"""


@dataclass(frozen=True, slots=True)
class Labels:
    """What stands beside a content. `tags`, checked by `tags.asked`: those that were named, none
    if none was."""

    tags: Sequence[str] = ()
    custom_id: str | None = None
    metadata: Metadata | None = None
    group: Metadata | None = None
    entity_context: str | None = None
    filepath: str | None = None
    document_date: datetime | None = None
    task_type: Literal["memory", "superrag"] | None = None
    dreaming: Literal["dynamic", "instant"] | None = None
    retried: bool = False
    """whether the sender says that it sends this again, since it got no answer"""


@dataclass(frozen=True, slots=True)
class Sent:
    """A file as it was sent; `name` and `mime` are claims, `forced` is the sender's word."""

    file: BinaryIO
    name: str | None
    mime: str | None
    forced: str | None = None


def content_of(app: App, given: str) -> Content:
    """A content that is one http(s) URL and nothing else is fetched; all else is text.

    Raises BadRequestError for a URL that may not be fetched, as far as the URL alone can tell.
    """
    if documents.is_address(given):
        url = parse_url(given.strip(), allow_networks=app.config.allow_networks)
        digest = hashlib.sha256(url.encode()).digest()
        return Content(kind="webpage", hash=digest, text=given.strip(), url=url)
    return documents.text_content(given)


def take(
    app: App,
    tenant: Tenant,
    labels: Labels,
    content: Content,
    *,
    title: str | None = None,
    source: str = "api",
) -> Document:
    """Add a document, or change the one of the customId; raises RequestError."""
    new = _new(tenant, labels, content, title=title, source=source)
    return put(app, tenant, new, labels.entity_context)


def take_all(
    app: App, tenant: Tenant, wanted: Sequence[tuple[Labels, Content]]
) -> list[Document | RequestError]:
    """`take` for texts, each on its own: why one was refused stands in its place. Raises
    Unavailable, and then some may be there."""
    outcomes: list[Document | RequestError] = []
    for run in _runs(wanted):
        with suppress(RequestError, Contended):
            if together := take_together(app, tenant, run):
                outcomes += together
                continue
        for labels, content in run:
            try:
                outcomes.append(take(app, tenant, labels, content))
            except RequestError as error:
                outcomes.append(error)
    return outcomes


def _runs(
    wanted: Sequence[tuple[Labels, Content]],
) -> Generator[Sequence[tuple[Labels, Content]]]:
    """Neighbours that one transaction may take."""
    run: list[tuple[Labels, Content]] = []
    size = 0
    for labels, content in wanted:
        length = len(content.text or "")
        full = len(run) == TOGETHER or size + length > TOGETHER_SIZE
        if run and (full or labels.entity_context != run[0][0].entity_context):
            yield run
            run, size = [], 0
        run.append((labels, content))
        size += length
    if run:
        yield run


def take_together(
    app: App, tenant: Tenant, run: Sequence[tuple[Labels, Content]]
) -> list[Document] | None:
    """`take` for several texts with one entity context, in one transaction; None, and nothing is
    written, unless all are new. Raises RequestError, and Contended."""
    news = [_new(tenant, labels, content) for labels, content in run]
    with app.db.begin() as tx:
        if not documents.all_new(tx, tenant, news):
            return None
        # Before the documents, whose trigger would make them in no order.
        carried = {tag for new in news for tag in new.tags}
        tags.ensure(tx, tenant.id, list(carried), run[0][0].entity_context)
        return documents.insert_all(tx, tenant.id, news)


def _new(
    tenant: Tenant,
    labels: Labels,
    content: Content,
    *,
    title: str | None = None,
    source: str = "api",
) -> NewDocument:
    return NewDocument(
        content=content,
        tags=labels.tags or tags.asked(tenant, None, None, default=True),
        tagged=bool(labels.tags),
        custom_id=labels.custom_id,
        title=title,
        source=source,
        filepath=labels.filepath,
        metadata=labels.metadata,
        group=labels.group,
        document_date=labels.document_date,
        task_type=labels.task_type,
        dreaming=labels.dreaming,
        retried=labels.retried,
    )


def put(app: App, tenant: Tenant, new: NewDocument, entity_context: str | None) -> Document:
    """Add a document with its tags, or change the one of the customId; long texts are joined
    between two looks at the document, while others may change it. Raises RequestError."""
    joined: Joined | None = None
    for _ in range(JOINS):
        try:
            return app.db.write(partial(_put, tenant, new, entity_context, joined))
        except Unjoined as found:
            joined = documents.join(found, new)
    raise ConflictError(
        "Conflict",
        f"customId: the text of {new.custom_id!r} was changed by others {JOINS} times while yours"
        " was joined to it; send it again",
    )


def _put(
    tenant: Tenant, new: NewDocument, entity_context: str | None, joined: Joined | None, tx: Tx
) -> Document:
    document = documents.add(tx, tenant, new, DocumentId(orgs.random_id()), joined=joined)
    if entity_context is not None:
        # Without a tag in the request the customId may have found one of any tag.
        named = new.tags if new.tagged else document.container_tags
        tags.ensure(tx, tenant.id, named, entity_context)
    return document


def change(
    app: App,
    tenant: Tenant,
    id: str,
    change: DocumentChange,
    entity_context: str | None = None,
    *,
    judge: Callable[[Document], object] | None = None,
) -> Document:
    """Change a document, and the context of its tags that the tenant may touch; as
    `documents.update`. `judge` sees the stored document, locked, and raises if that is not what
    was to be changed."""

    def write(tx: Tx) -> Document:
        if judge is not None:
            judge(documents.get(tx, tenant, id, lock=True))
        document = documents.update(tx, tenant, id, change)
        if change.tags or entity_context is not None:
            tags.ensure(tx, tenant.id, document.container_tags, entity_context)
        return document

    return app.db.write(write)


def take_file(app: App, tenant: Tenant, labels: Labels, sent: Sent) -> Document:
    """The kind is found by the bytes, then the name, then what was said; raises RequestError."""
    with file_of(app, tenant, sent) as content:
        title = content.blob.name if content.blob else None
        return take(app, tenant, labels, content, title=title, source="upload")


@contextmanager
def file_of(app: App, tenant: Tenant, sent: Sent) -> Generator[Content]:
    """The stored bytes as a content, which goes again where what is done with it is refused.

    Raises BadRequestError for one that is too large, empty, or of no kind that can be read.
    """
    limit = app.config.max_file_mb * 1024 * 1024
    data = sent.file.read(limit + 1)
    if len(data) > limit:
        raise BadRequestError(f"file: at most {app.config.max_file_mb} MB ({limit:,} bytes)")
    if not data:
        raise BadRequestError("file: is empty")
    # How browsers and clients send a quotation mark in the name of a file (WHATWG, multipart).
    name = extract.safe_name((sent.name or "").replace("%22", '"'))
    mime = storable(sent.mime or "")[:255] or None
    kind = kind_of(data[: extract.HEAD], name, mime, sent.forced)
    key = blobs.new_key(tenant.id, data)
    app.blobs.put(key, data)
    content = Content(
        kind=kind.kind,
        hash=hashlib.sha256(data).digest(),
        blob=StoredBlob(key, name, mime),
        forced=sent.forced,
        extractor=kind.extractor,
    )
    try:
        yield content
    except RequestError:
        with suppress(Unavailable):  # then it is swept
            app.blobs.delete(key)
        raise


def kind_of(
    head: bytes, name: str | None, mime: str | None, forced: str | None = None
) -> extract.Format:
    """What a file is, by its first bytes (`extract.HEAD`); raises BadRequestError for one of no
    kind that can be read."""
    kind = extract.detect(head, name=name, mime=mime, forced=forced)
    if kind is None:
        raise BadRequestError(f"file: this kind is not supported. {extract.nearest(name)}")
    return kind


def flat(app: App, metadata: Metadata | None) -> Metadata | None:
    """Arrays of strings are refused unless the settings allow them."""
    if app.config.metadata_arrays == "refuse":
        for key, value in (metadata or {}).items():
            if isinstance(value, list):
                fault = f"{key}: arrays are not allowed as values"
                raise BadRequestError(f"metadata: {fault}", [Issue(["metadata", key], fault)])
    return metadata


# --- what may stand in a field: each raises ValueError with what is wrong -------------------------


def is_one_line(value: str) -> bool:
    """Neither control characters nor halves of surrogate pairs."""
    return not any(unicodedata.category(character) in ("Cc", "Cs") for character in value)


def plain(value: str) -> str:
    """For identifiers, which must come back as they were sent: refuse what cannot be stored."""
    if not is_one_line(value):
        raise ValueError("must not contain control characters")
    return value


def flag(value: object) -> bool:
    """true or false, or the word for it: "no", "off" and 0 may be meant otherwise. Raises
    ValueError."""
    words = {"true": True, "false": False}
    found = words.get(value.lower()) if isinstance(value, str) else value
    if not isinstance(found, bool):
        raise ValueError("must be true or false")
    return found


def text(value: str) -> str:
    """A content."""
    if len(value) > CONTENT_LIMIT // 4 and len(value.encode()) > CONTENT_LIMIT:
        raise ValueError(f"at most {CONTENT_LIMIT:,} bytes")
    if not value.strip():
        raise ValueError("must not be empty")
    return value


def metadata(value: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays of strings pass here; whether the service takes them is a setting (see `flat`)."""
    if len(value) > METADATA_KEYS:
        raise ValueError(f"at most {METADATA_KEYS:,} keys")
    for key in value:
        if not 1 <= len(key) <= METADATA_KEY or not is_one_line(key):
            raise ValueError(
                f"key {key[:80]!r}: 1 to {METADATA_KEY} characters, none of them a control"
            )
    checked = {key: _metadata_value(key, found) for key, found in value.items()}
    size = len(json.dumps(checked, ensure_ascii=False).encode(errors="replace"))
    if size > METADATA_BYTES:
        raise ValueError(f"at most {METADATA_BYTES:,} bytes in all, these are {size:,}")
    return checked


def _metadata_value(key: str, value: object) -> object:
    match value:
        case str():
            if len(value) > METADATA_VALUE:
                raise ValueError(f"{key}: at most {METADATA_VALUE:,} characters")
            return storable(value)
        case bool():
            return value
        case int() | float():
            if not _finite(value):
                raise ValueError(f"{key}: must be a finite number")
            return value
        case list() if all(isinstance(element, str) for element in cast("list[object]", value)):
            return [_metadata_value(key, element) for element in cast("list[object]", value)]
        case dict() | list():
            kind = "objects" if isinstance(value, dict) else "arrays"
            raise ValueError(f"{key}: {kind} are not allowed as values")
        case _:
            raise ValueError(f"{key}: must be a string, a number or a boolean")


def _finite(number: float) -> bool:
    try:
        return isfinite(number)
    except OverflowError:  # an integer beyond all floats, which no reader of JSON keeps exactly
        return False
