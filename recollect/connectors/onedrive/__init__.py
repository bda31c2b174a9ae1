"""OneDrive, personal and for work or school: the files of one account's drive.

One call, `delta`, both lists everything and then reports what changed. It gives no paths, and for a
folder that moved it does not list the contents; so folders are remembered, and after
a folder changed, its known contents are listed again with their new paths (`_Sync._tidy`), without
fetching. It is not always
complete (github.com/OneDrive/onedrive-api-docs/issues/1927), so everything is listed again each
week.

What others share with the account is not in its drive, but shortcuts to it are. If the connection
asks for them, their targets are looked at with each sync; `delta` leaves them out.

Facts: learn.microsoft.com/graph (driveitem-delta, driveitem-get-content, driveitem-list-children,
subscription-post-subscriptions, change-notifications-lifecycle-events, throttling, errors).
"""

import hmac
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, timedelta
from types import MappingProxyType
from typing import Any, cast
from urllib.parse import quote

from recollect.connectors import _folders
from recollect.connectors._json import as_object, as_time, as_word
from recollect.connectors.about import Application, Field, Guide
from recollect.connectors.api import PROVIDER_UNAVAILABLE, Api, field_of, refuse_stand_in
from recollect.connectors.base import Account, Assumption, Change, Connector, Cursor, Source
from recollect.connectors.oauth import OAuth, Tokens
from recollect.connectors.onedrive._files import KIND, LARGEST_FILE, known_file
from recollect.connectors.onedrive._graph import (
    OWN_DRIVE,
    REDIRECTS,
    denial_of,
    download,
    drive_of,
    error_of,
    limit_of,
    refused_alone,
)
from recollect.connectors.onedrive._pass import DELTA, DRIVE, READS_ALL, SHARED, Pass
from recollect.connectors.pushes import FORGED, Push, PushResult, Registration
from recollect.errors import BadRequestError, NotFoundError, Permanent, Reauthorize, Transient
from recollect.fetch import EndpointAnswer, Fetcher
from recollect.model import Blob, Remembered

ROOT = "root"
"""what is watched"""
SUBSCRIPTION_LIFE = timedelta(days=29)
"""Graph gives at most 42,300 minutes, 29.4 days; clocks differ"""
LOCKED_WAIT = timedelta(minutes=5)
LIMITS = frozenset({"activityLimitReached", "throttledRequest", "TooManyRequests"})
TOO_FEW_SCOPES = frozenset(
    {"InvalidAuthenticationToken", "Authorization_RequestDenied", "unauthenticated"}
)
SLIP = "Unable to initialize RPS"
"""in what Graph says of a good token now and then
(github.com/OneDrive/onedrive-api-docs/issues/1489)"""
BLOCKED = "has been blocked"
"""in what Graph says of a site that an administrator locked; the codes are those of a file that
someone edits (github.com/dust-tt/dust/pull/20377)"""
REFUSALS = {
    "malwareDetected": (
        "malware",
        "Microsoft takes it for malware and does not let it be downloaded",
    ),
    "virusInfected": (
        "malware",
        "Microsoft takes it for malware and does not let it be downloaded",
    ),
    "notSupported": ("unsupported", "OneDrive does not offer the content of such items"),
}
"""Error codes of Graph that concern one file: our code, and what they mean."""
LOST = frozenset({"reauthorizationRequired", "subscriptionRemoved"})
"""lifecycle events after which a subscription has to be made again"""
ITEM_ID = re.compile(r"[A-Za-z0-9!_.-]{3,200}")
HANDSHAKE = re.compile(r"[^\x00-\x1f\x7f-\x9f<>\ud800-\udfff]{1,2048}")


class OneDrive(Connector):
    provider = "onedrive"
    name = "OneDrive"
    kinds = MappingProxyType({KIND: "file"})
    guide = Guide(
        "Files of a personal account, or one for work or school.",
        "a Microsoft account",
        (
            *_folders.FIELDS,
            Field(
                SHARED,
                "Also what others shared",
                "Asks Microsoft for the right to read all files that the user may read.",
                kind="switch",
            ),
        ),
        if_nothing="The account has no files, or the folders that are named have none.",
    )
    application = Application("onedrive", "Microsoft", "https://entra.microsoft.com")
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
    selects = "folders"

    def check(self, metadata: Mapping[str, Any], fetcher: Fetcher) -> dict[str, Any]:
        if not isinstance(metadata.get(SHARED, False), bool):
            raise BadRequestError(f"metadata.{SHARED}: must be true or false")
        return _folders.checked(metadata, _folder_id)

    def selection(self, metadata: Mapping[str, Any]) -> dict[str, str] | None:
        return _folders.selection(metadata, _folder_id)

    def select(self, metadata: Mapping[str, Any], ids: Sequence[str]) -> dict[str, Any]:
        return _folders.select(metadata, ids)

    def headers(self) -> Mapping[str, str]:
        # learn.microsoft.com/sharepoint/dev/general-development, "how to decorate your traffic"
        return {"accept": "application/json", "user-agent": "NONISV|Recollect|Recollect/1.0"}

    def judge(self, answer: EndpointAnswer) -> Exception | None:
        codes, message = error_of(answer)
        status = answer.status
        if status in (429, 507, 509) or (status == 403 and codes & LIMITS):
            return limit_of(answer)
        if status == 423 and BLOCKED in message:
            return denial_of(codes, message)
        if status == 423:
            return Transient(
                "it is locked, because someone is editing or moving it; the next sync tries again",
                code=PROVIDER_UNAVAILABLE,
                after=LOCKED_WAIT,
            )
        if not 400 <= status < 500:
            return None
        if SLIP in message:
            return Transient("Microsoft could not read its token", code=PROVIDER_UNAVAILABLE)
        if codes & TOO_FEW_SCOPES:
            return Reauthorize(f"Microsoft refuses the authorization ({message})")
        for code in sorted(codes & REFUSALS.keys()):
            kind, sentence = REFUSALS[code]
            return Permanent(sentence, code=kind)
        if status == 403 and codes:
            return denial_of(codes, message)
        return None

    # --- authorization -------------------------------------------------------------------------

    def authorized(self, asked: Mapping[str, Any]) -> Sequence[str]:
        files = READS_ALL if asked.get(SHARED) is True else "Files.Read"
        return (files, "offline_access", "User.Read")

    def identify(self, api: Api, tokens: Tokens) -> Account:
        me = as_object(api.get("/v1.0/me", {"$select": "id,mail,userPrincipalName"}))
        name = as_word(me.get("mail")) or as_word(me.get("userPrincipalName"))
        return Account(field_of(me, "id", str), name or None)

    # --- listing and fetching ------------------------------------------------------------------

    def changes(self, source: Source, cursor: Cursor | None) -> Iterator[Change]:
        selected = _folders.selected(source.metadata, _folder_id)
        if selected is not None and not selected:
            return _folders.none_selected(DRIVE)
        return Pass(source, selected, cursor).run()

    def fetch(self, source: Source, item: Remembered) -> Blob:
        """The version that is current now; its address serves without authorization, so none is
        sent there and nobody is shown it."""
        file = known_file(item)
        path = f"{drive_of(file)}/items/{quote(file.target or file.id, safe='')}/content"
        try:
            answer = source.api.call("GET", path, accept=REDIRECTS | {404, 410})
        except Reauthorize as error:
            if not file.drive:
                raise
            raise refused_alone(source.api, error) from error
        if answer.status in (404, 410):
            raise NotFoundError(f"{item.title} is not there any more")
        if answer.status in REDIRECTS:
            answer = download(source.fetcher, answer.headers.get("location", ""))
        if len(answer.data) > LARGEST_FILE:
            raise Permanent(f"it is larger than {LARGEST_FILE:,} bytes", code="too_large")
        # No more than that: the sizes of some documents and pictures are wrong for good
        # (github.com/OneDrive/onedrive-api-docs/issues/492, 1723).
        if file.size not in (-1, len(answer.data)):
            refuse_stand_in(answer.data)
        return Blob(answer.data, file.mime or None, item.title, item.url)

    def ping(self, source: Source) -> None:
        source.api.get(OWN_DRIVE)

    def assumptions(self, source: Source) -> Iterator[Assumption]:
        page = as_object(source.api.get(DELTA))
        entries = field_of(page, "value", list)
        more = " and more" if "@odata.nextLink" in page else ""
        told = f"the feed of changes can be read ({len(entries)} entries{more})"
        yield Assumption("changes", True, told)

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
                f"no subscription ({error}): Microsoft must reach this service over https and"
                " get an answer within ten seconds. Until then Recollect polls for changes",
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

    def reads(self, push: Push) -> bool:
        return push.registration is not None and "validationToken" not in push.query

    def receive(self, push: Push) -> PushResult:
        """Nothing is signed; our secret, in each notification, is the proof of that one.

        Microsoft sends several at once: what is proven is taken, and the rest says nothing.

        A handshake proves nothing and changes nothing: it comes before anybody knows whose it is.
        """
        token = push.query.get("validationToken")
        if token is not None:
            return PushResult(200, token) if HANDSHAKE.fullmatch(token) else PushResult(400)
        if push.registration is None:
            return PushResult(202)
        secret = push.registration.secret.encode()
        proven = [
            each
            for each in _notifications(push.body)
            if hmac.compare_digest(
                as_word(each.get("clientState")).encode(errors="replace"), secret
            )
        ]
        if not proven:
            return FORGED
        events = {as_word(each.get("lifecycleEvent")) for each in proven}
        return PushResult(202, concerned=True, lost=not events.isdisjoint(LOST))


def _notifications(body: bytes) -> list[Mapping[str, Any]]:
    """Those of a push; none if it is not one."""
    try:
        said = as_object(json.loads(body)).get("value")
    except (ValueError, RecursionError):
        return []
    return [as_object(each) for each in cast("list[Any]", said)] if isinstance(said, list) else []


def _folder_id(given: str) -> str:
    """Raises BadRequestError."""
    if not ITEM_ID.fullmatch(given):
        raise BadRequestError(
            f"metadata.{_folders.FOLDERS}: {given[:100]!r} is not the id of a folder; use the"
            " `id` that Microsoft Graph gives for it"
        )
    return given
