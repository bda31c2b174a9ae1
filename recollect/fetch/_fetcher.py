"""Fetching what strangers name."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType, TracebackType
from typing import TypeVar

import httpcore

from recollect.errors import BadRequestError, Permanent, SetupError, Transient
from recollect.fetch._address import (
    FetchTarget,
    JudgedAddress,
    Network,
    judge,
    literal_address,
    read_url,
    screen,
)
from recollect.fetch._answer import (
    as_text,
    broken_off,
    file_name,
    join_headers,
    mime_of,
    outcome,
    read_body,
)
from recollect.fetch._backend import Dial, Guard, Resolver, system_dial, system_resolve
from recollect.fetch._endpoint import EndpointAnswer
from recollect.fetch._proxy import GuardedProxy, ProxyLimits
from recollect.model import Blob

T = TypeVar("T")

NOTHING: Mapping[str, str] = MappingProxyType({})
REDIRECTS = frozenset({301, 302, 303, 307, 308})
CONDITIONS = frozenset({"if-none-match", "if-modified-since"})
SECRETS = frozenset({"authorization", "cookie", "proxy-authorization"})
SKIPPED = 64 * 1024
"""bytes of an answer that nobody wants"""
LATE = (httpcore.TimeoutException, TimeoutError)
CUT_OFF = (httpcore.NetworkError, httpcore.RemoteProtocolError)
OURS = frozenset({"host", "user-agent", "accept-encoding", "connection", "transfer-encoding"})


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Bounds of one fetch, all redirects included. Times are seconds."""

    max_bytes: int = 10_000_000
    """of a body, both on the wire and decoded"""
    total: float = 30.0
    dns: float = 5.0
    """one look-up"""
    read: float = 10.0
    """one connect, TLS handshake, read or write"""
    redirects: int = 10


@dataclass(frozen=True, slots=True)
class Fetched:
    """An answer with a body, or 304 when the request was conditional."""

    url: str
    """where it came from after all redirects, without fragment"""
    status: int
    mime: str | None
    """without parameters, a claim"""
    headers: Mapping[str, str]
    """names in lower case"""
    data: bytes
    name: str | None
    redirects: Sequence[str]
    """the addresses that led to `url`, in order"""

    @property
    def blob(self) -> Blob:
        """With the charset that the server names, which `mime` lacks."""
        return Blob(self.data, self.headers.get("content-type"), self.name, self.url)


Sniff = Callable[[Fetched, bytes | None], None]
"""(the answer without its body, the first 512 bytes of that; None while none came yet)"""


BY_PROXY = "allowed here; the forward proxy looks the name up"


@dataclass(frozen=True, slots=True)
class UrlVerdict:
    """Whether a URL may be fetched, with everything that led to the decision: for the operator."""

    url: str
    href: str | None
    scheme: str | None
    host: str | None
    port: int | None
    addresses: Sequence[JudgedAddress]
    allowed: bool
    reason: str


class Fetcher(AbstractContextManager["Fetcher"]):
    """Gets public web addresses, and no others. May be shared by threads."""

    def __init__(
        self,
        *,
        user_agent: str,
        allow_networks: Sequence[Network] = (),
        limits: FetchLimits = FetchLimits(),
        resolve: Resolver = system_resolve,
        dial: Dial = system_dial,
    ) -> None:
        """`allow_networks` are inside networks that the operator opens; `dial` sees judged
        addresses only, and those of the operator's forward proxy."""
        self._user_agent = user_agent
        self._allow_networks = tuple(allow_networks)
        self._limits = limits
        self._guard = Guard(
            allow_networks=self._allow_networks,
            resolve=resolve,
            dial=dial,
            dns=limits.dns,
            step=limits.read,
        )
        # httpcore itself rather than a client above it: no cookies, proxies, .netrc, decoding or
        # second URL parser that would have to be switched off.
        self._pool = httpcore.ConnectionPool(
            ssl_context=httpcore.default_ssl_context(),
            max_connections=None,
            max_keepalive_connections=20,
            keepalive_expiry=15.0,
            network_backend=self._guard,
        )

    def get(
        self,
        url: str,
        *,
        headers: Mapping[str, str] = NOTHING,
        admit: Callable[[str], None] | None = None,
        sniff: Sniff | None = None,
        enough: int | None = None,
    ) -> Fetched:
        """Fetch, following redirects; each hop passes the same checks as the first address.

        `admit` is shown the target of each redirect before anything is looked up, and raises to
        stop. `sniff` is shown a success before its body is read, and again when that has begun, and
        raises to stop. With `enough`, the body is left off behind so many decoded bytes instead of
        being too large. Cookies and credentials among `headers` stay with the origin they were
        meant for.

        Raises Permanent (`invalid_url`, `blocked_target`, `bad_redirect`, `too_large`,
        `unsupported_encoding`, `http_<status>`) and Transient (`dns_failure`, `unreachable`,
        `tls_failure`, `timeout`, `bad_response`, `http_<status>` with what Retry-After asks for).
        """
        sent = {name.lower(): value for name, value in headers.items()}
        visited: list[str] = []
        with self._guard.fetching.within(self._limits.total):
            target = self._guard.target(url)
            while True:
                read = partial(
                    self._read,
                    target,
                    conditional=not CONDITIONS.isdisjoint(sent),
                    sniff=sniff,
                    enough=enough,
                )
                answer = self._request(target, sent, read)
                if isinstance(answer, Fetched):
                    return replace(answer, redirects=tuple(visited))
                visited.append(target.href)
                if len(visited) > self._limits.redirects:
                    raise Permanent(
                        f"more than {self._limits.redirects} redirects", code="bad_redirect"
                    )
                before, target = target, self._redirected(answer, target)
                if admit is not None:
                    admit(target.href)
                if target.origin != before.origin:
                    sent = {name: value for name, value in sent.items() if name not in SECRETS}

    def ask(
        self, url: str, *, headers: Mapping[str, str] = NOTHING, max_bytes: int, total: float
    ) -> EndpointAnswer:
        """The answer to one GET, whatever its status; redirects are not followed.

        For APIs at addresses that strangers name. `total` is seconds, both replace the limits.
        Raises what `get` raises, but for redirects and `http_<status>`.
        """

        def read(response: httpcore.Response) -> EndpointAnswer:
            told = join_headers(response.headers)
            return EndpointAnswer(
                response.status, told, read_body(response.iter_stream(), told, max_bytes)
            )

        sent = {name.lower(): value for name, value in headers.items()}
        with self._guard.fetching.within(total):
            return self._request(self._guard.target(url), sent, read)

    def tell(
        self, url: str, content: bytes, *, headers: Mapping[str, str] = NOTHING, total: float
    ) -> EndpointAnswer:
        """The status and headers of the answer to one POST; redirects are not followed, and what
        the answer says is thrown away.

        For receivers at addresses that strangers name; they know a repeated message by its id,
        for it may be sent twice. `total` is seconds, replacing the limit. Raises what `ask` raises.
        """

        def read(response: httpcore.Response) -> EndpointAnswer:
            # A connection may be used again only when its answer was read; a long one is not worth
            # that, and a broken one has said its status all the same.
            size = 0
            with suppress(*LATE, *CUT_OFF):
                for part in response.iter_stream():
                    size += len(part)
                    if size > SKIPPED:
                        break
            return EndpointAnswer(response.status, join_headers(response.headers), b"")

        sent = {name.lower(): value for name, value in headers.items()}
        with self._guard.fetching.within(total, patient=True):
            return self._request(self._guard.target(url), sent, read, content)

    def proxy(self, limits: ProxyLimits | None = None) -> GuardedProxy:
        """The same door for HTTP stacks that are not ours; runs while it is entered."""
        return GuardedProxy(self._guard, limits or ProxyLimits())

    def check(self, url: str) -> UrlVerdict:
        """Explain what `get` would do with this address; looks it up but connects to nothing."""
        try:
            parsed = read_url(url)
        except ValueError:
            return UrlVerdict(url, None, None, None, None, (), False, "not a valid URL")
        scheme, host = parsed.protocol.removesuffix(":"), parsed.hostname.strip("[]")
        try:
            target = screen(parsed, self._allow_networks)
        except BadRequestError as error:
            reason = error.details or error.message
            judged = (judge(host, self._allow_networks),) if literal_address(host) else ()
            return UrlVerdict(url, parsed.href, scheme, host, None, judged, False, reason)
        judged: Sequence[JudgedAddress] = ()
        try:
            with self._guard.fetching.within(self._limits.total):
                judged, refusal = self._guard.judge(target.host, target.port)
        except Transient as error:
            refusal = str(error)
        return UrlVerdict(
            url,
            target.href,
            target.scheme,
            target.host,
            target.port,
            judged,
            refusal is None,
            refusal or ("allowed" if judged else BY_PROXY),
        )

    def close(self) -> None:
        self._pool.close()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _redirected(self, location: str, base: FetchTarget) -> FetchTarget:
        try:
            joined = read_url(location, base.href).href
        except ValueError as error:
            raise Permanent("redirect to an invalid URL", code="bad_redirect") from error
        return self._guard.target(joined)

    def _request(
        self,
        target: FetchTarget,
        headers: Mapping[str, str],
        read: Callable[[httpcore.Response], T],
        content: bytes | None = None,
    ) -> T:
        """One hop, and what `read` makes of its answer; a GET, or a POST of `content`."""
        host = f"[{target.host}]" if ":" in target.host else target.host
        while True:
            dials = self._guard.fetching.dials
            try:
                return self._send(target, headers, read, content)
            except LATE as error:
                raise Transient(f"{host} did not answer in time", code="timeout") from error
            except CUT_OFF as error:
                # A server may close an idle connection just when we use it: that says nothing,
                # and RFC 9110 9.2.2 lets us ask again. The connection is gone from the pool.
                if self._guard.fetching.dials > dials:
                    raise broken_off(host) from error

    def _send(
        self,
        target: FetchTarget,
        headers: Mapping[str, str],
        read: Callable[[httpcore.Response], T],
        content: bytes | None,
    ) -> T:
        with self._pool.stream(
            "GET" if content is None else "POST",
            httpcore.URL(
                scheme=target.scheme, host=target.host, port=target.port, target=target.resource
            ),
            headers={
                "Host": target.authority,
                "User-Agent": self._user_agent,
                "Accept-Encoding": "gzip",
                "accept": "*/*",  # as a caller spells another one
                **{name: value for name, value in headers.items() if name not in OURS},
            },
            content=content,
            # A final dot belongs to DNS; certificates do not have it.
            extensions={"sni_hostname": target.host.removesuffix(".")},
        ) as response:
            return read(response)

    def _read(
        self,
        target: FetchTarget,
        response: httpcore.Response,
        *,
        conditional: bool,
        sniff: Sniff | None,
        enough: int | None,
    ) -> Fetched | str:
        """What was fetched, or where it says to go."""
        status = response.status
        headers = join_headers(response.headers)
        if status in REDIRECTS:
            locations = {value for name, value in response.headers if name.lower() == b"location"}
            if len(locations) != 1:
                raise Permanent(f"redirect ({status}) to nowhere", code="bad_redirect")
            return as_text(locations.pop())
        unchanged = status == 304 and conditional
        # 202 promises an answer; firewalls send it with a check whether this is a browser. 206 is a
        # part, which nobody asked for.
        if not (200 <= status < 300 or unchanged) or status in (202, 206):
            raise outcome(status, headers, f"{target.host} answered {status}")
        body = response.iter_stream()
        fetched = Fetched(
            url=target.href,
            status=status,
            mime=mime_of(headers),
            headers=headers,
            data=b"",
            name=file_name(headers, target.resource.partition("?")[0]),
            redirects=(),
        )
        if unchanged:
            # It has no body (RFC 9110 15.4.5), but its connection is kept once its end was read.
            return replace(fetched, data=b"".join(body))
        if sniff is not None:
            sniff(fetched, None)
        data = read_body(
            body,
            headers,
            self._limits.max_bytes,
            sniff=None if sniff is None else partial(sniff, fetched),
            enough=enough,
        )
        return replace(fetched, data=data)


def self_test() -> None:
    """Prove at start-up that the guard stands. Raises SetupError when loopback can be reached."""
    with Fetcher(user_agent="self-test", resolve=lambda name, port: ["127.0.0.1"]) as fetcher:
        for url in ("http://127.0.0.1/", "http://name-of-loopback.net/"):
            try:
                fetcher.get(url)
            except Permanent as error:
                if error.code == "blocked_target":
                    continue
                reached = error
            except Transient as error:
                reached = error
            else:
                reached = None
            raise SetupError(
                "the guard of the network does not hold: it let an internal address be dialled."
                " Reinstall the packages that Recollect was released with."
            ) from reached
