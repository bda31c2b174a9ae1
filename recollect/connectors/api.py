"""One connection's calls of its provider's API: authorized, polite, bounded.

The rules of waiting: short waits that the provider asks for are waited here; longer ones, and
trouble that three tries do not end, are the caller's (Transient with `rate_limited` or
`provider_unavailable`), who parks the connection instead of a thread.
"""

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Protocol, cast
from urllib.parse import urljoin, urlsplit

from recollect.errors import Permanent, Reauthorize, Transient
from recollect.fetch import Endpoint, EndpointAnswer
from recollect.loop import backoff

TRIES = 3
LONGEST_PAUSE = 5.0
"""seconds that a thread waits in place"""
IDEMPOTENT = frozenset({"GET", "HEAD", "PUT", "DELETE"})
"""RFC 9110 9.2.2: may be sent again when nobody knows whether it arrived"""
PATIENCE = 3
"""things in a row that fail before the provider is asked whether it is there"""
MOST_FAILURES = 100
"""things in a row that fail before it counts as down, whatever else it answers, …"""
LONGEST_TROUBLE = 3600.0
"""… and seconds: what fails by not answering takes minutes, and other connections wait"""
MOST_IDLE_PAGES = 1_000
"""pages of a list in a row that came before; providers give some, and then come to an end"""
MOST_EMPTY_PAGES = 20_000
"""… that are empty: a provider gives thousands where it looks for few things among very many, or
for those that one account may see"""
REDIRECTS = frozenset({301, 302, 303, 307, 308})
PAGE = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*|<!--.*?-->\s*|(?!))*+(?:<!doctype\s+html|<html[\s>])",
    re.IGNORECASE | re.DOTALL,
)
ERROR = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*<(?:\w+:)?error[\s>]|"
    rb"\{\s*(?:\}\s*$|\"(?:error|errors|message)\"\s*:))",
    re.IGNORECASE,
)
"""of an answer that holds an error or nothing, in XML or JSON"""
RATE_LIMITED = "rate_limited"
TOO_MANY = "the provider asks to wait, because it got too many requests"
PROVIDER_UNAVAILABLE = "provider_unavailable"


class Access(Protocol):
    """Where the access token comes from."""

    def token(self, stale: str | None = None) -> str | None:
        """The present one; `stale`: the provider refused this one, so get another.

        None for calls without. Raises Reauthorize, Transient.
        """
        ...


class Api:
    """Calls below one base URL; absolute URLs are taken if they point there."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        access: Access,
        pause: Callable[[float], None],
        pace: Callable[[], None],
        judge: Callable[[EndpointAnswer], Exception | None],
        headers: Mapping[str, str],
    ) -> None:
        """`pace` waits until one more call is within the connection's rate."""
        self._endpoint = endpoint
        self._access = access
        self._pause = pause
        self._pace = pace
        self._judge = judge
        self._headers = dict(headers)

    def get(self, path: str, params: Mapping[str, str] | None = None) -> Any:
        """JSON of a GET; raises what `call` raises, Transient for an answer that is not JSON."""
        return as_json(self.call("GET", path, params=params))

    def post(self, path: str, body: object) -> Any:
        """JSON of a POST of JSON."""
        return as_json(self.call("POST", path, json=body))

    def call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        json: object | None = None,
        headers: Mapping[str, str] | None = None,
        accept: frozenset[int] = frozenset(),
        repeat: bool | None = None,
    ) -> EndpointAnswer:
        """An answer of 2xx, or of a status in `accept`; redirects are not followed.

        `repeat`: whether it may be sent twice; by default what HTTP says of the method.

        Raises Reauthorize when the provider refuses a fresh token, Transient (`rate_limited`,
        `provider_unavailable`), Permanent (`http_<status>`), and what the connector's `judge`
        makes of an answer.
        """
        target = self._within(path)
        again = repeat if repeat is not None else method in IDEMPOTENT
        refused: str | None = None
        for attempt in range(1, TRIES + 1):
            self._pace()
            token = self._access.token(refused)
            sent = {**self._headers, **(headers or {})}
            if token is not None:
                sent["authorization"] = f"Bearer {token}"
            try:
                answer = self._endpoint.request(
                    method, target, params=params, json=json, headers=sent
                )
                if 200 <= answer.status < 300 or answer.status in accept:
                    return answer
                if answer.status == 401 and token is not None:
                    if refused is not None:
                        told = self._endpoint.message(answer, hide=(token,))
                        raise self._judge(answer) or Reauthorize(
                            f"the provider refuses the authorization: {told}"
                        )
                    refused = token
                    continue
                raise (
                    self._judge(answer)
                    or led_away(self._endpoint.base_url, answer)
                    or self._endpoint.refusal(answer, hide=() if token is None else (token,))
                )
            except Transient as error:
                self._wait(error, attempt, again or error.code == RATE_LIMITED)
        raise Transient("the provider keeps refusing", code=PROVIDER_UNAVAILABLE)

    def leaves(self, answer: EndpointAnswer) -> Transient | None:
        """What a redirect means that leads to another host; None: it does not."""
        return led_away(self._endpoint.base_url, answer, within=False)

    def _wait(self, error: Transient, attempt: int, again: bool) -> None:
        """Wait in place if that is worth it; else raise what the connection is parked with."""
        limited = error.code in (RATE_LIMITED, "http_429")
        code = RATE_LIMITED if limited else PROVIDER_UNAVAILABLE
        asked = None if error.after is None else error.after.total_seconds()
        wait = asked if asked is not None else rest(attempt)
        if not again or attempt == TRIES or wait > LONGEST_PAUSE:
            told = TOO_MANY if error.code == "http_429" else str(error)
            raise Transient(told, code=code, after=error.after) from error
        self._pause(wait)

    def _within(self, path: str) -> str:
        """A path below the base; raises Permanent for a URL of another host."""
        if path.startswith("/"):
            return path
        base, url = urlsplit(self._endpoint.base_url), urlsplit(path)
        if (url.scheme, url.netloc) != (base.scheme, base.netloc):
            raise Permanent("the provider's answer points to another host", code="foreign_address")
        below = base.path.rstrip("/")
        if below and not url.path.startswith(below + "/"):
            raise Permanent("the provider's answer points to another host", code="foreign_address")
        target = url.path.removeprefix(below)
        return f"{target}?{url.query}" if url.query else target


class Patience:
    """Tells things that are broken from a provider that is down.

    A thing that fails keeps no other from being synced, and neither do many of them side by side:
    while they fail, the provider is asked now and then for something that it always has.
    """

    def __init__(self, ask: Callable[[], object]) -> None:
        self._ask = ask
        self._over = False
        self._began = 0.0
        self.in_a_row = 0
        self.exhausted = False
        """whether so many failed that it ended the sync: the next one is to begin behind them"""

    def failed(self, error: Permanent | Transient) -> None:
        """One more thing failed. Raises what ends the sync: a limit, or that nothing is there."""
        self.in_a_row += 1
        now = time.monotonic()
        if self.in_a_row == 1:
            self._began = now
        too_much = self.in_a_row > MOST_FAILURES or now - self._began > LONGEST_TROUBLE
        passing = isinstance(error, Transient)
        self.exhausted = passing and too_much and error.code != RATE_LIMITED
        if self._over or error.code == RATE_LIMITED or self.exhausted:
            self._over = True
            raise error
        if self.in_a_row % PATIENCE == 0:
            self._over = True
            self._ask()
            self._over = False

    def succeeded(self) -> None:
        self.in_a_row = 0


class Turning:
    """Turns the pages of one list, and notices a list that has no end.

    Providers have given the same pages again and again, also with a new token for each.
    """

    def __init__(self, provider: str, first: str | None = None) -> None:
        """`first`: the token of the page that the list is taken up at."""
        self._provider = provider
        self._tokens = {hash(first)} if first else set[int]()
        self._pages = set[int]()
        self._again = 0
        """pages in a row that came before, without the empty ones"""
        self._idle = 0

    def turn(self, token: object, ids: Iterable[object]) -> str | None:
        """The token of the page after the one that has these ids; None: it was the last.

        Raises Transient for a token that came before, and after so many pages in a row that came
        before, or are empty.
        """
        if not isinstance(token, str) or not token:
            return None
        page = tuple(ids)
        if not page or hash(page) in self._pages:
            self._idle += 1
            self._again += bool(page)
        else:
            self._pages.add(hash(page))
            self._idle = self._again = 0
        if hash(token) in self._tokens:
            raise Transient(
                f"{self._provider}'s pages lead round in a circle", code=PROVIDER_UNAVAILABLE
            )
        if self._again >= MOST_IDLE_PAGES or self._idle >= MOST_EMPTY_PAGES:
            raise Transient(
                f"{self._provider} gave {self._idle:,} pages in a row without anything new, and no"
                " end",
                code=PROVIDER_UNAVAILABLE,
            )
        self._tokens.add(hash(token))
        return token


def behind(ids: Sequence[str], last: str | None) -> list[str]:
    """Things that can fail, those first that come after `last`, at which a sync ended: what is
    broken has its turn after the others."""
    start = ids.index(last) + 1 if last is not None and last in ids else 0
    return [*ids[start:], *ids[:start]]


def led_away(base_url: str, answer: EndpointAnswer, *, within: bool = True) -> Transient | None:
    """What a redirect means that the provider did not make: something on the way wants a person
    to sign in, and lets calls through after that. None: it does not redirect, or, unless `within`,
    it stays at the host."""
    if answer.status not in REDIRECTS:
        return None
    base, to = urlsplit(base_url), None
    with suppress(ValueError):  # brackets that hold no IPv6 address
        to = urlsplit(urljoin(base_url, answer.headers.get("location", "")))
    if not within and to is not None and to.netloc == base.netloc:
        return None
    where = (to and to.hostname) or "an address that cannot be read"
    return Transient(
        f"{base.hostname} answered {answer.status}, a redirect to {where[:100]}, as a proxy or a"
        f" network does that wants someone to sign in; let this machine reach {base.hostname}"
        " without that",
        code=PROVIDER_UNAVAILABLE,
    )


def refuse_stand_in(data: bytes) -> None:
    """Raises Transient for what nothing proves to be the content that was asked for, and what is
    likely none: a web page, since something on the way, or where a redirect led, wants a person to
    sign in; an error, or nothing at all, with a status that says that all is well."""
    if PAGE.match(data):
        raise Transient(
            "a web page came in place of the content, as a proxy or a network sends it that wants"
            " someone to sign in; let this machine reach the provider without that",
            code=PROVIDER_UNAVAILABLE,
        )
    if not data.strip() or ERROR.match(data):
        raise Transient(
            "an error or nothing came in place of the content", code=PROVIDER_UNAVAILABLE
        )


def other_content() -> Transient:
    """What was read is neither what was listed nor what the provider says of it by now."""
    return Transient(
        "what came is not the content that the provider lists", code=PROVIDER_UNAVAILABLE
    )


def as_json(answer: EndpointAnswer) -> Any:
    """The JSON of an answer; anything else counts as a page of a proxy on the way."""
    try:
        return json.loads(answer.data)
    except (ValueError, RecursionError) as error:
        raise Transient(
            "the provider did not answer with JSON", code=PROVIDER_UNAVAILABLE
        ) from error


def field_of(answer: Any, name: str, kind: type) -> Any:
    """A field that every such answer has; raises Transient when it is not there.

    So that `{}` is never taken for an empty account.
    """
    value: Any = cast("dict[str, Any]", answer).get(name) if isinstance(answer, dict) else None
    if not isinstance(value, kind):
        raise Transient(f"the provider answered without {name!r}", code=PROVIDER_UNAVAILABLE)
    return value


def rest(failures: int) -> float:
    """Seconds between two tries of a call that was not told how long to wait."""
    return backoff(failures, timedelta(seconds=1), jitter=(0.5, 1.0)).total_seconds()


__all__ = [
    "PROVIDER_UNAVAILABLE",
    "RATE_LIMITED",
    "Access",
    "Api",
    "Patience",
    "Turning",
    "as_json",
    "behind",
    "field_of",
    "led_away",
    "other_content",
    "refuse_stand_in",
    "rest",
]
