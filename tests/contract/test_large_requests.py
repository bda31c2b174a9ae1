"""All routes of the whole service with the largest bodies they take, and one byte more."""

import re
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import httpx
import pytest

from recollect.api.bodies import LARGEST, MB, SMALL, limit_of
from tests.conftest import Service, eventually
from tests.contract.test_wire import api_process, line_to, resident

GB = 1_000_000_000
JSON = {"Content-Type": "application/json"}
BOTH = "application/json, text/event-stream"
NEVER = {"/v3/settings/reset"}
"""Would empty what other tests of this service hold."""


@contextmanager
def watched(service: Service) -> Generator[Callable[[], int]]:
    """Asks /health all the while; yields how often it was answered. Fails when the process that
    answers takes a gigabyte or ends."""
    pid = api_process(service)
    over, answered, most = threading.Event(), 0, 0
    faults: list[str] = []

    def ask() -> None:
        nonlocal answered, most
        with httpx.Client(base_url=service.url, timeout=60, trust_env=False, verify=False) as http:
            while not over.wait(0.05):
                try:
                    if http.get("/health").status_code != 200:
                        faults.append("not well")
                except httpx.HTTPError as error:
                    faults.append(repr(error))
                answered += 1
                most = max(most, resident(pid))

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield lambda: answered
    finally:
        over.set()
        thread.join(60)
    assert not faults
    assert api_process(service) == pid
    assert most < GB, most


def bodies_of(limit: int) -> dict[str, bytes]:
    """Bodies of exactly that size that cost most: many values, one long text, text in a wide
    alphabet, deep nesting."""

    def filled(start: bytes, piece: bytes, end: bytes) -> bytes:
        count = (limit - len(start) - len(end)) // len(piece)
        body = start + piece * count + end
        return body + b" " * (limit - len(body))

    return {
        "objects": filled(b'{"x": [', b"{},", b"{}]}"),
        "array": filled(b"[", b"[],", b"[]]"),
        "text": filled(b'{"content": "', b"a", b'"}'),
        "wide": filled('{"q": "\U0001f426'.encode(), b"a", b'"}'),
        "names": filled(b'{"metadata": {', b'"abcdef":1,', b'"a":1}}'),
    }


def send(service: Service, method: str, path: str, body: bytes, *, length: bool) -> int:
    def pieces() -> Generator[bytes]:
        for at in range(0, len(body), MB):
            yield body[at : at + MB]

    with service.client() as http:
        try:
            content = body if length else pieces()
            return http.request(method, path, content=content, headers=JSON).status_code
        except (httpx.WriteError, httpx.ReadError, httpx.RemoteProtocolError):
            return 0  # closed while we were sending what is not wanted


@pytest.fixture(scope="module")
def routes(service: Service) -> list[tuple[str, str]]:
    with service.client() as http:
        paths = http.get("/v3/openapi").json()["paths"]
    found = [
        (verb.upper(), re.sub(r"\{\w+\}", "x", path))
        for path, item in paths.items()
        for verb in item
        if path not in NEVER and path != "/v3/documents/events"
    ]
    return [*found, ("POST", "/mcp"), ("POST", "/v3/hooks/notion"), ("POST", "/console/login")]


@pytest.mark.slow
def test_one_byte_too_many_on_every_route(service: Service, routes: list[tuple[str, str]]):
    """What its length gives away is refused unread: see tests/contract/test_bodies.py."""
    with watched(service) as answers:
        for method, path in routes:
            limit = limit_of(path)
            if limit == SMALL:  # some routes take no body, and leave it unread
                before = answers()
                status = send(service, method, path, b" " * (limit + 1), length=False)
                assert status < 500 or path == "/feedback", (method, path, status)
                eventually(lambda: answers() > before)  # noqa: B023 # at once


def test_the_largest_bodies_of_every_small_route_fifty_at_once(
    service: Service, routes: list[tuple[str, str]]
):
    shapes = list(bodies_of(SMALL).values())
    small = [one for one in routes if limit_of(one[1]) == SMALL and one[0] != "GET"]
    assert len(small) > 20
    with watched(service) as answers, ThreadPoolExecutor(50) as pool:
        statuses = set[int]()
        while answers() <= 5:  # a machine may be done with all before it was asked so often
            jobs = [
                pool.submit(
                    send, service, method, path, shapes[at % len(shapes)], length=bool(at % 2)
                )
                for at, (method, path) in enumerate(small)
            ]
            statuses |= {job.result() for job in jobs}
    assert not statuses & {500, 502, 504}, statuses


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["objects", "text", "wide", "names"])
def test_the_largest_bodies_of_all_fifty_at_once(service: Service, shape: str):
    """One key: it waits for its own, and is told so."""
    body = bodies_of(LARGEST)[shape]
    with watched(service) as answers, ThreadPoolExecutor(50) as pool:
        statuses = set[int]()
        while answers() <= 5:
            jobs = [
                pool.submit(send, service, method, path, body, length=bool(at % 2))
                for at, (method, path) in enumerate(
                    [("POST", path) for path in ("/v3/documents", "/v3/documents/batch", "/mcp")]
                    * 16
                    + [("PATCH", "/v3/documents/x"), ("POST", "/v4/conversations")]
                )
            ]
            statuses |= {job.result() for job in jobs}
    assert statuses <= {0, 400, 404, 413, 429, 503}, statuses


def test_pushes_of_strangers_fifty_at_once_are_not_kept(service: Service):
    """24 MB each, never finished: the answer comes before the body."""
    lines = [line_to(service.url) for _ in range(50)]
    try:
        with watched(service) as answers:
            for line in lines:
                line.settimeout(20)
                line.sendall(
                    b"POST /v3/hooks/github?registration=x HTTP/1.1\r\nHost: localhost\r\n"
                    b"X-Hub-Signature-256: sha256=0\r\nContent-Length: 25000000\r\n\r\n"
                )
                with suppress(OSError):
                    line.sendall(b"a" * 1_000_000)
            for line in lines:
                assert line.recv(65_536).startswith(b"HTTP/1.1 202 ")
            before = answers()
            eventually(lambda: answers() > before + 5)
    finally:
        for line in lines:
            line.close()


def test_a_caller_who_hangs_up_is_a_line_and_no_bug(service: Service):
    for path, more in [
        ("/v3/hooks/notion", ""),
        ("/v3/documents", f"Authorization: Bearer {service.key}\r\n"),
        ("/v3/documents/file", f"Authorization: Bearer {service.key}\r\n"),
        ("/mcp", f"Authorization: Bearer {service.key}\r\nAccept: {BOTH}\r\n"),
        ("/console/login", "Sec-Fetch-Site: same-origin\r\n"),
    ]:
        kind = "multipart/form-data; boundary=b" if path.endswith("file") else "application/json"
        if path.startswith("/console"):
            kind = "application/x-www-form-urlencoded"
        size = service.log.stat().st_size
        with line_to(service.url) as line:
            line.sendall(
                f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{more}Content-Type: {kind}\r\n"
                "Content-Length: 1000\r\n\r\n{".encode()
            )

        def told(after: int = size) -> str:
            text = service.log.read_text()[after:]
            return text if "request" in text else ""

        said = eventually(told)
        assert "Traceback" not in said, path
        assert "bug" not in said, path
