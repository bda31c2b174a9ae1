"""The change feeds of an account and its shared drives: where they are, and their pages."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from recollect.connectors._json import as_name
from recollect.connectors.api import PROVIDER_UNAVAILABLE, Api, field_of
from recollect.errors import Transient

USER = "user"
"""the feed and branch of the account itself; those of shared drives are named by their ids"""
ALL_DRIVES = {"supportsAllDrives": "true", "includeItemsFromAllDrives": "true"}


def drives_of(api: Api) -> dict[str, str]:
    """Names of the account's shared drives by id."""
    found: dict[str, str] = {}
    params = {"pageSize": "100", "fields": "nextPageToken,drives(id,name)"}
    seen: set[str] = set()
    page: str | None = None
    while True:
        asked = params if page is None else {**params, "pageToken": page}
        body = api.get("/drive/v3/drives", asked)
        for drive in field_of(body, "drives", list):
            found[field_of(drive, "id", str)] = as_name(field_of(drive, "name", str))
        page = following_page(body, seen)
        if page is None:
            return found


def is_there(api: Api, drive: str) -> bool:
    """Whether the account has a shared drive that the list of them lacks."""
    path = f"/drive/v3/drives/{quote(drive, safe='')}"
    answer = api.call("GET", path, params={"fields": "id"}, accept=frozenset({404}))
    return answer.status != 404


def start_of(api: Api, feed: str) -> str:
    """Where a feed is now."""
    params = {"supportsAllDrives": "true", **({} if feed == USER else {"driveId": feed})}
    answer = api.get("/drive/v3/changes/startPageToken", params)
    return field_of(answer, "startPageToken", str)


def of_feed(feed: str) -> dict[str, str]:
    return {**ALL_DRIVES, **({} if feed == USER else {"driveId": feed})}


def following_page(body: Mapping[str, Any], seen: set[str]) -> str | None:
    """The token of the next page, if there is one; raises Transient for one that came before."""
    page = body.get("nextPageToken")
    if not isinstance(page, str) or not page:
        return None
    if page in seen:
        raise Transient("Drive's pages lead round in a circle", code=PROVIDER_UNAVAILABLE)
    seen.add(page)
    return page
