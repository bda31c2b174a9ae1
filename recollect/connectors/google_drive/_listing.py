"""What Drive lists, what it says has changed, and single files that shortcuts stand for."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

from recollect.connectors._json import as_object
from recollect.connectors.api import (
    PROVIDER_UNAVAILABLE,
    Api,
    Patience,
    Turning,
    as_json,
    field_of,
)
from recollect.connectors.base import Source
from recollect.connectors.google_drive._feeds import ALL_DRIVES, USER, of_feed
from recollect.connectors.google_drive._files import (
    ENTRY,
    FOLDER,
    NO_TARGETS,
    SHORTCUT,
    DriveFile,
    keyed,
    told_file,
    told_files,
)
from recollect.errors import Permanent, Transient
from recollect.fetch import EndpointAnswer

PAGE = 1_000
"""entries, the most that Drive gives at once"""
REFUSED = frozenset({400, 404, 410})
"""what Drive may say to a page token that it does not know any more"""
IN_TRASH = "The file that it points to is in the trash."
"""of a target that was read; any other reason is one answer, which may be wrong"""
CHANGE_FIELDS = f"nextPageToken,newStartPageToken,changes(changeType,removed,fileId,file({ENTRY}))"
LIST_FIELDS = f"nextPageToken,incompleteSearch,files({ENTRY})"


def pages(
    source: Source, feed: str, query: str, page: str | None
) -> Iterator[tuple[list[DriveFile], str | None, bool]]:
    """Pages of what is not in the trash, from `page` on, each with the token of the next, and
    whether Drive looked through everything for it."""
    drive = {"corpora": "user"} if feed == USER else {"corpora": "drive", "driveId": feed}
    params = {
        **ALL_DRIVES,
        **drive,
        "q": f"{query} and trashed = false",
        "pageSize": str(PAGE),
        "fields": LIST_FIELDS,
    }
    turning = Turning("Drive", page)
    restarted = False
    while True:
        source.going()
        asked = params if page is None else {**params, "pageToken": page}
        accept = frozenset[int]() if page is None else REFUSED
        answer = source.api.call("GET", "/drive/v3/files", params=asked, accept=accept)
        if answer.status in REFUSED:
            # The place where we, or an earlier sync, stopped is forgotten: from the start.
            if restarted:
                raise Transient(
                    "Drive no longer knows the page that it named", code=PROVIDER_UNAVAILABLE
                )
            page, restarted = None, True
            turning = Turning("Drive")
            continue
        body = as_json(answer)
        entries = told_files(field_of(body, "files", list))
        page = turning.turn(body.get("nextPageToken"), (file.id for file in entries))
        yield entries, page, body.get("incompleteSearch") is not True
        if page is None:
            return


def changes_at(api: Api, feed: str, token: str) -> EndpointAnswer:
    """A page of a feed; its status is one of `REFUSED` for a token that Drive does not know."""
    params = {
        **of_feed(feed),
        "pageToken": token,
        "pageSize": str(PAGE),
        "includeRemoved": "true",
        "includeCorpusRemovals": "true",
        "fields": CHANGE_FIELDS,
    }
    return api.call("GET", "/drive/v3/changes", params=params, accept=REFUSED)


def changed(
    entries: Sequence[Any], is_here: Callable[[DriveFile], bool]
) -> dict[str, DriveFile | None]:
    """For each id the newest state of the file in these entries of a feed; None: the feed says that
    it is gone. `is_here`: whether a file is listed with this feed."""
    found: dict[str, DriveFile | None] = {}
    for entry in entries:
        said = as_object(entry)
        if said.get("changeType") == "drive":
            continue
        id = field_of(entry, "fileId", str)
        file = told_file(said["file"]) if said.get("file") is not None else None
        if file is not None and said.get("removed") is True and is_here(file):
            # It may still be read, but nothing more will be heard of it.
            file = None
        found.pop(id, None)
        found[id] = file
    return found


def target_of(api: Api, patience: Patience, shortcut: DriveFile) -> DriveFile | str | Transient:
    """What a shortcut stands for, or why that is not a document. Only once: no shortcuts to
    shortcuts, so there are no circles."""
    if shortcut.target_mime == FOLDER:
        return "It points to a folder. Select that folder itself."
    if shortcut.target_mime == SHORTCUT:
        return "It points to another shortcut."
    return read(api, patience, shortcut.target, shortcut.target_key)


def read(api: Api, patience: Patience, id: str, key: str) -> DriveFile | str | Transient:
    """The file, why it does not become a document, or why that is not known at present."""
    try:
        answer = api.call(
            "GET",
            f"/drive/v3/files/{quote(id, safe='')}",
            params={"supportsAllDrives": "true", "fields": ENTRY},
            headers=keyed(id, key),
        )
    except Permanent as error:
        if error.code == "http_404":
            return "The file that it points to is deleted, or not shared with the account."
        return f"The file that it points to cannot be read: {error}."
    except Transient as error:
        patience.failed(error)
        return error
    patience.succeeded()
    file = told_file(as_json(answer))
    if file.trashed:
        return IN_TRASH
    if file.mime in NO_TARGETS:
        return "It points to a folder, or another shortcut."
    return file
