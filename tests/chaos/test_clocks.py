"""Wall clocks that are wrong, and that step: nothing is lost, early, doubled or left waiting.

Leases, back-off and turns go by the database's clock, and whoever waits inside a process by the
monotonic one. The processes here have clocks of their own (`recollect/torture/_clock.py`).
"""

import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psycopg
import pytest

from recollect import documents, orgs, worker
from recollect.app import App
from recollect.blobs import FolderBlobs, new_key
from recollect.db import Database
from recollect.documents import NewDocument
from recollect.model import Content, DocumentId, Plan, StoredBlob, Tenant
from recollect.torture._clock import DAY, Clock, can_step
from recollect.worker import Worker
from tests.conftest import eventually

COMPILER = can_step()
needs_clock = pytest.mark.skipif(isinstance(COMPILER, str), reason=str(COMPILER))
HOUR = 3600


def clock(folder: Path) -> Clock:
    assert isinstance(COMPILER, Path)
    folder.mkdir()
    return Clock(COMPILER, folder)


@needs_clock
def test_a_process_sees_the_step_and_waits_as_ever(tmp_path: Path) -> None:
    stepped = clock(tmp_path / "clock")
    stepped.step(-DAY)
    script = (
        "import sys, time, threading\n"
        "began = time.monotonic()\n"
        "threading.Event().wait(0.05)\n"
        "print(int(time.time()), flush=True)\n"
        "sys.stdin.readline()\n"
        "print(int(time.time()), time.monotonic() - began < 60, flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        env=stepped.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        assert abs(int(child.stdout.readline()) - time.time() + DAY) < 30
        stepped.step(2 * HOUR)
        child.stdin.write("\n")
        child.stdin.flush()
        moment, sound = child.stdout.readline().split()

    assert abs(int(moment) - time.time() - 2 * HOUR) < 30
    assert sound == "True"


@needs_clock
@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_workers_two_hours_ahead_and_behind_do_each_thing_once_and_in_time(
    new_database: Callable[[], str], tmp_path: Path
) -> None:
    url = new_database()
    with Database(url, size=1) as db, db.begin() as tx:
        tenant = Tenant(orgs.create(tx, "acme", Plan.ENTERPRISE).id)
    with Site() as site:
        texts = [documents.text_content(f"note {n} of one") for n in range(20)]
        pages = [
            Content("webpage", n.encode() * 4, text=f"{site.url}/{n}", url=f"{site.url}/{n}")
            for n in ("slow", "broken")
        ]
        with Database(url, size=1) as db, db.begin() as tx:
            for content in (*pages, *texts):
                new = NewDocument(content, ["notes"])
                documents.add(tx, tenant, new, DocumentId(uuid.uuid4().hex))
        with working(url, tmp_path, [2 * HOUR, -2 * HOUR]):
            eventually(lambda: site.asked("/slow"), timeout=150)
            # Held for three leases: were they measured by these clocks, the other would take it.
            eventually(lambda: len(site.asked("/broken")) == 2, timeout=90)
            eventually(lambda: time.monotonic() - site.asked("/slow")[0] > 3)
            site.answer.set()
            eventually(lambda: rows(url, "select 1 from documents where status <> 'done'") == [])

    claims = rows(url, "select d.url, claims, attempts from documents d order by url nulls first")
    assert claims[:20] == [(None, 1, 1)] * 20
    assert claims[20:] == [(f"{site.url}/broken", 2, 2), (f"{site.url}/slow", 1, 1)]
    first, second = site.asked("/broken")
    assert second - first > 1.4, "tried again before its time"


@pytest.mark.timeout(60)
def test_a_file_that_only_looks_old_is_not_swept_from_under_its_document(
    app: App, db: Database, tenant: Tenant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the clock is set right between the bytes and the row of an upload."""
    monkeypatch.setattr(worker, "SECOND_LOOK", worker.PACE)
    blobs = Watched(tmp_path)
    ours, nobodys = (new_key(tenant.id, name) for name in (b"ours", b"nobody's"))
    for key in (ours, nobodys):
        blobs.put(key, b"ours" if key == ours else b"nobody's")
        os.utime(tmp_path / key, (0, 0))
    working = Worker(replace(app, blobs=blobs))
    thread = threading.Thread(target=working.run)
    thread.start()
    try:
        blobs.listed.wait(30)
        content = Content("text", bytes(32), blob=StoredBlob(ours, "a.txt", None))
        with db.begin() as tx:
            documents.add(tx, tenant, NewDocument(content, ["a"]), DocumentId(uuid.uuid4().hex))
        blobs.go_on.set()
        eventually(lambda: not (tmp_path / nobodys).exists())
    finally:
        blobs.go_on.set()
        working.stop()
        thread.join(30)

    assert blobs.get(ours) == b"ours"


class Watched(FolderBlobs):
    """Stands still once the first list of old files is made."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.listed, self.go_on = threading.Event(), threading.Event()

    def older_than(self, age: Any) -> Any:
        found = list(super().older_than(age))
        self.listed.set()
        return iter(found)

    def delete(self, key: str) -> None:
        assert self.go_on.wait(30)
        super().delete(key)


def rows(url: str, query: Any) -> list[Any]:
    with psycopg.connect(url) as session:
        return session.execute(query).fetchall()


@contextmanager
def working(url: str, folder: Path, offsets: Sequence[int]) -> Generator[None]:
    """A `recollect work` for each clock."""
    processes: list[subprocess.Popen[bytes]] = []
    for offset in offsets:
        name = f"clock{offset}"
        stepped = clock(folder / name)
        stepped.step(offset)
        settings = {
            "DATA_DIR": str(folder / name / "data"),
            "DATABASE_URL": url,
            "BLOB_URL": (folder / "blobs").as_uri(),
            "SECRET_KEY": "one for all",
            "EMBEDDER": "none",
            "TRANSCRIBER": "none",
            "LEASE_SECONDS": "1",
            "WORKERS": "2",
            "CRAWL_DELAY": "0",
            "ALLOW_NETWORKS": "127.0.0.0/8",
        }
        with (folder / f"{name}.log").open("wb") as log:
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "recollect", "work"],
                    env={
                        **os.environ,  # noqa: TID251 # the child needs PATH and the like
                        **{f"RECOLLECT_{key}": value for key, value in settings.items()},
                        **stepped.environment,
                    },
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            )
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(60)


class Site:
    """`/slow` answers once `answer` is set; `/broken` answers 500 once, then a page."""

    def __init__(self) -> None:
        self.answer = threading.Event()
        self._asked: list[tuple[str, float]] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                before = len(site.asked(self.path))
                site._asked.append((self.path, time.monotonic()))
                if self.path == "/slow":
                    site.answer.wait(60)
                broken = self.path == "/broken" and before == 0
                body = b"<html><body><p>A page of words.</p></body></html>"
                self.send_response(500 if broken else 404 if self.path == "/robots.txt" else 200)
                self.send_header("content-type", "text/html; charset=utf-8")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def asked(self, path: str) -> list[float]:
        """When, by the monotonic clock."""
        return [at for name, at in self._asked if name == path]

    def __enter__(self) -> "Site":
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.answer.set()
        self._server.shutdown()
        self._server.server_close()
