"""Connections to the database break, also exactly at a commit: all or nothing, and once.

Between a process and PostgreSQL stands `tests/fakes/wire.py`. Rows are looked at beside it.
"""

import hashlib
import socket
import threading
import uuid
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, LiteralString

import httpx
import psycopg
import pytest
import uvicorn
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

from recollect import documents, encryption
from recollect.api import create_app
from recollect.app import App, index_identity
from recollect.blobs import NOTE, FolderBlobs
from recollect.config import Config
from recollect.db import Database
from recollect.documents import NewDocument
from recollect.errors import SetupError, Unavailable
from recollect.index import vector_index
from recollect.model import Content, DocumentId, OrgId, Plan, Scope, StoredBlob, Tenant, random_id
from recollect.ops import backup
from recollect.ops.backup import Archive
from recollect.orgs import orgs, tags
from recollect.worker import processing
from recollect.worker.processing import Worker, drain
from tests.conftest import eventually, serving
from tests.fakes.embedder import WordEmbedder
from tests.fakes.wire import Fault, Weather, Wire

pytestmark = pytest.mark.one_server  # what it counts joins tables that are spread with others

SEED = 20161


@dataclass(frozen=True, slots=True)
class Place:
    """An installation behind a wire; `url` leads around it."""

    app: App
    url: str
    wire: Wire

    def rows(self, query: LiteralString, *values: Any) -> list[dict[str, Any]]:
        with psycopg.Connection[dict[str, Any]].connect(self.url, row_factory=dict_row) as session:
            return session.execute(query, values or None).fetchall()


def open_place(app: App, url: str, folder: Path, lease: float = 120.0) -> Place:
    wire = Wire(url).__enter__()
    db = Database(wire.url, size=12).open()
    embedder = WordEmbedder()
    with db.begin() as tx:
        vector_index.adopt(tx, *index_identity(embedder))
    config = Config(
        data_dir=folder,
        workers=3,
        lease_seconds=lease,
        max_attempts=50,
        allow_networks=app.config.allow_networks,
    )
    blobs = FolderBlobs(folder / "blobs")
    return Place(replace(app, config=config, db=db, blobs=blobs, embedder=embedder), url, wire)


def close(place: Place) -> None:
    place.app.db.close()
    place.wire.__exit__()


@pytest.fixture
def new_place(
    app: App, new_database: Callable[[], str], tmp_path: Path
) -> Generator[Callable[..., Place]]:
    """Makes installations, each with a database, a folder and a wire of its own."""
    made: list[Place] = []

    def make(**given: Any) -> Place:
        made.append(open_place(app, new_database(), tmp_path / uuid.uuid4().hex[:8], **given))
        return made[-1]

    yield make
    for place in made:
        close(place)


@pytest.fixture(scope="module")
def served(
    app: App, new_database: Callable[[], str], tmp_path_factory: pytest.TempPathFactory
) -> Generator[tuple[Place, str]]:
    """One for all tests of the API, and its address."""
    place = open_place(app, new_database(), tmp_path_factory.mktemp("served"))
    with serving(place.app) as url:
        yield place, url
    close(place)


@dataclass(frozen=True, slots=True)
class Door:
    """The API of a place, and what it must have acknowledged."""

    place: Place
    http: httpx.Client
    tenant: Tenant

    def state(self) -> list[dict[str, Any]]:
        return self.place.rows(
            "select custom_id, content, container_tags, metadata, blob is not null as file,"
            " revision from documents where org_id = %s order by custom_id, content",
            self.tenant.id,
        )


@pytest.fixture
def door(served: tuple[Place, str]) -> Generator[Door]:
    place, url = served
    with place.app.db.begin() as tx:
        org = orgs.create(tx, uuid.uuid4().hex, Plan.ENTERPRISE)
        key = orgs.create_key(tx, org.id, scope=Scope.ADMIN)[1]
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.Client(
        base_url=url, headers=headers, timeout=30, trust_env=False, verify=False
    ) as http:
        yield Door(place, http, Tenant(org.id))
    place.wire.calm()


Act = Callable[[httpx.Client], httpx.Response]
ACTS: dict[str, tuple[str, Act]] = {
    "add": (
        "insert into documents",
        lambda http: http.post("/v3/documents", json={"content": "new", "customId": "new"}),
    ),
    "add without a customId": (
        "insert into documents",
        lambda http: http.post("/v3/documents", json={"content": "nameless"}),
    ),
    "add many": (
        "insert into documents",
        lambda http: http.post(
            "/v3/documents/batch",
            json={"documents": [{"content": f"b{n}", "customId": f"b{n}"} for n in range(3)]},
        ),
    ),
    "append": (
        "update documents",
        lambda http: http.post("/v3/documents", json={"content": "more", "customId": "one"}),
    ),
    "replace": (
        "update documents",
        lambda http: http.patch("/v3/documents/one", json={"content": "other"}),
    ),
    "relabel": (
        "update documents",
        lambda http: http.patch("/v3/documents/one", json={"metadata": {"n": 2}}),
    ),
    "delete": ("delete from documents", lambda http: http.delete("/v3/documents/one")),
    "delete many": (
        "delete from documents",
        lambda http: http.request("DELETE", "/v3/documents/bulk", json={"ids": ["one", "two"]}),
    ),
    "upload": (
        "insert into documents",
        lambda http: http.post(
            "/v3/documents/file",
            data={"customId": "file"},
            files={"file": ("a.txt", b"bytes of a file", "text/plain")},
        ),
    ),
}


CASES = [
    *((act, fault) for act in ACTS for fault in ("unsent", "unanswered")),
    *((act, fault) for act in ("append", "upload") for fault in ("torn", "half")),
]


@pytest.mark.parametrize(("act", "fault"), CASES)
def test_a_write_whose_commit_is_cut_is_all_or_nothing_and_once(
    door: Door, act: str, fault: Fault
) -> None:
    http, place = door.http, door.place
    touching, do = ACTS[act]
    for name in ("one", "two"):
        http.post("/v3/documents", json={"content": name, "customId": name}).raise_for_status()
    before = door.state()
    rule = place.wire.at_commit(fault, touching)

    cut = do(http)
    between = eventually_quiet(door)
    again = do(http)
    after = door.state()

    assert rule.hit.is_set()
    assert cut.status_code == 503
    assert cut.headers["retry-after"]
    assert again.status_code in ({204, 404} if act == "delete" else {200})
    # Nothing of it was done, or all; the second try leaves what one try would have left.
    assert (between == before) is (fault == "unsent")
    assert after != before
    if act == "add many":  # each item is a write of its own, and the first was cut
        assert [one for one in after if one in between] == between
        assert len(after) == 5
    elif fault != "unsent":
        assert [one | {"revision": 0} for one in after] == [
            one | {"revision": 0} for one in between
        ]
    assert len({one["custom_id"] or one["content"] for one in after}) == len(after)
    files = place.rows("select blob from documents where blob is not null")
    assert [place.app.blobs.get(row["blob"]) for row in files] == [b"bytes of a file"] * len(files)


def test_an_answer_that_comes_late_is_waited_for(door: Door) -> None:
    rule = door.place.wire.at_commit("stalled", "insert into documents")

    answer = door.http.post("/v3/documents", json={"content": "late", "customId": "late"})

    assert rule.hit.is_set()
    assert (answer.status_code, [one["custom_id"] for one in door.state()]) == (200, ["late"])


def test_a_process_that_ends_says_so_to_who_still_waits(
    app: App, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    came, go_on = threading.Event(), threading.Event()

    def wait(*_: object) -> dict[str, int]:
        came.set()
        go_on.wait(120)
        return {}

    monkeypatch.setattr(documents, "counts", wait)
    server = uvicorn.Server(
        uvicorn.Config(create_app(app), port=0, log_config=None, timeout_graceful_shutdown=1)
    )
    with ThreadPoolExecutor(2) as threads:
        running = threads.submit(server.run)
        eventually(lambda: server.started or running.done())
        url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        headers = {"Authorization": f"Bearer {key}"}
        with httpx.Client(
            base_url=url, headers=headers, timeout=60, trust_env=False, verify=False
        ) as http:
            asked = threads.submit(http.get, "/v3/documents/counts")
            assert came.wait(60)
            server.should_exit = True
            answer = asked.result(60)
        go_on.set()
        running.result(60)

    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["error"] == "Service unavailable"


def eventually_quiet(door: Door) -> list[dict[str, Any]]:
    """The rows once no session is in a transaction: a server that lost its client ends it."""
    eventually(
        lambda: (
            not door.place.rows(
                "select 1 from pg_stat_activity where datname = current_database()"
                " and state <> 'idle' and pid <> pg_backend_pid()"
            )
        )
    )
    return door.state()


# --- workers -------------------------------------------------------------------------------------


def story(n: int) -> str:
    return "\n\n".join(
        f"Part {part} of {n}: {f'w{n}x{part} tells. ' * 60}".strip() for part in range(3)
    )


def add(place: Place, tenant: Tenant, text: str, custom_id: str) -> DocumentId:
    """Beside the wire."""
    new = NewDocument(documents.text_content(text), ["notes"], custom_id=custom_id)
    with Database(place.url, size=1) as db, db.begin() as tx:
        tags.ensure(tx, tenant.id, new.tags)
        return documents.add(tx, tenant, new, DocumentId(random_id())).id


def new_org(place: Place, name: str = "acme") -> Tenant:
    with Database(place.url, size=1) as db, db.begin() as tx:
        return Tenant(orgs.create(tx, name, Plan.ENTERPRISE).id)


@contextmanager
def working(*places: App) -> Generator[None]:
    workers = [Worker(app) for app in places]
    threads = [threading.Thread(target=one.run) for one in workers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for one in workers:
            one.stop()
        for thread in threads:
            thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


def damage(place: Place) -> list[str]:
    """What no document may look like, and no index."""
    queries: dict[str, LiteralString] = {
        "chunk is not part of the text": "select d.custom_id as one from chunks c"
        " join documents d on d.id = c.document_id"
        " left join entries e on e.document_id = c.document_id and e.hash = c.hash"
        " where e.text is distinct from substr(d.text, c.start_at + 1, c.end_at - c.start_at)",
        "entry without chunk": "select e.document_id as one from entries e where not exists"
        " (select 1 from chunks c where c.document_id = e.document_id and c.hash = e.hash)",
        "wrong count": "select number as one from term_counts full join"
        " (select org_id, number, count(*) as n from entries e"
        "  join documents d on d.id = e.document_id, unnest(e.terms) number"
        "  group by org_id, number) recount using (org_id, number)"
        " where term_counts.entries is distinct from recount.n",
        "not whole": "select custom_id as one from documents"
        " where text is distinct from coalesce(content, text)"
        " or indexed_revision is distinct from revision or chunks is distinct from"
        "  (select count(*) from chunks c where c.document_id = documents.id)",
    }
    return [f"{name}: {row['one']}" for name, query in queries.items() for row in place.rows(query)]


@pytest.mark.parametrize("fault", ["unsent", "unanswered"])
def test_a_worker_whose_last_commit_is_cut_does_the_work_once(
    new_place: Callable[..., Place], monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    monkeypatch.setattr(processing, "PAUSE", timedelta(seconds=0.1))
    place = new_place()
    tenant = new_org(place)
    add(place, tenant, story(1), "cut")
    rule = place.wire.at_commit(fault, "indexed_revision =")

    with working(place.app):
        eventually(lambda: place.rows("select 1 from documents where status = 'done'"))
        eventually(rule.hit.is_set)

    [row] = place.rows("select status, claims, attempts, error_code from documents")
    # Where only the answer was lost the work was done: nobody does it again.
    assert row == {
        "status": "done",
        "claims": 2 if fault == "unsent" else 1,
        "attempts": 1,
        "error_code": None,
    }
    assert damage(place) == []


def test_workers_behind_a_bad_line_lose_and_double_nothing(
    new_place: Callable[..., Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processing, "PAUSE", timedelta(seconds=0.1))
    place = new_place(lease=1.0)  # of a claim whose commit was cut after it was done nobody knows
    tenant = new_org(place)
    numbers = iter(range(1_000))
    for n in islice(numbers, 24):
        add(place, tenant, story(n), f"note-{n}")
    # Without "half": a server that does not know that its client is gone holds the locks of a
    # transaction for as long as one may be idle, ten seconds.
    weather = Weather(Random(SEED), 0.02, ("unsent", "unanswered", "torn", "stalled"))
    place.wire.weather = weather
    with (
        Database(place.wire.url, size=6) as second,
        working(place.app, replace(place.app, db=second)),
    ):
        done = "select count(*) as n from documents where status = 'done'"
        left = "select count(*) as n from documents where status <> 'done'"

        def enough() -> bool:
            """More work while the line was kind: of idle workers there is little to break."""
            if weather.happened.total() >= 10:
                return place.rows(done)[0]["n"] >= 15
            if place.rows(left)[0]["n"] < 4:
                n = next(numbers)
                add(place, tenant, story(n), f"note-{n}")
            return False

        eventually(enough)
        place.wire.calm()
        total = next(numbers)
        eventually(lambda: place.rows(done)[0]["n"] == total)

    assert place.rows("select custom_id from documents where status <> 'done'") == []
    assert place.rows("select count(*) as n from documents") == [{"n": total}]
    assert damage(place) == []


# --- long work -----------------------------------------------------------------------------------


def upload(place: Place, tenant: Tenant, data: bytes) -> None:
    key = f"{tenant.id}/{hashlib.sha256(data).hexdigest()[:2]}/{hashlib.sha256(data).hexdigest()}"
    key += ".00000001"
    place.app.blobs.put(key, data)
    content = Content("text", hashlib.sha256(data).digest(), blob=StoredBlob(key, "a.txt", None))
    new = NewDocument(content, ["notes"], custom_id="file")
    with place.app.db.begin() as tx:
        documents.add(tx, tenant, new, DocumentId(random_id()))


def filled(place: Place) -> Tenant:
    tenant = new_org(place)
    for n in range(4):
        add(place, tenant, story(n), f"note-{n}")
    upload(place, tenant, b"The lighthouse keeper counts ships.\n")
    drain(place.app)
    return tenant


def held(place: Place, org: OrgId) -> list[dict[str, Any]]:
    return place.rows(
        "select d.custom_id, d.status, d.text, d.chunks, d.blob is not null as file,"
        " (select count(*) from entries e where e.document_id = d.id) as entries"
        " from documents d where org_id = %s order by custom_id",
        org,
    )


@pytest.mark.parametrize("fault", ["unsent", "unanswered"])
def test_an_import_that_is_cut_at_commits_completes_without_doubles(
    new_place: Callable[..., Place], tmp_path: Path, fault: Fault
) -> None:
    place = new_place()
    tenant, there = filled(place), new_org(place, "elsewhere")
    backup.export(place.url, place.app.blobs, tmp_path / "bundle", org="acme")
    cuts = 0
    while True:
        rule = place.wire.at_commit(fault, "insert into documents", skip=1)
        try:
            done = backup.bring(place.app, tmp_path / "bundle", org="elsewhere")
        except Unavailable:
            assert rule.hit.is_set()
            cuts += 1
            continue
        break

    assert cuts == (4 if fault == "unsent" else 2)
    assert done.added + done.there == 5
    assert held(place, there.id) == held(place, tenant.id)
    keys = [row["blob"] for row in place.rows("select blob from documents where blob is not null")]
    assert [place.app.blobs.get(key) for key in keys] == [
        b"The lighthouse keeper counts ships.\n"
    ] * 2
    assert damage(place) == []


@pytest.mark.parametrize("fault", ["unsent", "unanswered"])
def test_a_restore_that_is_cut_at_its_commit_knows_whether_it_is_done(
    new_place: Callable[..., Place], empty_database: Callable[[], str], tmp_path: Path, fault: Fault
) -> None:
    place = new_place()
    tenant = filled(place)
    made = tmp_path / "all.backup"
    backup.backup(place.url, place.app.blobs, made, sealed_with=encryption.mark([b"k" * 32]))
    url = empty_database()
    blobs = FolderBlobs(tmp_path / "there")
    with Wire(url) as wire, Archive(made) as archive:
        archive.check()
        rule = wire.at_commit(fault, "create table migrations")
        if fault == "unsent":
            with pytest.raises(Unavailable):
                backup.restore(archive, wire.url, blobs)
            # As before: no table, no file.
            assert (
                Place(place.app, url, wire).rows(
                    "select 1 from pg_tables where schemaname = 'public'"
                )
                == []
            )
            assert [path.name for path in (tmp_path / "there").rglob("*") if path.is_file()] == [
                NOTE
            ]
        done = backup.restore(archive, wire.url, blobs)
        assert rule.hit.is_set()
        with pytest.raises(SetupError, match="in use already"):
            backup.restore(archive, wire.url, blobs)

    assert done.documents == 5
    there = Place(replace(place.app, blobs=blobs), url, place.wire)
    assert held(there, tenant.id) == held(place, tenant.id)
    [file] = there.rows("select blob from documents where blob is not null")
    assert blobs.get(file["blob"]) == b"The lighthouse keeper counts ships.\n"
    assert damage(there) == []


@pytest.fixture
def empty_database(postgres_url: str) -> Generator[Callable[[], str]]:
    """Makes databases without any table."""
    made: list[str] = []

    def make() -> str:
        made.append(f"empty_{uuid.uuid4().hex[:12]}")
        with psycopg.connect(postgres_url, autocommit=True) as session:
            session.execute(sql.SQL("create database {}").format(sql.Identifier(made[-1])))
        return make_conninfo(postgres_url, dbname=made[-1])

    yield make
    with psycopg.connect(postgres_url, autocommit=True) as session:
        for name in made:
            session.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


# --- a line that is silent -----------------------------------------------------------------------


def test_a_silent_network_is_noticed_within_minutes(served: tuple[Place, str]) -> None:
    place = served[0]

    def patience(url: str) -> list[int]:
        with (
            Database(url, size=1) as db,
            db.begin() as tx,
            socket.socket(fileno=tx.fileno()) as line,
        ):
            try:
                options = socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT
                return [
                    *(line.getsockopt(socket.IPPROTO_TCP, option) for option in options),
                    line.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
                ]
            finally:
                line.detach()

    # Without, Linux asks after two hours, and sends again for a quarter of one.
    assert patience(place.wire.url) == [30, 10, 3, 60_000]
    assert patience(make_conninfo(place.wire.url, keepalives_idle=7)) == [7, 10, 3, 60_000]
