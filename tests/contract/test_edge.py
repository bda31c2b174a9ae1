"""The outermost layer: guessed keys, stalled bodies, a public address with a path."""

import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import cast
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from recollect.api import create_app, edge
from recollect.app import App
from tests.contract.calls import add, refused


@contextmanager
def caller(api: FastAPI, address: str, key: str) -> Generator[httpx.Client]:
    headers = {"Authorization": f"Bearer {key}"}
    with TestClient(api, headers=headers, client=(address, 1)) as http:
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
        refused(another_of_it.get(path), 429)
        refused(other.get(path), 401)
        assert owner.get(path).status_code == 200
        for _ in range(edge.GUESSES.requests + 1):
            refused(local.get(path), 401)


def test_a_key_that_opened_nothing_before_waits_too(app: App, key: str):
    api = create_app(app)
    with caller(api, "203.0.113.5", "guess") as guesser, caller(api, "203.0.113.5", key) as owner:
        for _ in range(edge.GUESSES.requests):
            refused(guesser.get("/v3/settings"), 401)
        refused(owner.get("/v3/settings"), 429)


def test_a_body_that_stalls_is_not_waited_for(
    live_url: str, key: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(edge, "STALL", timedelta(seconds=0.2))
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
    monkeypatch.setattr(edge, "STALL", timedelta(seconds=0.05))

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
