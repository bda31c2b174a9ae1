"""How many statements an endpoint sends does not depend on how much there is."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import httpx
import psycopg
import pytest

from recollect.app import App
from recollect.worker.processing import drain
from tests.contract.calls import add, listed, upload

MOST = 24
"""The largest number that any endpoint needs, with authentication (deleting a tag)."""


class Statements:
    """Counts what is sent to PostgreSQL, without the brackets of transactions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._seen: list[str] = []
        self._lock = Lock()
        send = psycopg.Connection.execute

        def counted(connection: Any, query: Any, *args: Any, **more: Any) -> Any:
            if query not in ("begin", "begin read only", "commit", "rollback"):
                with self._lock:
                    self._seen.append(str(query))
            return send(connection, query, *args, **more)

        monkeypatch.setattr(psycopg.Connection, "execute", counted)

    @contextmanager
    def sent(self) -> Generator[list[str]]:
        self._seen.clear()
        yield self._seen


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Statements:
    return Statements(monkeypatch)


def body(path: str, **fields: Any) -> Callable[[httpx.Client], httpx.Response]:
    return lambda http: http.post(path, json=fields)


READS: dict[str, Callable[[httpx.Client], httpx.Response]] = {
    "list": body("/v3/documents/list", limit=100, includeContent=True, containerTags=["a"]),
    "search": body("/v3/search", q="heron", limit=100, includeFullDocs=True, containerTags=["a"]),
    "search with neighbours": body("/v3/search", q="heron", limit=50, onlyMatchingChunks=False),
    "search in one": body("/v3/search", q="heron", docId="known"),
    "processing": lambda http: http.get("/v3/documents/processing?view=all"),
    "counts": lambda http: http.get("/v3/documents/counts"),
    "get": lambda http: http.get("/v3/documents/known"),
    "chunks": lambda http: http.get("/v3/documents/known/chunks"),
    "file-url": lambda http: http.get("/v3/documents/file/file-url"),
    "tags": lambda http: http.get("/v3/container-tags/list"),
    "tag": lambda http: http.get("/v3/container-tags/a"),
    "settings": lambda http: http.get("/v3/settings"),
    "memories": body("/v4/memories/list", containerTags=["a"], limit=100),
    "profile": body("/v4/profile", containerTag="a", q="heron"),
    "search memories": body(
        "/v4/search",
        q="heron",
        threshold=0,
        searchMode="hybrid",
        include={"documents": True, "relatedMemories": True, "chunks": True},
    ),
}
WRITES: dict[str, Callable[[httpx.Client], httpx.Response]] = {
    "add": body("/v3/documents", content="new", containerTag="a"),
    "add again": body("/v3/documents", content="more", customId="known", containerTag="a"),
    "talk": body(
        "/v4/conversations", conversationId="c", messages=[{"role": "user", "content": "x"}]
    ),
    "upload": lambda http: upload(http, "b.txt", b"new"),
    "update": lambda http: http.patch("/v3/documents/known", json={"metadata": {"a": 1}}),
    "replace": lambda http: http.patch("/v3/documents/known", json={"content": "other"}),
    "retry": body("/v3/documents/retry", failed=True),
    "settings": lambda http: http.patch("/v3/settings", json={"filterPrompt": "x"}),
    "correct": lambda http: http.patch(
        "/v4/memories", json={"containerTag": "w", "content": "Ann.", "newContent": "Bob."}
    ),
    "forget": lambda http: http.request(
        "DELETE", "/v4/memories", json={"containerTag": "w", "content": "Bob."}
    ),
    "forget matching": body("/v4/memories/forget-matching", containerTag="a", query="stood"),
    "tag": lambda http: http.patch("/v3/container-tags/a", json={"name": "x"}),
    "delete": lambda http: http.delete("/v3/documents/known"),
    "delete by tag": lambda http: http.request(
        "DELETE", "/v3/documents/bulk", json={"containerTags": ["a"]}
    ),
}


def fill(http: httpx.Client, app: App, times: int) -> None:
    for _ in range(times):
        number = len(listed(http, limit=100))
        add(http, f"heron {number} " * 40, containerTags=["a", "b"])
        known = {"containerTag": "a", "memories": [{"content": f"The heron stood at {number}."}]}
        assert http.post("/v4/memories", json=known).status_code == 201
    drain(app)


def test_reading(client: httpx.Client, app: App, statements: Statements):
    add(client, "heron", customId="known", containerTag="a")
    upload(client, "a.txt", b"heron", customId="file")
    fill(client, app, 1)
    few: dict[str, int] = {}
    for name, call in READS.items():
        with statements.sent() as sent:
            assert call(client).status_code == 200, name
            few[name] = len(sent)
    fill(client, app, 12)

    for name, call in READS.items():
        with statements.sent() as sent:
            assert call(client).status_code == 200, name
            # One less where the tag has become nearly all there is.
            assert len(sent) <= few[name] <= MOST, (name, sent)


def test_writing(client: httpx.Client, app: App, statements: Statements):
    counts: list[dict[str, int]] = []
    for documents in (1, 12):
        add(client, "heron", customId="known", containerTag="a")
        fill(client, app, documents)
        known = {"containerTag": "w", "memories": [{"content": "Ann."}]}
        assert client.post("/v4/memories", json=known).status_code == 201
        counts.append({})
        for name, call in WRITES.items():
            with statements.sent() as sent:
                assert call(client).status_code in (200, 204), name
                counts[-1][name] = len(sent)
            assert counts[-1][name] <= MOST, (name, sent)
        drain(app)

    few, many = counts
    # Only the second time there is a conversation to add to.
    assert {**many, "talk": 0} == {**few, "talk": 0}


def test_a_note_is_taken_in_five_statements(client: httpx.Client, statements: Statements):
    """The key, the lock and the look for a retry of the same, the row, the call to the workers."""
    add(client, "first", containerTag="a")

    with statements.sent() as sent:
        add(client, "second", containerTag="a")

    assert len(sent) == 5, sent
    assert "notify" in sent[-1]


def test_deleting_a_tag_costs_by_the_documents_that_keep_others(
    client: httpx.Client, app: App, statements: Statements
):
    for tag in ("a", "b"):
        for n in range(3 if tag == "a" else 9):
            add(client, f"heron {n}", containerTag=tag)
    drain(app)
    costs: list[int] = []
    for tag in ("a", "b"):
        with statements.sent() as sent:
            assert client.delete(f"/v3/container-tags/{tag}").status_code == 200
            costs.append(len(sent))

    assert costs[0] == costs[1] <= MOST
