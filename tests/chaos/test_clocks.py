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
from datetime import timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psycopg
import pytest

from recollect import documents
from recollect.app import App
from recollect.blobs import FolderBlobs, new_key
from recollect.db import Database
from recollect.documents import NewDocument
from recollect.errors import Unavailable
from recollect.model import Content, DocumentId, Plan, StoredBlob, Tenant
from recollect.ops import _rewrite, _server_files, purge, verify
from recollect.ops.files import delete_strays
from recollect.orgs import orgs
from recollect.torture._clock import DAY, Clock, can_step
from recollect.worker import processing
from recollect.worker.processing import Worker
from tests.conftest import eventually, plain_client, serving

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


def test_a_file_that_only_looks_old_is_not_swept_from_under_its_document(
    app: App, db: Database, tenant: Tenant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the clock is set right between the bytes and the row of an upload."""
    monkeypatch.setattr(processing, "SECOND_LOOK", processing.PACE)
    blobs = Watched(tmp_path)
    ours, nobodys = (new_key(tenant.id, name) for name in (b"ours", b"nobody's"))
    for key in (ours, nobodys):
        blobs.put(key, b"ours" if key == ours else b"nobody's")
        os.utime(tmp_path / key, (0, 0))
    with db.begin() as tx:
        tx.execute("insert into doomed_blobs (key) values ('given/up')")
    working = Worker(replace(app, blobs=blobs))
    thread = threading.Thread(target=working.run)
    thread.start()
    try:
        assert blobs.listed.wait(60)
        content = Content("text", bytes(32), blob=StoredBlob(ours, "a.txt", None))
        with db.begin() as tx:
            documents.add(tx, tenant, NewDocument(content, ["a"]), DocumentId(uuid.uuid4().hex))
        blobs.go_on.set()
        eventually(lambda: not (tmp_path / nobodys).exists())
    finally:
        blobs.go_on.set()
        working.stop()
        thread.join(60)

    assert blobs.get(ours) == b"ours"


class Watched(FolderBlobs):
    """Stands still once the first list of old files is made; those that other tests gave up, which
    the worker deletes before, do not hold it up."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.listed, self.go_on = threading.Event(), threading.Event()

    def older_than(self, age: Any) -> Any:
        found = list(super().older_than(age))
        self.listed.set()
        return iter(found)

    def delete(self, key: str) -> None:
        assert not self.listed.is_set() or self.go_on.wait(60)
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
            "SECRET_KEY": "one for all 7f3a9c15e2d84b60a1b5",
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
        threading.Thread(target=self._server.serve_forever, args=[0.01], daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.answer.set()
        self._server.shutdown()
        self._server.server_close()


def sweep(app: App) -> None:
    processing.sweep_blobs(app)


def mend(app: App) -> None:
    verify.verify(app.db, app.blobs, mend=True)


def sweep_of_purge(app: App) -> None:
    delete_strays(app.db, app.blobs, purge._strays(app.db, app.blobs))


class Aged(FolderBlobs):
    """All that is written looks old, as when a clock that was years behind is set right."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.root = root
        self.written: Callable[[], object] = lambda: None

    def put(self, key: str, data: bytes) -> None:
        super().put(key, data)
        os.utime(self.root / key, (0, 0))
        self.written()


def test_an_upload_whose_file_was_swept_before_its_row_is_refused_not_lost(
    app: App, tenant: Tenant, key: str, tmp_path: Path
) -> None:
    blobs = Aged(tmp_path)
    mine = replace(app, blobs=blobs)
    files = {"file": ("a.txt", b"Kept.")}
    headers = {"Authorization": f"Bearer {key}"}
    with serving(mine) as url, plain_client(url, headers) as http:
        for clean in (sweep, mend, sweep_of_purge):
            blobs.written = partial(clean, mine)
            assert http.post("/v3/documents/file", files=files).status_code == 503
            assert list(blobs.older_than(timedelta(0))) == []
        blobs.written = lambda: None
        answer = http.post("/v3/documents/file", files=files)
        for clean in (sweep, mend, sweep_of_purge):
            clean(mine)

    assert answer.status_code == 200
    with app.db.begin() as tx:
        [document] = documents.find(tx, tenant, documents.DocumentQuery()).items
        kept = documents.file(tx, tenant, document.id)
    assert document.id == answer.json()["id"]
    assert blobs.get(kept.key) == b"Kept."


def test_no_acknowledged_upload_is_lost_to_sweeps_that_take_all_for_old(
    app: App, tenant: Tenant, tmp_path: Path
) -> None:
    """Real sessions that race: four write, two sweep whatever they find."""
    blobs = Aged(tmp_path)
    mine = replace(app, blobs=blobs)
    written, refused, faults = list[str](), list[str](), list[Exception]()
    over = threading.Event()

    def write(client: int) -> None:
        for n in range(25):
            data = f"{client} {n}".encode()
            stored = StoredBlob(new_key(tenant.id, data), "a.txt", None)
            blobs.put(stored.key, data)
            new = NewDocument(Content("text", data.ljust(32), blob=stored), ["a"])
            if n % 8 == 0:  # what takes its time is swept, most likely
                eventually(lambda key=stored.key: not (tmp_path / key).exists())
            try:
                with app.db.begin() as tx:
                    documents.add(tx, tenant, new, DocumentId(uuid.uuid4().hex))
            except Unavailable:
                refused.append(stored.key)
            else:
                written.append(stored.key)

    def clean() -> None:
        while not over.is_set():
            try:
                processing.sweep_blobs(mine)
            except Exception as error:  # noqa: BLE001 # a thread tells nobody else
                faults.append(error)

    sweepers = [threading.Thread(target=clean) for _ in range(2)]
    writers = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in (*sweepers, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    over.set()
    for thread in sweepers:
        thread.join()
    processing.sweep_blobs(mine)

    assert faults == []
    assert len(written) + len(refused) == 100
    assert refused, "no sweep came between"
    assert set(written) == set(blobs.older_than(timedelta(0)))


def test_a_table_that_is_being_made_is_not_removed_for_its_age(
    new_database: Callable[[], str], postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the clock is set back after its transaction began."""
    url = new_database()  # in which nobody has left anything
    server = Path(rows(postgres_url, "show data_directory")[0][0])
    if not server.exists():
        pytest.skip("a server elsewhere")
    for module in (_rewrite, _server_files):
        monkeypatch.setattr(module, "PATIENCE", timedelta(milliseconds=200))
    with (
        psycopg.connect(url) as maker,
        Database(url, size=1) as db,
        purge._session(db) as session,
    ):
        maker.execute("create table half_made as select 'a row' as what")
        [(path,)] = maker.execute("select pg_relation_filepath('half_made')").fetchall()
        os.utime(server / path, (1, 1))
        assert _server_files.remove_abandoned(session, server) == 0
        maker.commit()
        assert _server_files.remove_abandoned(session, server) == 0
        assert maker.execute("select what from half_made").fetchall() == [("a row",)]
        maker.execute("drop table half_made")


def test_a_purge_of_the_future_does_not_put_off_the_next(db: Database) -> None:
    with db.begin() as tx, tx.transaction(force_rollback=True):
        tx.execute("delete from purges")
        tx.execute(
            "insert into purges (id, started_at, finished_at, changes)"
            " values ('past', now() - interval '2 days', now(), -1),"
            " ('ahead', now() + interval '1 year', now(), -1)"
        )
        assert purge.due(tx, timedelta(days=1))
        assert not purge.due(tx, timedelta(days=3))


def test_what_waits_steps_along_with_the_clock_of_the_database(
    db: Database, tenant: Tenant
) -> None:
    began = time.monotonic()
    lease, hour = timedelta(minutes=1), timedelta(hours=1)
    ids = {name: DocumentId(uuid.uuid4().hex) for name in ("again", "held", "waits")}
    with db.begin() as tx:
        for name, id in ids.items():
            documents.add(tx, tenant, NewDocument(documents.text_content(name), ["a"]), id)
    # As a clock wrote that was an hour ahead.
    state(db, ids["again"], "queued", hour + timedelta(seconds=30))
    state(db, ids["held"], "processing", hour + lease)
    state(db, ids["waits"], "queued", 2 * hour)
    with db.begin() as tx:
        before = documents.moment(tx)
    later = DocumentId(uuid.uuid4().hex)
    with db.begin() as tx:
        documents.add(tx, tenant, NewDocument(documents.text_content("later"), ["a"]), later)
    state(db, later, "queued", 2 * hour)

    for _ in range(2):  # another worker sees the same step
        with db.begin() as tx:
            documents.step_along(tx, before, -hour, lease=lease)

    found = {name: due_in(db, id) for name, id in {**ids, "later": later}.items()}
    for name, wanted in {"again": 30, "held": 60, "waits": 3600, "later": 7200}.items():
        assert wanted - (time.monotonic() - began) - 1 < found[name] < wanted + 1, name


def test_a_clock_that_steps_ahead_ends_no_lease_of_who_lives(db: Database, tenant: Tenant) -> None:
    began = time.monotonic()
    lease, minute = timedelta(minutes=1), timedelta(minutes=1)
    ids = {name: DocumentId(uuid.uuid4().hex) for name in ("held", "dead")}
    with db.begin() as tx:
        for name, id in ids.items():
            documents.add(tx, tenant, NewDocument(documents.text_content(name), ["a"]), id)
        now = documents.moment(tx)
    state(db, ids["held"], "processing", -59 * minute)
    state(db, ids["dead"], "processing", -61 * minute)
    before = replace(now, at=now.at - timedelta(hours=1))
    with db.begin() as tx:
        documents.step_along(tx, before, timedelta(hours=1), lease=lease)

    assert 60 - (time.monotonic() - began) - 1 < due_in(db, ids["held"]) < 60 + 1
    assert due_in(db, ids["dead"]) < -60


@pytest.mark.parametrize("step", [-3600, 3600])
def test_a_worker_sees_a_step_and_a_slow_answer_is_none(
    app: App, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    seen: list[timedelta] = []

    def note(_: object, __: object, step: timedelta, **___: object) -> int:
        seen.append(step)
        return 0

    monkeypatch.setattr(documents, "step_along", note)
    monkeypatch.setattr(processing, "STEP", timedelta(milliseconds=200))
    one = Worker(app)
    with app.db.begin() as tx:
        one._last_look = one._mind_the_clock(tx)
        tx.execute("select pg_sleep(0.3)")  # time that passes is no step
        one._last_look = one._mind_the_clock(tx)
        assert seen == []
        look = documents.moment
        shift = timedelta(seconds=step)
        monkeypatch.setattr(
            documents, "moment", lambda tx: replace(found := look(tx), at=found.at + shift)
        )
        for _ in range(2):
            one._last_look = one._mind_the_clock(tx)
    assert [found.total_seconds() for found in seen] == [pytest.approx(step, abs=5)]


def state(db: Database, id: DocumentId, status: str, due: timedelta) -> None:
    with db.begin() as tx:
        tx.execute(
            "update documents set status = %s, due_at = now() + %s where id = %s",
            (status, due, id),
        )


def due_in(db: Database, id: DocumentId) -> float:
    with db.begin() as tx:
        row = tx.execute(
            "select extract(epoch from due_at - now())::float8 as due from documents where id = %s",
            (id,),
        ).fetchone()
    assert row is not None
    return row["due"]
