"""One pass over the feeds of an account: listings that are due, then what changed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from recollect.connectors._json import as_name
from recollect.connectors.api import (
    PROVIDER_UNAVAILABLE,
    Patience,
    Turning,
    as_json,
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
    Source,
    Trouble,
    Verdict,
)
from recollect.connectors.google_drive._content import told
from recollect.connectors.google_drive._cursor import Feed, State, UnderWay, state_of
from recollect.connectors.google_drive._feeds import (
    USER,
    drives_of,
    is_there,
    start_of,
)
from recollect.connectors.google_drive._files import (
    FOLDER,
    NO_TARGETS,
    OUT_OF_REACH,
    SHORTCUT,
    DriveFile,
    away,
    known_file,
    refusal,
    said_of,
    shortcuts_to,
)
from recollect.connectors.google_drive._listing import (
    IN_TRASH,
    REFUSED,
    changed,
    changes_at,
    pages,
    read,
    target_of,
)
from recollect.connectors.google_drive._tree import Tree
from recollect.errors import CursorExpired, Permanent, Transient
from recollect.model import Remembered

MANY = 200
"""folders that came into scope, from which on listing everything is cheaper"""
CHECK_EVERY = timedelta(days=7)
"""between whole listings, but for syncs that a user asks for: access that is lost does not always
come through the feed"""
FOLDER_MISSING = "folder_missing"
UNREAD_AGAIN = timedelta(days=1)
"""after which a listing asks again for what Drive could not give"""


class Pass:
    """One pass. What it knows besides the cursor is what it has read since it began."""

    def __init__(
        self, source: Source, selected: AbstractSet[str] | None, cursor: Cursor | None
    ) -> None:
        self._source = source
        self._api = source.api
        self._selected = selected
        self._folders = Tree(source.folders(), selected)
        self._known = state_of(cursor)
        self._tried: set[str] = set()
        """feeds that were listed in this sync, or could not be"""
        self._failed: set[str] = set()
        self._unread: dict[str, timedelta] = {}
        """feeds with something that Drive could not give, and when to ask for it again"""
        self._patience = Patience(lambda: start_of(self._api, USER))

    def run(self) -> Iterator[Change]:
        scope = "full" if self._selected is None else ",".join(sorted(self._selected))
        found = drives_of(self._api)
        self._state = self._known or self._anew(scope)
        if self._state.scope != scope:
            # Other folders: what is in scope is only known after listing everything again.
            self._state.scope, self._state.listing = scope, None
            for feed in self._state.feeds().values():
                feed.listed = None
        yield from self._meet(found)
        yield self._checkpoint()
        yield from self._list()
        for feed in self._state.feeds():
            if feed not in self._failed:
                yield from self._guarded(feed, self._follow(feed))
        yield from self._list()
        yield from self._forget_drives()
        for name, feed in self._state.feeds().items():
            if name in self._unread and feed.listed is not None:
                due = self._source.since + self._unread[name]
                feed.listed = min(feed.listed, (due - CHECK_EVERY).isoformat())
        yield self._checkpoint()

    def _anew(self, scope: str) -> State:
        """Without a cursor, only what is remembered tells which shared drives there were."""
        user = Feed(start_of(self._api, USER))
        branches = {row.branch for row in self._source.remembered()}
        return State(scope, user, lost=sorted(branches - {USER}))

    def _checkpoint(self) -> Checkpoint:
        return Checkpoint(asdict(self._state))

    def _guarded(self, feed: str, work: Iterator[Change]) -> Iterator[Change]:
        """A shared drive that fails does not keep the others from being synced."""
        try:
            yield from work
        except (Permanent, Transient) as error:
            if feed == USER:
                raise
            try:
                self._patience.failed(error)
            except Transient:
                if self._patience.exhausted:
                    self._state.last = feed
                    self._pass_over(feed)
                    yield self._checkpoint()
                raise
            self._pass_over(feed)
            yield Trouble(
                f"The shared drive {self._folders.name(feed)} could not be read ({error})."
                " Its documents stay. It is tried again with the next sync.",
                error.code,
                feed,
            )
        else:
            self._patience.succeeded()

    def _pass_over(self, feed: str) -> None:
        self._tried.add(feed)
        self._failed.add(feed)
        if self._state.listing and feed in self._state.listing.feeds:
            self._state.listing.feeds.remove(feed)

    # --- shared drives ---

    def _meet(self, found: Mapping[str, str]) -> Iterator[Change]:
        """Feeds of new shared drives, and farewell to those that are gone."""
        state = self._state
        for drive in [drive for drive in state.drives if drive not in found]:
            yield from self._guarded(drive, self._look_for(drive))
        if not found.keys() >= {*state.lost}:
            # What is shared with the account itself is found there before the rest is taken away.
            state.user.listed = None
        for drive, name in found.items():
            if drive not in state.drives:
                yield from self._guarded(drive, self._begin(drive))
            before, now = self._folders.get(drive), Folder(drive, name, "")
            if before != now:
                self._folders[drive] = now
                if before is not None:
                    yield from self._replace_below({drive})
                yield now

    def _begin(self, drive: str) -> Iterator[Change]:
        self._state.drives[drive] = Feed(start_of(self._api, drive))
        self._state.lost = [lost for lost in self._state.lost if lost != drive]
        yield self._checkpoint()

    def _look_for(self, drive: str) -> Iterator[Change]:
        if is_there(self._api, drive):
            return
        del self._state.drives[drive]
        self._state.lost.append(drive)
        listing = self._state.listing
        if listing is not None and drive in listing.feeds:
            listing.feeds.remove(drive)
        yield self._checkpoint()

    def _forget_drives(self) -> Iterator[Change]:
        """An empty listing, so that the guard against mass deletion has its say."""
        if self._state.user.listed is None:
            return
        for drive in [drive for drive in self._state.lost if drive not in self._failed]:
            yield Listing(drive)
            yield Listed(drive)
            for id in self._folders.below({drive}):
                if self._folders.pop(id, None) is not None:
                    yield Folder(id, "", None)
            yield self._checkpoint()
            if not any(self._source.remembered(branch=drive)):
                self._state.lost.remove(drive)

    # --- listing everything ---

    def _list(self) -> Iterator[Change]:
        state = self._state
        listing = state.listing
        if listing is None:
            due = [name for name, feed in state.feeds().items() if self._is_due(name, feed)]
            if not due:
                return
            listing = state.listing = UnderWay(due, self._source.since.isoformat())
            for feed in due:
                yield Listing(feed)
            yield self._checkpoint()
        self._tried.update(listing.feeds)
        if listing.phase == "folders":
            yield from self._list_folders(listing)
        if listing.phase == "files":
            yield from self._list_files(listing)
        # Those of all feeds, because what they stand for may be in any.
        for feed in state.feeds():
            if feed not in self._failed:
                yield from self._guarded(feed, self._list_shortcuts(listing, feed))
        state.listing = None
        for feed in listing.feeds:
            if feed in listing.partial:
                yield Trouble(
                    "Google Drive could not search everything, so nothing was taken as deleted."
                    " It is tried again with the next sync.",
                    "incomplete_listing",
                    feed,
                )
            else:
                yield Listed(feed)
        yield self._checkpoint()
        # Nothing at first may be a mistake of Drive's; one more listing tells.
        nothing = self._known is None and self._has_nothing()
        for feed in listing.feeds:
            # What is still there was kept by the guard, to be confirmed by another listing.
            kept = any(listing.lacks(row) for row in self._source.remembered(branch=feed))
            if feed not in listing.partial and not kept and not nothing:
                state.feeds()[feed].listed = listing.began
        yield self._checkpoint()

    def _has_nothing(self) -> bool:
        return all(row.verdict == FOLDER_MISSING for row in self._source.remembered())

    def _is_due(self, name: str, feed: Feed) -> bool:
        if name in self._tried:
            return False
        if feed.listed is None:
            return True
        since = self._source.since - datetime.fromisoformat(feed.listed)
        return since > (timedelta(0) if self._source.asked else CHECK_EVERY)

    def _list_folders(self, listing: UnderWay) -> Iterator[Change]:
        """All of them first: what is in scope, and where, is not to be said of files otherwise."""
        seen = {*self._state.drives}
        for feed in list(listing.feeds):
            yield from self._guarded(feed, self._list_folders_of(feed, listing, seen))
        if not listing.partial:
            unseen = self._folders.keys() - seen
            for id in sorted(id for id in unseen if self._home_of(id) in listing.feeds):
                del self._folders[id]
                yield Folder(id, "", None)
        if USER in listing.feeds:
            for id in sorted((self._selected or set()) - self._folders.keys()):
                yield Verdict(
                    id,
                    FOLDER_MISSING,
                    "This folder is selected, but it is not there, or not shared with the account.",
                    branch=USER,
                    failed=True,
                )
        listing.phase, listing.at, listing.page = "files", None, None
        yield self._checkpoint()

    def _list_folders_of(self, feed: str, listing: UnderWay, seen: set[str]) -> Iterator[Change]:
        if feed == USER:
            root = self._api.get("/drive/v3/files/root", {"fields": "id,name"})
            id = field_of(root, "id", str)
            seen.add(id)
            yield from self._learn(Folder(id, as_name(field_of(root, "name", str)), ""))
        for entries, _ in self._pages(listing, feed, f"mimeType = '{FOLDER}'"):
            for entry in entries:
                if entry.id not in self._state.drives and not (feed == USER and entry.id in seen):
                    seen.add(entry.id)
                    yield from self._learn(Folder(entry.id, entry.name, entry.parent))

    def _learn(self, folder: Folder) -> Iterator[Change]:
        if self._folders.get(folder.id) != folder:
            self._folders[folder.id] = folder
            yield folder

    def _list_files(self, listing: UnderWay) -> Iterator[Change]:
        feeds = list(listing.feeds)
        start = feeds.index(listing.at) if listing.at in feeds else 0
        for feed in feeds[start:]:
            if listing.at != feed:
                listing.at, listing.page = feed, None
            yield from self._guarded(feed, self._list_files_of(listing, feed))
        listing.phase, listing.at, listing.page = "shortcuts", None, None
        yield self._checkpoint()

    def _list_files_of(self, listing: UnderWay, feed: str) -> Iterator[Change]:
        kinds = f"mimeType != '{FOLDER}' and mimeType != '{SHORTCUT}'"
        for entries, following in self._pages(listing, feed, kinds, listing.page):
            for file in entries:
                if self._belongs(file, feed):
                    yield self._answer(file, feed)
            listing.page = following
            yield self._checkpoint()

    def _list_shortcuts(self, listing: UnderWay, feed: str) -> Iterator[Change]:
        found: list[DriveFile] = []
        for entries, _ in self._pages(listing, feed, f"mimeType = '{SHORTCUT}'"):
            found += [file for file in entries if self._belongs(file, feed)]
        yield self._checkpoint()
        yield from self._resolve(found, feed, listing)

    def _belongs(self, file: DriveFile, feed: str) -> bool:
        """Whether it is said in the listing of this feed: the account's has some of all drives."""
        return self._state.home(file.drive) == feed and self._folders.in_scope(file.parent)

    def _pages(
        self, listing: UnderWay | None, feed: str, query: str, page: str | None = None
    ) -> Iterator[tuple[list[DriveFile], str | None]]:
        """As `pages`; what they lack of it is listed again."""
        for entries, following, whole in pages(self._source, feed, query, page):
            if not whole and listing is None:
                self._list_again(feed)
            elif not whole and listing is not None:
                listing.partial = sorted({*listing.partial, feed})
            yield entries, following

    # --- following a feed ---

    def _follow(self, feed: str) -> Iterator[Change]:
        state = self._state.feeds()[feed]
        turning = Turning("Drive", state.token)
        while True:
            self._source.going()
            answer = changes_at(self._api, feed, state.token)
            if answer.status in REFUSED:
                if feed == USER and self._known is None:
                    raise Transient(
                        "Drive refuses the token that it gave", code=PROVIDER_UNAVAILABLE
                    )
                if feed == USER:
                    raise CursorExpired("Drive no longer keeps its changes from the last sync on")
                state.token, state.listed = start_of(self._api, feed), None
                self._tried.discard(feed)
                yield self._checkpoint()
                return
            body = as_json(answer)
            changes: list[Any] = field_of(body, "changes", list)
            here = changed(changes, lambda file: self._state.home(file.drive) == feed)
            ids = (change.get("fileId") for change in changes)
            following = turning.turn(body.get("nextPageToken"), ids)
            newest = None if following else field_of(body, "newStartPageToken", str)
            yield from self._apply(feed, here)
            state.token = following or newest or state.token
            yield self._checkpoint()
            if following is None:
                return

    def _apply(self, feed: str, changes: Mapping[str, DriveFile | None]) -> Iterator[Change]:
        """One page of the feed. None: removed, or not to be seen any more.

        Folders are said last: should this end in between, it begins again with what was known.
        """
        rows = {row.id: row for row in self._source.remembered(list(changes))}
        before = dict(self._folders)
        in_trash, unseen = self._folders.apply(changes, self._state.drives)
        shortcuts: list[DriveFile] = []
        released: list[Remembered] = []
        for id, file in changes.items():
            row = rows.get(id)
            if id in before or id in self._folders:
                continue
            if file is None or file.trashed:
                home = None if row is None else self._state.home(said_of(row, "drive"))
                if row is not None and (file is not None or home == feed):
                    yield away(row) if file is not None else self._lost(row)
                    released.append(row)
            elif file.target:
                shortcuts.append(file)
            else:
                yield from self._tell(file, row)
        if shortcuts or released or before != self._folders:
            # What follows looks things up, so what was said must stand.
            yield self._checkpoint()
        yield from self._release(released)
        yield from self._reshow(shortcuts)
        if before != self._folders:
            yield from self._look_into(self._folders.entered(before))
            yield self._checkpoint()
            yield from self._replace_below(self._folders.differing(before), in_trash, unseen)
        for id in sorted(self._folders.differing(before) | (before.keys() - self._folders.keys())):
            yield self._folders.get(id) or Folder(id, "", None)

    def _tell(self, file: DriveFile, row: Remembered | None) -> Iterator[Change]:
        """A file as it is now, wherever it was before."""
        via = [] if row is None else shortcuts_to(row)
        own = self._folders.in_scope(file.parent)
        if own:
            yield self._answer(file, self._state.home(file.drive), via)
        elif via and row is not None:
            yield self._answer(file, row.branch, via, own=False)
        elif row is not None and self._is_settled(row):
            yield Gone(file.id)

    def _is_settled(self, row: Remembered) -> bool:
        """If not, the next listing of its feed says what is gone, and minds how much it is."""
        feed = self._state.feeds().get(row.branch)
        return feed is None or feed.listed is not None

    def _lost(self, row: Remembered) -> Change:
        """Not to be seen any more; but what a link leads to may be read by who has the link."""
        found = self._read_again(row) if shortcuts_to(row) else ""
        if isinstance(found, DriveFile):
            return self._answer(found, row.branch, shortcuts_to(row), own=False)
        if isinstance(found, Transient):
            return self._given_later(row.id, found, {**row.extra, "own": False}, row.branch)
        return away(row)

    def _replace_below(
        self,
        moved: AbstractSet[str],
        in_trash: AbstractSet[str] = frozenset(),
        unseen: AbstractSet[str] = frozenset(),
    ) -> Iterator[Change]:
        """What is known below folders that changed, with its new path, or gone with them."""
        elsewhere = self._folders.below(moved)
        if not in_trash | unseen | elsewhere:
            return
        released: list[Remembered] = []
        for row in self._source.remembered():
            parent = said_of(row, "parent")
            if parent in in_trash:
                yield away(row)
                released.append(row)
            elif parent in unseen:
                # Some of it may be shared by itself, which only a listing tells.
                self._list_again(row.branch)
            elif parent in elsewhere:
                yield from self._tell_again(row, released)
        if released:
            yield self._checkpoint()
            yield from self._release(released)

    def _tell_again(self, row: Remembered, released: list[Remembered]) -> Iterator[Change]:
        own = self._folders.in_scope(said_of(row, "parent"))
        if not own and not shortcuts_to(row):
            if self._is_settled(row):
                yield Gone(row.id)
                released.append(row)
        elif row.version is not None:
            yield self._answer(known_file(row), row.branch, shortcuts_to(row), own=own)
        elif row.verdict == OUT_OF_REACH:
            found = self._read_again(row)
            if isinstance(found, DriveFile):
                yield from self._tell(found, row)
            elif isinstance(found, Transient):
                yield self._given_later(row.id, found, row.extra, row.branch)

    def _list_again(self, branch: str) -> None:
        feed = self._state.feeds().get(branch)
        if feed is not None:
            feed.listed = None
            self._tried.discard(branch)

    # --- folders that came into scope ---

    def _look_into(self, folders: Sequence[str]) -> Iterator[Change]:
        """Feeds do not tell what is in a folder that is new to the account.

        All folders first: what is in scope may depend on any of them.
        """
        waiting, done = list(folders), set(folders)
        found: list[DriveFile] = []
        while waiting:
            folder = waiting.pop()
            home = self._home_of(folder)
            content = None if len(done) > MANY else self._content_of(home, folder)
            if content is None:
                self._list_again(home)
                continue
            for file in content:
                if file.mime == FOLDER:
                    self._folders[file.id] = Folder(file.id, file.name, file.parent)
                    waiting += [file.id] if file.id not in done else []
                    done.add(file.id)
            found += [file for file in content if file.mime != FOLDER]
        rows = {row.id: row for row in self._source.remembered([file.id for file in found])}
        for file in found:
            if not file.target:
                yield from self._tell(file, rows.get(file.id))
        shortcuts = [file for file in found if file.target]
        if shortcuts:
            yield self._checkpoint()
            yield from self._reshow(shortcuts)

    def _content_of(self, home: str, folder: str) -> list[DriveFile] | None:
        """None: it is gone again, or may not be listed by itself. Of several at once Drive may
        leave out some (github.com/rclone/rclone/issues/9810)."""
        inside = f"'{folder}' in parents"
        try:
            return [file for page, _ in self._pages(None, home, inside) for file in page]
        except Permanent:
            return None
        except Transient as error:
            self._patience.failed(error)
            return None

    # --- shortcuts ---

    def _reshow(self, shortcuts: Sequence[DriveFile]) -> Iterator[Change]:
        inside = [file for file in shortcuts if self._folders.in_scope(file.parent)]
        for feed in sorted({self._state.home(file.drive) for file in inside}):
            ours = [file for file in inside if self._state.home(file.drive) == feed]
            yield from self._resolve(ours, feed)
        outside = [file.id for file in shortcuts if not self._folders.in_scope(file.parent)]
        released = list(self._source.remembered(outside)) if outside else []
        for row in released:
            yield Gone(row.id)
        yield from self._release(released)

    def _resolve(
        self, shortcuts: Iterable[DriveFile], feed: str, listing: UnderWay | None = None
    ) -> Iterator[Change]:
        """Say the targets. What a listing under way has not seen so far is not there by itself."""
        by_target: dict[str, list[DriveFile]] = {}
        for shortcut in shortcuts:
            by_target.setdefault(shortcut.target, []).append(shortcut)
        for target, group in by_target.items():
            self._source.going()
            found = target_of(self._api, self._patience, group[0])
            row = next(iter(self._source.remembered([target])), None)
            is_document = row is not None and row.document_id is not None
            if row is not None and listing is not None and listing.lacks(row):
                row = None
            own = row is not None and row.extra.get("own") is True
            via = sorted(
                {*(shortcuts_to(row) if row else ()), *(shortcut.id for shortcut in group)}
            )
            known = {"via": via, "key": group[0].target_key}
            if isinstance(found, DriveFile):
                kind, detail = "shortcut", f"It points to {found.id}."
                branch = row.branch if own and row is not None else feed
                yield self._answer(found, branch, via, own=own)
            elif isinstance(found, Transient):
                kind, detail = "shortcut", f"It points to {target}."
                yield self._given_later(target, found, known, row.branch if row else feed)
            else:
                kind, detail = "broken_shortcut", found
                if not own and group[0].target_mime not in NO_TARGETS:
                    doubtful = found != IN_TRASH
                    if doubtful and is_document:
                        self._unread[feed] = timedelta()  # the next sync confirms it or not
                    yield Verdict(target, OUT_OF_REACH, detail, known, feed, confirm=doubtful)
            for shortcut in group:
                yield refusal(shortcut, feed, kind, detail)

    def _given_later(
        self, id: str, error: Transient, known: Mapping[str, Any], branch: str
    ) -> Verdict:
        """What Drive cannot give now keeps its document; a listing asks for it again."""
        self._unread.setdefault(branch, UNREAD_AGAIN)
        told = f"Google Drive cannot give it at present ({error})."
        return Verdict(id, OUT_OF_REACH, told, extra=known, branch=branch, keep=True, failed=True)

    def _read_again(self, row: Remembered) -> DriveFile | str | Transient:
        return read(self._api, self._patience, row.id, said_of(row, "key"))

    def _release(self, rows: Iterable[Remembered]) -> Iterator[Change]:
        """Shortcuts that went: what was only there through them goes, too."""
        leaving: dict[str, set[str]] = {}
        for row in rows:
            if target := said_of(row, "target"):
                leaving.setdefault(target, set()).add(row.id)
        for row in list(self._source.remembered(list(leaving))) if leaving else ():
            via = [id for id in shortcuts_to(row) if id not in leaving[row.id]]
            own = row.extra.get("own") is True
            if not own and not via:
                yield Gone(row.id)
            elif row.version is not None:
                yield self._answer(known_file(row), row.branch, via, own=own)

    def _home_of(self, folder: str) -> str:
        return self._state.home(self._folders.top(folder))

    def _answer(
        self, file: DriveFile, branch: str, via: Sequence[str] = (), *, own: bool = True
    ) -> Item | Verdict:
        drive = self._folders.name(file.drive) if file.drive in self._state.drives else ""
        return told(file, branch, via, own=own, path=self._folders.path(file), drive=drive)
