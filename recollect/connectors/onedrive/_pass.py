"""One pass over a drive: what `delta` tells, then shortcuts to what others share."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Any
from urllib.parse import quote

from recollect.connectors._folders import above
from recollect.connectors._json import as_time, as_word
from recollect.connectors.api import (
    PROVIDER_UNAVAILABLE,
    Patience,
    Turning,
    as_json,
    behind,
    field_of,
)
from recollect.connectors.base import (
    Change,
    Checkpoint,
    Cursor,
    Folder,
    Gone,
    Item,
    Listed,
    Listing,
    Missing,
    Source,
    Trouble,
    Verdict,
)
from recollect.connectors.onedrive._cursor import State, state_of
from recollect.connectors.onedrive._files import (
    FIELDS,
    OneDriveFile,
    answer_of,
    extra_of,
    is_deleted,
    is_folder,
    known_file,
    name_of,
    parent_of,
    refusal,
    told_file,
)
from recollect.connectors.onedrive._graph import (
    ACCESS_DENIED,
    HOPS,
    LIST,
    NEXT,
    OWN_DRIVE,
    drive_of,
    refused_alone,
    walk,
)
from recollect.errors import CursorExpired, Permanent, Reauthorize, RecollectError, Transient
from recollect.fetch import EndpointAnswer
from recollect.model import Remembered

SHARED = "shared"
"""key of the metadata: True to follow shortcuts to what others share"""
DRIVE = "drive"
"""the branch of what is in the drive; each folder that a shortcut stands for is one, by its id"""
SHORTCUTS = "shortcuts"
"""the branch of shortcuts into other drives, and of the files that they stand for"""
PLANNED = "planned"
SHARED_FOLDER = "shared_folder"
FOLDER_MISSING = "folder_missing"
NO_ACCESS = "no_access"
READS_ALL = "Files.Read.All"
"""the permission that shared things need"""
NOT_THERE = "It is not there any more, or not shared."
BIN = "bin"
"""stands for the parent of a folder that was deleted, until all changes are known"""
BATCH = 200
"""changes between two checkpoints"""
CHECK_EVERY = timedelta(days=7)
"""between whole listings, but for syncs that a user asks for"""
DELTA = f"/v1.0/me/drive/root/delta?{LIST}"
LAST = "@odata.deltaLink"
WITH_SHORTCUTS = {"prefer": "Include-Feature=AddToOneDrive"}
"""Without it, drives for work or school leave out shortcuts."""
NO_LICENCE = "SPO license"
"""in what Graph says of an account for work or school without one, with status 400"""
EXPIRED = frozenset({400, 404, 410})
"""what Graph may say to a link of an earlier sync"""


class ItemPlace(Enum):
    """Where something is, as far as the connection is concerned."""

    IN = "in scope"
    OUT = "out of scope"
    BINNED = "in a folder that seems to be deleted"
    UNKNOWN = "in a folder that OneDrive has not listed yet"


class Pass:
    """One pass. What it knows besides the cursor is what it has read since it began."""

    def __init__(
        self, source: Source, selected: AbstractSet[str] | None, cursor: Cursor | None
    ) -> None:
        self._source = source
        self._api = source.api
        self._selected = selected
        self._shared = source.metadata.get(SHARED) is True
        self._headers = WITH_SHORTCUTS if self._shared else {}
        self._folders = dict(source.folders())
        self._known = state_of(cursor)
        self._state = self._known or State("", DELTA, midway=False, listing=False, began="")
        self._fresh = False
        """whether a whole listing began in this pass"""
        self._held = False
        """whether the listing's end waits to be confirmed by another listing"""
        self._again = False
        """whether the next sync has to list everything"""
        self._patience = Patience(lambda: self._api.get(OWN_DRIVE))
        self._followed: set[str] = set()
        """ids of what shortcuts led to; several may lead to one"""

    def run(self) -> Iterator[Change]:
        if self._is_due():
            yield from self._begin()
        goes_on = self._state.midway and not self._fresh
        yield from self._catch_up()
        if goes_on:
            yield from self._catch_up()
        untidy = self._state.stale and not self._held
        if untidy:
            yield from self._tidy()
        if self._shared:
            yield from self._follow_shortcuts()
        if untidy:
            yield from self._let_go()
        yield self._checkpoint()

    def _catch_up(self) -> Iterator[Change]:
        yield from self._enumerate()
        if self._state.listing:
            yield from self._end()
        else:
            yield self._checkpoint()

    def _checkpoint(self) -> Checkpoint:
        return Checkpoint(asdict(self._state))

    # --- listing everything ---

    def _is_due(self) -> bool:
        state = self._state
        if self._known is None or state.scope != self._scope():
            return True
        if state.listing:
            # From its first page on, it would not tell what was deleted since it began.
            return state.link == DELTA
        listed = as_time(state.listed or "")
        every = timedelta(0) if self._source.asked else CHECK_EVERY
        return listed is None or self._source.since - listed > every

    def _scope(self) -> str:
        """Other folders, or shortcuts as well: what is in scope is known after listing it all."""
        named = "full" if self._selected is None else ",".join(sorted(self._selected))
        return f"{named} and shared" if self._shared else named

    def _begin(self) -> Iterator[Change]:
        self._state = State(
            self._scope(), DELTA, midway=True, listing=True, began=self._source.since.isoformat()
        )
        self._fresh = True
        # Those that are there will be heard of.
        for id in self._folders:
            yield Folder(id, "", None)
        self._folders.clear()
        yield Listing(DRIVE)
        yield Listing(SHORTCUTS)
        yield self._checkpoint()

    def _end(self) -> Iterator[Change]:
        for id in sorted((self._selected or set()) - self._folders.keys()):
            if all(row.verdict == FOLDER_MISSING for row in self._source.remembered([id])):
                yield Verdict(
                    id,
                    FOLDER_MISSING,
                    "This folder is selected, but the drive has no such folder.",
                    branch=DRIVE,
                    failed=True,
                )
        yield Listed(DRIVE)
        yield Listed(SHORTCUTS)
        self._state.listing, self._state.stale = False, True
        yield self._checkpoint()
        known = (row for at in (DRIVE, SHORTCUTS) for row in self._source.remembered(branch=at))
        self._held = not all(self._was_told(row) for row in known)
        # Nothing at first may be a mistake of Graph's; one more listing tells.
        nothing = self._known is None and self._has_nothing()
        if not self._held and not self._again and not nothing:
            self._state.listed = self._state.began
            yield self._checkpoint()

    def _has_nothing(self) -> bool:
        return all(row.verdict == FOLDER_MISSING for row in self._source.remembered())

    def _was_told(self, row: Remembered) -> bool:
        """Whether the whole listing of now had it, or the last one."""
        return row.seen_at >= datetime.fromisoformat(self._state.began)

    # --- pages ---

    def _enumerate(self) -> Iterator[Change]:
        """All pages from where we are; the state ends at the link for the next time."""
        link = self._state.link
        # A link of an earlier pass may have expired, as may one that an error names.
        doubtful = not self._fresh
        turning = Turning("OneDrive", link)
        restarts = 0
        while True:
            self._source.going()
            answer = self._ask(link, doubtful)
            if answer.status in EXPIRED:
                link, restarts = answer.headers.get("location", ""), restarts + 1
                if answer.status != 410 or not link or restarts > HOPS:
                    raise self._expired()
                # Whether it works is seen soon. The cursor names the beginning meanwhile.
                yield from self._begin()
                doubtful, turning = True, Turning("OneDrive", link)
                continue
            doubtful = False
            body = as_json(answer)
            entries: list[Any] = field_of(body, "value", list)
            link = as_word(body.get(NEXT)) or field_of(body, LAST, str)
            yield from self._apply(entries)
            following = turning.turn(body.get(NEXT), (entry["id"] for entry in entries))
            self._state.link, self._state.midway = link, bool(following)
            if not following:
                return
            yield self._checkpoint()

    def _ask(self, link: str, doubtful: bool) -> EndpointAnswer:
        try:
            return self._api.call(
                "GET",
                link,
                headers=self._headers,
                accept=EXPIRED if doubtful else frozenset({410}),
            )
        except Permanent as error:
            match error.code:
                case "foreign_address" if doubtful:
                    raise self._expired() from error
                case "http_403" | "access_denied":
                    raise self._denied(error) from error
                case code if code == "http_404" or NO_LICENCE in str(error):
                    raise Permanent(
                        "This account has no OneDrive. Open OneDrive once in the browser with this"
                        " account; accounts for work or school also need a licence for it",
                        code="no_drive",
                    ) from error
                case _:
                    raise

    def _denied(self, error: Permanent) -> RecollectError:
        """What a 403 for the own drive means: to authorize again helps only where a permission is
        lacking; who blocks the account may let it in again."""
        if any("files.read" in scope.lower() for scope in self._source.granted):
            return Permanent(
                f"{error}, though the permission to read files was granted: the account is"
                " suspended, or an administrator does not let this application read OneDrive."
                " Documents stay; ask the administrator. Each sync tries again",
                code=error.code,
            )
        return Reauthorize(
            f"{error}: the permission Files.Read was not granted, or an administrator does not let"
            " this application read OneDrive"
        )

    def _expired(self) -> RecollectError:
        if self._known is None:
            return Transient("OneDrive refuses the link that it gave", code=PROVIDER_UNAVAILABLE)
        return CursorExpired("OneDrive no longer keeps its changes from the last sync on")

    def _apply(self, entries: Sequence[Any]) -> Iterator[Change]:
        """One page. Folders are said last, the outermost at the end: should this end in between,
        it begins again with what was known."""
        latest: dict[str, dict[str, Any]] = {}
        for entry in entries:
            id = field_of(entry, "id", str)
            # The last of several counts, and in its place: deleted, then restored.
            latest.pop(id, None)
            latest[id] = entry
        rows = {row.id: row for row in self._source.remembered(list(latest))}
        before = dict(self._folders)
        files = [
            told_file(entry)
            for id, entry in latest.items()
            if not self._learn(id, entry, rows.get(id))
        ]
        for id, entry in latest.items():
            row = rows.get(id)
            if row is not None and (is_deleted(entry) or id in self._folders):
                yield Gone(id)
        for file in files:
            yield from self._tell(file, rows.get(file.id))
        yield from self._look_into(before)
        changed = [id for id, folder in self._folders.items() if before.get(id) != folder]
        if any(id in before for id in changed):
            self._state.stale = True
            yield self._checkpoint()
        for id in self._inside_out(changed):
            yield self._folders[id]

    def _inside_out(self, ids: Iterable[str]) -> list[str]:
        return sorted(ids, key=lambda id: len(above(self._folders, id)), reverse=True)

    def _learn(self, id: str, entry: Mapping[str, Any], row: Remembered | None) -> bool:
        """Bring the folders up to date; whether there is nothing else to be said of it."""
        if is_deleted(entry):
            if id in self._folders:
                # What it held may have moved; only at the end of all changes it is known to be
                # gone with it.
                self._folders[id] = replace(self._folders[id], parent=BIN)
            if row is not None and row.branch == SHORTCUTS:
                self._state.stale = True
            return True
        if not is_folder(entry):
            return False
        self._folders[id] = Folder(id, name_of(entry), parent_of(entry))
        return True

    # --- files ---

    def _tell(self, file: OneDriveFile, row: Remembered | None) -> Iterator[Change]:
        """A file or shortcut as it is now, wherever it was before."""
        place = self._place(file)
        in_notebook = file.fault == "package"
        if not in_notebook and not _is_rooted(self._folders, file.parent):
            self._state.stale = True
        is_document = row is not None and row.document_id is not None
        if place is ItemPlace.OUT:
            # The end of a whole listing says so of them, and minds how many they are; but not of
            # what it has told as it was before.
            if row is not None and (not self._state.listing or self._was_told(row)):
                yield Gone(file.id)
        elif file.target:
            yield self._shortcut(file, row)
        elif place is ItemPlace.IN or is_document or in_notebook:
            yield self._answer(file)
        else:
            yield refusal(
                file,
                DRIVE,
                PLANNED,
                "OneDrive has not said yet what became of its folder.",
                extra={**extra_of(file), "version": file.version},
            )

    def _shortcut(self, file: OneDriveFile, row: Remembered | None) -> Item | Verdict:
        """What it stands for is looked at after all changes."""
        if not self._shared:
            told = (
                "It points to something that others share. Set metadata.shared to true to have it,"
                " and authorize again."
            )
            return refusal(file, SHORTCUTS, "shared", told)
        if file.folder:
            told = "It points to a folder of another drive; what is in it is listed."
            return refusal(file, SHORTCUTS, SHARED_FOLDER, told)
        if row is None or row.version is None or known_file(row).target != file.target:
            return refusal(file, SHORTCUTS, PLANNED, "It is looked at after all changes.")
        known = known_file(row)
        return self._answer(replace(known, name=file.name, parent=file.parent), SHORTCUTS)

    def _answer(self, file: OneDriveFile, branch: str = DRIVE) -> Item | Verdict:
        return answer_of(file, branch, self._names(file.parent))

    # --- places ---

    def _place(self, file: OneDriveFile) -> ItemPlace:
        place = self._place_of(file.parent, self._folders)
        chosen = self._selected is not None and file.id in self._selected
        return ItemPlace.IN if chosen and place is not ItemPlace.BINNED else place

    def _place_of(self, id: str, folders: Mapping[str, Folder]) -> ItemPlace:
        """Of a folder and what is in it, going by these folders."""
        places = above(folders, id)
        if BIN in places:
            return ItemPlace.BINNED
        if self._selected is None or any(id in self._selected for id in places):
            return ItemPlace.IN
        return ItemPlace.OUT if _is_rooted(folders, id) else ItemPlace.UNKNOWN

    def _names(self, id: str) -> list[str]:
        """Of the folder and those that it is in, from the top; the root has none."""
        found = [self._folders[id] for id in above(self._folders, id) if id in self._folders]
        return [folder.name for folder in reversed(found) if folder.parent]

    # --- folders that came into scope ---

    def _look_into(self, before: Mapping[str, Folder]) -> Iterator[Change]:
        """Not all that is in a folder which is new or was restored is told of, and nothing of what
        is in one that moved.

        While everything is listed, it is; but what came before its folder did was out of scope.
        """
        new = {
            id
            for id, folder in self._folders.items()
            if before.get(id) != folder and self._came_in(id, before)
        }
        top = sorted(id for id in new if self._folders[id].parent not in new)
        if not top:
            return
        try:
            for _, entries in walk(self._source, OWN_DRIVE, top, self._headers):
                rows = {row.id: row for row in self._source.remembered([e["id"] for e in entries])}
                for entry in entries:
                    row = rows.get(entry["id"])
                    if not self._learn(entry["id"], entry, row):
                        yield from self._tell(told_file(entry), row)
        except (Permanent, Transient) as error:
            if isinstance(error, Transient):
                self._patience.failed(error)
            # It moved on meanwhile, cannot be looked into (a vault), or takes more calls than
            # to list everything: the next time.
            self._again, self._state.listed = True, None

    def _came_in(self, id: str, before: Mapping[str, Folder]) -> bool:
        was = self._place_of(id, before) if id in before else ItemPlace.UNKNOWN
        now = self._place_of(id, self._folders)
        if self._state.listing:
            return was in (ItemPlace.OUT, ItemPlace.BINNED) and now in (
                ItemPlace.IN,
                ItemPlace.UNKNOWN,
            )
        if now is ItemPlace.OUT and (self._selected or set()) - self._folders.keys():
            # What is selected went with a folder around it, and may be back with that.
            return was in (ItemPlace.UNKNOWN, ItemPlace.BINNED)
        return was is not ItemPlace.IN and now is ItemPlace.IN

    # --- after all changes ---

    def _tidy(self) -> Iterator[Change]:
        """Compare what is known with the folders: new paths, out of scope, gone with its folder."""
        said = 0
        for row in self._source.remembered():
            change = self._tidied(row)
            if change is not None:
                yield change
                said += 1
                if said % BATCH == 0:
                    yield self._checkpoint()
        for id in self._inside_out(id for id in self._folders if BIN in above(self._folders, id)):
            del self._folders[id]
            yield Folder(id, "", None)
        yield self._checkpoint()

    def _tidied(self, row: Remembered) -> Change | None:
        if row.verdict == FOLDER_MISSING or row.branch not in (DRIVE, SHORTCUTS):
            return None
        file = known_file(row)
        match self._place(file):
            case ItemPlace.OUT | ItemPlace.BINNED:
                return Gone(row.id)
            case ItemPlace.IN if row.verdict == PLANNED and not file.target:
                return self._answer(file)
            case ItemPlace.IN if row.version is not None:
                told = self._answer(file, row.branch)
                return None if told.extra.get("path") == row.extra.get("path") else told
            case _:
                return None

    def _let_go(self) -> Iterator[Change]:
        """What no shortcut leads to any more; not before the others have said what they lead to."""
        followed = {DRIVE, SHORTCUTS}
        if self._shared:
            followed |= {
                row.id
                for row in self._source.remembered(branch=SHORTCUTS)
                if self._place(known_file(row)) is ItemPlace.IN
            }
        for row in self._source.remembered():
            if row.branch not in followed:
                yield Gone(row.id)
        self._state.stale = False
        yield self._checkpoint()

    # --- what others share ---

    def _follow_shortcuts(self) -> Iterator[Change]:
        """One that fails keeps nothing else from being synced."""
        rows = {row.id: row for row in self._source.remembered(branch=SHORTCUTS)}
        for id in behind([*rows], self._state.last):
            file = known_file(rows[id])
            if not file.target or self._place(file) is not ItemPlace.IN:
                continue
            try:
                yield from self._follow(file)
            except (Permanent, Transient) as error:
                try:
                    self._patience.failed(error)
                except Transient:
                    if self._patience.exhausted:
                        self._state.last = id
                        yield self._checkpoint()
                    raise
                if error.code == ACCESS_DENIED and self._reads_all():
                    yield from self._unshared(file)
                    continue
                yield Trouble(
                    f"{file.id}, which is shared with the account, could not be read ({error})."
                    " Its documents stay. It is tried again with the next sync; if it was shared"
                    " again or differently, or metadata.shared was set later, authorize again",
                    error.code,
                    file.id,
                )
            else:
                self._patience.succeeded()
                if file.folder and rows[id].verdict == NO_ACCESS:
                    yield self._shortcut(file, rows[id])
            yield self._checkpoint()

    def _follow(self, file: OneDriveFile) -> Iterator[Change]:
        try:
            if file.folder:
                yield from self._follow_folder(file)
            else:
                yield self._follow_file(file)
        except Reauthorize as error:
            raise refused_alone(self._api, error) from error

    def _reads_all(self) -> bool:
        """Whether the account granted what shared things need; else all of them are refused."""
        granted = {scope.rpartition("/")[2].lower() for scope in self._source.granted}
        return READS_ALL.lower() in granted

    def _unshared(self, file: OneDriveFile) -> Iterator[Change]:
        """The account has no access to it any more, though it may read all that is shared."""
        told = "It is not shared with the account any more, or an administrator blocks it."
        yield refusal(file, SHORTCUTS, NO_ACCESS, told, confirm=True)
        if file.folder:
            for row in self._source.remembered(branch=file.id):
                yield Missing(row.id, told, file.id)
        yield self._checkpoint()

    def _follow_file(self, file: OneDriveFile) -> Change:
        path = f"{drive_of(file)}/items/{quote(file.target, safe='')}"
        answer = self._api.call("GET", path, params={"$select": FIELDS}, accept=frozenset({404}))
        if answer.status == 404:
            return refusal(file, SHORTCUTS, "broken_shortcut", NOT_THERE, confirm=True)
        found = told_file(as_json(answer))
        here = {"id": file.id, "name": file.name, "parent": file.parent}
        return self._answer(replace(found, **here, drive=file.drive, target=file.target), SHORTCUTS)

    def _follow_folder(self, shortcut: OneDriveFile) -> Iterator[Change]:
        """Paging through folders may miss what is written meanwhile, so what is not found counts
        as gone when it is not found again."""
        names = {shortcut.target: [*self._names(shortcut.parent), shortcut.name]}
        found: set[str] = set()
        opened = False
        try:
            drive, root = drive_of(shortcut), [shortcut.target]
            for folder, entries in walk(self._source, drive, root, self._headers):
                opened = True
                for entry in entries:
                    if is_folder(entry):
                        names[entry["id"]] = [*names[folder], name_of(entry)]
                        continue
                    file = replace(
                        told_file(entry),
                        id=f"{shortcut.drive}:{entry['id']}",
                        drive=shortcut.drive,
                        target=entry["id"],
                    )
                    found.add(file.id)
                    if file.id not in self._followed:
                        self._followed.add(file.id)
                        yield answer_of(file, shortcut.id, names[folder])
                yield self._checkpoint()
        except Permanent as error:
            if error.code == ACCESS_DENIED and opened:
                raise Permanent(f"a folder in it: {error}", code="http_403") from error
            if error.code != "http_404" or opened:
                raise
        for row in self._source.remembered(branch=shortcut.id):
            if row.id not in found:
                yield Missing(row.id, NOT_THERE, shortcut.id)


def _is_rooted(folders: Mapping[str, Folder], id: str) -> bool:
    """Whether all folders from there up to the root are known."""
    top = above(folders, id)[-1:]
    return any(id in folders and not folders[id].parent for id in top)
