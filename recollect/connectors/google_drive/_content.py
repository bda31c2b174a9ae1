"""What comes of a file: an item or why it is not one, its bytes, or what Google exports it as."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from urllib.parse import quote

from recollect.connectors._json import as_object, as_time, as_word
from recollect.connectors.api import (
    RATE_LIMITED,
    Api,
    as_json,
    other_content,
    refuse_stand_in,
)
from recollect.connectors.base import Item, Source, Verdict
from recollect.connectors.google_drive._files import (
    GOOGLE,
    KINDS,
    DriveFile,
    extra_of,
    keyed,
    refusal,
)
from recollect.errors import NotFoundError, Permanent, Transient
from recollect.model import Blob, Remembered

LARGEST_FILE = 50_000_000
"""bytes, as for an upload"""
PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
EXPORTS: Mapping[str, Sequence[str]] = {
    # Without its pictures a text is often less than the 10 MB that an export may have.
    GOOGLE + "document": ("text/markdown", "text/plain"),
    # As CSV there would be the first sheet only.
    GOOGLE + "spreadsheet": (XLSX,),
    GOOGLE + "presentation": (PPTX, "text/plain"),
    GOOGLE + "drawing": ("application/pdf",),
}
"""What Google's own kinds are fetched as, the best first."""
NEXT_FORMAT = frozenset({"export_too_large", "not_downloadable", "http_400"})
"""codes of refusals that another format may not meet with"""
FAILS_FOR = timedelta(hours=1)
"""since the last edit, in which Google may only be down for a format: the text that the document
has by now is better than that of another one, which would stay until the next edit"""
MD5 = re.compile(r"[0-9a-f]{32}")
PICTURE_DATA = re.compile(rb"^\[[^\]\n]{1,100}\]:[ \t]*<?data:[^\n]*\n?", re.MULTILINE)
# No part goes over what begins the next match, so that a text of beginnings stays linear.
PICTURE = re.compile(rb"!\[([^\[\]\n]*+)\](?:\[[^\[\]\n]*+\]|\(data:[^()\s]*+\))")


def told(
    file: DriveFile, branch: str, via: Sequence[str], *, own: bool, path: str, drive: str
) -> Item | Verdict:
    """The file as an item, or why it is not one. `via`: shortcuts to it; `own`: it is in scope by
    itself; `drive`: the name of its shared drive, empty for none."""
    if file.mime.startswith(GOOGLE) and file.mime not in EXPORTS:
        kind = file.mime.removeprefix(GOOGLE)
        return refusal(
            file, branch, "unsupported", f"Google has no text of files of this kind ({kind})."
        )
    if file.size > LARGEST_FILE and not file.mime.startswith(GOOGLE):
        told = f"It has {file.size:,} bytes; at most {LARGEST_FILE:,} are read."
        return refusal(file, branch, "too_large", told)
    if file.size == 0 and not file.mime.startswith(GOOGLE):
        return refusal(file, branch, "empty", "It is empty.")
    shown = {
        "path": path,
        "mimeType": file.mime,
        "modifiedTime": file.modified,
        "owner": file.owner,
        "sharedDrive": drive,
    }
    return Item(
        id=file.id,
        version=file.version,
        title=file.name,
        url=file.url,
        kind=KINDS.get(file.mime),
        metadata={name: value for name, value in shown.items() if value},
        extra={**extra_of(file), "own": own, **({"via": list(via)} if via else {})},
        branch=branch,
        modified_at=as_time(file.modified),
    )


def content_of(source: Source, item: Remembered) -> Blob:
    """Raises NotFoundError when it vanished, Permanent when Drive does not give it out."""
    api = source.api
    mime, key = item.extra.get("mime"), item.extra.get("key")
    headers = keyed(item.id, key if isinstance(key, str) else "")
    path = f"/drive/v3/files/{quote(item.id, safe='')}"
    name = item.title
    formats = EXPORTS.get(mime if isinstance(mime, str) else "")
    if formats is None:
        params = {"alt": "media", "supportsAllDrives": "true"}
        form = mime if isinstance(mime, str) else ""
        data = _got(api, item, path, params, headers, form)
        return Blob(data, form or None, name, item.url)
    passing: Transient | None = None
    for better, form in enumerate(formats, 1):
        try:
            data = _got(api, item, f"{path}/export", {"mimeType": form}, headers, form)
        except Transient as error:
            # Google fails at some in one format (googleapis/google-api-go-client issue 2961).
            if error.code == RATE_LIMITED or error.after is not None:
                raise
            edited = as_time(as_word(item.extra.get("modified")))
            if edited is not None and source.since - edited < FAILS_FOR:
                raise
            passing = error
        except Permanent as error:
            if error.code not in NEXT_FORMAT or (better == len(formats) and passing is None):
                raise
        else:
            return Blob(_without_pictures(data, form), form, name, item.url)
    raise passing or NotFoundError(f"nothing is known of the content of {item.id}")


def _got(
    api: Api,
    item: Remembered,
    path: str,
    params: Mapping[str, str],
    headers: Mapping[str, str],
    form: str,
) -> bytes:
    """`form`: its type. Drive names the bytes of a file by their hash; if others come, it changed
    since it was listed, or they are not Drive's."""
    try:
        answer = api.call("GET", path, params=params, headers=headers)
    except Permanent as error:
        if error.code == "http_404":
            raise NotFoundError(f"{item.title} is not there any more") from error
        raise Permanent(f"{item.title}: {error}", code=error.code) from error
    if not MD5.fullmatch(item.version or ""):
        if not answer.headers.get("content-type", "").startswith(form or " "):
            refuse_stand_in(answer.data)
        return answer.data
    came = hashlib.md5(answer.data, usedforsecurity=False).hexdigest()
    if came != item.version:
        refuse_stand_in(answer.data)
        asked = {"fields": "md5Checksum", "supportsAllDrives": "true"}
        now = as_object(as_json(api.call("GET", path, params=asked, headers=headers)))
        if as_word(now.get("md5Checksum")) != came:
            raise other_content()
    return answer.data


def _without_pictures(data: bytes, form: str) -> bytes:
    """Exports to Markdown carry pictures in base64, which nobody searches for."""
    if form != "text/markdown":
        return data
    return PICTURE.sub(rb"\1", PICTURE_DATA.sub(b"", data))
