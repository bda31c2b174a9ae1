"""Adding from a form, under the same rules as `POST /v3/documents` and `/v3/documents/file`."""

import hashlib
import json
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import BinaryIO

from recollect import blobs, documents, extract, orgs, tags
from recollect.app import App
from recollect.documents import NewDocument
from recollect.errors import BadRequestError, PermissionDeniedError, RequestError
from recollect.fetch import parse_url
from recollect.model import (
    Content,
    Document,
    DocumentId,
    Metadata,
    MetadataValue,
    StoredBlob,
    Tenant,
    storable,
)

CONTENT_LIMIT = 50 * 1024 * 1024
METADATA_KEY = 64
METADATA_VALUE = 10_000
CUSTOM_ID = 255
_URL = re.compile(r"\s*https?://\S+\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Labels:
    """What stands beside a content. `tag` None: not said."""

    tag: str | None
    custom_id: str | None
    metadata: Metadata | None


@dataclass(frozen=True, slots=True)
class Sent:
    """A file as the browser sent it; `name` and `mime` are claims."""

    file: BinaryIO
    name: str | None
    mime: str | None


def labels(
    tenant: Tenant, tag: str, custom_id: str, rows: Sequence[tuple[str, str, str]]
) -> Labels:
    """Checked labels; empty fields mean absent. `rows`: metadata as (key, type, value).

    Raises BadRequestError, and PermissionDeniedError for a tag that the key may not touch.
    """
    named = allowed(tenant, tag)
    if custom_id and (len(custom_id) > CUSTOM_ID or not _one_line(custom_id)):
        raise BadRequestError(f"customId: 1 to {CUSTOM_ID} characters, none of them a control")
    metadata = {key: _value(key, kind, value) for key, kind, value in rows if key or value}
    return Labels(named[0] if named else None, custom_id or None, metadata or None)


def allowed(tenant: Tenant, tag: str, *, prefixes: bool = False) -> list[str]:
    """The tag, if one is named; `prefixes`: a search may ask for `team:*`.

    Raises BadRequestError for a name that is no tag, PermissionDeniedError for one that the key
    may not touch.
    """
    named = tags.check([tag] if tag else [], "tag", prefixes=prefixes)
    if tenant.tags is not None and tag and tag not in tenant.tags:
        raise PermissionDeniedError("Forbidden", f"tag: this key may not use {tag!r}")
    return named


def add_text(app: App, tenant: Tenant, labels: Labels, text: str) -> Document:
    """A text, or a content that is one http(s) URL and nothing else, which is fetched."""
    text = storable(text.replace("\r\n", "\n"))  # forms send CRLF whatever was typed
    if len(text.encode()) > CONTENT_LIMIT:
        raise BadRequestError(f"content: at most {CONTENT_LIMIT:,} bytes")
    if not text.strip():
        raise BadRequestError("content: must not be empty")
    if _URL.fullmatch(text):
        url = parse_url(text.strip())
        digest = hashlib.sha256(url.encode()).digest()
        content = Content(kind="webpage", hash=digest, text=text.strip(), url=url)
    else:
        content = documents.text_content(text)
    return _add(app, tenant, labels, content)


def add_file(app: App, tenant: Tenant, labels: Labels, sent: Sent) -> Document:
    limit = app.config.max_file_mb * 1024 * 1024
    data = sent.file.read(limit + 1)
    if len(data) > limit:
        raise BadRequestError(f"file: at most {app.config.max_file_mb} MB ({limit:,} bytes)")
    if not data:
        raise BadRequestError("file: is empty")
    name = extract.safe_name(sent.name)
    mime = storable(sent.mime or "")[:255] or None
    kind = extract.detect(data[: extract.HEAD], name=name, mime=mime)
    if kind is None:
        raise BadRequestError(f"file: this kind is not supported; {extract.supported()}")
    key = blobs.new_key(tenant.id, data)
    app.blobs.put(key, data)
    content = Content(
        kind=kind.kind, hash=hashlib.sha256(data).digest(), blob=StoredBlob(key, name, mime)
    )
    try:
        return _add(app, tenant, labels, content, title=name, source="upload")
    except RequestError:
        app.blobs.delete(key)
        raise


def _add(
    app: App,
    tenant: Tenant,
    labels: Labels,
    content: Content,
    *,
    title: str | None = None,
    source: str = "api",
) -> Document:
    default = tenant.tags[0] if tenant.tags else tags.DEFAULT
    new = NewDocument(
        content=content,
        tags=[labels.tag or default],
        tagged=labels.tag is not None,
        custom_id=labels.custom_id,
        title=title,
        source=source,
        metadata=labels.metadata,
    )
    with app.db.begin() as tx:
        document = documents.add(tx, tenant, new, DocumentId(orgs.random_id()))
        tags.ensure(tx, tenant.id, [labels.tag] if labels.tag else document.container_tags)
    return document


def _value(key: str, kind: str, value: str) -> MetadataValue:
    if not 1 <= len(key) <= METADATA_KEY or not _one_line(key):
        raise BadRequestError(
            f"metadata: key {key[:80]!r}: 1 to {METADATA_KEY} characters, none of them a control"
        )
    match kind:
        case "number":
            return _number(key, value)
        case "boolean":
            if value.strip().lower() not in ("true", "false"):
                raise BadRequestError(f"metadata: {key}: must be true or false")
            return value.strip().lower() == "true"
        case _:
            if len(value) > METADATA_VALUE:
                raise BadRequestError(f"metadata: {key}: at most {METADATA_VALUE:,} characters")
            return storable(value)


def _number(key: str, value: str) -> float:
    try:
        found: object = json.loads(value)
        if isinstance(found, int | float) and not isinstance(found, bool) and isfinite(found):
            return found
    except (ValueError, OverflowError, RecursionError):
        pass
    raise BadRequestError(f"metadata: {key}: {value[:40]!r} is not a number")


def _one_line(value: str) -> bool:
    return not any(unicodedata.category(character) in ("Cc", "Cs") for character in value)
