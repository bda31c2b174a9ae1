"""The change feeds of an account and its shared drives: where they are, and their pages."""

from urllib.parse import quote

from recollect.connectors._json import as_name
from recollect.connectors.api import Api, Turning, field_of

USER = "user"
"""the feed and branch of the account itself; those of shared drives are named by their ids"""
ALL_DRIVES = {"supportsAllDrives": "true", "includeItemsFromAllDrives": "true"}


def drives_of(api: Api) -> dict[str, str]:
    """Names of the account's shared drives by id."""
    found: dict[str, str] = {}
    params = {"pageSize": "100", "fields": "nextPageToken,drives(id,name)"}
    turning = Turning("Drive")
    page: str | None = None
    while True:
        asked = params if page is None else {**params, "pageToken": page}
        body = api.get("/drive/v3/drives", asked)
        drives = field_of(body, "drives", list)
        for drive in drives:
            found[field_of(drive, "id", str)] = as_name(field_of(drive, "name", str))
        page = turning.turn(body.get("nextPageToken"), (drive["id"] for drive in drives))
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
