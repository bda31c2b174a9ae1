"""Nothing of ours computes for long inside a transaction, whose locks others wait for.

What the process itself computes between two statements of a transaction counts, not what it waits
for: so a busy machine changes nothing.
"""

import gc
import json
import sys
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import replace
from types import FrameType
from typing import Any, LiteralString, Self

import httpx
import pytest
from psycopg import Cursor
from psycopg.pq import TransactionStatus
from psycopg.rows import DictRow

from recollect.app import App
from recollect.db import Database, Tx
from recollect.ingest import intake
from recollect.worker import tag_merges
from recollect.worker.processing import drain
from tests.conftest import plain_client, serving

LONGEST = 1.0
"""CPU seconds"""
DOORS = ("/recollect/db/__init__.py", "/psycopg", "/contextlib.py", __file__)
_last = threading.local()


class Watched(Cursor[DictRow]):
    """Notes what its thread computed since the statement before, and where it was then."""

    found: tuple[float, str] = (0.0, "")

    def execute(self, query: Any, params: Any = None, **how: Any) -> Self:
        self._note()
        try:
            return super().execute(query, params, **how)
        finally:
            _last.at = time.thread_time()

    def executemany(self, query: Any, params_seq: Any, **how: Any) -> None:
        self._note()
        super().executemany(query, params_seq, **how)
        _last.at = time.thread_time()

    def _note(self) -> None:
        if self.connection.info.transaction_status is TransactionStatus.IDLE:
            return
        took = time.thread_time() - _last.at
        if took > Watched.found[0]:
            Watched.found = took, _site()


class WatchedDatabase(Database):
    def _begun(self, opening: LiteralString, give_up: float) -> Tx:
        tx = super()._begun(opening, give_up)
        tx.cursor_factory = Watched
        _last.at = time.thread_time()
        return tx


def _site() -> str:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and any(door in frame.f_code.co_filename for door in DOORS):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "?"


@pytest.fixture(scope="module")
def watched(app: App, database_url: str) -> Generator[App]:
    # Else whichever thread allocates next pays for all objects that a thousand tests left.
    gc.collect()
    gc.freeze()
    with WatchedDatabase(database_url) as db:
        yield replace(app, db=db)
    gc.unfreeze()


@pytest.fixture
def client(watched: App, key: str) -> Generator[httpx.Client]:
    with (
        serving(watched) as url,
        plain_client(url, {"Authorization": f"Bearer {key}"}) as http,
    ):
        http.timeout = httpx.Timeout(150)
        yield http


@pytest.fixture(autouse=True)
def fresh() -> None:
    Watched.found = (0.0, "")


def call(http: httpx.Client, method: str, path: str, **body: object) -> Any:
    answer = http.request(method, path, json=body)
    assert answer.is_success, answer.text[:500]
    return answer.json()


def largest_text(http: httpx.Client, _: App) -> None:
    text = "word of it\n" * (intake.CONTENT_LIMIT // 11)
    id = call(http, "POST", "/v3/documents", content=text, customId="book")["id"]
    call(http, "POST", "/v3/documents", content=text[:-5] + "x", customId="book")
    call(http, "PATCH", f"/v3/documents/{id}", content=text[:-9])


def conversation(http: httpx.Client, _: App) -> None:
    talk = [{"role": "user", "content": f"{'ok' * 500} {n}"} for n in range(9_999)]
    call(http, "POST", "/v4/conversations", conversationId="talk", messages=talk)
    talk.append({"role": "user", "content": "bye"})
    call(http, "POST", "/v4/conversations", conversationId="talk", messages=talk)


def metadata(http: httpx.Client, _: App) -> None:
    long = "\U0001f600" * (intake.METADATA_VALUE // 4)
    most = {f"key {n}": long for n in range(9)} | {f"k{n}": "x" for n in range(500)}
    id = call(http, "POST", "/v3/documents", content="short", metadata=most)["id"]
    call(http, "PATCH", f"/v3/documents/{id}", metadata=most)


def many_notes(http: httpx.Client, app: App) -> None:
    """A batch of the most, worked together, listed, moved to another tag, deleted."""
    notes = [{"content": f"Note {n} tells of herons.", "containerTag": "a"} for n in range(600)]
    call(http, "POST", "/v3/documents/batch", documents=notes)
    drain(app)
    call(http, "POST", "/v3/documents/list", limit=1100, includeContent=True)
    call(http, "POST", "/v3/container-tags/merge", containerTags=["a"], targetContainerTag="b")
    while tag_merges.step(app):
        pass
    call(http, "DELETE", "/v3/documents/bulk", containerTags=["b"])


def memories(http: httpx.Client, _: App) -> None:
    most = [{"content": f"{n} " + "word " * 1_900} for n in range(100)]
    call(http, "POST", "/v4/memories", containerTag="a", memories=most)
    call(http, "POST", "/v4/memories/list", containerTag="a", limit=100)
    call(http, "POST", "/v4/memories/forget-matching", containerTag="a", query="word", dryRun=True)


def questions(http: httpx.Client, _: App) -> None:
    lines = "\n".join(json.dumps({"question": f"{n}?", "words": "x" * 900}) for n in range(500))
    call(http, "POST", "/v3/test-questions/import", containerTag="a", lines=lines)


FLOWS: list[Callable[[httpx.Client, App], None]] = [
    largest_text,
    conversation,
    metadata,
    many_notes,
    memories,
    questions,
]


@pytest.mark.costly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.__name__)
def test_no_transaction_waits_for_what_a_process_computes(
    client: httpx.Client, watched: App, flow: Callable[[httpx.Client, App], None]
):
    flow(client, watched)

    took, site = Watched.found
    sys.stdout.write(f"{flow.__name__}: {took:.3f} s at {site}\n")
    assert took < LONGEST, site


def test_the_watch_sees_what_is_computed_inside(watched: App):
    with watched.db.begin() as tx:
        tx.execute("select 1")
        began = time.thread_time()
        while time.thread_time() - began < 0.2:
            pass
        tx.execute("select 1")

    assert Watched.found[0] >= 0.2
