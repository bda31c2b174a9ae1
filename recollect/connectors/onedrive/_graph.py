"""Addresses below Graph, downloads away from it, and what its refusals say."""

import json
from datetime import timedelta
from urllib.parse import quote, urljoin

from recollect.connectors._json import as_name, as_object, as_word
from recollect.connectors.api import PROVIDER_UNAVAILABLE, RATE_LIMITED
from recollect.connectors.onedrive._files import LARGEST_FILE, OneDriveFile
from recollect.errors import Transient
from recollect.fetch import EndpointAnswer, Fetcher, outcome

DOWNLOAD_TIME = 300.0
"""seconds for one file"""
HOPS = 3
BANDWIDTH_WAIT = timedelta(minutes=10)
REDIRECTS = frozenset({301, 302, 303, 307, 308})


def drive_of(file: OneDriveFile) -> str:
    return f"/v1.0/drives/{quote(file.drive, safe='')}" if file.drive else "/v1.0/me/drive"


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
    if answer.status == 429 or (answer.status == 503 and "retry-after" in answer.headers):
        raise limit_of(answer)
    # Such addresses are good for a short time, so 401 to 410 mean no more than that one is not.
    raise Transient(
        f"the place where the content is kept answered {answer.status}", code=PROVIDER_UNAVAILABLE
    )


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
