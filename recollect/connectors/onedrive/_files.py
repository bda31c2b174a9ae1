"""What Graph says about a file, and what is remembered of it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recollect.connectors._json import (
    LONGEST_NAME,
    UNPRINTABLE,
    as_name,
    as_object,
    as_time,
    as_word,
)
from recollect.connectors.api import field_of
from recollect.connectors.base import Item, Verdict
from recollect.model import Remembered

KIND = "onedrive"
"""type of the documents"""
LARGEST_FILE = 50_000_000
"""bytes, as for an upload"""
SECTIONS = (".one", ".onetoc2")
"""ends of the names of what is in a notebook; drives for work or school list it"""
FIELDS = (
    "id,name,size,webUrl,file,folder,package,remoteItem,malware,deleted,root,parentReference,cTag,"
    "publication,createdBy,lastModifiedBy,lastModifiedDateTime"
)

SHORTENED = re.compile(r"\A[0-9A-Fa-f]{12,15}(?=!|\Z)")
"""the id of a personal drive, with which the ids of its things begin, if zeros in front of its 16
digits were left out, as Graph does in shortcuts (github.com/OneDrive/onedrive-api-docs/issues/1890)
"""


@dataclass(frozen=True, slots=True)
class OneDriveFile:
    """What Graph says about a file or a shortcut, as far as it is used."""

    id: str
    name: str
    parent: str = ""
    version: str = ""
    version_id: str = ""
    size: int = -1
    """-1: not told"""
    mime: str = ""
    url: str = ""
    modified: str = ""
    modified_by: str = ""
    created_by: str = ""
    drive: str = ""
    """of a thing in another drive: which; with `target`, its id there"""
    target: str = ""
    folder: bool = False
    """whether that is a folder"""
    fault: str = ""
    """why it cannot be a document: `package`, `malware`, `kind`"""


def told_file(entry: Mapping[str, Any]) -> OneDriveFile:
    """Raises Transient when it has no id."""
    file, remote = as_object(entry.get("file")), as_object(entry.get("remoteItem"))
    size: Any = entry.get("size")
    modified = as_word(entry.get("lastModifiedDateTime"))
    hashed = as_word(as_object(file.get("hashes")).get("quickXorHash"))
    tag = as_word(entry.get("cTag"))
    publication = as_object(entry.get("publication"))
    # `delta` leaves out the cTag in drives for work or school, where folders list it.
    version = f"{hashed} {size}" if hashed else tag or f"{modified} {size}"
    return OneDriveFile(
        id=field_of(entry, "id", str),
        name=name_of(entry),
        parent=parent_of(entry),
        version=version,
        version_id=as_word(publication.get("versionId")) or tag or version,
        size=size if isinstance(size, int) and size >= 0 else -1,
        mime=as_name(as_word(file.get("mimeType"))),
        url=UNPRINTABLE.sub("", as_word(entry.get("webUrl"))),
        modified=modified,
        modified_by=_who(entry.get("lastModifiedBy")),
        created_by=_who(entry.get("createdBy")),
        drive=_whole(as_object(remote.get("parentReference")).get("driveId")),
        target=_whole(remote.get("id")),
        folder=isinstance(remote.get("folder"), dict),
        fault=_kind_of_fault(entry),
    )


def _whole(id: Any) -> str:
    return SHORTENED.sub(lambda drive: drive[0].zfill(16), as_word(id))


def _kind_of_fault(entry: Mapping[str, Any]) -> str:
    for facet in ("package", "malware"):
        if isinstance(entry.get(facet), dict):
            return facet
    if name_of(entry).lower().endswith(SECTIONS):
        return "package"
    return "" if isinstance(entry.get("file"), dict) else "kind"


def fault_of(file: OneDriveFile) -> tuple[str, str] | None:
    """Why it cannot be a document: our word, and a sentence."""
    match file.fault:
        case "package":
            return "unsupported", "OneDrive does not offer the content of notebooks."
        case "malware":
            return "malware", "Microsoft takes it for malware."
        case "kind":
            return "unsupported", "It is neither a file nor a folder."
        case _:
            pass
    if file.size > LARGEST_FILE:
        told = f"It has {file.size:,} bytes; at most {LARGEST_FILE:,} are read."
        return "too_large", told
    if file.size == 0:
        return "empty", "It is empty."
    return None


def is_deleted(entry: Mapping[str, Any]) -> bool:
    return entry.get("deleted") is not None


def is_folder(entry: Mapping[str, Any]) -> bool:
    """Whether it holds what the drive has; shortcuts and notebooks do not."""
    elsewhere = entry.get("remoteItem") is not None or entry.get("package") is not None
    return not elsewhere and isinstance(entry.get("folder"), dict)


def name_of(entry: Mapping[str, Any]) -> str:
    name = entry.get("name") or as_object(entry.get("remoteItem")).get("name")
    return as_name(as_word(name)) or "Untitled"


def parent_of(entry: Mapping[str, Any]) -> str:
    """Empty for the root."""
    if entry.get("root") is not None:
        return ""
    return as_word(as_object(entry.get("parentReference")).get("id"))


def _who(identities: Any) -> str:
    """Name of the user, else of the application."""
    for kind in ("user", "application"):
        if name := as_word(as_object(as_object(identities).get(kind)).get("displayName")):
            return as_name(name)
    return ""


def answer_of(file: OneDriveFile, branch: str, above: Sequence[str]) -> Item | Verdict:
    """`above`: names of the folders that it is in."""
    refused = fault_of(file)
    if refused is not None:
        return refusal(file, branch, *refused)
    path = "/".join([*above, file.name])
    path = path if len(path) <= LONGEST_NAME else "…" + path[1 - LONGEST_NAME :]
    shown: dict[str, str | float | bool] = {
        "path": path,
        "size": file.size if file.size >= 0 else "",
        "mimeType": file.mime,
        "versionId": file.version_id,
        "createdBy": file.created_by,
        "lastModifiedBy": file.modified_by,
    }
    return Item(
        id=file.id,
        version=file.version,
        title=file.name,
        url=file.url or None,
        kind=KIND,
        metadata={name: value for name, value in shown.items() if value != ""},
        extra={**extra_of(file), "path": path},
        branch=branch,
        modified_at=as_time(file.modified),
    )


def refusal(
    file: OneDriveFile,
    branch: str,
    kind: str,
    detail: str,
    *,
    extra: Mapping[str, Any] | None = None,
    confirm: bool = False,
) -> Verdict:
    return Verdict(
        file.id,
        kind,
        detail,
        extra=extra_of(file) if extra is None else extra,
        branch=branch,
        confirm=confirm,
        url=file.url or None,
        title=file.name,
    )


KEPT = (
    "parent", "version_id", "size", "mime", "modified", "modified_by", "created_by", "drive",
    "target", "folder",
)  # fmt: skip
"""fields of a file that are needed to say it again without asking"""


def extra_of(file: OneDriveFile) -> dict[str, Any]:
    kept = {name: getattr(file, name) for name in KEPT}
    return {name: value for name, value in kept.items() if value not in ("", False)}


def known_file(row: Remembered) -> OneDriveFile:
    said = {name: value for name, value in row.extra.items() if name in KEPT}
    # Earlier versions kept them as Graph gives them.
    said |= {name: _whole(said[name]) for name in ("drive", "target") if name in said}
    version = row.version or as_word(row.extra.get("version"))
    return OneDriveFile(row.id, row.title or "Untitled", version=version, url=row.url or "", **said)
