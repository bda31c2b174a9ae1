"""The bytes of a file, and of Google's own kinds what they are exported as."""

import re
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from recollect.connectors.api import Api
from recollect.connectors.google_drive._files import GOOGLE, keyed
from recollect.errors import NotFoundError, Permanent
from recollect.model import Blob, Remembered

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
PICTURE_DATA = re.compile(rb"^\[[^\]\n]{1,100}\]:[ \t]*<?data:[^\n]*\n?", re.MULTILINE)
# No part goes over what begins the next match, so that a text of beginnings stays linear.
PICTURE = re.compile(rb"!\[([^\[\]\n]*+)\](?:\[[^\[\]\n]*+\]|\(data:[^()\s]*+\))")


def content_of(api: Api, item: Remembered) -> Blob:
    """Raises NotFoundError when it vanished, Permanent when Drive does not give it out."""
    mime, key = item.extra.get("mime"), item.extra.get("key")
    headers = keyed(item.id, key if isinstance(key, str) else "")
    path = f"/drive/v3/files/{quote(item.id, safe='')}"
    name = item.title
    formats = EXPORTS.get(mime if isinstance(mime, str) else "")
    if formats is None:
        params = {"alt": "media", "supportsAllDrives": "true"}
        data = _got(api, item, path, params, headers)
        return Blob(data, mime if isinstance(mime, str) else None, name, item.url)
    for better, form in enumerate(formats, 1):
        try:
            data = _got(api, item, f"{path}/export", {"mimeType": form}, headers)
        except Permanent as error:
            if error.code not in NEXT_FORMAT or better == len(formats):
                raise
            continue
        return Blob(_without_pictures(data, form), form, name, item.url)
    raise NotFoundError(f"nothing is known of the content of {item.id}")


def _got(
    api: Api,
    item: Remembered,
    path: str,
    params: Mapping[str, str],
    headers: Mapping[str, str],
) -> bytes:
    try:
        return api.call("GET", path, params=params, headers=headers).data
    except Permanent as error:
        if error.code == "http_404":
            raise NotFoundError(f"{item.title} is not there any more") from error
        raise Permanent(f"{item.title}: {error}", code=error.code) from error


def _without_pictures(data: bytes, form: str) -> bytes:
    """Exports to Markdown carry pictures in base64, which nobody searches for."""
    if form != "text/markdown":
        return data
    return PICTURE.sub(rb"\1", PICTURE_DATA.sub(b"", data))
