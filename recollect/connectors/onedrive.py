"""OneDrive, personal and for work or school: the files of one account's drive.

One call, `delta`, both lists everything and then tells what changed. It tells no paths, and of a
folder that moved not what is in it; so folders are known, and after a folder changed, what is known
is told again with its new path (`_Sync._tidy`), without fetching. It is not always complete
(github.com/OneDrive/onedrive-api-docs/issues/1927), so everything is listed again each week.

What others share with the account is not in its drive, but shortcuts to it are. If the connection
wants them, what they stand for is looked at with each sync; `delta` does not tell of that.

Facts: learn.microsoft.com/graph (driveitem-delta, driveitem-get-content, driveitem-list-children,
subscription-post-subscriptions, change-notifications-lifecycle-events, throttling, errors).
"""

import hmac
import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, cast
from urllib.parse import quote, urlencode, urljoin

from recollect.connectors._api import PROVIDER_UNAVAILABLE, RATE_LIMITED, Api, as_json, field_of
from recollect.connectors._json import (
    LONGEST_NAME,
    UNPRINTABLE,
    as_name,
    as_object,
    as_time,
    as_word,
)
from recollect.connectors.base import (
    FORGED,
    Account,
    Change,
    Checkpoint,
    Connector,
    Cursor,
    Folder,
    Gone,
    Item,
    Listed,
    Listing,
    Missing,
    Notice,
    Push,
    Registration,
    Source,
    Trouble,
    Verdict,
)
from recollect.errors import (
    BadRequestError,
    CursorExpired,
    NotFoundError,
    Permanent,
    Reauthorize,
    RecollectError,
    Transient,
)
from recollect.fetch import Answer, Fetcher, outcome
from recollect.model import Blob, Remembered
from recollect.oauth import OAuth, Tokens

SYNC_SCOPE = "syncScope"
"""key of the metadata: `full`, or `selected` for what is below `folders`"""
FOLDERS = "folders"
"""key of the metadata: ids of folders, with commas between them"""
SHARED = "shared"
"""key of the metadata: True to follow shortcuts to what others share"""
MOST_SELECTED = 100
DRIVE = "drive"
"""the branch of what is in the drive; each folder that a shortcut stands for is one, by its id"""
SHORTCUTS = "shortcuts"
"""the branch of shortcuts into other drives, and of the files that they stand for"""
ROOT = "root"
"""what is watched"""
PLANNED = "planned"
SHARED_FOLDER = "shared_folder"
FOLDER_MISSING = "folder_missing"
BIN = "bin"
"""stands for the parent of a folder that was deleted, until all changes are known"""
PAGE = 500
"""entries"""
BATCH = 200
"""changes between two checkpoints"""
MOST_FOLDERS = 2_000
"""that are looked into one by one"""
CHECK_EVERY = timedelta(days=7)
"""between whole listings"""
SUBSCRIPTION_LIFE = timedelta(days=29)
"""Graph gives at most 42,300 minutes, 29.4 days; clocks differ"""
LARGEST_FILE = 50_000_000
"""bytes, as for an upload"""
DOWNLOAD_TIME = 300.0
"""seconds for one file"""
HOPS = 3
BANDWIDTH_WAIT = timedelta(minutes=10)
LOCKED_WAIT = timedelta(minutes=5)

FIELDS = (
    "id,name,size,webUrl,file,folder,package,remoteItem,malware,deleted,root,parentReference,cTag,"
    "publication,createdBy,lastModifiedBy,lastModifiedDateTime"
)
LIST = urlencode({"$select": FIELDS, "$top": PAGE}, safe="$,")
DELTA = f"/v1.0/me/drive/root/delta?{LIST}"
NEXT, LAST = "@odata.nextLink", "@odata.deltaLink"
WITH_SHORTCUTS = {"prefer": "Include-Feature=AddToOneDrive"}
"""Without it, drives for work or school do not tell of shortcuts."""
EXPIRED = frozenset({400, 404, 410})
"""what Graph may say to a link of an earlier sync"""
REDIRECTS = frozenset({301, 302, 303, 307, 308})
LIMITS = frozenset({"activityLimitReached", "throttledRequest", "TooManyRequests"})
TOO_FEW_SCOPES = frozenset(
    {"InvalidAuthenticationToken", "Authorization_RequestDenied", "unauthenticated"}
)
REFUSALS = {
    "malwareDetected": (
        "malware",
        "Microsoft holds it for malware and does not let it be downloaded",
    ),
    "virusInfected": (
        "malware",
        "Microsoft holds it for malware and does not let it be downloaded",
    ),
    "notSupported": ("unsupported", "OneDrive does not give out the content of such things"),
}
"""Error codes of Graph that concern one file: our code, and what they mean."""
LOST = frozenset({"reauthorizationRequired", "subscriptionRemoved"})
"""lifecycle events after which a subscription has to be made anew"""

ITEM_ID = re.compile(r"[A-Za-z0-9!_.-]{3,200}")
HANDSHAKE = re.compile(r"[^\x00-\x1f\x7f-\x9f<>\ud800-\udfff]{1,2048}")


class Place(Enum):
    """Where something is, as far as the connection is concerned."""

    IN = "in scope"
    OUT = "out of scope"
    BINNED = "in a folder that was deleted, as far as was heard"
    UNKNOWN = "in a folder of which nothing was heard yet"


@dataclass(frozen=True, slots=True)
class File:
    """What Graph tells of a file or a shortcut, as far as it is used."""

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


@dataclass(slots=True)
class State:
    """The cursor."""

    scope: str
    link: str
    """where to go on"""
    midway: bool
    """whether more pages follow, of changes up to a moment that is past"""
    listing: bool
    """whether everything is being listed"""
    began: str
    """when the last whole listing did"""
    listed: str | None = None
    """the same, once nothing of it waits to be confirmed; None: everything must be listed"""
    stale: bool = False
    """whether what is known has to be compared with the folders"""


class OneDrive(Connector):
    provider = "onedrive"
    name = "OneDrive"
    api_url = "https://graph.microsoft.com"
    oauth = OAuth(
        authorize_url="https://login.microsoftonline.com/common/oauth2/v2.0/authorize",
        token_url="https://login.microsoftonline.com/common/oauth2/v2.0/token",  # noqa: S106 # an address
        scopes=("Files.Read", "offline_access", "User.Read"),
        # Else the account that the browser remembers is taken without asking.
        parameters={"prompt": "select_account"},
        rotates=True,
    )
    pushes = True

    def check(self, metadata: Mapping[str, Any], fetcher: Fetcher) -> dict[str, Any]:
        if metadata.get(SYNC_SCOPE, "full") not in ("full", "selected"):
            raise BadRequestError(f"metadata.{SYNC_SCOPE}: must be 'full' or 'selected'")
        if not isinstance(metadata.get(SHARED, False), bool):
            raise BadRequestError(f"metadata.{SHARED}: must be true or false")
        if FOLDERS not in metadata:
            return dict(metadata)
        return {**metadata, FOLDERS: ",".join(_checked(metadata[FOLDERS]))}

    def headers(self) -> Mapping[str, str]:
        # learn.microsoft.com/sharepoint/dev/general-development, "how to decorate your traffic"
        return {"accept": "application/json", "user-agent": "NONISV|Recollect|Recollect/1.0"}

    def judge(self, answer: Answer) -> Exception | None:
        codes, message = _error(answer)
        status = answer.status
        asked = "retry-after" in answer.headers
        if (
            status in (429, 507, 509)
            or (status == 503 and asked)
            or (status == 403 and codes & LIMITS)
        ):
            return _limit(answer)
        if status == 423:
            return Transient(
                "it is locked, because somebody edits or moves it; it is tried again",
                code=PROVIDER_UNAVAILABLE,
                after=LOCKED_WAIT,
            )
        if not 400 <= status < 500:
            return None
        if codes & TOO_FEW_SCOPES:
            return Reauthorize(f"Microsoft refuses the authorization ({message})")
        for code in sorted(codes & REFUSALS.keys()):
            kind, sentence = REFUSALS[code]
            return Permanent(sentence, code=kind)
        if status == 403:
            return Permanent(f"OneDrive refuses ({message})", code="http_403")
        return None

    # --- authorization -------------------------------------------------------------------------

    def authorized(self, asked: Mapping[str, Any]) -> Sequence[str]:
        files = "Files.Read.All" if asked.get(SHARED) is True else "Files.Read"
        return (files, "offline_access", "User.Read")

    def identify(self, api: Api, tokens: Tokens) -> Account:
        me = as_object(api.get("/v1.0/me", {"$select": "id,mail,userPrincipalName"}))
        name = as_word(me.get("mail")) or as_word(me.get("userPrincipalName"))
        return Account(field_of(me, "id", str), name or None)

    # --- listing and fetching ------------------------------------------------------------------

    def changes(self, source: Source, cursor: Cursor | None) -> Iterator[Change]:
        selected = _selected(source.metadata)
        if selected is not None and not selected:
            yield Trouble(
                f"No folder is selected. Name some in metadata.{FOLDERS}, or set"
                f" metadata.{SYNC_SCOPE} to 'full'",
                code="no_folders",
                branch=DRIVE,
            )
            yield Checkpoint({})
            return
        yield from _Sync(source, selected, cursor).run()

    def fetch(self, source: Source, item: Remembered) -> Blob:
        """The version that is current now; its address serves without authorization, so none is
        sent there and nobody is shown it."""
        file = _file_of(item)
        path = f"{_drive(file)}/items/{quote(file.target or file.id, safe='')}/content"
        answer = source.api.call("GET", path, accept=REDIRECTS | {404, 410})
        if answer.status in (404, 410):
            raise NotFoundError(f"{item.title} is not there any more")
        if answer.status in REDIRECTS:
            answer = _download(source.fetcher, answer.headers.get("location", ""))
        if len(answer.data) > LARGEST_FILE:
            raise Permanent(f"it is larger than {LARGEST_FILE:,} bytes", code="too_large")
        return Blob(answer.data, file.mime or None, item.title, item.url)

    # --- pushes --------------------------------------------------------------------------------

    def watches(self, source: Source) -> Sequence[str]:
        return [ROOT]

    def subscribe(self, source: Source, registration: Registration) -> Registration:
        """Raises Permanent (`no_webhook`) when Graph does not get our answer to its handshake."""
        expiry = source.since + SUBSCRIPTION_LIFE
        body = {
            "changeType": "updated",
            "notificationUrl": registration.url,
            "lifecycleNotificationUrl": registration.url,
            "resource": "/me/drive/root",
            "expirationDateTime": expiry.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "clientState": registration.secret,
        }
        try:
            made = as_object(source.api.post("/v1.0/subscriptions", body))
        except Permanent as error:
            raise Permanent(
                f"no subscription ({error}): Microsoft must reach our address over https and get"
                " its answer within ten seconds. Until then changes are found by asking",
                code="no_webhook",
            ) from error
        told = as_time(as_word(made.get("expirationDateTime")))
        return replace(
            registration, remote={"id": field_of(made, "id", str)}, expires_at=told or expiry
        )

    def unsubscribe(self, api: Api, registration: Registration) -> None:
        id = registration.remote.get("id")
        if isinstance(id, str):
            path = f"/v1.0/subscriptions/{quote(id, safe='')}"
            api.call("DELETE", path, accept=frozenset({404}))

    def receive(self, push: Push) -> Notice:
        """Nothing is signed; our secret, in each notification, is the proof.

        A handshake proves nothing and changes nothing: it comes before anybody knows whose it is.
        """
        token = push.query.get("validationToken")
        if token is not None:
            return Notice(200, token) if HANDSHAKE.fullmatch(token) else Notice(400)
        if push.registration is None:
            return Notice(202)
        notifications = _notifications(push.body)
        secret = push.registration.secret.encode()
        right = [
            hmac.compare_digest(as_word(each.get("clientState")).encode(errors="replace"), secret)
            for each in notifications
        ]
        if not right or not all(right):
            return FORGED
        events = {as_word(each.get("lifecycleEvent")) for each in notifications}
        return Notice(202, concerned=True, lost=not events.isdisjoint(LOST))


# --- one sync ----------------------------------------------------------------------------------


class _Sync:
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
        self._known = _state(cursor)
        self._state = self._known or State("", DELTA, midway=False, listing=False, began="")
        self._fresh = False
        """whether a whole listing began in this pass"""
        self._held = False
        """whether the listing's end waits to be confirmed by another listing"""
        self._again = False
        """whether the next sync has to list everything"""

    def run(self) -> Iterator[Change]:
        if self._is_due():
            yield from self._begin()
        goes_on = self._state.midway and not self._fresh
        yield from self._catch_up()
        if goes_on:
            yield from self._catch_up()
        if self._state.stale and not self._held:
            yield from self._tidy()
        if self._shared:
            yield from self._follow_shortcuts()
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
        return listed is None or self._source.since - listed > CHECK_EVERY

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
        began = datetime.fromisoformat(self._state.began)
        self._held = any(
            row.seen_at < began
            for branch in (DRIVE, SHORTCUTS)
            for row in self._source.remembered(branch=branch)
        )
        if not self._held and not self._again:
            self._state.listed = self._state.began
            yield self._checkpoint()

    # --- pages ---

    def _enumerate(self) -> Iterator[Change]:
        """All pages from where we are; the state ends at the link for the next time."""
        link = self._state.link
        # A link of an earlier pass may have expired, as may one that an error names.
        doubtful = not self._fresh
        seen: set[int] = set()
        restarts = 0
        while True:
            self._source.going()
            if hash(link) in seen:
                raise Transient("OneDrive leads in a circle of pages", code=PROVIDER_UNAVAILABLE)
            seen.add(hash(link))
            answer = self._ask(link, doubtful)
            if answer.status in EXPIRED:
                link, restarts = answer.headers.get("location", ""), restarts + 1
                if answer.status != 410 or not link or restarts > HOPS:
                    raise self._expired()
                # Whether it works is seen soon. The cursor names the beginning meanwhile.
                yield from self._begin()
                doubtful = True
                continue
            doubtful = False
            body = as_json(answer)
            entries: list[Any] = field_of(body, "value", list)
            following = as_word(body.get(NEXT))
            link = following or field_of(body, LAST, str)
            yield from self._apply(entries)
            self._state.link, self._state.midway = link, bool(following)
            if not following:
                return
            yield self._checkpoint()

    def _ask(self, link: str, doubtful: bool) -> Answer:
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
                case "http_403":
                    raise Reauthorize(
                        f"{error}: the permission Files.Read was not granted, or an administrator"
                        " does not let this application read OneDrive"
                    ) from error
                case "http_404":
                    raise Permanent(
                        "This account has no OneDrive. Open OneDrive once in the browser with this"
                        " account; accounts for work or school also need a licence for it",
                        code="no_drive",
                    ) from error
                case _:
                    raise

    def _expired(self) -> RecollectError:
        if self._known is None:
            return Transient("OneDrive refuses its own link", code=PROVIDER_UNAVAILABLE)
        return CursorExpired("OneDrive does not know the place in its changes any more")

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
            _file(entry) for id, entry in latest.items() if not self._learn(id, entry, rows.get(id))
        ]
        for id, entry in latest.items():
            row = rows.get(id)
            if row is not None and (_is_deleted(entry) or id in self._folders):
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
        return sorted(ids, key=lambda id: len(_above(self._folders, id)), reverse=True)

    def _learn(self, id: str, entry: Mapping[str, Any], row: Remembered | None) -> bool:
        """Bring the folders up to date; whether there is nothing else to be said of it."""
        if _is_deleted(entry):
            if id in self._folders:
                # What it held may have moved; only at the end of all changes it is known to be
                # gone with it.
                self._folders[id] = replace(self._folders[id], parent=BIN)
            if row is not None and row.branch == SHORTCUTS:
                self._state.stale = True
            return True
        if not _is_folder(entry):
            return False
        self._folders[id] = Folder(id, _name(entry), _parent(entry))
        return True

    # --- files ---

    def _tell(self, file: File, row: Remembered | None) -> Iterator[Change]:
        """A file or shortcut as it is now, wherever it was before."""
        place = self._place(file)
        if not _is_rooted(self._folders, file.parent):
            self._state.stale = True
        is_document = row is not None and row.document_id is not None
        if place is Place.OUT:
            if row is not None:
                yield Gone(file.id)
        elif file.target:
            yield self._shortcut(file, row)
        elif place is Place.IN or is_document:
            yield self._answer(file)
        else:
            yield _refusal(
                file,
                DRIVE,
                PLANNED,
                "What becomes of its folder is not known yet.",
                extra={**_extra(file), "version": file.version},
            )

    def _shortcut(self, file: File, row: Remembered | None) -> Item | Verdict:
        """What it stands for is looked at after all changes."""
        if not self._shared:
            told = (
                "It stands for something that others share. Set metadata.shared to true to have it,"
                " and authorize again."
            )
            return _refusal(file, SHORTCUTS, "shared", told)
        if file.folder:
            told = "It stands for a folder of another drive; what is in it is listed."
            return _refusal(file, SHORTCUTS, SHARED_FOLDER, told)
        if row is None or row.version is None or _file_of(row).target != file.target:
            return _refusal(file, SHORTCUTS, PLANNED, "It is looked at after all changes.")
        known = _file_of(row)
        return self._answer(replace(known, name=file.name, parent=file.parent), SHORTCUTS)

    def _answer(
        self, file: File, branch: str = DRIVE, above: Sequence[str] | None = None
    ) -> Item | Verdict:
        """`above`: names of the folders that it is in, if those are not ours."""
        refused = _fault(file)
        if refused is not None:
            return _refusal(file, branch, *refused)
        path = "/".join([*(self._names(file.parent) if above is None else above), file.name])
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
            kind="onedrive",
            metadata={name: value for name, value in shown.items() if value != ""},
            extra={**_extra(file), "path": path},
            branch=branch,
            modified_at=as_time(file.modified),
        )

    # --- places ---

    def _place(self, file: File) -> Place:
        place = self._place_of(file.parent, self._folders)
        chosen = self._selected is not None and file.id in self._selected
        return Place.IN if chosen and place is not Place.BINNED else place

    def _place_of(self, id: str, folders: Mapping[str, Folder]) -> Place:
        """Of a folder and what is in it, going by these folders."""
        above = _above(folders, id)
        if BIN in above:
            return Place.BINNED
        if self._selected is None or any(id in self._selected for id in above):
            return Place.IN
        return Place.OUT if _is_rooted(folders, id) else Place.UNKNOWN

    def _names(self, id: str) -> list[str]:
        """Of the folder and those that it is in, from the top; the root has none."""
        found = [self._folders[id] for id in _above(self._folders, id) if id in self._folders]
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
            for _, entries in self._walk("/v1.0/me/drive", top):
                rows = {row.id: row for row in self._source.remembered([e["id"] for e in entries])}
                for entry in entries:
                    row = rows.get(entry["id"])
                    if not self._learn(entry["id"], entry, row):
                        yield from self._tell(_file(entry), row)
        except Permanent as error:
            if error.code not in ("http_404", "too_large"):
                raise
            # It moved on meanwhile, or takes more calls than to list everything: the next time.
            self._again, self._state.listed = True, None

    def _came_in(self, id: str, before: Mapping[str, Folder]) -> bool:
        was = self._place_of(id, before) if id in before else Place.UNKNOWN
        now = self._place_of(id, self._folders)
        if self._state.listing:
            return was in (Place.OUT, Place.BINNED) and now in (Place.IN, Place.UNKNOWN)
        if now is Place.OUT and (self._selected or set()) - self._folders.keys():
            # What is selected went with a folder around it, and may be back with that.
            return was in (Place.UNKNOWN, Place.BINNED)
        return was is not Place.IN and now is Place.IN

    def _walk(self, drive: str, roots: Sequence[str]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        """Pages of what is in these folders and all below: the folder, and entries of it."""
        waiting, met = deque(roots), set(roots)
        while waiting:
            folder = waiting.popleft()
            link = f"{drive}/items/{quote(folder, safe='')}/children?{LIST}"
            seen: set[str] = set()
            while link:
                self._source.going()
                seen.add(link)
                body = as_json(self._api.call("GET", link, headers=self._headers))
                entries: list[dict[str, Any]] = field_of(body, "value", list)
                for entry in entries:
                    id = field_of(entry, "id", str)
                    if _is_folder(entry) and id not in met:
                        met.add(id)
                        waiting.append(id)
                if len(met) > MOST_FOLDERS:
                    raise Permanent("it has too many folders to list", code="too_large")
                yield folder, entries
                link = as_word(body.get(NEXT))
                if link in seen:
                    raise Transient(
                        "OneDrive leads in a circle of pages", code=PROVIDER_UNAVAILABLE
                    )

    # --- after all changes ---

    def _tidy(self) -> Iterator[Change]:
        """Compare what is known with the folders: new paths, out of scope, gone with its folder."""
        followed = {
            row.id
            for row in self._source.remembered(branch=SHORTCUTS)
            if self._shared and self._place(_file_of(row)) is Place.IN
        }
        said = 0
        for row in self._source.remembered():
            change = self._tidied(row, followed)
            if change is not None:
                yield change
                said += 1
                if said % BATCH == 0:
                    yield self._checkpoint()
        for id in self._inside_out(id for id in self._folders if BIN in _above(self._folders, id)):
            del self._folders[id]
            yield Folder(id, "", None)
        self._state.stale = False
        yield self._checkpoint()

    def _tidied(self, row: Remembered, followed: AbstractSet[str]) -> Change | None:
        if row.branch not in (DRIVE, SHORTCUTS):
            return None if row.branch in followed else Gone(row.id)
        if row.verdict == FOLDER_MISSING:
            return None
        file = _file_of(row)
        match self._place(file):
            case Place.OUT | Place.BINNED:
                return Gone(row.id)
            case Place.IN if row.verdict == PLANNED and not file.target:
                return self._answer(file)
            case Place.IN if row.version is not None:
                told = self._answer(file, row.branch)
                return None if told.extra.get("path") == row.extra.get("path") else told
            case _:
                return None

    # --- what others share ---

    def _follow_shortcuts(self) -> Iterator[Change]:
        """One that fails keeps nothing else from being synced."""
        for row in list(self._source.remembered(branch=SHORTCUTS)):
            file = _file_of(row)
            if not file.target or self._place(file) is not Place.IN:
                continue
            try:
                if file.folder:
                    yield from self._follow_folder(file)
                else:
                    yield self._follow_file(file)
            except (Permanent, Transient) as error:
                if error.code == RATE_LIMITED:
                    raise
                yield Trouble(
                    f"{file.name}, which is shared with the account, could not be read ({error})."
                    " What is known of it stays. It is tried again with the next sync; if it was"
                    " shared again or differently, authorize again",
                    error.code,
                    file.id,
                )
            yield self._checkpoint()

    def _follow_file(self, file: File) -> Change:
        path = f"{_drive(file)}/items/{quote(file.target, safe='')}"
        answer = self._api.call("GET", path, params={"$select": FIELDS}, accept=frozenset({404}))
        if answer.status == 404:
            return Missing(file.id, "It is not there any more, or not shared.", SHORTCUTS)
        found = _file(as_json(answer))
        here = {"id": file.id, "name": file.name, "parent": file.parent}
        return self._answer(replace(found, **here, drive=file.drive, target=file.target), SHORTCUTS)

    def _follow_folder(self, shortcut: File) -> Iterator[Change]:
        """Paging through folders may miss what is written meanwhile, so what is not found counts
        as gone when it is not found again."""
        names = {shortcut.target: [*self._names(shortcut.parent), shortcut.name]}
        found: set[str] = set()
        try:
            for folder, entries in self._walk(_drive(shortcut), [shortcut.target]):
                for entry in entries:
                    if _is_folder(entry):
                        names[entry["id"]] = [*names[folder], _name(entry)]
                        continue
                    file = replace(
                        _file(entry),
                        id=f"{shortcut.drive}:{entry['id']}",
                        drive=shortcut.drive,
                        target=entry["id"],
                    )
                    found.add(file.id)
                    yield self._answer(file, shortcut.id, names[folder])
                yield self._checkpoint()
        except Permanent as error:
            if error.code != "http_404" or found:
                raise
        for row in self._source.remembered(branch=shortcut.id):
            if row.id not in found:
                told = "It is not there any more, or not shared."
                yield Missing(row.id, told, shortcut.id)


# --- calls and answers -------------------------------------------------------------------------


def _drive(file: File) -> str:
    return f"/v1.0/drives/{quote(file.drive, safe='')}" if file.drive else "/v1.0/me/drive"


def _download(fetcher: Fetcher, url: str, hops: int = HOPS) -> Answer:
    """From an address that serves whoever knows it; no message may repeat it."""
    try:
        answer = fetcher.ask(url, max_bytes=LARGEST_FILE, total=DOWNLOAD_TIME)
    except Transient as error:
        raise Transient(str(error), code=PROVIDER_UNAVAILABLE) from error
    if answer.status == 200:
        return answer
    if answer.status in REDIRECTS and hops:
        return _download(fetcher, _joined(url, answer.headers.get("location", "")), hops - 1)
    if answer.status == 429 or (answer.status == 503 and "retry-after" in answer.headers):
        raise _limit(answer)
    # Such addresses are good for a short time, so 401 to 410 mean no more than that one is not.
    raise Transient(
        f"the place where the content is kept answered {answer.status}", code=PROVIDER_UNAVAILABLE
    )


def _joined(base: str, location: str) -> str:
    try:
        return urljoin(base, location)
    except ValueError as error:
        raise Transient("the download leads nowhere", code=PROVIDER_UNAVAILABLE) from error


def _limit(answer: Answer) -> Transient:
    asked = outcome(429, answer.headers, "OneDrive asks to wait")
    after = asked.after if isinstance(asked, Transient) else None
    if after is None and answer.status in (507, 509):
        after = BANDWIDTH_WAIT
    return Transient(
        "OneDrive asks to wait, because too much was asked of it",
        code=RATE_LIMITED,
        after=None if after is None else max(after, timedelta(seconds=1)),
    )


def _error(answer: Answer) -> tuple[frozenset[str], str]:
    """Codes of a refusal, the outer and the inner ones, and what it tells people."""
    try:
        said = as_object(as_object(json.loads(answer.data)).get("error"))
    except (ValueError, RecursionError):
        return frozenset(), f"status {answer.status}"
    message = " ".join(as_name(as_word(said.get("message"))).split())[:300]
    codes: list[str] = []
    while said and len(codes) < 10:
        codes.append(as_word(said.get("code")))
        said = as_object(said.get("innerError")) or as_object(said.get("innererror"))
    outer = codes[0] if codes else ""
    told = ": ".join(filter(None, (as_name(outer), message)))
    return frozenset(filter(None, codes)), told or f"status {answer.status}"


def _notifications(body: bytes) -> list[Mapping[str, Any]]:
    """Those of a push; none if it is none."""
    try:
        said = as_object(json.loads(body)).get("value")
    except (ValueError, RecursionError):
        return []
    return [as_object(each) for each in cast("list[Any]", said)] if isinstance(said, list) else []


# --- what Graph tells --------------------------------------------------------------------------


def _file(entry: Mapping[str, Any]) -> File:
    """Raises Transient when it has no id."""
    file, remote = as_object(entry.get("file")), as_object(entry.get("remoteItem"))
    size: Any = entry.get("size")
    modified = as_word(entry.get("lastModifiedDateTime"))
    hashed = as_word(as_object(file.get("hashes")).get("quickXorHash"))
    tag = as_word(entry.get("cTag"))
    publication = as_object(entry.get("publication"))
    # `delta` leaves out the cTag in drives for work or school, where folders list it.
    version = f"{hashed} {size}" if hashed else tag or f"{modified} {size}"
    return File(
        id=field_of(entry, "id", str),
        name=_name(entry),
        parent=_parent(entry),
        version=version,
        version_id=as_word(publication.get("versionId")) or tag or version,
        size=size if isinstance(size, int) and size >= 0 else -1,
        mime=as_name(as_word(file.get("mimeType"))),
        url=UNPRINTABLE.sub("", as_word(entry.get("webUrl"))),
        modified=modified,
        modified_by=_who(entry.get("lastModifiedBy")),
        created_by=_who(entry.get("createdBy")),
        drive=as_word(as_object(remote.get("parentReference")).get("driveId")),
        target=as_word(remote.get("id")),
        folder=isinstance(remote.get("folder"), dict),
        fault=_kind_of_fault(entry),
    )


def _kind_of_fault(entry: Mapping[str, Any]) -> str:
    for facet in ("package", "malware"):
        if isinstance(entry.get(facet), dict):
            return facet
    return "" if isinstance(entry.get("file"), dict) else "kind"


def _fault(file: File) -> tuple[str, str] | None:
    """Why it cannot be a document: our word, and a sentence."""
    match file.fault:
        case "package":
            return "unsupported", "OneDrive does not give out the content of notebooks."
        case "malware":
            return "malware", "Microsoft holds it for malware."
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


def _is_deleted(entry: Mapping[str, Any]) -> bool:
    return entry.get("deleted") is not None


def _is_folder(entry: Mapping[str, Any]) -> bool:
    """Whether it holds what the drive has; shortcuts and notebooks do not."""
    elsewhere = entry.get("remoteItem") is not None or entry.get("package") is not None
    return not elsewhere and isinstance(entry.get("folder"), dict)


def _name(entry: Mapping[str, Any]) -> str:
    name = entry.get("name") or as_object(entry.get("remoteItem")).get("name")
    return as_name(as_word(name)) or "Untitled"


def _parent(entry: Mapping[str, Any]) -> str:
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


# --- what is remembered ------------------------------------------------------------------------


def _refusal(
    file: File,
    branch: str,
    kind: str,
    detail: str,
    *,
    extra: Mapping[str, Any] | None = None,
) -> Verdict:
    return Verdict(
        file.id,
        kind,
        detail,
        extra=_extra(file) if extra is None else extra,
        branch=branch,
        url=file.url or None,
        title=file.name,
    )


KEPT = (
    "parent", "version_id", "size", "mime", "modified", "modified_by", "created_by", "drive",
    "target", "folder",
)  # fmt: skip
"""fields of a file that are needed to say it again without asking"""


def _extra(file: File) -> dict[str, Any]:
    kept = {name: getattr(file, name) for name in KEPT}
    return {name: value for name, value in kept.items() if value not in ("", False)}


def _file_of(row: Remembered) -> File:
    said = {name: value for name, value in row.extra.items() if name in KEPT}
    version = row.version or as_word(row.extra.get("version"))
    return File(row.id, row.title or "Untitled", version=version, url=row.url or "", **said)


def _above(folders: Mapping[str, Folder], id: str) -> list[str]:
    """The folder and those that it is in, up to one that is not known; never in circles."""
    found: dict[str, None] = {}
    while id and id not in found:
        found[id] = None
        folder = folders.get(id)
        id = (folder.parent or "") if folder else ""
    return list(found)


def _is_rooted(folders: Mapping[str, Folder], id: str) -> bool:
    """Whether all folders from there up to the root are known."""
    top = _above(folders, id)[-1:]
    return any(id in folders and not folders[id].parent for id in top)


# --- metadata and cursor -----------------------------------------------------------------------


def _checked(given: object) -> list[str]:
    """Ids out of `a,b`; raises BadRequestError."""
    if not isinstance(given, str):
        raise BadRequestError(f"metadata.{FOLDERS}: must be ids of folders with commas between")
    found = list(dict.fromkeys(filter(None, (part.strip() for part in given.split(",")))))
    for id in found:
        if not ITEM_ID.fullmatch(id):
            raise BadRequestError(
                f"metadata.{FOLDERS}: {id[:100]!r} is no id of a folder; it is the `id` that"
                " Microsoft Graph tells of the folder"
            )
    if len(found) > MOST_SELECTED:
        raise BadRequestError(f"metadata.{FOLDERS}: at most {MOST_SELECTED} folders")
    return found


def _selected(metadata: Mapping[str, Any]) -> frozenset[str] | None:
    """The folders to which the sync is limited; None: it is not."""
    if metadata.get(SYNC_SCOPE) != "selected":
        return None
    given = metadata.get(FOLDERS)
    return frozenset(_checked(given)) if isinstance(given, str) else frozenset()


def _state(cursor: Cursor | None) -> State | None:
    """What a cursor says; None for one that is not ours."""
    if cursor is None:
        return None
    scope, link, began = (as_word(cursor.get(name)) for name in ("scope", "link", "began"))
    listed = cursor.get("listed")
    if not scope or not link or as_time(began) is None:
        return None
    return State(
        scope=scope,
        link=link,
        midway=cursor.get("midway") is True,
        listing=cursor.get("listing") is True,
        began=began,
        listed=listed if isinstance(listed, str) else None,
        stale=cursor.get("stale") is True,
    )
