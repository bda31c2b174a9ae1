"""Calls of GitHub: after renamed repositories, within its limits."""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, cast

from recollect.connectors.api import PROVIDER_UNAVAILABLE, Api
from recollect.errors import Permanent, Transient
from recollect.fetch import EndpointAnswer, believable, told_time

HOPS = 3
MOVED = frozenset({301, 302, 307, 308})
SECONDARY_WAIT = timedelta(minutes=1)


def call(
    api: Api,
    method: str,
    path: str,
    *,
    json: object | None = None,
    headers: Mapping[str, str] | None = None,
    accept: frozenset[int] = frozenset(),
) -> EndpointAnswer:
    """A call that goes after renamed repositories; GitHub wants it repeated as it was.

    Raises what `Api.call` raises, as for any other redirect when it leads to another host.
    """
    for _ in range(HOPS):
        answer = api.call(method, path, json=json, headers=headers, accept=accept | MOVED)
        if answer.status not in MOVED:
            return answer
        if (error := api.leaves(answer)) is not None:
            raise error
        path = answer.headers.get("location", "")
        if not path:
            break
    raise Permanent("GitHub redirects to nowhere", code="bad_answer")


def unless(etag: str | None) -> Mapping[str, str]:
    """An answer that has not changed is a 304, which costs nothing."""
    return {} if etag is None else {"if-none-match": etag}


def links(answer: EndpointAnswer) -> dict[str, str]:
    """Addresses of the Link header, by what they are (RFC 8288)."""
    found = re.findall(r'<([^<>]*)>\s*;\s*rel="(\w+)"', answer.headers.get("link", ""))
    return {relation: url for url, relation in found}


def objects_of(value: Any) -> list[dict[str, Any]]:
    """A list of objects; raises Transient if it is not one."""
    if not isinstance(value, list) or not all(isinstance(e, dict) for e in cast("Any", value)):
        raise Transient("GitHub answered without a list", code=PROVIDER_UNAVAILABLE)
    return cast("list[dict[str, Any]]", value)


def wait_of(answer: EndpointAnswer) -> timedelta | None:
    """How long a refusal asks us to wait; None: it is not one for asking too often.

    docs.github.com/rest/using-the-rest-api/best-practices-for-using-the-rest-api
    """
    told, limit = answer.headers.get("retry-after"), answer.headers.get("x-ratelimit-remaining")
    if told is not None and (answer.status == 429 or re.fullmatch(r"[0-9]{1,9}", told)):
        # Other forms of a 429 are understood below.
        return _clamped(int(told)) if told.isdecimal() and len(told) < 10 else None
    if limit == "0":
        return _until_reset(answer)
    said = answer.data[:4096].lower()
    if answer.status == 429 or b"secondary rate limit" in said or b"abuse detection" in said:
        return SECONDARY_WAIT
    return None


def _until_reset(answer: EndpointAnswer) -> timedelta:
    """By GitHub's clock where it tells it: ours may be off."""
    reset = answer.headers.get("x-ratelimit-reset", "")
    if not re.fullmatch(r"[0-9]{1,11}", reset):
        return SECONDARY_WAIT
    return _clamped(int(reset) - told_time(answer.headers).timestamp() + 1)


def _clamped(seconds: float) -> timedelta:
    return max(believable(timedelta(seconds=seconds)), timedelta(seconds=1))
