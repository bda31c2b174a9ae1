"""Google Drive: what an account owns, what is shared with it, and its shared drives.

Everything is listed once and then followed through the change feeds, one of the account and one
of each shared drive (a branch, in the words of `base`). Feeds tell no paths, not what is in a
folder that moved, and not always what was unshared; so folders are known, and each feed is listed
whole again every week. Names and places are metadata: they change without fetching.

A file is in scope by its folders. A shortcut is not a document of its own; it brings its target
into scope, under the target's id.

Facts: developers.google.com/workspace/drive/api (files, changes, channels, shortcuts, resource
keys, export formats, handle errors).
"""

import hmac
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

from recollect.connectors import _folders, _google
from recollect.connectors._json import as_object, as_word
from recollect.connectors.about import Guide
from recollect.connectors.api import PROVIDER_UNAVAILABLE, Api, as_json, field_of
from recollect.connectors.base import Account, Assumption, Change, Connector, Cursor, Source
from recollect.connectors.google_drive._content import content_of
from recollect.connectors.google_drive._feeds import USER, drives_of, of_feed, start_of
from recollect.connectors.google_drive._files import KINDS
from recollect.connectors.google_drive._pass import Pass
from recollect.connectors.oauth import Tokens
from recollect.connectors.pushes import FORGED, Push, PushResult, Registration
from recollect.errors import BadRequestError, Permanent, Transient
from recollect.fetch import EndpointAnswer, Fetcher
from recollect.model import Blob, Remembered

SCOPE = "https://www.googleapis.com/auth/drive.readonly"
CHANNEL_LIFE = timedelta(days=7)
"""the most that Drive gives"""
QUOTA_WAIT = timedelta(hours=1)
REFUSALS = {
    "exportSizeLimitExceeded": (
        "export_too_large",
        "Google exports at most 10 MB of a file; split it, or make its pictures smaller",
    ),
    "cannotDownloadAbusiveFile": (
        "abusive_file",
        "Google takes it for malware or spam and does not let it be downloaded",
    ),
    "cannotDownloadFile": (
        "not_downloadable",
        "its owner does not let viewers download it; ask the owner to allow that",
    ),
    "cannotExportFile": (
        "not_downloadable",
        "its owner does not let viewers download it; ask the owner to allow that",
    ),
    "fileNotDownloadable": (
        "not_downloadable",
        "Google does not offer files of this kind for download",
    ),
    "fileNotExportable": ("not_downloadable", "Google does not export files of this kind"),
    "insufficientFilePermissions": (
        "no_access",
        "the account may not read it any more; share it with the account again",
    ),
    "appNotAuthorizedToFile": (
        "no_access",
        "the OAuth application may not read it; it needs the scope drive.readonly",
    ),
    "domainPolicy": (
        "domain_policy",
        "an administrator of the Google Workspace does not let applications read it",
    ),
}
"""Reasons of Google that concern one file: our code, and what to do."""
FOLDER_ID = re.compile(r"[A-Za-z0-9_-]{3,200}")
FOLDER_LINK = re.compile(r"https://drive\.google\.com/drive/(?:u/\d+/)?folders/([A-Za-z0-9_-]++).*")


class GoogleDrive(Connector):
    provider = "google-drive"
    name = "Google Drive"
    guide = Guide(
        "Documents, sheets, slides and files, shared drives included.",
        "a Google account",
        _folders.FIELDS,
        if_nothing="The account has no files, or the folders that are named have none.",
    )
    kinds = MappingProxyType(dict.fromkeys(KINDS.values(), "page"))
    application = _google.APPLICATION
    api_url = "https://www.googleapis.com"
    oauth = _google.GOOGLE_OAUTH((SCOPE, "openid", "email"))
    pushes = True
    selects = "folders"

    def check(self, metadata: Mapping[str, Any], fetcher: Fetcher) -> dict[str, Any]:
        return _folders.checked(metadata, _folder_id)

    def selection(self, metadata: Mapping[str, Any]) -> dict[str, str] | None:
        return _folders.selection(metadata, _folder_id)

    def select(self, metadata: Mapping[str, Any], ids: Sequence[str]) -> dict[str, Any]:
        return _folders.select(metadata, ids)

    def judge(self, answer: EndpointAnswer) -> Exception | None:
        known = _google.judge(answer, scope="drive.readonly")
        if known is not None or answer.status != 403:
            return known
        for reason in sorted(_google.reasons(answer) & REFUSALS.keys()):
            code, sentence = REFUSALS[reason]
            return Permanent(sentence, code=code)
        if "downloadQuotaExceeded" in _google.reasons(answer):
            return Transient(
                "too many people downloaded it; Google gives it out again within a day",
                code=PROVIDER_UNAVAILABLE,
                after=QUOTA_WAIT,
            )
        return None

    def identify(self, api: Api, tokens: Tokens) -> Account:
        return _google.identify(api, tokens)

    # --- listing and fetching ------------------------------------------------------------------

    def changes(self, source: Source, cursor: Cursor | None) -> Iterator[Change]:
        selected = _folders.selected(source.metadata, _folder_id)
        if selected is not None and not selected:
            return _folders.none_selected(USER)
        return Pass(source, selected, cursor).run()

    def fetch(self, source: Source, item: Remembered) -> Blob:
        return content_of(source, item)

    def ping(self, source: Source) -> None:
        start_of(source.api, USER)

    def assumptions(self, source: Source) -> Iterator[Assumption]:
        start_of(source.api, USER)
        yield Assumption("changes", True, "the feed of changes can be followed")
        drives = drives_of(source.api)
        yield Assumption("shared_drives", True, f"{len(drives)} shared drives can be seen")

    # --- pushes --------------------------------------------------------------------------------

    def watches(self, source: Source) -> Sequence[str]:
        return [USER, *drives_of(source.api)]

    def subscribe(self, source: Source, registration: Registration) -> Registration:
        """docs: guides/push. What is watched is a feed, from now on."""
        feed = registration.resource
        expiry = source.since + CHANNEL_LIFE
        answer = source.api.call(
            "POST",
            "/drive/v3/changes/watch",
            params={**of_feed(feed), "pageToken": start_of(source.api, feed)},
            json={
                "id": registration.id,
                "type": "web_hook",
                "address": registration.url,
                "token": registration.secret,
                "expiration": str(int(expiry.timestamp() * 1000)),
            },
        )
        channel = as_json(answer)
        told = as_word(as_object(channel).get("expiration"))
        if re.fullmatch(r"[0-9]{1,14}", told):
            expiry = datetime.fromtimestamp(int(told) / 1000, UTC)
        remote = {"id": registration.id, "resourceId": field_of(channel, "resourceId", str)}
        return replace(registration, remote=remote, expires_at=expiry)

    def unsubscribe(self, api: Api, registration: Registration) -> None:
        resource = registration.remote.get("resourceId")
        if not isinstance(resource, str):
            return
        body = {"id": registration.id, "resourceId": resource}
        api.call("POST", "/drive/v3/channels/stop", json=body, accept=frozenset({404}))

    def reads(self, push: Push) -> bool:
        """Its headers say all."""
        return False

    def receive(self, push: Push) -> PushResult:
        """Nothing is signed; the channel's id, its resource and our token together are the proof.

        The first one, `sync`, may come before the answer that names the resource.
        """
        registration = push.registration
        if registration is None:
            return PushResult(status=200)
        expected = {
            "x-goog-channel-id": registration.id,
            "x-goog-channel-token": registration.secret,
        }
        resource = registration.remote.get("resourceId")
        if isinstance(resource, str):
            expected["x-goog-resource-id"] = resource
        right = [
            hmac.compare_digest(push.headers.get(name, "").encode(errors="replace"), value.encode())
            for name, value in expected.items()
        ]
        if not all(right):
            return FORGED
        number = push.headers.get("x-goog-message-number", "")[:40]
        key = f"{registration.id}:{number}" if number else None
        concerned = push.headers.get("x-goog-resource-state") != "sync"
        return PushResult(status=200, concerned=concerned, key=key)


def _folder_id(given: str) -> str:
    """Out of the id or the link of a folder or a shared drive; raises BadRequestError."""
    link = FOLDER_LINK.fullmatch(given)
    id = link[1] if link else given
    if not FOLDER_ID.fullmatch(id):
        raise BadRequestError(
            f"metadata.{_folders.FOLDERS}: {given[:100]!r} is not the id of a folder, which"
            " follows /folders/ in the address when the folder is open in Google Drive"
        )
    return id
