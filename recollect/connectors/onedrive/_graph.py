"""Addresses below Graph, downloads away from it, and what its refusals say."""

import json
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import quote, urlencode, urljoin

from recollect.connectors._json import as_name, as_object, as_word
from recollect.connectors.api import (
    PROVIDER_UNAVAILABLE,
    RATE_LIMITED,
    Api,
    Turning,
    as_json,
    field_of,
)
from recollect.connectors.base import Source
from recollect.connectors.onedrive._files import FIELDS, LARGEST_FILE, OneDriveFile, is_folder
from recollect.errors import Permanent, Reauthorize, Transient
from recollect.fetch import EndpointAnswer, Fetcher, outcome

DOWNLOAD_TIME = 300.0
"""seconds for one file"""
HOPS = 3
BANDWIDTH_WAIT = timedelta(minutes=10)
PAGE = 500
"""entries"""
MOST_FOLDERS = 2_000
"""that are looked into one by one"""
LIST = urlencode({"$select": FIELDS, "$top": PAGE}, safe="$,")
NEXT = "@odata.nextLink"
OWN_DRIVE = "/v1.0/me/drive"
ACCESS_DENIED = "access_denied"
"""our code of a 403 that says no more than that the account has no access"""
POLICY = re.compile("polic(y|ies)|network location|device", re.IGNORECASE)
"""in what Graph says where it is not the owner who refuses"""
REDIRECTS = frozenset({301, 302, 303, 307, 308})


def drive_of(file: OneDriveFile) -> str:
    return f"/v1.0/drives/{quote(file.drive, safe='')}" if file.drive else OWN_DRIVE


def refused_alone(api: Api, error: Reauthorize) -> Permanent:
    """What is wrong with one thing of another drive, where Graph refuses an authorization that is
    good for the own drive: it answers 401 for some of what is shared with guests. Raises what the
    own drive says."""
    api.get(OWN_DRIVE)
    return Permanent(f"{error}, but lets the own drive be read", code="http_401")


def denial_of(codes: frozenset[str], message: str) -> Permanent:
    """What a 403 means that no other rule knows."""
    plain = codes == frozenset({"accessDenied"}) and POLICY.search(message) is None
    return Permanent(f"OneDrive refuses ({message})", code=ACCESS_DENIED if plain else "http_403")


def walk(
    source: Source, drive: str, roots: Sequence[str], headers: Mapping[str, str]
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Pages of what is in these folders and all below: the folder, and entries of it."""
    waiting, met = deque(roots), set(roots)
    while waiting:
        folder = waiting.popleft()
        link = f"{drive}/items/{quote(folder, safe='')}/children?{LIST}"
        turning = Turning("OneDrive", link)
        while link is not None:
            source.going()
            body = as_json(source.api.call("GET", link, headers=headers))
            entries: list[dict[str, Any]] = field_of(body, "value", list)
            for entry in entries:
                id = field_of(entry, "id", str)
                if is_folder(entry) and id not in met:
                    met.add(id)
                    waiting.append(id)
            if len(met) > MOST_FOLDERS:
                raise Permanent("it has too many folders to list", code="too_large")
            yield folder, entries
            link = turning.turn(body.get(NEXT), (entry["id"] for entry in entries))


def download(fetcher: Fetcher, url: str, hops: int = HOPS) -> EndpointAnswer:
    """From an address that serves everyone who knows it, so no message may repeat it."""
    try:
        answer = fetcher.ask(url, max_bytes=LARGEST_FILE, total=DOWNLOAD_TIME)
    except Transient as error:
        raise Transient(str(error), code=PROVIDER_UNAVAILABLE) from error
    if answer.status == 200:
        return answer
    if answer.status in REDIRECTS and hops:
        return download(fetcher, _joined(url, answer.headers.get("location", "")), hops - 1)
    if answer.status == 429:
        raise limit_of(answer)
    # Such addresses are good for a short time, so 401 to 410 mean no more than that one is not.
    told = f"the place where the content is kept answered {answer.status}"
    meant = outcome(answer.status, answer.headers, told)
    after = meant.after if isinstance(meant, Transient) else None
    raise Transient(told, code=PROVIDER_UNAVAILABLE, after=after)


def _joined(base: str, location: str) -> str:
    try:
        return urljoin(base, location)
    except ValueError as error:
        raise Transient("the download leads nowhere", code=PROVIDER_UNAVAILABLE) from error


def limit_of(answer: EndpointAnswer) -> Transient:
    asked = outcome(429, answer.headers, "OneDrive asks to wait")
    after = asked.after if isinstance(asked, Transient) else None
    if after is None and answer.status in (507, 509):
        after = BANDWIDTH_WAIT
    return Transient(
        "OneDrive asks to wait, because it got too many requests",
        code=RATE_LIMITED,
        after=None if after is None else max(after, timedelta(seconds=1)),
    )


def error_of(answer: EndpointAnswer) -> tuple[frozenset[str], str]:
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
