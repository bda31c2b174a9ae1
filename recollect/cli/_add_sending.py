"""One source, in the thread that sends it."""

import hashlib
import io
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from recollect.cli._add_ledger import LedgerEntry
from recollect.cli._add_sources import (
    LARGEST,
    LONGEST_LABEL,
    SETTLED,
    STDIN,
    TOO_LARGE,
    UNKNOWN_MIME,
    AddReport,
    AddTarget,
    Job,
    KnownDocuments,
    Outcome,
    SharedLabels,
    identity,
    mime_of,
    printable,
    refusal,
    why_unreadable,
)
from recollect.cli.client import DocumentRow, Service
from recollect.errors import (
    AuthenticationError,
    BadRequestError,
    NotFoundError,
    PermissionDeniedError,
    RequestError,
    Transient,
)
from recollect.extract import HEAD


@dataclass(frozen=True, slots=True)
class FileState:
    """What a file is now."""

    size: int
    mtime: int
    hash: str
    head: bytes


def attempt(source: str, work: Job) -> AddReport:
    """A source that cannot be added is a fact about it; without permission all would fail alike."""
    try:
        return work()
    except (AuthenticationError, PermissionDeniedError):
        raise
    except BadRequestError as error:
        return AddReport(source, Outcome.FAILED, reason=error.details)
    except (RequestError, Transient) as error:
        return AddReport(source, Outcome.FAILED, reason=str(error))
    except OSError as error:
        return AddReport(source, Outcome.FAILED, reason=why_unreadable(error))


def bring_file(
    service: Service, target: AddTarget, known: KnownDocuments, labels: SharedLabels
) -> AddReport:
    file, entry = target.file, target.entry
    now = time.time_ns()
    look = _look(file.path, entry)
    before = _standing(service, target, known)
    if before and _is_sent(entry, look, labels) and before.status != "failed":
        noted = replace(entry, size=look.size, mtime=look.mtime, noted=now) if entry else None
        return _unchanged(target, before, noted)
    if reason := refusal(look.size, look.head, file.path.name):  # it changed since it was found
        return AddReport(target.label, Outcome.FAILED, reason=reason)
    answer = service.upload(
        lambda: file.path.open("rb"),
        printable(file.path.name),
        mime_of(file.path.name),
        {
            **labels.fields(),
            "customId": target.custom_id,
            "filepath": printable(target.label)[-LONGEST_LABEL:],
        },
    )
    sent = LedgerEntry(
        path=str(file.path),
        size=look.size,
        mtime=look.mtime,
        hash=look.hash,
        custom_id=target.custom_id,
        label=target.label,
        metadata=labels.metadata_text or (entry.metadata if entry else None),
        document=answer["id"],
        noted=now,
    )
    # What else the service holds is known of folders only.
    is_new = before is None and (not file.named or _is_new(service, answer["id"]))
    return _report(target.label, answer, labels, is_new=is_new, entry=sent)


def foresee_file(
    service: Service, target: AddTarget, known: KnownDocuments, labels: SharedLabels
) -> AddReport:
    """What `bring_file` would do; nothing is sent."""
    before = _standing(service, target, known)
    if before and before.status != "failed":
        if _is_sent(target.entry, _look(target.file.path, target.entry), labels):
            return _unchanged(target, before, None)
    elif target.file.named:
        return foresee(service, target.label, target.custom_id)
    return AddReport(target.label, Outcome.UPDATED if before else Outcome.ADDED)


def foresee(service: Service, source: str, custom_id: str | None) -> AddReport:
    """What adding under a customId would do, as far as is known without the content."""
    if custom_id is None:
        return AddReport(source, Outcome.ADDED)
    with suppress(NotFoundError):
        service.document(custom_id)
        return AddReport(source, Outcome.UPDATED)
    return AddReport(source, Outcome.ADDED)


def bring_url(service: Service, url: str, id: str | None, labels: SharedLabels) -> AddReport:
    body = {**labels.body(), "content": url, "customId": id or identity(url)}
    answer = service.send("POST", "/v3/documents", body)
    return _report(url, answer, labels, is_new=_is_new(service, answer["id"]))


def bring_bytes(service: Service, data: bytes, id: str | None, labels: SharedLabels) -> AddReport:
    """Text is added as such; anything else is sent as a file, so that its bytes decide."""
    if len(data) > LARGEST:
        return AddReport(STDIN, Outcome.FAILED, reason=TOO_LARGE)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        fields = labels.fields() | ({"customId": id} if id else {})
        answer = service.upload(lambda: io.BytesIO(data), "stdin", UNKNOWN_MIME, fields)
    else:
        body = {**labels.body(), "content": text, "customId": id}
        answer = service.send("POST", "/v3/documents", body)
    return _report(STDIN, answer, labels, is_new=_is_new(service, answer["id"]))


def _look(path: Path, entry: LedgerEntry | None) -> FileState:
    """Read the file, unless its size and time prove that it is as the ledger has it."""
    with path.open("rb") as file:
        found = os.fstat(file.fileno())
        head = file.read(HEAD)
        file.seek(0)
        if (
            entry is not None
            and (found.st_size, found.st_mtime_ns) == (entry.size, entry.mtime)
            and entry.noted - entry.mtime > SETTLED
        ):
            return FileState(found.st_size, found.st_mtime_ns, entry.hash, head)
        digest = "" if found.st_size > LARGEST else hashlib.file_digest(file, "sha256").hexdigest()
        return FileState(found.st_size, found.st_mtime_ns, digest, head)


def _standing(service: Service, target: AddTarget, known: KnownDocuments) -> DocumentRow | None:
    """The document that the file had so far, if it is still there."""
    if target.entry is None:
        return known.by_custom_id.get(target.custom_id)
    if target.entry.document in known.by_id:
        return known.by_id[target.entry.document]
    try:
        return DocumentRow.of(service.document(target.entry.document))
    except NotFoundError:
        return None


def _is_sent(entry: LedgerEntry | None, look: FileState, labels: SharedLabels) -> bool:
    """Whether the service has these bytes and this metadata."""
    if entry is None or entry.hash != look.hash:
        return False
    return labels.metadata_text in (None, entry.metadata)


def _unchanged(target: AddTarget, before: DocumentRow, noted: LedgerEntry | None) -> AddReport:
    return AddReport(
        target.label,
        Outcome.UNCHANGED,
        before.id,
        before.status,
        entry=noted,
        is_archive=bool(before.members),
    )


def _is_new(service: Service, id: str) -> bool:
    return service.document(id)["latestRevision"] == 1


def _report(
    source: str,
    answer: Mapping[str, Any],
    labels: SharedLabels,
    *,
    is_new: bool,
    entry: LedgerEntry | None = None,
) -> AddReport:
    # `done` at once: the content is what it was. What changed, if anything, are the labels.
    if answer["status"] == "done":
        outcome = Outcome.UPDATED if labels.metadata else Outcome.UNCHANGED
    else:
        outcome = Outcome.ADDED if is_new else Outcome.UPDATED
    return AddReport(source, outcome, answer["id"], answer["status"], entry=entry)
