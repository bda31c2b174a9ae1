"""What bodies of requests may cost: by route, by key, and before anybody is known."""

import asyncio
import json
import random
import re
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.types import Message

from recollect.api import bodies
from recollect.api.answering import AnswerRequest
from recollect.api.bodies import Body, BodyMemory, BusyError, Held, Scanner, limit_of
from recollect.db import Database
from recollect.errors import BadRequestError, RateLimitError
from recollect.model import Key, KeyId, Org, Scope
from recollect.orgs import orgs
from tests.conftest import fresh_org
from tests.contract.calls import refused

MB = 1024 * 1024
JSON = {"Content-Type": "application/json"}


# --- the scanner ---------------------------------------------------------------------------------


def counted(text: str) -> int:
    """Values and names that Python's own parser finds, less the outermost."""

    def inside(value: object) -> int:
        match value:
            case dict():
                return sum(1 + inside(one) for one in value.values()) + len(value)
            case list():
                return sum(inside(one) for one in value) + len(value)
            case _:
                return 0

    return inside(json.loads(text))


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        "plain",
        {"a": [1, 2, {"b": 'quote " and \\ and [{,:'}]},
        ["\\", '"', '\\"', "[" * 2000, "\\" * 999 + '"'],
        [[], {}, [[[]]], {"a": {"b": {"c": "é😀\u2028"}}}],
    ],
)
def test_pieces_count_as_the_whole_does(value: Any):
    body = json.dumps(value, ensure_ascii=False).encode()
    whole = Scanner().feed(body)
    assert whole >= counted(body.decode()) * 0.5
    for seed in range(50):
        chance = random.Random(seed)
        scanner, found, at = Scanner(), 0, 0
        while at < len(body):
            size = chance.randint(1, 7)
            found += scanner.feed(body[at : at + size])
            at += size
        assert found == whole, seed


def test_depth_is_counted_over_pieces_and_not_within_strings():
    deep = b"[" * bodies.DEPTH
    scanner = Scanner()
    for at in range(len(deep)):
        scanner.feed(deep[at : at + 1])
    with pytest.raises(BadRequestError, match="too deeply"):
        scanner.feed(b"{")
    Scanner().feed(b'"' + b"[" * 10_000 + b'"')
    flat = Scanner()
    for _ in range(100):
        flat.feed(b"[[],[[]]]," * 100)
    with pytest.raises(BadRequestError):
        Scanner().feed(b'["a\\"",' * (bodies.DEPTH + 1))


@pytest.mark.parametrize(
    "shape",
    [b'"', b'\\"', b'"\\', b"[", b"{},", b'"a",', b'""', b"\\", b'"\\"', b"a", b"[]"],
)
def test_scanning_takes_steps_like_its_input(shape: bytes):
    """Ten times as much takes less than forty times the processor time."""

    def cost(size: int) -> float:
        best = 1e9
        for _ in range(3):
            body = shape * (size // len(shape))
            began = time.process_time()
            with suppress(BadRequestError):
                scanner = Scanner()
                for at in range(0, len(body), 16_384):
                    scanner.feed(body[at : at + 16_384])
            best = min(best, time.process_time() - began)
        return best

    assert cost(500_000) < 40 * max(cost(50_000), 0.0005)


# --- the ledger ----------------------------------------------------------------------------------


@pytest.fixture
def two_keys(db: Database, org: Org) -> tuple[Key, Key]:
    return made(db, org), made(db, org)


def made(db: Database, org: Org) -> Key:
    with db.begin() as tx:
        return orgs.authenticate(tx, orgs.create_key(tx, org.id, scope=Scope.READ)[1])


async def take(ledger: BodyMemory, key: Key | None, size: int) -> Held:
    held = Held(key)
    await ledger.take(held, size)
    return held


def test_one_key_and_one_organisation_do_not_take_the_place_of_others(
    db: Database, two_keys: tuple[Key, Key], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(bodies, "PATIENCE", timedelta(seconds=0.05))
    one, other = two_keys

    async def run(foreign: Key) -> None:
        ledger = BodyMemory()
        first = await take(ledger, one, bodies.BY_KEY)
        with pytest.raises(RateLimitError) as full:
            await take(ledger, one, 1)
        assert full.value.status == 429
        await take(ledger, other, bodies.BY_ORG - bodies.BY_KEY)
        with pytest.raises(RateLimitError, match="organisation") as full:
            await take(ledger, other, 1)
        assert full.value.status == 429
        await take(ledger, foreign, bodies.LARGEST)
        with pytest.raises(BusyError):
            await take(ledger, foreign, bodies.SPARE + 1)
        await take(ledger, None, bodies.BY_STRANGERS)
        with pytest.raises(BusyError):
            await take(ledger, None, 1)
        ledger.give_back(first)
        await take(ledger, one, bodies.BY_KEY)

    with fresh_org(db) as another:
        asyncio.run(run(made(db, another)))


def test_who_holds_little_has_room_beside_those_who_hold_all(
    db: Database, two_keys: tuple[Key, Key]
):
    one, other = two_keys
    third = replace(one, id=KeyId("third"))

    async def run(foreign: Key, modest: Key) -> None:
        ledger = BodyMemory()
        await take(ledger, one, bodies.BY_KEY)
        await take(ledger, other, bodies.BY_ORG - bodies.BY_KEY)
        small = await take(ledger, third, bodies.LITTLE)
        await take(ledger, foreign, bodies.LARGEST)
        rest = bodies.BY_ALL - bodies.BY_ORG - bodies.LARGEST - bodies.LITTLE
        beside = await take(ledger, foreign, rest)
        await take(ledger, modest, bodies.LITTLE)
        waiting = asyncio.create_task(take(ledger, third, 1))
        await asyncio.sleep(0)
        assert not waiting.done()
        ledger.give_back(beside)
        ledger.give_back(small)
        await waiting

    with fresh_org(db) as another, fresh_org(db) as last:
        asyncio.run(run(made(db, another), made(db, last)))


def test_who_waits_goes_on_as_soon_as_there_is_room(two_keys: tuple[Key, Key]):
    one, _ = two_keys

    async def run() -> None:
        ledger = BodyMemory()
        first = await take(ledger, one, bodies.BY_KEY)
        waiting = asyncio.create_task(take(ledger, one, MB))
        await asyncio.sleep(0)
        assert not waiting.done()
        ledger.give_back(first)
        await waiting

    asyncio.run(run())


@pytest.mark.parametrize("count", [2, 3, 12])
def test_bodies_that_wait_for_each_other_give_way_from_the_last(
    two_keys: tuple[Key, Key], count: int, monkeypatch: pytest.MonkeyPatch
):
    """Else each holds what the others need until none of them has patience left."""

    async def run() -> list[str]:
        ledger = BodyMemory()

        async def send(body: Body) -> str:
            async def receive() -> Message:
                await asyncio.sleep(0)  # the others' turn
                return {"type": "http.request", "body": b"a" * MB, "more_body": next(rest) > 0}

            rest = iter(range(79, -1, -1))
            counted = body.counted(receive)
            try:
                while (await counted())["more_body"]:
                    pass
            except RateLimitError:
                return "refused"
            finally:
                body.close()
            return "taken"

        came = [body_of(ledger, two_keys[0], "application/octet-stream") for _ in range(count)]
        outcomes = await asyncio.gather(*map(send, came))
        await take(ledger, two_keys[0], bodies.BY_KEY)  # all is given back
        return outcomes

    monkeypatch.setattr(bodies, "PATIENCE", timedelta(hours=1))
    outcomes = asyncio.run(run())
    assert outcomes[0] == "taken"
    assert outcomes[-1] == "refused"


def test_who_waits_for_another_share_keeps_nobody_busy(
    db: Database, two_keys: tuple[Key, Key], monkeypatch: pytest.MonkeyPatch
):
    """The last body of the organisation waits for room in the share of all. No other one of it
    gives way, and none asks again before something changes."""

    class Asked(BodyMemory):
        times = 0

        def _full(self, held: Held, size: int) -> str | None:
            self.times += 1
            return super()._full(held, size)

    async def run(foreign: Key) -> None:
        ledger = Asked()
        beside = await take(ledger, foreign, bodies.BY_ALL - bodies.BY_ORG + 1)
        first, second = [await take(ledger, key, 70 * MB) for key in two_keys]
        last = await take(ledger, two_keys[1], bodies.BY_ORG - 141 * MB)
        waiting = [
            asyncio.create_task(ledger.take(held, size))
            for held, size in [(last, MB), (first, 10 * MB), (second, 10 * MB)]
        ]
        for _ in range(1_000):
            await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        assert ledger.times < 20
        ledger.give_back(beside)
        await waiting[0]
        ledger.give_back(last)
        with pytest.raises(RateLimitError, match="organisation"):
            await waiting[2]
        ledger.give_back(second)
        await waiting[1]

    monkeypatch.setattr(bodies, "PATIENCE", timedelta(hours=1))
    with fresh_org(db) as another:
        asyncio.run(run(made(db, another)))


def body_of(ledger: BodyMemory, key: Key | None, kind: str, path: str = "/v3/documents") -> Body:
    headers = [(b"content-type", kind.encode())]
    return Body(ledger, {"type": "http", "headers": headers, "state": {"key": key}}, path, {})


async def read(body: Body, pieces: Iterator[bytes]) -> None:
    async def receive() -> Message:
        piece = next(pieces, None)
        return {"type": "http.request", "body": piece or b"", "more_body": piece is not None}

    counted = body.counted(receive)
    while (await counted())["more_body"]:
        pass


def test_values_are_charged_beside_bytes(two_keys: tuple[Key, Key]):
    one, _ = two_keys

    async def run() -> None:
        ledger = BodyMemory()
        body = body_of(ledger, one, "application/json")
        with pytest.raises(BadRequestError, match="too many values"):
            await read(body, (b"{}," * 20_000 for _ in range(1_000)))
        body.close()
        largest = body_of(ledger, one, "application/json")
        await read(largest, (b'"' + b"a" * (MB - 3) + b'",' for _ in range(80)))
        largest.close()
        upload = body_of(ledger, one, "multipart/form-data; boundary=b")
        await read(upload, (b"a" * MB for _ in range(80)))
        upload.close()
        await take(ledger, one, bodies.BY_KEY)

    asyncio.run(run())


def test_slow_bodies_end(two_keys: tuple[Key, Key], monkeypatch: pytest.MonkeyPatch):
    """A byte now and then is not enough: a longer body has a least speed, one without a key an
    end."""
    monkeypatch.setattr(bodies, "STALL", timedelta(seconds=0.3))

    async def run(key: Key | None, pieces: int) -> None:
        body = body_of(BodyMemory(), key, "application/json")

        async def receive() -> Message:
            await asyncio.sleep(0.05)
            return {"type": "http.request", "body": b"a", "more_body": True}

        counted = body.counted(receive)
        for _ in range(pieces):
            await counted()

    for key in (None, two_keys[0]):
        with pytest.raises(BadRequestError, match="bytes a second"):
            asyncio.run(run(key, 1_000))


# --- over HTTP -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "limit"), [("/console/login", 32_768), ("/console/assistants/allow", 65_536)]
)
def test_a_form_that_is_too_large_is_answered_with_a_page(
    client: httpx.Client, path: str, limit: int
):
    answer = client.post(path, data={"key": "x" * limit}, headers={"origin": str(client.base_url)})

    assert answer.status_code == 400
    assert answer.headers["content-type"].startswith("text/html")
    assert f"larger than {limit:,} bytes" in answer.text


@pytest.mark.parametrize("path", ["/oauth/register", "/oauth/token", "/oauth/revoke"])
def test_what_an_assistant_sends_is_refused_in_json_when_it_is_too_large(
    client: httpx.Client, path: str
):
    answer = client.post(path, content=b"x" * 65_537)

    assert answer.status_code == 400
    assert "larger than 65,536 bytes" in answer.json()["details"]


def test_every_route_has_a_limit_and_only_those_of_content_a_large_one(client: httpx.Client):
    """The body is refused by what its header claims, so nothing of it is read."""
    paths: dict[str, dict[str, Any]] = client.get("/v3/openapi").json()["paths"]
    large: set[tuple[str, str]] = set()
    refusals = 0
    for route, item in paths.items():
        path = re.sub(r"\{\w+\}", "x", route)
        for verb in item:
            limit = limit_of(path)
            if limit == bodies.LARGEST and verb in ("post", "patch", "put"):
                large.add((verb, route))
            answer = _claiming(client, verb, path, limit + 1)
            assert b" 400 " in answer.split(b"\r\n", 1)[0], (verb, route, answer[:200])
            assert f"larger than {limit:,} bytes".encode() in answer
            refusals += 1
    assert refusals > 50
    assert large == {
        ("post", "/v3/documents"),
        ("post", "/v3/documents/batch"),
        ("post", "/v3/documents/file"),
        ("patch", "/v3/documents/{id}"),
        ("post", "/v4/conversations"),
        ("post", "/ns/{namespace}/document"),
        ("post", "/ns/{namespace}/document/batch"),
        ("post", "/ns/{namespace}/document/file"),
        ("post", "/ns/{namespace}/document/file/{id}"),
        ("patch", "/ns/{namespace}/document/file/{id}"),
        ("patch", "/ns/{namespace}/document/{id}"),
    }


def test_what_its_fields_allow_has_room_in_a_body():
    """In other scripts, too: many clients write each of their letters with six bytes."""
    turns = [{"role": "user", "content": "я" * 10_000}] * 50
    body = json.dumps({"q": "Что дальше?", "turns": turns})
    assert AnswerRequest.model_validate_json(body)
    assert len(body) <= limit_of("/v4/answer")


def _claiming(client: httpx.Client, verb: str, path: str, size: int) -> bytes:
    """The answer to a request that claims a body of that size and sends a byte of it."""
    place = urlsplit(str(client.base_url))
    with socket.create_connection((place.hostname or "", place.port or 0), timeout=60) as line:
        line.sendall(
            f"{verb.upper()} {path} HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: {client.headers['authorization']}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {size}\r\n\r\n{{".encode()
        )
        answer = b""
        while (piece := line.recv(65_536)) and not (answer := answer + piece).endswith(b"}"):
            pass
        return answer


def test_a_large_body_without_a_length_is_refused_on_the_way(client: httpx.Client):
    def endless() -> Iterator[bytes]:
        yield b'{"q": ['
        for _ in range(30):
            yield b"{}," * (MB // 3)

    answer = client.post("/v3/search", content=endless(), headers=JSON)
    refused(answer, 400, "larger than 1,048,576 bytes")


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/v3/hooks/github", {"X-GitHub-Event": "push", "X-Hub-Signature-256": "sha256=0"}),
        ("/v3/hooks/github?registration=nothing", {"X-Hub-Signature-256": "sha256=0"}),
        ("/v3/hooks/onedrive?registration=nothing", {}),
        ("/v3/hooks/google-drive?registration=nothing", {}),
        ("/v3/hooks/gmail", {}),
        ("/v3/hooks/nothing", {}),
        ("/console/add", {}),
        ("/console/keys", {"Sec-Fetch-Site": "same-origin"}),
        ("/v3/documents", {}),
        ("/mcp", {}),
    ],
)
def test_nothing_is_read_for_strangers(live_url: str, path: str, headers: dict[str, str]):
    """The answer comes while the body is still to come."""
    place = urlsplit(live_url)
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with socket.create_connection((place.hostname or "", place.port or 0), timeout=20) as line:
        line.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{lines}".encode())
        line.sendall(b"Content-Length: 900000\r\n\r\n")
        status = int(line.recv(65_536).split()[1])
    assert status in (200, 202, 401, 403, 404), status
