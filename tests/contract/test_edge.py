"""The outermost layer: guessed keys, stalled bodies, a public address with a path."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import cast
from urllib.parse import urlsplit

import httpx
import pytest
from anyio import to_thread
from fastapi import FastAPI
from starlette.testclient import TestClient

from recollect import console
from recollect.api import bodies, create_app, edge
from recollect.app import App
from recollect.console._room import COOKIE
from recollect.model import Org, Plan
from recollect.orgs import orgs
from recollect.orgs.orgs import Limit
from tests.conftest import CONNECTIONS
from tests.contract.calls import add, refused


@contextmanager
def caller(api: FastAPI, address: str, key: str) -> Generator[httpx.Client]:
    headers = {"Authorization": f"Bearer {key}"}
    with TestClient(api, "http://localhost", headers=headers, client=(address, 1)) as http:
        yield cast("httpx.Client", http)  # starlette's own copy of the class


def test_an_address_that_guesses_keys_has_to_wait(app: App, key: str):
    api = create_app(app)
    path = "/v3/documents/counts"
    with (
        caller(api, "203.0.113.5", "guess") as guesser,
        caller(api, "203.0.113.6", "guess") as other,
        caller(api, "2001:db8::1", "guess") as one_of_a_house,
        caller(api, "2001:db8::2", "guess") as another_of_it,
        caller(api, "127.0.0.1", "guess") as local,
        caller(api, "203.0.113.5", key) as owner,
    ):
        assert owner.get(path).status_code == 200
        for http in (guesser, one_of_a_house):
            for _ in range(edge.GUESSES.requests):
                refused(http.get(path), 401)
        late = guesser.get(path)
        refused(late, 429, "Too many requests")
        assert 1 <= int(late.headers["retry-after"]) <= 60
        assert late.json()["details"] == f"try again in {late.headers['retry-after']} s"
        refused(another_of_it.get(path), 429)
        refused(other.get(path), 401)
        assert owner.get(path).status_code == 200
        for _ in range(edge.GUESSES.requests + 1):
            refused(local.get(path), 401)


def test_a_right_key_does_not_wait_for_wrong_ones(app: App, key: str):
    """Behind a proxy that does not say for whom it asks, all have one address."""
    api = create_app(app)
    with caller(api, "203.0.113.5", "guess") as guesser, caller(api, "203.0.113.5", key) as owner:
        for _ in range(edge.GUESSES.requests):
            refused(guesser.get("/v3/settings"), 401)
        refused(guesser.get("/v3/settings"), 429)
        assert owner.get("/v3/settings").status_code == 200


def test_wrong_keys_under_a_foreign_name_come_from_a_page(app: App, key: str):
    """A page whose name was rebound to loopback guesses from there."""
    api = create_app(app)
    with caller(api, "127.0.0.1", "guess") as page:
        for _ in range(edge.GUESSES.requests):
            refused(page.get("/v3/settings", headers={"Host": "evil.example"}), 401)
        refused(page.get("/v3/settings", headers={"Host": "evil.example"}), 429)
        refused(page.get("/v3/settings"), 401)


def test_guesses_at_the_console_are_slowed_too(app: App, key: str):
    api = create_app(app)
    console.add_to(api)

    def sign_in(http: httpx.Client, secret: str) -> int:
        headers = {"Sec-Fetch-Site": "same-origin"}
        answer = http.post(
            "/console/login", data={"key": secret}, headers=headers, follow_redirects=False
        )
        return answer.status_code

    with caller(api, "203.0.113.5", "guess") as http, caller(api, "203.0.113.6", "guess") as other:
        tried = [sign_in(http, f"guess {n}") for n in range(edge.GUESSES.requests + 5)]
        assert tried == [401] * edge.GUESSES.requests + [429] * 5
        refused(http.get("/v3/settings"), 429)  # one count for both doors
        assert sign_in(http, key) == 303
        assert sign_in(other, "guess") == 401


def test_only_our_own_names_open_anything_on_loopback(app: App, key: str):
    """All routes there are, walked: a rebound name reaches none of them."""
    config = app.config.model_copy(
        update={"host": "127.0.0.1", "public_url": "https://recollect.example.org"}
    )
    api = create_app(replace(app, config=config))
    console.add_to(api)
    paths = {"/docs", "/v3/openapi", "/mcp", "/console", "/console/login", "/v3/nothing", "/"}
    paths |= {f"/{'/'.join(filter(None, path.split('/')))}" for path in api.openapi()["paths"]}
    assert len(paths) > 50
    with caller(api, "127.0.0.1", key) as http:
        for path in sorted(paths - edge.ANY_HOST):
            for name in (
                "evil.example",
                "evil.example:6767",
                "localhost.evil.example",
                "[evil",
                "",
            ):
                answer = http.get(path, headers={"Host": name})
                if path.startswith("/console"):  # a page of its own
                    assert answer.status_code == 403
                    assert "RECOLLECT_PUBLIC_URL" in answer.text
                    continue
                told = refused(answer, 403, "RECOLLECT_PUBLIC_URL")
                assert "Host" in told["details"], path
            forwarded = {"Host": "evil.example", "X-Forwarded-For": "203.0.113.9"}
            assert http.get(path, headers=forwarded).status_code == 403
        for name in ("localhost", "127.0.0.1:6767", "[::1]:6767", "recollect.example.org"):
            assert http.get("/v3/settings", headers={"Host": name}).status_code == 200
        assert http.get("/health", headers={"Host": "evil.example"}).status_code == 200


@pytest.fixture
def several(app: App) -> Generator[list[str]]:
    """Keys of organisations that together may take all threads."""
    secrets: list[str] = []
    with app.db.begin() as tx:
        made = [orgs.create(tx, f"org-{orgs.random_id()}", Plan.ENTERPRISE) for _ in range(4)]
        secrets += [orgs.create_key(tx, one.id)[1] for one in made for _ in range(2)]
    yield secrets
    with app.db.begin() as tx:
        tx.execute("delete from orgs where id = any(%s)", ([one.id for one in made],))


@pytest.mark.parametrize("takes", ["threads", "connections"])
def test_slow_routes_keep_neither_keys_nor_health_waiting(
    app: App, org: Org, key: str, several: list[str], takes: str
):
    """All threads that routes share are taken, also with connections, and more wait for one."""
    with app.db.begin() as tx:
        counted = orgs.create_key(tx, org.id, tags=["notes"], limit=Limit(10))[1]
    api = create_app(app)
    console.add_to(api)
    over = threading.Event()
    held = threading.Semaphore(0)

    @api.get("/v3/slow")
    def slow() -> None:
        with app.db.begin() if takes == "connections" else nullcontext():
            held.release()
            over.wait(60)

    async def run() -> None:
        transport = httpx.ASGITransport(api)
        headers = {"Authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(
            transport=transport, base_url="http://localhost", headers=headers, timeout=60
        ) as http:
            waiting = [
                asyncio.create_task(
                    http.get("/v3/slow", headers={"Authorization": f"Bearer {secret}"})
                )
                for _ in range(8)
                for secret in several
            ]
            try:
                threads = to_thread.current_default_thread_limiter()
                while threads.borrowed_tokens < threads.total_tokens:
                    await asyncio.sleep(0.01)
                if takes == "connections":
                    for _ in range(CONNECTIONS):
                        await asyncio.to_thread(held.acquire)
                for secret in (key, counted, key):
                    one = {"Authorization": f"Bearer {secret}"}
                    refused(await http.get("/v3/nothing", headers=one), 404)
                    assert (await http.get("/health")).status_code == 200
                wrong = await http.get("/v3/slow", headers={"Authorization": "Bearer x"})
                refused(wrong, 401)
                page = {"Cookie": f"{COOKIE}=x", "Sec-Fetch-Site": "same-origin"}
                assert (await http.post("/console/logout", headers=page)).status_code == 401
                assert takes == "connections" or not any(task.done() for task in waiting)
            finally:
                over.set()
            answers = {(await task).status_code for task in waiting}
        # A connection that nobody needs for ten seconds is taken away.
        assert answers <= {200, 503} if takes == "connections" else answers == {200}

    asyncio.run(run())


def test_a_body_that_stalls_is_not_waited_for(
    live_url: str, key: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(bodies, "STALL", timedelta(seconds=0.2))
    place = urlsplit(live_url)
    with socket.create_connection((place.hostname, place.port), timeout=60) as line:
        line.sendall(
            f"POST /v3/documents HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
            'Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"content": '.encode()
        )
        answer = b"".join(iter(lambda: line.recv(65536), b""))  # until the other side closes

    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert b"connection: close" in head.lower()
    assert b"brought nothing" in body


def test_waiting_for_an_answer_is_no_stall(client: httpx.Client, monkeypatch: pytest.MonkeyPatch):
    id = add(client)
    # Only now: the body of what is added may come later than that.
    monkeypatch.setattr(bodies, "STALL", timedelta(seconds=0.05))

    assert client.get(f"/v3/documents/{id}?wait=0.3").json()["status"] == "queued"


def test_an_address_with_a_path(served: Callable[..., httpx.Client]):
    http = served(public_url="https://example.org/tools/recollect/")
    id = add(http, customId="a/b")

    for path in ("/tools/recollect", ""):
        assert http.get(f"{path}/v3/documents/a%2Fb").json()["id"] == id
        assert http.get(f"{path}/v3/memories/{id}").json()["id"] == id
        assert http.get(f"{path}/health").status_code == 200
        assert "/tools/recollect/v3/openapi" in http.get(f"{path}/docs").text
        refused(http.get(f"{path}/v3/nothing"), 404)
    assert http.get("/tools/recollect").json()["service"] == "recollect"
    assert http.get("/tools/recollect/").json()["service"] == "recollect"
    refused(http.get("/tools/recollectx/health"), 404)
    [server] = http.get("/v3/openapi").json()["servers"]
    assert server["url"] == "https://example.org/tools/recollect"


def test_the_prefix_lets_nobody_in_without_a_key(app: App):
    config = app.config.model_copy(update={"public_url": "https://example.org/p"})
    with TestClient(create_app(replace(app, config=config))) as http:
        for path in ("/p/v3/settings", "/v3/settings", "/p/p/v3/settings", "/p//v3/settings"):
            assert http.get(path).status_code == 401, path


def test_no_proxy_keeps_what_a_key_was_answered(client: httpx.Client, live_url: str, key: str):
    """Of `x-api-key` no cache knows that it is a key; some keep whatever does not forbid it."""
    for headers in ({"x-api-key": key}, {"Authorization": f"Bearer {key}"}):
        for path in ("/v3/documents/counts", "/v3/documents/nobody", "/v3/settings", "/ns"):
            answer = httpx.get(live_url + path, headers=headers, trust_env=False, verify=False)
            assert answer.headers.get_list("cache-control") == ["no-store"], path
    events = client.stream("GET", "/v3/documents/events")
    with events as answer:
        assert answer.headers.get_list("cache-control") == ["no-store"]


@pytest.mark.parametrize("path", ["/health", "/ready"])
def test_monitors_may_ask_for_the_head_alone(live_url: str, path: str):
    full, head = (httpx.request(verb, live_url + path, trust_env=False) for verb in ("GET", "HEAD"))
    assert head.status_code == full.status_code != 405
    assert head.content == b""


def test_who_looks_at_the_usual_places_finds_something(client: httpx.Client):
    browser = {"accept": "text/html,application/xhtml+xml"}
    led = client.get("/", headers=browser, follow_redirects=False)
    assert (led.status_code, led.headers["location"]) == (303, "console")
    assert client.get("/").json()["service"] == "recollect"
    del client.headers["authorization"]
    assert client.get("/openapi.json").json() == client.get("/v3/openapi").json()
    assert client.get("/favicon.ico").headers["content-type"].startswith("image/svg")


def test_no_path_that_is_open_to_strangers_takes_much_work(client: httpx.Client):
    """The page `/docs` took 300 times what a word about the health takes."""

    def work(path: str) -> float:
        """CPU seconds of this process, in which the service is, too."""
        took: list[float] = []
        for _ in range(6):
            began = time.process_time()
            assert client.get(path, headers={"Authorization": ""}).status_code < 400, path
            took.append(time.process_time() - began)
        return min(took)

    health = work("/health")
    assert {path: work(path) / health for path in edge.OPEN if work(path) > 40 * health} == {}
