"""Talking to destinations that the operator configured: no judgement of addresses."""

import asyncio
import json
import re
import ssl
import time
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import IO, Any

import httpcore
import httpx

from recollect.errors import Permanent, SetupError, Transient
from recollect.fetch._answer import broken_off, join_headers, outcome, read_body, said_in
from recollect.fetch._way_out import way_out

LARGEST_ANSWER = 64_000_000
_DOTS = re.compile(r"(?<=/)\.{1,2}(?=[/?]|$)")
"""a segment of a path that names something by an id, and would be taken for a way up"""

Upload = tuple[str, IO[bytes], str]
"""file name, open file, media type"""


@dataclass(frozen=True, slots=True)
class EndpointAnswer:
    status: int
    headers: Mapping[str, str]
    """names in lower case"""
    data: bytes


@dataclass(frozen=True, slots=True)
class EndpointStream:
    """An answer that comes in parts. Reading raises Transient if a part does not come in time."""

    status: int
    headers: Mapping[str, str]
    """names in lower case"""
    parts: AsyncGenerator[bytes]


class Endpoint:
    """A trusted HTTP service; a path prefix in its base URL is kept. May be shared by threads."""

    def __init__(
        self,
        base_url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = 60.0,
        total: float | None = None,
        settings: str | None = None,
    ) -> None:
        """`timeout` is seconds without any progress, `total` those of a whole answer; `settings`
        names those that the base URL and the headers come from.

        Raises SetupError for a bad base URL, or a header.
        """
        headers = dict(headers or {})
        try:
            url = _checked(base_url, headers)
        except SetupError as error:
            raise SetupError(f"{settings}: {error}" if settings else str(error)) from None
        words = [word for value in headers.values() for word in value.split()]
        self._secrets = [word for word in words if len(word) >= 8]
        self._host = url.netloc.decode("ascii")
        self.base_url = base_url
        self._total = total
        self._headers, self._timeout = headers, timeout
        proxy = way_out(url.raw_host.decode("ascii"))
        self._proxy = proxy.for_httpx() if proxy else None
        # Loading all authorities takes longer than a local request; without TLS, trust none.
        self._trust = (
            httpcore.default_ssl_context()
            if url.scheme == "https"
            else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        )
        self._client = httpx.Client(
            base_url=url,
            headers={**headers, "Accept-Encoding": "gzip"},
            timeout=timeout,
            verify=self._trust,
            proxy=self._proxy,
            trust_env=False,
            follow_redirects=False,
        )

    def request(
        self,
        method: str,
        path: str,
        *,
        json: object | None = None,
        params: Mapping[str, str] | None = None,
        data: Mapping[str, str] | None = None,
        files: Mapping[str, Upload] | None = None,
        content: bytes | Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> EndpointAnswer:
        """One request, whatever the status of its answer; redirects are not followed.

        Files are read while they are sent. Raises Transient when there is no whole answer, and
        Permanent for one of more than 64 MB.
        """
        if not path.startswith("/"):
            raise ValueError("a path begins with a slash: headers must not go to another host")
        path = _DOTS.sub(lambda dots: dots[0].replace(".", "%2E"), path)
        until = None if self._total is None else time.monotonic() + self._total
        with (
            self._no_answer_is_transient(),
            self._client.stream(
                method,
                path,
                json=json,
                params=params,
                data=data,
                files=files,
                content=content,
                headers=headers,
            ) as response,
        ):
            self._check_way(response.status_code)
            told = join_headers(response.headers.raw)
            body = read_body(self._in_time(response.iter_raw(), until), told, LARGEST_ANSWER)
            return EndpointAnswer(response.status_code, told, body)

    @asynccontextmanager
    async def stream(self, path: str, *, json: object) -> AsyncGenerator[EndpointStream]:
        """One POST, whose answer is read as it comes. A caller that is cancelled, or leaves the
        block, ends the request. Raises Transient as `request`; the whole takes `total` at most."""
        until = None if self._total is None else asyncio.get_running_loop().time() + self._total
        async with httpx.AsyncClient(
            base_url=self.base_url,
            headers={**self._headers, "Accept-Encoding": "identity"},
            timeout=self._timeout,
            verify=self._trust,
            proxy=self._proxy,
            trust_env=False,
            follow_redirects=False,
        ) as client:
            with self._no_answer_is_transient():
                async with self._by(until):
                    request = client.build_request("POST", path, json=json)
                    response = await client.send(request, stream=True)
            try:
                self._check_way(response.status_code)
                told = join_headers(response.headers.raw)
                yield EndpointStream(response.status_code, told, self._parts(response, until))
            finally:
                await response.aclose()

    async def _parts(self, response: httpx.Response, until: float | None) -> AsyncGenerator[bytes]:
        parts = response.aiter_raw()
        while True:
            with self._no_answer_is_transient():
                async with self._by(until):
                    part = await anext(parts, None)
            if part is None:
                return
            yield part

    @asynccontextmanager
    async def _by(self, until: float | None) -> AsyncGenerator[None]:
        try:
            async with asyncio.timeout_at(until):
                yield
        except TimeoutError as error:
            raise Transient(f"{self._host} did not answer in time", code="timeout") from error

    def refusal(self, answer: EndpointAnswer, *, hide: Sequence[str] = ()) -> Transient | Permanent:
        """What an answer other than 2xx means (`http_<status>`), with what it says as message.

        `hide` are secrets that were sent with the call.
        """
        return outcome(answer.status, answer.headers, self.message(answer, hide=hide))

    def message(self, answer: EndpointAnswer, *, hide: Sequence[str] = ()) -> str:
        """What an answer says of what went wrong, for people; without `hide`."""
        said = said_in(answer.data, hide=(*hide, *self._secrets))
        return f"{self._host} answered {answer.status}" + (f": {said}" if said else "")

    def request_json(self, method: str, path: str, body: object | None = None) -> Any:
        """Send JSON, get JSON. Raises Transient or Permanent (`http_<status>`) for other than 2xx,
        with what the answer says as its message."""
        answer = self.request(method, path, json=body)
        if not 200 <= answer.status < 300:
            raise self.refusal(answer)
        try:
            return json.loads(answer.data)
        except (ValueError, RecursionError) as error:
            raise Permanent(f"{self._host} did not answer with JSON", code="bad_answer") from error

    def close(self) -> None:
        self._client.close()

    def _in_time(self, parts: Iterable[bytes], until: float | None) -> Iterable[bytes]:
        """The parts until a time; Transient after it. The timeout does not end a server that sends
        a few bytes at a time."""
        for part in parts:
            if until is not None and time.monotonic() > until:
                raise Transient(f"{self._host} did not finish its answer in time", code="timeout")
            yield part

    def _check_way(self, status: int) -> None:
        """Only the proxy answers 407 (RFC 9110, 15.5.8), to a plain request for others as well."""
        if self._proxy is not None and status == 407:
            raise self._not_connected(status)

    def _not_connected(self, status: object) -> Transient:
        told = f"the proxy did not connect to {self._host}" + (f": {status}" if status else "")
        return Transient(told, code="unreachable")

    @contextmanager
    def _no_answer_is_transient(self) -> Generator[None]:
        # Text of the client's errors is left out: it may quote what was sent.
        try:
            yield
        except httpx.TimeoutException as error:
            raise Transient(f"{self._host} did not answer in time", code="timeout") from error
        except httpx.ProxyError as error:
            told = re.match(r"[1-5][0-9]{2}\b", str(error))
            raise self._not_connected(told and told[0]) from error
        except httpx.ConnectError as error:
            way = " through the proxy" if self._proxy else ""
            raise Transient(f"no connection to {self._host}{way}", code="unreachable") from error
        except (httpx.NetworkError, httpx.RemoteProtocolError) as error:
            raise broken_off(self._host) from error


def _checked(base_url: str, headers: Mapping[str, str]) -> httpx.URL:
    if not all(value.isascii() and value.isprintable() for value in headers.values()):
        raise SetupError("a header for an endpoint has characters that no header may have")
    try:
        url = httpx.URL(base_url)
    except httpx.InvalidURL:
        raise SetupError("the address of an endpoint is not a valid URL") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise SetupError("the address of an endpoint must be an http or https URL")
    if url.query or url.fragment:
        raise SetupError("the address of an endpoint must end with its path: no ? and no #")
    return url
