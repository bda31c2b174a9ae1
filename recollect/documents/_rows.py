"""Rows of documents: how they are read, bound to a tenant, and locked."""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any
from unicodedata import combining, normalize

from recollect.db import Tx, tenancy
from recollect.errors import (
    AmbiguousError,
    NotFoundError,
)
from recollect.index import terms
from recollect.model import (
    Changed,
    ConnectionId,
    Content,
    Document,
    DocumentId,
    Failure,
    OrgId,
    Stage,
    Status,
    StoredBlob,
    Tenant,
)

DIRECT = "memories"
"""`source` of documents that only bear the memories that were added with them."""
BELOW = ":*"
"""Ending of a tag in a query that means: any tag that begins so."""
TITLE_LENGTH = 80
"""Characters of a title that is made of the first line."""
TERM_SPACE = 1_000_000_000
"""Largest term number, and the dimensions of the sparse weights."""
COLUMNS = (
    "d.id, d.org_id, d.custom_id, d.container_tags, d.kind, d.title, d.url, d.source, d.filepath,"
    " d.metadata, d.status, d.stage, d.error_code, d.error_message, d.revision,"
    " d.indexed_revision, d.attempts, d.due_at, d.chunks, d.reused, d.embedded, d.removed,"
    " d.timings, d.warnings, d.document_date, d.task_type, d.connection_id, d.created_at,"
    " d.updated_at, d.group_pairs, d.archive_id, d.archive_path,"
    " case when d.unpacked is not null then"
    " (select count(*) from documents m where m.archive_id = d.id) end as members"
)
"""What `read` needs of a row of `documents d`."""
TEXT = (
    ", case when d.indexed_revision is not null then d.text"
    " when d.blob is null and d.url is null then d.content end as text"
)
"""the text that searches find, or what was accepted before there is one"""
_GIVEN = "d.blob is null and d.url is null and d.content is not null"
NEWEST = (
    ", case when " + _GIVEN + " and d.indexed_revision is distinct from d.revision then d.content"
    " when d.indexed_revision is not null then d.text || case when " + _GIVEN + " then"
    r"  regexp_replace(translate(substr(d.content, length(rtrim(d.content,"
    r"   E' \t\r\n\f\x0b\u0085')) + 1), E' \t', ''), E'\r\n?|[\f\x0b\u0085]', E'\n', 'g')"
    "  else '' end end as text"
)
"""the newest text that is known: one that was accepted counts at once, and is shown with the line
breaks at its end, so that who reads, edits and writes back in a row loses nothing"""
LATER = (
    "case when updated_at > now() and updated_at < now() + interval '1 minute'"
    " then updated_at + interval '1 microsecond' else now() end"
)
"""`updated_at` of a change: a transaction that began before another one may change a document after
it. Much further ahead is only a clock that was set back since."""
ORDER = " order by d.archive_id is not null, d.id"
"""in which rows are locked"""
_SUFFIX = re.compile(r"(?<=.)\.(?=[0-9]*[a-z])[a-z0-9]{1,10}$", re.IGNORECASE | re.ASCII)
"""of a file's name, as `.pdf` or `.7z`; the `.3` of `v1.2.3` is none"""
_JOINED = re.compile(r"\w+(?:[-./:@]\w+|(?!))*+")
_BETWEEN = re.compile(r"[\W_]+")
_APART = re.compile(r"[^\w+#]+|_+")
_ADDRESS = re.compile(r"\s*https?://\S+\s*", re.IGNORECASE)
REACH = tenancy.with_any("d.container_tags", "d.org_id") + " and d.gone_at is null"
"""what a tenant may touch: not what is gone, though its rows may still be there (`sweep`)"""


def read(row: Mapping[str, Any], tenant: Tenant | None = None) -> Document:
    """A row with the columns of `COLUMNS` (and `text`, if it was asked for) as a value.

    For a `tenant` without the tags that its key may not touch, whose names are not its business.
    """
    failure = None
    if row["error_message"] is not None:
        failure = Failure(row["error_code"], row["error_message"])
    changed = None
    if row["indexed_revision"] is not None:
        changed = Changed(row["chunks"], row["reused"], row["embedded"], row["removed"])
    return Document(
        id=DocumentId(row["id"]),
        org_id=OrgId(row["org_id"]),
        custom_id=row["custom_id"],
        container_tags=row["container_tags"] if tenant is None else own_tags(tenant, row),
        kind=row["kind"],
        title=row["title"],
        url=row["url"],
        source=row["source"],
        filepath=row["filepath"],
        metadata=row["metadata"],
        group=row["group_pairs"],
        status=Status(row["status"]),
        stage=Stage(row["stage"]) if row["stage"] else None,
        failure=failure,
        revision=row["revision"],
        indexed_revision=row["indexed_revision"],
        attempts=row["attempts"],
        due_at=row["due_at"],
        changed=changed,
        timings=row["timings"],
        warnings=row["warnings"],
        document_date=row["document_date"],
        task_type=row["task_type"],
        connection_id=ConnectionId(row["connection_id"]) if row["connection_id"] else None,
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        text=row.get("text"),
        archive_id=DocumentId(row["archive_id"]) if row["archive_id"] else None,
        archive_path=row["archive_path"],
        members=row["members"],
    )


def own_tags(tenant: Tenant, row: Mapping[str, Any]) -> list[str]:
    """The tags of a document that the tenant may touch."""
    carried = row["container_tags"]
    return [tag for tag in carried if tenant.tags is None or tag in tenant.tags]


def foreign_tags(tenant: Tenant, carried: Sequence[str]) -> list[str]:
    """Those that the tenant may not touch: what it does to the document leaves them on it."""
    return [tag for tag in carried if tenant.tags is not None and tag not in tenant.tags]


def content_of(row: Mapping[str, Any]) -> Content:
    blob = None
    if row["blob"] is not None:
        blob = StoredBlob(row["blob"], row["blob_name"], row["blob_mime"])
    return Content(
        kind=row["kind"],
        hash=row["content_hash"],
        text=row["content"],
        url=row["url"],
        blob=blob,
        forced=row["forced_kind"],
        extractor=row["extractor"],
        source_id=row["source_id"],
    )


def names(title: str | None, file: str | None, text: str) -> str:
    """By what the first passage of a document is found beside its text: its title and the name of
    its file, a line each, unless they stand in the text, and `_shortened` (docs/decisions/0054)."""
    given = list(dict.fromkeys(name for name in (title, file) if name))
    named = [name for name in given if not _stands(name, text)]
    return "\n".join([*named, *dict.fromkeys(form for name in given for form in _shortened(name))])


def is_called(asked: str, title: str | None, file: str | None) -> bool:
    """Whether a query is the whole title of a document, or name of its file, with its suffixes or
    without: capitals, accents and what stands between words do not count."""
    key = _words(asked)
    return bool(key) and any(key in _whole(name) for name in (title, file) if name)


@lru_cache(maxsize=4_096)
def _whole(name: str) -> frozenset[tuple[str, ...]]:
    shorter = _SUFFIX.sub("", name)
    return frozenset(map(_words, (name, shorter, _SUFFIX.sub("", shorter))))


@lru_cache(maxsize=1_024)
def _words(name: str) -> tuple[str, ...]:
    plain = "".join(one for one in normalize("NFKD", name.casefold()) if not combining(one))
    return tuple(word for word in _APART.split(plain) if word)


def _shortened(name: str) -> Iterator[str]:
    """As what else a search may look for it: `IMG_2034` for `IMG_2034.jpeg`, which is another word
    of the index as a whole; and what is longer than words are read, in parts."""
    joined = _JOINED.findall(normalize("NFC", name))
    if any(len(one) > terms.LONGEST_WORD for one in joined):
        yield " ".join(_BETWEEN.split(name)).strip()
    last = joined[-1] if joined else ""
    while (last := _SUFFIX.sub("", shorter := last)) != shorter and _BETWEEN.search(last):
        yield last


def _stands(name: str, text: str) -> bool:
    """Whether a name stands in a text, and not only within its words, as "art" in "party". One that
    was cut off may end within a word."""
    if name.endswith("…"):
        return name.rstrip("…") in text
    at = text.find(name)
    while at >= 0:
        end = at + len(name)
        if not (text[max(at - 1, 0) : at].isalnum() or text[end : end + 1].isalnum()):
            return True
        at = text.find(name, at + 1)
    return False


def is_address(given: str) -> bool:
    """Whether a content is one http(s) URL and nothing else: then its page is what is read."""
    return _ADDRESS.fullmatch(given) is not None


def text_content(text: str, *, kind: str = "text") -> Content:
    return Content(kind=kind, hash=hashlib.sha256(text.encode()).digest(), text=text)


def scope(org: OrgId, tags: Sequence[str]) -> list[int]:
    """The numbers that a document of these tags carries in the index: of the organisation, of
    each tag, and of what tags begin with (`team:*` for `team:a`). No number comes twice.
    """
    above = [
        tag[:end] + BELOW for tag in tags for end in range(1, len(tag)) if tag[end] == BELOW[0]
    ]
    return sought(org, [*tags, *above])


def sought(org: OrgId, tags: Sequence[str]) -> list[int]:
    """The numbers by which documents are found that carry all of these tags or `team:*`."""
    numbers = [terms.org_number(org), *(terms.tag_number(org, tag) for tag in tags)]
    return list(dict.fromkeys(numbers))


def stored(content: Content) -> dict[str, object]:
    blob = content.blob
    return {
        "kind": content.kind,
        "url": content.url,
        "text": content.text,
        "hash": content.hash,
        "blob": blob and blob.key,
        "blob_name": blob and blob.name,
        "blob_mime": blob and blob.mime,
        "forced": content.forced,
        "extractor": content.extractor,
        "source_id": content.source_id,
    }


def lock(tx: Tx, org: OrgId, *named: tuple[str, str]) -> None:
    """Each a word for what is named, and its name. In one order, so that two who lock several
    never wait for each other."""
    tx.execute(
        "select pg_advisory_xact_lock(hashtextextended(name, 0)) from unnest(%s::text[]) name",
        (sorted(f"{what} {org} {name}" for what, name in named),),
    )


def unknown(id: str) -> NotFoundError:
    return NotFoundError("Document not found", f"no document {id!r}")


def ambiguous(
    custom_id: str, advice: str = "use the id that the service gave it"
) -> AmbiguousError:
    return AmbiguousError(
        "Ambiguous customId", f"several documents have the customId {custom_id!r}; {advice}"
    )
