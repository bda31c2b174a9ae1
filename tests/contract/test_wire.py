"""Connections before there is a request: large heads, half ones, and too many of them."""

import asyncio
import json
import socket
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from select import select
from urllib.parse import urlsplit

import httpx
import psutil
import pytest
from starlette.types import Message

from recollect.api import create_app, edge, turns
from recollect.app import App
from recollect.cli import _wire
from recollect.cli._process import listen
from recollect.config import Config
from tests.chaos.test_crash import children, part_of
from tests.conftest import Service, eventually, free_port, plain_client, serving
from tests.contract.calls import add, upload

HALF = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Half: "
FULL = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
EARLY = (
    b"POST /v3/documents HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer no\r\n"
    b"Content-Length: 100\r\n\r\n{"
)
"""Answered before the other 99 bytes of its body have come."""


def line_to(url: str) -> socket.socket:
    place = urlsplit(url)
    return socket.create_connection((place.hostname or "", place.port or 0), timeout=60)


def rest(line: socket.socket) -> bytes:
    """What comes until the other side closes."""
    answer = b""
    with suppress(ConnectionResetError):
        while piece := line.recv(65_536):
            answer += piece
    return answer


def poured(line: socket.socket, piece: bytes, most: int) -> int:
    """Bytes that the other side let us send before it closed, at most `most`."""
    sent = 0
    with suppress(ConnectionError):
        while sent < most:
            sent += line.send(piece)
    return sent


def api_process(service: Service) -> int:
    """The id of the process that answers HTTP."""
    (found,) = (child.pid for child in children(service) if part_of(child) == "api")
    return found


def resident(pid: int) -> int:
    """Bytes in memory now."""
    return psutil.Process(pid).memory_info().rss


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_what_is_accepted_sends_at_once(host: str, tmp_path: Path):
    config = Config(data_dir=tmp_path, host=host, port=free_port())
    with closing(listen(config)) as listening:
        with closing(socket.create_connection((host, config.port), timeout=60)):
            accepted, _ = listening.accept()
        with closing(accepted):
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        (b"GET / HTTP/1.1\r\n", b"X-Line: " + b"a" * 1000 + b"\r\n"),
        (b"GET / HTTP/1.1\r\nX-Line: ", b"a" * 1000),
        (b"GET /", b"a" * 1000),
        (b"", b"\r\n" * 500),
        (
            b"POST /v3/hooks/notion HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
            b"X-Trailer: " + b"a" * 1000 + b"\r\n",
        ),
        (
            b"POST /v3/hooks/notion HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5;",
            b"a" * 1000,
        ),
    ],
    ids=["lines", "line", "address", "nothing", "trailers", "extension"],
)
def test_heads_are_bounded_and_cost_no_memory(service: Service, begin: bytes, piece: bytes):
    pid = api_process(service)
    with httpx.Client(base_url=service.url, trust_env=False) as http:
        assert http.get("/health").status_code == 200
        before = resident(pid)
        with line_to(service.url) as line:
            line.sendall(begin)
            sent = poured(line, piece * 64, 400_000_000)
            answer = rest(line)
        assert sent < 20_000_000  # what sockets hold on both sides
        assert b" 431 " in answer or answer == b"" or begin.startswith(b"POST")
        assert resident(pid) < before + 20_000_000
        assert http.get("/health").status_code == 200


def test_a_head_in_one_piece_is_bounded_too(live_url: str):
    with line_to(live_url) as line:
        line.sendall(FULL[:-2] + b"X-Line: " + b"a" * _wire.HEAD + b"\r\n\r\n")
        assert rest(line).startswith(b"HTTP/1.1 431 ")
    with line_to(live_url) as line:
        line.sendall(FULL[:-2] + b"Connection: close\r\nX-Line: " + b"a" * 60_000 + b"\r\n\r\n")
        assert rest(line).startswith(b"HTTP/1.1 200 ")


BODY = b"POST /v3/hooks/notion HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00", 400),
        (b"GET /health HTTP/1.1\r\nX-Line : a\r\n\r\n", 400),
        (FULL[:-2] + b"X-Line: " + b"a" * _wire.HEAD + b"\r\n\r\n", 431),
        (BODY + b"chunked\r\n\r\nzz\r\n", 400),
        (BODY + b"chunked\r\n\r\n2\r\n{}\r\nzz\r\n", 400),
        (BODY + b"xchunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 400),
    ],
    ids=["garbage", "name", "large", "chunk", "second chunk", "encoding"],
)
def test_what_is_no_request_is_refused_as_others_are(live_url: str, sent: bytes, status: int):
    with line_to(live_url) as line:
        line.sendall(sent)
        head, _, body = rest(line).partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert b"content-type: application/json" in head
    assert json.loads(body).keys() == {"error", "details"}


def test_a_refusal_is_not_taken_for_the_answer_to_what_came_before(live_url: str):
    with line_to(live_url) as line:
        line.sendall(FULL + BODY + b"chunked\r\n\r\nzz\r\n")

        assert b"HTTP/1.1 400 " not in rest(line).partition(b"HTTP/1.1 200 ")[0]


def unread(url: str, path: str, *, head: bytes = b"", room: int = 4096) -> socket.socket:
    """A connection that has asked and takes no more than there is room for."""
    place = urlsplit(url)
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
    line.settimeout(60)
    line.connect((place.hostname or "", place.port or 0))
    line.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n".encode() + head + b"\r\n")
    return line


@pytest.mark.parametrize("head", [b"", b"Connection: close\r\n"], ids=["kept", "closed"])
def test_who_does_not_read_an_answer_loses_it_and_its_place(
    client: httpx.Client, live_url: str, head: bytes, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_wire, "READ_WITHIN", 0.5)
    data = b"heron " * 2_000_000
    id = upload(client, "heron.txt", data).json()["id"]
    path = client.get(f"/v3/documents/{id}/file-url").json()["url"].removeprefix(live_url)
    with ExitStack() as held:
        lines = [
            held.enter_context(unread(live_url, path, head=head))
            for _ in range(turns.DOWNLOADS_ORG)
        ]
        ours = {line.getsockname() for line in lines}
        eventually(lambda: ours <= others_of_this_process())
        eventually(lambda: ours.isdisjoint(others_of_this_process()))
        monkeypatch.undo()
        assert client.get(path).content == data
        for line in lines:
            assert len(rest(line)) < 1_000_000 < len(data)


def test_who_reads_slowly_gets_all_of_an_answer(
    client: httpx.Client, live_url: str, monkeypatch: pytest.MonkeyPatch
):
    """What the system would hold for it takes longer to read than some may take."""
    monkeypatch.setattr(_wire, "READ_WITHIN", 0.5)
    data = b"heron " * 2_000_000
    id = upload(client, "heron.txt", data).json()["id"]
    path = client.get(f"/v3/documents/{id}/file-url").json()["url"].removeprefix(live_url)
    with unread(live_url, path, head=b"Connection: close\r\n", room=65_536) as line:
        got = b""
        for _ in range(40):
            got += line.recv(32_768)
            select([], [], [], 0.05)
        assert (got + rest(line)).endswith(data)


def others_of_this_process() -> set[tuple[str, int]]:
    """The addresses to which connections of this process lead."""
    found = psutil.Process().net_connections("tcp4")
    return {(one.raddr.ip, one.raddr.port) for one in found if one.raddr}


def test_an_answer_is_handed_on_in_pieces(client: httpx.Client, app: App, key: str):
    """Otherwise all of it stands in the memory of the connection, however slowly it is read."""
    text = "heron " * 100_000
    id = add(client, text)
    sent: list[int] = []

    async def run() -> None:
        async def send(message: Message) -> None:
            sent.append(len(message.get("body", b"")))

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        path = f"/v3/documents/{id}"
        scope = {
            "type": "http", "method": "GET", "path": path, "raw_path": path.encode(),
            "query_string": b"", "client": ("127.0.0.1", 1),
            "headers": [(b"authorization", f"Bearer {key}".encode()), (b"host", b"localhost")],
        }  # fmt: skip
        await create_app(app)(scope, receive, send)

    asyncio.run(run())
    assert max(sent) <= edge.PIECE
    assert sum(sent) > len(text)


def test_half_a_request_has_a_deadline(live_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_wire, "HEAD_WITHIN", 0.3)
    for sent, told in [(HALF, b"HTTP/1.1 408 "), (b"", b""), (FULL + HALF, b"HTTP/1.1 200 ")]:
        with line_to(live_url) as line:
            line.sendall(sent)
            assert rest(line).startswith(told)


def test_who_sends_a_byte_now_and_then_has_the_same_deadline(
    live_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_wire, "HEAD_WITHIN", 0.5)
    with line_to(live_url) as line:
        line.sendall(HALF)
        line.settimeout(0.05)

        def ended() -> bool:
            with suppress(TimeoutError):
                line.send(b"a")
                line.recv(1)
                return True
            return False

        eventually(ended, timeout=20)


def test_the_rest_of_a_refused_body_has_a_deadline(live_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_wire, "HEAD_WITHIN", 0.3)
    with line_to(live_url) as line:
        line.sendall(
            b"POST /v3/search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000000\r\n\r\n{"
        )
        assert line.recv(65_536).startswith(b"HTTP/1.1 401 ")
        with suppress(ConnectionError):
            line.sendall(b"a" * 100_000)
        rest(line)


@pytest.fixture
def crowded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few may wait, and give way at once."""
    monkeypatch.setattr(_wire, "WAITING", 20)
    monkeypatch.setattr(_wire, "GRACE", 0.0)


@pytest.mark.usefixtures("crowded")
def test_who_waits_longest_makes_room_and_others_are_served(live_url: str):
    halves = [line_to(live_url) for _ in range(60)]
    try:
        for line in halves:
            with suppress(ConnectionError):
                line.sendall(HALF)
        for _ in range(20):
            with plain_client(live_url, {}) as client:
                assert client.get("/health").status_code == 200
        assert sum(rest(line) == b"" for line in halves[:30]) == 30
    finally:
        for line in halves:
            line.close()


def answered(url: str, request: bytes = FULL) -> socket.socket:
    """A connection that is kept for the next request."""
    line = line_to(url)
    line.sendall(request)
    answer = b""
    while b"}" not in answer:
        answer += line.recv(65_536)
    return line


@pytest.mark.usefixtures("crowded")
def test_who_is_kept_longest_makes_room(live_url: str):
    with ExitStack() as lines:
        kept = [lines.enter_context(answered(live_url)) for _ in range(60)]
        closed, _, _ = select(kept, [], [], 0)
        assert closed[:30] == kept[:30]
        kept[-1].sendall(FULL)
        assert kept[-1].recv(65_536).startswith(b"HTTP/1.1 200 ")


def test_a_kept_connection_has_a_deadline(live_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_wire, "IDLE", 0.3)
    with answered(live_url) as line:
        assert rest(line) == b""


def test_a_connection_whose_request_was_answered_before_it_was_whole_is_kept_as_long(
    live_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_wire, "IDLE", 0.3)
    monkeypatch.setattr(_wire, "HEAD_WITHIN", 600)
    with answered(live_url, EARLY) as line:
        line.sendall(b" " * 99)
        assert rest(line) == b""


def test_no_request_that_comes_with_the_rest_of_another_is_broken_off(
    live_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_wire, "IDLE", 0.0)
    with answered(live_url, EARLY) as line:
        line.sendall(b" " * 99 + FULL)
        assert rest(line).startswith(b"HTTP/1.1 200 ")


@pytest.mark.slow
def test_a_thousand_half_requests_are_gone_after_the_deadline(service: Service):
    pid = api_process(service)

    def open_files() -> int:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))

    before = open_files()
    halves = [line_to(service.url) for _ in range(1_007)]
    try:
        for line in halves:
            with suppress(ConnectionError):
                line.sendall(HALF)
        with service.client() as http:
            for _ in range(20):
                assert http.post("/v3/search", json={"q": "heron"}).status_code == 200
        eventually(lambda: open_files() <= before + 10, timeout=60)
        for line in halves:
            rest(line)
    finally:
        for line in halves:
            line.close()


def test_addresses_of_both_families():
    for address, same in [
        ("127.0.0.1", None),
        ("::1", None),
        ("::ffff:127.0.0.1", None),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8::1", "2001:db8::/64"),
    ]:
        assert edge.address_of((address, 1)) == same


def test_a_proxy_on_this_machine_is_believed_on_a_socket_for_both_families(app: App):
    """Under `RECOLLECT_HOST=::` it was not believed, being `::ffff:127.0.0.1`, and counted as
    this machine itself: strangers who came by it could guess keys without end."""
    with serving(app, "::") as url, httpx.Client(trust_env=False) as http:
        headers = {"X-Forwarded-For": "203.0.113.77", "Authorization": "Bearer guess"}
        tried = [
            http.get(f"{url}/v3/settings", headers=headers).status_code
            for _ in range(edge.GUESSES.requests + 1)
        ]
    assert tried == [401] * edge.GUESSES.requests + [429]
