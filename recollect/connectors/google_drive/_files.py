"""What Drive says about a file, and what is remembered of it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recollect.connectors._json import as_list, as_name, as_object, as_word
from recollect.connectors.api import field_of
from recollect.connectors.base import Gone, Verdict
from recollect.model import Remembered

GOOGLE = "application/vnd.google-apps."
FOLDER = GOOGLE + "folder"
SHORTCUT = GOOGLE + "shortcut"
KINDS = {
    GOOGLE + "document": "google_doc",
    GOOGLE + "spreadsheet": "google_sheet",
    GOOGLE + "presentation": "google_slide",
}
NO_TARGETS = frozenset({FOLDER, SHORTCUT})
OUT_OF_REACH = "out_of_reach"
"""verdict on what shortcuts stand for and cannot be read"""
ENTRY = (
    "id,name,mimeType,parents,driveId,trashed,modifiedTime,md5Checksum,size,webViewLink,"
    "resourceKey,owners(displayName,emailAddress),"
    "shortcutDetails(targetId,targetMimeType,targetResourceKey)"
)


@dataclass(frozen=True, slots=True)
class DriveFile:
    """What Drive says about a file, as far as it is used."""

    id: str
    name: str
    mime: str
    parent: str
    """empty when the account may not see its folder, or there is none"""
    drive: str
    """its shared drive; empty: it is in none"""
    trashed: bool
    version: str
    modified: str
    size: int
    """-1: not told, as of Google's own kinds"""
    url: str | None
    owner: str
    key: str
    """of files that are shared by link, from before Drive made such links longer"""
    target: str
    """of a shortcut: what it stands for"""
    target_mime: str
    target_key: str


def keyed(id: str, key: str) -> dict[str, str]:
    """docs: guides/resource-keys."""
    return {"x-goog-drive-resource-keys": f"{id}/{key}"} if key else {}


def told_files(entries: Sequence[Any]) -> list[DriveFile]:
    return [told_file(entry) for entry in entries]


def told_file(entry: Any) -> DriveFile:
    """Raises Transient when something is missing without which nothing can be said of it."""
    id, mime = field_of(entry, "id", str), as_name(field_of(entry, "mimeType", str))
    modified = as_word(entry.get("modifiedTime"))
    parents, owners = as_list(entry.get("parents")), as_list(entry.get("owners"))
    owner = as_object(owners[0]) if owners else {}
    shortcut = as_object(entry.get("shortcutDetails"))
    size = as_word(entry.get("size"))
    return DriveFile(
        id=id,
        name=as_name(as_word(entry.get("name"))) or "Untitled",
        mime=mime,
        parent=as_word(parents[0]) if parents else "",
        drive=as_word(entry.get("driveId")),
        trashed=entry.get("trashed") is True,
        # Google's own kinds have no checksum. `version` rises with every view.
        version=as_word(entry.get("md5Checksum")) or modified or f"of size {size}",
        modified=modified,
        size=int(size) if re.fullmatch(r"[0-9]{1,18}", size) else -1,
        url=as_word(entry.get("webViewLink")) or None,
        owner=as_name(as_word(owner.get("emailAddress")) or as_word(owner.get("displayName"))),
        key=as_word(entry.get("resourceKey")),
        target=as_word(shortcut.get("targetId")),
        target_mime=as_word(shortcut.get("targetMimeType")),
        target_key=as_word(shortcut.get("targetResourceKey")),
    )


def away(row: Remembered) -> Gone | Verdict:
    """It is gone, but if shortcuts point to it, its row is kept: it may come back."""
    if not shortcuts_to(row):
        return Gone(row.id)
    return Verdict(
        row.id,
        OUT_OF_REACH,
        "A shortcut points to it, but it is deleted, in the trash, or not shared.",
        extra={**row.extra, "own": False},
        branch=row.branch,
        url=row.url,
        title=row.title,
    )


def refusal(file: DriveFile, branch: str, kind: str, detail: str) -> Verdict:
    return Verdict(
        file.id, kind, detail, extra=extra_of(file), branch=branch, url=file.url, title=file.name
    )


def extra_of(file: DriveFile) -> dict[str, Any]:
    """What is needed to say it again without asking."""
    kept = {
        "mime": file.mime,
        "parent": file.parent,
        "drive": file.drive,
        "modified": file.modified,
        "owner": file.owner,
        "key": file.key,
        "target": file.target,
    }
    return {name: value for name, value in kept.items() if value}


def known_file(row: Remembered) -> DriveFile:
    return DriveFile(
        id=row.id,
        name=row.title or "Untitled",
        mime=said_of(row, "mime"),
        parent=said_of(row, "parent"),
        drive=said_of(row, "drive"),
        trashed=False,
        version=row.version or "",
        modified=said_of(row, "modified"),
        size=-1,
        url=row.url,
        owner=said_of(row, "owner"),
        key=said_of(row, "key"),
        target="",
        target_mime="",
        target_key="",
    )


def said_of(row: Remembered, name: str) -> str:
    return as_word(row.extra.get(name))


def shortcuts_to(row: Remembered) -> list[str]:
    """The shortcuts through which it is in scope, too."""
    return [id for id in as_list(row.extra.get("via")) if isinstance(id, str)]
