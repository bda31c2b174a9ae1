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
from functools import partial
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any, LiteralString, Self
from zipfile import ZIP_DEFLATED, ZipFile

import httpx
import pytest
from psycopg import Cursor
from psycopg.pq import TransactionStatus
from psycopg.rows import DictRow

from recollect import documents
from recollect.app import App
from recollect.db import Database, Tx
from recollect.extract._wire import MAX_MEMBERS
from recollect.ingest import intake
from recollect.model import ConnectionId, OrgId, Plan, Tenant, random_id
from recollect.ops import backup
from recollect.orgs import orgs
from recollect.sync import connections
from recollect.sync.connections import SealedConnection
from recollect.worker import syncs, tag_merges
from recollect.worker.processing import attempt, drain, process, settle
from tests.conftest import examples, plain_client, serving
from tests.console.test_console import console_site
from tests.contract.test_search_trouble import visiting
from tests.fakes.shelf import shelved

PART = examples(change=4, night=1)
"""Of what is given at most: by day a part of it, which may take no longer than a part allows."""
LONGEST = 0.4 if PART > 1 else 1.0
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
    return answer.json() if answer.content else None


def largest_text(http: httpx.Client, _: App) -> None:
    text = "word of it\n" * (intake.CONTENT_LIMIT // PART // 11)
    id = call(http, "POST", "/v3/documents", content=text, customId="book")["id"]
    call(http, "POST", "/v3/documents", content=text[:-5] + "x", customId="book")
    call(http, "PATCH", f"/v3/documents/{id}", content=text[:-9])


def conversation(http: httpx.Client, _: App) -> None:
    talk = [{"role": "user", "content": f"{'ok' * 500} {n}"} for n in range(9_999 // PART)]
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
    notes = [
        {"content": f"Note {n} tells of herons.", "containerTag": "a"} for n in range(600 // PART)
    ]
    call(http, "POST", "/v3/documents/batch", documents=notes)
    drain(app)
    call(http, "POST", "/v3/documents/list", limit=1100, includeContent=True)
    call(http, "POST", "/v3/container-tags/merge", containerTags=["a"], targetContainerTag="b")
    while tag_merges.step(app):
        pass
    call(http, "DELETE", "/v3/documents/bulk", containerTags=["b"])


def memories(http: httpx.Client, _: App) -> None:
    most = [{"content": f"{n} " + "word " * 1_900} for n in range(100 // PART)]
    call(http, "POST", "/v4/memories", containerTag="a", memories=most)
    call(http, "POST", "/v4/memories/list", containerTag="a", limit=100)
    call(http, "POST", "/v4/memories/forget-matching", containerTag="a", query="word", dryRun=True)


def many_memories(http: httpx.Client, app: App) -> None:
    """A tag of 30,000, of which some thousands are meant, and only a few hundred may go at once."""
    more, goes = 30_000 // PART, 500 // PART
    made = call(
        http, "POST", "/v4/memories", containerTag="m", memories=[{"content": "One heron."}]
    )
    with app.db.begin() as tx:
        tx.execute(
            "insert into memories select (jsonb_populate_record(m, jsonb_build_object("
            "  'id', md5(m.id || n), 'content', 'Heron number ' || n || '.'))).*"
            " from memories m, generate_series(1, %s) as n where m.id = %s",
            (more, made["memories"][0]["id"]),
        )
    path, asked = "/v4/memories/forget-matching", {"containerTag": "m", "query": "heron"}
    told = call(http, "POST", path, **asked, dryRun=True, maxForget=goes)
    assert (told["count"], told["remaining"]) == (goes, more + 1 - goes)
    done = call(http, "POST", path, **asked, maxForget=goes)
    assert (done["count"], done["remaining"]) == (goes, more + 1 - goes)
    rest = call(http, "POST", path, **asked, dryRun=True)
    assert rest["count"] + rest["remaining"] == more + 1 - goes


def long_conversation(http: httpx.Client, _: App) -> None:
    """As many messages as there may be, near the bytes that a text may have, and continued in every
    way: by what is new, by a window over the last, by an edited history."""
    talk = [{"role": "user", "content": f"{'ok ' * 1_600} {n}"} for n in range(9_998 // PART)]
    half = len(talk) // 2
    say = partial(call, http, "POST", "/v4/conversations", conversationId="long")
    say(messages=talk)
    say(messages=[{"role": "user", "content": "and now this"}])
    say(messages=[*talk[:1], *talk[-500:], {"role": "user", "content": "a window"}])
    say(messages=[*talk[:half], {"role": "user", "content": "edited"}, *talk[half + 1 :]])


def archive(http: httpx.Client, app: App) -> None:
    """As many files as are read of one; then all of them get other tags and metadata, the archive
    is sent again with other texts, and goes."""
    labels = {"containerTag": "a", "customId": "zip"}
    for word in ("heron", "stork"):
        packed = BytesIO()
        with ZipFile(packed, "w", ZIP_DEFLATED) as file:
            for n in range(MAX_MEMBERS // PART):
                file.writestr(f"shelf {n % 30}/{n}.txt", f"A {word} of number {n}. " * 60)
        sent = {"file": ("notes.zip", packed.getvalue(), "application/zip")}
        answer = http.post("/v3/documents/file", files=sent, data=labels)
        assert answer.is_success, answer.text
        _unpack(app)
    assert call(http, "GET", "/v3/documents/zip")["status"] == "done"
    most = {f"key {n}": "x" * 900 for n in range(100)}
    call(http, "PATCH", "/v3/documents/zip", metadata=most, containerTags=["a", "b"])
    call(http, "POST", "/v3/container-tags/merge", containerTags=["a"], targetContainerTag="c")
    while tag_merges.step(app):
        pass
    call(http, "DELETE", "/v3/container-tags/b")
    call(http, "DELETE", "/v3/documents/zip")


def _unpack(app: App) -> None:
    """Work at the archive alone: its files stay as they are."""
    with app.db.begin() as tx:
        tx.execute(
            "update documents set due_at = now() + interval '1 day' where archive_id is not null"
        )
        [claim] = documents.claim(tx, lease=app.lease, limit=1, max_attempts=8)
    settle(app, claim, attempt(app, claim, process))


def sync_pages(http: httpx.Client, app: App) -> None:
    """Many large things between two checkpoints, then all of them changed, then renamed."""
    tenant = Tenant(OrgId(call(http, "GET", "/v3/session")["org"]["id"]))
    sealed = SealedConnection("shelf", ["notes"], 1_000, {"shelf": "large"}, None, pending=False)
    with app.db.begin() as tx:
        made = connections.create(tx, tenant.id, sealed, ConnectionId(random_id()))
    most = {f"key {n}": "x" * 900 for n in range(100)}
    with shelved("large") as shelf:
        shelf.every = 300
        for word in ("heron", "stork"):
            for n in range(300 // PART):
                shelf.put(str(n), f"{word} {n}. " * 20_000, metadata={**most, "word": word})
            _sync(app, made.id)
        for n in range(300 // PART):
            shelf.rename(str(n), f"Renamed {n}")
        _sync(app, made.id)
        for n in range(300 // PART):
            shelf.take(str(n))
        _sync(app, made.id)


def _sync(app: App, id: ConnectionId) -> None:
    with app.db.begin() as tx:
        tx.execute(
            "update connections set due_at = now(), parked_until = null where id = %s", (id,)
        )
    syncs.drain(app)


def bundle(http: httpx.Client, app: App) -> None:
    """A long text, many notes and memories, brought into another organisation, and once more."""
    text = "".join(f"Line {n} of a long text tells of herons.\n" for n in range(40_000 // PART))
    call(http, "POST", "/v3/documents", content=text, customId="book", containerTag="a")
    notes = [
        {"content": f"Note {n} tells of herons.", "containerTag": "a"} for n in range(600 // PART)
    ]
    call(http, "POST", "/v3/documents/batch", documents=notes)
    most = [{"content": f"{n} " + "word " * 1_900} for n in range(100 // PART)]
    call(http, "POST", "/v4/memories", containerTag="a", memories=most)
    drain(app)
    with app.db.begin() as tx:
        orgs.create(tx, "other", Plan.SCALE)
    own = call(http, "GET", "/v3/session")["org"]["name"]
    with TemporaryDirectory() as folder:
        backup.export(app.db.url, app.blobs, Path(folder) / "bundle", org=own)
        for _ in range(2):
            backup.bring(app, Path(folder) / "bundle", org="other")


def kept_versions(http: httpx.Client, app: App) -> None:
    """Long texts that follow one another, shown with what changed, and read as of a time."""
    call(http, "PATCH", "/v3/settings", keepVersions=3)
    lines = [f"Line {n} of a long text tells of herons." for n in range(150_000 // PART)]
    for turn in range(3):
        begun = turn * len(lines) // 4
        lines[begun : begun + 1_200 // PART] = [f"{turn} {n}" for n in range(1_200 // PART)]
        call(http, "POST", "/v3/documents", content="\n".join(lines), customId="book")
        drain(app)
    kept = call(http, "GET", "/v3/documents/book/versions")["versions"]
    assert len(kept) == 3
    then = kept[1]["knownFrom"]
    assert http.get("/v3/documents/book", params={"asOf": then}).is_success
    call(http, "POST", "/v3/search", q="herons", asOf=then)
    key = http.headers["Authorization"].removeprefix("Bearer ")
    id = call(http, "GET", "/v3/documents/book")["id"]
    with console_site(app) as url, visiting(url, key) as me:
        for number in range(3):
            shown = me.get(f"/console/documents/{id}/versions", params={"number": number})
            assert shown.status_code == 200, shown.text
    call(http, "PATCH", "/v3/settings", keepVersions=0)


def questions(http: httpx.Client, _: App) -> None:
    lines = "\n".join(
        json.dumps({"question": f"{n}?", "words": "x" * 900}) for n in range(500 // PART)
    )
    call(http, "POST", "/v3/test-questions/import", containerTag="a", lines=lines)


FLOWS: list[Callable[[httpx.Client, App], None]] = [
    largest_text,
    conversation,
    metadata,
    many_notes,
    memories,
    many_memories,
    long_conversation,
    archive,
    sync_pages,
    bundle,
    kept_versions,
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
